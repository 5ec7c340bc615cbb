//! Checkpoints: a copy of the state at one moment in another directory, while this engine goes on.
//!
//! Everything is flushed, then the tables of that version and their value files are copied; they never
//! change, and the version keeps them from being removed. The copy's manifest is written last, and an engine
//! opens no tables without one, so an unfinished checkpoint is not taken for a complete one.

use std::path::Path;

use weft_base::{Disk, OpenMode, RealDisk};
use weft_ops::key::SeqNo;

use super::{Engine, SYNC_TABLE_DIR};
use crate::error::{LsmError, bad_directory, io_error};
use crate::log::LogFile;
use crate::table::SYNC_TABLE;
use crate::version::{Edit, Manifest, ManifestState, Version, manifest_number};

const COPY_BYTES: usize = 1 << 20;

impl Engine {
    /// Copies the current state into `target`; returns the last write that it contains.
    pub(super) fn checkpoint(&self, target: &Path) -> Result<SeqNo, LsmError> {
        self.flush_all()?;
        let manifest = self.manifest.lock();
        let state = manifest.state().clone();
        // Installing needs the manifest's latch, so this is the version of that state.
        let view = self.view();
        drop(manifest);
        self.disk
            .create_dir_all(target)
            .map_err(io_error("creating", target))?;
        let _lock = self.disk.lock_dir(target).map_err(io_error("locking", target))?;
        check_empty(&*self.disk, target)?;
        let copied = self.copy_all(&view.version, &state, target);
        if copied.is_err() {
            self.remove_copies(target);
        }
        copied.map(|()| state.flushed)
    }

    fn copy_all(&self, version: &Version, state: &ManifestState, target: &Path) -> Result<(), LsmError> {
        for (_, table) in version.tables() {
            self.copy(&table.path(), target)?;
        }
        for values in version.value_files().values() {
            self.copy(&values.file.path(), target)?;
        }
        self.disk
            .sync_dir(target, SYNC_TABLE_DIR)
            .map_err(io_error("syncing", target))?;
        let log = LogFile::create(&*self.disk, target, self.next_number())?;
        let gathered = gather(state, log.number());
        Manifest::create(&*self.disk, target, self.next_number(), gathered)?;
        Ok(())
    }

    /// Removes what an unfinished checkpoint left, as far as possible: the manifest first, without which the
    /// rest has no meaning.
    fn remove_copies(&self, target: &Path) {
        let Ok(mut names) = self.disk.list(target) else {
            return;
        };
        names.sort_by_key(|name| manifest_number(name).is_none());
        for name in names.iter().filter(|name| *name != RealDisk::LOCK_FILE) {
            let _ = self.disk.remove(&target.join(name));
        }
    }

    fn copy(&self, from: &Path, target: &Path) -> Result<(), LsmError> {
        let to = target.join(from.file_name().unwrap_or_default());
        let source = self
            .disk
            .open(from, OpenMode::Read)
            .map_err(io_error("opening", from))?;
        let copy = self
            .disk
            .open(&to, OpenMode::CreateNew)
            .map_err(io_error("creating", &to))?;
        let bytes = source.len().map_err(io_error("reading", from))?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut offset = 0;
        while offset < bytes {
            let count = usize::try_from(bytes - offset).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
            let part = buffer.get_mut(..count).unwrap_or_default();
            source
                .read_exact_at(part, offset)
                .map_err(io_error("reading", from))?;
            copy.write_at(part, offset).map_err(io_error("writing", &to))?;
            offset += count as u64;
        }
        copy.sync(SYNC_TABLE).map_err(io_error("syncing", &to))
    }
}

/// Checks that the directory contains nothing that could collide with the copy or be taken for a part of it.
fn check_empty(disk: &dyn Disk, target: &Path) -> Result<(), LsmError> {
    let names = disk.list(target).map_err(io_error("listing", target))?;
    let dirs = disk.list_dirs(target).map_err(io_error("listing", target))?;
    // `lost+found` makes a mount point.
    let known = [RealDisk::LOCK_FILE, "lost+found"];
    match names
        .iter()
        .chain(&dirs)
        .find(|name| !known.contains(&name.as_str()))
    {
        Some(name) => Err(bad_directory(
            target,
            format!("a checkpoint needs an empty one, and {name} is there"),
        )),
        None => Ok(()),
    }
}

/// The state of a copy, whose tables all lie in one directory.
fn gather(state: &ManifestState, first_log: u64) -> ManifestState {
    let mut gathered = ManifestState::default();
    let tables = state.tables.values().cloned();
    gathered.apply(&Edit {
        added: tables
            .map(|(level, mut meta)| {
                meta.level = 0;
                (level, meta)
            })
            .collect(),
        removed: Vec::new(),
        flushed: Some(state.flushed),
        first_log: Some(first_log),
    });
    gathered
}
