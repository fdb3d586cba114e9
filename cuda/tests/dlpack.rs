//! Tensors that another implementation of DLPack made, whose declarations are generated from DLPack's header: they are
//! what is declared here, both ways.
#![allow(missing_docs, unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dlpark::allocation::dynamic::Allocation;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase, ffi};
use efa_core::Context;
use efa_core::soft::{Profile, SoftDevice};
use efa_cuda::dlpack::{DlpackError, Imported, Tensor, abi};

/// What a tensor of the producer's belongs to.
struct Owner {
    numbers: Vec<u16>,
    deleted: Arc<AtomicU32>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.deleted.fetch_add(1, Ordering::SeqCst);
    }
}

const NUMBERS: [u16; 6] = [1, 2, 3, 4, 5, 0xFFFF];

/// Three by two numbers, from the second of seven on.
fn made<M: ManagedTensorBase>(deleted: &Arc<AtomicU32>, strides: [i64; 2], flags: DlpackFlags) -> NonNull<M> {
    let numbers = [0].into_iter().chain(NUMBERS).collect();
    let mut owner = Box::new(Owner { numbers, deleted: deleted.clone() });
    let data = owner.numbers.as_mut_ptr();
    let mut made = Allocation::<M>::allocate(4).unwrap().initialize(owner, 2).unwrap();
    made.extra_mut().copy_from_slice(&[3, 2, strides[0], strides[1]]);
    let extra = made.extra_mut().as_mut_ptr();
    let tensor = made.tensor_mut();
    (tensor.shape, tensor.strides) = (extra, extra.wrapping_add(2));
    made.set_data(data.cast()).set_byte_offset(2);
    made.set_device(ffi::DLDevice { device_type: ffi::DLDeviceType::CPU, device_id: 0 });
    made.set_dtype(ffi::DLDataType { code: ffi::DLDataTypeCode::UINT, bits: 16, lanes: 1 });
    if !flags.is_empty() {
        made.set_flags(flags).unwrap();
    }
    // SAFETY: as DLPack says: the numbers stay where they are until their owner is dropped.
    NonNull::new(unsafe { made.finish() }.into_raw()).unwrap()
}

fn versioned(deleted: &Arc<AtomicU32>, strides: [i64; 2], flags: DlpackFlags) -> Result<Imported, DlpackError> {
    let managed = made::<ffi::DLManagedTensorVersioned>(deleted, strides, flags);
    // SAFETY: as DLPack says, made above.
    unsafe { Tensor::from_versioned(managed.cast()) }
}

#[test]
fn a_tensor_of_another_implementation_is_the_same_by_the_declarations_here() {
    let deleted = Arc::new(AtomicU32::new(0));
    let legacy = made::<ffi::DLManagedTensor>(&deleted, [2, 1], DlpackFlags::empty());
    // SAFETY: as DLPack says, made above.
    let legacy = unsafe { Tensor::from_legacy(legacy.cast()) }.unwrap();
    let Imported::Writable(tensor) = versioned(&deleted, [2, 1], DlpackFlags::empty()).unwrap() else {
        panic!("read-only")
    };
    let pd = Context::open(SoftDevice::new(Profile::RDMA)).alloc_pd().unwrap();
    for (nth, tensor) in [legacy, tensor].into_iter().enumerate() {
        assert_eq!((tensor.shape(), tensor.len(), tensor.is_host()), (&[3, 2][..], 12, true));
        assert_eq!(tensor.dtype(), abi::DataType { code: 1, bits: 16, lanes: 1 });
        assert_eq!(tensor.device(), abi::Device { device_type: abi::device_type::CPU, device_id: 0 });
        // SAFETY: initialised, and nobody else's.
        let (region, whole) = pd.register(unsafe { tensor.into_host() }.unwrap()).unwrap();
        assert_eq!(whole[..], NUMBERS.map(u16::to_ne_bytes).concat());
        let host = region.close(whole).unwrap();
        assert_eq!(deleted.load(Ordering::SeqCst), nth as u32);
        drop(host);
        assert_eq!(deleted.load(Ordering::SeqCst), nth as u32 + 1);
    }
    // What it says of writing, and of an order of dimensions or a gap, is understood.
    let read_only = versioned(&deleted, [2, 1], DlpackFlags::READ_ONLY);
    assert!(matches!(read_only, Ok(Imported::ReadOnly(ref tensor)) if tensor.len() == 12));
    assert!(matches!(versioned(&deleted, [1, 3], DlpackFlags::empty()), Ok(Imported::Writable(_))));
    assert_eq!(versioned(&deleted, [3, 1], DlpackFlags::empty()).unwrap_err(), DlpackError::Strides { dimension: 0 });
    drop(read_only);
    assert_eq!(deleted.load(Ordering::SeqCst), 5);
}

static GIVEN_BACK: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn deleter(managed: *mut abi::ManagedVersioned) {
    GIVEN_BACK.fetch_add(1, Ordering::SeqCst);
    // SAFETY: boxed below.
    drop(unsafe { Box::from_raw(managed) });
}

#[test]
fn a_tensor_that_is_declared_here_is_one_to_another_implementation() {
    static SHAPE: [i64; 2] = [2, 4];
    static STRIDES: [i64; 2] = [4, 1];
    let dl_tensor = abi::DlTensor {
        data: std::ptr::without_provenance_mut(0x7000),
        device: abi::Device { device_type: abi::device_type::CUDA, device_id: 1 },
        ndim: 2,
        dtype: abi::DataType { code: 2, bits: 32, lanes: 1 },
        shape: SHAPE.as_ptr(),
        strides: STRIDES.as_ptr(),
        byte_offset: 16,
    };
    let version = abi::Version { major: abi::MAJOR, minor: 3 };
    let (manager_ctx, deleter) = (std::ptr::null_mut(), Some(deleter as unsafe extern "C" fn(*mut _)));
    let managed = abi::ManagedVersioned { version, manager_ctx, deleter, flags: abi::READ_ONLY, dl_tensor };
    let raw = Box::into_raw(Box::new(managed)).cast::<ffi::DLManagedTensorVersioned>();
    // SAFETY: as DLPack says, made above.
    let theirs = unsafe { Managed::from_raw(raw) }.unwrap();
    let seen = theirs.validate().unwrap();
    assert_eq!((seen.shape(), seen.strides(), seen.byte_offset()), (&[2, 4][..], Some(&[4, 1][..]), 16));
    assert_eq!((seen.num_bytes(), seen.data_ptr().addr(), seen.device().device_id), (32, 0x7000, 1));
    assert_eq!((seen.device().device_type, theirs.flags()), (ffi::DLDeviceType::CUDA, DlpackFlags::READ_ONLY));
    assert_eq!((theirs.version().minor, GIVEN_BACK.load(Ordering::SeqCst)), (3, 0));
    drop(theirs);
    assert_eq!(GIVEN_BACK.load(Ordering::SeqCst), 1);
    let flags = (ffi::DLPACK_FLAG_BITMASK_READ_ONLY, ffi::DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
    assert_eq!((u64::from(flags.0), u64::from(flags.1)), (abi::READ_ONLY, abi::SUBBYTE_PADDED));
    let host = (ffi::DLDeviceType::CUDAHOST, ffi::DLDeviceType::CUDAMANAGED);
    assert_eq!((host.0.0, host.1.0), (abi::device_type::CUDA_HOST as u32, abi::device_type::CUDA_MANAGED as u32));
    assert_eq!(ffi::DLPACK_MAJOR_VERSION, abi::MAJOR);
}
