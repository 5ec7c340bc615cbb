//! What agents and servers write to their logs.
//!
//! ```text
//! server  1 prepared   txn u64 | locks: count u32, (lock u64, mode u8) each | writes
//!         2 ended      txn u64 | committed u8                    how a prepared one ended
//!         3 finished   txn u64 | writes                          committed here alone
//! agent   4 numbers    end u64                                   numbers below may be in use
//!         5 decided    txn u64 | committed u8 | servers: count u32, u32 each
//!         6 forgotten  txn u64                                   all servers know
//! writes               count u32, (record u64, length u32, bytes) each
//! ```
//!
//! A rank's log is one of `weft-wal`, a record an entry. Order is all that it needs: a decision that follows
//! from an earlier entry is never durable without it.
//!
//! Simplification: a server's records are its log from the beginning on; it takes no checkpoints.

use std::path::Path;
use std::sync::Arc;

use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_base::{BatchId, Disk, Lsn, TxnId};
use weft_lock::LockRequest;
use weft_wal::{Log, LogConfig, LogReader};

use crate::error::Error;
use crate::message::{put_lock, read_lock};

/// A record's new bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Which record.
    pub record: u64,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A server has voted yes.
    Prepared {
        /// For whom.
        txn: TxnId,
        /// What it holds.
        locks: Vec<LockRequest>,
        /// What it writes if it commits.
        writes: Vec<Write>,
    },
    /// A server has heard how a prepared transaction ended.
    Ended {
        /// Which.
        txn: TxnId,
        /// How.
        committed: bool,
    },
    /// A server has committed a transaction that no other is concerned with.
    Finished {
        /// Which.
        txn: TxnId,
        /// What it wrote.
        writes: Vec<Write>,
    },
    /// An agent may give numbers below this one to transactions.
    Numbers {
        /// The first that it may not.
        end: u64,
    },
    /// An agent has decided.
    Decided {
        /// About what.
        txn: TxnId,
        /// How.
        committed: bool,
        /// Who must hear of it.
        servers: Vec<u32>,
    },
    /// All servers have heard of a decision.
    Forgotten {
        /// About what.
        txn: TxnId,
    },
}

/// Appends writes as in the table.
pub(crate) fn put_writes(out: &mut Vec<u8>, writes: &[Write]) {
    out.put_u32(u32::try_from(writes.len()).unwrap_or(u32::MAX));
    for write in writes {
        out.put_u64(write.record);
        out.put_u32(u32::try_from(write.bytes.len()).unwrap_or(u32::MAX));
        out.put_bytes(&write.bytes);
    }
}

pub(crate) fn read_writes(reader: &mut ByteReader<'_>) -> Result<Vec<Write>, CodecError> {
    let count = reader.u32()?;
    let write = |_| {
        let (record, length) = (reader.u64()?, reader.u32()?);
        Ok(Write {
            record,
            bytes: reader.bytes(length as usize)?.to_vec(),
        })
    };
    (0..count).map(write).collect()
}

impl Entry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Entry::Prepared { txn, locks, writes } => {
                out.put_u8(1);
                out.put_u64(txn.0);
                out.put_u32(u32::try_from(locks.len()).unwrap_or(u32::MAX));
                locks.iter().for_each(|lock| put_lock(&mut out, lock));
                put_writes(&mut out, writes);
            }
            Entry::Ended { txn, committed } => {
                out.put_u8(2);
                out.put_u64(txn.0);
                out.put_bool(*committed);
            }
            Entry::Finished { txn, writes } => {
                out.put_u8(3);
                out.put_u64(txn.0);
                put_writes(&mut out, writes);
            }
            Entry::Numbers { end } => {
                out.put_u8(4);
                out.put_u64(*end);
            }
            Entry::Decided {
                txn,
                committed,
                servers,
            } => {
                out.put_u8(5);
                out.put_u64(txn.0);
                out.put_bool(*committed);
                out.put_u32(u32::try_from(servers.len()).unwrap_or(u32::MAX));
                servers.iter().for_each(|server| out.put_u32(*server));
            }
            Entry::Forgotten { txn } => {
                out.put_u8(6);
                out.put_u64(txn.0);
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Entry, CodecError> {
        let mut reader = ByteReader::new(bytes);
        let entry = match reader.u8()? {
            1 => {
                let txn = TxnId(reader.u64()?);
                let count = reader.u32()?;
                let locks = (0..count).map(|_| read_lock(&mut reader));
                Entry::Prepared {
                    txn,
                    locks: locks.collect::<Result<_, _>>()?,
                    writes: read_writes(&mut reader)?,
                }
            }
            2 => Entry::Ended {
                txn: TxnId(reader.u64()?),
                committed: reader.bool()?,
            },
            3 => Entry::Finished {
                txn: TxnId(reader.u64()?),
                writes: read_writes(&mut reader)?,
            },
            4 => Entry::Numbers { end: reader.u64()? },
            5 => {
                let (txn, committed, count) = (TxnId(reader.u64()?), reader.bool()?, reader.u32()?);
                let servers = (0..count).map(|_| reader.u32());
                Entry::Decided {
                    txn,
                    committed,
                    servers: servers.collect::<Result<_, _>>()?,
                }
            }
            6 => Entry::Forgotten {
                txn: TxnId(reader.u64()?),
            },
            _ => return Err(CodecError::new(0, "no kind of an entry")),
        };
        reader.finish()?;
        Ok(entry)
    }
}

/// A rank's log.
pub struct Journal {
    log: Log,
    next: BatchId,
}

impl Journal {
    /// Opens or makes the log in a directory and hands its entries to `each`, in order.
    ///
    /// # Errors
    /// The disk's; damage; those of `each`.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        salt: u64,
        mut each: impl FnMut(Entry) -> Result<(), Error>,
    ) -> Result<Journal, Error> {
        disk.create_dir_all(dir)
            .map_err(|_| Error::History("its directory cannot be made"))?;
        let config = LogConfig {
            segment_bytes: 1 << 20,
            preallocate: false,
            salt,
            ..LogConfig::default()
        };
        let (log, reader): (Log, LogReader) = Log::open(disk, dir, config)?;
        let mut next = BatchId(1);
        for record in reader {
            let record = record?;
            each(Entry::decode(&record.payload)?)?;
            next = BatchId(record.batch.0 + 1);
        }
        Ok(Journal { log, next })
    }

    /// Appends an entry. It is durable after [`Journal::sync`] to the position that is returned.
    ///
    /// # Errors
    /// The log's.
    pub fn append(&mut self, entry: &Entry) -> Result<Lsn, Error> {
        let payload = entry.encode();
        self.log.reserve(payload.len())?;
        let lsn = self.log.append(self.next, &payload)?;
        self.next = BatchId(self.next.0 + 1);
        Ok(lsn)
    }

    /// Makes everything up to a position durable.
    ///
    /// # Errors
    /// The log's.
    pub fn sync(&self, lsn: Lsn) -> Result<(), Error> {
        Ok(self.log.sync_to(lsn)?)
    }

    /// Up to where entries are durable.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.log.durable()
    }
}

#[cfg(test)]
mod tests {
    use weft_base::SimDisk;
    use weft_lock::{LockMode, ResourceId};

    use super::*;

    fn entries() -> Vec<Entry> {
        let txn = TxnId(77);
        let write = |record| Write {
            record,
            bytes: vec![record as u8; 9],
        };
        let lock = LockRequest::new(ResourceId::other(5), LockMode::SIX);
        vec![
            Entry::Prepared {
                txn,
                locks: vec![lock, lock],
                writes: vec![write(1), write(2)],
            },
            Entry::Ended { txn, committed: true },
            Entry::Finished {
                txn,
                writes: vec![write(3)],
            },
            Entry::Numbers { end: 9 },
            Entry::Decided {
                txn,
                committed: false,
                servers: vec![0, 4],
            },
            Entry::Forgotten { txn },
        ]
    }

    #[test]
    fn entries_come_back_in_order_and_pieces_do_not() {
        for entry in entries() {
            let bytes = entry.encode();
            assert_eq!(Entry::decode(&bytes).unwrap(), entry);
            for end in 0..bytes.len() {
                assert!(Entry::decode(&bytes[..end]).is_err(), "{entry:?} {end}");
            }
        }
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        for round in 0..3 {
            let mut found = Vec::new();
            let each = |entry| {
                found.push(entry);
                Ok(())
            };
            let mut journal = Journal::open(Arc::clone(&disk), Path::new("/log"), round, each).unwrap();
            assert_eq!(found.len() as u64, round * entries().len() as u64);
            for entry in entries() {
                let lsn = journal.append(&entry).unwrap();
                journal.sync(lsn).unwrap();
                assert!(journal.durable() >= lsn);
            }
        }
    }
}
