//! Sizes, rates and times for people to read.
//!
//! Sizes count in powers of 1,024 (KiB, MiB), because buffers are powers of two; rates count in powers of 1,000 (MB/s,
//! Gb/s), because links are sold that way. Figures are rounded, to three digits where there is a fraction: for a
//! person, not for a program.

use core::fmt;
use core::time::Duration;

/// A size in bytes: `64 B`, `8 KiB`, `1.5 MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
    }
}

/// A time: `812 ns`, `1.23 µs`, `45 ms`. Above a second it stays in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0.as_nanos() as f64, 1000.0, &["ns", "µs", "ms", "s"])
    }
}

/// A count over a time: operations or bytes for each second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many for each second.
    pub per_second: f64,
}

impl Rate {
    /// So many in that time; `None` if the time is zero, which gives no rate.
    pub fn of(count: u64, time: Duration) -> Option<Self> {
        (!time.is_zero()).then(|| Self { per_second: count as f64 / time.as_secs_f64() })
    }

    /// As operations: `2.31 M/s`.
    pub fn operations(self) -> impl fmt::Display {
        Scaled { value: self.per_second, units: ["/s", "k/s", "M/s", "G/s", "T/s"] }
    }

    /// The count was of bytes: `1.2 GB/s`.
    pub fn bytes(self) -> impl fmt::Display {
        Scaled { value: self.per_second, units: ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"] }
    }

    /// The count was of bytes, as a link's bits: `9.6 Gb/s`.
    pub fn bits(self) -> impl fmt::Display {
        Scaled { value: self.per_second * 8.0, units: ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"] }
    }
}

struct Scaled {
    value: f64,
    units: [&'static str; 5],
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.value, 1000.0, &self.units)
    }
}

/// Writes the value in the first unit that leaves it below the base once rounded, or else in the last one.
fn scaled(f: &mut fmt::Formatter<'_>, mut value: f64, base: f64, units: &[&str]) -> fmt::Result {
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for larger in units {
        if value < base - 0.5 {
            break;
        }
        value /= base;
        unit = larger;
    }
    let decimals = match value {
        v if v == whole(v) => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    write!(f, "{value:.decimals$} {unit}")
}

/// The value without its fraction; core has no `trunc` without an operating system's mathematics.
fn whole(value: f64) -> f64 {
    value as u64 as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_whole_in_their_unit_have_no_fraction() {
        for (bytes, text) in [(0, "0 B"), (8, "8 B"), (1023, "1023 B"), (1024, "1 KiB"), (1 << 20, "1 MiB")] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn sizes_between_are_rounded_to_three_digits_and_to_the_next_unit_where_that_fills_this_one() {
        for (bytes, text) in [
            (1025, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (12_345, "12.1 KiB"),
            (1_000_000, "977 KiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn times_take_the_unit_that_leaves_one_to_three_digits_before_the_point() {
        for (nanos, text) in [
            (0, "0 ns"),
            (812, "812 ns"),
            (1_234, "1.23 µs"),
            (12_345, "12.3 µs"),
            (99_960, "100 µs"),
            (999_600, "1.00 ms"),
            (45_000_000, "45 ms"),
            (7_200_000_000_000, "7200 s"),
        ] {
            assert_eq!(Time(Duration::from_nanos(nanos)).to_string(), text);
        }
    }

    #[test]
    fn a_rate_is_the_count_over_the_time_in_the_unit_that_is_asked_for() {
        let rate = Rate::of(3_000_000_000, Duration::from_millis(2500)).unwrap();
        assert_eq!(rate.operations().to_string(), "1.20 G/s");
        assert_eq!(rate.bytes().to_string(), "1.20 GB/s");
        assert_eq!(rate.bits().to_string(), "9.60 Gb/s");
        assert_eq!(Rate::of(2, Duration::from_secs(1)).unwrap().operations().to_string(), "2 /s");
    }

    #[test]
    fn no_time_gives_no_rate() {
        assert_eq!(Rate::of(1, Duration::ZERO), None);
    }
}
