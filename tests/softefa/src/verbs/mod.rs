//! The verbs: what each call of an open device's program does.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the open device, which method is which, undoing what could not be answered |
//! | `device` | what the device is |
//! | `memory`, `regions` | domains, address handles, regions |
//! | `cq`, `qp` | completion queues, queue pairs |
//! | `counter` | completion counters |

mod counter;
#[cfg(test)]
mod counter_tests;
mod cq;
mod device;
#[cfg(test)]
mod feature_tests;
mod memory;
mod qp;
mod regions;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use efa_core::peer::Ah;
use efa_core::soft::{SoftDevice, SoftPd};

use crate::driver::Driver;
use crate::errno::Errno;
use crate::events::EventFile;
use crate::foreign::Foreign;
use crate::handles::Handles;
use crate::ioctl::{Call, HEADER, Request, UserMemory};
use crate::mmap::{Arena, Keys};
use crate::peer::{Held, Watching};
use crate::progress::Progress;
use crate::uapi::{attr, command, method, object};

pub use counter::Counter;
pub use cq::{CompletionQueue, CqRegions};
pub use qp::QueuePair;

/// The files that a program has.
pub trait Files {
    /// Gives a file to the program; its number there.
    fn give(&self, fd: OwnedFd, file: &Arc<EventFile>) -> i32;
    /// The file of a number.
    fn find(&self, fd: i32) -> Option<Arc<EventFile>>;
    /// Closes a file whose number could not be told.
    fn take_back(&self, fd: i32);
}

/// An open device: what one `open` of its file stands for.
#[derive(Debug)]
pub struct Context {
    device: SoftDevice,
    driver: Driver,
    progress: &'static Progress,
    arena: Arc<Arena>,
    keys: Keys,
    objects: Handles<Object>,
    /// Whether it has what a program needs before anything else.
    opened: bool,
    /// Rings given to queue pairs so far, where completion queues have several.
    rings: usize,
    events: Option<Arc<EventFile>>,
}

/// What a handle names.
#[derive(Debug)]
enum Object {
    Pd(SoftPd),
    /// Held for its drop.
    Mr {
        /// Dropped before the region.
        _watching: Option<Watching>,
        _mr: Held,
        /// Dropped after the region.
        _mapping: Option<Foreign>,
        pd: u32,
    },
    /// Held for its drop.
    Ah {
        _ah: Ah,
        pd: u32,
    },
    Cq(CompletionQueue),
    Qp(Arc<Mutex<QueuePair>>),
    Counter(Arc<Counter>),
}

/// What a call made, to be undone if its answer cannot be told.
type Made = Option<u32>;

impl Context {
    /// A device that was opened just now.
    ///
    /// # Errors
    /// What the system answered.
    pub fn new(device: SoftDevice, driver: Driver, progress: &'static Progress) -> Result<Self, Errno> {
        Ok(Self {
            device,
            driver,
            progress,
            arena: Arena::new()?,
            keys: Keys::default(),
            objects: Handles::default(),
            opened: false,
            rings: 0,
            events: None,
        })
    }

    /// What can be mapped, and of which file.
    pub fn mappings(&self) -> (&Keys, &Arc<Arena>) {
        (&self.keys, &self.arena)
    }

    /// Lets the device do what it has to do, where no thread does.
    pub fn turn(&self) {
        self.device.turn();
    }

    /// Does what the ioctl at an address asks for.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn ioctl<M: UserMemory>(&mut self, memory: &M, addr: u64, files: &dyn Files) -> Result<Request, Errno> {
        let mut header = [0; HEADER];
        memory.read(addr, &mut header)?;
        let mut bytes = vec![0; Request::length(&header)?];
        memory.read(addr, &mut bytes)?;
        let request = Request::parse(&bytes)?;
        let mut made = None;
        let call = Call { request: &request, addr, memory };
        if let Err(error) = self.dispatch(&call, files, &mut made) {
            if let Some(handle) = made {
                self.end(handle);
            }
            return Err(error);
        }
        Ok(request)
    }

    fn dispatch<M: UserMemory>(&mut self, call: &Call<'_, M>, files: &dyn Files, made: &mut Made) -> Result<(), Errno> {
        match (call.request.object, call.request.method) {
            (object::DEVICE, method::DEVICE_INVOKE_WRITE) => self.command(call, files, made),
            (object::DEVICE, method::DEVICE_GET_CONTEXT) => self.get_context(call),
            _ if !self.opened => Err(Errno::EINVAL),
            (object::DEVICE, method::DEVICE_QUERY_PORT) => self.query_port(call),
            (object::DEVICE, method::DEVICE_QUERY_PORT_SPEED) => self.query_port_speed(call),
            (object::DEVICE, method::DEVICE_QUERY_GID_ENTRY) => self.query_gid_entry(call),
            (object::DEVICE, method::DEVICE_QUERY_GID_TABLE) => self.query_gid_table(call),
            (object::PD | object::AH, method::DESTROY) | (object::MR, method::MR_DESTROY) => self.destroy(call),
            (object::MR, method::MR_REG_DMABUF) => self.reg_dmabuf_mr(call, made),
            (object::MR, method::MR_REG) => self.reg_mr_ex(call, made),
            (object::MR, method::MR_QUERY) => self.query_mr(call),
            (object::CQ, method::CREATE) => self.create_cq(call, files, made),
            (object::CQ, method::CREATED_DESTROY) => self.destroy_cq(call),
            (object::QP, method::CREATE) => self.create_qp(call, files, made),
            (object::QP, method::CREATED_DESTROY) => self.destroy_qp(call),
            (object::DEVICE, method::DEVICE_QUERY_COUNTERS) => self.query_counters(call),
            (object::COUNTER, method::CREATE) => self.create_counter(call, made),
            (object::COUNTER, method::CREATED_DESTROY) => self.destroy_counter(call),
            (object::COUNTER, method::COUNTER_MODIFY) => self.modify_counter(call),
            (object::COUNTER, method::COUNTER_READ) => self.read_counter(call),
            (object::QP, method::QP_ATTACH_COUNTER) => self.attach_counter(call),
            (object::ASYNC_EVENT, method::ASYNC_EVENT_ALLOC) => {
                let (file, fd) = EventFile::asynchronous()?;
                Self::give(files, (&file, fd), |number| call.put_number(attr::HANDLE, number))?;
                self.events.get_or_insert(file);
                Ok(())
            }
            _ => Err(Errno::EPROTONOSUPPORT),
        }
    }

    /// A command of the older interface: by its number, with the bytes that it needs and answers.
    fn command<M: UserMemory>(&mut self, call: &Call<'_, M>, files: &dyn Files, made: &mut Made) -> Result<(), Errno> {
        const KNOWN: u32 = 0x8000_00FF;
        let number = u32::try_from(call.number(attr::WRITE_CMD)?).map_err(|_| Errno::EINVAL)?;
        if number & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        let (needs, answers) = match number {
            command::QUERY_DEVICE => (8, 176),
            command::EX_QUERY_DEVICE => (8, 184),
            command::ALLOC_PD | command::CREATE_COMP_CHANNEL => (8, 4),
            command::CREATE_AH => (56, 4),
            command::REG_MR => (40, 12),
            command::QUERY_QP => (16, 128),
            command::MODIFY_QP => (112, 0),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let input = call.input(attr::CORE_IN)?;
        if input.len() < needs || call.room(attr::CORE_OUT) < answers {
            return Err(Errno::ENOSPC);
        }
        if !self.opened {
            return Err(Errno::EINVAL);
        }
        let input = crate::uapi::Fields(&input);
        match number {
            command::QUERY_DEVICE => self.query_device(call),
            command::EX_QUERY_DEVICE => self.query_device_ex(call, input),
            command::ALLOC_PD => self.alloc_pd(call, made),
            command::CREATE_AH => self.create_ah(call, input, made),
            command::REG_MR => self.reg_mr(call, input, made),
            command::QUERY_QP => self.query_qp(call, input),
            command::MODIFY_QP => self.modify_qp(input),
            _ => {
                let (file, fd) = EventFile::completions()?;
                Self::give(files, (&file, fd), |number| call.put(attr::CORE_OUT, &number.to_ne_bytes()))
            }
        }
    }

    /// Gives a new file to the program, unless its number cannot be told.
    fn give(
        files: &dyn Files,
        (file, fd): (&Arc<EventFile>, OwnedFd),
        tell: impl FnOnce(u32) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let number = files.give(fd, file);
        let told = tell(number as u32);
        if told.is_err() {
            files.take_back(number);
        }
        told
    }

    /// A file of events by an attribute that need not be there.
    fn event_file<M: UserMemory>(
        call: &Call<'_, M>,
        id: u16,
        files: &dyn Files,
        channel: bool,
    ) -> Result<Option<Arc<EventFile>>, Errno> {
        let Some(fd) = call.file(id)? else { return Ok(None) };
        let file = files.find(fd).filter(|file| file.is_channel() == channel);
        file.ok_or(Errno::EBADF).map(Some)
    }

    /// Enters a new object that uses others.
    fn enter(&mut self, object: Object, uses: &[u32], made: &mut Made) -> u32 {
        for handle in uses {
            self.objects.hold(*handle);
        }
        let handle = self.objects.insert(object);
        *made = Some(handle);
        handle
    }

    /// Takes an object out, whoever uses it, and what it used is used by one less.
    fn end(&mut self, handle: u32) -> Option<Object> {
        let object = self.objects.remove(handle)?;
        let uses = match &object {
            Object::Pd(_) | Object::Cq(_) | Object::Counter(_) => Vec::new(),
            Object::Mr { pd, .. } | Object::Ah { pd, .. } => vec![*pd],
            Object::Qp(qp) => qp::lock(qp).uses(),
        };
        for handle in uses {
            self.objects.release(handle);
        }
        match &object {
            Object::Cq(cq) => cq.leave(&mut self.keys, self.progress),
            Object::Qp(qp) => {
                qp::lock(qp).leave(&mut self.keys);
                self.progress.queue_pair_ended();
            }
            Object::Counter(counter) => self.progress.unwatch_counter(counter),
            _ => {}
        }
        Some(object)
    }
}

impl Drop for Context {
    /// As a kernel cleans up behind a program: users before what they use.
    fn drop(&mut self) {
        let _call = self.progress.call();
        for qps in [true, false] {
            let ending: Vec<u32> = self
                .objects
                .iter()
                .filter(|(_, object)| matches!(object, Object::Qp(_)) == qps)
                .map(|(n, _)| n)
                .collect();
            for handle in ending {
                self.end(handle);
            }
        }
    }
}
