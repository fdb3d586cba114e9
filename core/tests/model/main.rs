//! Random programs over a hostile device, against a simple model of what SRD promises.
//!
//! `PROPTEST_CASES` says how many: each takes a millisecond, and a minute under Miri.

mod program;
mod strategy;

use program::run;
use proptest::prelude::*;
use strategy::{setups, steps};

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_shrink_time: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_a_program_does_on_whatever_device_comes_to_what_srd_allows(setup in setups(), steps in steps()) {
        run(setup, steps);
    }
}

/// A model that nothing comes to finds nothing.
#[cfg(not(miri))]
#[test]
fn random_programs_come_to_everything() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    const EXPECTED: [&str; 46] = [
        "a SEND done",
        "a bad remote address",
        "a batch aborted",
        "a batch dropped",
        "a batch forgotten",
        "a batch submitted",
        "a call that the device refused",
        "a device died",
        "a device plugged",
        "a drain",
        "a flush",
        "a frozen slice sent",
        "a list of receives",
        "a long inline SEND",
        "a message received",
        "a message too long",
        "a part of exposed memory sent",
        "a peer gone",
        "a pool",
        "a queue pair closed",
        "a queue pair dropped",
        "a queue pair failed",
        "a queue pair forgotten",
        "a read done",
        "a read of a corrupted window",
        "a receive of two buffers",
        "a receive too short",
        "a region closed",
        "a region leaked",
        "a request reclaimed",
        "a restart",
        "a slice in use not thawed",
        "a slice thawed",
        "a stranger resolved",
        "a write done",
        "a write in parts",
        "a write with immediate received",
        "an event's buffers forgotten",
        "an inline write",
        "an operation refused",
        "an operation without its address handle",
        "an unreachable peer",
        "an unresponsive peer",
        "memory in use not revoked",
        "memory revoked",
        "no receive",
    ];
    let mut runner = TestRunner::deterministic();
    let mut reached = program::Reached::new();
    for _ in 0..4000 {
        let (setup, steps) = (setups(), steps()).new_tree(&mut runner).unwrap().current();
        reached.extend(run(setup, steps));
    }
    let missed: Vec<_> = EXPECTED.iter().filter(|what| !reached.contains(*what)).collect();
    assert!(missed.is_empty(), "{missed:?} of {reached:?}");
}
