//! Events: files that a program reads records from, and completion queues that raise them.
//!
//! A file is the read end of a pipe, so that `poll`, `epoll`, `select` and `O_NONBLOCK` are the system's own. How many
//! events of an object were read, which its destruction answers, is not counted at reads: it is what was raised less what
//! is still in the pipe.

#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use efa_core::soft::SoftCq;

use crate::errno::Errno;
use crate::sys;
use crate::verbs::CqRegions;

/// Bytes of a completion event's record: the queue's number at its program.
const COMPLETION: usize = 8;
/// Bytes of an asynchronous event's record: the object's number at its program, the event's, and zero.
const ASYNC: usize = 16;

/// `IBV_EVENT_SQ_DRAINED`.
pub const SQ_DRAINED: u32 = 5;

/// What is raised where [`Driver::alarms`](crate::driver::Driver::alarms) is set, of what: of its queue pair, of the completion
/// queues of that, of the port and the device. The last has no name.
pub const ALARMS: [(AlarmOf, u32); 10] = [
    (AlarmOf::QueuePair, 1),
    (AlarmOf::QueuePair, 2),
    (AlarmOf::QueuePair, 3),
    (AlarmOf::CompletionQueues, 0),
    (AlarmOf::Port, 10),
    (AlarmOf::Port, 9),
    (AlarmOf::Port, 18),
    (AlarmOf::Port, 12),
    (AlarmOf::Port, 8),
    (AlarmOf::Port, 99),
];

/// Whose number an event has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlarmOf {
    /// The queue pair's.
    QueuePair,
    /// Those of its completion queues: of one that serves both of its queues twice.
    CompletionQueues,
    /// Port 1's.
    Port,
}

/// A file of events, all of one length.
#[derive(Debug)]
pub struct EventFile {
    record: usize,
    /// The program's description, so that the pipe has a reader whatever it closes.
    read: OwnedFd,
    write: OwnedFd,
    /// Held while records are put in or sorted out.
    order: Mutex<()>,
}

impl EventFile {
    fn new(record: usize) -> Result<(Arc<Self>, OwnedFd), Errno> {
        let (theirs, write) = sys::pipe()?;
        let read = sys::duplicate(&theirs)?;
        Ok((Arc::new(Self { record, read, write, order: Mutex::new(()) }), theirs))
    }

    /// A completion channel, and the program's file.
    ///
    /// # Errors
    /// What the system answered.
    pub fn completions() -> Result<(Arc<Self>, OwnedFd), Errno> {
        Self::new(COMPLETION)
    }

    /// The file of asynchronous events, and the program's number for it.
    ///
    /// # Errors
    /// What the system answered.
    pub fn asynchronous() -> Result<(Arc<Self>, OwnedFd), Errno> {
        Self::new(ASYNC)
    }

    /// Whether it is a completion channel.
    pub fn is_channel(&self) -> bool {
        self.record == COMPLETION
    }

    /// Tells of an event of the object that its program calls `element`; whether it did. Lost, as the record of a kernel out
    /// of memory is, if thousands were not read.
    pub fn raise(&self, element: u64, event: u32) -> bool {
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = [0; ASYNC];
        record[..8].copy_from_slice(&element.to_ne_bytes());
        record[8..12].copy_from_slice(&event.to_ne_bytes());
        sys::write(self.write.as_raw_fd(), &record[..self.record]).is_ok()
    }

    /// Takes an object's records out; how many there were.
    ///
    /// # Errors
    /// What the system answered; nothing is then taken out.
    pub fn purge(&self, element: u64) -> Result<u32, Errno> {
        const PART: usize = 32 << 10;
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (side, to_side) = sys::pipe()?;
        let (mut records, mut part) = (Vec::new(), vec![0; PART]);
        while sys::splice(&self.read, &to_side, PART) > 0 {
            let read = sys::read(&side, &mut part)?;
            records.extend_from_slice(&part[..read]);
        }
        let mut purged = 0;
        for record in records.chunks_exact(self.record) {
            if record.starts_with(&element.to_ne_bytes()) {
                purged += 1;
            } else {
                let _ = sys::write(self.write.as_raw_fd(), record);
            }
        }
        Ok(purged)
    }
}

/// A completion queue that raises events.
#[derive(Debug)]
pub struct EventQueue {
    cq: Mutex<SoftCq>,
    /// Dropped after the queue's handle.
    _memory: Arc<CqRegions>,
    /// Where it tells of them.
    pub channel: Arc<EventFile>,
    /// What its program calls it.
    pub element: u64,
    raised: AtomicU32,
}

impl EventQueue {
    /// A queue that raised none.
    pub fn new(cq: SoftCq, memory: Arc<CqRegions>, channel: Arc<EventFile>, element: u64) -> Arc<Self> {
        Arc::new(Self { cq: Mutex::new(cq), _memory: memory, channel, element, raised: AtomicU32::new(0) })
    }

    /// Raises an event if one is due; whether it was.
    pub fn poll(&self) -> bool {
        let due = self.cq.lock().unwrap_or_else(PoisonError::into_inner).take_event();
        if due {
            // Before anybody can have read it; one that was lost is not waited for when the queue ends.
            self.raised.fetch_add(1, Ordering::Relaxed);
            if !self.channel.raise(self.element, 0) {
                self.raised.fetch_sub(1, Ordering::Relaxed);
            }
        }
        due
    }

    /// Takes out what was not read; how many were.
    pub fn end(&self) -> u32 {
        let unread = self.channel.purge(self.element).unwrap_or(0);
        self.raised.load(Ordering::Relaxed).saturating_sub(unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(file: &OwnedFd, len: usize) -> Vec<Vec<u8>> {
        let mut room = vec![0; 4096];
        let read = sys::read(file, &mut room).unwrap();
        room[..read].chunks_exact(len).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn records_come_out_in_their_order_and_those_of_a_purged_object_do_not() {
        let (file, theirs) = EventFile::completions().unwrap();
        for element in [1u64, 2, 1, 3, 1] {
            file.raise(element, 0);
        }
        assert_eq!(file.purge(1), Ok(3));
        assert_eq!(file.purge(1), Ok(0));
        let left: Vec<_> = [2u64, 3].iter().map(|element| element.to_ne_bytes().to_vec()).collect();
        assert_eq!(records(&theirs, COMPLETION), left);
        // Empty, and the program's end waits: that is not waited for.
        assert_eq!(file.purge(2), Ok(0));
    }

    #[test]
    fn an_asynchronous_event_names_its_object_and_itself() {
        let (file, theirs) = EventFile::asynchronous().unwrap();
        file.raise(0x1234, SQ_DRAINED);
        let mut record = [0; ASYNC];
        record[..8].copy_from_slice(&0x1234u64.to_ne_bytes());
        record[8] = 5;
        assert_eq!(records(&theirs, ASYNC), [record.to_vec()]);
        assert!(!file.is_channel());
    }

    #[test]
    fn an_event_for_which_there_is_no_room_was_not_raised() {
        let (file, theirs) = EventFile::asynchronous().unwrap();
        let raised = (0..1 << 20).take_while(|_| file.raise(7, SQ_DRAINED)).count();
        assert!(raised >= 1000 && !file.raise(7, SQ_DRAINED), "{raised}");
        assert_eq!(file.purge(7), Ok(raised as u32));
        assert!(file.raise(7, SQ_DRAINED));
        drop(theirs);
    }

    #[test]
    fn thousands_of_unread_events_are_purged_and_kept_as_well_as_few() {
        let (file, theirs) = EventFile::completions().unwrap();
        for nth in 0..8000u64 {
            file.raise(nth % 2, 0);
        }
        assert_eq!(file.purge(0), Ok(4000));
        assert_eq!(records(&theirs, COMPLETION).len(), 512);
        assert_eq!(file.purge(1), Ok(4000 - 512));
    }
}
