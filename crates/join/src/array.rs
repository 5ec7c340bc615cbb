//! Arrays of plain values, zeroed, in huge pages where they are large, reserved in a budget before they are
//! made.
//!
//! Random access into gigabytes is about twice as fast in pages of 2 MB (`weft_base::memory`). Arrays that
//! are smaller than half such a page come from the allocator: a join of few tuples would otherwise spend its
//! time having pages cleared.

use std::marker::PhantomData;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::Arc;

use weft_base::memory::{HUGE_PAGE_BYTES, LINE_BYTES, PageMemory, Pages};
use weft_base::{Budget, Exceeded, Reservation};

use crate::error::JoinError;

/// Smaller arrays come from the allocator.
const PAGES_FROM_BYTES: usize = HUGE_PAGE_BYTES / 2;

/// Values for which any bits will do, zeros above all, without padding and without a destructor.
///
/// # Safety
/// The implementor answers for all of that, and for an alignment of at most [`LINE_BYTES`].
pub(crate) unsafe trait Plain: Send + Sync + 'static {}

// SAFETY: an integer.
unsafe impl Plain for u64 {}

/// One cache line of memory.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Cell([u8; LINE_BYTES]);

enum Memory {
    Heap(#[expect(dead_code, reason = "owns what the array points into")] Vec<Cell>),
    Pages(#[expect(dead_code, reason = "owns what the array points into")] PageMemory),
}

/// So many values; begins at a cache line.
pub(crate) struct Array<T> {
    base: NonNull<T>,
    len: usize,
    _memory: Memory,
    _room: Option<Reservation>,
    _values: PhantomData<T>,
}

// SAFETY: the memory belongs to this array alone, and its values may go from thread to thread.
unsafe impl<T: Plain> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Array<T> {}

/// Reserves bytes for a purpose.
pub(crate) fn reserve(
    budget: &Arc<Budget>,
    bytes: usize,
    purpose: &'static str,
) -> Result<Reservation, JoinError> {
    budget
        .reserve(bytes)
        .map_err(|exceeded| refused(exceeded, bytes, purpose))
}

/// The error for a reservation that was refused.
pub(crate) fn refused(exceeded: Exceeded, bytes: usize, purpose: &'static str) -> JoinError {
    let bytes_max = exceeded.bytes_max;
    JoinError::Budget {
        purpose,
        bytes,
        bytes_max,
    }
}

/// Bytes that [`Array::new`] reserves for so many values; none if there is no such number.
pub(crate) fn array_bytes<T>(len: usize) -> Option<usize> {
    let bytes = len
        .checked_mul(size_of::<T>())?
        .checked_next_multiple_of(LINE_BYTES)?;
    match bytes {
        ..PAGES_FROM_BYTES => Some(bytes),
        _ => bytes.checked_next_multiple_of(HUGE_PAGE_BYTES),
    }
}

impl<T: Plain> Array<T> {
    /// So many zeros. Without a budget, the caller has reserved the bytes already.
    pub(crate) fn new(
        len: usize,
        budget: Option<&Arc<Budget>>,
        purpose: &'static str,
    ) -> Result<Array<T>, JoinError> {
        const { assert!(align_of::<T>() <= LINE_BYTES) };
        let too_much = || JoinError::Memory { bytes: usize::MAX };
        let bytes = array_bytes::<T>(len).ok_or_else(too_much)?;
        let room = budget.map(|budget| reserve(budget, bytes, purpose)).transpose()?;
        let no_memory = || JoinError::Memory { bytes };
        let (base, memory) = if bytes < PAGES_FROM_BYTES {
            let mut cells = Vec::new();
            let count = bytes / LINE_BYTES;
            cells.try_reserve_exact(count).map_err(|_| no_memory())?;
            cells.resize(count, Cell([0; LINE_BYTES]));
            let base = NonNull::new(cells.as_mut_ptr()).ok_or_else(no_memory)?;
            (base.cast(), Memory::Heap(cells))
        } else {
            let pages = PageMemory::new(bytes, Pages::Huge).map_err(|_| no_memory())?;
            (pages.base().cast(), Memory::Pages(pages))
        };
        Ok(Array {
            base,
            len,
            _memory: memory,
            _room: room,
            _values: PhantomData,
        })
    }

    /// The first value, for writers that share the array out among themselves.
    pub(crate) fn base(&self) -> NonNull<T> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All values. Whoever writes through [`Array::base`] must have ended, and be ordered before.
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: so many values lie there, any bits are values, and they are ours.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and the array is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_zeroed_aligned_and_counted_in_the_budget() {
        let budget = Budget::new(8 << 20);
        for len in [0, 1, 100, 1 << 17, 1 << 18] {
            let mut array = Array::<u64>::new(len, Some(&budget), "a test").unwrap();
            assert_eq!(array.len(), len);
            assert!(array.as_slice().iter().all(|value| *value == 0));
            assert!(array.base().addr().get().is_multiple_of(LINE_BYTES));
            assert_eq!(Some(budget.held()), array_bytes::<u64>(len));
            if let Some(last) = array.as_mut_slice().last_mut() {
                *last = 7;
            }
            assert_eq!(array.as_slice().iter().sum::<u64>(), if len == 0 { 0 } else { 7 });
        }
        assert_eq!(budget.held(), 0);
        let error = Array::<u64>::new(1 << 21, Some(&budget), "a test").err().unwrap();
        assert!(
            error.is_of_room() && error.to_string().contains("a test"),
            "{error}"
        );
        assert!(Array::<u64>::new(usize::MAX / 2, None, "a test").is_err());
        assert_eq!(budget.held(), 0);
    }
}
