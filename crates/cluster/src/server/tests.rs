//! What a server answers to requests that no agent of ours sends, and to those of an earlier life.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use weft_base::{Disk, SimDisk, TxnId};
use weft_fabric::{Mailbox, Rank, Threads, Window};
use weft_lock::{LockMode, LockRequest};

use super::commit::vote_word;
use super::{Server, Windows, connect, open_mail};
use crate::agent::Agent;
use crate::config::{ClusterConfig, record_lock};
use crate::error::{Abort, Error, Refusal};
use crate::journal::{Write, put_writes};
use crate::message::{Answer, Request, Staged};

fn disk(seed: u64) -> Arc<dyn Disk> {
    Arc::new(SimDisk::new(seed))
}

/// An agent that sends whatever a test wants.
struct Raw {
    rank: Rank,
    config: ClusterConfig,
    mail: Mailbox,
    data: Window,
    votes: Window,
    number: u64,
}

impl Raw {
    fn next(&mut self) -> TxnId {
        self.number += 1;
        TxnId(self.number << 16 | u64::from(self.rank.number()))
    }

    fn answer(&self) -> Answer {
        let mut message = Vec::new();
        self.mail.receive(&mut message).unwrap();
        Answer::decode(&message).unwrap()
    }

    fn lock(&self, txn: TxnId, life: u32, record: u64, mode: LockMode) -> Option<Refusal> {
        let request = Request::Lock {
            txn,
            life,
            number: 1,
            wants: vec![LockRequest::new(record_lock(record), mode)],
        };
        self.mail.send(0, &request.encode()).unwrap();
        match self.answer() {
            Answer::Locked { refusal, .. } => refusal,
            other => panic!("{other:?}"),
        }
    }

    /// Stages writes and asks for a vote on them: whether it is yes.
    fn vote(&self, txn: TxnId, writes: &[Write], crc_error: u32) -> bool {
        let mut bytes = Vec::new();
        put_writes(&mut bytes, writes);
        let offset = self.config.staging_offset(0, self.rank.number());
        self.data.put(0, offset, &bytes).unwrap();
        self.data.flush(0).unwrap();
        let staged = Staged {
            bytes: bytes.len() as u32,
            crc: crc32c::crc32c(&bytes) ^ crc_error,
        };
        let request = Request::Prepare { txn, life: 0, staged };
        self.mail.send(0, &request.encode()).unwrap();
        let voted = || {
            let word = self.votes.load(self.rank.number(), 0)?;
            Ok([true, false]
                .into_iter()
                .find(|is_yes| word == vote_word(txn, *is_yes)))
        };
        self.rank.wait_for("a vote", None, voted).unwrap()
    }
}

/// Lets the other ranks end, also when a test fails.
struct Ends<'a>(&'a AtomicBool, &'a AtomicU32);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.store(u32::MAX, Ordering::SeqCst);
    }
}

/// The same, but only when the rank's thread panics: nobody waits for what it will not do.
struct EndsIfPanicking<'a>(&'a AtomicBool, &'a AtomicU32);

impl Drop for EndsIfPanicking<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            drop(Ends(self.0, self.1));
        }
    }
}

/// A server beside a raw agent, on threads; what the server counted.
fn beside_raw(test: impl Fn(&mut Raw) + Sync) -> super::ServerStats {
    let config = ClusterConfig {
        records: 8,
        ..ClusterConfig::default()
    };
    let is_over = AtomicBool::new(false);
    let mut stats = Threads::run(2, |rank| {
        if rank.number() == 0 {
            let mut server = Server::open(&rank, config, disk(1), Path::new("/server")).unwrap();
            server.serve(|_| is_over.load(Ordering::SeqCst)).unwrap();
            return server.stats();
        }
        let turn = AtomicU32::new(0);
        let _ends = Ends(&is_over, &turn);
        let Windows { data, votes, .. } = connect(&rank, &config).unwrap();
        let mut raw = Raw {
            mail: open_mail(&rank, &config).unwrap(),
            rank,
            config,
            data,
            votes,
            number: 0,
        };
        test(&mut raw);
        super::ServerStats::default()
    });
    stats.as_mut().unwrap().remove(0)
}

fn write(record: u64, bytes: usize) -> Write {
    Write {
        record,
        bytes: vec![7; bytes],
    }
}

#[test]
fn only_whole_writes_of_locked_records_are_prepared() {
    let stats = beside_raw(|raw| {
        let whole = raw.config.record_bytes as usize;
        let cases: [(LockMode, Vec<Write>, u32, bool); 7] = [
            (LockMode::X, vec![write(3, whole)], 0, true),
            (LockMode::X, vec![], 0, true),
            (LockMode::S, vec![write(3, whole)], 0, false),
            (LockMode::X, vec![write(3, whole), write(4, whole)], 0, false),
            (LockMode::X, vec![write(3, whole - 1)], 0, false),
            (LockMode::X, vec![write(3, whole)], 1, false),
            (LockMode::X, vec![write(3, whole), write(9, whole)], 0, false),
        ];
        for (mode, writes, crc_error, is_yes) in cases {
            let txn = raw.next();
            assert_eq!(raw.lock(txn, u32::MAX, 3, mode), None);
            assert_eq!(raw.vote(txn, &writes, crc_error), is_yes, "{mode:?} {writes:?}");
            let end = Request::End {
                txn,
                committed: is_yes,
            };
            raw.mail.send(0, &end.encode()).unwrap();
            assert_eq!(raw.answer(), Answer::Ended { txn });
        }
        // Of a transaction that holds nothing.
        let nobody = raw.next();
        assert!(!raw.vote(nobody, &[write(3, whole)], 0));
    });
    assert_eq!(stats.votes, [2, 6]);
}

#[test]
fn requests_that_do_not_fit_are_refused_and_the_next_are_served() {
    let stats = beside_raw(|raw| {
        raw.mail.send(0, b"nonsense").unwrap();
        // In the name of another agent.
        let foreign = Request::End {
            txn: TxnId(1 << 16 | 9),
            committed: true,
        };
        raw.mail.send(0, &foreign.encode()).unwrap();
        let txn = raw.next();
        // As if it held something here, in this life or in another.
        assert_eq!(raw.lock(txn, 0, 1, LockMode::S), Some(Refusal::Lost));
        assert_eq!(raw.lock(txn, 5, 1, LockMode::S), Some(Refusal::Lost));
        assert_eq!(raw.lock(txn, u32::MAX, 1, LockMode::X), None);
        // Given up: the agent has gone on, and finds the record free.
        let next = raw.next();
        assert_eq!(raw.lock(next, u32::MAX, 1, LockMode::X), None);
    });
    assert_eq!(stats.nonsense, 2);
}

/// A server restarts between a transaction's two reads, and another transaction writes both records: what
/// was read belongs to no moment, and the reader is told so.
#[test]
fn reads_under_locks_that_a_server_has_lost_do_not_commit() {
    let config = ClusterConfig {
        servers: 2,
        records: 8,
        ..ClusterConfig::default()
    };
    let fabric = Threads::new(4);
    let (disks, over, turn) = ([disk(1), disk(2)], AtomicBool::new(false), AtomicU32::new(0));
    let wait = |at: u32| {
        while turn.load(Ordering::SeqCst) < at {
            thread::yield_now();
        }
    };
    let open_server = |rank: &Rank| {
        let own = Arc::clone(&disks[rank.number() as usize]);
        Server::open(rank, config, own, Path::new("/server")).unwrap()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut server = open_server(&fabric.join(1).unwrap());
            server.serve(|_| over.load(Ordering::SeqCst)).unwrap();
        });
        scope.spawn(|| {
            let mut first = open_server(&fabric.join(0).unwrap());
            first.serve(|_| turn.load(Ordering::SeqCst) >= 1).unwrap();
            drop(first);
            fabric.declare_dead(0).unwrap();
            let mut second = open_server(&fabric.rejoin(0).unwrap());
            turn.store(2, Ordering::SeqCst);
            second.serve(|_| over.load(Ordering::SeqCst)).unwrap();
        });
        scope.spawn(|| {
            let _ends = EndsIfPanicking(&over, &turn);
            let rank = fabric.join(3).unwrap();
            let mut writer = Agent::open(&rank, config, disk(4), Path::new("/agent")).unwrap();
            wait(2);
            let mut transaction = writer.begin().unwrap();
            for record in [0, 1] {
                transaction.write(record, vec![9; 64]).unwrap().unwrap();
            }
            transaction.commit().unwrap().unwrap();
            turn.store(3, Ordering::SeqCst);
        });
        let _ends = Ends(&over, &turn);
        let reader = || -> Result<Result<(), Abort>, Error> {
            let rank = fabric.join(2)?;
            let mut reader = Agent::open(&rank, config, disk(3), Path::new("/agent"))?;
            let mut transaction = reader.begin()?;
            assert_eq!(transaction.read(0)?, Ok(vec![0; 64]));
            turn.store(1, Ordering::SeqCst);
            wait(3);
            assert_eq!(transaction.read(1)?, Ok(vec![9; 64]));
            transaction.commit()
        };
        assert_eq!(reader().unwrap(), Err(Abort::ServerGone { server: 0 }));
    });
}
