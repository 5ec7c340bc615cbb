//! Ranks of a benchmark that are processes: the same command once more for each, which finds in its
//! environment which rank it is.

use std::path::Path;
use std::process::Command;

use weft_fabric::processes;

use crate::failure::Failure;

/// Starts this command again as so many ranks, waits for all of them, and says which failed.
pub(super) fn start(ranks: u32) -> Result<(), Failure> {
    let failed = |error| Failure::doing("a fabric of processes", error);
    let session = processes::Session::create(Path::new(processes::SHARED_MEMORY), ranks).map_err(failed)?;
    let program = std::env::current_exe().map_err(|error| Failure::doing("finding this program", error))?;
    let mut children = Vec::new();
    for rank in 0..ranks {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        children.push(session.spawn(rank, &mut command).map_err(failed)?);
    }
    let mut outcome = Ok(());
    for (rank, mut child) in children.into_iter().enumerate() {
        let status = child
            .wait()
            .map_err(|error| Failure::doing("waiting for a rank", error))?;
        if !status.success() && outcome.is_ok() {
            outcome = Err(Failure::Environment(format!("rank {rank} ended with {status}")));
        }
    }
    outcome
}
