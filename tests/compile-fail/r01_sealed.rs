//! R01, R05, R06, R07, R15: states, kinds, features, access types, operations and buffers are this crate's alone.

use efa_core::memory::{AllowsRead, RemoteAccess, RemoteWrite};
use efa_core::peer::{OneWay, ResolvedUs, SendTo};
use efa_core::qp::{CanReceive, CanSend, Err, FeatureSet, HasRead, MovesTo, QpKind, QpState, Reset, Rts, SendOnly, State};
use efa_core::{Caps, Requirement};

#[derive(Clone, Copy)]
struct Mine;

impl State for Mine {
    const STATE: QpState = QpState::Rts;
}

impl MovesTo<Rts> for Reset {}
impl CanSend for Mine {}
impl CanReceive for Err {}

impl Requirement for Mine {
    const NEEDS: Caps = Caps::empty();
}

impl RemoteAccess for Mine {
    const ACCESS: efa_core::flags::Access = efa_core::flags::Access::REMOTE_READ;
}

impl AllowsRead for RemoteWrite {}
impl ResolvedUs for OneWay {}
impl SendTo for Mine {}
impl HasRead for SendOnly {}

impl FeatureSet for Mine {
    const FEATURES: efa_core::wire::Features = efa_core::wire::Features::empty();
    const NEEDS: Caps = Caps::empty();
}

impl QpKind for Mine {
    const OPS: efa_core::flags::SendOps = efa_core::flags::SendOps::all();
    const TYPE: efa_core::qp::QpType = efa_core::qp::QpType::Srd;
    type Features = efa_core::qp::Solicited;
    type Entries = efa_core::qp::Narrow;
}

fn main() {}
