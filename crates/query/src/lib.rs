//! Queries: typed relations ([`weft_binder`]) as DataFusion plans over a snapshot.
//!
//! DataFusion gets operators and columns, no meaning: every expression is one function of ours over columns.
