//! Votes, and the ends of transactions, at a server.
//!
//! A vote is one remote store into the word that the agent has for this server: the transaction's number, and
//! yes or no. So a vote that comes after its coordinator has given up is none for a later transaction. (The
//! document adds to one word for all servers, 5.2.3, which cannot tell late votes from others.) A server
//! that has nothing to write has no reason to wait for the outcome: the transaction has all its locks by
//! now, so those that only read can go.

use std::collections::VecDeque;

use weft_base::codec::ByteReader;
use weft_base::{Lsn, TxnId};
use weft_lock::LockMode;

use super::{Open, Server, State, agent_of};
use crate::config::{AGENT_BITS, record_lock};
use crate::error::Error;
use crate::journal::{Entry, Write, read_writes};
use crate::message::{Answer, Staged};

/// A vote of a transaction, as it is in a word of its agent.
pub(crate) fn vote_word(txn: TxnId, is_yes: bool) -> u64 {
    txn.0 >> AGENT_BITS << 2 | if is_yes { 1 } else { 2 }
}

/// What is done once an entry is durable.
#[derive(Debug)]
pub(super) enum Due {
    /// The vote for a prepared transaction.
    Vote { txn: TxnId },
    /// A transaction without a vote is committed.
    Finished { txn: TxnId, writes: Vec<Write> },
    /// The coordinator may forget a transaction.
    Ended { txn: TxnId },
}

impl Server {
    /// Votes.
    pub(super) fn prepare(&mut self, txn: TxnId, life: u32, staged: Staged) -> Result<(), Error> {
        let Some(writes) = self.writes_of(txn, life, staged)? else {
            self.release_if_active(txn);
            return self.vote(txn, false);
        };
        if writes.is_empty() {
            self.release(txn);
            return self.vote(txn, true);
        }
        let lsn = self.journal.append(&Entry::Prepared {
            txn,
            locks: self
                .table
                .held(txn)
                .map(|(resource, mode)| weft_lock::LockRequest::new(resource, mode))
                .collect(),
            writes: writes.clone(),
        })?;
        if let Some(open) = self.open.get_mut(&txn) {
            open.state = State::Prepared {
                writes,
                asked_ns: self.rank.now_ns(),
            };
        }
        self.once_durable(lsn, Due::Vote { txn });
        Ok(())
    }

    /// Commits a transaction that concerns nobody else.
    pub(super) fn finish(&mut self, txn: TxnId, life: u32, staged: Staged) -> Result<(), Error> {
        let Some(writes) = self.writes_of(txn, life, staged)? else {
            self.release_if_active(txn);
            self.answer(&Answer::Finished {
                txn,
                committed: false,
            });
            return Ok(());
        };
        let lsn = self.journal.append(&Entry::Finished {
            txn,
            writes: writes.clone(),
        })?;
        if let Some(open) = self.open.get_mut(&txn) {
            open.state = State::Finishing;
        }
        self.once_durable(lsn, Due::Finished { txn, writes });
        Ok(())
    }

    /// Whether a transaction that needed no vote is committed, for an agent that has no answer.
    pub(super) fn was_finished(&mut self, txn: TxnId) {
        match self.open.get(&txn).map(|open| &open.state) {
            // It is answered once that is durable.
            Some(State::Finishing) => return,
            // Its request to finish was lost.
            Some(State::Active) => self.release(txn),
            Some(State::Prepared { .. }) => {
                self.stats.nonsense += 1;
                return;
            }
            None => {}
        }
        let committed = self.finished.get(&agent_of(txn)) == Some(&txn);
        self.answer(&Answer::Finished { txn, committed });
    }

    /// The staged writes of a transaction that may commit here; `None` if it may not.
    fn writes_of(&self, txn: TxnId, life: u32, staged: Staged) -> Result<Option<Vec<Write>>, Error> {
        let may = |open: &Open| open.state == State::Active && open.waiting.is_none() && !open.is_wounded;
        if life != self.rank.incarnation() || !self.open.get(&txn).is_some_and(may) {
            return Ok(None);
        }
        if staged.bytes == 0 {
            return Ok(Some(Vec::new()));
        }
        if staged.bytes > self.config.staging_bytes {
            return Ok(None);
        }
        let (own, mut bytes) = (self.rank.number(), vec![0; staged.bytes as usize]);
        let from = self.config.staging_offset(own, agent_of(txn));
        self.data.local_read(from, &mut bytes)?;
        if crc32c::crc32c(&bytes) != staged.crc {
            return Ok(None);
        }
        let mut reader = ByteReader::new(&bytes);
        let Ok(writes) = read_writes(&mut reader) else {
            return Ok(None);
        };
        let is_right = |write: &Write| {
            let lock = record_lock(write.record);
            write.record < self.config.records
                && self.config.server_of(lock) == own
                && write.bytes.len() == self.config.record_bytes as usize
                && self.table.mode_held(txn, lock) == LockMode::X
        };
        let all_right = reader.finish().is_ok() && writes.iter().all(is_right);
        Ok(all_right.then_some(writes))
    }

    fn release_if_active(&mut self, txn: TxnId) {
        let is_active = |open: &Open| open.state == State::Active;
        if self.open.get(&txn).is_some_and(is_active) {
            self.release(txn);
        }
    }

    fn vote(&mut self, txn: TxnId, is_yes: bool) -> Result<(), Error> {
        if let Some(count) = self.stats.votes.get_mut(usize::from(!is_yes)) {
            *count += 1;
        }
        let offset = 8 * u64::from(self.rank.number());
        match self.votes.store(agent_of(txn), offset, vote_word(txn, is_yes)) {
            // A coordinator that died is asked when it returns, or has nothing to decide.
            Ok(()) | Err(weft_fabric::Error::RankDead { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The coordinator says how a transaction ended.
    pub(super) fn end(&mut self, txn: TxnId, committed: bool) -> Result<(), Error> {
        let Some(open) = self.open.get_mut(&txn) else {
            // It was told before, or only read here, or is of an earlier life: whatever was prepared is
            // restored.
            self.once_durable(self.journal.durable(), Due::Ended { txn });
            return Ok(());
        };
        match std::mem::replace(&mut open.state, State::Active) {
            State::Active if committed => {
                // Without a vote it cannot have been.
                self.stats.nonsense += 1;
            }
            // It was not asked for a vote, so nobody waits for an answer.
            State::Active => self.release(txn),
            State::Finishing => {
                open.state = State::Finishing;
                self.stats.nonsense += 1;
            }
            State::Prepared { writes, .. } => {
                let lsn = self.journal.append(&Entry::Ended { txn, committed })?;
                if committed {
                    self.apply(&writes)?;
                }
                self.release(txn);
                self.once_durable(lsn, Due::Ended { txn });
            }
        }
        Ok(())
    }

    pub(super) fn apply(&self, writes: &[Write]) -> Result<(), Error> {
        for write in writes {
            self.data
                .local_write(self.config.record_offset(write.record), &write.bytes)?;
        }
        Ok(())
    }

    fn once_durable(&mut self, lsn: Lsn, due: Due) {
        self.due_lsn = self.due_lsn.max(lsn);
        self.due.push(due);
    }

    /// Syncs what was appended, and does what waited for it.
    pub(super) fn settle_due(&mut self) -> Result<(), Error> {
        if self.due.is_empty() {
            return Ok(());
        }
        if self.journal.durable() < self.due_lsn {
            let now_ns = self.rank.now_ns();
            let only_ends = self.due.iter().all(|due| matches!(due, Due::Ended { .. }));
            // Coordinators have time; another sync may come first.
            if only_ends && now_ns.saturating_sub(self.synced_ns) < self.look_every_ns() {
                return Ok(());
            }
            self.journal.sync(self.due_lsn)?;
            self.synced_ns = now_ns;
            self.rank.step();
        }
        for due in std::mem::take(&mut self.due) {
            match due {
                Due::Vote { txn } => self.vote(txn, true)?,
                Due::Finished { txn, writes } => {
                    self.apply(&writes)?;
                    self.stats.finished += 1;
                    self.finished.insert(agent_of(txn), txn);
                    self.release(txn);
                    self.answer(&Answer::Finished { txn, committed: true });
                }
                Due::Ended { txn } => self.answer(&Answer::Ended { txn }),
            }
        }
        self.tell_victims();
        Ok(())
    }

    /// Asks the coordinators of transactions that have been prepared for a while.
    pub(super) fn ask(&mut self, now_ns: u64) -> Result<(), Error> {
        let every = u64::try_from(self.config.retry_every.as_nanos()).unwrap_or(u64::MAX);
        let (mut asked, mut lost) = (Vec::new(), Vec::new());
        for (txn, open) in &mut self.open {
            if let State::Prepared { asked_ns, .. } = &mut open.state
                && now_ns.saturating_sub(*asked_ns) >= every
                && self
                    .outbox
                    .get(agent_of(*txn) as usize)
                    .is_some_and(VecDeque::is_empty)
                && self.rank.presence(agent_of(*txn))?.alive
            {
                *asked_ns = now_ns;
                asked.push(*txn);
            }
            // What it was told may have been damaged, too.
            if let (State::Active, Some(lost_ns)) = (&open.state, &mut open.lost_ns)
                && now_ns.saturating_sub(*lost_ns) >= every
            {
                *lost_ns = now_ns;
                lost.push(*txn);
            }
        }
        for txn in lost {
            self.answer(&Answer::Lost { txn });
        }
        for txn in asked {
            self.stats.asked += 1;
            self.answer(&Answer::Ask { txn });
        }
        Ok(())
    }
}
