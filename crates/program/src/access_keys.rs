//! From declared accesses and bound inputs to key bytes, for the lock manager and the guard. Allocates
//! nothing once the scratch has grown.

use weft_types::{SqlError, SqlState};

use crate::program::{Access, AccessKind, Program};

/// Where one value of an access key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyPart {
    /// An input.
    Input(u16),
    /// A constant.
    Const(u16),
}

impl KeyPart {
    /// Of the input or constant.
    pub(crate) fn number(&self) -> u16 {
        match self {
            KeyPart::Input(number) | KeyPart::Const(number) => *number,
        }
    }
}

/// Reusable memory of [`Program::for_each_access`].
#[derive(Clone, Debug, Default)]
pub struct AccessScratch {
    key: Vec<u8>,
    hi: Vec<u8>,
}

/// The error for inputs that are no row of the program's input layout.
pub(crate) fn bad_inputs() -> SqlError {
    SqlError::new(
        SqlState::INTERNAL_ERROR,
        "the inputs are not a row of the program's input types",
    )
}

impl Program {
    /// Calls `see` for every declared access, in order, with its number, the encoded key and, for a range
    /// with an upper bound, the encoded upper prefix. `inputs` is a row of [`Program::input_layout`].
    /// Rows and values with a NULL in their key are left out: no row has such a primary key, and such
    /// values conflict with nothing.
    pub fn for_each_access(
        &self,
        inputs: &[u8],
        scratch: &mut AccessScratch,
        mut see: impl FnMut(usize, &Access, &[u8], Option<&[u8]>),
    ) -> Result<(), SqlError> {
        self.layouts.inputs.validate(inputs).map_err(|_| bad_inputs())?;
        let accesses = self.accesses.iter().zip(&self.layouts.resolved.accesses);
        for (number, (access, recipe)) in accesses.enumerate() {
            scratch.key.clear();
            let has_null = recipe.key.append(&self.layouts.inputs, inputs, &mut scratch.key);
            let of_one_key = !matches!(access.kind, AccessKind::ReadRange | AccessKind::WriteRange);
            if has_null && of_one_key {
                continue;
            }
            let hi = match &recipe.hi {
                Some(recipe) => {
                    scratch.hi.clear();
                    recipe.append(&self.layouts.inputs, inputs, &mut scratch.hi);
                    Some(scratch.hi.as_slice())
                }
                None => None,
            };
            see(number, access, &scratch.key, hi);
        }
        Ok(())
    }
}

/// Whether every key that begins with `hi` sorts at or below some key that begins with `bound`: an inclusive
/// upper prefix lies within another.
pub(crate) fn upper_prefix_within(hi: &[u8], bound: &[u8]) -> bool {
    hi.starts_with(bound) || (hi < bound && !bound.starts_with(hi))
}

/// Turns a prefix into the smallest bytes above everything that begins with it. False: there are none (all
/// 0xFF or empty).
pub(crate) fn to_prefix_successor(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.last_mut() {
        if *last < 0xFF {
            *last += 1;
            return true;
        }
        prefix.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn successor_of_a_prefix() {
        let successor = |bytes: &[u8]| {
            let mut prefix = bytes.to_vec();
            to_prefix_successor(&mut prefix).then_some(prefix)
        };
        assert_eq!(successor(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(successor(&[1, 0xFF, 0xFF]), Some(vec![2]));
        assert_eq!(successor(&[0xFF]), None);
        assert_eq!(successor(&[]), None);
    }

    proptest! {
        #[test]
        fn prefix_containment_is_that_of_successors(
            hi in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xFE), Just(0xFF)], 0..4),
            bound in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xFE), Just(0xFF)], 0..4),
            key in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xFE), Just(0xFF)], 0..6),
        ) {
            let under = |key: &[u8], prefix: &[u8]| key <= prefix || key.starts_with(prefix);
            if upper_prefix_within(&hi, &bound) && under(&key, &hi) {
                prop_assert!(under(&key, &bound), "{key:?} {hi:?} {bound:?}");
            }
        }
    }
}
