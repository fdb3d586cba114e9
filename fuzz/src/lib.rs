//! The fuzz bodies: functions of bytes that panic when a property does not hold.
//!
//! libFuzzer calls them in `fuzz_targets/`; `tests/corpus.rs` calls them with the corpus, on stable.
//! With feature `planted` the stub of a device completes some requests twice, and a request that comes again over a link
//! has another number: the corpus must find both.

mod calls;
mod completions;
mod fabric;
mod guest;
mod input;
mod link;
#[allow(dead_code)] // a driver, of which the function's tests use more
#[path = "../../tests/vm/tests/driver/machine.rs"]
mod machine;
#[path = "../../core/tests/model/program/mod.rs"]
mod program;
#[allow(dead_code, unsafe_code)] // a provider, of which core's tests use more
#[path = "../../core/tests/common/puppet.rs"]
mod puppet;
mod requests;
mod wire;

pub use calls::calls;
pub use completions::completions;
pub use fabric::fabric;
pub use guest::guest;
pub use link::link;
pub use requests::requests;
pub use wire::{endpoint, frames};

/// What an input came to do: that a corpus does all of it is tested.
pub type Reached = std::collections::BTreeSet<&'static str>;

/// Of the stub of a device.
const LIMITS: efa_core::Limits = efa_core::soft::Config::LIMITS;
