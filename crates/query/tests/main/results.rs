//! Round trips of every type through Arrow; batches, cancellation, memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_base::{BatchId, RowId, TableId};
use weft_query::{EngineOptions, GivenRows, QuerySettings, ReadSource, RowVisitor};
use weft_store::Catalog;
use weft_types::{SqlError, SqlType};

use crate::fixture::{Db, bank, numeric, rows_of};

#[test]
fn every_type_survives_the_round_trip() {
    let db = Db::new();
    let columns = [
        ("b", SqlType::Bool, "t"),
        ("i2", SqlType::Int2, "-32768"),
        ("i4", SqlType::Int4, "2147483647"),
        ("i8", SqlType::Int8, "-9223372036854775808"),
        ("f4", SqlType::Float4, "1.5"),
        ("f8", SqlType::Float8, "-0.1"),
        ("n", numeric(10, 2), "12345678.90"),
        ("big", numeric(38, 10), "1234567890123456789012345678.0123456789"),
        (
            "free",
            SqlType::Numeric(None),
            "123456789012345678901234567890.125",
        ),
        ("t", SqlType::Text, "héllo"),
        ("vc", SqlType::Varchar(Some(10)), "abc"),
        ("c", SqlType::Char(6), "ab    "),
        ("by", SqlType::Bytea, "\\x00ff10"),
        ("d", SqlType::Date, "1999-12-31"),
        ("ts", SqlType::Timestamp, "1969-07-20 20:17:40.5"),
        ("tz", SqlType::TimestampTz, "2038-01-19 03:14:08+00"),
        ("u", SqlType::Uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ];
    let mut definition = vec![("id", SqlType::Int4)];
    definition.extend(columns.iter().map(|(name, ty, _)| (*name, *ty)));
    let table = db.table("all_types", &definition, &[0]);
    let mut full = vec!["1"];
    full.extend(columns.iter().map(|(_, _, text)| *text));
    let mut empty = vec!["2"];
    empty.extend(columns.iter().map(|_| "NULL"));
    db.insert(table, &[&full, &empty]);
    assert_eq!(db.rows("SELECT * FROM all_types ORDER BY id"), [full, empty]);
    let types: Vec<String> = definition
        .iter()
        .map(|(name, ty)| format!("{name} {}", ty.name()))
        .collect();
    assert_eq!(db.columns("SELECT * FROM all_types"), types);
    for (name, _, text) in &columns {
        let sql = format!("SELECT max({name}) FROM all_types WHERE {name} IS NOT NULL");
        if !matches!(*name, "b" | "u" | "by") {
            assert_eq!(db.text(&sql).trim_end(), text.trim_end(), "{sql}");
        }
        let sql = format!("SELECT count(*) FROM all_types x JOIN all_types y ON x.{name} = y.{name}");
        assert_eq!(db.text(&sql), "1", "{sql}");
    }
}

fn numbers(db: &Db, count: i32) -> TableId {
    let table = db.table(
        "numbers",
        &[
            ("id", SqlType::Int4),
            ("g", SqlType::Int4),
            ("pad", SqlType::Text),
        ],
        &[0],
    );
    let layout = Arc::clone(&db.store.catalog().table("numbers").unwrap().layout);
    let rows: Vec<Vec<u8>> = (0..count)
        .map(|i| {
            let values = [
                weft_types::Value::Int4(i),
                weft_types::Value::Int4(i % 10),
                weft_types::Value::Text(format!("padding number {i:010}")),
            ];
            layout.encode(&values).unwrap()
        })
        .collect();
    db.insert_encoded(table, &rows);
    table
}

#[test]
fn many_chunks_and_batches() {
    let db = Db::with_options(EngineOptions {
        threads: 2,
        batch_rows: 1000,
        ..EngineOptions::default()
    });
    numbers(&db, 30_000);
    assert_eq!(
        db.text("SELECT count(*), sum(id), min(id), max(id) FROM numbers"),
        "30000|449985000|0|29999"
    );
    assert_eq!(
        db.text("SELECT g, count(*) FROM numbers GROUP BY g ORDER BY g LIMIT 2"),
        "0|3000\n1|3000"
    );
    assert_eq!(db.rows("SELECT id FROM numbers LIMIT 2500").len(), 2500);
    assert_eq!(
        db.text("SELECT count(*) FROM numbers x JOIN numbers y ON x.id = y.id WHERE x.g = 3"),
        "3000"
    );
    assert_eq!(
        db.text("SELECT id FROM numbers WHERE id >= 29998 ORDER BY id"),
        "29998\n29999"
    );
    assert_eq!(
        db.text("SELECT id FROM numbers ORDER BY id DESC LIMIT 3"),
        "29999\n29998\n29997"
    );
}

/// Counts the rows that scans and range reads visit.
struct Counting {
    inner: Arc<dyn ReadSource>,
    rows: Arc<std::sync::atomic::AtomicUsize>,
}
impl ReadSource for Counting {
    fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog()
    }
    fn batch(&self) -> BatchId {
        self.inner.batch()
    }
    fn chunk_count(&self, table: TableId) -> usize {
        self.inner.chunk_count(table)
    }
    fn read_chunk(&self, table: TableId, chunk: usize, visit: RowVisitor<'_>) -> Result<(), SqlError> {
        self.inner.read_chunk(table, chunk, &mut |row, handle| {
            self.rows.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            visit(row, handle);
        })
    }
    fn read_range(
        &self,
        index: &weft_store::IndexDef,
        low: std::ops::Bound<&[u8]>,
        high: std::ops::Bound<&[u8]>,
        visit: RowVisitor<'_>,
    ) -> Result<bool, SqlError> {
        self.inner.read_range(index, low, high, &mut |row, handle| {
            self.rows.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            visit(row, handle);
        })
    }
    fn row_count_estimate(&self, table: TableId) -> usize {
        self.inner.row_count_estimate(table)
    }
}

/// The rows of a query, and how many table rows it read.
fn counted(db: &Db, sql: &str) -> (Vec<Vec<String>>, usize) {
    let rows = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let source = Counting {
        inner: db.source(),
        rows: Arc::clone(&rows),
    };
    let stream = db.run_over(sql, Arc::new(source), &db.settings).unwrap();
    (
        rows_of(stream).unwrap(),
        rows.load(std::sync::atomic::Ordering::Relaxed),
    )
}

#[test]
fn joins_by_key_read_only_the_keys_they_need() {
    let db = Db::new();
    numbers(&db, 20_000);
    let few = db.table("few", &[("id", SqlType::Int4), ("number", SqlType::Int4)], &[0]);
    db.insert(few, &[&["1", "77"], &["2", "19999"], &["3", "5"]]);
    let count = |sql: &str| counted(&db, sql);
    let (rows, read) = count("SELECT pad FROM numbers WHERE id = 12345::bigint");
    assert_eq!((rows.len(), read), (1, 1));
    let (rows, read) = count("SELECT pad FROM numbers WHERE id = 12345");
    assert_eq!(rows, [["padding number 0000012345"]]);
    assert_eq!(read, 1);
    let (rows, read) = count(
        "SELECT f.id, n.g FROM few f JOIN numbers n ON n.id = f.number WHERE f.id IN (1, 3) ORDER BY 1",
    );
    assert_eq!(rows, [["1", "7"], ["3", "5"]]);
    assert!(read <= 20, "the join read {read} rows");
}

/// 20,000 rows with a two-column key.
fn pairs(db: &Db) {
    let types = [("a", SqlType::Int4), ("b", SqlType::Int4), ("c", SqlType::Int4)];
    let pairs = db.table("pairs", &types, &[0, 1]);
    let texts: Vec<[String; 3]> = (0..20_000)
        .map(|number: i32| {
            [
                (number / 100).to_string(),
                (number % 100).to_string(),
                (number % 7).to_string(),
            ]
        })
        .collect();
    let rows: Vec<[&str; 3]> = texts
        .iter()
        .map(|row| row.each_ref().map(String::as_str))
        .collect();
    let rows: Vec<&[&str]> = rows.iter().map(|row| &row[..]).collect();
    db.insert(pairs, &rows);
}

/// Ranges that hold many rows each are given up for the table once a few have shown it, if many are left.
#[test]
fn many_rows_are_not_read_through_an_index() {
    let db = Db::new();
    pairs(&db);
    let hot = db.table("hot", &[("a", SqlType::Int4), ("b", SqlType::Int4)], &[0, 1]);
    let texts: Vec<[String; 2]> = (0..20_000_i32)
        .map(|number| [(number - 1_000).max(0).to_string(), number.to_string()])
        .collect();
    let rows: Vec<[&str; 2]> = texts
        .iter()
        .map(|row| row.each_ref().map(String::as_str))
        .collect();
    let rows: Vec<&[&str]> = rows.iter().map(|row| &row[..]).collect();
    db.insert(hot, &rows);
    let of_values = |table: &str, count: usize, expected: usize| {
        let values: Vec<String> = (0..count).map(|value| (value * 3).to_string()).collect();
        let sql = format!("SELECT count(*) FROM {table} WHERE a IN ({})", values.join(", "));
        let (rows, read) = counted(&db, &sql);
        assert_eq!(rows, [[expected.to_string()]], "{sql}");
        read
    };
    assert_eq!(of_values("pairs", 3, 300), 300);
    assert_eq!(of_values("pairs", 28, 2_800), 2_800);
    // Sixteen ranges were read in vain.
    assert_eq!(of_values("pairs", 40, 4_000), 21_600);
    // One key with many rows says nothing about the others.
    assert_eq!(of_values("hot", 500, 1_500), 1_500);
}

#[test]
fn lists_rows_and_alternatives_read_only_the_keys_they_name() {
    let db = Db::new();
    pairs(&db);
    let many: Vec<String> = (0..400)
        .map(|number| format!("({}, {})", number % 200, number % 90))
        .collect();
    let many = format!("SELECT count(*) FROM pairs WHERE (a, b) IN ({})", many.join(", "));
    for (sql, answer, reads) in [
        (
            "SELECT c FROM pairs WHERE (a, b) IN ((5, 7), (6, 8), (5, 7))",
            "3 6",
            2,
        ),
        (
            "SELECT c FROM pairs WHERE a = 5 AND b = 7 OR a = 6 AND b = 8",
            "3 6",
            2,
        ),
        (
            "SELECT count(*) FROM pairs WHERE a = 5 AND b IN (1, 2, 3, 3)",
            "3",
            3,
        ),
        (
            "SELECT count(*) FROM pairs WHERE a IN (5, 9) AND b IN (1, 2, 500)",
            "4",
            4,
        ),
        (
            "SELECT count(*) FROM pairs WHERE a = 5 AND (b < 3 OR b > 97) OR a = 150 AND b = 1",
            "6",
            6,
        ),
        ("SELECT count(*) FROM pairs WHERE (a, b) > (199, 90)", "9", 9),
        (
            "SELECT count(*) FROM pairs WHERE (a, b) >= (199, 90) AND (a, b) < (199, 93)",
            "3",
            3,
        ),
        ("SELECT count(*) FROM pairs WHERE (a, b) <= (0, 4)", "5", 5),
        (
            "SELECT count(*) FROM pairs WHERE a = 2 + 3 AND b >= 100 - 3 AND 8 / 4 > b - 97",
            "2",
            3,
        ),
        (many.as_str(), "400", 400),
    ] {
        let (rows, read) = counted(&db, sql);
        let mut cells: Vec<String> = rows.into_iter().flatten().collect();
        cells.sort_unstable();
        assert_eq!(cells.join(" "), answer, "{sql}");
        assert_eq!(read, reads, "{sql}");
    }
    let plan = db.explain("SELECT c FROM pairs WHERE (a, b) IN ((5, 7), (6, 9))");
    assert!(plan.contains("index=pairs_pkey (2 ranges)"), "{plan}");
}

#[test]
fn joins_over_several_columns_read_only_the_keys_they_need() {
    let db = Db::new();
    pairs(&db);
    let types = [("id", SqlType::Int4), ("x", SqlType::Int4), ("y", SqlType::Int4)];
    let few = db.table("few", &types, &[0]);
    db.insert(
        few,
        &[
            &["1", "5", "7"],
            &["2", "199", "99"],
            &["3", "0", "3"],
            &["4", "900", "1"],
        ],
    );
    let sql = "SELECT f.id, p.c FROM few f JOIN pairs p ON p.a = f.x AND p.b = f.y ORDER BY 1";
    let (rows, read) = counted(&db, sql);
    assert_eq!(rows, [["1", "3"], ["2", "0"], ["3", "3"]]);
    assert!(read <= 10, "the join read {read} rows");
}

#[test]
fn given_rows_replace_one_table() {
    let db = bank();
    let source = db.source();
    let lines = db.store.catalog().table("lines").unwrap().id;
    let layout = Arc::clone(&db.store.catalog().table("lines").unwrap().layout);
    let row = layout
        .encode(&[weft_types::Value::Int4(4), weft_types::Value::Int4(44)])
        .unwrap();
    let overlay = GivenRows::new(source, lines, vec![(RowId::default(), row)]);
    let sql = "SELECT x.owner, l.b FROM lines l JOIN accounts x ON x.id = l.a WHERE l.a = 4";
    let stream = db.run_over(sql, Arc::new(overlay), &db.settings).unwrap();
    assert_eq!(rows_of(stream).unwrap(), [["cid", "44"]]);
}

#[test]
fn a_canceled_query_ends_with_57014() {
    let db = Db::new();
    numbers(&db, 3_000);
    let sql = "SELECT count(*) FROM numbers a, numbers b, numbers c WHERE a.id + b.id + c.id < 0";
    let mut stream = db.run(sql, &[], &[]).unwrap();
    let cancel = db.settings.cancel.clone();
    let canceler = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        cancel.cancel();
    });
    let error = stream.next_batch().unwrap_err();
    canceler.join().unwrap();
    assert_eq!(error.state.code(), "57014");
    assert!(stream.next_batch().unwrap().is_none());
    assert_eq!(db.state("SELECT 1"), "57014");
    db.settings.cancel.reset();
    assert_eq!(db.text("SELECT 1"), "1");
}

#[test]
fn a_statement_timeout_ends_with_57014() {
    let db = Db::new();
    numbers(&db, 3_000);
    let sql = "SELECT count(*) FROM numbers a, numbers b, numbers c WHERE a.id + b.id + c.id < 0";
    let settings = QuerySettings {
        deadline: Some(Instant::now() + Duration::from_millis(100)),
        ..db.settings.clone()
    };
    let outcome = db
        .run_over(sql, db.source(), &settings)
        .and_then(|mut stream| stream.next_batch());
    let error = outcome.map(|_| ()).unwrap_err();
    assert_eq!(error.state.code(), "57014");
    assert!(error.message.contains("timeout"));
}

#[test]
fn a_query_over_its_memory_ends_with_53200() {
    let db = Db::with_options(EngineOptions {
        memory_bytes: 200_000,
        ..EngineOptions::default()
    });
    numbers(&db, 20_000);
    assert_eq!(
        db.state("SELECT count(*) FROM (SELECT DISTINCT pad, id FROM numbers) s JOIN numbers n USING (pad)"),
        "53200"
    );
    // As many values as pairs of rows.
    assert_eq!(
        db.state("SELECT count(s) FROM (SELECT array_agg(id) OVER (ORDER BY id) AS s FROM numbers) w"),
        "53200"
    );
    // One long text, copied once per row.
    for call in ["first_value(t)", "lag(t, i - 1)", "nth_value(t, 1)"] {
        let texts =
            "SELECT i, repeat('x', CASE i WHEN 1 THEN 30000 ELSE 1 END) AS t FROM generate_series(1, 100) i";
        assert_eq!(
            db.state(&format!(
                "SELECT count(v) FROM (SELECT {call} OVER (ORDER BY i) AS v FROM ({texts}) s) w"
            )),
            "53200",
            "{call}"
        );
    }
    assert_eq!(db.text("SELECT count(*) FROM numbers"), "20000");
}
