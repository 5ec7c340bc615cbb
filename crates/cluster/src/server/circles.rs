//! Circles of transactions that wait for each other at several servers.
//!
//! A server that has had somebody wait for `circles_after` ([`crate::config`]) reads who waits for whom
//! ([`crate::waits`]), from its own waiters on. If there are circles, the transaction with the largest number
//! of all that are entangled with each other is refused: every server that sees them chooses the same one,
//! and the server where it waits is the one that ends its wait. So nobody has to be asked, and nobody has to
//! be told.
//!
//! ```text
//! waiters here ----read----> edges, without those who can go on ----> entangled? largest number?
//!                                                                       | it waits here
//!                                                                       v
//!                                     read its circle again: is every edge still there? -> refused
//! ```
//!
//! A policy that decides by age, or lets nobody wait, has no circles and no reading.
//!
//! Simplification: of more than [`READS_MAX`] transactions that wait, the others are left out of this look;
//! the bound on waits ends what no look finds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_base::TxnId;

use super::{Server, agent_of};
use crate::config::Planted;
use crate::error::{Error, Refusal};
use crate::waits::Wait;

/// Transactions that one look reads about.
const READS_MAX: usize = 1024;

/// A request of one transaction waits at a server for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edge {
    txn: TxnId,
    server: u32,
    /// Of its request there.
    number: u32,
    blocker: TxnId,
}

/// Edges by who waits.
#[derive(Debug, Default)]
struct WaitForGraph {
    edges: BTreeMap<TxnId, Vec<Edge>>,
}

impl WaitForGraph {
    /// Takes away, again and again, what waits for nobody who waits: whoever is left reaches a circle.
    fn keep_stuck(&mut self) {
        let mut waited_for_by: BTreeMap<TxnId, Vec<TxnId>> = BTreeMap::new();
        let mut counts: BTreeMap<TxnId, usize> = BTreeMap::new();
        let mut free = Vec::new();
        for (txn, edges) in &self.edges {
            let stuck = edges.iter().filter(|edge| self.edges.contains_key(&edge.blocker));
            let mut count = 0;
            for edge in stuck {
                waited_for_by.entry(edge.blocker).or_default().push(*txn);
                count += 1;
            }
            counts.insert(*txn, count);
            if count == 0 {
                free.push(*txn);
            }
        }
        while let Some(txn) = free.pop() {
            self.edges.remove(&txn);
            for waiter in waited_for_by.get(&txn).into_iter().flatten() {
                if let Some(count) = counts.get_mut(waiter) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(*waiter);
                    }
                }
            }
        }
    }

    /// The shortest circle through a transaction, if it has the largest number of all that reach it and that
    /// it reaches.
    fn circle_of_largest(&self, txn: TxnId) -> Option<Vec<Edge>> {
        let entangled = self.entangled_with(txn);
        if entangled.last() != Some(&txn) {
            return None;
        }
        // By which edge each was reached.
        let mut reached_by: BTreeMap<TxnId, Edge> = BTreeMap::new();
        let mut next = VecDeque::from([txn]);
        while let Some(from) = next.pop_front() {
            for edge in self.edges.get(&from).into_iter().flatten() {
                if edge.blocker == txn {
                    return Some(path_to(*edge, txn, &reached_by));
                }
                if entangled.contains(&edge.blocker) && !reached_by.contains_key(&edge.blocker) {
                    reached_by.insert(edge.blocker, *edge);
                    next.push_back(edge.blocker);
                }
            }
        }
        None
    }

    /// A transaction and all that are in circles with it.
    fn entangled_with(&self, txn: TxnId) -> BTreeSet<TxnId> {
        let reached = self.reached_from(txn);
        let mut back: BTreeMap<TxnId, Vec<TxnId>> = BTreeMap::new();
        for from in &reached {
            for edge in self.edges.get(from).into_iter().flatten() {
                back.entry(edge.blocker).or_default().push(*from);
            }
        }
        let (mut entangled, mut next) = (BTreeSet::from([txn]), vec![txn]);
        while let Some(at) = next.pop() {
            for from in back.get(&at).into_iter().flatten() {
                if entangled.insert(*from) {
                    next.push(*from);
                }
            }
        }
        entangled
    }

    fn reached_from(&self, txn: TxnId) -> BTreeSet<TxnId> {
        let (mut reached, mut next) = (BTreeSet::from([txn]), vec![txn]);
        while let Some(from) = next.pop() {
            for edge in self.edges.get(&from).into_iter().flatten() {
                if reached.insert(edge.blocker) {
                    next.push(edge.blocker);
                }
            }
        }
        reached
    }
}

/// The edges from `start` to the end of `last`.
fn path_to(last: Edge, start: TxnId, reached_by: &BTreeMap<TxnId, Edge>) -> Vec<Edge> {
    let mut path = vec![last];
    let mut at = last.txn;
    while at != start {
        let Some(edge) = reached_by.get(&at) else {
            break;
        };
        path.push(*edge);
        at = edge.txn;
    }
    path.reverse();
    path
}

impl Server {
    /// Shows who has waited long here, and for whom; takes back what is over. To be called after every change
    /// of the lock table, before any answer leaves.
    pub(super) fn show_waits(&mut self) -> Result<(), Error> {
        for (agent, mut wait) in std::mem::take(&mut self.shown) {
            if self.waiting_number(wait.txn) != Some(wait.number) {
                self.waits.hide(agent)?;
                continue;
            }
            let blockers = self.waits.shown_of(&self.blockers_of(wait.txn), self.looks);
            if wait.blockers != blockers {
                wait.blockers = blockers;
                self.waits.show(&wait)?;
            }
            self.shown.insert(agent, wait);
        }
        Ok(())
    }

    /// Looks for circles among those who have waited long, and breaks them.
    pub(super) fn break_circles(&mut self, now_ns: u64) -> Result<(), Error> {
        let Some(after) = self
            .config
            .circles_after
            .filter(|_| !self.config.policy.is_by_age())
        else {
            return Ok(());
        };
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let mut waiters = Vec::new();
        for (txn, open) in &self.open {
            if let Some(waiting) = &open.waiting
                && now_ns.saturating_sub(waiting.since_ns) >= after_ns
            {
                let (agent, number) = (agent_of(*txn), waiting.number);
                let is_shown = |wait: &Wait| wait.txn == *txn && wait.number == number;
                if !self.shown.get(&agent).is_some_and(is_shown) {
                    let blockers = Vec::new();
                    self.shown.insert(
                        agent,
                        Wait {
                            txn: *txn,
                            number,
                            blockers,
                        },
                    );
                }
                waiters.push(*txn);
            }
        }
        if waiters.is_empty() && self.shown.is_empty() {
            return Ok(());
        }
        self.looks = self.looks.wrapping_add(1);
        self.show_waits()?;
        let mut graph = self.read_graph(&waiters)?;
        graph.keep_stuck();
        // Largest first: whoever is entangled with one that was refused is looked at again next time.
        for txn in waiters.into_iter().rev() {
            let Some(circle) = graph.circle_of_largest(txn) else {
                continue;
            };
            let waits_here = circle
                .first()
                .is_some_and(|edge| edge.server == self.rank.number());
            if waits_here && self.is_circle_now(&circle)? {
                self.stats.circles += 1;
                let granted = self.table.cancel_wait(txn);
                self.waited(txn, Some(Refusal::Deadlock));
                self.granted(granted);
            }
        }
        Ok(())
    }

    /// Reads the edges of all whom these wait for, and so on.
    fn read_graph(&self, waiters: &[TxnId]) -> Result<WaitForGraph, Error> {
        let mut graph = WaitForGraph::default();
        let mut next: VecDeque<TxnId> = waiters.iter().copied().collect();
        while let Some(txn) = next.pop_front() {
            if graph.edges.contains_key(&txn) || graph.edges.len() >= READS_MAX {
                continue;
            }
            let mut edges = Vec::new();
            for server in self.waits.servers_of(txn)? {
                let Some(wait) = self.wait_at(server, txn)? else {
                    continue;
                };
                edges.extend(wait.blockers.into_iter().map(|blocker| Edge {
                    txn,
                    server,
                    number: wait.number,
                    blocker,
                }));
            }
            next.extend(edges.iter().map(|edge| edge.blocker));
            graph.edges.insert(txn, edges);
        }
        Ok(graph)
    }

    /// Whether every edge is still there, now that all have been read.
    fn is_circle_now(&self, circle: &[Edge]) -> Result<bool, Error> {
        if self.config.planted == Planted::BelievesOneLook {
            return Ok(true);
        }
        for edge in circle {
            let wait = self.wait_at(edge.server, edge.txn)?;
            let is_same =
                wait.is_some_and(|wait| wait.number == edge.number && wait.blockers.contains(&edge.blocker));
            if !is_same || !self.waits.is_waiting(edge.txn, edge.server)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What a transaction waits for at a server: here, all of it.
    fn wait_at(&self, server: u32, txn: TxnId) -> Result<Option<Wait>, Error> {
        if server != self.rank.number() {
            return self.waits.read(server, txn);
        }
        let number = self.waiting_number(txn);
        Ok(number.map(|number| Wait {
            txn,
            number,
            blockers: self.blockers_of(txn),
        }))
    }

    fn waiting_number(&self, txn: TxnId) -> Option<u32> {
        let waiting = self.open.get(&txn)?.waiting.as_ref()?;
        Some(waiting.number)
    }

    fn blockers_of(&self, txn: TxnId) -> Vec<TxnId> {
        let mut blockers = self.table.blockers_of(txn);
        blockers.sort_unstable();
        blockers.dedup();
        blockers
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn graph(edges: &[(u64, u64)]) -> WaitForGraph {
        let mut graph = WaitForGraph::default();
        for (from, to) in edges {
            graph.edges.entry(TxnId(*from)).or_default().push(Edge {
                txn: TxnId(*from),
                server: 0,
                number: 1,
                blocker: TxnId(*to),
            });
        }
        graph
    }

    /// Whether there is a way of at least one edge.
    fn reaches(edges: &[(u64, u64)], from: u64, to: u64) -> bool {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            for (_, after) in edges.iter().filter(|(before, _)| *before == at) {
                if reached.insert(*after) {
                    next.push(*after);
                }
            }
        }
        reached.contains(&to)
    }

    proptest! {
        #[test]
        fn one_of_all_that_are_entangled_is_chosen(
            edges in proptest::collection::vec((0..9_u64, 0..9_u64), 0..24)
        ) {
            let edges: Vec<_> = edges.into_iter().filter(|(from, to)| from != to).collect();
            let mut found = graph(&edges);
            found.keep_stuck();
            for txn in 0..9 {
                let on_circle = |other: u64| reaches(&edges, txn, other) && reaches(&edges, other, txn);
                let reaches_circle = (0..9).any(|other| {
                    (other == txn || reaches(&edges, txn, other)) && reaches(&edges, other, other)
                });
                prop_assert_eq!(found.edges.contains_key(&TxnId(txn)), reaches_circle);
                let is_largest = on_circle(txn) && (txn + 1..9).all(|other| !on_circle(other));
                let circle = found.circle_of_largest(TxnId(txn));
                prop_assert_eq!(circle.is_some(), is_largest, "{} in {:?}", txn, edges);
                for (at, edge) in circle.iter().flatten().enumerate() {
                    let circle = circle.as_ref().unwrap();
                    prop_assert!(edges.contains(&(edge.txn.0, edge.blocker.0)));
                    prop_assert_eq!(circle[(at + 1) % circle.len()].txn, edge.blocker);
                }
            }
        }
    }
}
