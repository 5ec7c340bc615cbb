//! Random histories against a lock table written straight from the definitions: lists, searched from front to
//! back.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weft_base::TxnId;
use weft_lock::{
    Acquire, DeadlockDetection, LockMode, LockRequest, LockTable, Mark, ResourceId, compatible, join,
};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Acquire(u64, Vec<(u64, LockMode)>),
    Release(u64),
    Cancel(u64),
    Mark(u64),
    Back(u64),
}

pub(crate) fn steps(txns: u64, resources: u64, count: usize) -> impl Strategy<Value = Vec<Step>> {
    let mode = (1_usize..6).prop_map(|i| LockMode::ALL[i]);
    let requests = proptest::collection::vec((0..resources, mode), 1..4);
    let step = prop_oneof![
        8 => (0..txns, requests).prop_map(|(txn, requests)| Step::Acquire(txn, requests)),
        2 => (0..txns).prop_map(Step::Release),
        1 => (0..txns).prop_map(Step::Cancel),
        1 => (0..txns).prop_map(Step::Mark),
        1 => (0..txns).prop_map(Step::Back),
    ];
    proptest::collection::vec(step, 1..count)
}

pub(crate) fn requests_of(requests: &[(u64, LockMode)]) -> Vec<LockRequest> {
    requests
        .iter()
        .map(|(r, mode)| LockRequest::new(ResourceId::other(*r), *mode))
        .collect()
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    txn: u64,
    target: LockMode,
    conversion: bool,
}

#[derive(Default)]
struct Model {
    /// Holders of each resource.
    held: BTreeMap<u64, Vec<(u64, LockMode)>>,
    queue: BTreeMap<u64, Vec<Waiting>>,
    /// What a waiting transaction still wants after what it waits for.
    rest: BTreeMap<u64, Vec<(u64, LockMode)>>,
    /// What each transaction took: resource and mode before.
    log: BTreeMap<u64, Vec<(u64, LockMode)>>,
    marks: BTreeMap<u64, usize>,
    victims: BTreeSet<u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Granted,
    Waiting,
    Deadlock,
    Refused,
}

impl Model {
    fn held_by(&self, resource: u64, txn: u64) -> LockMode {
        let holders = self.held.get(&resource).into_iter().flatten();
        holders
            .filter(|(holder, _)| *holder == txn)
            .map(|(_, mode)| *mode)
            .next()
            .unwrap_or(LockMode::NL)
    }

    fn set(&mut self, resource: u64, txn: u64, mode: LockMode) {
        let holders = self.held.entry(resource).or_default();
        holders.retain(|(holder, _)| *holder != txn);
        if mode != LockMode::NL {
            holders.push((txn, mode));
        }
    }

    fn fits(&self, resource: u64, txn: u64, mode: LockMode) -> bool {
        self.held
            .get(&resource)
            .into_iter()
            .flatten()
            .all(|(holder, held)| *holder == txn || compatible(mode, *held))
    }

    fn waits(&self, txn: u64) -> Option<(u64, Waiting)> {
        self.queue
            .iter()
            .find_map(|(r, queue)| Some((*r, *queue.iter().find(|w| w.txn == txn)?)))
    }

    /// Everybody that a waiter waits for.
    fn edges(&self, txn: u64) -> Vec<u64> {
        let Some((resource, waiter)) = self.waits(txn) else {
            return Vec::new();
        };
        let holders = self.held.get(&resource).into_iter().flatten();
        let holders = holders
            .filter(|(h, held)| *h != txn && !compatible(waiter.target, *held))
            .map(|(h, _)| *h);
        holders
            .chain(
                self.queue[&resource]
                    .iter()
                    .take_while(|w| w.txn != txn)
                    .map(|w| w.txn),
            )
            .collect()
    }

    fn reaches(&self, from: u64, to: u64) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = self.edges(from);
        while let Some(txn) = open.pop() {
            if txn == to {
                return true;
            }
            if seen.insert(txn) {
                open.extend(self.edges(txn));
            }
        }
        false
    }

    fn acquire(&mut self, txn: u64, requests: &[(u64, LockMode)]) -> Outcome {
        if self.waits(txn).is_some() || self.victims.contains(&txn) {
            return Outcome::Refused;
        }
        for (i, (resource, mode)) in requests.iter().enumerate() {
            let held = self.held_by(*resource, txn);
            let target = join(held, *mode);
            if target == held {
                continue;
            }
            let conversion = held != LockMode::NL;
            let queue = self.queue.entry(*resource).or_default();
            let in_front = queue.iter().filter(|w| w.conversion || !conversion).count();
            if in_front == 0 && self.fits(*resource, txn, target) {
                self.set(*resource, txn, target);
                self.log.entry(txn).or_default().push((*resource, held));
                continue;
            }
            self.queue.entry(*resource).or_default().insert(
                in_front,
                Waiting {
                    txn,
                    target,
                    conversion,
                },
            );
            if self.reaches(txn, txn) {
                self.queue.entry(*resource).or_default().retain(|w| w.txn != txn);
                return Outcome::Deadlock;
            }
            self.rest.insert(txn, requests[i + 1..].to_vec());
            return Outcome::Waiting;
        }
        Outcome::Granted
    }

    fn wake(&mut self, touched: Vec<u64>) -> Vec<u64> {
        let mut done = Vec::new();
        for resource in touched {
            let mut woken = Vec::new();
            while let Some(head) = self.queue.get(&resource).and_then(|queue| queue.first().copied()) {
                if !self.fits(resource, head.txn, head.target) {
                    break;
                }
                let before = self.held_by(resource, head.txn);
                self.queue.entry(resource).or_default().remove(0);
                self.set(resource, head.txn, head.target);
                self.log.entry(head.txn).or_default().push((resource, before));
                woken.push(head.txn);
            }
            for txn in woken {
                let rest = self.rest.remove(&txn).unwrap_or_default();
                match self.acquire(txn, &rest) {
                    Outcome::Granted => done.push(txn),
                    Outcome::Waiting => {}
                    Outcome::Deadlock | Outcome::Refused => {
                        self.victims.insert(txn);
                    }
                }
            }
        }
        done
    }

    fn stop_waiting(&mut self, txn: u64) -> Vec<u64> {
        self.rest.remove(&txn);
        let Some((resource, _)) = self.waits(txn) else {
            return Vec::new();
        };
        self.queue.entry(resource).or_default().retain(|w| w.txn != txn);
        vec![resource]
    }

    fn release(&mut self, txn: u64) -> Vec<u64> {
        let mut touched = self.stop_waiting(txn);
        self.victims.remove(&txn);
        self.marks.remove(&txn);
        for (resource, before) in self.log.remove(&txn).unwrap_or_default() {
            self.set(resource, txn, LockMode::NL);
            if before == LockMode::NL {
                touched.push(resource);
            }
        }
        self.wake(touched)
    }

    fn back(&mut self, txn: u64) -> Vec<u64> {
        let mut touched = self.stop_waiting(txn);
        let log = self.log.entry(txn).or_default();
        let mark = self.marks.get(&txn).copied().unwrap_or(0).min(log.len());
        for (resource, before) in log.split_off(mark).into_iter().rev() {
            self.set(resource, txn, before);
            touched.push(resource);
        }
        self.wake(touched)
    }
}

/// Holds and waits of the table, as the model has them.
fn compare(table: &LockTable, model: &Model, txns: u64) -> Result<(), TestCaseError> {
    for txn in 0..txns {
        let mut held: Vec<_> = table.held(TxnId(txn)).collect();
        held.sort_unstable();
        let holders = model
            .held
            .iter()
            .flat_map(|(r, holders)| holders.iter().map(move |(h, mode)| (*r, *h, *mode)));
        let of_model: Vec<_> = holders
            .filter(|(_, h, _)| *h == txn)
            .map(|(r, _, mode)| (ResourceId::other(r), mode))
            .collect();
        prop_assert_eq!(held, of_model);
        let waits = model
            .waits(txn)
            .map(|(r, w)| LockRequest::new(ResourceId::other(r), w.target));
        prop_assert_eq!(table.waits_for(TxnId(txn)), waits);
        prop_assert!(
            !model.reaches(txn, txn),
            "a circle of waiting transactions stands"
        );
        // Nobody waits without need: the head of a queue is blocked by a holder.
        if let Some((resource, waiter)) = model.waits(txn)
            && model.queue[&resource][0].txn == txn
        {
            prop_assert!(!model.fits(resource, txn, waiter.target));
        }
    }
    for holders in model.held.values() {
        for (i, (_, a)) in holders.iter().enumerate() {
            prop_assert!(holders.iter().skip(i + 1).all(|(_, b)| compatible(*a, *b)));
        }
    }
    for (resource, holders) in &model.held {
        for mode in LockMode::ALL {
            let blocked = holders.iter().any(|(_, held)| !compatible(*held, mode));
            prop_assert_eq!(table.blocked_by(ResourceId::other(*resource), mode), blocked);
        }
    }
    let waiting = (0..txns).filter(|txn| model.waits(*txn).is_some()).count();
    prop_assert_eq!(table.waiting_count(), waiting);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn the_table_does_what_the_definitions_say(steps in steps(6, 4, 60)) {
        let (mut table, mut model) = (LockTable::new(), Model::default());
        let mut marks: BTreeMap<u64, Mark> = BTreeMap::new();
        let numbers = |txns: Vec<TxnId>| txns.into_iter().map(|txn| txn.0).collect::<Vec<_>>();
        for step in steps {
            match step {
                Step::Acquire(txn, requests) => {
                    let wanted = requests_of(&requests);
                    let outcome = match table.acquire(TxnId(txn), &wanted, &DeadlockDetection) {
                        Acquire::Granted => Outcome::Granted,
                        Acquire::Waiting => Outcome::Waiting,
                        Acquire::Refused => Outcome::Refused,
                        Acquire::Deadlock { cycle } => {
                            prop_assert_eq!(cycle[0], TxnId(txn));
                            for pair in cycle.windows(2).skip(1) {
                                prop_assert!(table.blockers_of(pair[0]).contains(&pair[1]));
                            }
                            // The last waits for a lock of the requester, or for its place in a queue.
                            let last = table.waits_for(cycle[cycle.len() - 1]).unwrap();
                            prop_assert_ne!(table.mode_held(TxnId(txn), last.resource), LockMode::NL);
                            Outcome::Deadlock
                        }
                    };
                    prop_assert_eq!(outcome, model.acquire(txn, &requests));
                }
                Step::Release(txn) => {
                    marks.remove(&txn);
                    prop_assert_eq!(numbers(table.release_all(TxnId(txn))), model.release(txn));
                }
                Step::Cancel(txn) => {
                    let touched = model.stop_waiting(txn);
                    prop_assert_eq!(numbers(table.cancel_wait(TxnId(txn))), model.wake(touched));
                }
                Step::Mark(txn) => {
                    marks.insert(txn, table.mark(TxnId(txn)));
                    let len = model.log.get(&txn).map_or(0, Vec::len);
                    model.marks.insert(txn, len);
                }
                Step::Back(txn) => {
                    let mark = marks.get(&txn).copied().unwrap_or_default();
                    prop_assert_eq!(numbers(table.release_since(TxnId(txn), mark)), model.back(txn));
                }
            }
            let victims = table.take_victims();
            let victims: BTreeSet<u64> = victims.into_iter().map(|victim| victim.txn.0).collect();
            // Told of, they may go on: what they hold stays held.
            prop_assert_eq!(victims, std::mem::take(&mut model.victims));
            compare(&table, &model, 6)?;
        }
        for txn in 0..6 {
            table.release_all(TxnId(txn));
        }
        prop_assert!(table.is_empty() && table.waiting_count() == 0 && table.take_victims().is_empty());
    }
}
