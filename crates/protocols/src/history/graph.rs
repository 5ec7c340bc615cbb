//! The direct serialization graph of a history, and its cycles.
//!
//! ```text
//! T1 --ww--> T2   T2 overwrote what T1 wrote
//! T1 --wr--> T2   T2 read what T1 wrote
//! T1 --rw--> T2   T2 overwrote what T1 read
//! T1 --rt--> T2   T1 had ended when T2 began; only in the strict form
//! ```
//!
//! Versions of a key form a chain, because each write names the version that it replaced. A history is
//! serializable if and only if its versions form such chains and the graph has no cycle: any order that the
//! edges allow is then a serial execution with the same reads and the same final state. With the edges of
//! real time in it, the same test decides strict serializability.
//!
//! Source: Adya 1999, 4.2 and 5.2; Herlihy and Wing 1990 for the order of real time.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::{History, Version};

/// Why one transaction must precede another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dependency {
    /// It wrote a version that the other overwrote.
    WriteWrite,
    /// It wrote a version that the other read.
    WriteRead,
    /// It read a version that the other overwrote.
    ReadWrite,
    /// It had ended when the other began.
    EndedBefore,
}

/// When a transaction ran, on one clock of all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Before its first statement was sent.
    pub begun: u64,
    /// After its commit was acknowledged.
    pub ended: u64,
}

/// An edge of the graph, between transactions' numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The earlier transaction.
    pub from: usize,
    /// The later transaction.
    pub to: usize,
    /// The kind of dependency.
    pub dependency: Dependency,
    /// The key; 0 for [`Dependency::EndedBefore`].
    pub key: u64,
}

/// Why a history is not serializable, or not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A version was read or replaced that no committed transaction wrote: an aborted or torn write was
    /// visible.
    NobodyWrote {
        /// The transaction that saw it.
        transaction: usize,
        /// Its key.
        key: u64,
        /// The version.
        version: Version,
    },
    /// Two transactions replaced the same version: an update was lost.
    ReplacedTwice {
        /// Both transactions.
        transactions: [usize; 2],
        /// Its key.
        key: u64,
        /// The version.
        version: Version,
    },
    /// Two writes made the same version, so the history is ambiguous.
    WrittenTwice {
        /// Both transactions.
        transactions: [usize; 2],
        /// Its key.
        key: u64,
        /// The version.
        version: Version,
    },
    /// Each edge's transaction must precede the next, and the last the first.
    Cycle(Vec<Edge>),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::NobodyWrote {
                transaction,
                key,
                version,
            } => write!(f, "{transaction} saw {version:?} of {key}, which nobody wrote"),
            Violation::ReplacedTwice {
                transactions: [a, b],
                key,
                version,
            } => write!(f, "{a} and {b} both replaced {version:?} of {key}"),
            Violation::WrittenTwice {
                transactions: [a, b],
                key,
                version,
            } => write!(f, "{a} and {b} both wrote {version:?} of {key}"),
            Violation::Cycle(edges) => {
                f.write_str("cycle:")?;
                for edge in edges {
                    write!(f, " {} -{:?} {}->", edge.from, edge.dependency, edge.key)?;
                }
                Ok(())
            }
        }
    }
}

/// The transactions that made and replaced each version, by position in the history.
#[derive(Default)]
struct Chains {
    made: HashMap<(u64, Version), usize>,
    replaced: HashMap<(u64, Version), usize>,
}

impl Chains {
    fn of(history: &History) -> Result<Chains, Violation> {
        let mut chains = Chains::default();
        for (at, transaction) in history.transactions.iter().enumerate() {
            for write in &transaction.writes {
                let twice = |other: usize| {
                    let number = |at: usize| history.transactions.get(at).map_or(at, |t| t.number);
                    [number(other), number(at)]
                };
                let (key, version) = (write.key, write.old);
                if let Some(other) = chains.replaced.insert((key, version), at) {
                    return Err(Violation::ReplacedTwice {
                        transactions: twice(other),
                        key,
                        version,
                    });
                }
                let version = write.new;
                let before = (version == history.initial(key)).then_some(at);
                if let Some(other) = chains.made.insert((key, version), at).or(before) {
                    return Err(Violation::WrittenTwice {
                        transactions: twice(other),
                        key,
                        version,
                    });
                }
            }
        }
        Ok(chains)
    }

    /// The transaction that made a version; `None` if it is an initial version.
    fn maker(
        &self,
        history: &History,
        by: usize,
        key: u64,
        version: Version,
    ) -> Result<Option<usize>, Violation> {
        match self.made.get(&(key, version)) {
            Some(maker) => Ok(Some(*maker)),
            None if history.initial(key) == version => Ok(None),
            None => Err(Violation::NobodyWrote {
                transaction: history.transactions.get(by).map_or(by, |t| t.number),
                key,
                version,
            }),
        }
    }
}

/// An edge by positions in the history.
#[derive(Clone, Copy)]
struct Arrow {
    to: usize,
    dependency: Dependency,
    key: u64,
}

fn arrows(history: &History, chains: &Chains) -> Result<Vec<Vec<Arrow>>, Violation> {
    let mut graph: Vec<Vec<Arrow>> = vec![Vec::new(); history.transactions.len()];
    let mut add = |from: usize, to: usize, dependency: Dependency, key: u64| {
        if from != to
            && let Some(arrows) = graph.get_mut(from)
        {
            arrows.push(Arrow { to, dependency, key });
        }
    };
    for (at, transaction) in history.transactions.iter().enumerate() {
        for write in &transaction.writes {
            if let Some(maker) = chains.maker(history, at, write.key, write.old)? {
                add(maker, at, Dependency::WriteWrite, write.key);
            }
        }
        for read in &transaction.reads {
            if let Some(maker) = chains.maker(history, at, read.key, read.version)? {
                add(maker, at, Dependency::WriteRead, read.key);
            }
            if let Some(next) = chains.replaced.get(&(read.key, read.version)) {
                add(at, *next, Dependency::ReadWrite, read.key);
            }
        }
    }
    Ok(graph)
}

/// Checks whether the history is serializable. Cost: one visit of each read, write and edge.
pub fn check(history: &History) -> Result<(), Violation> {
    let chains = Chains::of(history)?;
    verdict(history, &arrows(history, &chains)?)
}

/// Checks whether a serial order exists in which every transaction is before those that began after it had
/// ended. The intervals are in the order of the history's transactions.
pub fn check_strict(history: &History, intervals: &[Interval]) -> Result<(), Violation> {
    let chains = Chains::of(history)?;
    let mut graph = arrows(history, &chains)?;
    add_real_time(&mut graph, intervals);
    verdict(history, &graph)
}

/// Adds the edges of real time that do not follow from others: from a transaction to those that began after
/// it had ended and before any of these ended.
fn add_real_time(graph: &mut [Vec<Arrow>], intervals: &[Interval]) {
    let mut by_begin: Vec<(usize, Interval)> = intervals.iter().copied().enumerate().collect();
    by_begin.sort_by_key(|(_, interval)| interval.begun);
    let mut first_end = u64::MAX;
    let mut first_ends: Vec<u64> = by_begin
        .iter()
        .rev()
        .map(|(_, interval)| {
            first_end = first_end.min(interval.ended);
            first_end
        })
        .collect();
    first_ends.reverse();
    for (at, interval) in intervals.iter().enumerate() {
        let later = by_begin.partition_point(|(_, other)| other.begun <= interval.ended);
        let Some(first_end) = first_ends.get(later) else {
            continue;
        };
        let next = by_begin.iter().skip(later);
        for (to, _) in next.take_while(|(_, other)| other.begun <= *first_end) {
            if let Some(arrows) = graph.get_mut(at) {
                arrows.push(Arrow {
                    to: *to,
                    dependency: Dependency::EndedBefore,
                    key: 0,
                });
            }
        }
    }
}

fn verdict(history: &History, graph: &[Vec<Arrow>]) -> Result<(), Violation> {
    match cycle(graph) {
        None => Ok(()),
        Some(path) => {
            let number = |at: usize| history.transactions.get(at).map_or(at, |t| t.number);
            let edges = path.into_iter().map(|(from, arrow)| Edge {
                from: number(from),
                to: number(arrow.to),
                dependency: arrow.dependency,
                key: arrow.key,
            });
            Err(Violation::Cycle(edges.collect()))
        }
    }
}

/// Finds a cycle, as its edges and the node where each begins. Iterative depth-first search.
fn cycle(graph: &[Vec<Arrow>]) -> Option<Vec<(usize, Arrow)>> {
    let mut done: HashSet<usize> = HashSet::new();
    for root in 0..graph.len() {
        // The path from the root, and how many edges of each node have been followed.
        let mut path: Vec<(usize, usize)> = Vec::new();
        let mut on_path: HashSet<usize> = HashSet::new();
        if !done.contains(&root) {
            path.push((root, 0));
            on_path.insert(root);
        }
        while let Some((node, followed)) = path.last_mut() {
            let Some(arrow) = graph.get(*node).and_then(|arrows| arrows.get(*followed)) else {
                done.insert(*node);
                on_path.remove(node);
                path.pop();
                continue;
            };
            *followed += 1;
            if on_path.contains(&arrow.to) {
                let start = path.iter().position(|(node, _)| *node == arrow.to)?;
                let arrow_of = |(node, followed): &(usize, usize)| {
                    let arrow = graph.get(*node)?.get(followed.checked_sub(1)?)?;
                    Some((*node, *arrow))
                };
                return path.get(start..)?.iter().map(arrow_of).collect();
            }
            if !done.contains(&arrow.to) {
                on_path.insert(arrow.to);
                path.push((arrow.to, 0));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::Transaction;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const V: fn(u64) -> Version = Version::Value;

    fn history(transactions: Vec<Transaction>) -> History {
        let transactions = transactions.into_iter().enumerate();
        History {
            initial: HashMap::from([(1, 10), (2, 20)]),
            transactions: transactions
                .map(|(number, t)| Transaction { number, ..t })
                .collect(),
        }
    }

    fn transaction(reads: &[(u64, Version)], writes: &[(u64, Version, Version)]) -> Transaction {
        let mut transaction = Transaction::default();
        reads
            .iter()
            .for_each(|(key, version)| transaction.read(*key, *version));
        writes
            .iter()
            .for_each(|(key, old, new)| transaction.write(*key, *old, *new));
        transaction
    }

    fn kinds(violation: Violation) -> Vec<Dependency> {
        match violation {
            Violation::Cycle(edges) => edges.iter().map(|edge| edge.dependency).collect(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_stale_read_is_serializable_but_not_strictly() {
        let stale = history(vec![
            transaction(&[], &[(1, V(10), V(11))]),
            transaction(&[(2, V(20))], &[]),
            transaction(&[(1, V(10))], &[]),
        ]);
        let at = |begun, ended| Interval { begun, ended };
        assert_eq!(check(&stale), Ok(()));
        let together = [at(0, 9), at(2, 3), at(4, 5)];
        assert_eq!(check_strict(&stale, &together), Ok(()));
        let found = kinds(check_strict(&stale, &[at(0, 1), at(2, 3), at(4, 5)]).unwrap_err());
        assert!(found.contains(&Dependency::EndedBefore) && found.contains(&Dependency::ReadWrite));
    }

    #[test]
    fn a_lost_update_is_found() {
        // Both read 10; the second overwrote the first's version.
        let lost = history(vec![
            transaction(&[(1, V(10))], &[(1, V(10), V(11))]),
            transaction(&[(1, V(10))], &[(1, V(11), V(12))]),
        ]);
        let mut found = kinds(check(&lost).unwrap_err());
        found.sort_by_key(|kind| *kind == Dependency::ReadWrite);
        assert!(found.contains(&Dependency::ReadWrite), "{found:?}");
    }

    #[test]
    fn write_skew_is_found() {
        let skew = history(vec![
            transaction(&[(1, V(10))], &[(2, V(20), V(21))]),
            transaction(&[(2, V(20))], &[(1, V(10), V(11))]),
        ]);
        assert_eq!(
            kinds(check(&skew).unwrap_err()),
            [Dependency::ReadWrite, Dependency::ReadWrite]
        );
    }

    #[test]
    fn an_inconsistent_read_is_found() {
        let torn = history(vec![
            transaction(&[], &[(1, V(10), V(11)), (2, V(20), V(21))]),
            transaction(&[(1, V(11)), (2, V(20))], &[]),
        ]);
        assert!(matches!(check(&torn), Err(Violation::Cycle(_))));
    }

    #[test]
    fn a_phantom_is_found() {
        // One searched for keys 3 and 4 and saw only 4; another inserted 3 before 4 was inserted.
        let phantom = history(vec![
            transaction(&[(3, Version::Absent), (4, V(40))], &[]),
            transaction(&[], &[(3, Version::Absent, V(30))]),
            transaction(&[(3, V(30))], &[(4, Version::Absent, V(40))]),
        ]);
        assert!(matches!(check(&phantom), Err(Violation::Cycle(edges)) if edges.len() == 3));
    }

    #[test]
    fn aborted_reads_and_forks_are_found() {
        let dirty = history(vec![transaction(&[(1, V(99))], &[])]);
        assert!(matches!(
            check(&dirty),
            Err(Violation::NobodyWrote { key: 1, .. })
        ));
        let fork = history(vec![
            transaction(&[], &[(1, V(10), V(11))]),
            transaction(&[], &[(1, V(10), V(12))]),
        ]);
        assert!(matches!(check(&fork), Err(Violation::ReplacedTwice { .. })));
        let twice = history(vec![
            transaction(&[], &[(1, V(10), V(11))]),
            transaction(&[], &[(1, V(11), V(10))]),
        ]);
        assert!(matches!(check(&twice), Err(Violation::WrittenTwice { .. })));
    }

    /// Steps of a transaction: a key, and whether it is written.
    fn programs() -> impl Strategy<Value = Vec<Vec<(u64, bool)>>> {
        prop::collection::vec(prop::collection::vec((0u64..5, any::<bool>()), 1..4), 1..7)
    }

    /// Runs programs step by step in a given interleaving, without concurrency control: each step takes
    /// effect at once.
    fn interleave(programs: &[Vec<(u64, bool)>], picks: &[prop::sample::Index]) -> History {
        let mut state: BTreeMap<u64, u64> = BTreeMap::new();
        let mut transactions: Vec<Transaction> = (0..programs.len())
            .map(|number| Transaction {
                number,
                ..Transaction::default()
            })
            .collect();
        let mut at = vec![0; programs.len()];
        let mut value = 100;
        for pick in picks.iter().cycle() {
            let open: Vec<usize> = (0..programs.len())
                .filter(|n| at[*n] < programs[*n].len())
                .collect();
            if open.is_empty() {
                break;
            }
            let n = open[pick.index(open.len())];
            let (key, write) = programs[n][at[n]];
            at[n] += 1;
            let now = Version::from(state.get(&key).copied());
            if write {
                value += 1;
                transactions[n].write(key, now, V(value));
                state.insert(key, value);
            } else {
                transactions[n].read(key, now);
            }
        }
        History {
            initial: HashMap::new(),
            transactions,
        }
    }

    /// Whether some serial order gives every transaction the same reads and replaced versions.
    fn some_order_explains(history: &History) -> bool {
        fn go(history: &History, left: &mut Vec<usize>, state: &mut HashMap<u64, Version>) -> bool {
            if left.is_empty() {
                return true;
            }
            for i in 0..left.len() {
                let n = left.remove(i);
                let t = &history.transactions[n];
                let before = state.clone();
                let now = |state: &HashMap<u64, Version>, key| *state.get(&key).unwrap_or(&Version::Absent);
                let own = |read: &super::super::Read| {
                    t.writes
                        .iter()
                        .any(|w| w.key == read.key && w.new == read.version)
                };
                let fits = t
                    .reads
                    .iter()
                    .all(|read| own(read) || now(state, read.key) == read.version)
                    && t.writes.iter().all(|write| now(state, write.key) == write.old);
                if fits {
                    t.writes.iter().for_each(|write| {
                        state.insert(write.key, write.new);
                    });
                    if go(history, left, state) {
                        return true;
                    }
                }
                *state = before;
                left.insert(i, n);
            }
            false
        }
        let mut left = (0..history.transactions.len()).collect();
        go(history, &mut left, &mut HashMap::new())
    }

    proptest! {
        /// Serial execution passes, and every history that passes has a serial order that explains it.
        #[test]
        fn the_check_agrees_with_trying_every_order(
            programs in programs(),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 24),
        ) {
            let history = interleave(&programs, &picks);
            // If one transaction writes a key twice, with another's write in between, the chain breaks, and
            // both methods reject the history. Reads of such intermediate versions are rejected as well.
            prop_assert_eq!(check(&history).is_ok(), some_order_explains(&history));
        }

        #[test]
        fn serial_histories_pass(programs in programs()) {
            let picks: Vec<prop::sample::Index> = Vec::new();
            let mut serial = History::default();
            let mut state: HashMap<u64, u64> = HashMap::new();
            let _ = picks;
            for (number, program) in programs.iter().enumerate() {
                let mut t = Transaction { number, ..Transaction::default() };
                for (step, (key, write)) in program.iter().enumerate() {
                    let now = Version::from(state.get(key).copied());
                    if *write {
                        let value = 1000 + (number * 10 + step) as u64;
                        t.write(*key, now, V(value));
                        state.insert(*key, value);
                    } else if !t.writes.iter().any(|w| w.key == *key) {
                        t.read(*key, now);
                    }
                }
                serial.transactions.push(t);
            }
            prop_assert_eq!(check(&serial), Ok(()));
        }
    }
}
