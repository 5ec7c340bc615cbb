//! What aggregates on codes cost, beside a scan that compares them and beside decoding, in the same run:
//! `aggregate_rates [SEGMENTS] [ROUNDS]`.
//!
//! Prints nanoseconds a value of one thread, medians of all rounds. Columns of 10, 17 and 21 random bits:
//! count, sum, minimum and maximum of all rows and of a tenth of them, in each form of the scans; the range
//! scan of the fastest form; decoding, and adding what was decoded; the time in which memory that no cache
//! holds is read, for as many bits. Then a column by the groups of one or two others, a value of it.

use std::hint::black_box;
use std::time::Instant;

use weft_column::packed::{Codes, Form, Predicate};
use weft_column::segment::{Groups, Kind, Segment, SegmentBuilder, SegmentError, Value, Values, Wanted};

const ROWS: usize = 1 << 12;
/// Memory that is read to know its bandwidth: several times what caches hold.
const MEMORY_BYTES: usize = 512 << 20;

fn main() -> Result<(), SegmentError> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().ok());
    let segments = arguments.next().flatten().unwrap_or(256).max(1);
    let rounds = arguments.next().flatten().unwrap_or(15);
    let memory = vec![1_u64; MEMORY_BYTES / 8];
    let read = median(rounds.min(5), || read_ns_a_byte(&memory));
    drop(memory);
    println!("reading memory: {:.2} GB/s", 1.0 / read);
    println!("bits  form      all rows  a tenth  range scan  decoded, added  read");
    for width in [10, 17, 21] {
        let columns: Vec<Segment<Vec<u8>>> = (0..segments)
            .map(|nth| random(width, nth))
            .collect::<Result<_, _>>()?;
        for form in Form::here() {
            let every = vec![u64::MAX; ROWS / 64];
            let tenth: Vec<u64> = (0..ROWS as u64 / 64).map(few).collect();
            let [all, some] = [&every, &tenth].map(|selection| {
                median(rounds, || {
                    each(&columns, |codes, _| {
                        black_box(codes.totals(form, black_box(selection)));
                    })
                })
            });
            let mut found = Vec::new();
            let range = median(rounds, || {
                each(&columns, |codes, _| {
                    codes.matching(form, Predicate::Range(7, 1 << (width - 2)), &mut found);
                    black_box(&found);
                })
            });
            let decoded = median(rounds, || each(&columns, |_, segment| decode_and_add(segment)));
            println!(
                "{width:>4}  {:<8} {all:>9.3} {some:>8.3} {range:>11.3} {decoded:>15.3} {:>5.3}",
                form.name(),
                read * f64::from(width) / 8.0
            );
        }
    }
    println!("by groups of 4, 6 (two columns), 20, 200: one column of 17 bits, a value");
    let values: Vec<Segment<Vec<u8>>> = (0..segments)
        .map(|nth| random(17, nth))
        .collect::<Result<_, _>>()?;
    for keys in [&[4][..], &[3, 2], &[20], &[200]] {
        let by: Vec<Vec<Segment<Vec<u8>>>> = keys
            .iter()
            .map(|count| (0..segments).map(|nth| few_values(*count, nth)).collect())
            .collect::<Result<_, _>>()?;
        let times = Form::here().into_iter().map(|form| {
            let ns = median(rounds, || grouped(form, &by, &values));
            format!("{} {ns:.3}", form.name())
        });
        println!("{keys:?}: {}", times.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

fn column(value: impl Fn(u64) -> i64, first: usize) -> Result<Segment<Vec<u8>>, SegmentError> {
    let mut builder = SegmentBuilder::new(0, &[Kind::I64])?;
    for row in 0..ROWS {
        builder.push(0, Some(&Value::I64(value((first * ROWS + row) as u64))))?;
    }
    Segment::open(builder.finish()?)
}

fn random(width: u32, nth: usize) -> Result<Segment<Vec<u8>>, SegmentError> {
    column(|row| (weft_ops::mix64(row) >> (64 - width)) as i64, nth)
}

fn few_values(count: u64, nth: usize) -> Result<Segment<Vec<u8>>, SegmentError> {
    column(
        |row| (weft_ops::mix64(row ^ (count << 40)) % count) as i64 * 1_000_003,
        nth,
    )
}

fn few(word: u64) -> u64 {
    let random = |nth: u64| weft_ops::mix64(word * 8 + nth);
    random(0) & random(1) & random(2) | random(3) & random(4) & random(5) & random(6) & random(7)
}

/// Nanoseconds a value.
fn each(columns: &[Segment<Vec<u8>>], mut work: impl FnMut(Codes<'_>, &Segment<Vec<u8>>)) -> f64 {
    let begin = Instant::now();
    for segment in columns {
        if let Some(codes) = segment.column(0).ok().and_then(|column| column.codes()) {
            work(codes, segment);
        }
    }
    begin.elapsed().as_secs_f64() * 1e9 / (columns.len() * ROWS) as f64
}

fn decode_and_add(segment: &Segment<Vec<u8>>) {
    let decoded = segment.column(0).and_then(|column| column.decode(0..ROWS));
    if let Ok(Values::I64(values)) = decoded.map(|decoded| decoded.values) {
        black_box(values.iter().map(|value| i128::from(*value)).sum::<i128>());
    }
}

fn grouped(form: Form, by: &[Vec<Segment<Vec<u8>>>], values: &[Segment<Vec<u8>>]) -> f64 {
    let every = vec![u64::MAX; ROWS / 64];
    let begin = Instant::now();
    for (nth, value) in values.iter().enumerate() {
        let keys = by.iter().filter_map(|segments| segments.get(nth)?.column(0).ok());
        let groups = Groups::new(form, ROWS, &every, &keys.collect::<Vec<_>>());
        if let (Some(groups), Ok(column)) = (groups, value.column(0)) {
            black_box(groups.aggregate(form, &column, Wanted::All));
        }
    }
    begin.elapsed().as_secs_f64() * 1e9 / (values.len() * ROWS) as f64
}

fn read_ns_a_byte(memory: &[u64]) -> f64 {
    let begin = Instant::now();
    black_box(memory.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
    begin.elapsed().as_secs_f64() * 1e9 / size_of_val(memory) as f64
}

fn median(rounds: usize, mut measure: impl FnMut() -> f64) -> f64 {
    let mut times: Vec<f64> = (0..rounds.max(1)).map(|_| measure()).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
