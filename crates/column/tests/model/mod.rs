//! Columns as lists of values, drawn from a seed, and what a predicate holds for: one comparison a value.

#![allow(dead_code, reason = "each test uses a part")]

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;

use proptest::prelude::*;
use weft_base::random::Prng;
use weft_column::segment::{Kind, Segment, SegmentBuilder, Value, ValuePredicate};

pub type Cells = Vec<Option<Value<'static>>>;

pub const KINDS: [Kind; 9] = [
    Kind::Bool,
    Kind::I16,
    Kind::I32,
    Kind::I64,
    Kind::U32,
    Kind::F32,
    Kind::F64,
    Kind::Bytes16,
    Kind::Bytes,
];

/// How the values of a column follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    Random,
    Ascending,
    Runs,
    Few,
    Same,
}

pub const PATTERNS: [Pattern; 5] = [
    Pattern::Random,
    Pattern::Ascending,
    Pattern::Runs,
    Pattern::Few,
    Pattern::Same,
];

/// Which rows are NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    None,
    All,
    EverySecond,
    First,
    Last,
    Random,
}

pub const NULLS: [Nulls; 6] = [
    Nulls::None,
    Nulls::All,
    Nulls::EverySecond,
    Nulls::First,
    Nulls::Last,
    Nulls::Random,
];

/// What a column is drawn from.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub kind: Kind,
    pub rows: usize,
    /// Bits of the numbers, or bytes of the strings.
    pub width: u32,
    pub pattern: Pattern,
    pub nulls: Nulls,
    pub seed: u64,
}

pub fn shapes(rows: impl Strategy<Value = usize>) -> impl Strategy<Value = Shape> {
    let kind = prop::sample::select(KINDS.to_vec());
    let pattern = prop::sample::select(PATTERNS.to_vec());
    let nulls = prop::sample::select(NULLS.to_vec());
    (kind, rows, 0_u32..=64, pattern, nulls, any::<u64>()).prop_map(
        |(kind, rows, width, pattern, nulls, seed)| Shape {
            kind,
            rows,
            width,
            pattern,
            nulls,
            seed,
        },
    )
}

/// Lengths around those of words, groups and lines.
pub fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        prop::sample::select(vec![0, 1, 2, 63, 64, 65, 127, 128, 129, 511, 512, 513]),
        0_usize..700
    ]
}

/// So many low bits of a number.
fn low_bits(number: u64, width: u32) -> u64 {
    number & u64::MAX.checked_shr(64 - width).unwrap_or(0)
}

/// A value of the kind that grows with `number`, as far as the kind goes.
fn value(kind: Kind, number: u64, base: u64, width: u32) -> Value<'static> {
    let sum = number.wrapping_add(base);
    match kind {
        Kind::Bool => Value::Bool(sum & 1 == 1),
        Kind::I16 => Value::I16(sum as i16),
        Kind::I32 => Value::I32(sum as i32),
        Kind::I64 => Value::I64(sum as i64),
        Kind::U32 => Value::U32(sum as u32),
        Kind::F32 => Value::F32(float(number).unwrap_or(f64::from(f32::from_bits(sum as u32))) as f32),
        Kind::F64 => Value::F64(float(number).unwrap_or(f64::from_bits(sum))),
        Kind::Bytes16 => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            bytes[8..].copy_from_slice(&base.to_le_bytes());
            Value::Bytes16(bytes)
        }
        Kind::Bytes => {
            let length = if width.is_multiple_of(3) {
                width as u64
            } else {
                number % u64::from(width + 1)
            };
            let digits = format!("{number:020}");
            let text = digits.bytes().cycle().take(length as usize);
            Value::Bytes(Cow::Owned(text.collect()))
        }
    }
}

/// Floats that are special now and then.
fn float(number: u64) -> Option<f64> {
    let special = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::from_bits(0x7ff0_0000_0000_0001),
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        1.0,
        -1.0,
    ];
    number
        .is_multiple_of(4)
        .then(|| special[number as usize / 4 % special.len()])
}

impl Shape {
    pub fn cells(&self) -> Cells {
        let mut prng = Prng::new(self.seed);
        let base = match prng.below(4) {
            0 => 0,
            1 => i64::MAX as u64 - 3,
            2 => i64::MIN as u64,
            _ => prng.next_u64(),
        };
        let few: Vec<u64> = (0..1 + prng.below(20))
            .map(|_| low_bits(prng.next_u64(), self.width))
            .collect();
        let mut number = low_bits(prng.next_u64(), self.width);
        let mut cells = Vec::with_capacity(self.rows);
        for row in 0..self.rows {
            match self.pattern {
                Pattern::Random => number = low_bits(prng.next_u64(), self.width),
                Pattern::Ascending => {
                    let step = low_bits(prng.next_u64(), self.width / 2);
                    number = low_bits(number.wrapping_add(step), self.width);
                }
                Pattern::Runs if prng.below(30) == 0 => number = low_bits(prng.next_u64(), self.width),
                Pattern::Few => number = few[prng.below(few.len() as u64) as usize],
                Pattern::Runs | Pattern::Same => {}
            }
            let is_null = match self.nulls {
                Nulls::None => false,
                Nulls::All => true,
                Nulls::EverySecond => row % 2 == 0,
                Nulls::First => row < self.rows / 2,
                Nulls::Last => row + 1 == self.rows,
                Nulls::Random => prng.below(3) == 0,
            };
            cells.push((!is_null).then(|| value(self.kind, number, base, self.width)));
        }
        cells
    }
}

/// The bytes of a segment of these columns, filled row by row.
pub fn build(columns: &[(Kind, Cells)]) -> Vec<u8> {
    let kinds: Vec<Kind> = columns.iter().map(|(kind, _)| *kind).collect();
    let mut builder = SegmentBuilder::new(7, &kinds).unwrap();
    let rows = columns.first().map_or(0, |(_, cells)| cells.len());
    for row in 0..rows {
        for (number, (_, cells)) in columns.iter().enumerate() {
            builder.push(number, cells[row].as_ref()).unwrap();
        }
    }
    builder.finish().unwrap()
}

pub fn open(bytes: &[u8]) -> Segment<&[u8]> {
    Segment::open(bytes).unwrap()
}

/// Whether two values have the same bits.
pub fn same(a: &Option<Value<'_>>, b: &Option<Value<'_>>) -> bool {
    match (a, b) {
        (Some(Value::F32(a)), Some(Value::F32(b))) => a.to_bits() == b.to_bits(),
        (Some(Value::F64(a)), Some(Value::F64(b))) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

fn integer(value: &Value<'_>) -> Option<i128> {
    Some(match value {
        Value::I16(value) => i128::from(*value),
        Value::I32(value) => i128::from(*value),
        Value::I64(value) => i128::from(*value),
        Value::U32(value) => i128::from(*value),
        _ => return None,
    })
}

fn float_order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// PostgreSQL's order.
pub fn order(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::F32(a), Value::F32(b)) => float_order(f64::from(*a), f64::from(*b)),
        (Value::F64(a), Value::F64(b)) => float_order(*a, *b),
        (Value::Bytes16(a), Value::Bytes16(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (a, b) => integer(a).unwrap().cmp(&integer(b).unwrap()),
    }
}

pub fn holds(predicate: &ValuePredicate<'_>, value: &Value<'_>) -> bool {
    match predicate {
        ValuePredicate::Range(low, high) => {
            let above = match low {
                Bound::Included(low) => order(low, value).is_le(),
                Bound::Excluded(low) => order(low, value).is_lt(),
                Bound::Unbounded => true,
            };
            let below = match high {
                Bound::Included(high) => order(value, high).is_le(),
                Bound::Excluded(high) => order(value, high).is_lt(),
                Bound::Unbounded => true,
            };
            above && below
        }
        ValuePredicate::In(list) => list.iter().any(|item| order(item, value).is_eq()),
    }
}

/// The bitmap that a scan has to give.
pub fn matching(predicate: &ValuePredicate<'_>, cells: &Cells) -> Vec<u64> {
    let mut words = vec![0; cells.len().div_ceil(64)];
    for (row, cell) in cells.iter().enumerate() {
        let holds = cell.as_ref().is_some_and(|value| holds(predicate, value));
        words[row / 64] |= u64::from(holds) << (row % 64);
    }
    words
}
