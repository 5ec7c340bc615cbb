//! Translates DataFusion's errors into PostgreSQL's SQLSTATEs and messages.
//!
//! An error that Weft's own functions raised passes through DataFusion as `External` and is returned
//! unchanged. Other errors are classified by their variant where possible, and by their message where
//! DataFusion provides nothing else.

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use weft_types::{SqlError, SqlState};

/// Wraps one of our errors to pass through DataFusion.
pub fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Unwraps one of our errors or translates DataFusion's.
pub fn sql_error(error: DataFusionError) -> SqlError {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<SqlError>() {
            Ok(ours) => *ours,
            Err(inner) => match inner.downcast::<DataFusionError>() {
                Ok(nested) => sql_error(*nested),
                Err(other) => from_message(&other.to_string()),
            },
        },
        DataFusionError::ArrowError(error, _) => arrow_error(*error),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => sql_error(*inner),
        DataFusionError::Shared(shared) => shared_error(&shared),
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => sql_error(first),
            None => SqlError::internal("a query failed without saying why"),
        },
        DataFusionError::NotImplemented(message) => {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, first_line(&message))
        }
        DataFusionError::ResourcesExhausted(message) => {
            SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory for this query")
                .detail(first_line(&message))
        }
        DataFusionError::Plan(message)
        | DataFusionError::Execution(message)
        | DataFusionError::Internal(message)
        | DataFusionError::Configuration(message) => from_message(&message),
        other => from_message(&other.to_string()),
    }
}

/// The innermost of our errors inside a shared one, or its message.
fn shared_error(error: &DataFusionError) -> SqlError {
    match error {
        DataFusionError::External(inner) => match inner.downcast_ref::<SqlError>() {
            Some(ours) => ours.clone(),
            None => match inner.downcast_ref::<DataFusionError>() {
                Some(nested) => shared_error(nested),
                None => from_message(&inner.to_string()),
            },
        },
        DataFusionError::Shared(inner) => shared_error(inner),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => shared_error(inner),
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::DivideByZero => division_by_zero(),
            ArrowError::ExternalError(inner) => match inner.downcast_ref::<DataFusionError>() {
                Some(nested) => shared_error(nested),
                None => from_message(&inner.to_string()),
            },
            other => from_message(&other.to_string()),
        },
        DataFusionError::ResourcesExhausted(message) => {
            SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory for this query").detail(first_line(message))
        }
        other => from_message(&other.to_string()),
    }
}

fn arrow_error(error: ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => division_by_zero(),
        ArrowError::ArithmeticOverflow(_) => {
            SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range")
        }
        ArrowError::ExternalError(inner) => match inner.downcast::<SqlError>() {
            Ok(ours) => *ours,
            Err(inner) => match inner.downcast::<DataFusionError>() {
                Ok(nested) => sql_error(*nested),
                Err(other) => from_message(&other.to_string()),
            },
        },
        ArrowError::MemoryError(message) => SqlError::new(SqlState::OUT_OF_MEMORY, message),
        other => from_message(&other.to_string()),
    }
}

/// 22012.
fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// Classifies an error without its own variant by its message.
fn from_message(message: &str) -> SqlError {
    let line = first_line(message);
    let has = |part: &str| message.contains(part);
    if has("ivide by zero") {
        return division_by_zero();
    }
    if has("verflow") || has("out of range") {
        return SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range").detail(line);
    }
    if has("Resources exhausted") {
        return SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory for this query").detail(line);
    }
    SqlError::internal(line)
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or(message).trim().to_string()
}
