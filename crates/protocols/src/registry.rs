//! The protocols by name, for command lines and experiments.

use std::fmt;
use std::sync::Arc;

use weft_store::Store;

use crate::batch::Batch;
use crate::two_phase_locking::TwoPhaseLocking;
use crate::{Job, Protocol, RunReport};

type Run = fn(&Arc<Store>, &[Job], usize) -> RunReport;

/// A protocol with its default settings.
const fn entry<P: Protocol + Default>() -> (&'static str, Run) {
    (P::NAME, |store, jobs, workers| {
        P::default().run(store, jobs, workers)
    })
}

const PROTOCOLS: &[(&str, Run)] = &[entry::<Batch>(), entry::<TwoPhaseLocking>()];

/// A name that no protocol has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownProtocol {
    /// The name.
    pub name: String,
}

impl fmt::Display for UnknownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no protocol is called \"{}\"", self.name)
    }
}

impl std::error::Error for UnknownProtocol {}

/// The names that [`run_by_name`] takes.
pub fn protocol_names() -> Vec<&'static str> {
    PROTOCOLS.iter().map(|(name, _)| *name).collect()
}

/// Runs a stream under the protocol of that name, with its default settings. See [`Protocol::run`].
pub fn run_by_name(
    name: &str,
    store: &Arc<Store>,
    jobs: &[Job],
    workers: usize,
) -> Result<RunReport, UnknownProtocol> {
    let unknown = || UnknownProtocol {
        name: name.to_string(),
    };
    let (_, run) = PROTOCOLS
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(unknown)?;
    Ok(run(store, jobs, workers))
}
