//! Names: folding, schemas, and looking up tables and columns in the catalog.
//!
//! Every table is in `public`. `public.t`, `"current_database".public.t` and plain `t` name the same table;
//! `pg_catalog.x` and `information_schema.x` name system relations, which the query engine provides. Other
//! schemas do not exist (3F000 where one is required, 42P01 for a relation).

use std::sync::Arc;

use sqlparser::ast::{Ident, ObjectName};
use weft_store::{Catalog, TableDef};
use weft_types::{SqlError, SqlState};

use crate::error;

/// Longest name in bytes; longer ones are truncated, as in PostgreSQL.
pub(crate) const NAME_BYTES_MAX: usize = 63;

/// The parts of a name, folded and truncated.
pub(crate) fn parts(name: &ObjectName) -> Vec<String> {
    name.0
        .iter()
        .filter_map(|part| part.as_ident())
        .map(ident)
        .collect()
}

/// One identifier, folded and truncated.
pub(crate) fn ident(ident: &Ident) -> String {
    cut(if ident.quote_style.is_some() {
        ident.value.clone()
    } else {
        ident.value.to_lowercase()
    })
}

/// Truncates a name to the longest length at a character boundary.
pub(crate) fn cut(mut name: String) -> String {
    if name.len() > NAME_BYTES_MAX {
        let end = (0..=NAME_BYTES_MAX)
            .rev()
            .find(|&at| name.is_char_boundary(at))
            .unwrap_or(0);
        name.truncate(end);
    }
    name
}

/// The relation's name without schema; an error for a schema in which users have no tables.
pub(crate) fn relation(parts: &[String]) -> Result<&str, SqlError> {
    match parts {
        [name] => Ok(name),
        [schema, name] | [_, schema, name] if schema == "public" => Ok(name),
        [.., schema, _] if is_system_schema(schema) => Err(SqlError::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("permission denied: schema \"{schema}\" is a system schema"),
        )),
        [.., schema, _] => Err(SqlError::new(
            SqlState::INVALID_SCHEMA_NAME,
            format!("schema \"{schema}\" does not exist"),
        )),
        [] => Err(SqlError::new(SqlState::INVALID_NAME, "zero-length relation name")),
    }
}

fn is_system_schema(schema: &str) -> bool {
    matches!(schema, "pg_catalog" | "information_schema" | "pg_toast")
}

/// The user table that a name refers to, if there is one: only those are accessible to point statements.
pub(crate) fn find_table<'c>(catalog: &'c Catalog, parts: &[String]) -> Option<&'c Arc<TableDef>> {
    match parts {
        [name] => catalog.table(name),
        [schema, name] | [_, schema, name] if schema == "public" => catalog.table(name),
        _ => None,
    }
}

/// The table that a name refers to, or PostgreSQL's error.
pub(crate) fn table<'c>(catalog: &'c Catalog, parts: &[String]) -> Result<&'c Arc<TableDef>, SqlError> {
    let shown = || parts.join(".");
    if let [.., schema, _] = parts
        && schema != "public"
    {
        if is_system_schema(schema) {
            return Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied: \"{}\" is a system catalog", shown()),
            ));
        }
        return Err(error::undefined_table(&shown()));
    }
    let name = parts.last().map_or("", String::as_str);
    match catalog.table(name) {
        Some(table) => Ok(table),
        None if catalog.relation(name).is_some() => Err(SqlError::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("\"{name}\" is not a table"),
        )),
        None if name.starts_with("pg_") => Err(SqlError::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("permission denied: \"{name}\" is a system catalog or does not exist"),
        )),
        None => Err(error::undefined_table(&shown())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas() {
        let name = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(relation(&name("t")).unwrap(), "t");
        assert_eq!(relation(&name("public.t")).unwrap(), "t");
        assert_eq!(relation(&name("db.public.t")).unwrap(), "t");
        assert_eq!(relation(&name("other.t")).unwrap_err().state.0, "3F000");
        assert_eq!(
            table(&Catalog::new(), &name("no.t")).unwrap_err().message,
            "relation \"no.t\" does not exist"
        );
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        assert_eq!(cut("x".repeat(70)).len(), 63);
        assert_eq!(cut("é".repeat(40)).len(), 62);
    }
}
