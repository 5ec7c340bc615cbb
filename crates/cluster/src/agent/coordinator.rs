//! An agent as coordinator: votes, decisions, and telling them until everybody knows.

use weft_base::TxnId;

use super::{Agent, Decision, nanos};
use crate::config::Planted;
use crate::error::{Abort, Error};
use crate::journal::Entry;
use crate::message::{Request, Staged};
use crate::server::commit::vote_word;

/// A server that takes part in a transaction.
#[derive(Debug, Clone)]
pub(super) struct Participant {
    pub(super) server: u32,
    /// Its life in which it granted the first lock.
    pub(super) life: u32,
    pub(super) staged: Staged,
}

impl Agent {
    /// Two-phase commit among several servers, whose writes are staged.
    ///
    /// # Errors
    /// Inside, why the transaction is aborted.
    pub(super) fn vote(
        &mut self,
        txn: TxnId,
        participants: &[Participant],
    ) -> Result<Result<(), Abort>, Error> {
        self.is_deciding = true;
        let begun_ns = self.rank.now_ns();
        let mut outcome = Ok(());
        for participant in participants {
            let Participant { server, life, staged } = *participant;
            let request = Request::Prepare { txn, life, staged };
            if !self.send(server, &request)? {
                outcome = Err(Abort::ServerGone { server });
                break;
            }
        }
        if outcome.is_ok() {
            outcome = self.count_votes(txn, participants)?;
        }
        self.stats.votes += participants.len() as u64;
        self.stats.vote_ns += self.rank.now_ns().saturating_sub(begun_ns);
        self.decide(txn, outcome.is_ok(), participants)?;
        self.is_deciding = false;
        Ok(outcome)
    }

    /// Waits until all have voted yes, one has voted no, or one cannot vote any more.
    fn count_votes(&mut self, txn: TxnId, participants: &[Participant]) -> Result<Result<(), Abort>, Error> {
        let own = self.rank.number();
        let (yes, no) = (vote_word(txn, true), vote_word(txn, false));
        let mut missing: Vec<Participant> = participants.to_vec();
        let begun_ns = self.rank.now_ns();
        let mut turn = 0_u32;
        loop {
            // Before its vote is read: a server may vote and die.
            let gone = self.gone(&missing, turn)?;
            let mut left = Vec::with_capacity(missing.len());
            for participant in missing {
                match self.votes.load(own, 8 * u64::from(participant.server))? {
                    vote if vote == yes => {}
                    vote if vote == no => return Ok(Err(Abort::VotedNo)),
                    _ => left.push(participant),
                }
            }
            missing = left;
            let Some(first) = missing.first() else {
                return Ok(Ok(()));
            };
            if let Some(server) = gone.filter(|gone| missing.iter().any(|one| one.server == *gone)) {
                return Ok(Err(Abort::ServerGone { server }));
            }
            if let Some(server) = self
                .lost
                .iter()
                .find(|lost| missing.iter().any(|one| one.server == **lost))
            {
                return Ok(Err(Abort::MessageLost { server: *server }));
            }
            if self.rank.now_ns().saturating_sub(begun_ns) >= nanos(self.rank.timeout()) {
                return Ok(Err(Abort::ServerGone { server: first.server }));
            }
            if !self.take_message()? {
                self.rank.pause(turn);
                turn = turn.saturating_add(1);
            }
        }
    }

    /// A participant whose life is over.
    pub(super) fn gone(&self, participants: &[Participant], turn: u32) -> Result<Option<u32>, Error> {
        for participant in participants {
            let presence = match turn % 64 {
                63 => self.rank.probe(participant.server)?,
                _ => self.rank.presence(participant.server)?,
            };
            if !presence.alive || presence.incarnation != participant.life {
                return Ok(Some(participant.server));
            }
        }
        Ok(None)
    }

    /// Writes the decision to the disk, then tells it.
    fn decide(&mut self, txn: TxnId, committed: bool, participants: &[Participant]) -> Result<(), Error> {
        // Who wrote nothing has forgotten the transaction with its vote, and is told only that the word is
        // free.
        let servers: Vec<u32> = participants
            .iter()
            .map(|participant| participant.server)
            .collect();
        if committed || !self.config.presumes_abort {
            let entry = Entry::Decided {
                txn,
                committed,
                servers: servers.clone(),
            };
            let lsn = self.journal.append(&entry)?;
            if self.config.planted != Planted::TellsBeforeDisk {
                self.journal.sync(lsn)?;
            }
            self.rank.step();
            let decision = Decision {
                committed,
                untold: servers.clone(),
            };
            self.decided.insert(txn, decision);
            self.told_ns = self.rank.now_ns();
        }
        for server in servers {
            match committed {
                // Who is away, or has no room, asks or is told again.
                true => {
                    self.send(server, &Request::End { txn, committed })?;
                }
                false => self.tell_abort(server, txn)?,
            }
        }
        Ok(())
    }

    /// A server asks how a transaction ended.
    pub(super) fn tell(&mut self, server: u32, txn: TxnId) -> Result<(), Error> {
        if self.running == Some(txn) && !self.decided.contains_key(&txn) {
            // It will hear.
            return Ok(());
        }
        let committed = self.decided.get(&txn).is_some_and(|decision| decision.committed);
        // Not waiting for room: it asks again.
        match self
            .mail
            .try_send(server, &Request::End { txn, committed }.encode())
        {
            Ok(_) | Err(weft_fabric::Error::RankDead { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A server knows how a transaction ended.
    pub(super) fn is_told(&mut self, server: u32, txn: TxnId) -> Result<(), Error> {
        let Some(decision) = self.decided.get_mut(&txn) else {
            return Ok(());
        };
        decision.untold.retain(|other| *other != server);
        if decision.untold.is_empty() {
            self.decided.remove(&txn);
            self.journal.append(&Entry::Forgotten { txn })?;
        }
        Ok(())
    }

    /// Tells decisions to those who have not said that they know.
    pub(super) fn tell_again(&mut self) -> Result<(), Error> {
        let mut messages = Vec::new();
        for (txn, decision) in &self.decided {
            let Decision { committed, untold } = decision;
            messages.extend(untold.iter().map(|server| (*server, *txn, *committed)));
        }
        for (server, txn, committed) in messages {
            match self
                .mail
                .try_send(server, &Request::End { txn, committed }.encode())
            {
                Ok(_) | Err(weft_fabric::Error::RankDead { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
