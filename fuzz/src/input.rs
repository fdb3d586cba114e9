//! Bytes as choices. Every input is a program: what is missing at its end is zero.

/// What is left of the input.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// The next step's number, or the end.
    pub(crate) fn step(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.step().unwrap_or(0)
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// One of `count` things, the first if there is none.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }
}
