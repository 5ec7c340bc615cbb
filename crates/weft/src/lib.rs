//! The embedded database: open, session, prepare, execute, snapshot queries.
