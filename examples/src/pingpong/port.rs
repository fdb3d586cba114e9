//! What both sides do alike: post one operation of the case, take one completion, verify what arrived.

use efa_core::memory::{Buffers, Exposed, PageSize, Pages, Pool, Slice};
use efa_core::peer::RemoteWindow;
use efa_core::qp::Endpoint;
use efa_core::work::Event;
use efa_core::{Context, ProtectionDomain, Provider, Token};

use super::case::{BURST, Case, IN_FLIGHT, Operation, RECEIVES, Round};
use super::kind::{Kind, To, has};
use crate::fault::Fault;
use efa_core::connect::Side;

/// A side's memory for the whole run, registered once.
#[derive(Debug)]
pub(super) struct Memory<K: Kind> {
    /// What is sent, written from and read into: cut anew for each case.
    local: Option<Slice>,
    /// What the other side writes and reads, if there is RDMA.
    pub(super) shared: Option<Exposed<Pages, K::Access>>,
}

impl<K: Kind> Memory<K> {
    /// Registers it, and posts the receives, which are reposted for as long as the run lasts.
    pub(super) fn new<P: Provider>(
        ctx: &Context<P>,
        pd: &ProtectionDomain<P>,
        endpoint: &mut Endpoint<P, K>,
        largest: usize,
    ) -> Result<Self, Fault> {
        // At least two of the largest: pings alternate between two places.
        let bytes = largest.saturating_mul(2).max(IN_FLIGHT.min(largest.saturating_mul(BURST)));
        let (_, local) = pd.register(Pages::new(bytes, PageSize::Base)?)?;
        let shared = if Operation::ALL.into_iter().any(|operation| operation.is_rdma() && has::<K>(operation)) {
            Some(pd.expose(Pages::new(bytes, PageSize::Base)?, ctx.require::<K::Access>()?)?)
        } else {
            None
        };

        let message = ctx.limits().max_msg_size as usize;
        let (_, mut rest) = pd.register(Pages::new(message * RECEIVES, PageSize::Base)?)?;
        for number in 0..RECEIVES {
            let (receive, after) = rest.split_at(message)?;
            endpoint.post_recv(receive, Token(number as u64))?;
            rest = after;
        }
        Ok(Self { local: Some(local), shared })
    }
}

/// The token of what is no operation of the case.
const NOTE: Token = Token(u64::MAX);

/// A side in one case.
#[derive(Debug)]
pub(super) struct Port<'m, P: Provider, K: Kind> {
    side: &'m mut Side<P, K>,
    memory: &'m mut Memory<K>,
    window: Option<RemoteWindow<K::Access>>,
    pub(super) case: Case,
    slots: Pool<BURST>,
    spare: Option<Slice>,
    /// Operations of the case in flight.
    pub(super) in_flight: usize,
    /// Reads that are done, to be verified.
    reads: Vec<(u64, Slice)>,
    copy: Vec<u8>,
}

/// What a completion was.
#[derive(Debug)]
pub(super) enum Happened {
    /// Nothing yet.
    Nothing,
    /// One of our own operations is done.
    Done,
    /// One of the other side's operations arrived.
    Arrived(Arrival),
    /// The other side's empty SEND arrived.
    Told,
}

/// What arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    imm: Option<u32>,
    /// The receive, its token, and the bytes of the message; none for a write.
    message: Option<(Slice, Token, usize)>,
}

impl<'m, P: Provider, K: Kind> Port<'m, P, K> {
    pub(super) fn new(
        side: &'m mut Side<P, K>,
        memory: &'m mut Memory<K>,
        window: Option<RemoteWindow<K::Access>>,
        case: Case,
    ) -> Result<Self, Fault> {
        let local = memory.local.take().ok_or(Fault::Protocol("the last case has not ended".into()))?;
        let (slots, spare) = Pool::new(local, case.size)?;
        let reads = Vec::with_capacity(BURST);
        Ok(Self { side, memory, window, case, slots, spare, in_flight: 0, reads, copy: vec![0; case.size] })
    }

    /// Puts the memory together again.
    pub(super) fn end(self) -> Result<(), Fault> {
        let mut local = self.slots.into_slice()?;
        if let Some(spare) = self.spare {
            local = local.unsplit(spare)?;
        }
        self.memory.local = Some(local);
        Ok(())
    }

    /// A slot with the content of this number, if one is free.
    pub(super) fn prepare(&mut self, sequence: u64) -> Option<Slice> {
        let mut slot = self.slots.take()?;
        if self.case.operation != Operation::Read {
            self.case.fill(sequence, &mut slot);
        }
        Some(slot)
    }

    /// Posts the operation of the case, with the content that was prepared; `place` is where in exposed memory.
    pub(super) fn launch(&mut self, content: Slice, sequence: u64, place: usize) -> Result<(), Fault> {
        let Self { side: Side { endpoint, peer, .. }, window, case, .. } = self;
        let (token, imm) = (Token(sequence), sequence as u32);
        match case.operation {
            Operation::Send => endpoint.post(peer.send(content), token)?,
            Operation::SendImm => endpoint.post(peer.send(content).imm(imm), token)?,
            Operation::SendInline => {
                endpoint.post(peer.send_inline(&content[..]), token)?;
                self.slots.put(content)?;
            }
            Operation::SendTwo => {
                let middle = content.len() / 2;
                let (head, tail) = content.split_at(middle)?;
                endpoint.post(peer.send([head, tail]), token)?;
            }
            rdma => {
                let start = (place * case.size) as u64;
                let window = window.as_ref().ok_or(Fault::Protocol("RDMA without exposed memory".into()))?;
                let window = window.range(start..start + case.size as u64)?;
                K::post(&mut To { endpoint, peer, token, imm }, rdma, content, window)?;
            }
        }
        self.in_flight += 1;
        Ok(())
    }

    /// Tells the other side that it may go on.
    pub(super) fn tell(&mut self) -> Result<(), Fault> {
        self.side.endpoint.post(self.side.peer.send_empty(), NOTE)?;
        Ok(())
    }

    /// Takes one completion.
    #[inline]
    pub(super) fn poll(&mut self) -> Result<Happened, Fault> {
        let Some(event) = self.side.endpoint.poll() else { return Ok(Happened::Nothing) };
        match event {
            Event::Sent(done) | Event::Written(done) if done.token == NOTE => Ok(Happened::Done),
            Event::Sent(done) | Event::Written(done) => {
                self.in_flight -= 1;
                if let Some(slot) = whole(done.buffers)? {
                    self.slots.put(slot)?;
                }
                Ok(Happened::Done)
            }
            Event::Read(done) => {
                self.in_flight -= 1;
                self.reads.extend(whole(done.buffers)?.map(|slot| (done.token.0, slot)));
                Ok(Happened::Done)
            }
            Event::Received(mut message) => {
                let receive = message.buffers.take_slice().ok_or(Fault::Protocol("a message nowhere".into()))?;
                if message.len == 0 {
                    self.side.endpoint.post_recv(receive, message.token)?;
                    return Ok(Happened::Told);
                }
                let message_in = Some((receive, message.token, message.len));
                Ok(Happened::Arrived(Arrival { imm: message.imm, message: message_in }))
            }
            Event::WriteArrived(mut write) => {
                if let Some(receive) = write.buffers.take_slice() {
                    self.side.endpoint.post_recv(receive, write.token)?;
                }
                Ok(Happened::Arrived(Arrival { imm: Some(write.imm), message: None }))
            }
            Event::Failed { failure, .. } => Err(failure.into()),
            event => Err(Fault::Protocol(format!("an event that nothing here asks for: {event:?}"))),
        }
    }

    /// Verifies that the arrivals are exactly those of the round, in any order, and reposts their receives.
    pub(super) fn verify_arrivals(&mut self, arrivals: &mut Vec<Arrival>, round: Round) -> Result<(), Fault> {
        let mut seen = [false; BURST];
        for arrival in arrivals.drain(..) {
            let place = match (arrival.imm, &arrival.message) {
                (Some(imm), _) => imm.wrapping_sub(round.first as u32) as usize,
                (None, Some((receive, _, len))) => self.place_of(receive.get(..*len).unwrap_or_default(), round, &seen),
                (None, None) => return Err(Fault::Protocol("a write without immediate".into())),
            };
            let new = seen.get_mut(place).filter(|_| place < round.count).map(|seen| core::mem::replace(seen, true));
            if new != Some(false) {
                return Err(Fault::Protocol(format!("number {place} of a burst of {} arrived again", round.count)));
            }
            let sequence = round.first + place as u64;
            match arrival.message {
                Some((receive, token, len)) => {
                    if len != self.case.size {
                        return Err(Fault::Protocol(format!("{len} bytes arrived, {} were sent", self.case.size)));
                    }
                    self.verify(sequence, receive.get(..len).unwrap_or_default())?;
                    self.side.endpoint.post_recv(receive, token)?;
                }
                None => self.verify_shared(sequence, round.place + place)?,
            }
        }
        Ok(())
    }

    /// Which message of the round it is, by its first word; if it is none of them, the first that is missing.
    fn place_of(&self, bytes: &[u8], round: Round, seen: &[bool; BURST]) -> usize {
        let first = bytes.get(..8).unwrap_or(bytes);
        let is = |place: &usize| self.case.content(round.first + *place as u64).verify(first).is_ok();
        let found = (0..round.count).find(is);
        found.or_else(|| seen.iter().position(|seen| !seen)).unwrap_or_default()
    }

    /// Verifies what the other side wrote at `place`.
    pub(super) fn verify_shared(&mut self, sequence: u64, place: usize) -> Result<(), Fault> {
        let mut copy = core::mem::take(&mut self.copy);
        self.shared()?.copy_out(place * self.case.size, &mut copy)?;
        self.copy = copy;
        self.verify(sequence, &self.copy)
    }

    /// Writes what the other side is going to read at `place`.
    pub(super) fn fill_shared(&mut self, sequence: u64, place: usize) -> Result<(), Fault> {
        self.case.fill(sequence, &mut self.copy);
        self.shared()?.copy_in(place * self.case.size, &self.copy)?;
        Ok(())
    }

    fn shared(&self) -> Result<&Exposed<Pages, K::Access>, Fault> {
        self.memory.shared.as_ref().ok_or(Fault::Protocol("RDMA without exposed memory".into()))
    }

    /// Verifies what was read.
    pub(super) fn verify_reads(&mut self) -> Result<(), Fault> {
        while let Some((sequence, slot)) = self.reads.pop() {
            self.verify(sequence, &slot)?;
            self.slots.put(slot)?;
        }
        Ok(())
    }

    fn verify(&self, sequence: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.case.content(sequence).verify(bytes).map_err(|mismatch| Fault::Mismatch {
            what: format!("{} of {} bytes", self.case.operation, self.case.size),
            mismatch,
        })
    }
}

/// Keeps an arrival: of as many as there may be before they are looked at.
pub(super) fn expected(arrivals: &mut Vec<Arrival>, arrival: Arrival) -> Result<(), Fault> {
    if arrivals.len() >= RECEIVES {
        return Err(Fault::Protocol(format!("more than {RECEIVES} operations arrived that nobody waits for")));
    }
    arrivals.push(arrival);
    Ok(())
}

/// The one slot, of which an operation may have taken two pieces; none if the bytes were inline.
fn whole(mut buffers: Buffers) -> Result<Option<Slice>, Fault> {
    Ok(match (buffers.take_slice(), buffers.take_slice()) {
        (Some(head), Some(tail)) => Some(head.unsplit(tail)?),
        (slot, _) => slot,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_writes_that_nobody_waits_for_is_told_and_not_kept() {
        let mut arrivals = Vec::new();
        let arrival = || Arrival { imm: Some(7), message: None };
        (0..RECEIVES).for_each(|_| expected(&mut arrivals, arrival()).unwrap());
        let fault = expected(&mut arrivals, arrival()).unwrap_err();
        assert!(matches!(&fault, Fault::Protocol(_)) && fault.to_string().contains("32"), "{fault}");
        assert_eq!(arrivals.len(), RECEIVES);
    }
}
