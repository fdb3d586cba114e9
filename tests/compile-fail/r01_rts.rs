//! R01: RTS is reached from RTR, SQD and SQE, and from RTS itself, only.

use efa_core::Provider;
use efa_core::qp::{Err, Init, QueuePair, Reset, RtsAttr, Srd};

fn from_reset<P: Provider>(qp: QueuePair<P, Reset, Srd>, attr: RtsAttr) {
    let _ = qp.rts(attr);
}

fn from_init<P: Provider>(qp: QueuePair<P, Init, Srd>, attr: RtsAttr) {
    let _ = qp.rts(attr);
}

fn from_err<P: Provider>(qp: QueuePair<P, Err, Srd>, attr: RtsAttr) {
    let _ = qp.rts(attr);
}

fn main() {}
