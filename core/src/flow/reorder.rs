//! An order restored: what came early waits for its turn.

#![forbid(unsafe_code)]

use crate::error::Limit;
use crate::{Error, Refused};

/// Holds back up to `N` messages that came before their turn, by a 32-bit sequence number that the sender
/// counts up from 0, for instance in the immediate. The number may wrap.
///
/// ```
/// use efa_core::flow::Reorder;
/// let mut order = Reorder::<&str, 4>::new();
/// order.push(1, "second").unwrap();
/// assert_eq!(order.pop(), None);
/// order.push(0, "first").unwrap();
/// assert_eq!(order.pop(), Some("first"));
/// assert_eq!(order.pop(), Some("second"));
/// ```
#[derive(Debug)]
pub struct Reorder<T, const N: usize> {
    held: [Option<T>; N],
    next: u32,
}

impl<T, const N: usize> Reorder<T, N> {
    /// Expects sequence number 0.
    pub const fn new() -> Self {
        Self::starting_at(0)
    }

    /// Expects sequence number `next`.
    pub const fn starting_at(next: u32) -> Self {
        const { assert!(N > 0 && N.is_power_of_two() && N <= 1 << 31, "the window is a power of two, up to 2^31") };
        Self { held: [const { None }; N], next }
    }

    /// Takes a message in.
    ///
    /// # Errors
    /// [`Error::AboveLimit`] if it is `N` or more ahead of its turn: the sender runs further ahead than the
    /// window. [`Error::Unexpected`] if a message with that number came before. With the message.
    pub fn push(&mut self, sequence: u32, message: T) -> Result<(), Refused<T>> {
        let ahead = sequence.wrapping_sub(self.next);
        if ahead >= 1 << 31 {
            let (found, expected) = (sequence.into(), self.next.into());
            return Err(Refused::new(message, Error::Unexpected { found, expected }));
        }
        let place = self.held.get_mut(sequence as usize % N).filter(|_| (ahead as usize) < N);
        match place {
            Some(place @ None) => {
                *place = Some(message);
                Ok(())
            }
            Some(_) => {
                let (found, expected) = (sequence.into(), self.next.into());
                Err(Refused::new(message, Error::Unexpected { found, expected }))
            }
            None => {
                let (asked, limit) = (ahead.into(), N as u64 - 1);
                Err(Refused::new(message, Error::AboveLimit { what: Limit::ReorderWindow, asked, limit }))
            }
        }
    }

    /// The next message, if it is here.
    pub fn pop(&mut self) -> Option<T> {
        let message = self.held.get_mut(self.next as usize % N)?.take()?;
        self.next = self.next.wrapping_add(1);
        Some(message)
    }

    /// The sequence number whose turn it is.
    pub const fn next(&self) -> u32 {
        self.next
    }
}

impl<T, const N: usize> Default for Reorder<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h27_messages_in_any_order_come_out_in_sequence_across_the_wrap() {
        let mut order = Reorder::<u32, 4>::starting_at(u32::MAX - 1);
        for sequence in [0, u32::MAX, 1, u32::MAX - 1] {
            order.push(sequence, sequence).unwrap();
        }
        assert_eq!(order.next(), u32::MAX - 1);
        let out: [Option<u32>; 5] = core::array::from_fn(|_| order.pop());
        assert_eq!(out, [Some(u32::MAX - 1), Some(u32::MAX), Some(0), Some(1), None]);
        assert_eq!(order.next(), 2);
    }

    #[test]
    fn a_message_beyond_the_window_or_seen_before_comes_back() {
        let mut order = Reorder::<&str, 4>::new();
        assert!(matches!(order.push(4, "far").unwrap_err().error(), Error::AboveLimit { asked: 4, limit: 3, .. }));
        order.push(3, "once").unwrap();
        assert_eq!(order.push(3, "twice").unwrap_err().into_inner(), "twice");
        assert_eq!(order.push(u32::MAX, "old").unwrap_err().into_inner(), "old");
    }
}
