//! A queue that grows without moving what is in it.
//!
//! A vector that doubles copies everything at once into memory that was never touched: with millions of
//! entries of 48 bytes, tenths of a second in which the batch that pushed waits, and all after it.

use std::collections::VecDeque;

/// Entries of a chunk.
const CHUNK_LEN: usize = 512;

/// First in, first out, in chunks of a fixed size. A push takes constant time, but for one small entry per
/// chunk in the list of chunks.
pub(crate) struct ChunkQueue<T> {
    /// Oldest first. None is empty, except one that is alone; all but the last were filled once.
    chunks: VecDeque<VecDeque<T>>,
}

impl<T> ChunkQueue<T> {
    pub(crate) fn new() -> Self {
        ChunkQueue {
            chunks: VecDeque::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    /// The number of entries; takes as long as there are chunks.
    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(VecDeque::len).sum()
    }

    pub(crate) fn push_back(&mut self, entry: T) {
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK_LEN => last.push_back(entry),
            _ => {
                let mut chunk = VecDeque::with_capacity(CHUNK_LEN);
                chunk.push_back(entry);
                self.chunks.push_back(chunk);
            }
        }
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.chunks.front()?.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.chunks.front_mut()?.front_mut()
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let first = self.chunks.front_mut()?;
        let entry = first.pop_front();
        if first.is_empty() && self.chunks.len() > 1 {
            self.chunks.pop_front();
        }
        entry
    }

    /// Removes the oldest entry if `condition` holds for it.
    pub(crate) fn pop_front_if(&mut self, condition: impl FnOnce(&T) -> bool) -> Option<T> {
        self.front().is_some_and(condition).then(|| self.pop_front())?
    }

    /// The oldest entry for which `is_before` does not hold. It holds for no entry after one for which it
    /// does not.
    pub(crate) fn first_after(&self, is_before: impl Fn(&T) -> bool) -> Option<&T> {
        let at = self
            .chunks
            .partition_point(|chunk| chunk.back().is_some_and(&is_before));
        let chunk = self.chunks.get(at)?;
        chunk.get(chunk.partition_point(&is_before))
    }

    /// Removes all entries.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        std::mem::take(&mut self.chunks).into_iter().flatten()
    }

    /// Gives back what an empty queue holds beyond its chunk.
    pub(crate) fn shrink(&mut self) {
        self.chunks.shrink_to(8);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is pushed and popped, it does what a plain queue of rising numbers does.
        #[test]
        fn it_is_a_queue(
            runs in prop::collection::vec((any::<bool>(), 0..3 * CHUNK_LEN), 1..20),
            probe in 0..6000u32,
        ) {
            let (mut queue, mut model, mut next) = (ChunkQueue::new(), VecDeque::new(), 0_u32);
            for (is_push, count) in runs {
                for _ in 0..count {
                    if is_push {
                        queue.push_back(next);
                        model.push_back(next);
                        next += 2;
                    } else {
                        let first = model.front().copied();
                        prop_assert_eq!(queue.front().copied(), first);
                        prop_assert_eq!(queue.front_mut().copied(), first);
                        prop_assert_eq!(queue.pop_front_if(|entry| Some(*entry) != first), None);
                        prop_assert_eq!(queue.pop_front(), model.pop_front());
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                let expected = model.get(model.partition_point(|entry| *entry < probe));
                prop_assert_eq!(queue.first_after(|entry| *entry < probe), expected);
            }
            queue.shrink();
            prop_assert_eq!(queue.drain().collect::<Vec<_>>(), Vec::from(model));
            prop_assert!(queue.is_empty());
        }
    }

    /// Entries stay where they are while millions are pushed after them.
    #[test]
    fn growing_moves_nothing() {
        let mut queue = ChunkQueue::new();
        queue.push_back(0);
        let place = std::ptr::from_ref(queue.front().unwrap());
        for number in 1..2_000_000 {
            queue.push_back(number);
        }
        assert_eq!(std::ptr::from_ref(queue.front().unwrap()), place);
        assert_eq!(queue.len(), 2_000_000);
    }
}
