//! R29: nor is one required of a device: the build ends where the token would be made.

use efa_core::qp::{Srd, ops};
use efa_core::soft::SoftDevice;
use efa_core::{Context, Error, Granted};

fn required(ctx: &Context<SoftDevice>) -> Result<Granted<Srd<{ ops::SEND | 0b0100_0000 }>>, Error> {
    ctx.require()
}

fn main() {
    let _: fn(&Context<SoftDevice>) -> Result<_, Error> = required;
}
