//! Every form of a scan gives what the golden model gives: all widths, all lengths around a word, bounds of
//! every kind, sets shorter and longer than the codes.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use proptest::prelude::*;
use weft_column::packed::{Codes, Form, NotPacked, Predicate, row_ids};
use weft_ops::packed::{WIDTH_MAX, code_max, in_range, in_set, pack, totals};

/// Codes that meet the bounds often.
fn codes(width: u32, random: &[u32], bounds: &[u32]) -> Vec<u32> {
    let near = |at: usize, value: u32| match at % 4 {
        0 => bounds[at % bounds.len()].wrapping_add(value % 3).wrapping_sub(1),
        _ => value,
    };
    let codes = random
        .iter()
        .enumerate()
        .map(|(at, value)| near(at, *value) & code_max(width));
    codes.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_forms_agree(
        random in prop::collection::vec(any::<u32>(), 0..700),
        (low, high) in any::<(u32, u32)>(),
        words in 0_usize..40,
        seed: u64,
    ) {
        for width in 0..=WIDTH_MAX {
            let (low, high) = (low & code_max(width), high & code_max(width));
            let codes = codes(width, &random, &[low, high, 0, code_max(width)]);
            // What lies behind the codes is anybody's.
            let mut packed = pack(&codes, width);
            packed.extend_from_slice(&seed.to_le_bytes());
            let given = Codes::new(&packed, width, codes.len()).unwrap();
            let set: Vec<u64> = (0..words as u64).map(|word| weft_ops::mix64(seed ^ word)).collect();
            let chosen = in_set(&packed, width, codes.len(), &set);
            let mut out = vec![1, 2, 3];
            for form in Form::here() {
                let all = u32::MAX;
                let bounds = [(low, high), (high, low), (0, high), (low, all), (low, low), (0, all)];
                for (low, high) in bounds {
                    given.matching(form, Predicate::Range(low, high), &mut out);
                    let expected = in_range(&packed, width, codes.len(), low, high);
                    prop_assert_eq!(&out, &expected, "{:?} {} {}", form, width, low);
                }
                given.matching(form, Predicate::Set(&set), &mut out);
                prop_assert_eq!(&out, &chosen, "{:?} {}", form, width);
                // Of some, of all and more, and of those in the first words.
                let some = set.iter().copied().cycle().take(codes.len() / 64 + 2);
                let some: Vec<u64> = if set.is_empty() { Vec::new() } else { some.collect() };
                for selection in [some, vec![u64::MAX; codes.len() / 64 + 2], vec![seed; 3], vec![0; 20]] {
                    let expected = totals(&packed, width, codes.len(), &selection);
                    prop_assert_eq!(given.totals(form, &selection), expected, "{:?} {}", form, width);
                }
                for group in [0, 1, codes.len() / 64, codes.len()] {
                    let mut unpacked = [[7; 64]; 3];
                    given.unpack(form, group, &mut unpacked);
                    for (at, code) in unpacked.as_flattened().iter().enumerate() {
                        let expected = codes.get(64 * group + at);
                        prop_assert!(expected.is_none_or(|expected| expected == code), "{form:?} {width} {at}");
                    }
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn row_ids_are_the_positions_of_bits(
        words in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], 0..50),
        (first, before) in (0..1_000_000_u32, prop::collection::vec(any::<u32>(), 0..3)),
    ) {
        let bits = words.iter().enumerate().flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + 64 * at as u32 + bit)
        });
        let expected: Vec<u32> = before.iter().copied().chain(bits).collect();
        for form in Form::here() {
            let mut out = before.clone();
            row_ids(form, &words, first, &mut out);
            prop_assert_eq!(&out, &expected, "{:?}", form);
        }
    }
}

#[test]
fn a_set_of_wide_codes_is_looked_up_where_it_has_words() {
    let width = 24;
    let codes: Vec<u32> = (0..3000).map(|at| (at * 5591) & code_max(width)).collect();
    let packed = pack(&codes, width);
    let given = Codes::new(&packed, width, codes.len()).unwrap();
    let set: Vec<u64> = (0..1 << (width - 7)).map(weft_ops::mix64).collect();
    for form in Form::here() {
        let mut out = Vec::new();
        given.matching(form, Predicate::Set(&set), &mut out);
        assert_eq!(out, in_set(&packed, width, codes.len(), &set), "{form:?}");
    }
}

#[test]
fn bytes_that_are_too_few_are_refused() {
    assert_eq!(Codes::new(&[0; 9], 10, 8).unwrap_err(), NotPacked);
    assert_eq!(Codes::new(&[0; 10], 33, 1).unwrap_err(), NotPacked);
    let codes = Codes::new(&[0xff; 10], 10, 8).unwrap();
    assert_eq!((codes.count(), codes.get(7), codes.get(8)), (8, 1023, 0));
}
