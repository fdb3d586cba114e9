//! The side that gets the file.

use std::io::Write;
use std::num::NonZeroU32;

use efa_core::flow::{Arrivals, Reorder};
use efa_core::memory::{Exposed, PageSize, Pages, RemoteWrite};
use efa_core::work::Event;
use efa_core::{Provider, Token};

use super::sender::post_receives;
use super::{MAX_WINDOW, NOTE, NOTES};
use crate::chunks::{Chunk, Chunks, Ledger};
use crate::fault::Fault;
use efa_core::connect::Side;

#[derive(Debug)]
pub(super) struct Receiver<P: Provider, W> {
    side: Side<P>,
    sink: W,
    slots: Exposed<Pages, RemoteWrite>,
    chunk: NonZeroU32,
    window: usize,
    copy: Vec<u8>,
    grant: Option<efa_core::memory::Slice>,
    transfer: Option<Transfer>,
    sent: Option<blake3::Hash>,
    answered: Option<blake3::Hash>,
}

/// What is known from the offer on.
#[derive(Debug)]
struct Transfer {
    chunks: Chunks,
    ledger: Ledger,
    arrivals: Arrivals,
    /// Chunks that came before their turn.
    order: Reorder<Chunk, MAX_WINDOW>,
    hasher: blake3::Hasher,
    stored: u64,
    early: u32,
}

impl<P: Provider, W: Write> Receiver<P, W> {
    pub(super) fn new(mut side: Side<P>, sink: W, chunk: NonZeroU32, window: usize) -> Result<Self, Fault> {
        let size = chunk.get() as usize;
        let access = side.ctx.require::<RemoteWrite>()?;
        let slots = side.pd.expose(Pages::new(size * window, PageSize::Base)?, access)?;
        let (_, grant) = side.pd.register(vec![0; NOTE])?;
        post_receives(&mut side, window + NOTES)?;
        Ok(Self {
            side,
            sink,
            slots,
            chunk,
            window,
            copy: vec![0; size],
            grant: Some(grant),
            transfer: None,
            sent: None,
            answered: None,
        })
    }

    /// The hash of what arrived, once it was sent back.
    pub(super) fn hash(&self) -> Option<blake3::Hash> {
        self.answered
    }

    /// Whether the own hash was sent, and all that was sent has arrived.
    pub(super) fn is_over(&self) -> bool {
        self.answered.is_some() && self.side.endpoint.in_flight() as usize == self.window + NOTES
    }

    /// The sender's hash.
    pub(super) fn sent(&self) -> Option<blake3::Hash> {
        self.sent
    }

    /// Bytes stored.
    pub(super) fn stored(&self) -> u64 {
        self.transfer.as_ref().map_or(0, |transfer| transfer.stored)
    }

    /// Chunks that the offer comes in.
    pub(super) fn chunks(&self) -> u32 {
        self.transfer.as_ref().map_or(0, |transfer| transfer.chunks.count())
    }

    /// Chunks that arrived before one with a lower number.
    pub(super) fn early(&self) -> u32 {
        self.transfer.as_ref().map_or(0, |transfer| transfer.early)
    }

    /// Takes one completion; `false` if there was none.
    pub(super) fn step(&mut self) -> Result<bool, Fault> {
        let Some(event) = self.side.endpoint.poll() else { return Ok(false) };
        match event {
            Event::Sent(_) => {}
            Event::Received(mut note) => {
                let receive = note.buffers.take_slice().ok_or(Fault::Protocol("a note nowhere".into()))?;
                let bytes = receive.get(..note.len).unwrap_or_default();
                if let Ok(hash) = <[u8; blake3::OUT_LEN]>::try_from(bytes) {
                    self.sent = Some(blake3::Hash::from_bytes(hash));
                } else {
                    self.accept(bytes)?;
                }
                self.side.endpoint.post_recv(receive, note.token)?;
            }
            Event::WriteArrived(mut write) => {
                // The receive first: the sender may use it as soon as it is told.
                if let Some(receive) = write.buffers.take_slice() {
                    self.side.endpoint.post_recv(receive, write.token)?;
                }
                self.arrived(write.imm)?;
            }
            Event::Failed { failure, .. } => return Err(failure.into()),
            event => return Err(Fault::Protocol(format!("an event that nothing here asks for: {event:?}"))),
        }
        self.store()?;
        self.answer()?;
        Ok(true)
    }

    /// Takes the offer, and grants the slots.
    fn accept(&mut self, offer: &[u8]) -> Result<(), Fault> {
        let wrong = || Fault::Protocol(format!("an offer of {} bytes", offer.len()));
        let (len, rest) = offer.split_first_chunk().ok_or_else(wrong)?;
        let (size, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (len, size) = (u64::from_le_bytes(*len), u32::from_le_bytes(*size));
        if !rest.is_empty() || size != self.chunk.get() {
            return Err(Fault::Protocol(format!("it offers chunks of {size} bytes, the slots have {}", self.chunk)));
        }
        let chunks = Chunks::new(len, self.chunk)?;
        self.transfer = Some(Transfer {
            chunks,
            ledger: Ledger::new(chunks),
            arrivals: Arrivals::expect(chunks.count().into()),
            order: Reorder::new(),
            hasher: blake3::Hasher::new(),
            stored: 0,
            early: 0,
        });
        let mut note = self.grant.take().ok_or(Fault::Protocol("a second offer".into()))?;
        let grant = self.slots.grant(&self.side.endpoint)?;
        let bytes = grant.as_bytes();
        note[..bytes.len()].copy_from_slice(bytes);
        let (note, _) = note.split_at(bytes.len())?;
        self.side.endpoint.post(self.side.peer.send(note), Token(0))?;
        Ok(())
    }

    /// Notes the chunk.
    fn arrived(&mut self, index: u32) -> Result<(), Fault> {
        let transfer = self.transfer.as_mut().ok_or(Fault::Protocol("a chunk before the offer".into()))?;
        let chunk = transfer.ledger.arrive(index)?;
        transfer.arrivals.arrived()?;
        transfer.early += u32::from(index != transfer.order.next());
        Ok(transfer.order.push(index, chunk)?)
    }

    /// Stores the chunks whose turn it is, and says so, as long as there is a place for that: that a note has arrived the sender
    /// may show by its next chunks before its completion does.
    fn store(&mut self) -> Result<(), Fault> {
        let Some(transfer) = self.transfer.as_mut() else { return Ok(()) };
        while self.side.endpoint.can_post() {
            let Some(chunk) = transfer.order.pop() else { break };
            let copy = self.copy.get_mut(..chunk.len as usize).unwrap_or_default();
            let slot = chunk.index as usize % self.window;
            self.slots.copy_out(slot * self.chunk.get() as usize, copy)?;
            transfer.hasher.update(copy);
            self.sink.write_all(copy).map_err(Fault::Store)?;
            transfer.stored += u64::from(chunk.len);
            self.side.endpoint.post(self.side.peer.send_empty().imm(chunk.index), Token(chunk.index.into()))?;
        }
        Ok(())
    }

    /// After the last chunk and the sender's hash: one's own.
    fn answer(&mut self) -> Result<(), Fault> {
        let Some(transfer) = self.transfer.as_ref() else { return Ok(()) };
        let stored = transfer.arrivals.all_here() && transfer.order.next() == transfer.chunks.count();
        if !stored || self.sent.is_none() || self.answered.is_some() || !self.side.endpoint.can_post() {
            return Ok(());
        }
        self.sink.flush().map_err(Fault::Store)?;
        let hash = transfer.hasher.finalize();
        self.side.endpoint.post(self.side.peer.send_inline(hash.as_bytes()), Token(0))?;
        self.answered = Some(hash);
        Ok(())
    }
}
