//! Programs and devices at random, which shrink to short ones and harmless ones.

use efa_core::Verb;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

use crate::program::{End, Fate, NICS, NODES, Setup, Step, Thing};

fn node() -> impl Strategy<Value = u8> {
    0..NODES as u8
}

/// Off more often than not.
fn seldom<S: Strategy<Value = T> + 'static, T: Clone + std::fmt::Debug + 'static>(off: T, on: S) -> BoxedStrategy<T> {
    prop_oneof![2 => Just(off), 1 => on].boxed()
}

/// A device, and what it does wrong.
pub(crate) fn setups() -> impl Strategy<Value = Setup> {
    // Those of which Miri would find the leak that they make, on purpose, are for others.
    let verbs = [
        (Verb::CreateQp, 8u8),
        (Verb::ModifyQp, 24),
        (Verb::CreateCq, 16),
        (Verb::RegMr, 16),
        (Verb::CreateAh, 24),
        (Verb::DestroyQp, 5),
        (Verb::DeregMr, 8),
    ];
    let verbs = if cfg!(miri) { &verbs[..5] } else { &verbs[..] };
    let verb = proptest::sample::select(verbs.to_vec()).prop_flat_map(|(verb, calls)| (Just(verb), 1..calls));
    let wire = (
        seldom(0u8, 1..12u8),
        seldom((0u16, 0u8), (prop_oneof![Just(100u16), Just(400)], 0..6u8)),
        seldom(0u8, 1..9u8),
        seldom(0u8, 1..5u8),
        weighted(0.3, (1..12u8, prop_oneof![Just(2u8), Just(3), Just(8), Just(12)])),
    );
    let device = (
        weighted(0.3, verb),
        seldom(0u8, 1..9u8),
        seldom(0u8, 1..5u8),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        weighted(0.3, 0..40u8),
        any::<bool>(),
    );
    let wide = (any::<bool>(), any::<bool>());
    (any::<u64>(), any::<bool>(), wire, device, 0..8u8, wide).prop_map(|(seed, shuffle, wire, device, impatient, wide)| {
        let (piece, loss, delay, rnr, fail_nth) = wire;
        let (fail_verb, unknown_senders, stale, strict_overruns, silent_death, reuse_numbers, near_wrap, one_queue) =
            device;
        Setup {
            seed,
            shuffle,
            piece,
            loss,
            delay,
            rnr,
            fail_nth,
            fail_verb,
            unknown_senders,
            stale,
            // What haunts a queue takes its room.
            strict_overruns: strict_overruns && stale == 0,
            silent_death,
            reuse_numbers,
            near_wrap,
            one_queue,
            wide: wide.0,
            req_id_64: wide.1,
            impatient,
        }
    })
}

/// A program.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let two = || (node(), node());
    let fate = prop_oneof![6 => Just(Fate::Keep), 1 => Just(Fate::Drop), 1 => Just(Fate::Forget)];
    let end = prop_oneof![2 => Just(End::Submit), 1 => Just(End::Abort), 1 => Just(End::Drop), 1 => Just(End::Forget)];
    let thing = prop_oneof![
        Just(Thing::Slice),
        Just(Thing::Frozen),
        Just(Thing::Region),
        Just(Thing::Exposed),
        node().prop_map(Thing::Peer),
        Just(Thing::QueuePair),
    ];
    let posts = prop_oneof![
        3 => (two(), any::<bool>(), any::<bool>())
            .prop_map(|((node, other), imm, halves)| Step::Send { node, other, imm, halves }),
        1 => (two(), any::<u8>()).prop_map(|((node, other), len)| Step::SendFrozen { node, other, len }),
        1 => two().prop_map(|(node, other)| Step::SendMixed { node, other }),
        1 => (two(), any::<u8>()).prop_map(|((node, other), at)| Step::SendExposed { node, other, at }),
        2 => (two(), 0..81u8, any::<bool>())
            .prop_map(|((node, other), len, imm)| Step::SendInline { node, other, len, imm }),
        4 => (two(), 0..80u8, any::<bool>()).prop_map(|((node, other), at, imm)| Step::Write { node, other, at, imm }),
        1 => (two(), 0..33u8, 0..80u8, any::<bool>())
            .prop_map(|((node, other), len, at, imm)| Step::WriteInline { node, other, len, at, imm }),
        3 => (two(), 0..80u8).prop_map(|((node, other), at)| Step::Read { node, other, at }),
        1 => (two(), 0..20u8).prop_map(|((node, other), chunk)| Step::Split { node, other, chunk }),
        2 => (two(), 1..6u8, end).prop_map(|((node, other), count, end)| Step::Batch { node, other, count, end }),
        4 => (node(), any::<bool>()).prop_map(|(node, halves)| Step::Recv { node, halves }),
        2 => (node(), 1..6u8).prop_map(|(node, count)| Step::RecvList { node, count }),
    ];
    let polls = prop_oneof![
        2 => (node(), 1..8u8, fate).prop_map(|(node, count, fate)| Step::Poll { node, count, fate }),
        3 => (1..12u8).prop_map(|count| Step::PollAll { count }),
    ];
    let memory = prop_oneof![
        4 => node().prop_map(|node| Step::Expose { node }),
        1 => node().prop_map(|node| Step::Revoke { node }),
        1 => (node(), any::<u8>(), any::<u8>()).prop_map(|(node, at, len)| Step::CopyIn { node, at, len }),
        1 => node().prop_map(|node| Step::CopyOut { node }),
        1 => (node(), any::<u8>()).prop_map(|(node, at)| Step::Word { node, at }),
        2 => node().prop_map(|node| Step::Freeze { node }),
        1 => (node(), any::<bool>()).prop_map(|(node, copy)| Step::Thaw { node, copy }),
        1 => (node(), any::<u8>(), any::<bool>())
            .prop_map(|(node, size, backwards)| Step::Pool { node, size, backwards }),
        1 => node().prop_map(|node| Step::CloseRegion { node }),
    ];
    let lives = prop_oneof![
        2 => (node(), thing, any::<bool>()).prop_map(|(node, thing, forget)| Step::Lose { node, thing, forget }),
        2 => two().prop_map(|(node, other)| Step::Introduce { node, other }),
        1 => (two(), any::<u8>(), 0..8u8).prop_map(|((node, other), at, bit)| Step::Corrupt { node, other, at, bit }),
        1 => node().prop_map(|node| Step::Drain { node }),
        1 => node().prop_map(|node| Step::Error { node }),
        2 => node().prop_map(|node| Step::Reset { node }),
        1 => node().prop_map(|node| Step::Close { node }),
        2 => (node(), 0..64u8).prop_map(|(node, polls)| Step::ShutDown { node, polls }),
        1 => (0..NICS as u8).prop_map(|nic| Step::Die { nic }),
        2 => (0..NICS as u8, any::<bool>()).prop_map(|(nic, up)| Step::Link { nic, up }),
    ];
    let step = prop_oneof![12 => posts, 6 => polls, 3 => memory, 3 => lives];
    vec(step, 1..if cfg!(miri) { 24 } else { 96 })
}
