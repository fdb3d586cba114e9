//! A device that does nothing unless it is told to: so that what it does is not in what is measured.

#![allow(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use efa_core::memory::{Mr, RawMemory};
use efa_core::peer::Ah;
use efa_core::qp::{QpAttr, QpState};
use efa_core::{
    Caps, CqInit, CqRing, DataPath, DeviceId, Error, Gid, Leaks, Limits, MrInit, PdId, Provider, QpInit, Queues,
};

/// A device that takes no turn by itself, and of which it is known what queues it made.
#[derive(Clone, Debug)]
pub struct Still<D>(pub D);

/// What was made.
#[derive(Debug, Default)]
pub struct Made {
    /// Completion queues, in their order.
    pub cqs: Vec<CqRing>,
    /// Queue pairs, in theirs.
    pub qps: Vec<Queues>,
}

// SAFETY: it names queues, whose words are atomic.
unsafe impl Send for Made {}

/// What any of them made since the last call.
pub fn take_made() -> Made {
    std::mem::take(&mut *made())
}

fn made() -> MutexGuard<'static, Made> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

static MADE: Mutex<Made> = Mutex::new(Made { cqs: Vec::new(), qps: Vec::new() });

// SAFETY: the device's promises, less that a poll drives it. Whoever writes completions in its stead makes its promises.
unsafe impl<D: Provider> Provider for Still<D> {
    type Pd = D::Pd;
    type Cq = D::Cq;
    type Qp = D::Qp;

    const BY_CALLS: bool = D::BY_CALLS;

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
    fn data_path(&self) -> DataPath {
        self.0.data_path()
    }
    fn announced(&self, qp: &D::Qp) {
        self.0.announced(qp);
    }
    fn collect(&self, cq: &D::Cq) {
        self.0.collect(cq);
    }
    fn alloc_pd(&self) -> Result<D::Pd, Error> {
        self.0.alloc_pd()
    }
    fn pd_id(pd: &D::Pd) -> PdId {
        D::pd_id(pd)
    }
    unsafe fn reg_mr(&self, pd: &D::Pd, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        // SAFETY: by the caller's word.
        unsafe { self.0.reg_mr(pd, memory, init) }
    }
    fn create_ah(&self, pd: &D::Pd, gid: Gid) -> Result<Ah, Error> {
        self.0.create_ah(pd, gid)
    }
    fn create_cq(&self, init: &CqInit) -> Result<D::Cq, Error> {
        let cq = self.0.create_cq(init)?;
        made().cqs.push(self.0.completions(&cq));
        Ok(cq)
    }
    fn create_qp(&self, pd: &D::Pd, send: &D::Cq, recv: &D::Cq, init: &QpInit) -> Result<D::Qp, Error> {
        let qp = self.0.create_qp(pd, send, recv, init)?;
        made().qps.push(self.0.queues(&qp));
        Ok(qp)
    }
    fn modify_qp(&self, qp: &mut D::Qp, attr: &QpAttr) -> Result<(), Error> {
        self.0.modify_qp(qp, attr)
    }
    fn query_qp(&self, qp: &D::Qp) -> Result<QpState, Error> {
        self.0.query_qp(qp)
    }
    fn destroy_qp(&self, qp: &mut D::Qp) -> Result<(), Error> {
        self.0.destroy_qp(qp)
    }
    fn queues(&self, qp: &D::Qp) -> Queues {
        self.0.queues(qp)
    }
    fn completions(&self, cq: &D::Cq) -> CqRing {
        self.0.completions(cq)
    }
}
