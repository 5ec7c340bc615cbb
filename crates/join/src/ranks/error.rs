//! Why a join over ranks ended without all of its results.

use std::fmt;

use weft_fabric::Error as FabricError;

use crate::error::JoinError;

/// Why a rank gave up, as the others hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Its budget or its memory is too small.
    Room,
    /// Its input changed, or was not within the bounds it told.
    Source,
    /// Its caller interrupted the join, or its consumer ended it.
    Ended,
    /// Another error, which the rank itself returned.
    Other,
}

impl Reason {
    pub(crate) fn of(error: &JoinError) -> Reason {
        match error {
            JoinError::Budget { .. } | JoinError::Memory { .. } => Reason::Room,
            JoinError::Source => Reason::Source,
            JoinError::Interrupted | JoinError::Stopped => Reason::Ended,
            _ => Reason::Other,
        }
    }

    /// A word for the wire; 0 is no reason.
    pub(crate) fn word(self) -> u64 {
        match self {
            Reason::Room => 1,
            Reason::Source => 2,
            Reason::Ended => 3,
            Reason::Other => 4,
        }
    }

    pub(crate) fn from_word(word: u64) -> Reason {
        match word {
            1 => Reason::Room,
            2 => Reason::Source,
            3 => Reason::Ended,
            _ => Reason::Other,
        }
    }
}

/// Why a join over ranks failed. Unless it says so, nothing was moved yet, or what was moved was told to
/// nobody; the ranks agree on the end of the join and may begin another one.
#[derive(Debug)]
#[non_exhaustive]
pub enum RankJoinError {
    /// The fabric's: a rank that is dead or late is named in it. The exchange cannot be used any more.
    Fabric(FabricError),
    /// This rank's own. After the exchange of tuples the others go on, and consumers may have got a part of
    /// the results.
    Local(JoinError),
    /// Another rank gave up before all tuples were exchanged.
    Peer {
        /// Which.
        rank: u32,
        /// Why.
        reason: Reason,
    },
    /// A rank's window is too small for what it would get. All ranks find this alike.
    Window {
        /// Whose.
        rank: u32,
        /// Bytes that it would get.
        bytes: u64,
        /// Bytes that its window has.
        bytes_max: u64,
    },
    /// Another rank was given other options, or another number of joins.
    Disagreement {
        /// Which.
        rank: u32,
    },
    /// Options that make no sense here.
    Misuse {
        /// What is wrong with them.
        what: &'static str,
    },
}

impl RankJoinError {
    /// The rank that another one waited for in vain, if that is the reason.
    #[must_use]
    pub fn lost_rank(&self) -> Option<u32> {
        match self {
            Self::Fabric(FabricError::RankDead { rank, .. }) => Some(*rank),
            Self::Fabric(FabricError::Deadline { rank, .. }) => *rank,
            _ => None,
        }
    }
}

impl From<FabricError> for RankJoinError {
    fn from(error: FabricError) -> Self {
        Self::Fabric(error)
    }
}

impl From<JoinError> for RankJoinError {
    fn from(error: JoinError) -> Self {
        Self::Local(error)
    }
}

impl fmt::Display for RankJoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fabric(error) => write!(f, "a join over ranks: {error}"),
            Self::Local(error) => error.fmt(f),
            Self::Peer { rank, reason } => {
                let why = match reason {
                    Reason::Room => "its memory is too small",
                    Reason::Source => "its input changed, or is not within the bounds it told",
                    Reason::Ended => "its caller ended the join",
                    Reason::Other => "of an error that it has returned",
                };
                write!(f, "rank {rank} gave up a join, because {why}")
            }
            Self::Window {
                rank,
                bytes,
                bytes_max,
            } => write!(
                f,
                "a join needs {bytes} bytes of the window of rank {rank}, which has {bytes_max}"
            ),
            Self::Disagreement { rank } => {
                write!(f, "rank {rank} was given other joins or options than this one")
            }
            Self::Misuse { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for RankJoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Fabric(error) => Some(error),
            Self::Local(error) => Some(error),
            _ => None,
        }
    }
}
