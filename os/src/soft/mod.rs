//! Software devices that other processes of this machine reach, as a provider: to develop and test without an EFA.
//!
//! ```
//! use efa_core::Context;
//! use efa_core::soft::Profile;
//! use efa_os::soft::Options;
//!
//! # fn main() -> Result<(), efa_os::Error> {
//! let device = Options::new(Profile::RDMA).fabric("doc-soft").open()?.swap_remove(0);
//! let ctx = Context::open(device);
//! println!("{} at {}", ctx.name(), ctx.gid());
//! # Ok(())
//! # }
//! ```
//!
//! Whoever opens one on the same fabric, by the same user on the same machine, reaches it by the address that its hello
//! has. So do programs on `tests/softefa`, whose default fabric is the same.
//!
//! # Who drives it
//!
//! There is no thread: every poll takes a turn, of all devices that were opened together, and carries their frames. A
//! process that does not poll executes nothing that others ask of it, reads and writes of its memory included, and whoever
//! waits for it for ten seconds is told that it is unreachable. A program that polls seldom gives [`Device::run`] a thread.

#![allow(unsafe_code)]

mod channel;

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use efa_core::memory::{Mr, RawMemory};
use efa_core::peer::Ah;
use efa_core::qp::{QpAttr, QpState};
use efa_core::soft::{Config, Profile, SoftCq, SoftDevice, SoftPd, SoftQp};
use efa_core::{
    Caps, CqInit, CqRing, DeviceId, Error, Gid, Leaks, Limits, MrInit, PdId, Provider, QpInit, Queues, Registrations,
};

use crate::carrier::{Carrier, Counts, Fabric, Look, files, linked};
use crate::random;
pub use channel::Channel;
use channel::Sleepers;

/// The fabric of those who name none.
const FABRIC: &str = "default";
/// Devices that are opened together, at most.
const DEVICES: u32 = 8;
/// How long whoever drives a device sleeps when there is nothing to do yet.
const NAP: Duration = Duration::from_micros(50);

/// Which software devices to open.
#[derive(Clone, Debug)]
pub struct Options {
    config: Config,
    fabric: String,
    gid: Option<Gid>,
    devices: u32,
}

impl Options {
    /// One device of this kind, on the fabric of those who name none, at an address that is free.
    pub fn new(config: impl Into<Config>) -> Self {
        Self { config: config.into(), fabric: FABRIC.to_owned(), gid: None, devices: 1 }
    }

    /// One device with RDMA, on the fabric that `EFA_OS_FABRIC` names, if it is set.
    pub fn from_environment() -> Self {
        let options = Self::new(Profile::RDMA);
        match std::env::var_os("EFA_OS_FABRIC") {
            // What is no text is no name either, which opening says.
            Some(name) if !name.is_empty() => options.fabric(&name.to_string_lossy()),
            _ => options,
        }
    }

    /// On the fabric of this name: 1 to 32 letters, digits, dots, dashes and underscores.
    pub fn fabric(mut self, name: &str) -> Self {
        name.clone_into(&mut self.fabric);
        self
    }

    /// At this address, and those after it.
    pub fn gid(mut self, gid: Gid) -> Self {
        self.gid = Some(gid);
        self
    }

    /// So many devices, up to eight, which are driven together.
    pub fn devices(mut self, count: u32) -> Self {
        self.devices = count;
        self
    }

    /// Opens them.
    ///
    /// # Errors
    /// A name that no fabric has, an address that another process has, no device, or more than eight.
    pub fn open(&self) -> Result<Vec<Device>, crate::Error> {
        forks_are_told();
        // SAFETY: it takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        let fabric = Fabric::new(&self.fabric, user)?;
        // With one more than there can be it is refused, and not before each of many has a socket.
        let count = self.devices.min(DEVICES + 1);
        let claims = match self.gid {
            Some(gid) => fabric.claim_from(gid, count),
            None => fabric.claim_free(std::process::id(), count),
        };
        let (devices, carrier) = linked(self.config, claims?, random::bits())?;
        let shared =
            Arc::new(Shared { carrier: Mutex::new(carrier), sleepers: Mutex::default(), sleep: AtomicU8::new(AWAKE) });
        Ok(devices.into_iter().map(|device| Device { device, shared: shared.clone() }).collect())
    }
}

/// A forked child has no socket of its parent's, nor what its channels wait for: it would keep the parent's addresses, and take
/// its frames and its wake-ups. Their numbers stay taken, by a file that has nothing, since the child's copy of the devices
/// still knows them.
fn forks_are_told() {
    unsafe extern "C" fn before() {
        files::before_fork();
    }
    unsafe extern "C" fn parent() {
        files::in_parent();
    }
    unsafe extern "C" fn child() {
        files::in_child(|fd| {
            // Closed first: there may be room for no other file.
            // SAFETY: whoever has `fd` finds another file there, as one finds a socket closed.
            unsafe { libc::close(fd) };
            // Never ready, and made of nothing, also where no file system is left.
            // SAFETY: it takes numbers.
            let nothing = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
            if nothing != fd {
                // SAFETY: it takes numbers; `fd` is free, and nothing else here makes files: a child has one thread.
                unsafe { libc::dup3(nothing, fd, libc::O_CLOEXEC) };
                // SAFETY: made above, and nobody else's.
                unsafe { libc::close(nothing) };
            }
        });
    }
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        // SAFETY: functions that a fork may call: they wait for other threads only before it, and the child's makes system
        // calls only.
        unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
    });
}

/// A software device that other processes reach; clones name the same one. Its address is free when all that was opened
/// together, and whatever was made of it, is gone.
#[derive(Clone, Debug)]
pub struct Device {
    device: SoftDevice,
    shared: Arc<Shared>,
}

/// What devices that were opened together share.
#[derive(Debug)]
struct Shared {
    carrier: Mutex<Carrier>,
    sleepers: Mutex<Sleepers>,
    /// One of the three below. Somebody comes to sleep while the carrier is locked, so that whoever locks it next sees it.
    sleep: AtomicU8,
}

/// Nobody sleeps who was not told to look.
const AWAKE: u8 = 0;
/// Somebody may sleep after the next turn, which says when the one after is due.
const FALLING_ASLEEP: u8 = 1;
/// Somebody may sleep who was told that there is nothing to do, or when: a turn that did something tells otherwise.
const ASLEEP: u8 = 2;

impl Shared {
    fn with_carrier<T>(&self, with: impl FnOnce(&Carrier) -> T) -> T {
        with(&self.carrier.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whoever calls may sleep after the next turn, and is to be woken when something is due.
    fn may_sleep(&self) {
        self.with_carrier(|_| self.sleep.store(FALLING_ASLEEP, Ordering::SeqCst));
    }

    /// Says when the next turn is due: at once after one that did something, soon while something is on its way within the
    /// wire.
    fn after_turn(&self, device: &SoftDevice, carrier: &Carrier, worked: bool) {
        match self.sleep.load(Ordering::SeqCst) {
            AWAKE => {}
            ASLEEP if worked => self.stir(),
            ASLEEP => {}
            _ if worked => self.sleepers().set(Some(Duration::ZERO)),
            _ => {
                // First: what others do from now on, they tell.
                self.sleep.store(ASLEEP, Ordering::SeqCst);
                if device.is_carrying() {
                    self.sleep.store(FALLING_ASLEEP, Ordering::SeqCst);
                    return self.sleepers().set(Some(NAP));
                }
                self.sleepers().set(carrier.wakes_in());
                if self.sleep.load(Ordering::SeqCst) == AWAKE {
                    // They did, and before this.
                    self.sleepers().set(Some(NAP));
                }
            }
        }
    }

    /// A turn did something, after which there may be more to do: whoever sleeps is to look, since whoever took that turn may
    /// take no other; soon, since mostly he does.
    fn stir(&self) {
        if self.sleep.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.sleepers().set(Some(NAP));
        }
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device {
    /// The device itself, to plug it out, let it die, or look at its counters. Wakers of channels of its own may run while
    /// frames are carried, for which a call by such a waker to this device would wait for ever: they wake tasks, and no more.
    pub fn model(&self) -> &SoftDevice {
        &self.device
    }

    /// What became of the frames of all devices that were opened together.
    pub fn frames(&self) -> Counts {
        self.shared.with_carrier(Carrier::counts)
    }

    /// Drives the devices that were opened together, until `stop` is set: for a thread of the caller's.
    pub fn run(&self, stop: &AtomicBool) {
        let mut idle = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            if self.turn() {
                idle = 0;
                continue;
            }
            idle = idle.saturating_add(1);
            if idle < 1000 {
                std::hint::spin_loop();
            } else {
                thread::sleep(NAP);
            }
        }
    }

    /// Executes what is to be done, and carries frames; whether there was any. Gives up at once if another thread is at it,
    /// unless somebody may sleep after this, who then would miss what the other one did not see.
    fn turn(&self) -> bool {
        let sleeps = || self.shared.sleep.load(Ordering::SeqCst) == FALLING_ASLEEP;
        let slept = sleeps();
        let mut turned = if slept { self.device.drive() } else { self.device.turn() };
        let mut carrier = match self.shared.carrier.try_lock() {
            Ok(carrier) => carrier,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if turned {
                    // Perhaps after the other one has looked.
                    self.shared.stir();
                }
                return turned;
            }
        };
        // Who came to sleep in between counts on this turn, too: one that sees all there is.
        let sleeps = sleeps();
        if sleeps && !slept {
            turned |= self.device.drive();
        }
        let look = match (carrier.is_waiting(), sleeps) {
            // Nobody waits for room here, so whether there is some is tried.
            (true, _) => Look::Everywhere,
            (false, true) => Look::Frames,
            (false, false) => Look::Sometimes,
        };
        let worked = turned | carrier.pass(look);
        self.shared.after_turn(&self.device, &carrier, worked);
        worked
    }
}

// SAFETY: the software device's own promises: whatever is asked of the one is asked of the other.
unsafe impl Provider for Device {
    type Pd = SoftPd;
    type Cq = SoftCq;
    type Qp = SoftQp;

    fn name(&self) -> &str {
        self.device.name()
    }

    fn device_id(&self) -> DeviceId {
        self.device.device_id()
    }

    fn caps(&self) -> Caps {
        self.device.caps()
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn gid(&self) -> Gid {
        self.device.gid()
    }

    fn entropy(&self) -> u64 {
        random::bits()
    }

    fn leaks(&self) -> &Leaks {
        self.device.leaks()
    }

    #[inline]
    fn progress(&self) {
        self.turn();
    }

    fn alloc_pd(&self) -> Result<SoftPd, Error> {
        self.device.alloc_pd()
    }

    fn pd_id(pd: &SoftPd) -> PdId {
        SoftDevice::pd_id(pd)
    }

    unsafe fn reg_mr(&self, pd: &SoftPd, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        // SAFETY: by the caller's word.
        unsafe { self.device.reg_mr(pd, memory, init) }
    }

    fn registrations(&self, pd: &SoftPd) -> Option<Registrations> {
        self.device.registrations(pd)
    }

    fn create_ah(&self, pd: &SoftPd, gid: Gid) -> Result<Ah, Error> {
        self.device.create_ah(pd, gid)
    }

    fn create_cq(&self, init: &CqInit) -> Result<SoftCq, Error> {
        self.device.create_cq(init)
    }

    fn create_qp(&self, pd: &SoftPd, send: &SoftCq, recv: &SoftCq, init: &QpInit) -> Result<SoftQp, Error> {
        self.device.create_qp(pd, send, recv, init)
    }

    fn modify_qp(&self, qp: &mut SoftQp, attr: &QpAttr) -> Result<(), Error> {
        self.device.modify_qp(qp, attr)
    }

    fn query_qp(&self, qp: &SoftQp) -> Result<QpState, Error> {
        self.device.query_qp(qp)
    }

    fn destroy_qp(&self, qp: &mut SoftQp) -> Result<(), Error> {
        self.device.destroy_qp(qp)
    }

    fn unsolicited_read(&self, qp: &SoftQp) {
        self.device.unsolicited_read(qp);
    }

    fn queues(&self, qp: &SoftQp) -> Queues {
        self.device.queues(qp)
    }

    fn completions(&self, cq: &SoftCq) -> CqRing {
        self.device.completions(cq)
    }
}
