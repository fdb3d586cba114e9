//! Event queues, asynchronous events, and the interrupts that tell of both.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;

use crate::guest::Guest;
use crate::registers::Registers;

/// Interrupts that there are: of the admin queue, and of two event queues.
pub const VECTORS: usize = 3;
/// Event queues.
pub const EQS: usize = VECTORS - 1;
/// Entries that one may have.
pub const EQ_DEPTH: u32 = 256;
/// Bytes of an entry.
const EQ_ENTRY: u64 = 16;
const AENQ_ENTRY: u64 = 64;

/// What the monitor gave for each interrupt.
#[derive(Debug, Default)]
pub struct Interrupts {
    files: [Option<File>; VECTORS],
    /// How many were raised.
    pub raised: u64,
}

impl Interrupts {
    /// Sets `files` from the `first` on; with none, clears so many, or all if `count` is 0 too.
    pub fn set(&mut self, first: u32, count: u32, files: Vec<File>) {
        let first = first as usize;
        if files.is_empty() {
            let end = if count == 0 { VECTORS } else { first.saturating_add(count as usize) };
            for (_, file) in self.files.iter_mut().enumerate().filter(|(nth, _)| (first..end).contains(nth)) {
                *file = None;
            }
        }
        for (place, file) in self.files.iter_mut().skip(first).zip(files) {
            *place = Some(file);
        }
    }

    /// Raises one, if it is there.
    pub fn raise(&mut self, vector: u8) {
        if let Some(Some(file)) = self.files.get_mut(usize::from(vector)) {
            // A counter that is full has been raised.
            let _ = file.write(&1_u64.to_ne_bytes());
            self.raised += 1;
        }
    }
}

/// An event queue. The driver takes events until it finds none, and then arms it; what is written in between it has seen,
/// perhaps, so that an arming may be answered by an interrupt for which there is nothing left.
#[derive(Debug)]
pub struct EventQueue {
    base: u64,
    depth: u32,
    vector: u8,
    armed: bool,
    produced: u32,
    /// Written and not known to be taken.
    unread: u32,
    /// Of these written since the last interrupt.
    late: u32,
    /// What found no room.
    waiting: VecDeque<u16>,
}

impl EventQueue {
    /// Of `depth` entries, a power of two up to [`EQ_DEPTH`], at an address of the bus.
    pub fn new(base: u64, depth: u16, vector: u8) -> Option<Self> {
        let depth = u32::from(depth);
        let is_sound = depth.is_power_of_two() && depth <= EQ_DEPTH && usize::from(vector) < VECTORS;
        let waiting = VecDeque::new();
        is_sound.then_some(Self { base, depth, vector, armed: false, produced: 0, unread: 0, late: 0, waiting })
    }

    /// Says that a completion queue has something.
    pub fn push(&mut self, cqn: u16, guest: &Guest, interrupts: &mut Interrupts) {
        self.waiting.push_back(cqn);
        self.pass(guest, interrupts);
    }

    /// The driver has taken what was there when it last was interrupted.
    pub fn arm(&mut self, guest: &Guest, interrupts: &mut Interrupts) {
        self.unread = self.late;
        self.armed = true;
        self.pass(guest, interrupts);
    }

    fn pass(&mut self, guest: &Guest, interrupts: &mut Interrupts) {
        while self.unread < self.depth {
            let Some(cqn) = self.waiting.pop_front() else { break };
            let at = self.base.wrapping_add(u64::from(self.produced & (self.depth - 1)) * EQ_ENTRY);
            let phase = u32::from(self.produced & self.depth == 0);
            // An event whose queue is gone is lost: its guest took it away.
            let _ = guest.write(at.wrapping_add(8), &u64::from(cqn).to_le_bytes());
            let _ = guest.publish(at, phase);
            self.produced = self.produced.wrapping_add(1);
            (self.unread, self.late) = (self.unread + 1, self.late + 1);
        }
        if self.armed && self.late > 0 {
            (self.armed, self.late) = (false, 0);
            interrupts.raise(self.vector);
        }
    }
}

/// Asynchronous events that the device can raise: fatal errors, warnings, notifications, keep-alives.
pub const AENQ_GROUPS: u32 = 0b11110;
const KEEP_ALIVE: u16 = 4;

/// The queue of asynchronous events.
#[derive(Debug, Default)]
pub struct AsyncEvents {
    /// The groups that the driver wants.
    pub enabled: u32,
    produced: u16,
}

impl AsyncEvents {
    /// Says that the device lives, where the driver wants to hear it and has taken what came before.
    pub fn keep_alive(&mut self, registers: &Registers, guest: &Guest, interrupts: &mut Interrupts) {
        let ring = registers.aenq;
        let has_room = self.produced.wrapping_sub(registers.aenq_taken) < ring.depth;
        if self.enabled & 1 << KEEP_ALIVE == 0 || !has_room {
            return;
        }
        let Some(at) = ring.entry(self.produced, AENQ_ENTRY) else { return };
        // The group is the first word, the phase in the one after it: that is what the driver looks at.
        let _ = guest.write(at, &u32::from(KEEP_ALIVE).to_le_bytes());
        let _ = guest.publish(at.wrapping_add(4), ring.phase(self.produced).into());
        self.produced = self.produced.wrapping_add(1);
        if !registers.is_masked {
            interrupts.raise(ring.vector);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use vm_memory::MmapRegion;

    use super::*;

    /// A guest with a page, and a file that counts interrupts.
    fn machine() -> (Guest, Interrupts, File) {
        let guest = Guest::default();
        guest.map(0x1000, MmapRegion::new(4096).unwrap(), true).unwrap();
        let file = File::from(rustix::fs::memfd_create("interrupt", rustix::fs::MemfdFlags::empty()).unwrap());
        let mut interrupts = Interrupts::default();
        interrupts.set(1, 1, vec![file.try_clone().unwrap()]);
        (guest, interrupts, file)
    }

    fn entry(guest: &Guest, nth: u64) -> (u32, u16) {
        let mut bytes = [0; 16];
        guest.read(0x1000 + nth * 16, &mut bytes).unwrap();
        (u32::from_le_bytes(bytes[..4].try_into().unwrap()), u16::from_le_bytes([bytes[8], bytes[9]]))
    }

    #[test]
    fn an_event_queue_interrupts_once_for_each_arming_and_again_for_what_came_late() {
        let (guest, mut interrupts, _) = machine();
        let mut eq = EventQueue::new(0x1000, 4, 1).unwrap();
        eq.push(7, &guest, &mut interrupts);
        assert_eq!(interrupts.raised, 0, "it was not armed");
        eq.arm(&guest, &mut interrupts);
        assert_eq!((interrupts.raised, entry(&guest, 0)), (1, (1, 7)));
        eq.push(8, &guest, &mut interrupts);
        assert_eq!(interrupts.raised, 1, "disarmed by the first");
        eq.arm(&guest, &mut interrupts);
        assert_eq!(interrupts.raised, 2, "the driver may have looked before it was written");
        eq.arm(&guest, &mut interrupts);
        assert_eq!(interrupts.raised, 2);
    }

    #[test]
    fn an_event_queue_that_is_full_keeps_events_until_the_driver_has_taken_some_and_changes_its_phase() {
        let (guest, mut interrupts, _) = machine();
        let mut eq = EventQueue::new(0x1000, 4, 1).unwrap();
        eq.arm(&guest, &mut interrupts);
        (0..6).for_each(|cqn| eq.push(cqn, &guest, &mut interrupts));
        assert_eq!([0, 1, 2, 3].map(|nth| entry(&guest, nth)), [(1, 0), (1, 1), (1, 2), (1, 3)]);
        // What was written after the first interrupt may have been seen, or not: the next says so.
        eq.arm(&guest, &mut interrupts);
        eq.arm(&guest, &mut interrupts);
        assert_eq!([0, 1].map(|nth| entry(&guest, nth)), [(0, 4), (0, 5)]);
        assert!(EventQueue::new(0, 3, 1).is_none() && EventQueue::new(0, 4, 3).is_none());
    }

    #[test]
    fn an_interrupt_is_written_to_the_file_of_its_vector_and_to_none_where_there_is_none() {
        let (_, mut interrupts, mut file) = machine();
        interrupts.raise(1);
        interrupts.raise(0);
        interrupts.raise(200);
        assert_eq!(interrupts.raised, 1);
        let mut written = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut written).unwrap();
        assert_eq!(written, 1_u64.to_ne_bytes());
        interrupts.set(0, 0, Vec::new());
        interrupts.raise(1);
        assert_eq!(interrupts.raised, 1);
    }
}
