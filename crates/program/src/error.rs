//! Why a program was refused before it ran. All are deterministic: the same bytes are refused everywhere.

use std::fmt;

use weft_base::codec::CodecError;
use weft_types::{SqlError, SqlState};

/// Errors of building, decoding, assembling and verifying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramError {
    /// Bytes that are not a program.
    Decode(CodecError),
    /// More of something than the encoding can name.
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// Parts that do not belong together.
    Malformed(&'static str),
    /// Assembler text that does not parse.
    Assembly {
        /// Line from 1.
        line: u32,
        /// What is wrong.
        reason: String,
    },
    /// The verifier's refusal of one instruction.
    Instruction {
        /// Instruction number.
        pc: u32,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The program does not match the catalog.
    Catalog(String),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::Decode(error) => write!(f, "not a program: {error}"),
            ProgramError::TooLarge { what, count, max } => write!(f, "{count} {what}, at most {max}"),
            ProgramError::Malformed(reason) => f.write_str(reason),
            ProgramError::Assembly { line, reason } => write!(f, "line {line}: {reason}"),
            ProgramError::Instruction { pc, rule } => write!(f, "instruction {pc}: {rule}"),
            ProgramError::Catalog(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ProgramError {}

impl From<CodecError> for ProgramError {
    fn from(error: CodecError) -> Self {
        ProgramError::Decode(error)
    }
}

impl From<ProgramError> for SqlError {
    fn from(error: ProgramError) -> Self {
        let state = match error {
            ProgramError::TooLarge { .. } => SqlState("54000"),
            _ => SqlState::INTERNAL_ERROR,
        };
        SqlError::new(state, format!("program refused: {error}"))
    }
}
