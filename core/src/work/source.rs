//! What can be sent, and what can be received into.

#![forbid(unsafe_code)]

use crate::PdId;
use crate::caps::sealed::Sealed;
use crate::memory::{BufferKind, ExposedPart, Frozen, Postable, RawBuffer, Slice, Tag, View};

/// One registered buffer: the local side of an RDMA write, or a part of a SEND.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not one registered buffer, which is what the device can reach (R09, R15)",
    label = "not one registered buffer",
    note = "register the memory once, `pd.register(memory)?`, and pass a `Slice` of it, a `Frozen` or an `ExposedPart`",
    note = "RDMA takes exactly one local buffer (R09)"
)]
pub trait OneBuffer: Sealed {
    #[doc(hidden)]
    fn bytes(&self) -> usize;
    /// 0 if it is of that domain and its length has 32 bits.
    #[doc(hidden)]
    fn differs(&self, pd: PdId) -> u64;
    /// The lower half of that, which is all of it where [`OneBuffer::differs`] says so.
    #[doc(hidden)]
    fn length(&self) -> u32;
    #[doc(hidden)]
    fn domain(&self) -> PdId;
    #[doc(hidden)]
    #[allow(private_interfaces)] // sealed: nobody else implements or calls it
    fn into_raw_buffer(self) -> (RawBuffer, BufferKind);
}

/// One registered buffer that the device may write: the target of an RDMA read, or a part of a receive.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not one registered buffer that the device may write (R09, R15)",
    label = "not one writable registered buffer",
    note = "pass a `Slice` or an `ExposedPart`; a `Frozen` is shared, so nothing may write it",
    note = "RDMA takes exactly one local buffer (R09)"
)]
pub trait WritableBuffer: OneBuffer {}

/// What a SEND takes: one registered buffer, or an array or pair of two.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent: a SEND takes one or two registered buffers (R09, R15)",
    label = "not one or two registered buffers",
    note = "register the memory once, `pd.register(memory)?`, and pass a `Slice` of it; two as `[first, second]`",
    note = "a few bytes that are not registered: `peer.send_inline(bytes)`"
)]
pub trait SendSource: Sealed {
    #[doc(hidden)]
    const BUFFERS: u8;
    #[doc(hidden)]
    fn total(&self) -> u64;
    /// 0 if all are of that domain, and their lengths have 32 bits.
    #[doc(hidden)]
    fn differs(&self, pd: PdId) -> u64;
    #[doc(hidden)]
    fn foreign_to(&self, pd: PdId) -> Option<PdId>;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn into_buffers(self) -> Raw;
}

/// What a receive takes: one registered buffer that the device may write, or an array of two.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be received into: a receive takes one or two registered, writable buffers (R12, R15)",
    label = "not one or two writable registered buffers",
    note = "register the memory once, `pd.register(memory)?`, and pass a `Slice` of it; two as `[first, second]`",
    note = "a `Frozen` is shared, so nothing may write it"
)]
pub trait RecvTarget: SendSource {
    #[doc(hidden)]
    fn longest(&self) -> usize;
}

/// Buffers as an operation records them.
#[doc(hidden)]
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) count: u16,
    pub(crate) tag: Tag,
    pub(crate) buffers: [RawBuffer; 2],
}

impl Raw {
    pub(crate) const NONE: Self = Self { count: 0, tag: Tag::NONE, buffers: [RawBuffer::NONE; 2] };

    #[inline(always)]
    pub(crate) fn one<B: OneBuffer>(buffer: B) -> Self {
        let (buffer, kind) = buffer.into_raw_buffer();
        Self { count: 1, tag: Tag::one(kind), buffers: [buffer, RawBuffer::NONE] }
    }
}

macro_rules! buffer {
    ($name:ty $(, $view:ident)?, |$this:ident| $raw:expr) => {
        impl$(<$view: Postable>)? Sealed for $name {}

        impl$(<$view: Postable>)? OneBuffer for $name {
            #[inline(always)]
            fn bytes(&self) -> usize {
                self.len()
            }

            #[inline(always)]
            fn domain(&self) -> PdId {
                self.pd()
            }

            #[inline(always)]
            fn length(&self) -> u32 {
                self.length()
            }

            #[inline(always)]
            fn differs(&self, pd: PdId) -> u64 {
                self.differs(pd)
            }

            #[inline(always)]
            #[allow(private_interfaces)]
            fn into_raw_buffer(self) -> (RawBuffer, BufferKind) {
                let $this = self;
                $raw
            }
        }

        impl$(<$view: Postable>)? SendSource for $name {
            const BUFFERS: u8 = 1;

            #[inline(always)]
            fn total(&self) -> u64 {
                self.len() as u64
            }

            #[inline(always)]
            fn differs(&self, pd: PdId) -> u64 {
                OneBuffer::differs(self, pd)
            }

            #[inline(always)]
            fn foreign_to(&self, pd: PdId) -> Option<PdId> {
                (self.pd() != pd).then_some(self.pd())
            }

            #[inline(always)]
            #[allow(private_interfaces)]
            fn into_buffers(self) -> Raw {
                Raw::one(self)
            }
        }
    };
}

buffer!(Slice<V>, V, |slice| (slice.into_raw(), V::Done::SLICE));
buffer!(ExposedPart<V>, V, |part| (part.into_raw(), V::Done::EXPOSED));
buffer!(Frozen, |frozen| {
    let (raw, range) = frozen.into_raw();
    (raw, BufferKind::frozen(range))
});

impl<V: Postable> WritableBuffer for Slice<V> {}
impl<V: Postable> WritableBuffer for ExposedPart<V> {}

impl<A: OneBuffer, B: OneBuffer> Sealed for (A, B) {}

impl<A: OneBuffer, B: OneBuffer> SendSource for (A, B) {
    const BUFFERS: u8 = 2;

    fn total(&self) -> u64 {
        (self.0.bytes() as u64).saturating_add(self.1.bytes() as u64)
    }

    fn differs(&self, pd: PdId) -> u64 {
        self.0.differs(pd) | self.1.differs(pd)
    }

    fn foreign_to(&self, pd: PdId) -> Option<PdId> {
        [self.0.domain(), self.1.domain()].into_iter().find(|domain| *domain != pd)
    }

    #[allow(private_interfaces)]
    fn into_buffers(self) -> Raw {
        let (first, first_kind) = self.0.into_raw_buffer();
        let (second, second_kind) = self.1.into_raw_buffer();
        Raw { count: 2, tag: Tag::two(first_kind, second_kind), buffers: [first, second] }
    }
}

impl<B: OneBuffer> Sealed for [B; 2] {}

impl<B: OneBuffer> SendSource for [B; 2] {
    const BUFFERS: u8 = 2;

    fn total(&self) -> u64 {
        (self[0].bytes() as u64).saturating_add(self[1].bytes() as u64)
    }

    fn differs(&self, pd: PdId) -> u64 {
        self[0].differs(pd) | self[1].differs(pd)
    }

    fn foreign_to(&self, pd: PdId) -> Option<PdId> {
        self.iter().map(OneBuffer::domain).find(|domain| *domain != pd)
    }

    #[allow(private_interfaces)]
    fn into_buffers(self) -> Raw {
        let [first, second] = self;
        (first, second).into_buffers()
    }
}

impl<V: Postable> RecvTarget for Slice<V> {
    #[inline(always)]
    fn longest(&self) -> usize {
        self.len()
    }
}

impl<V: Postable> RecvTarget for ExposedPart<V> {
    fn longest(&self) -> usize {
        self.len()
    }
}

impl<B: WritableBuffer> RecvTarget for [B; 2] {
    fn longest(&self) -> usize {
        self[0].bytes().max(self[1].bytes())
    }
}
