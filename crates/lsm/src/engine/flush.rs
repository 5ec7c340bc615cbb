//! Flush: a frozen memtable becomes a table of level 0, and its log is not needed any more.
//!
//! Versions of a key that no reader can see are left out. Large values go into a value file, and pointers to
//! them into the table; the value file is finished first. Memtables are flushed in the order in which they
//! were frozen, so the tables always contain a prefix of the writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_base::Disk;
use weft_ops::block::BlockBuilder;
use weft_ops::hash64;
use weft_ops::key::{EntryKind, SeqNo, Stamp};

use super::Engine;
use crate::compaction::{TableMaker, TableSpec};
use crate::error::LsmError;
use crate::log::log_name;
use crate::memtable::{Memtable, MemtableCursor, PagePool};
use crate::options::LsmOptions;
use crate::table::{TableFiles, TableMeta, TableSink};
use crate::values::{POINTER_BYTES, ValueWriter};
use crate::version::Edit;

impl Engine {
    /// Freezes what is active and flushes all that is frozen.
    pub(super) fn flush_all(&self) -> Result<(), LsmError> {
        self.check_poison()?;
        let mut writer = self.writer.lock();
        if writer.refused.is_none() {
            self.freeze(&mut writer)?;
        }
        drop(writer);
        self.flush_frozen()
    }

    /// Flushes all that is frozen.
    pub(super) fn flush_frozen(&self) -> Result<(), LsmError> {
        while self.flush_oldest()? {}
        Ok(())
    }

    /// Flushes the oldest frozen memtable; `false` if there is none.
    pub(super) fn flush_oldest(&self) -> Result<bool, LsmError> {
        // On a full disk this may be the only way to get space.
        self.files.obsolete.remove_all();
        let done = self.flush_next();
        self.note_flush(&done);
        done
    }

    fn flush_next(&self) -> Result<bool, LsmError> {
        let turn = self.flush_turn.lock();
        let view = self.view();
        let Some(memtable) = view.frozen.last() else {
            return Ok(false);
        };
        let begun = self.clock.monotonic_nanos();
        let next_number = || self.next_number();
        let context = FlushContext {
            disk: &*self.disk,
            files: &self.files,
            pool: &self.pool,
            options: &self.options,
            snapshots: self.readers.held(),
            next_number: &next_number,
        };
        let table = write_memtable(&context, memtable)?;
        let newer = view
            .frozen
            .len()
            .checked_sub(2)
            .and_then(|at| view.frozen.get(at));
        let first_log = newer.unwrap_or(&view.active).log_number();
        let bytes = table.as_ref().map_or(0, |table| table.file_bytes);
        let listed = table.iter().flat_map(|table| &table.properties.value_files);
        let value_bytes = listed.map(|file| file.file_bytes).sum();
        let edit = Edit {
            added: table.into_iter().map(|table| (0, table)).collect(),
            removed: Vec::new(),
            flushed: Some(memtable.last_seqno()),
            first_log: Some(first_log),
        };
        self.install(&edit, Some(memtable))?;
        // Readers may keep the memtable; its log is not needed any more.
        let log = self.dir.join(log_name(memtable.log_number()));
        self.files.obsolete.add([log]);
        self.files.obsolete.remove_all();
        drop(turn);
        let nanos = self.clock.monotonic_nanos() - begun;
        self.counters.flushed(bytes, value_bytes, nanos);
        self.pressure.drained(memtable.data_bytes() as u64, nanos);
        self.measure_pressure();
        self.wake();
        Ok(true)
    }
}

/// What a flush needs of the engine, or of an engine being opened.
pub(super) struct FlushContext<'a> {
    pub disk: &'a dyn Disk,
    pub files: &'a TableFiles,
    pub pool: &'a Arc<PagePool>,
    pub options: &'a LsmOptions,
    /// Sequence numbers of registered snapshots, ascending.
    pub snapshots: Vec<SeqNo>,
    pub next_number: &'a dyn Fn() -> u64,
}

/// Writes a memtable into a table of level 0, if it is not empty, and its large values into a value file. The
/// file names are not durable yet.
pub(super) fn write_memtable(
    context: &FlushContext<'_>,
    memtable: &Arc<Memtable>,
) -> Result<Option<TableMeta>, LsmError> {
    let options = context.options;
    let stripe = |seqno: SeqNo| context.snapshots.partition_point(|&snapshot| snapshot < seqno);
    let spec = TableSpec {
        dir: context.files.dir(0).to_owned(),
        level: 0,
        // One table per memtable: tables of level 0 are ordered by age.
        table_bytes: u64::MAX,
        filter_bits_per_key: options.filter_bits_per_key,
        last_seqno: memtable.last_seqno(),
        value_files: BTreeMap::new(),
    };
    let tombstones = memtable.tombstones().map_or(Vec::new(), |list| list.to_vec());
    let sink = TableSink {
        disk: context.disk,
        io: options.table_io(0),
        counts: &context.files.io,
    };
    let mut maker = TableMaker::new(sink, spec, tombstones, context.next_number);
    let mut builder = BlockBuilder::new(options.block_options(0, false));
    let mut hashes = Vec::new();
    let mut last_key = Vec::new();
    let mut last_stripe = None;
    let mut values: Option<ValueWriter<'_>> = None;
    let mut may_point = false;
    let mut cursor = MemtableCursor::new(Arc::clone(memtable));
    cursor.first();
    while cursor.valid() {
        let (key, stamp) = (cursor.key(), cursor.stamp());
        let stripe = stripe(stamp.seqno());
        let same_key = last_stripe.is_some() && last_key == key;
        if same_key && last_stripe == Some(stripe) {
            cursor.forward();
            continue;
        }
        if !same_key && options.filter_bits_per_key > 0 {
            hashes.push(hash64(key));
        }
        let value = cursor.value();
        if stamp.kind() == EntryKind::Value && options.is_large(key, value.len()) {
            let pointer = add_value(context, &mut values, key, value)?;
            let stamp = Stamp::new(stamp.seqno(), EntryKind::LargeValue);
            builder.add(&last_key, key, stamp, &pointer);
            may_point = true;
        } else {
            builder.add(&last_key, key, stamp, value);
        }
        last_key.clear();
        last_key.extend_from_slice(key);
        last_stripe = Some(stripe);
        if builder.is_full()
            && let Some(block) = builder.finish()
        {
            maker.add(&block, &hashes, may_point)?;
            hashes.clear();
            may_point = false;
        }
        cursor.forward();
    }
    if let Some(block) = builder.finish() {
        maker.add(&block, &hashes, may_point)?;
    }
    if let Some(values) = &mut values {
        maker.add_value_file(values.number(), values.finish()?);
    }
    let table = maker.finish()?.pop();
    values.map(ValueWriter::keep);
    Ok(table)
}

/// Puts a value into the value file, which the first value creates; returns the pointer for the table.
fn add_value<'a>(
    context: &FlushContext<'a>,
    values: &mut Option<ValueWriter<'a>>,
    key: &[u8],
    value: &[u8],
) -> Result<[u8; POINTER_BYTES], LsmError> {
    let writer = match values {
        Some(writer) => writer,
        None => {
            let dir = &context.files.values.dir;
            let writer = ValueWriter::create(context.disk, dir, (context.next_number)())?;
            values.insert(writer)
        }
    };
    Ok(writer.add(key, value)?.encode())
}
