//! What transactions did, and whether it can have been one after the other.
//!
//! A record keeps who has written it, in order. So the end of a run shows every version that there was; what
//! was read is known by the number of writers that the reader found.

use std::collections::BTreeMap;

use weft_base::TxnId;

/// One transaction.
#[derive(Debug, Clone)]
pub struct Done {
    pub txn: TxnId,
    /// Record, and how many had written it.
    pub reads: Vec<(u64, usize)>,
    pub writes: Vec<u64>,
    /// On the clock of the harness.
    pub begun: u64,
    pub ended: u64,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its client was told.
    Committed,
    Aborted,
    /// Its agent died, or said that it does not know.
    Unknown,
}

/// Checks that what happened equals some serial order that respects who ended before whom began, that
/// whatever was acknowledged is there, and that every transaction is there as a whole or not at all.
pub fn check(done: &[Done], records: &BTreeMap<u64, Vec<TxnId>>) -> Result<(), String> {
    let mut committed = Vec::new();
    for one in done {
        let found = |record: &u64| {
            let writers = &records[record];
            writers.iter().filter(|writer| **writer == one.txn).count()
        };
        let counts: Vec<usize> = one.writes.iter().map(found).collect();
        if counts.iter().any(|count| *count > 1) {
            return Err(format!("{one:?} has written twice"));
        }
        let (all, none) = (
            counts.iter().all(|count| *count == 1),
            counts.iter().all(|count| *count == 0),
        );
        let is_committed = match one.outcome {
            Outcome::Committed if !all => {
                return Err(format!("lost, though acknowledged: {one:?} {counts:?}"));
            }
            Outcome::Aborted if !none => return Err(format!("there, though aborted: {one:?} {counts:?}")),
            Outcome::Unknown if !all && !none => return Err(format!("split: {one:?} {counts:?}")),
            outcome => {
                outcome == Outcome::Committed
                    || (outcome == Outcome::Unknown && all && !one.writes.is_empty())
            }
        };
        if is_committed {
            committed.push(one);
        }
    }
    for (record, writers) in records {
        for writer in writers {
            if !committed
                .iter()
                .any(|one| one.txn == *writer && one.writes.contains(record))
            {
                return Err(format!(
                    "record {record} was written by {writer:?}, whom nobody knows"
                ));
            }
        }
    }
    is_serial(&committed, records)
}

/// No circle of: wrote what the other read or overwrote, read what the other overwrote, ended before it
/// began.
fn is_serial(committed: &[&Done], records: &BTreeMap<u64, Vec<TxnId>>) -> Result<(), String> {
    let place: BTreeMap<TxnId, usize> = committed
        .iter()
        .enumerate()
        .map(|(at, one)| (one.txn, at))
        .collect();
    let mut after = vec![Vec::new(); committed.len()];
    let mut edge = |from: usize, to: usize| {
        if from != to {
            after[from].push(to);
        }
    };
    for writers in records.values() {
        for pair in writers.windows(2) {
            edge(place[&pair[0]], place[&pair[1]]);
        }
    }
    for (at, one) in committed.iter().enumerate() {
        for (record, seen) in &one.reads {
            let writers = &records[record];
            if *seen > writers.len() {
                return Err(format!("{one:?} has read what is not there"));
            }
            if let Some(writer) = seen.checked_sub(1).map(|last| writers[last]) {
                edge(place[&writer], at);
            }
            if let Some(writer) = writers.get(*seen) {
                edge(at, place[writer]);
            }
        }
        for (other, later) in committed.iter().enumerate() {
            // An unknown one may have taken effect long after its agent died.
            if one.outcome == Outcome::Committed && one.ended < later.begun {
                edge(at, other);
            }
        }
    }
    let mut before = vec![0; committed.len()];
    after.iter().flatten().for_each(|to| before[*to] += 1);
    let mut free: Vec<usize> = (0..committed.len()).filter(|at| before[*at] == 0).collect();
    let mut ordered = 0;
    while let Some(at) = free.pop() {
        ordered += 1;
        for to in &after[at] {
            before[*to] -= 1;
            if before[*to] == 0 {
                free.push(*to);
            }
        }
    }
    match ordered == committed.len() {
        true => Ok(()),
        false => {
            let circle: Vec<&&Done> = committed
                .iter()
                .enumerate()
                .filter(|(at, _)| before[*at] > 0)
                .map(|(_, one)| one)
                .collect();
            Err(format!("no serial order: {circle:#?}\n{records:?}"))
        }
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    let one = |number, reads: &[(u64, usize)], writes: &[u64], begun, outcome| Done {
        txn: TxnId(number),
        reads: reads.to_vec(),
        writes: writes.to_vec(),
        begun,
        ended: begun + 1,
        outcome,
    };
    let records = |a: &[u64], b: &[u64]| {
        let ids = |of: &[u64]| of.iter().map(|id| TxnId(*id)).collect::<Vec<_>>();
        BTreeMap::from([(0, ids(a)), (1, ids(b))])
    };
    let both = one(1, &[], &[0, 1], 0, Outcome::Unknown);
    assert!(check(std::slice::from_ref(&both), &records(&[1], &[1])).is_ok());
    assert!(check(std::slice::from_ref(&both), &records(&[], &[])).is_ok());
    assert!(check(&[both], &records(&[1], &[])).unwrap_err().contains("split"));
    let told = one(1, &[], &[0], 0, Outcome::Committed);
    assert!(
        check(std::slice::from_ref(&told), &records(&[], &[]))
            .unwrap_err()
            .contains("lost")
    );
    assert!(check(&[one(1, &[], &[0], 0, Outcome::Aborted)], &records(&[1], &[])).is_err());
    // Each has read what the other has overwritten.
    let skew = [
        one(1, &[(1, 0)], &[0], 0, Outcome::Committed),
        one(2, &[(0, 0)], &[1], 0, Outcome::Committed),
    ];
    assert!(
        check(&skew, &records(&[1], &[2]))
            .unwrap_err()
            .contains("no serial order")
    );
    // A reader that began after the writer had ended.
    let stale = [told, one(2, &[(0, 0)], &[], 5, Outcome::Committed)];
    assert!(
        check(&stale, &records(&[1], &[]))
            .unwrap_err()
            .contains("no serial order")
    );
}
