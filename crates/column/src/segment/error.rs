//! What can go wrong with a segment.

use std::fmt;

use super::Kind;

/// Where in a segment something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The first 64 bytes.
    Header,
    /// What says where the columns lie.
    Directory,
    /// The column with this number.
    Column(usize),
}

/// Why a segment could not be made or read. [`SegmentError::Damaged`] and [`SegmentError::Version`] are
/// corruption, [`SegmentError::Miscoded`] is a mistake in this crate, all else one of the caller. The same
/// bytes and calls give the same error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentError {
    /// The bytes are not those that were written: corruption. Other columns can be read.
    Damaged {
        /// The part that is damaged.
        place: Place,
        /// Offset of the damage in the segment as far as it is known, otherwise of the part.
        offset: usize,
        /// What is wrong there.
        reason: &'static str,
    },
    /// The bytes are of a version that this code does not know.
    Version(u32),
    /// There is no column with this number.
    NoColumn(usize),
    /// There is no row at this position.
    NoRow(usize),
    /// A column of one kind does not hold, or cannot be compared with, values of the other.
    WrongKind {
        /// The column's kind.
        column: Kind,
        /// The value's kind.
        value: Kind,
    },
    /// A segment has at most [`super::ROWS_MAX`] rows.
    TooManyRows,
    /// A segment has at most [`super::COLUMNS_MAX`] columns.
    TooManyColumns,
    /// The byte strings of a column, or all columns, have more than 2^31 - 1 bytes.
    TooLarge,
    /// This column has not as many values as the first one.
    Uneven(usize),
    /// What was encoded is not what was given: a mistake in this crate, found before the bytes left it.
    Miscoded(usize),
}

impl SegmentError {
    /// Whether stored bytes are damaged, so that trying again cannot help.
    #[must_use]
    pub const fn is_corruption(&self) -> bool {
        matches!(self, SegmentError::Damaged { .. } | SegmentError::Version(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header => f.write_str("header"),
            Place::Directory => f.write_str("directory"),
            Place::Column(number) => write!(f, "column {number}"),
        }
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentError::Damaged {
                place,
                offset,
                reason,
            } => {
                write!(f, "the segment's {place} is damaged at byte {offset}: {reason}")
            }
            SegmentError::Version(version) => write!(f, "the segment has the unknown version {version}"),
            SegmentError::NoColumn(column) => write!(f, "the segment has no column {column}"),
            SegmentError::NoRow(row) => write!(f, "the segment has no row at position {row}"),
            SegmentError::WrongKind { column, value } => {
                write!(f, "a column of kind {column:?} takes no value of kind {value:?}")
            }
            SegmentError::TooManyRows => f.write_str("the segment has too many rows"),
            SegmentError::TooManyColumns => f.write_str("the segment has too many columns"),
            SegmentError::TooLarge => f.write_str("the segment has too many bytes"),
            SegmentError::Uneven(column) => {
                write!(
                    f,
                    "column {column} of the segment has not as many values as the first"
                )
            }
            SegmentError::Miscoded(column) => {
                write!(
                    f,
                    "column {column} of the segment was not encoded as it was given"
                )
            }
        }
    }
}

impl std::error::Error for SegmentError {}
