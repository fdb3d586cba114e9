//! What this process has: the devices, and which of its files are theirs.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use efa_core::Provider;
use efa_core::soft::SoftDevice;
use efa_os::carrier;
use efa_os::carrier::files::Numbers;

use crate::config::{Config, Log};
use crate::errno::Errno;
use crate::events::EventFile;
use crate::ioctl::Request;
use crate::mmap::Arena;
use crate::own::{self, OwnMemory};
use crate::progress::Progress;
use crate::verbs::{Context, Files};
use crate::{host, sys, sysfs};

/// What there is of the library in this process. Made when it is first needed, and never freed: a thread looks at it.
#[derive(Debug)]
pub struct Process {
    id: i32,
    config: Config,
    devices: Vec<SoftDevice>,
    progress: Progress,
    files: Mutex<BTreeMap<i32, File>>,
    tree: OnceLock<bool>,
    publishing: OnceLock<()>,
    told_of_faults: AtomicBool,
}

/// A file that the program has of this library.
#[derive(Clone, Debug)]
enum File {
    /// An open device.
    Device(Arc<Mutex<Context>>, usize),
    /// Events.
    Events(Arc<EventFile>),
}

/// A thread makes what there is.
static BEGINNING: AtomicBool = AtomicBool::new(false);
/// Why it cannot be was told.
static TOLD: AtomicBool = AtomicBool::new(false);

/// How old what the files of counters say may be.
const COUNTERS: Duration = Duration::from_millis(100);

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// The process that the library was loaded in, or the forked child that began anew; zero before either.
static HOME: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// This thread makes the tree: the files that it opens are what they are.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread makes the files that describe the devices just now.
pub fn is_making() -> bool {
    MAKING.get()
}

/// Whether what is here is this process's, and not of a parent whose memory it has, or a copy of it.
pub fn is_home() -> bool {
    let home = HOME.load(Ordering::Relaxed);
    home == 0 || home == sys::process_id()
}

/// Which files are in the table, for a look without its lock: files are closed and mapped all the time.
static OURS: Numbers = Numbers::new();

/// Whether a file may be one of this library's.
pub fn is_ours(fd: i32) -> bool {
    OURS.contains(fd)
}

impl Process {
    /// This process's; none if the environment says what is not understood, which is told once, and none in a child that
    /// has its parent's memory, or a copy of it, and began nothing of its own (`vfork`, `_Fork`): what is here is the
    /// parent's.
    pub fn get() -> Option<&'static Self> {
        if !is_home() {
            return None;
        }
        // SAFETY: made below, and never freed.
        let made = || unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
        if let Some(process) = made() {
            return Some(process);
        }
        // By one thread: an address is claimed once. No signal's handler comes in between and waits for it.
        sys::without_signals(|| {
            while BEGINNING.swap(true, Ordering::Acquire) {
                thread::yield_now();
            }
            if made().is_none() {
                match Self::new() {
                    Ok(process) => PROCESS.store(Box::into_raw(Box::new(process)), Ordering::Release),
                    Err(text) if !TOLD.swap(true, Ordering::Relaxed) => tell(&text),
                    Err(_) => {}
                }
            }
            BEGINNING.store(false, Ordering::Release);
        });
        made()
    }

    fn new() -> Result<Self, String> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().unwrap_or_else(|value| value.to_string_lossy().into())))
        });
        let config = Config::parse(variables).map_err(|error| error.to_string())?;
        let id = sys::process_id();
        let (devices, carrier) = host::make(&config, id)?;
        Ok(Self {
            id,
            progress: Progress::new(carrier, config.log),
            config,
            devices,
            files: Mutex::default(),
            tree: OnceLock::new(),
            publishing: OnceLock::new(),
            told_of_faults: AtomicBool::new(false),
        })
    }

    /// The library was loaded.
    pub fn begin() {
        HOME.store(sys::process_id(), Ordering::Relaxed);
    }

    /// A forked child has nothing of its parent's: no thread, no devices, no memory of queues.
    pub fn forget_in_child() {
        // First of all: whoever waits for this process's end sees it, and its addresses are free when it ends.
        carrier::files::in_child(|fd| {
            // SAFETY: a socket of the parent's carrier, which nobody has here.
            unsafe { sys::close(fd) };
        });
        Self::begin();
        PROCESS.store(ptr::null_mut(), Ordering::Release);
        BEGINNING.store(false, Ordering::Release);
        TOLD.store(false, Ordering::Relaxed);
        OURS.drain(|_| ());
    }

    /// The root of the tree of files that describe the devices, which are there once this returns.
    pub fn tree(&self) -> PathBuf {
        let root = sysfs::root(self.id);
        self.tree.get_or_init(|| {
            MAKING.set(true);
            let gids: Vec<_> = self.devices.iter().map(Provider::gid).collect();
            let made = sysfs::create(&root, &gids);
            if let Err(error) = &made {
                tell(&format!("{} cannot be made: {error}", root.display()));
            }
            MAKING.set(false);
            made.is_ok()
        });
        root
    }

    /// The process ends: what is to be sent goes, and what was made on disk, and what others left who were killed.
    pub fn clean_up() {
        // SAFETY: never freed.
        let Some(process) = (unsafe { PROCESS.load(Ordering::Acquire).as_ref() }) else { return };
        if process.id != sys::process_id() {
            return;
        }
        process.progress.settle();
        if process.tree.get().is_some() {
            let root = sysfs::root(process.id);
            let _ = std::fs::remove_dir_all(&root);
            sysfs::sweep_beside(&root);
        }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<i32, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many devices there are.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Drives the devices, from now on when the program says so alone.
    pub fn drive(&self) {
        // All of them are on one wire.
        if let Some(device) = self.devices.first() {
            self.progress.drive(device);
        }
    }

    /// From now on what the devices count is in their files: without a thread for it, it is not.
    fn publish_counters(&'static self) {
        self.publishing.get_or_init(|| {
            let _ = sys::without_signals(|| {
                let publish = move || {
                    let root = self.tree();
                    MAKING.set(true);
                    sysfs::publish_counters(&root, &self.devices, COUNTERS);
                };
                thread::Builder::new().name("softefa-counts".into()).spawn(publish)
            });
        });
    }

    /// A device was opened as this file.
    ///
    /// # Errors
    /// `ENODEV`, or what the system answered.
    pub fn opened(&'static self, device: usize, fd: i32) -> Result<(), Errno> {
        let soft = self.devices.get(device).ok_or(Errno::ENODEV)?;
        let context = Context::new(soft.clone(), self.config.driver, &self.progress)?;
        self.files().insert(fd, File::Device(Arc::new(Mutex::new(context)), device));
        OURS.insert(fd);
        self.publish_counters();
        Ok(())
    }

    /// The open device of a file, if it still is that file.
    fn device(&self, fd: i32) -> Option<Arc<Mutex<Context>>> {
        let file = self.files().get(&fd).cloned();
        match file {
            Some(File::Device(context, device)) if sys::character_device(fd) == sysfs::number(device) => Some(context),
            _ => None,
        }
    }

    /// The ioctl of an open device; none if the file is no such thing.
    pub fn ioctl(&self, fd: i32, addr: u64) -> Option<Result<(), Errno>> {
        let context = self.device(fd)?;
        let _call = self.progress.call();
        let done = context.lock().unwrap_or_else(PoisonError::into_inner).ioctl(&OwnMemory, addr, self);
        self.log(&done, addr);
        Some(done.map(|_| ()))
    }

    fn log(&self, done: &Result<Request, Errno>, addr: u64) {
        let log = self.config.log;
        if log == Log::Off {
            return;
        }
        match done {
            Ok(request) if log == Log::Calls => tell(&format!("object {} method {}", request.object, request.method)),
            // What every program's first call, a probe, is answered.
            Ok(_) | Err(Errno::ENOSPC) => {}
            Err(Errno(errno)) => {
                let mut header = [0; crate::ioctl::HEADER];
                let _ = crate::ioctl::UserMemory::read(&OwnMemory, addr, &mut header);
                let header = crate::uapi::Fields(&header);
                let error = std::io::Error::from_raw_os_error(*errno);
                tell(&format!("object {} method {} refused: {error}", header.u16(2), header.u16(4)));
            }
        }
        let faults = own::faults();
        if faults > 0 && !self.told_of_faults.swap(true, Ordering::Relaxed) {
            tell("memory that is registered was unmapped: what the device moves to or from it is lost");
        }
    }

    /// What a mapping of an open device is a mapping of: a file, at the same offset, there for as long as it is held. None
    /// if the file is no such thing.
    pub fn mapping(
        &self,
        fd: i32,
        key: u64,
        len: usize,
        shared: bool,
        executable: bool,
    ) -> Option<Result<Arc<Arena>, Errno>> {
        let context = self.device(fd)?;
        let context = context.lock().unwrap_or_else(PoisonError::into_inner);
        let (keys, arena) = context.mappings();
        Some(keys.check(key, len, shared, executable).map(|()| arena.clone()))
    }

    /// A file is closed.
    pub fn closed(&self, fd: i32) {
        OURS.remove(fd);
        let file = self.files().remove(&fd);
        // Not under the lock: what goes with it closes files.
        drop(file);
    }
}

impl Files for Process {
    fn give(&self, fd: OwnedFd, file: &Arc<EventFile>) -> i32 {
        let fd = fd.into_raw_fd();
        self.files().insert(fd, File::Events(file.clone()));
        OURS.insert(fd);
        fd
    }

    fn find(&self, fd: i32) -> Option<Arc<EventFile>> {
        match self.files().get(&fd) {
            Some(File::Events(file)) => Some(file.clone()),
            _ => None,
        }
    }

    fn take_back(&self, fd: i32) {
        self.closed(fd);
        // SAFETY: given before, and nobody was told its number.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Writes a line to standard error.
pub fn tell(text: &str) {
    let _ = sys::write(2, format!("softefa: {text}\n").as_bytes());
}
