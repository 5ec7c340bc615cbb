//! SELECT in general form: the query engine over a view of the transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weft_lock::LockMode;
use weft_sql::query::{QuerySettings, ReadSource, ResultColumn, RowStream};
use weft_sql::statement::{self, QueryPlan};
use weft_types::{SqlError, Value};

use super::Session;
use crate::sink::{CommandTag, OutputColumn, ResultSink, RowRef};
use crate::source::ViewSource;

/// A column of the query engine as results announce it.
pub(crate) fn result_column(column: &ResultColumn) -> OutputColumn {
    OutputColumn {
        name: column.name.clone(),
        ty: column.ty,
        type_oid: column.wire_oid,
        table: column.table.map(|(table, attribute)| (table.0, attribute)),
    }
}

impl Session {
    /// What the session contributes to the meaning of its queries.
    pub(crate) fn query_settings(&self) -> QuerySettings {
        let parameters: BTreeMap<String, String> = self
            .settings
            .all()
            .into_iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        QuerySettings {
            transaction_micros: self.transaction_micros(),
            statement_micros: self.statement_micros,
            user: Arc::clone(&self.user),
            database: "postgres".into(),
            backend_pid: self.pid as i32,
            parameters: Arc::new(parameters),
            statement_timeout: Some(self.settings.statement_timeout).filter(|timeout| !timeout.is_zero()),
            cancel: self.cancel.signal.clone(),
        }
    }

    /// The source for a statement: the open transaction's view, or the newest boundary. Under SERIALIZABLE
    /// the tables are locked first.
    pub(crate) fn read_source(
        &mut self,
        tables: &[weft_base::TableId],
    ) -> Result<Arc<dyn ReadSource>, SqlError> {
        let view = match &mut self.open {
            None => weft_txn::TxnView::of_snapshot(self.shared.engine.snapshot()),
            Some(open) => {
                if open.txn.locks_reads() {
                    for table in tables {
                        open.txn.lock_table(*table, LockMode::S)?;
                    }
                }
                open.txn.view()
            }
        };
        self.gate.raise(view.batch());
        if let Some(open) = &mut self.open {
            open.txn.observe(view.batch());
        }
        Ok(Arc::new(ViewSource(view)))
    }

    /// A source for describing statements: no lock is taken and nothing observed.
    pub(crate) fn describe_source(&mut self) -> Arc<dyn ReadSource> {
        let view = match &mut self.open {
            Some(open) => open.txn.view(),
            None => weft_txn::TxnView::of_snapshot(self.shared.engine.snapshot()),
        };
        Arc::new(ViewSource(view))
    }

    /// Starts a query; its rows come from the stream.
    pub(crate) fn start_query(&mut self, plan: &QueryPlan, params: &[Value]) -> Result<RowStream, SqlError> {
        self.shared.query_statements.fetch_add(1, Relaxed);
        if plan.row_locks.is_some() {
            self.lock_selected_rows(plan, params)?;
        }
        let source = self.read_source(&plan.tables)?;
        let settings = self.query_settings();
        let shared = Arc::clone(&self.shared);
        shared.queries.run(
            &plan.text,
            &plan.statement,
            source,
            params,
            &plan.param_types,
            &settings,
        )
    }

    /// Starts a SELECT in the query engine, whatever plan its text has otherwise.
    pub(crate) fn start_text(&mut self, sql: &str) -> Result<RowStream, SqlError> {
        self.shared.query_statements.fetch_add(1, Relaxed);
        let ast = statement::parse_sql(sql)?;
        let tables: Vec<_> = self.catalog().tables().map(|table| table.id).collect();
        let locks_reads = self.open.as_ref().is_some_and(|open| open.txn.locks_reads());
        let source = self.read_source(if locks_reads { &tables } else { &[] })?;
        let settings = self.query_settings();
        let shared = Arc::clone(&self.shared);
        shared.queries.run(sql, &ast, source, &[], &[], &settings)
    }

    pub(crate) fn run_query(
        &mut self,
        plan: &QueryPlan,
        params: &[Value],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let stream = self.start_query(plan, params)?;
        let rows = push_stream(stream, sink)?;
        sink.complete(&CommandTag::counted("SELECT", rows));
        Ok(())
    }
}

/// Pushes all rows of a stream; returns how many.
pub(crate) fn push_stream(stream: RowStream, sink: &mut dyn ResultSink) -> Result<u64, SqlError> {
    let columns: Vec<OutputColumn> = stream.columns().iter().map(result_column).collect();
    let layout = stream.layout();
    sink.columns(&columns);
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
