//! Golden tests: statements and their bound relations, in `tests/statements.txt`.
//!
//! A paragraph consists of a statement on its first line and the expected text on the following ones. If
//! `WEFT_REWRITE` is set, the file is rewritten.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;

use sqlparser::ast::{Query, SetExpr, Statement};
use weft_base::{IndexId, TableId};
use weft_binder::{Environment, bind_locking, bind_modify, bind_query};
use weft_expression::Entry;
use weft_store::{Catalog, CatalogOp, ColumnDef, DefaultExpr, IndexDef, IndexMethod, TableDef};
use weft_types::{SqlError, SqlType};

/// Tables t (id primary key, a, b, name), u (id, t_id, amount numeric, note varchar) and c (code char(5),
/// day).
fn catalog() -> Catalog {
    let mut catalog = Catalog::new();
    let mut tables = Vec::new();
    let numeric = SqlType::Numeric(None);
    let mut note = ColumnDef::new("note", SqlType::Varchar(Some(20)));
    note.default = Some(DefaultExpr {
        sql: "'none'".to_owned(),
    });
    tables.push((
        "t",
        vec![
            ColumnDef::new("id", SqlType::Int4).not_null(),
            ColumnDef::new("a", SqlType::Int4),
            ColumnDef::new("b", SqlType::Int8),
            ColumnDef::new("name", SqlType::Text),
        ],
    ));
    tables.push((
        "u",
        vec![
            ColumnDef::new("id", SqlType::Int4),
            ColumnDef::new("t_id", SqlType::Int4),
            ColumnDef::new("amount", numeric),
            note,
        ],
    ));
    tables.push((
        "c",
        vec![
            ColumnDef::new("code", SqlType::Char(5)),
            ColumnDef::new("day", SqlType::Date),
            ColumnDef::new("at", SqlType::Timestamp),
        ],
    ));
    for (name, columns) in tables {
        let id = TableId(catalog.next_object_id());
        let mut table = TableDef::new(id, name, columns);
        if name == "t" {
            table = table.with_index(IndexDef {
                id: IndexId(id.0 + 1),
                name: "t_pkey".to_owned(),
                table: id,
                columns: vec![0],
                unique: true,
                primary: true,
                method: IndexMethod::Both,
            });
        }
        catalog = catalog.apply(&CatalogOp::CreateTable(table)).unwrap();
    }
    catalog
}

fn no_functions(_: &str) -> &'static [&'static Entry] {
    &[]
}

fn system(schema: Option<&str>, name: &str) -> Option<weft_binder::SystemRelation> {
    let known = schema.is_none_or(|schema| schema == "pg_catalog") && name == "pg_class";
    known.then_some((
        "pg_catalog",
        &[("oid", SqlType::Oid), ("relname", SqlType::Name)][..],
    ))
}

fn changes(query: &Query) -> bool {
    matches!(
        query.body.as_ref(),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_)
    )
}

fn bound(sql: &str, catalog: &Catalog) -> Result<String, SqlError> {
    let statement = weft_syntax::parse_statement(sql)?;
    let env = Environment {
        catalog,
        parameters: &[],
        text: sql,
        functions: &no_functions,
        relations: &system,
    };
    let with_parameters = |text: String, types: &[SqlType]| {
        let mut text = text;
        if !types.is_empty() {
            let types: Vec<String> = types.iter().map(SqlType::name).collect();
            let _ = writeln!(text, "Parameters {}", types.join(", "));
        }
        text
    };
    match &statement {
        Statement::Query(query) if !query.locks.is_empty() => {
            let locking = bind_locking(&statement, env)?;
            Ok(with_parameters(
                locking.locked.rows.to_string(),
                &locking.locked.rows.parameters,
            ))
        }
        Statement::Query(query) if !changes(query) => {
            let query = bind_query(&statement, env)?;
            Ok(with_parameters(query.to_string(), &query.parameters))
        }
        _ => {
            let modify = bind_modify(&statement, env)?;
            Ok(with_parameters(modify.to_string(), &modify.rows.parameters))
        }
    }
}

fn shown(sql: &str, catalog: &Catalog) -> String {
    match bound(sql, catalog) {
        Ok(text) => text,
        Err(error) => {
            let position = error.fields().position;
            let place = position.map_or_else(String::new, |position| format!(" at {position}"));
            format!("{} {}{place}\n", error.state, error.message)
        }
    }
}

#[test]
fn statements_are_bound_as_written_down() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/statements.txt");
    let file = std::fs::read_to_string(path).unwrap();
    let catalog = catalog();
    let mut actual = String::new();
    for paragraph in file
        .split("\n\n")
        .map(str::trim)
        .filter(|paragraph| !paragraph.is_empty())
    {
        if paragraph.starts_with('#') {
            let _ = write!(actual, "{paragraph}\n\n");
            continue;
        }
        let sql = paragraph.lines().next().unwrap();
        let _ = write!(actual, "{sql}\n{}\n", shown(sql, &catalog));
    }
    if std::env::var_os("WEFT_REWRITE").is_some() {
        std::fs::write(path, &actual).unwrap();
        return;
    }
    for (line, (expected, found)) in file.lines().zip(actual.lines()).enumerate() {
        assert_eq!(expected, found, "line {}", line + 1);
    }
    assert_eq!(file.trim_end(), actual.trim_end());
}
