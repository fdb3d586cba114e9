//! What kind of memory an address is, its export, and the contexts that calls are made in; on `tests/fakecuda`.
#![allow(missing_docs, unsafe_code)]

mod common;

use common::{Fake, HOST, MANAGED, POOL, VIRTUAL, WITH_A_HOLE, open_files};
use efa_core::Context;
use efa_core::soft::{Profile, SoftDevice};
use efa_cuda::{BorrowedDevice, Error, MemorySort, Scope, Stream};

const MIB: usize = 1 << 20;

fn borrowed(address: u64, len: usize) -> BorrowedDevice {
    // SAFETY: the fake's memory, which each test frees after what it registered, if at all.
    unsafe { BorrowedDevice::new(address, len) }
}

#[test]
fn each_kind_of_memory_is_told_from_the_others_and_from_what_is_none() {
    let fake = Fake::new();
    let sort =
        |va, len| fake.driver.classify(va, len).map(|info| (info.sort, info.device.ordinal(), info.has_context()));
    assert_eq!(sort(fake.malloc(512), 512), Ok((MemorySort::Allocation, 0, true)));
    assert_eq!(sort(fake.alloc(VIRTUAL, 1, 6 * MIB), 6 * MIB), Ok((MemorySort::Virtual, 1, false)));
    assert_eq!(sort(fake.alloc(POOL, 0, MIB), MIB), Ok((MemorySort::Pool, 0, false)));
    assert_eq!(sort(fake.alloc(MANAGED, 0, MIB), MIB).unwrap().0, MemorySort::Managed);
    assert_eq!(sort(fake.alloc(HOST, 0, MIB), MIB).unwrap().0, MemorySort::Host);
    let here = [0u8; 8];
    let address = here.as_ptr() as u64;
    assert_eq!(sort(address, 8), Err(Error::NotCuda { address }));
    // A range that ends beyond its allocation, wraps, or has nothing.
    let va = fake.alloc(POOL, 0, MIB);
    for len in [MIB + 1, 0, usize::MAX] {
        assert_eq!(sort(va, len), Err(Error::Range { address: va, len: len as u64 }));
    }
}

#[test]
fn managed_and_host_memory_are_refused_by_their_own_errors_and_given_back() {
    let fake = Fake::new();
    let pd = Context::open(SoftDevice::new(Profile::RDMA)).alloc_pd().unwrap();
    for (kind, word) in [(MANAGED, "cudaMalloc"), (HOST, "host memory")] {
        let va = fake.alloc(kind, 0, 4096);
        let refused = fake.driver.register(&pd, borrowed(va, 4096)).unwrap_err();
        let is = matches!(refused.error(), Error::Managed { address } | Error::Host { address } if address == va);
        assert!(is && refused.to_string().contains(word), "{refused}");
        assert_eq!(efa_cuda::Owner::address(&refused.into_inner()), va);
    }
}

#[test]
fn an_export_has_the_hosts_pages_around_the_range_and_says_where_in_them_it_begins() {
    let fake = Fake::new();
    let (first, second) = (fake.malloc(512), fake.malloc(700));
    assert_eq!(second - first, 512, "parts of one block");
    let exported = fake.driver.export(&borrowed(second, 700)).unwrap();
    assert_eq!((exported.offset, exported.len), (512, 700));
    let log = fake.log();
    let call = log.iter().rfind(|line| line.starts_with("cuMemGetHandle")).unwrap();
    assert!(call.contains(&format!(" va={first:x} len=1000 sort=1 flags=0")), "{call}");
    // Across mappings of virtual memory, of which an allocation's range is but one.
    let va = fake.alloc(VIRTUAL, 0, 6 * MIB);
    let exported = fake.driver.export(&borrowed(va + 1, 5 * MIB)).unwrap();
    assert_eq!((exported.offset, exported.len), (1, 5 * MIB));
    // A hole in it, or a pool's memory, cannot be.
    let va = fake.alloc(WITH_A_HOLE, 0, 6 * MIB);
    let Err(Error::Call(failed)) = fake.driver.export(&borrowed(va, 6 * MIB)) else { panic!("exported") };
    assert_eq!(
        (failed.call, failed.code, failed.name),
        ("cuMemGetHandleForAddressRange", 1, "CUDA_ERROR_INVALID_VALUE")
    );
    let va = fake.alloc(POOL, 0, MIB);
    let Err(Error::Call(failed)) = fake.driver.export(&borrowed(va, MIB)) else { panic!("exported") };
    assert_eq!((failed.code, failed.text), (801, "operation not supported"));
}

#[test]
fn h25_an_export_that_is_refused_is_tried_with_the_other_flag_and_the_first_refusal_is_told() {
    let fake = Fake::new();
    let va = fake.malloc(4096);
    fake.set("c2c", 1);
    fake.fail("cuMemGetHandleForAddressRange", 801, 1);
    fake.driver.export(&borrowed(va, 4096)).unwrap();
    let log = fake.log();
    let flags: Vec<&str> =
        log.iter().filter_map(|line| line.split_once("sort=1 flags=")).map(|(_, flags)| flags).collect();
    assert_eq!(flags, ["0", "1"]);
    // A driver that does not know the flag is never asked with it.
    fake.set("version", 12070);
    fake.fail("cuMemGetHandleForAddressRange", 801, 0);
    let Err(Error::Call(failed)) = fake.driver.export(&borrowed(va, 4096)) else { panic!("exported") };
    assert_eq!(failed.code, 801);
    assert!(!fake.log().last().unwrap().contains("flags=1"));
}

#[test]
fn h25_a_driver_that_takes_whole_allocations_alone_is_given_the_pages_of_the_whole_one() {
    let fake = Fake::new();
    fake.malloc(512);
    // Ten thousand bytes and a half page into a block; of them the last.
    let va = fake.malloc(10_000);
    let refuse = || fake.fail("cuMemGetHandleForAddressRange", 1, 1);
    refuse();
    let exported = fake.driver.export(&borrowed(va + 9_000, 1_000)).unwrap();
    assert_eq!((exported.offset, exported.len), (9_512, 1_000));
    let log = fake.log();
    let calls: Vec<&String> = log.iter().filter(|line| line.starts_with("cuMemGetHandle")).collect();
    let [part, whole] = calls[..] else { panic!("{calls:#?}") };
    assert!(part.contains(&format!(" va={:x} len=1000 ", va - 512 + 0x2000)), "{part}");
    assert!(whole.contains(&format!(" va={:x} len=3000 ", va - 512)), "{whole}");
    // What is refused for the whole one too is told as it was first, and asked with the other flag.
    fake.fail("cuMemGetHandleForAddressRange", 1, 0);
    let Err(Error::Call(failed)) = fake.driver.export(&borrowed(va + 9_000, 1_000)) else { panic!("exported") };
    assert_eq!(failed.code, 1);
    assert_eq!(fake.log().iter().filter(|line| line.starts_with("cuMemGetHandle")).count(), 2 + 4);
    // The pages that were refused are not asked for again: those of all of it are the same.
    fake.driver.export(&borrowed(va, 10_000)).unwrap_err();
    assert_eq!(fake.log().iter().filter(|line| line.starts_with("cuMemGetHandle")).count(), 6 + 2);
}

#[test]
fn calls_are_made_in_the_memorys_own_context_and_the_threads_own_is_as_it_was() {
    let fake = Fake::new();
    let mut own = 0usize;
    fake.call("cuCtxCreate_v2", &[&raw mut own as usize, 0, 1]);
    let va = fake.malloc(4096);
    fake.use_gpu(0);
    fake.driver.export(&borrowed(va, 4096)).unwrap();
    let log = fake.log();
    let call = log.iter().rfind(|line| line.starts_with("cuMemGetHandle")).unwrap();
    assert!(call.contains(&format!("ctx={own:#x} ")), "{call}");
    let mut now = 0usize;
    fake.call("cuCtxGetCurrent", &[&raw mut now as usize]);
    assert_eq!(now, 0x1000);
}

#[test]
fn memory_without_a_context_is_reached_by_an_active_primary_one_and_none_is_ever_made() {
    let fake = Fake::new();
    let va = fake.alloc(VIRTUAL, 1, MIB);
    fake.no_context();
    assert_eq!(fake.driver.export(&borrowed(va, MIB)).unwrap_err(), Error::NoContext { device: 1 });
    assert!(!fake.log().iter().any(|line| line.starts_with("cuDevicePrimaryCtxRetain") && line.ends_with("device=1")));
    fake.use_gpu(1);
    fake.no_context();
    fake.driver.export(&borrowed(va, MIB)).unwrap();
    let mut now = 1usize;
    fake.call("cuCtxGetCurrent", &[&raw mut now as usize]);
    assert_eq!(now, 0, "popped");
    // What was retained for it was released: the program's own is the only one left.
    fake.call("cuDevicePrimaryCtxRelease_v2", &[1]);
    let (mut flags, mut active) = (0u32, 1i32);
    fake.call("cuDevicePrimaryCtxGetState", &[1, &raw mut flags as usize, &raw mut active as usize]);
    assert_eq!(active, 0);
}

#[test]
fn a_default_stream_is_of_the_primary_context_and_keeps_it_alive() {
    let fake = Fake::new();
    let gpu = fake.driver.device(1).unwrap();
    let mut own = 0usize;
    fake.call("cuCtxCreate_v2", &[&raw mut own as usize, 0, 1]);
    let primary = gpu.primary().unwrap();
    let mut stream = Stream::legacy(&primary);
    drop(primary);
    stream.synchronize().unwrap();
    let log = fake.log();
    let call = log.iter().rfind(|line| line.starts_with("cuStreamSynchronize")).unwrap();
    assert!(call.contains("ctx=0x2000 "), "not in the thread's own, {own:#x}: {call}");
    drop(stream);
    fake.no_context();
    assert_eq!(gpu.within(|_| ()), Err(Error::NoContext { device: 1 }));
}

#[test]
fn a_panic_within_a_context_leaves_the_thread_as_it_was() {
    let fake = Fake::new();
    fake.use_gpu(1);
    fake.use_gpu(0);
    let gpu = fake.driver.device(1).unwrap();
    let left = std::panic::catch_unwind(|| gpu.within(|current| assert_eq!(current.device().ordinal(), 7)));
    assert!(left.is_err());
    let mut now = 0usize;
    fake.call("cuCtxGetCurrent", &[&raw mut now as usize]);
    assert_eq!(now, 0x1000);
}

#[test]
fn a_device_that_reaches_memory_by_the_cpu_refuses_a_gpus_and_nothing_stays_open() {
    let fake = Fake::new();
    let pd = Context::open(SoftDevice::new(Profile::RDMA)).alloc_pd().unwrap();
    let va = fake.malloc(8192);
    let before = open_files();
    let refused = fake.driver.register(&pd, borrowed(va, 8192)).unwrap_err();
    assert_eq!(refused.error(), Error::Core(efa_core::Error::OpaqueMemory));
    assert_eq!(open_files(), before);
    let refused = fake.driver.register(&pd, borrowed(va, 0)).unwrap_err();
    assert_eq!(refused.error(), Error::Core(efa_core::Error::ZeroLength));
}

#[test]
fn h24_virtual_memory_is_not_asked_for_synchronous_copies_which_it_refuses() {
    let fake = Fake::new();
    let pd = Context::open(SoftDevice::new(Profile::RDMA)).alloc_pd().unwrap();
    let (virtual_memory, allocation) = (fake.alloc(VIRTUAL, 0, MIB), fake.malloc(4096));
    drop(fake.driver.register(&pd, borrowed(virtual_memory, MIB)));
    assert!(!fake.log().iter().any(|line| line.starts_with("cuPointerSetAttribute")));
    drop(fake.driver.register(&pd, borrowed(allocation, 4096)));
    fake.at("cuPointerSetAttribute");
}

#[test]
fn a_device_tells_what_it_can_do_and_gives_a_proof_of_order_only_as_wide_as_it_says() {
    let fake = Fake::new();
    let gpu = fake.driver.device(1).unwrap();
    let proofs = || [Scope::Owner, Scope::AllDevices].map(|scope| gpu.writes_ordered(scope).unwrap().is_some());
    assert_eq!(proofs(), [false, false]);
    fake.set("writes_ordering", 100);
    assert_eq!(proofs(), [true, false]);
    fake.set("writes_ordering", 200);
    assert_eq!(proofs(), [true, true]);
    let text = gpu.report().unwrap().to_string();
    for part in ["GPU 1", "0000:11:00.0", "9.0", "CUDA 12.8", "dma-buf: yes", "for all devices"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    fake.fail("cuDeviceGetAttribute", 700, 1);
    let failed = gpu.exports_dma_bufs().unwrap_err();
    assert_eq!(
        failed.to_string(),
        "cuDeviceGetAttribute answered CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"
    );
    fake.fail("cuDeviceGetAttribute", 12345, 1);
    assert!(gpu.exports_dma_bufs().unwrap_err().to_string().contains("no name for"));
    assert_eq!(fake.driver.devices().unwrap().len(), 2);
    assert_eq!(fake.driver.device(2).unwrap_err().name, "CUDA_ERROR_INVALID_DEVICE");
}

#[test]
fn a_variable_names_another_file_and_a_driver_that_does_not_start_says_why() {
    const NAME: &str = "a_variable_names_another_file_and_a_driver_that_does_not_start_says_why";
    if std::env::var_os("EFA_CUDA_TEST_LOADS").is_some() {
        match efa_cuda::Driver::load() {
            Ok(driver) => println!("loaded {}", driver.version().unwrap()),
            Err(error) => println!("{error}"),
        }
        return;
    }
    // This test again, in a program of its own.
    let run = |file: &str, code: &str| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", "--nocapture", NAME]).env("EFA_CUDA_TEST_LOADS", "");
        let output = child.env("EFA_CUDA_LIBCUDA", file).env("FAKECUDA_FAIL_INIT", code).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let missing = run("/nowhere/libcuda.so", "");
    assert!(missing.contains("`/nowhere/libcuda.so`") && missing.contains("EFA_CUDA_LIBCUDA"), "{missing}");
    let named = run(common::library().to_str().unwrap(), "");
    assert!(named.contains("loaded 12080"), "{named}");
    let stub = run(common::library().to_str().unwrap(), "34");
    assert!(stub.contains("CUDA_ERROR_STUB_LIBRARY") && stub.contains("stubs"), "{stub}");
}

#[test]
fn h26_a_threads_default_stream_is_waited_for_in_that_thread_alone() {
    let fake = Fake::new();
    let primary = fake.driver.device(0).unwrap().primary().unwrap();
    let (va, mut stream) = (fake.malloc(512), Stream::per_thread(&primary));
    fake.kernel(&mut stream, va, 512, 6);
    // There its handle means a stream that has nothing to do.
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| stream.synchronize()).join()).unwrap();
    assert_eq!(elsewhere, Err(Error::OtherThread));
    assert!(Error::OtherThread.to_string().contains("wait in that thread"));
    assert_eq!(fake.seen(va, 512), [0; 512]);
    stream.synchronize().unwrap();
    assert_eq!(fake.seen(va, 512), [6; 512]);
}
