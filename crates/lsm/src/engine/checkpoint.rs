//! Checkpoints: a second engine's directory with the state of a moment, while this one goes on.
//!
//! Everything is flushed, then the tables of that version are copied; they never change, and the version
//! keeps them from being removed. The copy's manifest comes last, so an unfinished checkpoint is an empty
//! engine.

use std::path::Path;

use weft_base::OpenMode;
use weft_ops::key::SeqNo;

use super::{Engine, SYNC_TABLE_DIR};
use crate::error::{LsmError, io_error};
use crate::log::LogFile;
use crate::table::SYNC_TABLE;
use crate::version::{Edit, Manifest, ManifestState};

const COPY_BYTES: usize = 1 << 20;

impl Engine {
    /// Copies the present state into `target`; says up to which write it goes.
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
        for (_, table) in view.version.tables() {
            self.copy(&table.path(), target)?;
        }
        self.disk
            .sync_dir(target, SYNC_TABLE_DIR)
            .map_err(io_error("syncing", target))?;
        let log = LogFile::create(&*self.disk, target, self.next_number())?;
        let gathered = gather(&state, log.number());
        Manifest::create(&*self.disk, target, self.next_number(), gathered)?;
        Ok(state.flushed)
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
