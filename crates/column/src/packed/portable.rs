//! The scans for any processor: a code at a time, from an unaligned word of eight bytes.

use super::{Codes, WINDOW};
use weft_ops::packed::{Totals, code_max};

/// As [`Codes::matching`], for a range.
pub(super) fn in_range(codes: Codes<'_>, low: u32, high: u32, out: &mut [u64]) {
    each_code(codes, out, |code| code.wrapping_sub(low) <= high - low);
}

/// As [`Codes::matching`], for a set.
pub(super) fn in_set(codes: Codes<'_>, set: &[u64], out: &mut [u64]) {
    each_code(codes, out, |code| {
        set.get(code as usize / 64)
            .is_some_and(|word| word >> (code % 64) & 1 == 1)
    });
}

/// As [`Codes::unpack`].
pub(super) fn unpack(codes: Codes<'_>, out: &mut [[u32; 64]]) {
    let (width, mask) = (codes.width as usize, code_max(codes.width));
    codes.fill_each(out, |window, out| {
        for (at, out) in out.iter_mut().enumerate() {
            *out = (eight_bytes(window, at * width / 8) >> (at * width % 8)) as u32 & mask;
        }
    });
}

/// As [`Codes::totals`].
pub(super) fn totals(codes: Codes<'_>, selection: &[u64]) -> Totals {
    let (width, mask) = (codes.width as usize, code_max(codes.width));
    let mut totals = Totals::NONE;
    codes.each_selected(selection, |window, bits| {
        let mut left = bits;
        while left != 0 {
            let bit = left.trailing_zeros() as usize * width;
            totals.add((eight_bytes(window, bit / 8) >> (bit % 8)) as u32 & mask);
            left &= left - 1;
        }
    });
    totals
}

#[inline(always)]
fn each_code(codes: Codes<'_>, out: &mut [u64], has: impl Fn(u32) -> bool) {
    let (width, mask) = (codes.width as usize, code_max(codes.width));
    codes.each_window(out, |window| {
        (0..64).fold(0, |word, at| {
            let code = (eight_bytes(window, at * width / 8) >> (at * width % 8)) as u32 & mask;
            word | u64::from(has(code)) << at
        })
    });
}

/// Eight bytes from `at` on.
#[inline(always)]
fn eight_bytes(window: &[u8; WINDOW], at: usize) -> u64 {
    window
        .get(at..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
