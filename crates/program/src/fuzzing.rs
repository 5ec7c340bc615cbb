//! What fuzzing calls: any bytes as an encoded program and its inputs. See [`weft_base::fuzzing`].
//!
//! ```text
//! | switches u8 | budget u8 | inputs: varint length, row | program |
//!   bit 0: as machine code too      the length of the program is what is left
//! ```
//!
//! What the verifier refuses runs too: it may end in anything, but must end.

use std::sync::{Arc, OnceLock};

use weft_base::fuzzing::Target;
use weft_base::{BatchId, ByteReader, ByteWriter, IndexId, TableId};
use weft_store::{CatalogOp, ColumnDef, IndexDef, IndexMethod, Store, TableDef};
use weft_types::{SqlError, SqlState, SqlType, Value, parse_text};

use crate::program::Program;
use crate::{AccessKeys, BatchAccess, Outcome, Scratch, asm, run, verify};

/// All targets.
pub const TARGETS: [Target; 1] = [Target {
    name: "program",
    run: program,
    seeds,
}];

const ACCOUNTS: TableId = TableId(16_384);
const PAIRS: TableId = TableId(16_387);
const JOURNAL: TableId = TableId(16_389);
const COMPILED: u8 = 1;
/// Instructions for each step of the byte that says the budget.
const BUDGET_STEP: u32 = 16;

/// A program: its bytes and its text are the only ones that say it; it runs to its end within its budget;
/// once verified it meets no internal error, and does the same step by step, resolved and as machine code.
pub fn program(data: &[u8]) {
    let mut reader = ByteReader::new(data);
    let (Ok(switches), Ok(steps), Ok(inputs)) = (reader.u8(), reader.u8(), reader.len_prefixed()) else {
        return;
    };
    let bytes = data.get(reader.position()..).unwrap_or_default();
    let Ok(program) = Program::decode(bytes) else {
        return;
    };
    assert_eq!(program.encode(), bytes, "a program has two forms");
    let text = asm::print(&program);
    match asm::parse(&text) {
        Ok(again) => assert_eq!(again.encode(), bytes, "a program's text is another's:\n{text}"),
        Err(error) => assert!(text.is_empty(), "a program's text is none: {error}\n{text}"),
    }
    let budget = BUDGET_STEP * (u32::from(steps) + 1);
    let (plain, resolved) = (Database::new(), Database::new());
    let verified = plain
        .as_ref()
        .is_some_and(|it| verify(&program, &it.0.catalog()).is_ok());
    let stepwise = plain.map(|it| it.run(&program.unresolved(), inputs, budget));
    if let Some(Ran {
        result: Err(error), ..
    }) = &stepwise
        && verified
        && AccessKeys::default().prepare(&program, inputs).is_ok()
    {
        assert_ne!(
            error.state,
            SqlState::INTERNAL_ERROR,
            "the verifier let pass: {}\n{text}",
            error.message
        );
    }
    let at_once = resolved.map(|it| it.run(&program, inputs, budget));
    // Nobody resolves or compiles what was not verified; that it ends is all.
    if verified {
        assert_eq!(at_once, stepwise, "resolved, it does something else:\n{text}");
    }
    if switches & COMPILED != 0 && verified && program.compile() {
        let compiled = Database::new().map(|it| it.run(&program, inputs, budget));
        assert_eq!(compiled, stepwise, "machine code does something else:\n{text}");
    }
}

/// What a run came to.
#[derive(Debug, PartialEq)]
struct Ran {
    result: Result<Outcome, SqlError>,
    digest: u64,
}

/// A store with a few rows.
struct Database(Arc<Store>);

impl Database {
    fn new() -> Option<Database> {
        let store = Store::new();
        for table in tables() {
            let batch = BatchId(store.boundary().0 + 1);
            let mut writer = store.begin_batch(batch);
            writer
                .apply_catalog(&CatalogOp::CreateTable(table.clone()))
                .ok()?;
            let mut member = writer.member(0);
            for row in rows(table)? {
                member.insert(table.id, &row).ok()?;
            }
            member.commit();
            writer.finish();
            store.publish(batch);
        }
        Some(Database(store))
    }

    /// Runs a program as the only member of a batch, which is rolled back if it fails.
    fn run(&self, program: &Program, inputs: &[u8], budget: u32) -> Ran {
        let batch = BatchId(self.0.boundary().0 + 1);
        let writer = self.0.begin_batch(batch);
        let mut member = writer.member(0);
        let (mut scratch, mut outcome) = (Scratch::default(), Outcome::default());
        let mut access = BatchAccess::new(&mut member);
        let result = run(program, inputs, &mut access, budget, &mut scratch, &mut outcome);
        match result {
            Ok(()) => member.commit(),
            Err(_) => member.rollback(),
        }
        let digest = writer.finish();
        self.0.publish(batch);
        assert_eq!(
            Ok(digest),
            self.0.verify_digest(&self.0.snapshot()),
            "rows and digest differ"
        );
        let result = result.map(|()| outcome);
        Ran { result, digest }
    }
}

fn index(id: u32, name: &str, table: TableId, columns: &[usize], primary: bool) -> IndexDef {
    IndexDef {
        id: IndexId(id),
        name: name.into(),
        table,
        columns: columns.to_vec(),
        unique: true,
        primary,
        method: IndexMethod::Both,
    }
}

/// Those of the scripts in `tests/main`.
fn tables() -> &'static [TableDef; 3] {
    static TABLES: OnceLock<[TableDef; 3]> = OnceLock::new();
    let columns = |columns: &[(&str, SqlType)]| -> Vec<ColumnDef> {
        columns
            .iter()
            .map(|(name, ty)| ColumnDef::new(*name, *ty))
            .collect()
    };
    let make = || {
        let accounts = columns(&[
            ("id", SqlType::Int8),
            ("balance", SqlType::Int4),
            ("name", SqlType::Varchar(Some(20))),
            ("email", SqlType::Text),
            ("ratio", SqlType::Float8),
        ]);
        let pairs = columns(&[("a", SqlType::Int4), ("b", SqlType::Int4), ("v", SqlType::Text)]);
        let journal = columns(&[("n", SqlType::Int4), ("t", SqlType::Text)]);
        [
            TableDef::new(ACCOUNTS, "accounts", accounts)
                .with_index(index(16_385, "accounts_pkey", ACCOUNTS, &[0], true))
                .with_index(index(16_386, "accounts_email_key", ACCOUNTS, &[3], false)),
            TableDef::new(PAIRS, "pairs", pairs).with_index(index(
                16_388,
                "pairs_pkey",
                PAIRS,
                &[0, 1],
                true,
            )),
            TableDef::new(JOURNAL, "journal", journal),
        ]
    };
    TABLES.get_or_init(make)
}

fn rows(table: &TableDef) -> Option<Vec<Vec<u8>>> {
    let text = |text: &str| Value::Text(text.into());
    let values: Vec<Vec<Value>> = (1..5)
        .map(|n| match table.id {
            ACCOUNTS => vec![
                Value::Int8(n),
                Value::Int4(100),
                text("anna"),
                text(&format!("{n}@x")),
                Value::Float8(0.5),
            ],
            PAIRS => vec![Value::Int4(1), Value::Int4(n as i32), Value::Null],
            _ => vec![Value::Int4(7), text("t")],
        })
        .collect();
    values
        .iter()
        .map(|values| table.layout.encode(values).ok())
        .collect()
}

/// The programs of the scripts, each with the inputs of its runs.
fn seeds() -> Vec<Vec<u8>> {
    let scripts = [
        include_str!("../tests/main/scripts/arithmetic.asm"),
        include_str!("../tests/main/scripts/point.asm"),
        include_str!("../tests/main/scripts/range.asm"),
    ];
    let mut seeds = Vec::new();
    for script in scripts {
        for part in script.split("\n.program").skip(1) {
            let mut lines = part.lines();
            let head = lines.next().unwrap_or_default();
            let runs = part.lines().filter_map(|line| line.strip_prefix(";>"));
            let body: Vec<&str> = lines.filter(|line| !line.starts_with(';')).collect();
            let source = format!(".program{head}\n{}\n", body.join("\n"));
            let Ok(program) = asm::parse(&source) else {
                continue;
            };
            seeds.extend(runs.take(2).filter_map(|inputs| seed(&program, inputs)));
        }
    }
    seeds
}

fn seed(program: &Program, inputs: &str) -> Option<Vec<u8>> {
    let words = inputs.split('|').map(str::trim);
    let values: Option<Vec<Value>> = words
        .zip(&program.inputs)
        .map(|(word, ty)| match word {
            "null" => Some(Value::Null),
            word => parse_text(word, ty).ok(),
        })
        .collect();
    let row = program.encode_inputs(&values?).ok()?;
    let mut seed = vec![COMPILED, u8::MAX];
    seed.put_len_prefixed(&row);
    seed.put_bytes(&program.encode());
    Some(seed)
}

#[cfg(test)]
mod tests {
    use weft_base::fuzzing::run_changed_seeds;

    use super::*;

    #[test]
    fn changed_seeds_run_or_are_refused() {
        run_changed_seeds(&TARGETS, 40);
    }

    /// The scripts fit the tables here, so that the fuzzer begins behind the verifier.
    #[test]
    fn the_seeds_are_verified_programs() {
        let seeds = seeds();
        assert!(seeds.len() > 20, "{}", seeds.len());
        let catalog = Database::new().unwrap().0.catalog();
        for seed in seeds {
            let mut reader = ByteReader::new(&seed[2..]);
            reader.len_prefixed().unwrap();
            let program = Program::decode(&seed[2 + reader.position()..]).unwrap();
            verify(&program, &catalog).unwrap();
        }
    }
}
