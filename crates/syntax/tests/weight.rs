//! What the memory of a statement is said to be, against what reading it takes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, which counts.
struct Counting;

/// One test at a time: they count what the process holds.
static ALONE: Mutex<()> = Mutex::new(());
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Text before, what is repeated, and text behind.
const FORMS: &[(&str, &str, &str)] = &[
    ("SELECT 1", ",1", ""),
    ("SELECT 1", ",a", ""),
    ("SELECT ''", ",''", ""),
    ("SELECT 1", ",(SELECT 1)", ""),
    ("SELECT 1", ",(SELECT FROM a)", ""),
    ("SELECT 1", ",(VALUES(1))", ""),
    ("SELECT 1", ",1::int", ""),
    ("SELECT 1", ",f(1)", ""),
    ("SELECT f(1", ",1", ")"),
    ("SELECT f(1", ",f()", ")"),
    ("SELECT 1", ",f() OVER ()", ""),
    ("SELECT 1", ",sum(a) FILTER (WHERE b) OVER w", ""),
    ("SELECT 1 IN (1", ",1", ")"),
    ("SELECT 1 IN ((SELECT 1)", ",(SELECT 1)", ")"),
    ("SELECT ARRAY[1", ",1", "]"),
    ("SELECT ARRAY[[1]", ",[1]", "]"),
    ("SELECT (1", ",1", ")"),
    ("SELECT ((1))", ",((1))", ""),
    ("SELECT CASE WHEN a THEN 1", " WHEN a THEN 1", " END"),
    ("SELECT 1 FROM a", ",a", ""),
    ("SELECT 1 FROM a", ",f(1)", ""),
    ("SELECT 1 FROM a", ",(SELECT 1) a", ""),
    ("SELECT 1 ORDER BY 1", ",1", ""),
    ("SELECT 1 GROUP BY 1", ",1", ""),
    ("SELECT 1 GROUP BY GROUPING SETS (1", ",(1)", ")"),
    ("SELECT DISTINCT ON (1", ",1", ") 1"),
    ("WITH a AS (SELECT 1)", ",a AS (SELECT 1)", " SELECT 1"),
    ("SELECT 1 WINDOW w AS ()", ",w AS ()", ""),
    ("VALUES (1)", ",(1)", ""),
    ("INSERT INTO a VALUES (1,'x')", ",(1,'x')", ""),
    ("INSERT INTO a VALUES (1) RETURNING 1", ",1", ""),
    ("VALUES (1) ORDER BY 1", ",1", ""),
    (
        "INSERT INTO a VALUES (1) ON CONFLICT DO UPDATE SET a=1",
        ",a=1",
        "",
    ),
    ("INSERT INTO a VALUES (f(1))", ",(f(1))", ""),
    ("CREATE TABLE a (a int, PRIMARY KEY (a", ",a", "))"),
    ("CREATE INDEX ON a USING btree (a", ",a", ")"),
    ("SELECT (x)", ".a", ""),
    ("SELECT a", "[1]", ""),
    ("CREATE TABLE a (a int", " NULL", ")"),
    ("SELECT 1 FROM a AS values", ",a", ""),
    ("SELECT 1 FROM (SELECT 1 FROM a AS values", ",a", ") b"),
    ("SELECT 1 FROM (SELECT 1 FROM a AS values", ",f(1)", ") b"),
    ("SELECT 1 IN (SELECT values", ",1", ")"),
    ("SELECT coalesce(1", ",1", ")"),
    ("SELECT 1 FROM a", " NATURAL JOIN a", ""),
    ("INSERT INTO a (a", ",a", ") VALUES (1)"),
    ("UPDATE a SET a=1", ",a=1", ""),
    ("UPDATE a SET a=1", ",(a,b)=(1,2)", ""),
    ("DELETE FROM a USING a", ",a", ""),
    ("CREATE TABLE a (a int", ",a int", ")"),
    (
        "CREATE TABLE a (a int",
        ",a int NOT NULL DEFAULT 1 CHECK (a>1)",
        ")",
    ),
    ("CREATE TABLE a (a int", ",UNIQUE (a)", ")"),
    ("CREATE INDEX ON a (a", ",a", ")"),
    ("DROP TABLE a", ",a", ""),
    ("TRUNCATE a", ",a", ""),
    ("SELECT interval '1'", ",interval '1'", ""),
    ("SELECT 1", ",EXTRACT(year FROM a)", ""),
    ("SELECT 1", ",TRIM(a)", ""),
    ("SELECT 1", ",$1", ""),
    ("SELECT a.b", ",a.b.c.d", ""),
    ("SELECT \"a\"", ",\"a\"", ""),
];

/// How often each is repeated: a list of so many has just been copied to one of twice the size.
const COUNT: usize = 1_030;

#[test]
fn a_tree_takes_no_more_than_is_said() {
    let _alone = ALONE.lock();
    let mut wrong = Vec::new();
    for (before, part, behind) in FORMS {
        let sql = format!("{before}{}{behind}", part.repeat(COUNT));
        let said = weft_syntax::reading_bytes(&sql).unwrap();
        let held = HELD.load(Ordering::Relaxed);
        MOST.store(held, Ordering::Relaxed);
        let read = weft_syntax::with_statement(&sql, |_| Ok(()));
        let took = MOST.load(Ordering::Relaxed) - held;
        let each = |bytes: usize| bytes / (COUNT + 1);
        println!(
            "{before}{part}{behind}: {} of {} bytes each",
            each(took),
            each(said)
        );
        if took > said || said > 30 * took {
            wrong.push(format!(
                "{before}{part}{behind}: took {took}, said {said}; {:?}",
                read.err()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_statement_for_which_there_is_no_memory_is_refused() {
    let _alone = ALONE.lock();
    let count = weft_syntax::reading_bytes_max() / 10_000;
    let sql = format!("SELECT (1{})", ",(SELECT 1)".repeat(count));
    let error = weft_syntax::with_statement(&sql, |_| Ok(())).unwrap_err();
    assert_eq!(error.state.code(), "53200");
    assert!(
        error.fields().detail.as_ref().unwrap().contains("MiB"),
        "{error:?}"
    );
    // What was reserved is given back.
    for _ in 0..3 {
        let sql = format!("SELECT (1{})", ",(SELECT 1)".repeat(count / 10));
        weft_syntax::with_statement(&sql, |_| Ok(())).unwrap();
    }
}
