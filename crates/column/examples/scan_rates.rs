//! How fast codes are scanned, beside how fast this core reads memory: `scan_rates [MILLION_CODES] [ROUNDS]`.
//!
//! Prints, for several widths and every form of this processor, nanoseconds a code and gigabytes of codes a
//! second, medians of rounds in turns, for a range of a tenth of the codes and a set of 64; and the share of
//! what a loop that only adds the same bytes reaches.

use std::hint::black_box;
use std::time::Instant;
use weft_column::packed::{Codes, Form, Predicate};

const WIDTHS: [u32; 6] = [4, 8, 10, 14, 17, 21];

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse::<usize>().ok());
    let count = arguments.next().unwrap_or(64) * 1_000_000;
    let rounds = arguments.next().unwrap_or(7);
    println!("{count} codes, {rounds} rounds, one thread");
    println!("width form     predicate   ns/code   GB/s   of reading");
    for width in WIDTHS {
        let words = (count * width as usize).div_ceil(64);
        let packed: Vec<u8> = (0..words as u64)
            .flat_map(|at| weft_ops::mix64(at).to_le_bytes())
            .collect();
        let Ok(codes) = Codes::new(&packed, width, count) else {
            return;
        };
        let most = weft_ops::packed::code_max(width);
        let mut set = vec![0_u64; (most as usize + 1).div_ceil(64)];
        for nth in 0..64 {
            let code = (weft_ops::mix64(nth) as u32 & most) as usize;
            if let Some(word) = set.get_mut(code / 64) {
                *word |= 1 << (code % 64);
            }
        }
        let predicates = [
            ("range 10 %", Predicate::Range(most / 2, most / 2 + most / 10)),
            ("set of 64", Predicate::Set(&set)),
        ];
        let mut reading = Vec::new();
        let forms = Form::here();
        let mut scans = vec![Vec::new(); forms.len() * predicates.len()];
        let mut out = Vec::new();
        for _ in 0..rounds {
            reading.push(seconds(|| {
                black_box(sum(&packed));
            }));
            let contenders = forms
                .iter()
                .flat_map(|form| predicates.map(|(_, predicate)| (*form, predicate)));
            for ((form, predicate), times) in contenders.zip(&mut scans) {
                times.push(seconds(|| codes.matching(form, predicate, black_box(&mut out))));
            }
        }
        let (limit, bytes) = (median(&mut reading), packed.len() as f64);
        let names = forms
            .iter()
            .flat_map(|form| predicates.map(|(name, _)| (form.name(), name)));
        for ((form, predicate), times) in names.zip(&mut scans) {
            let time = median(times);
            println!(
                "{width:5} {form:8} {predicate:10} {:8.3} {:6.2} {:8.2}",
                time * 1e9 / count as f64,
                bytes / time / 1e9,
                limit / time
            );
        }
    }
}

/// The same bytes, read and added.
fn sum(packed: &[u8]) -> u64 {
    let (words, _) = packed.as_chunks::<8>();
    words
        .iter()
        .fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

fn seconds(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64()
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
