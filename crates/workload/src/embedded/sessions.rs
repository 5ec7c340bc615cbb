//! TPC-B through sessions: the whole path of a network client's statements, except the network.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use weft::sink::{CommandTag, OutputColumn, PipelinePosition, ResultSink, RowRef, TxnStatus};
use weft::{Database, Prepared, Session};
use weft_types::{SqlError, SqlType, Value};

use super::{Commit, engine_counters, is_transient};
use crate::driver::{Client, Contender, Finished, RunError};
use crate::tpcb::{self, TpcbTransaction};

/// The transaction as one message of seven statements.
pub struct Message<'d> {
    /// The database.
    pub database: &'d Database,
    /// When a transaction counts as committed.
    pub commit: Commit,
}

/// The transaction as seven calls: BEGIN, five prepared statements, COMMIT.
pub struct Steps<'d> {
    /// The database.
    pub database: &'d Database,
    /// When a transaction counts as committed.
    pub commit: Commit,
}

struct SessionClient {
    session: Session,
    /// Prepared statements; empty for messages.
    prepared: Vec<Arc<Prepared>>,
    ran: VecDeque<u64>,
}

impl SessionClient {
    fn new(database: &Database, commit: Commit) -> Result<Self, RunError> {
        let mut session = database.session();
        let switch = if commit == Commit::Durable { "on" } else { "off" };
        let set = session.run(&format!("SET synchronous_commit = {switch}"));
        set.map_err(|e| RunError::doing("setting synchronous_commit", e))?;
        Ok(Self {
            session,
            prepared: Vec::new(),
            ran: VecDeque::new(),
        })
    }

    fn attempt(&mut self, request: &TpcbTransaction) -> Result<(), SqlError> {
        if self.prepared.is_empty() {
            self.session
                .execute_simple(&tpcb::message(request), &mut Discard)?;
        } else {
            self.session.execute_simple("BEGIN", &mut Discard)?;
            for (prepared, (_, inputs)) in self.prepared.iter().zip(tpcb::STATEMENTS) {
                let values: Vec<Value> = inputs
                    .iter()
                    .map(|input| Value::Int4(input.of(request)))
                    .collect();
                self.session
                    .execute(prepared, &values, PipelinePosition::Alone, &mut Discard)?;
            }
            self.session.execute_simple("COMMIT", &mut Discard)?;
        }
        self.session.gate().wait()
    }
}

impl Client<TpcbTransaction> for SessionClient {
    fn start(&mut self, request: TpcbTransaction) -> Result<(), RunError> {
        let mut retries = 0;
        while let Err(error) = self.attempt(&request) {
            if !is_transient(&error) {
                return Err(RunError::doing("a transaction", error));
            }
            retries += 1;
            if self.session.status() != TxnStatus::Idle {
                let rolled_back = self.session.execute_simple("ROLLBACK", &mut Discard);
                rolled_back.map_err(|e| RunError::doing("rolling back", e))?;
            }
        }
        self.ran.push_back(retries);
        Ok(())
    }

    fn finish(&mut self) -> Result<Finished, RunError> {
        let retries = self
            .ran
            .pop_front()
            .ok_or_else(|| RunError("nothing is outstanding".to_owned()))?;
        Ok(Finished {
            retries,
            rolled_back: false,
        })
    }
}

impl Contender<TpcbTransaction> for Message<'_> {
    fn name(&self) -> &str {
        "one message"
    }

    fn client(&self) -> Result<Box<dyn Client<TpcbTransaction> + '_>, RunError> {
        Ok(Box::new(SessionClient::new(self.database, self.commit)?))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        engine_counters(self.database.engine())
    }
}

impl Contender<TpcbTransaction> for Steps<'_> {
    fn name(&self) -> &str {
        "seven statements"
    }

    fn client(&self) -> Result<Box<dyn Client<TpcbTransaction> + '_>, RunError> {
        let mut client = SessionClient::new(self.database, self.commit)?;
        for (text, inputs) in tpcb::STATEMENTS {
            let types = vec![Some(SqlType::Int4); inputs.len()];
            let prepared = client
                .session
                .prepare(text, &types)
                .map_err(|e| RunError::doing(text, e))?;
            client.prepared.push(prepared);
        }
        Ok(Box::new(client))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        engine_counters(self.database.engine())
    }
}

/// A sink that discards everything, for callers that need no result.
struct Discard;

impl ResultSink for Discard {
    fn columns(&mut self, _columns: &[OutputColumn]) {}

    fn row(&mut self, _row: RowRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn complete(&mut self, _tag: &CommandTag) {}
}
