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
/// Steps of garbage collection after rows have left.
const COLLECT_STEPS: usize = 10_000;

/// Looks after the memory until the engine closes.
pub(crate) fn govern(shared: &Shared) {
    let mut governor = Governor::default();
    while !stopping(shared, shared.config.memory_pause) {
        if governor.excess(shared) > 0 {
            governor.shrink(shared);
        }
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

    /// Takes rows out of memory until it is small enough, or none can leave.
    fn shrink(&mut self, shared: &Shared) {
        let bound = shared.config.memory_bytes;
        let in_use = || {
            let (rows, left) = shared.store.row_bytes();
            rows.saturating_sub(left)
        };
        let aim = in_use().saturating_sub(self.excess(shared) + bound / FREE_PART);
        let mut pacer = Pacer::new();
        let (mut idle_rounds, mut in_round) = (0, 0);
        // A round may only find rows that were used, and spare them.
        while in_use() > aim && idle_rounds < 3 {
            // Where new rows are put comes last.
            let Some(step) = self.evictor.step(&shared.store, idle_rounds > 0) else {
                return;
            };
            in_round += step.rows;
            if step.is_round {
                idle_rounds = if in_round == 0 { idle_rounds + 1 } else { 0 };
                in_round = 0;
            }
            let is_large = in_use().saturating_sub(aim) > bound / LARGE_PART;
            pacer.pause(if is_large { 1.0 } else { SHARE });
            if *shared.stopping.lock() {
                return;
            }
        }
        if in_use() > aim && shared.store.boundary() > shared.store.saved() {
            if let Err(error) = background::checkpoint(shared, Pace::Background) {
                eprintln!("weft: rows do not leave memory, since a checkpoint failed: {error}");
                stopping(shared, background::RETRY_PAUSE_MIN);
            }
            return;
        }
        shared.store.collect_garbage(COLLECT_STEPS);
    }
}
