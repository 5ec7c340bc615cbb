//! Names of the simulated disk: what programs see, what is durable, and the operations between.
//!
//! Directories are durable as soon as they are made (see `Disk::create_dir_all`); only names of files can be
//! lost. Invariant: `durable` with all of `pending` applied in order is `current`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::FileId;
use crate::random::Prng;

/// A change of names that a crash may undo until its directory is synced.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    /// A new name for a new file.
    Create { path: PathBuf, id: FileId },
    /// Another name for the same file; takes the place of what had it. As in a directory on disk, the new
    /// entry says which file it is, whatever became of the old one.
    Rename { from: PathBuf, to: PathBuf, id: FileId },
    /// The name is gone.
    Remove { path: PathBuf },
}

#[derive(Clone, Default, Debug)]
pub(super) struct Names {
    current: BTreeMap<PathBuf, FileId>,
    durable: BTreeMap<PathBuf, FileId>,
    pending: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
}

impl NameChange {
    /// What an undone earlier change left away is not missed.
    fn apply(&self, names: &mut BTreeMap<PathBuf, FileId>) {
        match self {
            Self::Create { path, id } => {
                names.insert(path.clone(), *id);
            }
            Self::Rename { from, to, id } => {
                if names.get(from) == Some(id) {
                    names.remove(from);
                }
                names.insert(to.clone(), *id);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
        }
    }

    fn touches(&self, dir: &Path) -> bool {
        let within = |path: &Path| parent_of(path) == dir;
        match self {
            Self::Create { path, .. } | Self::Remove { path } => within(path),
            Self::Rename { from, to, .. } => within(from) || within(to),
        }
    }
}

impl Names {
    pub(super) fn find(&self, path: &Path) -> io::Result<FileId> {
        self.current.get(path).copied().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} does not exist", path.display()),
            )
        })
    }

    /// The files that have a name.
    pub(super) fn files(&self) -> impl Iterator<Item = FileId> {
        self.current.values().copied()
    }

    pub(super) fn check_free(&self, path: &Path) -> io::Result<()> {
        self.check_parent(path)?;
        if self.current.contains_key(path) || self.dirs.contains(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(())
    }

    pub(super) fn check_parent(&self, path: &Path) -> io::Result<()> {
        if self.has_dir(parent_of(path)) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    pub(super) fn has_dir(&self, dir: &Path) -> bool {
        // The root and the working directory are always there.
        dir.as_os_str().is_empty() || dir == Path::new("/") || self.dirs.contains(dir)
    }

    pub(super) fn create_dir_all(&mut self, dir: &Path) {
        for ancestor in dir.ancestors() {
            self.dirs.insert(ancestor.to_owned());
        }
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if !self.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = self.current.keys().filter(|path| parent_of(path) == dir);
        Ok(inside
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect())
    }

    pub(super) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    /// Carries over the pending changes of a directory, in order.
    pub(super) fn sync_dir(&mut self, dir: &Path) {
        let (synced, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|change| change.touches(dir));
        for change in synced {
            change.apply(&mut self.durable);
        }
        self.pending = rest;
    }

    /// Half of the crashes keep a prefix of the pending changes, as a journal does; the others any subset.
    pub(super) fn crash(&mut self, prng: &mut Prng) {
        let pending = std::mem::take(&mut self.pending);
        if prng.chance(1, 2) {
            let kept = prng.below(pending.len() as u64 + 1) as usize;
            pending
                .iter()
                .take(kept)
                .for_each(|change| change.apply(&mut self.durable));
        } else {
            for change in &pending {
                if prng.chance(1, 2) {
                    change.apply(&mut self.durable);
                }
            }
        }
        self.current.clone_from(&self.durable);
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}
