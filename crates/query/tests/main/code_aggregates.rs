//! Aggregates on codes are those of rows that were decoded, wherever predicates are compared, while rows are
//! changed in between.

use weft_base::Prng;
use weft_column::units::ScanEngine;
use weft_types::{SqlType, Value};

use crate::units::{change, filled, predicate, with};

/// More than what a plan for one thread reads.
const ROWS: i32 = 4096 * 15 + 100;

const AGGREGATES: [&str; 16] = [
    "count(*)",
    "count(n)",
    "count(word)",
    "sum(n)",
    "avg(n)",
    "min(n)",
    "max(n)",
    "sum(id)",
    "max(id)",
    "sum(price)",
    "avg(price)",
    "min(price)",
    "max(price)",
    "min(word)",
    "max(word)",
    "min(day)",
];

const KEYS: [&str; 6] = ["", "", "word", "day", "n", "word, day"];

#[test]
fn aggregates_on_codes_are_those_of_decoded_rows() {
    let db = filled(ROWS);
    let table = db.store.catalog().table("t").unwrap().id;
    let units = with(&db, ScanEngine::units(64 << 20).unwrap());
    let mut prng = Prng::new(3);
    for round in 0..40 {
        let items: Vec<&str> = (0..1 + prng.below(5))
            .map(|_| AGGREGATES[prng.below(AGGREGATES.len() as u64) as usize])
            .collect();
        let (key, items) = (KEYS[prng.below(6) as usize], items.join(", "));
        let predicate = match prng.below(3) {
            0 => "true".to_owned(),
            1 => predicate(&mut prng),
            _ => format!("{} AND {}", predicate(&mut prng), predicate(&mut prng)),
        };
        // No filter on codes decides whether a sum is above a number.
        let [on_codes, decoded] = ["", " AND id + 0 >= 0"].map(|more| match key {
            "" => format!("SELECT {items} FROM t WHERE {predicate}{more}"),
            key => {
                format!("SELECT {key}, {items} FROM t WHERE {predicate}{more} GROUP BY {key} ORDER BY {key}")
            }
        });
        let expected = db.text(&decoded);
        assert_eq!(db.text(&on_codes), expected, "{on_codes}");
        assert_eq!(units.text(&on_codes), expected, "{on_codes} on units");
        if round % 8 == 7 {
            change(&db, table);
        }
    }
    for db in [&db, &units] {
        let rows = db.engine.rows_aggregated_on_codes();
        assert!(rows > 5 * ROWS as u64, "{rows} rows on codes");
    }
}

/// A column of few values is known by its copies, unless values go with the place in the table.
#[test]
fn joins_are_ordered_by_what_copies_tell_of_values() {
    let db = filled(ROWS);
    let (source, catalog) = (db.source(), db.store.catalog());
    let table = catalog.table("t").unwrap().id;
    let few: Vec<Option<u64>> = (0..5).map(|column| source.few_values(table, column)).collect();
    assert_eq!(few, [None, None, Some(40), None, None]);
    let layout = weft_types::RowLayout::new(&[SqlType::Int4]);
    let named = db.table("named", &[("id", SqlType::Int4)], &[0]);
    let rows = (0..500).map(|id| layout.encode(&[Value::Int4(id * 7)]).unwrap());
    db.insert_encoded(named, &rows.collect::<Vec<_>>());
    // 1,500 rows have the word: the other table is built. Without a copy 250 would be expected.
    let plan = db.explain("SELECT t.n FROM t, named WHERE t.id = named.id AND t.word = 'word 3'");
    let place = |table: &str| plan.find(table).unwrap_or_else(|| panic!("{plan}"));
    assert!(place("table=named") < place("table=t,"), "{plan}");
    // 6 rows are expected to have these.
    let plan =
        db.explain("SELECT t.word FROM t, named WHERE t.id = named.id AND t.n = 3 AND t.word = 'word 3'");
    let place = |table: &str| plan.find(table).unwrap_or_else(|| panic!("{plan}"));
    assert!(place("table=t,") < place("table=named"), "{plan}");
}

/// What a predicate makes of each shape of a statement, as EXPLAIN tells.
#[test]
fn plans_show_which_aggregates_are_on_codes() {
    let db = filled(ROWS);
    let plan = db.explain("SELECT word, count(*), avg(price) FROM t WHERE n BETWEEN 1 AND 9 GROUP BY word");
    assert!(
        plan.contains("AggregateOnCodes: aggregate on codes, by=[word], of=[count(*), sum(price)]"),
        "{plan}"
    );
    for sql in [
        "SELECT sum(n + 1) FROM t",
        "SELECT count(DISTINCT n) FROM t",
        "SELECT count(*) FROM t WHERE word LIKE '%1'",
        "SELECT count(*) FROM t WHERE n < 9 OR id < 3",
        "SELECT n % 3, count(*) FROM t GROUP BY 1",
        "SELECT count(*) FILTER (WHERE n > 3) FROM t",
    ] {
        let plan = db.explain(sql);
        assert!(!plan.contains("on codes"), "{sql}: {plan}");
    }
}
