//! What keeps a protocol correct, each part of it removable: a type parameter, so that [`Sound`] costs
//! nothing.
//!
//! A checker that has never refused anything proves little. Tests give a protocol safeguards with one part
//! missing and demand that the serializability check notices. Two writers of one row are kept apart even
//! then: the store demands it of whoever writes, and a test should break a protocol, not memory.

/// Which safeguards are in place, and where a test may disturb the schedule.
pub trait Safeguards: Send + Sync + Copy + Default + 'static {
    /// What is read is locked, as what is written always is.
    const LOCKS_READS: bool = true;
    /// Read sets are validated before commit.
    const VALIDATES: bool = true;
    /// Timestamps are compared on arrival.
    const COMPARES_TIMESTAMPS: bool = true;
    /// A transaction runs after the answers to what it asked, for its reads too.
    const KEEPS_MESSAGE_ORDER: bool = true;

    /// A run is kept to the footprint that it was planned by in what it reads, as it always is in what it
    /// writes.
    const KEEPS_READS: bool = true;

    /// Called where another worker may come between; does nothing but in tests.
    #[inline(always)]
    fn pause() {}
}

/// All in place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sound;

impl Safeguards for Sound {}
