//! The log: the sequence of batches, on disk.
//!
//! A record is the batch's number and a payload that is opaque to this crate. Appending puts a record into a
//! buffer; syncing makes everything appended so far durable, for all waiting threads at once. Reading returns
//! the records in order, up to where the power was cut, and never anything else.
//!
//! ```text
//! append ──► pending group ──► leader: write, fdatasync ──► durable
//!            (log.rs)          (segment_writer.rs)
//!                                     │ log-00000000000000000001.weft   format.rs
//!                                     │ log-00000000000000000815.weft
//! open ◄── survey (survey.rs) ◄───────┤        (log/open.rs)
//! LogReader (reader.rs) ◄─────────────┘        verify.rs: each segment by itself, all that is wrong
//! ```
//!
//! # Invariants
//!
//! 1. Records are durable in order: if a batch's record survives a crash, so do those of all earlier batches.
//! 2. [`Log::durable`] is never ahead of the disk, and what it covers is never lost or changed by the log.
//! 3. A 512-byte sector that holds durable bytes is never written again (except what [`Log::open`] cuts off),
//!    so a torn write cannot damage them. Each group of records therefore starts on a sector of its own.
//! 4. A segment is created only when everything before it is durable; a gap or a bad record before the last
//!    segment is corruption, not a torn tail.
//! 5. After an I/O error nothing more is appended or declared durable ([`WalError::Poisoned`]).
//! 6. No bytes on disk make this crate panic, or allocate more than the length of the file.
//!
//! # Torn or corrupt?
//!
//! After a power cut the end of the log may hold any mixture of old and new sectors. That is no damage: none
//! of it was durable. Every record contains the position up to which the log was durable when it was
//! appended, so a bad record is *corrupt*, and opening fails, if a later record proves that it was durable;
//! otherwise it is *torn*, and cut off. To have such a proof for the last records too, an idle log and an
//! orderly close append an empty record, the *seal*.

mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod log;
mod pending;
mod reader;
mod segment_writer;
mod survey;
mod verify;

pub use error::WalError;
pub use format::PAYLOAD_BYTES_MAX;
pub use log::{Log, LogConfig, LogStats};
pub use reader::{LogReader, LogRecord};
pub use segment_writer::SYNC_SITES;
pub use verify::{LogCheck, verify};
