//! The image of indexes: what an opening needs besides the checkpoint to find every row without reading any.
//!
//! ```text
//!   clean stop: checkpoint, then  slots: row id, seal --+--> image, beside the rows
//!                                 indexes: entries    --'
//!   opening:    header of the checkpoint == that of the image?
//!                 yes: every row is cold, indexes are filled from the image; rows come back later
//!                 no:  rows are read, indexes are built                                     (load.rs)
//! ```
//!
//! An image is derived: it says nothing that the checkpoint does not, and is used only with the checkpoint
//! whose batch and digest it names. So one that is old, damaged, half written or missing costs time and
//! nothing else. The next checkpoint removes it.
//!
//! What is checked when it is read: its checksums; that every index leads to as many rows as the table has;
//! that the tables' terms and the catalog add up to the checkpoint's digest. What a row says is checked
//! against its seal when it is read (`memory/cold.rs`).
//!
//! Byte tables: `docs/formats/image.md`. Choices and their price: decision 0033.

mod format;
mod read;
mod write;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_base::{CodecError, Disk, SyncSite};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use format::Footer;
pub(super) use read::{check, restore};
pub(super) use write::write;

/// Name of the image of indexes in a database's directory.
pub const NAME: &str = "image";
/// Its name until it is complete.
const UNFINISHED_NAME: &str = ".image.partial";

pub(super) const SYNC_FILE: SyncSite = SyncSite("image.file");
pub(super) const SYNC_NAME: SyncSite = SyncSite("image.name");

/// Where the image is kept.
pub(super) struct ImagePlace {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// There is one, of the newest checkpoint.
    is_current: AtomicBool,
}

impl ImagePlace {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        ImagePlace {
            disk,
            dir: dir.to_path_buf(),
            is_current: AtomicBool::new(false),
        }
    }

    /// Removes the image, if there is one: it belongs to an older checkpoint, or will soon. If its name comes
    /// back after a power cut it still does.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.is_current.store(false, Ordering::Relaxed);
        self.remove_file(NAME)?;
        self.remove_unfinished()
    }

    /// Removes what an interrupted writing has left.
    pub(super) fn remove_unfinished(&self) -> io::Result<()> {
        self.remove_file(UNFINISHED_NAME)
    }

    fn remove_file(&self, name: &str) -> io::Result<()> {
        let path = self.dir.join(name);
        match self.disk.exists(&path)? {
            true => self.disk.remove(&path),
            false => Ok(()),
        }
    }
}

/// Why an image is not used, or was not written.
#[derive(Debug)]
pub(super) enum ImageError {
    Io(io::Error),
    Damaged(CodecError),
    /// The pieces are sound, but not those of this database.
    Unlike(&'static str),
}

impl std::fmt::Display for ImageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ImageError::Io(error) => write!(f, "{error}"),
            ImageError::Damaged(error) => write!(f, "damaged: {error}"),
            ImageError::Unlike(what) => f.write_str(what),
        }
    }
}

impl From<io::Error> for ImageError {
    fn from(error: io::Error) -> Self {
        ImageError::Io(error)
    }
}

impl From<CodecError> for ImageError {
    fn from(error: CodecError) -> Self {
        ImageError::Damaged(error)
    }
}

/// For fuzzing: a chunk as each kind of chunk there is.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod chunks {
    use crate::memory::{ColdPlace, ColdRegion, RegionShape, RowLengths, SlotId};
    use weft_base::{BatchId, CodecError, IndexId, TableId};

    use super::format::{self, Kind};

    /// Reads places of two regions.
    pub(crate) fn places(bytes: &[u8], items: u64) -> Result<Vec<ColdRegion>, CodecError> {
        let shape = |slots| RegionShape { stride: 64, slots };
        format::read_places(bytes, &[shape(256), shape(1_024)], items)
    }

    /// Entries of an ordered index, written and read.
    pub(crate) fn entries(bytes: &[u8], items: u64) -> Result<Vec<(Vec<u8>, SlotId)>, CodecError> {
        let mut entries = Vec::new();
        let see = |key: &[u8], slot| entries.push((key.to_vec(), slot));
        format::read_entries(bytes, items, 1 << 20, see)?;
        Ok(entries)
    }

    /// The bytes of entries.
    pub(crate) fn put_entries(entries: &[(Vec<u8>, SlotId)]) -> Vec<u8> {
        let (mut out, mut writer) = (Vec::new(), format::EntriesWriter::default());
        for (key, slot) in entries {
            writer.entry(&mut out, key, *slot);
        }
        out
    }

    /// A footer with each kind of index.
    pub(crate) fn footer() -> Vec<u8> {
        let chunk = |items, regions| format::Chunk {
            offset: 8,
            bytes: 1_000,
            crc: 77,
            items,
            regions,
        };
        let index = |kind| format::IndexImage {
            kind,
            chunks: vec![chunk(200, (0, 0)), chunk(100, (0, 0))],
        };
        let kinds = [Kind::Ordered(IndexId(3)), Kind::Hashed(IndexId(4)), Kind::RowIds];
        let shape = |slots| RegionShape { stride: 64, slots };
        let table = format::TableImage {
            id: TableId(2),
            rows: 300,
            terms: 0x1234_5678_9abc_def0,
            lengths: RowLengths::default(),
            regions: vec![shape(256), shape(1_024)],
            places: vec![chunk(100, (0, 1)), chunk(200, (1, 1))],
            indexes: kinds.map(index).to_vec(),
        };
        let footer = format::Footer {
            batch: BatchId(9),
            digest: 5,
            tables: vec![table],
        };
        let bytes = footer.encode();
        assert_eq!(format::Footer::decode(&bytes).as_ref(), Ok(&footer));
        bytes
    }

    /// Entries of a hash index.
    pub(crate) fn hashed(bytes: &[u8], items: u64) -> Result<Vec<(u64, SlotId)>, CodecError> {
        let mut entries = Vec::new();
        format::read_hashed(bytes, items, 1 << 20, |hash, slot| entries.push((hash, slot)))?;
        Ok(entries)
    }

    /// The bytes of places.
    pub(crate) fn put_places(regions: &[&[ColdPlace]]) -> Vec<u8> {
        let (mut out, mut writer) = (Vec::new(), format::PlacesWriter::default());
        regions.iter().for_each(|rows| writer.region(&mut out, rows));
        out
    }
}
