//! Statements nested in every way, 10 to 100,000 deep: one way all the way down, or several in turns.
//!
//! A statement may be answered or refused; the session goes on either way.

use weft_base::Prng;

use super::input::{Input, Kind, Step, magnitude, one_of};
use super::messages::{extended, query};

/// Text before the nesting, what opens a level, what stands inside, what closes a level, text behind.
type Form = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

/// Levels of a number within a number.
const NUMBERS: [(&str, &str); 22] = [
    ("(", ")"),
    ("- ", ""),
    ("+ ", ""),
    ("~ ", ""),
    ("@ ", ""),
    ("1 + (", ")"),
    ("abs(", ")"),
    ("coalesce(", ", 1)"),
    ("greatest(1, ", ")"),
    ("nullif(", ", 2)"),
    ("CAST(", " AS int)"),
    ("CASE WHEN true THEN ", " END"),
    ("CASE ", " WHEN 1 THEN 1 ELSE 2 END"),
    ("CASE WHEN false THEN 0 ELSE ", " END"),
    ("(SELECT ", ")"),
    ("(SELECT x FROM (SELECT ", " AS x) t)"),
    ("(SELECT max(x) FROM (VALUES (", ")) t(x))"),
    ("(ARRAY[1, 2])[", "]"),
    ("cardinality(ARRAY[", "])"),
    ("length(repeat('x', ", "))"),
    ("(WITH w AS (SELECT ", " AS x) SELECT x FROM w)"),
    ("(SELECT count(*) FROM prey WHERE id = ", ")"),
];

/// Levels of a truth value within a truth value.
const TRUTHS: [(&str, &str); 12] = [
    ("(", ")"),
    ("NOT ", ""),
    ("NOT (", ")"),
    ("true AND (", ")"),
    ("false OR (", ")"),
    ("(", ") IS NOT NULL"),
    ("(", ") = true"),
    ("EXISTS (SELECT 1 WHERE ", ")"),
    ("true IN (SELECT ", ")"),
    ("CASE WHEN ", " THEN true ELSE false END"),
    ("true = ANY (ARRAY[", "])"),
    ("(", ") BETWEEN false AND true"),
];

/// Forms of their own.
const FORMS: [Form; 66] = [
    ("SELECT 1", "::int", "", "", ""),
    ("SELECT 1", " + 1", "", "", ""),
    ("SELECT 1", " - - 1", "", "", ""),
    ("SELECT 1", " * 1", "", "", " FROM prey WHERE id = 3"),
    ("SELECT 'a'", " || 'a'", "", "", ""),
    ("SELECT true", " AND true", "", "", ""),
    ("SELECT true", " OR false", "", "", ""),
    ("SELECT true", " = true", "", "", ""),
    ("SELECT 1", " IS NULL", "", "", ""),
    ("SELECT now()", " AT TIME ZONE 'UTC'", "", "", ""),
    ("SELECT 'a'", " COLLATE \"C\"", "", "", ""),
    ("SELECT ARRAY[1]", "[1]", "", "", ""),
    ("SELECT ARRAY[1]", "[1:1]", "", "", ""),
    ("SELECT 'a'", " LIKE 'a'", "", "", ""),
    ("SELECT * FROM prey WHERE id = 1", " AND id = 1", "", "", ""),
    ("SELECT * FROM prey WHERE id = 1", " OR id = 1", "", "", ""),
    ("SELECT * FROM prey WHERE ", "(id = 1 AND (", "a > 0", "))", ""),
    ("UPDATE prey SET a = ", "(1 + ", "a", ")", " WHERE id = 9"),
    ("UPDATE prey SET a = a WHERE id = 9", " AND a = a", "", "", ""),
    ("DELETE FROM caught WHERE ", "NOT (", "id = 1", ")", ""),
    ("INSERT INTO caught (id) VALUES (", "abs(", "1", ")", ")"),
    ("INSERT INTO caught (id) ", "(", "SELECT 1", ")", ""),
    ("SELECT ", "ARRAY[", "1", "]", ""),
    ("SELECT ", "ROW(", "1", ")", ""),
    ("SELECT ", "(1, ", "1", ")", " = (1, 1)"),
    ("SELECT '", "{", "", "}", "'::int[]"),
    ("SELECT * FROM ", "(SELECT * FROM ", "prey", ") t", ""),
    ("SELECT * FROM ", "(", "prey", ")", ""),
    ("SELECT * FROM ", "(", "prey p", " JOIN prey q USING (id))", ""),
    ("SELECT count(*) FROM prey", " NATURAL JOIN prey", "", "", ""),
    (
        "SELECT count(*) FROM prey a",
        " CROSS JOIN prey",
        "",
        "",
        " LIMIT 1",
    ),
    ("SELECT 1", ", (SELECT 1)", "", "", ""),
    ("SELECT greatest(1", ", (SELECT 1)", "", "", ")"),
    ("SELECT 1 WHERE 1 IN (1", ", (SELECT 1)", "", "", ")"),
    ("VALUES (1)", ", ((SELECT 1))", "", "", ""),
    ("SELECT 1 FROM prey ORDER BY a", ", (SELECT a)", "", "", ""),
    ("SELECT 1 FROM prey WHERE true", " AND a = (SELECT a)", "", "", ""),
    ("SELECT 1 FROM prey GROUP BY a", ", (SELECT a)", "", "", ""),
    ("SELECT 1 FROM prey GROUP BY ROLLUP (a", ", a + id", "", "", ")"),
    (
        "SELECT 1 FROM prey WHERE a > 0",
        " AND 1 = (SELECT 1)",
        "",
        "",
        "",
    ),
    (
        "SELECT 1 FROM prey WHERE a > 0",
        " AND EXISTS (SELECT 1)",
        "",
        "",
        "",
    ),
    (
        "SELECT 1 FROM prey WHERE a > 0",
        " AND id IN (SELECT 1)",
        "",
        "",
        "",
    ),
    (
        "SELECT 1 FROM prey WHERE a > 0",
        " AND EXISTS (SELECT 1 FROM prey p WHERE p.id = prey.id)",
        "",
        "",
        "",
    ),
    ("SELECT 1", " UNION SELECT 1", "", "", ""),
    ("SELECT 1", " UNION ALL SELECT 1", "", "", ""),
    ("SELECT 1", " EXCEPT SELECT 2", "", "", ""),
    ("", "(SELECT 1 UNION ", "SELECT 1", ")", ""),
    ("", "(", "SELECT 1", ")", ""),
    ("", "(", "SELECT 1", " ORDER BY 1 LIMIT 1)", ""),
    ("", "WITH w AS (", "SELECT 1 AS x", ") SELECT 1 AS x FROM w", ""),
    ("SELECT ", "lower(trim(", "' A '", "))", ""),
    ("SELECT sum(", "sum(", "1", ")", ") OVER ()"),
    ("SELECT 1 FROM prey GROUP BY ", "(", "id", ")", ""),
    ("SELECT 1 FROM prey GROUP BY ", "GROUPING SETS (", "(id)", ")", ""),
    ("SELECT 1 FROM prey ORDER BY ", "(", "id", ")", " LIMIT 1"),
    ("SELECT 1 FROM prey LIMIT ", "(", "1", ")", ""),
    ("", "EXPLAIN ", "SELECT 1", "", ""),
    ("", "PREPARE p AS ", "SELECT 1", "", ""),
    ("", "BEGIN;", "", "COMMIT;", ""),
    ("SELECT 1 ", "/*", "", "*/", ""),
    (
        "CREATE TABLE deep_one (a int DEFAULT ",
        "(",
        "1",
        ")",
        "); DROP TABLE deep_one",
    ),
    (
        "CREATE TABLE deep_two (a int CHECK (",
        "(",
        "a > 0",
        ")",
        ")); DROP TABLE deep_two",
    ),
    ("CREATE INDEX ON caught (", "(", "id", ")", ")"),
    (
        "CREATE VIEW deep_three AS SELECT ",
        "(",
        "1",
        ")",
        "; DROP VIEW deep_three",
    ),
    ("SELECT ", "U&'", "", "", ""),
    ("SELECT $1", "::int", "", "", ""),
];

/// What a body of a procedure nests.
const BODIES: [Form; 8] = [
    ("BEGIN ", "BEGIN ", "NULL;", "END; ", "END"),
    ("BEGIN ", "IF true THEN ", "NULL;", " END IF; ", "END"),
    ("BEGIN ", "IF false THEN NULL; ELSE ", "NULL;", " END IF; ", "END"),
    (
        "BEGIN IF false THEN NULL; ",
        "ELSIF true THEN NULL; ",
        "",
        "",
        "END IF; END",
    ),
    ("BEGIN ", "WHILE false LOOP ", "NULL;", " END LOOP; ", "END"),
    ("BEGIN ", "FOR i IN 1..1 LOOP ", "NULL;", " END LOOP; ", "END"),
    ("DECLARE x int; BEGIN x := ", "(1 + ", "1", ")", "; END"),
    (
        "BEGIN UPDATE prey SET a = ",
        "abs(",
        "a",
        ")",
        " WHERE id = n; END",
    ),
];

/// A deep input.
pub fn input(random: &mut Prng) -> Input {
    let (name, depth, sql) = match random.below(10) {
        0..3 => mixed(random),
        3 => body(random),
        _ => {
            let (before, open, inner, close, behind) = one_of(random, &FORMS);
            of_form(random, before, open, inner, close, behind)
        }
    };
    let sql = match random.below(12) {
        0 => format!("EXPLAIN {sql}"),
        1 => format!("PREPARE held AS {sql}"),
        2 => format!("BEGIN; DECLARE c CURSOR FOR {sql}; FETCH 1 FROM c; COMMIT"),
        3 => format!("COPY ({sql}) TO STDOUT"),
        _ => sql,
    };
    let bytes = match random.chance(1, 3) {
        true => extended(sql, &[], &[]),
        false => query(sql),
    };
    let steps = vec![Step::Send(bytes), Step::Await(1), Step::MustGoOn];
    Input::of_session(Kind::Deep, format!("{name}, {depth} deep"), steps)
}

fn depth(random: &mut Prng) -> usize {
    magnitude(random, 10, 100_000)
}

fn of_form(
    random: &mut Prng,
    before: &str,
    open: &str,
    inner: &str,
    close: &str,
    behind: &str,
) -> (String, usize, String) {
    let depth = depth(random);
    let (opened, closed) = (open.repeat(depth), close.repeat(depth));
    let name = format!("{}{open}..{close}", if open.len() > 3 { "" } else { before });
    // Without what closes them, or with a level too few.
    match random.below(12) {
        0 => (format!("{name} without end"), depth, format!("{before}{opened}")),
        1 => (
            format!("{name}, one not closed"),
            depth,
            format!("{before}{opened}{inner}{}{behind}", close.repeat(depth - 1)),
        ),
        _ => (name, depth, format!("{before}{opened}{inner}{closed}{behind}")),
    }
}

/// Several ways in turns.
fn mixed(random: &mut Prng) -> (String, usize, String) {
    let depth = depth(random);
    let truth = random.chance(1, 2);
    let all: &[(&str, &str)] = if truth { &TRUTHS } else { &NUMBERS };
    let kinds: Vec<(&str, &str)> = (0..=random.below(4)).map(|_| one_of(random, all)).collect();
    let levels: Vec<(&str, &str)> = (0..depth).map(|_| one_of(random, &kinds)).collect();
    let opened: String = levels.iter().map(|(open, _)| *open).collect();
    let closed: String = levels.iter().rev().map(|(_, close)| *close).collect();
    let (inner, before, behind) = match (truth, random.below(3)) {
        (true, 0) => ("id = 3", "SELECT * FROM prey WHERE ", ""),
        (true, _) => ("true", "SELECT ", ""),
        (false, 0) => ("a", "SELECT ", " FROM prey WHERE id = 3"),
        (false, 1) => ("a", "UPDATE prey SET a = ", " WHERE id = 9"),
        (false, _) => ("1", "SELECT ", ""),
    };
    let names: Vec<&str> = kinds.iter().map(|(open, _)| *open).collect();
    (
        names.join(" "),
        depth,
        format!("{before}{opened}{inner}{closed}{behind}"),
    )
}

fn body(random: &mut Prng) -> (String, usize, String) {
    let (before, open, inner, close, behind) = one_of(random, &BODIES);
    let (name, depth, body) = of_form(random, before, open, inner, close, behind);
    let number = random.below(1_000_000);
    let made = format!("deep_{number}");
    let sql = format!(
        "CREATE PROCEDURE {made}(n int) LANGUAGE plpgsql AS $body${body}$body$; CALL {made}(1); \
         DROP PROCEDURE {made}"
    );
    (format!("procedure {name}"), depth, sql)
}
