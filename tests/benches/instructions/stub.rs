//! A device that does nothing, and who writes completions in its stead.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use efa_core::entry::completion_flags as flags;
use efa_core::memory::{Mr, RawMemory};
use efa_core::peer::Ah;
use efa_core::qp::{QpAttr, QpState};
use efa_core::ring::WORDS_PER_QUAD;
use efa_core::soft::{Profile, SoftCq, SoftDevice, SoftPd, SoftQp};
use efa_core::{Caps, CqInit, CqRing, DeviceId, Error, Gid, Leaks, Limits, MrInit, PdId, Provider, QpInit, Queues};

/// Of which of a queue pair's queues a completion is.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Send,
    Recv,
}

/// Who writes the first queue pair's completions in the device's stead.
pub(crate) struct Forge {
    queues: Queues,
    /// Its completion queues, or its one, with the entries written so far.
    rings: Vec<(CqRing, u32)>,
}

impl Forge {
    /// The first queue pair that was made has the first `rings` completion queues that were made.
    pub(crate) fn new(rings: usize) -> Self {
        let made = MADE.lock().unwrap();
        Self { queues: made.qps[0], rings: made.cqs[..rings].iter().map(|ring| (*ring, 0)).collect() }
    }

    /// Writes the completion of what is in `slot`, of 8 bytes.
    pub(crate) fn completion(&mut self, side: Side, slot: u16, op: u8) {
        let (at, kind, depth) = match side {
            Side::Send => (0, flags::QUEUE_SEND, self.queues.send.depth),
            Side::Recv => (self.rings.len() - 1, flags::QUEUE_RECV, self.queues.recv.depth),
        };
        let (ring, written) = &mut self.rings[at];
        let req_id = u64::from(slot) | (u64::from(self.queues.generation) << depth.trailing_zeros()) & 0xFFFF;
        let phase = if (*written / ring.entries).is_multiple_of(2) { flags::PHASE } else { 0 };
        let bits = phase | kind | op << flags::OP_SHIFT;
        let head = req_id | u64::from(bits) << 24 | u64::from(self.queues.qpn.0) << 32 | 8 << 48;
        let at = (*written % ring.entries) as usize * usize::from(ring.entry_size) / 8 * WORDS_PER_QUAD;
        // SAFETY: an entry of the ring.
        let word = unsafe { ring.base.add(at) };
        // SAFETY: the ring's queue lives; words are atomic.
        let word = unsafe { word.as_ref() };
        word.store(head, Ordering::Release);
        *written += 1;
    }
}

/// A software device that takes no turn.
#[derive(Clone)]
pub(crate) struct Stub(SoftDevice);

impl Stub {
    pub(crate) fn new() -> Self {
        Self(SoftDevice::new(Profile::RDMA))
    }
}

#[derive(Default)]
struct Made {
    cqs: Vec<CqRing>,
    qps: Vec<Queues>,
}

// SAFETY: rings, of which this program's one thread uses the words.
unsafe impl Send for Made {}

static MADE: Mutex<Made> = Mutex::new(Made { cqs: Vec::new(), qps: Vec::new() });

// SAFETY: the software device's promises, less that it does anything: completions are written, once for each request,
// by this program, and no memory but the rings is touched.
unsafe impl Provider for Stub {
    type Pd = SoftPd;
    type Cq = SoftCq;
    type Qp = SoftQp;

    fn name(&self) -> &str {
        self.0.name()
    }
    fn device_id(&self) -> DeviceId {
        self.0.device_id()
    }
    fn caps(&self) -> Caps {
        self.0.caps()
    }
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn gid(&self) -> Gid {
        self.0.gid()
    }
    fn entropy(&self) -> u64 {
        self.0.entropy()
    }
    fn leaks(&self) -> &Leaks {
        self.0.leaks()
    }
    fn alloc_pd(&self) -> Result<SoftPd, Error> {
        self.0.alloc_pd()
    }
    fn pd_id(pd: &SoftPd) -> PdId {
        SoftDevice::pd_id(pd)
    }
    unsafe fn reg_mr(&self, pd: &SoftPd, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        // SAFETY: by the caller's word.
        unsafe { self.0.reg_mr(pd, memory, init) }
    }
    fn create_ah(&self, pd: &SoftPd, gid: Gid) -> Result<Ah, Error> {
        self.0.create_ah(pd, gid)
    }
    fn create_cq(&self, init: &CqInit) -> Result<SoftCq, Error> {
        let cq = self.0.create_cq(init)?;
        MADE.lock().unwrap().cqs.push(self.0.completions(&cq));
        Ok(cq)
    }
    fn create_qp(&self, pd: &SoftPd, send: &SoftCq, recv: &SoftCq, init: &QpInit) -> Result<SoftQp, Error> {
        let qp = self.0.create_qp(pd, send, recv, init)?;
        MADE.lock().unwrap().qps.push(self.0.queues(&qp));
        Ok(qp)
    }
    fn modify_qp(&self, qp: &mut SoftQp, attr: &QpAttr) -> Result<(), Error> {
        self.0.modify_qp(qp, attr)
    }
    fn query_qp(&self, qp: &SoftQp) -> Result<QpState, Error> {
        self.0.query_qp(qp)
    }
    fn destroy_qp(&self, qp: &mut SoftQp) -> Result<(), Error> {
        self.0.destroy_qp(qp)
    }
    fn queues(&self, qp: &SoftQp) -> Queues {
        self.0.queues(qp)
    }
    fn completions(&self, cq: &SoftCq) -> CqRing {
        self.0.completions(cq)
    }
}
