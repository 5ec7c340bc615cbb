//! Statements that are long or deep: each must end in time, with PostgreSQL's answer or an error of those
//! that such a statement may have, and leave the server alive.
//!
//! They are made here and not recorded, since their texts are made of ten thousand times the same word.

use std::time::{Duration, Instant};

use crate::answer::Answer;
use crate::pair::WeftAt;
use crate::server::Server;
use crate::wire::{Connection, Protocol};

/// What one of them may take. The longest answer of PostgreSQL is a tenth of that.
const TIME_MAX: Duration = Duration::from_secs(5);
/// How long a statement that shall be ended may go on.
const CANCEL_MAX: Duration = Duration::from_millis(600);

/// A long or deep statement.
#[derive(Clone, Debug)]
struct Limit {
    name: &'static str,
    sql: String,
    /// The one value that it answers.
    value: Option<&'static str>,
    /// Whether 54001 (statement too complex) will do.
    may_be_refused: bool,
}

fn nested(open: &str, count: usize, inner: &str, close: &str) -> String {
    format!("SELECT {}{inner}{}", open.repeat(count), close.repeat(count))
}

fn chain(first: &str, next: &str, count: usize) -> String {
    format!("SELECT {first}{}", next.repeat(count - 1))
}

fn limit(name: &'static str, sql: String, value: Option<&'static str>, may_be_refused: bool) -> Limit {
    Limit {
        name,
        sql,
        value,
        may_be_refused,
    }
}

fn limits() -> Vec<Limit> {
    let mut all = long();
    all.extend(deep());
    all
}

/// Many terms, branches, elements.
fn long() -> Vec<Limit> {
    let unions = vec!["SELECT 1"; 2_000].join(" UNION ALL ");
    let list: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let ctes: Vec<String> = (1..=200)
        .map(|n| format!("c{n} AS (SELECT x + 1 AS x FROM c{})", n - 1))
        .collect();
    let cases: String = (0..2_000).map(|n| format!(" WHEN {n} THEN {n}")).collect();
    let joins: String = (2..=12)
        .map(|n| format!(" JOIN (VALUES (1)) t{n}(x) ON t{n}.x = t1.x"))
        .collect();
    vec![
        limit("10,000 additions", chain("1", "+1", 10_000), Some("10000"), true),
        limit("500 additions", chain("1", "+1", 500), Some("500"), false),
        limit(
            "3,000 terms of OR",
            chain("1=0", " OR 1=0", 3_000),
            Some("f"),
            true,
        ),
        limit(
            "3,000 terms of AND",
            chain("1=1", " AND 1=1", 3_000),
            Some("t"),
            true,
        ),
        limit(
            "600 casts",
            format!("SELECT 1{}", "::int".repeat(600)),
            Some("1"),
            true,
        ),
        limit(
            "4,000 concatenations",
            format!("SELECT length({})", "'a'||".repeat(3_999) + "'a'"),
            Some("4000"),
            true,
        ),
        limit(
            "2,000 branches of UNION ALL",
            format!("SELECT count(*) FROM ({unions}) u"),
            Some("2000"),
            true,
        ),
        limit(
            "20,000 values of IN",
            format!("SELECT 19999 IN ({})", list.join(",")),
            Some("t"),
            true,
        ),
        limit(
            "2,000 branches of CASE",
            format!("SELECT CASE 1999{cases} END"),
            Some("1999"),
            true,
        ),
        limit(
            "200 chained WITH",
            format!(
                "WITH c0 AS (SELECT 0 AS x), {} SELECT x FROM c200",
                ctes.join(", ")
            ),
            Some("200"),
            true,
        ),
        limit(
            "12 joins",
            format!("SELECT count(*) FROM (VALUES (1)) t1(x){joins}"),
            Some("1"),
            false,
        ),
    ]
}

/// Calls in calls.
fn deep() -> Vec<Limit> {
    vec![
        limit("abs 25 deep", nested("abs(", 25, "-1", ")"), Some("1"), false),
        limit("abs 500 deep", nested("abs(", 500, "-1", ")"), Some("1"), true),
        limit(
            "lower and trim 20 deep",
            nested("lower(trim(", 20, "' A '", "))"),
            Some("a"),
            false,
        ),
        limit(
            "coalesce 20 deep",
            nested("coalesce(", 20, "NULL, 7", ", 1)"),
            Some("7"),
            false,
        ),
        limit(
            "replace 20 deep",
            nested("replace(", 20, "'b'", ", 'a', 'b')"),
            Some("b"),
            false,
        ),
        limit(
            "CASE 100 deep",
            nested("CASE WHEN true THEN ", 100, "1", " END"),
            Some("1"),
            true,
        ),
        limit(
            "subqueries 100 deep",
            nested("(SELECT ", 100, "1", ")"),
            Some("1"),
            true,
        ),
        limit(
            "parentheses 2,000 deep",
            nested("(", 2_000, "1", ")"),
            Some("1"),
            true,
        ),
        limit(
            "NOT 3,000 deep",
            nested("NOT ", 3_000, "true", ""),
            Some("t"),
            true,
        ),
        limit("minus 3,000 deep", nested("- ", 3_000, "1", ""), Some("1"), true),
        limit(
            "ARRAY 6 deep",
            nested(
                "cardinality(ARRAY[",
                1,
                "ARRAY[ARRAY[ARRAY[ARRAY[ARRAY[1]]]]]",
                "])",
            ),
            Some("1"),
            true,
        ),
    ]
}

fn else_in_else(depth: usize) -> String {
    let (opened, closed) = (
        "IF false THEN NULL; ELSE ".repeat(depth),
        " END IF; ".repeat(depth),
    );
    format!("CREATE PROCEDURE deep() LANGUAGE plpgsql AS $$BEGIN {opened}NULL;{closed}END$$")
}

/// Statements whose only answer is an error: the states that will do.
fn refusals() -> Vec<(&'static str, String, &'static [&'static str])> {
    vec![
        (
            "array[ 200 deep",
            nested("array[", 200, "1", "]"),
            &["54000", "54001", "0A000"],
        ),
        (
            "array[ 200 deep without end",
            format!("SELECT {}", "array[".repeat(200)),
            &["42601", "54001"],
        ),
        ("50,000 parentheses", nested("(", 50_000, "1", ")"), &["54001"]),
        (
            "50,000 parentheses without end",
            format!("SELECT {}", "(".repeat(50_000)),
            &["42601", "54001"],
        ),
        ("rows in rows 200 deep", nested("ROW(", 200, "1", ")"), &["54001"]),
        (
            "rows in rows 9,000 deep",
            nested("ROW(", 9_000, "1", ")"),
            &["54001"],
        ),
        (
            "EXPLAIN 5,000 times",
            format!("{}SELECT 1", "EXPLAIN ".repeat(5_000)),
            &["42601"],
        ),
        ("ELSE in ELSE of a procedure", else_in_else(25_000), &["54001"]),
        ("1,600 windows", windows(1_600), &["54001"]),
        ("100,000 NOT", nested("NOT ", 100_000, "true", ""), &["54001"]),
    ]
}

/// A query of so many windows that all differ.
fn windows(count: usize) -> String {
    let calls = (0..count).map(|nth| format!("sum(x) OVER (ORDER BY x + {nth})"));
    let calls: Vec<String> = calls.collect();
    format!("SELECT {} FROM generate_series(1, 3) x", calls.join(", "))
}

/// Runs them all and prints what is wrong; gives the numbers of passed and failed.
///
/// # Errors
/// When Weft cannot be started.
pub fn run(at: &WeftAt) -> Result<(usize, usize), String> {
    let mut weft = Weft::start(at.clone())?;
    let (mut passed, mut failed) = (0, 0);
    let mut note = |name: &str, wrong: Option<String>| match wrong {
        None => passed += 1,
        Some(why) => {
            failed += 1;
            println!("limits: {name}: {}", why.chars().take(300).collect::<String>());
        }
    };
    for limit in limits() {
        let (answer, took) = weft.timed(&limit.sql)?;
        note(limit.name, wrong_value(&limit, &answer, took));
    }
    for (name, sql, states) in refusals() {
        let (answer, took) = weft.timed(&sql)?;
        let right = answer.code().is_some_and(|code| states.contains(&code)) && took < TIME_MAX;
        note(name, (!right).then(|| format!("{took:.1?}: {answer}")));
    }
    for (name, sql) in endless() {
        weft.timed("SET statement_timeout = '100ms'")?;
        let (answer, took) = weft.timed(&sql)?;
        let right = answer.code() == Some("57014") && took < CANCEL_MAX;
        note(name, (!right).then(|| format!("{took:.1?}: {answer}")));
        weft.timed("SET statement_timeout = 0")?;
    }
    note("rows of many values", many_rows(&mut weft)?);
    Ok((passed, failed))
}

fn wrong_value(limit: &Limit, answer: &Answer, took: Duration) -> Option<String> {
    let right = match answer {
        Answer::Rows(rows) => {
            let first = rows
                .values
                .first()
                .and_then(|row| row.first())
                .and_then(Option::as_ref);
            first.map(Vec::as_slice) == limit.value.map(str::as_bytes)
        }
        Answer::Error { code, .. } => limit.may_be_refused && code == "54001",
        Answer::Broken(_) => false,
    };
    (!right || took > TIME_MAX).then(|| format!("{took:.1?}: {answer}"))
}

/// Statements that `statement_timeout` must end, wherever they are.
fn endless() -> Vec<(&'static str, String)> {
    let sleeping = "SELECT pg_sleep(10)".to_owned();
    let series = "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b".to_owned();
    let recursive =
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT (n + 1) % 1000 FROM r) SELECT count(*) FROM r"
            .to_owned();
    vec![
        ("pg_sleep ends", sleeping),
        ("a join of series ends", series),
        ("a recursion ends", recursive),
    ]
}

/// INSERT of 1,024 rows of 17 values, some times: the rows are there, and it stays quick.
fn many_rows(weft: &mut Weft) -> Result<Option<String>, String> {
    let columns: Vec<String> = (1..=17).map(|n| format!("c{n} int")).collect();
    weft.timed("DROP TABLE IF EXISTS wide_rows")?;
    weft.timed(&format!(
        "CREATE TABLE wide_rows ({}, PRIMARY KEY (c1))",
        columns.join(", ")
    ))?;
    let mut slowest = Duration::ZERO;
    for round in 0..4 {
        let row = |n: usize| {
            let rest = (2..=17).map(|column| format!(", {column}")).collect::<String>();
            format!("({}{rest})", round * 1024 + n)
        };
        let rows: Vec<String> = (0..1024).map(row).collect();
        let (answer, took) = weft.timed(&format!("INSERT INTO wide_rows VALUES {}", rows.join(", ")))?;
        slowest = slowest.max(took);
        if !matches!(answer, Answer::Rows(_)) {
            return Ok(Some(answer.to_string()));
        }
    }
    let (answer, _) = weft.timed("SELECT count(*), sum(c17) FROM wide_rows")?;
    weft.timed("DROP TABLE wide_rows")?;
    let right = matches!(&answer, Answer::Rows(rows)
        if rows.values == [vec![Some(b"4096".to_vec()), Some(b"69632".to_vec())]]);
    Ok((!right || slowest > TIME_MAX).then(|| format!("{slowest:.1?}: {answer}")))
}

/// A Weft that is started again when it breaks.
struct Weft {
    at: WeftAt,
    own: Option<Server>,
    connection: Connection,
}

impl Weft {
    fn start(at: WeftAt) -> Result<Self, String> {
        let (own, address) = match &at {
            WeftAt::Address(address) => (None, *address),
            WeftAt::Program(program) => {
                let server = Server::weft(program)?;
                let address = server.address;
                (Some(server), address)
            }
        };
        let connection = Connection::open(address, TIME_MAX * 4).map_err(|e| e.to_string())?;
        Ok(Self { at, own, connection })
    }

    fn timed(&mut self, sql: &str) -> Result<(Answer, Duration), String> {
        let began = Instant::now();
        let answer = self.connection.run(sql, &Protocol::Simple);
        let took = began.elapsed();
        if matches!(answer, Answer::Broken(_)) {
            let address = self
                .own
                .as_mut()
                .and_then(|server| server.lives().then_some(server.address));
            let again = address
                .filter(|_| took < TIME_MAX)
                .and_then(|a| Connection::open(a, TIME_MAX * 4).ok());
            match again {
                Some(connection) => self.connection = connection,
                None => *self = Self::start(self.at.clone())?,
            }
        }
        Ok((answer, took))
    }
}
