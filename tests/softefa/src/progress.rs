//! The thread that drives the devices: they are memory, so somebody has to look at it.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use efa_core::soft::SoftDevice;

use crate::errno::Errno;
use crate::events::{EventFile, EventQueue, SQ_DRAINED};
use crate::own::OwnMemory;
use crate::sys;
use crate::verbs::{Counter, QueuePair};

/// How long it looks on after it last had something to do.
const SPIN: Duration = Duration::from_micros(5);
/// How long it sleeps then.
const NAP: Duration = Duration::from_micros(20);
/// After how long without anything to do it sleeps longer, and how long.
const IDLE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_micros(200));

/// How often it gives way to calls that wait before it takes a turn all the same: some take long.
const YIELDS: u32 = 50;

/// A queue pair whose program is to hear that its send queue is drained.
#[derive(Debug)]
struct Draining {
    qp: Arc<Mutex<QueuePair>>,
    file: Arc<EventFile>,
    element: u64,
}

/// What the thread looks at.
#[derive(Debug, Default)]
pub struct Progress {
    /// None where it cannot be made.
    thread: OnceLock<Option<Thread>>,
    queue_pairs: AtomicUsize,
    /// Calls that want a device while the thread has it.
    waiting: AtomicUsize,
    events: Mutex<Vec<Arc<EventQueue>>>,
    counters: Mutex<Vec<Arc<Counter>>>,
    draining: Mutex<Vec<Draining>>,
}

impl Progress {
    /// Starts the thread, once. `device` is any of those on the fabric.
    ///
    /// # Errors
    /// `ENOMEM` where there can be none.
    pub fn start(this: &'static Self, device: &SoftDevice) -> Result<(), Errno> {
        let thread = this.thread.get_or_init(|| {
            let device = device.clone();
            let made =
                sys::without_signals(|| thread::Builder::new().name("softefa".into()).spawn(move || this.run(&device)));
            made.ok().map(|thread| thread.thread().clone())
        });
        thread.as_ref().map(|_| ()).ok_or(Errno::ENOMEM)
    }

    fn run(&self, device: &SoftDevice) {
        sys::prefer_latency();
        let (mut last, mut yielded) = (Instant::now(), 0);
        loop {
            if self.queue_pairs.load(Ordering::Acquire) == 0 {
                // Lets go of those that ended, and tells what they came to.
                self.look_for_drained();
                self.publish();
                thread::park();
                last = Instant::now();
                continue;
            }
            if self.waiting.load(Ordering::Acquire) > 0 && yielded < YIELDS {
                yielded += 1;
                thread::yield_now();
                continue;
            }
            yielded = 0;
            let mut worked = device.turn();
            for queue in self.event_queues().iter() {
                worked |= queue.poll();
            }
            self.look_for_drained();
            self.publish();
            if worked {
                last = Instant::now();
                continue;
            }
            match last.elapsed() {
                since if since < SPIN => std::hint::spin_loop(),
                since if since < IDLE.0 => thread::sleep(NAP),
                _ => thread::sleep(IDLE.1),
            }
        }
    }

    /// Lets a call have the device: for as long as what it returns lives, the thread gives way.
    pub fn call(&self) -> impl Drop {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Release);
            }
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(&self.waiting)
    }

    /// There is a queue pair more.
    pub fn queue_pair_made(&self) {
        self.queue_pairs.fetch_add(1, Ordering::AcqRel);
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }

    /// There is one less.
    pub fn queue_pair_ended(&self) {
        self.queue_pairs.fetch_sub(1, Ordering::AcqRel);
    }

    fn event_queues(&self) -> MutexGuard<'_, Vec<Arc<EventQueue>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at this completion queue from now on.
    pub fn watch(&self, queue: &Arc<EventQueue>) {
        self.event_queues().push(queue.clone());
    }

    /// Does so no more: once it returns, nothing is raised for the queue.
    pub fn unwatch(&self, queue: &Arc<EventQueue>) {
        self.event_queues().retain(|watched| !Arc::ptr_eq(watched, queue));
    }

    fn counters(&self) -> MutexGuard<'_, Vec<Arc<Counter>>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what this counter counts from now on.
    pub fn watch_counter(&self, counter: &Arc<Counter>) {
        self.counters().push(counter.clone());
    }

    /// Does so no more: once it returns, its memory is not touched.
    pub fn unwatch_counter(&self, counter: &Arc<Counter>) {
        self.counters().retain(|watched| !Arc::ptr_eq(watched, counter));
    }

    fn publish(&self) {
        for counter in self.counters().iter() {
            counter.publish(&OwnMemory);
        }
    }

    /// Tells the program, once, when what is in flight on a queue pair in SQD has completed.
    pub fn tell_drained(&self, qp: &Arc<Mutex<QueuePair>>, file: &Arc<EventFile>, element: u64) {
        let draining = Draining { qp: qp.clone(), file: file.clone(), element };
        self.draining.lock().unwrap_or_else(PoisonError::into_inner).push(draining);
    }

    fn look_for_drained(&self) {
        let mut draining = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        draining.retain(|draining| {
            // A call that has it waits for this list, perhaps.
            let Ok(mut qp) = draining.qp.try_lock() else { return true };
            if !qp.drains() {
                return false;
            }
            let drained = qp.qp.is_drained().unwrap_or(true);
            if drained {
                qp.async_raised += 1;
                // Whoever asked twice meanwhile is told once.
                qp.told_drained();
                draining.file.raise(draining.element, SQ_DRAINED);
            }
            !drained
        });
    }
}
