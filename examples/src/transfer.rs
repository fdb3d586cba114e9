//! A file from one endpoint to another by RDMA writes in chunks, which may arrive in any order.
//!
//! ```text
//!   sender                                        receiver
//!   offer (length, chunk size)  ── SEND ──▶       makes a ledger of the chunks
//!                               ◀── SEND ──       grant of its slots
//!   chunk i, in slot i mod n    ── write, imm i ▶ notes it; in its turn: hashes, stores, reposts a receive
//!                               ◀── SEND, imm i ─ chunk i is stored: its slot and its receive are free
//!   hash of the file            ── SEND ──▶
//!                               ◀── SEND ──       hash of what arrived
//! ```
//!
//! Each side's memory is registered once, a slot for each chunk in flight, whatever the file's length. A chunk
//! consumes a receive, so the sender writes only as many as it was told of: no write finds none.

mod receiver;
mod remote;
mod sender;

use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use efa_core::qp::Depth;
use efa_core::{Context, Provider};

use crate::fault::Fault;
use efa_core::connect::connect;
use receiver::Receiver;
pub use remote::{Asked, receive, send};
use sender::Sender;

/// Chunks in flight at most.
pub const MAX_WINDOW: usize = 64;
/// Bytes of a message that is no chunk.
const NOTE: usize = 64;
/// Receives beside those for chunks: the offer, the grant and the hashes.
const NOTES: usize = 2;
/// With nothing for so long, something is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to transfer.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes of a chunk.
    pub chunk: NonZeroU32,
    /// Chunks in flight: 1 to [`MAX_WINDOW`].
    pub window: usize,
    /// Changes one byte after it was hashed, so that the hashes must differ.
    pub corrupt: bool,
}

/// What was transferred.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Bytes.
    pub bytes: u64,
    /// Chunks.
    pub chunks: u32,
    /// Chunks that arrived before one with a lower number.
    pub early: u32,
    /// The hash of both ends.
    pub hash: blake3::Hash,
    /// From the offer to the last hash.
    pub took: Duration,
}

/// Transfers `len` bytes from `source` to `sink`, between two devices that reach each other; `progress` sees the bytes
/// that are stored so far.
///
/// # Errors
/// [`Fault::Hashes`] if what arrived is not what was sent, or the first [`Fault`] on the way.
pub fn transfer<P: Provider>(
    options: Options,
    [from, to]: [Context<P>; 2],
    source: impl Read,
    len: u64,
    sink: impl Write,
    mut progress: impl FnMut(u64),
) -> Result<Report, Fault> {
    let window = options.window.clamp(1, MAX_WINDOW);
    let depth = (2 * window + NOTES) as u32;
    let [from, to] = connect([from, to], Depth::new(depth, depth))?;
    let mut receiver = Receiver::new(to, sink, options.chunk, window)?;
    let mut sender = Sender::new(from, source, len, Options { window, ..options })?;
    let start = Instant::now();
    until_done(|_| {
        let moved = sender.step()?;
        let stored = receiver.step()?;
        if stored {
            progress(receiver.stored());
        }
        let done = sender.hash().is_some() && receiver.hash().is_some();
        Ok(Step::of(done, moved || stored))
    })?;
    let hash = equal(sender.hash(), receiver.hash())?;
    let took = start.elapsed();
    Ok(Report { bytes: receiver.stored(), chunks: receiver.chunks(), early: receiver.early(), hash, took })
}

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    Moved,
    Idle,
}

impl Step {
    fn of(done: bool, moved: bool) -> Self {
        match (done, moved) {
            (true, _) => Self::Done,
            (_, true) => Self::Moved,
            _ => Self::Idle,
        }
    }
}

/// Takes steps until all is done, or nothing moves for too long. Now and then, while nothing does, a step hears that it
/// may look at what takes time.
fn until_done(mut step: impl FnMut(bool) -> Result<Step, Fault>) -> Result<(), Fault> {
    const LOOKS: u32 = 1 << 14;
    let mut since = Instant::now();
    let mut idles = 0_u32;
    loop {
        match step(idles % LOOKS == LOOKS - 1)? {
            Step::Done => return Ok(()),
            Step::Moved => idles = 0,
            Step::Idle => {
                idles = idles.wrapping_add(1);
                if idles == 1 {
                    since = Instant::now();
                } else if idles.is_multiple_of(LOOKS) && since.elapsed() > PATIENCE {
                    return Err(Fault::Stalled { waiting: "a chunk or a note of the other side" });
                }
            }
        }
    }
}

/// The hash of both ends.
fn equal(sent: Option<blake3::Hash>, received: Option<blake3::Hash>) -> Result<blake3::Hash, Fault> {
    match (sent, received) {
        (Some(sent), Some(received)) if sent == received => Ok(sent),
        (Some(sent), Some(received)) => Err(Fault::Hashes { sent, received }),
        _ => Err(Fault::Protocol("it ended without its hash".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use efa_core::connect::{Side, introduce};
    use efa_core::qp::Srd;
    use efa_core::soft::{Config, Profile, SoftDevice};

    fn run(len: usize, chunk: u32, window: usize, corrupt: bool) -> Result<(Report, Vec<u8>), Fault> {
        let device = SoftDevice::new(Config::new(Profile::RDMA).seed(len as u64));
        let contexts = [Context::open(device.neighbour()?), Context::open(device)];
        let options = Options { chunk: NonZeroU32::new(chunk).unwrap(), window, corrupt };
        let mut out = Vec::new();
        let report = transfer(options, contexts, file(len).as_slice(), len as u64, &mut out, |_| {})?;
        Ok((report, out))
    }

    fn file(len: usize) -> Vec<u8> {
        let mut file = vec![0; len];
        Pattern::new(1, 2).fill(&mut file);
        file
    }

    #[test]
    fn every_length_arrives_whole_with_any_chunk_size_and_window() {
        for len in [0, 1, 7, 8, 4095, 4096, 4097, 100_000] {
            for (chunk, window) in [(4096, 16), (4096, 1), (1000, 64), (13, 5)] {
                let (report, out) = run(len, chunk, window, false).unwrap();
                assert!(out == file(len), "{len} bytes in chunks of {chunk}");
                assert_eq!((report.bytes, report.hash), (len as u64, blake3::hash(&out)));
                assert_eq!(report.chunks as usize, len.div_ceil(chunk as usize));
            }
        }
    }

    #[test]
    fn chunks_do_arrive_out_of_order() {
        assert!(run(1 << 20, 1024, 64, false).unwrap().0.early > 0);
    }

    #[test]
    fn a_receiver_whose_send_queue_is_full_stores_the_rest_when_there_is_room_to_say_so() {
        const WINDOW: usize = 32;
        let device = SoftDevice::new(Profile::RDMA);
        let contexts = [Context::open(device.neighbour().unwrap()), Context::open(device)];
        let depths = [Depth::new(128, 64), Depth::new(2, 64)];
        let [a, b] = [0, 1].map(|nth| {
            let ctx = contexts[nth].clone();
            let pd = ctx.alloc_pd().unwrap();
            let endpoint = pd.endpoint(ctx.require::<Srd>().unwrap(), depths[nth]).unwrap();
            (endpoint, pd, ctx)
        });
        let (to_b, to_a) = introduce(&a.0, &b.0).unwrap();
        let side = |(endpoint, pd, ctx), peer| Side { endpoint, peer, pd, ctx };
        let options = Options { chunk: NonZeroU32::new(100).unwrap(), window: WINDOW, corrupt: false };
        let (content, mut out) = (file(20_000), Vec::new());
        let mut receiver = Receiver::new(side(b, to_a), &mut out, options.chunk, WINDOW).unwrap();
        let mut sender = Sender::new(side(a, to_b), content.as_slice(), 20_000, options).unwrap();
        until_done(|_| {
            // Bursts of chunks, with which the receiver cannot keep pace by two notes.
            let moved = (0..100).try_fold(false, |moved, _| Ok::<_, Fault>(moved | sender.step()?))?;
            let stored = receiver.step()?;
            Ok(Step::of(sender.hash().is_some() && receiver.hash().is_some(), moved || stored))
        })
        .unwrap();
        assert_eq!(sender.hash(), receiver.hash());
        drop(receiver);
        assert!(out == content);
    }

    #[test]
    fn a_changed_byte_makes_the_hashes_differ() {
        let fault = run(10_000, 4096, 4, true).unwrap_err();
        assert!(matches!(fault, Fault::Hashes { .. }), "{fault}");
    }

    #[test]
    fn a_file_that_is_shorter_or_longer_than_it_said_is_an_error() {
        for (said, text) in [(151, "ended before its 151 bytes"), (149, "goes on after its 149"), (0, "after its 0")] {
            let device = SoftDevice::new(Profile::RDMA);
            let contexts = [Context::open(device.neighbour().unwrap()), Context::open(device)];
            let options = Options { chunk: NonZeroU32::MIN.saturating_add(99), window: 4, corrupt: false };
            let fault = transfer(options, contexts, [1; 150].as_slice(), said, &mut Vec::new(), |_| {}).unwrap_err();
            assert!(matches!(fault, Fault::Read(_)) && fault.to_string().contains(text), "{fault}");
        }
    }
}
