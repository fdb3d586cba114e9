//! Who writes completions in the device's stead: so that what is measured finds the caches as it left them.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use efa_core::entry::{completion_flags as flags, control1};
use efa_core::ring::{AtomicWord, WORDS_PER_QUAD};
use efa_core::{CqRing, Queues};
use efa_tests::still;

/// Of which of a queue pair's queues a completion is.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Send,
    Recv,
}

/// Who completes what was posted on the queue pair that was made last, in the device's stead.
pub(crate) struct Forge {
    queues: Queues,
    /// Its completion queues, or its one, with the entries written so far.
    rings: Vec<(CqRing, u32)>,
    /// Entries and descriptors completed so far.
    done: [u32; 2],
}

impl Forge {
    /// The last queue pair but `qps` has the first `rings` completion queues that were made since the last call.
    pub(crate) fn new(qps: usize, rings: usize, unlock: &dyn Fn(*mut c_void, usize)) -> Self {
        let made = still::take_made();
        let queues = made.qps[made.qps.len() - 1 - qps];
        for ring in &made.cqs[..rings] {
            unlock(ring.base.as_ptr().cast(), ring.entries as usize * usize::from(ring.entry_size));
        }
        Self { queues, rings: made.cqs[..rings].iter().map(|ring| (*ring, 0)).collect(), done: [0; 2] }
    }

    /// Completes the next `count` requests, each of 8 bytes, in their order.
    pub(crate) fn complete(&mut self, side: Side, count: usize) {
        for _ in 0..count {
            let (head, op) = match side {
                Side::Send => {
                    let ring = &self.queues.send;
                    let nth = count_up(&mut self.done[0]) % ring.depth;
                    let head = quad(ring.entries, nth as usize * usize::from(ring.entry_size) / 8);
                    (head, (head >> 16) as u8 & control1::OP_MASK)
                }
                Side::Recv => {
                    let ring = &self.queues.recv;
                    let nth = count_up(&mut self.done[1]) % ring.descriptors;
                    (quad(ring.entries, nth as usize * 2 + 1), control1::OP_SEND)
                }
            };
            self.completion(side, head as u16, op);
        }
    }

    fn completion(&mut self, side: Side, req_id: u16, op: u8) {
        let (at, kind) = match side {
            Side::Send => (0, flags::QUEUE_SEND),
            Side::Recv => (self.rings.len() - 1, flags::QUEUE_RECV),
        };
        let (ring, written) = &mut self.rings[at];
        let phase = if (*written / ring.entries).is_multiple_of(2) { flags::PHASE } else { 0 };
        let bits = phase | kind | op << flags::OP_SHIFT;
        let head = u64::from(req_id) | u64::from(bits) << 24 | u64::from(self.queues.qpn.0) << 32 | 8 << 48;
        let at = (*written % ring.entries) as usize * usize::from(ring.entry_size) / 8;
        word(ring.base, at).store(head, Ordering::Release);
        *written += 1;
    }
}

fn count_up(count: &mut u32) -> u32 {
    *count += 1;
    *count - 1
}

fn quad(base: NonNull<AtomicWord>, nth: usize) -> u64 {
    word(base, nth).load(Ordering::Relaxed)
}

/// The first word of a quad of a ring: all of it, where words have 64 bits.
fn word<'r>(base: NonNull<AtomicWord>, nth: usize) -> &'r AtomicWord {
    // SAFETY: within the ring, by both callers.
    let word = unsafe { base.add(nth * WORDS_PER_QUAD) };
    // SAFETY: the ring's queue lives as long as this program uses it; words are atomic.
    unsafe { word.as_ref() }
}
