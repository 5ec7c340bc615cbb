//! Bounds of ranges that have about the same number of tuples, from a sample.

use crate::error::JoinError;
use crate::feed::Raw;
use crate::form::{Form, bits};
use crate::partition::Placing;

/// Sampled tuples for each range.
pub(crate) const SAMPLES: usize = 16;

/// Slots of the table for each bound.
const SLOTS: usize = 4;

/// Where ranges begin: range n has the keys from bound n - 1 on, below bound n.
///
/// A search begins in a table over the key range, where keys that are spread evenly leave one bound to
/// compare with, and goes on by halves. It takes the same steps for every key: with branches, a search among
/// 2,048 bounds took 85 ns, most of it for steps that were guessed wrong.
pub(crate) struct Splitters {
    /// Ascending, each once.
    bounds: Vec<u64>,
    /// For each slot of the key range the bounds below it.
    slots: Vec<u32>,
    /// The key with which the first slot begins.
    first: u64,
    /// Keys of a slot, as a power of two.
    shift: u32,
    /// Half of the bounds of the fullest slot, rounded up to a power of two: the first step of a search.
    step_max: usize,
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
    pub(crate) fn of(sample: &[u64], ranges: usize, key_unit: u64) -> Splitters {
        let mut found = Splitters {
            bounds: Vec::new(),
            slots: Vec::new(),
            first: 0,
            shift: 0,
            step_max: 0,
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
        found.make_slots();
        found
    }

    fn make_slots(&mut self) {
        let (Some(first), Some(last)) = (self.bounds.first(), self.bounds.last()) else {
            self.slots = vec![0];
            return;
        };
        let wanted = (SLOTS * self.bounds.len()).next_power_of_two();
        self.first = *first;
        self.shift = bits(last - first).saturating_sub(bits(wanted as u64) - 1);
        let count = ((last - first) >> self.shift) as usize + 1;
        let begin = |slot: usize| self.first.saturating_add((slot as u64) << self.shift);
        // A key below the first bound is in the first slot, where bounds from the first one on are compared.
        let below = |slot: usize| self.bounds.partition_point(|bound| *bound < begin(slot));
        self.slots = (0..count).map(|slot| below(slot) as u32).collect();
        let ends = (1..=count).map(|slot| {
            if slot == count {
                self.bounds.len()
            } else {
                below(slot)
            }
        });
        let fullest = ends
            .zip(&self.slots)
            .map(|(end, start)| end - *start as usize)
            .max();
        self.step_max = (fullest.unwrap_or(0) + 1).next_power_of_two() / 2;
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
        let slot = (mixed.saturating_sub(self.first) >> self.shift) as usize;
        let slot = slot.min(self.slots.len().wrapping_sub(1));
        let mut part = self.slots.get(slot).copied().unwrap_or(0) as usize;
        let mut step = self.step_max;
        while step > 0 {
            // Bounds of later slots are above the key, so the search may look at them.
            let is_behind = self
                .bounds
                .get(part + step - 1)
                .is_some_and(|bound| *bound <= mixed);
            part += step * usize::from(is_behind);
            step /= 2;
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_part_is_the_number_of_bounds_up_to_the_key(
            mut sample in prop::collection::vec(
                prop_oneof![0_u64..50, any::<u64>(), Just(u64::MAX)], 0..300),
            keys in prop::collection::vec(prop_oneof![0_u64..50, any::<u64>()], 0..100),
            ranges in 1_usize..40,
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
