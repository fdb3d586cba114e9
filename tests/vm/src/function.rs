//! One function of a card: what the monitor asks of it.

#![forbid(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use efa_core::soft::SoftDevice;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend, ServerRegion};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use crate::admin::Admin;
use crate::card::Card;
use crate::events::Interrupts;
use crate::fault::Fault;
use crate::guest::Guest;
use crate::objects::{Doorbells, Objects};
use crate::pci;
use crate::registers::{Effect, Registers};

const PROT_READ: i32 = 1;
const PROT_WRITE: i32 = 2;
const MAP_SHARED: i32 = 1;

/// One function.
#[derive(Debug)]
pub struct Function {
    device: SoftDevice,
    guest: Arc<Guest>,
    doorbells: Doorbells,
    llq: (File, Arc<MmapRegion>),
    fault: Option<Fault>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    registers: Registers,
    interrupts: Interrupts,
    admin: Admin,
    resets: u64,
}

/// What became of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Admin commands, and those of them that were refused.
    pub commands: [u64; 2],
    /// Interrupts raised.
    pub interrupts: u64,
    /// Resets asked for.
    pub resets: u64,
    /// Messages that the device sent and received.
    pub packets: [u64; 2],
    /// What the guest said that it is.
    pub driver: Option<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([commands, refused], [sent, received]) = (self.commands, self.packets);
        write!(f, "{commands} commands, {refused} refused, {} interrupts, {} resets, ", self.interrupts, self.resets)?;
        write!(f, "{sent} packets sent, {received} received, host {}", self.driver.as_deref().unwrap_or("unknown"))
    }
}

impl Function {
    /// A function in front of `device`, with one thing wrong or none.
    ///
    /// # Errors
    /// What the system said when asked for the memory of send queues.
    pub fn new(device: SoftDevice, fault: Option<Fault>) -> io::Result<Self> {
        let file = File::from(memfd_create("efa-llq", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, pci::LLQ_BYTES as u64)?;
        let memory = MmapRegion::from_file(FileOffset::new(file.try_clone()?, 0), pci::LLQ_BYTES);
        let memory = Arc::new(memory.map_err(io::Error::other)?);
        let (guest, doorbells) = (Arc::new(Guest::default()), Doorbells::new());
        let objects = Objects::new(doorbells, memory.clone());
        let admin = Admin::new(device.clone(), guest.clone(), objects, fault);
        let registers = Registers::new(fault);
        let inner = Mutex::new(Inner { registers, interrupts: Interrupts::default(), admin, resets: 0 });
        Ok(Self { device, guest, doorbells, llq: (file, memory), fault, inner })
    }

    /// Its regions, for the monitor.
    pub fn regions(&self) -> Vec<ServerRegion> {
        pci::regions(self.llq.0.as_raw_fd())
    }

    /// The guest's memory.
    pub fn guest(&self) -> &Arc<Guest> {
        &self.guest
    }

    /// The memory of send queues.
    pub fn send_queues(&self) -> &Arc<MmapRegion> {
        &self.llq.1
    }

    /// Its device.
    pub fn device(&self) -> &SoftDevice {
        &self.device
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of it so far.
    pub fn summary(&self) -> Summary {
        let counters = self.device.counters();
        let inner = self.inner();
        Summary {
            commands: inner.admin.counts,
            interrupts: inner.interrupts.raised,
            resets: inner.resets,
            packets: [counters.tx_pkts, counters.rx_pkts],
            driver: inner.admin.driver.clone(),
        }
    }

    /// How many objects there are: domains, regions, completion queues, queue pairs.
    pub fn objects(&self) -> [usize; 4] {
        let inner = self.inner();
        let objects = &inner.admin.objects;
        [objects.pds.count(), objects.mrs.len(), objects.cqs.count(), objects.qps.count()]
    }

    /// Tells event queues of what the device has done.
    pub fn raise_events(&self) {
        let inner = &mut *self.inner();
        inner.admin.raise_events(&mut inner.interrupts);
    }

    /// Tells the driver that the device lives.
    pub fn keep_alive(&self) {
        let inner = &mut *self.inner();
        inner.admin.events.keep_alive(&inner.registers, &self.guest, &mut inner.interrupts);
    }

    /// Everything is as it was made, but what the monitor keeps.
    fn reset(&self, registers: Registers) {
        let inner = &mut *self.inner();
        inner.admin.reset();
        inner.registers = registers;
        inner.resets += 1;
    }

    /// Its machine is gone.
    pub fn end(&self) {
        self.device.die();
        let inner = &mut *self.inner();
        inner.admin.reset();
        inner.interrupts.set(0, 0, Vec::new());
        self.guest.clear();
    }

    /// A write to the first region. Whether the device has something to do now.
    pub fn write_register(&self, offset: u64, value: u32) -> bool {
        if offset >= Doorbells::FIRST {
            self.doorbells.ring(offset, value);
            return true;
        }
        let inner = &mut *self.inner();
        // Where a register cannot be answered the driver waits in vain, and says so.
        let effect = inner.registers.write(offset, value, &self.guest).unwrap_or(Effect::Kept);
        match effect {
            Effect::Kept => return false,
            Effect::Commands(produced) => inner.admin.take(produced, &inner.registers, &mut inner.interrupts),
            Effect::ArmEq(eqn) => {
                if let Some(eq) = inner.admin.objects.eqs.get_mut(eqn.into()) {
                    eq.arm(&self.guest, &mut inner.interrupts);
                }
            }
            Effect::Reset => {
                inner.admin.reset();
                inner.registers = Registers::resetting(self.fault);
                inner.resets += 1;
            }
        }
        true
    }
}

/// A function while a monitor uses it.
#[derive(Debug)]
pub struct Served {
    function: Arc<Function>,
    card: Arc<Card>,
    config: [u8; pci::CONFIG_BYTES],
}

impl Served {
    /// One of a card's.
    pub fn new(function: Arc<Function>, card: Arc<Card>) -> Self {
        Self { function, card, config: pci::config() }
    }
}

/// The part of `all` that an access is of, if it is inside.
fn part(offset: u64, len: usize, all: usize) -> io::Result<std::ops::Range<usize>> {
    let invalid = || io::Error::from_raw_os_error(22);
    let first = usize::try_from(offset).map_err(|_| invalid())?;
    let end = first.checked_add(len).filter(|end| *end <= all).ok_or_else(invalid)?;
    Ok(first..end)
}

impl ServerBackend for Served {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        data.fill(0);
        match region {
            pci::CONFIG_REGION => {
                let part = part(offset, data.len(), self.config.len())?;
                data.copy_from_slice(&self.config[part]);
            }
            pci::LLQ_REGION => {
                let part = part(offset, data.len(), pci::LLQ_BYTES)?;
                let slice = self.function.llq.1.get_slice(part.start, part.len()).map_err(io::Error::other)?;
                slice.copy_to(data);
            }
            // Neither registers nor doorbells are for reading.
            _ => {}
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            0 => {
                let Ok(value) = data.try_into().map(u32::from_le_bytes) else { return Ok(()) };
                if offset.is_multiple_of(4) && self.function.write_register(offset, value) {
                    self.card.advance();
                }
            }
            pci::CONFIG_REGION => {
                let part = part(offset, data.len(), self.config.len())?;
                // The command register and addresses: what it is does not change.
                if part.start >= 4 && !(0x40..0x4c).contains(&part.start) {
                    self.config[part].copy_from_slice(data);
                }
            }
            pci::LLQ_REGION => {
                let part = part(offset, data.len(), pci::LLQ_BYTES)?;
                self.function.llq.1.get_slice(part.start, part.len()).map_err(io::Error::other)?.copy_from(data);
            }
            _ => {}
        }
        Ok(())
    }

    fn dma_map(&mut self, flags: DmaMapFlags, offset: u64, at: u64, size: u64, file: Option<File>) -> io::Result<()> {
        // Without a file it is what no device reaches: of ROMs.
        let Some(file) = file else { return Ok(()) };
        let size = usize::try_from(size).map_err(io::Error::other)?;
        let writable = flags.contains(DmaMapFlags::WRITE);
        let prot = PROT_READ | if writable { PROT_WRITE } else { 0 };
        let memory = MmapRegion::build(Some(FileOffset::new(file, offset)), size, prot, MAP_SHARED);
        self.function.guest.map(at, memory.map_err(io::Error::other)?, writable)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, at: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.function.guest.clear();
        } else {
            self.function.guest.unmap(at, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.function.reset(Registers::new(self.function.fault));
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, _flags: u32, first: u32, count: u32, files: Vec<File>) -> io::Result<()> {
        if index == pci::MSIX {
            self.function.inner().interrupts.set(first, count, files);
        }
        Ok(())
    }
}
