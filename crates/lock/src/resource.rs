//! Lockable resources, named by 64 bits.
//!
//! The top four bits encode the kind. Tables keep their id in the low bits; rows, ranges and values are a
//! hash of table or index and encoded key. Two resources of one kind with equal hashes share a lock: that can
//! only make a transaction wait needlessly, never admit two that conflict.

use std::fmt;

use weft_base::{IndexId, TableId};

use crate::LockMode;

/// A lockable thing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u64);

/// Kinds of resources, as in the top four bits of a [`ResourceId`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ResourceKind {
    /// The catalog as a whole.
    Catalog = 1,
    /// A table.
    Table = 2,
    /// The keys of a table that share a prefix.
    Range = 3,
    /// A row, by key.
    Row = 4,
    /// A value of a unique index.
    Value = 5,
    /// A sequence or another thing numbered by its owner.
    Other = 6,
    /// A number that clients lock.
    Advisory = 7,
}

/// One lock asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRequest {
    /// What to lock.
    pub resource: ResourceId,
    /// How.
    pub mode: LockMode,
}

const KIND_SHIFT: u32 = 60;
const NUMBER_MASK: u64 = (1 << KIND_SHIFT) - 1;

impl ResourceId {
    const fn new(kind: ResourceKind, number: u64) -> Self {
        Self((kind as u64) << KIND_SHIFT | number & NUMBER_MASK)
    }

    /// The catalog.
    #[must_use]
    pub const fn catalog() -> Self {
        Self::new(ResourceKind::Catalog, 0)
    }

    /// A table.
    #[must_use]
    pub const fn table(table: TableId) -> Self {
        Self::new(ResourceKind::Table, table.0 as u64)
    }

    /// The keys of a table that start with `prefix` (see `weft_types::range_prefix_len`).
    #[must_use]
    pub fn range(table: TableId, prefix: &[u8]) -> Self {
        Self::new(ResourceKind::Range, of_owner(table.0, weft_ops::hash64(prefix)))
    }

    /// The row of a table with this encoded key.
    #[must_use]
    pub fn row(table: TableId, key: &[u8]) -> Self {
        Self::row_hashed(table, weft_ops::hash64(key))
    }

    /// As [`ResourceId::row`], for a caller that knows the key's [`weft_ops::hash64`].
    #[must_use]
    #[inline]
    pub const fn row_hashed(table: TableId, hash: u64) -> Self {
        Self::new(ResourceKind::Row, of_owner(table.0, hash))
    }

    /// A value of a unique index.
    #[must_use]
    pub fn value(index: IndexId, key: &[u8]) -> Self {
        Self::value_hashed(index, weft_ops::hash64(key))
    }

    /// As [`ResourceId::value`], for a caller that knows the key's [`weft_ops::hash64`].
    #[must_use]
    #[inline]
    pub const fn value_hashed(index: IndexId, hash: u64) -> Self {
        Self::new(ResourceKind::Value, of_owner(index.0, hash))
    }

    /// Something that its owner numbers; 60 bits of the number count.
    #[must_use]
    pub const fn other(number: u64) -> Self {
        Self::new(ResourceKind::Other, number)
    }

    /// What clients name by these bytes.
    #[must_use]
    pub fn advisory(name: &[u8]) -> Self {
        Self::new(ResourceKind::Advisory, weft_ops::hash64(name))
    }

    /// The id of a table, a hash, or the number given by an owner: all but the kind.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & NUMBER_MASK
    }

    /// The kind; `None` for a number that no constructor made.
    #[must_use]
    pub const fn kind(self) -> Option<ResourceKind> {
        Some(match self.0 >> KIND_SHIFT {
            1 => ResourceKind::Catalog,
            2 => ResourceKind::Table,
            3 => ResourceKind::Range,
            4 => ResourceKind::Row,
            5 => ResourceKind::Value,
            6 => ResourceKind::Other,
            7 => ResourceKind::Advisory,
            _ => return None,
        })
    }
}

/// A key's hash, made different for the same key of another table or index. Owners have small numbers; the
/// factor, the golden ratio's, spreads them over all bits.
const fn of_owner(owner: u32, hash: u64) -> u64 {
    hash ^ (owner as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl LockRequest {
    /// A request.
    #[must_use]
    pub const fn new(resource: ResourceId, mode: LockMode) -> Self {
        Self { resource, mode }
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0 & NUMBER_MASK;
        match self.kind() {
            Some(ResourceKind::Catalog) => f.write_str("catalog"),
            Some(ResourceKind::Table) => write!(f, "table {number}"),
            Some(ResourceKind::Range) => write!(f, "range {number:015x}"),
            Some(ResourceKind::Row) => write!(f, "row {number:015x}"),
            Some(ResourceKind::Value) => write!(f, "value {number:015x}"),
            Some(ResourceKind::Other) => write!(f, "object {number}"),
            Some(ResourceKind::Advisory) => write!(f, "advisory {number:015x}"),
            None => write!(f, "resource {:016x}", self.0),
        }
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_owners_keep_resources_apart() {
        let all = [
            ResourceId::catalog(),
            ResourceId::table(TableId(0)),
            ResourceId::table(TableId(u32::MAX)),
            ResourceId::range(TableId(1), b"k"),
            ResourceId::row(TableId(1), b"k"),
            ResourceId::row(TableId(2), b"k"),
            ResourceId::row(TableId(1), b"l"),
            ResourceId::value(IndexId(1), b"k"),
            ResourceId::other(u64::MAX),
            ResourceId::advisory(b"k"),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(a.kind().is_some());
            assert!(all.iter().skip(i + 1).all(|b| a != b), "{a}");
        }
        let hash = weft_ops::hash64(b"k");
        assert_eq!(
            ResourceId::row_hashed(TableId(1), hash),
            ResourceId::row(TableId(1), b"k")
        );
        assert_eq!(
            ResourceId::value_hashed(IndexId(1), hash),
            ResourceId::value(IndexId(1), b"k")
        );
        assert_eq!(ResourceId::table(TableId(7)).to_string(), "table 7");
        assert_eq!(ResourceId(0).kind(), None);
    }
}
