//! The fake driver, for one test at a time: it is opened before `libcuda.so.1` is asked for, and has that name.

#![allow(dead_code, unsafe_code)] // each test uses a part of it

pub(crate) mod ends;

use std::ffi::{CString, c_void};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock};

use efa_cuda::{Driver, Stream};

/// Kinds of memory that [`Fake::alloc`] makes.
pub(crate) const VIRTUAL: usize = 2;
pub(crate) const POOL: usize = 3;
pub(crate) const MANAGED: usize = 4;
pub(crate) const HOST: usize = 5;
pub(crate) const WITH_A_HOLE: usize = 6;

/// The driver, as it was when it was loaded, with a context of GPU 0 in this thread.
pub(crate) struct Fake {
    handle: usize,
    pub(crate) driver: Driver,
    _alone: MutexGuard<'static, ()>,
}

/// Where cargo builds the library for these tests.
pub(crate) fn library() -> PathBuf {
    // Not the program that runs, which may be a loader.
    let program = PathBuf::from(std::env::args_os().next().unwrap());
    program.canonicalize().unwrap().with_file_name("libfakecuda.so")
}

impl Fake {
    pub(crate) fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        static HANDLE: OnceLock<usize> = OnceLock::new();
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let handle = *HANDLE.get_or_init(|| {
            let path = CString::new(library().to_str().unwrap()).unwrap();
            // SAFETY: a C string; the library does nothing when it is opened.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            assert!(!handle.is_null(), "no {}", path.to_string_lossy());
            handle as usize
        });
        let driver = Driver::load().unwrap();
        let fake = Self { handle, driver, _alone: alone };
        fake.ask("fakecuda_reset", &[]);
        assert!(driver.device(0).unwrap().report().unwrap().name.contains("fakecuda"), "a real driver");
        fake.use_gpu(0);
        fake
    }

    /// Calls a function of the library's: numbers and pointers, at most six.
    pub(crate) fn ask(&self, name: &str, arguments: &[usize]) -> i32 {
        let name = CString::new(name).unwrap();
        // SAFETY: an open library and a C string.
        let address = unsafe { libc::dlsym(self.handle as *mut c_void, name.as_ptr()) };
        assert!(!address.is_null(), "no {name:?}");
        type Any = extern "C" fn(usize, usize, usize, usize, usize, usize) -> i32;
        // SAFETY: its functions take numbers and pointers in as many registers, and leave the rest alone.
        let function = unsafe { std::mem::transmute::<*mut c_void, Any>(address) };
        let at = |nth: usize| arguments.get(nth).copied().unwrap_or(0);
        function(at(0), at(1), at(2), at(3), at(4), at(5))
    }

    /// The same, which is to succeed.
    #[track_caller]
    pub(crate) fn call(&self, name: &str, arguments: &[usize]) {
        assert_eq!(self.ask(name, arguments), 0, "{name}");
    }

    /// As a program does that uses a GPU: its primary context is active, and this thread's.
    pub(crate) fn use_gpu(&self, device: usize) {
        let mut context = 0usize;
        self.call("cuDevicePrimaryCtxRetain", &[&raw mut context as usize, device]);
        self.call("cuCtxSetCurrent", &[context]);
    }

    /// A thread that never used CUDA.
    pub(crate) fn no_context(&self) {
        self.call("cuCtxSetCurrent", &[0]);
    }

    pub(crate) fn set(&self, name: &str, value: usize) {
        let name = CString::new(name).unwrap();
        self.call("fakecuda_set", &[name.as_ptr() as usize, value]);
    }

    /// The `nth` call from now on fails; 0: each.
    pub(crate) fn fail(&self, symbol: &str, code: usize, nth: usize) {
        let symbol = CString::new(symbol).unwrap();
        self.ask("fakecuda_fail", &[symbol.as_ptr() as usize, code, nth]);
    }

    pub(crate) fn mark(&self, line: &str) {
        let line = CString::new(line).unwrap();
        self.ask("fakecuda_mark", &[line.as_ptr() as usize]);
    }

    /// What was called since the test began, as `symbol ctx=.. argument=..`.
    pub(crate) fn log(&self) -> Vec<String> {
        let mut bytes = vec![0u8; 1 << 20];
        let len = self.ask("fakecuda_log", &[bytes.as_mut_ptr() as usize, bytes.len()]);
        bytes.truncate(len as usize);
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    /// Where in the log the last call of a function, or a mark, is.
    #[track_caller]
    pub(crate) fn at(&self, symbol: &str) -> usize {
        let log = self.log();
        let is = |line: &String| line.split(' ').next() == Some(symbol);
        log.iter().rposition(is).unwrap_or_else(|| panic!("no {symbol} in {log:#?}"))
    }

    pub(crate) fn malloc(&self, len: usize) -> u64 {
        let mut va = 0u64;
        self.call("cuMemAlloc_v2", &[&raw mut va as usize, len]);
        va
    }

    pub(crate) fn alloc(&self, kind: usize, device: usize, len: usize) -> u64 {
        let mut va = 0u64;
        self.call("fakecuda_alloc", &[kind, device, len, &raw mut va as usize]);
        va
    }

    pub(crate) fn stream(&self) -> Stream {
        let mut raw = 0usize;
        self.call("cuStreamCreate", &[&raw mut raw as usize, 0]);
        // SAFETY: a stream, which nobody destroys.
        unsafe { Stream::from_raw(self.driver, raw) }
    }

    /// A kernel that writes one byte everywhere, behind what else is on the stream.
    pub(crate) fn kernel(&self, stream: &mut Stream, va: u64, len: usize, byte: u8) {
        self.call("cuMemsetD8Async", &[va as usize, byte.into(), len, stream.raw()]);
    }

    /// What kernels that are launched now see.
    pub(crate) fn seen(&self, va: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; len];
        self.call("cuMemcpyDtoH_v2", &[bytes.as_mut_ptr() as usize, va as usize, len]);
        bytes
    }

    pub(crate) fn on_bus(&self, va: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; len];
        self.call("fakecuda_bus_read", &[va as usize, bytes.as_mut_ptr() as usize, len]);
        bytes
    }

    pub(crate) fn write_on_bus(&self, va: u64, bytes: &[u8]) {
        self.call("fakecuda_bus_write", &[va as usize, bytes.as_ptr() as usize, bytes.len()]);
    }
}

/// Files that this process has open.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Says so where libtest does not keep it: `tests/run` counts each reason.
pub(crate) fn skipped(test: &str, why: &str) {
    println!("skipped {test}: {why}");
    writeln!(std::io::stdout().lock(), "\nskipped: {why}").unwrap();
}
