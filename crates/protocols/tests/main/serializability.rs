//! Runs random mixed transactions with every protocol and checks the history. Then removes each of its
//! safeguards, and the check must notice.
//!
//! Keys below [`HOT`] are read, and written blindly or after reading, by all transactions; keys from
//! [`SPARSE`] on are removed (even ones, which exist initially) and inserted (odd ones), each at most once,
//! and read by range. Every write writes a unique value.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use weft_base::{BatchId, Prng, TableId};
use weft_program::instr::Op;
use weft_program::{Access, AccessKind, Class, KeyPart, Outcome, Program, ProgramBuilder, verify};
use weft_protocols::aria::Aria;
use weft_protocols::batch::Batch;
use weft_protocols::calvin::Calvin;
use weft_protocols::history::{History, Recorder, Transaction, Version, Violation, check};
use weft_protocols::partitioned::Partitioned;
use weft_protocols::reconnaissance::Reconnaissance;
use weft_protocols::serial::Serial;
use weft_protocols::silo::Silo;
use weft_protocols::timestamp::Timestamp;
use weft_protocols::two_phase_locking::{
    BoundedWait, Detection, LockPolicy, NoWait, Ordered, TwoPhaseLocking, WaitDie,
};
use weft_protocols::waves::Waves;
use weft_protocols::{Job, Observe, Protocol, Safeguards};
use weft_sql::statement::{self, Plan, PlanContext, ProgramPlan, plan_text};
use weft_store::Store;
use weft_types::{SqlError, SqlType, Value};

const HOT: u64 = 6;
const SPARSE: u64 = 1000;
const SPARSE_KEYS: u64 = 400;
const RANGE: u64 = 12;

/// The kind of a transaction; its programs are compiled once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    ReadTwo,
    ReadWrite,
    Blind,
    Skew,
    WriteTwo,
    Insert,
    Remove,
    Range,
    RangeThenWrite,
    RangeThenInsert,
    /// Reads a key, and writes the key that its value refers to.
    HopWrite,
    /// Reads a key, and twice the key that its value refers to.
    HopRead,
}

/// The kinds that a stream contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mix {
    /// Only hot keys; no ranges, so no intention locks are taken.
    Points,
    Everything,
    /// Ranges with insertions and removals in them, so that errors are phantoms.
    Ranges,
    /// Hot keys, half of them found in rows.
    Hops,
}

impl Kind {
    fn statements(self) -> &'static [&'static str] {
        const READ: &str = "select value from kv where key = $1";
        match self {
            Kind::ReadTwo => &[READ, "select value from kv where key = $2"],
            Kind::ReadWrite => &[READ, "update kv set value = $3 where key = $1"],
            Kind::Blind => &["update kv set value = $3 where key = $1"],
            Kind::Skew => &[READ, "update kv set value = $3 where key = $2"],
            Kind::WriteTwo => &[
                "update kv set value = $3 where key = $1",
                "update kv set value = $4 where key = $2",
            ],
            Kind::Insert => &["insert into kv values ($1, $3)"],
            Kind::Remove => &["delete from kv where key = $1"],
            Kind::Range => &["select key, value from kv where key >= $1 and key <= $2 order by key"],
            Kind::RangeThenWrite => &[
                "select key, value from kv where key >= $1 and key <= $2 order by key",
                "update kv set value = $3 where key = $4",
            ],
            Kind::RangeThenInsert => &[
                "select key, value from kv where key >= $1 and key <= $2 order by key",
                "insert into kv values ($4, $3)",
            ],
            Kind::HopWrite | Kind::HopRead => &[],
        }
    }
}

/// A job and its kind and keys, for decoding its answer.
struct Step {
    kind: Kind,
    keys: [u64; 2],
    /// The key written after a range is read.
    target: u64,
}

/// A program that finds a key in a row, so that it cannot declare it.
fn hop(store: &Arc<Store>, kind: Kind) -> Program {
    let catalog = store.catalog();
    let def = catalog.table("kv").unwrap();
    let mut b = ProgramBuilder::new(catalog.version());
    let inputs = [(); 3].map(|()| b.input(SqlType::Int8));
    let table = b.table(def);
    let index = b.index(table, def.primary_key.unwrap());
    let whole = match kind {
        Kind::HopWrite => AccessKind::WriteTable,
        _ => AccessKind::ReadTable,
    };
    b.add_access(Access::new(
        AccessKind::ReadRow,
        def.id,
        vec![KeyPart::Input(inputs[0])],
    ));
    b.add_access(Access::table(whole, def.id));
    let (value, hot, status) = (b.register(), b.register(), b.register());
    let (key, cp, row) = (b.key_buffer(), b.collect_register(), b.row_buffer());
    b.ldi(hot, HOT as i32);
    let emit = |b: &mut ProgramBuilder| {
        let statement = b.statement(vec![SqlType::Int8]);
        b.search(cp, table, index, key);
        b.ret(status, cp);
        b.outrow(row, statement);
        b.setcol(row, 0, cp, 1);
        b.emit(statement, row);
    };
    b.key(key);
    b.keyin(key, inputs[0]);
    emit(&mut b);
    b.ldcol(value, cp, 1);
    b.arithmetic(Op::Mod, value, value, hot);
    b.key(key);
    b.keyr(key, value, Class::Int8);
    if kind == Kind::HopRead {
        emit(&mut b);
        emit(&mut b);
    } else {
        b.search(cp, table, index, key);
        b.ret(status, cp);
        b.copyrow(row, cp);
        b.setin(row, 1, inputs[2]);
        b.update(cp, row);
        b.ret(status, cp);
    }
    let program = b.finish().unwrap();
    verify(&program, &catalog).unwrap();
    program
}

struct World {
    store: Arc<Store>,
    programs: HashMap<Kind, Arc<Program>>,
    initial: HashMap<u64, u64>,
}

impl World {
    fn new() -> World {
        let store = Store::new();
        let sql = "create table kv (key bigint primary key, value bigint not null)";
        let Ok(Plan::Ddl(table)) = plan_text(sql, &PlanContext::new(&store.catalog(), sql)) else {
            panic!("not a definition")
        };
        let mut writer = store.begin_batch(BatchId(1));
        for op in &table.ops {
            writer.apply_catalog(op).unwrap();
        }
        let def = Arc::clone(writer.catalog().table("kv").unwrap());
        let mut initial = HashMap::new();
        let sparse = (SPARSE..SPARSE + SPARSE_KEYS).step_by(2);
        let mut member = writer.member(0);
        for key in (0..HOT).chain(sparse) {
            let value = 10_000_000 + key;
            let row = [Value::Int8(key as i64), Value::Int8(value as i64)];
            member.insert(def.id, &def.layout.encode(&row).unwrap()).unwrap();
            initial.insert(key, value);
        }
        member.commit();
        writer.finish();
        store.publish(BatchId(1));
        let mut world = World {
            store,
            programs: HashMap::new(),
            initial,
        };
        for kind in [
            Kind::ReadTwo,
            Kind::ReadWrite,
            Kind::Blind,
            Kind::Skew,
            Kind::WriteTwo,
            Kind::Insert,
            Kind::Remove,
            Kind::Range,
            Kind::RangeThenWrite,
            Kind::RangeThenInsert,
        ] {
            let plan = world.compile(kind);
            world.programs.insert(kind, plan.program);
        }
        for kind in [Kind::HopWrite, Kind::HopRead] {
            world.programs.insert(kind, Arc::new(hop(&world.store, kind)));
        }
        world
    }

    fn compile(&self, kind: Kind) -> ProgramPlan {
        let parsed: Vec<_> = kind
            .statements()
            .iter()
            .map(|text| statement::parse_one(text).unwrap())
            .collect();
        let asts: Vec<_> = parsed.iter().collect();
        let types = vec![Some(SqlType::Int8); 4];
        let plan =
            statement::compile_many(&asts, &self.store.catalog(), &types, weft_types::TimeZone::UTC).unwrap();
        plan.unwrap_or_else(|| panic!("{kind:?} is no point statement"))
    }

    fn job(&self, step: &Step, number: usize) -> Job {
        let program = &self.programs[&step.kind];
        // Values that no other transaction writes.
        let value = 2 * number as i64;
        let fourth = match step.kind {
            Kind::RangeThenWrite | Kind::RangeThenInsert => step.target as i64,
            _ => value + 1,
        };
        let all = [step.keys[0] as i64, step.keys[1] as i64, value, fourth].map(Value::Int8);
        let count = program.inputs.len();
        Job {
            program: Arc::clone(program),
            inputs: program.encode_inputs(&all[..count]).unwrap(),
        }
    }

    /// A stream of `count` transactions.
    fn stream(&self, count: usize, mix: Mix, seed: u64) -> Vec<Step> {
        let mut random = Prng::new(seed);
        let mut fresh: Vec<u64> = (SPARSE + 1..SPARSE + SPARSE_KEYS).step_by(2).collect();
        let mut step = |random: &mut Prng| {
            let first = random.below(HOT);
            let second = (first + 1 + random.below(HOT - 1)) % HOT;
            let low = SPARSE + random.below(SPARSE_KEYS - RANGE);
            let mut target = first;
            let choice = match mix {
                Mix::Points => random.below(7),
                Mix::Everything => random.below(14),
                Mix::Ranges => 7 + random.below(7),
                Mix::Hops if random.chance(1, 2) => random.below(7),
                Mix::Hops => 20 + random.below(8),
            };
            let (kind, keys) = match choice {
                0 => (Kind::ReadTwo, [first, second]),
                1 => (Kind::ReadWrite, [first, second]),
                2 => (Kind::Blind, [first, second]),
                3..=5 => (Kind::Skew, [first, second]),
                6 => (Kind::WriteTwo, [first, second]),
                20..24 => (Kind::HopWrite, [first, second]),
                24.. => (Kind::HopRead, [first, second]),
                7 | 8 if !fresh.is_empty() => {
                    let at = random.below(fresh.len() as u64) as usize;
                    (Kind::Insert, [fresh.swap_remove(at), 0])
                }
                9 => (Kind::Remove, [(low + 1) & !1, 0]),
                10 => (Kind::Range, [low, low + RANGE - 1]),
                11 | 12 if !fresh.is_empty() => {
                    // Adjacent keys, so that their ranges overlap.
                    let at = fresh.len() - 1 - random.below(fresh.len().min(3) as u64) as usize;
                    target = fresh.remove(at);
                    (
                        Kind::RangeThenInsert,
                        [target - RANGE / 2, target + RANGE / 2 - 1],
                    )
                }
                _ => (Kind::RangeThenWrite, [low, low + RANGE - 1]),
            };
            Step { kind, keys, target }
        };
        (0..count).map(|_| step(&mut random)).collect()
    }
}

/// The reads of a transaction, decoded from its answer.
fn reads(step: &Step, outcome: &Outcome, transaction: &mut Transaction, program: &Program) {
    let layout = |n: usize| program.output_layout(n).unwrap();
    let one = |n: usize| {
        let row = outcome.statement(n).unwrap().rows().next();
        Version::from(row.map(|row| layout(n).fixed_u64(row, 0).unwrap()))
    };
    let mut not_there = |n: usize, key: u64| {
        if outcome.statement(n).unwrap().affected() == 0 {
            transaction.read(key, Version::Absent);
        }
    };
    match step.kind {
        Kind::Blind | Kind::Remove => not_there(0, step.keys[0]),
        Kind::ReadTwo => {
            transaction.read(step.keys[0], one(0));
            transaction.read(step.keys[1], one(1));
        }
        Kind::ReadWrite | Kind::Skew => transaction.read(step.keys[0], one(0)),
        Kind::WriteTwo | Kind::Insert => {}
        Kind::HopWrite => transaction.read(step.keys[0], one(0)),
        Kind::HopRead => {
            let Version::Value(led) = one(0) else {
                panic!("hot keys stay")
            };
            transaction.read(step.keys[0], one(0));
            transaction.read(led % HOT, one(1));
            transaction.read(led % HOT, one(2));
        }
        Kind::Range | Kind::RangeThenWrite | Kind::RangeThenInsert => {
            let mut found: HashMap<u64, u64> = HashMap::new();
            for row in outcome.statement(0).unwrap().rows() {
                let cell = |column| layout(0).fixed_u64(row, column);
                match cell(0).zip(cell(1)) {
                    Some((key, value)) => found.insert(key, value),
                    // Removed between the scan and the read, which only a fault allows: no version.
                    None => found.insert(step.keys[0], u64::MAX),
                };
            }
            for key in step.keys[0]..=step.keys[1] {
                transaction.read(key, found.get(&key).copied().into());
            }
        }
    }
}

/// Transactions of a stream.
const COUNT: usize = 1500;

/// Runs a stream and returns its history: of the committed transactions, which are all unless a fault was
/// injected. Without validation two may delete the same row, and the store refuses the second.
fn history<P: Protocol>(protocol: &P, workers: usize, mix: Mix, seed: u64, yield_every: u64) -> History {
    let world = World::new();
    let steps = world.stream(COUNT, mix, seed);
    let jobs: Vec<Job> = steps
        .iter()
        .enumerate()
        .map(|(n, step)| world.job(step, n))
        .collect();
    let recorder = Recorder::new(COUNT, yield_every);
    let report = protocol.run_observed(&world.store, &jobs, workers, &recorder);
    assert_eq!(
        report.committed + report.failed,
        COUNT as u64,
        "{} seed {seed}",
        P::NAME
    );
    assert_eq!(recorder.not_answered_once(), [0; 0], "{} seed {seed}", P::NAME);
    recorded(world, &steps, &recorder)
}

/// The history in a recorder.
fn recorded(world: World, steps: &[Step], recorder: &Recorder) -> History {
    let catalog = world.store.catalog();
    let def = catalog.table("kv").unwrap();
    let cell = |row: &[u8], column| def.layout.fixed_u64(row, column).unwrap();
    let transactions = recorder.transactions(
        |_, row| (cell(row, 0), cell(row, 1)),
        |job, outcome, transaction| {
            reads(
                &steps[job],
                outcome,
                transaction,
                &world.programs[&steps[job].kind],
            );
        },
    );
    History {
        initial: world.initial,
        transactions,
    }
}

fn is_serializable<P: Protocol>(protocol: &P) {
    for (seed, workers) in [(1, 2), (2, 3), (3, 4), (4, 1)] {
        for (mix, yield_every) in [
            (Mix::Points, 3),
            (Mix::Everything, 2),
            (Mix::Everything, 0),
            (Mix::Ranges, 2),
        ] {
            let history = history(protocol, workers, mix, seed, yield_every);
            assert_eq!(
                history.transactions.len(),
                COUNT,
                "{} seed {seed} {mix:?}",
                P::NAME
            );
            if let Err(violation) = check(&history) {
                panic!("{} workers {workers} seed {seed} {mix:?}: {violation}", P::NAME);
            }
        }
    }
}

/// The same check for programs that find keys in rows.
fn hops_are_serializable<P: Protocol>(protocol: &P) {
    for (seed, workers) in [(1, 2), (2, 3), (3, 4), (4, 1)] {
        for yield_every in [0, 2, 3] {
            let history = history(protocol, workers, Mix::Hops, seed, yield_every);
            assert_eq!(history.transactions.len(), COUNT, "{} seed {seed}", P::NAME);
            if let Err(violation) = check(&history) {
                panic!("{} workers {workers} seed {seed}: {violation}", P::NAME);
            }
        }
    }
}

/// Within a bounded number of runs, one must be found to be not serializable.
fn is_caught<P: Protocol>(protocol: &P, mix: Mix) {
    for seed in 0..200 {
        if check(&history(protocol, 2 + seed as usize % 3, mix, seed, 1 + seed % 4)).is_err() {
            return;
        }
    }
    panic!("{}: the planted fault was not noticed", P::NAME);
}

/// Two transactions, each the first of one of two workers, that read a range and insert into it. Before it
/// inserts, each waits until the other has read too, at most for `patience`.
struct Meeting {
    recorder: Recorder,
    accesses: Mutex<HashMap<ThreadId, u32>>,
    met: AtomicU32,
    patience: Duration,
}

impl Observe for Meeting {
    const INSTALLS: bool = true;

    fn installed(&self, job: usize, table: TableId, old: Option<&[u8]>, new: Option<&[u8]>) {
        self.recorder.installed(job, table, old, new);
    }

    fn aborted(&self, job: usize) {
        self.recorder.aborted(job);
    }

    fn pause(&self) {
        let mut accesses = self.accesses.lock().unwrap();
        let access = accesses.entry(std::thread::current().id()).or_default();
        *access += 1;
        let is_insert = *access == 2;
        drop(accesses);
        if is_insert {
            self.met.fetch_add(1, Ordering::SeqCst);
            let began = Instant::now();
            while self.met.load(Ordering::SeqCst) < 2 && began.elapsed() < self.patience {
                std::thread::yield_now();
            }
        }
    }

    fn answered(&self, job: usize, answer: Result<&Outcome, &SqlError>) {
        self.recorder.answered(job, answer);
    }
}

/// Makes two transactions overlap that must not: each inserts a row that the other has not seen in its range.
fn ranges_meet<P: Protocol>(protocol: &P, patience: Duration) -> Result<(), Violation> {
    // A worker claims this many jobs at a time.
    const CLAIMED: usize = 16;
    let world = World::new();
    let step = |number: usize| {
        let target = SPARSE + 101 + 2 * (number / CLAIMED) as u64;
        match number % CLAIMED {
            0 => Step {
                kind: Kind::RangeThenInsert,
                keys: [target - RANGE / 2, target + RANGE / 2 - 1],
                target,
            },
            _ => Step {
                kind: Kind::ReadTwo,
                keys: [0, 1],
                target: 0,
            },
        }
    };
    let steps: Vec<Step> = (0..2 * CLAIMED).map(step).collect();
    let jobs = steps.iter().enumerate();
    let jobs: Vec<Job> = jobs.map(|(n, step)| world.job(step, n)).collect();
    let meeting = Meeting {
        recorder: Recorder::new(jobs.len(), 0),
        accesses: Mutex::default(),
        met: AtomicU32::new(0),
        patience,
    };
    let report = protocol.run_observed(&world.store, &jobs, 2, &meeting);
    assert_eq!(report.committed, jobs.len() as u64, "{}", P::NAME);
    check(&recorded(world, &steps, &meeting.recorder))
}

/// Reads take no locks.
#[derive(Debug, Clone, Copy, Default)]
struct ReadsUnlocked;

impl Safeguards for ReadsUnlocked {
    const LOCKS_READS: bool = false;
}

/// Nothing is validated.
#[derive(Debug, Clone, Copy, Default)]
struct Unvalidated;

impl Safeguards for Unvalidated {
    const VALIDATES: bool = false;

    fn pause() {
        std::thread::yield_now();
    }
}

/// Late transactions are admitted.
#[derive(Debug, Clone, Copy, Default)]
struct LateAllowed;

impl Safeguards for LateAllowed {
    const COMPARES_TIMESTAMPS: bool = false;

    fn pause() {
        std::thread::yield_now();
    }
}

/// Reads may leave the footprint that their transaction was planned by.
#[derive(Debug, Clone, Copy, Default)]
struct ReadsLeave;

impl Safeguards for ReadsLeave {
    const KEEPS_READS: bool = false;
}

/// Transactions run before their reads are answered.
#[derive(Debug, Clone, Copy, Default)]
struct AnswersOvertaken;

impl Safeguards for AnswersOvertaken {
    const KEEPS_MESSAGE_ORDER: bool = false;
}

fn small_batches() -> Batch {
    Batch {
        max_members: 64,
        lock_slots: 1 << 16,
        ..Batch::default()
    }
}

fn small_aria() -> Aria {
    Aria {
        max_members: 32,
        ..Aria::default()
    }
}

fn small_reconnaissance() -> Reconnaissance {
    Reconnaissance {
        max_members: 64,
        ..Reconnaissance::default()
    }
}

fn locking<P: LockPolicy>() -> TwoPhaseLocking<P> {
    TwoPhaseLocking {
        epoch_transactions: 500,
        ..TwoPhaseLocking::under(P::default())
    }
}

#[test]
fn batch_is_serializable() {
    is_serializable(&small_batches());
}

#[test]
fn batch_without_read_locks_is_caught() {
    is_caught(&small_batches().guarded(ReadsUnlocked), Mix::Points);
}

#[test]
fn waves_are_serializable() {
    is_serializable(&Waves {
        max_members: 300,
        ..Waves::default()
    });
}

#[test]
fn waves_without_read_locks_are_caught() {
    is_caught(&Waves::default().guarded(ReadsUnlocked), Mix::Points);
}

#[test]
fn serial_is_serializable() {
    is_serializable(&Serial::default());
}

#[test]
fn calvin_is_serializable() {
    is_serializable(&Calvin {
        window: 64,
        ..Calvin::default()
    });
}

#[test]
fn calvin_without_read_locks_is_caught() {
    is_caught(&Calvin::default().guarded(ReadsUnlocked), Mix::Points);
}

#[test]
fn ordered_two_phase_locking_is_serializable() {
    is_serializable(&locking::<Ordered>());
}

#[test]
fn no_wait_is_serializable() {
    is_serializable(&locking::<NoWait>());
}

#[test]
fn wait_die_is_serializable() {
    is_serializable(&locking::<WaitDie>());
}

#[test]
fn bounded_wait_is_serializable() {
    is_serializable(&locking::<BoundedWait>());
}

#[test]
fn detection_is_serializable() {
    is_serializable(&locking::<Detection>());
}

#[test]
fn two_phase_locking_without_read_locks_is_caught_under_every_policy() {
    is_caught(&locking::<Ordered>().guarded(ReadsUnlocked), Mix::Points);
    is_caught(&locking::<NoWait>().guarded(ReadsUnlocked), Mix::Points);
    is_caught(&locking::<WaitDie>().guarded(ReadsUnlocked), Mix::Points);
    is_caught(&locking::<BoundedWait>().guarded(ReadsUnlocked), Mix::Points);
    is_caught(&locking::<Detection>().guarded(ReadsUnlocked), Mix::Points);
}

#[test]
fn two_phase_locking_without_range_locks_is_caught() {
    fn under<P: LockPolicy>() {
        let sound = ranges_meet(&locking::<P>(), Duration::from_millis(20));
        assert_eq!(sound, Ok(()), "{}", P::NAME);
        let faulty = locking::<P>().guarded(ReadsUnlocked);
        let violation = ranges_meet(&faulty, Duration::from_secs(60));
        assert!(
            matches!(violation, Err(Violation::Cycle(_))),
            "{}: {violation:?}",
            P::NAME
        );
    }
    under::<Ordered>();
    under::<NoWait>();
    under::<WaitDie>();
    under::<BoundedWait>();
    under::<Detection>();
}

#[test]
fn silo_is_serializable() {
    is_serializable(&Silo::default());
}

#[test]
fn silo_without_validation_is_caught() {
    is_caught(&Silo::default().guarded(Unvalidated), Mix::Points);
    is_caught(&Silo::default().guarded(Unvalidated), Mix::Ranges);
}

#[test]
fn aria_is_serializable() {
    is_serializable(&small_aria());
}

#[test]
fn aria_without_validation_is_caught() {
    is_caught(&small_aria().guarded(Unvalidated), Mix::Points);
    is_caught(&small_aria().guarded(Unvalidated), Mix::Ranges);
}

#[test]
fn timestamp_is_serializable() {
    is_serializable(&Timestamp::default());
}

#[test]
fn timestamp_without_comparison_is_caught() {
    is_caught(&Timestamp::default().guarded(LateAllowed), Mix::Points);
}

#[test]
fn partitioned_is_serializable() {
    is_serializable(&Partitioned::default());
    is_serializable(&Partitioned {
        window: 1,
        epoch_transactions: 700,
        by_owner: true,
        ..Partitioned::default()
    });
}

#[test]
fn partitioned_without_comparison_is_caught() {
    is_caught(&Partitioned::default().guarded(LateAllowed), Mix::Points);
}

#[test]
fn partitioned_with_answers_overtaken_is_caught() {
    is_caught(&Partitioned::default().guarded(AnswersOvertaken), Mix::Points);
}

#[test]
fn reconnaissance_is_serializable() {
    is_serializable(&small_reconnaissance());
    hops_are_serializable(&small_reconnaissance());
    hops_are_serializable(&Reconnaissance::default());
}

/// Which members leave their footprints depends on the boundary and on positions, not on threads.
#[test]
fn reconnaissance_comes_to_the_same_with_any_number_of_workers() {
    let outcome = |workers| {
        const COUNT: usize = 1500;
        let world = World::new();
        let steps = world.stream(COUNT, Mix::Hops, 9);
        let jobs: Vec<Job> = (0..COUNT).map(|n| world.job(&steps[n], n)).collect();
        let recorder = Recorder::new(COUNT, 2);
        let report = Reconnaissance::default().run_observed(&world.store, &jobs, workers, &recorder);
        assert_eq!((report.committed, report.failed), (COUNT as u64, 0));
        assert!(report.aborts > 100, "{} left their footprints", report.aborts);
        let digest = world.store.state_digest();
        assert_eq!(
            world.store.verify_digest(&world.store.snapshot()).unwrap(),
            digest
        );
        (digest, report.aborts, report.batches)
    };
    let alone = outcome(1);
    assert_eq!(outcome(2), alone);
    assert_eq!(outcome(4), alone);
}

#[test]
fn reconnaissance_with_footprints_left_is_caught() {
    is_caught(&small_reconnaissance().guarded(ReadsLeave), Mix::Hops);
}

#[test]
fn hops_are_serializable_where_tables_are_declared_and_where_writes_are_reserved() {
    hops_are_serializable(&Waves::default());
    hops_are_serializable(&small_aria());
}

#[test]
fn aria_without_validation_is_caught_in_hops() {
    is_caught(&small_aria().guarded(Unvalidated), Mix::Hops);
}
