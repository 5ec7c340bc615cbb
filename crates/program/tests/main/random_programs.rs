//! Random programs: grown instruction by instruction, keeping what verifies, so that most are valid and none
//! is sensible.

use std::sync::Arc;

use proptest::prelude::*;
use weft_base::{CatalogVersion, Prng};
use weft_program::{
    Access, AccessKind, Constant, Instr, KeyPart, Op, Program, ProgramParts, TableShape, asm, verify,
};
use weft_store::Catalog;
use weft_types::{RowLayout, SqlState, SqlType, Value};

use crate::fixture::{ACCOUNTS, ACCOUNTS_EMAIL, Database, JOURNAL, PAIRS};

/// Instructions tried for one program; a part of them verifies.
const LENGTH: u32 = 400;
const INPUTS: [SqlType; 5] = [
    SqlType::Int8,
    SqlType::Int4,
    SqlType::Text,
    SqlType::Float8,
    SqlType::Bool,
];

pub fn random_inputs(seed: u64) -> Vec<u8> {
    let mut random = Prng::new(seed ^ 0x5eed);
    // Some longer than what instructions move for nothing.
    let times = if random.chance(1, 3) {
        1_000 + random.below(4_000)
    } else {
        1
    };
    let mut null = |value: Value| if random.chance(1, 6) { Value::Null } else { value };
    let values = [
        null(Value::Int8(seed as i64 % 5)),
        null(Value::Int4(seed as i32 % 3)),
        null(Value::Text(format!("t{}", seed % 3).repeat(times as usize))),
        null(Value::Float8(f64::from_bits(seed))),
        null(Value::Bool(seed & 1 == 1)),
    ];
    RowLayout::new(&INPUTS).encode(&values).unwrap()
}

fn parts(random: &mut Prng, catalog: &Catalog) -> ProgramParts {
    let constant = |ty, value| Constant { ty, value };
    let tables = [ACCOUNTS, PAIRS, JOURNAL].map(|id| TableShape::from_def(catalog.table_by_id(id).unwrap()));
    let mut accesses = vec![
        Access::new(AccessKind::WriteRow, ACCOUNTS, vec![KeyPart::Input(0)]),
        Access::new(
            AccessKind::WriteValue(ACCOUNTS_EMAIL),
            ACCOUNTS,
            vec![KeyPart::Input(2)],
        ),
        Access::new(
            AccessKind::InsertRow,
            PAIRS,
            vec![KeyPart::Input(1), KeyPart::Const(1)],
        ),
        Access::range(PAIRS, vec![KeyPart::Input(1)], Some(vec![KeyPart::Input(1)])),
        Access::new(AccessKind::InsertRow, JOURNAL, vec![]),
    ];
    if random.chance(2, 3) {
        accesses.extend([ACCOUNTS, PAIRS, JOURNAL].map(|table| Access::table(AccessKind::WriteTable, table)));
    }
    ProgramParts {
        inputs: INPUTS.to_vec(),
        consts: vec![
            constant(SqlType::Text, Value::Text("say 'a;b'\n\u{7f}\u{a0}é".into())),
            constant(SqlType::Int4, Value::Int4(-1)),
            constant(SqlType::Int8, Value::Null),
            constant(SqlType::Float8, Value::Float8(-0.0)),
            constant(SqlType::Bytea, Value::Bytea(vec![0, 255])),
            constant(SqlType::Date, Value::Date(random.next_u64() as i32)),
        ],
        outputs: vec![
            vec![SqlType::Int8, SqlType::Text],
            vec![],
            vec![SqlType::Float8, SqlType::Int4, SqlType::Bool],
        ],
        tables: tables.to_vec(),
        accesses,
        catalog_version: catalog.version(),
        ..ProgramParts::default()
    }
}

fn random_instr(random: &mut Prng, here: u32) -> Instr {
    loop {
        let op = Op::ALL[random.below(Op::ALL.len() as u64) as usize];
        let mut small = |n: u64| random.below(n) as u8;
        let (a, b, c) = (small(4), small(4), small(4));
        let number = |random: &mut Prng| match random.below(4) {
            0 => 0,
            1 => random.below(6) as u32,
            2 => random.below(6) as u32 | (random.below(6) as u32) << 16,
            _ => random.below(3) as u32 | (random.below(2) as u32) << 8,
        };
        let imm = match op {
            Op::Scan => {
                let limit = if random.chance(1, 2) {
                    0xFF
                } else {
                    random.below(4) as u32
                };
                number(random) & 0xFFFF | (random.below(8) as u32) << 16 | limit << 24
            }
            _ if op.is_branch() => random.below(u64::from(here) + 2) as u32,
            _ => number(random),
        };
        // Fields that the opcode does not use must be zero; try with fewer until it fits.
        let candidates = [
            Instr::new(op, a, b, c, imm),
            Instr::new(op, a, b, if random.chance(1, 2) { 4 } else { 0x40 }, imm),
            Instr::new(op, a, b, 0, imm),
            Instr::new(op, a, 0, c, imm),
            Instr::new(op, a, 0, 0, imm),
            Instr::new(op, a, b, c, 0),
            Instr::new(op, a, b, 0, 0),
            Instr::new(op, a, 0, 0, 0),
            Instr::new(op, 0, 0, 0, imm),
            Instr::new(op, 0, 0, 0, 0),
        ];
        if let Some(instr) = candidates.into_iter().find(|instr| instr.check().is_ok()) {
            return instr;
        }
    }
}

fn close(logic: &[Instr], commit: &[Instr], parts: &ProgramParts) -> Program {
    let mut instrs = logic.to_vec();
    instrs.push(Instr::new(Op::End, 0, 0, 0, 0));
    let commit_pc = instrs.len() as u32;
    // Targets are relative to their section.
    for instr in commit {
        let shift = if instr.op.is_branch() { commit_pc } else { 0 };
        instrs.push(Instr {
            imm: instr.imm + shift,
            ..*instr
        });
    }
    instrs.push(Instr::new(Op::Commit, 0, 0, 0, 0));
    let abort_pc = instrs.len() as u32;
    instrs.push(Instr::new(Op::Abort, 0, 0, 0, 0));
    Program::from_parts(ProgramParts {
        instrs,
        commit_pc,
        abort_pc,
        ..parts.clone()
    })
    .unwrap()
}

/// A valid program.
pub fn random_program(seed: u64, catalog: &Arc<Catalog>) -> Program {
    let mut random = Prng::new(seed);
    let parts = parts(&mut random, catalog);
    let mut logic: Vec<Instr> = Vec::new();
    let mut commit: Vec<Instr> = Vec::new();
    for round in 0..LENGTH {
        let before = (logic.clone(), commit.clone());
        let grown = if round < LENGTH * 3 / 4 {
            &mut logic
        } else {
            &mut commit
        };
        let instr = random_instr(&mut random, grown.len() as u32);
        grown.push(instr);
        if instr.op.is_issued() {
            // Collected at once, or in the commit handler.
            let ret = Instr::new(Op::Ret, random.below(4) as u8, instr.a, 0, 0);
            if random.chance(2, 3) {
                logic.push(ret)
            } else {
                commit.insert(0, ret)
            }
        }
        if verify(&close(&logic, &commit, &parts), catalog).is_err() {
            (logic, commit) = before;
        }
    }
    close(&logic, &commit, &parts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Verified programs round-trip, end within their budget, meet no internal error, and leave nothing
    /// behind when they fail.
    #[test]
    fn verified_programs_run_cleanly(seed in any::<u64>()) {
        let mut database = Database::new();
        let catalog = database.catalog();
        for round in 0..4 {
            let program = random_program(seed.wrapping_add(round), &catalog);
            verify(&program, &catalog).unwrap();
            prop_assert_eq!(Program::decode(&program.encode()).unwrap().encode(), program.encode());
            let text = asm::print(&program);
            let again = asm::parse(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(again.hash(), program.hash(), "{}", text);
            for run in 0..4_u64 {
                let digest = database.store.state_digest();
                match database.run(&program, &random_inputs(seed.wrapping_add(run)), 2_000) {
                    Ok(()) => {
                        for (number, statement) in database.outcome.statements().enumerate() {
                            for row in statement.rows() {
                                prop_assert!(program.output_layout(number).unwrap().validate(row).is_ok());
                            }
                        }
                    }
                    Err(error) => {
                        prop_assert_ne!(error.state, SqlState::INTERNAL_ERROR, "{} in\n{}", error.message, text);
                        prop_assert_eq!(database.store.state_digest(), digest);
                    }
                }
            }
        }
        prop_assert_eq!(database.snapshot().verify_digest().unwrap(), database.store.state_digest());
    }

    /// Random instructions with any catalog version: refused or harmless.
    #[test]
    fn unverified_programs_do_not_panic(seed in any::<u64>()) {
        let mut database = Database::new();
        let mut random = Prng::new(seed);
        let mut parts = parts(&mut random, &database.catalog());
        parts.catalog_version = CatalogVersion(random.below(3));
        let logic: Vec<Instr> = (0..60).map(|n| random_instr(&mut random, n)).collect();
        let commit: Vec<Instr> = (0..20).map(|n| random_instr(&mut random, n)).collect();
        let program = close(&logic, &commit, &parts);
        let _ = verify(&program, &database.catalog());
        let _ = database.run(&program, &random_inputs(seed), 2_000);
    }
}

#[test]
fn random_programs_are_not_trivial() {
    let database = Database::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut instrs = 0;
    for seed in 0..60 {
        let program = random_program(seed, &database.catalog());
        instrs += program.instrs.len();
        seen.extend(program.instrs.iter().map(|instr| instr.op));
    }
    assert!(instrs > 60 * 20, "{instrs} instructions in 60 programs");
    for op in [
        Op::Search,
        Op::Scan,
        Op::Insert,
        Op::Update,
        Op::Remove,
        Op::Next,
        Op::Emit,
        Op::Setcol,
        Op::Cmpv,
    ] {
        assert!(seen.contains(&op), "{op:?} never happens in {seen:?}");
    }
}
