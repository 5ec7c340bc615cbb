//! TPC-B over the network: a server in this process, real connections over loopback.
//!
//! ```text
//! message   the seven statements as one simple query: one program in Weft
//! steps     BEGIN, five prepared statements, COMMIT: seven round trips, an interactive transaction
//! ```
//!
//! Client threads and server share the machine's cores, as with pgbench on one machine. If commits wait for
//! the disk, no client can commit more than once per sync, so `clients / mean sync time` bounds the rate
//! with group commit; records contain the achieved share of that bound and the mean sync time of the same
//! rounds.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use postgres::error::SqlState;
use postgres::types::{ToSql, Type};
use postgres::{Client as Connection, Statement};
use weft::Database;
use weft_server::{Server, ServerConfig};
use weft_workload::driver::{Client, Contender, Finished, Measured, RunError};
use weft_workload::embedded::engine_counters;
use weft_workload::tpcb::{self, TpcbTransaction};
use weft_workload::{Record, report};

use crate::bank_client::{connect, describe};
use crate::failure::Failure;

/// How a transaction is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// As one simple query.
    Message,
    /// Statement by statement.
    Steps,
}

/// Starts a server for a database.
pub(crate) fn serve(database: &Database, clients_max: usize) -> Result<Server, Failure> {
    let config = ServerConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        connections_max: clients_max + 4,
        ..ServerConfig::default()
    };
    Server::start(Arc::new(database.clone()), config).map_err(|e| Failure::Environment(e.to_string()))
}

/// Connections to a server as a contender.
pub(crate) struct Network<'d> {
    /// The database behind the server, for its counters.
    pub database: &'d Database,
    /// Its address.
    pub address: SocketAddr,
    /// The style of transactions.
    pub style: Style,
}

struct NetworkClient {
    connection: Connection,
    /// Prepared statements; empty for messages.
    prepared: Vec<Statement>,
    ran: VecDeque<u64>,
}

impl Contender<TpcbTransaction> for Network<'_> {
    fn name(&self) -> &str {
        match self.style {
            Style::Message => "network, one message",
            Style::Steps => "network, seven statements",
        }
    }

    fn client(&self) -> Result<Box<dyn Client<TpcbTransaction> + '_>, RunError> {
        let failed = |what: &str, error: &postgres::Error| RunError::doing(what, describe(error));
        let mut connection = connect(self.address).map_err(|e| failed("connecting", &e))?;
        let mut prepared = Vec::new();
        if self.style == Style::Steps {
            for (text, inputs) in tpcb::STATEMENTS {
                let types = vec![Type::INT4; inputs.len()];
                let statement = connection.prepare_typed(text, &types);
                prepared.push(statement.map_err(|e| failed(text, &e))?);
            }
        }
        Ok(Box::new(NetworkClient {
            connection,
            prepared,
            ran: VecDeque::new(),
        }))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        engine_counters(self.database.engine())
    }
}

impl NetworkClient {
    fn attempt(&mut self, request: &TpcbTransaction) -> Result<(), postgres::Error> {
        if self.prepared.is_empty() {
            return self.connection.batch_execute(&tpcb::message(request));
        }
        self.connection.batch_execute("BEGIN")?;
        for (statement, (_, inputs)) in self.prepared.iter().zip(tpcb::STATEMENTS) {
            let values: Vec<i32> = inputs.iter().map(|input| input.of(request)).collect();
            let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| v as _).collect();
            self.connection.execute(statement, &values)?;
        }
        self.connection.batch_execute("COMMIT")
    }
}

impl Client<TpcbTransaction> for NetworkClient {
    fn start(&mut self, request: TpcbTransaction) -> Result<(), RunError> {
        let mut retries = 0;
        while let Err(error) = self.attempt(&request) {
            let again = error.code().is_some_and(|c| {
                *c == SqlState::T_R_DEADLOCK_DETECTED || *c == SqlState::T_R_SERIALIZATION_FAILURE
            });
            if !again {
                return Err(RunError::doing("a transaction", describe(&error)));
            }
            retries += 1;
            let rolled_back = self.connection.batch_execute("ROLLBACK");
            rolled_back.map_err(|e| RunError::doing("rolling back", describe(&e)))?;
        }
        self.ran.push_back(retries);
        Ok(())
    }

    fn finish(&mut self) -> Result<Finished, RunError> {
        let retries = self.ran.pop_front();
        Ok(Finished {
            retries: retries.ok_or_else(|| RunError("nothing is outstanding".to_owned()))?,
            rolled_back: false,
        })
    }
}

/// Throughput as a share of `clients / mean sync time`, for each contender that synced.
pub(crate) fn sync_shares(case: &str, config: &str, clients: usize, all: &[Measured]) -> Vec<Record> {
    let share = |measured: &Measured| {
        let syncs = measured.counter("log_syncs");
        let seconds = measured.counter("log_sync_ns") / 1e9;
        let bound = clients as f64 * syncs / seconds;
        let case = format!("{case} {}", measured.name);
        let share = measured.throughput() / bound;
        (syncs > 0.0 && seconds > 0.0)
            .then(|| Record::new("tpcb", &case, config, "share_of_clients_per_sync", share, "1"))
    };
    let records: Vec<Record> = all.iter().filter_map(share).collect();
    for record in &records {
        eprintln!(
            "{}: {} of clients per sync time",
            record.case,
            report::human(record.value)
        );
    }
    records
}
