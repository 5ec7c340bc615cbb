//! The wave planner: puts conflicting programs of one batch into waves that run one after the other.
//!
//! Hobbes' batch lock manager refuses a program that conflicts with an admitted one, so a single
//! hot key limits every batch to one member. Here such a program goes into the first wave after everything
//! that it conflicts with. A slot remembers, for each mode that a later program may request, the last wave
//! that holds a conflicting program; a program's wave is one more than the maximum of these numbers over all
//! its requests.
//!
//! ```text
//! wave of a program = 1 + max over its requests: the slot's number for that mode
//!
//! slot (8 bytes) | IS u16 | IX u16 | S u16 | X u16 |     SIX is both S and IX
//!                  ^ placing S in wave w raises IX and X to w: what conflicts with S must come later
//!                    numbers go on from batch to batch, and those below `first` are void: "release all"
//!                    costs nothing; the table is cleared at most once in 32,768 waves
//! ```
//!
//! Invariants: 1. No two programs of one wave conflict. 2. Of two conflicting programs the one placed first
//! has the lower wave, so running the waves in order gives the same result as running the programs one by one
//! in placement order. 3. A collision of two resources on one slot can only make a wave later. 4. The outcome
//! depends only on the sequence of calls.
//!
//! Cost: two passes over the requests, 8 bytes of a table for each, a load and a maximum of four numbers at
//! once; nothing is allocated. A caller that prefetches slots ([`WavePlanner::fetch`]) does not wait for
//! memory.
//!
//! Source: Hobbes 3.3.3 (Algorithm 1, which has one wave); DESIGN.md, Batches (waves).

use weft_base::memory::prefetch;
use weft_lock::{LockMode, LockRequest};

use crate::lock_slots::LockSlots;

/// Most waves of one batch.
pub const WAVES_MAX: u32 = 1 << 15;

/// Wave numbers by requested mode; see the module's head.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(8))]
struct Slot([u16; 4]);

const IS: usize = 0;
const IX: usize = 1;
const S: usize = 2;
const X: usize = 3;

/// Which numbers a placement raises: all ones for the modes that conflict with it.
const fn raised_by(mode: LockMode) -> [u16; 4] {
    const ALL: u16 = u16::MAX;
    match mode {
        LockMode::NL => [0; 4],
        LockMode::IS => [0, 0, 0, ALL],
        LockMode::IX => [0, 0, ALL, ALL],
        LockMode::S => [0, ALL, 0, ALL],
        LockMode::SIX => [0, ALL, ALL, ALL],
        LockMode::X => [ALL; 4],
    }
}

impl Slot {
    /// The last wave that conflicts with a mode.
    #[inline(always)]
    fn last(self, mode: LockMode) -> u16 {
        let last = self.0;
        match mode {
            LockMode::NL => 0,
            LockMode::IS => last[IS],
            LockMode::IX => last[IX],
            LockMode::S => last[S],
            LockMode::SIX => last[IX].max(last[S]),
            LockMode::X => last[X],
        }
    }

    #[inline(always)]
    fn raise(&mut self, mode: LockMode, wave: u16) {
        for (last, mask) in self.0.iter_mut().zip(raised_by(mode)) {
            *last = (wave & mask).max(*last);
        }
    }
}

/// Plans the waves of one batch after another.
#[derive(Debug)]
pub struct WavePlanner {
    slots: Box<[Slot]>,
    slot_of: LockSlots,
    /// Number of the open batch's wave 0. At least 1, so that 0 is before every wave.
    first: u16,
    /// One more than the highest wave assigned. Below 2^16, or the batch is full.
    end: u32,
}

impl WavePlanner {
    /// A planner with `slot_count` slots for rows, rounded up to a power of two, at least 64, and as many for
    /// tables and ranges. 8 bytes each.
    pub fn new(slot_count: usize) -> WavePlanner {
        let slot_of = LockSlots::new(slot_count);
        WavePlanner {
            slots: vec![Slot::default(); slot_of.count()].into_boxed_slice(),
            slot_of,
            first: 1,
            end: 1,
        }
    }

    /// Starts a new batch: it conflicts with nothing placed before. Clears the table when too few numbers are
    /// left for a batch.
    pub fn begin(&mut self) {
        if self.end > (1 << 16) - WAVES_MAX {
            self.slots.fill(Slot::default());
            self.end = 1;
        }
        self.first = self.end as u16;
    }

    /// The number of waves of the open batch so far.
    pub fn wave_count(&self) -> u32 {
        self.end - u32::from(self.first)
    }

    /// Prefetches the slots of requests that will be placed soon.
    #[inline]
    pub fn fetch(&self, requests: &[LockRequest]) {
        for request in requests {
            if let Some(slot) = self.slots.get(self.slot_of.slot(request.resource)) {
                prefetch(slot);
            }
        }
    }

    /// The wave of the next program, from 0; `None`, without side effects, if the batch has [`WAVES_MAX`]
    /// waves and would need another one. A program never conflicts with itself.
    #[inline]
    pub fn place(&mut self, requests: &[LockRequest]) -> Option<u32> {
        let mut last = self.first - 1;
        for request in requests {
            last = last.max(self.slots[self.slot_of.slot(request.resource)].last(request.mode));
        }
        let wave = u32::from(last) + 1 - u32::from(self.first);
        if wave >= WAVES_MAX {
            return None;
        }
        self.record(requests, last + 1);
        Some(wave)
    }

    /// Puts a request list into wave 0 that is known not to conflict with anything there, whatever slots
    /// collide.
    pub fn place_first(&mut self, requests: &[LockRequest]) {
        self.record(requests, self.first);
    }

    #[inline(always)]
    fn record(&mut self, requests: &[LockRequest], wave: u16) {
        for request in requests {
            let slot = self.slot_of.slot(request.resource);
            self.slots[slot].raise(request.mode, wave);
        }
        self.end = self.end.max(u32::from(wave) + 1);
    }
}

/// Members in the order of their waves; within one wave in the order of placement.
#[derive(Debug, Default)]
pub struct Arrangement {
    order: Vec<usize>,
    ends: Vec<usize>,
    waves: Vec<u32>,
}

impl Arrangement {
    /// Arranges members, given the wave of each in the order of placement. Every wave below the highest must
    /// have a member, as a planner guarantees.
    pub fn arrange(&mut self, waves: impl Iterator<Item = u32>) {
        let Arrangement {
            order,
            ends,
            waves: placed,
        } = self;
        order.clear();
        ends.clear();
        placed.clear();
        placed.extend(waves);
        // Counting sort: count, prefix sums, distribute.
        for wave in &*placed {
            let wave = *wave as usize;
            if wave >= ends.len() {
                ends.resize(wave + 1, 0);
            }
            if let Some(count) = ends.get_mut(wave) {
                *count += 1;
            }
        }
        if ends.len() <= 1 {
            return order.extend(0..placed.len());
        }
        let mut sum = 0;
        for count in &mut *ends {
            sum += std::mem::replace(count, sum);
        }
        order.resize(sum, 0);
        for (index, wave) in placed.iter().enumerate() {
            if let Some(at) = ends.get_mut(*wave as usize) {
                if let Some(place) = order.get_mut(*at) {
                    *place = index;
                }
                *at += 1;
            }
        }
    }

    /// For each place the index of its member in the order of placement.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The end of each wave in [`Arrangement::order`].
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_base::TableId;
    use weft_lock::{ResourceId, compatible};

    const MODES: [LockMode; 5] = [
        LockMode::IS,
        LockMode::IX,
        LockMode::S,
        LockMode::SIX,
        LockMode::X,
    ];

    fn row(n: u64, mode: LockMode) -> LockRequest {
        LockRequest {
            resource: ResourceId::row(TableId(1), &n.to_be_bytes()),
            mode,
        }
    }

    fn place(waves: &mut WavePlanner, requests: &[LockRequest]) -> u32 {
        waves.place(requests).unwrap()
    }

    fn conflict(one: &[LockRequest], other: &[LockRequest]) -> bool {
        one.iter().any(|a| {
            other
                .iter()
                .any(|b| a.resource == b.resource && !compatible(a.mode, b.mode))
        })
    }

    #[test]
    fn a_hot_key_makes_a_wave_per_writer_and_one_for_readers_between() {
        let mut waves = WavePlanner::new(1 << 12);
        let modes = [LockMode::X, LockMode::S, LockMode::S, LockMode::X, LockMode::S];
        let placed: Vec<u32> = modes
            .iter()
            .map(|mode| place(&mut waves, &[row(7, *mode)]))
            .collect();
        assert_eq!(placed, [0, 1, 1, 2, 3]);
        assert_eq!(
            place(&mut waves, &[row(8, LockMode::X)]),
            0,
            "others are not held up"
        );
        assert_eq!(waves.wave_count(), 4);
        waves.begin();
        assert_eq!(waves.wave_count(), 0);
        assert_eq!(place(&mut waves, &[row(7, LockMode::X)]), 0);
    }

    #[test]
    fn a_program_never_conflicts_with_itself() {
        let mut waves = WavePlanner::new(1 << 12);
        assert_eq!(place(&mut waves, &[row(1, LockMode::S), row(1, LockMode::X)]), 0);
        assert_eq!(place(&mut waves, &[]), 0, "who needs nothing waits for nobody");
    }

    #[test]
    fn a_row_that_is_read_never_waits_for_a_range_that_rows_come_into() {
        let mut waves = WavePlanner::new(64);
        for n in 0..500_u64 {
            let resource = ResourceId::range(TableId(1), &n.to_be_bytes());
            let into = LockRequest::new(resource, LockMode::IX);
            assert_eq!(place(&mut waves, &[into, row(n, LockMode::S)]), 0, "{n}");
        }
    }

    /// 1,000 programs that write 4 rows each, in 40,000 partitions, then ranges of one partition each: a
    /// tenth of them meet a write.
    #[test]
    fn ranges_wait_for_writes_of_their_partition_and_hardly_for_others() {
        let mut waves = WavePlanner::new(1 << 16);
        let mut random = weft_base::Prng::new(7);
        let range = |n: u64, mode| LockRequest::new(ResourceId::range(TableId(1), &n.to_be_bytes()), mode);
        let mut written = std::collections::HashSet::new();
        for n in 0..4_000_u64 {
            let partition = random.below(40_000);
            written.insert(partition);
            place(&mut waves, &[range(partition, LockMode::IX), row(n, LockMode::X)]);
        }
        let (mut waited, mut must) = (0, 0);
        for _ in 0..1_000 {
            let partition = random.below(40_000);
            must += u32::from(written.contains(&partition));
            waited += u32::from(place(&mut waves, &[range(partition, LockMode::S)]) > 0);
        }
        assert!(
            must <= waited && waited < 2 * must,
            "{waited}, of which {must} must"
        );
    }

    #[test]
    fn a_later_reader_may_join_a_wave_below_the_last_reader() {
        let mut waves = WavePlanner::new(1 << 12);
        assert_eq!(place(&mut waves, &[row(1, LockMode::X)]), 0);
        assert_eq!(place(&mut waves, &[row(1, LockMode::S), row(2, LockMode::X)]), 1);
        assert_eq!(place(&mut waves, &[row(2, LockMode::X)]), 2);
        assert_eq!(place(&mut waves, &[row(1, LockMode::S), row(2, LockMode::S)]), 3);
        assert_eq!(place(&mut waves, &[row(1, LockMode::S)]), 1);
        // The writer waits for the last of the readers, not for the one that came last.
        assert_eq!(place(&mut waves, &[row(1, LockMode::X)]), 4);
    }

    #[test]
    fn earlier_programs_precede_conflicting_later_ones() {
        let mut waves = WavePlanner::new(64);
        waves.place_first(&[row(1, LockMode::X)]);
        waves.place_first(&[row(1, LockMode::S), row(2, LockMode::X)]);
        assert_eq!(waves.wave_count(), 1);
        waves.fetch(&[row(1, LockMode::S)]);
        assert_eq!(place(&mut waves, &[row(1, LockMode::S)]), 1);
        assert_eq!(place(&mut waves, &[row(2, LockMode::X)]), 1);
    }

    #[test]
    fn wave_numbers_start_again_before_they_end() {
        let mut waves = WavePlanner::new(64);
        for batch in 0..20 {
            waves.begin();
            for wave in 0..7000 {
                assert_eq!(waves.place(&[row(1, LockMode::X)]), Some(wave), "batch {batch}");
            }
        }
    }

    #[test]
    fn a_batch_has_a_highest_wave() {
        let mut waves = WavePlanner::new(64);
        for _ in 0..3 {
            waves.begin();
            for wave in 0..WAVES_MAX {
                assert_eq!(waves.place(&[row(1, LockMode::X)]), Some(wave));
            }
            assert_eq!(waves.place(&[row(1, LockMode::X), row(2, LockMode::X)]), None);
            assert_eq!(waves.place(&[row(2, LockMode::X)]), Some(0));
            assert_eq!(waves.wave_count(), WAVES_MAX);
        }
    }

    #[test]
    fn members_are_ordered_by_wave_and_then_by_placement() {
        let mut members = Arrangement::default();
        members.arrange([1, 0, 2, 0, 1].into_iter());
        assert_eq!(members.order(), [1, 3, 0, 4, 2]);
        assert_eq!(members.ends(), [2, 4, 5]);
        members.arrange([0, 0].into_iter());
        assert_eq!((members.order(), members.ends()), (&[0, 1][..], &[2][..]));
        members.arrange(std::iter::empty());
        assert!(members.order().is_empty() && members.ends().is_empty());
    }

    /// Up to four of so many resources, in any modes.
    fn program(resources: u64) -> impl Strategy<Value = Vec<LockRequest>> {
        let request = (0..resources, 0usize..MODES.len()).prop_map(|(n, mode)| row(n, MODES[mode]));
        prop::collection::vec(request, 0..5)
    }

    proptest! {
        /// With a table so large that these keys do not collide: exactly one more than the highest wave of
        /// the programs before that conflict.
        #[test]
        fn waves_are_those_of_the_model(
            batches in prop::collection::vec(prop::collection::vec(program(12), 0..40), 1..4),
        ) {
            let mut waves = WavePlanner::new(1 << 20);
            for programs in batches {
                waves.begin();
                let mut placed: Vec<u32> = Vec::new();
                for (n, requests) in programs.iter().enumerate() {
                    let model = (0..n)
                        .filter(|earlier| conflict(&programs[*earlier], requests))
                        .map(|earlier| placed[earlier] + 1)
                        .max()
                        .unwrap_or(0);
                    let wave = place(&mut waves, requests);
                    prop_assert_eq!(wave, model);
                    placed.push(wave);
                }
                prop_assert_eq!(waves.wave_count(), placed.iter().map(|wave| wave + 1).max().unwrap_or(0));
            }
        }

        /// With a table so small that most slots stand for several resources: later, perhaps, but never
        /// wrong.
        #[test]
        fn collisions_keep_the_order_of_conflicting_programs(
            programs in prop::collection::vec(program(500), 0..60),
        ) {
            let mut waves = WavePlanner::new(64);
            let mut placed: Vec<(usize, u32)> = Vec::new();
            for (n, requests) in programs.iter().enumerate() {
                let wave = place(&mut waves, requests);
                for (earlier, before) in &placed {
                    if conflict(&programs[*earlier], requests) {
                        prop_assert!(*before < wave);
                    }
                }
                placed.push((n, wave));
            }
        }
    }
}
