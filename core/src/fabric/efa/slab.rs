//! Entries by name: an index, and a generation that tells an entry from its predecessors in the same place.

use heapless::Vec;

/// The name of an entry: it goes over the wire as 32 bits, and comes back from there checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::fabric) struct Id {
    pub(in crate::fabric) index: u16,
    generation: u16,
}

impl Id {
    /// Of nothing.
    pub(in crate::fabric) const NONE: Self = Self { index: 0xFFFF, generation: 0 };

    pub(in crate::fabric) const fn to_bits(self) -> u32 {
        (self.generation as u32) << 16 | self.index as u32
    }

    pub(in crate::fabric) const fn from_bits(bits: u32) -> Self {
        Self { index: bits as u16, generation: (bits >> 16) as u16 }
    }
}

/// Up to `N` entries, each with a name that no earlier one has, for 65,536 lives of its place.
#[derive(Debug)]
pub(in crate::fabric) struct Slab<T, const N: usize> {
    places: [Place<T>; N],
    free: Vec<u16, N>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u16,
    entry: Option<T>,
}

impl<T, const N: usize> Slab<T, N> {
    /// An empty one, whose generations count from `generation` on.
    pub(in crate::fabric) fn new(generation: u16) -> Self {
        const { assert!(N > 0 && N < 0xFFFF, "1 to 65,534 entries") };
        let mut free = Vec::new();
        for index in (0..N).rev() {
            // Room for N.
            let _ = free.push(index as u16);
        }
        Self { places: core::array::from_fn(|_| Place { generation, entry: None }), free }
    }

    #[inline(always)]
    pub(in crate::fabric) fn insert(&mut self, entry: T) -> Result<Id, T> {
        let Some(index) = self.free.pop() else { return Err(entry) };
        match self.places.get_mut(usize::from(index)) {
            Some(place) => {
                // It was free.
                place.entry.get_or_insert(entry);
                Ok(Id { index, generation: place.generation })
            }
            None => Err(entry),
        }
    }

    pub(in crate::fabric) fn get(&self, id: Id) -> Option<&T> {
        let place = self.places.get(usize::from(id.index))?;
        place.entry.as_ref().filter(|_| place.generation == id.generation)
    }

    #[inline(always)]
    pub(in crate::fabric) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let place = self.places.get_mut(usize::from(id.index))?;
        place.entry.as_mut().filter(|_| place.generation == id.generation)
    }

    pub(in crate::fabric) fn remove(&mut self, id: Id) -> Option<T> {
        let place = self.places.get_mut(usize::from(id.index))?;
        if place.generation != id.generation {
            return None;
        }
        let entry = place.entry.take()?;
        place.generation = place.generation.wrapping_add(1);
        // As many as places, and this one was taken.
        let _ = self.free.push(id.index);
        Some(entry)
    }

    /// Drops an entry where it is.
    #[inline(always)]
    pub(in crate::fabric) fn clear(&mut self, id: Id) {
        if let Some(place) = self.places.get_mut(usize::from(id.index))
            && place.generation == id.generation
            && place.entry.take().is_some()
        {
            place.generation = place.generation.wrapping_add(1);
            // As many as places, and this one was taken.
            let _ = self.free.push(id.index);
        }
    }

    /// What is at a place, and its name.
    #[inline(always)]
    pub(in crate::fabric) fn entry(&mut self, index: u16) -> Option<(Id, &mut T)> {
        let Place { generation, entry } = self.places.get_mut(usize::from(index))?;
        let id = Id { index, generation: *generation };
        entry.as_mut().map(|entry| (id, entry))
    }

    /// The name of what is at a place.
    pub(in crate::fabric) fn at(&self, index: u16) -> Option<Id> {
        let place = self.places.get(usize::from(index))?;
        place.entry.as_ref().map(|_| Id { index, generation: place.generation })
    }

    pub(in crate::fabric) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(in crate::fabric) fn len(&self) -> usize {
        N - self.free.len()
    }

    pub(in crate::fabric) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.places.iter().zip(0..).filter_map(|(place, index)| {
            place.entry.as_ref().map(|entry| (Id { index, generation: place.generation }, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_entry_alone_across_the_wrap() {
        let mut slab = Slab::<_, 2>::new(u16::MAX);
        let first = slab.insert('a').unwrap();
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b').unwrap();
        assert_eq!((second.index, second.generation), (first.index, 0));
        assert_eq!((slab.remove(first), slab.get(first), slab.get(second)), (None, None, Some(&'b')));
        assert_eq!(Id::from_bits(second.to_bits()), second);
        slab.insert('c').unwrap();
        assert_eq!((slab.insert('d'), slab.is_full()), (Err('d'), true));
    }
}
