//! Tests the engine's threads in many interleavings: writers, ingestion, readers, the flush thread and the
//! compaction threads run step by step in an order drawn from a seed, and everything that is read must match
//! an ordered map at some moment during the read.
//!
//! `WEFT_SEEDS=n` looks at n seeds; `WEFT_LSM_INTERLEAVING=seed` at one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use weft_base::{Clock, Disk, ManualClock, Prng, SimDisk};
use weft_ops::key::SeqNo;

use super::background::{Step, compact_step, flush_step};
use super::{Engine, Lsm};
use crate::stepped::{Body, pause, run};
use crate::{Background, FamilyId, LsmOptions, Snapshot, WriteBatch, WriteOptions, verify};

const FAMILIES: [FamilyId; 2] = [FamilyId(1), FamilyId(2)];
const KEYS: u64 = 12;

type Key = (FamilyId, Vec<u8>);
type Map = BTreeMap<Key, Vec<u8>>;

#[derive(Clone, Debug)]
enum Change {
    Put(Key, Vec<u8>),
    Delete(Key),
    DeleteRange(FamilyId, Vec<u8>, Option<Vec<u8>>),
}

/// What a reader saw whose snapshot is at least `from` and at most `to`.
#[derive(Debug)]
struct Observation {
    from: SeqNo,
    to: SeqNo,
    /// A key, or all.
    key: Option<Key>,
    found: Map,
}

/// What all threads did.
#[derive(Default)]
struct Record {
    /// By the first sequence number of each batch or ingestion.
    changes: Mutex<BTreeMap<SeqNo, Vec<Change>>>,
    observations: Mutex<Vec<Observation>>,
    /// All writes up to here were reported durable.
    durable: Mutex<SeqNo>,
}

impl Record {
    fn changed(&self, first: SeqNo, changes: Vec<Change>) {
        self.changes.lock().insert(first, changes);
    }

    fn observed(&self, from: SeqNo, to: SeqNo, key: Option<Key>, found: Map) {
        let observation = Observation { from, to, key, found };
        self.observations.lock().push(observation);
    }

    fn made_durable(&self, last: SeqNo) {
        let mut durable = self.durable.lock();
        *durable = last.max(*durable);
    }

    /// The state after all changes up to a sequence number.
    fn state(&self, at: SeqNo) -> Map {
        let mut map = Map::new();
        for change in self.changes.lock().range(..=at).flat_map(|(_, changes)| changes) {
            match change {
                Change::Put(key, value) => {
                    map.insert(key.clone(), value.clone());
                }
                Change::Delete(key) => {
                    map.remove(key);
                }
                Change::DeleteRange(family, start, end) => map.retain(|(of, key), _| {
                    of != family || key < start || end.as_ref().is_some_and(|end| key >= end)
                }),
            }
        }
        map
    }

    /// The states from one moment to another.
    fn states(&self, from: SeqNo, to: SeqNo) -> Vec<Map> {
        let changes = self.changes.lock();
        let later = changes.range((Bound::Excluded(from), Bound::Included(to)));
        let moments: Vec<SeqNo> = std::iter::once(from)
            .chain(later.map(|(first, _)| *first))
            .collect();
        drop(changes);
        moments.into_iter().map(|at| self.state(at)).collect()
    }

    /// How a read differs from the last of these moments.
    fn difference(&self, observation: &Observation) -> String {
        let Observation { from, to, key, found } = observation;
        let state = self.state(*to);
        let keys = state.keys().chain(found.keys());
        let keys = keys.filter(|other| key.as_ref().is_none_or(|key| key == *other));
        let text = |value: Option<&Vec<u8>>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        let differs = keys.filter(|key| found.get(key) != state.get(key));
        let differs = differs.map(|key| (key, text(found.get(key)), text(state.get(key))));
        format!(
            "between {from} and {to}: (key, found, written) {:?}",
            differs.collect::<Vec<_>>()
        )
    }

    fn check(&self) {
        for observation in &*self.observations.lock() {
            let fits = |mut state: Map| {
                if let Some(key) = &observation.key {
                    state.retain(|other, _| other == key);
                }
                state == observation.found
            };
            let states = self.states(observation.from, observation.to);
            assert!(states.into_iter().any(fits), "{}", self.difference(observation));
        }
    }
}

fn options() -> LsmOptions {
    LsmOptions {
        memtable_bytes: 1_500,
        frozen_memtables_max: 2,
        block_cache_bytes: 16 << 10,
        block_bytes: 128,
        restart_interval: 2,
        large_value_bytes: 120,
        value_share_min: 0.5,
        table_bytes: 500,
        level0_tables: 2,
        level1_bytes: 1_500,
        level_factor: 3,
        task_bytes: 300,
        background: Background::Threads,
        ..LsmOptions::default()
    }
}

const DIR: &str = "/stepped";

/// An engine whose threads are those of the run.
fn open(disk: &SimDisk) -> Lsm {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
    let engine = Engine::open(Arc::new(disk.clone()), Path::new(DIR), options(), clock).unwrap();
    Lsm {
        engine: Arc::new(engine),
        threads: Vec::new(),
    }
}

fn read_all(lsm: &Lsm, snapshot: &Arc<Snapshot>) -> Map {
    let mut map = Map::new();
    for family in FAMILIES {
        let mut iterator = lsm.iterator(family, snapshot).unwrap();
        iterator.first().unwrap();
        while iterator.valid() {
            map.insert((family, iterator.key().to_vec()), iterator.value().to_vec());
            pause();
            iterator.forward().unwrap();
        }
    }
    map
}

/// One thread of the test.
struct Actor {
    lsm: Arc<Lsm>,
    record: Arc<Record>,
    prng: Prng,
    number: u64,
}

impl Actor {
    fn key(&mut self) -> Key {
        let family = FAMILIES[self.prng.below(2) as usize];
        (family, vec![b'a' + self.prng.below(KEYS) as u8])
    }

    /// A value that nobody else writes.
    fn value(&mut self) -> Vec<u8> {
        self.number += 1;
        let mut value = format!("{}.{}.", self.prng.next_u64() % 1_000_000, self.number).into_bytes();
        let bytes = if self.prng.chance(1, 8) { 200 } else { 20 };
        value.resize(bytes + self.prng.below(40) as usize, b'.');
        value
    }

    fn change(&mut self) -> Change {
        let key = self.key();
        match self.prng.below(14) {
            0 => {
                let end = self.key().1;
                let end = self.prng.chance(2, 3).then_some(end);
                Change::DeleteRange(key.0, key.1, end)
            }
            1 | 2 => Change::Delete(key),
            _ => {
                let value = self.value();
                Change::Put(key, value)
            }
        }
    }

    fn write(&mut self) {
        let count = 1 + self.prng.below(4);
        let changes: Vec<Change> = (0..count).map(|_| self.change()).collect();
        let mut batch = WriteBatch::new();
        for change in &changes {
            match change {
                Change::Put((family, key), value) => batch.put(*family, key, value),
                Change::Delete((family, key)) => batch.delete(*family, key),
                Change::DeleteRange(family, start, end) => batch.delete_range(*family, start, end.as_deref()),
            }
        }
        let options = WriteOptions {
            sync: self.prng.chance(1, 6),
            log: true,
        };
        let last = self.lsm.write(&batch, options).unwrap();
        if !batch.is_empty() {
            let first = SeqNo(last.0 + 1 - u64::from(batch.count()));
            self.record.changed(first, changes);
        }
        if options.sync {
            self.record.made_durable(last);
        }
    }

    fn writes(mut self) {
        for _ in 0..25 {
            match self.prng.below(25) {
                0 => {
                    let last = self.lsm.engine.readers.visible();
                    self.lsm.flush().unwrap();
                    self.record.made_durable(last);
                }
                _ => self.write(),
            }
        }
    }

    fn ingests(mut self) {
        for _ in 0..6 {
            match self.prng.below(8) {
                0 => self.lsm.compact().unwrap(),
                1 => self.lsm.compact_all().unwrap(),
                2 => self.lsm.without_compaction(pause),
                3 => {
                    self.lsm.collect_values().unwrap();
                }
                _ => self.ingest(),
            }
        }
    }

    fn ingest(&mut self) {
        let lsm = Arc::clone(&self.lsm);
        let mut ingest = lsm.ingest().unwrap();
        // No write happens in between.
        let first = SeqNo(lsm.engine.readers.visible().0 + 1);
        let mut changes = Vec::new();
        for _ in 0..1 + self.prng.below(8) {
            match self.change() {
                Change::DeleteRange(family, ..) => {
                    ingest.delete_family(family).unwrap();
                    changes.push(Change::DeleteRange(family, Vec::new(), None));
                }
                Change::Put((family, key), value) => {
                    ingest.put(family, &key, &value).unwrap();
                    changes.push(Change::Put((family, key), value));
                }
                Change::Delete((family, key)) => {
                    ingest.delete(family, &key).unwrap();
                    changes.push(Change::Delete((family, key)));
                }
            }
        }
        if self.prng.chance(5, 6) {
            ingest.finish().unwrap();
            self.record.changed(first, changes);
            self.record.made_durable(first);
        }
    }

    /// A snapshot must not change while it is held.
    fn scans(mut self) {
        for _ in 0..8 {
            let snapshot = self.lsm.snapshot();
            let at = snapshot.seqno();
            for _ in 0..1 + self.prng.below(3) {
                let found = read_all(&self.lsm, &snapshot);
                self.record.observed(at, at, None, found);
                let key = self.key();
                let value = self.lsm.get_at(&snapshot, key.0, &key.1).unwrap();
                let found = value.map(|value| (key.clone(), value.to_vec()));
                self.record
                    .observed(at, at, Some(key), found.into_iter().collect());
                (0..self.prng.below(20)).for_each(|_| pause());
            }
        }
    }

    fn gets(mut self) {
        for _ in 0..60 {
            let key = self.key();
            let from = self.lsm.engine.readers.visible();
            let value = self.lsm.get(key.0, &key.1).unwrap();
            let to = self.lsm.engine.readers.visible();
            let found = value.map(|value| (key.clone(), value.to_vec()));
            self.record
                .observed(from, to, Some(key), found.into_iter().collect());
            pause();
        }
    }
}

/// One run; returns a number that identifies the schedule.
fn interleave(seed: u64) -> Result<u64, String> {
    let disk = SimDisk::new(seed);
    let lsm = Arc::new(open(&disk));
    let record = Arc::new(Record::default());
    let acts: [fn(Actor); 6] = [
        Actor::writes,
        Actor::writes,
        Actor::ingests,
        Actor::scans,
        Actor::gets,
        Actor::gets,
    ];
    let acting = Arc::new(AtomicUsize::new(acts.len()));
    let mut bodies: Vec<Body> = Vec::new();
    for (at, act) in acts.into_iter().enumerate() {
        let actor = Actor {
            lsm: Arc::clone(&lsm),
            record: Arc::clone(&record),
            prng: Prng::new(seed << 8 | at as u64),
            number: 0,
        };
        let (lsm, acting) = (Arc::clone(&lsm), Arc::clone(&acting));
        bodies.push(Box::new(move || {
            act(actor);
            if acting.fetch_sub(1, Ordering::Relaxed) == 1 {
                lsm.engine.stop();
            }
        }));
    }
    let serving: [(&str, Step); 3] = [
        ("flush", flush_step),
        ("compact", compact_step),
        ("compact", compact_step),
    ];
    for (name, step) in serving {
        let engine = Arc::clone(&lsm.engine);
        bodies.push(Box::new(move || engine.serve_or_poison(name, step)));
    }
    let trace = run(seed, bodies)?;
    let stats = lsm.stats();
    let errors = (stats.flush_error, stats.compaction_error, stats.collect_error);
    assert_eq!(errors, (None, None, None));
    lsm.engine.check_poison().unwrap();
    record.check();
    let last = lsm.engine.readers.visible();
    assert_eq!(read_all(&lsm, &lsm.snapshot()), record.state(last));
    drop(lsm);
    check_after_end(&disk, &record, last);
    Ok(trace)
}

/// After reopening everything must be there; after a power cut, everything that was durable.
fn check_after_end(disk: &SimDisk, record: &Record, last: SeqNo) {
    let cut = disk.fork(last.0);
    cut.crash();
    let lsm = open(&cut);
    let found = read_all(&lsm, &lsm.snapshot());
    let durable = *record.durable.lock();
    let states = record.states(durable, last);
    assert!(states.contains(&found), "what was durable is lost");
    drop(lsm);
    let lsm = open(disk);
    assert_eq!(read_all(&lsm, &lsm.snapshot()), record.state(last));
    drop(lsm);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let report = verify(&shared, Path::new(DIR), &options()).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn readers_see_one_state_in_any_order_of_steps() {
    let seeds = match number("WEFT_LSM_INTERLEAVING") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEFT_SEEDS").unwrap_or(250),
    };
    for seed in seeds {
        let ended = std::panic::catch_unwind(|| interleave(seed));
        match ended {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => panic!("seed {seed}: {error}"),
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn the_same_seed_takes_the_same_turns() {
    for seed in 0..5 {
        assert_eq!(interleave(seed), interleave(seed), "seed {seed}");
    }
    assert_ne!(interleave(1), interleave(2));
}

/// Two threads that take two latches in different orders are found.
#[test]
fn a_deadlock_is_found() {
    let found = (0..100).find_map(|seed| {
        let latches = Arc::new([crate::sync::Mutex::new(()), crate::sync::Mutex::new(())]);
        let other = Arc::clone(&latches);
        let bodies: Vec<Body> = vec![
            Box::new(move || {
                let _first = latches[0].lock();
                let _second = latches[1].lock();
            }),
            Box::new(move || {
                let _second = other[1].lock();
                let _first = other[0].lock();
            }),
        ];
        run(seed, bodies).err()
    });
    assert!(found.unwrap().contains("deadlock"));
}
