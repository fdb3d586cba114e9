//! A device elsewhere: the socket that reaches it, and the frame that waits for room there.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use efa_core::Gid;

use super::fabric::Fabric;
use super::files::Socket;

/// Microseconds until a frame without room is tried again the first time; then twice as long each time, up to the other.
const RETRY: (u64, u64) = (50, 10_000);
/// Microseconds without room after which new frames are lost.
const STUCK: u64 = 1_000_000;

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    Yes,
    /// There is no room; it is kept.
    Full,
    /// It is gone, as frames may be.
    Lost,
    /// Nobody has the address.
    Nobody,
}

/// A frame without room.
#[derive(Debug)]
struct Waiting {
    frame: Vec<u8>,
    since: u64,
    again: u64,
    wait: u64,
}

#[derive(Debug)]
pub(super) struct Peer {
    gid: Gid,
    /// Its own, so that frames which one peer does not take fill nobody else's queue.
    socket: Option<Socket>,
    waiting: Option<Waiting>,
    used: u64,
}

impl Peer {
    pub(super) fn new(gid: Gid) -> Self {
        Self { gid, socket: None, waiting: None, used: 0 }
    }

    pub(super) fn gid(&self) -> Gid {
        self.gid
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether it may yet have room for new frames if they wait.
    pub(super) fn is_busy(&self, now: u64) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| now.saturating_sub(waiting.since) < STUCK)
    }

    pub(super) fn retries_at(&self) -> Option<u64> {
        self.waiting.as_ref().map(|waiting| waiting.again)
    }

    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(|socket| socket.as_fd())
    }

    /// Sends a frame, or keeps it.
    pub(super) fn send(&mut self, fabric: &Fabric, now: u64, frame: &[u8], pass: u64) -> Sent {
        self.used = pass;
        if self.waiting.is_some() {
            return Sent::Lost;
        }
        let sent = self.try_send(fabric, frame);
        if sent == Sent::Full {
            let (wait, _) = RETRY;
            self.waiting = Some(Waiting { frame: frame.to_vec(), since: now, again: now.saturating_add(wait), wait });
        }
        sent
    }

    /// Sends the frame that waits, if there may be room, or it is time to see.
    pub(super) fn retry(&mut self, fabric: &Fabric, now: u64, has_room: bool) -> Option<Sent> {
        let mut waiting = self.waiting.take_if(|waiting| has_room || now >= waiting.again)?;
        let sent = self.try_send(fabric, &waiting.frame);
        if sent == Sent::Full {
            if now >= waiting.again {
                waiting.wait = (2 * waiting.wait).min(RETRY.1);
                waiting.again = now.saturating_add(waiting.wait);
            }
            self.waiting = Some(waiting);
            return None;
        }
        Some(sent)
    }

    fn try_send(&mut self, fabric: &Fabric, frame: &[u8]) -> Sent {
        // Twice: who was there may be gone, and another be there.
        for _ in 0..2 {
            let is_new = self.socket.is_none();
            let sent = self.connected(fabric).and_then(|socket| socket.send(frame));
            let error = match sent {
                Ok(_) => return Sent::Yes,
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::WouldBlock => return Sent::Full,
                ErrorKind::Interrupted => {}
                ErrorKind::ConnectionRefused | ErrorKind::NotFound | ErrorKind::NotConnected => {
                    self.socket = None;
                    if is_new {
                        return Sent::Nobody;
                    }
                }
                _ => return Sent::Lost,
            }
        }
        Sent::Lost
    }

    fn connected(&mut self, fabric: &Fabric) -> io::Result<&Socket> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => Socket::connected(&fabric.address(&self.gid)?)?,
        };
        Ok(self.socket.insert(socket))
    }
}
