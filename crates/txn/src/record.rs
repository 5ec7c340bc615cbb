//! The batch record: what the log keeps of one batch.
//!
//! The record is the input of replay (DESIGN.md, invariant 1): the state after batch N is a function of the
//! state before it and of this record. It holds final placements, so replay never plans again.
//!
//! ```text
//! byte 0       format version (1)
//! varint       catalog version the programs were compiled for
//! i64 LE       clock, microseconds since 1970, taken when the batch closed
//! u64 LE       digest of the whole state after the batch, from the stored bytes
//! varint       number of program definitions, then each: varint length, program bytes
//! varint       number of members, then each, in (wave, index) order:
//!                tag 0: one-shot program: 16 bytes program hash, varint length, encoded inputs
//!                tag 1: session commit: varint number of catalog operations, each length-prefixed,
//!                       then varint length, write set (see `write_set`)
//! ```
//!
//! A program is defined in the first record that uses it after a checkpoint began, so the log that a
//! checkpoint leaves behind explains itself. Checksums and lengths of the whole record are the log's
//! business (crate `wal`).

use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_program::ProgramHash;

const FORMAT_VERSION: u8 = 1;
const TAG_PROGRAM: u8 = 0;
const TAG_COMMIT: u8 = 1;

/// One member of a batch as the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberRecord {
    /// A one-shot program and its bound inputs.
    Program {
        /// The program's hash; its bytes stand in this record or an earlier one.
        hash: ProgramHash,
        /// Inputs, as one row encoded with the layout of the program's inputs.
        inputs: Vec<u8>,
    },
    /// An interactive transaction's commit.
    Commit {
        /// Catalog operations, each encoded, in order. They run before the write set.
        catalog_ops: Vec<Vec<u8>>,
        /// The encoded write set.
        write_set: Vec<u8>,
    },
}

/// One batch as the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchRecord {
    /// Catalog version before the batch.
    pub catalog_version: u64,
    /// Microseconds since 1970 when the batch closed.
    pub clock_micros: i64,
    /// State digest after the batch.
    pub digest: u64,
    /// Programs used from here on, encoded.
    pub programs: Vec<Vec<u8>>,
    /// The members in execution order.
    pub members: Vec<MemberRecord>,
}

/// Writes the head of a record: all that stands before the members.
pub(crate) fn put_head(
    out: &mut Vec<u8>,
    catalog_version: u64,
    clock_micros: i64,
    digest: u64,
    programs: &[Vec<u8>],
    member_count: usize,
) {
    out.put_u8(FORMAT_VERSION);
    out.put_varint(catalog_version);
    out.put_i64(clock_micros);
    out.put_u64(digest);
    out.put_varint(programs.len() as u64);
    for program in programs {
        out.put_len_prefixed(program);
    }
    out.put_varint(member_count as u64);
}

/// Writes a one-shot member.
pub(crate) fn put_program(out: &mut Vec<u8>, hash: &ProgramHash, inputs: &[u8]) {
    out.put_u8(TAG_PROGRAM);
    out.extend_from_slice(&hash.0);
    out.put_len_prefixed(inputs);
}

/// Writes a session's commit.
pub(crate) fn put_commit(out: &mut Vec<u8>, catalog_ops: &[Vec<u8>], write_set: &[u8]) {
    out.put_u8(TAG_COMMIT);
    out.put_varint(catalog_ops.len() as u64);
    for op in catalog_ops {
        out.put_len_prefixed(op);
    }
    out.put_len_prefixed(write_set);
}

impl BatchRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_head(
            &mut out,
            self.catalog_version,
            self.clock_micros,
            self.digest,
            &self.programs,
            self.members.len(),
        );
        for member in &self.members {
            match member {
                MemberRecord::Program { hash, inputs } => put_program(&mut out, hash, inputs),
                MemberRecord::Commit {
                    catalog_ops,
                    write_set,
                } => put_commit(&mut out, catalog_ops, write_set),
            }
        }
        out
    }

    /// Reads a record. Every length is checked against what is there; trailing bytes are an error.
    pub fn decode(bytes: &[u8]) -> Result<BatchRecord, CodecError> {
        let mut reader = ByteReader::new(bytes);
        let version = reader.u8()?;
        if version != FORMAT_VERSION {
            return Err(reader.error("batch record: unknown format version"));
        }
        let mut record = BatchRecord {
            catalog_version: reader.varint()?,
            clock_micros: reader.i64()?,
            digest: reader.u64()?,
            ..BatchRecord::default()
        };
        for _ in 0..reader.varint()? {
            record.programs.push(reader.len_prefixed()?.to_vec());
        }
        for _ in 0..reader.varint()? {
            record.members.push(decode_member(&mut reader)?);
        }
        reader.finish()?;
        Ok(record)
    }
}

fn decode_member(reader: &mut ByteReader<'_>) -> Result<MemberRecord, CodecError> {
    match reader.u8()? {
        TAG_PROGRAM => {
            let hash = ProgramHash(reader.array()?);
            Ok(MemberRecord::Program {
                hash,
                inputs: reader.len_prefixed()?.to_vec(),
            })
        }
        TAG_COMMIT => {
            let mut catalog_ops = Vec::new();
            for _ in 0..reader.varint()? {
                catalog_ops.push(reader.len_prefixed()?.to_vec());
            }
            Ok(MemberRecord::Commit {
                catalog_ops,
                write_set: reader.len_prefixed()?.to_vec(),
            })
        }
        _ => Err(reader.error("batch record: unknown member tag")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn member() -> impl Strategy<Value = MemberRecord> {
        prop_oneof![
            (any::<[u8; 16]>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(hash, inputs)| {
                MemberRecord::Program {
                    hash: ProgramHash(hash),
                    inputs,
                }
            }),
            (
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..3),
                prop::collection::vec(any::<u8>(), 0..40)
            )
                .prop_map(|(catalog_ops, write_set)| MemberRecord::Commit {
                    catalog_ops,
                    write_set
                }),
        ]
    }

    proptest! {
        #[test]
        fn round_trip(catalog_version: u64, clock_micros: i64, digest: u64,
                      programs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..3),
                      members in prop::collection::vec(member(), 0..8)) {
            let record = BatchRecord { catalog_version, clock_micros, digest, programs, members };
            prop_assert_eq!(BatchRecord::decode(&record.encode()).unwrap(), record);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = BatchRecord::decode(&bytes);
        }

        #[test]
        fn a_cut_record_is_an_error(members in prop::collection::vec(member(), 1..4), cut in 0.0f64..1.0) {
            let bytes = BatchRecord { members, ..BatchRecord::default() }.encode();
            let keep = (bytes.len() as f64 * cut) as usize;
            prop_assert!(BatchRecord::decode(&bytes[..keep]).is_err());
        }
    }
}
