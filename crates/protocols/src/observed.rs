//! A data access that reports to an observer what each write replaced.

use std::ops::Bound;

use weft_base::{IndexId, TableId};
use weft_program::{DataAccess, RowHandle};
use weft_types::SqlError;

use crate::Observe;
use crate::forward::forward;

/// Wraps another access for an observer.
pub(crate) struct ObservedAccess<'o, A, O> {
    access: A,
    job: usize,
    observe: &'o O,
    old: Vec<u8>,
}

impl<'o, A: DataAccess, O: Observe> ObservedAccess<'o, A, O> {
    pub fn new(access: A, job: usize, observe: &'o O) -> Self {
        ObservedAccess {
            access,
            job,
            observe,
            old: Vec::new(),
        }
    }

    /// Copies the current row; false if there is none.
    fn keep(&mut self, row: &RowHandle) -> bool {
        self.old.clear();
        match self.access.row(row) {
            Some(bytes) => {
                self.old.extend_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

impl<A: DataAccess, O: Observe> DataAccess for ObservedAccess<'_, A, O> {
    forward!(row savepoints observed);

    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        self.observe.pause();
        self.access.search(index, table, key)
    }

    fn range(
        &mut self,
        index: IndexId,
        table: TableId,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
        out: &mut Vec<RowHandle>,
    ) -> Result<(), SqlError> {
        self.observe.pause();
        self.access.range(index, table, lo, hi, reverse, limit, out)
    }

    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError> {
        self.observe.pause();
        let handle = self.access.insert(table, row)?;
        self.observe.installed(self.job, table, None, Some(row));
        Ok(handle)
    }

    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError> {
        self.observe.pause();
        let found = self.keep(row);
        self.access.update(row, bytes)?;
        let old = found.then_some(self.old.as_slice());
        self.observe.installed(self.job, row.table, old, Some(bytes));
        Ok(())
    }

    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError> {
        self.observe.pause();
        let found = self.keep(row);
        self.access.remove(row)?;
        let old = found.then_some(self.old.as_slice());
        self.observe.installed(self.job, row.table, old, None);
        Ok(())
    }
}
