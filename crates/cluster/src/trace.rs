//! Lock traces: which locks transactions took, at two isolation levels, so that a cluster can take them
//! again.
//!
//! ```text
//! file          magic "WEFTLOCK" | version u32 | warehouses u32 | kinds | transactions | crc32c u32
//! kinds         count u8, each: length u8, name in UTF-8
//! transactions  count u32, each: home u32 | kind u8 | locks (serializable) | locks (read committed)
//! locks         count u16, each: resource u64 | mode u8 | warehouse u32
//! ```
//!
//! Numbers are little endian; the CRC is of everything before it. Warehouses count from 0. The warehouse of a
//! lock is the one whose rows it guards; `u32::MAX` says that it guards no warehouse's more than others' (a
//! whole table, a row of a table that every server has), and is taken at the transaction's home.
//!
//! Everything is checked when a trace is read: what is in a [`LockTrace`] is in range.
//!
//! Source: Barthels 5.4.1 (traces of TPC-C from an augmented lock manager: transaction, lock, mode).

use std::fmt;

use weft_base::Prng;
use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_lock::{LockMode, LockRequest, ResourceId};

use crate::message::{put_lock, read_lock};

const MAGIC: &[u8; 8] = b"WEFTLOCK";
const VERSION: u32 = 1;
const NO_WAREHOUSE: u32 = u32::MAX;
/// Bytes of a transaction without locks.
const TXN_BYTES: usize = 9;
const LOCK_BYTES: usize = 13;

/// The isolation levels of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Reads and writes are locked, ranges too.
    Serializable,
    /// Writes are locked; reads are from snapshots, or hold their locks no longer than they last.
    ReadCommitted,
}

impl Isolation {
    /// Both, in the order of a file.
    pub const ALL: [Isolation; 2] = [Isolation::Serializable, Isolation::ReadCommitted];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Isolation::Serializable => "serializable",
            Isolation::ReadCommitted => "read committed",
        }
    }
}

/// A lock of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedLock {
    /// What was locked, and how.
    pub request: LockRequest,
    /// Whose rows it guards.
    pub warehouse: Option<u32>,
}

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedTransaction {
    /// The warehouse of its client.
    pub home: u32,
    /// Index into [`LockTrace::kinds`].
    pub kind: u8,
    /// Its locks in the order in which they were taken, by isolation level.
    pub locks: [Vec<TracedLock>; 2],
}

impl TracedTransaction {
    /// Its locks at a level.
    #[must_use]
    pub fn locks_at(&self, isolation: Isolation) -> &[TracedLock] {
        let [serializable, read_committed] = &self.locks;
        match isolation {
            Isolation::Serializable => serializable,
            Isolation::ReadCommitted => read_committed,
        }
    }
}

/// A trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockTrace {
    /// How many there are.
    pub warehouses: u32,
    /// Names of the kinds of transactions.
    pub kinds: Vec<String>,
    /// In the order in which they were recorded.
    pub transactions: Vec<TracedTransaction>,
}

/// Why bytes are no trace, or one that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceError {
    /// They do not begin like one.
    NotATrace,
    /// It was written by another version of Weft.
    Version(u32),
    /// Its CRC is wrong.
    Damaged,
    /// It ends early, or has bytes that say nothing.
    Codec(CodecError),
    /// Something of a transaction is out of range.
    OutOfRange {
        /// Which transaction, from 0.
        transaction: usize,
        /// What of it.
        what: &'static str,
    },
    /// The trace as a whole has too much or nothing of something.
    Size(&'static str),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::NotATrace => f.write_str("this is no lock trace"),
            TraceError::Version(version) => write!(f, "lock trace of version {version}, not {VERSION}"),
            TraceError::Damaged => f.write_str("the lock trace is damaged: its CRC is wrong"),
            TraceError::Codec(error) => write!(f, "the lock trace: {error}"),
            TraceError::OutOfRange { transaction, what } => {
                write!(
                    f,
                    "transaction {transaction} of the lock trace: {what} is out of range"
                )
            }
            TraceError::Size(what) => write!(f, "the lock trace: {what}"),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<CodecError> for TraceError {
    fn from(error: CodecError) -> Self {
        TraceError::Codec(error)
    }
}

impl LockTrace {
    /// Locks of a transaction at a level, on average.
    #[must_use]
    pub fn locks_each(&self, isolation: Isolation) -> f64 {
        let locks: usize = self
            .transactions
            .iter()
            .map(|one| one.locks_at(isolation).len())
            .sum();
        locks as f64 / self.transactions.len().max(1) as f64
    }

    /// The share of locks that guard rows of another warehouse than the home of their transaction.
    #[must_use]
    pub fn remote_share(&self, isolation: Isolation) -> f64 {
        let (mut remote, mut all) = (0_u64, 0_u64);
        for one in &self.transactions {
            for lock in one.locks_at(isolation) {
                remote += u64::from(lock.warehouse.is_some_and(|warehouse| warehouse != one.home));
                all += 1;
            }
        }
        remote as f64 / all.max(1) as f64
    }

    /// The document's synthetic workload (5.4.1): so many locks in drawn modes, a share of them at another
    /// warehouse. Both levels are the same.
    #[must_use]
    pub fn synthetic(
        seed: u64,
        warehouses: u32,
        transactions: usize,
        locks: usize,
        remote_share: f64,
    ) -> Self {
        let (mut prng, warehouses) = (Prng::new(seed), warehouses.max(1));
        let modes = [
            LockMode::IS,
            LockMode::IX,
            LockMode::S,
            LockMode::SIX,
            LockMode::X,
        ];
        let per_million = (remote_share.clamp(0.0, 1.0) * 1e6) as u64;
        let one = |number: usize| {
            let home = number as u32 % warehouses;
            let mut lock = || {
                let is_remote = warehouses > 1 && prng.chance(per_million, 1_000_000);
                let away = if is_remote {
                    1 + prng.below(u64::from(warehouses) - 1) as u32
                } else {
                    0
                };
                let warehouse = (home + away) % warehouses;
                let mode = modes.get(prng.below(5) as usize).copied().unwrap_or_default();
                // Rows, so that what is locked in X is written, too.
                let resource = ResourceId::row_hashed(weft_base::TableId(warehouse), prng.next_u64());
                TracedLock {
                    request: LockRequest::new(resource, mode),
                    warehouse: Some(warehouse),
                }
            };
            let taken: Vec<TracedLock> = (0..locks).map(|_| lock()).collect();
            TracedTransaction {
                home,
                kind: 0,
                locks: [taken.clone(), taken],
            }
        };
        LockTrace {
            warehouses,
            kinds: vec!["synthetic".to_owned()],
            transactions: (0..transactions).map(one).collect(),
        }
    }

    /// As a file.
    ///
    /// # Errors
    /// Something does not fit into the format, or is out of range.
    pub fn encode(&self) -> Result<Vec<u8>, TraceError> {
        self.check()?;
        let mut out = MAGIC.to_vec();
        out.put_u32(VERSION);
        out.put_u32(self.warehouses);
        out.put_u8(u8::try_from(self.kinds.len()).map_err(|_| TraceError::Size("too many kinds"))?);
        for kind in &self.kinds {
            out.put_u8(u8::try_from(kind.len()).map_err(|_| TraceError::Size("a long name"))?);
            out.put_bytes(kind.as_bytes());
        }
        let count = u32::try_from(self.transactions.len());
        out.put_u32(count.map_err(|_| TraceError::Size("too many transactions"))?);
        for one in &self.transactions {
            out.put_u32(one.home);
            out.put_u8(one.kind);
            for locks in &one.locks {
                out.put_u16(u16::try_from(locks.len()).map_err(|_| TraceError::Size("too many locks"))?);
                for lock in locks {
                    put_lock(&mut out, &lock.request);
                    out.put_u32(lock.warehouse.unwrap_or(NO_WAREHOUSE));
                }
            }
        }
        let crc = crc32c::crc32c(&out);
        out.put_u32(crc);
        Ok(out)
    }

    /// The trace of a file.
    ///
    /// # Errors
    /// It is none, or something in it is out of range.
    pub fn decode(bytes: &[u8]) -> Result<LockTrace, TraceError> {
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(TraceError::NotATrace);
        };
        let Some(after) = body.strip_prefix(MAGIC) else {
            return Err(TraceError::NotATrace);
        };
        let mut reader = ByteReader::new(after);
        let version = reader.u32()?;
        if version != VERSION {
            return Err(TraceError::Version(version));
        }
        if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(TraceError::Damaged);
        }
        let warehouses = reader.u32()?;
        let kinds = (0..reader.u8()?).map(|_| {
            let (length, at) = (reader.u8()?, reader.position());
            let name = std::str::from_utf8(reader.bytes(usize::from(length))?);
            let name = name.map_err(|_| CodecError::new(at, "a name that is no text"))?;
            Ok(name.to_owned())
        });
        let kinds = kinds.collect::<Result<_, CodecError>>()?;
        let count = reader.u32()? as usize;
        // No more room than the bytes can fill.
        let mut transactions = Vec::with_capacity(count.min(after.len() / TXN_BYTES));
        for _ in 0..count {
            transactions.push(TracedTransaction {
                home: reader.u32()?,
                kind: reader.u8()?,
                locks: [read_locks(&mut reader)?, read_locks(&mut reader)?],
            });
        }
        reader.finish()?;
        let trace = LockTrace {
            warehouses,
            kinds,
            transactions,
        };
        trace.check()?;
        Ok(trace)
    }

    /// Whether all of it is in range.
    ///
    /// # Errors
    /// The first that is not.
    fn check(&self) -> Result<(), TraceError> {
        if self.warehouses == 0 || self.warehouses == NO_WAREHOUSE {
            return Err(TraceError::Size("no warehouses"));
        }
        if self.transactions.is_empty() {
            return Err(TraceError::Size("no transactions"));
        }
        for (transaction, one) in self.transactions.iter().enumerate() {
            let wrong = |what| Err(TraceError::OutOfRange { transaction, what });
            if one.home >= self.warehouses {
                return wrong("its home");
            }
            if usize::from(one.kind) >= self.kinds.len() {
                return wrong("its kind");
            }
            for lock in one.locks.iter().flatten() {
                if lock
                    .warehouse
                    .is_some_and(|warehouse| warehouse >= self.warehouses)
                {
                    return wrong("the warehouse of a lock");
                }
                if lock.request.mode == LockMode::NL || lock.request.resource.kind().is_none() {
                    return wrong("a lock");
                }
            }
        }
        Ok(())
    }
}

fn read_locks(reader: &mut ByteReader<'_>) -> Result<Vec<TracedLock>, CodecError> {
    let count = usize::from(reader.u16()?);
    let mut locks = Vec::with_capacity(count.min(reader.remaining() / LOCK_BYTES));
    for _ in 0..count {
        let request = read_lock(reader)?;
        let warehouse = reader.u32()?;
        locks.push(TracedLock {
            request,
            warehouse: (warehouse != NO_WAREHOUSE).then_some(warehouse),
        });
    }
    Ok(locks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> LockTrace {
        let mut trace = LockTrace::synthetic(3, 4, 20, 6, 0.3);
        trace.transactions[2].locks[0][1].warehouse = None;
        trace.transactions[3].locks[1].clear();
        trace
    }

    #[test]
    fn a_trace_comes_back_and_a_damaged_one_does_not() {
        let bytes = trace().encode().unwrap();
        assert_eq!(LockTrace::decode(&bytes), Ok(trace()));
        for end in 0..bytes.len() {
            assert!(LockTrace::decode(&bytes[..end]).is_err());
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(LockTrace::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let changed = |change: &dyn Fn(&mut LockTrace)| {
            let mut trace = trace();
            change(&mut trace);
            trace.encode().unwrap_err().to_string()
        };
        assert!(changed(&|trace| trace.transactions[5].home = 4).contains("transaction 5"));
        assert!(changed(&|trace| trace.transactions[1].kind = 1).contains("its kind"));
        let far = |trace: &mut LockTrace| trace.transactions[7].locks[1][0].warehouse = Some(9);
        assert!(changed(&far).contains("the warehouse of a lock"));
        assert!(changed(&|trace| trace.warehouses = 0).contains("no warehouses"));
        assert!(changed(&|trace| trace.transactions.clear()).contains("no transactions"));
        let none = |trace: &mut LockTrace| trace.transactions[0].locks[0][0].request.mode = LockMode::NL;
        assert!(changed(&none).contains("transaction 0"));
    }

    #[test]
    fn the_synthetic_workload_is_what_it_says() {
        for share in [0.0, 0.1, 0.5] {
            let trace = LockTrace::synthetic(1, 8, 4_000, 10, share);
            assert!((trace.remote_share(Isolation::Serializable) - share).abs() < 0.01);
            assert!((trace.locks_each(Isolation::ReadCommitted) - 10.0).abs() < 1e-9);
        }
    }
}
