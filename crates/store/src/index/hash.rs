//! Hash index: tables of cache lines that readers access without a latch.
//!
//! ```text
//!   shard (6 upper bits of the hash)        line (64 bytes)
//!     table: lines, how many   -----------> 7 cells, each 24 lower bits of the hash | 40 bits: slot + 1
//!     latch: for writers                    passed: entries that found this line full and went on
//! ```
//!
//! An entry's home line follows from the lower bits of its hash, as a fraction of the table's lines; if that
//! line is full, the entry is stored in a later one, and every line that it passed counts it. So a reader
//! goes on only past lines that entries have passed, and usually one line has the answer. The bits kept in a
//! cell serve to reject other keys and to find the home line when a table grows; the key itself is checked
//! against the row, which the reader needs anyway.
//!
//! Invariants:
//! 1. An entry is one atomic word and does not move while its table is current. So a reader finds every entry
//!    that exists during its whole lookup; entries that are added or removed in the meantime it may see or
//!    not.
//! 2. Entries that a reader may need exist before it pins, and are removed when nobody can need them
//!    (`index/mod.rs`). Together with 1, readers need no version counter.
//! 3. An outgrown table's memory may be reused for other lines at once. A reader therefore checks the shard's
//!    table again at the end, and starts over if it changed. Tables only grow, so the same one does not come
//!    back.
//! 4. Writers hold the shard's latch.
//!
//! Two hashes that differ only in bits that no cell keeps are one entry: see [`HashIndex::is_same_entry`].
//!
//! Source: one line per probe as in Ross, "Efficient hash probes on modern processors" (2007); that probes
//! are separable into steps, BionicDB 4.4.1.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use parking_lot::Mutex;
use smallvec::SmallVec;
use weft_base::memory::LINE_BYTES;

use crate::memory::arena::Kind;
use crate::memory::{RowMemory, SlotId};

/// Slots found for one key. Almost always one.
pub(crate) type Candidates = SmallVec<[SlotId; 4]>;

const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;
const CELLS: usize = 7;
const SLOT_BITS: u32 = 40;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const FRAGMENT_BITS: u32 = 64 - SLOT_BITS;
const FRAGMENT_MASK: u64 = (1 << FRAGMENT_BITS) - 1;
/// A table grows when it would be fuller than this: by half or a third, so that it is at least half full.
const LOAD_PERCENT_MAX: usize = 77;

/// Indexes below this many entries are not presized.
const ROOM_ENTRIES_MIN: usize = 4_096;

#[repr(C, align(64))]
struct Line {
    cells: [AtomicU64; CELLS],
    passed: AtomicU64,
}

const _: () = assert!(size_of::<Line>() == LINE_BYTES);

impl Line {
    /// A bit for each cell with an entry of this fragment.
    #[inline(always)]
    fn found(&self, fragment: u64) -> u32 {
        let cells = self.cells.iter().rev();
        cells.fold(0, |found, cell| {
            found << 1 | u32::from(slot_of(cell.load(Ordering::Acquire), fragment) < SLOT_MASK)
        })
    }
}

/// The home line of a hash, in its table as that was at some moment. Only for hints: the table may have been
/// outgrown since.
#[derive(Clone, Copy)]
pub(crate) struct HomeLine<'i>(&'i Line);

impl HomeLine<'_> {
    /// Its address.
    #[inline(always)]
    pub(crate) fn address(self) -> *const u8 {
        ptr::from_ref(self.0).cast()
    }

    /// The first slot with this hash that has its entry here.
    // Without branches: which cell holds the key is unpredictable, and a wrong guess costs a dozen
    // instructions and fetches the wrong row.
    #[inline(always)]
    pub(crate) fn first_candidate(self, hash: u64) -> Option<SlotId> {
        let mut first = NO_SLOT;
        for cell in self.0.cells.iter().rev() {
            let slot = slot_of(cell.load(Ordering::Acquire), fragment_of(hash));
            first = if slot < SLOT_MASK { slot } else { first };
        }
        (first != NO_SLOT).then_some(SlotId(first))
    }

    /// Entries found the line full and went on.
    #[inline(always)]
    pub(crate) fn was_passed(self) -> bool {
        self.0.passed.load(Ordering::Acquire) != 0
    }
}

/// Lines of one table. How many, as a [`Size`], stands in the low bits of the pointer.
#[derive(Clone, Copy)]
struct Table {
    lines: NonNull<Line>,
    size: Size,
}

/// How many lines a table has: 1, 2, 3, 4, 6, 8, 12 and so on, a power of two or half as many again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(usize);

impl Size {
    const ONE: Self = Size(0);

    #[inline(always)]
    fn lines(self) -> usize {
        ((2 + (self.0 & 1)) << (self.0 >> 1)) >> 1
    }

    fn next(self) -> Self {
        // There is nothing between one and two.
        Size(self.0 + if self == Self::ONE { 2 } else { 1 })
    }

    /// The smallest one of at least so many lines.
    fn at_least(lines: usize) -> Self {
        let mut size = Self::ONE;
        while size.lines() < lines {
            size = size.next();
        }
        size
    }
}

impl Table {
    #[inline(always)]
    fn from_tagged(tagged: *mut Line) -> Option<Self> {
        let lines = NonNull::new(tagged.map_addr(|address| address & !(LINE_BYTES - 1)))?;
        Some(Table {
            lines,
            size: Size(tagged.addr() & (LINE_BYTES - 1)),
        })
    }

    fn tagged(self) -> *mut Line {
        // Three times 2^30 lines in each shard have a cell for every slot.
        assert!(self.size.0 < LINE_BYTES, "an index has at most 2^40 entries");
        self.lines.as_ptr().map_addr(|address| address | self.size.0)
    }

    fn new(memory: &RowMemory, size: Size) -> Self {
        let bytes = size.lines() * LINE_BYTES;
        Table {
            lines: memory.arena.take(Kind::IndexLines, bytes).cast(),
            size,
        }
    }

    #[inline(always)]
    fn line_count(self) -> usize {
        self.size.lines()
    }

    fn size_bytes(self) -> usize {
        self.line_count() * LINE_BYTES
    }

    /// A line; behind the last one comes the first one again.
    ///
    /// # Safety
    /// The arena that the table came from lives as long as the result is used. `number` is less than twice
    /// the number of lines.
    #[inline(always)]
    unsafe fn line<'t>(self, number: usize) -> &'t Line {
        let number = number.checked_sub(self.line_count()).unwrap_or(number);
        debug_assert!(number < self.line_count());
        // SAFETY: inside the table; its memory stays mapped and atomic (`Kind::IndexLines`).
        unsafe { self.lines.add(number).as_ref() }
    }

    /// The same for a home line.
    ///
    /// # Safety
    /// As [`Table::line`].
    #[inline(always)]
    unsafe fn home_line<'t>(self, fragment: u64) -> &'t Line {
        // SAFETY: inside the table, and as above.
        unsafe { self.lines.add(self.home(fragment)).as_ref() }
    }

    /// The number of a home line: the fraction of all lines that the fragment is of its largest value.
    #[inline(always)]
    fn home(self, fragment: u64) -> usize {
        ((fragment & FRAGMENT_MASK) as usize * self.line_count()) >> FRAGMENT_BITS
    }
}

/// What readers access, on other cache lines than what writers write.
#[repr(align(64))]
struct Shard {
    table: AtomicPtr<Line>,
    writer: WriterSide,
}

#[repr(align(64))]
struct WriterSide {
    entries: Mutex<usize>,
}

/// A set of pairs of key hash and slot.
pub(crate) struct HashIndex {
    shards: Box<[Shard; SHARDS]>,
    memory: Arc<RowMemory>,
}

#[inline(always)]
fn fragment_of(hash: u64) -> u64 {
    hash & FRAGMENT_MASK
}

#[inline(always)]
fn cell_of(hash: u64, slot: SlotId) -> u64 {
    fragment_of(hash) << SLOT_BITS | ((slot.0 + 1) & SLOT_MASK)
}

/// The slot in a cell with an entry of this fragment; no less than [`SLOT_MASK`] in any other cell.
#[inline(always)]
fn slot_of(cell: u64, fragment: u64) -> u64 {
    cell.wrapping_sub((fragment << SLOT_BITS) + 1)
}

/// No slot has this number.
const NO_SLOT: u64 = u64::MAX;

impl HashIndex {
    pub(crate) fn new(memory: &Arc<RowMemory>) -> Self {
        let shard = || Shard {
            table: AtomicPtr::new(ptr::null_mut()),
            writer: WriterSide {
                entries: Mutex::new(0),
            },
        };
        HashIndex {
            shards: Box::new(std::array::from_fn(|_| shard())),
            memory: Arc::clone(memory),
        }
    }

    /// Presizes an empty index for this many entries, so that hardly any shard has to grow if hashes are
    /// spread evenly; a small index just grows. Nobody else may know the index yet.
    pub(crate) fn make_room(&mut self, entries: usize) {
        if entries < ROOM_ENTRIES_MIN {
            return;
        }
        // Some shards get more than the mean; four standard deviations more happen once in thirty thousand.
        let mean = entries.div_ceil(SHARDS);
        let of_shard = mean + 4 * mean.isqrt();
        let size = Size::at_least((of_shard * 100).div_ceil(CELLS * LOAD_PERCENT_MAX));
        for shard in self.shards.iter_mut() {
            if shard.table.get_mut().is_null() {
                *shard.table.get_mut() = Table::new(&self.memory, size).tagged();
            }
        }
    }

    /// The index cannot tell these hashes apart: an entry for one is also an entry for the other.
    pub(crate) fn is_same_entry(one: u64, other: u64) -> bool {
        let kept = |hash: u64| (hash >> (64 - SHARD_BITS), fragment_of(hash));
        kept(one) == kept(other)
    }

    #[inline(always)]
    fn shard(&self, hash: u64) -> Option<&Shard> {
        self.shards.get((hash >> (64 - SHARD_BITS)) as usize)
    }

    /// Adds the entry unless it is there.
    pub(crate) fn add(&self, hash: u64, slot: SlotId) {
        self.put::<true>(hash, slot);
    }

    /// Adds an entry for a slot that has none: a new row's.
    pub(crate) fn add_first(&self, hash: u64, slot: SlotId) {
        self.put::<false>(hash, slot);
    }

    /// Adds an entry; `MAY_EXIST` says that it may be there already.
    #[inline(always)]
    fn put<const MAY_EXIST: bool>(&self, hash: u64, slot: SlotId) {
        let Some(shard) = self.shard(hash) else {
            return;
        };
        let mut entries = shard.writer.entries.lock();
        let cell = cell_of(hash, slot);
        let current = Table::from_tagged(shard.table.load(Ordering::Relaxed));
        // SAFETY: the arena lives as long as the index.
        let is_there = || current.is_some_and(|table| unsafe { find(table, cell) }.is_some());
        if MAY_EXIST && is_there() {
            return;
        }
        debug_assert!(!is_there(), "a new row's entry");
        *entries += 1;
        let table = match current {
            Some(table) if *entries * 100 <= table.line_count() * CELLS * LOAD_PERCENT_MAX => table,
            Some(table) => self.grown(shard, table),
            None => {
                let table = Table::new(&self.memory, Size::ONE);
                shard.table.store(table.tagged(), Ordering::Release);
                table
            }
        };
        // SAFETY: as above; a table is never full.
        unsafe { place(table, cell) };
    }

    /// Removes the entry if it is there.
    pub(crate) fn remove(&self, hash: u64, slot: SlotId) {
        let Some(shard) = self.shard(hash) else {
            return;
        };
        let mut entries = shard.writer.entries.lock();
        let Some(table) = Table::from_tagged(shard.table.load(Ordering::Relaxed)) else {
            return;
        };
        let cell = cell_of(hash, slot);
        // SAFETY: the arena lives as long as the index; the latch is held.
        unsafe {
            if let Some((distance, at)) = find(table, cell) {
                at.store(0, Ordering::Release);
                let home = table.home(fragment_of(hash));
                for passed in home..home + distance {
                    table.line(passed).passed.fetch_sub(1, Ordering::Release);
                }
                *entries -= 1;
            }
        }
    }

    /// The next larger table, published; the writer's latch is held.
    fn grown(&self, shard: &Shard, old: Table) -> Table {
        let new = Table::new(&self.memory, old.size.next());
        for line in 0..old.line_count() {
            // SAFETY: both tables' memory lives as long as the index, and the new one is nobody else's.
            unsafe {
                for cell in &old.line(line).cells {
                    let cell = cell.load(Ordering::Relaxed);
                    if cell != 0 {
                        place(new, cell);
                    }
                }
            }
        }
        shard.table.store(new.tagged(), Ordering::Release);
        // SAFETY: taken with this size; only readers still look there, by atomics.
        unsafe {
            self.memory
                .arena
                .deallocate(Kind::IndexLines, old.lines.cast(), old.size_bytes());
        }
        new
    }

    /// Visits the slots with this hash until told to stop. May visit some twice or wrongly: callers check.
    #[inline(always)]
    fn look(&self, table: Table, fragment: u64, mut see: impl FnMut(SlotId) -> bool) {
        let home = table.home(fragment);
        for distance in 0..table.line_count() {
            // SAFETY: the arena lives as long as the index.
            let line = unsafe { table.line(home + distance) };
            let mut found = line.found(fragment);
            while found != 0 {
                let cell = line.cells.get(found.trailing_zeros() as usize);
                // It may have changed in the meantime.
                let slot = cell.map_or(NO_SLOT, |cell| slot_of(cell.load(Ordering::Acquire), fragment));
                if slot < SLOT_MASK && !see(SlotId(slot)) {
                    return;
                }
                found &= found - 1;
            }
            if line.passed.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    /// The slots with this hash, and some of other hashes.
    #[inline]
    pub(crate) fn candidates(&self, hash: u64, out: &mut Candidates) {
        let Some(shard) = self.shard(hash) else {
            return;
        };
        loop {
            let tagged = shard.table.load(Ordering::Acquire);
            let Some(table) = Table::from_tagged(tagged) else {
                return;
            };
            let start = out.len();
            self.look(table, fragment_of(hash), |slot| {
                out.push(slot);
                true
            });
            fence(Ordering::Acquire);
            if shard.table.load(Ordering::Relaxed) == tagged {
                return;
            }
            out.truncate(start);
        }
    }

    /// The home line of a hash, for hints. `None` if there is no table yet.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> Option<HomeLine<'_>> {
        let table = Table::from_tagged(self.shard(hash)?.table.load(Ordering::Acquire))?;
        // SAFETY: the arena lives as long as the index.
        Some(HomeLine(unsafe { table.home_line(fragment_of(hash)) }))
    }

    /// The address of the hash's home line, for hints. Null if there is no table yet.
    #[inline(always)]
    pub(crate) fn line_address(&self, hash: u64) -> *const u8 {
        self.home(hash).map_or(ptr::null(), HomeLine::address)
    }

    /// The first slot with this hash: for hints.
    #[inline(always)]
    pub(crate) fn first_candidate(&self, hash: u64) -> Option<SlotId> {
        let home = self.home(hash)?;
        match home.first_candidate(hash) {
            None if home.was_passed() => self.first_candidate_behind(hash),
            found => found,
        }
    }

    /// [`HashIndex::first_candidate`] if the home line was full.
    #[cold]
    pub(crate) fn first_candidate_behind(&self, hash: u64) -> Option<SlotId> {
        let table = Table::from_tagged(self.shard(hash)?.table.load(Ordering::Acquire))?;
        let mut found = None;
        self.look(table, fragment_of(hash), |slot| {
            found = Some(slot);
            false
        });
        found
    }

    fn tables(&self) -> impl Iterator<Item = Table> {
        let tagged = self
            .shards
            .iter()
            .map(|shard| shard.table.load(Ordering::Acquire));
        tagged.filter_map(Table::from_tagged)
    }

    /// Shows every entry: its slot, and a hash that is the same entry as the one it was added with. Nobody
    /// changes the index meanwhile, or what is seen is of several moments.
    pub(crate) fn each(&self, mut see: impl FnMut(u64, SlotId)) {
        for (shard, upper) in self.shards.iter().zip(0u64..) {
            let _writer = shard.writer.entries.lock();
            let Some(table) = Table::from_tagged(shard.table.load(Ordering::Relaxed)) else {
                continue;
            };
            for line in 0..table.line_count() {
                // SAFETY: the arena lives as long as the index.
                let line = unsafe { table.line(line) };
                for cell in line.cells.iter().map(|cell| cell.load(Ordering::Relaxed)) {
                    if cell != 0 {
                        let hash = upper << (64 - SHARD_BITS) | cell >> SLOT_BITS;
                        see(hash, SlotId((cell & SLOT_MASK) - 1));
                    }
                }
            }
        }
    }

    /// Entries in all shards.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| *shard.writer.entries.lock()).sum()
    }

    /// Memory of the tables.
    pub(crate) fn size_bytes(&self) -> usize {
        self.tables().map(Table::size_bytes).sum()
    }
}

impl Drop for HashIndex {
    fn drop(&mut self) {
        for table in self.tables() {
            // SAFETY: taken with this size; nobody holds the index any more.
            unsafe {
                self.memory
                    .arena
                    .deallocate(Kind::IndexLines, table.lines.cast(), table.size_bytes());
            }
        }
    }
}

/// Where an entry is: the number of lines from its home line, and its cell.
///
/// # Safety
/// The table's memory outlives the result; the caller holds the writer's latch.
unsafe fn find<'t>(table: Table, cell: u64) -> Option<(usize, &'t AtomicU64)> {
    let home = table.home(cell >> SLOT_BITS);
    for distance in 0..table.line_count() {
        // SAFETY: passed on.
        let line: &'t Line = unsafe { table.line(home + distance) };
        if let Some(at) = line.cells.iter().find(|at| at.load(Ordering::Relaxed) == cell) {
            return Some((distance, at));
        }
        if line.passed.load(Ordering::Relaxed) == 0 {
            return None;
        }
    }
    None
}

/// Puts a new entry into the first empty cell from its home line on.
///
/// # Safety
/// The table's memory is alive and not full; the caller holds the writer's latch or owns the table.
unsafe fn place(table: Table, cell: u64) {
    let home = table.home(cell >> SLOT_BITS);
    for number in home..home + table.line_count() {
        // SAFETY: passed on.
        let line = unsafe { table.line(number) };
        if let Some(at) = line.cells.iter().find(|at| at.load(Ordering::Relaxed) == 0) {
            at.store(cell, Ordering::Release);
            return;
        }
        line.passed.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;

    fn found(index: &HashIndex, hash: u64) -> Vec<SlotId> {
        let mut found = Candidates::new();
        index.candidates(hash, &mut found);
        found.sort_unstable();
        found.to_vec()
    }

    #[test]
    fn entries_are_a_set_of_pairs() {
        let index = HashIndex::new(&Arc::default());
        assert!(found(&index, 0).is_empty());
        for slot in 0..1_000 {
            index.add(slot / 2, SlotId(slot));
            index.add(slot / 2, SlotId(slot));
        }
        assert_eq!(index.len(), 1_000);
        assert_eq!(found(&index, 250), [SlotId(500), SlotId(501)]);
        index.remove(250, SlotId(500));
        index.remove(250, SlotId(500));
        index.remove(77_777, SlotId(1));
        index.remove(u64::MAX, SlotId(1));
        assert_eq!(found(&index, 250), [SlotId(501)]);
        assert_eq!(
            (index.first_candidate(250), index.first_candidate(1_000)),
            (Some(SlotId(501)), None)
        );
        assert_eq!(index.len(), 999);
        assert!(index.size_bytes() >= 999 * 8);
    }

    #[test]
    fn hashes_that_no_cell_tells_apart_are_one_entry() {
        let (one, other) = (1 << 30, 1 << 31);
        assert!(HashIndex::is_same_entry(one, other) && !HashIndex::is_same_entry(one, 1 << 63 | one));
        let index = HashIndex::new(&Arc::default());
        index.add(one, SlotId(1));
        index.add(other, SlotId(1));
        assert_eq!((index.len(), found(&index, one)), (1, vec![SlotId(1)]));
    }

    #[test]
    fn sizes_lie_close() {
        let mut size = Size::ONE;
        let mut lines = vec![size.lines()];
        while size.0 < LINE_BYTES - 1 {
            assert_eq!(Size::at_least(size.lines()), size);
            assert!(Size::at_least(size.lines() + 1).0 > size.0);
            size = size.next();
            lines.push(size.lines());
        }
        assert_eq!(lines[..9], [1, 2, 3, 4, 6, 8, 12, 16, 24]);
        assert!(size.lines() * SHARDS * CELLS > 1 << SLOT_BITS);
        assert!(
            lines
                .windows(2)
                .all(|pair| pair[0] < pair[1] && (pair[1] <= pair[0] * 3 / 2 || pair[0] < 2))
        );
    }

    /// What an entry takes at worst and in the mean, whatever their number.
    #[test]
    fn an_entry_takes_few_bytes() {
        let index = HashIndex::new(&Arc::default());
        let entries = if cfg!(miri) { 3_000 } else { 300_000 };
        let (mut worst, mut sum, mut count) = (0.0f64, 0.0, 0.0);
        for slot in 0..entries {
            index.add_first(weft_ops::mix64(slot), SlotId(slot));
            if slot > entries / 10 && slot % 1_000 == 0 {
                let bytes = index.size_bytes() as f64 / slot as f64;
                (worst, sum, count) = (worst.max(bytes), sum + bytes, count + 1.0);
            }
        }
        println!(
            "hash index: {:.1} bytes an entry, at most {worst:.1}",
            sum / count
        );
        assert!(worst <= if cfg!(miri) { 32.0 } else { 18.0 }, "{worst}");
    }

    /// An index that was given room does not grow on the way there, and goes on growing behind it.
    #[test]
    fn room_is_made_once() {
        for entries in [0, 1, 63, 5_000] {
            let mut index = HashIndex::new(&Arc::default());
            index.make_room(entries);
            let before = index.size_bytes();
            assert!(entries < 5_000 || before >= entries * 8);
            assert!(before <= entries * 8 * 3, "{entries}: {before}");
            for slot in 0..entries as u64 {
                index.add(weft_ops::mix64(slot), SlotId(slot));
            }
            assert!(entries < 5_000 || index.size_bytes() == before, "{entries}");
            for slot in 0..3 * entries as u64 {
                index.add(weft_ops::mix64(slot), SlotId(slot));
            }
            index.make_room(1 << 20);
            assert_eq!(index.len(), 3 * entries);
            for slot in 0..3 * entries as u64 {
                // Others may have a hash that differs in bits which no cell keeps.
                assert!(found(&index, weft_ops::mix64(slot)).contains(&SlotId(slot)));
            }
        }
    }

    proptest! {
        /// Few hashes, so that lines overflow into each other and tables wrap around.
        #[test]
        fn behaves_as_a_set(steps in proptest::collection::vec((0u64..24, 0u64..40, any::<bool>()), 0..400)) {
            let index = HashIndex::new(&Arc::default());
            let mut model = BTreeSet::new();
            // From the first line to the last.
            let hashes = (0..24).map(|hash| hash * FRAGMENT_MASK / 23);
            for (hash, slot, adds) in steps {
                let hash = hash * FRAGMENT_MASK / 23;
                if adds {
                    index.add(hash, SlotId(slot));
                    model.insert((hash, SlotId(slot)));
                } else {
                    index.remove(hash, SlotId(slot));
                    model.remove(&(hash, SlotId(slot)));
                }
            }
            prop_assert_eq!(index.len(), model.len());
            for hash in hashes {
                let expected: Vec<SlotId> =
                    model.iter().filter(|(of, _)| *of == hash).map(|(_, slot)| *slot).collect();
                // While nobody writes, the hint is right, wherever the entry lies.
                let first = index.first_candidate(hash);
                prop_assert_eq!(first.is_some(), !expected.is_empty());
                prop_assert!(first.is_none_or(|slot| expected.contains(&slot)));
                prop_assert_eq!(found(&index, hash), expected);
            }
            // What passed is forgotten with the entries: an emptied table sends nobody on.
            for (hash, slot) in model {
                index.remove(hash, slot);
            }
            for table in index.tables() {
                for line in 0..table.line_count() {
                    // SAFETY: the index is alive.
                    let line = unsafe { table.line(line) };
                    prop_assert_eq!(line.passed.load(Ordering::Relaxed), 0);
                }
            }
        }
    }

    /// Entries that are there all the time are found all the time, once, while others come and go, tables
    /// grow, and outgrown ones are used again for another index.
    #[test]
    fn readers_find_what_stays() {
        let rounds = if cfg!(miri) { 2 } else { 40 };
        let (stay, churn) = if cfg!(miri) { (64, 200) } else { (2_000, 6_000) };
        let memory = Arc::default();
        let stop = AtomicBool::new(false);
        for round in 0..rounds {
            let index = HashIndex::new(&memory);
            stop.store(false, Ordering::Relaxed);
            for slot in 0..stay {
                index.add(weft_ops::mix64(slot), SlotId(slot));
            }
            std::thread::scope(|scope| {
                for reader in 0..2u64 {
                    let (index, stop) = (&index, &stop);
                    scope.spawn(move || {
                        let mut at = reader;
                        while !stop.load(Ordering::Relaxed) {
                            at = weft_ops::mix64(at + 1);
                            let slot = SlotId(at % stay);
                            let hash = weft_ops::mix64(slot.0);
                            // Hints may be wrong here: they look once and check nothing.
                            weft_base::memory::prefetch(index.line_address(hash));
                            let _ = index.first_candidate(hash);
                            let seen = found(index, hash);
                            assert_eq!(seen.iter().filter(|found| **found == slot).count(), 1);
                        }
                    });
                }
                let writers: Vec<_> = (0..2u64)
                    .map(|writer| {
                        let (index, memory) = (&index, &memory);
                        scope.spawn(move || {
                            for number in 0..churn {
                                let slot = stay + (number * 2 + writer) + round;
                                index.add(weft_ops::mix64(slot), SlotId(slot));
                                if number % 3 == 0 {
                                    index.remove(weft_ops::mix64(slot), SlotId(slot));
                                }
                            }
                            // Takes the blocks that the growing tables gave back.
                            let other = HashIndex::new(memory);
                            for number in 0..churn {
                                other.add(weft_ops::mix64(number), SlotId(number + 1_000_000));
                            }
                        })
                    })
                    .collect();
                writers.into_iter().for_each(|writer| writer.join().unwrap());
                stop.store(true, Ordering::Relaxed);
            });
        }
    }
}
