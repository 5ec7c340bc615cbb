//! Every catalog table has rows of its columns' types.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::any::Any;
use std::sync::Arc;

use weft_base::{IndexId, TableId};
use weft_expression::{Context, Session};
use weft_pg_catalog::{PreparedTransaction, SessionView, functions, relation_columns, relation_rows};
use weft_store::{Catalog, CatalogOp, ColumnDef, IndexDef, IndexMethod, TableDef};
use weft_types::{SqlError, SqlType, TimeZone, Value};

struct Still;

impl Session for Still {
    fn transaction_micros(&self) -> i64 {
        0
    }
    fn statement_micros(&self) -> i64 {
        0
    }
    fn clock_micros(&self) -> i64 {
        0
    }
    fn user(&self) -> &str {
        "ann"
    }
    fn database(&self) -> &str {
        "weft"
    }
    fn backend_pid(&self) -> i32 {
        1
    }
    fn setting(&self, _: &str) -> Option<String> {
        None
    }
    fn next_value(&self, _: &str) -> Result<i64, SqlError> {
        Ok(1)
    }
    fn current_value(&self, _: &str) -> Result<i64, SqlError> {
        Ok(1)
    }
    fn set_value(&self, _: &str, value: i64, _: bool) -> Result<i64, SqlError> {
        Ok(value)
    }
    fn last_value(&self) -> Result<i64, SqlError> {
        Ok(1)
    }
    fn random_u64(&self) -> u64 {
        4
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn catalog() -> Catalog {
    let id = TableId(16_400);
    let mut key = ColumnDef::new("id", SqlType::Int4);
    key.not_null = true;
    let columns = vec![key, ColumnDef::new("Name", SqlType::Varchar(Some(10)))];
    let table = TableDef::new(id, "person", columns).with_index(IndexDef {
        id: IndexId(16_401),
        name: "person_pkey".to_owned(),
        table: id,
        columns: vec![0],
        unique: true,
        primary: true,
        method: IndexMethod::Both,
    });
    Catalog::new().apply(&CatalogOp::CreateTable(table)).unwrap()
}

fn view() -> SessionView {
    SessionView {
        catalog: Arc::new(catalog()),
        session: Arc::new(Still),
        settings: vec![("work_mem".to_owned(), "4MB".to_owned())],
        role: weft_store::BOOTSTRAP_ROLE,
        clients: Box::new(Vec::new),
        sequence_state: Box::new(|_| None),
        advisory_locks: Box::new(Vec::new),
        prepared: Box::new(|| {
            vec![PreparedTransaction {
                transaction: 7,
                name: "a".to_owned(),
                prepared_micros: 0,
                owner: "me".to_owned(),
            }]
        }),
    }
}

fn fits(ty: SqlType, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => ty == SqlType::Bool,
        Value::Int2(_) => ty == SqlType::Int2,
        Value::Int4(_) => ty == SqlType::Int4,
        Value::Int8(_) => ty == SqlType::Int8,
        Value::Float4(_) => ty == SqlType::Float4,
        Value::Text(_) => ty.holds_text(),
        Value::TimestampTz(_) => ty == SqlType::TimestampTz,
        Value::Oid(_) => ty.holds_oid(),
        Value::Array(array) => matches!(ty, SqlType::Array(element) if element.ty() == array.element),
        _ => false,
    }
}

#[test]
fn rows_are_of_the_columns_types() {
    let view = view();
    for (schema, table, at_least) in [
        ("pg_catalog", "pg_class", 2),
        ("pg_catalog", "pg_namespace", 3),
        ("pg_catalog", "pg_attribute", 3),
        ("pg_catalog", "pg_type", 50),
        ("pg_catalog", "pg_index", 1),
        ("pg_catalog", "pg_constraint", 1),
        ("pg_catalog", "pg_database", 1),
        ("pg_catalog", "pg_roles", 1),
        ("pg_catalog", "pg_authid", 1),
        ("pg_catalog", "pg_user", 1),
        ("pg_catalog", "pg_am", 3),
        ("pg_catalog", "pg_collation", 3),
        ("pg_catalog", "pg_settings", 1),
        ("pg_catalog", "pg_tablespace", 2),
        ("pg_catalog", "pg_language", 2),
        ("pg_catalog", "pg_tables", 1),
        ("pg_catalog", "pg_indexes", 1),
        ("pg_catalog", "pg_stat_user_tables", 1),
        ("pg_catalog", "pg_proc", 0),
        ("pg_catalog", "pg_description", 2),
        ("pg_catalog", "pg_shdescription", 1),
        ("pg_catalog", "pg_extension", 1),
        ("pg_catalog", "pg_depend", 1),
        ("information_schema", "schemata", 3),
        ("information_schema", "tables", 1),
        ("information_schema", "columns", 2),
        ("information_schema", "table_constraints", 1),
        ("information_schema", "key_column_usage", 1),
    ] {
        let (_, columns) = relation_columns(Some(schema), table).unwrap();
        let rows = relation_rows(schema, table, &view.catalog, &view);
        assert!(rows.len() >= at_least, "{table} has {} rows", rows.len());
        for row in rows {
            // `tableoid` comes behind the columns.
            assert_eq!(row.len(), columns.len() + 1);
            assert!(matches!(row.last(), Some(Value::Oid(_))));
            for ((name, ty), value) in columns.iter().zip(&row) {
                assert!(fits(*ty, value), "{table}.{name} {ty:?} {value:?}");
            }
        }
    }
    assert_eq!(relation_columns(None, "pg_class").unwrap().0, "pg_catalog");
    assert!(relation_columns(None, "columns").is_none());
    assert!(relation_columns(Some("public"), "pg_class").is_none());
}

fn call(name: &str, arguments: &[Value]) -> Result<Value, SqlError> {
    let view = view();
    let context = Context {
        parameters: &[],
        zone: TimeZone::UTC,
        session: &view,
    };
    let entry = functions(name)
        .iter()
        .find(|entry| entry.arguments.len() == arguments.len());
    let entry = entry.unwrap_or_else(|| panic!("no {name}"));
    let arguments: Vec<_> = arguments.iter().map(Value::as_ref).collect();
    (entry.kernel.compute())(&context, &arguments)
}

#[test]
fn functions_know_the_catalog() {
    let text = |text: &str| Value::Text(text.to_owned());
    for (name, arguments, says) in [
        ("regclassin", vec![text("public.person")], Value::Oid(16_400)),
        ("regclassin", vec![text("PERSON")], Value::Oid(16_400)),
        ("regclassin", vec![text("pg_class")], Value::Oid(1259)),
        ("regclassout", vec![Value::Oid(16_401)], text("person_pkey")),
        ("to_regclass", vec![text("nobody")], Value::Null),
        ("regtypein", vec![text("integer")], Value::Oid(23)),
        ("regtypeout", vec![Value::Oid(25)], text("text")),
        (
            "pg_get_indexdef",
            vec![Value::Oid(16_401)],
            text("CREATE UNIQUE INDEX person_pkey ON public.person USING btree (id)"),
        ),
        (
            "pg_get_constraintdef",
            vec![Value::Oid(0x4000_0000 + 16_401)],
            text("PRIMARY KEY (id)"),
        ),
        (
            "format_type",
            vec![Value::Oid(1043), Value::Int4(14)],
            text("character varying(10)"),
        ),
        ("pg_table_is_visible", vec![Value::Oid(16_400)], Value::Bool(true)),
        ("pg_get_userbyid", vec![Value::Oid(10)], text("ann")),
    ] {
        assert_eq!(call(name, &arguments).unwrap(), says, "{name}");
    }
    let error = call("regclassin", &[text("nobody")]).unwrap_err();
    assert_eq!(error.state.0, "42P01");
    assert!(functions("no_such_function").is_empty());
}
