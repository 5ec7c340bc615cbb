//! Cancelling a statement during a computation.
//!
//! A statement is cancelled at its client's request or by a timeout. Waiting threads are woken; computing
//! threads must poll: a thread works [`with`] the [`Interrupt`] of its statement, and long computations,
//! in this crate or above, call [`check`], or [`Pace`] inside loops. Nothing needs to be passed down, from
//! the parser of a text to the digits of a quotient.
//!
//! Work that other statements depend on must not be cancelled by one of them: it runs [`masked`].

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Arc;

use crate::SqlError;

/// Decides whether a statement is cancelled.
pub trait Interrupt: Debug + Send + Sync {
    /// Fails with 57014 if the statement is cancelled.
    ///
    /// # Errors
    /// The cancellation error.
    fn check(&self) -> Result<(), SqlError>;
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Interrupt>>> = const { RefCell::new(None) };
}

/// Restores the previous interrupt, also after a panic.
struct Restore(Option<Arc<dyn Interrupt>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.replace(self.0.take());
    }
}

/// Runs `work`, which fails soon after `interrupt` is triggered.
pub fn with<T>(interrupt: Arc<dyn Interrupt>, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(CURRENT.replace(Some(interrupt)));
    work()
}

/// Runs `work` without cancellation.
pub fn masked<T>(work: impl FnOnce() -> T) -> T {
    let _restore = Restore(CURRENT.replace(None));
    work()
}

/// This thread's interrupt, for a thread that works on its behalf.
#[must_use]
pub fn current() -> Option<Arc<dyn Interrupt>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Fails if this thread's interrupt, if there is one, is triggered.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub fn check() -> Result<(), SqlError> {
    CURRENT.with_borrow(|current| match current {
        Some(interrupt) => interrupt.check(),
        None => Ok(()),
    })
}

/// Units of work between two checks.
const UNITS_MAX: usize = 1 << 14;

/// Checks periodically, by the work done: a unit is some ten nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    done: usize,
}

impl Pace {
    /// Adds to the work done.
    ///
    /// # Errors
    /// 57014 if the statement is cancelled.
    #[inline]
    pub fn step(&mut self, units: usize) -> Result<(), SqlError> {
        self.done += units;
        if self.done < UNITS_MAX {
            return Ok(());
        }
        self.done = 0;
        check()
    }
}

/// Size of a piece of [`pieces`] in bytes.
const PIECE_BYTES: usize = 1 << 18;

/// A text split into pieces at character boundaries, with a check between pieces.
pub fn pieces(text: &str) -> impl Iterator<Item = Result<&str, SqlError>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, behind) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        rest = behind;
        Some(match behind.is_empty() {
            true => Ok(piece),
            false => check().map(|()| piece),
        })
    })
}

/// Like [`pieces`], with the last piece first.
pub fn pieces_from_end(text: &str) -> impl Iterator<Item = Result<&str, SqlError>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = rest.ceil_char_boundary(rest.len().saturating_sub(PIECE_BYTES));
        let (before, piece) = rest.split_at(at);
        rest = before;
        Some(match before.is_empty() {
            true => Ok(piece),
            false => check().map(|()| piece),
        })
    })
}

/// Appends a text.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub fn push(out: &mut String, text: &str) -> Result<(), SqlError> {
    out.reserve(text.len());
    for piece in pieces(text) {
        out.push_str(piece?);
    }
    Ok(())
}

/// Appends a text `times` times.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub fn push_repeated(out: &mut String, text: &str, times: usize) -> Result<(), SqlError> {
    if text.is_empty() {
        return Ok(());
    }
    out.reserve(text.len().saturating_mul(times));
    let in_piece = (PIECE_BYTES / text.len()).clamp(1, times.max(1));
    let piece = text.repeat(in_piece);
    for _ in 0..times / in_piece {
        push(out, &piece)?;
        check()?;
    }
    out.push_str(piece.get(..times % in_piece * text.len()).unwrap_or_default());
    Ok(())
}

/// Bytes split into pieces, with a check between pieces.
pub fn byte_pieces(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], SqlError>> {
    bytes.chunks(PIECE_BYTES).enumerate().map(|(at, piece)| match at {
        0 => Ok(piece),
        _ => check().map(|()| piece),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::SqlState;

    #[derive(Debug, Default)]
    struct Stop(AtomicBool);

    impl Interrupt for Stop {
        fn check(&self) -> Result<(), SqlError> {
            match self.0.load(Ordering::Relaxed) {
                true => Err(SqlError::new(SqlState::QUERY_CANCELED, "stop")),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn only_work_under_a_triggered_interrupt_ends() {
        let stop = Arc::new(Stop::default());
        assert!(check().is_ok());
        with(stop.clone(), || {
            assert!(check().is_ok());
            stop.0.store(true, Ordering::Relaxed);
            assert!(check().is_err());
            assert!(masked(check).is_ok());
            assert!(with(Arc::new(Stop::default()), check).is_ok());
            let mut pace = Pace::default();
            assert!((0..UNITS_MAX - 1).all(|_| pace.step(1).is_ok()));
            assert!(pace.step(1).is_err());
            assert!(pace.step(1).is_ok());
        });
        assert!(check().is_ok());
    }

    fn repeated(text: &str, times: usize) -> String {
        let mut out = String::new();
        push_repeated(&mut out, text, times).unwrap();
        out
    }

    #[test]
    fn pieces_are_the_text() {
        let text = "aé".repeat(PIECE_BYTES);
        let whole: Result<String, SqlError> = pieces(&text).collect();
        assert_eq!(whole.unwrap(), text);
        assert!(pieces(&text).all(|piece| piece.is_ok_and(|piece| piece.len() <= PIECE_BYTES)));
        assert_eq!(pieces("").count(), 0);
        let mut behind: Vec<&str> = pieces_from_end(&text).map(Result::unwrap).collect();
        behind.reverse();
        assert_eq!(behind.concat(), text);
        for times in [0, 1, 2, 7, PIECE_BYTES, 3 * PIECE_BYTES + 1] {
            assert_eq!(repeated("aé", times), "aé".repeat(times));
        }
        assert_eq!(repeated("", 5), "");
        assert_eq!(repeated(&text, 2), text.repeat(2));
        let bytes = text.as_bytes();
        assert_eq!(
            byte_pieces(bytes)
                .map(|piece| piece.unwrap().len())
                .sum::<usize>(),
            bytes.len()
        );
    }
}
