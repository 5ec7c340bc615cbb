//! A query's result, read batch by batch by a blocking caller.
//!
//! The plan runs on the engine's own runtime; the caller's thread drives the topmost operator itself, so a
//! small query crosses no thread. Cancellation and the statement's deadline are checked with every batch and
//! end the stream with 57014; dropping the stream stops all remaining work on the runtime.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use tokio::runtime::Handle;
use weft_binder::relation::Output;
use weft_types::{RowLayout, SqlError, SqlState, SqlType, Value};

use crate::errors::sql_error;
use crate::kept::TakenPlan;
use crate::results::RowEncoder;
use crate::slice::StopSignal;

/// Record batches of a running query.
pub struct RowStream {
    columns: Arc<[Output]>,
    stream: Option<SendableRecordBatchStream>,
    runtime: Handle,
    stop: Arc<StopSignal>,
    /// The running plan, if it is to be kept.
    taken: Option<TakenPlan>,
}

impl RowStream {
    pub(crate) fn new(
        columns: Arc<[Output]>,
        stream: SendableRecordBatchStream,
        runtime: Handle,
        stop: Arc<StopSignal>,
        taken: Option<TakenPlan>,
    ) -> Self {
        RowStream {
            columns,
            stream: Some(stream),
            runtime,
            stop,
            taken,
        }
    }

    /// The columns, in order.
    pub fn columns(&self) -> &Arc<[Output]> {
        &self.columns
    }

    /// The Arrow schema of the batches.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.stream.as_ref().map(|stream| stream.schema())
    }

    /// The row layout in which [`RowStream::encoder`] encodes.
    pub fn layout(&self) -> Arc<RowLayout> {
        let types: Vec<SqlType> = self.columns.iter().map(|column| column.ty).collect();
        Arc::new(RowLayout::new(&types))
    }

    /// An encoder for this stream's batches.
    pub fn encoder(&self) -> RowEncoder {
        RowEncoder::new(self.columns.iter().map(|column| column.ty).collect())
    }

    /// The next batch; `None` after the last or after an error. Blocks; must not be called on a thread of an
    /// asynchronous runtime.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        let Some(stream) = self.stream.as_mut() else {
            return Ok(None);
        };
        let next = async move { stream.next().await.transpose().map_err(sql_error) };
        let outcome = self.stop.wait_for(&self.runtime, next);
        if !matches!(outcome, Ok(Some(_))) {
            self.end();
        }
        if matches!(outcome, Ok(None))
            && let Some(taken) = self.taken.take()
        {
            taken.put_back();
        }
        outcome
    }

    /// Stops the operators that still run.
    fn end(&mut self) {
        self.stop.abandon();
        self.stream = None;
    }

    /// All remaining batches.
    pub fn collect(mut self) -> Result<Vec<RecordBatch>, SqlError> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch()? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// All remaining rows as values.
    ///
    /// # Errors
    /// Those of the query.
    pub fn values(mut self) -> Result<Vec<Vec<Value>>, SqlError> {
        let encoder = self.encoder();
        let mut rows = Vec::new();
        while let Some(batch) = self.next_batch()? {
            rows.extend(encoder.values(&batch)?);
        }
        Ok(rows)
    }

    /// Calls `each` with every remaining row, encoded (layout: [`RowStream::layout`]), until it returns
    /// false.
    pub fn for_each_row(mut self, mut each: impl FnMut(&[u8]) -> bool) -> Result<(), SqlError> {
        let encoder = self.encoder();
        while let Some(batch) = self.next_batch()? {
            if !encoder.for_each(&batch, &mut each)? {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for RowStream {
    fn drop(&mut self) {
        self.end();
    }
}

/// 57014, by request.
pub fn canceled_by_user() -> SqlError {
    SqlError::new(
        SqlState::QUERY_CANCELED,
        "canceling statement due to user request",
    )
}

/// 57014, by deadline.
pub fn timed_out() -> SqlError {
    SqlError::new(
        SqlState::QUERY_CANCELED,
        "canceling statement due to statement timeout",
    )
}
