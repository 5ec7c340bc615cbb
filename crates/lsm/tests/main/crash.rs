//! After a crash the state is that of a prefix of the writes, with every write in it that was synced; and
//! every sync of the engine is needed for that.

use std::collections::BTreeMap;

use weft_base::{FaultKind, Prng, SimDisk, SyncSite};
use weft_lsm::{FamilyId, Lsm, LsmError, SYNC_SITES, WriteBatch, WriteOptions};

use crate::{open_with, seed_count, tiny};

const FAMILY: FamilyId = FamilyId(7);

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Outcome = Result<(), String>;

/// What was written, write by write: key and value, a deletion, or a range.
#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

struct Run {
    disk: SimDisk,
    prng: Prng,
    lsm: Option<Lsm>,
    /// The state before `batches`, and the batches behind it, one of which may be the last that survives.
    base: Map,
    batches: Vec<Vec<Change>>,
    /// So many of the batches were declared durable.
    durable: usize,
    number: u64,
}

fn apply(map: &mut Map, batch: &[Change]) {
    for change in batch {
        match change {
            Change::Put(key, value) => {
                map.insert(key.clone(), value.clone());
            }
            Change::Delete(key) => {
                map.remove(key);
            }
            Change::DeleteRange(start, end) => map.retain(|key, _| key < start || key >= end),
        }
    }
}

fn read_all(lsm: &Lsm) -> Result<Map, LsmError> {
    let mut map = Map::new();
    let mut iterator = lsm.iterator(FAMILY, &lsm.snapshot())?;
    iterator.first()?;
    while iterator.valid() {
        map.insert(iterator.key().to_vec(), iterator.value().to_vec());
        iterator.forward()?;
    }
    for (key, value) in &map {
        let got = lsm.get(FAMILY, key)?;
        assert_eq!(got.as_deref(), Some(value.as_slice()));
    }
    Ok(map)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Run {
    fn start(seed: u64, ignored: Option<SyncSite>) -> Result<Self, String> {
        let disk = SimDisk::new(seed);
        if let Some(site) = ignored {
            disk.ignore_sync(site);
        }
        let lsm = open_with(&disk, tiny()).map_err(text)?;
        Ok(Self {
            disk,
            prng: Prng::new(seed ^ 0xc4a5),
            lsm: Some(lsm),
            base: Map::new(),
            batches: Vec::new(),
            durable: 0,
            number: 0,
        })
    }

    fn batch(&mut self) -> Vec<Change> {
        let prng = &mut self.prng;
        let key = |prng: &mut Prng| format!("{:03}", prng.below(200)).into_bytes();
        let count = 1 + prng.below(4);
        let mut batch = Vec::new();
        for _ in 0..count {
            let key_a = key(prng);
            batch.push(match prng.below(12) {
                0 => Change::DeleteRange(key_a, key(prng)),
                1 | 2 => Change::Delete(key_a),
                _ => {
                    // No two batches write the same value.
                    self.number += 1;
                    let mut value = format!("{}:", self.number).into_bytes();
                    value.resize(10 + prng.below(400) as usize, b'.');
                    Change::Put(key_a, value)
                }
            });
        }
        batch
    }

    /// One call. `Ok(false)`: it reported an error, as it may when a fault was set.
    fn call(&mut self) -> Result<bool, String> {
        let lsm = self.lsm.as_ref().ok_or("not open")?;
        let answer = match self.prng.below(60) {
            0 | 1 => lsm.flush(),
            2 => lsm.compact_all(),
            3..=6 => lsm.sync(),
            _ => {
                let batch = self.batch();
                let sync = self.prng.chance(1, 4);
                return self.write(batch, sync);
            }
        };
        match answer {
            Ok(()) => {
                if self.prng.chance(1, 2) {
                    // Flushed, compacted or synced: only a sync says that it is durable.
                    if lsm.sync().is_err() {
                        return Ok(false);
                    }
                    self.durable = self.batches.len();
                }
                Ok(true)
            }
            Err(LsmError::Io { .. } | LsmError::Refused { .. }) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<bool, String> {
        let mut batch = WriteBatch::new();
        for change in &changes {
            match change {
                Change::Put(key, value) => batch.put(FAMILY, key, value),
                Change::Delete(key) => batch.delete(FAMILY, key),
                Change::DeleteRange(start, end) => batch.delete_range(FAMILY, start, Some(end)),
            }
        }
        let lsm = self.lsm.as_ref().ok_or("not open")?;
        self.batches.push(changes);
        match lsm.write(&batch, WriteOptions { sync, log: true }) {
            Ok(_) => {
                if sync {
                    self.durable = self.batches.len();
                }
                Ok(true)
            }
            Err(LsmError::Io { .. } | LsmError::Refused { .. }) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Opens again and finds the prefix that survived.
    fn reopen(&mut self) -> Outcome {
        self.lsm = None;
        let lsm = open_with(&self.disk, tiny()).map_err(text)?;
        let found = read_all(&lsm).map_err(text)?;
        let mut state = self.base.clone();
        for (count, batch) in self.batches.iter().enumerate() {
            if count >= self.durable && state == found {
                break;
            }
            apply(&mut state, batch);
        }
        // With all batches applied this is the last chance.
        if state != found {
            let gone: Vec<_> = state
                .iter()
                .filter(|entry| found.get(entry.0) != Some(entry.1))
                .collect();
            return Err(format!(
                "no prefix of {} batches behind {} durable ones: {} keys where the last has {}; differ e.g. {:?}",
                self.batches.len(),
                self.durable,
                found.len(),
                state.len(),
                gone.first()
                    .map(|(key, _)| String::from_utf8_lossy(key).into_owned()),
            ));
        }
        (self.base, self.durable) = (found, 0);
        self.batches.clear();
        self.lsm = Some(lsm);
        Ok(())
    }

    fn until_error(&mut self) -> Outcome {
        for _ in 0..12 {
            if !self.call()? {
                break;
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Outcome {
        match self.prng.below(40) {
            0 => {
                self.disk.crash();
                self.reopen()
            }
            // The process dies, the machine does not.
            1 => self.reopen(),
            2..=4 => {
                let within = if self.prng.chance(1, 2) { 12 } else { 80 };
                self.disk
                    .cut_power_at(self.disk.op_count() + 1 + self.prng.below(within));
                self.until_error()?;
                self.disk.crash();
                if self.prng.chance(1, 3) {
                    // The power goes again while the engine is opened.
                    self.disk
                        .cut_power_at(self.disk.op_count() + 1 + self.prng.below(12));
                    self.lsm = None;
                    let _ = open_with(&self.disk, tiny());
                    self.disk.crash();
                }
                self.reopen()
            }
            5 | 6 => {
                let kind = if self.prng.chance(1, 2) {
                    FaultKind::Io
                } else {
                    FaultKind::StorageFull
                };
                self.disk
                    .fail_after(self.disk.op_count() + 1 + self.prng.below(20), kind);
                self.until_error()?;
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

fn run(seed: u64, ignored: Option<SyncSite>, steps: u64) -> Outcome {
    let mut run = Run::start(seed, ignored)?;
    for step in 0..steps {
        run.step()
            .map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    Ok(())
}

#[test]
fn crashes_and_errors_leave_a_prefix() {
    for seed in 0..seed_count(150) {
        if let Err(error) = run(seed, None, 200) {
            panic!("{error}");
        }
    }
}

#[test]
fn removing_any_one_sync_makes_the_crash_test_fail() {
    for site in SYNC_SITES {
        let failed = (0..400).find_map(|seed| {
            // What is lost may also show as an assertion of the check.
            std::panic::catch_unwind(|| run(seed, Some(site), 200))
                .map_or(Some("panic".to_owned()), Result::err)
        });
        assert!(failed.is_some(), "no seed notices that {site:?} is missing");
    }
}

#[test]
fn the_list_of_sync_sites_is_complete() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..10 {
        let mut run = Run::start(seed, None).unwrap();
        for _ in 0..200 {
            run.step().unwrap();
        }
        seen.extend(run.disk.seen_sites());
    }
    assert_eq!(seen, SYNC_SITES.into_iter().collect());
}

/// Cuts the power at every single operation of one fixed run of writes, flushes, compactions and an opening.
#[test]
fn a_power_cut_at_every_operation() {
    const WRITES: u64 = 160;
    let value = |number: u64| format!("{number:>60}").into_bytes();
    // Key `number % 40`, so that compactions drop versions. Returns how many writes were said to be durable.
    let script = |disk: &SimDisk| -> u64 {
        let (mut durable, mut number) = (0, 0);
        for _ in 0..2 {
            let Ok(lsm) = open_with(disk, tiny()) else {
                return durable;
            };
            for _ in 0..WRITES / 2 {
                let sync = number % 5 == 4;
                let mut batch = WriteBatch::new();
                batch.put(FAMILY, format!("{:02}", number % 40).as_bytes(), &value(number));
                batch.put(FAMILY, b"last", &value(number));
                if lsm.write(&batch, WriteOptions { sync, log: true }).is_err() {
                    return durable;
                }
                number += 1;
                if sync {
                    durable = number;
                }
            }
            if lsm.flush().and_then(|()| lsm.compact_all()).is_err() {
                return durable;
            }
        }
        durable
    };
    let whole = SimDisk::new(0);
    assert_eq!(script(&whole), WRITES);
    for op in 1..=whole.op_count() {
        for seed in 0..4 {
            let disk = SimDisk::new(seed);
            disk.cut_power_at(op);
            let durable = script(&disk);
            disk.crash();
            let lsm =
                open_with(&disk, tiny()).unwrap_or_else(|error| panic!("op {op}, seed {seed}: {error}"));
            let found = read_all(&lsm).unwrap();
            let newest = found.get(&b"last"[..]).map_or(0, |newest| {
                String::from_utf8_lossy(newest).trim().parse::<u64>().unwrap() + 1
            });
            assert!(newest >= durable, "op {op}, seed {seed}: {newest} of {durable}");
            let mut expected = Map::new();
            for number in 0..newest {
                expected.insert(format!("{:02}", number % 40).into_bytes(), value(number));
                expected.insert(b"last".to_vec(), value(number));
            }
            assert_eq!(found, expected, "op {op}, seed {seed}");
        }
    }
}
