//! `weft bench`: measurements of the embedded database, comparing contenders in one run.
//!
//! Every figure is a ratio to something measured in the same run: contenders take turns round by round, and
//! the median round counts. Progress goes to stderr, results to stdout: tables, or with `--json` one object
//! per line.

#[cfg(feature = "fpga")]
pub(crate) mod bionicdb;
pub(crate) mod cold;
mod cold_peer;
pub(crate) mod compaction;
pub(crate) mod fabric;
pub(crate) mod htap;
pub(crate) mod index;
pub(crate) mod join;
mod join_simulation;
pub(crate) mod limits;
mod lock_ranks;
mod lock_trace;
pub(crate) mod locks;
mod locks_only;
pub(crate) mod lsm;
mod network;
mod rank_processes;
mod run;
pub(crate) mod scan;
pub(crate) mod smallbank;
pub(crate) mod stall;
pub(crate) mod tpcb;
pub(crate) mod tpcc;
pub(crate) mod tpch;
pub(crate) mod ycsb;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use weft::{Database, Options};
use weft_base::{Disk, Progress, SystemClock};
use weft_workload::embedded::Commit;
use weft_workload::report;
use weft_workload::{Load, Record};

use crate::arguments::{HotArguments, LoadArguments};
use crate::failure::Failure;

/// Duration of the warm-up of a round, as a share of the measured time.
const WARMUP_SHARE: f64 = 0.1;

impl LoadArguments {
    fn check(&self) -> Result<(), Failure> {
        let usage = |message: &str| Err(Failure::Usage(message.to_owned()));
        if self.clients.is_empty() || self.clients.contains(&0) || self.clients.iter().any(|n| *n > 4096) {
            return usage("--clients must be between 1 and 4096");
        }
        if self.window == 0 || self.rounds == 0 || self.workers == Some(0) {
            return usage("--window, --rounds and --workers must be at least 1");
        }
        if self.rate.is_some_and(|rate| !(0.1..=1e9).contains(&rate)) {
            return usage("--rate must be between 0.1 and 1000000000");
        }
        if !(1..=10_000_000).contains(&self.jobs) {
            return usage("--jobs must be between 1 and 10000000");
        }
        if !(0.01..=86_400.0).contains(&self.seconds) {
            return usage("--seconds must be between 0.01 and 86400");
        }
        Ok(())
    }

    /// The same for one of several databases: in a directory of its own below the one that the user named.
    fn within(&self, name: &str) -> Self {
        let mut own = self.clone();
        own.dir = own.dir.map(|dir| dir.join(name.replace(' ', "-")));
        own
    }

    fn load(&self, clients: usize) -> Load {
        Load {
            clients,
            window: self.window,
            warmup: Duration::from_secs_f64(self.seconds * WARMUP_SHARE),
            measured: Duration::from_secs_f64(self.seconds),
            rate: self.rate,
        }
    }

    fn commit(&self) -> Commit {
        if self.durable {
            Commit::Durable
        } else {
            Commit::Executed
        }
    }

    fn workers(&self) -> usize {
        self.workers.unwrap_or_else(|| Options::default().engine.workers)
    }

    /// Settings of the database.
    fn options(&self) -> Options {
        let mut options = Options {
            synchronous_commit: self.durable,
            ..Options::default()
        };
        options.engine.workers = self.workers();
        options
    }

    /// Settings included in every record.
    fn config(&self, clients: usize) -> String {
        let rate = self.rate.map_or_else(String::new, |rate| format!("rate={rate} "));
        format!(
            "{rate}clients={clients} window={} workers={} durable={} seconds={} rounds={} version={}",
            self.window,
            self.workers(),
            self.durable,
            self.seconds,
            self.rounds,
            env!("CARGO_PKG_VERSION")
        )
    }
}

impl HotArguments {
    /// Keys of the hot set and its share in thousandths; `None` without one.
    fn hot_set(&self) -> Result<Option<(u64, u64)>, Failure> {
        match (self.hot_keys, (0.0..=1.0).contains(&self.hot_share)) {
            (0, _) => Ok(None),
            (_, false) => Err(Failure::Usage("--hot-share must be between 0 and 1".to_owned())),
            (keys, true) => Ok(Some((keys, (self.hot_share * 1000.0).round() as u64))),
        }
    }
}

/// Number of databases opened by this process for benchmarks.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A database for one benchmark; its directory is removed with it unless the user named it.
pub(crate) struct BenchDatabase {
    // Closed before its directory is removed.
    pub database: Database,
    dir: BenchDir,
}

impl BenchDatabase {
    fn open(arguments: &LoadArguments, name: &str) -> Result<Self, Failure> {
        let dir = BenchDir::new(arguments, name)?;
        let database = Database::open(&dir.path, arguments.options())?;
        Ok(Self { database, dir })
    }

    /// A database that was loaded, checkpointed, closed, and opened again with these settings on a view of
    /// the disk.
    fn open_loaded(
        arguments: &LoadArguments,
        name: &str,
        options: Options,
        disk: Arc<dyn Disk>,
        load: impl FnOnce(&Database) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let loaded = Self::open(arguments, name)?;
        load(&loaded.database)?;
        loaded.database.checkpoint()?;
        let BenchDatabase { database, dir } = loaded;
        drop(database);
        let (clock, progress) = (Arc::new(SystemClock::new()), Progress::default());
        let database = Database::open_with(disk, &dir.path, clock, options, &progress)?;
        Ok(Self { database, dir })
    }
}

/// The directory of a database for one benchmark.
struct BenchDir {
    path: PathBuf,
    /// It is removed, unless the user named it.
    is_temporary: bool,
}

impl BenchDir {
    fn new(arguments: &LoadArguments, name: &str) -> Result<Self, Failure> {
        arguments.check()?;
        BenchDir::named(arguments.dir.clone(), name)
    }

    /// The directory that the user named, which must be empty or absent, or one of its own.
    fn named(named: Option<PathBuf>, name: &str) -> Result<Self, Failure> {
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let unique = format!("weft-bench-{name}-{}-{number}", std::process::id());
        let is_temporary = named.is_none();
        let path = named.unwrap_or_else(|| std::env::temp_dir().join(unique));
        if has_entries(&path) {
            return Err(Failure::Usage(format!("{} is not empty", path.display())));
        }
        Ok(Self { path, is_temporary })
    }
}

impl BenchDir {
    /// Reads all files, so that they are in the page cache: some contenders write past it.
    fn fill_page_cache(&self) -> std::io::Result<()> {
        let mut folders = vec![self.path.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                match entry.file_type()?.is_dir() {
                    true => folders.push(entry.path()),
                    false => {
                        let mut file = std::fs::File::open(entry.path())?;
                        std::io::copy(&mut file, &mut std::io::sink())?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for BenchDir {
    fn drop(&mut self) {
        if self.is_temporary {
            // The files may still be open; the supported systems remove them regardless.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn has_entries(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}

/// A progress bar on stderr for loading and measuring; invisible if stderr is not a terminal.
fn bar(length: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{prefix:20} {bar:40} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(what.to_owned());
    bar
}

/// Prints records as lines of JSON or as a table.
fn print(json: bool, title: &str, records: &[Record]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = if json {
        records
            .iter()
            .try_for_each(|record| writeln!(out, "{}", record.to_json()))
    } else {
        writeln!(out, "\n{title}\n{}", report::table(records))
    };
    written.map_err(|e| Failure::doing("writing to stdout", e))
}
