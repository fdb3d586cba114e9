//! What a GPU and its driver do, measured in some seconds: where efa-cuda rests on what nobody has tried yet.
//!
//! `tests/run gpu` runs it. Each line is a value, `as expected` or `DIFFERS` from what efa-cuda takes it to be; the
//! first lines name driver, GPU and day, for whoever writes values down. It ends with 77 where there is no GPU, and
//! fails where bytes were wrong. With an EFA besides, messages are sent into the GPU's memory, and it is counted how
//! often that is seen before it was flushed.
//!
//! | file | holds |
//! |---|---|
//! | `raw` | the driver's functions, by their names |
//! | `kinds` | memory of each kind |
//! | `driver` | what the driver answers |
//! | `arrivals` | what the GPU sees of what an EFA wrote |

mod arrivals;
mod driver;
mod kinds;
mod raw;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use efa_cuda::Driver;

/// What was printed.
#[derive(Debug, Default)]
struct Values {
    differ: u32,
}

impl Values {
    /// A value that nobody has a word on.
    fn told(&self, what: &str, value: impl std::fmt::Display) {
        println!("{what}: {value}");
    }

    /// One that efa-cuda, or its documents, rest on.
    fn expected<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, value: T, expected: &T) {
        if value == *expected {
            println!("{what}: {value:?}, as expected");
        } else {
            self.differ += 1;
            println!("{what}: {value:?} DIFFERS from {expected:?}");
        }
    }
}

fn main() -> ExitCode {
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error) => {
            println!("skip: no GPU here: {error}");
            return ExitCode::from(77);
        }
    };
    match measured(driver) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measured(driver: Driver) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let gpu = *driver.devices()?.first().ok_or("no GPU")?;
    let report = gpu.report()?;
    println!("day: {}", day());
    println!("{report}");
    if report.name.contains("fakecuda") {
        println!("these are no GPU's values: they say that this program works");
    }
    let mut values = Values::default();
    let cuda = raw::Cuda::open()?;
    // Before any context is made.
    driver::without_a_context(&cuda, &mut values);
    let primary = gpu.primary()?;
    primary.within(|_| driver::answers(&cuda, driver, gpu, &mut values))??;
    arrivals::seen(&primary, &mut values)?;
    println!("{} values differ from what is expected; it took {:?}", values.differ, start.elapsed());
    Ok(())
}

/// Of the calendar, in UTC.
fn day() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut days = seconds / 86_400;
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}
