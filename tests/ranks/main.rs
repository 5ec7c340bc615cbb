//! A cluster of processes whose ranks are killed, or hang, under load: nothing acknowledged is lost, no
//! transfer is on one rank and not on the other, and the others go on.
//!
//! The books are those of `tests/recovery` (`weft_workload::bank`), spread over the ranks; clients of every
//! rank make transfers, half of them one-shot programs, half interactive transactions.
//!
//! The short form runs with the other tests. `WEFT_RECOVERY_ROUNDS=100` makes it long;
//! `WEFT_RECOVERY_SEED` repeats the moments of an earlier run (as far as a real machine can).

// A test may stop at anything unexpected, in its helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::Cluster;
use weft_base::Prng;
use weft_cli::bank_client::{self, Shared, Style};
use weft_workload::bank::{CREATE_TABLES, FIRST_BALANCE, Journal, Status, TransferSource};

const ACCOUNTS: i32 = 60;
const RANKS: u16 = 3;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = number("WEFT_RECOVERY_SEED").unwrap_or_else(|| now.unwrap().subsec_nanos().into());
    println!("seed: WEFT_RECOVERY_SEED={seed}");
    seed
}

fn load(cluster: &Cluster) {
    let mut client = cluster.client(0);
    for table in CREATE_TABLES {
        client
            .batch_execute(&format!("{table} WITH (partition_by = id)"))
            .unwrap();
    }
    let rows: Vec<String> = (1..=ACCOUNTS)
        .map(|id| format!("({id}, {}, {FIRST_BALANCE})", id % 16))
        .collect();
    client
        .batch_execute(&format!("INSERT INTO account VALUES {}", rows.join(", ")))
        .unwrap();
}

/// Transfers by clients of every rank, who go on with new connections when one is lost.
struct Load {
    shared: Arc<Shared>,
    clients: Vec<thread::JoinHandle<Journal>>,
}

impl Load {
    fn start(cluster: &Cluster, random: &mut Prng) -> Load {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let shared = Arc::<Shared>::default();
        let styles = [Style::Message, Style::Steps];
        let each = cluster
            .addresses
            .iter()
            .flat_map(|address| styles.map(|style| (*address, style)));
        let clients = each.map(|(address, style)| {
            let (shared, seed) = (Arc::clone(&shared), random.next_u64());
            thread::spawn(move || {
                let mut journal = Journal::default();
                while !shared.stop.load(Ordering::Relaxed) {
                    let source = TransferSource::new(ACCOUNTS, NEXT.fetch_add(1, Ordering::Relaxed), seed);
                    // An error: the rank is starting.
                    if let Ok(report) = bank_client::run_client(address, style, source, &shared) {
                        journal.absorb(report.journal);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                journal
            })
        });
        let clients = clients.collect();
        Load { shared, clients }
    }

    fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    fn stop(self, journal: &mut Journal) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            journal.absorb(client.join().unwrap());
        }
    }
}

/// Waits until no transaction is prepared and no row locked on any rank, and compares the books with what
/// clients know.
fn check(cluster: &Cluster, journal: &mut Journal) {
    cluster.wait_until_ready();
    let until = Instant::now() + Duration::from_secs(30);
    let touch = "UPDATE account SET balance = balance";
    while let Err(error) = cluster.client(1).batch_execute(touch) {
        assert!(Instant::now() < until, "rows are still locked: {error}");
        thread::sleep(Duration::from_millis(100));
    }
    for rank in 0..usize::from(RANKS) {
        let count = "SELECT count(*) FROM pg_prepared_xacts";
        let open = || {
            cluster
                .client(rank)
                .query_one(count, &[])
                .unwrap()
                .get::<_, i64>(0)
        };
        while open() > 0 {
            assert!(
                Instant::now() < until,
                "rank {rank} still has prepared transactions"
            );
            thread::sleep(Duration::from_millis(100));
        }
    }
    bank_client::check_books(&mut cluster.client(2), journal).unwrap();
}

#[test]
fn a_rank_that_is_killed_splits_and_loses_nothing() {
    let mut random = Prng::new(seed());
    let cluster = Cluster::start(RANKS);
    load(&cluster);
    let mut journal = Journal::default();
    let rounds = number("WEFT_RECOVERY_ROUNDS").unwrap_or(3);
    for round in 0..rounds {
        let load = Load::start(&cluster, &mut random);
        thread::sleep(Duration::from_millis(300 + random.below(700)));
        cluster.kill(u32::try_from(random.below(u64::from(RANKS))).unwrap());
        thread::sleep(Duration::from_millis(random.below(300)));
        load.stop(&mut journal);
        check(&cluster, &mut journal);
        println!(
            "round {round}: {} acknowledged so far",
            journal.count(Status::Acknowledged)
        );
    }
    assert!(journal.count(Status::Acknowledged) > rounds as usize * 3);
}

/// How long a rank may give no sign (docs/limits.md), and what a busy machine adds.
const SILENCE_MAX: Duration = Duration::from_secs(5);
const BUSY: Duration = Duration::from_secs(4);

#[test]
fn a_rank_that_hangs_is_given_up_and_resolves_what_it_had_promised_when_it_goes_on() {
    let mut random = Prng::new(seed());
    let cluster = Cluster::start(RANKS);
    load(&cluster);
    let mut journal = Journal::default();
    let load = Load::start(&cluster, &mut random);
    thread::sleep(Duration::from_millis(500));
    cluster.pause(1);
    let paused = Instant::now();
    let mut client = cluster.client(0);
    let error = client
        .batch_execute("UPDATE account SET balance = balance")
        .unwrap_err();
    let code = error.code().unwrap().code().to_owned();
    let took = paused.elapsed();
    // Until then it may wait for a row that a transaction of the rank that hangs has locked.
    assert!(["08006", "40P01"].contains(&code.as_str()), "{error}");
    assert!(took < SILENCE_MAX + BUSY, "{took:?}");
    // From now on nobody waits for it.
    thread::sleep(SILENCE_MAX.saturating_sub(took));
    let before = load.acknowledged();
    let asked = Instant::now();
    let error = client
        .batch_execute("UPDATE account SET balance = balance")
        .unwrap_err();
    assert!(
        ["08006", "40P01"].contains(&error.code().unwrap().code()),
        "{error}"
    );
    assert!(asked.elapsed() < BUSY, "{:?}", asked.elapsed());
    thread::sleep(Duration::from_secs(2));
    assert!(load.acknowledged() > before, "the others do not go on");
    cluster.resume(1);
    thread::sleep(Duration::from_millis(500));
    load.stop(&mut journal);
    check(&cluster, &mut journal);
    assert!(journal.count(Status::Acknowledged) > 3);
}
