//! Encodes the keys of a program's declared accesses for bound inputs.

use weft_ops::hash64;
use weft_types::{SqlError, SqlState};

use crate::program::Program;

/// The source of one value of an access key.
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

/// The encoded keys of one run's accesses: made once, for the lock manager, the lookup plan and the guard.
/// Everything else about an access is in the program, under the same number.
#[derive(Clone, Debug, Default)]
pub struct AccessKeys {
    pub(crate) entries: Vec<AccessKey>,
    bytes: Vec<u8>,
}

/// The key of one access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessKey {
    start: u32,
    end: u32,
    /// The upper prefix of a range ends here; it begins at `end`.
    hi_end: u32,
    /// It is of one row or value, but a part of it is NULL: it equals nothing.
    pub(crate) equals_nothing: bool,
    /// A range of all keys with this prefix.
    pub(crate) is_prefix: bool,
    /// [`hash64`] of the key of a row or value.
    pub(crate) hash: u64,
}

const _: () = assert!(size_of::<AccessKey>() == 24);

/// The encoded key of one access, as [`AccessKeys::for_each`] shows it.
#[derive(Clone, Copy, Debug)]
pub struct BoundKey<'k> {
    /// The key; of a range, the lower prefix.
    pub bytes: &'k [u8],
    /// The upper prefix of a range; empty if there is none.
    pub hi: &'k [u8],
    /// [`hash64`] of the key of a row or value; of others, 0.
    pub hash: u64,
}

/// Room for a key in [`AccessKeys`], in bytes.
const KEY_ROOM: usize = 24;

impl AccessKeys {
    /// Encodes the keys for some inputs. Errors: inputs that are no row of the program's input types, or
    /// whose keys take more than 4 GiB.
    pub fn prepare(&mut self, program: &Program, inputs: &[u8]) -> Result<(), SqlError> {
        let layout = &program.layouts.inputs;
        layout.validate(inputs).map_err(|_| bad_inputs())?;
        let AccessKeys { entries, bytes } = self;
        let recipes = &program.layouts.resolved.accesses;
        entries.clear();
        bytes.clear();
        bytes.reserve((recipes.len() + 3) * KEY_ROOM);
        entries.extend(recipes.iter().map(|recipe| {
            let start = bytes.len();
            let has_null = recipe.key.append(layout, inputs, bytes);
            let key = bytes.get(start..).unwrap_or_default();
            let mut entry = AccessKey {
                start: start as u32,
                end: bytes.len() as u32,
                hi_end: bytes.len() as u32,
                equals_nothing: has_null && recipe.is_single,
                is_prefix: false,
                hash: match recipe.is_single {
                    true => hash64(key),
                    false => 0,
                },
            };
            if let Some(hi) = &recipe.hi {
                let end = bytes.len();
                hi.append(layout, inputs, bytes);
                entry.hi_end = bytes.len() as u32;
                entry.is_prefix = bytes.get(start..end) == bytes.get(end..);
            }
            entry
        }));
        match u32::try_from(bytes.len()) {
            Ok(_) => Ok(()),
            Err(_) => Err(too_long_keys()),
        }
    }

    /// Copies the keys of another run.
    pub(crate) fn copy_from(&mut self, other: &AccessKeys) {
        self.entries.clone_from(&other.entries);
        self.bytes.clone_from(&other.bytes);
    }

    /// The key; of a range, the lower prefix.
    #[inline]
    pub(crate) fn key(&self, entry: &AccessKey) -> &[u8] {
        let key = self.bytes.get(entry.start as usize..entry.end as usize);
        key.unwrap_or_default()
    }

    /// The upper prefix of a range; empty if there is none.
    #[inline]
    pub(crate) fn hi(&self, entry: &AccessKey) -> &[u8] {
        let hi = self.bytes.get(entry.end as usize..entry.hi_end as usize);
        hi.unwrap_or_default()
    }

    /// The key of an access; `None` if it equals nothing or there is no such access.
    #[inline]
    pub(crate) fn key_of(&self, access: usize) -> Option<&[u8]> {
        let entry = self.entries.get(access).filter(|entry| !entry.equals_nothing)?;
        Some(self.key(entry))
    }

    /// Calls `see` for every access, in order, with its number and key. Rows and values with a NULL in their
    /// key are left out: no row has such a primary key, and such values conflict with nothing.
    #[inline]
    pub fn for_each(&self, mut see: impl FnMut(usize, BoundKey<'_>)) {
        for (number, entry) in self.entries.iter().enumerate() {
            if !entry.equals_nothing {
                let key = BoundKey {
                    bytes: self.key(entry),
                    hi: self.hi(entry),
                    hash: entry.hash,
                };
                see(number, key);
            }
        }
    }
}

#[cold]
fn too_long_keys() -> SqlError {
    SqlError::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        "the keys of a program's accesses take more than 4 GiB",
    )
}

/// The error for inputs that are not a row of the program's input layout.
pub(crate) fn bad_inputs() -> SqlError {
    SqlError::new(
        SqlState::INTERNAL_ERROR,
        "the inputs are not a row of the program's input types",
    )
}

/// Whether every key with the prefix `hi` sorts at or below some key with the prefix `bound`: an inclusive
/// upper prefix is inside another.
pub(crate) fn upper_prefix_within(hi: &[u8], bound: &[u8]) -> bool {
    hi.starts_with(bound) || (hi < bound && !bound.starts_with(hi))
}

/// Turns a prefix into the smallest byte string above everything with the prefix. False: there is none (all
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
    use crate::{Access, ProgramBuilder};
    use proptest::prelude::*;
    use weft_base::{CatalogVersion, TableId};
    use weft_types::{SqlType, Value};

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

    #[test]
    fn a_range_from_a_prefix_to_itself_is_one_prefix() {
        let mut b = ProgramBuilder::new(CatalogVersion(1));
        let (one, other) = (b.input(SqlType::Int4), b.input(SqlType::Int4));
        let (one, other) = (KeyPart::Input(one), KeyPart::Input(other));
        b.add_access(Access::range(TableId(1), vec![one], Some(vec![other])));
        let program = b.finish().unwrap();
        let mut keys = AccessKeys::default();
        for (values, is_prefix) in [([5, 5], true), ([5, 6], false)] {
            let inputs = program.encode_inputs(&values.map(Value::Int4)).unwrap();
            keys.prepare(&program, &inputs).unwrap();
            let entry = &keys.entries[0];
            assert_eq!(entry.is_prefix, is_prefix);
            assert_eq!(keys.key(entry) == keys.hi(entry), is_prefix);
        }
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
