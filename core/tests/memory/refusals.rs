//! R34: what the device does not let go of.

use efa_core::memory::RemoteWrite;
use efa_core::qp::QpState;
use efa_core::soft::{Profile, SoftDevice, Storage};
use efa_core::work::Event;
use efa_core::{Error, Leaks, Token, Verb};

use crate::common::{config, required, slice_of, wait};
use crate::{Counted, Two, counted};

#[test]
fn r34_a_queue_pair_that_cannot_be_destroyed_is_leaked_and_counted_and_frees_nothing() {
    static DEVICE: Storage<2, 16, 8> = Storage::new();
    let Two { mut a, mut b, to_a: _to_a, to_b, pd, ctx } =
        Two::on(DEVICE.start(config(Profile::RDMA).fail_destroy(1)).unwrap());
    let (region, target, drops) = counted(&pd);
    b.post_recv(target, Token(1)).unwrap();
    drop(b);
    assert_eq!(ctx.leaks().queue_pairs(), 1);
    drop(region);
    assert_eq!(Counted::drops(drops), 0);
    // It is alive at the device.
    a.post(to_b.send_inline(b"still there"), Token(2)).unwrap();
    assert!(matches!(wait(&mut a), Event::Sent(_)));
    drop(a);
    assert_eq!((ctx.leaks().queue_pairs(), Counted::drops(drops)), (1, 0));
}

#[test]
fn r34_what_is_leaked_is_counted_by_what_it_is() {
    let leaks = Leaks::new();
    leaks.count_object();
    leaks.count_object();
    leaks.count_region();
    assert_eq!((leaks.queue_pairs(), leaks.regions(), leaks.objects()), (0, 1, 2));
}

#[test]
fn r34_close_and_shut_down_give_the_queue_pair_back_when_the_device_refuses() {
    let mut two = Two::on(SoftDevice::new(config(Profile::RDMA).fail_destroy(2)));
    let (region, target, drops) = counted(&two.pd);
    two.b.post_recv(target, Token(1)).unwrap();
    let refused = two.b.close().unwrap_err();
    assert_eq!(refused.error(), Error::Device { verb: Verb::DestroyQp, errno: 5 });
    assert!(refused.to_string().contains("EIO"), "{refused}");
    let mut b = refused.into_inner();
    two.a.post(two.to_b.send_inline(b"usable"), Token(2)).unwrap();
    let event = wait(&mut b);
    let target = slice_of(event);
    assert_eq!(&target[..6], b"usable");
    b.post_recv(target, Token(3)).unwrap();

    let mut events = Vec::new();
    let refused = b.shut_down(|| true, |event| events.push(event)).unwrap_err();
    let qp = refused.into_inner();
    assert_eq!((qp.state(), events.len()), (QpState::Err, 1), "what was flushed is told, whatever comes after");
    let err = qp.into_err().unwrap();
    let report = err.shut_down(|| true, |event| events.push(event)).unwrap();
    assert_eq!((report.completed, report.reclaimed, events.len()), (0, 0, 1));
    let target = slice_of(events.pop().unwrap());
    assert_eq!(two.ctx.leaks().queue_pairs(), 0);
    drop(region.close(target).unwrap());
    assert_eq!(Counted::drops(drops), 1);
}

#[test]
fn r34_memory_that_cannot_be_deregistered_comes_back_on_close_and_is_leaked_on_drop() {
    static DEVICE: Storage<2, 16, 8> = Storage::new();
    let Two { a, b, to_a, to_b, pd, ctx } = Two::on(DEVICE.start(config(Profile::RDMA).fail_deregister(4)).unwrap());
    // Closing: both back, and again, and then done.
    let (region, whole, closed) = counted(&pd);
    let refused = region.close(whole).unwrap_err();
    assert_eq!(refused.error(), Error::Device { verb: Verb::DeregMr, errno: 5 });
    let (region, mut whole) = refused.into_inner();
    whole.fill(1);
    // Revoking likewise.
    let (memory, revoked) = Counted::new();
    let exposed = pd.expose(memory, required::<_, RemoteWrite>(&ctx)).unwrap();
    let exposed = exposed.revoke().unwrap_err().into_inner();
    exposed.copy_in(0, b"usable").unwrap();
    // Dropping the last handle, whichever it is, leaks.
    let (dropped_region, slice, dropped) = counted(&pd);
    drop(dropped_region);
    drop(slice);
    assert_eq!(ctx.leaks().regions(), 1, "what somebody still has is no leak");
    let (memory, dropped_exposed) = Counted::new();
    drop(pd.expose(memory, required::<_, RemoteWrite>(&ctx)).unwrap());
    assert_eq!(ctx.leaks().regions(), 2);
    assert_eq!((Counted::drops(dropped), Counted::drops(dropped_exposed)), (0, 0));

    assert_eq!(region.close(whole).unwrap().bytes, [1; 64]);
    assert_eq!(&exposed.revoke().unwrap().bytes[..6], b"usable");
    assert_eq!((Counted::drops(closed), Counted::drops(revoked)), (1, 1));
    drop((a, b, to_a, to_b, pd));
    assert_eq!((Counted::drops(dropped), Counted::drops(dropped_exposed)), (0, 0));
}
