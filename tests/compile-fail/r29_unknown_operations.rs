//! R29: a kind with a bit that is no operation of EFA's has no needs that a device could meet.

use efa_core::qp::Srd;
use efa_core::{Caps, Requirement};

const NEEDS: Caps = <Srd<0b0010_0000> as Requirement>::NEEDS;

fn main() {}
