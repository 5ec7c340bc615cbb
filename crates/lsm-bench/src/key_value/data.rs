//! Keys and values of the key-value cases: functions of a number, cheap to make.
//!
//! A key is 16 decimal digits, `scatter(number)`: neighbours in time are far apart in order. A value begins
//! with its key's number (as far as there is room), goes on with bytes of a pool of chance, and its second
//! half is one byte over and over, so that LZ4 halves it. The writer draws a place in the pool for every
//! value; a reader checks the number and the last byte.

use weft_base::Prng;

use super::KeyValueStore;
use crate::LoadError;

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

const POOL_BYTES: usize = 1 << 20;
/// Numbers are scattered over this many bits: 13 decimal digits.
const BITS: u32 = 40;
const MASK: u64 = (1 << BITS) - 1;
const FILLER: u8 = b'v';

/// A permutation of the numbers below 2^40; what lies above is lost.
#[must_use]
pub fn scatter(number: u64) -> u64 {
    // Odd factors and shifts by half the width: each step can be undone.
    let mut x = number & MASK;
    x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) & MASK;
    x ^= x >> (BITS / 2);
    x = x.wrapping_mul(0xd1b5_4a32_d192_ed03) & MASK;
    x ^ (x >> (BITS / 2))
}

/// The key of a number.
#[must_use]
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    let mut rest = scatter(number);
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Makes keys and values, drawing chance from its own seed. Owned by one thread.
#[derive(Clone, Debug)]
pub struct KeyValues {
    prng: Prng,
    pool: Vec<u8>,
    value: Vec<u8>,
}

impl KeyValues {
    /// A maker of values of `value_bytes`.
    #[must_use]
    pub fn new(value_bytes: usize, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let mut pool = vec![0; POOL_BYTES + value_bytes];
        prng.fill(&mut pool);
        Self {
            prng,
            pool,
            value: vec![FILLER; value_bytes],
        }
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.prng.below(bound)
    }

    /// A value for a number, another one every time.
    pub fn value(&mut self, number: u64) -> &[u8] {
        let chance = self.value.len() / 2;
        let from = self.prng.below(POOL_BYTES as u64) as usize;
        let pool = self.pool.get(from..from + chance);
        if let (Some(pool), Some(place)) = (pool, self.value.get_mut(..chance)) {
            place.copy_from_slice(pool);
        }
        let mark = number.to_le_bytes();
        let marked = chance.min(mark.len());
        if let (Some(place), Some(mark)) = (self.value.get_mut(..marked), mark.get(..marked)) {
            place.copy_from_slice(mark);
        }
        &self.value
    }

    /// Writes a new value of `number`.
    ///
    /// # Errors
    /// The store's.
    pub fn put(&mut self, number: u64, store: &dyn KeyValueStore) -> Result<(), LoadError> {
        store.put(&key(number), self.value(number))
    }

    /// Whether these bytes can be a value of `number`.
    #[must_use]
    pub fn is_value(&self, number: u64, value: &[u8]) -> bool {
        let mark = number.to_le_bytes();
        let marked = (value.len() / 2).min(mark.len());
        value.len() == self.value.len()
            && value.get(..marked) == mark.get(..marked)
            && value.last().is_none_or(|byte| *byte == FILLER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_distinct_and_scattered() {
        let keys: Vec<_> = (0..20_000).map(key).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        let ascents = keys.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((8000..12_000).contains(&ascents), "{ascents}");
        assert!(keys.iter().flatten().all(u8::is_ascii_digit));
    }

    proptest! {
        #[test]
        fn a_value_is_recognised_and_no_other_is(
            number in 0_u64..1 << 40,
            other in 0_u64..1 << 40,
            value_bytes in 0_usize..300,
        ) {
            let mut data = KeyValues::new(value_bytes, 1);
            let value = data.value(number).to_vec();
            prop_assert_eq!(value.len(), value_bytes);
            prop_assert!(data.is_value(number, &value));
            if value_bytes >= 16 && other != number {
                prop_assert!(!data.is_value(other, &value));
            }
            if value_bytes > 0 {
                prop_assert!(!data.is_value(number, &value[1..]));
            }
        }
    }
}
