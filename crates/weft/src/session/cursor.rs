//! Cursors: the rows of a query, kept for FETCH.
//!
//! A cursor's query runs when it is declared and its rows are kept encoded, so every direction is possible
//! and the rows are those at the time of DECLARE, as for PostgreSQL's insensitive cursors. They count against
//! the session's memory ([`Session::memory`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use weft_base::{Exceeded, Reservation};
use weft_sql::statement::control::CursorPlan;
use weft_sql::statement::{FetchDirection, Plan};
use weft_types::{RowLayout, SqlError, SqlState, Value};

use super::{Session, VersionedPlan, too_much_held};
use crate::sink::{CommandTag, OutputColumn, PipelinePosition, ResultSink, RowRef};

/// Memory is reserved in steps of this many bytes.
const RESERVED_BYTES: usize = 64 << 10;

/// Rows kept for FETCH.
#[derive(Debug)]
pub(crate) struct Cursor {
    columns: Vec<OutputColumn>,
    layout: Arc<RowLayout>,
    rows: Vec<Box<[u8]>>,
    /// Rows before the cursor: 0 is before the first, `rows.len() + 1` after the last.
    position: usize,
    /// Survives the transaction.
    pub holds: bool,
    /// Numbers the session's cursors, to tell which were declared before a savepoint or transaction.
    pub number: u64,
    _held: Reservation,
}

struct Keep {
    columns: Vec<OutputColumn>,
    rows: Vec<Box<[u8]>>,
    byte_count: usize,
    held: Reservation,
    exceeded: Option<Exceeded>,
}

impl ResultSink for Keep {
    fn columns(&mut self, columns: &[OutputColumn]) {
        self.columns = columns.to_vec();
    }

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        self.byte_count += row.bytes.len() + size_of::<Box<[u8]>>();
        if self.byte_count > self.held.bytes() {
            let missing = self.byte_count - self.held.bytes();
            if let Err(exceeded) = self.held.grow(missing.next_multiple_of(RESERVED_BYTES)) {
                self.exceeded = Some(exceeded);
                return ControlFlow::Break(());
            }
        }
        self.rows.push(row.bytes.into());
        ControlFlow::Continue(())
    }

    fn complete(&mut self, _tag: &CommandTag) {}
}

impl Cursor {
    /// Moves and returns the range of rows passed, and whether they come in reverse order.
    fn advance(&mut self, direction: FetchDirection) -> (std::ops::Range<usize>, bool) {
        let (count, at) = (self.rows.len(), self.position);
        // `at` is the number of the current row, counted from 1; 0 and count + 1 lie outside.
        let single = |target: i64| {
            let target = target.clamp(0, count as i64 + 1) as usize;
            let range = if target == 0 || target > count {
                0..0
            } else {
                target - 1..target
            };
            (range, target)
        };
        let (range, position, reverse) = match direction {
            FetchDirection::ForwardAll => (at.min(count)..count, count + 1, false),
            FetchDirection::BackwardAll => (0..at.saturating_sub(1), 0, true),
            FetchDirection::Forward(0) => {
                let (range, position) = single(at as i64);
                (range, position, false)
            }
            FetchDirection::Forward(n) if n > 0 => {
                let end = at.saturating_add(n as usize);
                (at.min(count)..end.min(count), end.min(count + 1), false)
            }
            FetchDirection::Forward(n) => {
                let first = (at as i64).saturating_add(n).max(0) as usize;
                (first.saturating_sub(1)..at.saturating_sub(1), first, true)
            }
            FetchDirection::Absolute(n) => {
                let (range, position) = single(if n < 0 { count as i64 + 1 + n } else { n });
                (range, position, false)
            }
            FetchDirection::Relative(n) => {
                let (range, position) = single((at as i64).saturating_add(n));
                (range, position, false)
            }
        };
        self.position = position;
        (range, reverse)
    }
}

/// MOVE and FETCH of a portal that was opened over the protocol, which is a cursor too. It only moves
/// forward.
fn move_portal(
    name: &str,
    direction: FetchDirection,
    moves: bool,
    sink: &mut dyn ResultSink,
) -> Result<u64, SqlError> {
    let forward = match direction {
        FetchDirection::ForwardAll => Some(None),
        FetchDirection::Forward(rows) => u64::try_from(rows).ok().filter(|rows| *rows > 0).map(Some),
        _ => None,
    };
    let moved = match forward {
        Some(rows) if moves => sink.move_portal(name, rows),
        _ => sink.move_portal(name, Some(0)).map(|known| {
            known?;
            let what = "FETCH, and MOVE other than forward, of a portal of the protocol";
            Err(SqlError::unsupported(format!("{what} are not supported")))
        }),
    };
    moved.ok_or_else(|| missing_cursor(name))?
}

fn missing_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState("34000"), format!("cursor \"{name}\" does not exist"))
}

impl Session {
    pub(crate) fn run_cursor(
        &mut self,
        plan: &CursorPlan,
        planned: &VersionedPlan,
        params: &[Value],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        match plan {
            CursorPlan::Declare { name, hold, plan } => {
                let in_block = self.open.as_ref().is_some_and(|open| open.explicit);
                if !hold && !in_block {
                    return Err(SqlError::new(
                        SqlState("25P01"),
                        "DECLARE CURSOR can only be used in transaction blocks",
                    ));
                }
                if self.cursors.contains_key(name) {
                    return Err(SqlError::new(
                        SqlState("42P03"),
                        format!("cursor \"{name}\" already exists"),
                    ));
                }
                let cursor = self.open_cursor(plan, planned, params, *hold)?;
                self.cursors.insert(name.clone(), cursor);
                sink.complete(&CommandTag::plain("DECLARE CURSOR"));
            }
            CursorPlan::Fetch {
                name,
                direction,
                moves,
            } => {
                let Some(cursor) = self.cursors.get_mut(name) else {
                    let passed = move_portal(name, *direction, *moves, sink)?;
                    sink.complete(&CommandTag::counted("MOVE", passed));
                    return Ok(());
                };
                let (range, reverse) = cursor.advance(*direction);
                let rows = cursor.rows.get(range).unwrap_or_default();
                if !moves {
                    sink.columns(&cursor.columns);
                    let push = |row: &[u8]| {
                        sink.row(RowRef {
                            layout: &cursor.layout,
                            bytes: row,
                        })
                    };
                    let pushed: ControlFlow<()> = if reverse {
                        rows.iter().rev().map(|row| row.as_ref()).try_for_each(push)
                    } else {
                        rows.iter().map(|row| row.as_ref()).try_for_each(push)
                    };
                    let _ = pushed;
                }
                let verb = if *moves { "MOVE" } else { "FETCH" };
                sink.complete(&CommandTag::counted(verb, rows.len() as u64));
            }
            CursorPlan::Close(None) => {
                self.cursors.clear();
                sink.close_portal(None);
                sink.complete(&CommandTag::plain("CLOSE CURSOR ALL"));
            }
            CursorPlan::Close(Some(name)) => {
                if self.cursors.remove(name).is_none() && !sink.close_portal(Some(name)) {
                    return Err(missing_cursor(name));
                }
                sink.complete(&CommandTag::plain("CLOSE CURSOR"));
            }
        }
        Ok(())
    }

    /// Columns that FETCH from a cursor returns.
    ///
    /// # Errors
    /// 34000 if there is no such cursor.
    pub fn cursor_columns(&self, name: &str) -> Result<Vec<OutputColumn>, SqlError> {
        self.cursors
            .get(name)
            .map(|cursor| cursor.columns.clone())
            .ok_or_else(|| missing_cursor(name))
    }

    fn open_cursor(
        &mut self,
        plan: &Plan,
        planned: &VersionedPlan,
        params: &[Value],
        holds: bool,
    ) -> Result<Cursor, SqlError> {
        let mut keep = Keep {
            columns: Vec::new(),
            rows: Vec::new(),
            byte_count: 0,
            held: self.held.empty(),
            exceeded: None,
        };
        let planned = planned.with_plan(plan.clone());
        let ran = self.run_plan(&planned, params, PipelinePosition::Pipelined, &mut keep);
        keep.exceeded.map(too_much_held).map_or(ran, Err)?;
        let layout = super::program::layout_of(&keep.columns);
        let number = self.cursors_made;
        self.cursors_made += 1;
        Ok(Cursor {
            columns: keep.columns,
            layout,
            rows: keep.rows,
            position: 0,
            holds,
            number,
            _held: keep.held,
        })
    }
}

#[cfg(test)]
mod tests {
    use weft_base::Budget;

    use super::*;

    fn cursor(rows: usize) -> Cursor {
        Cursor {
            columns: Vec::new(),
            layout: Arc::new(RowLayout::new(&[])),
            rows: (0..rows).map(|n| vec![n as u8].into()).collect(),
            position: 0,
            holds: false,
            number: 0,
            _held: Budget::new(0).empty(),
        }
    }

    #[test]
    fn fetch_moves_as_in_postgresql() {
        let mut cursor = cursor(5);
        assert_eq!(cursor.advance(FetchDirection::Forward(2)), (0..2, false));
        assert_eq!(cursor.advance(FetchDirection::Forward(0)), (1..2, false));
        assert_eq!(cursor.advance(FetchDirection::Forward(-1)), (0..1, true));
        assert_eq!(cursor.advance(FetchDirection::ForwardAll), (1..5, false));
        assert_eq!(cursor.advance(FetchDirection::Forward(1)), (5..5, false));
        assert_eq!(cursor.advance(FetchDirection::Forward(-2)), (3..5, true));
        assert_eq!(cursor.advance(FetchDirection::BackwardAll), (0..3, true));
        assert_eq!(cursor.advance(FetchDirection::Absolute(-1)), (4..5, false));
        assert_eq!(cursor.advance(FetchDirection::Absolute(2)), (1..2, false));
        assert_eq!(cursor.advance(FetchDirection::Relative(2)), (3..4, false));
        assert_eq!(cursor.advance(FetchDirection::Absolute(9)), (0..0, false));
    }
}
