//! Who waits for whom, where other servers can read it: the wait-for graph across servers.
//!
//! Nobody sends messages for it. A server shows which transactions have waited long there and for whom; an
//! agent shows at which servers its transaction waits. Whoever looks for circles reads both one-sidedly, so
//! that there is no protocol whose state a death could leave behind: what a dead rank showed is gone.
//!
//! ```text
//! part of a server, for each agent   check | txn | number of its request | count | transactions it waits for
//! part of an agent, for each server  the transaction that waits there, or 0
//! ```
//!
//! Words are eight bytes. `check` is a hash of the words after it, and is written last; 0 says that the agent
//! waits for nothing there. What was read in pieces of two waits fails it.
//!
//! # Why a circle that was read twice is one
//!
//! An edge says that a request of one transaction waits at a server for another transaction. It has a name
//! that never comes again (transaction, server, number of the request, the other), and once gone it stays
//! gone. A server takes what it shows back before it sends any answer, and an agent before it says that it
//! gives up: nobody can act on the end of an edge while the edge is shown. All edges of a circle are read,
//! then all are read again: those that were there both times were all there at the moment between, together,
//! and every one of their transactions was waiting. Two-phase locking lets none of them go on by itself.
//!
//! An agent has one transaction, which has one request at a server at a time: that is why a place for each
//! pair is enough. More than [`BLOCKERS_MAX`] transactions that one waits for are shown in turns.
//!
//! Source: Barthels 5.6 names such a graph as what its bounded waits do without, and the additional protocol
//! between servers as its price.

use weft_base::TxnId;
use weft_fabric::{Rank, Window, WindowSpec};

use crate::config::ClusterConfig;
use crate::error::Error;
use crate::server::agent_of;

/// Transactions that one wait names at most.
const BLOCKERS_MAX: usize = 28;
/// Words before them.
const HEAD_WORDS: usize = 4;

/// A request that waits at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) txn: TxnId,
    pub(crate) number: u32,
    /// Whom it waits for; of many, some.
    pub(crate) blockers: Vec<TxnId>,
}

/// The window of waits.
#[derive(Clone)]
pub(crate) struct Waits {
    window: Window,
    own: u32,
    servers: u32,
    agents: u32,
}

impl Waits {
    /// Makes the window. Collective, as all windows are.
    pub(crate) fn open(rank: &Rank, config: &ClusterConfig) -> Result<Waits, Error> {
        let servers = config.servers;
        let agents = rank.count().saturating_sub(servers);
        let bytes = match rank.number() < servers {
            true => u64::from(agents) * slot_bytes(agents),
            false => 8 * u64::from(servers),
        };
        let window = rank.create_window(&WindowSpec {
            name: "waits",
            bytes,
            is_uniform: false,
            config: config.word(),
        })?;
        let own = rank.number();
        Ok(Waits {
            window,
            own,
            servers,
            agents,
        })
    }

    /// Of many transactions that one waits for, those that are shown this time.
    pub(crate) fn shown_of(&self, blockers: &[TxnId], turn: usize) -> Vec<TxnId> {
        let room = blockers_max(self.agents);
        let first = if blockers.len() > room {
            turn.wrapping_mul(room) % blockers.len()
        } else {
            0
        };
        let (before, from) = blockers.split_at(first.min(blockers.len()));
        from.iter().chain(before).take(room).copied().collect()
    }

    /// A server shows that a request waits here.
    pub(crate) fn show(&self, wait: &Wait) -> Result<(), Error> {
        let mut words = vec![wait.txn.0, u64::from(wait.number), wait.blockers.len() as u64];
        words.extend(wait.blockers.iter().map(|blocker| blocker.0));
        let place = self.place(agent_of(wait.txn));
        self.window.store(self.own, place, 0)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.window.local_write(place + 8, &bytes)?;
        Ok(self.window.store(self.own, place, check_of(&words))?)
    }

    /// A server shows that an agent waits for nothing here any more.
    pub(crate) fn hide(&self, agent: u32) -> Result<(), Error> {
        Ok(self.window.store(self.own, self.place(agent), 0)?)
    }

    /// What a server shows of a transaction; nothing if it waits for nothing there, or the server is dead.
    pub(crate) fn read(&self, server: u32, txn: TxnId) -> Result<Option<Wait>, Error> {
        let agent = agent_of(txn);
        if server >= self.servers || agent < self.servers || agent - self.servers >= self.agents {
            return Ok(None);
        }
        let mut bytes = vec![0; slot_bytes(self.agents) as usize];
        if !of_the_living(self.window.read(server, self.place(agent), &mut bytes))? {
            return Ok(None);
        }
        Ok(decode(&bytes).filter(|wait| wait.txn == txn))
    }

    /// An agent shows that its transaction waits at a server, or nothing (0).
    pub(crate) fn set_waiting(&self, server: u32, txn: TxnId) -> Result<(), Error> {
        Ok(self.window.store(self.own, 8 * u64::from(server), txn.0)?)
    }

    /// The servers at which a transaction waits, as its agent shows.
    pub(crate) fn servers_of(&self, txn: TxnId) -> Result<Vec<u32>, Error> {
        let agent = agent_of(txn);
        if agent < self.servers || agent - self.servers >= self.agents {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; 8 * self.servers as usize];
        if !of_the_living(self.window.read(agent, 0, &mut bytes))? {
            return Ok(Vec::new());
        }
        let (words, _) = bytes.as_chunks();
        let waits = words
            .iter()
            .zip(0..)
            .filter(|(word, _)| u64::from_le_bytes(**word) == txn.0);
        Ok(waits.map(|(_, server)| server).collect())
    }

    /// Whether its agent shows that a transaction waits at a server.
    pub(crate) fn is_waiting(&self, txn: TxnId, server: u32) -> Result<bool, Error> {
        match self.window.load(agent_of(txn), 8 * u64::from(server)) {
            Ok(word) => Ok(word == txn.0),
            Err(weft_fabric::Error::RankDead { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn place(&self, agent: u32) -> u64 {
        u64::from(agent.saturating_sub(self.servers)) * slot_bytes(self.agents)
    }
}

/// False of a dead rank's answer.
fn of_the_living(read: Result<(), weft_fabric::Error>) -> Result<bool, Error> {
    match read {
        Ok(()) => Ok(true),
        Err(weft_fabric::Error::RankDead { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn blockers_max(agents: u32) -> usize {
    (agents as usize).clamp(1, BLOCKERS_MAX)
}

fn slot_bytes(agents: u32) -> u64 {
    8 * (HEAD_WORDS + blockers_max(agents)) as u64
}

fn check_of(words: &[u64]) -> u64 {
    let hash = words.iter().fold(0x5eed_u64, |hash, word| {
        (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    hash | 1
}

fn decode(bytes: &[u8]) -> Option<Wait> {
    let (words, _) = bytes.as_chunks();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let [check, rest @ ..] = words.as_slice() else {
        return None;
    };
    let [txn, number, count, ..] = rest else {
        return None;
    };
    let length = usize::try_from(*count).ok()?.checked_add(HEAD_WORDS - 1)?;
    let shown = rest.get(..length)?;
    if check_of(shown) != *check {
        return None;
    }
    let blockers = shown.get(HEAD_WORDS - 1..)?;
    Some(Wait {
        txn: TxnId(*txn),
        number: u32::try_from(*number).ok()?,
        blockers: blockers.iter().map(|blocker| TxnId(*blocker)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(wait: &Wait, length: usize) -> Vec<u8> {
        let mut words = vec![wait.txn.0, u64::from(wait.number), wait.blockers.len() as u64];
        words.extend(wait.blockers.iter().map(|blocker| blocker.0));
        words.insert(0, check_of(&words));
        words.resize(length, 7);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    proptest! {
        #[test]
        fn waits_come_back_and_mixtures_do_not(
            txn: u64,
            number: u32,
            blockers in proptest::collection::vec(any::<u64>(), 0..9),
            torn in 0..12_usize,
        ) {
            let wait = |number| Wait {
                txn: TxnId(txn),
                number,
                blockers: blockers.iter().map(|blocker| TxnId(*blocker)).collect(),
            };
            let (old, new) = (encoded(&wait(number), 12), encoded(&wait(number ^ 1), 12));
            prop_assert_eq!(decode(&new), Some(wait(number ^ 1)));
            // The check of one with the request of the other, or the other way round.
            let mixed = [&old[..8], &new[8..]].concat();
            prop_assert_eq!(decode(&mixed), None);
            let mut torn_at = new.clone();
            torn_at[torn * 8] ^= 1;
            let read = decode(&torn_at);
            prop_assert!(read.is_none() || torn >= 4 + blockers.len());
        }

        #[test]
        fn any_bytes_are_no_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn nothing_is_a_wait_that_was_never_written() {
        assert_eq!(decode(&[0; 256]), None);
    }
}
