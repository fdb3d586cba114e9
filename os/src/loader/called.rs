//! Which functions of the table were called: for the test that calls them all.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Mutex;

static CALLED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

pub(super) fn note(name: &'static str) {
    CALLED.lock().unwrap().insert(name);
}

pub(crate) fn all() -> BTreeSet<&'static str> {
    CALLED.lock().unwrap().clone()
}
