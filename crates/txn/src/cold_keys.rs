//! Reads the rows of a program's declared keys that are not in memory, before the program is ordered.
//!
//! ```text
//!   caller's thread    keys known ──► rows read from disk ──► queue ──► batch finds them in memory
//! ```
//!
//! A batch that met such a row would wait for the disk, and everybody behind it. The keys of a one-shot
//! program are known when it is submitted, so its caller waits, and nobody else. What the batch needs beyond
//! that (rows found by other means, rows that have left memory again meanwhile) it still reads itself. A row
//! that cannot be read refuses its program, not the batch.
//!
//! Source: Hobbes 5.2.3 (storage stalls).

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use weft_program::{Access, AccessKeys, AccessKind, BoundKey, Program};
use weft_store::{ReadView, Store, prefix_successor};
use weft_types::SqlError;

/// Rows of a declared range that are read in advance; it is not known how many of them are needed.
const RANGE_ROWS: usize = 64;

/// Reads them. If all rows are in memory, costs a load.
///
/// # Errors
/// A row could not be read.
pub(crate) fn read_rows(store: &Arc<Store>, program: &Program, keys: &AccessKeys) -> Result<(), SqlError> {
    if !store.has_cold_rows() {
        return Ok(());
    }
    let snapshot = store.snapshot();
    let view = snapshot.view();
    keys.for_each(|number, key| {
        if let Some(access) = program.accesses.get(number) {
            read_rows_of(&view, access, key);
        }
    });
    view.check()
}

/// Errors are left to the program: its tables may be gone, which is found out later, or a row could not be
/// read, which the view knows.
fn read_rows_of(view: &ReadView<'_>, access: &Access, key: BoundKey<'_>) {
    let primary = || {
        let table = view.catalog().table_by_id(access.table)?;
        Some(table.primary_index()?.id)
    };
    let index = match access.kind {
        AccessKind::ReadTable | AccessKind::WriteTable => None,
        AccessKind::WriteValue(index) => Some(index),
        AccessKind::ReadRow
        | AccessKind::WriteRow
        | AccessKind::InsertRow
        | AccessKind::ReadRange
        | AccessKind::WriteRange => primary(),
    };
    let Some(index) = index else {
        return;
    };
    match access.kind {
        AccessKind::ReadRange | AccessKind::WriteRange => {
            let hi = prefix_successor(key.hi);
            let hi = hi.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let between = (Bound::Included(key.bytes), hi);
            let _ = view.range_each(access.table, index, between, false, RANGE_ROWS, |_| {});
        }
        _ => {
            let _ = view.lookup(access.table, index, key.bytes, |_| ControlFlow::Continue(()));
        }
    }
}
