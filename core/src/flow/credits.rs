//! How many receives the peer has posted: so that a SEND never finds none (status 10).

#![forbid(unsafe_code)]

/// The sending side: one credit for each receive that the peer has told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendCredits {
    available: u32,
}

/// The receiving side: counts the receives posted since the peer was told last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecvCredits {
    untold: u32,
}

impl SendCredits {
    /// None yet.
    pub const fn new() -> Self {
        Self { available: 0 }
    }

    /// The peer tells of `count` more receives. A peer that tells of more than 4 billion is taken at that.
    pub const fn add(&mut self, count: u32) {
        self.available = self.available.saturating_add(count);
    }

    /// Spends one; `false` if there is none: wait for the peer to tell of more.
    #[must_use = "without a credit the SEND may find no receive"]
    pub const fn take(&mut self) -> bool {
        match self.available.checked_sub(1) {
            Some(rest) => {
                self.available = rest;
                true
            }
            None => false,
        }
    }

    /// Returns the credit of a SEND that was refused at the post.
    pub const fn put_back(&mut self) {
        self.add(1);
    }

    /// How many there are.
    pub const fn available(&self) -> u32 {
        self.available
    }
}

impl RecvCredits {
    /// None yet.
    pub const fn new() -> Self {
        Self { untold: 0 }
    }

    /// A receive was posted.
    pub const fn posted(&mut self, count: u32) {
        self.untold = self.untold.saturating_add(count);
    }

    /// What to tell the peer now, if it is at least `batch`: telling of each one alone would double the
    /// messages.
    pub const fn tell(&mut self, batch: u32) -> Option<u32> {
        if self.untold == 0 || self.untold < batch {
            return None;
        }
        let count = self.untold;
        self.untold = 0;
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_sends_go_out_as_receives_were_told_of() {
        let (mut sender, mut receiver) = (SendCredits::new(), RecvCredits::new());
        assert!(!sender.take());
        receiver.posted(3);
        assert_eq!(receiver.tell(4), None);
        receiver.posted(1);
        sender.add(receiver.tell(4).unwrap_or(0));
        assert_eq!(sender.available(), 4);
        assert_eq!(receiver.tell(1), None);
        assert_eq!((0..6).filter(|_| sender.take()).count(), 4);
        sender.put_back();
        assert!(sender.take());
    }
}
