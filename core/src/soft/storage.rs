//! Where a wire's tables are: in a `static`, or on the heap.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use super::channel::Channel;
use super::objects::{AhCell, MrCell};
use super::queue::Cq;
use super::ring::{Doorbells, Line, SlotCell};
use super::slab::{SharedSlab, Slab};
use super::tables::{AhEntry, Live, MAX_AH, MAX_MR, MAX_QP, MrEntry, NICS, Number, Packet, Pd, QpEntry, Slabs, State};
use super::tally::Tally;
use super::wire::{Owner, QueueMemory, Shared, StaticMemory, Wire};
use super::{Config, SoftDevice};
use crate::{Error, Limits};

/// Static memory for a wire with its devices: no allocator is needed.
///
/// `QPS` queue pairs of up to `DEPTH` sends and receives, a power of two up to 8192, or half as many sends in wide
/// entries, which take two places each (R18); twice as many
/// completion queues of up to `4 * DEPTH` entries, domains and completion counters; `QPS` completion channels; `REGIONS` memory regions; `4 * QPS`
/// address handles.
///
/// ```
/// use efa_core::{Provider, soft};
///
/// static NIC: soft::Storage<2, 16, 8> = soft::Storage::new();
/// let device = NIC.start(soft::Profile::RDMA)?;
/// let domain = device.alloc_pd()?;
/// assert!(NIC.start(soft::Profile::RDMA).is_err(), "it starts once");
/// # drop(domain);
/// # Ok::<(), efa_core::Error>(())
/// ```
pub struct Storage<const QPS: usize, const DEPTH: usize, const REGIONS: usize> {
    started: AtomicBool,
    wire: UnsafeCell<MaybeUninit<Wire>>,
    tables: UnsafeCell<Tables<QPS, DEPTH, REGIONS>>,
    doorbells: [Doorbells; QPS],
    mrs: [MrCell; REGIONS],
    ahs: [[AhCell; 4]; QPS],
    send: [[Line; DEPTH]; QPS],
    recv: [[Line; DEPTH]; QPS],
    completions: [[[[Line; 2]; DEPTH]; 2]; QPS],
    send_slots: [[SlotCell; DEPTH]; QPS],
    recv_slots: [[SlotCell; DEPTH]; QPS],
}

/// The tables that the lock guards.
struct Tables<const QPS: usize, const DEPTH: usize, const REGIONS: usize> {
    pds: [[Option<Pd>; 2]; QPS],
    cqs: [[Option<Cq>; 2]; QPS],
    qps: [QpEntry; QPS],
    numbers: [[Number; QPS]; NICS],
    live: [Option<Live>; QPS],
    mrs: [MrEntry; REGIONS],
    ahs: [[AhEntry; 4]; QPS],
    packets: [[Packet; DEPTH]; QPS],
    order: [[u16; DEPTH]; QPS],
    tallies: [[Option<Tally>; 2]; QPS],
    channels: [Option<Channel>; QPS],
}

// SAFETY: wire and tables are reached by the one call that started it, and through the wire's lock from then on.
unsafe impl<const QPS: usize, const DEPTH: usize, const REGIONS: usize> Sync for Storage<QPS, DEPTH, REGIONS> {}

impl<const QPS: usize, const DEPTH: usize, const REGIONS: usize> Default for Storage<QPS, DEPTH, REGIONS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const QPS: usize, const DEPTH: usize, const REGIONS: usize> Storage<QPS, DEPTH, REGIONS> {
    /// Storage for a `static`.
    pub const fn new() -> Self {
        const {
            assert!(QPS >= 1 && QPS <= MAX_QP, "1 to 16384 queue pairs");
            assert!(DEPTH.is_power_of_two() && DEPTH <= 8192, "a depth is a power of two up to 8192");
            assert!(REGIONS >= 1 && REGIONS <= MAX_MR, "1 to 16384 regions");
        }
        Self {
            started: AtomicBool::new(false),
            wire: UnsafeCell::new(MaybeUninit::uninit()),
            tables: UnsafeCell::new(Tables {
                pds: [const { [const { None }; 2] }; QPS],
                cqs: [const { [const { None }; 2] }; QPS],
                qps: [const { QpEntry::FREE }; QPS],
                numbers: [[Number::FREE; QPS]; NICS],
                live: [None; QPS],
                mrs: [const { MrEntry::FREE }; REGIONS],
                ahs: [const { [const { AhEntry::FREE }; 4] }; QPS],
                packets: [[Packet::FREE; DEPTH]; QPS],
                order: [[0; DEPTH]; QPS],
                tallies: [[None; 2]; QPS],
                channels: [const { None }; QPS],
            }),
            doorbells: [const { Doorbells::new() }; QPS],
            mrs: [const { MrCell::new() }; REGIONS],
            ahs: [const { [const { AhCell::new() }; 4] }; QPS],
            send: [const { [const { Line::new() }; DEPTH] }; QPS],
            recv: [const { [const { Line::new() }; DEPTH] }; QPS],
            completions: [const { [const { [const { [const { Line::new() }; 2] }; DEPTH] }; 2] }; QPS],
            send_slots: [const { [const { SlotCell::new() }; DEPTH] }; QPS],
            recv_slots: [const { [const { SlotCell::new() }; DEPTH] }; QPS],
        }
    }

    /// Makes a wire with one device; [`SoftDevice::neighbour`] adds others.
    ///
    /// # Errors
    /// [`Error::AlreadyStarted`] from the second call on.
    pub fn start(&'static self, config: impl Into<Config>) -> Result<SoftDevice, Error> {
        if self.started.swap(true, Ordering::AcqRel) {
            return Err(Error::AlreadyStarted);
        }
        let mut config = config.into();
        // SAFETY: this line is reached once, and nothing else touches the tables.
        let tables = unsafe { &mut *self.tables.get() };
        let packets = tables.packets.as_flattened_mut();
        let count = packets.len().min(config.packets as usize).clamp(1, MAX_PACKETS);
        let slabs = Slabs {
            pds: Slab::Static(tables.pds.as_flattened_mut()),
            cqs: Slab::Static(tables.cqs.as_flattened_mut()),
            qps: Slab::Static(&mut tables.qps),
            numbers: Slab::Static(tables.numbers.as_flattened_mut()),
            live: Slab::Static(&mut tables.live),
            mrs: Slab::Static(&mut tables.mrs),
            ahs: Slab::Static(tables.ahs.as_flattened_mut()),
            packets: Slab::Static(&mut packets[..count]),
            order: Slab::Static(&mut tables.order.as_flattened_mut()[..count]),
            tallies: Slab::Static(tables.tallies.as_flattened_mut()),
            channels: Slab::Static(&mut tables.channels),
        };
        let shared = Shared {
            doorbells: SharedSlab::Static(&self.doorbells),
            mrs: SharedSlab::Static(&self.mrs),
            ahs: SharedSlab::Static(self.ahs.as_flattened()),
            memory: QueueMemory::Static(StaticMemory {
                send: self.send.as_flattened(),
                recv: self.recv.as_flattened(),
                completions: self.completions.as_flattened().as_flattened().as_flattened(),
                send_slots: self.send_slots.as_flattened(),
                recv_slots: self.recv_slots.as_flattened(),
                depth: DEPTH,
            }),
        };
        config.limits = clamped(&config, &slabs, DEPTH as u32);
        let wire = Wire::new(State::new(slabs, config), shared, config.limits);
        // SAFETY: this line is reached once, and nobody knows of the wire yet.
        let place = unsafe { &mut *self.wire.get() };
        SoftDevice::on(Owner::Static(place.write(wire)))
    }
}

impl<const QPS: usize, const DEPTH: usize, const REGIONS: usize> fmt::Debug for Storage<QPS, DEPTH, REGIONS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("started", &self.started).finish_non_exhaustive()
    }
}

/// Packets that a place of 16 bits can name.
const MAX_PACKETS: usize = 1 << 16;
/// Entries that a ring's 16-bit indices can tell apart.
const MAX_ENTRIES: u32 = 1 << 15;

/// The limits as far as tables, rings of `depth` sends and receives, and the device itself allow.
fn clamped(config: &Config, tables: &Slabs, depth: u32) -> Limits {
    let asked = config.limits;
    let at_most = |asked: u32, table: usize| asked.min(u32::try_from(table).unwrap_or(u32::MAX));
    let entries = |asked: u32, times: u32| asked.min(depth.saturating_mul(times)).min(MAX_ENTRIES);
    Limits {
        max_qp: at_most(asked.max_qp, tables.qps.len()),
        max_cq: at_most(asked.max_cq, tables.cqs.len()),
        max_mr: at_most(asked.max_mr, tables.mrs.len()),
        max_pd: at_most(asked.max_pd, tables.pds.len()),
        max_ah: at_most(asked.max_ah, tables.ahs.len().min(MAX_AH)),
        max_send_depth: entries(asked.max_send_depth, 1),
        max_recv_depth: entries(asked.max_recv_depth, 2),
        max_cqe: entries(asked.max_cqe, 4),
        max_send_sge: asked.max_send_sge.min(2),
        max_recv_sge: asked.max_recv_sge.clamp(1, 2),
        max_inline: asked.max_inline.min(32),
        max_inline_wide: asked.max_inline_wide.min(80),
        max_batch: asked.max_batch.max(1),
        max_msg_size: asked.max_msg_size.min(config.max_message()),
        ..asked
    }
}

/// A wire on the heap, with its tables as large as the limits.
#[cfg(feature = "alloc")]
pub(super) fn on_heap(mut config: Config) -> Owner {
    use alloc::{boxed::Box, sync::Arc};
    fn table<T>(len: usize, make: impl Fn() -> T) -> Box<[T]> {
        (0..len).map(|_| make()).collect()
    }
    let asked = config.limits;
    let qps = (asked.max_qp as usize).min(MAX_QP);
    let regions = (asked.max_mr as usize).min(MAX_MR);
    let ahs = (asked.max_ah as usize).min(MAX_AH);
    let packets = (config.packets as usize).clamp(1, MAX_PACKETS);
    let slabs = Slabs {
        pds: Slab::Heap(table((asked.max_pd as usize).min(MAX_PACKETS - 1), || None)),
        cqs: Slab::Heap(table((asked.max_cq as usize).min(MAX_PACKETS - 1), || None)),
        qps: Slab::Heap(table(qps, || QpEntry::FREE)),
        numbers: Slab::Heap(table(qps * NICS, || Number::FREE)),
        live: Slab::Heap(table(qps, || None)),
        mrs: Slab::Heap(table(regions, || MrEntry::FREE)),
        ahs: Slab::Heap(table(ahs, || AhEntry::FREE)),
        packets: Slab::Heap(table(packets, || Packet::FREE)),
        order: Slab::Heap(table(packets, || 0)),
        tallies: Slab::Heap(table(2 * qps, || None)),
        channels: Slab::Heap(table(qps, || None)),
    };
    let shared = Shared {
        doorbells: SharedSlab::Heap(table(qps, Doorbells::new)),
        mrs: SharedSlab::Heap(table(regions, MrCell::new)),
        ahs: SharedSlab::Heap(table(ahs, AhCell::new)),
        memory: QueueMemory::Heap,
    };
    config.limits = clamped(&config, &slabs, MAX_ENTRIES);
    Owner::Shared(Arc::new(Wire::new(State::new(slabs, config), shared, config.limits)))
}
