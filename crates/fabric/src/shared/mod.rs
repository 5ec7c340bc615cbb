//! Ranks that share memory: threads of one process, and processes of one machine.
//!
//! Both are the same transport over a [`Directory`], which says where the parts of windows are and who is
//! alive. A put is a copy into the target's part, and done when the call returns; a flush is a fence.

pub mod processes;
pub mod threads;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use crate::collective::Layout;
use crate::error::Error;
use crate::rank::Rank;
use crate::transport::{Presence, RawWindow, Transport};
pub(crate) use words::{Memory, copy_in, copy_out};

/// Turns of a wait in which a rank with a processor of its own spins.
const SPIN_TURNS: u32 = 200;
/// Turns from which on a wait sleeps between looks: after about a millisecond of yielding.
const SLEEP_TURNS: u32 = 4096;
const SLEEP: Duration = Duration::from_micros(50);

/// Where parts are and who is alive.
pub(crate) trait Directory: Send + Sync {
    fn rank_count(&self) -> u32;
    fn presence(&self, rank: u32) -> Presence;
    fn probe(&self, rank: u32) -> Presence;
    /// Makes a part of zeros; nothing for one that the others know.
    fn make_part(&self, window: u32, rank: u32, bytes: u64, is_known: bool) -> Result<(), Error>;
    /// Forgets a part.
    fn drop_part(&self, window: u32, rank: u32);
    /// A part that was made.
    fn part(&self, window: u32, rank: u32, bytes: u64) -> Result<Arc<Memory>, Error>;
}

/// A rank over a directory; its own part of the control window was made.
pub(crate) fn rank_over(directory: Arc<dyn Directory>, rank: u32) -> Result<Rank, Error> {
    let transport = SharedTransport {
        rank,
        spins: spin_turns(directory.rank_count()),
        directory,
        start: Instant::now(),
    };
    let bytes = Layout::new(transport.rank_count()).bytes() as u64;
    let control = transport.open(0, &vec![bytes; transport.rank_count() as usize])?;
    Ok(Rank::new(Box::new(transport), control))
}

/// One turn of a wait: spin, then yield, then sleep.
pub(crate) fn pause_turn(turn: u32, spins: u32) {
    if turn < spins {
        // Not even a pause instruction: it takes as long as the answer, and a virtual machine may leave for
        // it.
    } else if turn < SLEEP_TURNS {
        thread::yield_now();
    } else {
        thread::sleep(SLEEP);
    }
}

/// How many turns a wait may spin: none where ranks outnumber the machine's processors, since spinning would
/// keep the processor from the rank that is waited for. Not those that this process may use: mpirun binds
/// each rank to one of its own.
pub(crate) fn spin_turns(rank_count: u32) -> u32 {
    // SAFETY: asks the system for a number.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    if i64::from(rank_count) <= processors {
        SPIN_TURNS
    } else {
        0
    }
}

struct SharedTransport {
    rank: u32,
    spins: u32,
    directory: Arc<dyn Directory>,
    start: Instant,
}

impl Transport for SharedTransport {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn rank_count(&self) -> u32 {
        self.directory.rank_count()
    }

    fn presence(&self, rank: u32) -> Presence {
        self.directory.presence(rank)
    }

    fn probe(&self, rank: u32) -> Presence {
        self.directory.probe(rank)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn pause(&self, turn: u32) {
        pause_turn(turn, self.spins);
    }

    fn make_part(&self, window: u32, bytes: u64, is_known: bool) -> Result<(), Error> {
        self.directory.make_part(window, self.rank, bytes, is_known)
    }

    fn drop_part(&self, window: u32) {
        self.directory.drop_part(window, self.rank);
    }

    fn open(&self, window: u32, bytes: &[u64]) -> Result<Box<dyn RawWindow>, Error> {
        let parts = (0_u32..)
            .zip(bytes)
            .map(|(rank, bytes)| self.directory.part(window, rank, *bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let own = parts
            .get(self.rank as usize)
            .cloned()
            .ok_or_else(|| Error::misuse("a window without a part of its own rank"))?;
        Ok(Box::new(SharedWindow { own, parts }))
    }
}

struct SharedWindow {
    own: Arc<Memory>,
    parts: Vec<Arc<Memory>>,
}

impl SharedWindow {
    fn words(&self, target: u32) -> &[AtomicU64] {
        self.parts.get(target as usize).map_or(&[], |part| part)
    }

    fn word(&self, target: u32, offset: usize) -> Result<&AtomicU64, Error> {
        let word = self.words(target).get(offset / 8);
        word.ok_or_else(|| Error::misuse("a word outside its window"))
    }
}

impl RawWindow for SharedWindow {
    fn put(&self, target: u32, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        copy_in(self.words(target), offset, bytes);
        Ok(())
    }

    fn put_flagged(&self, target: u32, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let Some((flag, rest)) = bytes.split_first_chunk::<8>() else {
            return self.put(target, offset, bytes);
        };
        copy_in(self.words(target), offset + 8, rest);
        // Release: the copies above are seen by whoever sees the flag.
        self.word(target, offset)?
            .store(u64::from_ne_bytes(*flag), Ordering::Release);
        Ok(())
    }

    unsafe fn put_in_place(
        &self,
        target: u32,
        offset: usize,
        bytes: *const u8,
        length: usize,
    ) -> Result<(), Error> {
        // SAFETY: the caller keeps the bytes valid and unchanged for longer than this call.
        self.put(target, offset, unsafe {
            std::slice::from_raw_parts(bytes, length)
        })
    }

    unsafe fn get_in_place(
        &self,
        target: u32,
        offset: usize,
        into: *mut u8,
        length: usize,
    ) -> Result<(), Error> {
        // SAFETY: the caller keeps the bytes valid and looks at them only later; they are initialised.
        let into = unsafe { std::slice::from_raw_parts_mut(into, length) };
        copy_out(self.words(target), offset, into);
        Ok(())
    }

    fn flush(&self, _target: u32) -> Result<(), Error> {
        // What was copied in is before, what is stored later is behind; also for relaxed stores.
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn flush_all(&self) -> Result<(), Error> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn fetch_add(&self, target: u32, offset: usize, value: u64) -> Result<u64, Error> {
        Ok(self.word(target, offset)?.fetch_add(value, Ordering::SeqCst))
    }

    fn compare_and_swap(
        &self,
        target: u32,
        offset: usize,
        expected: u64,
        desired: u64,
    ) -> Result<u64, Error> {
        let word = self.word(target, offset)?;
        match word.compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(was) | Err(was) => Ok(was),
        }
    }

    fn load(&self, target: u32, offset: usize) -> Result<u64, Error> {
        Ok(self.word(target, offset)?.load(Ordering::SeqCst))
    }

    fn store(&self, target: u32, offset: usize, value: u64) -> Result<(), Error> {
        self.word(target, offset)?.store(value, Ordering::SeqCst);
        Ok(())
    }

    fn store_soon(&self, target: u32, offset: usize, value: u64) -> Result<(), Error> {
        // Release: a SeqCst store would wait until the word's cache line has come from the target.
        self.word(target, offset)?.store(value, Ordering::Release);
        Ok(())
    }

    fn local_load(&self, offset: usize) -> u64 {
        let word = self.own.get(offset / 8);
        word.map_or(0, |word| word.load(Ordering::SeqCst))
    }

    fn local_read(&self, offset: usize, into: &mut [u8]) {
        copy_out(&self.own, offset, into);
    }

    fn local_write(&self, offset: usize, bytes: &[u8]) {
        copy_in(&self.own, offset, bytes);
        fence(Ordering::SeqCst);
    }

    fn local_pointer(&self) -> *const u8 {
        self.own.as_ptr().cast()
    }
}
