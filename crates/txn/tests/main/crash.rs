//! Power cuts, I/O errors and restarts at any moment: what was acknowledged is there, nothing is there
//! twice, and what is there is a prefix of the order.
//!
//! The journal is the witness: every transfer writes one row into it, so the journal's keys say which
//! transactions survived, and the balances must be what the journal makes of the opening balances.

mod prepared;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use weft_base::{BatchId, Disk, FaultKind, Prng, Progress, SimDisk, SyncSite};
use weft_store::checkpoint;
use weft_txn::{CancelToken, EngineConfig, EngineError, Isolation, Replay, Ticket};
use weft_types::{SqlError, SqlState};
use weft_wal::{LogReader, SYNC_SITES};

use crate::bank::{
    Bank, DIR, OPENING, Session, Step, balances_by_journal, batch_of, inputs, on_failing_units, open_engine,
    quiet, try_balances, try_journal_rows, without_memory,
};
use crate::seed_count;

const ACCOUNTS: i64 = 12;

/// What the driver knows.
#[derive(Default)]
struct Known {
    /// Transactions that committed, with their batches.
    committed: BTreeMap<i64, BatchId>,
    /// Transactions that were refused for good reason: they must not be there.
    refused: Vec<i64>,
    /// Batches up to this one were declared durable.
    durable: BatchId,
}

impl Known {
    fn note(&mut self, txid: i64, step: &Step<weft_txn::Committed>) {
        match step {
            Ok(committed) => {
                self.committed.insert(txid, committed.batch);
            }
            // After an I/O error nobody knows; any other refusal is final.
            Err(refused) if refused.error.state.0 == "58030" => {}
            Err(_) => self.refused.push(txid),
        }
    }
}

fn isolation(prng: &mut Prng) -> Isolation {
    match prng.below(3) {
        0 => Isolation::ReadCommitted,
        1 => Isolation::RepeatableRead,
        _ => Isolation::Serializable,
    }
}

/// (txid, from, to, amount), never between an account and itself.
fn transfer(prng: &mut Prng, txid: i64) -> [i64; 4] {
    let from = prng.below(ACCOUNTS as u64) as i64;
    let to = (from + 1 + prng.below(ACCOUNTS as u64 - 1) as i64) % ACCOUNTS;
    [txid, from, to, 1 + prng.below(300) as i64]
}

struct Run {
    disk: SimDisk,
    prng: Prng,
    known: Known,
    next_txid: i64,
    config: EngineConfig,
    /// Rows that came back into memory.
    thawed: u64,
    /// Whether rounds end with an image of the indexes, and how many openings used one.
    writes_images: bool,
    images_used: u64,
    /// Whether transactions are prepared, the newest one of each name, and earlier ones of this life.
    prepares: bool,
    prepared: prepared::KnownByName,
    ended: Vec<(String, prepared::Known)>,
    prepared_after_crashes: usize,
}

type Outcome = Result<(), String>;

impl Run {
    fn new(seed: u64, ignored: Option<SyncSite>) -> Run {
        Run::with(seed, ignored, quiet())
    }

    fn with(seed: u64, ignored: Option<SyncSite>, config: EngineConfig) -> Run {
        let disk = SimDisk::new(seed);
        if let Some(site) = ignored {
            disk.ignore_sync(site);
        }
        let prng = Prng::new(seed ^ 0x00ba_7c4e);
        let config = EngineConfig {
            segment_bytes: 2048 + 512 * (seed % 9),
            ..config
        };
        Run {
            disk,
            prng,
            known: Known::default(),
            next_txid: 1,
            config,
            thawed: 0,
            writes_images: false,
            images_used: 0,
            prepares: false,
            prepared: BTreeMap::new(),
            ended: Vec::new(),
            prepared_after_crashes: 0,
        }
    }

    /// Opens, and says whether that was cut short by a fault that was set.
    fn open(&mut self, faulty: bool) -> Result<Option<Bank>, String> {
        match Bank::open(&self.disk, self.config.clone(), ACCOUNTS) {
            Ok(bank) => Ok(Some(bank)),
            Err(
                EngineError::Io { .. }
                | EngineError::Log(_)
                | EngineError::Checkpoint(_)
                | EngineError::Stopped(_),
            ) if faulty => Ok(None),
            Err(error) => Err(format!("opening: {error}")),
        }
    }

    fn set_fault(&mut self, within: u64) {
        let at = self.disk.op_count() + 1 + self.prng.below(within);
        if self.prng.chance(2, 3) {
            self.disk.cut_power_at(at);
        } else {
            self.disk.fail_after(at, FaultKind::Io);
        }
    }

    /// Some work on an open bank. Sessions that are open at its end are rolled back or lost.
    fn work(&mut self, bank: &mut Bank) -> Outcome {
        let mut sessions: Vec<(Session, Vec<[i64; 4]>)> = Vec::new();
        let mut tickets: Vec<(i64, Ticket)> = Vec::new();
        let (steps, checkpoints) = if self.prng.chance(1, 4) { (160, 5) } else { (40, 1) };
        for _ in 0..self.prng.below(steps) {
            match self.prng.below(20) {
                0..=7 => self.submit(bank, &mut tickets),
                8 | 9 if sessions.len() < 4 => {
                    let mut session = bank.begin(isolation(&mut self.prng));
                    session.txn.set_no_wait(true);
                    sessions.push((session, Vec::new()));
                }
                10..=13 if !sessions.is_empty() => {
                    let n = self.prng.below(sessions.len() as u64) as usize;
                    self.statement(&mut sessions, n);
                }
                14 | 15 if !sessions.is_empty() => {
                    let n = self.prng.below(sessions.len() as u64) as usize;
                    let (session, transfers) = sessions.swap_remove(n);
                    if self.prepares && self.prng.chance(2, 3) {
                        self.prepare(session, transfers);
                    } else if self.prng.chance(1, 5) {
                        session.txn.rollback();
                        self.refused(&transfers);
                    } else {
                        let step = session.commit();
                        transfers
                            .iter()
                            .for_each(|values| self.known.note(values[0], &step));
                    }
                }
                16 | 17 => {
                    let batch = bank.engine.boundary();
                    if bank.engine.wait_durable(batch).is_ok() {
                        self.known.durable = self.known.durable.max(batch);
                    }
                }
                // Long runs make few checkpoints, so that each has many segments to retire.
                18 if self.prng.chance(1, checkpoints) => {
                    if self.prng.chance(1, 3) {
                        self.set_fault(24);
                    }
                    if let Ok(batch) = bank.engine.checkpoint() {
                        self.known.durable = self.known.durable.max(batch);
                    }
                }
                19 if self.prepares => self.decide(bank),
                _ => {}
            }
            self.known.durable = self.known.durable.max(bank.engine.durable());
        }
        for (session, transfers) in sessions {
            session.txn.rollback();
            self.refused(&transfers);
        }
        let (nobody, limit) = (CancelToken::default(), Duration::from_millis(1));
        for (txid, ticket) in tickets {
            // A prepared transaction may hold the locks that it waits for.
            let answer = match self.prepares {
                true => ticket.wait_under(&bank.engine, &nobody, limit),
                false => ticket.wait(),
            };
            self.known.note(txid, &answer);
        }
        // What is visible must hold together at any time, durable or not.
        self.check(bank, bank.engine.boundary())
    }

    fn submit(&mut self, bank: &Bank, tickets: &mut Vec<(i64, Ticket)>) {
        let values = transfer(&mut self.prng, self.next_txid);
        self.next_txid += 1;
        let program = &bank.programs.transfer;
        match bank.engine.submit(program, inputs(program, &values)) {
            Ok(ticket) => tickets.push((values[0], ticket)),
            Err(_) => self.known.refused.push(values[0]),
        }
    }

    fn refused(&mut self, transfers: &[[i64; 4]]) {
        self.known
            .refused
            .extend(transfers.iter().map(|values| values[0]));
    }

    fn statement(&mut self, sessions: &mut Vec<(Session, Vec<[i64; 4]>)>, n: usize) {
        let values = transfer(&mut self.prng, self.next_txid);
        self.next_txid += 1;
        let (session, transfers) = &mut sessions[n];
        let program = Arc::clone(&session.programs.transfer);
        match session.run(&program, &values) {
            Ok(_) => transfers.push(values),
            // Too little money: the statement took itself back, the transaction may go on.
            Err(error) if error.state.0 == "P0001" => self.known.refused.push(values[0]),
            Err(_) => {
                let (session, transfers) = sessions.swap_remove(n);
                session.txn.rollback();
                self.refused(&transfers);
                self.known.refused.push(values[0]);
            }
        }
    }

    /// Everything up to `boundary` is there, nothing else, once, and the money adds up. Rows on a dead disk
    /// are not looked at.
    fn check(&self, bank: &Bank, boundary: BatchId) -> Outcome {
        let snapshot = bank.engine.snapshot();
        let read = || -> Result<_, SqlError> {
            let verified = bank.engine.store().verify_digest(&snapshot)?;
            Ok((try_journal_rows(&snapshot)?, try_balances(&snapshot)?, verified))
        };
        let (journal, balances, verified) = match read() {
            Ok(rows) => rows,
            Err(error) if self.disk_is_dead() && error.state == SqlState::IO_ERROR => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        if boundary < self.known.durable {
            return Err(format!(
                "batch {} was durable; the state ends with {}",
                self.known.durable.0, boundary.0
            ));
        }
        for (txid, batch) in &self.known.committed {
            if journal.contains_key(txid) != (*batch <= boundary) {
                let is = if journal.contains_key(txid) {
                    "there"
                } else {
                    "not there"
                };
                return Err(format!(
                    "transaction {txid} of batch {} is {is}; boundary {}",
                    batch.0, boundary.0
                ));
            }
        }
        self.check_prepared(&journal)?;
        if let Some(txid) = self.known.refused.iter().find(|txid| journal.contains_key(txid)) {
            return Err(format!("transaction {txid} was refused and is there"));
        }
        if balances != balances_by_journal(&journal, ACCOUNTS) {
            return Err("balances are not what the journal says".to_string());
        }
        if balances.values().sum::<i64>() != ACCOUNTS * OPENING {
            return Err("money came or went".to_string());
        }
        if verified != snapshot.digest() {
            return Err("rows and digest differ".to_string());
        }
        Ok(())
    }

    /// Forgets transactions that the crash took; those up to the boundary are durable now.
    fn settle(&mut self, bank: &Bank, boundary: BatchId) -> Outcome {
        if self.prepares {
            match try_journal_rows(&bank.engine.snapshot()) {
                Err(_) if self.disk_is_dead() => self.settle_prepared(bank, boundary, None)?,
                Err(error) => return Err(error.to_string()),
                Ok(journal) => self.settle_prepared(bank, boundary, Some(&journal))?,
            }
        }
        self.check(bank, boundary)?;
        self.known.committed.retain(|_, batch| *batch <= boundary);
        self.known.durable = boundary;
        match self.read_log() {
            // A fault that was set for the opening has struck what goes on beside this.
            Err(_) if self.disk_is_dead() => Ok(()),
            read => read,
        }
    }

    /// The log has no gap, the part before the checkpoint included, which recovery does not read. Read from a
    /// copy of the disk, since a checkpoint of the governor may retire segments at any moment.
    fn read_log(&self) -> Outcome {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.fork(0));
        for record in LogReader::open(disk, Path::new(DIR)).map_err(|error| error.to_string())? {
            record.map_err(|error| format!("reading the log: {error}"))?;
        }
        Ok(())
    }

    fn all(&mut self) -> Outcome {
        let rounds = 2 + self.prng.below(5);
        for _ in 0..rounds {
            // A fault may strike while the directory is opened, more than once.
            let (mut opened, mut recovered) = (None, BatchId::default());
            while opened.is_none() {
                recovered = self.recovered_boundary()?;
                let faulty = self.prng.chance(1, 3);
                if faulty {
                    self.set_fault(30);
                }
                opened = self.open(faulty)?;
                if opened.is_none() {
                    self.disk.crash();
                }
            }
            let Some(mut bank) = opened else { continue };
            let rows = bank.engine.stats().rows;
            self.images_used += u64::from(rows.cold_rows + rows.thawed_rows > 0);
            if bank.engine.catalog().tables().count() == 2 {
                self.settle(&bank, recovered)?;
            }
            if self.prng.chance(3, 4) {
                self.set_fault(60);
            }
            self.work(&mut bank)?;
            self.thawed += bank.engine.stats().rows.thawed_rows;
            if self.writes_images && self.prng.chance(3, 4) {
                if let Ok(true) = bank.engine.checkpoint_for_stop() {
                    self.known.durable = bank.engine.boundary();
                }
                // It is of no use if there is a batch behind it, and does no harm.
                if self.prng.chance(1, 3) {
                    self.work(&mut bank)?;
                }
            }
            match self.prng.below(4) {
                // The process ends in order, or is killed (the disk keeps all that was written), or the
                // power goes. Threads of the old process, which end later, have the old disk: what they
                // still remove by its name is not missing on the new one.
                0 => drop(bank),
                1 => self.disk = self.disk.fork(self.prng.next_u64()),
                _ => {
                    self.disk = self.disk.fork(self.prng.next_u64());
                    self.disk.crash();
                }
            }
            // A fault that did not strike is void; the next round sets its own.
            self.disk.cut_power_at(u64::MAX);
            self.disk.fail_after(u64::MAX, FaultKind::Io);
            if self.disk_is_dead() {
                self.disk.crash();
            }
        }
        let recovered = self.recovered_boundary()?;
        let bank = self.open(false)?.ok_or("not opened")?;
        self.settle(&bank, recovered)
    }

    /// The batch that the log ends with: a checkpoint of a new engine at once defines prepared transactions
    /// again, in batches of its own.
    fn recovered_boundary(&self) -> Result<BatchId, String> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.fork(0));
        let read = || -> Result<BatchId, EngineError> {
            let mut replay = Replay::open(disk, Path::new(DIR), &self.config, &Progress::default())?;
            while replay.step()?.is_some() {}
            Ok(replay.store().boundary())
        };
        read().map_err(|error| format!("replay: {error}"))
    }

    /// A cut that struck stays until the crash is made.
    fn disk_is_dead(&self) -> bool {
        self.disk.exists(Path::new("/")).is_err()
    }
}

#[test]
fn every_crash_keeps_what_was_acknowledged() {
    for seed in 0..seed_count(40) {
        if let Err(reason) = Run::new(seed, None).all() {
            panic!("seed {seed}: {reason}");
        }
    }
}

/// Checkpoints, freezing and eviction are under way at every cut.
#[test]
fn every_crash_keeps_what_was_acknowledged_while_rows_leave_memory() {
    let mut thawed = 0;
    for seed in 0..seed_count(40) {
        let mut run = Run::with(seed, None, without_memory());
        if let Err(reason) = run.all() {
            panic!("seed {seed}: {reason}");
        }
        thawed += run.thawed;
    }
    assert!(thawed > 0, "all rows were in memory when they were needed");
}

/// Images of the indexes are written, cut off, found with batches behind them, and opened.
#[test]
fn every_crash_keeps_what_was_acknowledged_with_images() {
    let mut used = 0;
    for seed in 0..seed_count(40) {
        for config in [quiet(), without_memory()] {
            let counts = config.memory_bytes == 0;
            let mut run = Run::with(seed, None, config);
            run.writes_images = true;
            if let Err(reason) = run.all() {
                panic!("seed {seed}: {reason}");
            }
            used += if counts { run.images_used } else { 0 };
        }
    }
    assert!(used > 10, "{used} images used");
}

#[test]
fn every_crash_keeps_what_was_acknowledged_while_failing_units_merge() {
    let config = on_failing_units();
    for seed in 0..seed_count(40) {
        if let Err(reason) = Run::with(seed, None, config.clone()).all() {
            panic!("seed {seed}: {reason}");
        }
    }
    let stats = config.checkpoint.units.stats();
    assert!(
        stats.done_by_units() > 10 && stats.redone_after_failure() > 2,
        "{stats:?}"
    );
}

/// Without any one of its syncs the engine loses something for some seed.
#[test]
fn every_sync_is_needed() {
    let own = ["database.marker", "database.dir"].map(SyncSite);
    // Nothing is written to the log of the engine below, and none of its values lies apart.
    let of_checkpoints = checkpoint::SYNC_SITES.into_iter();
    let of_checkpoints =
        of_checkpoints.filter(|site| !site.0.starts_with("lsm.log") && site.0 != "lsm.values");
    let sites = SYNC_SITES.iter().copied().chain(of_checkpoints).chain(own);
    let mut superfluous = Vec::new();
    for site in sites {
        let broken = (0..3000).find(|seed| {
            let fails =
                |site| std::panic::catch_unwind(|| Run::new(*seed, site).all().is_err()).unwrap_or(true);
            fails(Some(site)) && !fails(None)
        });
        match broken {
            Some(seed) => println!("{} is needed by seed {seed}", site.0),
            None => superfluous.push(site.0),
        }
    }
    assert!(
        superfluous.is_empty(),
        "no seed needs these syncs: {superfluous:?}"
    );
}

/// Threads, real group commit, and a cut in the middle.
#[test]
fn a_cut_under_threads_keeps_what_was_acknowledged() {
    for seed in 0..seed_count(40).div_ceil(5) {
        let disk = SimDisk::new(seed);
        let config = EngineConfig {
            workers: 2,
            split_batch_at: 2,
            ..quiet()
        };
        let bank = Bank::open(&disk, config.clone(), ACCOUNTS).unwrap();
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
        let mut prng = Prng::new(seed);
        disk.cut_power_at(disk.op_count() + 1 + prng.below(400));
        let txids = AtomicI64::new(1);
        let mut run = Run::new(seed, None);
        run.disk = disk.clone();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let (bank, txids) = (&bank, &txids);
                    scope.spawn(move || client(bank, txids, &mut Prng::new(seed * 10 + n)))
                })
                .collect();
            for thread in threads {
                let known = thread.join().unwrap();
                run.known.durable = run.known.durable.max(known.durable);
                run.known.committed.extend(known.committed);
                run.known.refused.extend(known.refused);
            }
        });
        drop(bank);
        disk.crash();
        let bank = Bank::over(open_engine(&disk, config).unwrap(), ACCOUNTS).unwrap();
        run.check(&bank, bank.engine.boundary())
            .unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
    }
}

/// One client, until something fails or it has done enough.
fn client(bank: &Bank, txids: &AtomicI64, prng: &mut Prng) -> Known {
    let mut known = Known::default();
    for _ in 0..60 {
        let values = transfer(prng, txids.fetch_add(1, Ordering::Relaxed));
        let step = if prng.chance(1, 4) {
            let mut session = bank.begin(isolation(prng));
            let program = Arc::clone(&bank.programs.transfer);
            match session.run(&program, &values) {
                Ok(_) => session.commit(),
                Err(error) => Err(Box::new(weft_txn::Refused {
                    error,
                    observed: BatchId(0),
                })),
            }
        } else {
            bank.execute(&bank.programs.transfer, &values)
        };
        known.note(values[0], &step);
        if prng.chance(1, 3) {
            let batch = batch_of(&step);
            match bank.engine.wait_durable(batch) {
                Ok(()) => known.durable = known.durable.max(batch),
                Err(_) => return known,
            }
        }
    }
    known
}
