//! The limits of this machine's memory: the rates of which all other figures are a share.
//!
//! A record is located by a hash index of 16-byte slots, half full, and has a separate payload. Each way of
//! reading it waits differently:
//!
//! ```text
//!   dependent   the next key depends on this record: one wait after another
//!   plain       independent keys, one after another: only the processor overlaps waits
//!   group n     n index slots are fetched, then n payloads, then all are read
//!   AMAC n      n probes, each at its own stage: one continues when its line has arrived
//! ```
//!
//! Sources: group prefetching, Chen et al. 2004; asynchronous memory access chaining, Kocberber et al.
//! 2015; BionicDB 4.4 does in hardware what is measured here. Nothing here touches the store: these are
//! bare loops over [`PageMemory`], single-threaded or with several threads reading the same memory. Time is
//! the threads' own processor time, including waits for memory, so that a shared machine distorts less;
//! sequential bandwidth uses the wall clock.

use std::io;
use std::sync::Barrier;
use std::time::Instant;

use weft_base::Prng;
use weft_base::clock::thread_cpu_nanos;
use weft_base::memory::{LINE_BYTES, PageMemory, Pages, prefetch, prefetch_bytes};
use weft_ops::mix64;

/// How probes are interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Each key depends on the previous record.
    Dependent,
    /// One whole probe after another.
    Plain,
    /// Groups of probes that go through each stage together.
    Group(usize),
    /// The given number of state machines in turn.
    Amac(usize),
}

impl Access {
    /// The name of a case in records.
    pub fn name(self) -> String {
        match self {
            Access::Dependent => "dependent".to_owned(),
            Access::Plain => "plain".to_owned(),
            Access::Group(n) => format!("group {n}"),
            Access::Amac(n) => format!("amac {n}"),
        }
    }
}

/// Maximum probes in flight per thread.
const IN_FLIGHT_MAX: usize = 64;
/// Orders payloads differently from keys. Odd, so that it permutes any power of two.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD_BYTES: usize = size_of::<u64>();

/// An index and the payloads that it refers to.
pub struct ProbeTable {
    index: Words,
    payloads: Words,
    record_count: u64,
    payload_bytes: usize,
    read_bytes: usize,
}

/// Page memory as words, written once and then only read.
struct Words {
    memory: PageMemory,
    len: usize,
}

impl Words {
    /// Errors: out of memory.
    fn new(len: usize, pages: Pages, mut word: impl FnMut(&mut [u64])) -> io::Result<Self> {
        let bytes = len.checked_mul(WORD_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = PageMemory::new(bytes, pages)?;
        // SAFETY: the memory is zeroed, aligned to more than a word, at least `len` words long, and not
        // shared.
        word(unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr().cast::<u64>(), len) });
        Ok(Words { memory, len })
    }

    #[inline(always)]
    fn get(&self) -> &[u64] {
        // SAFETY: as in `new`; not written since.
        unsafe { std::slice::from_raw_parts(self.memory.base().as_ptr().cast::<u64>(), self.len) }
    }
}

/// One probe in flight.
#[derive(Clone, Copy, Default)]
struct InFlight {
    key: u64,
    /// The slot in the index; once found, the payload.
    place: usize,
    is_found: bool,
}

impl ProbeTable {
    /// `record_count` records, rounded up to a power of two, of `payload_bytes` each, rounded up to whole
    /// lines. Uses 32 bytes of index per record. Errors: out of memory.
    pub fn new(record_count: usize, payload_bytes: usize, pages: Pages) -> io::Result<Self> {
        let records = record_count.max(64).next_power_of_two();
        let payload_bytes = payload_bytes.max(LINE_BYTES).next_multiple_of(LINE_BYTES);
        let payload_words = payload_bytes / WORD_BYTES;
        let slots = records * 2;
        let index = Words::new(slots * 2, pages, |words| {
            for key in 1..=records as u64 {
                let mut slot = mix64(key) as usize & (slots - 1);
                while words[slot * 2] != 0 {
                    slot = (slot + 1) & (slots - 1);
                }
                words[slot * 2] = key;
                words[slot * 2 + 1] = key.wrapping_mul(SCATTER) & (records as u64 - 1);
            }
        })?;
        let payloads = Words::new(records * payload_words, pages, |words| {
            for (at, word) in words.iter_mut().enumerate() {
                *word = at as u64;
            }
        })?;
        Ok(ProbeTable {
            index,
            payloads,
            record_count: records as u64,
            payload_bytes,
            read_bytes: payload_bytes,
        })
    }

    /// Makes probes read only this much of each payload, from its start, rounded up to whole lines.
    pub fn read_only(&mut self, bytes: usize) {
        let lines = bytes.max(LINE_BYTES).next_multiple_of(LINE_BYTES);
        self.read_bytes = lines.min(self.payload_bytes);
    }

    /// Number of records.
    pub fn record_count(&self) -> u64 {
        self.record_count
    }

    /// Size of one payload in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Memory of index and payloads in bytes.
    pub fn size_bytes(&self) -> usize {
        self.index.memory.size_bytes() + self.payloads.memory.size_bytes()
    }

    /// Whether both are in huge pages.
    pub fn is_huge(&self) -> bool {
        self.index.memory.is_huge() && self.payloads.memory.is_huge()
    }

    /// Probes per second of all threads together. Each thread runs `probes` probes of uniformly distributed
    /// keys; the slowest thread's processor time counts.
    pub fn rate(&self, access: Access, probes: usize, threads: usize) -> f64 {
        let threads = threads.max(1);
        let barrier = Barrier::new(threads);
        let slowest = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads)
                .map(|thread| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let mut keys = Prng::new(thread as u64 + 1);
                        barrier.wait();
                        let start = thread_cpu_nanos();
                        std::hint::black_box(self.run(access, probes, &mut keys));
                        thread_cpu_nanos() - start
                    })
                })
                .collect();
            running.into_iter().filter_map(|thread| thread.join().ok()).max()
        });
        slowest.map_or(0.0, |nanos| (probes * threads) as f64 * 1e9 / nanos.max(1) as f64)
    }

    /// The rate of the best access strategy.
    pub fn best_rate(&self, probes: usize, threads: usize) -> f64 {
        let ways = [
            Access::Plain,
            Access::Group(16),
            Access::Group(32),
            Access::Amac(24),
        ];
        let rates = ways.map(|access| self.rate(access, probes, threads));
        rates.into_iter().fold(0.0, f64::max)
    }

    /// Runs probes; returns the sum of everything read, so that no read can be optimized away.
    fn run(&self, access: Access, probes: usize, keys: &mut Prng) -> u64 {
        match access {
            Access::Dependent => self.dependent(probes),
            Access::Plain => (0..probes).fold(0, |sum: u64, _| {
                let key = self.draw(keys);
                sum.wrapping_add(self.payload(self.find(key)))
            }),
            Access::Group(in_flight) => self.groups(in_flight.clamp(1, IN_FLIGHT_MAX), probes, keys),
            Access::Amac(in_flight) => self.amac(in_flight.clamp(1, IN_FLIGHT_MAX), probes, keys),
        }
    }

    #[inline(always)]
    fn draw(&self, keys: &mut Prng) -> u64 {
        (keys.next_u64() & (self.record_count - 1)) + 1
    }

    #[inline(always)]
    fn home_slot(&self, key: u64) -> usize {
        mix64(key) as usize & (self.index.len / 2 - 1)
    }

    /// The payload of a key. Every drawn key exists.
    #[inline(always)]
    fn find(&self, key: u64) -> usize {
        let (words, mut slot) = (self.index.get(), self.home_slot(key));
        loop {
            if words[slot * 2] == key {
                return words[slot * 2 + 1] as usize;
            }
            slot = (slot + 1) & (self.index.len / 2 - 1);
        }
    }

    /// Reads a payload.
    #[inline(always)]
    fn payload(&self, payload: usize) -> u64 {
        let start = payload * (self.payload_bytes / WORD_BYTES);
        let words = &self.payloads.get()[start..start + self.read_bytes / WORD_BYTES];
        words.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word))
    }

    #[inline(always)]
    fn prefetch_slot(&self, slot: usize) {
        prefetch(&raw const self.index.get()[slot * 2]);
    }

    #[inline(always)]
    fn prefetch_payload(&self, payload: usize) {
        let at = payload * (self.payload_bytes / WORD_BYTES);
        prefetch_bytes(&raw const self.payloads.get()[at], self.read_bytes);
    }

    fn dependent(&self, probes: usize) -> u64 {
        (0..probes).fold(1, |sum: u64, probe| {
            let key = (mix64(sum ^ probe as u64) & (self.record_count - 1)) + 1;
            sum.wrapping_add(self.payload(self.find(key)))
        })
    }

    fn groups(&self, in_flight: usize, probes: usize, keys: &mut Prng) -> u64 {
        let mut group = [(0u64, 0usize); IN_FLIGHT_MAX];
        let group = &mut group[..in_flight];
        let mut sum = 0u64;
        for _ in 0..probes.div_ceil(in_flight) {
            for (key, _) in group.iter_mut() {
                *key = self.draw(keys);
                self.prefetch_slot(self.home_slot(*key));
            }
            for (key, payload) in group.iter_mut() {
                *payload = self.find(*key);
                self.prefetch_payload(*payload);
            }
            for (_, payload) in group.iter() {
                sum = sum.wrapping_add(self.payload(*payload));
            }
        }
        sum
    }

    fn amac(&self, in_flight: usize, probes: usize, keys: &mut Prng) -> u64 {
        let mut states = [InFlight::default(); IN_FLIGHT_MAX];
        let states = &mut states[..in_flight];
        for state in states.iter_mut() {
            *state = self.begin(keys);
        }
        let (mut sum, mut done) = (0u64, 0);
        loop {
            for state in states.iter_mut() {
                if state.is_found {
                    sum = sum.wrapping_add(self.payload(state.place));
                    done += 1;
                    if done == probes {
                        return sum;
                    }
                    *state = self.begin(keys);
                } else {
                    self.step(state);
                }
            }
        }
    }

    #[inline(always)]
    fn begin(&self, keys: &mut Prng) -> InFlight {
        let key = self.draw(keys);
        let place = self.home_slot(key);
        self.prefetch_slot(place);
        InFlight {
            key,
            place,
            is_found: false,
        }
    }

    /// Examines slots up to the end of the fetched line.
    #[inline(always)]
    fn step(&self, state: &mut InFlight) {
        let words = self.index.get();
        loop {
            if words[state.place * 2] == state.key {
                state.place = words[state.place * 2 + 1] as usize;
                state.is_found = true;
                self.prefetch_payload(state.place);
                return;
            }
            state.place = (state.place + 1) & (self.index.len / 2 - 1);
            if state.place.is_multiple_of(LINE_BYTES / 16) {
                self.prefetch_slot(state.place);
                return;
            }
        }
    }
}

/// Pointer chasing through one random cycle over `bytes` of lines: hops per second, each dependent on the
/// previous one. Errors: out of memory.
pub fn chase_rate(bytes: usize, pages: Pages, hops: usize) -> io::Result<f64> {
    const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;
    let lines = (bytes / LINE_BYTES).max(2);
    let words = Words::new(lines * LINE_WORDS, pages, |words| {
        // Sattolo's shuffle: one cycle through all lines.
        let mut random = Prng::new(7);
        let mut order: Vec<u32> = (0..lines as u32).collect();
        for at in (1..lines).rev() {
            order.swap(at, random.below(at as u64) as usize);
        }
        for (line, next) in order.iter().enumerate() {
            words[line * LINE_WORDS] = u64::from(*next);
        }
    })?;
    let words = words.get();
    let (mut at, start) = (0, thread_cpu_nanos());
    for _ in 0..hops {
        at = words[at * LINE_WORDS] as usize;
    }
    std::hint::black_box(at);
    Ok(hops as f64 * 1e9 / (thread_cpu_nanos() - start).max(1) as f64)
}

/// Sequential read bandwidth over `bytes`, all threads together, in bytes per second; the best of `passes`
/// passes. Errors: out of memory.
pub fn sequential_rate(bytes: usize, pages: Pages, threads: usize, passes: usize) -> io::Result<f64> {
    let words = Words::new(bytes / WORD_BYTES, pages, |words| words.fill(1))?;
    let words = words.get();
    let share = (words.len() / threads.max(1)).max(1);
    let mut best = 0f64;
    for _ in 0..passes.max(1) {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in words.chunks(share) {
                scope.spawn(|| {
                    std::hint::black_box(part.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)))
                });
            }
        });
        best = best.max(size_of_val(words) as f64 / start.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// The rate of which shares of the limit are computed: the best way to probe this many records of this size
/// and to read this much of each; one round, with huge pages if available. Errors: out of memory.
pub fn probe_rate(
    record_count: usize,
    payload_bytes: usize,
    read_bytes: usize,
    probes: usize,
    threads: usize,
) -> io::Result<f64> {
    let mut table = ProbeTable::new(record_count, payload_bytes, Pages::Huge)?;
    table.read_only(read_bytes);
    Ok(table.best_rate(probes, threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All access strategies read the same records, so the sums agree.
    #[test]
    fn all_access_kinds_read_the_same_rows() {
        for payload_bytes in [64, 1024] {
            let table = ProbeTable::new(1_000, payload_bytes, Pages::Ordinary).unwrap();
            assert_eq!(
                (table.record_count(), table.payload_bytes()),
                (1_024, payload_bytes)
            );
            let sum = |access| table.run(access, 960, &mut Prng::new(3));
            let plain = sum(Access::Plain);
            assert_eq!(sum(Access::Group(16)), plain);
            assert_eq!(sum(Access::Group(32)), plain);
            // A single state machine keeps the order; several draw more than they finish.
            assert_eq!(sum(Access::Amac(1)), plain);
            assert_ne!(sum(Access::Amac(24)), 0);
            let mut part = ProbeTable::new(1_000, payload_bytes, Pages::Ordinary).unwrap();
            part.read_only(1);
            let less = part.run(Access::Plain, 960, &mut Prng::new(3));
            assert_eq!(less == plain, payload_bytes == 64);
        }
    }

    #[test]
    fn every_record_is_found_once() {
        let table = ProbeTable::new(4_096, 64, Pages::Huge).unwrap();
        let mut payloads: Vec<usize> = (1..=4_096).map(|key| table.find(key)).collect();
        payloads.sort_unstable();
        assert_eq!(payloads, (0..4_096).collect::<Vec<_>>());
    }

    #[test]
    fn rates_are_positive() {
        assert!(chase_rate(1 << 20, Pages::Huge, 10_000).unwrap() > 0.0);
        assert!(sequential_rate(1 << 20, Pages::Huge, 2, 1).unwrap() > 0.0);
        assert!(probe_rate(1_000, 1_024, 64, 10_000, 2).unwrap() > 0.0);
    }
}
