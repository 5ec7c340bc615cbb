//! What both joins over ranks have in common: a join between its plan and its end, counts of all ranks, and
//! the plan that follows from them.

use weft_fabric::{Rank, Window};

use super::assign::{self, Place, Plan, Request, SIDES};
use super::error::RankJoinError;
use super::options::{Network, RankReport};
use crate::array::Plain;
use crate::error::JoinError;
use crate::feed::Raw;
use crate::run::{Run, Worker};
use crate::tuple::Consumer;

/// A join whose tuples are being exchanged. Several take turns, a step each.
pub(super) trait Stage {
    /// Reads and sends some tuples. Whether there are more. An error of this rank alone is kept for the
    /// status that follows, so that the others need not wait for this rank.
    fn step(&mut self) -> Result<bool, RankJoinError>;

    /// Waits until all that this rank sent has arrived; the inner result is this rank's own.
    fn sent(&mut self) -> Result<Result<(), JoinError>, RankJoinError>;

    /// Joins what has arrived in this rank's window.
    fn complete(&mut self, rank: u32, bytes: &[u8]) -> Result<RankReport, RankJoinError>;
}

/// What all joins of one call share.
pub(super) struct Setting<'a> {
    pub(super) rank: Rank,
    pub(super) window: &'a Window,
    /// Up to where the window of each rank is used by the joins before.
    pub(super) window_ends: Vec<u64>,
}

/// What every stage has.
pub(super) struct Ground<'a, C> {
    pub(super) run: Run<'a>,
    pub(super) worker: Worker<'a, C>,
    /// Build side, probe side.
    pub(super) sides: [Raw<'a>; SIDES],
    pub(super) network: Network,
    /// Tuples of the rank that has most, by side.
    pub(super) tuples_max: [u64; SIDES],
    pub(super) plan: Plan,
    pub(super) report: RankReport,
    /// This rank's own failure, until the others are told.
    pub(super) failed: Option<JoinError>,
}

impl<C: Consumer> Ground<'_, C> {
    pub(super) fn own_places(&self, rank: u32) -> Vec<Place> {
        let mine = |place: &&Place| place.rank == rank;
        self.plan.places.iter().filter(mine).copied().collect()
    }

    /// Keeps an error of this rank alone for later.
    pub(super) fn note(&mut self, done: Result<(), RankJoinError>) -> Result<(), RankJoinError> {
        match done {
            Err(RankJoinError::Local(error)) => {
                self.failed.get_or_insert(error);
                Ok(())
            }
            other => other,
        }
    }

    /// Hands on the last results, and tells.
    pub(super) fn end(&mut self) -> Result<RankReport, RankJoinError> {
        self.worker.out.finish()?;
        self.report.pairs = self.worker.out.pair_total();
        self.report.phases.local = self.worker.phases;
        Ok(self.report)
    }
}

/// Counts by side and partition: all build counts, then all probe counts.
pub(super) struct Histograms {
    /// Of this rank.
    pub(super) own: Vec<u64>,
    /// Of the ranks before this one, together.
    pub(super) before: Vec<u64>,
    /// Of all.
    pub(super) totals: Vec<u64>,
}

/// Adds up what all ranks counted (Barthels 4.2.1: Allreduce, Scan). A rank that could not count gives
/// nothing.
pub(super) fn histograms(
    rank: &Rank,
    counted: Option<&[Vec<usize>; SIDES]>,
    parts: usize,
) -> Result<Histograms, RankJoinError> {
    let mut own: Vec<u64> = match counted {
        Some(sides) => sides.iter().flatten().map(|count| *count as u64).collect(),
        None => Vec::new(),
    };
    own.resize(SIDES * parts, 0);
    let (mut before, mut totals) = (own.clone(), own.clone());
    rank.all_reduce_sum(&mut totals)?;
    rank.exclusive_scan_sum(&mut before)?;
    Ok(Histograms { own, before, totals })
}

/// Plans, and checks that every rank's window is large enough. All ranks find the same.
pub(super) fn plan_of<C>(
    setting: &mut Setting<'_>,
    ground: &mut Ground<'_, C>,
    found: &Histograms,
    item_bytes: u64,
) -> Result<(), RankJoinError> {
    let parts = found.totals.len() / SIDES;
    let (build, probe) = found.totals.split_at(parts);
    let request = Request {
        totals: [build, probe],
        ranks: setting.rank.count(),
        assignment: ground.network.assignment,
        emit: ground.run.emit,
        item_bytes,
        window_starts: &setting.window_ends,
    };
    let plan = assign::plan(&request);
    for (rank, bytes) in (0_u32..).zip(&plan.window_ends) {
        let bytes_max = setting.window.bytes_of(rank);
        if *bytes > bytes_max {
            return Err(RankJoinError::Window {
                rank,
                bytes: *bytes,
                bytes_max,
            });
        }
    }
    let own = |ends: &[u64]| ends.get(setting.rank.number() as usize).copied().unwrap_or(0);
    ground.report.window_bytes = own(&plan.window_ends) - own(&setting.window_ends);
    ground.report.partitions = parts;
    ground.report.shared = plan.shared;
    ground.report.tuple_bytes = usize::try_from(item_bytes).unwrap_or(usize::MAX);
    setting.window_ends.clone_from(&plan.window_ends);
    ground.plan = plan;
    Ok(())
}

/// The items of one side of a place.
pub(super) fn items_at<'b, I: Plain>(
    bytes: &'b [u8],
    place: &Place,
    side: usize,
) -> Result<&'b [I], JoinError> {
    let found = (|| {
        let start = usize::try_from(*place.offsets.get(side)?).ok()?;
        let count = usize::try_from(place.spans.get(side)?.len()).ok()?;
        items_of(bytes.get(start..start.checked_add(count.checked_mul(size_of::<I>())?)?)?)
    })();
    // What a plan says lies in the window, which was compared with it.
    found.ok_or(JoinError::Source)
}

/// Bytes of another rank as items: any bits are one.
pub(super) fn items_of<I: Plain>(bytes: &[u8]) -> Option<&[I]> {
    if bytes.is_empty() {
        return Some(&[]);
    }
    let is_whole = bytes.len().is_multiple_of(size_of::<I>()) && bytes.as_ptr().cast::<I>().is_aligned();
    // SAFETY: so many items lie there, at their alignment, and any bits are a value of a plain type.
    is_whole
        .then(|| unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<I>()) })
}

/// Items as the bytes that another rank gets.
pub(super) fn bytes_of<I: Plain>(items: &[I]) -> &[u8] {
    // SAFETY: plain values have no padding, so every byte is initialised.
    unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{Mixed, Word};
    use crate::tuple::Tuple;

    #[test]
    fn items_become_bytes_and_items_again_and_odd_bytes_are_refused() {
        let wide = [1, 2, 3].map(|row| {
            Mixed(Tuple {
                key: u64::MAX - row,
                row,
            })
        });
        assert_eq!(items_of::<Mixed>(bytes_of(&wide)), Some(&wide[..]));
        let narrow = [Word(1), Word(u64::MAX)];
        let bytes = bytes_of(&narrow);
        assert_eq!(items_of::<Word>(bytes), Some(&narrow[..]));
        assert_eq!(items_of::<Word>(&bytes[1..9]), None, "not at its alignment");
        assert_eq!(items_of::<Word>(&bytes[..9]), None, "not whole");
        assert_eq!(items_of::<Word>(&[]), Some(&[][..]));
    }
}
