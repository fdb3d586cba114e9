//! Tensors of frameworks: the host's registered without a driver, what cannot be taken given back, the deleter called once.
#![allow(missing_docs, unsafe_code)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use efa_core::soft::{Profile, SoftDevice};
use efa_core::work::Event;
use efa_core::{Context, Token};
use efa_cuda::dlpack::{DlpackError, Imported, Tensor, abi};

/// A producer: counts how often its deleter was called.
#[derive(Default)]
struct Producer {
    deleted: AtomicU32,
}

impl Producer {
    fn deleted(self: &Arc<Self>) -> u32 {
        self.deleted.load(Ordering::SeqCst)
    }

    fn context(self: &Arc<Self>) -> *mut c_void {
        Arc::into_raw(self.clone()).cast_mut().cast()
    }

    fn legacy(self: &Arc<Self>, dl_tensor: abi::DlTensor) -> NonNull<abi::Managed> {
        let deleter: Option<unsafe extern "C" fn(*mut abi::Managed)> = Some(delete_legacy);
        NonNull::from(Box::leak(Box::new(abi::Managed { dl_tensor, manager_ctx: self.context(), deleter })))
    }

    fn versioned(self: &Arc<Self>, dl_tensor: abi::DlTensor, major: u32, flags: u64) -> NonNull<abi::ManagedVersioned> {
        let (version, manager_ctx) = (abi::Version { major, minor: 0 }, self.context());
        let deleter: Option<unsafe extern "C" fn(*mut abi::ManagedVersioned)> = Some(delete_versioned);
        let managed = abi::ManagedVersioned { version, manager_ctx, deleter, flags, dl_tensor };
        NonNull::from(Box::leak(Box::new(managed)))
    }
}

unsafe extern "C" fn delete_legacy(managed: *mut abi::Managed) {
    // SAFETY: boxed by `legacy`.
    let managed = unsafe { Box::from_raw(managed) };
    count(managed.manager_ctx);
}

unsafe extern "C" fn delete_versioned(managed: *mut abi::ManagedVersioned) {
    // SAFETY: boxed by `versioned`.
    let managed = unsafe { Box::from_raw(managed) };
    count(managed.manager_ctx);
}

fn count(context: *mut c_void) {
    // SAFETY: of `Producer::context`.
    let producer = unsafe { Arc::from_raw(context.cast_const().cast::<Producer>()) };
    producer.deleted.fetch_add(1, Ordering::SeqCst);
}

const BYTES: abi::DataType = abi::DataType { code: 1, bits: 8, lanes: 1 };

fn tensor(data: *mut u8, device_type: i32, shape: &[i64], byte_offset: u64) -> abi::DlTensor {
    abi::DlTensor {
        data: data.cast(),
        device: abi::Device { device_type, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: BYTES,
        shape: shape.as_ptr(),
        strides: std::ptr::null(),
        byte_offset,
    }
}

#[test]
fn a_tensor_of_the_hosts_is_registered_with_no_driver_loaded_and_given_back_after_its_region() {
    let producer = Arc::new(Producer::default());
    let bytes = Box::leak(vec![7u8; 80].into_boxed_slice());
    let base = bytes.as_mut_ptr();
    let described = tensor(base, abi::device_type::CUDA_HOST, &[4, 16], 16);
    // SAFETY: as DLPack says; the bytes are the test's, which touches them no more.
    let taken = unsafe { Tensor::from_legacy(producer.legacy(described)) }.unwrap();
    assert_eq!((taken.shape(), taken.len(), taken.address()), (&[4, 16][..], 64, base as u64 + 16));
    assert!(taken.is_host() && taken.dtype() == BYTES);
    // SAFETY: initialised, and nobody else's.
    let host = unsafe { taken.into_host() }.unwrap();
    let pd = Context::open(SoftDevice::new(Profile::RDMA)).alloc_pd().unwrap();
    let (region, mut whole) = pd.register(host).unwrap();
    assert_eq!(whole[..], [7; 64]);
    whole[63] = 8;
    let host = region.close(whole).unwrap();
    assert_eq!(producer.deleted(), 0);
    // A second time, and in flight when all else is dropped.
    let ctx = Context::open(SoftDevice::new(Profile::RDMA));
    let pd = ctx.alloc_pd().unwrap();
    let srd = ctx.require::<efa_core::qp::Srd>().unwrap();
    let depth = efa_core::qp::Depth::new(4, 4);
    let (mut a, mut b) = (pd.endpoint(srd, depth).unwrap(), pd.endpoint(srd, depth).unwrap());
    let (to_b, _to_a) = efa_core::connect::introduce(&a, &b).unwrap();
    let (region, whole) = pd.register(host).unwrap();
    b.post_recv(pd.register(vec![0u8; 64]).unwrap().1, Token(1)).unwrap();
    a.post(to_b.send(whole), Token(2)).unwrap();
    drop(region);
    let mut arrived = None;
    while arrived.is_none() || a.in_flight() > 0 {
        if let Some(Event::Sent(done)) = a.poll() {
            assert_eq!(producer.deleted(), 0);
            drop(done);
        }
        if let Some(Event::Received(mut message)) = b.poll() {
            arrived = message.buffers.take_slice();
        }
    }
    assert_eq!(arrived.unwrap()[60..], [7, 7, 7, 8]);
    assert_eq!(producer.deleted(), 1);
    // SAFETY: leaked above, and given back.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(base, 80)) });
}

#[test]
fn what_cannot_be_taken_is_given_back_at_once_and_says_why() {
    let producer = Arc::new(Producer::default());
    let at = std::ptr::without_provenance_mut::<u8>(0x7000);
    let (shape, null) = ([4i64, 4], std::ptr::null_mut());
    let gaps = [8i64, 1];
    let with = |device| tensor(at, device, &shape, 0);
    let cuda = abi::device_type::CUDA;
    let legacy = [
        (with(abi::device_type::CUDA_MANAGED), DlpackError::Managed),
        (with(10), DlpackError::Device { device_type: 10 }),
        (abi::DlTensor { strides: gaps.as_ptr(), ..with(cuda) }, DlpackError::Strides { dimension: 0 }),
        (abi::DlTensor { ndim: -1, ..with(cuda) }, DlpackError::Malformed),
        (abi::DlTensor { shape: std::ptr::null(), ..with(cuda) }, DlpackError::Malformed),
        (abi::DlTensor { byte_offset: u64::MAX - 4, ..with(cuda) }, DlpackError::Malformed),
        (tensor(null, cuda, &shape, 0), DlpackError::Malformed),
    ];
    for (nth, (described, error)) in legacy.into_iter().enumerate() {
        // SAFETY: as DLPack says, but for what it is refused for.
        let refused = unsafe { Tensor::from_legacy(producer.legacy(described)) }.unwrap_err();
        assert_eq!((refused, producer.deleted() as usize), (error, nth + 1));
    }
    let before = producer.deleted();
    // SAFETY: likewise.
    let refused = unsafe { Tensor::from_versioned(producer.versioned(with(cuda), 2, 0)) }.unwrap_err();
    assert_eq!((refused, producer.deleted()), (DlpackError::Version { major: 2, understood: 1 }, before + 1));
    assert!(refused.to_string().contains("max_version"));
}

#[test]
fn a_gpus_tensor_is_no_host_memory_and_an_empty_one_may_have_no_address() {
    let producer = Arc::new(Producer::default());
    let at = std::ptr::without_provenance_mut::<u8>(0x7000);
    let described = tensor(at, abi::device_type::CUDA, &[2, 3], 0);
    // SAFETY: as DLPack says; nobody reaches the address.
    let imported = unsafe { Tensor::from_versioned(producer.versioned(described, 1, abi::READ_ONLY)) }.unwrap();
    let Imported::ReadOnly(taken) = imported else { panic!("writable") };
    assert_eq!((taken.len(), taken.device().device_id), (6, 0));
    drop(taken);
    // SAFETY: as above.
    let imported = unsafe { Tensor::from_versioned(producer.versioned(described, 1, abi::SUBBYTE_PADDED)) }.unwrap();
    let Imported::Writable(taken) = imported else { panic!("read-only") };
    // SAFETY: it is refused.
    let taken = unsafe { taken.into_host() }.unwrap_err();
    assert_eq!((taken.address(), producer.deleted()), (0x7000, 1));
    drop(taken);
    let described = tensor(std::ptr::null_mut(), abi::device_type::CPU, &[0, 3], 0);
    // SAFETY: it has no bytes.
    let empty = unsafe { Tensor::from_legacy(producer.legacy(described)) }.unwrap();
    assert!(empty.is_empty() && empty.is_host());
    // SAFETY: it is refused.
    drop(unsafe { empty.into_host() }.unwrap_err());
    assert_eq!(producer.deleted(), 3);
}

#[test]
fn a_producer_without_a_deleter_keeps_its_tensor() {
    let at = std::ptr::without_provenance_mut::<u8>(0x7000);
    let dl_tensor = tensor(at, abi::device_type::CUDA, &[2, 3], 0);
    let mut managed = abi::Managed { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter: None };
    // SAFETY: as DLPack says; it outlives the tensor.
    let taken = unsafe { Tensor::from_legacy(NonNull::from(&mut managed)) }.unwrap();
    assert_eq!(taken.len(), 6);
    drop(taken);
    assert_eq!(managed.dl_tensor.ndim, 2);
}
