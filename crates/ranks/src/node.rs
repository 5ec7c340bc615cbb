//! A rank: its database, its postman, and the thread that keeps the house: what died is buried, what is in
//! doubt is asked, what was decided is told.
//!
//! ```text
//! start   member of the cluster?  mailboxes  postman  in doubt: ask the homes  decided: tell the ranks
//!         the same definitions as the others?  ready
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft::{Database, Session, SqlError, Value};
use weft_fabric::Rank;
use weft_server::backend::{Backend, SessionStart};
use weft_types::SqlState;

use crate::agent::{Agent, Door, Prepared};
use crate::commit::{commit_statement, is_finished, last_answer};
use crate::error;
use crate::identity::{self, Identity};
use crate::message::{Answer, Request, VERSION, outcome};
use crate::post::{Call, Post};
use crate::session::RanksSession;
use crate::step::{AtStep, Step};

/// How often the house is kept.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);
/// How long a prepared transaction waits for its home's word before it asks.
const DOUBT_AFTER: Duration = Duration::from_millis(500);
/// How long a starting rank waits for the homes of its prepared transactions.
const START_WAIT: Duration = Duration::from_secs(5);

/// How long a starting rank waits for the others to start.
const OPENING_MAX: Duration = Duration::from_secs(600);

/// Settings of a rank; all ranks have the same.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a transaction of several ranks waits for a lock.
    pub lock_wait_max: Duration,
    /// How long a rank may give no sign before it counts as lost.
    pub silence_max: Duration,
    /// How long a hold of decisions lasts at most.
    pub hold_max: Duration,
    /// For tests of the tests: queries read each rank whenever it suits.
    #[doc(hidden)]
    pub ignores_vector: bool,
    /// For measurements: queries read whole rows of all parts.
    #[doc(hidden)]
    pub ships_whole_rows: bool,
    /// For tests of the tests: ranks are told of a decision before it is on disk.
    #[doc(hidden)]
    pub tells_early: bool,
    /// For tests.
    #[doc(hidden)]
    pub at_step: AtStep,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            lock_wait_max: Duration::from_millis(100),
            silence_max: Duration::from_secs(5),
            hold_max: Duration::from_secs(1),
            ignores_vector: false,
            ships_whole_rows: false,
            tells_early: false,
            at_step: AtStep::default(),
        }
    }
}

/// What the sessions of a rank share.
pub(crate) struct Shared {
    pub identity: Identity,
    pub config: Config,
    pub agent: Arc<Agent>,
    pub post: Arc<Post>,
    pub next_transaction: AtomicU64,
    pub next_branch: AtomicU64,
    next_hold: AtomicU64,
    /// Decisions that all ranks know.
    delivered: Mutex<Vec<String>>,
    /// Decisions that some rank may not know.
    undelivered: Mutex<Vec<(String, Vec<u32>)>>,
    stopping: AtomicBool,
}

/// A rank that serves. Dropping it stops it.
pub struct Node {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Its sessions, for a server.
#[derive(Clone)]
pub struct Ranks(Arc<Shared>);

impl Backend for Ranks {
    type Session = RanksSession;

    fn set_serves_tls(&self, serves_tls: bool) {
        self.0.agent.database.set_serves_tls(serves_tls);
    }

    fn open_session(&self, start: &SessionStart) -> Result<RanksSession, SqlError> {
        let mut home = self.0.agent.database.session_for(&start.user, start.pid);
        home.set_client(start.encryption.clone());
        Ok(RanksSession::new(Arc::clone(&self.0), home))
    }
}

impl Ranks {
    /// A session of this rank for a caller inside the process.
    #[must_use]
    pub fn session(&self) -> RanksSession {
        RanksSession::new(Arc::clone(&self.0), self.0.agent.database.session())
    }
}

fn of_fabric(error: &weft_fabric::Error) -> SqlError {
    SqlError::new(
        SqlState::SYSTEM_ERROR,
        format!("the ranks cannot be connected: {error}"),
    )
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, SqlError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| SqlError::new(SqlState::SYSTEM_ERROR, format!("no thread for a rank: {error}")))
}

impl Node {
    /// Starts a rank: collective, except for one that returns after its death.
    ///
    /// # Errors
    ///
    /// 55000: the database is not this rank of this cluster; 58000: the ranks cannot be connected, or differ
    /// in version, number or settings; 40001: they differ in their definitions; those of the database.
    pub fn start(rank: &Rank, database: Database, config: Config) -> Result<Node, SqlError> {
        let identity = identity::join(&database, rank.number(), rank.count())?;
        let cluster = fingerprint(rank.count(), &config);
        let agent = Arc::new(Agent::new(
            database,
            identity.rank,
            cluster,
            config.at_step.clone(),
        ));
        // Others may have more to recover than this one.
        rank.set_timeout(OPENING_MAX);
        let post = Post::open(rank, cluster, config.silence_max).map_err(|error| of_fabric(&error))?;
        // From here on: for how long a message may wait for room at a rank that takes none.
        rank.set_timeout(config.silence_max);
        let shared = Arc::new(Shared {
            identity,
            config,
            agent,
            post,
            next_transaction: AtomicU64::new(1),
            next_branch: AtomicU64::new(1),
            next_hold: AtomicU64::new(1),
            delivered: Mutex::default(),
            undelivered: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let mut node = Node {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
        };
        let postman = Arc::clone(&shared);
        let receive = move || postman.post.receive(&Door(Arc::clone(&postman.agent)));
        node.threads.push(thread("weft-postman", receive)?);
        shared.settle()?;
        shared.compare_definitions()?;
        shared.agent.is_ready.store(true, Ordering::Release);
        let keeper = Arc::clone(&shared);
        node.threads
            .push(thread("weft-housekeeper", move || keeper.keep())?);
        Ok(node)
    }

    /// Its sessions.
    #[must_use]
    pub fn backend(&self) -> Arc<Ranks> {
        Arc::new(Ranks(Arc::clone(&self.shared)))
    }

    /// Stops answering other ranks. Sessions must have ended.
    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.agent.is_ready.store(false, Ordering::Release);
        self.shared.agent.stop();
        self.shared.post.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to do.
            let _ = thread.join();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.halt();
    }
}

/// What must be the same on all ranks.
fn fingerprint(rank_count: u32, config: &Config) -> u64 {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let words = [
        VERSION,
        u64::from(rank_count),
        millis(config.lock_wait_max),
        millis(config.silence_max),
        millis(config.hold_max),
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    weft_ops::hash64(&bytes) ^ weft_ops::hash64(env!("CARGO_PKG_VERSION").as_bytes())
}

/// A hold of all ranks' decisions; dropping it releases them.
pub(crate) struct Hold<'a> {
    shared: &'a Shared,
    number: u64,
    ranks: Vec<u32>,
    is_own: bool,
}

impl Hold<'_> {
    /// Ends it. Whether it lasted until now on all ranks.
    pub fn release(mut self) -> Result<bool, SqlError> {
        let own = self.shared.hold_id(self.number);
        let mut held = !std::mem::take(&mut self.is_own) || self.shared.agent.decisions.release(own);
        let request = Request::Release { number: self.number };
        let calls = self.shared.call_all(&std::mem::take(&mut self.ranks), &request);
        for call in calls {
            held &= call.and_then(last_answer)? == Answer::Word(1);
        }
        Ok(held)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if self.is_own {
            self.shared
                .agent
                .decisions
                .release(self.shared.hold_id(self.number));
        }
        for rank in &self.ranks {
            self.shared
                .post
                .tell(*rank, &Request::Release { number: self.number });
        }
    }
}

impl Shared {
    /// Marks a step of a commit of which this rank is the home.
    pub fn reached(&self, step: Step) {
        self.config.at_step.reached(self.identity.rank, step);
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.identity.rank;
        (0..self.identity.rank_count).filter(move |rank| *rank != own)
    }

    fn hold_id(&self, number: u64) -> (u32, u32, u64) {
        (self.identity.rank, self.post.rank().incarnation(), number)
    }

    fn call_all(&self, ranks: &[u32], request: &Request) -> Vec<Result<Call, SqlError>> {
        ranks.iter().map(|rank| self.post.call(*rank, request)).collect()
    }

    /// Holds the decisions of all ranks.
    pub fn hold(&self) -> Result<Hold<'_>, SqlError> {
        let number = self.next_hold.fetch_add(1, Ordering::Relaxed);
        let lasting = self.config.hold_max;
        let ranks: Vec<u32> = self.others().collect();
        let request = Request::Hold {
            number,
            millis: u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX),
        };
        let calls = self.call_all(&ranks, &request);
        let mut hold = Hold {
            shared: self,
            number,
            ranks,
            is_own: false,
        };
        hold.is_own = self.agent.decisions.hold(self.hold_id(number), lasting);
        let mut result = match hold.is_own {
            true => Ok(()),
            false => Err(SqlError::new(
                SqlState::SERIALIZATION_FAILURE,
                "this rank did not finish its decisions in time",
            )),
        };
        for call in calls {
            let held = call.and_then(last_answer);
            if let (Err(error), Ok(())) = (held, &result) {
                result = Err(error);
            }
        }
        result.map(|()| hold)
    }

    /// Tells ranks that a transaction has committed. Those that cannot be told now are told later.
    pub fn deliver(&self, gid: &str, ranks: &[u32]) {
        let request = Request::Control {
            branch: None,
            sql: commit_statement(gid),
        };
        let calls = self.call_all(ranks, &request);
        let mut missing = Vec::new();
        for (rank, call) in ranks.iter().zip(calls) {
            if !is_finished(&call.and_then(last_answer)) {
                missing.push(*rank);
            }
        }
        match missing.is_empty() {
            true => self.delivered.lock().push(gid.to_owned()),
            false => self.undelivered.lock().push((gid.to_owned(), missing)),
        }
    }

    /// At the start: ends what was prepared here, and tells what was decided here.
    fn settle(&self) -> Result<(), SqlError> {
        let mut session = self.agent.database.session();
        let until = Instant::now() + START_WAIT;
        let mut unresolved = prepared(&mut session)?;
        loop {
            unresolved.retain(|gid| !self.resolve(&mut session, gid));
            if !unresolved.iter().any(|gid| self.home_lives(gid)) || Instant::now() > until {
                break;
            }
            std::thread::sleep(HOUSEKEEPING_EVERY);
        }
        // Their homes are asked again: one that returns tells only of what it has decided to commit.
        let since = Instant::now();
        let in_doubt = unresolved.into_iter().map(|gid| Prepared { gid, since });
        self.agent.prepared.lock().extend(in_doubt);
        *self.undelivered.lock() = identity::decisions(&mut session)?;
        self.deliver_again();
        Ok(())
    }

    fn home_lives(&self, gid: &str) -> bool {
        let home = identity::home_of(gid);
        home.is_some_and(|home| self.post.rank().probe(home).is_ok_and(|home| home.alive))
    }

    /// Asks the home of a prepared transaction how it ended, and ends it here. False: it cannot be told yet.
    fn resolve(&self, session: &mut Session, gid: &str) -> bool {
        let Some(home) = identity::home_of(gid) else {
            // A client's own: it is the client's to end.
            return true;
        };
        let known = match home == self.identity.rank {
            true => Ok(Answer::Word(outcome::ABORTED)),
            false => self.post.ask(home, &Request::Outcome { gid: gid.to_owned() }),
        };
        let verb = match known {
            Ok(Answer::Word(outcome::COMMITTED)) => "commit",
            Ok(Answer::Word(outcome::ABORTED)) => "rollback",
            _ => return false,
        };
        match session.run(&format!("{verb} prepared '{gid}'")) {
            Ok(()) => true,
            Err(error) => error.state == SqlState::UNDEFINED_OBJECT,
        }
    }

    fn compare_definitions(&self) -> Result<(), SqlError> {
        let request = Request::Hello {
            cluster: self.agent.cluster,
            definitions: self.agent.definitions(),
        };
        for rank in self.others() {
            match self.post.ask(rank, &request) {
                Ok(Answer::Word(1)) => {}
                Ok(_) => {
                    return Err(SqlError::new(
                        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                        format!(
                            "rank {rank} has another version, or other definitions or tables, than this one"
                        ),
                    ));
                }
                // One that is dead compares when it returns.
                Err(error) if error::is_lost(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn deliver_again(&self) {
        let undelivered = std::mem::take(&mut *self.undelivered.lock());
        for (gid, ranks) in undelivered {
            self.deliver(&gid, &ranks);
        }
    }

    fn keep(&self) {
        let mut session = self.agent.database.session();
        while !self.stopping.load(Ordering::Acquire) {
            std::thread::sleep(HOUSEKEEPING_EVERY);
            self.others().for_each(|other| self.post.watch(other));
            self.agent.bury(|other, life| self.post.is_there(other, life));
            self.post.tell_again();
            self.deliver_again();
            let delivered = std::mem::take(&mut *self.delivered.lock());
            if identity::forget(&mut session, &delivered).is_err() {
                self.delivered.lock().extend(delivered);
            }
            self.ask_for_prepared(&mut session);
        }
    }

    /// Ends transactions that were prepared here a while ago and of which their homes have said nothing.
    fn ask_for_prepared(&self, session: &mut Session) {
        let is_due = self
            .agent
            .prepared
            .lock()
            .iter()
            .any(|prepared| prepared.since.elapsed() >= DOUBT_AFTER);
        if !is_due {
            return;
        }
        let Ok(in_doubt) = prepared(session) else {
            return;
        };
        self.agent
            .prepared
            .lock()
            .retain(|known| in_doubt.contains(&known.gid));
        let due: Vec<String> = self
            .agent
            .prepared
            .lock()
            .iter()
            .filter(|known| known.since.elapsed() >= DOUBT_AFTER)
            .map(|known| known.gid.clone())
            .collect();
        for gid in due {
            self.resolve(session, &gid);
        }
    }
}

/// The prepared transactions of a database.
fn prepared(session: &mut Session) -> Result<Vec<String>, SqlError> {
    let rows = session.query("select gid from pg_prepared_xacts", &[])?;
    let gid = |row: &[Value]| match row {
        [Value::Text(gid)] => Some(gid.clone()),
        _ => None,
    };
    Ok(rows.iter().filter_map(gid).collect())
}
