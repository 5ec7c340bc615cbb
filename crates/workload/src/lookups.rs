//! Lookups in the store's indexes, compared with the bare limit over as much memory: serial and
//! interleaved, hash and ordered, reading nothing, one field or all of a record.
//!
//! One table of records of equal size, a hash index and an ordered index on its key, and a [`ProbeTable`]
//! with as many payloads of the same length. The caller alternates between the two, so that both
//! see the same machine conditions. Keys are uniform. Rates are per second of the thread's processor time,
//! as in [`crate::limits`], and include drawing and encoding the key. Source: BionicDB 5.4, which measures
//! its indexes this way.

use std::io;
use std::sync::Arc;

use weft_base::clock::thread_cpu_nanos;
use weft_base::memory::Pages;
use weft_base::{BatchId, IndexId, Prng, TableId};
use weft_store::{
    CatalogOp, ColumnDef, FIRST_OBJECT_ID, Fetch, IndexDef, IndexMethod, LookupPlan, ReadView, RowVersion,
    Store, TableDef,
};
use weft_types::{RowLayout, SqlError, SqlType, Value, encode_key_value};

use crate::limits::ProbeTable;

const TABLE: TableId = TableId(FIRST_OBJECT_ID);
const HASH: IndexId = IndexId(FIRST_OBJECT_ID + 1);
const ORDERED: IndexId = IndexId(FIRST_OBJECT_ID + 2);
const FIELDS: usize = 8;
/// Bytes read of a field.
const FIELD_BYTES_READ: usize = 64;
/// Keys passed to the store at once.
const GROUP_KEYS: usize = 256;
const ROWS_PER_MEMBER: u64 = 10_000;

/// The index used for a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One line of a hash table.
    Hash,
    /// A descent.
    Ordered,
}

/// What is read of a found record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Only its header and key: BionicDB's SEARCH.
    Locate,
    /// 64 bytes of the middle field.
    Field,
    /// Every byte.
    Whole,
}

/// How lookups are interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupMode {
    /// One after another.
    Serial,
    /// The given number of lookups planned, prefetched together, then executed.
    Probes(usize),
    /// [`ReadView::lookup_group`].
    Group,
}

/// Why the measurement cannot run.
#[derive(Debug)]
pub enum LookupError {
    /// An error of the store.
    Store(SqlError),
    /// Out of memory.
    Memory(io::Error),
}

impl std::fmt::Display for LookupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LookupError::Store(error) => write!(f, "the store refused: {}", error.message),
            LookupError::Memory(error) => write!(f, "no memory for the limit: {error}"),
        }
    }
}

impl std::error::Error for LookupError {}

impl From<SqlError> for LookupError {
    fn from(error: SqlError) -> Self {
        LookupError::Store(error)
    }
}

/// The table, and the probe table for the limit.
pub struct Lookups {
    store: Arc<Store>,
    layout: Arc<RowLayout>,
    record_count: u64,
    row_bytes: usize,
    load_rate: f64,
    limit: ProbeTable,
}

impl Lookups {
    /// Loads `record_count` records, rounded up to a power of two, with eight fields of `record_bytes` in
    /// total. Without `ordered` there is no ordered index. Uses twice the records' memory.
    pub fn new(record_count: u64, record_bytes: usize, ordered: bool) -> Result<Self, LookupError> {
        let record_count = record_count.max(GROUP_KEYS as u64).next_power_of_two();
        let def = definition(ordered);
        let field = (record_bytes / FIELDS).max(FIELD_BYTES_READ);
        let mut values = vec![Value::Int8(0)];
        values.extend((0..FIELDS).map(|at| Value::Bytea(vec![at as u8 + 1; field])));
        let mut row = def.layout.encode(&values)?;
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        batch.apply_catalog(&CatalogOp::CreateTable(def.clone()))?;
        let start = thread_cpu_nanos();
        for first in (0..record_count).step_by(ROWS_PER_MEMBER as usize) {
            let mut member = batch.member(0);
            for number in first..record_count.min(first + ROWS_PER_MEMBER) {
                // An odd factor permutes: records are not stored in key order.
                let id = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (record_count - 1);
                def.layout.set_fixed_u64(&mut row, 0, id);
                member.insert(TABLE, &row)?;
            }
            member.commit();
        }
        let load_rate = record_count as f64 * 1e9 / (thread_cpu_nanos() - start).max(1) as f64;
        batch.finish();
        store.publish(BatchId(1));
        let limit =
            ProbeTable::new(record_count as usize, row.len(), Pages::Huge).map_err(LookupError::Memory)?;
        Ok(Lookups {
            store,
            layout: Arc::clone(&def.layout),
            record_count,
            row_bytes: row.len(),
            load_rate,
            limit,
        })
    }

    /// Number of records.
    pub fn record_count(&self) -> u64 {
        self.record_count
    }

    /// Size of one encoded record in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Records inserted per second during loading, one after another, into all indexes; includes copying
    /// the record.
    pub fn load_rate(&self) -> f64 {
        self.load_rate
    }

    /// The store, for its statistics.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The best bare rate for reading the same amount of as many records of the same size, on one thread.
    pub fn limit_rate(&mut self, read: Read, probes: usize) -> f64 {
        self.limit.read_only(match read {
            Read::Locate | Read::Field => FIELD_BYTES_READ,
            Read::Whole => self.row_bytes,
        });
        self.limit.best_rate(probes, 1)
    }

    /// Lookups per second on one thread. Errors: there is no such index.
    pub fn rate(
        &self,
        index: Index,
        read: Read,
        mode: LookupMode,
        lookups: usize,
        seed: u64,
    ) -> Result<f64, SqlError> {
        let snapshot = self.store.snapshot();
        let run = Run {
            view: snapshot.view(),
            layout: &self.layout,
            index: match index {
                Index::Hash => HASH,
                Index::Ordered => ORDERED,
            },
            read,
            mask: self.record_count - 1,
        };
        let mut random = Prng::new(seed);
        let start = thread_cpu_nanos();
        let (done, sum) = match mode {
            LookupMode::Serial => run.serial(lookups, &mut random)?,
            LookupMode::Probes(in_flight) => run.probes(in_flight.max(1), lookups, &mut random)?,
            LookupMode::Group => run.groups(lookups, &mut random)?,
        };
        std::hint::black_box(sum);
        Ok(done as f64 * 1e9 / (thread_cpu_nanos() - start).max(1) as f64)
    }
}

fn definition(ordered: bool) -> TableDef {
    let mut columns = vec![ColumnDef::new("id", SqlType::Int8)];
    columns.extend((0..FIELDS).map(|at| ColumnDef::new(format!("field{at}"), SqlType::Bytea)));
    let index = |id, name: &str, method| IndexDef {
        id,
        name: name.into(),
        table: TABLE,
        columns: vec![0],
        unique: true,
        primary: id == HASH,
        method,
    };
    let def = TableDef::new(TABLE, "records", columns);
    let def = def.with_index(index(HASH, "records_hash", IndexMethod::Hash));
    if ordered {
        def.with_index(index(ORDERED, "records_ordered", IndexMethod::Ordered))
    } else {
        def
    }
}

/// One measurement; each mode returns the number of lookups and the sum of what was read.
struct Run<'s> {
    view: ReadView<'s>,
    layout: &'s RowLayout,
    index: IndexId,
    read: Read,
    mask: u64,
}

impl Run<'_> {
    fn draw(&self, random: &mut Prng, key: &mut Vec<u8>) {
        key.clear();
        encode_key_value(key, &Value::Int8((random.next_u64() & self.mask) as i64));
    }

    fn fetch(&self) -> Fetch {
        match self.read {
            Read::Locate => Fetch::Bytes(0),
            Read::Field => Fetch::Column(FIELDS as u32 / 2),
            Read::Whole => Fetch::Bytes(u32::MAX),
        }
    }

    fn read(&self, row: &RowVersion<'_>) -> u64 {
        let words = |bytes: &[u8]| {
            let words = bytes.chunks_exact(8).filter_map(|word| word.first_chunk());
            words.fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)))
        };
        match self.read {
            Read::Locate => row.bytes.len() as u64,
            Read::Field => {
                let field = self.layout.raw(row.bytes, FIELDS / 2).unwrap_or_default();
                words(field.get(..FIELD_BYTES_READ).unwrap_or(field))
            }
            Read::Whole => words(row.bytes),
        }
    }

    fn serial(&self, lookups: usize, random: &mut Prng) -> Result<(usize, u64), SqlError> {
        let (mut key, mut sum) = (Vec::new(), 0u64);
        for _ in 0..lookups {
            self.draw(random, &mut key);
            if let Some(row) = self.view.lookup_one(TABLE, self.index, &key)? {
                sum = sum.wrapping_add(self.read(&row));
            }
        }
        Ok((lookups, sum))
    }

    fn probes(&self, in_flight: usize, lookups: usize, random: &mut Prng) -> Result<(usize, u64), SqlError> {
        let mut keys = vec![Vec::new(); in_flight];
        let mut sum = 0u64;
        let rounds = lookups.div_ceil(in_flight);
        let mut plan = LookupPlan::new(self.view);
        for _ in 0..rounds {
            plan.clear();
            for key in &mut keys {
                self.draw(random, key);
                plan.push(TABLE, self.index, key, self.fetch());
            }
            plan.finish();
            let mut planned = plan.part(0..in_flight);
            planned.fetch_first_rests();
            for (number, key) in keys.iter().enumerate() {
                let row = planned.lookup(number, &self.view, (TABLE, self.index), key)?;
                if let Some(row) = row {
                    sum = sum.wrapping_add(self.read(&row));
                }
            }
        }
        Ok((rounds * in_flight, sum))
    }

    fn groups(&self, lookups: usize, random: &mut Prng) -> Result<(usize, u64), SqlError> {
        let mut keys = vec![Vec::new(); GROUP_KEYS];
        let mut sum = 0u64;
        let rounds = lookups.div_ceil(GROUP_KEYS);
        for _ in 0..rounds {
            for key in &mut keys {
                self.draw(random, key);
            }
            self.view
                .lookup_group(TABLE, self.index, &keys, self.fetch(), |_, row| {
                    sum = sum.wrapping_add(self.read(&row));
                })?;
        }
        Ok((rounds * GROUP_KEYS, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lookup_method_reads_the_same() {
        let mut lookups = Lookups::new(1_000, 1_024, true).unwrap();
        assert_eq!((lookups.record_count(), lookups.row_bytes()), (1_024, 1_098));
        let snapshot = lookups.store.snapshot();
        for read in [Read::Locate, Read::Field, Read::Whole] {
            let mut sums = Vec::new();
            for index in [HASH, ORDERED] {
                let run = Run {
                    view: snapshot.view(),
                    layout: &lookups.layout,
                    index,
                    read,
                    mask: 1_023,
                };
                let random = || Prng::new(5);
                sums.push(run.serial(512, &mut random()).unwrap());
                sums.push(run.probes(16, 512, &mut random()).unwrap());
                sums.push(run.groups(512, &mut random()).unwrap());
            }
            assert!(sums.iter().all(|sum| *sum == sums[0] && sum.1 > 0), "{sums:?}");
        }
        drop(snapshot);
        assert!(lookups.limit_rate(Read::Whole, 1_000) > 0.0);
        assert!(
            lookups
                .rate(Index::Ordered, Read::Field, LookupMode::Serial, 100, 1)
                .unwrap()
                > 0.0
        );
        let hash_only = Lookups::new(1_000, 64, false).unwrap();
        assert!(
            hash_only
                .rate(Index::Ordered, Read::Locate, LookupMode::Group, 100, 1)
                .is_err()
        );
    }
}
