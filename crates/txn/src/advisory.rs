//! Advisory locks: locks on numbers that mean something only to clients.
//!
//! A session takes them for itself, counted, or for its transaction. It never waits for itself, so it holds
//! all of them under one id in the lock table, in the stronger mode where it has both. What it has taken,
//! and for how long, is counted here; the sequencer is asked only when the mode changes.
//!
//! ```text
//! (key, mode) -> times taken by the session, whether the transaction has it
//!      '-> resource -> exclusive if any key of it is, else shared   = what the lock table has
//! ```
//!
//! The session's transactions lock rows under ids of their own. Each is the other's ally
//! (`weft_lock::LockTable::acquire_with_ally`), so that the search for deadlocks sees one session.
//!
//! Invariants: 1. What is held here is held in the lock table; only during a request the table may have
//! more. 2. A lock is removed here before it is given back there, so that no two sessions are seen with
//! conflicting locks.

use crate::cancel::CancelToken;
use crate::engine::{CANCEL_POLL, Engine, lock_timed_out};
use crate::request::{AcquireRequest, Request};
use crate::ticket::TicketCell;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weft_base::TxnId;
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_types::{SqlError, SqlState};

/// The most locks that a session holds.
const SESSION_LOCKS_MAX: usize = 10_000;

/// What an advisory lock is on. The two kinds of keys never meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdvisoryKey {
    /// One number of 64 bits.
    Single(i64),
    /// Two numbers of 32 bits.
    Pair(i32, i32),
}

impl AdvisoryKey {
    fn resource(self) -> ResourceId {
        let (tag, number) = match self {
            AdvisoryKey::Single(number) => (1, number.to_be_bytes()),
            AdvisoryKey::Pair(first, second) => {
                let number = u64::from(first as u32) << 32 | u64::from(second as u32);
                (2, number.to_be_bytes())
            }
        };
        let mut name = [tag; 9];
        if let Some(rest) = name.last_chunk_mut() {
            *rest = number;
        }
        ResourceId::advisory(&name)
    }
}

/// Who may hold an advisory lock at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdvisoryMode {
    /// Others in shared mode.
    Shared,
    /// No one else.
    Exclusive,
}

impl AdvisoryMode {
    fn lock_mode(self) -> LockMode {
        match self {
            AdvisoryMode::Shared => LockMode::S,
            AdvisoryMode::Exclusive => LockMode::X,
        }
    }
}

/// Until when an advisory lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvisoryScope {
    /// Until it is unlocked as often as it was locked, or the session ends.
    Session,
    /// Until the transaction ends, or goes back to a savepoint before the lock.
    Transaction,
}

/// What bounds a wait for an advisory lock.
#[derive(Debug, Clone, Default)]
pub struct AdvisoryWait {
    /// The session's open transaction.
    pub ally: Option<TxnId>,
    /// Ends the wait from another thread.
    pub cancel: CancelToken,
    /// The longest wait; zero waits for ever.
    pub lock_timeout: Duration,
}

/// An advisory lock that a session holds or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvisoryLockInfo {
    /// The number of the session.
    pub session: u32,
    /// What it is on.
    pub key: AdvisoryKey,
    /// How.
    pub mode: AdvisoryMode,
    /// Since when the session waits for it, microseconds since 1970; `None` if it holds it.
    pub waits_since: Option<i64>,
}

/// A session's process id, and what it holds.
type Known = (u32, Arc<Mutex<Held>>);

/// The advisory locks of all sessions.
#[derive(Default)]
pub(crate) struct AdvisoryRegistry {
    sessions: Mutex<BTreeMap<TxnId, Known>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    by_session: u64,
    by_transaction: bool,
}

/// How many keys of a resource are taken.
#[derive(Default)]
struct Keys {
    shared: usize,
    exclusive: usize,
}

impl Keys {
    fn count(&mut self, mode: AdvisoryMode) -> &mut usize {
        match mode {
            AdvisoryMode::Shared => &mut self.shared,
            AdvisoryMode::Exclusive => &mut self.exclusive,
        }
    }
}

/// What one session holds.
#[derive(Default)]
struct Held {
    taken: BTreeMap<(AdvisoryKey, AdvisoryMode), Taken>,
    resources: HashMap<ResourceId, Keys>,
    /// What the transaction has, in the order in which it took them.
    of_transaction: Vec<(AdvisoryKey, AdvisoryMode)>,
    waits: Option<(AdvisoryKey, AdvisoryMode, i64)>,
}

impl Held {
    /// The mode in which a resource is held for all its keys.
    fn mode_of(&self, resource: ResourceId) -> LockMode {
        match self.resources.get(&resource) {
            Some(keys) if keys.exclusive > 0 => LockMode::X,
            Some(keys) if keys.shared > 0 => LockMode::S,
            _ => LockMode::NL,
        }
    }

    fn add(&mut self, key: AdvisoryKey, mode: AdvisoryMode, scope: AdvisoryScope) {
        let taken = self.taken.entry((key, mode)).or_insert_with(|| {
            *self.resources.entry(key.resource()).or_default().count(mode) += 1;
            Taken::default()
        });
        match scope {
            AdvisoryScope::Session => taken.by_session += 1,
            AdvisoryScope::Transaction if taken.by_transaction => {}
            AdvisoryScope::Transaction => {
                taken.by_transaction = true;
                self.of_transaction.push((key, mode));
            }
        }
    }

    /// Takes something back from a lock, which is gone if nothing is left of it. Then: its resource, and the
    /// mode in which that is still held.
    fn take_back(
        &mut self,
        key: AdvisoryKey,
        mode: AdvisoryMode,
        change: impl FnOnce(&mut Taken),
    ) -> Option<LockRequest> {
        let taken = self.taken.get_mut(&(key, mode))?;
        change(taken);
        if taken.by_session > 0 || taken.by_transaction {
            return None;
        }
        self.taken.remove(&(key, mode));
        let resource = key.resource();
        if let Some(keys) = self.resources.get_mut(&resource) {
            *keys.count(mode) -= 1;
            if keys.shared + keys.exclusive == 0 {
                self.resources.remove(&resource);
            }
        }
        Some(LockRequest::new(resource, self.mode_of(resource)))
    }
}

/// The advisory locks of one session. Only the session changes them.
pub struct AdvisoryLocks {
    engine: Engine,
    owner: TxnId,
    held: Arc<Mutex<Held>>,
}

impl std::fmt::Debug for AdvisoryLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdvisoryLocks")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// The advisory locks of the session of this number; none yet.
    pub fn advisory(&self, session: u32) -> AdvisoryLocks {
        let owner = TxnId(self.shared().next_txn.fetch_add(1, Relaxed));
        let held = Arc::<Mutex<Held>>::default();
        let entry = (session, Arc::clone(&held));
        self.shared().advisory.sessions.lock().insert(owner, entry);
        AdvisoryLocks {
            engine: self.clone(),
            owner,
            held,
        }
    }

    /// The advisory locks that sessions hold and wait for.
    pub fn advisory_locks(&self) -> Vec<AdvisoryLockInfo> {
        let mut found = Vec::new();
        for (session, held) in self.shared().advisory.sessions.lock().values() {
            let held = held.lock();
            let info = |key, mode, waits_since| AdvisoryLockInfo {
                session: *session,
                key,
                mode,
                waits_since,
            };
            found.extend(held.taken.keys().map(|(key, mode)| info(*key, *mode, None)));
            found.extend(held.waits.map(|(key, mode, since)| info(key, mode, Some(since))));
        }
        found
    }
}

impl AdvisoryLocks {
    /// The id under which they are held: the ally of the session's transactions.
    pub fn owner(&self) -> TxnId {
        self.owner
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.held.lock().taken.is_empty()
    }

    /// Whether the transaction has taken one.
    pub fn any_of_transaction(&self) -> bool {
        !self.held.lock().of_transaction.is_empty()
    }

    /// Takes a lock and waits for it if it must.
    ///
    /// # Errors
    /// 40P01 for a deadlock, 55P03 after the lock timeout, 57014 if it is cancelled, 53200 if the session
    /// holds too many.
    pub fn lock(
        &self,
        key: AdvisoryKey,
        mode: AdvisoryMode,
        scope: AdvisoryScope,
        wait: &AdvisoryWait,
    ) -> Result<(), SqlError> {
        self.acquire(key, mode, scope, Some(wait))
    }

    /// Takes a lock if that needs no wait; false if it does.
    ///
    /// # Errors
    /// 53200 if the session holds too many.
    pub fn try_lock(
        &self,
        key: AdvisoryKey,
        mode: AdvisoryMode,
        scope: AdvisoryScope,
    ) -> Result<bool, SqlError> {
        match self.acquire(key, mode, scope, None) {
            Ok(()) => Ok(true),
            Err(error) if error.state == SqlState::LOCK_NOT_AVAILABLE => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn acquire(
        &self,
        key: AdvisoryKey,
        mode: AdvisoryMode,
        scope: AdvisoryScope,
        wait: Option<&AdvisoryWait>,
    ) -> Result<(), SqlError> {
        let request = LockRequest::new(key.resource(), mode.lock_mode());
        {
            let mut held = self.held.lock();
            let is_new = !held.taken.contains_key(&(key, mode));
            if is_new && held.taken.len() >= SESSION_LOCKS_MAX {
                return Err(too_many());
            }
            let now = held.mode_of(request.resource);
            if weft_lock::join(now, request.mode) == now {
                held.add(key, mode, scope);
                return Ok(());
            }
            let since = self.engine.shared().clock.unix_micros();
            held.waits = wait.map(|_| (key, mode, since));
        }
        let asked = self.ask(request, wait);
        let mut held = self.held.lock();
        held.waits = None;
        match asked {
            Ok(()) => held.add(key, mode, scope),
            // It may have been granted in the meantime.
            Err(_) => {
                let before = LockRequest::new(request.resource, held.mode_of(request.resource));
                drop(held);
                self.give_back(vec![before]);
            }
        }
        asked
    }

    /// Asks the sequencer and waits for its answer.
    fn ask(&self, request: LockRequest, wait: Option<&AdvisoryWait>) -> Result<(), SqlError> {
        let began = Instant::now();
        let (ticket, responder) = TicketCell::with_responder();
        self.engine.shared().submit(Request::Lock(AcquireRequest {
            txn: self.owner,
            ally: wait.and_then(|wait| wait.ally),
            requests: vec![request],
            first: false,
            no_wait: wait.is_none(),
            ticket: responder,
        }));
        loop {
            if let Some(answer) = ticket.wait_for(CANCEL_POLL) {
                return answer.map_err(|refused| refused.error);
            }
            // Who does not wait for the lock is answered soon.
            let Some(wait) = wait else { continue };
            let is_late = !wait.lock_timeout.is_zero() && began.elapsed() >= wait.lock_timeout;
            if let Some(error) = wait.cancel.error().or_else(|| is_late.then(lock_timed_out)) {
                return Err(error);
            }
        }
    }

    fn give_back(&self, kept: Vec<LockRequest>) {
        if !kept.is_empty() {
            self.engine.shared().submit(Request::Lower(self.owner, kept));
        }
    }

    /// Gives back one lock that the session has taken; false if it has not.
    pub fn unlock(&self, key: AdvisoryKey, mode: AdvisoryMode) -> bool {
        let mut held = self.held.lock();
        let has = held.taken.get(&(key, mode));
        if has.is_none_or(|taken| taken.by_session == 0) {
            return false;
        }
        let kept = held.take_back(key, mode, |taken| taken.by_session -= 1);
        drop(held);
        self.give_back(kept.into_iter().collect());
        true
    }

    /// Gives back all that the session has taken, but not what only its transaction has.
    pub fn unlock_all(&self) {
        let mut held = self.held.lock();
        let all: Vec<(AdvisoryKey, AdvisoryMode)> = held.taken.keys().copied().collect();
        let kept = all
            .into_iter()
            .filter_map(|(key, mode)| held.take_back(key, mode, |taken| taken.by_session = 0));
        let kept = kept.collect();
        drop(held);
        self.give_back(kept);
    }

    /// Gives back all of them; the session has ended.
    pub fn end(&self) {
        let shared = self.engine.shared();
        shared.advisory.sessions.lock().remove(&self.owner);
        let held = std::mem::take(&mut *self.held.lock());
        if !held.taken.is_empty() {
            shared.submit(Request::Release(self.owner));
        }
    }

    /// A point for [`Self::rollback_to`].
    pub fn mark(&self) -> usize {
        self.held.lock().of_transaction.len()
    }

    /// Gives back what the transaction has taken since the mark; 0: all of it.
    pub fn rollback_to(&self, mark: usize) {
        let mut held = self.held.lock();
        if held.of_transaction.len() <= mark {
            return;
        }
        let since = held.of_transaction.split_off(mark);
        let kept = since
            .into_iter()
            .filter_map(|(key, mode)| held.take_back(key, mode, |taken| taken.by_transaction = false));
        let kept = kept.collect();
        drop(held);
        self.give_back(kept);
    }
}

impl Drop for AdvisoryLocks {
    fn drop(&mut self) {
        self.end();
    }
}

/// PostgreSQL's error when its lock table is full.
fn too_many() -> SqlError {
    SqlError::new(SqlState::OUT_OF_MEMORY, "out of shared memory").hint(format!(
        "A session holds at most {SESSION_LOCKS_MAX} advisory locks."
    ))
}
