//! A database: opened once, used by many sessions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weft_base::{BatchId, Budget, Clock, Disk, Entropy, Progress, RealDisk, SystemClock, SystemEntropy};
use weft_query::{EngineOptions, QueryEngine};
use weft_store::{BOOTSTRAP_ROLE, DATABASE_OBJECT_OID, Privileges, RoleId};
use weft_txn::{Engine, EngineConfig, EngineStats, UnitStats, Units};
use weft_types::{SqlError, SqlState};

use crate::clients::{Clients, Encryption};
use crate::error::Error;
use crate::plan_cache::PlanCache;
use crate::sequences::Sequences;
use crate::session::{POSTGRES_EPOCH_MICROS, Session};

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The transaction engine's settings.
    pub engine: EngineConfig,
    /// The initial `synchronous_commit` of sessions: whether replies wait for the disk.
    pub synchronous_commit: bool,
    /// Threads that analytical queries may use together.
    pub query_threads: usize,
    /// Memory that analytical queries may use together, in bytes; more is an error of the query (53200).
    pub query_memory_bytes: usize,
    /// Who compares the packed columns that large queries scan with their predicates.
    pub scan_units: Units,
    /// The size of the plan cache in bytes.
    pub plan_cache_bytes: usize,
    /// Bytes that one session may hold from one statement to the next: rows of its cursors and suspended
    /// portals, prepared statements and their parameters; more is an error of the statement (53200).
    pub session_memory_bytes: usize,
    /// The same of all sessions together.
    pub sessions_memory_bytes: usize,
    /// How long a client may stay silent while its transaction holds locks, unless the session sets
    /// `idle_in_transaction_session_timeout`; then it is disconnected (25P03). Zero: for ever.
    pub idle_with_locks_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Options {
            engine: EngineConfig::default(),
            synchronous_commit: true,
            query_threads: cores,
            query_memory_bytes: 2 << 30,
            scan_units: Units::Cpu,
            plan_cache_bytes: 64 << 20,
            session_memory_bytes: 256 << 20,
            sessions_memory_bytes: 1 << 30,
            idle_with_locks_timeout: Duration::from_secs(600),
        }
    }
}

/// Counters of a database since it was opened; those of units, which others may share, since the units were
/// started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DatabaseStats {
    /// The transaction engine's counters.
    pub engine: EngineStats,
    /// What units did to scan packed columns for queries.
    pub scan_units: UnitStats,
    /// Rows that queries aggregated on packed codes, without decoding them.
    pub rows_aggregated_on_codes: u64,
    /// Statements that ran as programs.
    pub program_statements: u64,
    /// Statements that the query engine ran, the changes among them included.
    pub query_statements: u64,
}

impl DatabaseStats {
    /// Share of row statements that ran as programs, 0 to 1.
    pub fn program_share(&self) -> f64 {
        let all = self.program_statements + self.query_statements;
        if all == 0 {
            0.0
        } else {
            self.program_statements as f64 / all as f64
        }
    }

    /// One counter by name, as `SHOW weft.<name>` prints it; `None` for a name that is none.
    pub fn show(&self, name: &str) -> Option<String> {
        let engine = &self.engine;
        for (prefix, units) in [("unit", &engine.units), ("scan_unit", &self.scan_units)] {
            let shown = name.strip_prefix(prefix).and_then(|rest| show_units(units, rest));
            if shown.is_some() {
                return shown;
            }
        }
        Some(match name {
            "batches" => engine.batches.to_string(),
            "one_shot_transactions" => engine.one_shot.to_string(),
            "session_commits" => engine.session_commits.to_string(),
            "read_only_programs" => engine.read_only_programs.to_string(),
            "deferrals" => engine.deferrals.to_string(),
            "checkpoints" => engine.checkpoints.to_string(),
            "compiled_programs" => engine.compiled_programs.to_string(),
            "compile_failures" => engine.compile_failures.to_string(),
            "direct_refused_files" => engine.direct_refused_files.to_string(),
            "snapshot_bytes" => engine.snapshot_bytes.to_string(),
            "snapshot_age_seconds" => format!("{:.1}", engine.snapshot_age.as_secs_f64()),
            "column_bytes" => engine.columns.bytes.to_string(),
            "column_regions" => engine.columns.regions.to_string(),
            "rows_from_columns" => engine.columns.rows_from_columns.to_string(),
            "rows_aggregated_on_codes" => self.rows_aggregated_on_codes.to_string(),
            "rows_from_slots" => engine.columns.rows_from_slots.to_string(),
            "cold_rows" => engine.rows.cold_rows.to_string(),
            "thawed_rows" => engine.rows.thawed_rows.to_string(),
            "row_bytes" => engine.rows.kept_bytes.to_string(),
            "log_syncs" => engine.log_syncs.to_string(),
            "mean_sync_us" => format!("{:.1}", engine.mean_sync_us()),
            "log_bytes" => engine.log_bytes.to_string(),
            "mean_batch" => format!("{:.2}", engine.mean_batch()),
            "one_shot_share" => format!("{:.4}", engine.one_shot_share()),
            "program_statements" => self.program_statements.to_string(),
            "query_statements" => self.query_statements.to_string(),
            "program_share" => format!("{:.4}", self.program_share()),
            _ => return None,
        })
    }
}

/// A counter of units by what follows `unit` in its name.
fn show_units(units: &UnitStats, name: &str) -> Option<String> {
    Some(match name {
        "_jobs" => units.jobs.to_string(),
        "_jobs_done_by_units" => units.done_by_units().to_string(),
        "_jobs_by_cpu" => units.done_by_cpu().to_string(),
        "_jobs_redone" => units.redone_after_failure().to_string(),
        "_jobs_hedged" => units.hedged.to_string(),
        "_jobs_hedges_lost_by_units" => units.hedges_lost_by_units().to_string(),
        "_jobs_hedges_lost_by_cpu" => units.hedges_lost_by_cpu.to_string(),
        "_jobs_redone_why" => units.redone_on_cpu.to_string(),
        "s_out" => format!("{} of {}", units.units_out, units.units),
        _ => return None,
    })
}

/// What the sessions of one database share.
pub(crate) struct Shared {
    pub engine: Engine,
    pub queries: QueryEngine,
    pub plans: PlanCache,
    /// The memory that sessions hold between statements.
    pub held: Arc<Budget>,
    pub sequences: Sequences,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    pub program_statements: AtomicU64,
    pub query_statements: AtomicU64,
    /// The seed of the sessions' random numbers.
    pub random_seed: u64,
    /// The clients that are connected.
    pub clients: Arc<Clients>,
    /// Whether a server offers TLS to them.
    pub serves_tls: AtomicBool,
    next_session: AtomicU64,
}

impl Shared {
    /// A counter or an option of the database, by the name after `weft.`.
    pub(crate) fn show(&self, name: &str) -> Option<String> {
        match name {
            "compaction_unit" => Some(self.options.engine.checkpoint.units.name().to_string()),
            "scan_unit" => Some(self.options.scan_units.name().to_string()),
            _ => self.stats().show(name).or_else(|| self.show_memory(name)),
        }
    }

    /// A size of the store's memory.
    fn show_memory(&self, name: &str) -> Option<String> {
        let memory = self.engine.store().memory_stats();
        Some(match name {
            "huge_page_bytes" => memory.huge_page_bytes.to_string(),
            "ordinary_page_bytes" => memory.ordinary_page_bytes.to_string(),
            "pages_ahead_bytes" => memory.prefaulted_pages.bytes.to_string(),
            "pages_ahead_refused" => memory.prefaulted_pages.refused.to_string(),
            "pages_ahead_stopped" => if memory.prefaulted_pages.stopped {
                "on"
            } else {
                "off"
            }
            .to_string(),
            _ => return None,
        })
    }

    pub(crate) fn stats(&self) -> DatabaseStats {
        DatabaseStats {
            engine: self.engine.stats(),
            scan_units: self.options.scan_units.stats(),
            rows_aggregated_on_codes: self.queries.rows_aggregated_on_codes(),
            program_statements: self.program_statements.load(Ordering::Relaxed),
            query_statements: self.query_statements.load(Ordering::Relaxed),
        }
    }
}

/// What is known of a user who wants to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// There are no accounts: everybody is the bootstrap role.
    Open,
    /// There are accounts, and none of this name.
    Unknown {
        /// As in [`RoleAccount`].
        demands_password: bool,
    },
    /// An account.
    Role(RoleAccount),
}

/// A role as login sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct RoleAccount {
    /// The role's id.
    pub id: u32,
    /// The client must prove that it knows the password: some role has one, perhaps another.
    pub demands_password: bool,
    /// No privilege is checked.
    pub superuser: bool,
    /// The SCRAM-SHA-256 verifier of its password.
    pub verifier: Option<String>,
    /// The password's time is over.
    pub has_expired: bool,
    /// LOGIN
    pub may_login: bool,
    /// CONNECT on the database.
    pub may_connect: bool,
    /// Sessions at one time.
    pub connection_limit: Option<u32>,
}

impl std::fmt::Debug for RoleAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoleAccount")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A client that has been let in.
#[derive(Clone, Debug)]
pub struct ClientLogin<'a> {
    /// The user name.
    pub user: &'a str,
    /// What `pg_backend_pid()` returns.
    pub pid: u32,
    /// The role that proved who it is; None where there were no accounts.
    pub role: Option<u32>,
    /// How the connection is encrypted.
    pub encryption: Option<Encryption>,
}

/// An open database. Clones share it; it closes when the last clone and the last session are gone.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let db = weft::Database::open(dir.path(), weft::Options::default())?;
/// let mut session = db.session();
/// session.run("create table pets (id int primary key, name text)")?;
/// session.run("insert into pets values (1, 'Ada'), (2, 'Bob')")?;
/// let rows = session.query("select name from pets where id = 2", &[])?;
/// assert_eq!(rows.value(0, 0), weft::Value::Text("Bob".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("engine", &self.shared.engine)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database in a directory of the real disk, creating it if the directory is empty or absent,
    /// and recovers everything that was acknowledged.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Database, Error> {
        Database::open_with(
            Arc::new(RealDisk),
            dir.as_ref(),
            Arc::new(SystemClock::new()),
            options,
            &Progress::default(),
        )
    }

    /// Opens a database on any disk and with any clock, and reports to `progress`: for simulations, and for
    /// watching from another thread.
    pub fn open_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        clock: Arc<dyn Clock>,
        options: Options,
        progress: &Progress,
    ) -> Result<Database, Error> {
        if options.engine.workers == 0 || options.query_threads == 0 {
            return Err(Error::Options(
                "at least one worker and one query thread are needed".into(),
            ));
        }
        weft_sql::statement::checks::install();
        let entropy = SystemEntropy::new();
        let engine_config = EngineConfig {
            log_salt: entropy.next_u64(),
            ..options.engine.clone()
        };
        let engine = Engine::open(disk, dir, Arc::clone(&clock), engine_config, progress)?;
        let queries = QueryEngine::with_options(EngineOptions {
            threads: options.query_threads,
            memory_bytes: options.query_memory_bytes,
            units: options.scan_units.clone(),
            ..EngineOptions::default()
        })
        .map_err(|error| Error::Query(error.to_string()))?;
        let shared = Shared {
            engine,
            queries,
            plans: PlanCache::new(options.plan_cache_bytes),
            held: Budget::new(options.sessions_memory_bytes),
            sequences: Sequences::default(),
            clock,
            options,
            program_statements: AtomicU64::new(0),
            query_statements: AtomicU64::new(0),
            random_seed: entropy.next_u64(),
            clients: Arc::default(),
            serves_tls: AtomicBool::new(false),
            next_session: AtomicU64::new(1),
        };
        Ok(Database {
            shared: Arc::new(shared),
        })
    }

    /// Opens a session for the user `postgres`.
    pub fn session(&self) -> Session {
        self.session_for("postgres", 0)
    }

    /// Opens a session; `pid` is what `pg_backend_pid()` returns, 0 for a number of the database's choice.
    pub fn session_for(&self, user: &str, pid: u32) -> Session {
        let catalog = self.shared.engine.catalog();
        let role = catalog.accounts().role_named(user);
        self.session_of(user, pid, role.map_or(BOOTSTRAP_ROLE, |role| role.id))
    }

    /// Opens a session for a user who has been let in. While there are no accounts every name is the
    /// bootstrap role's.
    ///
    /// # Errors
    /// 28000 if the role is gone since, or never was.
    pub fn login(&self, user: &str, pid: u32) -> Result<Session, SqlError> {
        let catalog = self.shared.engine.catalog();
        let role = match catalog.accounts().role_named(user) {
            Some(role) => role.id,
            None if catalog.accounts().is_empty() => BOOTSTRAP_ROLE,
            None => {
                let message = format!("role \"{user}\" does not exist");
                return Err(SqlError::new(
                    SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                    message,
                ));
            }
        };
        Ok(self.session_of(user, pid, role))
    }

    /// Opens the session of a client's connection.
    ///
    /// # Errors
    /// 28000 if the role is gone since it was let in, or another has its name.
    pub fn login_client(&self, login: &ClientLogin<'_>) -> Result<Session, SqlError> {
        let catalog = self.shared.engine.catalog();
        let named = catalog.accounts().role_named(login.user).map(|role| role.id.0);
        if login.role.is_some() && login.role != named {
            let message = format!("role \"{}\" does not exist", login.user);
            let state = SqlState::INVALID_AUTHORIZATION_SPECIFICATION;
            return Err(SqlError::new(state, message));
        }
        let mut session = self.login(login.user, login.pid)?;
        session.set_client(login.encryption.clone());
        Ok(session)
    }

    /// What `SHOW ssl` says in sessions that begin from now on: whether the server offers TLS.
    pub fn set_serves_tls(&self, serves_tls: bool) {
        self.shared.serves_tls.store(serves_tls, Ordering::Relaxed);
    }

    /// Whether every client has to prove that it knows a password: some role has one.
    pub fn demands_passwords(&self) -> bool {
        self.shared.engine.catalog().accounts().demand_passwords()
    }

    /// Whether there are roles besides the bootstrap role, or it has a password.
    pub fn has_accounts(&self) -> bool {
        !self.shared.engine.catalog().accounts().is_empty()
    }

    /// What is known of a user who wants to log in.
    pub fn account(&self, user: &str) -> Account {
        let catalog = self.shared.engine.catalog();
        let accounts = catalog.accounts();
        let Some(role) = accounts.role_named(user) else {
            return match accounts.is_empty() {
                true => Account::Open,
                false => Account::Unknown {
                    demands_password: accounts.demand_passwords(),
                },
            };
        };
        let now = self.shared.clock.unix_micros() - POSTGRES_EPOCH_MICROS;
        Account::Role(RoleAccount {
            id: role.id.0,
            demands_password: accounts.demand_passwords(),
            superuser: accounts.is_superuser(role.id),
            verifier: role.password.clone(),
            has_expired: role.valid_until.is_some_and(|end| end < now),
            may_login: role.login,
            may_connect: catalog
                .privileges_of(role.id, DATABASE_OBJECT_OID)
                .contains(Privileges::CONNECT),
            connection_limit: match accounts.is_superuser(role.id) {
                true => None,
                false => u32::try_from(role.connection_limit).ok(),
            },
        })
    }

    /// Gives a role a password, as ALTER ROLE does: for the first start, before anybody can connect.
    ///
    /// # Errors
    /// Those of ALTER ROLE.
    pub fn set_password(&self, user: &str, password: &str) -> Result<(), SqlError> {
        let quote = |text: &str, with: char| text.replace(with, &format!("{with}{with}"));
        let (user, password) = (quote(user, '"'), quote(password, '\''));
        let escaped = password.replace('\\', "\\\\");
        self.session()
            .run(&format!("ALTER ROLE \"{user}\" PASSWORD E'{escaped}'"))
    }

    fn session_of(&self, user: &str, pid: u32, role: RoleId) -> Session {
        let number = self.shared.next_session.fetch_add(1, Ordering::Relaxed);
        let pid = if pid == 0 { number as u32 } else { pid };
        Session::new(Arc::clone(&self.shared), user, pid, role)
    }

    /// Wakes the threads of queries, so that they see that the process rests
    /// ([`weft_base::idle::set_resting`]).
    pub fn rest(&self) {
        self.shared.queries.rest();
    }

    /// The transaction engine below: programs, snapshots, replay.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Takes a checkpoint now and removes the log before it. Returns its batch.
    pub fn checkpoint(&self) -> Result<BatchId, Error> {
        Ok(self.shared.engine.checkpoint()?)
    }

    /// To be called before the last handle is dropped: takes a checkpoint and writes an image of the indexes
    /// beside it, so that the next opening reads no rows ([`Engine::checkpoint_for_stop`]). Whether it did. A
    /// database that ends without this call is recovered as after a crash: nothing is lost, it takes longer.
    pub fn checkpoint_for_stop(&self) -> Result<bool, Error> {
        Ok(self.shared.engine.checkpoint_for_stop()?)
    }

    /// Counters since opening; in SQL, `SHOW weft.program_share` and the like.
    pub fn stats(&self) -> DatabaseStats {
        self.shared.stats()
    }
}
