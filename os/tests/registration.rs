//! Registration on real libraries: at addresses of choice, of memory that the CPU does not see, and refused. As `devices.rs`.
#![allow(missing_docs, unsafe_code)]

mod common;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use common::{Basic, has_writes, on_each_path, skipped, wait};
use efa_core::flags::Access;
use efa_core::flow::{Split, Step};
use efa_core::memory::{
    MemoryKind, Mr, Opaque, Ordered, PageSize, Pages, RawMemory, RegisterOptions, RemoteRead, RemoteReadWrite,
    RemoteWrite, Slice,
};
use efa_core::qp::{Depth, Solicited, Srd, ops};
use efa_core::work::Event;
use efa_core::{Context, Error, MrInit, ProtectionDomain, Provider, Token, Verb};
use efa_os::{Device, DmaBufFile, HugePageSize, HugePages};

/// What a driver exports for a device: a file in memory, which is enough for tests/softefa, or a dma-buf of such a file's pages.
fn exported(len: u64) -> (File, OwnedFd) {
    // SAFETY: a name that ends.
    let number = unsafe { libc::memfd_create(c"exported".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    assert!(number >= 0);
    // SAFETY: made just now.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    file.set_len(len).unwrap();
    let other = match File::open(UDMABUF) {
        Ok(exporter) if !is_softefa() => dma_buf(&exporter, &file, len),
        _ => file.try_clone().unwrap().into(),
    };
    (file, other)
}

/// Linux's exporter of a file's pages.
const UDMABUF: &str = "/dev/udmabuf";

/// A dma-buf of a whole file in memory.
fn dma_buf(exporter: &File, file: &File, len: u64) -> OwnedFd {
    #[repr(C)]
    struct Create {
        memfd: u32,
        flags: u32,
        offset: u64,
        size: u64,
    }
    const UDMABUF_CREATE: u64 = 0x4018_7542;
    let create = Create { memfd: file.as_raw_fd() as u32, flags: libc::FD_CLOEXEC as u32, offset: 0, size: len };
    // SAFETY: it takes a number. The exporter wants a file that does not shrink.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
    assert_eq!(sealed, 0);
    // SAFETY: the structure that the call takes, which lives until it returns.
    let number = unsafe { libc::ioctl(exporter.as_raw_fd(), UDMABUF_CREATE, &raw const create) };
    assert!(number >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: made just now.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn is_softefa() -> bool {
    std::env::var_os("LD_PRELOAD").is_some_and(|preloaded| preloaded.to_string_lossy().contains("softefa"))
}

/// Real hardware takes a file in memory for no dma-buf.
fn has_exporter(ctx: &Context<Device>, test: &str) -> bool {
    let has = is_softefa() || File::open(UDMABUF).is_ok();
    if !has {
        skipped(test, &format!("{} is hardware, and nobody here exports memory to it", ctx.name()));
    }
    has
}

/// To be posted: nobody but the test reaches these files.
fn ordered(slice: Slice<Opaque>) -> Slice<Ordered> {
    // SAFETY: as above; it reads them once the operation is done.
    unsafe { slice.assume_ordered() }
}

fn bytes(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

#[test]
fn r35_what_registrations_cost_is_counted_in_each_domain_with_the_time_that_they_took() {
    on_each_path("registrations", |[ctx, _]| {
        let (pd, another) = (ctx.alloc_pd().unwrap(), ctx.alloc_pd().unwrap());
        let cost = |pd: &ProtectionDomain<Device>| pd.registrations().unwrap();
        assert_eq!((cost(&pd).regions, cost(&pd).bytes, cost(&pd).nanoseconds), (0, 0, Some(0)));
        let (region, whole) = pd.register(vec![0; 1000]).unwrap();
        let first = cost(&pd);
        assert!((first.regions, first.bytes) == (1, 1000) && first.nanoseconds > Some(0), "{first}");
        assert!(first.to_string().starts_with("1 registration of 1000 bytes in "), "{first}");
        // Of what was deregistered since, too, and of both kinds of memory.
        region.close(whole).unwrap();
        assert_eq!(cost(&pd), first);
        if let Ok(access) = ctx.require::<RemoteRead>() {
            let _exposed = pd.expose(Pages::new(4096, PageSize::Base).unwrap(), access).unwrap();
            let both = cost(&pd);
            assert!((both.regions, both.bytes) == (2, 5096) && both.nanoseconds > first.nanoseconds, "{both}");
        }
        assert_eq!(cost(&another).regions, 0);
    });
}

#[test]
fn a_message_is_sent_from_and_received_into_memory_that_the_cpu_does_not_see() {
    on_each_path("opaque messages", |[a, b]| {
        if !has_exporter(&a, "opaque messages") {
            return;
        }
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let mut from = a_pd.endpoint(a.require::<Basic>().unwrap(), Depth::new(8, 8)).unwrap();
        let mut to = b_pd.endpoint(b.require::<Basic>().unwrap(), Depth::new(8, 8)).unwrap();
        let (peer, _back) = efa_core::connect::introduce(&from, &to).unwrap();
        let ((source, source_fd), (target, target_fd)) = (exported(1 << 16), exported(1 << 16));
        let numbers = [source_fd.as_raw_fd(), target_fd.as_raw_fd()];
        source.write_all_at(b"from memory that only devices see", 4096 + 10).unwrap();
        let (source_region, sent) = a_pd.register(DmaBufFile::new(source_fd, 4096, 8192)).unwrap();
        let (target_region, received) = b_pd.register(DmaBufFile::new(target_fd, 8192, 4096).keeping(target)).unwrap();
        assert_eq!((sent.len(), received.len(), source_region.attr().iova), (8192, 4096, 4096));
        let (head, sent) = sent.split_at(10).unwrap();
        let (sent, tail) = sent.split_at(33).unwrap();
        let (first, received) = received.split_at(100).unwrap();
        to.post_recv(ordered(received), Token(1)).unwrap();
        from.post(peer.send(ordered(sent)).imm(7), Token(2)).unwrap();
        let Event::Sent(mut done) = wait(&mut from) else { panic!("not sent") };
        let Event::Received(mut message) = wait(&mut to) else { panic!("not received") };
        assert_eq!((message.len, message.imm, message.buffers.len()), (33, Some(7), 1));
        assert!(message.buffers.take_slice().is_none(), "it has no bytes");
        let received = message.buffers.take_opaque().unwrap();
        let sent = done.buffers.take_opaque().unwrap();
        assert_eq!((received.len(), sent.len()), (3996, 33));
        // Together with memory of the other kind, and back out of a completion in their order.
        let (_own, visible) = a_pd.register(vec![b'!'; 4]).unwrap();
        to.post_recv(ordered(received), Token(3)).unwrap();
        from.post(peer.send((ordered(sent), visible)), Token(4)).unwrap();
        let Event::Sent(mut done) = wait(&mut from) else { panic!("not sent") };
        let (sent, visible) = (done.buffers.take_opaque().unwrap(), done.buffers.take_slice().unwrap());
        assert_eq!((&visible[..], done.buffers.len()), (&b"!!!!"[..], 0));
        let Event::Received(mut message) = wait(&mut to) else { panic!("not received") };
        let received = message.buffers.take_opaque().unwrap();
        // All of it gives the owners back, which kept file and backing so long.
        let whole = first.unsplit(received).unwrap();
        let owner = target_region.close(whole).unwrap();
        assert_eq!(bytes(owner.backing(), 8192 + 100, 37), b"from memory that only devices see!!!!");
        let (file, _backing) = owner.into_parts();
        assert_eq!(file.as_raw_fd(), numbers[1]);
        let whole = head.unsplit(sent.unsplit(tail).unwrap()).unwrap();
        let (file, ()) = source_region.close(whole).unwrap().into_parts();
        assert_eq!(file.as_raw_fd(), numbers[0]);
        assert_eq!((a.leaks().regions(), b.leaks().regions()), (0, 0));
    });
}

#[test]
fn peers_write_and_read_memory_that_the_cpu_does_not_see() {
    type Rdma = Srd<{ ops::SEND | ops::RDMA_READ | ops::RDMA_WRITE | ops::RDMA_WRITE_WITH_IMM }, Solicited>;
    on_each_path("opaque rdma", |contexts| {
        if !has_exporter(&contexts[0], "opaque rdma") || !has_writes(&contexts, "opaque rdma") {
            return;
        }
        let [a, b] = contexts;
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let mut from = a_pd.endpoint(a.require::<Rdma>().unwrap(), Depth::new(8, 8)).unwrap();
        let mut to = b_pd.endpoint(b.require::<Rdma>().unwrap(), Depth::new(8, 8)).unwrap();
        let (peer, _back) = efa_core::connect::introduce(&from, &to).unwrap();
        let (target, fd) = exported(1 << 20);
        // Not whole words: nobody here uses atomics on it.
        // SAFETY: nobody but the test reaches it, and not while it is posted.
        let memory = unsafe { DmaBufFile::new(fd, 4096, 8191).at(0x7F00_0000_1000).assume_coherent() };
        let exposed = b_pd.expose(memory, b.require::<RemoteReadWrite>().unwrap()).unwrap();
        assert_eq!((exposed.len(), exposed.attr().iova), (8191, 0x7F00_0000_1000));
        let grant = exposed.grant(&to).unwrap();
        let window = peer.window::<RemoteReadWrite>(grant.as_bytes()).unwrap();
        to.post_recv(b_pd.register(vec![0; 8]).unwrap().1, Token(1)).unwrap();
        let source = a_pd.register(b"written".to_vec()).unwrap().1;
        from.post(peer.write(source, window.range(100..107).unwrap()).imm(3), Token(2)).unwrap();
        assert!(matches!(wait(&mut from), Event::Written(_)));
        assert!(matches!(wait(&mut to), Event::WriteArrived(arrived) if arrived.imm == 3 && arrived.len == Some(7)));
        assert_eq!(bytes(&target, 4096 + 100, 7), b"written");
        // Read from there into other such memory, and sent from a part of it.
        let (mine, fd) = exported(4096);
        // SAFETY: likewise.
        let (region, mut into) = a_pd.register(unsafe { DmaBufFile::new(fd, 0, 4096).assume_coherent() }).unwrap();
        for offset in [96, 97] {
            from.post(peer.read(into, window.range(offset..offset + 4096).unwrap()), Token(3)).unwrap();
            let Event::Read(mut done) = wait(&mut from) else { panic!("not read") };
            into = done.buffers.take_coherent().unwrap();
            assert_eq!((bytes(&mine, 100 - offset, 7).as_slice(), into.len()), (&b"written"[..], 4096));
        }
        region.close(into).unwrap();
        // All of it in parts, and back in one piece.
        let (more, fd) = exported(8192);
        let (_more, whole) = a_pd.register(DmaBufFile::new(fd, 0, 8191)).unwrap();
        let mut read = Split::<_, 4, _>::new(ordered(whole), window, 1000, Token(100)).unwrap();
        let whole = loop {
            read.post(&mut from, |part, window| peer.read(part, window)).unwrap();
            match from.poll().map(|event| read.step(event)) {
                Some(Step::Done { slice, failed: None }) => break slice,
                None | Some(Step::More) => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((whole.len(), bytes(&more, 100, 7).as_slice()), (8191, &b"written"[..]));
        let part = exposed.part(100..107).unwrap();
        let (back, _) = efa_core::connect::introduce(&to, &from).unwrap();
        from.post_recv(a_pd.register(vec![0; 7]).unwrap().1, Token(4)).unwrap();
        to.post(back.send(part), Token(5)).unwrap();
        assert!(matches!(wait(&mut to), Event::Sent(_)));
        let Event::Received(message) = wait(&mut from) else { panic!("not received") };
        assert_eq!(&message.buffers.into_slice().unwrap()[..], b"written");
        // After that nobody reaches it, and the file is back.
        exposed.revoke().unwrap();
        let source = a_pd.register(b"too late".to_vec()).unwrap().1;
        from.post(peer.write(source, window.range(0..8).unwrap()), Token(6)).unwrap();
        assert!(matches!(wait(&mut from), Event::Failed { .. }));
    });
}

#[test]
fn a_file_that_is_refused_comes_back_and_its_error_says_why() {
    on_each_path("refused files", |[ctx, _]| {
        if !has_exporter(&ctx, "refused files") {
            return;
        }
        let pd = ctx.alloc_pd().unwrap();
        let explained = |error| ctx.provider().explain(error).to_string();
        let (_file, fd) = exported(8192);
        let number = fd.as_raw_fd();
        let refused = pd.register(DmaBufFile::new(fd, 4096, 4097).keeping("kept")).unwrap_err();
        let text = explained(refused.error());
        assert!(text.contains("file has 8192 bytes") && text.contains("4097 bytes at 0x1000"), "{text}");
        let (fd, kept) = refused.into_inner().into_parts();
        assert_eq!((fd.as_raw_fd(), kept), (number, "kept"));
        // At another place of a page than it has in the file.
        let refused = pd.register(DmaBufFile::new(fd, 4096, 100).at(0x1001)).unwrap_err();
        assert_eq!(refused.error(), Error::PageOffset { memory: 4096, iova: 0x1001, page: 4096 });
        let options = RegisterOptions::new().iova(0x9000);
        let (region, whole) = pd.register_with(refused.into_inner(), options).unwrap();
        assert_eq!(region.attr().iova, 0x9000);
        let fd = region.close(whole).unwrap().into_parts().0;
        // Nothing, and what no device takes for memory.
        let refused = pd.register(DmaBufFile::new(fd, 0, 0)).unwrap_err();
        assert_eq!(refused.error(), Error::ZeroLength);
        let null = DmaBufFile::new(File::open("/proc/self/status").unwrap().into(), 0, 1);
        let error = pd.register(null).unwrap_err().error();
        assert!(matches!(error, Error::Device { verb: Verb::RegMr, errno: libc::EINVAL }), "{error}");
        let text = explained(error);
        assert!(text.contains("a dma-buf, file"), "{text}");
        assert_eq!((ctx.leaks().regions(), ctx.leaks().objects()), (0, 0));
        assert_eq!(ctx.provider().explain(error).regions, 0);
    });
}

#[test]
fn memory_is_registered_at_an_address_of_choice_and_reached_there() {
    on_each_path("addresses", |[a, b]| {
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let mut from = a_pd.endpoint(a.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
        let to = b_pd.endpoint(b.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
        let (peer, _back) = efa_core::connect::introduce(&from, &to).unwrap();
        let memory = || Pages::new(8192, PageSize::Base).unwrap();
        let at = |iova| RegisterOptions::new().iova(iova);
        let access = b.require::<RemoteRead>().unwrap();
        let exposed = b_pd.expose_with(memory(), access, at(0)).unwrap();
        exposed.copy_in(5000, b"at an address of choice").unwrap();
        let window = peer.window::<RemoteRead>(exposed.grant(&to).unwrap().as_bytes()).unwrap();
        // The local side has an address of choice too, near the end of all there are.
        let (region, whole) = a_pd.register_with(memory(), at(!0xFFFF)).unwrap();
        assert_eq!((region.attr().iova, exposed.attr().iova), (!0xFFFF, 0));
        let (head, tail) = whole.split_at(5000).unwrap();
        from.post(peer.read(tail, window.range(5000..8192).unwrap()), Token(1)).unwrap();
        let Event::Read(done) = wait(&mut from) else { panic!("not read") };
        let tail = done.buffers.into_slice().unwrap();
        assert_eq!(&tail[..23], b"at an address of choice");
        drop(region.close(head.unsplit(tail).unwrap()).unwrap());
        // Elsewhere in a page, and where the last byte has no address.
        let refused = a_pd.register_with(memory(), at(0x1234)).unwrap_err();
        let text = refused.error().to_string();
        assert!(text.contains("0x234 into a page of 4096 bytes") && text.contains("must be 0x0"), "{text}");
        assert_eq!(refused.into_inner().len(), 8192);
        let refused = a_pd.register_with(memory(), at(!0xFFF)).unwrap_err();
        assert!(matches!(refused.error(), Error::OutOfBounds { offset, len: 8192, .. } if offset == !0xFFF));
        let refused = b_pd.expose_with(memory(), access, at(1)).unwrap_err();
        assert!(matches!(refused.error(), Error::PageOffset { iova: 1, page: 4096, .. }));
        assert_eq!((a.leaks().regions(), b.leaks().regions()), (0, 0));
    });
}

#[test]
fn memory_of_another_devices_domain_is_refused_and_what_is_in_use_is_counted() {
    on_each_path("domains", |[ctx, _]| {
        let device = ctx.provider();
        let pd = device.alloc_pd().unwrap();
        let other = efa_os::devices().unwrap().swap_remove(0);
        let init = MrInit::new(Access::LOCAL_WRITE);
        // SAFETY: owned memory, which nobody else reaches.
        let foreign: Result<Mr, _> = unsafe { other.reg_mr(&pd, RawMemory::new(vec![5u8; 8192]), &init) };
        let (back, error) = foreign.unwrap_err();
        assert!(matches!(error, Error::Device { verb: Verb::RegMr, errno: 22 }) && back.parts().len == 8192);
        // What is in use is counted, and not what came back.
        let _kept = ctx.alloc_pd().unwrap().register(vec![0; 4096]).unwrap();
        let explained = device.explain(error);
        assert_eq!((explained.regions, explained.bytes, explained.queue_pairs), (1, 4096, 0));
    });
}

/// One piece of memory for each rail, or none.
fn on_all(rails: &[ProtectionDomain<Device>]) -> Result<Vec<efa_core::memory::Region<Vec<u8>>>, efa_os::Error> {
    rails.iter().map(|pd| Ok(pd.register(vec![0; 4096])?.0)).collect()
}

#[test]
fn h12_what_was_registered_before_one_of_several_devices_refused_is_deregistered_and_the_error_names_it_all() {
    on_each_path("rails", |[a, b]| {
        let rails = [&a, &b, &a, &b].map(|ctx| ctx.alloc_pd().unwrap());
        let regions = |ctx: &Context<Device>| ctx.provider().explain(Error::ZeroLength).regions;
        drop(on_all(&rails).unwrap());
        if a.name() == b.name() {
            return skipped("rails", "there is one device, which cannot be full while it is not");
        }
        // The second has no room for more.
        let limit = b.limits().max_mr;
        if limit > 100_000 {
            return skipped("rails", "the device has room for more regions than a test makes");
        }
        let mut full = Vec::new();
        let error = loop {
            match rails[1].register(vec![0u8; 1]) {
                Ok(region) => full.push(region),
                Err(refused) => break refused.error(),
            }
        };
        assert!(full.len() as u32 <= limit, "{} of {limit}", full.len());
        let text = b.provider().explain(error).to_string();
        for part in [b.name(), "1 bytes at 0x", "ordinary memory", "LOCAL_WRITE", "RLIMIT_MEMLOCK", "locked"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(text.contains(&format!("{} of {limit} regions", full.len())), "{text}");
        let before = (regions(&a), regions(&b));
        assert!(matches!(on_all(&rails), Err(efa_os::Error::Core(again)) if again == error));
        assert_eq!((regions(&a), regions(&b)), before);
        assert_eq!((a.leaks().regions(), b.leaks().regions()), (0, 0));
        drop(full);
        assert_eq!(on_all(&rails).unwrap().len(), 4);
    });
}

/// Runs it in a thread that is not root's, in a process that may lock so many bytes.
fn as_anybody<T: Send>(limit: u64, run: impl FnOnce() -> T + Send) -> T {
    const ANYBODY: libc::uid_t = 65534;
    let set = |limit: &libc::rlimit| {
        // SAFETY: it reads the structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, limit) }, 0);
    };
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes the structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut before) }, 0);
    set(&libc::rlimit { rlim_cur: limit, ..before });
    let in_thread = || {
        // SAFETY: it takes numbers. The system's own call changes this thread alone, which ends with it.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, ANYBODY, ANYBODY, ANYBODY) }, 0);
        run()
    };
    let ran = std::thread::scope(|scope| scope.spawn(in_thread).join());
    set(&before);
    ran.unwrap()
}

#[test]
fn r36_more_memory_than_the_system_lets_a_user_lock_is_refused_with_the_limit_and_comes_back() {
    on_each_path("locked memory", |[ctx, _]| {
        // SAFETY: it takes nothing.
        if is_softefa() || unsafe { libc::geteuid() } != 0 {
            return skipped(
                "locked memory",
                "that a user may lock so much and no more is the kernel's to say, and a test of root's",
            );
        }
        const LIMIT: u64 = 64 << 10;
        let pd = ctx.alloc_pd().unwrap();
        let (memory, error, text) = as_anybody(LIMIT, || {
            let (memory, error) = pd.register(vec![7; 1 << 20]).unwrap_err().into_parts();
            (memory, error, ctx.provider().explain(error).to_string())
        });
        assert_eq!(error, Error::Device { verb: Verb::RegMr, errno: libc::ENOMEM });
        for part in ["1048576 bytes at 0x", "RLIMIT_MEMLOCK is 65536 bytes", "locked"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert_eq!(ctx.leaks().regions(), 0);
        // What came back is whole, and registered by whoever may.
        let (region, slice) = pd.register(memory).unwrap();
        assert!(slice.iter().all(|byte| *byte == 7));
        assert!(region.close(slice).is_ok());
    });
}

#[test]
fn h10_r38_huge_pages_are_refused_where_a_fork_would_tear_them_from_the_device_and_taken_where_not() {
    /// As huge pages are registered, of ordinary ones: not each machine has any.
    struct Claimed(Vec<u8>);
    // SAFETY: as the vector's own.
    unsafe impl efa_core::memory::DmaBuf for Claimed {
        type View = efa_core::memory::Visible;

        fn kind(&self) -> MemoryKind {
            MemoryKind::HugePages { bytes: 4096, never_forks: self.0.capacity() > 5000 }
        }

        fn into_raw(self) -> efa_core::memory::RawParts {
            self.0.into_raw()
        }

        unsafe fn from_raw(parts: efa_core::memory::RawParts) -> Self {
            // SAFETY: by the caller's word.
            Self(unsafe { Vec::from_raw(parts) })
        }
    }
    let fork = efa_os::fork_safety().unwrap();
    on_each_path("huge pages", |[ctx, _]| {
        let pd = ctx.alloc_pd().unwrap();
        let registered = pd.register(Claimed(vec![0; 4096]));
        assert_eq!(registered.is_ok(), fork.keeps_huge_pages(), "{fork}");
        if let Err(refused) = registered {
            let text = ctx.provider().explain(refused.error()).to_string();
            for part in ["never_forks", "5.13", "a fork is", "RDMAV_HUGEPAGES_SAFE=1", "huge pages of 4096 bytes"] {
                assert!(text.contains(part), "no {part:?} in {text}");
            }
            assert_eq!(refused.into_inner().0.len(), 4096);
        }
        let mut promised = Vec::with_capacity(8192);
        promised.resize(4096, 0);
        drop(pd.register(Claimed(promised)).unwrap());
        match HugePages::new(1, HugePageSize::Mib2) {
            Ok(pages) => {
                let (region, whole) = pd.register(pages.never_forks()).unwrap();
                assert_eq!(whole.len(), 2 << 20);
                region.close(whole).unwrap();
            }
            Err(error) => skipped("huge pages", &format!("{error}")),
        }
    });
}

#[test]
fn exposed_memory_that_the_device_cannot_grant_is_refused_with_both_sets() {
    on_each_path("rights", |[ctx, _]| {
        let pd = ctx.alloc_pd().unwrap();
        match ctx.require::<RemoteWrite>() {
            Ok(token) => drop(pd.expose(Pages::new(1, PageSize::Base).unwrap(), token).unwrap()),
            Err(error) => assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("RDMA")),
        }
    });
}
