//! Compiled expressions against the model: a program over a row's columns computes the same as the session
//! over the same values written as constants.

use proptest::prelude::*;

use super::fixture::Db;

/// Columns, and their values in the only row as SQL.
const COLUMNS: [(&str, &str); 8] = [
    ("a", "7::int"),
    ("b", "3000000000::bigint"),
    ("s", "(-3)::smallint"),
    ("d", "2.5::float8"),
    ("r", "0.1::real"),
    ("f", "true"),
    ("n", "NULL::int"),
    ("x", "'word'::text"),
];

/// Numbers: columns, literals, arithmetic.
fn number() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        6 => proptest::sample::select(vec!["a", "b", "s", "d", "r", "n"]).prop_map(str::to_owned),
        3 => (-5i32..6).prop_map(|n| format!("({n})")),
        1 => Just("2147483647".to_owned()),
        1 => Just("1.5::float8".to_owned()),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            5 => (inner.clone(), "[-+*/%]", inner.clone()).prop_map(|(l, op, r)| format!("({l} {op} {r})")),
            1 => inner.clone().prop_map(|e| format!("(- {e})")),
            1 => (inner.clone(), proptest::sample::select(vec!["int", "bigint", "smallint", "float8", "real"]))
                .prop_map(|(e, ty)| format!("{e}::{ty}")),
        ]
    })
}

/// Conditions over them.
fn condition() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => (number(), proptest::sample::select(vec!["=", "<>", "<", "<=", ">", ">="]), number())
            .prop_map(|(l, op, r)| format!("({l} {op} {r})")),
        1 => (number(), number(), number()).prop_map(|(x, l, h)| format!("({x} BETWEEN {l} AND {h})")),
        1 => number().prop_map(|e| format!("({e} IS NULL)")),
        1 => Just("f".to_owned()),
        1 => Just("(x >= 'wor')".to_owned()),
        1 => Just("(x IS NOT NULL)".to_owned()),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(l, r)| format!("({l} AND {r})")),
            (inner.clone(), inner.clone()).prop_map(|(l, r)| format!("({l} OR {r})")),
            inner.clone().prop_map(|e| format!("(NOT {e})")),
            inner.prop_map(|e| format!("({e} IS NOT TRUE)")),
        ]
    })
}

/// The expression with columns replaced by values.
fn with_values(expression: &str) -> String {
    let mut text = String::new();
    let mut word = String::new();
    let mut quoted = false;
    for character in expression.chars().chain(std::iter::once(' ')) {
        if character.is_ascii_alphanumeric() && !quoted {
            word.push(character);
            continue;
        }
        match COLUMNS.iter().find(|(name, _)| *name == word) {
            Some((_, value)) => text.push_str(value),
            None => text.push_str(&word),
        }
        word.clear();
        quoted ^= character == '\'';
        text.push(character);
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]
    #[test]
    fn programs_compute_what_the_model_computes(
        list in proptest::collection::vec(prop_oneof![number(), condition()], 1..12),
    ) {
        let mut db = Db::with(&[
            "CREATE TABLE m (id int PRIMARY KEY, a int, b bigint, s smallint, d float8, r real, f bool, n int, x text)",
            "INSERT INTO m VALUES (1, 7, 3000000000, -3, 2.5, 0.1, true, NULL, 'word')",
        ]);
        for expression in &list {
            let compiled = format!("SELECT {expression} FROM m WHERE id = 1");
            let constant = format!("SELECT {}", with_values(expression));
            let runs = |plan| matches!(
                plan,
                Ok(weft_sql::statement::Plan::Program(_) | weft_sql::statement::Plan::Constant(_))
            );
            if !runs(db.plan(&compiled)) || !runs(db.plan(&constant)) {
                continue;
            }
            // Constant subexpressions are evaluated first, so either of two errors may be raised.
            let expected = db.run(&constant).map_err(|_| ());
            let found = db.run(&compiled).map_err(|_| ());
            prop_assert_eq!(expected, found, "{} / {}", compiled, constant);
        }
    }
}
