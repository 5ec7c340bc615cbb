//! Making copies: recording begins at a boundary, then columns are read from a snapshot.

use std::sync::Arc;

use weft_base::TableId;
use weft_column::segment::{Segment, SegmentBuilder};
use weft_types::RowLayout;

use super::form::{cell, kind_of};
use super::region::{Packed, RegionColumns, SlotMask};
use crate::memory::{REGION_SLOTS, Scratch};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::table::{TableCore, TableData};

/// The strings of a column of a region that has more bytes are not copied: they are not what is scanned.
const STRING_BYTES_MAX: usize = 16 << 20;

/// Begins empty copies of regions of a table: from here on their slots are recorded as they are written.
/// Waits for a boundary; `None` if there is none. Returns the bytes of the copies that they replace.
pub(super) fn begin(store: &Arc<Store>, table: &TableData, regions: &[u64]) -> Option<u64> {
    let (core, columns) = (&table.core, table.layout().column_count());
    let empty = || Arc::new(RegionColumns::new(columns, table.laid_out_since()));
    let mut copies: Vec<(u64, Option<Arc<RegionColumns>>)> =
        regions.iter().map(|region| (*region, Some(empty()))).collect();
    store.at_rest(|snapshot| {
        for (region, copy) in &mut copies {
            if let Some(copy) = copy.as_ref() {
                copy.set_batch(snapshot.batch());
            }
            *copy = core.slots.set_columns(*region, copy.take());
        }
    })?;
    let replaced = copies.iter().filter_map(|(_, copy)| copy.as_ref());
    Some(replaced.map(|copy| copy.bytes()).sum())
}

/// Drops the copies of regions of a table, if there is a boundary soon.
pub(super) fn forget(store: &Arc<Store>, core: &TableCore, regions: &[u64]) {
    let mut dropped = Vec::with_capacity(regions.len());
    store.at_rest(|_| {
        for region in regions {
            dropped.push(core.slots.set_columns(*region, None));
        }
    });
}

/// Adds columns to a region's copy, from a snapshot that is not older than the copy. Adds nothing if the
/// table has other columns by then.
pub(super) fn fill(
    snapshot: &Snapshot,
    table: TableId,
    region: u64,
    copy: &RegionColumns,
    columns: &[usize],
) {
    let Some(table) = snapshot.table(table).filter(|table| copy.is_of(table)) else {
        return;
    };
    let (core, layout) = (&table.core, table.layout());
    let mut present = SlotMask::empty();
    let mut builders: Vec<Column> = columns
        .iter()
        .map(|column| Column::new(layout, *column))
        .collect();
    let pin = snapshot.view().pin();
    let mut rows = 0;
    let (mut scratch, mut buffer) = (Scratch::default(), Vec::new());
    for slot in core.slots.ids_in(region) {
        let mut is_present = false;
        let shown = core.visit(slot, pin, &mut scratch, |_, version| {
            is_present = true;
            let row = table.row_in(version, &mut buffer);
            builders
                .iter_mut()
                .for_each(|builder| builder.push(layout, Some(row)));
        });
        if is_present {
            present.set((slot.0 % REGION_SLOTS) as usize);
        } else {
            // A row that cannot be read is not in the copy: who reads it in its slot is told why.
            let _ = shown;
            builders.iter_mut().for_each(|builder| builder.push(layout, None));
        }
        rows += 1;
    }
    copy.set_present(present);
    if rows > 0 {
        for builder in builders {
            copy.put(builder.column, builder.finish());
        }
    }
}

/// A column that is being packed.
struct Column {
    column: usize,
    /// `None` once a value cannot be packed.
    builder: Option<SegmentBuilder>,
    string_bytes: usize,
}

impl Column {
    fn new(layout: &RowLayout, column: usize) -> Column {
        let ty = layout.types().get(column);
        Column {
            column,
            builder: ty.and_then(|ty| SegmentBuilder::new(0, &[kind_of(ty)]).ok()),
            string_bytes: 0,
        }
    }

    /// The cell of the next row, or NULL for a slot without one.
    fn push(&mut self, layout: &RowLayout, row: Option<&[u8]>) {
        let Some(builder) = self.builder.as_mut() else {
            return;
        };
        let value = row.map_or(Ok(None), |row| cell(layout, row, self.column));
        if let Some(row) = row {
            self.string_bytes += layout.var_bytes(row, self.column).map_or(0, <[u8]>::len);
        }
        let is_packed = match value {
            Ok(value) => builder.push(0, value.as_ref()).is_ok(),
            Err(()) => false,
        };
        if !is_packed || self.string_bytes > STRING_BYTES_MAX {
            self.builder = None;
        }
    }

    /// The builder has compared what it made with the values; opening it checks its header once more.
    fn finish(self) -> Option<Packed> {
        let bytes = self.builder?.finish().ok()?.into_boxed_slice();
        Segment::open(bytes.into()).ok().map(Packed::new)
    }
}
