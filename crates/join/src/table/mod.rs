//! The hash table of both hash joins: one cache line a bucket, no pointers.
//!
//! ```text
//! narrow  | word 0 | word 1 | ...                              | word 7 |     8 items
//! wide    | key 0  | key 1  | key 2 | key 3 | row 0 | ...      | row 3  |     4 items
//! ```
//!
//! A tuple belongs into the line that its mixed key names, and goes into the next one while that is full,
//! [`REACH`] lines at most; then into the *overflow*, which is sorted by key when all is built. So:
//!
//! 1. Lanes are filled from the first one on, and nothing is ever removed: a search ends at the first lane
//!    that is empty.
//! 2. A search looks at [`REACH`] lines, and into the overflow only when all of them are full. Whatever the
//!    keys are (all equal, or chosen to meet in one line), building takes no more than sorting does, and a
//!    search no more than a binary search and what it finds.
//! 3. Zeros are empty. A wide item whose mixed key is zero goes into the overflow at once.
//!
//! Several workers fill a table either with a region of lines for each, all of them reading the whole build
//! side and each taking what belongs into its region; or, when they are many or reading is dear, together: a
//! lane is then taken by compare-and-swap of its key, the row is written after it, and nobody reads before
//! all have ended. The first way is faster for few workers, because the lanes of a line are looked at
//! together and no atomic operation waits for a cache line. On both sides lines are prefetched some
//! tuples ahead, so that many cache misses overlap: that is what makes a table larger than the cache as fast
//! as memory allows.

mod lookup;
mod overflow;
mod probe;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use weft_base::Reservation;
use weft_base::memory::prefetch;

use crate::array::Plain;
use crate::error::JoinError;
use crate::form::{Form, Input};
use crate::output::Output;
use crate::processor::Processor;
use crate::tuple::Consumer;
use lookup::{Lookup, Portable};

pub(crate) use overflow::Overflow;

/// Lines of a table that a search looks at.
pub(crate) const REACH: usize = 4;
/// Tuples ahead of which lines are asked for.
const AHEAD: usize = 24;
/// Lines of a table that a worker claims at a time for [`Table::sweep`].
pub(crate) const SWEEP_LINES: usize = 4096;

/// A cache line of a table.
#[repr(C, align(64))]
pub(crate) struct Line([AtomicU64; 8]);

// SAFETY: eight integers; atomics have their layout, and zeros are a value.
unsafe impl Plain for Line {}

// SAFETY: an integer.
unsafe impl Plain for AtomicU8 {}

impl Line {
    /// Its words, when nobody writes any more.
    #[inline(always)]
    fn words(&self) -> &[u64; 8] {
        // SAFETY: atomics have the layout of integers. Tables are only read after those that filled them have
        // ended, which the types say: `Table` is made of a table that is filled.
        unsafe { &*self.0.as_ptr().cast::<[u64; 8]>() }
    }

    /// Makes it empty.
    pub(crate) fn clear(&mut self) {
        for word in &mut self.0 {
            *word.get_mut() = 0;
        }
    }
}

/// Lines of a table for so many tuples.
pub(crate) fn line_count(tuples: usize, lanes: usize) -> usize {
    // 5 of 8 and 2.5 of 4 lanes are full: hardly one line in ten is full with keys in random order.
    tuples / (5 * lanes / 4) * 2 + REACH + 1
}

/// What one worker fills of a table.
pub(crate) struct Region {
    lines: Range<usize>,
    /// The lowest hash that names one of the lines, and how far the highest one is above it.
    hash_min: u64,
    hash_span: u64,
    /// There are more workers than lines.
    is_empty: bool,
}

/// The lines of a table, being filled or full.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a, F> {
    form: F,
    lines: &'a [Line],
    /// Lines that a key may name; [`REACH`] less one more are there.
    named: u64,
    /// Highest bits of keys that are the same for all tuples of the table.
    skip: u32,
}

impl<'a, F: Form> Slots<'a, F> {
    /// At least [`REACH`] empty lines.
    pub(crate) fn new(form: F, lines: &'a [Line], skip: u32) -> Slots<'a, F> {
        let named = lines.len().saturating_sub(REACH - 1) as u64;
        Slots {
            form,
            lines,
            named,
            skip,
        }
    }

    /// What did not fit into the lines, as a [`Table`] has it, and its reservation.
    pub(crate) fn sorted(&self, overflow: Overflow<F::Item>) -> (Vec<F::Item>, Option<Reservation>) {
        let (mut items, room) = overflow.into_items();
        items.sort_unstable_by_key(|item| self.form.key(*item));
        (items, room)
    }

    /// The line that a key names.
    #[inline(always)]
    fn line_of(&self, key: u64) -> usize {
        let hash = key.checked_shl(self.skip).unwrap_or(0);
        ((u128::from(hash) * u128::from(self.named)) >> 64) as usize
    }

    #[inline(always)]
    fn prefetch(&self, key: u64) {
        prefetch(self.lines.as_ptr().wrapping_add(self.line_of(key)));
    }

    /// Lines that one of so many workers owns.
    pub(crate) fn region(&self, number: usize, workers: usize) -> Region {
        let named = u128::from(self.named.max(1));
        let bound = |at: usize| (named * at as u128 / workers.max(1) as u128) as usize;
        // The lowest hash that names a line.
        let hash = |line: usize| ((line as u128) << 64).div_ceil(named);
        let (first, end) = (bound(number), bound(number + 1));
        let is_last = number + 1 == workers;
        let hashes_end = if is_last { 1 << 64 } else { hash(end) };
        let hash_min = hash(first) as u64;
        Region {
            lines: first..if is_last { self.lines.len() } else { end },
            hash_min,
            is_empty: first == end,
            hash_span: (hashes_end.saturating_sub(1) as u64).wrapping_sub(hash_min),
        }
    }

    /// Whether a worker with these lines puts the tuple in.
    #[inline(always)]
    pub(crate) fn is_in<I: Input<F>>(&self, region: &Region, input: I) -> bool {
        let hash = input.key(&self.form).0.checked_shl(self.skip).unwrap_or(0);
        !region.is_empty & (hash.wrapping_sub(region.hash_min) <= region.hash_span)
    }

    /// Puts tuples in, as the only one that writes to the lines of the region. What belongs into lines
    /// behind it is `deferred`.
    ///
    /// # Safety
    /// No other thread reads or writes these lines meanwhile.
    pub(crate) unsafe fn insert_owned<I: Input<F>>(
        &self,
        processor: Processor,
        region: &Region,
        inputs: &[I],
        (overflow, deferred): (&mut Overflow<F::Item>, &mut Overflow<F::Item>),
    ) -> Result<(), JoinError> {
        let lists = (overflow, deferred);
        // SAFETY: as the caller says, and there is such a processor only where it has the instructions.
        unsafe {
            match processor {
                Processor::Portable => self.insert_with::<Portable, I>(region, inputs, lists),
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Processor::Avx2 => self.insert_avx2(region, inputs, lists),
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Processor::Avx512 => self.insert_avx512(region, inputs, lists),
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    unsafe fn insert_avx2<I: Input<F>>(
        &self,
        region: &Region,
        inputs: &[I],
        lists: (&mut Overflow<F::Item>, &mut Overflow<F::Item>),
    ) -> Result<(), JoinError> {
        // SAFETY: as the caller says.
        unsafe { self.insert_with::<lookup::Avx2, I>(region, inputs, lists) }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,bmi1,bmi2,popcnt,lzcnt")]
    unsafe fn insert_avx512<I: Input<F>>(
        &self,
        region: &Region,
        inputs: &[I],
        lists: (&mut Overflow<F::Item>, &mut Overflow<F::Item>),
    ) -> Result<(), JoinError> {
        // SAFETY: as the caller says.
        unsafe { self.insert_with::<lookup::Avx512, I>(region, inputs, lists) }
    }

    /// # Safety
    /// As [`Slots::insert_owned`], and the processor has what `L` needs.
    #[inline(always)]
    unsafe fn insert_with<L: Lookup, I: Input<F>>(
        &self,
        region: &Region,
        inputs: &[I],
        (overflow, deferred): (&mut Overflow<F::Item>, &mut Overflow<F::Item>),
    ) -> Result<(), JoinError> {
        let is_full = (1_u32 << F::LANES) - 1;
        for input in inputs.iter().take(AHEAD) {
            self.prefetch(input.key(&self.form).0);
        }
        for (at, input) in inputs.iter().enumerate() {
            if let Some(later) = inputs.get(at + AHEAD) {
                self.prefetch(later.key(&self.form).0);
            }
            let item = input.item(&self.form).ok_or(JoinError::Source)?;
            let key = self.form.key(item);
            if F::HAS_ZERO_KEY && key == 0 {
                overflow.push(item)?;
                continue;
            }
            let first = self.line_of(key);
            let reach = self.lines.get(first..first + REACH).unwrap_or_default();
            let mut left = reach.iter().take(region.lines.end.saturating_sub(first));
            loop {
                let Some(line) = left.next() else {
                    match first + REACH > region.lines.end {
                        true => deferred.push(item)?,
                        false => overflow.push(item)?,
                    }
                    break;
                };
                // SAFETY: as the caller says.
                let used = unsafe { L::lanes::<F>(line, 0, 0).used };
                if used != is_full {
                    let lane = used.trailing_ones() as usize;
                    let [word, row] = F::words(item);
                    if let Some(place) = line.0.get(lane) {
                        place.store(word, Ordering::Relaxed);
                    }
                    if let Some(place) = line.0.get(lane + F::LANES) {
                        place.store(row, Ordering::Relaxed);
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// Puts tuples in while other workers do the same.
    pub(crate) fn insert_shared<I: Input<F>>(
        &self,
        inputs: &[I],
        overflow: &mut Overflow<F::Item>,
    ) -> Result<(), JoinError> {
        for input in inputs.iter().take(AHEAD) {
            self.prefetch(input.key(&self.form).0);
        }
        for (at, input) in inputs.iter().enumerate() {
            if let Some(later) = inputs.get(at + AHEAD) {
                self.prefetch(later.key(&self.form).0);
            }
            let item = input.item(&self.form).ok_or(JoinError::Source)?;
            if !self.insert(item) {
                overflow.push(item)?;
            }
        }
        Ok(())
    }

    /// Puts one in, wherever other workers left a place.
    #[inline(always)]
    fn insert(&self, item: F::Item) -> bool {
        let key = self.form.key(item);
        let [word, row] = F::words(item);
        if F::HAS_ZERO_KEY && key == 0 {
            return false;
        }
        let first = self.line_of(key);
        for line in self.lines.iter().skip(first).take(REACH) {
            for (lane, place) in line.0.iter().enumerate().take(F::LANES) {
                // Only the place itself is contended; the end of the phase orders everything else.
                let is_taken = place.load(Ordering::Relaxed) == 0
                    && place
                        .compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok();
                if is_taken {
                    if let Some(place) = line.0.get(lane + F::LANES) {
                        place.store(row, Ordering::Relaxed);
                    }
                    return true;
                }
            }
        }
        false
    }
}

/// A table that is filled.
pub(crate) struct Table<'a, F: Form> {
    slots: Slots<'a, F>,
    /// Sorted by key.
    overflow: Cow<'a, [F::Item]>,
    /// A bit for each lane, a byte for each line: has a partner. Empty if nobody asks.
    marks: &'a [AtomicU8],
    overflow_marks: Vec<AtomicU8>,
    _overflow_room: Option<Reservation>,
}

impl<'a, F: Form> Table<'a, F> {
    /// The table of these lines and what did not fit into them. `marks` has as many bytes as there are lines,
    /// all zero, or none.
    pub(crate) fn new(
        slots: Slots<'a, F>,
        overflow: Overflow<F::Item>,
        marks: &'a [AtomicU8],
    ) -> Result<Table<'a, F>, JoinError> {
        let (overflow, room) = slots.sorted(overflow);
        let mut overflow_marks = Vec::new();
        if !marks.is_empty() {
            let bytes = overflow.len();
            overflow_marks
                .try_reserve_exact(bytes)
                .map_err(|_| JoinError::Memory { bytes })?;
            overflow_marks.resize_with(bytes, AtomicU8::default);
        }
        Ok(Table {
            slots,
            overflow: Cow::Owned(overflow),
            marks,
            overflow_marks,
            _overflow_room: room,
        })
    }

    /// The table of these lines and the items that [`Slots::sorted`] gave, without marks.
    pub(crate) fn of_sorted(slots: Slots<'a, F>, overflow: &'a [F::Item]) -> Table<'a, F> {
        Table {
            slots,
            overflow: Cow::Borrowed(overflow),
            marks: &[],
            overflow_marks: Vec::new(),
            _overflow_room: None,
        }
    }

    /// The row in a lane.
    #[inline(always)]
    fn row(&self, line: &Line, lane: usize) -> u64 {
        let form = &self.slots.form;
        if F::LANES == 8 {
            let word = line.words().get(lane % 8).copied().unwrap_or(0);
            // The row field of a word stands alone in it.
            (word & !form.key_mask())
                .wrapping_sub(1)
                .wrapping_add(form.row_base())
        } else {
            line.words().get(4 + lane % 4).copied().unwrap_or(0)
        }
    }

    /// Where the items of a key begin in the overflow, and they.
    fn overflowed(&self, key: u64) -> (usize, &[F::Item]) {
        let form = &self.slots.form;
        let first = self.overflow.partition_point(|item| form.key(*item) < key);
        let rest = self.overflow.get(first..).unwrap_or_default();
        let count = rest.partition_point(|item| form.key(*item) == key);
        (first, rest.get(..count).unwrap_or_default())
    }

    /// Parts of the table that [`Table::sweep`] takes.
    pub(crate) fn sweeps(&self) -> usize {
        self.slots.lines.len().div_ceil(SWEEP_LINES) + 1
    }

    /// Tells of the build rows in one part of the table whether they have a partner.
    pub(crate) fn sweep<C: Consumer>(&self, part: usize, out: &mut Output<'_, C>) -> Result<(), JoinError> {
        let first = part * SWEEP_LINES;
        if first >= self.slots.lines.len() {
            return self.sweep_overflow(out);
        }
        let lines = self
            .slots
            .lines
            .iter()
            .zip(self.marks)
            .skip(first)
            .take(SWEEP_LINES);
        for (line, marks) in lines {
            let marks = marks.load(Ordering::Relaxed);
            for (lane, word) in line.words().iter().enumerate().take(F::LANES) {
                if *word != 0 {
                    out.build(self.row(line, lane), marks >> lane & 1 == 1)?;
                }
            }
        }
        Ok(())
    }

    /// The mark of a key's first item is that of all of them.
    fn sweep_overflow<C: Consumer>(&self, out: &mut Output<'_, C>) -> Result<(), JoinError> {
        let form = &self.slots.form;
        let (mut key, mut is_matched) = (None, false);
        for (item, mark) in self.overflow.iter().zip(&self.overflow_marks) {
            if key != Some(form.key(*item)) {
                key = Some(form.key(*item));
                is_matched = mark.load(Ordering::Relaxed) != 0;
            }
            out.build(form.row(*item), is_matched)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::array::Array;
    use crate::form::{Narrow, Order, Wide};
    use crate::tuple::{Chunk, Emit, Pair, Tuple};

    /// Keeps the pairs.
    #[derive(Default)]
    struct Pairs(Vec<Pair>);

    impl Consumer for Pairs {
        fn take(&mut self, chunk: Chunk<'_>) -> std::ops::ControlFlow<()> {
            if let Chunk::Pairs(pairs) = chunk {
                self.0.extend_from_slice(pairs);
            }
            std::ops::ControlFlow::Continue(())
        }
    }

    /// Builds in the given number of regions, or shared, and probes.
    fn joined<F: Form>(
        form: F,
        processor: Processor,
        (build, probe): (&[Tuple], &[Tuple]),
        regions: Option<usize>,
    ) -> Vec<Pair> {
        let lines = Array::<Line>::new(line_count(build.len(), F::LANES), None, "a test").unwrap();
        let slots = Slots::new(form, lines.as_slice(), 0);
        let (mut overflow, mut deferred) = (Overflow::new(None), Overflow::new(None));
        match regions {
            Some(regions) => {
                for number in 0..regions {
                    let region = slots.region(number, regions);
                    let is_mine = |tuple: &Tuple| slots.is_in(&region, *tuple);
                    let mine: Vec<Tuple> = build.iter().copied().filter(is_mine).collect();
                    let lists = (&mut overflow, &mut deferred);
                    // SAFETY: nobody else is there.
                    unsafe { slots.insert_owned(processor, &region, &mine, lists).unwrap() };
                }
                slots.insert_shared(deferred.items(), &mut overflow).unwrap();
            }
            None => {
                let lists = std::thread::scope(|scope| {
                    let insert = |part| {
                        let mut overflow = Overflow::new(None);
                        slots.insert_shared(part, &mut overflow).unwrap();
                        overflow
                    };
                    let threads = build.chunks(build.len().div_ceil(3).max(1));
                    let threads: Vec<_> = threads.map(|part| scope.spawn(move || insert(part))).collect();
                    threads
                        .into_iter()
                        .map(|thread| thread.join().unwrap())
                        .collect::<Vec<_>>()
                });
                lists.into_iter().for_each(|list| overflow.append(list).unwrap());
            }
        }
        let table = Table::new(slots, overflow, &[]).unwrap();
        let mut pairs = Pairs::default();
        let mut out = Output::new(&mut pairs, Emit::INNER);
        table.probe_all(processor, probe, &mut out).unwrap();
        out.finish().unwrap();
        pairs.0.sort_unstable();
        pairs.0
    }

    fn expected(build: &[Tuple], probe: &[Tuple]) -> Vec<Pair> {
        let mut rows = BTreeMap::<u64, Vec<u64>>::new();
        for tuple in build {
            rows.entry(tuple.key).or_default().push(tuple.row);
        }
        let partners = |tuple: &Tuple| rows.get(&tuple.key).cloned().unwrap_or_default();
        let pair = |tuple: &Tuple| {
            let probe = tuple.row;
            partners(tuple)
                .into_iter()
                .map(move |build| Pair { build, probe })
        };
        let mut pairs: Vec<Pair> = probe.iter().flat_map(pair).collect();
        pairs.sort_unstable();
        pairs
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 100 }))]

        #[test]
        fn tables_of_every_kind_find_the_same(
            build in prop::collection::vec(0_u64..200, 0..if cfg!(miri) { 60 } else { 400 }),
            probe in prop::collection::vec(0_u64..250, 0..if cfg!(miri) { 40 } else { 300 }),
            regions in 1_usize..5,
        ) {
            let tuples = |keys: &[u64]| -> Vec<Tuple> {
                (0..).zip(keys).map(|(row, key)| Tuple { key: *key, row }).collect()
            };
            let (build, probe) = (tuples(&build), tuples(&probe));
            let sides = (build.as_slice(), probe.as_slice());
            let expected = expected(&build, &probe);
            let narrow = Narrow::new((0, 200), (0, 1000), 0, Order::Mixed).unwrap();
            let wide = Wide::new(Order::Mixed);
            for processor in Processor::here() {
                for regions in [Some(1), Some(regions), None] {
                    prop_assert_eq!(&joined(narrow, processor, sides, regions), &expected);
                    prop_assert_eq!(&joined(wide, processor, sides, regions), &expected);
                }
            }
        }
    }
}
