//! From a bitmap to row numbers: the positions of its bits, in order.

use super::Form;
#[cfg(target_arch = "x86_64")]
use super::Instructions;

/// Appends the positions of the bits that are set, counted from `first`; they must not exceed `u32::MAX`, and
/// those that would are left out of what they stand for (they wrap).
pub fn row_ids(form: Form, words: &[u64], first: u32, out: &mut Vec<u32>) {
    let count: usize = words.iter().map(|word| word.count_ones() as usize).sum();
    match form.0 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there is such a form only where the processor has it.
        Instructions::Avx512 => unsafe { super::avx512::row_ids(words, first, count, out) },
        _ => portable(words, first, count, out),
    }
}

fn portable(words: &[u64], first: u32, count: usize, out: &mut Vec<u32>) {
    out.reserve(count);
    for (at, word) in words.iter().enumerate() {
        let (base, mut rest) = (first.wrapping_add(64 * at as u32), *word);
        while rest != 0 {
            out.push(base.wrapping_add(rest.trailing_zeros()));
            rest &= rest - 1;
        }
    }
}
