//! R01: the whole way up starts in RESET or INIT.

use efa_core::Provider;
use efa_core::qp::{Err, QueuePair, Rtr, Rts, Sqd, Sqe, Srd};

fn from_rtr<P: Provider>(qp: QueuePair<P, Rtr, Srd>) {
    let _ = qp.prepare();
}

fn from_rts<P: Provider>(qp: QueuePair<P, Rts, Srd>) {
    let _ = qp.prepare();
}

fn from_sqd<P: Provider>(qp: QueuePair<P, Sqd, Srd>) {
    let _ = qp.prepare();
}

fn from_sqe<P: Provider>(qp: QueuePair<P, Sqe, Srd>) {
    let _ = qp.prepare();
}

fn from_err<P: Provider>(qp: QueuePair<P, Err, Srd>) {
    let _ = qp.prepare();
}

fn main() {}
