//! Memory that several ranks read and write at the same time: 64-bit atomic words.
//!
//! Bytes are copied word by word, each word by a relaxed atomic operation: a data race is then a mixture of
//! old and new words, never undefined behaviour. Where a range begins or ends inside a word, the bytes are
//! exchanged into it, so that two ranks may write neighbouring bytes of one word.
//!
//! # Ordering
//!
//! Copies are relaxed. A flush is a fence, and words are operated on with SeqCst: what was copied in before a
//! fence, before a word was stored, is seen by whoever loads that word and then copies out. One rule for all
//! words is worth more than the few nanoseconds; on x86-64 loads cost the same.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = 8;
const LINE: usize = 64;

/// Words of the heap, or of a mapping that other processes have as well.
pub(crate) enum Memory {
    /// Of this process: so many words from an index on, where a cache line begins.
    Heap(Box<[AtomicU64]>, usize, usize),
    /// Shared with other processes.
    Mapped(Mapping),
}

impl Memory {
    /// Zeros on the heap, from the beginning of a cache line on: a slot must not lie on two.
    pub(crate) fn heap(bytes: usize) -> Self {
        let count = bytes.div_ceil(WORD);
        let words: Box<[AtomicU64]> = (0..count + LINE / WORD).map(|_| AtomicU64::new(0)).collect();
        let start = words.as_ptr().align_offset(LINE).min(LINE / WORD);
        Self::Heap(words, start, count)
    }
}

impl Deref for Memory {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        match self {
            Self::Heap(words, start, count) => words.get(*start..*start + *count).unwrap_or_default(),
            Self::Mapped(mapping) => mapping,
        }
    }
}

/// A shared mapping of a file.
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is only reached as atomic words, which any thread may use.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first bytes of a file for reading and writing. To touch what lies behind the file's end would
    /// end the process: the caller knows that the file is long enough.
    pub(crate) fn of(file: &std::fs::File, bytes: usize) -> std::io::Result<Self> {
        Self::at(file, 0, bytes)
    }

    /// The same from a byte on that is at a page's beginning.
    pub(crate) fn at(file: &std::fs::File, start: u64, bytes: usize) -> std::io::Result<Self> {
        use std::os::fd::AsRawFd;
        let words = bytes.div_ceil(WORD);
        if words == 0 {
            return Ok(Self {
                start: NonNull::dangling(),
                words,
            });
        }
        let offset = libc::off_t::try_from(start).map_err(std::io::Error::other)?;
        // SAFETY: a new mapping at an address of the system's choice changes no memory that anybody has.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * WORD,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        match NonNull::new(start.cast::<AtomicU64>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, words }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Deref for Mapping {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that many words, is aligned to a page, and lives as long as `self`. Zeros,
        // and whatever other processes store, are valid words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.words > 0 {
            // SAFETY: this mapping was made by `of` and nobody borrows from it any more.
            unsafe {
                libc::munmap(self.start.as_ptr().cast(), self.words * WORD);
            }
        }
    }
}

/// Copies bytes into the words, from byte `offset` on. What would lie behind the end is left out.
#[inline]
pub(crate) fn copy_in(words: &[AtomicU64], offset: usize, bytes: &[u8]) {
    let (head, middle, at) = split(offset, bytes.len());
    let (first, rest) = bytes.split_at(head);
    merge(words, offset, first);
    let (body, last) = rest.split_at(middle);
    for (word, chunk) in words
        .get(at..)
        .unwrap_or_default()
        .iter()
        .zip(body.as_chunks::<WORD>().0)
    {
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    merge(words, offset + head + middle, last);
}

/// Copies bytes out of the words.
#[inline]
pub(crate) fn copy_out(words: &[AtomicU64], offset: usize, into: &mut [u8]) {
    let (head, middle, at) = split(offset, into.len());
    let (first, rest) = into.split_at_mut(head);
    extract(words, offset, first);
    let (body, last) = rest.split_at_mut(middle);
    let source = words.get(at..).unwrap_or_default();
    for (word, chunk) in source.iter().zip(body.as_chunks_mut::<WORD>().0) {
        *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    extract(words, offset + head + middle, last);
}

/// How many bytes come before the first whole word, how many are whole words, and which word is the first.
fn split(offset: usize, length: usize) -> (usize, usize, usize) {
    let head = (offset.next_multiple_of(WORD) - offset).min(length);
    let middle = (length - head) / WORD * WORD;
    (head, middle, (offset + head) / WORD)
}

/// Exchanges some bytes of one word. A plain store would undo what another rank writes beside them.
fn merge(words: &[AtomicU64], offset: usize, bytes: &[u8]) {
    let Some(word) = words.get(offset / WORD).filter(|_| !bytes.is_empty()) else {
        return;
    };
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let mut parts = old.to_ne_bytes();
        for (part, byte) in parts.iter_mut().skip(offset % WORD).zip(bytes) {
            *part = *byte;
        }
        let new = u64::from_ne_bytes(parts);
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

fn extract(words: &[AtomicU64], offset: usize, into: &mut [u8]) {
    if let Some(word) = words.get(offset / WORD) {
        let parts = word.load(Ordering::Relaxed).to_ne_bytes();
        for (byte, part) in into.iter_mut().zip(parts.iter().skip(offset % WORD)) {
            *byte = *part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_copied_exactly() {
        let most = if cfg!(miri) { 11 } else { 20 };
        for offset in 0..most {
            for length in 0..most {
                let words = Memory::heap(48);
                let mut expected = vec![0_u8; 48];
                let bytes: Vec<u8> = (1_u8..).take(length).collect();
                copy_in(&words, offset, &bytes);
                expected[offset..offset + length].copy_from_slice(&bytes);
                let mut all = vec![0xff; 48];
                copy_out(&words, 0, &mut all);
                assert_eq!(all, expected, "{offset} {length}");
                let mut part = vec![0; length];
                copy_out(&words, offset, &mut part);
                assert_eq!(part, bytes, "{offset} {length}");
            }
        }
    }

    #[test]
    fn neighbours_in_a_word_do_not_undo_each_other() {
        let words = Memory::heap(8);
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for half in 0..2 {
                let words = &words;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let bytes = [(round % 251) as u8; 4];
                        copy_in(words, half * 4, &bytes);
                        let mut seen = [0; 4];
                        copy_out(words, half * 4, &mut seen);
                        assert_eq!(seen, bytes);
                    }
                });
            }
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn two_mappings_of_a_file_are_the_same_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let (one, other) = (Mapping::of(&file, 100).unwrap(), Mapping::of(&file, 100).unwrap());
        copy_in(&one, 3, b"seen by both");
        let mut seen = [0; 12];
        copy_out(&other, 3, &mut seen);
        assert_eq!(&seen, b"seen by both");
        assert_eq!(Mapping::of(&file, 0).unwrap().len(), 0);
    }
}
