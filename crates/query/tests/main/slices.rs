//! Heavy queries stop on request and yield to others.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft_base::{BatchId, TableId};
use weft_query::{
    CancelSignal, EngineOptions, PlanningTurn, QueryPriority, QuerySettings, ReadSource, Reading, RowStream,
    RowVisitor,
};
use weft_store::Catalog;
use weft_types::{SqlError, SqlType, Value};

use crate::fixture::{Db, rows_of};

/// Eight trillion combinations, none of which qualifies.
const ENDLESS: &str = "SELECT count(*) FROM c a, c b, c d WHERE a.id + b.id + d.id = -1";

/// The same as an equi-join in which all rows have the same key.
const ENDLESS_BY_KEY: &str = "SELECT count(*) FROM c a JOIN c b ON a.one = b.one JOIN c d ON b.one = d.one WHERE a.id + b.id + d.id = -1";

/// As many combinations, all of which qualify.
const ENDLESS_SUM: &str = "SELECT sum(a.id) FROM c a, c b, c d";

/// A table of 20,000 rows, and few threads.
fn crowded(threads: usize) -> Db {
    let db = Db::with_options(EngineOptions {
        threads,
        ..EngineOptions::default()
    });
    let table = db.table("c", &[("id", SqlType::Int4), ("one", SqlType::Int4)], &[]);
    let layout = Arc::clone(&db.store.catalog().table("c").unwrap().layout);
    let rows: Vec<Vec<u8>> = (0..20_000)
        .map(|id| layout.encode(&[Value::Int4(id), Value::Int4(1)]).unwrap())
        .collect();
    db.insert_encoded(table, &rows);
    db
}

fn start(db: &Db, sql: &str, settings: &QuerySettings) -> RowStream {
    db.run_over(sql, db.source(), settings).unwrap()
}

fn session(db: &Db) -> QuerySettings {
    QuerySettings {
        cancel: CancelSignal::default(),
        planning: PlanningTurn::default(),
        ..db.settings.clone()
    }
}

/// Runs a small query of another session and returns its latency.
fn count(db: &Db) -> Duration {
    let started = Instant::now();
    let rows = rows_of(start(db, "SELECT count(*) FROM c", &session(db))).unwrap();
    assert_eq!(rows, [["20000"]]);
    started.elapsed()
}

/// Checks that another session's query is answered promptly.
fn assert_free(db: &Db) {
    let busy = count(db);
    assert!(busy < Duration::from_secs(2), "answered after {busy:?}");
}

fn run_until_canceled(db: &Db, sql: &str) -> SqlError {
    let settings = session(db);
    let cancel = settings.cancel.clone();
    let mut stream = start(db, sql, &settings);
    let canceler = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        cancel.cancel();
    });
    let error = stream.next_batch().unwrap_err();
    canceler.join().unwrap();
    // Like a session before its next statement: operators that still run must not forget the request.
    settings.cancel.reset();
    error
}

#[test]
fn a_canceled_query_frees_the_engine() {
    for threads in [1, 2] {
        let db = crowded(threads);
        for sql in [ENDLESS, ENDLESS_BY_KEY, ENDLESS_SUM] {
            let error = run_until_canceled(&db, sql);
            assert_eq!(error.state.code(), "57014", "{sql}");
            assert_free(&db);
        }
    }
}

#[test]
fn a_dropped_query_frees_the_engine() {
    let db = crowded(2);
    for sql in [
        ENDLESS,
        ENDLESS_BY_KEY,
        ENDLESS_SUM,
        "SELECT a.id FROM c a, c b, c d",
    ] {
        for _ in 0..4 {
            let stream = start(&db, sql, &session(&db));
            std::thread::sleep(Duration::from_millis(50));
            drop(stream);
        }
        assert_free(&db);
    }
}

#[test]
fn a_query_out_of_time_frees_the_engine() {
    let db = crowded(1);
    for sql in [ENDLESS, ENDLESS_BY_KEY] {
        let started = Instant::now();
        let settings = QuerySettings {
            deadline: Some(started + Duration::from_millis(500)),
            ..session(&db)
        };
        let run = db.run_over(sql, db.source(), &settings);
        let error = run.and_then(|mut stream| stream.next_batch()).unwrap_err();
        assert_eq!(error.state.code(), "57014");
        assert!(error.message.contains("statement timeout"), "{}", error.message);
        assert!(started.elapsed() < Duration::from_secs(2));
        assert_free(&db);
    }
}

/// Time until the query is planned and runs, or is refused.
fn planning_time(db: &Db, sql: &str, settings: &QuerySettings) -> (Duration, Result<(), SqlError>) {
    let started = Instant::now();
    let outcome = db.run_over(sql, db.source(), settings).map(drop);
    (started.elapsed(), outcome)
}

#[test]
fn stopped_plannings_end_soon() {
    // Statements this deep need a stack like a session's.
    let deep = std::thread::Builder::new().stack_size(256 << 20);
    let test = deep.spawn(a_stopped_planning_ends_soon).unwrap();
    test.join().unwrap();
}

/// A session plans one large query at a time, so its next one waits for the planning that was stopped.
fn a_stopped_planning_ends_soon() {
    let db = crowded(1);
    let large = format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(80));
    let forms = [
        ("SELECT 1", " UNION SELECT 2", 200),
        ("SELECT 1", " EXCEPT SELECT id FROM c", 120),
        ("VALUES (1)", ", ((SELECT 1))", 2000),
    ];
    for (start, term, count) in forms {
        let sql = format!("{start}{}", term.repeat(count));
        let (whole, outcome) = planning_time(&db, &sql, &session(&db));
        outcome.unwrap();
        let hurried = QuerySettings {
            deadline: Some(Instant::now() + whole / 8),
            ..session(&db)
        };
        assert_eq!(
            planning_time(&db, &sql, &hurried).1.unwrap_err().state.code(),
            "57014"
        );
        let next = QuerySettings {
            deadline: None,
            ..hurried
        };
        let (waited, outcome) = planning_time(&db, &large, &next);
        outcome.unwrap();
        assert!(
            waited < whole / 4,
            "{waited:?} after a planning of {whole:?}{term}"
        );
    }
}

#[test]
fn a_small_query_does_not_wait_for_a_heavy_one() {
    let db = crowded(1);
    for sql in [ENDLESS, ENDLESS_BY_KEY, ENDLESS_SUM] {
        let heavy = start(&db, sql, &session(&db));
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..3 {
            let waited = count(&db);
            assert!(waited < Duration::from_secs(1), "{sql}: {waited:?}");
        }
        drop(heavy);
    }
}

#[test]
fn two_heavy_queries_share_one_thread() {
    let db = crowded(1);
    // One of ten million pairs qualifies.
    let sql = "SELECT a.id, b.id FROM c a, c b WHERE a.id < 500 AND a.id * 7 + b.id = 5";
    let mut first = start(&db, sql, &session(&db));
    let mut second = start(&db, sql, &session(&db));
    let started = Instant::now();
    let one = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let rows = second.next_batch().unwrap().unwrap().num_rows();
            (rows, started.elapsed())
        });
        let rows = first.next_batch().unwrap().unwrap().num_rows();
        [(rows, started.elapsed()), other.join().unwrap()]
    });
    let times = one.map(|(rows, time)| {
        assert!(rows > 0);
        time
    });
    let (sooner, later) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*later < *sooner * 2 + Duration::from_millis(500), "{times:?}");
}

#[test]
fn slices_change_no_result_and_no_plan() {
    let db = crowded(2);
    let text = |sql: &str| rows_of(start(&db, sql, &session(&db))).unwrap();
    assert_eq!(
        text("SELECT count(*), min(a.id), max(b.id) FROM c a, c b WHERE a.id < 50 AND a.id + b.id = 19999"),
        [["50", "0", "19999"]]
    );
    assert_eq!(
        text(
            "SELECT a.id, b.id FROM (SELECT id FROM c WHERE id > 19950) a LEFT JOIN c b ON a.id > b.id + 19997 \
             ORDER BY 1 DESC, 2 LIMIT 4"
        ),
        [["19999", "0"], ["19999", "1"], ["19998", "0"], ["19997", "NULL"]]
    );
    assert_eq!(
        text("SELECT id FROM c ORDER BY id DESC OFFSET 1 LIMIT 2"),
        [["19998"], ["19997"]]
    );
    assert_eq!(
        text(
            "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT sum(i) FROM n"
        ),
        [["1275"]]
    );
    let reading = Reading {
        source: db.source(),
        target: None,
        given: None,
        steps: weft_query::StepRows::default(),
        environment: db.environment(),
    };
    let query = db.query(ENDLESS, &[]).unwrap();
    let plan = db.engine.explain(&query, reading, &[], &session(&db)).unwrap();
    assert!(!plan.join("\n").contains("Slice"), "{plan:#?}");
}

/// Remembers which threads read it: their names and how nice they are.
struct Watched {
    inner: Arc<dyn ReadSource>,
    readers: Arc<Mutex<BTreeSet<(String, i64)>>>,
}

/// The niceness of the calling thread.
fn niceness() -> i64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, behind_the_name) = stat.rsplit_once(')').unwrap();
    behind_the_name
        .split_whitespace()
        .nth(16)
        .unwrap()
        .parse()
        .unwrap()
}

impl ReadSource for Watched {
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
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.readers.lock().unwrap().insert((name, niceness()));
        self.inner.read_chunk(table, chunk, visit)
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        self.inner.row_count_estimate(table)
    }
}

/// What reads many rows gives way by itself, other queries do not, and a session can say otherwise.
#[test]
fn long_queries_run_on_threads_that_give_way() {
    let db = crowded(2);
    let own = niceness();
    let readers_of = |sql: &str, priority| {
        let readers = Arc::default();
        let source = Watched {
            inner: db.source(),
            readers: Arc::clone(&readers),
        };
        let settings = QuerySettings {
            priority,
            ..session(&db)
        };
        rows_of(db.run_over(sql, Arc::new(source), &settings).unwrap()).unwrap();
        let names: Vec<(String, i64)> = readers.lock().unwrap().iter().cloned().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        names.into_iter().next().unwrap()
    };
    let long = "SELECT sum(a.id) FROM c a JOIN c b ON a.id = b.id";
    let short = "SELECT sum(id) FROM c";
    let long_inside = format!("WITH t AS MATERIALIZED ({long}) SELECT * FROM t");
    let short_inside = format!("WITH t AS MATERIALIZED ({short}) SELECT * FROM t");
    let ordinary = ("weft-query".to_owned(), own);
    let yielding = ("weft-analytics".to_owned(), own.max(10));
    for (sql, priority, expected) in [
        (long, QueryPriority::Auto, &yielding),
        (short, QueryPriority::Auto, &ordinary),
        (long, QueryPriority::Normal, &ordinary),
        (short, QueryPriority::Low, &yielding),
        (&long_inside, QueryPriority::Auto, &yielding),
        (&short_inside, QueryPriority::Auto, &ordinary),
        (&long_inside, QueryPriority::Normal, &ordinary),
    ] {
        assert_eq!(&readers_of(sql, priority), expected, "{sql} {priority:?}");
    }
}
