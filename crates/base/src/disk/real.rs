//! The operating system's file system.
//!
//! Reads and writes are positional (`pread`, `pwrite`, `pwritev`), so a file has no cursor to share. A file
//! is synced with `fdatasync`, which writes the data and of the metadata only what is needed to find it
//! (the length); writing into blocks that were written before therefore costs no journal commit. A
//! directory is synced by `fsync` of its descriptor. The lock is `flock` on a file `LOCK`: the kernel
//! releases it when the process dies, so a crash never leaves a stale one.
//!
//! A handle becomes direct by `O_DIRECT` on its open file description, after `statx` was asked what
//! alignment the file wants: a file system may take the flag and go through the cache all the same (ext4
//! with journalled data), and says so there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::direct::check_alignment;
use super::{DirLock, Disk, DiskFile, OpenMode, SyncSite};

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl RealDisk {
    /// Name of the file that carries a directory's lock.
    pub const LOCK_FILE: &'static str = "LOCK";

    /// The one there is.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

struct RealFile {
    file: File,
    is_direct: AtomicBool,
}

impl RealFile {
    /// The system would refuse what is not aligned, or take what a lenient device takes: all are refused
    /// alike.
    fn check(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.is_direct.load(Ordering::Relaxed) {
            check_alignment(bytes, offset)
        } else {
            Ok(())
        }
    }
}

struct RealDirLock(#[allow(dead_code, reason = "held for its drop, which releases the lock")] File);

impl DirLock for RealDirLock {}

/// Names of the directories, or of all else, in a directory, sorted.
fn names_in(dir: &Path, directories: bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() != directories {
            continue;
        }
        // A name that is not UTF-8 is not one of ours.
        if let Ok(name) = entry.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
        }
        Ok(Box::new(RealFile {
            file: options.open(path)?,
            is_direct: AtomicBool::new(false),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        names_in(dir, false)
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        names_in(dir, true)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if dir.as_os_str().is_empty() || dir.is_dir() {
            return Ok(());
        }
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            self.create_dir_all(parent)?;
        }
        match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            other => other?,
        }
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn sync_dir(&self, dir: &Path, _site: SyncSite) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        };
        File::open(dir)?.sync_all()
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>> {
        let path = dir.join(Self::LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(&path).unwrap_or_default();
                let message = format!("{} is in use by process {}", dir.display(), holder.trim());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
            }
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        // The number is for people; the lock does not depend on it.
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Box::new(RealDirLock(file)))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check(out, offset)?;
        FileExt::read_at(&self.file, out, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check(bytes, offset)?;
        self.file.write_all_at(bytes, offset)
    }

    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in parts {
            self.check(part, at)?;
            at = at.saturating_add(part.len() as u64);
        }
        let mut parts = parts.to_vec();
        let (mut left, mut offset) = (parts.as_mut_slice(), offset);
        // Also drops empty parts in front.
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match write_some_parts(&self.file, left, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync(&self, _site: SyncSite) -> io::Result<()> {
        self.file.sync_data()
    }

    fn begin_writing_out(&self, offset: u64, bytes: u64) -> io::Result<()> {
        write_out(&self.file, offset, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let Ok(wanted) = libc::off_t::try_from(len) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        reserve(&self.file, wanted)
    }

    fn forget_cached(&self) -> io::Result<()> {
        forget_clean_pages(&self.file)
    }

    fn set_direct(&self) -> io::Result<bool> {
        let direct = pass_cache_by(&self.file)?;
        self.is_direct.store(direct, Ordering::Relaxed);
        Ok(direct)
    }

    fn set_buffered(&self) -> io::Result<()> {
        if self.is_direct.load(Ordering::Relaxed) {
            set_direct_flag(&self.file, false)?;
            self.is_direct.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Sets `O_DIRECT` if the file system can do with our alignment.
#[cfg(target_os = "linux")]
fn pass_cache_by(file: &File) -> io::Result<bool> {
    use super::direct::DIRECT_ALIGN;
    // SAFETY: `statx` is plain numbers, for which zeros are values.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open for the whole call because `file` owns it; the path is an empty C
    // string, as the flag asks; `found` is borrowed for the call, which writes nothing else.
    let asked = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut found,
        )
    };
    // Who does not say takes the flag for nothing (tmpfs), or is a kernel before 6.1, of which nobody knows.
    let fits = |align: u32| align != 0 && DIRECT_ALIGN.is_multiple_of(align as usize);
    let is_told = asked == 0 && found.stx_mask & libc::STATX_DIOALIGN != 0;
    if !is_told || !fits(found.stx_dio_mem_align) || !fits(found.stx_dio_offset_align) {
        return Ok(false);
    }
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    match set_direct_flag(file, true) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets or clears `O_DIRECT`.
#[cfg(target_os = "linux")]
fn set_direct_flag(file: &File, direct: bool) -> io::Result<()> {
    // SAFETY: the descriptor is open for the whole call because `file` owns it; the call takes and returns
    // plain numbers.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = if direct {
        flags | libc::O_DIRECT
    } else {
        flags & !libc::O_DIRECT
    };
    // SAFETY: as before.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Elsewhere there is no such thing, or another one.
#[cfg(not(target_os = "linux"))]
fn pass_cache_by(_file: &File) -> io::Result<bool> {
    Ok(false)
}

/// No handle is direct there.
#[cfg(not(target_os = "linux"))]
fn set_direct_flag(_file: &File, _direct: bool) -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
fn reserve(file: &File, len: libc::off_t) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the descriptor is open for the whole call because `file` owns it; the call takes plain numbers
    // and touches no memory of this process.
    errno_result(unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) })
}

/// Pages that are still to be written out stay.
#[cfg(target_os = "linux")]
fn forget_clean_pages(file: &File) -> io::Result<()> {
    // SAFETY: as in `reserve`. Length 0 means up to the end of the file.
    errno_result(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) })
}

#[cfg(target_os = "linux")]
fn write_out(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let (Ok(offset), Ok(bytes)) = (libc::off64_t::try_from(offset), libc::off64_t::try_from(bytes)) else {
        return Err(io::ErrorKind::FileTooLarge.into());
    };
    // SAFETY: as in `reserve`.
    let done = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // A hint that this system or file system does not take; the sync does it all.
        Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE | libc::EOPNOTSUPP) => Ok(()),
        _ => Err(error),
    }
}

/// Parts that one call of the system takes.
#[cfg(target_os = "linux")]
const PARTS_MAX: usize = 1024;

/// Writes some of the first parts, which are not all empty; how many bytes.
#[cfg(target_os = "linux")]
fn write_some_parts(file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    let Ok(offset) = libc::off_t::try_from(offset) else {
        return Err(io::ErrorKind::FileTooLarge.into());
    };
    let count = parts.len().min(PARTS_MAX) as libc::c_int;
    // SAFETY: `IoSlice` has the layout of `iovec`, the first `count` of them lie in `parts` and point to
    // memory that is borrowed for the call, which only reads it. The descriptor as in `reserve`.
    let written = unsafe { libc::pwritev(file.as_raw_fd(), parts.as_ptr().cast(), count, offset) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Elsewhere one part at a time.
#[cfg(not(target_os = "linux"))]
fn write_some_parts(file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    parts
        .first()
        .map_or(Ok(0), |part| FileExt::write_at(file, part, offset))
}

/// Elsewhere the sync does it all.
#[cfg(not(target_os = "linux"))]
fn write_out(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
    Ok(())
}

/// For calls that return the error number instead of setting it.
#[cfg(target_os = "linux")]
fn errno_result(errno: libc::c_int) -> io::Result<()> {
    if errno == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(errno))
    }
}

/// Elsewhere the length is set and the space is taken when it is written.
#[cfg(not(target_os = "linux"))]
fn reserve(file: &File, len: libc::off_t) -> io::Result<()> {
    let len = len as u64;
    if len > file.metadata()?.len() {
        file.set_len(len)
    } else {
        Ok(())
    }
}

/// Elsewhere there is no way to ask for it.
#[cfg(not(target_os = "linux"))]
fn forget_clean_pages(_file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_read_listed_renamed_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let (a, b) = (scratch.path().join("a"), scratch.path().join("b"));
        let disk = RealDisk;
        assert!(disk.open(&a, OpenMode::Read).is_err());
        let file = disk.open(&a, OpenMode::CreateNew).unwrap();
        file.write_at(b"hello", 3).unwrap();
        file.sync(SyncSite("test.file")).unwrap();
        assert_eq!(file.len().unwrap(), 8);
        let mut bytes = [9; 8];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0\0\0hello");
        assert_eq!(
            file.read_exact_at(&mut bytes, 1).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        let taken = disk.open(&a, OpenMode::CreateNew).map(|_| ()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        disk.rename(&a, &b).unwrap();
        disk.sync_dir(scratch.path(), SyncSite("test.dir")).unwrap();
        assert_eq!(disk.list(scratch.path()).unwrap(), ["b"]);
        assert_eq!(super::super::read_file(&disk, &b).unwrap(), b"\0\0\0hello");
        disk.remove(&b).unwrap();
        assert!(!disk.exists(&b).unwrap());
    }

    #[test]
    fn parts_are_written_one_after_another() {
        let scratch = tempfile::tempdir().unwrap();
        let file = RealDisk
            .open(&scratch.path().join("a"), OpenMode::CreateNew)
            .unwrap();
        // More than one call takes, of all lengths, empty ones among them.
        let parts: Vec<Vec<u8>> = (0..3000_usize).map(|n| vec![n as u8; n % 7]).collect();
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        file.write_parts_at(&slices, 5).unwrap();
        file.write_parts_at(&[], 0).unwrap();
        file.write_parts_at(&[IoSlice::new(b""), IoSlice::new(b"x")], 0)
            .unwrap();
        let mut whole = b"x\0\0\0\0".to_vec();
        whole.extend(parts.concat());
        let mut bytes = vec![9; whole.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == whole && file.len().unwrap() == whole.len() as u64);
        assert!(file.write_parts_at(&slices, u64::MAX - 3).is_err());
        let read_only = RealDisk.open(&scratch.path().join("a"), OpenMode::Read).unwrap();
        assert!(read_only.write_parts_at(&slices, 0).is_err());
    }

    #[test]
    fn allocate_extends_with_zeros_and_keeps_what_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        let file = RealDisk
            .open(&scratch.path().join("a"), OpenMode::CreateNew)
            .unwrap();
        file.write_at(b"x", 0).unwrap();
        file.allocate(0).unwrap();
        file.allocate(4096).unwrap();
        assert_eq!(file.len().unwrap(), 4096);
        let mut bytes = [9; 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"x\0\0\0");
        assert!(file.allocate(u64::MAX).is_err());
        file.sync(SyncSite("test.file")).unwrap();
        file.write_at(b"y", 1).unwrap();
        file.forget_cached().unwrap();
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"xy\0\0", "neither synced nor pending bytes are lost");
    }

    #[test]
    fn a_directory_has_one_owner() {
        let scratch = tempfile::tempdir().unwrap();
        let lock = RealDisk.lock_dir(scratch.path()).unwrap();
        let refused = RealDisk.lock_dir(scratch.path()).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(
            refused.to_string().contains(&std::process::id().to_string()),
            "{refused}"
        );
        drop(lock);
        RealDisk.lock_dir(scratch.path()).unwrap();
    }

    #[test]
    fn nested_directories() {
        let scratch = tempfile::tempdir().unwrap();
        let deep = scratch.path().join("x/y/z");
        RealDisk.create_dir_all(&deep).unwrap();
        RealDisk.create_dir_all(&deep).unwrap();
        assert!(RealDisk.exists(&deep).unwrap());
        assert!(RealDisk.list(scratch.path()).unwrap().is_empty());
    }
}
