//! The log equals a plain list of payloads, whatever crashes and errors come between, and every one of its
//! syncs is needed for that.

use std::path::Path;

use weft_base::{BatchId, Disk, FaultKind, Prng, SimDisk, SyncSite};
use weft_wal::{Log, LogRecord, SYNC_SITES, WalError};

use crate::{DIR, open_and_read, seed_count};

/// What the log must hold: `payloads[i]` is that of batch `i + 1`.
#[derive(Default)]
struct Model {
    payloads: Vec<Vec<u8>>,
    /// Batches up to this one were declared durable.
    durable: u64,
    /// Batches up to this one may have been retired.
    retired: u64,
}

struct Run {
    disk: SimDisk,
    prng: Prng,
    model: Model,
    log: Log,
}

type Outcome = Result<(), String>;

impl Run {
    fn start(seed: u64, ignored: Option<SyncSite>) -> Result<Self, String> {
        let disk = SimDisk::new(seed);
        if let Some(site) = ignored {
            disk.ignore_sync(site);
        }
        let (log, _) = open_and_read(&disk).map_err(|error| error.to_string())?;
        Ok(Self {
            disk,
            prng: Prng::new(seed ^ 0xc4a5),
            model: Model::default(),
            log,
        })
    }

    fn payload(&mut self) -> Vec<u8> {
        let bytes = match self.prng.below(12) {
            0 => 0,
            1..=6 => self.prng.below(120),
            7..=9 => self.prng.below(700),
            10 => self.prng.below(2600),
            _ => self.prng.below(7000),
        };
        let mut payload = vec![0; bytes as usize];
        self.prng.fill(&mut payload);
        payload
    }

    /// One call of the log. `Ok(false)`: it reported an error, as it may when a fault was set.
    fn call(&mut self) -> Result<bool, String> {
        let last = self.model.payloads.len() as u64;
        let answer = match self.prng.below(16) {
            0..=8 => {
                let payload = self.payload();
                self.model.payloads.push(payload.clone());
                self.log.append(BatchId(last + 1), &payload).map(|_| ())
            }
            9 | 10 => self.log.sync_to(self.log.appended()),
            11 | 12 => {
                let batch = self.prng.below(last + 1);
                let answer = self.log.sync_batch(BatchId(batch));
                if answer.is_ok() && self.log.durable_batch().0 < batch {
                    return Err(format!("batch {batch} was synced and is not durable"));
                }
                answer
            }
            13 => self.log.write_out(),
            14 => self.log.close(),
            _ => {
                let batch = self.prng.below(self.log.durable_batch().0 + 1);
                self.model.retired = self.model.retired.max(batch);
                self.log.retire_before(BatchId(batch))
            }
        };
        self.model.durable = self.model.durable.max(self.log.durable_batch().0);
        match answer {
            Ok(()) => Ok(true),
            Err(WalError::Io { .. }) => {
                let again = self
                    .log
                    .append(BatchId(self.model.payloads.len() as u64 + 1), b"");
                match again {
                    Err(WalError::Poisoned { .. }) => Ok(false),
                    other => Err(format!("after an I/O error append says {other:?}")),
                }
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn reopen(&mut self) -> Outcome {
        let (log, records) = open_and_read(&self.disk).map_err(|error| error.to_string())?;
        self.log = log;
        self.check(&records)?;
        self.model.payloads.truncate(self.log.durable_batch().0 as usize);
        self.model.durable = self.log.durable_batch().0;
        Ok(())
    }

    fn check(&self, records: &[LogRecord]) -> Outcome {
        let Model {
            payloads,
            durable,
            retired,
        } = &self.model;
        let last = self.log.durable_batch().0;
        if last < *durable {
            return Err(format!("batch {durable} was durable; the log ends with {last}"));
        }
        if let Some(record) = records.last()
            && record.batch.0 != last
        {
            return Err(format!(
                "the log ends with {last}, the records with {}",
                record.batch
            ));
        }
        let first = records.first().map_or(last + 1, |record| record.batch.0);
        if first > retired + 1 {
            return Err(format!(
                "the log starts with {first}; only up to {retired} was retired"
            ));
        }
        for (record, due) in records.iter().zip(first..) {
            if record.batch.0 != due || payloads.get(due as usize - 1) != Some(&record.payload) {
                let LogRecord {
                    batch, file, offset, ..
                } = record;
                return Err(format!(
                    "batch {batch} in {file} at {offset} is not what was appended as {due}"
                ));
            }
        }
        Ok(())
    }

    /// Goes on until an error is reported, or some calls have passed.
    fn until_error(&mut self) -> Outcome {
        for _ in 0..8 {
            if !self.call()? {
                break;
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Outcome {
        match self.prng.below(24) {
            0 => {
                self.disk.crash();
                self.reopen()
            }
            // The process dies, the machine does not.
            1 => self.reopen(),
            2 | 3 => {
                self.disk
                    .cut_power_at(self.disk.op_count() + 1 + self.prng.below(10));
                self.until_error()?;
                self.disk.crash();
                if self.prng.chance(1, 3) {
                    // The power goes again while the log is opened.
                    self.disk
                        .cut_power_at(self.disk.op_count() + 1 + self.prng.below(4));
                    let _ = open_and_read(&self.disk);
                    self.disk.crash();
                }
                self.reopen()
            }
            4 | 5 => {
                let kind = if self.prng.chance(1, 2) {
                    FaultKind::Io
                } else {
                    FaultKind::StorageFull
                };
                self.disk
                    .fail_after(self.disk.op_count() + 1 + self.prng.below(10), kind);
                self.until_error()?;
                // No fault may be left for the reopening.
                self.disk.fail_after(0, kind);
                if self.prng.chance(1, 2) {
                    self.disk.crash();
                }
                self.reopen()
            }
            _ => match self.call()? {
                true => Ok(()),
                false => Err("an error without a fault".to_owned()),
            },
        }
    }
}

fn run(seed: u64, ignored: Option<SyncSite>) -> Outcome {
    let mut run = Run::start(seed, ignored)?;
    for step in 0..120 {
        run.step()
            .map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    Ok(())
}

#[test]
fn the_log_equals_its_model_under_crashes_and_errors() {
    for seed in 0..seed_count(1500) {
        if let Err(error) = run(seed, None) {
            panic!("{error}");
        }
    }
}

#[test]
fn removing_any_one_sync_makes_the_crash_test_fail() {
    for site in SYNC_SITES {
        let failed = (0..1500).find_map(|seed| run(seed, Some(site)).err());
        assert!(failed.is_some(), "no seed notices that {site:?} is missing");
    }
}

#[test]
fn the_list_of_sync_sites_is_complete() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let mut run = Run::start(seed, None).unwrap();
        for _ in 0..120 {
            run.step().unwrap();
        }
        seen.extend(run.disk.seen_sites());
    }
    assert_eq!(seen, SYNC_SITES.into_iter().collect());
}

/// Cuts the power at every single operation of one fixed run.
#[test]
fn a_power_cut_at_every_operation() {
    let script = |disk: &SimDisk| -> (u64, Option<Log>) {
        let Ok((log, _)) = open_and_read(disk) else {
            return (0, None);
        };
        for batch in 1..=12_u64 {
            if log
                .append(BatchId(batch), &crate::payload(batch, 100 * batch as usize))
                .is_err()
                || batch.is_multiple_of(2) && log.sync_batch(BatchId(batch)).is_err()
                || batch == 9 && log.retire_before(BatchId(6)).is_err()
            {
                break;
            }
        }
        let _ = log.close();
        (log.durable_batch().0, Some(log))
    };
    let whole = SimDisk::new(0);
    script(&whole);
    assert!(whole.list(Path::new(DIR)).unwrap().len() > 1);
    for op in 1..=whole.op_count() {
        for seed in 0..10 {
            let disk = SimDisk::new(seed);
            disk.cut_power_at(op);
            let (durable, _log) = script(&disk);
            disk.crash();
            let (log, records) =
                open_and_read(&disk).unwrap_or_else(|error| panic!("op {op}, seed {seed}: {error}"));
            assert!(log.durable_batch().0 >= durable, "op {op}, seed {seed}");
            for record in records {
                let batch = record.batch.0;
                assert_eq!(
                    record.payload,
                    crate::payload(batch, 100 * batch as usize),
                    "op {op}, seed {seed}"
                );
            }
        }
    }
}
