//! What fuzzing calls: any bytes as a segment, and as what a unit is asked and answers about a scan. See
//! [`weft_base::fuzzing`].
//!
//! A fuzzer does not guess checksums, so a segment's bytes are read twice: as they are, and with length and
//! checksums made to fit, which reaches the checks behind them.

use std::ops::Bound;

use bytes::Bytes;
use weft_base::fuzzing::Target;
use weft_offload::Operation;
use weft_ops::crc32c;

use crate::packed::Form;
use crate::segment::{Column, Decoded, Kind, Segment, SegmentBuilder, SegmentError, Value, ValuePredicate};
use crate::units::{
    Matches, Scan, ScanEngineParams, ScanPart, ScanPredicate, ScanStop, ScanTask, ScannedCodes, simulate,
};

/// All targets.
pub const TARGETS: [Target; 2] = [
    Target {
        name: "column_segment",
        run: column_segment,
        seeds,
    },
    Target {
        name: "column_scan",
        run: column_scan,
        seeds: scan_seeds,
    },
];

/// Codes of a scan, of each of its parts, are the last bytes of its input.
const SCANNED_BYTES: usize = 256;
/// Parts of a scan that are tried.
const PARTS_MAX: usize = 8;
/// Where a task says how many parts it has.
const PARTS_AT: usize = 5;

/// A scan's task and codes, and the same bytes as an answer: engine and processor find the same, and who
/// looks at an answer takes that one alone.
pub fn column_scan(data: &[u8]) {
    let (payload, codes) = data.split_at(data.len().saturating_sub(SCANNED_BYTES));
    let [payload, codes, whole] = [payload, codes, data].map(Bytes::copy_from_slice);
    let parts = u32_at(&payload, PARTS_AT).unwrap_or(0).min(PARTS_MAX);
    let Ok(task) = Scan::decode(&payload, &vec![codes; parts]) else {
        return;
    };
    assert_eq!(Scan::encode(&task), payload);
    let looked = Scan::look(&task, whole);
    match (
        Scan::golden(&task),
        simulate(ScanEngineParams::default(), &[&task]),
    ) {
        (Ok(golden), Ok(simulated)) => {
            assert!(
                simulated
                    .iter()
                    .all(|(found, count, _)| { (found, count) == (&golden.found, &golden.count) })
            );
            let answer = Scan::output_to_bytes(&golden);
            assert_eq!(Scan::look(&task, answer), Some(golden));
        }
        (Err(_), Err(ScanStop::Invalid)) => assert_eq!(looked, None),
        (Ok(_), Err(ScanStop::BeyondLimits)) => {}
        (golden, simulated) => assert_eq!(golden.is_ok(), simulated.is_ok(), "one of them refuses it"),
    }
}

/// Scans of every form and width.
fn scan_seeds() -> Vec<Vec<u8>> {
    let codes: Vec<u8> = (0..SCANNED_BYTES as u64)
        .map(|at| weft_ops::mix64(at) as u8)
        .collect();
    let seed = |width: u32| {
        let part = ScanPart {
            codes: ScannedCodes::Here(Bytes::copy_from_slice(&codes)),
            width,
            count: (SCANNED_BYTES as u32 * 8).checked_div(width).unwrap_or(99),
            predicate: match width % 2 {
                0 => ScanPredicate::Range(1, 100 << (width / 2)),
                _ => ScanPredicate::Set([0x5555, 0xf0f0_f0f0].into()),
            },
        };
        let task = ScanTask {
            parts: vec![part; width as usize % 3 + 1],
            matches: match width % 3 {
                0 => Matches::RowIds,
                _ => Matches::Bitmap,
            },
        };
        let mut bytes = Scan::encode(&task);
        bytes.extend_from_slice(&codes);
        bytes
    };
    [0, 1, 7, 8, 10, 17, 21, 32].map(seed).to_vec()
}

const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 192;
/// Rows that are decoded; a few bytes can claim many.
const ROWS_MAX: usize = 4096;
/// Rows that are looked up, each of which may decompress a block.
const LOOKUPS_MAX: usize = 40;

/// A segment: values by position are those in sequence, and a predicate holds for the rows whose values
/// compare so.
pub fn column_segment(data: &[u8]) {
    read(data);
    let mut fitting = data.to_vec();
    fit(&mut fitting);
    read(&fitting);
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// Makes magic, version, length and checksums fit.
fn fit(bytes: &mut [u8]) {
    put(bytes, 0, b"WEFTSEG1\x01\0\0\0");
    let columns = u32_at(bytes, 20).unwrap_or(0).min(bytes.len() / ENTRY_BYTES);
    let directory_end = HEADER_BYTES + columns * ENTRY_BYTES;
    for at in (HEADER_BYTES..directory_end).step_by(ENTRY_BYTES) {
        let (from, length) = (u32_at(bytes, at + 8), u32_at(bytes, at + 12));
        let column = from
            .zip(length)
            .and_then(|(from, length)| bytes.get(from..from + length));
        let crc = column.map_or(0, crc32c);
        put(bytes, at + 16, &crc.to_le_bytes());
    }
    let length = bytes.len() as u64;
    put(bytes, 24, &length.to_le_bytes());
    let crc = bytes.get(HEADER_BYTES..directory_end).map_or(0, crc32c);
    put(bytes, 32, &crc.to_le_bytes());
    let crc = bytes.get(..60).map_or(0, crc32c);
    put(bytes, 60, &crc.to_le_bytes());
}

fn read(bytes: &[u8]) {
    let Ok(segment) = Segment::open(bytes) else { return };
    for number in 0..segment.column_count().min(40) {
        assert!(segment.min_max(number).is_ok(), "a column is missing");
        if let Ok(column) = segment.column(number) {
            look_up(&column);
        }
    }
}

fn look_up(column: &Column<'_>) {
    let rows = column.rows();
    let first = column.decode(0..rows.min(ROWS_MAX));
    let last = column.decode(rows - rows.min(ROWS_MAX)..rows);
    for row in (0..rows).step_by(1 + rows / LOOKUPS_MAX) {
        let found = column.get(row);
        let decoded = match (&first, &last) {
            (Ok(first), _) if row < first.rows => Some(first.get(row)),
            (_, Ok(last)) if row >= rows - last.rows => Some(last.get(row - (rows - last.rows))),
            _ => None,
        };
        if let Some(decoded) = decoded {
            assert!(
                found.is_ok_and(|found| is_same(&found, &decoded)),
                "row {row} has two values"
            );
        }
    }
    assert_eq!(column.get(rows), Err(SegmentError::NoRow(rows)));
    if let Ok(decoded) = &first {
        let values =
            [decoded.get(0), decoded.get(decoded.rows / 2)].map(|value| value.unwrap_or(Value::I64(0)));
        let [low, high] = values.clone();
        let range = ValuePredicate::Range(Bound::Included(low), Bound::Excluded(high));
        for predicate in [range, ValuePredicate::In(&values)] {
            compare(column, &predicate, decoded);
        }
    }
}

/// A row is found if and only if its value is.
fn compare(column: &Column<'_>, predicate: &ValuePredicate<'_>, decoded: &Decoded) {
    let Ok(prepared) = predicate.prepare(column.kind()) else {
        return;
    };
    let mut found = Vec::new();
    if column.matching(Form::best(), &prepared, &mut found).is_err() {
        return;
    }
    assert_eq!(found.len(), column.rows().div_ceil(64));
    for row in 0..decoded.rows {
        let bit = found
            .get(row / 64)
            .is_some_and(|word| word >> (row % 64) & 1 == 1);
        let holds = decoded.get(row).is_some_and(|value| prepared.holds(&value));
        assert_eq!(bit, holds, "row {row}, {:?}", column.encoding());
    }
}

fn is_same(a: &Option<Value<'_>>, b: &Option<Value<'_>>) -> bool {
    match (a, b) {
        (Some(Value::F32(a)), Some(Value::F32(b))) => a.to_bits() == b.to_bits(),
        (Some(Value::F64(a)), Some(Value::F64(b))) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

/// Segments of a few columns, every encoding among them.
fn seeds() -> Vec<Vec<u8>> {
    let mix = weft_ops::mix64;
    let columns: [(Kind, &dyn Fn(u64) -> Value<'static>); 12] = [
        (Kind::Bool, &|row| Value::Bool(mix(row) & 1 == 1)),
        (Kind::I16, &|row| Value::I16(300 + (mix(row) & 63) as i16)),
        (Kind::I32, &|row| Value::I32(row as i32 * 5000)),
        (Kind::I64, &|row| Value::I64(mix(row) as i64)),
        (Kind::I64, &|row| Value::I64(mix(row / 40) as i64)),
        (Kind::U32, &|row| Value::U32(mix(mix(row) & 3) as u32)),
        (Kind::F32, &|row| Value::F32(1.0 / (mix(row) & 3) as f32)),
        (Kind::F64, &|row| Value::F64(f64::from_bits(mix(row)))),
        (Kind::Bytes16, &|row| {
            Value::Bytes16(u128::from(mix(mix(row) & 3)).to_be_bytes())
        }),
        (Kind::Bytes, &|row| text(&format!("{}", mix(row) & 7))),
        (Kind::Bytes, &|row| text(&format!("{:x}", mix(row) >> (row % 64)))),
        (Kind::Bytes, &|row| {
            text(&format!("{row:03} {}", "and so on".repeat(10)))
        }),
    ];
    let seed = |rows: u64, columns: &[(Kind, &dyn Fn(u64) -> Value<'static>)]| {
        let kinds: Vec<Kind> = columns.iter().map(|(kind, _)| *kind).collect();
        let mut builder = SegmentBuilder::new(1, &kinds).ok()?;
        for row in 0..rows {
            for (number, (_, value)) in columns.iter().enumerate() {
                let is_null = number % 3 == 1 && mix(row).is_multiple_of(4);
                builder
                    .push(number, Some(&value(row)).filter(|_| !is_null))
                    .ok()?;
            }
        }
        builder.finish().ok()
    };
    let groups = columns.chunks(2).map(|columns| seed(140, columns));
    groups
        .chain([seed(0, &columns), seed(9, &columns)])
        .flatten()
        .collect()
}

fn text(text: &str) -> Value<'static> {
    Value::Bytes(text.as_bytes().to_vec().into())
}

#[cfg(test)]
mod tests {
    use weft_base::fuzzing::run_changed_seeds;

    use super::TARGETS;

    #[test]
    fn changed_seeds_are_read_or_refused() {
        run_changed_seeds(&TARGETS, 1_000);
    }
}
