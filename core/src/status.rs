//! What a completion says of its operation.

#![forbid(unsafe_code)]

/// EFA's own completion status: the byte in the completion, which tells more than the verbs' status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CompletionStatus {
    /// Done.
    Ok,
    /// The queue pair was destroyed or moved to ERR while this was in flight.
    Flushed,
    /// Internal error of the local queue pair.
    LocalQpInternalError,
    /// The device or this queue pair cannot do that operation.
    LocalUnsupportedOp,
    /// The local address handle is not valid.
    LocalInvalidAh,
    /// Local memory is not registered, lacks the access, or the range is outside it.
    LocalInvalidLkey,
    /// Longer than the device takes.
    LocalBadLength,
    /// The remote key is unknown, lacks the access, or the range is outside it.
    RemoteBadAddress,
    /// The remote side reset the connection.
    RemoteAbort,
    /// No such queue pair at the peer.
    RemoteBadDestQpn,
    /// The peer has no receive posted.
    RemoteRnr,
    /// The peer's receive is too short.
    RemoteBadLength,
    /// Unexpected status from the responder.
    RemoteBadStatus,
    /// The peer answered before and stopped.
    LocalUnrespRemote,
    /// The peer has no address handle for us.
    RemoteUnknownPeer,
    /// Never heard from the peer.
    LocalUnreachRemote,
    /// The two queue pairs have different feature sets.
    RemoteFeatureMismatch,
    /// A number this crate does not know.
    Unknown(u8),
}

impl CompletionStatus {
    /// All that are known, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Flushed,
        Self::LocalQpInternalError,
        Self::LocalUnsupportedOp,
        Self::LocalInvalidAh,
        Self::LocalInvalidLkey,
        Self::LocalBadLength,
        Self::RemoteBadAddress,
        Self::RemoteAbort,
        Self::RemoteBadDestQpn,
        Self::RemoteRnr,
        Self::RemoteBadLength,
        Self::RemoteBadStatus,
        Self::LocalUnrespRemote,
        Self::RemoteUnknownPeer,
        Self::LocalUnreachRemote,
        Self::RemoteFeatureMismatch,
    ];

    /// The device's number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Flushed => 1,
            Self::LocalQpInternalError => 2,
            Self::LocalUnsupportedOp => 3,
            Self::LocalInvalidAh => 4,
            Self::LocalInvalidLkey => 5,
            Self::LocalBadLength => 6,
            Self::RemoteBadAddress => 7,
            Self::RemoteAbort => 8,
            Self::RemoteBadDestQpn => 9,
            Self::RemoteRnr => 10,
            Self::RemoteBadLength => 11,
            Self::RemoteBadStatus => 12,
            Self::LocalUnrespRemote => 13,
            Self::RemoteUnknownPeer => 14,
            Self::LocalUnreachRemote => 15,
            Self::RemoteFeatureMismatch => 18,
            Self::Unknown(number) => number,
        }
    }

    /// The status of a device's number.
    pub const fn from_number(number: u8) -> Self {
        match number {
            0..=15 => Self::ALL[number as usize],
            18 => Self::RemoteFeatureMismatch,
            _ => Self::Unknown(number),
        }
    }
}
