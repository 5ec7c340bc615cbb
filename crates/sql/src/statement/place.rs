//! Where in its text a statement names what does not exist.
//!
//! The planner says which relation or column is missing, not where it was written. The names in a syntax tree
//! know their line and column, so the place is looked up in the tree afterwards, and only when something
//! failed. Names that the engine itself put into a tree have no line and are passed over.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Statement, visit_expressions, visit_relations,
};
use weft_types::{SqlError, SqlState};

use super::names::ident as folded;

/// Adds the position of the missing relation or column to an error that has none. `text` is what `statement`
/// was parsed from; without it names on the first line are placed still.
pub(crate) fn placed(error: SqlError, statement: &Statement, text: &str) -> SqlError {
    if error.fields().position.is_some() || !shows_place(statement) {
        return error;
    }
    let place = match error.state {
        SqlState::UNDEFINED_TABLE => relation_place(&error.message, statement),
        SqlState::UNDEFINED_COLUMN => column_place(&error.message, statement),
        _ => None,
    };
    match place.and_then(|ident| position(&ident, text)) {
        Some(position) => error.position(position),
        None => error,
    }
}

/// PostgreSQL gives no position for the tables of ALTER, DROP and the like.
fn shows_place(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Query(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Explain { .. }
    )
}

/// A relation is missing wherever it is named; the first place is the one that PostgreSQL shows.
fn relation_place(message: &str, statement: &Statement) -> Option<Ident> {
    let missing = message
        .strip_prefix("relation \"")?
        .strip_suffix("\" does not exist")?;
    let mut place = None;
    let _ = visit_relations(statement, |name| {
        if shown(name) == missing {
            place = first_ident(name);
        }
        match place {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    place
}

/// A column may be missing in one place and known in another, so a name written twice is not placed.
fn column_place(message: &str, statement: &Statement) -> Option<Ident> {
    let missing = message.strip_prefix("column ")?.strip_suffix(" does not exist")?;
    let missing = missing
        .strip_prefix('"')
        .and_then(|name| name.strip_suffix('"'))
        .unwrap_or(missing);
    let mut places = Vec::new();
    let _ = visit_expressions(statement, |expr| {
        let parts = match expr {
            Expr::Identifier(ident) => std::slice::from_ref(ident),
            Expr::CompoundIdentifier(idents) => idents.as_slice(),
            _ => return ControlFlow::<()>::Continue(()),
        };
        let name: Vec<String> = parts.iter().map(folded).collect();
        if name.join(".") == missing {
            places.extend(parts.first().cloned());
        }
        ControlFlow::Continue(())
    });
    match places.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    }
}

/// A relation's name as messages show it: `schema.table`, folded.
fn shown(name: &ObjectName) -> String {
    let parts: Vec<String> = name
        .0
        .iter()
        .filter_map(ObjectNamePart::as_ident)
        .map(folded)
        .collect();
    parts.join(".")
}

fn first_ident(name: &ObjectName) -> Option<Ident> {
    name.0.first()?.as_ident().cloned()
}

/// The 1-based character position of a name in `text`.
fn position(ident: &Ident, text: &str) -> Option<u32> {
    let start = ident.span.start;
    let line = usize::try_from(start.line).ok()?;
    if line == 0 || (line > 1 && text.is_empty()) {
        return None;
    }
    let before: usize = text
        .split_inclusive('\n')
        .take(line - 1)
        .map(|line| line.chars().count())
        .sum();
    u32::try_from(before as u64 + start.column).ok()
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;

    use super::*;

    /// The text from the place on.
    fn found<'a>(sql: &'a str, state: SqlState, message: &str) -> Option<&'a str> {
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        let error = placed(SqlError::new(state, message.to_string()), &statement, sql);
        let position = error.fields().position? as usize;
        let start = sql.char_indices().nth(position - 1).unwrap().0;
        Some(&sql[start..])
    }

    fn relation<'a>(sql: &'a str, name: &str) -> Option<&'a str> {
        let message = format!("relation \"{name}\" does not exist");
        found(sql, SqlState::UNDEFINED_TABLE, &message)
    }

    #[test]
    fn relations_are_found_wherever_they_are_named() {
        assert_eq!(relation("SELECT * FROM nowhere", "nowhere"), Some("nowhere"));
        assert_eq!(
            relation("SELECT 'ä\nö', 1 FROM\n  a, NoWhere x", "nowhere"),
            Some("NoWhere x")
        );
        assert_eq!(relation("SELECT (SELECT 1 FROM s.t)", "s.t"), Some("s.t)"));
        assert_eq!(relation("SELECT 1 FROM \"A b\"", "A b"), Some("\"A b\""));
        assert_eq!(
            relation("INSERT INTO gone VALUES (1)", "gone"),
            Some("gone VALUES (1)")
        );
        assert_eq!(relation("UPDATE gone SET a = 1", "gone"), Some("gone SET a = 1"));
        assert_eq!(relation("DELETE FROM gone", "gone"), Some("gone"));
        assert_eq!(relation("SELECT 1 FROM a", "b"), None);
    }

    #[test]
    fn columns_are_found_when_there_is_no_doubt() {
        let column = |sql, name: &str| {
            let message = format!("column {name} does not exist");
            found(sql, SqlState::UNDEFINED_COLUMN, &message)
        };
        assert_eq!(column("SELECT a,\n B FROM t", "\"b\""), Some("B FROM t"));
        assert_eq!(column("SELECT t.b FROM t", "t.b"), Some("t.b FROM t"));
        assert_eq!(column("SELECT b FROM t WHERE b = 1", "\"b\""), None);
    }

    #[test]
    fn other_errors_and_places_stay() {
        assert_eq!(
            found(
                "SELECT 1 FROM a",
                SqlState::DIVISION_BY_ZERO,
                "relation \"a\" does not exist"
            ),
            None
        );
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, "SELECT 1 FROM a")
            .unwrap()
            .remove(0);
        let error = SqlError::new(SqlState::UNDEFINED_TABLE, "relation \"a\" does not exist").position(3);
        assert_eq!(placed(error, &statement, "").fields().position, Some(3));
    }
}
