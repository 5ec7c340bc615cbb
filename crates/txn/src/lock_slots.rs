//! Maps resources to slots of a planner's table.
//!
//! ```text
//!   even slots | catalog, tables, ranges
//!   odd slots  | rows, values, numbered things
//! ```
//!
//! Two resources that share a slot look like one to a planner. The rows of a batch are many and mostly
//! written, so some of them collide; then two programs wait for each other needlessly. A range or table is
//! requested, in an intention mode, by nearly every program; a written row that collided with it would make
//! all of them wait. So the two kinds use separate slots.

use weft_lock::ResourceId;

/// The smallest number of slots of either kind.
const SLOTS_MIN: usize = 64;

/// The bit of a resource's number that is set for rows, values and numbered things only.
const KIND_BIT: u32 = 62;

/// See the module's head.
#[derive(Debug, Clone, Copy)]
pub struct LockSlots {
    mask: u64,
}

impl LockSlots {
    /// `slot_count` slots for rows and values, rounded up to a power of two, and as many for the others.
    pub fn new(slot_count: usize) -> LockSlots {
        let of_each = slot_count.max(SLOTS_MIN).next_power_of_two();
        LockSlots {
            mask: 2 * of_each as u64 - 1,
        }
    }

    /// The number of slots.
    pub fn count(self) -> usize {
        self.mask as usize + 1
    }

    /// The slot of a resource, below [`LockSlots::count`].
    #[inline(always)]
    pub fn slot(self, resource: ResourceId) -> usize {
        // The number is already a hash; its upper half is folded in because its top bits encode the kind.
        let hash = resource.0 ^ resource.0 >> 32;
        let kind = resource.0 >> KIND_BIT & 1;
        ((hash << 1 | kind) & self.mask) as usize
    }
}

#[cfg(test)]
mod tests {
    use weft_base::{IndexId, TableId};

    use super::*;

    #[test]
    fn row_resources_never_collide_with_range_resources() {
        for asked in [0, 64, 100, 1 << 16] {
            let slots = LockSlots::new(asked);
            let is_odd = |resource| {
                let slot = slots.slot(resource);
                assert!(slot < slots.count(), "{resource}");
                slot % 2 == 1
            };
            for n in 0..10_000_u64 {
                let key = n.to_be_bytes();
                for one in [
                    ResourceId::row(TableId(n as u32 % 7), &key),
                    ResourceId::value(IndexId(n as u32 % 7), &key),
                    ResourceId::other(n),
                ] {
                    assert!(is_odd(one), "{one}");
                }
                for whole in [
                    ResourceId::catalog(),
                    ResourceId::table(TableId(n as u32)),
                    ResourceId::range(TableId(n as u32 % 7), &key),
                ] {
                    assert!(!is_odd(whole), "{whole}");
                }
            }
        }
    }
}
