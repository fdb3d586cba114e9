//! What the kernel's driver says of its devices that they do not know themselves.

#![forbid(unsafe_code)]

use crate::mmap::PAGE;

/// How a driver lets programs use its devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Driver {
    /// Completion queues may be in memory of the program's.
    pub cq_memory: bool,
    /// Request ids of sends may have 64 bits.
    pub req_id_64: bool,
    /// A queue pair that its program moves to ERR raises an asynchronous event of each sort, as no driver does: see
    /// [`crate::events::ALARMS`].
    pub alarms: bool,
    /// Where queues are.
    pub layout: Layout,
}

/// Where in their memory queues are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Rings of each completion queue.
    pub sub_cqs: u16,
    /// Where in its first page a send queue begins.
    pub llq: u16,
    /// Where in their page the doorbells of send, receive and completion queues are.
    pub doorbells: [u16; 3],
}

impl Layout {
    /// What [`Layout::set`] takes.
    pub const NAMES: &str = "a list of name=number with the names sub_cqs (1, 2 or 4), llq (a multiple of 64), send, recv \
                             and cq (doorbells, multiples of 4, send and recv apart), all offsets below 4096";

    /// Sets one by its name, if it can be so.
    pub fn set(&mut self, name: &str, value: u64) -> Option<()> {
        let value = u16::try_from(value).ok().filter(|value| usize::from(*value) < PAGE)?;
        let [send, recv, cq] = &mut self.doorbells;
        let (place, multiple) = match name {
            "sub_cqs" if matches!(value, 1 | 2 | 4) => (&mut self.sub_cqs, 1),
            "llq" => (&mut self.llq, 64),
            "send" => (send, 4),
            "recv" => (recv, 4),
            "cq" => (cq, 4),
            _ => return None,
        };
        *place = Some(value).filter(|value| value.is_multiple_of(multiple))?;
        Some(())
    }

    /// Whether nothing is where something else is.
    pub fn is_sound(&self) -> bool {
        self.doorbells[0] != self.doorbells[1]
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self { sub_cqs: 1, llq: 0, doorbells: [0, 128, 0] }
    }
}

impl Default for Driver {
    fn default() -> Self {
        Self { cq_memory: true, req_id_64: false, alarms: false, layout: Layout::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_within_a_page_and_as_aligned_as_what_is_there() {
        let mut layout = Layout::default();
        for (name, value) in [("sub_cqs", 4), ("llq", 192), ("send", 4092), ("recv", 0), ("cq", 64)] {
            assert_eq!(layout.set(name, value), Some(()), "{name}={value}");
        }
        assert_eq!(layout, Layout { sub_cqs: 4, llq: 192, doorbells: [4092, 0, 64] });
        assert!(layout.is_sound());
        for (name, value) in [("sub_cqs", 3), ("sub_cqs", 0), ("llq", 32), ("llq", 4096), ("send", 2), ("page", 1)] {
            assert_eq!(layout.set(name, value), None, "{name}={value}");
        }
        assert_eq!(layout.set("recv", 4092), Some(()));
        assert!(!layout.is_sound(), "one doorbell for two queues");
    }
}
