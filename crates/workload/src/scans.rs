//! Scans of bit-packed codes by themselves: what one or several threads make of a column in memory.
//!
//! Source: DBA 2.2 (a scan reads a column's codes and returns what satisfies a range or a list), 4.1 (random
//! codes, separate from the database), table 2 (one scan with and without SIMD).

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_column::packed::{Codes, Form, NotPacked, row_ids};
use weft_column::units::{Matches, ScanPart, ScanPredicate, ScanTask, ScannedCodes};
use weft_offload::Buffer;
use weft_ops::mix64;
use weft_ops::packed::{code_max, packed_len};

use crate::driver::RunError;
use crate::embedded::beside::{Background, Step};

/// Codes that are scanned together: their bitmap stays in the cache.
const BLOCK: usize = 1 << 16;
/// Values in the list of a list search.
const LISTED: u64 = 64;

/// What a scan looks for, and what it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanKind {
    /// A tenth of all values, as a bitmap.
    RangeToBitmap,
    /// A tenth of all values, as row numbers.
    RangeToRows,
    /// 64 values, as a bitmap.
    ListToBitmap,
}

impl ScanKind {
    /// All of them.
    pub const ALL: [ScanKind; 3] = [
        ScanKind::RangeToBitmap,
        ScanKind::RangeToRows,
        ScanKind::ListToBitmap,
    ];

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            ScanKind::RangeToBitmap => "range to bitmap",
            ScanKind::RangeToRows => "range to row ids",
            ScanKind::ListToBitmap => "list of 64 to bitmap",
        }
    }
}

/// A column of random codes.
pub struct PackedColumn {
    packed: Vec<u8>,
    width: u32,
    count: usize,
    /// A bit for each code of the list.
    list: Arc<[u64]>,
}

/// Where a scan puts what it finds; kept between scans.
#[derive(Default)]
pub struct Found {
    bitmap: Vec<u64>,
    block: Vec<u64>,
    rows: Vec<u32>,
}

impl Found {
    /// Rows that satisfied the last scan.
    pub fn count(&self) -> u64 {
        let bits: u64 = self.bitmap.iter().map(|word| u64::from(word.count_ones())).sum();
        bits + self.rows.len() as u64
    }
}

impl PackedColumn {
    /// So many codes of this width, at most 24 bits: the list is a set with a bit for each code.
    pub fn random(width: u32, count: usize) -> Result<PackedColumn, RunError> {
        if !(1..=24).contains(&width) || count == 0 {
            return Err(RunError(
                "codes have 1 to 24 bits, and there is one at least".to_owned(),
            ));
        }
        let words = (count * width as usize).div_ceil(64) as u64;
        let mut list = vec![0_u64; (code_max(width) as usize + 1).div_ceil(64)];
        for nth in 0..LISTED {
            let code = (mix64(nth) as u32 & code_max(width)) as usize;
            if let Some(word) = list.get_mut(code / 64) {
                *word |= 1 << (code % 64);
            }
        }
        Ok(PackedColumn {
            packed: (0..words).flat_map(|at| mix64(at).to_le_bytes()).collect(),
            width,
            count,
            list: list.into(),
        })
    }

    /// Bytes of the codes.
    pub fn bytes(&self) -> usize {
        self.packed.len()
    }

    /// What a scan of this kind looks for.
    fn predicate(&self, kind: ScanKind) -> ScanPredicate {
        let most = code_max(self.width);
        match kind {
            ScanKind::RangeToBitmap | ScanKind::RangeToRows => {
                ScanPredicate::Range(most / 2, most / 2 + most / 10)
            }
            ScanKind::ListToBitmap => ScanPredicate::Set(self.list.clone()),
        }
    }

    /// The scan of the first `values` codes as a task for units.
    pub fn task(&self, kind: ScanKind, values: usize) -> ScanTask {
        let count = values.min(self.count).min(u32::MAX as usize);
        let bytes = self
            .packed
            .get(..packed_len(count, self.width))
            .unwrap_or_default();
        let part = ScanPart {
            codes: ScannedCodes::Registered(Buffer::new(bytes.to_vec())),
            width: self.width,
            count: count as u32,
            predicate: self.predicate(kind),
        };
        ScanTask {
            parts: vec![part],
            matches: match kind {
                ScanKind::RangeToRows => Matches::RowIds,
                ScanKind::RangeToBitmap | ScanKind::ListToBitmap => Matches::Bitmap,
            },
        }
    }

    /// The part of one of so many threads, in blocks.
    fn part(&self, thread: usize, threads: usize) -> Range<usize> {
        let blocks = self.count.div_ceil(BLOCK);
        blocks * thread / threads..blocks * (thread + 1) / threads
    }

    /// Scans blocks.
    fn scan(
        &self,
        form: Form,
        kind: ScanKind,
        blocks: Range<usize>,
        found: &mut Found,
    ) -> Result<(), NotPacked> {
        let predicate = self.predicate(kind);
        let predicate = predicate.as_codes();
        found.bitmap.clear();
        found.rows.clear();
        for block in blocks {
            let first = block * BLOCK;
            let count = BLOCK.min(self.count - first);
            let rest = self
                .packed
                .get(first / 8 * self.width as usize..)
                .unwrap_or_default();
            Codes::new(rest, self.width, count)?.matching(form, predicate, &mut found.block);
            match kind {
                ScanKind::RangeToRows => row_ids(form, &found.block, first as u32, &mut found.rows),
                _ => found.bitmap.extend_from_slice(&found.block),
            }
        }
        Ok(())
    }

    /// The time that so many threads, each with a part of the column, take for one scan; `found` has a place
    /// for each of them.
    pub fn scan_by(&self, form: Form, kind: ScanKind, found: &mut [Found]) -> Result<Duration, RunError> {
        let threads = found.len();
        let began = Instant::now();
        let done = std::thread::scope(|scope| {
            let run = |(thread, found)| {
                scope.spawn(move || self.scan(form, kind, self.part(thread, threads), found))
            };
            let all: Vec<_> = found.iter_mut().enumerate().map(run).collect();
            all.into_iter().all(|thread| matches!(thread.join(), Ok(Ok(()))))
        });
        let elapsed = began.elapsed();
        match done {
            true => Ok(elapsed),
            false => Err(RunError("a scan failed".to_owned())),
        }
    }
}

/// Threads that scan a column of their own, beside whatever is measured.
pub struct Scanners {
    /// The column that each of them scans as a whole.
    pub column: Arc<PackedColumn>,
    /// With which instructions.
    pub form: Form,
    /// Whether they give way to ordinary threads.
    pub gives_way: bool,
}

impl Background for Scanners {
    fn begin(&self, number: usize) -> Result<Step, RunError> {
        let (column, form) = (Arc::clone(&self.column), self.form);
        if self.gives_way {
            // Where the system refuses it, they are ordinary threads.
            let _ = weft_base::ThreadNumber::current().give_way();
        }
        let mut found = Found::default();
        // They begin at different places, as independent queries do.
        let blocks = column.count.div_ceil(BLOCK);
        let start = blocks * (number % 7) / 7;
        Ok(Box::new(move || {
            for range in [start..blocks, 0..start] {
                let scanned = column.scan(form, ScanKind::RangeToRows, range, &mut found);
                scanned.map_err(|_| RunError("a scan failed".to_owned()))?;
            }
            Ok(())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_and_threads_find_the_same() {
        let column = PackedColumn::random(10, 3 * BLOCK + 100).unwrap();
        for kind in ScanKind::ALL {
            let mut counts = Vec::new();
            for form in Form::here() {
                for threads in [1, 2, 5] {
                    let mut found: Vec<Found> = (0..threads).map(|_| Found::default()).collect();
                    column.scan_by(form, kind, &mut found).unwrap();
                    counts.push(found.iter().map(Found::count).sum::<u64>());
                }
            }
            counts.dedup();
            assert_eq!(counts.len(), 1, "{kind:?} {counts:?}");
            assert!(counts[0] > 1000, "{kind:?} {counts:?}");
        }
        assert!(PackedColumn::random(25, 10).is_err() && PackedColumn::random(0, 10).is_err());
    }
}
