//! Going round all regions of all tables, a step at a time, while tables come and go.

use std::sync::Arc;

use weft_base::TableId;

use crate::snapshot::Snapshot;
use crate::table::TableCore;

/// The next region.
#[derive(Debug, Default)]
pub(crate) struct RegionWalk {
    table: TableId,
    region: u64,
}

impl RegionWalk {
    /// The next region and its table as the snapshot has it; `None` after the last one of all, and then the
    /// first one again.
    pub(crate) fn next<'s>(&mut self, snapshot: &'s Snapshot) -> Option<(&'s Arc<TableCore>, u64)> {
        loop {
            let tables = snapshot.tables().filter(|(id, _)| *id >= self.table);
            let Some((id, core)) = tables.min_by_key(|(id, _)| *id) else {
                *self = RegionWalk::default();
                return None;
            };
            if id != self.table {
                (self.table, self.region) = (id, 0);
            }
            if self.region < core.slots.region_count() {
                self.region += 1;
                return Some((core, self.region - 1));
            }
            (self.table, self.region) = (TableId(id.0.saturating_add(1)), 0);
        }
    }
}
