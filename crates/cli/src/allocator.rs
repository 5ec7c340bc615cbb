//! What the allocator of the `weft` command is asked to do.

use std::time::Duration;

use weft::Database;
use weft_base::idle::{self, Amount};
use weft_server::Server;

/// How often memory that nobody uses is given back.
pub(crate) const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

/// Seconds without a connection after which the server rests the first time; then after twice as many.
const QUIET_SECONDS: u32 = 2;

/// Has the threads of a server without connections give back what its last clients used.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    quiet_seconds: u32,
}

impl Rest {
    /// To be called once in [`GIVE_BACK_EVERY`].
    pub(crate) fn tick(&mut self, server: &Server, database: &Database) {
        self.quiet_seconds = if server.connection_count() == 0 {
            self.quiet_seconds.saturating_add(1)
        } else {
            0
        };
        let rests = self.quiet_seconds >= QUIET_SECONDS && self.quiet_seconds.is_power_of_two();
        idle::set_resting(rests);
        if rests {
            server.rest();
            database.rest();
        }
        give_back(if rests { Amount::All } else { Amount::Some });
    }
}

/// Gives back what this thread holds and others have freed, and memory to the system that has been free for a
/// second, a part of it at a time; with [`Amount::All`], all of it at once.
///
/// mimalloc does so when a thread asks for memory in certain ways; a server without work would keep what its
/// last clients used.
pub(crate) fn give_back(amount: Amount) {
    // SAFETY: any thread may call it at any time, whatever the process's allocator is.
    unsafe { libmimalloc_sys::mi_collect(amount == Amount::All) };
}
