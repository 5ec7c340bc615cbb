//! COPY: reads rows from the client, or sends rows to it.

use std::ops::ControlFlow;
use std::sync::Arc;

use weft_sql::statement::copy_data::{self, CopyReader};
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
                    binary: options.format == CopyFormat::Binary,
                    column_count: named.len() as u16,
                    idle_max: self.copy_idle_limit(),
                };
                let zone = self.settings.zone;
                let mut reader = CopyReader::new(table.name.clone(), named, options.clone(), zone);
                let mut writer = RowWriter {
                    session: self,
                    table,
                    columns,
                    defaults,
                    chunk: Vec::new(),
                    rows: 0,
                };
                sink.copy_in(header, &mut |data| reader.push(data, |values| writer.row(values)))?;
                reader.finish(|values| writer.row(values))?;
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
                    data: Vec::new(),
                    rows: 0,
                    failure: None,
                };
                let planned = planned.with_plan(Plan::clone(plan));
                self.run_plan(&planned, params, PipelinePosition::Pipelined, &mut out)?;
                out.end();
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

/// Turns a query's rows into the data of a copy.
struct CopyOut<'a> {
    sink: &'a mut dyn ResultSink,
    options: &'a CopyOptions,
    zone: TimeZone,
    types: Vec<SqlType>,
    /// What is sent next. The header of the binary format is sent with the first row.
    data: Vec<u8>,
    rows: u64,
    /// Why sending stopped.
    failure: Option<SqlError>,
}

impl CopyOut<'_> {
    /// Sends what has been encoded, or keeps the first failure.
    fn send(&mut self, encoded: Result<(), SqlError>) -> ControlFlow<()> {
        if let Err(error) = encoded {
            self.failure.get_or_insert(error);
            return ControlFlow::Break(());
        }
        let sent = self.sink.copy_data(&self.data);
        self.data.clear();
        sent
    }

    fn row_data(&mut self, row: RowRef<'_>) -> Result<(), SqlError> {
        let values = row
            .layout
            .decode(row.bytes)
            .map_err(|error| SqlError::new(SqlState::DATA_CORRUPTED, error.to_string()))?;
        copy_data::encode_row(&values, &self.types, self.options, &self.zone, &mut self.data)
    }

    /// Sends what follows the rows.
    fn end(&mut self) {
        copy_data::encode_end(self.options, &mut self.data);
        if self.failure.is_none() && !self.data.is_empty() {
            let _ = self.send(Ok(()));
        }
    }
}

impl ResultSink for CopyOut<'_> {
    fn columns(&mut self, columns: &[OutputColumn]) {
        self.types = columns.iter().map(|column| column.ty).collect();
        let binary = self.options.format == CopyFormat::Binary;
        self.sink.copy_out(CopyHeader {
            binary,
            column_count: columns.len() as u16,
            idle_max: None,
        });
        let names = columns.iter().map(|column| Value::Text(column.name.clone()));
        let names: Vec<Value> = names.collect();
        let encoded = copy_data::encode_start(&names, self.options, &self.zone, &mut self.data);
        if encoded.is_err() || (!binary && !self.data.is_empty()) {
            let _ = self.send(encoded);
        }
    }

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        let encoded = self.row_data(row);
        self.rows += 1;
        self.send(encoded)
    }

    fn complete(&mut self, _tag: &CommandTag) {}

    fn notice(&mut self, level: NoticeLevel, notice: &SqlError) {
        self.sink.notice(level, notice);
    }
}
