//! The device's queue entries, little-endian, as the hardware defines them.
//!
//! [`SendEntry`], [`WideSendEntry`], [`RecvDescriptor`] and [`Completion`] are the layouts; the data path assembles the same
//! bytes as words, which tests compare with the layouts.
//! Source: the EFA driver's `efa_io_defs.h`.

#![forbid(unsafe_code)]

mod completion;
mod recv;
mod send;

pub use completion::{Completion, RecvCompletion, SendCompletion, completion_flags};
pub use recv::{RecvDescriptor, descriptor_flags};
pub use send::{BufferDescriptor, RemoteBuffer, SendEntry, WideSendEntry, control1, control2, control3};

pub(crate) use recv::tail as recv_tail;
pub(crate) use send::{address_handle, control, destination, length_and_key, req_id_ex, with_length};

/// Eight bytes of an entry: what the data path reads and writes at once.
pub type Quad = u64;

/// The quads of a little-endian entry, first byte lowest.
pub fn quads<const N: usize>(bytes: &[u8]) -> [Quad; N] {
    let mut out = [0; N];
    for (quad, chunk) in out.iter_mut().zip(bytes.chunks_exact(8)) {
        *quad = Quad::from_le_bytes(chunk.try_into().unwrap_or_default());
    }
    out
}
