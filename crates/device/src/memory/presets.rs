//! Memories that exist, as far as a unit sees them.
//!
//! Latencies are those of an idle memory, from the unit's request to the answer, controller included. What a
//! source does not say is an assumption and is named as one.

use super::{CHANNEL_UNITS, MemoryParams};

/// A memory in units of time; [`MemoryPreset::at_clock`] makes cycles of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryPreset {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// From the request to the answer.
    pub latency_ns: f64,
    /// What the channel moves.
    pub bytes_per_ns: f64,
    /// Banks of all channels.
    pub banks: usize,
    /// Between two accesses of one bank.
    pub bank_ns: f64,
    /// Bytes that are moved at once.
    pub granule_bytes: u64,
    /// Requests without answer.
    pub outstanding_max: usize,
    /// Where the numbers are from.
    pub source: &'static str,
}

/// The memories that experiments name.
pub const PRESETS: [MemoryPreset; 4] = [
    MemoryPreset {
        name: "hc2-ddr2",
        latency_ns: 500.0,
        bytes_per_ns: 10.0,
        banks: 64,
        bank_ns: 55.0,
        granule_bytes: 8,
        outstanding_max: 512,
        source: "BionicDB 4.1: 8 scatter-gather DIMMs, random accesses of 8 bytes, 10 GB/s for one FPGA; \
                 tRC of DDR2-667. Latency assumed: 14 searches in flight at 7 M/s (5.5) are 2 us each, for three \
                 dependent accesses and a write",
    },
    MemoryPreset {
        name: "ddr3-1600",
        latency_ns: 110.0,
        bytes_per_ns: 12.8,
        banks: 8,
        bank_ns: 48.75,
        granule_bytes: 64,
        outstanding_max: 64,
        source: "JEDEC DDR3-1600, one channel of 64 bits, one rank. Latency assumed, as DDR4's",
    },
    MemoryPreset {
        name: "ddr4-2400",
        latency_ns: 107.0,
        bytes_per_ns: 19.2,
        banks: 16,
        bank_ns: 45.3,
        granule_bytes: 64,
        outstanding_max: 64,
        source: "JEDEC DDR4-2400, one channel of 64 bits, one rank. Latency: a row miss on a U280, about \
                 (Shuhai, FCCM 2020)",
    },
    MemoryPreset {
        name: "hbm2",
        latency_ns: 138.0,
        bytes_per_ns: 14.4,
        banks: 16,
        bank_ns: 47.0,
        granule_bytes: 32,
        outstanding_max: 64,
        source: "One of 32 pseudo-channels of a U280's HBM2 (14.4 GB/s). Latency: a row miss, about (Shuhai, \
                 FCCM 2020)",
    },
];

impl MemoryPreset {
    /// The preset with a name.
    pub fn named(name: &str) -> Option<&'static MemoryPreset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// What a unit at this clock sees.
    pub fn at_clock(&self, clock_mhz: f64) -> MemoryParams {
        let cycles = |ns: f64| (ns * clock_mhz / 1000.0).ceil() as u64;
        let granule_ns = self.granule_bytes as f64 / self.bytes_per_ns;
        let granule_cost = granule_ns * clock_mhz / 1000.0 * CHANNEL_UNITS as f64;
        MemoryParams {
            latency_cycles: cycles(self.latency_ns),
            jitter_cycles: 0,
            banks: self.banks,
            bank_cycles: cycles(self.bank_ns),
            granule_words: self.granule_bytes / 8,
            granule_cost: (granule_cost as u64).max(1),
            outstanding_max: self.outstanding_max,
            refusals_percent: 0,
        }
    }
}
