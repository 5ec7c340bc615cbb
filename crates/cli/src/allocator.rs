//! What the allocator of the `weft` command is asked to do.

use std::time::Duration;

/// How often memory that nobody uses is given back.
pub(crate) const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

/// Gives back what this thread holds and others have freed, and memory to the system that has been free for a
/// second, a part of it at a time.
///
/// mimalloc does so when a thread asks for memory in certain ways; a server without work would keep what its
/// last clients used.
pub(crate) fn give_back() {
    // SAFETY: any thread may call it at any time, whatever the process's allocator is.
    unsafe { libmimalloc_sys::mi_collect(false) };
}
