//! The `model` unit: X-DB's compaction unit in software, simulated cycle by cycle.
//!
//! ```text
//!            decoder 0 --> KV ring 0 --+                                     +--> memory
//!  memory -->   ...           ...      +--> KV transfer --> encoding ring --> encoder
//!            decoder n --> KV ring n --+      |  ^
//!                                     key buffer |
//!                                             v  |
//!                                      compaction PE <--> controller
//! ```
//!
//! Every box is a state machine of its own, stepped by one clock; a module that is ahead waits for the flags
//! of the ring behind it. The unit merges by what its modules do: it never calls `weft_ops::merge::merge`,
//! nor the golden readers and builders of entries, so that equal output is meaningful. From `weft_ops` it
//! uses the task's codec, the check of a block's header, checksum and hash.
//!
//! Cycles follow from [`ModelParams`] alone. They are *simulated*: time on hardware would be cycles divided
//! by a clock rate that no place and route has confirmed, and the processor time of the simulation means
//! nothing.
//!
//! It accepts merges of at most as many runs as it has decoders, of keys and values within its limits, blocks
//! without compression or with LZ4, at most 64 snapshots and 16 range tombstones; and filters that fit its
//! on-chip memory (`filter.rs`).
//!
//! Source: X-DB, "Detailed Design", "FPGA-based Compaction".

mod compare;
mod controller;
mod decoder;
mod encoder;
mod filter;
mod memory;
mod ring;
#[cfg(test)]
mod tests;
mod transfer;

use std::ops::ControlFlow;

use bytes::Bytes;
use weft_ops::block::Compression;
use weft_ops::merge::{MergeOutput, MergeTask};

use crate::job::Limits;
use crate::kinds::{BuildFilter, FilterTask, KEY_BYTES, Merge, VALUE_BYTES, WAYS, ZSTD};
use crate::operation::{Boundary, JobKind};
use crate::unit::{Accepts, Between, Engine, Outcome, UnitSpec, Work};
use crate::wire::ReturnCode;
use compare::ComparePe;
use controller::{Controller, RANGE_TOMBSTONES_MAX, SNAPSHOTS_MAX, Wires};
use decoder::Decoder;
use encoder::Encoder;
pub use filter::{FilterCycles, simulate_filter};
use memory::Memory;
use ring::{PAIR_HEAD_BYTES, Ring};
use transfer::{KeyBuffer, KvTransfer};

/// What a compaction unit is made of. Widths are bytes a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelParams {
    /// Decoders, and so the runs that it merges at a time. X-DB compares two and four.
    pub decoders: usize,
    /// Longest key, in bytes.
    pub key_bytes_max: u32,
    /// Longest value, in bytes.
    pub value_bytes_max: u32,
    /// Size of each KV ring buffer, in bytes; at least twice the longest pair.
    pub ring_bytes: u32,
    /// Encoded bytes that a decoder reads.
    pub decode_bytes: u32,
    /// Bytes that each of the two channels of the KV transfer moves.
    pub transfer_bytes: u32,
    /// Bytes that a comparator compares.
    pub compare_bytes: u32,
    /// Bytes that the encoder writes.
    pub encode_bytes: u32,
    /// Bytes that come out of LZ4 decompression; one core for each decoder.
    pub unpack_bytes: u32,
    /// Bytes that go into LZ4 compression.
    pub pack_bytes: u32,
    /// Cycles for a word between controller and another module.
    pub handshake_cycles: u32,
    /// Cycles from a request to the memory until its first byte.
    pub memory_latency_cycles: u32,
    /// Bytes that the memory port moves, both directions together.
    pub memory_bytes: u32,
    /// Memory for a task and its result, in bytes.
    pub memory_bytes_max: u64,
    /// Memory on the chip for the lines of a filter, in bytes.
    pub filter_bytes_max: u32,
    /// Clock rate for turning cycles into time, in MHz. An assumption.
    pub clock_mhz: u32,
}

impl Default for ModelParams {
    /// Four decoders, [`ModelParams::of_width`] 8.
    fn default() -> Self {
        ModelParams::of_width(8)
    }
}

impl ModelParams {
    /// Four decoders; decoders, encoder and LZ4 cores of this width, transfer and comparators of twice the
    /// width; a 64-byte memory port with 60 cycles of latency; 200 MHz. The document states none of these.
    #[must_use]
    pub const fn of_width(bytes_per_cycle: u32) -> ModelParams {
        ModelParams {
            decoders: 4,
            key_bytes_max: 512,
            value_bytes_max: 4096,
            ring_bytes: 16 << 10,
            decode_bytes: bytes_per_cycle,
            transfer_bytes: 2 * bytes_per_cycle,
            compare_bytes: 2 * bytes_per_cycle,
            encode_bytes: bytes_per_cycle,
            unpack_bytes: bytes_per_cycle,
            pack_bytes: bytes_per_cycle,
            handshake_cycles: 2,
            memory_latency_cycles: 60,
            memory_bytes: 64,
            memory_bytes_max: 256 << 20,
            filter_bytes_max: 4 << 20,
            clock_mhz: 200,
        }
    }

    /// Whether such a unit can work.
    ///
    /// # Errors
    /// What is wrong, as a phrase.
    pub fn check(&self) -> Result<(), &'static str> {
        let widths = [
            self.decode_bytes,
            self.transfer_bytes,
            self.compare_bytes,
            self.encode_bytes,
            self.unpack_bytes,
            self.pack_bytes,
            self.memory_bytes,
            self.clock_mhz,
        ];
        let pair = u64::from(self.key_bytes_max) + u64::from(self.value_bytes_max) + PAIR_HEAD_BYTES as u64;
        if !(1..=16).contains(&self.decoders) {
            Err("a unit has 1 to 16 decoders")
        } else if widths.contains(&0) {
            Err("a width or the clock rate is 0")
        } else if 2 * pair > u64::from(self.ring_bytes) {
            Err("the longest pair is more than half of a ring")
        } else {
            Ok(())
        }
    }

    /// What a unit with these parameters accepts. `depth` jobs may lie in its memory at a time.
    #[must_use]
    pub fn spec(&self, name: impl Into<String>, depth: usize) -> UnitSpec {
        let limits = Limits::of_memory(self.memory_bytes_max)
            .with(KEY_BYTES, u64::from(self.key_bytes_max))
            .with(VALUE_BYTES, u64::from(self.value_bytes_max))
            .with(WAYS, self.decoders as u64)
            .with(ZSTD, 0);
        UnitSpec {
            name: name.into(),
            accepts: Accepts::Kinds(vec![
                (JobKind::of::<Merge>(), limits.clone()),
                (JobKind::of::<BuildFilter>(), limits),
            ]),
            depth,
            urgent_depth: 0,
            buffer_bytes_max: 0,
            link: None,
            in_process: false,
        }
    }
}

/// Where the simulated cycles of a task went. Modules work side by side: the parts do not add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ModelCycles {
    /// From the first request to the memory until the last byte of the result is there.
    pub total: u64,
    /// Cycles of all decoders together in which a ring was more than half full.
    pub decoders_stalled: u64,
    /// Cycles in which the controller waited for a key.
    pub waiting_for_keys: u64,
    /// Cycles in which a chosen pair waited for the encoder's side.
    pub waiting_for_encoder: u64,
    /// Cycles in which the PE compared.
    pub comparing: u64,
    /// Cycles in which the encoder had a pair or a block in hand.
    pub encoding: u64,
    /// Cycles in which the memory port moved bytes.
    pub memory: u64,
}

/// Why a unit did not merge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The task or a block in it makes no sense.
    Invalid(String),
    /// A key, a value, a compression or a number of things is beyond what the unit is built for.
    BeyondLimits,
    /// The unit itself went wrong: a defect of the model.
    Broken(&'static str),
}

/// Cycles for so many bytes at such a width.
fn cycles_for(bytes: usize, width: u32) -> u64 {
    (bytes as u64).div_ceil(u64::from(width.max(1)))
}

/// One compaction unit at work on one task.
struct CompactionUnit {
    memory: Memory,
    decoders: Vec<Decoder>,
    rings: Vec<Ring>,
    keys: KeyBuffer,
    transfer: KvTransfer,
    pe: ComparePe,
    controller: Controller,
    encoding: Ring,
    encoder: Encoder,
}

impl CompactionUnit {
    fn new(params: ModelParams, task: &MergeTask) -> CompactionUnit {
        let ways = task.runs.len();
        let decoders = task.runs.iter().enumerate().map(|(number, run)| {
            Decoder::new(
                number,
                params,
                &run.blocks,
                task.lower.clone(),
                task.upper.clone(),
            )
        });
        CompactionUnit {
            memory: Memory::new(ways + 1, params.memory_latency_cycles, params.memory_bytes),
            decoders: decoders.collect(),
            rings: (0..ways).map(|_| Ring::new(params.ring_bytes)).collect(),
            keys: KeyBuffer {
                slots: vec![None; ways],
            },
            transfer: KvTransfer::new(params.transfer_bytes),
            pe: ComparePe::new(params.compare_bytes),
            controller: Controller::new(params, task),
            encoding: Ring::new(params.ring_bytes),
            encoder: Encoder::new(params, task, ways),
        }
    }

    /// One clock. Modules downstream go first, so that what is handed on is seen a cycle later.
    fn step(&mut self, now: u64) -> Result<(), Stop> {
        self.memory.step(now);
        self.encoder.step(&mut self.encoding, &mut self.memory, now)?;
        let ended: Vec<bool> = self.decoders.iter().map(Decoder::has_ended).collect();
        self.controller.step(&mut Wires {
            rings: &mut self.rings,
            keys: &mut self.keys,
            transfer: &mut self.transfer,
            pe: &mut self.pe,
            encoding: &self.encoding,
            ended: &ended,
        })?;
        self.encoder.last = self.controller.is_draining();
        self.transfer
            .step(&self.rings, &mut self.keys, &mut self.encoding)?;
        for (decoder, ring) in self.decoders.iter_mut().zip(&mut self.rings) {
            decoder.step(ring, &mut self.memory, now)?;
        }
        Ok(())
    }

    /// `None` if `boundary` breaks.
    fn run(
        mut self,
        cycles_max: u64,
        boundary: Boundary<'_>,
    ) -> Result<Option<(MergeOutput, ModelCycles)>, Stop> {
        let mut now = 0;
        while !self.encoder.has_ended(&self.encoding, &self.memory) {
            if now == cycles_max {
                return Err(Stop::Broken("the unit stands still"));
            }
            if now % SLICE_CYCLES == 0 && boundary().is_break() {
                return Ok(None);
            }
            self.step(now)?;
            now += 1;
        }
        let cycles = ModelCycles {
            total: now,
            decoders_stalled: self.decoders.iter().map(|decoder| decoder.stall_cycles).sum(),
            waiting_for_keys: self.controller.key_wait_cycles,
            waiting_for_encoder: self.controller.output_wait_cycles,
            comparing: self.pe.busy_cycles,
            encoding: self.encoder.busy_cycles,
            memory: self.memory.busy_cycles,
        };
        let mut output = self.encoder.output;
        output.entries_in = self.controller.entries_in;
        output.dropped = self.controller.dropped;
        Ok(Some((output, cycles)))
    }
}

/// Cycles that are simulated before the simulation looks whether its result is still needed. The unit itself
/// finishes what it has begun.
const SLICE_CYCLES: u64 = 4096;

/// Merges as the unit would; also where its cycles went.
///
/// # Errors
/// Why the unit does not merge it.
pub fn simulate(params: ModelParams, task: &MergeTask) -> Result<(MergeOutput, ModelCycles), Stop> {
    let simulated = simulate_in_slices(params, task, &mut || ControlFlow::Continue(()))?;
    simulated.ok_or(Stop::Broken("given up without being told"))
}

/// The same, `None` if `boundary` breaks.
fn simulate_in_slices(
    params: ModelParams,
    task: &MergeTask,
    boundary: Boundary<'_>,
) -> Result<Option<(MergeOutput, ModelCycles)>, Stop> {
    if let Err(why) = params.check() {
        return Err(Stop::Broken(why));
    }
    if !task.snapshots.is_sorted_by(|a, b| a < b) {
        return Err(Stop::Invalid("the snapshots do not ascend".to_owned()));
    }
    if task.runs.len() > params.decoders
        || task.snapshots.len() > SNAPSHOTS_MAX
        || task.range_tombstones.len() > RANGE_TOMBSTONES_MAX
        || task.output.compression == Compression::Zstd
    {
        return Err(Stop::BeyondLimits);
    }
    // No module takes so long for what it is given: beyond it something is stuck.
    let blocks: u64 = task.runs.iter().map(|run| run.blocks.len() as u64).sum();
    let latency = 2 * u64::from(params.memory_latency_cycles) + 64;
    let bytes = task.block_bytes() + 64;
    let cycles_max = (blocks + 4) * latency + bytes * (4096 + u64::from(params.handshake_cycles));
    CompactionUnit::new(params, task).run(cycles_max, boundary)
}

/// The unit as an engine: give it to a [`crate::unit::PoolUnit`] with one thread, or to a
/// [`crate::unit::InlineUnit`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelEngine {
    /// What the unit is made of.
    pub params: ModelParams,
}

impl ModelEngine {
    /// `None` if `boundary` breaks.
    fn outcome(&self, kind: JobKind, payload: &Bytes, boundary: Boundary<'_>) -> Option<Outcome> {
        let result = if kind == JobKind::of::<Merge>() {
            MergeTask::decode(payload)
                .map_err(|error| Stop::Invalid(error.to_string()))
                .and_then(|task| simulate_in_slices(self.params, &task, boundary))
                .map(|merged| merged.map(|(output, cycles)| (output.encode(), cycles.total)))
        } else if kind == JobKind::of::<BuildFilter>() {
            FilterTask::decode(payload)
                .map_err(|error| Stop::Invalid(error.to_string()))
                .and_then(|task| simulate_filter(self.params, &task.hashes, task.bits_per_key))
                .map(|(output, cycles)| Some((output, cycles.total)))
        } else {
            Err(Stop::Invalid("another kind of operation".to_owned()))
        };
        let (code, output, cycles) = match result {
            Ok(done) => {
                let (output, cycles) = done?;
                (ReturnCode::Done, output, cycles)
            }
            Err(Stop::Invalid(why)) => (ReturnCode::Invalid, why.into_bytes(), 0),
            Err(Stop::BeyondLimits) => (ReturnCode::BeyondLimits, Vec::new(), 0),
            Err(Stop::Broken(why)) => (ReturnCode::Broken, why.as_bytes().to_vec(), 0),
        };
        Some(Outcome {
            code,
            output: output.into(),
            cycles,
        })
    }
}

impl Engine for ModelEngine {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        let outcome = self.outcome(kind, payload, &mut || ControlFlow::Continue(()));
        outcome.unwrap_or_else(Outcome::given_up)
    }

    fn run_in_slices(&mut self, kind: JobKind, work: Work<'_>, between: Between<'_>) -> Option<Outcome> {
        match work {
            Work::Task(task) => Some(self.run_task(kind, task)),
            Work::Payload(payload, []) => {
                let mut engine = *self;
                self.outcome(kind, payload, &mut || between(&mut engine))
            }
            Work::Payload(payload, buffers) => Some(self.run_over(kind, payload, buffers)),
        }
    }
}
