//! Tuples of the build side that found no place in their lines: a list that grows within the budget.

use std::sync::Arc;

use weft_base::{Budget, Reservation};

use crate::array::{refused, reserve};
use crate::error::JoinError;

const PURPOSE: &str = "build tuples with too many of one hash";
/// Items of the first reservation.
const ITEMS_MIN: usize = 512;

/// A worker's overflow.
pub(crate) struct Overflow<I> {
    items: Vec<I>,
    budget: Option<Arc<Budget>>,
    room: Option<Reservation>,
}

impl<I: Copy> Overflow<I> {
    /// Nothing yet. Without a budget, the caller has reserved what is needed.
    pub(crate) fn new(budget: Option<&Arc<Budget>>) -> Overflow<I> {
        Overflow {
            items: Vec::new(),
            budget: budget.cloned(),
            room: None,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, item: I) -> Result<(), JoinError> {
        if self.items.len() == self.items.capacity() {
            self.make_room(self.items.len().max(ITEMS_MIN))?;
        }
        self.items.push(item);
        Ok(())
    }

    #[cold]
    fn make_room(&mut self, more: usize) -> Result<(), JoinError> {
        let bytes = more.saturating_mul(size_of::<I>());
        match (&mut self.room, &self.budget) {
            (Some(room), _) => room
                .grow(bytes)
                .map_err(|exceeded| refused(exceeded, bytes, PURPOSE))?,
            (empty, Some(budget)) => *empty = Some(reserve(budget, bytes, PURPOSE)?),
            (_, None) => {}
        }
        self.items
            .try_reserve_exact(more)
            .map_err(|_| JoinError::Memory { bytes })
    }

    /// Takes in what other workers have.
    pub(crate) fn append(&mut self, other: Overflow<I>) -> Result<(), JoinError> {
        let free = self.items.capacity() - self.items.len();
        if other.items.len() > free {
            self.make_room(other.items.len() - free)?;
        }
        self.items.extend_from_slice(&other.items);
        Ok(())
    }

    /// Its items.
    pub(crate) fn items(&self) -> &[I] {
        &self.items
    }

    /// Its items, and the reservation that must live as long as they do.
    pub(crate) fn into_items(self) -> (Vec<I>, Option<Reservation>) {
        (self.items, self.room)
    }
}
