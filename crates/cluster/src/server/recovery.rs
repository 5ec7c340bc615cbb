//! Opening a server: records and locks from its log, then windows and a mailbox.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use weft_base::{Disk, Lsn, TxnId};
use weft_fabric::Rank;
use weft_lock::{Acquire, LockRequest, LockTable, NoWait};

use super::{Open, Server, ServerStats, State, Windows, agent_of, connect, open_mail};
use crate::config::{ClusterConfig, record_lock};
use crate::error::Error;
use crate::journal::{Entry, Journal, Write};

/// What a log has told so far.
#[derive(Default)]
struct Replayed {
    records: BTreeMap<u64, Vec<u8>>,
    prepared: BTreeMap<TxnId, (Vec<LockRequest>, Vec<Write>)>,
    finished: BTreeMap<u32, TxnId>,
}

impl Replayed {
    fn apply(&mut self, entry: Entry) -> Result<(), Error> {
        match entry {
            Entry::Prepared { txn, locks, writes } => {
                self.prepared.insert(txn, (locks, writes));
            }
            Entry::Ended { txn, committed } => {
                let ended = self.prepared.remove(&txn);
                let (_, writes) = ended.ok_or(Error::History("the end of what was not prepared"))?;
                if committed {
                    self.write(writes);
                }
            }
            Entry::Finished { txn, writes } => {
                self.write(writes);
                self.finished.insert(agent_of(txn), txn);
            }
            Entry::Numbers { .. } | Entry::Decided { .. } | Entry::Forgotten { .. } => {
                return Err(Error::History("an agent's entry in a server's log"));
            }
        }
        Ok(())
    }

    fn write(&mut self, writes: Vec<Write>) {
        let writes = writes.into_iter().map(|write| (write.record, write.bytes));
        self.records.extend(writes);
    }
}

impl Server {
    /// Opens the server of a rank: reads its log, restores records and the locks of what it voted for, and
    /// begins to take requests. Collective with [`crate::Agent::open`] of the agents, unless the rank has
    /// returned.
    ///
    /// # Errors
    /// Settings that make no sense or are not the others'; the log's; the fabric's.
    pub fn open(
        rank: &Rank,
        config: ClusterConfig,
        disk: Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<Server, Error> {
        config.check(rank.count())?;
        let own = rank.number();
        let mut replayed = Replayed::default();
        let salt = u64::from(rank.incarnation()) << 32 | u64::from(own);
        let journal = Journal::open(disk, dir, salt, |entry| replayed.apply(entry))?;
        let Windows { data, votes, waits } = connect(rank, &config)?;
        for (record, bytes) in &replayed.records {
            let is_own = config.server_of(record_lock(*record)) == own;
            if !is_own || *record >= config.records || bytes.len() != config.record_bytes as usize {
                return Err(Error::History("a record that these settings do not have"));
            }
            data.local_write(config.record_offset(*record), bytes)?;
        }
        let (mut table, mut open) = (LockTable::new(), BTreeMap::new());
        for (txn, (locks, writes)) in replayed.prepared {
            if table.acquire(txn, &locks, &NoWait) != Acquire::Granted {
                return Err(Error::History("locks that cannot have been held together"));
            }
            let state = State::Prepared { writes, asked_ns: 0 };
            let restored = Open {
                life: u32::MAX,
                waiting: None,
                is_wounded: false,
                lost_ns: None,
                state,
            };
            open.insert(txn, restored);
        }
        let ranks = rank.count() as usize;
        let mail = open_mail(rank, &config)?;
        rank.step();
        Ok(Server {
            mail,
            rank: rank.clone(),
            config,
            data,
            votes,
            waits,
            journal,
            table,
            open,
            lives: vec![0; ranks],
            finished: replayed.finished,
            outbox: vec![VecDeque::new(); ranks],
            due: Vec::new(),
            due_lsn: Lsn(0),
            synced_ns: 0,
            looked_ns: 0,
            shown: BTreeMap::new(),
            waits_changed: false,
            steps: 0,
            looks: 0,
            answers: 0,
            message: Vec::new(),
            stats: ServerStats::default(),
        })
    }
}
