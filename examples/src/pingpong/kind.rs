//! The kinds of queue pair that the cases run on: what a device and its library have between them.

use core::fmt::Debug;

use efa_core::flags::SendOps;
use efa_core::memory::{RemoteAccess, RemoteRead, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::{Endpoint, HasSend, HasSendImm, QpKind, SendOnly, Solicited, Srd, ops};
use efa_core::{Caps, Provider, Token};

use super::case::Operation;
use crate::fault::Fault;

/// SEND and RDMA read: what libraries before rdma-core 46 have of any device.
pub(super) type SendRead = Srd<{ ops::SEND | ops::SEND_WITH_IMM | ops::RDMA_READ }>;

/// A kind of queue pair that cases run on.
pub(super) trait Kind: HasSend + HasSendImm + QpKind<Features = Solicited> + Sized {
    /// What the other side may do with memory.
    type Access: RemoteAccess + Debug;

    /// Posts an RDMA operation, if the kind has it.
    fn post<P: Provider>(
        to: &mut To<'_, P, Self>,
        operation: Operation,
        content: Slice,
        window: RemoteWindow<Self::Access>,
    ) -> Result<(), Fault>;
}

/// Where an operation goes, and what comes with it.
pub(super) struct To<'e, P: Provider, K: Kind> {
    pub(super) endpoint: &'e mut Endpoint<P, K>,
    pub(super) peer: &'e Peer<Mutual, Solicited>,
    pub(super) token: Token,
    pub(super) imm: u32,
}

impl Kind for Srd {
    type Access = RemoteReadWrite;

    fn post<P: Provider>(
        to: &mut To<'_, P, Self>,
        operation: Operation,
        content: Slice,
        window: RemoteWindow<RemoteReadWrite>,
    ) -> Result<(), Fault> {
        let To { endpoint, peer, token, imm } = to;
        match operation {
            Operation::Read => endpoint.post(peer.read(content, window), *token)?,
            Operation::Write => endpoint.post(peer.write(content, window), *token)?,
            Operation::WriteImm => endpoint.post(peer.write(content, window).imm(*imm), *token)?,
            other => return Err(lacks(other)),
        }
        Ok(())
    }
}

impl Kind for SendRead {
    type Access = RemoteRead;

    fn post<P: Provider>(
        to: &mut To<'_, P, Self>,
        operation: Operation,
        content: Slice,
        window: RemoteWindow<RemoteRead>,
    ) -> Result<(), Fault> {
        match operation {
            Operation::Read => to.endpoint.post(to.peer.read(content, window), to.token)?,
            other => return Err(lacks(other)),
        }
        Ok(())
    }
}

impl Kind for SendOnly {
    // None is ever made.
    type Access = RemoteRead;

    fn post<P: Provider>(
        _: &mut To<'_, P, Self>,
        operation: Operation,
        _: Slice,
        _: RemoteWindow<RemoteRead>,
    ) -> Result<(), Fault> {
        Err(lacks(operation))
    }
}

fn lacks(operation: Operation) -> Fault {
    Fault::Protocol(format!("{operation} on a queue pair that has none"))
}

/// Whether queue pairs of this kind have the operation.
pub(super) fn has<K: Kind>(operation: Operation) -> bool {
    K::OPS.contains(match operation {
        Operation::Send | Operation::SendInline | Operation::SendTwo => SendOps::SEND,
        Operation::SendImm => SendOps::SEND_WITH_IMM,
        Operation::Read => SendOps::RDMA_READ,
        Operation::Write => SendOps::RDMA_WRITE,
        Operation::WriteImm => SendOps::RDMA_WRITE_WITH_IMM,
    })
}

/// Which kind devices with these capabilities have between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Common {
    All,
    SendRead,
    SendOnly,
}

impl Common {
    pub(super) fn of(caps: Caps) -> Self {
        match (caps.contains(Caps::RDMA_READ), caps.contains(Caps::RDMA_WRITE)) {
            (true, true) => Self::All,
            (true, false) => Self::SendRead,
            (false, _) => Self::SendOnly,
        }
    }
}
