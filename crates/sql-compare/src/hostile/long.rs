//! Statements and sessions with much of everything: names, literals, columns, parameters, statements in one
//! message, prepared statements, portals, savepoints, cursors.

use weft_base::Prng;

use super::input::{Input, Kind, Step, magnitude, one_of};
use super::messages::{bind, execute, extended, message, named, parse, query, sync};

/// A long input.
pub fn input(random: &mut Prng, index: usize) -> Input {
    let (name, count, bytes) = match random.below(10) {
        0..4 => statement(random, index),
        4 => long_text(random),
        5 => parameters(random),
        6 => many_statements(random),
        7 => held_by_name(random),
        8 => in_a_transaction(random),
        _ => values_to_compute(random),
    };
    let steps = vec![Step::Send(bytes), Step::Await(1), Step::MustGoOn];
    Input::of_session(Kind::Long, format!("{count} {name}"), steps)
}

type Made = (String, usize, Vec<u8>);

fn list(count: usize, between: &str, one: impl Fn(usize) -> String) -> String {
    let all: Vec<String> = (1..=count).map(one).collect();
    all.join(between)
}

/// What there is much of, how much, and the statement.
type Text = (&'static str, usize, String);

/// One statement with much of something.
fn statement(random: &mut Prng, index: usize) -> Made {
    let n = magnitude(random, 10, 30_000);
    // What is planned or stored by the piece takes longer than what is only read.
    let few = magnitude(random, 10, 3_000);
    let (name, count, sql) = match random.chance(12, 22) {
        true => lists(random, n, few, index),
        false => parts(random, n, few, index),
    };
    let bytes = match random.chance(1, 4) {
        true => extended(sql, &[], &[]),
        false => query(sql),
    };
    (name.to_owned(), count, bytes)
}

/// Values, rows, columns and terms.
fn lists(random: &mut Prng, n: usize, few: usize, index: usize) -> Text {
    let plain = |n: usize| n.to_string();
    match random.below(12) {
        0 => (
            "values of IN",
            n,
            format!("SELECT 5 IN ({})", list(n, ",", plain)),
        ),
        1 => (
            "keys of IN",
            n,
            format!("SELECT * FROM prey WHERE id IN ({})", list(n, ",", plain)),
        ),
        2 => (
            "columns of a SELECT",
            few,
            format!("SELECT {}", list(few, ",", plain)),
        ),
        3 => (
            "rows of VALUES",
            n,
            format!("VALUES {}", list(n, ",", |n| format!("({n}, 'x')"))),
        ),
        4 => ("rows of an INSERT", few, {
            let rows = list(few, ",", |n| format!("({n}, 1, 'x')"));
            format!("BEGIN; INSERT INTO caught VALUES {rows}; ROLLBACK")
        }),
        5 => ("columns of a table", few, {
            let columns = list(few, ",", |n| format!("c{n} int"));
            format!("CREATE TABLE long_{index} ({columns}); DROP TABLE long_{index}")
        }),
        6 => (
            "columns of an index",
            few,
            format!("CREATE INDEX ON caught ({})", list(few, ",", |_| "a".into())),
        ),
        7 => (
            "branches of CASE",
            n,
            format!(
                "SELECT CASE 7 {} END",
                list(n, " ", |n| format!("WHEN {n} THEN {n}"))
            ),
        ),
        8 => (
            "terms of ORDER BY",
            few,
            format!(
                "SELECT * FROM prey ORDER BY {}",
                list(few, ",", |n| format!("a + {n}"))
            ),
        ),
        9 => (
            "terms of GROUP BY",
            few,
            format!(
                "SELECT 1 FROM prey GROUP BY {}",
                list(few, ",", |n| format!("a + {n}"))
            ),
        ),
        10 => (
            "aggregates",
            few,
            format!("SELECT {} FROM prey", list(few, ",", |n| format!("sum(a + {n})"))),
        ),
        _ => ("window functions", few.min(300), {
            format!(
                "SELECT {} FROM prey",
                list(few.min(300), ",", |n| format!("sum(a) OVER (ORDER BY a + {n})"))
            )
        }),
    }
}

/// Tables, queries, arguments, elements and statements.
fn parts(random: &mut Prng, n: usize, few: usize, index: usize) -> Text {
    let plain = |n: usize| n.to_string();
    match random.below(10) {
        0 => ("tables of a join", few.min(400), {
            let tables = list(few.min(400), ",", |n| format!("prey p{n}"));
            format!("SELECT count(*) FROM {tables} WHERE p1.id = 0")
        }),
        1 => ("queries of WITH", few, {
            let all = list(few, ",", |n| match n {
                1 => "w1 AS (SELECT 1 AS x)".to_owned(),
                n => format!("w{n} AS (SELECT x FROM w{})", n - 1),
            });
            format!("WITH {all} SELECT * FROM w{few}")
        }),
        2 => (
            "subqueries",
            few,
            format!(
                "SELECT {}",
                list(few, "+", |n| format!("(SELECT a FROM prey WHERE id = {n})"))
            ),
        ),
        3 => (
            "arguments",
            n,
            format!("SELECT concat({})", list(n, ",", |n| format!("'{n}'"))),
        ),
        4 => (
            "elements of an array",
            n,
            format!("SELECT ARRAY[{}]", list(n, ",", plain)),
        ),
        5 => (
            "elements of a literal",
            n,
            format!("SELECT '{{{}}}'::int[]", list(n, ",", plain)),
        ),
        6 => (
            "columns of UPDATE",
            few,
            format!(
                "UPDATE prey SET {} WHERE id = 1",
                list(few, ",", |_| "a = 1".into())
            ),
        ),
        7 => (
            "names with points",
            few,
            format!("SELECT {}", list(few, ".", |n| format!("n{n}"))),
        ),
        8 => ("parameters of a procedure", few, {
            let all = list(few, ",", |n| format!("p{n} int"));
            format!(
                "CREATE PROCEDURE long_{index}({all}) LANGUAGE sql AS 'SELECT 1'; DROP PROCEDURE long_{index}"
            )
        }),
        _ => ("statements of a procedure", few, {
            let all = "UPDATE prey SET a = a + 1 WHERE id = 1;".repeat(few);
            format!(
                "CREATE PROCEDURE long_{index}() LANGUAGE sql AS $${all}$$; CALL long_{index}(); \
                     DROP PROCEDURE long_{index}"
            )
        }),
    }
}

/// A text of many bytes somewhere.
fn long_text(random: &mut Prng) -> Made {
    let n = magnitude(random, 60, 3_000_000);
    let text = one_of(
        random,
        &["x", "é", "1", "%", "\\", "''", " ", "\n", "a.", "(", "{", "9"],
    )
    .repeat(n);
    let (name, sql) = match random.below(16) {
        0 => ("bytes of a literal", format!("SELECT length('{text}')")),
        1 => ("bytes of a name", format!("SELECT 1 AS \"{text}\"")),
        2 => ("bytes of a table's name", format!("SELECT * FROM \"{text}\"")),
        3 => (
            "bytes of a pattern",
            format!("SELECT 'aaaaaaaaaaaaaaaaaaaa' LIKE '{text}'"),
        ),
        4 => (
            "bytes of an expression",
            format!("SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaa' ~ '{text}'"),
        ),
        5 => ("bytes of a number", format!("SELECT '{text}'::numeric")),
        6 => ("digits", format!("SELECT {}", "7".repeat(n))),
        7 => ("digits behind the point", format!("SELECT 0.{}", "7".repeat(n))),
        8 => ("bytes of a timestamp", format!("SELECT '{text}'::timestamp")),
        9 => ("bytes of an interval", format!("SELECT '{text}'::interval")),
        10 => ("bytes of an array", format!("SELECT '{text}'::int[]")),
        11 => ("bytes of a comment", format!("SELECT 1 --{text}")),
        12 => (
            "bytes of a cursor's name",
            format!("DECLARE \"{text}\" CURSOR FOR SELECT 1"),
        ),
        13 => ("bytes of a setting", format!("SET application_name = '{text}'")),
        14 => (
            "bytes of a value",
            format!("BEGIN; INSERT INTO caught VALUES (1, 1, '{text}'); ROLLBACK"),
        ),
        _ => ("bytes of nothing but one word", text),
    };
    let bytes = match random.chance(1, 3) {
        true => extended(sql, &[], &[]),
        false => query(sql),
    };
    (name.to_owned(), n, bytes)
}

/// Parameters by the ten thousand, and numbers of parameters that nobody can have.
fn parameters(random: &mut Prng) -> Made {
    if random.chance(1, 3) {
        let number = one_of(
            random,
            &[
                "65535",
                "65536",
                "100000",
                "2147483647",
                "2147483648",
                "99999999999999999999",
                "0",
            ],
        );
        let bytes = extended(format!("SELECT ${number}::int"), &[], &[]);
        return (format!("is the number of the parameter {number}"), 1, bytes);
    }
    let count = one_of(random, &[100, 1_000, 10_000, 65_535, 65_536, 70_000]);
    let form = random.below(3);
    let sql = match form {
        0 => format!("SELECT 5 IN ({})", list(count, ",", |n| format!("${n}"))),
        1 => format!("SELECT {}", list(count, "+", |n| format!("${n}::int"))),
        _ => format!("VALUES {}", list(count, ",", |n| format!("(${n})"))),
    };
    let bytes = extended(sql, &vec![23; count], &vec![Some(b"5".to_vec()); count]);
    (format!("parameters, form {form}"), count, bytes)
}

/// Many statements in one message, or many messages before one Sync.
fn many_statements(random: &mut Prng) -> Made {
    let statements = [
        "SELECT 1;",
        ";",
        "BEGIN;COMMIT;",
        "SELECT a FROM prey WHERE id = 3;",
        "UPDATE prey SET a = a + 1 WHERE id = 3;",
        "SET application_name = 'x';",
        "SAVEPOINT s;",
        "nonsense;",
        "SHOW application_name;",
    ];
    let one = one_of(random, &statements);
    let count = magnitude(random, 10, 10_000);
    if random.chance(1, 2) {
        return (
            format!("times {one} in a message"),
            count,
            query(one.repeat(count)),
        );
    }
    let message = [
        parse("", one.trim_end_matches(';'), &[]),
        bind("", "", &[], &[], &[]),
        execute("", 0),
    ]
    .concat();
    let mut bytes = message.repeat(count);
    bytes.extend(sync());
    (format!("times {one} before a Sync"), count, bytes)
}

/// Names by the thousand: prepared statements and portals.
fn held_by_name(random: &mut Prng) -> Made {
    let count = magnitude(random, 10, 12_000);
    let mut bytes = Vec::new();
    let kind = one_of(
        random,
        &[
            "prepared statements",
            "portals",
            "statements of PREPARE",
            "portals with rows to come",
        ],
    );
    if kind.starts_with("portals") {
        bytes.extend(parse("s", "SELECT * FROM prey", &[]));
    }
    for n in 0..count {
        let name = format!("name {n}");
        match kind {
            "prepared statements" => bytes.extend(parse(&name, "SELECT * FROM prey WHERE id = $1", &[])),
            "statements of PREPARE" => {
                bytes.extend(extended(format!("PREPARE p{n} AS SELECT $1::int"), &[], &[]))
            }
            "portals" => bytes.extend(bind(&name, "s", &[], &[], &[])),
            _ => {
                bytes.extend(bind(&name, "s", &[], &[], &[]));
                bytes.extend(execute(&name, 1));
            }
        }
    }
    if random.chance(1, 2) {
        bytes.extend(named(b'D', b'S', "name 0"));
    }
    bytes.extend(sync());
    (kind.to_owned(), count, bytes)
}

/// Savepoints and cursors by the thousand.
fn in_a_transaction(random: &mut Prng) -> Made {
    let count = magnitude(random, 10, 3_000);
    let kind = one_of(
        random,
        &[
            "savepoints",
            "savepoints of one name",
            "cursors",
            "rows locked one by one",
            "nested BEGIN",
        ],
    );
    let mut sql = "BEGIN;".to_owned();
    for n in 0..count {
        match kind {
            "savepoints" => sql.push_str(&format!("SAVEPOINT s{n};")),
            "savepoints of one name" => sql.push_str("SAVEPOINT s;"),
            "cursors" => sql.push_str(&format!("DECLARE c{n} CURSOR FOR SELECT * FROM prey;")),
            "rows locked one by one" => {
                sql.push_str(&format!("SELECT 1 FROM prey WHERE id = {n} FOR SHARE;"))
            }
            _ => sql.push_str("BEGIN;"),
        }
    }
    sql.push_str(one_of(
        random,
        &["COMMIT", "ROLLBACK", "ROLLBACK TO s0; COMMIT", ""],
    ));
    let mut bytes = query(sql);
    bytes.splice(0..0, message(b'H', b""));
    (kind.to_owned(), count, bytes)
}

/// Short texts whose values are long to compute or to write.
fn values_to_compute(random: &mut Prng) -> Made {
    let all = [
        "SELECT 1e131071",
        "SELECT 1e131072",
        "SELECT 1e-16383::numeric",
        "SELECT 1e999999999",
        "SELECT 9::numeric ^ 99999",
        "SELECT exp(5999::numeric)",
        "SELECT 2 ^ 1e10::numeric",
        "SELECT factorial(30000)",
        "SELECT sqrt(1e100000::numeric)",
        "SELECT ln(1e131071::numeric)",
        "SELECT 1e100000::numeric * 1e30000::numeric",
        "SELECT 1::numeric / 3e130000",
        "SELECT round(1::numeric, 2000000000)",
        "SELECT trunc(1e131071, -2147483648)",
        "SELECT power(2::numeric, 3e6)",
        "SELECT 'a' || repeat('a', 100000) ~ '(a*)*b'",
        "SELECT repeat('a', 40) ~ '(a|aa)+$'",
        "SELECT 'x' ~ '((((((((x{1,9}){1,9}){1,9}){1,9}){1,9}))))'",
        "SELECT repeat('a', 30000) LIKE '%a%a%a%a%a%a%a%a%a%a%a%b'",
        "SELECT regexp_replace(repeat('ab', 100000), '(a)(b)', '\\2\\1', 'g')",
        "SELECT lpad('x', 2147483647)",
        "SELECT repeat('x', 2147483647)",
        "SELECT repeat('', 2147483647)",
        "SELECT left('x', -2147483648)",
        "SELECT substr('x', -2147483648, 2147483647)",
        "SELECT generate_series(1, 9223372036854775807) LIMIT 3",
        "SELECT count(*) FROM generate_series(1, 10000000000)",
        "SELECT sum(x) FROM generate_series(1, 100000, 0) x",
        "SELECT to_char(1e300, repeat('9', 100000))",
        "SELECT to_timestamp(repeat('9', 10000), repeat('YYYY', 10000))",
        "SELECT interval '2147483647 months' * 2147483647",
        "SELECT date '5874897-12-31' + 2147483647",
        "SELECT timestamp '294276-12-31 23:59:59' + interval '178000000 years'",
        "SELECT -9223372036854775808 % -1",
        "SELECT (-9223372036854775808)::bigint / -1",
        "SELECT (-2147483648)::int / -1",
        "SELECT abs((-2147483648)::int)",
        "SELECT int4 '-2147483648' * -1",
        "SELECT gcd((-9223372036854775808)::bigint, 0)",
        "SELECT lcm(9223372036854775807, 2)",
        "SELECT 1 << 64, 1::bigint << -1",
        "SELECT chr(1114112)",
        "SELECT chr(0)",
        "SELECT decode(repeat('z', 100001), 'base64')",
        "SELECT array_fill(1, ARRAY[100000, 100000])",
        "SELECT string_to_array(repeat('a,', 300000), ',')",
        "SELECT split_part('a', 'a', -2147483648)",
        "SELECT overlay('x' placing 'y' from 2147483647 for 2147483647)",
        "SELECT format('%2147483647s', 'x')",
        "SELECT format('%99999999999s', 'x')",
        "SELECT translate(repeat('a', 1000000), 'a', 'bb')",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "WITH RECURSIVE r(t) AS (SELECT 'x' UNION ALL SELECT t || t FROM r) SELECT max(length(t)) FROM r",
        "SELECT count(*) FROM prey a, prey b, prey c",
        "SELECT * FROM prey OFFSET 9223372036854775807",
        "SELECT * FROM prey LIMIT 9223372036854775807 OFFSET 1",
        "SELECT ntile(2147483647) OVER () FROM prey",
        "SELECT lag(a, -2147483648) OVER () FROM prey",
        "SELECT sum(a) OVER (ORDER BY a ROWS BETWEEN 9223372036854775807 PRECEDING AND 9223372036854775807 FOLLOWING) FROM prey",
        "SELECT nth_value(a, 0) OVER () FROM prey",
        "SELECT width_bucket(1, 1, 1, 0)",
        "SELECT setseed(9)",
        "SELECT pg_sleep(-1)",
    ];
    let sql = one_of(random, &all);
    let bytes = match random.chance(1, 3) {
        true => extended(sql, &[], &[]),
        false => query(sql),
    };
    (format!("time {sql}"), 1, bytes)
}
