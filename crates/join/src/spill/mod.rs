//! A join that is larger than its budget: both sides are partitioned to disk, and each partition is joined
//! like a small join (grace hash join; Kitsuregawa et al., "Application of hash to data base machine and its
//! architecture", 1983).
//!
//! ```text
//! part on disk --> its build side's table fits  --> unpartitioned join, probe side read block by block
//!             +--> it has more than one key     --> partitioned again, by the bits in which its keys differ
//!             +--> it has one key               --> block nested loop
//! ```
//!
//! 1. The bits of a level begin at the highest one in which two keys of the part differ, so every level makes
//!    at least two parts that have tuples: it ends, whatever the keys are.
//! 2. A part with one key needs no table: its pairs are all rows of the build side, as many at a time as
//!    there is room for, with all rows of the probe side that have the key.
//! 3. A part's table is reserved and filled before anything of the part is told; so when there is no room for
//!    it, nothing was told twice.

mod file;

use std::time::Instant;

use weft_base::Reservation;

use crate::array::reserve;
use crate::error::JoinError;
use crate::feed::Feed;
use crate::form::{Input, Mixed, Order, Wide};
use crate::hash::unpartitioned;
use crate::options::{Report, Spill};
use crate::partition::{Placing, Radix};
use crate::run::{Run, Worker};
use crate::tuple::Consumer;
use crate::workers::Claims;
use file::{Part, SpillFile, Spilled};

const PURPOSE: &str = "blocks of partitions that are spilled";
/// Parts of a level at most, as a power of two.
const BITS_MAX: u32 = 6;
/// Bytes of a block at least.
const BLOCK_BYTES_MIN: usize = 4 << 10;

/// What all levels share.
struct Level<'a, 'r> {
    run: &'a Run<'r>,
    spill: &'a Spill,
    form: Wide,
}

/// How a level writes.
struct Buffers {
    radix: Radix,
    block_tuples: usize,
    /// Workers that write.
    writers: usize,
    _room: Reservation,
}

/// One side of a level, on disk.
struct Written {
    file: SpillFile,
    parts: Vec<Part>,
}

/// Joins two feeds by way of the disk.
pub(crate) fn join<B, P, C>(
    run: &Run<'_>,
    spill: &Spill,
    (build, probe): (&B, &P),
    workers: &mut [Worker<'_, C>],
    report: &mut Report,
) -> Result<(), JoinError>
where
    B: Feed,
    B::Item: Input<Wide>,
    P: Feed,
    P::Item: Input<Wide>,
    C: Consumer,
{
    let form = Wide::new(Order::Mixed);
    let level = Level { run, spill, form };
    level.join(0, (build, probe), workers, report)
}

impl Level<'_, '_> {
    /// Partitions two feeds, whose keys have the highest `skip` bits in common, and joins the parts.
    fn join<B, P, C>(
        &self,
        skip: u32,
        (build, probe): (&B, &P),
        workers: &mut [Worker<'_, C>],
        report: &mut Report,
    ) -> Result<(), JoinError>
    where
        B: Feed,
        B::Item: Input<Wide>,
        P: Feed,
        P::Item: Input<Wide>,
        C: Consumer,
    {
        let start = Instant::now();
        let buffers = self.buffers(skip, workers.len())?;
        let build = self.write(&buffers, build, &|_| true)?;
        let emit = self.run.emit;
        let is_wanted = |part: usize| {
            let has_partner = build.parts.get(part).is_some_and(|part| part.tuples > 0);
            has_partner || emit.probe_unmatched
        };
        let probe = self.write(&buffers, probe, &is_wanted)?;
        drop(buffers);
        report.spilled_bytes += build.file.len() + probe.file.len();
        report.phases.spill += start.elapsed();
        for (build_part, probe_part) in build.parts.iter().zip(&probe.parts) {
            let build = Spilled {
                file: &build.file,
                part: build_part,
            };
            let probe = Spilled {
                file: &probe.file,
                part: probe_part,
            };
            self.join_part(&build, &probe, workers, report)?;
        }
        Ok(())
    }

    fn join_part<C: Consumer>(
        &self,
        build: &Spilled<'_>,
        probe: &Spilled<'_>,
        workers: &mut [Worker<'_, C>],
        report: &mut Report,
    ) -> Result<(), JoinError> {
        let emit = self.run.emit;
        let has_result = (build.len() > 0 && probe.len() > 0)
            || (emit.probe_unmatched && probe.len() > 0)
            || (emit.build_unmatched && build.len() > 0);
        if !has_result {
            return Ok(());
        }
        let (least, most) = build.part.keys;
        let skip = match build.len() {
            0 => 0,
            _ => (least ^ most).leading_zeros(),
        };
        let form = (self.form, skip.min(u64::BITS - 1));
        let outcome = unpartitioned::join(self.run, form, build, probe, Some(&self.run.budget), workers);
        match outcome {
            Err(error) if error.is_of_room() && build.len() > 0 => {}
            other => return other,
        }
        if least == most {
            return self.one_key(least, build, probe, workers);
        }
        report.respilled += 1;
        self.join(skip, (build, probe), workers, report)
    }

    /// The most parts and the largest blocks that there is room for.
    fn buffers(&self, skip: u32, workers: usize) -> Result<Buffers, JoinError> {
        let largest = self.run.tuning.spill_block_bytes.max(BLOCK_BYTES_MIN);
        let bits_left = (u64::BITS - skip).clamp(1, BITS_MAX);
        let mut refused = None;
        for writers in [workers, 1] {
            for block_bytes in [largest, largest / 4, BLOCK_BYTES_MIN].map(|bytes| bytes.max(BLOCK_BYTES_MIN))
            {
                // Many parts first: a second level costs more than small blocks do.
                let bits_min = if block_bytes > BLOCK_BYTES_MIN {
                    4.min(bits_left)
                } else {
                    1
                };
                for bits in (bits_min..=bits_left).rev() {
                    let block_tuples = block_bytes / size_of::<Mixed>();
                    let bytes = (block_tuples * size_of::<Mixed>()).saturating_mul(writers << bits);
                    match reserve(&self.run.budget, bytes, PURPOSE) {
                        Ok(room) => {
                            return Ok(Buffers {
                                radix: Radix { skip, bits },
                                block_tuples,
                                writers,
                                _room: room,
                            });
                        }
                        Err(error) => refused = Some(error),
                    }
                }
            }
        }
        Err(refused.unwrap_or(JoinError::NoConsumer))
    }

    /// Writes those parts of a feed that are wanted.
    fn write<B>(
        &self,
        buffers: &Buffers,
        feed: &B,
        is_wanted: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<Written, JoinError>
    where
        B: Feed,
        B::Item: Input<Wide>,
    {
        let file = SpillFile::create(self.spill)?;
        let Buffers {
            radix, block_tuples, ..
        } = buffers;
        let claims = Claims::new(feed.morsels());
        let mut written = vec![vec![Part::EMPTY; radix.parts()]; buffers.writers];
        let wanted: Vec<bool> = (0..radix.parts()).map(is_wanted).collect();
        self.run.control.phase(&mut written, |_, parts| {
            let mut blocks: Vec<Vec<Mixed>> = parts.iter().map(|_| Vec::new()).collect();
            let mut space = Vec::new();
            while let Some(morsel) = claims.claim() {
                self.run.control.check()?;
                for input in feed.read(morsel, &mut space)? {
                    let item = input.item(&self.form).ok_or(JoinError::Source)?;
                    let number = radix.part_of(item.0.key);
                    let (Some(block), Some(part)) = (blocks.get_mut(number), parts.get_mut(number)) else {
                        return Err(JoinError::Source);
                    };
                    if !wanted.get(number).copied().unwrap_or(true) {
                        continue;
                    }
                    if block.len() >= *block_tuples {
                        part.blocks.push(file.write(block)?);
                        block.clear();
                    }
                    if block.capacity() == 0 {
                        let bytes = block_tuples * size_of::<Mixed>();
                        block
                            .try_reserve_exact(*block_tuples)
                            .map_err(|_| JoinError::Memory { bytes })?;
                    }
                    block.push(item);
                    part.tuples += 1;
                    part.keys = (part.keys.0.min(item.0.key), part.keys.1.max(item.0.key));
                }
            }
            for (block, part) in blocks.iter().zip(parts) {
                if !block.is_empty() {
                    part.blocks.push(file.write(block)?);
                }
            }
            Ok(())
        })?;
        let mut parts = vec![Part::EMPTY; radix.parts()];
        for worker in written {
            for (part, more) in parts.iter_mut().zip(worker) {
                part.append(more);
            }
        }
        Ok(Written { file, parts })
    }

    /// A part whose build side has one key alone, and more tuples than there is room for.
    fn one_key<C: Consumer>(
        &self,
        key: u64,
        build: &Spilled<'_>,
        probe: &Spilled<'_>,
        workers: &mut [Worker<'_, C>],
    ) -> Result<(), JoinError> {
        let (emit, control) = (self.run.emit, &self.run.control);
        let claims = Claims::new(probe.morsels());
        let has_partner = std::sync::atomic::AtomicBool::new(false);
        // Claims are counted before the flag is read, in the next phase.
        let order = std::sync::atomic::Ordering::Relaxed;
        control.phase(workers, |_, worker| {
            let mut space = Vec::new();
            while let Some(morsel) = claims.claim() {
                control.check()?;
                for item in probe.read(morsel, &mut space)? {
                    let is_matched = item.0.key == key;
                    if is_matched {
                        has_partner.store(true, order);
                    }
                    worker.out.probe(item.0.row, is_matched)?;
                }
            }
            Ok(())
        })?;
        let has_partner = has_partner.load(order);
        if emit.marks_build() {
            let claims = Claims::new(build.morsels());
            control.phase(workers, |_, worker| {
                let mut space = Vec::new();
                while let Some(morsel) = claims.claim() {
                    control.check()?;
                    for item in build.read(morsel, &mut space)? {
                        worker.out.build(item.0.row, has_partner)?;
                    }
                }
                Ok(())
            })?;
        }
        if emit.pairs && has_partner {
            self.block_nested_loop(key, build, probe, workers)?;
        }
        Ok(())
    }

    fn block_nested_loop<C: Consumer>(
        &self,
        key: u64,
        build: &Spilled<'_>,
        probe: &Spilled<'_>,
        workers: &mut [Worker<'_, C>],
    ) -> Result<(), JoinError> {
        let control = &self.run.control;
        let mut morsel = 0;
        while morsel < build.morsels() {
            let mut rows = Vec::new();
            let mut rooms = Vec::new();
            let mut space = Vec::new();
            while morsel < build.morsels() {
                // One block is a worker's own, beside the budget.
                let items = build.read(morsel, &mut space)?;
                let bytes = items.len().saturating_mul(2 * size_of::<u64>());
                match reserve(&self.run.budget, bytes, PURPOSE) {
                    Ok(room) => rooms.push(room),
                    Err(_) if rows.is_empty() => {}
                    Err(_) => break,
                }
                rows.try_reserve(items.len())
                    .map_err(|_| JoinError::Memory { bytes })?;
                rows.extend(items.iter().map(|item| item.0.row));
                morsel += 1;
            }
            let claims = Claims::new(probe.morsels());
            control.phase(workers, |_, worker| {
                let mut space = Vec::new();
                while let Some(morsel) = claims.claim() {
                    for item in probe.read(morsel, &mut space)? {
                        control.check()?;
                        if item.0.key != key {
                            continue;
                        }
                        for row in &rows {
                            worker.out.pair(*row, item.0.row)?;
                        }
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
