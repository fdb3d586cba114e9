//! A provider of which nothing is known.

use efa_core::memory::{Mr, RawMemory};
use efa_core::peer::Ah;
use efa_core::qp::{QpAttr, QpState};
use efa_core::{
    Caps, CqInit, CqRing, DeviceId, Error, Gid, Leaks, Limits, MrInit, Notifies, PdId, Provider, QpInit, Queues,
};

use crate::{any, used};

#[derive(Clone)]
pub(crate) struct Stub(#[allow(dead_code)] u64);

#[derive(Clone)]
pub(crate) struct Handle(#[allow(dead_code)] u64);

// SAFETY: it is never run.
unsafe impl Provider for Stub {
    type Pd = Handle;
    type Cq = Handle;
    type Qp = Handle;

    fn name(&self) -> &str {
        any()
    }

    fn device_id(&self) -> DeviceId {
        any()
    }

    fn caps(&self) -> Caps {
        any()
    }

    fn limits(&self) -> Limits {
        any()
    }

    fn gid(&self) -> Gid {
        any()
    }

    fn entropy(&self) -> u64 {
        any()
    }

    fn leaks(&self) -> &Leaks {
        any()
    }

    fn progress(&self) {
        used(self.0);
    }

    fn consumed(&self, _: &Handle, consumed: u32) {
        used(consumed);
    }

    fn alloc_pd(&self) -> Result<Handle, Error> {
        any()
    }

    fn pd_id(_: &Handle) -> PdId {
        any()
    }

    unsafe fn reg_mr(&self, _: &Handle, memory: RawMemory, _: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        used(memory);
        any()
    }

    fn create_ah(&self, _: &Handle, _: Gid) -> Result<Ah, Error> {
        any()
    }

    fn create_cq(&self, init: &CqInit) -> Result<Handle, Error> {
        used(*init);
        any()
    }

    fn create_qp(&self, _: &Handle, _: &Handle, _: &Handle, init: &QpInit) -> Result<Handle, Error> {
        used(*init);
        any()
    }

    fn modify_qp(&self, _: &mut Handle, attr: &QpAttr) -> Result<(), Error> {
        used(*attr);
        any()
    }

    fn query_qp(&self, _: &Handle) -> Result<QpState, Error> {
        any()
    }

    fn destroy_qp(&self, _: &mut Handle) -> Result<(), Error> {
        any()
    }

    fn queues(&self, _: &Handle) -> Queues {
        any()
    }

    fn completions(&self, _: &Handle) -> CqRing {
        any()
    }
}

impl Notifies for Stub {
    type Channel = Handle;

    fn create_cq_on(&self, init: &CqInit, _: &Handle) -> Result<Handle, Error> {
        used(*init);
        any()
    }

    fn arm(&self, _: &Handle, consumed: u32) -> Result<(), Error> {
        used(consumed);
        any()
    }
}
