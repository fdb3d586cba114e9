//! What can go wrong, and what to do about it.

#![forbid(unsafe_code)]

use core::fmt;

use efa_core::work::Failure;

use crate::loader::NeedsDriver;
use crate::raw;

/// A call of the driver's that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The call.
    pub call: &'static str,
    /// What it answered.
    pub code: i32,
    /// CUDA's name of that, empty where this driver has none.
    pub name: &'static str,
    /// CUDA's text, likewise.
    pub text: &'static str,
}

impl core::error::Error for Failed {}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, code, name, text } = self;
        if name.is_empty() {
            return write!(f, "{call} answered {code}, which this driver has no name for");
        }
        write!(f, "{call} answered {name} ({code}): {text}")
    }
}

/// Why something was refused.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// A call of the driver's failed.
    Call(Failed),
    /// The driver is too old.
    NeedsDriver(NeedsDriver),
    /// An address is no memory that CUDA knows.
    NotCuda {
        /// The address.
        address: u64,
    },
    /// Memory of the host, which CUDA only pinned.
    Host {
        /// Its address.
        address: u64,
    },
    /// Managed memory, which moves between the GPU and the host.
    Managed {
        /// Its address.
        address: u64,
    },
    /// A range has no bytes, wraps, or is not of one allocation's kind and device from end to end.
    Range {
        /// Where it begins.
        address: u64,
        /// Bytes.
        len: u64,
    },
    /// A device has no context that could be used, and none is made.
    NoContext {
        /// The device.
        device: i32,
    },
    /// A call was made in the context of another device.
    OtherDevice {
        /// The device that was meant.
        device: i32,
        /// That of the context.
        current: i32,
    },
    /// A stream is being captured into a graph: waiting for it would break that off.
    Capturing,
    /// A stream is the default one of another thread.
    OtherThread,
    /// The driver cannot flush this device's arrivals from the host.
    NoHostFlush {
        /// The device.
        device: i32,
    },
    /// That a device orders writes is no proof for another one.
    NotOrdered {
        /// The device of the memory.
        device: i32,
        /// That of the proof.
        proof: i32,
    },
    /// Memory is another GPU's than what is read to have it seen, or is reached by another EFA, another protection
    /// domain of it or another way.
    OtherWay,
    /// The read by which memory was to be seen failed.
    Loopback(Failure),
    /// The read by which memory was to be seen did not end in time.
    LoopbackTime,
    /// A slice is of another region.
    ForeignSlice,
    /// Memory was not registered, neither as a dma-buf nor by its address.
    Registration {
        /// What became of the dma-buf.
        dma_buf: Attempt,
        /// What the device said of the address.
        plain: efa_core::Error,
    },
    /// What core or the device refused.
    Core(efa_core::Error),
}

/// What became of registering memory as a dma-buf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// It could not be exported.
    Export(Failed),
    /// The driver is too old to export any.
    TooOld(NeedsDriver),
    /// The device says that it exports none.
    Unsupported,
    /// It was exported, and the EFA's side refused it.
    Register(efa_core::Error),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::Call(failed)
    }
}

impl From<NeedsDriver> for Error {
    fn from(needs: NeedsDriver) -> Self {
        Self::NeedsDriver(needs)
    }
}

impl From<efa_core::Error> for Error {
    fn from(error: efa_core::Error) -> Self {
        Self::Core(error)
    }
}

impl core::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(failed) => {
                write!(f, "{failed}")?;
                f.write_str(if failed.code == raw::INVALID_CONTEXT {
                    "; the thread has no CUDA context: use the GPU once in it, or set its device"
                } else {
                    ""
                })
            }
            Self::NeedsDriver(needs) => needs.fmt(f),
            Self::NotCuda { address } => {
                write!(f, "{address:#x} is no memory of CUDA's: was it freed, or is it the host's? Host memory is registered as such")
            }
            Self::Host { address } => {
                write!(f, "{address:#x} is the host's memory, pinned by CUDA: register it as host memory, `Tensor::into_host` for one")
            }
            Self::Managed { address } => write!(
                f,
                "{address:#x} is managed memory, which moves while a device reads it: copy it into memory of `cudaMalloc`"
            ),
            Self::Range { address, len } => {
                write!(f, "{len} bytes at {address:#x} are not a range of one kind of memory of one device: check address and length")
            }
            Self::NoContext { device } => write!(
                f,
                "GPU {device} has no context, and none is made here, since one takes hundreds of MiB of it: use that GPU once before"
            ),
            Self::OtherDevice { device, current } => {
                write!(f, "the memory is GPU {device}'s, the context is GPU {current}'s: call it within the region's own context")
            }
            Self::Capturing => f.write_str(
                "the stream is being captured into a graph, which waiting for it would break off: wait after the capture, or for another stream",
            ),
            Self::OtherThread => f.write_str(
                "the stream is the default one of another thread, and its handle means another stream here: wait in \
                 that thread, or launch on a stream that was made",
            ),
            Self::NoHostFlush { device } => write!(
                f,
                "GPU {device} cannot be flushed from the host: have its EFA read it, by a `Loopback`"
            ),
            Self::NotOrdered { device, proof } => {
                write!(f, "the proof that writes are ordered is GPU {proof}'s, the memory is GPU {device}'s: ask that device")
            }
            Self::OtherWay => f.write_str(
                "the memory is of another GPU, or reached by another EFA, protection domain or kind of registration \
                 than the `Loopback` reads by, which orders nothing there: make one with memory of that GPU in that \
                 domain",
            ),
            Self::Loopback(failure) => {
                write!(f, "the read that was to have the memory seen: {failure}; take another `Loopback` for it")
            }
            Self::LoopbackTime => f.write_str(
                "the read that was to have the memory seen did not end in time: the memory is as before; try again, \
                 with more time",
            ),
            Self::ForeignSlice => f.write_str("the slice is of another region: ask the region that it was registered with"),
            Self::Registration { dma_buf, plain } => write!(
                f,
                "the GPU's memory was registered neither as a dma-buf ({dma_buf}) nor by its address ({plain}); the first needs an open \
                 NVIDIA driver, a kernel and an EFA driver with dma-buf, and memory that can be exported, which pools before CUDA 13.4 are \
                 not (see PYTORCH_CUDA_ALLOC_CONF, PYTORCH_ALLOC_CONF); the second an EFA driver with peer-to-peer for NVIDIA: \
                 /sys/class/infiniband/*/device/p2p says which"
            ),
            Self::Core(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Export(failed) => failed.fmt(f),
            Self::TooOld(needs) => needs.fmt(f),
            Self::Unsupported => f.write_str("the GPU's driver exports none: the open kernel modules do"),
            Self::Register(efa_core::Error::Device { errno: 524, .. }) => f.write_str(
                "errno 524: NVIDIA's driver does not let this device reach the GPU across this PCIe topology",
            ),
            Self::Register(error) => error.fmt(f),
        }
    }
}

/// A refusal that gives back what the call took.
pub type Refused<T> = efa_core::Refused<T, Error>;
