//! A key of integers as bytes moved: what their cells hold, in another order, with marks between them.
//!
//! ```text
//!   row    ... | a0 a1 a2 a3 | b0 b1 b2 b3 | ...        integers, little endian
//!   pick       | -- a3 a2 a1 a0 -- b3 b2 b1 b0          bytes of the row, or none
//!   flip       | 01 80 00 00 00 01 80 00 00 00          XOR: marks, and signs the other way round
//!   key        | 01 A3 a2 a1 a0 01 B3 b2 b1 b0
//! ```
//!
//! One load, one shuffle, one XOR and one store make up to sixteen bytes of a key, whatever columns they are
//! of. Keys of other columns, or whose cells lie too far from each other for this to be worth it, are made
//! column by column.

use std::mem::MaybeUninit;

use crate::key::MARK_VALUE;

/// Bytes that are moved at once.
const LANE_BYTES: usize = 16;
/// Pieces of one key; a key that would take more is made otherwise.
const PIECES_MAX: usize = 4;
/// Bytes of the longest key.
const KEY_BYTES_MAX: usize = LANE_BYTES * PIECES_MAX;
/// Bytes that hold the columns' bits of the null bitmap.
const WORD_BYTES: usize = size_of::<u64>();
/// Picks no byte, but zero.
const NOTHING: u8 = 0x80;

/// Up to sixteen bytes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Where the sixteen bytes of the row begin that these come from.
    offset: usize,
    /// How many bytes there are.
    bytes: usize,
    pick: [u8; LANE_BYTES],
    flip: [u8; LANE_BYTES],
}

/// How to make a key; see the module. Only made on processors that can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyShuffle {
    pieces: Box<[Piece]>,
    /// A row must not be shorter.
    row_bytes: usize,
    /// Where in the row the columns' bits of the null bitmap are, and which they are: none may be set.
    nulls_at: usize,
    nulls: u64,
}

impl KeyShuffle {
    /// For a key of these integers, column, place and width of each, in rows of at least `row_bytes`. `None`
    /// where this processor cannot, or it would not be worth it.
    pub fn new(integers: &[(usize, usize, usize)], row_bytes: usize) -> Option<Self> {
        if !is_supported() {
            return None;
        }
        let last_offset = row_bytes.checked_sub(LANE_BYTES)?;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = integers;
        while !rest.is_empty() {
            let count = (1..=rest.len()).rev().find(|count| fits(rest.get(..*count)))?;
            let (taken, others) = rest.split_at_checked(count)?;
            rest = others;
            let offset = taken.iter().map(|(_, at, _)| *at).min()?.min(last_offset);
            let mut piece = Piece {
                offset,
                bytes: 0,
                pick: [NOTHING; LANE_BYTES],
                flip: [0; LANE_BYTES],
            };
            for (_, at, width) in taken {
                *piece.flip.get_mut(piece.bytes)? = MARK_VALUE;
                *piece.flip.get_mut(piece.bytes + 1)? = 0x80;
                let most_significant_first = (0..*width).rev().map(|byte| (at - offset + byte) as u8);
                let places = piece.pick.get_mut(piece.bytes + 1..)?.iter_mut();
                places
                    .zip(most_significant_first)
                    .for_each(|(place, from)| *place = from);
                piece.bytes += 1 + width;
            }
            pieces.push(piece);
        }
        let first_byte = integers.iter().map(|(column, ..)| column / 8).min()?;
        let nulls_at = first_byte.min(row_bytes - WORD_BYTES);
        let mut nulls = 0;
        for (column, ..) in integers {
            nulls |= 1_u64.checked_shl((column - 8 * nulls_at) as u32)?;
        }
        (pieces.len() <= PIECES_MAX).then(|| KeyShuffle {
            pieces: pieces.into(),
            row_bytes,
            nulls_at,
            nulls,
        })
    }

    /// Nothing of the key is NULL, and the row is long enough.
    #[inline(always)]
    fn takes(&self, row: &[u8]) -> bool {
        let word = row.get(self.nulls_at..self.nulls_at + WORD_BYTES);
        let word = word.and_then(|word| word.first_chunk());
        row.len() >= self.row_bytes && word.is_some_and(|word| u64::from_le_bytes(*word) & self.nulls == 0)
    }

    /// Appends the key of a row; false, and nothing, for a row that it takes another way for.
    #[inline]
    pub fn append(&self, row: &[u8], out: &mut Vec<u8>) -> bool {
        if !self.takes(row) {
            return false;
        }
        out.reserve(KEY_BYTES_MAX);
        let end = out.len();
        let Some(room) = out.spare_capacity_mut().first_chunk_mut() else {
            return false;
        };
        // SAFETY: whoever made this has seen that the processor can (`KeyShuffle::new`), and as many bytes as
        // it says have been written. Tested against the general way by `key_columns_are_the_general_way`.
        unsafe {
            let bytes = shuffle(&self.pieces, row, room);
            out.set_len(end + bytes);
        }
        true
    }

    /// Whether this is the row's key; `None` as above.
    #[inline]
    pub fn matches(&self, row: &[u8], key: &[u8]) -> Option<bool> {
        if !self.takes(row) {
            return None;
        }
        let mut own = [const { MaybeUninit::uninit() }; KEY_BYTES_MAX];
        // SAFETY: as above.
        let own = unsafe {
            let bytes = shuffle(&self.pieces, row, &mut own);
            std::slice::from_raw_parts(own.as_ptr().cast::<u8>(), bytes)
        };
        Some(is_same(own, key))
    }
}

/// Equal, told by words that may overlap: keys are too short for a call to be worth it.
#[inline(always)]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    if let (Some(last), Some(other_last)) = (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        let words = one.as_chunks().0.iter().zip(other.as_chunks().0);
        let differing = words.map(|(one, other)| u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other));
        let last = u64::from_le_bytes(*last) ^ u64::from_le_bytes(*other_last);
        return differing.fold(last, |all, bits| all | bits) == 0;
    }
    if let (Some(first), Some(other_first)) = (one.first_chunk::<4>(), other.first_chunk::<4>()) {
        return first == other_first && one.last_chunk::<4>() == other.last_chunk::<4>();
    }
    one == other
}

/// The integers make one piece: sixteen bytes of the row hold them, and their key is no longer.
fn fits(integers: Option<&[(usize, usize, usize)]>) -> bool {
    let integers = integers.unwrap_or_default();
    let begin = integers.iter().map(|(_, at, _)| *at).min();
    let end = integers.iter().map(|(_, at, width)| at + width).max();
    let spread = begin.zip(end).map_or(usize::MAX, |(begin, end)| end - begin);
    let key_bytes: usize = integers.iter().map(|(_, _, width)| 1 + width).sum();
    spread <= LANE_BYTES && key_bytes <= LANE_BYTES
}

#[cfg(target_arch = "x86_64")]
fn is_supported() -> bool {
    std::arch::is_x86_feature_detected!("ssse3")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_supported() -> bool {
    false
}

/// Writes the pieces of a key, one behind the other; how many bytes they are, all of which are written then,
/// and some behind them. The row is as long as [`KeyShuffle`] asks, and there are at most [`PIECES_MAX`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "ssse3")]
fn shuffle(pieces: &[Piece], row: &[u8], key: &mut [MaybeUninit<u8>; KEY_BYTES_MAX]) -> usize {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128, _mm_xor_si128};
    let mut end = 0;
    for piece in pieces {
        let from = row.get(piece.offset..piece.offset + LANE_BYTES);
        let (Some(from), Some(to)) = (from, key.get_mut(end..end + LANE_BYTES)) else {
            return end;
        };
        // SAFETY: all four places are sixteen bytes long; loads and the store ask for no alignment.
        unsafe {
            let bytes = _mm_loadu_si128(from.as_ptr().cast::<__m128i>());
            let pick = _mm_loadu_si128(piece.pick.as_ptr().cast::<__m128i>());
            let flip = _mm_loadu_si128(piece.flip.as_ptr().cast::<__m128i>());
            let moved = _mm_xor_si128(_mm_shuffle_epi8(bytes, pick), flip);
            _mm_storeu_si128(to.as_mut_ptr().cast::<__m128i>(), moved);
        }
        end += piece.bytes;
    }
    end
}

/// Never called: there are no pieces anywhere else.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn shuffle(_: &[Piece], _: &[u8], _: &mut [MaybeUninit<u8>; KEY_BYTES_MAX]) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_every_byte() {
        for length in 0..40 {
            let one: Vec<u8> = (0..length).collect();
            assert!(is_same(&one, &one.clone()));
            for at in 0..one.len() {
                let mut other = one.clone();
                other[at] ^= 0x80;
                assert!(!is_same(&one, &other), "{length} {at}");
                assert!(!is_same(&one, &one[..at]), "{length} {at}");
            }
        }
    }
}
