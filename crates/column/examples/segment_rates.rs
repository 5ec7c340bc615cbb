//! What segments cost, by encoding, beside a vector in the same run: `segment_rates [SEGMENTS] [ROUNDS]`.
//!
//! Prints for each kind of column bits a value, and nanoseconds a value, medians of all rounds, to build, to
//! check and open a column, to decode it, to look up positions at random, and to scan for a range of a tenth
//! of the values and a list of 64. The vector's are a copy, an indexed read, and a comparison each.

use std::hint::black_box;
use std::ops::Bound;
use std::time::Instant;

use weft_column::packed::Form;
use weft_column::segment::{Encoding, Kind, Segment, SegmentBuilder, SegmentError, Value, ValuePredicate};

const ROWS: usize = 1 << 16;
/// Positions that are looked up in a round.
const LOOKUPS: usize = 1 << 12;

/// A kind of column: how its n-th value is drawn.
struct Sample {
    name: &'static str,
    kind: Kind,
    value: fn(u64) -> Value<'static>,
}

const SAMPLES: [Sample; 10] = [
    Sample {
        name: "10 random bits",
        kind: Kind::I64,
        value: |row| Value::I64(5_000 + (mix(row) & 1023) as i64),
    },
    Sample {
        name: "21 random bits",
        kind: Kind::I64,
        value: |row| Value::I64((mix(row) & 0x1f_ffff) as i64),
    },
    Sample {
        name: "64 random bits",
        kind: Kind::I64,
        value: |row| Value::I64(mix(row) as i64),
    },
    Sample {
        name: "1,000 values of 64 bits",
        kind: Kind::I64,
        value: |row| Value::I64(mix(mix(row) % 1_000) as i64),
    },
    Sample {
        name: "steps below 16",
        kind: Kind::I64,
        value: |row| Value::I64((row * 8 + (mix(row) & 7)) as i64),
    },
    Sample {
        name: "runs of 100",
        kind: Kind::I64,
        value: |row| Value::I64(mix(row / 100) as i64),
    },
    Sample {
        name: "100 floats",
        kind: Kind::F64,
        value: |row| Value::F64((mix(row) % 100) as f64 / 7.0),
    },
    Sample {
        name: "random strings of 12",
        kind: Kind::Bytes,
        value: |row| Value::Bytes(format!("{:012x}", mix(row) >> 16).into_bytes().into()),
    },
    Sample {
        name: "100 strings",
        kind: Kind::Bytes,
        value: |row| Value::Bytes(format!("item {:03}", mix(row) % 100).into_bytes().into()),
    },
    Sample {
        name: "text of 60 to 90",
        kind: Kind::Bytes,
        value: text,
    },
];

/// Nanoseconds a value, one a round.
#[derive(Default)]
struct Times {
    build: Vec<f64>,
    open: Vec<f64>,
    decode: Vec<f64>,
    look_up: Vec<f64>,
    range: Vec<f64>,
    list: Vec<f64>,
}

fn mix(row: u64) -> u64 {
    weft_ops::mix64(row)
}

fn text(row: u64) -> Value<'static> {
    let words = [
        "slowly",
        "final",
        "deposits",
        "above",
        "quick",
        "requests",
        "carefully",
        "sleep",
    ];
    let mut text = String::new();
    for nth in 0.. {
        if text.len() >= 60 {
            break;
        }
        text.push_str(
            words
                .get((mix(row * 31 + nth) & 7) as usize)
                .copied()
                .unwrap_or_default(),
        );
        text.push(' ');
    }
    Value::Bytes(text.into_bytes().into())
}

fn main() -> Result<(), SegmentError> {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse::<usize>().ok());
    let segments = arguments.next().unwrap_or(4);
    let rounds = arguments.next().unwrap_or(5);
    println!("{segments} segments of {ROWS} rows, {rounds} rounds, one thread; bits and ns a value");
    println!("column                    encoding     bits   build    open  decode look up   range    list");
    for sample in &SAMPLES {
        measure(sample, segments, rounds)?;
    }
    vector(segments, rounds);
    Ok(())
}

fn measure(sample: &Sample, segments: usize, rounds: usize) -> Result<(), SegmentError> {
    let mut times = Times::default();
    let (mut bytes, mut encoding) = (0, Encoding::Raw);
    for nth in 0..segments {
        let first = (nth * ROWS) as u64;
        let values: Vec<Value> = (first..first + ROWS as u64).map(sample.value).collect();
        let mut sorted: Vec<&Value> = values.iter().collect();
        sorted.sort_by(|a, b| order(a, b));
        let bound = |at: usize| {
            sorted
                .get(at)
                .map_or(Bound::Unbounded, |value| Bound::Included((*value).clone()))
        };
        let range = ValuePredicate::Range(bound(ROWS / 2), bound(ROWS / 2 + ROWS / 10));
        let list: Vec<Value> = values.iter().step_by(ROWS / 64).cloned().collect();
        let list = ValuePredicate::In(&list);
        let (range, list) = (range.prepare(sample.kind)?, list.prepare(sample.kind)?);
        let (form, mut found) = (Form::best(), Vec::new());
        for _ in 0..rounds {
            let (stored, time) = timed(|| build(sample.kind, &values));
            let stored = stored?;
            times.build.push(time);
            let segment = Segment::open(stored.as_slice())?;
            times.open.push(timed(|| segment.column(0).is_ok()).1);
            let column = segment.column(0)?;
            times.decode.push(timed(|| column.decode(0..ROWS).is_ok()).1);
            let looked_up = timed(|| {
                let positions = (0..LOOKUPS as u64).map(|nth| mix(nth) as usize % ROWS);
                positions
                    .filter(|row| black_box(column.get(*row)).is_ok())
                    .count()
            });
            times.look_up.push(looked_up.1 * ROWS as f64 / LOOKUPS as f64);
            times
                .range
                .push(timed(|| column.matching(form, &range, black_box(&mut found)).is_ok()).1);
            times
                .list
                .push(timed(|| column.matching(form, &list, black_box(&mut found)).is_ok()).1);
            (_, encoding, _) = segment.describe(0)?;
            bytes = segment.describe(0)?.2;
        }
    }
    let bits = bytes as f64 * 8.0 / ROWS as f64;
    print(sample.name, &format!("{encoding:?}"), bits, &mut times);
    Ok(())
}

fn build(kind: Kind, values: &[Value<'_>]) -> Result<Vec<u8>, SegmentError> {
    let mut builder = SegmentBuilder::new(0, &[kind])?;
    for value in values {
        builder.push(0, Some(value))?;
    }
    builder.finish()
}

/// The same with a vector of 64-bit integers.
fn vector(segments: usize, rounds: usize) {
    let mut times = Times::default();
    for nth in 0..segments {
        let first = (nth * ROWS) as u64;
        let values: Vec<i64> = (first..first + ROWS as u64)
            .map(|row| (mix(row) & 0x1f_ffff) as i64)
            .collect();
        let list: Vec<i64> = {
            let mut list: Vec<i64> = values.iter().step_by(ROWS / 64).copied().collect();
            list.sort_unstable();
            list
        };
        for _ in 0..rounds {
            times.build.push(timed(|| values.to_vec()).1);
            times.decode.push(timed(|| values.clone()).1);
            let looked_up = timed(|| {
                let positions = (0..LOOKUPS as u64).map(|nth| mix(nth) as usize % ROWS);
                positions.filter_map(|row| black_box(values.get(row))).count()
            });
            times.look_up.push(looked_up.1 * ROWS as f64 / LOOKUPS as f64);
            let bitmap = |holds: &dyn Fn(&[i64]) -> u64| values.chunks(64).map(holds).collect::<Vec<u64>>();
            let word = |holds: fn(i64) -> bool, chunk: &[i64]| {
                chunk
                    .iter()
                    .rev()
                    .fold(0, |word, value| word << 1 | u64::from(holds(*value)))
            };
            times.range.push(
                timed(|| bitmap(&|chunk| word(|value| (0x10_0000..0x13_3333).contains(&value), chunk))).1,
            );
            let in_list = |chunk: &[i64]| {
                let bit = |value: &i64| u64::from(list.binary_search(value).is_ok());
                chunk.iter().rev().fold(0, |word, value| word << 1 | bit(value))
            };
            times.list.push(timed(|| bitmap(&in_list)).1);
        }
    }
    print("a vector of i64", "", 64.0, &mut times);
}

fn print(name: &str, encoding: &str, bits: f64, times: &mut Times) {
    let [build, open, decode, look_up, range, list] = [
        &mut times.build,
        &mut times.open,
        &mut times.decode,
        &mut times.look_up,
        &mut times.range,
        &mut times.list,
    ]
    .map(|times| median(times));
    println!(
        "{name:25} {encoding:10} {bits:6.2} {build:7.2} {open:7.3} {decode:7.3} {look_up:7.2} {range:7.3} {list:7.3}"
    );
}

/// What the work gives, and nanoseconds for each row of a segment.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let given = black_box(work());
    (given, began.elapsed().as_secs_f64() * 1e9 / ROWS as f64)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The order of values of one kind.
fn order(a: &Value<'_>, b: &Value<'_>) -> std::cmp::Ordering {
    match (a, b) {
        (Value::I64(a), Value::I64(b)) => a.cmp(b),
        (Value::F64(a), Value::F64(b)) => a.total_cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => std::cmp::Ordering::Equal,
    }
}
