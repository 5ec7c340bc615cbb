//! The latches of the engine: those of `parking_lot`, and in this crate's own tests latches that a test can
//! step (`stepped/`). Leaf latches, which are released before any other is taken (those of caches, memtables
//! and open tables), need no stepping and are `parking_lot`'s everywhere.

#[cfg(not(test))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

#[cfg(test)]
pub(crate) use crate::stepped::{Condvar, Mutex, MutexGuard, RwLock};
