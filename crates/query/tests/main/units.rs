//! Filters on units: whatever compares the packed codes, and however often it fails, the answers are those of
//! the thread that scans.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_base::{BatchId, Clock, Prng, SystemClock, TableId};
use weft_column::units::{ScanEngine, ScanEngineParams};
use weft_offload::faults::{Fault, FaultPlan, FaultTimes, FaultyUnit};
use weft_offload::unit::PoolUnit;
use weft_offload::{Link, Scheduler, SchedulerConfig, Unit, Units};
use weft_query::EngineOptions;
use weft_store::columns::{ColumnKeeper, CopyPolicy};
use weft_types::{NumericSpec, SqlType, Value, parse_text};

use crate::fixture::Db;

/// Some chunks more than two jobs have.
const ROWS: i32 = 4096 * 300;

const PRICE: SqlType = SqlType::Numeric(Some(NumericSpec {
    precision: 9,
    scale: 2,
}));

/// Every column's values depend on the row's number; some are NULL.
fn values(id: i32) -> [Value; 5] {
    let mixed = weft_ops::mix64(id as u64);
    let some = |value: Value| {
        if mixed.is_multiple_of(13) {
            Value::Null
        } else {
            value
        }
    };
    let cents = (mixed >> 20) % 50_000;
    let price = parse_text(&format!("{}.{:02}", cents / 100, cents % 100), &PRICE).unwrap();
    [
        Value::Int4(id),
        some(Value::Int4((mixed >> 8) as i32 % 1000)),
        some(Value::Text(format!("word {}", (mixed >> 30) % 40))),
        some(price),
        Value::Date(8000 + id / 500),
    ]
}

/// A table that was read until all its columns were copied, and some rows of which were changed since.
pub fn filled(rows: i32) -> Db {
    let db = Db::new();
    let columns = [
        ("id", SqlType::Int4),
        ("n", SqlType::Int4),
        ("word", SqlType::Text),
        ("price", PRICE),
        ("day", SqlType::Date),
    ];
    let table = db.table("t", &columns, &[]);
    let layout = Arc::clone(&db.store.catalog().table("t").unwrap().layout);
    let rows: Vec<Vec<u8>> = (0..rows).map(|id| layout.encode(&values(id)).unwrap()).collect();
    db.insert_encoded(table, &rows);
    let policy = CopyPolicy {
        reads_min: 1,
        ..CopyPolicy::default()
    };
    for _ in 0..2 {
        db.rows("SELECT count(id), count(n), count(word), count(price), count(day) FROM t");
        ColumnKeeper::new(u64::MAX, policy).keep(&db.store, &mut || true);
    }
    change(&db, table);
    db
}

/// Every thousandth row gets the values of another one.
pub fn change(db: &Db, table: TableId) {
    let layout = Arc::clone(&db.store.catalog().table("t").unwrap().layout);
    let batch = BatchId(db.store.boundary().0 + 1);
    let writer = db.store.begin_batch(batch);
    let mut member = writer.member(0);
    let mut slots = Vec::new();
    let mut seen = 0_u64;
    member
        .scan(table, |version| {
            seen += 1;
            if weft_ops::mix64(seen).is_multiple_of(1000) {
                slots.push(version.slot);
            }
        })
        .unwrap();
    for (at, slot) in slots.iter().enumerate() {
        let row = layout.encode(&values(at as i32 * 7)).unwrap();
        member.update(table, *slot, &row).unwrap();
    }
    member.commit();
    writer.finish();
    db.store.publish(batch);
}

/// The same store with other units.
pub fn with(db: &Db, units: Units) -> Db {
    let options = EngineOptions {
        units,
        ..EngineOptions::default()
    };
    Db {
        store: Arc::clone(&db.store),
        ..Db::with_options(options)
    }
}

/// Three engines that fail at one job in five, with memory for a part of the columns.
fn failing() -> Units {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let params = ScanEngineParams {
        memory_bytes_max: 2 << 20,
        ..ScanEngineParams::default()
    };
    let faults: Vec<Fault> = Fault::ALL.into_iter().chain(Fault::OF_BUFFERS).collect();
    let unit = |seed: u64| {
        let spec = params.spec(format!("engine {seed}"), 2, Link::PCIE_3_X8);
        let engine = Box::new(ScanEngine { params });
        let unit = PoolUnit::new(spec, vec![engine], 1.0, &clock).unwrap();
        let plan = FaultPlan::Random {
            per_million: 200_000,
            faults: faults.clone(),
            seed,
        };
        let times = FaultTimes {
            late_ns: 30_000_000,
            dead_ns: 1_000_000,
        };
        Box::new(FaultyUnit::new(unit, clock.clone(), plan, times)) as Box<dyn Unit>
    };
    let mut config = SchedulerConfig {
        // An upset of one word is found by comparing alone.
        compare_per_million: 1_000_000,
        ..SchedulerConfig::default()
    };
    config.health.window = 64;
    config.health.failures_max = 64;
    let scheduler = Scheduler::new(config, clock.clone(), (0..3).map(unit).collect()).unwrap();
    Units::Scheduler {
        name: "failing",
        scheduler: Arc::new(scheduler),
    }
}

/// A predicate on one column.
pub fn predicate(prng: &mut Prng) -> String {
    let n = prng.below(1100) as i64 - 50;
    match prng.below(9) {
        0 => format!("n < {n}"),
        1 => format!("n BETWEEN {n} AND {}", n + 40),
        2 => format!("n IN ({n}, {}, {}, {})", n / 2, n / 3, n / 5),
        3 => format!("word = 'word {}'", n % 45),
        4 => format!("word >= 'word 2' AND word < 'word {}'", 2 + n % 7),
        5 => format!("price > {n}.50"),
        6 => format!("day >= date '1970-01-01' + {}", 18_957 + n * 2),
        7 => format!("n = {n} AND word IN ('word 3', 'word 17', 'word 39')"),
        _ => "n IS NULL".to_owned(),
    }
}

#[test]
fn answers_are_those_of_the_scanning_thread() {
    let here = filled(ROWS);
    let others = [
        with(&here, Units::runtime().unwrap()),
        with(&here, ScanEngine::units(64 << 20).unwrap()),
        with(&here, failing()),
    ];
    let mut prng = Prng::new(7);
    for _ in 0..10 {
        let (one, two) = (predicate(&mut prng), predicate(&mut prng));
        let query = match prng.below(5) {
            0 | 1 => format!("SELECT count(*), sum(id), sum(price), max(word) FROM t WHERE {one}"),
            2 | 3 => format!("SELECT count(*), sum(id), min(day), sum(n) FROM t WHERE {one} AND {two}"),
            _ => format!(
                "SELECT word, count(*), sum(id) FROM t WHERE {one} OR {two} GROUP BY word ORDER BY word"
            ),
        };
        let expected = here.text(&query);
        for db in &others {
            assert_eq!(db.text(&query), expected, "{query}");
        }
    }
    for (db, name) in others.iter().zip(["runtime", "model", "failing"]) {
        let units = db.engine.units();
        let stats = units.stats();
        assert_eq!(units.name(), name);
        assert!(stats.jobs > 10, "{stats:?}");
        match name {
            "runtime" => assert_eq!(stats.done_by_units(), 0),
            "model" => assert_eq!(stats.done_by_cpu(), 0, "{stats:?}"),
            _ => assert!(
                stats.redone_after_failure() > 0 && stats.done_by_units() > 0,
                "{stats:?}"
            ),
        }
    }
    stopping_early(&here);
}

/// Who wants few rows asks no unit, and one that stops early leaves nothing behind: jobs that are under way
/// are cancelled.
fn stopping_early(here: &Db) {
    let db = with(here, ScanEngine::units(64 << 20).unwrap());
    db.rows("SELECT id FROM t WHERE n < 500 LIMIT 3");
    assert_eq!(db.engine.units().stats().jobs, 0);
    let mut stream = db.run("SELECT id FROM t WHERE n < 900", &[], &[]).unwrap();
    stream.next_batch().unwrap();
    drop(stream);
    let expected = here.text("SELECT count(*) FROM t WHERE n < 900");
    assert_eq!(db.text("SELECT count(*) FROM t WHERE n < 900"), expected);

    let deaf = with(here, deaf());
    let scheduler = deaf.engine.units().scheduler().unwrap().clone();
    let is_so = |holds: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !holds() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(holds(), "{}", scheduler.counters());
    };
    let stream = deaf.run("SELECT id FROM t WHERE n < 900", &[], &[]).unwrap();
    is_so(&|| scheduler.counters().units[0].in_flight > 0);
    drop(stream);
    is_so(&|| {
        let counters = scheduler.counters();
        // Nobody is at what the unit was given, so that it is withdrawn.
        counters.cancelled == counters.submitted && counters.units[0].in_flight == 0
    });
}

/// An engine that takes scans and does none.
fn deaf() -> Units {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let spec = ScanEngineParams::default().spec("deaf", 2, Link::PCIE_3_X8);
    let unit = PoolUnit::new(spec, Vec::new(), 1.0, &clock).unwrap();
    let config = SchedulerConfig {
        deadline_ns: u64::MAX / 4,
        hedge_floor_ns: u64::MAX,
        compare_per_million: 0,
        ..SchedulerConfig::default()
    };
    let scheduler = Scheduler::new(config, clock.clone(), vec![Box::new(unit)]).unwrap();
    Units::Scheduler {
        name: "deaf",
        scheduler: Arc::new(scheduler),
    }
}
