//! Random programs within the profile: grown statement by statement, keeping what verifies and fits.

use weft_base::random::Prng;
use weft_program::verify::device::{SOFTCORE, plan};
use weft_program::{
    Access, AccessKind, Constant, Instr, KeyPart, Op, Program, ProgramParts, TableShape, verify,
};
use weft_store::Catalog;
use weft_types::{SqlType, Value};

use super::database::{PAIRS, TABLE, Txn, store};

const INPUTS: [SqlType; 6] = [
    SqlType::Int8,
    SqlType::Int8,
    SqlType::Int4,
    SqlType::Text,
    SqlType::Int8,
    SqlType::Bool,
];
const STATEMENTS: u64 = 40;

/// A transaction of any of four programs, on two keys of accounts; the first one also names a pair.
pub fn txn(random: &mut Prng, keys: (i64, i64)) -> Txn {
    let program = random.below(4) as usize;
    let mut null = |value: Value| if random.chance(1, 6) { Value::Null } else { value };
    let values = vec![
        Value::Int8(keys.0),
        Value::Int8(keys.1),
        Value::Int4(keys.0 as i32 * 2),
        null(Value::Text(format!("t{}", keys.1))),
        null(Value::Int8(if keys.0 % 9 == 0 {
            i64::MIN
        } else {
            keys.1 * 40_000
        })),
        null(Value::Bool(keys.0 % 2 == 0)),
    ];
    Txn::new(program, values)
}

fn parts(catalog: &Catalog) -> ProgramParts {
    let constant = |ty, value| Constant { ty, value };
    let tables = [TABLE, PAIRS].map(|id| TableShape::from_def(catalog.table_by_id(id).unwrap()));
    let row = |table, key: &[u16]| {
        let key = key.iter().map(|input| KeyPart::Input(*input)).collect();
        Access::new(AccessKind::WriteRow, table, key)
    };
    ProgramParts {
        inputs: INPUTS.to_vec(),
        consts: vec![
            constant(SqlType::Text, Value::Text("it happened".into())),
            constant(SqlType::Int4, Value::Int4(-1)),
            constant(SqlType::Int8, Value::Null),
            constant(SqlType::Int8, Value::Int8(i64::MIN + 5)),
            constant(SqlType::Bool, Value::Bool(true)),
        ],
        outputs: vec![
            vec![SqlType::Int8, SqlType::Text, SqlType::Int4],
            vec![],
            vec![
                SqlType::Text,
                SqlType::Bool,
                SqlType::Int2,
                SqlType::Int8,
                SqlType::Int8,
            ],
        ],
        tables: tables.to_vec(),
        accesses: vec![row(TABLE, &[0]), row(TABLE, &[1]), row(PAIRS, &[0, 2])],
        catalog_version: catalog.version(),
        ..ProgramParts::default()
    }
}

fn close(logic: &[Instr], commit: &[Instr], parts: &ProgramParts) -> Program {
    let mut instrs = logic.to_vec();
    instrs.push(Instr::new(Op::End, 0, 0, 0, 0));
    let commit_pc = instrs.len() as u32;
    instrs.extend(commit);
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

/// Settings of a few columns of a row buffer, of any kind.
fn sets(random: &mut Prng, buffer: u8, out: &mut Vec<Instr>) {
    for _ in 0..1 + random.below(4) {
        let column = random.below(5) as u32;
        let from = random.below(6) as u32;
        out.push(match random.below(6) {
            0 => Instr::new(Op::Setin, buffer, 0, 0, column | from << 16),
            1 => Instr::new(Op::Setk, buffer, 0, 0, column | (1 + from % 4) << 16),
            2 | 3 => Instr::new(Op::Setr, buffer, random.below(6) as u8, 0, column),
            4 => Instr::new(Op::Setcol, buffer, random.below(4) as u8, 0, column | from << 16),
            _ => Instr::new(Op::Setnull, buffer, 0, 0, column),
        });
    }
}

/// A statement: a few instructions that belong together. `at` is where it begins.
fn statement(random: &mut Prng, at: u32, depth: u32) -> Vec<Instr> {
    let mut out = Vec::new();
    let register = |random: &mut Prng| random.below(6) as u8;
    let cp = random.below(4) as u8;
    match random.below(12) {
        0 | 1 => {
            let key = random.below(2) as u8;
            let (inputs, table): (&[u32], u32) = match random.below(3) {
                0 => (&[0], 0),
                1 => (&[1], 0),
                _ => (&[0, 2], 1),
            };
            out.push(Instr::new(Op::Key, key, 0, 0, 0));
            out.extend(
                inputs
                    .iter()
                    .map(|input| Instr::new(Op::Keyin, key, 0, 0, *input)),
            );
            out.push(Instr::new(Op::Search, cp, key, 0, table));
            out.push(Instr::new(Op::Ret, register(random), cp, 0, 0));
        }
        2 | 3 => {
            out.push(Instr::new(Op::Copyrow, 0, cp, 0, 0));
            sets(random, 0, &mut out);
            out.push(Instr::new(Op::Update, cp, 0, 0, 0));
            let status = register(random);
            out.push(Instr::new(Op::Ret, status, cp, 0, 0));
            if random.chance(1, 2) {
                out.push(Instr::new(Op::Count, status, 0, 0, 1));
            }
        }
        4 | 5 => {
            let statement = [0, 2][random.below(2) as usize];
            out.push(Instr::new(Op::Outrow, 1, 0, 0, statement));
            sets(random, 1, &mut out);
            sets(random, 1, &mut out);
            out.push(Instr::new(Op::Emit, 1, 0, 0, statement));
        }
        6 if depth < 2 => {
            let branches = [Op::Be, Op::Bne, Op::Blt, Op::Ble, Op::Bgt, Op::Bge];
            let alone = [Op::Bnull, Op::Bnnull, Op::Bt, Op::Bnt];
            let instr = match random.chance(1, 2) {
                true => Instr::new(
                    branches[random.below(6) as usize],
                    register(random),
                    register(random),
                    0,
                    0,
                ),
                false => Instr::new(alone[random.below(4) as usize], register(random), 0, 0, 0),
            };
            out.push(instr);
            for _ in 0..1 + random.below(3) {
                let body = statement(random, at + out.len() as u32, depth + 1);
                out.extend(body);
            }
            if random.chance(1, 5) {
                out.push(Instr::new(Op::Raise, random.below(3) as u8, 0, 0, 0));
            }
            out[0].imm = at + out.len() as u32;
        }
        7 => out.push(Instr::new(
            Op::Ldcol,
            register(random),
            cp,
            0,
            random.below(5) as u32,
        )),
        8 => out.push(match random.below(4) {
            0 => Instr::new(Op::Ldin, register(random), 0, 0, random.below(6) as u32),
            1 => Instr::new(Op::Ldk, register(random), 0, 0, 1 + random.below(4) as u32),
            2 => Instr::new(Op::Ldnull, register(random), 0, 0, 0),
            _ => Instr::new(
                Op::Ldi,
                register(random),
                0,
                0,
                random.next_u64() as u32 >> random.below(32),
            ),
        }),
        _ => {
            let three = [Op::Add, Op::Sub, Op::And, Op::Or];
            let two = [Op::Mov, Op::Neg, Op::Abs, Op::Not, Op::Isnull];
            let (a, b, c) = (register(random), register(random), register(random));
            out.push(match random.below(5) {
                0 | 1 => Instr::new(three[random.below(4) as usize], a, b, c, 0),
                2 => Instr::new(two[random.below(5) as usize], a, b, 0, 0),
                3 => Instr::new(Op::Cmp, a, b, c, random.below(6) as u32),
                _ => match random.chance(1, 3) {
                    true => Instr::new(Op::Narrow, a, 0, [2, 4, 8][random.below(3) as usize], 0),
                    false => Instr::new(Op::Test, a, b, 0, random.below(6) as u32),
                },
            });
        }
    }
    out
}

/// A valid program that fits.
pub fn random_program(random: &mut Prng) -> Program {
    let catalog = store().catalog();
    let parts = parts(&catalog);
    let mut logic: Vec<Instr> = Vec::new();
    for cp in 0..3_u8 {
        // A search of each key to begin with, so that there is something to read.
        let (inputs, table): (&[u32], u32) = [(&[0][..], 0), (&[1], 0), (&[0, 2], 1)][usize::from(cp)];
        logic.push(Instr::new(Op::Key, 0, 0, 0, 0));
        logic.extend(inputs.iter().map(|input| Instr::new(Op::Keyin, 0, 0, 0, *input)));
        logic.push(Instr::new(Op::Search, cp, 0, 0, table));
        logic.push(Instr::new(Op::Ret, random.below(6) as u8, cp, 0, 0));
    }
    for _ in 0..STATEMENTS {
        let before = logic.len();
        let more = statement(random, before as u32, 0);
        logic.extend(more);
        let program = close(&logic, &[], &parts);
        if verify(&program, &catalog).is_err() || plan(&program, &SOFTCORE).is_err() {
            logic.truncate(before);
        }
    }
    close(&logic, &[], &parts)
}
