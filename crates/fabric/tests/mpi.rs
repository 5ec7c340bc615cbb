//! The suite under mpirun, with 2 and 4 ranks. This program starts mpirun, which starts this program as
//! ranks.
//!
//! It runs with the library whose mpicc compiled the shim (`WEFT_MPICC`) and its mpirun (`WEFT_MPIRUN`, else
//! `mpirun`). Without that program the test says so loudly, and passes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod suite;

use std::io::Write;
use std::process::Command;

use suite::{CASES, Plan};
use weft_fabric::mpi;

/// All cases, as a rank. Skipped unless mpirun started it.
#[test]
#[ignore = "started by mpirun"]
fn as_a_rank() {
    if !mpi::is_started_by_mpirun() {
        return;
    }
    let rank = mpi::start().unwrap();
    let ranks = rank.count();
    // A rank that panics must end the job, or the others would wait for its part of finishing.
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for (name, case) in CASES {
            if rank.number() == 0 {
                eprintln!("{name} on {ranks} MPI ranks");
            }
            case(&rank, Plan { seed: 4, rounds: 150 });
        }
    }));
    if ended.is_err() {
        std::process::abort();
    }
}

fn mpirun() -> String {
    std::env::var("WEFT_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned())
}

#[test]
fn mpi_passes_the_suite() {
    let mpirun = mpirun();
    let about = Command::new(&mpirun).arg("--version").output();
    let Ok(about) = about else {
        // Not by `eprintln`, which a test that passes does not show.
        let line = format!("\n***** {mpirun} is not here: the suite on MPI is SKIPPED *****\n\n");
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
        assert!(
            output.status.success(),
            "{ranks} ranks: {:?}\n{text}",
            output.status
        );
        for (name, _) in CASES {
            assert!(
                text.contains(&format!("{name} on {ranks} MPI ranks")),
                "{name} did not run:\n{text}"
            );
        }
    }
}
