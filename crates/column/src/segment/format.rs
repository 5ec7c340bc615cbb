//! The bytes of a segment before its columns. `docs/formats/segment.md` is the same in prose.
//!
//! ```text
//! header, 64 bytes                            entry of the directory, 192 bytes a column
//! offset size                                 offset size
//!  0      8   magic "WEFTSEG1"                 0      1   kind
//!  8      4   version, 1                       1      1   encoding
//! 12      4   schema version                   2      1   bytes of the minimum
//! 16      4   rows                             3      1   bytes of the maximum
//! 20      4   columns                          4      4   NULLs
//! 24      8   bytes of the segment             8      4   offset of the column in the segment
//! 32      4   crc32c of the directory         12      4   bytes of the column
//! 36     24   zeros                           16      4   crc32c of the column
//! 60      4   crc32c of bytes 0..60           20      4   zeros
//!                                             24     16   minimum, zeros behind it
//! part, 24 bytes                              40     16   maximum, zeros behind it
//!  0      4   offset in the column            56    120   five parts
//!  4      4   how many numbers               176     16   zeros
//!  8      4   bits a number, 0..=32 or 64
//! 12      4   zeros
//! 16      8   what is added to each
//! ```
//!
//! Every part of every encoding is an array of numbers of so many bits ([`Part`]), a bitmap and the bytes of
//! strings included. Parts, columns and the segment end at multiples of 64 bytes, zeros before that, and
//! follow each other without gaps: so each byte of a segment is under exactly one checksum.

use weft_base::{ByteReader, ByteWriter, CodecError};
use weft_ops::crc32c;
use weft_ops::packed::WIDTH_MAX;

use super::encoding::check_shape;
use super::error::{Place, SegmentError};
use super::{COLUMNS_MAX, Kind, ROWS_MAX};

/// Where parts, columns and the segment end: a line of a cache, and what a scan unit reads at once.
pub(crate) const LINE_BYTES: usize = 64;
pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const ENTRY_BYTES: usize = 192;
pub(crate) const PARTS_MAX: usize = 5;
/// Bytes of a minimum or maximum that the directory holds.
pub(crate) const EXTREME_BYTES: usize = 16;
/// Bits of a number that is not packed.
pub(crate) const RAW_WIDTH: u32 = 64;

const MAGIC: [u8; 8] = *b"WEFTSEG1";
const VERSION: u32 = 1;
const HEADER_CRC_AT: usize = 60;
const DIRECTORY_CRC_AT: usize = 32;

/// How a column is encoded. The numbers stand in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// Each number in 64 bits; each string one after the other.
    Raw = 0,
    /// Frame of reference: what a number exceeds the minimum by.
    Frame = 1,
    /// Sorted distinct values, and for each row the place of its value among them.
    Dictionary = 2,
    /// What a number exceeds the one before by.
    Delta = 3,
    /// Rows in sequence with one value.
    RunLength = 4,
    /// Strings, some thousand bytes of them compressed together.
    Blocks = 5,
}

impl Encoding {
    const ALL: [Encoding; 6] = [
        Encoding::Raw,
        Encoding::Frame,
        Encoding::Dictionary,
        Encoding::Delta,
        Encoding::RunLength,
        Encoding::Blocks,
    ];
}

/// An array of numbers: `count` of `width` bits each, `base` to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Part {
    /// In the column.
    pub offset: u32,
    pub count: u32,
    pub width: u32,
    pub base: i64,
}

impl Part {
    /// Its bytes, without the zeros behind them.
    pub(crate) const fn bytes(&self) -> usize {
        (self.count as usize * self.width as usize).div_ceil(8)
    }
}

/// The minimum or the maximum of a column: the first bytes of a string, or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extreme {
    pub bytes: [u8; EXTREME_BYTES],
    /// How many of them; none where all values are NULL.
    pub len: u8,
}

impl Extreme {
    pub(crate) fn of_number(number: i64) -> Extreme {
        Extreme::of_string(&number.to_le_bytes())
    }

    /// The beginning of the string.
    pub(crate) fn of_string(string: &[u8]) -> Extreme {
        let mut extreme = Extreme::default();
        for (place, byte) in extreme.bytes.iter_mut().zip(string) {
            *place = *byte;
            extreme.len += 1;
        }
        extreme
    }

    pub(crate) fn string(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    pub(crate) fn number(&self) -> Option<i64> {
        (self.len == 8).then(|| self.bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes)))?
    }
}

/// What the directory says of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub kind: Kind,
    pub encoding: Encoding,
    pub null_count: u32,
    pub offset: u32,
    pub bytes: u32,
    pub crc: u32,
    pub min: Extreme,
    pub max: Extreme,
    /// The first one is the bitmap of rows that have a value; then those of the encoding.
    pub parts: [Part; PARTS_MAX],
}

/// Header and directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub schema_version: u32,
    pub row_count: u32,
    pub entries: Vec<Entry>,
}

impl Directory {
    /// Bytes of header and directory of so many columns.
    pub(crate) const fn bytes(columns: usize) -> usize {
        HEADER_BYTES + columns * ENTRY_BYTES
    }

    /// Header and directory of a segment of so many bytes.
    pub(crate) fn encode(&self, segment_bytes: usize) -> Vec<u8> {
        let mut entries = Vec::with_capacity(self.entries.len() * ENTRY_BYTES);
        for entry in &self.entries {
            entry.encode(&mut entries);
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + entries.len());
        out.put_bytes(&MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.schema_version);
        out.put_u32(self.row_count);
        out.put_u32(self.entries.len() as u32);
        out.put_u64(segment_bytes as u64);
        out.put_u32(crc32c(&entries));
        out.resize(HEADER_CRC_AT, 0);
        let crc = crc32c(&out);
        out.put_u32(crc);
        out.put_bytes(&entries);
        out
    }

    /// Reads and checks both: afterwards every part lies in its column, every column in the segment, and
    /// the parts are those of the encoding.
    pub(crate) fn decode(segment: &[u8]) -> Result<Directory, SegmentError> {
        let (schema_version, row_count, columns) = decode_header(segment)?;
        let damaged = |at: usize, reason| SegmentError::Damaged {
            place: Place::Directory,
            offset: at,
            reason,
        };
        let bytes = segment
            .get(HEADER_BYTES..Directory::bytes(columns))
            .ok_or(damaged(HEADER_BYTES, "unexpected end"))?;
        let crc = segment
            .get(DIRECTORY_CRC_AT..)
            .and_then(|rest| rest.first_chunk());
        if crc != Some(&crc32c(bytes).to_le_bytes()) {
            return Err(damaged(HEADER_BYTES, "checksum does not match"));
        }
        let mut entries = Vec::with_capacity(columns);
        let (mut next, mut reader) = (Directory::bytes(columns), ByteReader::new(bytes));
        for _ in 0..columns {
            let at = HEADER_BYTES + reader.position();
            let entry = Entry::decode(&mut reader)
                .map_err(|error| damaged(HEADER_BYTES + error.position, error.reason))?;
            entry
                .check(row_count, next)
                .map_err(|reason| damaged(at, reason))?;
            next += entry.bytes as usize;
            entries.push(entry);
        }
        if next != segment.len() {
            return Err(damaged(HEADER_BYTES, "columns and segment have different ends"));
        }
        Ok(Directory {
            schema_version,
            row_count,
            entries,
        })
    }
}

/// Schema version, rows and columns.
fn decode_header(segment: &[u8]) -> Result<(u32, u32, usize), SegmentError> {
    let damaged = |offset, reason| SegmentError::Damaged {
        place: Place::Header,
        offset,
        reason,
    };
    let header = segment
        .first_chunk::<HEADER_BYTES>()
        .ok_or(damaged(segment.len(), "unexpected end"))?;
    let mut reader = ByteReader::new(header);
    let mut read = || -> Result<_, CodecError> {
        let magic = reader.array::<8>()?;
        let (version, schema_version) = (reader.u32()?, reader.u32()?);
        let (rows, columns, bytes) = (reader.u32()?, reader.u32()?, reader.u64()?);
        Ok((magic, version, schema_version, rows, columns, bytes))
    };
    let (magic, version, schema_version, rows, columns, bytes) =
        read().map_err(|error| damaged(error.position, error.reason))?;
    let (payload, crc) = header.split_at(HEADER_CRC_AT);
    if magic != MAGIC {
        return Err(damaged(0, "not a segment"));
    }
    if crc != crc32c(payload).to_le_bytes() {
        return Err(damaged(0, "checksum does not match"));
    }
    if version != VERSION {
        return Err(SegmentError::Version(version));
    }
    if rows as usize > ROWS_MAX || columns as usize > COLUMNS_MAX {
        return Err(damaged(16, "more rows or columns than a segment has"));
    }
    if bytes != segment.len() as u64 {
        return Err(damaged(24, "the segment has another length"));
    }
    Ok((schema_version, rows, columns as usize))
}

impl Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        let end = out.len() + ENTRY_BYTES;
        out.put_bytes(&[self.kind as u8, self.encoding as u8, self.min.len, self.max.len]);
        for word in [self.null_count, self.offset, self.bytes, self.crc, 0] {
            out.put_u32(word);
        }
        out.put_bytes(&self.min.bytes);
        out.put_bytes(&self.max.bytes);
        for part in &self.parts {
            for word in [part.offset, part.count, part.width, 0] {
                out.put_u32(word);
            }
            out.put_i64(part.base);
        }
        out.resize(end, 0);
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<Entry, CodecError> {
        let unknown = reader.error("unknown kind or encoding");
        let [kind, encoding, min_len, max_len] = reader.array()?;
        let kind = Kind::from_u8(kind).ok_or(unknown)?;
        let known = Encoding::ALL.into_iter().find(|known| *known as u8 == encoding);
        let (null_count, offset, bytes, crc) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        reader.u32()?;
        let too_long = reader.error("a minimum or maximum is too long");
        let (min, max) = (reader.array()?, reader.array()?);
        let mut parts = [Part::default(); PARTS_MAX];
        for part in &mut parts {
            (part.offset, part.count, part.width) = (reader.u32()?, reader.u32()?, reader.u32()?);
            reader.u32()?;
            part.base = reader.i64()?;
        }
        reader.bytes(16)?;
        if usize::from(min_len.max(max_len)) > EXTREME_BYTES {
            return Err(too_long);
        }
        let extreme = |bytes, len| Extreme { bytes, len };
        Ok(Entry {
            kind,
            encoding: known.ok_or(unknown)?,
            null_count,
            offset,
            bytes,
            crc,
            min: extreme(min, min_len),
            max: extreme(max, max_len),
            parts,
        })
    }

    /// Whether the column begins at `offset`, its parts fill it in order, and they are those of so many rows.
    fn check(&self, row_count: u32, offset: usize) -> Result<(), &'static str> {
        if self.offset as usize != offset {
            return Err("a column is not where the one before ends");
        }
        let mut next = 0_u64;
        for part in &self.parts {
            if u64::from(part.offset) != next {
                return Err("a part is not where the one before ends");
            }
            if part.width > WIDTH_MAX && part.width != RAW_WIDTH {
                return Err("a part has numbers of an unknown width");
            }
            let bytes = (u64::from(part.count) * u64::from(part.width)).div_ceil(8);
            next += bytes.next_multiple_of(LINE_BYTES as u64);
        }
        if next != u64::from(self.bytes) {
            return Err("parts and column have different ends");
        }
        let values = row_count
            .checked_sub(self.null_count)
            .ok_or("more NULLs than rows")?;
        let [validity, ..] = self.parts;
        let expected = if self.null_count > 0 && values > 0 {
            row_count
        } else {
            0
        };
        if (validity.count, validity.base) != (expected, 0) || (expected > 0 && validity.width != 1) {
            return Err("the bitmap of NULLs is not one of so many rows");
        }
        let extreme_bytes = match self.kind {
            _ if values == 0 => 0..=0,
            Kind::Bytes16 => 16..=16,
            Kind::Bytes => 0..=16,
            _ => 8..=8,
        };
        if !extreme_bytes.contains(&self.min.len) || !extreme_bytes.contains(&self.max.len) {
            return Err("a minimum or maximum has another length");
        }
        check_shape(self, row_count)
    }
}
