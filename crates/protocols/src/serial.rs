//! No concurrency control: one thread runs the stream. The baseline for every other protocol when concurrency
//! cannot help, as with one hot key in every transaction.

use std::sync::Arc;

use weft_store::Store;

use crate::epoch::{Claims, Epoch, Runner, run_epochs};
use crate::report::Counts;
use crate::{Job, Observe, Protocol, RunReport};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct Serial {
    /// Transactions between two publications of the store.
    pub epoch_transactions: usize,
}

impl Default for Serial {
    fn default() -> Serial {
        Serial {
            epoch_transactions: 1024,
        }
    }
}

impl Protocol for Serial {
    const NAME: &'static str = "serial";

    /// `workers` is ignored.
    fn run_observed<O: Observe>(&self, store: &Arc<Store>, jobs: &[Job], _: usize, observe: &O) -> RunReport {
        let mut states = [(Runner::default(), Counts::default())];
        let work = |(runner, counts): &mut (Runner, Counts), epoch: Epoch<'_>, claims: &Claims| {
            while let Some(range) = claims.claim() {
                for n in range {
                    let Some(job) = epoch.jobs.get(n) else { continue };
                    let number = epoch.first + n;
                    let start = Counts::start(number);
                    counts.ended(runner.run_member(epoch.writer, n, job, number, observe));
                    counts.end(start);
                }
            }
        };
        let epoch_jobs = self.epoch_transactions;
        run_epochs(
            store,
            jobs,
            epoch_jobs,
            || (),
            &mut states,
            |(_, counts)| counts,
            work,
        )
    }
}
