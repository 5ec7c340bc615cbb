//! The synchronization primitives of `combiner` and `ticket`: their model test (`tests/handover`) compiles
//! the same files with those of a scheduler that it steps.

pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
