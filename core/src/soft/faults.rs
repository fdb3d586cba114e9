//! What a hostile device does to its programs: nothing unless asked, and the same again for the same seed.

#![forbid(unsafe_code)]

use super::Config;
use crate::status::CompletionStatus as Status;
use crate::{Error, Verb};

/// Verbs that can be made to fail.
pub(super) const VERBS: usize = 11;

/// What is done when a completion finds no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overruns {
    Unseen,
    Counted,
    Strict,
}

/// The faults of a [`Config`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Faults {
    /// Bytes of a piece; 0 for pieces as large and in the order that is simplest.
    pub(super) piece: u32,
    /// Tries of 1000 that get lost.
    pub(super) loss: u16,
    pub(super) retransmissions: u8,
    pub(super) delay: u16,
    pub(super) rnr: u8,
    pub(super) fail: Option<(u32, Status)>,
    /// Which call of each verb fails, counted from 1, and with which errno.
    verbs: [(u32, i32); VERBS],
    pub(super) unknown_senders: u16,
    pub(super) stale: u16,
    pub(super) overruns: Overruns,
    pub(super) silent_death: bool,
    pub(super) stop_sends: bool,
    pub(super) reuse_numbers: bool,
    pub(super) near_wrap: Option<u16>,
}

impl Faults {
    pub(super) const NONE: Self = Self {
        piece: 0,
        loss: 0,
        retransmissions: 0,
        delay: 0,
        rnr: 0,
        fail: None,
        verbs: [(0, 0); VERBS],
        unknown_senders: 0,
        stale: 0,
        overruns: Overruns::Unseen,
        silent_death: false,
        stop_sends: false,
        reuse_numbers: true,
        near_wrap: None,
    };

    /// Whether messages need more than to be delivered.
    pub(super) fn on_wire(&self) -> bool {
        self.piece > 0 || self.loss > 0 || self.delay > 0 || self.rnr > 0 || self.fail.is_some()
    }

    /// What the `call`-th call of a verb answers.
    pub(super) fn verb(&self, verb: Verb, call: u32) -> Result<(), Error> {
        match self.verbs.get(verb as usize) {
            Some(&(nth, errno)) if nth != 0 && nth == call => Err(Error::Device { verb, errno }),
            _ => Ok(()),
        }
    }
}

/// A hostile device: every option is off until it is asked for, and all that is random comes from
/// [`Config::seed`], so that one seed and one program give one run. What is counted is counted for each device
/// of the wire by itself.
///
/// ```
/// # #[cfg(feature = "alloc")] {
/// use efa_core::{Token, soft, work::Event};
///
/// let config = soft::Config::new(soft::Profile::RDMA).lose(300, 20).delay(5).pieces(8).unknown_senders(2);
/// let (mut a, mut b) = soft::pair(config)?;
/// b.endpoint.post_recv(b.pd.register(vec![0; 64])?.1, Token(1))?;
/// a.endpoint.post(a.peer.send_inline(b"hello"), Token(2))?;
/// assert!(matches!(b.wait(), Some(Event::Received(message)) if message.len == 5));
/// assert!(matches!(a.wait(), Some(Event::Sent(_))), "once, however often it was lost");
/// # }
/// # Ok::<(), efa_core::Error>(())
/// ```
impl Config {
    /// An RDMA is moved in pieces of so many bytes, in any order, some of them more than once: always before
    /// its completion, never after (R16). Each turn moves one. 0 turns it off.
    pub const fn pieces(mut self, bytes: u32) -> Self {
        self.faults.piece = bytes;
        self
    }

    /// Of 1000 requests and answers so many are lost; each is sent again after some turns, at most
    /// `retransmissions` times in a row. Then it ends, with status 13 if the peer's device ever answered this one,
    /// else 15: as on the real wire, it may have been executed all the same. What the peer has executed is not
    /// executed again. A datagram is sent once: lost is lost.
    pub const fn lose(mut self, per_mille: u16, retransmissions: u8) -> Self {
        (self.faults.loss, self.faults.retransmissions) = (per_mille, retransmissions);
        self
    }

    /// A message may take up to so many turns to its peer.
    pub const fn delay(mut self, turns: u16) -> Self {
        self.faults.delay = turns;
        self
    }

    /// The first `attempts` of each message that needs a receive find none, whatever is posted: status 10 if the
    /// requester retries less often. A datagram has one attempt, and is dropped.
    pub const fn force_rnr(mut self, attempts: u8) -> Self {
        self.faults.rnr = attempts;
        self
    }

    /// The `n`-th operation of each device, counted from 1 in the order of its send queues, is not executed and
    /// ends with `status`; [`Status::Ok`] makes none fail.
    pub const fn fail_nth(mut self, n: u32, status: Status) -> Self {
        self.faults.fail = match status {
            Status::Ok => None,
            status => Some((n, status)),
        };
        self
    }

    /// The `n`-th call of a verb on each device, counted from 1, answers `errno`. One for each verb.
    pub const fn fail_verb(mut self, verb: Verb, n: u32, errno: i32) -> Self {
        self.faults.verbs[verb as usize] = (n, errno);
        self
    }

    /// The first `arrivals` of each queue pair name no address handle, as those shortly after it was made (R23).
    pub const fn unknown_senders(mut self, arrivals: u16) -> Self {
        self.faults.unknown_senders = arrivals;
        self
    }

    /// A queue pair whose number was used before finds so many completions of its predecessor's requests in each of
    /// its completion queues (R20). They take their room until they are read. Those of sends have its generation or,
    /// with [`Config::req_id_64`], the present one, as after a wrap, and the upper bits of its last request.
    pub const fn stale_completions(mut self, completions: u16) -> Self {
        self.faults.stale = completions;
        self
    }

    /// Counts completions that find no room in [`Counters::cq_overruns`](super::Counters::cq_overruns). They are
    /// written all the same, over one that was not read, which hardware does without a word (R17).
    ///
    /// The device cannot see what was read, so it counts what it cannot know to be read: of a queue with `depth`
    /// places at most those that are not with the device, since a place is posted again only after its completion
    /// was read; of unsolicited arrivals those that
    /// [`Provider::unsolicited_read`](crate::Provider::unsolicited_read) was not called for. A completion queue
    /// with room for all depths and the budget of unsolicited arrivals is reported only if more of these than
    /// the budget are unread; a smaller one, as soon as more may be unread than it has room for.
    pub const fn count_overruns(mut self) -> Self {
        self.faults.overruns = Overruns::Counted;
        self
    }

    /// As [`Config::count_overruns`], and loud: what finds no room is not written, what is unread stays, and the
    /// queue pair whose completion it was goes into ERR.
    pub const fn strict_overruns(mut self) -> Self {
        self.faults.overruns = Overruns::Strict;
        self
    }

    /// A [death](super::SoftDevice::die) flushes nothing: what was in flight there never completes.
    pub const fn silent_death(mut self, silent: bool) -> Self {
        self.faults.silent_death = silent;
        self
    }

    /// An operation that fails moves its queue pair to SQE, rather than leave it as it was: what is in its send queue,
    /// and what is posted there from then on, is flushed, and receives go on. [`QueuePair::query`] tells,
    /// [`QueuePair::resume`] leads back. When a real device does so its documents do not say; its state table has it.
    ///
    /// [`QueuePair::query`]: crate::qp::QueuePair::query
    /// [`QueuePair::resume`]: crate::qp::QueuePair::resume
    pub const fn stop_sends(mut self, stop: bool) -> Self {
        self.faults.stop_sends = stop;
        self
    }

    /// Whether a queue pair gets the lowest free number, as it does by default, or the next after the last one.
    pub const fn reuse_numbers(mut self, reuse: bool) -> Self {
        self.faults.reuse_numbers = reuse;
        self
    }

    /// What the device alone counts begins so many steps before it wraps, or as near as it can: turns, completion
    /// queue indices, generations of queue pair numbers, regions' keys and address handles. The indices that
    /// driver and device share begin at 0 whatever the device likes.
    pub const fn near_wrap(mut self, steps: u16) -> Self {
        self.faults.near_wrap = Some(steps);
        self
    }
}
