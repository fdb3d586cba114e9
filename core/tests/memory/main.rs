//! Memory: whose it is, when it comes back, and what happens where the device does not let go.
//!
//! What is leaked on purpose lies in statics, where Miri's leak check, which is on, does not mind it.

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod exposed;
mod frozen;
mod refusals;
mod slices;
mod storage;
mod views;

use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{config, connect, required};
use efa_core::memory::{Arena, DmaBuf, RawParts, Region, Slice, Visible};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, Srd};
use efa_core::ring::Word;
use efa_core::soft::{Profile, SoftDevice};
use efa_core::{Context, ProtectionDomain, Provider};

const WORD: usize = size_of::<Word>();
const ARENAS: usize = 128;
static MEMORY: [Arena<64>; ARENAS] = [const { Arena::new() }; ARENAS];
static DROPS: [AtomicUsize; ARENAS] = [const { AtomicUsize::new(0) }; ARENAS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// 64 bytes of static memory that count how often their owner was dropped.
#[derive(Debug)]
struct Counted {
    bytes: &'static mut [u8],
    number: usize,
}

impl Counted {
    fn new() -> (Self, usize) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        (Self { bytes: MEMORY[number].take().unwrap(), number }, number)
    }

    fn drops(number: usize) -> usize {
        DROPS[number].load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        DROPS[self.number].fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the bytes are static and only this owner's; the parts carry the number.
unsafe impl DmaBuf for Counted {
    type View = Visible;

    fn into_raw(self) -> RawParts {
        let mut this = mem::ManuallyDrop::new(self);
        RawParts { base: NonNull::from(&mut *this.bytes).cast(), len: 64, extra: this.number }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        // SAFETY: from `into_raw`, by the caller's word.
        let bytes = unsafe { std::slice::from_raw_parts_mut(parts.base.as_ptr(), parts.len) };
        Self { bytes, number: parts.extra }
    }
}

/// Two endpoints of one domain.
struct Two {
    a: Endpoint<SoftDevice>,
    b: Endpoint<SoftDevice>,
    to_a: Peer<Mutual>,
    to_b: Peer<Mutual>,
    pd: ProtectionDomain<SoftDevice>,
    ctx: Context<SoftDevice>,
}

impl Two {
    fn on(device: SoftDevice) -> Self {
        let ctx = Context::open(device);
        let pd = ctx.alloc_pd().unwrap();
        let [a, b] = [(); 2].map(|()| pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap());
        let (to_b, to_a) = connect(&a, &b);
        Self { a, b, to_a, to_b, pd, ctx }
    }

    fn new() -> Self {
        Self::on(SoftDevice::new(config(Profile::RDMA)))
    }
}

/// A region of counted memory, all of it, and its number.
fn counted<P: Provider>(pd: &ProtectionDomain<P>) -> (Region<Counted>, Slice, usize) {
    let (memory, number) = Counted::new();
    let (region, slice) = pd.register(memory).unwrap();
    (region, slice, number)
}
