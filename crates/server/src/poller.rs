//! Waits for any of many sockets, spinning for a short time before it sleeps.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};

/// The most sockets reported by one poll.
const EVENTS_MAX: usize = 256;
/// The longest time to spin before sleeping. Waking a sleeping thread takes about as long.
const SPIN_MAX: Duration = Duration::from_micros(60);
/// The shortest: one or two polls.
const SPIN_MIN: Duration = Duration::from_micros(1);
/// The waker's token, not a socket's.
const WAKER: Token = Token(usize::MAX);

/// How long to spin before sleeping, adapted to how long recent waits were. A wait that spinning longer would
/// have avoided doubles it; spinning in vain halves it.
#[derive(Debug)]
pub struct SpinLimit(Duration);

impl SpinLimit {
    fn new() -> SpinLimit {
        SpinLimit(SPIN_MAX)
    }

    /// Adapts to a wait that took `waited` in all; `slept`: spinning was not enough.
    fn learn(&mut self, waited: Duration, slept: bool) {
        if waited <= SPIN_MAX * 2 {
            self.0 = (self.0 * 2).min(SPIN_MAX);
        } else if slept {
            self.0 = (self.0 / 2).max(SPIN_MIN);
        }
    }
}

/// A socket that became readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketEvent {
    /// The number that it was registered with.
    pub number: usize,
    /// The peer has closed its side. This is reported once, possibly together with the last bytes.
    pub ending: bool,
}

/// Polls all sockets of a server.
pub struct Poller {
    poll: Poll,
    events: Events,
    spin_limit: SpinLimit,
}

impl Poller {
    /// A poller, the registry to register sockets with, and a waker that ends its wait.
    pub fn new() -> io::Result<(Poller, mio::Registry, Waker)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let poller = Poller {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            spin_limit: SpinLimit::new(),
        };
        Ok((poller, registry, waker))
    }

    /// Waits for events and appends the sockets that are readable or closed. `may_spin`: a core is free for
    /// spinning before the thread sleeps.
    pub fn poll(&mut self, may_spin: bool, found: &mut Vec<SocketEvent>) {
        if !may_spin {
            self.sleep();
        } else if !self.check_now() {
            self.wait();
        }
        self.push_events(found);
    }

    /// As [`Poller::poll`], without waiting.
    pub fn poll_now(&mut self, found: &mut Vec<SocketEvent>) {
        if self.check_now() {
            self.push_events(found);
        }
    }

    fn push_events(&self, found: &mut Vec<SocketEvent>) {
        let sockets = self.events.iter().filter(|event| event.token() != WAKER);
        found.extend(sockets.map(|event| SocketEvent {
            number: event.token().0,
            ending: event.is_read_closed() || event.is_error(),
        }));
    }

    /// Polls once without sleeping. True if there was an event.
    fn check_now(&mut self) -> bool {
        matches!(self.poll.poll(&mut self.events, Some(Duration::ZERO)), Ok(())) && !self.events.is_empty()
    }

    fn sleep(&mut self) {
        if let Err(error) = self.poll.poll(&mut self.events, None) {
            self.events.clear();
            if error.kind() != io::ErrorKind::Interrupted {
                // An immediate second try would not help.
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn wait(&mut self) {
        let began = Instant::now();
        while !self.check_now() && began.elapsed() < self.spin_limit.0 {}
        let slept = self.events.is_empty();
        if slept {
            self.sleep();
        }
        self.spin_limit.learn(began.elapsed(), slept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spin_limit_follows_the_waits() {
        let mut spin_limit = SpinLimit::new();
        for _ in 0..20 {
            spin_limit.learn(Duration::from_millis(5), true);
        }
        assert_eq!(spin_limit.0, SPIN_MIN);
        for _ in 0..7 {
            spin_limit.learn(Duration::from_micros(70), true);
        }
        assert_eq!(spin_limit.0, SPIN_MAX, "seven doublings");
        spin_limit.learn(Duration::from_micros(30), false);
        assert_eq!(spin_limit.0, SPIN_MAX);
    }

    #[test]
    fn a_waker_ends_the_wait_and_is_no_socket() {
        for may_spin in [false, true] {
            let (mut poller, _registry, waker) = Poller::new().unwrap();
            let thread = std::thread::spawn(move || {
                let mut numbers = Vec::new();
                poller.poll(may_spin, &mut numbers);
                numbers
            });
            std::thread::sleep(Duration::from_millis(5));
            waker.wake().unwrap();
            assert!(thread.join().unwrap().is_empty());
        }
    }
}
