//! Ids, clock, randomness, byte codecs, and file I/O that is real or simulated.
//!
//! This is the ground floor: it imports no other crate of the project. Whatever is not a pure function of
//! its arguments (time, chance, the disk) is a trait here, so that everything above can be run again with
//! the same outcome and so that a test can cut the power at every write.
//!
//! - [`ids`]: the numbers by which parts speak of batches, tables, rows, log positions.
//! - [`json`]: quoted text, for reports.
//! - [`codec`]: bounds-checked reading of untrusted bytes, and the writing that matches it.
//! - [`clock`], [`random`]: time and chance, injected.
//! - [`budget`]: bytes that may be held at one time.
//! - [`blocking`]: telling whoever runs the thread that it is about to wait.
//! - [`disk`]: files and directories; [`RealDisk`] is the operating system, [`SimDisk`] a disk that loses
//!   whatever was not synced.
//! - [`fuzzing`]: what a fuzz target is, and its short form in the tests.
//! - [`idle`]: what threads do before they sleep.
//! - [`memory`]: memory in huge pages, and hints to the memory system.
//! - [`niceness`]: a thread that gives way to the others.
//! - [`pace`]: keeping background work to a share of the time.
//! - [`progress`]: how far something long has come.

pub mod blocking;
pub mod budget;
pub mod clock;
pub mod codec;
pub mod disk;
pub mod fuzzing;
pub mod idle;
pub mod ids;
pub mod json;
pub mod memory;
pub mod niceness;
pub mod pace;
pub mod progress;
pub mod random;

pub use budget::{Budget, Exceeded, Reservation};
pub use clock::{Clock, ManualClock, SystemClock};
pub use codec::{ByteReader, ByteWriter, CodecError};
pub use disk::{
    AlignedBuffer, DIRECT_ALIGN, DelayedCall, DelayedDisk, DirLock, DirectWriter, Disk, DiskFile, FaultKind,
    OpenMode, RealDisk, SimDisk, SyncSite, is_refusal, range_around, read_around,
};
pub use ids::{BatchId, CatalogVersion, IndexId, Lsn, RowId, SessionId, TableId, TxnId};
pub use json::json_text;
pub use niceness::{Offer, ThreadNumber};
pub use pace::Pacer;
pub use progress::{Progress, Reached};
pub use random::{Entropy, Prng, SeededEntropy, SystemEntropy};
