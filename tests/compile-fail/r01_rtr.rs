//! R01: RTR is reached from INIT only.

use efa_core::Provider;
use efa_core::qp::{Err, QueuePair, Reset, Rtr, Rts, Sqd, Sqe, Srd};

fn from_reset<P: Provider>(qp: QueuePair<P, Reset, Srd>) {
    let _ = qp.rtr();
}

fn from_rtr<P: Provider>(qp: QueuePair<P, Rtr, Srd>) {
    let _ = qp.rtr();
}

fn from_rts<P: Provider>(qp: QueuePair<P, Rts, Srd>) {
    let _ = qp.rtr();
}

fn from_sqd<P: Provider>(qp: QueuePair<P, Sqd, Srd>) {
    let _ = qp.rtr();
}

fn from_sqe<P: Provider>(qp: QueuePair<P, Sqe, Srd>) {
    let _ = qp.rtr();
}

fn from_err<P: Provider>(qp: QueuePair<P, Err, Srd>) {
    let _ = qp.rtr();
}

fn main() {}
