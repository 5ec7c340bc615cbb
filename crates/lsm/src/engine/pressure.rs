//! Back-pressure: writers are slowed in proportion to the backlog behind them.
//!
//! Pressure is a number from 0 (no backlog) to 1 (as much as allowed): the greatest of three parts,
//!
//! ```text
//! memtables  frozen ones beyond the first, relative to the allowed number
//! level 0    tables beyond twice the number that triggers a compaction, relative to eight times that number
//! debt       bytes that should be in deeper levels, from the soft limit to the hard one
//! ```
//!
//! A writer pays `d * p / (1 - p)` nanoseconds for each byte, where `d` is the recent cost of flushing and
//! compacting a byte. At half pressure writers are as fast as flush and compaction; below they are faster,
//! above slower, without steps and without a stall. Small debts are accumulated until a sleep is worthwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weft_base::blocking;

use super::Engine;
use crate::compaction::debt_bytes;
use crate::options::Background;

/// A shorter sleep is deferred.
const SLEEP_NANOS_MIN: u64 = 200_000;
/// No single write waits longer.
const SLEEP_NANOS_MAX: u64 = 100_000_000;
const ONE: f64 = 1_000_000.0;

#[derive(Default)]
pub(super) struct Pressure {
    /// In millionths.
    pressure: AtomicU64,
    /// Cost of a drained byte, in thousandths of a nanosecond, smoothed.
    drain_cost: AtomicU64,
    /// Nanoseconds that writers still have to sleep.
    owed: AtomicU64,
    /// Nanoseconds that writers have slept.
    pub slept_nanos: AtomicU64,
}

impl Pressure {
    /// From 0 to 1.
    pub(super) fn value(&self) -> f64 {
        self.pressure.load(Ordering::Relaxed) as f64 / ONE
    }

    /// Records that `bytes` of user data were flushed or compacted in `nanos`.
    pub(super) fn drained(&self, bytes: u64, nanos: u64) {
        if let Some(cost) = nanos.saturating_mul(1000).checked_div(bytes) {
            let old = self.drain_cost.load(Ordering::Relaxed);
            let next = if old == 0 { cost } else { (7 * old + cost) / 8 };
            self.drain_cost.store(next.max(1), Ordering::Relaxed);
        }
    }

    fn delay_nanos(&self, bytes: usize) -> u64 {
        let pressure = self.value().min(0.98);
        if pressure <= 0.0 {
            return 0;
        }
        // Before the first measurement: 100 MB a second.
        let cost = match self.drain_cost.load(Ordering::Relaxed) {
            0 => 10.0,
            thousandths => thousandths as f64 / 1000.0,
        };
        (bytes as f64 * cost * pressure / (1.0 - pressure)) as u64
    }
}

impl Engine {
    /// Recomputes the pressure; to be called after a freeze, a flush or a compaction.
    pub(super) fn measure_pressure(&self) {
        let view = self.view();
        let options = &self.options;
        let part = |value: f64, from: f64, to: f64| ((value - from) / (to - from).max(1.0)).clamp(0.0, 1.0);
        let memtables = part(
            view.frozen.len() as f64,
            1.0,
            options.frozen_memtables_max as f64 + 1.0,
        );
        let trigger = options.level0_tables.max(1) as f64;
        let level0 = part(view.version.level(0).len() as f64, 2.0 * trigger, 8.0 * trigger);
        let debt = debt_bytes(&view.version, options) as f64;
        let debt = part(
            debt,
            options.debt_soft_bytes as f64,
            options.debt_hard_bytes as f64,
        );
        let pressure = if options.compact {
            memtables.max(level0).max(debt)
        } else {
            memtables
        };
        self.pressure
            .pressure
            .store((pressure * ONE) as u64, Ordering::Relaxed);
    }

    /// The share of the time that a compaction works: as set while level 0 has no more tables than trigger a
    /// compaction, all of the time from twice as many on, or once the debt is such that writers are slowed.
    pub(super) fn compaction_share(&self) -> f64 {
        let options = &self.options;
        if options.compaction_share >= 1.0 || options.background == Background::Inline {
            return 1.0;
        }
        let version = &self.view().version;
        let trigger = options.level0_tables.max(1) as f64;
        let level0 = (version.level(0).len() as f64 - trigger) / trigger;
        let debt = debt_bytes(version, options) as f64 / options.debt_soft_bytes.max(1) as f64;
        let hurry = level0.max(debt).clamp(0.0, 1.0);
        let share = options.compaction_share.max(0.0);
        share + (1.0 - share) * hurry
    }

    /// Makes the caller sleep for its bytes.
    pub(super) fn slow_down(&self, bytes: usize) {
        if self.options.background == Background::Inline {
            return;
        }
        let pressure = &self.pressure;
        let delay = pressure.delay_nanos(bytes);
        if delay == 0 {
            return;
        }
        let owed = pressure.owed.fetch_add(delay, Ordering::Relaxed) + delay;
        if owed < SLEEP_NANOS_MIN {
            return;
        }
        let taken = pressure.owed.swap(0, Ordering::Relaxed).min(SLEEP_NANOS_MAX);
        let begun = self.clock.monotonic_nanos();
        blocking::section(|| std::thread::sleep(Duration::from_nanos(taken)));
        let slept = self.clock.monotonic_nanos() - begun;
        pressure.slept_nanos.fetch_add(slept, Ordering::Relaxed);
    }
}
