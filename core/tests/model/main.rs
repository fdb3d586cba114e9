//! Random programs over a hostile device, against a simple model of what SRD promises.
//!
//! `PROPTEST_CASES` says how many: each takes a millisecond, and a minute under Miri.

mod program;
mod strategy;

use program::{Reached, World};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use strategy::{setups, steps};

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_shrink_time: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_a_program_does_on_whatever_device_comes_to_what_srd_allows(setup in setups(), steps in steps()) {
        World::run(setup, steps);
    }
}

/// A model that nothing comes to finds nothing.
#[test]
#[cfg_attr(miri, ignore = "it is about many programs")]
fn random_programs_come_to_everything() {
    let mut runner = TestRunner::deterministic();
    let mut reached = Reached::new();
    for _ in 0..4000 {
        let (setup, steps) = (setups(), steps()).new_tree(&mut runner).unwrap().current();
        reached.extend(World::run(setup, steps));
    }
    println!("{reached:#?}");
}
