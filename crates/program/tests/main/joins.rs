//! Searches for each row of a range, with keys that were made ahead: what they find, and at which
//! instruction they end, must be what the instructions by themselves find and where those end.

use weft_base::BatchId;
use weft_program::{Outcome, Program, asm, verify};
use weft_types::{RowLayout, SqlError, SqlType, Value};

use crate::fixture::{ACCOUNTS, Database, PAIRS};

/// Accounts by id; for each, the pair of `i0` and its balance. With each account found, the balance of
/// account `i1` becomes `i2`, which may be one that comes later in the range.
const JOIN: &str = "\
.program catalog 3
.inputs
  i0 int4
  i1 int8
  i2 int4
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) \
     x1 16386 unique ordered (3)
  t1 16387 (int4, int4, text) x0 16388 unique ordered primary (0, 1)
.outputs
  s0 (int8, int4, text)
.access
  write_table t0
  ACCESS
.logic
  key k0
  scan cp0, t0.x0, k0, k0, forward, all
  ret r0, cp0
L1:
  bnt r0, L4
  key k1
  keyin k1, i0
  keycol k1, cp0.1
  search cp1, t1.x0, k1
  ret r1, cp1
  bnt r1, L2
  outrow b0, s0
  setcol b0.0, cp0.0
  setcol b0.1, cp1.1
  setcol b0.2, cp1.2
  emit s0, b0
L2:
  key k2
  keyin k2, i1
  search cp2, t0.x0, k2
  ret r1, cp2
  bnt r1, L3
  copyrow b1, cp2
  setin b1.1, i2
  update cp2, b1
  ret r1, cp2
L3:
  next r0, cp0
  jmp L1
L4:
  end
.commit
  commit
.abort
  abort
";

/// Twenty accounts with balances from 0 to 4, every seventh without; pairs (1, 0) to (1, 3).
fn database() -> Database {
    let database = Database::new();
    let batch = BatchId(database.store.boundary().0 + 1);
    let writer = database.store.begin_batch(batch);
    let mut member = writer.member(0);
    let accounts = RowLayout::new(&[
        SqlType::Int8,
        SqlType::Int4,
        SqlType::Varchar(Some(20)),
        SqlType::Text,
        SqlType::Float8,
    ]);
    for id in 0..20 {
        let balance = match id % 7 {
            6 => Value::Null,
            _ => Value::Int4(id as i32 % 5),
        };
        let email = Value::Text(format!("{id}@there"));
        let row = [Value::Int8(id), balance, Value::Null, email, Value::Null];
        member.insert(ACCOUNTS, &accounts.encode(&row).unwrap()).unwrap();
    }
    let pairs = RowLayout::new(&[SqlType::Int4, SqlType::Int4, SqlType::Text]);
    for b in 0..4 {
        let row = [Value::Int4(1), Value::Int4(b), Value::Text(format!("pair {b}"))];
        member.insert(PAIRS, &pairs.encode(&row).unwrap()).unwrap();
    }
    member.commit();
    writer.finish();
    database.store.publish(batch);
    database
}

fn join(access: &str) -> Program {
    let program = asm::parse(&JOIN.replace("ACCESS", access)).unwrap_or_else(|error| panic!("{error}"));
    verify(&program, &database().catalog()).unwrap_or_else(|error| panic!("{error}"));
    program
}

fn run(program: &Program, inputs: &[Value], budget: u32) -> (Result<(), SqlError>, Outcome) {
    let mut database = database();
    let inputs = program.encode_inputs(inputs).unwrap();
    let result = database.run(program, &inputs, budget);
    (result, database.outcome)
}

/// Interpreted and compiled.
fn both_ways(program: &Program) -> Vec<Program> {
    let compiled = program.clone();
    #[cfg(feature = "compiled")]
    assert!(compiled.compile());
    vec![program.clone(), compiled]
}

#[test]
fn keys_made_ahead_find_the_same_rows() {
    let plain = join("read_range t1 [i0] [i0]").unresolved();
    let mut found = Vec::new();
    // Nobody's balance changes; that of an account gone by, the present one, or one to come, to another
    // pair's, to nobody's; the inputs' part of the key is NULL.
    for (a, changed) in [
        (Value::Int4(1), -1),
        (Value::Int4(1), 0),
        (Value::Int4(1), 5),
        (Value::Int4(1), 19),
    ]
    .into_iter()
    .chain([(Value::Null, 5), (Value::Int4(2), 5)])
    {
        for balance in [Value::Int4(3), Value::Int4(77), Value::Null] {
            let inputs = [a.clone(), Value::Int8(changed), balance];
            let expected = run(&plain, &inputs, 10_000);
            assert_eq!(expected.0, Ok(()));
            for program in both_ways(&join("read_range t1 [i0] [i0]")) {
                assert_eq!(run(&program, &inputs, 10_000), expected, "{inputs:?}");
            }
            found.push(expected.1.statement(0).unwrap().rows().count());
        }
    }
    // Of 18 accounts with a balance, 15 have one below 4.
    let no_change = *found.first().unwrap();
    assert!(
        no_change > 10 && found.contains(&(no_change - 1)) && found.contains(&0),
        "{found:?}"
    );
}

#[test]
fn a_budget_runs_out_at_the_same_instruction() {
    let program = join("read_range t1 [i0] [i0]");
    let plain = program.unresolved();
    let ways = both_ways(&program);
    let inputs = [Value::Int4(1), Value::Int8(-1), Value::Null];
    let ends = |program: &Program, budget| {
        let (result, outcome) = run(program, &inputs, budget);
        result.map(|()| outcome)
    };
    let enough = (0..2_000).find(|budget| ends(&plain, *budget).is_ok()).unwrap();
    for budget in (0..60).chain(enough - 60..=enough) {
        let expected = ends(&plain, budget);
        for program in &ways {
            assert_eq!(ends(program, budget), expected, "with {budget} of {enough}");
        }
    }
}

/// A range of other keys, or of more columns than are known, does not cover the search whatever a row holds.
#[test]
fn a_join_stays_inside_what_was_declared() {
    let inputs = [Value::Int4(1), Value::Int8(-1), Value::Null];
    for access in [
        "read_range t1 [i2] [i2]",
        "read_range t1 [i0, i2] [i0, i2]",
        "read_row t1 [i0, i2]",
    ] {
        let program = join(access);
        let expected = run(&program.unresolved(), &inputs, 10_000);
        assert!(expected.0.is_err(), "{access}");
        for program in both_ways(&program) {
            assert_eq!(run(&program, &inputs, 10_000), expected, "{access}");
        }
    }
}

/// Accounts whose email is a pair's text. NULL is nobody's email, though an account has none.
#[test]
fn null_finds_nothing() {
    let text = "\
.program catalog 3
.inputs
  i0 int4
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) \
     x1 16386 unique ordered (3)
  t1 16387 (int4, int4, text) x0 16388 unique ordered primary (0, 1)
.outputs
  s0 (int8)
.access
  read_table t0
  read_range t1 [i0] [i0]
.logic
  key k0
  keyin k0, i0
  scan cp0, t1.x0, k0, k0, forward, all
  ret r0, cp0
L1:
  bnt r0, L3
  key k1
  keycol k1, cp0.2
  search cp1, t0.x1, k1
  ret r1, cp1
  bnt r1, L2
  outrow b0, s0
  setcol b0.0, cp1.0
  emit s0, b0
L2:
  next r0, cp0
  jmp L1
L3:
  end
.commit
  commit
.abort
  abort
";
    let program = asm::parse(text).unwrap_or_else(|error| panic!("{error}"));
    for program in both_ways(&program).into_iter().chain([program.unresolved()]) {
        let mut database = database();
        let batch = BatchId(database.store.boundary().0 + 1);
        let writer = database.store.begin_batch(batch);
        let mut member = writer.member(0);
        let pairs = RowLayout::new(&[SqlType::Int4, SqlType::Int4, SqlType::Text]);
        for (b, v) in [Value::Null, Value::Text("3@there".into()), Value::Null]
            .into_iter()
            .enumerate()
        {
            let row = [Value::Int4(2), Value::Int4(b as i32), v];
            member.insert(PAIRS, &pairs.encode(&row).unwrap()).unwrap();
        }
        let accounts = RowLayout::new(&[
            SqlType::Int8,
            SqlType::Int4,
            SqlType::Varchar(Some(20)),
            SqlType::Text,
            SqlType::Float8,
        ]);
        let mut nobody = vec![Value::Null; 5];
        nobody[0] = Value::Int8(50);
        member
            .insert(ACCOUNTS, &accounts.encode(&nobody).unwrap())
            .unwrap();
        member.commit();
        writer.finish();
        database.store.publish(batch);
        let inputs = program.encode_inputs(&[Value::Int4(2)]).unwrap();
        database.run(&program, &inputs, 1_000).unwrap();
        let rows = database.outcome.statement(0).unwrap().rows();
        let layout = program.output_layout(0).unwrap();
        let ids: Vec<_> = rows.map(|row| layout.fixed_u64(row, 0)).collect();
        assert_eq!(ids, [Some(3)]);
    }
}

/// A collect register is used for a range of pairs, then for one of accounts whose rows are joined.
#[test]
fn a_register_that_had_a_range_of_another_table() {
    let text = "\
.program catalog 3
.inputs
  i0 int4
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) \
     x1 16386 unique ordered (3)
  t1 16387 (int4, int4, text) x0 16388 unique ordered primary (0, 1)
.outputs
  s0 (int8, int4)
.access
  read_table t0
  read_table t1
.logic
  key k0
  scan cp0, t1.x0, k0, k0, forward, all
  ret r0, cp0
  key k0
  scan cp0, t0.x0, k0, k0, forward, all
  ret r0, cp0
L1:
  bnt r0, L3
  key k1
  keyin k1, i0
  keycol k1, cp0.1
  search cp1, t1.x0, k1
  ret r1, cp1
  bnt r1, L2
  outrow b0, s0
  setcol b0.0, cp0.0
  setcol b0.1, cp1.1
  emit s0, b0
L2:
  next r0, cp0
  jmp L1
L3:
  end
.commit
  commit
.abort
  abort
";
    let program = asm::parse(text).unwrap_or_else(|error| panic!("{error}"));
    verify(&program, &database().catalog()).unwrap_or_else(|error| panic!("{error}"));
    let inputs = [Value::Int4(1)];
    let expected = run(&program.unresolved(), &inputs, 10_000);
    assert_eq!(expected.0, Ok(()));
    for program in both_ways(&program) {
        assert_eq!(run(&program, &inputs, 10_000), expected);
    }
}

/// A range, then an empty one in the same register, NEXT, and the search.
#[test]
fn a_row_behind_an_empty_range() {
    let text = "\
.program catalog 3
.inputs
  i0 int4
  i1 int8
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) \
     x1 16386 unique ordered (3)
  t1 16387 (int4, int4, text) x0 16388 unique ordered primary (0, 1)
.outputs
  s0 (int4)
.access
  read_table t0
  read_table t1
.logic
  key k0
  scan cp0, t0.x0, k0, k0, forward, all
  ret r0, cp0
  key k0
  keyin k0, i1
  scan cp0, t0.x0, k0, k0, forward, all
  ret r0, cp0
  next r0, cp0
L1:
  key k1
  keyin k1, i0
  keycol k1, cp0.1
  search cp1, t1.x0, k1
  ret r1, cp1
  bnt r1, L2
  outrow b0, s0
  setcol b0.0, cp1.1
  emit s0, b0
L2:
  next r0, cp0
  bt r0, L1
  end
.commit
  commit
.abort
  abort
";
    let program = asm::parse(text).unwrap_or_else(|error| panic!("{error}"));
    verify(&program, &database().catalog()).unwrap_or_else(|error| panic!("{error}"));
    let inputs = [Value::Int4(1), Value::Null];
    let expected = run(&program.unresolved(), &inputs, 10_000);
    assert_eq!(expected.0, Ok(()));
    for program in both_ways(&program) {
        assert_eq!(run(&program, &inputs, 10_000), expected);
    }
}
