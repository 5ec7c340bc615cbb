//! Joins over ranks under mpirun, with 2 and 4 ranks. This program starts mpirun, which starts this program
//! as ranks; see `crates/fabric/tests/mpi.rs`. Without mpirun the test says so loudly, and passes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod rank_cases;
mod reference;

use std::io::Write;
use std::process::Command;

use rank_cases::{Case, check_together};
use weft_fabric::mpi;

const CASES: u64 = 40;

/// All cases, as a rank. Skipped unless mpirun started it.
#[test]
#[ignore = "started by mpirun"]
fn as_a_rank() {
    if !mpi::is_started_by_mpirun() {
        return;
    }
    let rank = mpi::start().unwrap();
    // A rank that panics must end the job, or the others would wait for its part of finishing.
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for seed in 0..CASES {
            check_together(&rank, &Case::draw(seed, rank.count(), 3_000));
        }
        if rank.number() == 0 {
            eprintln!("{CASES} joins on {} MPI ranks", rank.count());
        }
    }));
    if ended.is_err() {
        std::process::abort();
    }
}

#[test]
fn mpi_joins() {
    let mpirun = std::env::var("WEFT_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
    let Ok(about) = Command::new(&mpirun).arg("--version").output() else {
        // Not by `eprintln`, which a test that passes does not show.
        let line = format!("\n***** {mpirun} is not here: joins on MPI are SKIPPED *****\n\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return;
    };
    let is_open_mpi = String::from_utf8_lossy(&about.stdout).contains("Open MPI");
    for ranks in ["2", "4"] {
        let mut command = Command::new("timeout");
        command.args(["120", mpirun.as_str(), "-n", ranks]);
        if is_open_mpi {
            command
                .arg("--oversubscribe")
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                .env("OMPI_MCA_osc", "sm");
        }
        command.arg(std::env::current_exe().unwrap()).args([
            "as_a_rank",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let all = format!("{CASES} joins on {ranks} MPI ranks");
        assert!(
            output.status.success() && text.contains(&all),
            "{ranks} ranks: {:?}\n{text}",
            output.status
        );
    }
}
