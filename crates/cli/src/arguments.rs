//! The command line's arguments. Nothing is executed here.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    /// Serve a database directory to PostgreSQL clients on a loopback address.
    Serve(ServeArguments),
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
    /// YCSB over data that is several times larger than memory: rows are read from disk.
    Cold(Box<ColdArguments>),
    /// The limits of this machine's memory: bare probes, serial and interleaved, and sequential reads.
    Limits(LimitsArguments),
    /// Scans of bit-packed codes, with every form of instructions, as a share of the memory's bandwidth.
    Scan(ScanArguments),
    /// Lookups in the store's indexes, serial and interleaved, as a share of the memory's limit.
    Index(IndexArguments),
    /// Merging sorted runs: one CPU thread, the offload runtime, the model of X-DB's compaction unit.
    Compaction(CompactionArguments),
    /// The key-value engine by itself, second by second: fills, overwrites and reads, with different
    /// compaction executors or without compaction.
    Lsm(LsmArguments),
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

/// The executor that merges the files of checkpoints; the files do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckpointUnit {
    /// The storage engine's own thread.
    Cpu,
    /// The offload runtime's cpu unit.
    Runtime,
    /// The model of X-DB's compaction unit, simulated on this machine's cores, which it keeps busy.
    Model,
}

/// `weft serve`
#[derive(Debug, Clone, Args)]
pub struct ServeArguments {
    /// Address to listen on. Only loopback addresses are accepted, because there is no authentication yet.
    /// Port 0 chooses a free one.
    #[arg(long, default_value = "127.0.0.1:5433")]
    pub listen: SocketAddr,
    /// Directory of a socket file for local clients (`psql -h DIR`), in addition to the address. Only the
    /// user who runs the server can connect through it.
    #[arg(long)]
    pub socket_dir: Option<PathBuf>,
    /// The database directory; created if absent.
    #[arg(long, default_value = "weft-data")]
    pub data: PathBuf,
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
    #[arg(long, value_enum, default_value_t = CheckpointUnit::Cpu)]
    pub compaction_unit: CheckpointUnit,
    /// Maximum number of clients connected at the same time.
    #[arg(long, default_value_t = 200, value_parser = at_least_one)]
    pub max_connections: usize,
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

/// Options of every benchmark.
#[derive(Debug, Clone, Args)]
pub struct LoadArguments {
    /// Number of client threads; several numbers are run one after another.
    #[arg(long, value_delimiter = ',', default_values_t = [1usize])]
    pub clients: Vec<usize>,
    /// Transactions that one client may have outstanding, if the contender supports it.
    #[arg(long, default_value_t = 1)]
    pub window: usize,
    /// Threads that may share the execution of one batch [default: all cores].
    #[arg(long, value_parser = at_least_one)]
    pub workers: Option<usize>,
    /// Measured seconds of each round.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Rounds; the contenders take turns and the median round is reported.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Count a commit only once it is on disk.
    #[arg(long)]
    pub durable: bool,
    /// Directory of the database; must be empty or absent [default: a new temporary directory, removed at the
    /// end].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Print one JSON object per line instead of tables.
    #[arg(long)]
    pub json: bool,
    /// The contenders that run the stream: `product` (the embedded engine) or a protocol for measuring, such
    /// as `batch` or `two-phase-locking`, on the bare store without sequencer and log. The others are
    /// compared with the first.
    #[arg(long, value_delimiter = ',')]
    pub protocol: Vec<String>,
    /// Open loop: transactions due per second, for all clients together; latency is measured from the time
    /// when each was due.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Transactions per run of a protocol for measuring; runs are repeated until the time is over.
    #[arg(long, default_value_t = 50_000)]
    pub jobs: usize,
}

/// The distribution of keys.
#[derive(Debug, Clone, Copy, Args)]
pub struct HotArguments {
    /// Size of a hot set that gets a share of all accesses, instead of Zipf's law; 0: none.
    #[arg(long, default_value_t = 0)]
    pub hot_keys: u64,
    /// The hot set's share of accesses, 0 to 1.
    #[arg(long, default_value_t = 0.9)]
    pub hot_share: f64,
}

/// Record sizes of a source document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum YcsbPreset {
    /// Hobbes 4: 8 fields of 64 bytes, one access to one field.
    Hobbes,
    /// BionicDB 5.3: records of 1 KB, 300,000 per worker, 16 accesses, only scans of 50.
    Bionicdb,
}

/// The result of a YCSB read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum YcsbRead {
    /// The whole row.
    Row,
    /// One field.
    Field,
    /// Nothing: the read only finds the row.
    Nothing,
}

/// `weft bench ycsb`
#[derive(Debug, Clone, Args)]
pub struct YcsbArguments {
    /// Workloads: a (half updates), b (5 % updates), c (reads), d (reads of the latest, 5 % inserts), e
    /// (scans, 5 % inserts), f (half read-modify-writes).
    #[arg(long, value_delimiter = ',', default_values_t = ["a".to_owned(), "b".to_owned()])]
    pub workload: Vec<String>,
    /// Zipf skews; 0 is uniform.
    #[arg(long, value_delimiter = ',', default_values_t = [0.1, 0.5, 0.9])]
    pub theta: Vec<f64>,
    /// Sizes of a source document; individual size options override it.
    #[arg(long, value_enum)]
    pub preset: Option<YcsbPreset>,
    /// Rows of the table [default: 100000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// Fields of a row [default: 10].
    #[arg(long)]
    pub fields: Option<usize>,
    /// Bytes of a field [default: 50].
    #[arg(long, conflicts_with = "record_bytes")]
    pub field_bytes: Option<usize>,
    /// Bytes of all fields of a row together.
    #[arg(long)]
    pub record_bytes: Option<usize>,
    /// Accesses of one transaction [default: 1].
    #[arg(long)]
    pub accesses: Option<usize>,
    /// The result of a read [default: the whole row].
    #[arg(long, value_enum)]
    pub read: Option<YcsbRead>,
    /// Longest scan of workload e; lengths are uniform from 1 [default: 100].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub scan_up_to: Option<u64>,
    /// Fixed length of the scans of workload e; nothing is inserted.
    #[arg(long, conflicts_with = "scan_up_to", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub scan_exactly: Option<u64>,
    /// Share of a transaction's accesses, 0 to 1, to rows of a worker other than that of its first row, with
    /// the partitioning of protocol `partitioned` for that many workers [default: left to chance].
    #[arg(long)]
    pub remote_share: Option<f64>,
    /// Only take the locks of --jobs transactions, without running them: the cost of each lock manager per
    /// transaction, compared with that of the Calvin-style one.
    #[arg(long)]
    pub locks_only: bool,
    /// Hot set.
    #[command(flatten)]
    pub hot: HotArguments,
    /// Load and output.
    #[command(flatten)]
    pub load: LoadArguments,
}

/// `weft bench smallbank`
#[derive(Debug, Clone, Args)]
pub struct SmallbankArguments {
    /// Customers.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..=100_000_000))]
    pub customers: u64,
    /// Zipf skew of customers; 0 is uniform.
    #[arg(long, default_value_t = 0.0)]
    pub theta: f64,
    /// Hot set.
    #[command(flatten)]
    pub hot: HotArguments,
    /// Load and output.
    #[command(flatten)]
    pub load: LoadArguments,
}

/// A subset of TPC-C's transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TpccMixArgument {
    /// All five.
    Full,
    /// NewOrder and Payment one to one, customers by number.
    NeworderPayment,
}

/// `weft bench tpcc`
#[derive(Debug, Clone, Args)]
pub struct TpccArguments {
    /// Warehouses.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub warehouses: u64,
    /// Transactions.
    #[arg(long, value_enum, default_value_t = TpccMixArgument::Full)]
    pub mix: TpccMixArgument,
    /// Items; the specification requires 100,000.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub items: u64,
    /// Customers per district; the specification requires 3,000.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    pub customers_per_district: u64,
    /// Load and output.
    #[command(flatten)]
    pub load: LoadArguments,
}

/// `weft bench htap`
#[derive(Debug, Clone, Args)]
pub struct HtapArguments {
    /// Warehouses.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub warehouses: u64,
    /// Items; TPC-C requires 100,000.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub items: u64,
    /// Customers per district; TPC-C requires 3,000.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    pub customers_per_district: u64,
    /// Transactions.
    #[arg(long, value_enum, default_value_t = TpccMixArgument::Full)]
    pub mix: TpccMixArgument,
    /// Sessions that query back to back.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub analysts: u64,
    /// MB of log after which a checkpoint is taken in the background; 0 for none.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub checkpoint_mb: u64,
    /// Instead of queries: threads that scan packed codes outside of the database, one case for each number
    /// and each form of the scan, ordinary ones and ones that give way.
    #[arg(long, value_delimiter = ',')]
    pub scan_threads: Vec<usize>,
    /// Codes of 10 bits that such a thread scans.
    #[arg(
        long,
        default_value_t = 20_000_000,
        value_parser = clap::value_parser!(u64).range(1000..=2_000_000_000)
    )]
    pub scan_values: u64,
    /// Load and output.
    #[command(flatten)]
    pub load: LoadArguments,
}

/// `weft bench cold`
#[derive(Debug, Clone, Args)]
pub struct ColdArguments {
    /// Rows.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub records: u64,
    /// Fields of a row.
    #[arg(long, default_value_t = 10)]
    pub fields: usize,
    /// Bytes of a field.
    #[arg(long, default_value_t = 100)]
    pub field_bytes: usize,
    /// The memory is one part of the fields' bytes in so many.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub memory_part: u64,
    /// Workload: a (half updates), b (5 % updates), c (reads).
    #[arg(long, default_value = "b")]
    pub workload: String,
    /// Zipf skew; 0 is uniform.
    #[arg(long, default_value_t = 0.99)]
    pub theta: f64,
    /// Instead of Zipf's law: shares of accesses, 0 to 1, that a hot set which fits into memory gets.
    #[arg(long, value_delimiter = ',')]
    pub hot_share: Vec<f64>,
    /// Microseconds that each read of a file with rows waits first, as on a device.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub read_delay_us: u64,
    /// Load and output.
    #[command(flatten)]
    pub load: LoadArguments,
}

/// `weft bench stall`; `--seconds` is the whole time, the middle third of which a transaction stalls.
#[derive(Debug, Clone, Args)]
pub struct StallArguments {
    /// Rows; with 1,000,000, 100,000, 10,000 of them a transaction conflicts with the stalled one with a
    /// probability of 0.01, 0.1, 1 percent.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..))]
    pub records: u64,
    /// Maximum number of outstanding transactions.
    #[arg(long, default_value_t = 2000, value_parser = outstanding)]
    pub outstanding: usize,
    /// Milliseconds of a slot.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub slot_ms: u64,
    /// Load and output.
    #[command(flatten)]
    pub load: LoadArguments,
}

/// A count of at least one group of transactions submitted together.
fn outstanding(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 64..=1_000_000) => Ok(count),
        _ => Err("a number from 64 to 1000000".to_owned()),
    }
}

/// `weft bench tpcb`
#[derive(Debug, Clone, Args)]
pub struct TpcbArguments {
    /// Branches.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub scale: u64,
    /// Accounts per branch; pgbench has 100,000.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub accounts_per_branch: u64,
    /// Also measure the single message and the seven statements over loopback connections.
    #[arg(long)]
    pub network: bool,
    /// Load and output.
    #[command(flatten)]
    pub load: LoadArguments,
}

/// `weft bench limits`
#[derive(Debug, Clone, Args)]
pub struct LimitsArguments {
    /// Records, rounded up to a power of two; 100,000 with --quick unless given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(64..=1 << 32))]
    pub records: Option<u64>,
    /// Payload bytes of the large records; the small ones have 64.
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    pub record_bytes: u64,
    /// Probes per thread and round.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub probes: u64,
    /// Threads, one run for each number.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub threads: Vec<usize>,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Use small sizes, to check that the benchmark works, not to measure the machine.
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// `weft bench scan`
#[derive(Debug, Clone, Args)]
pub struct ScanArguments {
    /// Codes in the column; 1,000,000 with --quick unless given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..=2_000_000_000))]
    pub values: Option<u64>,
    /// Bits of a code, one case for each.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "10,17,21",
        value_parser = clap::value_parser!(u32).range(1..=24)
    )]
    pub bits: Vec<u32>,
    /// Threads that share a scan, one case for each number.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub threads: Vec<usize>,
    /// Rounds; all forms take turns and medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Use small sizes, to check that the benchmark works, not to measure the machine.
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// `weft bench index`
#[derive(Debug, Clone, Args)]
pub struct IndexArguments {
    /// Records, rounded up to a power of two; 100,000 with --quick unless given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(64..=1 << 32))]
    pub records: Option<u64>,
    /// Bytes of the eight fields of a record.
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    pub record_bytes: u64,
    /// Lookups per round.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub lookups: u64,
    /// Rounds, each alternating with the limit; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Numbers of probes in flight, measured one by one in addition to serial lookups and whole groups.
    #[arg(long, value_delimiter = ',', default_values_t = [16usize, 32])]
    pub in_flight: Vec<usize>,
    /// Skip the ordered index.
    #[arg(long)]
    pub hash_only: bool,
    /// Use small sizes, to check that the benchmark works, not to measure the machine.
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    pub json: bool,
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
                  definitions of their tables, and no program is run. Opening the database, or `weft replay`, \
                  does that. In an LSM engine, tables after one that cannot be read and logs after the first \
                  damaged one are not checked."
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
        assert_eq!(serve.compaction_unit, CheckpointUnit::Cpu);
    }

    #[test]
    fn the_compaction_unit_is_named() {
        for (name, unit) in [
            ("cpu", CheckpointUnit::Cpu),
            ("runtime", CheckpointUnit::Runtime),
            ("model", CheckpointUnit::Model),
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

/// The executor of merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompactionUnit {
    /// One thread, the golden merge.
    Cpu,
    /// The golden merge through the offload runtime.
    Runtime,
    /// The model of X-DB's compaction unit: simulated cycles.
    Model,
    /// A whole compaction by the engine, on one thread: files, filters, index and all.
    Engine,
    /// A whole compaction by RocksDB.
    #[cfg(feature = "peers")]
    Rocksdb,
}

#[cfg(feature = "peers")]
const COMPACTION_UNITS: &str = "cpu,runtime,engine,rocksdb,model";
#[cfg(not(feature = "peers"))]
const COMPACTION_UNITS: &str = "cpu,runtime,engine,model";

/// Compression of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BlockCompression {
    /// No compression.
    None,
    /// LZ4.
    Lz4,
}

/// `weft bench compaction`
#[derive(Debug, Clone, Args)]
pub struct CompactionArguments {
    /// Executors; they take turns round by round.
    #[arg(long, value_delimiter = ',', default_value = COMPACTION_UNITS)]
    pub unit: Vec<CompactionUnit>,
    /// Bytes of each value; one run for each number.
    #[arg(long, value_delimiter = ',', default_value = "32,128,512,1024")]
    pub value_bytes: Vec<usize>,
    /// Compression of input and output blocks.
    #[arg(long, value_delimiter = ',', default_value = "none,lz4")]
    pub compression: Vec<BlockCompression>,
    /// Sorted runs that are merged; an engine takes two to four.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub ways: u64,
    /// Decoders of the model; one contender for each number. Fewer than ways means several passes.
    #[arg(long, value_delimiter = ',', default_value = "2,4")]
    pub decoders: Vec<usize>,
    /// Bytes per cycle of the model's decoders, encoder and LZ4 cores.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub width: u32,
    /// Keys and values of a task, in bytes.
    #[arg(long, default_value_t = 8 << 20, value_parser = clap::value_parser!(u64).range(1000..=1 << 30))]
    pub bytes: u64,
    /// Seconds of processor time per round; the model merges once per round.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Rounds; medians are reported, and their spread as jitter.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// How the engines read and write their files; one contender for each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "buffered")]
    pub io: Vec<FileIo>,
    /// Directory of the engines' files while they compact [default: the directory for temporary files].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// How an engine's flushes and compactions read and write tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileIo {
    /// Through the operating system's page cache.
    Buffered,
    /// With direct I/O; an error if the file system does not support it.
    Direct,
}

/// The workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LsmCase {
    /// New keys in random order, starting with an empty engine.
    Fill,
    /// Overwrites of random existing keys.
    Overwrite,
    /// Reads of random existing keys.
    Read,
    /// Random reads and overwrites, in the proportion given by --read-percent.
    Mixed,
    /// Reads, with another thread that overwrites as fast as it can.
    ReadWhileWriting,
}

/// The executor of compactions, or another engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LsmUnit {
    /// The engine's own thread.
    Cpu,
    /// The offload runtime's cpu unit.
    Runtime,
    /// The model of X-DB's compaction unit, simulated on this machine's cores, which it keeps busy.
    Model,
    /// Threads that get tasks as bytes and fail at every tenth; redoing tasks costs only time.
    Failing,
    /// No compaction.
    Off,
    /// Another engine: RocksDB.
    #[cfg(feature = "peers")]
    Rocksdb,
}

impl LsmUnit {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Runtime => "runtime",
            Self::Model => "model",
            Self::Failing => "failing",
            Self::Off => "off",
            #[cfg(feature = "peers")]
            Self::Rocksdb => "rocksdb",
        }
    }
}

#[cfg(feature = "peers")]
const LSM_UNITS: &str = "cpu,off,rocksdb";
#[cfg(not(feature = "peers"))]
const LSM_UNITS: &str = "cpu,off";

/// `weft bench lsm`
#[derive(Debug, Clone, Args)]
pub struct LsmArguments {
    /// The workload.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fill,overwrite,read,read-while-writing"
    )]
    pub case: Vec<LsmCase>,
    /// Executors of compactions; they take turns.
    #[arg(long, value_delimiter = ',', default_value = LSM_UNITS)]
    pub unit: Vec<LsmUnit>,
    /// Bytes of each value; one run for each number.
    #[arg(long, value_delimiter = ',', default_value = "128")]
    pub value_bytes: Vec<usize>,
    /// Measured seconds of each run, after a warm-up of a fifth of that.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Milliseconds per slot of the series.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub slot_ms: u64,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    /// Keys that are loaded for all cases except fill.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub keys: u64,
    /// Percentage of reads of the case mixed; one run for each number.
    #[arg(long, value_delimiter = ',', default_value = "50")]
    pub read_percent: Vec<u32>,
    /// Compression of blocks below level 0.
    #[arg(long, value_enum, default_value_t = BlockCompression::Lz4)]
    pub compression: BlockCompression,
    /// How flushes and compactions of every contender read and write tables.
    #[arg(long, value_enum, default_value_t = FileIo::Buffered)]
    pub io: FileIo,
    /// MiB per memtable; there are four.
    #[arg(long, default_value_t = 64)]
    pub memtable_mb: usize,
    /// MiB of the block cache.
    #[arg(long, default_value_t = 256)]
    pub cache_mb: usize,
    /// Parent directory of the engines' directories; must be empty or absent [default: a new temporary
    /// directory, removed at the end].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Print one JSON object per line, including the series, instead of a table.
    #[arg(long)]
    pub json: bool,
}
