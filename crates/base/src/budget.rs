//! Bytes that may be held at one time, counted where they are asked for.
//!
//! A [`Budget`] has a limit; whoever wants to keep something takes a [`Reservation`] of it first and gives it
//! back by dropping it. A budget may stand within another one: a session's within that of all sessions. Both
//! must have room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes that may be held at one time.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    held: AtomicUsize,
    within: Option<Arc<Budget>>,
}

/// More was asked for than is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit that was met, in bytes.
    pub bytes_max: usize,
}

/// Bytes of a budget that somebody holds, until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget {
            bytes_max,
            held: AtomicUsize::new(0),
            within: None,
        })
    }

    /// A budget of so many bytes whose reservations count in this one, too.
    pub fn part(self: &Arc<Budget>, bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget {
            bytes_max,
            held: AtomicUsize::new(0),
            within: Some(Arc::clone(self)),
        })
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// A reservation of nothing yet.
    pub fn empty(self: &Arc<Budget>) -> Reservation {
        Reservation {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }

    /// A reservation of so many bytes.
    ///
    /// # Errors
    /// If this budget, or one that it is part of, has no room for them.
    pub fn reserve(self: &Arc<Budget>, bytes: usize) -> Result<Reservation, Exceeded> {
        let mut reservation = self.empty();
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    fn take(&self, bytes: usize) -> Result<(), Exceeded> {
        let fits = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        let taken = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map_err(|_| Exceeded {
            bytes_max: self.bytes_max,
        })?;
        if let Some(within) = &self.within
            && let Err(exceeded) = within.take(bytes)
        {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(exceeded);
        }
        Ok(())
    }

    fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(within) = &self.within {
            within.release(bytes);
        }
    }
}

impl Reservation {
    /// Reserves so many bytes more. After an error it is as large as before.
    ///
    /// # Errors
    /// As [`Budget::reserve`].
    pub fn grow(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// How many bytes are reserved.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_count_in_both_budgets_until_released() {
        let all = Budget::new(100);
        let (one, other) = (all.part(70), all.part(70));
        let mut first = one.reserve(60).unwrap();
        assert_eq!(first.grow(11).unwrap_err(), Exceeded { bytes_max: 70 });
        assert_eq!(other.reserve(41).unwrap_err(), Exceeded { bytes_max: 100 });
        assert_eq!((one.held(), other.held(), all.held()), (60, 0, 60));
        first.grow(10).unwrap();
        let second = other.reserve(30).unwrap();
        assert_eq!((first.bytes(), all.held()), (70, 100));
        assert!(other.reserve(1).is_err());
        drop(first);
        assert_eq!((one.held(), other.held(), all.held()), (0, 30, 30));
        drop(second);
        assert_eq!(all.held(), 0);
        assert!(all.reserve(usize::MAX).is_err());
    }

    #[test]
    fn threads_never_hold_more_than_the_limit() {
        let all = Budget::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let part = all.part(600);
                let all = &all;
                scope.spawn(move || {
                    for round in 0..10_000 {
                        let held = part.reserve(round % 400);
                        assert!(all.held() <= 1000);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(all.held(), 0);
    }
}
