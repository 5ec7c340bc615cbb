//! The parts that keep a protocol correct, each removable: a type parameter, so that [`Sound`] costs nothing.
//!
//! A checker that has never rejected anything proves little. Tests give a protocol safeguards with one part
//! missing and require the serializability check to notice. Even then two writers of one row are excluded:
//! the store requires it of writers, and a test should break a protocol, not memory safety.

/// The safeguards in place, and where a test may disturb the schedule.
pub trait Safeguards: Send + Sync + Copy + Default + 'static {
    /// Reads are locked, as writes always are.
    const LOCKS_READS: bool = true;
    /// Read sets are validated before commit.
    const VALIDATES: bool = true;
    /// Timestamps are compared on arrival.
    const COMPARES_TIMESTAMPS: bool = true;
    /// A transaction runs only after the answers to all its requests, including reads.
    const KEEPS_MESSAGE_ORDER: bool = true;

    /// A run's reads are restricted to the footprint that it was planned by, as its writes always are.
    const KEEPS_READS: bool = true;

    /// Called where another worker may interleave; does nothing except in tests.
    #[inline(always)]
    fn pause() {}
}

/// All safeguards in place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sound;

impl Safeguards for Sound {}
