//! COPY: reads rows from the client, or sends rows to it.

use std::ops::ControlFlow;
use std::sync::Arc;

use weft_sql::statement::copy_text::{CopyDecoder, encode_line};
use weft_sql::statement::{CopyFormat, CopyOptions, CopyPlan, Plan, Scalar};
use weft_store::TableDef;
use weft_types::{SqlError, SqlState, SqlType, TimeZone, Value};

use super::{Session, VersionedPlan};
use crate::sink::{CommandTag, CopyHeader, NoticeLevel, OutputColumn, PipelinePosition, ResultSink, RowRef};

/// Rows locked and written at a time.
const CHUNK_ROWS: usize = 4096;

/// Builds rows of the table from decoded values and defaults, and writes them chunk by chunk.
struct RowWriter<'a> {
    session: &'a mut Session,
    table: &'a Arc<TableDef>,
    columns: &'a [usize],
    defaults: &'a [(usize, Scalar)],
    chunk: Vec<Vec<u8>>,
    rows: u64,
}

impl RowWriter<'_> {
    fn row(&mut self, given: Vec<Value>) -> Result<(), SqlError> {
        let mut values = vec![Value::Null; self.table.columns.len()];
        for (column, value) in self.columns.iter().zip(given) {
            if let Some(slot) = values.get_mut(*column) {
                *slot = value;
            }
        }
        for (column, default) in self.defaults {
            let value = default.evaluate(&[], &[], self.session)?;
            if let Some(slot) = values.get_mut(*column) {
                *slot = value;
            }
        }
        self.chunk.push(self.table.layout.encode(&values)?);
        if self.chunk.len() >= CHUNK_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SqlError> {
        self.session.transaction().txn.insert(self.table, &self.chunk)?;
        self.rows += self.chunk.len() as u64;
        self.chunk.clear();
        self.session.check_cancelled()
    }
}

impl Session {
    pub(crate) fn run_copy(
        &mut self,
        plan: &CopyPlan,
        planned: &VersionedPlan,
        params: &[Value],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        match plan {
            CopyPlan::From {
                table,
                columns,
                defaults,
                options,
            } => {
                self.keep_definition(table.id, planned)?;
                let named = columns.iter().filter_map(|column| table.columns.get(*column));
                let named: Vec<_> = named.map(|column| (column.name.clone(), column.ty)).collect();
                let header = CopyHeader {
                    binary: false,
                    column_count: named.len() as u16,
                    idle_max: self.copy_idle_limit(),
                };
                let mut decoder =
                    CopyDecoder::new(table.name.clone(), named, options.clone(), self.settings.zone)?;
                let mut writer = RowWriter {
                    session: self,
                    table,
                    columns,
                    defaults,
                    chunk: Vec::new(),
                    rows: 0,
                };
                sink.copy_in(header, &mut |data| {
                    decoder.push(data, |values| writer.row(values))
                })?;
                decoder.finish(|values| writer.row(values))?;
                writer.flush()?;
                let rows = writer.rows;
                self.transaction().txn.end_statement()?;
                sink.complete(&CommandTag::counted("COPY", rows));
            }
            CopyPlan::To { plan, options } => {
                let mut out = CopyOut {
                    sink,
                    options,
                    zone: self.settings.zone,
                    types: Vec::new(),
                    line: Vec::new(),
                    rows: 0,
                    failure: None,
                };
                if options.format == CopyFormat::Binary {
                    return Err(SqlError::unsupported("COPY TO in binary format is not supported"));
                }
                let planned = planned.with_plan(Plan::clone(plan));
                self.run_plan(&planned, params, PipelinePosition::Pipelined, &mut out)?;
                if let Some(failure) = out.failure {
                    return Err(failure);
                }
                let rows = out.rows;
                sink.copy_done();
                sink.complete(&CommandTag::counted("COPY", rows));
            }
        }
        Ok(())
    }
}

/// Turns a query's rows into lines of a copy.
struct CopyOut<'a> {
    sink: &'a mut dyn ResultSink,
    options: &'a CopyOptions,
    zone: TimeZone,
    types: Vec<SqlType>,
    line: Vec<u8>,
    rows: u64,
    /// Why sending stopped.
    failure: Option<SqlError>,
}

impl CopyOut<'_> {
    /// Sends a line.
    fn line(&mut self, values: &[Value], types: &[SqlType]) -> Result<ControlFlow<()>, SqlError> {
        self.line.clear();
        encode_line(values, types, self.options, &self.zone, &mut self.line)?;
        Ok(self.sink.copy_data(&self.line))
    }

    /// Keeps the first failure.
    fn sent(&mut self, line: Result<ControlFlow<()>, SqlError>) -> ControlFlow<()> {
        line.unwrap_or_else(|error| {
            self.failure.get_or_insert(error);
            ControlFlow::Break(())
        })
    }
}

impl ResultSink for CopyOut<'_> {
    fn columns(&mut self, columns: &[OutputColumn]) {
        self.types = columns.iter().map(|column| column.ty).collect();
        self.sink.copy_out(CopyHeader {
            binary: false,
            column_count: columns.len() as u16,
            idle_max: None,
        });
        if self.options.header {
            let names: Vec<Value> = columns
                .iter()
                .map(|column| Value::Text(column.name.clone()))
                .collect();
            let types = vec![SqlType::Text; names.len()];
            let line = self.line(&names, &types);
            let _ = self.sent(line);
        }
    }

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        let types = std::mem::take(&mut self.types);
        let values = row
            .layout
            .decode(row.bytes)
            .map_err(|error| SqlError::new(SqlState::DATA_CORRUPTED, error.to_string()));
        let line = values.and_then(|values| self.line(&values, &types));
        self.types = types;
        self.rows += 1;
        self.sent(line)
    }

    fn complete(&mut self, _tag: &CommandTag) {}

    fn notice(&mut self, level: NoticeLevel, notice: &SqlError) {
        self.sink.notice(level, notice);
    }
}
