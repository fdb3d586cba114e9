//! The admin queue: commands in the guest's memory, their completions, and what each does.
//!
//! | file | holds |
//! |---|---|
//! | `layout` | the entries |
//! | `features` | what the device says of itself, and counts |
//! | `queues` | queue pairs, completion queues, event queues |
//! | `memory` | domains, address handles, regions and their lists of pages |

#![deny(unsafe_code)]

mod features;
pub mod layout;
mod memory;
mod queues;

use std::sync::Arc;

use efa_core::Error;
use efa_core::soft::SoftDevice;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::events::{AsyncEvents, Interrupts};
use crate::fault::Fault;
use crate::guest::{Guest, Unmapped};
use crate::objects::Objects;
use crate::registers::Registers;
use layout::{Command, Completion, ENTRY, ID_MASK, opcode};

/// Why a command is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Status {
    NoResource = 1,
    BadOpcode = 2,
    Unsupported = 3,
    Malformed = 4,
    IllegalParameter = 5,
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        const EOPNOTSUPP: i32 = 95;
        match error {
            Error::Exhausted { .. } => Self::NoResource,
            Error::Unsupported { .. } | Error::Device { errno: EOPNOTSUPP, .. } => Self::Unsupported,
            _ => Self::IllegalParameter,
        }
    }
}

impl From<Unmapped> for Status {
    fn from(_: Unmapped) -> Self {
        Self::Malformed
    }
}

impl From<std::io::Error> for Status {
    fn from(error: std::io::Error) -> Self {
        const EINVAL: i32 = 22;
        if error.raw_os_error() == Some(EINVAL) { Self::IllegalParameter } else { Self::NoResource }
    }
}

/// What a command answers.
type Answer = Result<Reply, Status>;

/// The body of a completion.
#[derive(Debug)]
struct Reply([u8; ENTRY - 8]);

impl Reply {
    fn empty() -> Self {
        Self([0; ENTRY - 8])
    }

    fn of(value: &(impl IntoBytes + Immutable)) -> Self {
        let mut reply = Self::empty();
        for (to, from) in reply.0.iter_mut().zip(value.as_bytes()) {
            *to = *from;
        }
        reply
    }
}

/// A command's body as its layout.
fn body<T: FromBytes + KnownLayout + Immutable + Copy>(command: &Command) -> Result<T, Status> {
    T::read_from_prefix(&command.body).map(|(value, _)| value).map_err(|_| Status::Malformed)
}

/// The admin side of one function.
#[derive(Debug)]
pub struct Admin {
    device: SoftDevice,
    guest: Arc<Guest>,
    fault: Option<Fault>,
    /// What its commands made.
    pub objects: Objects,
    /// Asynchronous events.
    pub events: AsyncEvents,
    /// Commands taken, and so many were refused.
    pub counts: [u64; 2],
    /// What the driver says that it is, once it did.
    pub driver: Option<String>,
    taken: u16,
    completed: u16,
}

impl Admin {
    /// As it is after a reset.
    pub fn new(device: SoftDevice, guest: Arc<Guest>, objects: Objects, fault: Option<Fault>) -> Self {
        let events = AsyncEvents::default();
        Self { device, guest, fault, objects, events, counts: [0; 2], driver: None, taken: 0, completed: 0 }
    }

    /// Ends what its commands made.
    pub fn reset(&mut self) {
        self.objects.clear();
        self.events = AsyncEvents::default();
        (self.taken, self.completed) = (0, 0);
    }

    /// Takes what the queue has up to `produced`, in order.
    pub fn take(&mut self, produced: u16, registers: &Registers, interrupts: &mut Interrupts) {
        // More than a queue full is announced by nobody who keeps count.
        let count = produced.wrapping_sub(self.taken).min(registers.aq.depth);
        for _ in 0..count {
            let nth = self.taken;
            self.taken = nth.wrapping_add(1);
            self.take_one(nth, registers);
        }
        if count > 0 && !registers.is_masked {
            interrupts.raise(registers.acq.vector);
        }
    }

    /// One that is not there, or whose completion has no place, is lost: its driver waits, and then says so.
    fn take_one(&mut self, nth: u16, registers: &Registers) -> Option<()> {
        let mut command = Command::new_zeroed();
        self.guest.read(registers.aq.entry(nth, ENTRY as u64)?, command.as_mut_bytes()).ok()?;
        let answer = self.execute(&command);
        self.counts[0] += 1;
        self.counts[1] += u64::from(answer.is_err());
        let status = answer.as_ref().err().map_or(0, |status| *status as u8);
        let acq = registers.acq;
        let completion = Completion {
            id: (command.id.get() & ID_MASK).into(),
            status,
            phase: acq.phase(self.completed),
            extended: 0.into(),
            sq_head: self.taken.into(),
            body: answer.unwrap_or_else(|_| Reply::empty()).0,
        };
        let at = acq.entry(self.completed, ENTRY as u64)?;
        self.completed = self.completed.wrapping_add(1);
        let (first, rest) = completion.as_bytes().split_at(4);
        self.guest.write(at.wrapping_add(4), rest).ok()?;
        self.guest.publish(at, u32::from_le_bytes(first.try_into().ok()?)).ok()
    }

    fn execute(&mut self, command: &Command) -> Answer {
        match command.opcode {
            opcode::CREATE_QP => self.create_qp(&body(command)?),
            opcode::MODIFY_QP => self.modify_qp(&body(command)?),
            opcode::QUERY_QP => self.query_qp(body(command)?),
            opcode::DESTROY_QP => self.destroy_qp(body(command)?),
            opcode::CREATE_AH => self.create_ah(&body(command)?),
            opcode::DESTROY_AH => self.destroy_ah(&body(command)?),
            opcode::REG_MR => self.reg_mr(&body(command)?, command.flags),
            opcode::DEREG_MR => self.dereg_mr(body(command)?),
            opcode::CREATE_CQ => self.create_cq(&body(command)?),
            opcode::DESTROY_CQ => self.destroy_cq(body(command)?),
            opcode::GET_FEATURE => self.get_feature(&body(command)?),
            opcode::SET_FEATURE => self.set_feature(&body(command)?, command.flags),
            opcode::GET_STATS => self.get_stats(&body(command)?),
            opcode::ALLOC_PD => self.alloc_pd(),
            opcode::DEALLOC_PD => self.dealloc_pd(body(command)?),
            opcode::ALLOC_UAR => self.alloc_uar(),
            opcode::DEALLOC_UAR => self.dealloc_uar(body(command)?),
            opcode::CREATE_EQ => self.create_eq(&body(command)?),
            opcode::DESTROY_EQ => self.destroy_eq(body(command)?),
            _ => Err(Status::BadOpcode),
        }
    }

    /// The completion queues that have an event each, told to their event queues.
    pub fn raise_events(&mut self, interrupts: &mut Interrupts) {
        self.objects.raise_events(&self.guest, interrupts);
    }
}
