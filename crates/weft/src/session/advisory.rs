//! Advisory locks: `pg_advisory_lock` and its kin, called in a SELECT.
//!
//! A query that calls them runs on the session's own thread, row by row, inside a transaction, which may be
//! an implicit one: the locks of the transaction end with it. All others refuse the calls (0A000), since
//! they may compute a row more than once.
//!
//! A session that holds advisory locks runs no one-shot programs: a program waits for locks where the search
//! for deadlocks does not see for whom.

use std::sync::Arc;
use std::thread::ThreadId;

use parking_lot::Mutex;
use weft_base::TxnId;
use weft_expression::{AdvisoryCall, AdvisoryKey, AdvisoryStep, context};
use weft_pg_catalog::AdvisoryLock;
use weft_sql::statement::QueryPlan;
use weft_txn::{AdvisoryLocks, AdvisoryMode, AdvisoryScope, AdvisoryWait, Engine};
use weft_types::{Notice, NoticeLevel, SqlError, SqlState};

use super::Session;
use super::inputs::POSTGRES_EPOCH_MICROS;

/// The advisory locks of a session, which gives them back when it ends.
#[derive(Debug, Default)]
pub(super) struct SessionLocks(Option<Arc<AdvisoryLocks>>);

impl SessionLocks {
    /// Whether any is held.
    pub fn any(&self) -> bool {
        self.owner().is_some()
    }

    /// The id under which they are held, if any is.
    pub fn owner(&self) -> Option<TxnId> {
        self.get()
            .filter(|locks| !locks.is_empty())
            .map(AdvisoryLocks::owner)
    }

    /// The locks, if there have ever been any.
    pub fn get(&self) -> Option<&AdvisoryLocks> {
        self.0.as_deref()
    }

    /// The same, for a statement.
    pub fn shared(&self) -> Option<Arc<AdvisoryLocks>> {
        self.0.clone()
    }

    /// A point for [`Self::rollback_to`].
    pub fn mark(&self) -> usize {
        self.get().map_or(0, AdvisoryLocks::mark)
    }

    /// Gives back what the transaction has taken since the mark.
    pub fn rollback_to(&self, mark: usize) {
        if let Some(locks) = self.get() {
            locks.rollback_to(mark);
        }
    }

    /// Gives back what the transaction has taken.
    pub fn end_transaction(&self) {
        self.rollback_to(0);
    }
}

impl Drop for SessionLocks {
    fn drop(&mut self) {
        // A plan that is kept may still refer to them.
        if let Some(locks) = &self.0 {
            locks.end();
        }
    }
}

/// The advisory locks as one statement may use them.
pub(super) struct StatementLocks {
    locks: Arc<AdvisoryLocks>,
    wait: AdvisoryWait,
    /// The session's.
    thread: ThreadId,
    notices: Mutex<Vec<Notice>>,
}

impl StatementLocks {
    pub fn call(&self, call: AdvisoryCall) -> Result<bool, SqlError> {
        let key = match call.key {
            AdvisoryKey::Single(number) => weft_txn::AdvisoryKey::Single(number),
            AdvisoryKey::Pair(first, second) => weft_txn::AdvisoryKey::Pair(first, second),
        };
        let mode = match call.shared {
            true => AdvisoryMode::Shared,
            false => AdvisoryMode::Exclusive,
        };
        let scope = match call.transaction {
            true => AdvisoryScope::Transaction,
            false => AdvisoryScope::Session,
        };
        if std::thread::current().id() != self.thread {
            return Err(context::advisory_unsupported());
        }
        match call.step {
            AdvisoryStep::Lock => self.locks.lock(key, mode, scope, &self.wait).map(|()| true),
            AdvisoryStep::TryLock => self.locks.try_lock(key, mode, scope),
            AdvisoryStep::Unlock => {
                let held = self.locks.unlock(key, mode);
                if !held {
                    self.notices.lock().push(not_held(mode));
                }
                Ok(held)
            }
        }
    }

    /// The notices of the calls since the last time.
    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.lock())
    }
}

fn not_held(mode: AdvisoryMode) -> Notice {
    let mode = match mode {
        AdvisoryMode::Shared => "ShareLock",
        AdvisoryMode::Exclusive => "ExclusiveLock",
    };
    Notice {
        level: NoticeLevel::Warning,
        text: SqlError::new(SqlState::WARNING, format!("you don't own a lock of type {mode}")),
    }
}

impl Session {
    /// What a query needs to call the functions of advisory locks; `None` if it does not or must not.
    ///
    /// # Errors
    /// 0A000 in a cluster, whose other ranks would not know of the locks.
    pub(super) fn locks_for(&mut self, plan: &QueryPlan) -> Result<Option<StatementLocks>, SqlError> {
        if !plan.query.takes_advisory_locks || plan.row_locks.is_some() || !plan.steps.is_empty() {
            return Ok(None);
        }
        if self.is_of_ranks {
            return Err(SqlError::unsupported(
                "advisory locks are not supported over several ranks",
            ));
        }
        let (engine, pid) = (&self.shared.engine, self.pid);
        let locks = self
            .advisory
            .0
            .get_or_insert_with(|| Arc::new(engine.advisory(pid)));
        let locks = Arc::clone(locks);
        let open = self.transaction();
        open.txn.set_ally(Some(locks.owner()));
        let ally = Some(open.txn.id());
        Ok(Some(StatementLocks {
            locks,
            wait: AdvisoryWait {
                ally,
                cancel: self.cancel.token.clone(),
                lock_timeout: self.lock_timeout(),
            },
            thread: std::thread::current().id(),
            notices: Mutex::default(),
        }))
    }
}

/// What `pg_locks` lists.
pub(super) fn advisory_locks(engine: Engine) -> Box<dyn Fn() -> Vec<AdvisoryLock> + Send + Sync> {
    Box::new(move || {
        let locks = engine.advisory_locks().into_iter();
        locks
            .map(|lock| AdvisoryLock {
                pid: lock.session,
                key: match lock.key {
                    weft_txn::AdvisoryKey::Single(number) => AdvisoryKey::Single(number),
                    weft_txn::AdvisoryKey::Pair(first, second) => AdvisoryKey::Pair(first, second),
                },
                shared: lock.mode == AdvisoryMode::Shared,
                waits_since: lock.waits_since.map(|since| since - POSTGRES_EPOCH_MICROS),
            })
            .collect()
    })
}
