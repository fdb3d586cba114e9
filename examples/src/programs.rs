//! What programs that are introduced to each other have in common: what they are told, and how they say where they are.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use efa_core::Context;
use efa_os::{AnyDevice, soft};

use crate::describe::Description;
use crate::device::{self, Kind, Why};
use crate::exchange::{Listener, Tcp};
use crate::fault::Fault;

/// What a program is told of the other one, on its command line.
#[derive(Args, Debug)]
pub struct Meeting {
    /// Wait at HOST:PORT for a program that connects; port 0 is any that is free.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "connect")]
    pub listen: Option<String>,
    /// Connect to the program that listens at HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    pub connect: Option<String>,
    /// Which devices; else two programs take what EFA_OS_DEVICES says, or an EFA if there is one, and one takes software devices.
    #[arg(long, value_name = "KIND")]
    pub device: Option<Kind>,
    /// Seconds that two programs wait for each other.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

impl Meeting {
    /// The device of one of two programs, which it says.
    ///
    /// # Errors
    /// As [`device::open`], or that nothing can be printed.
    pub fn device(&self) -> Result<Context<AnyDevice>, Fault> {
        let mut chosen = device::open(self.device, &soft::Options::from_environment())?;
        write!(io::stdout(), "{}", Why(&chosen)).map_err(Fault::Print)?;
        let context = Context::open(chosen.devices.swap_remove(0));
        say(format_args!("{}", Description(&context)))?;
        Ok(context)
    }

    /// EFA's devices for both sides in this program, where they are insisted on.
    ///
    /// # Errors
    /// As [`device::open`].
    pub fn both_on_efa(&self) -> Result<Option<[Context<AnyDevice>; 2]>, Fault> {
        match self.device {
            Some(Kind::Efa) => {
                let chosen = device::open(self.device, &soft::Options::from_environment())?;
                Ok(Some(device::both_sides(&chosen)))
            }
            Some(Kind::Soft) | None => Ok(None),
        }
    }

    /// Waits for the other program there, which it says.
    ///
    /// # Errors
    /// That it cannot, or that nobody comes in time.
    pub fn accept(&self, address: &str) -> Result<Tcp, Fault> {
        let listener = Listener::bind(address)?;
        say(format_args!("listening at {}", listener.address()))?;
        Ok(listener.accept(Duration::from_secs(self.timeout))?)
    }

    /// Connects to the other program there.
    ///
    /// # Errors
    /// That nobody answers in time.
    pub fn reach(&self, address: &str) -> Result<Tcp, Fault> {
        Ok(Tcp::connect(address, Duration::from_secs(self.timeout))?)
    }
}

/// A line, which is there at once for whoever waits for it.
///
/// # Errors
/// That it cannot be printed.
pub fn say(line: std::fmt::Arguments<'_>) -> Result<(), Fault> {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Fault::Print)
}
