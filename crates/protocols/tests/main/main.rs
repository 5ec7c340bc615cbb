//! Runs the same streams with every protocol; the expectations do not depend on the protocol.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod serializability;

use std::sync::Arc;

use weft_base::{BatchId, Prng};
use weft_program::{Access, AccessKind, KeyPart, ProgramBuilder, verify};
use weft_protocols::batch::Batch;
use weft_protocols::lock_only::LockManager;
use weft_protocols::partitioned::Partitioned;
use weft_protocols::two_phase_locking::{
    BoundedWait, Detection, LockPolicy, NoWait, Ordered, TwoPhaseLocking, WaitDie,
};
use weft_protocols::waves::Waves;
use weft_protocols::{Job, LATENCY_SAMPLE, Protocol, RunReport, is_protocol, protocol_names, run_by_name};
use weft_sql::statement::{NoSource, Plan, PlanContext, ProgramPlan, plan_text};
use weft_store::Store;
use weft_types::{SqlType, Value, encode_key_value};

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
        snapshot
            .scan_chunk(def.id, chunk, |row| {
                let id = def.layout.fixed_u64(row.bytes, 0).unwrap() as usize;
                found[id] = def.layout.fixed_u64(row.bytes, 1).unwrap() as i64;
            })
            .unwrap();
    }
    found
}

/// Additions to skewed accounts, and the expected balances: additions commute, so every serial order agrees,
/// and a lost addition is detected.
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
    assert_eq!(
        store.verify_digest(&store.snapshot()).unwrap(),
        store.state_digest()
    );
    assert_eq!(
        report.latency.samples(),
        20_000 / LATENCY_SAMPLE as u64,
        "{}",
        P::NAME
    );
    report
}

/// The number of deferrals is known if all transactions access one row, and if none accesses another's.
#[test]
fn lock_managers_alone_find_the_order_of_conflicts() {
    let store = bank();
    let add = program(&store, "update account set balance = balance + $2 where id = $1");
    let same: Vec<Job> = (0..600).map(|_| job(&add, &[7, 1])).collect();
    let apart: Vec<Job> = (0..60).map(|id| job(&add, &[id, 1])).collect();
    let take = |manager: LockManager, jobs: &[Job]| {
        let locked = manager.take_all(jobs, &store.catalog()).unwrap();
        (locked.deferrals, locked.batches)
    };
    for manager in LockManager::ALL {
        let batched = u64::from(matches!(manager, LockManager::Batch | LockManager::Waves));
        assert_eq!(take(manager, &apart), (0, batched), "{}", manager.name());
        assert_eq!(take(manager, &[]), (0, 0), "{}", manager.name());
    }
    assert_eq!(take(LockManager::None, &same), (0, 0));
    assert_eq!(take(LockManager::Calvin, &same), (599, 0));
    assert_eq!(take(LockManager::Batch, &same), (599 * 600 / 2, 600));
    assert_eq!(take(LockManager::Waves, &same), (599, 1));
    let mut broken = same;
    broken[300].inputs.clear();
    for manager in LockManager::ALL {
        let error = manager.take_all(&broken, &store.catalog()).unwrap_err();
        assert!(
            error.message.contains("inputs"),
            "{}: {}",
            manager.name(),
            error.message
        );
    }
    assert_eq!(balances(&store), vec![1000; ACCOUNTS as usize], "nothing runs");
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

/// The last write of an account decides, so a transaction out of order may be detected.
#[test]
fn waves_keep_stream_order_serially_and_in_parallel() {
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
        assert_eq!(
            store.verify_digest(&store.snapshot()).unwrap(),
            store.state_digest()
        );
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
    assert_eq!(
        store.verify_digest(&store.snapshot()).unwrap(),
        store.state_digest()
    );
}

const READS: usize = 16;

/// Transactions that read `READS` accounts, `remote` of which belong to an owner other than that of the
/// first.
fn readers(store: &Arc<Store>, protocol: &Partitioned, workers: usize, remote: usize) -> Vec<Job> {
    let catalog = store.catalog();
    let def = catalog.table("account").unwrap();
    let mut b = ProgramBuilder::new(catalog.version());
    let inputs = [(); READS].map(|()| b.input(SqlType::Int8));
    let table = b.table(def);
    let index = b.index(table, def.primary_key.unwrap());
    let (key, cp, status) = (b.key_buffer(), b.collect_register(), b.register());
    for input in inputs {
        b.add_access(Access::new(
            AccessKind::ReadRow,
            def.id,
            vec![KeyPart::Input(input)],
        ));
        b.key(key);
        b.keyin(key, input);
        b.search(cp, table, index, key);
        b.ret(status, cp);
    }
    let program = b.finish().unwrap();
    verify(&program, &catalog).unwrap();
    let program = Arc::new(program);
    let owner = |id: i64| {
        let mut encoded = Vec::new();
        encode_key_value(&mut encoded, &Value::Int8(id));
        protocol.owner(def.id, &encoded, workers)
    };
    let job = |first: i64| {
        let others = (0..ACCOUNTS).filter(|id| *id != first);
        let (own, foreign): (Vec<i64>, Vec<i64>) = others.partition(|id| owner(*id) == owner(first));
        assert!(own.len() >= READS && foreign.len() >= READS);
        let own = own.into_iter().take(READS - 1 - remote);
        let ids = [first]
            .into_iter()
            .chain(own)
            .chain(foreign.into_iter().take(remote));
        let values: Vec<Value> = ids.map(Value::Int8).collect();
        Job {
            program: Arc::clone(&program),
            inputs: program.encode_inputs(&values).unwrap(),
        }
    };
    (0..ACCOUNTS).map(job).collect()
}

/// The workers look for a row at the owner that `Partitioned::owner` returns.
#[test]
fn accesses_reported_as_remote_are_remote() {
    let store = bank();
    let protocol = Partitioned {
        by_owner: true,
        ..Partitioned::default()
    };
    for remote in [0, 4, 12, 15] {
        let jobs = readers(&store, &protocol, 2, remote);
        let report = protocol.run(&store, &jobs, 2);
        assert_eq!((report.committed, report.aborts), (jobs.len() as u64, 0));
        let (all, asked) = (report.accesses, report.remote_accesses);
        assert_eq!(
            (all, asked),
            ((READS * jobs.len()) as u64, (remote * jobs.len()) as u64)
        );
    }
}
