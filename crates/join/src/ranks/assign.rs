//! Who gets which partition, and where in its window: a pure function of the global histogram, which all
//! ranks compute alike.
//!
//! A partition's tuples of one side are a sequence: those of rank 0 in the order in which it reads them, then
//! those of rank 1, and so on. A *place* is a piece of both sequences at one rank. Usually a partition has
//! one place, with all of both sides:
//!
//! ```text
//! build   |--------------------|          build   |=======|  |=======|  |=======|   copied
//! probe   |-----------------------|       probe   |-------|  |-------|  |-------|   cut
//!            one place                             rank 2     rank 0     rank 1
//! ```
//!
//! One that is a large share of all tuples is shared: the larger side is cut into equal pieces, and each rank
//! that gets one gets all of the smaller side as well. Each pair is then found by exactly one rank. Since the
//! pieces are positions of a sequence in the order of ranks, most tuples of a cut side stay where they are.
//! The document shares partitions among the threads of one machine only, and names this step as what is
//! missing (Barthels 3.4.5, 3.6).
//!
//! A side of which each row is to be told as matched or unmatched cannot be copied, since no rank would know
//! of the others' finds.
//!
//! # Invariants
//!
//! 1. Places of one rank do not overlap in its window; each begins at a cache line.
//! 2. Every position of a wanted partition is in exactly one place of the cut side, and in all of the other.

use std::cmp::Reverse;

use super::options::Assignment;
use crate::tuple::Emit;

/// Places begin at multiples of so many bytes.
const LINE_BYTES: u64 = 64;
/// A partition is shared if it has more than its rank's fair share divided by this. Assignment by size alone
/// leaves no rank with more than a fair share and one partition.
const SHARE_PARTS: u64 = 4;

/// Build side and probe side.
pub(crate) const SIDES: usize = 2;

/// Positions of a sequence, from the first on, below the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) end: u64,
}

impl Span {
    pub(crate) fn len(self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    /// What both have.
    pub(crate) fn both(self, other: Span) -> Span {
        let first = self.first.max(other.first);
        Span {
            first,
            end: self.end.min(other.end).max(first),
        }
    }
}

/// A partition, or a piece of one, at a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) part: usize,
    pub(crate) rank: u32,
    /// By side.
    pub(crate) spans: [Span; SIDES],
    /// Bytes from the beginning of the rank's window, by side.
    pub(crate) offsets: [u64; SIDES],
}

/// Where everything goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// By partition.
    pub(crate) places: Vec<Place>,
    /// How many partitions have several places.
    pub(crate) shared: usize,
    /// Bytes that each rank's window is used up to.
    pub(crate) window_ends: Vec<u64>,
}

/// What a plan is made of.
pub(crate) struct Request<'a> {
    /// Tuples of all ranks, by side and partition.
    pub(crate) totals: [&'a [u64]; SIDES],
    pub(crate) ranks: u32,
    pub(crate) assignment: Assignment,
    pub(crate) emit: Emit,
    pub(crate) item_bytes: u64,
    /// From where on each rank's window is free.
    pub(crate) window_starts: &'a [u64],
}

impl Request<'_> {
    /// Whether anything could be told of a partition with so many tuples.
    fn is_wanted(&self, [build, probe]: [u64; SIDES]) -> bool {
        let emit = self.emit;
        (build > 0 && probe > 0 && (emit.pairs || emit.probe_matched || emit.build_matched))
            || (build > 0 && emit.build_unmatched)
            || (probe > 0 && emit.probe_unmatched)
    }

    /// Among how many ranks a partition is shared, and by cutting which side. One rank: it is not.
    fn sharing(&self, sizes: [u64; SIDES], fair: u64) -> (u32, usize) {
        let emit = self.emit;
        let cut = usize::from(sizes[1] >= sizes[0]);
        let may_be_copied = match cut {
            0 => !(emit.probe_matched || emit.probe_unmatched),
            _ => !(emit.build_matched || emit.build_unmatched),
        };
        let (long, short) = (sizes[cut], sizes[1 - cut]);
        let limit = (fair / SHARE_PARTS).max(1);
        let weight = long + short;
        if self.assignment != Assignment::Shared || !may_be_copied || weight <= limit {
            return (1, cut);
        }
        // A piece not shorter than what is copied for it.
        let pieces = weight.div_ceil(limit).min(long / short.max(1));
        let pieces = pieces.clamp(1, u64::from(self.ranks.max(1)));
        (u32::try_from(pieces).unwrap_or(1), cut)
    }
}

/// Makes the plan.
pub(crate) fn plan(request: &Request<'_>) -> Plan {
    let [build, probe] = request.totals;
    let mut sized: Vec<([u64; SIDES], usize)> = build
        .iter()
        .zip(probe)
        .map(|(build, probe)| [*build, *probe])
        .zip(0..)
        .filter(|(sizes, _)| request.is_wanted(*sizes))
        .collect();
    let all: u64 = sized.iter().map(|(sizes, _)| sizes.iter().sum::<u64>()).sum();
    let fair = all.div_ceil(u64::from(request.ranks.max(1)));
    if request.assignment != Assignment::RoundRobin {
        sized.sort_by_key(|(sizes, part)| (Reverse(sizes.iter().sum::<u64>()), *part));
    }
    let mut loads = Loads::new(request.ranks);
    let mut found = Plan::default();
    for (sizes, part) in sized {
        let (pieces, cut) = request.sharing(sizes, fair);
        found.shared += usize::from(pieces > 1);
        let bound = |piece: u32| {
            let of = u128::from(sizes[cut]) * u128::from(piece) / u128::from(pieces);
            u64::try_from(of).unwrap_or(u64::MAX)
        };
        let ranks = match request.assignment {
            Assignment::RoundRobin => vec![u32::try_from(part).unwrap_or(0) % request.ranks.max(1)],
            _ => loads.least(pieces),
        };
        for (rank, piece) in ranks.into_iter().zip(0..) {
            let mut spans = sizes.map(|end| Span { first: 0, end });
            spans[cut] = Span {
                first: bound(piece),
                end: bound(piece + 1),
            };
            loads.add(rank, spans.iter().map(|span| span.len()).sum());
            found.places.push(Place {
                part,
                rank,
                spans,
                offsets: [0; SIDES],
            });
        }
    }
    // In the order of partitions in memory, too, whatever their sizes; pieces in the order of ranks.
    found
        .places
        .sort_by_key(|place| (place.part, place.spans.map(|span| span.first)));
    lay_out(&mut found, request);
    found
}

/// Gives every place its bytes.
fn lay_out(plan: &mut Plan, request: &Request<'_>) {
    plan.window_ends = request.window_starts.to_vec();
    for side in 0..SIDES {
        for place in &mut plan.places {
            let Some(end) = plan.window_ends.get_mut(place.rank as usize) else {
                continue;
            };
            let start = end.next_multiple_of(LINE_BYTES);
            if let (Some(offset), Some(span)) = (place.offsets.get_mut(side), place.spans.get(side)) {
                *offset = start;
                *end = start + span.len() * request.item_bytes;
            }
        }
    }
}

/// How much each rank has so far. Pieces of one partition go to different ranks, in ascending order, so that
/// positions in the order of ranks mostly stay where they are.
struct Loads {
    /// The least first: load, rank.
    heap: std::collections::BinaryHeap<Reverse<(u64, u32)>>,
    taken: Vec<(u64, u32)>,
}

impl Loads {
    fn new(ranks: u32) -> Loads {
        Loads {
            heap: (0..ranks.max(1)).map(|rank| Reverse((0, rank))).collect(),
            taken: Vec::new(),
        }
    }

    /// So many ranks that have the least; each is given back with [`Loads::add`].
    fn least(&mut self, count: u32) -> Vec<u32> {
        for _ in 0..count {
            if let Some(Reverse(found)) = self.heap.pop() {
                self.taken.push(found);
            }
        }
        let mut ranks: Vec<u32> = self.taken.iter().map(|(_, rank)| *rank).collect();
        ranks.sort_unstable();
        ranks
    }

    fn add(&mut self, rank: u32, tuples: u64) {
        if let Some(at) = self.taken.iter().position(|(_, taken)| *taken == rank) {
            let (load, _) = self.taken.swap_remove(at);
            self.heap.push(Reverse((load + tuples, rank)));
        }
    }
}

/// A stretch of this rank's tuples of one partition and side, and where they go: one rank, or all that get a
/// copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Numbers among this rank's tuples of the partition.
    pub(crate) span: Span,
    /// Rank, and the byte of its window for the first tuple.
    pub(crate) targets: Vec<(u32, u64)>,
}

/// The segments of one partition and side for a rank that has so many tuples, behind those of lower ranks.
/// `places` are those of the partition.
pub(crate) fn segments(
    places: &[Place],
    side: usize,
    (before, count): (u64, u64),
    item_bytes: u64,
) -> Vec<Segment> {
    let mine = Span {
        first: before,
        end: before + count,
    };
    let mut found: Vec<Segment> = Vec::new();
    for place in places {
        let (Some(span), Some(offset)) = (place.spans.get(side), place.offsets.get(side)) else {
            continue;
        };
        let both = span.both(mine);
        if both.len() == 0 {
            continue;
        }
        let target = (place.rank, offset + (both.first - span.first) * item_bytes);
        let span = Span {
            first: both.first - before,
            end: both.end - before,
        };
        match found.iter_mut().find(|segment| segment.span == span) {
            Some(segment) => segment.targets.push(target),
            None => found.push(Segment {
                span,
                targets: vec![target],
            }),
        }
    }
    found
}

/// The places of a partition among those of a plan, which are in the order of partitions.
pub(crate) fn places_of(places: &[Place], part: usize) -> &[Place] {
    let first = places.partition_point(|place| place.part < part);
    let rest = places.get(first..).unwrap_or_default();
    let count = rest.partition_point(|place| place.part == part);
    rest.get(..count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What each rank has, as marks in its window: every byte is written once, and every position arrives as
    /// often as it should.
    fn check(counts: &[Vec<[u64; SIDES]>], assignment: Assignment, emit: Emit) -> Plan {
        let (ranks, parts) = (counts.len(), counts[0].len());
        let total = |side: usize, part: usize| counts.iter().map(|rank| rank[part][side]).sum::<u64>();
        let totals: [Vec<u64>; SIDES] =
            std::array::from_fn(|side| (0..parts).map(|part| total(side, part)).collect());
        let starts: Vec<u64> = (0..ranks as u64).map(|rank| rank * 100).collect();
        let request = Request {
            totals: [&totals[0], &totals[1]],
            ranks: ranks as u32,
            assignment,
            emit,
            item_bytes: 8,
            window_starts: &starts,
        };
        let plan = plan(&request);
        let mut windows: Vec<Vec<u32>> = plan
            .window_ends
            .iter()
            .map(|end| vec![0; *end as usize])
            .collect();
        for part in 0..parts {
            let places = places_of(&plan.places, part);
            assert!(places.iter().all(|place| place.part == part));
            for side in 0..SIDES {
                let mut before = 0;
                let mut sent = 0;
                for rank in counts {
                    let count = rank[part][side];
                    let segments = segments(places, side, (before, count), 8);
                    before += count;
                    for segment in &segments {
                        for (target, offset) in &segment.targets {
                            sent += segment.span.len();
                            for byte in *offset..*offset + segment.span.len() * 8 {
                                windows[*target as usize][byte as usize] += 1;
                                assert!(byte >= starts[*target as usize]);
                            }
                        }
                    }
                    let covered: u64 = segments.iter().map(|segment| segment.span.len()).sum();
                    assert!(covered == count || places.is_empty());
                }
                let spans: u64 = places.iter().map(|place| place.spans[side].len()).sum();
                assert_eq!(sent, spans);
            }
            // Each pair of positions is in one place.
            let pairs: u64 = places
                .iter()
                .map(|place| place.spans[0].len() * place.spans[1].len())
                .sum();
            let expected = total(0, part) * total(1, part);
            assert!(pairs == expected || places.is_empty());
            if places.is_empty() && emit.pairs {
                assert_eq!(expected, 0);
            }
        }
        for window in windows {
            assert!(window.iter().all(|writes| *writes <= 1), "two places overlap");
        }
        plan
    }

    proptest! {
        #[test]
        fn every_pair_of_tuples_meets_once(
            counts in (1_usize..5, 1_usize..12).prop_flat_map(|(ranks, parts)| {
                let count = prop_oneof![Just(0), 0_u64..6, 0_u64..60];
                let sides = [count.clone(), count].prop_map(|sides| sides);
                prop::collection::vec(prop::collection::vec(sides, parts), ranks)
            }),
            how in 0_usize..3, emit in 0_usize..4,
        ) {
            let how = [Assignment::RoundRobin, Assignment::Sized, Assignment::Shared][how];
            let emit = [Emit::INNER, Emit::PROBE_OUTER, Emit::BUILD_OUTER, Emit::FULL_OUTER][emit];
            check(&counts, how, emit);
        }
    }

    #[test]
    fn a_heavy_partition_is_shared_and_loads_are_even() {
        let mut part = vec![[100, 100]; 15];
        part.push([100, 20_000]);
        let counts = vec![part; 4];
        for (emit, is_shared) in [
            (Emit::INNER, true),
            (Emit::PROBE_OUTER, true),
            (Emit::BUILD_OUTER, false),
        ] {
            let plan = check(&counts, Assignment::Shared, emit);
            assert_eq!(plan.shared, usize::from(is_shared));
            let load = |rank| {
                let mine = plan.places.iter().filter(|place| place.rank == rank);
                mine.map(|place| place.spans[0].len() + place.spans[1].len())
                    .sum::<u64>()
            };
            let loads: Vec<u64> = (0..4).map(load).collect();
            let (most, all) = (loads.iter().max().unwrap(), loads.iter().sum::<u64>());
            assert_eq!(*most * 4 < all * 11 / 10, is_shared, "{loads:?}");
        }
        // Most of what is cut stays where it is.
        let plan = check(&counts, Assignment::Shared, Emit::INNER);
        let places = places_of(&plan.places, 15);
        let staying = (0..4_u64).filter(|rank| {
            let segments = segments(places, 1, (rank * 20_000, 20_000), 8);
            segments.len() == 1 && u64::from(segments[0].targets[0].0) == *rank
        });
        assert_eq!(staying.count(), 4);
    }

    #[test]
    fn sizes_are_balanced_where_round_robin_is_not() {
        let part: Vec<[u64; SIDES]> = (0..16)
            .map(|part| [part % 2 * 50 + 1, part % 2 * 50 + 1])
            .collect();
        let counts = vec![part; 2];
        let most = |assignment| {
            let plan = check(&counts, assignment, Emit::INNER);
            *plan.window_ends.iter().max().unwrap()
        };
        assert!(most(Assignment::Sized) * 3 < most(Assignment::RoundRobin) * 2);
    }
}
