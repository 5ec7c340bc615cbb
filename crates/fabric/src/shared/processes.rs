//! Ranks that are processes of one machine and share files in memory.
//!
//! A launcher makes a folder, in `/dev/shm` as a rule, and starts processes that find it by two variables of
//! their environment:
//!
//! ```text
//! <folder>/control        head | one record a rank | the control part of each rank
//! <folder>/w<W>-r<R>      part of window W at rank R, made by rank R
//!
//! head, 64 bytes          magic | ranks
//! record, 64 bytes        state | process id | start time of the process
//! state                   incarnation (upper 32 bits) | 0 not joined, 1 joined, 2 left, 3 found dead
//! ```
//!
//! # Deaths
//!
//! No lock is ever held: a record belongs to its rank, and whoever finds a rank dead exchanges its state word
//! against "found dead", which fails if the rank has returned meanwhile. A process is dead when it does not
//! exist, is a zombie, or another with the same number started at another time. One that hangs is not dead:
//! the deadlines of those who wait for it are for that.
//!
//! The files are memory that ranks share, not storage: they do not go through `base`'s disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::words::{Mapping, Memory};
use super::{Directory, rank_over};
use crate::collective::Layout;
use crate::error::Error;
use crate::rank::Rank;
use crate::transport::Presence;

/// Where the folder is as a rule.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// The folder, for a process that the launcher starts.
pub const PATH_VARIABLE: &str = "WEFT_FABRIC_PATH";
/// The rank, likewise.
pub const RANK_VARIABLE: &str = "WEFT_FABRIC_RANK";

/// "weftfab" and the version of the layout.
const MAGIC: u64 = 0x7765_6674_6661_6201;
const PAGE: usize = 4096;
/// Words of the head, and of each record.
const RECORD_WORDS: usize = 8;
const STATE: usize = 0;

const JOINED: u64 = 1;
const LEFT: u64 = 2;
const FOUND_DEAD: u64 = 3;

/// A fabric of processes, as its launcher has it. Dropping it removes the files; ranks that still run keep
/// their memory.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    rank_count: u32,
}

impl Session {
    /// Makes the files for so many ranks in a new folder inside `parent`.
    ///
    /// # Errors
    ///
    /// `System`.
    pub fn create(parent: &Path, rank_count: u32) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("weft-fabric-{}-{number}", std::process::id()));
        let failed = |error: io::Error| Error::system(format!("making {}", path.display()), &error);
        fs::create_dir(&path).map_err(failed)?;
        let session = Self {
            path: path.clone(),
            rank_count,
        };
        let file = open(&path.join("control"), true).map_err(failed)?;
        reserve(&file, control_bytes(rank_count) as u64).map_err(failed)?;
        let control = Mapping::of(&file, PAGE).map_err(failed)?;
        if let [magic, ranks, ..] = &*control {
            ranks.store(u64::from(rank_count), Ordering::SeqCst);
            magic.store(MAGIC, Ordering::SeqCst);
        }
        Ok(session)
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many ranks there are.
    #[must_use]
    pub fn rank_count(&self) -> u32 {
        self.rank_count
    }

    /// Starts a process as a rank; it calls [`from_environment`].
    ///
    /// # Errors
    ///
    /// `System`.
    pub fn spawn(&self, rank: u32, command: &mut Command) -> Result<Child, Error> {
        command
            .env(PATH_VARIABLE, &self.path)
            .env(RANK_VARIABLE, rank.to_string())
            .spawn()
            .map_err(|error| Error::system(format!("starting rank {rank}"), &error))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nothing is lost if this fails: a folder in memory stays until the machine restarts.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The rank that this process was started as, if it was started by [`Session::spawn`].
///
/// # Errors
///
/// As for [`join`]; `Misuse` for a variable that is no number.
pub fn from_environment() -> Result<Option<Rank>, Error> {
    let (Some(path), Some(rank)) = (std::env::var_os(PATH_VARIABLE), std::env::var_os(RANK_VARIABLE)) else {
        return Ok(None);
    };
    let rank = rank.to_str().and_then(|rank| rank.parse().ok());
    let rank = rank.ok_or_else(|| Error::misuse(format!("{RANK_VARIABLE} is not a number")))?;
    join(Path::new(&path), rank).map(Some)
}

/// Joins as a rank. If the rank was there before and has died, this is its return.
///
/// # Errors
///
/// `System`; `Misuse` if the files are not of this layout, or a process that is alive has the rank;
/// `NoSuchRank`.
pub fn join(path: &Path, rank: u32) -> Result<Rank, Error> {
    let failed = |error: io::Error| Error::system(format!("joining {}", path.display()), &error);
    let file = open(&path.join("control"), false).map_err(failed)?;
    let rank_count = read_head(&file)?;
    if rank >= rank_count {
        return Err(Error::NoSuchRank { rank, rank_count });
    }
    if file.metadata().map_err(failed)?.len() < control_bytes(rank_count) as u64 {
        return Err(Error::misuse("the control file of a fabric is cut off"));
    }
    let control = Mapping::of(&file, control_bytes(rank_count)).map_err(failed)?;
    let mut files = Files {
        path: path.to_owned(),
        rank,
        rank_count,
        incarnation: 0,
        is_claimed: false,
        control: Arc::new(Memory::Mapped(control)),
        file,
    };
    files.incarnation = files.claim()?;
    files.is_claimed = true;
    rank_over(Arc::new(files), rank)
}

fn read_head(file: &File) -> Result<u32, Error> {
    let foreign = || Error::misuse("the control file is not of a fabric of this version");
    if !file.metadata().is_ok_and(|about| about.len() >= PAGE as u64) {
        return Err(foreign());
    }
    let head = Mapping::of(file, PAGE).map_err(|error| Error::system("mapping a control file", &error))?;
    match &*head {
        [magic, ranks, ..] if magic.load(Ordering::SeqCst) == MAGIC => {
            u32::try_from(ranks.load(Ordering::SeqCst)).map_err(|_| foreign())
        }
        _ => Err(foreign()),
    }
}

fn control_bytes(rank_count: u32) -> usize {
    control_part(rank_count, rank_count)
}

/// Where the control part of a rank begins.
fn control_part(rank: u32, rank_count: u32) -> usize {
    let records = (RECORD_WORDS * 8 * (1 + rank_count as usize)).next_multiple_of(PAGE);
    records + rank as usize * Layout::new(rank_count).bytes().next_multiple_of(PAGE)
}

fn open(path: &Path, is_new: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(is_new)
        .open(path)
}

/// Gives a file its length and its memory: without that a full file system would end the process that first
/// touches a page.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(());
    }
    // SAFETY: the descriptor is open while the file is borrowed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

struct Files {
    path: PathBuf,
    rank: u32,
    rank_count: u32,
    incarnation: u32,
    is_claimed: bool,
    control: Arc<Memory>,
    file: File,
}

impl Files {
    fn record(&self, rank: u32) -> Option<&[AtomicU64]> {
        let start = RECORD_WORDS * (1 + rank as usize);
        self.control.get(start..start + RECORD_WORDS)
    }

    fn state_of(&self, rank: u32) -> u64 {
        let word = self.record(rank).and_then(|record| record.get(STATE));
        word.map_or(0, |word| word.load(Ordering::SeqCst))
    }

    /// Takes the rank for this process: incarnation 0 the first time, one more each time.
    fn claim(&self) -> Result<u32, Error> {
        if self.probe(self.rank).alive && self.state_of(self.rank) & 0xffff_ffff == JOINED {
            return Err(Error::misuse(format!(
                "rank {} is another process's, which is alive",
                self.rank
            )));
        }
        let Some([state, process, started, ..]) = self.record(self.rank) else {
            return Err(Error::misuse("the control file is too short"));
        };
        let old = state.load(Ordering::SeqCst);
        let incarnation = if old == 0 { 0 } else { (old >> 32) + 1 };
        let me = std::process::id();
        // Of two processes that want to be this rank one finds the number changed.
        let before = process.load(Ordering::SeqCst);
        process
            .compare_exchange(before, u64::from(me), Ordering::SeqCst, Ordering::SeqCst)
            .map_err(|_| Error::misuse(format!("rank {} is being taken by another process", self.rank)))?;
        started.store(start_time(me).unwrap_or(0), Ordering::SeqCst);
        // The first time it is zeros, and ranks that joined before may have written to it.
        if incarnation > 0 {
            self.zero_control();
            let failed = |error| Error::system("emptying the parts of a rank that returns", &error);
            self.zero_parts().map_err(failed)?;
        }
        state.store(incarnation << 32 | JOINED, Ordering::SeqCst);
        u32::try_from(incarnation).map_err(|_| Error::misuse("a rank returned too often"))
    }

    fn zero_control(&self) {
        let start = control_part(self.rank, self.rank_count) / 8;
        let words = Layout::new(self.rank_count).bytes() / 8;
        for word in self.control.iter().skip(start).take(words) {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Empties the parts that the others know, before they can learn of the return.
    fn zero_parts(&self) -> io::Result<()> {
        let ending = format!("-r{}", self.rank);
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if name.starts_with('w') && name.ends_with(&ending) {
                let file = open(&path, false)?;
                let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
                let part = Mapping::of(&file, bytes)?;
                part.iter().for_each(|word| word.store(0, Ordering::SeqCst));
            }
        }
        Ok(())
    }

    fn part_path(&self, window: u32, rank: u32) -> PathBuf {
        self.path.join(format!("w{window}-r{rank}"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let joined = u64::from(self.incarnation) << 32;
        let state = self.record(self.rank).and_then(|record| record.get(STATE));
        if let (Some(state), true) = (state, self.is_claimed) {
            let (from, to) = (joined | JOINED, joined | LEFT);
            // Fails where the rank was found dead, which it then may stay.
            let _ = state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

impl Directory for Files {
    fn rank_count(&self) -> u32 {
        self.rank_count
    }

    fn presence(&self, rank: u32) -> Presence {
        let state = self.state_of(rank);
        Presence {
            alive: !matches!(state & 0xffff_ffff, LEFT | FOUND_DEAD),
            incarnation: (state >> 32) as u32,
        }
    }

    fn probe(&self, rank: u32) -> Presence {
        if let Some(record) = self.record(rank)
            && let [state, process, started, ..] = record
        {
            let seen = state.load(Ordering::SeqCst);
            let (id, at) = (process.load(Ordering::SeqCst), started.load(Ordering::SeqCst));
            if seen & 0xffff_ffff == JOINED && !is_running(id, at) {
                let dead = seen & !0xffff_ffff | FOUND_DEAD;
                let _ = state.compare_exchange(seen, dead, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
        self.presence(rank)
    }

    fn make_part(&self, window: u32, rank: u32, bytes: u64, is_known: bool) -> Result<(), Error> {
        let path = self.part_path(window, rank);
        let failed = |error: io::Error| Error::system(format!("making {}", path.display()), &error);
        if is_known && path.exists() {
            return Ok(());
        }
        if path.exists() {
            // Of a window that was closed: others may still have it mapped.
            fs::remove_file(&path).map_err(failed)?;
        }
        let file = open(&path, true).map_err(failed)?;
        reserve(&file, bytes.next_multiple_of(8)).map_err(failed)
    }

    fn drop_part(&self, window: u32, rank: u32) {
        let _ = fs::remove_file(self.part_path(window, rank));
    }

    fn part(&self, window: u32, rank: u32, bytes: u64) -> Result<Arc<Memory>, Error> {
        let too_large = |_| Error::misuse("a window larger than memory");
        let bytes = usize::try_from(bytes).map_err(too_large)?;
        if window == 0 {
            let start = control_part(rank, self.rank_count) as u64;
            let mapping = Mapping::at(&self.file, start, bytes);
            let mapping = mapping.map_err(|error| Error::system("mapping a control part", &error))?;
            return Ok(Arc::new(Memory::Mapped(mapping)));
        }
        let path = self.part_path(window, rank);
        let failed = |error: io::Error| Error::system(format!("opening {}", path.display()), &error);
        let file = open(&path, false).map_err(failed)?;
        // Memory behind a file's end cannot be touched without a signal: the length is checked first.
        let length = file.metadata().map_err(failed)?.len();
        let expected = (bytes as u64).next_multiple_of(8);
        if length != expected {
            return Err(Error::Disagreement {
                what: format!("bytes of {}", path.display()),
                rank,
                ours: expected,
                theirs: length,
            });
        }
        let mapping = Mapping::of(&file, bytes).map_err(failed)?;
        Ok(Arc::new(Memory::Mapped(mapping)))
    }
}

/// Whether the process that started at that time still runs.
fn is_running(process: u64, started: u64) -> bool {
    let Ok(id) = libc::pid_t::try_from(process) else {
        return false;
    };
    // SAFETY: signal 0 is not sent; the system only says whether the process exists.
    let exists =
        unsafe { libc::kill(id, 0) } == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    let (Some((state, at)), true) = (u32::try_from(process).ok().and_then(status), exists) else {
        // Without /proc the system's word is all there is.
        return exists && !Path::new("/proc/self/stat").exists();
    };
    !matches!(state, 'Z' | 'X') && (started == 0 || at == started)
}

fn start_time(process: u32) -> Option<u64> {
    status(process).map(|(_, started)| started)
}

/// State and start time, in clock ticks, of a process.
fn status(process: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some((state, started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "looks at processes")]
    fn a_process_is_known_by_number_and_start() {
        let me = std::process::id();
        let started = start_time(me).unwrap();
        assert!(is_running(u64::from(me), started));
        assert!(
            !is_running(u64::from(me), started + 1),
            "another with this number"
        );
        assert!(!is_running(u64::MAX, 0));
        let mut child = Command::new("true").spawn().unwrap();
        let of_child = u64::from(child.id());
        let started = start_time(child.id()).unwrap_or(0);
        while is_running(of_child, started) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn a_rank_is_one_process_and_a_foreign_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::create(folder.path(), 2).unwrap();
        let rank = join(session.path(), 1).unwrap();
        assert!(matches!(join(session.path(), 1), Err(Error::Misuse { .. })));
        assert!(matches!(join(session.path(), 2), Err(Error::NoSuchRank { .. })));
        drop(rank);
        let rank = join(session.path(), 1).unwrap();
        assert_eq!(rank.incarnation(), 1);
        fs::write(folder.path().join("control"), vec![7; 5000]).unwrap();
        assert!(matches!(join(folder.path(), 0), Err(Error::Misuse { .. })));
        fs::write(folder.path().join("control"), "short").unwrap();
        assert!(matches!(join(folder.path(), 0), Err(Error::Misuse { .. })));
    }
}
