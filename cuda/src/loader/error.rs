//! Why the driver cannot be used, or not for this.

#![forbid(unsafe_code)]

use core::fmt;

use super::{SONAME, VARIABLE};
use crate::error::Failed;
use crate::raw;

/// Why the driver cannot be loaded.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The library is not there, or cannot be opened.
    Library {
        /// The name or path that was tried.
        tried: String,
        /// What the loader said.
        reason: String,
    },
    /// The library lacks a function that all supported drivers have.
    Symbol {
        /// The library's name or path.
        file: String,
        /// What it lacks.
        symbol: &'static str,
    },
    /// The library is there, and does not start.
    Init(Failed),
}

impl core::error::Error for LoadError {}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { tried, reason } => write!(
                f,
                "{SONAME} cannot be loaded from `{tried}`: {reason}; it comes with NVIDIA's driver, and into a container by its \
                 runtime (`--gpus all`); {VARIABLE} names another file"
            ),
            Self::Symbol { file, symbol } => {
                write!(
                    f,
                    "{file} has no `{symbol}`: it is no driver of CUDA 11.4 or newer; {VARIABLE} names another file"
                )
            }
            Self::Init(failed) => {
                write!(f, "{failed}")?;
                f.write_str(match failed.code {
                    raw::STUB_LIBRARY => {
                        "; a stub for linking was found: take the folder `stubs` out of LD_LIBRARY_PATH"
                    }
                    raw::NO_DEVICE => "; no GPU is here, or CUDA_VISIBLE_DEVICES hides all",
                    raw::SYSTEM_DRIVER_MISMATCH => {
                        "; the library and the kernel's module are of different drivers: load the new module"
                    }
                    _ => "",
                })
            }
        }
    }
}

/// The driver that is here is older than what was asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeedsDriver {
    /// The function that it lacks.
    pub symbol: &'static str,
    /// The driver's version: 1000 times the major and 10 times the minor number.
    pub have: i32,
    /// The version that brings the function, likewise.
    pub need: i32,
}

impl core::error::Error for NeedsDriver {}

impl fmt::Display for NeedsDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |version: i32| (version / 1000, version % 1000 / 10);
        let ((major, minor), (have_major, have_minor)) = (version(self.need), version(self.have));
        write!(
            f,
            "`{}` comes with the driver of CUDA {major}.{minor}, here is that of {have_major}.{have_minor}: install a newer driver",
            self.symbol
        )
    }
}
