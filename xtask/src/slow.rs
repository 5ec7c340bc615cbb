//! `cargo xtask test --slow`: what takes hours. It is no part of `cargo xtask test`, and adds to it.
//!
//! 1. Every fuzz target (`fuzz/run.sh list`) for 20 minutes, two at a time.
//! 2. 300 rounds of kill -9 under load (`tests/recovery`).
//! 3. 5,000 seeds of the simulated disk: power cuts, errors, disks that fill and empty, for the log, the LSM
//!    engine and the transactions above them; and of the simulated fabric, with deaths of ranks.
//! 4. 50,000 malformed, deep, long, oversized and slow inputs to an optimised build, a canary connection
//!    beside them (`sql-compare hostile`).
//!
//! Each step's output goes to a file of its own under `target/slow/<time>/`; what came of it is a line here
//! and in `summary.txt` there. A failed step does not stop the next ones. The last line and the exit status
//! are those of `cargo xtask test`. The numbers can be set, for a shorter run or a longer one.

use std::collections::VecDeque;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::console;
use crate::counts::Counts;
use crate::steps;

/// How much of everything; the defaults are what a release is held to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The only fuzz targets to run; all if empty.
    fuzz_targets: Vec<String>,
    fuzz_seconds: u64,
    fuzz_jobs: u64,
    kill_rounds: u64,
    seeds: u64,
    inputs: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            fuzz_targets: Vec::new(),
            fuzz_seconds: 1_200,
            fuzz_jobs: 2,
            kill_rounds: 300,
            seeds: 5_000,
            inputs: 50_000,
        }
    }
}

impl Settings {
    /// From the words after `--slow`: pairs of an option and a number, of which 0 leaves a kind of step out,
    /// or of `--fuzz` and names of targets, separated by commas.
    pub fn from_words(words: &[&str]) -> Option<Settings> {
        let mut settings = Settings::default();
        let (pairs, rest) = words.as_chunks::<2>();
        for [option, number] in pairs {
            let place = match *option {
                "--fuzz" => {
                    settings.fuzz_targets = number.split(',').map(str::to_owned).collect();
                    continue;
                }
                "--fuzz-seconds" => &mut settings.fuzz_seconds,
                "--fuzz-jobs" => &mut settings.fuzz_jobs,
                "--kill-rounds" => &mut settings.kill_rounds,
                "--seeds" => &mut settings.seeds,
                "--inputs" => &mut settings.inputs,
                _ => return None,
            };
            *place = number.parse().ok()?;
        }
        rest.is_empty().then_some(settings)
    }
}

/// One step.
struct Step {
    name: String,
    command: Command,
    /// Its output ends in counts of tests; otherwise the exit status says all.
    counts: bool,
}

/// Where the results go.
struct Report {
    dir: PathBuf,
    results: Mutex<Vec<(String, Counts)>>,
}

/// Runs every step and prints the sum.
pub fn run_all(root: &Path, settings: Settings) -> ExitCode {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let dir = target.join("slow").join(stamp(SystemTime::now()));
    if let Err(error) = fs::create_dir_all(&dir) {
        eprintln!("{}: {error}", dir.display());
        return ExitCode::FAILURE;
    }
    println!("logs: {}", dir.display());
    let report = Report {
        dir,
        results: Mutex::default(),
    };
    if settings.fuzz_seconds > 0 {
        fuzz(root, &settings, &report);
    }
    for step in steps(root, &target, &settings) {
        report.run(step);
    }
    let results = report.results.into_inner();
    steps::sum_up(results.unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// All steps but the fuzzer's, in order.
fn steps(root: &Path, target: &Path, settings: &Settings) -> Vec<Step> {
    let mut all = Vec::new();
    if settings.kill_rounds > 0 {
        let mut command = tests(root, &["weft", "weft-cli"], "recovery", &["--nocapture"]);
        command.env("WEFT_RECOVERY_ROUNDS", settings.kill_rounds.to_string());
        all.push(Step::counted("kill", command));
    }
    let simulated = [
        ("weft-wal", &["crash::", "full_disk::"][..]),
        ("weft-lsm", &["crash::", "full_disk::"]),
        ("weft-txn", &["crash::", "full_disk::"]),
        ("weft-cluster", &["simulated::", "circles::"]),
        // Threads in real time: a seed takes a second.
        ("weft-ranks", &["equality::", "deaths::"]),
    ];
    for (package, names) in simulated {
        if settings.seeds > 0 {
            let mut command = tests(root, &[package], "main", names);
            let is_slow = package == "weft-ranks";
            let seeds = if is_slow {
                settings.seeds.div_ceil(10)
            } else {
                settings.seeds
            };
            command.env("WEFT_SEEDS", seeds.to_string());
            all.push(Step::counted(&format!("seeds-{package}"), command));
        }
    }
    if settings.inputs > 0 {
        // Optimised: frames are larger in the dev build, and so is the stack that it asks for.
        let built = target.join("release");
        let packages = ["build", "--release", "-p", "weft-cli", "-p", "weft-sql-compare"];
        all.push(Step::checked("build", steps::cargo(root, &packages)));
        let mut command = Command::new(built.join("sql-compare"));
        command.current_dir(root);
        command.args(["hostile", "--inputs", &settings.inputs.to_string(), "--weft-bin"]);
        command.arg(built.join("weft"));
        all.push(Step::counted("hostile", command));
    }
    all
}

/// Some tests of one test program.
fn tests(root: &Path, packages: &[&str], test: &str, arguments: &[&str]) -> Command {
    let mut command = steps::cargo(root, &["test"]);
    packages.iter().for_each(|package| {
        command.args(["-p", package]);
    });
    command.args(["--test", test, "--"]).args(arguments);
    command
}

/// Every target, or those that were named, some at a time.
fn fuzz(root: &Path, settings: &Settings, report: &Report) {
    let script = root.join("fuzz/run.sh");
    let listed = Command::new(&script)
        .arg("list")
        .stderr(Stdio::inherit())
        .output();
    let names = match listed {
        Ok(listed) if listed.status.success() => String::from_utf8_lossy(&listed.stdout).into_owned(),
        other => {
            println!("fuzz/run.sh list: {other:?}");
            return report.note("fuzz", Counts::of_check(false), Duration::ZERO);
        }
    };
    let step = |name: &str| {
        let mut command = Command::new(&script);
        command.args([name, &settings.fuzz_seconds.to_string()]);
        Step::checked(&format!("fuzz-{name}"), command)
    };
    let all: Vec<&str> = names.split_whitespace().collect();
    let named: Vec<&str> = settings.fuzz_targets.iter().map(String::as_str).collect();
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        println!("there is no fuzz target {unknown}, but {}", all.join(", "));
        return report.note("fuzz", Counts::of_check(false), Duration::ZERO);
    }
    let wanted = if named.is_empty() { all } else { named };
    let queue: Mutex<VecDeque<Step>> = Mutex::new(wanted.into_iter().map(step).collect());
    let next = || queue.lock().ok()?.pop_front();
    thread::scope(|scope| {
        for _ in 0..settings.fuzz_jobs.max(1) {
            scope.spawn(|| {
                while let Some(step) = next() {
                    report.run(step);
                }
            });
        }
    });
}

impl Step {
    fn counted(name: &str, command: Command) -> Step {
        let (name, counts) = (name.to_owned(), true);
        Step {
            name,
            command,
            counts,
        }
    }

    fn checked(name: &str, command: Command) -> Step {
        let (name, counts) = (name.to_owned(), false);
        Step {
            name,
            command,
            counts,
        }
    }
}

impl Report {
    fn run(&self, mut step: Step) {
        let log = self.dir.join(format!("{}.log", step.name));
        console::announce(&format!("{} > {}", step.name, log.display()));
        let begun = Instant::now();
        let ended = File::create(&log).and_then(|mut out| {
            step.command.stderr(Stdio::from(out.try_clone()?));
            console::run_into(&mut step.command, &mut out)
        });
        let counts = match (&ended, step.counts) {
            (Ok(ended), false) => Counts::of_check(ended.success),
            _ => steps::counts_of(&step.name, ended),
        };
        self.note(&step.name, counts, begun.elapsed());
        if counts.failed > 0 {
            println!("{}", tail(&log));
        }
    }

    /// A line of the summary.
    fn note(&self, name: &str, counts: Counts, took: Duration) {
        let result = if counts.failed == 0 { "ok" } else { "FAILED" };
        let line = format!(
            "{name}: {result}, {} passed, {} failed, {} s",
            counts.passed,
            counts.failed,
            took.as_secs()
        );
        println!("{line}");
        if let Err(error) = append(&self.dir.join("summary.txt"), &line) {
            println!("summary.txt: {error}");
        }
        let mut results = self
            .results
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        results.push((name.to_owned(), counts));
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{line}")
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    const LINES: usize = 30;
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines
        .get(lines.len().saturating_sub(LINES)..)
        .unwrap_or_default()
        .join("\n")
}

/// A moment in UTC, as a name: `2026-11-23T21-58-00`. Days become dates as in Howard Hinnant's
/// `civil_from_days`.
fn stamp(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month < 3);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_set_by_options() {
        let given = Settings::from_words(&["--seeds", "7", "--fuzz-seconds", "0"]).unwrap();
        assert_eq!((given.seeds, given.fuzz_seconds, given.kill_rounds), (7, 0, 300));
        let named = Settings::from_words(&["--fuzz", "wire,sql"]).unwrap();
        assert_eq!(named.fuzz_targets, ["wire", "sql"]);
        for wrong in [&["--seeds"][..], &["--seeds", "x"], &["--nope", "1"]] {
            assert_eq!(Settings::from_words(wrong), None);
        }
    }

    #[test]
    fn moments_are_named() {
        let at = |seconds| stamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00-00-00");
        assert_eq!(at(951_827_696), "2000-02-29T12-34-56");
        assert_eq!(at(1_767_225_599), "2025-12-31T23-59-59");
    }

    #[test]
    fn a_failed_step_is_counted_and_its_output_kept() {
        let dir = env::temp_dir().join(format!("weft-slow-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let report = Report {
            dir: dir.clone(),
            results: Mutex::default(),
        };
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        report.run(Step::checked("bad", shell("echo told; echo cried >&2; exit 3")));
        report.run(Step::checked("good", shell("true")));
        report.run(Step::counted("silent", shell("true")));
        report.run(Step::counted("tests", shell("echo 4 passed, 1 failed; exit 1")));
        let log = fs::read_to_string(dir.join("bad.log")).unwrap();
        let summary = fs::read_to_string(dir.join("summary.txt")).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert!(log.contains("told") && log.contains("cried"), "{log}");
        assert!(
            summary.starts_with("bad: FAILED, 0 passed, 1 failed, "),
            "{summary}"
        );
        let mut sum = Counts::default();
        for (_, counts) in report.results.into_inner().unwrap() {
            sum += counts;
        }
        assert_eq!(sum, Counts { passed: 5, failed: 3 });
    }
}
