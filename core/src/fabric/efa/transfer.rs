//! The bytes of what is long: fetched by RDMA, or cleared and received.

use super::emit::READ;
use super::packet::{Clear, Done, Finish};
use super::tables::{Due, Receives, Sends, Stage, join};
use super::{Efa, Id, PeerFeatures};
use crate::fabric::{Carries, Denied, Memory, Violation, Why};
use crate::flags::Access;
use crate::memory::{RemoteRead, RemoteWrite, Slice};
use crate::provider::Provider;
use crate::wire::GrantFrame;
use crate::work::Failure;
use crate::{Error, Token};

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Efa<P, K, S, T, PEERS, OPERATIONS>
{
    /// Begins to fetch what was announced.
    pub(super) fn fetch(&mut self, inbound: Id, grant: Option<&GrantFrame>) -> Result<(), Violation> {
        let Some(entry) = self.inbound.get_mut(inbound) else { return Ok(()) };
        let Some(state) = self.peers.get(entry.peer) else { return Ok(()) };
        if entry.failed.is_some() || entry.total == 0 {
            // Too long for its receive, or nothing to fetch: its sender is done.
            self.set_due(inbound, Due::Done(0));
            return Ok(());
        }
        let window = match grant {
            Some(grant) if state.features.contains(PeerFeatures::READ) => {
                let window = state.peer.window::<RemoteRead>(grant.as_bytes()).map_err(Violation::Grant)?;
                // What it says that there is decides nothing here: its own bounds do.
                Some(window.range(0..entry.total).map_err(Violation::Grant)?)
            }
            _ => None,
        };
        let registered = matches!(entry.target, Some(Memory::Slice(_) | Memory::Exposed(_)));
        let due = match window {
            Some(window) if registered => {
                entry.window = Some(window);
                Due::Read
            }
            _ => {
                entry.writable = match &entry.target {
                    Some(Memory::Exposed(bytes)) => {
                        state.features.contains(PeerFeatures::WRITE) && bytes.access().contains(Access::REMOTE_WRITE)
                    }
                    _ => false,
                };
                Due::Clear
            }
        };
        self.set_due(inbound, due);
        Ok(())
    }

    /// Posts the next read; whether there is no room for it.
    pub(super) fn post_read(&mut self, inbound: Id) -> bool {
        if !self.endpoint.can_post() {
            return true;
        }
        let max = u64::from(self.endpoint.max_rdma_size());
        let Some(entry) = self.inbound.get_mut(inbound) else { return false };
        let Some(state) = self.peers.get_mut(entry.peer) else { return false };
        let len = max.min(entry.total - entry.received);
        let range = entry.received..entry.received + len;
        let token = Token(READ | u64::from(inbound.to_bits()));
        let Some(window) = entry.window.and_then(|window| window.range(range.clone()).ok()) else { return false };
        let posted = match entry.target.take() {
            Some(Memory::Exposed(bytes)) => {
                let part = bytes.part(range.start as usize..range.end as usize);
                entry.target = Some(Memory::Exposed(bytes));
                part.and_then(|part| K::read(&mut self.endpoint, &state.peer, part, window, token).map_err(Error::from))
            }
            Some(Memory::Plain(bytes)) => {
                entry.target = Some(Memory::Plain(bytes));
                Err(Error::NotWhole { has: 0, needs: len })
            }
            slice => {
                let rest = match slice {
                    Some(Memory::Slice(slice)) => Some(slice),
                    _ => entry.parts[1].take(),
                };
                match rest.map(|rest| rest.split_at(len as usize)) {
                    Some(Ok((now, rest))) => {
                        entry.parts[1] = Some(rest);
                        K::read(&mut self.endpoint, &state.peer, now, window, token).map_err(|refused| {
                            let (now, error) = refused.into_parts();
                            entry.parts[1] = join(Some(now), entry.parts[1].take());
                            error
                        })
                    }
                    Some(Err(refused)) => {
                        let (rest, error) = refused.into_parts();
                        entry.parts[1] = Some(rest);
                        Err(error)
                    }
                    None => Err(Error::NotWhole { has: 0, needs: len }),
                }
            }
        };
        match posted {
            Ok(()) => {
                entry.in_flight = true;
                state.in_flight += 1;
                self.set_due(inbound, Due::Nothing);
            }
            Err(error) => {
                self.set_due(inbound, Due::Nothing);
                self.fail_fetch(inbound, Why::Refused(error));
            }
        }
        false
    }

    /// A read is here, or failed.
    pub(super) fn read_done(&mut self, inbound: Id, slice: Option<Slice>, len: usize, failure: Option<Failure>) {
        let Some(entry) = self.inbound.get_mut(inbound) else { return };
        entry.in_flight = false;
        let peer = entry.peer;
        if let Some(slice) = slice {
            entry.parts[0] = join(entry.parts[0].take(), Some(slice));
        }
        if let Some(state) = self.peers.get_mut(peer) {
            state.in_flight = state.in_flight.saturating_sub(1);
        }
        match failure {
            _ if entry.failed.is_some() => self.settle_inbound(inbound),
            Some(failure) => {
                self.fail_fetch(inbound, Why::Device(failure));
                self.judge(peer, failure);
            }
            None => {
                entry.received += len as u64;
                self.counters.read += len as u64;
                if entry.received < entry.total {
                    self.set_due(inbound, Due::Read);
                } else {
                    self.complete(inbound);
                }
            }
        }
    }

    /// What was fetched cannot be.
    fn fail_fetch(&mut self, inbound: Id, why: Why) {
        let Some(entry) = self.inbound.get_mut(inbound) else { return };
        entry.failed.get_or_insert(why);
        match entry.what {
            Receives::Long | Receives::Put => self.set_due(inbound, Due::Done(Denied::Failed.to_number())),
            _ => self.settle_inbound(inbound),
        }
    }

    /// All is here: the peer is told, where it waits for that.
    fn complete(&mut self, inbound: Id) {
        match self.inbound.get(inbound).map(|entry| entry.what) {
            Some(Receives::Long | Receives::Put) => self.set_due(inbound, Due::Done(0)),
            _ => self.settle_inbound(inbound),
        }
    }

    /// Bytes of a message, a put or a get.
    pub(super) fn put_in(&mut self, inbound: Id, total: u64, offset: u64, payload: &[u8]) -> Result<(), Violation> {
        let Some(entry) = self.inbound.get_mut(inbound) else { return Ok(()) };
        let len = payload.len() as u64;
        let within = match entry.what {
            Receives::Segments(_) => entry.total,
            _ => entry.cleared,
        };
        let fits = offset.checked_add(len).is_some_and(|end| end <= within);
        // More than is missing has been here before.
        if !fits || total != entry.total || len > entry.total - entry.received {
            return Err(Violation::Beyond { offset, len, within });
        }
        if entry.failed.is_none() {
            self.counters.copied += len;
            if !entry.target.as_mut().is_some_and(|target| target.copy_in(offset as usize, payload)) {
                entry.failed = Some(Why::Shrunk);
            }
        }
        entry.received += len;
        let packet = self.packet as u64;
        if entry.received == entry.total {
            self.complete(inbound);
        } else if matches!(entry.what, Receives::Long | Receives::Put)
            && entry.cleared < entry.total
            && entry.cleared - entry.received <= super::serve::CLEARED / 2 * packet
            && entry.due == Due::Nothing
        {
            self.set_due(inbound, Due::Clear);
        }
        Ok(())
    }

    /// What a peer sends data for.
    pub(super) fn receiving(&self, id: Id, name: u32) -> Result<Id, Violation> {
        let inbound = Id::from_bits(name);
        match self.inbound.get(inbound) {
            // Nothing else is ever cleared than long messages, puts and gets.
            Some(entry) if entry.peer == id && entry.cleared > 0 => Ok(inbound),
            _ => Err(Violation::UnknownOperation(name)),
        }
    }

    /// A peer clears a message or a put.
    pub(super) fn cleared(&mut self, id: Id, clear: &Clear, grant: Option<&GrantFrame>) -> Result<(), Violation> {
        let name = clear.id.get();
        let send = Id::from_bits(name);
        let unknown = Violation::UnknownOperation(name);
        let Some(state) = self.peers.get(id) else { return Err(unknown) };
        let Some(entry) = self.sends.get_mut(send).filter(|entry| entry.peer == id) else { return Err(unknown) };
        if !matches!(entry.what, Sends::Message(_) | Sends::Put { .. }) || entry.stage == Stage::Queued {
            return Err(unknown);
        }
        let upto = clear.upto.get();
        if upto > entry.total {
            return Err(Violation::Beyond { offset: upto, len: 0, within: entry.total });
        }
        if entry.stage != Stage::Asked {
            // Clears pass one another.
            entry.upto = entry.upto.max(upto);
            self.attend(id);
            return Ok(());
        }
        let window = match grant {
            Some(grant) if state.features.contains(PeerFeatures::WRITE) => {
                let window = state.peer.window::<RemoteWrite>(grant.as_bytes()).map_err(Violation::Grant)?;
                Some(window.range(0..entry.total).map_err(Violation::Grant)?)
            }
            _ => None,
        };
        (entry.to, entry.upto) = (clear.to.get(), upto);
        entry.source = core::mem::replace(&mut entry.source, super::Source::Nothing).share();
        entry.window = window.filter(|_| entry.source.is_registered());
        let stage = if entry.window.is_some() { Stage::Writing } else { Stage::Streaming };
        self.set_stage(send, stage);
        Ok(())
    }

    /// A message or a put is over for its receiver.
    pub(super) fn done(&mut self, id: Id, done: &Done) -> Result<(), Violation> {
        let name = done.id.get();
        let send = Id::from_bits(name);
        let unknown = Violation::UnknownOperation(name);
        let Some(entry) = self.sends.get_mut(send).filter(|entry| entry.peer == id) else { return Err(unknown) };
        let denied = Denied::from_number(done.status.get());
        let may = match entry.stage {
            Stage::Asked | Stage::Out => true,
            Stage::Streaming | Stage::Writing | Stage::Finishing => denied.is_some(),
            Stage::Queued | Stage::Done => false,
        };
        if !may || !matches!(entry.what, Sends::Message(_) | Sends::Put { .. }) {
            return Err(unknown);
        }
        if let Some(denied) = denied {
            entry.failed.get_or_insert(Why::Denied(denied));
        }
        self.set_stage(send, Stage::Done);
        self.settle_send(send);
        Ok(())
    }

    /// Nothing more comes of what was cleared or got.
    pub(super) fn finished(&mut self, id: Id, finish: &Finish) -> Result<(), Violation> {
        let name = finish.to.get();
        let inbound = self.receiving(id, name).or_else(|error| {
            // A get of nothing cleared nothing.
            let empty = |entry: &super::Inbound<T>| entry.peer == id && entry.total == 0 && entry.due == Due::Nothing;
            let inbound = Id::from_bits(name);
            self.inbound.get(inbound).filter(|entry| empty(entry)).map(|_| inbound).ok_or(error)
        })?;
        let Some(entry) = self.inbound.get_mut(inbound) else { return Ok(()) };
        let denied = Denied::from_number(finish.status.get());
        match denied {
            Some(denied) => {
                entry.failed.get_or_insert(Why::Denied(denied));
                self.set_due(inbound, Due::Nothing);
                self.settle_inbound(inbound);
            }
            // It wrote all of it.
            None if entry.writable || entry.total == 0 => {
                entry.received = entry.total;
                self.complete(inbound);
            }
            None => return Err(Violation::UnknownOperation(name)),
        }
        Ok(())
    }
}
