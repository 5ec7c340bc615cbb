//! Messages between workers, and the words that an owner keeps.
//!
//! A record belongs to one worker, by the hash of its key. Only that worker accesses the record's word, so
//! words are plain memory. Other workers send requests; the owner checks visibility, finds the row, and
//! answers with both, so the row is from the moment of the check.
//!
//! Source: BionicDB 4.6 (request packets with timestamp, worker and DB instruction), 4.7 (visibility check).

use weft_base::{IndexId, TableId};
use weft_lock::LockMode;
use weft_store::SlotId;

use crate::Safeguards;
use crate::timestamp::Stamp;

/// Maximum length of an encoded key in a message; the requester looks up a longer one itself, under a mark.
pub(super) const KEY_BYTES_MAX: usize = 40;

/// A key to look up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub table: TableId,
    pub index: IndexId,
    len: u8,
    bytes: [u8; KEY_BYTES_MAX],
}

impl Probe {
    /// `None` if the key is too long.
    pub fn new(table: TableId, index: IndexId, key: &[u8]) -> Option<Probe> {
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        Some(Probe {
            table,
            index,
            len: key.len() as u8,
            bytes,
        })
    }

    pub fn key(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// The row that an owner found.
pub(super) type Found<'b> = Option<(SlotId, &'b [u8])>;

/// A message: a request, an answer, or the end of a mark.
#[derive(Debug, Clone, Copy)]
pub(super) enum Message<'b> {
    /// Requests permission for an access, and the row.
    Request {
        /// Index of the sender's flight, and of the need within it.
        flight: u16,
        need: u16,
        slot: u32,
        mode: LockMode,
        /// A read whose mark remains until it is ended.
        hold: bool,
        time: u64,
        probe: Option<Probe>,
    },
    /// The answer.
    Answer {
        flight: u16,
        need: u16,
        granted: bool,
        found: Found<'b>,
    },
    /// Removes the mark.
    End {
        slot: u32,
        mode: LockMode,
        time: u64,
        wrote: bool,
    },
}

/// An owner's word: the stamps of timestamp ordering, and marks of readers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OwnedWord {
    stamp: Stamp,
    readers: u32,
}

impl OwnedWord {
    /// The visibility check; if true, the access is granted and marked.
    pub fn mark<G: Safeguards>(&mut self, mode: LockMode, hold: bool, time: u64) -> bool {
        if mode != LockMode::S && self.readers > 0 {
            return false;
        }
        match self.stamp.access::<G>(mode, time) {
            Some(stamp) => {
                self.stamp = stamp;
                self.readers += u32::from(hold);
                true
            }
            None => false,
        }
    }

    /// Removes a mark of [`OwnedWord::mark`].
    pub fn end(&mut self, mode: LockMode, time: u64, wrote: bool) {
        if mode == LockMode::S {
            self.readers = self.readers.saturating_sub(1);
        } else {
            self.stamp = self.stamp.ended(time, wrote);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sound;

    #[test]
    fn a_marked_read_refuses_later_writers() {
        let mut word = OwnedWord::default();
        assert!(word.mark::<Sound>(LockMode::S, true, 5));
        assert!(!word.mark::<Sound>(LockMode::X, false, 9) && !word.mark::<Sound>(LockMode::IX, false, 9));
        assert!(word.mark::<Sound>(LockMode::S, false, 4));
        word.end(LockMode::S, 5, false);
        assert!(!word.mark::<Sound>(LockMode::X, false, 3), "read later");
        assert!(word.mark::<Sound>(LockMode::X, false, 9));
        assert!(!word.mark::<Sound>(LockMode::S, false, 10), "dirty");
        word.end(LockMode::X, 9, true);
        assert!(!word.mark::<Sound>(LockMode::S, false, 8) && word.mark::<Sound>(LockMode::S, false, 10));
    }

    #[test]
    fn keys_fit_or_are_refused() {
        let probe = |len| Probe::new(TableId(1), IndexId(1), &vec![7; len]);
        assert_eq!(probe(KEY_BYTES_MAX).unwrap().key(), [7; KEY_BYTES_MAX]);
        assert!(probe(KEY_BYTES_MAX + 1).is_none());
    }
}
