//! What an operation is, in the verbs' numbers: for bindings to C.
//!
//! Operations that EFA lacks (atomics, memory windows; R29) are not named here and stay numbers.

#![forbid(unsafe_code)]

use crate::flags::SendOps;
use crate::numbered::numbered;

numbered! {
    /// What is asked of a queue pair (`ibv_wr_opcode`).
    pub enum WrOpcode: u32, "work request opcode" {
        /// RDMA write.
        RdmaWrite = 0, "IBV_WR_RDMA_WRITE";
        /// RDMA write with immediate.
        RdmaWriteWithImm = 1, "IBV_WR_RDMA_WRITE_WITH_IMM";
        /// SEND.
        Send = 2, "IBV_WR_SEND";
        /// SEND with immediate.
        SendWithImm = 3, "IBV_WR_SEND_WITH_IMM";
        /// RDMA read.
        RdmaRead = 4, "IBV_WR_RDMA_READ";
    }
}

impl WrOpcode {
    /// What a queue pair must have been made with to post it (R06); nothing for an unknown one.
    pub const fn needs(self) -> SendOps {
        match self {
            Self::RdmaWrite => SendOps::RDMA_WRITE,
            Self::RdmaWriteWithImm => SendOps::RDMA_WRITE_WITH_IMM,
            Self::Send => SendOps::SEND,
            Self::SendWithImm => SendOps::SEND_WITH_IMM,
            Self::RdmaRead => SendOps::RDMA_READ,
            Self::Unknown(_) => SendOps::empty(),
        }
    }
}

numbered! {
    /// What was completed (`ibv_wc_opcode`).
    ///
    /// libefa reports a finished RDMA read as [`WcOpcode::Send`]; the operation type in the completion itself
    /// tells which it was.
    pub enum WcOpcode: u32, "work completion opcode" {
        /// A SEND, with or without immediate; from libefa also an RDMA read.
        Send = 0, "IBV_WC_SEND";
        /// An RDMA write, with or without immediate.
        RdmaWrite = 1, "IBV_WC_RDMA_WRITE";
        /// An RDMA read.
        RdmaRead = 2, "IBV_WC_RDMA_READ";
        /// A SEND arrived.
        Recv = 128, "IBV_WC_RECV";
        /// An RDMA write with immediate arrived.
        RecvRdmaWithImm = 129, "IBV_WC_RECV_RDMA_WITH_IMM";
    }
}

impl WcOpcode {
    /// Whether it tells of an arrival rather than of something posted to the send queue.
    pub const fn is_arrival(self) -> bool {
        self.number() & 0x80 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_kept_whether_known_or_not() {
        for number in (0..=300).chain([u32::MAX]) {
            assert_eq!(WrOpcode::from_number(number).number(), number);
            assert_eq!(WcOpcode::from_number(number).number(), number);
            assert_eq!(matches!(WrOpcode::from_number(number), WrOpcode::Unknown(_)), number > 4);
        }
        assert!(WrOpcode::ALL.iter().map(|op| op.number()).eq(0..=4));
        assert!(WcOpcode::ALL.iter().map(|op| op.number()).eq([0, 1, 2, 128, 129]));
    }

    #[test]
    fn r06_an_opcode_needs_the_bit_of_its_own_number() {
        assert!(WrOpcode::ALL.iter().all(|op| u32::from(op.needs().bits()) == 1 << op.number()));
        assert!(WrOpcode::Unknown(5).needs().is_empty());
    }

    #[test]
    fn arrivals_are_told_from_completed_sends() {
        assert!(WcOpcode::Recv.is_arrival() && WcOpcode::RecvRdmaWithImm.is_arrival());
        assert!(!WcOpcode::Send.is_arrival() && !WcOpcode::RdmaWrite.is_arrival() && !WcOpcode::RdmaRead.is_arrival());
    }
}
