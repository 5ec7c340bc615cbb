//! Errors that only several ranks have.
//!
//! | SQLSTATE | when |
//! |---|---|
//! | 0A000 | a statement that is not possible over several ranks yet |
//! | 08006 | a rank died or does not answer; what the transaction did is rolled back |
//! | 40001 | ranks have different definitions at this moment: try again |
//! | 40003 | the connection to a rank was lost while its commit was on the way |
//! | 40P01 | a lock was not granted in time to a transaction of several ranks: it may be in a circle |
//! | 57P03 | a rank is starting |

use weft::SqlError;
use weft_types::SqlState;

/// The rank cannot be reached.
#[must_use]
pub fn lost(rank: u32, why: &str) -> SqlError {
    SqlError::new(
        SqlState::CONNECTION_FAILURE,
        format!("rank {rank} is not available: {why}"),
    )
    .hint("The transaction is rolled back. Statements that do not concern this rank go on.")
}

/// Whether [`lost`] made it.
#[must_use]
pub fn is_lost(error: &SqlError) -> bool {
    error.state == SqlState::CONNECTION_FAILURE
}

/// The rank does not serve yet.
#[must_use]
pub fn starting(rank: u32) -> SqlError {
    SqlError::new(SqlState::CANNOT_CONNECT_NOW, format!("rank {rank} is starting"))
}

/// Nobody told whether the only rank that wrote has committed.
#[must_use]
pub fn unknown_outcome(rank: u32) -> SqlError {
    let message = format!("rank {rank} was lost while it committed: it is unknown whether it did");
    SqlError::new(SqlState::STATEMENT_COMPLETION_UNKNOWN, message)
}

/// Two ranks have different definitions.
#[must_use]
pub fn other_definitions(rank: u32) -> SqlError {
    let message = format!("rank {rank} has other definitions: they are being changed");
    SqlError::new(SqlState::SERIALIZATION_FAILURE, message)
}

/// Whether a statement was refused because definitions were being changed; it has done nothing.
#[must_use]
pub fn is_about_definitions(error: &SqlError) -> bool {
    error.state == SqlState::SERIALIZATION_FAILURE && error.message.contains("definitions")
}

/// A lock was not granted in time.
#[must_use]
pub fn lock_not_granted(millis: u128) -> SqlError {
    let message = format!(
        "a lock was not granted within {millis} ms to a transaction of several ranks: deadlock assumed"
    );
    SqlError::new(SqlState::DEADLOCK_DETECTED, message)
        .hint("No rank sees a circle of waiting transactions that crosses ranks. Run the transaction again.")
}

/// Not possible over several ranks.
#[must_use]
pub fn unsupported(what: &str) -> SqlError {
    SqlError::unsupported(format!("{what} over several ranks is not supported"))
}
