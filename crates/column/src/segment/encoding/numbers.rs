//! A column of numbers: which encoding is the smallest, and reading any of them.

use super::array::{Array, ArrayBytes, min_max, part_bytes, width_of};
use super::delta::{Delta, DeltaPlan};
use super::dictionary::{self, Dictionary};
use super::run_length::{self, RunLength};
use super::{Encoded, smallest};
use crate::segment::format::{Encoding, Entry, RAW_WIDTH};

/// Numbers as they are read, in whichever encoding.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numbers<'a> {
    /// [`Encoding::Raw`] and [`Encoding::Frame`].
    Plain(Array<'a>),
    Dictionary(Dictionary<'a>),
    Delta(Delta<'a>),
    RunLength(RunLength<'a>),
}

/// The numbers in the encoding that takes the fewest bytes; but what a scan cannot read as codes has to be
/// worth it.
pub(crate) fn encode(numbers: &[i64]) -> Encoded {
    let (min, max) = min_max(numbers);
    let (rows, width) = (numbers.len(), width_of(min, max));
    let entries = match width {
        0 | 1 => Vec::new(),
        _ => dictionary::distinct(numbers),
    };
    let frame = part_bytes(rows, width);
    let scanned = [
        (Encoding::Frame, (width != RAW_WIDTH).then_some(frame)),
        (
            Encoding::Dictionary,
            (!entries.is_empty()).then(|| dictionary::bytes(rows, entries.len(), width)),
        ),
    ];
    let delta = DeltaPlan::new(numbers);
    let walked = [
        (Encoding::RunLength, Some(run_length::bytes(numbers, width))),
        (Encoding::Delta, delta.map(|plan| plan.bytes(rows, width))),
        (Encoding::Raw, (width == RAW_WIDTH).then_some(frame)),
    ];
    match (smallest(&scanned, &walked), delta) {
        (Encoding::Dictionary, _) => {
            Encoded::new(Encoding::Dictionary, dictionary::encode(numbers, &entries))
        }
        (Encoding::RunLength, _) => Encoded::new(Encoding::RunLength, run_length::encode(numbers)),
        (Encoding::Delta, Some(plan)) => Encoded::new(Encoding::Delta, plan.encode(numbers)),
        (encoding, _) => Encoded::new(encoding, [ArrayBytes::in_frame(numbers, min, width)]),
    }
}

impl<'a> Numbers<'a> {
    /// The numbers of a column that the directory describes.
    pub(crate) fn new(column: &'a [u8], entry: &Entry) -> Numbers<'a> {
        let [_, first, second, ..] = entry.parts.map(|part| Array::new(column, &part));
        match entry.encoding {
            Encoding::Dictionary => Numbers::Dictionary(Dictionary {
                codes: first,
                entries: second,
            }),
            Encoding::Delta => Numbers::Delta(Delta {
                deltas: first,
                restarts: second,
            }),
            Encoding::RunLength => Numbers::RunLength(RunLength {
                ends: first,
                values: second,
            }),
            Encoding::Raw | Encoding::Frame | Encoding::Blocks => Numbers::Plain(first),
        }
    }

    /// One number. There must be such a row.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> i64 {
        match self {
            Numbers::Plain(array) => array.get(at),
            Numbers::Dictionary(dictionary) => dictionary.get(at),
            Numbers::Delta(delta) => delta.get(at),
            Numbers::RunLength(runs) => runs.get(at),
        }
    }

    /// The numbers from `first` on. There must be so many rows.
    pub(crate) fn fill(&self, first: usize, out: &mut [i64]) {
        match self {
            Numbers::Plain(array) => array.fill(first, out),
            Numbers::Dictionary(dictionary) => dictionary.fill(first, out),
            Numbers::Delta(delta) => delta.fill(first, out),
            Numbers::RunLength(runs) => runs.fill(first, out),
        }
    }

    /// Whether the column is one of so many rows, and every number one of this domain.
    pub(crate) fn check(&self, rows: usize, domain: (i64, i64)) -> Result<(), &'static str> {
        match self {
            Numbers::Plain(_) | Numbers::Delta(_) => {}
            Numbers::Dictionary(dictionary) => dictionary.check()?,
            Numbers::RunLength(runs) => runs.check(rows)?,
        }
        let is_inside = match self {
            Numbers::Plain(array) => is_inside(array, domain),
            Numbers::Dictionary(dictionary) => is_inside(&dictionary.entries, domain),
            Numbers::RunLength(runs) => is_inside(&runs.values, domain),
            Numbers::Delta(_) if domain == (i64::MIN, i64::MAX) => true,
            Numbers::Delta(delta) => {
                let mut numbers = vec![0; delta.count()];
                delta.fill(0, &mut numbers);
                let (min, max) = min_max(&numbers);
                domain.0 <= min && max <= domain.1
            }
        };
        match is_inside {
            true => Ok(()),
            false => Err("a number is none of the column's kind"),
        }
    }
}

fn is_inside(array: &Array<'_>, domain: (i64, i64)) -> bool {
    if array.width() == RAW_WIDTH {
        return domain == (i64::MIN, i64::MAX)
            || (0..array.count()).all(|at| {
                let number = array.get(at);
                domain.0 <= number && number <= domain.1
            });
    }
    array.count() == 0 || (domain.0 <= array.base() && array.base() <= domain.1 && array.is_at_most(domain.1))
}
