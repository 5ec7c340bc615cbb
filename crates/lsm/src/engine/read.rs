//! Reads: from the newest source to the oldest, until the key is found.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use weft_ops::hash64;
use weft_ops::key::{EntryKind, SeqNo, Stamp};

use super::{Engine, View};
use crate::batch::FamilyId;
use crate::error::LsmError;
use crate::iterator::{EntryCursor, LsmIterator, MergingCursor};
use crate::memtable::MemtableCursor;
use crate::options::LEVEL_COUNT;
use crate::snapshot::Snapshot;
use crate::table::{Blocks, Readahead, RunCursor, Table};
use crate::tombstones::{TombstoneSet, covering};

/// What a source knows about a key.
enum Found {
    /// Nothing: continue with the next source.
    Nothing,
    /// It is deleted.
    Gone,
    Present(Newest),
}

/// The newest entry of a key that has a value.
pub(super) enum Newest {
    Value(Bytes),
    /// The pointer to a large value, and the table and block that contain it.
    Pointer(Arc<Table>, usize, Bytes),
}

impl Engine {
    /// The newest value of a key (as inside the engine).
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, LsmError> {
        // The view first: see the head of `engine/mod.rs`.
        let view = self.view();
        let seqno = self.readers.visible();
        self.get_from(&view, key, seqno)
    }

    /// The value of a key as a reader at `seqno` sees it in a view.
    pub(super) fn get_from(&self, view: &View, key: &[u8], seqno: SeqNo) -> Result<Option<Bytes>, LsmError> {
        match self.newest(view, key, seqno)? {
            None => Ok(None),
            Some(Newest::Value(value)) => Ok(Some(value)),
            Some(Newest::Pointer(table, block, pointer)) => table.large_value(block, key, &pointer).map(Some),
        }
    }

    /// The newest entry of a key that a reader at `seqno` sees in a view, if it has a value.
    pub(super) fn newest(&self, view: &View, key: &[u8], seqno: SeqNo) -> Result<Option<Newest>, LsmError> {
        for memtable in std::iter::once(&view.active).chain(&view.frozen) {
            let deleted = memtable
                .tombstones()
                .map_or(SeqNo(0), |tombstones| covering(&tombstones, key, seqno));
            match memtable.get(key, seqno) {
                Some((stamp, value)) if stamp.seqno() > deleted => {
                    let live = stamp.kind() != EntryKind::Tombstone;
                    return Ok(live.then(|| Newest::Value(Bytes::copy_from_slice(value))));
                }
                None if deleted == SeqNo(0) => {}
                // A range tombstone hides everything older, in this source and in later ones.
                _ => return Ok(None),
            }
        }
        let hash = hash64(key);
        let level0 = view.version.level(0).iter().filter(|table| table.covers(key));
        let deeper = (1..LEVEL_COUNT).filter_map(|level| view.version.table_for(level, key));
        for table in level0.chain(deeper) {
            match self.get_from_table(table, key, hash, seqno)? {
                Found::Nothing => {}
                Found::Gone => return Ok(None),
                Found::Present(newest) => return Ok(Some(newest)),
            }
        }
        Ok(None)
    }

    fn get_from_table(
        &self,
        table: &Arc<Table>,
        key: &[u8],
        hash: u64,
        seqno: SeqNo,
    ) -> Result<Found, LsmError> {
        let opened = table.opened()?;
        let deleted = covering(opened.tombstones(), key, seqno);
        let absent = if deleted > SeqNo(0) {
            Found::Gone
        } else {
            Found::Nothing
        };
        if let Some(filter) = opened.filter()?
            && !filter.may_contain(hash)
        {
            self.counters.filtered.fetch_add(1, Ordering::Relaxed);
            return Ok(absent);
        }
        let mut number = opened.block_for(key);
        while let Some(block) = table.block(&opened, number)? {
            let mut cursor = block.cursor();
            cursor.seek(key, Stamp::newest_at(seqno)).map_err(|error| {
                let offset = opened.index().get(number).map_or(0, |entry| entry.offset);
                opened.bad_block(offset, error)
            })?;
            if cursor.valid() {
                if cursor.key() != key {
                    return Ok(absent);
                }
                let value = cursor.value_bytes();
                return Ok(match cursor.stamp().kind() {
                    _ if cursor.stamp().seqno() <= deleted => Found::Gone,
                    EntryKind::Tombstone => Found::Gone,
                    EntryKind::Value => Found::Present(Newest::Value(value)),
                    EntryKind::LargeValue => {
                        Found::Present(Newest::Pointer(Arc::clone(table), number, value))
                    }
                });
            }
            // All entries of the key in this block are too new.
            number += 1;
        }
        Ok(absent)
    }

    /// `once`: the keys (as inside the engine) of a scan that reads a range once, without caching it.
    pub(super) fn iterator(
        self: &Arc<Self>,
        family: FamilyId,
        snapshot: &Arc<Snapshot>,
        once: Option<&(Vec<u8>, Option<Vec<u8>>)>,
    ) -> Result<LsmIterator, LsmError> {
        let view = self.view();
        let mut sources = Vec::new();
        let mut tombstones = Vec::new();
        for memtable in std::iter::once(&view.active).chain(&view.frozen) {
            sources.push(EntryCursor::Memtable(MemtableCursor::new(Arc::clone(memtable))));
            tombstones.extend(memtable.tombstones());
        }
        for (level, tables) in view.version.levels().enumerate() {
            for table in tables {
                if table.properties().tombstone_count > 0 {
                    tombstones.push(Arc::clone(table.opened()?.tombstones()));
                }
            }
            let wanted = tables.iter().filter(|table| {
                let Some((start, end)) = once else {
                    return true;
                };
                let properties = table.properties();
                let is_behind = end.as_ref().is_some_and(|end| *properties.lower >= **end);
                !is_behind && !properties.upper.is_before(start)
            });
            let mut runs: Vec<Vec<Arc<Table>>> = match level {
                0 => wanted.map(|table| vec![Arc::clone(table)]).collect(),
                _ => vec![wanted.cloned().collect()],
            };
            runs.retain(|tables| !tables.is_empty());
            sources.extend(runs.into_iter().map(|tables| {
                let blocks = match once {
                    None => Blocks::Cached,
                    Some((_, end)) => Blocks::Once(Box::new(Readahead::new(end.clone()))),
                };
                EntryCursor::Run(RunCursor::new(tables, blocks))
            }));
        }
        Ok(LsmIterator::new(
            MergingCursor::new(sources),
            TombstoneSet::new(&tombstones, snapshot.seqno()),
            Arc::clone(snapshot),
            family,
        ))
    }
}
