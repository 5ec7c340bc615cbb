//! Writes a table: takes finished blocks and adds everything else.
//!
//! `file_writer.rs` does the file I/O. Blocks that may contain pointers to large values are scanned for them,
//! so that the table can list the value files that it needs.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use weft_base::SyncSite;
use weft_ops::block::{Block, BlockError, FinishedBlock};
use weft_ops::filter::build_filter_of_parts;
use weft_ops::key::{EntryKind, SeqNo};
use weft_ops::merge::RangeTombstone;

use super::file_writer::{TableFileWriter, TableSink};
use super::format::{
    Footer, IndexEntry, Section, TableProperties, UpperBound, ValueFileUse, encode_index, encode_tombstones,
    seal, table_name,
};
use super::read::TableMeta;
use crate::error::{CorruptKind, LsmError, corrupt};
use crate::values::Pointer;

/// Sync of a table's bytes, before its name counts.
pub(crate) const SYNC_TABLE: SyncSite = SyncSite("lsm.table");

/// Hashes for the filter that are kept in one piece.
const HASHES_PART: usize = 1 << 13;

/// Writes one table.
pub(crate) struct TableWriter {
    out: TableFileWriter,
    number: u64,
    level: usize,
    index: Vec<IndexEntry>,
    /// In parts of [`HASHES_PART`], so that none is moved when more come.
    hashes: Vec<Vec<u64>>,
    filter_bits_per_key: u32,
    /// The stored filter, if it was built elsewhere.
    filter: Option<Bytes>,
    tombstones: Vec<RangeTombstone>,
    lower: Option<Bytes>,
    last_key: Bytes,
    entry_count: u64,
    last_seqno: SeqNo,
    /// Value files that entries point into, with the bytes of the records.
    pointed: BTreeMap<u64, u64>,
}

impl TableWriter {
    /// Makes the file.
    pub(crate) fn create(
        sink: &TableSink<'_>,
        dir: &Path,
        number: u64,
        level: usize,
        filter_bits_per_key: u32,
    ) -> Result<Self, LsmError> {
        Ok(Self {
            out: TableFileWriter::create(sink, dir.join(table_name(number)))?,
            number,
            level,
            index: Vec::new(),
            hashes: Vec::new(),
            filter_bits_per_key,
            filter: None,
            tombstones: Vec::new(),
            lower: None,
            last_key: Bytes::new(),
            entry_count: 0,
            last_seqno: SeqNo(0),
            pointed: BTreeMap::new(),
        })
    }

    /// Bytes of blocks so far.
    pub(crate) const fn bytes(&self) -> u64 {
        self.out.bytes()
    }

    /// Key of the last entry so far.
    pub(crate) const fn last_key(&self) -> &Bytes {
        &self.last_key
    }

    /// Appends a block; `hashes` are those of the keys that begin in it, `may_point` says whether there may
    /// be pointers in it.
    pub(crate) fn add_block(
        &mut self,
        block: &FinishedBlock,
        hashes: &[u64],
        may_point: bool,
    ) -> Result<(), LsmError> {
        if may_point {
            self.note_pointers(&block.bytes)?;
        }
        if self.lower.is_none() {
            self.lower = Some(block.first_key.clone());
        }
        let crc = block.bytes.first_chunk::<4>().copied().unwrap_or_default();
        self.index.push(IndexEntry {
            // A copy: the key must not keep the memory of a whole result alive.
            last_key: Bytes::copy_from_slice(&block.last_key),
            offset: self.bytes(),
            bytes: block.bytes.len() as u32,
            crc: u32::from_le_bytes(crc),
            entry_count: block.entry_count,
        });
        self.entry_count += u64::from(block.entry_count);
        self.last_key = block.last_key.clone();
        if self.filter_bits_per_key > 0 {
            self.add_hashes(hashes);
        }
        self.out.append(block.bytes.clone())
    }

    /// Counts where the pointers of a block lead.
    fn note_pointers(&mut self, stored: &Bytes) -> Result<(), LsmError> {
        let (name, at) = (table_name(self.number), self.bytes());
        let bad_block = |error: BlockError| corrupt(&name, at, CorruptKind::Block, error);
        let block = Block::open(stored).map_err(bad_block)?;
        let mut cursor = block.cursor();
        cursor.first().map_err(bad_block)?;
        while cursor.valid() {
            if cursor.stamp().kind() == EntryKind::LargeValue {
                let pointer = Pointer::decode(cursor.value())
                    .map_err(|error| corrupt(&name, at, CorruptKind::Pointer, error.reason))?;
                let used = self.pointed.entry(pointer.file).or_insert(0);
                *used = used.saturating_add(pointer.record_bytes(cursor.key().len()));
            }
            cursor.forward().map_err(bad_block)?;
        }
        Ok(())
    }

    fn add_hashes(&mut self, mut hashes: &[u64]) {
        while !hashes.is_empty() {
            let part = match self.hashes.last_mut() {
                Some(part) if part.len() < HASHES_PART => part,
                _ => {
                    self.hashes.push(Vec::with_capacity(HASHES_PART));
                    continue;
                }
            };
            let (now, later) = hashes.split_at(hashes.len().min(HASHES_PART - part.len()));
            part.extend_from_slice(now);
            hashes = later;
        }
    }

    /// Adds a range tombstone, in any order.
    pub(crate) fn add_tombstone(&mut self, tombstone: RangeTombstone) {
        self.tombstones.push(tombstone);
    }

    /// No entry or range tombstone will be newer than this.
    pub(crate) fn raise_last_seqno(&mut self, seqno: SeqNo) {
        self.last_seqno = self.last_seqno.max(seqno);
    }

    /// Moves the hashes of all keys out: [`TableWriter::set_filter`] or [`TableWriter::give_back_hashes`]
    /// must follow.
    pub(crate) fn take_hashes(&mut self) -> Vec<Vec<u64>> {
        std::mem::take(&mut self.hashes)
    }

    /// The filter of the hashes that were taken, stored as is.
    pub(crate) fn set_filter(&mut self, stored: Bytes) {
        self.filter = Some(stored);
    }

    /// Returns the hashes that were taken: the filter was not built elsewhere.
    pub(crate) fn give_back_hashes(&mut self, hashes: &[u64]) {
        self.hashes.clear();
        self.add_hashes(hashes);
    }

    fn section(&mut self, bytes: impl Into<Bytes>) -> Result<Section, LsmError> {
        let bytes = bytes.into();
        let section = Section {
            offset: self.bytes(),
            bytes: bytes.len() as u64,
        };
        self.out.append(bytes)?;
        Ok(section)
    }

    /// Writes what follows the blocks and syncs the file. Its name is not durable yet. `value_files` has the
    /// lengths of all value files into which entries may point.
    pub(crate) fn finish(mut self, value_files: &BTreeMap<u64, u64>) -> Result<TableMeta, LsmError> {
        self.tombstones.sort();
        let properties = self.properties(value_files)?;
        let tombstones = self.section(encode_tombstones(&self.tombstones))?;
        let filter = if self.filter_bits_per_key > 0 {
            let built = self.filter.take();
            let filter =
                built.unwrap_or_else(|| build_filter_of_parts(&self.hashes, self.filter_bits_per_key).into());
            self.section(filter)?
        } else {
            Section::default()
        };
        let index = self.section(encode_index(&self.index))?;
        let mut encoded = Vec::new();
        properties.encode(&mut encoded);
        let properties_section = self.section(seal(&encoded))?;
        let footer = Footer {
            tombstones,
            filter,
            index,
            properties: properties_section,
            file_number: self.number,
        };
        self.out.append(Bytes::from(footer.encode()))?;
        let file_bytes = self.out.finish(SYNC_TABLE)?;
        Ok(TableMeta {
            number: self.number,
            level: self.level,
            file_bytes,
            properties,
        })
    }

    fn properties(&self, value_files: &BTreeMap<u64, u64>) -> Result<TableProperties, LsmError> {
        let in_use = |(&number, &used_bytes): (&u64, &u64)| match value_files.get(&number) {
            Some(&file_bytes) => Ok(ValueFileUse {
                number,
                file_bytes,
                used_bytes,
            }),
            None => {
                let reason = format!("an entry points into value file {number}, which nobody has named");
                let name = table_name(self.number);
                Err(corrupt(&name, 0, CorruptKind::Pointer, reason))
            }
        };
        let mut lower = self.lower.clone();
        let mut upper = UpperBound {
            key: self.last_key.clone(),
            inclusive: self.lower.is_some(),
        };
        for tombstone in &self.tombstones {
            if lower.as_ref().is_none_or(|lower| tombstone.start < *lower) {
                lower = Some(tombstone.start.clone());
            }
            if tombstone.end > upper.key {
                upper = UpperBound {
                    key: tombstone.end.clone(),
                    inclusive: false,
                };
            }
        }
        Ok(TableProperties {
            lower: Bytes::copy_from_slice(&lower.unwrap_or_default()),
            upper: UpperBound {
                key: Bytes::copy_from_slice(&upper.key),
                ..upper
            },
            entry_count: self.entry_count,
            tombstone_count: self.tombstones.len() as u64,
            block_count: self.index.len() as u64,
            last_seqno: self.last_seqno,
            value_files: self.pointed.iter().map(in_use).collect::<Result<_, _>>()?,
        })
    }
}
