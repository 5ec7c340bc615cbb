//! Arguments of the benchmarks of merges and of the key-value engine.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

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
