//! From declared accesses and bound inputs to key bytes.

use weft_base::TableId;
use weft_ops::hash64;
use weft_types::{SqlError, SqlState};

use crate::program::{AccessKind, Program};

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

/// The encoded keys of one run's accesses: made once, for the lock manager, the plan of the lookups and the
/// guard.
#[derive(Clone, Debug, Default)]
pub struct AccessKeys {
    pub(crate) entries: Vec<AccessKey>,
    bytes: Vec<u8>,
}

/// The key of one access, and what is asked of the access itself.
#[derive(Clone, Copy, Debug)]
pub struct AccessKey {
    /// See [`crate::Access::kind`].
    pub kind: AccessKind,
    /// See [`crate::Access::table`].
    pub table: TableId,
    /// Columns in `key`.
    pub(crate) columns: usize,
    pub(crate) key: (usize, usize),
    hash: u64,
    pub(crate) hi: Option<(usize, usize)>,
    /// A part of the key is NULL: it equals nothing.
    pub(crate) has_null: bool,
    /// A range of all keys that begin with `key`.
    pub(crate) is_prefix: bool,
}

impl AccessKey {
    /// [`hash64`] of the key of a row or value; of others, 0.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// Room for a key in [`AccessKeys`], in bytes.
const KEY_ROOM: usize = 24;

impl AccessKeys {
    /// Encodes the keys for some inputs. Errors: inputs that are no row of the program's input types.
    pub fn prepare(&mut self, program: &Program, inputs: &[u8]) -> Result<(), SqlError> {
        let layouts = &program.layouts;
        layouts.inputs.validate(inputs).map_err(|_| bad_inputs())?;
        self.entries.clear();
        self.bytes.clear();
        self.entries.reserve(program.accesses.len());
        self.bytes.reserve((program.accesses.len() + 3) * KEY_ROOM);
        for (access, recipe) in program.accesses.iter().zip(&layouts.resolved.accesses) {
            let start = self.bytes.len();
            let has_null = recipe.key.append(&layouts.inputs, inputs, &mut self.bytes);
            let key_end = self.bytes.len();
            let hi = recipe.hi.as_ref().map(|recipe| {
                recipe.append(&layouts.inputs, inputs, &mut self.bytes);
                (key_end, self.bytes.len())
            });
            let is_prefix = hi.is_some_and(|hi| self.slice(hi) == self.slice((start, key_end)));
            let hash = match access.kind {
                AccessKind::ReadRow
                | AccessKind::WriteRow
                | AccessKind::InsertRow
                | AccessKind::WriteValue(_) => hash64(self.slice((start, key_end))),
                AccessKind::ReadRange
                | AccessKind::WriteRange
                | AccessKind::ReadTable
                | AccessKind::WriteTable => 0,
            };
            self.entries.push(AccessKey {
                hash,
                kind: access.kind,
                table: access.table,
                columns: access.key.len(),
                key: (start, key_end),
                hi,
                has_null,
                is_prefix,
            });
        }
        Ok(())
    }

    /// Takes the keys of others.
    pub(crate) fn copy_from(&mut self, other: &AccessKeys) {
        self.entries.clone_from(&other.entries);
        self.bytes.clone_from(&other.bytes);
    }

    #[inline]
    pub(crate) fn slice(&self, (start, end): (usize, usize)) -> &[u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// The access with this number, unless its key equals nothing, and its key.
    #[inline]
    pub(crate) fn known(&self, access: usize) -> Option<(&AccessKey, &[u8])> {
        let entry = self.entries.get(access).filter(|entry| !entry.has_null)?;
        Some((entry, self.slice(entry.key)))
    }

    /// The key of an access; `None` if it equals nothing or there is no such access.
    #[inline]
    pub(crate) fn key_of(&self, access: usize) -> Option<&[u8]> {
        Some(self.known(access)?.1)
    }

    /// Calls `see` for every access, in order, with its number, the encoded key and, for a range with an
    /// upper bound, the encoded upper prefix. Rows and values with a NULL in their key are left out: no row
    /// has such a primary key, and such values conflict with nothing.
    #[inline]
    pub fn for_each(&self, mut see: impl FnMut(usize, &AccessKey, &[u8], Option<&[u8]>)) {
        for (number, entry) in self.entries.iter().enumerate() {
            let of_one_key = !matches!(entry.kind, AccessKind::ReadRange | AccessKind::WriteRange);
            if entry.has_null && of_one_key {
                continue;
            }
            let hi = entry.hi.map(|hi| self.slice(hi));
            see(number, entry, self.slice(entry.key), hi);
        }
    }
}

/// The error for inputs that are no row of the program's input layout.
pub(crate) fn bad_inputs() -> SqlError {
    SqlError::new(
        SqlState::INTERNAL_ERROR,
        "the inputs are not a row of the program's input types",
    )
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
