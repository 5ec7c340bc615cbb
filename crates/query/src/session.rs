//! What expressions of one execution see beside columns.
//!
//! A plan holds an [`ExecutionContext`], which tells of the [`Execution`] that the plan is in. A plan that is
//! kept for further executions ([`crate::kept`]) has one after the other in the same context; its expressions
//! ask for the parameters when they are evaluated. In a plan for a single execution they are constants.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use weft_expression::{Context, NoSession, Session};
use weft_types::{TimeZone, Value};

/// Parameters, zone and session of one execution.
#[derive(Clone)]
pub struct Execution {
    /// Tells executions apart.
    pub number: u64,
    /// Values of `$1`, `$2`, ..., of the types that the query declares.
    pub parameters: Vec<Value>,
    /// The session's zone.
    pub zone: TimeZone,
    /// The session.
    pub session: Arc<dyn Session>,
}

static NEXT_EXECUTION: AtomicU64 = AtomicU64::new(0);

impl Execution {
    /// An execution of its own number.
    pub fn new(parameters: Vec<Value>, zone: TimeZone, session: Arc<dyn Session>) -> Arc<Execution> {
        Arc::new(Execution {
            number: NEXT_EXECUTION.fetch_add(1, Ordering::Relaxed),
            parameters,
            zone,
            session,
        })
    }

    /// As expressions take it.
    #[must_use]
    pub fn context(&self) -> Context<'_> {
        Context {
            parameters: &self.parameters,
            zone: self.zone,
            session: self.session.as_ref(),
        }
    }
}

/// The execution that a plan is in, shared by all its operators.
pub struct ExecutionContext {
    present: RwLock<Arc<Execution>>,
    repeats: bool,
}

impl ExecutionContext {
    /// Of a plan for one execution.
    #[must_use]
    pub fn single(execution: Arc<Execution>) -> ExecutionContext {
        ExecutionContext {
            present: RwLock::new(execution),
            repeats: false,
        }
    }

    /// Of a plan that may be kept: `execution` is its first.
    #[must_use]
    pub fn repeating(execution: Arc<Execution>) -> ExecutionContext {
        ExecutionContext {
            present: RwLock::new(execution),
            repeats: true,
        }
    }

    /// Whether the plan may see further executions, so that nothing in it may depend on this one's values.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.repeats
    }

    /// The execution that the plan is in.
    #[must_use]
    pub fn execution(&self) -> Arc<Execution> {
        Arc::clone(&self.present.read())
    }

    /// The present execution has ended.
    pub fn end(&self) {
        self.begin(Execution::new(Vec::new(), TimeZone::UTC, Arc::new(NoSession)));
    }

    /// The plan's next execution; those before must have ended.
    pub fn begin(&self, execution: Arc<Execution>) {
        *self.present.write() = execution;
    }
}

impl fmt::Debug for ExecutionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutionContext")
            .field("parameters", &self.present.read().parameters)
            .finish_non_exhaustive()
    }
}
