//! The manifest: the file of edits that says which tables and logs count.
//!
//! # Layout
//!
//! `manifest-<number, 12 digits>.lsm` is a sequence of records, each at a multiple of 512 bytes:
//!
//! ```text
//! crc u32          CRC-32C of all that follows
//! length u32       of the edit
//! manifest u64     the number in the name
//! record u64       0, 1, 2, ...
//! edit             begins with its version
//! ```
//!
//! Record 0 holds the whole state. A manifest is created as `manifest-next.part`, synced, renamed, and its
//! name is synced; only then older ones are removed. So a file with a manifest's name has a complete record
//! 0, and the newest one counts.
//!
//! # Invariants
//!
//! 1. Every edit is synced before it takes effect: before a table or a log that it makes obsolete is removed.
//! 2. Only the last record can be torn, because each is synced before the next is written. A bad record
//!    before a good one is corruption.
//! 3. A record whose write failed is truncated, which needs no space: an edit refused by a full disk never
//!    counts. After a failed sync nothing is appended to the file, and the next edit writes the state anew.
//! 4. If the last record had been synced and is lost, this is detected: what it made obsolete is gone, and
//!    the state before it names files that are missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weft_base::codec::ByteReader;
use weft_base::disk::read_file;
use weft_base::{Disk, DiskFile, OpenMode, SyncSite};
use weft_ops::crc32c;
use weft_ops::key::SeqNo;

use super::Edit;
use crate::error::{CorruptKind, LsmError, corrupt, io_error};
use crate::table::TableMeta;

/// Sync of an edit.
pub(crate) const SYNC_MANIFEST: SyncSite = SyncSite("lsm.manifest");
/// Sync of a new manifest's bytes, before it gets its name.
pub(crate) const SYNC_MANIFEST_CREATE: SyncSite = SyncSite("lsm.manifest.create");
/// Sync of a new manifest's name.
pub(crate) const SYNC_MANIFEST_DIR: SyncSite = SyncSite("lsm.manifest.dir");

const HEADER_BYTES: usize = 24;
const SECTOR_BYTES: u64 = 512;
const UNFINISHED: &str = "manifest-next.part";
/// A manifest that has grown beyond this, and beyond four times its first record, is rewritten.
const BYTES_MAX: u64 = 1 << 20;

pub(crate) fn manifest_name(number: u64) -> String {
    format!("manifest-{number:012}.lsm")
}

pub(crate) fn manifest_number(name: &str) -> Option<u64> {
    name.strip_prefix("manifest-")?.strip_suffix(".lsm")?.parse().ok()
}

/// What all edits together say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ManifestState {
    /// Tables by number, with their level.
    pub tables: BTreeMap<u64, (usize, TableMeta)>,
    pub flushed: SeqNo,
    pub first_log: u64,
}

impl ManifestState {
    pub(crate) fn apply(&mut self, edit: &Edit) {
        for number in &edit.removed {
            self.tables.remove(number);
        }
        for (level, meta) in &edit.added {
            self.tables.insert(meta.number, (*level, meta.clone()));
        }
        // An empty memtable that is flushed after an ingestion does not know of it.
        self.flushed = self.flushed.max(edit.flushed.unwrap_or_default());
        self.first_log = edit.first_log.unwrap_or(self.first_log);
    }

    /// The edit that makes this state out of nothing.
    pub(crate) fn as_edit(&self) -> Edit {
        Edit {
            added: self.tables.values().cloned().collect(),
            removed: Vec::new(),
            flushed: Some(self.flushed),
            first_log: Some(self.first_log),
        }
    }
}

/// Why an edit is not durable.
#[derive(Debug)]
pub(crate) struct AppendError {
    pub error: LsmError,
    /// Whether it may still count after a crash, as long as no later edit is durable.
    pub may_count: bool,
}

impl From<LsmError> for AppendError {
    /// Of an error before the edit was written.
    fn from(error: LsmError) -> Self {
        Self {
            error,
            may_count: false,
        }
    }
}

impl From<AppendError> for LsmError {
    fn from(unwritten: AppendError) -> Self {
        unwritten.error
    }
}

/// The current manifest file.
pub(crate) struct Manifest {
    file: Box<dyn DiskFile>,
    dir: PathBuf,
    path: PathBuf,
    number: u64,
    record: u64,
    offset: u64,
    first_bytes: u64,
    state: ManifestState,
    /// An edit with unknown outcome was written: nothing may follow it in this file.
    broken: bool,
}

impl Manifest {
    /// Writes `state` into a new manifest and removes older ones.
    ///
    /// # Errors
    /// The disk's. The new manifest can count only if naming it failed.
    pub(crate) fn create(
        disk: &dyn Disk,
        dir: &Path,
        number: u64,
        state: ManifestState,
    ) -> Result<Self, AppendError> {
        let mut manifest = Self::write_unnamed(disk, dir, number, &state).inspect_err(|_| {
            // The next attempt removes what is left of it.
            let _ = disk.remove(&dir.join(UNFINISHED));
        })?;
        let unknown = |error: LsmError| AppendError {
            error,
            may_count: true,
        };
        let (unfinished, path) = (dir.join(UNFINISHED), dir.join(manifest_name(number)));
        disk.rename(&unfinished, &path)
            .map_err(io_error("naming", &path))
            .map_err(unknown)?;
        disk.sync_dir(dir, SYNC_MANIFEST_DIR)
            .map_err(io_error("syncing", dir))
            .map_err(unknown)?;
        manifest.path = path;
        manifest.state = state;
        manifest.first_bytes = manifest.offset;
        let names = disk.list(dir).unwrap_or_default();
        let is_older = |name: &&String| manifest_number(name).is_some_and(|other| other < number);
        for name in names.iter().filter(is_older) {
            // It no longer counts: the next new manifest removes what is left.
            let _ = disk.remove(&dir.join(name));
        }
        Ok(manifest)
    }

    /// Writes a manifest's first record, durable, under a name that does not count.
    fn write_unnamed(
        disk: &dyn Disk,
        dir: &Path,
        number: u64,
        state: &ManifestState,
    ) -> Result<Self, LsmError> {
        let unfinished = dir.join(UNFINISHED);
        if disk
            .exists(&unfinished)
            .map_err(io_error("looking for", &unfinished))?
        {
            disk.remove(&unfinished)
                .map_err(io_error("removing", &unfinished))?;
        }
        let file = disk
            .open(&unfinished, OpenMode::CreateNew)
            .map_err(io_error("creating", &unfinished))?;
        let mut manifest = Self {
            file,
            dir: dir.to_owned(),
            path: unfinished,
            number,
            record: 0,
            offset: 0,
            first_bytes: 0,
            broken: false,
            state: ManifestState::default(),
        };
        manifest.write(&state.as_edit(), SYNC_MANIFEST_CREATE)?;
        Ok(manifest)
    }

    /// Makes an edit durable. `next_number` names the file if the manifest has to be rewritten.
    ///
    /// # Errors
    /// The disk's. If the edit may still count, this is unknown until the next one succeeds, which writes the
    /// whole state without the failed edit.
    pub(crate) fn append(
        &mut self,
        disk: &dyn Disk,
        edit: &Edit,
        next_number: impl FnOnce() -> u64,
    ) -> Result<(), AppendError> {
        let mut state = self.state.clone();
        state.apply(edit);
        if self.broken || self.offset > BYTES_MAX.max(4 * self.first_bytes) {
            // The new file may count once it is renamed, so the old one must not continue.
            self.broken = true;
            *self = Self::create(disk, &self.dir, next_number(), state)?;
            return Ok(());
        }
        let (offset, record) = (self.offset, self.record);
        if let Err(error) = self.write(edit, SYNC_MANIFEST) {
            self.broken = self.offset != offset || self.cut(offset).is_err();
            (self.offset, self.record) = (offset, record);
            return Err(AppendError {
                error,
                may_count: self.broken,
            });
        }
        self.state = state;
        Ok(())
    }

    /// Truncates what was written from `offset` on and never synced.
    fn cut(&self, offset: u64) -> std::io::Result<()> {
        self.file.set_len(offset)?;
        self.file.sync(SYNC_MANIFEST)
    }

    /// The state that all edits so far make.
    pub(crate) const fn state(&self) -> &ManifestState {
        &self.state
    }

    fn write(&mut self, edit: &Edit, site: SyncSite) -> Result<(), LsmError> {
        let edit = edit.encode();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + edit.len());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(edit.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.record.to_le_bytes());
        bytes.extend_from_slice(&edit);
        let crc = crc32c(bytes.get(4..).unwrap_or_default());
        if let Some(place) = bytes.first_chunk_mut::<4>() {
            *place = crc.to_le_bytes();
        }
        self.file
            .write_at(&bytes, self.offset)
            .map_err(io_error("writing", &self.path))?;
        self.offset = (self.offset + bytes.len() as u64).next_multiple_of(SECTOR_BYTES);
        self.record += 1;
        self.file.sync(site).map_err(io_error("syncing", &self.path))
    }
}

/// Makes the newest manifest durable as an earlier process left it, which may have died before its sync or
/// failed: what is read then is final.
///
/// # Errors
/// The disk's.
pub(crate) fn settle_manifest(disk: &dyn Disk, dir: &Path) -> Result<(), LsmError> {
    let names = disk.list(dir).map_err(io_error("listing", dir))?;
    let Some(number) = names.iter().filter_map(|name| manifest_number(name)).max() else {
        return Ok(());
    };
    let path = dir.join(manifest_name(number));
    let file = disk.open(&path, OpenMode::ReadWrite);
    let settled = file.and_then(|file| {
        file.sync(SYNC_MANIFEST)?;
        file.forget_cached()
    });
    settled.map_err(io_error("syncing", &path))?;
    let named = disk.sync_dir(dir, SYNC_MANIFEST_DIR);
    named.map_err(io_error("syncing", dir))
}

/// Reads the newest manifest of a directory; `None` if there is none.
///
/// # Errors
/// A bad record that is not the torn end, with file and offset.
pub(crate) fn read_manifest(disk: &dyn Disk, dir: &Path) -> Result<Option<(u64, ManifestState)>, LsmError> {
    let names = disk.list(dir).map_err(io_error("listing", dir))?;
    let Some(number) = names.iter().filter_map(|name| manifest_number(name)).max() else {
        return Ok(None);
    };
    let name = manifest_name(number);
    let path = dir.join(&name);
    let bytes = read_file(disk, &path).map_err(io_error("reading", &path))?;
    let mut state = ManifestState::default();
    let mut record = 0;
    let mut offset = 0;
    while let Some((edit, len)) = parse(&bytes, offset, number, record) {
        let edit = Edit::decode(edit)
            .map_err(|error| corrupt(&name, offset as u64, CorruptKind::Manifest, error))?;
        state.apply(&edit);
        record += 1;
        offset = (offset + len).next_multiple_of(SECTOR_BYTES as usize);
    }
    // Record 0 was synced before the file had its name; everything before a good record was synced too.
    let mut later = offset + SECTOR_BYTES as usize;
    let mut lost = record == 0;
    while !lost && later < bytes.len() {
        let header = bytes.get(later..).unwrap_or_default();
        let stated = header.get(16..24).and_then(|bytes| bytes.first_chunk::<8>());
        let stated = stated.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        lost = stated > record && parse(&bytes, later, number, stated).is_some();
        later += SECTOR_BYTES as usize;
    }
    if lost {
        let reason = format!("record {record} is not what was written");
        return Err(corrupt(&name, offset as u64, CorruptKind::Manifest, reason));
    }
    Ok(Some((number, state)))
}

/// The edit of the record at `offset`, and the record's length.
fn parse(bytes: &[u8], offset: usize, number: u64, record: u64) -> Option<(&[u8], usize)> {
    let bytes = bytes.get(offset..)?;
    let mut reader = ByteReader::new(bytes);
    let crc = reader.u32().ok()?;
    let len = HEADER_BYTES + reader.u32().ok()? as usize;
    let as_named = reader.u64().ok()? == number && reader.u64().ok()? == record;
    let covered = bytes.get(4..len)?;
    (as_named && crc32c(covered) == crc).then_some((bytes.get(HEADER_BYTES..len)?, len))
}
