//! Which bytes a tensor has, if they lie together.

#![forbid(unsafe_code)]

use core::fmt;

use super::abi::DataType;

/// Why a tensor cannot be taken.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DlpackError {
    /// It is of a version with another layout. Its deleter was called.
    Version {
        /// The version.
        major: u32,
        /// Which is understood.
        understood: u32,
    },
    /// It is on a device that is neither the host nor a GPU of CUDA.
    Device {
        /// DLPack's number of the kind.
        device_type: i32,
    },
    /// It is managed memory, which moves.
    Managed,
    /// A number of its is impossible: a negative size, more bytes than there are addresses.
    Malformed,
    /// Its elements do not lie together without gaps.
    Strides {
        /// The first dimension that does not.
        dimension: usize,
    },
}

impl core::error::Error for DlpackError {}

impl fmt::Display for DlpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { major, understood } => {
                write!(
                    f,
                    "the tensor is of DLPack {major}, {understood} is understood: ask the producer for `max_version=({understood}, x)`"
                )
            }
            Self::Device { device_type } => {
                write!(
                    f,
                    "the tensor is on a device of DLPack's kind {device_type}: only the host (1, 3) and CUDA (2) can be registered"
                )
            }
            Self::Managed => f.write_str(
                "the tensor is managed memory, which moves while a device reads it: copy it to the GPU first",
            ),
            Self::Malformed => f.write_str(
                "the tensor has a shape, strides or an element that cannot be: it is the producer's mistake",
            ),
            Self::Strides { dimension } => {
                write!(
                    f,
                    "the tensor's elements do not lie together, in dimension {dimension} for one: take `.contiguous()` of it"
                )
            }
        }
    }
}

/// The bytes of a tensor whose elements lie together, in any order of dimensions: RDMA moves bytes.
pub(super) fn bytes(
    dtype: DataType,
    padded: bool,
    shape: &[i64],
    strides: Option<&[i64]>,
) -> Result<usize, DlpackError> {
    let size = |dimension: &i64| u64::try_from(*dimension).map_err(|_| DlpackError::Malformed);
    let sizes = shape.iter().map(size).collect::<Result<Vec<u64>, _>>()?;
    if sizes.contains(&0) {
        return Ok(0);
    }
    let elements = sizes.iter().try_fold(1u64, |all, size| all.checked_mul(*size)).ok_or(DlpackError::Malformed)?;
    if let Some(strides) = strides {
        dense(&sizes, strides)?;
    }
    let bits =
        u64::from(dtype.bits).checked_mul(dtype.lanes.into()).filter(|bits| *bits > 0).ok_or(DlpackError::Malformed)?;
    let packed = dtype.bits < 8 && !padded;
    let bytes = if packed {
        elements.checked_mul(bits).map(|bits| bits.div_ceil(8))
    } else {
        // Padded, each lane of fewer bits has a byte.
        let element = if dtype.bits < 8 { dtype.lanes.into() } else { bits.div_ceil(8) };
        elements.checked_mul(element)
    };
    bytes.and_then(|bytes| isize::try_from(bytes).ok()).map(isize::cast_unsigned).ok_or(DlpackError::Malformed)
}

/// Whether the strides, from the smallest on, tile without gaps. Those of dimensions of one element say nothing.
fn dense(sizes: &[u64], strides: &[i64]) -> Result<(), DlpackError> {
    let mut dimensions: Vec<(usize, u64, i64)> =
        sizes.iter().zip(strides).enumerate().map(|(nth, (size, stride))| (nth, *size, *stride)).collect();
    dimensions.retain(|(_, size, _)| *size > 1);
    dimensions.sort_by_key(|(_, _, stride)| *stride);
    let mut next = 1u64;
    for (dimension, size, stride) in dimensions {
        if u64::try_from(stride) != Ok(next) {
            return Err(DlpackError::Strides { dimension });
        }
        next = next.checked_mul(size).ok_or(DlpackError::Malformed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: DataType = DataType { code: 2, bits: 32, lanes: 1 };
    const I4: DataType = DataType { code: 0, bits: 4, lanes: 1 };

    #[test]
    fn dense_tensors_of_any_order_of_dimensions_have_their_bytes_and_others_are_refused() {
        assert_eq!(bytes(F32, false, &[2, 3, 4], None), Ok(96));
        assert_eq!(bytes(F32, false, &[2, 3, 4], Some(&[12, 4, 1])), Ok(96));
        assert_eq!(bytes(F32, false, &[2, 3, 4], Some(&[1, 2, 6])), Ok(96), "a permutation");
        assert_eq!(bytes(F32, false, &[2, 1, 4], Some(&[4, 77, 1])), Ok(32), "one element has no stride");
        assert_eq!(bytes(F32, false, &[], None), Ok(4), "a scalar");
        assert_eq!(bytes(F32, false, &[3, 0, i64::MAX], Some(&[0, 0, 0])), Ok(0));
        assert_eq!(bytes(F32, false, &[2, 4], Some(&[8, 1])), Err(DlpackError::Strides { dimension: 0 }), "a gap");
        assert_eq!(bytes(F32, false, &[2, 4], Some(&[0, 1])), Err(DlpackError::Strides { dimension: 0 }), "broadcast");
        assert_eq!(bytes(F32, false, &[4], Some(&[-1])), Err(DlpackError::Strides { dimension: 0 }), "backwards");
        assert_eq!(bytes(F32, false, &[-4], None), Err(DlpackError::Malformed));
        assert_eq!(bytes(F32, false, &[1 << 40, 1 << 40], None), Err(DlpackError::Malformed));
        assert_eq!(bytes(F32, false, &[1 << 61], None), Err(DlpackError::Malformed));
    }

    #[test]
    fn types_of_less_than_a_byte_are_packed_unless_they_are_padded() {
        assert_eq!(bytes(I4, false, &[5], None), Ok(3));
        assert_eq!(bytes(I4, true, &[5], None), Ok(5));
        assert_eq!(bytes(DataType { lanes: 2, ..I4 }, false, &[3], None), Ok(3));
        assert_eq!(bytes(DataType { bits: 12, ..I4 }, false, &[3], None), Ok(6));
        assert_eq!(bytes(DataType { lanes: 4, ..F32 }, false, &[3], None), Ok(48));
        assert_eq!(bytes(DataType { bits: 0, ..I4 }, false, &[3], None), Err(DlpackError::Malformed));
    }
}
