//! The batch record: what the log keeps of one batch.
//!
//! The record is the input of replay (DESIGN.md, invariant 1): the state after batch N is a function of the
//! state before it and of this record. It holds final placements, so replay never plans again.
//!
//! ```text
//! byte 0       format version (4)
//! varint       catalog version the programs were compiled for
//! i64 LE       clock, microseconds since 1970, taken when the batch closed
//! u64 LE       digest of the whole state after the batch, from the stored bytes
//! varint       number of program definitions, then each: varint length, program bytes
//! varint       number of prepared transactions, then each: varint length, definition (see `PreparedRecord`)
//! varint       number of prepared transactions that are rolled back, then each: length-prefixed name
//! varint       number of members, then each, in (wave, index) order:
//!                tag 0: one-shot program: 16 bytes program hash, varint length, encoded inputs
//!                tag 1: session commit: varint number of catalog operations, each length-prefixed,
//!                       then varint length, write set (see `write_set`)
//!                tag 4: commit of a prepared transaction: length-prefixed name
//!                tag 2, 3, 6: the same, by the first member of every wave but wave 0
//! ```
//!
//! A record of version 3 has no prepared transactions. One of version 2 was made when programs were not
//! charged for the bytes that they move, and its programs are replayed so ([`BatchRecord::budget`]). One of
//! version 1 has one wave as well.
//!
//! A program is defined in the first record that uses it after a checkpoint began, and a transaction that
//! stays prepared is defined again, so the log that a checkpoint leaves behind is self-contained. Checksum
//! and length of the whole record are the log's responsibility (crate `wal`).

use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_program::{Budget, ProgramHash};

const FORMAT_VERSION: u8 = 4;
/// As before, without prepared transactions.
const FORMAT_VERSION_ONE_PHASE: u8 = 3;
/// Records of programs that were charged by the instruction alone.
const FORMAT_VERSION_INSTRUCTIONS: u8 = 2;
/// As before, without waves.
const FORMAT_VERSION_ONE_WAVE: u8 = 1;

/// What a program may spend. Exceeding it is an error of that program alone, and a replay must stop at
/// the same instruction: so number and costs are part of the meaning of a record's version, and a build
/// with others must use another version.
pub const BUDGET: Budget = Budget::new(INSTRUCTIONS_MAX);
/// See [`BUDGET`].
pub const INSTRUCTIONS_MAX: u32 = 1_000_000;
/// The same for records of versions 1 and 2.
pub const BUDGET_OF_INSTRUCTIONS: Budget = Budget::of_instructions(INSTRUCTIONS_MAX);

const TAG_PROGRAM: u8 = 0;
const TAG_COMMIT: u8 = 1;
const TAG_COMMIT_PREPARED: u8 = 4;
/// In a tag: the member begins a wave.
const BEGINS_WAVE: u8 = 2;

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
    /// The commit of a transaction that was prepared before.
    CommitPrepared {
        /// Its name.
        name: String,
    },
}

/// A transaction that was prepared: all that its commit needs, in this life of the database or the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedRecord {
    /// Its name; no other prepared transaction has it.
    pub name: String,
    /// The user who prepared it.
    pub owner: String,
    /// Microseconds since 1970, when it was prepared.
    pub prepared_micros: i64,
    /// What it keeps locked until its end.
    pub locks: Vec<LockRequest>,
    /// Catalog operations, each encoded, in order.
    pub catalog_ops: Vec<Vec<u8>>,
    /// The encoded write set.
    pub write_set: Vec<u8>,
}

/// Bytes of a lock in a record.
const LOCK_BYTES: usize = 9;

impl PreparedRecord {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.locks.len() * LOCK_BYTES + self.write_set.len());
        out.put_str_prefixed(&self.name);
        out.put_str_prefixed(&self.owner);
        out.put_i64(self.prepared_micros);
        out.put_varint(self.locks.len() as u64);
        for lock in &self.locks {
            out.put_u64(lock.resource.0);
            out.put_u8(lock.mode as u8);
        }
        out.put_varint(self.catalog_ops.len() as u64);
        for op in &self.catalog_ops {
            out.put_len_prefixed(op);
        }
        out.put_len_prefixed(&self.write_set);
        out
    }

    /// Reads it; trailing bytes are an error.
    pub fn decode(bytes: &[u8]) -> Result<PreparedRecord, CodecError> {
        let mut reader = ByteReader::new(bytes);
        let (name, owner) = (
            reader.str_prefixed()?.to_string(),
            reader.str_prefixed()?.to_string(),
        );
        let prepared_micros = reader.i64()?;
        let lock_count = reader.count(LOCK_BYTES)?;
        let mut locks = Vec::with_capacity(lock_count);
        for _ in 0..lock_count {
            let resource = ResourceId(reader.u64()?);
            let mode = LockMode::ALL.get(usize::from(reader.u8()?)).copied();
            let (Some(_), Some(mode)) = (resource.kind(), mode) else {
                return Err(reader.error("batch record: unknown kind or mode of a lock"));
            };
            locks.push(LockRequest { resource, mode });
        }
        let mut catalog_ops = Vec::new();
        for _ in 0..reader.varint()? {
            catalog_ops.push(reader.len_prefixed()?.to_vec());
        }
        let write_set = reader.len_prefixed()?.to_vec();
        reader.finish()?;
        Ok(PreparedRecord {
            name,
            owner,
            prepared_micros,
            locks,
            catalog_ops,
            write_set,
        })
    }
}

/// One batch as the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchRecord {
    /// What each program was given.
    pub budget: Budget,
    /// Catalog version before the batch.
    pub catalog_version: u64,
    /// Microseconds since 1970 when the batch closed.
    pub clock_micros: i64,
    /// State digest after the batch.
    pub digest: u64,
    /// Programs used from here on, encoded.
    pub programs: Vec<Vec<u8>>,
    /// Transactions that this batch prepares, or that were prepared before.
    pub prepared: Vec<PreparedRecord>,
    /// Names of prepared transactions that end here without effect; unknown ones were rolled back before the
    /// checkpoint that the log follows.
    pub rolled_back: Vec<String>,
    /// The members in execution order, wave after wave.
    pub members: Vec<MemberRecord>,
    /// Members before and in each wave, in order: the last one is the number of members. No wave is empty.
    pub wave_ends: Vec<usize>,
}

impl Default for BatchRecord {
    /// A batch of nothing.
    fn default() -> Self {
        BatchRecord {
            budget: BUDGET,
            catalog_version: 0,
            clock_micros: 0,
            digest: 0,
            programs: Vec::new(),
            prepared: Vec::new(),
            rolled_back: Vec::new(),
            members: Vec::new(),
            wave_ends: Vec::new(),
        }
    }
}

/// The head of a record: everything before the members.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    /// What its programs were charged for decides the version.
    pub budget: Budget,
    pub catalog_version: u64,
    pub clock_micros: i64,
    pub digest: u64,
    /// Programs, encoded.
    pub programs: Vec<Vec<u8>>,
    /// Prepared transactions, encoded.
    pub prepared: Vec<Vec<u8>>,
    /// Names of those that are rolled back.
    pub rolled_back: Vec<&'a str>,
    pub member_count: usize,
}

impl Head<'_> {
    /// Writes it; returns the offset of the digest.
    pub(crate) fn put(&self, out: &mut Vec<u8>) -> usize {
        let is_old = self.budget == BUDGET_OF_INSTRUCTIONS;
        out.put_u8(if is_old {
            FORMAT_VERSION_INSTRUCTIONS
        } else {
            FORMAT_VERSION
        });
        out.put_varint(self.catalog_version);
        out.put_i64(self.clock_micros);
        let digest_at = out.len();
        out.put_u64(self.digest);
        let put_all = |out: &mut Vec<u8>, definitions: &[Vec<u8>]| {
            out.put_varint(definitions.len() as u64);
            definitions.iter().for_each(|bytes| out.put_len_prefixed(bytes));
        };
        put_all(out, &self.programs);
        if !is_old {
            put_all(out, &self.prepared);
            out.put_varint(self.rolled_back.len() as u64);
            self.rolled_back
                .iter()
                .for_each(|name| out.put_str_prefixed(name));
        }
        out.put_varint(self.member_count as u64);
        digest_at
    }
}

/// Writes the digest into a record whose head left it open.
pub(crate) fn set_digest(record: &mut [u8], digest_at: usize, digest: u64) {
    if let Some(place) = record.get_mut(digest_at..).and_then(<[u8]>::first_chunk_mut) {
        *place = digest.to_le_bytes();
    }
}

const fn tag(kind: u8, begins_wave: bool) -> u8 {
    if begins_wave { kind | BEGINS_WAVE } else { kind }
}

/// Writes a one-shot member. `begins_wave`: it is the first of a wave other than wave 0.
pub(crate) fn put_program(out: &mut Vec<u8>, begins_wave: bool, hash: &ProgramHash, inputs: &[u8]) {
    out.put_u8(tag(TAG_PROGRAM, begins_wave));
    out.extend_from_slice(&hash.0);
    out.put_len_prefixed(inputs);
}

/// Writes a session's commit. `begins_wave`: it is the first of a wave other than wave 0.
pub(crate) fn put_commit(out: &mut Vec<u8>, begins_wave: bool, catalog_ops: &[Vec<u8>], write_set: &[u8]) {
    out.put_u8(tag(TAG_COMMIT, begins_wave));
    out.put_varint(catalog_ops.len() as u64);
    for op in catalog_ops {
        out.put_len_prefixed(op);
    }
    out.put_len_prefixed(write_set);
}

/// Writes the commit of a prepared transaction. `begins_wave`: it is the first of a wave other than wave 0.
pub(crate) fn put_commit_prepared(out: &mut Vec<u8>, begins_wave: bool, name: &str) {
    out.put_u8(tag(TAG_COMMIT_PREPARED, begins_wave));
    out.put_str_prefixed(name);
}

impl BatchRecord {
    /// The record's bytes; a record of an old version has no prepared transactions. Invalid ends of waves
    /// are left out, so that the members of what should be two waves become one.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let head = Head {
            budget: self.budget,
            catalog_version: self.catalog_version,
            clock_micros: self.clock_micros,
            digest: self.digest,
            programs: self.programs.clone(),
            prepared: self.prepared.iter().map(PreparedRecord::encode).collect(),
            rolled_back: self.rolled_back.iter().map(String::as_str).collect(),
            member_count: self.members.len(),
        };
        head.put(&mut out);
        let mut ends = self.wave_ends.iter().filter(|end| **end > 0).peekable();
        for (place, member) in self.members.iter().enumerate() {
            let begins_wave = ends.next_if_eq(&&place).is_some();
            match member {
                MemberRecord::Program { hash, inputs } => put_program(&mut out, begins_wave, hash, inputs),
                MemberRecord::Commit {
                    catalog_ops,
                    write_set,
                } => put_commit(&mut out, begins_wave, catalog_ops, write_set),
                MemberRecord::CommitPrepared { name } => put_commit_prepared(&mut out, begins_wave, name),
            }
        }
        out
    }

    /// Reads a record. Every length is checked against what is there; trailing bytes are an error.
    pub fn decode(bytes: &[u8]) -> Result<BatchRecord, CodecError> {
        let mut reader = ByteReader::new(bytes);
        let version = reader.u8()?;
        let (has_waves, budget) = match version {
            FORMAT_VERSION | FORMAT_VERSION_ONE_PHASE => (true, BUDGET),
            FORMAT_VERSION_INSTRUCTIONS => (true, BUDGET_OF_INSTRUCTIONS),
            FORMAT_VERSION_ONE_WAVE => (false, BUDGET_OF_INSTRUCTIONS),
            _ => return Err(reader.error("batch record: unknown format version")),
        };
        let mut record = BatchRecord {
            budget,
            catalog_version: reader.varint()?,
            clock_micros: reader.i64()?,
            digest: reader.u64()?,
            ..BatchRecord::default()
        };
        for _ in 0..reader.varint()? {
            record.programs.push(reader.len_prefixed()?.to_vec());
        }
        if version == FORMAT_VERSION {
            for _ in 0..reader.varint()? {
                record
                    .prepared
                    .push(PreparedRecord::decode(reader.len_prefixed()?)?);
            }
            for _ in 0..reader.varint()? {
                record.rolled_back.push(reader.str_prefixed()?.to_string());
            }
        }
        for _ in 0..reader.varint()? {
            let tag = reader.u8()?;
            if tag & BEGINS_WAVE != 0 {
                if record.members.is_empty() || !has_waves {
                    return Err(reader.error("batch record: a wave that nothing precedes"));
                }
                record.wave_ends.push(record.members.len());
            }
            record
                .members
                .push(decode_member(version, tag & !BEGINS_WAVE, &mut reader)?);
        }
        if !record.members.is_empty() {
            record.wave_ends.push(record.members.len());
        }
        reader.finish()?;
        Ok(record)
    }
}

fn decode_member(version: u8, kind: u8, reader: &mut ByteReader<'_>) -> Result<MemberRecord, CodecError> {
    match kind {
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
        TAG_COMMIT_PREPARED if version == FORMAT_VERSION => Ok(MemberRecord::CommitPrepared {
            name: reader.str_prefixed()?.to_string(),
        }),
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

    fn new_member() -> impl Strategy<Value = MemberRecord> {
        let prepared = ".{0,9}".prop_map(|name| MemberRecord::CommitPrepared { name });
        prop_oneof![3 => member(), 1 => prepared]
    }

    fn prepared() -> impl Strategy<Value = PreparedRecord> {
        let lock = (any::<u64>(), 0..6_usize).prop_map(|(number, mode)| LockRequest {
            resource: ResourceId::other(number),
            mode: LockMode::ALL[mode],
        });
        let ops = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..3);
        let (locks, writes) = (
            prop::collection::vec(lock, 0..5),
            prop::collection::vec(any::<u8>(), 0..40),
        );
        (".{0,9}", ".{0,9}", any::<i64>(), locks, ops, writes).prop_map(
            |(name, owner, prepared_micros, locks, catalog_ops, write_set)| PreparedRecord {
                name,
                owner,
                prepared_micros,
                locks,
                catalog_ops,
                write_set,
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip(catalog_version: u64, clock_micros: i64, digest: u64,
                      programs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..3),
                      prepared in prop::collection::vec(prepared(), 0..3),
                      rolled_back in prop::collection::vec(".{0,9}", 0..3),
                      waves in prop::collection::vec(prop::collection::vec(new_member(), 1..4), 0..4)) {
            let wave_ends = waves.iter().scan(0, |end, wave| { *end += wave.len(); Some(*end) }).collect();
            let members = waves.concat();
            let record = BatchRecord {
                budget: BUDGET, catalog_version, clock_micros, digest, programs, prepared, rolled_back,
                members, wave_ends,
            };
            prop_assert_eq!(BatchRecord::decode(&record.encode()).unwrap(), record);
        }

        /// Version 2 charges by the instruction, and knows nothing of prepared transactions.
        #[test]
        fn records_of_one_phase_are_read(
            waves in prop::collection::vec(prop::collection::vec(member(), 1..4), 0..4),
        ) {
            let wave_ends = waves.iter().scan(0, |end, wave| { *end += wave.len(); Some(*end) }).collect();
            let budget = BUDGET_OF_INSTRUCTIONS;
            let record = BatchRecord { budget, members: waves.concat(), wave_ends, ..BatchRecord::default() };
            let mut bytes = record.encode();
            prop_assert_eq!(&BatchRecord::decode(&bytes).unwrap(), &record);
            bytes[0] = FORMAT_VERSION_ONE_PHASE;
            prop_assert_eq!(BatchRecord::decode(&bytes).unwrap(), BatchRecord { budget: BUDGET, ..record });
        }

        /// Version 1 differs in its number, and has no waves.
        #[test]
        fn records_of_one_wave_are_read(members in prop::collection::vec(member(), 0..8)) {
            let wave_ends: Vec<usize> = Some(members.len()).filter(|count| *count > 0).into_iter().collect();
            let budget = BUDGET_OF_INSTRUCTIONS;
            let record = BatchRecord { budget, members, wave_ends, ..BatchRecord::default() };
            let mut bytes = record.encode();
            bytes[0] = FORMAT_VERSION_ONE_WAVE;
            prop_assert_eq!(BatchRecord::decode(&bytes).unwrap(), record);
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

    #[test]
    fn waves_where_none_can_be_are_refused() {
        let program = |waves: usize| BatchRecord {
            members: vec![
                MemberRecord::Program {
                    hash: ProgramHash([7; 16]),
                    inputs: Vec::new(),
                };
                waves
            ],
            wave_ends: (1..=waves).collect(),
            ..BatchRecord::default()
        };
        let two = program(2).encode();
        let budget = BUDGET_OF_INSTRUCTIONS;
        let mut old = BatchRecord { budget, ..program(2) }.encode();
        old[0] = FORMAT_VERSION_ONE_WAVE;
        let mut newer = two.clone();
        newer[0] = 5;
        let mut begins = program(1).encode();
        let tag = begins.len() - 18;
        begins[tag] |= BEGINS_WAVE;
        assert!(BatchRecord::decode(&two).is_ok());
        for wrong in [old, newer, begins] {
            assert!(BatchRecord::decode(&wrong).is_err());
        }
    }
}
