//! Tasks and outputs as bytes: what is sent to a unit and what comes back.
//!
//! Each is a frame: magic (4 bytes), payload, CRC-32C over both (4 bytes). All numbers in the payload are
//! varints but hashes (8 bytes); bytes and lists stand behind their count; an optional item behind 0 or 1.
//!
//! ```text
//! task    "WMT1"  runs: list of list of block
//!                 snapshots: list | bottom u8 | range tombstones: list of (start, end, seqno)
//!                 lower: option of bytes | upper: option of bytes
//!                 block_bytes | restart_interval | compression u8 | output_bytes_max | key_hashes u8
//! output  "WMO1"  blocks: list of (bytes, first key, last key, entry_count)
//!                 key hashes: list of (list of u64)
//!                 entries_in | entries_out | duplicate | shadowed | range_deleted | bottom_tombstone
//! ```

use bytes::Bytes;
use weft_base::codec::{ByteReader, ByteWriter, CodecError};

use super::{Dropped, MergeOutput, MergeTask, RangeTombstone, Run};
use crate::block::{BlockOptions, Compression, FinishedBlock};
use crate::crc32c;
use crate::key::SeqNo;

const TASK_MAGIC: [u8; 4] = *b"WMT1";
const OUTPUT_MAGIC: [u8; 4] = *b"WMO1";

impl MergeTask {
    /// Length of all input blocks together.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        let blocks = self.runs.iter().flat_map(|run| &run.blocks);
        blocks.map(|block| block.len() as u64).sum()
    }

    /// The task as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.block_bytes() as usize + 256);
        out.put_bytes(&TASK_MAGIC);
        out.put_varint(self.runs.len() as u64);
        for run in &self.runs {
            out.put_varint(run.blocks.len() as u64);
            for block in &run.blocks {
                out.put_len_prefixed(block);
            }
        }
        out.put_varint(self.snapshots.len() as u64);
        for snapshot in &self.snapshots {
            out.put_varint(snapshot.0);
        }
        out.put_bool(self.bottom);
        out.put_varint(self.range_tombstones.len() as u64);
        for tombstone in &self.range_tombstones {
            out.put_len_prefixed(&tombstone.start);
            out.put_len_prefixed(&tombstone.end);
            out.put_varint(tombstone.seqno.0);
        }
        for bound in [&self.lower, &self.upper] {
            out.put_bool(bound.is_some());
            if let Some(bound) = bound {
                out.put_len_prefixed(bound);
            }
        }
        out.put_varint(u64::from(self.output.block_bytes));
        out.put_varint(u64::from(self.output.restart_interval));
        out.put_u8(self.output.compression as u8);
        out.put_varint(self.output_bytes_max);
        out.put_bool(self.key_hashes);
        seal(out)
    }

    /// The task that `frame` holds. Blocks share its memory.
    ///
    /// # Errors
    /// A bad checksum or payload, and where.
    pub fn decode(frame: &Bytes) -> Result<Self, CodecError> {
        let mut reader = unseal(frame, TASK_MAGIC)?;
        let mut runs = Vec::new();
        for _ in 0..reader.count(1)? {
            let mut blocks = Vec::new();
            for _ in 0..reader.count(1)? {
                blocks.push(frame.slice_ref(reader.len_prefixed()?));
            }
            runs.push(Run { blocks });
        }
        let mut snapshots = Vec::new();
        for _ in 0..reader.count(1)? {
            snapshots.push(SeqNo(reader.varint()?));
        }
        let bottom = reader.bool()?;
        let mut range_tombstones = Vec::new();
        for _ in 0..reader.count(3)? {
            range_tombstones.push(RangeTombstone {
                start: frame.slice_ref(reader.len_prefixed()?),
                end: frame.slice_ref(reader.len_prefixed()?),
                seqno: SeqNo(reader.varint()?),
            });
        }
        let lower = optional(&mut reader, frame)?;
        let upper = optional(&mut reader, frame)?;
        let block_bytes = reader.varint_u32()?;
        let restart_interval =
            u16::try_from(reader.varint()?).map_err(|_| reader.error("restart interval exceeds 16 bits"))?;
        let compression = Compression::from_u8(reader.u8()?).ok_or(reader.error("unknown compression"))?;
        let task = Self {
            runs,
            snapshots,
            bottom,
            range_tombstones,
            lower,
            upper,
            output: BlockOptions {
                block_bytes,
                restart_interval,
                compression,
            },
            output_bytes_max: reader.varint()?,
            key_hashes: reader.bool()?,
        };
        reader.finish()?;
        Ok(task)
    }
}

impl MergeOutput {
    /// The output as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.block_bytes() as usize + 256);
        out.put_bytes(&OUTPUT_MAGIC);
        out.put_varint(self.blocks.len() as u64);
        for block in &self.blocks {
            out.put_len_prefixed(&block.bytes);
            out.put_len_prefixed(&block.first_key);
            out.put_len_prefixed(&block.last_key);
            out.put_varint(u64::from(block.entry_count));
        }
        out.put_varint(self.key_hashes.len() as u64);
        for hashes in &self.key_hashes {
            out.put_varint(hashes.len() as u64);
            for hash in hashes {
                out.put_u64(*hash);
            }
        }
        let Dropped {
            duplicate,
            shadowed,
            range_deleted,
            bottom_tombstone,
        } = self.dropped;
        for count in [
            self.entries_in,
            self.entries_out,
            duplicate,
            shadowed,
            range_deleted,
            bottom_tombstone,
        ] {
            out.put_varint(count);
        }
        seal(out)
    }

    /// The output that `frame` holds. Blocks share its memory; they are not opened here.
    ///
    /// # Errors
    /// A bad checksum or payload, and where; counts that do not add up.
    pub fn decode(frame: &Bytes) -> Result<Self, CodecError> {
        let mut reader = unseal(frame, OUTPUT_MAGIC)?;
        let mut blocks = Vec::new();
        for _ in 0..reader.count(4)? {
            blocks.push(FinishedBlock {
                bytes: frame.slice_ref(reader.len_prefixed()?),
                first_key: frame.slice_ref(reader.len_prefixed()?),
                last_key: frame.slice_ref(reader.len_prefixed()?),
                entry_count: reader.varint_u32()?,
            });
        }
        let mut key_hashes = Vec::new();
        for _ in 0..reader.count(1)? {
            let count = reader.count(8)?;
            let mut hashes = Vec::with_capacity(count);
            for _ in 0..count {
                hashes.push(reader.u64()?);
            }
            key_hashes.push(hashes);
        }
        let output = Self {
            blocks,
            key_hashes,
            entries_in: reader.varint()?,
            entries_out: reader.varint()?,
            dropped: Dropped {
                duplicate: reader.varint()?,
                shadowed: reader.varint()?,
                range_deleted: reader.varint()?,
                bottom_tombstone: reader.varint()?,
            },
        };
        reader.finish()?;
        if !output.adds_up() {
            return Err(reader.error("entries in are not entries out and dropped"));
        }
        Ok(output)
    }

    /// Whether every entry read was either put out or dropped, and every one put out lies in a block.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let Dropped {
            duplicate,
            shadowed,
            range_deleted,
            bottom_tombstone,
        } = self.dropped;
        let dropped = [duplicate, shadowed, range_deleted, bottom_tombstone];
        let all = dropped
            .iter()
            .try_fold(self.entries_out, |sum, &count| sum.checked_add(count));
        let in_blocks: u64 = self.blocks.iter().map(|block| u64::from(block.entry_count)).sum();
        all == Some(self.entries_in) && in_blocks == self.entries_out
    }
}

fn optional(reader: &mut ByteReader<'_>, frame: &Bytes) -> Result<Option<Bytes>, CodecError> {
    Ok(if reader.bool()? {
        Some(frame.slice_ref(reader.len_prefixed()?))
    } else {
        None
    })
}

fn seal(mut out: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&out);
    out.put_u32(crc);
    out
}

fn unseal(frame: &[u8], magic: [u8; 4]) -> Result<ByteReader<'_>, CodecError> {
    let Some((payload, crc)) = frame.split_last_chunk::<4>() else {
        return Err(CodecError::new(0, "unexpected end"));
    };
    if crc32c(payload) != u32::from_le_bytes(*crc) {
        return Err(CodecError::new(0, "checksum does not match"));
    }
    let mut reader = ByteReader::new(payload);
    if reader.array::<4>()? != magic {
        return Err(CodecError::new(0, "not a frame of this kind"));
    }
    Ok(reader)
}
