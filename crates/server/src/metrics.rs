//! Counters of a running server. They only grow, except `connections_open`; reading them is free of
//! contention.

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes one away.
    pub(crate) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counters of one server.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Sockets accepted, cancel requests included.
    pub connections_accepted: Counter,
    /// Sessions open now.
    pub connections_open: Counter,
    /// Clients refused: too many, wrong database, bad startup packet.
    pub connections_refused: Counter,
    /// Clients that asked for TLS and did not get through its handshake.
    pub tls_handshakes_failed: Counter,
    /// Simple-query messages plus executions of portals.
    pub queries: Counter,
    /// ErrorResponses sent to sessions.
    pub errors: Counter,
    /// Cancel requests whose key matched.
    pub cancels: Counter,
    /// Connections ended by a panic in their session: each is a bug.
    pub panics: Counter,
    /// Bytes read from sessions.
    pub bytes_received: Counter,
    /// Bytes written to sessions.
    pub bytes_sent: Counter,
}
