//! Waiting for any of many sockets, not always asleep.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};

/// Sockets heard of in one look.
const EVENTS_MAX: usize = 256;
/// The longest look before sleep. A sleeping thread takes about as long to wake.
const PATIENCE_MAX: Duration = Duration::from_micros(60);
/// The shortest: one or two looks.
const PATIENCE_MIN: Duration = Duration::from_micros(1);
/// Not a socket's number.
const WAKER: Token = Token(usize::MAX);

/// How long to look before sleeping, learnt from how long the waits are. A wait that a longer look would have
/// spared doubles it; a look in vain halves it.
#[derive(Debug)]
pub struct Patience(Duration);

impl Patience {
    fn new() -> Patience {
        Patience(PATIENCE_MAX)
    }

    /// A wait has ended that took `waited` in all, slept through or not.
    fn learn(&mut self, waited: Duration, slept: bool) {
        if waited <= PATIENCE_MAX * 2 {
            self.0 = (self.0 * 2).min(PATIENCE_MAX);
        } else if slept {
            self.0 = (self.0 / 2).max(PATIENCE_MIN);
        }
    }
}

/// A socket that something was heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// The number that it was registered with.
    pub number: usize,
    /// The other side sends no more. This is told once, perhaps together with the last bytes.
    pub ending: bool,
}

/// Hears of all sockets.
pub struct Poller {
    poll: Poll,
    events: Events,
    patience: Patience,
}

impl Poller {
    /// A poller, where sockets are registered with it, and what ends its wait.
    pub fn new() -> io::Result<(Poller, mio::Registry, Waker)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let poller = Poller {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            patience: Patience::new(),
        };
        Ok((poller, registry, waker))
    }

    /// Waits until something comes; appends the sockets that have something to read, or an end. `patient`: a
    /// core is free to look from before sleeping.
    pub fn poll(&mut self, patient: bool, heard: &mut Vec<Heard>) {
        if !patient {
            self.sleep();
        } else if !self.look() {
            self.wait();
        }
        self.tell(heard);
    }

    /// The same without waiting.
    pub fn glance(&mut self, heard: &mut Vec<Heard>) {
        if self.look() {
            self.tell(heard);
        }
    }

    fn tell(&self, heard: &mut Vec<Heard>) {
        let sockets = self.events.iter().filter(|event| event.token() != WAKER);
        heard.extend(sockets.map(|event| Heard {
            number: event.token().0,
            ending: event.is_read_closed() || event.is_error(),
        }));
    }

    /// Looks without sleeping. True if there was something.
    fn look(&mut self) -> bool {
        matches!(self.poll.poll(&mut self.events, Some(Duration::ZERO)), Ok(())) && !self.events.is_empty()
    }

    fn sleep(&mut self) {
        if let Err(error) = self.poll.poll(&mut self.events, None) {
            self.events.clear();
            if error.kind() != io::ErrorKind::Interrupted {
                // Nothing that a second try at once would mend.
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn wait(&mut self) {
        let began = Instant::now();
        while !self.look() && began.elapsed() < self.patience.0 {}
        let slept = self.events.is_empty();
        if slept {
            self.sleep();
        }
        self.patience.learn(began.elapsed(), slept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_waits() {
        let mut patience = Patience::new();
        for _ in 0..20 {
            patience.learn(Duration::from_millis(5), true);
        }
        assert_eq!(patience.0, PATIENCE_MIN);
        for _ in 0..7 {
            patience.learn(Duration::from_micros(70), true);
        }
        assert_eq!(patience.0, PATIENCE_MAX, "seven doublings");
        patience.learn(Duration::from_micros(30), false);
        assert_eq!(patience.0, PATIENCE_MAX);
    }

    #[test]
    fn a_waker_ends_the_wait_and_is_no_socket() {
        for patient in [false, true] {
            let (mut poller, _registry, waker) = Poller::new().unwrap();
            let thread = std::thread::spawn(move || {
                let mut numbers = Vec::new();
                poller.poll(patient, &mut numbers);
                numbers
            });
            std::thread::sleep(Duration::from_millis(5));
            waker.wake().unwrap();
            assert!(thread.join().unwrap().is_empty());
        }
    }
}
