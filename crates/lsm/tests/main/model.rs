//! The engine equals an ordered map, under random operations, reopenings and snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_base::{Prng, SimDisk};
use weft_lsm::{FamilyId, LEVEL_COUNT, Lsm, LsmIterator, Snapshot, WriteBatch, WriteOptions};

use crate::{open_with, tiny};

type Key = (u32, Vec<u8>);
type Map = BTreeMap<Key, Vec<u8>>;

struct Run {
    disk: SimDisk,
    prng: Prng,
    lsm: Option<Lsm>,
    map: Map,
    snapshots: Vec<(Arc<Snapshot>, Map)>,
    /// Compactions out of each level, over all openings.
    compactions: [u64; LEVEL_COUNT],
}

fn family(prng: &mut Prng) -> FamilyId {
    FamilyId([0, 1, 2, u32::MAX][prng.below(4) as usize])
}

/// Short keys, so that they meet again, with common beginnings, the empty one among them.
fn key(prng: &mut Prng) -> Vec<u8> {
    let len = prng.below(4) as usize;
    let mut key: Vec<u8> = (0..len).map(|_| prng.below(5) as u8 * 60).collect();
    if prng.chance(1, 3) {
        key.extend_from_slice(format!("{:04}", prng.below(300)).as_bytes());
    }
    key
}

fn value(prng: &mut Prng) -> Vec<u8> {
    let len = match prng.below(20) {
        0 => prng.below(3000),
        1..=4 => 0,
        _ => prng.below(60),
    };
    let mut value = vec![0; len as usize];
    let random = len as usize / 2;
    prng.fill(&mut value[random..]);
    value
}

impl Run {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let lsm = Some(open_with(&disk, tiny()).unwrap());
        Self {
            disk,
            prng: Prng::new(seed ^ 0x15a),
            lsm,
            map: Map::new(),
            snapshots: Vec::new(),
            compactions: [0; LEVEL_COUNT],
        }
    }

    fn lsm(&self) -> &Lsm {
        self.lsm.as_ref().unwrap()
    }

    fn count_compactions(&mut self) {
        let stats = self.lsm().stats();
        for (sum, level) in self.compactions.iter_mut().zip(&stats.levels) {
            *sum += level.compactions;
        }
    }

    fn write(&mut self) {
        let prng = &mut self.prng;
        let mut batch = WriteBatch::new();
        for _ in 0..1 + prng.below(6) {
            let (family, key) = (family(prng), key(prng));
            match prng.below(20) {
                0 => {
                    let end = (!prng.chance(1, 8)).then(|| self::key(prng));
                    batch.delete_range(family, &key, end.as_deref());
                    self.map.retain(|(f, k), _| {
                        *f != family.0 || *k < key || end.as_ref().is_some_and(|end| k >= end)
                    });
                }
                1..=5 => {
                    batch.delete(family, &key);
                    self.map.remove(&(family.0, key));
                }
                _ => {
                    let value = value(prng);
                    batch.put(family, &key, &value);
                    self.map.insert((family.0, key), value);
                }
            }
        }
        let options = WriteOptions {
            sync: prng.chance(1, 10),
            log: true,
        };
        self.lsm().write(&batch, options).unwrap();
    }

    fn check_get(&mut self) {
        let prng = &mut self.prng;
        let (family, keys) = (family(prng), [key(prng), key(prng), key(prng)]);
        let lsm = self.lsm.as_ref().unwrap();
        let expected = |map: &Map, key: &Vec<u8>| map.get(&(family.0, key.clone())).cloned();
        for key in &keys {
            let got = lsm.get(family, key).unwrap();
            assert_eq!(got.map(|v| v.to_vec()), expected(&self.map, key), "{key:?}");
        }
        let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for (got, key) in lsm.multi_get(family, &all).unwrap().into_iter().zip(&keys) {
            assert_eq!(got.map(|v| v.to_vec()), expected(&self.map, key));
        }
        for (snapshot, map) in &self.snapshots {
            let got = lsm.get_at(snapshot, family, &keys[0]).unwrap();
            assert_eq!(got.map(|v| v.to_vec()), expected(map, &keys[0]));
        }
    }

    /// A random walk of an iterator beside one over the map.
    fn check_iterator(&mut self) {
        let prng = &mut self.prng;
        let family = family(prng);
        let now = (self.lsm.as_ref().unwrap().snapshot(), self.map.clone());
        let at = prng.below(self.snapshots.len() as u64 + 1) as usize;
        let (snapshot, map) = self.snapshots.get(at).unwrap_or(&now);
        let mut iterator = self.lsm.as_ref().unwrap().iterator(family, snapshot).unwrap();
        let inside = map.iter().filter(|((f, _), _)| *f == family.0);
        let mut entries: Vec<(&[u8], &[u8])> =
            inside.map(|((_, k), v)| (k.as_slice(), v.as_slice())).collect();
        // In either order, equal, beyond all keys, or none at all.
        let lower = prng.chance(1, 4).then(|| key(prng));
        let upper = prng.chance(1, 4).then(|| key(prng));
        iterator.set_bounds(lower.as_deref(), upper.as_deref());
        entries.retain(|(k, _)| {
            lower.as_ref().is_none_or(|lower| *k >= lower.as_slice())
                && upper.as_ref().is_none_or(|upper| *k < upper.as_slice())
        });
        let mut place: Option<usize> = None;
        for _ in 0..2 + prng.below(12) {
            match prng.below(10) {
                0 => {
                    iterator.first().unwrap();
                    place = (!entries.is_empty()).then_some(0);
                }
                1 => {
                    iterator.last().unwrap();
                    place = entries.len().checked_sub(1);
                }
                2 | 3 => {
                    let key = key(prng);
                    iterator.seek(&key).unwrap();
                    place = entries.iter().position(|(k, _)| *k >= key.as_slice());
                }
                4 => {
                    let key = key(prng);
                    iterator.seek_for_prev(&key).unwrap();
                    place = entries.iter().rposition(|(k, _)| *k <= key.as_slice());
                }
                5..=7 => {
                    iterator.forward().unwrap();
                    place = place.map(|at| at + 1).filter(|at| *at < entries.len());
                }
                _ => {
                    iterator.back().unwrap();
                    place = place.and_then(|at| at.checked_sub(1));
                }
            }
            assert_eq!(shown(&iterator), place.map(|at| entries[at]));
        }
        let (mut whole, mut backwards) = (Vec::new(), Vec::new());
        iterator.first().unwrap();
        while let Some((key, value)) = shown(&iterator) {
            whole.push((key.to_vec(), value.to_vec()));
            iterator.forward().unwrap();
        }
        iterator.last().unwrap();
        while let Some((key, value)) = shown(&iterator) {
            backwards.push((key.to_vec(), value.to_vec()));
            iterator.back().unwrap();
        }
        backwards.reverse();
        assert_eq!(whole, backwards);
        let expected: Vec<_> = entries.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert_eq!(whole, expected);
    }

    fn step(&mut self) {
        match self.prng.below(400) {
            0 => {
                // With or without an orderly end.
                self.snapshots.clear();
                self.count_compactions();
                let lsm = self.lsm.take().unwrap();
                if self.prng.chance(1, 2) {
                    lsm.close().unwrap();
                } else {
                    drop(lsm);
                }
                self.lsm = Some(open_with(&self.disk, tiny()).unwrap());
            }
            1..=3 => self.lsm().flush().unwrap(),
            4 => self.lsm().compact().unwrap(),
            5 => {
                if self.prng.chance(1, 4) {
                    self.lsm().compact_all().unwrap();
                }
            }
            6..=10 => {
                let snapshot = self.lsm().snapshot();
                self.snapshots.push((snapshot, self.map.clone()));
            }
            11..=16 => {
                if !self.snapshots.is_empty() {
                    let at = self.prng.below(self.snapshots.len() as u64) as usize;
                    self.snapshots.swap_remove(at);
                }
            }
            17..=30 => self.check_iterator(),
            31..=100 => self.check_get(),
            _ => self.write(),
        }
    }
}

fn shown(iterator: &LsmIterator) -> Option<(&[u8], &[u8])> {
    iterator.valid().then(|| (iterator.key(), iterator.value()))
}

fn number(name: &str, usual: u64) -> u64 {
    let wanted = std::env::var(name).ok();
    wanted.and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// `WEFT_LSM_STEPS=n` takes n steps, 6,000 for each seed.
#[test]
fn the_engine_is_an_ordered_map() {
    let steps = number("WEFT_LSM_STEPS", 30_000);
    let mut compactions = [0; LEVEL_COUNT];
    for seed in 0..steps.div_ceil(6_000) {
        let mut run = Run::new(seed);
        for step in 0..6_000.min(steps) {
            let before = run.map.len();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step()));
            if let Err(panic) = result {
                eprintln!("seed {seed}, step {step}, {before} keys");
                std::panic::resume_unwind(panic);
            }
        }
        run.count_compactions();
        compactions
            .iter_mut()
            .zip(run.compactions)
            .for_each(|(sum, count)| *sum += count);
    }
    assert!(compactions[..3].iter().all(|&count| count > 2), "{compactions:?}");
}
