//! What a predicate finds in a column is what comparing each value finds: every kind and encoding, bounds in
//! and outside of the domain, reversed and open ones, lists short, long and empty, NULL, NaN and zeros.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod model;

use std::collections::BTreeSet;
use std::ops::Bound;

use model::*;
use proptest::prelude::*;
use weft_base::random::Prng;
use weft_column::packed::Form;
use weft_column::segment::{CodePredicate, Column, Kind, SegmentError, Value, ValuePredicate};

/// A value that may be compared with the column's: one of them, one next to it, one of the kind, or an
/// integer of another length.
fn item(shape: &Shape, cells: &Cells, prng: &mut Prng) -> Value<'static> {
    let near = cells
        .get(prng.below(cells.len() as u64 + 1) as usize)
        .cloned()
        .flatten();
    let other = Shape {
        rows: 1,
        nulls: Nulls::None,
        width: prng.below(65) as u32,
        seed: prng.next_u64(),
        ..*shape
    };
    let random = other.cells().remove(0).unwrap();
    match (near, prng.below(5)) {
        (Some(Value::I16(value)), 0) => Value::I64(i64::from(value)),
        (Some(Value::I32(value)), 0) => Value::I64(i64::from(value) + 1),
        (Some(Value::I64(value)), 0) => Value::I64(value.saturating_sub(1)),
        (Some(Value::U32(value)), 0) => Value::I64(i64::from(value) - 1),
        (Some(Value::I16(_) | Value::I32(_) | Value::U32(_)), 1) => Value::I64(prng.next_u64() as i64),
        (Some(Value::F64(value)), 0) => Value::F64(value.next_up()),
        (Some(Value::F64(_)), 1) => Value::F64(f64::from_bits(prng.next_u64())),
        (Some(Value::Bytes(bytes)), 0) => {
            let mut bytes = bytes.into_owned();
            bytes.pop();
            Value::Bytes(bytes.into())
        }
        (Some(Value::Bytes(bytes)), 1) => {
            let mut bytes = bytes.into_owned();
            bytes.push(prng.next_u64() as u8);
            Value::Bytes(bytes.into())
        }
        (Some(value), 0..4) => value,
        _ => random,
    }
}

fn bound(value: Value<'static>, prng: &mut Prng) -> Bound<Value<'static>> {
    match prng.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Excluded(value),
        _ => Bound::Included(value),
    }
}

fn check(
    column: &Column<'_>,
    may_match: bool,
    predicate: &ValuePredicate<'_>,
    cells: &Cells,
) -> Result<(), TestCaseError> {
    let prepared = predicate.prepare(column.kind()).unwrap();
    let expected = matching(predicate, cells);
    for form in Form::here() {
        let mut found = vec![1, 2, 3];
        column.matching(form, &prepared, &mut found).unwrap();
        prop_assert_eq!(
            &found,
            &expected,
            "{:?} {:?} {:?}",
            form,
            predicate,
            column.encoding()
        );
    }
    let matches = expected.iter().any(|word| *word != 0);
    prop_assert!(may_match || !matches, "{predicate:?} is pruned");
    let values = cells.iter().flatten().count();
    match column.code_predicate(&prepared).unwrap() {
        CodePredicate::None => prop_assert!(!matches),
        CodePredicate::All => {
            let bits: u32 = expected.iter().map(|word| word.count_ones()).sum();
            prop_assert_eq!(bits as usize, values);
        }
        CodePredicate::Range(..) | CodePredicate::Set(_) | CodePredicate::Ranges(_) => {
            prop_assert!(column.codes().is_some());
        }
        CodePredicate::OnValues => prop_assert!(column.codes().is_none()),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn predicates_find_what_holds(shape in shapes(lengths()), seed: u64) {
        let cells = shape.cells();
        let bytes = build(&[(shape.kind, cells.clone())]);
        let segment = open(&bytes);
        let column = segment.column(0).unwrap();
        let mut prng = Prng::new(seed);
        for _ in 0..6 {
            let (low, high) = (item(&shape, &cells, &mut prng), item(&shape, &cells, &mut prng));
            let range = ValuePredicate::Range(bound(low.clone(), &mut prng), bound(high, &mut prng));
            let point = ValuePredicate::Range(Bound::Included(low.clone()), Bound::Included(low.clone()));
            let empty = ValuePredicate::Range(Bound::Excluded(low.clone()), Bound::Excluded(low));
            let count = [0, 1, 2, 5, 40, 300][prng.below(6) as usize];
            let list: Vec<Value> = (0..count).map(|_| item(&shape, &cells, &mut prng)).collect();
            for predicate in [range, point, empty, ValuePredicate::In(&list)] {
                let prepared = predicate.prepare(shape.kind).unwrap();
                let may_match = segment.may_match(0, &prepared).unwrap();
                check(&column, may_match, &predicate, &cells)?;
            }
        }
    }
}

/// The bits of the rows for which it holds.
fn bits(cells: &Cells, holds: impl Fn(&Value<'_>) -> bool) -> Vec<u64> {
    let mut words = vec![0; cells.len().div_ceil(64)];
    for (row, cell) in cells.iter().enumerate() {
        words[row / 64] |= u64::from(cell.as_ref().is_some_and(&holds)) << (row % 64);
    }
    words
}

#[test]
fn lists_of_a_hundred_thousand_values_are_found() {
    for (kind, width, pattern) in [
        (Kind::I64, 14, Pattern::Random),
        (Kind::I64, 24, Pattern::Random),
        (Kind::I64, 60, Pattern::Few),
        (Kind::I64, 60, Pattern::Random),
        (Kind::I64, 20, Pattern::Ascending),
        (Kind::I32, 30, Pattern::Runs),
        (Kind::Bytes, 30, Pattern::Few),
        (Kind::Bytes, 21, Pattern::Random),
        (Kind::Bytes16, 40, Pattern::Few),
    ] {
        let shape = Shape {
            kind,
            rows: 1 << 16,
            width,
            pattern,
            nulls: Nulls::Random,
            seed: 9,
        };
        let cells = shape.cells();
        let others = Shape {
            rows: 100_000,
            seed: 10,
            nulls: Nulls::None,
            ..shape
        };
        // Every third value of the column's, the rest anything.
        let list: Vec<Value> = (others.cells().into_iter().enumerate())
            .map(|(at, other)| match cells.get(at).filter(|_| at % 3 == 0) {
                Some(Some(value)) => value.clone(),
                _ => other.unwrap(),
            })
            .collect();
        let text = |value: &Value<'_>| format!("{value:?}");
        let members: BTreeSet<String> = list.iter().map(text).collect();
        let expected = bits(&cells, |value| members.contains(&text(value)));
        let bytes = build(&[(kind, cells)]);
        let segment = open(&bytes);
        let column = segment.column(0).unwrap();
        let mut found = Vec::new();
        let prepared = ValuePredicate::In(&list);
        let prepared = prepared.prepare(kind).unwrap();
        column.matching(Form::best(), &prepared, &mut found).unwrap();
        assert_eq!(found, expected, "{kind:?} {width} {:?}", column.encoding());
    }
}

#[test]
fn floats_are_compared_as_postgresql_does() {
    let values = [
        -0.0,
        0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1.5,
    ];
    let cells: Cells = values
        .iter()
        .map(|value| Some(Value::F64(*value)))
        .chain([None])
        .collect();
    let bytes = build(&[(Kind::F64, cells)]);
    let segment = open(&bytes);
    let column = segment.column(0).unwrap();
    let find = |predicate: ValuePredicate<'_>| {
        let mut found = Vec::new();
        let prepared = predicate.prepare(Kind::F64).unwrap();
        column.matching(Form::best(), &prepared, &mut found).unwrap();
        found[0]
    };
    let list = |values: &[f64]| {
        let list: Vec<Value> = values.iter().map(|value| Value::F64(*value)).collect();
        find(ValuePredicate::In(&list))
    };
    let (all, nan) = (0b0111_1111, 0b0000_1100);
    assert_eq!(list(&[0.0]), 0b11);
    assert_eq!(list(&[-0.0]), 0b11);
    assert_eq!(list(&[f64::NAN]), nan);
    assert_eq!(list(&[f64::NAN, 1.5]), nan | 0b0100_0000);
    let included = |value: f64| Bound::Included(Value::F64(value));
    let excluded = |value: f64| Bound::Excluded(Value::F64(value));
    let open = || Bound::Unbounded;
    assert_eq!(find(ValuePredicate::Range(included(f64::NAN), open())), nan);
    assert_eq!(find(ValuePredicate::Range(excluded(f64::NAN), open())), 0);
    assert_eq!(find(ValuePredicate::Range(open(), excluded(f64::NAN))), all ^ nan);
    assert_eq!(find(ValuePredicate::Range(open(), included(f64::NAN))), all);
    assert_eq!(find(ValuePredicate::Range(excluded(f64::INFINITY), open())), nan);
    assert_eq!(find(ValuePredicate::Range(excluded(-0.0), excluded(1.5))), 0);
    assert_eq!(find(ValuePredicate::Range(included(0.0), excluded(1.5))), 0b11);
    assert_eq!(find(ValuePredicate::Range(open(), excluded(0.0))), 0b10_0000);
    let extremes = segment.min_max(0).unwrap().unwrap();
    assert!(matches!(extremes.max, Value::F64(value) if value.is_nan()));
    assert_eq!(extremes.min, Value::F64(f64::NEG_INFINITY));
}

#[test]
fn values_of_another_kind_are_refused() {
    let list = [Value::F32(1.0)];
    let wrong = |column, value| SegmentError::WrongKind { column, value };
    let refused = ValuePredicate::In(&list).prepare(Kind::F64).unwrap_err();
    assert_eq!(refused, wrong(Kind::F64, Kind::F32));
    let range = ValuePredicate::Range(Bound::Unbounded, Bound::Excluded(Value::Bool(true)));
    assert_eq!(
        range.prepare(Kind::I16).unwrap_err(),
        wrong(Kind::I16, Kind::Bool)
    );
    let bytes = build(&[(Kind::I16, vec![Some(Value::I16(3))])]);
    let segment = open(&bytes);
    let prepared = range.prepare(Kind::Bool).unwrap();
    let column = segment.column(0).unwrap();
    let refused = column.matching(Form::best(), &prepared, &mut Vec::new());
    assert_eq!(refused, Err(wrong(Kind::I16, Kind::Bool)));
    assert_eq!(segment.may_match(0, &prepared), Err(wrong(Kind::I16, Kind::Bool)));
}
