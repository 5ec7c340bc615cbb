//! Machine code against the interpreter: same outcomes, same errors, same states, the same instruction at
//! which a budget runs out.

use proptest::prelude::*;
use weft_base::{CatalogVersion, Prng};
use weft_program::{
    Compilation, Cond, Instr, Op, Outcome, Program, ProgramBuilder, RaiseState, Reg, Scratch, compiled_stats,
    run, set_compilation,
};
use weft_types::{SqlError, SqlType, Value};

use crate::fixture::Database;
use crate::random_programs::{random_inputs, random_program};

const REGISTERS: u8 = 8;

/// Operations of registers alone, weighted so that values stay interesting.
const OPS: [Op; 30] = [
    Op::Add,
    Op::Add,
    Op::Sub,
    Op::Sub,
    Op::Mul,
    Op::Div,
    Op::Mod,
    Op::Neg,
    Op::Abs,
    Op::Narrow,
    Op::Fadd,
    Op::Fsub,
    Op::Fmul,
    Op::Fdiv,
    Op::Fneg,
    Op::Fabs,
    Op::F4add,
    Op::Itof,
    Op::Ftoi,
    Op::Not,
    Op::And,
    Op::Or,
    Op::Isnull,
    Op::Cmp,
    Op::Fcmp,
    Op::Test,
    Op::Mov,
    Op::Ldi,
    Op::Ldnull,
    Op::Ldin,
];

fn arithmetic_inputs(random: &mut Prng) -> Vec<Value> {
    let edges = [
        0,
        1,
        -1,
        2,
        i64::MAX,
        i64::MIN,
        i64::MAX - 1,
        1 << 31,
        -(1 << 31),
        32_767,
    ];
    let floats = [
        0.0,
        -0.0,
        1.5,
        f64::NAN,
        f64::INFINITY,
        f64::MIN,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        -2.5,
    ];
    let mut values = Vec::new();
    for n in 0..8 {
        let pick = random.below(10) as usize;
        let value = match n {
            0..4 => Value::Int8(edges[pick]),
            4 => Value::Int4(edges[pick] as i32),
            5 => Value::Bool(pick > 4),
            _ => Value::Float8(floats[pick]),
        };
        values.push(if random.chance(1, 12) { Value::Null } else { value });
    }
    values
}

/// Random register operations, counts and branches, forward and back, then all registers as a result.
fn arithmetic_program(random: &mut Prng) -> Program {
    let mut b = ProgramBuilder::new(CatalogVersion(0));
    let integers = [SqlType::Int8; 4];
    let others = [SqlType::Int4, SqlType::Bool, SqlType::Float8, SqlType::Float8];
    for ty in integers.into_iter().chain(others) {
        b.input(ty);
    }
    let constants = [
        b.constant(SqlType::Int8, Value::Int8(3)),
        b.constant(SqlType::Float8, Value::Float8(-1e300)),
        b.constant(SqlType::Int2, Value::Null),
        b.constant(SqlType::Date, Value::Date(-5)),
    ];
    let statement = b.statement(vec![SqlType::Int8; usize::from(REGISTERS)]);
    let counts = [b.statement(Vec::new()), b.statement(Vec::new())];
    let registers: Vec<Reg> = (0..REGISTERS).map(|_| b.register()).collect();
    for (number, register) in registers.iter().enumerate() {
        b.ldin(*register, number as u16);
    }
    let length = 3 + random.below(40);
    let labels: Vec<_> = (0..length).map(|_| b.label()).collect();
    for here in 0..length {
        b.bind(labels[here as usize]);
        let mut small = |n: u64| random.below(n) as u8;
        let (x, y, z) = (small(8), small(8), small(8));
        let (a, other) = (registers[usize::from(x)], registers[usize::from(y)]);
        match random.below(14) {
            0 | 1 => {
                // Mostly forward, so that many programs end by themselves.
                let ahead = (here + 1 + random.below(4)).min(length - 1);
                let to = if random.chance(1, 6) {
                    random.below(length)
                } else {
                    ahead
                };
                let target = labels[to as usize];
                match random.below(7) {
                    0 => b.branch_null(a, target),
                    1 => b.branch_not_null(a, target),
                    2 => b.branch_true(a, target),
                    3 => b.branch_not_true(a, target),
                    4 if to > here => b.jump(target),
                    n => b.branch(Cond::ALL[n as usize % 6], a, other, target),
                }
            }
            2 => b.ldk(a, constants[random.below(4) as usize]),
            3 if random.chance(1, 8) => b.raise(RaiseState::ALL[0], "raised"),
            3 => b.count(counts[random.below(2) as usize], a),
            _ => {
                let op = OPS[random.below(30) as usize];
                let imm = match op {
                    Op::Ldi => random.next_u64() as u32,
                    _ => random.below(6) as u32,
                };
                let width = [2, 4, 8][random.below(3) as usize];
                let fields = [
                    Instr::new(op, x, y, z, imm),
                    Instr::new(op, x, y, z, 0),
                    Instr::new(op, x, y, width, 0),
                    Instr::new(op, x, y, 0, imm),
                    Instr::new(op, x, y, 0, 0),
                    Instr::new(op, x, 0, width, 0),
                    Instr::new(op, x, 0, 0, imm),
                    Instr::new(op, x, 0, 0, 0),
                ];
                let fits = fields.into_iter().find(|instr| instr.check().is_ok());
                b.push(fits.unwrap_or_else(|| panic!("no form of {op:?}")));
            }
        }
    }
    let row = b.row_buffer();
    b.outrow(row, statement);
    for (column, register) in registers.iter().enumerate() {
        b.setr(row, column as u16, *register);
    }
    b.emit(statement, row);
    b.finish().unwrap()
}

fn run_once(program: &Program, inputs: &[u8], budget: u32) -> (Result<Outcome, SqlError>, bool) {
    let database = Database::new();
    let snapshot = database.snapshot();
    let mut access = weft_program::ReadAccess::new(&snapshot);
    let (mut scratch, mut outcome) = (Scratch::default(), Outcome::default());
    let result = run(program, inputs, &mut access, budget, &mut scratch, &mut outcome);
    (result.map(|()| outcome), scratch.ran_compiled())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn arithmetic_is_the_interpreters(seed in any::<u64>()) {
        let mut random = Prng::new(seed);
        let program = arithmetic_program(&mut random);
        let compiled = program.clone();
        let plain = program.unresolved();
        compiled.compile();
        for _ in 0..4 {
            let inputs = program.encode_inputs(&arithmetic_inputs(&mut random)).unwrap();
            for budget in [400, random.below(80) as u32, random.below(400) as u32] {
                let (expected, was_compiled) = run_once(&plain, &inputs, budget);
                prop_assert!(!was_compiled);
                let (found, _) = run_once(&compiled, &inputs, budget);
                prop_assert_eq!(found, expected, "budget {} of\n{}", budget, weft_program::asm::print(&program));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Programs of all opcodes, on a database each.
    #[test]
    fn whole_programs_are_the_interpreters(seed in any::<u64>()) {
        let (mut one, mut other) = (Database::new(), Database::new());
        let catalog = one.catalog();
        for round in 0..3_u64 {
            let program = random_program(seed.wrapping_add(round), &catalog);
            let plain = program.unresolved();
            program.compile();
            for run in 0..6_u64 {
                let inputs = random_inputs(seed.wrapping_add(run));
                for budget in [2_000, (seed >> 3) as u32 % 60 + run as u32] {
                    let expected = one.run(&plain, &inputs, budget);
                    let found = other.run(&program, &inputs, budget);
                    prop_assert_eq!(&found, &expected);
                    if expected.is_ok() {
                        prop_assert_eq!(&one.outcome, &other.outcome);
                    }
                    prop_assert_eq!(one.store.state_digest(), other.store.state_digest());
                }
            }
        }
    }
}

/// sum of 1 ..= input
fn summing() -> Program {
    let mut b = ProgramBuilder::new(CatalogVersion(0));
    let input = b.input(SqlType::Int8);
    let statement = b.statement(vec![SqlType::Int8]);
    let (n, sum, one, zero) = (b.register(), b.register(), b.register(), b.register());
    let (again, done, row) = (b.label(), b.label(), b.row_buffer());
    b.ldin(n, input);
    b.ldi(sum, 0);
    b.ldi(one, 1);
    b.ldi(zero, 0);
    b.bind(again);
    b.branch(Cond::Le, n, zero, done);
    b.arithmetic(Op::Add, sum, sum, n);
    b.arithmetic(Op::Sub, n, n, one);
    b.jump(again);
    b.bind(done);
    b.outrow(row, statement);
    b.setr(row, 0, sum);
    b.emit(statement, row);
    b.finish().unwrap()
}

#[test]
#[cfg(feature = "compiled")]
fn loops_run_in_machine_code() {
    let program = summing();
    let before = compiled_stats();
    assert!(!program.is_compiled());
    assert!(program.compile() && program.clone().is_compiled());
    let after = compiled_stats();
    assert!(after.programs > before.programs && after.code_bytes > before.code_bytes);
    let inputs = program.encode_inputs(&[Value::Int8(1000)]).unwrap();
    let (result, was_compiled) = run_once(&program, &inputs, 10_000);
    let outcome = result.unwrap();
    let sum = program
        .output_layout(0)
        .unwrap()
        .fixed_u64(outcome.statement(0).unwrap().rows().next().unwrap(), 0);
    assert_eq!((sum, was_compiled), (Some(500_500), true));
    // Every budget up to one that suffices: the same end as the interpreter's.
    let inputs = program.encode_inputs(&[Value::Int8(20)]).unwrap();
    let plain = program.unresolved();
    for budget in 0..120 {
        assert_eq!(
            run_once(&program, &inputs, budget).0,
            run_once(&plain, &inputs, budget).0
        );
    }
}

#[test]
#[cfg(feature = "compiled")]
fn hot_programs_are_compiled_in_the_background() {
    set_compilation(Compilation::Hot);
    let database = Database::new();
    let snapshot = database.snapshot();
    let program = summing();
    let inputs = program.encode_inputs(&[Value::Int8(3)]).unwrap();
    let (mut scratch, mut outcome) = (Scratch::default(), Outcome::default());
    let began = std::time::Instant::now();
    let mut runs = 0;
    while !scratch.ran_compiled() {
        let mut access = weft_program::ReadAccess::new(&snapshot);
        run(&program, &inputs, &mut access, 1_000, &mut scratch, &mut outcome).unwrap();
        runs += 1;
        assert!(began.elapsed().as_secs() < 60, "not compiled after {runs} runs");
    }
    assert!(runs > 1_000, "compiled after {runs} runs");
}

/// What follows an END in its block is not reached and not paid for.
#[test]
#[cfg(feature = "compiled")]
fn instructions_after_an_end_cost_nothing() {
    let text = ".program catalog 0\n.logic\n  ldi r0, 1\n  end\n  ldi r1, 2\n  ldi r2, 3\n  end\n.commit\n  commit\n\
        .abort\n  abort\n";
    let program = weft_program::asm::parse(text).unwrap();
    assert!(program.compile());
    let plain = program.unresolved();
    let inputs = program.encode_inputs(&[]).unwrap();
    for budget in 0..10 {
        let (found, expected) = (
            run_once(&program, &inputs, budget),
            run_once(&plain, &inputs, budget),
        );
        assert_eq!(found.0, expected.0, "budget {budget}");
        assert_eq!(found.0.is_ok(), budget >= 3);
    }
}

/// Finds every row, and panics where it is told to.
#[cfg(feature = "compiled")]
struct Panics {
    row: Vec<u8>,
    at_search: bool,
    at_row: bool,
}

#[cfg(feature = "compiled")]
impl weft_program::DataAccess for Panics {
    fn search(
        &mut self,
        _: weft_base::IndexId,
        table: weft_base::TableId,
        _: &[u8],
    ) -> Result<Option<weft_program::RowHandle>, SqlError> {
        assert!(!self.at_search, "planned");
        Ok(Some(weft_program::RowHandle { table, slot: 0 }))
    }

    fn row(&self, _: &weft_program::RowHandle) -> Option<&[u8]> {
        assert!(!self.at_row, "planned");
        Some(&self.row)
    }

    fn range(
        &mut self,
        _: weft_base::IndexId,
        _: weft_base::TableId,
        _: std::ops::Bound<&[u8]>,
        _: std::ops::Bound<&[u8]>,
        _: bool,
        _: usize,
        _: &mut Vec<weft_program::RowHandle>,
    ) -> Result<(), SqlError> {
        Ok(())
    }

    fn insert(&mut self, _: weft_base::TableId, _: &[u8]) -> Result<weft_program::RowHandle, SqlError> {
        Err(SqlError::internal("reads only"))
    }

    fn update(&mut self, _: &weft_program::RowHandle, _: &[u8]) -> Result<(), SqlError> {
        Err(SqlError::internal("reads only"))
    }

    fn remove(&mut self, _: &weft_program::RowHandle) -> Result<(), SqlError> {
        Err(SqlError::internal("reads only"))
    }

    fn observed(&self) -> weft_base::BatchId {
        weft_base::BatchId(0)
    }
}

/// A panic beneath machine code comes to its caller, as beneath the interpreter, and the next run is sound.
#[test]
#[cfg(feature = "compiled")]
fn a_panic_beneath_machine_code_unwinds_to_the_caller() {
    use crate::fixture::{ACCOUNTS, ACCOUNTS_KEY};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use weft_program::{Access, AccessKind, KeyPart};

    let catalog = Database::new().catalog();
    let def = catalog.table_by_id(ACCOUNTS).unwrap();
    let mut b = ProgramBuilder::new(catalog.version());
    let input = b.input(SqlType::Int8);
    b.add_access(Access::new(
        AccessKind::ReadRow,
        ACCOUNTS,
        vec![KeyPart::Input(input)],
    ));
    let statement = b.statement(vec![SqlType::Int8]);
    let table = b.table(def);
    let index = b.index(table, ACCOUNTS_KEY);
    let (cp, key, image, balance) = (b.collect_register(), b.key_buffer(), b.row_buffer(), b.register());
    b.key(key);
    b.keyin(key, input);
    b.search(cp, table, index, key);
    b.ldcol(balance, cp, 1);
    b.arithmetic(Op::Add, balance, balance, balance);
    b.outrow(image, statement);
    b.setr(image, 0, balance);
    b.emit(statement, image);
    let program = b.finish().unwrap();
    assert!(program.compile());
    let inputs = program.encode_inputs(&[Value::Int8(1)]).unwrap();
    let types = [
        SqlType::Int8,
        SqlType::Int4,
        SqlType::Varchar(Some(20)),
        SqlType::Text,
        SqlType::Float8,
    ];
    let values = [
        Value::Int8(1),
        Value::Int4(21),
        Value::Null,
        Value::Null,
        Value::Null,
    ];
    let row = weft_types::RowLayout::new(&types).encode(&values).unwrap();
    let (mut scratch, mut outcome) = (Scratch::default(), Outcome::default());
    for (at_search, at_row) in [(true, false), (false, true), (false, false)] {
        let mut access = Panics {
            row: row.clone(),
            at_search,
            at_row,
        };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            run(&program, &inputs, &mut access, 100, &mut scratch, &mut outcome)
        }));
        assert!(scratch.ran_compiled());
        match ran {
            Ok(ran) => assert!(ran.is_ok() && !at_search && !at_row),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().copied();
                assert_eq!(
                    text.or(panic.downcast_ref::<String>().map(String::as_str)),
                    Some("planned")
                );
            }
        }
    }
    let sum = outcome.statement(0).unwrap().rows().next().unwrap();
    assert_eq!(program.output_layout(0).unwrap().fixed_u64(sum, 0), Some(42));
}
