//! Every protocol runs the same streams; what must hold afterwards does not depend on which one it was.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod serializability;

use std::sync::Arc;

use weft_base::{BatchId, Prng};
use weft_protocols::batch::Batch;
use weft_protocols::two_phase_locking::{
    BoundedWait, Detection, LockPolicy, NoWait, Ordered, TwoPhaseLocking, WaitDie,
};
use weft_protocols::waves::Waves;
use weft_protocols::{Job, LATENCY_SAMPLE, Protocol, RunReport, is_protocol, protocol_names, run_by_name};
use weft_sql::statement::{NoSource, Plan, PlanContext, ProgramPlan, plan_text};
use weft_store::Store;
use weft_types::Value;

const ACCOUNTS: i64 = 64;

fn plan(store: &Arc<Store>, sql: &str) -> Plan {
    plan_text(sql, &PlanContext::new(&store.catalog(), sql)).unwrap()
}

fn program(store: &Arc<Store>, sql: &str) -> Arc<ProgramPlan> {
    match plan(store, sql) {
        Plan::Program(program) => program,
        other => panic!("no point statement: {other:?}"),
    }
}

fn job(plan: &ProgramPlan, params: &[i64]) -> Job {
    let params: Vec<Value> = params.iter().map(|n| Value::Int8(*n)).collect();
    Job {
        program: Arc::clone(&plan.program),
        inputs: plan.bind(&params, &mut NoSource).unwrap(),
    }
}

/// A store with `ACCOUNTS` accounts of balance 1000.
fn bank() -> Arc<Store> {
    let store = Store::new();
    let Plan::Ddl(table) = plan(
        &store,
        "create table account (id bigint primary key, balance bigint not null)",
    ) else {
        panic!("not a definition")
    };
    let mut writer = store.begin_batch(BatchId(1));
    for op in &table.ops {
        writer.apply_catalog(op).unwrap();
    }
    writer.finish();
    store.publish(BatchId(1));
    let insert = program(&store, "insert into account values ($1, 1000)");
    let jobs: Vec<Job> = (0..ACCOUNTS).map(|id| job(&insert, &[id])).collect();
    assert_eq!(Batch::default().run(&store, &jobs, 1).committed, ACCOUNTS as u64);
    store
}

fn balances(store: &Arc<Store>) -> Vec<i64> {
    let snapshot = store.snapshot();
    let catalog = Arc::clone(snapshot.catalog());
    let def = catalog.table("account").unwrap();
    let mut found = vec![0; ACCOUNTS as usize];
    for chunk in 0..snapshot.scan_chunks(def.id) {
        snapshot.scan_chunk(def.id, chunk, |row| {
            let id = def.layout.fixed_u64(row.bytes, 0).unwrap() as usize;
            found[id] = def.layout.fixed_u64(row.bytes, 1).unwrap() as i64;
        });
    }
    found
}

/// Additions to skewed accounts, and what they must come to: additions commute, so every serial order agrees,
/// and an addition that is lost shows.
fn additions(store: &Arc<Store>, count: usize, seed: u64) -> (Vec<Job>, Vec<i64>) {
    let add = program(store, "update account set balance = balance + $2 where id = $1");
    let mut random = Prng::new(seed);
    let mut wanted = vec![1000; ACCOUNTS as usize];
    let jobs = (0..count).map(|_| {
        let id = random.below(ACCOUNTS as u64).min(random.below(ACCOUNTS as u64)) as i64;
        let amount = random.below(100) as i64 - 50;
        wanted[id as usize] += amount;
        job(&add, &[id, amount])
    });
    (jobs.collect(), wanted)
}

fn no_addition_is_lost<P: Protocol>(protocol: &P, workers: usize) -> RunReport {
    let store = bank();
    let (jobs, wanted) = additions(&store, 20_000, 7);
    let report = protocol.run(&store, &jobs, workers);
    assert_eq!((report.committed, report.failed), (20_000, 0), "{}", P::NAME);
    assert_eq!(balances(&store), wanted, "{} with {workers} workers", P::NAME);
    assert_eq!(store.verify_digest(&store.snapshot()), store.state_digest());
    assert_eq!(
        report.latency.samples(),
        20_000 / LATENCY_SAMPLE as u64,
        "{}",
        P::NAME
    );
    report
}

#[test]
fn batches_lose_no_addition() {
    for workers in [1, 2, 4] {
        let protocol = Batch {
            max_members: 256,
            lock_slots: 1 << 12,
            ..Batch::default()
        };
        let report = no_addition_is_lost(&protocol, workers);
        assert!(
            report.batches > 1 && report.deferrals > 0,
            "hot accounts must have been put off"
        );
    }
}

fn locking_loses_no_addition<P: LockPolicy>() {
    for workers in [1, 2, 4] {
        no_addition_is_lost(
            &TwoPhaseLocking {
                lock_slots: 1 << 12,
                epoch_transactions: 512,
                ..TwoPhaseLocking::under(P::default())
            },
            workers,
        );
    }
}

#[test]
fn two_phase_locking_loses_no_addition() {
    locking_loses_no_addition::<Ordered>();
    locking_loses_no_addition::<NoWait>();
    locking_loses_no_addition::<WaitDie>();
    locking_loses_no_addition::<BoundedWait>();
    locking_loses_no_addition::<Detection>();
}

#[test]
fn every_name_runs_and_no_other() {
    for name in protocol_names() {
        let store = bank();
        let (jobs, wanted) = additions(&store, 2_000, 3);
        let report = run_by_name(name, &store, &jobs, 2).unwrap();
        assert_eq!((report.committed, report.failed), (2_000, 0), "{name}");
        assert_eq!(balances(&store), wanted, "{name}");
    }
    for probes in [1, 2, 100] {
        let store = bank();
        let (jobs, wanted) = additions(&store, 2_000, 3);
        let name = format!("waves@{probes}");
        assert!(is_protocol(&name));
        assert_eq!(run_by_name(&name, &store, &jobs, 1).unwrap().committed, 2_000);
        assert_eq!(balances(&store), wanted, "{name}");
    }
    for name in ["waves@", "waves@0", "waves@-1", "waves@65536", "batch@2", "tarot"] {
        assert!(!is_protocol(name), "{name}");
        assert!(run_by_name(name, &bank(), &[], 1).is_err(), "{name}");
    }
    let unknown = run_by_name("tarot", &bank(), &[], 1).unwrap_err();
    assert_eq!(unknown.name, "tarot");
    assert!(
        unknown.to_string().contains("batch, batch-serial, waves, calvin"),
        "{unknown}"
    );
}

#[test]
fn batches_are_repeatable() {
    let digests: Vec<u64> = [1, 2, 4]
        .map(|workers| {
            let store = bank();
            let (jobs, _) = additions(&store, 5_000, 11);
            Batch {
                max_members: 128,
                lock_slots: 1 << 12,
                ..Batch::default()
            }
            .run(&store, &jobs, workers);
            store.state_digest()
        })
        .into();
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
}

/// The last one to write an account decides, so every transaction out of its order may show.
#[test]
fn waves_keep_the_streams_order_in_line_and_side_by_side() {
    let (mut random, mut wanted) = (Prng::new(5), vec![1000; ACCOUNTS as usize]);
    for workers in [1, 2] {
        let store = bank();
        let set = program(&store, "update account set balance = $2 where id = $1");
        let jobs: Vec<Job> = (0..20_000)
            .map(|n| {
                // All on one account, then on any, then on one again.
                let id = if n / 5_000 == 1 {
                    random.below(ACCOUNTS as u64) as i64
                } else {
                    3
                };
                wanted[id as usize] = n;
                job(&set, &[id, n])
            })
            .collect();
        let protocol = Waves {
            max_members: 128,
            lock_slots: 1 << 12,
            ..Waves::default()
        };
        let report = protocol.run(&store, &jobs, workers);
        assert_eq!((report.committed, report.failed), (20_000, 0));
        assert_eq!(balances(&store), wanted, "{workers} workers");
        assert_eq!(store.verify_digest(&store.snapshot()), store.state_digest());
    }
}

#[test]
fn a_transaction_that_fails_is_counted_and_changes_nothing() {
    let store = bank();
    let overflow = program(&store, "update account set balance = balance + $2 where id = $1");
    let jobs = [job(&overflow, &[3, i64::MAX]), job(&overflow, &[4, 1])];
    for (n, name) in protocol_names().iter().enumerate() {
        let report = run_by_name(name, &store, &jobs, 2).unwrap();
        assert_eq!((report.committed, report.failed), (1, 1), "{name}");
        assert_eq!(balances(&store)[3..5], [1000, 1001 + n as i64], "{name}");
    }
    assert_eq!(store.verify_digest(&store.snapshot()), store.state_digest());
}
