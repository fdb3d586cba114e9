//! What a completion says of its operation.

#![forbid(unsafe_code)]

mod wc;

use core::fmt;

pub use wc::WcStatus;

/// EFA's own completion status: the byte in the completion, which tells more than the verbs' status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CompletionStatus {
    /// Done.
    Ok,
    /// Not done: its queue pair ended or failed first.
    Flushed,
    /// The local queue pair failed inside the device.
    LocalQpInternalError,
    /// Not an operation of this device, or of a queue pair made as this one was.
    LocalUnsupportedOp,
    /// The local address handle is not valid.
    LocalInvalidAh,
    /// The local buffer is not one that its key opens for this.
    LocalInvalidLkey,
    /// Longer than the device takes.
    LocalBadLength,
    /// The remote key opens nothing at the peer, or not this range for this.
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

    /// The verbs' status that stands for it.
    ///
    /// libefa of rdma-core 44 says [`WcStatus::GeneralErr`] for 7, 14, 15 and 18, and two statuses share one in
    /// any version: decide by this type, not by the verbs' status.
    pub const fn wc_status(self) -> WcStatus {
        match self {
            Self::Ok => WcStatus::Success,
            Self::Flushed => WcStatus::WrFlushErr,
            Self::LocalQpInternalError | Self::LocalUnsupportedOp | Self::LocalInvalidAh => WcStatus::LocQpOpErr,
            Self::LocalInvalidLkey => WcStatus::LocProtErr,
            Self::LocalBadLength => WcStatus::LocLenErr,
            Self::RemoteBadAddress => WcStatus::RemAccessErr,
            Self::RemoteAbort => WcStatus::RemAbortErr,
            Self::RemoteBadDestQpn => WcStatus::RemInvRdReqErr,
            Self::RemoteRnr => WcStatus::RnrRetryExcErr,
            Self::RemoteBadLength | Self::RemoteFeatureMismatch => WcStatus::RemInvReqErr,
            Self::RemoteBadStatus => WcStatus::BadRespErr,
            Self::LocalUnrespRemote | Self::LocalUnreachRemote => WcStatus::RespTimeoutErr,
            Self::RemoteUnknownPeer => WcStatus::RemOpErr,
            Self::Unknown(_) => WcStatus::GeneralErr,
        }
    }

    /// What happened.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Ok => "done",
            Self::Flushed => {
                "not done: the queue pair was destroyed, or went to the error state, while this was in flight"
            }
            Self::LocalQpInternalError => "the local queue pair failed inside the device",
            Self::LocalUnsupportedOp => "the device, or the local queue pair as it was made, cannot do this operation",
            Self::LocalInvalidAh => "the local address handle was destroyed, or is of another protection domain",
            Self::LocalInvalidLkey => {
                "local memory is not registered in this protection domain, lacks the access, \
                 or the range is outside the region"
            }
            Self::LocalBadLength => "longer than the device takes",
            Self::RemoteBadAddress => {
                "the peer does not know the remote key, the key lacks the access, or the range is outside its region"
            }
            Self::RemoteAbort => "the peer's device reset the connection",
            Self::RemoteBadDestQpn => "remote queue pair gone: the peer exited, restarted or is not ready",
            Self::RemoteRnr => "the peer had no receive posted and the retries ran out",
            Self::RemoteBadLength => "the peer's receive is shorter than the message",
            Self::RemoteBadStatus => "the peer's device answered with a status that does not belong here",
            Self::LocalUnrespRemote => "the peer answered before and has stopped answering",
            Self::RemoteUnknownPeer => {
                "the other side has not resolved us: it holds no address handle for this device, and RDMA needs one"
            }
            Self::LocalUnreachRemote => "the peer has never answered",
            Self::RemoteFeatureMismatch => {
                "feature mismatch: one queue pair was made with unsolicited write receive and the other without"
            }
            Self::Unknown(_) => "the device reports a status that this version does not know",
        }
    }

    /// What to do about it.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Ok => "nothing to do",
            Self::Flushed => "look at the first failure before it, that is the cause; if there is none, it was closed",
            Self::LocalQpInternalError => {
                "make a new queue pair; if it happens again, look in the kernel log and update the EFA driver"
            }
            Self::LocalUnsupportedOp => {
                "ask for the operation when the queue pair is made, and check the device's capabilities"
            }
            Self::LocalInvalidAh => "resolve the peer again, in the protection domain of this queue pair",
            Self::LocalInvalidLkey => {
                "keep the region registered until the completion; receive and read targets need local write access"
            }
            Self::LocalBadLength => {
                "split it: a SEND is at most the port's max_msg_sz, an RDMA operation at most max_rdma_size"
            }
            Self::RemoteBadAddress => {
                "ask the peer for a new grant: it may have revoked this one or restarted; check offset and length"
            }
            Self::RemoteAbort => "find out at the peer why; then exchange addresses again",
            Self::RemoteBadDestQpn => {
                "look at the peer's process (exit status, out-of-memory kill), then exchange addresses again; \
                 publish an address only after the move to RTR, and use it on a queue pair of its own type, SRD or UD"
            }
            Self::RemoteRnr => {
                "let the peer post more receives and earlier, limit what is in flight, or raise the RNR retry count"
            }
            Self::RemoteBadLength => "post receives at the peer that hold the longest message, or send less at once",
            Self::RemoteBadStatus => "update the EFA driver and firmware on both sides; report it if it stays",
            Self::LocalUnrespRemote => {
                "look whether the peer's process and host are alive; then exchange addresses again. If it \
                 happens at the start of a run, check the security group as for status 15"
            }
            Self::RemoteUnknownPeer => {
                "let the peer resolve this endpoint's hello and confirm its ready frame before any RDMA; \
                 the peer must keep the resolved peer alive"
            }
            Self::LocalUnreachRemote => {
                "check that the security group has two rules for all traffic (protocol -1) whose other end is the \
                 group itself, one inbound and one outbound: rules for address ranges, or for TCP, UDP and ICMP, do \
                 not count for EFA; that both are in one subnet, or at least one zone and VPC; and that the \
                 address is the peer's and the peer is up"
            }
            Self::RemoteFeatureMismatch => {
                "make both queue pairs with the same features; mixed driver or rdma-core versions are the usual reason"
            }
            Self::Unknown(_) => "look the number up in a newer rdma-core (efa_io_comp_status) and report it",
        }
    }
}

impl fmt::Display for CompletionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}: {}", self.number(), self.cause())?;
        if matches!(self, Self::Ok) { Ok(()) } else { write!(f, "; {}", self.remedy()) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::BTreeSet;
    use std::string::{String, ToString};

    #[test]
    fn h19_every_status_has_its_number_its_verbs_status_and_words_of_its_own() {
        const TABLE: [(u8, u32); 17] = [
            (0, 0),
            (1, 5),
            (2, 2),
            (3, 2),
            (4, 2),
            (5, 4),
            (6, 1),
            (7, 10),
            (8, 16),
            (9, 15),
            (10, 13),
            (11, 9),
            (12, 7),
            (13, 20),
            (14, 11),
            (15, 20),
            (18, 9),
        ];
        let texts: BTreeSet<String> = CompletionStatus::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), TABLE.len());
        for (status, (number, verbs)) in CompletionStatus::ALL.into_iter().zip(TABLE) {
            assert_eq!((status.number(), status.wc_status().number()), (number, verbs), "{status:?}");
            assert_eq!(CompletionStatus::from_number(number), status);
            assert!(status.to_string().starts_with(&std::format!("status {number}: ")));
        }
    }

    #[test]
    fn a_status_this_crate_does_not_know_keeps_its_number() {
        for number in 0..=u8::MAX {
            let status = CompletionStatus::from_number(number);
            assert_eq!(status.number(), number);
            assert_eq!(matches!(status, CompletionStatus::Unknown(_)), number > 15 && number != 18);
            assert!(status.to_string().contains(&number.to_string()));
        }
        assert_eq!(CompletionStatus::Unknown(16).wc_status(), WcStatus::GeneralErr);
    }

    #[test]
    fn the_words_name_what_the_user_can_change() {
        let says = |number, words: &[&str]| {
            let text = CompletionStatus::from_number(number).to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        };
        says(9, &["remote queue pair gone", "exited", "restarted", "not ready"]); // H20
        says(13, &["answered before", "stopped"]); // H19
        says(14, &["the other side has not resolved us"]); // H01
        says(15, &["never", "security group", "inbound", "outbound", "itself", "protocol -1", "do not count"]); // H28
        says(18, &["feature mismatch", "unsolicited"]); // H33
    }
}
