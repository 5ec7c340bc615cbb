//! Weft held against PostgreSQL 15: random statements whose answers must be the same, and records of answers.
//!
//! ```text
//! seed -> generate (typed trees of text) -> pair (both servers, every way to send it) -> answer (judged)
//!                                             |  differs                                    |
//!                                             +---- minimise (cuts of the tree) <-----------+---> report
//! tests/sql/*.slt -> records (reader, runner) -> Weft, and PostgreSQL where it is installed
//! statements that take long -> interrupts (statement_timeout, CancelRequest) -> how late they end
//! three sessions -> sessions (random statements that lock rows), advisory (advisory locks)
//!                -> both servers answer alike
//! hostile clients -> hostile (a canary and a watch beside) -> does anybody else notice
//! ```
//!
//! Nothing here knows how Weft is built: it is reached through the wire alone. What can be called is read
//! from PostgreSQL's own catalog ([`catalog`]), so that no function or operator is forgotten. One statement
//! goes through the simple protocol, prepared with results in binary, and with its literals as parameters;
//! one about a row goes by the row's key and past it, since those are two paths in Weft.

pub mod advisory;
pub mod answer;
pub mod campaign;
pub mod catalog;
pub mod generate;
pub mod hostile;
pub mod interrupts;
pub mod minimise;
pub mod pair;
pub mod records;
pub mod report;
pub mod schema;
pub mod server;
pub mod sessions;
pub mod tree;
pub mod types;
pub mod wire;
