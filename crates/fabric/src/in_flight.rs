//! Buffers that the network still reads or writes: a put or a get without a copy.
//!
//! The document's joins keep at least two buffers for each partition, so that one is filled while another is
//! on its way (section 3.2.1), and a buffer may be used again after a flush (4.2.1). Here a buffer is given
//! away with the operation and comes back when a flush of its target has completed that began after the
//! operation was issued: nobody can touch it before. Dropping it flushes.
//!
//! `started` and `completed` count flushes of a target. A flush takes its number n from `started` before it
//! begins and raises `completed` to n when it has returned. An operation remembers `started` after it was
//! issued, t: any flush numbered above t began later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::window::Shared;

/// Flushes of one target.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    started: AtomicU64,
    completed: AtomicU64,
}

impl Flushes {
    /// The number of a flush that begins now. SeqCst, here and in `ticket`: of a flush and an operation, one
    /// is first for both threads.
    pub(crate) fn begin(&self) -> u64 {
        self.started.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// That flush has returned. Release: what it completed happened before `is_over` says so.
    pub(crate) fn end(&self, number: u64) {
        self.completed.fetch_max(number, Ordering::Release);
    }

    fn ticket(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }

    fn is_over(&self, ticket: u64) -> bool {
        self.completed.load(Ordering::Acquire) > ticket
    }
}

/// A buffer on its way to or from another rank.
#[must_use = "dropping it flushes"]
pub struct InFlight {
    buffer: Option<Vec<u8>>,
    target: u32,
    ticket: u64,
    window: Arc<Shared>,
}

impl InFlight {
    pub(crate) fn new(window: Arc<Shared>, target: u32, buffer: Vec<u8>) -> Self {
        let ticket = window.flushes_of(target).map_or(0, Flushes::ticket);
        Self {
            buffer: Some(buffer),
            target,
            ticket,
            window,
        }
    }

    /// The rank at the other end.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Whether a flush has completed the operation.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.window
            .flushes_of(self.target)
            .is_none_or(|flushes| flushes.is_over(self.ticket))
    }

    /// The buffer; flushes the target first if no flush has completed the operation yet.
    ///
    /// # Errors
    ///
    /// Those of the flush. The buffer is then not given back: the network may still use it.
    pub fn wait(mut self) -> Result<Vec<u8>, Error> {
        if !self.is_over() {
            // On an error `drop` decides what becomes of the buffer.
            self.window.flush(self.target)?;
        }
        Ok(self.buffer.take().unwrap_or_default())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.buffer.is_some() && !self.is_over() && self.window.flush(self.target).is_err() {
            // Nobody knows whether the network still uses the memory: it is never freed.
            std::mem::forget(self.buffer.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_flush_that_began_later_completes_an_operation() {
        let flushes = Flushes::default();
        let early = flushes.begin();
        let ticket = flushes.ticket();
        flushes.end(early);
        assert!(!flushes.is_over(ticket), "it had begun before");
        let late = flushes.begin();
        assert!(!flushes.is_over(ticket));
        flushes.end(late);
        assert!(flushes.is_over(ticket));
    }
}
