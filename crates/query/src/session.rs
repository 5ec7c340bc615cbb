//! What expressions of one execution see beside columns.

use std::fmt;
use std::sync::Arc;

use weft_expression::{Context, Session};
use weft_types::{TimeZone, Value};

/// Parameters, zone and session of one execution, shared by all its operators.
#[derive(Clone)]
pub struct ExecutionContext {
    /// Values of `$1`, `$2`, ..., of the types that the query declares.
    pub parameters: Vec<Value>,
    /// The session's zone.
    pub zone: TimeZone,
    /// The session.
    pub session: Arc<dyn Session>,
}

impl ExecutionContext {
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

impl fmt::Debug for ExecutionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutionContext")
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}
