//! Determines the rows of each frame, and computes aggregates over frames.

use std::cmp::Ordering;
use std::ops::Range;

use datafusion::arrow::array::RecordBatch;
use weft_binder::relation::{FrameExclusion, FrameUnit, WindowFunction};
use weft_expression::Accumulator;
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState, SqlType, Value, ValueRef, compare_ref};

use super::values::Values;
use super::{Bound, Call, column};
use crate::arrays::ValueColumn;
use crate::session::ExecutionContext;

/// The frames of all rows of a partition.
pub(super) struct Frames {
    /// The frame of each row, before exclusion.
    ranges: Vec<Range<usize>>,
    /// The peers of each row.
    peers: Vec<Range<usize>>,
    exclude: FrameExclusion,
}

impl Frames {
    pub(super) fn new(call: &Call, rows: &RecordBatch, groups: &[Range<usize>]) -> Result<Frames, SqlError> {
        let count = rows.num_rows();
        let mut peers = Vec::with_capacity(count);
        let mut group_of = Vec::with_capacity(count);
        let mut pace = Pace::default();
        for (group, range) in groups.iter().enumerate() {
            pace.step(8 + range.len())?;
            peers.extend(std::iter::repeat_n(range.clone(), range.len()));
            group_of.extend(std::iter::repeat_n(group, range.len()));
        }
        let ends = Ends {
            unit: call.unit,
            count,
            groups,
            group_of: &group_of,
            peers: &peers,
            key: call
                .range_key
                .map(|(id, ty, down)| Ok::<_, SqlError>((column(rows, id, &ty)?, down)))
                .transpose()?,
        };
        let starts = ends.all(call.start, rows, true)?;
        let stops = ends.all(call.end, rows, false)?;
        let ranges = starts
            .into_iter()
            .zip(stops)
            .map(|(start, end)| start..end.max(start))
            .collect();
        Ok(Frames {
            ranges,
            peers,
            exclude: call.exclude,
        })
    }

    /// The ranges of a row's frame, in order.
    pub(super) fn pieces(&self, row: usize) -> Vec<Range<usize>> {
        let frame = self.ranges.get(row).cloned().unwrap_or(0..0);
        let peers = self.peers.get(row).cloned().unwrap_or(row..row + 1);
        let without = |hole: Range<usize>| {
            let before = frame.start..frame.end.min(hole.start).max(frame.start);
            let after = frame.start.max(hole.end).min(frame.end)..frame.end;
            [before, after]
        };
        match self.exclude {
            FrameExclusion::None => vec![frame],
            FrameExclusion::CurrentRow => without(row..row + 1).to_vec(),
            FrameExclusion::Group => without(peers).to_vec(),
            FrameExclusion::Ties => {
                let [before, after] = without(peers);
                let own = if frame.contains(&row) {
                    row..row + 1
                } else {
                    row..row
                };
                vec![before, own, after]
            }
        }
    }

    /// Whether all frames start at the partition's first row and only grow.
    fn only_grow(&self) -> bool {
        self.exclude == FrameExclusion::None
            && self.ranges.iter().all(|range| range.start == 0)
            && self.ranges.windows(2).all(|pair| pair[0].end <= pair[1].end)
    }
}

/// Computes the bounds of frames.
struct Ends<'a> {
    unit: FrameUnit,
    count: usize,
    groups: &'a [Range<usize>],
    group_of: &'a [usize],
    peers: &'a [Range<usize>],
    key: Option<(ValueColumn, bool)>,
}

impl Ends<'_> {
    /// For every row, the first position of its frame (`start`) or the position after its last.
    fn all(&self, bound: Bound, rows: &RecordBatch, start: bool) -> Result<Vec<usize>, SqlError> {
        match bound {
            Bound::Unbounded => Ok(vec![if start { 0 } else { self.count }; self.count]),
            Bound::CurrentRow => {
                let mut pace = Pace::default();
                (0..self.count)
                    .map(|row| pace.step(2).map(|()| self.current(row, start)))
                    .collect()
            }
            Bound::Preceding(id, ty) => self.shifted(&column(rows, id, &ty)?, true, start),
            Bound::Following(id, ty) => self.shifted(&column(rows, id, &ty)?, false, start),
        }
    }

    fn current(&self, row: usize, start: bool) -> usize {
        let own = match (self.unit, self.peers.get(row)) {
            (FrameUnit::Rows, _) | (_, None) => row..row + 1,
            (_, Some(peers)) => peers.clone(),
        };
        if start { own.start } else { own.end }
    }

    fn shifted(&self, by: &ValueColumn, preceding: bool, start: bool) -> Result<Vec<usize>, SqlError> {
        let mut pace = Pace::default();
        (0..self.count)
            .map(|row| {
                pace.step(32)?;
                if self.unit == FrameUnit::Range {
                    return Ok(self.boundary(row, &by.value_ref(row), start));
                }
                let offset = offset(&by.value_ref(row), start)?;
                Ok(self.counted(row, if preceding { -offset } else { offset }, start))
            })
            .collect()
    }

    /// The bound at an offset of rows or peer groups.
    fn counted(&self, row: usize, offset: i64, start: bool) -> usize {
        let rows = self.unit == FrameUnit::Rows;
        let own = if rows {
            row
        } else {
            self.group_of.get(row).copied().unwrap_or(0)
        };
        let place = (own as i64).saturating_add(offset);
        if place < 0 {
            return 0;
        }
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if rows {
            return if start { place } else { place.saturating_add(1) }.min(self.count);
        }
        match self.groups.get(place) {
            Some(group) if start => group.start,
            Some(group) => group.end,
            None => self.count,
        }
    }

    /// The first row not before a boundary key (`start`), or the first after it. NULL is a peer only of NULL.
    fn boundary(&self, row: usize, boundary: &ValueRef<'_>, start: bool) -> usize {
        let Some((keys, descending)) = &self.key else {
            return self.current(row, start);
        };
        if keys.is_null(row) || boundary.is_null() {
            return self
                .peers
                .get(row)
                .map_or(row, |peers| if start { peers.start } else { peers.end });
        }
        // NULLs are contiguous at one end; the other keys are sorted.
        let first = self
            .groups
            .first()
            .filter(|group| keys.is_null(group.start))
            .map_or(0, |group| group.end);
        let last = self
            .groups
            .last()
            .filter(|group| keys.is_null(group.start))
            .map_or(self.count, |g| g.start);
        let (mut low, mut high) = (first, last.max(first));
        while low < high {
            let middle = low + (high - low) / 2;
            let order = compare_ref(&keys.value_ref(middle), boundary).unwrap_or(Ordering::Equal);
            let order = if *descending { order.reverse() } else { order };
            if order.is_lt() || (!start && order.is_eq()) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

fn offset(value: &ValueRef<'_>, start: bool) -> Result<i64, SqlError> {
    let end = if start { "starting" } else { "ending" };
    let refused = |code: &str, what: &str| {
        let state = SqlState::from_code(code).unwrap_or(SqlState::INVALID_PARAMETER_VALUE);
        Err(SqlError::new(
            state,
            format!("frame {end} offset must not be {what}"),
        ))
    };
    match value {
        ValueRef::Int8(offset) if *offset >= 0 => Ok(*offset),
        ValueRef::Int8(_) => refused("22013", "negative"),
        _ => refused("22004", "null"),
    }
}

/// Appends an aggregate over each row's frame.
pub(super) fn aggregated(
    call: &Call,
    frames: &Frames,
    rows: &RecordBatch,
    arguments: &[ValueColumn],
    context: &ExecutionContext,
    out: &mut Values<'_>,
) -> Result<(), SqlError> {
    let WindowFunction::Aggregate(entry) = call.function else {
        return Err(SqlError::internal("a window function is no aggregate"));
    };
    let filter = call
        .filter
        .map(|id| column(rows, id, &SqlType::Bool))
        .transpose()?;
    let types: Vec<SqlType> = call.arguments.iter().map(|(_, ty)| *ty).collect();
    let execution = context.execution();
    let context = execution.context();
    let feed = |state: &mut Box<dyn Accumulator>, range: Range<usize>| -> Result<(), SqlError> {
        let mut pace = Pace::default();
        for row in range {
            pace.step(8)?;
            if let Some(filter) = &filter
                && !matches!(filter.value_ref(row), ValueRef::Bool(true))
            {
                continue;
            }
            let values: Vec<ValueRef<'_>> = arguments.iter().map(|column| column.value_ref(row)).collect();
            if !(entry.strict && values.iter().any(ValueRef::is_null)) {
                state.update(&context, &values)?;
            }
        }
        Ok(())
    };
    let mut state = (entry.start)(&types, call.ty);
    let growing = frames.only_grow();
    let mut fed = 0;
    let mut last: Option<(Vec<Range<usize>>, Value)> = None;
    for row in 0..rows.num_rows() {
        let pieces = frames.pieces(row);
        if let Some((_, value)) = last.as_ref().filter(|(before, _)| *before == pieces) {
            out.push(value.clone())?;
            continue;
        }
        if growing {
            let end = pieces.first().map_or(0, |piece| piece.end);
            feed(&mut state, fed..end)?;
            fed = end.max(fed);
        } else {
            state = (entry.start)(&types, call.ty);
            for piece in &pieces {
                feed(&mut state, piece.clone())?;
            }
        }
        let value = state.value(&context)?;
        out.push(value.clone())?;
        last = Some((pieces, value));
    }
    Ok(())
}
