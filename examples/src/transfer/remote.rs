//! The two sides in two programs. The receiver listens, and takes chunks of the size that the sender says.

use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::time::Instant;

use efa_core::connect::Side;
use efa_core::qp::{Depth, Srd};
use efa_core::{Context, Provider};

use super::receiver::Receiver;
use super::sender::Sender;
use super::{MAX_WINDOW, NOTES, Options, Report, Step, equal, until_done};
use crate::exchange::{Channel, Tcp, conclude, expect, introduce, send_text};
use crate::fault::Fault;

/// How programs that speak this are told from others.
const MAGIC: [u8; 8] = *b"transf\x00\x01";
/// The most bytes of slots that a receiver makes for a sender that it does not know.
const MOST: usize = 1 << 30;
/// What the receiver says when it has posted its receives.
const READY: &str = "ready";

/// What a sender asks of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Bytes of a chunk.
    pub chunk: NonZeroU32,
    /// Chunks in flight.
    pub window: usize,
}

impl Asked {
    const LEN: usize = 16;

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.chunk.get().to_le_bytes());
        bytes[12..].copy_from_slice(&(self.window as u32).to_le_bytes());
        bytes
    }

    fn parse(bytes: [u8; Self::LEN]) -> Result<Self, Fault> {
        let (magic, numbers) = bytes.split_at(8);
        let mut numbers =
            numbers.chunks_exact(4).map(|bytes| bytes.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte)));
        let (chunk, window) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0) as usize);
        match NonZeroU32::new(chunk) {
            _ if magic != MAGIC => Err(Fault::Protocol("it is no transfer of this version".into())),
            Some(chunk) if (1..=MAX_WINDOW).contains(&window) && window * chunk.get() as usize <= MOST => {
                Ok(Self { chunk, window })
            }
            _ => Err(Fault::Protocol(format!(
                "{window} chunks of {chunk} bytes in flight are asked for: there can be 1 to {MAX_WINDOW}, of {MOST} bytes together"
            ))),
        }
    }
}

fn depth(window: usize) -> Depth {
    let depth = (2 * window + NOTES) as u32;
    Depth::new(depth, depth)
}

/// Sends `len` bytes of `source` to a program that [`receive`]s; `progress` sees the bytes that are stored there.
///
/// # Errors
/// [`Fault::Hashes`] if what arrived is not what was sent, or the first [`Fault`] on either side.
pub fn send<P: Provider>(
    options: Options,
    context: Context<P>,
    channel: &mut Tcp,
    source: impl Read,
    len: u64,
    mut progress: impl FnMut(u64),
) -> Result<Report, Fault> {
    let device = context.provider().clone();
    let options = Options { window: options.window.clamp(1, MAX_WINDOW), ..options };
    // It lives until the other side is done, too, which may wait for an answer of this device.
    let mut kept = None;
    let run = || {
        channel.send(&Asked { chunk: options.chunk, window: options.window }.to_bytes())?;
        let pd = context.alloc_pd()?;
        let endpoint = pd.endpoint(context.require::<Srd>()?, depth(options.window))?;
        let peer = introduce(&endpoint, channel)?;
        expect(channel, &device, READY)?;
        let start = Instant::now();
        let side = Side { endpoint, peer, pd, ctx: context.clone() };
        let sender = kept.insert(Sender::new(side, source, len, options)?);
        until_done(|looks| {
            if looks && channel.has_news() {
                return Err(Fault::OtherSide);
            }
            let moved = sender.step()?;
            progress(sender.stored());
            Ok(Step::of(sender.hash().is_some(), moved))
        })?;
        let took = start.elapsed();
        let hash = equal(sender.hash(), sender.answer())?;
        Ok(Report { bytes: len, chunks: sender.chunks(), early: 0, hash, took })
    };
    let sent = run();
    conclude(channel, &device, sent)
}

/// Receives what a program [`send`]s into `sink`; `asked` hears how, `progress` sees the bytes that are stored.
///
/// # Errors
/// As [`send`].
pub fn receive<P: Provider>(
    context: Context<P>,
    channel: &mut Tcp,
    sink: impl Write,
    asked: impl FnOnce(Asked),
    mut progress: impl FnMut(u64),
) -> Result<Report, Fault> {
    let device = context.provider().clone();
    let mut kept = None;
    let run = || {
        let mut bytes = [0; Asked::LEN];
        channel.recv(&mut bytes)?;
        let Asked { chunk, window } = Asked::parse(bytes)?;
        asked(Asked { chunk, window });
        let pd = context.alloc_pd()?;
        let endpoint = pd.endpoint(context.require::<Srd>()?, depth(window))?;
        let peer = introduce(&endpoint, channel)?;
        let side = Side { endpoint, peer, pd, ctx: context.clone() };
        let receiver = kept.insert(Receiver::new(side, sink, chunk, window)?);
        send_text(channel, READY)?;
        let start = Instant::now();
        until_done(|looks| {
            // A sender that has all may be done first, which is news, too.
            if looks && receiver.hash().is_none() && channel.has_news() {
                return Err(Fault::OtherSide);
            }
            let moved = receiver.step()?;
            if moved {
                progress(receiver.stored());
            }
            Ok(Step::of(receiver.is_over(), moved))
        })?;
        let took = start.elapsed();
        let hash = equal(receiver.sent(), receiver.hash())?;
        Ok(Report { bytes: receiver.stored(), chunks: receiver.chunks(), early: receiver.early(), hash, took })
    };
    let received = run();
    conclude(channel, &device, received)
}
