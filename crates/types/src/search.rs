//! Substring search in text or bytes, in time linear in both in the worst case, with checks for
//! cancellation.
//!
//! Crochemore and Perrin's two-way algorithm: the needle is split at a critical position. What follows the
//! split is compared from left to right and, if it matches, what precedes it from right to left. For a
//! periodic needle, the search remembers how much is known to match from the previous position. It takes no
//! memory, and a byte that does not occur in the needle allows skipping its whole length.

use crate::SqlError;
use crate::interrupt::Pace;

/// The positions of `needle` in `text`, without overlaps, from left to right. An empty needle has none.
#[must_use]
pub fn positions<'t>(text: &'t [u8], needle: &'t [u8]) -> Positions<'t> {
    Positions {
        text,
        needle,
        cut: None,
        at: 0,
        pace: Pace::default(),
    }
}

/// The pieces of `text` between occurrences of the nonempty `separator`.
pub fn parts<'t>(text: &'t str, separator: &'t str) -> impl Iterator<Item = Result<&'t str, SqlError>> {
    let mut places = positions(text.as_bytes(), separator.as_bytes());
    let mut from = Some(0);
    std::iter::from_fn(move || {
        let begin = from?;
        let end = match places.next() {
            Some(Ok(at)) => {
                from = Some(at + separator.len());
                at
            }
            Some(Err(error)) => {
                from = None;
                return Some(Err(error));
            }
            None => {
                from = None;
                text.len()
            }
        };
        Some(Ok(text.get(begin..end).unwrap_or_default()))
    })
}

/// The split of a needle.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Where the second half begins.
    at: usize,
    /// How far to advance if the second half matches and the first does not.
    period: usize,
    /// Whether the needle is periodic with that period.
    repeats: bool,
    /// A set of its bytes, by their lowest six bits.
    bytes: u64,
}

/// The positions of a needle.
#[derive(Debug)]
pub struct Positions<'t> {
    text: &'t [u8],
    needle: &'t [u8],
    /// Computed on first use.
    cut: Option<Cut>,
    at: usize,
    pace: Pace,
}

impl Positions<'_> {
    fn find(&mut self) -> Result<Option<usize>, SqlError> {
        let (text, needle) = (self.text, self.needle);
        if needle.is_empty() || needle.len() > text.len() - self.at.min(text.len()) {
            return Ok(None);
        }
        let cut = match self.cut {
            Some(cut) => cut,
            None => *self.cut.insert(Cut::of(needle, &mut self.pace)?),
        };
        // The number of leading bytes that are known to match.
        let mut known = 0;
        while let Some(window) = text.get(self.at..self.at + needle.len()) {
            let is_there = window
                .last()
                .is_some_and(|last| cut.bytes >> (last & 63) & 1 == 1);
            if !is_there {
                self.pace.step(1)?;
                self.at += needle.len();
                known = 0;
                continue;
            }
            let begin = cut.at.max(known);
            let fits = self.alike(begin, window)?;
            if begin + fits < needle.len() {
                self.at += begin + fits + 1 - cut.at;
                known = 0;
                continue;
            }
            let before = needle.iter().zip(window).take(cut.at).skip(known);
            self.pace.step(1 + cut.at.saturating_sub(known) / 8)?;
            if before.rev().all(|(a, b)| a == b) {
                let at = self.at;
                self.at += needle.len();
                return Ok(Some(at));
            }
            self.at += cut.period;
            known = if cut.repeats { needle.len() - cut.period } else { 0 };
        }
        Ok(None)
    }

    /// The number of matching bytes from `begin`.
    fn alike(&mut self, begin: usize, window: &[u8]) -> Result<usize, SqlError> {
        let pairs = self.needle.iter().zip(window).skip(begin);
        let fits = pairs.take_while(|(a, b)| a == b).count();
        self.pace.step(1 + fits / 8)?;
        Ok(fits)
    }
}

impl Iterator for Positions<'_> {
    type Item = Result<usize, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.find().transpose()
    }
}

impl Cut {
    fn of(needle: &[u8], pace: &mut Pace) -> Result<Cut, SqlError> {
        let one = largest_end(needle, false, pace)?;
        let other = largest_end(needle, true, pace)?;
        let (at, period) = if one.0 > other.0 { one } else { other };
        let repeats = needle
            .get(period..period + at)
            .is_some_and(|same| needle.starts_with(same));
        Ok(Cut {
            at,
            period: match repeats {
                true => period,
                false => at.max(needle.len() - at) + 1,
            },
            repeats,
            bytes: needle.iter().fold(0, |bytes, byte| bytes | 1 << (byte & 63)),
        })
    }
}

/// The start of the suffix of `needle` that is the maximum in byte order, or in reversed order, and the
/// period of that suffix.
fn largest_end(needle: &[u8], reversed: bool, pace: &mut Pace) -> Result<(usize, usize), SqlError> {
    let (mut left, mut right, mut offset, mut period) = (0, 1, 0, 1);
    while let (Some(new), Some(old)) = (needle.get(right + offset), needle.get(left + offset)) {
        pace.step(1)?;
        if new == old {
            offset += 1;
            if offset == period {
                right += offset;
                offset = 0;
            }
        } else if (new < old) != reversed {
            right += offset + 1;
            offset = 0;
            period = right - left;
        } else {
            left = right;
            right += 1;
            offset = 0;
            period = 1;
        }
    }
    Ok((left, period))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(text: &str, needle: &str) -> Vec<usize> {
        positions(text.as_bytes(), needle.as_bytes())
            .map(Result::unwrap)
            .collect()
    }

    fn plainly(text: &str, needle: &str) -> Vec<usize> {
        text.match_indices(needle).map(|(at, _)| at).collect()
    }

    #[test]
    fn needles_are_found_where_the_standard_library_finds_them() {
        for (text, needle) in [
            ("", "a"),
            ("a", "a"),
            ("aaaaa", "aa"),
            ("abababab", "abab"),
            ("aéaéaéa", "éa"),
            ("abaabaabaab", "aabaab"),
            ("xyxyxyz", "xyz"),
        ] {
            assert_eq!(places(text, needle), plainly(text, needle), "{needle} in {text}");
            let split: Vec<&str> = parts(text, needle).map(Result::unwrap).collect();
            assert_eq!(split, text.split(needle).collect::<Vec<_>>(), "{needle}: {text}");
        }
        assert_eq!(places("abc", ""), Vec::<usize>::new());
    }

    #[test]
    fn nearly_equal_texts_take_no_longer() {
        let text = "a".repeat(2_000_000);
        assert!(places(&text, &("a".repeat(1_000_000) + "b")).is_empty());
        assert!(places(&text, &("b".to_owned() + &"a".repeat(1_000_000))).is_empty());
        let half = "a".repeat(500_000);
        assert!(places(&text, &(half.clone() + "b" + &half)).is_empty());
        assert_eq!(places(&text, &half), [0, 500_000, 1_000_000, 1_500_000]);
    }

    proptest! {
        #[test]
        fn every_needle_of_few_letters_is_found(text in "[ab]{0,60}", needle in "[ab]{1,9}") {
            prop_assert_eq!(places(&text, &needle), plainly(&text, &needle));
        }

        #[test]
        fn repeated_needles_are_found(one in "[abc]{1,4}", times in 1_usize..5, text in "[abc]{0,9}", more in 0_usize..9) {
            let needle = one.repeat(times);
            let text = one.repeat(more) + &text + &one.repeat(times + 1) + &text;
            prop_assert_eq!(places(&text, &needle), plainly(&text, &needle));
        }
    }
}
