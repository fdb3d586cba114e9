//! What a software device is made with: capabilities, limits, seed, faults.

#![forbid(unsafe_code)]

use super::faults::Faults;
use super::memory::Mover;
use crate::{Caps, Gid, Limits};

/// A set of capabilities that real devices have had, under a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    caps: Caps,
}

const COMMON: Caps = Caps::RNR_RETRY.union(Caps::CQ_WITH_SGID);

impl Profile {
    /// No RDMA: SEND alone.
    pub const NONE: Self = Self { caps: COMMON };
    /// RDMA read.
    pub const READ: Self = Self { caps: COMMON.union(Caps::RDMA_READ) };
    /// RDMA read and write.
    pub const RDMA: Self = Self { caps: Self::READ.caps.union(Caps::RDMA_WRITE) };
    /// RDMA read and write, and writes with immediate that consume no receive.
    pub const UNSOLICITED: Self = Self { caps: Self::RDMA.caps.union(Caps::UNSOLICITED_WRITE_RECV) };

    /// The same with 128-byte send entries, and inline writes if it has RDMA write (R10).
    pub const fn wide(self) -> Self {
        let inline_write = if self.caps.contains(Caps::RDMA_WRITE) { Caps::INLINE_WRITE } else { Caps::empty() };
        Self { caps: self.caps.union(Caps::WIDE_ENTRIES).union(inline_write) }
    }

    /// The same with completion counters.
    pub const fn counting(self) -> Self {
        Self { caps: self.caps.union(Caps::COMP_CNTR) }
    }

    /// Capabilities of one's own choice.
    pub const fn with_caps(caps: Caps) -> Self {
        Self { caps }
    }

    /// What the device reports.
    pub const fn caps(self) -> Caps {
        self.caps
    }
}

const SCALE: u32 = if cfg!(miri) { 16 } else { 1 };

/// A profile with limits, a seed and faults; all devices of one wire share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    pub(super) caps: Caps,
    pub(super) limits: Limits,
    pub(super) seed: u64,
    pub(super) shuffle: bool,
    pub(super) strict_features: bool,
    pub(super) req_id_64: bool,
    pub(super) packets: u32,
    pub(super) gid: Gid,
    /// Of the link, if there is one.
    #[cfg_attr(not(feature = "alloc"), allow(dead_code))]
    pub(super) life: Option<u64>,
    #[cfg_attr(not(feature = "alloc"), allow(dead_code))]
    pub(super) patience: u64,
    pub(super) fail_destroy: u32,
    pub(super) fail_deregister: u32,
    pub(super) mover: Option<Mover>,
    pub(super) faults: Faults,
}

impl Config {
    /// The limits unless others are given. A device in static memory has no more than its storage; under Miri
    /// tables have a sixteenth, since it would spend its time filling them.
    pub const LIMITS: Limits = Limits {
        max_qp: 256 / SCALE,
        max_cq: 512 / SCALE,
        max_mr: 1024 / SCALE,
        max_pd: 64,
        max_ah: 1023 / SCALE,
        max_mr_size: 1 << 40,
        max_msg_size: 8928,
        max_rdma_size: 1 << 30,
        max_send_depth: 4096,
        min_send_depth: 1,
        max_recv_depth: 8192,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline: 32,
        max_inline_wide: 80,
        max_cqe: 16384,
        max_batch: 16,
    };

    /// A device of `profile` that delivers in shuffled order and fails nothing.
    pub const fn new(profile: Profile) -> Self {
        Self {
            caps: profile.caps,
            limits: Self::LIMITS,
            seed: 0x0EFA_0EFA_0EFA_0EFA,
            shuffle: true,
            strict_features: false,
            req_id_64: false,
            packets: 4096 / SCALE,
            gid: Gid([0; 16]),
            life: None,
            patience: 10_000_000,
            fail_destroy: 0,
            fail_deregister: 0,
            mover: None,
            faults: Faults::NONE,
        }
    }

    /// Where all that is random comes from: order of delivery, faults, remote keys, [`Provider::entropy`](crate::Provider::entropy).
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether messages are delivered in any order, as SRD may (R16): what is in flight is drawn from, and some is
    /// held back for a few turns. Else they are delivered as they were posted.
    pub const fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Other limits. Depths end at 32768, address handles at 1023, regions and queue pairs at 16384, messages at
    /// 65,535 bytes.
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Refuse every operation between queue pairs that differ in unsolicited receive, not only writes
    /// with immediate (R05).
    pub const fn strict_features(mut self, strict: bool) -> Self {
        self.strict_features = strict;
        self
    }

    /// Request ids of sends have 64 bits, as devices of late have them: a completion repeats all of them (R20). Without
    /// it the upper ones are reserved, and an entry that has any answers 2.
    pub const fn req_id_64(mut self, wide: bool) -> Self {
        self.req_id_64 = wide;
        self
    }

    /// Messages that the wire holds at once; what is posted beyond them waits in its send queue.
    pub const fn packets(mut self, packets: u32) -> Self {
        self.packets = packets;
        self
    }

    /// The address of the wire's first device; those that follow have the next ones. Devices of different processes
    /// that are to reach each other need different ones. All zeros, which is the default, stands for link-local
    /// addresses that no other device of the process has.
    pub const fn gid(mut self, gid: Gid) -> Self {
        self.gid = gid;
        self
    }

    /// Messages to addresses that are not on this wire go to its [`link`](crate::soft::link), instead of ending with
    /// status 15. Messages then have at most [`PAYLOAD`](crate::soft::link::PAYLOAD) bytes.
    ///
    /// `life` is random bits that this process alone has, and no earlier one at its address had: it is how a restarted
    /// peer is told from its predecessor, and all that is random comes from it, and from the seed.
    #[cfg(feature = "alloc")]
    pub const fn linked(mut self, life: u64) -> Self {
        self.life = Some(life);
        self
    }

    /// How long a device elsewhere may be silent before what waits for it ends, in microseconds: 10 seconds by default.
    #[cfg(feature = "alloc")]
    pub const fn patience(mut self, microseconds: u64) -> Self {
        self.patience = microseconds;
        self
    }

    /// All registered memory is touched by `mover` alone, in any alignment; it need not be whole words to be exposed, nor
    /// be mapped for as long as it is registered, nor be the CPU's to reach, if the mover can bear that. For a driver whose
    /// memory is another program's.
    pub const fn mover(mut self, mover: Mover) -> Self {
        self.mover = Some(mover);
        self
    }

    /// The first `calls` attempts to destroy a queue pair answer EIO.
    pub const fn fail_destroy(mut self, calls: u32) -> Self {
        self.fail_destroy = calls;
        self
    }

    /// The first `calls` attempts to deregister memory answer EIO.
    pub const fn fail_deregister(mut self, calls: u32) -> Self {
        self.fail_deregister = calls;
        self
    }
}

impl Config {
    /// The longest message that can be: a completion tells its length in 16 bits, and a link carries it in one frame.
    pub(super) fn max_message(&self) -> u32 {
        #[cfg(feature = "alloc")]
        if self.life.is_some() {
            return super::link::PAYLOAD as u32;
        }
        u16::MAX.into()
    }
}

impl From<Profile> for Config {
    fn from(profile: Profile) -> Self {
        Self::new(profile)
    }
}
