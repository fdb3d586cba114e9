//! Completion counters: the device counts, and what it counted is put where the program reads it.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use efa_core::soft::{Count, CountedOps, SoftCounter};
use efa_core::{Caps, Provider};

use super::{Context, Made, Object, qp};
use crate::errno::Errno;
use crate::foreign::Foreign;
use crate::ioctl::{Call, UserMemory};
use crate::own::OwnMemory;
use crate::uapi::{Fields, attr};

/// A completion counter with the program's memory for its two counts.
#[derive(Debug)]
pub struct Counter {
    soft: SoftCounter,
    /// Held while they are written: what was counted last is written last.
    places: Mutex<[Place; 2]>,
}

/// Where a count is.
#[derive(Debug)]
enum Place {
    /// At an address of the program's.
    At(u64),
    /// In a file of the program's.
    Of(Foreign),
}

impl Place {
    fn put<M: UserMemory>(&self, memory: &M, count: u64) -> Result<(), Errno> {
        match self {
            Self::At(addr) => memory.write(*addr, &count.to_ne_bytes()),
            Self::Of(file) => OwnMemory.write(file.first().as_ptr() as u64, &count.to_ne_bytes()),
        }
    }
}

impl Counter {
    /// Puts what was counted where the program reads it. Memory that is there no more takes nothing.
    pub fn publish<M: UserMemory>(&self, memory: &M) {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counts) = self.soft.take_change() else { return };
        for (place, count) in places.iter().zip([counts.done, counts.failed]) {
            let _ = place.put(memory, count);
        }
    }
}

/// Bytes of a count.
const COUNT: u64 = 8;

impl Context {
    fn counter(&self, handle: u32) -> Result<&Arc<Counter>, Errno> {
        match self.objects.get(handle)? {
            Object::Counter(counter) => Ok(counter),
            _ => Err(Errno::EINVAL),
        }
    }

    fn counts(&self) -> Result<(), Errno> {
        if self.device.caps().contains(Caps::COMP_CNTR) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    pub(super) fn query_counters<M: UserMemory>(&self, call: &Call<'_, M>) -> Result<(), Errno> {
        self.counts()?;
        call.put(0, &self.device.max_counters().to_ne_bytes())?;
        call.put(1, &u64::MAX.to_ne_bytes())?;
        call.put(2, &CountedOps::all().bits().to_ne_bytes())
    }

    pub(super) fn create_counter<M: UserMemory>(&mut self, call: &Call<'_, M>, made: &mut Made) -> Result<(), Errno> {
        self.counts()?;
        let places = [Self::place(call, attr::COUNTER_DONE)?, Self::place(call, attr::COUNTER_FAILED)?];
        let counter = Arc::new(Counter { soft: self.device.create_counter()?, places: Mutex::new(places) });
        if M::IS_OWN {
            self.progress.watch_counter(&counter);
        }
        let handle = self.enter(Object::Counter(counter), &[], made);
        call.put_number(attr::HANDLE, handle)
    }

    /// Where a count is to be: eight bytes of the program's, zero from now on.
    fn place<M: UserMemory>(call: &Call<'_, M>, id: u16) -> Result<Place, Errno> {
        let input = call.input(id)?;
        let input = Fields(&input);
        let (kind, fd, flags) = (input.u32(0), input.u32(4) as i32, input.u32(8));
        let (addr, length) = (input.u64(16), input.u64(24));
        let place = match kind {
            _ if flags != 0 || length < COUNT || addr % COUNT != 0 => return Err(Errno::EINVAL),
            0 => Place::Of(Foreign::map(fd, addr, length, true)?),
            1 => addr.checked_add(length).map(|_| Place::At(addr)).ok_or(Errno::EINVAL)?,
            _ => return Err(Errno::EINVAL),
        };
        place.put(call.memory, 0)?;
        Ok(place)
    }

    pub(super) fn destroy_counter<M: UserMemory>(&mut self, call: &Call<'_, M>) -> Result<(), Errno> {
        let handle = call.handle(attr::HANDLE)?;
        self.counter(handle)?;
        self.objects.removable(handle)?;
        if let Some(Object::Counter(counter)) = self.end(handle) {
            counter.publish(call.memory);
        }
        Ok(())
    }

    pub(super) fn modify_counter<M: UserMemory>(&self, call: &Call<'_, M>) -> Result<(), Errno> {
        let counter = self.counter(call.handle(attr::HANDLE)?)?;
        let count = match call.number(attr::COUNTER_ENTRY)? {
            0 => Count::Done,
            1 => Count::Failed,
            _ => return Err(Errno::EINVAL),
        };
        let value = call.number(attr::COUNTER_VALUE)?;
        match call.number(attr::COUNTER_OP)? {
            0 => counter.soft.set(count, value),
            1 => counter.soft.add(count, value),
            _ => return Err(Errno::EINVAL),
        }
        counter.publish(call.memory);
        Ok(())
    }

    /// A program reads its own memory: EFA's driver has no such call.
    pub(super) fn read_counter<M: UserMemory>(&self, call: &Call<'_, M>) -> Result<(), Errno> {
        self.counter(call.handle(attr::HANDLE)?).and(Err(Errno::EOPNOTSUPP))
    }

    pub(super) fn attach_counter<M: UserMemory>(&mut self, call: &Call<'_, M>) -> Result<(), Errno> {
        let (of, handle) = (call.handle(attr::HANDLE)?, call.handle(attr::COUNTER_HANDLE)?);
        let (shared, counter) = (self.qp(of)?, self.counter(handle)?);
        let ops = call.number(attr::COUNTER_OPS)?;
        let ops = u32::try_from(ops).ok().and_then(CountedOps::from_bits).ok_or(Errno::EINVAL)?;
        let mut qp = qp::lock(shared);
        counter.soft.attach(&qp.qp, ops)?;
        qp.counters.push(handle);
        drop(qp);
        self.objects.hold(handle);
        Ok(())
    }
}
