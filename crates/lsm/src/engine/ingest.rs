//! Ingestion: many changes become tables directly, bypassing log and memtable, and appear in one edit.
//!
//! ```text
//! put, delete, delete_range ─► table | table | ...  (synced as they fill)  ─► finish: one edit
//! ```
//!
//! For state that has another durable copy until the call returns (a checkpoint has the log of its database):
//! it is written once, without a copy in memory, and after a crash either all of it or nothing exists.
//!
//! Changes may come in any order, and the last one of a key counts. Ascending keys share a table; where a key
//! does not ascend another table begins, with the next sequence number. So changes in approximate order make
//! few tables. A table goes as deep as its range is empty: data that is only appended is never merged. Each
//! table has value files of its own for its large values.
//!
//! # Invariants
//!
//! 1. Before the first change all memtables are flushed, and no write happens in between: ingested entries
//!    are newer than everything in tables, and older than all later writes.
//! 2. Nothing is visible, and nothing survives a crash, before the edit is durable; with the edit everything
//!    does, and it is visible before a compaction can touch it.
//! 3. The files of an abandoned ingestion are removed. If its edit failed, it is unknown whether it counts,
//!    and the files are removed once a later edit, which contains the whole state, is durable.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use weft_ops::block::BlockBuilder;
use weft_ops::hash64;
use weft_ops::key::{EntryKind, KEY_BYTES_MAX, SeqNo, Stamp, VALUE_BYTES_MAX};
use weft_ops::merge::RangeTombstone;

use super::write::Writer;
use super::{Engine, Lsm};
use crate::batch::{FamilyId, keep};
use crate::error::LsmError;
use crate::options::LEVEL_COUNT;
use crate::sync::MutexGuard;
use crate::table::{Table, TableMeta, TableSink, TableWriter, table_name};
use crate::values::{POINTER_BYTES, ValueWriter};
use crate::version::{Edit, KeyRange};

impl Lsm {
    /// Begins to ingest. Other writes wait until it is finished or dropped; reads go on. If it is dropped
    /// before [`Ingest::finish`] nothing changes.
    ///
    /// # Errors
    /// The disk's, if the memtables could not be flushed.
    pub fn ingest(&self) -> Result<Ingest<'_>, LsmError> {
        let engine = &*self.engine;
        engine.end_refusal(true)?;
        let mut writer = engine.writer_for_writing()?;
        engine.freeze(&mut writer)?;
        engine.flush_frozen()?;
        Ok(Ingest {
            last_seqno: SeqNo(writer.next_seqno.0 - 1),
            engine,
            writer,
            table: None,
            builder: BlockBuilder::new(engine.options.block_options(0, false)),
            tombstones: Vec::new(),
            key: Vec::new(),
            last_key: Vec::new(),
            hashes: Vec::new(),
            values: None,
            value_files: BTreeMap::new(),
            may_point: false,
            made: Vec::new(),
            created: Vec::new(),
        })
    }
}

/// Changes on their way into tables.
pub struct Ingest<'a> {
    engine: &'a Engine,
    writer: MutexGuard<'a, Writer>,
    /// The last sequence number that was assigned.
    last_seqno: SeqNo,
    /// The table being written; its entries have `last_seqno`.
    table: Option<TableWriter>,
    builder: BlockBuilder,
    /// Range tombstones for the next table.
    tombstones: Vec<RangeTombstone>,
    key: Vec<u8>,
    /// The last key of the current table.
    last_key: Vec<u8>,
    hashes: Vec<u64>,
    /// The value file being written, and the finished ones of the current table.
    values: Option<ValueWriter<'a>>,
    value_files: BTreeMap<u64, u64>,
    /// Whether the current block may contain pointers.
    may_point: bool,
    made: Vec<TableMeta>,
    /// Files that no edit mentions yet.
    created: Vec<PathBuf>,
}

impl Ingest<'_> {
    /// Sets the value of `key`.
    ///
    /// # Errors
    /// The disk's; [`LsmError::TooLarge`].
    pub fn put(&mut self, family: FamilyId, key: &[u8], value: &[u8]) -> Result<(), LsmError> {
        self.add(family, key, EntryKind::Value, value)
    }

    /// Removes `key`, whether it is there or not.
    ///
    /// # Errors
    /// As [`Ingest::put`].
    pub fn delete(&mut self, family: FamilyId, key: &[u8]) -> Result<(), LsmError> {
        self.add(family, key, EntryKind::Tombstone, b"")
    }

    /// Removes all keys of a family that exist so far.
    ///
    /// # Errors
    /// As [`Ingest::put`].
    pub fn delete_family(&mut self, family: FamilyId) -> Result<(), LsmError> {
        self.finish_table()?;
        self.last_seqno.0 += 1;
        let end = family.end().unwrap_or_else(|| vec![0xff; KEY_BYTES_MAX]);
        self.tombstones.push(RangeTombstone {
            start: keep(&family.key(b"")),
            end: keep(&end),
            seqno: self.last_seqno,
        });
        Ok(())
    }

    fn add(&mut self, family: FamilyId, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<(), LsmError> {
        self.key.clear();
        self.key.extend_from_slice(&family.0.to_be_bytes());
        self.key.extend_from_slice(key);
        for (what, bytes, bytes_max) in [
            ("key", self.key.len(), KEY_BYTES_MAX),
            ("value", value.len(), VALUE_BYTES_MAX),
        ] {
            if bytes > bytes_max {
                return Err(LsmError::TooLarge {
                    what,
                    bytes,
                    bytes_max,
                });
            }
        }
        let goes_on = self
            .table
            .as_ref()
            .is_some_and(|table| self.key > self.last_key && table.bytes() < self.engine.options.table_bytes);
        if !goes_on {
            self.finish_table()?;
            self.begin_table()?;
        }
        if self.engine.options.filter_bits_per_key > 0 {
            self.hashes.push(hash64(&self.key));
        }
        if kind == EntryKind::Value && self.engine.options.is_large(&self.key, value.len()) {
            let pointer = self.add_value(value)?;
            let stamp = Stamp::new(self.last_seqno, EntryKind::LargeValue);
            self.builder.add(&self.last_key, &self.key, stamp, &pointer);
            self.may_point = true;
        } else {
            let stamp = Stamp::new(self.last_seqno, kind);
            self.builder.add(&self.last_key, &self.key, stamp, value);
        }
        std::mem::swap(&mut self.last_key, &mut self.key);
        if self.builder.is_full() {
            self.finish_block()?;
        }
        Ok(())
    }

    /// Puts the value of the current key into a value file; returns the pointer for the table.
    fn add_value(&mut self, value: &[u8]) -> Result<[u8; POINTER_BYTES], LsmError> {
        let engine = self.engine;
        let is_full = |values: &ValueWriter<'_>| values.bytes() >= engine.options.table_bytes;
        if self.values.as_ref().is_some_and(is_full) {
            self.finish_values()?;
        }
        let values = match &mut self.values {
            Some(values) => values,
            none => {
                let dir = &engine.files.values.dir;
                none.insert(ValueWriter::create(&*engine.disk, dir, engine.next_number())?)
            }
        };
        Ok(values.add(&self.key, value)?.encode())
    }

    fn finish_values(&mut self) -> Result<(), LsmError> {
        if let Some(mut values) = self.values.take() {
            self.value_files.insert(values.number(), values.finish()?);
            self.created.push(values.keep());
        }
        Ok(())
    }

    fn begin_table(&mut self) -> Result<(), LsmError> {
        let engine = self.engine;
        let (dir, number) = (engine.files.dir(0), engine.next_number());
        self.created.push(dir.join(table_name(number)));
        let bits = engine.options.filter_bits_per_key;
        let sink = TableSink {
            disk: &*engine.disk,
            io: engine.options.table_io(0),
            counts: &engine.files.io,
        };
        self.table = Some(TableWriter::create(&sink, dir, number, 0, bits)?);
        self.last_seqno.0 += 1;
        self.last_key.clear();
        Ok(())
    }

    fn finish_block(&mut self) -> Result<(), LsmError> {
        if let (Some(table), Some(block)) = (&mut self.table, self.builder.finish()) {
            table.add_block(&block, &self.hashes, self.may_point)?;
        }
        self.may_point = false;
        self.hashes.clear();
        Ok(())
    }

    fn finish_table(&mut self) -> Result<(), LsmError> {
        self.finish_block()?;
        self.finish_values()?;
        if let Some(mut table) = self.table.take() {
            for tombstone in self.tombstones.drain(..) {
                table.add_tombstone(tombstone);
            }
            table.raise_last_seqno(self.last_seqno);
            self.made.push(table.finish(&self.value_files)?);
        }
        self.value_files.clear();
        Ok(())
    }

    /// Makes all of it durable and visible at once. Returns the bytes of the tables and value files that were
    /// made.
    ///
    /// # Errors
    /// The disk's. If the edit failed, it is unknown whether it counts until the next one succeeds, which
    /// then excludes it.
    pub fn finish(mut self) -> Result<u64, LsmError> {
        self.finish_table()?;
        if !self.tombstones.is_empty() {
            self.begin_table()?;
            self.finish_table()?;
        }
        if self.made.is_empty() {
            return Ok(0);
        }
        let files = self.made.iter().map(|table| {
            let values = table.properties.value_files.iter();
            table.file_bytes + values.map(|file| file.file_bytes).sum::<u64>()
        });
        let bytes = files.sum();
        let engine = self.engine;
        // If it is unknown where a running compaction will put its tables, they go to level 0.
        let turn = engine.compaction_turn.try_lock();
        let turn = turn.filter(|compactions| compactions.is_idle());
        let made = std::mem::take(&mut self.made);
        let edit = Edit {
            added: match &turn {
                Some(_) => engine.places(made),
                None => made.into_iter().map(|table| (0, table)).collect(),
            },
            removed: Vec::new(),
            flushed: Some(self.last_seqno),
            first_log: None,
        };
        // Even if this fails the edit may count after a crash: its numbers are never reused.
        self.writer.next_seqno = SeqNo(self.last_seqno.0 + 1);
        // From here on the engine owns the files, whatever the outcome of the edit.
        self.created.clear();
        engine.install(&edit, None)?;
        drop(turn);
        engine.measure_pressure();
        engine.wake();
        Ok(bytes)
    }
}

impl Engine {
    /// The level for each of some tables that are newer than all others, ordered by age: the deepest one such
    /// that it and all levels above have nothing in the table's range, but no deeper than the sizes of levels
    /// suggest.
    fn places(&self, tables: Vec<TableMeta>) -> Vec<(usize, TableMeta)> {
        let version = &self.view().version;
        let there = version.tables().map(|(_, table)| table.meta().file_bytes);
        let bytes: u64 = there.chain(tables.iter().map(|table| table.file_bytes)).sum();
        let deepest_used = (1..LEVEL_COUNT)
            .rev()
            .find(|level| !version.level(*level).is_empty());
        let roomy = (1..LEVEL_COUNT).find(|level| self.options.level_bytes(*level) >= bytes);
        let deepest = deepest_used.unwrap_or(1).max(roomy.unwrap_or(LEVEL_COUNT - 1));
        let mut placed: Vec<(usize, Arc<Table>)> = Vec::new();
        for meta in tables {
            let table = Arc::new(Table::new(meta, Arc::clone(&self.files)));
            let range = KeyRange::of([&table]);
            let meets = |other: &Arc<Table>| range.as_ref().is_some_and(|range| range.meets(other));
            let is_met = |level: &usize| {
                let placed = placed.iter().filter(|(at, _)| at == level);
                version
                    .level(*level)
                    .iter()
                    .chain(placed.map(|(_, table)| table))
                    .any(meets)
            };
            let level = (0..=deepest)
                .find(is_met)
                .map_or(deepest, |met| met.saturating_sub(1));
            placed.push((level, table));
        }
        let placed = placed.into_iter();
        placed
            .map(|(level, table)| (level, table.meta().clone()))
            .collect()
    }
}

impl Drop for Ingest<'_> {
    fn drop(&mut self) {
        let obsolete = &self.engine.files.obsolete;
        obsolete.add(std::mem::take(&mut self.created));
        obsolete.remove_all();
    }
}

impl std::fmt::Debug for Ingest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingest")
            .field("tables", &self.made.len())
            .finish_non_exhaustive()
    }
}
