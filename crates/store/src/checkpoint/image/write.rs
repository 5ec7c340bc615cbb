//! Writes an image: places region by region, indexes in their order, then the footer.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_base::{BatchId, DiskFile, OpenMode};
use weft_ops::{crc32c, crc32c_append};

use super::format::{
    CHUNK_BYTES, Chunk, EntriesWriter, Footer, IndexImage, Kind, MAGIC, PlacesWriter, TableImage, put_hashed,
};
use super::{ImagePlace, NAME, SYNC_FILE, SYNC_NAME, UNFINISHED_NAME};
use crate::index::hash::HashIndex;
use crate::index::ordered::{Batch, OrderedIndex};
use crate::memory::{Pin, REGION_SLOTS, RegionShape, SlotId};
use crate::store::Store;
use crate::table::TableData;

/// Entries that are read of an ordered index at a time.
const ENTRIES_AT_A_TIME: usize = 64;

/// Writes the image of a store at the boundary `saved`, which the checkpoint holds; false if the store is not
/// there, or something in it still waits for readers: there is no image then. Batches go on meanwhile, but if
/// there is one, what was written is thrown away.
pub(in super::super) fn write(
    place: &ImagePlace,
    store: &Arc<Store>,
    saved: BatchId,
) -> Result<bool, io::Error> {
    if place.is_current.load(Ordering::Relaxed) && store.boundary() == saved {
        return Ok(true);
    }
    place.remove()?;
    // Index entries of versions that only old readers need would stay for ever.
    if store.boundary() != saved || store.has_superseded() {
        return Ok(false);
    }
    let written = write_file(place, store, saved);
    if !matches!(written, Ok(true)) {
        // It would take space.
        place.remove()?;
    }
    written
}

fn write_file(place: &ImagePlace, store: &Arc<Store>, saved: BatchId) -> io::Result<bool> {
    let unfinished = place.dir.join(UNFINISHED_NAME);
    let file = place.disk.open(&unfinished, OpenMode::CreateNew)?;
    let mut out = Output { file, offset: 0 };
    let is_complete = write_all(&mut out, store, saved)?;
    // No batch has touched an index, not even one that is still open.
    let is_same = || store.at_rest(|now| now.batch() == saved) == Some(true);
    if !is_complete || !is_same() {
        return Ok(false);
    }
    out.file.sync(SYNC_FILE)?;
    drop(out);
    place.disk.rename(&unfinished, &place.dir.join(NAME))?;
    place.disk.sync_dir(&place.dir, SYNC_NAME)?;
    place.is_current.store(true, Ordering::Relaxed);
    Ok(true)
}

/// False if a row in memory is not what was written, or an index does not lead to every row once.
fn write_all(out: &mut Output, store: &Arc<Store>, saved: BatchId) -> Result<bool, io::Error> {
    let snapshot = store.snapshot();
    if snapshot.batch() != saved {
        return Ok(false);
    }
    out.append(MAGIC)?;
    let mut footer = Footer {
        batch: saved,
        digest: snapshot.digest(),
        tables: Vec::new(),
    };
    let mut tables: Vec<&Arc<TableData>> = snapshot.table_data().collect();
    tables.sort_unstable_by_key(|table| table.core.table);
    for table in tables {
        let written = write_table(out, table, snapshot.view().pin())?;
        let is_whole = |table: &TableImage| table.indexes.iter().all(|index| index.entries() == table.rows);
        match written.filter(is_whole) {
            Some(table) => footer.tables.push(table),
            None => return Ok(false),
        }
    }
    let mut tail = footer.encode();
    let length = tail.len() as u64;
    let crc = crc32c_append(crc32c(&tail), &length.to_le_bytes());
    tail.extend_from_slice(&length.to_le_bytes());
    tail.extend_from_slice(&crc.to_le_bytes());
    tail.extend_from_slice(MAGIC);
    out.append(&tail)?;
    Ok(true)
}

/// `None` if a row in memory is not what was written.
fn write_table(out: &mut Output, table: &TableData, pin: Pin<'_>) -> io::Result<Option<TableImage>> {
    let core = &table.core;
    let Some(Places {
        rows,
        regions,
        chunks,
    }) = write_places(out, table, pin)?
    else {
        return Ok(None);
    };
    let mut indexes = Vec::new();
    for index in &table.indexes {
        let image = match (&index.data.ordered, &index.data.hash) {
            (Some(ordered), _) => IndexImage {
                kind: Kind::Ordered(index.id),
                chunks: write_ordered(out, ordered, &regions)?,
            },
            (None, Some(hash)) => IndexImage {
                kind: Kind::Hashed(index.id),
                chunks: write_hashed(out, hash, &regions)?,
            },
            (None, None) => continue,
        };
        indexes.push(image);
    }
    if let Some(row_ids) = &table.row_ids {
        indexes.push(IndexImage {
            kind: Kind::RowIds,
            chunks: write_hashed(out, row_ids, &regions)?,
        });
    }
    Ok(Some(TableImage {
        id: core.table,
        rows,
        terms: core.terms_sum.load(Ordering::Relaxed),
        lengths: core.slots.lengths(),
        regions: regions.shapes,
        places: chunks,
        indexes,
    }))
}

/// The places of a table's rows, as written.
struct Places {
    rows: u64,
    regions: Regions,
    chunks: Vec<Chunk>,
}

/// Regions with rows, under new numbers.
#[derive(Default)]
struct Regions {
    shapes: Vec<RegionShape>,
    /// By old number; without rows there is none.
    numbers: Vec<Option<u64>>,
}

impl Regions {
    fn add(&mut self, shape: Option<RegionShape>) {
        self.numbers
            .push(shape.is_some().then_some(self.shapes.len() as u64));
        self.shapes.extend(shape);
    }

    /// The slot under its region's new number. An entry that leads nowhere will not be counted.
    fn renumbered(&self, slot: SlotId) -> Option<SlotId> {
        let region = usize::try_from(slot.0 / REGION_SLOTS).ok()?;
        let number = self.numbers.get(region).copied().flatten()?;
        Some(SlotId(number * REGION_SLOTS + slot.0 % REGION_SLOTS))
    }
}

fn write_places(out: &mut Output, table: &TableData, pin: Pin<'_>) -> io::Result<Option<Places>> {
    let slots = &table.core.slots;
    let (mut chunks, mut rows, mut all) = (Vec::new(), Vec::new(), 0);
    let (mut bytes, mut writer, mut items, mut first) = (Vec::new(), PlacesWriter::default(), 0, 0);
    let mut regions = Regions::default();
    for region in 0..slots.region_count() {
        rows.clear();
        if !slots.each_place(region, pin, |row| rows.push(row)) {
            return Ok(None);
        }
        regions.add(slots.shape(region).filter(|_| !rows.is_empty()));
        if rows.is_empty() {
            continue;
        }
        writer.region(&mut bytes, &rows);
        items += rows.len() as u64;
        all += rows.len() as u64;
        if bytes.len() > CHUNK_BYTES {
            let end = regions.shapes.len() as u64;
            chunks.push(out.chunk(&bytes, items, (first, end - first))?);
            bytes.clear();
            (writer, items, first) = (PlacesWriter::default(), 0, end);
        }
    }
    if items > 0 {
        let end = regions.shapes.len() as u64;
        chunks.push(out.chunk(&bytes, items, (first, end - first))?);
    }
    Ok(Some(Places {
        rows: all,
        regions,
        chunks,
    }))
}

fn write_ordered(out: &mut Output, index: &OrderedIndex, regions: &Regions) -> Result<Vec<Chunk>, io::Error> {
    let (mut chunks, mut bytes, mut items) = (Vec::new(), Vec::new(), 0);
    let (mut writer, mut batch) = (EntriesWriter::default(), Batch::default());
    // Entries that were found gone would be passed over by later readers only.
    let mut cursor = index.range(Bound::Unbounded, Bound::Unbounded, false, BatchId(0));
    while cursor.next(&mut batch, ENTRIES_AT_A_TIME) {
        for (key, slot) in batch.entries() {
            if let Some(slot) = regions.renumbered(slot) {
                writer.entry(&mut bytes, key, slot);
                items += 1;
            }
        }
        if bytes.len() > CHUNK_BYTES {
            chunks.push(out.chunk(&bytes, items, (0, 0))?);
            bytes.clear();
            (writer, items) = (EntriesWriter::default(), 0);
        }
    }
    if items > 0 {
        chunks.push(out.chunk(&bytes, items, (0, 0))?);
    }
    Ok(chunks)
}

fn write_hashed(out: &mut Output, index: &HashIndex, regions: &Regions) -> Result<Vec<Chunk>, io::Error> {
    let (mut chunks, mut bytes, mut items, mut failed) = (Vec::new(), Vec::new(), 0, None);
    let mut finish = |bytes: &mut Vec<u8>, items: &mut u64| {
        match out.chunk(bytes, *items, (0, 0)) {
            Ok(chunk) => chunks.push(chunk),
            Err(error) => failed = failed.take().or(Some(error)),
        }
        bytes.clear();
        *items = 0;
    };
    index.each(|hash, slot| {
        if let Some(slot) = regions.renumbered(slot) {
            put_hashed(&mut bytes, hash, slot);
            items += 1;
        }
        if bytes.len() > CHUNK_BYTES {
            finish(&mut bytes, &mut items);
        }
    });
    if items > 0 {
        finish(&mut bytes, &mut items);
    }
    failed.map_or(Ok(chunks), Err)
}

/// The file, written from front to back.
struct Output {
    file: Box<dyn DiskFile>,
    offset: u64,
}

impl Output {
    fn append(&mut self, bytes: &[u8]) -> Result<(), io::Error> {
        self.file.write_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8], items: u64, regions: (u64, u64)) -> Result<Chunk, io::Error> {
        let offset = self.offset;
        self.append(bytes)?;
        Ok(Chunk {
            offset,
            bytes: bytes.len() as u64,
            crc: crc32c(bytes),
            items,
            regions,
        })
    }
}
