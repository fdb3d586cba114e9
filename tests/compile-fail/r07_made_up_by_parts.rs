//! R07, R15: tokens, peers, windows and slices cannot be put together from parts, nor changed in one.

use efa_core::memory::{Buffers, RemoteWrite, Slice};
use efa_core::peer::RemoteWindow;
use efa_core::qp::Srd;
use efa_core::ring::Slot;
use efa_core::Granted;

fn a_token(device: efa_core::DeviceId) -> Granted<Srd> {
    Granted { device, of: std::marker::PhantomData }
}

fn a_longer_window(window: RemoteWindow<RemoteWrite>) -> RemoteWindow<RemoteWrite> {
    RemoteWindow { len: u64::MAX, ..window }
}

fn a_longer_slice(slice: Slice) -> Slice {
    Slice { length_and_key: u64::MAX, ..slice }
}

fn an_occupied_slot() -> Slot {
    Slot { mark: 1, ..Slot::VACANT }
}

fn buffers_twice(buffers: &Buffers) -> Buffers {
    Buffers { ..*buffers }
}

fn main() {}
