//! What a driver's commands made: tables by the numbers that it knows them by, and the memory that goes along.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use efa_core::Provider;
use efa_core::memory::Mr;
use efa_core::peer::Ah;
use efa_core::soft::{SoftCq, SoftDevice, SoftPd, SoftQp};
use vm_memory::MmapRegion;

use crate::events::{EventQueue, Interrupts};
use crate::guest::{Guest, PAGE, Place};
use crate::pci::{DOORBELLS, LLQ_BYTES};
use crate::window::Window;

/// Things by their numbers: the lowest that is free, below a limit.
#[derive(Debug)]
pub struct Table<T>(Vec<Option<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Table<T> {
    /// The number that the next one will have, if there is any below `limit`.
    pub fn vacant(&self, limit: usize) -> Option<u16> {
        let nth = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if nth < limit { u16::try_from(nth).ok() } else { None }
    }

    /// Enters one under a number that [`Table::vacant`] gave.
    pub fn enter(&mut self, number: u16, thing: T) {
        let nth = usize::from(number);
        if nth >= self.0.len() {
            self.0.resize_with(nth + 1, || None);
        }
        self.0[nth] = Some(thing);
    }

    /// One by its number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.0.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// One by its number.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.0.get_mut(usize::try_from(number).ok()?)?.as_mut()
    }

    /// Takes one out.
    pub fn take(&mut self, number: u32) -> Option<T> {
        self.0.get_mut(usize::try_from(number).ok()?)?.take()
    }

    /// All there are, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        self.0.iter().enumerate().filter_map(|(nth, thing)| Some((nth as u16, thing.as_ref()?)))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.iter().count()
    }
}

/// The doorbells of a function, which last as long as the process: the device's model looks at them whenever it likes.
#[derive(Clone, Copy, Debug)]
pub struct Doorbells(&'static [AtomicU32]);

impl Doorbells {
    /// Where in the region they begin, which is where the registers end.
    pub const FIRST: u64 = PAGE as u64;
    /// Those of completion queues begin here; of each queue pair two are before.
    const OF_CQS: u64 = 0x8000;

    /// A set of them.
    pub fn new() -> Self {
        let words: Vec<_> = (0..DOORBELLS / 4).map(|_| AtomicU32::new(0)).collect();
        Self(Vec::leak(words))
    }

    /// Rings one.
    pub fn ring(self, offset: u64, value: u32) {
        if let Some(word) = self.at(offset) {
            word.store(value, Ordering::Release);
        }
    }

    /// By its offset in the region.
    pub fn at(self, offset: u64) -> Option<&'static AtomicU32> {
        let nth = offset.checked_sub(Self::FIRST).filter(|at| at.is_multiple_of(4))? / 4;
        self.0.get(usize::try_from(nth).ok()?)
    }

    /// The offsets of a queue pair's: of sends, and of receives.
    pub fn of_qp(handle: u16) -> [u64; 2] {
        let first = Self::FIRST + u64::from(handle) * 8;
        [first, first + 4]
    }

    /// The offset of a completion queue's.
    pub fn of_cq(number: u16) -> u64 {
        Self::OF_CQS + u64::from(number) * 4
    }
}

impl Default for Doorbells {
    fn default() -> Self {
        Self::new()
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    /// At the device.
    pub cq: SoftCq,
    /// The event queue that hears of it.
    pub eqn: Option<u16>,
    /// Its ring, for as long as anything writes to it.
    pub ring: Arc<Window>,
}

/// A queue pair. Dropped, it is ended; what the device does not let go of keeps its memory for ever.
#[derive(Debug)]
pub struct QueuePair {
    /// At the device.
    pub qp: SoftQp,
    /// What a query tells besides the state: key, sequence number, retries.
    pub told: (u32, u32, u8),
    /// Whose.
    pub device: SoftDevice,
    /// Its send queue in the function's memory, receive queue in the guest's, and rings that it completes in.
    pub memory: Option<(LlqPages, [Place; 2], [Arc<Window>; 2])>,
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if self.device.destroy_qp(&mut self.qp).is_err() {
            std::mem::forget(self.memory.take());
        }
    }
}

/// Which pages of the function's second region are in use, by send queues.
#[derive(Debug)]
pub struct Llq {
    memory: Arc<MmapRegion>,
    used: Arc<std::sync::Mutex<Vec<bool>>>,
}

/// Pages of a send queue: no two share one, as a program maps whole pages.
#[derive(Debug)]
pub struct LlqPages {
    used: Arc<std::sync::Mutex<Vec<bool>>>,
    pages: std::ops::Range<usize>,
}

impl Llq {
    /// Of memory that the monitor maps as well.
    pub fn new(memory: Arc<MmapRegion>) -> Self {
        Self { memory, used: Arc::new(std::sync::Mutex::new(vec![false; LLQ_BYTES / PAGE])) }
    }

    /// So many bytes, as an offset, and where they are.
    pub fn allocate(&self, bytes: usize) -> Option<(LlqPages, u32, Place)> {
        let count = bytes.div_ceil(PAGE).max(1);
        let mut used = self.used.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let first = used.windows(count).position(|run| run.iter().all(|used| !used))?;
        let place = Place::within(&self.memory, first * PAGE, count * PAGE)?;
        used.get_mut(first..first + count)?.fill(true);
        let pages = LlqPages { used: self.used.clone(), pages: first..first + count };
        Some((pages, (first * PAGE) as u32, place))
    }
}

impl Drop for LlqPages {
    fn drop(&mut self) {
        let mut used = self.used.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(pages) = used.get_mut(self.pages.clone()) {
            pages.fill(false);
        }
    }
}

/// Everything.
#[derive(Debug)]
pub struct Objects {
    /// Before the completion queues that they complete in, and the domains that they are of.
    pub qps: Table<QueuePair>,
    /// By their local keys; each owns its list of pages.
    pub mrs: BTreeMap<u32, Mr>,
    /// With the numbers of their domains.
    pub ahs: Vec<(u16, Ah)>,
    /// Completion queues.
    pub cqs: Table<CompletionQueue>,
    /// Event queues.
    pub eqs: Table<EventQueue>,
    /// Domains.
    pub pds: Table<SoftPd>,
    /// Pages of doorbells: all are one here.
    pub uars: Table<()>,
    /// Where doorbells are.
    pub doorbells: Doorbells,
    /// Where send queues are.
    pub llq: Llq,
}

impl Objects {
    /// None yet.
    pub fn new(doorbells: Doorbells, memory: Arc<MmapRegion>) -> Self {
        Self {
            qps: Table::default(),
            mrs: BTreeMap::new(),
            ahs: Vec::new(),
            cqs: Table::default(),
            eqs: Table::default(),
            pds: Table::default(),
            uars: Table::default(),
            doorbells,
            llq: Llq::new(memory),
        }
    }

    /// Ends all there are.
    pub fn clear(&mut self) {
        self.qps = Table::default();
        self.mrs.clear();
        self.ahs.clear();
        self.cqs = Table::default();
        self.eqs = Table::default();
        self.pds = Table::default();
        self.uars = Table::default();
    }

    /// Tells the event queues of the completion queues that have an event each.
    pub fn raise_events(&mut self, guest: &Guest, interrupts: &mut Interrupts) {
        for (number, cq) in self.cqs.iter() {
            let Some(eqn) = cq.eqn else { continue };
            if cq.cq.take_event()
                && let Some(eq) = self.eqs.get_mut(eqn.into())
            {
                eq.push(number, guest, interrupts);
            }
        }
    }
}
