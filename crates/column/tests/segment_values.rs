//! What is read from a segment is what was written: by position, in ranges, with its minimum and maximum;
//! for every kind, encoding, width, pattern of NULLs and length.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod model;

use std::collections::BTreeSet;

use model::*;
use proptest::prelude::*;
use weft_column::segment::{Column, Encoding, Kind, SegmentBuilder, SegmentError, Value};

fn check(kind: Kind, cells: &Cells, ranges: &[(usize, usize)]) -> Result<Encoding, TestCaseError> {
    let bytes = build(&[(kind, cells.clone())]);
    let segment = open(&bytes);
    let column = segment.column(0).unwrap();
    prop_assert_eq!((segment.row_count(), segment.schema_version()), (cells.len(), 7));
    prop_assert_eq!((column.rows(), column.kind()), (cells.len(), kind));
    let rows = cells.len();
    for (row, cell) in cells.iter().enumerate() {
        let found = column.get(row).unwrap();
        prop_assert!(
            same(&found, cell),
            "{row}: {found:?} for {cell:?} {:?}",
            column.encoding()
        );
        prop_assert_eq!(column.is_null(row), cell.is_none());
    }
    prop_assert_eq!(column.get(rows).unwrap_err(), SegmentError::NoRow(rows));
    for (first, end) in ranges.iter().chain(&[(0, rows), (rows, rows)]) {
        let (first, end) = (first % (rows + 1), end % (rows + 1));
        let range = first.min(end)..first.max(end);
        let decoded = column.decode(range.clone()).unwrap();
        prop_assert_eq!(decoded.rows, range.len());
        for (at, row) in range.enumerate() {
            let found = decoded.get(at);
            prop_assert!(same(&found, &cells[row]), "{row}: {found:?} for {:?}", cells[row]);
        }
        // Some of them, backwards, the last one twice.
        let some: Vec<u32> = (first.min(end)..first.max(end))
            .rev()
            .step_by(3)
            .map(|row| row as u32)
            .collect();
        let some: Vec<u32> = some
            .first()
            .copied()
            .into_iter()
            .chain(some.iter().copied())
            .collect();
        let taken = column.take(&some).unwrap();
        prop_assert_eq!(taken.rows, some.len());
        for (at, row) in some.iter().enumerate() {
            let (found, cell) = (taken.get(at), &cells[*row as usize]);
            prop_assert!(same(&found, cell), "{row}: {found:?} for {cell:?}");
        }
        prop_assert_eq!(
            column.take(&[rows as u32]).unwrap_err(),
            SegmentError::NoRow(rows)
        );
    }
    let values: Vec<&Value> = cells.iter().flatten().collect();
    prop_assert_eq!(segment.null_count(0).unwrap(), rows - values.len());
    let extremes = segment.min_max(0).unwrap();
    prop_assert_eq!(extremes.is_none(), values.is_empty());
    if let Some(extremes) = extremes {
        prop_assert!(values.iter().all(|value| order(&extremes.min, value).is_le()));
        if extremes.is_exact {
            prop_assert!(values.iter().all(|value| order(&extremes.max, value).is_ge()));
            prop_assert!(values.iter().any(|value| order(&extremes.min, value).is_eq()));
            prop_assert!(values.iter().any(|value| order(&extremes.max, value).is_eq()));
        }
    }
    check_distinct(&column, &values)?;
    segment.check().unwrap();
    Ok(column.encoding())
}

/// Keys are listed for all values, different ones for different values, and not more than asked for.
fn check_distinct(column: &Column<'_>, values: &[&Value<'_>]) -> Result<(), TestCaseError> {
    let mut shown: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    shown.sort_unstable();
    shown.dedup();
    for most in [0, 1, 3, 300, 100_000] {
        if let Some(keys) = column.distinct_keys(most) {
            let distinct: BTreeSet<u64> = keys.iter().copied().collect();
            prop_assert!(keys.len() <= most && distinct.len() == keys.len());
            prop_assert!(
                distinct.len() >= shown.len(),
                "{} of {}",
                distinct.len(),
                shown.len()
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn columns_are_their_lists(shape in shapes(lengths()), ranges: [(usize, usize); 3]) {
        check(shape.kind, &shape.cells(), &ranges)?;
    }

    #[test]
    fn any_strings_come_back(
        strings in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), 0..200),
        ranges: [(usize, usize); 3],
    ) {
        let cells = strings.into_iter().map(|string| string.map(|bytes| Value::Bytes(bytes.into())));
        check(Kind::Bytes, &cells.collect(), &ranges)?;
    }

    #[test]
    fn bytes_are_a_function_of_values(shapes in prop::collection::vec(shapes(Just(100)), 0..5)) {
        let columns: Vec<_> = shapes.iter().map(|shape| (shape.kind, shape.cells())).collect();
        let bytes = build(&columns);
        prop_assert_eq!(&build(&columns), &bytes);
        let segment = open(&bytes);
        prop_assert_eq!(segment.column_count(), columns.len());
        segment.check().unwrap();
        for (number, (kind, cells)) in columns.iter().enumerate() {
            let alone = build(&[(*kind, cells.clone())]);
            prop_assert_eq!(segment.describe(number).unwrap(), open(&alone).describe(0).unwrap());
        }
    }
}

#[test]
fn every_width_and_pattern_comes_back() {
    let mut encodings = BTreeSet::new();
    for kind in KINDS {
        for pattern in PATTERNS {
            for width in 0..=64 {
                let nulls = NULLS[width as usize % NULLS.len()];
                let shape = Shape {
                    kind,
                    rows: 300,
                    width,
                    pattern,
                    nulls,
                    seed: u64::from(width),
                };
                let encoding = check(kind, &shape.cells(), &[(63, 65), (64, 200)]).unwrap();
                encodings.insert((kind.is_number(), encoding as u8));
            }
        }
    }
    let numbers = [0, 1, 2, 3, 4].map(|encoding| (true, encoding));
    let strings = [0, 2, 5].map(|encoding| (false, encoding));
    assert_eq!(encodings, strings.into_iter().chain(numbers).collect());
}

#[test]
fn full_segments_come_back() {
    for kind in KINDS {
        for (pattern, nulls) in [
            (Pattern::Random, Nulls::None),
            (Pattern::Ascending, Nulls::Random),
            (Pattern::Runs, Nulls::First),
            (Pattern::Few, Nulls::EverySecond),
        ] {
            let shape = Shape {
                kind,
                rows: 1 << 16,
                width: 40,
                pattern,
                nulls,
                seed: 3,
            };
            let cells = shape.cells();
            let bytes = build(&[(kind, cells.clone())]);
            let segment = open(&bytes);
            let column = segment.column(0).unwrap();
            let decoded = column.decode(0..1 << 16).unwrap();
            for (row, cell) in cells.iter().enumerate() {
                assert!(same(&decoded.get(row), cell), "{kind:?} {pattern:?} {row}");
                if row % 7 == 0 && column.encoding() != Encoding::Blocks || row % 997 == 0 {
                    assert!(
                        same(&column.get(row).unwrap(), cell),
                        "{kind:?} {pattern:?} {row}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_smallest_encoding_is_taken() {
    let numbers =
        |numbers: &mut dyn Iterator<Item = i64>| numbers.map(|n| Some(Value::I64(n))).collect::<Cells>();
    let encoding = |cells: &Cells| {
        let bytes = build(&[(Kind::I64, cells.clone())]);
        let (_, encoding, bytes) = open(&bytes).describe(0).unwrap();
        (encoding, bytes)
    };
    let mix = |at: i64| weft_ops::mix64(at as u64) as i64;
    // 10 bits each, whatever they are added to.
    let frame = numbers(&mut (0..4096).map(|at| i64::MAX - 1023 + (mix(at) & 1023)));
    assert_eq!(encoding(&frame), (Encoding::Frame, 4096 * 10 / 8));
    // A constant has no bytes.
    assert_eq!(
        encoding(&numbers(&mut (0..4096).map(|_| -9))),
        (Encoding::Frame, 0)
    );
    // 16 values far from each other: 4 bits each, and a line for each eight entries.
    let few = numbers(&mut (0..4096).map(|at| mix(mix(at) & 15)));
    assert_eq!(encoding(&few), (Encoding::Dictionary, 4096 / 2 + 16 * 8));
    // Steps of 0 to 3 from far away.
    let mut sum = i64::MIN;
    let steps = numbers(&mut (0..4096).map(|at| {
        sum += mix(at) & 3;
        sum
    }));
    assert_eq!(encoding(&steps).0, Encoding::Delta);
    assert!(encoding(&steps).1 <= 4096 / 4 + 64 * 2);
    // 8 runs.
    let runs = numbers(&mut (0..4096).map(|at| mix(at / 512)));
    assert_eq!(encoding(&runs), (Encoding::RunLength, 64 + 64));
    let wide = numbers(&mut (0..4096).map(mix));
    assert_eq!(encoding(&wide), (Encoding::Raw, 4096 * 8));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut builder = SegmentBuilder::new(0, &[Kind::I16, Kind::Bytes]).unwrap();
    builder.push(0, Some(&Value::I16(5))).unwrap();
    let wrong = SegmentError::WrongKind {
        column: Kind::I16,
        value: Kind::I32,
    };
    assert_eq!(builder.push(0, Some(&Value::I32(5))), Err(wrong));
    assert_eq!(builder.push(2, None), Err(SegmentError::NoColumn(2)));
    assert_eq!(builder.finish(), Err(SegmentError::Uneven(1)));
    let mut builder = SegmentBuilder::new(0, &[Kind::Bool]).unwrap();
    (0..1 << 16).for_each(|_| builder.push(0, None).unwrap());
    assert_eq!(builder.push(0, None), Err(SegmentError::TooManyRows));
    assert_eq!(
        SegmentBuilder::new(0, &[Kind::Bool; 4097]).unwrap_err(),
        SegmentError::TooManyColumns
    );
    let bytes = builder.finish().unwrap();
    assert_eq!(bytes.len(), 64 + 192);
    assert_eq!(open(&bytes).column(1).unwrap_err(), SegmentError::NoColumn(1));
}
