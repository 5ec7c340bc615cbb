//! DataFusion's errors as PostgreSQL's: SQLSTATE and wording.
//!
//! An error that Weft's own functions raised travels through DataFusion as `External` and comes out
//! unchanged. For the rest the variant decides where it can, and the message where DataFusion leaves no
//! choice.

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use weft_types::{SqlError, SqlState};

/// Wraps an error of ours for its way through DataFusion.
pub fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Unwraps or translates.
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
        DataFusionError::SchemaError(error, _) => schema_error(*error),
        DataFusionError::SQL(error, _) => SqlError::new(SqlState::SYNTAX_ERROR, error.to_string()),
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

/// The innermost error of ours inside a shared one, or its message.
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
pub fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn schema_error(error: SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, .. } => {
            let name = match &field.relation {
                Some(relation) => format!("column {}.{} does not exist", relation.table(), field.name),
                None => format!("column \"{}\" does not exist", field.name),
            };
            SqlError::new(SqlState::UNDEFINED_COLUMN, name)
        }
        SchemaError::AmbiguousReference { field } => SqlError::new(
            SqlState::AMBIGUOUS_COLUMN,
            format!("column reference \"{}\" is ambiguous", field.name),
        ),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => SqlError::new(
            SqlState::AMBIGUOUS_COLUMN,
            format!(
                "column reference \"{}\" is ambiguous",
                super::naming::visible_name(&name)
            ),
        ),
    }
}

/// Messages without a variant of their own, recognised by what DataFusion writes into them.
fn from_message(message: &str) -> SqlError {
    let line = first_line(message);
    let has = |part: &str| message.contains(part);
    if let Some(name) = between(message, "Invalid function '", "'") {
        return undefined_function(name);
    }
    if has("No function matches the given name") || has("does not support zero arguments") {
        let name = between(message, "argument types '", "'").or_else(|| between(message, "call to '", "'"));
        return undefined_function(name.unwrap_or(&line));
    }
    if has("Cannot cast string '") || has("Error parsing") || has("Parser error: ") {
        let value = between(message, "string '", "'").unwrap_or(&line);
        return SqlError::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax: \"{value}\""),
        );
    }
    if has("must appear in the GROUP BY") || has("must be in GROUP BY") || has("must appear in GROUP BY") {
        return SqlError::new(SqlState::GROUPING_ERROR, grouping_message(message));
    }
    if has("ivide by zero") {
        return division_by_zero();
    }
    if has("verflow") || has("out of range") {
        return SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range").detail(line);
    }
    if has("Scalar subquery returned more than one row") || has("more than one row returned") {
        return SqlError::new(
            SqlState::CARDINALITY_VIOLATION,
            "more than one row returned by a subquery used as an expression",
        );
    }
    if has("Cannot coerce") || has("Cannot infer common argument type") || has("cannot be converted") {
        return SqlError::new(
            SqlState::UNDEFINED_FUNCTION,
            "operator does not exist for these types",
        )
        .detail(line)
        .hint("You might need to add explicit type casts.");
    }
    if has("Unsupported") || has("not supported") || has("not implemented") {
        return SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, line);
    }
    if has("Resources exhausted") {
        return SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory for this query").detail(line);
    }
    if has("require unique expression names") {
        return SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "the same columns twice by * are not supported",
        )
        .hint("Name the columns.");
    }
    if has("Placeholder") {
        return SqlError::new(SqlState::INDETERMINATE_DATATYPE, line);
    }
    SqlError::internal(line)
}

/// 42883.
pub fn undefined_function(name: &str) -> SqlError {
    let call = if name.contains('(') {
        name.to_string()
    } else {
        format!("{name}()")
    };
    SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("function {} does not exist", call.to_lowercase()),
    )
    .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}

fn grouping_message(message: &str) -> String {
    let column = between(message, "column \"", "\"")
        .or_else(|| between(message, "'", "'"))
        .unwrap_or("?");
    format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function")
}

fn between<'m>(message: &'m str, start: &str, end: &str) -> Option<&'m str> {
    let from = message.find(start)? + start.len();
    let rest = message.get(from..)?;
    rest.get(..rest.find(end)?)
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or(message).trim().to_string()
}
