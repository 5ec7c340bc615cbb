//! Partitioning: from a feed into as many places as there are partitions, at the speed of memory.
//!
//! ```text
//! input --> part_of(key) --> buffer of that part, one cache line --> full: written past the caches
//!
//! target:  | part 0: writer 0 | writer 1 | part 1: writer 0 | writer 1 | ...   each begins at a cache line
//! ```
//!
//! A histogram first tells how many tuples each writer has for each part; from it follows where each one
//! writes (Barthels 3.2.1: private buffers, sized by the histogram, so that no two writers meet). Tuples are
//! collected in one cache line for each part, which is written as a whole and past the caches: no line of the
//! target is read before it is written, and no TLB entry is needed for each tuple (Balkesen et al.,
//! "Main-memory hash joins on multi-core CPUs", 2013).
//!
//! A source that gives other tuples at the second reading could fill a place beyond its end. Every line is
//! checked against that before it is written.

use std::sync::Arc;

use weft_base::Budget;

use crate::array::{Array, Plain};
use crate::error::JoinError;
use crate::feed::Feed;
use crate::form::{Form, Input};
use crate::workers::Control;

/// Which part a mixed key belongs to.
pub(crate) trait Placing: Sync {
    /// How many parts.
    fn parts(&self) -> usize;
    /// The part, below [`Placing::parts`].
    fn part_of(&self, mixed: u64) -> usize;
}

/// By so many bits behind the highest `skip` bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Radix {
    pub(crate) skip: u32,
    pub(crate) bits: u32,
}

impl Placing for Radix {
    fn parts(&self) -> usize {
        1 << self.bits
    }

    #[inline(always)]
    fn part_of(&self, mixed: u64) -> usize {
        let rest = mixed.checked_shl(self.skip).unwrap_or(0);
        rest.checked_shr(u64::BITS - self.bits).unwrap_or(0) as usize
    }
}

/// Inputs whose keys are outside of the form's bounds: an error on the build side, from which the bounds
/// come.
pub(crate) type Outside<'a> = &'a mut dyn FnMut(u64) -> Result<(), JoinError>;

/// The [`Outside`] of a build side.
pub(crate) fn no_outside(_: u64) -> Result<(), JoinError> {
    Err(JoinError::Source)
}

/// Counts the tuples of each part.
pub(crate) fn histogram<F: Form, B>(
    control: &Control<'_>,
    (form, placing): (&F, &impl Placing),
    feed: &B,
) -> Result<Vec<usize>, JoinError>
where
    B: Feed,
    B::Item: Input<F>,
{
    let mut counts = vec![0_usize; placing.parts()];
    let mut space = Vec::new();
    for morsel in 0..feed.morsels() {
        control.check()?;
        for input in feed.read(morsel, &mut space)? {
            let (mixed, is_inside) = input.mixed(form);
            if let Some(count) = counts.get_mut(placing.part_of(mixed)) {
                *count += usize::from(is_inside);
            }
        }
    }
    Ok(counts)
}

/// One writer's place for one part, in items.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    first: usize,
    count: usize,
}

/// Where every part of one side is.
pub(crate) struct Layout {
    writers: usize,
    /// By part, then by writer.
    places: Vec<Place>,
    /// Items of the array, gaps included.
    len: usize,
}

impl Layout {
    /// From one histogram a writer, for lines of so many items.
    pub(crate) fn new(histograms: &[Vec<usize>], lanes: usize) -> Layout {
        let writers = histograms.len();
        let parts = histograms.first().map_or(0, Vec::len);
        let mut places = Vec::with_capacity(parts * writers);
        let mut first = 0;
        for part in 0..parts {
            for histogram in histograms {
                let count = histogram.get(part).copied().unwrap_or(0);
                places.push(Place { first, count });
                first += count.next_multiple_of(lanes);
            }
        }
        Layout {
            writers,
            places,
            len: first,
        }
    }

    /// Tuples of a part.
    pub(crate) fn count(&self, part: usize) -> usize {
        self.places_of(part).iter().map(|place| place.count).sum()
    }

    /// Where a part begins in the array of a layout with one writer.
    pub(crate) fn first_of(&self, part: usize) -> usize {
        self.place(part, 0).first
    }

    /// Items that the array must have room for.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn places_of(&self, part: usize) -> &[Place] {
        let first = part * self.writers;
        self.places.get(first..first + self.writers).unwrap_or_default()
    }

    /// What was written for a part, a piece a writer.
    pub(crate) fn pieces<'a, I>(&'a self, part: usize, items: &'a [I]) -> impl Iterator<Item = &'a [I]> {
        let piece = |place: &Place| items.get(place.first..place.first + place.count);
        self.places_of(part).iter().filter_map(piece)
    }

    /// Whole lines of one writer's place for a part.
    fn place(&self, part: usize, writer: usize) -> Place {
        self.places
            .get(part * self.writers + writer)
            .copied()
            .unwrap_or_default()
    }
}

/// The array of a layout.
pub(crate) fn target<I: Plain>(layout: &Layout, budget: Option<&Arc<Budget>>) -> Result<Array<I>, JoinError> {
    Array::new(layout.len(), budget, "partitions")
}

/// A cache line being filled.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Buffer([u64; 8]);

/// Writes a feed's tuples to the places of one writer.
///
/// # Safety
/// The array has at least [`Layout::len`] items, nobody reads it before this has returned, and nobody else
/// writes as this writer.
pub(crate) unsafe fn scatter<F: Form, B>(
    control: &Control<'_>,
    (form, placing): (&F, &impl Placing),
    feed: &B,
    (layout, writer, target): (&Layout, usize, &Array<F::Item>),
    outside: Outside<'_>,
) -> Result<(), JoinError>
where
    B: Feed,
    B::Item: Input<F>,
{
    if target.len() < layout.len() {
        return Err(JoinError::Source);
    }
    let places: Vec<Place> = (0..placing.parts())
        .map(|part| layout.place(part, writer))
        .collect();
    let mut buffers = vec![Buffer([0; 8]); places.len()];
    let mut next: Vec<usize> = places.iter().map(|place| place.first).collect();
    let mut space = Vec::new();
    for morsel in 0..feed.morsels() {
        control.check()?;
        for input in feed.read(morsel, &mut space)? {
            let (mixed, is_inside) = input.mixed(form);
            if !is_inside {
                outside(input.row(form))?;
                continue;
            }
            let Some(item) = input.item(form) else {
                return Err(JoinError::Source);
            };
            let part = placing.part_of(mixed);
            let (Some(at), Some(buffer)) = (next.get_mut(part), buffers.get_mut(part)) else {
                return Err(JoinError::Source);
            };
            let lane = *at % F::LANES;
            put::<F>(buffer, lane, item);
            *at += 1;
            if lane == F::LANES - 1 {
                let first = *at - F::LANES;
                let place = places.get(part).copied().unwrap_or_default();
                if first + F::LANES > place.first + place.count.next_multiple_of(F::LANES) {
                    return Err(JoinError::Source);
                }
                // SAFETY: a whole line inside of this writer's place, which is inside of the array.
                unsafe { write_line(buffer, target.base().as_ptr().add(first).cast()) };
            }
        }
    }
    for ((place, at), buffer) in places.iter().zip(next).zip(&buffers) {
        if at != place.first + place.count {
            return Err(JoinError::Source);
        }
        let left = at % F::LANES;
        // SAFETY: so many items at the end of this writer's place, which begins at a line.
        unsafe {
            let items = buffer.0.as_ptr().cast::<F::Item>();
            target
                .base()
                .as_ptr()
                .add(at - left)
                .copy_from_nonoverlapping(items, left);
        }
    }
    finish_lines();
    Ok(())
}

#[inline(always)]
fn put<F: Form>(buffer: &mut Buffer, lane: usize, item: F::Item) {
    let [first, second] = F::words(item);
    let words = 8 / F::LANES;
    if let Some(place) = buffer.0.get_mut(lane * words) {
        *place = first;
    }
    if words == 2
        && let Some(place) = buffer.0.get_mut(lane * words + 1)
    {
        *place = second;
    }
}

/// Writes a line past the caches.
///
/// # Safety
/// 64 bytes may be written, at a multiple of 64.
#[inline(always)]
unsafe fn write_line(buffer: &Buffer, to: *mut u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE2 is part of the architecture; four times 16 bytes within the line.
    unsafe {
        use std::arch::x86_64::{_mm_load_si128, _mm_stream_si128};
        let from = buffer.0.as_ptr();
        for quarter in 0..4 {
            let words = _mm_load_si128(from.add(2 * quarter).cast());
            _mm_stream_si128(to.add(2 * quarter).cast(), words);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: as the caller says.
    unsafe {
        to.copy_from_nonoverlapping(buffer.0.as_ptr(), 8);
    }
}

/// Orders lines that were written past the caches before what follows.
fn finish_lines() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a fence, of SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::feed::Raw;
    use crate::form::{Narrow, Order, Wide};
    use crate::tuple::Tuple;

    /// Partitions by so many writers; what each part has then, as key and row, sorted.
    fn partitioned<F: Form>(form: F, radix: Radix, tuples: &[Tuple], writers: usize) -> Vec<Vec<(u64, u64)>> {
        let control = Control::new(None);
        let feed = Raw::new(&tuples);
        let by = (&form, &radix);
        let counts: Vec<_> = (0..writers)
            .map(|writer| histogram::<F, _>(&control, by, &feed.part(writer, writers)).unwrap())
            .collect();
        let layout = Layout::new(&counts, F::LANES);
        let target = target::<F::Item>(&layout, None).unwrap();
        for writer in 0..writers {
            let part = feed.part(writer, writers);
            let to = (&layout, writer, &target);
            // SAFETY: the array is of the layout, and nobody else writes.
            unsafe { scatter(&control, by, &part, to, &mut no_outside).unwrap() };
        }
        let items = |part| {
            let items = layout.pieces(part, target.as_slice()).flatten();
            let mut items: Vec<_> = items.map(|item| (form.key(*item), form.row(*item))).collect();
            assert_eq!(items.len(), layout.count(part));
            items.sort_unstable();
            items
        };
        (0..radix.parts()).map(items).collect()
    }

    fn expected<F: Form>(form: F, radix: Radix, tuples: &[Tuple]) -> Vec<Vec<(u64, u64)>> {
        let mut parts = vec![Vec::new(); radix.parts()];
        for tuple in tuples {
            let key = Input::<F>::key(*tuple, &form).0;
            parts[radix.part_of(form.mix(tuple.key).0)].push((key, tuple.row));
        }
        parts.iter_mut().for_each(|part| part.sort_unstable());
        parts
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 100 }))]

        #[test]
        fn every_tuple_is_in_its_part(
            keys in prop::collection::vec(0_u64..1000, 0..if cfg!(miri) { 50 } else { 500 }),
            writers in 1_usize..4, bits in 1_u32..6,
        ) {
            let tuples: Vec<Tuple> = (0..).zip(&keys).map(|(row, key)| Tuple { key: *key, row }).collect();
            let radix = Radix { skip: 0, bits };
            let wide = Wide::new(Order::Mixed);
            let found = partitioned(wide, radix, &tuples, writers);
            prop_assert_eq!(found, expected(wide, radix, &tuples));
            let narrow = Narrow::new((0, 1000), (0, 1000), bits, Order::Mixed).unwrap();
            let found = partitioned(narrow, radix, &tuples, writers);
            prop_assert_eq!(found, expected(narrow, radix, &tuples));
        }
    }

    #[test]
    fn more_tuples_than_were_counted_are_an_error() {
        let control = Control::new(None);
        let (form, radix) = (Wide::new(Order::Mixed), Radix { skip: 0, bits: 2 });
        let few: &[Tuple] = &[Tuple::default(); 3];
        let many: &[Tuple] = &[Tuple::default(); 40];
        let counts = histogram::<Wide, _>(&control, (&form, &radix), &Raw::new(&few)).unwrap();
        let layout = Layout::new(&[counts], Wide::LANES);
        let target = target(&layout, None).unwrap();
        for other in [many, &[]] {
            let to = (&layout, 0, &target);
            let feed = Raw::new(&other);
            // SAFETY: the array is of the layout, and nobody else writes.
            let outcome = unsafe { scatter(&control, (&form, &radix), &feed, to, &mut no_outside) };
            assert!(matches!(outcome, Err(JoinError::Source)));
        }
    }
}
