//! TPC-C's random values: skewed numbers, last names, texts.
//!
//! Source: TPC Benchmark C, revision 5.11, clauses 2.1.6 (NURand), 4.3.2 (texts and last names).

use weft_base::Prng;

/// NURand's constant for last names when the tables are loaded.
const C_LAST_LOAD: u64 = 157;
/// The same at run time; clause 2.1.6.1 requires the difference to be between 65 and 119, and not 96 or
/// 112.
const C_LAST_RUN: u64 = 223;
/// The constant for customers.
const C_ID: u64 = 259;
/// The constant for items.
const C_ITEM: u64 = 7911;

/// A number from `low` to `high`, inclusive.
pub(super) fn between(random: &mut Prng, low: u64, high: u64) -> u64 {
    low + random.below(high.saturating_sub(low) + 1)
}

/// Clause 2.1.6: non-uniform over `low..=high`.
fn nurand(random: &mut Prng, a: u64, c: u64, low: u64, high: u64) -> u64 {
    let mixed = between(random, 0, a) | between(random, low, high);
    (mixed + c) % (high - low + 1) + low
}

/// A customer's number, 1 to `customers`.
pub(super) fn customer_id(random: &mut Prng, customers: u64) -> i32 {
    nurand(random, 1023, C_ID, 1, customers.max(1)) as i32
}

/// An item's number, 1 to `items`.
pub(super) fn item_id(random: &mut Prng, items: u64) -> i32 {
    nurand(random, 8191, C_ITEM, 1, items.max(1)) as i32
}

/// The number of a last name for a lookup. Only the first thousand customers of a district are guaranteed
/// to have each name, so a smaller district has fewer names.
pub(super) fn last_name_to_find(random: &mut Prng, customers: u64) -> u64 {
    nurand(random, 255, C_LAST_RUN, 0, 999) % customers.clamp(1, 1000)
}

/// The number of the last name of a loaded customer; `number` counts from 1.
pub(super) fn last_name_to_load(random: &mut Prng, number: u64) -> u64 {
    match number <= 1000 {
        true => number - 1,
        false => nurand(random, 255, C_LAST_LOAD, 0, 999),
    }
}

/// Clause 4.3.2.3: three syllables, one per decimal digit.
pub(super) fn last_name(number: u64) -> String {
    const SYLLABLES: [&str; 10] = [
        "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
    ];
    let syllable = |digit: u64| SYLLABLES.get((digit % 10) as usize).copied().unwrap_or("BAR");
    [number / 100, number / 10, number].map(syllable).concat()
}

/// Appends `low` to `high` letters.
pub(super) fn letters(out: &mut String, random: &mut Prng, low: u64, high: u64) {
    for _ in 0..between(random, low, high) {
        out.push(char::from(b'a' + random.below(26) as u8));
    }
}

/// Appends `count` digits.
pub(super) fn digits(out: &mut String, random: &mut Prng, count: u64) {
    for _ in 0..count {
        out.push(char::from(b'0' + random.below(10) as u8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_specification() {
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn skewed_numbers_stay_in_range_and_are_skewed() {
        let mut random = Prng::new(3);
        let mut seen = vec![0u32; 3001];
        for _ in 0..100_000 {
            seen[customer_id(&mut random, 3000) as usize] += 1;
        }
        assert_eq!(seen[0], 0);
        let most = seen.iter().max().copied().unwrap_or(0);
        assert!(most > 2 * (100_000 / 3000), "{most}");
        assert!((0..1000).all(|_| (1..=7).contains(&item_id(&mut random, 7))));
        assert!((0..1000).all(|_| last_name_to_find(&mut random, 30) < 30));
        assert_eq!(last_name_to_load(&mut random, 1000), 999);
    }
}
