//! Slices, regions, pools and owners.

use std::ptr::NonNull;

use efa_core::memory::{
    Arena, BorrowedMemory, DmaBuf, PageSize, Pages, Pool, RegisterOptions, RemoteWrite, Slice, Visible,
};
use efa_core::soft::{Profile, SoftDevice};
use efa_core::work::Event;
use efa_core::{Context, Error, Limit, Limits, Token};

use crate::common::{LIMITS, config, pair, required, slice, slice_of, wait, zeros};
use crate::{Counted, Two, counted};

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
fn a_buffer_that_comes_back_tells_how_long_it_is() {
    let (mut a, _b) = pair();
    for bytes in [&b""[..], b"12345"] {
        let (_region, whole) = slice(&a.pd, b"12345");
        let (part, _rest) = whole.split_at(bytes.len()).unwrap();
        let mut batch = a.endpoint.batch();
        batch.push(a.peer.send(part), Token(1)).unwrap();
        let mut back = None;
        batch.abort(|_, buffers| back = Some(buffers));
        let buffers = back.unwrap();
        assert_eq!((buffers.len(), buffers.is_empty(), buffers.bytes()), (1, false, bytes.len()));
        for buffer in buffers {
            assert_eq!((buffer.len(), buffer.is_empty()), (bytes.len(), bytes.is_empty()));
        }
    }
}

#[test]
fn of_two_slices_that_come_back_the_first_is_taken_and_the_second_returns_to_its_region() {
    let (mut a, _b) = pair();
    let (first_region, first) = slice(&a.pd, b"first");
    let (second_region, second) = slice(&a.pd, b"the second");
    let mut batch = a.endpoint.batch();
    batch.push(a.peer.send([first, second]), Token(1)).unwrap();
    let mut back = None;
    batch.abort(|_, buffers| back = buffers.into_slice());
    let first = back.unwrap();
    assert_eq!(&first[..], b"first");
    assert!(!first_region.is_empty() && !second_region.is_empty());
    assert_eq!(first_region.close(first).unwrap(), b"first");
    drop(second_region);
}

#[test]
fn a_region_closes_only_with_all_of_it_and_gives_both_back_otherwise() {
    let two = Two::new();
    let (region, whole, drops) = counted(&two.pd);
    let (_other_region, other) = slice(&two.pd, &[0; 64]);
    let (part, rest) = whole.split_at(32).unwrap();
    assert_eq!((region.has(&rest), region.has(&other)), (true, false));
    assert_eq!((part.offset(), rest.offset()), (0, 32));
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
    fn round_trip<M: DmaBuf<View = Visible>>(two: &mut Two, memory: M, len: usize) -> M {
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
    let mut pages = Pages::new(1, PageSize::Base).unwrap();
    pages[4095] = 7;
    assert_eq!(round_trip(two, pages, 4096)[4095], 7);
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

/// `tests/run aarch64` looks for the line that this prints, past libtest's capture.
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
#[test]
fn pages_are_the_devices_whatever_size_the_systems_have() {
    use std::io::Write;
    let auxv = std::fs::read("/proc/self/auxv").unwrap();
    let mut pairs = auxv.chunks_exact(16).map(|pair| {
        let (key, value) = pair.split_at(8);
        [key, value].map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
    });
    let [_, system] = pairs.find(|[key, _]| *key == 6).expect("AT_PAGESZ");
    writeln!(std::io::stdout().lock(), "\nthe system's pages have {system} bytes").unwrap();
    for (len, whole) in [(1, 4096), (4096, 4096), (4097, 8192), (65_537, 69_632)] {
        let pages = Pages::new(len, PageSize::Base).unwrap();
        assert_eq!((pages.len(), pages.as_ptr().addr() % PageSize::Base.bytes()), (whole, 0));
        assert!(pages.iter().all(|byte| *byte == 0));
    }
}
