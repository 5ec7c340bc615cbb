//! Sorting a run of items that fits into the cache, by key.
//!
//! By counting, from the lowest digit on (LSD radix sort), over those bits alone in which the keys of the run
//! differ: the range that a run belongs to has used up the others. Where more bits differ than it takes to
//! tell the items of a run apart, the highest ones are sorted and insertion moves what is left; keys that
//! share them, so that insertion would be slow, are sorted by all bits.

use crate::array::Plain;
use crate::form::{Form, bits};

/// Runs of up to so many items are sorted by insertion.
const INSERTION_MAX: usize = 24;
/// Bits of a digit at most: its counters stay in the first-level cache.
const DIGIT_BITS_MAX: u32 = 9;
/// Bits beyond those of the run's length that are sorted before insertion.
const EXTRA_BITS: u32 = 3;
/// Moves for each item after which insertion gives up.
const MOVES_MAX: usize = 4;

/// Sorts items by key, in any order of rows. `spare` has as many places at least.
pub(crate) fn sort<F: Form>(form: &F, items: &mut [F::Item], spare: &mut [F::Item]) {
    let key = |item: F::Item| form.key(item);
    let Some(first) = items.first().map(|item| key(*item)) else {
        return;
    };
    if items.len() <= INSERTION_MAX {
        insertion(items, key, usize::MAX);
        return;
    }
    let differing = items
        .iter()
        .fold(0, |differing, item| differing | (key(*item) ^ first));
    if differing == 0 {
        return;
    }
    let (low, high) = (differing.trailing_zeros(), bits(differing));
    let enough = bits(items.len() as u64) + EXTRA_BITS;
    let from = match high - low <= enough + DIGIT_BITS_MAX {
        true => low,
        false => high - enough,
    };
    by_digits(items, spare, key, from, high);
    if from > low && !insertion(items, key, items.len() * MOVES_MAX) {
        by_digits(items, spare, key, low, high);
    }
}

/// Sorts by the bits of keys from `low` on, below `high`.
fn by_digits<I: Plain + Copy>(
    items: &mut [I],
    spare: &mut [I],
    key: impl Fn(I) -> u64 + Copy,
    low: u32,
    high: u32,
) {
    let passes = (high - low).div_ceil(DIGIT_BITS_MAX);
    let digit_bits = (high - low).div_ceil(passes);
    let Some(spare) = spare.get_mut(..items.len()) else {
        return;
    };
    let (mut from, mut to) = (items, spare);
    for pass in 0..passes {
        let shift = low + pass * digit_bits;
        let wanted = digit_bits.min(high - shift);
        one_digit(from, to, |item| key(item) >> shift & ((1 << wanted) - 1));
        (from, to) = (to, from);
    }
    if passes % 2 == 1 {
        // The last pass wrote to the spare places, which are `from` now.
        to.copy_from_slice(from);
    }
}

#[inline(always)]
fn one_digit<I: Copy>(from: &[I], to: &mut [I], digit: impl Fn(I) -> u64) {
    let mut next = [0_u32; 1 << DIGIT_BITS_MAX];
    for item in from {
        if let Some(count) = next.get_mut(digit(*item) as usize) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for place in &mut next {
        (*place, sum) = (sum, sum + *place);
    }
    for item in from {
        if let Some(place) = next.get_mut(digit(*item) as usize) {
            if let Some(to) = to.get_mut(*place as usize) {
                *to = *item;
            }
            *place += 1;
        }
    }
}

/// Sorts by insertion; gives up, with all items still there, after so many moves.
fn insertion<I: Copy>(items: &mut [I], key: impl Fn(I) -> u64, moves_max: usize) -> bool {
    let mut moves = 0;
    for at in 1..items.len() {
        let Some(item) = items.get(at).copied() else { break };
        let mut place = at;
        while let Some(before) = place.checked_sub(1)
            && let Some(other) = items.get(before).copied()
            && key(other) > key(item)
        {
            if let Some(to) = items.get_mut(place) {
                *to = other;
            }
            place = before;
        }
        if let Some(to) = items.get_mut(place) {
            *to = item;
        }
        moves += at - place;
        if moves > moves_max {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::form::{Mixed, Narrow, Order, Wide, Word};
    use crate::tuple::Tuple;

    proptest! {
        #[test]
        fn runs_are_sorted_and_keep_their_items(
            keys in prop::collection::vec(
                prop_oneof![any::<u64>(), 0_u64..300, (0_u64..8).prop_map(|key| key << 60 | key)], 0..600),
        ) {
            let tuples: Vec<Tuple> = (0..).zip(&keys).map(|(row, key)| Tuple { key: *key, row }).collect();
            let mut expected = tuples.clone();
            expected.sort_unstable();
            let form = Wide::new(Order::Kept);
            let mut items: Vec<Mixed> = tuples.iter().copied().map(Mixed).collect();
            let mut spare = vec![Mixed::default(); items.len()];
            sort(&form, &mut items, &mut spare);
            prop_assert!(items.is_sorted_by_key(|item| item.0.key));
            let mut found: Vec<Tuple> = items.iter().map(|item| item.0).collect();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
            let bound = |key: &u64| key % 1_000_000;
            let narrow = Narrow::new((0, 1_000_000), (0, 1000), 0, Order::Kept).unwrap();
            let item = |(row, key): (u64, &u64)| narrow.item(narrow.mix(bound(key)).0, row).unwrap();
            let mut words: Vec<Word> = (0..).zip(&keys).map(item).collect();
            let mut expected: Vec<u64> = words.iter().map(|word| word.0).collect();
            expected.sort_unstable();
            let mut spare = vec![Word::default(); words.len()];
            sort(&narrow, &mut words, &mut spare);
            prop_assert!(words.is_sorted_by_key(|word| narrow.key(*word)));
            let mut found: Vec<u64> = words.iter().map(|word| word.0).collect();
            found.sort_unstable();
            prop_assert_eq!(&found, &expected);
        }
    }
}
