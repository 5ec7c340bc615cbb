//! One partition of the probe side, as it streams by the table.
//!
//! ```text
//! batch --> tuples --> pairs (bounded) --> condition --> rows gathered --> batches of the usual size
//! ```
//!
//! A probe row may have millions of partners, so pairs are looked for up to a limit, and from there again
//! when these have been handed on. The rows of the probe side keep their order.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::common::{JoinType, Result, internal_err};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use weft_join::{Chunk, Consumer, JoinError, Tuple};
use weft_types::interrupt::{self, Interrupt};

use super::build::{Built, join_error};
use super::spec::{Half, Spec};
use crate::slice::breathe;

/// Pairs that are held at one time.
const PAIRS_MAX: usize = 256 << 10;

/// Pairs of a build row and a probe row, in the order of the probe rows.
#[derive(Default)]
struct Pairs {
    build: Vec<u32>,
    probe: Vec<u32>,
    /// So many more of the first probe row were taken before.
    skip: usize,
}

impl Consumer for Pairs {
    fn take(&mut self, chunk: Chunk<'_>) -> ControlFlow<()> {
        let Chunk::Pairs(pairs) = chunk else {
            return ControlFlow::Continue(());
        };
        let skipped = self.skip.min(pairs.len());
        self.skip -= skipped;
        for pair in pairs.iter().skip(skipped) {
            self.build.push(pair.build as u32);
            self.probe.push(pair.probe as u32);
        }
        match self.build.len() < PAIRS_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}

/// Probe rows with a partner.
struct Matched(Vec<bool>);

impl Consumer for Matched {
    fn take(&mut self, chunk: Chunk<'_>) -> ControlFlow<()> {
        if let Chunk::ProbeMatched(rows) = chunk {
            for row in rows {
                if let Some(matched) = self.0.get_mut(*row as usize) {
                    *matched = true;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// A batch of the probe side that is being worked on.
struct Piece {
    batch: RecordBatch,
    key: ArrayRef,
    tuples: Vec<Tuple>,
    /// The next tuple to look for, and how many of its pairs were taken.
    next: (usize, usize),
    pairs: Pairs,
    /// Pairs that were handed on.
    handed_on: usize,
    rows: Decided,
}

/// Probe rows are decided one after the other: with or without a partner.
#[derive(Default)]
struct Decided {
    row: u32,
    is_matched: bool,
}

/// Result rows by number; a build row may be none.
#[derive(Default)]
struct Found {
    build: Vec<Option<u32>>,
    probe: Vec<u32>,
}

/// One probe partition.
pub(super) struct Prober {
    spec: Arc<Spec>,
    built: Arc<Built>,
    input: SendableRecordBatchStream,
    piece: Option<Piece>,
    ready: BatchCoalescer,
    batch_rows: usize,
    stop: Option<Arc<dyn Interrupt>>,
    phase: Phase,
}

enum Phase {
    Probing,
    /// The partition has ended.
    Probed,
    /// The build rows from this one on are told.
    Building(usize),
    Done,
}

impl Prober {
    pub(super) fn new(
        spec: Arc<Spec>,
        built: Arc<Built>,
        input: SendableRecordBatchStream,
        batch_rows: usize,
    ) -> Prober {
        let ready = BatchCoalescer::new(Arc::clone(&spec.schema), batch_rows)
            .with_biggest_coalesce_batch_size(Some(batch_rows / 2));
        let is_read = built.table.is_some() || spec.keeps_probe();
        Prober {
            ready,
            batch_rows,
            stop: interrupt::current(),
            phase: if is_read { Phase::Probing } else { Phase::Probed },
            piece: None,
            spec,
            built,
            input,
        }
    }

    /// The next batch of the result.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.next_completed_batch() {
                return Ok(Some(batch));
            }
            breathe(self.stop.as_ref()).await?;
            match self.phase {
                Phase::Probing => {
                    if let Some(mut piece) = self.piece.take() {
                        if self.advance(&mut piece)? {
                            self.piece = Some(piece);
                        }
                    } else if let Some(batch) = self.input.next().await {
                        self.piece = self.begin(batch?)?;
                    } else {
                        self.phase = Phase::Probed;
                    }
                }
                Phase::Probed => {
                    let left = self.built.probing.fetch_sub(1, Ordering::AcqRel);
                    let is_last = left == 1 && self.spec.marks_build();
                    self.phase = if is_last { Phase::Building(0) } else { Phase::Done };
                }
                Phase::Building(first) => self.tell_build(first)?,
                Phase::Done => {
                    self.ready.finish_buffered_batch()?;
                    return Ok(self.ready.next_completed_batch());
                }
            }
        }
    }

    fn begin(&self, batch: RecordBatch) -> Result<Option<Piece>> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(None);
        }
        let key = self.spec.probe_key.evaluate(&batch)?.into_array(rows)?;
        let mut tuples = Vec::with_capacity(rows);
        if self.built.table.is_some() {
            self.built.keys.tuples(&key, (0, rows), 0, &mut tuples)?;
        }
        Ok(Some(Piece {
            batch,
            key,
            tuples,
            next: (0, 0),
            pairs: Pairs::default(),
            handed_on: 0,
            rows: Decided::default(),
        }))
    }

    /// Works on a batch for a while; false if it is done.
    fn advance(&mut self, piece: &mut Piece) -> Result<bool> {
        let exact = self.built.exact.is_none();
        let only_rows = matches!(self.spec.join_type, JoinType::RightSemi | JoinType::RightAnti);
        if only_rows && exact && self.spec.filter.is_none() {
            self.match_rows(piece)?;
            return Ok(false);
        }
        if piece.handed_on < piece.pairs.build.len() {
            self.hand_on(piece)?;
        } else if piece.next.0 < piece.tuples.len() {
            self.look(piece)?;
        } else {
            let mut found = Found::default();
            self.decide(&mut piece.rows, piece.batch.num_rows() as u32, &mut found);
            self.tell(&piece.batch, found)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Semi and anti joins without a further condition need no pairs.
    fn match_rows(&mut self, piece: &Piece) -> Result<()> {
        let mut matched = Matched(vec![false; piece.batch.num_rows()]);
        if let Some(table) = &self.built.table {
            table
                .matched(&piece.tuples, &mut matched)
                .map_err(|error| join_error(&error))?;
        }
        let wanted = self.spec.join_type == JoinType::RightSemi;
        let rows = (0..)
            .zip(matched.0)
            .filter(|(_, is_matched)| *is_matched == wanted);
        let probe: Vec<u32> = rows.map(|(row, _)| row).collect();
        let build = vec![None; probe.len()];
        self.tell(&piece.batch, Found { build, probe })
    }

    /// Looks for the next pairs.
    fn look(&self, piece: &mut Piece) -> Result<()> {
        let Some(table) = &self.built.table else {
            return internal_err!("a join without a table looks for pairs");
        };
        let (next, taken) = piece.next;
        let tuples = piece.tuples.get(next..).unwrap_or_default();
        piece.pairs.build.clear();
        piece.pairs.probe.clear();
        piece.pairs.skip = taken;
        piece.handed_on = 0;
        match table.pairs(tuples, &mut piece.pairs) {
            Ok(()) => piece.next = (piece.tuples.len(), 0),
            Err(JoinError::Stopped) => {
                let last = piece.pairs.probe.last().copied().unwrap_or(0);
                let same = piece
                    .pairs
                    .probe
                    .iter()
                    .rev()
                    .take_while(|row| **row == last)
                    .count();
                let at = piece.tuples.partition_point(|tuple| tuple.row < u64::from(last));
                let before = if at == next { taken } else { 0 };
                piece.next = (at, before + same);
            }
            Err(error) => return Err(join_error(&error)),
        }
        Ok(())
    }

    /// Hands on the next pairs, a batch at most.
    fn hand_on(&mut self, piece: &mut Piece) -> Result<()> {
        let end = piece.pairs.build.len().min(piece.handed_on + self.batch_rows);
        let span = piece.handed_on..end;
        let build = piece.pairs.build.get(span.clone()).unwrap_or_default();
        let probe = piece.pairs.probe.get(span).unwrap_or_default();
        piece.handed_on = end;
        let accepted = self.accepted(piece, build, probe)?;
        let is_accepted = |at: usize| match &accepted {
            Some(accepted) => accepted.is_valid(at) && accepted.value(at),
            None => true,
        };
        if self.spec.join_type == JoinType::Inner && accepted.is_none() {
            let (build, probe) = (
                UInt32Array::from(build.to_vec()),
                UInt32Array::from(probe.to_vec()),
            );
            return self.tell_rows(&piece.batch, &build, &probe);
        }
        let mut found = Found::default();
        let pairs = build.iter().zip(probe).enumerate();
        for (_, (build, probe)) in pairs.filter(|(at, _)| is_accepted(*at)) {
            self.decide(&mut piece.rows, *probe, &mut found);
            piece.rows.is_matched = true;
            self.built.visit(*build);
            if matches!(
                self.spec.join_type,
                JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
            ) {
                found.build.push(Some(*build));
                found.probe.push(*probe);
            }
        }
        // Rows before the last one have no more pairs.
        if let Some(last) = probe.last() {
            self.decide(&mut piece.rows, *last, &mut found);
        }
        self.tell(&piece.batch, found)
    }

    /// Decides the rows before `end`.
    fn decide(&self, rows: &mut Decided, end: u32, found: &mut Found) {
        let told = match self.spec.join_type {
            JoinType::Right | JoinType::Full | JoinType::RightAnti => Some(false),
            JoinType::RightSemi => Some(true),
            _ => None,
        };
        while rows.row < end {
            if told == Some(rows.is_matched) {
                found.build.push(None);
                found.probe.push(rows.row);
            }
            rows.row += 1;
            rows.is_matched = false;
        }
    }

    /// Which pairs have equal keys and satisfy the condition. `None`: all.
    fn accepted(&self, piece: &Piece, build: &[u32], probe: &[u32]) -> Result<Option<BooleanArray>> {
        let equal = self.built.exact.as_ref().map(|exact| {
            let (exact, key) = (exact.as_fixed_size_binary(), piece.key.as_fixed_size_binary());
            let pairs = build.iter().zip(probe);
            let equal = pairs.map(|(build, probe)| {
                let of_build = exact.value(*build as usize);
                Some(of_build == key.value(*probe as usize))
            });
            equal.collect::<BooleanArray>()
        });
        if self.spec.filter.is_none() {
            return Ok(equal);
        }
        // A condition may fail for rows whose keys differ, so it sees only those that are equal.
        let places: Vec<usize> = match &equal {
            Some(equal) => (0..build.len()).filter(|at| equal.value(*at)).collect(),
            None => (0..build.len()).collect(),
        };
        let chosen =
            |rows: &[u32]| -> UInt32Array { places.iter().filter_map(|at| rows.get(*at).copied()).collect() };
        let (build_rows, probe_rows) = (chosen(build), chosen(probe));
        let halves = self.halves(&piece.batch, &build_rows, &probe_rows);
        let accepted = self.spec.accepted(halves, places.len())?;
        let (Some(accepted), true) = (&accepted, equal.is_some()) else {
            return Ok(accepted);
        };
        let mut all = vec![false; build.len()];
        for (number, at) in places.iter().enumerate() {
            if let Some(place) = all.get_mut(*at) {
                *place = accepted.is_valid(number) && accepted.value(number);
            }
        }
        Ok(Some(BooleanArray::from(all)))
    }

    fn halves<'a>(
        &'a self,
        batch: &'a RecordBatch,
        build: &'a UInt32Array,
        probe: &'a UInt32Array,
    ) -> (Half<'a>, Half<'a>) {
        (
            Half::Kept(&self.spec.build, &self.built.columns, build),
            Half::Batch(batch, probe),
        )
    }

    fn tell(&mut self, batch: &RecordBatch, found: Found) -> Result<()> {
        let (build, probe) = (UInt32Array::from(found.build), UInt32Array::from(found.probe));
        self.tell_rows(batch, &build, &probe)
    }

    fn tell_rows(&mut self, batch: &RecordBatch, build: &UInt32Array, probe: &UInt32Array) -> Result<()> {
        if probe.is_empty() {
            return Ok(());
        }
        let rows = self
            .spec
            .assemble(self.halves(batch, build, probe), probe.len())?;
        Ok(self.ready.push_batch(rows)?)
    }

    /// Tells of build rows, a batch at a time.
    fn tell_build(&mut self, first: usize) -> Result<()> {
        let rows = self.built.columns.rows();
        let end = rows.min(first + self.batch_rows);
        if first >= rows {
            self.phase = Phase::Done;
            return Ok(());
        }
        let wanted = self.spec.join_type == JoinType::LeftSemi;
        let told = (first as u32..end as u32).filter(|row| self.built.is_visited(*row) == wanted);
        let told: UInt32Array = told.collect();
        self.phase = Phase::Building(end);
        if told.is_empty() {
            return Ok(());
        }
        let schema = self.spec.right.schema();
        let halves = (
            Half::Kept(&self.spec.build, &self.built.columns, &told),
            Half::Nulls(&schema, told.len()),
        );
        let rows = self.spec.assemble(halves, told.len())?;
        Ok(self.ready.push_batch(rows)?)
    }
}
