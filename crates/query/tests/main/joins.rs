//! Joins by one integer-like key give what a nested loop gives, whichever algorithm runs them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_base::{Prng, TableId};
use weft_query::{CancelSignal, EngineOptions, JoinChoice, PlanningTurn, QuerySettings};
use weft_types::{SqlType, Value, parse_text};

use crate::fixture::{Db, rows_of};

/// A row: its number, its key, and another column.
#[derive(Clone, Copy)]
struct Row {
    id: i32,
    key: Option<i64>,
    other: i32,
}

/// Where the keys of a side come from.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Different, or nearly so.
    Spread,
    /// Some, several times each.
    Repeated(u64),
    /// One key of half of the rows.
    Skewed,
    Nulls,
}

fn rows(count: usize, kind: Kind, prng: &mut Prng) -> Vec<Row> {
    let row = |id| Row {
        id,
        key: match kind {
            _ if prng.chance(1, 20) => None,
            Kind::Spread => Some(prng.below(4 * count.max(1) as u64) as i64 - 50),
            Kind::Repeated(kinds) => Some(prng.below(kinds) as i64 - 3),
            Kind::Skewed if prng.chance(1, 2) => Some(1),
            Kind::Skewed => Some(prng.below(count as u64) as i64),
            Kind::Nulls => None,
        },
        other: prng.below(100) as i32,
    };
    (0..count as i32).map(row).collect()
}

/// Key types, with the key of a number.
fn key_of(ty: &SqlType, number: i64) -> Value {
    match ty {
        SqlType::Int2 => Value::Int2(number as i16),
        SqlType::Int4 => Value::Int4(number as i32),
        SqlType::Int8 => Value::Int8(number << 20),
        SqlType::Date => parse_text(&format!("{}-01-01", 2000 + number % 3000), ty).unwrap(),
        SqlType::Timestamp => {
            let seconds = number.rem_euclid(60);
            let text = format!("{}-02-03 04:05:{seconds:02}.5", 3000 + number.div_euclid(60));
            parse_text(&text, ty).unwrap()
        }
        SqlType::Uuid => parse_text(&format!("{number:032x}"), ty).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn fill(db: &Db, name: &str, ty: &SqlType, rows: &[Row]) -> TableId {
    let columns = [
        ("id", SqlType::Int4),
        ("k", *ty),
        ("other", SqlType::Int4),
        ("t", SqlType::Text),
    ];
    let table = db.table(name, &columns, &[]);
    let layout = Arc::clone(&db.store.catalog().table(name).unwrap().layout);
    let encoded = rows.iter().map(|row| {
        let key = row.key.map_or(Value::Null, |key| key_of(ty, key));
        let text = Value::Text(format!("{name} {}", row.id));
        layout
            .encode(&[Value::Int4(row.id), key, Value::Int4(row.other), text])
            .unwrap()
    });
    db.insert_encoded(table, &encoded.collect::<Vec<_>>());
    table
}

/// A statement over tables a and b, and its answer by a nested loop.
struct Case {
    sql: &'static str,
    /// Whether the pair satisfies the condition beside the keys.
    also: fn(&Row, &Row) -> bool,
    pairs: bool,
    /// Rows of a, of b, that are told when they have a partner (true) or none (false).
    of_a: Option<bool>,
    of_b: Option<bool>,
}

fn any(_: &Row, _: &Row) -> bool {
    true
}

fn less(a: &Row, b: &Row) -> bool {
    a.other < b.other
}

const CASES: [Case; 13] = [
    Case {
        sql: "SELECT a.id, b.id, a.t, b.t FROM a JOIN b ON a.k = b.k",
        also: any,
        pairs: true,
        of_a: None,
        of_b: None,
    },
    Case {
        sql: "SELECT a.id, b.id, a.t, b.t FROM a JOIN b ON a.k = b.k AND a.other < b.other",
        also: less,
        pairs: true,
        of_a: None,
        of_b: None,
    },
    Case {
        sql: "SELECT a.id, b.id, a.t, b.t FROM a LEFT JOIN b ON a.k = b.k",
        also: any,
        pairs: true,
        of_a: Some(false),
        of_b: None,
    },
    Case {
        sql: "SELECT a.id, b.id, a.t, b.t FROM a LEFT JOIN b ON a.k = b.k AND a.other < b.other",
        also: less,
        pairs: true,
        of_a: Some(false),
        of_b: None,
    },
    Case {
        sql: "SELECT a.id, b.id, a.t, b.t FROM a RIGHT JOIN b ON a.k = b.k",
        also: any,
        pairs: true,
        of_a: None,
        of_b: Some(false),
    },
    Case {
        sql: "SELECT a.id, b.id, a.t, b.t FROM a FULL JOIN b ON a.k = b.k",
        also: any,
        pairs: true,
        of_a: Some(false),
        of_b: Some(false),
    },
    Case {
        sql: "SELECT a.id, b.id, a.t, b.t FROM a RIGHT JOIN b ON a.k = b.k AND a.other < b.other",
        also: less,
        pairs: true,
        of_a: None,
        of_b: Some(false),
    },
    Case {
        sql: "SELECT a.id, NULL, a.t, NULL FROM a WHERE EXISTS (SELECT FROM b WHERE a.k = b.k)",
        also: any,
        pairs: false,
        of_a: Some(true),
        of_b: None,
    },
    Case {
        sql: "SELECT a.id, NULL, a.t, NULL FROM a WHERE NOT EXISTS (SELECT FROM b WHERE a.k = b.k)",
        also: any,
        pairs: false,
        of_a: Some(false),
        of_b: None,
    },
    Case {
        sql: "SELECT a.id, NULL, a.t, NULL FROM a \
              WHERE EXISTS (SELECT FROM b WHERE a.k = b.k AND a.other < b.other)",
        also: less,
        pairs: false,
        of_a: Some(true),
        of_b: None,
    },
    Case {
        sql: "SELECT a.id, NULL, a.t, NULL FROM a \
              WHERE NOT EXISTS (SELECT FROM b WHERE a.k = b.k AND a.other < b.other)",
        also: less,
        pairs: false,
        of_a: Some(false),
        of_b: None,
    },
    Case {
        sql: "SELECT NULL, b.id, NULL, b.t FROM b WHERE EXISTS (SELECT FROM a WHERE a.k = b.k)",
        also: any,
        pairs: false,
        of_a: None,
        of_b: Some(true),
    },
    Case {
        sql: "SELECT NULL, b.id, NULL, b.t FROM b \
              WHERE NOT EXISTS (SELECT FROM a WHERE a.k = b.k AND a.other < b.other)",
        also: less,
        pairs: false,
        of_a: None,
        of_b: Some(false),
    },
];

fn nested_loop(case: &Case, a: &[Row], b: &[Row]) -> Vec<Vec<String>> {
    let show = |a: Option<&Row>, b: Option<&Row>| {
        let id = |row: Option<&Row>| row.map_or("NULL".into(), |row| row.id.to_string());
        let text = |name, row: Option<&Row>| row.map_or("NULL".into(), |row| format!("{name} {}", row.id));
        vec![id(a), id(b), text("a", a), text("b", b)]
    };
    let (mut found, mut with_a, mut with_b) = (Vec::new(), vec![false; a.len()], vec![false; b.len()]);
    for (at_a, row_a) in a.iter().enumerate() {
        for (at_b, row_b) in b.iter().enumerate() {
            if row_a.key.is_some() && row_a.key == row_b.key && (case.also)(row_a, row_b) {
                (with_a[at_a], with_b[at_b]) = (true, true);
                if case.pairs {
                    found.push(show(Some(row_a), Some(row_b)));
                }
            }
        }
    }
    let a = a.iter().zip(with_a).filter(|(_, with)| case.of_a == Some(*with));
    found.extend(a.map(|(row, _)| show(Some(row), None)));
    let b = b.iter().zip(with_b).filter(|(_, with)| case.of_b == Some(*with));
    found.extend(b.map(|(row, _)| show(None, Some(row))));
    found.sort();
    found
}

fn by(db: &Db, join: JoinChoice) -> QuerySettings {
    QuerySettings {
        join,
        cancel: CancelSignal::default(),
        planning: PlanningTurn::default(),
        ..db.settings.clone()
    }
}

fn sorted(db: &Db, sql: &str, join: JoinChoice) -> Vec<Vec<String>> {
    let stream = db.run_over(sql, db.source(), &by(db, join));
    let mut rows = stream
        .and_then(rows_of)
        .unwrap_or_else(|error| panic!("{sql} {join:?}\n{error:?}"));
    rows.sort();
    rows
}

fn assert_all_agree(db: &Db, a: &[Row], b: &[Row], what: &str) {
    for case in &CASES {
        let expected = nested_loop(case, a, b);
        for join in JoinChoice::ALL {
            let found = sorted(db, case.sql, join);
            assert!(
                found == expected,
                "{what}, {join:?}: {}\n{} rows, expected {}",
                case.sql,
                found.len(),
                expected.len()
            );
        }
    }
}

#[test]
fn every_algorithm_gives_the_answer_of_a_nested_loop() {
    let types = [
        SqlType::Int2,
        SqlType::Int4,
        SqlType::Int8,
        SqlType::Date,
        SqlType::Timestamp,
        SqlType::Uuid,
    ];
    let seed = 20;
    let mut prng = Prng::new(seed);
    let kinds = [Kind::Spread, Kind::Repeated(40), Kind::Skewed, Kind::Nulls];
    for (number, ty) in types.iter().enumerate() {
        for counts in [(300, 200), (0, 50), (40, 0), (17, 400)] {
            let kind = |prng: &mut Prng| kinds[prng.below(4) as usize];
            let (of_a, of_b) = (kind(&mut prng), kind(&mut prng));
            let (a, b) = (rows(counts.0, of_a, &mut prng), rows(counts.1, of_b, &mut prng));
            let db = Db::new();
            fill(&db, "a", ty, &a);
            fill(&db, "b", ty, &b);
            let what = format!("seed {seed}, type {number}, {counts:?} rows, {of_a:?} and {of_b:?}");
            assert_all_agree(&db, &a, &b, &what);
        }
    }
}

#[test]
fn several_partitions_give_the_answer_of_a_nested_loop() {
    let mut prng = Prng::new(21);
    for ty in [SqlType::Int8, SqlType::Uuid] {
        let (a, b) = (
            rows(9_000, Kind::Spread, &mut prng),
            rows(14_000, Kind::Repeated(9_000), &mut prng),
        );
        let db = Db::with_options(EngineOptions {
            threads: 3,
            batch_rows: 500,
            ..EngineOptions::default()
        });
        fill(&db, "a", &ty, &a);
        fill(&db, "b", &ty, &b);
        for case in CASES.iter().step_by(3) {
            let expected = nested_loop(case, &a, &b);
            for join in JoinChoice::ALL {
                assert!(sorted(&db, case.sql, join) == expected, "{join:?} {}", case.sql);
            }
        }
    }
}

#[test]
fn a_key_of_many_rows_is_joined_in_parts() {
    let mut prng = Prng::new(22);
    let (a, b) = (
        rows(1_500, Kind::Repeated(1), &mut prng),
        rows(1_200, Kind::Repeated(1), &mut prng),
    );
    let db = Db::new();
    fill(&db, "a", &SqlType::Int4, &a);
    fill(&db, "b", &SqlType::Int4, &b);
    // More pairs of one row, and of one batch, than are held at one time.
    let sql = "SELECT count(*), sum(a.id), sum(b.id), count(*) FILTER (WHERE a.other < b.other) \
               FROM a JOIN b ON a.k = b.k";
    let expected = sorted(&db, sql, JoinChoice::Hash);
    for join in JoinChoice::ALL {
        assert_eq!(sorted(&db, sql, join), expected, "{join:?}");
    }
}

#[test]
fn explain_names_the_algorithm_that_runs() {
    let mut prng = Prng::new(23);
    let few = rows(100, Kind::Spread, &mut prng);
    let mut db = Db::new();
    fill(&db, "a", &SqlType::Int4, &few);
    fill(&db, "b", &SqlType::Int4, &few);
    let sql = "SELECT a.id, b.id FROM a JOIN b ON a.k = b.k";
    for (join, name) in [
        (JoinChoice::Auto, "HashJoinExec"),
        (JoinChoice::Hash, "HashJoinExec"),
        (JoinChoice::Unpartitioned, "UnpartitionedJoinExec"),
        (JoinChoice::Radix, "RadixJoinExec"),
        (JoinChoice::SortMerge, "SortMergeJoinExec"),
    ] {
        db.settings.join = join;
        let plan = db.explain(sql);
        assert!(plan.contains(name), "{join:?}\n{plan}");
    }
    // By the expected rows, and with what they were.
    db.settings.join = JoinChoice::Auto;
    let many = rows(150_000, Kind::Spread, &mut prng);
    fill(&db, "many", &SqlType::Int8, &many);
    let plan = db.explain("SELECT a.id, b.id FROM many a JOIN many b ON a.k = b.k");
    assert!(plan.contains("UnpartitionedJoinExec: join_type=Inner"), "{plan}");
    assert!(
        plan.contains("build_rows=150000, probe_rows=150000, memory="),
        "{plan}"
    );
    let plan = db.explain("SELECT a.id, b.id FROM a JOIN many b ON a.id = b.id");
    assert!(plan.contains("HashJoinExec"), "{plan}");
    // Two keys, or a key that is no number inside.
    for sql in [
        "SELECT a.id FROM a JOIN b ON a.k = b.k AND a.other = b.other",
        "SELECT a.id FROM a JOIN b ON a.t = b.t",
    ] {
        let plan = db.explain(sql);
        assert!(plan.contains("HashJoinExec"), "{plan}");
    }
}

/// The rows of a subquery that has a condition, or is one row, are built, and tell the scans of the other
/// side which rows are wanted.
#[test]
fn the_smaller_side_of_a_subquery_is_built() {
    let many = rows(150_000, Kind::Spread, &mut Prng::new(25));
    let db = Db::new();
    fill(&db, "many", &SqlType::Int8, &many);
    fill(&db, "more", &SqlType::Int8, &many);
    let having = "SELECT id FROM many WHERE k IN (SELECT k FROM more GROUP BY k HAVING sum(other) > 300)";
    let plan = db.explain(having);
    assert!(plan.contains("join_type=RightSemi"), "{plan}");
    assert!(
        plan.contains("table=many") && plan.contains("DynamicFilter"),
        "{plan}"
    );
    let above = "SELECT id FROM many WHERE other > (SELECT avg(other) FROM more) \
                 AND NOT EXISTS (SELECT 1 FROM more WHERE more.k = many.k)";
    let plan = db.explain(above);
    assert!(plan.contains("join_type=LeftAnti"), "{plan}");
    assert!(!plan.contains("rows=22500000000"), "{plan}");
}

#[test]
fn a_join_without_end_is_cancelled_at_once() {
    let mut prng = Prng::new(24);
    let many = rows(20_000, Kind::Repeated(1), &mut prng);
    let db = Db::new();
    fill(&db, "a", &SqlType::Int4, &many);
    fill(&db, "b", &SqlType::Int4, &many);
    let endless =
        "SELECT count(*) FROM a JOIN b ON a.k = b.k JOIN a c ON b.k = c.k WHERE a.id + b.id + c.id = -1";
    for join in JoinChoice::ALL {
        let settings = by(&db, join);
        let cancel = settings.cancel.clone();
        let mut stream = db.run_over(endless, db.source(), &settings).unwrap();
        let canceler = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            cancel.cancel();
            Instant::now()
        });
        let error = stream.next_batch().unwrap_err();
        let took = canceler.join().unwrap().elapsed();
        assert_eq!(error.state.code(), "57014", "{join:?}");
        assert!(took < Duration::from_secs(2), "{join:?}: {took:?}");
        settings.cancel.reset();
        drop(stream);
        let count = sorted(&db, "SELECT count(*) FROM a", JoinChoice::Auto);
        assert_eq!(count, [["20000"]], "{join:?}");
    }
}

#[test]
fn a_join_over_its_memory_is_refused_and_gives_it_back() {
    let mut prng = Prng::new(25);
    let db = Db::with_options(EngineOptions {
        memory_bytes: 1_500_000,
        ..EngineOptions::default()
    });
    let (many, few) = (
        rows(30_000, Kind::Spread, &mut prng),
        rows(1_000, Kind::Spread, &mut prng),
    );
    fill(&db, "many", &SqlType::Int8, &many);
    fill(&db, "few", &SqlType::Int8, &few);
    let wide = "SELECT count(a.t), count(b.t) FROM many a JOIN many b ON a.k = b.k";
    let narrow = "SELECT count(a.t), count(b.t) FROM few a JOIN few b ON a.k = b.k";
    let expected = sorted(&db, narrow, JoinChoice::Hash);
    for join in JoinChoice::ALL {
        // More than would be left if a failed join kept what it had.
        for _ in 0..20 {
            let stream = db.run_over(wide, db.source(), &by(&db, join));
            let error = stream.and_then(rows_of).unwrap_err();
            assert_eq!(error.state.code(), "53200", "{join:?} {error:?}");
        }
        assert_eq!(sorted(&db, narrow, join), expected, "{join:?}");
    }
}
