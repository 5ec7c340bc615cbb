//! Which run's entry is next, decided by offset-value codes.
//!
//! A key's *code* relative to a smaller key says how many bytes the two share and which byte follows:
//!
//! ```text
//! code = (65535 - shared) << 9 | (0 if the key ends there, else 1 + the byte that follows)
//! ```
//!
//! Of two keys with codes relative to the same smaller key, the one with the smaller code is smaller, and
//! when the codes differ, the larger key's code relative to the smaller one is the code that it has. So
//! most comparisons are one of two numbers; only equal codes need the keys, from behind what they are known
//! to share.
//!
//! # Invariants
//!
//! 1. The list is sorted by key, then stamp descending, then run.
//! 2. Each element's code is relative to the element before it, the first one's relative to the key that
//!    was first before it (or the empty key).
//!
//! The first element's code therefore says how many bytes it shares with the entry handed out before: that is
//! what the block builder needs, and nobody has to compare keys for it.
//!
//! A list, not a tree of losers: a task has few runs (a unit takes four, the engine gives sixteen at most),
//! and then a few comparisons more of two numbers cost less than the tree's bookkeeping.
//!
//! Source: Conner, "Offset value coding", 1977; Do and Graefe, "Robust and efficient sorting with
//! offset-value coding", 2022.

use std::cmp::Ordering;

use super::MergeError;
use super::run::RunReader;

const SHARED_MAX: u64 = 65_535;

/// Readers in the order of their present entries.
pub(super) struct RunOrder<'a> {
    readers: Vec<RunReader<'a>>,
    sorted: Vec<Element>,
}

/// A reader's code (high 32 bits) and number (low 32): one word, so that moving it is one store and one load.
#[derive(Clone, Copy)]
struct Element(u64);

impl Element {
    /// The code of a key of which `shared` bytes stand in a smaller one.
    #[inline(always)]
    fn new(shared: usize, key: &[u8], number: usize) -> Self {
        let next = key.get(shared).map_or(0, |&byte| u64::from(byte) + 1);
        let code = (SHARED_MAX - shared as u64) << 9 | next;
        Self(code << 32 | number as u64)
    }

    #[inline(always)]
    const fn code(self) -> u64 {
        self.0 >> 32
    }

    #[inline(always)]
    const fn shared(self) -> usize {
        (SHARED_MAX - (self.0 >> 41)) as usize
    }

    #[inline(always)]
    const fn number(self) -> usize {
        self.0 as u32 as usize
    }
}

impl<'a> RunOrder<'a> {
    pub(super) fn new(readers: Vec<RunReader<'a>>) -> Self {
        let mut order = Self {
            sorted: Vec::with_capacity(readers.len()),
            readers,
        };
        for number in 0..order.readers.len() {
            let Some(reader) = order.readers.get(number) else {
                break;
            };
            let element = Element::new(0, reader.key(), number);
            order.sorted.insert(0, element);
            order.sink(element);
        }
        order
    }

    /// The smallest entry's reader, and how many bytes its key shares with the key that was first before.
    #[inline(always)]
    pub(super) fn head(&self) -> Option<(usize, &RunReader<'a>)> {
        let first = self.sorted.first()?;
        Some((first.shared(), self.readers.get(first.number())?))
    }

    /// Moves the first reader on and finds its new place.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> Result<(), MergeError> {
        let Some(number) = self.sorted.first().map(|first| first.number()) else {
            return Ok(());
        };
        let Some(reader) = self.readers.get_mut(number) else {
            return Ok(());
        };
        if reader.advance()? {
            let element = Element::new(reader.shared(), reader.key(), number);
            self.sink(element);
        } else {
            self.sorted.remove(0);
        }
        Ok(())
    }

    /// Puts `element`, which replaces the first, to its place among the others, which are sorted.
    #[inline(always)]
    fn sink(&mut self, mut element: Element) {
        let mut at = 0;
        while let Some(&next) = self.sorted.get(at + 1) {
            match element.code().cmp(&next.code()) {
                Ordering::Less => break,
                Ordering::Greater => {}
                Ordering::Equal => {
                    if self.compare(&mut element, at + 1, next) == Ordering::Less {
                        break;
                    }
                }
            }
            if let Some(place) = self.sorted.get_mut(at) {
                *place = next;
            }
            at += 1;
        }
        if let Some(place) = self.sorted.get_mut(at) {
            *place = element;
        }
    }

    /// Compares keys where the codes do not decide, and gives the larger one its new code.
    #[inline]
    fn compare(&mut self, element: &mut Element, at: usize, next: Element) -> Ordering {
        let pair = (
            self.readers.get(element.number()),
            self.readers.get(next.number()),
        );
        let (Some(reader), Some(next_reader)) = pair else {
            return Ordering::Less;
        };
        let (order, shared) = reader.compare(next_reader, element.shared());
        if order == Ordering::Less {
            if let Some(place) = self.sorted.get_mut(at) {
                *place = Element::new(shared, next_reader.key(), next.number());
            }
        } else {
            *element = Element::new(shared, reader.key(), element.number());
        }
        order
    }
}
