//! The driver, its devices, and what they can do.

#![forbid(unsafe_code)]

use core::fmt;

use crate::error::{Error, Failed};
use crate::loader::Table;
use crate::raw::{FLUSH_OPTION_HOST, FLUSH_TO_ALL_DEVICES, FLUSH_TO_OWNER, attribute};

/// The driver of this process: a name for it, to be copied.
#[derive(Clone, Copy)]
pub struct Driver {
    pub(crate) table: &'static Table,
}

impl Driver {
    /// The GPUs that this process may use.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn devices(self) -> Result<Vec<Device>, Failed> {
        (0..self.device_count()?).map(|nth| self.device(nth)).collect()
    }

    /// One of them, by its number.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn device(self, ordinal: i32) -> Result<Device, Failed> {
        Ok(Device { driver: self, ordinal: self.device_at(ordinal)? })
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Driver")
    }
}

/// A GPU.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    pub(crate) driver: Driver,
    pub(crate) ordinal: i32,
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.ordinal == other.ordinal
    }
}

impl Eq for Device {}

impl Device {
    /// Its number in this process.
    pub fn ordinal(self) -> i32 {
        self.ordinal
    }

    /// The driver.
    pub fn driver(self) -> Driver {
        self.driver
    }

    pub(crate) fn attribute(self, attribute: i32) -> Result<i32, Failed> {
        self.driver.device_attribute(attribute, self.ordinal)
    }

    /// Whether its memory can be exported as a dma-buf.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn exports_dma_bufs(self) -> Result<bool, Failed> {
        Ok(self.attribute(attribute::DMA_BUF_SUPPORTED)? != 0)
    }

    /// Whether [`Inbound::flush`](crate::Inbound::flush) can do anything for it.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn flushes_from_host(self) -> Result<bool, Failed> {
        Ok(self.attribute(attribute::FLUSH_WRITES_OPTIONS)? & FLUSH_OPTION_HOST != 0)
    }

    /// The proof that this device orders writes of others for such a scope itself, if it says so: no flush is needed then.
    ///
    /// It is asked each time, and never inferred from the kind of GPU. Where a GPU has two ways to its memory, the CPU's own link and
    /// PCIe, it says so although the ways are unordered among each other: then reach one memory by one way alone.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn writes_ordered(self, scope: Scope) -> Result<Option<WritesOrdered>, Failed> {
        let ordered = self.attribute(attribute::WRITES_ORDERING)? >= scope.number();
        Ok(ordered.then_some(WritesOrdered { device: self.ordinal, _private: () }))
    }

    /// What it says of itself, to be printed.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn report(self) -> Result<Report, Error> {
        let number = |which| self.attribute(which);
        Ok(Report {
            ordinal: self.ordinal,
            name: self.driver.device_name(self.ordinal)?,
            bus_id: self.driver.device_bus_id(self.ordinal)?,
            driver: self.driver.version()?,
            compute: [number(attribute::COMPUTE_CAPABILITY_MAJOR)?, number(attribute::COMPUTE_CAPABILITY_MINOR)?],
            gpu_direct: number(attribute::GPU_DIRECT_RDMA_SUPPORTED)?,
            flush_options: number(attribute::FLUSH_WRITES_OPTIONS)?,
            writes_ordering: number(attribute::WRITES_ORDERING)?,
            dma_buf: number(attribute::DMA_BUF_SUPPORTED)?,
        })
    }
}

/// Who is to see what arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// The GPU whose memory it is.
    #[default]
    Owner,
    /// All GPUs that reach that memory.
    AllDevices,
}

impl Scope {
    pub(crate) const fn number(self) -> i32 {
        match self {
            Self::Owner => FLUSH_TO_OWNER,
            Self::AllDevices => FLUSH_TO_ALL_DEVICES,
        }
    }
}

/// The proof that a device orders the writes that arrive, by its own word: [`Device::writes_ordered`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritesOrdered {
    pub(crate) device: i32,
    _private: (),
}

/// What a device says of itself. `Display` explains it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Its number in this process.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// Where it is on the PCI bus.
    pub bus_id: String,
    /// The driver's version: 1000 times the major and 10 times the minor number.
    pub driver: i32,
    /// Its compute capability, major and minor.
    pub compute: [i32; 2],
    /// Attribute 116: other devices may reach its memory.
    pub gpu_direct: i32,
    /// Attribute 117: 1 if the host can flush, 2 if the GPU's own work can.
    pub flush_options: i32,
    /// Attribute 118: 0 if writes are not ordered, 100 for the GPU itself, 200 for all.
    pub writes_ordering: i32,
    /// Attribute 124: its memory can be exported as a dma-buf.
    pub dma_buf: i32,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ordinal, name, bus_id, driver, compute: [major, minor], .. } = self;
        let yes = |value| if value != 0 { "yes" } else { "no" };
        write!(
            f,
            "GPU {ordinal}: {name} at {bus_id}, compute capability {major}.{minor}, driver of CUDA {}.{}; other devices reach it: {}; \
             dma-buf: {}; the host flushes: {}; writes are ordered: {}",
            driver / 1000,
            driver % 1000 / 10,
            yes(self.gpu_direct),
            yes(self.dma_buf),
            yes(self.flush_options & FLUSH_OPTION_HOST),
            match self.writes_ordering {
                FLUSH_TO_ALL_DEVICES.. => "for all devices",
                FLUSH_TO_OWNER.. => "for the GPU",
                _ => "no, so a flush is needed",
            }
        )
    }
}
