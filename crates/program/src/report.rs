//! What a program tells besides rows: the states of errors that it raises, their fields, and notices.
//!
//! Source: PostgreSQL 15 documentation, 43.9 (errors and messages of PL/pgSQL) and appendix A (codes).

use weft_types::{ErrorFields, SqlError};
pub use weft_types::{Notice, NoticeLevel as Level};

/// SQLSTATEs that RAISE can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RaiseState {
    /// P0001 raise_exception.
    RaiseException,
    /// 23514 check_violation.
    CheckViolation,
    /// 23502 not_null_violation.
    NotNullViolation,
    /// 2201W invalid_row_count_in_limit_clause.
    InvalidLimit,
    /// 2201X invalid_row_count_in_result_offset_clause.
    InvalidOffset,
    /// 21000 cardinality_violation.
    CardinalityViolation,
    /// 22003 numeric_value_out_of_range.
    OutOfRange,
    /// 0A000 feature_not_supported.
    NotSupported,
    /// P0002 no_data_found.
    NoDataFound,
    /// P0003 too_many_rows.
    TooManyRows,
    /// 22004 null_value_not_allowed.
    NullNotAllowed,
    /// 22023 invalid_parameter_value.
    InvalidParameter,
    /// 23503 foreign_key_violation.
    ForeignKeyViolation,
    /// 23505 unique_violation.
    UniqueViolation,
    /// 40001 serialization_failure.
    SerializationFailure,
}

impl RaiseState {
    /// All, by code.
    pub const ALL: [RaiseState; 15] = [
        RaiseState::RaiseException,
        RaiseState::CheckViolation,
        RaiseState::NotNullViolation,
        RaiseState::InvalidLimit,
        RaiseState::InvalidOffset,
        RaiseState::CardinalityViolation,
        RaiseState::OutOfRange,
        RaiseState::NotSupported,
        RaiseState::NoDataFound,
        RaiseState::TooManyRows,
        RaiseState::NullNotAllowed,
        RaiseState::InvalidParameter,
        RaiseState::ForeignKeyViolation,
        RaiseState::UniqueViolation,
        RaiseState::SerializationFailure,
    ];

    /// The five characters.
    pub const fn sqlstate(self) -> &'static str {
        match self {
            RaiseState::RaiseException => "P0001",
            RaiseState::CheckViolation => "23514",
            RaiseState::NotNullViolation => "23502",
            RaiseState::InvalidLimit => "2201W",
            RaiseState::InvalidOffset => "2201X",
            RaiseState::CardinalityViolation => "21000",
            RaiseState::OutOfRange => "22003",
            RaiseState::NotSupported => "0A000",
            RaiseState::NoDataFound => "P0002",
            RaiseState::TooManyRows => "P0003",
            RaiseState::NullNotAllowed => "22004",
            RaiseState::InvalidParameter => "22023",
            RaiseState::ForeignKeyViolation => "23503",
            RaiseState::UniqueViolation => "23505",
            RaiseState::SerializationFailure => "40001",
        }
    }
}

/// A field of an error that DIAG sets and ERRTEXT reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorField {
    /// The message. DIAG does not set it: the instruction that raises does.
    Message,
    /// The five characters of the state. DIAG does not set it: ERRCODE does.
    State,
    /// DETAIL.
    Detail,
    /// HINT.
    Hint,
    /// Schema of the table concerned.
    Schema,
    /// Table concerned.
    Table,
    /// Column concerned.
    Column,
    /// Type concerned.
    DataType,
    /// Constraint concerned.
    Constraint,
}

impl ErrorField {
    /// All, by code.
    pub const ALL: [ErrorField; 9] = [
        ErrorField::Message,
        ErrorField::State,
        ErrorField::Detail,
        ErrorField::Hint,
        ErrorField::Schema,
        ErrorField::Table,
        ErrorField::Column,
        ErrorField::DataType,
        ErrorField::Constraint,
    ];

    /// Name in assembler text: PL/pgSQL's word in RAISE ... USING, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorField::Message => "message",
            ErrorField::State => "errcode",
            ErrorField::Detail => "detail",
            ErrorField::Hint => "hint",
            ErrorField::Schema => "schema",
            ErrorField::Table => "table",
            ErrorField::Column => "column",
            ErrorField::DataType => "datatype",
            ErrorField::Constraint => "constraint",
        }
    }

    /// The field with an assembler name.
    pub fn from_name(name: &str) -> Option<ErrorField> {
        ErrorField::ALL.into_iter().find(|field| field.name() == name)
    }

    /// What an error has in the field.
    pub fn of(self, error: &SqlError) -> Option<&str> {
        let fields = error.fields();
        match self {
            ErrorField::Message => Some(&error.message),
            ErrorField::State => Some(error.state.code()),
            ErrorField::Detail => fields.detail.as_deref(),
            ErrorField::Hint => fields.hint.as_deref(),
            ErrorField::Schema => fields.schema.as_deref(),
            ErrorField::Table => fields.table.as_deref(),
            ErrorField::Column => fields.column.as_deref(),
            ErrorField::DataType => fields.data_type.as_deref(),
            ErrorField::Constraint => fields.constraint.as_deref(),
        }
    }

    /// Sets the field; message and state stay.
    pub fn set(self, fields: &mut ErrorFields, text: Option<String>) {
        let place = match self {
            ErrorField::Message | ErrorField::State => return,
            ErrorField::Detail => &mut fields.detail,
            ErrorField::Hint => &mut fields.hint,
            ErrorField::Schema => &mut fields.schema,
            ErrorField::Table => &mut fields.table,
            ErrorField::Column => &mut fields.column,
            ErrorField::DataType => &mut fields.data_type,
            ErrorField::Constraint => &mut fields.constraint,
        };
        *place = text;
    }
}
