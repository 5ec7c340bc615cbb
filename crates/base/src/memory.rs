//! Memory by the page, and what a program may tell the memory system.
//!
//! [`PageMemory`] is zeroed memory straight from the system, aligned to 2 MB and advised to lie in 2 MB
//! pages: with ordinary pages a random access into several gigabytes waits for the page table as well, and
//! is about half as fast. The system may refuse (transparent huge pages switched off): then the memory lies
//! in ordinary pages and [`PageMemory::is_huge`] says so.
//!
//! A prefetch asks for a cache line ahead of its use. It never faults and changes nothing, so any address
//! may be given; a wrong one costs memory bandwidth only.

use std::io;
use std::ptr::NonNull;

/// Bytes of a cache line on the machines that this is made for.
pub const LINE_BYTES: usize = 64;
/// Bytes of a huge page, and the alignment of every [`PageMemory`].
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Which pages memory should lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The machine's ordinary pages, 4 KB as a rule.
    Ordinary,
    /// Pages of 2 MB where the system gives them.
    Huge,
}

/// Bytes of memory that the machine has, or that this process's control group may use if that is less.
/// Memory that the system does not tell of counts as 4 GiB.
#[must_use]
pub fn machine_bytes() -> usize {
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok());
    // SAFETY: asks for a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    let pages = usize::try_from(pages).ok().filter(|pages| *pages > 0);
    let all = pages.map_or(4 << 30, |pages| pages.saturating_mul(system::page_bytes()));
    group.map_or(all, |group: usize| group.min(all))
}

/// A range of zeroed memory of its own, given back on drop. Pages take memory once they are touched.
#[derive(Debug)]
pub struct PageMemory {
    base: NonNull<u8>,
    bytes: usize,
    is_huge: bool,
}

// SAFETY: plain memory with one owner; what is done through its address is the user's affair.
unsafe impl Send for PageMemory {}
// SAFETY: as above.
unsafe impl Sync for PageMemory {}

impl PageMemory {
    /// At least `bytes` bytes, rounded up to whole huge pages. Errors: the system has no more.
    pub fn new(bytes: usize, pages: Pages) -> io::Result<Self> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .filter(|bytes| *bytes <= isize::MAX as usize / 2)
            .ok_or_else(too_much)?;
        let base = system::map(bytes)?;
        let is_huge = system::advise(base, bytes, pages);
        Ok(PageMemory { base, bytes, is_huge })
    }

    /// The first byte; aligned to [`HUGE_PAGE_BYTES`].
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its size.
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Has the system give pages to `bytes` bytes from `from` on, as far as they are inside, as the first
    /// touch would; what they hold stays. Takes the time that it takes to clear those pages. Errors:
    /// `Unsupported` where the system never does that; no memory at this moment.
    pub fn populate(&self, from: usize, bytes: usize) -> io::Result<()> {
        let from = from.min(self.bytes);
        let bytes = bytes.min(self.bytes - from);
        // SAFETY: `from` is at most the size, so the pointer is inside or at the end.
        let start = unsafe { self.base.add(from) };
        match bytes {
            0 => Ok(()),
            bytes => system::populate(start, bytes),
        }
    }

    /// How many of `bytes` bytes from `from` on, as far as they are inside, have pages at this moment; 0
    /// where the system does not tell.
    pub fn resident_bytes(&self, from: usize, bytes: usize) -> usize {
        let page_bytes = system::page_bytes();
        let (from, end) = (from.min(self.bytes), from.saturating_add(bytes).min(self.bytes));
        let first = from - from % page_bytes;
        // SAFETY: `first` is at most the size, so the pointer is inside or at the end.
        let start = unsafe { self.base.add(first) };
        let pages = system::resident_pages(start, (end - first).div_ceil(page_bytes));
        let begins = pages
            .iter()
            .enumerate()
            .map(|(page, is_there)| (first + page * page_bytes, is_there));
        let there = begins.filter(|(_, is_there)| **is_there);
        there
            .map(|(begin, _)| end.min(begin + page_bytes) - from.max(begin))
            .sum()
    }

    /// The system takes huge pages for it.
    pub fn is_huge(&self) -> bool {
        self.is_huge
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        system::unmap(self.base, self.bytes);
    }
}

#[cfg(not(miri))]
mod system {
    use std::io;
    use std::ptr::{self, NonNull};
    use std::sync::OnceLock;

    use super::{HUGE_PAGE_BYTES, Pages};

    /// Maps more than is asked for and gives back what lies before and after the aligned part.
    pub(super) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
        let whole = bytes + HUGE_PAGE_BYTES;
        // SAFETY: a new private mapping at an address of the system's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                whole,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast::<u8>();
        let before = start.align_offset(HUGE_PAGE_BYTES);
        let after = HUGE_PAGE_BYTES - before;
        // SAFETY: both parts lie inside the mapping, at page boundaries, and nobody uses them.
        unsafe {
            if before > 0 {
                libc::munmap(start.cast(), before);
            }
            if after > 0 {
                libc::munmap(start.add(before + bytes).cast(), after);
            }
            NonNull::new(start.add(before)).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
        }
    }

    /// Returns whether the memory will lie in huge pages.
    pub(super) fn advise(base: NonNull<u8>, bytes: usize, pages: Pages) -> bool {
        #[cfg(target_os = "linux")]
        {
            let advice = match pages {
                Pages::Huge => libc::MADV_HUGEPAGE,
                Pages::Ordinary => libc::MADV_NOHUGEPAGE,
            };
            // SAFETY: our own mapping; the advice changes no contents.
            let taken = unsafe { libc::madvise(base.as_ptr().cast(), bytes, advice) } == 0;
            taken && pages == Pages::Huge && is_enabled()
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (base, bytes, pages);
            false
        }
    }

    pub(super) fn populate(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: inside our own mapping; contents stay as they are.
            let done = unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
            if done == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            Err(match error.raw_os_error() {
                Some(libc::EINVAL | libc::ENOSYS) => io::ErrorKind::Unsupported.into(),
                _ => error,
            })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (start, bytes);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Bytes of an ordinary page.
    pub(super) fn page_bytes() -> usize {
        // SAFETY: asks for a number.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes > 0)
            .unwrap_or(4096)
    }

    /// Whether each of so many ordinary pages is there; none if the system does not tell.
    pub(super) fn resident_pages(start: NonNull<u8>, count: usize) -> Vec<bool> {
        let mut pages = vec![0; count];
        // SAFETY: pages of our own mapping, the first at `start`, and a byte for each of them.
        let done = unsafe { libc::mincore(start.as_ptr().cast(), count * page_bytes(), pages.as_mut_ptr()) };
        let told = if done == 0 { pages } else { Vec::new() };
        told.into_iter().map(|page| page & 1 == 1).collect()
    }

    /// The advice is accepted without effect where huge pages are switched off for the whole machine.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    fn is_enabled() -> bool {
        static ENABLED: OnceLock<bool> = OnceLock::new();
        *ENABLED.get_or_init(|| {
            std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
                .is_ok_and(|setting| !setting.contains("[never]"))
        })
    }

    pub(super) fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: mapped by `map` with this size, and nobody uses it any more.
        unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
    }
}

/// The same from the allocator, for an interpreter that knows no mappings.
#[cfg(miri)]
mod system {
    use std::alloc::{self, Layout};
    use std::io;
    use std::ptr::NonNull;

    use super::{HUGE_PAGE_BYTES, Pages};

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, HUGE_PAGE_BYTES).unwrap_or(Layout::new::<u8>())
    }

    pub(super) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc::alloc_zeroed(layout(bytes)) })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    pub(super) fn advise(_: NonNull<u8>, _: usize, _: Pages) -> bool {
        false
    }

    pub(super) fn populate(_: NonNull<u8>, _: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn page_bytes() -> usize {
        4096
    }

    pub(super) fn resident_pages(_: NonNull<u8>, _: usize) -> Vec<bool> {
        Vec::new()
    }

    pub(super) fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: allocated by `map` with this layout.
        unsafe { alloc::dealloc(base.as_ptr(), layout(bytes)) };
    }
}

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
    let behind = address.addr() % LINE_BYTES;
    let mut line = address.cast::<u8>().wrapping_sub(behind);
    // Beyond the last address it begins anew: any address may be given.
    for _ in 0..bytes.saturating_add(behind + LINE_BYTES - 1) / LINE_BYTES {
        prefetch(line);
        line = line.wrapping_add(LINE_BYTES);
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

    #[test]
    fn populating_keeps_contents_and_bounds() {
        let memory = PageMemory::new(2 * HUGE_PAGE_BYTES, Pages::Huge).unwrap();
        // SAFETY: inside the memory, which is ours.
        unsafe { memory.base().add(HUGE_PAGE_BYTES).write(7) };
        let is_done = memory.populate(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).is_ok();
        for (from, bytes) in [
            (0, HUGE_PAGE_BYTES),
            (0, usize::MAX),
            (HUGE_PAGE_BYTES, usize::MAX),
        ] {
            assert_eq!(memory.populate(from, bytes).is_ok(), is_done, "{from} {bytes}");
        }
        assert!(
            memory.populate(usize::MAX, 1).is_ok(),
            "nothing is there to be done"
        );
        // SAFETY: as above.
        let bytes = unsafe { [0, HUGE_PAGE_BYTES].map(|at| memory.base().add(at).read()) };
        assert_eq!(bytes, [0, 7]);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn resident_bytes_are_counted_within_the_bounds() {
        let memory = PageMemory::new(HUGE_PAGE_BYTES, Pages::Ordinary).unwrap();
        let page_bytes = system::page_bytes();
        for page in [0, 5] {
            // SAFETY: inside the memory, which is ours.
            unsafe { memory.base().add(page * page_bytes).write(1) };
        }
        for (from, bytes, expected) in [
            (0, HUGE_PAGE_BYTES, 2 * page_bytes),
            (0, usize::MAX, 2 * page_bytes),
            (10, 20, 20),
            (page_bytes - 10, 20, 10),
            (page_bytes, 4 * page_bytes, 0),
            (5 * page_bytes + 1, usize::MAX, page_bytes - 1),
            (HUGE_PAGE_BYTES, 1, 0),
            (usize::MAX, 1, 0),
            (0, 0, 0),
        ] {
            assert_eq!(memory.resident_bytes(from, bytes), expected, "{from} {bytes}");
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn populated_pages_are_resident_before_they_are_touched() {
        for pages in [Pages::Ordinary, Pages::Huge] {
            let memory = PageMemory::new(3 * HUGE_PAGE_BYTES, pages).unwrap();
            let resident =
                || [0, 1, 2].map(|at| memory.resident_bytes(at * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES));
            assert_eq!(resident(), [0, 0, 0], "nobody has touched them");
            match memory.populate(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES) {
                Ok(()) => {
                    let [before, asked_for, behind] = resident();
                    assert_eq!(asked_for, HUGE_PAGE_BYTES);
                    assert_eq!((before, behind), (0, 0), "nobody has asked for them");
                }
                // Linux before 5.14.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    println!("NOT TESTED: this system cannot populate pages");
                    assert_eq!(resident(), [0, 0, 0]);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn page_memory_is_zeroed_aligned_and_writable() {
        for pages in [Pages::Ordinary, Pages::Huge] {
            for bytes in [0, 1, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1] {
                let memory = PageMemory::new(bytes, pages).unwrap();
                assert!(memory.base().addr().get().is_multiple_of(HUGE_PAGE_BYTES));
                assert_eq!(
                    memory.size_bytes(),
                    bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES)
                );
                assert!(pages == Pages::Huge || !memory.is_huge());
                let last = memory.size_bytes() - 1;
                // SAFETY: both bytes lie inside the memory, which nobody else uses.
                unsafe {
                    assert_eq!(
                        (*memory.base().as_ptr(), *memory.base().as_ptr().add(last)),
                        (0, 0)
                    );
                    *memory.base().as_ptr().add(last) = 1;
                }
            }
        }
        assert!(PageMemory::new(usize::MAX, Pages::Huge).is_err());
        // Miri ends the test where an allocator would refuse.
        assert!(cfg!(miri) || PageMemory::new(isize::MAX as usize / 4, Pages::Huge).is_err());
    }
}
