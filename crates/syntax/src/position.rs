//! Syntax errors in PostgreSQL's words, and places in a text.

use weft_types::{SqlError, SqlState};

/// 42601 `syntax error at or near "token"`.
#[must_use]
pub fn syntax(token: &str) -> SqlError {
    SqlError::new(
        SqlState::SYNTAX_ERROR,
        format!("syntax error at or near \"{token}\""),
    )
}

/// 42601 `syntax error at end of input`.
#[must_use]
pub fn syntax_at_end() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input")
}

/// 54001 `stack depth limit exceeded`.
#[must_use]
pub fn too_deep() -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .hint("The statement is nested too deeply.")
}

/// Position for the client: characters from 1.
#[must_use]
pub fn char_position(sql: &str, byte: usize) -> u32 {
    let characters = sql.get(..byte).map_or(0, |before| before.chars().count());
    u32::try_from(characters).unwrap_or(u32::MAX - 1) + 1
}

/// Moves a position inside one statement to its place in the message.
#[must_use]
pub fn shift_position(error: SqlError, sql: &str, statement_start: usize) -> SqlError {
    match error.fields().position {
        Some(position) => error.position(position + char_position(sql, statement_start) - 1),
        None => error,
    }
}
