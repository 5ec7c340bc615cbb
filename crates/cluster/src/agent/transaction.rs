//! A transaction as its agent runs it.

use std::collections::BTreeMap;

use weft_base::TxnId;
use weft_lock::{LockMode, LockRequest};

use super::coordinator::Participant;
use super::{Agent, nanos};
use crate::config::record_lock;
use crate::error::{Abort, Error, Refusal};
use crate::journal::{Write, put_writes};
use crate::message::{Answer, LOCKS_MAX, Request, Staged};

/// See the module's head. Dropping it aborts it: its locks are released.
pub struct Transaction<'a> {
    agent: &'a mut Agent,
    txn: TxnId,
    /// Its servers, and the life in which each granted the first lock.
    servers: BTreeMap<u32, u32>,
    writes: BTreeMap<u64, Vec<u8>>,
    requests: u32,
    /// Why it must abort.
    doomed: Option<Abort>,
    has_ended: bool,
}

/// Turns of a wait between two looks whether servers are alive.
const LOOK_TURNS: u32 = 64;

/// What is given back inside: the transaction must end, the agent goes on.
type Outcome<T> = Result<Result<T, Abort>, Error>;

impl<'a> Transaction<'a> {
    pub(super) fn new(agent: &'a mut Agent, txn: TxnId) -> Self {
        Transaction {
            agent,
            txn,
            servers: BTreeMap::new(),
            writes: BTreeMap::new(),
            requests: 0,
            doomed: None,
            has_ended: false,
        }
    }

    /// Its number, unlike that of any other transaction of the cluster.
    #[must_use]
    pub fn id(&self) -> TxnId {
        self.txn
    }

    /// Takes locks: those of one server in one request, those of several servers at the same time.
    ///
    /// # Errors
    /// Inside, why the transaction must end. The agent's log and fabric.
    pub fn lock(&mut self, wants: &[LockRequest]) -> Outcome<()> {
        if let Some(abort) = &self.doomed {
            return Ok(Err(abort.clone()));
        }
        let begun_ns = self.agent.rank.now_ns();
        let outcome = match wants {
            [] => Ok(()),
            // The usual case, and whoever waits for it waits for every step of it.
            [want] => {
                let server = self.agent.config.server_of(want.resource);
                self.lock_at(&[(server, wants)], begun_ns)?
            }
            _ => self.lock_in_rounds(wants, begun_ns)?,
        };
        if let Err(abort) = outcome {
            self.doomed = Some(abort.clone());
            return Ok(Err(abort));
        }
        self.agent.stats.locks += wants.len() as u64;
        self.agent.stats.lock_ns += self.agent.rank.now_ns().saturating_sub(begun_ns);
        Ok(Ok(()))
    }

    /// A server has one request of an agent at a time; different servers are asked at the same time.
    fn lock_in_rounds(&mut self, wants: &[LockRequest], begun_ns: u64) -> Outcome<()> {
        let mut by_server: BTreeMap<u32, Vec<LockRequest>> = BTreeMap::new();
        for want in wants {
            let server = self.agent.config.server_of(want.resource);
            by_server.entry(server).or_default().push(*want);
        }
        let requests = |wants: &Vec<LockRequest>| wants.len().div_ceil(LOCKS_MAX);
        let rounds = by_server.values().map(requests).max().unwrap_or_default();
        let mut asked_ns = begun_ns;
        for round in 0..rounds {
            let parts = by_server.iter().filter_map(|(server, wants)| {
                let part = wants.chunks(LOCKS_MAX).nth(round)?;
                Some((*server, part))
            });
            let parts: Vec<(u32, &[LockRequest])> = parts.collect();
            if let Err(abort) = self.lock_at(&parts, asked_ns)? {
                return Ok(Err(abort));
            }
            asked_ns = self.agent.rank.now_ns();
        }
        Ok(Ok(()))
    }

    /// One request at each of these servers.
    fn lock_at(&mut self, round: &[(u32, &[LockRequest])], begun_ns: u64) -> Outcome<()> {
        let outcome = self.request_and_wait(round, begun_ns)?;
        // Before anybody hears that it gives up.
        self.agent.hide_waits()?;
        Ok(outcome)
    }

    fn request_and_wait(&mut self, round: &[(u32, &[LockRequest])], begun_ns: u64) -> Outcome<()> {
        let mut open = Vec::with_capacity(round.len());
        for (server, wants) in round {
            self.requests += 1;
            let request = Request::Lock {
                txn: self.txn,
                life: self.servers.get(server).copied().unwrap_or(u32::MAX),
                number: self.requests,
                wants: wants.to_vec(),
            };
            // Told of its end even if no answer comes.
            let life = self.agent.rank.presence(*server)?.incarnation;
            if !self.agent.send(*server, &request)? {
                return Ok(Err(Abort::ServerGone { server: *server }));
            }
            self.servers.entry(*server).or_insert(life);
            open.push((*server, self.requests));
        }
        let clock_turns = self.agent.rank.clock_turns();
        let mut turn = 0_u32;
        while let Some((waits_for, _)) = open.first().copied() {
            while let Some((server, life, answer)) = self.agent.inbox.pop() {
                if let Answer::Locked { number, refusal, .. } = answer
                    && let Some(place) = open.iter().position(|request| *request == (server, number))
                {
                    open.remove(place);
                    self.hide_wait_at(server)?;
                    if let Some(refusal) = refusal {
                        return Ok(Err(Abort::Refused(refusal)));
                    }
                    if self.servers.get(&server) != Some(&life) {
                        return Ok(Err(Abort::Refused(Refusal::Lost)));
                    }
                }
            }
            if let Some(server) = self.lost_at() {
                return Ok(Err(Abort::MessageLost { server }));
            }
            if self.agent.is_wounded {
                return Ok(Err(Abort::Refused(Refusal::Wounded)));
            }
            if open.is_empty() || self.agent.take_message()? {
                continue;
            }
            // Not each time: a look costs as much as an answer takes.
            if turn % LOOK_TURNS == LOOK_TURNS - 1 {
                if let Some(server) = self.gone_of(&open, turn)? {
                    return Ok(Err(Abort::ServerGone { server }));
                }
                self.show_waits_at(&open)?;
            }
            if turn % clock_turns == clock_turns - 1
                && self.agent.rank.now_ns().saturating_sub(begun_ns) >= nanos(self.agent.rank.timeout())
            {
                return Ok(Err(Abort::ServerGone { server: waits_for }));
            }
            self.agent.rank.pause(turn);
            turn = turn.saturating_add(1);
        }
        Ok(Ok(()))
    }

    /// A server of this transaction to or from which a message was lost.
    fn lost_at(&self) -> Option<u32> {
        let mut lost = self.agent.lost.iter();
        lost.find(|server| self.servers.contains_key(server)).copied()
    }

    /// Shows that it waits at these servers, unless it does.
    fn show_waits_at(&mut self, open: &[(u32, u32)]) -> Result<(), Error> {
        for (server, _) in open {
            if !self.agent.shown_at.contains(server) {
                self.agent.shown_at.push(*server);
                self.agent.waits.set_waiting(*server, self.txn)?;
            }
        }
        Ok(())
    }

    fn hide_wait_at(&mut self, server: u32) -> Result<(), Error> {
        if let Some(place) = self.agent.shown_at.iter().position(|shown| *shown == server) {
            self.agent.shown_at.swap_remove(place);
            self.agent.waits.set_waiting(server, TxnId(0))?;
        }
        Ok(())
    }

    /// One of these servers whose life is over.
    fn gone_of(&self, open: &[(u32, u32)], turn: u32) -> Result<Option<u32>, Error> {
        let participants: Vec<Participant> = open
            .iter()
            .filter_map(|(server, _)| {
                Some(Participant {
                    server: *server,
                    life: *self.servers.get(server)?,
                    staged: Staged::default(),
                })
            })
            .collect();
        self.agent.gone(&participants, turn)
    }

    /// Locks and reads a record, in S.
    ///
    /// # Errors
    /// As [`Transaction::lock`].
    pub fn read(&mut self, record: u64) -> Outcome<Vec<u8>> {
        match self.lock(&[LockRequest::new(record_lock(record), LockMode::S)])? {
            Ok(()) => self.read_locked(record),
            Err(abort) => Ok(Err(abort)),
        }
    }

    /// Reads a record that is locked. One-sided: its server does nothing for it.
    ///
    /// # Errors
    /// As [`Transaction::lock`].
    pub fn read_locked(&mut self, record: u64) -> Outcome<Vec<u8>> {
        let config = self.agent.config;
        if let Some(bytes) = self.writes.get(&record) {
            return Ok(Ok(bytes.clone()));
        }
        if record >= config.records {
            return Ok(Err(Abort::NoRecord));
        }
        let server = config.server_of(record_lock(record));
        let mut bytes = vec![0; config.record_bytes as usize];
        match self
            .agent
            .data
            .read(server, config.record_offset(record), &mut bytes)
        {
            Ok(()) => {}
            Err(weft_fabric::Error::RankDead { .. }) => return Ok(Err(Abort::ServerGone { server })),
            Err(error) => return Err(error.into()),
        }
        // Of a later life it may be anything.
        let life = self.agent.rank.presence(server)?;
        if !life.alive || self.servers.get(&server) != Some(&life.incarnation) {
            return Ok(Err(Abort::ServerGone { server }));
        }
        Ok(Ok(bytes))
    }

    /// Locks a record in X and replaces its bytes, once the transaction commits.
    ///
    /// # Errors
    /// As [`Transaction::lock`].
    pub fn write(&mut self, record: u64, bytes: Vec<u8>) -> Outcome<()> {
        if record >= self.agent.config.records || bytes.len() != self.agent.config.record_bytes as usize {
            return Ok(Err(Abort::NoRecord));
        }
        if let Err(abort) = self.lock(&[LockRequest::new(record_lock(record), LockMode::X)])? {
            return Ok(Err(abort));
        }
        self.write_locked(record, bytes)
    }

    /// Replaces the bytes of a record that is locked in X, once the transaction commits. If it is not, its
    /// server votes no.
    ///
    /// # Errors
    /// As [`Transaction::lock`].
    pub fn write_locked(&mut self, record: u64, bytes: Vec<u8>) -> Outcome<()> {
        if record >= self.agent.config.records || bytes.len() != self.agent.config.record_bytes as usize {
            return Ok(Err(Abort::NoRecord));
        }
        self.writes.insert(record, bytes);
        Ok(Ok(()))
    }

    /// Commits. Once this has returned the transaction is on disks, and survives whatever dies.
    ///
    /// # Errors
    /// Inside, why it was aborted; [`Abort::Unknown`] if it may have been committed. The agent's log and
    /// fabric.
    pub fn commit(mut self) -> Outcome<()> {
        let outcome = self.try_commit()?;
        match &outcome {
            Ok(()) => self.has_ended = true,
            Err(_) => self.abort_now()?,
        }
        Ok(outcome)
    }

    fn try_commit(&mut self) -> Outcome<()> {
        if let Some(abort) = &self.doomed {
            return Ok(Err(abort.clone()));
        }
        if self.agent.is_wounded {
            return Ok(Err(Abort::Refused(Refusal::Wounded)));
        }
        if let Some(server) = self.lost_at() {
            return Ok(Err(Abort::MessageLost { server }));
        }
        if self.writes.is_empty() {
            return self.commit_reads();
        }
        let participants = match self.stage()? {
            Ok(participants) => participants,
            Err(abort) => return Ok(Err(abort)),
        };
        if let [alone] = participants.as_slice() {
            return self.finish(alone);
        }
        // Everybody is told by the coordinator, or nobody: after an error nobody knows what was decided.
        self.servers.clear();
        let outcome = self.agent.vote(self.txn, &participants)?;
        self.agent.stats.committed[2] += u64::from(outcome.is_ok());
        Ok(outcome)
    }

    /// What was read is right if no server has lost the locks meanwhile.
    fn commit_reads(&mut self) -> Outcome<()> {
        for (server, life) in &self.servers {
            let presence = self.agent.rank.probe(*server)?;
            if !presence.alive || presence.incarnation != *life {
                return Ok(Err(Abort::ServerGone { server: *server }));
            }
        }
        self.agent.stats.committed[0] += 1;
        self.end_everywhere()?;
        Ok(Ok(()))
    }

    /// Puts the writes of each server into its staging area.
    fn stage(&mut self) -> Outcome<Vec<Participant>> {
        let config = self.agent.config;
        let mut participants = Vec::with_capacity(self.servers.len());
        for (server, life) in &self.servers {
            let (server, life) = (*server, *life);
            let of_server =
                |(record, _): &(&u64, &Vec<u8>)| config.server_of(record_lock(**record)) == server;
            let writes: Vec<Write> = self
                .writes
                .iter()
                .filter(of_server)
                .map(|(record, bytes)| Write {
                    record: *record,
                    bytes: bytes.clone(),
                })
                .collect();
            let mut staged = Staged::default();
            if !writes.is_empty() {
                let mut bytes = Vec::new();
                put_writes(&mut bytes, &writes);
                if bytes.len() > config.staging_bytes as usize {
                    return Ok(Err(Abort::TooLarge));
                }
                staged = Staged {
                    bytes: bytes.len() as u32,
                    crc: crc32c::crc32c(&bytes),
                };
                let offset = config.staging_offset(server, self.agent.rank.number());
                let put = self.agent.data.put(server, offset, &bytes);
                match put.and_then(|()| self.agent.data.flush(server)) {
                    Ok(()) => {}
                    Err(weft_fabric::Error::RankDead { .. }) => {
                        return Ok(Err(Abort::ServerGone { server }));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            participants.push(Participant { server, life, staged });
        }
        Ok(Ok(participants))
    }

    /// Commits at the only server, without a vote.
    fn finish(&mut self, participant: &Participant) -> Outcome<()> {
        let Participant { server, life, staged } = *participant;
        let txn = self.txn;
        // Whether it arrived is not known if the server has died: its next life is asked.
        self.agent.send(server, &Request::Finish { txn, life, staged })?;
        let begun_ns = self.agent.rank.now_ns();
        let (mut turn, mut asked_life, mut was_lost) = (0_u32, life, false);
        loop {
            while let Some((from, _, answer)) = self.agent.inbox.pop() {
                if let (true, Answer::Finished { committed, .. }) = (from == server, answer) {
                    self.servers.clear();
                    self.agent.stats.committed[1] += u64::from(committed);
                    return Ok(match (committed, was_lost) {
                        (true, _) => Ok(()),
                        (false, true) => Err(Abort::MessageLost { server }),
                        (false, false) => Err(Abort::VotedNo),
                    });
                }
            }
            if self.agent.take_message()? {
                continue;
            }
            if let Some(place) = self.agent.lost.iter().position(|lost| *lost == server) {
                // The request, or its answer.
                self.agent.lost.swap_remove(place);
                was_lost = true;
                self.agent.send(server, &Request::WasFinished { txn })?;
            }
            let presence = match turn % 64 {
                63 => self.agent.rank.probe(server)?,
                _ => self.agent.rank.presence(server)?,
            };
            if presence.alive && presence.incarnation != asked_life {
                // It has returned, and knows from its log.
                asked_life = presence.incarnation;
                self.agent.send(server, &Request::WasFinished { txn })?;
            }
            if self.agent.rank.now_ns().saturating_sub(begun_ns) >= nanos(self.agent.rank.timeout()) {
                return Ok(Err(Abort::Unknown { server }));
            }
            self.agent.rank.pause(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// Aborts.
    ///
    /// # Errors
    /// The agent's fabric.
    pub fn abort(mut self) -> Result<(), Error> {
        self.abort_now()
    }

    fn abort_now(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        self.agent.stats.aborted += 1;
        self.end_everywhere()
    }

    /// Lets every server release what the transaction holds.
    fn end_everywhere(&mut self) -> Result<(), Error> {
        for server in std::mem::take(&mut self.servers).into_keys() {
            self.agent.tell_abort(server, self.txn)?;
        }
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nothing is to be waited for now: the next call of the agent tells the servers.
            let servers = std::mem::take(&mut self.servers).into_keys();
            let txn = self.txn;
            self.agent.unended.extend(servers.map(|server| (server, txn)));
        } else {
            // An error stops the next transaction, too.
            let _ = self.abort_now();
        }
        self.agent.running = None;
    }
}
