//! A transaction's data access when owners have already found its rows.
//!
//! Rows that are only read are always taken from the owners' answers, because a later writer may have
//! replaced them since. Written rows carry this transaction's mark, so the store contains the same; after the
//! first own write they are looked up there.

use weft_base::{IndexId, TableId};
use weft_lock::LockMode;
use weft_program::{BatchAccess, DataAccess, RowHandle};
use weft_types::SqlError;

use super::message::{Found, Probe};
use crate::forward::forward;

/// A need's probe and the row that its owner found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probed<'b> {
    pub probe: Probe,
    pub mode: LockMode,
    pub found: Found<'b>,
}

pub(super) struct PartitionedAccess<'m, 'b> {
    access: BatchAccess<'m, 'b>,
    probed: &'m [Option<Probed<'b>>],
    /// Whether nothing has been written yet.
    fresh: bool,
    /// Position of the last probe found: they are usually requested in order.
    hint: std::cell::Cell<usize>,
}

impl<'m, 'b> PartitionedAccess<'m, 'b> {
    pub fn new(access: BatchAccess<'m, 'b>, probed: &'m [Option<Probed<'b>>]) -> Self {
        PartitionedAccess {
            access,
            probed,
            fresh: true,
            hint: std::cell::Cell::new(0),
        }
    }

    fn find(&self, is: impl Fn(&Probed<'b>) -> bool) -> Option<&Probed<'b>> {
        let count = self.probed.len();
        let start = self.hint.get();
        (0..count).map(|step| (start + step) % count).find_map(|at| {
            let probed = self.probed.get(at)?.as_ref()?;
            let usable = self.fresh || probed.mode == LockMode::S;
            (usable && is(probed)).then(|| {
                self.hint.set(at);
                probed
            })
        })
    }
}

impl DataAccess for PartitionedAccess<'_, '_> {
    forward!(range observed);

    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        let known = self.find(|probed| {
            let probe = &probed.probe;
            probe.index == index && probe.table == table && probe.key() == key
        });
        match known {
            Some(probed) => Ok(probed.found.map(|(slot, _)| RowHandle { table, slot: slot.0 })),
            None => self.access.search(index, table, key),
        }
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        let known = self.find(|probed| {
            let is_slot = probed.found.is_some_and(|(slot, _)| slot.0 == row.slot);
            is_slot && probed.probe.table == row.table
        });
        match known.and_then(|probed| probed.found) {
            Some((_, bytes)) => Some(bytes),
            None => self.access.row(row),
        }
    }

    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError> {
        self.fresh = false;
        self.access.insert(table, row)
    }

    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError> {
        self.fresh = false;
        self.access.update(row, bytes)
    }

    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError> {
        self.fresh = false;
        self.access.remove(row)
    }
}
