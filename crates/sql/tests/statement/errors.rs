//! User errors: codes, messages, positions.

use super::fixture::Db;

#[test]
fn codes_words_and_positions() {
    let db = Db::with(&[
        "CREATE TABLE t (id int PRIMARY KEY, a int, c text)",
        "CREATE SEQUENCE s",
    ]);
    for (sql, state, message, position) in [
        (
            "SELECT nope FROM t WHERE id = 1",
            "42703",
            "column \"nope\" does not exist",
            Some(8),
        ),
        (
            "SELECT id FROM t\nWHERE nope = 1",
            "42703",
            "column \"nope\" does not exist",
            Some(24),
        ),
        (
            "SELECT x.id FROM t WHERE id = 1",
            "42P01",
            "missing FROM-clause entry for table \"x\"",
            Some(8),
        ),
        (
            "UPDATE t SET nope = 1 WHERE id = 1",
            "42703",
            "column \"nope\" of relation \"t\" does not exist",
            None,
        ),
        (
            "INSERT INTO t (id, nope) VALUES (1, 2)",
            "42703",
            "column \"nope\" of relation \"t\" does not exist",
            None,
        ),
        (
            "INSERT INTO t (id, id) VALUES (1, 2)",
            "42701",
            "column \"id\" specified more than once",
            None,
        ),
        (
            "INSERT INTO t VALUES (1, 2, 'x', 4)",
            "42601",
            "INSERT has more expressions than target columns",
            None,
        ),
        (
            "INSERT INTO t (id, a) VALUES (1)",
            "42601",
            "INSERT has more target columns than expressions",
            None,
        ),
        (
            "INSERT INTO t VALUES (1, 2), (3)",
            "42601",
            "VALUES lists must all be the same length",
            None,
        ),
        (
            "UPDATE t SET a = 1, a = 2 WHERE id = 1",
            "42601",
            "multiple assignments to same column \"a\"",
            None,
        ),
        (
            "SELECT * FROM t WHERE id = 'x'",
            "22P02",
            "invalid input syntax for type integer: \"x\"",
            None,
        ),
        (
            "SELECT * FROM t WHERE c = 5",
            "42883",
            "operator does not exist: text = integer",
            None,
        ),
        (
            "SELECT * FROM t WHERE id",
            "42804",
            "argument of WHERE must be type boolean, not type integer",
            None,
        ),
        (
            "UPDATE t SET a = 'x'::text WHERE id = 1",
            "42804",
            "column \"a\" is of type integer but expression is of type text",
            None,
        ),
        ("SELECT nope", "42703", "column \"nope\" does not exist", Some(8)),
        (
            "SELECT true::date",
            "42846",
            "cannot cast type boolean to date",
            None,
        ),
        (
            "SELECT nextval('nope')",
            "42P01",
            "relation \"nope\" does not exist",
            None,
        ),
        ("SELECT nextval('t')", "42809", "\"t\" is not a sequence", None),
        (
            "COPY nope FROM STDIN",
            "42P01",
            "relation \"nope\" does not exist",
            None,
        ),
        (
            "COPY t (nope) FROM STDIN",
            "42703",
            "column \"nope\" of relation \"t\" does not exist",
            None,
        ),
        ("VACUUM nope", "42P01", "relation \"nope\" does not exist", None),
        (
            "INSERT INTO s VALUES (1)",
            "42809",
            "cannot change sequence \"s\"",
            None,
        ),
        ("SELECT 1 +", "42601", "syntax error at end of input", Some(11)),
        (
            "CREATE VIEW v AS SELECT 1 AS a, nope FROM t",
            "42703",
            "column \"nope\" does not exist",
            Some(33),
        ),
        (
            "CREATE RULE r AS ON INSERT TO t DO NOTHING",
            "0A000",
            "CREATE RULE is not supported",
            None,
        ),
        (
            "COMMIT PREPARED x",
            "42601",
            "syntax error at or near \"x\"",
            Some(17),
        ),
        (
            "EXPLAIN (FORMAT json) SELECT 1",
            "0A000",
            "EXPLAIN format \"json\" is not supported",
            None,
        ),
    ] {
        match db.plan(sql) {
            Ok(plan) => panic!("{sql}: {plan:?}"),
            Err(error) => {
                let found = (error.state.0, error.message.as_str(), error.fields().position);
                let position = position.or(found.2);
                assert_eq!(found, (state, message, position), "{sql}");
            }
        }
    }
}
