//! Programs and the general form are two ways to the same rows.
//!
//! Each random statement is written so that it is compiled, written so that only the query engine can run it
//! (`id + 0 = k`, `INSERT ... SELECT`), and run inside transactions. All tables must be equal after each, and
//! so must the outcomes.

use crate::client::{Client, database};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Statement {
    Insert {
        id: i32,
        v: Option<i32>,
        w: &'static str,
    },
    Update {
        set: &'static str,
        id: i32,
    },
    Delete {
        id: i32,
    },
    Select {
        id: i32,
    },
}

const SETS: &[&str] = &[
    "v = v + 1",
    "v = null",
    "v = -v, w = 'z'",
    "w = null",
    "v = v * 1000000",
    "id = id + 1",
    "id = 3",
    "v = v / (v - 2)",
    "u = v",
    "u = id",
    "v = coalesce(v, 0) + 7",
    "v = case when v > 3 then 1 else v end",
];

fn statement() -> impl Strategy<Value = Statement> {
    let id = 0..5_i32;
    prop_oneof![
        4 => (id.clone(), prop::option::of(-3..6_i32), prop::sample::select(vec!["a", "bb", "ccccc", ""]))
            .prop_map(|(id, v, w)| Statement::Insert { id, v, w }),
        5 => (prop::sample::select(SETS.to_vec()), id.clone())
            .prop_map(|(set, id)| Statement::Update { set, id }),
        2 => id.clone().prop_map(|id| Statement::Delete { id }),
        2 => id.prop_map(|id| Statement::Select { id }),
    ]
}

impl Statement {
    fn sql(&self, table: &str, point: bool) -> String {
        let where_is = |id: &i32| {
            if point {
                format!("id = {id}")
            } else {
                format!("id + 0 = {id}")
            }
        };
        match self {
            Statement::Insert { id, v, w } => {
                let v = v.map_or("null".into(), |v| v.to_string());
                let head = format!("insert into {table} (id, v, u, w)");
                if point {
                    format!("{head} values ({id}, {v}, {id}, '{w}')")
                } else {
                    format!("{head} select {id}, {v}, {id}, '{w}'")
                }
            }
            Statement::Update { set, id } => format!("update {table} set {set} where {}", where_is(id)),
            Statement::Delete { id } => format!("delete from {table} where {}", where_is(id)),
            Statement::Select { id } => format!("select * from {table} where {}", where_is(id)),
        }
    }
}

fn outcome(c: &mut Client, sql: &str) -> String {
    let (results, result) = c.message(sql);
    match result {
        Ok(()) => format!("{} {}", results.tags.join(";"), results.rows.join(";")),
        Err(error) => error.state.0.to_string(),
    }
}

/// Expressions over the columns `i int, b bigint, f float8, n numeric(8,2), t text, d date`.
const EXPRESSIONS: &[&str] = &[
    "n + i",
    "n * n",
    "n / (i + 1)",
    "n % 3",
    "-n",
    "n - 0.125",
    "i + 0.5",
    "b / 2.5",
    "abs(i)",
    "abs(n)",
    "abs(b)",
    "abs(f)",
    "round(n)",
    "round(n, 1)",
    "round(f)",
    "trunc(n)",
    "trunc(n, 1)",
    "ceil(n)",
    "floor(n)",
    "ceil(f)",
    "floor(f)",
    "sign(n)",
    "sqrt(f)",
    "mod(i, 3)",
    "mod(n, 2)",
    "length(t)",
    "char_length(t)",
    "octet_length(t)",
    "lower(t)",
    "upper(t)",
    "initcap(t)",
    "left(t, 2)",
    "right(t, 2)",
    "substr(t, 2)",
    "substring(t from 2 for 1)",
    "trim(t)",
    "ltrim(t)",
    "rtrim(t)",
    "btrim(t, 'a ')",
    "replace(t, 'a', 'zz')",
    "strpos(t, 'b')",
    "position('b' in t)",
    "lpad(t, 5, '*')",
    "rpad(t, 5)",
    "repeat(t, 2)",
    "reverse(t)",
    "split_part(t, 'b', 1)",
    "starts_with(t, 'a')",
    "ascii(t)",
    "translate(t, 'ab', 'x')",
    "t like 'a%'",
    "t not like '%b_'",
    "t || '-' || t",
    "concat(t, i, t)",
    "coalesce(t, 'none')",
    "coalesce(n, 0)",
    "coalesce(i, 7)",
    "nullif(i, 2)",
    "nullif(t, '')",
    "greatest(i, 2)",
    "least(n, 1.5)",
    "greatest(t, 'b')",
    "case when n > 1 then 'big' else t end",
    "case i when 1 then n when 2 then 0 end",
    "case when i > 1 then i end",
    "i is distinct from 2",
    "n is not null",
    "n > 1.5 and t < 'b'",
    "cast(n as int)",
    "cast(i as text)",
    "cast(n as text)",
    "cast(t as varchar(2))",
    "i::numeric(6,1)",
    "d + 3",
    "d - i",
    "d - date '2020-01-01'",
    "d::text",
    "y::text",
    "cast(y as varchar(3))",
    "cast(y as varchar)",
    "y::int",
    "(i > 1)::text",
    "'is ' || y::text",
    "coalesce(y::text, t)",
    "a::text",
    "a::date",
    "a::timestamp",
    "s::timestamptz",
    "s::text",
    "'at ' || a::text",
    "n = i",
    "n between 1 and 2",
    "i in (1, 2)",
    "t in ('a', 'ab')",
];

/// A number without the zeros at the end of its fraction: the query engine has a scale for each column, where
/// PostgreSQL has one for each value.
fn without_zeros(text: &str) -> &str {
    match text.parse::<f64>() {
        Ok(_) if text.contains('.') => text.trim_end_matches('0').trim_end_matches('.'),
        _ => text,
    }
}

/// What PostgreSQL 15 shows.
#[test]
fn scales_are_postgresqls() {
    let db = database();
    let mut client = Client::with(
        &db,
        "create table e (id int primary key, n numeric(8,2)); insert into e values (1, 1.50)",
    );
    for (expression, expected) in [
        ("trunc(n)", "1"),
        ("trunc(n, 1)", "1.5"),
        ("round(n)", "2"),
        ("round(n, 3)", "1.500"),
        ("ceil(n)", "2"),
        ("floor(-n)", "-2"),
        ("sign(-n)", "-1"),
        ("coalesce(nullif(n, 1.5), 0)", "0"),
        ("least(n, 1.25)", "1.25"),
        ("n * n", "2.2500"),
        ("n / 3", "0.50000000000000000000"),
        ("n % 1", "0.50"),
        ("n + 1", "2.50"),
        ("case when n > 2 then n else 0 end", "0"),
    ] {
        let sql = format!("select {expression} from e where id = 1");
        assert_eq!(client.rows(&sql), expected, "{expression}");
    }
}

/// A row read by its key and read by the query engine: the same values.
#[test]
fn expressions_have_the_same_value_in_both() {
    let db = database();
    let mut client = Client::with(
        &db,
        "create table e (id int primary key, i int, b bigint, f float8, n numeric(8,2), t text, d date, y bool,
             a timestamptz, s timestamp);
         insert into e values
             (1, 1, 10, 2.5, 1.50, 'ab', '2020-02-28', true, '2024-07-01 12:00:00+00', '2024-01-02 03:04:05'),
             (2, 2, -7, 3.5, -0.25, ' Añ b ', '1999-12-31', false, '2024-01-01 23:30:00+00', '2024-07-02 00:00:00'),
             (3, -3, 9, 0, 100.05, '', '2024-02-29', true, '1999-12-31 23:59:59.5+00', '2000-01-01 00:00:00'),
             (4, null, null, null, null, null, null, null, null, null)",
    );
    let mut unlike = Vec::new();
    for expression in EXPRESSIONS {
        for id in 1..=4 {
            let program = format!("select {expression} from e where id = {id}");
            let general = format!("select {expression} from e where id + 0 = {id}");
            let mut ask = |sql: &str| {
                let (results, result) = client.message(sql);
                match result {
                    Ok(()) => results
                        .rows
                        .iter()
                        .map(|row| without_zeros(row))
                        .collect::<Vec<_>>()
                        .join(";"),
                    Err(error) => error.state.0.to_owned(),
                }
            };
            let (program, general) = (ask(&program), ask(&general));
            if program != general {
                unlike.push(format!("{expression} of {id}: {program}, {general}"));
            }
        }
    }
    assert!(unlike.is_empty(), "{}", unlike.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn all_execution_paths_return_the_same_rows(statements in prop::collection::vec(statement(), 1..30)) {
        let db = database();
        let tables = ["program", "general", "program_in", "general_in"];
        let mut clients: Vec<Client> = tables.iter().map(|table| {
            Client::with(&db, &format!("create table {table} (id int primary key, v int, u int unique, w varchar(4))"))
        }).collect();
        for (number, statement) in statements.iter().enumerate() {
            let mut outcomes = Vec::new();
            for (n, (table, c)) in tables.iter().zip(&mut clients).enumerate() {
                let sql = statement.sql(table, n % 2 == 0);
                if n < 2 {
                    outcomes.push(outcome(c, &sql));
                } else {
                    // One transaction for several statements; a failed one goes back to before it.
                    c.ok(if number % 4 == 0 { "commit; begin; savepoint s" } else { "savepoint s" });
                    let answer = outcome(c, &sql);
                    if answer.len() == 5 {
                        c.ok("rollback to s");
                    }
                    outcomes.push(answer);
                }
            }
            prop_assert!(outcomes.iter().all(|one| *one == outcomes[0]), "{:?}: {:?}", statement, outcomes);
            let rows: Vec<String> = tables.iter().zip(&mut clients)
                .map(|(table, c)| c.rows(&format!("select * from {table} order by id"))).collect();
            prop_assert!(rows.iter().all(|one| *one == rows[0]), "{:?}: {:?}", statement, rows);
        }
    }
}
