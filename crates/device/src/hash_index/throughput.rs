//! Cycles an operation: a table is loaded, then operations on it are issued as fast as the unit takes them.
//!
//! The bound beside each measurement is the tighter one of two. The port moves one word a cycle, so an
//! operation takes at least as many cycles as it moves words. Each stage has one operation at a time for a
//! known number of cycles, so an operation takes at least as many as the slowest stage. The channel of the
//! memory is a third bound where it is narrower than the port.
//!
//! Source: BionicDB 5.5, figure 10a.

use weft_base::random::Prng;

use super::{HashIndexUnit, Model, Op, OpKind, OpResult, Stalls, UnitError, key_words, put_key};
use crate::memory::{Memory, MemoryParams};

/// Most cycles without a result.
const PATIENCE_CYCLES: u64 = 100_000;
/// First bucket.
const BASE: u32 = 64;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Tuples that are there before; a power of two.
    pub tuples: u32,
    /// Buckets; a power of two. Fewer than tuples make chains.
    pub buckets: u32,
    /// Bytes of each key: 8 and more.
    pub key_bytes: usize,
    /// Operations that are measured.
    pub ops: u32,
    /// Which.
    pub kind: OpKind,
    /// Operations in flight.
    pub in_flight: u8,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Operations that were done.
    pub ops: u32,
    /// From the first operation's issue to the last result.
    pub cycles: u64,
    /// Words moved.
    pub words: u64,
    /// What waited.
    pub stalls: Stalls,
    /// Cycles an operation that the slowest stage needs.
    pub stage_cycles: f64,
}

impl Measured {
    /// Cycles an operation.
    pub fn cycles_per_op(&self) -> f64 {
        self.cycles as f64 / f64::from(self.ops)
    }

    /// Words an operation, and so cycles that the port needs for it.
    pub fn words_per_op(&self) -> f64 {
        self.words as f64 / f64::from(self.ops)
    }

    /// The fewest cycles an operation can take: the port's or those of the slowest stage.
    pub fn bound(&self) -> f64 {
        self.words_per_op().max(self.stage_cycles)
    }

    /// Operations a second at a clock.
    pub fn per_second(&self, clock_mhz: f64) -> f64 {
        clock_mhz * 1e6 / self.cycles_per_op()
    }
}

/// Where a workload's parts lie.
struct Layout {
    keys: u32,
    tuples: u32,
    key_words: u32,
    tuple_words: u32,
    words: usize,
}

impl Layout {
    fn of(workload: &Workload) -> Layout {
        let key_words = key_words(workload.key_bytes);
        let tuple_words = super::TUPLE_HEADER_WORDS + key_words;
        let inserted = workload.tuples + workload.ops;
        let keys = BASE + workload.buckets;
        let tuples = keys + inserted * key_words;
        Layout {
            keys,
            tuples,
            key_words,
            tuple_words,
            words: (tuples + inserted * tuple_words) as usize,
        }
    }
}

/// The key of a number: different for different numbers, in no order.
fn key(number: u32, bytes: usize) -> Vec<u8> {
    let mut key = vec![0; bytes];
    let mixed = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = (mixed.rotate_left(at as u32 * 8) & 0xFF) as u8;
    }
    key
}

/// Issues operations as fast as they are taken, and takes every result at once.
pub fn run(unit: &mut HashIndexUnit, ops: &[Op]) -> Result<Vec<OpResult>, UnitError> {
    let mut results = Vec::with_capacity(ops.len());
    let mut next = 0;
    let mut last = unit.cycle();
    while results.len() < ops.len() {
        let (taken, result) = unit.step(ops.get(next), true)?;
        next += usize::from(taken);
        if let Some(result) = result {
            results.push(result);
            last = unit.cycle();
        } else if unit.cycle() - last > PATIENCE_CYCLES {
            return Err(UnitError::Stuck(unit.cycle()));
        }
    }
    Ok(results)
}

/// Loads the table by INSERTs that the host then commits, and measures. Every operation must be done.
pub fn measure(model: Model, params: MemoryParams, workload: &Workload) -> Result<Measured, UnitError> {
    let layout = Layout::of(workload);
    let mut memory = Memory::new(layout.words, params, 1);
    for number in 0..workload.tuples + workload.ops {
        let at = layout.keys + number * layout.key_words;
        put_key(&mut memory, at, &key(number, workload.key_bytes));
    }
    let mut unit = HashIndexUnit::new(model, memory, 1);
    let op = |kind, number: u32, timestamp| Op {
        kind,
        unique: false,
        base: BASE,
        mask: workload.buckets - 1,
        key_addr: layout.keys + number * layout.key_words,
        key_bytes: workload.key_bytes as u8,
        tuple_addr: layout.tuples + number * layout.tuple_words,
        timestamp,
        id: number as u16,
    };
    let load: Vec<Op> = (0..workload.tuples)
        .map(|number| op(OpKind::Insert, number, 1))
        .collect();
    run(&mut unit, &load)?;
    for number in 0..workload.tuples {
        let at = layout.tuples + number * layout.tuple_words;
        unit.memory.set_word(at + 1, 1);
    }
    let mut random = Prng::new(2);
    let ops: Vec<Op> = (0..workload.ops)
        .map(|at| match workload.kind {
            OpKind::Insert => op(OpKind::Insert, workload.tuples + at, 2),
            // A tuple that has been updated is dirty: each is taken once.
            OpKind::Update | OpKind::Remove => op(workload.kind, at % workload.tuples, 2),
            OpKind::Search => {
                let number = random.below(u64::from(workload.tuples)) as u32;
                // Increasing timestamps, so that every search writes the read timestamp.
                op(OpKind::Search, number, u64::from(at) + 2)
            }
        })
        .collect();
    unit.set_in_flight_max(workload.in_flight);
    let (cycle, words, stalls) = (unit.cycle(), unit.memory.words_moved(), unit.stalls());
    let results = run(&mut unit, &ops)?;
    let done = results
        .iter()
        .filter(|result| result.code == super::Code::Done)
        .count();
    let later = unit.stalls();
    Ok(Measured {
        ops: done as u32,
        cycles: unit.cycle() - cycle,
        words: unit.memory.words_moved() - words,
        stalls: Stalls {
            line_cycles: later.line_cycles - stalls.line_cycles,
            slot_cycles: later.slot_cycles - stalls.slot_cycles,
            port_cycles: later.port_cycles - stalls.port_cycles,
        },
        stage_cycles: stage_cycles(workload),
    })
}

/// Cycles an operation of the slowest stage: hashing two bytes a cycle, or reading the first tuple, or
/// installing. Traverse is left out, which several stages share.
fn stage_cycles(workload: &Workload) -> f64 {
    let key_words = f64::from(key_words(workload.key_bytes));
    let hash = workload.key_bytes.div_ceil(2) as f64;
    let tuple = f64::from(super::TUPLE_HEADER_WORDS) + key_words;
    match workload.kind {
        OpKind::Insert => hash.max(tuple + 1.0),
        _ => hash.max(tuple),
    }
}
