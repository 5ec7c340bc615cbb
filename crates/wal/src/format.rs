//! The bytes of the log. `docs/formats/log.md` is the same in prose.
//!
//! A segment file is named after its first batch, `log-%020d.weft`. All numbers are little endian. Positions
//! ([`weft_base::Lsn`]) count bytes behind the headers, through all segments: a record at file offset `o` has
//! the position `start_lsn + o - 512`.
//!
//! ```text
//! segment header, 512 bytes                     record header, 40 bytes, at a multiple of 8
//! offset size                                   offset size
//!  0      8   magic "WEFTLOG1"                   0      4   magic "WREC"
//!  8      4   version, 1                         4      4   payload_bytes
//! 12      4   header_bytes, 512                  8      8   batch
//! 16      8   first_batch                       16      8   lsn, position of this record
//! 24      8   start_lsn                         24      8   durable_to, durable position at the append
//! 32      8   salt                              32      4   kind: 1 batch, 2 seal
//! 40      4   crc32c of bytes 0..40             36      4   crc32c of payload, bytes 0..36, salt
//! 44    468   zeros                             40          payload, zeros up to a multiple of 8
//! ```
//!
//! A group of records written together is followed by zeros up to the next 512-byte sector. The salt keeps a
//! payload that contains a copy of a record from ever passing for one.

use std::ops::Range;

use weft_base::{ByteReader, ByteWriter, CodecError};
use weft_ops::{crc32c, crc32c_append};

/// What a disk writes completely or not at all; the unit of [`crate`]'s invariant 3.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Length of a segment's header: one sector, so that it is never rewritten together with records.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = SECTOR_BYTES;
/// Length of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 40;
/// The longest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;

const SEGMENT_MAGIC: [u8; 8] = *b"WEFTLOG1";
const SEGMENT_MAGIC_FAMILY: &[u8] = b"WEFTLOG";
const SEGMENT_VERSION: u32 = 1;
const RECORD_MAGIC: [u8; 4] = *b"WREC";
const ALIGN_BYTES: usize = 8;

/// The name of a segment until it is complete.
pub(crate) const UNFINISHED_SEGMENT: &str = "log-next.part";

/// File name of the segment that starts with this batch.
pub(crate) fn segment_name(first_batch: u64) -> String {
    format!("log-{first_batch:020}.weft")
}

/// The first batch of a segment, from its file name. `None` for other files.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".weft")?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// What stands at the front of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub first_batch: u64,
    pub start_lsn: u64,
    pub salt: u64,
}

/// Why a segment's header was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadHeader {
    /// Not a segment, or of another version.
    Foreign(&'static str),
    /// A segment whose header has changed.
    Corrupt(&'static str),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES as usize);
        out.put_bytes(&SEGMENT_MAGIC);
        out.put_u32(SEGMENT_VERSION);
        out.put_u32(SEGMENT_HEADER_BYTES as u32);
        out.put_u64(self.first_batch);
        out.put_u64(self.start_lsn);
        out.put_u64(self.salt);
        out.put_u32(crc32c(&out));
        out.resize(SEGMENT_HEADER_BYTES as usize, 0);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        if bytes.len() < SEGMENT_HEADER_BYTES as usize {
            return Err(BadHeader::Foreign("it is shorter than a header"));
        }
        let fields = Self::fields(bytes).map_err(|_| BadHeader::Foreign("it is shorter than a header"))?;
        let (magic, version, header_bytes, header, crc) = fields;
        if !magic.starts_with(SEGMENT_MAGIC_FAMILY) {
            return Err(BadHeader::Foreign("it does not start with WEFTLOG"));
        }
        if crc != crc32c(&bytes[..40]) {
            return Err(BadHeader::Corrupt("the header's checksum does not match"));
        }
        if magic != SEGMENT_MAGIC || version != SEGMENT_VERSION {
            return Err(BadHeader::Foreign(
                "its format version is not one that this release reads",
            ));
        }
        if u64::from(header_bytes) != SEGMENT_HEADER_BYTES || !header.start_lsn.is_multiple_of(SECTOR_BYTES) {
            return Err(BadHeader::Corrupt("the header's fields contradict each other"));
        }
        Ok(header)
    }

    #[allow(
        clippy::type_complexity,
        reason = "the header's fields in their order, used once"
    )]
    fn fields(bytes: &[u8]) -> Result<([u8; 8], u32, u32, Self, u32), CodecError> {
        let mut reader = ByteReader::new(bytes);
        let (magic, version, header_bytes) = (reader.array()?, reader.u32()?, reader.u32()?);
        let header = Self {
            first_batch: reader.u64()?,
            start_lsn: reader.u64()?,
            salt: reader.u64()?,
        };
        Ok((magic, version, header_bytes, header, reader.u32()?))
    }

    /// The position of a file offset behind the header.
    pub(crate) fn lsn_at(&self, offset: usize) -> u64 {
        self.start_lsn
            .wrapping_add((offset as u64).wrapping_sub(SEGMENT_HEADER_BYTES))
    }
}

/// What a record is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
    /// A batch.
    Batch = 1,
    /// Proof that what comes before it was durable. Its batch is the last one before it.
    Seal = 2,
}

/// A record as it was read or is to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub kind: RecordKind,
    pub batch: u64,
    pub durable_to: u64,
    /// Where the payload lies, relative to what the record was parsed from.
    pub payload: Range<usize>,
    /// Where the next record may lie, likewise.
    pub end: usize,
}

/// Length of a record with its padding.
pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
    (RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(ALIGN_BYTES)
}

/// Rounds up to a whole sector.
pub(crate) fn align_to_sector(position: u64) -> u64 {
    position.next_multiple_of(SECTOR_BYTES)
}

/// A record's fields but for position and checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordFields<'a> {
    pub kind: RecordKind,
    pub batch: u64,
    pub durable_to: u64,
    pub payload: &'a [u8],
    /// `crc32c(payload)`, computed before the log's latch was taken.
    pub payload_crc: u32,
}

/// Appends a record that will stand at `lsn` of a segment with this salt.
pub(crate) fn put_record(out: &mut Vec<u8>, fields: &RecordFields<'_>, lsn: u64, salt: u64) {
    let start = out.len();
    out.reserve(record_bytes(fields.payload.len()));
    out.put_bytes(&RECORD_MAGIC);
    out.put_u32(fields.payload.len() as u32);
    out.put_u64(fields.batch);
    out.put_u64(lsn);
    out.put_u64(fields.durable_to);
    out.put_u32(fields.kind as u32);
    let crc = crc32c_append(
        crc32c_append(fields.payload_crc, &out[start..]),
        &salt.to_le_bytes(),
    );
    out.put_u32(crc);
    out.put_bytes(fields.payload);
    out.resize(start + record_bytes(fields.payload.len()), 0);
}

/// What is at an offset of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Parsed {
    /// A valid record at its stated position.
    Record(Record),
    /// Zeros, or the end of the file, where a record could start.
    Nothing,
    /// Neither; the reason.
    Bad(&'static str),
}

/// Parses at an offset of a segment. Accepts any bytes.
pub(crate) fn parse_record(segment: &[u8], offset: usize, header: &SegmentHeader) -> Parsed {
    let rest = segment.get(offset..).unwrap_or(&[]);
    if rest.len() < RECORD_HEADER_BYTES {
        return if rest.iter().all(|byte| *byte == 0) {
            Parsed::Nothing
        } else {
            Parsed::Bad("a record is cut off")
        };
    }
    if rest[..4] == [0; 4] {
        // Padding may be shorter than a header; the next group starts after it.
        let padding = align_to_sector(offset as u64 + 1) as usize - offset;
        let blank = rest[..padding.min(RECORD_HEADER_BYTES)]
            .iter()
            .all(|byte| *byte == 0);
        return if blank {
            Parsed::Nothing
        } else {
            Parsed::Bad("a record has no magic number")
        };
    }
    if rest[..4] != RECORD_MAGIC {
        return Parsed::Bad("a record has a wrong magic number");
    }
    parse_fields(rest, offset, header).unwrap_or_else(Parsed::Bad)
}

fn parse_fields(rest: &[u8], offset: usize, header: &SegmentHeader) -> Result<Parsed, &'static str> {
    let cut_off = |_: CodecError| "a record is cut off";
    let mut reader = ByteReader::new(&rest[RECORD_MAGIC.len()..]);
    let payload_bytes = reader.u32().map_err(cut_off)? as usize;
    let batch = reader.u64().map_err(cut_off)?;
    let lsn = reader.u64().map_err(cut_off)?;
    let durable_to = reader.u64().map_err(cut_off)?;
    let kind = reader.u32().map_err(cut_off)?;
    let crc = reader.u32().map_err(cut_off)?;
    if lsn != header.lsn_at(offset) {
        return Err("a record stands at the wrong position");
    }
    if payload_bytes > PAYLOAD_BYTES_MAX {
        return Err("a record's length is impossible");
    }
    let payload = reader
        .bytes(payload_bytes)
        .map_err(|_| "a record's length exceeds its file")?;
    let fields = &rest[..RECORD_HEADER_BYTES - 4];
    if crc != crc32c_append(crc32c_append(crc32c(payload), fields), &header.salt.to_le_bytes()) {
        return Err("a record's checksum does not match");
    }
    let kind = match kind {
        1 => RecordKind::Batch,
        2 => RecordKind::Seal,
        _ => return Err("a record is of an unknown kind"),
    };
    if durable_to > lsn {
        return Err("a record claims that it was durable before it was written");
    }
    let start = offset + RECORD_HEADER_BYTES;
    let end = offset + record_bytes(payload_bytes);
    Ok(Parsed::Record(Record {
        kind,
        batch,
        durable_to,
        payload: start..start + payload_bytes,
        end,
    }))
}

/// Whether a record might start here: a cheap test before [`parse_record`].
pub(crate) fn may_start_record(segment: &[u8], offset: usize) -> bool {
    segment
        .get(offset..offset + RECORD_MAGIC.len())
        .is_some_and(|bytes| bytes == RECORD_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            first_batch: 7,
            start_lsn: 1024,
            salt: 99,
        }
    }

    fn segment_with(payload: &[u8]) -> Vec<u8> {
        let mut bytes = header().encode();
        let payload_crc = crc32c(payload);
        let fields = RecordFields {
            kind: RecordKind::Batch,
            batch: 7,
            durable_to: 512,
            payload,
            payload_crc,
        };
        put_record(&mut bytes, &fields, 1024, 99);
        bytes
    }

    #[test]
    fn the_bytes_are_those_of_the_format_page() {
        let bytes = segment_with(b"abc");
        assert_eq!(bytes.len(), 512 + 48);
        assert_eq!(bytes[..16], *b"WEFTLOG1\x01\0\0\0\0\x02\0\0");
        assert_eq!(
            bytes[16..40],
            [
                [7, 0, 0, 0, 0, 0, 0, 0],
                [0, 4, 0, 0, 0, 0, 0, 0],
                [99, 0, 0, 0, 0, 0, 0, 0]
            ]
            .concat()
        );
        assert_eq!(bytes[512..520], *b"WREC\x03\0\0\0");
        assert_eq!(
            bytes[520..548],
            [
                &[7, 0, 0, 0, 0, 0, 0, 0][..],
                &[0, 4, 0, 0, 0, 0, 0, 0],
                &[0, 2, 0, 0, 0, 0, 0, 0],
                &[1, 0, 0, 0]
            ]
            .concat()
        );
        assert_eq!(bytes[552..], *b"abc\0\0\0\0\0");
        let frozen = (
            u32::from_le_bytes(*bytes[40..].first_chunk().unwrap()),
            u32::from_le_bytes(*bytes[548..].first_chunk().unwrap()),
        );
        let mut covered = b"abc".to_vec();
        covered.extend_from_slice(&bytes[512..548]);
        covered.extend_from_slice(&99_u64.to_le_bytes());
        assert_eq!(frozen, (crc32c(&bytes[..40]), crc32c(&covered)));
    }

    #[test]
    fn names_come_back_and_others_are_not_segments() {
        assert_eq!(segment_name(815), "log-00000000000000000815.weft");
        assert_eq!(parse_segment_name(&segment_name(u64::MAX)), Some(u64::MAX));
        for name in [
            "log-815.weft",
            "log-0000000000000000081x.weft",
            "log-+0000000000000000815.weft",
            "log-99999999999999999999.weft",
            UNFINISHED_SEGMENT,
            "checkpoint-00000000000000000815.weft",
        ] {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_record_elsewhere_or_under_another_salt_is_none() {
        let bytes = segment_with(b"abc");
        assert!(matches!(parse_record(&bytes, 512, &header()), Parsed::Record(_)));
        let moved = SegmentHeader {
            start_lsn: 2048,
            ..header()
        };
        assert!(matches!(parse_record(&bytes, 512, &moved), Parsed::Bad(_)));
        let salted = SegmentHeader { salt: 98, ..header() };
        assert!(matches!(parse_record(&bytes, 512, &salted), Parsed::Bad(_)));
        assert_eq!(parse_record(&bytes, bytes.len(), &header()), Parsed::Nothing);
        assert_eq!(parse_record(&bytes, usize::MAX, &header()), Parsed::Nothing);
    }

    #[test]
    fn headers_of_others_and_of_later_versions_are_foreign() {
        assert!(matches!(
            SegmentHeader::decode(b"short"),
            Err(BadHeader::Foreign(_))
        ));
        assert!(matches!(
            SegmentHeader::decode(&[b'x'; 512]),
            Err(BadHeader::Foreign(_))
        ));
        let mut later = header().encode();
        later[8] = 2;
        let crc = crc32c(&later[..40]);
        later[40..44].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(
            SegmentHeader::decode(&later),
            Err(BadHeader::Foreign(_))
        ));
    }

    proptest! {
        #[test]
        fn records_come_back(payload: Vec<u8>) {
            let bytes = segment_with(&payload);
            let Parsed::Record(record) = parse_record(&bytes, 512, &header()) else { panic!("not parsed") };
            prop_assert_eq!(&bytes[record.payload], &payload[..]);
            prop_assert_eq!((record.batch, record.durable_to, record.end), (7, 512, bytes.len()));
            prop_assert_eq!(SegmentHeader::decode(&bytes), Ok(header()));
        }

        /// Every flipped bit of a header, a record or its payload is seen (padding carries nothing).
        #[test]
        fn one_flipped_bit_is_seen(payload: Vec<u8>, place: usize) {
            let mut bytes = segment_with(&payload);
            let bit = place % ((40 + payload.len()) * 8);
            bytes[512 + bit / 8] ^= 1 << (bit % 8);
            prop_assert!(matches!(parse_record(&bytes, 512, &header()), Parsed::Bad(_)));
            let bit = place % (44 * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(SegmentHeader::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(mut bytes: Vec<u8>, offset in 0_usize..64) {
            let _ = SegmentHeader::decode(&bytes);
            if let Some(start) = bytes.get_mut(offset..offset + 4) {
                start.copy_from_slice(&RECORD_MAGIC);
            }
            let position = SegmentHeader { first_batch: 1, start_lsn: 0, salt: 0 };
            prop_assert!(!matches!(parse_record(&bytes, offset, &position), Parsed::Record(_)));
        }
    }
}
