//! What could not be released: counted, never freed under the device (R34).

#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering};

/// Counters of a device's quarantine.
#[derive(Debug, Default)]
pub struct Leaks {
    queue_pairs: AtomicUsize,
    regions: AtomicUsize,
    objects: AtomicUsize,
}

impl Leaks {
    /// None yet.
    pub const fn new() -> Self {
        Self { queue_pairs: AtomicUsize::new(0), regions: AtomicUsize::new(0), objects: AtomicUsize::new(0) }
    }

    /// Queue pairs that could not be destroyed: their rings, and the memory in flight on them, are leaked.
    pub fn queue_pairs(&self) -> usize {
        self.queue_pairs.load(Ordering::Relaxed)
    }

    /// Memory regions that could not be deregistered: their memory is leaked.
    pub fn regions(&self) -> usize {
        self.regions.load(Ordering::Relaxed)
    }

    /// Other objects that could not be destroyed: address handles, completion queues, protection domains. Of memory, only
    /// the rings of completion queues are leaked with them.
    pub fn objects(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }

    /// Counts a queue pair.
    pub fn count_queue_pair(&self) {
        self.queue_pairs.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a region: for providers.
    pub fn count_region(&self) {
        self.regions.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts another object: for providers.
    pub fn count_object(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }
}
