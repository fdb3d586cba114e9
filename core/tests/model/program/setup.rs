//! What the device does to a program.

use efa_core::soft::{Config, Profile};
use efa_core::status::CompletionStatus;
use efa_core::{Limits, Verb};

use super::srd::Wrongs;

/// Tables so small that Miri fills them in no time, and programs too.
pub(super) const LIMITS: Limits = Limits { max_qp: 8, max_cq: 16, max_mr: 32, max_pd: 8, max_ah: 15, ..Config::LIMITS };

/// The faults of the device, and how the program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) shuffle: bool,
    pub(crate) piece: u8,
    /// Per mille, and retransmissions.
    pub(crate) loss: (u16, u8),
    pub(crate) delay: u8,
    pub(crate) rnr: u8,
    pub(crate) fail_nth: Option<(u8, u8)>,
    pub(crate) fail_verb: Option<(Verb, u8)>,
    pub(crate) unknown_senders: u8,
    /// No more than a queue has room for, 4.
    pub(crate) stale: u8,
    pub(crate) strict_overruns: bool,
    pub(crate) silent_death: bool,
    pub(crate) reuse_numbers: bool,
    pub(crate) near_wrap: Option<u8>,
    /// Queue pairs have one completion queue for both queues.
    pub(crate) one_queue: bool,
    /// Queue pairs have wide entries, and the device request ids of 64 bits.
    pub(crate) wide: bool,
    pub(crate) req_id_64: bool,
    /// Which nodes are shut down with no patience at the end, one bit each.
    pub(crate) impatient: u8,
}

impl Setup {
    pub(super) fn config(&self) -> Config {
        let mut config = Config::new(Profile::RDMA.wide())
            .limits(LIMITS)
            .packets(64)
            .seed(self.seed)
            .shuffle(self.shuffle)
            .pieces(self.piece.into())
            .lose(self.loss.0, self.loss.1)
            .delay(self.delay.into())
            .force_rnr(self.rnr)
            .unknown_senders(self.unknown_senders.into())
            .stale_completions(self.stale.into())
            .silent_death(self.silent_death)
            .reuse_numbers(self.reuse_numbers)
            .req_id_64(self.req_id_64);
        if let Some((nth, status)) = self.fail_nth {
            config = config.fail_nth(nth.into(), CompletionStatus::from_number(status));
        }
        if let Some((verb, nth)) = self.fail_verb {
            config = config.fail_verb(verb, nth.into(), 5);
        }
        if self.strict_overruns {
            config = config.strict_overruns();
        }
        if let Some(steps) = self.near_wrap {
            config = config.near_wrap(steps.into());
        }
        config
    }

    pub(super) fn wrongs(&self) -> Wrongs {
        Wrongs {
            lossy: self.loss.0 > 0,
            rnr: self.rnr,
            forced: self.fail_nth.map(|(_, status)| status).filter(|status| *status != 0),
            silent_death: self.silent_death,
        }
    }
}
