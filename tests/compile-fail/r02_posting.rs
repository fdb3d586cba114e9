//! R02: operations are posted in RTS only, receives from INIT on.

use efa_core::memory::Slice;
use efa_core::qp::{Err, Init, QueuePair, Reset, Rtr, Sqd, Sqe, Srd};
use efa_core::work::SendInline;
use efa_core::{Provider, Token};

type Op<'p> = SendInline<'p, [u8; 0], efa_core::qp::Solicited>;

fn post_in_reset<P: Provider>(qp: &mut QueuePair<P, Reset, Srd>, op: Op<'_>) {
    let _ = qp.post(op, Token(0));
}

fn post_in_init<P: Provider>(qp: &mut QueuePair<P, Init, Srd>, op: Op<'_>) {
    let _ = qp.post(op, Token(0));
}

fn post_in_rtr<P: Provider>(qp: &mut QueuePair<P, Rtr, Srd>, op: Op<'_>) {
    let _ = qp.post(op, Token(0));
}

fn post_in_sqd<P: Provider>(qp: &mut QueuePair<P, Sqd, Srd>, op: Op<'_>) {
    let _ = qp.post(op, Token(0));
}

fn post_in_sqe<P: Provider>(qp: &mut QueuePair<P, Sqe, Srd>, op: Op<'_>) {
    let _ = qp.post(op, Token(0));
}

fn post_in_err<P: Provider>(qp: &mut QueuePair<P, Err, Srd>, op: Op<'_>) {
    let _ = qp.post(op, Token(0));
}

fn batch_in_rtr<P: Provider>(qp: &mut QueuePair<P, Rtr, Srd>) {
    let _ = qp.batch();
}

fn receive_in_reset<P: Provider>(qp: &mut QueuePair<P, Reset, Srd>, slice: Slice) {
    let _ = qp.post_recv(slice, Token(0));
}

fn receive_in_err<P: Provider>(qp: &mut QueuePair<P, Err, Srd>, slice: Slice) {
    let _ = qp.post_recv(slice, Token(0));
}

fn receive_list_in_reset<P: Provider>(qp: &mut QueuePair<P, Reset, Srd>, slice: Slice) {
    let _ = qp.post_recv_list(&mut [(slice, Token(0))].into_iter());
}

fn room_for_a_receive_in_err<P: Provider>(qp: &QueuePair<P, Err, Srd>) -> bool {
    qp.can_post_recv()
}

fn room_for_an_operation_in_init<P: Provider>(qp: &QueuePair<P, Init, Srd>) -> bool {
    qp.can_post()
}

fn main() {}
