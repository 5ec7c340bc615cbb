//! Windows: memory of every rank that all ranks read and write without the owner's help.
//!
//! ```text
//! rank 0  [ its part ]  <-- put, get, fetch_add, compare_and_swap, load, store -- any rank
//! rank 1  [ its part, perhaps of another size ]
//! ```
//!
//! Creation is collective, as MPI's is (Barthels, section 6.1.2 says what is bad about it: therefore windows
//! are made early and kept). It compares a fingerprint of name and configuration, and the sizes where they
//! must be equal, before anything runs. A table in the control window keeps fingerprint and sizes of every
//! window, so that a rank which returns after a death finds its windows without the others' help.
//!
//! Every range is checked before an operation reaches a form. Order and completion: module `transport`.

use std::sync::Arc;

use crate::error::Error;
use crate::in_flight::{Flushes, InFlight};
use crate::rank::Rank;
use crate::transport::RawWindow;

/// Windows that can be open at one time, window 0 of the fabric itself included.
pub const WINDOWS_MAX: u32 = 64;

/// What a window is to be.
#[derive(Debug, Clone, Copy)]
pub struct WindowSpec<'a> {
    /// A name, for errors; the same on all ranks.
    pub name: &'a str,
    /// Bytes of this rank's part.
    pub bytes: u64,
    /// Whether all ranks' parts must have the same size.
    pub is_uniform: bool,
    /// A word that must be the same on all ranks: a version, a hash of settings.
    pub config: u64,
}

/// Which numbers of windows are in use; the same on all ranks, since creation and closing are collective.
#[derive(Debug, Default)]
pub(crate) struct WindowTable {
    used: u64,
}

impl WindowTable {
    fn lowest_free(&self) -> Option<u32> {
        let number = (self.used | 1).trailing_ones();
        (number < WINDOWS_MAX).then_some(number)
    }

    fn set(&mut self, number: u32, is_used: bool) {
        let bit = 1_u64 << number;
        self.used = if is_used {
            self.used | bit
        } else {
            self.used & !bit
        };
    }
}

pub(crate) struct Shared {
    name: String,
    number: u32,
    sizes: Vec<u64>,
    flushes: Vec<Flushes>,
    raw: Box<dyn RawWindow>,
    /// This rank has returned, and the others had the window.
    is_known: bool,
    rank: Rank,
}

impl Shared {
    pub(crate) fn flushes_of(&self, target: u32) -> Option<&Flushes> {
        self.flushes.get(target as usize)
    }

    /// As [`Window::flush`].
    pub(crate) fn flush(&self, target: u32) -> Result<(), Error> {
        self.rank.check_number(target)?;
        let flushes = self.flushes_of(target);
        let number = flushes.map_or(0, Flushes::begin);
        self.raw.flush(target)?;
        if let Some(flushes) = flushes {
            flushes.end(number);
        }
        self.rank.check_alive(target, "flush")
    }

    fn check(&self, target: u32, offset: u64, length: usize) -> Result<usize, Error> {
        self.rank.check_number(target)?;
        let window_bytes = self.sizes.get(target as usize).copied().unwrap_or(0);
        let length = length as u64;
        let end = offset.checked_add(length).filter(|end| *end <= window_bytes);
        let (Some(_), Ok(start)) = (end, usize::try_from(offset)) else {
            return Err(Error::OutOfRange {
                window: self.name.clone(),
                rank: target,
                offset,
                length,
                window_bytes,
            });
        };
        self.rank.check_alive(target, "access to its window")?;
        Ok(start)
    }

    fn check_word(&self, target: u32, offset: u64) -> Result<usize, Error> {
        let start = self.check(target, offset, 8)?;
        if offset.is_multiple_of(8) {
            Ok(start)
        } else {
            Err(Error::Unaligned {
                window: self.name.clone(),
                rank: target,
                offset,
            })
        }
    }
}

/// A window. Clones are the same window.
#[derive(Clone)]
pub struct Window {
    shared: Arc<Shared>,
}

impl Window {
    pub(crate) fn create(rank: &Rank, spec: &WindowSpec<'_>) -> Result<Self, Error> {
        let inner = &rank.inner;
        let number = inner
            .windows
            .lock()
            .lowest_free()
            .ok_or_else(|| Error::misuse(format!("more than {WINDOWS_MAX} windows")))?;
        let print = fingerprint(spec);
        let known = if rank.incarnation() == 0 {
            None
        } else {
            find_again(rank, spec, number, print)?
        };
        let is_known = known.is_some();
        let sizes = match known {
            Some(sizes) => sizes,
            None => agree(rank, spec, print)?,
        };
        inner.transport.make_part(number, spec.bytes, is_known)?;
        rank.write_table(number, print, &sizes);
        if !is_known {
            rank.barrier()?;
        }
        let raw = inner.transport.open(number, &sizes)?;
        inner.windows.lock().set(number, true);
        let shared = Shared {
            name: spec.name.to_owned(),
            number,
            flushes: sizes.iter().map(|_| Flushes::default()).collect(),
            sizes,
            raw,
            is_known,
            rank: rank.clone(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The name it was made with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The rank whose end of the window this is.
    #[must_use]
    pub fn rank(&self) -> &Rank {
        &self.shared.rank
    }

    /// Bytes of a rank's part; 0 for a rank that there is not.
    #[must_use]
    pub fn bytes_of(&self, rank: u32) -> u64 {
        self.shared.sizes.get(rank as usize).copied().unwrap_or(0)
    }

    /// Writes bytes into a rank's part. They are there after the next flush of that rank; the caller may
    /// reuse `bytes` at once.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `NoSuchRank`, `RankDead`; those of the form. This holds for all operations below.
    pub fn put(&self, target: u32, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let start = self.shared.check(target, offset, bytes.len())?;
        self.shared.raw.put(target, start, bytes)
    }

    /// The same of a buffer that is given away until a flush has completed the put: no copy is made.
    ///
    /// # Errors
    ///
    /// As for [`Self::put`].
    pub fn put_buffer(&self, target: u32, offset: u64, buffer: Vec<u8>) -> Result<InFlight, Error> {
        let start = self.shared.check(target, offset, buffer.len())?;
        // SAFETY: the buffer's memory does not move with the vector, and `InFlight` keeps it untouched until
        // a flush that began after this call has completed, or for ever.
        unsafe {
            self.shared
                .raw
                .put_in_place(target, start, buffer.as_ptr(), buffer.len())?;
        }
        Ok(InFlight::new(Arc::clone(&self.shared), target, buffer))
    }

    /// Reads as many bytes of a rank's part as the buffer is long, into the buffer.
    ///
    /// # Errors
    ///
    /// As for [`Self::put`].
    pub fn get(&self, target: u32, offset: u64, mut buffer: Vec<u8>) -> Result<InFlight, Error> {
        let start = self.shared.check(target, offset, buffer.len())?;
        // SAFETY: as in `put_buffer`; and nobody looks at the buffer before it is given back.
        unsafe {
            self.shared
                .raw
                .get_in_place(target, start, buffer.as_mut_ptr(), buffer.len())?;
        }
        Ok(InFlight::new(Arc::clone(&self.shared), target, buffer))
    }

    /// Reads bytes of a rank's part and waits for them: a get and a flush.
    ///
    /// # Errors
    ///
    /// As for [`Self::put`].
    pub fn read(&self, target: u32, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let bytes = self.get(target, offset, vec![0; into.len()])?.wait()?;
        for (to, from) in into.iter_mut().zip(bytes) {
            *to = from;
        }
        Ok(())
    }

    /// Returns when all that this rank asked of the target has happened.
    ///
    /// # Errors
    ///
    /// `RankDead` if the target is dead: nobody knows then what arrived.
    pub fn flush(&self, target: u32) -> Result<(), Error> {
        self.shared.flush(target)
    }

    /// The same for all targets. Ranks that are dead do not matter.
    ///
    /// # Errors
    ///
    /// Those of the form.
    pub fn flush_all(&self) -> Result<(), Error> {
        let numbers: Vec<u64> = self.shared.flushes.iter().map(Flushes::begin).collect();
        self.shared.raw.flush_all()?;
        for (flushes, number) in self.shared.flushes.iter().zip(numbers) {
            flushes.end(number);
        }
        Ok(())
    }

    /// Adds to a 64-bit word, wrapping; returns what it was. Waits for the answer.
    ///
    /// # Errors
    ///
    /// As for [`Self::put`]; `Unaligned`.
    pub fn fetch_add(&self, target: u32, offset: u64, value: u64) -> Result<u64, Error> {
        let start = self.shared.check_word(target, offset)?;
        self.shared.raw.fetch_add(target, start, value)
    }

    /// Stores `desired` if the word is `expected`; returns what it was. Waits for the answer.
    ///
    /// # Errors
    ///
    /// As for [`Self::put`]; `Unaligned`.
    pub fn compare_and_swap(
        &self,
        target: u32,
        offset: u64,
        expected: u64,
        desired: u64,
    ) -> Result<u64, Error> {
        let start = self.shared.check_word(target, offset)?;
        self.shared.raw.compare_and_swap(target, start, expected, desired)
    }

    /// Reads a word atomically. Waits for the answer.
    ///
    /// # Errors
    ///
    /// As for [`Self::put`]; `Unaligned`.
    pub fn load(&self, target: u32, offset: u64) -> Result<u64, Error> {
        let start = self.shared.check_word(target, offset)?;
        self.shared.raw.load(target, start)
    }

    /// Writes a word atomically. It is there when this returns.
    ///
    /// # Errors
    ///
    /// As for [`Self::put`]; `Unaligned`.
    pub fn store(&self, target: u32, offset: u64, value: u64) -> Result<(), Error> {
        let start = self.shared.check_word(target, offset)?;
        self.shared.raw.store(target, start, value)
    }

    /// Reads a word of this rank's own part: for polling. A few nanoseconds, no traffic.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `Unaligned`.
    pub fn local_load(&self, offset: u64) -> Result<u64, Error> {
        let start = self.shared.check_word(self.shared.rank.number(), offset)?;
        Ok(self.shared.raw.local_load(start))
    }

    /// Reads bytes of this rank's own part.
    ///
    /// # Errors
    ///
    /// `OutOfRange`.
    pub fn local_read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let start = self.shared.check(self.shared.rank.number(), offset, into.len())?;
        self.shared.raw.local_read(start, into);
        Ok(())
    }

    /// Writes bytes of this rank's own part. Others see them after a barrier or a word stored afterwards.
    ///
    /// # Errors
    ///
    /// `OutOfRange`.
    pub fn local_write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let start = self
            .shared
            .check(self.shared.rank.number(), offset, bytes.len())?;
        self.shared.raw.local_write(start, bytes);
        Ok(())
    }

    /// This rank's own part as a slice: what a join works on once all have written.
    ///
    /// # Safety
    ///
    /// While the slice lives nobody writes to this part: all ranks have flushed and then met in a barrier
    /// since the last put, and none puts again before the next barrier.
    #[must_use]
    pub unsafe fn local_bytes(&self) -> &[u8] {
        let length = self.bytes_of(self.shared.rank.number());
        // SAFETY: the part has that many bytes, stays where it is as long as the window is open, and the
        // caller answers for the writers.
        unsafe {
            std::slice::from_raw_parts(
                self.shared.raw.local_pointer(),
                usize::try_from(length).unwrap_or(0),
            )
        }
    }

    /// Closes the window. Collective.
    ///
    /// # Errors
    ///
    /// `Misuse` while there are clones of it or buffers in flight; `RankDead`, `Deadline`; those of the form.
    pub fn close(self) -> Result<(), Error> {
        if Arc::strong_count(&self.shared) > 1 {
            return Err(Error::misuse(format!(
                "window {:?} is still used here",
                self.name()
            )));
        }
        self.flush_all()?;
        let rank = self.shared.rank.clone();
        let number = self.shared.number;
        rank.barrier()?;
        drop(self);
        rank.write_table(number, 0, &[]);
        rank.inner.transport.drop_part(number);
        rank.inner.windows.lock().set(number, false);
        rank.barrier()
    }

    pub(crate) fn is_known(&self) -> bool {
        self.shared.is_known
    }

    pub(crate) fn raw(&self) -> &dyn RawWindow {
        &*self.shared.raw
    }
}

/// A number for name and configuration, never 0.
fn fingerprint(spec: &WindowSpec<'_>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let uniform = [u8::from(spec.is_uniform)];
    let config = spec.config.to_le_bytes();
    for byte in spec.name.as_bytes().iter().chain(&uniform).chain(&config) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash.max(1)
}

/// What the ranks give of a window, compared; their sizes.
fn agree(rank: &Rank, spec: &WindowSpec<'_>, print: u64) -> Result<Vec<u64>, Error> {
    let all = rank.all_gather(&[print, spec.config, spec.bytes])?;
    let mut sizes = Vec::with_capacity(all.len());
    let mut finding = None;
    for (other, words) in (0_u32..).zip(&all) {
        let &[theirs, config, bytes] = words.as_slice() else {
            return Err(Error::Damaged {
                rank: other,
                what: "the description of a window",
            });
        };
        sizes.push(bytes);
        let difference = if config != spec.config {
            Some(("configuration", spec.config, config))
        } else if theirs != print {
            Some(("name", print, theirs))
        } else if spec.is_uniform && bytes != spec.bytes {
            Some(("size in bytes", spec.bytes, bytes))
        } else {
            None
        };
        if let (Some((what, ours, theirs)), None) = (difference, &finding) {
            finding = Some(Error::Disagreement {
                what: format!("{what} of window {:?}", spec.name),
                rank: other,
                ours,
                theirs,
            });
        }
    }
    // Ranks that agree with each other must not wait for one that found a difference: all hear of it.
    let found = rank.all_gather(&[u64::from(finding.is_some())])?;
    let other = (0_u32..).zip(&found).find(|(_, words)| words.first() != Some(&0));
    match (finding, other) {
        (Some(error), _) => Err(error),
        (None, Some((other, _))) => Err(Error::Disagreement {
            what: format!("window {:?} is refused", spec.name),
            rank: other,
            ours: 0,
            theirs: 1,
        }),
        (None, None) => Ok(sizes),
    }
}

/// For a rank that has returned: the sizes of a window that the others made before. Nothing if none of those
/// that are alive has it: then it is a window that all make now.
fn find_again(
    rank: &Rank,
    spec: &WindowSpec<'_>,
    number: u32,
    print: u64,
) -> Result<Option<Vec<u64>>, Error> {
    for other in (0..rank.count()).filter(|other| *other != rank.number()) {
        if !rank.inner.transport.presence(other).alive {
            continue;
        }
        let row = match rank.read_table(other, number) {
            Ok(row) => row,
            Err(Error::RankDead { .. }) => continue,
            Err(error) => return Err(error),
        };
        let Some((theirs, sizes)) = row else { continue };
        let bytes = sizes.get(rank.number() as usize).copied().unwrap_or(0);
        let difference = if theirs != print {
            Some(("name or configuration", print, theirs))
        } else if bytes != spec.bytes {
            Some(("size in bytes", spec.bytes, bytes))
        } else {
            None
        };
        return match difference {
            None => Ok(Some(sizes)),
            Some((what, ours, theirs)) => Err(Error::Disagreement {
                what: format!("{what} of window {:?}", spec.name),
                rank: other,
                ours,
                theirs,
            }),
        };
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers that are given away, come back, are dropped in flight: on memory that is shared and in the
    /// simulation, whose gets write through addresses.
    fn buffers_fly(rank: &Rank) {
        let spec = WindowSpec {
            name: "flying",
            bytes: 64,
            is_uniform: true,
            config: 0,
        };
        let window = rank.create_window(&spec).unwrap();
        let next = (rank.number() + 1) % rank.count();
        let put = window.put_buffer(next, 3, vec![7; 30]).unwrap();
        let put = put.wait().unwrap();
        assert_eq!(put, [7; 30]);
        let get = window.get(next, 2, vec![1; 32]).unwrap();
        drop(window.get(next, 0, vec![0; 64]).unwrap());
        let got = get.wait().unwrap();
        assert_eq!((got[0], &got[1..31], got[31]), (0, &[7_u8; 30][..], 0));
        drop(window.put_buffer(next, 40, vec![9; 8]).unwrap());
        rank.barrier().unwrap();
        let mut word = [0; 8];
        window.local_read(40, &mut word).unwrap();
        assert_eq!(word, [9; 8]);
        let get = window.get(next, 0, vec![0]).unwrap();
        assert!(matches!(window.clone().close(), Err(Error::Misuse { .. })));
        get.wait().unwrap();
        window.close().unwrap();
    }

    #[test]
    fn buffers_fly_on_threads_and_in_the_simulation() {
        crate::Threads::run(2, |rank| buffers_fly(&rank)).unwrap();
        let seeds = if cfg!(miri) { 2 } else { 100 };
        for seed in 0..seeds {
            crate::sim::Simulation::new(seed, 2).run(|rank| buffers_fly(&rank));
        }
    }

    #[test]
    fn numbers_are_used_again_and_run_out() {
        let mut table = WindowTable::default();
        for expected in 1..WINDOWS_MAX {
            let number = table.lowest_free();
            assert_eq!(number, Some(expected));
            table.set(expected, true);
        }
        assert_eq!(table.lowest_free(), None);
        table.set(7, false);
        assert_eq!(table.lowest_free(), Some(7));
    }

    #[test]
    fn the_fingerprint_knows_name_kind_and_configuration() {
        let spec = WindowSpec {
            name: "a",
            bytes: 8,
            is_uniform: true,
            config: 1,
        };
        let other_size = WindowSpec { bytes: 16, ..spec };
        assert_eq!(fingerprint(&spec), fingerprint(&other_size));
        for other in [
            WindowSpec { name: "b", ..spec },
            WindowSpec { config: 2, ..spec },
            WindowSpec {
                is_uniform: false,
                ..spec
            },
        ] {
            assert_ne!(fingerprint(&spec), fingerprint(&other));
        }
    }
}
