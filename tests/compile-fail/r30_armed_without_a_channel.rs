//! What was made without a channel raises no events, and cannot be armed (R30).

use efa_core::qp::{Endpoint, Group, Srd};
use efa_core::soft::{SoftChannel, SoftDevice};
use efa_core::{Notified, ProtectionDomain};

fn a_queue_pair(qp: &mut Endpoint<SoftDevice>) {
    let _ = qp.arm();
}

fn a_group(group: &mut Group<SoftDevice, Srd, 4>) {
    let _ = group.arm();
}

fn on_two_channels(domain: &ProtectionDomain<Notified<SoftDevice>>, channel: &SoftChannel) {
    let _ = domain.on_channel(channel);
}

fn main() {}
