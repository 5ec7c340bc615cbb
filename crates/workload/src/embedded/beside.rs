//! Transactions beside analytics: a contender around another one, with sessions that query back to back.
//!
//! ```text
//!   round     clients of the inner contender  ================================>
//!             analysts                       query 0, 1, 2, ... 0, 1, 2, ... |   until the last client is gone
//! ```
//!
//! The queries are of the CH-benCHmark, on TPC-C's tables as `tpcc::population` makes them (amounts are
//! integers). Source: Cole et al., "The mixed workload CH-benCHmark", DBTest 2011; DBA 1 (analytics are to
//! leave transactions alone).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft::Database;

use crate::driver::{Client, Contender, Finished, RunError};

/// Queries 1, 6, 12 and 14 of the CH-benCHmark, and a scan of the stock.
pub const CH_QUERIES: [&str; 5] = [
    "SELECT ol_number, sum(ol_quantity), sum(ol_amount), avg(ol_quantity), avg(ol_amount), count(*) FROM order_line \
     WHERE ol_delivery_d > '2007-01-02' GROUP BY ol_number ORDER BY ol_number",
    "SELECT sum(ol_amount) FROM order_line WHERE ol_delivery_d >= '1999-01-01' AND ol_delivery_d < '2030-01-01' \
     AND ol_quantity BETWEEN 1 AND 100000",
    "SELECT o_ol_cnt, sum(CASE WHEN o_carrier_id <= 2 THEN 1 ELSE 0 END), sum(CASE WHEN o_carrier_id > 2 THEN 1 \
     ELSE 0 END) FROM orders, order_line WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND \
     o_entry_d <= ol_delivery_d AND ol_delivery_d < '2030-01-01' GROUP BY o_ol_cnt ORDER BY o_ol_cnt",
    "SELECT 100 * sum(CASE WHEN i_data LIKE 'a%' THEN ol_amount ELSE 0 END) / (1 + sum(ol_amount)) FROM order_line, \
     item WHERE ol_i_id = i_id",
    "SELECT count(*), sum(s_ytd) FROM stock WHERE s_quantity < 15",
];

/// How analysts' sessions ask for processors: a value of `weft.query_priority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Long queries give way to transactions.
    Auto,
    /// They do not.
    Normal,
}

impl Priority {
    fn setting(self) -> &'static str {
        match self {
            Priority::Auto => "SET weft.query_priority = auto",
            Priority::Normal => "SET weft.query_priority = normal",
        }
    }
}

/// A contender beside analysts.
pub struct Beside<'d, C> {
    /// The name in tables.
    pub name: &'d str,
    inner: C,
    database: &'d Database,
    analysts: usize,
    priority: Priority,
    counts: Arc<Counts>,
    /// Those of the round that runs.
    running: Mutex<Weak<Analysts>>,
}

/// What analysts have done since the contender was made.
#[derive(Debug, Default)]
struct Counts {
    queries: AtomicU64,
    nanos: AtomicU64,
    /// Why one of them ended early.
    failed: OnceLock<RunError>,
}

impl Counts {
    fn fail(&self, error: RunError) {
        // The first one counts.
        let _ = self.failed.set(error);
    }
}

impl<'d, C> Beside<'d, C> {
    /// `inner`, with so many sessions that query `database`.
    pub fn new(name: &'d str, inner: C, database: &'d Database, analysts: usize, priority: Priority) -> Self {
        Beside {
            name,
            inner,
            database,
            analysts,
            priority,
            counts: Arc::default(),
            running: Mutex::default(),
        }
    }

    /// The analysts of this round; the first client starts them.
    fn analysts(&self) -> Result<Arc<Analysts>, RunError> {
        let mut running = self
            .running
            .lock()
            .map_err(|_| RunError("another client panicked".to_owned()))?;
        if let Some(analysts) = running.upgrade() {
            return Ok(analysts);
        }
        let started = Analysts::start(self.database, self.analysts, self.priority, &self.counts)?;
        let started = Arc::new(started);
        *running = Arc::downgrade(&started);
        Ok(started)
    }
}

/// Sessions that query until they are dropped.
struct Analysts {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    counts: Arc<Counts>,
}

impl Analysts {
    fn start(
        database: &Database,
        count: usize,
        priority: Priority,
        counts: &Arc<Counts>,
    ) -> Result<Self, RunError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let (database, stop, counts) = (database.clone(), Arc::clone(&stop), Arc::clone(counts));
            let thread = std::thread::Builder::new().name("analyst".to_owned());
            let started = thread.spawn(move || {
                if let Err(error) = query_until(&database, priority, number, &stop, &counts) {
                    counts.fail(error);
                }
            });
            threads.push(started.map_err(|e| RunError::doing("starting an analyst", e))?);
        }
        Ok(Analysts {
            stop,
            threads,
            counts: Arc::clone(counts),
        })
    }
}

fn query_until(
    database: &Database,
    priority: Priority,
    first: usize,
    stop: &AtomicBool,
    counts: &Counts,
) -> Result<(), RunError> {
    let mut session = database.session();
    let set = session.run(priority.setting());
    set.map_err(|e| RunError::doing("setting the priority", e))?;
    for sql in CH_QUERIES.iter().cycle().skip(first) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let began = Instant::now();
        let answered = session.query(sql, &[]);
        answered.map_err(|e| RunError::doing(sql, e))?;
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counts.queries.fetch_add(1, Ordering::Relaxed);
        counts.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
    Ok(())
}

impl Drop for Analysts {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                self.counts.fail(RunError("an analyst panicked".to_owned()));
            }
        }
    }
}

/// A client that keeps the analysts of its round.
struct BesideClient<'c, R> {
    inner: Box<dyn Client<R> + 'c>,
    analysts: Arc<Analysts>,
}

impl<R: 'static, C: Contender<R>> Contender<R> for Beside<'_, C> {
    fn name(&self) -> &str {
        self.name
    }

    fn client(&self) -> Result<Box<dyn Client<R> + '_>, RunError> {
        Ok(Box::new(BesideClient {
            inner: self.inner.client()?,
            analysts: self.analysts()?,
        }))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        let columns = self.database.engine().stats().columns;
        let mut all = self.inner.counters();
        all.extend([
            ("queries", self.counts.queries.load(Ordering::Relaxed) as f64),
            ("query_ns", self.counts.nanos.load(Ordering::Relaxed) as f64),
            ("rows_from_columns", columns.rows_from_columns as f64),
            ("rows_from_slots", columns.rows_from_slots as f64),
        ]);
        all
    }
}

impl<R> Client<R> for BesideClient<'_, R> {
    fn start(&mut self, request: R) -> Result<(), RunError> {
        self.inner.start(request)
    }

    fn start_many(&mut self, requests: &mut Vec<R>) -> Result<(), RunError> {
        self.inner.start_many(requests)
    }

    fn finish(&mut self) -> Result<Finished, RunError> {
        match self.analysts.counts.failed.get() {
            Some(error) => Err(error.clone()),
            None => self.inner.finish(),
        }
    }
}

/// A contender that does nothing: what analysts do when they are alone.
pub struct Idle;

/// How long it takes for each nothing.
const IDLE: Duration = Duration::from_millis(10);

struct IdleClient(usize);

impl<R: 'static> Contender<R> for Idle {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn client(&self) -> Result<Box<dyn Client<R> + '_>, RunError> {
        Ok(Box::new(IdleClient(0)))
    }
}

impl<R> Client<R> for IdleClient {
    fn start(&mut self, _: R) -> Result<(), RunError> {
        self.0 += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<Finished, RunError> {
        if self.0 == 0 {
            return Err(RunError("nothing is outstanding".to_owned()));
        }
        self.0 -= 1;
        std::thread::sleep(IDLE);
        Ok(Finished::default())
    }
}
