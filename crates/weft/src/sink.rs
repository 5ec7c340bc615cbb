//! The interface for results of statements, and the types that describe them.
//!
//! A session pushes, for each statement, either `empty`, or `columns` and rows (if it returns any), or a
//! copy, and then `complete`. Rows are passed in their stored form, so that a caller converts them only once,
//! to wire text, Arrow or values. An error is returned by the session's call, never pushed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
pub use weft_types::NoticeLevel;
use weft_types::{RowLayout, SqlError, SqlType, TimeZone};

/// Names by oid.
pub type OidNames = BTreeMap<u32, String>;

/// One column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputColumn {
    /// Its name, as PostgreSQL would give it.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// Names for values that stand for objects of the catalog (`regclass` and the like), by oid. An oid
    /// without a name is shown as a number.
    pub names: Option<Arc<OidNames>>,
    /// The table's oid and the column's number in it, from 1, if it is a plain column of a table.
    pub table: Option<(u32, i16)>,
}

impl OutputColumn {
    /// A column that belongs to no table.
    pub fn new(name: impl Into<String>, ty: SqlType) -> Self {
        OutputColumn {
            name: name.into(),
            ty,
            names: None,
            table: None,
        }
    }

    /// The type oid that a client is told.
    pub fn oid(&self) -> u32 {
        self.ty.oid()
    }
}

/// A row as the store keeps it.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    /// How `bytes` are laid out; its types are those of the result's columns.
    pub layout: &'a RowLayout,
    /// The encoded row.
    pub bytes: &'a [u8],
}

/// Whether a statement is known to be the only one of its pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelinePosition {
    /// Nothing ran since the last Sync, and the next message is a Sync: outside of an explicit transaction
    /// the statement is a transaction by itself, and may be executed as a one-shot program.
    Alone,
    /// Other statements may belong to the same implicit transaction.
    Pipelined,
}

/// The transaction status of a session between messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// Outside of an explicit transaction.
    Idle,
    /// Inside an explicit transaction.
    InTransaction,
    /// Inside an explicit transaction that has failed; only its end is accepted.
    Failed,
}

/// The command tag of a finished statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTag {
    /// "SELECT", "INSERT", "CREATE TABLE" ...
    pub verb: Cow<'static, str>,
    /// Rows returned or affected; absent for statements that do not count ("BEGIN").
    pub rows: Option<u64>,
}

impl CommandTag {
    /// A tag without a count.
    pub fn plain(verb: impl Into<Cow<'static, str>>) -> Self {
        CommandTag {
            verb: verb.into(),
            rows: None,
        }
    }

    /// A tag with a count.
    pub fn counted(verb: impl Into<Cow<'static, str>>, rows: u64) -> Self {
        CommandTag {
            verb: verb.into(),
            rows: Some(rows),
        }
    }
}

/// The format of the data of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyHeader {
    /// Whether the whole stream is PostgreSQL's binary format.
    pub binary: bool,
    /// How many columns a line has.
    pub column_count: u16,
    /// How long a client that sends data may stay silent, since locks are held for it; None: no limit.
    pub idle_max: Option<Duration>,
}

/// Where the results of statements go, in order: for each statement either `empty`, or `columns` and rows (if
/// it returns any), or a copy, and then `complete`.
pub trait ResultSink {
    /// The shape of the rows that follow; called once by each statement that returns rows, before the first.
    fn columns(&mut self, columns: &[OutputColumn]);
    /// One row. `Break`: stop, the result is not needed any more.
    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()>;
    /// The statement is done.
    fn complete(&mut self, tag: &CommandTag);
    /// The statement was empty; takes the place of `complete`.
    fn empty(&mut self) {}
    /// A notice or warning.
    fn notice(&mut self, level: NoticeLevel, notice: &SqlError) {
        let _ = (level, notice);
    }
    /// COPY FROM STDIN: asks the client for its data and passes every piece to `take`, in order, cut
    /// anywhere. Returns when the client is done. An error of `take` ends the copy and is returned; so are
    /// the client's failure (57014) and a broken connection. A sink that does not implement this has no data.
    fn copy_in(
        &mut self,
        header: CopyHeader,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let _ = (header, take);
        Err(SqlError::unsupported(
            "COPY FROM STDIN needs a caller that has data to give",
        ))
    }
    /// COPY TO STDOUT begins.
    fn copy_out(&mut self, header: CopyHeader) {
        let _ = header;
    }
    /// A piece of it: in text format one line with its newline. `Break`: stop, the data is not needed any
    /// more.
    fn copy_data(&mut self, data: &[u8]) -> ControlFlow<()> {
        let _ = data;
        ControlFlow::Continue(())
    }
    /// The copy is complete; `complete` follows.
    fn copy_done(&mut self) {}
    /// MOVE of a portal that was opened over the protocol: passes up to so many rows (`None`: all) and tells
    /// how many these were; `None` if there is no such portal.
    fn move_portal(&mut self, name: &str, rows: Option<u64>) -> Option<Result<u64, SqlError>> {
        let _ = (name, rows);
        None
    }
    /// CLOSE of a portal that was opened over the protocol, or of all (`None`). True if there was one of that
    /// name.
    fn close_portal(&mut self, name: Option<&str>) -> bool {
        let _ = name;
        false
    }
    /// DEALLOCATE of a statement that was prepared over the protocol, or of all (`None`; DISCARD ALL too).
    /// True if there was one of that name.
    fn deallocate(&mut self, name: Option<&str>) -> bool {
        let _ = name;
        false
    }
}

/// A session's time zone, shared with those who read and show its values.
#[derive(Clone, Debug)]
pub struct SharedZone(Arc<RwLock<TimeZone>>);

impl SharedZone {
    /// The zone as it is now.
    pub fn get(&self) -> TimeZone {
        *self.0.read()
    }

    pub(crate) fn set(&self, zone: TimeZone) {
        *self.0.write() = zone;
    }
}

impl Default for SharedZone {
    fn default() -> Self {
        SharedZone(Arc::new(RwLock::new(TimeZone::UTC)))
    }
}
