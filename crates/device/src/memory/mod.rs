//! The memory behind a unit's port: words of 64 bits, one request a cycle in, one response a cycle out.
//!
//! ```text
//! request --> [ outstanding: bounded ] --> [ bank: one access at a time ] --> [ channel ] --> latency
//! response <-- the earliest that is ready: responses come in any order, with the tag of their request
//! ```
//!
//! A memory moves granules: 8 bytes on the HC-2's scatter-gather modules, 64 elsewhere. A bank keeps the
//! granule that it moved last, so that further words of it occupy neither bank nor channel.
//!
//! The contract of the port: a request is taken when the memory says that it is ready; each is answered once,
//! a write too; a word changes between the request and the answer of a write, so that a read that overlaps it
//! may see either. With [`MemoryParams::jitter_cycles`] requests overtake each other even within a bank;
//! without it requests to one bank stay in order.
//!
//! Simplifications: no refresh, no row buffer beyond one granule, no turnaround between reads and writes.
//!
//! Source: BionicDB 4.1.

mod presets;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weft_base::random::Prng;

pub use presets::{MemoryPreset, PRESETS};

/// Fractions of a cycle in which the channel's occupancy is counted.
const CHANNEL_UNITS: u64 = 1 << 16;

/// What a memory can do, in cycles of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryParams {
    /// From the request to the answer, if nothing is in the way.
    pub latency_cycles: u64,
    /// Up to so many cycles more, at random: for tests of a unit, so that answers come in another order.
    pub jitter_cycles: u64,
    /// Banks; neighbouring granules are in different ones.
    pub banks: usize,
    /// Between two accesses of one bank.
    pub bank_cycles: u64,
    /// Words that are moved at once.
    pub granule_words: u64,
    /// Time of one granule on the channel, in 1/65536 of a cycle.
    pub granule_cost: u64,
    /// Requests that can be without answer.
    pub outstanding_max: usize,
    /// Percentage of cycles in which the memory takes no request, at random: for tests.
    pub refusals_percent: u64,
}

impl MemoryParams {
    /// A memory that answers after a fixed time and is bound by nothing but the port.
    pub fn ideal(latency_cycles: u64) -> MemoryParams {
        MemoryParams {
            latency_cycles,
            jitter_cycles: 0,
            banks: 1 << 10,
            bank_cycles: 0,
            granule_words: 1,
            granule_cost: 0,
            outstanding_max: 1 << 12,
            refusals_percent: 0,
        }
    }

    /// One that answers in any order and often takes nothing.
    pub fn hostile(latency_cycles: u64, jitter_cycles: u64, refusals_percent: u64) -> MemoryParams {
        MemoryParams {
            jitter_cycles,
            refusals_percent,
            ..MemoryParams::ideal(latency_cycles)
        }
    }
}

/// A request: one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Write `data`; otherwise read.
    pub write: bool,
    /// Number of the word.
    pub addr: u32,
    /// The word to write.
    pub data: u64,
    /// Comes back with the answer.
    pub tag: u32,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// There is no such word.
    pub error: bool,
    /// The word that was read.
    pub data: u64,
    /// That of the request.
    pub tag: u32,
}

/// A bank: when it is free, and which granule it holds.
#[derive(Clone, Copy, Debug)]
struct Bank {
    free_at: u64,
    granule: u64,
}

/// The memory itself. One owner, one cycle at a time: [`Memory::response`], then [`Memory::is_ready`] and
/// [`Memory::take`], then [`Memory::end_cycle`].
#[derive(Clone, Debug)]
pub struct Memory {
    words: Vec<u64>,
    params: MemoryParams,
    random: Prng,
    now: u64,
    ready: bool,
    banks: Vec<Bank>,
    /// When the channel is free, in [`CHANNEL_UNITS`].
    channel_at: u64,
    /// Requests without answer, by (time, order of their coming).
    waiting: BinaryHeap<Reverse<(u64, u64, usize)>>,
    requests: Vec<Request>,
    unused: Vec<usize>,
    taken: u64,
    words_moved: u64,
}

impl Memory {
    /// A memory of zeros.
    pub fn new(word_count: usize, params: MemoryParams, seed: u64) -> Memory {
        let bank = Bank {
            free_at: 0,
            granule: u64::MAX,
        };
        Memory {
            words: vec![0; word_count],
            params,
            random: Prng::new(seed),
            now: 0,
            ready: true,
            banks: vec![bank; params.banks.max(1)],
            channel_at: 0,
            waiting: BinaryHeap::new(),
            requests: Vec::new(),
            unused: Vec::new(),
            taken: 0,
            words_moved: 0,
        }
    }

    /// A word as the host sees it; 0 beyond the end.
    pub fn word(&self, addr: u32) -> u64 {
        self.words.get(addr as usize).copied().unwrap_or(0)
    }

    /// Sets a word from the host, while no request is outstanding; nothing beyond the end.
    pub fn set_word(&mut self, addr: u32, value: u64) {
        if let Some(word) = self.words.get_mut(addr as usize) {
            *word = value;
        }
    }

    /// How many words it has.
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// Requests that have not been answered.
    pub fn outstanding(&self) -> usize {
        self.waiting.len()
    }

    /// Words that have been read and written, in all.
    pub fn words_moved(&self) -> u64 {
        self.words_moved
    }

    /// The answer that comes in this cycle, if one does.
    pub fn response(&mut self) -> Option<Response> {
        let Reverse((at, _, place)) = *self.waiting.peek()?;
        if at > self.now {
            return None;
        }
        self.waiting.pop();
        self.unused.push(place);
        let request = self.requests.get(place).copied().unwrap_or_default();
        let word = self.words.get_mut(request.addr as usize);
        let (error, data) = match (word, request.write) {
            (None, _) => (true, 0),
            (Some(word), true) => {
                *word = request.data;
                (false, 0)
            }
            (Some(word), false) => (false, *word),
        };
        Some(Response {
            error,
            data,
            tag: request.tag,
        })
    }

    /// Whether a request is taken in this cycle.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Takes a request, in a cycle in which the memory is ready.
    pub fn take(&mut self, request: Request) {
        debug_assert!(self.ready, "the memory was not ready");
        let done_at = self.schedule(request.addr);
        let place = self.unused.pop().unwrap_or(self.requests.len());
        match self.requests.get_mut(place) {
            Some(slot) => *slot = request,
            None => self.requests.push(request),
        }
        self.waiting.push(Reverse((done_at, self.taken, place)));
        self.taken += 1;
        self.words_moved += 1;
    }

    /// The cycle is over.
    pub fn end_cycle(&mut self) {
        self.now += 1;
        let refused =
            self.params.refusals_percent > 0 && self.random.chance(self.params.refusals_percent, 100);
        self.ready = self.waiting.len() < self.params.outstanding_max && !refused;
    }

    /// When a request that comes now is answered.
    fn schedule(&mut self, addr: u32) -> u64 {
        let granule = u64::from(addr) / self.params.granule_words.max(1);
        let count = self.banks.len() as u64;
        let mut begin = self.now;
        if let Some(bank) = self.banks.get_mut((granule % count) as usize) {
            if bank.granule == granule {
                // Its granule is on the way or there.
                begin = begin.max(bank.free_at.saturating_sub(self.params.bank_cycles));
            } else {
                begin = begin.max(bank.free_at);
                let channel = self.channel_at.max(begin * CHANNEL_UNITS);
                self.channel_at = channel + self.params.granule_cost;
                begin = begin.max(channel / CHANNEL_UNITS);
                bank.free_at = begin + self.params.bank_cycles;
                bank.granule = granule;
            }
        }
        let jitter = match self.params.jitter_cycles {
            0 => 0,
            most => self.random.below(most + 1),
        };
        begin + self.params.latency_cycles.max(1) + jitter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(addr: u32) -> Request {
        Request {
            addr,
            tag: addr,
            ..Request::default()
        }
    }

    /// Cycles until all of some requests, issued as fast as they are taken, are answered; and the tags in
    /// order.
    fn run(params: MemoryParams, requests: &[Request]) -> (u64, Vec<u32>) {
        let mut memory = Memory::new(1 << 16, params, 7);
        let mut left = requests.iter();
        let mut next = left.next();
        let mut tags = Vec::new();
        let mut cycles = 0;
        while tags.len() < requests.len() {
            tags.extend(memory.response().map(|response| response.tag));
            if let Some(request) = next.filter(|_| memory.is_ready()) {
                memory.take(*request);
                next = left.next();
            }
            memory.end_cycle();
            cycles += 1;
            assert!(cycles < 100_000);
        }
        (cycles, tags)
    }

    #[test]
    fn an_ideal_memory_takes_latency_and_a_cycle_a_word() {
        let requests: Vec<Request> = (0..100).map(read).collect();
        let (cycles, tags) = run(MemoryParams::ideal(20), &requests);
        assert_eq!(cycles, 20 + 100);
        assert!(tags.is_sorted());
    }

    #[test]
    fn the_channel_bounds_granules_and_not_words() {
        let params = MemoryParams {
            granule_words: 8,
            granule_cost: 4 * CHANNEL_UNITS,
            ..MemoryParams::ideal(10)
        };
        let apart: Vec<Request> = (0..64).map(|at| read(at * 8)).collect();
        assert_eq!(run(params, &apart).0, 63 * 4 + 10 + 1);
        let together: Vec<Request> = (0..64).map(read).collect();
        assert_eq!(run(params, &together).0, 63 + 10 + 1);
    }

    #[test]
    fn one_bank_takes_one_access_at_a_time() {
        let params = MemoryParams {
            banks: 4,
            bank_cycles: 10,
            ..MemoryParams::ideal(5)
        };
        let same: Vec<Request> = (0..16).map(|at| read(at * 4)).collect();
        assert_eq!(run(params, &same).0, 15 * 10 + 5 + 1);
        let spread: Vec<Request> = (0..16).map(read).collect();
        assert_eq!(run(params, &spread).0, 3 * 10 + 3 + 5 + 1);
    }

    #[test]
    fn outstanding_requests_are_bounded() {
        let params = MemoryParams {
            outstanding_max: 2,
            ..MemoryParams::ideal(9)
        };
        let requests: Vec<Request> = (0..10).map(read).collect();
        // Two answers every ten cycles: nine of latency, and one until the place is free again.
        let cycles = run(params, &requests).0;
        assert!((45..=55).contains(&cycles), "{cycles}");
    }

    #[test]
    fn jitter_changes_the_order_and_loses_nothing() {
        let requests: Vec<Request> = (0..200).map(read).collect();
        let (_, tags) = run(MemoryParams::hostile(3, 40, 30), &requests);
        assert!(!tags.is_sorted());
        let mut sorted = tags.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn words_beyond_the_end_are_errors() {
        let mut memory = Memory::new(4, MemoryParams::ideal(1), 1);
        memory.take(read(4));
        memory.end_cycle();
        assert!(memory.response().is_some_and(|response| response.error));
    }

    #[test]
    fn presets_are_positive_at_every_clock() {
        for preset in PRESETS {
            for clock in [50.0, 125.0, 400.0] {
                let params = preset.at_clock(clock);
                assert!(params.latency_cycles > 0 && params.banks > 0 && params.outstanding_max > 0);
                assert!(params.granule_cost > 0);
            }
        }
    }
}
