//! Fixed columns in machine code against the interpreter: every type, NULLs, values that do not fit, rows
//! that are missing, buffers of tables and of results, budgets that run out in between.

use std::sync::Arc;

use crate::fixture::{ACCOUNTS, ACCOUNTS_KEY, PAIRS, PAIRS_KEY};
use proptest::prelude::*;
use weft_base::{BatchId, CatalogVersion, IndexId, Prng, TableId};
use weft_program::{
    Access, AccessKind, BatchAccess, Cp, Instr, KeyBuf, KeyPart, Op, Outcome, Program, ProgramBuilder, Reg,
    RowBuf, Scratch, TableNo, asm, run,
};
use weft_store::{CatalogOp, ColumnDef, IndexDef, IndexMethod, Store, TableDef};
use weft_types::{SqlError, SqlType, Value};

const THINGS: TableId = TableId(16_384);
const THINGS_KEY: IndexId = IndexId(16_385);
/// The key, then one column of each kind.
const TYPES: [SqlType; 12] = [
    SqlType::Int8,
    SqlType::Bool,
    SqlType::Int2,
    SqlType::Int4,
    SqlType::Int8,
    SqlType::Float4,
    SqlType::Float8,
    SqlType::Date,
    SqlType::Timestamp,
    SqlType::TimestampTz,
    SqlType::Uuid,
    SqlType::Text,
];
/// Columns that a register can hold.
const REGISTER_COLUMNS: u64 = 10;
const REGISTERS: usize = 4;

fn things() -> TableDef {
    let columns = TYPES.iter().enumerate();
    let columns = columns.map(|(number, ty)| ColumnDef::new(format!("c{number}"), *ty));
    TableDef::new(THINGS, "things", columns.collect()).with_index(IndexDef {
        id: THINGS_KEY,
        name: "things_pkey".into(),
        table: THINGS,
        columns: vec![0],
        unique: true,
        primary: true,
        method: IndexMethod::Both,
    })
}

fn value(random: &mut Prng, ty: SqlType) -> Value {
    let bits = match random.below(4) {
        0 => random.below(3) as i64,
        1 => -1 - random.below(3) as i64,
        2 => [i64::MAX, i64::MIN, 1 << 31, -(1 << 15), 1 << 15, 127][random.below(6) as usize],
        _ => random.next_u64() as i64,
    };
    if random.chance(1, 4) {
        return Value::Null;
    }
    match ty {
        SqlType::Bool => Value::Bool(bits & 1 == 1),
        SqlType::Int2 => Value::Int2(bits as i16),
        SqlType::Int4 => Value::Int4(bits as i32),
        SqlType::Int8 => Value::Int8(bits),
        SqlType::Float4 => Value::Float4(f32::from_bits(bits as u32)),
        SqlType::Float8 => Value::Float8(f64::from_bits(bits as u64)),
        SqlType::Date => Value::Date(bits as i32),
        SqlType::Timestamp => Value::Timestamp(bits),
        SqlType::TimestampTz => Value::TimestampTz(bits),
        SqlType::Uuid => Value::Uuid(i128::from(bits).to_be_bytes()),
        _ => Value::Text("x".repeat(random.below(9) as usize)),
    }
}

/// A row of values; its key is one of a few.
fn row(random: &mut Prng) -> Vec<Value> {
    let mut row: Vec<Value> = TYPES.iter().map(|ty| value(random, *ty)).collect();
    row[0] = Value::Int8(random.below(4) as i64);
    row
}

struct Writing<'r> {
    random: &'r mut Prng,
    b: ProgramBuilder,
    constants: Vec<u16>,
    table: TableNo,
    rows: [Cp; 2],
    buffers: [RowBuf; 2],
    registers: [Reg; REGISTERS],
    status: Reg,
    /// Inputs that the rows' keys are, the key buffer, and the index.
    keys: [u16; 2],
    key: KeyBuf,
    index: u8,
}

/// Searches two rows, often the same one, then moves columns to and fro, changes, removes and searches them
/// again in between, then updates, inserts or both, and answers.
fn program(random: &mut Prng) -> Program {
    let mut b = ProgramBuilder::new(CatalogVersion(0));
    TYPES.iter().for_each(|ty| {
        b.input(*ty);
    });
    let other = b.input(SqlType::Int8);
    for key in [0, other] {
        b.add_access(Access::new(
            AccessKind::WriteRow,
            THINGS,
            vec![KeyPart::Input(key)],
        ));
    }
    let constants = row(random);
    let constants = TYPES
        .iter()
        .zip(constants)
        .map(|(ty, value)| b.constant(*ty, value));
    let constants = constants.collect();
    let table = b.table(&things());
    let index = b.index(table, THINGS_KEY);
    let statement = b.statement(TYPES.to_vec());
    let (rows, buffers) = (
        [b.collect_register(), b.collect_register()],
        [b.row_buffer(), b.row_buffer()],
    );
    let registers = [(); REGISTERS].map(|()| b.register());
    let (status, key) = (b.register(), b.key_buffer());
    for (cp, input) in rows.into_iter().zip([0, other]) {
        b.key(key);
        b.keyin(key, input);
        b.search(cp, table, index, key);
    }
    let mut w = Writing {
        random,
        b,
        constants,
        table,
        rows,
        buffers,
        registers,
        status,
        keys: [0, other],
        key,
        index,
    };
    w.start(0);
    w.b.outrow(buffers[1], statement);
    for _ in 0..10 + w.random.below(50) {
        w.one();
    }
    match w.random.below(3) {
        0 => w.b.insert(rows[1], table, buffers[0]),
        1 => w.b.update(rows[0], buffers[0]),
        _ => {}
    }
    w.b.ldcol(registers[0], rows[0], 3);
    w.b.setr(buffers[1], 4, registers[0]);
    w.b.ret(status, rows[0]);
    w.b.setr(buffers[1], 1, status);
    w.b.emit(statement, buffers[1]);
    w.b.finish().unwrap()
}

impl Writing<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }

    fn register(&mut self) -> Reg {
        let number = self.below(REGISTERS);
        self.registers[number]
    }

    fn start(&mut self, buffer: usize) {
        let (buffer, cp) = (self.buffers[buffer], self.rows[self.random.below(2) as usize]);
        match self.random.chance(1, 3) {
            true => self.b.row(buffer, self.table),
            false => self.b.copyrow(buffer, cp),
        }
    }

    fn one(&mut self) {
        let (buffer, cp) = (
            self.buffers[usize::from(self.random.chance(1, 2))],
            self.rows[usize::from(self.random.chance(1, 2))],
        );
        let register = self.register();
        let column = self.below(TYPES.len()) as u16;
        let of_register = self.random.below(REGISTER_COLUMNS) as u16;
        match self.random.below(19) {
            0..3 => self.b.ldcol(register, cp, of_register),
            3 => self.b.ldin(register, of_register),
            4 => {
                let other = self.register();
                let op = [Op::Add, Op::Sub, Op::Mov][self.below(3)];
                match op {
                    Op::Mov => self.b.mov(register, other),
                    op => self.b.arithmetic(op, register, register, other),
                }
            }
            5 | 6 => self.b.setr(buffer, of_register, register),
            7 => self.b.setin(buffer, column, column),
            8 => self.b.setcol(buffer, column, cp, column),
            9 => self.b.setk(buffer, column, self.constants[usize::from(column)]),
            10 => self.b.setnull(buffer, column),
            11 => {
                let (other, over) = (self.register(), self.b.label());
                match self.below(4) {
                    0 => self.b.branch_null(register, over),
                    1 => self.b.branch_not_null(register, over),
                    2 => self.b.branch_true(register, over),
                    _ => self.b.branch_not_true(register, over),
                }
                self.b.mov(other, register);
                self.b.setr(buffer, of_register, other);
                self.b.bind(over);
            }
            12 => {
                let other = self.register();
                self.b.push(Instr::new(Op::Isnull, other.0, register.0, 0, 0));
            }
            13 => self.b.ldnull(register),
            14 => self.change(cp, column.max(1), of_register),
            15 => {
                // Another row in the register, or the same again.
                let input = self.keys[self.below(2)];
                self.b.key(self.key);
                match self.random.chance(1, 2) {
                    true => self.b.keyin(self.key, input),
                    false => self.b.keyk(self.key, self.constants[0]),
                }
                self.b.search(cp, self.table, self.index, self.key);
            }
            16 if self.random.chance(1, 4) => self.b.remove(cp),
            17 if self.random.chance(1, 3) => {
                self.b.row(self.buffers[0], self.table);
                self.b.setin(self.buffers[0], 0, self.keys[0]);
                self.b.insert(cp, self.table, self.buffers[0]);
            }
            _ if self.random.chance(1, 6) => self.start(0),
            _ => self.b.ret(self.status, cp),
        }
    }
}

impl Writing<'_> {
    /// Changes columns of a row, and looks at it by both registers, as it is before and behind.
    fn change(&mut self, cp: Cp, column: u16, of_register: u16) {
        let register = self.register();
        for cp in self.rows {
            self.b.ldcol(register, cp, of_register);
        }
        self.b.copyrow(self.buffers[0], cp);
        self.b.setin(self.buffers[0], column, column);
        self.b.update(cp, self.buffers[0]);
        for (at, cp) in self.rows.into_iter().enumerate() {
            self.b.ldcol(self.registers[at], cp, of_register);
            self.b.setcol(self.buffers[1], 11, cp, 11);
        }
    }
}

struct Database {
    store: Arc<Store>,
    scratch: Scratch,
    outcome: Outcome,
}

impl Database {
    fn new() -> Database {
        let store = Store::new();
        let mut writer = store.begin_batch(BatchId(1));
        writer.apply_catalog(&CatalogOp::CreateTable(things())).unwrap();
        writer.finish();
        store.publish(BatchId(1));
        Database {
            store,
            scratch: Scratch::default(),
            outcome: Outcome::default(),
        }
    }

    fn batch(
        &mut self,
        work: impl FnOnce(&mut Self, &mut BatchAccess<'_, '_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let store = Arc::clone(&self.store);
        let batch = BatchId(store.boundary().0 + 1);
        let writer = store.begin_batch(batch);
        let mut member = writer.member(0);
        let result = work(self, &mut BatchAccess::new(&mut member));
        match result {
            Ok(()) => member.commit(),
            Err(_) => member.rollback(),
        }
        writer.finish();
        store.publish(batch);
        result
    }

    fn insert(&mut self, row: &[Value]) {
        use weft_program::DataAccess;
        let row = weft_types::RowLayout::new(&TYPES).encode(row).unwrap();
        self.batch(|_, access| access.insert(THINGS, &row).map(drop))
            .unwrap();
    }

    fn run(&mut self, program: &Program, inputs: &[u8], budget: u32) -> Result<(), SqlError> {
        self.batch(|database, access| {
            let Database { scratch, outcome, .. } = database;
            run(program, inputs, access, budget, scratch, outcome)
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn columns_are_moved_as_the_interpreter_moves_them(seed in any::<u64>()) {
        let mut random = Prng::new(seed);
        let (mut one, mut other) = (Database::new(), Database::new());
        for key in 0..3 {
            let mut row = row(&mut random);
            row[0] = Value::Int8(key);
            one.insert(&row);
            other.insert(&row);
        }
        for _ in 0..2 {
            let program = program(&mut random);
            let plain = program.unresolved();
            prop_assert!(program.compile());
            for _ in 0..6 {
                let mut values = row(&mut random);
                values.push(Value::Int8(random.below(4) as i64));
                let inputs = program.encode_inputs(&values).unwrap();
                for budget in [1_000, random.below(90) as u32] {
                    let expected = one.run(&plain, &inputs, budget);
                    let found = other.run(&program, &inputs, budget);
                    prop_assert_eq!(&found, &expected, "budget {} of\n{}", budget, asm::print(&program));
                    prop_assert_eq!(other.scratch.ran_compiled(), true);
                    if expected.is_ok() {
                        prop_assert_eq!(&one.outcome, &other.outcome, "{}", asm::print(&program));
                    }
                    prop_assert_eq!(one.store.state_digest(), other.store.state_digest());
                }
            }
        }
    }
}

/// All that can be done with a NULL but computing: the columns of a row and the inputs to two rows and back.
fn moving() -> Program {
    let mut b = ProgramBuilder::new(CatalogVersion(0));
    let inputs: Vec<u16> = TYPES.iter().map(|ty| b.input(*ty)).collect();
    let parts = vec![KeyPart::Input(inputs[0])];
    b.add_access(Access::new(AccessKind::ReadRow, THINGS, parts));
    let table = b.table(&things());
    let index = b.index(table, THINGS_KEY);
    let statement = b.statement(TYPES.to_vec());
    let (cp, key, image) = (b.collect_register(), b.key_buffer(), b.row_buffer());
    let [one, other, third] = [(); 3].map(|()| b.register());
    b.key(key);
    b.keyin(key, inputs[0]);
    b.search(cp, table, index, key);
    for round in 0..4 {
        b.outrow(image, statement);
        // From the last to the first, so that the columns of a row are no projection.
        for column in (0..TYPES.len() as u16).rev() {
            let (skip, is_register) = (b.label(), u64::from(column) < REGISTER_COLUMNS);
            match round {
                0 => b.setcol(image, column, cp, column),
                1 => b.setin(image, column, column),
                2 if is_register => {
                    b.ldcol(one, cp, column);
                    b.mov(other, one);
                    b.setr(image, column, other);
                }
                3 if is_register => {
                    b.ldin(other, column);
                    b.branch_true(other, skip);
                    b.push(Instr::new(Op::Isnull, third.0, other.0, 0, 0));
                    b.setr(image, column, third);
                    b.bind(skip);
                }
                _ => b.bind(skip),
            }
        }
        b.emit(statement, image);
    }
    b.finish().unwrap()
}

/// Machine code goes on where something is NULL: it is entered as often as where nothing is.
#[test]
#[cfg(feature = "compiled")]
fn nulls_are_moved_in_machine_code() {
    let mut random = Prng::new(1);
    let mut present = || loop {
        let row = row(&mut random);
        if !row.contains(&Value::Null) {
            return row;
        }
    };
    let mut rows = [present(), present(), vec![Value::Null; TYPES.len()]];
    let mut database = Database::new();
    for (key, row) in rows.iter_mut().enumerate() {
        row[0] = Value::Int8(key as i64);
        // A variable column is the interpreter's.
        row[11] = Value::Text("there".into());
        database.insert(row);
    }
    let program = moving();
    let plain = program.unresolved();
    assert!(program.compile());
    let mut entries = Vec::new();
    for row in &rows {
        let inputs = program.encode_inputs(row).unwrap();
        database.run(&plain, &inputs, 1_000).unwrap();
        let expected = database.outcome.clone();
        database.run(&program, &inputs, 1_000).unwrap();
        assert_eq!(database.outcome, expected);
        entries.push(database.scratch.code_entries());
    }
    assert_eq!(entries[2], entries[0], "of {entries:?}");
}

/// The nearest SEARCH before names another table than the one that control came from.
#[test]
fn a_wrong_prediction_of_a_rows_table_is_detected() {
    let mut database = crate::fixture::Database::new();
    let catalog = database.catalog();
    let [accounts, pairs] = [ACCOUNTS, PAIRS].map(|id| catalog.table_by_id(id).unwrap());
    let mut b = ProgramBuilder::new(catalog.version());
    let input = b.input(SqlType::Int8);
    b.add_access(Access::new(
        AccessKind::WriteRow,
        ACCOUNTS,
        vec![KeyPart::Input(input)],
    ));
    b.add_access(Access::table(AccessKind::ReadTable, PAIRS));
    let statement = b.statement(vec![SqlType::Int8, SqlType::Float8]);
    let tables = [b.table(accounts), b.table(pairs)];
    let indexes = [b.index(tables[0], ACCOUNTS_KEY), b.index(tables[1], PAIRS_KEY)];
    let (cp, key, image) = (b.collect_register(), b.key_buffer(), b.row_buffer());
    let [number, ratio] = [(); 2].map(|()| b.register());
    let read = b.label();
    b.row(image, tables[0]);
    b.setin(image, 0, input);
    b.ldi(number, 77);
    b.setr(image, 1, number);
    b.insert(cp, tables[0], image);
    b.key(key);
    b.keyin(key, input);
    b.search(cp, tables[0], indexes[0], key);
    b.jump(read);
    b.search(cp, tables[1], indexes[1], key);
    b.bind(read);
    b.ldcol(number, cp, 1);
    b.ldcol(ratio, cp, 0);
    b.outrow(image, statement);
    b.setr(image, 0, number);
    b.setr(image, 1, ratio);
    b.emit(statement, image);
    let program = b.finish().unwrap();
    assert!(program.compile());
    let inputs = program.encode_inputs(&[Value::Int8(0x1_2345_6789)]).unwrap();
    let plain = database.run(&program.unresolved(), &inputs, 100);
    let expected = database.outcome.clone();
    let mut other = crate::fixture::Database::new();
    assert_eq!(other.run(&program, &inputs, 100), plain);
    assert!(plain.is_ok() && other.scratch.ran_compiled());
    assert_eq!(other.outcome, expected);
}
