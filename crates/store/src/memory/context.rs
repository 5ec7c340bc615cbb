//! What belongs to one reader besides its boundary: why a row that it needed could not be read, and copies of
//! rows whose layout is not the one that it reads.

use std::ptr::NonNull;
use std::sync::OnceLock;

use hashbrown::HashMap;
use parking_lot::Mutex;
use weft_types::SqlError;

use super::slot::Slot;
use super::version::VersionRef;

/// Shared by all that one snapshot, or one batch, reads.
#[derive(Debug, Default)]
pub(crate) struct ReadContext {
    /// Why the first cold row that could not be read was not.
    failure: OnceLock<SqlError>,
    /// Few readers have some.
    converted: OnceLock<Box<ConvertedRows>>,
}

impl ReadContext {
    /// Fails if a row was needed that could not be read: then what was found is not all there is.
    ///
    /// # Errors
    /// Why it was not read.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        match self.failure.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// The slot of a row that was to be read; notes if it could not be.
    pub(super) fn note<'s>(&self, read: Result<Option<Slot<'s>>, SqlError>) -> Option<Slot<'s>> {
        read.unwrap_or_else(|error| {
            // The first one tells why.
            let _ = self.failure.set(error);
            None
        })
    }

    /// What `convert` makes of a version. Called once for each version, and kept as long as this is.
    pub(super) fn keep(&self, version: VersionRef<'_>, convert: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        let converted = self.converted.get_or_init(Box::default);
        converted.get(version.address(), convert)
    }
}

/// Copies of rows, by the address of the version: while a reader may use a version, no other one is there.
#[derive(Debug, Default)]
struct ConvertedRows(Mutex<HashMap<usize, KeptRow>>);

/// A row that nobody changes until the owner is dropped.
#[derive(Debug)]
struct KeptRow(NonNull<[u8]>);

// SAFETY: it owns the bytes, and shared access only reads them.
unsafe impl Send for KeptRow {}
// SAFETY: as above.
unsafe impl Sync for KeptRow {}

impl KeptRow {
    fn new(row: Vec<u8>) -> KeptRow {
        KeptRow(NonNull::from(Box::leak(row.into_boxed_slice())))
    }
}

impl Drop for KeptRow {
    fn drop(&mut self) {
        // SAFETY: leaked from a box in `new`, and not freed before.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl ConvertedRows {
    fn get(&self, address: usize, convert: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        let mut rows = self.0.lock();
        let kept = rows.entry(address).or_insert_with(|| {
            let mut row = Vec::new();
            convert(&mut row);
            KeptRow::new(row)
        });
        // SAFETY: the bytes do not move when the map grows, and no entry is removed before `self` is dropped,
        // which the result borrows. See the test `rows_stay_where_they_are`.
        unsafe { kept.0.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_where_they_are() {
        let rows = ConvertedRows::default();
        let of = |address: usize| rows.get(address, |row| row.extend_from_slice(&address.to_le_bytes()));
        let all: Vec<&[u8]> = std::thread::scope(|scope| {
            let half = |first: usize| move || (first..first + 500).map(of).collect::<Vec<_>>();
            let threads = [scope.spawn(half(0)), scope.spawn(half(250))];
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        for row in &all {
            let address = usize::from_le_bytes((*row).try_into().unwrap());
            let again = rows.get(address, |_| panic!("it is there"));
            assert!(std::ptr::eq(again, *row));
        }
        assert_eq!(all.len(), 1000);
        assert_eq!(rows.get(2000, |_| ()), b"", "an empty one");
    }
}
