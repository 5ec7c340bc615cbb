//! Which entries stay: snapshots and range tombstones. The rules are those in the head of the merge.

use super::{MergeTask, RangeTombstone};
use crate::key::{EntryKind, SeqNo, Stamp};

/// What becomes of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Keep,
    Duplicate,
    Shadowed,
    RangeDeleted,
    BottomTombstone,
}

/// Judges entries in their order.
pub(super) struct Visibility<'a> {
    snapshots: &'a [SeqNo],
    bottom: bool,
    /// Range tombstones by start; those before `started` begin at or before the present key.
    tombstones: Vec<&'a RangeTombstone>,
    started: usize,
    /// Of those, the ones that may still cover keys.
    active: Vec<&'a RangeTombstone>,
    /// Stripe and stamp of the entry before, which has the same key if the next one says so.
    last: Option<(usize, Stamp)>,
}

impl<'a> Visibility<'a> {
    pub(super) fn new(task: &'a MergeTask) -> Self {
        let mut tombstones: Vec<_> = task.range_tombstones.iter().collect();
        tombstones.sort();
        Self {
            snapshots: &task.snapshots,
            bottom: task.bottom,
            tombstones,
            started: 0,
            active: Vec::new(),
            last: None,
        }
    }

    /// The number of the stripe: how many snapshots cannot see the sequence number.
    #[inline(always)]
    fn stripe(&self, seqno: SeqNo) -> usize {
        if self.snapshots.is_empty() {
            return 0;
        }
        self.snapshots.partition_point(|&snapshot| snapshot < seqno)
    }

    #[inline(always)]
    pub(super) fn judge(&mut self, same_key: bool, key: &[u8], stamp: Stamp) -> Fate {
        let stripe = self.stripe(stamp.seqno());
        let last = self.last.replace((stripe, stamp));
        if same_key && let Some((last_stripe, last_stamp)) = last {
            if last_stamp == stamp {
                return Fate::Duplicate;
            }
            if last_stripe == stripe {
                return Fate::Shadowed;
            }
        }
        if !self.tombstones.is_empty() && self.is_covered(same_key, key, stripe, stamp.seqno()) {
            return Fate::RangeDeleted;
        }
        if self.bottom && stripe == 0 && stamp.kind() == EntryKind::Tombstone {
            return Fate::BottomTombstone;
        }
        Fate::Keep
    }

    fn is_covered(&mut self, same_key: bool, key: &[u8], stripe: usize, seqno: SeqNo) -> bool {
        if !same_key {
            while let Some(&next) = self.tombstones.get(self.started)
                && next.start <= key
            {
                self.started += 1;
                self.active.push(next);
            }
            self.active.retain(|tombstone| key < tombstone.end);
        }
        self.active
            .iter()
            .any(|tombstone| tombstone.seqno > seqno && self.stripe(tombstone.seqno) == stripe)
    }
}
