//! `weft bench stall`: the effect of one stalled transaction on all others.
//!
//! Source: Hobbes, figure 2.3 (after Thomson and Abadi, 2010): transactions of ten accesses each; after a
//! third of the time one of them has acquired its ten locks and stalls for a third, then commits. A
//! deterministic system that keeps its order comes to a standstill, because transactions that wait for the
//! stalled one hold locks themselves; one that may choose another order continues with transactions that do
//! not conflict, until too many of the outstanding ones wait.
//!
//! ```text
//! |-------- normal --------|-------- stalled --------|-------- normal --------|
//!                          ^ ten rows locked          ^ committed
//! ```
//!
//! Here the stalled transaction is an interactive one; the stream consists of one-shot programs, at most
//! `outstanding` at a time. Programs that need a locked row are parked until the transaction ends, and hold
//! nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_workload::embedded::Programs;
use weft_workload::embedded::load;
use weft_workload::embedded::programs::YcsbPrograms;
use weft_workload::ycsb::{Mix, YcsbShape, YcsbSource};
use weft_workload::{Record, RunError};

use super::{BenchDatabase, bar, print};
use crate::arguments::StallArguments;
use crate::failure::Failure;

/// Transactions submitted at once.
const GROUP: usize = 64;

/// Loads, runs the three thirds, prints the throughput of each time slot.
pub(crate) fn run(arguments: &StallArguments) -> Result<(), Failure> {
    let slot = Duration::from_millis(arguments.slot_ms);
    let time = Duration::from_secs_f64(arguments.load.seconds);
    if time < 6 * slot {
        return Err(Failure::Usage("--seconds must be at least six slots".to_owned()));
    }
    let shape = YcsbShape {
        records: arguments.records,
        fields: 1,
        field_bytes: 64,
        accesses: 10,
        ..YcsbShape::hobbes(arguments.records)
    };
    let bench = BenchDatabase::open(&arguments.load, "stall")?;
    let loading = bar(shape.records, "loading rows");
    load::load_ycsb(&bench.database, &shape, |rows| loading.set_position(rows))?;
    loading.finish_and_clear();
    let programs = YcsbPrograms::compile(&bench.database, &shape, Mix::A)?;
    let slots = measure(arguments, &bench, &programs, shape, slot, time)?;
    let config = format!(
        "records={} accesses=10 outstanding={} slot_ms={} workers={}",
        arguments.records,
        arguments.outstanding,
        arguments.slot_ms,
        arguments.load.workers()
    );
    let records: Vec<Record> = slots
        .iter()
        .map(|slot| {
            // The stalled transaction writes ten rows; each of the others accesses ten.
            let case = format!(
                "conflict={:.4}% t={:.2}s {}",
                10_000.0 / arguments.records as f64,
                slot.at_seconds,
                if slot.stalled { "stalled" } else { "normal" }
            );
            Record::new("stall", &case, &config, "throughput", slot.throughput, "1/s")
        })
        .collect();
    print(
        arguments.load.json,
        &format!("A stalled transaction, {config}"),
        &records,
    )
}

/// Commits in one time slot.
struct Slot {
    at_seconds: f64,
    stalled: bool,
    throughput: f64,
}

fn measure(
    arguments: &StallArguments,
    bench: &BenchDatabase,
    programs: &YcsbPrograms,
    shape: YcsbShape,
    slot: Duration,
    time: Duration,
) -> Result<Vec<Slot>, Failure> {
    let engine = bench.database.engine();
    let (stop, submitted) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = || engine.stats().one_shot + engine.stats().read_only_programs;
    let done_before = done();
    std::thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let mut source = YcsbSource::new(shape, Mix::A, 0.0, 1);
            while !stop.load(Ordering::Relaxed) {
                let ran = done() - done_before;
                let waiting = submitted.load(Ordering::Relaxed).saturating_sub(ran);
                if waiting as usize + GROUP > arguments.outstanding {
                    // Nothing to submit until the stalled transaction ends; finished ones are counted by
                    // then.
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                submit_group(bench, programs, &mut source)?;
                submitted.fetch_add(GROUP as u64, Ordering::Relaxed);
            }
            Ok::<(), RunError>(())
        });
        let slots = watch(bench, programs, shape, slot, time, &done);
        stop.store(true, Ordering::Relaxed);
        let ended = stream.join();
        ended.map_err(|_| Failure::Environment("the stream panicked".to_owned()))??;
        slots
    })
}

/// Submits one group. Its tickets are dropped: the engine's counters show what has been executed.
fn submit_group(
    bench: &BenchDatabase,
    programs: &YcsbPrograms,
    source: &mut YcsbSource,
) -> Result<(), RunError> {
    let calls = (0..GROUP)
        .map(|_| programs.one_shot(&source.transaction()))
        .collect::<Result<Vec<_>, _>>()?;
    let (reads, writes): (Vec<_>, Vec<_>) = calls.into_iter().partition(|(program, _)| program.read_only);
    let engine = bench.database.engine();
    let handed = writes.iter().map(|(program, inputs)| (program, inputs.clone()));
    for ticket in engine.submit_many(handed) {
        ticket.map_err(|refused| RunError::doing("submitting", refused.error))?;
    }
    for (program, inputs) in reads {
        let answer = engine.execute(&program, inputs);
        answer.map_err(|refused| RunError::doing("reading", refused.error))?;
    }
    Ok(())
}

/// Counts commits per time slot, and stalls a transaction in the middle third.
fn watch(
    bench: &BenchDatabase,
    programs: &YcsbPrograms,
    shape: YcsbShape,
    slot: Duration,
    time: Duration,
    done: &dyn Fn() -> u64,
) -> Result<Vec<Slot>, Failure> {
    let began = Instant::now();
    let (mut slots, mut stalled, mut last) = (Vec::new(), None, (began, done()));
    loop {
        let elapsed = began.elapsed();
        if elapsed >= time {
            return Ok(slots);
        }
        let in_middle = elapsed >= time / 3 && elapsed < time * 2 / 3;
        match (in_middle, stalled.take()) {
            (true, None) => stalled = Some(stall(bench, programs, shape)?),
            (true, holding) => stalled = holding,
            (false, Some(transaction)) => commit(transaction)?,
            (false, None) => {}
        }
        std::thread::sleep(slot);
        let now = (Instant::now(), done());
        slots.push(Slot {
            at_seconds: elapsed.as_secs_f64(),
            stalled: stalled.is_some(),
            throughput: (now.1 - last.1) as f64 / (now.0 - last.0).as_secs_f64().max(1e-9),
        });
        last = now;
    }
}

/// An interactive transaction that has written ten rows.
fn stall(
    bench: &BenchDatabase,
    programs: &YcsbPrograms,
    shape: YcsbShape,
) -> Result<weft_txn::Transaction, Failure> {
    let mut source = YcsbSource::new(shape, Mix::A, 0.0, 2);
    let mut request = source.transaction();
    request.updates = request.keys.len();
    if request.value.is_empty() {
        request.value = "s".repeat(shape.field_bytes);
    }
    let mut transaction = bench.database.engine().begin(weft_txn::TxnOptions {
        isolation: weft_txn::Isolation::Serializable,
        ..weft_txn::TxnOptions::default()
    });
    for (program, inputs) in programs.steps(&request)? {
        let ran = transaction.run(&program, &inputs);
        ran.map_err(|e| Failure::doing("the transaction that stalls", e))?;
    }
    Ok(transaction)
}

fn commit(transaction: weft_txn::Transaction) -> Result<(), Failure> {
    let committed = transaction.commit();
    committed.map_err(|refused| Failure::doing("the transaction that stalled", refused.error))?;
    Ok(())
}
