//! Pages ahead of their use.
//!
//! The first touch of a page stops whoever touches it until the system has found and cleared one: some
//! hundred microseconds for 2 MB, in the middle of a transaction. So a thread of its own has the system give
//! pages to the memory that will be cut next. It is begun by the first arena that has grown to some ten
//! megabytes, one for each, and ends with it. It keeps no memory alive: what the arena gives back is gone.
//! Where the system cannot do that, or no thread is to be had, pages come at their first touch as ever; so
//! they do where it has no memory at that moment. Which of these it was is counted ([`PagesAhead`]).

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};

use weft_base::memory::{HUGE_PAGE_BYTES, PageMemory};

/// Pieces that may wait; who finds no room asks again later.
const WAITING_MAX: usize = 16;

/// Memory that will be needed soon: an extent and the bytes of it.
type Piece = (Weak<PageMemory>, Range<usize>);

/// What became of pages ahead of their use, since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagesAhead {
    /// Bytes that the system gave pages to. What it refused is not among them, nor what had its pages already
    /// because somebody had touched it by then; 0 where the system does not tell which pages there are.
    pub bytes: u64,
    /// Times that the system had no memory at that moment.
    pub refused: u64,
    /// Nothing is had ahead any more: the system does not know the call, or there was no thread for it.
    pub stopped: bool,
}

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    refused: AtomicU64,
    stopped: AtomicBool,
}

/// Who has pages given to memory.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    way: Way,
    counts: Arc<Counts>,
}

/// The way to the thread.
#[derive(Debug, Default)]
enum Way {
    /// Nobody has asked yet.
    #[default]
    Idle,
    Busy(SyncSender<Piece>),
    /// It cannot be done here.
    Impossible,
}

impl Ahead {
    /// Has pages given to a part of an extent. False: not now; to be asked again.
    pub(super) fn ask(&mut self, extent: &Arc<PageMemory>, part: Range<usize>) -> bool {
        if let Way::Idle = self.way {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let counts = Arc::clone(&self.counts);
            let thread = std::thread::Builder::new().name("weft-pages".to_owned());
            let populate = |extent: &PageMemory, from, bytes| extent.populate(from, bytes);
            match thread.spawn(move || serve(&receiver, &counts, populate)) {
                Ok(_) => self.way = Way::Busy(sender),
                Err(_) => self.stop(),
            }
        }
        let Way::Busy(sender) = &self.way else {
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

    /// What became of it so far.
    pub(super) fn pages(&self) -> PagesAhead {
        PagesAhead {
            bytes: self.counts.bytes.load(Ordering::Relaxed),
            refused: self.counts.refused.load(Ordering::Relaxed),
            stopped: self.counts.stopped.load(Ordering::Relaxed),
        }
    }

    fn stop(&mut self) {
        self.way = Way::Impossible;
        self.counts.stopped.store(true, Ordering::Relaxed);
    }
}

/// Until the arena is gone, or the system refuses for good.
fn serve(
    pieces: &Receiver<Piece>,
    counts: &Counts,
    populate: impl Fn(&PageMemory, usize, usize) -> io::Result<()>,
) {
    while let Ok((extent, part)) = pieces.recv() {
        for from in part.clone().step_by(HUGE_PAGE_BYTES) {
            let bytes = HUGE_PAGE_BYTES.min(part.end - from);
            // Gone: so is what it was for.
            let Some(extent) = extent.upgrade() else {
                break;
            };
            // Whoever cuts may have been faster: what has its page by a first touch was not had ahead.
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
                    // Whoever needs it will be told, if there is no memory then either.
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
    ) -> PagesAhead {
        let extent = Arc::new(PageMemory::new(8 * MB, Pages::Ordinary).unwrap());
        touch(&extent, 0, touched);
        let (sender, receiver) = sync_channel(WAITING_MAX);
        for part in [0..4 * MB, 4 * MB..8 * MB] {
            sender.send((Arc::downgrade(&extent), part)).unwrap();
        }
        drop(sender);
        let ahead = Ahead::default();
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
    fn what_the_system_refuses_is_counted() {
        let no_memory = PagesAhead {
            refused: 2,
            ..PagesAhead::default()
        };
        let refuses = |kind: io::ErrorKind| after_two_pieces(0, move |_, _, _| Err(kind.into()));
        assert_eq!(refuses(io::ErrorKind::OutOfMemory), no_memory);
        let unknown = PagesAhead {
            stopped: true,
            ..PagesAhead::default()
        };
        assert_eq!(refuses(io::ErrorKind::Unsupported), unknown);
    }

    /// What was given counts, not what was asked for.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn what_the_system_gives_is_counted() {
        let given = |bytes: usize, refused| PagesAhead {
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
    fn what_is_asked_for_comes_or_it_is_told_why_not() {
        let extent = Arc::new(PageMemory::new(8 * MB, Pages::Huge).unwrap());
        let mut ahead = Ahead::default();
        assert!(ahead.ask(&extent, 0..8 * MB));
        let settled = |pages: PagesAhead| pages.bytes == 8 << 20 || pages.refused > 0 || pages.stopped;
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
