//! `cargo xtask miri`: the tests of code with `unsafe`, in an interpreter that finds undefined behaviour and
//! data races.
//!
//! ```text
//! rustup toolchain install nightly --component miri --component rust-src
//! cargo xtask miri
//! ```
//!
//! Not a step of `cargo xtask test`: it needs that toolchain, and takes tens of minutes. Tests that would
//! take hours there are smaller under `cfg(miri)`, and each package has a limit of time: what then still runs
//! is ended and counts as failed, so that a new test which is too long for it is noticed. The ring between
//! workers is one file that needs nothing but `std`, so it is run alone, on many schedules: its package would
//! have half of the workspace interpreted.
//!
//! What Miri cannot run, and other tests must answer for: generated machine code
//! (`crates/program/src/compiled/code.rs`), the mapping of pages and prefetches (`crates/base/src/memory.rs`
//! has an allocator in their place there), memory shared with other processes and MPI
//! (`crates/fabric/src/shared/processes.rs`, `crates/fabric/src/mpi/mod.rs`), direct file access
//! (`crates/base/src/disk/real.rs`), and whatever calls C (zstd, the allocator of the server).

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::console;
use crate::steps;

/// Packages, and the tests of them that are run.
const TESTS: [(&str, &[&str]); 4] = [
    ("weft-base", &["memory"]),
    (
        "weft-join",
        &["array::", "table::", "spill::", "partition::", "ranks::stage::"],
    ),
    ("weft-fabric", &[]),
    ("weft-store", &["memory::", "index::"]),
];
/// Alone, on so many schedules.
const RING: &str = "crates/protocols/src/ring.rs";
const RING_SCHEDULES: &str = "-Zmiri-many-seeds=0..16";
/// For each package and the ring, building included.
const MINUTES_MAX: u32 = 60;
const TOOLCHAIN: &str = "rustup toolchain install nightly --component miri --component rust-src";

/// Runs them all and prints the sum.
pub fn run_all(root: &Path) -> ExitCode {
    if !console::succeeds(nightly(root, "cargo").args(["miri", "--version"])) {
        eprintln!("there is no Miri here; to install it: {TOOLCHAIN}");
        return ExitCode::FAILURE;
    }
    let mut all = Vec::new();
    for (package, filters) in TESTS {
        let mut command = nightly(root, "cargo");
        command
            .args(["miri", "test", "-p", package, "--lib", "--"])
            .args(filters);
        console::announce(&format!("cargo miri test -p {package}"));
        all.push((package.to_owned(), steps::summed(package, &mut command)));
    }
    console::announce(&format!("miri {RING}"));
    let mut command = nightly(root, "miri");
    if let Some(sysroot) = sysroot(root) {
        command.args([
            "--edition",
            "2024",
            "--test",
            RING,
            RING_SCHEDULES,
            "--sysroot",
            &sysroot,
        ]);
    }
    // On many schedules Miri prints no sum, and fails if one of them does.
    let held = console::run(&mut command).is_ok_and(|ended| ended.success);
    all.push((RING.to_owned(), crate::counts::Counts::of_check(held)));
    steps::sum_up(all)
}

/// A tool of the nightly toolchain, ended with its children when its time is over.
fn nightly(root: &Path, tool: &str) -> Command {
    let mut command = Command::new("timeout");
    let limit = format!("{MINUTES_MAX}m");
    command
        .current_dir(root)
        .args([limit.as_str(), "rustup", "run", "nightly", tool]);
    // Proptest looks for failures kept beside the sources, and tries so many cases.
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    command.env("PROPTEST_CASES", "4");
    command
}

/// Where the standard library for Miri lies; made if it is absent.
fn sysroot(root: &Path) -> Option<String> {
    let mut command = nightly(root, "cargo");
    let output = command.args(["miri", "setup", "--print-sysroot"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
