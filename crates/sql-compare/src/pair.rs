//! The two servers side by side: one statement goes to both, in one of the ways to send it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::answer::{Answer, Freedom, Verdict, judge};
use crate::generate::Statement;
use crate::schema::Schema;
use crate::server::Server;
use crate::tree::Node;
use crate::wire::{Connection, Parameter, Protocol};

/// How long one answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How often a repeated statement is executed.
const REPETITIONS: usize = 3;

/// A way to send a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// As text.
    Simple,
    /// Prepared, without parameters; results in binary or in text.
    Prepared {
        /// Results in binary.
        binary: bool,
    },
    /// Prepared with its literals as parameters of declared types in binary; results in binary.
    Binary,
    /// Prepared with its literals as parameters in text.
    Lifted {
        /// Whether their types are declared.
        declared: bool,
        /// Results in binary.
        binary: bool,
    },
    /// Prepared once with parameters, executed several times.
    Repeated,
    /// As the query of a cursor, from which rows are fetched twice.
    Cursor,
    /// As the query of a view, which is read.
    View {
        /// How many columns it has; they are given names.
        columns: usize,
    },
}

impl Way {
    /// Ways that every statement takes.
    pub const ALL: [Self; 5] = [
        Self::Simple,
        Self::Prepared { binary: true },
        Self::Binary,
        Self::Lifted {
            declared: true,
            binary: false,
        },
        Self::Lifted {
            declared: false,
            binary: false,
        },
    ];

    /// A word for reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Prepared { .. } => "prepared",
            Self::Binary => "parameters in binary",
            Self::Lifted { declared: true, .. } => "parameters with types",
            Self::Lifted { .. } => "parameters without types",
            Self::Repeated => "executed again",
            Self::Cursor => "cursor",
            Self::View { .. } => "view",
        }
    }

    /// Whether its message is a transaction, which an error leaves open.
    fn begins(self) -> bool {
        matches!(self, Self::Cursor | Self::View { .. })
    }

    /// The text and the protocol for a statement.
    #[must_use]
    pub fn message(self, tree: &Node) -> (String, Protocol) {
        match self {
            Self::Simple => (tree.sql(), Protocol::Simple),
            Self::Cursor => {
                let sql = tree.sql();
                let text = format!(
                    "BEGIN; DECLARE held CURSOR FOR {sql}; FETCH 2 FROM held; FETCH ALL FROM held; COMMIT"
                );
                (text, Protocol::Simple)
            }
            Self::View { columns } => {
                let names: Vec<String> = (1..=columns).map(|number| format!("c{number}")).collect();
                let (sql, names) = (tree.sql(), names.join(", "));
                let text =
                    format!("BEGIN; CREATE VIEW made ({names}) AS {sql}; SELECT * FROM made; ROLLBACK");
                (text, Protocol::Simple)
            }
            Self::Prepared { binary } => {
                let protocol = Protocol::Extended {
                    parameters: Vec::new(),
                    binary_results: binary,
                    executions: 1,
                };
                (tree.sql(), protocol)
            }
            Self::Binary | Self::Lifted { .. } | Self::Repeated => {
                let (declared, binary) = match self {
                    Self::Lifted { declared, binary } => (declared, binary),
                    Self::Repeated => (true, false),
                    _ => (true, true),
                };
                let (sql, values) = tree.lifted();
                let parameter = |lifted: crate::tree::Lifted| Parameter {
                    type_oid: if declared { lifted.ty.oid() } else { 0 },
                    binary: false,
                    value: lifted.value.map(String::into_bytes),
                };
                let protocol = Protocol::Extended {
                    parameters: values.into_iter().map(parameter).collect(),
                    binary_results: binary,
                    executions: if self == Self::Repeated { REPETITIONS } else { 1 },
                };
                (sql, protocol)
            }
        }
    }
}

/// Both answers to one message, and the judgement.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What was sent.
    pub sql: String,
    /// PostgreSQL's answer.
    pub oracle: Answer,
    /// Weft's.
    pub weft: Answer,
    /// How they relate.
    pub verdict: Verdict,
}

/// How Weft is reached.
#[derive(Clone, Debug)]
pub enum WeftAt {
    /// A server that somebody else runs.
    Address(SocketAddr),
    /// One of our own, started from this binary, and again when it breaks.
    Program(PathBuf),
}

/// Connections to both servers, with the tables of the schema on each.
#[derive(Debug)]
pub struct Pair {
    /// The tables.
    pub schema: Schema,
    postgres_address: SocketAddr,
    postgres: Connection,
    at: WeftAt,
    own: Option<Server>,
    weft: Connection,
    /// Binary forms of parameters by type and text.
    binary: HashMap<(u32, Vec<u8>), Option<Vec<u8>>>,
    /// SET statements of every connection.
    settings: Vec<String>,
    /// How many times Weft had to be started again.
    pub restarts: usize,
}

impl Pair {
    /// Connects to both, executes the settings (`SET ...`) and makes the tables.
    ///
    /// # Errors
    /// When a server cannot be reached, or does not take the tables.
    pub fn open(postgres: SocketAddr, at: WeftAt, settings: Vec<String>) -> Result<Self, String> {
        let (own, address) = reach(&at)?;
        let mut weft = connect(address)?;
        let schema = Schema::over(&mut weft);
        let mut pair = Self {
            schema,
            postgres_address: postgres,
            postgres: connect(postgres)?,
            at,
            own,
            weft,
            binary: HashMap::new(),
            settings,
            restarts: 0,
        };
        pair.set_weft()?;
        pair.prepare_postgres()?;
        pair.schema.clone().load(&mut pair.weft)?;
        Ok(pair)
    }

    /// The connection to PostgreSQL.
    pub fn postgres(&mut self) -> &mut Connection {
        &mut self.postgres
    }

    /// Puts a parameter into its binary form, which PostgreSQL knows; it stays text where that is no value.
    fn make_binary(&mut self, parameter: &mut Parameter) {
        let Some(text) = parameter.value.clone() else {
            return;
        };
        let key = (parameter.type_oid, text);
        if !self.binary.contains_key(&key) {
            let protocol = Protocol::Extended {
                parameters: vec![parameter.clone()],
                binary_results: true,
                executions: 1,
            };
            let bytes = match self.postgres.run("SELECT $1", &protocol) {
                Answer::Rows(rows) => rows.values.into_iter().flatten().next().flatten(),
                _ => None,
            };
            self.binary.insert(key.clone(), bytes);
        }
        if let Some(Some(bytes)) = self.binary.get(&key) {
            parameter.value = Some(bytes.clone());
            parameter.binary = true;
        }
    }

    fn prepare_postgres(&mut self) -> Result<(), String> {
        self.postgres.execute("SET statement_timeout = '5s'")?;
        self.postgres.execute("SET client_min_messages = 'error'")?;
        for setting in &self.settings {
            self.postgres.execute(setting)?;
        }
        self.schema.clone().load(&mut self.postgres)
    }

    fn set_weft(&mut self) -> Result<(), String> {
        for setting in &self.settings {
            self.weft.execute(setting)?;
        }
        Ok(())
    }

    /// A new connection to Weft, and a new server if that is ours and does not answer.
    fn reopen_weft(&mut self, hangs: bool) -> Result<(), String> {
        if let WeftAt::Address(address) = self.at {
            self.weft = connect(address)?;
            return self.set_weft();
        }
        let alive = !hangs && self.own.as_mut().is_some_and(Server::lives);
        let again = self.own.as_ref().map(|server| server.address).filter(|_| alive);
        if let Some(connection) = again.and_then(|address| connect(address).ok()) {
            self.weft = connection;
            return self.set_weft();
        }
        self.own = None;
        let (own, address) = reach(&self.at)?;
        self.own = own;
        self.restarts += 1;
        self.weft = connect(address)?;
        self.set_weft()?;
        self.schema.load(&mut self.weft)
    }

    fn reopen_postgres(&mut self) -> Result<(), String> {
        self.postgres = connect(self.postgres_address)?;
        self.prepare_postgres()
    }

    /// Sends one message to both. Statements that change rows are followed by a look at the table, and by its
    /// restoration.
    ///
    /// # Errors
    /// When a server is gone for good.
    pub fn compare(&mut self, tree: &Node, statement: &Statement, way: Way) -> Result<Comparison, String> {
        let (sql, mut protocol) = way.message(tree);
        if let (Way::Binary, Protocol::Extended { parameters, .. }) = (way, &mut protocol) {
            parameters
                .iter_mut()
                .for_each(|parameter| self.make_binary(parameter));
        }
        // The order of a view's query is not that of what reads it.
        let ordered =
            statement.freedom.ordered && sql.contains("ORDER BY") && !matches!(way, Way::View { .. });
        let freedom = Freedom {
            ordered,
            ..statement.freedom
        };
        let oracle = self.postgres.run(&sql, &protocol);
        if matches!(oracle, Answer::Broken(_)) {
            self.reopen_postgres()?;
        } else if way.begins() && oracle.code().is_some() {
            self.postgres.execute("ROLLBACK")?;
        }
        // A statement that PostgreSQL gives up on tells nothing.
        let skip =
            matches!(oracle.code(), Some("57014" | "53200" | "54000")) || matches!(oracle, Answer::Broken(_));
        if skip {
            let weft = oracle.clone();
            let oracle = Answer::Broken("skipped".to_owned());
            return Ok(Comparison {
                sql,
                oracle,
                weft,
                verdict: Verdict::Permitted,
            });
        }
        let weft = self.weft.run(&sql, &protocol);
        let mut verdict = judge(&oracle, &weft, freedom);
        if let Answer::Broken(why) = &weft {
            let hangs = why.contains("in time");
            self.reopen_weft(hangs)?;
        } else if way.begins() && weft.code().is_some() {
            // What comes of it is seen by the next statement.
            let _ = self.weft.execute("ROLLBACK");
        }
        let mut comparison = Comparison {
            sql,
            oracle,
            weft,
            verdict,
        };
        if statement.changes {
            if verdict == Verdict::Same
                && let Some(other) = self.compare_table(freedom)
            {
                verdict = other.verdict;
                comparison = Comparison {
                    sql: comparison.sql,
                    ..other
                };
            }
            comparison.verdict = verdict;
            self.restore()?;
        }
        Ok(comparison)
    }

    /// What the changed table looks like afterwards, if that differs.
    fn compare_table(&mut self, freedom: Freedom) -> Option<Comparison> {
        let sql = "SELECT * FROM w ORDER BY id".to_owned();
        let oracle = self.postgres.run(&sql, &Protocol::Simple);
        let weft = self.weft.run(&sql, &Protocol::Simple);
        let freedom = Freedom {
            ordered: true,
            ..freedom
        };
        let verdict = judge(&oracle, &weft, freedom);
        let differs = verdict.is_difference() || verdict == Verdict::Unsupported;
        differs.then_some(Comparison {
            sql,
            oracle,
            weft,
            verdict,
        })
    }

    fn restore(&mut self) -> Result<(), String> {
        let text = format!("BEGIN; {}; COMMIT", self.schema.restore().join("; "));
        self.postgres.execute(&text)?;
        for _ in 0..2 {
            match self.weft.run(&text, &Protocol::Simple) {
                Answer::Rows(_) => return Ok(()),
                Answer::Broken(_) => self.reopen_weft(true)?,
                Answer::Error { .. } => {
                    // Whatever state it is in: a new connection, statement by statement.
                    self.reopen_weft(false)?;
                    for statement in self.schema.restore() {
                        self.weft.execute(&statement)?;
                    }
                    return Ok(());
                }
            }
        }
        Err("the changed table cannot be restored".to_owned())
    }
}

fn reach(at: &WeftAt) -> Result<(Option<Server>, SocketAddr), String> {
    match at {
        WeftAt::Address(address) => Ok((None, *address)),
        WeftAt::Program(program) => {
            let server = Server::weft(program)?;
            let address = server.address;
            Ok((Some(server), address))
        }
    }
}

fn connect(address: SocketAddr) -> Result<Connection, String> {
    Connection::open(address, ANSWER_WITHIN).map_err(|e| format!("{address}: {e}"))
}
