//! Memory that the CPU does not see, and addresses of choice.

use std::ptr::NonNull;

use efa_core::connect::introduce;
use efa_core::flags::Access;
use efa_core::memory::{
    Buffer, Coherent, DmaBuf, MemoryFile, MemoryKind, Opaque, PageSize, Pages, RawMemory, RawParts, RegisterOptions,
    RemoteReadWrite,
};
use efa_core::qp::{Depth, Endpoint, Srd};
use efa_core::soft::{Profile, SoftDevice};
use efa_core::work::Event;
use efa_core::{Caps, Context, Error, Limit, MrInit, Token};

use super::common::puppet::Puppet;
use super::common::{required, wait};
use super::{Counted, Two};

/// Counted memory as a GPU's would be: nobody but the device reaches it.
struct Gpu(Counted, MemoryKind);

// SAFETY: as the counted memory's own; nobody makes a reference to it meanwhile.
unsafe impl DmaBuf for Gpu {
    type View = Opaque;

    fn kind(&self) -> MemoryKind {
        self.1
    }

    fn into_raw(self) -> RawParts {
        self.0.into_raw()
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        // SAFETY: by the caller's word.
        Self(unsafe { Counted::from_raw(parts) }, MemoryKind::Ordinary)
    }
}

#[test]
fn a_software_device_refuses_memory_that_the_cpu_does_not_see_and_gives_it_back() {
    let pd = Context::open(SoftDevice::new(Profile::RDMA)).alloc_pd().unwrap();
    let (memory, number) = Counted::new();
    let refused = pd.register(Gpu(memory, MemoryKind::Ordinary)).unwrap_err();
    assert_eq!(refused.error(), Error::OpaqueMemory);
    assert!(refused.error().to_string().contains("device of hardware"));
    let memory = refused.into_inner();
    assert_eq!((memory.0.bytes.len(), Counted::drops(number)), (64, 0));
    drop(RawMemory::new(memory));
    assert_eq!(Counted::drops(number), 1);
}

#[test]
fn slices_without_bytes_are_cut_posted_and_given_back_as_others_are() {
    let ctx = Context::open(Puppet::new(Caps::RDMA_READ | Caps::RDMA_WRITE));
    let pd = ctx.alloc_pd().unwrap();
    let (memory, number) = Counted::new();
    let file = MemoryKind::File(MemoryFile { fd: 3, offset: 0x2010, iova: 0x5010 });
    let (region, whole) = pd.register(Gpu(memory, file)).unwrap();
    assert_eq!((region.attr().iova, whole.len(), whole.is_empty()), (0x5010, 64, false));
    let mut qp = pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4).recv_buffers(2)).unwrap();
    let (first, second) = whole.split_at(24).unwrap();
    // SAFETY: nobody reaches it.
    let ordered = [first, second].map(|slice| unsafe { slice.assume_ordered() });
    qp.post_recv(ordered, Token(7)).unwrap();
    let mut back = Vec::new();
    let report = qp.shut_down(|| true, |event| back.push(event)).unwrap();
    assert_eq!(report.reclaimed, 1);
    let Some(Event::Reclaimed { mut buffers, .. }) = back.pop() else { panic!("{back:?}") };
    assert_eq!((buffers.len(), buffers.bytes()), (2, 64));
    assert!(buffers.take_slice().is_none());
    let first = buffers.take_opaque().unwrap();
    let Some(Buffer::Opaque(second)) = buffers.next() else { panic!("another kind") };
    let whole = first.unsplit(second).unwrap();
    drop(region.close(whole).unwrap());
    assert_eq!(Counted::drops(number), 1);
}

#[test]
fn coherent_memory_is_posted_as_it_comes_back_again_and_again() {
    /// Memory that a device alone reaches.
    struct Devices(Counted);
    // SAFETY: as the counted memory's own; nobody else reaches it meanwhile.
    unsafe impl DmaBuf for Devices {
        type View = Coherent;

        fn into_raw(self) -> RawParts {
            self.0.into_raw()
        }

        unsafe fn from_raw(parts: RawParts) -> Self {
            // SAFETY: by the caller's word.
            Self(unsafe { Counted::from_raw(parts) })
        }
    }
    let soft = Context::open(SoftDevice::new(Profile::RDMA)).alloc_pd().unwrap();
    let refused = soft.register(Devices(Counted::new().0)).unwrap_err();
    assert_eq!(refused.error(), Error::OpaqueMemory, "the CPU does not see it either");
    let ctx = Context::open(Puppet::new(Caps::RDMA_READ | Caps::RDMA_WRITE));
    let pd = ctx.alloc_pd().unwrap();
    let (memory, number) = Counted::new();
    let (region, whole) = pd.register(Devices(memory)).unwrap();
    let exposed = pd.expose(Devices(Counted::new().0), required::<_, RemoteReadWrite>(&ctx)).unwrap();
    let (mut first, mut second) = whole.split_at(24).unwrap();
    let mut part = exposed.part(8..16).unwrap();
    for _ in 0..2 {
        let mut qp = pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4).recv_buffers(2)).unwrap();
        qp.post_recv([first, second], Token(7)).unwrap();
        qp.post_recv(part, Token(8)).unwrap();
        let mut back = Vec::new();
        qp.shut_down(|| true, |event| back.push(event.into_buffers())).unwrap();
        let [slices, parts] = &mut back[..] else { panic!("{back:?}") };
        assert!(slices.take_slice().is_none() && slices.take_opaque().is_none());
        first = slices.take_coherent().unwrap();
        let Some(Buffer::Coherent(slice)) = slices.next() else { panic!("another kind") };
        let Some(Buffer::CoherentExposed(again)) = parts.next() else { panic!("another kind") };
        assert_eq!((slice.len(), again.offset(), slices.len() + parts.len()), (40, 8, 0));
        (second, part) = (slice, again);
    }
    drop(region.close(first.unsplit(second).unwrap()).unwrap());
    assert_eq!(Counted::drops(number), 1);
    drop(part);
    exposed.revoke().unwrap();
}

#[test]
fn memory_that_nobody_here_sees_is_exposed_at_any_alignment_and_memory_that_is_seen_at_words_only() {
    /// Three bytes in the middle of a word.
    struct Odd;
    // SAFETY: nobody reaches these bytes.
    unsafe impl DmaBuf for Odd {
        type View = Opaque;

        fn into_raw(self) -> RawParts {
            RawParts { base: NonNull::without_provenance(std::num::NonZero::new(0x1001).unwrap()), len: 3, extra: 0 }
        }

        unsafe fn from_raw(_: RawParts) -> Self {
            Self
        }
    }
    let ctx = Context::open(Puppet::new(Caps::RDMA_READ | Caps::RDMA_WRITE));
    let pd = ctx.alloc_pd().unwrap();
    let exposed = pd.expose(Odd, required::<_, RemoteReadWrite>(&ctx)).unwrap();
    assert_eq!((exposed.len(), exposed.attr().iova, exposed.part(1..3).unwrap().len()), (3, 0x1001, 2));
    // A part of it comes back from an operation as what it was, and is to be waited for again.
    let mut qp = pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap();
    // SAFETY: nobody reaches it.
    qp.post_recv(unsafe { exposed.part(1..3).unwrap().assume_ordered() }, Token(7)).unwrap();
    let mut back = Vec::new();
    qp.shut_down(|| true, |event| back.extend(event.into_buffers())).unwrap();
    let [Buffer::OpaqueExposed(part)] = &back[..] else { panic!("{back:?}") };
    assert_eq!((part.offset(), part.len(), back[0].len()), (1, 2, 2));
    drop(back);
    exposed.revoke().unwrap();
}

#[test]
fn an_address_of_choice_is_as_far_into_a_page_as_the_memory_and_peers_reach_it_there() {
    let mut two = Two::new();
    let memory = || Pages::new(4096, PageSize::Base).unwrap();
    let access = required::<_, RemoteReadWrite>(&two.ctx);
    let exposed = two.pd.expose_with(memory(), access, RegisterOptions::new().iova(0xABCD_E000)).unwrap();
    exposed.copy_in(9, b"here").unwrap();
    let window = two.to_b.window::<RemoteReadWrite>(exposed.grant(&two.b).unwrap().as_bytes()).unwrap();
    let (region, whole) = two.pd.register_with(memory(), RegisterOptions::new().iova(!0x1FFF)).unwrap();
    assert_eq!((exposed.attr().iova, region.attr().iova), (0xABCD_E000, !0x1FFF));
    let (head, tail) = whole.split_at(4092).unwrap();
    two.a.post(two.to_b.read(tail, window.range(9..13).unwrap()), Token(1)).unwrap();
    let Event::Read(done) = wait(&mut two.a) else { panic!("not read") };
    let tail = done.buffers.into_slice().unwrap();
    assert_eq!(&tail[..], b"here");
    drop(region.close(head.unsplit(tail).unwrap()).unwrap());
    let refused = two.pd.register_with(memory(), RegisterOptions::new().iova(0xABCD_E008)).unwrap_err();
    assert!(matches!(refused.error(), Error::PageOffset { iova: 0xABCD_E008, page: 4096, .. }));
    let text = refused.error().to_string();
    assert!(text.contains("0x8 into a page of 4096 bytes, and must be 0x0"), "{text}");
    assert_eq!(refused.into_inner().len(), 4096);
}

#[test]
fn where_memory_is_to_be_seen_follows_from_its_kind_and_from_what_is_asked() {
    let place = |kind, iova, page| {
        let (memory, _) = Counted::new();
        let memory = RawMemory::new(Gpu(memory, kind));
        let base = memory.parts().base.addr().get() as u64;
        assert_eq!((memory.kind(), memory.is_visible()), (kind, false));
        (MrInit { iova, ..MrInit::new(Access::LOCAL_WRITE) }.place(&memory, page), base)
    };
    let (natural, base) = place(MemoryKind::Ordinary, None, 4096);
    assert_eq!(natural, Ok(base));
    let file = MemoryKind::File(MemoryFile { fd: 1, offset: 0x1_1008, iova: 0x9_1008 });
    assert_eq!(place(file, None, 0x1_0000).0, Ok(0x9_1008));
    assert_eq!(place(file, Some(0x2008), 0x1000).0, Ok(0x2008));
    // On a machine with larger pages the same one does not fit.
    let refused = Error::PageOffset { memory: 0x1_1008, iova: 0x2008, page: 0x1_0000 };
    assert_eq!(place(file, Some(0x2008), 0x1_0000).0, Err(refused));
    let last = !0xFFF | 8;
    assert_eq!(place(file, Some(last), 0x1000).0, Ok(last));
    let beyond = u64::MAX - 63;
    let file = MemoryKind::File(MemoryFile { fd: 1, offset: beyond, iova: 0 });
    let refused = Error::OutOfBounds { offset: beyond, len: 64, within: u64::MAX };
    assert_eq!(place(file, Some(beyond), 0x1000).0, Err(refused));
    assert_eq!(place(MemoryKind::Ordinary, Some(0), 1).0, Ok(0));
}

#[test]
fn r15_memory_that_is_only_to_be_read_is_sent_and_what_is_received_into_it_fails_and_writes_nothing() {
    let ctx = Context::open(SoftDevice::new(Profile::RDMA));
    let pd = ctx.alloc_pd().unwrap();
    let end = || pd.endpoint(ctx.require::<Srd>().unwrap(), Depth::new(4, 4)).unwrap();
    let (mut a, mut b) = (end(), end());
    let (to_b, _to_a) = efa_core::connect::introduce(&a, &b).unwrap();
    let options = RegisterOptions::new().read_only();
    let polled = |end: &mut Endpoint<SoftDevice, Srd>| (0..10_000).find_map(|_| end.poll()).expect("an event");
    let (source, bytes) = pd.register_with(vec![7u8; 64], options).unwrap();
    let (_target, into) = pd.register_with(vec![1u8; 64], options).unwrap();
    assert!(!source.attr().access.contains(Access::LOCAL_WRITE));
    b.post_recv(into, Token(1)).unwrap();
    a.post(to_b.send(bytes), Token(2)).unwrap();
    let Event::Failed { mut buffers, .. } = polled(&mut b) else { panic!("received") };
    assert_eq!(buffers.take_slice().unwrap()[..], [1; 64]);
    // It is read: what is wrong is at the other end.
    while a.in_flight() > 0 {
        a.poll();
    }
    let (_other, into) = pd.register(vec![1u8; 64]).unwrap();
    let (_source, bytes) = pd.register_with(vec![9u8; 64], options).unwrap();
    let (mut a, mut b) = (end(), end());
    let (to_b, _to_a) = efa_core::connect::introduce(&a, &b).unwrap();
    b.post_recv(into, Token(1)).unwrap();
    a.post(to_b.send(bytes), Token(2)).unwrap();
    let Event::Received(mut message) = polled(&mut b) else { panic!("not received") };
    assert_eq!(message.buffers.take_slice().unwrap()[..], [9; 64]);
}

#[test]
#[cfg(target_pointer_width = "64")]
fn r11_slices_of_more_than_32_bits_are_cut_and_rejoined_and_refused_by_every_operation_with_their_length() {
    const GIB: usize = 1 << 30;
    /// So much that no operation takes it at once.
    #[derive(Debug)]
    struct Vast;
    // SAFETY: nobody reaches these bytes.
    unsafe impl DmaBuf for Vast {
        type View = Coherent;

        fn into_raw(self) -> RawParts {
            let base = NonNull::without_provenance(std::num::NonZero::new(0x1000).unwrap());
            RawParts { base, len: 9 * GIB, extra: 0 }
        }

        unsafe fn from_raw(_: RawParts) -> Self {
            Self
        }
    }
    let ctx = Context::open(Puppet::new(Caps::RDMA_READ | Caps::RDMA_WRITE));
    let pd = ctx.alloc_pd().unwrap();
    let (region, whole) = pd.register(Vast).unwrap();
    let exposed = pd.expose(Vast, required::<_, RemoteReadWrite>(&ctx)).unwrap();
    let (mut first, mut second) = whole.split_at(4 * GIB + 8).unwrap();
    assert_eq!((first.len(), second.len(), second.offset()), (4 * GIB + 8, 5 * GIB - 8, 4 * GIB + 8));

    let endpoint = || pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4).recv_buffers(2)).unwrap();
    let (mut a, b) = (endpoint(), endpoint());
    let (to_b, _to_a) = introduce(&a, &b).unwrap();
    let window = to_b.window::<RemoteReadWrite>(exposed.grant(&b).unwrap().as_bytes()).unwrap();
    let (sent, rdma) = (u64::from(ctx.limits().max_msg_size), u64::from(ctx.limits().max_rdma_size));
    let asked = first.len() as u64;
    // The lower half of its length would fit everywhere.
    let refused = a.post(to_b.send(first), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::MessageBytes, asked, limit: sent });
    let refused = a.post_recv(refused.into_inner(), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::RecvBytes, asked, limit: 65_535 });
    let refused = a.post(to_b.write(refused.into_inner(), window), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::RdmaBytes, asked, limit: rdma });
    let refused = a.post(to_b.read(refused.into_inner(), window), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::RdmaBytes, asked, limit: rdma });
    first = refused.into_inner();
    let refused = a.post(to_b.send([first, second]), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::MessageBytes, asked: 9 << 30, limit: sent });
    let refused = a.post_recv(refused.into_inner(), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::RecvBytes, asked: (5 << 30) - 8, limit: 65_535 });
    [first, second] = refused.into_inner();
    let part = exposed.part(0..4 * GIB + 8).unwrap();
    let refused = a.post(to_b.send(part), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::MessageBytes, asked, limit: sent });
    let refused = a.post(to_b.write(refused.into_inner(), window), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::RdmaBytes, asked, limit: rdma });
    drop(refused);

    let whole = first.unsplit(second).unwrap();
    assert_eq!((whole.len(), whole.offset(), whole.pd()), (9 * GIB, 0, pd.id()));
    region.close(whole).unwrap();
}
