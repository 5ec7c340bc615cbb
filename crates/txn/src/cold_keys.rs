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

use weft_base::{IndexId, TableId};
use weft_program::{Access, AccessKeys, AccessKind, BoundKey, Program};
use weft_store::{ReadView, Store, prefix_successor};
use weft_types::{SqlError, SqlState};

/// Rows of a declared range that are read in advance: it is not known which of them are needed, if any.
const RANGE_ROWS: usize = 16;

/// Reads them. If all rows are in memory, costs a load.
///
/// # Errors
/// A row with a declared key could not be read.
pub(crate) fn read_rows(store: &Arc<Store>, program: &Program, keys: &AccessKeys) -> Result<(), SqlError> {
    if !store.has_cold_rows() {
        return Ok(());
    }
    match read_each(store, program, keys, read_row) {
        // The table was rewritten meanwhile: the program finds the new rows, or that it is to be compiled
        // again.
        Err(error) if error.state != SqlState::SNAPSHOT_TOO_OLD => return Err(error),
        _ => {}
    }
    if program.accesses.iter().any(is_range) {
        // Nobody knows which rows are needed, so that an error is no reason to refuse the program.
        let _ = read_each(store, program, keys, read_range);
    }
    Ok(())
}

/// Calls `read` for each access, until a row cannot be read.
fn read_each(
    store: &Arc<Store>,
    program: &Program,
    keys: &AccessKeys,
    read: impl Fn(&ReadView<'_>, &Access, BoundKey<'_>),
) -> Result<(), SqlError> {
    let snapshot = store.snapshot();
    let view = snapshot.view();
    keys.for_each(|number, key| {
        if let Some(access) = program.accesses.get(number)
            && view.check().is_ok()
        {
            read(&view, access, key);
        }
    });
    view.check()
}

fn is_range(access: &Access) -> bool {
    matches!(access.kind, AccessKind::ReadRange | AccessKind::WriteRange)
}

fn primary_index(view: &ReadView<'_>, table: TableId) -> Option<IndexId> {
    Some(view.catalog().table_by_id(table)?.primary_index()?.id)
}

/// Errors are left to the program: its table may be gone, which is found out later, or a row could not be
/// read, which the view knows.
fn read_row(view: &ReadView<'_>, access: &Access, key: BoundKey<'_>) {
    let index = match access.kind {
        AccessKind::WriteValue(index) => Some(index),
        AccessKind::ReadRow | AccessKind::WriteRow | AccessKind::InsertRow => {
            primary_index(view, access.table)
        }
        AccessKind::ReadTable | AccessKind::WriteTable | AccessKind::ReadRange | AccessKind::WriteRange => {
            None
        }
    };
    if let Some(index) = index {
        let _ = view.lookup(access.table, index, key.bytes, |_| ControlFlow::Continue(()));
    }
}

fn read_range(view: &ReadView<'_>, access: &Access, key: BoundKey<'_>) {
    if is_range(access)
        && let Some(index) = primary_index(view, access.table)
    {
        let hi = prefix_successor(key.hi);
        let hi = hi.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let between = (Bound::Included(key.bytes), hi);
        let _ = view.range_each(access.table, index, between, false, RANGE_ROWS, |_| {});
    }
}
