//! Damage is found, and named: every bit of header, directory and columns; bytes that are missing; bytes of
//! another place or another segment. What is not damaged stays readable.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod model;

use model::*;
use proptest::prelude::*;
use weft_column::segment::{Kind, Place, Segment, SegmentError};

/// A column of every encoding, numbers and strings.
fn columns(rows: usize, seed: u64) -> Vec<(Kind, Cells)> {
    let shape = |kind, width, pattern, nulls| Shape {
        kind,
        rows,
        width,
        pattern,
        nulls,
        seed,
    };
    [
        shape(Kind::I64, 64, Pattern::Random, Nulls::Random),
        shape(Kind::I32, 13, Pattern::Random, Nulls::EverySecond),
        shape(Kind::F64, 60, Pattern::Few, Nulls::None),
        shape(Kind::I64, 62, Pattern::Runs, Nulls::Last),
        shape(Kind::I64, 30, Pattern::Ascending, Nulls::None),
        shape(Kind::Bool, 1, Pattern::Random, Nulls::First),
        shape(Kind::Bytes16, 60, Pattern::Random, Nulls::None),
        shape(Kind::Bytes, 20, Pattern::Random, Nulls::Random),
        shape(Kind::Bytes, 20, Pattern::Few, Nulls::None),
        shape(Kind::Bytes, 63, Pattern::Ascending, Nulls::None),
        shape(Kind::I16, 9, Pattern::Random, Nulls::All),
    ]
    .into_iter()
    .map(|shape| (shape.kind, shape.cells()))
    .collect()
}

/// Where a byte of a sound segment belongs.
fn place_of(bytes: &[u8], at: usize) -> Place {
    let segment = open(bytes);
    let mut end = 64 + 192 * segment.column_count();
    match at {
        0..64 => return Place::Header,
        at if at < end => return Place::Directory,
        _ => {}
    }
    for number in 0..segment.column_count() {
        end += segment.describe(number).unwrap().2;
        if at < end {
            return Place::Column(number);
        }
    }
    panic!("no part of the segment has byte {at}");
}

/// Which parts are found damaged; the other columns must be as they were.
fn damage(bytes: &[u8], columns: &[(Kind, Cells)]) -> Vec<Place> {
    let segment = match Segment::open(bytes) {
        Ok(segment) => segment,
        Err(SegmentError::Damaged { place, .. }) => return vec![place],
        Err(other) => panic!("{other}"),
    };
    let mut found = Vec::new();
    for (number, (_, cells)) in columns.iter().enumerate() {
        match segment
            .column(number)
            .and_then(|column| column.decode(0..cells.len()))
        {
            Ok(decoded) => {
                for (row, cell) in cells.iter().enumerate() {
                    assert!(same(&decoded.get(row), cell), "column {number} has changed");
                }
            }
            Err(SegmentError::Damaged { place, offset, .. }) => {
                assert_eq!(place, Place::Column(number));
                assert!(offset < bytes.len());
                found.push(place);
                assert!(segment.check().is_err());
            }
            Err(other) => panic!("{other}"),
        }
    }
    found
}

#[test]
fn every_flipped_bit_is_found_and_named() {
    let columns = columns(70, 1);
    let sound = build(&columns);
    assert_eq!(damage(&sound, &columns), []);
    let mut bytes = sound.clone();
    for at in 0..sound.len() {
        let place = place_of(&sound, at);
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            assert_eq!(damage(&bytes, &columns), [place], "byte {at}, bit {bit}");
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn every_missing_or_added_byte_is_found() {
    let columns = columns(10, 2);
    let sound = build(&columns);
    for length in 0..sound.len() {
        assert_eq!(damage(&sound[..length], &columns), [Place::Header]);
    }
    let mut longer = sound;
    longer.push(0);
    assert_eq!(damage(&longer, &columns), [Place::Header]);
}

#[test]
fn another_version_is_named() {
    let mut bytes = build(&columns(3, 3));
    bytes[8] = 2;
    let crc = weft_ops::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Segment::open(&bytes).unwrap_err(), SegmentError::Version(2));
    assert!(SegmentError::Version(2).is_corruption());
    bytes[0] = b'X';
    let error = Segment::open(&bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the segment's header is damaged at byte 0: not a segment"
    );
}

#[test]
fn a_flipped_bit_of_a_full_segment_is_found() {
    let columns = columns(1 << 16, 4);
    let sound = build(&columns);
    let mut bytes = sound.clone();
    for nth in 0..200 {
        let random = weft_ops::mix64(nth) as usize;
        let (at, bit) = (random % sound.len(), random >> 61);
        bytes[at] ^= 1 << bit;
        let place = place_of(&sound, at);
        let found = match Segment::open(bytes.as_slice()) {
            Err(SegmentError::Damaged { place, .. }) => place,
            Err(other) => panic!("{other}"),
            Ok(segment) => {
                let Place::Column(number) = place else {
                    panic!("{place} is not found")
                };
                let Err(SegmentError::Damaged { place, .. }) = segment.column(number) else {
                    panic!("byte {at} of {place} is not found");
                };
                place
            }
        };
        assert_eq!(found, place);
        bytes[at] ^= 1 << bit;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn spliced_bytes_are_found_or_change_nothing(
        (from, to, length) in any::<(usize, usize, usize)>(),
        rows in 1_usize..200,
        other_seed: u64,
    ) {
        let given = columns(rows, 5);
        let sound = build(&given);
        let other = build(&columns(rows, other_seed));
        let source = if other_seed % 2 == 0 { &sound } else { &other };
        let (from, to) = (from % source.len(), to % sound.len());
        let length = (1 + length % 300).min(source.len() - from).min(sound.len() - to);
        let mut bytes = sound.clone();
        bytes[to..to + length].copy_from_slice(&source[from..from + length]);
        let found = damage(&bytes, &given);
        prop_assert_eq!(found.is_empty(), bytes == sound);
    }
}
