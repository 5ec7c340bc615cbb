//! Ranks that mpirun started: windows by `MPI_Win_allocate`, one passive target epoch for a window's life.
//!
//! | operation | calls |
//! |---|---|
//! | put | `MPI_Put`, `MPI_Win_flush_local`, so that the caller may reuse the bytes |
//! | put without a copy, get | `MPI_Put`, `MPI_Get` |
//! | flush | `MPI_Win_flush` |
//! | word operations | `MPI_Fetch_and_op` (SUM, NO_OP, REPLACE), `MPI_Compare_and_swap`, and a flush of the target |
//! | local words | loads of this rank's memory: the unified memory model is required of the library |
//!
//! Collectives are the fabric's own, over these: the library's have no deadline. Opening and closing a window
//! are the library's, right after a collective of ours in which every rank took part.
//!
//! # Libraries
//!
//! Open MPI 4.1: `OMPI_MCA_osc=sm` on one machine, since its default component crashes on a 64-bit
//! compare-and-swap; [`start`] sets it where the environment says nothing and all ranks are on one machine.
//! MPICH answers others only while the target is inside a call: waits call it, and a thread does so every
//! [`PROGRESS_PERIOD`] for a rank that computes.
//!
//! # Deaths
//!
//! MPI cannot tell that a rank died: mpirun ends the job. A rank that hangs costs the others a deadline.
//! Closing windows and finishing are collective in the library and have none: a rank that cannot go on calls
//! [`abort`].
//!
//! Source: Barthels, sections 4.2.1, 5.2.1, 5.2.3 and appendix B.2; his library had notified puts, MPI has
//! none.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::collective::Layout;
use crate::error::Error;
use crate::rank::Rank;
use crate::shared::{pause_turn, spin_turns};
use crate::transport::{Presence, RawWindow, Transport};

/// How often the library runs on a rank that does not call it, where it needs that.
pub const PROGRESS_PERIOD: Duration = Duration::from_micros(50);
/// The longest piece of a put or get: counts are of type int.
const PIECE_BYTES: usize = 1 << 30;

unsafe extern "C" {
    fn weft_start(rank: *mut c_int, ranks: *mut c_int, is_mpich: *mut c_int) -> c_int;
    fn weft_finish() -> c_int;
    fn weft_abort(code: c_int);
    fn weft_error_text(code: c_int, text: *mut c_char, bytes: c_int);
    fn weft_window_open(window: c_int, bytes: usize, base: *mut *mut c_void) -> c_int;
    fn weft_window_close(window: c_int) -> c_int;
    fn weft_put(
        window: c_int,
        bytes: *const c_void,
        length: c_int,
        target: c_int,
        offset: usize,
        is_copied: c_int,
    ) -> c_int;
    fn weft_get(window: c_int, into: *mut c_void, length: c_int, target: c_int, offset: usize) -> c_int;
    fn weft_flush(window: c_int, target: c_int) -> c_int;
    fn weft_flush_all(window: c_int) -> c_int;
    fn weft_fetch_add(window: c_int, target: c_int, offset: usize, value: u64, was: *mut u64) -> c_int;
    fn weft_compare_and_swap(
        window: c_int,
        target: c_int,
        offset: usize,
        expected: u64,
        desired: u64,
        was: *mut u64,
    ) -> c_int;
    fn weft_load(window: c_int, target: c_int, offset: usize, was: *mut u64) -> c_int;
    fn weft_store(window: c_int, target: c_int, offset: usize, value: u64) -> c_int;
    fn weft_store_soon(window: c_int, target: c_int, offset: usize, value: u64) -> c_int;
    fn weft_sync(window: c_int) -> c_int;
    fn weft_progress() -> c_int;
    fn weft_send(bytes: *const c_void, length: c_int, target: c_int) -> c_int;
    fn weft_receive(into: *mut c_void, length: c_int, source: c_int) -> c_int;
}

/// Whether this process was started by mpirun of Open MPI or MPICH.
#[must_use]
pub fn is_started_by_mpirun() -> bool {
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}

/// Starts MPI and gives this process's rank. Once in a process. The library is finished when the rank, all
/// its windows and mailboxes are dropped, which all ranks must do: that, too, is collective.
///
/// Call it before the process has other threads: it may set a variable of the environment.
///
/// # Errors
///
/// `Mpi`: the library refuses, or does not support several threads.
pub fn start() -> Result<Rank, Error> {
    if is_on_one_machine() && std::env::var_os("OMPI_MCA_osc").is_none() {
        // SAFETY: the caller was told to have no other threads yet that could read the environment.
        unsafe { std::env::set_var("OMPI_MCA_osc", "sm") };
    }
    let (mut rank, mut ranks, mut is_mpich) = (0, 0, 0);
    // SAFETY: the shim writes into these three variables.
    let code = unsafe { weft_start(&raw mut rank, &raw mut ranks, &raw mut is_mpich) };
    check("MPI_Init_thread", code)?;
    let number = |value: c_int| u32::try_from(value).map_err(|_| Error::misuse("a negative rank"));
    let library = Arc::new(Library {
        helper: (is_mpich != 0).then(Progress::start),
        places: Mutex::new(0),
    });
    let transport = MpiTransport {
        rank: number(rank)?,
        rank_count: number(ranks)?,
        spins: spin_turns(number(ranks)?),
        is_mpich: is_mpich != 0,
        start: Instant::now(),
        library,
    };
    let bytes = Layout::new(transport.rank_count).bytes() as u64;
    let control = transport.open(0, &vec![bytes; transport.rank_count as usize])?;
    Ok(Rank::new(Box::new(transport), control))
}

/// Ends the whole job: for a rank that cannot go on, since the others could not finish without it.
pub fn abort(code: i32) -> ! {
    // SAFETY: the shim calls the library, which ends the process; a library that was not started ends it too.
    unsafe { weft_abort(code) };
    std::process::abort()
}

/// mpirun says how many of its ranks are here.
fn is_on_one_machine() -> bool {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let (all, here) = (
        number("OMPI_COMM_WORLD_SIZE"),
        number("OMPI_COMM_WORLD_LOCAL_SIZE"),
    );
    all.is_some() && all == here
}

/// A two-sided message, for comparison with mailboxes; returns when the bytes may be reused.
///
/// # Errors
///
/// `Mpi`; `Misuse` for a message of 2 GiB and more.
pub fn send_two_sided(target: u32, bytes: &[u8]) -> Result<(), Error> {
    // SAFETY: the bytes stay while the call lasts, which is until the library has them.
    let code = unsafe { weft_send(bytes.as_ptr().cast(), int(bytes.len())?, int(target)?) };
    check("MPI_Send", code)
}

/// Waits for a two-sided message of at most this length. It has no deadline.
///
/// # Errors
///
/// `Mpi`; `Misuse`.
pub fn receive_two_sided(source: u32, into: &mut [u8]) -> Result<(), Error> {
    // SAFETY: the library writes no more than the length, into bytes that are ours.
    let code = unsafe { weft_receive(into.as_mut_ptr().cast(), int(into.len())?, int(source)?) };
    check("MPI_Recv", code)
}

fn int(value: impl TryInto<c_int>) -> Result<c_int, Error> {
    value
        .try_into()
        .map_err(|_| Error::misuse("a number too large for MPI"))
}

fn check(call: &'static str, code: c_int) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    let mut text = [0; 512];
    // SAFETY: the shim writes at most that many bytes, the last of them 0.
    let text = unsafe {
        weft_error_text(code, text.as_mut_ptr(), 512);
        CStr::from_ptr(text.as_ptr())
    };
    Err(Error::Mpi {
        call,
        answer: text.to_string_lossy().into_owned(),
    })
}

/// The library while somebody uses it.
struct Library {
    helper: Option<Progress>,
    /// Which of the shim's places for windows are taken, a bit each. They are not the fabric's numbers, which
    /// may be used again while somebody still has a window that all have closed.
    places: Mutex<u128>,
}

impl Library {
    fn take_place(&self) -> Result<c_int, Error> {
        let mut places = self.places.lock();
        let place = places.trailing_ones();
        if place == u128::BITS {
            return Err(Error::misuse("windows that were closed are still held"));
        }
        *places |= 1 << place;
        int(place)
    }

    fn free_place(&self, place: c_int) {
        *self.places.lock() &= !(1 << place);
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        self.helper = None;
        if thread::panicking() {
            // The other ranks do not finish with this one: mpirun ends the job when the process has ended.
            return;
        }
        // SAFETY: nobody uses the library any more. An error has nobody to go to.
        let _ = unsafe { weft_finish() };
    }
}

/// A thread that lets the library answer others.
struct Progress {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Acquire) {
                // SAFETY: the library was started for several threads, and is finished after this one.
                let _ = unsafe { weft_progress() };
                thread::sleep(PROGRESS_PERIOD);
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct MpiTransport {
    rank: u32,
    rank_count: u32,
    spins: u32,
    is_mpich: bool,
    start: Instant,
    library: Arc<Library>,
}

impl Transport for MpiTransport {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn rank_count(&self) -> u32 {
        self.rank_count
    }

    fn presence(&self, rank: u32) -> Presence {
        Presence {
            alive: rank < self.rank_count,
            incarnation: 0,
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn pause(&self, turn: u32) {
        if self.is_mpich {
            // SAFETY: the library is started; an error shows itself in the operation that is waited for.
            let _ = unsafe { weft_progress() };
        }
        pause_turn(turn, self.spins);
    }

    fn make_part(&self, _window: u32, _bytes: u64, _is_known: bool) -> Result<(), Error> {
        // Made when all open the window together.
        Ok(())
    }

    fn open(&self, _window: u32, bytes: &[u64]) -> Result<Box<dyn RawWindow>, Error> {
        let bytes = bytes.get(self.rank as usize).copied().unwrap_or(0);
        let too_large = |_| Error::misuse("a window larger than memory");
        let words = usize::try_from(bytes).map_err(too_large)?.div_ceil(8);
        let window = self.library.take_place()?;
        let mut base = std::ptr::null_mut();
        // SAFETY: the shim writes the address of the part.
        let code = unsafe { weft_window_open(window, words * 8, &raw mut base) };
        check("MPI_Win_allocate", code)?;
        let base = base.cast::<AtomicU64>();
        if words > 0 && (base.is_null() || !base.is_aligned()) {
            return Err(Error::misuse(
                "MPI gave memory that is not at a multiple of eight bytes",
            ));
        }
        Ok(Box::new(MpiWindow {
            window,
            base,
            words,
            library: Arc::clone(&self.library),
        }))
    }
}

struct MpiWindow {
    window: c_int,
    base: *const AtomicU64,
    words: usize,
    /// Finished after the window is closed.
    library: Arc<Library>,
}

// SAFETY: the library was started for several threads, and the memory is only reached as atomic words.
unsafe impl Send for MpiWindow {}
// SAFETY: as above.
unsafe impl Sync for MpiWindow {}

impl MpiWindow {
    fn own(&self) -> &[AtomicU64] {
        if self.words == 0 {
            return &[];
        }
        // SAFETY: MPI allocated that many words, which stay until the window is closed; any bytes are words.
        unsafe { std::slice::from_raw_parts(self.base, self.words) }
    }

    /// # Safety
    ///
    /// As for `put_in_place`, unless `is_copied`: then the bytes need only be valid during the call.
    unsafe fn put_pieces(
        &self,
        target: u32,
        offset: usize,
        bytes: *const u8,
        length: usize,
        is_copied: bool,
    ) -> Result<(), Error> {
        let target = int(target)?;
        for start in (0..length).step_by(PIECE_BYTES) {
            let piece = int((length - start).min(PIECE_BYTES))?;
            // SAFETY: the piece is inside the bytes, and the range inside the target's part, as was checked.
            let code = unsafe {
                weft_put(
                    self.window,
                    bytes.add(start).cast(),
                    piece,
                    target,
                    offset + start,
                    c_int::from(is_copied),
                )
            };
            check("MPI_Put", code)?;
        }
        Ok(())
    }
}

impl Drop for MpiWindow {
    fn drop(&mut self) {
        if !thread::panicking() {
            // SAFETY: nobody uses the window any more; all ranks close it.
            let _ = unsafe { weft_window_close(self.window) };
            self.library.free_place(self.window);
        }
    }
}

impl RawWindow for MpiWindow {
    fn put(&self, target: u32, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: the bytes are valid during the call.
        unsafe { self.put_pieces(target, offset, bytes.as_ptr(), bytes.len(), true) }
    }

    unsafe fn put_in_place(
        &self,
        target: u32,
        offset: usize,
        bytes: *const u8,
        length: usize,
    ) -> Result<(), Error> {
        // SAFETY: as the caller promises.
        unsafe { self.put_pieces(target, offset, bytes, length, false) }
    }

    unsafe fn get_in_place(
        &self,
        target: u32,
        offset: usize,
        into: *mut u8,
        length: usize,
    ) -> Result<(), Error> {
        let target = int(target)?;
        for start in (0..length).step_by(PIECE_BYTES) {
            let piece = int((length - start).min(PIECE_BYTES))?;
            // SAFETY: the piece is inside the buffer, which the caller keeps until a flush.
            let code =
                unsafe { weft_get(self.window, into.add(start).cast(), piece, target, offset + start) };
            check("MPI_Get", code)?;
        }
        Ok(())
    }

    fn flush(&self, target: u32) -> Result<(), Error> {
        // SAFETY: the window is open.
        check("MPI_Win_flush", unsafe { weft_flush(self.window, int(target)?) })
    }

    fn flush_all(&self) -> Result<(), Error> {
        // SAFETY: the window is open.
        check("MPI_Win_flush_all", unsafe { weft_flush_all(self.window) })
    }

    fn fetch_add(&self, target: u32, offset: usize, value: u64) -> Result<u64, Error> {
        let mut was = 0;
        // SAFETY: the answer is written before the call returns, which flushes.
        let code = unsafe { weft_fetch_add(self.window, int(target)?, offset, value, &raw mut was) };
        check("MPI_Fetch_and_op", code).map(|()| was)
    }

    fn compare_and_swap(
        &self,
        target: u32,
        offset: usize,
        expected: u64,
        desired: u64,
    ) -> Result<u64, Error> {
        let mut was = 0;
        let target = int(target)?;
        // SAFETY: as in `fetch_add`.
        let code =
            unsafe { weft_compare_and_swap(self.window, target, offset, expected, desired, &raw mut was) };
        check("MPI_Compare_and_swap", code).map(|()| was)
    }

    fn load(&self, target: u32, offset: usize) -> Result<u64, Error> {
        let mut was = 0;
        // SAFETY: as in `fetch_add`.
        let code = unsafe { weft_load(self.window, int(target)?, offset, &raw mut was) };
        check("MPI_Fetch_and_op", code).map(|()| was)
    }

    fn store(&self, target: u32, offset: usize, value: u64) -> Result<(), Error> {
        // SAFETY: as in `fetch_add`.
        let code = unsafe { weft_store(self.window, int(target)?, offset, value) };
        check("MPI_Fetch_and_op", code)
    }

    fn put_flagged(&self, target: u32, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: the bytes are valid until the flush, which is before this returns.
        unsafe { self.put_pieces(target, offset, bytes.as_ptr(), bytes.len(), false)? };
        self.flush(target)
    }

    fn store_soon(&self, target: u32, offset: usize, value: u64) -> Result<(), Error> {
        // SAFETY: the word is on the shim's stack until it is locally complete.
        let code = unsafe { weft_store_soon(self.window, int(target)?, offset, value) };
        check("MPI_Accumulate", code)
    }

    fn local_load(&self, offset: usize) -> u64 {
        let word = self.own().get(offset / 8);
        word.map_or(0, |word| word.load(Ordering::SeqCst))
    }

    fn local_read(&self, offset: usize, into: &mut [u8]) {
        crate::shared::copy_out(self.own(), offset, into);
    }

    fn local_write(&self, offset: usize, bytes: &[u8]) {
        crate::shared::copy_in(self.own(), offset, bytes);
        // SAFETY: the window is open; the call fails only for one that is not.
        let _ = unsafe { weft_sync(self.window) };
    }

    fn local_pointer(&self) -> *const u8 {
        self.base.cast()
    }
}
