//! SELECT in general form: the query engine over a view of the transaction.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use weft_lock::LockMode;
use weft_pg_catalog::{ClientConnection, PreparedTransaction, SessionView};
use weft_query::{Environment, QueryPriority, QuerySettings, ReadSource, Reading, RowStream};
use weft_sql::statement::{OutputColumn as PlanColumn, QueryPlan};
use weft_store::{Catalog, SequenceId, SequenceState};
use weft_types::{SqlError, SqlState, Value};

use super::Session;
use super::advisory::advisory_locks;
use super::inputs::POSTGRES_EPOCH_MICROS;
use super::program::sink_column;
use super::statement_session::StatementSession;
use crate::sink::{CommandTag, OutputColumn, ResultSink, RowRef};
use crate::source::ViewSource;
use crate::spread::SpreadSource;

impl Session {
    /// What the session contributes to its queries.
    pub(crate) fn query_settings(&self, session: &Arc<StatementSession>) -> QuerySettings {
        QuerySettings {
            session: Arc::new(SessionView {
                catalog: self.catalog(),
                session: Arc::clone(session) as Arc<dyn weft_expression::Session>,
                settings: self.settings.all(),
                prepared: self.prepared_transactions(),
                clients: self.client_connections(),
                sequence_state: self.sequence_states(),
                advisory_locks: advisory_locks(self.shared.engine.clone()),
                role: self.acting_role(),
            }),
            zone: self.settings.zone,
            deadline: self.deadline,
            cancel: self.cancel.signal.clone(),
            planning: self.planning.clone(),
            priority: self.query_priority(),
            join: self.settings.join,
        }
    }

    /// Values of sequences that the transaction set come from its own catalog.
    fn sequence_states(&self) -> Box<dyn Fn(SequenceId) -> Option<SequenceState> + Send + Sync> {
        let shared = Arc::clone(&self.shared);
        let own = self
            .open
            .as_ref()
            .map_or_else(Vec::new, |open| open.sequences_set.clone());
        Box::new(move |id| match own.contains(&id) {
            true => None,
            false => shared.sequences.state(id),
        })
    }

    fn client_connections(&self) -> Box<dyn Fn() -> Vec<ClientConnection> + Send + Sync> {
        let clients = Arc::clone(&self.shared.clients);
        Box::new(move || clients.all())
    }

    fn prepared_transactions(&self) -> Box<dyn Fn() -> Vec<PreparedTransaction> + Send + Sync> {
        let engine = self.shared.engine.clone();
        Box::new(move || {
            let prepared = engine.prepared_transactions().into_iter();
            prepared
                .map(|info| PreparedTransaction {
                    transaction: info.txn.0,
                    name: info.name.to_string(),
                    prepared_micros: info.prepared_micros - POSTGRES_EPOCH_MICROS,
                    owner: info.owner.to_string(),
                })
                .collect()
        })
    }

    /// A query gives way by itself only where nobody waits for its transaction's locks meanwhile.
    fn query_priority(&self) -> QueryPriority {
        let holds_locks = self.open.as_ref().is_some_and(|open| open.txn.holds_locks());
        match self.settings.query_priority {
            QueryPriority::Auto if holds_locks => QueryPriority::Normal,
            asked => asked,
        }
    }

    /// What the relations of the system catalogs are computed from.
    pub(crate) fn environment(&self, settings: &QuerySettings) -> Arc<dyn Environment> {
        Arc::new(SystemRelations {
            catalog: self.catalog(),
            rights: self.rights_catalog(),
            session: Arc::clone(&settings.session),
        })
    }

    /// The source for a statement: the open transaction's view, or the newest boundary. Under SERIALIZABLE
    /// the tables are locked first.
    pub(crate) fn read_source(
        &mut self,
        tables: &[weft_base::TableId],
    ) -> Result<Arc<dyn ReadSource>, SqlError> {
        let view = match &mut self.open {
            None => self.shared.engine.view(&self.cancel.token),
            Some(open) => {
                if open.txn.locks_reads() {
                    for table in tables {
                        open.txn.lock_table(*table, LockMode::S)?;
                    }
                }
                open.txn.view()?
            }
        };
        self.gate.raise(view.batch());
        if let Some(open) = &mut self.open {
            open.txn.observe(view.batch());
        }
        Ok(Arc::new(ViewSource(view)))
    }

    /// A source for showing plans: no lock is taken and nothing is observed.
    pub(crate) fn describe_source(&mut self) -> Result<Arc<dyn ReadSource>, SqlError> {
        let view = match &mut self.open {
            Some(open) => open.txn.view()?,
            None => self.shared.engine.view(&self.cancel.token),
        };
        let source = Arc::new(ViewSource(view));
        Ok(match self.is_of_ranks {
            false => source,
            true => Arc::new(SpreadSource {
                local: source,
                parts: Vec::new(),
                lookups: AtomicUsize::new(0),
            }),
        })
    }

    /// Starts a query; its rows come from the stream.
    pub(crate) fn start_query(
        &mut self,
        plan: &QueryPlan,
        params: &[Value],
        session: &Arc<StatementSession>,
    ) -> Result<RowStream, SqlError> {
        self.shared.query_statements.fetch_add(1, Relaxed);
        if let Some(row_locks) = &plan.row_locks {
            return self.locked_rows(&plan.query.tables, row_locks, params, session);
        }
        let steps = self.run_steps(&plan.steps, params, session)?;
        let settings = self.query_settings(session);
        let reading = Reading {
            source: self.read_source(&plan.query.tables)?,
            target: None,
            given: None,
            steps,
            environment: self.environment(&settings),
        };
        self.shared
            .queries
            .run_over(&plan.query, reading, params, &settings)
    }

    /// Columns as the sink gets them, with the names that their values stand for.
    pub(crate) fn named_columns(&self, columns: &[PlanColumn]) -> Vec<OutputColumn> {
        let path = self.settings.show("search_path").unwrap_or_default();
        let named = columns.iter().map(|column| OutputColumn {
            names: weft_pg_catalog::oid_names(&column.ty, &self.catalog(), &path).map(Arc::new),
            ..sink_column(column)
        });
        named.collect()
    }

    pub(crate) fn run_query(
        &mut self,
        plan: &QueryPlan,
        params: &[Value],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let locks = self.locks_for(plan)?;
        let session = self.statement_session_with(locks);
        let columns = self.named_columns(&plan.columns);
        let stream = self.start_query(plan, params, &session);
        let pushed = stream.and_then(|stream| push_stream(stream, &columns, sink));
        self.push_notices(&session.take_notices(), sink);
        let ended = self.end_statement_session(&session);
        let rows = pushed?;
        ended?;
        sink.complete(&CommandTag::counted("SELECT", rows));
        Ok(())
    }
}

/// The relations of the system catalogs, as one statement sees them.
struct SystemRelations {
    catalog: Arc<Catalog>,
    /// What says which of them the session's role may read.
    rights: Arc<Catalog>,
    session: Arc<dyn weft_expression::Session>,
}

impl Environment for SystemRelations {
    fn rows(&self, schema: &str, name: &str, columns: &[usize]) -> Result<Vec<Vec<Value>>, SqlError> {
        if let Some(view) = SessionView::of(self.session.as_ref())
            && !weft_pg_catalog::may_read(schema, name, &self.rights, view.role)
        {
            let kind = if schema == "public" { "sequence" } else { "table" };
            let message = format!("permission denied for {kind} {name}");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        let rows = weft_pg_catalog::relation_rows(schema, name, &self.catalog, self.session.as_ref());
        let picked = rows.into_iter().map(|row| {
            let cells = columns
                .iter()
                .map(|&column| row.get(column).cloned().unwrap_or_default());
            cells.collect()
        });
        Ok(picked.collect())
    }
}

/// Pushes all rows of a stream; returns how many.
pub(crate) fn push_stream(
    stream: RowStream,
    columns: &[OutputColumn],
    sink: &mut dyn ResultSink,
) -> Result<u64, SqlError> {
    let layout = stream.layout();
    sink.columns(columns);
    let mut rows = 0;
    stream.for_each_row(|bytes| {
        rows += 1;
        sink.row(RowRef {
            layout: &layout,
            bytes,
        })
        .is_continue()
    })?;
    Ok(rows)
}
