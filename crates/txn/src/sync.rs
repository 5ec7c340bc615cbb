//! What threads meet at, where `role` and `ticket` take it from: their model test (`tests/handover`) compiles
//! the same files over a scheduler that it steps.

pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
