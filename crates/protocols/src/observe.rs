//! Observes a running protocol: what each transaction answered, and what each write replaced.
//!
//! Used by the serializability check (`history`). An observer is a type parameter, so that a run without one
//! ([`Unobserved`]) is compiled without the calls.

use weft_base::TableId;
use weft_program::Outcome;
use weft_types::SqlError;

/// Called by the workers.
pub trait Observe: Sync {
    /// Whether [`Observe::installed`] is called; finding the replaced row costs a lookup per write.
    const INSTALLS: bool;

    /// A transaction with permission to write has installed a row, which replaced `old` at that moment. Not
    /// final: an aborted attempt is reported by [`Observe::aborted`].
    fn installed(&self, job: usize, table: TableId, old: Option<&[u8]>, new: Option<&[u8]>);

    /// The writes installed for this job have been undone, and the job will be retried.
    fn aborted(&self, job: usize);

    /// Called before each row access, where a test lets another worker interleave.
    fn pause(&self) {}

    /// The transaction has ended. After an error none of its writes remain.
    fn answered(&self, job: usize, answer: Result<&Outcome, &SqlError>);
}

/// No observer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observe for Unobserved {
    const INSTALLS: bool = false;

    fn installed(&self, _: usize, _: TableId, _: Option<&[u8]>, _: Option<&[u8]>) {}

    fn aborted(&self, _: usize) {}

    fn answered(&self, _: usize, _: Result<&Outcome, &SqlError>) {}
}
