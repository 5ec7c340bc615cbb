//! Tables on several ranks: a cluster of whole databases, any of which takes any statement.
//!
//! A *rank* is a database with its own directory, log and recovery, and an address for PostgreSQL clients.
//! The rank that a client has connected to is its *home*. Where a table's rows are is in its definition
//! ([`weft_store::Distribution`]): spread by the hash of the first column of its primary key, on every rank,
//! or on the first rank alone.
//!
//! ```text
//!   client -> server -> RanksSession -- the home: weft::Session
//!                          |    route    which ranks does the statement concern?
//!                          |    commit   two-phase commit over the ranks that wrote
//!                          v
//!                        post  --- fabric's mailboxes --->  agent of another rank: branches, views
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | `session` | a client's session: statements here and elsewhere, branches of its transaction |
//! | `spread` | queries and inserts over the rows of several ranks, computed at home |
//! | `sinks` | results of the parts of a statement |
//! | `route` | from what a statement concerns to the ranks that run it |
//! | `commit` | the end of a transaction of several ranks |
//! | `decisions` | which transactions are being decided; holds, for queries over several ranks |
//! | `view` | another rank's rows, for the query engine |
//! | `agent` | what other ranks ask of this one |
//! | `post` | requests, answers, worker threads |
//! | `message` | their bytes |
//! | `identity` | what a rank keeps of the cluster in its own tables |
//! | `node` | a rank's start, housekeeping and end |
//! | `step` | steps of a commit, for tests |
//! | `error` | what only several ranks can say |
//!
//! # Invariants
//!
//! 1. A row of a partitioned table is on the rank that its key names. What would break this is refused.
//! 2. A statement whose keys are all on one rank is an ordinary statement of that rank; on its home it costs
//!    no message.
//! 3. Locks of local and remote transactions are in one table, that of the rows' rank. A transaction of
//!    several ranks waits for a bounded time, since no rank sees a circle that crosses ranks.
//! 4. A transaction that wrote on several ranks commits on all or on none: its decision is on its home's disk
//!    before anybody hears of it.
//! 5. A query over several ranks reads one state of the whole: every such transaction is in it on all its
//!    ranks or on none.
//!
//! # What is not there
//!
//! Whatever is not possible over several ranks yet is refused with 0A000: REPEATABLE READ over ranks,
//! sequences, FOR UPDATE of rows of several ranks, ON CONFLICT and RETURNING of inserts for several ranks,
//! changes of a partition column, COPY FROM into partitioned tables, cursors over several ranks.
//!
//! Outside of SERIALIZABLE a statement that reads a single rank may see a transaction of several ranks a
//! moment before, or after, it is seen on another: the statements are separate. Decision 0044.

mod agent;
mod commit;
mod decisions;
pub mod error;
mod identity;
pub mod message;
mod node;
mod post;
mod route;
mod session;
mod sinks;
mod spread;
mod step;
mod view;

pub use node::{Config, Node, Ranks};
pub use session::RanksSession;
#[doc(hidden)]
pub use step::{AtStep, Step};
