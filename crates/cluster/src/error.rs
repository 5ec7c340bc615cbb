//! Why a transaction ends, and why a rank does.

use std::fmt;

use weft_base::CodecError;
use weft_wal::WalError;

/// Why a server did not grant a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It waited as long as it may.
    Timeout,
    /// The policy refuses such conflicts.
    Conflict,
    /// It would have closed a circle of transactions that wait for each other.
    Deadlock,
    /// An older transaction wants what it holds.
    Wounded,
    /// The server has died since the transaction first asked it: what it held there is lost.
    Lost,
}

/// Why a transaction was aborted. All can be retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Abort {
    /// A lock was not granted.
    Refused(Refusal),
    /// A server died or did not answer in time.
    ServerGone {
        /// Which.
        server: u32,
    },
    /// A message between it and a server was damaged on its way.
    MessageLost {
        /// Which.
        server: u32,
    },
    /// A server voted against it.
    VotedNo,
    /// It has more writes at one server than the staging area has room for.
    TooLarge,
    /// A record that there is not, or bytes that are no record's.
    NoRecord,
    /// The server died while it committed the transaction by itself: nobody knows yet whether it did.
    Unknown {
        /// Which.
        server: u32,
    },
}

impl Abort {
    /// The SQLSTATE that says it.
    #[must_use]
    pub const fn sql_state(&self) -> &'static str {
        match self {
            Abort::Refused(Refusal::Deadlock) => "40P01",
            Abort::Refused(Refusal::Timeout) => "55P03",
            Abort::Refused(_) | Abort::VotedNo => "40001",
            Abort::ServerGone { .. } => "57P01",
            Abort::MessageLost { .. } => "08006",
            Abort::TooLarge => "54000",
            Abort::NoRecord => "22023",
            Abort::Unknown { .. } => "08007",
        }
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Abort::Refused(Refusal::Timeout) => f.write_str("a lock was not granted in time"),
            Abort::Refused(Refusal::Conflict) => f.write_str("another transaction holds a lock"),
            Abort::Refused(Refusal::Deadlock) => f.write_str("deadlock detected"),
            Abort::Refused(Refusal::Wounded) => f.write_str("an older transaction needs a lock"),
            Abort::Refused(Refusal::Lost) => f.write_str("a server has lost its locks"),
            Abort::ServerGone { server } => write!(f, "rank {server} died or does not answer"),
            Abort::MessageLost { server } => write!(f, "a message to or from rank {server} was damaged"),
            Abort::VotedNo => f.write_str("a server could not prepare the transaction"),
            Abort::TooLarge => f.write_str("more writes at one server than there is room for"),
            Abort::NoRecord => f.write_str("no such record, or not the bytes of one"),
            Abort::Unknown { server } => {
                write!(
                    f,
                    "rank {server} died while it committed: the outcome is not known"
                )
            }
        }
    }
}

impl std::error::Error for Abort {}

/// Why a rank cannot go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Settings that make no sense.
    Config(&'static str),
    /// The fabric's.
    Fabric(weft_fabric::Error),
    /// The log's.
    Log(WalError),
    /// A record of the log that is none of this crate's.
    Record(CodecError),
    /// An error or a panic came between an agent's first request to vote and the end of telling: what it has
    /// decided is known by its log, so by its next life.
    Undecided,
    /// A log with an impossible history.
    History(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(what) => write!(f, "settings of the cluster: {what}"),
            Error::Fabric(error) => error.fmt(f),
            Error::Log(error) => error.fmt(f),
            Error::Record(error) => write!(f, "a record of the log: {error}"),
            Error::Undecided => f.write_str("the agent was stopped while it decided"),
            Error::History(what) => write!(f, "the log: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<weft_fabric::Error> for Error {
    fn from(error: weft_fabric::Error) -> Self {
        Error::Fabric(error)
    }
}

impl From<WalError> for Error {
    fn from(error: WalError) -> Self {
        Error::Log(error)
    }
}

impl From<CodecError> for Error {
    fn from(error: CodecError) -> Self {
        Error::Record(error)
    }
}
