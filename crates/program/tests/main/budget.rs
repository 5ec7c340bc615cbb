//! What instructions cost whose work grows with their values: the budget bounds the work, not the count.

use weft_program::{Program, asm, verify};
use weft_types::{SqlType, Value, parse_text};

use crate::fixture::Database;

/// Bytes for which such an instruction costs one more.
const STEP: usize = 256;

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
    let mut database = Database::new();
    let inputs = program.encode_inputs(&[one.clone(), other.clone()]).unwrap();
    let mut enough = |budget: &u32| database.run(program, &inputs, *budget).is_ok();
    (0..2000).find(|budget| enough(budget)).unwrap() as usize
}

fn text(bytes: usize) -> Value {
    Value::Text("x".repeat(bytes))
}

#[test]
fn comparing_costs_by_the_shorter_value() {
    let compare = program("text", "  cmpv r0, i0, i1\n");
    let short = cost(&compare, &text(1), &text(1));
    assert_eq!(cost(&compare, &text(STEP - 1), &text(STEP - 1)), short);
    assert_eq!(cost(&compare, &text(STEP * 100), &text(1)), short);
    assert_eq!(cost(&compare, &text(STEP * 100), &text(STEP * 120)), short + 100);
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
    assert_eq!(cost(&join, &text(STEP * 30), &text(1)), short + 30);
    assert_eq!(cost(&join, &text(1), &text(STEP * 30)), short + 30);
    assert_eq!(cost(&join, &text(STEP * 30), &text(STEP * 30)), short + 60);
    let cut = program(
        "text",
        "  outrow b0, s0\n  setin b0.0, i0\n  ldi r0, 1\n  cut b0.0, r0\n  emit s0, b0\n",
    );
    assert_eq!(
        cost(&cut, &text(STEP * 30), &text(1)),
        cost(&cut, &text(1), &text(1)) + 30
    );
}
