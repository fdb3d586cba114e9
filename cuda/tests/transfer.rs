//! GPU to GPU through the real libibverbs and libefa: on `tests/softefa`, with `tests/fakecuda` for the GPUs.
//!
//! `tests/run cuda` runs it. Both silent failures are shown where the types are gone around, and not otherwise.
#![allow(missing_docs, unsafe_code)]

mod common;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use common::ends::{Ends, LEN, borrowed, wait};
use common::{Fake, POOL, VIRTUAL, open_files, skipped};
use efa_core::memory::{RemoteRead, RemoteWrite};
use efa_core::qp::{Depth, Srd, ops};
use efa_core::work::Event;
use efa_core::{Caps, Context, Token, Verb};
use efa_cuda::dlpack::{Imported, Tensor, abi};
use efa_cuda::{Allocation, Attempt, Error, Outbound, Progress, Scope, Stream, SyncMemops, Unsynced};

const MIB: usize = 1 << 20;

#[test]
fn h24_h26_a_tensor_goes_from_a_gpu_to_another_after_its_kernel_and_is_seen_after_the_flush() {
    let fake = Fake::new();
    let mut ends = Ends::new();
    for (kind, memops) in [(VIRTUAL, false), (0, true)] {
        let source_va = if kind == VIRTUAL { fake.alloc(kind, 0, 4 * MIB) } else { fake.malloc(LEN) };
        let (mut producer, mut consumer) = (fake.stream(), fake.stream());
        fake.use_gpu(1);
        let target_va = fake.malloc(LEN + 100) + 100;
        fake.use_gpu(0);
        let before = open_files();
        let (source_region, source) = fake.driver.register(&ends.pd, borrowed(source_va, LEN)).unwrap();
        let (target_region, target) = fake.driver.register(&ends.pd, borrowed(target_va, LEN)).unwrap();
        assert_eq!(open_files(), before, "what was exported is closed at once");
        assert_eq!(source_region.sync_memops() == SyncMemops::Set, memops);
        assert_eq!((source.address(), target.address(), target.device().ordinal()), (source_va, target_va, 1));
        // Each end waits for the kernels of its own.
        let ready = target.synchronize(&mut consumer).unwrap();
        ends.b.post_recv(ready.into_slice(), Token(1)).unwrap();
        fake.kernel(&mut producer, source_va, LEN, 0x5A);
        let ready = source.synchronize(&mut producer).unwrap();
        fake.mark("post");
        ends.a.post(ends.to_b.send(ready.into_slice()).imm(7), Token(2)).unwrap();
        let Event::Sent(mut done) = ends.at_a() else { panic!("not sent") };
        let Event::Received(mut message) = ends.at_b() else { panic!("not received") };
        assert_eq!((message.len, message.imm), (LEN, Some(7)));
        let arrived = target_region.completed(message.buffers.take_opaque().unwrap()).unwrap();
        fake.use_gpu(1);
        assert_eq!(fake.seen(target_va, 4), [0; 4], "not before the flush");
        fake.use_gpu(0);
        // Not in the other GPU's context, which would flush that one's memory.
        let other = source_region.within(|current| arrived.flush(current, Scope::Owner)).unwrap().unwrap_err();
        assert_eq!(other.error(), Error::OtherDevice { device: 1, current: 0 });
        // What fails gives it back as it was.
        fake.fail("cuFlushGPUDirectRDMAWrites", 999, 1);
        let arrived = other.into_inner();
        let failed = target_region.within(|current| arrived.flush(current, Scope::Owner)).unwrap().unwrap_err();
        let (arrived, error) = failed.into_parts();
        assert!(error.to_string().contains("cuFlushGPUDirectRDMAWrites answered 999"), "{error}");
        let visible = target_region.within(|current| arrived.flush(current, Scope::Owner)).unwrap().unwrap();
        fake.use_gpu(1);
        assert_eq!(fake.seen(visible.address(), LEN), [0x5A; LEN]);
        fake.use_gpu(0);
        assert!(fake.at("cuStreamSynchronize") < fake.at("post"), "waited for before it was posted");
        // All of it together gives the owners back.
        let sent = source_region.outbound(done.buffers.take_opaque().unwrap()).unwrap();
        source_region.close(sent).unwrap();
        target_region.close(visible.into_outbound()).unwrap();
    }
}

#[test]
fn h26_gone_around_the_types_what_is_sent_is_what_was_before_the_kernel_and_what_arrived_is_not_seen() {
    let fake = Fake::new();
    let mut ends = Ends::new();
    let (source_va, target_va) = (fake.malloc(LEN), fake.malloc(LEN));
    let (_source_region, source) = fake.driver.register(&ends.pd, borrowed(source_va, LEN)).unwrap();
    let (target_region, target) = fake.driver.register(&ends.pd, borrowed(target_va, LEN)).unwrap();
    let mut stream = fake.stream();
    fake.kernel(&mut stream, source_va, LEN, 1);
    let target = target.synchronize(&mut stream).unwrap();
    ends.b.post_recv(target.into_slice(), Token(1)).unwrap();
    fake.kernel(&mut stream, source_va, LEN, 2);
    // SAFETY: this is what the test shows: nobody waited.
    let unwaited = unsafe { source.assume_synchronized() };
    ends.a.post(ends.to_b.send(unwaited.into_slice()), Token(2)).unwrap();
    let Event::Received(mut message) = ends.at_b() else { panic!("not received") };
    assert_eq!(fake.on_bus(target_va, LEN), [1; LEN], "the bytes of the kernel before");
    let arrived = target_region.completed(message.buffers.take_opaque().unwrap()).unwrap();
    // SAFETY: this is what the test shows: nobody flushed.
    let unflushed = unsafe { arrived.assume_visible() };
    assert_eq!(fake.seen(unflushed.address(), LEN), [0; LEN], "the bytes of before the arrival");
}

#[test]
fn an_event_is_polled_for_and_its_memory_is_posted_only_once_it_has_come() {
    let fake = Fake::new();
    let mut ends = Ends::new();
    let va = fake.malloc(LEN);
    let (_region, memory) = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap();
    let mut stream = fake.stream();
    fake.kernel(&mut stream, va, LEN, 3);
    let recorded = memory.record(&mut stream).unwrap();
    let Progress::Pending(recorded) = recorded.poll().unwrap() else { panic!("come at once") };
    let Progress::Ready(ready) = recorded.poll().unwrap() else { panic!("not come") };
    let (_host, target) = ends.pd.register(vec![0u8; LEN]).unwrap();
    ends.b.post_recv(target, Token(1)).unwrap();
    ends.a.post(ends.to_b.send(ready.into_slice()), Token(2)).unwrap();
    let Event::Received(mut message) = ends.at_b() else { panic!("not received") };
    assert_eq!(message.buffers.take_slice().unwrap()[..], [3; LEN], "a GPU's bytes in the host's memory");
    fake.at("cuEventDestroy_v2");
}

#[test]
fn a_stream_that_is_captured_is_refused_and_the_capture_is_not_harmed() {
    let fake = Fake::new();
    let ends = Ends::new();
    let va = fake.malloc(LEN);
    let (region, memory) = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap();
    let mut stream = fake.stream();
    fake.call("fakecuda_capture", &[stream.raw(), 1]);
    let refused = memory.synchronize(&mut stream).unwrap_err();
    assert_eq!(refused.error(), Error::Capturing);
    let refused = refused.into_inner().record(&mut stream).unwrap_err();
    assert_eq!(refused.error(), Error::Capturing);
    let mut status = 0i32;
    fake.call("cuStreamIsCapturing", &[stream.raw(), &raw mut status as usize]);
    assert_eq!(status, 1, "still captured");
    // On a stream of its own device that is not, by whichever handle.
    let primary = region.device().primary().unwrap();
    let mut default = Stream::legacy(&primary);
    let ready = refused.into_inner().synchronize(&mut default).unwrap();
    region.close(ready.unsynced()).unwrap();
}

#[test]
fn a_device_that_orders_writes_needs_no_flush_and_the_proof_is_its_own() {
    let fake = Fake::new();
    fake.set("writes_ordering", 100);
    fake.set("flush_options", 0);
    let mut ends = Ends::new();
    let va = fake.malloc(64);
    let (region, memory) = fake.driver.register(&ends.pd, borrowed(va, 64)).unwrap();
    let mut stream = fake.stream();
    ends.b.post_recv(memory.synchronize(&mut stream).unwrap().into_slice(), Token(1)).unwrap();
    let (_host, mut hello) = ends.pd.register(vec![9u8; 64]).unwrap();
    hello[0] = 8;
    ends.a.post(ends.to_b.send(hello), Token(2)).unwrap();
    let Event::Received(mut message) = ends.at_b() else { panic!("not received") };
    let arrived = region.completed(message.buffers.take_opaque().unwrap()).unwrap();
    let refused = region.within(|current| arrived.flush(current, Scope::Owner)).unwrap().unwrap_err();
    assert_eq!(refused.error(), Error::NoHostFlush { device: 0 });
    let other = fake.driver.device(1).unwrap().writes_ordered(Scope::Owner).unwrap().unwrap();
    let refused = refused.into_inner().elide(other).unwrap_err();
    assert_eq!(refused.error(), Error::NotOrdered { device: 0, proof: 1 });
    let proof = region.device().writes_ordered(Scope::Owner).unwrap().unwrap();
    let visible = refused.into_inner().elide(proof).unwrap();
    assert_eq!(fake.seen(visible.address(), 3), [8, 9, 9]);
}

#[test]
fn a_peer_reads_a_gpus_memory_by_a_grant_that_has_the_gpus_address() {
    let fake = Fake::new();
    let mut ends = Ends::new();
    let va = fake.malloc(LEN);
    let source = fake.driver.expose(&ends.pd, borrowed(va, LEN), ends.ctx.require::<RemoteRead>().unwrap()).unwrap();
    assert_eq!(source.attr().iova, va, "peers know it by the GPU's address");
    let mut stream = fake.stream();
    fake.kernel(&mut stream, va, LEN, 0xC3);
    stream.synchronize().unwrap();
    let window = ends.to_b.window::<RemoteRead>(source.grant(&ends.b).unwrap().as_bytes()).unwrap();
    let (_host, bytes) = ends.pd.register(vec![0u8; LEN]).unwrap();
    ends.a.post(ends.to_b.read(bytes, window.range(0..LEN as u64).unwrap()), Token(1)).unwrap();
    let Event::Read(mut done) = ends.at_a() else { panic!("not read") };
    assert_eq!(done.buffers.take_slice().unwrap()[..], [0xC3; LEN]);
    assert_eq!(efa_cuda::Owner::address(&source.revoke().unwrap()), va);
}

#[test]
fn a_peer_writes_a_gpus_memory_and_the_gpu_sees_it_after_the_flush() {
    type Rdma = Srd<{ ops::ALL }>;
    let fake = Fake::new();
    let ctx = Context::open(efa_os::devices().unwrap().swap_remove(0));
    if !ctx.caps().contains(Caps::RDMA_READ | Caps::RDMA_WRITE) {
        return skipped("a written GPU", "no RDMA write of this device by this libefa");
    }
    let pd = ctx.alloc_pd().unwrap();
    let end = || pd.endpoint(ctx.require::<Rdma>().unwrap(), Depth::new(8, 8)).unwrap();
    let (mut a, mut b) = (end(), end());
    let (to_b, _to_a) = efa_core::connect::introduce(&a, &b).unwrap();
    let va = fake.malloc(LEN);
    let target = fake.driver.expose(&pd, borrowed(va, LEN), ctx.require::<RemoteWrite>().unwrap()).unwrap();
    let window = to_b.window::<RemoteWrite>(target.grant(&b).unwrap().as_bytes()).unwrap();
    let (_host, bytes) = pd.register(vec![0x3C; LEN]).unwrap();
    let (_receive, empty) = pd.register(vec![0u8; 8]).unwrap();
    b.post_recv(empty, Token(2)).unwrap();
    a.post(to_b.write(bytes, window.range(0..LEN as u64).unwrap()).imm(1), Token(3)).unwrap();
    let Event::Written(_) = wait(&mut a) else { panic!("not written") };
    let Event::WriteArrived(arrival) = wait(&mut b) else { panic!("not arrived") };
    let arrived = target.arrived(16..LEN, &arrival).unwrap();
    assert!(target.arrived(16..LEN + 1, &arrival).is_err());
    assert_eq!(fake.seen(va, 4), [0; 4], "not before the flush");
    let visible = target.within(|current| arrived.flush(current, Scope::AllDevices)).unwrap().unwrap();
    assert_eq!((visible.address(), visible.len()), (va + 16, LEN - 16));
    assert_eq!(fake.seen(visible.address(), 4), [0x3C; 4]);
    drop((visible, arrival));
    assert_eq!(efa_cuda::Owner::address(&target.revoke().unwrap()), va);
}

#[test]
fn h25_memory_that_cannot_be_registered_either_way_is_refused_with_both_errors_and_given_back() {
    let fake = Fake::new();
    let ends = Ends::new();
    let va = fake.alloc(POOL, 0, MIB);
    let before = open_files();
    let refused = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap_err();
    let Error::Registration { dma_buf: Attempt::Export(failed), plain } = refused.error() else { panic!("{refused}") };
    assert_eq!((failed.code, plain), (801, efa_core::Error::Device { verb: Verb::RegMr, errno: libc::EFAULT }));
    let text = refused.to_string();
    for part in ["CUDA_ERROR_NOT_SUPPORTED", "cuMemGetHandleForAddressRange", "PYTORCH_ALLOC_CONF", "p2p"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    // A GPU whose driver exports none is not asked to.
    fake.set("dmabuf", 0);
    let refused = fake.driver.register(&ends.pd, refused.into_inner()).unwrap_err();
    assert!(matches!(refused.error(), Error::Registration { dma_buf: Attempt::Unsupported, .. }), "{refused}");
    assert_eq!(open_files(), before);
}

#[test]
fn h25_memory_that_is_not_exported_is_registered_by_its_address_and_what_is_freed_is_the_devices_no_more() {
    let fake = Fake::new();
    fake.set("dmabuf", 0);
    fake.set("p2p", 1);
    let mut ends = Ends::new();
    let (va, other) = (fake.malloc(LEN), fake.malloc(64));
    let (region, memory) = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap();
    let (_other, small) = fake.driver.register(&ends.pd, borrowed(other + 4, 60)).unwrap();
    let mut stream = fake.stream();
    fake.kernel(&mut stream, va, LEN, 8);
    fake.kernel(&mut stream, other, 64, 9);
    let send = |ends: &mut Ends, memory: Outbound<Unsynced>, stream: &mut Stream| {
        let (_host, target) = ends.pd.register(vec![0u8; LEN]).unwrap();
        ends.b.post_recv(target, Token(1)).unwrap();
        let ready = memory.synchronize(stream).unwrap();
        ends.a.post(ends.to_b.send(ready.into_slice()), Token(2)).unwrap();
        ends.at_a()
    };
    let Event::Sent(mut done) = send(&mut ends, memory, &mut stream) else { panic!("not sent") };
    let Event::Received(mut message) = ends.at_b() else { panic!("not received") };
    assert_eq!(message.buffers.take_slice().unwrap()[..], [8; LEN]);
    let memory = region.outbound(done.buffers.take_opaque().unwrap()).unwrap();
    // What `BorrowedDevice::new` forbids, and an owner of the tensor cannot do.
    fake.call("cuMemFree_v2", &[va as usize]);
    let Event::Failed { failure, mut buffers } = send(&mut ends, memory, &mut stream) else { panic!("sent") };
    assert_eq!(failure.token, Some(Token(2)));
    let memory = region.outbound(buffers.take_opaque().unwrap()).unwrap();
    region.close(memory).unwrap();
    // Its neighbour in the same block is there still.
    let Event::Sent(_) = send(&mut ends, small, &mut stream) else { panic!("not sent") };
}

#[test]
fn h25_what_a_device_is_refused_by_errno_524_is_exported_with_the_other_flag() {
    let fake = Fake::new();
    let ends = Ends::new();
    let va = fake.malloc(LEN);
    fake.set("c2c", 1);
    fake.set("attach", 524);
    let exports = || -> Vec<String> {
        let log = fake.log();
        log.iter().filter_map(|line| line.split_once("sort=1 flags=")).map(|(_, flags)| flags.to_owned()).collect()
    };
    // Where the other one is first, it is the only one.
    let flags: &[&str] = if cfg!(target_arch = "aarch64") { &["1"] } else { &["0", "1"] };
    let before = open_files();
    let (region, memory) = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap();
    assert_eq!((exports(), open_files()), (flags.iter().map(ToString::to_string).collect(), before));
    region.close(memory).unwrap();
    // With neither it is told as the reason, beside what became of the address.
    fake.set("version", 12070);
    let refused = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap_err();
    let errno = libc::EFAULT;
    let Error::Registration { dma_buf: Attempt::Register(dma_buf), plain } = refused.error() else {
        panic!("{refused}")
    };
    assert!(matches!(dma_buf, efa_core::Error::Device { errno: 524, .. }), "{dma_buf:?}");
    assert_eq!(plain, efa_core::Error::Device { verb: Verb::RegMr, errno });
    assert!(refused.to_string().contains("PCIe topology"), "{refused}");
    assert_eq!((exports().len(), open_files()), (flags.len() + 1, before));
}

#[test]
fn what_is_refused_of_two_regions_is_given_back_as_each_ones_own() {
    let fake = Fake::new();
    let ends = Ends::new();
    let first = fake.malloc(LEN);
    fake.use_gpu(1);
    let second = fake.malloc(LEN);
    let (region, a) = fake.driver.register(&ends.pd, borrowed(first, LEN)).unwrap();
    let (_other, b) = fake.driver.register(&ends.pd, borrowed(second, LEN)).unwrap();
    let is = |memory: &Outbound<Unsynced>| (memory.address(), memory.device().ordinal());
    let (a, b) = a.unsplit(b).unwrap_err().into_inner();
    assert_eq!([is(&a), is(&b)], [(first, 0), (second, 1)]);
    let (region, b) = region.close(b).unwrap_err().into_inner();
    assert_eq!(is(&b), (second, 1));
    region.close(a).unwrap();
}

#[test]
fn a_tensor_that_is_not_to_be_written_is_not_even_where_it_is_received_into() {
    let fake = Fake::new();
    let mut ends = Ends::new();
    let va = fake.malloc(LEN);
    let mut stream = fake.stream();
    fake.kernel(&mut stream, va, LEN, 5);
    // SAFETY: what DLPack says, made below.
    let imported = unsafe { Tensor::from_versioned(versioned(va, &[64, 32], abi::READ_ONLY, None)) }.unwrap();
    let Imported::ReadOnly(tensor) = imported else { panic!("writable") };
    let (_region, memory) = fake.driver.register(&ends.pd, tensor).unwrap();
    ends.b.post_recv(memory.synchronize(&mut stream).unwrap().into_slice(), Token(1)).unwrap();
    let (_host, bytes) = ends.pd.register(vec![9u8; LEN]).unwrap();
    ends.a.post(ends.to_b.send(bytes), Token(2)).unwrap();
    let Event::Failed { failure, .. } = ends.at_b() else { panic!("received") };
    assert_eq!((failure.token, fake.on_bus(va, LEN)), (Some(Token(1)), vec![5; LEN]));
}

#[test]
fn a_segment_is_registered_once_and_its_tensors_are_slices_of_it() {
    let fake = Fake::new();
    let mut ends = Ends::new();
    let va = fake.alloc(VIRTUAL, 0, 4 * MIB);
    let (region, segment) = fake.driver.register(&ends.pd, borrowed(va, 4 * MIB)).unwrap();
    let (before, rest) = segment.split_at(3 * MIB).unwrap();
    let (tensor, after) = rest.split_at(1000).unwrap();
    assert_eq!((tensor.address(), tensor.len()), (va + 3 * MIB as u64, 1000));
    let mut stream = fake.stream();
    fake.kernel(&mut stream, tensor.address(), 1000, 6);
    let (_host, target) = ends.pd.register(vec![0u8; 1000]).unwrap();
    ends.b.post_recv(target, Token(1)).unwrap();
    let ready = tensor.synchronize(&mut stream).unwrap();
    ends.a.post(ends.to_b.send(ready.into_slice()), Token(2)).unwrap();
    let Event::Sent(mut done) = ends.at_a() else { panic!("not sent") };
    let Event::Received(mut message) = ends.at_b() else { panic!("not received") };
    assert_eq!(message.buffers.take_slice().unwrap()[..], [6; 1000]);
    let tensor = region.outbound(done.buffers.take_opaque().unwrap()).unwrap();
    let refused = region.close(tensor).unwrap_err();
    let (region, tensor) = refused.into_inner();
    let whole = before.unsplit(tensor).unwrap().unsplit(after).unwrap();
    region.close(whole).unwrap();
    // A slice of another region is not taken for one of this.
    let (other, _all) = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap();
    let (_third, foreign) = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap();
    let foreign = foreign.synchronize(&mut stream).unwrap().into_slice().unposted();
    let refused = other.completed(foreign).unwrap_err();
    assert_eq!(refused.error(), Error::ForeignSlice);
    assert_eq!(refused.into_inner().len(), LEN);
    assert!(ends.ctx.leaks().regions() == 0);
}

#[test]
fn memory_whose_addresses_were_given_out_again_is_still_the_old_one_to_its_region() {
    let fake = Fake::new();
    let mut ends = Ends::new();
    let va = fake.alloc(POOL, 0, MIB);
    fake.set("pool_dmabuf", 1);
    let (_region, memory) = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap();
    let id = fake.driver.classify(va, LEN).unwrap().buffer_id;
    // What `BorrowedDevice::new` forbids, and an owner of the tensor cannot do.
    fake.call("cuMemFree_v2", &[va as usize]);
    assert_eq!(fake.alloc(POOL, 0, MIB), va, "the same addresses");
    assert_ne!(fake.driver.classify(va, LEN).unwrap().buffer_id, id, "another allocation");
    let mut stream = fake.stream();
    fake.kernel(&mut stream, va, LEN, 4);
    let (_host, target) = ends.pd.register(vec![7u8; LEN]).unwrap();
    ends.b.post_recv(target, Token(1)).unwrap();
    ends.a.post(ends.to_b.send(memory.synchronize(&mut stream).unwrap().into_slice()), Token(2)).unwrap();
    let Event::Received(mut message) = ends.at_b() else { panic!("not received") };
    assert_eq!(message.buffers.take_slice().unwrap()[..], [0; LEN], "the old memory's bytes");
}

#[test]
fn memory_of_ones_own_is_freed_after_it_was_deregistered_and_its_context_is_let_go() {
    let fake = Fake::new();
    let ends = Ends::new();
    let gpu = fake.driver.device(1).unwrap();
    let primary = gpu.primary().unwrap();
    let memory = Allocation::new(&primary, LEN).unwrap();
    let mut stream = Stream::new(&primary).unwrap();
    let (region, mut memory) = fake.driver.register(&ends.pd, memory).unwrap();
    drop(primary);
    region.fill(&mut stream, &mut memory, 0x11).unwrap();
    // Only this region's: another one's may not be its owner's.
    let (_other, mut foreign) = fake.driver.register(&ends.pd, borrowed(fake.malloc(64), 64)).unwrap();
    assert_eq!(region.fill(&mut stream, &mut foreign, 1), Err(Error::ForeignSlice));
    let refused = region.fill(&mut fake.stream(), &mut memory, 1);
    assert_eq!(refused, Err(Error::OtherDevice { device: 1, current: 0 }));
    let slice = memory.synchronize(&mut stream).unwrap().into_slice().unposted();
    // What arrived is seen by a copy, once it was flushed.
    fake.write_on_bus(region.attr().iova, &[0x22; 16]);
    let arrived = region.completed(slice).unwrap();
    let visible = region.within(|current| arrived.flush(current, Scope::Owner)).unwrap().unwrap();
    let mut bytes = [0; 17];
    region.within(|current| visible.copy_to_host(current, &mut bytes)).unwrap().unwrap();
    assert_eq!((bytes[..16] == [0x22; 16], bytes[16]), (true, 0x11));
    drop(region);
    assert!(!fake.log().iter().any(|line| line.starts_with("cuMemFree_v2")), "its slice is held");
    drop((visible, stream));
    assert!(fake.at("cuMemFree_v2") > fake.at("cuMemcpyDtoH_v2"));
    assert!(fake.log()[fake.at("cuStreamDestroy_v2")].contains("ctx=0x2000 "), "in its own context");
    assert_eq!(gpu.within(|_| ()), Err(Error::NoContext { device: 1 }), "nobody's any more");
}

/// How often a deleter was called, and what it saw.
static DELETED: AtomicU32 = AtomicU32::new(0);

extern "C" fn deleter(managed: *mut abi::ManagedVersioned) {
    DELETED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: boxed below.
    drop(unsafe { Box::from_raw(managed) });
}

type Deleter = Option<unsafe extern "C" fn(*mut abi::ManagedVersioned)>;

fn versioned(data: u64, shape: &'static [i64; 2], flags: u64, deleter: Deleter) -> NonNull<abi::ManagedVersioned> {
    let dl_tensor = abi::DlTensor {
        data: std::ptr::without_provenance_mut(data as usize),
        device: abi::Device { device_type: abi::device_type::CUDA, device_id: 0 },
        ndim: 2,
        dtype: abi::DataType { code: 2, bits: 32, lanes: 1 },
        shape: shape.as_ptr(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };
    let version = abi::Version { major: 1, minor: 1 };
    let managed = abi::ManagedVersioned { version, manager_ctx: std::ptr::null_mut(), deleter, flags, dl_tensor };
    NonNull::from(Box::leak(Box::new(managed)))
}

#[test]
fn a_tensor_is_given_back_once_and_after_its_region_was_deregistered_whoever_is_dropped_last() {
    let fake = Fake::new();
    let mut ends = Ends::new();
    let va = fake.malloc(LEN);
    let import = |flags| {
        // SAFETY: what DLPack says, made above.
        unsafe { Tensor::from_versioned(versioned(va, &[64, 32], flags, Some(deleter))) }.unwrap()
    };
    let Imported::Writable(tensor) = import(0) else { panic!("read-only") };
    let (region, memory) = fake.driver.register(&ends.pd, tensor).unwrap();
    let mut stream = fake.stream();
    fake.kernel(&mut stream, va, LEN, 5);
    // In flight, with nobody else who has it: it is kept until the completion was dropped.
    ends.a.post(ends.to_b.send(memory.synchronize(&mut stream).unwrap().into_slice()), Token(1)).unwrap();
    drop(region);
    assert_eq!(DELETED.load(Ordering::SeqCst), 0);
    let (_host, target) = ends.pd.register(vec![0u8; LEN]).unwrap();
    ends.b.post_recv(target, Token(2)).unwrap();
    let done = ends.at_a();
    assert_eq!(DELETED.load(Ordering::SeqCst), 0);
    drop(done);
    assert_eq!(DELETED.load(Ordering::SeqCst), 1);
    // One that may only be read is sent, and closed as itself.
    let Imported::ReadOnly(tensor) = import(abi::READ_ONLY) else { panic!("writable") };
    let (region, memory) = fake.driver.register(&ends.pd, tensor).unwrap();
    let tensor = region.close(memory).unwrap();
    assert_eq!((tensor.shape(), DELETED.load(Ordering::SeqCst)), (&[64, 32][..], 1));
    drop(tensor);
    assert_eq!(DELETED.load(Ordering::SeqCst), 2);
    drop(ends.to_a);
}
