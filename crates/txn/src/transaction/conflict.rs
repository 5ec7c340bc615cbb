//! Inserting rows that may conflict with existing ones: INSERT ... ON CONFLICT.

use std::sync::Arc;

use smallvec::SmallVec;
use weft_base::RowId;
use weft_store::{IndexDef, TableDef};
use weft_types::SqlError;

use super::{Transaction, check_unique};
use crate::overlay::OverlayRow;
use crate::view::{self, Layers, ViewRow};

/// The outcome of inserting a row that may conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsertOutcome {
    /// It was added.
    New(RowId),
    /// Another row, given with its image, has its unique values.
    Conflict(RowId, Vec<u8>),
}

impl Transaction {
    /// Adds each row, as `insert` does, unless another live row has its values in one of `arbiters`.
    pub fn insert_unless(
        &mut self,
        def: &Arc<TableDef>,
        rows: &[Vec<u8>],
        arbiters: &[Arc<IndexDef>],
    ) -> Result<Vec<InsertOutcome>, SqlError> {
        self.refuse_writes_in_excess()?;
        self.refuse_reshaped(def)?;
        self.lock_new_rows(def, rows.iter().map(Vec::as_slice))?;
        let snapshot = self.seen(self.engine.snapshot());
        self.observe(snapshot.batch());
        let catalog = self.catalog();
        let mut placed = Vec::with_capacity(rows.len());
        for row in rows {
            def.check_row(row)?;
            let layers = Layers {
                snapshot: &snapshot,
                overlay: &self.overlay,
                catalog: &catalog,
            };
            let found = taken(layers, def, row, arbiters)?;
            if let Some(found) = found.first() {
                placed.push(InsertOutcome::Conflict(found.row_id, found.bytes.to_vec()));
                continue;
            }
            drop(found);
            check_unique(def, &snapshot, &self.overlay, &catalog, row, None)?;
            self.note_row(def, None, row)?;
            placed.push(InsertOutcome::New(
                match self.overlay_mut().insert(def, Arc::from(row.as_slice())) {
                    OverlayRow::Own(n) => view::own_row_id(n),
                    OverlayRow::Base(row_id) => row_id,
                },
            ));
        }
        Ok(placed)
    }
}

/// Live rows that have the values of `row` in the first of `indexes` with such rows.
fn taken<'a>(
    layers: Layers<'a>,
    def: &TableDef,
    row: &[u8],
    indexes: &[Arc<IndexDef>],
) -> Result<SmallVec<[ViewRow<'a>; 1]>, SqlError> {
    let mut key = Vec::new();
    let mut found: SmallVec<[ViewRow<'a>; 1]> = SmallVec::new();
    for index in indexes {
        if index
            .columns
            .iter()
            .any(|column| def.layout.is_null(row, *column))
        {
            continue;
        }
        key.clear();
        weft_types::encode_key_from_row(&mut key, &def.layout, row, &index.columns);
        layers.find(index, &key, &mut found)?;
        if !found.is_empty() {
            break;
        }
    }
    Ok(found)
}
