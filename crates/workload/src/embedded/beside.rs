//! Transactions beside analytics: a contender around another one, with threads that do something else back to
//! back.
//!
//! ```text
//!   round     clients of the inner contender  ================================>
//!             background                      query, query, query ...        |   until the last client ends
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

/// What a thread in the background does again and again.
pub type Step = Box<dyn FnMut() -> Result<(), RunError> + Send>;

/// What runs beside transactions.
pub trait Background: Send + Sync {
    /// Prepares one of its threads, on that thread.
    fn begin(&self, number: usize) -> Result<Step, RunError>;
}

/// Nothing: for a contender that is alone.
pub struct Nothing;

impl Background for Nothing {
    fn begin(&self, _number: usize) -> Result<Step, RunError> {
        Ok(Box::new(|| Ok(())))
    }
}

/// Sessions that run [`CH_QUERIES`] in turn.
pub struct Analysts {
    /// The database that they query.
    pub database: Database,
    /// How they ask for processors.
    pub priority: Priority,
}

/// A value of `weft.query_priority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Long queries give way to transactions.
    Auto,
    /// They do not.
    Normal,
}

impl Background for Analysts {
    fn begin(&self, number: usize) -> Result<Step, RunError> {
        let mut session = self.database.session();
        let set = session.run(match self.priority {
            Priority::Auto => "SET weft.query_priority = auto",
            Priority::Normal => "SET weft.query_priority = normal",
        });
        set.map_err(|e| RunError::doing("setting the priority", e))?;
        let mut queries = CH_QUERIES.iter().cycle().skip(number % CH_QUERIES.len());
        Ok(Box::new(move || match queries.next() {
            Some(sql) => match session.query(sql, &[]) {
                Ok(_) => Ok(()),
                Err(error) => Err(RunError::doing(sql, error)),
            },
            None => Ok(()),
        }))
    }
}

/// Sessions that do nothing but keep a snapshot, and take another one again and again: what analytics cost
/// besides processors, because nothing is freed that a snapshot may still read.
pub struct Holders {
    /// The database that they read.
    pub database: Database,
    /// How long each snapshot is kept.
    pub time: Duration,
}

impl Background for Holders {
    fn begin(&self, _number: usize) -> Result<Step, RunError> {
        let (mut session, time) = (self.database.session(), self.time);
        Ok(Box::new(move || {
            let mut run = |sql: &str| session.run(sql).map_err(|e| RunError::doing(sql, e));
            run("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
            run("SELECT w_id FROM warehouse WHERE w_id = 1")?;
            std::thread::sleep(time);
            run("COMMIT")
        }))
    }
}

/// A contender beside threads in the background.
pub struct Beside<'d, C> {
    name: String,
    inner: C,
    database: &'d Database,
    background: Arc<dyn Background>,
    threads: usize,
    counts: Arc<Counts>,
    /// Those of the round that runs.
    running: Mutex<Weak<Running>>,
}

/// What the threads have done since the contender was made.
#[derive(Debug, Default)]
struct Counts {
    steps: AtomicU64,
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
    /// `inner`, beside so many threads. Whose rows come from columns is counted for `database`.
    pub fn new(
        name: impl Into<String>,
        inner: C,
        database: &'d Database,
        background: Arc<dyn Background>,
        threads: usize,
    ) -> Self {
        Beside {
            name: name.into(),
            inner,
            database,
            background,
            threads,
            counts: Arc::default(),
            running: Mutex::default(),
        }
    }

    /// The threads of this round; the first client starts them.
    fn running(&self) -> Result<Arc<Running>, RunError> {
        let running = self.running.lock();
        let mut running = running.map_err(|_| RunError("another client panicked".to_owned()))?;
        if let Some(running) = running.upgrade() {
            return Ok(running);
        }
        let started = Arc::new(Running::start(&self.background, self.threads, &self.counts)?);
        *running = Arc::downgrade(&started);
        Ok(started)
    }
}

/// Threads that work until they are dropped.
struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    counts: Arc<Counts>,
}

impl Running {
    fn start(
        background: &Arc<dyn Background>,
        threads: usize,
        counts: &Arc<Counts>,
    ) -> Result<Self, RunError> {
        let mut running = Running {
            stop: Arc::default(),
            threads: Vec::with_capacity(threads),
            counts: Arc::clone(counts),
        };
        for number in 0..threads {
            let (background, counts) = (Arc::clone(background), Arc::clone(counts));
            let stop = Arc::clone(&running.stop);
            let thread = std::thread::Builder::new().name("background".to_owned());
            let started = thread.spawn(move || {
                if let Err(error) = work_until(background.as_ref(), number, &stop, &counts) {
                    counts.fail(error);
                }
            });
            let thread = started.map_err(|e| RunError::doing("starting a thread", e))?;
            running.threads.push(thread);
        }
        Ok(running)
    }
}

fn work_until(
    background: &dyn Background,
    number: usize,
    stop: &AtomicBool,
    counts: &Counts,
) -> Result<(), RunError> {
    let mut step = background.begin(number)?;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        step()?;
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counts.steps.fetch_add(1, Ordering::Relaxed);
        counts.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
    Ok(())
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                self.counts
                    .fail(RunError("a thread in the background panicked".to_owned()));
            }
        }
    }
}

/// A client that keeps the threads of its round.
struct BesideClient<'c, R> {
    inner: Box<dyn Client<R> + 'c>,
    running: Arc<Running>,
}

impl<R: 'static, C: Contender<R>> Contender<R> for Beside<'_, C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn client(&self) -> Result<Box<dyn Client<R> + '_>, RunError> {
        Ok(Box::new(BesideClient {
            inner: self.inner.client()?,
            running: self.running()?,
        }))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        let columns = self.database.engine().stats().columns;
        let mut all = self.inner.counters();
        all.extend([
            ("steps", self.counts.steps.load(Ordering::Relaxed) as f64),
            ("step_ns", self.counts.nanos.load(Ordering::Relaxed) as f64),
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
        match self.running.counts.failed.get() {
            Some(error) => Err(error.clone()),
            None => self.inner.finish(),
        }
    }
}

/// A contender that does nothing: what the background does when it is alone.
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
