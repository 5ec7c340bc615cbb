//! A segment as it is read.

use std::sync::atomic::{AtomicBool, Ordering};

use weft_ops::crc32c;

use super::Encoding;
use super::column::Column;
use super::error::{Place, SegmentError};
use super::format::{Directory, EXTREME_BYTES, Entry, Extreme};
use super::predicate::Prepared;
use super::value::{Kind, Value};

/// A segment, of bytes that lie anywhere and do not change.
///
/// A column is checked when it is first asked for, and not again by this value: keep it as long as the bytes.
#[derive(Debug)]
pub struct Segment<B> {
    bytes: B,
    directory: Directory,
    /// Of each column, whether its bytes have been found right.
    checked: Box<[AtomicBool]>,
}

/// Between which values those of a column lie.
#[derive(Debug, Clone, PartialEq)]
pub struct MinMax<'a> {
    /// The minimum, or its first 16 bytes.
    pub min: Value<'a>,
    /// The maximum, or its first 16 bytes. NaN, if there is one.
    pub max: Value<'a>,
    /// Whether neither may be longer than what is here.
    pub is_exact: bool,
}

impl<B: AsRef<[u8]>> Segment<B> {
    /// Opens a segment: header and directory are checked, and that every part of a column lies in it. Columns
    /// are not touched.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`] and [`SegmentError::Version`].
    pub fn open(bytes: B) -> Result<Segment<B>, SegmentError> {
        let directory = Directory::decode(bytes.as_ref())?;
        let checked = directory.entries.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Segment {
            bytes,
            directory,
            checked,
        })
    }

    /// How many rows.
    #[must_use]
    pub const fn row_count(&self) -> usize {
        self.directory.row_count as usize
    }

    /// How many columns.
    #[must_use]
    pub const fn column_count(&self) -> usize {
        self.directory.entries.len()
    }

    /// What the builder was told.
    #[must_use]
    pub const fn schema_version(&self) -> u32 {
        self.directory.schema_version
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &B {
        &self.bytes
    }

    fn entry(&self, column: usize) -> Result<&Entry, SegmentError> {
        self.directory
            .entries
            .get(column)
            .ok_or(SegmentError::NoColumn(column))
    }

    /// What a column holds, how it is encoded, and in how many bytes, from the directory.
    ///
    /// # Errors
    /// [`SegmentError::NoColumn`].
    pub fn describe(&self, column: usize) -> Result<(Kind, Encoding, usize), SegmentError> {
        let entry = self.entry(column)?;
        Ok((entry.kind, entry.encoding, entry.bytes as usize))
    }

    /// How many rows of a column are NULL, from the directory.
    ///
    /// # Errors
    /// [`SegmentError::NoColumn`].
    pub fn null_count(&self, column: usize) -> Result<usize, SegmentError> {
        Ok(self.entry(column)?.null_count as usize)
    }

    /// The minimum and the maximum of a column, from the directory; none if all rows are NULL.
    ///
    /// # Errors
    /// [`SegmentError::NoColumn`].
    pub fn min_max(&self, column: usize) -> Result<Option<MinMax<'_>>, SegmentError> {
        let entry = self.entry(column)?;
        if entry.null_count == self.directory.row_count {
            return Ok(None);
        }
        let value = |extreme: &Extreme| match entry.kind {
            Kind::Bytes16 => Some(Value::Bytes16(extreme.bytes)),
            Kind::Bytes => None,
            kind => kind.value_of(extreme.number()?),
        };
        let min = value(&entry.min).unwrap_or(Value::from(entry.min.string()));
        let max = value(&entry.max).unwrap_or(Value::from(entry.max.string()));
        let may_be_cut = |extreme: &Extreme| usize::from(extreme.len) == EXTREME_BYTES;
        let is_cut = entry.kind == Kind::Bytes && (may_be_cut(&entry.min) || may_be_cut(&entry.max));
        Ok(Some(MinMax {
            min,
            max,
            is_exact: !is_cut,
        }))
    }

    /// Whether a predicate may hold for some row of a column, from the directory: if not, the column need not
    /// be read.
    ///
    /// # Errors
    /// [`SegmentError::NoColumn`]; [`SegmentError::WrongKind`] if the predicate was prepared for another
    /// kind.
    pub fn may_match(&self, column: usize, predicate: &Prepared<'_>) -> Result<bool, SegmentError> {
        let entry = self.entry(column)?;
        if entry.kind != predicate.kind {
            return Err(SegmentError::WrongKind {
                column: entry.kind,
                value: predicate.kind,
            });
        }
        Ok(entry.null_count < self.directory.row_count && predicate.set.may_match(entry))
    }

    /// A column. The first time, its checksum is computed and its parts are checked.
    ///
    /// # Errors
    /// [`SegmentError::NoColumn`]; [`SegmentError::Damaged`].
    pub fn column(&self, column: usize) -> Result<Column<'_>, SegmentError> {
        let entry = self.entry(column)?;
        let from = entry.offset as usize;
        let damaged = |reason| SegmentError::Damaged {
            place: Place::Column(column),
            offset: from,
            reason,
        };
        let bytes = self.bytes.as_ref().get(from..from + entry.bytes as usize);
        let bytes = bytes.ok_or(damaged("unexpected end"))?;
        let found = Column::new(column, self.row_count(), entry, bytes);
        let checked = self.checked.get(column).ok_or(SegmentError::NoColumn(column))?;
        if !checked.load(Ordering::Relaxed) {
            if crc32c(bytes) != entry.crc {
                return Err(damaged("checksum does not match"));
            }
            found.check(entry.null_count as usize)?;
            // Says nothing but that the bytes, which do not change, are right.
            checked.store(true, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// Checks every column and reads every value, compressed ones too.
    ///
    /// # Errors
    /// The first damage.
    pub fn check(&self) -> Result<(), SegmentError> {
        for number in 0..self.column_count() {
            let column = self.column(number)?;
            column.decode(0..column.rows())?;
        }
        Ok(())
    }
}
