//! A session with its results as text.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft::sink::{CommandTag, CopyHeader, NoticeLevel, OutputColumn, ResultSink, RowRef, TxnStatus};
use weft::{Database, EngineConfig, Options, Session, SqlError};
use weft_base::{Progress, SimDisk, SystemClock};
use weft_types::{SqlState, Value, format_text};

/// What a message gave.
#[derive(Debug, Default)]
pub struct Results {
    /// Tags in order: "UPDATE 1", "BEGIN", "(empty)".
    pub tags: Vec<String>,
    /// The rows of all statements: columns joined by `,`.
    pub rows: Vec<String>,
    pub columns: Vec<OutputColumn>,
    pub notices: Vec<SqlError>,
    pub levels: Vec<NoticeLevel>,
    /// What COPY FROM STDIN reads.
    pub input: Vec<u8>,
    /// After the input the client fails.
    pub breaks: bool,
    pub output: String,
    /// What COPY TO STDOUT sent.
    pub copied: Vec<u8>,
}

impl ResultSink for Results {
    fn columns(&mut self, columns: &[OutputColumn]) {
        self.columns = columns.to_vec();
    }

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        let values = row.layout.decode(row.bytes).unwrap();
        assert_eq!(values.len(), self.columns.len());
        let texts = values.iter().zip(&self.columns).map(|(value, column)| {
            let mut text = String::new();
            match value {
                Value::Null => text.push_str("NULL"),
                value => format_text(value, &column.ty, &mut text),
            }
            text
        });
        self.rows.push(texts.collect::<Vec<_>>().join(","));
        ControlFlow::Continue(())
    }

    fn complete(&mut self, tag: &CommandTag) {
        // The wire's "INSERT 0 1" has an oid that tells nothing.
        let verb = tag.verb.strip_suffix(" 0").unwrap_or(&tag.verb);
        self.tags.push(match tag.rows {
            Some(rows) => format!("{verb} {rows}"),
            None => tag.verb.to_string(),
        });
    }

    fn empty(&mut self) {
        self.tags.push("(empty)".into());
    }

    fn notice(&mut self, level: NoticeLevel, notice: &SqlError) {
        self.levels.push(level);
        self.notices.push(notice.clone());
    }

    fn copy_in(
        &mut self,
        _header: CopyHeader,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        // Cut where no line ends.
        for piece in self.input.chunks(7) {
            take(piece)?;
        }
        if self.breaks {
            return Err(SqlError::new(
                SqlState::QUERY_CANCELED,
                "COPY from stdin failed: client gave up",
            ));
        }
        Ok(())
    }

    fn copy_out(&mut self, _header: CopyHeader) {}

    fn copy_data(&mut self, data: &[u8]) -> ControlFlow<()> {
        self.output.push_str(&String::from_utf8_lossy(data));
        self.copied.extend_from_slice(data);
        ControlFlow::Continue(())
    }

    fn copy_done(&mut self) {}

    fn deallocate(&mut self, _name: Option<&str>) -> bool {
        false
    }
}

/// Nothing is written behind the back of a test: it counts what the disk does.
pub fn options() -> Options {
    Options {
        engine: EngineConfig {
            workers: 1,
            flush_interval: Duration::from_secs(3600),
            ..EngineConfig::default()
        },
        query_threads: 1,
        query_memory_bytes: 256 << 20,
        ..Options::default()
    }
}

pub fn open_on(disk: &SimDisk) -> Database {
    open_with(disk, options())
}

pub fn open_with(disk: &SimDisk, options: Options) -> Database {
    let (disk, clock) = (Arc::new(disk.clone()), Arc::new(SystemClock::new()));
    Database::open_with(disk, Path::new("/db"), clock, options, &Progress::default()).unwrap()
}

pub fn database() -> Database {
    open_on(&SimDisk::new(1))
}

pub struct Client(pub Session);

impl Client {
    pub fn new(db: &Database) -> Client {
        Client(db.session())
    }

    pub fn with(db: &Database, sql: &str) -> Client {
        let mut client = Client::new(db);
        client.ok(sql);
        client
    }

    /// Runs a message and what it gave, the error beside what came before it.
    pub fn message(&mut self, sql: &str) -> (Results, Result<(), SqlError>) {
        let mut results = Results::default();
        let result = self.0.execute_simple(sql, &mut results);
        if result.is_ok() {
            self.0.gate().wait().unwrap();
        }
        (results, result)
    }

    /// Runs a message that must not fail; returns its tags joined by `; `.
    #[track_caller]
    pub fn ok(&mut self, sql: &str) -> String {
        let (results, result) = self.message(sql);
        result.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        results.tags.join("; ")
    }

    /// Runs a message that must fail with this state.
    #[track_caller]
    pub fn fails(&mut self, sql: &str, state: &str) -> SqlError {
        let (results, result) = self.message(sql);
        let Err(error) = result else {
            panic!("{sql} gave {results:?}")
        };
        assert_eq!(error.state.0, state, "{sql}: {error:?}");
        error
    }

    /// The rows of a message, joined by `;`.
    #[track_caller]
    pub fn rows(&mut self, sql: &str) -> String {
        let (results, result) = self.message(sql);
        result.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        results.rows.join(";")
    }

    #[track_caller]
    pub fn copy_in(&mut self, sql: &str, input: &str) -> Result<String, SqlError> {
        let mut results = Results {
            input: input.into(),
            ..Results::default()
        };
        self.0.execute_simple(sql, &mut results)?;
        Ok(results.tags.join("; "))
    }

    #[track_caller]
    pub fn is(&self, status: TxnStatus) {
        assert_eq!(self.0.status(), status);
    }
}

/// Runs a message on another thread; the client comes back with its answer.
pub fn in_thread(
    mut client: Client,
    sql: &'static str,
) -> std::thread::JoinHandle<(Client, String, Result<(), SqlError>)> {
    std::thread::spawn(move || {
        let (results, result) = client.message(sql);
        (client, results.tags.join("; "), result)
    })
}

/// Long enough for a statement on another thread to be waiting for its lock.
pub fn moment() {
    std::thread::sleep(Duration::from_millis(150));
}
