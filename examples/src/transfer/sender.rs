//! The side that has the file.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};

use efa_core::flow::SendCredits;
use efa_core::memory::{PageSize, Pages, Pool, RemoteWrite, Slice};
use efa_core::peer::RemoteWindow;
use efa_core::work::Event;
use efa_core::{Provider, Token};

use super::{MAX_WINDOW, NOTE, NOTES, Options};
use crate::chunks::Chunks;
use crate::fault::Fault;
use efa_core::connect::Side;

/// The token of what is no chunk.
const NO_CHUNK: Token = Token(u64::MAX);

#[derive(Debug)]
pub(super) struct Sender<P: Provider, R> {
    side: Side<P>,
    source: R,
    hasher: blake3::Hasher,
    sent: Option<blake3::Hash>,
    chunks: Chunks,
    options: Options,
    next: u32,
    /// Which chunks the receiver has stored, of those from `oldest` on.
    stored: VecDeque<bool>,
    oldest: u32,
    credits: SendCredits,
    slots: Pool<MAX_WINDOW>,
    /// The rest of the slot whose chunk is the short one.
    tail: Option<Slice>,
    window: Option<RemoteWindow<RemoteWrite>>,
    answer: Option<blake3::Hash>,
}

impl<P: Provider, R: Read> Sender<P, R> {
    pub(super) fn new(mut side: Side<P>, source: R, len: u64, options: Options) -> Result<Self, Fault> {
        let chunks = Chunks::new(len, options.chunk)?;
        let size = options.chunk.get() as usize;
        let (_, memory) = side.pd.register(Pages::new(size * options.window, PageSize::Base)?)?;
        let whole = memory.split_at(size * options.window)?.0;
        let (slots, _) = Pool::new(whole, size)?;
        post_receives(&mut side, options.window + NOTES)?;

        let mut offer = [0; 12];
        offer[..8].copy_from_slice(&len.to_le_bytes());
        offer[8..].copy_from_slice(&options.chunk.get().to_le_bytes());
        side.endpoint.post(side.peer.send_inline(&offer), NO_CHUNK)?;
        Ok(Self {
            side,
            source,
            hasher: blake3::Hasher::new(),
            sent: None,
            chunks,
            options,
            next: 0,
            stored: VecDeque::with_capacity(MAX_WINDOW),
            oldest: 0,
            credits: SendCredits::new(),
            slots,
            tail: None,
            window: None,
            answer: None,
        })
    }

    /// The hash of the file, when the receiver has answered with its own.
    pub(super) fn hash(&self) -> Option<blake3::Hash> {
        self.answer.and(self.sent)
    }

    /// The receiver's hash.
    pub(super) fn answer(&self) -> Option<blake3::Hash> {
        self.answer
    }

    /// Bytes of the chunks that the receiver has stored, all those before the first that it has not.
    pub(super) fn stored(&self) -> u64 {
        (u64::from(self.oldest) * u64::from(self.options.chunk.get())).min(self.chunks.len())
    }

    /// Chunks that the file goes in.
    pub(super) fn chunks(&self) -> u32 {
        self.chunks.count()
    }

    /// Sends as many chunks as may be in flight, and takes one completion; `false` if there was neither.
    pub(super) fn step(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        while self.send()? {
            moved = true;
        }
        if let Some(event) = self.side.endpoint.poll() {
            self.event(event)?;
            moved = true;
        }
        Ok(moved)
    }

    fn event(&mut self, event: Event) -> Result<(), Fault> {
        match event {
            Event::Sent(_) => Ok(()),
            Event::Written(mut done) => {
                let mut slot = done.buffers.take_slice().ok_or(Fault::Protocol("a chunk without its slot".into()))?;
                if slot.len() < self.slots.slot_size() {
                    let tail = self.tail.take().ok_or(Fault::Protocol("two short chunks".into()))?;
                    slot = slot.unsplit(tail)?;
                }
                Ok(self.slots.put(slot)?)
            }
            Event::Received(mut note) => {
                let receive = note.buffers.take_slice().ok_or(Fault::Protocol("a note nowhere".into()))?;
                self.note(note.imm, receive.get(..note.len).unwrap_or_default())?;
                Ok(self.side.endpoint.post_recv(receive, note.token)?)
            }
            Event::Failed { failure, .. } => Err(failure.into()),
            event => Err(Fault::Protocol(format!("an event that nothing here asks for: {event:?}"))),
        }
    }

    fn note(&mut self, imm: Option<u32>, bytes: &[u8]) -> Result<(), Fault> {
        if let Some(index) = imm {
            let place = index.wrapping_sub(self.oldest) as usize;
            match self.stored.get_mut(place) {
                Some(stored @ false) => *stored = true,
                _ => return Err(Fault::Protocol(format!("chunk {index} is said to be stored and was not in flight"))),
            }
            self.credits.add(1);
            while let Some(true) = self.stored.front() {
                self.stored.pop_front();
                self.oldest += 1;
            }
        } else if let Ok(hash) = <[u8; blake3::OUT_LEN]>::try_from(bytes) {
            self.answer = Some(blake3::Hash::from_bytes(hash));
        } else {
            self.window = Some(self.side.peer.window(bytes)?);
            // The receiver has posted a receive for each slot before it granted them.
            self.credits.add(self.options.window as u32);
        }
        Ok(())
    }

    /// The next chunk if there is a slot here, a slot there, and a receive; after the last one, the hash.
    fn send(&mut self) -> Result<bool, Fault> {
        let Some(window) = self.window else { return Ok(false) };
        let Some(chunk) = self.chunks.get(self.next) else { return self.send_hash() };
        let slot_is_free = self.stored.len() < self.options.window;
        if !slot_is_free || self.slots.free() == 0 || !self.side.endpoint.can_post() || !self.credits.take() {
            return Ok(false);
        }
        let Some(mut slot) = self.slots.take() else { return Ok(false) };
        if (chunk.len as usize) < slot.len() {
            let (head, tail) = slot.split_at(chunk.len as usize)?;
            (slot, self.tail) = (head, Some(tail));
        }
        // Straight from the file into registered memory.
        self.source.read_exact(&mut slot).map_err(|error| self.read_failed(error))?;
        self.hasher.update(&slot);
        if self.options.corrupt && chunk.index == 0 {
            slot[0] ^= 1;
        }
        let size = u64::from(self.options.chunk.get());
        let start = u64::from(chunk.index) % self.options.window as u64 * size;
        let place = window.range(start..start + u64::from(chunk.len))?;
        let write = self.side.peer.write(slot, place).imm(chunk.index);
        self.side.endpoint.post(write, Token(chunk.index.into()))?;
        self.stored.push_back(false);
        self.next += 1;
        Ok(true)
    }

    fn send_hash(&mut self) -> Result<bool, Fault> {
        if self.sent.is_some() || !self.side.endpoint.can_post() {
            return Ok(false);
        }
        let end = self.source.by_ref().take(1).read_to_end(&mut Vec::new()).map_err(Fault::Read)?;
        if end != 0 {
            let more = format!("it goes on after its {} bytes: it grew, or does not say its length", self.chunks.len());
            return Err(Fault::Read(io::Error::new(ErrorKind::InvalidData, more)));
        }
        let hash = self.hasher.finalize();
        self.sent = Some(hash);
        self.side.endpoint.post(self.side.peer.send_inline(hash.as_bytes()), NO_CHUNK)?;
        Ok(true)
    }
}

impl<P: Provider, R> Sender<P, R> {
    fn read_failed(&self, error: io::Error) -> Fault {
        Fault::Read(match error.kind() {
            ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), format!("it ended before its {} bytes: it shrank", self.chunks.len()))
            }
            _ => error,
        })
    }
}

/// Posts receives for so many notes.
pub(super) fn post_receives<P: Provider>(side: &mut Side<P>, count: usize) -> Result<(), Fault> {
    let (_, mut rest) = side.pd.register(vec![0; NOTE * count])?;
    for number in 0..count {
        let (receive, after) = rest.split_at(NOTE)?;
        side.endpoint.post_recv(receive, Token(number as u64))?;
        rest = after;
    }
    Ok(())
}
