//! TPC-B as a [`Workload`].

use std::sync::Arc;

use weft::Database;
use weft_store::{Snapshot, Store};

use super::Programs;
use super::programs::TpcbPrograms;
use crate::driver::RunError;
use crate::stream::{Rollbacks, Stream, StreamSeed, Transaction, Workload};
use crate::tpcb::{Scale, Sums, TpcbSource};

/// The loaded bank and its one program.
pub struct TpcbWorkload {
    scale: Scale,
    programs: TpcbPrograms,
}

impl TpcbWorkload {
    /// Compiles the program for the loaded bank.
    pub fn new(database: &Database, scale: Scale) -> Result<Self, RunError> {
        Ok(Self {
            scale,
            programs: TpcbPrograms::compile(database)?,
        })
    }
}

struct TpcbStream<'w> {
    source: TpcbSource,
    programs: &'w TpcbPrograms,
}

impl Stream for TpcbStream<'_> {
    fn draw(&mut self) -> Result<Transaction, RunError> {
        let (program, inputs) = self.programs.one_shot(&self.source.transaction())?;
        Ok(Transaction::new(&program, inputs, 0))
    }
}

/// The sum of an int column and the number of rows.
fn sum(snapshot: &Snapshot, table: &str, column: &str) -> Result<(i64, u64), String> {
    let missing = || format!("{table}.{column} is gone");
    let def = snapshot.catalog().table(table).ok_or_else(missing)?;
    let at = def
        .columns
        .iter()
        .position(|c| c.name == column)
        .ok_or_else(missing)?;
    let (mut total, mut rows) = (0, 0);
    snapshot
        .view()
        .scan(def.id, |row| {
            total += def
                .layout
                .fixed_u64(row.bytes, at)
                .map_or(0, |bits| i64::from(bits as u32 as i32));
            rows += 1;
        })
        .map_err(|error| error.to_string())?;
    Ok((total, rows))
}

impl Workload for TpcbWorkload {
    fn name(&self) -> &'static str {
        "tpcb"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["transfer"]
    }

    fn stream(&self, seed: StreamSeed) -> Box<dyn Stream + '_> {
        Box::new(TpcbStream {
            source: TpcbSource::new(self.scale, seed.seed << 32 | seed.number),
            programs: &self.programs,
        })
    }

    fn repeats(&self) -> bool {
        true
    }

    fn rollbacks(&self) -> Rollbacks {
        Rollbacks::None
    }

    fn check(&self, store: &Arc<Store>, committed: u64) -> Result<Vec<String>, String> {
        let snapshot = store.snapshot();
        let (history, history_rows) = sum(&snapshot, "pgbench_history", "delta")?;
        let sums = Sums {
            accounts: sum(&snapshot, "pgbench_accounts", "abalance")?.0,
            tellers: sum(&snapshot, "pgbench_tellers", "tbalance")?.0,
            branches: sum(&snapshot, "pgbench_branches", "bbalance")?.0,
            history,
            history_rows,
        };
        sums.check(committed)?;
        Ok(vec![format!(
            "{committed} transactions, all balances and the history sum to {}",
            sums.accounts
        )])
    }
}
