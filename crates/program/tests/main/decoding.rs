//! Bytes that are no program, and text that is none.

use proptest::prelude::*;
use weft_program::{Program, asm};

use crate::fixture::Database;
use crate::random_programs::random_program;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut framed = b"WPRG\x01".to_vec();
        framed.extend_from_slice(&bytes);
        prop_assert!(Program::decode(&bytes).is_err());
        if let Ok(program) = Program::decode(&framed) {
            prop_assert_eq!(program.encode(), framed);
        }
    }

    #[test]
    fn random_text_is_refused_without_panic(text in "[.;a-z0-9,'() \\[\\]\n]{0,200}") {
        let _ = asm::parse(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A damaged program is refused, or is another program whose bytes are canonical, whose text is
    /// lossless, and which runs without panic though nobody verified it.
    #[test]
    fn damaged_programs(
        seed in any::<u64>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut database = Database::new();
        let program = random_program(seed, &database.catalog());
        let mut bytes = program.encode();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(damaged) = Program::decode(&bytes) {
            prop_assert_eq!(damaged.encode(), bytes);
            let text = asm::print(&damaged);
            let again = asm::parse(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(again.encode(), damaged.encode(), "{}", text);
            if damaged.inputs == program.inputs {
                let inputs = crate::random_programs::random_inputs(seed);
                let _ = database.run(&damaged, &inputs, 500);
            }
        }
    }
}
