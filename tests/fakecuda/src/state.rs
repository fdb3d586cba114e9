//! All that the driver knows, behind one lock; and each thread's contexts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use crate::memory::{Block, Memory};
use crate::peer::Watcher;
use crate::stream::{Event, Stream};

pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const NOT_INITIALIZED: i32 = 3;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const INVALID_CONTEXT: i32 = 201;
pub(crate) const INVALID_HANDLE: i32 = 400;
pub(crate) const NOT_FOUND: i32 = 500;
pub(crate) const NOT_READY: i32 = 600;
pub(crate) const ILLEGAL_ADDRESS: i32 = 700;
pub(crate) const NOT_SUPPORTED: i32 = 801;
pub(crate) const CAPTURE_UNSUPPORTED: i32 = 900;
pub(crate) const CAPTURE_INVALIDATED: i32 = 901;

/// What a call answers: what is not success is CUDA's number.
pub(crate) type Answer<T = ()> = Result<T, i32>;

/// What a test may set, by name.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) devices: i64,
    pub(crate) version: i64,
    pub(crate) dmabuf: i64,
    pub(crate) flush_options: i64,
    pub(crate) writes_ordering: i64,
    /// Whether the GPU hangs on the CPU's own link, where the flag for PCIe mappings means something.
    pub(crate) c2c: i64,
    /// Whether other devices' drivers are given memory by its address.
    pub(crate) p2p: i64,
    /// Whether pools can be exported.
    pub(crate) pool_dmabuf: i64,
    /// The error number by which a device is refused what was exported without the flag for PCIe mappings.
    pub(crate) attach: i64,
    /// Whether the GPU sees what a device wrote once a device has read of that GPU's memory.
    pub(crate) reads_push: i64,
}

impl Settings {
    const NEW: Self = Self {
        devices: 2,
        version: 12080,
        dmabuf: 1,
        flush_options: 1,
        writes_ordering: 0,
        c2c: 0,
        p2p: 0,
        pool_dmabuf: 0,
        attach: 0,
        reads_push: 0,
    };

    /// As `name=value,name=value` says; what is no setting is nothing.
    pub(crate) fn set_all(&mut self, text: &str) {
        for (name, value) in text.split(',').filter_map(|setting| setting.split_once('=')) {
            let _ = value.parse().map(|value| self.set(name, value));
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: i64) -> bool {
        let field = match name {
            "devices" => &mut self.devices,
            "version" => &mut self.version,
            "dmabuf" => &mut self.dmabuf,
            "flush_options" => &mut self.flush_options,
            "writes_ordering" => &mut self.writes_ordering,
            "c2c" => &mut self.c2c,
            "attach" => &mut self.attach,
            "p2p" => &mut self.p2p,
            "pool_dmabuf" => &mut self.pool_dmabuf,
            "reads_push" => &mut self.reads_push,
            _ => return false,
        };
        *field = value;
        true
    }
}

/// A call that is to fail.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) symbol: String,
    pub(crate) code: i32,
    /// Calls until it does; 0: each one.
    pub(crate) countdown: u32,
}

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) settings: Settings,
    pub(crate) initialised: bool,
    /// An error after which a context answers nothing else.
    pub(crate) sticky: Option<i32>,
    /// Those of each device's primary context that somebody retained, or made active.
    pub(crate) retained: BTreeMap<i32, u32>,
    /// Contexts that were created, and their devices.
    pub(crate) created: BTreeMap<u64, i32>,
    pub(crate) memory: Memory,
    /// Physical memory that was made, and its device.
    pub(crate) physical: BTreeMap<u64, i32>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) next_handle: u64,
    pub(crate) faults: Vec<Fault>,
    pub(crate) log: Vec<String>,
    /// Who is told when memory is freed.
    pub(crate) watchers: Vec<Watcher>,
    /// Who is to be told so after this call.
    pub(crate) to_tell: Vec<Watcher>,
}

impl Fake {
    const NEW: Self = Self {
        settings: Settings::NEW,
        initialised: false,
        sticky: None,
        retained: BTreeMap::new(),
        created: BTreeMap::new(),
        memory: Memory::NEW,
        physical: BTreeMap::new(),
        streams: BTreeMap::new(),
        events: BTreeMap::new(),
        next_handle: 0x10_0000,
        faults: Vec::new(),
        log: Vec::new(),
        watchers: Vec::new(),
        to_tell: Vec::new(),
    };

    pub(crate) fn lock() -> MutexGuard<'static, Self> {
        static FAKE: Mutex<Fake> = Mutex::new(Fake::NEW);
        FAKE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// As when the library was loaded, but that addresses and handles are never given twice, and the driver stays initialised
    /// for who has done so.
    pub(crate) fn reset(&mut self) {
        let initialised = self.initialised;
        let (next_handle, memory) = (self.next_handle, std::mem::replace(&mut self.memory, Memory::NEW));
        *self = Self { initialised, next_handle, memory: memory.emptied(), ..Self::NEW };
        CONTEXTS.with_borrow_mut(Vec::clear);
    }

    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 0x10;
        self.next_handle
    }

    pub(crate) fn device(&self, device: i32) -> Answer<i32> {
        if (0..self.settings.devices).contains(&i64::from(device)) { Ok(device) } else { Err(INVALID_DEVICE) }
    }

    pub(crate) fn device_of(&self, context: u64) -> Answer<i32> {
        if let Some(device) = self.created.get(&context) {
            return Ok(*device);
        }
        let primary = (0..16).find(|device| primary(*device) == context).ok_or(INVALID_CONTEXT)?;
        if self.retained.contains_key(&primary) { Ok(primary) } else { Err(INVALID_CONTEXT) }
    }

    /// Gives memory back, and has those told who reach it by its address.
    pub(crate) fn free(&mut self, va: u64) -> Answer {
        let (_, piece) = self.memory.find(va)?;
        self.memory.free(va)?;
        let gone = self.watchers.extract_if(.., |watcher| watcher.is_of(piece.at, piece.len));
        self.to_tell.extend(gone);
        Ok(())
    }

    /// Has kernels see what devices wrote to one GPU's memory.
    pub(crate) fn flush(&mut self, device: i32) {
        self.memory.blocks.iter_mut().filter(|block| block.device == device).for_each(Block::flush);
    }

    /// The thread's context, and its device.
    pub(crate) fn current(&self) -> Answer<(u64, i32)> {
        let context = current();
        if context == 0 { Err(INVALID_CONTEXT) } else { Ok((context, self.device_of(context)?)) }
    }
}

/// The handle of a device's primary context.
pub(crate) fn primary(device: i32) -> u64 {
    0x1000 * (device as u64 + 1)
}

thread_local! {
    pub(crate) static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The thread's context, or 0.
pub(crate) fn current() -> u64 {
    CONTEXTS.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

/// One call: logged with the context that it came in, failed if a test wants so, refused before `cuInit`.
pub(crate) fn call(symbol: &str, arguments: String, body: impl FnOnce(&mut Fake) -> Answer) -> i32 {
    let mut fake = Fake::lock();
    let code = answer(&mut fake, symbol, arguments, body);
    let told = std::mem::take(&mut fake.to_tell);
    drop(fake);
    told.into_iter().for_each(Watcher::tell);
    code
}

fn answer(fake: &mut Fake, symbol: &str, arguments: String, body: impl FnOnce(&mut Fake) -> Answer) -> i32 {
    fake.log.push(format!("{symbol} ctx={:#x}{arguments}", current()));
    let early = ["cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"].contains(&symbol);
    if !early && !fake.initialised {
        return NOT_INITIALIZED;
    }
    if let Some(nth) = fake.faults.iter().position(|fault| fault.symbol == symbol) {
        let fault = &mut fake.faults[nth];
        if fault.countdown == 0 {
            return fault.code;
        }
        fault.countdown -= 1;
        if fault.countdown == 0 {
            return fake.faults.remove(nth).code;
        }
    }
    if let (Some(code), false) = (fake.sticky, early) {
        return code;
    }
    body(fake).err().unwrap_or(0)
}

/// The driver's functions: `fn name(argument: type, ..) |fake| body`.
macro_rules! entries {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$fake:ident| $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $ty),*) -> i32 {
                let arguments = String::new() $(+ &format!(concat!(" ", stringify!($arg), "={:x?}"), $arg))*;
                $crate::state::call(stringify!($name), arguments, |$fake: &mut $crate::state::Fake| $body)
            }
        )*
    };
}
pub(crate) use entries;
