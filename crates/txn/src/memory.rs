//! The memory governor: keeps what rows, indexes and columns take within [`EngineConfig::memory_bytes`].
//!
//! Rows can leave memory once a checkpoint holds them and nobody has used them for a while
//! ([`weft_store::Evictor`]); indexes cannot. While all together exceed the bound, rows leave it, region by
//! region, at a share of the time that grows with the excess. If none can leave because they are newer than
//! the checkpoint, another one is written. What left is free once the readers of that moment have gone.
//!
//! [`EngineConfig::memory_bytes`]: crate::EngineConfig::memory_bytes

use weft_base::Pacer;
use weft_store::Evictor;

use crate::background::{self, Pace, stopping};
use crate::engine::Shared;

/// Once the bound is exceeded, so much of it is made free, so that not every row begins it anew: one part in.
const FREE_PART: u64 = 64;
/// The share of the time in which rows are taken out while the excess is small.
const SHARE: f64 = 0.25;
/// An excess of one part in so many is large: rows are taken out all the time.
const LARGE_PART: u64 = 16;
/// How often the time between two looks doubles while no row can leave.
const PAUSE_DOUBLINGS_MAX: u32 = 6;
/// Of the bound, what may wait for readers: one part in; but at least some regions.
const LEFT_PART: u64 = 8;
const LEFT_BYTES_MIN: u64 = 4 << 20;
/// Steps of garbage collection at a time.
const COLLECT_STEPS: usize = 10_000;

/// Looks after the memory until the engine closes.
pub(crate) fn govern(shared: &Shared) {
    let mut governor = Governor::default();
    // Where nothing can leave, it is not tried all the time.
    let mut in_vain = 0;
    while !stopping(shared, shared.config.memory_pause * (1 << in_vain)) {
        let is_in_vain = governor.excess(shared) > 0 && !governor.shrink(shared);
        in_vain = if is_in_vain {
            (in_vain + 1).min(PAUSE_DOUBLINGS_MAX)
        } else {
            0
        };
    }
}

#[derive(Default)]
struct Governor {
    evictor: Evictor,
}

impl Governor {
    /// Bytes beyond the bound, of what is in use and will stay so.
    fn excess(&self, shared: &Shared) -> u64 {
        let memory = shared.store.memory_stats();
        let columns = shared.store.column_stats().bytes;
        let (rows, left) = shared.store.row_bytes();
        let used = rows.saturating_sub(left) + memory.hash_index_bytes + memory.ordered_index_bytes + columns;
        used.saturating_sub(shared.config.memory_bytes)
    }

    /// Takes rows out of memory until it is small enough, or none can leave. Whether anything was done.
    fn shrink(&mut self, shared: &Shared) -> bool {
        let bound = shared.config.memory_bytes;
        // What statements that run for long keep is not free before they end, so that more of it is no gain.
        let left_max = (bound / LEFT_PART).max(LEFT_BYTES_MIN);
        shared.snapshots.forget_what_was_read();
        while shared.store.collect_garbage(COLLECT_STEPS) >= COLLECT_STEPS {}
        if shared.store.row_bytes().1 > left_max {
            return false;
        }
        let in_use = || {
            let (rows, left) = shared.store.row_bytes();
            rows.saturating_sub(left)
        };
        let aim = in_use().saturating_sub(self.excess(shared) + bound / FREE_PART);
        let mut pacer = Pacer::new();
        let (mut idle_rounds, mut in_round, mut all) = (0, 0, 0);
        // A round may only find rows that were used, and spare them.
        while in_use() > aim && idle_rounds < 3 && shared.store.row_bytes().1 <= left_max {
            // Where new rows are put comes last.
            let Some(step) = self.evictor.step(&shared.store, idle_rounds > 0) else {
                return false;
            };
            in_round += step.rows;
            all += step.rows;
            if step.is_round {
                idle_rounds = if in_round == 0 { idle_rounds + 1 } else { 0 };
                in_round = 0;
            }
            let is_large = in_use().saturating_sub(aim) > bound / LARGE_PART;
            pacer.pause(if is_large { 1.0 } else { SHARE });
            if *shared.stopping.lock() {
                return true;
            }
        }
        // What is still in memory may be newer than the checkpoint.
        let is_worth_it = shared.store.memory_stats().version_bytes > bound / FREE_PART;
        if in_use() <= aim || !is_worth_it || shared.store.boundary() == shared.store.saved() {
            return all > 0;
        }
        match background::checkpoint(shared, Pace::Background) {
            Ok(_) => true,
            Err(error) => {
                eprintln!("weft: rows do not leave memory, since a checkpoint failed: {error}");
                false
            }
        }
    }
}
