//! Statements of every deep shape are read or refused; none takes more stack than it was given.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::ControlFlow;
use std::time::Instant;

use sqlparser::ast::{Expr, Visit, Visitor};
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
