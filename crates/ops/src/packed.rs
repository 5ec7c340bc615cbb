//! Integers packed to so many bits each, one after the other, and what a scan finds among them.
//!
//! Code `i` of width `w` is the bits `i * w .. (i + 1) * w` of the bytes, the lowest bit of a byte first: the
//! layout of DBA's value ids (DBA 2.2), and of most column stores. A scan compares codes, not values: a
//! predicate on values becomes a range or a set of codes before (`crates/column`).
//!
//! The functions here are one loop each. Faster ones must give the same bits.

/// The widest code.
pub const WIDTH_MAX: u32 = 32;

/// What the selected ones of some codes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// How many were selected.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The smallest; the largest number if there is none.
    pub min: u32,
    /// The largest; zero if there is none.
    pub max: u32,
}

impl Totals {
    /// Those of no code.
    pub const NONE: Totals = Totals {
        count: 0,
        sum: 0,
        min: u32::MAX,
        max: 0,
    };

    /// Adds one code.
    #[inline]
    pub fn add(&mut self, code: u32) {
        self.count += 1;
        self.sum += u64::from(code);
        self.min = self.min.min(code);
        self.max = self.max.max(code);
    }
}

/// The bytes that so many codes take.
#[must_use]
pub const fn packed_len(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// The largest code of a width.
#[must_use]
pub const fn code_max(width: u32) -> u32 {
    match width {
        0 => 0,
        width => u32::MAX >> (WIDTH_MAX - if width > WIDTH_MAX { WIDTH_MAX } else { width }),
    }
}

/// The codes, each cut to `width` bits.
#[must_use]
pub fn pack(codes: &[u32], width: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(packed_len(codes.len(), width));
    let (mut waiting, mut bits) = (0_u64, 0);
    for code in codes {
        waiting |= u64::from(code & code_max(width)) << bits;
        bits += width;
        while bits >= 8 {
            out.push(waiting as u8);
            waiting >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(waiting as u8);
    }
    out
}

/// Code `at`; zero bits where there are no bytes.
#[must_use]
pub fn code_at(packed: &[u8], width: u32, at: usize) -> u32 {
    let first = at * width as usize;
    let mut word = 0_u64;
    for nth in 0..5 {
        let byte = packed.get(first / 8 + nth).copied().unwrap_or(0);
        word |= u64::from(byte) << (8 * nth);
    }
    (word >> (first % 8)) as u32 & code_max(width)
}

/// A bit for each of `count` codes, the first in the lowest: whether it lies in `low..=high`.
#[must_use]
pub fn in_range(packed: &[u8], width: u32, count: usize, low: u32, high: u32) -> Vec<u64> {
    bitmap(count, |at| (low..=high).contains(&code_at(packed, width, at)))
}

/// A bit for each of `count` codes: whether the set has it. The set is a bit for each code, as many as it has
/// words for.
#[must_use]
pub fn in_set(packed: &[u8], width: u32, count: usize, set: &[u64]) -> Vec<u64> {
    bitmap(count, |at| {
        let code = code_at(packed, width, at);
        set.get(code as usize / 64)
            .is_some_and(|word| word >> (code % 64) & 1 == 1)
    })
}

/// The numbers of the bits that are set, from `first` on.
#[must_use]
pub fn positions(bitmap: &[u64], first: u32) -> Vec<u32> {
    let bits = 0..bitmap.len() * 64;
    let set = bits.filter(|at| bitmap.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1));
    set.map(|at| first + at as u32).collect()
}

/// The totals of those of `count` codes whose bit is set, the first in the lowest; bits that are missing are
/// not.
#[must_use]
pub fn totals(packed: &[u8], width: u32, count: usize, selection: &[u64]) -> Totals {
    let mut totals = Totals::NONE;
    for at in positions(selection, 0)
        .into_iter()
        .filter(|at| (*at as usize) < count)
    {
        totals.add(code_at(packed, width, at as usize));
    }
    totals
}

fn bitmap(count: usize, has: impl Fn(usize) -> bool) -> Vec<u64> {
    let mut words = vec![0; count.div_ceil(64)];
    for (number, word) in words.iter_mut().enumerate() {
        for bit in 0..64.min(count - number * 64) {
            *word |= u64::from(has(number * 64 + bit)) << bit;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bits_lie_where_the_format_says() {
        assert_eq!(pack(&[1, 2, 3], 10), [0x01, 0x08, 0x30, 0x00]);
        assert_eq!(pack(&[5, 9], 0), [0_u8; 0]);
        assert_eq!(pack(&[0xdead_beef], 32), [0xef, 0xbe, 0xad, 0xde]);
        assert_eq!(
            (code_max(0), code_max(1), code_max(31), code_max(32)),
            (0, 1, u32::MAX >> 1, u32::MAX)
        );
        assert_eq!(in_range(&pack(&[4, 5, 6, 7], 3), 3, 4, 5, 6), [0b0110]);
        assert_eq!(
            in_set(&pack(&[4, 5, 6, 7], 3), 3, 4, &[1 << 4 | 1 << 7]),
            [0b1001]
        );
        assert_eq!(positions(&[0b1001, 1], 10), [10, 13, 74]);
    }

    proptest! {
        #[test]
        fn what_is_packed_is_read(codes: Vec<u32>, width in 0..=WIDTH_MAX) {
            let packed = pack(&codes, width);
            prop_assert_eq!(packed.len(), packed_len(codes.len(), width));
            for (at, code) in codes.iter().enumerate() {
                prop_assert_eq!(code_at(&packed, width, at), code & code_max(width));
            }
            prop_assert_eq!(code_at(&packed, width, codes.len() + 64), 0);
        }

        #[test]
        fn bitmaps_say_what_holds(codes: Vec<u32>, width in 1_u32..=16, low: u16, high: u16, set: Vec<u64>) {
            let packed = pack(&codes, width);
            let (low, high) = (u32::from(low), u32::from(high));
            let range = in_range(&packed, width, codes.len(), low, high);
            let chosen = in_set(&packed, width, codes.len(), &set);
            let has = |bitmap: &[u64], at: usize| bitmap[at / 64] >> (at % 64) & 1 == 1;
            for (at, code) in codes.iter().map(|code| code & code_max(width)).enumerate() {
                prop_assert_eq!(has(&range, at), low <= code && code <= high);
                let member = set.get(code as usize / 64).is_some_and(|word| word & 1 << (code % 64) != 0);
                prop_assert_eq!(has(&chosen, at), member);
            }
            let totals = totals(&packed, width, codes.len(), &chosen);
            let selected = codes.iter().enumerate().filter(|(at, _)| has(&chosen, *at));
            let selected: Vec<u32> = selected.map(|(_, code)| code & code_max(width)).collect();
            prop_assert_eq!(totals.count, selected.len() as u64);
            prop_assert_eq!(totals.sum, selected.iter().map(|code| u64::from(*code)).sum::<u64>());
            prop_assert_eq!(totals.min, selected.iter().copied().min().unwrap_or(u32::MAX));
            prop_assert_eq!(totals.max, selected.iter().copied().max().unwrap_or(0));
            let set_bits: u32 = range.iter().map(|word| word.count_ones()).sum();
            prop_assert_eq!(positions(&range, 0).len(), set_bits as usize);
        }
    }
}
