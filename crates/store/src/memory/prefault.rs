//! Prefaulting: pages are populated before they are used.
//!
//! The first access to a page stops the thread until the system has found and cleared a page: some hundred
//! microseconds for 2 MB, in the middle of a transaction. So a background thread has the system populate the
//! memory that will be used next. The first arena that has grown to some ten megabytes starts it, one thread
//! per arena, and it ends with the arena. It keeps no memory alive: memory that the arena returns is gone.
//! Where the system does not support this, or there is no thread, or no memory at that moment, pages come at
//! their first access as usual. What happened is counted ([`PrefaultedPages`]).

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};

use weft_base::memory::{HUGE_PAGE_BYTES, PageMemory};

/// Requests that may wait; a caller that finds the queue full asks again later.
const WAITING_MAX: usize = 16;

/// Memory that will be needed soon: an extent and a range of its bytes.
type Piece = (Weak<PageMemory>, Range<usize>);

/// The results of prefaulting since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefaultedPages {
    /// Bytes that the system populated. Not counted: what it refused, and pages that were populated already
    /// because somebody had touched them; 0 if the system does not tell which pages are populated.
    pub bytes: u64,
    /// Times that the system had no memory at that moment.
    pub refused: u64,
    /// Prefaulting has stopped: the system does not know the call, or there was no thread for it.
    pub stopped: bool,
}

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    refused: AtomicU64,
    stopped: AtomicBool,
}

/// Has pages populated by a background thread.
#[derive(Debug, Default)]
pub(super) struct Prefaulter {
    worker: WorkerState,
    counts: Arc<Counts>,
}

/// The state of the background thread.
#[derive(Debug, Default)]
enum WorkerState {
    /// Not started yet.
    #[default]
    Idle,
    Busy(SyncSender<Piece>),
    /// Not possible here.
    Impossible,
}

impl Prefaulter {
    /// Has a part of an extent populated. False: not now; ask again.
    pub(super) fn ask(&mut self, extent: &Arc<PageMemory>, part: Range<usize>) -> bool {
        if let WorkerState::Idle = self.worker {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let counts = Arc::clone(&self.counts);
            let thread = std::thread::Builder::new().name("weft-pages".to_owned());
            let populate = |extent: &PageMemory, from, bytes| extent.populate(from, bytes);
            match thread.spawn(move || serve(&receiver, &counts, populate)) {
                Ok(_) => self.worker = WorkerState::Busy(sender),
                Err(_) => self.stop(),
            }
        }
        let WorkerState::Busy(sender) = &self.worker else {
            return true;
        };
        match sender.try_send((Arc::downgrade(extent), part)) {
            Ok(()) => true,
            Err(std::sync::mpsc::TrySendError::Full(_)) => false,
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => {
                self.stop();
                true
            }
        }
    }

    /// The results so far.
    pub(super) fn pages(&self) -> PrefaultedPages {
        PrefaultedPages {
            bytes: self.counts.bytes.load(Ordering::Relaxed),
            refused: self.counts.refused.load(Ordering::Relaxed),
            stopped: self.counts.stopped.load(Ordering::Relaxed),
        }
    }

    fn stop(&mut self) {
        self.worker = WorkerState::Impossible;
        self.counts.stopped.store(true, Ordering::Relaxed);
    }
}

/// Runs until the arena is gone or the system refuses for good.
fn serve(
    pieces: &Receiver<Piece>,
    counts: &Counts,
    populate: impl Fn(&PageMemory, usize, usize) -> io::Result<()>,
) {
    while let Ok((extent, part)) = pieces.recv() {
        for from in part.clone().step_by(HUGE_PAGE_BYTES) {
            let bytes = HUGE_PAGE_BYTES.min(part.end - from);
            // It is gone, and so is the need.
            let Some(extent) = extent.upgrade() else {
                break;
            };
            // The user may have been faster: pages that it touched first were not prefaulted.
            let before = extent.resident_bytes(from, bytes);
            let answer = populate(&extent, from, bytes);
            let given = extent.resident_bytes(from, bytes).saturating_sub(before);
            counts.bytes.fetch_add(given as u64, Ordering::Relaxed);
            match answer {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    counts.stopped.store(true, Ordering::Relaxed);
                    return;
                }
                Err(_) => {
                    // If there is no memory then either, its user will be told.
                    counts.refused.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_base::memory::Pages;

    use super::*;

    const MB: usize = 1 << 20;

    /// The counts after two pieces of 4 MB each, of a memory in ordinary pages some of which were touched
    /// before, where this is what the system does.
    fn after_two_pieces(
        touched: usize,
        populate: impl Fn(&PageMemory, usize, usize) -> io::Result<()>,
    ) -> PrefaultedPages {
        let extent = Arc::new(PageMemory::new(8 * MB, Pages::Ordinary).unwrap());
        touch(&extent, 0, touched);
        let (sender, receiver) = sync_channel(WAITING_MAX);
        for part in [0..4 * MB, 4 * MB..8 * MB] {
            sender.send((Arc::downgrade(&extent), part)).unwrap();
        }
        drop(sender);
        let ahead = Prefaulter::default();
        serve(&receiver, &ahead.counts, populate);
        ahead.pages()
    }

    /// What a first touch does: every page of so many bytes comes.
    fn touch(extent: &PageMemory, from: usize, bytes: usize) {
        for at in (from..from + bytes).step_by(4096) {
            // SAFETY: inside the memory, which is the test's.
            unsafe { extent.base().add(at).write(1) };
        }
    }

    #[test]
    fn refusals_of_the_system_are_counted() {
        let no_memory = PrefaultedPages {
            refused: 2,
            ..PrefaultedPages::default()
        };
        let refuses = |kind: io::ErrorKind| after_two_pieces(0, move |_, _, _| Err(kind.into()));
        assert_eq!(refuses(io::ErrorKind::OutOfMemory), no_memory);
        let unknown = PrefaultedPages {
            stopped: true,
            ..PrefaultedPages::default()
        };
        assert_eq!(refuses(io::ErrorKind::Unsupported), unknown);
    }

    /// What was given counts, not what was asked for.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn memory_of_the_system_is_counted() {
        let given = |bytes: usize, refused| PrefaultedPages {
            bytes: bytes as u64,
            refused,
            stopped: false,
        };
        let gives_all = |extent: &PageMemory, from, bytes| {
            touch(extent, from, bytes);
            Ok(())
        };
        assert_eq!(after_two_pieces(0, gives_all), given(8 * MB, 0));
        // Somebody was faster.
        assert_eq!(after_two_pieces(MB, gives_all), given(7 * MB, 0));
        // Half of the first 2 MB of each piece, then nothing any more.
        let gives_half = |extent: &PageMemory, from, bytes| {
            touch(extent, from, bytes / 2);
            Err(io::ErrorKind::OutOfMemory.into())
        };
        assert_eq!(after_two_pieces(0, gives_half), given(2 * MB, 2));
        assert_eq!(after_two_pieces(0, |_, _, _| Ok(())), given(0, 0));
    }

    /// What is asked for comes, or the counts say why not.
    #[test]
    fn requested_memory_is_returned_or_an_error() {
        let extent = Arc::new(PageMemory::new(8 * MB, Pages::Huge).unwrap());
        let mut ahead = Prefaulter::default();
        assert!(ahead.ask(&extent, 0..8 * MB));
        let settled = |pages: PrefaultedPages| pages.bytes == 8 << 20 || pages.refused > 0 || pages.stopped;
        for _ in 0..10_000 {
            if settled(ahead.pages()) {
                let there = extent.resident_bytes(0, 8 * MB) as u64;
                assert!(there >= ahead.pages().bytes, "{there}: {:?}", ahead.pages());
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("neither done nor refused: {:?}", ahead.pages());
    }
}
