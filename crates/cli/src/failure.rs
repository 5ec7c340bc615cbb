//! Early termination of a command: a message for users and an exit code for scripts.
//!
//! | code | meaning                                                                     |
//! |------|-----------------------------------------------------------------------------|
//! | 0    | done                                                                        |
//! | 1    | an error of the environment (files, ports, a missing server)                |
//! | 2    | the command line is invalid                                                 |
//! | 3    | a check failed: money is missing, digests differ. Report it                 |
//! | 4    | the database directory is corrupt or not a database                         |

use std::fmt;
use std::process::ExitCode;

use weft_txn::EngineError;

/// Why a command ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// An error of the environment.
    Environment(String),
    /// Invalid or inconsistent arguments.
    Usage(String),
    /// The database violated a guarantee.
    Check(String),
    /// The files on disk are corrupt or not a Weft database.
    Corrupt(String),
}

impl Failure {
    /// An error of the environment, with what was being done.
    pub fn doing(what: &str, error: impl fmt::Display) -> Self {
        Failure::Environment(format!("{what}: {error}"))
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Environment(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Check(_) => 3,
            Failure::Corrupt(_) => 4,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Environment(message) | Failure::Usage(message) => f.write_str(message),
            Failure::Check(message) => write!(f, "CHECK FAILED: {message}"),
            Failure::Corrupt(message) => write!(f, "corrupt database: {message}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::Io { .. } | EngineError::Stopped(_) => Failure::Environment(message),
            EngineError::DigestMismatch { .. } => Failure::Check(message),
            _ => Failure::Corrupt(message),
        }
    }
}

impl From<weft::SqlError> for Failure {
    fn from(error: weft::SqlError) -> Self {
        Failure::Environment(format!("{}: {}", error.state.code(), error.message))
    }
}

impl From<weft::Error> for Failure {
    fn from(error: weft::Error) -> Self {
        match error {
            weft::Error::Engine(error) => error.into(),
            weft::Error::Options(_) => Failure::Usage(error.to_string()),
            _ => Failure::Environment(error.to_string()),
        }
    }
}

impl From<weft_workload::RunError> for Failure {
    fn from(error: weft_workload::RunError) -> Self {
        Failure::Environment(error.to_string())
    }
}

impl From<weft_lsm_bench::LoadError> for Failure {
    fn from(error: weft_lsm_bench::LoadError) -> Self {
        Failure::Environment(error.to_string())
    }
}
