//! Errors as a client sees them: a SQLSTATE, a message in PostgreSQL's wording, and rarely more.
//!
//! [`SqlError`] is the only error type that may reach a client. State and message are always present;
//! DETAIL, HINT, the position in the query and the names of the objects concerned are rare, so they are in
//! a box that most errors do not have. That keeps `Result<_, SqlError>` small on the success path.
//!
//! Codes follow PostgreSQL 15, appendix A ("PostgreSQL Error Codes").

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A SQLSTATE: five characters, the first two its class.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

macro_rules! sql_states {
    ($($name:ident $code:literal $doc:literal,)*) => {
        impl SqlState {
            $(#[doc = $doc] pub const $name: SqlState = SqlState($code);)*

            /// Every named state.
            pub const ALL: &'static [SqlState] = &[$(SqlState::$name,)*];
        }
    };
}

sql_states! {
    SUCCESSFUL_COMPLETION "00000" "No error.",
    WARNING "01000" "A warning.",
    NO_DATA "02000" "No data.",
    CONNECTION_EXCEPTION "08000" "The connection is in trouble.",
    CONNECTION_FAILURE "08006" "The connection broke.",
    PROTOCOL_VIOLATION "08P01" "A message that the wire protocol does not allow here.",
    FEATURE_NOT_SUPPORTED "0A000" "A feature of PostgreSQL that is not built.",
    CARDINALITY_VIOLATION "21000" "A subquery used as an expression gave more than one row.",
    STRING_DATA_RIGHT_TRUNCATION "22001" "Text longer than its column.",
    NULL_VALUE_NOT_ALLOWED "22004" "NULL where none may be.",
    NUMERIC_VALUE_OUT_OF_RANGE "22003" "A number beyond its type.",
    INVALID_DATETIME_FORMAT "22007" "Text that is no date or time.",
    DATETIME_FIELD_OVERFLOW "22008" "A date or time beyond its range.",
    INVALID_TIME_ZONE_DISPLACEMENT "22009" "A time zone offset beyond its range.",
    DIVISION_BY_ZERO "22012" "Division by zero.",
    INTERVAL_FIELD_OVERFLOW "22015" "A field of an interval beyond its range.",
    INVALID_ESCAPE_SEQUENCE "22025" "A bad escape in a LIKE pattern.",
    INVALID_REGULAR_EXPRESSION "2201B" "A bad regular expression.",
    INVALID_ROW_COUNT_IN_LIMIT "2201W" "A negative LIMIT.",
    INVALID_ROW_COUNT_IN_OFFSET "2201X" "A negative OFFSET.",
    ARRAY_SUBSCRIPT_ERROR "2202E" "Subscripts or dimensions that an array cannot have.",
    CHARACTER_NOT_IN_REPERTOIRE "22021" "Bytes that are no text in the encoding.",
    INVALID_PARAMETER_VALUE "22023" "An argument or setting that makes no sense.",
    INVALID_TEXT_REPRESENTATION "22P02" "Text that is no value of its type.",
    INVALID_BINARY_REPRESENTATION "22P03" "Bytes that are no value of their type.",
    BAD_COPY_FILE_FORMAT "22P04" "COPY data that cannot be read.",
    UNTRANSLATABLE_CHARACTER "22P05" "A character without an equivalent in the encoding.",
    INTEGRITY_CONSTRAINT_VIOLATION "23000" "A constraint is violated.",
    NOT_NULL_VIOLATION "23502" "NULL in a column that is NOT NULL.",
    FOREIGN_KEY_VIOLATION "23503" "A reference to a row that is not there.",
    UNIQUE_VIOLATION "23505" "A value that must be unique is there already.",
    CHECK_VIOLATION "23514" "A CHECK constraint is false.",
    INVALID_CURSOR_STATE "24000" "A cursor that cannot do this now.",
    INVALID_TRANSACTION_STATE "25000" "Not possible in this state of the transaction.",
    ACTIVE_SQL_TRANSACTION "25001" "Not possible inside a transaction.",
    READ_ONLY_SQL_TRANSACTION "25006" "Writing in a read-only transaction.",
    NO_ACTIVE_SQL_TRANSACTION "25P01" "There is no transaction.",
    IN_FAILED_SQL_TRANSACTION "25P02" "The transaction has failed; only its end is accepted.",
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT "25P03" "A transaction idled too long.",
    INVALID_SQL_STATEMENT_NAME "26000" "No such prepared statement.",
    INVALID_AUTHORIZATION_SPECIFICATION "28000" "This user may not log in.",
    INVALID_PASSWORD "28P01" "Wrong password.",
    DEPENDENT_OBJECTS_STILL_EXIST "2BP01" "Other objects depend on this one.",
    INVALID_CURSOR_NAME "34000" "No such portal or cursor.",
    INVALID_SAVEPOINT_SPECIFICATION "3B001" "No such savepoint.",
    INVALID_CATALOG_NAME "3D000" "No such database.",
    INVALID_SCHEMA_NAME "3F000" "No such schema.",
    SERIALIZATION_FAILURE "40001" "The transaction lost against a concurrent one; run it again.",
    STATEMENT_COMPLETION_UNKNOWN "40003" "It is unknown whether the statement took effect.",
    DEADLOCK_DETECTED "40P01" "The transaction was part of a deadlock; run it again.",
    INSUFFICIENT_PRIVILEGE "42501" "Not allowed.",
    SYNTAX_ERROR "42601" "The statement cannot be parsed.",
    INVALID_NAME "42602" "A malformed name.",
    INVALID_COLUMN_DEFINITION "42611" "A column definition that contradicts itself.",
    NAME_TOO_LONG "42622" "A name that is too long.",
    DUPLICATE_COLUMN "42701" "A column named twice.",
    AMBIGUOUS_COLUMN "42702" "A column name that several tables have.",
    UNDEFINED_COLUMN "42703" "No such column.",
    UNDEFINED_OBJECT "42704" "No such type, setting or other object.",
    DUPLICATE_OBJECT "42710" "The object exists already.",
    DUPLICATE_ALIAS "42712" "A table name used twice in FROM.",
    AMBIGUOUS_FUNCTION "42725" "Several functions would fit.",
    GROUPING_ERROR "42803" "A column neither grouped nor aggregated.",
    DATATYPE_MISMATCH "42804" "A value of the wrong type.",
    WRONG_OBJECT_TYPE "42809" "An object of another kind than needed.",
    INVALID_FOREIGN_KEY "42830" "A foreign key that cannot be.",
    CANNOT_COERCE "42846" "No cast between these types.",
    UNDEFINED_FUNCTION "42883" "No such function or operator.",
    UNDEFINED_TABLE "42P01" "No such table.",
    UNDEFINED_PARAMETER "42P02" "No such parameter.",
    DUPLICATE_CURSOR "42P03" "A cursor of this name exists.",
    DUPLICATE_DATABASE "42P04" "A database of this name exists.",
    DUPLICATE_PREPARED_STATEMENT "42P05" "A prepared statement of this name exists.",
    DUPLICATE_SCHEMA "42P06" "A schema of this name exists.",
    DUPLICATE_TABLE "42P07" "A table or index of this name exists.",
    AMBIGUOUS_PARAMETER "42P08" "A parameter whose type is contradictory.",
    INVALID_COLUMN_REFERENCE "42P10" "A column reference that means nothing here.",
    INVALID_TABLE_DEFINITION "42P16" "A table definition that contradicts itself.",
    INVALID_OBJECT_DEFINITION "42P17" "A definition that contradicts itself.",
    INDETERMINATE_DATATYPE "42P18" "A type that cannot be told.",
    GENERATED_ALWAYS "428C9" "A value for a column that is always generated.",
    INVALID_RECURSION "42P19" "A recursive query that recurses wrongly.",
    WINDOWING_ERROR "42P20" "A window function where none may be.",
    WITH_CHECK_OPTION_VIOLATION "44000" "A row outside its view.",
    INSUFFICIENT_RESOURCES "53000" "A resource is used up.",
    DISK_FULL "53100" "The disk is full.",
    OUT_OF_MEMORY "53200" "Memory is used up.",
    TOO_MANY_CONNECTIONS "53300" "Too many clients already.",
    CONFIGURATION_LIMIT_EXCEEDED "53400" "A configured limit is exceeded.",
    PROGRAM_LIMIT_EXCEEDED "54000" "A limit of the implementation is exceeded.",
    STATEMENT_TOO_COMPLEX "54001" "The statement is too complex.",
    TOO_MANY_COLUMNS "54011" "Too many columns.",
    TOO_MANY_ARGUMENTS "54023" "Too many arguments.",
    OBJECT_NOT_IN_PREREQUISITE_STATE "55000" "The object is not in a state for this.",
    OBJECT_IN_USE "55006" "The object is in use.",
    CANT_CHANGE_RUNTIME_PARAM "55P02" "The setting cannot be changed now.",
    LOCK_NOT_AVAILABLE "55P03" "A lock could not be had at once, or in time.",
    OPERATOR_INTERVENTION "57000" "An operator intervened.",
    QUERY_CANCELED "57014" "Canceled on request or by a timeout.",
    ADMIN_SHUTDOWN "57P01" "The server is shutting down.",
    CRASH_SHUTDOWN "57P02" "The server is going down after a failure.",
    CANNOT_CONNECT_NOW "57P03" "The server is starting or stopping.",
    SYSTEM_ERROR "58000" "The operating system refused.",
    IO_ERROR "58030" "Reading or writing a file failed.",
    SNAPSHOT_TOO_OLD "72000" "A transaction's snapshot was given up.",
    INTERNAL_ERROR "XX000" "A fault of this program.",
    DATA_CORRUPTED "XX001" "Stored data is corrupt.",
    INDEX_CORRUPTED "XX002" "An index contradicts its table.",
}

/// Maximum number of user-defined codes in the life of a process: each is kept until its end.
pub const OWN_STATES_MAX: usize = 4096;

/// User-defined codes, kept for the rest of the process.
struct Kept(BTreeSet<&'static str>);

impl Kept {
    /// Interns the code, unless it is new and there are already `count_max`.
    fn keep(&mut self, code: &str, count_max: usize) -> Option<&'static str> {
        if let Some(known) = self.0.get(code) {
            return Some(known);
        }
        if self.0.len() >= count_max {
            return None;
        }
        let kept: &'static str = Box::leak(code.to_owned().into_boxed_str());
        self.0.insert(kept);
        Some(kept)
    }
}

impl SqlState {
    /// The named state with this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.0 == code)
    }

    /// Whether a text has the form of a code: five digits and capital letters.
    #[must_use]
    pub fn is_code(text: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
        text.len() == 5 && text.bytes().all(fits)
    }

    /// Interns a possibly user-defined code ([`SqlState::is_code`]). A code without a name is kept for the
    /// rest of the process, so it must come from a definition, not from data, and must have been admitted
    /// by [`SqlState::user_defined`].
    #[must_use]
    pub fn interned(code: &str) -> Option<Self> {
        Self::kept(code, usize::MAX)
    }

    /// Like [`SqlState::interned`], for a code that may be new: also `None` if there are too many
    /// ([`OWN_STATES_MAX`]).
    #[must_use]
    pub fn user_defined(code: &str) -> Option<Self> {
        Self::kept(code, OWN_STATES_MAX)
    }

    fn kept(code: &str, count_max: usize) -> Option<Self> {
        static KEPT: Mutex<Kept> = Mutex::new(Kept(BTreeSet::new()));
        if let Some(known) = Self::from_code(code) {
            return Some(known);
        }
        if !Self::is_code(code) {
            return None;
        }
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.keep(code, count_max).map(Self)
    }

    /// The five characters.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.0
    }

    /// The two characters of the class: "23" for integrity constraint violations.
    #[must_use]
    pub fn class(self) -> &'static str {
        self.0.get(..2).unwrap_or(self.0)
    }

    /// Whether the same transaction may succeed if it is retried.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::SERIALIZATION_FAILURE | Self::DEADLOCK_DETECTED)
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Severity of a notice, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum NoticeLevel {
    /// DEBUG: for debugging.
    Debug,
    /// LOG: for the server's operator.
    Log,
    /// INFO: requested by the user, and sent regardless of the client's settings.
    Info,
    /// NOTICE: helpful information.
    Notice,
    /// WARNING: a client should show it.
    Warning,
}

impl NoticeLevel {
    /// All levels in ascending order.
    pub const ALL: [NoticeLevel; 5] = [
        NoticeLevel::Debug,
        NoticeLevel::Log,
        NoticeLevel::Info,
        NoticeLevel::Notice,
        NoticeLevel::Warning,
    ];

    /// PostgreSQL's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            NoticeLevel::Debug => "DEBUG",
            NoticeLevel::Log => "LOG",
            NoticeLevel::Info => "INFO",
            NoticeLevel::Notice => "NOTICE",
            NoticeLevel::Warning => "WARNING",
        }
    }
}

/// A message to the client besides results; not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Severity.
    pub level: NoticeLevel,
    /// Message, state and fields.
    pub text: SqlError,
}

/// The fields that most errors lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFields {
    /// DETAIL line.
    pub detail: Option<String>,
    /// HINT line.
    pub hint: Option<String>,
    /// Position in the query, in characters from 1.
    pub position: Option<u32>,
    /// Schema of the table concerned.
    pub schema: Option<String>,
    /// Table concerned.
    pub table: Option<String>,
    /// Column concerned.
    pub column: Option<String>,
    /// Type concerned.
    pub data_type: Option<String>,
    /// Constraint concerned.
    pub constraint: Option<String>,
    /// CONTEXT line: what was being done.
    pub context: Option<String>,
    /// Notices sent to the client before the error.
    pub notices: Vec<Notice>,
    /// The error is that a program used up its instruction budget: the state does not tell, because a
    /// program may raise any state.
    pub out_of_budget: bool,
}

static NO_FIELDS: ErrorFields = ErrorFields {
    detail: None,
    hint: None,
    position: None,
    schema: None,
    table: None,
    column: None,
    data_type: None,
    constraint: None,
    context: None,
    notices: Vec::new(),
    out_of_budget: false,
};

/// An error reported to a client.
#[derive(Clone, PartialEq, Eq)]
pub struct SqlError {
    /// The SQLSTATE.
    pub state: SqlState,
    /// The primary message, one line, PostgreSQL's wording where PostgreSQL has the error.
    pub message: String,
    fields: Option<Box<ErrorFields>>,
}

impl SqlError {
    /// An error with only state and message.
    #[must_use]
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self {
            state,
            message: message.into(),
            fields: None,
        }
    }

    /// Bytes of its texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let fields = self.fields();
        let texts = [
            &fields.detail,
            &fields.hint,
            &fields.schema,
            &fields.table,
            &fields.column,
            &fields.data_type,
            &fields.constraint,
            &fields.context,
        ];
        let lengths = texts.into_iter().flatten().map(String::len);
        self.message.len() + lengths.sum::<usize>()
    }

    /// An internal error: XX000.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(SqlState::INTERNAL_ERROR, message)
    }

    /// A feature that PostgreSQL has and this database lacks: 0A000.
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, message)
    }

    /// All fields except state and message.
    #[must_use]
    pub fn fields(&self) -> &ErrorFields {
        self.fields.as_deref().unwrap_or(&NO_FIELDS)
    }

    /// All fields except state and message, mutable.
    pub fn fields_mut(&mut self) -> &mut ErrorFields {
        self.fields.get_or_insert_default()
    }

    /// Adds a DETAIL line.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.fields_mut().detail = Some(detail.into());
        self
    }

    /// Adds a HINT line.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.fields_mut().hint = Some(hint.into());
        self
    }

    /// Adds the position in the query, in characters from 1.
    #[must_use]
    pub fn position(mut self, position: u32) -> Self {
        self.fields_mut().position = Some(position);
        self
    }

    /// Names the table concerned.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.fields_mut().table = Some(table.into());
        self
    }

    /// Names the column concerned.
    #[must_use]
    pub fn column(mut self, column: impl Into<String>) -> Self {
        self.fields_mut().column = Some(column.into());
        self
    }

    /// Names the constraint concerned.
    #[must_use]
    pub fn constraint(mut self, constraint: impl Into<String>) -> Self {
        self.fields_mut().constraint = Some(constraint.into());
        self
    }

    /// Adds a CONTEXT line.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.fields_mut().context = Some(context.into());
        self
    }
}

impl fmt::Debug for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlError({}: {:?}", self.state, self.message)?;
        if let Some(fields) = &self.fields {
            write!(f, ", {fields:?}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.state)?;
        if let Some(detail) = &self.fields().detail {
            write!(f, "; {detail}")?;
        }
        Ok(())
    }
}

impl Error for SqlError {}

impl From<weft_base::CodecError> for SqlError {
    fn from(error: weft_base::CodecError) -> Self {
        Self::new(SqlState::DATA_CORRUPTED, format!("corrupt data: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_defined_codes_are_kept_up_to_a_bound() {
        let mut kept = Kept(BTreeSet::new());
        let first = kept.keep("XY001", 2).unwrap();
        assert_eq!(kept.keep("XY002", 2), Some("XY002"));
        assert_eq!(kept.keep("XY003", 2), None);
        // An interned code is returned again and takes no more memory.
        assert!(std::ptr::eq(kept.keep("XY001", 2).unwrap(), first));
        assert_eq!(kept.0.len(), 2);
        assert_eq!(SqlState::user_defined("bad"), None);
        assert_eq!(SqlState::user_defined("23505"), Some(SqlState::UNIQUE_VIOLATION));
        assert_eq!(SqlState::user_defined("XY9ZZ"), SqlState::interned("XY9ZZ"));
    }

    #[test]
    fn states_are_five_characters_and_unique() {
        let mut codes: Vec<&str> = SqlState::ALL.iter().map(|state| state.code()).collect();
        assert!(codes.iter().all(|code| code.len() == 5));
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
        assert_eq!(SqlState::from_code("23505"), Some(SqlState::UNIQUE_VIOLATION));
        assert_eq!(SqlState::from_code("99999"), None);
        assert_eq!(SqlState::UNIQUE_VIOLATION.class(), "23");
    }

    #[test]
    fn an_error_is_small_and_carries_its_fields() {
        assert!(size_of::<SqlError>() <= 48);
        let error = SqlError::new(SqlState::UNIQUE_VIOLATION, "duplicate key")
            .detail("Key (id)=(1).")
            .position(7);
        assert_eq!(error.fields().detail.as_deref(), Some("Key (id)=(1)."));
        assert_eq!(error.fields().position, Some(7));
        assert_eq!(error.to_string(), "duplicate key (23505); Key (id)=(1).");
        assert_eq!(SqlError::internal("x").fields(), &ErrorFields::default());
    }
}
