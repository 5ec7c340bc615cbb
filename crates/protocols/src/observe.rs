//! Looking on while a protocol runs: what each transaction answered, and what each write replaced.
//!
//! For the serializability check (`history`). An observer is a type parameter, so that a run without one
//! ([`Unobserved`]) is compiled without the calls.

use weft_base::TableId;
use weft_program::Outcome;
use weft_types::SqlError;

/// Told by the workers what happens.
pub trait Observe: Sync {
    /// Whether [`Observe::installed`] is called; finding the replaced row costs a look-up per write.
    const INSTALLS: bool;

    /// A row was put in place by a transaction that may do so: `old` is what it replaced there and then.
    /// Not final: an attempt that is given up is told of by [`Observe::given_up`].
    fn installed(&self, job: usize, table: TableId, old: Option<&[u8]>, new: Option<&[u8]>);

    /// What was installed for this job has been taken back, and the job will be run again.
    fn given_up(&self, job: usize);

    /// Called before each access to a row: where a test lets another worker come between.
    fn pause(&self) {}

    /// The transaction has ended. After an error nothing of it is left.
    fn answered(&self, job: usize, answer: Result<&Outcome, &SqlError>);
}

/// Nobody looks on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observe for Unobserved {
    const INSTALLS: bool = false;

    fn installed(&self, _: usize, _: TableId, _: Option<&[u8]>, _: Option<&[u8]>) {}

    fn given_up(&self, _: usize) {}

    fn answered(&self, _: usize, _: Result<&Outcome, &SqlError>) {}
}
