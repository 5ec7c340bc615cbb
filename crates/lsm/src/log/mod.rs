//! The engine's log: every batch before it goes into the memtable, one file per memtable.
//!
//! # Layout
//!
//! A file `log-<number, 12 digits>.wal` is a sequence of records. Where a sync may have come between two of
//! them, the second begins at a multiple of 512 bytes, with zeros before it.
//!
//! ```text
//! crc u32            CRC-32C of all that follows in the record
//! payload length u32
//! log number u64
//! first seqno u64    of the batch
//! after u64          the last write that was logged before this batch
//! count u32          operations; 0 in a seal
//! durable u64        logged writes up to here were durable when this record was appended
//! payload            the batch as encoded
//! ```
//!
//! # Invariants
//!
//! 1. Records are in order of sequence numbers across all files, and each names the write that was logged
//!    before it. Reading stops where that chain ends.
//! 2. A 512-byte sector that holds durable bytes is never written again.
//! 3. A file takes records only when its name is durable.
//! 4. A missing or bad record is *corrupt* if a later record says that it was durable; otherwise it is
//!    *torn*, and neither it nor any later one was ever acknowledged as durable.

mod read;
mod window;
mod write;

use weft_ops::crc32c;
use weft_ops::key::SeqNo;

use crate::batch::BATCH_BYTES_MAX;

pub(crate) use read::{LogEnd, read_logs};
pub(crate) use write::{Appended, LogFile, SYNC_LOG, SYNC_LOG_DIR, SYNC_LOG_OLDER};

/// Bytes of a record before its payload.
pub(crate) const RECORD_HEADER_BYTES: usize = 44;
const SECTOR_BYTES: usize = 512;

/// A log file's name.
pub(crate) fn log_name(number: u64) -> String {
    format!("log-{number:012}.wal")
}

/// The number in a log file's name.
pub(crate) fn log_number(name: &str) -> Option<u64> {
    name.strip_prefix("log-")?.strip_suffix(".wal")?.parse().ok()
}

/// A record as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    pub log_number: u64,
    pub first: SeqNo,
    pub after: SeqNo,
    pub count: u32,
    pub durable: SeqNo,
    pub payload: &'a [u8],
}

impl Record<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.log_number.to_le_bytes());
        out.extend_from_slice(&self.first.0.to_le_bytes());
        out.extend_from_slice(&self.after.0.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.durable.0.to_le_bytes());
        out.extend_from_slice(self.payload);
        let crc = crc32c(out.get(start + 4..).unwrap_or_default());
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Checksum and length of a record as its header states them; `None` if no record has such a header.
    pub(crate) fn stated(head: &[u8]) -> Option<(u32, usize)> {
        let head = head.first_chunk::<RECORD_HEADER_BYTES>()?;
        let mut reader = weft_base::ByteReader::new(head);
        let (crc, payload) = (reader.u32().ok()?, reader.u32().ok()? as usize);
        let (_, first, after) = (reader.u64().ok()?, reader.u64().ok()?, reader.u64().ok()?);
        let sound = payload <= BATCH_BYTES_MAX && first > after && first <= SeqNo::MAX.0;
        sound.then_some((crc, RECORD_HEADER_BYTES + payload))
    }

    /// The record at the beginning of `bytes`, and its length; `None` if there is no whole one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
        let (head, rest) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let mut reader = weft_base::ByteReader::new(head);
        let crc = reader.u32().ok()?;
        let payload = rest.get(..reader.u32().ok()? as usize)?;
        let record = Record {
            log_number: reader.u64().ok()?,
            first: SeqNo(reader.u64().ok()?),
            after: SeqNo(reader.u64().ok()?),
            count: reader.u32().ok()?,
            durable: SeqNo(reader.u64().ok()?),
            payload,
        };
        let len = RECORD_HEADER_BYTES + payload.len();
        let sound = record.first > record.after && record.first <= SeqNo::MAX;
        (sound && crc32c(bytes.get(4..len)?) == crc).then_some((record, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_read_back_and_changes_are_found(
            payload: Vec<u8>,
            at: prop::sample::Index,
            bit in 0_u8..8,
        ) {
            let (first, after, durable) = (SeqNo(7), SeqNo(6), SeqNo(5));
            let record = Record { log_number: 3, first, after, count: 2, durable, payload: &payload };
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let len = bytes.len();
            bytes.extend_from_slice(b"behind");
            prop_assert_eq!(Record::parse(&bytes), Some((record, len)));
            bytes[at.index(len)] ^= 1 << bit;
            prop_assert_eq!(Record::parse(&bytes), None);
        }
    }
}
