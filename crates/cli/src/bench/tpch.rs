//! `weft bench tpch`: TPC-H's 22 queries, hot, one at a time, joined in each way that sessions can ask for.
//!
//! ```text
//!   auto    as sessions have it by default: large joins by number (decision 0037)
//!   hash    DataFusion's joins: the baseline
//! ```
//!
//! `--join` names other ways. Contenders take turns query by query and round by round; the median round
//! counts. All must give the same rows, except for the order of those that a query does not order. Before
//! anything is measured, queries run until they make no more copies of columns. `experiments/tpch` compares
//! with PostgreSQL, DuckDB and DataFusion on Arrow.

use std::time::{Duration, Instant};

use weft::{Database, Options, Rows, Session, Value};
use weft_workload::tpch::{self, Query};
use weft_workload::{Record, driver};

use super::{BenchDir, bar, print};
use crate::arguments::TpchArguments;
use crate::failure::Failure;

/// The contender to which ratios refer.
const BASELINE: &str = "hash";
/// Rows of all tables at scale 1.
const ROWS_AT_ONE: f64 = 8_661_245.0;
/// Copies of columns are made at a quarter of the time.
const COPIES_MADE_WITHIN: Duration = Duration::from_secs(300);
/// Rows that change between two runs of all queries are read from their slots.
const SLOTS_PART: u64 = 20;

/// Loads, runs all queries until their columns are copied, measures, compares answers, prints.
pub(crate) fn run(arguments: &TpchArguments) -> Result<(), Failure> {
    if arguments.rounds == 0 || !(0.01..=1000.0).contains(&arguments.scale) {
        return Err(Failure::Usage(
            "--scale must be between 0.01 and 1000, --rounds at least 1".to_owned(),
        ));
    }
    let queries = wanted(arguments)?;
    let dir = BenchDir::named(arguments.dir.clone(), "tpch")?;
    let database = Database::open(&dir.path, Options::default())?;
    let loading = bar((arguments.scale * ROWS_AT_ONE) as u64, "loading");
    let rows = tpch::load(&database, arguments.scale, &mut |table, rows| {
        loading.set_message(table.to_owned());
        loading.set_position(rows);
    })?;
    loading.finish_and_clear();
    let mut contenders = Vec::new();
    for join in std::iter::once(BASELINE).chain(arguments.join.iter().map(String::as_str)) {
        if contenders
            .iter()
            .all(|contender: &Contender| contender.name != join)
        {
            contenders.push(Contender::new(&database, join, queries.len())?);
        }
    }
    copy_columns(&mut contenders, &queries)?;
    let running = bar((arguments.rounds * queries.len()) as u64, "tpch");
    for round in 0..arguments.rounds {
        for (nth, query) in queries.iter().enumerate() {
            running.set_message(query.name.clone());
            // Each is first as often as any other.
            contenders.rotate_left(1);
            let mut expected: Option<Vec<Vec<Value>>> = None;
            for contender in &mut contenders {
                let found = sorted(&contender.measure(nth, query)?);
                let first = expected.get_or_insert_with(|| found.clone());
                if *first != found {
                    let message = format!("{} joined by {} gives other rows", query.name, contender.name);
                    return Err(Failure::Check(message));
                }
            }
            running.inc(1);
        }
        // With an even number of queries the same one would begin every round.
        if round % 2 == 0 {
            contenders.rotate_left(1);
        }
    }
    running.finish_and_clear();
    let config = format!(
        "scale={} rows={rows} rounds={} threads={} version={}",
        arguments.scale,
        arguments.rounds,
        Options::default().query_threads,
        env!("CARGO_PKG_VERSION")
    );
    let records = records(&contenders, &queries, &config);
    print(arguments.json, &format!("tpch, {config}"), &records)
}

/// The queries that were asked for, or all.
fn wanted(arguments: &TpchArguments) -> Result<Vec<Query>, Failure> {
    let mut queries = tpch::queries(arguments.scale);
    let known = |name: &&String| !queries.iter().any(|query| query.name == **name);
    if let Some(unknown) = arguments.query.iter().find(known) {
        return Err(Failure::Usage(format!(
            "tpch has no query {unknown:?}: Q1 to Q22"
        )));
    }
    queries.retain(|query| arguments.query.is_empty() || arguments.query.contains(&query.name));
    Ok(queries)
}

/// A session that joins in one way, and what it took.
struct Contender {
    name: String,
    session: Session,
    /// Milliseconds by query and round.
    times: Vec<Vec<f64>>,
}

impl Contender {
    fn new(database: &Database, join: &str, queries: usize) -> Result<Contender, Failure> {
        let mut session = database.session();
        session.run(&format!("SET weft.join = {join}"))?;
        Ok(Contender {
            name: join.to_owned(),
            session,
            times: vec![Vec::new(); queries],
        })
    }

    fn measure(&mut self, nth: usize, query: &Query) -> Result<Rows, Failure> {
        // Once more before, because another contender has used the caches.
        self.session.query(&query.sql, &[])?;
        let begin = Instant::now();
        let rows = self.session.query(&query.sql, &[])?;
        if let Some(times) = self.times.get_mut(nth) {
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        Ok(rows)
    }

    fn shown(&mut self, name: &str) -> Result<u64, Failure> {
        let shown = self.session.query(&format!("SHOW weft.{name}"), &[])?;
        match shown.value(0, 0) {
            Value::Text(text) => Ok(text.parse().unwrap_or(0)),
            _ => Ok(0),
        }
    }
}

/// Runs all queries until nearly all rows come from columns.
fn copy_columns(contenders: &mut [Contender], queries: &[Query]) -> Result<(), Failure> {
    let [first, ..] = contenders else {
        return Ok(());
    };
    let begin = Instant::now();
    loop {
        let before = (first.shown("rows_from_slots")?, first.shown("rows_from_columns")?);
        for query in queries {
            first.session.query(&query.sql, &[])?;
        }
        let slots = first.shown("rows_from_slots")? - before.0;
        if first.shown("rows_from_columns")? - before.1 >= SLOTS_PART * slots {
            return Ok(());
        }
        if begin.elapsed() > COPIES_MADE_WITHIN {
            eprintln!("tpch: {slots} rows of one run of all queries still come from their slots");
            return Ok(());
        }
    }
}

/// The rows in an order of their own: a query that does not order all rows may give them in any.
fn sorted(rows: &Rows) -> Vec<Vec<Value>> {
    let mut rows: Vec<Vec<Value>> = rows.iter().map(<[Value]>::to_vec).collect();
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}

fn records(contenders: &[Contender], queries: &[Query], config: &str) -> Vec<Record> {
    let mut contenders: Vec<&Contender> = contenders.iter().collect();
    contenders.sort_by_key(|contender| contender.name != BASELINE);
    let medians = |contender: &Contender| -> Vec<f64> {
        let medians = contender.times.iter().map(|times| driver::median(times.clone()));
        medians.collect()
    };
    let baseline = contenders.first().map(|first| medians(first)).unwrap_or_default();
    let mut records = Vec::new();
    for contender in contenders {
        let own = medians(contender);
        let against = |value: f64| (contender.name != BASELINE).then_some((BASELINE, value));
        for ((query, own), base) in queries.iter().zip(&own).zip(&baseline) {
            let case = format!("{}, {}", query.name, contender.name);
            let record = Record::new("tpch", &case, config, "latency", *own, "ms");
            records.push(record.versus(against(*base)));
        }
        let case = format!("all, {}", contender.name);
        let record = Record::new("tpch", &case, config, "latency", own.iter().sum(), "ms");
        records.push(record.versus(against(baseline.iter().sum())));
    }
    records
}
