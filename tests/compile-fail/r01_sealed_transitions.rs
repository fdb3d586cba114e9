//! R01: no transition is added, neither from nor to a type of one's own. Apart from the other sealed traits, since
//! one misplaced `impl` of a trait keeps the compiler from looking at the next.

use efa_core::qp::{MovesTo, Reset, Rts};

struct Mine;

impl MovesTo<Rts> for Mine {}
impl MovesTo<Mine> for Reset {}

fn main() {}
