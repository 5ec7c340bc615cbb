//! A lock-free ring buffer with a single sender and a single receiver.
//!
//! ```text
//!   sender writes  slot[tail & mask], then tail += 1 (release)
//!   receiver reads slot[head & mask], then head += 1 (release)
//!   full: tail - head = capacity          empty: tail = head
//! ```
//!
//! Each side caches the other's counter and reloads it only when the cached value indicates full or empty, so
//! that most messages transfer only the slot's cache line. If the ring is full, sending fails and the
//! caller does something else.
//!
//! Source: BionicDB 4.6 (request and response channels between workers); Hobbes 3.2 (a queue each way for
//! every worker).

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[repr(align(128))]
struct Counter(AtomicUsize);

struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    head: Counter,
    tail: Counter,
}

// SAFETY: the only sender writes a slot before the release of `tail` that publishes it to the only receiver,
// which reads it before the release of `head` that returns it. Values move between threads.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above; no part of it is bound to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

/// The sending end.
pub(crate) struct Sender<T> {
    shared: Arc<Shared<T>>,
    tail: Cell<usize>,
    head_seen: Cell<usize>,
}

/// The receiving end.
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    head: Cell<usize>,
    tail_seen: Cell<usize>,
}

/// A ring for `capacity` messages, rounded up to a power of two. Messages are `Copy`, so unreceived ones need
/// no drop.
pub(crate) fn ring<T: Copy + Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let slot = || UnsafeCell::new(MaybeUninit::uninit());
    let shared = Arc::new(Shared {
        slots: (0..capacity.next_power_of_two()).map(|_| slot()).collect(),
        head: Counter(AtomicUsize::new(0)),
        tail: Counter(AtomicUsize::new(0)),
    });
    let sender = Sender {
        shared: Arc::clone(&shared),
        tail: Cell::new(0),
        head_seen: Cell::new(0),
    };
    let receiver = Receiver {
        shared,
        head: Cell::new(0),
        tail_seen: Cell::new(0),
    };
    (sender, receiver)
}

impl<T: Copy> Sender<T> {
    /// Sends a message; false if the ring is full.
    pub fn send(&self, message: T) -> bool {
        let shared = &*self.shared;
        let (tail, capacity) = (self.tail.get(), shared.slots.len());
        if tail.wrapping_sub(self.head_seen.get()) == capacity {
            self.head_seen.set(shared.head.0.load(Ordering::Acquire));
            if tail.wrapping_sub(self.head_seen.get()) == capacity {
                return false;
            }
        }
        let Some(slot) = shared.slots.get(tail & (capacity - 1)) else {
            return false;
        };
        // SAFETY: the slot is unused: the receiver has released it (acquired above), and this is the only
        // sender, because an end can be neither copied nor shared.
        unsafe { (*slot.get()).write(message) };
        self.tail.set(tail.wrapping_add(1));
        shared.tail.0.store(tail.wrapping_add(1), Ordering::Release);
        true
    }
}

impl<T: Copy> Receiver<T> {
    /// The next message, if there is one.
    pub fn receive(&self) -> Option<T> {
        let shared = &*self.shared;
        let (head, capacity) = (self.head.get(), shared.slots.len());
        if head == self.tail_seen.get() {
            self.tail_seen.set(shared.tail.0.load(Ordering::Acquire));
            if head == self.tail_seen.get() {
                return None;
            }
        }
        let slot = shared.slots.get(head & (capacity - 1))?;
        // SAFETY: the sender has written and released it (acquired above), and does not access it until
        // `head` has advanced; this is the only receiver.
        let message = unsafe { (*slot.get()).assume_init() };
        self.head.set(head.wrapping_add(1));
        shared.head.0.store(head.wrapping_add(1), Ordering::Release);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_refuses_and_an_empty_one_returns_none() {
        let (sender, receiver) = ring::<u32>(4);
        for round in 0..10 {
            assert_eq!(receiver.receive(), None);
            assert!((0..4).all(|n| sender.send(round * 4 + n)));
            assert!(!sender.send(99));
            assert_eq!(receiver.receive(), Some(round * 4));
            assert!(sender.send(round * 4 + 4) && !sender.send(99));
            let rest: Vec<u32> = std::iter::from_fn(|| receiver.receive()).collect();
            assert_eq!(rest, (1..5).map(|n| round * 4 + n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn messages_arrive_once_and_in_order() {
        const MESSAGES: u64 = if cfg!(miri) { 200 } else { 100_000 };
        let (sender, receiver) = ring::<(u64, u64)>(if cfg!(miri) { 4 } else { 64 });
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..MESSAGES {
                    while !sender.send((n, !n)) {
                        std::thread::yield_now();
                    }
                }
            });
            for n in 0..MESSAGES {
                let message = loop {
                    match receiver.receive() {
                        Some(message) => break message,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(message, (n, !n));
            }
            assert_eq!(receiver.receive(), None);
        });
    }
}
