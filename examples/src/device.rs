//! Which devices a program runs on: an EFA where there is one, software devices else, or as it is told.

use std::fmt;

use clap::ValueEnum;
use efa_core::Context;
use efa_os::{AnyDevice, Choice, Chosen, soft};

use crate::fault::Fault;

/// Which devices, on a command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// EFA's; without one, that is an error.
    Efa,
    /// Software devices, which programs of the same user on this machine reach.
    Soft,
}

/// The devices: of this kind, or what `EFA_OS_DEVICES` says, or what there is.
///
/// # Errors
/// [`Fault::Device`]: there is none, it does not open, or the variable names no kind.
pub fn open(kind: Option<Kind>, options: &soft::Options) -> Result<Chosen, Fault> {
    let choice = match kind {
        Some(Kind::Efa) => Choice::Efa,
        Some(Kind::Soft) => Choice::Soft,
        None => Choice::from_environment()?,
    };
    Ok(AnyDevice::choose(choice, options)?)
}

/// Both sides in one program: on two of the devices, or on one that is both.
pub fn both_sides(chosen: &Chosen) -> [Context<AnyDevice>; 2] {
    [0, 1 % chosen.devices.len()].map(|nth| Context::open(chosen.devices[nth].clone()))
}

/// Why it is a software device that runs, as a line; nothing where it was asked for, or is none.
#[derive(Debug)]
pub struct Why<'c>(pub &'c Chosen);

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.instead_of {
            Some(error) => writeln!(f, "a software device runs, since there is no EFA: {error}"),
            None => Ok(()),
        }
    }
}
