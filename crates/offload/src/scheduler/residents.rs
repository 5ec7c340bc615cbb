//! Which registered buffers a unit holds, as far as the scheduler knows.
//!
//! A unit may have lost what is listed here: it answers so, and is taken to have nothing from then on.

use std::collections::{BTreeMap, BTreeSet};

use crate::buffer::{Buffer, BufferId, BufferWatch};
use crate::wire::RequestBuffer;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Residents {
    /// By handle.
    held: BTreeMap<u64, Resident>,
    /// The same by the request that last used them, with their handles.
    by_use: BTreeSet<(u64, u64)>,
    bytes: u64,
    /// Counts requests.
    now: u64,
    /// The unit may have what is not listed.
    must_clear: bool,
}

#[derive(Debug)]
struct Resident {
    generation: u64,
    bytes: u64,
    last_used: u64,
    watch: BufferWatch,
}

/// What a request has to carry.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// The buffers of the job, with the bytes of those that the unit lacks.
    pub(super) buffers: Vec<RequestBuffer>,
    /// Whether the unit is to drop everything first.
    pub(super) drops_all: bool,
    /// What else it is to drop first.
    pub(super) dropped: Vec<BufferId>,
    /// Bytes that are sent.
    pub(super) sent_bytes: u64,
    /// Bytes that are there.
    pub(super) kept_bytes: u64,
}

impl Residents {
    /// Makes room at a unit that keeps `bytes_max`, and lists what must be sent. The least recently used
    /// buffers go first. One that does not fit is sent, and not kept.
    pub(super) fn carry(&mut self, buffers: &[Buffer], bytes_max: u64) -> Carried {
        self.now += 1;
        let mut carried = Carried::default();
        if buffers.is_empty() {
            return carried;
        }
        carried.drops_all = std::mem::take(&mut self.must_clear);
        let abandoned: Vec<u64> = self
            .held
            .iter()
            .filter(|(_, held)| held.watch.is_dropped())
            .map(|(handle, _)| *handle)
            .collect();
        for handle in abandoned {
            carried.dropped.extend(self.drop_one(handle));
        }
        // What this request needs is not dropped for its other buffers.
        for buffer in buffers {
            let held = self.held.get_mut(&buffer.id().handle);
            if let Some(held) = held.filter(|held| held.generation == buffer.id().generation) {
                let handle = buffer.id().handle;
                self.by_use.remove(&(held.last_used, handle));
                self.by_use.insert((self.now, handle));
                held.last_used = self.now;
            }
        }
        for buffer in buffers {
            let (id, bytes) = (buffer.id(), buffer.bytes().len() as u64);
            let held = self.held.get(&id.handle);
            if held.is_some_and(|held| held.generation == id.generation) {
                carried.kept_bytes += bytes;
                carried.buffers.push(RequestBuffer::of(buffer, false, true));
                continue;
            }
            // Not for other contents of a buffer that the request needs as well.
            let mut is_kept = held.is_none_or(|held| held.last_used < self.now);
            if is_kept {
                carried.dropped.extend(self.drop_one(id.handle));
                is_kept = self.make_room(bytes, bytes_max, &mut carried.dropped);
            }
            if is_kept {
                self.bytes += bytes;
                let resident = Resident {
                    generation: id.generation,
                    bytes,
                    last_used: self.now,
                    watch: buffer.watch(),
                };
                self.held.insert(id.handle, resident);
                self.by_use.insert((self.now, id.handle));
            }
            carried.sent_bytes += bytes;
            carried.buffers.push(RequestBuffer::of(buffer, true, is_kept));
        }
        carried
    }

    /// The unit has nothing any more, or nothing that can be relied on.
    pub(super) fn forget(&mut self) {
        self.held.clear();
        self.by_use.clear();
        self.bytes = 0;
        self.must_clear = true;
    }

    fn drop_one(&mut self, handle: u64) -> Option<BufferId> {
        let dropped = self.held.remove(&handle)?;
        self.by_use.remove(&(dropped.last_used, handle));
        self.bytes -= dropped.bytes;
        Some(BufferId {
            handle,
            generation: dropped.generation,
        })
    }

    /// False if there is none, because the unit keeps less or the request needs the others as well.
    fn make_room(&mut self, bytes: u64, bytes_max: u64, dropped: &mut Vec<BufferId>) -> bool {
        if bytes > bytes_max {
            return false;
        }
        while self.bytes + bytes > bytes_max {
            match self.by_use.first() {
                Some((last_used, oldest)) if *last_used < self.now => {
                    let oldest = *oldest;
                    dropped.extend(self.drop_one(oldest));
                }
                _ => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: usize) -> Buffer {
        Buffer::new(vec![7; bytes])
    }

    #[test]
    fn buffers_are_sent_once_and_leave_in_the_order_of_their_last_use() {
        let mut residents = Residents::default();
        let [a, b, c] = [buffer(40), buffer(40), buffer(40)];
        assert_eq!(residents.carry(std::slice::from_ref(&a), 100).sent_bytes, 40);
        assert_eq!(residents.carry(std::slice::from_ref(&b), 100).sent_bytes, 40);
        let again = residents.carry(&[a.clone(), b.clone()], 100);
        assert_eq!((again.sent_bytes, again.kept_bytes), (0, 80));
        residents.carry(std::slice::from_ref(&a), 100);
        // The third needs the place of the second.
        let third = residents.carry(std::slice::from_ref(&c), 100);
        assert_eq!((third.dropped, third.sent_bytes), (vec![b.id()], 40));
        let all = residents.carry(&[a.clone(), b.clone(), c.clone()], 100);
        assert_eq!((all.sent_bytes, all.kept_bytes, all.dropped), (40, 80, vec![]));
        assert!(!all.buffers[1].is_kept);
        // Too large for the unit's memory.
        let large = residents.carry(&[buffer(101)], 100);
        assert!(!large.buffers[0].is_kept && large.dropped.is_empty());
    }

    #[test]
    fn old_generations_and_buffers_of_nobody_are_dropped() {
        let mut residents = Residents::default();
        let first = buffer(40);
        residents.carry(std::slice::from_ref(&first), 100);
        let second = first.replaced(vec![8; 50]);
        let carried = residents.carry(std::slice::from_ref(&second), 100);
        assert_eq!((carried.dropped, carried.sent_bytes), (vec![first.id()], 50));
        let id = second.id();
        drop(second);
        let other = buffer(10);
        assert_eq!(residents.carry(std::slice::from_ref(&other), 100).dropped, [id]);
        residents.forget();
        let again = residents.carry(std::slice::from_ref(&other), 100);
        assert_eq!((again.sent_bytes, again.drops_all), (10, true));
        assert!(!residents.carry(std::slice::from_ref(&other), 100).drops_all);
        // Two generations in one request: one of them stays.
        let newer = other.replaced(vec![9; 20]);
        let both = residents.carry(&[newer.clone(), other.clone()], 100);
        assert_eq!((both.sent_bytes, both.dropped), (20, vec![]));
        assert!(!both.buffers[0].is_kept);
        let both = residents.carry(&[other.clone(), newer], 100);
        assert_eq!((both.sent_bytes, both.kept_bytes, both.dropped), (20, 10, vec![]));
        assert_ne!(other.replaced(vec![1]).id(), other.replaced(vec![2]).id());
    }
}
