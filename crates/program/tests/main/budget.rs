//! What instructions cost whose work grows with their values: the budget bounds the work, not the count.

use weft_program::{Budget, Program, asm, verify};
use weft_types::{SqlType, Value, parse_text};

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
    let mut database = Database::new();
    let inputs = program.encode_inputs(&[one.clone(), other.clone()]).unwrap();
    let mut enough = |units: &u32| database.run(program, &inputs, budget(*units)).is_ok();
    (0..2000).find(|units| enough(units)).unwrap() as usize
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
