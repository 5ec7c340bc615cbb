//! A rank's tuples on their way into the windows of others.
//!
//! ```text
//! push --> buffer of a partition, full --> put --> in flight --> flushed: free again
//!          another one is filled meanwhile         (of its target, all at once)
//! ```
//!
//! A partition has as many buffers as [`Network::buffers`] says, at least two; when all are on their way, the
//! oldest is waited for by a flush of its target, which completes whatever else is on its way there (Barthels
//! 3.2.1, 4.2.1). Buffers that are free again go to a pool that all partitions share. What stays on this rank
//! is written to its own window and takes no part in this.
//!
//! With [`Schedule::Rounds`] full buffers wait in a queue for each target, until the slot in which this rank
//! sends to that target.
//!
//! # Invariants
//!
//! 1. Nothing is put outside of the stretch that the histogram gave this rank: a source that has more tuples
//!    than it counted is an error before the put, one that has fewer is an error at the end.

use std::collections::VecDeque;

use weft_fabric::{InFlight, Window};

use super::assign::{SIDES, Segment};
use super::error::RankJoinError;
use super::options::{Network, Schedule};
use crate::error::JoinError;

/// One partition and side, for this rank's tuples.
struct Lane {
    /// Being filled; its length is that of a full one.
    buffer: Vec<u8>,
    /// Words of it that are filled.
    words: usize,
    /// Bytes at which it is full.
    full_bytes: usize,
    /// Tuples that left.
    shipped: u64,
    /// Tuples that there are.
    count: u64,
    segments: Vec<Segment>,
    in_flight: VecDeque<InFlight>,
    /// How many may be in flight before one is waited for.
    in_flight_max: usize,
}

/// What an outbox is made of.
pub(super) struct Mailing {
    /// This rank's tuples, by side and partition.
    pub(super) counts: Vec<u64>,
    /// Where they go; nowhere, for partitions that nobody wants.
    pub(super) segments: Vec<Vec<Segment>>,
    /// Tuples come one by one, not as runs.
    pub(super) is_pushed: bool,
}

/// Everything that is on its way from one join of this rank.
pub(super) struct Outbox<'w> {
    window: &'w Window,
    network: Network,
    item_bytes: usize,
    lanes: Vec<Lane>,
    pool: Vec<Vec<u8>>,
    /// With a schedule: for each target what is ready, with its place.
    ready: Vec<Vec<(u64, Vec<u8>)>>,
    pub(super) sent_bytes: u64,
    pub(super) puts: u64,
}

/// Bytes of buffers that an outbox may hold.
pub(super) fn room_bytes(mailing: &Mailing, network: &Network, item_bytes: usize, ranks: u32) -> usize {
    let lanes = mailing.counts.iter().zip(&mailing.segments);
    let buffers: usize = lanes
        .map(|(count, segments)| {
            let targets = segments.iter().map(|segment| segment.targets.len()).max();
            let full = full_bytes(*count, network.buffer_bytes, item_bytes);
            full.saturating_mul(network.buffers.max(2))
                .saturating_mul(targets.unwrap_or(1))
        })
        .fold(0, usize::saturating_add);
    match network.schedule {
        Schedule::Free => buffers,
        // All that a round reads may be ready at once, and be copied for every rank.
        Schedule::Rounds { tuples } => buffers.saturating_add(
            tuples
                .saturating_add(crate::tuple::MORSEL_TUPLES)
                .saturating_mul(item_bytes)
                .saturating_mul(2)
                .saturating_mul(
                    if mailing.segments.iter().flatten().any(|s| s.targets.len() > 1) {
                        ranks as usize
                    } else {
                        1
                    },
                ),
        ),
    }
}

fn full_bytes(count: u64, buffer_bytes: usize, item_bytes: usize) -> usize {
    let whole = (buffer_bytes / item_bytes).max(1) * item_bytes;
    let all = usize::try_from(count)
        .unwrap_or(usize::MAX)
        .saturating_mul(item_bytes);
    whole.min(all)
}

impl<'w> Outbox<'w> {
    pub(super) fn new(window: &'w Window, network: Network, item_bytes: usize, mailing: Mailing) -> Self {
        let lane = |(count, segments): (u64, Vec<Segment>)| {
            let targets = segments.iter().map(|segment| segment.targets.len()).max();
            let full_bytes = full_bytes(count, network.buffer_bytes, item_bytes);
            Lane {
                buffer: vec![0; if mailing.is_pushed { full_bytes } else { 0 }],
                words: 0,
                full_bytes,
                shipped: 0,
                count,
                segments,
                in_flight: VecDeque::new(),
                in_flight_max: network.buffers.max(2) * targets.unwrap_or(1),
            }
        };
        let lanes = mailing.counts.iter().copied().zip(mailing.segments);
        let lanes = lanes.map(lane).collect();
        Outbox {
            window,
            network,
            item_bytes,
            lanes,
            pool: Vec::new(),
            ready: (0..window.rank().count()).map(|_| Vec::new()).collect(),
            sent_bytes: 0,
            puts: 0,
        }
    }

    /// Adds a tuple of so many words to a partition.
    #[inline(always)]
    pub(super) fn push<const WORDS: usize>(
        &mut self,
        lane: usize,
        tuple: [u64; WORDS],
    ) -> Result<(), RankJoinError> {
        let Some(found) = self.lanes.get_mut(lane) else {
            return Err(JoinError::Source.into());
        };
        let places = found.buffer.as_chunks_mut::<8>().0;
        let count = places.len();
        let Some(place) = places.get_mut(found.words..found.words + WORDS) else {
            return Err(JoinError::Source.into());
        };
        for (place, word) in place.iter_mut().zip(tuple) {
            *place = word.to_ne_bytes();
        }
        found.words += WORDS;
        if found.words == count {
            self.buffer_is_full(lane)?;
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn buffer_is_full(&mut self, lane: usize) -> Result<(), RankJoinError> {
        let Some(found) = self.lanes.get_mut(lane) else {
            return Ok(());
        };
        found.words = 0;
        let (first, buffer) = (found.shipped, std::mem::take(&mut found.buffer));
        let emptied = self.ship(lane, first, buffer)?;
        let Some(found) = self.lanes.get_mut(lane) else {
            return Ok(());
        };
        let mut next = emptied.or_else(|| self.pool.pop()).unwrap_or_default();
        next.resize(found.full_bytes, 0);
        found.buffer = next;
        Ok(())
    }

    /// Sends tuples of a partition on their way, from the one with this number on. Gives a buffer back if one
    /// is free.
    fn ship(&mut self, lane: usize, first: u64, buffer: Vec<u8>) -> Result<Option<Vec<u8>>, RankJoinError> {
        let Some(found) = self.lanes.get_mut(lane) else {
            return Ok(Some(buffer));
        };
        let tuples = (buffer.len() / self.item_bytes) as u64;
        let end = first + tuples;
        if end > found.count {
            return Err(JoinError::Source.into());
        }
        found.shipped += tuples;
        let me = self.window.rank().number();
        let mut pieces = Vec::new();
        for segment in &found.segments {
            let both = segment.span.both(super::assign::Span { first, end });
            if both.len() > 0 {
                let from = usize::try_from(both.first - first).unwrap_or(usize::MAX) * self.item_bytes;
                let to = usize::try_from(both.end - first).unwrap_or(usize::MAX) * self.item_bytes;
                let behind = (both.first - segment.span.first) * self.item_bytes as u64;
                for (target, offset) in &segment.targets {
                    pieces.push((*target, offset + behind, from..to));
                }
            }
        }
        // The buffer itself goes where all of it goes; of other pieces copies are made.
        let whole = match pieces.as_slice() {
            [(target, offset, range)] if *target != me && range.len() == buffer.len() => {
                Some((*target, *offset))
            }
            _ => None,
        };
        if let Some((target, offset)) = whole {
            return self.post(lane, target, offset, buffer);
        }
        for (target, offset, range) in pieces {
            let bytes = buffer.get(range).unwrap_or_default();
            if target == me {
                self.window.local_write(offset, bytes)?;
                continue;
            }
            let mut copy = self.pool.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(bytes);
            if let Some(free) = self.post(lane, target, offset, copy)? {
                self.pool.push(free);
            }
        }
        Ok(Some(buffer))
    }

    /// Puts a buffer, or keeps it for its slot. Gives one back if as many are in flight as may be.
    fn post(
        &mut self,
        lane: usize,
        target: u32,
        offset: u64,
        buffer: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, RankJoinError> {
        self.sent_bytes += buffer.len() as u64;
        self.puts += 1;
        if self.network.schedule != Schedule::Free {
            if let Some(ready) = self.ready.get_mut(target as usize) {
                ready.push((offset, buffer));
            }
            return Ok(None);
        }
        let Some(lane) = self.lanes.get_mut(lane) else {
            return Ok(None);
        };
        lane.in_flight
            .push_back(self.window.put_buffer(target, offset, buffer)?);
        let is_over = lane.in_flight.front().is_some_and(InFlight::is_over);
        if is_over || lane.in_flight.len() >= lane.in_flight_max {
            let oldest = lane.in_flight.pop_front().map(InFlight::wait).transpose()?;
            return Ok(oldest);
        }
        Ok(None)
    }

    /// An empty buffer.
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.pool.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Sends tuples of a partition that somebody else has put into a buffer, from the one with this number
    /// on.
    pub(super) fn ship_run(&mut self, lane: usize, first: u64, buffer: Vec<u8>) -> Result<(), RankJoinError> {
        if let Some(free) = self.ship(lane, first, buffer)? {
            self.pool.push(free);
        }
        Ok(())
    }

    /// One round of a schedule: a slot for every other rank, beginning with the right neighbour, and a
    /// barrier behind each.
    pub(super) fn round(&mut self) -> Result<(), RankJoinError> {
        let rank = self.window.rank().clone();
        let (me, count) = (rank.number(), rank.count());
        for step in 1..count {
            let target = (me + step) % count;
            let ready = self.ready.get_mut(target as usize).map(std::mem::take);
            let mut in_flight = Vec::new();
            for (offset, buffer) in ready.unwrap_or_default() {
                in_flight.push(self.window.put_buffer(target, offset, buffer)?);
            }
            for flight in in_flight {
                self.pool.push(flight.wait()?);
            }
            rank.barrier()?;
        }
        Ok(())
    }

    /// Sends what buffers still hold, beginning with those for the right neighbour.
    pub(super) fn send_rest(&mut self) -> Result<(), RankJoinError> {
        let (me, count) = (self.window.rank().number(), self.window.rank().count());
        let distance = |lane: &Lane| {
            let target = lane.segments.first().and_then(|segment| segment.targets.first());
            target.map_or(count, |(rank, _)| (rank + count - me - 1) % count)
        };
        let mut order: Vec<(u32, usize)> = self.lanes.iter().map(distance).zip(0..).collect();
        order.sort_unstable();
        for (_, lane) in order {
            let Some(found) = self.lanes.get_mut(lane) else {
                continue;
            };
            let (first, mut buffer) = (found.shipped, std::mem::take(&mut found.buffer));
            buffer.truncate(std::mem::take(&mut found.words) * 8);
            if !buffer.is_empty() {
                self.ship_run(lane, first, buffer)?;
            }
        }
        Ok(())
    }

    /// An error if a partition had fewer tuples than were counted.
    pub(super) fn check_counts(&self) -> Result<(), JoinError> {
        let is_whole = |lane: &Lane| lane.shipped == lane.count;
        match self.lanes.iter().all(is_whole) {
            true => Ok(()),
            false => Err(JoinError::Source),
        }
    }

    /// Waits for everything that is on its way.
    pub(super) fn finish(&mut self) -> Result<(), RankJoinError> {
        for lane in &mut self.lanes {
            for flight in lane.in_flight.drain(..) {
                self.pool.push(flight.wait()?);
            }
        }
        self.pool = Vec::new();
        Ok(())
    }
}

/// The lane of a partition and side.
pub(super) const fn lane_of(side: usize, part: usize, parts: usize) -> usize {
    debug_assert!(side < SIDES);
    side * parts + part
}
