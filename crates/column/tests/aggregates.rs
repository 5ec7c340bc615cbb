//! What the values of selected rows come to, by themselves and in groups, equals a loop over the values: all
//! kinds, encodings and NULLs, in every form.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod model;

use std::collections::BTreeMap;

use model::{Nulls, Pattern, Shape, build, open, shapes};
use proptest::prelude::*;
use weft_column::packed::Form;
use weft_column::segment::{Encoding, Groups, Kind, Segment, Value, Wanted};

/// The integer that a value is, if it is one.
fn integer(value: &Value<'_>) -> Option<i128> {
    Some(match value {
        Value::I16(value) => i128::from(*value),
        Value::I32(value) => i128::from(*value),
        Value::I64(value) => i128::from(*value),
        Value::U32(value) => i128::from(*value),
        _ => return None,
    })
}

/// A text in the order of values, by which maps and comparisons of the test go.
fn place(value: &Value<'_>) -> Place {
    match value {
        Value::Bytes16(bytes) => (0, bytes.to_vec()),
        Value::Bytes(bytes) => (0, bytes.to_vec()),
        Value::Bool(value) => (i128::from(*value), Vec::new()),
        // All NaNs are one value here, and zeros are apart.
        Value::F32(value) => (float_place(f64::from(*value)), Vec::new()),
        Value::F64(value) => (float_place(*value), Vec::new()),
        value => (integer(value).unwrap(), Vec::new()),
    }
}

fn float_place(value: f64) -> i128 {
    if value.is_nan() {
        return i128::MAX;
    }
    let bits = value.to_bits() as i64;
    i128::from(bits ^ ((bits >> 63) as u64 >> 1) as i64)
}

fn bit(selection: &[u64], row: usize) -> bool {
    selection
        .get(row / 64)
        .is_some_and(|word| word >> (row % 64) & 1 == 1)
}

/// What a value is compared by.
type Place = (i128, Vec<u8>);

/// Count, sum, minimum and maximum.
type Expected = (u64, i128, Option<Place>, Option<Place>);

fn expected(cells: &[Option<Value<'static>>], rows: impl Iterator<Item = usize>) -> Expected {
    let values: Vec<&Value<'static>> = rows.filter_map(|row| cells[row].as_ref()).collect();
    (
        values.len() as u64,
        values.iter().filter_map(|value| integer(value)).sum(),
        values.iter().map(|value| place(value)).min(),
        values.iter().map(|value| place(value)).max(),
    )
}

fn selections(rows: usize, seed: u64) -> Vec<Vec<u64>> {
    let words = rows.div_ceil(64);
    let random = |shift: u64| (0..words as u64).map(move |at| weft_ops::mix64(seed ^ shift ^ at));
    vec![
        vec![u64::MAX; words],
        random(0).collect(),
        // Few, some words without any.
        random(1 << 32)
            .zip(random(1 << 33))
            .map(|(a, b)| a & b & b.rotate_left(7))
            .collect(),
        vec![0; words],
    ]
}

/// Checks the aggregates of a column over the rows of each group.
fn check(
    groups: &Groups<'_>,
    of_group: &[Vec<usize>],
    cells: &[Option<Value<'static>>],
    segment: &Segment<&[u8]>,
    form: Form,
) -> Result<(), TestCaseError> {
    let column = segment.column(0).unwrap();
    for wanted in [Wanted::Count, Wanted::Extremes, Wanted::All] {
        let Some(found) = groups.aggregate(form, &column, wanted) else {
            let is_string = matches!(column.kind(), Kind::Bytes | Kind::Bytes16);
            let has_codes = column.encoding() == Encoding::Dictionary && wanted == Wanted::Extremes;
            prop_assert!(is_string && !has_codes && wanted != Wanted::Count);
            continue;
        };
        prop_assert_eq!(found.len(), of_group.len());
        for (found, rows) in found.iter().zip(of_group) {
            let expected = expected(cells, rows.iter().copied());
            prop_assert_eq!(found.count, expected.0);
            let sums = matches!(column.kind(), Kind::I16 | Kind::I32 | Kind::I64 | Kind::U32);
            if wanted == Wanted::All && sums {
                prop_assert_eq!(found.sum, expected.1);
            }
            if wanted != Wanted::Count {
                let extremes = column.extremes(found).unwrap();
                let (min, max) = extremes.map(|(min, max)| (place(&min), place(&max))).unzip();
                prop_assert_eq!((min, max), (expected.2, expected.3));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn aggregates_are_those_of_the_values(shape in shapes(model::lengths()), seed: u64) {
        let cells = shape.cells();
        let bytes = build(&[(shape.kind, cells.clone())]);
        let segment = open(&bytes);
        for selection in selections(shape.rows, seed) {
            let rows: Vec<usize> = (0..shape.rows).filter(|row| bit(&selection, *row)).collect();
            let all = if rows.is_empty() { Vec::new() } else { vec![rows] };
            for form in Form::here() {
                let groups = Groups::new(form, shape.rows, &selection, &[]).unwrap();
                prop_assert_eq!(groups.count(), all.len());
                check(&groups, &all, &cells, &segment, form)?;
            }
        }
    }

    #[test]
    fn groups_are_those_of_the_values(
        shape in shapes(model::lengths()),
        keys in prop::collection::vec((shapes(Just(0)), 0_u32..8), 1..4),
        seed: u64,
    ) {
        let cells_of = shape.cells();
        let bytes = build(&[(shape.kind, cells_of.clone())]);
        let segment = open(&bytes);
        let of_keys: Vec<_> = keys.into_iter().map(|(key, width)| {
            let pattern = if key.pattern == Pattern::Random { Pattern::Few } else { key.pattern };
            let key = Shape { rows: shape.rows, width, pattern, ..key };
            let cells = key.cells();
            (build(&[(key.kind, cells.clone())]), cells)
        }).collect();
        let segments: Vec<_> = of_keys.iter().map(|(bytes, _)| open(bytes)).collect();
        let columns: Vec<_> = segments.iter().map(|segment| segment.column(0).unwrap()).collect();
        for selection in selections(shape.rows, seed) {
            // NULL is behind all values.
            let mut expected: BTreeMap<Vec<Option<Place>>, Vec<usize>> = BTreeMap::new();
            for row in (0..shape.rows).filter(|row| bit(&selection, *row)) {
                let key = of_keys.iter().map(|(_, cells)| cells[row].as_ref().map(place)).collect();
                expected.entry(key).or_default().push(row);
            }
            for form in Form::here() {
                let Some(groups) = Groups::new(form, shape.rows, &selection, &columns) else {
                    continue;
                };
                let mut found = Vec::new();
                for group in 0..groups.count() {
                    let values = groups.values(group).unwrap();
                    let key: Vec<_> = values.iter().map(|value| value.as_ref().map(place)).collect();
                    let rows = expected.get(&key).cloned().unwrap_or_default();
                    // NaNs with other bits are other codes.
                    if !columns.iter().any(|column| matches!(column.kind(), Kind::F32 | Kind::F64)) {
                        prop_assert_eq!(groups.rows(group), rows.len() as u64, "{:?} {:?}", form, key);
                    }
                    found.push(rows);
                }
                if !columns.iter().any(|column| matches!(column.kind(), Kind::F32 | Kind::F64)) {
                    prop_assert_eq!(groups.count(), expected.len());
                    check(&groups, &found, &cells_of, &segment, form)?;
                }
            }
        }
    }
}

/// The ways in which groups are found are all met: by bitmaps, by numbers, and by numbers with few groups.
#[test]
fn many_groups_are_grouped_too() {
    let column = |width, pattern, nulls, seed| {
        let shape = Shape {
            kind: Kind::I32,
            rows: 4096,
            width,
            pattern,
            nulls,
            seed,
        };
        let cells = shape.cells();
        (build(&[(shape.kind, cells.clone())]), cells)
    };
    let many = column(6, Pattern::Random, Nulls::Random, 1);
    let runs = column(3, Pattern::Runs, Nulls::None, 2);
    let values = column(40, Pattern::Random, Nulls::EverySecond, 3);
    let segments = [&many, &runs].map(|(bytes, _)| open(bytes));
    let columns = segments.each_ref().map(|segment| segment.column(0).unwrap());
    let summed = open(&values.0);
    for form in Form::here() {
        for selection in selections(4096, 5) {
            let groups = Groups::new(form, 4096, &selection, &columns).unwrap();
            let mut rows: BTreeMap<_, Vec<usize>> = BTreeMap::new();
            for row in (0..4096).filter(|row| bit(&selection, *row)) {
                let key =
                    [&many.1[row], &runs.1[row]].map(|value| (value.is_none(), value.as_ref().map(place)));
                rows.entry(key).or_default().push(row);
            }
            let rows: Vec<Vec<usize>> = rows.into_values().collect();
            assert_eq!(groups.count(), rows.len());
            check(&groups, &rows, &values.1, &summed, form).unwrap();
        }
    }
    let wide = column(20, Pattern::Random, Nulls::None, 4);
    assert!(
        Groups::new(
            Form::best(),
            4096,
            &[u64::MAX; 64],
            &[open(&wide.0).column(0).unwrap()]
        )
        .is_none()
    );
}
