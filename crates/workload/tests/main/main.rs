//! Workloads over a real database: their invariants hold after concurrent runs, and an injected fault
//! violates them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod device_profile;
mod smallbank;
mod tpcc;

use std::time::Duration;

use weft::{Database, Options};
use weft_workload::driver::{self, Load};
use weft_workload::embedded::Commit;
use weft_workload::embedded::product::{Product, Requests};
use weft_workload::stream::{StreamSeed, Workload};

/// A database in a temporary folder, which is removed with it.
struct Fixture {
    database: Database,
    _dir: tempfile::TempDir,
}

fn open(workers: usize, without_locks: bool) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.engine.workers = workers;
    options.engine.split_batch_at = 2;
    options.engine.without_locks = without_locks;
    Fixture {
        database: Database::open(dir.path(), options).unwrap(),
        _dir: dir,
    }
}

/// Drives a workload through the engine with two clients and `window` outstanding transactions each;
/// returns commits in total and by kind.
fn drive(
    database: &Database,
    workload: &dyn Workload,
    window: usize,
    milliseconds: u64,
) -> Result<(u64, Vec<u64>), String> {
    let product = Product::new(database, Commit::Executed);
    let load = Load {
        clients: 2,
        window,
        warmup: Duration::ZERO,
        measured: Duration::from_millis(milliseconds),
        rate: None,
    };
    let source = |client: usize| {
        let seed = StreamSeed {
            seed: 7,
            number: client as u64,
            count: 2,
        };
        let mut requests = Requests::new(workload, seed, 2000);
        move || requests.draw()
    };
    let round = driver::drive(&product, &load, source).map_err(|error| error.to_string())?;
    Ok((round.committed_in_all, product.commits_by_kind()))
}
