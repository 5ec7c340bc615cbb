//! Concurrent histories over ranks: SERIALIZABLE transactions from clients of all ranks are strictly
//! serializable. Every write is a value of its own, so what a transaction read says whose write that was;
//! `weft_protocols::history` looks for a circle of dependencies.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weft_base::Prng;
use weft_protocols::history::{History, Interval, Transaction, Version, check, check_strict};
use weft_ranks::{Config, RanksSession};

use crate::fixture::{Client, Cluster};

const KEYS: u64 = 8;
const RANKS: u32 = 3;
const CLIENTS: usize = 6;

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// BEGIN, statements, COMMIT.
    Transactions,
    /// Those, and single statements in a session whose transactions are SERIALIZABLE.
    SingleStatementsToo,
}

struct Run<'a> {
    cluster: &'a Cluster,
    style: Style,
    isolation: &'a str,
    next_value: AtomicU64,
    start: Instant,
}

type Done = (Transaction, Interval);

fn value(text: &str) -> Version {
    Version::Value(text.parse().unwrap())
}

/// What it has written itself it may read in between, which is no version of others.
fn note_read(of: &mut Transaction, key: u64, found: &str) {
    if of.writes.iter().all(|write| write.key != key) {
        of.read(key, value(found));
    }
}

fn read_one(client: &mut Client<RanksSession>, key: u64, of: &mut Transaction) -> Result<(), String> {
    let rows = client.outcome_rows(&format!("select v from kv where k = {key}"))?;
    note_read(of, key, &rows[0]);
    Ok(())
}

/// Reads all keys, in one statement.
fn read_all(client: &mut Client<RanksSession>, of: &mut Transaction) -> Result<(), String> {
    for row in client.outcome_rows("select k, v from kv")? {
        let (key, found) = row.split_once(',').unwrap();
        note_read(of, key.parse().unwrap(), found);
    }
    Ok(())
}

impl Run<'_> {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn write(&self, client: &mut Client<RanksSession>, key: u64, of: &mut Transaction) -> Result<(), String> {
        let new = self.next_value.fetch_add(1, Ordering::Relaxed);
        let old = client.outcome_rows(&format!("select v from kv where k = {key} for update"))?;
        let changed = client.outcome(&format!("update kv set v = {new} where k = {key}"))?;
        assert!(changed.contains("UPDATE 1"), "{changed}");
        of.write(key, value(&old[0]), Version::Value(new));
        Ok(())
    }

    /// One transaction of several statements.
    fn transaction(
        &self,
        client: &mut Client<RanksSession>,
        random: &mut Prng,
        of: &mut Transaction,
    ) -> Result<(), String> {
        client.outcome(&format!("begin isolation level {}", self.isolation))?;
        for _ in 0..=random.below(3) {
            let key = random.below(KEYS);
            match random.below(8) {
                0 => read_all(client, of)?,
                1..=3 => read_one(client, key, of)?,
                _ => self.write(client, key, of)?,
            }
        }
        client.outcome("commit")?;
        Ok(())
    }

    fn statement(
        &self,
        client: &mut Client<RanksSession>,
        random: &mut Prng,
        of: &mut Transaction,
    ) -> Result<(), String> {
        if random.chance(1, 2) {
            return read_all(client, of);
        }
        read_one(client, random.below(KEYS), of)
    }

    fn client(&self, number: usize, seed: u64, until: Instant) -> (Vec<Done>, usize) {
        let mut client = self.cluster.client(number % RANKS as usize);
        let mut random = Prng::new(seed * 97 + number as u64);
        client.ok(&format!(
            "set default_transaction_isolation = '{}'",
            self.isolation
        ));
        let (mut done, mut aborted) = (Vec::new(), 0);
        while Instant::now() < until {
            let mut of = Transaction::default();
            let begun = self.now();
            let ran = match self.style == Style::SingleStatementsToo && random.chance(2, 3) {
                true => self.statement(&mut client, &mut random, &mut of),
                false => self.transaction(&mut client, &mut random, &mut of),
            };
            let ended = self.now();
            match ran {
                Ok(()) => done.push((of, Interval { begun, ended })),
                Err(state) => {
                    assert!(["40P01", "40001"].contains(&state.as_str()), "{state}");
                    client.ok("rollback");
                    aborted += 1;
                }
            }
        }
        (done, aborted)
    }
}

/// A history of some seconds: what committed and when.
fn history(style: Style, isolation: &str, seed: u64, millis: u64) -> (History, Vec<Interval>) {
    let cluster = Cluster::start_with(RANKS, Config::default());
    let mut client = cluster.client(0);
    client.ok("create table kv (k int primary key, v bigint not null) with (partition_by = k)");
    for key in 0..KEYS {
        client.ok(&format!("insert into kv values ({key}, {key})"));
    }
    let run = Run {
        cluster: &cluster,
        style,
        isolation,
        next_value: AtomicU64::new(1000),
        start: Instant::now(),
    };
    let until = Instant::now() + std::time::Duration::from_millis(millis);
    let mut all = Vec::new();
    let mut aborted = 0;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let run = &run;
                scope.spawn(move || run.client(number, seed, until))
            })
            .collect();
        for client in clients {
            let (done, failed) = client.join().unwrap();
            all.extend(done);
            aborted += failed;
        }
    });
    let (transactions, intervals): (Vec<Transaction>, Vec<Interval>) = all
        .into_iter()
        .enumerate()
        .map(|(number, (transaction, interval))| {
            (
                Transaction {
                    number,
                    ..transaction
                },
                interval,
            )
        })
        .unzip();
    println!("{} committed, {aborted} aborted", transactions.len());
    assert!(transactions.len() > 50, "{} transactions", transactions.len());
    let history = History {
        initial: (0..KEYS).map(|key| (key, key)).collect::<HashMap<_, _>>(),
        transactions,
    };
    (history, intervals)
}

#[test]
fn serializable_transactions_are_strictly_serializable() {
    for seed in 0..2 {
        let (history, intervals) = history(Style::Transactions, "serializable", seed, 1500);
        if let Err(violation) = check_strict(&history, &intervals) {
            panic!("seed {seed}: {violation}");
        }
    }
}

#[test]
fn so_are_single_statements_where_transactions_are_serializable() {
    let (history, intervals) = history(Style::SingleStatementsToo, "serializable", 5, 2000);
    if let Err(violation) = check_strict(&history, &intervals) {
        panic!("{violation}");
    }
}

#[test]
fn the_check_finds_that_read_committed_is_not_serializable() {
    let found = (0..5).any(|seed| {
        let (history, _) = history(Style::Transactions, "read committed", seed, 700);
        check(&history).is_err()
    });
    assert!(found);
}
