//! Letting a thread give way to others.
//!
//! A low priority alone is not enough. Linux lets a thread run for some milliseconds before another that
//! wakes up may take its processor, whatever their priorities; and it moves threads between processors by
//! load, tens of milliseconds later: an ordinary thread waits behind another one while a thread of low
//! priority keeps the next processor. So a thread that gives way also offers its processor again and again
//! ([`Offer`]).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Linux divides a processor among the threads that want it by weights: 1,024 for an ordinary thread, a
/// quarter less for each step of niceness. So many steps leave a tenth.
const NICENESS: libc::c_int = 10;

/// A thread of this process, as the operating system numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadNumber(libc::pid_t);

impl ThreadNumber {
    /// That of the calling thread.
    #[must_use]
    pub fn current() -> ThreadNumber {
        // SAFETY: no arguments, no effects, never fails.
        ThreadNumber(unsafe { libc::gettid() })
    }

    /// Lowers the thread's share of a processor that others want as well, to a tenth of theirs. Usually it
    /// cannot be raised again. Returns whether the system agreed; it does not if the thread has ended.
    pub fn give_way(self) -> bool {
        let Ok(number) = libc::id_t::try_from(self.0) else {
            return false;
        };
        // SAFETY: plain numbers; on Linux the priority of a process is that of the thread with this number.
        let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, number) };
        // SAFETY: likewise. A process that was started with a lower share keeps it.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, number, now.max(NICENESS)) == 0 }
    }
}

/// How long a thread that gives way runs before it offers its processor.
const OFFER_AFTER: Duration = Duration::from_micros(200);
/// A processor that comes back sooner was wanted by nobody who waits for it.
const UNWANTED_AFTER: Duration = Duration::from_micros(20);
/// How long a processor is left for threads that wait for others: about what it takes to move one here.
const LEFT_FOR: Duration = Duration::from_micros(30);
/// How late the system may wake the thread after that, in nanoseconds; otherwise 50 microseconds.
const LATE_MAX: libc::c_ulong = 1_000;

/// What a thread needs to offer its processor to others while it works.
#[derive(Debug)]
pub struct Offer {
    last: Instant,
    /// `/proc/loadavg`, which says how many threads of the system run or want to; `None` where it does not
    /// exist.
    load: Option<File>,
    processors: u64,
}

impl Offer {
    /// For the calling thread, which has given way.
    #[must_use]
    pub fn new() -> Offer {
        // SAFETY: plain numbers; affects when sleeps of this thread end.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, LATE_MAX) };
        // SAFETY: plain numbers, no effects.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        Offer {
            last: Instant::now(),
            load: File::open("/proc/loadavg").ok(),
            processors: u64::try_from(processors).unwrap_or(1),
        }
    }

    /// Lets others run if the thread has kept its processor for long: whoever waits for this processor, or
    /// else, for a moment, those who wait for other ones. Costs nothing most of the times, some microseconds
    /// otherwise if nobody waits.
    pub fn renew(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last) < OFFER_AFTER {
            return;
        }
        std::thread::yield_now();
        if now.elapsed() < UNWANTED_AFTER && self.others_wait() {
            std::thread::sleep(LEFT_FOR);
        }
        self.last = Instant::now();
    }

    /// Whether more threads want to run than there are processors, in the whole system: a process that may
    /// use only some of them does not notice that its own threads wait.
    fn others_wait(&self) -> bool {
        let mut text = [0; 64];
        let read = self
            .load
            .as_ref()
            .and_then(|load| load.read_at(&mut text, 0).ok());
        let running = read.and_then(|length| running(text.get(..length)?));
        running.is_some_and(|running| running > self.processors)
    }
}

impl Default for Offer {
    fn default() -> Self {
        Offer::new()
    }
}

/// How many threads run or want to, of a line such as `0.52 0.40 0.31 3/412 7310`.
fn running(loadavg: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(loadavg).ok()?;
    let (running, _all) = line.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::{NICENESS, Offer, ThreadNumber, running};

    fn niceness() -> i32 {
        // SAFETY: plain numbers; 0 is the calling thread.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn one_thread_gives_way_and_the_others_do_not() {
        let before = niceness();
        let (tell, number) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(ThreadNumber::current()).unwrap();
            wait.recv().unwrap();
            niceness()
        });
        assert!(number.recv().unwrap().give_way());
        go.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), before.max(NICENESS));
        assert_eq!(niceness(), before);
    }

    #[test]
    fn running_threads_are_read_from_the_load() {
        assert_eq!(running(b"0.52 0.40 0.31 3/412 7310\n"), Some(3));
        for other in [
            "",
            "0.52 0.40 0.31",
            "0.52 0.40 0.31 3 7310",
            "0.52 0.40 0.31 x/412 7310",
        ] {
            assert_eq!(running(other.as_bytes()), None, "{other}");
        }
        assert_eq!(running(&[0xff]), None);
    }

    /// Wanted or not. Whom an offer helps is measured (decision 0030), not tested.
    #[test]
    fn who_offers_a_processor_goes_on() {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let worker = scope.spawn(|| {
                assert!(ThreadNumber::current().give_way());
                let mut offer = Offer::new();
                for _ in 0..20 {
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_micros(300) {
                        std::hint::spin_loop();
                    }
                    offer.renew(Instant::now());
                }
            });
            let ended = worker.join();
            done.store(true, Ordering::Relaxed);
            ended.unwrap();
        });
    }
}
