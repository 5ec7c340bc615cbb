//! Files and directories behind a trait, so that a test can be the disk.
//!
//! The contract is what a careful program may expect of a POSIX file system, and no more:
//!
//! 1. A write is durable only after a later [`DiskFile::sync`] of that file returned `Ok`. Until then, after
//!    a power cut, any part of it may be there, torn within a sector or absent, in any order.
//! 2. A name is durable (made, renamed, removed) only after a later [`Disk::sync_dir`] of its directory
//!    returned `Ok`. Syncing a file does not sync its name.
//! 3. After a failed write or sync nothing is known about the bytes it covered. Whoever saw the error must
//!    stop using the file: the system may take the pages for written although they are not, go on showing
//!    them, and report success for the next sync (Rebello et al., "Can Applications Recover from fsync
//!    Failures?", 2020). What is really there shows after [`DiskFile::forget_cached`].
//!
//! A handle may be made *direct* ([`DiskFile::set_direct`]): reads and writes then pass the system's page
//! cache by, and must be aligned. Nothing of the above changes by that: the device has a cache, and lengths
//! are metadata.
//!
//! Every sync call names its place in the program ([`SyncSite`]). [`SimDisk`] can ignore one such place,
//! which is how tests show that each sync is needed and that they would notice its loss.

mod delayed;
mod direct;
mod real;
mod sim;

use std::io::{self, IoSlice};
use std::path::Path;

pub use delayed::{DelayedCall, DelayedDisk};
pub use direct::{
    AlignedBuffer, DIRECT_ALIGN, DirectWriter, WrittenFile, is_refusal, range_around, read_around,
};
pub use real::RealDisk;
pub use sim::{FaultKind, SECTOR_BYTES, SimDisk};

/// The place in the program at which a sync is called, such as `"log.segment"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SyncSite(pub &'static str);

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A file that does not exist yet, for reading and writing. Fails when the name is taken.
    CreateNew,
}

/// Names and files. All paths are as the caller gave them; nothing is made canonical.
pub trait Disk: Send + Sync {
    /// Opens or makes a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, or whatever the system says.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file; a file that has the new name is replaced in the same step.
    ///
    /// # Errors
    /// `NotFound`, or whatever the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound`, or whatever the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Names of the files in a directory, sorted. Subdirectories are left out.
    ///
    /// # Errors
    /// `NotFound`, or whatever the system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Names of the directories in a directory, sorted; none on a disk that does not keep track of them.
    ///
    /// # Errors
    /// `NotFound`, or whatever the system says.
    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        let _ = dir;
        Ok(Vec::new())
    }

    /// Makes a directory and those above it. The names of new directories are made durable by this call.
    ///
    /// # Errors
    /// Whatever the system says.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Whether a file or directory has this name.
    ///
    /// # Errors
    /// Whatever the system says, other than that it does not exist.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Whatever the system says; the state of the names is then unknown.
    fn sync_dir(&self, dir: &Path, site: SyncSite) -> io::Result<()>;

    /// Takes a directory for this process (and this value) alone. Released when the lock is dropped and when
    /// the process ends, however it ends.
    ///
    /// # Errors
    /// `WouldBlock` when someone else has it.
    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>>;
}

/// Exclusive ownership of a directory; dropping it gives the directory back.
pub trait DirLock: Send + Sync {}

/// An open file. Positions and lengths are in bytes. Methods may be called by several threads at once;
/// writes to the same bytes must be ordered by the callers.
pub trait DiskFile: Send + Sync {
    /// Reads at most `out.len()` bytes; 0 at or beyond the end.
    ///
    /// # Errors
    /// Whatever the system says.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes; the file grows when they end beyond its length.
    ///
    /// # Errors
    /// Whatever the system says; any part of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all parts, one behind the other, as one write of their bytes would.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
        self.write_at(&parts.concat(), offset)
    }

    /// Makes everything written so far, and the length, durable.
    ///
    /// # Errors
    /// Whatever the system says; the bytes' fate is then unknown and the file must not be trusted again.
    fn sync(&self, site: SyncSite) -> io::Result<()>;

    /// Asks the system to begin to write these bytes out and does not wait for it, so that a long file's sync
    /// finds little left and others' syncs do not stand behind all of it. A hint: nothing is durable by it.
    ///
    /// # Errors
    /// Whatever the system says.
    fn begin_writing_out(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// Whatever the system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is 0.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file or extends it with zeros (which take no space until written).
    ///
    /// # Errors
    /// Whatever the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Extends the file with zeros to at least `len` bytes and reserves the space for them, so that writing
    /// them later cannot run out of it.
    ///
    /// # Errors
    /// `StorageFull` when there is not enough space, or whatever the system says.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Drops what the system remembers of the file, so that the next reads come from the device. What was
    /// written and not synced stays. To be called, after a sync, before bytes are trusted that an earlier
    /// process wrote: it may have died of a failed sync.
    ///
    /// # Errors
    /// Whatever the system says.
    fn forget_cached(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes this handle's reads and writes pass the page cache by, from the next one on. `false`: the file
    /// system does not do that for this file (or asks for a coarser alignment), and nothing has changed.
    ///
    /// Positions, lengths and addresses must then be multiples of [`DIRECT_ALIGN`]; only the end of the
    /// file may end a read elsewhere. Other calls fail with `InvalidInput` and do nothing. What is written
    /// still needs a [`DiskFile::sync`]. To be called before the first read or write, and never for a file
    /// that somebody writes through the cache at the same time.
    ///
    /// # Errors
    /// Whatever the system says, other than that it does not do it.
    fn set_direct(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Takes [`DiskFile::set_direct`] back: reads and writes go through the page cache again, wherever they
    /// lie.
    ///
    /// # Errors
    /// Whatever the system says.
    fn set_buffered(&self) -> io::Result<()> {
        Ok(())
    }

    /// Fills all of `out`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before that, or as [`DiskFile::read_at`].
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            match self.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads a whole file.
///
/// # Errors
/// `NotFound`; `OutOfMemory` for a file that is too long for memory; or whatever the system says.
pub fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(len)
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.resize(len, 0);
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
