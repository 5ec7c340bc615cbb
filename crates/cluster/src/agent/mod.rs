//! A transaction agent: runs one transaction at a time, and coordinates its commit.
//!
//! An agent looks into its mailbox whenever it waits, so that servers are answered meanwhile: who has voted
//! yes and not heard how it ended asks ([`Answer::Ask`]). Between transactions [`Agent::poll`] does the
//! same.
//!
//! An agent whose log or fabric fails while it decides does not know what it has decided, and says nothing
//! any more: its next life knows from the log.
//!
//! Source: Barthels 5.2.1, 5.2.3.

mod coordinator;
mod transaction;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use weft_base::{Disk, TxnId};
use weft_fabric::{Mailbox, Rank, Window};

use crate::config::{AGENT_BITS, ClusterConfig, Planted};
use crate::error::Error;
use crate::journal::{Entry, Journal};
use crate::message::{Answer, Request};
use crate::server::{Windows, connect, open_mail};
use crate::waits::Waits;
pub use transaction::Transaction;

/// Numbers that are taken from the log at a time.
const NUMBERS: u64 = 1 << 16;

/// See the module's head.
pub struct Agent {
    rank: Rank,
    config: ClusterConfig,
    mail: Mailbox,
    data: Window,
    votes: Window,
    waits: Waits,
    /// Servers at which it shows that its transaction waits.
    shown_at: Vec<u32>,
    journal: Journal,
    next_number: u64,
    numbers_end: u64,
    /// Decisions that somebody may still ask for.
    decided: BTreeMap<TxnId, Decision>,
    /// Answers for the transaction that runs.
    inbox: Vec<(u32, u32, Answer)>,
    running: Option<TxnId>,
    /// Between the first request to vote and the end of telling.
    is_deciding: bool,
    /// Servers that are still to be told that a transaction was aborted: they had no room, or its thread has
    /// panicked.
    unended: Vec<(u32, TxnId)>,
    is_wounded: bool,
    /// Servers to or from which a message was lost since the transaction began.
    lost: Vec<u32>,
    /// Messages sent, for planted damage.
    sent: u32,
    told_ns: u64,
    message: Vec<u8>,
    stats: AgentStats,
}

/// What an agent has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentStats {
    /// Transactions that committed, by how: read only, at one server, by votes.
    pub committed: [u64; 3],
    /// Transactions that were aborted.
    pub aborted: u64,
    /// Locks that were granted.
    pub locks: u64,
    /// Nanoseconds that transactions waited for locks.
    pub lock_ns: u64,
    /// Nanoseconds from the first request to vote until all votes were in.
    pub vote_ns: u64,
    /// Votes that were asked for.
    pub votes: u64,
}

impl AgentStats {
    /// Counts what another agent did, too.
    pub fn add(&mut self, other: &AgentStats) {
        for (count, more) in self.committed.iter_mut().zip(other.committed) {
            *count += more;
        }
        self.aborted += other.aborted;
        self.locks += other.locks;
        self.lock_ns += other.lock_ns;
        self.vote_ns += other.vote_ns;
        self.votes += other.votes;
    }
}

/// A decision that is on the disk.
#[derive(Debug)]
struct Decision {
    committed: bool,
    /// Servers that have not said that they know.
    untold: Vec<u32>,
}

impl Agent {
    /// Opens the agent of a rank: reads its decisions from its log. Collective with [`crate::Server::open`]
    /// of the servers, unless the rank has returned.
    ///
    /// # Errors
    /// Settings that make no sense or are not the others'; the log's; the fabric's.
    pub fn open(rank: &Rank, config: ClusterConfig, disk: Arc<dyn Disk>, dir: &Path) -> Result<Agent, Error> {
        config.check(rank.count())?;
        let (mut decided, mut numbers_end) = (BTreeMap::new(), 1);
        let salt = u64::from(rank.incarnation()) << 32 | u64::from(rank.number());
        let journal = Journal::open(disk, dir, salt, |entry| {
            match entry {
                Entry::Numbers { end } => numbers_end = end,
                Entry::Decided {
                    txn,
                    committed,
                    servers,
                } => {
                    let decision = Decision {
                        committed,
                        untold: servers,
                    };
                    decided.insert(txn, decision);
                }
                Entry::Forgotten { txn } => {
                    decided.remove(&txn);
                }
                Entry::Prepared { .. } | Entry::Ended { .. } | Entry::Finished { .. } => {
                    return Err(Error::History("a server's entry in an agent's log"));
                }
            }
            Ok(())
        })?;
        let Windows { data, votes, waits } = connect(rank, &config)?;
        let mail = open_mail(rank, &config)?;
        rank.step();
        Ok(Agent {
            mail,
            rank: rank.clone(),
            config,
            data,
            votes,
            waits,
            shown_at: Vec::new(),
            journal,
            next_number: numbers_end,
            numbers_end,
            decided,
            inbox: Vec::new(),
            running: None,
            is_deciding: false,
            unended: Vec::new(),
            is_wounded: false,
            lost: Vec::new(),
            sent: 0,
            told_ns: 0,
            message: Vec::new(),
            stats: AgentStats::default(),
        })
    }

    /// The rank that it is.
    #[must_use]
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> AgentStats {
        self.stats
    }

    /// Whether every server has heard of every decision.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.decided.is_empty()
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// The log's, for numbers.
    pub fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        self.end_orphans()?;
        if self.next_number == self.numbers_end {
            let end = self.numbers_end + NUMBERS;
            let lsn = self.journal.append(&Entry::Numbers { end })?;
            self.journal.sync(lsn)?;
            self.rank.step();
            self.numbers_end = end;
        }
        let number = self.next_number;
        self.next_number += 1;
        let txn = TxnId(number << AGENT_BITS | u64::from(self.rank.number()));
        self.running = Some(txn);
        self.is_wounded = false;
        self.lost.clear();
        self.inbox.clear();
        Ok(Transaction::new(self, txn))
    }

    /// Answers servers, and tells those of decisions that have not said that they know. False if there was
    /// nothing to do.
    ///
    /// # Errors
    /// The log's and the fabric's.
    pub fn poll(&mut self) -> Result<bool, Error> {
        self.end_orphans()?;
        let mut found = false;
        while self.take_message()? {
            found = true;
        }
        let now_ns = self.rank.now_ns();
        if !self.decided.is_empty() && now_ns.saturating_sub(self.told_ns) >= nanos(self.config.retry_every) {
            self.told_ns = now_ns;
            self.tell_again()?;
        }
        Ok(found)
    }

    fn end_orphans(&mut self) -> Result<(), Error> {
        if self.is_deciding {
            return Err(Error::Undecided);
        }
        self.hide_waits()?;
        for (server, txn) in std::mem::take(&mut self.unended) {
            self.tell_abort(server, txn)?;
        }
        Ok(())
    }

    /// Shows that nothing of it waits any more.
    fn hide_waits(&mut self) -> Result<(), Error> {
        while let Some(server) = self.shown_at.pop() {
            self.waits.set_waiting(server, TxnId(0))?;
        }
        Ok(())
    }

    /// Lets a server release what a transaction holds there; later, if it has no room for that now.
    fn tell_abort(&mut self, server: u32, txn: TxnId) -> Result<(), Error> {
        let request = Request::End {
            txn,
            committed: false,
        };
        // One that has died has released everything.
        if !self.send(server, &request)? && self.rank.presence(server)?.alive {
            self.unended.push((server, txn));
        }
        Ok(())
    }

    /// Takes one message. Whether there was one.
    fn take_message(&mut self) -> Result<bool, Error> {
        let mut message = std::mem::take(&mut self.message);
        let received = match self.mail.poll(&mut message) {
            Err(weft_fabric::Error::Damaged { rank, .. }) => {
                self.message = message;
                self.lost.push(rank);
                return Ok(true);
            }
            received => received?,
        };
        let answer = received.map(|from| (from, Answer::decode(&message)));
        self.message = message;
        let Some((from, answer)) = answer else {
            return Ok(false);
        };
        // What is none is dropped: whoever waits for it finds out in time.
        let Ok(answer) = answer else {
            return Ok(true);
        };
        match answer {
            Answer::Ask { txn } => self.tell(from.sender, txn)?,
            Answer::Ended { txn } => self.is_told(from.sender, txn)?,
            Answer::Lost { txn } => {
                self.lost.push(from.sender);
                if self.running != Some(txn) && txn.0 >> AGENT_BITS != 0 {
                    self.tell(from.sender, txn)?;
                }
            }
            Answer::Wounded { txn } => self.is_wounded |= self.running == Some(txn),
            Answer::Locked { txn, .. } | Answer::Finished { txn, .. } if self.running == Some(txn) => {
                self.inbox.push((from.sender, from.incarnation, answer));
            }
            Answer::Locked { .. } | Answer::Finished { .. } => {}
        }
        Ok(true)
    }

    /// Sends a request; answers servers while there is no room. False if the server has died.
    fn send(&mut self, server: u32, request: &Request) -> Result<bool, Error> {
        let message = request.encode();
        self.sent = self.sent.wrapping_add(1);
        if let Planted::DamagesEvery(count) = self.config.planted
            && self.sent.is_multiple_of(count.max(1))
        {
            self.mail.damage_next(server);
        }
        let mut begun_ns = None;
        let mut turn = 0_u32;
        loop {
            match self.mail.try_send(server, &message) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(weft_fabric::Error::RankDead { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            if !self.take_message()? {
                let now_ns = self.rank.now_ns();
                if now_ns.saturating_sub(*begun_ns.get_or_insert(now_ns)) >= nanos(self.rank.timeout()) {
                    return Ok(false);
                }
                if !self.rank.probe(server)?.alive {
                    return Ok(false);
                }
                self.rank.pause(turn);
                turn = turn.saturating_add(1);
            }
        }
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
