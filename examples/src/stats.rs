//! Percentiles of samples, by nearest rank: every figure is a sample that was taken, never a value between two.
//!
//! The p-th percentile of n samples is the smallest one that at least p per cent of them do not exceed: of the
//! sorted samples the one with rank ⌈p/100 × n⌉, counted from 1. So p99.9 is the largest sample until there are
//! more than a thousand of them.

/// What a run's samples say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary<T> {
    /// How many samples there were.
    pub count: usize,
    /// The smallest.
    pub min: T,
    /// The median: half of the samples are no larger.
    pub p50: T,
    /// 99 of 100 samples are no larger.
    pub p99: T,
    /// 999 of 1,000 samples are no larger.
    pub p99_9: T,
    /// The largest.
    pub max: T,
}

impl<T: Copy + Ord> Summary<T> {
    /// Sorts the samples in place and reads the figures off them; `None` if there are none.
    pub fn of(samples: &mut [T]) -> Option<Self> {
        samples.sort_unstable();
        Some(Self {
            count: samples.len(),
            min: *samples.first()?,
            p50: percentile(samples, 500)?,
            p99: percentile(samples, 990)?,
            p99_9: percentile(samples, 999)?,
            max: *samples.last()?,
        })
    }
}

/// The percentile in thousandths, 1 to 1,000, of sorted samples.
fn percentile<T: Copy>(sorted: &[T], per_mille: u16) -> Option<T> {
    let rank = (sorted.len() as u128 * u128::from(per_mille)).div_ceil(1000);
    sorted.get(usize::try_from(rank.checked_sub(1)?).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_thousand_distinct_samples_each_percentile_is_its_own_rank() {
        let mut samples: Vec<u32> = (1..=1000).rev().collect();
        let summary = Summary::of(&mut samples).unwrap();
        assert_eq!(summary, Summary { count: 1000, min: 1, p50: 500, p99: 990, p99_9: 999, max: 1000 });
    }

    #[test]
    fn of_few_samples_the_high_percentiles_are_the_largest_sample() {
        let summary = Summary::of(&mut [30, 10, 20]).unwrap();
        assert_eq!(summary, Summary { count: 3, min: 10, p50: 20, p99: 30, p99_9: 30, max: 30 });
    }

    #[test]
    fn of_one_sample_every_figure_is_that_sample() {
        let summary = Summary::of(&mut [7]).unwrap();
        assert_eq!(summary, Summary { count: 1, min: 7, p50: 7, p99: 7, p99_9: 7, max: 7 });
    }

    #[test]
    fn of_no_samples_there_is_no_summary() {
        assert_eq!(Summary::<u64>::of(&mut []), None);
    }

    #[test]
    fn a_percentile_is_the_smallest_sample_that_enough_of_them_do_not_exceed() {
        let sorted = [2, 3, 3, 5, 8, 13, 21, 34, 55, 89, 144];
        for per_mille in 1..=1000 {
            let enough = |limit: &i32| {
                let within = sorted.iter().filter(|sample| *sample <= limit).count();
                within * 1000 >= usize::from(per_mille) * sorted.len()
            };
            assert_eq!(percentile(&sorted, per_mille), sorted.iter().copied().find(|s| enough(s)), "{per_mille}");
        }
    }
}
