//! An open EFA device, as core's provider.

#![allow(unsafe_code)]

use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use efa_core::flags::SendOps;
use efa_core::memory::{Mr, MrAttr, RawMemory};
use efa_core::peer::Ah;
use efa_core::qp::{QpAttr, QpState, QpType};
use efa_core::{
    Caps, CqInit, CqRing, DataPath, DeviceId, Error, Gid, Leaks, Limits, MrInit, PdId, Provider, QpInit, Qpn, Queues,
    Registrations, Verb,
};

use crate::attributes::{Attributes, Interconnects, QueuePairInfo};
use crate::explain::Explained;
use crate::ffi::*;
use crate::handle;
use crate::loader::{Library, NeedsNewer, Node, Table};
use crate::random;

/// An open EFA device; clones name the same one. It is closed when all that was made of it is gone.
///
/// [`Context::open`](efa_core::Context::open) takes it.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    context: Arc<handle::Context>,
    name: String,
    guid: u64,
    id: DeviceId,
    gid: Gid,
    caps: Caps,
    limits: Limits,
    libraries: [String; 2],
    /// The generation that each queue pair number had last (R20).
    generations: Mutex<HashMap<u16, u16>>,
}

/// The data path that is asked for, or the direct one where the library tells where the rings are.
///
/// # Errors
/// [`NeedsNewer`] with what is missing.
fn data_path(table: &Table, path: Option<DataPath>) -> Result<DataPath, NeedsNewer> {
    let direct = ["efadv_query_qp_wqs", "efadv_query_cq"].iter().all(|name| table.has(name));
    let verbs = ["efadv_create_cq", "efadv_cq_from_ibv_cq_ex"].iter().all(|name| table.has(name));
    let needs = |what, name, since| {
        let need = Node { library: Library::Libefa, name, since: Some(since) };
        NeedsNewer { what, have: table.have(Library::Libefa), need }
    };
    match path {
        _ if !verbs => Err(needs("a completion queue that says what this crate asks of it", "EFA_1.2", 43)),
        Some(DataPath::Direct) if !direct => Err(needs("the direct data path", "EFA_1.4", 59)),
        Some(path) => Ok(path),
        None if direct => Ok(DataPath::Direct),
        None => Ok(DataPath::Verbs),
    }
}

impl Device {
    /// The EFA device of an open context, by the data path that is asked for, or by the best that there is.
    pub(crate) fn of(
        mut context: handle::Context,
        name: &str,
        guid: u64,
        path: Option<DataPath>,
    ) -> Result<Self, crate::Error> {
        let failed = |call| move |errno| crate::Error::Call { call, device: name.to_owned(), errno };
        let efa = match context.query_efa() {
            Err(libc::EOPNOTSUPP) => return Err(crate::Error::NotEfa { device: name.to_owned() }),
            efa => efa.map_err(failed("efadv_query_device"))?,
        };
        let table = context.table;
        context.path = data_path(table, path)?;
        let device = context.query_device().map_err(failed("ibv_query_device"))?;
        let port = context.query_port().map_err(failed("ibv_query_port"))?;
        context.largest_page = device.page_size_cap.checked_ilog2().map_or(u64::MAX, |log| 1 << log);
        let gid = context.query_gid().map_err(failed("ibv_query_gid"))?;
        let mut caps = caps(&efa, table.has("efadv_get_max_sq_depth"));
        let direct = context.path == DataPath::Direct;
        if !direct {
            // What the translation has no words for.
            caps -= Caps::WIDE_ENTRIES | Caps::INLINE_WRITE | Caps::UNSOLICITED_WRITE_RECV;
        }
        let limits = limits(&efa, &device, &port, context.max_send_depth());
        let mut inner = Inner {
            libraries: [Library::Libibverbs, Library::Libefa].map(|library| table.have(library)),
            context: Arc::new(context),
            name: name.to_owned(),
            guid,
            id: DeviceId::unique()?,
            gid,
            caps,
            limits,
            generations: Mutex::default(),
        };
        if direct {
            inner.learn_least_depth();
        }
        Ok(Self(Arc::new(inner)))
    }

    pub(crate) fn context(&self) -> &Arc<handle::Context> {
        &self.0.context
    }

    /// The device, opened again for another path.
    #[cfg(all(test, feature = "system"))]
    pub(crate) fn reopened(&self, path: DataPath) -> Arc<handle::Context> {
        let listed = crate::list().unwrap().into_iter().find(|listed| listed.name() == self.0.name).unwrap();
        listed.open_with(path).unwrap().0.context.clone()
    }

    /// The node's GUID.
    pub fn guid(&self) -> u64 {
        self.0.guid
    }

    /// An error of this device, with the limits and the usage that it may come from, and, if it is why memory was just
    /// refused to this thread, that memory.
    pub fn explain(&self, error: impl Into<Error>) -> Explained {
        Explained::new(error.into(), &self.0.name, self.0.limits, self.0.gid, &self.0.context.usage)
    }

    /// What the device and its port say of themselves now, and what it was opened with.
    ///
    /// # Errors
    /// What the device answered.
    pub fn attributes(&self) -> Result<Attributes, crate::Error> {
        let context = &self.0.context;
        let failed = |call| move |errno| crate::Error::Call { call, device: self.0.name.clone(), errno };
        let efa = context.query_efa().map_err(failed("efadv_query_device"))?;
        let device = context.query_device().map_err(failed("ibv_query_device"))?;
        let port = context.query_port().map_err(failed("ibv_query_port"))?;
        Ok(Attributes::new(self, &device, &efa, &port, context.query_port_speed()))
    }

    /// By which of its interconnects the device reaches a region of this opening: what
    /// [`Region::attr`](efa_core::memory::Region::attr) or [`Exposed::attr`](efa_core::memory::Exposed::attr) names.
    ///
    /// # Errors
    /// [`NeedsNewer`] before EFA_1.3 (rdma-core 50), EINVAL for another opening's or a region that is gone, or what the
    /// device answered.
    pub fn interconnects(&self, region: &MrAttr) -> Result<Interconnects, crate::Error> {
        self.0.context.objects.interconnects(self.0.context.table, region.pd, region.lkey)
    }

    /// What the device says of a queue pair of this opening, by its number: from any thread, whoever owns it.
    ///
    /// # Errors
    /// EINVAL if there is none of that number, or what the device answered.
    pub fn query_queue_pair(&self, qpn: Qpn) -> Result<QueuePairInfo, Error> {
        self.0.context.objects.query_queue_pair(self.0.context.table, qpn)
    }

    /// Moves a queue pair of this opening to whatever state and with whatever attributes, behind the back of the one who owns
    /// it, whose type tells another state from then on.
    ///
    /// # Errors
    /// EINVAL if there is none of that number, or what the device answered.
    ///
    /// # Safety
    /// After a move to RESET the device begins again with the first entries of its rings, of which the owner knows nothing:
    /// unless that returned an error, the owner posts and polls no more, and shuts down or drops the queue pair next. Other
    /// moves void what the owner's type says, and no more.
    pub unsafe fn modify_voiding_its_typestate(&self, qpn: Qpn, to: &QpAttr) -> Result<(), Error> {
        self.0.context.objects.modify_queue_pair(self.0.context.table, qpn, to)
    }

    /// The libraries that drive it, libibverbs and libefa: the newest version node of each that is used here, and its file.
    pub fn libraries(&self) -> &[String; 2] {
        &self.0.libraries
    }
}

impl Inner {
    /// libefa does not tell the least depth of a send queue that a device makes, nor how much one doorbell may announce: a
    /// queue pair does, which is made for that, and destroyed.
    fn learn_least_depth(&mut self) {
        let cq_init = CqInit { entries: 1, sgid: false, unsolicited: false };
        let probe = |send_depth| {
            let pd = handle::Pd::alloc(&self.context)?;
            let cq = handle::Cq::create(&self.context, &cq_init, None)?;
            handle::Qp::create(&pd, &cq, &cq, &QpInit::new(QpType::Srd, SendOps::SEND, send_depth, 1))
        };
        // What cannot be learned now, since there is no queue pair left for one, is told when one is made.
        if let Err(Error::BelowLimit { limit, .. }) = probe(1) {
            self.limits.min_send_depth = u32::try_from(limit).unwrap_or(1);
        }
        // No deeper than its queue is what one doorbell announces: the deepest tells.
        if let Ok(qp) = probe(self.limits.max_send_depth) {
            self.limits.max_batch = qp.queues().send.max_batch;
        }
    }

    /// A generation that differs from the last of that number.
    fn next_generation(&self, qpn: u16) -> u16 {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = generations.entry(qpn).or_default();
        *generation = generation.wrapping_add(1);
        *generation
    }
}

/// What libefa says, and what else follows from it.
fn caps(efa: &EfadvDeviceAttr, knows_inline_write: bool) -> Caps {
    // The same bits; what core does not know is left out.
    let mut caps = Caps::from_bits_truncate(efa.device_caps & 0xFFFF);
    let wide = efa.inline_buf_size_ex > efa.inline_buf_size;
    caps.set(Caps::WIDE_ENTRIES, wide);
    caps.set(Caps::INLINE_WRITE, wide && knows_inline_write && caps.contains(Caps::RDMA_WRITE));
    caps
}

fn limits(efa: &EfadvDeviceAttr, device: &IbvDeviceAttr, port: &IbvPortAttr, max_send: Option<u32>) -> Limits {
    /// Entries that a ring may have for core.
    const RING: u32 = 32768;
    let count = |number: i32| u32::try_from(number).unwrap_or(0);
    // A depth beyond the last power of two would be rounded up beyond what there is.
    let depth = |limit: u32| limit.checked_ilog2().map_or(0, |log| 1u32 << log).min(RING);
    let max_send = max_send.unwrap_or_else(|| efa.max_sq_wr.min(count(device.max_qp_wr)));
    let buffers = |sge: u16| sge.min(2) as u8;
    Limits {
        max_qp: count(device.max_qp),
        max_cq: count(device.max_cq),
        max_mr: count(device.max_mr),
        max_pd: count(device.max_pd),
        max_ah: count(device.max_ah),
        max_mr_size: device.max_mr_size,
        max_msg_size: port.max_msg_sz,
        max_rdma_size: efa.max_rdma_size,
        max_send_depth: depth(max_send),
        min_send_depth: 1,
        max_recv_depth: depth(efa.max_rq_wr),
        max_send_sge: buffers(efa.max_sq_sge),
        max_recv_sge: buffers(efa.max_rq_sge),
        max_inline: efa.inline_buf_size.min(32),
        max_inline_wide: efa.inline_buf_size_ex.max(efa.inline_buf_size).min(80),
        max_cqe: depth(count(device.max_cqe)),
        max_batch: depth(max_send) as u16,
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.0.name).field("gid", &self.0.gid).finish_non_exhaustive()
    }
}

/// A protection domain of a [`Device`].
#[derive(Clone)]
pub struct Pd(Arc<handle::Pd>);

/// A completion queue of a [`Device`].
#[derive(Clone)]
pub struct Cq(Arc<handle::Cq>);

impl Cq {
    pub(crate) fn of(handle: Arc<handle::Cq>) -> Self {
        Self(handle)
    }

    pub(crate) fn handle(&self) -> &handle::Cq {
        &self.0
    }
}

/// A queue pair of a [`Device`].
pub struct Qp(handle::Qp);

impl Cq {
    pub(crate) fn ring(&self) -> CqRing {
        self.0.ring
    }
}

impl Qp {
    pub(crate) fn queues(&self) -> Queues {
        self.0.queues()
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pd").field(&self.0.id).finish()
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cq").field(&self.0.ring.entries).finish()
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Qp").field(&self.0.queues().qpn).finish()
    }
}

// SAFETY: each promise in its order.
// 1. The kernel pins registered pages for the device before `ibv_reg_mr_iova2` returns, and answers `ibv_dereg_mr` with
//    zero after the device let go of them.
// 2. It answers `ibv_destroy_qp` likewise.
// 3. On the direct path rings are where libefa mapped them: it keeps a queue pair's until its destruction succeeded, and a
//    completion queue's until `ibv_destroy_cq`, which the last handle calls. Sizes, alignment and depths that it says are
//    checked, and it touches these rings only in calls that are never made on this path. On the verbs path they are this
//    crate's own memory, and the handles'. So are slots on both.
// 4. A completion comes from the device, on its word (SAFETY.md), on the verbs path by libefa's: which is good for one
//    queue pair on each completion queue, or where libefa tells lives of a number apart (`handle::Qp::create`).
// 5. The memory is in the region, and moved out of it by the one deregistration that succeeded.
// 6. `LKEY_BITS`.
// 7. By `PdId::unique` and `DeviceId::unique`, once for each.
// 8. On the direct path the device's own rule; the kernel moves a queue pair to RESET before `ibv_modify_qp` returns zero.
//    On the verbs path `announced` takes each entry once, in the order of the ring, and begins again after that move alone.
unsafe impl Provider for Device {
    type Pd = Pd;
    type Cq = Cq;
    type Qp = Qp;

    fn name(&self) -> &str {
        &self.0.name
    }

    fn device_id(&self) -> DeviceId {
        self.0.id
    }

    fn caps(&self) -> Caps {
        self.0.caps
    }

    fn limits(&self) -> Limits {
        self.0.limits
    }

    fn gid(&self) -> Gid {
        self.0.gid
    }

    fn data_path(&self) -> DataPath {
        self.0.context.path
    }

    const BY_CALLS: bool = true;

    fn announced(&self, qp: &Qp) {
        qp.0.announced();
    }

    fn collect(&self, cq: &Cq) {
        if let Some(completions) = &cq.0.completions {
            completions.collect();
        }
    }

    #[inline]
    fn consumed(&self, cq: &Cq, consumed: u32) {
        cq.0.consumed(consumed);
    }

    fn entropy(&self) -> u64 {
        random::bits()
    }

    fn leaks(&self) -> &Leaks {
        &self.0.context.leaks
    }

    fn alloc_pd(&self) -> Result<Pd, Error> {
        handle::Pd::alloc(&self.0.context).map(Pd)
    }

    fn pd_id(pd: &Pd) -> PdId {
        pd.0.id
    }

    unsafe fn reg_mr(&self, pd: &Pd, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        match self.ours(pd, Verb::RegMr) {
            // SAFETY: by the caller's word.
            Ok(()) => unsafe { pd.0.register(memory, init) },
            Err(error) => Err((memory, error)),
        }
    }

    fn registrations(&self, pd: &Pd) -> Option<Registrations> {
        Some(pd.0.registrations())
    }

    fn create_ah(&self, pd: &Pd, gid: Gid) -> Result<Ah, Error> {
        self.ours(pd, Verb::CreateAh)?;
        pd.0.create_ah(gid)
    }

    fn create_cq(&self, init: &CqInit) -> Result<Cq, Error> {
        handle::Cq::create(&self.0.context, init, None).map(Cq)
    }

    fn create_qp(&self, pd: &Pd, send: &Cq, recv: &Cq, init: &QpInit) -> Result<Qp, Error> {
        self.ours(pd, Verb::CreateQp)?;
        let mut qp = handle::Qp::create(&pd.0, &send.0, &recv.0, init)?;
        qp.set_generation(self.0.next_generation(qp.queues().qpn.0));
        Ok(Qp(qp))
    }

    fn modify_qp(&self, qp: &mut Qp, attr: &QpAttr) -> Result<(), Error> {
        qp.0.modify(attr)
    }

    fn query_qp(&self, qp: &Qp) -> Result<QpState, Error> {
        qp.0.query()
    }

    fn destroy_qp(&self, qp: &mut Qp) -> Result<(), Error> {
        qp.0.destroy()
    }

    fn queues(&self, qp: &Qp) -> Queues {
        qp.queues()
    }

    fn completions(&self, cq: &Cq) -> CqRing {
        cq.ring()
    }
}

impl Device {
    fn ours(&self, pd: &Pd, verb: Verb) -> Result<(), Error> {
        let ours = Arc::ptr_eq(&pd.0.context, &self.0.context);
        if ours { Ok(()) } else { Err(Error::Device { verb, errno: libc::EINVAL }) }
    }
}
