//! The types json and jsonb.
//!
//! A `json` is its text as the client wrote it, checked once ([`check`]). A `jsonb` is one value in a binary
//! form ([`Jsonb`], [`JsonbRef`]) that is read in place: a key is found by binary search and an item by its
//! number, without reading the rest.
//!
//! ```text
//! value      tag, then its payload, which fills the value's extent
//!   0x00     null
//!   0x01     false
//!   0x02     true
//!   0x03     string: UTF-8 without NUL
//!   0x04     number: a numeric in its stored form, never NaN
//!   0x05     array: u32 count, count * u32 ends, the items
//!   0x06     object: u32 count, 2 * count * u32 ends, the keys (strings without tag), the values
//! ```
//!
//! Integers are little endian. An end is the offset behind a piece (item, key or value) from the start of
//! the first piece; ends never decrease and the last one is the end of the extent. So no piece has a length
//! of its own, and the value of a whole column has the extent of that column.
//!
//! Invariants:
//! 1. Keys are in order of their length, then of their bytes, and none occurs twice: PostgreSQL's order, in
//!    which they are shown. Of equal keys in a text the last one is kept.
//! 2. Equal texts give equal bytes. Equal values may differ in the scales of their numbers: [`compare`] and
//!    the key encoding ignore them.
//! 3. Arrays and objects nest at most [`DEPTH_MAX`] levels, so that code may recurse.
//! 4. The format is used in files: it never changes. [`validate`] accepts exactly what [`Builder`] writes.
//!
//! - `parse`: the reader of texts, with PostgreSQL's errors. `build`: makes a `jsonb`. `view`: reads one.
//! - `write`: its text. `order`: comparison and keys.

mod build;
mod order;
mod parse;
#[cfg(test)]
mod tests;
mod view;
mod write;

pub use build::{Builder, parse_jsonb};
pub use order::compare;
pub(crate) use order::{put_key, take_key};
pub use parse::{Container, Events, Scalar, check, parse};
pub use view::{ArrayView, Node, ObjectView, compare_keys, validate};
pub use write::{push_escaped, write, write_indented};

use crate::{SqlError, SqlState};

/// Maximum nesting of arrays and objects.
pub const DEPTH_MAX: usize = 1000;

/// Maximum bytes of a string, and of all pieces of an array or object.
pub const PIECES_BYTES_MAX: usize = 0x0fff_ffff;

const TAG_NULL: u8 = 0;
const TAG_FALSE: u8 = 1;
const TAG_TRUE: u8 = 2;
const TAG_STRING: u8 = 3;
const TAG_NUMBER: u8 = 4;
const TAG_ARRAY: u8 = 5;
const TAG_OBJECT: u8 = 6;

/// A `jsonb` value. `PartialEq` and `Hash` are those of the stored form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Jsonb(Vec<u8>);

/// A `jsonb` value in a row or message, or a part of one. Not necessarily valid: what is not is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JsonbRef<'a>(&'a [u8]);

impl Jsonb {
    /// Borrows it.
    #[must_use]
    pub fn as_ref(&self) -> JsonbRef<'_> {
        JsonbRef(&self.0)
    }

    /// The stored form.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<'a> JsonbRef<'a> {
    /// The value with a stored form that was [`validate`]d when it was stored.
    #[must_use]
    pub const fn of_stored(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The stored form.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Copies it.
    #[must_use]
    pub fn to_jsonb(&self) -> Jsonb {
        Jsonb(self.0.to_vec())
    }
}

/// 54001 for a value that nests too deeply.
fn too_deep() -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded").hint(format!(
        "Arrays and objects of json nest at most {DEPTH_MAX} levels."
    ))
}
