//! The same transactions through two engines, one of which has a device: answers and digests are compared
//! after every batch (feature `fpga`).
//!
//! ```text
//!   batches --submit--> engine without a device   answers, digest, time
//!           --submit--> engine with the softcore  answers, digest, simulated cycles
//! ```

use std::time::{Duration, Instant};

use weft::Database;
use weft::softcore::{Softcore, SoftcoreOptions};
use weft_base::TableId;
use weft_device::softcore::Activity;
use weft_txn::device::{DeviceCheck, DeviceSettings, DeviceStats};
use weft_txn::{Answer, Committed};

use crate::driver::RunError;
use crate::stream::Transaction;

/// What both engines did.
#[derive(Debug, Clone)]
pub struct BothRan {
    /// Simulated cycles of the core while it ran transactions.
    pub activity: Activity,
    /// Who ran what, and rows that were moved.
    pub stats: DeviceStats,
    /// Time of the engine without a device, for all transactions.
    pub cpu_time: Duration,
}

/// Places the tables of the transactions on a softcore of the second database and runs the batches on both.
/// The device stays placed.
///
/// # Errors
/// A table was refused, a transaction was not accepted, or answers or digests differ.
pub fn run_on_both(
    [cpu, device]: [&Database; 2],
    batches: &[Vec<Transaction>],
    options: SoftcoreOptions,
    check: DeviceCheck,
) -> Result<BothRan, RunError> {
    let tables = tables(batches.iter().flatten());
    let softcore = Softcore::new(options);
    let figures = softcore.figures();
    let settings = DeviceSettings { tables, check };
    let placed = device.engine().place_on_device(Box::new(softcore), settings);
    let placed = placed.map_err(|error| RunError(error.message))?;
    if let Some((TableId(id), reason)) = placed.refused_tables.first() {
        return Err(RunError(format!("table {id} is not placed: {reason}")));
    }
    let mut cpu_time = Duration::ZERO;
    for (number, batch) in batches.iter().enumerate() {
        let began = Instant::now();
        let expected = run(cpu, batch)?;
        cpu_time += began.elapsed();
        let answers = run(device, batch)?;
        let same = expected
            .iter()
            .zip(&answers)
            .all(|(one, other)| is_same(one, other));
        if !same || expected.len() != answers.len() {
            return Err(RunError(format!("batch {number}: the answers differ")));
        }
        let [one, other] = [cpu, device].map(|side| side.engine().snapshot().digest());
        if one != other {
            return Err(RunError(format!("batch {number}: the digests differ")));
        }
    }
    let stats = device.engine().device_stats();
    Ok(BothRan {
        activity: figures.activity(),
        stats: stats.ok_or_else(|| RunError("the device is gone".to_owned()))?,
        cpu_time,
    })
}

/// Submits a batch at once and waits for all answers.
fn run(database: &Database, batch: &[Transaction]) -> Result<Vec<Answer<Committed>>, RunError> {
    let calls = batch
        .iter()
        .map(|transaction| (&transaction.program, transaction.inputs.clone()));
    let tickets = database.engine().submit_many(calls);
    tickets
        .into_iter()
        .map(|ticket| match ticket {
            Ok(ticket) => Ok(ticket.wait()),
            Err(refused) => Err(RunError(refused.error.message)),
        })
        .collect()
}

fn is_same(one: &Answer<Committed>, other: &Answer<Committed>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => (&one.outcome, one.batch) == (&other.outcome, other.batch),
        (Err(one), Err(other)) => {
            (&one.error.state, &one.error.message) == (&other.error.state, &other.error.message)
        }
        _ => false,
    }
}

/// Tables that the transactions' programs use.
fn tables<'t>(transactions: impl Iterator<Item = &'t Transaction>) -> Vec<TableId> {
    let shapes = transactions.flat_map(|transaction| &transaction.program.tables);
    let mut tables: Vec<TableId> = shapes.map(|shape| shape.id).collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}
