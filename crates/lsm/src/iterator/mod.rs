//! Iterators: the keys and values of a family as a snapshot sees them, in both directions.
//!
//! Of each key only the newest entry up to the snapshot counts; tombstones and range tombstones hide it. An
//! iterator keeps alive the memtables and tables that it may need. A large value is read when the iterator
//! reaches its key.

mod merging;

use std::sync::Arc;

use bytes::Bytes;
use weft_ops::key::{EntryKind, SeqNo, Stamp};

use crate::batch::{FamilyId, behind_all_keys, user_key};
use crate::error::LsmError;
use crate::snapshot::Snapshot;
use crate::tombstones::TombstoneSet;

pub(crate) use merging::{EntryCursor, MergingCursor};

/// Iterates over a family. Invalid until it is positioned, and again after an error.
pub struct LsmIterator {
    merged: MergingCursor,
    tombstones: TombstoneSet,
    snapshot: Arc<Snapshot>,
    family: FamilyId,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    state: State,
    /// The current key, as inside the engine.
    key: Vec<u8>,
    /// The current value when moving backward; otherwise it is where `merged` is.
    value: Vec<u8>,
    /// The current value if it is a large one.
    large: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Nowhere,
    /// `merged` is at the current entry.
    Forward,
    /// `merged` is before all entries of the current key.
    Backward,
}

impl LsmIterator {
    pub(crate) fn new(
        merged: MergingCursor,
        tombstones: TombstoneSet,
        snapshot: Arc<Snapshot>,
        family: FamilyId,
    ) -> Self {
        Self {
            merged,
            tombstones,
            snapshot,
            family,
            lower: family.key(b""),
            upper: family.end(),
            state: State::Nowhere,
            key: Vec::new(),
            value: Vec::new(),
            large: None,
        }
    }

    /// Excludes keys below `lower` and keys from `upper` on; `None` for no bound. Afterwards the iterator is
    /// invalid.
    pub fn set_bounds(&mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) {
        self.state = State::Nowhere;
        self.lower = self.family.key(lower.unwrap_or_default());
        self.upper = upper.map_or_else(|| self.family.end(), |upper| Some(self.family.key(upper)));
    }

    /// Whether the iterator is at a key.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.state != State::Nowhere
    }

    /// The current key; empty if there is none.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        if self.valid() { user_key(&self.key) } else { &[] }
    }

    /// The current value; empty if there is none.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        match (self.state, &self.large) {
            (State::Nowhere, _) => &[],
            (_, Some(large)) => large,
            (State::Forward, None) => self.merged.value(),
            (State::Backward, None) => &self.value,
        }
    }

    /// To the first key.
    ///
    /// # Errors
    /// The disk's; a corrupt block on the way, or a large value of the key itself.
    pub fn first(&mut self) -> Result<(), LsmError> {
        self.seek(b"")
    }

    /// To the last key.
    ///
    /// # Errors
    /// As [`LsmIterator::first`].
    pub fn last(&mut self) -> Result<(), LsmError> {
        self.state = State::Nowhere;
        let end = self.upper.clone().unwrap_or_else(behind_all_keys);
        self.merged.seek_before(&end, Stamp::newest_at(SeqNo::MAX))?;
        self.find_backward()
    }

    /// To the first key that is not below `key`.
    ///
    /// # Errors
    /// As [`LsmIterator::first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<(), LsmError> {
        self.state = State::Nowhere;
        let key = self.family.key(key);
        let key = if key < self.lower { &self.lower } else { &key };
        self.merged.seek(key, Stamp::newest_at(self.snapshot.seqno()))?;
        self.find_forward()
    }

    /// To the last key that is not above `key`.
    ///
    /// # Errors
    /// As [`LsmIterator::first`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<(), LsmError> {
        let key = self.family.key(key);
        if self.upper.as_ref().is_some_and(|upper| key >= *upper) {
            return self.last();
        }
        self.state = State::Nowhere;
        // Behind all entries of the key itself.
        self.merged.seek_before(&key, OLDEST)?;
        self.find_backward()
    }

    /// To the next key.
    ///
    /// # Errors
    /// As [`LsmIterator::first`].
    pub fn forward(&mut self) -> Result<(), LsmError> {
        match std::mem::replace(&mut self.state, State::Nowhere) {
            State::Nowhere => return Ok(()),
            State::Forward => {}
            State::Backward => self.merged.seek(&self.key, OLDEST)?,
        }
        self.skip_key()?;
        self.find_forward()
    }

    /// To the key before.
    ///
    /// # Errors
    /// As [`LsmIterator::first`].
    pub fn back(&mut self) -> Result<(), LsmError> {
        match std::mem::replace(&mut self.state, State::Nowhere) {
            State::Nowhere => return Ok(()),
            State::Forward => self.merged.seek_before(&self.key, Stamp::newest_at(SeqNo::MAX))?,
            State::Backward => {}
        }
        self.find_backward()
    }

    /// Skips all entries of the current key.
    fn skip_key(&mut self) -> Result<(), LsmError> {
        while self.merged.valid() && self.merged.key() == self.key {
            self.merged.advance()?;
        }
        Ok(())
    }

    /// Whether an entry is what a reader sees for its key.
    fn is_live(&self, key: &[u8], stamp: Stamp) -> bool {
        stamp.kind() != EntryKind::Tombstone && !self.tombstones.covers(key, stamp.seqno())
    }

    /// From where `merged` is, the first visible key.
    fn find_forward(&mut self) -> Result<(), LsmError> {
        self.large = None;
        while self.merged.valid() {
            let (key, stamp) = (self.merged.key(), self.merged.stamp());
            if self.upper.as_ref().is_some_and(|upper| *key >= **upper) {
                break;
            }
            if stamp.seqno() > self.snapshot.seqno() {
                self.merged.advance()?;
                continue;
            }
            let live = self.is_live(key, stamp);
            self.key.clear();
            self.key.extend_from_slice(self.merged.key());
            if live {
                if let Some((table, block)) = self.merged.pointer_place() {
                    self.large = Some(table.large_value(block, &self.key, self.merged.value())?);
                }
                self.state = State::Forward;
                break;
            }
            self.skip_key()?;
        }
        Ok(())
    }

    /// From where `merged` is, moving backward, the first visible key.
    fn find_backward(&mut self) -> Result<(), LsmError> {
        self.large = None;
        while self.merged.valid() && self.merged.key() >= &self.lower[..] {
            self.key.clear();
            self.key.extend_from_slice(self.merged.key());
            let mut newest = None;
            let mut place = None;
            while self.merged.valid() && self.merged.key() == self.key {
                let stamp = self.merged.stamp();
                if stamp.seqno() <= self.snapshot.seqno() {
                    newest = Some(stamp);
                    place = self.merged.pointer_place();
                    self.value.clear();
                    self.value.extend_from_slice(self.merged.value());
                }
                self.merged.advance()?;
            }
            if newest.is_some_and(|stamp| self.is_live(&self.key, stamp)) {
                if let Some((table, block)) = place {
                    self.large = Some(table.large_value(block, &self.key, &self.value)?);
                }
                self.state = State::Backward;
                break;
            }
        }
        Ok(())
    }
}

/// The stamp behind those of all entries.
const OLDEST: Stamp = Stamp::newest_at(SeqNo(0));

impl std::fmt::Debug for LsmIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LsmIterator")
            .field("family", &self.family)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}
