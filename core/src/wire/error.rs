//! Why bytes were refused: which form, which field, what was expected and what came.

#![forbid(unsafe_code)]

use core::fmt;

use super::header;

/// A form that bytes can have.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Frame {
    /// [`Hello`](super::Hello).
    Hello,
    /// [`Ready`](super::Ready).
    Ready,
    /// [`Grant`](super::Grant).
    Grant,
    /// [`Window`](super::Window).
    Window,
    /// [`EndpointInfo`](super::EndpointInfo).
    Endpoint,
    /// [`LibfabricAddress`](super::LibfabricAddress) as bytes.
    LibfabricBytes,
    /// [`LibfabricAddress`](super::LibfabricAddress) as text.
    LibfabricText,
}

impl Frame {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Hello,
        Self::Ready,
        Self::Grant,
        Self::Window,
        Self::Endpoint,
        Self::LibfabricBytes,
        Self::LibfabricText,
    ];

    /// The bytes it starts with; the forms of others have none.
    pub const fn magic(self) -> Option<[u8; 4]> {
        match self {
            Self::Hello => Some(header::HELLO),
            Self::Ready => Some(header::READY),
            Self::Grant => Some(header::GRANT),
            Self::Window => Some(header::WINDOW),
            Self::Endpoint | Self::LibfabricBytes | Self::LibfabricText => None,
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hello => "hello frame",
            Self::Ready => "ready frame",
            Self::Grant => "grant frame",
            Self::Window => "window frame",
            Self::Endpoint => "24-byte endpoint address",
            Self::LibfabricBytes => "libfabric address",
            Self::LibfabricText => "libfabric address text",
        })
    }
}

/// A part of a form.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Field {
    /// What the text starts with.
    Scheme,
    /// The device's address.
    Gid,
    /// The queue pair number.
    QpNum,
    /// The queue key.
    Qkey,
    /// The feature set.
    Features,
    /// The operations.
    Ops,
    /// The sender's incarnation.
    Incarnation,
    /// The receiver's incarnation, echoed.
    Echo,
    /// The remote rights.
    Access,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "scheme",
            Self::Gid => "gid",
            Self::QpNum => "qp_num",
            Self::Qkey => "qkey",
            Self::Features => "features",
            Self::Ops => "ops",
            Self::Incarnation => "incarnation",
            Self::Echo => "echoed incarnation",
            Self::Access => "access",
        })
    }
}

/// Why bytes, or a text, are not a valid form. `Display` names the values and the remedy.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParseError {
    /// Fewer bytes than the form has.
    Missing {
        /// The form.
        frame: Frame,
        /// Its bytes.
        expected: usize,
        /// The bytes that came.
        found: usize,
    },
    /// More bytes than the form has.
    Trailing {
        /// The form.
        frame: Frame,
        /// Its bytes.
        expected: usize,
        /// The bytes that came.
        found: usize,
    },
    /// It does not start as the form does.
    Magic {
        /// The form.
        frame: Frame,
        /// What it starts with.
        expected: [u8; 4],
        /// What came.
        found: [u8; 4],
    },
    /// A version this crate does not know.
    Version {
        /// The form.
        frame: Frame,
        /// The known one.
        expected: u16,
        /// What came.
        found: u16,
    },
    /// The length in the header is not that of the version.
    Length {
        /// The form.
        frame: Frame,
        /// The version's.
        expected: u16,
        /// What came.
        found: u16,
    },
    /// All zeros, where that stands for nobody (R27) or no incarnation.
    Zero {
        /// The form.
        frame: Frame,
        /// The field.
        field: Field,
    },
    /// A number above the largest that the field can hold (R13).
    OutOfRange {
        /// The form.
        frame: Frame,
        /// The field.
        field: Field,
        /// The largest.
        largest: u64,
        /// What came; `u64::MAX` stands for all larger ones in a text.
        found: u64,
    },
    /// Bits whose meaning this crate does not know.
    UnknownBits {
        /// The form.
        frame: Frame,
        /// The field.
        field: Field,
        /// The known ones.
        known: u32,
        /// What came.
        found: u32,
    },
    /// A grant of nothing: neither remote read nor remote write.
    NoAccess,
    /// A grant whose range goes beyond the last address.
    RangeWraps {
        /// Where it starts.
        address: u64,
        /// Its length.
        length: u64,
    },
    /// Text in which a part is missing or something else.
    Text {
        /// The form.
        frame: Frame,
        /// The part.
        field: Field,
        /// The byte at which it was expected.
        at: usize,
    },
}

impl core::error::Error for ParseError {}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Missing { frame, expected, found } => write!(
                f,
                "{frame}: {found} bytes came where it has {expected}; wait until all of it has arrived, then parse it"
            ),
            Self::Trailing { frame, expected, found } => write!(
                f,
                "{frame}: {found} bytes came where it has {expected}; cut the stream after {expected} bytes, \
                 frames have a fixed size"
            ),
            Self::Magic { frame, expected, found } => {
                write!(
                    f,
                    "{frame}: starts with {} where {} is expected; ",
                    found.escape_ascii(),
                    expected.escape_ascii()
                )?;
                match Frame::ALL.iter().find(|other| other.magic() == Some(found)) {
                    Some(other) => write!(f, "this is a {other}, handed to the wrong parser"),
                    None => f.write_str(
                        "the sender speaks something else: peers without this crate send a 24-byte endpoint \
                         address or a libfabric address, which have parsers of their own",
                    ),
                }
            }
            Self::Version { frame, expected, found } => write!(
                f,
                "{frame}: version {found} came where {expected} is known; use the same version of efa-core on both sides"
            ),
            Self::Length { frame, expected, found } => write!(
                f,
                "{frame}: its header says {found} bytes where this version has {expected}; \
                 it was damaged on its way, send it again"
            ),
            Self::Zero { frame, field: Field::Gid } => write!(
                f,
                "{frame}: gid is all zeros and names nobody; let the peer publish its address after its device's \
                 GID was queried"
            ),
            Self::Zero { frame, field } => write!(
                f,
                "{frame}: {field} is zero, which stands for none; let the peer take one from a source of random bits"
            ),
            Self::OutOfRange { frame, field, largest, found } => write!(
                f,
                "{frame}: {field} {found} is above {largest}, the largest there is; it was damaged, is in another \
                 byte order, or is of a device that is not EFA"
            ),
            Self::UnknownBits { frame, field, known, found } => write!(
                f,
                "{frame}: {field} {found:#x} has bits beyond the known {known:#x}; use the same version of \
                 efa-core on both sides"
            ),
            Self::NoAccess => write!(
                f,
                "{}: access opens nothing; expose the memory for remote read, remote write or both",
                Frame::Grant
            ),
            Self::RangeWraps { address, length } => write!(
                f,
                "{}: {length} bytes from {address:#x} go beyond the last address; it was damaged, ask for a new grant",
                Frame::Grant
            ),
            Self::Text { frame, field, at } => write!(
                f,
                "{frame}: no {field} at byte {at}; it is written fi_addr_efa://[gid]:qpn:qkey with decimal numbers"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_frame_handed_to_the_wrong_parser_is_told_by_name() {
        let error = ParseError::Magic { frame: Frame::Hello, expected: *b"EFAH", found: *b"EFAR" };
        assert!(error.to_string().contains("this is a ready frame"), "{error}");
        let error = ParseError::Magic { frame: Frame::Hello, expected: *b"EFAH", found: [0xfe, 0x80, 0, 0] };
        assert!(error.to_string().contains(r"starts with \xfe\x80\x00\x00"), "{error}");
    }
}
