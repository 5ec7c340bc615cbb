//! The wave planner: conflicting programs of one batch are put into waves that run one after the other.
//!
//! Hobbes' batch lock manager (`stamps`) refuses a program that conflicts with an admitted one, so one hot
//! key cuts every batch to a single member. Here such a program goes into the first wave after everything
//! that it conflicts with. A slot remembers, for each mode, the last wave in which somebody had it so; a
//! program's wave is one more than the highest among the modes that conflict with its own, over all its
//! slots.
//!
//! ```text
//! wave of a program = 1 + max over its requests, over the modes that conflict: last wave of that mode there
//!
//! slot (16 bytes) | IS u32 | IX u32 | S u32 | X u32 |    last wave of each mode; SIX is S and IX
//!                   ^ wave numbers go on from batch to batch, so that a number below `first` is void:
//!                     "release all" costs nothing, as with stamps
//! ```
//!
//! Invariants: 1. No two programs of one wave conflict. 2. Of two conflicting programs the one placed first
//! has the lower wave, so waves run in order give what the programs one by one in placement order would
//! give. 3. A collision of two resources on one slot can only make a wave later. 4. The outcome depends on
//! nothing but the sequence of calls.
//!
//! Cost: two passes over the requests, 16 bytes of a table each; nothing is allocated.
//!
//! Source: Hobbes 3.3.3 (Algorithm 1, which has one wave); DESIGN.md, Batches (waves).

use weft_base::memory::prefetch;
use weft_lock::{LockMode, LockRequest};

/// Wave numbers of one slot, by mode; see the module.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(16))]
struct LastWaves([u32; 4]);

const IS: usize = 0;
const IX: usize = 1;
const S: usize = 2;
const X: usize = 3;

/// The parts of a mode: SIX conflicts with what S or IX conflicts with, so it counts as both.
const fn parts(mode: LockMode) -> [bool; 4] {
    match mode {
        LockMode::NL => [false; 4],
        LockMode::IS => [true, false, false, false],
        LockMode::IX => [false, true, false, false],
        LockMode::S => [false, false, true, false],
        LockMode::SIX => [false, true, true, false],
        LockMode::X => [false, false, false, true],
    }
}

impl LastWaves {
    /// The last wave of a conflicting mode.
    #[inline]
    fn conflicting(&self, mode: LockMode) -> u32 {
        let last = &self.0;
        match mode {
            LockMode::NL => 0,
            LockMode::IS => last[X],
            LockMode::IX => last[S].max(last[X]),
            LockMode::S => last[IX].max(last[X]),
            LockMode::SIX => last[IX].max(last[S]).max(last[X]),
            LockMode::X => last[IS].max(last[IX]).max(last[S]).max(last[X]),
        }
    }

    #[inline]
    fn raise(&mut self, mode: LockMode, wave: u32) {
        for (last, part) in self.0.iter_mut().zip(parts(mode)) {
            if part {
                *last = wave.max(*last);
            }
        }
    }
}

/// Plans the waves of one batch after the other.
#[derive(Debug)]
pub struct WavePlanner {
    slots: Box<[LastWaves]>,
    index_mask: u64,
    /// Number of the open batch's wave 0. At least 1, so that 0 is before every wave.
    first: u32,
    /// One past the highest wave given out.
    end: u32,
}

impl WavePlanner {
    /// A planner with `slot_count` slots, rounded up to a power of two, at least 64. 16 bytes a slot.
    pub fn new(slot_count: usize) -> WavePlanner {
        let slot_count = slot_count.max(64).next_power_of_two();
        WavePlanner {
            slots: vec![LastWaves::default(); slot_count].into_boxed_slice(),
            index_mask: slot_count as u64 - 1,
            first: 1,
            end: 1,
        }
    }

    /// Starts a new batch: it conflicts with nothing placed before. Every two thousand million waves the
    /// table is cleared.
    pub fn begin(&mut self) {
        if self.end > u32::MAX / 2 {
            self.slots.fill(LastWaves::default());
            self.end = 1;
        }
        self.first = self.end;
    }

    /// Waves that the open batch has by now.
    pub fn wave_count(&self) -> u32 {
        self.end - self.first
    }

    #[inline]
    fn slot_of(&self, request: &LockRequest) -> usize {
        // The id is a hash already; fold its upper half in, since its top bits name the kind.
        let id = request.resource.0;
        ((id ^ (id >> 32)) & self.index_mask) as usize
    }

    /// Fetches the slots of some requests, which will be placed soon.
    #[inline]
    pub fn fetch(&self, requests: &[LockRequest]) {
        for request in requests {
            if let Some(slot) = self.slots.get(self.slot_of(request)) {
                prefetch(slot);
            }
        }
    }

    /// The wave of the next program, from 0. A program never conflicts with itself. A batch has room for two
    /// thousand million programs; its bound is far below.
    #[inline]
    pub fn place(&mut self, requests: &[LockRequest]) -> u32 {
        let wave = self.wave_of(requests);
        self.record(requests, wave);
        wave - self.first
    }

    /// Puts somebody into wave 0 who is known not to conflict with anybody there, whatever collides.
    pub fn place_first(&mut self, requests: &[LockRequest]) {
        self.record(requests, self.first);
    }

    #[inline]
    fn wave_of(&self, requests: &[LockRequest]) -> u32 {
        let mut wave = self.first;
        for request in requests {
            let last = self.slots[self.slot_of(request)].conflicting(request.mode);
            wave = wave.max(last.saturating_add(1));
        }
        wave
    }

    #[inline]
    fn record(&mut self, requests: &[LockRequest], wave: u32) {
        for request in requests {
            let slot = self.slot_of(request);
            self.slots[slot].raise(request.mode, wave);
        }
        debug_assert!(wave < u32::MAX, "a batch is bounded");
        self.end = self.end.max(wave.saturating_add(1));
    }
}

/// Members in the order of their waves: those of one wave one after the other, in the order of placement.
#[derive(Debug, Default)]
pub struct Arrangement {
    order: Vec<usize>,
    ends: Vec<usize>,
    waves: Vec<u32>,
}

impl Arrangement {
    /// Arranges members, given the wave of each in the order of placement. Every wave below the highest has
    /// a member, as a planner makes them.
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
        // Counts; sums; deals out.
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

    /// Where each wave ends in [`Arrangement::order`].
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

    fn conflict(one: &[LockRequest], other: &[LockRequest]) -> bool {
        one.iter().any(|a| {
            other
                .iter()
                .any(|b| a.resource == b.resource && !compatible(a.mode, b.mode))
        })
    }

    #[test]
    fn a_hot_key_makes_a_wave_for_each_writer_and_one_for_readers_between() {
        let mut waves = WavePlanner::new(1 << 12);
        let modes = [LockMode::X, LockMode::S, LockMode::S, LockMode::X, LockMode::S];
        let placed: Vec<u32> = modes.iter().map(|mode| waves.place(&[row(7, *mode)])).collect();
        assert_eq!(placed, [0, 1, 1, 2, 3]);
        assert_eq!(waves.place(&[row(8, LockMode::X)]), 0, "others are not held up");
        assert_eq!(waves.wave_count(), 4);
        waves.begin();
        assert_eq!(waves.wave_count(), 0);
        assert_eq!(waves.place(&[row(7, LockMode::X)]), 0);
    }

    #[test]
    fn a_program_never_conflicts_with_itself() {
        let mut waves = WavePlanner::new(1 << 12);
        assert_eq!(waves.place(&[row(1, LockMode::S), row(1, LockMode::X)]), 0);
        assert_eq!(waves.place(&[]), 0, "who needs nothing waits for nobody");
    }

    #[test]
    fn a_later_reader_may_join_a_wave_below_the_last_reader() {
        let mut waves = WavePlanner::new(1 << 12);
        assert_eq!(waves.place(&[row(1, LockMode::X)]), 0);
        assert_eq!(waves.place(&[row(1, LockMode::S), row(2, LockMode::X)]), 1);
        assert_eq!(waves.place(&[row(2, LockMode::X)]), 2);
        assert_eq!(waves.place(&[row(1, LockMode::S), row(2, LockMode::S)]), 3);
        assert_eq!(waves.place(&[row(1, LockMode::S)]), 1);
        // The writer waits for the last of the readers, not for the one that came last.
        assert_eq!(waves.place(&[row(1, LockMode::X)]), 4);
    }

    #[test]
    fn who_is_placed_first_stands_before_all_that_conflicts() {
        let mut waves = WavePlanner::new(64);
        waves.place_first(&[row(1, LockMode::X)]);
        waves.place_first(&[row(1, LockMode::S), row(2, LockMode::X)]);
        assert_eq!(waves.wave_count(), 1);
        waves.fetch(&[row(1, LockMode::S)]);
        assert_eq!(waves.place(&[row(1, LockMode::S)]), 1);
        assert_eq!(waves.place(&[row(2, LockMode::X)]), 1);
    }

    #[test]
    fn wave_numbers_start_again_before_they_end() {
        let mut waves = WavePlanner::new(64);
        waves.place(&[row(1, LockMode::X)]);
        waves.end = u32::MAX / 2 + 1;
        waves.begin();
        assert_eq!(waves.place(&[row(1, LockMode::X)]), 0);
        assert_eq!(waves.place(&[row(1, LockMode::X)]), 1);
    }

    #[test]
    fn members_stand_by_wave_and_as_placed_within() {
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
                    let wave = waves.place(requests);
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
                let wave = waves.place(requests);
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
