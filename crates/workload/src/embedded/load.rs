//! Creates and fills the tables of a workload with COPY, as any client would.

use std::ops::ControlFlow;

use weft::sink::{CommandTag, CopyHeader, NoticeLevel, OutputColumn, ResultSink, RowRef};
use weft::{Database, Session};
use weft_base::Prng;
use weft_types::{SqlError, Value};

use crate::driver::RunError;
use crate::tpcb::{self, BankTable, Scale, Sums};
use crate::ycsb::{self, YcsbShape};

/// Bytes per piece of COPY data.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes of text per COPY. Each is a transaction, and the size of a write set is bounded.
const COPY_BYTES: usize = 256 << 20;

/// Creates `usertable` and fills it; `progress` is called with the number of rows sent.
pub fn load_ycsb(
    database: &Database,
    shape: &YcsbShape,
    mut progress: impl FnMut(u64),
) -> Result<(), RunError> {
    let mut session = database.session();
    run(&mut session, &ycsb::create_table(shape.fields))?;
    let mut random = Prng::new(1);
    let line = |out: &mut String, key: u64| ycsb::copy_line(out, key, shape, &mut random);
    copy(
        &mut session,
        &format!("COPY {} FROM STDIN", ycsb::TABLE),
        shape.records,
        line,
        &mut progress,
    )
}

/// Creates pgbench's tables and fills them; `progress` is called with the number of rows sent,
/// table by table.
pub fn load_tpcb(database: &Database, scale: Scale, mut progress: impl FnMut(u64)) -> Result<(), RunError> {
    let mut session = database.session();
    for statement in tpcb::CREATE_TABLES {
        run(&mut session, statement)?;
    }
    for table in BankTable::ALL {
        let line = |out: &mut String, number: u64| table.copy_line(out, number, scale);
        copy(
            &mut session,
            table.copy_statement(),
            table.row_count(scale),
            line,
            &mut progress,
        )?;
    }
    Ok(())
}

/// Reads the sums that TPC-B must conserve.
pub fn tpcb_sums(database: &Database) -> Result<Sums, RunError> {
    let rows = database
        .session()
        .query(tpcb::SUMS, &[])
        .map_err(|e| RunError::doing("reading the sums", e))?;
    let number = |column: usize| match rows.value(0, column) {
        Value::Int8(number) => Ok(number),
        other => Err(RunError(format!("a sum is {other:?}"))),
    };
    Ok(Sums {
        accounts: number(0)?,
        tellers: number(1)?,
        branches: number(2)?,
        history: number(3)?,
        history_rows: u64::try_from(number(4)?).unwrap_or(0),
    })
}

/// Runs a statement and ignores its result.
pub(crate) fn run(session: &mut Session, statement: &str) -> Result<(), RunError> {
    session.run(statement).map_err(|e| RunError::doing(statement, e))
}

/// COPY of `row_count` rows, written by `line`; returns when they are on disk.
pub(crate) fn copy(
    session: &mut Session,
    statement: &str,
    row_count: u64,
    line: impl FnMut(&mut String, u64),
    progress: &mut dyn FnMut(u64),
) -> Result<(), RunError> {
    copy_in_parts(session, statement, row_count, COPY_BYTES, line, progress)
}

/// The same with a given amount of text per COPY, exceeded by at most a piece.
fn copy_in_parts(
    session: &mut Session,
    statement: &str,
    row_count: u64,
    part_bytes: usize,
    line: impl FnMut(&mut String, u64),
    progress: &mut dyn FnMut(u64),
) -> Result<(), RunError> {
    let mut source = CopySource {
        next: 0,
        row_count,
        part_bytes,
        line,
        progress,
    };
    while source.next < row_count {
        session
            .execute_simple(statement, &mut source)
            .map_err(|e| RunError::doing(statement, e))?;
    }
    session
        .gate()
        .wait()
        .map_err(|e| RunError::doing("waiting for the disk", e))
}

/// A sink that supplies COPY data and discards results.
struct CopySource<'p, L> {
    next: u64,
    row_count: u64,
    part_bytes: usize,
    line: L,
    progress: &'p mut dyn FnMut(u64),
}

impl<L: FnMut(&mut String, u64)> ResultSink for CopySource<'_, L> {
    fn columns(&mut self, _columns: &[OutputColumn]) {}

    fn row(&mut self, _row: RowRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn complete(&mut self, _tag: &CommandTag) {}

    fn empty(&mut self) {}

    fn notice(&mut self, _level: NoticeLevel, _notice: &SqlError) {}

    fn copy_in(
        &mut self,
        _header: CopyHeader,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut piece = String::with_capacity(PIECE_BYTES + 1024);
        let mut taken = 0;
        while self.next < self.row_count && taken < self.part_bytes {
            piece.clear();
            while self.next < self.row_count && piece.len() < PIECE_BYTES {
                (self.line)(&mut piece, self.next);
                self.next += 1;
            }
            take(piece.as_bytes())?;
            taken += piece.len();
            (self.progress)(self.next);
        }
        Ok(())
    }

    fn copy_out(&mut self, _header: CopyHeader) {}

    fn copy_data(&mut self, _data: &[u8]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn copy_done(&mut self) {}

    fn deallocate(&mut self, _name: Option<&str>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use weft::Options;

    use super::*;

    #[test]
    fn rows_are_copied_in_parts_and_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path(), Options::default()).unwrap();
        let mut session = database.session();
        run(
            &mut session,
            "CREATE TABLE t (id bigint PRIMARY KEY, filler text)",
        )
        .unwrap();
        let filler = "f".repeat(1000);
        let mut last = 0;
        copy_in_parts(
            &mut session,
            "COPY t FROM STDIN",
            2_000,
            600_000,
            |out, id| out.push_str(&format!("{id}\t{filler}\n")),
            &mut |rows| last = rows,
        )
        .unwrap();
        assert_eq!(last, 2_000);
        let rows = session
            .query("SELECT count(*), min(id), max(id) FROM t", &[])
            .unwrap();
        let found: Vec<Value> = (0..3).map(|column| rows.value(0, column)).collect();
        assert_eq!(found, [2_000, 0, 1_999].map(Value::Int8));
    }
}
