//! The objects of one open device, found by the numbers that its program has for them.
//!
//! As the kernel has it: the lowest free number is given next, and what another object uses cannot be removed.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::errno::Errno;

/// Objects by handle, each with the number of those that use it.
#[derive(Debug)]
pub struct Handles<T> {
    objects: BTreeMap<u32, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    object: T,
    users: usize,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

impl<T> Handles<T> {
    /// Enters an object; gives its handle.
    pub fn insert(&mut self, object: T) -> u32 {
        let taken = self.objects.keys().copied();
        let handle = (0..).zip(taken).find(|(free, taken)| free != taken).map_or(self.objects.len() as u32, |(n, _)| n);
        self.objects.insert(handle, Entry { object, users: 0 });
        handle
    }

    /// The object of a handle.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn get(&self, handle: u32) -> Result<&T, Errno> {
        self.objects.get(&handle).map(|entry| &entry.object).ok_or(Errno::ENOENT)
    }

    /// The object of a handle, to be changed.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn get_mut(&mut self, handle: u32) -> Result<&mut T, Errno> {
        self.objects.get_mut(&handle).map(|entry| &mut entry.object).ok_or(Errno::ENOENT)
    }

    /// Another object uses this one from now on.
    pub fn hold(&mut self, handle: u32) {
        if let Some(entry) = self.objects.get_mut(&handle) {
            entry.users += 1;
        }
    }

    /// Undoes [`Handles::hold`].
    pub fn release(&mut self, handle: u32) {
        if let Some(entry) = self.objects.get_mut(&handle) {
            entry.users = entry.users.saturating_sub(1);
        }
    }

    /// Whether an object may be removed.
    ///
    /// # Errors
    /// `EBUSY` while others use it, `ENOENT`.
    pub fn removable(&self, handle: u32) -> Result<(), Errno> {
        match self.objects.get(&handle) {
            None => Err(Errno::ENOENT),
            Some(entry) if entry.users > 0 => Err(Errno::EBUSY),
            Some(_) => Ok(()),
        }
    }

    /// Removes an object, whoever uses it.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        self.objects.remove(&handle).map(|entry| entry.object)
    }

    /// All objects, by handle.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.objects.iter().map(|(handle, entry)| (*handle, &entry.object))
    }

    /// All objects.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.objects.values_mut().map(|entry| &mut entry.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_handle_is_given_next() {
        let mut handles = Handles::default();
        assert_eq!([0; 4].map(|_| handles.insert("object")), [0, 1, 2, 3]);
        handles.remove(1);
        handles.remove(2);
        assert_eq!([0; 3].map(|_| handles.insert("object")), [1, 2, 4]);
    }

    #[test]
    fn what_is_used_is_busy_until_its_last_user_lets_go() {
        let mut handles = Handles::default();
        let domain = handles.insert("domain");
        handles.hold(domain);
        handles.hold(domain);
        handles.release(domain);
        assert_eq!(handles.removable(domain), Err(Errno::EBUSY));
        handles.release(domain);
        assert_eq!(handles.removable(domain), Ok(()));
        assert_eq!(handles.remove(domain), Some("domain"));
        assert_eq!(handles.removable(domain), Err(Errno::ENOENT));
        assert_eq!(handles.get(domain), Err(Errno::ENOENT));
    }
}
