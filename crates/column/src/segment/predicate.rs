//! Predicates on values, and what becomes of them for a column.
//!
//! ```text
//! ValuePredicate --prepare--> Prepared, once a query     sorted spans of numbers, or sorted strings
//!                             --for a column--> CodePredicate, to be scanned on this core or by a unit
//! ```
//!
//! No predicate holds for NULL. A list has no NULLs: whoever makes it leaves them out.

use std::borrow::Cow;
use std::ops::Bound;

use super::encoding::search::first_not;
use super::error::SegmentError;
use super::format::{EXTREME_BYTES, Entry};
use super::value::{Kind, Value};

/// Codes from this one on are in no set: it would have more than 512 KiB.
const SET_CODES_MAX: usize = 1 << 22;

/// What is asked of a value. Floats are compared as PostgreSQL does: NaN equals NaN and is above all else.
#[derive(Debug, Clone, PartialEq)]
pub enum ValuePredicate<'a> {
    /// It lies between these.
    Range(Bound<Value<'a>>, Bound<Value<'a>>),
    /// It is equal to one of these, in any order.
    In(&'a [Value<'a>]),
}

/// A predicate prepared for all columns of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared<'a> {
    pub(crate) kind: Kind,
    pub(crate) set: ValueSet<'a>,
}

/// The values for which a predicate holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ValueSet<'a> {
    /// Spans of numbers, both ends included; they ascend and neither overlap nor touch.
    Numbers(Vec<(i64, i64)>),
    /// Strings of a range.
    Range(Bound<Cow<'a, [u8]>>, Bound<Cow<'a, [u8]>>),
    /// Ascending, each once.
    List(Vec<Cow<'a, [u8]>>),
}

/// A predicate on the codes of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodePredicate {
    /// It holds for no code.
    None,
    /// It holds for every code.
    All,
    /// It holds for codes of this range, both ends included.
    Range(u32, u32),
    /// It holds for codes of a set: a bit for each, as many as there are words for.
    Set(Vec<u64>),
    /// It holds for codes of these ranges, ascending, which reach too far for a set.
    Ranges(Vec<(u32, u32)>),
    /// The column has no codes: values have to be looked at.
    OnValues,
}

impl ValuePredicate<'_> {
    /// Prepares the predicate for columns of this kind: a list is sorted.
    ///
    /// # Errors
    /// [`SegmentError::WrongKind`] for a value that cannot be compared with the column's: integers can with
    /// integers of any length, everything else with its own kind.
    pub fn prepare(&self, kind: Kind) -> Result<Prepared<'_>, SegmentError> {
        let checked = |value: &Value<'_>| match value.compares_with(kind) {
            true => Ok(()),
            false => Err(SegmentError::WrongKind {
                column: kind,
                value: value.kind(),
            }),
        };
        let set = match self {
            ValuePredicate::Range(low, high) => {
                for bound in [low, high] {
                    if let Bound::Included(value) | Bound::Excluded(value) = bound {
                        checked(value)?;
                    }
                }
                match kind.is_number() {
                    true => ValueSet::Numbers(number_range(low, high).into_iter().collect()),
                    false => ValueSet::Range(string_bound(low), string_bound(high)),
                }
            }
            ValuePredicate::In(list) => {
                list.iter().try_for_each(checked)?;
                match kind.is_number() {
                    true => ValueSet::Numbers(joined(list.iter().filter_map(Value::span).collect())),
                    false => {
                        let strings = list.iter().filter_map(Value::bytes);
                        let mut strings: Vec<Cow<'_, [u8]>> = strings.map(Cow::Borrowed).collect();
                        strings.sort_unstable();
                        strings.dedup();
                        ValueSet::List(strings)
                    }
                }
            }
        };
        Ok(Prepared { kind, set })
    }
}

/// The span of numbers between the bounds, if there is any.
fn number_range(low: &Bound<Value<'_>>, high: &Bound<Value<'_>>) -> Option<(i64, i64)> {
    let low = match low {
        Bound::Included(value) => value.span()?.0,
        Bound::Excluded(value) => value.span()?.1.checked_add(1)?,
        Bound::Unbounded => i64::MIN,
    };
    let high = match high {
        Bound::Included(value) => value.span()?.1,
        Bound::Excluded(value) => value.span()?.0.checked_sub(1)?,
        Bound::Unbounded => i64::MAX,
    };
    (low <= high).then_some((low, high))
}

/// The spans in ascending order, those that overlap or touch made one.
fn joined(mut spans: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    spans.sort_unstable();
    spans.dedup_by(|next, last| {
        let touches = last.1 == i64::MAX || next.0 <= last.1 + 1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
    spans
}

fn string_bound<'v>(bound: &'v Bound<Value<'_>>) -> Bound<Cow<'v, [u8]>> {
    let bytes = |value: &'v Value<'_>| value.bytes().map(Cow::Borrowed);
    match bound {
        Bound::Included(value) => bytes(value).map_or(Bound::Unbounded, Bound::Included),
        Bound::Excluded(value) => bytes(value).map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn owned_bound(bound: Bound<Cow<'_, [u8]>>) -> Bound<Cow<'static, [u8]>> {
    bound.map(|string| Cow::Owned(string.into_owned()))
}

impl Prepared<'_> {
    /// The same with bytes of its own, to be kept longer than the predicate.
    #[must_use]
    pub fn into_owned(self) -> Prepared<'static> {
        let set = match self.set {
            ValueSet::Numbers(spans) => ValueSet::Numbers(spans),
            ValueSet::Range(low, high) => ValueSet::Range(owned_bound(low), owned_bound(high)),
            ValueSet::List(list) => {
                let strings = list.into_iter().map(|string| Cow::Owned(string.into_owned()));
                ValueSet::List(strings.collect())
            }
        };
        Prepared { kind: self.kind, set }
    }

    /// Whether the predicate holds for a value. It does not for one that cannot be compared.
    #[must_use]
    pub fn holds(&self, value: &Value<'_>) -> bool {
        match (&self.set, value.number(), value.bytes()) {
            _ if !value.compares_with(self.kind) => false,
            (ValueSet::Numbers(spans), Some(number), _) => has_number(spans, number),
            (set, _, Some(string)) => set.has_string(string),
            _ => false,
        }
    }
}

impl ValueSet<'_> {
    /// Whether a string is in it.
    pub(crate) fn has_string(&self, string: &[u8]) -> bool {
        match self {
            ValueSet::Numbers(_) => false,
            ValueSet::Range(low, high) => is_behind(low, string) && is_before(high, string),
            ValueSet::List(list) => list.binary_search_by(|own| own.as_ref().cmp(string)).is_ok(),
        }
    }

    /// The codes of strings that are in it, as spans, if the codes `0..count` stand for these strings.
    pub(crate) fn string_codes<'e>(
        &self,
        count: usize,
        entry: impl Fn(usize) -> &'e [u8],
    ) -> Vec<(u32, u32)> {
        let mut codes = Vec::new();
        match self {
            ValueSet::Numbers(_) => {}
            ValueSet::Range(low, high) => {
                let first = first_not(0, count, |code| !is_behind(low, entry(code)));
                let end = first_not(first, count, |code| is_before(high, entry(code)));
                push_codes(&mut codes, first, end);
            }
            ValueSet::List(list) => {
                let mut code = 0;
                for string in list {
                    code = first_not(code, count, |code| entry(code) < string.as_ref());
                    if code < count && entry(code) == string.as_ref() {
                        push_codes(&mut codes, code, code + 1);
                    }
                }
            }
        }
        codes
    }

    /// Whether a column with this minimum and maximum may have a value that is in it.
    pub(crate) fn may_match(&self, entry: &Entry) -> bool {
        let (min, max) = (&entry.min, &entry.max);
        let (lowest, highest) = (min.string(), max.string());
        // The maximum may be longer than what the directory has of it: then so much is compared.
        let is_cut = entry.kind == Kind::Bytes && highest.len() == EXTREME_BYTES;
        fn cut(string: &[u8], is_cut: bool) -> &[u8] {
            match is_cut {
                true => string.get(..EXTREME_BYTES).unwrap_or(string),
                false => string,
            }
        }
        match self {
            ValueSet::Numbers(spans) => match (min.number(), max.number()) {
                (Some(min), Some(max)) => {
                    let at = first_not(0, spans.len(), |at| {
                        spans.get(at).is_some_and(|span| span.1 < min)
                    });
                    spans.get(at).is_some_and(|span| span.0 <= max)
                }
                _ => false,
            },
            ValueSet::Range(low, high) => {
                let reaches_low = match low {
                    Bound::Excluded(low) if !is_cut => low.as_ref() < highest,
                    Bound::Included(low) | Bound::Excluded(low) => cut(low, is_cut) <= highest,
                    Bound::Unbounded => true,
                };
                reaches_low && is_before(high, lowest)
            }
            ValueSet::List(list) => {
                let at = list.partition_point(|string| string.as_ref() < lowest);
                list.get(at).is_some_and(|string| cut(string, is_cut) <= highest)
            }
        }
    }
}

fn is_behind(low: &Bound<Cow<'_, [u8]>>, string: &[u8]) -> bool {
    match low {
        Bound::Included(low) => low.as_ref() <= string,
        Bound::Excluded(low) => low.as_ref() < string,
        Bound::Unbounded => true,
    }
}

fn is_before(high: &Bound<Cow<'_, [u8]>>, string: &[u8]) -> bool {
    match high {
        Bound::Included(high) => string <= high.as_ref(),
        Bound::Excluded(high) => string < high.as_ref(),
        Bound::Unbounded => true,
    }
}

/// Whether a number is in one of the spans.
#[inline]
pub(crate) fn has_number(spans: &[(i64, i64)], number: i64) -> bool {
    let at = spans.partition_point(|span| span.1 < number);
    spans.get(at).is_some_and(|span| span.0 <= number)
}

/// The codes of numbers that are in the spans, if the codes `0..count` stand for these numbers.
pub(crate) fn number_codes(
    spans: &[(i64, i64)],
    count: usize,
    entry: impl Fn(usize) -> i64,
) -> Vec<(u32, u32)> {
    let (mut codes, mut end) = (Vec::new(), 0);
    for (low, high) in spans {
        let first = first_not(end, count, |code| entry(code) < *low);
        end = first_not(first, count, |code| entry(code) <= *high);
        push_codes(&mut codes, first, end);
        if end == count {
            break;
        }
    }
    codes
}

/// The codes of numbers that are in the spans, in a frame of reference with such codes.
pub(crate) fn frame_codes(spans: &[(i64, i64)], base: i64, code_max: u32) -> Vec<(u32, u32)> {
    let max = base.saturating_add(i64::from(code_max));
    let from = spans.partition_point(|span| span.1 < base);
    let mut codes = Vec::new();
    for (low, high) in spans.iter().skip(from).take_while(|span| span.0 <= max) {
        let code = |number: i64| number.clamp(base, max).wrapping_sub(base) as usize;
        push_codes(&mut codes, code(*low), code(*high) + 1);
    }
    codes
}

/// Appends the codes `first..end`.
fn push_codes(codes: &mut Vec<(u32, u32)>, first: usize, end: usize) {
    if first >= end {
        return;
    }
    match codes.last_mut() {
        Some(last) if last.1 as usize + 1 == first => last.1 = (end - 1) as u32,
        _ => codes.push((first as u32, (end - 1) as u32)),
    }
}

impl CodePredicate {
    /// The codes of these spans, among those up to `code_max`.
    pub(crate) fn of_spans(spans: &[(u32, u32)], code_max: u32) -> CodePredicate {
        match spans {
            [] => CodePredicate::None,
            [(0, high)] if *high >= code_max => CodePredicate::All,
            [(low, high)] => CodePredicate::Range(*low, *high),
            [.., (_, high)] if *high as usize >= SET_CODES_MAX => CodePredicate::Ranges(spans.to_vec()),
            [.., (_, high)] => {
                let mut set = vec![0; *high as usize / 64 + 1];
                for (low, high) in spans {
                    set_bits(&mut set, *low as usize, *high as usize + 1);
                }
                CodePredicate::Set(set)
            }
        }
    }
}

/// Sets the bits `first..end`.
pub(crate) fn set_bits(words: &mut [u64], first: usize, end: usize) {
    if first >= end {
        return;
    }
    for (nth, word) in words
        .iter_mut()
        .enumerate()
        .take(end.div_ceil(64))
        .skip(first / 64)
    {
        let (from, to) = (first.max(64 * nth) - 64 * nth, end.min(64 * nth + 64) - 64 * nth);
        *word |= (u64::MAX >> (64 - (to - from))) << from;
    }
}

/// So that a value for a predicate can be made of borrowed bytes.
impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Value<'a> {
        Value::Bytes(Cow::Borrowed(bytes))
    }
}
