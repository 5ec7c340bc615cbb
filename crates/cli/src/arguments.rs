//! The command line's arguments. Nothing is executed here.

mod bench;
mod lsm;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use bench::{
    AssignmentArgument, ColdArguments, FabricArguments, FormArgument, HotArguments, HtapArguments,
    IndexArguments, JoinArguments, LimitsArguments, LoadArguments, LocksArguments, RatesArgument,
    ScanArguments, SimulationArguments, SmallbankArguments, StallArguments, TpcbArguments, TpccArguments,
    TpccMixArgument, TpchArguments, YcsbArguments, YcsbPreset, YcsbRead,
};
#[cfg(feature = "fpga")]
pub use bench::{BionicdbArguments, BionicdbWorkload};
pub use lsm::{
    BlockCompression, CompactionArguments, CompactionUnit, FileIo, LsmArguments, LsmCase, LsmUnit,
};

/// A database that speaks PostgreSQL and orders transactions into conflict-free batches.
#[derive(Debug, Parser)]
#[command(name = "weft", version, about, propagate_version = true)]
pub struct WeftArguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `weft`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Demonstrate the database: load a bank, run transfers and analytics, kill the server, recover, check
    /// the books.
    Demo(DemoArguments),
    /// Create a database directory whose superuser, postgres, has a password.
    Init(InitArguments),
    /// Serve a database directory to PostgreSQL clients.
    Serve(ServeArguments),
    /// Serve tables that are spread over several ranks.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Benchmark the embedded database, its parts, other protocols, and the machine's memory.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Replay the log of a database batch by batch, printing the state digest after each.
    Replay(ReplayArguments),
    /// Check every file of a stopped database and list all faults.
    Verify(VerifyArguments),
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Point reads and updates with skewed keys: batches compared with two-phase locking.
    Ycsb(Box<YcsbArguments>),
    /// pgbench's bank: one program per transaction compared with seven statements.
    Tpcb(Box<TpcbArguments>),
    /// SmallBank: six short transactions over two accounts per customer; the balances are checked.
    Smallbank(Box<SmallbankArguments>),
    /// Throughput of all other transactions, per time slot, while one holds ten locks and stalls.
    Stall(Box<StallArguments>),
    /// TPC-C: order entry with all five transactions; its twelve consistency conditions are checked.
    Tpcc(Box<TpccArguments>),
    /// TPC-C's transactions alone and beside analytic queries back to back, which give way or do not.
    Htap(Box<HtapArguments>),
    /// TPC-H's queries, by kind of join.
    Tpch(TpchArguments),
    /// YCSB over data that is several times larger than memory: rows are read from disk.
    Cold(Box<ColdArguments>),
    /// The limits of this machine's memory: bare probes, serial and interleaved, and sequential reads.
    Limits(LimitsArguments),
    /// Scans of bit-packed codes, with every form of instructions, as a share of the memory's bandwidth.
    Scan(ScanArguments),
    /// Round trips, one-sided operations and bandwidth between two ranks.
    Fabric(FabricArguments),
    /// Joins of 16-byte tuples on one machine or over ranks, phase by phase beside the document's models.
    Join(JoinArguments),
    /// Locks and two-phase commits over one-sided messages between ranks, beside what messages and disks
    /// cost.
    Locks(LocksArguments),
    /// Lookups in the store's indexes, serial and interleaved, as a share of the memory's limit.
    Index(IndexArguments),
    /// Merging sorted runs: one CPU thread, the offload runtime, the model of X-DB's compaction unit.
    Compaction(CompactionArguments),
    /// YCSB and SmallBank on a simulated card with BionicDB's softcore, beside the CPU.
    #[cfg(feature = "fpga")]
    Bionicdb(BionicdbArguments),
    /// The key-value engine by itself, second by second: fills, overwrites and reads, with different
    /// compaction executors or without compaction.
    Lsm(LsmArguments),
}

/// `weft cluster`
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Serve a cluster of ranks, each a whole database with an address of its own, any of which takes any
    /// statement. Under mpirun each process is a rank (if built with the feature `mpi`).
    Serve(ClusterServeArguments),
}

/// `weft cluster serve`
#[derive(Debug, Clone, Args)]
pub struct ClusterServeArguments {
    /// How many ranks. A cluster keeps its number of ranks for ever. Under mpirun its number of processes
    /// counts.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub ranks: u32,
    /// As for `weft serve`. Rank r listens on the port of --listen plus r, and has its database in the folder
    /// `rank-r` of --data.
    #[command(flatten)]
    pub serve: ServeArguments,
}

/// `weft demo`
#[derive(Debug, Clone, Args)]
pub struct DemoArguments {
    /// Directory of the database; must be empty or absent [default: a new temporary directory].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Seconds of load, half of them before the kill.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..))]
    pub seconds: u64,
    /// Accounts of the bank.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i32).range(2..))]
    pub accounts: i32,
    /// Connections that make transfers; half of them send a transfer as one message, the others in five
    /// steps.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub connections: u32,
    /// Port to listen on; 0 chooses a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Keep serving at the end, until Ctrl-C.
    #[arg(long)]
    pub keep: bool,
}

/// A PostgreSQL on/off setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// A commit is acknowledged once it is on disk.
    On,
    /// A commit is acknowledged earlier; a crash may lose the most recent commits, but never a part of one.
    Off,
}

/// Who does the jobs of one kind; results do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnitChoice {
    /// The thread that has them.
    Cpu,
    /// The offload runtime's cpu unit.
    Runtime,
    /// The model of a unit, simulated on this machine's cores, which it keeps busy: X-DB's compaction unit,
    /// or DBA's scan engine.
    Model,
}

/// `weft serve`
#[derive(Debug, Clone, Args)]
pub struct ServeArguments {
    /// Address to listen on. One that other machines reach needs --tls-cert, --tls-key and a role with a
    /// password. Port 0 chooses a free one.
    #[arg(long, default_value = "127.0.0.1:5433")]
    pub listen: SocketAddr,
    /// Directory of a socket file for local clients (`psql -h DIR`), in addition to the address. Only the
    /// user who runs the server can connect through it.
    #[arg(long)]
    pub socket_dir: Option<PathBuf>,
    /// The database directory; created if absent.
    #[arg(long, default_value = "weft-data")]
    pub data: PathBuf,
    /// File whose first line becomes the password of the superuser postgres, if it has none yet.
    #[arg(long)]
    pub password_file: Option<PathBuf>,
    /// File with the server's certificate for TLS, and those that lead from it to one that clients trust
    /// (PEM). SIGHUP has it and the key read again.
    #[arg(long, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// File with the certificate's private key (PEM, without a passphrase), readable by its owner alone.
    #[arg(long, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Threads that may share the execution of one batch [default: all cores].
    #[arg(long, value_parser = at_least_one)]
    pub workers: Option<usize>,
    /// Initial value of `synchronous_commit`; each session can change it with SET.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub synchronous_commit: Switch,
    /// Megabytes of log after which a checkpoint is taken [default: 256]; 0: never, so the log grows without
    /// limit.
    #[arg(long)]
    pub checkpoint_mb: Option<u64>,
    /// Limits of clients.
    #[command(flatten)]
    pub bounds: BoundArguments,
    /// The executor that merges the files of checkpoints. Results of units are validated, and the CPU redoes
    /// failed jobs; `SHOW weft.unit_jobs_redone_why` shows how many and why.
    #[arg(long, value_enum, default_value_t = UnitChoice::Cpu)]
    pub compaction_unit: UnitChoice,
    /// Who compares the packed columns that large queries scan with their predicates, in the same way;
    /// `model` is DBA's scan engine. `SHOW weft.scan_unit_jobs_redone_why` shows what the CPU redid.
    #[arg(long, value_enum, default_value_t = UnitChoice::Cpu)]
    pub scan_unit: UnitChoice,
    /// Maximum number of clients connected at the same time.
    #[arg(long, default_value_t = 200, value_parser = at_least_one)]
    pub max_connections: usize,
}

/// `weft init`.
#[derive(Debug, Clone, Args)]
pub struct InitArguments {
    /// The database directory; created if absent.
    #[arg(long, default_value = "weft-data")]
    pub data: PathBuf,
    /// File whose first line is the password.
    #[arg(long)]
    pub password_file: PathBuf,
}

/// Limits of clients; docs/limits.md lists all limits.
#[derive(Debug, Clone, Args)]
pub struct BoundArguments {
    /// Seconds that a client may be idle while its transaction holds locks [default: 600]; 0: no limit. A
    /// session can set its own `idle_in_transaction_session_timeout`.
    #[arg(long)]
    pub idle_with_locks_timeout: Option<u64>,
    /// Seconds that a client may take to log in [default: 60].
    #[arg(long)]
    pub startup_timeout: Option<u64>,
    /// Seconds that a client may leave its results unread [default: 600]; 0: no limit.
    #[arg(long)]
    pub write_timeout: Option<u64>,
    /// Seconds for which an idle transaction's snapshot is kept while others write [default: 14400].
    #[arg(long)]
    pub snapshot_age_max: Option<u64>,
    /// Megabytes of replaced rows that such a snapshot may keep in memory [default: 1024].
    #[arg(long)]
    pub snapshot_mb_max: Option<u64>,
    /// Megabytes of memory for rows, indexes and packed columns [default: three quarters of the machine's
    /// memory]; beyond, rows that were not used lately stay on disk only. 0: no bound.
    #[arg(long)]
    pub memory_mb: Option<u64>,
    /// Megabytes of packed columns beside the rows of tables that queries scan [default: an eighth of the
    /// machine's memory]; 0: none.
    #[arg(long)]
    pub column_mb_max: Option<usize>,
    /// Megabytes that a session may hold between statements [default: 256].
    #[arg(long, value_parser = at_least_one)]
    pub session_mb_max: Option<usize>,
}

/// A count of at least one.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("a number from 1 on".to_owned()),
    }
}

/// `weft replay`
#[derive(Debug, Clone, Args)]
pub struct ReplayArguments {
    /// The database directory. No server may be running on it.
    #[arg(long)]
    pub data: PathBuf,
    /// The last batch to run.
    #[arg(long)]
    pub until: Option<u64>,
    /// Threads that may share the execution of one batch; the digests must not depend on it.
    #[arg(long, default_value_t = 1)]
    pub workers: usize,
}

/// `weft verify`
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Not checked: rows are not loaded, so they are not compared with the state digest or the \
                  definitions of their tables, and no program is run. `weft replay` does that. In an LSM \
                  engine, tables after one that cannot be read and logs after the first damaged one are not \
                  checked."
)]
pub struct VerifyArguments {
    /// The database directory, or that of an LSM engine. No server may be running on it.
    pub dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        WeftArguments::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let parsed = WeftArguments::try_parse_from(["weft", "serve"]).unwrap();
        let Command::Serve(serve) = parsed.command else {
            panic!("not serve")
        };
        assert_eq!(serve.listen, "127.0.0.1:5433".parse().unwrap());
        assert_eq!(serve.synchronous_commit, Switch::On);
        assert_eq!(serve.compaction_unit, UnitChoice::Cpu);
    }

    #[test]
    fn the_compaction_unit_is_named() {
        for (name, unit) in [
            ("cpu", UnitChoice::Cpu),
            ("runtime", UnitChoice::Runtime),
            ("model", UnitChoice::Model),
        ] {
            let line = ["weft", "serve", "--compaction-unit", name];
            let Command::Serve(serve) = WeftArguments::try_parse_from(line).unwrap().command else {
                panic!("not serve")
            };
            assert_eq!(serve.compaction_unit, unit);
        }
        assert!(WeftArguments::try_parse_from(["weft", "serve", "--compaction-unit", "fpga"]).is_err());
    }

    #[test]
    fn invalid_values_are_refused() {
        for line in [
            &["weft"][..],
            &["weft", "serve", "--listen", "nowhere"],
            &["weft", "demo", "--seconds", "0"],
            &["weft", "bench", "ycsb", "--records", "0"],
            &["weft", "replay"],
            &["weft", "verify"],
        ] {
            assert!(WeftArguments::try_parse_from(line).is_err(), "{line:?}");
        }
    }
}
