//! What a form of the fabric must provide: memory of every rank that the others can read and write, words on
//! which they are atomic, a clock, and knowledge of who is alive. Everything else (range checks, deadlines,
//! mailboxes, collectives) stands over these two traits and is the same for all forms.
//!
//! # Order
//!
//! 1. Bytes of a put, and several puts, arrive in any order until the issuer's flush of that target returns.
//! 2. After that flush they are in the target's memory: whoever then learns of it (by a word stored or added
//!    to afterwards) sees them.
//! 3. A word operation is atomic with all other word operations on that word. It is not ordered with puts
//!    that were not flushed.
//! 4. Local reads see what arrived, which may be half of a put.
//!
//! Source: Barthels, sections 2.2.3 and 2.2.5, and the passive target rules of MPI-3 that they rest on.

use crate::error::Error;

/// What is known about a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// Not known to be dead.
    pub alive: bool,
    /// How often the rank has returned after a death: its windows were empty each time.
    pub incarnation: u32,
}

/// One rank's end of a form. Windows are numbered; window 0, for the fabric's own use, is there from the
/// start.
pub trait Transport: Send + Sync {
    /// This rank's number.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn rank_count(&self) -> u32;

    /// What is known of a rank, without a look. A few nanoseconds.
    fn presence(&self, rank: u32) -> Presence;

    /// The same after a close look, which may cost some microseconds.
    fn probe(&self, rank: u32) -> Presence {
        self.presence(rank)
    }

    /// Nanoseconds since some moment. Never goes back.
    fn now_ns(&self) -> u64;

    /// How many turns of a wait go by between two readings of the clock: it costs more than a turn.
    fn clock_turns(&self) -> u32 {
        16
    }

    /// Lets others run. `turn` counts the turns of one wait, from 0.
    fn pause(&self, turn: u32);

    /// A moment at which the simulation may let another rank run, or this one die. Elsewhere nothing.
    fn step(&self) {}

    /// Makes this rank's part of a window, filled with zeros. After a return (`is_known`) it is the memory
    /// that the others know, which was made zeros before they could learn of the return.
    fn make_part(&self, window: u32, bytes: u64, is_known: bool) -> Result<(), Error>;

    /// Frees this rank's part of a window that all have closed.
    fn drop_part(&self, _window: u32) {}

    /// Opens a window of which every rank that is alive has made its part; `bytes` for each rank.
    fn open(&self, window: u32, bytes: &[u64]) -> Result<Box<dyn RawWindow>, Error>;
}

/// A window as a form provides it. Ranks and ranges were checked: a form need not look again, but must stay
/// memory-safe. Words are at multiples of eight bytes.
pub trait RawWindow: Send + Sync {
    /// Writes bytes, which the caller may change when this returns.
    fn put(&self, target: u32, offset: usize, bytes: &[u8]) -> Result<(), Error>;

    /// Writes bytes of which the first eight, at a multiple of eight, are a flag, and returns when they are
    /// in the target's memory. A form that can do it without cost makes the flag arrive last; the receiver
    /// must not rely on it.
    fn put_flagged(&self, target: u32, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.put(target, offset, bytes)?;
        self.flush(target)
    }

    /// Writes a word atomically that the target will see soon, perhaps not yet when this returns.
    fn store_soon(&self, target: u32, offset: usize, value: u64) -> Result<(), Error> {
        self.store(target, offset, value)
    }

    /// Writes bytes without a copy.
    ///
    /// # Safety
    ///
    /// The bytes stay valid and unchanged until a flush of the target that began later has returned.
    unsafe fn put_in_place(
        &self,
        target: u32,
        offset: usize,
        bytes: *const u8,
        length: usize,
    ) -> Result<(), Error>;

    /// Reads bytes without a copy.
    ///
    /// # Safety
    ///
    /// The bytes stay valid, and nobody else looks at them, until a flush of the target that began later has
    /// returned.
    unsafe fn get_in_place(
        &self,
        target: u32,
        offset: usize,
        into: *mut u8,
        length: usize,
    ) -> Result<(), Error>;

    /// Returns when everything that this rank asked of the target has happened.
    fn flush(&self, target: u32) -> Result<(), Error>;

    /// The same for all targets.
    fn flush_all(&self) -> Result<(), Error>;

    /// Adds to a word, wrapping, and returns what it was.
    fn fetch_add(&self, target: u32, offset: usize, value: u64) -> Result<u64, Error>;

    /// Stores `desired` if the word is `expected`, and returns what it was.
    fn compare_and_swap(&self, target: u32, offset: usize, expected: u64, desired: u64)
    -> Result<u64, Error>;

    /// Reads a word.
    fn load(&self, target: u32, offset: usize) -> Result<u64, Error>;

    /// Writes a word.
    fn store(&self, target: u32, offset: usize, value: u64) -> Result<(), Error>;

    /// Reads a word of this rank's own part; what was flushed before it was stored can be read afterwards.
    fn local_load(&self, offset: usize) -> u64;

    /// Reads this rank's own part.
    fn local_read(&self, offset: usize, into: &mut [u8]);

    /// Writes this rank's own part.
    fn local_write(&self, offset: usize, bytes: &[u8]);

    /// Where this rank's own part begins.
    fn local_pointer(&self) -> *const u8;
}
