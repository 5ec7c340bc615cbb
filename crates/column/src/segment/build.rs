//! Making a segment.

use weft_ops::crc32c;

use super::column::Column;
use super::encoding::{ArrayBytes, Encoded, array, numbers, strings};
use super::error::SegmentError;
use super::format::{Directory, Entry, Extreme, LINE_BYTES, PARTS_MAX, Part};
use super::open::Segment;
use super::value::{Kind, Value};
use super::{COLUMNS_MAX, ROWS_MAX};

/// Takes values, row by row or column by column, and gives the bytes of a segment.
///
/// Needs the memory of the values, eight bytes for each number, and of the segment twice.
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
    /// A segment without rows, with columns of these kinds. The version is kept with it and means nothing
    /// here.
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

    /// The bytes of the segment. Before they are handed over they are opened, and every column is compared
    /// with what was given.
    ///
    /// # Errors
    /// [`SegmentError::Uneven`], [`SegmentError::TooLarge`]; [`SegmentError::Miscoded`].
    pub fn finish(self) -> Result<Vec<u8>, SegmentError> {
        let rows = self.columns.first().map_or(0, |column| column.has_value.len());
        if let Some(uneven) = self
            .columns
            .iter()
            .position(|column| column.has_value.len() != rows)
        {
            return Err(SegmentError::Uneven(uneven));
        }
        let encoded: Vec<Encoded> = self.columns.iter().map(Pending::encode).collect();
        self.seal(rows, &encoded)
    }

    /// The bytes of the encoded columns, if the columns are read from them as they were given.
    fn seal(&self, rows: usize, encoded: &[Encoded]) -> Result<Vec<u8>, SegmentError> {
        let stored: usize = encoded.iter().map(Encoded::stored_bytes).sum();
        let mut bytes = Vec::with_capacity(Directory::bytes(encoded.len()) + stored);
        bytes.resize(Directory::bytes(encoded.len()), 0);
        let columns = self.columns.iter().zip(encoded);
        let entries = columns.map(|(column, encoded)| column.store(encoded, &mut bytes));
        let directory = Directory {
            schema_version: self.schema_version,
            row_count: rows as u32,
            entries: entries.collect::<Result<_, _>>()?,
        };
        let head = directory.encode(bytes.len());
        for (place, byte) in bytes.iter_mut().zip(head) {
            *place = byte;
        }
        let segment = Segment::open(bytes.as_slice()).map_err(|_| SegmentError::Miscoded(0))?;
        for (number, column) in self.columns.iter().enumerate() {
            if !segment
                .column(number)
                .is_ok_and(|stored| column.is_read_back(&stored))
            {
                return Err(SegmentError::Miscoded(number));
            }
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

    /// The bitmap of rows that have a value, and the parts of the encoding.
    fn encode(&self) -> Encoded {
        let mut encoded = match self.kind {
            Kind::Bytes16 | Kind::Bytes => strings::encode(&self.strings(), self.kind == Kind::Bytes16),
            _ => numbers::encode(&self.numbers),
        };
        let validity = match (1..self.has_value.len()).contains(&self.null_count()) {
            true => {
                let bits: Vec<u32> = self.has_value.iter().map(|bit| u32::from(*bit)).collect();
                ArrayBytes::of_codes(&bits, 1)
            }
            false => ArrayBytes::default(),
        };
        encoded.parts.insert(0, validity);
        encoded
    }

    fn null_count(&self) -> usize {
        self.has_value.iter().filter(|has_value| !**has_value).count()
    }

    /// The minimum and the maximum.
    fn min_max(&self) -> Option<(Extreme, Extreme)> {
        if self.kind.is_number() {
            let (min, max) = array::min_max(&self.numbers);
            return self
                .has_any
                .then(|| (Extreme::of_number(min), Extreme::of_number(max)));
        }
        let strings = self.strings();
        let min = strings.iter().flatten().min()?;
        let max = strings.iter().flatten().max()?;
        Some((Extreme::of_string(min), Extreme::of_string(max)))
    }

    /// Appends the parts, and says where they lie.
    fn store(&self, encoded: &Encoded, out: &mut Vec<u8>) -> Result<Entry, SegmentError> {
        let offset = out.len();
        let mut parts = [Part::default(); PARTS_MAX];
        let mut stored = encoded.parts.iter();
        for part in &mut parts {
            part.offset = u32::try_from(out.len() - offset).map_err(|_| SegmentError::TooLarge)?;
            let Some(array) = stored.next() else { continue };
            part.count = u32::try_from(array.count).map_err(|_| SegmentError::TooLarge)?;
            (part.width, part.base) = (array.width, array.base);
            out.extend_from_slice(&array.bytes);
            out.resize(out.len().next_multiple_of(LINE_BYTES), 0);
        }
        let (min, max) = self.min_max().unwrap_or_default();
        // Every offset in the segment is within what the directory can say.
        if i32::try_from(out.len()).is_err() {
            return Err(SegmentError::TooLarge);
        }
        Ok(Entry {
            kind: self.kind,
            encoding: encoded.encoding,
            null_count: self.null_count() as u32,
            offset: offset as u32,
            bytes: (out.len() - offset) as u32,
            crc: crc32c(out.get(offset..).unwrap_or_default()),
            min,
            max,
            parts,
        })
    }

    /// Whether the stored column has the values that were given.
    fn is_read_back(&self, stored: &Column<'_>) -> bool {
        let is_null = |row| stored.is_null(row);
        if !self
            .has_value
            .iter()
            .enumerate()
            .all(|(row, has_value)| is_null(row) != *has_value)
        {
            return false;
        }
        match self.kind {
            Kind::Bytes16 | Kind::Bytes => stored.has_strings(&self.strings()),
            _ => stored.has_numbers(&self.numbers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Encoding;

    fn builder(kind: Kind, rows: u64, value: &dyn Fn(u64) -> Option<Value<'static>>) -> SegmentBuilder {
        let mut builder = SegmentBuilder::new(0, &[kind]).unwrap();
        (0..rows).for_each(|row| builder.push(0, value(row).as_ref()).unwrap());
        builder
    }

    /// A column of each encoding.
    fn builders() -> Vec<SegmentBuilder> {
        let mix = |at: u64| weft_ops::mix64(at);
        let bytes = |text: String| Value::Bytes(text.into_bytes().into());
        let columns: [(Kind, &dyn Fn(u64) -> Value<'static>); 9] = [
            (Kind::I64, &|at| Value::I64(mix(at) as i64)),
            (Kind::I32, &|at| Value::I32(700 + (mix(at) & 1023) as i32)),
            (Kind::F64, &|at| Value::F64(mix(mix(at) & 15) as f64)),
            (Kind::I64, &|at| Value::I64((at * 1000 + mix(at) % 900) as i64)),
            (Kind::I64, &|at| Value::I64(mix(at / 100) as i64)),
            (Kind::Bytes, &|at| {
                bytes(format!("{:04} and more of it, {}", at % 50, at / 7))
            }),
            (Kind::Bytes, &|at| {
                Value::Bytes(mix(at).to_le_bytes()[..at as usize % 8].to_vec().into())
            }),
            (Kind::Bytes, &|at| bytes(format!("{}", mix(at) & 7))),
            (Kind::Bytes16, &|at| {
                Value::Bytes16(u128::from(mix(at)).to_be_bytes())
            }),
        ];
        // A string that is NULL may have any code.
        let with_nulls = columns.iter().enumerate().map(|(number, (kind, value))| {
            let has_nulls = number % 2 == 1 && kind.is_number();
            builder(*kind, 1000, &|at| (!has_nulls || at % 5 > 0).then(|| value(at)))
        });
        with_nulls.collect()
    }

    /// Whether a bit of a part is one that nobody reads: the delta of a restart.
    fn is_unused(encoded: &Encoded, part: usize, bit: usize) -> bool {
        let has_deltas = matches!(encoded.encoding, Encoding::Delta | Encoding::Raw) && part == 1;
        let array = &encoded.parts[part];
        has_deltas && array.width < 64 && (bit / array.width.max(1) as usize).is_multiple_of(64)
    }

    #[test]
    fn what_is_encoded_wrongly_does_not_leave() {
        let mut seen = Vec::new();
        for builder in builders() {
            let column = &builder.columns[0];
            let encoded = column.encode();
            let encoding = encoded.encoding;
            seen.push((encoding, column.kind.is_number()));
            assert!(
                builder.seal(1000, std::slice::from_ref(&encoded)).is_ok(),
                "{encoding:?}"
            );
            let refused = |part: usize, change: &dyn Fn(&mut ArrayBytes), what: &str| {
                let mut wrong = encoded.clone();
                change(&mut wrong.parts[part]);
                let sealed = builder.seal(1000, &[wrong]);
                assert_eq!(
                    sealed,
                    Err(SegmentError::Miscoded(0)),
                    "{encoding:?}, part {part}: {what}"
                );
            };
            for (part, array) in encoded
                .parts
                .iter()
                .enumerate()
                .filter(|(_, array)| array.count > 0)
            {
                if array.width != 64 {
                    refused(part, &|array| array.base += 1, "frame");
                    refused(part, &|array| array.width += 1, "wider");
                }
                refused(part, &|array| array.count -= 1, "count");
                let bytes = array.bytes.len();
                for at in (0..bytes).filter(|at| bytes < 70 || at % 64 == 33).take(8) {
                    if !is_unused(&encoded, part, 8 * at) {
                        refused(part, &|array| array.bytes[at] ^= 1, &format!("byte {at}"));
                    }
                }
            }
        }
        use Encoding::{Blocks, Delta, Dictionary, Frame, Raw, RunLength};
        let numbers = [Raw, Frame, Dictionary, Delta, RunLength].map(|encoding| (encoding, true));
        let strings = [Raw, Dictionary, Blocks].map(|encoding| (encoding, false));
        for expected in numbers.iter().chain(&strings) {
            assert!(seen.contains(expected), "{expected:?} is not among {seen:?}");
        }
    }

    #[test]
    fn rows_that_lost_and_got_a_value_do_not_leave() {
        let builder = builder(Kind::I16, 200, &|at| {
            (at % 3 > 0).then_some(Value::I16(at as i16))
        });
        let mut encoded = builder.columns[0].encode();
        assert!(builder.seal(200, std::slice::from_ref(&encoded)).is_ok());
        // Rows 72 and 73: the number of NULLs stays right.
        encoded.parts[0].bytes[9] ^= 0b11;
        assert_eq!(builder.seal(200, &[encoded]), Err(SegmentError::Miscoded(0)));
    }
}
