//! The functions of one wire, and what makes them advance.
//!
//! Whoever writes a doorbell has the device take what it announces before the write is answered, so that the guest's processor
//! waits for it and the same program runs the same way each time. What is left, and keep-alives, are a thread's, which sleeps while
//! there is neither: each look takes from the processor that emulates the guest's.

#![forbid(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::{Error, Limits};

use crate::fault::Fault;
use crate::function::Function;
use crate::window;

/// Turns that a doorbell waits for at most.
const TURNS: usize = 4096;
/// Protection domains that there are, of all functions together.
const PDS: u32 = 512;
/// How often the thread looks while something is left.
const TICK: Duration = Duration::from_millis(1);
/// How often else.
const IDLE: Duration = Duration::from_millis(100);
/// How often a driver hears that its device lives.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// All functions of a wire.
#[derive(Debug)]
pub struct Card {
    /// In the order of their addresses.
    pub functions: Vec<Arc<Function>>,
    ended: AtomicBool,
    /// The thread of [`Card::run`].
    thread: OnceLock<Thread>,
}

impl Card {
    /// So many functions, with one thing wrong or none.
    ///
    /// # Errors
    /// Where the model has no more devices, or the system no memory.
    pub fn new(count: usize, fault: Option<Fault>) -> io::Result<Self> {
        let limits = Limits { max_pd: PDS, ..Config::LIMITS };
        let config = Config::new(Profile::UNSOLICITED.wide()).limits(limits).mover(window::mover());
        let first = SoftDevice::new(config);
        let device = |nth| if nth == 0 { Ok(first.clone()) } else { first.neighbour() };
        let function = |device: Result<SoftDevice, Error>| {
            let device = device.map_err(|error| io::Error::other(error.to_string()))?;
            Function::new(device, fault).map(Arc::new)
        };
        let functions = (0..count).map(|nth| function(device(nth))).collect::<io::Result<_>>()?;
        Ok(Self { functions, ended: AtomicBool::new(false), thread: OnceLock::new() })
    }

    /// Has the device do what there is to do, and tells the guests.
    pub fn advance(&self) {
        if self.work() {
            self.wake();
        }
    }

    /// Whether something is left for later.
    fn work(&self) -> bool {
        let Some(any) = self.functions.first() else { return false };
        let mut idle = 0;
        // What is held back for a few turns is on its way still.
        for _ in 0..TURNS {
            idle = if any.device().drive() { 0 } else { idle + 1 };
            if idle > 0 && !any.device().is_carrying() || idle > 64 {
                break;
            }
        }
        self.functions.iter().for_each(|function| function.raise_events());
        idle == 0 || any.device().is_carrying()
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Advances until [`Card::end`] is called.
    pub fn run(&self) {
        self.thread.get_or_init(thread::current);
        let mut told = Instant::now();
        while !self.ended.load(Ordering::Acquire) {
            let is_left = self.work();
            if told.elapsed() >= KEEP_ALIVE {
                told = Instant::now();
                self.functions.iter().for_each(|function| function.keep_alive());
            }
            if is_left { thread::sleep(TICK) } else { thread::park_timeout(IDLE) }
        }
    }

    /// Ends [`Card::run`].
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake();
    }
}
