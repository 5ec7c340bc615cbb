//! One-sided messages between ranks: the only crate that knows MPI.
//!
//! A *rank* is a process, or a thread that stands for one. Ranks share *windows*: memory of each that all can
//! read, write and do atomic operations on, without the owner's help. Over them stand *mailboxes* for small
//! messages and the collectives that distributed joins need. Code of a rank is ordinary blocking code over
//! [`Rank`], [`Window`] and [`Mailbox`]; it cannot tell which form it runs on:
//!
//! | form | module | ranks are | for | a death |
//! |---|---|---|---|---|
//! | simulation | [`sim`] | threads of which one runs at a time, chosen by a seed | tests of protocols | at any step, with a return |
//! | threads | [`Threads`] | threads of this process | one machine, tests | found, with a return |
//! | processes | [`processes`] | processes that share memory | one machine | found, with a return |
//! | MPI | `mpi` (feature) | processes of mpirun | many machines | the job ends; waits have deadlines |
//!
//! | module | what is in it |
//! |---|---|
//! | `transport` | what a form must provide, and in which order things happen |
//! | `rank` | a rank: its clock, waits with deadlines, who is alive |
//! | [`window`], [`in_flight`] | windows, ranges, buffers on their way |
//! | [`mailbox`] | messages, back-pressure, notification |
//! | [`collective`] | barrier, sums, scans, exchanges |
//! | `shared` | threads and processes |
//! | [`sim`] | the simulation |
//! | [`measure`] | round trips, operations and bandwidth of two ranks |
//! | [`error`] | what can go wrong |
//!
//! # Invariants
//!
//! 1. What a put wrote is in the target's memory when the flush after it has returned; before that any part
//!    of it may be.
//! 2. No range outside a window is touched, and no message is delivered torn, twice or out of its sender's
//!    order.
//! 3. Every call that waits has a deadline, and names the rank that did not answer.
//! 4. What another rank wrote is outside data: it can make a call fail, never panic.
//!
//! Source: Barthels, "Scalable Query and Transaction Processing over High-Performance Networks" (2019):
//! sections 2.2.3 and 2.2.5 (one-sided operations, windows), 4.2 (collectives of joins), 5.2.1 and 5.2.3
//! (atomic votes, mailboxes with notified puts), 6.1.2 (what MPI lacks: no priorities and no failures; waits
//! here have deadlines). Decision 0035 says why ranks are driven as they are.

pub mod collective;
pub mod error;
pub mod in_flight;
pub mod mailbox;
pub mod measure;
#[cfg(feature = "mpi")]
pub mod mpi;
mod rank;
mod shared;
pub mod sim;
mod transport;
pub mod window;

pub use error::{Class, Error};
pub use in_flight::InFlight;
pub use mailbox::{Mailbox, MailboxSpec, Received};
pub use rank::{Rank, TIMEOUT};
pub use shared::processes;
pub use shared::threads::Threads;
pub use transport::Presence;
pub use window::{Window, WindowSpec};
