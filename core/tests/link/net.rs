//! A carrier between wires: it loses, repeats, delays and reorders frames, from a seed, in a time of its own.

use std::collections::BTreeMap;

use efa_core::Gid;
use efa_core::soft::SoftDevice;
use efa_core::soft::link::{Body, FRAME, Frame, FrameError};

/// A change to a frame on its way; `None` drops it.
pub(crate) type Filter = Box<dyn FnMut(Gid, Vec<u8>) -> Option<Vec<u8>>>;

/// The carrier, and the wires that it connects, each by one of its devices.
pub(crate) struct Net {
    pub(crate) now: u64,
    pub(crate) wires: Vec<SoftDevice>,
    /// Of 1000 frames so many are lost, or repeated.
    pub(crate) loss: u64,
    pub(crate) repeats: u64,
    /// Microseconds that a frame takes at most, and at least 1.
    pub(crate) delay: u64,
    pub(crate) filter: Option<Filter>,
    /// Frames that were sent, in order.
    pub(crate) log: Vec<Vec<u8>>,
    rng: u64,
    on_its_way: BTreeMap<(u64, u64), (Gid, Vec<u8>)>,
    count: u64,
}

impl Net {
    pub(crate) fn new(seed: u64, wires: &[&SoftDevice]) -> Self {
        Self {
            now: 1_000_000,
            wires: wires.iter().map(|&wire| wire.clone()).collect(),
            loss: 0,
            repeats: 0,
            delay: 10,
            filter: None,
            log: Vec::new(),
            rng: seed,
            on_its_way: BTreeMap::new(),
            count: 0,
        }
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.rng;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Puts a frame on its way, `after` so many microseconds.
    pub(crate) fn carry(&mut self, to: Gid, frame: Vec<u8>, after: u64) {
        self.count += 1;
        self.on_its_way.insert((self.now + after, self.count), (to, frame));
    }

    /// Everything that is to be sent is sent, and what is due arrives; then time goes on to the next event.
    pub(crate) fn step(&mut self) {
        let mut bytes = [0; FRAME];
        for wire in self.wires.clone() {
            use efa_core::Provider;
            wire.progress();
            while let Some((to, len)) = wire.transmit(self.now, &mut bytes) {
                assert!(Frame::parse(&bytes[..len]).is_ok_and(|frame| frame.to == to), "what is sent is a frame");
                self.log.push(bytes[..len].to_vec());
                let frame = match &mut self.filter {
                    Some(filter) => filter(to, bytes[..len].to_vec()),
                    None => Some(bytes[..len].to_vec()),
                };
                let Some(frame) = frame else { continue };
                if self.random() % 1000 < self.loss {
                    continue;
                }
                let copies = 1 + u64::from(self.random() % 1000 < self.repeats);
                for _ in 0..copies {
                    let after = 1 + self.random() % self.delay;
                    self.carry(to, frame.clone(), after);
                }
            }
        }
        let next = self.on_its_way.first_key_value().map(|(&(at, _), _)| at);
        let timeouts = self.wires.iter().filter_map(SoftDevice::next_timeout);
        let wake = next.into_iter().chain(timeouts).min();
        self.now = wake.unwrap_or(0).max(self.now + 1);
        while let Some(entry) = self.on_its_way.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (to, frame) = entry.remove();
            for wire in &self.wires {
                if has(wire, to) {
                    let taken = wire.receive(self.now, &frame);
                    assert!(matches!(taken, Ok(()) | Err(FrameError::NotForUs { .. })), "{taken:?}");
                }
            }
        }
    }

    #[allow(dead_code)]
    pub(crate) fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.step());
    }

    /// Until nothing is on its way, and nobody wants to send.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            self.step();
            if self.on_its_way.is_empty() && self.wires.iter().all(|wire| wire.next_timeout().is_none()) {
                return;
            }
        }
        panic!("the wires never come to rest");
    }

    /// Requests among the frames that were sent.
    pub(crate) fn requests(&self) -> usize {
        let is_request = |bytes: &&Vec<u8>| matches!(Frame::parse(bytes).unwrap().body, Body::Request(_));
        self.log.iter().filter(is_request).count()
    }
}

/// Whether a wire has a device at an address: wires of these tests begin at multiples of 16.
fn has(wire: &SoftDevice, gid: Gid) -> bool {
    use efa_core::Provider;
    let wire = wire.gid();
    (wire.subnet_prefix(), wire.interface_id() / 16) == (gid.subnet_prefix(), gid.interface_id() / 16)
}

/// The address of the first device of the `n`-th wire.
pub(crate) const fn gid(n: u64) -> Gid {
    Gid::from_parts(0xFE80_0000_0000_0000, 0x0EFA_0000_0000_0000 + 16 * n)
}
