//! A column by whose values rows are grouped: a small code for each row.

use super::super::column::{Body, Column};
use super::super::encoding::{Numbers, Strings};
use super::super::error::SegmentError;
use super::super::predicate::set_bits;
use super::super::value::Value;
use crate::packed::{Codes, Form, Predicate};
use weft_ops::packed::code_max;

/// Codes `0..codes` stand for values; the one behind them for NULL, if there are NULLs.
#[derive(Debug)]
pub(super) struct Key<'a> {
    column: Column<'a>,
    codes: usize,
    /// A bit for each row that has a value, if any row has none.
    values: Option<Vec<u64>>,
    source: Source<'a>,
}

#[derive(Debug)]
enum Source<'a> {
    /// A code and the number of the first one.
    Frame(Codes<'a>, i64),
    /// A code is a place in the dictionary.
    Dictionary(Codes<'a>),
    /// A code is a place among the distinct numbers of runs.
    Runs(Vec<i64>),
}

impl<'a> Key<'a> {
    /// `None` if the column has no codes, or more than `codes_max`.
    pub(super) fn new(column: &Column<'a>, codes_max: usize) -> Option<Key<'a>> {
        let (source, codes) = match column.body() {
            Body::Numbers(Numbers::Plain(array)) => {
                let codes = array.codes()?;
                (
                    Source::Frame(codes, array.base()),
                    code_max(codes.width()) as usize + 1,
                )
            }
            Body::Numbers(Numbers::Dictionary(dictionary)) => (
                Source::Dictionary(dictionary.codes.codes()?),
                dictionary.entries.count(),
            ),
            Body::Numbers(Numbers::RunLength(runs)) => {
                if runs.values.count() > column.rows() / 2 {
                    return None;
                }
                let mut numbers = vec![0; runs.values.count()];
                runs.values.fill(0, &mut numbers);
                numbers.sort_unstable();
                numbers.dedup();
                let count = numbers.len();
                (Source::Runs(numbers), count)
            }
            Body::Strings(Strings::Dictionary(dictionary)) => (
                Source::Dictionary(dictionary.codes.codes()?),
                dictionary.entry_count(),
            ),
            _ => return None,
        };
        let key = Key {
            column: *column,
            codes,
            values: column.values(),
            source,
        };
        (key.count() <= codes_max).then_some(key)
    }

    /// How many codes there are, NULL's included.
    pub(super) fn count(&self) -> usize {
        self.codes + usize::from(self.values.is_some())
    }

    /// The value that a code stands for, none for NULL.
    pub(super) fn value(&self, code: usize) -> Result<Option<Value<'a>>, SegmentError> {
        if code >= self.codes {
            return Ok(None);
        }
        let number = match &self.source {
            Source::Frame(_, base) => base.wrapping_add(code as i64),
            Source::Runs(numbers) => numbers.get(code).copied().unwrap_or_default(),
            Source::Dictionary(_) => match self.column.body() {
                Body::Numbers(Numbers::Dictionary(dictionary)) => dictionary.entries.get(code),
                _ => code as i64,
            },
        };
        self.column.value_of(number).map(Some)
    }

    /// For each code the rows of the selection that have it.
    pub(super) fn split(&self, form: Form, selection: &[u64]) -> Vec<Vec<u64>> {
        let empty = vec![0; self.column.rows().div_ceil(64)];
        let mut of_codes: Vec<Vec<u64>> = match &self.source {
            Source::Frame(codes, _) | Source::Dictionary(codes) => (0..self.codes as u32)
                .map(|code| {
                    let mut rows = Vec::new();
                    codes.matching(form, Predicate::Range(code, code), &mut rows);
                    rows
                })
                .collect(),
            Source::Runs(numbers) => {
                let mut of_codes = vec![empty; self.codes];
                if let Body::Numbers(Numbers::RunLength(runs)) = self.column.body() {
                    runs.each_run(0, self.column.rows(), |value, first, end| {
                        let code = numbers.partition_point(|number| *number < value);
                        if let Some(rows) = of_codes.get_mut(code) {
                            set_bits(rows, first, end);
                        }
                    });
                }
                of_codes
            }
        };
        for rows in &mut of_codes {
            let wanted = selection.iter().chain(std::iter::repeat(&0));
            rows.iter_mut()
                .zip(wanted)
                .for_each(|(word, wanted)| *word &= wanted);
        }
        if let Some(values) = &self.values {
            for rows in &mut of_codes {
                rows.iter_mut()
                    .zip(values)
                    .for_each(|(word, value)| *word &= value);
            }
            of_codes.push(
                selection
                    .iter()
                    .zip(values)
                    .map(|(word, value)| word & !value)
                    .collect(),
            );
        }
        of_codes
    }

    /// Makes each row's number the number times the count of codes, plus its own.
    pub(super) fn refine(&self, form: Form, numbers: &mut [u16]) {
        let count = self.count() as u16;
        match &self.source {
            Source::Frame(codes, _) | Source::Dictionary(codes) => {
                let mut unpacked = [[0; 64]; 8];
                for (nth, numbers) in numbers.chunks_mut(64 * 8).enumerate() {
                    codes.unpack(form, 8 * nth, &mut unpacked);
                    for (number, code) in numbers.iter_mut().zip(unpacked.as_flattened()) {
                        *number = number.wrapping_mul(count).wrapping_add(*code as u16);
                    }
                }
            }
            Source::Runs(known) => {
                if let Body::Numbers(Numbers::RunLength(runs)) = self.column.body() {
                    runs.each_run(0, self.column.rows(), |value, first, end| {
                        let code = known.partition_point(|number| *number < value) as u16;
                        for number in numbers.get_mut(first..end).unwrap_or_default() {
                            *number = number.wrapping_mul(count).wrapping_add(code);
                        }
                    });
                }
            }
        }
        let Some(values) = &self.values else { return };
        for (word, numbers) in values.iter().zip(numbers.chunks_mut(64)) {
            if *word == u64::MAX {
                continue;
            }
            for (bit, number) in numbers.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *number = *number / count * count + self.codes as u16;
                }
            }
        }
    }
}
