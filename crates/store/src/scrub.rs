//! Scrubbing: checks rows in memory that are not replaced for damage.
//!
//! A row is checked against its seal when it is replaced or removed, and when a checkpoint writes it. Other
//! rows may stay unchanged for long, and programs that only read them do not pay for a check. So a
//! [`Scrubber`] goes through all rows, region by region, over and over. Damage that it finds is treated like
//! any other ([`Store::is_damaged`]): the next batch is not logged.
//!
//! Cost: a hash of each row's bytes, some 0.3 ms a region (measured with rows of 100 bytes).

use std::sync::Arc;

use weft_base::TableId;

use crate::Store;

/// How far it has come: the next region to be looked at.
#[derive(Debug, Default)]
pub struct Scrubber {
    table: TableId,
    region: u64,
}

impl Scrubber {
    /// Looks at the live rows of one region. Whether it was the last one of all: the next one is the first.
    pub fn step(&mut self, store: &Arc<Store>) -> bool {
        let snapshot = store.snapshot();
        let next = snapshot
            .tables()
            .filter(|(id, _)| *id >= self.table)
            .min_by_key(|(id, _)| *id);
        let Some((id, core)) = next else {
            *self = Scrubber::default();
            return true;
        };
        if id != self.table {
            (self.table, self.region) = (id, 0);
        }
        if self.region >= core.slots.region_count() {
            (self.table, self.region) = (TableId(id.0.saturating_add(1)), 0);
            return false;
        }
        let pin = snapshot.view().pin();
        for slot in core.slots.ids_in(self.region) {
            if let Some((place, version)) = core.resident(slot, pin)
                && !version.is_sealed_with(core.term(place, version))
            {
                store.note_damage();
            }
        }
        self.region += 1;
        false
    }
}
