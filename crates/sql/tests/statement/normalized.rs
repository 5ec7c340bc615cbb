//! A normalised text with its literals yields the same results as the original text.

use proptest::prelude::*;

use super::fixture::Db;

const SETUP: &[&str] = &[
    "CREATE TABLE t (id int PRIMARY KEY, a int, b bigint, c varchar(4), d double precision, n numeric(6,2))",
    "CREATE INDEX ON t (a)",
    "INSERT INTO t VALUES (1, 1, 1, 'a', 1, 1), (2, 2, 2, 'b', 2, 2), (3, 3, 3, 'c', 3, 3), (-1, 0, 0, '', 0, 0)",
];

/// A number in one of the forms that a client may write.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (-3i64..5).prop_map(|n| n.to_string()),
        1 => Just("- 2".to_owned()),
        1 => Just("2147483648".to_owned()),
        1 => Just("-2147483648".to_owned()),
        1 => Just("1.5".to_owned()),
        1 => Just("2e0".to_owned()),
        1 => Just("99999999999999999999".to_owned()),
        1 => Just("'2'".to_owned()),
        1 => Just("'x'".to_owned()),
        1 => Just("NULL".to_owned()),
        1 => Just("+1".to_owned()),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("'a'".to_owned()),
        Just("'it''s'".to_owned()),
        Just("'too long'".to_owned()),
        Just("5".to_owned())
    ]
}

fn statement() -> impl Strategy<Value = String> {
    prop_oneof![
        (number(), number())
            .prop_map(|(x, k)| format!("UPDATE t SET a = a + {x}, b = b-{x} WHERE id = {k} RETURNING *")),
        (number(), text(), number())
            .prop_map(|(x, c, k)| format!("UPDATE t SET d = {x}, c = {c} WHERE id={k};")),
        (number(), number(), text()).prop_map(|(k, x, c)| {
            format!("INSERT INTO t (id, a, n, c) VALUES ({k}, {x}, {x}, {c}) RETURNING id, a, n, c")
        }),
        number().prop_map(|k| format!("DELETE FROM t WHERE id = {k}")),
        (number(), text())
            .prop_map(|(k, c)| format!("SELECT *, a + 1, 'k' FROM t WHERE id = {k} AND c <> {c}")),
        (number(), number()).prop_map(|(x, y)| format!("SELECT id FROM t WHERE id BETWEEN {x} AND {y}")),
        (number(), number())
            .prop_map(|(x, y)| format!("SELECT id, {x}, a = {y} FROM t WHERE a = {x} ORDER BY 1 LIMIT 2")),
        (number(), number()).prop_map(|(x, y)| format!("SELECT {x}, {y} + 1, 'a' || 'b', {x}::int")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn normalised_plans_do_what_direct_plans_do(list in proptest::collection::vec(statement(), 1..8)) {
        let (mut direct, mut cached) = (Db::with(SETUP), Db::with(SETUP));
        for sql in &list {
            // Statements that are not programs need the query engine, which is tested elsewhere.
            let runs = |plan: &Result<weft_sql::statement::Plan, _>| {
                !matches!(
                    plan,
                    Ok(weft_sql::statement::Plan::Query(_) | weft_sql::statement::Plan::Modify(_))
                )
            };
            let statement = sql.trim_end_matches(';');
            if !runs(&direct.plan(statement)) {
                continue;
            }
            // Either of two errors in one statement may be raised, so that sessions run the
            // original text to find the error.
            let expected = direct.run(statement).map_err(|_| ());
            let found = cached.run_normalized(sql).unwrap_or_else(|| cached.run(statement)).map_err(|_| ());
            prop_assert_eq!(expected, found, "{}", sql);
        }
        prop_assert_eq!(direct.store.state_digest(), cached.store.state_digest());
    }
}
