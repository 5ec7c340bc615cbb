//! Protocols by name, for command lines and experiments.

use std::fmt;
use std::sync::Arc;

use weft_store::Store;
use weft_txn::Execution;

use crate::aria::Aria;
use crate::batch::Batch;
use crate::calvin::Calvin;
use crate::partitioned::Partitioned;
use crate::reconnaissance::Reconnaissance;
use crate::serial::Serial;
use crate::silo::Silo;
use crate::timestamp::Timestamp;
use crate::two_phase_locking::{
    BoundedWait, Detection, LockPolicy, NoWait, Ordered, TwoPhaseLocking, WaitDie,
};
use crate::waves::Waves;
use crate::{Job, Protocol, RunReport, Sound};

type Run = fn(&Arc<Store>, &[Job], usize) -> RunReport;

/// A protocol with its default settings.
const fn entry<P: Protocol + Default>() -> (&'static str, Run) {
    (P::NAME, |store, jobs, workers| {
        P::default().run(store, jobs, workers)
    })
}

/// Two-phase locking with a policy.
const fn locking<P: LockPolicy>() -> (&'static str, Run) {
    (P::NAME, |store, jobs, workers| {
        TwoPhaseLocking::under(P::default()).run(store, jobs, workers)
    })
}

const PROTOCOLS: &[(&str, Run)] = &[
    entry::<Batch>(),
    ("batch-serial", |store, jobs, workers| {
        let execution = Execution::Serial;
        Batch {
            execution,
            ..Batch::default()
        }
        .run(store, jobs, workers)
    }),
    entry::<Waves>(),
    entry::<Calvin>(),
    locking::<Ordered>(),
    ("two-phase-locking-interleaved", |store, jobs, workers| {
        let execution = Execution::Interleaved;
        TwoPhaseLocking {
            execution,
            ..TwoPhaseLocking::default()
        }
        .run(store, jobs, workers)
    }),
    locking::<NoWait>(),
    locking::<WaitDie>(),
    locking::<BoundedWait>(),
    locking::<Detection>(),
    entry::<Silo>(),
    entry::<Timestamp>(),
    entry::<Partitioned>(),
    ("partitioned-by-owner", |store, jobs, workers| {
        let by_owner = true;
        Partitioned {
            by_owner,
            ..Partitioned::default()
        }
        .run(store, jobs, workers)
    }),
    entry::<Aria>(),
    entry::<Reconnaissance>(),
    entry::<Serial>(),
];

/// A name that no protocol has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownProtocol {
    /// The name.
    pub name: String,
}

impl fmt::Display for UnknownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no protocol is called \"{}\"; there are ", self.name)?;
        for (n, name) in protocol_names().iter().enumerate() {
            write!(f, "{}{name}", if n > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownProtocol {}

/// The names that [`run_by_name`] takes, the product's own first. `batch-serial` and
/// `two-phase-locking-interleaved` separate the effects of prefetching and concurrency control: `batch` is
/// interleaved, `two-phase-locking` is not. `partitioned-by-owner` runs each transaction at the owner of its
/// first row. [`run_by_name`] also takes `waves@N`: waves whose groups have at most N probes in flight (or
/// those of one member), to measure how many pay off.
pub fn protocol_names() -> Vec<&'static str> {
    PROTOCOLS.iter().map(|(name, _)| *name).collect()
}

/// Parses `waves@8`: the product's planner with a maximum of probes in flight.
fn in_flight(name: &str) -> Option<Execution> {
    let probes = name.strip_prefix(Waves::<Sound>::NAME)?.strip_prefix('@')?;
    Some(Execution::InFlight(
        probes.parse().ok().filter(|probes| *probes > 0)?,
    ))
}

/// Whether [`run_by_name`] takes a name.
pub fn is_protocol(name: &str) -> bool {
    in_flight(name).is_some() || PROTOCOLS.iter().any(|(known, _)| *known == name)
}

/// Runs a stream with the protocol of that name and its default settings. See [`Protocol::run`].
pub fn run_by_name(
    name: &str,
    store: &Arc<Store>,
    jobs: &[Job],
    workers: usize,
) -> Result<RunReport, UnknownProtocol> {
    if let Some(execution) = in_flight(name) {
        let waves = Waves {
            execution,
            ..Waves::default()
        };
        return Ok(waves.run(store, jobs, workers));
    }
    let unknown = || UnknownProtocol {
        name: name.to_string(),
    };
    let (_, run) = PROTOCOLS
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(unknown)?;
    Ok(run(store, jobs, workers))
}
