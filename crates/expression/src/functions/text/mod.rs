//! Functions and operators of texts (PostgreSQL 15, 9.4).
//!
//! Positions and lengths are characters; letters have cases only within ASCII, as in collation C.
//!
//! A value of type `char(n)` comes without its trailing blanks. Entries that take [`Arg::Is`]`(Char)` or
//! [`Arg::Any`](crate::Arg::Any) and look at them (`octet_length`, LIKE, regular expressions, `concat`,
//! `format`) want the padded text instead: whoever builds a call of them wraps such an argument in
//! `bpchar_pad(value, n)`, which gives a text. `length` of a `char(n)` leaves trailing blanks out by itself.
//!
//! [`Arg::Is`]: crate::Arg::Is

pub mod change;
pub mod concat;
pub mod cut;
pub mod encode;
pub mod quote;
