//! The filter builder: X-DB's next step, beside the merge in the same unit.
//!
//! ```text
//!  memory --> hashes (two halves of a buffer) --> place --> read line --> set bits, write line
//!                                                            |  ^              |
//!                                                            v  |              v
//!                                                    lines, in memory on the chip --> memory
//!
//! clearing --> building --> writing --> ended
//! ```
//!
//! The lines lie on the chip, 64 bytes wide, one read and one write a cycle; a filter that is larger is
//! beyond the unit. A hash whose line is still on its way through the pipeline waits for it. While lines
//! are cleared the first hashes are fetched.
//!
//! Built from the page (`weft_ops::filter`, the format), not by the golden model's builder.
//!
//! Source: X-DB, "Conclusion" (filters built by units); the pipeline is this project's.

use weft_ops::crc32c;
use weft_ops::filter::FILTER_HEADER_BYTES;

use super::memory::Memory;
use super::{ModelParams, Stop};

const LINE_BYTES: usize = 64;
const LINE_BITS: u64 = 8 * LINE_BYTES as u64;
const PROBES: u8 = 6;
/// Hashes of half of the buffer.
const HALF: usize = 512;
/// Cycles from the read of a line to its write.
const PIPELINE: usize = 2;

const READER: usize = 0;
const WRITER: usize = 1;

enum State {
    Clearing { left: u64 },
    Building,
    Writing,
    Ended,
}

struct FilterUnit<'a> {
    state: State,
    memory: Memory,
    hashes: &'a [u64],
    /// Hashes that were asked for, those that are there, and those that went into the pipeline.
    asked: usize,
    there: usize,
    taken: usize,
    /// Lines on their way through the pipeline, youngest first.
    pipeline: [Option<usize>; PIPELINE],
    lines: Vec<[u8; LINE_BYTES]>,
    /// Cycles in which a hash waited for its line.
    stall_cycles: u64,
}

impl<'a> FilterUnit<'a> {
    fn new(params: ModelParams, hashes: &'a [u64], line_count: usize) -> FilterUnit<'a> {
        FilterUnit {
            state: State::Clearing {
                left: line_count as u64,
            },
            memory: Memory::new(2, params.memory_latency_cycles, params.memory_bytes),
            hashes,
            asked: 0,
            there: 0,
            taken: 0,
            pipeline: [None; PIPELINE],
            lines: vec![[0; LINE_BYTES]; line_count],
            stall_cycles: 0,
        }
    }

    /// Fetches the next half of the buffer when one is free.
    fn read(&mut self, now: u64) {
        if !self.memory.is_done(READER) {
            return;
        }
        self.there = self.asked;
        let left = self.hashes.len() - self.asked;
        if left > 0 && self.asked - self.taken <= HALF {
            let count = left.min(HALF);
            self.memory.request(READER, 8 * count, now);
            self.asked += count;
        }
    }

    /// One hash into the pipeline, if it is there and its line is not on its way.
    fn place(&mut self) -> Option<usize> {
        if self.taken == self.there {
            return None;
        }
        let hash = *self.hashes.get(self.taken)?;
        let line = usize::try_from(((hash >> 32) * self.lines.len() as u64) >> 32).ok()?;
        if self.pipeline.contains(&Some(line)) {
            self.stall_cycles += 1;
            return None;
        }
        self.taken += 1;
        let lanes = self.lines.get_mut(line)?;
        let mut chain = hash as u32;
        for _ in 0..PROBES {
            let bit = (chain >> 23) as usize;
            if let Some(byte) = lanes.get_mut(bit / 8) {
                *byte |= 1 << (bit % 8);
            }
            chain = chain.wrapping_mul(0x9e37_79b9).wrapping_add(0x85eb_ca6b);
        }
        Some(line)
    }

    fn step(&mut self, now: u64) {
        self.memory.step(now);
        self.read(now);
        match &mut self.state {
            State::Clearing { left } if *left > 1 => *left -= 1,
            State::Clearing { .. } => self.state = State::Building,
            State::Building => {
                let [young, _] = self.pipeline;
                self.pipeline = [self.place(), young];
                if self.taken == self.hashes.len() && self.pipeline == [None; PIPELINE] {
                    let bytes = FILTER_HEADER_BYTES + LINE_BYTES * self.lines.len();
                    self.memory.request(WRITER, bytes, now);
                    self.state = State::Writing;
                }
            }
            State::Writing if self.memory.is_done(WRITER) => self.state = State::Ended,
            State::Writing | State::Ended => {}
        }
    }

    /// What is written: the checksum is taken from the lines as they pass.
    fn stored(&self) -> Result<Vec<u8>, Stop> {
        let line_count = u32::try_from(self.lines.len()).map_err(|_| Stop::BeyondLimits)?;
        let mut body = vec![1, PROBES, 0, 0];
        body.extend_from_slice(&line_count.to_le_bytes());
        body.extend(self.lines.iter().flatten());
        let mut stored = crc32c(&body).to_le_bytes().to_vec();
        stored.append(&mut body);
        Ok(stored)
    }
}

/// Where the simulated cycles of a filter went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FilterCycles {
    /// From the first request to the memory until the last byte of the filter is there.
    pub total: u64,
    /// Cycles in which a hash waited for its line.
    pub stalled: u64,
    /// Cycles in which the memory port moved bytes.
    pub memory: u64,
}

/// Builds a filter as the unit would; also where its cycles went.
///
/// # Errors
/// Why the unit does not build it.
pub fn simulate_filter(
    params: ModelParams,
    hashes: &[u64],
    bits_per_key: u32,
) -> Result<(Vec<u8>, FilterCycles), Stop> {
    params.check().map_err(Stop::Broken)?;
    let bits = (hashes.len() as u64).saturating_mul(u64::from(bits_per_key));
    let line_count = bits.div_ceil(LINE_BITS).max(1);
    if line_count * LINE_BYTES as u64 > u64::from(params.filter_bytes_max) {
        return Err(Stop::BeyondLimits);
    }
    let line_count = usize::try_from(line_count).map_err(|_| Stop::BeyondLimits)?;
    let mut unit = FilterUnit::new(params, hashes, line_count);
    let latency = u64::from(params.memory_latency_cycles) + 64;
    let parts = (hashes.len() / HALF) as u64 + 4;
    let cycles_max = parts * latency + 64 * (hashes.len() + 4 * line_count) as u64 + 1024;
    let mut now = 0;
    while !matches!(unit.state, State::Ended) {
        if now == cycles_max {
            return Err(Stop::Broken("the filter builder stands still"));
        }
        unit.step(now);
        now += 1;
    }
    let cycles = FilterCycles {
        total: now,
        stalled: unit.stall_cycles,
        memory: unit.memory.busy_cycles,
    };
    Ok((unit.stored()?, cycles))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_ops::filter::build_filter;
    use weft_ops::mix64;

    use super::*;

    proptest! {
        /// Whatever the widths and latencies are, the bytes are those of the golden model.
        #[test]
        fn the_filter_is_the_golden_models_byte_for_byte(
            hashes in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..4], 0..1500),
            bits_per_key in 0_u32..30,
            latency in 0_u32..200,
            width in 1_u32..100,
        ) {
            let params = ModelParams {
                memory_latency_cycles: latency,
                memory_bytes: width,
                ..ModelParams::default()
            };
            let (stored, cycles) = simulate_filter(params, &hashes, bits_per_key).unwrap();
            prop_assert_eq!(stored, build_filter(&hashes, bits_per_key));
            prop_assert!(cycles.total > cycles.memory.max(hashes.len() as u64));
        }
    }

    #[test]
    fn a_hash_takes_a_cycle_unless_the_memory_is_narrow() {
        let hashes: Vec<u64> = (0..100_000).map(mix64).collect();
        let total = |change: fn(&mut ModelParams)| {
            let mut params = ModelParams::default();
            change(&mut params);
            simulate_filter(params, &hashes, 10).unwrap().1
        };
        let base = total(|_| ());
        assert!((100_000..110_000).contains(&base.total), "{base:?}");
        assert!(total(|params| params.memory_bytes = 4).total > 200_000);
        let one_line: Vec<u64> = vec![7; 1000];
        let (_, cycles) = simulate_filter(ModelParams::default(), &one_line, 10).unwrap();
        assert!(cycles.stalled > 1500, "each waits for the one before: {cycles:?}");
    }

    #[test]
    fn a_filter_beyond_the_memory_on_the_chip_is_refused() {
        let params = ModelParams {
            filter_bytes_max: 128,
            ..ModelParams::default()
        };
        assert!(simulate_filter(params, &[1; 102], 10).is_ok());
        let larger = simulate_filter(params, &[1; 103], 10);
        assert_eq!(larger.map(|_| ()), Err(Stop::BeyondLimits));
    }
}
