//! Functions of the session that need no rows: clock, identity, sequences.

use weft_store::{Catalog, SequenceId};
use weft_types::{SqlError, SqlState};

use super::names;
use super::scalar::SessionValue;
use weft_syntax::reader::TokenReader;

/// Functions without arguments that the session evaluates.
pub(crate) fn session_function(name: &str) -> Option<SessionValue> {
    Some(match name {
        "now" | "transaction_timestamp" | "current_timestamp" => SessionValue::TransactionTimestamp,
        "statement_timestamp" => SessionValue::StatementTimestamp,
        "clock_timestamp" => SessionValue::ClockTimestamp,
        "localtimestamp" => SessionValue::LocalTimestamp,
        "current_date" => SessionValue::CurrentDate,
        "current_user" | "current_role" | "user" => SessionValue::CurrentUser,
        "session_user" => SessionValue::SessionUser,
        "current_database" | "current_catalog" => SessionValue::CurrentDatabase,
        "current_schema" => SessionValue::CurrentSchema,
        "version" => SessionValue::Version,
        "pg_backend_pid" => SessionValue::BackendPid,
        _ => return None,
    })
}

/// The sequence that a text names, as in `nextval('name')`: folded unless quoted, with an optional
/// schema.
pub(crate) fn sequence_named(catalog: &Catalog, text: &str) -> Result<SequenceId, SqlError> {
    let missing = || {
        SqlError::new(
            SqlState::UNDEFINED_TABLE,
            format!("relation \"{text}\" does not exist"),
        )
    };
    let mut reader = TokenReader::new(text);
    let parts = reader.qualified_name().map_err(|_| missing())?;
    let name = names::relation(&parts).map_err(|_| missing())?;
    match catalog.sequence(name) {
        Some(sequence) => Ok(sequence.id),
        None if catalog.relation(name).is_some() => Err(SqlError::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("\"{name}\" is not a sequence"),
        )),
        None => Err(missing()),
    }
}
