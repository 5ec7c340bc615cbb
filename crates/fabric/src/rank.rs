//! A rank: one of the processes (or threads) that a fabric connects, and what it can do by itself.
//!
//! Code of a rank is ordinary blocking code. Every wait has a deadline, looks whether the rank that it waits
//! for is alive, and lets others run between looks: with more ranks than processors a wait that only spun
//! would take the processor from the rank it waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::collective::{Collectives, Layout};
use crate::error::Error;
use crate::transport::{Presence, RawWindow, Transport};
use crate::window::{Window, WindowSpec, WindowTable};

/// Deadline of a blocking call where none was set.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Turns of a wait between two close looks at the rank that is waited for.
const PROBE_TURNS: u32 = 1024;

/// One rank's end of a fabric. Clones are the same rank; it may be used by several threads of the rank,
/// except in the simulation (one thread a rank) and for collectives (one call at a time).
#[derive(Clone)]
pub struct Rank {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) transport: Box<dyn Transport>,
    /// Window 0: the table of windows, and the cells of collectives.
    pub(crate) control: Box<dyn RawWindow>,
    pub(crate) layout: Layout,
    pub(crate) collectives: Mutex<Collectives>,
    pub(crate) windows: Mutex<WindowTable>,
    timeout_ns: AtomicU64,
    incarnation: u32,
}

impl Rank {
    /// A rank over a form, with the control window that the form has opened.
    pub(crate) fn new(transport: Box<dyn Transport>, control: Box<dyn RawWindow>) -> Self {
        let rank_count = transport.rank_count();
        let incarnation = transport.presence(transport.rank()).incarnation;
        let inner = Inner {
            layout: Layout::new(rank_count),
            collectives: Mutex::new(Collectives::default()),
            windows: Mutex::new(WindowTable::default()),
            timeout_ns: AtomicU64::new(nanos(TIMEOUT)),
            incarnation,
            control,
            transport,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// This rank's number, from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.transport.rank()
    }

    /// How many ranks there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.inner.transport.rank_count()
    }

    /// How often this rank has returned after a death. 0 for a first start.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.inner.incarnation
    }

    /// What is known of a rank. Costs nanoseconds; a death is noticed by whoever waits.
    ///
    /// # Errors
    ///
    /// There is no such rank.
    pub fn presence(&self, rank: u32) -> Result<Presence, Error> {
        self.check_number(rank)?;
        Ok(self.inner.transport.presence(rank))
    }

    /// The same after a close look, which costs microseconds.
    ///
    /// # Errors
    ///
    /// There is no such rank.
    pub fn probe(&self, rank: u32) -> Result<Presence, Error> {
        self.check_number(rank)?;
        Ok(self.inner.transport.probe(rank))
    }

    /// Nanoseconds of this rank's clock: simulated time in the simulation. Never goes back.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.inner.transport.now_ns()
    }

    /// Sets the deadline of every blocking call of this rank that is given none.
    pub fn set_timeout(&self, timeout: Duration) {
        self.inner.timeout_ns.store(nanos(timeout), Ordering::Relaxed);
    }

    /// That deadline.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.inner.timeout_ns.load(Ordering::Relaxed))
    }

    /// How many turns of a loop that polls may go by between two readings of the clock: one costs more than a
    /// turn.
    #[must_use]
    pub fn clock_turns(&self) -> u32 {
        self.inner.transport.clock_turns().max(1)
    }

    /// Lets others run once: for loops that poll. `turn` counts the turns since something was last found: the
    /// first spin, later ones yield the processor, and after about a millisecond they sleep.
    pub fn pause(&self, turn: u32) {
        self.inner.transport.pause(turn);
    }

    /// A step of the simulation without an operation: another rank may run, or this one be killed. Code that
    /// does something durable outside the fabric (a sync) marks it so. Elsewhere nothing happens.
    pub fn step(&self) {
        self.inner.transport.step();
    }

    /// Polls until there is a result, `needed` is dead, or the rank's deadline has passed.
    ///
    /// # Errors
    ///
    /// Those of `poll`; `RankDead`, `Deadline`.
    pub fn wait_for<T>(
        &self,
        during: &'static str,
        needed: Option<u32>,
        poll: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        self.wait_within(self.timeout(), during, needed, poll)
    }

    /// The same with a deadline of its own.
    ///
    /// # Errors
    ///
    /// Those of `poll`; `RankDead`, `Deadline`.
    pub fn wait_within<T>(
        &self,
        timeout: Duration,
        during: &'static str,
        needed: Option<u32>,
        mut poll: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let mut wait = Wait::default();
        loop {
            if let Some(found) = poll()? {
                return Ok(found);
            }
            wait.turn(self, timeout, during, needed)?;
        }
    }

    /// Makes a window. Collective: every rank calls it, with windows in the same order. A rank that has
    /// returned first makes those again that it had: it finds what the others have, and gets an empty part,
    /// without their help. What no other rank has is a new window, which all make.
    ///
    /// # Errors
    ///
    /// `Disagreement` if the ranks' name, configuration or, for a uniform window, size differ; `RankDead`,
    /// `Deadline`; `Misuse` for too many windows; those of the form.
    pub fn create_window(&self, spec: &WindowSpec<'_>) -> Result<Window, Error> {
        Window::create(self, spec)
    }

    pub(crate) fn check_number(&self, rank: u32) -> Result<(), Error> {
        let rank_count = self.count();
        if rank < rank_count {
            Ok(())
        } else {
            Err(Error::NoSuchRank { rank, rank_count })
        }
    }

    /// An error if the rank is known to be dead.
    pub(crate) fn check_alive(&self, rank: u32, during: &'static str) -> Result<(), Error> {
        if self.inner.transport.presence(rank).alive {
            Ok(())
        } else {
            Err(Error::RankDead { rank, during })
        }
    }
}

/// The turns of one wait.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    turn: u32,
    start_ns: Option<u64>,
    /// The rank that is needed was found dead: what it did before is looked for once more.
    found_dead: bool,
}

impl Wait {
    /// One turn: looks at the clock and at the rank that is needed, now and then, and lets others run.
    pub(crate) fn turn(
        &mut self,
        rank: &Rank,
        timeout: Duration,
        during: &'static str,
        needed: Option<u32>,
    ) -> Result<(), Error> {
        let transport = &rank.inner.transport;
        if let Some(needed) = needed {
            let close_look = self.turn % PROBE_TURNS == PROBE_TURNS - 1;
            let presence = if close_look {
                transport.probe(needed)
            } else {
                transport.presence(needed)
            };
            if !presence.alive {
                if std::mem::replace(&mut self.found_dead, true) {
                    return Err(Error::RankDead { rank: needed, during });
                }
                return Ok(());
            }
        }
        let clock_turns = transport.clock_turns();
        if self.turn % clock_turns == clock_turns - 1 || self.turn > PROBE_TURNS {
            let now_ns = transport.now_ns();
            let waited_ns = now_ns.saturating_sub(*self.start_ns.get_or_insert(now_ns));
            if waited_ns >= nanos(timeout) {
                return Err(Error::Deadline {
                    during,
                    rank: needed,
                    waited_ms: waited_ns / 1_000_000,
                });
            }
        }
        transport.pause(self.turn);
        self.turn = self.turn.saturating_add(1);
        Ok(())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
