//! Writes a checkpoint: changes into the engine.
//!
//! Slots are in no particular order, and tables of the engine are sorted by row id. So the changed rows of a
//! table are sorted run by run ([`CheckpointConfig::run_rows`](super::CheckpointConfig::run_rows)): ids and
//! slots only, the rows stay where they are. Runs that overlap become files that overlap, which are merged
//! later. Rows that are stored in the order of insertion, as most are, make runs that follow one another.

use std::ops::ControlFlow;
use std::sync::Arc;

use weft_base::{BatchId, RowId};
use weft_lsm::Ingest;

use super::changes::TableChanges;
use super::cold::StoredRows;
use super::format::{HEADER_FAMILY, HEADER_KEY, Header, family, row_key, row_value};
use super::{Boundary, Changes, CheckpointError, Checkpoints};
use crate::memory::{Pin, SlotId};

/// Slots looked at and rows written from one report of progress to the next: some 100 microseconds.
const REPORT_STEPS: u64 = 128;

/// What a checkpoint wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Its boundary.
    pub batch: BatchId,
    /// Rows written.
    pub rows: u64,
    /// Rows of earlier checkpoints removed one by one.
    pub removed: u64,
    /// Bytes of the files made.
    pub bytes: u64,
}

impl Checkpoints {
    /// Brings the disk to the boundary of `changes`. These must be taken from the store that was loaded from
    /// here, or from a new one if nothing was here. `progress` is called with the rows written so far,
    /// every few hundred rows; breaking cancels.
    ///
    /// # Errors
    /// On any error the disk keeps the previous boundary, and the changes go back to the tables. (If the last
    /// step failed, a crash may leave either boundary.)
    pub fn write(
        &mut self,
        changes: Changes,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Written, CheckpointError> {
        // Its space may be needed. If it stays, the next opening finds that it is another checkpoint's.
        let _ = self.image.remove();
        let written = self.ingest(&changes, progress)?;
        let cores = changes.tables().iter();
        let cores = cores.map(|table| (table.table, Arc::downgrade(&table.core)));
        let store = changes.snapshot().store();
        store.set_saved(written.batch, StoredRows::of(&self.lsm));
        self.written = Some(Boundary {
            batch: written.batch,
            cores: cores.collect(),
        });
        changes.set_written();
        Ok(written)
    }

    fn ingest(
        &self,
        changes: &Changes,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Written, CheckpointError> {
        let snapshot = changes.snapshot();
        let (batch, expected) = (snapshot.batch(), snapshot.digest());
        #[cfg(any(test, feature = "faults"))]
        snapshot.store().panic_if_asked(crate::store::PanicAt::Checkpoint);
        if snapshot.store().is_damaged() {
            let found = "a row that was replaced was not what had been written".to_owned();
            return Err(CheckpointError::DamagedMemory { found });
        }
        let mut ingest = self.lsm.ingest()?;
        let mut replaced = Vec::new();
        if let Some(before) = &self.written {
            for (table, core) in &before.cores {
                let is_there = |table: &TableChanges| std::ptr::eq(Arc::as_ptr(&table.core), core.as_ptr());
                if !changes.tables().iter().any(is_there) {
                    ingest.delete_family(family(*table))?;
                    replaced.extend(core.upgrade());
                }
            }
        }
        let mut rows = RowsWriter {
            ingest,
            pin: snapshot.view().pin(),
            run_rows: self.run_rows.max(1),
            run: Vec::new(),
            value: Vec::new(),
            digest: changes.catalog().digest(),
            written: Written {
                batch,
                ..Written::default()
            },
            steps: 0,
            progress,
        };
        for table in changes.tables() {
            let before = self.written.as_ref();
            let base = before.filter(|before| before.has(&table.core));
            rows.table(table, base.map(|base| base.batch))?;
        }
        let RowsWriter {
            mut ingest,
            mut written,
            digest,
            ..
        } = rows;
        if self.written.is_none() && digest != expected {
            let found = format!("rows have digest {digest:016x}, the batches computed {expected:016x}");
            return Err(CheckpointError::DamagedMemory { found });
        }
        // Last, and so in a file of its own: it changes with every checkpoint.
        let header = Header::encode(batch, expected, changes.catalog());
        ingest.put(HEADER_FAMILY, HEADER_KEY, &header)?;
        replaced.iter().for_each(|core| core.slots.set_replaced());
        written.bytes = ingest.finish()?;
        Ok(written)
    }
}

struct RowsWriter<'a, 'p> {
    ingest: Ingest<'a>,
    pin: Pin<'a>,
    run_rows: usize,
    /// Rows of one table that wait to be sorted; an entry without a slot is to be removed.
    run: Vec<(RowId, Option<SlotId>)>,
    value: Vec<u8>,
    /// Of all rows written.
    digest: u64,
    written: Written,
    /// Slots looked at and rows written.
    steps: u64,
    progress: &'p mut dyn FnMut(u64) -> ControlFlow<()>,
}

impl RowsWriter<'_, '_> {
    /// One table; all its rows if there is no boundary `since`.
    fn table(&mut self, changes: &TableChanges, since: Option<BatchId>) -> Result<(), CheckpointError> {
        match since {
            Some(since) => {
                for row_id in changes.removed.iter().filter(|row_id| row_id.batch <= since) {
                    self.run.push((*row_id, None));
                    self.written.removed += 1;
                    self.write_run_if_full(changes)?;
                }
                for slot in changes.slots() {
                    self.slot(changes, slot, since)?;
                }
            }
            None => {
                for slot in changes.core.slots.ids() {
                    self.slot(changes, slot, BatchId(0))?;
                }
            }
        }
        self.write_run(changes)
    }

    /// Takes the row in a slot if it was written after `since`. A cold row was not.
    fn slot(&mut self, changes: &TableChanges, slot: SlotId, since: BatchId) -> Result<(), CheckpointError> {
        self.step()?;
        if let Some((place, version)) = changes.core.peek(slot, self.pin)
            && version.batch() > since
        {
            self.run.push((place.row_id(), Some(slot)));
            self.written.rows += 1;
            self.write_run_if_full(changes)?;
        }
        Ok(())
    }

    fn write_run_if_full(&mut self, changes: &TableChanges) -> Result<(), CheckpointError> {
        if self.run.len() >= self.run_rows {
            self.write_run(changes)?;
        }
        Ok(())
    }

    fn write_run(&mut self, changes: &TableChanges) -> Result<(), CheckpointError> {
        let mut run = std::mem::take(&mut self.run);
        run.sort_unstable();
        let family = family(changes.table);
        for (row_id, slot) in run.drain(..) {
            self.step()?;
            let key = row_key(row_id);
            match slot {
                Some(slot) => {
                    if let Some((place, version)) = changes.core.peek(slot, self.pin) {
                        let term = changes.core.term(place, version);
                        if !version.is_sealed_with(term) {
                            let table = changes.table;
                            let found = format!("row {row_id} of table {table} is not what was written");
                            return Err(CheckpointError::DamagedMemory { found });
                        }
                        self.digest = self.digest.wrapping_add(term);
                        row_value(&mut self.value, version.batch(), version.bytes());
                        self.ingest.put(family, &key, &self.value)?;
                    }
                }
                None => self.ingest.delete(family, &key)?,
            }
        }
        self.run = run;
        self.report()
    }

    /// Reports progress every [`REPORT_STEPS`] slots or rows.
    fn step(&mut self) -> Result<(), CheckpointError> {
        self.steps += 1;
        match self.steps.is_multiple_of(REPORT_STEPS) {
            true => self.report(),
            false => Ok(()),
        }
    }

    fn report(&mut self) -> Result<(), CheckpointError> {
        match (self.progress)(self.written.rows + self.written.removed) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CheckpointError::Canceled),
        }
    }
}
