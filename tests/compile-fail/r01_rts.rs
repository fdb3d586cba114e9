//! R01: RTS is reached from RTR by `rts`, and again from SQD and SQE by `resume`, only.

use efa_core::Provider;
use efa_core::qp::{Err, Init, QueuePair, Reset, Rtr, Rts, RtsAttr, Sqd, Srd};

fn from_reset<P: Provider>(qp: QueuePair<P, Reset, Srd>, attr: RtsAttr) {
    let _ = qp.rts(attr);
}

fn from_init<P: Provider>(qp: QueuePair<P, Init, Srd>, attr: RtsAttr) {
    let _ = qp.rts(attr);
}

fn from_err<P: Provider>(qp: QueuePair<P, Err, Srd>, attr: RtsAttr) {
    let _ = qp.rts(attr);
}

fn again<P: Provider>(qp: QueuePair<P, Rts, Srd>, attr: RtsAttr) {
    let _ = qp.rts(attr);
}

fn from_sqd<P: Provider>(qp: QueuePair<P, Sqd, Srd>, attr: RtsAttr) {
    let _ = qp.rts(attr);
}

fn resume_from_rtr<P: Provider>(qp: QueuePair<P, Rtr, Srd>) {
    let _ = qp.resume();
}

fn resume_from_err<P: Provider>(qp: QueuePair<P, Err, Srd>) {
    let _ = qp.resume();
}

fn main() {}
