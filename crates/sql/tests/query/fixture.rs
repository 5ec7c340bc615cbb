//! A store with tables, an engine, and queries whose results are compared as text.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use weft_base::{BatchId, IndexId, TableId};
use weft_sql::query::{EngineOptions, QueryEngine, QuerySettings, ReadSource, RowStream};
use weft_store::{CatalogOp, ColumnDef, DefaultExpr, IndexDef, IndexMethod, Store, TableDef};
use weft_types::{NumericSpec, SqlError, SqlType, Value, format_text, parse_text};

/// Start of every test's transaction: 2024-05-06 07:08:09.123456 UTC.
pub const NOW_MICROS: i64 = 1_714_979_289_123_456;

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
        let mut parameters = BTreeMap::new();
        parameters.insert("server_version".to_string(), "15.0".to_string());
        parameters.insert("search_path".to_string(), "\"$user\", public".to_string());
        let settings = QuerySettings {
            transaction_micros: NOW_MICROS,
            statement_micros: NOW_MICROS,
            backend_pid: 4711,
            parameters: Arc::new(parameters),
            ..QuerySettings::default()
        };
        Db {
            store: Store::new(),
            engine: QueryEngine::with_options(options).unwrap(),
            settings,
        }
    }

    /// Applies one definition, alone in its batch.
    pub fn apply(&self, op: CatalogOp) {
        let batch = BatchId(self.store.boundary().0 + 1);
        let mut writer = self.store.begin_batch(batch);
        writer.apply_catalog(&op).unwrap();
        writer.finish();
        self.store.publish(batch);
    }

    /// A table with columns "name type" and a primary key over the named columns.
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

    /// A secondary index.
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

    /// Rows as text, one value per column; `NULL` is NULL.
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

    pub fn run(&self, sql: &str, params: &[Value], types: &[Option<SqlType>]) -> Result<RowStream, SqlError> {
        self.engine
            .run(sql, &parse(sql), self.source(), params, types, &self.settings)
    }

    /// Rows with their values as text; NULL is `NULL`.
    pub fn try_rows(&self, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
        rows_of(self.run(sql, &[], &[])?)
    }

    pub fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        self.try_rows(sql)
            .unwrap_or_else(|error| panic!("{sql}\n{error:?}"))
    }

    /// Rows as one string: values joined by `|`, rows by newline.
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

    /// The SQLSTATE that a query fails with.
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

pub fn parse(sql: &str) -> Statement {
    let mut statements =
        Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap_or_else(|e| panic!("{sql}\n{e}"));
    assert_eq!(statements.len(), 1, "{sql}");
    statements.remove(0)
}

pub fn numeric(precision: u16, scale: i16) -> SqlType {
    SqlType::Numeric(Some(NumericSpec { precision, scale }))
}

/// accounts(id, owner, balance, memo), lines(a, b), with rows; as the captured psql session had them.
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
