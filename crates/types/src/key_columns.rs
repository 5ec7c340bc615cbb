//! The columns of a key, resolved in the row layout once instead of for every row.
//!
//! Most keys are a few integers that are not NULL. For these, only two properties depend on the row:
//! whether it is long enough and whether one of the columns is NULL, which takes two checks for the whole
//! key. The remaining work per column is to load its cell, or to move the bytes of several at once
//! ([`crate::key_shuffle`]). Whether the key cells of two rows are equal is determined by comparing words
//! of eight bytes, which adjacent cells share:
//!
//! ```text
//!   row    | bitmap | a | b | ... | c | ...        key (a, b, c)
//!   words  |  mask of bitmap, a, b  | mask of c |  as many as needed, eight bytes each
//! ```
//!
//! Everything else (a row that is too short, NULL, a variable column) takes the general path of
//! [`RowLayout`], with the same result.

use crate::key::{MARK_VALUE, encode_key_from_row, encode_key_value_ref, int2_key, int4_key, int8_key};
use crate::key_shuffle::{KeyShuffle, Shuffled};
use crate::{ColumnKind, RowLayout, SqlType};

/// Bytes compared at once.
const WORD_BYTES: usize = size_of::<u64>();

/// The columns of a key in rows of one layout; see the module. All rows and layouts passed to it must be of
/// the layout for which it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumns {
    columns: Box<[usize]>,
    /// One for each of `columns`.
    cells: Box<[KeyCell]>,
    /// Shorter rows take the general path; so do all, if a column does not exist or rows may be shorter
    /// than a word.
    row_bytes: usize,
    /// The columns' bits in the null bitmap.
    nulls: Box<[Word]>,
    /// The same bits, and the cells of the fixed columns.
    fixed: Box<[Word]>,
    /// The variable columns among `columns`.
    variable: Box<[usize]>,
    /// Length of a key of integers without NULL; `None` if a column is not an integer.
    integer_bytes: Option<usize>,
    /// Builds such a key at once.
    shuffle: Option<KeyShuffle>,
}

/// The location of a column's value, and its encoding in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyCell {
    column: u32,
    offset: u32,
    form: Form,
}

/// The encoding of a value that is not NULL. Dates and times are integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Int2,
    Int4,
    Int8,
    Other,
}

impl Form {
    fn of(ty: &SqlType) -> Self {
        match ty {
            SqlType::Int2 => Form::Int2,
            SqlType::Int4 | SqlType::Date => Form::Int4,
            SqlType::Int8 | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time => Form::Int8,
            _ => Form::Other,
        }
    }

    /// The integer's size in bytes.
    fn width(self) -> Option<usize> {
        match self {
            Form::Int2 => Some(2),
            Form::Int4 => Some(4),
            Form::Int8 => Some(8),
            Form::Other => None,
        }
    }
}

/// Eight bytes of a row, with a mask of the relevant bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    offset: u32,
    mask: u64,
}

impl Word {
    /// These bits of a row that is long enough.
    #[inline(always)]
    fn of(self, row: &[u8]) -> u64 {
        chunk(row, self.offset).map_or(0, u64::from_le_bytes) & self.mask
    }
}

#[inline(always)]
fn chunk<const N: usize>(row: &[u8], offset: u32) -> Option<[u8; N]> {
    let at = offset as usize;
    row.get(at..at + N)?.first_chunk().copied()
}

/// Packs masked bytes into as few words as possible. No word extends beyond `end`, the length of the
/// shortest row, unless that is shorter than a word.
fn words(mut bytes: Vec<(usize, u8)>, end: usize) -> Box<[Word]> {
    bytes.sort_unstable();
    let mut words: Vec<Word> = Vec::new();
    for (at, mask) in bytes {
        let reaches = words
            .last()
            .is_some_and(|word| at < word.offset as usize + WORD_BYTES);
        if !reaches {
            words.push(Word {
                offset: at.min(end.saturating_sub(WORD_BYTES)) as u32,
                mask: 0,
            });
        }
        if let Some(word) = words.last_mut() {
            word.mask |= u64::from(mask) << (8 * (at - word.offset as usize));
        }
    }
    words.into()
}

impl KeyColumns {
    /// For keys with these columns, in this order.
    #[must_use]
    pub fn new(layout: &RowLayout, columns: &[usize]) -> Self {
        let (mut cells, mut variable) = (Vec::new(), Vec::new());
        let (mut nulls, mut fixed) = (Vec::new(), Vec::new());
        for column in columns {
            let (Some(ty), Some(at)) = (layout.types().get(*column), layout.cell_offset(*column)) else {
                continue;
            };
            cells.push(KeyCell {
                column: *column as u32,
                offset: at as u32,
                form: Form::of(ty),
            });
            nulls.push((column / 8, 1 << (column % 8)));
            match ty.column_kind() {
                ColumnKind::Fixed(bytes) => {
                    fixed.extend((at..at + usize::from(bytes)).map(|at| (at, u8::MAX)));
                }
                ColumnKind::Variable => variable.push(*column),
            }
        }
        let end = layout.fixed_bytes();
        let is_general = cells.len() != columns.len() || end < WORD_BYTES;
        fixed.extend_from_slice(&nulls);
        let place = |cell: &KeyCell| Some((cell.column as usize, cell.offset as usize, cell.form.width()?));
        let integers: Option<Vec<_>> = cells.iter().map(place).collect();
        let key_bytes = |integers: &Vec<_>| integers.iter().map(|(_, _, width)| 1 + width).sum();
        KeyColumns {
            columns: columns.into(),
            row_bytes: if is_general { usize::MAX } else { end },
            nulls: words(nulls, end),
            fixed: words(fixed, end),
            variable: variable.into(),
            integer_bytes: integers.as_ref().map(key_bytes),
            shuffle: integers
                .filter(|_| !is_general)
                .and_then(|integers| KeyShuffle::new(&integers, end)),
            cells: cells.into(),
        }
    }

    /// The columns' positions in the row, in the key's order.
    #[must_use]
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Whether one of the columns is NULL.
    #[must_use]
    #[inline]
    pub fn has_null(&self, layout: &RowLayout, row: &[u8]) -> bool {
        if row.len() < self.row_bytes {
            return self.columns.iter().any(|column| layout.is_null(row, *column));
        }
        self.nulls.iter().fold(0, |nulls, word| nulls | word.of(row)) != 0
    }

    /// Whether the row is long enough and none of the columns is NULL.
    #[inline(always)]
    fn is_plain(&self, row: &[u8]) -> bool {
        row.len() >= self.row_bytes && self.nulls.iter().fold(0, |nulls, word| nulls | word.of(row)) == 0
    }

    /// The row's key, if it can be made at once.
    #[inline(always)]
    fn shuffled<'r>(&'r self, row: &'r [u8]) -> Option<Shuffled<'r>> {
        self.shuffle.as_ref()?.of(row)
    }

    /// Appends the row's key, like [`encode_key_from_row`].
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>, layout: &RowLayout, row: &[u8]) {
        match self.shuffled(row) {
            Some(key) => key.append(out),
            None => self.encode_each(out, layout, row),
        }
    }

    /// [`KeyColumns::encode`] column by column.
    #[inline(never)]
    fn encode_each(&self, out: &mut Vec<u8>, layout: &RowLayout, row: &[u8]) {
        if !self.is_plain(row) {
            return encode_key_from_row(out, layout, row, &self.columns);
        }
        for cell in &self.cells {
            match cell.form {
                Form::Int2 => {
                    out.extend_from_slice(&int2_key(chunk(row, cell.offset).map_or(0, i16::from_le_bytes)))
                }
                Form::Int4 => {
                    out.extend_from_slice(&int4_key(chunk(row, cell.offset).map_or(0, i32::from_le_bytes)))
                }
                Form::Int8 => {
                    out.extend_from_slice(&int8_key(chunk(row, cell.offset).map_or(0, i64::from_le_bytes)))
                }
                Form::Other => encode_key_value_ref(out, &layout.value_ref(row, cell.column as usize)),
            }
        }
    }

    /// Like [`KeyColumns::encode`]; also returns whether one of the columns is NULL.
    #[inline]
    pub fn encode_and_tell(&self, out: &mut Vec<u8>, layout: &RowLayout, row: &[u8]) -> bool {
        match self.shuffled(row) {
            Some(key) => {
                key.append(out);
                false
            }
            None => self.encode_each_and_tell(out, layout, row),
        }
    }

    /// [`KeyColumns::encode_and_tell`] column by column.
    #[inline(never)]
    fn encode_each_and_tell(&self, out: &mut Vec<u8>, layout: &RowLayout, row: &[u8]) -> bool {
        self.encode_each(out, layout, row);
        self.has_null(layout, row)
    }

    /// Whether the row's key is `key`, without encoding it; `None` if that cannot be determined this way:
    /// the key is not of integers only, or the row has a NULL in it.
    #[must_use]
    #[inline]
    pub fn matches_integers(&self, row: &[u8], key: &[u8]) -> Option<bool> {
        match self.shuffled(row) {
            Some(own) => Some(own.is(key)),
            None => self.matches_each(row, key),
        }
    }

    /// [`KeyColumns::matches_integers`] column by column.
    #[inline(never)]
    fn matches_each(&self, row: &[u8], key: &[u8]) -> Option<bool> {
        let key_bytes = self.integer_bytes?;
        if !self.is_plain(row) {
            return None;
        }
        if key.len() != key_bytes {
            return Some(false);
        }
        let mut rest = key;
        for cell in &self.cells {
            let (mark, behind) = rest.split_first()?;
            let is_same;
            (is_same, rest) = match cell.form {
                Form::Int2 => {
                    let (carried, behind) = behind.split_first_chunk()?;
                    let value = u16::from_le_bytes(chunk(row, cell.offset)?);
                    (u16::from_be_bytes(*carried) ^ 1 << 15 == value, behind)
                }
                Form::Int4 => {
                    let (carried, behind) = behind.split_first_chunk()?;
                    let value = u32::from_le_bytes(chunk(row, cell.offset)?);
                    (u32::from_be_bytes(*carried) ^ 1 << 31 == value, behind)
                }
                Form::Int8 => {
                    let (carried, behind) = behind.split_first_chunk()?;
                    let value = u64::from_le_bytes(chunk(row, cell.offset)?);
                    (u64::from_be_bytes(*carried) ^ 1 << 63 == value, behind)
                }
                Form::Other => return None,
            };
            if !is_same || *mark != MARK_VALUE {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Whether both rows have the same bytes, or NULL, in each of the columns, and so the same key: like
    /// [`RowLayout::same_raw`] for each. The converse does not hold: 1.0 and 1.00 have the same key.
    #[must_use]
    #[inline]
    pub fn same(&self, layout: &RowLayout, one: &[u8], other: &[u8]) -> bool {
        if one.len() < self.row_bytes || other.len() < self.row_bytes {
            return same_raw(layout, one, other, &self.columns);
        }
        let differing = self.fixed.iter().map(|word| word.of(one) ^ word.of(other));
        if differing.fold(0, |all, bits| all | bits) == 0 {
            return self.variable.is_empty() || same_raw(layout, one, other, &self.variable);
        }
        self.same_each(layout, one, other)
    }

    /// [`KeyColumns::same`] for rows that differ in the words of the fixed columns.
    #[inline(never)]
    fn same_each(&self, layout: &RowLayout, one: &[u8], other: &[u8]) -> bool {
        // The cell of a NULL is zero, except in unvalidated rows.
        (self.has_null(layout, one) || self.has_null(layout, other))
            && same_raw(layout, one, other, &self.columns)
    }
}

#[inline(never)]
fn same_raw(layout: &RowLayout, one: &[u8], other: &[u8], columns: &[usize]) -> bool {
    columns.iter().all(|column| layout.same_raw(one, other, *column))
}
