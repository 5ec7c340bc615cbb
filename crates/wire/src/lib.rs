//! What a client sends in PostgreSQL's protocol, decoded: bytes in, views and values out.
//!
//! ```text
//!   startup   the first packet of a connection          frame     bytes -> messages
//!   frontend  messages -> views into them               params    parameters -> values
//! ```
//!
//! Nothing here knows sockets, sessions or answers: those are the crate `server`'s. So every byte that comes
//! from outside passes through code that can be tested, and fuzzed, by itself (`fuzzing`).
//!
//! No bytes make a decoder panic, read outside its slice, or allocate more than arrived.

pub mod frame;
pub mod frontend;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod params;
pub mod startup;
