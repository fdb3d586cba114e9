//! Whatever is dropped, forgotten or panics, memory is freed once, and not too early.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use efa_core::memory::{Arena, DmaBuf, Exposed, Pool, RawParts, RemoteRead, RemoteReadWrite, Visible};
use efa_core::qp::{Depth, Srd};
use efa_core::soft::{Profile, Storage};
use efa_core::work::Event;
use efa_core::{Error, Token};

use crate::common::{config, required, wait};
use crate::{Counted, Two, counted};

#[test]
fn h30_whatever_is_dropped_first_the_memory_is_freed_once_and_only_when_the_device_is_done() {
    let orders = permutations(5);
    for in_flight in [false, true] {
        for order in orders.iter().step_by(if cfg!(miri) { 23 } else { 1 }) {
            let Two { a, b, to_a, to_b, pd, ctx } = Two::new();
            let (mut a, mut b) = (a, b);
            let leaks = ctx.clone();
            let drops = std::sync::Arc::new(());
            let (region, whole) = pd.register(Shared::new(&drops)).unwrap();
            let (first, second) = whole.split_at(32).unwrap();
            let held = if in_flight {
                b.post_recv(first, Token(1)).unwrap();
                a.post(to_b.send(second), Token(2)).unwrap();
                None
            } else {
                Some((first, second))
            };
            let mut things: Vec<Option<Box<dyn std::any::Any>>> = vec![
                Some(Box::new(region)),
                Some(Box::new((a, to_b))),
                Some(Box::new((b, to_a))),
                Some(Box::new(held)),
                Some(Box::new((pd, ctx))),
            ];
            for index in order {
                things[*index] = None;
            }
            assert_eq!(std::sync::Arc::strong_count(&drops), 1, "{order:?}, in flight: {in_flight}");
            assert_eq!((leaks.leaks().queue_pairs(), leaks.leaks().regions()), (0, 0));
        }
    }
}

/// Memory on the heap with a counted thing in front of it.
struct Shared {
    bytes: Box<[u8]>,
    counted: std::sync::Arc<()>,
}

impl Shared {
    fn new(counted: &std::sync::Arc<()>) -> Self {
        Self { bytes: vec![0; 64].into(), counted: counted.clone() }
    }
}

/// What stands before the bytes while they are raw parts.
#[repr(C, align(16))]
struct Front(std::sync::Arc<()>, [u8; 64]);

// SAFETY: the bytes are those of a box that is leaked until `from_raw`.
unsafe impl DmaBuf for Shared {
    type View = Visible;

    fn into_raw(self) -> RawParts {
        let mut front = Box::new(Front(self.counted, [0; 64]));
        front.1.copy_from_slice(&self.bytes);
        let front = NonNull::from(Box::leak(front));
        let offset = mem::offset_of!(Front, 1);
        // SAFETY: inside the box.
        RawParts { base: unsafe { front.cast::<u8>().add(offset) }, len: 64, extra: offset }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        // SAFETY: the front of the bytes, by the caller's word.
        let front = unsafe { parts.base.sub(parts.extra) }.cast::<Front>();
        // SAFETY: leaked by `into_raw`, and rebuilt once.
        let front = unsafe { Box::from_raw(front.as_ptr()) };
        Self { bytes: front.1.to_vec().into(), counted: front.0 }
    }
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(count - 1) {
        for place in 0..count {
            let mut order = shorter.clone();
            order.insert(place, count - 1);
            all.push(order);
        }
    }
    all
}

#[test]
fn h30_a_forgotten_endpoint_keeps_its_buffers_and_the_device_may_still_write_them() {
    static DEVICE: Storage<2, 16, 8> = Storage::new();
    let Two { mut a, mut b, to_a: _to_a, to_b, pd, ctx } = Two::on(DEVICE.start(config(Profile::RDMA)).unwrap());
    let (region, target, drops) = counted(&pd);
    b.post_recv(target, Token(1)).unwrap();
    mem::forget(b);
    drop(region);
    assert_eq!(Counted::drops(drops), 0, "the device may still write it");
    a.post(to_b.send_inline(b"into the forgotten"), Token(2)).unwrap();
    assert!(matches!(wait(&mut a), Event::Sent(_)));
    drop((a, to_b, pd));
    assert_eq!((Counted::drops(drops), ctx.leaks().regions()), (0, 0));
}

#[test]
fn forgetting_everything_is_sound_and_frees_nothing() {
    static DEVICE: Storage<2, 16, 8> = Storage::new();
    static PAGE: Arena<128> = Arena::new();
    let Two { mut a, mut b, to_a, to_b, pd, ctx } = Two::on(DEVICE.start(config(Profile::RDMA)).unwrap());
    let (region, whole, drops) = counted(&pd);
    let exposed = pd.expose(PAGE.take().unwrap(), required::<_, RemoteReadWrite>(&ctx)).unwrap();
    let window = to_b.window::<RemoteReadWrite>(exposed.grant(&b).unwrap().as_bytes()).unwrap();
    let (first, rest) = whole.split_at(16).unwrap();
    let (second, rest) = rest.split_at(16).unwrap();
    let (third, rest) = rest.split_at(8).unwrap();
    b.post_recv(first, Token(1)).unwrap();
    a.post(to_b.send(second), Token(2)).unwrap();
    a.post(to_b.write(exposed.part(0..8).unwrap(), window.range(64..72).unwrap()), Token(3)).unwrap();
    mem::forget(wait(&mut b));
    mem::forget(wait(&mut a));
    let frozen = third.freeze().unwrap();
    mem::forget(frozen.clone());
    let refused = frozen.thaw().unwrap_err();
    assert_eq!(refused.error(), Error::RegionInUse { handles: 1 });
    mem::forget(refused);
    let (pool, rest) = Pool::<2>::new(rest, 8).unwrap();
    let mut batch = a.batch();
    batch.push(to_b.send(rest.unwrap()), Token(4)).unwrap();
    mem::forget(batch);
    mem::forget((region, pool, exposed, to_a, to_b, pd));
    mem::forget((a, b));
    assert_eq!((Counted::drops(drops), ctx.leaks().queue_pairs(), ctx.leaks().regions()), (0, 0, 0));
    // The storage is used up by what was forgotten, and says so.
    let pd = ctx.alloc_pd().unwrap();
    let error = pd.endpoint(required::<_, Srd>(&ctx), Depth::new(1, 1)).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
}

#[test]
fn a_sink_that_panics_leaves_the_rest_to_be_released_with_the_queue_pair() {
    let Two { mut a, pd, .. } = Two::new();
    let numbers = [1, 2, 3].map(|token| {
        let (_, slice, number) = counted(&pd);
        a.post_recv(slice, Token(token)).unwrap();
        number
    });
    let result = catch_unwind(AssertUnwindSafe(|| a.shut_down(|| true, |event| panic!("at {:?}", event.token()))));
    assert!(result.is_err());
    assert_eq!(numbers.map(Counted::drops), [1; 3]);
}

#[test]
fn memory_is_freed_by_whoever_drops_the_last_handle_events_and_parts_included() {
    let mut two = Two::new();
    let (region, target, drops) = counted(&two.pd);
    two.b.post_recv(target, Token(1)).unwrap();
    two.a.post(two.to_b.send_inline(b"x"), Token(2)).unwrap();
    let event = wait(&mut two.b);
    drop((region, two));
    assert_eq!(Counted::drops(drops), 0);
    drop(event);
    assert_eq!(Counted::drops(drops), 1);

    let two = Two::new();
    let (memory, drops) = Counted::new();
    let exposed: Exposed<Counted, RemoteRead> = two.pd.expose(memory, required(&two.ctx)).unwrap();
    let part = exposed.part(0..8).unwrap();
    drop((exposed, two));
    assert_eq!((part.len(), Counted::drops(drops)), (8, 0));
    drop(part);
    assert_eq!(Counted::drops(drops), 1);
}
