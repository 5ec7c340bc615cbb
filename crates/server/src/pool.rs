//! The threads that serve all connections.
//!
//! ```text
//!                     .---- nothing ready, nobody polls ----> Polling --bytes came--.
//!                     |                                                             v
//!   Resting --woken--> unblocked <----------------------------------------- ready queue
//!      ^              |    ^   '---- takes one: serves its messages, to the end -----'
//!      |              |    |
//!      '- not needed -'    '-- Blocked: in a lock wait, a sync, a query (`blocking::section`)
//! ```
//!
//! An idle connection costs memory but no thread. A thread that finds nothing to do polls all sockets (one
//! thread at a time) and then serves the connections that it found: the thread that received a transaction
//! executes it, without a handoff, and under load a message costs neither a wake-up nor a thread switch,
//! which on a loaded machine cost more than a point statement. A thread that is about to wait for something
//! other than a socket announces it, and another thread takes its place if none is left. A watchdog makes
//! sure that work which does not wait (a long program) delays the other connections only for a moment.
//!
//! Replies are held until all ready connections have been served (`Queue::held`) and are then sent back to
//! back: a client thread with several connections is woken once for all of them. They are held for a few
//! turns at most, or, if one of these is long, for one tick of the watchdog.
//!
//! Replies that report a commit wait for the log. Their connections are set aside (`unsynced`) while there is
//! other work; then one thread waits for the log on behalf of all of them and they are served again: one sync
//! for many, and one waiting thread instead of many. That thread does nothing else in the meantime, so it
//! cannot end up waiting for a session whose replies it holds.
//!
//! A statement of a transaction that has to wait for a lock releases its thread: its connection waits like an
//! idle one until whoever releases the lock wakes it (`SlotWaker`).
//!
//! Before it sleeps, the polling thread spins for some microseconds if a core is free: a client that answers
//! at once is served without the wake-up, which takes longer than its statement. The time adapts to recent
//! waits (`SpinLimit`).
//!
//! Invariants:
//! 1. A connection is served by one thread at a time; bytes that arrive in the meantime are noted (`DIRTY`).
//! 2. While a connection is in the ready queue or held, or set aside and nobody waits for the log, some
//!    thread is unblocked or was just woken; the watchdog steps in if that thread is busy for long.
//! 3. There are at most as many threads as connections that block, plus the number of cores.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker as TaskWaker};
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Token, Waker};
use parking_lot::{Condvar, Mutex, MutexGuard};
use socket2::Socket as Stream;
use weft_base::blocking::{self, Watcher};
use weft_base::idle;

use crate::poller::{Poller, SocketEvent};

/// An idle thread ends after this time.
const IDLE_THREAD_MAX: Duration = Duration::from_secs(5);
/// How often the watchdog checks while messages arrive.
const WATCHDOG_TICK: Duration = Duration::from_millis(1);
/// After this many ticks without a message the watchdog sleeps until the next one.
const QUIET_TICKS: u32 = 100;
/// Ready connections beyond the one in hand before another thread is woken for them: a wake-up takes about as
/// long as serving them.
const READY_BEFORE_WAKE: usize = 4;
/// Connections served within the same span count as active at the same time.
const ACTIVE_SPAN: Duration = Duration::from_millis(8);
/// While there is other work, replies wait for more replies to sync with, but at most this many turns.
const TURNS_BEFORE_SYNC: usize = 32;
/// Turns for which a reply waits for other replies, at most.
const HELD_TURNS: u64 = 8;
/// No deadline.
const NEVER: u64 = u64::MAX;

/// What a connection needs after it was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait for bytes, or for the time limit.
    Wait(Option<Duration>),
    /// As `Wait`, after its replies have been sent together with those of others.
    Send(Option<Duration>),
    /// It has more messages already; other connections go first.
    More,
    /// Its replies wait for the log; it is served again when they may be sent.
    Sync,
    /// It ended.
    End,
}

/// The outcome of sending replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// All were sent.
    All,
    /// The client does not read; the connection is served again and sends the rest then.
    Some,
    /// The client is gone.
    Never,
}

/// Why a connection is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeReason {
    /// Its time limit has passed.
    pub timed_out: bool,
    /// The client has closed its side; what it sent before may still be unread.
    pub ending: bool,
}

/// A connection as the pool sees it.
pub trait Serve: Send {
    /// Answers the messages that have arrived, without waiting for more. Must not panic.
    fn serve(&mut self, reason: WakeReason) -> Next;

    /// After [`Next::Send`]: sends the replies without waiting. Must not panic.
    fn send(&mut self) -> Sent;

    /// Called once, first: `waker` has the connection served again although no bytes arrived.
    fn set_waker(&mut self, waker: TaskWaker);

    /// After [`Next::Sync`]: waits until the replies may be sent, or never may. Must not wait for anything
    /// else and must not panic.
    fn await_log(&mut self);
}

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
/// Running, and an event arrived since.
const DIRTY: u8 = 3;

/// How many connections were served in each of the last two time spans.
#[derive(Default)]
struct ActiveConnections {
    span: AtomicU64,
    now: AtomicUsize,
    before: AtomicUsize,
}

impl ActiveConnections {
    /// Counts a connection once per span. Races miscount slightly, which only affects whether the poller
    /// spins.
    fn count(&self, span: u64, slot: &Slot) {
        if slot.span.swap(span, Relaxed) == span {
            return;
        }
        let last = self.span.swap(span, Relaxed);
        if last != span {
            let count = self.now.swap(0, Relaxed);
            self.before
                .store(if last + 1 == span { count } else { 0 }, Relaxed);
        }
        self.now.fetch_add(1, Relaxed);
    }

    fn connections(&self) -> usize {
        self.now.load(Relaxed).max(self.before.load(Relaxed))
    }
}

/// A connection's slot in the pool.
struct Slot {
    number: usize,
    socket: Arc<Stream>,
    state: AtomicU8,
    /// Microseconds since the pool started.
    deadline: AtomicU64,
    timed_out: AtomicBool,
    ending: AtomicBool,
    /// The span in which it was last served.
    span: AtomicU64,
    served: Mutex<Option<Box<dyn Serve>>>,
}

impl Slot {
    /// Notes an event. True if the caller must put the slot into the ready queue.
    fn mark_ready(&self) -> bool {
        let previous = self.state.fetch_update(SeqCst, SeqCst, |state| match state {
            IDLE => Some(QUEUED),
            RUNNING => Some(DIRTY),
            _ => None,
        });
        previous == Ok(IDLE)
    }
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Slot>>,
    /// Connections whose replies are ready to be sent, and how long they then wait for bytes; their state is
    /// RUNNING or DIRTY.
    held: Vec<(Arc<Slot>, Option<Duration>)>,
    /// `taken` when the first of them was added.
    held_since: u64,
    /// Connections whose replies wait for the log; their state is QUEUED.
    unsynced: Vec<Arc<Slot>>,
    /// Connections served since the first of them was added.
    turns: usize,
    /// A thread waits for the log on behalf of the connections set aside.
    syncing: bool,
    /// No other connection was active lately: the thread that waits for the log is not replaced at once.
    syncing_alone: bool,
    /// Counts what is taken from `ready` and from `unsynced`.
    taken: u64,
    /// A thread is in the poller.
    polling: bool,
    /// How often a thread entered the poller.
    polls: u64,
    /// Threads neither idle nor blocked, those just woken included.
    unblocked: usize,
    /// Threads in an announced wait.
    blocked: usize,
    idle: usize,
    /// Idle threads that were woken and do not run yet.
    wakes_pending: usize,
    /// Threads that were started and do not run yet.
    starting: usize,
    threads: usize,
    threads_started: u64,
    stopping: bool,
}

impl Queue {
    /// Files a connection after it was served.
    fn put(&mut self, slot: Arc<Slot>, next: NextState) {
        match next {
            NextState::Nowhere => {}
            NextState::Held(limit) => {
                if self.held.is_empty() {
                    self.held_since = self.taken;
                }
                self.held.push((slot, limit));
            }
            NextState::Ready => self.ready.push_back(slot),
            NextState::Unsynced => {
                if self.unsynced.is_empty() {
                    self.turns = 0;
                }
                self.unsynced.push(slot);
            }
        }
    }

    /// Whether held replies should be sent now.
    fn wants_send(&self) -> bool {
        let is_time = self.ready.is_empty() || self.taken - self.held_since >= HELD_TURNS;
        is_time && !self.held.is_empty()
    }

    /// Whether a thread should wait for the log now.
    fn wants_sync(&self) -> bool {
        let is_time = self.ready.is_empty() || self.turns >= TURNS_BEFORE_SYNC;
        is_time && !self.unsynced.is_empty() && !self.syncing
    }

    /// Whether there is work that no thread does.
    fn has_work(&self) -> bool {
        !(self.ready.is_empty() && self.held.is_empty()) || (!self.unsynced.is_empty() && !self.syncing)
    }
}

/// What happens to a connection after it was served.
enum NextState {
    /// Nothing: it waits for bytes, or it ended.
    Nowhere,
    /// Its replies are to be sent.
    Held(Option<Duration>),
    Ready,
    Unsynced,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Arc<Slot>>>,
    free: Vec<usize>,
    open: usize,
}

/// The pool. It lives until its last thread has ended.
pub struct Pool {
    queue: Mutex<Queue>,
    work_available: Condvar,
    poller: Mutex<Poller>,
    registry: mio::Registry,
    waker: Waker,
    slots: Mutex<Slots>,
    active: ActiveConnections,
    /// The number of threads worth running at the same time.
    cores: usize,
    stack_bytes: usize,
    started: Instant,
    watchdog_asleep: AtomicBool,
    watchdog_wake: Condvar,
}

impl Pool {
    /// A pool with one thread and the watchdog.
    pub fn start(stack_bytes: usize) -> io::Result<Arc<Pool>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (poller, registry, waker) = Poller::new()?;
        let pool = Arc::new(Pool {
            queue: Mutex::default(),
            work_available: Condvar::new(),
            poller: Mutex::new(poller),
            registry,
            waker,
            slots: Mutex::default(),
            active: ActiveConnections::default(),
            cores,
            stack_bytes,
            started: Instant::now(),
            watchdog_asleep: AtomicBool::new(false),
            watchdog_wake: Condvar::new(),
        });
        pool.spawn(&mut pool.queue.lock())?;
        let watchdog = pool.clone();
        let watchdog = thread::Builder::new()
            .name("weft-watch".to_owned())
            .spawn(move || watchdog.run_watchdog());
        if let Err(error) = watchdog {
            pool.stop();
            return Err(error);
        }
        Ok(pool)
    }

    /// The number of threads, without the watchdog.
    #[cfg(test)]
    fn thread_count(&self) -> usize {
        self.queue.lock().threads
    }

    /// Adds a connection and serves it from now on, including bytes that have arrived already. `limit`: how
    /// long it may wait the first time.
    pub fn adopt(
        self: &Arc<Self>,
        socket: Arc<Stream>,
        served: Box<dyn Serve>,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        let slot = {
            let queue = self.queue.lock();
            if queue.stopping && queue.threads == 0 {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let mut slots = self.slots.lock();
            let number = slots.free.pop().unwrap_or_else(|| {
                slots.slots.push(None);
                slots.slots.len() - 1
            });
            let slot = Arc::new(Slot {
                number,
                socket: socket.clone(),
                state: AtomicU8::new(IDLE),
                deadline: AtomicU64::new(NEVER),
                timed_out: AtomicBool::new(false),
                ending: AtomicBool::new(false),
                span: AtomicU64::new(NEVER),
                served: Mutex::new(Some(served)),
            });
            if let Some(free) = slots.slots.get_mut(number) {
                *free = Some(slot.clone());
            }
            slots.open += 1;
            slot
        };
        if let Some(served) = &mut *slot.served.lock() {
            let waker = SlotWaker {
                pool: self.clone(),
                slot: Arc::downgrade(&slot),
            };
            served.set_waker(TaskWaker::from(Arc::new(waker)));
        }
        self.limit_wait(&slot, limit);
        let fd = socket.as_raw_fd();
        self.registry
            .register(&mut SourceFd(&fd), Token(slot.number), Interest::READABLE)
            .inspect_err(|_| self.forget(&slot))
    }

    /// Wakes the thread that polls, for nothing else than its being awake.
    pub fn wake(&self) {
        let _ = self.waker.wake();
    }

    /// All threads end when the last connection has gone.
    pub fn stop(&self) {
        self.queue.lock().stopping = true;
        // If waking fails, the poller still notices that the sockets close.
        let _ = self.waker.wake();
        self.work_available.notify_all();
        self.watchdog_wake.notify_all();
    }

    fn forget(&self, slot: &Slot) {
        let fd = slot.socket.as_raw_fd();
        // It may not have been registered.
        let _ = self.registry.deregister(&mut SourceFd(&fd));
        let mut slots = self.slots.lock();
        match slots.slots.get_mut(slot.number) {
            Some(taken) if taken.as_deref().is_some_and(|own| std::ptr::eq(own, slot)) => *taken = None,
            _ => return,
        }
        slots.free.push(slot.number);
        slots.open -= 1;
    }

    fn spawn(self: &Arc<Self>, queue: &mut Queue) -> io::Result<()> {
        let pool = self.clone();
        queue.threads_started += 1;
        thread::Builder::new()
            .name(format!("weft-serve-{}", queue.threads_started))
            .stack_size(self.stack_bytes)
            .spawn(move || pool.work())?;
        queue.threads += 1;
        queue.starting += 1;
        queue.unblocked += 1;
        Ok(())
    }

    /// Wakes an idle thread or starts another one. If that fails, blocked threads will come back at some
    /// point.
    fn wake_or_start_thread(self: &Arc<Self>, queue: &mut Queue) {
        if queue.idle > queue.wakes_pending {
            queue.wakes_pending += 1;
            queue.unblocked += 1;
            self.work_available.notify_one();
        } else if self.spawn(queue).is_err() {
            // Then the thread in the poller, if there is one, must do.
            let _ = self.waker.wake();
        }
    }

    /// The main loop of a thread.
    fn work(self: &Arc<Self>) {
        blocking::watch(Arc::new(BlockingWatcher(self.clone())));
        let mut events = Vec::new();
        let mut sending = Vec::new();
        let mut queue = self.queue.lock();
        queue.starting -= 1;
        loop {
            if queue.wants_send() {
                self.send(&mut queue, &mut sending);
            } else if queue.wants_sync() {
                self.sync(&mut queue, &mut events);
            } else if let Some(slot) = queue.ready.pop_front() {
                if queue.ready.len() >= READY_BEFORE_WAKE && queue.unblocked < self.cores {
                    self.wake_or_start_thread(&mut queue);
                }
                queue.taken += 1;
                queue.turns += 1;
                let after = MutexGuard::unlocked(&mut queue, || self.run(&slot));
                queue.put(slot, after);
            } else if self.is_over(&queue) {
                queue.unblocked -= 1;
                break;
            } else if !queue.polling {
                queue.polling = true;
                queue.polls += 1;
                // Spinning would take time from other threads if more clients are active than there are cores
                // to spare, or if a session waits for another core.
                let may_spin = queue.blocked == 0 && self.active.connections() * 2 <= self.cores;
                MutexGuard::unlocked(&mut queue, || {
                    idle::about_to_rest();
                    self.poller.lock().poll(may_spin, &mut events);
                });
                queue.polling = false;
                self.queue_ready(&mut queue, &mut events);
            } else if !self.wait_idle(&mut queue) {
                break;
            }
        }
        queue.threads -= 1;
        if queue.stopping {
            // The next thread may wait in the poller or be idle.
            let _ = self.waker.wake();
            self.work_available.notify_all();
            self.watchdog_wake.notify_all();
        }
    }

    fn queue_ready(&self, queue: &mut Queue, events: &mut Vec<SocketEvent>) {
        if events.is_empty() {
            return;
        }
        let slots = self.slots.lock();
        for SocketEvent { number, ending } in events.drain(..) {
            let Some(Some(slot)) = slots.slots.get(number) else {
                continue;
            };
            slot.ending.fetch_or(ending, SeqCst);
            if slot.mark_ready() {
                queue.ready.push_back(slot.clone());
            }
        }
        drop(slots);
        if self.watchdog_asleep.load(SeqCst) {
            self.watchdog_wake.notify_one();
        }
    }

    fn is_over(&self, queue: &Queue) -> bool {
        queue.stopping && self.slots.lock().open == 0
    }

    /// Waits until woken; false after a long time without work, or when the pool has ended.
    fn wait_idle(&self, queue: &mut MutexGuard<'_, Queue>) -> bool {
        queue.unblocked -= 1;
        queue.idle += 1;
        let until = Instant::now() + IDLE_THREAD_MAX;
        let mut in_time = true;
        while queue.wakes_pending == 0 && in_time && !self.is_over(queue) {
            in_time = !self.work_available.wait_until(queue, until).timed_out();
        }
        queue.idle -= 1;
        let wakes_pending = queue.wakes_pending > 0;
        if wakes_pending {
            // The thread that woke it has counted this one as unblocked.
            queue.wakes_pending -= 1;
        }
        wakes_pending
    }

    /// Waits for the log on behalf of all connections set aside, unless others became ready in the meantime.
    fn sync(&self, queue: &mut MutexGuard<'_, Queue>, events: &mut Vec<SocketEvent>) {
        if !queue.polling && queue.turns < TURNS_BEFORE_SYNC {
            self.poller.lock().poll_now(events);
            self.queue_ready(queue, events);
            if !queue.ready.is_empty() {
                return;
            }
        }
        let slots = std::mem::take(&mut queue.unsynced);
        queue.syncing = true;
        queue.syncing_alone = self.active.connections() <= slots.len();
        queue.taken += 1;
        MutexGuard::unlocked(queue, || {
            for slot in &slots {
                if let Some(served) = &mut *slot.served.lock() {
                    served.await_log();
                }
            }
        });
        queue.syncing = false;
        queue.syncing_alone = false;
        for slot in slots.into_iter().rev() {
            queue.ready.push_front(slot);
        }
    }

    /// Sends the replies that were held.
    fn send(&self, queue: &mut MutexGuard<'_, Queue>, sending: &mut Vec<(Arc<Slot>, Option<Duration>)>) {
        std::mem::swap(&mut queue.held, sending);
        queue.taken += 1;
        // None of these sends waits, so none delays another.
        let mut ready = MutexGuard::unlocked(queue, || {
            sending.retain(|(slot, limit)| {
                let mut served = slot.served.lock();
                match served.as_mut().map_or(Sent::Never, |served| served.send()) {
                    Sent::All => self.limit_wait(slot, *limit),
                    Sent::Some => {
                        slot.state.store(QUEUED, SeqCst);
                        return true;
                    }
                    Sent::Never => self.end(slot, &mut served),
                }
                drop(served);
                matches!(self.park(slot), NextState::Ready)
            });
            std::mem::take(sending)
        });
        queue.ready.extend(ready.drain(..).map(|(slot, _)| slot));
        *sending = ready;
    }

    /// The connection waits for bytes, unless some have arrived in the meantime.
    fn park(&self, slot: &Slot) -> NextState {
        match slot.state.compare_exchange(RUNNING, IDLE, SeqCst, SeqCst) {
            Ok(_) => NextState::Nowhere,
            Err(_) => {
                slot.state.store(QUEUED, SeqCst);
                NextState::Ready
            }
        }
    }

    fn end(&self, slot: &Slot, served: &mut Option<Box<dyn Serve>>) {
        self.forget(slot);
        // Dropping the session rolls back.
        *served = None;
    }

    /// Serves one connection.
    fn run(&self, slot: &Slot) -> NextState {
        slot.state.store(RUNNING, SeqCst);
        let span = self.started.elapsed().as_millis() / ACTIVE_SPAN.as_millis();
        self.active.count(span as u64, slot);
        slot.deadline.store(NEVER, SeqCst);
        let reason = WakeReason {
            timed_out: slot.timed_out.swap(false, SeqCst),
            ending: slot.ending.load(SeqCst),
        };
        let mut served = slot.served.lock();
        let next = served.as_mut().map_or(Next::End, |served| served.serve(reason));
        match next {
            Next::Wait(limit) => {
                self.limit_wait(slot, limit);
                drop(served);
                self.park(slot)
            }
            Next::Send(limit) => NextState::Held(limit),
            Next::More => {
                slot.state.store(QUEUED, SeqCst);
                NextState::Ready
            }
            Next::Sync => {
                slot.state.store(QUEUED, SeqCst);
                NextState::Unsynced
            }
            Next::End => {
                self.end(slot, &mut served);
                NextState::Nowhere
            }
        }
    }

    fn limit_wait(&self, slot: &Slot, limit: Option<Duration>) {
        let Some(limit) = limit else {
            return;
        };
        let at = self.started.elapsed() + limit;
        slot.deadline
            .store(u64::try_from(at.as_micros()).unwrap_or(NEVER), SeqCst);
        if self.watchdog_asleep.load(SeqCst) {
            // Under the lock, so that the watchdog cannot be between checking and sleeping.
            let _queue = self.queue.lock();
            self.watchdog_wake.notify_one();
        }
    }

    /// Enforces time limits, and finds connections that wait because every thread is busy.
    fn run_watchdog(self: &Arc<Self>) {
        let (mut polls_before, mut taken_before) = (0, 0);
        let mut quiet_ticks = 0;
        let mut queue = self.queue.lock();
        loop {
            if self.is_over(&queue) {
                return;
            }
            self.expire(&mut queue);
            let unheard = !queue.polling && queue.polls == polls_before;
            let undone = (queue.has_work() || queue.unblocked == 0) && queue.taken == taken_before;
            if ((unheard && queue.unblocked > 0) || undone) && queue.wakes_pending + queue.starting == 0 {
                self.wake_or_start_thread(&mut queue);
            }
            taken_before = queue.taken;
            quiet_ticks = if queue.polls == polls_before && queue.polling {
                quiet_ticks + 1
            } else {
                0
            };
            polls_before = queue.polls;
            if quiet_ticks < QUIET_TICKS {
                self.watchdog_wake.wait_for(&mut queue, WATCHDOG_TICK);
                continue;
            }
            self.watchdog_asleep.store(true, SeqCst);
            // Once more, for limits that were set before it was known that the watchdog sleeps.
            match self.expire(&mut queue) {
                Some(wait) => {
                    self.watchdog_wake.wait_for(&mut queue, wait.max(WATCHDOG_TICK));
                }
                None => self.watchdog_wake.wait(&mut queue),
            }
            self.watchdog_asleep.store(false, SeqCst);
            quiet_ticks = 0;
        }
    }

    /// Puts connections whose time limit has passed into the ready queue; returns the time until the next
    /// limit.
    fn expire(self: &Arc<Self>, queue: &mut Queue) -> Option<Duration> {
        let now = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(NEVER);
        let mut next = NEVER;
        let mut any = false;
        for slot in self.slots.lock().slots.iter().flatten() {
            // The state first: a slot leaves IDLE only under the queue's lock.
            let is_idle = slot.state.load(SeqCst) == IDLE;
            let deadline = slot.deadline.load(SeqCst);
            if deadline > now {
                next = next.min(deadline);
            } else if !is_idle {
                // It is being served or about to wait again: check again soon.
                next = now;
            } else {
                slot.timed_out.store(true, SeqCst);
                if slot.mark_ready() {
                    queue.ready.push_back(slot.clone());
                    any = true;
                }
            }
        }
        if any {
            if queue.wakes_pending + queue.starting == 0 {
                self.wake_or_start_thread(queue);
            }
            // A polling thread counts as unblocked: it must be woken too, and the watchdog must stay awake.
            let _ = self.waker.wake();
            next = now;
        }
        (next != NEVER).then(|| Duration::from_micros(next - now))
    }
}

/// Has a connection served again that waited for something other than bytes.
struct SlotWaker {
    pool: Arc<Pool>,
    slot: Weak<Slot>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        let Some(slot) = self.slot.upgrade() else {
            return;
        };
        let mut queue = self.pool.queue.lock();
        if !slot.mark_ready() {
            return;
        }
        queue.ready.push_back(slot);
        if queue.unblocked == usize::from(queue.polling) {
            self.pool.wake_or_start_thread(&mut queue);
        }
    }
}

/// Tells the pool about the waits of its threads.
struct BlockingWatcher(Arc<Pool>);

impl Watcher for BlockingWatcher {
    fn begin(&self) {
        let mut queue = self.0.queue.lock();
        queue.unblocked -= 1;
        queue.blocked += 1;
        // A thread that sleeps in the poller serves no ready connection.
        let serving = queue.unblocked - usize::from(queue.polling);
        let nobody_comes = queue.unblocked == 0 && !queue.syncing_alone;
        if nobody_comes || (serving == 0 && queue.has_work()) {
            self.0.wake_or_start_thread(&mut queue);
        }
    }

    fn end(&self) {
        let mut queue = self.0.queue.lock();
        queue.unblocked += 1;
        queue.blocked -= 1;
    }
}

#[cfg(test)]
mod tests;
