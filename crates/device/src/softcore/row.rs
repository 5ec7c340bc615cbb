//! Rows as a core sees them: words.
//!
//! ```text
//!   word 0     bit n: column n is NULL
//!   word 1..   the columns: one word for what a register holds (integers sign-extended)
//!              text: its length in bytes, then its bytes, as many words as the column has capacity for
//! ```
//!
//! So every column begins at a fixed word, and a text is moved without looking into it. The capacity is
//! chosen when a table is placed on a device; a row with a longer text has no such form and stays with the
//! CPU.

use weft_program::Class;
use weft_types::{RowLayout, SqlType, Value};

/// Where the columns of a row are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPlaces {
    layout: RowLayout,
    columns: Vec<ColumnPlace>,
    words: u32,
}

/// Where one column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnPlace {
    /// What it holds.
    pub class: Class,
    /// Its first word, counted from the row's.
    pub at: u32,
    /// Its words.
    pub words: u32,
}

impl ColumnPlace {
    /// Bytes of text that fit; 0 for other columns.
    pub fn text_bytes(&self) -> usize {
        match is_text(self.class) {
            true => (self.words as usize - 1) * 8,
            false => 0,
        }
    }
}

/// A value that has no form on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Its column.
    pub column: usize,
}

fn is_text(class: Class) -> bool {
    matches!(class, Class::Text | Class::Char)
}

impl RowPlaces {
    /// Rows of these types; `text_bytes` says how many bytes of text a column must have room for.
    pub fn new(types: &[SqlType], text_bytes: impl Fn(usize) -> usize) -> RowPlaces {
        let mut at = 1;
        let columns = types
            .iter()
            .enumerate()
            .map(|(column, ty)| {
                let class = Class::of(ty);
                let words = match is_text(class) {
                    true => 1 + text_bytes(column).div_ceil(8) as u32,
                    false => 1,
                };
                let place = ColumnPlace { class, at, words };
                at += words;
                place
            })
            .collect();
        RowPlaces {
            layout: RowLayout::new(types),
            columns,
            words: at,
        }
    }

    /// Words of a row.
    pub fn words(&self) -> u32 {
        self.words
    }

    /// Number of columns.
    pub fn column_count(&self) -> usize {
        self.columns.len()
    }

    /// A column's place.
    pub fn column(&self, column: usize) -> Option<ColumnPlace> {
        self.columns.get(column).copied()
    }

    /// The layout of the same row on the host.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// A column of a row of the host as a word; `None` for NULL and text.
    pub fn word_of(&self, row: &[u8], column: usize) -> Option<u64> {
        let bits = self.layout.fixed_u64(row, column)?;
        Some(match self.columns.get(column)?.class {
            Class::Int2 => i64::from(bits as i16).cast_unsigned(),
            Class::Int4 | Class::Date => i64::from(bits as i32).cast_unsigned(),
            _ => bits,
        })
    }

    /// The words of a row of the host.
    ///
    /// # Errors
    /// The first text that is longer than its column's capacity.
    pub fn encode(&self, row: &[u8]) -> Result<Vec<u64>, TooLong> {
        let mut words = vec![0; self.words as usize];
        let mut nulls = 0;
        for (column, place) in self.columns.iter().enumerate() {
            let Some(into) = words.get_mut(place.at as usize..(place.at + place.words) as usize) else {
                continue;
            };
            if self.layout.is_null(row, column) {
                nulls |= 1_u64 << column;
            } else if is_text(place.class) {
                let text = self.layout.var_bytes(row, column).unwrap_or_default();
                if text.len() > place.text_bytes() {
                    return Err(TooLong { column });
                }
                if let Some((length, bytes)) = into.split_first_mut() {
                    *length = text.len() as u64;
                    for (to, from) in bytes.iter_mut().zip(text.chunks(8)) {
                        *to = word(from);
                    }
                }
            } else if let Some(to) = into.first_mut() {
                *to = self.word_of(row, column).unwrap_or(0);
            }
        }
        if let Some(first) = words.first_mut() {
            *first = nulls;
        }
        Ok(words)
    }

    /// The row of the host that these words are; `None` if they are no row of this form.
    pub fn decode(&self, words: &[u64]) -> Option<Vec<u8>> {
        let nulls = *words.first()?;
        let types = self.layout.types();
        let values: Option<Vec<Value>> = self
            .columns
            .iter()
            .zip(types)
            .enumerate()
            .map(|(column, (place, ty))| match nulls >> column & 1 {
                1 => Some(Value::Null),
                _ => place.value(
                    ty,
                    words.get(place.at as usize..(place.at + place.words) as usize)?,
                ),
            })
            .collect();
        self.layout.encode(&values?).ok()
    }
}

impl ColumnPlace {
    fn value(&self, ty: &SqlType, words: &[u64]) -> Option<Value> {
        let (first, rest) = words.split_first()?;
        let signed = first.cast_signed();
        Some(match Class::of(ty) {
            Class::Bool => Value::Bool(*first != 0),
            Class::Int2 => Value::Int2(i16::try_from(signed).ok()?),
            Class::Int4 => Value::Int4(i32::try_from(signed).ok()?),
            Class::Int8 => Value::Int8(signed),
            Class::Date => Value::Date(i32::try_from(signed).ok()?),
            Class::Timestamp => Value::Timestamp(signed),
            Class::TimestampTz => Value::TimestampTz(signed),
            Class::Time => Value::Time(signed),
            Class::Float4 => Value::Float4(f32::from_bits(*first as u32)),
            Class::Float8 => Value::Float8(f64::from_bits(*first)),
            Class::Text | Class::Char => {
                let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
                let text = bytes.get(..usize::try_from(*first).ok()?)?;
                Value::Text(String::from_utf8(text.to_vec()).ok()?)
            }
            _ => return None,
        })
    }
}

/// Up to eight bytes as a word, the first one lowest.
fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back() {
        let types = [
            SqlType::Int4,
            SqlType::Text,
            SqlType::Bool,
            SqlType::Int8,
            SqlType::Int2,
        ];
        let places = RowPlaces::new(&types, |_| 11);
        assert_eq!(places.words(), 1 + 1 + 3 + 1 + 1 + 1);
        let rows = [
            vec![
                Value::Int4(-5),
                Value::Text("eleven byte".into()),
                Value::Bool(true),
                Value::Int8(i64::MIN),
                Value::Int2(-1),
            ],
            vec![Value::Null, Value::Null, Value::Null, Value::Null, Value::Null],
            vec![
                Value::Int4(7),
                Value::Text(String::new()),
                Value::Null,
                Value::Int8(0),
                Value::Int2(3),
            ],
        ];
        for row in rows {
            let bytes = places.layout().encode(&row).unwrap();
            let words = places.encode(&bytes).unwrap();
            assert_eq!(places.decode(&words).unwrap(), bytes);
        }
    }

    #[test]
    fn a_text_beyond_the_capacity_has_no_form() {
        let places = RowPlaces::new(&[SqlType::Int8, SqlType::Text], |_| 8);
        let row = |text: &str| {
            places
                .layout()
                .encode(&[Value::Int8(1), Value::Text(text.into())])
                .unwrap()
        };
        assert!(places.encode(&row("12345678")).is_ok());
        assert_eq!(places.encode(&row("123456789")), Err(TooLong { column: 1 }));
    }
}
