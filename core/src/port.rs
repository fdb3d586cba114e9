//! What a port's query answers, in the verbs' numbers.

#![forbid(unsafe_code)]

use crate::numbered::numbered;

numbered! {
    /// The port's packet size (`ibv_mtu`). It bounds no message: a SEND may be longer (R11).
    pub enum Mtu: u32, "MTU" {
        /// 256 bytes.
        Bytes256 = 1, "256";
        /// 512 bytes.
        Bytes512 = 2, "512";
        /// 1024 bytes.
        Bytes1024 = 3, "1024";
        /// 2048 bytes.
        Bytes2048 = 4, "2048";
        /// 4096 bytes.
        Bytes4096 = 5, "4096";
    }
}

impl Mtu {
    /// The size in bytes; `None` for a number this crate does not know.
    pub const fn bytes(self) -> Option<u32> {
        match self {
            Self::Unknown(_) => None,
            known => Some(128 << known.number()),
        }
    }
}

numbered! {
    /// Whether the port carries traffic (`ibv_port_state`).
    pub enum PortState: u32, "port state" {
        /// No state was reported.
        Nop = 0, "IBV_PORT_NOP";
        /// Down.
        Down = 1, "IBV_PORT_DOWN";
        /// Up on the link, not yet set up.
        Init = 2, "IBV_PORT_INIT";
        /// Set up, not yet active.
        Armed = 3, "IBV_PORT_ARMED";
        /// Carries traffic.
        Active = 4, "IBV_PORT_ACTIVE";
        /// Carries traffic though the link reported an error.
        ActiveDefer = 5, "IBV_PORT_ACTIVE_DEFER";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_number_means_a_power_of_two_bytes() {
        let bytes = [256, 512, 1024, 2048, 4096];
        assert!(Mtu::ALL.iter().map(|mtu| mtu.bytes()).eq(bytes.map(Some)));
        assert!([0, 6, u32::MAX].into_iter().all(|number| Mtu::from_number(number).bytes().is_none()));
    }

    #[test]
    fn every_number_is_kept_whether_known_or_not() {
        for number in (0..=300).chain([u32::MAX]) {
            assert_eq!(Mtu::from_number(number).number(), number);
            assert_eq!(PortState::from_number(number).number(), number);
        }
        assert!(PortState::ALL.iter().map(|state| state.number()).eq(0..=5));
    }
}
