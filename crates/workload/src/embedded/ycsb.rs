//! YCSB as a [`Workload`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft::Database;
use weft_store::Store;

use super::Programs;
use super::programs::YcsbPrograms;
use crate::driver::RunError;
use crate::stream::{Rollbacks, Stream, StreamSeed, Transaction, Workload};
use crate::ycsb::{self, Mix, Remoteness, Skew, YcsbKind, YcsbShape, YcsbSource};

/// Distance in keys between the inserts of two generations of streams.
const GENERATION_KEYS: u64 = 1 << 36;

/// The loaded table and its programs, for one workload letter and one skew.
pub struct YcsbWorkload {
    shape: YcsbShape,
    mix: Mix,
    skew: Skew,
    remoteness: Option<Remoteness>,
    programs: YcsbPrograms,
    /// Number of streams made so far; each inserts different keys.
    generations: AtomicU64,
}

impl YcsbWorkload {
    /// Compiles the programs for a loaded table. `first_generation` separates the inserts of two
    /// workloads on one table.
    pub fn new(
        database: &Database,
        shape: YcsbShape,
        mix: Mix,
        skew: Skew,
        first_generation: u64,
    ) -> Result<Self, RunError> {
        Ok(Self {
            shape,
            mix,
            skew,
            remoteness: None,
            programs: YcsbPrograms::compile(database, &shape, mix)?,
            generations: AtomicU64::new(first_generation),
        })
    }

    /// Sets the placement of rows.
    pub fn placed(mut self, remoteness: Option<Remoteness>) -> Self {
        self.remoteness = remoteness;
        self
    }

    /// The mix of operations.
    pub fn mix(&self) -> Mix {
        self.mix
    }

    /// Number of streams made so far, counted from `first_generation`.
    pub fn generations(&self) -> u64 {
        self.generations.load(Ordering::Relaxed)
    }
}

struct YcsbStream<'w> {
    source: YcsbSource,
    programs: &'w YcsbPrograms,
}

impl Stream for YcsbStream<'_> {
    fn draw(&mut self) -> Result<Transaction, RunError> {
        let request = self.source.transaction();
        let kind = match request.kind {
            YcsbKind::Points if request.updates == 0 => 0,
            YcsbKind::Points => 1,
            YcsbKind::Insert => 2,
            YcsbKind::Scan(_) => 3,
        };
        let (program, inputs) = self.programs.one_shot(&request)?;
        Ok(Transaction::new(&program, inputs, kind))
    }
}

impl Workload for YcsbWorkload {
    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["read", "update", "insert", "scan"]
    }

    fn stream(&self, seed: StreamSeed) -> Box<dyn Stream + '_> {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let own = seed.seed << 32 | seed.number;
        let source = YcsbSource::one_of(self.shape, self.mix, self.skew, own, 0, 1);
        Box::new(YcsbStream {
            source: source
                .insert_from(generation * GENERATION_KEYS)
                .placed(self.remoteness.clone()),
            programs: &self.programs,
        })
    }

    fn repeats(&self) -> bool {
        self.mix.insert_percent() == 0
    }

    fn rollbacks(&self) -> Rollbacks {
        Rollbacks::None
    }

    /// Checks that every loaded row still exists, and that every row has all its fields in full
    /// length.
    fn check(&self, store: &Arc<Store>, _committed: u64) -> Result<Vec<String>, String> {
        let snapshot = store.snapshot();
        let table = snapshot.catalog().table(ycsb::TABLE).ok_or("the table is gone")?;
        let (mut loaded, mut inserted, mut damaged) = (0u64, 0u64, 0u64);
        snapshot
            .view()
            .scan(table.id, |row| {
                let key = table.layout.fixed_u64(row.bytes, 0).unwrap_or(u64::MAX);
                let whole = |column| {
                    let field = table.layout.var_bytes(row.bytes, column);
                    field.is_some_and(|field| field.len() == self.shape.field_bytes)
                };
                damaged += u64::from(!(1..=self.shape.fields).all(whole));
                match key < self.shape.records {
                    true => loaded += 1,
                    false => inserted += 1,
                }
            })
            .map_err(|error| error.to_string())?;
        if loaded != self.shape.records || damaged > 0 {
            return Err(format!(
                "{loaded} of {} loaded rows are there, {damaged} rows are damaged",
                self.shape.records
            ));
        }
        Ok(vec![format!(
            "{loaded} loaded and {inserted} inserted rows, all whole"
        )])
    }
}
