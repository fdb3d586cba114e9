//! A device that does nothing of its own: the test reads what was posted and writes the completions. One with
//! `BY_CALLS` may go by calls: what was completed is then in no ring before it is collected.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use efa_core::entry::{Completion, RecvCompletion, SendCompletion, completion_flags as flags, quads};
use efa_core::memory::{Mr, MrAttr, MrObject, RawMemory, Release};
use efa_core::peer::{Ah, AhAttr, AhObject};
use efa_core::qp::{QpAttr, QpState};
use efa_core::ring::{AtomicWord, Slot, WORDS_PER_QUAD, Word};
use efa_core::{
    Ahn, Caps, CqInit, CqRing, DataPath, DeviceId, Error, Gid, LKey, Leaks, Limits, MrInit, Notifies, PdId, Provider,
    QpInit, Qpn, Queues, RKey, RecvRing, SendRing, Verb,
};
use zerocopy::IntoBytes;

/// The number of its queue pair: there is one at a time.
pub(crate) const QPN: u16 = 0x0102;
/// The generation of its queue pairs.
pub(crate) const GENERATION: u16 = 0x15;

#[derive(Clone)]
pub(crate) struct Puppet<const BY_CALLS: bool = false>(Arc<Strings>);

struct Strings {
    id: DeviceId,
    caps: Caps,
    /// Whether request ids of sends have 64 bits.
    req_id_64: bool,
    /// Of send entries, whatever is asked for.
    entry_size: Option<u16>,
    /// Bytes of one region, as it says; it would take any.
    max_mr_size: AtomicU64,
    data_path: DataPath,
    /// How often entries were handed on, and a completion queue was to be filled.
    handed_on: AtomicU32,
    collected: AtomicU32,
    leaks: Leaks,
    random: AtomicU64,
    /// What `modify_qp` answers once: an errno, or 0 for yes.
    refuse_modify: AtomicI32,
    /// The number of the state that `query_qp` answers.
    state: AtomicU32,
    moves: Mutex<Vec<QpAttr>>,
    /// What it was told of completion queues on a channel: armed or not, and what was consumed.
    told: Mutex<Vec<(bool, u32)>>,
    qp: Mutex<Option<Arc<QpMemory>>>,
}

pub(crate) struct CqMemory {
    words: Box<[AtomicWord]>,
    entries: u32,
    quads: usize,
    produced: AtomicU32,
    /// What is not collected yet.
    pending: Mutex<Vec<[u8; 32]>>,
}

pub(crate) struct QpMemory {
    send: Box<[AtomicWord]>,
    recv: Box<[AtomicWord]>,
    send_doorbell: AtomicU32,
    recv_doorbell: AtomicU32,
    send_slots: Box<[UnsafeCell<Slot>]>,
    recv_slots: Box<[UnsafeCell<Slot>]>,
    /// For sends and for receives: may be the same.
    cqs: [Arc<CqMemory>; 2],
    init: QpInit,
}

// SAFETY: the slots are reached through the one queue pair that they were given to; a slot is `Send`.
unsafe impl Sync for QpMemory {}
// SAFETY: as above.
unsafe impl Send for QpMemory {}

fn words(quads: usize) -> Box<[AtomicWord]> {
    (0..quads * WORDS_PER_QUAD).map(|_| AtomicWord::new(0)).collect()
}

fn slots(count: u32) -> Box<[UnsafeCell<Slot>]> {
    (0..count).map(|_| UnsafeCell::new(Slot::VACANT)).collect()
}

#[allow(clippy::useless_conversion)] // a 32-bit word on some targets
fn load(words: &[AtomicWord], quad: usize) -> u64 {
    (0..WORDS_PER_QUAD).fold(0, |value, half| {
        let word = words[quad * WORDS_PER_QUAD + half].load(Ordering::Acquire);
        value | u64::from(word) << (half as u32 * Word::BITS % 64)
    })
}

#[allow(clippy::unnecessary_cast)] // a 32-bit word on some targets
fn store(words: &[AtomicWord], quad: usize, value: u64) {
    for half in (0..WORDS_PER_QUAD).rev() {
        let part = (value >> (half as u32 * Word::BITS % 64)) as Word;
        words[quad * WORDS_PER_QUAD + half].store(part, Ordering::Release);
    }
}

impl CqMemory {
    fn write(&self, entry: &[u8; 32]) {
        let index = self.produced.fetch_add(1, Ordering::Relaxed);
        let at = (index % self.entries) as usize * self.quads;
        let entry: [u64; 4] = quads(entry);
        for (quad, value) in entry.iter().enumerate().take(self.quads).skip(1) {
            store(&self.words, at + quad, *value);
        }
        let phase = u64::from(flags::PHASE) << 24;
        let new = if (index / self.entries).is_multiple_of(2) { phase } else { 0 };
        store(&self.words, at, entry[0] & !phase | new);
    }
}

impl Puppet {
    pub(crate) fn new(caps: Caps) -> Self {
        Self::with(caps, false, None)
    }

    /// Takes no region of more bytes.
    pub(crate) fn limit_regions(&self, bytes: usize) {
        self.0.max_mr_size.store(bytes as u64, Ordering::Relaxed);
    }

    /// With request ids of sends of 64 bits, or send entries of another size than is asked for.
    pub(crate) fn with(caps: Caps, req_id_64: bool, entry_size: Option<u16>) -> Self {
        Self::made(caps, req_id_64, entry_size, DataPath::Direct)
    }
}

impl Puppet<true> {
    /// One that goes by calls if that is its data path.
    pub(crate) fn by_calls(caps: Caps, data_path: DataPath) -> Self {
        Self::made(caps, false, None, data_path)
    }

    /// How often entries were handed on, and a completion queue was to be filled, since this was asked last.
    pub(crate) fn calls(&self) -> (u32, u32) {
        let [handed_on, collected] =
            [&self.0.handed_on, &self.0.collected].map(|calls| calls.swap(0, Ordering::Relaxed));
        (handed_on, collected)
    }
}

impl<const BY_CALLS: bool> Puppet<BY_CALLS> {
    fn made(caps: Caps, req_id_64: bool, entry_size: Option<u16>, data_path: DataPath) -> Self {
        Self(Arc::new(Strings {
            id: DeviceId::unique().unwrap(),
            caps,
            req_id_64,
            entry_size,
            max_mr_size: AtomicU64::new(1 << 40),
            data_path,
            handed_on: AtomicU32::new(0),
            collected: AtomicU32::new(0),
            leaks: Leaks::new(),
            random: AtomicU64::new(1),
            refuse_modify: AtomicI32::new(0),
            state: AtomicU32::new(QpState::Rts.number()),
            moves: Mutex::default(),
            told: Mutex::default(),
            qp: Mutex::default(),
        }))
    }

    /// The next `modify_qp` answers this errno.
    pub(crate) fn refuse_modify(&self, errno: i32) {
        self.0.refuse_modify.store(errno, Ordering::Relaxed);
    }

    /// `query_qp` answers this state from now on.
    pub(crate) fn pretend(&self, state: QpState) {
        self.0.state.store(state.number(), Ordering::Relaxed);
    }

    /// What it was told since this was asked last of completion queues on a channel: armed or not, and what was consumed.
    pub(crate) fn told(&self) -> Vec<(bool, u32)> {
        std::mem::take(&mut self.0.told.lock().unwrap())
    }

    /// The attributes of the last move that it was asked for.
    pub(crate) fn last_move(&self) -> QpAttr {
        *self.0.moves.lock().unwrap().last().unwrap()
    }

    /// What the last queue pair was made with.
    pub(crate) fn last_init(&self) -> QpInit {
        self.qp().init
    }

    fn qp(&self) -> Arc<QpMemory> {
        self.0.qp.lock().unwrap().clone().unwrap()
    }

    /// What the last queue pair was made with.
    pub(crate) fn init(&self) -> QpInit {
        self.qp().init
    }

    /// What was announced so far: the send and the receive doorbell.
    pub(crate) fn doorbells(&self) -> (u32, u32) {
        let qp = self.qp();
        (qp.send_doorbell.load(Ordering::Acquire), qp.recv_doorbell.load(Ordering::Acquire))
    }

    /// The request id in the send entry at a place of the ring.
    pub(crate) fn send_id(&self, place: usize) -> u16 {
        self.send_quad(place, 0) as u16
    }

    /// A quad of the send entry at a place of the ring.
    pub(crate) fn send_quad(&self, place: usize, quad: usize) -> u64 {
        let qp = self.qp();
        load(&qp.send, place * usize::from(qp.init.entry_size) / 8 + quad)
    }

    /// The request id in the receive descriptor at a place of the ring.
    pub(crate) fn recv_id(&self, place: usize) -> u16 {
        load(&self.qp().recv, place * 2 + 1) as u16
    }

    /// Writes an entry into the send (0) or receive (1) completion queue of the queue pair, with the phase
    /// that makes it new; where it goes by calls, once that is collected.
    pub(crate) fn complete(&self, queue: usize, entry: &[u8; 32]) {
        let qp = self.qp();
        match BY_CALLS && self.0.data_path == DataPath::Verbs {
            true => qp.cqs[queue].pending.lock().unwrap().push(*entry),
            false => qp.cqs[queue].write(entry),
        }
    }

    /// Completes a send request.
    pub(crate) fn send_done(&self, req_id: u16, status: u8, op: u8) {
        self.send_done_ex(req_id, 0, status, op);
    }

    /// Completes a send request whose id has these upper 48 bits.
    pub(crate) fn send_done_ex(&self, req_id: u16, upper: u64, status: u8, op: u8) {
        let flags = flags::QUEUE_SEND | op << flags::OP_SHIFT;
        let common = Completion { req_id: req_id.into(), status, flags, qp_num: QPN.into() };
        let mut entry = send_entry(common);
        entry[6..12].copy_from_slice(&upper.to_le_bytes()[..6]);
        self.complete(0, &entry);
    }

    /// Completes a receive.
    pub(crate) fn recv_done(&self, entry: RecvCompletion) {
        self.complete(1, entry.as_bytes().try_into().unwrap());
    }
}

/// A send completion as it lies in the ring.
pub(crate) fn send_entry(common: Completion) -> [u8; 32] {
    let mut bytes = [0; 32];
    let entry = SendCompletion { common, req_id_ex: [0.into(); 3], reserved: [0; 4] };
    bytes[..16].copy_from_slice(entry.as_bytes());
    bytes
}

/// A good completion of a receive that a SEND of `len` bytes came into.
pub(crate) fn recv_entry(req_id: u16, len: u16) -> RecvCompletion {
    RecvCompletion {
        common: Completion { req_id: req_id.into(), status: 0, flags: flags::QUEUE_RECV, qp_num: QPN.into() },
        length: len.into(),
        ah: 3.into(),
        src_qp_num: 4.into(),
        imm: 0.into(),
        source: [0; 16],
    }
}

#[repr(C)]
struct PuppetMr {
    object: MrObject,
    memory: RawMemory,
}

#[repr(C)]
struct PuppetAh {
    object: AhObject,
}

// SAFETY: it touches no memory that is registered; the rings are in `Arc`s that the handles hold. What a test
// makes it say in completions is false on purpose: that no test then looks at the bytes of a buffer is all that
// is needed, since nothing writes them.
unsafe impl<const BY_CALLS: bool> Provider for Puppet<BY_CALLS> {
    type Pd = PdId;
    type Cq = Arc<CqMemory>;
    type Qp = Arc<QpMemory>;

    const BY_CALLS: bool = BY_CALLS;

    fn data_path(&self) -> DataPath {
        self.0.data_path
    }

    fn announced(&self, _: &Arc<QpMemory>) {
        self.0.handed_on.fetch_add(1, Ordering::Relaxed);
    }

    fn collect(&self, cq: &Arc<CqMemory>) {
        self.0.collected.fetch_add(1, Ordering::Relaxed);
        cq.pending.lock().unwrap().drain(..).for_each(|entry| cq.write(&entry));
    }

    fn name(&self) -> &str {
        "puppet"
    }

    fn device_id(&self) -> DeviceId {
        self.0.id
    }

    fn caps(&self) -> Caps {
        self.0.caps
    }

    fn limits(&self) -> Limits {
        Limits { max_mr_size: self.0.max_mr_size.load(Ordering::Relaxed), ..super::LIMITS }
    }

    fn gid(&self) -> Gid {
        Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
    }

    fn entropy(&self) -> u64 {
        self.0.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed)
    }

    fn leaks(&self) -> &Leaks {
        &self.0.leaks
    }

    fn alloc_pd(&self) -> Result<PdId, Error> {
        PdId::unique()
    }

    fn pd_id(pd: &PdId) -> PdId {
        *pd
    }

    unsafe fn reg_mr(&self, pd: &PdId, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        /// # Safety
        /// `object` is a `PuppetMr`'s, and nobody uses it.
        unsafe fn deregister(object: NonNull<MrObject>, _: Release) -> Result<RawMemory, Error> {
            // SAFETY: made by `Box::into_raw` below, and deregistered once.
            let mr = unsafe { Box::from_raw(object.cast::<PuppetMr>().as_ptr()) };
            Ok(mr.memory)
        }
        let parts = memory.parts();
        let iova = init.place(&memory, 1).unwrap();
        let attr = MrAttr {
            base: parts.base,
            len: parts.len,
            iova,
            lkey: LKey(1),
            rkey: RKey(2),
            pd: *pd,
            access: init.access,
        };
        let mr = Box::into_raw(Box::new(PuppetMr { object: MrObject::new(attr, deregister), memory }));
        // SAFETY: just made, claimed once, and freed by `deregister` alone; the object is first in it.
        Ok(unsafe { Mr::from_object(NonNull::new(mr).unwrap().cast()) })
    }

    fn create_ah(&self, pd: &PdId, gid: Gid) -> Result<Ah, Error> {
        /// # Safety
        /// `object` is a `PuppetAh`'s, and nobody uses it.
        unsafe fn release(object: NonNull<AhObject>) {
            // SAFETY: made by `Box::into_raw` below, and released once.
            drop(unsafe { Box::from_raw(object.cast::<PuppetAh>().as_ptr()) });
        }
        let object = AhObject::new(AhAttr { ahn: Ahn(3), gid, pd: *pd }, release);
        let ah = Box::into_raw(Box::new(PuppetAh { object }));
        // SAFETY: just made, claimed once, and freed by `release` alone.
        Ok(unsafe { Ah::from_object(NonNull::new(ah).unwrap().cast()) })
    }

    fn create_cq(&self, init: &CqInit) -> Result<Arc<CqMemory>, Error> {
        let entries = init.entries.next_power_of_two();
        let quads = if init.sgid { 4 } else { 2 };
        let words = words(entries as usize * quads);
        Ok(Arc::new(CqMemory { words, entries, quads, produced: AtomicU32::new(0), pending: Mutex::default() }))
    }

    fn consumed(&self, _: &Arc<CqMemory>, consumed: u32) {
        self.0.told.lock().unwrap().push((false, consumed));
    }

    fn create_qp(
        &self,
        _: &PdId,
        send_cq: &Arc<CqMemory>,
        recv_cq: &Arc<CqMemory>,
        init: &QpInit,
    ) -> Result<Arc<QpMemory>, Error> {
        let (send, recv) = (init.send_depth.next_power_of_two(), init.recv_depth.next_power_of_two());
        let qp = Arc::new(QpMemory {
            send: words(send as usize * usize::from(self.0.entry_size.unwrap_or(init.entry_size)) / 8),
            recv: words(recv as usize * usize::from(init.recv_sge) * 2),
            send_doorbell: AtomicU32::new(0),
            recv_doorbell: AtomicU32::new(0),
            send_slots: slots(send),
            recv_slots: slots(recv),
            cqs: [send_cq.clone(), recv_cq.clone()],
            init: QpInit { send_depth: send, recv_depth: recv, ..*init },
        });
        *self.0.qp.lock().unwrap() = Some(qp.clone());
        Ok(qp)
    }

    fn modify_qp(&self, _: &mut Arc<QpMemory>, attr: &QpAttr) -> Result<(), Error> {
        self.0.moves.lock().unwrap().push(*attr);
        match self.0.refuse_modify.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(Error::Device { verb: Verb::ModifyQp, errno }),
        }
    }

    fn query_qp(&self, _: &Arc<QpMemory>) -> Result<QpState, Error> {
        Ok(QpState::from_number(self.0.state.load(Ordering::Relaxed)))
    }

    fn destroy_qp(&self, _: &mut Arc<QpMemory>) -> Result<(), Error> {
        Ok(())
    }

    fn queues(&self, qp: &Arc<QpMemory>) -> Queues {
        let QpInit { send_depth, recv_depth, recv_sge, inline, .. } = qp.init;
        let entry_size = self.0.entry_size.unwrap_or(qp.init.entry_size);
        Queues {
            qpn: Qpn(QPN),
            generation: GENERATION,
            send: SendRing {
                entries: NonNull::from(&*qp.send).cast(),
                doorbell: NonNull::from(&qp.send_doorbell),
                depth: send_depth,
                entry_size,
                max_batch: 4,
                inline,
                req_id_64: self.0.req_id_64,
                slots: NonNull::from(&*qp.send_slots).cast(),
            },
            recv: RecvRing {
                entries: NonNull::from(&*qp.recv).cast(),
                doorbell: NonNull::from(&qp.recv_doorbell),
                descriptors: recv_depth * u32::from(recv_sge),
                depth: recv_depth,
                max_sge: recv_sge,
                slots: NonNull::from(&*qp.recv_slots).cast(),
            },
        }
    }

    fn completions(&self, cq: &Arc<CqMemory>) -> CqRing {
        CqRing {
            base: NonNull::from(&*cq.words).cast(),
            entries: cq.entries,
            entry_size: if cq.quads == 4 { 32 } else { 16 },
        }
    }
}

impl<const BY_CALLS: bool> Notifies for Puppet<BY_CALLS> {
    type Channel = ();

    fn create_cq_on(&self, init: &CqInit, _: &()) -> Result<Arc<CqMemory>, Error> {
        self.create_cq(init)
    }

    fn arm(&self, _: &Arc<CqMemory>, consumed: u32) -> Result<(), Error> {
        self.0.told.lock().unwrap().push((true, consumed));
        Ok(())
    }
}
