//! What the fabric costs between two ranks, on whatever form they run: for benchmarks.
//!
//! | case | what is timed |
//! |---|---|
//! | mailbox of n | n slots for the sender: rank 0 sends 16 bytes, rank 1 answers with 16, rank 0 has them: each trip alone |
//! | to itself | a message that does not travel: what one trip costs in instructions |
//! | put and flush, fetch_add, compare_and_swap | at the other rank, which waits: means of 32 |
//! | bandwidth | puts of one size into 4 MiB of the other rank, a flush after each 1 MiB at least (Barthels, figure 3.7) |
//! | copying | the same bytes copied in the same pieces by this thread: what the machine allows |
//!
//! Medians hold on a busy machine; the upper percentiles are those of the moment. With fewer processors than
//! ranks everything is the scheduler's time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::mailbox::{Mailbox, MailboxSpec};
use crate::rank::Rank;
use crate::window::{Window, WindowSpec};

/// Operations of one size whose mean is one time.
const BATCH: u32 = 32;
/// Bytes that puts go to, one after the other; larger than a core's cache.
const PART_BYTES: u64 = 4 << 20;
/// A put is flushed at the latest after so many bytes.
const FLUSH_BYTES: u64 = 1 << 20;
/// Sizes of puts.
const PUT_BYTES: [u64; 10] = [
    8,
    64,
    256,
    1 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    64 << 10,
    1 << 20,
    4 << 20,
];
/// How long the other rank waits for the end of a measurement.
const WAIT: Duration = Duration::from_secs(300);

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Round trips.
    pub trips: usize,
    /// Times of operations.
    pub operations: usize,
    /// Bytes put in each size, unless that is more than 500,000 puts.
    pub bytes: u64,
}

/// Times of one case: median, 99th and 99.9th percentile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// Median, in nanoseconds.
    pub median_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
}

impl Latency {
    /// Of times in nanoseconds.
    #[must_use]
    pub fn of(mut times_ns: Vec<u64>) -> Latency {
        times_ns.sort_unstable();
        let at = |share: f64| {
            let index = (times_ns.len() as f64 * share) as usize;
            times_ns.get(index).copied().unwrap_or(0)
        };
        Latency {
            median_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
        }
    }
}

/// Puts of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidth {
    /// Bytes of a put.
    pub put_bytes: u64,
    /// Bytes a second that reached the other rank.
    pub bytes_per_second: f64,
    /// Bytes a second that this thread copies in pieces of the same size.
    pub copied_per_second: f64,
}

/// What rank 0 found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// The case, bytes of the message, times.
    pub latencies: Vec<(String, u32, Latency)>,
    /// Bandwidth by size.
    pub bandwidths: Vec<Bandwidth>,
}

/// Measures between rank 0 and rank 1, and leaves each on the processor of its number. Collective; what rank
/// 0 returns counts, the other's is empty.
///
/// # Errors
/// The fabric's.
pub fn measure(rank: &Rank, amount: &Amount) -> Result<Measured, Error> {
    pin(rank);
    let mut found = Measured::default();
    for slots in [1, 8] {
        let mailbox = Mailbox::open(rank, &MailboxSpec::uniform("measure", 48, 2, slots))?;
        let (message, mut payload) = ([3; 16], Vec::new());
        let times = trips(rank, amount.trips, |is_first| {
            if is_first {
                mailbox.send(1, &message)?;
                mailbox.receive(&mut payload).map(|_| ())
            } else {
                mailbox.receive(&mut payload)?;
                mailbox.send(0, &message)
            }
        })?;
        if rank.number() == 0 {
            let name = format!("mailbox of {slots}");
            found.latencies.push((name, 16, Latency::of(times)));
            if slots > 1 {
                let times = means(amount.operations, || {
                    mailbox.send(0, &message)?;
                    mailbox.receive(&mut payload).map(|_| ())
                })?;
                found
                    .latencies
                    .push(("to itself".to_owned(), 16, Latency::of(times)));
            }
        }
        mailbox.close()?;
    }
    let window = rank.create_window(&WindowSpec {
        name: "measure",
        bytes: PART_BYTES,
        is_uniform: true,
        config: 0,
    })?;
    rank.barrier()?;
    if rank.number() == 0 {
        operations(&window, amount, &mut found)?;
        for put_bytes in PUT_BYTES {
            found
                .bandwidths
                .push(bandwidth(&window, put_bytes, amount.bytes)?);
        }
    }
    // The other rank waits here, in a loop that lets the library run, for longer than a collective may.
    rank.set_timeout(WAIT);
    rank.barrier()?;
    window.close()?;
    Ok(found)
}

/// Keeps this thread on the processor of its rank's number, as mpirun does: the system may put two threads
/// that wait for each other on one processor.
fn pin(rank: &Rank) {
    // SAFETY: the set is plain data of our own, and the call changes only where this thread runs.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(rank.number() as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Nanoseconds of each round trip, on rank 0; a tenth more trips come first and are not counted. Collective:
/// `trip` is called on both ranks, with whether this is rank 0.
///
/// # Errors
/// Those of `trip`, and the fabric's.
pub fn trips(
    rank: &Rank,
    count: usize,
    mut trip: impl FnMut(bool) -> Result<(), Error>,
) -> Result<Vec<u64>, Error> {
    let is_first = rank.number() == 0;
    let mut times = Vec::with_capacity(count);
    rank.barrier()?;
    for number in 0..count + count / 10 {
        let start = Instant::now();
        trip(is_first)?;
        if number >= count / 10 {
            times.push(nanoseconds(start));
        }
    }
    Ok(times)
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Times of an operation, each a mean of several.
fn means(count: usize, mut operation: impl FnMut() -> Result<(), Error>) -> Result<Vec<u64>, Error> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        for _ in 0..BATCH {
            operation()?;
        }
        times.push(nanoseconds(start) / u64::from(BATCH));
    }
    Ok(times)
}

fn operations(window: &Window, amount: &Amount, found: &mut Measured) -> Result<(), Error> {
    let bytes = [1; 64];
    let mut add =
        |name: &str, bytes, times| found.latencies.push((name.to_owned(), bytes, Latency::of(times)));
    let times = means(amount.operations, || {
        window.put(1, 64, &bytes).and_then(|()| window.flush(1))
    })?;
    add("put and flush", 64, times);
    let times = means(amount.operations, || window.fetch_add(1, 0, 1).map(|_| ()))?;
    add("fetch_add", 8, times);
    let mut expected = window.load(1, 0)?;
    let times = means(amount.operations, || {
        window.compare_and_swap(1, 0, expected, expected + 1)?;
        expected += 1;
        Ok(())
    })?;
    add("compare_and_swap", 8, times);
    Ok(())
}

fn bandwidth(window: &Window, put_bytes: u64, total: u64) -> Result<Bandwidth, Error> {
    let bytes = vec![5; put_bytes as usize];
    let puts = (total / put_bytes).clamp(1, 500_000);
    let start = Instant::now();
    let (mut at, mut unflushed) = (0, 0);
    for _ in 0..puts {
        window.put(1, at, &bytes)?;
        at = (at + put_bytes) % PART_BYTES;
        unflushed += put_bytes;
        if unflushed >= FLUSH_BYTES {
            window.flush(1)?;
            unflushed = 0;
        }
    }
    window.flush(1)?;
    let seconds = start.elapsed().as_secs_f64();
    let mut copy = vec![0_u8; PART_BYTES as usize];
    let start = Instant::now();
    for piece in 0..puts {
        let at = (piece * put_bytes % PART_BYTES) as usize;
        if let Some(into) = copy.get_mut(at..at + bytes.len()) {
            into.copy_from_slice(black_box(&bytes));
        }
        black_box(&mut copy);
    }
    let copied = start.elapsed().as_secs_f64();
    let all = (puts * put_bytes) as f64;
    Ok(Bandwidth {
        put_bytes,
        bytes_per_second: all / seconds.max(1e-9),
        copied_per_second: all / copied.max(1e-9),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Threads;

    #[test]
    fn percentiles_are_of_sorted_times() {
        let found = Latency::of((0..1000).rev().collect());
        assert_eq!((found.median_ns, found.p99_ns, found.p999_ns), (500, 990, 999));
        assert_eq!(Latency::of(Vec::new()).p999_ns, 0);
    }

    #[test]
    fn the_first_of_two_ranks_finds_all_cases() {
        let amount = Amount {
            trips: 20,
            operations: 3,
            bytes: 64 << 10,
        };
        let mut found = Threads::run(2, |rank| measure(&rank, &amount))
            .unwrap()
            .into_iter();
        let first = found.next().unwrap().unwrap();
        let names: Vec<_> = first.latencies.iter().map(|(name, ..)| name.as_str()).collect();
        let wanted = ["mailbox of 1", "mailbox of 8", "to itself"];
        assert_eq!(names[..3], wanted);
        assert_eq!(names[3..], ["put and flush", "fetch_add", "compare_and_swap"]);
        assert_eq!(first.bandwidths.len(), PUT_BYTES.len());
        assert!(first.bandwidths.iter().all(|found| found.bytes_per_second > 0.0));
        assert_eq!(found.next().unwrap().unwrap(), Measured::default());
    }
}
