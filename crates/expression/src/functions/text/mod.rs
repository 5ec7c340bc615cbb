//! Functions and operators of texts (PostgreSQL 15, 9.4).
//!
//! Positions and lengths are in characters; only ASCII letters have case, as in collation C.
//!
//! A value of type `char(n)` arrives without its trailing blanks. Entries that take [`Arg::Is`]`(Char)` or
//! [`Arg::Any`](crate::Arg::Any) and depend on them (`octet_length`, LIKE, regular expressions, `concat`,
//! `format`) expect the padded text instead: the caller wraps such an argument in `bpchar_pad(value, n)`,
//! which returns a text. `length` of a `char(n)` ignores trailing blanks.
//!
//! [`Arg::Is`]: crate::Arg::Is

pub mod change;
pub mod concat;
pub mod cut;
pub mod encode;
pub mod hash;
pub mod quote;
