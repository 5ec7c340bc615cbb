//! Arguments of the benchmarks of transactions, queries, indexes and memory.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::at_least_one;

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

/// What runs on the simulated softcore.
#[cfg(feature = "fpga")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BionicdbWorkload {
    /// YCSB A: half of the accesses are updates.
    YcsbA,
    /// YCSB B: one in twenty is.
    YcsbB,
    /// YCSB C: reads only.
    YcsbC,
    /// SmallBank.
    Smallbank,
}

/// `weft bench bionicdb`
#[cfg(feature = "fpga")]
#[derive(Debug, Clone, Args)]
pub struct BionicdbArguments {
    /// Workloads.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "ycsb-a,ycsb-b,ycsb-c,smallbank"
    )]
    pub workloads: Vec<BionicdbWorkload>,
    /// Accesses of a transaction of YCSB, one case for each number, up to 16.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16")]
    pub accesses: Vec<usize>,
    /// Transactions interleaved at most, one case for each number, up to 64; 1 is serial.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64")]
    pub interleaved: Vec<u8>,
    /// Records or customers [default: 20,000; 500 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub records: Option<u64>,
    /// Transactions of a case [default: 1,024; 64 with --quick].
    #[arg(long)]
    pub transactions: Option<usize>,
    /// Zipf skew of keys; 0 is uniform.
    #[arg(long, default_value_t = 0.0)]
    pub theta: f64,
    /// The device's memory: hc2-ddr2, ddr3-1600, ddr4-2400 or hbm2 (`hardware/doc/memory_port.md`).
    #[arg(long, default_value = "hc2-ddr2")]
    pub memory: String,
    /// The clock that is assumed, in MHz.
    #[arg(long, default_value_t = 125.0)]
    pub clock_mhz: f64,
    /// Every answer is compared with the CPU's before it counts; otherwise those of the first group are.
    #[arg(long)]
    pub check_all: bool,
    /// Use small sizes, to check that the benchmark works.
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    pub json: bool,
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

/// `weft bench tpch`
#[derive(Debug, Clone, Args)]
pub struct TpchArguments {
    /// The scale factor: 8.7 million rows at 1. Below 0.01 its formulas give keys twice.
    #[arg(long, default_value_t = 0.1)]
    pub scale: f64,
    /// Queries, such as Q1,Q18; all 22 if none is named.
    #[arg(long, value_delimiter = ',')]
    pub query: Vec<String>,
    /// Values of `weft.join` to compare with `hash`.
    #[arg(long, value_delimiter = ',', default_value = "auto")]
    pub join: Vec<String>,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// An empty or absent directory for the database, which stays; by default a temporary one.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    pub json: bool,
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

/// What ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormArgument {
    /// Threads of this process.
    Threads,
    /// Processes that share memory.
    Processes,
}

/// `weft bench fabric`
#[derive(Debug, Clone, Args)]
pub struct FabricArguments {
    /// What the two ranks are.
    #[arg(long, value_enum, default_value = "threads")]
    pub form: FormArgument,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Check that the benchmark works, not what it measures.
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Which rank gets which partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AssignmentArgument {
    /// Sized, and heavy partitions are shared between ranks.
    Shared,
    /// The largest partition first, to the rank that has least.
    Sized,
    /// One after the other.
    RoundRobin,
}

/// Where the rates of simulated ranks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RatesArgument {
    /// Measured here, by two ranks that are threads.
    Here,
    /// Table 4.2 of the document, of a Cray XC30: figures are then the same on every machine.
    Document,
}

/// What `weft bench join` simulates.
#[derive(Debug, Clone, Args)]
pub struct SimulationArguments {
    /// Instead of joining, simulate joins over so many ranks, one case for each number.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=65_536))]
    pub simulate_ranks: Vec<u32>,
    /// Rates of simulated ranks.
    #[arg(long, value_enum, default_value = "here")]
    pub rates: RatesArgument,
    /// Tuples of the probe side on each simulated rank.
    #[arg(long, default_value_t = 40_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub rank_tuples: u64,
    /// Tuples of the build side on each simulated rank [default: as many].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub rank_build_tuples: Option<u64>,
    /// Simulated ranks that share a link.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub ranks_per_node: u32,
    /// Gigabytes a second of a simulated link, each way [default: what puts reach on this machine, or what
    /// the document's rates say of one rank, for each rank of a node].
    #[arg(long)]
    pub link_gb: Option<f64>,
    /// Nanoseconds of a simulated message beside its bytes.
    #[arg(long, default_value_t = 1_500)]
    pub latency_ns: u64,
    /// Nanoseconds that a simulated message keeps a link busy beside its bytes.
    #[arg(long, default_value_t = 200)]
    pub request_ns: u64,
    /// Open requests of a simulated node.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub requests_max: u32,
    /// Bytes of a simulated message.
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(16..=1 << 30))]
    pub message_bytes: u64,
    /// Of a thousand simulated ranks so many are slow.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub stragglers_per_mille: u32,
    /// How much longer a slow rank takes.
    #[arg(long, default_value_t = 1.5)]
    pub straggler_factor: f64,
    /// Simulated ranks come or go until there are so many.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub resize_to: Option<u32>,
    /// After which share of the exchange.
    #[arg(long, default_value_t = 0.5)]
    pub resize_after: f64,
}

/// `weft bench join`
#[derive(Debug, Clone, Args)]
pub struct JoinArguments {
    /// Ranks, of one thread each; 1: the joins of one machine, with several threads.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub ranks: u32,
    /// Threads of the joins of one machine [default: one for each processor].
    #[arg(long, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub threads: Option<usize>,
    /// What ranks are.
    #[arg(long, value_enum, default_value = "threads")]
    pub form: FormArgument,
    /// Build tuples of all ranks [default: 16 Mi].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub build: Option<u64>,
    /// Probe tuples of all ranks [default: 16 Mi].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub probe: Option<u64>,
    /// Of a hundred probe tuples so many have the same key.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub hot_percent: u64,
    /// Simulation.
    #[command(flatten)]
    pub simulation: SimulationArguments,
    /// Send 16 bytes of each tuple instead of 8.
    #[arg(long)]
    pub wide: bool,
    /// Bytes of a buffer on its way to another rank [default: 8192].
    #[arg(long, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(16..=1 << 24))]
    pub buffer_bytes: Option<usize>,
    /// Which rank gets which partition.
    #[arg(long, value_enum, default_value = "shared")]
    pub assignment: AssignmentArgument,
    /// A network schedule: rounds of so many tuples, in which each rank sends to one rank at a time.
    #[arg(long, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1 << 32))]
    pub schedule_rounds_of: Option<usize>,
    /// Rounds; the algorithms take turns and medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Check that the benchmark works, not what it measures.
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// `weft bench locks`
#[derive(Debug, Clone, Args)]
pub struct LocksArguments {
    /// Records whose locks are drawn.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: u64,
    /// Seconds of each case.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Rounds; all cases take turns and medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Record the locks of TPC-C's transactions into this file, at both isolation levels, and end.
    #[arg(long, conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Replay the lock trace of this file, and measure nothing else.
    #[arg(long)]
    pub replay: Option<PathBuf>,
    /// Warehouses of the trace [default: 4; with --replay: those of the file, one case for each number].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub warehouses: Vec<u32>,
    /// Transactions of the trace that is recorded.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub transactions: u32,
    /// Lock servers of a replay, one case for each number.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub servers: Vec<u32>,
    /// Agents of a replay, one case for each number.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub agents: Vec<u32>,
    /// Locks that a replay asks for in one request; the document's: 1.
    #[arg(long, default_value_t = 1)]
    pub together: usize,
    /// Simulate the lock protocol with so many ranks, 36 a node, with costs measured here; measure nothing
    /// else.
    #[arg(long, conflicts_with = "record", value_parser = clap::value_parser!(u32).range(36..=100_000))]
    pub simulate_ranks: Option<u32>,
    /// By how many microseconds a message between simulated nodes takes longer than one inside; what table
    /// 5.1 of the document implies.
    #[arg(long, default_value_t = 2.6)]
    pub remote_extra_us: f64,
    /// Directory of the logs, whose disk is measured; must be empty or absent [default: a new temporary
    /// directory, removed at the end].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Check that the benchmark works, not what it measures.
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
    /// Only the simulated engines, whose cycles do not depend on this machine: nothing is measured.
    #[arg(long)]
    pub simulated_only: bool,
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
