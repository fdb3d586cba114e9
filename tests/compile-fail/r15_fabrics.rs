//! R15: over `efa-direct` memory is registered before it is sent or received into; over `efa` any will do.

use efa_core::Token;
use efa_core::fabric::{Efa, EfaDirect, Memory, Messages, PeerId};
use efa_core::qp::{Endpoint, Srd, Ud};
use efa_core::soft::SoftDevice;

type Direct = EfaDirect<SoftDevice, Srd>;

fn a_plain_buffer_is_not_sent_over_efa_direct(direct: &mut Direct, to: PeerId) {
    let _ = direct.send(to, vec![1_u8, 2, 3], Token(1));
}

fn a_borrowed_buffer_is_not_sent_over_efa_direct(direct: &mut Direct, to: PeerId, bytes: &[u8]) {
    let _ = direct.send(to, bytes, Token(1));
}

fn a_plain_buffer_is_not_received_into_over_efa_direct(direct: &mut Direct) {
    let _ = direct.recv(vec![0_u8; 64], Token(1));
}

fn what_efa_takes_efa_direct_does_not(direct: &mut Direct, to: PeerId) {
    let _ = direct.send(to, Memory::Plain(vec![1_u8]), Token(1));
}

fn an_endpoint_alone_sends_no_messages(endpoint: &mut Endpoint<SoftDevice>) -> u64 {
    fn longest<M: Messages>(messages: &mut M) -> u64 {
        messages.max_message()
    }
    longest(endpoint)
}

fn datagrams_do_not_carry_messages(_: Efa<SoftDevice, Ud, Vec<u8>, Vec<u8>>) {}

fn main() {}
