//! A lock server with its records.
//!
//! One thread does everything: it takes requests from the mailbox, changes the lock table, and answers. What
//! must be durable before it is told waits until no request is left for now, so that one sync serves many.
//!
//! ```text
//!              lock (first)
//!   unknown ------------------> active --prepare: no------> unknown
//!      ^                          |  \---finish---> finishing --synced: apply, release--> unknown
//!      |                          | prepare: yes
//!      |                          v
//!      +---end: apply, release--- prepared --the agent returned, or is silent--> asks for the outcome
//! ```
//!
//! An active transaction whose agent has died is gone, with its locks. A prepared one waits for its
//! coordinator, however long that takes: that is the price of the protocol.
//!
//! Source: Barthels 5.2.2 (lock table, transaction table, bounded waits), 5.2.3 (requests before deadlocks).

mod circles;
pub(crate) mod commit;
mod recovery;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use weft_base::{Lsn, TxnId};
use weft_fabric::{Mailbox, MailboxSpec, Rank, Received, Window, WindowSpec};
use weft_lock::{AbortReason, Acquire, LockRequest, LockTable};

use crate::config::{AGENT_BITS, ClusterConfig, Planted};
use crate::error::{Error, Refusal};
use crate::journal::{Journal, Write};
use crate::message::{Answer, BYTES_MAX, Request};
use crate::waits::{Wait, Waits};
use commit::Due;

/// Requests that are handled before what they need durable is synced.
const BURST: usize = 64;
/// Slots that a server has for each agent, and an agent for each server. An agent has one request open at
/// each; the others are for ends of transactions and questions.
pub(crate) const SLOTS: u16 = 4;
/// Answers that wait for an agent to make room. An agent that asks for more does not read.
const OUTBOX_MAX: usize = 64;

/// What a server has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Locks asked for.
    pub locks: u64,
    /// Requests for locks that had to wait.
    pub waits: u64,
    /// Requests for locks that were refused.
    pub refused: u64,
    /// Of those, the ones whose circles through several transactions were found by the wait-for graph.
    pub circles: u64,
    /// Votes for and against.
    pub votes: [u64; 2],
    /// Transactions that needed no vote.
    pub finished: u64,
    /// Transactions whose coordinator was asked for their outcome.
    pub asked: u64,
    /// Messages that were none, or did not fit what came before.
    pub nonsense: u64,
    /// Messages that were damaged on their way.
    pub damaged: u64,
}

impl ServerStats {
    /// Counts what another server did, too.
    pub fn add(&mut self, other: &ServerStats) {
        self.locks += other.locks;
        self.waits += other.waits;
        self.refused += other.refused;
        self.circles += other.circles;
        for (count, more) in self.votes.iter_mut().zip(other.votes) {
            *count += more;
        }
        self.finished += other.finished;
        self.asked += other.asked;
        self.nonsense += other.nonsense;
        self.damaged += other.damaged;
    }
}

/// See the module's head.
pub struct Server {
    rank: Rank,
    config: ClusterConfig,
    mail: Mailbox,
    data: Window,
    votes: Window,
    waits: Waits,
    journal: Journal,
    table: LockTable,
    open: BTreeMap<TxnId, Open>,
    /// Of each agent, the life whose transactions are open here.
    lives: Vec<u32>,
    /// Of each agent, what was finished here last.
    finished: BTreeMap<u32, TxnId>,
    /// Answers that have found no room, by rank.
    outbox: Vec<VecDeque<Vec<u8>>>,
    due: Vec<Due>,
    due_lsn: Lsn,
    synced_ns: u64,
    looked_ns: u64,
    /// Of each agent, what is shown of its wait here.
    shown: BTreeMap<u32, Wait>,
    /// What is shown may not be so any more.
    waits_changed: bool,
    /// Turns of the server, of which some look at the clock.
    steps: u32,
    /// How often circles were looked for.
    looks: usize,
    /// Answers sent, for planted damage.
    answers: u32,
    message: Vec<u8>,
    stats: ServerStats,
}

/// A transaction that holds something here.
#[derive(Debug)]
struct Open {
    /// The agent's life; of a transaction that was restored, any.
    life: u32,
    /// The request that waits.
    waiting: Option<Waiting>,
    is_wounded: bool,
    /// When its agent was told that a message was lost: again, until it says how the transaction ended.
    lost_ns: Option<u64>,
    state: State,
}

#[derive(Debug)]
struct Waiting {
    /// Of the request.
    number: u32,
    since_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Active,
    /// It voted yes, or is about to.
    Prepared {
        writes: Vec<Write>,
        asked_ns: u64,
    },
    /// It commits without a vote.
    Finishing,
}

/// The agent of a transaction.
pub(crate) fn agent_of(txn: TxnId) -> u32 {
    (txn.0 & ((1 << AGENT_BITS) - 1)) as u32
}

/// The windows that agents and servers make in the same order, before their mailboxes.
pub(crate) struct Windows {
    pub(crate) data: Window,
    pub(crate) votes: Window,
    pub(crate) waits: Waits,
}

pub(crate) fn connect(rank: &Rank, config: &ClusterConfig) -> Result<Windows, Error> {
    let is_server = rank.number() < config.servers;
    let data = rank.create_window(&WindowSpec {
        name: "records",
        bytes: config.window_bytes(rank.number(), rank.count()),
        is_uniform: false,
        config: config.word(),
    })?;
    let votes = rank.create_window(&WindowSpec {
        name: "votes",
        bytes: if is_server {
            0
        } else {
            8 * u64::from(config.servers)
        },
        is_uniform: false,
        config: config.word(),
    })?;
    let waits = Waits::open(rank, config)?;
    Ok(Windows { data, votes, waits })
}

pub(crate) fn open_mail(rank: &Rank, config: &ClusterConfig) -> Result<Mailbox, Error> {
    let is_server = rank.number() < config.servers;
    let accepts = |sender: u32| {
        if (sender < config.servers) == is_server {
            0
        } else {
            SLOTS
        }
    };
    let spec = MailboxSpec {
        name: "requests and answers",
        payload_bytes_max: BYTES_MAX,
        accepts: (0..rank.count()).map(accepts).collect(),
        config: config.word(),
    };
    Ok(Mailbox::open(rank, &spec)?)
}

impl Server {
    /// The rank that it is.
    #[must_use]
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// Whether nobody holds or waits for anything here.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.outbox.iter().all(VecDeque::is_empty)
    }

    /// A record as it is now.
    ///
    /// # Errors
    /// The fabric's; there is none such here.
    pub fn record(&self, record: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.config.record_bytes as usize];
        self.data
            .local_read(self.config.record_offset(record), &mut bytes)?;
        Ok(bytes)
    }

    /// Serves until `stop`, which is asked whenever there is nothing to do.
    ///
    /// # Errors
    /// Those after which it cannot go on: the log's and the fabric's.
    pub fn serve(&mut self, mut stop: impl FnMut(&Server) -> bool) -> Result<(), Error> {
        let mut turn = 0_u32;
        loop {
            if self.step()? {
                turn = 0;
                continue;
            }
            if stop(self) {
                return Ok(());
            }
            self.rank.pause(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// Handles the requests that there are, and looks after who waits. False if there was nothing to do.
    ///
    /// # Errors
    /// As [`Server::serve`].
    pub fn step(&mut self) -> Result<bool, Error> {
        let mut message = std::mem::take(&mut self.message);
        let mut handled = 0;
        while handled < BURST {
            let received = match self.mail.poll(&mut message) {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(weft_fabric::Error::Damaged { rank, .. }) => {
                    self.lose_message(rank);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            handled += 1;
            match Request::decode(&message) {
                Ok(request) => self.handle(received, request)?,
                Err(_) => self.stats.nonsense += 1,
            }
        }
        self.message = message;
        self.settle_due()?;
        if std::mem::take(&mut self.waits_changed) && !self.shown.is_empty() {
            self.show_waits()?;
        }
        let sent = self.send_waiting()?;
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(self.rank.clock_turns()) {
            let now_ns = self.rank.now_ns();
            if now_ns.saturating_sub(self.looked_ns) >= self.look_every_ns() {
                self.look_after(now_ns)?;
            }
        }
        Ok(handled > 0 || sent)
    }

    fn look_every_ns(&self) -> u64 {
        let every = self.config.wait_max.min(self.config.retry_every) / 4;
        u64::try_from(every.as_nanos()).unwrap_or(u64::MAX)
    }

    fn handle(&mut self, from: Received, request: Request) -> Result<(), Error> {
        let (Request::Lock { txn, .. }
        | Request::Prepare { txn, .. }
        | Request::Finish { txn, .. }
        | Request::End { txn, .. }
        | Request::WasFinished { txn }) = &request;
        if agent_of(*txn) != from.sender {
            self.stats.nonsense += 1;
            return Ok(());
        }
        if !self.agent_lives(from.sender, from.incarnation) {
            return Ok(());
        }
        match request {
            Request::Lock {
                txn,
                life,
                number,
                wants,
            } => self.lock(from, txn, life, number, &wants),
            Request::Prepare { txn, life, staged } => self.prepare(txn, life, staged)?,
            Request::Finish { txn, life, staged } => self.finish(txn, life, staged)?,
            Request::End { txn, committed } => self.end(txn, committed)?,
            Request::WasFinished { txn } => self.was_finished(txn),
        }
        self.tell_victims();
        Ok(())
    }

    fn lock(&mut self, from: Received, txn: TxnId, life: u32, number: u32, wants: &[LockRequest]) {
        let refuse = |server: &mut Server, refusal| {
            server.stats.refused += 1;
            server.answer(&Answer::Locked {
                txn,
                number,
                refusal: Some(refusal),
            });
        };
        let own = self.rank.number();
        self.stats.locks += wants.len() as u64;
        let is_known = self.open.contains_key(&txn);
        if life
            != if is_known {
                self.rank.incarnation()
            } else {
                u32::MAX
            }
        {
            return refuse(self, Refusal::Lost);
        }
        if wants
            .iter()
            .any(|want| self.config.server_of(want.resource) != own)
        {
            self.stats.nonsense += 1;
            return refuse(self, Refusal::Conflict);
        }
        if !is_known {
            // An agent runs one transaction at a time: whatever else it has active here has been given up.
            self.drop_active(from.sender, u32::MAX);
        }
        let open = self.open.entry(txn).or_insert(Open {
            life: from.incarnation,
            waiting: None,
            is_wounded: false,
            lost_ns: None,
            state: State::Active,
        });
        if open.state != State::Active || open.waiting.is_some() {
            self.stats.nonsense += 1;
            return refuse(self, Refusal::Conflict);
        }
        if open.is_wounded {
            return refuse(self, Refusal::Wounded);
        }
        let now_ns = self.rank.now_ns();
        self.table.set_clock(now_ns);
        match self.table.acquire(txn, wants, self.config.policy) {
            Acquire::Granted => self.answer(&Answer::Locked {
                txn,
                number,
                refusal: None,
            }),
            Acquire::Waiting => {
                self.stats.waits += 1;
                if let Some(open) = self.open.get_mut(&txn) {
                    open.waiting = Some(Waiting {
                        number,
                        since_ns: now_ns,
                    });
                }
            }
            Acquire::Refused => refuse(self, Refusal::Conflict),
            Acquire::Deadlock { .. } => refuse(self, Refusal::Deadlock),
        }
    }

    /// The wait of a transaction is over.
    fn waited(&mut self, txn: TxnId, refusal: Option<Refusal>) {
        self.waits_changed = true;
        let waiting = self.open.get_mut(&txn).and_then(|open| open.waiting.take());
        if let Some(Waiting { number, .. }) = waiting {
            self.stats.refused += u64::from(refusal.is_some());
            self.answer(&Answer::Locked { txn, number, refusal });
        }
    }

    fn granted(&mut self, granted: Vec<TxnId>) {
        for txn in granted {
            self.waited(txn, None);
        }
    }

    /// Releases what a transaction holds and forgets it.
    fn release(&mut self, txn: TxnId) {
        self.waits_changed = true;
        self.open.remove(&txn);
        let granted = self.table.release_all(txn);
        self.granted(granted);
    }

    /// Tells those that the policy has chosen to end.
    fn tell_victims(&mut self) {
        loop {
            let victims = self.table.take_victims();
            if victims.is_empty() {
                return;
            }
            for victim in victims {
                let refusal = match victim.reason {
                    AbortReason::Deadlock { .. } => Refusal::Deadlock,
                    AbortReason::Refused => Refusal::Conflict,
                    AbortReason::Wounded { .. } => {
                        self.wound(victim.txn);
                        continue;
                    }
                };
                self.waited(victim.txn, Some(refusal));
            }
        }
    }

    /// A transaction that has voted is not stopped any more: it waits for nobody, so it ends.
    fn wound(&mut self, txn: TxnId) {
        let Some(open) = self.open.get_mut(&txn) else {
            return;
        };
        if open.state != State::Active {
            return;
        }
        open.is_wounded = true;
        if open.waiting.is_some() {
            let granted = self.table.cancel_wait(txn);
            self.granted(granted);
            self.waited(txn, Some(Refusal::Wounded));
        } else {
            self.answer(&Answer::Wounded { txn });
        }
    }

    /// A message of an agent was damaged. It concerns nobody else: the agent is told, and says how what it
    /// has open here ends.
    fn lose_message(&mut self, agent: u32) {
        self.stats.damaged += 1;
        let now_ns = self.rank.now_ns();
        let mut open = Vec::new();
        for (txn, of_agent) in self.open.iter_mut().filter(|(txn, _)| agent_of(**txn) == agent) {
            of_agent.lost_ns = Some(now_ns);
            open.push(*txn);
        }
        if open.is_empty() {
            open.push(TxnId(u64::from(agent)));
        }
        for txn in open {
            self.answer(&Answer::Lost { txn });
        }
    }

    /// Notes that an agent is in this life: what it had open in an earlier one is gone, unless that voted.
    /// False if it has another life since.
    fn agent_lives(&mut self, agent: u32, life: u32) -> bool {
        let Some(known) = self.lives.get_mut(agent as usize) else {
            return false;
        };
        if *known >= life {
            return *known == life;
        }
        *known = life;
        if let Some(outbox) = self.outbox.get_mut(agent as usize) {
            outbox.clear();
        }
        self.drop_active(agent, life);
        true
    }

    /// Releases what active transactions of an agent hold, except for those of one of its lives.
    fn drop_active(&mut self, agent: u32, except: u32) {
        let gone = self.open.iter().filter(|(txn, open)| {
            agent_of(**txn) == agent && open.state == State::Active && open.life != except
        });
        let gone: Vec<TxnId> = gone.map(|(txn, _)| *txn).collect();
        for txn in gone {
            self.release(txn);
        }
    }

    /// Ends waits that took too long, and looks for agents that have died.
    fn look_after(&mut self, now_ns: u64) -> Result<(), Error> {
        self.looked_ns = now_ns;
        self.table.set_clock(now_ns);
        let bound = u64::try_from(self.config.wait_max.as_nanos()).unwrap_or(u64::MAX);
        for txn in self.table.overdue(bound) {
            let granted = self.table.cancel_wait(txn);
            self.waited(txn, Some(Refusal::Timeout));
            self.granted(granted);
        }
        for agent in self.config.servers..self.rank.count() {
            let presence = self.rank.probe(agent)?;
            if presence.alive {
                self.agent_lives(agent, presence.incarnation);
            } else {
                self.drop_active(agent, u32::MAX);
            }
        }
        self.ask(now_ns)?;
        self.tell_victims();
        self.break_circles(now_ns)
    }

    /// Sends an answer, at once if its agent has room: the agent does nothing before it has come. What the
    /// next requests and the disk want is done after that.
    fn answer(&mut self, answer: &Answer) {
        let agent = agent_of(answer.txn());
        match self.outbox.get_mut(agent as usize) {
            Some(outbox) if outbox.len() < OUTBOX_MAX => outbox.push_back(answer.encode()),
            _ => {
                self.stats.nonsense += 1;
                return;
            }
        }
        // After an error it is still there: the next turn of the server meets the same error, and ends.
        let _ = self.send_to(agent);
    }

    /// Sends what agents have room for. Whether anything was sent.
    fn send_waiting(&mut self) -> Result<bool, Error> {
        let mut sent_any = false;
        for agent in self.config.servers..self.rank.count() {
            sent_any |= self.send_to(agent)?;
        }
        Ok(sent_any)
    }

    /// Sends what one agent has room for. Whether anything was sent.
    fn send_to(&mut self, agent: u32) -> Result<bool, Error> {
        let Some(outbox) = self.outbox.get_mut(agent as usize) else {
            return Ok(false);
        };
        let mut sent_any = false;
        while let Some(message) = outbox.front() {
            match self.mail.try_send(agent, message) {
                Ok(true) => {
                    outbox.pop_front();
                    sent_any = true;
                    self.answers = self.answers.wrapping_add(1);
                    if let Planted::DamagesEvery(count) = self.config.planted
                        && self.answers.is_multiple_of(count.max(1))
                    {
                        self.mail.damage_next(agent);
                    }
                }
                Ok(false) => break,
                // Its next life knows nothing of this.
                Err(weft_fabric::Error::RankDead { .. }) => outbox.clear(),
                // Its mailbox cannot be found any more: it hears nothing, and gives up.
                Err(weft_fabric::Error::Damaged { .. } | weft_fabric::Error::NotAccepted { .. }) => {
                    self.stats.damaged += 1;
                    outbox.clear();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent_any)
    }
}
