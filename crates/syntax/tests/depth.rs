//! Statements of every deep shape are read or refused; none takes more stack than it was given.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::ControlFlow;
use std::time::Instant;

use sqlparser::ast::{Expr, TableFactor, Visit, Visitor};
use weft_syntax::with_statement;

/// Visits every expression, as a reader does.
struct Count(usize);

impl Visitor for Count {
    type Break = ();

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0 += 1;
        ControlFlow::Continue(())
    }
}

/// Parses, clones, visits, prints and drops. True if the statement was read, false if it is too deep.
fn reads(sql: &str) -> bool {
    let read = with_statement(sql, |statement| {
        let copy = statement.clone();
        let _ = copy.visit(&mut Count(0));
        assert!(!copy.to_string().is_empty());
        assert!(copy == *statement);
        Ok(())
    });
    match read {
        Ok(()) => true,
        Err(error) if error.state.0 == "54001" => false,
        Err(error) => panic!("{}: {}", error.message, sql.chars().take(80).collect::<String>()),
    }
}

fn nested(open: &str, middle: &str, close: &str, count: usize) -> String {
    format!("select {}{middle}{}", open.repeat(count), close.repeat(count))
}

fn chain(first: &str, more: &str, count: usize) -> String {
    format!("select {first}{}", more.repeat(count))
}

type Shape = fn(usize) -> String;

const SHAPES: &[(&str, Shape)] = &[
    ("parentheses", |n| nested("(", "1", ")", n)),
    ("casts", |n| nested("cast(", "1", " as int)", n)),
    ("calls", |n| nested("f(", "1", ")", n)),
    ("calls with lists", |n| nested("f(1, 2, ", "1", ", 3)", n)),
    ("arrays", |n| {
        format!("select array{}1{}", "[".repeat(n), "]".repeat(n))
    }),
    ("case", |n| nested("case when 1 then ", "1", " end", n)),
    ("case operand", |n| {
        nested("case ", "1", " when 1 then 1 else 2 end", n)
    }),
    ("else", |n| nested("case when 1 then 2 else ", "1", " end", n)),
    ("scalar subqueries", |n| nested("(select ", "1", ")", n)),
    ("exists", |n| nested("exists (select ", "1", ")", n)),
    ("in", |n| nested("1 in (", "1", ")", n)),
    ("in subquery", |n| nested("1 in (select ", "1", ")", n)),
    ("subqueries in from", |n| {
        format!("{}select 1{}", "select * from (".repeat(n), ") x".repeat(n))
    }),
    ("lateral", |n| {
        format!(
            "{}select 1{}",
            "select * from t, lateral (".repeat(n),
            ") x".repeat(n)
        )
    }),
    ("parenthesised queries", |n| {
        format!("{}select 1{}", "(".repeat(n), ")".repeat(n))
    }),
    ("unions in parentheses", |n| {
        format!("{}select 1{}", "(".repeat(n), " union select 2)".repeat(n))
    }),
    ("joins", |n| {
        format!("select * from {}a{}", "(".repeat(n), " join b on true)".repeat(n))
    }),
    ("joins of subqueries", |n| {
        format!(
            "select * from {}a{}",
            "((select * from ".repeat(n),
            ") x join b on true)".repeat(n)
        )
    }),
    ("with", |n| {
        format!(
            "{}select 1{}",
            "with x as (".repeat(n),
            ") select * from x".repeat(n)
        )
    }),
    ("not", |n| nested("not ", "true", "", n)),
    ("minus", |n| nested("- ", "1", "", n)),
    ("minus not", |n| nested("- not ", "1", "", n)),
    ("other prefix", |n| nested("~ - ", "1", "", n)),
    ("right operands", |n| nested("1 = not 2 + - ", "1", "", n)),
    ("between", |n| nested("1 between 1 and not ", "1", "", n)),
    ("between low", |n| nested("1 between (", "1", ") and 2", n)),
    ("window", |n| nested("f(1) over (order by ", "1", ")", n)),
    ("filter", |n| nested("f(1) filter (where ", "true", ")", n)),
    ("extract", |n| nested("extract(year from ", "x", ")", n)),
    ("substring", |n| nested("substring(", "x", " from 1)", n)),
    ("trim", |n| nested("trim(both from ", "x", ")", n)),
    ("position", |n| nested("position(", "x", " in y)", n)),
    ("any", |n| nested("1 = any (", "x", ")", n)),
    ("subscripts", |n| nested("a[", "1", "]", n)),
    ("row", |n| nested("row(", "1", ")", n)),
    ("group by", |n| {
        format!("select 1 group by {}1{}", "(".repeat(n), ")".repeat(n))
    }),
    ("sum", |n| chain("1", "+1", n)),
    ("power", |n| chain("1", "^1", n)),
    ("or", |n| chain("a = 1", " or a = 1", n)),
    ("and", |n| chain("a = 1", " and a = 1", n)),
    ("and not", |n| chain("a = 1", " and not a = -1", n)),
    ("concatenation", |n| chain("'a'", " || 'b'", n)),
    ("double colon", |n| chain("1", "::int", n)),
    ("is null", |n| chain("1", " is null", n)),
    ("collate", |n| chain("'a'", " collate \"C\"", n)),
    ("at time zone", |n| chain("a", " at time zone 'utc'", n)),
    ("subscript chain", |n| chain("a", "[1]", n)),
    ("names", |n| chain("a", ".a", n)),
    ("in chain", |n| chain("a", " in (1)", n)),
    ("array types", |n| chain("a::int", "[]", n)),
    ("union all", |n| {
        format!("select 1, 2{}", " union all select 1, 2".repeat(n))
    }),
    ("except intersect", |n| {
        format!("select 1{}", " except select 1 intersect select 2".repeat(n))
    }),
    ("join chain", |n| {
        format!("select * from a{}", " join b on true".repeat(n))
    }),
    ("list", |n| format!("{})", chain("f(1", ", 1", n))),
    ("long case", |n| {
        format!("select case {} end", "when 1 then 2 ".repeat(n))
    }),
    ("values", |n| {
        format!("insert into t values (1){}", ", (- 1)".repeat(n))
    }),
];

#[test]
fn deep_statements_are_read_or_refused() {
    // A thread as small as a worker's.
    let work = || {
        for (name, shape) in SHAPES {
            // Code that is not optimised would take minutes near the limits.
            let counts: &[usize] = match cfg!(debug_assertions) {
                true => &[10, 300, 20_000],
                false => &[10, 300, 2_500, 10_000, 20_000],
            };
            for &count in counts {
                let sql = shape(count);
                let begin = Instant::now();
                let read = reads(&sql);
                let seconds = begin.elapsed().as_secs_f64();
                if std::env::var_os("SHOW").is_some() {
                    println!("{name} {count} {read} {seconds:.3}");
                }
                assert!(read || count > 300, "{name} {count} is refused");
                assert!(seconds < 8.0, "{name} {count} takes {seconds} s");
                if !read {
                    break;
                }
            }
        }
    };
    let thread = std::thread::Builder::new()
        .stack_size(512 << 10)
        .spawn(work)
        .unwrap();
    thread.join().unwrap();
}

#[test]
fn long_chains_are_read() {
    for (name, count) in [
        ("sum", 10_000),
        ("or", 10_000),
        ("and", 10_000),
        ("concatenation", 10_000),
        ("double colon", 600),
        ("union all", 2_000),
        ("long case", 10_000),
        ("join chain", 1_000),
        ("list", 100_000),
    ] {
        let shape = SHAPES.iter().find(|shape| shape.0 == name).unwrap().1;
        assert!(reads(&shape(count)), "{name}");
    }
}

/// Queries in FROM within each other, each in some parentheses.
fn tables(levels: usize, parentheses: usize, inner: &str, behind: &str) -> String {
    let (open, close) = ("(".repeat(parentheses), ")".repeat(parentheses));
    (0..levels).fold(inner.to_owned(), |table, _| {
        format!("select 1 from {open}{table}{close}{behind}")
    })
}

#[test]
fn an_error_within_tables_in_parentheses_is_found_at_once() {
    for (levels, parentheses) in [(1, 25), (3, 20), (8, 10), (30, 2), (50, 1)] {
        for behind in [" a", " as a", "", " a join b on true", ", c"] {
            for (inner, word) in [
                ("select 1 from t t t", "t"),
                ("values (1, values (2", ""),
                ("select 1 1", "1"),
                ("select from", ""),
            ] {
                let sql = tables(levels, parentheses, inner, behind);
                let begin = Instant::now();
                let error = with_statement(&sql, |_| Ok(())).unwrap_err();
                assert!(begin.elapsed().as_secs() < 2, "{sql}");
                assert_eq!(error.state.0, "42601", "{sql}");
                if !word.is_empty() {
                    assert_eq!(
                        error.message,
                        format!("syntax error at or near \"{word}\""),
                        "{sql}"
                    );
                }
            }
            let unclosed = format!("select 1 from {}", "(select 1 from ((".repeat(levels));
            let error = with_statement(&unclosed, |_| Ok(())).unwrap_err();
            assert_eq!(error.message, "syntax error at end of input", "{unclosed}");
        }
    }
}

/// Whether a query in FROM is LATERAL anywhere.
fn has_lateral(sql: &str) -> bool {
    struct Lateral(bool);
    impl Visitor for Lateral {
        type Break = ();

        fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
            self.0 |= matches!(table, TableFactor::Derived { lateral: true, .. });
            ControlFlow::Continue(())
        }
    }
    let mut lateral = Lateral(false);
    with_statement(sql, |statement| {
        let _ = statement.visit(&mut lateral);
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{}: {sql}", error.message));
    lateral.0
}

#[test]
fn a_query_in_from_is_lateral_where_the_text_says_so() {
    for sql in [
        "select * from (select 1) a",
        "select * from (select 1) as a, ((select 2)) as b",
        "select * from ((select 1) a join (select 2) as b on true) c",
        "select * from ((select 1) union (select 2)) a",
        "select * from t join (select 1) a using (x), (values (1)) v(x)",
        "select * from (select * from (table t) b) a where x in (select 1)",
        "select (select 1) a, (select 2) b from t",
        "select x is distinct from (select 1) a, x is not distinct from (select 1) b from t",
        "select extract(year from (select now())) a, substring(x from (select 1)) b from t",
        "select trim(both from (select 'a')) a, overlay('a' placing 'b' from (select 1)) b",
        "delete from t using (select 1) a where x = any (select 1)",
        "update t set (a, b) = (select 1, 2) from (select 3) c",
        "insert into t (select 1)",
        "with a as (select 1) select * from a order by (select 1), (select 2)",
        "select * from t where x = (select 1) group by (select 1), a having (select true)",
    ] {
        assert!(!has_lateral(sql), "{sql}");
    }
    for sql in [
        "select * from t, lateral (select 1) a",
        "select * from (select 1) a, lateral ((select 2)) b",
        "select * from (t cross join lateral (select 1) a)",
    ] {
        assert!(has_lateral(sql), "{sql}");
    }
}
