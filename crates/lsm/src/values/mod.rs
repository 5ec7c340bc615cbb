//! Value files: large values, stored separately from the tables that point to them, in immutable files.
//!
//! A flush or an ingestion writes each value of at least [`crate::LsmOptions::large_value_bytes`] into a
//! value file, and an entry of kind `LargeValue` into the table, whose value is a [`Pointer`]. Compactions
//! carry pointers like any value. `docs/formats/values.md` has the bytes; decision 0017 the choices.
//!
//! ```text
//! records      crc u32, key's length u32, value's length u32, key, value; without gaps from offset 0
//! footer       44 bytes: magic, version, file number, records, their bytes, crc
//! ```
//!
//! # Invariants
//!
//! 1. A value file is written completely, synced, and its name made durable before the manifest mentions a
//!    table that points into it.
//! 2. A table lists the value files that its entries point into. The files that are needed are those listed
//!    by the tables of live versions; no counts are kept across crashes.
//! 3. Every byte that is read is covered by a checksum that both pointer and record have.
//!
//! Source: Lu et al., "WiscKey: Separating Keys from Values in SSD-conscious Storage", 2016, sections 3.1 to
//! 3.3 (collection here goes by whole files); decision 0017.

mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod read;
mod scan;
mod write;

pub(crate) use format::{FOOTER_BYTES, POINTER_BYTES, Pointer, values_name, values_number};
pub(crate) use read::{ValueFile, ValueFiles};
pub(crate) use scan::{ScanPosition, Scanned, ValueScan};
pub(crate) use write::{SYNC_VALUES, ValueWriter};
