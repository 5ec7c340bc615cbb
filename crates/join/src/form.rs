//! The two forms in which tuples stand in partitions and tables, and what a key becomes there.
//!
//! ```text
//! wide     16 bytes  | mixed key, 64 bits              | row, 64 bits                  |
//! narrow    8 bytes  | mixed key, k - d bits | zeros ... | row - row_min + 1, r bits    |
//! ```
//!
//! *Mixing* multiplies the key, less the smallest key of the build side, by an odd number modulo 2^k, where k
//! bits hold the range of keys. Such a product is another name of the key (the multiplication can be undone),
//! so comparing products compares keys, and its highest bits depend on all bits of the key: they are the
//! partition, the next ones the line of a hash table. Nothing needs the key itself again.
//!
//! The narrow form is the prefix compression of Barthels (3.4.1): all tuples of a partition have the same
//! highest d bits, which need not be stored, so a key and a row that have k and r bits fit into 8 bytes if
//! k - d + r <= 64. It asks for bounds of keys and rows. With the multiplier 1 the product keeps the order of
//! keys: that is what the sort-merge join sorts.
//!
//! An item that is all zeros is an empty place. A narrow item never is (its row field is at least 1); a wide
//! one may be, and its form says so.

use crate::array::Plain;
use crate::tuple::{Ranges, Tuple};

/// 2^64 divided by the golden ratio, odd (Knuth, volume 3, 6.4): neighbouring keys are spread evenly.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// How tuples are stored.
pub(crate) trait Form: Copy + Send + Sync {
    /// A stored tuple.
    type Item: Plain + Copy + Input<Self>;
    /// Items of a cache line.
    const LANES: usize;
    /// A key may look like an empty place.
    const HAS_ZERO_KEY: bool;

    /// The words of an item; a narrow one has but the first.
    fn words(item: Self::Item) -> [u64; 2];

    /// The mixed key in the highest bits, and whether the key is within the bounds.
    fn mix(&self, key: u64) -> (u64, bool);
    /// Highest bits of the mixed key that items do not have.
    fn dropped(&self) -> u32;
    /// Bits of the mixed key that may differ.
    fn key_bits(&self) -> u32;
    /// How far apart neighbouring mixed keys are.
    fn key_unit(&self) -> u64 {
        1 << (u64::BITS - self.key_bits())
    }
    /// The item of a mixed key; none if the row is outside of the bounds.
    fn item(&self, mixed: u64, row: u64) -> Option<Self::Item>;
    /// The mixed key of an item, less the dropped bits, in the highest bits.
    fn key(&self, item: Self::Item) -> u64;
    /// The row of an item.
    fn row(&self, item: Self::Item) -> u64;
    /// Which bits of a narrow item belong to the key.
    fn key_mask(&self) -> u64;
    /// What a narrow item's row field counts from.
    fn row_base(&self) -> u64;
}

/// Whatever a table is built or probed with: a caller's tuple, or an item.
pub(crate) trait Input<F: Form>: Copy {
    /// The highest bits that name a partition, and whether the key is within the bounds: of a tuple the
    /// mixed key, of an item [`Form::key`].
    fn mixed(self, form: &F) -> (u64, bool);
    /// As [`Form::key`], and whether it is within the bounds.
    fn key(self, form: &F) -> (u64, bool);
    /// The row.
    fn row(self, form: &F) -> u64;
    /// The item; none if it is outside of the bounds.
    fn item(self, form: &F) -> Option<F::Item>;
}

/// 16-byte items, for any keys and rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide {
    multiplier: u64,
}

/// A tuple whose key is mixed.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mixed(pub(crate) Tuple);

/// A narrow item.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

// SAFETY: two integers, without padding.
unsafe impl Plain for Tuple {}
// SAFETY: as above.
unsafe impl Plain for Mixed {}
// SAFETY: an integer.
unsafe impl Plain for Word {}

/// 8-byte items, for keys and rows of known bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrow {
    multiplier: u64,
    key_min: u64,
    key_span: u64,
    row_min: u64,
    row_span: u64,
    key_bits: u32,
    dropped: u32,
    key_mask: u64,
}

/// What keys are mixed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Hashing: the highest bits depend on all.
    Mixed,
    /// Sorting: the order of keys stays.
    Kept,
}

/// Bits that a number needs.
pub(crate) fn bits(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

impl Wide {
    pub(crate) fn new(order: Order) -> Wide {
        let multiplier = match order {
            Order::Mixed => GOLDEN,
            Order::Kept => 1,
        };
        Wide { multiplier }
    }
}

impl Narrow {
    /// The form for keys of these bounds and rows of those, if they fit after so many bits are dropped.
    pub(crate) fn new(keys: (u64, u64), rows: (u64, u64), dropped: u32, order: Order) -> Option<Narrow> {
        let key_span = keys.1.checked_sub(keys.0)?;
        let row_span = rows.1.checked_sub(rows.0)?;
        let key_bits = bits(key_span).max(1);
        let row_bits = bits(row_span.checked_add(1)?);
        let dropped = dropped.min(key_bits);
        let kept = key_bits - dropped;
        if kept + row_bits > u64::BITS {
            return None;
        }
        Some(Narrow {
            multiplier: match order {
                Order::Mixed => (GOLDEN >> (u64::BITS - key_bits)) | 1,
                Order::Kept => 1,
            },
            key_min: keys.0,
            key_span,
            row_min: rows.0,
            row_span,
            key_bits,
            dropped,
            key_mask: u64::MAX.checked_shl(u64::BITS - kept).unwrap_or(0),
        })
    }

    /// The form for a build side of these bounds and the rows of the other side.
    pub(crate) fn of(build: &Ranges, probe_rows: (u64, u64), dropped: u32, order: Order) -> Option<Narrow> {
        let rows = (build.rows.0.min(probe_rows.0), build.rows.1.max(probe_rows.1));
        Narrow::new(build.keys, rows, dropped, order)
    }
}

impl Form for Wide {
    type Item = Mixed;
    const LANES: usize = 4;
    const HAS_ZERO_KEY: bool = true;

    #[inline(always)]
    fn words(item: Mixed) -> [u64; 2] {
        [item.0.key, item.0.row]
    }

    #[inline(always)]
    fn mix(&self, key: u64) -> (u64, bool) {
        (key.wrapping_mul(self.multiplier), true)
    }

    fn dropped(&self) -> u32 {
        0
    }

    fn key_bits(&self) -> u32 {
        u64::BITS
    }

    #[inline(always)]
    fn item(&self, mixed: u64, row: u64) -> Option<Mixed> {
        Some(Mixed(Tuple { key: mixed, row }))
    }

    #[inline(always)]
    fn key(&self, item: Mixed) -> u64 {
        item.0.key
    }

    #[inline(always)]
    fn row(&self, item: Mixed) -> u64 {
        item.0.row
    }

    #[inline(always)]
    fn key_mask(&self) -> u64 {
        u64::MAX
    }

    fn row_base(&self) -> u64 {
        0
    }
}

impl Form for Narrow {
    type Item = Word;
    const LANES: usize = 8;
    const HAS_ZERO_KEY: bool = false;

    #[inline(always)]
    fn words(item: Word) -> [u64; 2] {
        [item.0, 0]
    }

    #[inline(always)]
    fn mix(&self, key: u64) -> (u64, bool) {
        let above = key.wrapping_sub(self.key_min);
        let mixed = above.wrapping_mul(self.multiplier) << (u64::BITS - self.key_bits);
        (mixed, above <= self.key_span)
    }

    #[inline(always)]
    fn dropped(&self) -> u32 {
        self.dropped
    }

    fn key_bits(&self) -> u32 {
        self.key_bits
    }

    #[inline(always)]
    fn item(&self, mixed: u64, row: u64) -> Option<Word> {
        let above = row.wrapping_sub(self.row_min);
        let key = mixed.checked_shl(self.dropped).unwrap_or(0);
        (above <= self.row_span).then(|| Word(key | (above + 1)))
    }

    #[inline(always)]
    fn key(&self, item: Word) -> u64 {
        item.0 & self.key_mask
    }

    #[inline(always)]
    fn row(&self, item: Word) -> u64 {
        (item.0 & !self.key_mask)
            .wrapping_sub(1)
            .wrapping_add(self.row_min)
    }

    #[inline(always)]
    fn key_mask(&self) -> u64 {
        self.key_mask
    }

    #[inline(always)]
    fn row_base(&self) -> u64 {
        self.row_min
    }
}

impl<F: Form> Input<F> for Tuple {
    #[inline(always)]
    fn mixed(self, form: &F) -> (u64, bool) {
        form.mix(self.key)
    }

    #[inline(always)]
    fn key(self, form: &F) -> (u64, bool) {
        let (mixed, is_inside) = form.mix(self.key);
        (mixed.checked_shl(form.dropped()).unwrap_or(0), is_inside)
    }

    #[inline(always)]
    fn row(self, _: &F) -> u64 {
        self.row
    }

    #[inline(always)]
    fn item(self, form: &F) -> Option<F::Item> {
        let (mixed, is_inside) = form.mix(self.key);
        form.item(mixed, self.row).filter(|_| is_inside)
    }
}

/// An item is its own input.
macro_rules! input_of_item {
    ($form:ty, $item:ty) => {
        impl Input<$form> for $item {
            #[inline(always)]
            fn mixed(self, form: &$form) -> (u64, bool) {
                (form.key(self), true)
            }

            #[inline(always)]
            fn key(self, form: &$form) -> (u64, bool) {
                (form.key(self), true)
            }

            #[inline(always)]
            fn row(self, form: &$form) -> u64 {
                Form::row(form, self)
            }

            #[inline(always)]
            fn item(self, _: &$form) -> Option<$item> {
                Some(self)
            }
        }
    };
}

input_of_item!(Wide, Mixed);
input_of_item!(Narrow, Word);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn mixing_is_one_to_one_and_items_keep_key_and_row(
            first in any::<u64>(), second in any::<u64>(), span in 0u64..1 << 40, row in 0u64..1 << 20,
            dropped in 0u32..12,
        ) {
            let wide = Wide::new(Order::Mixed);
            prop_assert_eq!(wide.mix(first).0 == wide.mix(second).0, first == second);
            let low = first.min(u64::MAX - span);
            let rows = (second, second.saturating_add(1 << 20));
            let Some(narrow) = Narrow::new((low, low + span), rows, dropped, Order::Mixed) else {
                return Ok(());
            };
            let keys = [low, low + span, low + span / 2, low + span.min(1)];
            for (one, other) in keys.iter().flat_map(|one| keys.iter().map(move |other| (*one, *other))) {
                let (mixed, is_inside) = narrow.mix(one);
                prop_assert!(is_inside);
                prop_assert_eq!(mixed == narrow.mix(other).0, one == other);
                let row = second.saturating_add(row);
                let item = narrow.item(mixed, row).unwrap();
                prop_assert_ne!(item.0, 0);
                prop_assert_eq!(Form::row(&narrow, item), row);
                let tuple = Tuple { key: one, row };
                prop_assert_eq!(Input::<Narrow>::key(tuple, &narrow), (narrow.key(item), true));
                // The partition and what an item keeps are the whole key.
                prop_assert_eq!(narrow.key(item), mixed << narrow.dropped());
            }
            if let Some(above) = (low + span).checked_add(1) {
                prop_assert!(!narrow.mix(above).1);
            }
        }

        #[test]
        fn kept_order_is_the_order_of_keys(one in any::<u64>(), other in any::<u64>()) {
            let keys = (one.min(other), one.max(other));
            let wide = Wide::new(Order::Kept);
            prop_assert!(wide.mix(keys.0).0 <= wide.mix(keys.1).0);
            if let Some(narrow) = Narrow::new(keys, (0, 3), 0, Order::Kept) {
                prop_assert!(narrow.mix(keys.0).0 <= narrow.mix(keys.1).0);
            }
        }
    }

    #[test]
    fn bounds_that_do_not_fit_are_refused() {
        assert!(Narrow::new((0, u64::MAX), (0, 0), 0, Order::Mixed).is_none());
        assert!(Narrow::new((0, u64::MAX), (0, 0), 1, Order::Mixed).is_some());
        assert!(Narrow::new((0, 1), (0, u64::MAX), 1, Order::Mixed).is_none());
        assert!(Narrow::new((5, 5), (0, (1 << 62) - 2), 0, Order::Mixed).is_some());
        assert!(Narrow::new((1, 0), (0, 0), 0, Order::Mixed).is_none());
    }
}
