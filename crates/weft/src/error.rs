//! Why a database could not be opened or maintained. Errors of statements are `SqlError`s.

use std::fmt;

use weft_txn::EngineError;
use weft_types::{SqlError, SqlState};

/// The message of [`changed_result_type`].
pub const CHANGED_RESULT_TYPE: &str = "cached plan must not change result type";

/// A prepared statement returns other columns than it was described with, because definitions have changed.
pub fn changed_result_type() -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, CHANGED_RESULT_TYPE)
}

/// An error of the database as a whole.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The engine failed: recovery, checkpoint or files.
    Engine(EngineError),
    /// An option makes no sense.
    Options(String),
    /// The query engine could not start.
    Query(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Engine(error) => write!(f, "{error}"),
            Error::Options(reason) => write!(f, "options: {reason}"),
            Error::Query(reason) => write!(f, "query engine: {reason}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Engine(error) => Some(error),
            _ => None,
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Error {
        Error::Engine(error)
    }
}
