//! What arrived in a GPU's memory is seen by a read of the EFA's own where the host cannot flush; and what a completion
//! gave back is posted again only once it was waited for. As `transfer.rs`.
#![allow(missing_docs, unsafe_code)]

mod common;

use std::time::Duration;

use common::Fake;
use common::ends::{Ends, LEN, borrowed};
use efa_core::memory::{Buffer, RemoteRead};
use efa_core::work::Event;
use efa_core::{Error as CoreError, Token};
use efa_cuda::{BorrowedDevice, Completed, Error, GpuRegion, Inbound, Loopback, Owner, Scope};
use efa_os::Device;

const TIME: Duration = Duration::from_secs(10);

fn loopback(fake: &Fake, ends: &Ends) -> Loopback<Device, BorrowedDevice> {
    let source = borrowed(fake.malloc(64), 64);
    let source = fake.driver.expose(&ends.pd, source, ends.ctx.require::<RemoteRead>().unwrap()).unwrap();
    Loopback::new(&ends.ctx, &ends.pd, source).unwrap()
}

/// A message of the host's in a GPU's memory.
fn arrived<O: Owner<Access = efa_cuda::Writable>>(
    fake: &Fake,
    ends: &mut Ends,
    region: &GpuRegion<O>,
    memory: efa_cuda::Outbound<efa_cuda::Unsynced>,
    byte: u8,
) -> Inbound<Completed> {
    let mut stream = fake.stream();
    ends.b.post_recv(memory.synchronize(&mut stream).unwrap().into_slice(), Token(1)).unwrap();
    let (_host, bytes) = ends.pd.register(vec![byte; LEN]).unwrap();
    ends.a.post(ends.to_b.send(bytes), Token(2)).unwrap();
    let Event::Received(mut message) = ends.at_b() else { panic!("not received") };
    let Event::Sent(_) = ends.at_a() else { panic!("not sent") };
    region.completed(message.buffers.take_opaque().unwrap()).unwrap()
}

#[test]
fn h26_where_the_host_cannot_flush_a_read_of_the_efas_own_has_the_gpu_see_what_arrived_before_it() {
    let fake = Fake::new();
    fake.set("flush_options", 0);
    fake.set("reads_push", 1);
    let mut ends = Ends::new();
    let mut loopback = loopback(&fake, &ends);
    let va = fake.malloc(LEN);
    let (region, mut memory) = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap();
    for byte in 1..=3 {
        let before = fake.seen(va, LEN);
        let inbound = arrived(&fake, &mut ends, &region, memory, byte);
        assert_eq!((fake.on_bus(va, LEN), fake.seen(va, LEN)), (vec![byte; LEN], before), "in no one's sight");
        let refused = region.within(|current| inbound.flush(current, Scope::Owner)).unwrap().unwrap_err();
        assert_eq!(refused.error(), Error::NoHostFlush { device: 0 });
        assert!(refused.to_string().contains("`Loopback`"), "{refused}");
        let visible = loopback.flush(refused.into_inner(), TIME).unwrap();
        assert_eq!(fake.seen(visible.address(), LEN), vec![byte; LEN]);
        memory = visible.into_outbound();
    }
    region.close(memory).unwrap();
    loopback.into_source().revoke().unwrap();
}

#[test]
fn h26_a_read_that_says_nothing_of_the_memory_is_refused_with_it() {
    let fake = Fake::new();
    fake.set("c2c", 1);
    let mut ends = Ends::new();
    let mut loopback = loopback(&fake, &ends);
    let is = |refused: efa_cuda::Refused<Inbound<Completed>>| (refused.error(), refused.into_inner().len());
    // Another GPU's.
    fake.use_gpu(1);
    let (region, memory) = fake.driver.register(&ends.pd, borrowed(fake.malloc(LEN), LEN)).unwrap();
    let inbound = arrived(&fake, &mut ends, &region, memory, 1);
    assert_eq!(is(loopback.flush(inbound, TIME).unwrap_err()), (Error::OtherWay, LEN));
    fake.use_gpu(0);
    // By the other way.
    fake.fail("cuMemGetHandleForAddressRange", 801, 1);
    let (region, memory) = fake.driver.register(&ends.pd, borrowed(fake.malloc(LEN), LEN)).unwrap();
    let inbound = arrived(&fake, &mut ends, &region, memory, 2);
    assert_eq!(is(loopback.flush(inbound, TIME).unwrap_err()), (Error::OtherWay, LEN));
    // In another protection domain, as by another EFA.
    let mut others = Ends::new();
    let (region, memory) = fake.driver.register(&others.pd, borrowed(fake.malloc(LEN), LEN)).unwrap();
    let inbound = arrived(&fake, &mut others, &region, memory, 3);
    let refused = loopback.flush(inbound, TIME).unwrap_err();
    assert!(refused.to_string().contains("protection domain"), "{refused}");
    assert_eq!(is(refused), (Error::OtherWay, LEN));
    // And the memory that is read is of that domain, too.
    let refused = Loopback::new(&others.ctx, &others.pd, loopback.into_source()).unwrap_err();
    assert!(matches!(refused.error(), Error::Core(CoreError::ForeignDomain { .. })), "{refused}");
    refused.into_inner().revoke().unwrap();
}

#[test]
fn h26_a_read_that_does_not_end_in_time_or_fails_gives_the_memory_back_as_it_was() {
    let fake = Fake::new();
    fake.set("reads_push", 1);
    let mut ends = Ends::new();
    let mut loopback = loopback(&fake, &ends);
    let va = fake.malloc(LEN);
    let (region, memory) = fake.driver.register(&ends.pd, borrowed(va, LEN)).unwrap();
    let inbound = arrived(&fake, &mut ends, &region, memory, 7);
    let refused = loopback.flush(inbound, Duration::ZERO);
    // On a machine that was in a hurry it may have ended all the same.
    let visible = match refused {
        Ok(visible) => visible,
        Err(refused) => {
            assert_eq!(refused.error(), Error::LoopbackTime);
            // The end of that read says nothing of what came after it: another one is posted.
            loopback.flush(refused.into_inner(), TIME).unwrap()
        }
    };
    assert_eq!(fake.seen(visible.address(), LEN), [7; LEN]);
    // What it reads is there no more: registered by its address, and freed.
    fake.set("dmabuf", 0);
    fake.set("p2p", 1);
    let (va, other) = (fake.malloc(64), fake.malloc(LEN));
    let source = fake.driver.expose(&ends.pd, borrowed(va, 64), ends.ctx.require::<RemoteRead>().unwrap()).unwrap();
    let mut loopback = Loopback::new(&ends.ctx, &ends.pd, source).unwrap();
    let (region, memory) = fake.driver.register(&ends.pd, borrowed(other, LEN)).unwrap();
    let inbound = arrived(&fake, &mut ends, &region, memory, 8);
    fake.call("cuMemFree_v2", &[va as usize]);
    let refused = loopback.flush(inbound, TIME).unwrap_err();
    assert!(matches!(refused.error(), Error::Loopback(_)), "{refused}");
    let arrived = refused.into_inner();
    let visible = region.within(|current| arrived.flush(current, Scope::Owner)).unwrap().unwrap();
    assert_eq!(fake.seen(visible.address(), LEN), [8; LEN]);
}

#[test]
fn h26_a_part_of_exposed_memory_that_was_read_into_is_seen_after_the_flush_and_waited_for_before_it_is_posted_again() {
    let fake = Fake::new();
    let mut ends = Ends::new();
    let va = fake.malloc(LEN);
    let ctx = ends.ctx.clone();
    let access = || ctx.require::<RemoteRead>().unwrap();
    let target = fake.driver.expose(&ends.pd, borrowed(va, LEN), access()).unwrap();
    let source = ends.pd.expose(vec![0u64; LEN / 8].into_iter().flat_map(|_| [9u8; 8]).collect::<Vec<u8>>(), access());
    let source = source.unwrap();
    let window = ends.to_b.window::<RemoteRead>(source.grant(&ends.b).unwrap().as_bytes()).unwrap();
    let mut stream = fake.stream();
    let part = target.part(64..LEN).unwrap().synchronize(&mut stream).unwrap().into_slice();
    ends.a.post(ends.to_b.read(part, window.range(0..(LEN - 64) as u64).unwrap()), Token(1)).unwrap();
    let Event::Read(mut done) = ends.at_a() else { panic!("not read") };
    let Some(Buffer::OpaqueExposed(part)) = done.buffers.next() else { panic!("another kind") };
    let (other, _memory) = fake.driver.register(&ends.pd, borrowed(fake.malloc(64), 64)).unwrap();
    let foreign = fake.driver.expose(&ends.pd, borrowed(fake.malloc(64), 64), access()).unwrap();
    let refused = foreign.completed(part).unwrap_err();
    assert_eq!(refused.error(), Error::ForeignSlice);
    let arrived = target.completed(refused.into_inner()).unwrap();
    assert_eq!(fake.seen(va + 64, 4), [0; 4], "not before the flush");
    let visible = other.within(|current| arrived.flush(current, Scope::Owner)).unwrap().unwrap();
    assert_eq!((visible.address(), fake.seen(visible.address(), 4)), (va + 64, vec![9; 4]));
    // Sent on, it is waited for as any other.
    let part = visible.into_outbound().synchronize(&mut stream).unwrap().into_slice();
    let (_host, into) = ends.pd.register(vec![0u8; LEN]).unwrap();
    ends.b.post_recv(into, Token(2)).unwrap();
    ends.a.post(ends.to_b.send(part), Token(3)).unwrap();
    let Event::Received(mut message) = ends.at_b() else { panic!("not received") };
    assert_eq!(message.buffers.take_slice().unwrap()[..LEN - 64], [9; LEN - 64]);
}
