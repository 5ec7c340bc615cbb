//! Decisions of a home: which of its transactions are being decided, and holds of deciding.
//!
//! A transaction that wrote on several ranks is committed by its home's commit, which takes with it a row of
//! the table of decisions. From shortly before until all other ranks have acknowledged, it is on some ranks
//! and not on others. A query over several ranks therefore holds all homes: a held home lets the
//! transactions that it decides finish and begins none, so that while all are held every transaction of
//! several ranks is on all its ranks or on none. What is read at that time is one state of the whole.
//!
//! A hold has a deadline, after which the home goes on by itself: a reader that dies does not stop it for
//! long. The reader learns, when it releases, whether the hold lasted until then; otherwise it begins anew.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Names a hold: rank, life and number.
pub type HoldId = (u32, u32, u64);

#[derive(Default)]
struct State {
    /// Transactions between their first vote and their last acknowledgement.
    open: HashSet<String>,
    /// How many are between their decision and their last acknowledgement.
    deciding: usize,
    holds: HashMap<HoldId, Instant>,
}

/// The decisions of one rank as a home.
#[derive(Default)]
pub struct Decisions {
    state: Mutex<State>,
    changed: Condvar,
}

/// A transaction that is being decided; dropping it says that all ranks know.
pub struct Deciding<'a> {
    decisions: &'a Decisions,
}

/// A transaction whose outcome is open; dropping it says that it is decided.
pub struct Open<'a> {
    decisions: &'a Decisions,
    gid: String,
}

impl Decisions {
    /// Notes that a transaction's ranks are about to vote.
    pub fn open(&self, gid: &str) -> Open<'_> {
        self.state.lock().open.insert(gid.to_owned());
        Open {
            decisions: self,
            gid: gid.to_owned(),
        }
    }

    /// Whether a transaction's outcome is open.
    pub fn is_open(&self, gid: &str) -> bool {
        self.state.lock().open.contains(gid)
    }

    /// Begins to decide a transaction, once no hold holds.
    pub fn decide(&self) -> Deciding<'_> {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            state.holds.retain(|_, until| *until > now);
            let Some(until) = state.holds.values().max().copied() else {
                break;
            };
            self.changed.wait_until(&mut state, until);
        }
        state.deciding += 1;
        Deciding { decisions: self }
    }

    /// Holds until released, or for so long. Returns once nothing is being decided; false if that takes
    /// longer than the hold.
    pub fn hold(&self, id: HoldId, lasting: Duration) -> bool {
        let until = Instant::now() + lasting;
        let mut state = self.state.lock();
        state.holds.insert(id, until);
        while state.deciding > 0 {
            if self.changed.wait_until(&mut state, until).timed_out() && state.deciding > 0 {
                state.holds.remove(&id);
                self.changed.notify_all();
                return false;
            }
        }
        true
    }

    /// Ends a hold. Whether it lasted until now.
    pub fn release(&self, id: HoldId) -> bool {
        let mut state = self.state.lock();
        let until = state.holds.remove(&id);
        self.changed.notify_all();
        until.is_some_and(|until| until > Instant::now())
    }
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        self.decisions.state.lock().deciding -= 1;
        self.decisions.changed.notify_all();
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.decisions.state.lock().open.remove(&self.gid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(30);

    #[test]
    fn a_hold_waits_for_what_is_decided_and_stops_what_is_not() {
        let decisions = Decisions::default();
        let deciding = decisions.decide();
        assert!(!decisions.hold((0, 0, 1), SHORT), "something is being decided");
        thread::scope(|scope| {
            let held = scope.spawn(|| decisions.hold((0, 0, 2), LONG));
            thread::sleep(SHORT);
            drop(deciding);
            assert!(held.join().unwrap());
            let later = scope.spawn(|| drop(decisions.decide()));
            thread::sleep(SHORT);
            assert!(!later.is_finished());
            assert!(decisions.release((0, 0, 2)));
            later.join().unwrap();
        });
        assert!(!decisions.release((0, 0, 2)), "it is released already");
    }

    #[test]
    fn a_hold_ends_by_itself_and_its_reader_learns_that() {
        let decisions = Decisions::default();
        assert!(decisions.hold((1, 0, 1), SHORT));
        drop(decisions.decide());
        assert!(!decisions.release((1, 0, 1)));
    }

    #[test]
    fn a_transaction_is_open_until_it_is_decided() {
        let decisions = Decisions::default();
        let open = decisions.open("a");
        assert!(decisions.is_open("a") && !decisions.is_open("b"));
        drop(open);
        assert!(!decisions.is_open("a"));
    }
}
