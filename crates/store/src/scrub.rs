//! Scrubbing: checks rows in memory that are not replaced for damage.
//!
//! A row is checked against its seal when it is replaced or removed, and when a checkpoint writes it. Other
//! rows may stay unchanged for long, and programs that only read them do not pay for a check. So a
//! [`Scrubber`] goes through all rows, region by region, over and over. Damage that it finds is treated like
//! any other ([`Store::is_damaged`]): the next batch is not logged.
//!
//! Cost: a hash of each row's bytes, some 0.3 ms a region (measured with rows of 100 bytes).

use std::sync::Arc;

use crate::Store;
use crate::region_walk::RegionWalk;

/// How far it has come.
#[derive(Debug, Default)]
pub struct Scrubber(RegionWalk);

impl Scrubber {
    /// Looks at the live rows of one region. Whether there was no further one: the next one is the first.
    pub fn step(&mut self, store: &Arc<Store>) -> bool {
        let snapshot = store.snapshot();
        let Some((core, region)) = self.0.next(&snapshot) else {
            return true;
        };
        let pin = snapshot.view().pin();
        for slot in core.slots.ids_in(region) {
            if let Some((place, version)) = core.peek(slot, pin)
                && !version.is_sealed_with(core.term(place, version))
            {
                store.note_damage();
            }
        }
        false
    }
}
