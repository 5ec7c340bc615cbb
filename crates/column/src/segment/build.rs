//! Making a segment.

use weft_ops::crc32c;

use super::column::Column;
use super::encoding::{ArrayBytes, Encoded, array, numbers, strings};
use super::error::SegmentError;
use super::format::{Directory, Entry, LINE_BYTES, Limit, PARTS_MAX, Part};
use super::value::{Kind, Value};
use super::{COLUMNS_MAX, ROWS_MAX};

/// Takes values, row by row or column by column, and gives the bytes of a segment.
///
/// Needs the memory of the values as they come, and for encoding one column at a time some four times those of
/// the column.
#[derive(Debug)]
pub struct SegmentBuilder {
    schema_version: u32,
    columns: Vec<Pending>,
}

/// The values of a column so far.
#[derive(Debug)]
struct Pending {
    kind: Kind,
    has_value: Vec<bool>,
    /// Whether a row has a value.
    has_any: bool,
    /// Of each row: rows that are NULL repeat the number before, the first ones that of the first value.
    numbers: Vec<i64>,
    /// Of each row, where its string ends; and the strings.
    ends: Vec<usize>,
    heap: Vec<u8>,
}

impl SegmentBuilder {
    /// A segment without rows, with columns of these kinds. The version is kept with it and means nothing here.
    ///
    /// # Errors
    /// [`SegmentError::TooManyColumns`].
    pub fn new(schema_version: u32, kinds: &[Kind]) -> Result<SegmentBuilder, SegmentError> {
        if kinds.len() > COLUMNS_MAX {
            return Err(SegmentError::TooManyColumns);
        }
        let pending = |kind: &Kind| Pending {
            kind: *kind,
            has_value: Vec::new(),
            has_any: false,
            numbers: Vec::new(),
            ends: Vec::new(),
            heap: Vec::new(),
        };
        Ok(SegmentBuilder {
            schema_version,
            columns: kinds.iter().map(pending).collect(),
        })
    }

    /// Appends a value, or NULL, to a column.
    ///
    /// # Errors
    /// [`SegmentError::NoColumn`], [`SegmentError::WrongKind`], [`SegmentError::TooManyRows`],
    /// [`SegmentError::TooLarge`]; then nothing is appended.
    pub fn push(&mut self, column: usize, value: Option<&Value<'_>>) -> Result<(), SegmentError> {
        let column = self
            .columns
            .get_mut(column)
            .ok_or(SegmentError::NoColumn(column))?;
        column.push(value)
    }

    /// The bytes of the segment. Every column is read back from them and compared before.
    ///
    /// # Errors
    /// [`SegmentError::Uneven`], [`SegmentError::TooLarge`]; [`SegmentError::Miscoded`].
    pub fn finish(self) -> Result<Vec<u8>, SegmentError> {
        let rows = self.columns.first().map_or(0, |column| column.has_value.len());
        let mut bytes = vec![0; Directory::bytes(self.columns.len())];
        let mut entries = Vec::with_capacity(self.columns.len());
        for (number, column) in self.columns.into_iter().enumerate() {
            if column.has_value.len() != rows {
                return Err(SegmentError::Uneven(number));
            }
            let encoded = column.encode();
            let entry = column.store(&encoded, &mut bytes)?;
            let stored = bytes.get(entry.offset as usize..).unwrap_or_default();
            if !column.is_read_back(number, &entry, stored) {
                return Err(SegmentError::Miscoded(number));
            }
            entries.push(entry);
        }
        let directory = Directory {
            schema_version: self.schema_version,
            row_count: rows as u32,
            entries,
        };
        let head = directory.encode(bytes.len());
        for (place, byte) in bytes.iter_mut().zip(head) {
            *place = byte;
        }
        Ok(bytes)
    }
}

impl Pending {
    fn push(&mut self, value: Option<&Value<'_>>) -> Result<(), SegmentError> {
        if self.has_value.len() >= ROWS_MAX {
            return Err(SegmentError::TooManyRows);
        }
        if let Some(value) = value.filter(|value| value.kind() != self.kind) {
            return Err(SegmentError::WrongKind {
                column: self.kind,
                value: value.kind(),
            });
        }
        if self.kind.is_number() {
            let before = self.numbers.last().copied();
            let number = value.and_then(Value::number);
            if let (Some(number), false) = (number, self.has_any) {
                self.numbers.fill(number);
            }
            self.numbers.push(number.or(before).unwrap_or(0));
        } else {
            let string = value.and_then(Value::bytes).unwrap_or_default();
            if i32::try_from(self.heap.len() + string.len()).is_err() {
                return Err(SegmentError::TooLarge);
            }
            self.heap.extend_from_slice(string);
            self.ends.push(self.heap.len());
        }
        self.has_value.push(value.is_some());
        self.has_any |= value.is_some();
        Ok(())
    }

    fn strings(&self) -> Vec<Option<&[u8]>> {
        let mut start = 0;
        let string = |(end, has_value): (&usize, &bool)| {
            let string = self.heap.get(start..*end);
            start = *end;
            string.filter(|_| *has_value)
        };
        self.ends.iter().zip(&self.has_value).map(string).collect()
    }

    fn encode(&self) -> Encoded {
        match self.kind {
            Kind::Bytes16 | Kind::Bytes => strings::encode(&self.strings(), self.kind == Kind::Bytes16),
            _ => numbers::encode(&self.numbers),
        }
    }

    /// The least and the greatest value.
    fn limits(&self) -> Option<(Limit, Limit)> {
        if self.kind.is_number() {
            let (least, greatest) = array::limits(&self.numbers);
            return self
                .has_any
                .then(|| (Limit::of_number(least), Limit::of_number(greatest)));
        }
        let strings = self.strings();
        let least = strings.iter().flatten().min()?;
        let greatest = strings.iter().flatten().max()?;
        Some((Limit::of_string(least), Limit::of_string(greatest)))
    }

    /// Appends the parts, and says where they lie.
    fn store(&self, encoded: &Encoded, out: &mut Vec<u8>) -> Result<Entry, SegmentError> {
        let offset = out.len();
        let null_count = self.has_value.iter().filter(|has_value| !**has_value).count();
        let validity = match null_count == 0 || null_count == self.has_value.len() {
            true => ArrayBytes::default(),
            false => {
                let bits: Vec<u32> = self.has_value.iter().map(|bit| u32::from(*bit)).collect();
                ArrayBytes::of_codes(&bits, 1)
            }
        };
        let mut parts = [Part::default(); PARTS_MAX];
        let mut stored = [&validity].into_iter().chain(&encoded.parts);
        for part in &mut parts {
            part.offset = u32::try_from(out.len() - offset).map_err(|_| SegmentError::TooLarge)?;
            let Some(array) = stored.next() else { continue };
            part.count = u32::try_from(array.count).map_err(|_| SegmentError::TooLarge)?;
            (part.width, part.base) = (array.width, array.base);
            out.extend_from_slice(&array.bytes);
            out.resize(out.len().next_multiple_of(LINE_BYTES), 0);
        }
        let (least, greatest) = self.limits().unwrap_or_default();
        // Every offset in the segment is within what the directory can say.
        if i32::try_from(out.len()).is_err() {
            return Err(SegmentError::TooLarge);
        }
        Ok(Entry {
            kind: self.kind,
            encoding: encoded.encoding,
            null_count: null_count as u32,
            offset: offset as u32,
            bytes: (out.len() - offset) as u32,
            crc: crc32c(out.get(offset..).unwrap_or_default()),
            least,
            greatest,
            parts,
        })
    }

    /// Whether the stored column has the values that were given.
    fn is_read_back(&self, number: usize, entry: &Entry, stored: &[u8]) -> bool {
        let rows = self.has_value.len();
        let column = Column::new(number, rows, entry, stored);
        let has_value = |(row, has_value): (usize, &bool)| column.is_null(row) != *has_value;
        if column.check(entry.null_count as usize).is_err()
            || !self.has_value.iter().enumerate().all(has_value)
        {
            return false;
        }
        if self.kind.is_number() {
            column.has_numbers(&self.numbers)
        } else {
            column.has_strings(&self.strings())
        }
    }
}
