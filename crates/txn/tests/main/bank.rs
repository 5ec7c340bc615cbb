//! The bank that all tests use: accounts, a journal with one row per transfer, and programs over both.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft_base::{BatchId, IndexId, ManualClock, Progress, SimDisk, TableId};
use weft_offload::Units;
use weft_offload::faults::{Fault, failing_models};
use weft_offload::model::ModelParams;
use weft_program::{
    Access, AccessKind, Cond, KeyPart, Op, Outcome, Program, ProgramBuilder, RaiseState, verify,
};
use weft_store::checkpoint::CheckpointConfig;
use weft_store::{Catalog, CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, Snapshot, TableDef};
use weft_txn::{Committed, Engine, EngineConfig, EngineError, Isolation, Refused, Transaction, TxnOptions};
use weft_types::{SqlError, SqlType, Value, encode_key_value};

pub const DIR: &str = "/db";
pub const ACCOUNTS: TableId = TableId(FIRST_OBJECT_ID);
pub const ACCOUNTS_PKEY: IndexId = IndexId(FIRST_OBJECT_ID + 1);
pub const JOURNAL: TableId = TableId(FIRST_OBJECT_ID + 2);
pub const JOURNAL_PKEY: IndexId = IndexId(FIRST_OBJECT_ID + 3);
/// What an account begins with.
pub const OPENING: i64 = 1000;

pub fn primary(id: IndexId, name: &str, table: TableId) -> IndexDef {
    IndexDef {
        id,
        name: name.into(),
        table,
        columns: vec![0],
        unique: true,
        primary: true,
        method: IndexMethod::Both,
    }
}

/// accounts (id bigint primary key, balance bigint not null)
pub fn accounts() -> TableDef {
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("balance", SqlType::Int8).not_null(),
    ];
    TableDef::new(ACCOUNTS, "accounts", columns).with_index(primary(ACCOUNTS_PKEY, "accounts_pkey", ACCOUNTS))
}

/// journal (id bigint primary key, source bigint, target bigint, amount bigint)
fn journal() -> TableDef {
    let columns = ["id", "source", "target", "amount"].map(|name| ColumnDef::new(name, SqlType::Int8));
    TableDef::new(JOURNAL, "journal", columns.to_vec()).with_index(primary(
        JOURNAL_PKEY,
        "journal_pkey",
        JOURNAL,
    ))
}

/// The compiled transactions, for one catalog version.
#[derive(Clone)]
pub struct Programs {
    /// (txid, from, to, amount): moves money and writes the journal; P0001 when there is too little.
    pub transfer: Arc<Program>,
    /// (txid, lo, hi): writes the sum of a range of accounts into the journal.
    pub audit: Arc<Program>,
    /// (id, n) -> balance: `balance = balance + n`.
    pub add: Arc<Program>,
    /// (id, n): `balance = balance + (balance * n - balance) / 100 * n - n`, some work for registers.
    pub interest: Arc<Program>,
    /// (id, v): `balance = v`.
    pub set: Arc<Program>,
    /// (id, id, v): sets two accounts.
    pub set_two: Arc<Program>,
    /// (id, n): counts to n, then `balance = n`.
    pub count: Arc<Program>,
    /// (id, balance): a new account.
    pub open: Arc<Program>,
    /// (id): removes an account, whatever is on it.
    pub close: Arc<Program>,
    /// (id) -> balance.
    pub read: Arc<Program>,
    /// (lo, hi) -> balances in order.
    pub range: Arc<Program>,
    /// (a, b, id, n): adds n to `id` if a and b together hold at least 100; P0001 otherwise.
    pub add_if_covered: Arc<Program>,
}

struct Build {
    b: ProgramBuilder,
    accounts: weft_program::TableNo,
    pkey: u8,
}

impl Build {
    fn new(catalog: &Catalog, inputs: usize) -> Build {
        let mut b = ProgramBuilder::new(catalog.version());
        for _ in 0..inputs {
            b.input(SqlType::Int8);
        }
        let accounts = b.table(catalog.table_by_id(ACCOUNTS).unwrap());
        let pkey = b.index(accounts, ACCOUNTS_PKEY);
        Build { b, accounts, pkey }
    }

    fn touches(&mut self, kind: AccessKind, input: u16) {
        self.b
            .add_access(Access::new(kind, ACCOUNTS, vec![KeyPart::Input(input)]));
    }

    /// Searches an account; the abort handler follows when there is none.
    fn find(&mut self, input: u16) -> weft_program::Cp {
        let (key, cp, status) = (self.b.key_buffer(), self.b.collect_register(), self.b.register());
        self.b.key(key);
        self.b.keyin(key, input);
        self.b.search(cp, self.accounts, self.pkey, key);
        self.b.ret(status, cp);
        let found = self.b.label();
        self.b.branch_true(status, found);
        self.b.raise(RaiseState::RaiseException, "no such account");
        self.b.bind(found);
        cp
    }

    /// Writes a found account back with what `register` holds.
    fn store(&mut self, cp: weft_program::Cp, register: weft_program::Reg) {
        let (row, done) = (self.b.row_buffer(), self.b.register());
        self.b.copyrow(row, cp);
        self.b.setr(row, 1, register);
        self.b.update(cp, row);
        self.b.ret(done, cp);
    }

    fn add(&mut self, cp: weft_program::Cp, op: Op, amount: u16) -> weft_program::Reg {
        let (balance, by) = (self.b.register(), self.b.register());
        self.b.ldcol(balance, cp, 1);
        self.b.ldin(by, amount);
        self.b.arithmetic(op, balance, balance, by);
        self.store(cp, balance);
        balance
    }

    /// Inserts (i0, i1, i2, amount) into the journal.
    fn journal(&mut self, catalog: &Catalog, amount: weft_program::Reg) {
        let table = self.b.table(catalog.table_by_id(JOURNAL).unwrap());
        self.b.add_access(Access::new(
            AccessKind::InsertRow,
            JOURNAL,
            vec![KeyPart::Input(0)],
        ));
        let (row, cp, done) = (self.b.row_buffer(), self.b.collect_register(), self.b.register());
        self.b.row(row, table);
        for column in 0..3 {
            self.b.setin(row, column, column);
        }
        self.b.setr(row, 3, amount);
        self.b.insert(cp, table, row);
        self.b.ret(done, cp);
    }

    /// Walks the accounts between two inputs and calls `each` for the row in the collect register.
    fn each(&mut self, lo: u16, hi: u16, each: impl FnOnce(&mut Build, weft_program::Cp)) {
        self.b.add_access(Access::range(
            ACCOUNTS,
            vec![KeyPart::Input(lo)],
            Some(vec![KeyPart::Input(hi)]),
        ));
        let (from, to) = (self.b.key_buffer(), self.b.key_buffer());
        let (cp, status) = (self.b.collect_register(), self.b.register());
        for (key, input) in [(from, lo), (to, hi)] {
            self.b.key(key);
            self.b.keyin(key, input);
        }
        self.b.scan(cp, self.accounts, self.pkey, from, to, 0, None);
        self.b.ret(status, cp);
        let (next, end) = (self.b.label(), self.b.label());
        self.b.bind(next);
        self.b.branch_not_true(status, end);
        each(self, cp);
        self.b.next(status, cp);
        self.b.jump(next);
        self.b.bind(end);
    }

    fn finish(self, catalog: &Catalog) -> Arc<Program> {
        let program = self.b.finish().unwrap();
        verify(&program, catalog).unwrap();
        Arc::new(program)
    }
}

fn transfer(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 4);
    build.touches(AccessKind::WriteRow, 1);
    build.touches(AccessKind::WriteRow, 2);
    let (from, to) = (build.find(1), build.find(2));
    let (balance, amount) = (build.b.register(), build.b.register());
    build.b.ldcol(balance, from, 1);
    build.b.ldin(amount, 3);
    let covered = build.b.label();
    build.b.branch(Cond::Ge, balance, amount, covered);
    build.b.raise(RaiseState::RaiseException, "not enough money");
    build.b.bind(covered);
    build.add(from, Op::Sub, 3);
    build.add(to, Op::Add, 3);
    build.journal(catalog, amount);
    build.finish(catalog)
}

fn audit(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 3);
    let (sum, balance) = (build.b.register(), build.b.register());
    build.b.ldi(sum, 0);
    build.each(1, 2, |build, cp| {
        build.b.ldcol(balance, cp, 1);
        build.b.arithmetic(Op::Add, sum, sum, balance);
    });
    build.journal(catalog, sum);
    build.finish(catalog)
}

fn add(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 2);
    build.touches(AccessKind::WriteRow, 0);
    let statement = build.b.statement(vec![SqlType::Int8]);
    let cp = build.find(0);
    let balance = build.add(cp, Op::Add, 1);
    let row = build.b.row_buffer();
    build.b.outrow(row, statement);
    build.b.setr(row, 0, balance);
    build.b.emit(statement, row);
    build.finish(catalog)
}

fn interest(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 2);
    build.touches(AccessKind::WriteRow, 0);
    let cp = build.find(0);
    let (balance, n, x, hundred) = (
        build.b.register(),
        build.b.register(),
        build.b.register(),
        build.b.register(),
    );
    build.b.ldcol(balance, cp, 1);
    build.b.ldin(n, 1);
    build.b.ldi(hundred, 100);
    build.b.arithmetic(Op::Mul, x, balance, n);
    build.b.arithmetic(Op::Sub, x, x, balance);
    build.b.arithmetic(Op::Div, x, x, hundred);
    build.b.arithmetic(Op::Mul, x, x, n);
    build.b.arithmetic(Op::Sub, x, x, n);
    build.b.arithmetic(Op::Add, x, balance, x);
    build.store(cp, x);
    build.finish(catalog)
}

fn set(catalog: &Catalog, accounts: u16) -> Arc<Program> {
    let mut build = Build::new(catalog, usize::from(accounts) + 1);
    for account in 0..accounts {
        build.touches(AccessKind::WriteRow, account);
        let cp = build.find(account);
        let value = build.b.register();
        build.b.ldin(value, accounts);
        build.store(cp, value);
    }
    build.finish(catalog)
}

fn count(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 2);
    build.touches(AccessKind::WriteRow, 0);
    let cp = build.find(0);
    let (counted, one, n) = (build.b.register(), build.b.register(), build.b.register());
    build.b.ldi(counted, 0);
    build.b.ldi(one, 1);
    build.b.ldin(n, 1);
    let next = build.b.label();
    build.b.bind(next);
    build.b.arithmetic(Op::Add, counted, counted, one);
    build.b.branch(Cond::Lt, counted, n, next);
    build.store(cp, counted);
    build.finish(catalog)
}

fn open(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 2);
    build.touches(AccessKind::InsertRow, 0);
    let (row, cp, done) = (
        build.b.row_buffer(),
        build.b.collect_register(),
        build.b.register(),
    );
    build.b.row(row, build.accounts);
    build.b.setin(row, 0, 0);
    build.b.setin(row, 1, 1);
    build.b.insert(cp, build.accounts, row);
    build.b.ret(done, cp);
    build.finish(catalog)
}

fn close(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 1);
    build.touches(AccessKind::WriteRow, 0);
    let cp = build.find(0);
    let done = build.b.register();
    build.b.remove(cp);
    build.b.ret(done, cp);
    build.finish(catalog)
}

fn read(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 1);
    build.touches(AccessKind::ReadRow, 0);
    let statement = build.b.statement(vec![SqlType::Int8]);
    let cp = build.find(0);
    let row = build.b.row_buffer();
    build.b.outrow(row, statement);
    build.b.setcol(row, 0, cp, 1);
    build.b.emit(statement, row);
    build.finish(catalog)
}

fn range(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 2);
    let statement = build.b.statement(vec![SqlType::Int8]);
    let row = build.b.row_buffer();
    build.each(0, 1, |build, cp| {
        build.b.outrow(row, statement);
        build.b.setcol(row, 0, cp, 1);
        build.b.emit(statement, row);
    });
    build.finish(catalog)
}

fn add_if_covered(catalog: &Catalog) -> Arc<Program> {
    let mut build = Build::new(catalog, 4);
    build.touches(AccessKind::ReadRow, 0);
    build.touches(AccessKind::ReadRow, 1);
    build.touches(AccessKind::WriteRow, 2);
    let (a, b, target) = (build.find(0), build.find(1), build.find(2));
    let (left, right) = (build.b.register(), build.b.register());
    build.b.ldcol(left, a, 1);
    build.b.ldcol(right, b, 1);
    build.b.arithmetic(Op::Add, left, left, right);
    build.b.ldi(right, 100);
    let covered = build.b.label();
    build.b.branch(Cond::Ge, left, right, covered);
    build.b.raise(RaiseState::RaiseException, "not covered");
    build.b.bind(covered);
    build.add(target, Op::Add, 3);
    build.finish(catalog)
}

impl Programs {
    pub fn compile(catalog: &Catalog) -> Programs {
        Programs {
            transfer: transfer(catalog),
            audit: audit(catalog),
            add: add(catalog),
            interest: interest(catalog),
            set: set(catalog, 1),
            set_two: set(catalog, 2),
            count: count(catalog),
            open: open(catalog),
            close: close(catalog),
            read: read(catalog),
            range: range(catalog),
            add_if_covered: add_if_covered(catalog),
        }
    }
}

/// Inputs of a program: all are bigint.
pub fn inputs(program: &Program, values: &[i64]) -> Vec<u8> {
    let values: Vec<Value> = values.iter().map(|value| Value::Int8(*value)).collect();
    program.encode_inputs(&values).unwrap()
}

/// The single numbers that a program's first statement returned.
pub fn numbers(program: &Program, outcome: &Outcome) -> Vec<i64> {
    let layout = program.output_layout(0).unwrap();
    let rows = outcome.statement(0).unwrap().rows();
    rows.map(|row| match layout.value(row, 0) {
        Value::Int8(number) => number,
        other => panic!("{other:?}"),
    })
    .collect()
}

pub fn key(id: i64) -> Vec<u8> {
    let mut key = Vec::new();
    encode_key_value(&mut key, &Value::Int8(id));
    key
}

/// An engine with few background threads and no timers that matter.
pub fn quiet() -> EngineConfig {
    EngineConfig {
        workers: 1,
        segment_bytes: 8192,
        checkpoint_every_bytes: 0,
        checkpoint: CheckpointConfig {
            table_bytes: 1500,
            block_bytes: 256,
            level0_tables: 2,
            level1_bytes: 4000,
            run_rows: 7,
            merge_beside: false,
            ..CheckpointConfig::default()
        },
        flush_interval: Duration::from_secs(3600),
        batch_lock_slots: 1 << 12,
        memory_bytes: 0,
        ..EngineConfig::default()
    }
}

/// The same with rows that leave memory whenever they can, and checkpoints so that they can.
pub fn without_memory() -> EngineConfig {
    EngineConfig {
        memory_bytes: 1,
        memory_pause: Duration::from_micros(100),
        ..quiet()
    }
}

/// The same with files merged by two compaction units that fail at one job in five.
pub fn on_failing_units() -> EngineConfig {
    let mut config = quiet();
    let scheduler = failing_models(2, ModelParams::default(), 200_000, &Fault::ALL).unwrap();
    config.checkpoint.units = Units::Scheduler {
        name: "failing",
        scheduler: Arc::new(scheduler),
    };
    config
}

pub fn open_engine(disk: &SimDisk, config: EngineConfig) -> Result<Engine, EngineError> {
    open_engine_watched(disk, config, &Progress::default())
}

pub fn open_engine_watched(
    disk: &SimDisk,
    config: EngineConfig,
    progress: &Progress,
) -> Result<Engine, EngineError> {
    let clock = Arc::new(ManualClock::new(0));
    Engine::open(Arc::new(disk.clone()), Path::new(DIR), clock, config, progress)
}

/// An engine over a bank, and what tests do with it.
#[derive(Clone)]
pub struct Bank {
    pub engine: Engine,
    pub programs: Programs,
}

pub type Step<T> = Result<T, Box<Refused>>;

impl Bank {
    /// Opens the bank on a disk; makes the tables and `accounts` accounts (0, 1, ...) if there are none.
    pub fn open(disk: &SimDisk, config: EngineConfig, accounts: i64) -> Result<Bank, EngineError> {
        let engine = open_engine(disk, config)?;
        Bank::over(engine, accounts)
    }

    pub fn fresh(config: EngineConfig, accounts: i64) -> Bank {
        Bank::open(&SimDisk::new(1), config, accounts).unwrap()
    }

    pub fn over(engine: Engine, accounts: i64) -> Result<Bank, EngineError> {
        let stopped = |refused: Box<Refused>| EngineError::Stopped(refused.error);
        if engine.catalog().table_by_id(ACCOUNTS).is_none() {
            let mut txn = engine.begin(TxnOptions::default());
            txn.lock_catalog().map_err(EngineError::Stopped)?;
            for def in [super::bank::accounts(), journal()] {
                txn.catalog_op(CatalogOp::CreateTable(def))
                    .map_err(EngineError::Stopped)?;
            }
            let catalog = txn.catalog();
            let def = catalog.table_by_id(ACCOUNTS).unwrap();
            let rows: Vec<Vec<u8>> = (0..accounts).map(|id| account_row(def, id, OPENING)).collect();
            txn.insert(def, &rows).map_err(EngineError::Stopped)?;
            txn.commit().map_err(stopped)?;
        }
        let programs = Programs::compile(&engine.catalog());
        Ok(Bank { engine, programs })
    }

    pub fn execute(&self, program: &Arc<Program>, values: &[i64]) -> Step<Committed> {
        self.engine.execute(program, inputs(program, values))
    }

    pub fn begin(&self, isolation: Isolation) -> Session {
        self.begin_with(TxnOptions {
            isolation,
            ..TxnOptions::default()
        })
    }

    pub fn begin_with(&self, options: TxnOptions) -> Session {
        Session {
            txn: self.engine.begin(options),
            programs: self.programs.clone(),
        }
    }

    pub fn balance(&self, id: i64) -> Option<i64> {
        balances(&self.engine.snapshot()).get(&id).copied()
    }

    pub fn set(&self, id: i64, value: i64) {
        self.execute(&self.programs.set, &[id, value]).unwrap();
    }
}

pub fn account_row(def: &TableDef, id: i64, balance: i64) -> Vec<u8> {
    def.layout
        .encode(&[Value::Int8(id), Value::Int8(balance)])
        .unwrap()
}

/// An interactive transaction over the bank.
pub struct Session {
    pub txn: Transaction,
    pub programs: Programs,
}

impl Session {
    pub fn run(&mut self, program: &Arc<Program>, values: &[i64]) -> Result<Outcome, SqlError> {
        self.txn.run(program, &inputs(program, values))
    }

    pub fn read(&mut self, id: i64) -> Result<i64, SqlError> {
        let program = Arc::clone(&self.programs.read);
        Ok(numbers(&program, &self.run(&program, &[id])?)[0])
    }

    pub fn range(&mut self, lo: i64, hi: i64) -> Result<Vec<i64>, SqlError> {
        let program = Arc::clone(&self.programs.range);
        Ok(numbers(&program, &self.run(&program, &[lo, hi])?))
    }

    pub fn set(&mut self, id: i64, value: i64) -> Result<(), SqlError> {
        let program = Arc::clone(&self.programs.set);
        self.run(&program, &[id, value]).map(|_| ())
    }

    pub fn add(&mut self, id: i64, by: i64) -> Result<i64, SqlError> {
        let program = Arc::clone(&self.programs.add);
        Ok(numbers(&program, &self.run(&program, &[id, by])?)[0])
    }

    pub fn open(&mut self, id: i64, balance: i64) -> Result<(), SqlError> {
        let program = Arc::clone(&self.programs.open);
        self.run(&program, &[id, balance]).map(|_| ())
    }

    pub fn commit(self) -> Step<Committed> {
        self.txn.commit()
    }
}

fn rows(snapshot: &Snapshot, table: TableId) -> Result<Vec<Vec<i64>>, SqlError> {
    let catalog = Arc::clone(snapshot.catalog());
    let Some(def) = catalog.table_by_id(table) else {
        return Ok(Vec::new());
    };
    let mut rows = Vec::new();
    for chunk in 0..snapshot.scan_chunks(table) {
        snapshot.scan_chunk(table, chunk, |row| {
            let values = (0..def.columns.len()).map(|column| match def.layout.value(row.bytes, column) {
                Value::Int8(number) => number,
                other => panic!("{other:?}"),
            });
            rows.push(values.collect());
        })?;
    }
    Ok(rows)
}

pub fn balances(snapshot: &Snapshot) -> BTreeMap<i64, i64> {
    try_balances(snapshot).unwrap()
}

/// The same where the disk may fail.
pub fn try_balances(snapshot: &Snapshot) -> Result<BTreeMap<i64, i64>, SqlError> {
    let rows = rows(snapshot, ACCOUNTS)?;
    Ok(rows.into_iter().map(|row| (row[0], row[1])).collect())
}

/// The journal: txid -> (source, target, amount).
pub type Journal = BTreeMap<i64, (i64, i64, i64)>;

pub fn journal_rows(snapshot: &Snapshot) -> Journal {
    try_journal_rows(snapshot).unwrap()
}

/// The same where the disk may fail.
pub fn try_journal_rows(snapshot: &Snapshot) -> Result<Journal, SqlError> {
    let rows = rows(snapshot, JOURNAL)?;
    let entry = |row: Vec<i64>| (row[0], (row[1], row[2], row[3]));
    Ok(rows.into_iter().map(entry).collect())
}

/// What the transfers of the journal make of the opening balances.
pub fn balances_by_journal(journal: &BTreeMap<i64, (i64, i64, i64)>, accounts: i64) -> BTreeMap<i64, i64> {
    let mut balances: BTreeMap<i64, i64> = (0..accounts).map(|id| (id, OPENING)).collect();
    for (source, target, amount) in journal.values() {
        *balances.entry(*source).or_default() -= amount;
        *balances.entry(*target).or_default() += amount;
    }
    balances
}

/// Checks the state digest against the rows.
pub fn check_digest(engine: &Engine) {
    let snapshot = engine.snapshot();
    assert_eq!(
        engine.store().verify_digest(&snapshot).unwrap(),
        snapshot.digest(),
        "digest at {:?}",
        snapshot.batch()
    );
}

/// The batch that an answer stood in.
pub fn batch_of(step: &Step<Committed>) -> BatchId {
    match step {
        Ok(committed) => committed.batch,
        Err(refused) => refused.observed,
    }
}
