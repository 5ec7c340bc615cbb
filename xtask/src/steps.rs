//! The steps of `cargo xtask test`, in order, and their sum.
//!
//! 1. `cargo fmt --check`, tidy: one check each.
//! 2. `cargo clippy -D warnings` and `cargo test`, both of the whole workspace and with every feature whose
//!    tools are here or can be installed: `mpi` of the fabric and of joins wants Open MPI, `fpga` of devices
//!    Verilator. What is missing is said, loudly. All in one build, because each set of features is a
//!    build of its own. The short crash tests, ranks under mpirun, the units of `hardware/` and a database's
//!    batches on the simulated softcore are among these tests.
//! 3. The server as it is shipped, with the default features, and with it the whole-system tests: every
//!    `tests/<folder>/run`. It is started in the workspace root with
//!    `WEFT_BIN` (the server's path) and `WEFT_PYTHON` (an interpreter with psycopg) set, and `NODE_PATH` and
//!    `WEFT_JDBC_JAR` where node-postgres and pgjdbc could be had, prints what it tests, and ends with
//!    `N passed, N failed`. A line `# needs: psql pgbench postgresql python3 psycopg` in it says what the
//!    system must have; without that the folder is skipped, loudly.
//!
//! A failed step does not stop the next ones, so that one run shows everything that is wrong. The last line
//! is `N passed, N failed`, summed over everything; the exit status is 0 only when nothing failed.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::console;
use crate::counts::Counts;
use crate::packages::{self, Tools};
use crate::tidy;

/// Whether the whole-system tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// They run; the default.
    Run,
    /// They are left out on request.
    Skip,
}

/// Runs every step and prints the sum.
pub fn run_all(root: &Path, system: System) -> ExitCode {
    let optional = Optional::found(root);
    let mut all = vec![
        (
            "fmt".to_owned(),
            check_with(root, &["fmt", "--all", "--", "--check"]),
        ),
        ("tidy".to_owned(), tidy_check(root)),
        ("clippy".to_owned(), clippy(root, &optional)),
        ("cargo test".to_owned(), cargo_tests(root, &optional)),
    ];
    match system {
        System::Run => all.extend(system_tests(root)),
        System::Skip => console::loud("whole-system tests in tests/ SKIPPED on request"),
    }
    sum_up(all)
}

/// Runs the hardware units alone, with many more operations; a failure where there is no Verilator.
pub fn run_hardware_long(root: &Path) -> ExitCode {
    let arguments = [
        "test",
        "-p",
        "weft-device",
        "--features",
        "fpga",
        "--no-fail-fast",
    ];
    console::announce(&format!("cargo {}", arguments.join(" ")));
    let counts = match packages::ensure_verilator(&target_folder(root)) {
        Some(verilator) => {
            let mut command = cargo(root, &arguments);
            command.env("WEFT_VERILATOR", verilator);
            command.env("WEFT_HARDWARE_OPS", "1000000");
            summed("hardware units", &mut command)
        }
        None => Counts::of_check(false),
    };
    sum_up(vec![("hardware units".to_owned(), counts)])
}

/// Features that need tools beside Rust and a C compiler, as far as this machine has those tools.
struct Optional {
    /// As cargo takes them after `--features`.
    features: Vec<&'static str>,
    /// Verilator's program, for the build of what has the feature `fpga`.
    verilator: Option<PathBuf>,
}

impl Optional {
    /// Installs the tools where that is possible, and says loudly what is left out without them.
    fn found(root: &Path) -> Optional {
        let mut features = Vec::new();
        if packages::ensure_mpi() {
            features.extend(["weft-fabric/mpi", "weft-join/mpi"]);
        } else {
            console::loud("MPI SKIPPED: mpicc and mpirun are missing here and not installable");
        }
        let verilator = packages::ensure_verilator(&target_folder(root));
        if verilator.is_some() {
            features.extend(["weft-device/fpga", "weft-workload/fpga", "weft-cli/fpga"]);
        } else {
            console::loud(
                "the hardware units SKIPPED: Verilator or a C++ compiler is missing here and not installable",
            );
        }
        Optional { features, verilator }
    }

    /// Cargo's subcommand for the whole workspace with these features; its words for a headline, too.
    fn command(&self, root: &Path, subcommand: &str, rest: &[&str]) -> (Command, String) {
        let features = self.features.join(",");
        let mut arguments = vec![subcommand, "--workspace"];
        if !features.is_empty() {
            arguments.extend(["--features", &features]);
        }
        arguments.extend(rest);
        let mut command = cargo(root, &arguments);
        if let Some(verilator) = &self.verilator {
            command.env("WEFT_VERILATOR", verilator);
        }
        (command, format!("cargo {}", arguments.join(" ")))
    }
}

/// Names the steps that failed and prints the sum, on which the exit status depends.
pub fn sum_up(all: Vec<(String, Counts)>) -> ExitCode {
    let mut sum = Counts::default();
    println!();
    for (name, counts) in all {
        if counts.failed > 0 {
            println!("failed: {name}");
        }
        sum += counts;
    }
    println!("{} passed, {} failed", sum.passed, sum.failed);
    if sum.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Cargo, as it was called itself, in the workspace's root.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments);
    command
}

/// One check that holds when the command succeeds.
fn check_with(root: &Path, arguments: &[&str]) -> Counts {
    console::announce(&format!("cargo {}", arguments.join(" ")));
    let success = console::run(&mut cargo(root, arguments)).is_ok_and(|ended| ended.success);
    Counts::of_check(success)
}

fn tidy_check(root: &Path) -> Counts {
    console::announce("tidy");
    let findings = match tidy::check(root) {
        Ok(findings) => findings,
        Err(error) => {
            println!("tidy could not read the sources: {error}");
            return Counts::of_check(false);
        }
    };
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} finding(s)", findings.len());
    Counts::of_check(findings.is_empty())
}

fn clippy(root: &Path, optional: &Optional) -> Counts {
    let (mut command, words) = optional.command(root, "clippy", &["--all-targets", "--", "-D", "warnings"]);
    console::announce(&words);
    let success = console::run(&mut command).is_ok_and(|ended| ended.success);
    Counts::of_check(success)
}

fn cargo_tests(root: &Path, optional: &Optional) -> Counts {
    let (mut command, words) = optional.command(root, "test", &["--no-fail-fast"]);
    console::announce(&words);
    summed("cargo test", &mut command)
}

/// Cargo's target folder.
pub fn target_folder(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// The counts that a test program printed. One that fails without saying which test failed (it did not
/// build, it crashed) counts as one failure.
pub fn summed(name: &str, command: &mut Command) -> Counts {
    counts_of(name, console::run(command))
}

/// The same of a program that has ended.
pub fn counts_of(name: &str, ended: io::Result<console::Ended>) -> Counts {
    match ended {
        Ok(ended) => {
            let mut counts = ended.counts;
            let silent = counts == Counts::default();
            if (!ended.success && counts.failed == 0) || (ended.success && silent) {
                println!("{name}: failed without a count of failed tests");
                counts.failed += 1;
            }
            counts
        }
        Err(error) => {
            println!("{name} could not be started: {error}");
            Counts::of_check(false)
        }
    }
}

fn system_tests(root: &Path) -> Vec<(String, Counts)> {
    let scripts = scripts_in(&root.join("tests"));
    if scripts.is_empty() {
        return Vec::new();
    }
    let target = target_folder(root);
    console::announce("cargo build --workspace --bin weft");
    let built = console::run(&mut cargo(root, &["build", "--workspace", "--bin", "weft"]));
    if !built.is_ok_and(|ended| ended.success) {
        return vec![("build of weft".to_owned(), Counts::of_check(false))];
    }
    let tools = packages::ensure(&target);
    let mut results = Vec::new();
    for script in scripts {
        let name = script.strip_prefix(root).unwrap_or(&script).display().to_string();
        if let Some(counts) = system_test(root, &name, &script, &target, &tools) {
            results.push((name, counts));
        }
    }
    results
}

/// Runs one script; nothing when it had to be skipped.
fn system_test(root: &Path, name: &str, script: &Path, target: &Path, tools: &Tools) -> Option<Counts> {
    console::announce(name);
    let text = fs::read_to_string(script).unwrap_or_default();
    let missing = tools.missing(&needs(&text));
    if !missing.is_empty() {
        console::loud(&format!(
            "{name} SKIPPED: missing here and not installable: {}",
            missing.join(" ")
        ));
        return None;
    }
    let mut command = Command::new(script);
    command
        .current_dir(root)
        .env("WEFT_BIN", target.join("debug/weft"));
    if let Some(python) = &tools.python {
        command.env("WEFT_PYTHON", python);
    }
    if let Some(modules) = &tools.node_modules {
        command.env("NODE_PATH", modules);
    }
    if let Some(jar) = &tools.jdbc {
        command.env("WEFT_JDBC_JAR", jar);
    }
    Some(summed(name, &mut command))
}

/// Every `run` in a folder of `tests`, in order of their names.
fn scripts_in(tests: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(tests).into_iter().flatten().filter_map(Result::ok);
    let mut scripts: Vec<PathBuf> = folders
        .map(|folder| folder.path().join("run"))
        .filter(|script| script.is_file())
        .collect();
    scripts.sort();
    scripts
}

/// The words after `# needs:`.
fn needs(script: &str) -> Vec<&str> {
    let line = script.lines().find_map(|line| line.strip_prefix("# needs:"));
    line.unwrap_or_default().split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Counts {
        let mut command = Command::new("sh");
        counts_of(
            "shell",
            console::run_into(command.args(["-c", script]), &mut Vec::new()),
        )
    }

    #[test]
    fn a_crash_or_silence_is_a_failure() {
        assert_eq!(shell("exit 101"), Counts { passed: 0, failed: 1 });
        assert_eq!(
            shell("echo '2 passed, 0 failed'; exit 1"),
            Counts { passed: 2, failed: 1 }
        );
        assert_eq!(shell("true"), Counts { passed: 0, failed: 1 });
        assert_eq!(
            shell("echo '2 passed, 1 failed'; exit 1"),
            Counts { passed: 2, failed: 1 }
        );
        assert_eq!(
            shell("echo '2 passed, 0 failed'"),
            Counts { passed: 2, failed: 0 }
        );
    }

    #[test]
    fn needs_are_read_from_the_script() {
        assert_eq!(needs("#!/bin/sh\n# needs: psql pgbench\n"), ["psql", "pgbench"]);
        assert_eq!(needs("#!/bin/sh\n"), [""; 0]);
    }
}
