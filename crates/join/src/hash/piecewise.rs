//! The hash join without partitioning for a caller with threads and a pipeline of its own: the caller's
//! threads fill a table, a morsel at a time each, and probe it with whatever rows have arrived.
//!
//! ```text
//! all build tuples --> writer 0: its region of lines --+
//!             +------> writer 1: its region of lines --+--> table <-- probe tuples, any number at a time
//! ```
//!
//! The join holds no probe row, gives its pairs in the order of the probe tuples, and can be left between any
//! two calls. That is what a query engine needs that runs many queries in short slices.
//!
//! 1. Every writer reads all build tuples and puts in those of its region: nobody waits for a cache line.
//! 2. A table comes of all its writers, which are consumed: nobody writes to a table that is probed.

use std::sync::Arc;

use weft_base::{Budget, Reservation};

use super::unpartitioned::choose;
use crate::array::Array;
use crate::array::array_bytes;
use crate::error::JoinError;
use crate::form::{Form, Input, Narrow, Order, Wide};
use crate::output::Output;
use crate::processor::Processor;
use crate::table::{Line, Overflow, Region, Slots, Table, line_count};
use crate::tuple::{Consumer, Emit, Ranges, Tuple};

const PURPOSE: &str = "a hash table";

/// The lines of a table that is being filled, or is full.
struct Lines<F> {
    form: F,
    lines: Array<Line>,
    budget: Arc<Budget>,
    processor: Processor,
}

impl<F: Form> Lines<F> {
    fn slots(&self) -> Slots<'_, F> {
        Slots::new(self.form, self.lines.as_slice(), 0)
    }
}

/// A writer of one form.
struct Writer<F: Form> {
    lines: Arc<Lines<F>>,
    region: Region,
    writers: usize,
    overflow: Overflow<F::Item>,
    deferred: Overflow<F::Item>,
    mine: Vec<Tuple>,
}

/// A full table of one form.
struct Filled<F: Form> {
    lines: Lines<F>,
    overflow: Vec<F::Item>,
    _overflow_room: Option<Reservation>,
}

/// Fills its share of a [`HashTable`].
pub struct TableWriter(OneWriter);

enum OneWriter {
    Narrow(Writer<Narrow>),
    Wide(Writer<Wide>),
}

/// A filled hash table. Any number of threads may probe it at once.
pub struct HashTable(OneTable);

enum OneTable {
    Narrow(Filled<Narrow>),
    Wide(Filled<Wide>),
}

impl<F: Form> Writer<F> {
    fn all(tuples: usize, form: F, count: usize, budget: &Arc<Budget>) -> Result<Vec<Writer<F>>, JoinError> {
        let lines = Arc::new(Lines {
            form,
            lines: Array::new(line_count(tuples, F::LANES), Some(budget), PURPOSE)?,
            budget: Arc::clone(budget),
            processor: Processor::best(),
        });
        let writer = |number| Writer {
            lines: Arc::clone(&lines),
            region: lines.slots().region(number, count),
            writers: count,
            overflow: Overflow::new(Some(budget)),
            deferred: Overflow::new(Some(budget)),
            mine: Vec::new(),
        };
        Ok((0..count).map(writer).collect())
    }

    fn insert(&mut self, tuples: &[Tuple]) -> Result<(), JoinError> {
        let slots = self.lines.slots();
        let mut tuples = tuples;
        if self.writers > 1 {
            // A tuple outside of the bounds must not be lost because no region has it.
            if tuples.iter().any(|tuple| !tuple.key(&self.lines.form).1) {
                return Err(JoinError::Source);
            }
            let count = choose(tuples, &mut self.mine, |tuple| slots.is_in(&self.region, tuple));
            tuples = self.mine.get(..count).unwrap_or_default();
        }
        let lists = (&mut self.overflow, &mut self.deferred);
        // SAFETY: regions of one table do not overlap, there is one writer for each, and `Filled::new` makes
        // sure that all are gone before anybody reads.
        unsafe { slots.insert_owned(self.lines.processor, &self.region, tuples, lists) }
    }
}

impl<F: Form> Filled<F> {
    fn new(writers: Vec<Writer<F>>) -> Result<Filled<F>, JoinError> {
        let mut shared: Option<Arc<Lines<F>>> = None;
        let (mut lists, mut count) = (Vec::new(), 0);
        for writer in writers {
            let Writer {
                lines,
                overflow,
                deferred,
                ..
            } = writer;
            if shared.as_ref().is_some_and(|shared| !Arc::ptr_eq(shared, &lines)) {
                return Err(JoinError::Source);
            }
            count = writer.writers;
            lists.push((overflow, deferred));
            shared = Some(lines);
        }
        if lists.len() != count {
            return Err(JoinError::Source);
        }
        // Each writer had one reference, and all are here.
        let lines = shared.and_then(Arc::into_inner).ok_or(JoinError::NoConsumer)?;
        let slots = lines.slots();
        let mut all = Overflow::new(Some(&lines.budget));
        for (overflow, deferred) in lists {
            slots.insert_shared(deferred.items(), &mut all)?;
            all.append(overflow)?;
        }
        let (overflow, room) = slots.sorted(all);
        Ok(Filled {
            lines,
            overflow,
            _overflow_room: room,
        })
    }

    fn probe<C: Consumer>(&self, tuples: &[Tuple], emit: Emit, consumer: &mut C) -> Result<(), JoinError> {
        let table = Table::of_sorted(self.lines.slots(), &self.overflow);
        let mut out = Output::new(consumer, emit);
        table.probe_all(self.lines.processor, tuples, &mut out)?;
        out.finish()
    }
}

impl TableWriter {
    /// Writers for a table of so many tuples, whose keys and rows are within the bounds if there are some.
    ///
    /// # Errors
    /// If the budget has no room for the table. A writer needs more for keys of which there are very many.
    pub fn all(
        tuples: usize,
        ranges: Option<Ranges>,
        count: usize,
        budget: &Arc<Budget>,
    ) -> Result<Vec<TableWriter>, JoinError> {
        let count = count.max(1);
        let narrow = ranges.and_then(|ranges| Narrow::new(ranges.keys, ranges.rows, 0, Order::Mixed));
        Ok(match narrow {
            Some(form) => {
                let writers = Writer::all(tuples, form, count, budget)?.into_iter();
                writers
                    .map(|writer| TableWriter(OneWriter::Narrow(writer)))
                    .collect()
            }
            None => {
                let writers = Writer::all(tuples, Wide::new(Order::Mixed), count, budget)?.into_iter();
                writers
                    .map(|writer| TableWriter(OneWriter::Wide(writer)))
                    .collect()
            }
        })
    }

    /// Puts in those tuples that are this writer's. Every writer of a table must be given all tuples.
    ///
    /// # Errors
    /// A tuple that is not within the bounds; no room in the budget.
    pub fn insert(&mut self, tuples: &[Tuple]) -> Result<(), JoinError> {
        match &mut self.0 {
            OneWriter::Narrow(writer) => writer.insert(tuples),
            OneWriter::Wide(writer) => writer.insert(tuples),
        }
    }
}

impl HashTable {
    /// Bytes for the lines of a table of so many tuples, and bytes for keys of which there are too many for
    /// their lines, if those are so many tuples. `None`: there is no such number.
    #[must_use]
    pub fn bytes(tuples: usize, overflowing: usize) -> Option<usize> {
        let lines = |lanes| array_bytes::<Line>(line_count(tuples, lanes));
        // Lists grow by doubling, and are joined.
        let overflow = overflowing.checked_mul(4 * size_of::<Tuple>())?;
        lines(Wide::LANES)?
            .max(lines(Narrow::LANES)?)
            .checked_add(overflow)
    }

    /// The table that these writers filled: all of one table.
    ///
    /// # Errors
    /// No room in the budget; writers that are missing, or of another table.
    pub fn new(writers: Vec<TableWriter>) -> Result<HashTable, JoinError> {
        let (mut narrow, mut wide) = (Vec::new(), Vec::new());
        for writer in writers {
            match writer.0 {
                OneWriter::Narrow(writer) => narrow.push(writer),
                OneWriter::Wide(writer) => wide.push(writer),
            }
        }
        match (narrow.is_empty(), wide.is_empty()) {
            (false, true) => Ok(HashTable(OneTable::Narrow(Filled::new(narrow)?))),
            (true, false) => Ok(HashTable(OneTable::Wide(Filled::new(wide)?))),
            (true, true) => Err(JoinError::NoConsumer),
            (false, false) => Err(JoinError::Source),
        }
    }

    /// Tells every pair of a build row and one of these tuples, in the order of the tuples; the same pairs in
    /// the same order each time.
    ///
    /// # Errors
    /// [`JoinError::Stopped`] if the consumer wants no more.
    pub fn pairs<C: Consumer>(&self, tuples: &[Tuple], consumer: &mut C) -> Result<(), JoinError> {
        self.probe(tuples, Emit::INNER, consumer)
    }

    /// Tells the rows of those tuples that have a partner, each once and in their order.
    ///
    /// # Errors
    /// As [`HashTable::pairs`].
    pub fn matched<C: Consumer>(&self, tuples: &[Tuple], consumer: &mut C) -> Result<(), JoinError> {
        self.probe(tuples, Emit::PROBE_SEMI, consumer)
    }

    fn probe<C: Consumer>(&self, tuples: &[Tuple], emit: Emit, consumer: &mut C) -> Result<(), JoinError> {
        match &self.0 {
            OneTable::Narrow(table) => table.probe(tuples, emit, consumer),
            OneTable::Wide(table) => table.probe(tuples, emit, consumer),
        }
    }
}
