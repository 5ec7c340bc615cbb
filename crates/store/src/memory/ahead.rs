//! Pages ahead of their use.
//!
//! The first touch of a page stops whoever touches it until the system has found and cleared one: some
//! hundred microseconds for 2 MB, in the middle of a transaction. So a thread of its own has the system give
//! pages to the memory that will be cut next. It is begun by the first arena that has grown to some ten
//! megabytes, one for each, and ends with it. It keeps no memory alive: what the arena gives back is gone.
//! Where the system cannot do that, or no thread is to be had, pages come at their first touch as ever; so
//! they do where it has no memory at that moment.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};

use weft_base::memory::{HUGE_PAGE_BYTES, PageMemory};

/// Pieces that may wait; who finds no room asks again later.
const WAITING_MAX: usize = 16;

/// Memory that will be needed soon: an extent and the bytes of it.
type Piece = (Weak<PageMemory>, Range<usize>);

/// The way to the thread.
#[derive(Debug, Default)]
pub(super) enum Ahead {
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
        if let Ahead::Idle = self {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let thread = std::thread::Builder::new().name("weft-pages".to_owned());
            *self = match thread.spawn(move || serve(&receiver)) {
                Ok(_) => Ahead::Busy(sender),
                Err(_) => Ahead::Impossible,
            };
        }
        let Ahead::Busy(sender) = self else {
            return true;
        };
        match sender.try_send((Arc::downgrade(extent), part)) {
            Ok(()) => true,
            Err(std::sync::mpsc::TrySendError::Full(_)) => false,
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => {
                *self = Ahead::Impossible;
                true
            }
        }
    }
}

/// Until the arena is gone, or the system refuses.
fn serve(pieces: &Receiver<Piece>) {
    while let Ok((extent, part)) = pieces.recv() {
        for from in part.clone().step_by(HUGE_PAGE_BYTES) {
            let bytes = HUGE_PAGE_BYTES.min(part.end - from);
            match extent.upgrade().map(|extent| extent.populate(from, bytes)) {
                Some(Ok(())) => {}
                Some(Err(error)) if error.kind() == io::ErrorKind::Unsupported => return,
                // Whoever needs it will be told, if there is no memory then either.
                Some(Err(_)) | None => break,
            }
        }
    }
}
