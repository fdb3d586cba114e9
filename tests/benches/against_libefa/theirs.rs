//! The work in C, which is compiled when the benchmark runs: `libefa.c` by libibverbs and libefa, `libfabric.c` by libfabric.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::path::Path;

use efa_os::dl::Handle;

use crate::subject::{BATCH, DEPTH, Op, Phase, Queue, Subject};

type Call = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// The compiled library.
#[derive(Clone, Copy)]
pub(crate) struct Theirs(Handle);

impl Theirs {
    pub(crate) fn load(library: &Path) -> Result<Self, String> {
        // SAFETY: the library is `libefa.c`, which does nothing when it is opened.
        unsafe { Handle::of(library.as_os_str()) }.map(Self)
    }

    fn symbol<F: Copy>(self, name: &CStr) -> F {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        let symbol = self.0.symbol(name).unwrap_or_else(|| panic!("libefa.c has no {name:?}"));
        // SAFETY: the size of a function's address; of what type it is the callers know from `libefa.c`.
        unsafe { std::mem::transmute_copy(&symbol) }
    }

    /// Lets the software device behind the kernel's interface do all that is to be done, and from the first call on nothing
    /// else but that.
    pub(crate) fn drive(self) -> unsafe extern "C" fn() -> c_int {
        self.symbol(c"drive")
    }

    /// Makes a completion queue's ring writable, which a program only reads.
    pub(crate) fn unlock(self, ring: *mut c_void, bytes: usize) {
        let unlock: unsafe extern "C" fn(*mut c_void, usize) -> c_int = self.symbol(c"unlock");
        // SAFETY: as it is declared in `libefa.c`: a mapping of this program's that it may write.
        told(unsafe { unlock(ring, bytes) });
    }

    /// A subject by libefa's extended interface or another one, with RDMA or without; completions are the device's, or forged.
    pub(crate) fn subject(self, extended: bool, rdma: bool, queue: Queue, forged: bool) -> Box<dyn Subject> {
        let open: unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int, c_int, c_int) -> c_int =
            self.symbol(c"pair_open");
        let mut pair = std::ptr::null_mut();
        // SAFETY: as it is declared in `libefa.c`; the place is this function's.
        told(unsafe { open(&mut pair, DEPTH as c_uint, extended.into(), (queue == Queue::One).into(), forged.into()) });
        Box::new(Pair {
            pair,
            rdma,
            prepare: self.symbol(c"pair_prepare"),
            post: self.symbol(c"pair_post"),
            device: self.symbol(c"pair_device"),
            complete: self.symbol(c"pair_complete"),
            empty: self.symbol(c"pair_empty"),
            clean_up: self.symbol(c"pair_clean_up"),
        })
    }
}

fn told(line: c_int) {
    assert_eq!(line, 0, "libefa.c gave up in line {line}: {}", std::io::Error::last_os_error());
}

struct Pair {
    pair: *mut c_void,
    rdma: bool,
    prepare: Call,
    post: unsafe extern "C" fn(*mut c_void, c_int, c_uint) -> c_int,
    device: Call,
    complete: unsafe extern "C" fn(*mut c_void, c_int, c_uint) -> c_int,
    empty: unsafe extern "C" fn(*mut c_void) -> c_int,
    clean_up: Call,
}

fn batch(phase: Phase) -> c_uint {
    if phase.many() { BATCH as c_uint } else { 1 }
}

impl Subject for Pair {
    fn does(&self, phase: Phase) -> bool {
        match phase {
            Phase::Done { op: Op::Write | Op::Read, .. } => self.rdma,
            Phase::Taken(_) => false,
            _ => true,
        }
    }

    fn prepare(&mut self, phase: Phase) {
        if let Some(op) = phase.op() {
            // SAFETY: as it is declared in `libefa.c`, with what it opened; likewise below.
            told(unsafe { (self.prepare)(self.pair, op as c_int) });
        }
    }

    fn post(&mut self, phase: Phase) {
        if let Some(op) = phase.op() {
            // SAFETY: as above.
            told(unsafe { (self.post)(self.pair, op as c_int, batch(phase)) });
        }
    }

    fn device(&mut self, phase: Phase) {
        if let Some(op) = phase.op() {
            // SAFETY: as above.
            told(unsafe { (self.device)(self.pair, op as c_int) });
        }
    }

    fn complete(&mut self, phase: Phase) {
        match phase.op() {
            // SAFETY: as above.
            Some(op) => told(unsafe { (self.complete)(self.pair, op as c_int, batch(phase)) }),
            // SAFETY: as above.
            None => told(unsafe { (self.empty)(self.pair) }),
        }
    }

    fn clean_up(&mut self, phase: Phase) {
        if let Some(op) = phase.op() {
            // SAFETY: as above.
            told(unsafe { (self.clean_up)(self.pair, op as c_int) });
        }
    }
}
