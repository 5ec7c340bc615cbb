//! The bytes of an image. `docs/formats/image.md` describes them in prose.
//!
//! ```text
//! file    "WEFTIMG1" | chunks | footer | footer's length u64 | CRC-32C of footer and length u32 | "WEFTIMG1"
//! footer  batch u64 | digest u64 | tables: id, rows, terms u64, lengths, regions, places, indexes
//! chunk   as its list in the footer says: kind, offset, length, CRC-32C, items, the first region
//! ```
//!
//! Numbers are varints unless a width is given, little endian.

use weft_base::{BatchId, ByteReader, ByteWriter, CodecError, IndexId, RowId, TableId};

use crate::memory::{ColdPlace, ColdRegion, ColdRegionBuilder, RegionShape, RowLengths, SlotId};

pub(super) const MAGIC: &[u8; 8] = b"WEFTIMG1";
/// Length, CRC and magic behind the footer.
pub(super) const TAIL_BYTES: u64 = 20;
/// A chunk is finished when it is longer; none is as long as twice this and one key.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// No chunk is longer than this: a key has at most some kilobytes.
pub(super) const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// A difference as a small number, whatever its sign.
fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> (i64::BITS - 1))) as u64
}

/// Reverse of [`zigzag`].
fn unzigzag(word: u64) -> i64 {
    (word >> 1) as i64 ^ -((word & 1) as i64)
}

/// No item takes less: a key's shared and own length, and a slot.
const ITEM_BYTES_MIN: u64 = 3;

/// Where a chunk is, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub offset: u64,
    pub bytes: u64,
    pub crc: u32,
    /// Rows or entries.
    pub items: u64,
    /// Of places: the first region, and how many.
    pub regions: (u64, u64),
}

/// What the chunks of an index hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Keys and slots in their order.
    Ordered(IndexId),
    /// Hashes and slots of an index without order.
    Hashed(IndexId),
    /// Hashes of row ids and slots.
    RowIds,
}

/// One index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexImage {
    pub kind: Kind,
    pub chunks: Vec<Chunk>,
}

impl IndexImage {
    pub(super) fn entries(&self) -> u64 {
        items_of(&self.chunks)
    }
}

fn items_of(chunks: &[Chunk]) -> u64 {
    chunks
        .iter()
        .fold(0, |sum, chunk| sum.saturating_add(chunk.items))
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableImage {
    pub id: TableId,
    pub rows: u64,
    /// The rows' terms of the state digest.
    pub terms: u64,
    pub lengths: RowLengths,
    pub regions: Vec<RegionShape>,
    pub places: Vec<Chunk>,
    pub indexes: Vec<IndexImage>,
}

/// What the end of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(super) batch: BatchId,
    pub(super) digest: u64,
    pub(super) tables: Vec<TableImage>,
}

impl Footer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.batch.0);
        out.put_u64(self.digest);
        out.put_varint(self.tables.len() as u64);
        for table in &self.tables {
            table.encode(&mut out);
        }
        out
    }

    /// All chunks.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.tables.iter().flat_map(|table| {
            let indexes = table.indexes.iter().flat_map(|index| &index.chunks);
            table.places.iter().chain(indexes)
        })
    }

    /// Whether so many bytes can hold all of it: each byte belongs to one chunk at most.
    pub(super) fn fits(&self, file_bytes: u64) -> bool {
        let ends = self.chunks().map(|chunk| chunk.offset.checked_add(chunk.bytes));
        let is_inside = |end: Option<u64>| end.is_some_and(|end| end <= file_bytes);
        let sum = self
            .chunks()
            .fold(0u64, |sum, chunk| sum.saturating_add(chunk.bytes));
        ends.into_iter().all(is_inside) && sum <= file_bytes
    }

    /// Reads a footer. Counts and places agree with each other; whether they are those of the database, who
    /// reads it has to check.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = ByteReader::new(bytes);
        let (batch, digest) = (BatchId(reader.u64()?), reader.u64()?);
        let tables = (0..reader.count(1)?).map(|_| TableImage::decode(&mut reader));
        let tables = tables.collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(Footer {
            batch,
            digest,
            tables,
        })
    }
}

impl TableImage {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(u64::from(self.id.0));
        out.put_varint(self.rows);
        out.put_u64(self.terms);
        out.put_varint(self.lengths.longest);
        out.put_varint(self.lengths.sampled_bytes);
        out.put_varint(self.lengths.sampled_rows);
        out.put_varint(self.regions.len() as u64);
        for region in &self.regions {
            out.put_varint(u64::from(region.stride));
            out.put_varint(u64::from(region.slots));
        }
        put_chunks(out, &self.places);
        out.put_varint(self.indexes.len() as u64);
        for index in &self.indexes {
            let (kind, id) = match index.kind {
                Kind::Ordered(id) => (0, id.0),
                Kind::Hashed(id) => (1, id.0),
                Kind::RowIds => (2, 0),
            };
            out.put_u8(kind);
            out.put_varint(u64::from(id));
            put_chunks(out, &index.chunks);
        }
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let id = TableId(reader.varint_u32()?);
        let (rows, terms) = (reader.varint()?, reader.u64()?);
        let lengths = RowLengths {
            longest: reader.varint()?,
            sampled_bytes: reader.varint()?,
            sampled_rows: reader.varint()?,
        };
        let regions = (0..reader.count(2)?).map(|_| {
            let shape = RegionShape {
                stride: reader.varint_u32()?,
                slots: reader.varint_u32()?,
            };
            match shape.is_sound() {
                true => Ok(shape),
                false => Err(reader.error("slots of an impossible size")),
            }
        });
        let regions: Vec<RegionShape> = regions.collect::<Result<_, _>>()?;
        let places = chunks(reader)?;
        let mut next = 0;
        for chunk in &places {
            if chunk.regions.0 != next {
                return Err(reader.error("places of regions in no order"));
            }
            next = next.saturating_add(chunk.regions.1);
        }
        let placed = items_of(&places);
        if next != regions.len() as u64 || placed != rows {
            return Err(reader.error("places and rows that do not agree"));
        }
        let indexes = (0..reader.count(3)?).map(|_| {
            let (kind, id) = (reader.u8()?, IndexId(reader.varint_u32()?));
            let kind = match kind {
                0 => Kind::Ordered(id),
                1 => Kind::Hashed(id),
                2 => Kind::RowIds,
                _ => return Err(reader.error("an unknown kind of index")),
            };
            let index = IndexImage {
                kind,
                chunks: chunks(reader)?,
            };
            match index.entries() == rows {
                true => Ok(index),
                false => Err(reader.error("an index that does not lead to every row")),
            }
        });
        Ok(TableImage {
            id,
            rows,
            terms,
            lengths,
            indexes: indexes.collect::<Result<_, _>>()?,
            regions,
            places,
        })
    }
}

fn put_chunks(out: &mut Vec<u8>, chunks: &[Chunk]) {
    out.put_varint(chunks.len() as u64);
    for chunk in chunks {
        out.put_varint(chunk.offset);
        out.put_varint(chunk.bytes);
        out.put_u32(chunk.crc);
        out.put_varint(chunk.items);
        out.put_varint(chunk.regions.0);
        out.put_varint(chunk.regions.1);
    }
}

fn chunks(reader: &mut ByteReader<'_>) -> Result<Vec<Chunk>, CodecError> {
    let count = reader.count(9)?;
    let mut next = || {
        let chunk = Chunk {
            offset: reader.varint()?,
            bytes: reader.varint()?,
            crc: reader.u32()?,
            items: reader.varint()?,
            regions: (reader.varint()?, reader.varint()?),
        };
        let is_sound = chunk.bytes <= CHUNK_BYTES_MAX && chunk.items <= chunk.bytes / ITEM_BYTES_MIN;
        match is_sound && chunk.regions.1 <= chunk.bytes {
            true => Ok(chunk),
            false => Err(reader.error("a chunk of an impossible size")),
        }
    };
    (0..count).map(|_| next()).collect()
}

/// Writes the places of rows, region by region.
#[derive(Debug, Default)]
pub(super) struct PlacesWriter {
    last_id: RowId,
}

/// How a row id differs from the one before.
const NEXT_ORDINAL: u64 = 0;
const NEXT_MEMBER: u64 = 1;
const OTHER_ID: u64 = 2;
/// Bits for that.
const ID_BITS: u32 = 2;

impl PlacesWriter {
    /// Appends a region's rows, in slot order.
    pub(super) fn region(&mut self, out: &mut Vec<u8>, rows: &[ColdPlace]) {
        out.put_varint(rows.len() as u64);
        let mut next_offset = 0;
        for row in rows {
            let gap = u64::from(row.offset.saturating_sub(next_offset));
            next_offset = row.offset + 1;
            let (last, id) = (self.last_id, row.row_id);
            let in_batch = id.batch == last.batch;
            let how = if in_batch
                && id.member == last.member
                && last.ordinal.checked_add(1) == Some(id.ordinal)
            {
                NEXT_ORDINAL
            } else if in_batch && last.member.checked_add(1) == Some(id.member) && id.ordinal == last.ordinal
            {
                NEXT_MEMBER
            } else {
                OTHER_ID
            };
            out.put_varint(gap << ID_BITS | how);
            if how == OTHER_ID {
                out.put_varint(zigzag(id.batch.0.wrapping_sub(last.batch.0) as i64));
                out.put_varint(u64::from(id.member));
                out.put_varint(u64::from(id.ordinal));
            }
            let [_, seal @ ..] = row.seal_bits.to_le_bytes();
            out.put_bytes(&seal);
            self.last_id = id;
        }
    }
}

/// Reads the places of these regions; `items` rows all together.
pub(super) fn read_places(
    bytes: &[u8],
    shapes: &[RegionShape],
    items: u64,
) -> Result<Vec<ColdRegion>, CodecError> {
    let mut reader = ByteReader::new(bytes);
    let mut last = RowId::default();
    let mut read = 0;
    let mut regions = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let mut region = ColdRegionBuilder::new(*shape);
        let mut next_offset = 0u32;
        for _ in 0..reader.count(4)? {
            let word = reader.varint()?;
            let gap = u32::try_from(word >> ID_BITS).ok();
            let offset = gap.and_then(|gap| next_offset.checked_add(gap));
            let offset = offset.filter(|offset| *offset < shape.slots);
            let offset = offset.ok_or_else(|| reader.error("a row outside its region"))?;
            next_offset = offset + 1;
            let id = match word & ((1 << ID_BITS) - 1) {
                NEXT_ORDINAL => last
                    .ordinal
                    .checked_add(1)
                    .map(|ordinal| RowId { ordinal, ..last }),
                NEXT_MEMBER => last.member.checked_add(1).map(|member| RowId { member, ..last }),
                OTHER_ID => Some(RowId {
                    batch: BatchId(last.batch.0.wrapping_add(unzigzag(reader.varint()?) as u64)),
                    member: reader.varint_u32()?,
                    ordinal: reader.varint_u32()?,
                }),
                _ => None,
            };
            last = id.ok_or_else(|| reader.error("an impossible row id"))?;
            let [a, b, c] = reader.array()?;
            let is_put = region.put(ColdPlace {
                offset,
                row_id: last,
                seal_bits: u32::from_le_bytes([0, a, b, c]),
            });
            debug_assert!(is_put, "offsets rise");
            read += 1;
        }
        regions.push(region.finish());
    }
    reader.finish()?;
    match read == items {
        true => Ok(regions),
        false => Err(reader.error("another number of rows than the footer says")),
    }
}

/// Writes entries of an ordered index, in their order.
#[derive(Debug, Default)]
pub(super) struct EntriesWriter {
    key: Vec<u8>,
    slot: u64,
}

impl EntriesWriter {
    /// Appends an entry. A chunk has a writer of its own.
    pub(super) fn entry(&mut self, out: &mut Vec<u8>, key: &[u8], slot: SlotId) {
        let shared = self
            .key
            .iter()
            .zip(key)
            .take_while(|(one, other)| one == other)
            .count();
        let rest = key.get(shared..).unwrap_or_default();
        out.put_varint(shared as u64);
        out.put_len_prefixed(rest);
        out.put_varint(zigzag(slot.0.wrapping_sub(self.slot) as i64));
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        self.slot = slot.0;
    }
}

/// Shows the entries of a chunk; `items` of them. Slots are below `slots`.
pub(super) fn read_entries(
    bytes: &[u8],
    items: u64,
    slots: u64,
    mut see: impl FnMut(&[u8], SlotId),
) -> Result<(), CodecError> {
    let mut reader = ByteReader::new(bytes);
    let (mut key, mut slot) = (Vec::new(), 0u64);
    for _ in 0..items {
        let shared = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
        if shared > key.len() {
            return Err(reader.error("a key that shares more than there is"));
        }
        key.truncate(shared);
        key.extend_from_slice(reader.len_prefixed()?);
        slot = slot.wrapping_add(unzigzag(reader.varint()?) as u64);
        if slot >= slots {
            return Err(reader.error("a slot that does not exist"));
        }
        see(&key, SlotId(slot));
    }
    reader.finish()
}

/// Appends an entry of a hash index.
pub(super) fn put_hashed(out: &mut Vec<u8>, hash: u64, slot: SlotId) {
    out.put_u64(hash);
    out.put_varint(slot.0);
}

/// Shows the entries of a chunk; `items` of them. Slots are below `slots`.
pub(super) fn read_hashed(
    bytes: &[u8],
    items: u64,
    slots: u64,
    mut see: impl FnMut(u64, SlotId),
) -> Result<(), CodecError> {
    let mut reader = ByteReader::new(bytes);
    for _ in 0..items {
        let (hash, slot) = (reader.u64()?, reader.varint()?);
        if slot >= slots {
            return Err(reader.error("a slot that does not exist"));
        }
        see(hash, SlotId(slot));
    }
    reader.finish()
}
