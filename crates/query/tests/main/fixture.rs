//! A store with tables, an engine, and queries whose results are compared as text.

use std::any::Any;
use std::sync::Arc;

use sqlparser::ast::Statement;
use weft_base::{BatchId, IndexId, TableId};
use weft_binder::relation::{Modify, Query};
use weft_binder::{Locking, bind_locking, bind_modify, bind_query};
use weft_expression::Session;
use weft_pg_catalog::SessionView;
use weft_query::{
    CancelSignal, EngineOptions, Environment, JoinChoice, PlanningTurn, QueryEngine, QueryPriority,
    QuerySettings, ReadSource, Reading, RowStream,
};
use weft_store::{Catalog, CatalogOp, ColumnDef, DefaultExpr, IndexDef, IndexMethod, Store, TableDef};
use weft_types::{NumericSpec, SqlError, SqlState, SqlType, TimeZone, Value, format_text, parse_text};

/// Start of every test's transaction: 2024-05-06 07:08:09.123456 UTC, in microseconds since 2000.
pub const NOW_MICROS: i64 = 1_714_979_289_123_456 - 946_684_800_000_000;

/// The session's settings.
const SETTINGS: [(&str, &str); 2] = [("search_path", "\"$user\", public"), ("server_version", "15.0")];

/// A session with a fixed clock and no sequences.
struct StandingSession;

fn no_sequence<T>() -> Result<T, SqlError> {
    Err(SqlError::new(SqlState::UNDEFINED_TABLE, "there are no sequences"))
}

impl Session for StandingSession {
    fn transaction_micros(&self) -> i64 {
        NOW_MICROS
    }

    fn statement_micros(&self) -> i64 {
        NOW_MICROS
    }

    fn clock_micros(&self) -> i64 {
        NOW_MICROS
    }

    fn user(&self) -> &str {
        "postgres"
    }

    fn database(&self) -> &str {
        "postgres"
    }

    fn backend_pid(&self) -> i32 {
        4711
    }

    fn setting(&self, name: &str) -> Option<String> {
        let setting = SETTINGS.iter().find(|(known, _)| *known == name);
        setting.map(|(_, value)| (*value).to_string())
    }

    fn next_value(&self, _sequence: &str) -> Result<i64, SqlError> {
        no_sequence()
    }

    fn current_value(&self, _sequence: &str) -> Result<i64, SqlError> {
        no_sequence()
    }

    fn set_value(&self, _sequence: &str, _value: i64, _called: bool) -> Result<i64, SqlError> {
        no_sequence()
    }

    fn last_value(&self) -> Result<i64, SqlError> {
        no_sequence()
    }

    fn random_u64(&self) -> u64 {
        4
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The relations of the system catalogs over one version of the definitions.
struct SystemRelations {
    catalog: Arc<Catalog>,
    session: Arc<dyn Session>,
}

impl Environment for SystemRelations {
    fn rows(&self, schema: &str, name: &str, columns: &[usize]) -> Result<Vec<Vec<Value>>, SqlError> {
        let rows = weft_pg_catalog::relation_rows(schema, name, &self.catalog, self.session.as_ref());
        let picked = rows
            .into_iter()
            .map(|row| columns.iter().map(|column| row[*column].clone()).collect());
        Ok(picked.collect())
    }
}

pub struct Db {
    pub store: Arc<Store>,
    pub engine: QueryEngine,
    pub settings: QuerySettings,
}

impl Db {
    pub fn new() -> Db {
        Db::with_options(EngineOptions::default())
    }

    pub fn with_options(options: EngineOptions) -> Db {
        let settings = QuerySettings {
            session: Arc::new(StandingSession),
            zone: TimeZone::UTC,
            deadline: None,
            cancel: CancelSignal::default(),
            planning: PlanningTurn::default(),
            priority: QueryPriority::default(),
            join: JoinChoice::default(),
        };
        Db {
            store: Store::new(),
            engine: QueryEngine::with_options(options).unwrap(),
            settings,
        }
    }

    /// Applies one definition in its own batch.
    pub fn apply(&self, op: CatalogOp) {
        let batch = BatchId(self.store.boundary().0 + 1);
        let mut writer = self.store.begin_batch(batch);
        writer.apply_catalog(&op).unwrap();
        writer.finish();
        self.store.publish(batch);
    }

    /// Creates a table with a primary key over the columns at `key`.
    pub fn table(&self, name: &str, columns: &[(&str, SqlType)], key: &[usize]) -> TableId {
        let id = self.store.catalog().next_object_id();
        let columns = columns
            .iter()
            .map(|(name, ty)| ColumnDef::new(*name, *ty))
            .collect();
        let mut table = TableDef::new(TableId(id), name, columns);
        if !key.is_empty() {
            table = table.with_index(IndexDef {
                id: IndexId(id + 1),
                name: format!("{name}_pkey"),
                table: TableId(id),
                columns: key.to_vec(),
                unique: true,
                primary: true,
                method: IndexMethod::Both,
            });
        }
        self.apply(CatalogOp::CreateTable(table));
        TableId(id)
    }

    /// Creates a secondary index.
    pub fn index(&self, name: &str, table: TableId, columns: &[usize]) {
        let id = IndexId(self.store.catalog().next_object_id());
        self.apply(CatalogOp::CreateIndex(IndexDef {
            id,
            name: name.to_string(),
            table,
            columns: columns.to_vec(),
            unique: false,
            primary: false,
            method: IndexMethod::Ordered,
        }));
    }

    /// Inserts rows given as text, one value per column; `NULL` is NULL.
    pub fn insert(&self, table: TableId, rows: &[&[&str]]) {
        let catalog = self.store.catalog();
        let definition = catalog.table_by_id(table).unwrap();
        let encoded: Vec<Vec<u8>> = rows
            .iter()
            .map(|row| {
                let values: Vec<Value> = row
                    .iter()
                    .zip(&definition.columns)
                    .map(|(text, column)| match *text {
                        "NULL" => Value::Null,
                        text => parse_text(text, &column.ty).unwrap(),
                    })
                    .collect();
                definition.layout.encode(&values).unwrap()
            })
            .collect();
        self.insert_encoded(table, &encoded);
    }

    pub fn insert_encoded(&self, table: TableId, rows: &[Vec<u8>]) {
        let batch = BatchId(self.store.boundary().0 + 1);
        let writer = self.store.begin_batch(batch);
        let mut member = writer.member(0);
        for row in rows {
            member.insert(table, row).unwrap();
        }
        member.commit();
        writer.finish();
        self.store.publish(batch);
    }

    pub fn source(&self) -> Arc<dyn ReadSource> {
        Arc::new(self.store.snapshot())
    }

    /// The settings of one statement, whose session uses the newest definitions.
    pub fn seeing(&self, settings: &QuerySettings) -> QuerySettings {
        QuerySettings {
            session: Arc::new(SessionView {
                catalog: self.store.catalog(),
                session: Arc::clone(&settings.session),
                settings: SETTINGS
                    .iter()
                    .map(|(name, value)| (name.to_string(), value.to_string()))
                    .collect(),
                role: weft_store::BOOTSTRAP_ROLE,
                clients: Box::new(Vec::new),
                sequence_state: Box::new(|_| None),
                advisory_locks: Box::new(Vec::new),
                prepared: Box::new(Vec::new),
            }),
            ..settings.clone()
        }
    }

    /// The system catalogs of the newest definitions.
    pub fn environment(&self) -> Arc<dyn Environment> {
        Arc::new(SystemRelations {
            catalog: self.store.catalog(),
            session: self.seeing(&self.settings).session,
        })
    }

    fn bound<T>(
        &self,
        sql: &str,
        types: &[Option<SqlType>],
        bind: fn(&Statement, weft_binder::Environment<'_>) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let catalog = self.store.catalog();
        let environment = weft_binder::Environment {
            catalog: &catalog,
            parameters: types,
            text: sql,
            functions: &weft_pg_catalog::functions,
            relations: &weft_pg_catalog::relation_columns,
        };
        weft_syntax::with_statement(sql, |statement| bind(statement, environment))
    }

    pub fn query(&self, sql: &str, types: &[Option<SqlType>]) -> Result<Arc<Query>, SqlError> {
        self.bound(sql, types, bind_query).map(Arc::new)
    }

    pub fn modify(&self, sql: &str) -> Result<Modify, SqlError> {
        self.bound(sql, &[], bind_modify)
    }

    pub fn locking(&self, sql: &str) -> Result<Locking, SqlError> {
        self.bound(sql, &[], bind_locking)
    }

    /// Runs a query without parameters over a source.
    pub fn run_over(
        &self,
        sql: &str,
        source: Arc<dyn ReadSource>,
        settings: &QuerySettings,
    ) -> Result<RowStream, SqlError> {
        let query = self.query(sql, &[])?;
        self.engine
            .run(&query, source, &[], &self.seeing(settings), &self.environment())
    }

    pub fn run(&self, sql: &str, params: &[Value], types: &[Option<SqlType>]) -> Result<RowStream, SqlError> {
        let query = self.query(sql, types)?;
        let settings = self.seeing(&self.settings);
        self.engine
            .run(&query, self.source(), params, &settings, &self.environment())
    }

    /// The plan of a query without parameters, one line per operator.
    pub fn explain(&self, sql: &str) -> String {
        let query = self.query(sql, &[]).unwrap();
        let reading = Reading {
            source: self.source(),
            target: None,
            given: None,
            steps: weft_query::StepRows::default(),
            environment: self.environment(),
        };
        let settings = self.seeing(&self.settings);
        self.engine
            .explain(&query, reading, &[], &settings)
            .unwrap()
            .join("\n")
    }

    /// The rows of a query, with values as text; NULL is `NULL`.
    pub fn try_rows(&self, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
        rows_of(self.run(sql, &[], &[])?)
    }

    pub fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        self.try_rows(sql)
            .unwrap_or_else(|error| panic!("{sql}\n{error:?}"))
    }

    /// The rows as one string: values separated by `|`, rows by newlines.
    pub fn text(&self, sql: &str) -> String {
        let rows: Vec<String> = self.rows(sql).iter().map(|row| row.join("|")).collect();
        rows.join("\n")
    }

    /// Names and types of the result's columns.
    pub fn columns(&self, sql: &str) -> Vec<String> {
        let stream = self
            .run(sql, &[], &[])
            .unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
        stream
            .columns()
            .iter()
            .map(|column| format!("{} {}", column.name, column.ty.name()))
            .collect()
    }

    /// The SQLSTATE with which a query fails.
    pub fn state(&self, sql: &str) -> &'static str {
        match self.try_rows(sql) {
            Ok(rows) => panic!("{sql} gave {rows:?}"),
            Err(error) => error.state.code(),
        }
    }
}

pub fn rows_of(mut stream: RowStream) -> Result<Vec<Vec<String>>, SqlError> {
    let encoder = stream.encoder();
    let types: Vec<SqlType> = stream.columns().iter().map(|column| column.ty).collect();
    let mut rows = Vec::new();
    while let Some(batch) = stream.next_batch()? {
        for values in encoder.values(&batch)? {
            rows.push(
                values
                    .iter()
                    .zip(&types)
                    .map(|(value, ty)| shown(value, ty))
                    .collect(),
            );
        }
    }
    Ok(rows)
}

pub fn shown(value: &Value, ty: &SqlType) -> String {
    if value.is_null() {
        return "NULL".to_string();
    }
    let mut text = String::new();
    format_text(value, ty, &mut text);
    text
}

pub fn numeric(precision: u16, scale: i16) -> SqlType {
    SqlType::Numeric(Some(NumericSpec { precision, scale }))
}

/// accounts(id, owner, balance, memo) and lines(a, b) with rows, as in the captured psql session.
pub fn bank() -> Db {
    let db = Db::new();
    let id = TableId(db.store.catalog().next_object_id());
    let mut owner = ColumnDef::new("owner", SqlType::Varchar(Some(20))).not_null();
    owner.default = Some(DefaultExpr {
        sql: "'x'::character varying".to_string(),
    });
    let columns = vec![
        ColumnDef::new("id", SqlType::Int4),
        owner,
        ColumnDef::new("balance", numeric(12, 2)),
        ColumnDef::new("memo", SqlType::Text),
    ];
    let key = IndexDef {
        id: IndexId(id.0 + 1),
        name: "accounts_pkey".to_string(),
        table: id,
        columns: vec![0],
        unique: true,
        primary: true,
        method: IndexMethod::Both,
    };
    db.apply(CatalogOp::CreateTable(
        TableDef::new(id, "accounts", columns).with_index(key),
    ));
    db.index("accounts_owner", id, &[1]);
    let lines = db.table("lines", &[("a", SqlType::Int4), ("b", SqlType::Int4)], &[0, 1]);
    db.insert(
        id,
        &[
            &["1", "ann", "10.50", "first"],
            &["2", "bob", "-3.25", "NULL"],
            &["3", "ann", "NULL", "third"],
            &["4", "cid", "100.00", ""],
        ],
    );
    db.insert(lines, &[&["1", "1"], &["1", "2"], &["2", "1"], &["9", "9"]]);
    db
}
