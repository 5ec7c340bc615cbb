//! Versions: which tables make up the state, level by level.
//!
//! A version never changes; a flush or a compaction makes the next one from an *edit*, which is written to
//! the manifest first. Readers keep the version that they started with, and with it its tables.
//!
//! # Invariants
//!
//! 1. Level 0 is sorted newest first; of two of its tables, all entries of a key in the newer one are newer.
//! 2. The tables of every other level are disjoint (no user key is in two, and no range tombstone extends
//!    into another table) and sorted by key.
//! 3. For each key, everything in a level is newer than everything in the levels below it.

mod edit;
mod manifest;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::options::LEVEL_COUNT;
use crate::table::{Table, TableFiles};
use crate::values::ValueFile;

pub(crate) use edit::Edit;
pub(crate) use manifest::{
    AppendError, Manifest, ManifestState, SYNC_MANIFEST, SYNC_MANIFEST_CREATE, SYNC_MANIFEST_DIR,
    manifest_name, manifest_number, read_manifest, settle_manifest,
};

/// The tables of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    levels: Vec<Vec<Arc<Table>>>,
}

impl Version {
    pub(crate) fn empty() -> Self {
        Self {
            levels: vec![Vec::new(); LEVEL_COUNT],
        }
    }

    /// The tables of a level: newest first in level 0, by key in the others.
    pub(crate) fn level(&self, level: usize) -> &[Arc<Table>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn levels(&self) -> impl Iterator<Item = &[Arc<Table>]> {
        self.levels.iter().map(Vec::as_slice)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<Table>)> {
        let levels = self.levels.iter().enumerate();
        levels.flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)))
    }

    /// Bytes of a level's files.
    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.level(level)
            .iter()
            .map(|table| table.meta().file_bytes)
            .sum()
    }

    /// The table of a sorted level that may hold `key`.
    pub(crate) fn table_for(&self, level: usize, key: &[u8]) -> Option<&Arc<Table>> {
        let tables = self.level(level);
        let at = tables.partition_point(|table| table.properties().upper.is_before(key));
        tables.get(at).filter(|table| table.covers(key))
    }

    /// The tables of a sorted level that share keys with a range.
    pub(crate) fn overlapping(&self, level: usize, range: &KeyRange) -> Vec<Arc<Table>> {
        let tables = self.level(level).iter();
        tables.filter(|table| range.meets(table)).cloned().collect()
    }

    /// The version after an edit. Removed tables are marked obsolete, and so are value files that no table
    /// lists any more: only tables of this version point into them.
    pub(crate) fn apply(&self, edit: &Edit, files: &Arc<TableFiles>) -> Self {
        let mut next = self.clone();
        for tables in &mut next.levels {
            tables.retain(|table| !edit.removed.contains(&table.number()));
        }
        for (level, meta) in &edit.added {
            // A table that only moves to another level keeps its open state.
            let moved = self.tables().find(|(_, table)| table.number() == meta.number);
            let table = match moved {
                Some((_, table)) => Arc::clone(table),
                None => Arc::new(Table::new(meta.clone(), Arc::clone(files))),
            };
            if let Some(tables) = next.levels.get_mut(*level) {
                tables.push(table);
            }
        }
        for (level, tables) in next.levels.iter_mut().enumerate() {
            if level == 0 {
                tables.sort_by_key(|table| std::cmp::Reverse(table.number()));
            } else {
                tables.sort_by(|a, b| a.properties().lower.cmp(&b.properties().lower));
            }
        }
        let mut listed = None;
        for (_, table) in self.tables() {
            let gone = edit.removed.contains(&table.number());
            if gone && !edit.added.iter().any(|(_, meta)| meta.number == table.number()) {
                table.set_obsolete();
                for file in table.value_files() {
                    let listed = listed.get_or_insert_with(|| next.value_files());
                    if !listed.contains_key(&file.number()) {
                        file.set_obsolete();
                    }
                }
            }
        }
        next
    }

    /// The value files that tables list, by number.
    pub(crate) fn value_files(&self) -> BTreeMap<u64, ValueFileState> {
        let mut files: BTreeMap<u64, ValueFileState> = BTreeMap::new();
        for (_, table) in self.tables() {
            for (file, list) in table.value_files().iter().zip(&table.properties().value_files) {
                let state = files.entry(list.number).or_insert_with(|| ValueFileState {
                    file: Arc::clone(file),
                    file_bytes: list.file_bytes,
                    live_bytes: 0,
                });
                state.live_bytes = state.live_bytes.saturating_add(list.used_bytes);
            }
        }
        files
    }
}

/// What the tables of a version together say about a value file.
#[derive(Clone, Debug)]
pub(crate) struct ValueFileState {
    pub file: Arc<ValueFile>,
    /// Length of the file.
    pub file_bytes: u64,
    /// Bytes of the records that some entry points to, even if a newer one hides it.
    pub live_bytes: u64,
}

/// From the lowest to the highest key of some tables.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    lower: bytes::Bytes,
    upper: crate::table::UpperBound,
}

impl KeyRange {
    /// The range of all keys of `tables`; `None` without tables.
    pub(crate) fn of<'a>(tables: impl IntoIterator<Item = &'a Arc<Table>>) -> Option<Self> {
        let mut range: Option<Self> = None;
        for table in tables {
            let properties = table.properties();
            let Some(range) = &mut range else {
                range = Some(Self {
                    lower: properties.lower.clone(),
                    upper: properties.upper.clone(),
                });
                continue;
            };
            if properties.lower < range.lower {
                range.lower = properties.lower.clone();
            }
            let (new, old) = (&properties.upper, &range.upper);
            if new.key > old.key || (new.key == old.key && new.inclusive) {
                range.upper = new.clone();
            }
        }
        range
    }

    /// The lowest key.
    pub(crate) const fn lower(&self) -> &bytes::Bytes {
        &self.lower
    }

    /// Whether the table has keys in the range.
    pub(crate) fn meets(&self, table: &Table) -> bool {
        let properties = table.properties();
        !self.upper.is_before(&properties.lower) && !properties.upper.is_before(&self.lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{CorruptKind, LsmError};
    use crate::fuzzing::dir;
    use crate::table::{TableMeta, TableProperties, UpperBound, ValueFileUse};
    use crate::values::{Pointer, ValueWriter};
    use bytes::Bytes;
    use weft_base::{Disk, SimDisk};
    use weft_ops::key::SeqNo;

    /// A table that lists a value file with one value, and what leads to that.
    fn table_with_value(disk: &Arc<dyn Disk>) -> (TableMeta, Pointer) {
        disk.create_dir_all(dir()).unwrap();
        let mut writer = ValueWriter::create(&**disk, dir(), 1).unwrap();
        let pointer = writer.add(b"key", b"large").unwrap();
        let file_bytes = writer.finish().unwrap();
        writer.keep();
        let key = Bytes::from_static(b"key");
        let properties = TableProperties {
            lower: key.clone(),
            upper: UpperBound { key, inclusive: true },
            entry_count: 1,
            tombstone_count: 0,
            block_count: 1,
            last_seqno: SeqNo(1),
            value_files: vec![ValueFileUse {
                number: 1,
                file_bytes,
                used_bytes: pointer.record_bytes(3),
            }],
        };
        let meta = TableMeta {
            number: 2,
            level: 0,
            file_bytes: 100,
            properties,
        };
        (meta, pointer)
    }

    /// A reader that holds a version or a table reads large values when newer versions know nothing of them.
    #[test]
    fn a_held_version_keeps_its_value_files() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let (meta, pointer) = table_with_value(&disk);
        let files = Arc::new(TableFiles::new(disk, dir(), vec![dir().to_owned()], 0));
        let number = meta.number;
        let added = Edit {
            added: vec![(0, meta)],
            ..Edit::default()
        };
        let removed = Edit {
            removed: vec![number],
            ..Edit::default()
        };
        let held = Version::empty().apply(&added, &files);
        let next = held.apply(&removed, &files);
        assert_eq!((next.tables().count(), next.value_files().len()), (0, 0));
        let is_free = || files.obsolete.len();
        let read = |table: &Table| table.large_value(0, b"key", &pointer.encode()).unwrap();
        let (_, table) = held.tables().next().unwrap();
        assert_eq!((read(table), is_free()), (Bytes::from_static(b"large"), 0));
        let table = Arc::clone(table);
        drop(held);
        assert_eq!((read(&table), is_free()), (Bytes::from_static(b"large"), 0));
        drop(table);
        assert_eq!(is_free(), 2, "the table's file and the values'");
    }

    /// Whatever a pointer says is an error of its table, before anything is read.
    #[test]
    fn an_invalid_pointer_is_refused() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let (meta, sound) = table_with_value(&disk);
        let files = Arc::new(TableFiles::new(disk, dir(), vec![dir().to_owned()], 0));
        let table = Table::new(meta, files);
        assert!(table.large_value(0, b"key", &sound.encode()).is_ok());
        let record_bytes = sound.record_bytes(3);
        for offset in [
            1,
            1 << 40,
            u64::MAX,
            u64::MAX - record_bytes,
            u64::MAX - record_bytes - 10,
        ] {
            let pointer = Pointer { offset, ..sound };
            let error = table.large_value(0, b"key", &pointer.encode()).unwrap_err();
            let LsmError::Corrupt { kind, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(kind, CorruptKind::Pointer, "offset {offset}");
        }
    }
}
