//! SQL values: types, comparison, numeric, row layout, key encoding, text forms.
//!
//! A value in each of its representations in the database:
//!
//! - [`SqlType`]: the type of a column, with PostgreSQL's oid, modifier and name.
//! - [`Value`], [`ValueRef`]: one value, owned or borrowed from a row. [`Numeric`]: decimal numbers.
//! - [`compare()`]: SQL comparison. [`cast()`], [`assign`]: conversions. Decimal arithmetic is in
//!   [`numeric`].
//! - [`mod@json`]: json and jsonb.
//! - [`text`], [`binary`]: the formats exchanged with clients, as PostgreSQL 15 writes them.
//! - [`RowLayout`], [`RowBuilder`]: a row in memory, in the log and in files.
//! - [`key`]: order-preserving encoding of values. [`KeyColumns`]: a key's columns in a row.
//! - [`SqlError`], [`SqlState`]: errors as a client sees them.
//!
//! Everything here is a pure function of its arguments: no clock, no random numbers, no settings. A value's
//! text and bytes are therefore the same on every replay. Only [`interrupt`] can end a computation early.

pub mod array;
pub mod binary;
pub mod calendar;
pub mod cast;
pub mod compare;
mod datetime;
pub mod error;
mod float;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hex;
pub mod interrupt;
pub mod interval;
pub mod json;
pub mod key;
mod key_columns;
mod key_shuffle;
pub mod numeric;
pub mod range;
pub mod row;
pub mod search;
pub mod sort;
pub mod sql_type;
pub mod text;
mod timezone;
pub mod value;

pub use array::ArrayValue;
pub use binary::{decode_binary, encode_binary, encode_binary_ref};
pub use cast::{
    CastContext, assign, assign_from, cast, cast_context, cast_from, cast_in, float_to_integer, narrow_float,
};
pub use compare::{compare, compare_floats, compare_ref};
pub use datetime::{date_of_timestamp, is_date, timestamp_of_date};
pub use error::{ErrorFields, Notice, NoticeLevel, OWN_STATES_MAX, SqlError, SqlState};
pub use interval::Interval;
pub use json::{Jsonb, JsonbRef};
pub use key::{
    decode_key_value, encode_key_from_row, encode_key_null, encode_key_value, encode_key_value_ref,
    prefix_successor, range_prefix_len,
};
pub use key_columns::KeyColumns;
pub use numeric::Numeric;
pub use row::{RowBuilder, RowLayout};
pub use sql_type::{ColumnKind, Element, NumericSpec, SqlType};
pub use text::{format_text, format_text_in, format_text_ref, parse_text, parse_text_in};
pub use timezone::{OffsetFault, TimeZone};
pub use value::{VALUE_BYTES_MAX, Value, ValueRef};
