//! Writes finished blocks into tables, cut at the target table size, with range tombstones clipped to each.
//!
//! If filters are built elsewhere, a table waits for its filter while the next one is written.
//!
//! If a maker is dropped before its end it removes what it made: after a failed flush or compaction no file
//! is left, and its space is free for the next attempt.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use weft_ops::block::FinishedBlock;
use weft_ops::key::SeqNo;
use weft_ops::merge::RangeTombstone;

use super::filters::{FilterBuilder, PendingFilter};
use crate::error::LsmError;
use crate::table::{TableMeta, TableSink, TableWriter, table_name};

/// Settings for the new tables.
pub(crate) struct TableSpec {
    pub dir: PathBuf,
    pub level: usize,
    pub table_bytes: u64,
    pub filter_bits_per_key: u32,
    /// No entry is newer than this.
    pub last_seqno: SeqNo,
    /// The value files into which entries may point, with their lengths.
    pub value_files: BTreeMap<u64, u64>,
}

/// Makes tables out of blocks that come in order.
pub(crate) struct TableMaker<'a> {
    sink: TableSink<'a>,
    spec: TableSpec,
    next_number: &'a dyn Fn() -> u64,
    /// Range tombstones to keep, by start.
    tombstones: Vec<RangeTombstone>,
    writer: Option<TableWriter>,
    /// What builds filters, if not the writer.
    filters: Option<FilterBuilder<'a>>,
    /// The previous table, complete except for its filter.
    unfinished: Option<(TableWriter, PendingFilter)>,
    /// The current table begins here and ends at the next cut; none for the first.
    cut: Option<Bytes>,
    made: Vec<TableMeta>,
    /// Files that no version refers to yet.
    created: Vec<PathBuf>,
}

impl Drop for TableMaker<'_> {
    fn drop(&mut self) {
        for path in &self.created {
            // The next opening removes what could not be removed here.
            let _ = self.sink.disk.remove(path);
        }
    }
}

impl<'a> TableMaker<'a> {
    pub(crate) fn new(
        sink: TableSink<'a>,
        spec: TableSpec,
        tombstones: Vec<RangeTombstone>,
        next_number: &'a dyn Fn() -> u64,
    ) -> Self {
        Self {
            sink,
            spec,
            next_number,
            tombstones,
            writer: None,
            filters: None,
            unfinished: None,
            cut: None,
            made: Vec::new(),
            created: Vec::new(),
        }
    }

    /// Filters are built there.
    pub(crate) fn with_filters(mut self, filters: Option<FilterBuilder<'a>>) -> Self {
        self.filters = filters;
        self
    }

    fn writer(&mut self) -> Result<&mut TableWriter, LsmError> {
        if self.writer.is_none() {
            let TableSpec {
                dir,
                level,
                filter_bits_per_key,
                ..
            } = &self.spec;
            let number = (self.next_number)();
            self.created.push(dir.join(table_name(number)));
            let writer = TableWriter::create(&self.sink, dir, number, *level, *filter_bits_per_key)?;
            self.writer = Some(writer);
        }
        self.writer.as_mut().ok_or(LsmError::Closed)
    }

    /// Adds a block; `may_point` says whether there may be pointers to large values in it.
    pub(crate) fn add(
        &mut self,
        block: &FinishedBlock,
        hashes: &[u64],
        may_point: bool,
    ) -> Result<(), LsmError> {
        self.finish_unfinished(false)?;
        // All versions of a key stay in one table.
        let full = self.writer.as_ref().is_some_and(|writer| {
            writer.bytes() >= self.spec.table_bytes && *writer.last_key() != block.first_key
        });
        if full {
            self.finish_table(Some(block.first_key.clone()))?;
        }
        self.writer()?.add_block(block, hashes, may_point)
    }

    /// Finishes the current table, which ends before `cut`.
    fn finish_table(&mut self, cut: Option<Bytes>) -> Result<(), LsmError> {
        let from = self.cut.clone();
        let inside: Vec<RangeTombstone> = self
            .tombstones
            .iter()
            .map(|tombstone| RangeTombstone {
                start: from
                    .iter()
                    .fold(tombstone.start.clone(), |start, cut| start.max(cut.clone())),
                end: cut
                    .iter()
                    .fold(tombstone.end.clone(), |end, cut| end.min(cut.clone())),
                seqno: tombstone.seqno,
            })
            .filter(|tombstone| tombstone.start < tombstone.end)
            .collect();
        if self.writer.is_none() && inside.is_empty() {
            return Ok(());
        }
        let last_seqno = self.spec.last_seqno;
        self.writer()?;
        if let Some(mut writer) = self.writer.take() {
            for tombstone in inside {
                writer.add_tombstone(tombstone);
            }
            writer.raise_last_seqno(last_seqno);
            self.finish_unfinished(true)?;
            if let Some(filters) = &self.filters {
                let pending = filters.ask(&writer.take_hashes())?;
                self.unfinished = Some((writer, pending));
            } else {
                self.made.push(writer.finish(&self.spec.value_files)?);
            }
        }
        self.cut = cut;
        Ok(())
    }

    /// Finishes the previous table if its filter has arrived; waits for the filter if `waits`.
    fn finish_unfinished(&mut self, waits: bool) -> Result<(), LsmError> {
        let (Some(filters), Some((_, pending))) = (&self.filters, &self.unfinished) else {
            return Ok(());
        };
        let known = match waits {
            true => Some(filters.wait(pending)?),
            false => filters.try_take(pending),
        };
        if let Some(filter) = known
            && let Some((mut writer, pending)) = self.unfinished.take()
        {
            match filter {
                Some(stored) => writer.set_filter(stored),
                None => writer.give_back_hashes(pending.hashes()),
            }
            self.made.push(writer.finish(&self.spec.value_files)?);
        }
        Ok(())
    }

    /// Entries may point into this file, too, which is finished.
    pub(crate) fn add_value_file(&mut self, number: u64, file_bytes: u64) {
        self.spec.value_files.insert(number, file_bytes);
    }

    /// Finishes the last table. The tables' names are not durable yet.
    pub(crate) fn finish(mut self) -> Result<Vec<TableMeta>, LsmError> {
        self.finish_table(None)?;
        self.finish_unfinished(true)?;
        self.created.clear();
        Ok(std::mem::take(&mut self.made))
    }
}
