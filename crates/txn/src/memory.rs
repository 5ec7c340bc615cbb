//! The memory governor: keeps what rows, indexes, columns and reading from disk take within
//! [`EngineConfig::memory_bytes`].
//!
//! Rows can leave memory once a checkpoint holds them and nobody has used them for a while
//! ([`weft_store::Evictor`]); indexes cannot. While all together exceed the bound, rows leave it, region by
//! region, at a share of the time that grows with the excess. If none can leave because they are newer than
//! the checkpoint, another one is written. What left is free once the readers of that moment have gone.
//! While there is memory to spare, regions come back ([`weft_store::Refiller`]): those that had to leave, and
//! all of them after an opening that read no rows.
//!
//! [`EngineConfig::memory_bytes`]: crate::EngineConfig::memory_bytes

use weft_base::Pacer;
use weft_store::{Evictor, Refilled, Refiller};

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
/// Of the bound, what stays free when regions come back: one part in.
const SPARE_PART: u64 = 8;
/// The share of the time in which they do.
const REFILL_SHARE: f64 = 0.5;
/// Steps of garbage collection at a time.
const COLLECT_STEPS: usize = 10_000;

/// Looks after the memory until the engine closes.
pub(crate) fn govern(shared: &Shared) {
    let mut governor = Governor::default();
    // Where nothing can leave, it is not tried all the time.
    let mut in_vain = 0;
    while !stopping(shared, shared.config.memory_pause * (1 << in_vain)) {
        let used = Use::of(shared);
        let is_too_much = used.all() > bound(shared);
        let is_in_vain = if is_too_much {
            !governor.shrink(shared, used)
        } else {
            shared.store.has_cold_rows() && !governor.refill(shared)
        };
        in_vain = if is_in_vain {
            (in_vain + 1).min(PAUSE_DOUBLINGS_MAX)
        } else {
            0
        };
    }
}

/// What may wait for readers.
fn left_max(bound: u64) -> u64 {
    (bound / LEFT_PART).max(LEFT_BYTES_MIN)
}

/// The memory that may be used.
fn bound(shared: &Shared) -> u64 {
    match shared.config.memory_bytes {
        0 => u64::MAX,
        bytes => bytes,
    }
}

#[derive(Default)]
struct Governor {
    evictor: Evictor,
    refiller: Refiller,
}

/// What the governor counts.
#[derive(Clone, Copy)]
struct Use {
    /// Rows that are in memory and will stay so if nothing is done, and the places of the others.
    rows: u64,
    /// Indexes, columns, and what is kept to read rows from disk: these do not leave.
    rest: u64,
}

impl Use {
    fn of(shared: &Shared) -> Use {
        Use {
            rows: shared.store.row_memory().kept_bytes,
            rest: shared.store.index_bytes() + shared.store.column_stats().bytes + shared.store.read_bytes(),
        }
    }

    fn all(self) -> u64 {
        self.rows + self.rest
    }
}

impl Governor {
    /// Brings regions back, once around, as long as memory is to spare. Whether it is worth trying again
    /// soon.
    fn refill(&mut self, shared: &Shared) -> bool {
        let bound = bound(shared);
        let rest = Use::of(shared).rest;
        let aim = (bound - bound / SPARE_PART).saturating_sub(rest);
        let left_max = left_max(bound);
        if shared.store.row_memory().kept_bytes >= aim {
            return false;
        }
        // Or what their transactions keep of the old places would grow.
        shared.snapshots.forget_what_was_read();
        let mut pacer = Pacer::new();
        let mut regions = 0;
        loop {
            let rows = shared.store.row_memory();
            if *shared.stopping.lock() || rows.left_bytes > left_max {
                break;
            }
            let room = aim.saturating_sub(rows.kept_bytes);
            let step = self.refiller.step(&shared.store, room);
            match step {
                Some(Refilled::Region) => regions += 1,
                Some(Refilled::Nothing | Refilled::Unreadable) => {}
                Some(Refilled::Full | Refilled::Round) | None => break,
            }
            if step != Some(Refilled::Nothing) {
                pacer.pause(REFILL_SHARE);
            }
            // What was left behind is free when its readers have gone.
            shared.store.collect_garbage(COLLECT_STEPS);
        }
        self.refiller.rest();
        regions > 0
    }

    /// Takes rows out of memory until it is small enough, or none can leave. Whether it is worth trying again
    /// soon.
    fn shrink(&mut self, shared: &Shared, used: Use) -> bool {
        let bound = bound(shared);
        // What statements that run for long keep is not free before they end, so that more of it is no gain.
        let left_max = left_max(bound);
        shared.snapshots.forget_what_was_read();
        while shared.store.collect_garbage(COLLECT_STEPS) >= COLLECT_STEPS {}
        let aim = bound.saturating_sub(used.rest).saturating_sub(bound / FREE_PART);
        let is_enough = || {
            let rows = shared.store.row_memory();
            rows.kept_bytes <= aim || rows.left_bytes > left_max
        };
        let mut pacer = Pacer::new();
        let (mut idle_rounds, mut in_round, mut all) = (0, 0, 0);
        // A round may only find rows that were used, and spare them.
        while !is_enough() && idle_rounds < 3 {
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
            let beyond = shared.store.row_memory().kept_bytes.saturating_sub(aim);
            pacer.pause(if beyond > bound / LARGE_PART { 1.0 } else { SHARE });
            if *shared.stopping.lock() {
                return false;
            }
        }
        // Where what cannot leave exceeds the bound by itself, rows come and go for nothing.
        let is_hopeful = aim > 0;
        // What is still in memory may be newer than the checkpoint.
        let is_new = shared.store.row_memory().version_bytes > bound / FREE_PART
            && shared.store.boundary() > shared.store.saved();
        if is_enough() || !is_new {
            return is_hopeful && all > 0;
        }
        let written = background::checkpoint(shared, Pace::Background);
        if let Err(error) = &written {
            eprintln!("weft: rows do not leave memory, since a checkpoint failed: {error}");
        }
        is_hopeful && written.is_ok()
    }
}
