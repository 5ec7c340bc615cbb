//! Functions of texts. Positions and lengths are characters.

use weft_types::{SqlError, SqlState, Value, ValueRef};

use super::{Computed, TEXT_BYTES_MAX, int, text, too_long};

type Arguments<'a, 'v> = &'a [ValueRef<'v>];

fn made(text: impl Into<String>) -> Computed {
    Ok(Value::Text(text.into()))
}

fn count_of(text: &str) -> Computed {
    Ok(Value::Int4(
        i32::try_from(text.chars().count()).map_err(|_| too_long())?,
    ))
}

pub(super) fn length(arguments: Arguments<'_, '_>) -> Computed {
    count_of(text(arguments, 0)?)
}

pub(super) fn octet_length(arguments: Arguments<'_, '_>) -> Computed {
    let bytes = text(arguments, 0)?.len();
    Ok(Value::Int4(i32::try_from(bytes).map_err(|_| too_long())?))
}

pub(super) fn lower(arguments: Arguments<'_, '_>) -> Computed {
    made(text(arguments, 0)?.to_lowercase())
}

pub(super) fn upper(arguments: Arguments<'_, '_>) -> Computed {
    made(text(arguments, 0)?.to_uppercase())
}

pub(super) fn initcap(arguments: Arguments<'_, '_>) -> Computed {
    let mut result = String::new();
    let mut within = false;
    for character in text(arguments, 0)?.chars() {
        if within {
            result.extend(character.to_lowercase());
        } else {
            result.extend(character.to_uppercase());
        }
        within = character.is_alphanumeric();
    }
    made(result)
}

/// Byte at which a character begins; the end of the text if there are fewer.
fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices()
        .nth(character)
        .map_or(text.len(), |(at, _)| at)
}

pub(super) fn right(arguments: Arguments<'_, '_>) -> Computed {
    let (text, wanted) = (text(arguments, 0)?, int(arguments, 1)?);
    let skipped = match usize::try_from(wanted) {
        Ok(wanted) => text.chars().count().saturating_sub(wanted),
        Err(_) => usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX),
    };
    made(text.get(byte_of(text, skipped)..).unwrap_or_default())
}

pub(super) fn substring(arguments: Arguments<'_, '_>) -> Computed {
    let (whole, from) = (text(arguments, 0)?, int(arguments, 1)?);
    let end = match arguments.len() {
        3.. => {
            let count = int(arguments, 2)?;
            if count < 0 {
                let message = "negative substring length not allowed";
                return Err(SqlError::new(SqlState("22011"), message));
            }
            from.saturating_add(count)
        }
        _ => i64::MAX,
    };
    // Positions before the first character count toward the length.
    let skipped = usize::try_from(from.saturating_sub(1)).unwrap_or(0);
    let kept = usize::try_from(end.saturating_sub(from.max(1))).unwrap_or(0);
    let rest = whole.get(byte_of(whole, skipped)..).unwrap_or_default();
    made(rest.get(..byte_of(rest, kept)).unwrap_or_default())
}

pub(super) fn btrim(arguments: Arguments<'_, '_>) -> Computed {
    let set = text(arguments, 1)?;
    made(text(arguments, 0)?.trim_matches(|character| set.contains(character)))
}

pub(super) fn ltrim(arguments: Arguments<'_, '_>) -> Computed {
    let set = text(arguments, 1)?;
    made(text(arguments, 0)?.trim_start_matches(|character| set.contains(character)))
}

pub(super) fn rtrim(arguments: Arguments<'_, '_>) -> Computed {
    let set = text(arguments, 1)?;
    made(text(arguments, 0)?.trim_end_matches(|character| set.contains(character)))
}

pub(super) fn replace(arguments: Arguments<'_, '_>) -> Computed {
    let (whole, from, to) = (text(arguments, 0)?, text(arguments, 1)?, text(arguments, 2)?);
    if from.is_empty() {
        return made(whole);
    }
    let times = whole.matches(from).count();
    check_bytes(times.saturating_mul(to.len()))?;
    made(whole.replace(from, to))
}

pub(super) fn position(arguments: Arguments<'_, '_>) -> Computed {
    let (whole, part) = (text(arguments, 0)?, text(arguments, 1)?);
    match whole.find(part).and_then(|at| whole.get(..at)) {
        Some(before) => match count_of(before)? {
            Value::Int4(count) => Ok(Value::Int4(count.saturating_add(1))),
            other => Ok(other),
        },
        None => Ok(Value::Int4(0)),
    }
}

fn check_bytes(bytes: usize) -> Result<(), SqlError> {
    match bytes > TEXT_BYTES_MAX {
        true => Err(too_long()),
        false => Ok(()),
    }
}

/// The text, or its beginning, and what fills it up to a number of characters.
fn padded<'v>(arguments: Arguments<'_, 'v>) -> Result<(&'v str, String), SqlError> {
    let (whole, wanted, fill) = (text(arguments, 0)?, int(arguments, 1)?, text(arguments, 2)?);
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let missing = wanted.saturating_sub(whole.chars().count());
    if missing == 0 {
        return Ok((
            whole.get(..byte_of(whole, wanted)).unwrap_or_default(),
            String::new(),
        ));
    }
    check_bytes(missing.saturating_mul(4))?;
    Ok((whole, fill.chars().cycle().take(missing).collect()))
}

pub(super) fn lpad(arguments: Arguments<'_, '_>) -> Computed {
    let (kept, fill) = padded(arguments)?;
    made(fill + kept)
}

pub(super) fn rpad(arguments: Arguments<'_, '_>) -> Computed {
    let (kept, fill) = padded(arguments)?;
    made(kept.to_owned() + &fill)
}

pub(super) fn repeat(arguments: Arguments<'_, '_>) -> Computed {
    let (whole, times) = (text(arguments, 0)?, int(arguments, 1)?);
    let times = usize::try_from(times).unwrap_or(0);
    check_bytes(times.saturating_mul(whole.len()))?;
    made(match whole.is_empty() {
        true => String::new(),
        false => whole.repeat(times),
    })
}

pub(super) fn reverse(arguments: Arguments<'_, '_>) -> Computed {
    made(text(arguments, 0)?.chars().rev().collect::<String>())
}

pub(super) fn split_part(arguments: Arguments<'_, '_>) -> Computed {
    let (whole, separator, number) = (text(arguments, 0)?, text(arguments, 1)?, int(arguments, 2)?);
    let nth = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
    let Some(nth) = nth.checked_sub(1) else {
        let message = "field position must not be zero";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    };
    if separator.is_empty() {
        return made(if nth == 0 { whole } else { "" });
    }
    let part = match number > 0 {
        true => whole.split(separator).nth(nth),
        false => {
            let parts: Vec<&str> = whole.split(separator).collect();
            parts
                .len()
                .checked_sub(nth + 1)
                .and_then(|at| parts.get(at).copied())
        }
    };
    made(part.unwrap_or_default())
}

pub(super) fn starts_with(arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Bool(text(arguments, 0)?.starts_with(text(arguments, 1)?)))
}

pub(super) fn ascii(arguments: Arguments<'_, '_>) -> Computed {
    let first = text(arguments, 0)?.chars().next();
    Ok(Value::Int4(first.map_or(0, |first| u32::from(first) as i32)))
}

pub(super) fn chr(arguments: Arguments<'_, '_>) -> Computed {
    let code = int(arguments, 0)?;
    let refused = |message: &str| SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
    if code == 0 {
        return Err(refused("null character not permitted"));
    }
    if code < 0 {
        return Err(refused("character number must be positive"));
    }
    let character = u32::try_from(code).ok().and_then(char::from_u32);
    let too_large = || refused(&format!("requested character too large for encoding: {code}"));
    made(String::from(character.ok_or_else(too_large)?))
}

pub(super) fn translate(arguments: Arguments<'_, '_>) -> Computed {
    let (whole, from) = (text(arguments, 0)?, text(arguments, 1)?);
    let to: Vec<char> = text(arguments, 2)?.chars().collect();
    let changed = |character| match from.chars().position(|other| other == character) {
        Some(at) => to.get(at).copied(),
        None => Some(character),
    };
    made(whole.chars().filter_map(changed).collect::<String>())
}

/// One step of a LIKE pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Any,
    One,
    Is(char),
}

fn steps(pattern: &str, escape: Option<char>) -> Result<Vec<Step>, SqlError> {
    let mut steps = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        steps.push(match character {
            _ if Some(character) == escape => match characters.next() {
                Some(next) => Step::Is(next),
                None => {
                    let message = "LIKE pattern must not end with escape character";
                    return Err(SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, message));
                }
            },
            '%' => Step::Any,
            '_' => Step::One,
            other => Step::Is(other),
        });
    }
    Ok(steps)
}

/// Bytes that [`like`] looks at: what is between two `%` is tried at each character once, and given up where
/// it does not fit.
pub(super) fn like_work(arguments: Arguments<'_, '_>) -> usize {
    let (Ok(whole), Ok(pattern)) = (text(arguments, 0), text(arguments, 1)) else {
        return 0;
    };
    let escape = text(arguments, 2).unwrap_or_default();
    let longest = match !escape.is_empty() && pattern.contains(escape) {
        // An escaped `%` parts nothing.
        true => pattern.len(),
        false => pattern.split('%').skip(1).map(str::len).max().unwrap_or(0),
    };
    whole.len().saturating_mul(longest)
}

/// Greedy, going back to the last `%` only: see [`like_work`].
pub(super) fn like(arguments: Arguments<'_, '_>) -> Computed {
    let (whole, pattern, escape) = (text(arguments, 0)?, text(arguments, 1)?, text(arguments, 2)?);
    let mut escapes = escape.chars();
    let escape = escapes.next();
    if escapes.next().is_some() {
        let error = SqlError::new(SqlState("22019"), "invalid escape string");
        return Err(error.hint("Escape string must be empty or one character."));
    }
    let steps = steps(pattern, escape)?;
    let characters: Vec<char> = whole.chars().collect();
    let (mut at, mut step) = (0, 0);
    // The step after the last `%`, and the character that it was tried at.
    let mut back: Option<(usize, usize)> = None;
    while let Some(character) = characters.get(at) {
        match steps.get(step) {
            Some(Step::Any) => {
                step += 1;
                back = Some((step, at));
                continue;
            }
            Some(Step::One) => {
                (at, step) = (at + 1, step + 1);
                continue;
            }
            Some(Step::Is(wanted)) if wanted == character => {
                (at, step) = (at + 1, step + 1);
                continue;
            }
            _ => {}
        }
        let Some((after, tried)) = back else {
            return Ok(Value::Bool(false));
        };
        (at, step) = (tried + 1, after);
        back = Some((after, at));
    }
    let rest = steps.get(step..).unwrap_or_default();
    Ok(Value::Bool(rest.iter().all(|step| *step == Step::Any)))
}

#[cfg(test)]
mod tests {
    use super::super::Function as F;
    use super::*;
    use proptest::prelude::*;

    fn call(function: F, arguments: &[Value]) -> Result<Value, &'static str> {
        let arguments: Vec<ValueRef<'_>> = arguments.iter().map(Value::as_ref).collect();
        function.apply(&arguments).map_err(|error| error.state.code())
    }

    fn t(text: &str) -> Value {
        Value::Text(text.into())
    }

    fn i(number: i32) -> Value {
        Value::Int4(number)
    }

    #[test]
    fn texts_are_cut_as_postgresql_cuts_them() {
        for (function, arguments, expected) in [
            (F::Substring, vec![t("añb"), i(2)], "ñb"),
            (F::Substring, vec![t("abc"), i(-5)], "abc"),
            (F::SubstringFor, vec![t("abcdef"), i(-1), i(4)], "ab"),
            (F::SubstringFor, vec![t("abcdef"), i(3), i(i32::MAX)], "cdef"),
            (F::SubstringFor, vec![t("abc"), i(9), i(2)], ""),
            (F::Right, vec![t("añb"), i(2)], "ñb"),
            (F::Right, vec![t("abc"), i(-1)], "bc"),
            (F::Right, vec![t("abc"), i(-9)], ""),
            (F::Btrim, vec![t("xyaxb y"), t("xy ")], "axb"),
            (F::Ltrim, vec![t("  a "), t(" ")], "a "),
            (F::Rtrim, vec![t("  a "), t(" ")], "  a"),
            (F::Replace, vec![t("abab"), t("b"), t("")], "aa"),
            (F::Replace, vec![t("abab"), t(""), t("x")], "abab"),
            (F::Lpad, vec![t("7"), i(3), t("0")], "007"),
            (F::Lpad, vec![t("abc"), i(2), t("0")], "ab"),
            (F::Lpad, vec![t("abc"), i(5), t("")], "abc"),
            (F::Rpad, vec![t("é"), i(4), t("xy")], "éxyx"),
            (F::Repeat, vec![t("ab"), i(3)], "ababab"),
            (F::Repeat, vec![t("ab"), i(-3)], ""),
            (F::Reverse, vec![t("añb")], "bña"),
            (F::SplitPart, vec![t("a,b,c"), t(","), i(2)], "b"),
            (F::SplitPart, vec![t("a,b,c"), t(","), i(-1)], "c"),
            (F::SplitPart, vec![t("a,b,c"), t(","), i(4)], ""),
            (F::Initcap, vec![t("hi THE-re 2x")], "Hi The-Re 2x"),
            (F::Chr, vec![i(241)], "ñ"),
            (F::Translate, vec![t("12345"), t("143"), t("ax")], "a2x5"),
        ] {
            assert_eq!(
                call(function, &arguments),
                Ok(t(expected)),
                "{function:?} {arguments:?}"
            );
        }
        assert_eq!(call(F::SubstringFor, &[t("a"), i(1), i(-1)]), Err("22011"));
        assert_eq!(call(F::SplitPart, &[t("a"), t(","), i(0)]), Err("22023"));
        assert_eq!(call(F::Repeat, &[t("abcdefgh"), i(i32::MAX)]), Err("54000"));
        assert_eq!(call(F::Lpad, &[t("a"), i(i32::MAX), t("é")]), Err("54000"));
        assert_eq!(call(F::Chr, &[i(0)]), Err("54000"));
        assert_eq!(call(F::Chr, &[i(0xD800)]), Err("54000"));
        assert_eq!(call(F::Position, &[t("añb"), t("b")]), Ok(i(3)));
        assert_eq!(call(F::Position, &[t("abc"), t("")]), Ok(i(1)));
        assert_eq!(call(F::Position, &[t("abc"), t("x")]), Ok(i(0)));
        assert_eq!(call(F::Length, &[t("añb")]), Ok(i(3)));
        assert_eq!(call(F::OctetLength, &[t("añb")]), Ok(i(4)));
        assert_eq!(call(F::Ascii, &[t("ñ")]), Ok(i(241)));
        assert_eq!(call(F::Upper, &[Value::Null]), Ok(Value::Null));
    }

    #[test]
    fn patterns() {
        let matches = |text: &str, pattern: &str| call(F::Like, &[t(text), t(pattern), t("\\")]);
        for (text, pattern, expected) in [
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "_b_", true),
            ("abc", "_b", false),
            ("", "%", true),
            ("", "_", false),
            ("a%c", "a\\%c", true),
            ("abc", "a\\%c", false),
            ("aXbXc", "a%X%c", true),
            ("mississippi", "%iss%ip%", true),
            ("mississippi", "%iss%ipx%", false),
        ] {
            assert_eq!(
                matches(text, pattern),
                Ok(Value::Bool(expected)),
                "{text} {pattern}"
            );
        }
        assert_eq!(matches("a", "a\\"), Err("22025"));
        assert_eq!(call(F::Like, &[t("a"), t("a"), t("xy")]), Err("22019"));
        assert_eq!(
            call(F::Like, &[t("a\\b"), t("a\\b"), t("")]),
            Ok(Value::Bool(true))
        );
    }

    /// What is asked of the budget before the work is what the work may be.
    #[test]
    fn work_grows_with_products() {
        let work = |function: F, arguments: &[Value]| {
            let arguments: Vec<ValueRef<'_>> = arguments.iter().map(Value::as_ref).collect();
            function.work(&arguments)
        };
        let (long, other) = ("a".repeat(10_000), "b".repeat(1_000));
        let like = |pattern: &str, escape: &str| work(F::Like, &[t(&long), t(pattern), t(escape)]);
        assert!(like("abc", "\\") < 11_000);
        assert!(like("abc%", "\\") < 11_000);
        assert!(like("%abc", "\\") < 50_000);
        assert!(like(&format!("%{other}%x"), "\\") > 10_000_000);
        // Escaped signs are one stretch.
        let escaped = format!("%{}", "\\%".repeat(1_000));
        assert!(like(&escaped, "\\") > 10_000_000);
        for function in [F::Btrim, F::Ltrim, F::Rtrim] {
            assert!(work(function, &[t(&long), t(&other)]) > 10_000_000);
            assert!(work(function, &[t(&long), t(" ")]) < 30_000);
        }
        assert!(work(F::Translate, &[t(&long), t(&other), t("")]) > 10_000_000);
        assert!(work(F::Replace, &[t(&long), t(&other), t("")]) < 20_000);
        let number = |digits: usize| Value::Numeric(weft_types::Numeric::parse(&"9".repeat(digits)).unwrap());
        assert!(work(F::NumericMul, &[number(9), number(9)]) < 256);
        assert!(work(F::NumericMul, &[number(50_000), number(50_000)]) > 100_000_000);
    }

    /// The definition, exponential.
    fn matches_slowly(text: &[char], pattern: &[char]) -> bool {
        match (text.split_first(), pattern.split_first()) {
            (None, None) => true,
            (_, Some(('%', rest))) => {
                matches_slowly(text, rest)
                    || text
                        .split_first()
                        .is_some_and(|(_, text)| matches_slowly(text, pattern))
            }
            (Some((_, text)), Some(('_', rest))) => matches_slowly(text, rest),
            (Some((one, text)), Some((other, rest))) => one == other && matches_slowly(text, rest),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_defined(text in "[ab]{0,8}", pattern in "[ab%_]{0,6}") {
            let (a, b): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
            let expected = Value::Bool(matches_slowly(&a, &b));
            prop_assert_eq!(call(F::Like, &[t(&text), t(&pattern), t("\\")]), Ok(expected));
        }
    }
}
