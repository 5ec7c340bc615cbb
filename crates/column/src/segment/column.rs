//! One column of a segment: values by position, in sequence, and by predicate.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use weft_ops::packed::code_max;

use super::decoded::{CHUNK_ROWS, Decoded, Values, decode_numbers};
use super::encoding::array::bits;
use super::encoding::{Array, Numbers, Strings};
use super::error::{Place, SegmentError};
use super::format::{Encoding, Entry};
use super::predicate::{CodePredicate, Prepared, ValueSet, frame_codes, has_number, number_codes, set_bits};
use super::value::{Kind, Value};
use crate::packed::{Codes, Form, Predicate};

/// So many scans of the packed codes cost less than a look at each value.
const SCANS_MAX: usize = 16;

/// A column whose bytes have been checked. Cheap to make and to copy.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    number: usize,
    rows: usize,
    kind: Kind,
    encoding: Encoding,
    offset: usize,
    validity: Validity<'a>,
    body: Body<'a>,
}

/// Which rows have a value.
#[derive(Debug, Clone, Copy)]
enum Validity<'a> {
    All,
    None,
    /// Those with a bit.
    Some(&'a [u8]),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Body<'a> {
    Numbers(Numbers<'a>),
    Strings(Strings<'a>),
}

impl<'a> Column<'a> {
    /// The column that a checked directory describes, of these bytes.
    pub(crate) fn new(number: usize, rows: usize, entry: &Entry, bytes: &'a [u8]) -> Column<'a> {
        let [validity, ..] = &entry.parts;
        let validity = match entry.null_count as usize {
            0 => Validity::All,
            nulls if nulls >= rows => Validity::None,
            _ => Validity::Some(Array::new(bytes, validity).bytes()),
        };
        let body = match entry.kind.is_number() {
            true => Body::Numbers(Numbers::new(bytes, entry)),
            false => Body::Strings(Strings::new(bytes, entry)),
        };
        Column {
            number,
            rows,
            kind: entry.kind,
            encoding: entry.encoding,
            offset: entry.offset as usize,
            validity,
            body,
        }
    }

    /// Checks what a checksum does not say: that the parts fit each other and the number of NULLs.
    pub(crate) fn check(&self, null_count: usize) -> Result<(), SegmentError> {
        if let Validity::Some(bytes) = self.validity {
            let has_value = bits(bytes, 0, self.rows);
            let values: usize = has_value.iter().map(|word| word.count_ones() as usize).sum();
            if values + null_count != self.rows {
                return Err(self.damaged("the bitmap has another number of NULLs"));
            }
        }
        let checked = match &self.body {
            Body::Numbers(numbers) => numbers.check(self.rows, self.kind.domain()),
            Body::Strings(strings) => strings.check(),
        };
        checked.map_err(|reason| self.damaged(reason))
    }

    pub(super) const fn body(&self) -> &Body<'a> {
        &self.body
    }

    pub(super) fn damaged(&self, reason: &'static str) -> SegmentError {
        SegmentError::Damaged {
            place: Place::Column(self.number),
            offset: self.offset,
            reason,
        }
    }

    /// How many rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// What it holds.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// How it is encoded.
    #[must_use]
    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether a row is NULL. A row that does not exist is.
    #[must_use]
    pub fn is_null(&self, row: usize) -> bool {
        let has_value = match self.validity {
            Validity::All => true,
            Validity::None => false,
            Validity::Some(bytes) => bytes.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1),
        };
        row >= self.rows || !has_value
    }

    /// A bit for each row that has a value, the first in the lowest; none if all have one.
    #[must_use]
    pub fn values(&self) -> Option<Vec<u64>> {
        match self.validity {
            Validity::All => None,
            Validity::None => Some(vec![0; self.rows.div_ceil(64)]),
            Validity::Some(bytes) => Some(bits(bytes, 0, self.rows)),
        }
    }

    /// The value at a position, none for NULL. Nothing else is unpacked, except: deltas since the last 64th
    /// row are added; runs are searched; the block of a compressed string is decompressed, some 8 KiB.
    ///
    /// # Errors
    /// [`SegmentError::NoRow`]; damage of a compressed block.
    pub fn get(&self, row: usize) -> Result<Option<Value<'a>>, SegmentError> {
        if row >= self.rows {
            return Err(SegmentError::NoRow(row));
        }
        if self.is_null(row) {
            return Ok(None);
        }
        match &self.body {
            Body::Numbers(numbers) => Ok(self.kind.value_of(numbers.get(row))),
            Body::Strings(strings) => {
                let string = strings.get(row).map_err(|reason| self.damaged(reason))?;
                let value = match (self.kind, string.first_chunk()) {
                    (Kind::Bytes16, Some(bytes)) => Value::Bytes16(*bytes),
                    _ => Value::Bytes(string),
                };
                Ok(Some(value))
            }
        }
    }

    /// The values of a range of rows.
    ///
    /// # Errors
    /// [`SegmentError::NoRow`] if the range ends behind the last row; damage of a compressed block;
    /// [`SegmentError::TooLarge`] if the strings have more bytes than Arrow's offsets can say.
    pub fn decode(&self, rows: Range<usize>) -> Result<Decoded, SegmentError> {
        if rows.end > self.rows || rows.start > rows.end {
            return Err(SegmentError::NoRow(rows.end));
        }
        let count = rows.len();
        let validity = match self.validity {
            Validity::All => None,
            Validity::None => Some(vec![0; count.div_ceil(64)]),
            Validity::Some(bytes) => Some(bits(bytes, rows.start, count)),
        };
        let values = match &self.body {
            Body::Numbers(numbers) => decode_numbers(self.kind, numbers, rows.start, count),
            Body::Strings(strings) => Some(self.decode_strings(strings, rows)?),
        };
        Ok(Decoded {
            rows: count,
            values: values.ok_or(self.damaged("numbers where strings should be"))?,
            validity,
        })
    }

    /// The values of some rows, in the order given. Each costs what [`Column::get`] does: better than
    /// [`Column::decode`] for one row in ten or fewer.
    ///
    /// # Errors
    /// As [`Column::decode`].
    pub fn take(&self, rows: &[u32]) -> Result<Decoded, SegmentError> {
        let mut values = Values::with_capacity(self.kind, rows.len());
        let mut validity = match self.validity {
            Validity::All => None,
            Validity::None | Validity::Some(_) => Some(vec![0; rows.len().div_ceil(64)]),
        };
        for (at, row) in rows.iter().enumerate() {
            let value = self.get(*row as usize)?;
            if let (Some(validity), Some(_)) = (&mut validity, &value) {
                set_bits(validity, at, at + 1);
            }
            values.push(at, value.as_ref())?;
        }
        Ok(Decoded {
            rows: rows.len(),
            values: values.finish()?,
            validity,
        })
    }

    fn decode_strings(&self, strings: &Strings<'_>, rows: Range<usize>) -> Result<Values, SegmentError> {
        let fixed = self.kind == Kind::Bytes16;
        if let Strings::Raw(raw) = strings {
            let copied = raw
                .copy(rows.start, rows.end)
                .map_err(|reason| self.damaged(reason));
            return copied.map(|(offsets, bytes)| match fixed {
                true => Values::Bytes16(bytes),
                false => Values::Bytes { offsets, bytes },
            });
        }
        let mut bytes = Vec::with_capacity(if fixed { 16 * rows.len() } else { 0 });
        let mut offsets = Vec::with_capacity(if fixed { 0 } else { rows.len() + 1 });
        let mut too_large = false;
        let visited = strings.each(rows.start, rows.end, |row, string| {
            let is_null = self.is_null(row);
            if fixed {
                bytes.extend_from_slice(if is_null { &[0; 16] } else { string });
                return;
            }
            offsets.push(bytes.len() as i32);
            too_large |= i32::try_from(bytes.len() + string.len()).is_err();
            if !is_null && !too_large {
                bytes.extend_from_slice(string);
            }
        });
        visited.map_err(|reason| self.damaged(reason))?;
        if too_large {
            return Err(SegmentError::TooLarge);
        }
        if fixed {
            return Ok(Values::Bytes16(bytes));
        }
        offsets.push(bytes.len() as i32);
        Ok(Values::Bytes { offsets, bytes })
    }

    /// Whether its numbers are these, those of rows that are NULL too.
    pub(crate) fn has_numbers(&self, expected: &[i64]) -> bool {
        let Body::Numbers(numbers) = &self.body else {
            return false;
        };
        let mut found = vec![0; expected.len()];
        numbers.fill(0, &mut found);
        found == expected
    }

    /// Whether its strings are these, where they are not NULL.
    pub(crate) fn has_strings(&self, expected: &[Option<&[u8]>]) -> bool {
        let Body::Strings(strings) = &self.body else {
            return false;
        };
        let (mut count, mut equal) = (0, true);
        let visited = strings.each(0, self.rows, |row, string| {
            let expected = expected.get(row).copied().flatten();
            equal &= expected.is_none_or(|expected| expected == string);
            count += 1;
        });
        visited.is_ok() && equal && count == expected.len()
    }

    /// The column's codes, to be scanned here or by a unit; none where it has none.
    #[must_use]
    pub fn codes(&self) -> Option<Codes<'a>> {
        match &self.body {
            Body::Numbers(Numbers::Plain(array)) => array.codes(),
            Body::Numbers(Numbers::Dictionary(dictionary)) => dictionary.codes.codes(),
            Body::Strings(Strings::Dictionary(dictionary)) => dictionary.codes.codes(),
            _ => None,
        }
    }

    /// Keys of the distinct values that the encoding lists, if these are at most `most`; NULL has none, and
    /// some may be of no row. Equal values of columns of one kind have the same key. Costs as much as there
    /// are keys: no row is looked at.
    #[must_use]
    pub fn distinct_keys(&self, most: usize) -> Option<Vec<u64>> {
        match &self.body {
            Body::Numbers(Numbers::Plain(array)) if array.codes().is_some() => {
                let code_max = code_max(array.width());
                let keys = (0..=code_max).map(|code| array.base().wrapping_add(i64::from(code)) as u64);
                ((code_max as usize) < most).then(|| keys.collect())
            }
            Body::Numbers(Numbers::Dictionary(dictionary)) => {
                let count = dictionary.entries.count();
                let keys = (0..count).map(|code| dictionary.entries.get(code) as u64);
                (count <= most).then(|| keys.collect())
            }
            Body::Strings(Strings::Dictionary(dictionary)) => {
                let count = dictionary.entry_count();
                let key = |code| {
                    let mut hasher = DefaultHasher::new();
                    dictionary.entry(code).unwrap_or_default().hash(&mut hasher);
                    hasher.finish()
                };
                (count <= most).then(|| (0..count).map(key).collect())
            }
            _ => None,
        }
    }

    /// What a predicate is on the codes. Rows that are NULL have a code too: their bits are to be taken away.
    ///
    /// # Errors
    /// [`SegmentError::WrongKind`] if the predicate was prepared for another kind.
    pub fn code_predicate(&self, predicate: &Prepared<'_>) -> Result<CodePredicate, SegmentError> {
        if predicate.kind != self.kind {
            return Err(SegmentError::WrongKind {
                column: self.kind,
                value: predicate.kind,
            });
        }
        let (spans, code_max) = match (&self.body, &predicate.set) {
            (Body::Numbers(Numbers::Plain(array)), ValueSet::Numbers(spans)) if array.codes().is_some() => {
                let code_max = code_max(array.width());
                (frame_codes(spans, array.base(), code_max), code_max)
            }
            (Body::Numbers(Numbers::Dictionary(dictionary)), ValueSet::Numbers(spans)) => {
                let count = dictionary.entries.count();
                let codes = number_codes(spans, count, |code| dictionary.entries.get(code));
                (codes, count.saturating_sub(1) as u32)
            }
            (Body::Strings(Strings::Dictionary(dictionary)), set) => {
                let count = dictionary.entry_count();
                let codes = set.string_codes(count, |code| dictionary.entry(code).unwrap_or_default());
                (codes, count.saturating_sub(1) as u32)
            }
            _ => return Ok(CodePredicate::OnValues),
        };
        Ok(CodePredicate::of_spans(&spans, code_max))
    }

    /// A bit for each row, the first in the lowest: whether the predicate holds for its value. `out` is
    /// replaced.
    ///
    /// # Errors
    /// As [`Column::code_predicate`]; damage of a compressed block.
    pub fn matching(
        &self,
        form: Form,
        predicate: &Prepared<'_>,
        out: &mut Vec<u64>,
    ) -> Result<(), SegmentError> {
        let on_codes = self.code_predicate(predicate)?;
        out.clear();
        out.resize(self.rows.div_ceil(64), 0);
        match (&on_codes, self.codes()) {
            (CodePredicate::None, _) => {}
            (CodePredicate::All, _) => set_bits(out, 0, self.rows),
            (CodePredicate::Range(low, high), Some(codes)) => {
                codes.matching(form, Predicate::Range(*low, *high), out);
            }
            (CodePredicate::Set(set), Some(codes)) => codes.matching(form, Predicate::Set(set), out),
            (CodePredicate::Ranges(ranges), Some(codes)) if ranges.len() <= SCANS_MAX => {
                let mut one = Vec::new();
                for (low, high) in ranges {
                    codes.matching(form, Predicate::Range(*low, *high), &mut one);
                    out.iter_mut().zip(&one).for_each(|(word, one)| *word |= one);
                }
            }
            _ => self.matching_values(&predicate.set, out)?,
        }
        if let Some(values) = self.values() {
            let words = out.iter_mut().zip(values);
            words.for_each(|(word, has_value)| *word &= has_value);
        }
        Ok(())
    }

    /// Looks at every value.
    fn matching_values(&self, set: &ValueSet<'_>, out: &mut [u64]) -> Result<(), SegmentError> {
        match (&self.body, set) {
            (Body::Numbers(Numbers::RunLength(runs)), ValueSet::Numbers(spans)) => {
                runs.each_run(0, self.rows, |value, first, end| {
                    if has_number(spans, value) {
                        set_bits(out, first, end);
                    }
                });
            }
            (Body::Numbers(numbers), ValueSet::Numbers(spans)) => match spans.as_slice() {
                [] => {}
                [(low, high)] => {
                    let most = high.wrapping_sub(*low) as u64;
                    each_word(numbers, self.rows, out, |number| {
                        number.wrapping_sub(*low) as u64 <= most
                    });
                }
                spans => each_word(numbers, self.rows, out, |number| has_number(spans, number)),
            },
            (Body::Strings(strings), set) => {
                let visited = strings.each(0, self.rows, |row, string| {
                    if let Some(word) = out.get_mut(row / 64) {
                        *word |= u64::from(set.has_string(string)) << (row % 64);
                    }
                });
                visited.map_err(|reason| self.damaged(reason))?;
            }
            (Body::Numbers(_), _) => {}
        }
        Ok(())
    }
}

/// A bit for each number for which it holds.
#[inline]
fn each_word(numbers: &Numbers<'_>, rows: usize, out: &mut [u64], holds: impl Fn(i64) -> bool) {
    let mut buffer = [0; CHUNK_ROWS];
    for (nth, words) in out.chunks_mut(CHUNK_ROWS / 64).enumerate() {
        let first = CHUNK_ROWS * nth;
        let used = buffer.get_mut(..CHUNK_ROWS.min(rows - first)).unwrap_or_default();
        numbers.fill(first, used);
        for (word, numbers) in words.iter_mut().zip(used.chunks(64)) {
            let bits = numbers.iter().rev();
            *word = bits.fold(0, |word, number| word << 1 | u64::from(holds(*number)));
        }
    }
}
