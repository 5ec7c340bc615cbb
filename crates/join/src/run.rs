//! What the phases of one join share, and what each worker carries from phase to phase.

use std::sync::Arc;

use weft_base::Budget;

use crate::options::{Phases, Tuning};
use crate::output::Output;
use crate::processor::Processor;
use crate::tuple::Emit;
use crate::workers::Control;

/// One join being run.
pub(crate) struct Run<'a> {
    pub(crate) control: Control<'a>,
    pub(crate) emit: Emit,
    pub(crate) budget: Arc<Budget>,
    pub(crate) processor: Processor,
    pub(crate) tuning: Tuning,
}

/// One worker of it.
pub(crate) struct Worker<'c, C> {
    pub(crate) out: Output<'c, C>,
    pub(crate) phases: Phases,
}
