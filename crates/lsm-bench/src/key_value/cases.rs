//! The cases: what one thread asks of an engine, and how it went second by second.
//!
//! ```text
//! |-- warm-up: not counted --|-- steady: seconds that count ------------------|
//!    each slot: operations per second, debt at its end
//! ```
//!
//! *Jitter* is (largest - smallest) / median of the steady slots' throughput. A slot in which nothing was
//! done counts as 0: an operation that takes three slots leaves two such behind. Latency is that of every
//! operation in the steady time, from call to return.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::KeyValueStore;
use super::data::{KeyValues, key};
use crate::LoadError;

/// What is asked of an engine. Numbers of keys are below the count of those that were loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// Writes new keys in no order, from an empty engine on.
    Fill,
    /// Writes keys that are there, uniformly by chance.
    Overwrite,
    /// Reads them.
    Read,
    /// Each operation is a read with this probability in percent, else an overwrite.
    Mixed(u32),
    /// Reads them while another thread overwrites them as fast as it can; the reads are what is measured.
    ReadWhileWriting,
}

impl Case {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Case::Fill => "fill".to_owned(),
            Case::Overwrite => "overwrite".to_owned(),
            Case::Read => "read".to_owned(),
            Case::Mixed(percent) => format!("mixed read={percent}%"),
            Case::ReadWhileWriting => "read-while-writing".to_owned(),
        }
    }
}

/// How long, and how finely it is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunSchedule {
    /// What does not count.
    pub warmup: Duration,
    /// What counts.
    pub steady: Duration,
    /// Length of a slot of the series.
    pub slot: Duration,
}

/// One slot of a series.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Second {
    /// From the begin of the run to the end of the slot.
    pub at: Duration,
    /// Operations a second.
    pub rate: f64,
    /// The engine's debt at its end.
    pub debt_bytes: u64,
    /// Whether it counts.
    pub steady: bool,
}

/// What a run of a case measured.
#[derive(Clone, Debug)]
pub struct CaseRun {
    /// All slots.
    pub series: Vec<Second>,
    /// Operations in the steady time, and how long that was.
    pub operations: u64,
    /// See `operations`.
    pub elapsed: Duration,
    /// Nanoseconds of each operation in the steady time.
    pub latency_ns: Histogram<u64>,
    /// Writes of the other thread a second, in the steady time, if there was one.
    pub writes_beside: Option<f64>,
    /// The part of the steady time that writers were made to wait, where the engine counts it.
    pub waited_share: Option<f64>,
    /// The most memory that was seen in memtables and block cache.
    pub memory_bytes_max: u64,
    /// The debt when the steady time began.
    pub debt_bytes_begin: u64,
}

impl CaseRun {
    /// Operations a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// See the module's head.
    #[must_use]
    pub fn jitter(&self) -> f64 {
        let steady = self.series.iter().filter(|slot| slot.steady);
        jitter(&steady.map(|slot| slot.rate).collect::<Vec<_>>())
    }

    /// The debt at the end.
    #[must_use]
    pub fn debt_bytes_end(&self) -> u64 {
        self.series.last().map_or(0, |slot| slot.debt_bytes)
    }
}

/// (Largest - smallest) / median; 0 for nothing.
#[must_use]
pub fn jitter(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.first(), sorted.last(), sorted.get(sorted.len() / 2)) {
        (Some(least), Some(most), Some(median)) if *median > 0.0 => (most - least) / median,
        (Some(least), Some(most), _) if most > least => f64::INFINITY,
        _ => 0.0,
    }
}

/// Runs a case on a store that has `keys` loaded. A store for [`Case::Fill`] is empty, and `keys` is ignored.
///
/// # Errors
/// The engine's; a key that is not there or has another key's value.
pub fn run_case(
    store: &dyn KeyValueStore,
    case: Case,
    keys: u64,
    value_bytes: usize,
    schedule: &RunSchedule,
    seed: u64,
) -> Result<CaseRun, LoadError> {
    let mut data = KeyValues::new(value_bytes, seed);
    let mut fresh = 0;
    let keys = keys.max(1);
    let background = BackgroundWriter::default();
    let mut operation = |data: &mut KeyValues| match case {
        Case::Fill => {
            fresh += 1;
            data.put(fresh - 1, store)
        }
        Case::Overwrite => {
            let number = data.below(keys);
            data.put(number, store)
        }
        Case::Mixed(percent) if data.below(100) >= u64::from(percent) => {
            let number = data.below(keys);
            data.put(number, store)
        }
        Case::Read | Case::Mixed(_) | Case::ReadWhileWriting => {
            let number = data.below(keys);
            read(store, data, number)
        }
    };
    if case != Case::ReadWhileWriting {
        return measure(store, schedule, &background, || operation(&mut data));
    }
    std::thread::scope(|scope| {
        let mut other = KeyValues::new(value_bytes, !seed);
        let background = &background;
        let writer = scope.spawn(move || {
            while !background.stop.load(Ordering::Relaxed) {
                let number = other.below(keys);
                other.put(number, store)?;
                background.writes.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), LoadError>(())
        });
        let run = measure(store, schedule, background, || operation(&mut data));
        background.stop.store(true, Ordering::Relaxed);
        let ended = writer.join();
        ended.map_err(|_| LoadError("the writer panicked".to_owned()))??;
        let mut run = run?;
        run.writes_beside = Some(background.steady_writes() / run.elapsed.as_secs_f64().max(1e-9));
        Ok(run)
    })
}

fn read(store: &dyn KeyValueStore, data: &KeyValues, number: u64) -> Result<(), LoadError> {
    match store.get(&key(number), &mut |value| data.is_value(number, value))? {
        Some(true) => Ok(()),
        Some(false) => Err(LoadError(format!("key {number} has another key's value"))),
        None => Err(LoadError(format!("key {number} is gone"))),
    }
}

/// The other thread.
#[derive(Default)]
struct BackgroundWriter {
    stop: AtomicBool,
    writes: AtomicU64,
    /// When the steady time began.
    writes_before: AtomicU64,
    /// When it ended.
    writes_after: AtomicU64,
}

impl BackgroundWriter {
    fn steady_writes(&self) -> f64 {
        let before = self.writes_before.load(Ordering::Relaxed);
        self.writes_after.load(Ordering::Relaxed).saturating_sub(before) as f64
    }
}

/// Repeats an operation for the spell's time. One reading of the clock an operation.
fn measure(
    store: &dyn KeyValueStore,
    schedule: &RunSchedule,
    background: &BackgroundWriter,
    mut operation: impl FnMut() -> Result<(), LoadError>,
) -> Result<CaseRun, LoadError> {
    let begun = Instant::now();
    let slot = schedule.slot.max(Duration::from_millis(1));
    let mut run = CaseRun {
        series: Vec::new(),
        operations: 0,
        elapsed: Duration::ZERO,
        latency_ns: Histogram::new_with_bounds(1, 100_000_000_000, 3)
            .map_err(|error| LoadError::doing("histogram", error))?,
        writes_beside: None,
        waited_share: None,
        memory_bytes_max: 0,
        debt_bytes_begin: store.debt_bytes(),
    };
    let mut waited_before = store.waited_nanos();
    let (mut slot_end, mut slot_operations) = (slot, 0_u64);
    let mut steady_from = (schedule.warmup == Duration::ZERO).then_some(Duration::ZERO);
    let mut before = Duration::ZERO;
    loop {
        operation()?;
        let now = begun.elapsed();
        slot_operations += 1;
        if steady_from.is_some() {
            run.operations += 1;
            run.latency_ns
                .saturating_record((now - before).as_nanos().max(1) as u64);
        }
        before = now;
        if now < slot_end {
            continue;
        }
        let mut debt_bytes = 0;
        while slot_end <= now {
            debt_bytes = store.debt_bytes();
            run.series.push(Second {
                at: slot_end,
                rate: slot_operations as f64 / slot.as_secs_f64(),
                debt_bytes,
                steady: steady_from.is_some(),
            });
            slot_operations = 0;
            slot_end += slot;
        }
        run.memory_bytes_max = run.memory_bytes_max.max(store.memory_bytes());
        match steady_from {
            None if now >= schedule.warmup => {
                steady_from = Some(now);
                run.debt_bytes_begin = debt_bytes;
                waited_before = store.waited_nanos();
                let writes = background.writes.load(Ordering::Relaxed);
                background.writes_before.store(writes, Ordering::Relaxed);
            }
            Some(from) if now - from >= schedule.steady => {
                let writes = background.writes.load(Ordering::Relaxed);
                background.writes_after.store(writes, Ordering::Relaxed);
                run.elapsed = now - from;
                run.waited_share = store.waited_nanos().zip(waited_before).map(|(after, before)| {
                    after.saturating_sub(before) as f64 / 1e9 / run.elapsed.as_secs_f64().max(1e-9)
                });
                return Ok(run);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// A map that can lose keys and stand still.
    #[derive(Default)]
    struct MapStore {
        map: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
        stall: Option<Duration>,
        puts: AtomicU64,
    }

    impl KeyValueStore for MapStore {
        fn put(&self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
            if self.puts.fetch_add(1, Ordering::Relaxed) == 2000
                && let Some(stall) = self.stall
            {
                std::thread::sleep(stall);
            }
            self.map.lock().unwrap().insert(key.to_vec(), value.to_vec());
            Ok(())
        }

        fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8]) -> bool) -> Result<Option<bool>, LoadError> {
            Ok(self.map.lock().unwrap().get(key).map(|value| look(value)))
        }

        fn settle(&self) -> Result<(), LoadError> {
            Ok(())
        }

        fn debt_bytes(&self) -> u64 {
            self.puts.load(Ordering::Relaxed)
        }

        fn memory_bytes(&self) -> u64 {
            7
        }

        fn waited_nanos(&self) -> Option<u64> {
            None
        }
    }

    fn loaded(keys: u64) -> MapStore {
        let store = MapStore::default();
        let mut data = KeyValues::new(40, 1);
        (0..keys).for_each(|number| data.put(number, &store).unwrap());
        store
    }

    const SHORT: RunSchedule = RunSchedule {
        warmup: Duration::from_millis(10),
        steady: Duration::from_millis(40),
        slot: Duration::from_millis(5),
    };

    #[test]
    fn every_case_counts_what_it_did() {
        for case in [
            Case::Overwrite,
            Case::Read,
            Case::Mixed(50),
            Case::ReadWhileWriting,
        ] {
            let run = run_case(&loaded(1000), case, 1000, 40, &SHORT, 3).unwrap();
            assert!(
                run.operations > 0 && run.latency_ns.len() == run.operations,
                "{case:?}"
            );
            let steady = run.series.iter().filter(|slot| slot.steady);
            let counted: f64 = steady.map(|slot| slot.rate * 0.005).sum();
            assert_eq!(
                counted.round() as u64,
                run.operations,
                "{case:?}: the series is the run"
            );
            assert_eq!(run.writes_beside.is_some(), case == Case::ReadWhileWriting);
            assert_eq!(run.memory_bytes_max, 7);
        }
        let store = MapStore::default();
        let run = run_case(&store, Case::Fill, 0, 40, &SHORT, 3).unwrap();
        let there = store.map.lock().unwrap().len() as u64;
        assert!(there >= run.operations && there == store.debt_bytes());
    }

    #[test]
    fn a_lost_key_and_a_wrong_value_are_found() {
        let store = loaded(1000);
        let failed = run_case(&store, Case::Read, 1100, 40, &SHORT, 3).unwrap_err();
        assert!(failed.0.contains("gone"), "{failed}");
        let other = store.map.lock().unwrap()[&key(1)[..]].clone();
        store
            .map
            .lock()
            .unwrap()
            .values_mut()
            .for_each(|value| value.clone_from(&other));
        let failed = run_case(&store, Case::Read, 1000, 40, &SHORT, 3).unwrap_err();
        assert!(failed.0.contains("another"), "{failed}");
    }

    #[test]
    fn a_stall_leaves_empty_slots_and_shows_as_jitter() {
        let store = MapStore {
            stall: Some(Duration::from_millis(30)),
            ..MapStore::default()
        };
        let schedule = RunSchedule {
            warmup: Duration::ZERO,
            ..SHORT
        };
        let run = run_case(&store, Case::Fill, 0, 40, &schedule, 3).unwrap();
        let empty = run.series.iter().filter(|slot| slot.rate == 0.0).count();
        assert!(empty >= 4, "{:?}", run.series);
        assert!(run.jitter() > 1.0, "{}", run.jitter());
    }

    #[test]
    fn jitter_of_plain_numbers() {
        assert_eq!(jitter(&[]), 0.0);
        assert_eq!(jitter(&[0.0]), 0.0);
        assert_eq!(jitter(&[5.0, 5.0]), 0.0);
        assert_eq!(jitter(&[8.0, 10.0, 12.0]), 0.4);
        assert_eq!(jitter(&[0.0, 0.0, 1.0]), f64::INFINITY);
    }
}
