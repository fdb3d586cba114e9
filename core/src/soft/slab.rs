//! Tables: borrowed from static storage or boxed, one code for both.

#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
use alloc::{boxed::Box, vec::Vec};

/// A table that one owner changes.
#[derive(Debug)]
pub(super) enum Slab<T: 'static> {
    Static(&'static mut [T]),
    #[cfg(feature = "alloc")]
    Heap(Box<[T]>),
}

impl<T> Slab<T> {
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.all().get(index)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.all_mut().get_mut(index)
    }

    #[inline(always)]
    pub(super) fn all(&self) -> &[T] {
        match self {
            Self::Static(slice) => slice,
            #[cfg(feature = "alloc")]
            Self::Heap(slice) => slice,
        }
    }

    #[inline(always)]
    pub(super) fn all_mut(&mut self) -> &mut [T] {
        match self {
            Self::Static(slice) => slice,
            #[cfg(feature = "alloc")]
            Self::Heap(slice) => slice,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    /// Swaps two elements; nothing if either is out of range.
    #[inline(always)]
    pub(super) fn swap(&mut self, a: usize, b: usize) {
        let slice = self.all_mut();
        if a < slice.len() && b < slice.len() {
            slice.swap(a, b);
        }
    }
}

/// A table whose elements are shared and stay where they are.
#[derive(Debug)]
pub(super) enum SharedSlab<T: 'static> {
    Static(&'static [T]),
    #[cfg(feature = "alloc")]
    Heap(Box<[T]>),
}

impl<T> SharedSlab<T> {
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        match self {
            Self::Static(slice) => slice.get(index),
            #[cfg(feature = "alloc")]
            Self::Heap(slice) => slice.get(index),
        }
    }
}

/// A boxed slice, or `None` if there is no memory for it.
#[cfg(feature = "alloc")]
pub(super) fn boxed<T>(len: usize, mut make: impl FnMut(usize) -> T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).ok()?;
    for index in 0..len {
        all.push(make(index));
    }
    Some(all.into_boxed_slice())
}
