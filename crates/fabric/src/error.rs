//! What can go wrong on a fabric. One enumeration; a variant for each thing that a caller does something
//! about.
//!
//! | class | meaning | variants |
//! |---|---|---|
//! | user | the caller's mistake, the same on every try | out of range, unaligned, no such rank, too long, refused, misuse |
//! | disagreement | ranks were started with different settings | disagreement |
//! | retryable | another rank died or is late | rank dead, deadline |
//! | corruption | bytes of another rank are not what it can have sent | damaged |
//! | device | the system or the MPI library refused | system, mpi |

use std::fmt;

/// An operation that did not happen, or of which nobody knows whether it did (`RankDead`, `Deadline`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A range that is not inside the window of its target.
    OutOfRange {
        /// Name of the window.
        window: String,
        /// The target.
        rank: u32,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        length: u64,
        /// Bytes that the target has.
        window_bytes: u64,
    },
    /// A word that does not begin at a multiple of eight bytes.
    Unaligned {
        /// Name of the window.
        window: String,
        /// The target.
        rank: u32,
        /// The byte asked for.
        offset: u64,
    },
    /// A rank that this fabric does not have.
    NoSuchRank {
        /// The number given.
        rank: u32,
        /// How many ranks there are.
        rank_count: u32,
    },
    /// A message longer than the mailbox was made for.
    MessageTooLong {
        /// Bytes of the message.
        length: usize,
        /// Bytes that a slot holds.
        length_max: usize,
    },
    /// The receiver has no slot for messages of this rank.
    NotAccepted {
        /// The receiver.
        rank: u32,
    },
    /// An argument or a setting that makes no sense.
    Misuse {
        /// What is wrong with it.
        what: String,
    },
    /// Two ranks differ in what must be the same: sizes, settings, the collective that they call.
    Disagreement {
        /// What they differ in.
        what: String,
        /// The other rank.
        rank: u32,
        /// This rank's value.
        ours: u64,
        /// The other's value.
        theirs: u64,
    },
    /// The rank is dead, or was and has returned with empty windows.
    RankDead {
        /// Which.
        rank: u32,
        /// What it was needed for.
        during: &'static str,
    },
    /// Time is over. The rank named is one that was still waited for.
    Deadline {
        /// What was waited for.
        during: &'static str,
        /// A rank that had not answered, if one can be named.
        rank: Option<u32>,
        /// How long this rank waited.
        waited_ms: u64,
    },
    /// Bytes that no sound rank can have sent.
    Damaged {
        /// Who sent them.
        rank: u32,
        /// What is wrong with them.
        what: &'static str,
    },
    /// The operating system refused.
    System {
        /// What was asked of it.
        what: String,
        /// Its answer.
        answer: String,
    },
    /// A call of the MPI library failed.
    Mpi {
        /// The call.
        call: &'static str,
        /// The library's text.
        answer: String,
    },
}

/// What kind of trouble an error is, so that a caller can decide by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The caller's mistake.
    User,
    /// Ranks of different settings or versions.
    Disagreement,
    /// May succeed later, or with other ranks.
    Retryable,
    /// Damaged bytes.
    Corruption,
    /// The system or a library.
    Device,
}

impl Error {
    /// The class of this error.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::OutOfRange { .. }
            | Self::Unaligned { .. }
            | Self::NoSuchRank { .. }
            | Self::MessageTooLong { .. }
            | Self::NotAccepted { .. }
            | Self::Misuse { .. } => Class::User,
            Self::Disagreement { .. } => Class::Disagreement,
            Self::RankDead { .. } | Self::Deadline { .. } => Class::Retryable,
            Self::Damaged { .. } => Class::Corruption,
            Self::System { .. } | Self::Mpi { .. } => Class::Device,
        }
    }

    /// Whether the same call on the same state fails again: mistakes and disagreements do.
    #[must_use]
    pub fn is_deterministic(&self) -> bool {
        matches!(self.class(), Class::User | Class::Disagreement)
    }

    pub(crate) fn system(what: impl Into<String>, answer: &std::io::Error) -> Self {
        Self::System {
            what: what.into(),
            answer: answer.to_string(),
        }
    }

    pub(crate) fn misuse(what: impl Into<String>) -> Self {
        Self::Misuse { what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange {
                window,
                rank,
                offset,
                length,
                window_bytes,
            } => write!(
                f,
                "{length} bytes at {offset} are outside window {window:?} of rank {rank}, which has {window_bytes}"
            ),
            Self::Unaligned { window, rank, offset } => write!(
                f,
                "the word at {offset} in window {window:?} of rank {rank} is not at a multiple of 8"
            ),
            Self::NoSuchRank { rank, rank_count } => {
                write!(f, "there is no rank {rank}: there are {rank_count}")
            }
            Self::MessageTooLong { length, length_max } => {
                write!(
                    f,
                    "a message of {length} bytes is longer than the {length_max} of a slot"
                )
            }
            Self::NotAccepted { rank } => write!(f, "rank {rank} has no slot for messages of this rank"),
            Self::Misuse { what } => f.write_str(what),
            Self::Disagreement {
                what,
                rank,
                ours,
                theirs,
            } => write!(f, "{what}: {ours} here, {theirs} on rank {rank}"),
            Self::RankDead { rank, during } => write!(f, "rank {rank} is dead ({during})"),
            Self::Deadline {
                during,
                rank: Some(rank),
                waited_ms,
            } => write!(f, "no answer of rank {rank} for {waited_ms} ms ({during})"),
            Self::Deadline {
                during, waited_ms, ..
            } => write!(f, "nothing came for {waited_ms} ms ({during})"),
            Self::Damaged { rank, what } => write!(f, "damaged bytes of rank {rank}: {what}"),
            Self::System { what, answer } => write!(f, "{what}: {answer}"),
            Self::Mpi { call, answer } => write!(f, "{call}: {answer}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_place_and_its_class() {
        let error = Error::OutOfRange {
            window: "votes".into(),
            rank: 3,
            offset: 8,
            length: 16,
            window_bytes: 8,
        };
        let text = error.to_string();
        assert!(text.contains("votes") && text.contains("rank 3") && text.contains("16 bytes at 8"));
        assert!(error.is_deterministic());
        let dead = Error::RankDead {
            rank: 1,
            during: "barrier",
        };
        assert_eq!((dead.class(), dead.is_deterministic()), (Class::Retryable, false));
    }
}
