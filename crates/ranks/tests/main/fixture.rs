//! A cluster of threads, and clients whose results are texts.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use weft::sink::{CommandTag, OutputColumn, ResultSink, RowRef};
use weft::{Database, EngineConfig, Options, Prepared, Session, SqlError, Value};
use weft_base::{Progress, SimDisk, SystemClock};
use weft_fabric::Threads;
use weft_ranks::{Config, Node, RanksSession};
use weft_server::backend::BackendSession;
use weft_types::format_text;

/// Ranks of one process.
pub struct Cluster {
    pub databases: Vec<Database>,
    pub nodes: Vec<Node>,
}

pub fn database() -> Database {
    database_on(&SimDisk::new(1)).unwrap()
}

/// The database that a disk has, or a new one.
pub fn database_on(disk: &SimDisk) -> Result<Database, weft::Error> {
    let options = Options {
        engine: EngineConfig {
            workers: 1,
            ..EngineConfig::default()
        },
        query_threads: 1,
        ..Options::default()
    };
    let (disk, clock) = (Arc::new(disk.clone()), Arc::new(SystemClock::new()));
    Database::open_with(disk, Path::new("db"), clock, options, &Progress::default())
}

impl Cluster {
    pub fn start(rank_count: u32) -> Cluster {
        Cluster::start_with(rank_count, Config::default())
    }

    pub fn start_with(rank_count: u32, config: Config) -> Cluster {
        let fabric = Threads::new(rank_count);
        let databases: Vec<Database> = (0..rank_count).map(|_| database()).collect();
        let starting: Vec<_> = databases
            .iter()
            .enumerate()
            .map(|(rank, database)| {
                let rank = fabric.join(u32::try_from(rank).unwrap()).unwrap();
                let (database, config) = (database.clone(), config.clone());
                std::thread::spawn(move || Node::start(&rank, database, config))
            })
            .collect();
        let nodes = starting
            .into_iter()
            .map(|node| node.join().unwrap().unwrap())
            .collect();
        Cluster { databases, nodes }
    }

    /// The same definitions, given to each rank by itself.
    pub fn define(&self, sql: &str) {
        for database in &self.databases {
            database.session().run(sql).unwrap();
        }
    }

    pub fn client(&self, rank: usize) -> Client {
        Client {
            session: self.nodes[rank].backend().session(),
        }
    }

    /// The rows of each rank by itself: its part.
    pub fn parts(&self, sql: &str) -> Vec<String> {
        let part = |database: &Database| {
            let rows = database.session().query(sql, &[]).unwrap();
            let texts = rows.iter().map(|row| {
                let texts = row
                    .iter()
                    .zip(rows.columns())
                    .map(|(value, column)| text(value, column));
                texts.collect::<Vec<_>>().join(",")
            });
            texts.collect::<Vec<_>>().join(";")
        };
        self.databases.iter().map(part).collect()
    }
}

fn text(value: &Value, column: &OutputColumn) -> String {
    let mut text = String::new();
    match value {
        Value::Null => text.push_str("NULL"),
        value => format_text(value, &column.ty, &mut text),
    }
    text
}

/// A client of one rank, or of a database without ranks.
pub struct Client<S = RanksSession> {
    pub session: S,
}

impl Client<Session> {
    /// Of a database that is no rank.
    pub fn alone(database: &Database) -> Client<Session> {
        Client {
            session: database.session(),
        }
    }
}

#[derive(Default)]
struct Results {
    columns: Vec<OutputColumn>,
    rows: Vec<String>,
    tags: Vec<String>,
}

impl ResultSink for Results {
    fn columns(&mut self, columns: &[OutputColumn]) {
        self.columns = columns.to_vec();
    }

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        let values = row.layout.decode(row.bytes).unwrap();
        assert_eq!(
            values.len(),
            self.columns.len(),
            "rows are described before they come"
        );
        let texts = values
            .iter()
            .zip(&self.columns)
            .map(|(value, column)| text(value, column));
        self.rows.push(texts.collect::<Vec<_>>().join(","));
        ControlFlow::Continue(())
    }

    fn complete(&mut self, tag: &CommandTag) {
        self.tags.push(match tag.rows {
            Some(rows) => format!("{} {rows}", tag.verb),
            None => tag.verb.to_string(),
        });
    }
}

impl<S: BackendSession<Prepared = Prepared>> Client<S> {
    fn run(&mut self, sql: &str) -> Result<Results, SqlError> {
        let mut results = Results::default();
        self.session.execute_simple(sql, &mut results)?;
        self.session.durability_gate().wait()?;
        Ok(results)
    }

    pub fn ok(&mut self, sql: &str) -> String {
        match self.run(sql) {
            Ok(results) => results.tags.join("; "),
            Err(error) => panic!("{sql}: {error}"),
        }
    }

    pub fn rows(&mut self, sql: &str) -> String {
        match self.run(sql) {
            Ok(results) => results.rows.join(";"),
            Err(error) => panic!("{sql}: {error}"),
        }
    }

    pub fn fails(&mut self, sql: &str, state: &str) -> String {
        let Err(error) = self.run(sql) else {
            panic!("{sql} succeeded")
        };
        assert_eq!(error.state.code(), state, "{sql}: {error}");
        error.message
    }

    pub fn outcome(&mut self, sql: &str) -> Result<String, String> {
        match self.run(sql) {
            Ok(results) => Ok(format!("{} {}", results.rows.join(";"), results.tags.join(";"))),
            Err(error) => Err(error.state.code().to_owned()),
        }
    }

    /// The rows of a message, or its SQLSTATE.
    pub fn outcome_rows(&mut self, sql: &str) -> Result<Vec<String>, String> {
        match self.run(sql) {
            Ok(results) => Ok(results.rows),
            Err(error) => Err(error.state.code().to_owned()),
        }
    }

    /// Rows and tags of a message, or its error.
    pub fn answer(&mut self, sql: &str) -> Result<(Vec<String>, Vec<String>), SqlError> {
        self.run(sql).map(|results| (results.rows, results.tags))
    }

    /// Runs one statement with parameters.
    pub fn with(&mut self, sql: &str, params: &[Value]) -> Result<String, SqlError> {
        use weft::sink::PipelinePosition;
        let types: Vec<_> = params.iter().map(Value::sql_type).collect();
        let mut results = Results::default();
        let prepared = self.session.prepare(sql, &types)?;
        let ran = self
            .session
            .execute(&prepared, params, PipelinePosition::Alone, &mut results);
        if let Err(error) = ran {
            self.session.fail();
            return Err(error);
        }
        self.session.sync()?;
        Ok(results.rows.join(";"))
    }
}
