//! One wire with its devices: the lock, what lies outside it, and who keeps it alive.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "alloc")]
use alloc::sync::Arc;

use super::objects::{AhCell, MrCell};
use super::ring::{Block, Doorbells, Line, SlotCell};
use super::slab::SharedSlab;
use super::tables::{NICS, State};
use super::verbs::Depths;
use crate::{Caps, Leaks, Limits};

/// A wire. Everything that lives keeps it alive.
pub(super) struct Wire {
    locked: AtomicBool,
    state: UnsafeCell<State>,
    pub(super) shared: Shared,
    pub(super) leaks: [Leaks; NICS],
    pub(super) caps: Caps,
    pub(super) limits: Limits,
    pub(super) watching: bool,
}

/// What users reach without the lock, at addresses that stay.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) doorbells: SharedSlab<Doorbells>,
    pub(super) mrs: SharedSlab<MrCell>,
    pub(super) ahs: SharedSlab<AhCell>,
    pub(super) memory: QueueMemory,
}

/// Where the memory of queues comes from.
#[derive(Debug)]
pub(super) enum QueueMemory {
    /// Equal shares, one for each table entry.
    Static(StaticMemory),
    /// As much as is asked for.
    #[cfg(feature = "alloc")]
    Heap,
}

/// Memory of all queues and how much of it each has.
#[derive(Clone, Copy, Debug)]
pub(super) struct StaticMemory {
    pub(super) send: &'static [Line],
    pub(super) recv: &'static [Line],
    pub(super) completions: &'static [Line],
    pub(super) send_slots: &'static [SlotCell],
    pub(super) recv_slots: &'static [SlotCell],
    /// Lines or slots of one queue pair; of a completion queue twice that.
    pub(super) depth: usize,
}

/// The memory of a queue pair: rings until it is destroyed, slots longer.
#[derive(Debug)]
pub(super) struct QpMemory {
    pub(super) rings: Option<[Block<Line>; 2]>,
    pub(super) send_slots: Block<SlotCell>,
    pub(super) recv_slots: Block<SlotCell>,
}

impl QueueMemory {
    /// Memory for the queue pair at `index`; `None` if there is too little.
    pub(super) fn queue_pair(&self, index: usize, depths: Depths) -> Option<QpMemory> {
        let (send, recv) = (depths.send as usize, depths.recv as usize);
        let send_lines = send * usize::from(depths.width);
        let recv_lines = (depths.descriptors as usize).div_ceil(4);
        match self {
            Self::Static(all) => Some(QpMemory {
                rings: Some([
                    Block::of_static(share(all.send, index, all.depth, send_lines)?),
                    Block::of_static(share(all.recv, index, all.depth, recv_lines)?),
                ]),
                send_slots: Block::of_static(share(all.send_slots, index, all.depth, send)?),
                recv_slots: Block::of_static(share(all.recv_slots, index, all.depth, recv)?),
            }),
            #[cfg(feature = "alloc")]
            Self::Heap => Some(QpMemory {
                rings: Some([Block::on_heap(send_lines, Line::new)?, Block::on_heap(recv_lines, Line::new)?]),
                send_slots: Block::on_heap(send, SlotCell::new)?,
                recv_slots: Block::on_heap(recv, SlotCell::new)?,
            }),
        }
    }

    /// Memory for the completion queue at `index`; `None` if there is too little.
    pub(super) fn completion_queue(&self, index: usize, lines: usize) -> Option<Block<Line>> {
        match self {
            Self::Static(all) => share(all.completions, index, 2 * all.depth, lines).map(Block::of_static),
            #[cfg(feature = "alloc")]
            Self::Heap => Block::on_heap(lines, Line::new),
        }
    }
}

/// The first `len` elements of the share at `index`.
fn share<T>(all: &'static [T], index: usize, each: usize, len: usize) -> Option<&'static [T]> {
    all.chunks_exact(each).nth(index)?.get(..len)
}

// SAFETY: the state is reached by one thread at a time, under the lock, and is `Send`; all else is `Sync`.
unsafe impl Sync for Wire {}
// SAFETY: what it holds is `Send`; shared elements are reached through the wire alone.
unsafe impl Send for Wire {}

impl Wire {
    pub(super) fn new(state: State, shared: Shared, limits: Limits) -> Self {
        Self {
            locked: AtomicBool::new(false),
            leaks: [const { Leaks::new() }; NICS],
            caps: state.config.caps,
            watching: state.watching,
            limits,
            shared,
            state: UnsafeCell::new(state),
        }
    }

    /// The state, if nobody has it.
    #[inline(always)]
    pub(super) fn try_lock(&self) -> Option<Guard<'_>> {
        let taken = self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Made only if taken: a guard that is dropped unlocks.
        taken.is_ok().then(|| Guard(self))
    }

    /// The state. Spins while a turn or a verb in another thread has it; both are bounded.
    pub(super) fn lock(&self) -> Guard<'_> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            while self.locked.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("caps", &self.caps).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The locked state of a wire.
pub(super) struct Guard<'a>(&'a Wire);

impl Deref for Guard<'_> {
    type Target = State;

    #[inline(always)]
    fn deref(&self) -> &State {
        // SAFETY: the guard's holder alone has the state.
        unsafe { &*self.0.state.get() }
    }
}

impl DerefMut for Guard<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: the guard's holder alone has the state.
        unsafe { &mut *self.0.state.get() }
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.wakes {
            return self.wake();
        }
        self.unlock();
    }
}

impl Guard<'_> {
    #[inline(always)]
    fn unlock(&self) {
        self.0.locked.store(false, Ordering::Release);
    }

    /// Unlocks, and wakes whoever waits for an event: not before, since a waker runs code of the program's, which may
    /// ask the device for anything.
    #[cold]
    fn wake(&mut self) {
        loop {
            let waker = self.next_to_wake();
            self.unlock();
            let Some(waker) = waker else { return };
            waker.wake();
            // Locked again: its own drop would unlock.
            core::mem::forget(self.0.lock());
        }
    }
}

/// What keeps a wire alive.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    Static(&'static Wire),
    #[cfg(feature = "alloc")]
    Shared(Arc<Wire>),
}

impl Deref for Owner {
    type Target = Wire;

    #[inline(always)]
    fn deref(&self) -> &Wire {
        match self {
            Self::Static(wire) => wire,
            #[cfg(feature = "alloc")]
            Self::Shared(wire) => wire,
        }
    }
}
