//! The registers of the first region, which the driver writes and never reads.
//!
//! To read one it writes which, and a number of its choice, and the device writes the value and both of these into memory.

#![forbid(unsafe_code)]

use crate::fault::Fault;
use crate::guest::{Guest, Unmapped};

/// Offsets.
mod at {
    pub(super) const VERSION: u64 = 0x0;
    pub(super) const CONTROLLER_VERSION: u64 = 0x4;
    pub(super) const CAPS: u64 = 0x8;
    pub(super) const AQ_BASE_LO: u64 = 0x10;
    pub(super) const AQ_BASE_HI: u64 = 0x14;
    pub(super) const AQ_CAPS: u64 = 0x18;
    pub(super) const ACQ_BASE_LO: u64 = 0x20;
    pub(super) const ACQ_BASE_HI: u64 = 0x24;
    pub(super) const ACQ_CAPS: u64 = 0x28;
    pub(super) const AQ_DOORBELL: u64 = 0x2c;
    pub(super) const AENQ_CAPS: u64 = 0x34;
    pub(super) const AENQ_BASE_LO: u64 = 0x38;
    pub(super) const AENQ_BASE_HI: u64 = 0x3c;
    pub(super) const AENQ_DOORBELL: u64 = 0x40;
    pub(super) const INTERRUPT_MASK: u64 = 0x4c;
    pub(super) const DEVICE_CONTROL: u64 = 0x54;
    pub(super) const DEVICE_STATUS: u64 = 0x58;
    pub(super) const READ: u64 = 0x5c;
    pub(super) const READ_INTO_LO: u64 = 0x60;
    pub(super) const READ_INTO_HI: u64 = 0x64;
    pub(super) const EQ_DOORBELL: u64 = 0x68;
}

/// The device is there.
const READY: u32 = 1 << 0;
/// A reset was asked for and is not yet over.
const RESETTING: u32 = 1 << 3;
/// Resets take up to a second, admin commands three; addresses have 48 bits.
const CAPS: u32 = 10 << 1 | 48 << 8 | 30 << 16;
const CAPS_RESET_TIMEOUT: u32 = 0x3e;
/// Admin interface 0.1, of the controller 0.0.1.
const VERSION: u32 = 1;

/// A ring in the guest's memory, as its registers have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ring {
    /// On the bus.
    pub base: u64,
    /// A power of two, or 0 while there is none.
    pub depth: u16,
    /// Which interrupt says that it has something.
    pub vector: u8,
}

impl Ring {
    fn low(&mut self, value: u32) {
        self.base = self.base & !0xFFFF_FFFF | u64::from(value);
    }

    fn high(&mut self, value: u32) {
        self.base = self.base & 0xFFFF_FFFF | u64::from(value) << 32;
    }

    /// Of entries of so many bytes, which `value` must say.
    fn caps(&mut self, value: u32, entry: u32) {
        let depth = value as u16;
        let is_sound = depth.is_power_of_two() && value >> 16 & 0xFF == entry;
        (self.depth, self.vector) = (if is_sound { depth } else { 0 }, (value >> 24) as u8);
    }

    /// Where the `nth` entry of so many bytes is.
    pub fn entry(&self, nth: u16, bytes: u64) -> Option<u64> {
        let mask = self.depth.checked_sub(1)?;
        self.base.checked_add(u64::from(nth & mask) * bytes)
    }

    /// The phase that the `nth` entry is written with.
    pub fn phase(&self, nth: u16) -> u8 {
        u8::from(nth & self.depth == 0)
    }
}

/// What a write of a register asks for beyond being kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing.
    Kept,
    /// The admin queue has entries up to here.
    Commands(u16),
    /// Everything goes back to how it was made.
    Reset,
    /// An event queue may raise one interrupt more.
    ArmEq(u16),
}

/// All registers.
#[derive(Debug, Default)]
pub struct Registers {
    /// Commands.
    pub aq: Ring,
    /// Their completions.
    pub acq: Ring,
    /// Asynchronous events.
    pub aenq: Ring,
    /// Of these the driver has taken so many.
    pub aenq_taken: u16,
    /// The driver polls for completions of commands.
    pub is_masked: bool,
    resetting: bool,
    read_into: Ring,
    fault: Option<Fault>,
}

impl Registers {
    /// As they are after a reset.
    pub fn new(fault: Option<Fault>) -> Self {
        Self { fault, ..Self::default() }
    }

    /// As they are while one goes on: the driver ends it.
    pub fn resetting(fault: Option<Fault>) -> Self {
        Self { resetting: true, ..Self::new(fault) }
    }

    /// What a register has.
    pub fn value(&self, offset: u64) -> u32 {
        match offset {
            at::VERSION | at::CONTROLLER_VERSION => VERSION,
            at::CAPS if self.fault == Some(Fault::ResetTimeoutZero) => CAPS & !CAPS_RESET_TIMEOUT,
            at::CAPS => CAPS,
            at::DEVICE_STATUS => READY | if self.resetting { RESETTING } else { 0 },
            at::INTERRUPT_MASK => self.is_masked.into(),
            _ => 0,
        }
    }

    /// Takes a write.
    ///
    /// # Errors
    /// Where a register that is asked for cannot be written to.
    pub fn write(&mut self, offset: u64, value: u32, guest: &Guest) -> Result<Effect, Unmapped> {
        match offset {
            at::AQ_BASE_LO => self.aq.low(value),
            at::AQ_BASE_HI => self.aq.high(value),
            at::AQ_CAPS => self.aq.caps(value, 64),
            at::ACQ_BASE_LO => self.acq.low(value),
            at::ACQ_BASE_HI => self.acq.high(value),
            at::ACQ_CAPS => self.acq.caps(value, 64),
            at::AENQ_BASE_LO => self.aenq.low(value),
            at::AENQ_BASE_HI => self.aenq.high(value),
            at::AENQ_CAPS => self.aenq.caps(value, 64),
            at::AENQ_DOORBELL => self.aenq_taken = value as u16,
            at::INTERRUPT_MASK => self.is_masked = value & 1 != 0,
            at::READ_INTO_LO => self.read_into.low(value),
            at::READ_INTO_HI => self.read_into.high(value),
            at::READ => self.answer(value, guest)?,
            at::AQ_DOORBELL => return Ok(Effect::Commands(value as u16)),
            at::EQ_DOORBELL if value >> 31 == 1 => return Ok(Effect::ArmEq(value as u16)),
            at::DEVICE_CONTROL if value & 1 == 1 => return Ok(Effect::Reset),
            at::DEVICE_CONTROL => self.resetting = false,
            _ => {}
        }
        Ok(Effect::Kept)
    }

    /// Writes the register that `request` names: the value first, then the number and the name.
    fn answer(&self, request: u32, guest: &Guest) -> Result<(), Unmapped> {
        let (number, offset) = (request & 0xFFFF, request >> 16);
        let named = if self.fault == Some(Fault::ReadlessOffset) { offset ^ 4 } else { offset };
        let at = self.read_into.base;
        guest.write(at.wrapping_add(4), &self.value(offset.into()).to_le_bytes())?;
        guest.publish(at, number | named << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_begin_at_one_and_change_at_each_wrap() {
        let mut ring = Ring { base: 0x1000, ..Ring::default() };
        ring.caps(16 | 64 << 16 | 2 << 24, 64);
        assert_eq!((ring.depth, ring.vector), (16, 2));
        assert_eq!([0, 15, 16, 31, 32].map(|nth| ring.phase(nth)), [1, 1, 0, 0, 1]);
        assert_eq!(ring.entry(17, 64), Some(0x1000 + 64));
    }

    #[test]
    fn a_ring_of_another_entry_size_or_of_no_power_of_two_is_none() {
        for caps in [16 | 32 << 16, 12 | 64 << 16, 64 << 16] {
            let mut ring = Ring::default();
            ring.caps(caps, 64);
            assert_eq!((ring.depth, ring.entry(0, 64)), (0, None), "{caps:#x}");
        }
    }

    #[test]
    fn a_reset_goes_on_until_the_driver_ends_it() {
        let mut registers = Registers::resetting(None);
        assert_eq!(registers.value(at::DEVICE_STATUS), READY | RESETTING);
        assert_eq!(registers.write(at::DEVICE_CONTROL, 0, &Guest::default()), Ok(Effect::Kept));
        assert_eq!(registers.value(at::DEVICE_STATUS), READY);
        let asked = registers.write(at::DEVICE_CONTROL, 1, &Guest::default());
        assert_eq!(asked, Ok(Effect::Reset));
    }
}
