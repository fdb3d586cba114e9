//! Calls of a program that may ask for anything, as bytes: for property tests and fuzzing.
//!
//! A script is a sequence of calls; each begins as a good request, of a kind that a byte says, with a few bytes changed.
//! Whatever it asks for it gets an answer, and the device goes on: see [`run`].

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, OnceLock};

use efa_core::soft::{Config, Profile, SoftDevice};

use crate::driver::Driver;
use crate::errno::Errno;
use crate::events::EventFile;
use crate::ioctl::{ATTR, HEADER, UserMemory};
use crate::own;
use crate::progress::Progress;
use crate::sys;
use crate::uapi::{Answer, DRIVER_EFA, QPT_DRIVER, attr, command, method, object};
use crate::verbs::{Context, Files};

/// A program's memory that is not this process's.
#[derive(Debug)]
pub struct FakeMemory(RefCell<Vec<u8>>);

/// Its first address.
pub const BASE: u64 = 0x10000;
/// Its bytes.
pub const SIZE: usize = 0x10000;
/// Where requests put what they point to.
const DATA: u64 = BASE + 0x1000;
const ANSWERS: u64 = BASE + 0x2000;
/// Where a counter has its two counts.
pub const COUNTS: u64 = BASE + 0x3000;

impl FakeMemory {
    /// All zeros.
    pub fn new() -> Self {
        Self(RefCell::new(vec![0; SIZE]))
    }

    fn at<T>(&self, addr: u64, len: usize, call: impl FnOnce(&mut [u8]) -> T) -> Result<T, Errno> {
        let start = addr.checked_sub(BASE).and_then(|start| usize::try_from(start).ok()).ok_or(Errno::EFAULT)?;
        let end = start.checked_add(len).ok_or(Errno::EFAULT)?;
        self.0.borrow_mut().get_mut(start..end).map(call).ok_or(Errno::EFAULT)
    }

    /// The bytes at an address inside.
    pub fn bytes<const N: usize>(&self, addr: u64) -> [u8; N] {
        self.at(addr, N, |bytes| bytes.try_into().unwrap_or([0; N])).unwrap_or([0; N])
    }
}

impl Default for FakeMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl UserMemory for FakeMemory {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        self.at(addr, out.len(), |bytes| out.copy_from_slice(bytes))
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.at(addr, bytes.len(), |to| to.copy_from_slice(bytes))
    }
}

/// The files of such a program.
#[derive(Debug, Default)]
pub struct FakeFiles(RefCell<BTreeMap<i32, (OwnedFd, Arc<EventFile>)>>);

impl Files for FakeFiles {
    fn give(&self, fd: OwnedFd, file: &Arc<EventFile>) -> i32 {
        let number = fd.as_raw_fd();
        self.0.borrow_mut().insert(number, (fd, file.clone()));
        number
    }

    fn find(&self, fd: i32) -> Option<Arc<EventFile>> {
        self.0.borrow().get(&fd).map(|(_, file)| file.clone())
    }

    fn take_back(&self, fd: i32) {
        self.0.borrow_mut().remove(&fd);
    }
}

impl FakeFiles {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }
}

/// A request in the making: header and attributes, and what they point to.
#[derive(Clone, Debug)]
pub struct Draft {
    bytes: Vec<u8>,
    data: Vec<u8>,
    answers: u64,
}

impl Draft {
    /// A request without attributes.
    pub fn new(object: u16, method: u16) -> Self {
        let header = Answer::<HEADER>::new().u16(0, HEADER as u16).u16(2, object).u16(4, method).u32(16, DRIVER_EFA);
        Self { bytes: header.0.to_vec(), data: Vec::new(), answers: ANSWERS }
    }

    fn attr(mut self, id: u16, len: usize, data: u64) -> Self {
        let attr = Answer::<ATTR>::new().u16(0, id).u16(2, len as u16).u16(4, 1).u64(8, data);
        self.bytes.extend_from_slice(&attr.0);
        let (length, count) = (self.bytes.len(), (self.bytes.len() - HEADER) / ATTR);
        self.bytes[..2].copy_from_slice(&(length as u16).to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&(count as u16).to_ne_bytes());
        self
    }

    /// With bytes: in the attribute itself, if there are no more than eight.
    pub fn input(mut self, id: u16, bytes: &[u8]) -> Self {
        let mut inline = [0; 8];
        if let Some(place) = inline.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
            return self.attr(id, bytes.len(), u64::from_ne_bytes(inline));
        }
        let at = DATA + self.data.len() as u64;
        self.data.extend_from_slice(bytes);
        self.attr(id, bytes.len(), at)
    }

    /// With room for an answer, whose address is returned too.
    pub fn output(mut self, id: u16, len: usize) -> (Self, u64) {
        let at = self.answers;
        self.answers += len.next_multiple_of(8) as u64;
        (self.attr(id, len, at), at)
    }

    /// With room for an answer.
    pub fn room(self, id: u16, len: usize) -> Self {
        self.output(id, len).0
    }

    /// With an object's or a file's number.
    pub fn number(self, id: u16, number: u64) -> Self {
        self.attr(id, 0, number)
    }

    /// A command of the older interface.
    pub fn command(number: u32, input: &[u8], answer: usize) -> Self {
        let draft = Self::new(object::DEVICE, method::DEVICE_INVOKE_WRITE)
            .input(attr::WRITE_CMD, &u64::from(number).to_ne_bytes());
        let draft = draft.input(attr::CORE_IN, input);
        if answer > 0 { draft.room(attr::CORE_OUT, answer) } else { draft }
    }

    /// The argument's bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What the argument points to, to be changed.
    pub fn data_mut(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    /// Makes the call.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn call(&self, context: &mut Context, memory: &FakeMemory, files: &FakeFiles) -> Result<(), Errno> {
        memory.write(DATA, &self.data)?;
        memory.write(BASE, &self.bytes)?;
        context.ioctl(memory, BASE, files).map(|_| ())
    }

    /// The number that a call has put into its first attribute.
    pub fn answered(memory: &FakeMemory) -> u32 {
        u32::from_ne_bytes(memory.bytes(BASE + HEADER as u64 + 8))
    }
}

/// An open device of its own with all that there is, whose program has made no call.
///
/// # Errors
/// What the system answered.
pub fn open() -> Result<Context, Errno> {
    open_by(Driver { req_id_64: true, ..Driver::default() })
}

/// [`open`], as a driver has it.
///
/// # Errors
/// What the system answered.
pub fn open_by(driver: Driver) -> Result<Context, Errno> {
    static PROGRESS: OnceLock<Progress> = OnceLock::new();
    let config = Config::new(Profile::UNSOLICITED.wide().counting()).mover(own::mover()).req_id_64(driver.req_id_64);
    Context::new(SoftDevice::new(config), driver, PROGRESS.get_or_init(Progress::default))
}

/// Some memory of the process's own: a page's worth, and the number of a file in memory that is as long.
fn own_memory() -> (u64, i32) {
    #[repr(align(64))]
    struct Own([AtomicU8; SIZE]);
    const SIZE: usize = 4096;
    static OWN: Own = Own([const { AtomicU8::new(0) }; SIZE]);
    static FILE: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let file = FILE.get_or_init(|| sys::memfd().ok().filter(|file| sys::resize(file, SIZE as u64).is_ok()));
    (OWN.0.as_ptr() as u64, file.as_ref().map_or(-1, |file| file.as_raw_fd()))
}

/// Kinds of good requests.
pub const KINDS: u8 = 34;

/// The good requests, by a number; `handle` is an object that some of them name.
pub fn good(kind: u8, handle: u32) -> Draft {
    let handle = u64::from(handle);
    let small = handle as u32;
    match kind % KINDS {
        0 => Draft::new(object::DEVICE, method::DEVICE_GET_CONTEXT)
            .room(0, 4)
            .room(1, 8)
            .input(attr::UHW_IN, &[3, 0, 0, 0, 0, 0, 0, 0])
            .room(attr::UHW_OUT, 24),
        1 => Draft::new(object::ASYNC_EVENT, method::ASYNC_EVENT_ALLOC).number(attr::HANDLE, 0),
        2 => Draft::command(command::EX_QUERY_DEVICE, &[0; 8], 304).room(attr::UHW_OUT, 24),
        3 => Draft::command(command::QUERY_DEVICE, &[0; 8], 176),
        4 => Draft::new(object::DEVICE, method::DEVICE_QUERY_PORT).input(0, &1u64.to_ne_bytes()).room(1, 48),
        5 => Draft::new(object::DEVICE, method::DEVICE_QUERY_GID_TABLE)
            .input(0, &32u64.to_ne_bytes())
            .input(1, &[0; 4])
            .room(2, 32)
            .room(3, 8),
        6 => Draft::new(object::DEVICE, method::DEVICE_QUERY_GID_ENTRY)
            .input(0, &1u64.to_ne_bytes())
            .input(1, &[0; 8])
            .input(2, &[0; 4])
            .room(3, 32),
        7 => Draft::command(command::ALLOC_PD, &[0; 8], 4).room(attr::UHW_OUT, 8),
        8 => {
            // Its own bytes: a static that is there.
            static MEMORY: [u8; 64] = [0; 64];
            let at = MEMORY.as_ptr() as u64;
            let request = Answer::<40>::new().u64(8, at).u64(16, 64).u64(24, at).u32(32, small);
            Draft::command(command::REG_MR, &request.0, 12)
        }
        9 => {
            let request = Answer::<56>::new().u32(16, small).u8(24, 0xFE).u8(53, 1).u8(54, 1);
            Draft::command(command::CREATE_AH, &request.0, 4).room(attr::UHW_OUT, 8)
        }
        10 => Draft::command(command::CREATE_COMP_CHANNEL, &[0; 8], 4),
        11 => Draft::new(object::CQ, method::CREATE)
            .number(attr::HANDLE, 0)
            .input(attr::CQ_CQE, &16u32.to_ne_bytes())
            .input(attr::CQ_USER_HANDLE, &[7; 8])
            .input(attr::CQ_COMP_VECTOR, &[0; 4])
            .room(attr::CQ_RESP_CQE, 4)
            .input(attr::UHW_IN, &Answer::<16>::new().u32(4, 16).u16(8, 1).0)
            .room(attr::UHW_OUT, 40),
        12 => Draft::new(object::QP, method::CREATE)
            .number(attr::HANDLE, 0)
            .number(attr::QP_PD, handle)
            .number(attr::QP_SEND_CQ, handle + 1)
            .number(attr::QP_RECV_CQ, handle + 1)
            .input(attr::QP_USER_HANDLE, &[9; 8])
            .input(attr::QP_CAP, &Answer::<20>::new().u32(0, 8).u32(4, 8).u32(8, 2).u32(12, 1).u32(16, 32).0)
            .input(attr::QP_TYPE, &QPT_DRIVER.to_ne_bytes())
            .room(attr::QP_RESP_CAP, 20)
            .room(attr::QP_RESP_QP_NUM, 4)
            .input(attr::UHW_IN, &Answer::<16>::new().u32(4, 8 * 16).u32(8, 8 * 64).0)
            .room(attr::UHW_OUT, 64),
        13 => {
            // To INIT.
            let request = Answer::<112>::new().u32(64, small).u32(68, 0x71).u8(96, 1).u8(104, 1);
            Draft::command(command::MODIFY_QP, &request.0, 0)
        }
        14 => Draft::command(command::QUERY_QP, &Answer::<16>::new().u32(8, small).u32(12, 1).0, 128),
        15 => Draft::new(object::QP, method::CREATED_DESTROY).number(attr::HANDLE, handle).room(attr::DESTROY_RESP, 4),
        16 => Draft::new(object::CQ, method::CREATED_DESTROY).number(attr::HANDLE, handle).room(attr::DESTROY_RESP, 8),
        17 => Draft::new(object::AH, method::DESTROY).number(attr::HANDLE, handle),
        18 => Draft::new(object::MR, method::MR_DESTROY).number(attr::HANDLE, handle),
        19 => Draft::new(object::PD, method::DESTROY).number(attr::HANDLE, handle),
        20 => Draft::new(object::DEVICE, method::DEVICE_QUERY_PORT_SPEED).input(0, &1u64.to_ne_bytes()).room(1, 8),
        21 => Draft::new(object::MR, method::MR_REG_DMABUF)
            .number(attr::HANDLE, 0)
            .number(attr::MR_PD, handle)
            .input(attr::DMABUF_OFFSET, &64u64.to_ne_bytes())
            .input(attr::DMABUF_LENGTH, &128u64.to_ne_bytes())
            .input(attr::DMABUF_IOVA, &0x7040u64.to_ne_bytes())
            .input(attr::DMABUF_FD, &own_memory().1.to_ne_bytes())
            .input(attr::DMABUF_ACCESS, &7u32.to_ne_bytes())
            .room(attr::DMABUF_RESP_LKEY, 4)
            .room(attr::DMABUF_RESP_RKEY, 4),
        22 | 23 => {
            let (address, file) = own_memory();
            let draft = Draft::new(object::MR, method::MR_REG).number(attr::HANDLE, 0).number(attr::MR_PD, handle);
            let draft = match kind % KINDS {
                22 => draft.input(attr::MR_ADDR, &address.to_ne_bytes()).input(attr::MR_IOVA, &address.to_ne_bytes()),
                _ => {
                    let draft = draft.number(attr::MR_FD, file as u64).input(attr::MR_FD_OFFSET, &[0; 8]);
                    draft.input(attr::MR_IOVA, &0x7000u64.to_ne_bytes())
                }
            };
            draft
                .input(attr::MR_LENGTH, &64u64.to_ne_bytes())
                .input(attr::MR_ACCESS, &1u32.to_ne_bytes())
                .room(attr::MR_RESP_LKEY, 4)
                .room(attr::MR_RESP_RKEY, 4)
        }
        24 => Draft::new(object::MR, method::MR_QUERY)
            .number(attr::MR_QUERIED, handle)
            .room(attr::MR_QUERIED + 1, 2)
            .room(attr::MR_QUERIED + 2, 2)
            .room(attr::MR_QUERIED + 3, 2)
            .room(attr::MR_QUERIED + 4, 2),
        25 => good(11, small)
            .input(attr::CQ_BUFFER_VA, &own_memory().0.to_ne_bytes())
            .input(attr::CQ_BUFFER_LENGTH, &256u64.to_ne_bytes()),
        26 => good(11, small)
            .number(attr::CQ_BUFFER_FD, own_memory().1 as u64)
            .input(attr::CQ_BUFFER_OFFSET, &512u64.to_ne_bytes())
            .input(attr::CQ_BUFFER_LENGTH, &256u64.to_ne_bytes()),
        27 => Draft::new(object::DEVICE, method::DEVICE_QUERY_COUNTERS).room(0, 4).room(1, 8).room(2, 4),
        28 => counter(Answer::new().u32(0, 1).u64(16, COUNTS).u64(24, 8)),
        29 => counter(Answer::new().u32(4, own_memory().1 as u32).u64(16, 1024).u64(24, 16)),
        30 => Draft::new(object::COUNTER, method::COUNTER_MODIFY)
            .number(attr::HANDLE, handle)
            .input(attr::COUNTER_ENTRY, &[0; 8])
            .input(attr::COUNTER_OP, &1u64.to_ne_bytes())
            .input(attr::COUNTER_VALUE, &7u64.to_ne_bytes()),
        31 => Draft::new(object::COUNTER, method::COUNTER_READ)
            .number(attr::HANDLE, handle)
            .input(attr::COUNTER_ENTRY, &[0; 8])
            .room(attr::COUNTER_RESP_VALUE, 8),
        32 => Draft::new(object::QP, method::QP_ATTACH_COUNTER)
            .number(attr::HANDLE, handle)
            .number(attr::COUNTER_HANDLE, handle + 1)
            .input(attr::COUNTER_OPS, &0x3Fu32.to_ne_bytes()),
        _ => Draft::new(object::COUNTER, method::CREATED_DESTROY).number(attr::HANDLE, handle),
    }
}

/// A completion counter whose count of what ended well is there; that of failures is in the program's memory.
fn counter(done: Answer<32>) -> Draft {
    let failed = Answer::<32>::new().u32(0, 1).u64(16, COUNTS + 8).u64(24, 8);
    Draft::new(object::COUNTER, method::CREATE)
        .number(attr::HANDLE, 0)
        .input(attr::COUNTER_DONE, &done.0)
        .input(attr::COUNTER_FAILED, &failed.0)
}

/// What a call began as, and its answer.
pub type Outcome = (u8, Result<(), Errno>);

/// Runs a script on a device of its own, and then does with it what a good program does. What each call came to.
///
/// # Panics
/// If there is no device, or it does not go on.
pub fn run(script: &[u8]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let (memory, files) = (FakeMemory::new(), FakeFiles::default());
    let mut context = open().unwrap_or_else(|error| panic!("no device can be opened: {error:?}"));
    // Half of them begin with what there is after a good start: a domain 0, a queue 1, a queue pair 2.
    if script.first().is_some_and(|first| first & 1 == 0) {
        for kind in [0, 7, 11, 12] {
            let _ = good(kind, 0).call(&mut context, &memory, &files);
        }
    }
    for step in script.chunks(8).take(64) {
        let [kind, handle, changes @ ..] = step else { break };
        let mut draft = good(*kind, u32::from(*handle) % 8);
        for change in changes.chunks_exact(3) {
            let [at, what, value] = change else { break };
            let bytes = if what & 1 == 0 { draft.bytes_mut() } else { draft.data_mut() };
            let len = bytes.len();
            match what >> 1 & 3 {
                0 if len > 0 => bytes[usize::from(*at) % len] = *value,
                1 if len > 0 => bytes[usize::from(*at) % len] ^= 1 << (value % 8),
                2 => bytes.truncate(usize::from(*at)),
                _ => {}
            }
        }
        outcomes.push((kind % KINDS, draft.call(&mut context, &memory, &files)));
    }
    let mut call = |kind, handle| good(kind, handle).call(&mut context, &memory, &files);
    let opened = call(0, 0);
    assert!(matches!(opened, Ok(()) | Err(Errno::EINVAL)), "{opened:?}");
    for kind in [2, 4, 5, 6, 20, 27] {
        assert_eq!(call(kind, 0), Ok(()), "request {kind}");
    }
    // The thread turns the first script's device alone.
    context.turn();
    outcomes
}
