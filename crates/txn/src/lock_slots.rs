//! Where in a planner's table a resource has its slot.
//!
//! ```text
//!   rows, values, numbered things            | catalog, tables, ranges
//!   a power of two of slots, as many as asked  a sixteenth of that
//! ```
//!
//! Two resources that share a slot are one to a planner. Rows of one batch are many, and most are written, so
//! some pairs of them meet; that makes two programs wait for each other. A range or table stands in the
//! requests of nearly every program, which announces changes there: a written row that met it would make all
//! of them wait. So these two kinds are kept apart.

use weft_lock::ResourceId;

/// Slots below which no part of a table has fewer.
const SLOTS_MIN: usize = 64;

/// The bit of a resource's number that rows, values and numbered things have set, and no other.
const IS_ONE_OF_MANY: u64 = 1 << 62;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockSlots {
    many: usize,
    others: usize,
}

impl LockSlots {
    /// For so many rows and values, rounded up to a power of two.
    pub fn new(slot_count: usize) -> LockSlots {
        let many = slot_count.max(SLOTS_MIN).next_power_of_two();
        LockSlots {
            many,
            others: (many / 16).max(SLOTS_MIN),
        }
    }

    /// All slots.
    pub fn count(self) -> usize {
        self.many + self.others
    }

    /// The resource's, below [`LockSlots::count`].
    #[inline(always)]
    pub fn slot(self, resource: ResourceId) -> usize {
        // The number is a hash already; its upper half is folded in, since its top bits name the kind.
        let hash = (resource.0 ^ resource.0 >> 32) as usize;
        match resource.0 & IS_ONE_OF_MANY {
            0 => self.many + (hash & (self.others - 1)),
            _ => hash & (self.many - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_base::{IndexId, TableId};

    use super::*;

    #[test]
    fn rows_and_what_holds_many_of_them_never_meet() {
        for asked in [0, 64, 100, 1 << 16] {
            let slots = LockSlots::new(asked);
            for n in 0..10_000_u64 {
                let key = n.to_be_bytes();
                for one in [
                    ResourceId::row(TableId(n as u32 % 7), &key),
                    ResourceId::value(IndexId(n as u32 % 7), &key),
                    ResourceId::other(n),
                ] {
                    assert!(slots.slot(one) < slots.many, "{one}");
                }
                for whole in [
                    ResourceId::catalog(),
                    ResourceId::table(TableId(n as u32)),
                    ResourceId::range(TableId(n as u32 % 7), &key),
                ] {
                    assert!(
                        (slots.many..slots.count()).contains(&slots.slot(whole)),
                        "{whole}"
                    );
                }
            }
        }
    }
}
