//! Memory: whose it is, when it comes back, and what happens where the device does not let go.
//!
//! What is leaked on purpose lies in statics, where Miri's leak check, which is on, does not mind it.

mod common;

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{LIMITS, config, connect, page, pair, required, slice, slice_of, wait, wait_failed, zeros};
use efa_core::memory::{
    Arena, BorrowedMemory, Buffer, DmaBuf, Exposed, FROZEN_RANGES, PageSize, Pages, Pool, RawParts, Region,
    RegisterOptions, RemoteRead, RemoteReadWrite, RemoteWrite, Slice,
};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, QpState, Srd};
use efa_core::ring::Word;
use efa_core::soft::{Profile, SoftDevice, Storage};
use efa_core::status::CompletionStatus;
use efa_core::work::Event;
use efa_core::{Context, Error, Limit, Limits, ProtectionDomain, Provider, Token, Verb};

const WORD: usize = size_of::<Word>();
const ARENAS: usize = 128;
static MEMORY: [Arena<64>; ARENAS] = [const { Arena::new() }; ARENAS];
static DROPS: [AtomicUsize; ARENAS] = [const { AtomicUsize::new(0) }; ARENAS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// 64 bytes of static memory that count how often their owner was dropped.
#[derive(Debug)]
struct Counted {
    bytes: &'static mut [u8],
    number: usize,
}

impl Counted {
    fn new() -> (Self, usize) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        (Self { bytes: MEMORY[number].take().unwrap(), number }, number)
    }

    fn drops(number: usize) -> usize {
        DROPS[number].load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        DROPS[self.number].fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the bytes are static and only this owner's; the parts carry the number.
unsafe impl DmaBuf for Counted {
    fn into_raw(self) -> RawParts {
        let mut this = mem::ManuallyDrop::new(self);
        RawParts { base: NonNull::from(&mut *this.bytes).cast(), len: 64, extra: this.number }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        // SAFETY: from `into_raw`, by the caller's word.
        let bytes = unsafe { std::slice::from_raw_parts_mut(parts.base.as_ptr(), parts.len) };
        Self { bytes, number: parts.extra }
    }
}

/// Two endpoints of one domain.
struct Two {
    a: Endpoint<SoftDevice>,
    b: Endpoint<SoftDevice>,
    to_a: Peer<Mutual>,
    to_b: Peer<Mutual>,
    pd: ProtectionDomain<SoftDevice>,
    ctx: Context<SoftDevice>,
}

impl Two {
    fn on(device: SoftDevice) -> Self {
        let ctx = Context::open(device);
        let pd = ctx.alloc_pd().unwrap();
        let [a, b] = [(); 2].map(|()| pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap());
        let (to_b, to_a) = connect(&a, &b);
        Self { a, b, to_a, to_b, pd, ctx }
    }

    fn new() -> Self {
        Self::on(SoftDevice::new(config(Profile::RDMA)))
    }
}

/// A region of counted memory, all of it, and its number.
fn counted<P: Provider>(pd: &ProtectionDomain<P>) -> (Region<Counted>, Slice, usize) {
    let (memory, number) = Counted::new();
    let (region, slice) = pd.register(memory).unwrap();
    (region, slice, number)
}

#[test]
fn slices_split_and_rejoin_in_their_order_and_in_no_other() {
    let two = Two::new();
    let (region, whole) = slice(&two.pd, b"abcdefgh");
    let (left, right) = whole.split_at(3).unwrap();
    assert_eq!((&left[..], &right[..]), (&b"abc"[..], &b"defgh"[..]));
    let refused = left.split_at(4).unwrap_err();
    assert_eq!(refused.error(), Error::OutOfBounds { offset: 4, len: 0, within: 3 });
    let (left, none) = refused.into_inner().split_at(3).unwrap();
    assert!(none.is_empty() && left.is_followed_by(&none) && none.is_followed_by(&right));
    let refused = right.unsplit(left).unwrap_err();
    assert_eq!(refused.error(), Error::NotAdjacent);
    let (right, left) = refused.into_inner();
    let (_other_region, other) = slice(&two.pd, b"other");
    let (left, other) = left.unsplit(other).unwrap_err().into_inner();
    assert_eq!(&other[..], b"other");
    let mut whole = left.unsplit(none).unwrap().unsplit(right).unwrap();
    whole[7] = b'H';
    assert_eq!(region.close(whole).unwrap(), b"abcdefgH");
}

#[test]
fn a_region_closes_only_with_all_of_it_and_gives_both_back_otherwise() {
    let two = Two::new();
    let (region, whole, drops) = counted(&two.pd);
    let (_other_region, other) = slice(&two.pd, &[0; 64]);
    let (part, rest) = whole.split_at(32).unwrap();
    let refused = region.close(part).unwrap_err();
    assert_eq!(refused.error(), Error::NotWhole { has: 32, needs: 64 });
    let (region, part) = refused.into_inner();
    let (region, other) = region.close(other).unwrap_err().into_inner();
    let (rest, empty) = rest.split_at(32).unwrap();
    let whole = part.unsplit(rest).unwrap();
    let refused = region.close(whole).unwrap_err();
    assert_eq!(refused.error(), Error::RegionInUse { handles: 1 });
    drop(empty);
    let (region, whole) = refused.into_inner();
    assert_eq!(Counted::drops(drops), 0);
    let memory = region.close(whole).unwrap();
    assert_eq!((memory.number, Counted::drops(drops)), (drops, 0));
    drop((memory, other));
    assert_eq!(Counted::drops(drops), 1);
}

#[test]
fn a_frozen_slice_is_sent_to_many_at_once_and_thaws_after_the_last() {
    let mut two = Two::new();
    let (region, whole) = slice(&two.pd, b"to all of you");
    let frozen = whole.freeze().unwrap();
    for token in 0..3 {
        two.b.post_recv(zeros(&two.pd, 16), Token(token)).unwrap();
        two.a.post(two.to_b.send(frozen.clone()), Token(token)).unwrap();
    }
    let part = frozen.part(3..6).unwrap();
    assert_eq!(&part[..], b"all");
    assert!(matches!(frozen.part(3..14), Err(Error::OutOfBounds { .. })));
    let refused = frozen.thaw().unwrap_err();
    assert_eq!(refused.error(), Error::RegionInUse { handles: 4 });
    let frozen = refused.into_inner();
    assert_eq!(&frozen[..], b"to all of you", "readable while in flight");
    for _ in 0..3 {
        assert!(matches!(wait(&mut two.a), Event::Sent(_)));
        let event = wait(&mut two.b);
        assert_eq!(&slice_of(event)[..13], b"to all of you");
    }
    drop(frozen);
    // The last handle, though of a part, thaws all of it.
    let mut whole = part.thaw().unwrap();
    whole[0] = b'T';
    assert_eq!(region.close(whole).unwrap(), b"To all of you");
}

#[test]
fn a_frozen_slice_thaws_in_one_thread_only_when_those_of_others_and_of_operations_are_gone() {
    let (mut a, mut b) = pair();
    for _ in 0..if cfg!(miri) { 4 } else { 500 } {
        let (region, whole) = slice(&a.pd, &[7; 32]);
        let (first, second) = whole.split_at(16).unwrap();
        let mut frozen = first.freeze().unwrap();
        b.endpoint.post_recv(zeros(&b.pd, 32), Token(1)).unwrap();
        a.endpoint.post(a.peer.send((frozen.part(3..9).unwrap(), frozen.clone())), Token(2)).unwrap();
        let part = frozen.part(1..4).unwrap();
        let thawed = std::thread::scope(|scope| {
            scope.spawn(move || assert_eq!(part.clone()[..], [7; 3]));
            for endpoint in [&mut a.endpoint, &mut b.endpoint] {
                scope.spawn(move || {
                    while endpoint.in_flight() > 0 {
                        drop(endpoint.poll());
                        std::thread::yield_now();
                    }
                });
            }
            let thawing = scope.spawn(move || {
                loop {
                    match frozen.thaw() {
                        Ok(mut slice) => {
                            slice.fill(9);
                            return slice;
                        }
                        Err(refused) => frozen = refused.into_inner(),
                    }
                    std::thread::yield_now();
                }
            });
            thawing.join().unwrap()
        });
        let memory = region.close(thawed.unsplit(second).unwrap()).unwrap();
        assert_eq!(memory, [[9; 16], [7; 16]].concat());
    }
}

#[test]
fn frozen_ranges_of_one_region_are_apart_and_run_out_with_the_slice_given_back() {
    let two = Two::new();
    let (region, mut rest) = slice(&two.pd, &[1; 10]);
    let mut frozen = Vec::new();
    for _ in 0..FROZEN_RANGES {
        let (one, more) = rest.split_at(1).unwrap();
        frozen.push(one.freeze().unwrap());
        rest = more;
    }
    let refused = rest.freeze().unwrap_err();
    assert_eq!(refused.error(), Error::Exhausted { what: Limit::FrozenRanges, limit: FROZEN_RANGES as u64 });
    let mut rest = refused.into_inner();
    rest.fill(2);
    frozen.swap(0, 5);
    let again = frozen.pop().unwrap().thaw().unwrap().freeze().unwrap();
    frozen.push(again);
    frozen.swap(0, 5);
    let mut slices = frozen.into_iter().map(|frozen| frozen.thaw().unwrap());
    let mut whole = slices.next().unwrap();
    for slice in slices {
        whole = whole.unsplit(slice).unwrap();
    }
    assert_eq!(region.close(whole.unsplit(rest).unwrap()).unwrap(), [1, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
}

#[test]
fn a_pool_gives_slots_takes_them_back_from_completions_and_becomes_the_slice_again() {
    let mut two = Two::new();
    let (region, whole) = slice(&two.pd, &[0; 100]);
    let (mut pool, rest) = Pool::<3>::new(whole, 30).unwrap();
    let rest = rest.unwrap();
    assert_eq!((pool.slots(), pool.free(), pool.slot_size(), rest.len()), (3, 3, 30, 10));
    let rest = pool.put(rest).unwrap_err().into_inner();
    two.b.post_recv(pool.take().unwrap(), Token(1)).unwrap();
    let mut source = pool.take().unwrap();
    source.fill(7);
    two.a.post(two.to_b.send(source), Token(2)).unwrap();
    let kept = pool.take().unwrap();
    assert!(pool.take().is_none());
    let refused = pool.into_slice().unwrap_err();
    assert_eq!(refused.error(), Error::RegionInUse { handles: 3 });
    let mut pool = refused.into_inner();
    pool.put(kept).unwrap();
    pool.put(slice_of(wait(&mut two.a))).unwrap();
    pool.put(slice_of(wait(&mut two.b))).unwrap();
    let (_region, stranger) = slice(&two.pd, &[0xFF; 30]);
    let refused = pool.put(stranger).unwrap_err();
    assert_eq!(refused.error(), Error::Exhausted { what: Limit::PoolSlots, limit: 3 });
    // A stranger in a slot's place is noticed before the pool is taken apart.
    let own = pool.take().unwrap();
    pool.put(refused.into_inner()).unwrap();
    let refused = pool.into_slice().unwrap_err();
    assert_eq!(refused.error(), Error::NotAdjacent);
    let mut pool = refused.into_inner();
    let slots: Vec<Slice> = (0..3).map(|_| pool.take().unwrap()).collect();
    let (strangers, slots): (Vec<Slice>, Vec<Slice>) = slots.into_iter().partition(|slot| slot[0] == 0xFF);
    assert_eq!(strangers.len(), 1);
    slots.into_iter().chain([own]).for_each(|slot| pool.put(slot).unwrap());
    let whole = pool.into_slice().unwrap().unsplit(rest).unwrap();
    assert_eq!(region.close(whole).unwrap().iter().filter(|byte| **byte == 7).count(), 60);
}

#[test]
fn a_pool_of_nothing_is_refused_with_the_memory() {
    let two = Two::new();
    for (len, size) in [(8, 0), (8, 9)] {
        let refused = Pool::<4>::new(zeros(&two.pd, len), size).unwrap_err();
        assert!(matches!(refused.error(), Error::BelowLimit { what: Limit::PoolBytes, .. }));
        assert_eq!(refused.into_inner().len(), len);
    }
    let (pool, rest) = Pool::<4>::new(zeros(&two.pd, 8), 2).unwrap();
    assert!(rest.is_none());
    assert_eq!(pool.into_slice().unwrap().len(), 8);
}

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

static SINK: Storage<2, 4, 8> = Storage::new();

/// On static storage the next queue pair gets the rings and slots of the last: never while the last still reads them.
#[test]
fn a_queue_pair_made_while_another_hands_back_what_was_in_flight_has_slots_of_its_own() {
    let ctx = Context::open(SINK.start(Profile::RDMA).unwrap());
    let pd = ctx.alloc_pd().unwrap();
    let make = || pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap();
    let (mut old, other) = (make(), make());
    let (_region, whole) = slice(&pd, &[0; 24]);
    let (first, rest) = whole.split_at(8).unwrap();
    let (second, third) = rest.split_at(8).unwrap();
    old.post_recv(first, Token(1)).unwrap();
    old.post_recv(second, Token(2)).unwrap();
    drop(other);
    let (mut third, mut new, mut tokens) = (Some(third), Vec::new(), Vec::new());
    old.shut_down(
        || true,
        |event| {
            if let Some(third) = third.take() {
                let mut qp = make();
                qp.post_recv(third, Token(3)).unwrap();
                new.push(qp);
                // The old one's place is still its own.
                pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap_err();
            }
            tokens.push(event.token());
        },
    )
    .unwrap();
    assert_eq!(tokens, [Some(Token(1)), Some(Token(2))]);
    assert_eq!(new[0].in_flight(), 1);
    drop(make());
}

static RACE: Storage<2, 4, 16> = Storage::new();

#[test]
fn threads_that_make_and_drop_queue_pairs_on_static_storage_never_share_slots() {
    let ctx = Context::open(RACE.start(Profile::RDMA).unwrap());
    let rounds = if cfg!(miri) { 12 } else { 5_000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let pd = ctx.alloc_pd().unwrap();
                for _ in 0..rounds {
                    // Two fit.
                    let Ok(mut qp) = pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)) else { continue };
                    (0..4).for_each(|token| qp.post_recv(zeros(&pd, 8), Token(token)).unwrap());
                }
            });
        }
    });
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

#[test]
fn exposed_memory_is_copied_and_loaded_within_its_bounds_and_by_whole_words() {
    let two = Two::new();
    let memory = page::<_, RemoteWrite>(&two.ctx, &two.pd);
    assert_eq!(memory.len(), 4096);
    let bytes: Vec<u8> = (0..40).collect();
    for offset in 0..2 * WORD {
        for len in [0, 1, WORD - 1, WORD, WORD + 1, 40 - offset] {
            memory.copy_in(0, &[0xAA; 64]).unwrap();
            memory.copy_in(offset, &bytes[..len]).unwrap();
            let mut all = [0; 64];
            memory.copy_out(0, &mut all).unwrap();
            let mut expected = [0xAA; 64];
            expected[offset..offset + len].copy_from_slice(&bytes[..len]);
            assert_eq!(all, expected);
            let mut part = vec![0; len];
            memory.copy_out(offset, &mut part).unwrap();
            assert_eq!(part, &bytes[..len]);
        }
    }
    let bounds = |offset, len| Error::OutOfBounds { offset, len, within: 4096 };
    assert_eq!(memory.copy_in(4095, &[0; 2]).unwrap_err(), bounds(4095, 2));
    assert_eq!(memory.copy_out(usize::MAX, &mut [0]).unwrap_err(), bounds(u64::MAX, 1));
    memory.copy_in(4096, &[]).unwrap();
    // A range that runs backwards is no empty one.
    let (from, to) = (9, 8);
    assert_eq!(memory.part(from..to).unwrap_err(), bounds(9, 0));
    assert_eq!(memory.grant_range(&two.a, from..to).unwrap_err(), bounds(9, 0));

    memory.store(8, Word::MAX - 5).unwrap();
    assert_eq!(memory.load(8).unwrap(), Word::MAX - 5);
    memory.store(4096 - WORD, 1).unwrap();
    assert_eq!(memory.load(4096).unwrap_err(), bounds(4096, WORD as u64));
    for offset in 1..WORD {
        let misaligned = Error::Misaligned { address: offset as u64, len: WORD as u64, to: WORD as u64 };
        assert_eq!(memory.load(offset).unwrap_err(), misaligned);
        assert_eq!(memory.store(offset, 0).unwrap_err(), misaligned);
    }
    assert!(memory.part(4000..4097).is_err() && memory.part(0..4096).is_ok());
}

#[test]
fn memory_that_is_not_whole_words_is_not_exposed_and_comes_back() {
    static BYTES: Arena<64> = Arena::new();
    let two = Two::new();
    let token = required::<_, RemoteWrite>(&two.ctx);
    let refused = two.pd.expose(vec![1; 2 * WORD + 1].into_boxed_slice(), token).unwrap_err();
    assert!(matches!(refused.error(), Error::Misaligned { len, .. } if len == 2 * WORD as u64 + 1));
    assert!(refused.to_string().contains("Pages"), "{refused}");
    assert_eq!(refused.into_inner()[..], vec![1; 2 * WORD + 1]);

    let (_, odd) = BYTES.take().unwrap().split_at_mut(1);
    let refused = two.pd.expose(&mut odd[..WORD], token).unwrap_err();
    assert!(matches!(refused.error(), Error::Misaligned { .. }));
    let (region, whole) = two.pd.register(refused.into_inner()).unwrap();
    assert_eq!(region.close(whole).unwrap().len(), WORD, "for local use any alignment will do");
}

#[test]
fn exposed_memory_is_a_source_and_a_target_of_its_own_side() {
    let (mut a, mut b) = pair();
    let (ours, theirs) = (page::<_, RemoteRead>(&a.ctx, &a.pd), page::<_, RemoteReadWrite>(&b.ctx, &b.pd));
    let window = a.peer.window::<RemoteReadWrite>(theirs.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    ours.copy_in(5, b"from exposed").unwrap();
    b.endpoint.post_recv(theirs.part(1..33).unwrap(), Token(1)).unwrap();
    a.endpoint.post(a.peer.send(ours.part(5..17).unwrap()), Token(2)).unwrap();
    let Event::Received(mut message) = wait(&mut b.endpoint) else { panic!() };
    assert!((message.len, message.buffers.take_slice().is_none()) == (12, true));
    let mut bytes = [0; 12];
    theirs.copy_out(1, &mut bytes).unwrap();
    assert_eq!(&bytes, b"from exposed");
    assert!(matches!(wait(&mut a.endpoint), Event::Sent(_)));
    a.endpoint.post(a.peer.read(ours.part(100..112).unwrap(), window.range(1..13).unwrap()), Token(3)).unwrap();
    let Event::Read(mut done) = wait(&mut a.endpoint) else { panic!() };
    assert!(matches!(done.buffers.next(), Some(Buffer::Exposed(part)) if part.len() == 12));
    ours.copy_out(100, &mut bytes).unwrap();
    assert_eq!(&bytes, b"from exposed");
}

#[test]
fn after_revoke_the_peers_next_write_fails_with_7_and_the_memory_is_ours() {
    let (mut a, b) = pair();
    let (memory, drops) = Counted::new();
    let exposed = b.pd.expose(memory, required::<_, RemoteWrite>(&b.ctx)).unwrap();
    let window = a.peer.window::<RemoteWrite>(exposed.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    a.endpoint.post(a.peer.write(slice(&a.pd, b"before").1, window), Token(1)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));

    let part = exposed.part(0..8).unwrap();
    let refused = exposed.revoke().unwrap_err();
    assert_eq!(refused.error(), Error::RegionInUse { handles: 1 });
    drop(part);
    let memory = refused.into_inner().revoke().unwrap();
    assert_eq!(&memory.bytes[..6], b"before");
    a.endpoint.post(a.peer.write(slice(&a.pd, b"after").1, window), Token(2)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert_eq!(failure.status(), Some(CompletionStatus::RemoteBadAddress));
    assert!(failure.to_string().contains("revoked"), "{failure}");
    assert_eq!((&memory.bytes[..6], Counted::drops(drops)), (&b"before"[..], 0));

    // Exposed again it has another key: the old window stays shut.
    let exposed = b.pd.expose(memory, required::<_, RemoteWrite>(&b.ctx)).unwrap();
    a.endpoint.post(a.peer.write(slice(&a.pd, b"stale").1, window), Token(3)).unwrap();
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(CompletionStatus::RemoteBadAddress));
    let window = a.peer.window::<RemoteWrite>(exposed.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    a.endpoint.post(a.peer.write(slice(&a.pd, b"again").1, window), Token(4)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
}

#[test]
fn a_grant_of_a_part_opens_that_part() {
    let (a, b) = pair();
    let memory = page::<_, RemoteReadWrite>(&b.ctx, &b.pd);
    let window = a
        .peer
        .window::<RemoteRead>(memory.grant_range(&b.endpoint, 8..24).unwrap().as_bytes())
        .expect("more rights than asked for will do");
    assert_eq!(window.len(), 16);
    assert!(matches!(memory.grant_range(&b.endpoint, 4090..4097), Err(Error::OutOfBounds { .. })));
}

#[test]
fn relaxed_ordering_is_asked_for_and_changes_nothing_that_completions_say() {
    let (mut a, mut b) = pair();
    let options = RegisterOptions::new().relaxed_ordering();
    assert_ne!(options, RegisterOptions::default());
    let (relaxed, target) = b.pd.register_with(vec![0; 32], options).unwrap();
    let (strict, _slice) = b.pd.register(vec![0; 32]).unwrap();
    assert!(format!("{relaxed:?}").contains("RELAXED_ORDERING"), "{relaxed:?}");
    assert!(!format!("{strict:?}").contains("RELAXED_ORDERING"), "{strict:?}");
    let exposed =
        b.pd.expose_with(Pages::new(1, PageSize::Base).unwrap(), required::<_, RemoteWrite>(&b.ctx), options).unwrap();
    assert!(format!("{exposed:?}").contains("RELAXED_ORDERING"), "{exposed:?}");
    b.endpoint.post_recv(target, Token(1)).unwrap();
    a.endpoint.post(a.peer.send_inline(b"relaxed"), Token(2)).unwrap();
    assert_eq!(&slice_of(wait(&mut b.endpoint))[..7], b"relaxed");
}

#[test]
fn every_owner_comes_back_as_it_was() {
    static ARENA: Arena<48> = Arena::new();
    fn round_trip<M: DmaBuf>(two: &mut Two, memory: M, len: usize) -> M {
        let (region, whole) = two.pd.register(memory).unwrap();
        assert_eq!((region.len(), whole.len()), (len, len));
        let (head, rest) = whole.split_at(48).unwrap();
        two.b.post_recv(head, Token(1)).unwrap();
        two.a.post(two.to_b.send_inline(b"owned"), Token(2)).unwrap();
        assert!(matches!(wait(&mut two.a), Event::Sent(_)));
        let head = slice_of(wait(&mut two.b));
        region.close(head.unsplit(rest).unwrap()).unwrap()
    }
    let two = &mut Two::new();
    let mut vec = Vec::with_capacity(100);
    vec.resize(48, 0);
    let vec = round_trip(two, vec, 48);
    assert_eq!((&vec[..5], vec.len()), (&b"owned"[..], 48));
    assert!(vec.capacity() >= 100);
    assert_eq!(&round_trip(two, vec![0; 48].into_boxed_slice(), 48)[..5], b"owned");
    assert_eq!(&round_trip(two, Pages::new(1, PageSize::Base).unwrap(), 4096)[..5], b"owned");
    if !cfg!(miri) {
        let huge = round_trip(two, Pages::new(1, PageSize::Huge).unwrap(), 2 << 20);
        assert_eq!(huge.as_ptr().addr() % (2 << 20), 0);
    }
    let arena = round_trip(two, ARENA.take().unwrap(), 48);
    assert_eq!((&arena[..5], arena.as_ptr().addr() % 64), (&b"owned"[..], 0));
    assert_eq!(ARENA.take().unwrap_err(), Error::AlreadyTaken);

    let mut borrowed = [0u8; 48];
    // SAFETY: the array outlives the region, which is closed in `round_trip`, and nothing else touches it.
    let memory = unsafe { BorrowedMemory::new(NonNull::from(&mut borrowed).cast(), 48) };
    let _memory = round_trip(two, memory, 48);
    assert_eq!(&borrowed[..5], b"owned");
}

#[test]
fn r36_r37_memory_that_the_device_does_not_take_comes_back_with_the_number() {
    let limits = Limits { max_mr: 2, max_mr_size: 100, ..LIMITS };
    let ctx = Context::open(SoftDevice::new(config(Profile::RDMA).limits(limits)));
    let pd = ctx.alloc_pd().unwrap();
    let refused = pd.register(Vec::new()).unwrap_err();
    assert_eq!(refused.error(), Error::ZeroLength);
    assert!(refused.to_string().contains("R37"), "{refused}");
    assert!(matches!(Pages::new(0, PageSize::Base), Err(Error::ZeroLength)));
    assert!(matches!(Pages::new(usize::MAX, PageSize::Base), Err(Error::OutOfMemory { .. })));
    let refused = pd.register(vec![5; 101]).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::RegionBytes, asked: 101, limit: 100 });
    assert_eq!(refused.into_inner(), [5; 101]);
    let held = [zeros(&pd, 1), zeros(&pd, 100)];
    let refused = pd.register(vec![6; 3]).unwrap_err();
    assert_eq!(refused.error(), Error::Exhausted { what: Limit::MemoryRegions, limit: 2 });
    assert_eq!(refused.into_inner(), [6; 3]);
    drop(held);
    assert_eq!(zeros(&pd, 3).len(), 3);
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
