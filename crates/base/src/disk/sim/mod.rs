//! A disk in memory that loses, keeps or tears whatever was not synced.
//!
//! # Model
//!
//! A file has two contents: `durable`, what a power cut leaves for sure, and `current`, what the running
//! program sees. Writes go to `current` and mark the 512-byte sectors they touch as pending; a sync copies
//! those sectors, and the length, to `durable`. Names likewise: there is the namespace that programs see, the
//! durable one, and between them a list of pending operations, which a directory sync carries over.
//!
//! [`SimDisk::crash`] is the power cut. Chosen by the seed, each pending sector of each file
//!
//! ```text
//! is lost | is kept | is torn (a prefix new, the rest old) | is kept with flipped bits
//! ```
//!
//! a pending length is the old one, the new one or one between, and of the pending name operations either
//! some first ones happened, in order, or any subset did. Afterwards what is left is durable, handles from
//! before the cut answer every call with an error, and directory locks are free.
//!
//! # Faults
//!
//! Every *mutation* (write, length change, allocation, sync, create, rename, remove, directory sync, also
//! one that fails) has a number, counted from 1: [`SimDisk::op_count`]. A fault is put at a number, so that
//! a test can first count a run's mutations and then repeat the run with a fault at each of them.
//!
//! A disk has room without end until [`SimDisk::set_capacity`] gives it a bound. Bytes of files that have a
//! name count, holes included; a file that grows beyond the bound is refused with ENOSPC and stays as it was.
//!
//! Handles can be direct, unless [`SimDisk::refuse_direct`] was called: they check alignment as the real
//! disk does, and what is written through them is as pending as any write, since the device has a cache of
//! its own.
//!
//! # Invariants
//!
//! 1. The same seed and the same calls give the same bytes, faults and crashes (callers with several threads
//!    must not expect it).
//! 2. What was synced, and not written again since, is the same after a crash, byte for byte.
//! 3. No call panics, whatever its arguments.

mod content;
mod names;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::direct::check_alignment;
use super::{DirLock, Disk, DiskFile, OpenMode, SyncSite};
use crate::random::Prng;
use content::Content;
use names::{NameChange, Names};

/// Bytes of a pending write that a power cut treats alike: lost, kept or torn.
pub const SECTOR_BYTES: usize = 512;

/// The system's number for an argument that it does not take, the same on every Unix.
const EINVAL: i32 = 22;

/// How an injected fault shows itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// An input/output error (EIO). A failed write may have written a part. A failed sync may have made a
    /// part durable, and the rest may be such that later syncs pass over it (see
    /// [`DiskFile::forget_cached`]).
    Io,
    /// No space left (ENOSPC). Nothing was written.
    StorageFull,
}

impl FaultKind {
    fn error(self) -> io::Error {
        match self {
            Self::Io => io::Error::other("injected input/output error"),
            Self::StorageFull => io::Error::new(io::ErrorKind::StorageFull, "injected: no space left"),
        }
    }
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// A file's number; a name leads to it.
type FileId = usize;

#[derive(Clone)]
struct State {
    prng: Prng,
    files: Vec<Content>,
    names: Names,
    locked_dirs: BTreeSet<PathBuf>,
    ignored_sites: BTreeSet<SyncSite>,
    seen_sites: BTreeSet<SyncSite>,
    /// Raised by a crash; handles of an earlier one are dead.
    generation: u64,
    op_count: u64,
    fault: Option<(u64, FaultKind)>,
    cut_at: Option<u64>,
    reads_fail: bool,
    power_is_off: bool,
    capacity_bytes: Option<u64>,
    refuses_direct: bool,
    refuses_direct_late: bool,
}

impl SimDisk {
    /// An empty disk. The seed decides what crashes leave.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            prng: Prng::new(seed),
            files: Vec::new(),
            names: Names::default(),
            locked_dirs: BTreeSet::new(),
            ignored_sites: BTreeSet::new(),
            seen_sites: BTreeSet::new(),
            generation: 0,
            op_count: 0,
            fault: None,
            cut_at: None,
            reads_fail: false,
            power_is_off: false,
            capacity_bytes: None,
            refuses_direct: false,
            refuses_direct_late: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// A disk of its own with the same contents, pending and durable, and another seed: many crashes of one
    /// moment can be looked at. Handles and locks stay with the original; no fault is set.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let mut state = self.state.lock().clone();
        state.prng = Prng::new(seed);
        state.locked_dirs.clear();
        state.fault = None;
        state.cut_at = None;
        state.generation += 1;
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Cuts the power and switches it on again: pending writes and names are lost, kept or torn, open handles
    /// die, locks are free, faults that were set are gone.
    pub fn crash(&self) {
        let state = &mut *self.state.lock();
        for file in &mut state.files {
            file.crash(&mut state.prng);
        }
        state.names.crash(&mut state.prng);
        state.locked_dirs.clear();
        state.generation += 1;
        state.fault = None;
        state.cut_at = None;
        state.power_is_off = false;
    }

    /// Number of mutations so far, failed ones included.
    #[must_use]
    pub fn op_count(&self) -> u64 {
        self.state.lock().op_count
    }

    /// Makes the mutation with this number fail once: `op_count() + 1` is the next one.
    pub fn fail_after(&self, op_count: u64, kind: FaultKind) {
        self.state.lock().fault = Some((op_count, kind));
    }

    /// Makes the mutation with this number and every later call fail, until [`SimDisk::crash`].
    pub fn cut_power_at(&self, op_count: u64) {
        self.state.lock().cut_at = Some(op_count);
    }

    /// Makes every read of a file's bytes fail, or no longer.
    pub fn fail_reads(&self, fail: bool) {
        self.state.lock().reads_fail = fail;
    }

    /// Bounds the disk: whatever would make the bytes of all files exceed it is refused with `StorageFull`.
    /// `None` for no bound.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.state.lock().capacity_bytes = capacity_bytes;
    }

    /// Bytes of all files that have a name.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// Makes every sync at this place do nothing and report success, as if it were missing from the program.
    pub fn ignore_sync(&self, site: SyncSite) {
        self.state.lock().ignored_sites.insert(site);
    }

    /// Makes it a disk without direct access: no handle can be made direct any more.
    pub fn refuse_direct(&self) {
        self.state.lock().refuses_direct = true;
    }

    /// Makes it a disk that lets handles become direct and then answers their reads and writes with EINVAL.
    pub fn refuse_direct_late(&self) {
        self.state.lock().refuses_direct_late = true;
    }

    /// The places at which a sync was called so far.
    #[must_use]
    pub fn seen_sites(&self) -> Vec<SyncSite> {
        self.state.lock().seen_sites.iter().copied().collect()
    }

    /// Flips bit `bit % 8` of the byte at `offset`, in both the durable and the current content.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` when the file has no such byte.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mut state = self.state.lock();
        let id = state.names.find(path)?;
        let file = state.files.get_mut(id).ok_or(io::ErrorKind::NotFound)?;
        file.flip_bit(offset, bit)
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimDisk")
            .field("op_count", &state.op_count)
            .field("names", &state.names)
            .finish()
    }
}

/// What the gate says to a mutation.
enum Gate {
    Pass,
    /// The fault to report. `true`: a part of the mutation may have happened.
    Fail(io::Error, bool),
}

impl State {
    fn check_power(&self) -> io::Result<()> {
        if self.power_is_off {
            Err(io::Error::other("injected power cut"))
        } else {
            Ok(())
        }
    }

    fn check_handle(&self, generation: u64) -> io::Result<()> {
        self.check_power()?;
        if generation == self.generation {
            Ok(())
        } else {
            Err(io::Error::other("the handle is from before the power cut"))
        }
    }

    /// Counts a mutation and decides whether it happens.
    fn gate(&mut self) -> Gate {
        self.op_count += 1;
        if self.cut_at.is_some_and(|at| self.op_count >= at) {
            self.power_is_off = true;
            return Gate::Fail(io::Error::other("injected power cut"), true);
        }
        match self.fault {
            Some((at, kind)) if at == self.op_count => {
                self.fault = None;
                Gate::Fail(kind.error(), kind == FaultKind::Io)
            }
            _ => Gate::Pass,
        }
    }

    /// For mutations that happen wholly or not at all. A failed one may have happened.
    fn mutate(&mut self, change: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        match self.gate() {
            Gate::Pass => change(self),
            Gate::Fail(error, partial) => {
                if partial && self.prng.chance(1, 2) {
                    change(self)?;
                }
                Err(error)
            }
        }
    }

    fn used_bytes(&self) -> u64 {
        let named = self.names.files().filter_map(|id| self.files.get(id));
        named.map(Content::len).sum()
    }

    /// Whether a file may come to end there.
    fn check_space(&self, id: FileId, end: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity_bytes else {
            return Ok(());
        };
        let grows = end.saturating_sub(self.files.get(id).map_or(0, Content::len));
        if grows > 0 && self.used_bytes().saturating_add(grows) > capacity {
            return Err(FaultKind::StorageFull.error());
        }
        Ok(())
    }

    fn file(&mut self, id: FileId) -> io::Result<&mut Content> {
        self.files
            .get_mut(id)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Whether a sync at this place is to be carried out.
    fn note_site(&mut self, site: SyncSite) -> bool {
        self.seen_sites.insert(site);
        !self.ignored_sites.contains(&site)
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.check_power()?;
        if mode == OpenMode::CreateNew {
            state.names.check_free(path)?;
            state.mutate(|state| {
                let id = state.files.len();
                state.files.push(Content::default());
                state.names.change(NameChange::Create {
                    path: path.to_owned(),
                    id,
                });
                Ok(())
            })?;
        }
        let id = state.names.find(path)?;
        let writable = mode != OpenMode::Read;
        let disk = self.clone();
        Ok(Box::new(SimFile {
            disk,
            id,
            generation: state.generation,
            writable,
            is_direct: AtomicBool::new(false),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        let id = state.names.find(from)?;
        state.names.check_parent(to)?;
        state.mutate(|state| {
            state.names.change(NameChange::Rename {
                from: from.to_owned(),
                to: to.to_owned(),
                id,
            });
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        state.names.find(path)?;
        state.mutate(|state| {
            state.names.change(NameChange::Remove {
                path: path.to_owned(),
            });
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.check_power()?;
        state.names.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        if state.names.has_dir(dir) {
            return Ok(());
        }
        state.mutate(|state| {
            state.names.create_dir_all(dir);
            Ok(())
        })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        state.check_power()?;
        Ok(state.names.find(path).is_ok() || state.names.has_dir(path))
    }

    fn sync_dir(&self, dir: &Path, site: SyncSite) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        if !state.names.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let carried_out = state.note_site(site);
        state.mutate(|state| {
            if carried_out {
                state.names.sync_dir(dir);
            }
            Ok(())
        })
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>> {
        let mut state = self.state.lock();
        state.check_power()?;
        if !state.names.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !state.locked_dirs.insert(dir.to_owned()) {
            let message = format!("{} is in use", dir.display());
            return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
        }
        let disk = self.clone();
        Ok(Box::new(SimDirLock {
            disk,
            dir: dir.to_owned(),
            generation: state.generation,
        }))
    }
}

struct SimDirLock {
    disk: SimDisk,
    dir: PathBuf,
    generation: u64,
}

impl DirLock for SimDirLock {}

impl Drop for SimDirLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.generation == self.generation {
            state.locked_dirs.remove(&self.dir);
        }
    }
}

struct SimFile {
    disk: SimDisk,
    id: FileId,
    generation: u64,
    writable: bool,
    is_direct: AtomicBool,
}

impl SimFile {
    fn check(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if !self.is_direct.load(Ordering::Relaxed) {
            return Ok(());
        }
        check_alignment(bytes, offset)?;
        if self.disk.state.lock().refuses_direct_late {
            return Err(io::Error::from_raw_os_error(EINVAL));
        }
        Ok(())
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    fn write_checked(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        let state = &mut *self.disk.state.lock();
        state.check_handle(self.generation)?;
        match state.gate() {
            Gate::Pass => {
                state.check_space(self.id, offset.saturating_add(bytes.len() as u64))?;
                state.file(self.id)?.write_at(bytes, offset)
            }
            Gate::Fail(error, partial) => {
                if partial {
                    let part = state.prng.below(bytes.len() as u64 + 1) as usize;
                    state.file(self.id)?.write_at(&bytes[..part], offset)?;
                }
                Err(error)
            }
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check(out, offset)?;
        let mut state = self.disk.state.lock();
        state.check_handle(self.generation)?;
        if state.reads_fail {
            return Err(io::Error::other("simulated: reading fails"));
        }
        Ok(state.file(self.id)?.read_at(out, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check(bytes, offset)?;
        self.write_checked(bytes, offset)
    }

    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in parts {
            self.check(part, at)?;
            at = at.saturating_add(part.len() as u64);
        }
        let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
        self.write_checked(&parts.concat(), offset)
    }

    fn sync(&self, site: SyncSite) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        state.check_handle(self.generation)?;
        let carried_out = state.note_site(site);
        let gate = state.gate();
        let Some(file) = state.files.get_mut(self.id) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        match gate {
            Gate::Pass if carried_out => file.sync(),
            Gate::Pass => {}
            Gate::Fail(error, partial) => {
                if partial {
                    file.sync_some(&mut state.prng);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.state.lock();
        state.check_handle(self.generation)?;
        Ok(state.file(self.id)?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.disk.state.lock();
        state.check_handle(self.generation)?;
        let id = self.id;
        state.mutate(|state| state.file(id)?.set_len(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.disk.state.lock();
        state.check_handle(self.generation)?;
        let id = self.id;
        state.mutate(|state| {
            state.check_space(id, len)?;
            let file = state.file(id)?;
            if len > file.len() {
                file.set_len(len)
            } else {
                Ok(())
            }
        })
    }

    fn set_direct(&self) -> io::Result<bool> {
        let state = self.disk.state.lock();
        state.check_handle(self.generation)?;
        let direct = !state.refuses_direct;
        self.is_direct.store(direct, Ordering::Relaxed);
        Ok(direct)
    }

    fn set_buffered(&self) -> io::Result<()> {
        let state = self.disk.state.lock();
        state.check_handle(self.generation)?;
        self.is_direct.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn forget_cached(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.check_handle(self.generation)?;
        state.file(self.id)?.forget_cached();
        Ok(())
    }
}
