//! The hash index under Verilator against its golden model: random operations, hazards one by one, bad input.
//!
//! Every test can fail: the models that lack one of the protections are run through the same tests, which
//! must then find a difference. `WEFT_HARDWARE_OPS` sets the number of random operations.

#![allow(clippy::unwrap_used)]

use weft_base::random::Prng;
use weft_device::hash_index::throughput::{Workload, measure, run};
use weft_device::hash_index::{
    Code, GoldenHashIndex, HashIndexUnit, Model, Op, OpKind, OpResult, TIMESTAMP_MAX, put_key,
};
use weft_device::memory::{Memory, MemoryParams, MemoryPreset};

const BASE: u32 = 64;
const KEYS: u32 = 4_096;
/// Words between keys of the pool.
const KEY_STRIDE: u32 = 8;
const TUPLES: u32 = 16_384;
const TUPLE_STRIDE: u32 = 12;
const WORDS: usize = 1 << 19;

/// A unit, its golden model, and keys that both know.
struct Bench {
    unit: HashIndexUnit,
    golden: GoldenHashIndex,
    mask: u32,
    keys: Vec<Vec<u8>>,
    next_tuple: u32,
}

impl Bench {
    fn new(model: Model, params: MemoryParams, buckets: u32, keys: Vec<Vec<u8>>, seed: u64) -> Bench {
        let mut memory = Memory::new(WORDS, params, seed);
        for (at, key) in keys.iter().enumerate() {
            put_key(&mut memory, KEYS + at as u32 * KEY_STRIDE, key);
        }
        Bench {
            unit: HashIndexUnit::new(model, memory, seed),
            golden: GoldenHashIndex::new(BASE, buckets - 1),
            mask: buckets - 1,
            keys,
            next_tuple: TUPLES,
        }
    }

    fn op(&mut self, kind: OpKind, unique: bool, key: usize, timestamp: u64, id: u16) -> Op {
        let tuple_addr = self.next_tuple;
        if kind == OpKind::Insert {
            self.next_tuple += TUPLE_STRIDE;
        }
        Op {
            kind,
            unique,
            base: BASE,
            mask: self.mask,
            key_addr: KEYS + key as u32 * KEY_STRIDE,
            key_bytes: self.keys[key].len() as u8,
            tuple_addr,
            timestamp,
            id,
        }
    }

    /// Runs operations on both, with pauses between them and with results that are not always taken; compares
    /// results and the whole table.
    fn check(&mut self, ops: &[Op], random: &mut Prng, pauses: (u64, u64)) -> Result<Vec<Code>, String> {
        let expected: Vec<OpResult> = ops
            .iter()
            .map(|op| {
                let key = ((op.key_addr - KEYS) / KEY_STRIDE) as usize;
                self.golden.execute(op, &self.keys[key])
            })
            .collect();
        let mut found: Vec<Option<OpResult>> = vec![None; ops.len()];
        let (mut next, mut done, mut idle) = (0, 0, 0);
        let mut offered = false;
        while done < ops.len() {
            // An operation that is offered stays so until it is taken.
            offered = offered || random.chance(100 - pauses.0, 100);
            let op = if offered { ops.get(next) } else { None };
            let ready = random.chance(100 - pauses.1, 100);
            let (taken, result) = self.unit.step(op, ready).map_err(|error| error.to_string())?;
            if taken {
                next += 1;
                offered = false;
            }
            idle += 1;
            if let Some(result) = result {
                idle = 0;
                done += 1;
                let place = found
                    .get_mut(usize::from(result.id))
                    .ok_or("a result of no operation")?;
                if place.replace(result).is_some() {
                    return Err(format!("operation {} has two results", result.id));
                }
            }
            if idle > 50_000 {
                return Err("no result for 50,000 cycles".to_owned());
            }
        }
        for ((op, expected), found) in ops.iter().zip(&expected).zip(&found) {
            if found.as_ref() != Some(expected) {
                return Err(format!("{op:?}: {found:?}, expected {expected:?}"));
            }
        }
        match self.golden.difference(&self.unit.memory) {
            Some(difference) => Err(difference),
            None => Ok(expected.iter().map(|result| result.code).collect()),
        }
    }

    /// Commits or undoes what is dirty, as the softcore's second phase does.
    fn end_transactions(&mut self, random: &mut Prng) {
        for (addr, state) in self.golden.end_transactions(|_| random.chance(3, 4)) {
            self.unit.memory.set_word(addr, state);
        }
    }
}

/// Keys of all lengths, some of which share a bucket, are prefixes of each other, or differ in one byte.
fn key_pool(random: &mut Prng, count: usize) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    while keys.len() < count {
        let length = match random.below(4) {
            0 => 8,
            1 => 1 + random.below(8) as usize,
            2 => 64,
            _ => 1 + random.below(64) as usize,
        };
        let mut key = vec![0; length];
        random.fill(&mut key);
        if let Some(other) = keys.last().filter(|_| random.chance(1, 3)).cloned() {
            key = other;
            match random.below(2) {
                0 => key.truncate(key.len() - 1),
                _ => {
                    let at = random.below(key.len() as u64) as usize;
                    key[at] ^= 1;
                }
            }
        }
        if !key.is_empty() && !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Random operations until `count` have been checked; the codes that occurred.
fn random_operations(model: Model, seed: u64, count: usize) -> Result<Vec<Code>, String> {
    let mut random = Prng::new(seed);
    let mut codes = Vec::new();
    while codes.len() < count {
        let keys = key_pool(&mut random, 24);
        let params = match random.below(3) {
            0 => MemoryParams::ideal(1 + random.below(40)),
            1 => MemoryParams::hostile(1, 1 + random.below(120), 0),
            _ => MemoryParams::hostile(1 + random.below(10), random.below(60), random.below(70)),
        };
        let buckets = 1 << random.below(6);
        let mut bench = Bench::new(model, params, buckets, keys, random.next_u64());
        bench.unit.set_in_flight_max(1 + random.below(64) as u8);
        let pauses = (random.below(60), random.below(60));
        let mut clock = 1;
        for _ in 0..10 {
            let ops: Vec<Op> = (0..1 + random.below(100) as u16)
                .map(|id| {
                    let kind = match random.below(10) {
                        0..=2 => OpKind::Insert,
                        3..=6 => OpKind::Search,
                        7..=8 => OpKind::Update,
                        _ => OpKind::Remove,
                    };
                    clock += random.below(3);
                    // Mostly in order, sometimes late.
                    let timestamp = clock - random.below(clock.min(24));
                    bench.op(
                        kind,
                        random.chance(1, 2),
                        random.below(24) as usize,
                        timestamp,
                        id,
                    )
                })
                .collect();
            codes.extend(bench.check(&ops, &mut random, pauses)?);
            bench.end_transactions(&mut random);
        }
    }
    Ok(codes)
}

fn random_count() -> usize {
    let set = std::env::var("WEFT_HARDWARE_OPS")
        .ok()
        .and_then(|word| word.parse().ok());
    set.unwrap_or(150_000)
}

#[test]
fn random_operations_equal_the_golden_model() {
    let codes = random_operations(Model::Whole, 1, random_count()).unwrap();
    // The stimulus reaches every way an operation of good input can end.
    for code in [
        Code::Done,
        Code::NotFound,
        Code::Duplicate,
        Code::Dirty,
        Code::TooLate,
    ] {
        let count = codes.iter().filter(|found| **found == code).count();
        assert!(
            count > codes.len() / 200,
            "{code:?} only {count} times of {}",
            codes.len()
        );
    }
}

#[test]
fn other_sizes_of_the_unit_equal_it_too() {
    random_operations(Model::OneTraverse, 2, 20_000).unwrap();
    random_operations(Model::SixteenSlots, 3, 20_000).unwrap();
}

#[test]
fn random_operations_find_each_missing_protection() {
    for model in [Model::Unlocked, Model::Unordered, Model::Unacknowledged] {
        let found = random_operations(model, 4, 20_000);
        assert!(found.is_err(), "{model:?} passed");
    }
}

/// One hazard many times over, each time on a new table with another order of the memory's answers.
fn directed(model: Model, ops: impl Fn(&mut Bench) -> Vec<Op>) -> Result<(), String> {
    for seed in 0..40 {
        let mut random = Prng::new(seed);
        let keys = vec![b"a key of the first kind".to_vec(), b"another".to_vec()];
        let mut bench = Bench::new(model, MemoryParams::hostile(2, 50, 0), 1, keys, seed);
        let before = vec![bench.op(OpKind::Insert, false, 1, 1, 0)];
        bench.check(&before, &mut random, (0, 0))?;
        for (addr, state) in bench.golden.end_transactions(|_| true) {
            bench.unit.memory.set_word(addr, state);
        }
        let ops = ops(&mut bench);
        bench.check(&ops, &mut random, (0, 0))?;
    }
    Ok(())
}

/// A hazard is harmless in the unit and is seen in each model that lacks what protects against it.
fn hazard(unprotected: &[Model], ops: impl Fn(&mut Bench) -> Vec<Op>) {
    directed(Model::Whole, &ops).unwrap();
    for model in unprotected {
        assert!(directed(*model, &ops).is_err(), "{model:?} passed");
    }
}

#[test]
fn insert_after_insert_loses_no_tuple() {
    hazard(&[Model::Unlocked, Model::Unacknowledged], |bench| {
        vec![
            bench.op(OpKind::Insert, false, 0, 5, 0),
            bench.op(OpKind::Insert, false, 1, 6, 1),
        ]
    });
}

#[test]
fn search_after_insert_finds_the_tuple() {
    // It is dirty, so the search is rejected; without protection it is not found.
    hazard(&[Model::Unlocked, Model::Unacknowledged], |bench| {
        vec![
            bench.op(OpKind::Insert, true, 0, 5, 0),
            bench.op(OpKind::Search, false, 0, 5, 1),
        ]
    });
}

#[test]
fn update_after_search_sees_the_read_timestamp() {
    hazard(&[Model::Unlocked, Model::Unacknowledged], |bench| {
        vec![
            bench.op(OpKind::Search, false, 1, 9, 0),
            bench.op(OpKind::Update, false, 1, 8, 1),
        ]
    });
}

#[test]
fn search_after_search_keeps_the_later_read_timestamp() {
    hazard(&[Model::Unlocked, Model::Unacknowledged], |bench| {
        vec![
            bench.op(OpKind::Search, false, 1, 9, 0),
            bench.op(OpKind::Search, false, 1, 4, 1),
        ]
    });
}

#[test]
fn search_after_update_is_rejected() {
    hazard(&[Model::Unlocked, Model::Unacknowledged], |bench| {
        vec![
            bench.op(OpKind::Update, false, 1, 9, 0),
            bench.op(OpKind::Search, false, 1, 10, 1),
        ]
    });
}

#[test]
fn operations_of_one_key_keep_their_order() {
    // The first key takes three words, so that the key of the second operation can arrive before it.
    hazard(&[Model::Unordered], |bench| {
        vec![
            bench.op(OpKind::Remove, false, 1, 9, 0),
            bench.op(OpKind::Search, false, 1, 10, 1),
        ]
    });
}

#[test]
fn bad_input_is_refused_and_the_unit_stays_usable() {
    let keys = vec![b"key".to_vec()];
    let mut bench = Bench::new(Model::Whole, MemoryParams::hostile(3, 20, 10), 4, keys, 5);
    let mut random = Prng::new(5);
    let good = bench.op(OpKind::Search, false, 0, 1, 0);
    let code = |bench: &mut Bench, op: Op| run(&mut bench.unit, &[op]).unwrap()[0].code;
    for key_bytes in [0, 65, 100, 127] {
        assert_eq!(code(&mut bench, Op { key_bytes, ..good }), Code::BadKey);
    }
    let beyond = WORDS as u32;
    assert_eq!(
        code(
            &mut bench,
            Op {
                key_addr: beyond,
                ..good
            }
        ),
        Code::BadMemory
    );
    assert_eq!(code(&mut bench, Op { base: beyond, ..good }), Code::BadMemory);
    let far = Op {
        kind: OpKind::Insert,
        base: BASE + 8,
        tuple_addr: beyond - 2,
        ..good
    };
    assert_eq!(code(&mut bench, far), Code::BadMemory);
    // A bucket whose tuple is outside the memory, and one whose tuples form a circle.
    bench.unit.memory.set_word(BASE + 16, u64::from(beyond));
    let corrupt = Op {
        base: BASE + 16,
        mask: 0,
        ..good
    };
    assert_eq!(code(&mut bench, corrupt), Code::BadMemory);
    bench.unit.memory.set_word(BASE + 17, 200);
    bench.unit.memory.set_word(200, 200);
    let circle = Op {
        base: BASE + 17,
        mask: 0,
        ..good
    };
    assert_eq!(code(&mut bench, circle), Code::LongChain);
    let ops = vec![
        bench.op(OpKind::Insert, true, 0, TIMESTAMP_MAX, 0),
        bench.op(OpKind::Insert, true, 0, TIMESTAMP_MAX, 1),
    ];
    assert_eq!(
        bench.check(&ops, &mut random, (0, 0)).unwrap(),
        [Code::Done, Code::Dirty]
    );
}

#[test]
fn a_bucket_has_at_most_255_tuples_before_the_key() {
    for (others, code) in [(254, Code::Done), (255, Code::LongChain)] {
        let keys: Vec<Vec<u8>> = (0..=others).map(|at: u32| at.to_le_bytes().to_vec()).collect();
        let mut bench = Bench::new(Model::Whole, MemoryParams::hostile(1, 9, 0), 1, keys, 9);
        let mut random = Prng::new(9);
        let ops: Vec<Op> = (0..=others)
            .map(|at| bench.op(OpKind::Insert, false, at as usize, 1, at as u16))
            .collect();
        bench.check(&ops, &mut random, (0, 0)).unwrap();
        bench
            .golden
            .end_transactions(|_| true)
            .into_iter()
            .for_each(|(addr, state)| {
                bench.unit.memory.set_word(addr, state);
            });
        // The first one inserted is the last of its bucket.
        let search = vec![bench.op(OpKind::Search, false, 0, 2, 0)];
        assert_eq!(bench.check(&search, &mut random, (0, 0)).unwrap(), [code]);
    }
}

#[test]
fn a_reset_loses_what_is_in_flight_and_not_the_unit() {
    let mut random = Prng::new(6);
    let keys = key_pool(&mut random, 24);
    let mut bench = Bench::new(Model::Whole, MemoryParams::hostile(5, 50, 20), 4, keys, 6);
    for round in 0..50 {
        for at in 0..random.below(120) {
            let op = bench.op(OpKind::Search, false, at as usize % 24, round + 1, 0);
            bench.unit.step(Some(&op), random.chance(1, 2)).unwrap();
        }
        bench.unit.reset();
        let ops: Vec<Op> = (0..24)
            .map(|at| bench.op(OpKind::Search, false, at, round + 1, at as u16))
            .collect();
        bench.check(&ops, &mut random, (20, 20)).unwrap();
    }
}

/// The cycles in which an operation's requests leave and its result comes, counted from the one in which it
/// is taken.
fn timing(kind: OpKind, latency: u64) -> Vec<u64> {
    let mut bench = Bench::new(
        Model::Whole,
        MemoryParams::ideal(latency),
        1,
        vec![b"key 0001".to_vec()],
        1,
    );
    let mut random = Prng::new(1);
    if kind != OpKind::Insert {
        let insert = vec![bench.op(OpKind::Insert, false, 0, 1, 0)];
        bench.check(&insert, &mut random, (0, 0)).unwrap();
        bench.end_transactions(&mut Prng::new(0));
        bench.unit.memory.set_word(TUPLES + 1, 1);
    }
    let op = bench.op(kind, false, 0, 2, 0);
    let mut times = Vec::new();
    let (mut taken_at, mut words) = (None, bench.unit.memory.words_moved());
    loop {
        let (taken, result) = bench.unit.step(taken_at.is_none().then_some(&op), true).unwrap();
        let now = bench.unit.cycle();
        let start = *taken_at.get_or_insert(if taken { now } else { u64::MAX });
        if bench.unit.memory.words_moved() > words {
            words = bench.unit.memory.words_moved();
            times.push(now - start);
        }
        if result.is_some() {
            times.push(now - start);
            return times;
        }
    }
}

#[test]
fn one_operation_alone_takes_the_cycles_of_its_page() {
    for latency in [10, 63] {
        let l = latency;
        let (bucket, tuple, read) = (l + 11, 2 * l + 16, 3 * l + 24);
        let search = [
            2,
            bucket,
            tuple,
            tuple + 1,
            tuple + 2,
            tuple + 3,
            read,
            4 * l + 27,
        ];
        assert_eq!(timing(OpKind::Search, l), search);
        let insert = [
            2,
            bucket,
            tuple,
            tuple + 1,
            tuple + 2,
            tuple + 3,
            tuple + 4,
            3 * l + 23,
        ];
        assert_eq!(timing(OpKind::Insert, l), insert);
    }
}

fn rate(preset: &str, kind: OpKind, in_flight: u8) -> weft_device::hash_index::throughput::Measured {
    let params = MemoryPreset::named(preset).unwrap().at_clock(125.0);
    let workload = Workload {
        tuples: 1 << 16,
        buckets: 1 << 18,
        key_bytes: 8,
        ops: 8_000,
        kind,
        in_flight,
    };
    let measured = measure(Model::Whole, params, &workload).unwrap();
    assert_eq!(measured.ops, workload.ops, "every operation is done");
    measured
}

#[test]
fn operations_reach_nine_tenths_of_their_bound() {
    for kind in [OpKind::Insert, OpKind::Search, OpKind::Update] {
        let measured = rate("hc2-ddr2", kind, 64);
        let share = measured.bound() / measured.cycles_per_op();
        assert!(share >= 0.9, "{kind:?}: {share:.3} of the bound, {measured:?}");
    }
}

#[test]
fn rates_on_the_documents_memory_are_at_least_its_own() {
    assert!(rate("hc2-ddr2", OpKind::Insert, 64).per_second(125.0) >= 8.5e6);
    assert!(rate("hc2-ddr2", OpKind::Search, 64).per_second(125.0) >= 7.0e6);
    // Not saturated before 12 operations are in flight.
    let (at_8, at_16) = (
        rate("hc2-ddr2", OpKind::Search, 8),
        rate("hc2-ddr2", OpKind::Search, 16),
    );
    assert!(at_16.cycles_per_op() < 0.6 * at_8.cycles_per_op());
}
