//! What the project runs on itself: `cargo xtask tidy`, `cargo xtask test`, `cargo xtask ci`.
//!
//! The scripts of this project are Rust, so that they are checked like the rest. This crate has no
//! dependencies: it must build in seconds on a fresh clone, before anything else does.
//!
//! ```text
//! cargo xtask tidy     the rules that a machine can check: floors, sizes, names, paths (module tidy)
//! cargo xtask test     format, clippy, tidy, every cargo test, MPI, hardware units, then what is in tests/
//! cargo xtask test --hardware-long   the hardware units alone, a million random operations each
//! cargo xtask test --slow   fuzzing, kill -9, simulated disks: hours (module slow)
//! cargo xtask prove    bounded proofs about parts of the hardware units (module hardware)
//! cargo xtask synth    clock and size of a hardware unit (module hardware)
//! cargo xtask miri     tests of code with `unsafe`, interpreted (module miri; needs a nightly toolchain)
//! cargo xtask ci       the same as test: CI runs nothing that a developer cannot run with one command
//! ```

mod console;
mod counts;
mod hardware;
mod miri;
mod packages;
mod slow;
mod steps;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <tidy | test | ci | miri | prove | synth> [--skip-system | --hardware-long | --slow]\n\
  tidy           check floors, sizes, names, file heads and named paths\n\
  test, ci       fmt --check, clippy, tidy, cargo test --workspace, the fabric on MPI,\n\
  \x20              the hardware units under Verilator, then tests/\n\
  miri           tests of code with unsafe under Miri; needs nightly with components miri and rust-src,\n\
  \x20              and tens of minutes, at most 60 for each package\n\
  prove          bounded proofs about parts of the hardware units, and one that must be refuted\n\
  synth          clock and size of a hardware unit by Yosys and nextpnr: tens of minutes\n\
  --skip-system  with test or ci: leave out the whole-system tests in tests/, and say so\n\
  --hardware-long  with test: the hardware units alone, with a million random operations each\n\
  --slow         with test: what takes hours, and nothing else, with logs in target/slow/: every fuzz target\n\
  \x20              (--fuzz NAME,... only those; --fuzz-seconds 1200, --fuzz-jobs 2 at a time), kill -9\n\
  \x20              (--kill-rounds 300), the simulated disk (--seeds 5000), hostile clients (--inputs 50000);\n\
  \x20              0 leaves one out";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = workspace_root();
    match words.as_slice() {
        ["tidy"] => report_tidy(&root),
        ["test" | "ci"] => steps::run_all(&root, steps::System::Run),
        ["test" | "ci", "--skip-system"] => steps::run_all(&root, steps::System::Skip),
        ["test", "--hardware-long"] => steps::run_hardware_long(&root),
        ["test", "--slow", numbers @ ..] => match slow::Settings::from_words(numbers) {
            Some(settings) => slow::run_all(&root, settings),
            None => refuse(),
        },
        ["prove"] => hardware::prove(&root),
        ["synth"] => hardware::synthesize(&root),
        ["miri"] => miri::run_all(&root),
        ["--help" | "-h" | "help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => refuse(),
    }
}

fn refuse() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// The folder that holds the workspace's Cargo.toml: the parent of this crate's folder.
fn workspace_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

fn report_tidy(root: &Path) -> ExitCode {
    match tidy::check(root) {
        Ok(findings) if findings.is_empty() => {
            println!("tidy: ok");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("tidy: {} finding(s)", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy could not read the sources: {error}");
            ExitCode::FAILURE
        }
    }
}
