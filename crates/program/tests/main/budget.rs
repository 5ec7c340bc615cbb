//! What instructions cost whose work grows with their values: the budget bounds the work, not the count.

use std::cell::Cell;
use std::ops::Bound;

use weft_base::{BatchId, IndexId, TableId};
use weft_program::{Budget, DataAccess, KeyList, Outcome, Program, RowHandle, Scratch, asm, run, verify};
use weft_store::{CatalogOp, ColumnDef, Fetch, IndexDef, IndexMethod, SlotId, TableDef};
use weft_types::{ArrayValue, RowLayout, SqlError, SqlType, Value, parse_text};

use crate::fixture::Database;

/// Bytes for which such an instruction costs one more.
const STEP: usize = 256;
/// The same for one that only moves them.
const MOVED: usize = 4096;

fn program(ty: &str, logic: &str) -> Program {
    let text = format!(
        ".program catalog 3\n.inputs\n  i0 {ty}\n  i1 {ty}\n.outputs\n  s0 ({ty})\n.logic\n{logic}  end\n.commit\n\
         \x20 commit\n.abort\n  abort\n"
    );
    let program = asm::parse(&text).unwrap();
    verify(&program, &Database::new().catalog()).unwrap();
    program
}

/// The least budget with which a run succeeds.
fn cost(program: &Program, one: &Value, other: &Value) -> usize {
    cost_by(Budget::new, program, one, other)
}

fn cost_by(budget: fn(u32) -> Budget, program: &Program, one: &Value, other: &Value) -> usize {
    let mut database = database();
    let inputs = program.encode_inputs(&[one.clone(), other.clone()]).unwrap();
    let mut enough = |units: &u32| database.run(program, &inputs, budget(*units)).is_ok();
    let (is_compiled, units) = (program.is_compiled(), (0..2000).find(|units| enough(units)));
    assert!(database.scratch.ran_compiled() || !is_compiled);
    units.unwrap() as usize
}

fn text(bytes: usize) -> Value {
    Value::Text("x".repeat(bytes))
}

#[test]
fn comparing_costs_by_the_shorter_value() {
    let compare = program("text", "  cmpv r0, i0, i1\n");
    let short = cost(&compare, &text(1), &text(1));
    assert_eq!(cost(&compare, &text(STEP - 1), &text(STEP - 1)), short);
    assert_eq!(cost(&compare, &text(STEP * 15), &text(1)), short);
    assert_eq!(cost(&compare, &text(STEP * 7), &text(STEP * 8)), short + 7);
    // Both have been read.
    assert_eq!(cost(&compare, &text(MOVED * 100), &text(1)), short + 100);
    let compare = program("numeric", "  cmpv r0, i0, i1\n");
    let number = |digits: usize| parse_text(&"7".repeat(digits), &SqlType::Numeric(None)).unwrap();
    let short = cost(&compare, &number(5), &number(5));
    let long = cost(&compare, &number(40_000), &number(40_000));
    assert!(long > short + 40, "{long} {short}");
}

#[test]
fn concatenation_costs_by_the_bytes_copied() {
    let join = program(
        "text",
        "  outrow b0, s0\n  setin b0.0, i0\n  cat b0.0, i1\n  emit s0, b0\n",
    );
    let short = cost(&join, &text(1), &text(1));
    assert_eq!(cost(&join, &text(STEP * 7), &text(1)), short + 7);
    assert_eq!(cost(&join, &text(1), &text(STEP * 7)), short + 7);
    assert_eq!(cost(&join, &text(STEP * 7), &text(STEP * 7)), short + 14);
    let cut = program(
        "text",
        "  outrow b0, s0\n  setin b0.0, i0\n  ldi r0, 1\n  cut b0.0, r0\n  emit s0, b0\n",
    );
    assert_eq!(
        cost(&cut, &text(STEP * 7), &text(1)),
        cost(&cut, &text(1), &text(1)) + 7
    );
}

/// Each instruction that moves a long value, and how often.
#[test]
fn what_is_moved_costs_by_its_bytes() {
    let with_table = |logic: &str| {
        let text = format!(
            ".program catalog 3\n.inputs\n  i0 text\n  i1 text\n.tables\n  t0 16384 (int8, int4, varchar(20), text, \
             float8) x0 16385 unique ordered primary (0) x1 16386 unique ordered (3)\n.outputs\n  s0 (text)\n.access\n  \
             write_table t0\n.logic\n{logic}  end\n.commit\n  commit\n.abort\n  abort\n"
        );
        let program = asm::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        verify(&program, &Database::new().catalog()).unwrap();
        program
    };
    let row = "  row b0, t0\n  ldi r1, 77\n  setr b0.0, r1\n  setin b0.3, i0\n";
    let insert = format!("{row}  insert cp0, t0, b0\n  ret r0, cp0\n");
    let copied = format!("{insert}  copyrow b1, cp0\n");
    let cases = [
        ("  key k0\n  keyin k0, i0\n".to_owned(), 1),
        (
            "  key k0\n  keyin k0, i0\n  search cp0, t0.x1, k0\n  ret r0, cp0\n".to_owned(),
            2,
        ),
        (
            "  key k0\n  keyin k0, i0\n  key k1\n  scan cp0, t0.x1, k0, k1, forward, all\n  ret r0, cp0\n"
                .to_owned(),
            2,
        ),
        (row.to_owned(), 1),
        (insert.clone(), 2),
        (copied.clone(), 3),
        (format!("{copied}  update cp0, b1\n  ret r0, cp0\n"), 5),
        (format!("{insert}  remove cp0\n  ret r0, cp0\n"), 3),
        (format!("{copied}  setnull b1.3\n"), 4),
        (format!("{copied}  key k0\n  keycol k0, cp0.3\n"), 4),
        ("  outrow b0, s0\n  setin b0.0, i0\n".to_owned(), 1),
        ("  outrow b0, s0\n  setin b0.0, i0\n  emit s0, b0\n".to_owned(), 2),
        // As one, if it were short.
        (
            format!("{insert}  outrow b2, s0\n  setcol b2.0, cp0.3\n  emit s0, b2\n"),
            4,
        ),
    ];
    for (logic, times) in cases {
        let program = with_table(&logic);
        for program in [program.unresolved(), program] {
            let short = cost(&program, &text(1), &text(1));
            assert_eq!(cost(&program, &text(1_000), &text(1)), short, "{logic}");
            let long = cost(&program, &text(MOVED * 20 + 100), &text(1));
            assert_eq!(long, short + 20 * times, "{logic}");
            let by_instructions = cost_by(Budget::of_instructions, &program, &text(MOVED * 20), &text(1));
            assert_eq!(by_instructions, short, "{logic}");
        }
    }
}

/// A key that grows in a loop, and is searched for each time: no more of it than the budget pays for.
#[test]
fn a_key_that_grows_is_paid_for() {
    let text = ".program catalog 3\n.inputs\n.tables\n  t0 16387 (int4, int4, text) x0 16388 unique ordered primary (0, \
                1)\n.outputs\n.access\n  write_table t0\n.logic\n  key k0\n  ldi r0, 7\nL1:\n  keyr k0, r0, int4\n  \
                scan cp0, t0.x0, k0, k0, forward, all\n  ret r1, cp0\n  jmp L1\n  end\n.commit\n  commit\n.abort\n  \
                abort\n";
    let program = asm::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let mut database = Database::new();
    let error = database.run(&program, &[], 1_000_000).unwrap_err();
    assert!(error.fields().out_of_budget, "{error:?}");
    let kept = database.scratch.kept_bytes();
    assert!(kept < 1 << 20, "{kept} bytes");
}

const TEXTS: TableId = TableId(16_400);
const TEXTS_KEY: IndexId = IndexId(16_401);
const TEXTS_ALL: IndexId = IndexId(16_402);
const WIDE: TableId = TableId(16_403);
const WIDE_KEY: IndexId = IndexId(16_404);
const TEXT_COLUMNS: usize = 9;
/// So many that a row of NULLs is long.
const WIDE_COLUMNS: usize = 600;

/// The small database, with a table of texts, and one of many columns.
fn database() -> Database {
    let table = |id, name: &str, ty, column_count: usize, indexes: &[(IndexId, usize)]| {
        let columns = (0..column_count).map(|number| ColumnDef::new(format!("c{number}"), ty));
        let mut table = TableDef::new(id, name, columns.collect());
        for (index, key_columns) in indexes {
            table = table.with_index(IndexDef {
                id: *index,
                name: format!("{name}_by_{key_columns}"),
                table: id,
                columns: (0..*key_columns).collect(),
                unique: true,
                primary: *key_columns < TEXT_COLUMNS,
                method: IndexMethod::Both,
            });
        }
        table
    };
    let database = Database::new();
    let texts_indexes = [(TEXTS_KEY, 2), (TEXTS_ALL, TEXT_COLUMNS)];
    for table in [
        table(TEXTS, "texts", SqlType::Text, TEXT_COLUMNS, &texts_indexes),
        table(WIDE, "wide", SqlType::Uuid, WIDE_COLUMNS, &[(WIDE_KEY, 1)]),
    ] {
        let batch = BatchId(database.store.boundary().0 + 1);
        let mut writer = database.store.begin_batch(batch);
        writer.apply_catalog(&CatalogOp::CreateTable(table)).unwrap();
        writer.finish();
        database.store.publish(batch);
    }
    database
}

const TWO_TEXTS: &str = "  i0 text\n  i1 text\n";

/// What machine code does itself: without any of it, there is none.
const NATIVE: &str = "  ldi r7, 1\n  ldi r8, 2\n  add r9, r7, r8\n";

fn wide_types() -> String {
    ["uuid"; WIDE_COLUMNS].join(", ")
}

/// A program over accounts, texts and the wide table: instruction by instruction; with what is executed as
/// one; as machine code.
fn three_ways(inputs: &str, constants: &str, outputs: &str, logic: &str) -> [Program; 3] {
    let (texts, wide) = (["text"; TEXT_COLUMNS].join(", "), wide_types());
    let row = match inputs == TWO_TEXTS {
        true => "  read_row t1 [i0, i1]\n",
        false => "",
    };
    let text = format!(
        "\
.program catalog 5
.inputs
{inputs}.consts
{constants}.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) \
     x1 16386 unique ordered (3)
  t1 16400 ({texts}) x0 16401 unique ordered primary (0, 1) \
     x1 16402 unique ordered (0, 1, 2, 3, 4, 5, 6, 7, 8)
  t2 16403 ({wide}) x0 16404 unique ordered primary (0)
.outputs
{outputs}.access
  write_table t0
  read_table t1
  read_table t2
{row}.logic
{NATIVE}{logic}  end
.commit
  commit
.abort
  abort
"
    );
    // A clone would share the machine code.
    let parse = || asm::parse(&text).unwrap_or_else(|error| panic!("{error}\n{logic}"));
    let (program, compiled) = (parse(), parse());
    verify(&program, &database().catalog()).unwrap_or_else(|error| panic!("{error}\n{logic}"));
    #[cfg(feature = "compiled")]
    assert!(compiled.compile(), "{logic}");
    [program.unresolved(), program, compiled]
}

/// What a run costs for the bytes that it moves.
fn weight(program: &Program, one: &Value, other: &Value) -> usize {
    cost(program, one, other) - cost_by(Budget::of_instructions, program, one, other)
}

/// A key with a NULL in it equals nothing, and is made all the same.
#[test]
fn a_covered_search_for_null_costs_by_its_key() {
    let logic = "  key k0\n  keyin k0, i0\n  keyin k0, i1\n  search cp0, t1.x0, k0\n  ret r0, cp0\n";
    for program in three_ways(TWO_TEXTS, "", "", logic) {
        let long = text(MOVED * 20);
        assert_eq!(weight(&program, &text(1), &Value::Null), 0);
        assert_eq!(weight(&program, &long, &text(1)), 40);
        assert_eq!(weight(&program, &long, &Value::Null), 40);
        assert_eq!(weight(&program, &Value::Null, &long), 40);
    }
}

/// A handler catches the error, and the work was done, each time.
#[test]
fn a_failed_conversion_costs_its_work() {
    const TIMES: usize = 3;
    for (types, instr) in [
        ("text, int8", "convert b0.1, b0.0"),
        ("text, varchar(3)", "assign b0.1, b0.0"),
        ("text, int4, int4, text", "call b0.3, substring_for, 0"),
    ] {
        let lengths = match instr.starts_with("call") {
            true => "  ldi r0, -1\n  setr b0.1, r0\n  setr b0.2, r0\n",
            false => "",
        };
        // Without an error it would never end.
        let logic = format!(
            "  outrow b0, s0\n  setin b0.0, i0\n{lengths}  ldi r1, 0\n  ldi r2, {TIMES}\n  ldi r3, 1\n\
             L1:\n  try h0, L3\n  {instr}\nL2:\n  jmp L2\n\
             L3:\n  add r1, r1, r3\n  blt r1, r2, L1\n"
        );
        for program in three_ways(TWO_TEXTS, "", &format!("  s0 ({types})\n"), &logic) {
            let short = cost(&program, &text(STEP - 1), &text(1));
            let long = cost(&program, &text(MOVED * 5), &text(1));
            // Into the buffer; from there, and each step of work.
            assert_eq!(long, short + 5 + (5 + MOVED * 5 / STEP) * TIMES, "{instr}");
            let by_instructions = cost_by(Budget::of_instructions, &program, &text(MOVED * 5), &text(1));
            assert!(by_instructions <= short + MOVED * 5 / STEP, "{instr}");
        }
    }
}

#[test]
fn an_array_costs_by_its_bytes() {
    let inputs = "  i0 _int4\n  i1 _int4\n";
    let outputs = "  s0 (_int4, _int4, _int8)\n";
    let array = |element: SqlType, count: usize| {
        let item = match element {
            SqlType::Int4 => Value::Int4(7),
            _ => Value::Int8(7),
        };
        Value::Array(Box::new(ArrayValue::of_items(element, vec![item; count])))
    };
    const COUNT: usize = 10_000;
    let bytes = |element: SqlType| {
        let ty = array(element, COUNT).sql_type().unwrap();
        let layout = RowLayout::new(&[ty]);
        let row = layout.encode(&[array(element, COUNT)]).unwrap();
        layout.raw(&row, 0).unwrap().len()
    };
    let (of_int4, of_int8) = (bytes(SqlType::Int4), bytes(SqlType::Int8));
    assert!(of_int4 > MOVED * 5, "{of_int4} bytes");
    let set = "  outrow b0, s0\n  setin b0.0, i0\n";
    for (logic, moved) in [
        ("  cmpv r0, i0, i1\n".to_owned(), vec![of_int4 * 2]),
        (format!("{set}  cmpv r0, i1, b0.0\n"), vec![of_int4, of_int4 * 2]),
        (format!("{set}  setbuf b0.1, b0.0\n"), vec![of_int4; 3]),
        (
            format!("{set}  convert b0.2, b0.0\n"),
            vec![of_int4, of_int4, of_int8],
        ),
        (
            format!("{set}  assign b0.2, b0.0\n"),
            vec![of_int4, of_int4, of_int8],
        ),
    ] {
        let expected: usize = moved.iter().map(|bytes| bytes / MOVED).sum();
        for program in three_ways(inputs, "", outputs, &logic) {
            let (short, long) = (array(SqlType::Int4, 1), array(SqlType::Int4, COUNT));
            assert_eq!(weight(&program, &short, &short), 0, "{logic}");
            assert_eq!(weight(&program, &long, &long), expected, "{logic}");
        }
    }
}

/// The same digits cost no less as an item of an array than by themselves.
#[test]
fn items_cost_their_conversion() {
    let digits = "7".repeat(2_000);
    let items = vec![Value::Text(digits.clone())];
    let array = Value::Array(Box::new(ArrayValue::of_items(SqlType::Text, items)));
    let cost_of = |instr: &str, from: &str, to: &str, value: &Value| {
        let inputs = format!("  i0 {from}\n  i1 {from}\n");
        let outputs = format!("  s0 ({from}, {to})\n");
        let logic = format!("  outrow b0, s0\n  setin b0.0, i0\n  {instr} b0.1, b0.0\n");
        let programs = three_ways(&inputs, "", &outputs, &logic);
        let costs = programs.map(|program| cost(&program, value, &Value::Null));
        assert!(costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
        costs[0]
    };
    let alone = cost_of("convert", "text", "numeric", &Value::Text(digits.clone()));
    assert!(alone > 400, "{alone}");
    assert!(cost_of("convert", "_text", "_numeric", &array) >= alone);
    assert!(
        cost_of(
            "convert",
            "text",
            "_numeric",
            &Value::Text(format!("{{{digits}}}"))
        ) >= alone
    );
    // Many short ones are not one long one.
    let many = format!("{{{}}}", ["7"; 1_000].join(","));
    let of_many = cost_of("convert", "text", "_numeric", &Value::Text(many));
    assert!(of_many < alone / 5, "{of_many}");
    // Read with all its blanks.
    let padded = cost_of("convert", "bpchar(100000)", "int8", &Value::Text("7".to_owned()));
    assert!(padded > 100_000 / STEP, "{padded}");
    // SETBUF assigns.
    let numbers = vec![parse_text(&digits, &SqlType::Numeric(None)).unwrap()];
    let numbers = Value::Array(Box::new(ArrayValue::of_items(SqlType::Numeric(None), numbers)));
    let alone = cost_of(
        "convert",
        "numeric",
        "text",
        &parse_text(&digits, &SqlType::Numeric(None)).unwrap(),
    );
    assert!(cost_of("setbuf", "_numeric", "_text", &numbers) + 20 >= alone);
}

/// The cells of its columns are cleared.
#[test]
fn a_row_of_nulls_costs_by_its_bytes() {
    let outputs = format!("  s0 ({})\n", wide_types());
    let step = RowLayout::new(&[SqlType::Uuid; WIDE_COLUMNS]).null_row().len() / MOVED;
    assert!(step > 1);
    let nothing = "  key k0\n  scan cp0, t2.x0, k0, k0, forward, all\n  ret r0, cp0\n";
    let columns = (0..WIDE_COLUMNS).map(|column| format!("  setcol b0.{column}, cp0.{column}\n"));
    let columns: String = columns.collect();
    for (logic, times) in [
        ("  row b0, t2\n".to_owned(), 1),
        ("  outrow b0, s0\n".to_owned(), 1),
        ("  outrow b0, s0\n  emit s0, b0\n".to_owned(), 2),
        (format!("{nothing}  copyrow b0, cp0\n"), 1),
        // As one, if it were short.
        (format!("{nothing}  outrow b0, s0\n{columns}  emit s0, b0\n"), 2),
    ] {
        for program in three_ways(TWO_TEXTS, "", &outputs, &logic) {
            assert_eq!(weight(&program, &text(1), &text(1)), step * times, "{logic}");
        }
    }
}

/// An empty text in place of a NULL gets a place before the long text, which is moved.
#[test]
fn an_empty_text_costs_by_what_lies_behind_it() {
    let logic = "  outrow b0, s0\n  setin b0.1, i0\n  setin b0.0, i1\n";
    for program in three_ways(TWO_TEXTS, "", "  s0 (text, text)\n", logic) {
        assert_eq!(weight(&program, &text(1), &text(0)), 0);
        assert_eq!(weight(&program, &text(MOVED * 20), &text(0)), 40);
    }
}

/// An email that another account has: the handler catches what UPDATE found out by looking at both rows.
#[test]
fn a_failed_update_costs_by_its_rows() {
    let account = |number: usize| {
        format!(
            "  row b0, t0\n  ldi r0, {number}\n  setr b0.0, r0\n  setin b0.3, i{number}\n\
             \x20 insert cp{number}, t0, b0\n  ret r0, cp{number}\n"
        )
    };
    let (first, second) = (account(0), account(1));
    let logic = format!(
        "{first}{second}  copyrow b1, cp1\n  setin b1.3, i0\n  try h0, L2\n  update cp1, b1\n\
         L1:\n  jmp L1\nL2:\n"
    );
    for program in three_ways(TWO_TEXTS, "", "", &logic) {
        assert_eq!(weight(&program, &text(1), &text(2)), 0);
        // SETIN and INSERT, SETIN, UPDATE.
        assert_eq!(weight(&program, &text(MOVED * 20), &text(1)), 80);
        // SETIN and INSERT, COPYROW, SETIN, which moves what lies behind the text, UPDATE.
        assert_eq!(weight(&program, &text(1), &text(MOVED * 20)), 100);
    }
}

/// The rows of a range; counts the bytes of keys that are made ahead.
struct OneRange {
    rows: Vec<Vec<u8>>,
    made_bytes: Cell<usize>,
}

impl DataAccess for OneRange {
    fn prefetch_lookups(&self, _: IndexId, _: TableId, keys: &KeyList, _: Fetch, _: &mut [SlotId]) -> bool {
        let made: usize = keys.iter().map(<[u8]>::len).sum();
        self.made_bytes.set(self.made_bytes.get() + made);
        true
    }

    fn search(&mut self, _: IndexId, _: TableId, _: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        Ok(None)
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        self.rows.get(row.slot as usize).map(Vec::as_slice)
    }

    fn range(
        &mut self,
        _: IndexId,
        table: TableId,
        _: Bound<&[u8]>,
        _: Bound<&[u8]>,
        _: bool,
        limit: usize,
        out: &mut Vec<RowHandle>,
    ) -> Result<(), SqlError> {
        let slots = 0..self.rows.len() as u64;
        out.extend(slots.map(|slot| RowHandle { table, slot }).take(limit));
        Ok(())
    }

    fn insert(&mut self, _: TableId, _: &[u8]) -> Result<RowHandle, SqlError> {
        Err(SqlError::internal("reads only"))
    }

    fn update(&mut self, _: &RowHandle, _: &[u8]) -> Result<(), SqlError> {
        Err(SqlError::internal("reads only"))
    }

    fn remove(&mut self, _: &RowHandle) -> Result<(), SqlError> {
        Err(SqlError::internal("reads only"))
    }

    fn observed(&self) -> BatchId {
        BatchId(0)
    }
}

/// Keys that are made ahead for a block of rows, of which the program uses the first: nobody pays for the
/// others.
#[test]
fn keys_made_ahead_are_few_bytes() {
    let all = SqlType::Text;
    let accounts = RowLayout::new(&[
        SqlType::Int8,
        SqlType::Int4,
        SqlType::Varchar(Some(20)),
        all,
        SqlType::Float8,
    ]);
    let constant = "  keyk k1, c0\n";
    let email = "  keycol k1, cp0.3\n";
    for (index, parts, constant_bytes, email_bytes, made_bytes_max) in [
        ("x0", [constant, email].concat(), 100, 10, MOVED),
        // Not the constant, once for each row.
        ("x0", [constant, email].concat(), MOVED - 100, 10, 0),
        ("x0", [constant, email].concat(), MOVED * 30, 10, 0),
        ("x0", [email, constant].concat(), MOVED * 30, 10, 0),
        // No more rows than make a long list.
        ("x0", [constant, email].concat(), 10, MOVED - 500, MOVED * 2),
        // Not many times the same column.
        ("x1", email.repeat(TEXT_COLUMNS), 10, MOVED - 500, 0),
    ] {
        let logic = format!(
            "  key k0\n  scan cp0, t0.x0, k0, k0, forward, all\n  ret r0, cp0\n\
             L1:\n  bnt r0, L2\n  key k1\n{parts}  search cp1, t1.{index}, k1\n  ret r1, cp1\n  bnt r1, L2\n\
             \x20 next r0, cp0\n  jmp L1\nL2:\n"
        );
        let constant = format!("  c0 text '{}'\n", "x".repeat(constant_bytes));
        let case = format!("{constant_bytes} {email_bytes} {parts}");
        let rows = (0..20).map(|id| {
            let email = Value::Text(format!("{id:0email_bytes$}"));
            let row = [Value::Int8(id), Value::Null, Value::Null, email, Value::Null];
            accounts.encode(&row).unwrap()
        });
        let mut access = OneRange {
            rows: rows.collect(),
            made_bytes: Cell::new(0),
        };
        let mut costs = Vec::new();
        let programs = three_ways(TWO_TEXTS, &constant, "", &logic);
        let inputs = programs[0].encode_inputs(&[text(1), text(1)]).unwrap();
        for program in &programs {
            let (mut scratch, mut outcome) = (Scratch::default(), Outcome::default());
            let mut is_enough = |budget: &u32| {
                access.made_bytes.set(0);
                run(program, &inputs, &mut access, *budget, &mut scratch, &mut outcome).is_ok()
            };
            costs.push((0..2000).find(|budget| is_enough(budget)));
            let made_bytes = access.made_bytes.get();
            assert!(made_bytes <= made_bytes_max, "{made_bytes} bytes, {case}");
        }
        assert!(
            costs[0].is_some() && costs.iter().all(|cost| *cost == costs[0]),
            "{costs:?} {case}"
        );
    }
}
