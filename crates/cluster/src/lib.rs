//! Transactions over ranks: a conventional lock table and a conventional commit protocol, fast because their
//! messages are one-sided and small.
//!
//! ```text
//!   agent (runs transactions)                      server (owns some locks and records)
//!     lock     --put: locks wanted-------------->    LockTable: granted, waits, refused
//!              <-------------put: answer---------
//!     read     <======one-sided get of a record==
//!     write    kept by the agent
//!     commit   ==one-sided put of its writes====>    staging area of this agent
//!              --put: prepare------------------->    log "prepared", sync
//!              <--one-sided store: a vote--------
//!              log the decision, sync; tell the client
//!              --put: end----------------------->    apply, release all locks
//! ```
//!
//! Ranks `0..servers` are servers, all others agents: how many of each is a setting. An agent runs one
//! transaction at a time. One that needed a single server commits there without votes; one that only read
//! needs no votes at all.
//!
//! | module | what is in it |
//! |---|---|
//! | [`config`] | settings that all ranks share, and where locks and records are |
//! | [`message`] | what agents and servers send each other |
//! | [`journal`] | what they write to their logs |
//! | [`server`] | a lock server with its records |
//! | `waits` | who waits for whom, where other servers can read it |
//! | [`agent`] | a transaction agent, the coordinator of its commits |
//! | [`measure`] | what locks and commits cost, beside the model |
//! | [`trace`] | locks of recorded transactions |
//! | [`error`] | why a transaction, or a rank, ends |
//!
//! # Invariants
//!
//! 1. A server votes yes only when its part is on its disk, and while it holds every lock that the
//!    transaction took there. From then on only the coordinator decides.
//! 2. A coordinator's decision to commit is on its disk before anybody hears of it. Without one there is no
//!    commit.
//! 3. A server that returns from a death holds the locks of everything it voted for and has not heard about,
//!    and serves nobody before.
//! 4. Locks of a server's earlier life are worth nothing: whoever relies on one is told no. So a transaction
//!    that commits held all its locks together (strict two-phase locking: strict serializability).
//! 5. What another rank sends is outside data: at worst it ends that rank's own transaction.
//! 6. A transaction is refused for a circle only if all of the circle was waiting at one moment.
//!
//! Source: Barthels, "Scalable Query and Transaction Processing over High-Performance Networks" (2019),
//! chapter 5. Beyond it: logs on both sides and what deaths do, several locks in one request (named there in
//! 5.4.3), the other policies of `weft-lock`.

pub mod agent;
pub mod config;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod journal;
pub mod measure;
pub mod message;
pub mod server;
pub mod trace;
mod waits;

pub use agent::{Agent, Transaction};
pub use config::{ClusterConfig, Planted, record_lock};
pub use error::{Abort, Error, Refusal};
pub use server::{Server, ServerStats};
