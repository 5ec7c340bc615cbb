//! Bounds of ranges that have about the same number of tuples, from a sample.

use crate::error::JoinError;
use crate::feed::Raw;
use crate::form::Form;
use crate::partition::Placing;

/// Sampled tuples for each range.
const SAMPLES: usize = 16;

/// Where ranges begin: range n has the keys from bound n - 1 on, below bound n.
pub(super) struct Splitters {
    /// Ascending, each once.
    bounds: Vec<u64>,
    /// Whether the range that begins at a bound has one key only.
    one_key: Vec<bool>,
}

impl Splitters {
    /// About so many ranges for both sides together.
    pub(super) fn new<F: Form>(
        form: &F,
        (build, probe): (&Raw<'_>, &Raw<'_>),
        ranges: usize,
    ) -> Result<Splitters, JoinError> {
        let mut sample = Vec::new();
        for side in [build, probe] {
            side.sample(SAMPLES * ranges / 2 + 1, |tuple| {
                let (mixed, is_inside) = form.mix(tuple.key);
                if is_inside {
                    sample.push(mixed);
                }
            })?;
        }
        sample.sort_unstable();
        Ok(Splitters::of(&sample, ranges, form.key_unit()))
    }

    /// From a sorted sample of keys, neighbours of which are so far apart.
    fn of(sample: &[u64], ranges: usize, key_unit: u64) -> Splitters {
        let mut found = Splitters {
            bounds: Vec::new(),
            one_key: Vec::new(),
        };
        let quantile = |number: usize| sample.get(sample.len() * number / ranges.max(1)).copied();
        let quantiles: Vec<u64> = (1..ranges).filter_map(quantile).collect();
        for group in quantiles.chunk_by(|one, other| one == other) {
            let Some(key) = group.first() else { continue };
            let is_hot = group.len() > 1;
            match found.bounds.last() {
                // The key behind a hot one has begun a range already.
                Some(last) if last == key => {
                    if let Some(one_key) = found.one_key.last_mut() {
                        *one_key = is_hot;
                    }
                }
                _ => {
                    found.bounds.push(*key);
                    found.one_key.push(is_hot);
                }
            }
            if is_hot && let Some(next) = key.checked_add(key_unit) {
                found.bounds.push(next);
                found.one_key.push(false);
            }
        }
        found
    }

    /// All keys of the range are the same.
    pub(super) fn has_one_key(&self, part: usize) -> bool {
        part.checked_sub(1)
            .and_then(|bound| self.one_key.get(bound))
            .is_some_and(|one_key| *one_key)
    }
}

impl Placing for Splitters {
    fn parts(&self) -> usize {
        self.bounds.len() + 1
    }

    #[inline(always)]
    fn part_of(&self, mixed: u64) -> usize {
        // A binary search whose steps do not depend on what is found.
        let (mut first, mut count) = (0, self.bounds.len());
        while count > 0 {
            let half = count.div_ceil(2);
            let is_behind = self
                .bounds
                .get(first + half - 1)
                .is_some_and(|bound| *bound <= mixed);
            first += if is_behind { half } else { 0 };
            count -= half;
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_part_is_the_number_of_bounds_up_to_the_key(
            mut sample in prop::collection::vec(prop_oneof![0_u64..50, any::<u64>(), Just(u64::MAX)], 0..300),
            keys in prop::collection::vec(prop_oneof![0_u64..50, any::<u64>()], 0..100), ranges in 1_usize..40,
        ) {
            sample.sort_unstable();
            let splitters = Splitters::of(&sample, ranges, 1);
            prop_assert!(splitters.bounds.is_sorted_by(|one, other| one < other));
            prop_assert_eq!(splitters.bounds.len(), splitters.one_key.len());
            for key in keys.iter().chain(&sample) {
                let part = splitters.part_of(*key);
                prop_assert_eq!(part, splitters.bounds.partition_point(|bound| bound <= key));
                if splitters.has_one_key(part) {
                    prop_assert_eq!(splitters.bounds[part - 1], *key);
                }
            }
        }
    }

    #[test]
    fn a_frequent_key_has_a_range_of_its_own() {
        let mut sample: Vec<u64> = (0..100).chain([50; 100]).collect();
        sample.sort_unstable();
        let splitters = Splitters::of(&sample, 10, 1);
        assert!(splitters.has_one_key(splitters.part_of(50)));
        for other in [0, 49, 51, 99] {
            assert!(!splitters.has_one_key(splitters.part_of(other)), "{other}");
        }
    }
}
