//! R15: what can be posted is this crate's alone; memory of one's own comes in by `DmaBuf`, which is unsafe.

use efa_core::memory::{DmaBuf, RawParts, Visible};
use efa_core::qp::Srd;
use efa_core::work::{OneBuffer, Operation, RecvTarget, SendSource, WritableBuffer};

struct Mine;

impl OneBuffer for Mine {}
impl WritableBuffer for Mine {}
impl SendSource for Mine {}
impl RecvTarget for Mine {}
impl Operation<Srd> for Mine {}

impl DmaBuf for Mine {
    type View = Visible;

    fn into_raw(self) -> RawParts {
        loop {}
    }

    unsafe fn from_raw(_: RawParts) -> Self {
        Self
    }
}

fn main() {}
