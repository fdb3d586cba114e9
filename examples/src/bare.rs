//! The whole stack without an operating system or an allocator: two endpoints in static memory, and a SEND, an RDMA
//! write and an RDMA read between them.
//!
//! The program `bare` links it for bare targets. On a host it runs as a test, once, since its memory is static.

use efa_core::flow::Arrivals;
use efa_core::memory::{Arena, RemoteReadWrite};
use efa_core::qp::Depth;
use efa_core::soft::{Profile, Storage};
use efa_core::work::{Event, Failure};
use efa_core::{Context, Error, Token};

use crate::pattern::{Mismatch, Pattern};
use efa_core::connect::connect;

static WIRE: Storage<2, 8, 6> = Storage::new();
static SOURCE: Arena<256> = Arena::new();
static TARGET: Arena<256> = Arena::new();
static SHARED: Arena<256> = Arena::new();

/// What was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Bytes of the SEND that arrived.
    pub sent: usize,
    /// Bytes of the RDMA write.
    pub written: usize,
    /// Bytes of the RDMA read.
    pub read: usize,
}

/// Why it did not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A call was refused.
    Refused(Error),
    /// An operation failed.
    Failed(Failure),
    /// The bytes are others.
    Mismatch(Mismatch),
    /// Another completion came than was asked for, or none.
    Lost,
}

impl<E: Into<Error>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// Sends, writes and reads, and verifies each by its content.
///
/// # Errors
/// [`Error::AlreadyStarted`] from the second call on, or what went wrong.
pub fn run() -> Result<Report, Fault> {
    let device = WIRE.start(Profile::RDMA)?;
    let contexts = [Context::open(device.neighbour()?), Context::open(device)];
    let [mut a, mut b] = connect(contexts, Depth::new(8, 8))?;

    // A SEND of one message, into a receive of the other side.
    let (_, mut source) = a.pd.register(SOURCE.take()?)?;
    let (_, target) = b.pd.register(TARGET.take()?)?;
    let message = Pattern::new(1, 0);
    message.fill(&mut source);
    b.endpoint.post_recv(target, Token(0))?;
    a.endpoint.post(a.peer.send(source), Token(0))?;
    let (mut source, mut sent) = (None, None);
    let mut both = Arrivals::expect(2);
    while !both.all_here() {
        match a.endpoint.poll().or_else(|| b.endpoint.poll()) {
            Some(Event::Sent(mut done)) => source = done.buffers.take_slice(),
            Some(Event::Received(mut arrived)) => {
                let bytes = arrived.buffers.take_slice().ok_or(Fault::Lost)?;
                message.verify(bytes.get(..arrived.len).ok_or(Fault::Lost)?).map_err(Fault::Mismatch)?;
                sent = Some(arrived.len);
            }
            event => {
                unexpected(event)?;
                continue;
            }
        }
        both.arrived()?;
    }
    let (mut source, sent) = source.zip(sent).ok_or(Fault::Lost)?;

    // An RDMA write into memory that the other side exposes, and an RDMA read of it.
    let shared = b.pd.expose(SHARED.take()?, b.ctx.require::<RemoteReadWrite>()?)?;
    let window = a.peer.window::<RemoteReadWrite>(shared.grant(&b.endpoint)?.as_bytes())?;
    let content = Pattern::new(1, 1);
    content.fill(&mut source);
    let written = source.len();
    a.endpoint.post(a.peer.write(source, window), Token(1))?;
    let mut target = loop {
        match a.endpoint.poll() {
            Some(Event::Written(mut done)) => break done.buffers.take_slice().ok_or(Fault::Lost)?,
            event => unexpected(event)?,
        }
    };
    target.fill(0);
    a.endpoint.post(a.peer.read(target, window), Token(2))?;
    let target = loop {
        match a.endpoint.poll() {
            Some(Event::Read(mut done)) => break done.buffers.take_slice().ok_or(Fault::Lost)?,
            event => unexpected(event)?,
        }
    };
    content.verify(&target).map_err(Fault::Mismatch)?;
    Ok(Report { sent, written, read: target.len() })
}

/// Nothing yet is fine; anything else was not asked for.
fn unexpected(event: Option<Event>) -> Result<(), Fault> {
    match event {
        None => Ok(()),
        Some(Event::Failed { failure, .. }) => Err(Fault::Failed(failure)),
        Some(_) => Err(Fault::Lost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_every_byte_once_and_its_static_memory_starts_once() {
        assert_eq!(run(), Ok(Report { sent: 256, written: 256, read: 256 }));
        assert_eq!(run(), Err(Fault::Refused(Error::AlreadyStarted)));
    }
}
