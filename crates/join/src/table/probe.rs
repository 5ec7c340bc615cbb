//! Probing a filled table, in the form that the processor has.

use std::sync::atomic::Ordering;

use super::lookup::{Lookup, Portable};
use super::{AHEAD, REACH, Table};
use crate::error::JoinError;
use crate::form::{Form, Input};
use crate::output::Output;
use crate::processor::Processor;
use crate::tuple::Consumer;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::lookup::{Avx2, Avx512};

impl<F: Form> Table<'_, F> {
    /// Looks for the partners of every input, and tells what is asked for.
    pub(crate) fn probe_all<I: Input<F>, C: Consumer>(
        &self,
        processor: Processor,
        inputs: &[I],
        out: &mut Output<'_, C>,
    ) -> Result<(), JoinError> {
        match processor {
            Processor::Portable => self.probe_with::<Portable, I, C>(inputs, out),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: there is such a value only where the processor has the instructions.
            Processor::Avx2 => unsafe { self.probe_avx2(inputs, out) },
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: as above.
            Processor::Avx512 => unsafe { self.probe_avx512(inputs, out) },
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn probe_avx2<I: Input<F>, C: Consumer>(
        &self,
        inputs: &[I],
        out: &mut Output<'_, C>,
    ) -> Result<(), JoinError> {
        self.probe_with::<Avx2, I, C>(inputs, out)
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn probe_avx512<I: Input<F>, C: Consumer>(
        &self,
        inputs: &[I],
        out: &mut Output<'_, C>,
    ) -> Result<(), JoinError> {
        self.probe_with::<Avx512, I, C>(inputs, out)
    }

    #[inline(always)]
    fn probe_with<L: Lookup, I: Input<F>, C: Consumer>(
        &self,
        inputs: &[I],
        out: &mut Output<'_, C>,
    ) -> Result<(), JoinError> {
        // The common case has no branches but those on what is found.
        match out.emit().is_inner() {
            true => self.probe_each::<L, I, C, true>(inputs, out),
            false => self.probe_each::<L, I, C, false>(inputs, out),
        }
    }

    #[inline(always)]
    fn probe_each<L: Lookup, I: Input<F>, C: Consumer, const INNER: bool>(
        &self,
        inputs: &[I],
        out: &mut Output<'_, C>,
    ) -> Result<(), JoinError> {
        let slots = &self.slots;
        let mask = slots.form.key_mask();
        let is_full = (1_u32 << F::LANES) - 1;
        let has_pairs = INNER || out.emit().pairs;
        for input in inputs.iter().take(AHEAD) {
            slots.prefetch(input.key(&slots.form).0);
        }
        for (at, input) in inputs.iter().enumerate() {
            if let Some(later) = inputs.get(at + AHEAD) {
                slots.prefetch(later.key(&slots.form).0);
            }
            let (key, is_inside) = input.key(&slots.form);
            let probe_row = input.row(&slots.form);
            let mut is_matched = false;
            let mut lines_left = if is_inside { REACH } else { usize::MAX };
            let first = slots.line_of(key);
            for (number, line) in slots.lines.iter().enumerate().skip(first) {
                if !is_inside {
                    break;
                }
                // SAFETY: the caller has a processor of this kind; a table is only read.
                let lanes = unsafe { L::lanes::<F>(line, key, mask) };
                let mut equal = lanes.equal;
                if !INNER && equal != 0 {
                    is_matched = true;
                    self.mark(number, equal);
                }
                while has_pairs && equal != 0 {
                    out.pair(self.row(line, equal.trailing_zeros() as usize), probe_row)?;
                    equal &= equal - 1;
                }
                if lanes.used != is_full {
                    break;
                }
                lines_left -= 1;
                if lines_left == 0 {
                    break;
                }
            }
            let is_lost = lines_left == 0 || (F::HAS_ZERO_KEY && key == 0);
            if is_lost && is_inside && !self.overflow.is_empty() {
                is_matched |= self.probe_overflow(key, probe_row, out)?;
            }
            if !INNER {
                out.probe(probe_row, is_matched)?;
            }
        }
        Ok(())
    }

    /// Lanes of a line have a partner.
    #[inline(always)]
    fn mark(&self, line: usize, lanes: u32) {
        if let Some(marks) = self.marks.get(line) {
            // Most are marked already when keys repeat; a line that is only read stays shared.
            if u32::from(marks.load(Ordering::Relaxed)) & lanes != lanes {
                marks.fetch_or(lanes as u8, Ordering::Relaxed);
            }
        }
    }

    #[inline(never)]
    fn probe_overflow<C: Consumer>(
        &self,
        key: u64,
        probe_row: u64,
        out: &mut Output<'_, C>,
    ) -> Result<bool, JoinError> {
        let (first, items) = self.overflowed(key);
        if items.is_empty() {
            return Ok(false);
        }
        if let Some(mark) = self.overflow_marks.get(first) {
            mark.store(1, Ordering::Relaxed);
        }
        if out.emit().pairs {
            for item in items {
                out.pair(self.slots.form.row(*item), probe_row)?;
            }
        }
        Ok(true)
    }
}
