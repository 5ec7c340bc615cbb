//! What the driver knows of prepared transactions, and what must be true of them after a crash.

use std::collections::{BTreeMap, BTreeSet};

use weft_base::BatchId;
use weft_txn::{Committed, Isolation, Refused};

use super::{Outcome, Run};
use crate::bank::{Bank, Journal, Session};

/// One transaction that was prepared, or may have been.
pub struct Known {
    /// Its transfers: (txid, from, to, amount).
    transfers: Vec<[i64; 4]>,
    /// The batch that prepared it; unknown after an I/O error.
    prepared_in: Option<BatchId>,
    /// Whether it was told to commit, and the batch of that; unknown after an I/O error.
    end: Option<(bool, Option<BatchId>)>,
}

pub type KnownByName = BTreeMap<String, Known>;

/// The batch of an answer, `None` if nobody knows, or an error that is final.
fn batch(answer: &Result<Committed, Box<Refused>>) -> Result<Option<BatchId>, String> {
    match answer {
        Ok(committed) => Ok(Some(committed.batch)),
        Err(refused) if refused.error.state.0 == "58030" => Ok(None),
        Err(refused) => Err(refused.error.to_string()),
    }
}

impl Run {
    pub fn prepare(&mut self, session: Session, transfers: Vec<[i64; 4]>) {
        // Names are used again once they are free, as those of a coordinator that counts in a circle.
        let name = format!("p{}", self.prng.below(6));
        let answer = session.txn.prepare(&name, "tester");
        let in_use = self.prepared.get(&name).is_some_and(|known| {
            // Nobody knows, or it stays prepared.
            known.end.is_none_or(|(_, batch)| batch.is_none())
        });
        match batch(&answer) {
            // The log failed. Only a new name may have reached it.
            Ok(None) if in_use => self.refused(&transfers),
            Ok(prepared_in) => {
                if let Some(before) = self.prepared.remove(&name) {
                    // The name was free: there was no such transaction, or it has ended.
                    assert!(
                        before.end.is_some() || before.prepared_in.is_none(),
                        "{name} is prepared twice"
                    );
                    match before.end {
                        Some(_) => self.ended.push((name.clone(), before)),
                        None => self.refused(&before.transfers),
                    }
                }
                let known = Known {
                    transfers,
                    prepared_in,
                    end: None,
                };
                self.prepared.insert(name, known);
            }
            Err(reason) => {
                assert!(in_use && reason.contains("already in use"), "{name}: {reason}");
                self.known
                    .refused
                    .extend(transfers.iter().map(|values| values[0]));
            }
        }
    }

    pub fn decide(&mut self, bank: &Bank) {
        let open = self.prepared.iter_mut().filter(|(_, known)| known.end.is_none());
        let mut open: Vec<_> = open.collect();
        if open.is_empty() {
            let unknown = bank.engine.commit_prepared("nobody").unwrap_err();
            assert!(["42704", "58030"].contains(&unknown.error.state.0));
            return;
        }
        let nth = self.prng.below(open.len() as u64) as usize;
        let (name, known) = &mut open[nth];
        let commits = self.prng.chance(2, 3);
        let answer = match commits {
            true => bank.engine.commit_prepared(name),
            false => bank.engine.rollback_prepared(name),
        };
        match batch(&answer) {
            Ok(end) => known.end = Some((commits, end)),
            // That it was prepared is not known.
            Err(reason) => assert!(
                known.prepared_in.is_none() && reason.contains("does not exist"),
                "{name}: {reason}"
            ),
        }
        if commits && let Ok(committed) = &answer {
            for values in &known.transfers {
                self.known.committed.insert(values[0], committed.batch);
            }
        }
    }

    /// What is prepared is not visible, and what was rolled back never is.
    pub fn check_prepared(&self, journal: &Journal) -> Outcome {
        let ended = self.ended.iter().map(|(name, known)| (name, known));
        for (name, known) in self.prepared.iter().chain(ended) {
            let invisible = known.end.is_none_or(|(commits, _)| !commits);
            if invisible
                && known
                    .transfers
                    .iter()
                    .any(|values| journal.contains_key(&values[0]))
            {
                return Err(format!("{name} is visible and was not committed"));
            }
        }
        Ok(())
    }

    /// After a recovery that ended with `boundary`: what is prepared, and no other, holds its locks.
    /// No journal: the disk is dead already.
    pub fn settle_prepared(&mut self, bank: &Bank, boundary: BatchId, journal: Option<&Journal>) -> Outcome {
        let listed = bank.engine.prepared_transactions();
        let listed: BTreeSet<String> = listed.iter().map(|info| info.name.to_string()).collect();
        let mut kept = KnownByName::new();
        // Of two with one name the later one was prepared after the end of the earlier one.
        let all = std::mem::take(&mut self.ended).into_iter();
        for (name, mut known) in all.chain(std::mem::take(&mut self.prepared)) {
            let was_prepared = known.prepared_in.is_none_or(|batch| batch <= boundary);
            let is_over = |batch: Option<BatchId>| batch.is_some_and(|batch| batch <= boundary);
            let must_be = known.prepared_in.is_some_and(|batch| batch <= boundary) && known.end.is_none();
            let may_be = was_prepared && known.end.is_none_or(|(_, batch)| !is_over(batch));
            let there = listed.contains(&name) && !kept.contains_key(&name);
            if must_be && !there {
                return Err(format!("{name} was prepared and is lost"));
            }
            let surely_open = known
                .end
                .is_some_and(|(_, batch)| batch.is_some_and(|batch| batch > boundary));
            if was_prepared && known.prepared_in.is_some() && surely_open && !there {
                return Err(format!("the end of {name} was lost, and it is not prepared"));
            }
            if may_be && there {
                let visible =
                    |values: &[i64; 4]| journal.is_some_and(|journal| journal.contains_key(&values[0]));
                if known.transfers.iter().any(visible) {
                    return Err(format!("{name} is prepared and visible"));
                }
                known.prepared_in = Some(boundary);
                known.end = None;
                self.check_locked(bank, &name, &known)?;
                kept.insert(name, known);
            } else if known.end.is_none_or(|(commits, _)| !commits) {
                let txids = known.transfers.iter().map(|values| values[0]);
                self.known.refused.extend(txids);
            }
        }
        if let Some(name) = listed.iter().find(|name| !kept.contains_key(*name)) {
            return Err(format!("{name} is prepared and should not be"));
        }
        self.prepared_after_crashes += kept.len();
        self.prepared = kept;
        Ok(())
    }

    fn check_locked(&self, bank: &Bank, name: &str, known: &Known) -> Outcome {
        for [_, from, to, _] in &known.transfers {
            for account in [*from, *to] {
                let mut session = bank.begin(Isolation::ReadCommitted);
                session.txn.set_no_wait(true);
                match session.add(account, 0) {
                    Err(error) if error.state.0 == "55P03" => {}
                    other => return Err(format!("account {account} of {name} is not locked: {other:?}")),
                }
            }
        }
        Ok(())
    }
}

#[test]
fn prepared_transactions_survive_every_crash() {
    let mut found = 0;
    for seed in 0..crate::seed_count(40) {
        for (config, writes_images) in [
            (crate::bank::quiet(), false),
            (crate::bank::quiet(), true),
            (crate::bank::without_memory(), false),
        ] {
            let mut run = Run::with(seed, None, config);
            (run.prepares, run.writes_images) = (true, writes_images);
            if let Err(reason) = run.all() {
                panic!("seed {seed}: {reason}");
            }
            found += run.prepared_after_crashes;
        }
    }
    assert!(found > 50, "{found} prepared transactions were found again");
}
