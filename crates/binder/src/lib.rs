//! Binding: from a syntax tree to typed relations ([`relation`]), with PostgreSQL's rules for names and types.
//!
//! Binding reads the catalog and nothing else. It takes time in proportion to the statement's length, and knows
//! neither programs nor DataFusion: what runs a [`Query`](relation::Query) is decided above.

pub mod relation;
