//! What the expressions of one execution depend on besides columns.
//!
//! A plan holds an [`ExecutionContext`], which refers to the plan's current [`Execution`]. A plan that is
//! kept for further executions ([`crate::kept`]) runs them one after another in the same context; its
//! expressions read the parameters when they are evaluated. In a plan for a single execution parameters are
//! constants.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use weft_expression::{Context, NoSession, Session};
use weft_types::{TimeZone, Value};

/// Parameters, zone and session of one execution.
#[derive(Clone)]
pub struct Execution {
    /// Unique number of the execution.
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
    /// An execution with a new number.
    pub fn new(parameters: Vec<Value>, zone: TimeZone, session: Arc<dyn Session>) -> Arc<Execution> {
        Arc::new(Execution {
            number: NEXT_EXECUTION.fetch_add(1, Ordering::Relaxed),
            parameters,
            zone,
            session,
        })
    }

    /// The evaluation context of expressions.
    #[must_use]
    pub fn context(&self) -> Context<'_> {
        Context {
            parameters: &self.parameters,
            zone: self.zone,
            session: self.session.as_ref(),
        }
    }
}

/// The current execution of a plan, shared by all its operators.
pub struct ExecutionContext {
    present: RwLock<Arc<Execution>>,
    repeats: bool,
}

impl ExecutionContext {
    /// The context of a plan for one execution.
    #[must_use]
    pub fn single(execution: Arc<Execution>) -> ExecutionContext {
        ExecutionContext {
            present: RwLock::new(execution),
            repeats: false,
        }
    }

    /// The context of a plan that may be kept; `execution` is its first.
    #[must_use]
    pub fn repeating(execution: Arc<Execution>) -> ExecutionContext {
        ExecutionContext {
            present: RwLock::new(execution),
            repeats: true,
        }
    }

    /// Whether the plan may have further executions, so that nothing in it may depend on this one's values.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.repeats
    }

    /// The plan's current execution.
    #[must_use]
    pub fn execution(&self) -> Arc<Execution> {
        Arc::clone(&self.present.read())
    }

    /// Ends the current execution and drops what it referenced.
    pub fn end(&self) {
        self.begin(Execution::new(Vec::new(), TimeZone::UTC, Arc::new(NoSession)));
    }

    /// Begins the plan's next execution; earlier ones must have ended.
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
