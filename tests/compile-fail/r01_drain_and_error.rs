//! R01: SQD is reached from RTS and SQD only, ERR from every state but RESET.

use efa_core::Provider;
use efa_core::qp::{Err, Init, QueuePair, Reset, Rtr, Sqe, Srd, Ud};

fn from_reset<P: Provider>(qp: QueuePair<P, Reset, Srd>) {
    let _ = qp.drain();
}

fn from_init<P: Provider>(qp: QueuePair<P, Init, Srd>) {
    let _ = qp.drain();
}

fn from_rtr<P: Provider>(qp: QueuePair<P, Rtr, Srd>) {
    let _ = qp.drain();
}

fn from_sqe<P: Provider>(qp: QueuePair<P, Sqe, Srd>) {
    let _ = qp.drain();
}

fn from_err<P: Provider>(qp: QueuePair<P, Err, Srd>) {
    let _ = qp.drain();
}

fn error_from_reset<P: Provider>(qp: QueuePair<P, Reset, Srd>) {
    let _ = qp.error();
}

fn datagrams_error_from_reset<P: Provider>(qp: QueuePair<P, Reset, Ud>) {
    let _ = qp.error();
}

fn main() {}
