//! All connections of a server: their cancel keys, and the sockets to close at shutdown.
//!
//! Two bounds: sessions (`connections_max`, of which the last `superuser_reserved` are for superusers), and
//! sockets, a little more, so that a cancel request and the answer "too many clients" still get through when
//! all sessions are taken.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use socket2::Socket as Stream;
use weft_base::{Entropy, SystemEntropy};

use crate::backend::CancelHandle;
use crate::config::ServerConfig;
use crate::metrics::Metrics;

/// Sockets beyond the sessions: cancel requests, refusals and half-open ones.
const SPARE_SOCKETS: usize = 64;

/// What all threads of a server share.
pub struct Shared {
    /// The settings.
    pub config: ServerConfig,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Makes the salts that names without an account show.
    pub login_salt: RandomState,
    stopping: AtomicBool,
    entropy: SystemEntropy,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    connections: HashMap<u32, Entry>,
    session_count: usize,
    /// Sessions of each role.
    role_sessions: HashMap<u32, u32>,
    pid_last: u32,
}

struct Entry {
    socket: Arc<Stream>,
    secret_key: i32,
    cancel: Option<Arc<dyn CancelHandle>>,
}

impl Shared {
    /// The state of a server without connections.
    pub fn new(config: ServerConfig) -> Shared {
        Shared {
            config,
            metrics: Arc::default(),
            login_salt: RandomState::new(),
            stopping: AtomicBool::new(false),
            entropy: SystemEntropy::new(),
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Enters a socket; None if there are too many.
    pub fn register(self: &Arc<Self>, socket: Arc<Stream>) -> Option<Registration> {
        let secret_key = self.entropy.next_u64() as i32;
        let mut state = self.state.lock();
        if state.connections.len() >= self.config.connections_max + SPARE_SOCKETS {
            return None;
        }
        let pid = loop {
            // Positive as an i32, which is what clients keep it in.
            state.pid_last = state.pid_last % (i32::MAX as u32) + 1;
            if !state.connections.contains_key(&state.pid_last) {
                break state.pid_last;
            }
        };
        state.connections.insert(
            pid,
            Entry {
                socket,
                secret_key,
                cancel: None,
            },
        );
        Some(Registration {
            shared: self.clone(),
            pid,
            secret_key,
            is_session: false,
            role: None,
        })
    }

    /// Cancels what the session `pid` is running if the key is its own.
    pub fn cancel(&self, pid: u32, secret_key: i32) {
        let handle = {
            let state = self.state.lock();
            let entry = state
                .connections
                .get(&pid)
                .filter(|entry| entry.secret_key == secret_key);
            entry.and_then(|entry| entry.cancel.clone())
        };
        if let Some(handle) = handle {
            self.metrics.cancels.increment();
            handle.cancel();
        }
    }

    /// Ends all connections: running statements are cancelled, idle clients get 57P01. After `grace` the
    /// sockets are closed. Returns how many connections were still open then.
    pub fn stop(&self, grace: Duration) -> usize {
        self.stopping.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + grace;
        let cancels: Vec<_> = {
            let state = self.state.lock();
            for entry in state.connections.values() {
                // A thread that waits for its client sees the end of the stream and then the flag.
                let _ = entry.socket.shutdown(Shutdown::Read);
            }
            state
                .connections
                .values()
                .filter_map(|entry| entry.cancel.clone())
                .collect()
        };
        cancels.iter().for_each(|cancel| cancel.cancel());
        let mut state = self.state.lock();
        while !state.connections.is_empty() {
            if self.ended.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        for entry in state.connections.values() {
            let _ = entry.socket.shutdown(Shutdown::Both);
        }
        state.connections.len()
    }

    /// Connections there are now, sessions or not.
    pub fn connection_count(&self) -> usize {
        self.state.lock().connections.len()
    }
}

/// Why there is no place for another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All places are taken.
    All,
    /// Those that are left are for superusers.
    ButReserved,
}

impl Full {
    /// What PostgreSQL says.
    pub fn message(self) -> &'static str {
        match self {
            Full::All => "sorry, too many clients already",
            Full::ButReserved => {
                "remaining connection slots are reserved for non-replication superuser connections"
            }
        }
    }
}

/// A connection's place in the registry; dropping it leaves.
pub struct Registration {
    shared: Arc<Shared>,
    /// What the client knows the session by.
    pub pid: u32,
    /// What it must show to cancel.
    pub secret_key: i32,
    is_session: bool,
    /// The role that the session is counted for.
    role: Option<u32>,
}

impl Registration {
    /// Takes one of the places for sessions, the last ones only for a superuser.
    pub fn become_session(&mut self, is_superuser: bool) -> Result<(), Full> {
        let config = &self.shared.config;
        let mut state = self.shared.state.lock();
        let free = config.connections_max.saturating_sub(state.session_count);
        if free == 0 {
            return Err(Full::All);
        }
        if !is_superuser && free <= config.superuser_reserved {
            return Err(Full::ButReserved);
        }
        state.session_count += 1;
        self.is_session = true;
        self.shared.metrics.connections_open.increment();
        Ok(())
    }

    /// Counts the session for its role; false if that has as many as it may have.
    pub fn count_for_role(&mut self, role: u32, limit: Option<u32>) -> bool {
        let mut state = self.shared.state.lock();
        let count = state.role_sessions.entry(role).or_default();
        if limit.is_some_and(|limit| *count >= limit) {
            return false;
        }
        *count += 1;
        self.role = Some(role);
        true
    }

    /// From now on the session can be cancelled.
    pub fn set_cancel(&self, cancel: Arc<dyn CancelHandle>) {
        if let Some(entry) = self.shared.state.lock().connections.get_mut(&self.pid) {
            entry.cancel = Some(cancel);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let entry = state.connections.remove(&self.pid);
        if self.is_session {
            state.session_count -= 1;
            self.shared.metrics.connections_open.decrement();
        }
        if let Some(role) = self.role
            && let Some(count) = state.role_sessions.get_mut(&role)
        {
            *count -= 1;
            if *count == 0 {
                state.role_sessions.remove(&role);
            }
        }
        drop(state);
        drop(entry);
        self.shared.ended.notify_all();
    }
}
