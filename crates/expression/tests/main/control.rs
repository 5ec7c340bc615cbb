//! Short-circuit evaluation and folding; lists and rows with NULL; series.

use weft_expression::{
    ColumnId, CompareOp, Compiled, Expr, Op, Operator, coerce, common_type, evaluate, fold, resolve_operator,
    resolve_set,
};
use weft_types::{CastContext, SqlError, SqlType, Value, ValueRef};

use super::context;

fn number(value: i32) -> Expr {
    Expr::constant(Value::Int4(value), SqlType::Int4)
}

fn truth(value: Option<bool>) -> Expr {
    Expr::constant(value.map_or(Value::Null, Value::Bool), SqlType::Bool)
}

/// `1 / 0`
fn failing() -> Expr {
    let Operator::Call(division) =
        resolve_operator("/", Some(Some(SqlType::Int4)), Some(SqlType::Int4)).unwrap()
    else {
        panic!("division is no comparison");
    };
    Expr::new(
        Op::Call(division.entry),
        SqlType::Int4,
        vec![number(1), number(0)],
    )
}

/// `1 / 0 = 1`
fn failing_truth() -> Expr {
    Expr::new(
        Op::Compare(CompareOp::Eq),
        SqlType::Bool,
        vec![failing(), number(1)],
    )
}

fn value(expr: &Expr) -> Result<Value, SqlError> {
    let plain = evaluate(expr, &context(), &|_| Value::Null);
    let folded = fold(expr, &context()).and_then(|folded| {
        let folded = Compiled::new(&folded.expr, &|_| None)?;
        folded.evaluate(&context(), &|_| ValueRef::Null)
    });
    assert_eq!(folded, plain, "folding changes nothing");
    plain
}

fn boolean(op: Op, arguments: Vec<Expr>) -> Result<Option<bool>, SqlError> {
    match value(&Expr::new(op, SqlType::Bool, arguments))? {
        Value::Bool(value) => Ok(Some(value)),
        _ => Ok(None),
    }
}

#[test]
fn and_and_or_stop_where_they_are_decided() {
    let (t, f, n) = (Some(true), Some(false), None);
    assert_eq!(
        boolean(Op::And, vec![truth(n), truth(f), failing_truth()]).unwrap(),
        f
    );
    assert_eq!(
        boolean(Op::Or, vec![truth(n), truth(t), failing_truth()]).unwrap(),
        t
    );
    assert!(boolean(Op::And, vec![truth(n), failing_truth()]).is_err());
    let table = [
        (t, t, t, t),
        (t, f, f, t),
        (t, n, n, t),
        (f, f, f, f),
        (f, n, f, n),
        (n, n, n, n),
    ];
    for (a, b, both, any) in table {
        for (a, b) in [(a, b), (b, a)] {
            assert_eq!(boolean(Op::And, vec![truth(a), truth(b)]).unwrap(), both);
            assert_eq!(boolean(Op::Or, vec![truth(a), truth(b)]).unwrap(), any);
        }
    }
}

#[test]
fn case_and_coalesce_compute_only_what_they_return() {
    let null = || Expr::constant(Value::Null, SqlType::Int4);
    let coalesce = Expr::new(Op::Coalesce, SqlType::Int4, vec![null(), number(2), failing()]);
    assert_eq!(value(&coalesce).unwrap(), Value::Int4(2));
    let arms = vec![truth(None), failing(), truth(Some(true)), number(5), failing()];
    let case = Expr::new(Op::Case { operand: false }, SqlType::Int4, arms);
    assert_eq!(value(&case).unwrap(), Value::Int4(5));
    let otherwise = Expr::new(
        Op::Case { operand: false },
        SqlType::Int4,
        vec![truth(Some(false)), failing(), number(6)],
    );
    assert_eq!(value(&otherwise).unwrap(), Value::Int4(6));
}

#[test]
fn a_case_operand_is_that_of_the_innermost_case() {
    let operand = || Expr::leaf(Op::CaseOperand, SqlType::Int4);
    let is = |wanted: Expr| Expr::new(Op::Compare(CompareOp::Eq), SqlType::Bool, vec![operand(), wanted]);
    let case = |of: Expr, condition: Expr, then: Expr, otherwise: Expr| {
        let arguments = vec![of, condition, then, otherwise];
        Expr::new(Op::Case { operand: true }, SqlType::Int4, arguments)
    };
    // CASE 3 WHEN (CASE 1 WHEN 1 THEN 3 ELSE 0 END) THEN 7 ELSE 8 END
    let inner = case(number(1), is(number(1)), number(3), number(0));
    let outer = case(number(3), is(inner), number(7), number(8));
    assert_eq!(value(&outer).unwrap(), Value::Int4(7));
}

/// A column of unknown value.
fn column() -> Expr {
    Expr::column(ColumnId(7), SqlType::Int4)
}

/// `column / 0`
fn failing_with_rows() -> Expr {
    let mut nodes = failing().into_arguments();
    let Op::Call(division) = failing().root().op.clone() else {
        panic!("division is a call");
    };
    Expr::new(Op::Call(division), SqlType::Int4, vec![column(), nodes.remove(1)])
}

#[test]
fn row_independent_errors_come_before_rows() {
    let of = |expr: &Expr| fold(expr, &context());
    // Before any row is read: column / 0 needs a row, 1 / 0 does not.
    assert_eq!(of(&failing_with_rows()).unwrap().expr, failing_with_rows());
    let case = |condition: Expr, then: Expr| {
        let arguments = vec![condition, then, column()];
        Expr::new(Op::Case { operand: false }, SqlType::Int4, arguments)
    };
    let is = |wanted: Expr| Expr::new(Op::Compare(CompareOp::Eq), SqlType::Bool, vec![column(), wanted]);
    assert_eq!(of(&case(is(number(1)), failing())).unwrap_err().state.0, "22012");
    assert_eq!(of(&case(truth(Some(false)), failing())).unwrap().expr, column());
    assert_eq!(of(&case(truth(Some(true)), number(4))).unwrap().expr, number(4));

    // The operand is dropped with the conditions over it.
    let operand = || Expr::leaf(Op::CaseOperand, SqlType::Int4);
    let simple = Expr::new(
        Op::Case { operand: true },
        SqlType::Int4,
        vec![failing_with_rows(), truth(None), operand(), number(3)],
    );
    let folded = of(&simple).unwrap();
    assert!(folded.omits_parts);
    assert_eq!(folded.expr, number(3));

    // NULLIF(column / 0, NULL) is its first argument.
    let test = Expr::new(
        Op::Compare(CompareOp::Eq),
        SqlType::Bool,
        vec![operand(), Expr::constant(Value::Null, SqlType::Int4)],
    );
    let null = Expr::constant(Value::Null, SqlType::Int4);
    let nullif = Expr::new(
        Op::Case { operand: true },
        SqlType::Int4,
        vec![failing_with_rows(), test, null, operand()],
    );
    assert_eq!(of(&nullif).unwrap().expr, failing_with_rows());

    // A strict function of NULL is NULL, whatever its other arguments do.
    let null = Expr::constant(Value::Null, SqlType::Int4);
    let sum = Expr::new(
        Op::Compare(CompareOp::Eq),
        SqlType::Bool,
        vec![failing_with_rows(), null.clone()],
    );
    let folded = of(&sum).unwrap();
    assert!(folded.omits_parts);
    assert_eq!(folded.expr.as_constant(), Some(&Value::Null));
    let plain = Expr::new(Op::Compare(CompareOp::Eq), SqlType::Bool, vec![column(), null]);
    assert!(!of(&plain).unwrap().omits_parts);

    // A later argument that decides an AND takes precedence; earlier ones are not evaluated.
    let fallible = is(failing_with_rows());
    let and = Expr::new(
        Op::And,
        SqlType::Bool,
        vec![
            truth(Some(true)),
            fallible.clone(),
            truth(Some(false)),
            failing_truth(),
        ],
    );
    let folded = of(&and).unwrap();
    assert!(folded.omits_parts);
    assert_eq!(folded.expr, truth(Some(false)));
    let or = Expr::new(Op::Or, SqlType::Bool, vec![truth(Some(false)), fallible.clone()]);
    assert_eq!(of(&or).unwrap().expr, fallible);
    let coalesce = Expr::new(Op::Coalesce, SqlType::Int4, vec![column(), number(2), failing()]);
    let kept = Expr::new(Op::Coalesce, SqlType::Int4, vec![column(), number(2)]);
    assert_eq!(of(&coalesce).unwrap().expr, kept);
}

#[test]
fn a_list_with_null_says_no_only_to_null() {
    for count in [3, 20] {
        let items = |null: bool| {
            let mut items: Vec<Expr> = (0..count).map(number).collect();
            if null {
                items.push(Expr::constant(Value::Null, SqlType::Int4));
            }
            items
        };
        let within = |value: Expr, null: bool, negated: bool| {
            boolean(Op::InList { negated }, [vec![value], items(null)].concat()).unwrap()
        };
        assert_eq!(within(number(1), true, false), Some(true));
        assert_eq!(within(number(99), true, false), None);
        assert_eq!(within(number(99), true, true), None);
        assert_eq!(within(number(99), false, true), Some(true));
        assert_eq!(
            within(Expr::constant(Value::Null, SqlType::Int4), false, false),
            None
        );
    }
}

#[test]
fn rows_compare_from_the_left() {
    let null = || Expr::constant(Value::Null, SqlType::Int4);
    let compare = |op, values: Vec<Expr>| boolean(Op::CompareRows(op), values).unwrap();
    assert_eq!(
        compare(CompareOp::Lt, vec![number(1), null(), number(2), number(0)]),
        Some(true)
    );
    assert_eq!(
        compare(CompareOp::Lt, vec![number(1), null(), number(1), number(0)]),
        None
    );
    assert_eq!(
        compare(CompareOp::Eq, vec![number(1), null(), number(2), null()]),
        Some(false)
    );
    assert_eq!(
        compare(CompareOp::Ne, vec![number(1), null(), number(1), null()]),
        None
    );
}

#[test]
fn types_agree_as_in_postgresql() {
    let numeric = SqlType::Numeric(None);
    let (int, text) = (Some(SqlType::Int4), Some(SqlType::Text));
    assert_eq!(common_type("CASE", &[int, Some(numeric), None]).unwrap(), numeric);
    assert_eq!(common_type("CASE", &[None, None]).unwrap(), SqlType::Text);
    let three = Some(SqlType::Varchar(Some(3)));
    assert_eq!(
        common_type("UNION", &[three, three]).unwrap(),
        SqlType::Varchar(Some(3))
    );
    assert_eq!(
        common_type("UNION", &[three, None]).unwrap(),
        SqlType::Varchar(None)
    );
    let error = common_type("CASE", &[int, text]).unwrap_err();
    assert_eq!(
        (error.state.0, &error.message[..]),
        ("42804", "CASE types integer and text cannot be matched")
    );
}

#[test]
fn a_constant_is_read_as_the_type_it_becomes() {
    let text = |text: &str| Expr::constant(Value::from(text), SqlType::Text);
    let read = coerce(text("12"), None, SqlType::Int4, CastContext::Implicit).unwrap();
    assert_eq!(read.as_constant(), Some(&Value::Int4(12)));
    let error = coerce(text("x"), None, SqlType::Int4, CastContext::Implicit).unwrap_err();
    assert_eq!(error.state.0, "22P02");
    let short = SqlType::Varchar(Some(2));
    let cut = coerce(text("abc"), None, short, CastContext::Explicit).unwrap();
    assert_eq!(cut.as_constant(), Some(&Value::from("ab")));
    assert_eq!(
        coerce(text("abc"), None, short, CastContext::Assignment)
            .unwrap_err()
            .state
            .0,
        "22001"
    );
}

#[test]
fn series_end_at_the_edge_of_their_type() {
    let types = [Some(SqlType::Int8), Some(SqlType::Int8), Some(SqlType::Int8)];
    let series = resolve_set("generate_series", &types).unwrap().unwrap();
    let run = |start: i64, stop: i64, step: i64| {
        let mut values = Vec::new();
        let arguments = [ValueRef::Int8(start), ValueRef::Int8(stop), ValueRef::Int8(step)];
        (series.entry.compute)(&context(), &arguments, &mut |mut row| {
            values.extend(row.pop());
            Ok(())
        })
        .map(|()| values)
    };
    assert_eq!(
        run(i64::MAX - 1, i64::MAX, 3).unwrap(),
        [Value::Int8(i64::MAX - 1)]
    );
    assert_eq!(run(3, 1, -1).unwrap().len(), 3);
    assert_eq!(run(1, 0, 1).unwrap(), []);
    assert_eq!(run(1, 2, 0).unwrap_err().state.0, "22023");
}
