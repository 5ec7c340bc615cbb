//! Removes declared accesses that are covered by others.

use weft_program::{Access, AccessKind};

/// Whether an access is covered by another one.
pub(super) fn is_covered(access: &Access, all: &[Access]) -> bool {
    all.iter().any(|other| {
        if other == access || other.table != access.table {
            return false;
        }
        let narrower = access.kind != other.kind || access.key != other.key;
        let one_prefix = other.hi.as_ref() == Some(&other.key);
        let inside = access.key.starts_with(&other.key)
            && access.hi.as_ref().is_none_or(|hi| hi.starts_with(&other.key));
        match other.kind {
            AccessKind::WriteTable => narrower,
            AccessKind::ReadTable => matches!(access.kind, AccessKind::ReadRow | AccessKind::ReadRange),
            AccessKind::WriteRange => {
                let of_rows = !matches!(
                    access.kind,
                    AccessKind::WriteTable | AccessKind::ReadTable | AccessKind::WriteValue(_)
                );
                narrower && of_rows && one_prefix && inside
            }
            AccessKind::ReadRange => {
                let reads = matches!(access.kind, AccessKind::ReadRow | AccessKind::ReadRange);
                narrower && reads && one_prefix && inside
            }
            AccessKind::WriteRow => {
                matches!(access.kind, AccessKind::ReadRow | AccessKind::InsertRow) && access.key == other.key
            }
            _ => false,
        }
    })
}
