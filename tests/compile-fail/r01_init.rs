//! R01: INIT is reached from RESET, and from INIT itself, only.

use efa_core::Provider;
use efa_core::qp::{Err, InitAttr, QueuePair, Rtr, Rts, Sqd, Sqe, Srd};

fn from_rtr<P: Provider>(qp: QueuePair<P, Rtr, Srd>, attr: InitAttr) {
    let _ = qp.init(attr);
}

fn from_rts<P: Provider>(qp: QueuePair<P, Rts, Srd>, attr: InitAttr) {
    let _ = qp.init(attr);
}

fn from_sqd<P: Provider>(qp: QueuePair<P, Sqd, Srd>, attr: InitAttr) {
    let _ = qp.init(attr);
}

fn from_sqe<P: Provider>(qp: QueuePair<P, Sqe, Srd>, attr: InitAttr) {
    let _ = qp.init(attr);
}

fn from_err<P: Provider>(qp: QueuePair<P, Err, Srd>, attr: InitAttr) {
    let _ = qp.init(attr);
}

fn main() {}
