//! Scans of packed codes on units (DBA 3): the operation for `weft_offload`, the CPU's way to do it, and a
//! model of DBA's engines.
//!
//! ```text
//!   requester --task--> scheduler --> a unit that has the codes    near its memory: registered buffers
//!       ^                                  |
//!       +---- bitmap or row ids, looked at +--- if it fails, the CPU's scan
//! ```
//!
//! The codes of a column are a registered buffer, so that they are sent to a unit once and stay there; what
//! travels with each scan is the predicate and the result. A requester sleeps meanwhile.

mod engine;
mod scan;

pub use engine::{ScanCycles, ScanEngine, ScanEngineParams, ScanStop, simulate};
pub use scan::{
    Found, Matches, PARTS, SET_WORDS, Scan, ScanError, ScanPart, ScanPredicate, ScanResult, ScanTask,
    ScannedCodes, WIDTH,
};
