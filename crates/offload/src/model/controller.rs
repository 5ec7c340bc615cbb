//! Controller: when keys are compared, which pairs stay, where they go.
//!
//! ```text
//! collecting (a key of every live way) --> comparing (PE) --> judging --> issuing --> collecting
//!       | no way is live                                  waits while the pair channel is busy
//!       v                                                 or the encoding ring is half full
//!    draining
//! ```
//!
//! Each word to another module costs the stated handshake. Snapshots and range tombstones are held in
//! registers; a task with more of them than there are registers is beyond the unit's limits.
//!
//! The rules by which pairs are dropped are those in the head of `weft_ops::merge`, written down anew here:
//! stripes by counting registers, tombstones by comparing all of them at once.
//!
//! Source: X-DB, "FPGA-based Compaction", Controller.

use bytes::Bytes;
use weft_ops::key::{EntryKind, Stamp};
use weft_ops::merge::{Dropped, MergeTask};

use super::compare::{ComparePe, Verdict};
use super::ring::Ring;
use super::transfer::{KeyBuffer, KvTransfer};
use super::{ModelParams, Stop, cycles_for};

/// Registers for snapshots.
pub(super) const SNAPSHOTS_MAX: usize = 64;
/// Registers for range tombstones.
pub(super) const RANGE_TOMBSTONES_MAX: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Keep,
    Duplicate,
    Shadowed,
    RangeDeleted,
    BottomTombstone,
}

enum State {
    Collecting,
    Comparing,
    Judging { left: u64, way: usize, fate: Fate },
    Issuing { way: usize, fate: Fate },
    Draining,
}

struct Tombstone {
    start: Bytes,
    end: Bytes,
    seqno: u64,
}

pub(super) struct Controller {
    params: ModelParams,
    snapshots: Vec<u64>,
    tombstones: Vec<Tombstone>,
    bottom: bool,
    state: State,
    /// Stripe and stamp of the pair before.
    before: Option<(usize, Stamp)>,
    pub(super) entries_in: u64,
    pub(super) dropped: Dropped,
    /// Cycles in which a live way had no key yet.
    pub(super) key_wait_cycles: u64,
    /// Cycles in which a chosen pair could not go on.
    pub(super) output_wait_cycles: u64,
}

/// What the controller sees and moves in a cycle.
pub(super) struct Wires<'a> {
    pub(super) rings: &'a mut [Ring],
    pub(super) keys: &'a mut KeyBuffer,
    pub(super) transfer: &'a mut KvTransfer,
    pub(super) pe: &'a mut ComparePe,
    pub(super) encoding: &'a Ring,
    /// For each way, whether its decoder has ended.
    pub(super) ended: &'a [bool],
}

impl Controller {
    pub(super) fn new(params: ModelParams, task: &MergeTask) -> Controller {
        let tombstones = task.range_tombstones.iter().map(|tombstone| Tombstone {
            start: tombstone.start.clone(),
            end: tombstone.end.clone(),
            seqno: tombstone.seqno.0,
        });
        Controller {
            params,
            snapshots: task.snapshots.iter().map(|snapshot| snapshot.0).collect(),
            tombstones: tombstones.collect(),
            bottom: task.bottom,
            state: State::Collecting,
            before: None,
            entries_in: 0,
            dropped: Dropped::default(),
            key_wait_cycles: 0,
            output_wait_cycles: 0,
        }
    }

    /// Every pair has been handed to the pair channel or dropped, and the channel is free.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining)
    }

    pub(super) fn step(&mut self, wires: &mut Wires<'_>) -> Result<(), Stop> {
        match self.state {
            State::Collecting => self.collect(wires),
            State::Comparing => {
                if let Some(verdict) = wires.pe.step() {
                    self.judge(verdict, wires.keys)?;
                }
            }
            State::Judging { left, way, fate } if left > 1 => {
                self.state = State::Judging {
                    left: left - 1,
                    way,
                    fate,
                };
            }
            State::Judging { way, fate, .. } => self.state = State::Issuing { way, fate },
            State::Issuing { way, fate } => self.issue(way, fate, wires)?,
            State::Draining => {}
        }
        Ok(())
    }

    fn collect(&mut self, wires: &mut Wires<'_>) {
        let mut live = false;
        for ((slot, ring), ended) in wires.keys.slots.iter().zip(&*wires.rings).zip(wires.ended) {
            let done = *ended && ring.flags().empty;
            if slot.is_none() && !done {
                self.key_wait_cycles += 1;
                return;
            }
            live |= slot.is_some();
        }
        if live && wires.pe.start(wires.keys) {
            self.state = State::Comparing;
        } else if wires.transfer.is_free() {
            self.state = State::Draining;
        }
    }

    /// In which interval between snapshots a sequence number lies.
    fn stripe(&self, seqno: u64) -> usize {
        self.snapshots
            .iter()
            .filter(|&&snapshot| snapshot < seqno)
            .count()
    }

    fn judge(&mut self, verdict: Verdict, keys: &KeyBuffer) -> Result<(), Stop> {
        let slot = keys.slots.get(verdict.way).and_then(Option::as_ref);
        let slot = slot.ok_or(Stop::Broken("a key won that is not there"))?;
        let stamp = slot.stamp;
        let stripe = self.stripe(stamp.seqno().0);
        let before = self.before.replace((stripe, stamp)).filter(|_| verdict.same_key);
        let covered = |tombstone: &Tombstone| {
            tombstone.start <= slot.key
                && slot.key < tombstone.end
                && tombstone.seqno > stamp.seqno().0
                && self.stripe(tombstone.seqno) == stripe
        };
        let fate = match before {
            Some((_, same)) if same == stamp => Fate::Duplicate,
            Some((same, _)) if same == stripe => Fate::Shadowed,
            _ if self.tombstones.iter().any(covered) => Fate::RangeDeleted,
            _ if self.bottom && stripe == 0 && stamp.kind() == EntryKind::Tombstone => Fate::BottomTombstone,
            _ => Fate::Keep,
        };
        // Snapshots by bisection; bounds of tombstones side by side, at the PE's width.
        let bisection = u64::from((self.snapshots.len() + 1).next_power_of_two().ilog2());
        let bounds = match self.tombstones.is_empty() {
            true => 0,
            false => cycles_for(slot.key.len(), self.params.compare_bytes).max(1),
        };
        self.state = State::Judging {
            left: 2 * u64::from(self.params.handshake_cycles) + bisection + bounds,
            way: verdict.way,
            fate,
        };
        Ok(())
    }

    fn issue(&mut self, way: usize, fate: Fate, wires: &mut Wires<'_>) -> Result<(), Stop> {
        match fate {
            Fate::Keep => {
                if !wires.transfer.is_free() || wires.encoding.flags().half_full {
                    self.output_wait_cycles += 1;
                    return Ok(());
                }
                wires.transfer.move_pair(way, wires.rings, wires.keys)?;
            }
            _ => KvTransfer::drop_pair(way, wires.rings, wires.keys)?,
        }
        self.entries_in += 1;
        match fate {
            Fate::Keep => {}
            Fate::Duplicate => self.dropped.duplicate += 1,
            Fate::Shadowed => self.dropped.shadowed += 1,
            Fate::RangeDeleted => self.dropped.range_deleted += 1,
            Fate::BottomTombstone => self.dropped.bottom_tombstone += 1,
        }
        self.state = State::Collecting;
        Ok(())
    }
}
