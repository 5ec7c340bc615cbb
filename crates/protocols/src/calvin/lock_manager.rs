//! The ordered lock manager: a list of requests in stream order for each lock.
//!
//! A request is granted if it is compatible with every earlier request in its list. A release removes a
//! request and grants what the rest of the list now allows: the next writer, or all readers up to the next
//! writer (listing 3.1, generalised to all modes). A transaction is ready when none of its requests waits.
//!
//! The lists and the wait counts are maps, as in the document, which attributes the lock manager's cost to
//! exactly these; they reuse their memory.
//!
//! Source: Hobbes 3.2.1, listing 3.1.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::needs::Need;
use weft_lock::LockMode;

#[derive(Debug, Clone, Copy)]
struct Request {
    job: u32,
    mode: LockMode,
    granted: bool,
}

/// See the module. Single-threaded.
#[derive(Debug, Default)]
pub struct OrderedLockManager {
    requests: HashMap<u32, VecDeque<Request>>,
    /// For each waiting transaction, the number of its waiting requests.
    waits: HashMap<u32, u32>,
    /// Empty lists to be reused.
    spare: Vec<VecDeque<Request>>,
}

impl OrderedLockManager {
    /// Enters the requests of the next transaction in order, each slot once. True if all are granted.
    pub fn lock(&mut self, job: u32, needs: &[Need]) -> bool {
        let mut waiting = 0;
        for need in needs {
            let spare = &mut self.spare;
            let list = self
                .requests
                .entry(need.slot)
                .or_insert_with(|| spare.pop().unwrap_or_default());
            let conflicts = need.mode.conflicts();
            let granted = list.iter().all(|before| before.mode.bit() & conflicts == 0);
            waiting += u32::from(!granted);
            list.push_back(Request {
                job,
                mode: need.mode,
                granted,
            });
        }
        if waiting > 0 {
            self.waits.insert(job, waiting);
        }
        waiting == 0
    }

    /// Removes the requests of a transaction, and appends the transactions that thereby become ready to
    /// `ready`, in list order.
    pub fn release(&mut self, job: u32, needs: &[Need], ready: &mut Vec<u32>) {
        for need in needs {
            let Some(list) = self.requests.get_mut(&need.slot) else {
                continue;
            };
            if let Some(position) = list.iter().position(|request| request.job == job) {
                list.remove(position);
            }
            if list.is_empty() {
                self.spare.extend(self.requests.remove(&need.slot));
                continue;
            }
            let mut before = 0u8;
            for request in list {
                if before & request.mode.conflicts() == 0 && !request.granted {
                    request.granted = true;
                    if let Some(left) = self.waits.get_mut(&request.job) {
                        *left -= 1;
                        if *left == 0 {
                            self.waits.remove(&request.job);
                            ready.push(request.job);
                        }
                    }
                }
                before |= request.mode.bit();
                if before & LockMode::X.bit() != 0 {
                    break;
                }
            }
        }
    }

    /// Whether no request is held or waiting.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.waits.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_lock::compatible;

    const MODES: [LockMode; 4] = [LockMode::IX, LockMode::S, LockMode::SIX, LockMode::X];

    fn need(slot: u32, mode: LockMode) -> Need {
        Need { slot, mode }
    }

    #[test]
    fn a_release_grants_the_next_writer_or_all_readers_up_to_it() {
        let mut locks = OrderedLockManager::default();
        let (read, write) = ([need(1, LockMode::S)], [need(1, LockMode::X)]);
        assert!(locks.lock(0, &write));
        assert!(!locks.lock(1, &read) && !locks.lock(2, &read) && !locks.lock(3, &write));
        assert!(!locks.lock(4, &read), "nobody overtakes the writer");
        let mut ready = Vec::new();
        locks.release(0, &write, &mut ready);
        assert_eq!(ready, [1, 2]);
        ready.clear();
        locks.release(2, &read, &mut ready);
        assert!(ready.is_empty());
        locks.release(1, &read, &mut ready);
        assert_eq!(ready, [3]);
        ready.clear();
        locks.release(3, &write, &mut ready);
        locks.release(4, &read, &mut ready);
        assert_eq!(ready, [4]);
        assert!(locks.is_empty());
    }

    proptest! {
        /// Ready transactions run at any time, in any order: conflicting ones never run concurrently, and the
        /// first in stream order runs first; in the end all have run.
        #[test]
        fn order_of_conflicting_transactions_is_that_of_the_stream(
            jobs in prop::collection::vec(prop::collection::btree_map(0u32..6, 0usize..4, 0..4), 1..30),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 60),
        ) {
            let jobs: Vec<Vec<Need>> = jobs.iter()
                .map(|job| job.iter().map(|(slot, mode)| need(*slot, MODES[*mode])).collect()).collect();
            let conflict = |a: &[Need], b: &[Need]| a.iter().any(|x| b.iter()
                .any(|y| x.slot == y.slot && !compatible(x.mode, y.mode)));
            let mut locks = OrderedLockManager::default();
            let mut ready: Vec<u32> = Vec::new();
            for (n, needs) in jobs.iter().enumerate() {
                if locks.lock(n as u32, needs) {
                    ready.push(n as u32);
                }
            }
            let mut finished = Vec::new();
            for pick in picks.iter().cycle().take(jobs.len()) {
                prop_assert!(!ready.is_empty(), "nothing is ready and not all have run");
                for (i, a) in ready.iter().enumerate() {
                    for b in &ready[i + 1..] {
                        prop_assert!(!conflict(&jobs[*a as usize], &jobs[*b as usize]));
                    }
                }
                let n = ready.swap_remove(pick.index(ready.len()));
                for earlier in 0..n {
                    if conflict(&jobs[earlier as usize], &jobs[n as usize]) {
                        prop_assert!(finished.contains(&earlier));
                    }
                }
                finished.push(n);
                locks.release(n, &jobs[n as usize], &mut ready);
            }
            prop_assert!(locks.is_empty() && ready.is_empty());
        }
    }
}
