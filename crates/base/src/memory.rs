//! What a program may tell the memory system.
//!
//! A prefetch asks for a cache line ahead of its use. It never faults and changes nothing, so any address
//! may be given; a wrong one costs memory bandwidth only.

/// Bytes of a cache line on the machines that this is made for.
pub const LINE_BYTES: usize = 64;

/// Asks for the cache line at `address`. Costs one instruction; nothing where the machine has no such.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks for every cache line that `bytes` bytes at `address` touch.
#[inline(always)]
pub fn prefetch_bytes<T>(address: *const T, bytes: usize) {
    let first = address.addr() & !(LINE_BYTES - 1);
    let end = address.addr().saturating_add(bytes);
    for line in (first..end).step_by(LINE_BYTES) {
        prefetch(address.with_addr(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_may_be_prefetched() {
        let bytes = [7u8; 1024];
        prefetch(std::ptr::null::<u8>());
        prefetch_bytes(bytes.as_ptr(), bytes.len());
        prefetch_bytes(std::ptr::without_provenance::<u8>(usize::MAX - 100), 1_000);
        assert_eq!(bytes, [7; 1024]);
    }
}
