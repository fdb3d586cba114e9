//! The thread that drives the devices, and what carries their frames: they are memory, so somebody has to look at it.
//!
//! While there are queue pairs it naps between looks at their doorbells; without any it sleeps until a frame comes, or
//! somebody makes one. A frame that comes, and room where there was none, end its sleep at once.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use efa_core::soft::SoftDevice;
use efa_os::carrier::files::Kept;
use efa_os::carrier::{Carrier, Counts, Interest, Look};

use crate::config::Log;
use crate::errno::Errno;
use crate::events::{EventFile, EventQueue, SQ_DRAINED};
use crate::own::OwnMemory;
use crate::sys::{self, Wait};
use crate::verbs::{Counter, QueuePair};
use crate::{process, sysfs};

/// How long it looks on after it last had something to do.
const SPIN: Duration = Duration::from_micros(5);
/// How long it sleeps then.
const NAP: Duration = Duration::from_micros(20);
/// After how long without anything to do it sleeps longer, and how long.
const IDLE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_micros(200));

/// How long it does not look again for what killed processes left on disk.
const SWEEP: Duration = Duration::from_secs(1);

/// How long the end of the process waits for what is to be sent.
const LAST_WORDS: Duration = Duration::from_millis(100);

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
    /// Where it is woken; none where it cannot be made.
    thread: OnceLock<Option<Kept<OwnedFd>>>,
    /// Until the thread has it.
    carrier: Mutex<Option<Carrier>>,
    log: Log,
    is_linked: bool,
    /// Rounds without anything to do, and without a frame that waits for room.
    rests: AtomicUsize,
    queue_pairs: AtomicUsize,
    /// Calls that want a device while the thread has it.
    waiting: AtomicUsize,
    /// Whether the program drives the devices, and not the thread.
    is_driven: AtomicBool,
    events: Mutex<Vec<Arc<EventQueue>>>,
    counters: Mutex<Vec<Arc<Counter>>>,
    draining: Mutex<Vec<Draining>>,
}

impl Progress {
    /// For devices whose frames this carries, if others can reach them.
    pub fn new(carrier: Option<Carrier>, log: Log) -> Self {
        Self { is_linked: carrier.is_some(), carrier: Mutex::new(carrier), log, ..Self::default() }
    }

    /// Starts the thread, once. `device` is any of those on the fabric.
    ///
    /// # Errors
    /// `ENOMEM` where there can be none.
    pub fn start(this: &'static Self, device: &SoftDevice) -> Result<(), Errno> {
        let waker = this.thread.get_or_init(|| {
            let device = device.clone();
            let [woken, waker] = Kept::make(|| {
                let pipe = sys::pipe().map_err(|Errno(errno)| io::Error::from_raw_os_error(errno));
                pipe.map(|(read, write)| [read, write])
            })
            .ok()?;
            let carrier = this.carrier.lock().unwrap_or_else(PoisonError::into_inner).take();
            let looks = Looks { carrier, woken, files: Vec::new(), counts: Counts::default(), swept: None };
            let made = sys::without_signals(|| {
                thread::Builder::new().name("softefa".into()).spawn(move || this.run(&device, looks))
            });
            made.ok().map(|_| waker)
        });
        waker.as_ref().map(|_| ()).ok_or(Errno::ENOMEM)
    }

    fn run(&self, device: &SoftDevice, mut looks: Looks) {
        sys::prefer_latency();
        let (mut last, mut yielded, mut look) = (Instant::now(), 0, Look::Sometimes);
        loop {
            if self.waiting.load(Ordering::Acquire) > 0 && yielded < YIELDS {
                yielded += 1;
                thread::yield_now();
                continue;
            }
            yielded = 0;
            let has_queues = self.queue_pairs.load(Ordering::Acquire) > 0;
            let mut worked = has_queues && !self.is_driven.load(Ordering::Acquire) && device.turn();
            worked |= looks.pass(look, self.log);
            look = Look::Sometimes;
            for queue in self.event_queues().iter() {
                worked |= queue.poll();
            }
            // Lets go of those that ended, too.
            self.look_for_drained();
            self.publish();
            if worked {
                last = Instant::now();
                continue;
            }
            if looks.is_at_rest() {
                self.rests.fetch_add(1, Ordering::Release);
            }
            let nap = match last.elapsed() {
                since if since < SPIN => {
                    std::hint::spin_loop();
                    continue;
                }
                _ if !has_queues => None,
                since if since < IDLE.0 => Some(NAP),
                _ => Some(IDLE.1),
            };
            look = looks.wait(nap);
            if !has_queues {
                last = Instant::now();
            }
        }
    }

    /// Gives what is to be sent to others some time to go, since the process ends: what its program has received it has
    /// not yet answered, perhaps, and a device does not die with a program.
    pub fn settle(&self) {
        let Some(Some(waker)) = self.thread.get().filter(|_| self.is_linked) else { return };
        let (begun, before) = (Instant::now(), self.rests.load(Ordering::Acquire));
        // A whole round from now on, not the rest of one.
        while self.rests.load(Ordering::Acquire).wrapping_sub(before) < 2 && begun.elapsed() < LAST_WORDS {
            let _ = sys::write(waker.as_raw_fd(), &[0]);
            thread::sleep(NAP);
        }
    }

    /// Drives the devices until nothing is left to do, here and from now on instead of in the thread: what they do then is not
    /// beside what the program measures.
    pub fn drive(&self, device: &SoftDevice) {
        self.is_driven.store(true, Ordering::Release);
        while device.drive() || device.is_carrying() {}
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
        let before = self.queue_pairs.fetch_add(1, Ordering::AcqRel);
        if let Some(Some(waker)) = self.thread.get().filter(|_| before == 0) {
            // A pipe that is full wakes it, too.
            let _ = sys::write(waker.as_raw_fd(), &[0]);
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
                // Whoever asked twice meanwhile is told once.
                qp.told_drained();
                qp.async_raised += u32::from(draining.file.raise(draining.element, SQ_DRAINED));
            }
            !drained
        });
    }
}

/// What the thread looks at beside the devices.
#[derive(Debug)]
struct Looks {
    carrier: Option<Carrier>,
    /// Readable when it is to wake.
    woken: Kept<OwnedFd>,
    /// Room for what is waited for.
    files: Vec<Wait>,
    /// What became of frames, when it was looked at last.
    counts: Counts,
    /// When it looked for what killed processes left.
    swept: Option<Instant>,
}

impl Looks {
    /// Carries frames; whether there were any.
    #[inline]
    fn pass(&mut self, look: Look, log: Log) -> bool {
        let Some(carrier) = &mut self.carrier else { return false };
        let worked = carrier.pass(look);
        if worked {
            self.count(log);
        }
        worked
    }

    fn is_at_rest(&self) -> bool {
        self.carrier.as_ref().is_some_and(|carrier| !carrier.is_waiting())
    }

    /// Looks at what is rare.
    fn count(&mut self, log: Log) {
        let counts = self.carrier.as_ref().map(Carrier::counts).unwrap_or_default();
        if counts.refused > 0 && self.counts.refused == 0 && log > Log::Off {
            process::tell("a frame was refused: something else sends to this process's address");
        }
        if counts.unreachable > self.counts.unreachable && self.swept.is_none_or(|at| at.elapsed() > SWEEP) {
            self.swept = Some(Instant::now());
            // Whoever had the address may have been killed: what it left on disk goes. Not by this thread, which would
            // be at it for as long as the folder is large; nor by any if there can be none.
            let root = sysfs::root(sys::process_id());
            let _ = sys::without_signals(|| thread::Builder::new().spawn(move || sysfs::sweep_beside(&root)));
        }
        self.counts = counts;
    }

    /// Waits until a frame may have come, there may be room, the carrier wants to be called, or the time is over; where
    /// the next pass is to look.
    fn wait(&mut self, most: Option<Duration>) -> Look {
        self.files.clear();
        self.files.push(Wait { fd: self.woken.as_raw_fd(), room: false });
        let mut most = most;
        if let Some(carrier) = &self.carrier {
            let files = carrier.sockets().map(|(file, interest)| (file.as_raw_fd(), interest == Interest::Room));
            self.files.extend(files.map(|(fd, room)| Wait { fd, room }));
            most = [most, carrier.wakes_in()].into_iter().flatten().min();
        }
        let Some(is_woken) = sys::wait(&self.files, most) else { return Look::Sometimes };
        if is_woken {
            let _ = sys::read(&self.woken, &mut [0; 64]);
        }
        Look::Everywhere
    }
}
