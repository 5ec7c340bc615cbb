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
    /// Bytes that had their pages before they were used.
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
            match extent.upgrade().map(|extent| populate(&extent, from, bytes)) {
                Some(Ok(())) => {
                    counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                }
                Some(Err(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    counts.stopped.store(true, Ordering::Relaxed);
                    return;
                }
                Some(Err(_)) => {
                    // Whoever needs it will be told, if there is no memory then either.
                    counts.refused.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                None => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_base::memory::Pages;

    use super::*;

    const MB: usize = 1 << 20;

    /// The counts after two pieces of 4 MB each, where the system answers so.
    fn after_two_pieces(answer: impl Fn() -> io::Result<()>) -> PagesAhead {
        let extent = Arc::new(PageMemory::new(8 * MB, Pages::Huge).unwrap());
        let (sender, receiver) = sync_channel(WAITING_MAX);
        for part in [0..4 * MB, 4 * MB..8 * MB] {
            sender.send((Arc::downgrade(&extent), part)).unwrap();
        }
        drop(sender);
        let ahead = Ahead::default();
        serve(&receiver, &ahead.counts, |_, _, _| answer());
        ahead.pages()
    }

    #[test]
    fn what_the_system_answers_is_counted() {
        let done = PagesAhead {
            bytes: 8 << 20,
            ..PagesAhead::default()
        };
        assert_eq!(after_two_pieces(|| Ok(())), done);
        let no_memory = PagesAhead {
            refused: 2,
            ..PagesAhead::default()
        };
        assert_eq!(
            after_two_pieces(|| Err(io::ErrorKind::OutOfMemory.into())),
            no_memory
        );
        let unknown = PagesAhead {
            stopped: true,
            ..PagesAhead::default()
        };
        assert_eq!(
            after_two_pieces(|| Err(io::ErrorKind::Unsupported.into())),
            unknown
        );
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
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("neither done nor refused: {:?}", ahead.pages());
    }
}
