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

use crate::key::MARK_VALUE;

/// Bytes that are moved at once.
const LANE_BYTES: usize = 16;
/// Pieces of one key; a key that would take more is made otherwise.
const PIECES_MAX: usize = 4;
/// Bytes of the longest key.
pub(crate) const SHUFFLED_BYTES_MAX: usize = LANE_BYTES * PIECES_MAX;
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
}

impl KeyShuffle {
    /// For a key of these integers, place and width of each, in rows of at least `row_bytes`. `None` where
    /// this processor cannot, or it would not be worth it.
    pub fn new(integers: &[(usize, usize)], row_bytes: usize) -> Option<Self> {
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
            let offset = taken.iter().map(|(at, _)| *at).min()?.min(last_offset);
            let mut piece = Piece {
                offset,
                bytes: 0,
                pick: [NOTHING; LANE_BYTES],
                flip: [0; LANE_BYTES],
            };
            for (at, width) in taken {
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
        (pieces.len() <= PIECES_MAX).then(|| KeyShuffle {
            pieces: pieces.into(),
            row_bytes,
        })
    }

    /// The key of a row, at the beginning of `key`, and how long it is; `None` for a row that is too short.
    #[inline]
    pub fn key(&self, row: &[u8], key: &mut [u8; SHUFFLED_BYTES_MAX]) -> Option<usize> {
        if row.len() < self.row_bytes {
            return None;
        }
        // SAFETY: whoever made this has seen that the processor can (`KeyShuffle::new`). Tested against the
        // general way by `key_columns_are_the_general_way`.
        Some(unsafe { shuffle(&self.pieces, row, key) })
    }
}

/// The integers make one piece: sixteen bytes of the row hold them, and their key is no longer.
fn fits(integers: Option<&[(usize, usize)]>) -> bool {
    let integers = integers.unwrap_or_default();
    let begin = integers.iter().map(|(at, _)| *at).min();
    let end = integers.iter().map(|(at, width)| at + width).max();
    let spread = begin.zip(end).map_or(usize::MAX, |(begin, end)| end - begin);
    let key_bytes: usize = integers.iter().map(|(_, width)| 1 + width).sum();
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

/// Pieces that a row is too short for, or for which there is no room, are left out; there are none.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "ssse3")]
fn shuffle(pieces: &[Piece], row: &[u8], key: &mut [u8; SHUFFLED_BYTES_MAX]) -> usize {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128, _mm_xor_si128};
    let mut end = 0;
    for piece in pieces {
        let from = row.get(piece.offset..piece.offset + LANE_BYTES);
        let to = key.get_mut(end..end + LANE_BYTES);
        if let (Some(from), Some(to)) = (from, to) {
            // SAFETY: all four places are sixteen bytes long; loads and the store ask for no alignment.
            unsafe {
                let bytes = _mm_loadu_si128(from.as_ptr().cast::<__m128i>());
                let pick = _mm_loadu_si128(piece.pick.as_ptr().cast::<__m128i>());
                let flip = _mm_loadu_si128(piece.flip.as_ptr().cast::<__m128i>());
                let moved = _mm_xor_si128(_mm_shuffle_epi8(bytes, pick), flip);
                _mm_storeu_si128(to.as_mut_ptr().cast::<__m128i>(), moved);
            }
        }
        end += piece.bytes;
    }
    end
}

/// There are no pieces anywhere else.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn shuffle(_: &[Piece], _: &[u8], _: &mut [u8; SHUFFLED_BYTES_MAX]) -> usize {
    0
}
