//! Names and framing of checkpoint files. `docs/formats/checkpoint.md` is the same in prose.
//!
//! ```text
//! prefix   magic "WEFTCKPT" | version u32 | 0 u32 | batch u64                   24 bytes
//! block    kind u8 | length u32 | crc32c u32 | payload                      9 bytes and the payload
//!   1 header   digest u64 | catalog, length first | extra, length first                the first block, once
//!   2 rows     table u32 | count u32 | count x ( row id 16 | batch u64 | row, length first )
//!   3 footer   row count u64 | block count u64                                         the last block, once
//! ```
//!
//! All numbers are little endian; "length first" is a varint length and the bytes. The checksum of a block
//! covers the prefix's batch, the block's number from 0, its kind, its length and its payload, so a block
//! that was moved, repeated or left over from another checkpoint is found out.

use weft_base::{BatchId, ByteWriter};
use weft_ops::{crc32c, crc32c_append};

pub(super) const MAGIC: [u8; 8] = *b"WEFTCKPT";
pub(super) const VERSION: u32 = 1;
pub(super) const PREFIX_BYTES: usize = 24;
pub(super) const BLOCK_HEAD_BYTES: usize = 9;
/// Payload bytes at which a block of rows is closed. A longer row makes a longer block.
pub(super) const BLOCK_BYTES_TARGET: usize = 256 * 1024;

pub(super) const KIND_HEADER: u8 = 1;
pub(super) const KIND_ROWS: u8 = 2;
pub(super) const KIND_FOOTER: u8 = 3;

const NAME_START: &str = "checkpoint-";
const NAME_END: &str = ".weft";
const PARTIAL_END: &str = ".partial";

/// The name of the checkpoint of a batch: sorts by batch.
pub fn file_name(batch: BatchId) -> String {
    format!("{NAME_START}{:020}{NAME_END}", batch.0)
}

/// The batch in a checkpoint's name; `None` for any other name, partial ones included.
pub fn parse_file_name(name: &str) -> Option<BatchId> {
    let digits = name.strip_prefix(NAME_START)?.strip_suffix(NAME_END)?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(BatchId)
}

pub(super) fn partial_name(batch: BatchId) -> String {
    file_name(batch) + PARTIAL_END
}

pub(super) fn is_partial_name(name: &str) -> bool {
    name.strip_suffix(PARTIAL_END).and_then(parse_file_name).is_some()
}

pub(super) fn put_prefix(out: &mut Vec<u8>, batch: BatchId) {
    out.put_bytes(&MAGIC);
    out.put_u32(VERSION);
    out.put_u32(0);
    out.put_u64(batch.0);
}

/// The head of a block, checksum included.
pub(super) fn block_head(batch: BatchId, number: u64, kind: u8, payload: &[u8]) -> [u8; BLOCK_HEAD_BYTES] {
    // Blocks are closed at BLOCK_BYTES_TARGET plus one row, and a row is below 4 GiB less this.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut head = [0; BLOCK_HEAD_BYTES];
    let mut bytes = Vec::with_capacity(BLOCK_HEAD_BYTES);
    bytes.put_u8(kind);
    bytes.put_u32(length);
    bytes.put_u32(block_crc(batch, number, kind, payload));
    head.copy_from_slice(&bytes);
    head
}

pub(super) fn block_crc(batch: BatchId, number: u64, kind: u8, payload: &[u8]) -> u32 {
    let mut place = Vec::with_capacity(21);
    place.put_u64(batch.0);
    place.put_u64(number);
    place.put_u8(kind);
    place.put_u32(payload.len() as u32);
    crc32c_append(crc32c(&place), payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        let name = file_name(BatchId(42));
        assert_eq!(name, "checkpoint-00000000000000000042.weft");
        assert_eq!(parse_file_name(&name), Some(BatchId(42)));
        assert_eq!(
            parse_file_name(&file_name(BatchId(u64::MAX))),
            Some(BatchId(u64::MAX))
        );
        for other in [
            "checkpoint-42.weft",
            "checkpoint-0000000000000000004x.weft",
            "log",
            "",
        ] {
            assert_eq!(parse_file_name(other), None);
        }
        assert_eq!(parse_file_name("checkpoint-99999999999999999999.weft"), None);
        assert!(is_partial_name(&partial_name(BatchId(42))));
        assert!(!is_partial_name(&name));
        assert_eq!(parse_file_name(&partial_name(BatchId(42))), None);
    }
}
