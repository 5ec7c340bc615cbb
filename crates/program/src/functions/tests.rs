//! Every code has its entry, and computes what its name says.

use proptest::prelude::*;
use weft_expression::{Returns, Volatility};
use weft_types::Numeric;

use super::Function as F;
use super::*;

fn call(function: F, arguments: &[Value]) -> Result<Value, &'static str> {
    let arguments: Vec<ValueRef<'_>> = arguments.iter().map(Value::as_ref).collect();
    function.apply(&arguments).map_err(|error| error.state.code())
}

#[test]
fn every_code_has_an_entry_that_agrees_with_it() {
    for function in Function::ALL.iter().copied() {
        let entry = function
            .find_entry()
            .unwrap_or_else(|| panic!("{function:?} has no entry"));
        assert_eq!(ENTRIES[usize::from(function as u8)], Some(entry), "{function:?}");
        assert_eq!(entry.returns, Returns::Is(function.result()), "{function:?}");
        assert_eq!(entry.volatility, Volatility::Immutable, "{function:?}");
        assert!(entry.strict && !entry.variadic, "{function:?}");
        // What the verifier takes for infallible is.
        assert!(function.may_fail() || !entry.fallible, "{function:?}");
    }
    assert!(LIKE_ESCAPE.is_some());
}

fn number(text: &str) -> Value {
    Value::Numeric(Numeric::parse(text).unwrap())
}

fn shown(function: F, arguments: &[Value]) -> String {
    match call(function, arguments).unwrap() {
        Value::Numeric(value) => {
            let mut text = String::new();
            value.format(&mut text).unwrap();
            text
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn decimals_are_postgresqls() {
    assert_eq!(shown(F::NumericAdd, &[number("1.10"), number("2.005")]), "3.105");
    assert_eq!(
        shown(F::NumericDiv, &[number("1"), number("3")]),
        "0.33333333333333333333"
    );
    assert_eq!(
        shown(F::NumericRound, &[number("-2.345"), Value::Int4(2)]),
        "-2.35"
    );
    assert_eq!(shown(F::NumericTrunc, &[number("1299"), Value::Int4(-2)]), "1200");
    assert_eq!(shown(F::NumericSign, &[number("-0.5")]), "-1");
    assert_eq!(shown(F::NumericSign, &[number("0.0")]), "0");
    assert_eq!(shown(F::NumericSign, &[number("7")]), "1");
    assert_eq!(shown(F::NumericSign, &[number("NaN")]), "NaN");
    assert_eq!(call(F::NumericDiv, &[number("1"), number("0")]), Err("22012"));
    assert_eq!(call(F::NumericMod, &[Value::Null, number("0")]), Ok(Value::Null));
}

#[test]
fn ends_of_ranges_are_errors() {
    assert_eq!(call(F::IntAbs, &[Value::Int8(i64::MIN)]), Err("22003"));
    assert_eq!(call(F::FloatSqrt, &[Value::Float8(-1.0)]), Err("2201F"));
    assert_eq!(call(F::FloatRound, &[Value::Float8(2.5)]), Ok(Value::Float8(2.0)));
    assert_eq!(
        call(F::DateAdd, &[Value::Date(i32::MAX), Value::Int4(-1)]),
        Ok(Value::Date(i32::MAX))
    );
    assert_eq!(
        call(F::DateAdd, &[Value::Date(2_145_031_948), Value::Int4(1)]),
        Err("22008")
    );
    assert_eq!(
        call(F::DateDiff, &[Value::Date(9), Value::Date(12)]),
        Ok(Value::Int4(-3))
    );
    assert_eq!(
        call(F::DateDiff, &[Value::Date(i32::MIN), Value::Date(0)]),
        Err("22008")
    );
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
    assert_eq!(call(F::Chr, &[i(-1)]), Err("22023"));
    // Letters have cases within ASCII only, as in collation C.
    assert_eq!(call(F::Lower, &[t("ÄB")]), Ok(t("Äb")));
    assert_eq!(call(F::Upper, &[t("äß")]), Ok(t("äß")));
    assert_eq!(call(F::Initcap, &[t("äb Cd")]), Ok(t("äB Cd")));
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
    // A pattern that ends with its escape character is refused where matching gets there.
    assert_eq!(matches("ab", "a\\"), Err("22025"));
    assert_eq!(matches("a", "a\\"), Ok(Value::Bool(false)));
    assert_eq!(call(F::Like, &[t("a"), t("a"), t("xy")]), Err("22025"));
    assert_eq!(call(F::Like, &[t("a%"), t("a!%"), t("!")]), Ok(Value::Bool(true)));
    assert_eq!(
        call(F::Like, &[t("ab"), t("a!%"), t("!")]),
        Ok(Value::Bool(false))
    );
    assert_eq!(call(F::Like, &[t("é"), t("é_"), t("é")]), Ok(Value::Bool(false)));
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
