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
//! A connection without a message costs memory and no thread. Whoever finds nothing to do polls all sockets
//! at once (one thread at a time) and then serves what it found itself: the thread that received a
//! transaction executes it, without a handoff, and under load a message costs neither a wake-up nor a switch
//! of threads, which on a loaded machine are dearer than a point statement. When a thread is about to wait
//! for something else than a socket, it says so, and another one comes in its place if none is left; a watch
//! sees to it that work without waiting (a long program) does not keep the others from their turn for more
//! than a moment.
//!
//! Replies wait until the connections that are ready have been served (`Queue::held`), and then leave one
//! right after the other: a client's thread that has several connections is woken for all of them once. They
//! wait for a few turns of others, or, if one of those is long, for a tick of the watch.
//!
//! Replies that tell of a commit wait for the log. Their connections are put aside (`unsynced`) while there
//! is other work, then one thread waits for the log on behalf of all of them, and they are served on: one
//! sync for many, and one thread away instead of many. That thread does nothing else meanwhile, so it cannot
//! come to wait for a session whose replies it holds.
//!
//! A statement of a transaction that meets a lock leaves its thread altogether: its connection waits like one
//! without a message, until whoever gives the lock away wakes it (`PlaceWaker`).
//!
//! Before it sleeps, the polling thread looks again for some microseconds, if there is a core to spare: a
//! client that answers at once is served without the wake-up, which takes longer than its statement. How
//! long is learnt from how long the last waits were (`Patience`).
//!
//! Invariants:
//! 1. A connection is served by one thread at a time; bytes that come meanwhile are noted (`Dirty`).
//! 2. While a connection is in the ready queue or held, or put aside and nobody waits for the log, some
//!    thread is unblocked, or one was just woken; the watch makes up for it if that thread has long work.
//! 3. There are at most as many threads as connections that block, and as many more as there are cores.

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

use crate::poller::{Heard, Poller};

/// A thread that nobody needed for so long ends.
const REST_MAX: Duration = Duration::from_secs(5);
/// How often the watch looks while messages come.
const WATCH_TICK: Duration = Duration::from_millis(1);
/// After so many ticks without a message the watch sleeps until the next one.
const QUIET_TICKS: u32 = 100;
/// Connections that must be ready beside the one in hand before another thread is woken for them: a wake-up
/// takes about as long as serving them.
const READY_BEFORE_HELP: usize = 4;
/// Connections served in one such span are at work at the same time.
const LIVELY_SPAN: Duration = Duration::from_millis(8);
/// Replies wait for further ones to be synced with them while there is work, but not for longer than so many
/// turns.
const TURNS_BEFORE_SYNC: usize = 32;
/// Turns for which a reply waits for those of others, at most.
const HELD_TURNS: u64 = 8;
/// No deadline.
const NEVER: u64 = u64::MAX;

/// What a connection wants after it was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing until bytes come, or until the limit is over.
    Wait(Option<Duration>),
    /// As `Wait`, when its replies have been sent, together with those of others.
    Send(Option<Duration>),
    /// It has more messages already; others come first.
    More,
    /// Its replies wait for the log; it is served again once they need not.
    Sync,
    /// It ended.
    End,
}

/// What became of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// They have left.
    All,
    /// The client does not read; the connection is to be served, and sends the rest then.
    Some,
    /// The client is gone.
    Never,
}

/// Why a connection is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct News {
    /// The limit of the last wait is over.
    pub expired: bool,
    /// The client sends no more, behind what it has sent.
    pub ending: bool,
}

/// A connection as the pool sees it.
pub trait Served: Send {
    /// Answers the messages that have come, without waiting for further ones. Must not panic.
    fn serve(&mut self, news: News) -> Next;

    /// After [`Next::Send`]: sends the replies, without waiting. Must not panic.
    fn send(&mut self) -> Sent;

    /// Told once, before all else: what has the connection served again though no bytes came.
    fn attend(&mut self, waker: TaskWaker);

    /// After [`Next::Sync`]: waits until the replies may leave, or never may. Must not wait for anything
    /// else, and not panic.
    fn await_log(&mut self);
}

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
/// Running, and something happened since.
const DIRTY: u8 = 3;

/// How many connections were served in each of the last two spans of time.
#[derive(Default)]
struct Lively {
    span: AtomicU64,
    now: AtomicUsize,
    before: AtomicUsize,
}

impl Lively {
    /// Counts a connection once a span. Races miscount a little, which only makes the poller wait otherwise.
    fn count(&self, span: u64, place: &Place) {
        if place.span.swap(span, Relaxed) == span {
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

/// A connection's place in the pool.
struct Place {
    number: usize,
    socket: Arc<Stream>,
    state: AtomicU8,
    /// Microseconds after the pool's start.
    deadline: AtomicU64,
    expired: AtomicBool,
    ending: AtomicBool,
    /// The span in which it was served last.
    span: AtomicU64,
    served: Mutex<Option<Box<dyn Served>>>,
}

impl Place {
    /// Notes that there is something to do. True if the caller must queue the place.
    fn stir(&self) -> bool {
        let stirred = self.state.fetch_update(SeqCst, SeqCst, |state| match state {
            IDLE => Some(QUEUED),
            RUNNING => Some(DIRTY),
            _ => None,
        });
        stirred == Ok(IDLE)
    }
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Place>>,
    /// Those whose replies are ready to be sent, and how long they wait for bytes then; their state is
    /// RUNNING, or DIRTY.
    held: Vec<(Arc<Place>, Option<Duration>)>,
    /// `taken` when the first of them came.
    held_since: u64,
    /// Those whose replies wait for the log; their state is QUEUED.
    unsynced: Vec<Arc<Place>>,
    /// Connections served since the first of them came.
    turns: usize,
    /// Some thread waits for the log on behalf of those that were put aside.
    syncing: bool,
    /// Nobody else has been heard of lately: the thread that waits for the log is not replaced at once.
    syncing_alone: bool,
    /// Counts what is taken from `ready` and from `unsynced`.
    taken: u64,
    /// Some thread is in the poller.
    polling: bool,
    /// Times that somebody went to the poller.
    polls: u64,
    /// Threads neither resting nor blocked, those just woken included.
    unblocked: usize,
    /// Threads in a wait that they told of.
    blocked: usize,
    resting: usize,
    /// Resting threads that were called and have not come yet.
    called: usize,
    /// Threads that were started and have not come yet.
    starting: usize,
    threads: usize,
    threads_started: u64,
    stopping: bool,
}

impl Queue {
    /// Puts a connection where it belongs after it was served.
    fn put(&mut self, place: Arc<Place>, next: After) {
        match next {
            After::Nowhere => {}
            After::Held(limit) => {
                if self.held.is_empty() {
                    self.held_since = self.taken;
                }
                self.held.push((place, limit));
            }
            After::Ready => self.ready.push_back(place),
            After::Unsynced => {
                if self.unsynced.is_empty() {
                    self.turns = 0;
                }
                self.unsynced.push(place);
            }
        }
    }

    /// Whether replies should leave now.
    fn wants_send(&self) -> bool {
        let is_time = self.ready.is_empty() || self.taken - self.held_since >= HELD_TURNS;
        is_time && !self.held.is_empty()
    }

    /// Whether the log should be waited for now.
    fn wants_sync(&self) -> bool {
        let is_time = self.ready.is_empty() || self.turns >= TURNS_BEFORE_SYNC;
        is_time && !self.unsynced.is_empty() && !self.syncing
    }

    /// Whether there is something to do that nobody does.
    fn has_work(&self) -> bool {
        !(self.ready.is_empty() && self.held.is_empty()) || (!self.unsynced.is_empty() && !self.syncing)
    }
}

/// Where a connection belongs after it was served.
enum After {
    /// It waits for bytes, or it ended.
    Nowhere,
    /// Its replies are to be sent.
    Held(Option<Duration>),
    Ready,
    Unsynced,
}

#[derive(Default)]
struct Places {
    places: Vec<Option<Arc<Place>>>,
    free: Vec<usize>,
    open: usize,
}

/// The pool. Lives until its last thread has ended.
pub struct Pool {
    queue: Mutex<Queue>,
    call: Condvar,
    poller: Mutex<Poller>,
    registry: mio::Registry,
    waker: Waker,
    places: Mutex<Places>,
    lively: Lively,
    /// Threads worth running at once.
    cores: usize,
    stack_bytes: usize,
    started: Instant,
    watch_asleep: AtomicBool,
    watch_call: Condvar,
}

impl Pool {
    /// A pool with one thread and the watch.
    pub fn start(stack_bytes: usize) -> io::Result<Arc<Pool>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (poller, registry, waker) = Poller::new()?;
        let pool = Arc::new(Pool {
            queue: Mutex::default(),
            call: Condvar::new(),
            poller: Mutex::new(poller),
            registry,
            waker,
            places: Mutex::default(),
            lively: Lively::default(),
            cores,
            stack_bytes,
            started: Instant::now(),
            watch_asleep: AtomicBool::new(false),
            watch_call: Condvar::new(),
        });
        pool.spawn(&mut pool.queue.lock())?;
        let watch = pool.clone();
        let watch = thread::Builder::new()
            .name("weft-watch".to_owned())
            .spawn(move || watch.watch());
        if let Err(error) = watch {
            pool.stop();
            return Err(error);
        }
        Ok(pool)
    }

    /// Threads there are now, without the watch.
    #[cfg(test)]
    fn thread_count(&self) -> usize {
        self.queue.lock().threads
    }

    /// Takes a connection in; it is served from now on, what has already come included. `limit`: how long its
    /// first wait may be.
    pub fn adopt(
        self: &Arc<Self>,
        socket: Arc<Stream>,
        served: Box<dyn Served>,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        let place = {
            let queue = self.queue.lock();
            if queue.stopping && queue.threads == 0 {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let mut places = self.places.lock();
            let number = places.free.pop().unwrap_or_else(|| {
                places.places.push(None);
                places.places.len() - 1
            });
            let place = Arc::new(Place {
                number,
                socket: socket.clone(),
                state: AtomicU8::new(IDLE),
                deadline: AtomicU64::new(NEVER),
                expired: AtomicBool::new(false),
                ending: AtomicBool::new(false),
                span: AtomicU64::new(NEVER),
                served: Mutex::new(Some(served)),
            });
            if let Some(free) = places.places.get_mut(number) {
                *free = Some(place.clone());
            }
            places.open += 1;
            place
        };
        if let Some(served) = &mut *place.served.lock() {
            let waker = PlaceWaker {
                pool: self.clone(),
                place: Arc::downgrade(&place),
            };
            served.attend(TaskWaker::from(Arc::new(waker)));
        }
        self.limit_wait(&place, limit);
        let fd = socket.as_raw_fd();
        self.registry
            .register(&mut SourceFd(&fd), Token(place.number), Interest::READABLE)
            .inspect_err(|_| self.forget(&place))
    }

    /// No thread stays once the last connection has gone.
    pub fn stop(&self) {
        self.queue.lock().stopping = true;
        // Without a waker the poller still hears of the sockets' ends.
        let _ = self.waker.wake();
        self.call.notify_all();
        self.watch_call.notify_all();
    }

    fn forget(&self, place: &Place) {
        let fd = place.socket.as_raw_fd();
        // It may never have been registered.
        let _ = self.registry.deregister(&mut SourceFd(&fd));
        let mut places = self.places.lock();
        match places.places.get_mut(place.number) {
            Some(taken) if taken.as_deref().is_some_and(|own| std::ptr::eq(own, place)) => *taken = None,
            _ => return,
        }
        places.free.push(place.number);
        places.open -= 1;
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

    /// Brings one more thread in. Without a thread to be had, those that block come back some time.
    fn bring_help(self: &Arc<Self>, queue: &mut Queue) {
        if queue.resting > queue.called {
            queue.called += 1;
            queue.unblocked += 1;
            self.call.notify_one();
        } else if self.spawn(queue).is_err() {
            // Then the one that sleeps in the poller, if there is one, must do.
            let _ = self.waker.wake();
        }
    }

    /// The life of a thread.
    fn work(self: &Arc<Self>) {
        blocking::watch(Arc::new(Absence(self.clone())));
        let mut heard = Vec::new();
        let mut sending = Vec::new();
        let mut queue = self.queue.lock();
        queue.starting -= 1;
        loop {
            if queue.wants_send() {
                self.send(&mut queue, &mut sending);
            } else if queue.wants_sync() {
                self.sync(&mut queue, &mut heard);
            } else if let Some(place) = queue.ready.pop_front() {
                if queue.ready.len() >= READY_BEFORE_HELP && queue.unblocked < self.cores {
                    self.bring_help(&mut queue);
                }
                queue.taken += 1;
                queue.turns += 1;
                let after = MutexGuard::unlocked(&mut queue, || self.run(&place));
                queue.put(place, after);
            } else if self.is_over(&queue) {
                queue.unblocked -= 1;
                break;
            } else if !queue.polling {
                queue.polling = true;
                queue.polls += 1;
                // Where more clients are at work than there are cores to spare, or a session waits for what
                // another core does, looking would take their time.
                let patient = queue.blocked == 0 && self.lively.connections() * 2 <= self.cores;
                MutexGuard::unlocked(&mut queue, || self.poller.lock().poll(patient, &mut heard));
                queue.polling = false;
                self.queue_ready(&mut queue, &mut heard);
            } else if !self.rest(&mut queue) {
                break;
            }
        }
        queue.threads -= 1;
        if queue.stopping {
            // The next one may wait in the poller, or rest.
            let _ = self.waker.wake();
            self.call.notify_all();
            self.watch_call.notify_all();
        }
    }

    fn queue_ready(&self, queue: &mut Queue, heard: &mut Vec<Heard>) {
        if heard.is_empty() {
            return;
        }
        let places = self.places.lock();
        for Heard { number, ending } in heard.drain(..) {
            let Some(Some(place)) = places.places.get(number) else {
                continue;
            };
            place.ending.fetch_or(ending, SeqCst);
            if place.stir() {
                queue.ready.push_back(place.clone());
            }
        }
        drop(places);
        if self.watch_asleep.load(SeqCst) {
            self.watch_call.notify_one();
        }
    }

    fn is_over(&self, queue: &Queue) -> bool {
        queue.stopping && self.places.lock().open == 0
    }

    /// Waits until called; false when nobody called for long, or the pool is over.
    fn rest(&self, queue: &mut MutexGuard<'_, Queue>) -> bool {
        queue.unblocked -= 1;
        queue.resting += 1;
        let until = Instant::now() + REST_MAX;
        let mut in_time = true;
        while queue.called == 0 && in_time && !self.is_over(queue) {
            in_time = !self.call.wait_until(queue, until).timed_out();
        }
        queue.resting -= 1;
        let called = queue.called > 0;
        if called {
            // Whoever called has counted this thread as unblocked.
            queue.called -= 1;
        }
        called
    }

    /// Waits for the log on behalf of all that were put aside, unless others have come by now.
    fn sync(&self, queue: &mut MutexGuard<'_, Queue>, heard: &mut Vec<Heard>) {
        if !queue.polling && queue.turns < TURNS_BEFORE_SYNC {
            self.poller.lock().glance(heard);
            self.queue_ready(queue, heard);
            if !queue.ready.is_empty() {
                return;
            }
        }
        let places = std::mem::take(&mut queue.unsynced);
        queue.syncing = true;
        queue.syncing_alone = self.lively.connections() <= places.len();
        queue.taken += 1;
        MutexGuard::unlocked(queue, || {
            for place in &places {
                if let Some(served) = &mut *place.served.lock() {
                    served.await_log();
                }
            }
        });
        queue.syncing = false;
        queue.syncing_alone = false;
        for place in places.into_iter().rev() {
            queue.ready.push_front(place);
        }
    }

    /// Sends the replies that were held back.
    fn send(&self, queue: &mut MutexGuard<'_, Queue>, sending: &mut Vec<(Arc<Place>, Option<Duration>)>) {
        std::mem::swap(&mut queue.held, sending);
        queue.taken += 1;
        // None of this waits, so none of them waits for another one.
        let mut ready = MutexGuard::unlocked(queue, || {
            sending.retain(|(place, limit)| {
                let mut served = place.served.lock();
                match served.as_mut().map_or(Sent::Never, |served| served.send()) {
                    Sent::All => self.limit_wait(place, *limit),
                    Sent::Some => {
                        place.state.store(QUEUED, SeqCst);
                        return true;
                    }
                    Sent::Never => self.end(place, &mut served),
                }
                drop(served);
                matches!(self.park(place), After::Ready)
            });
            std::mem::take(sending)
        });
        queue.ready.extend(ready.drain(..).map(|(place, _)| place));
        *sending = ready;
    }

    /// A connection waits for bytes, unless some have come meanwhile.
    fn park(&self, place: &Place) -> After {
        match place.state.compare_exchange(RUNNING, IDLE, SeqCst, SeqCst) {
            Ok(_) => After::Nowhere,
            Err(_) => {
                place.state.store(QUEUED, SeqCst);
                After::Ready
            }
        }
    }

    fn end(&self, place: &Place, served: &mut Option<Box<dyn Served>>) {
        self.forget(place);
        // The session rolls back here.
        *served = None;
    }

    /// Serves one connection.
    fn run(&self, place: &Place) -> After {
        place.state.store(RUNNING, SeqCst);
        let span = self.started.elapsed().as_millis() / LIVELY_SPAN.as_millis();
        self.lively.count(span as u64, place);
        place.deadline.store(NEVER, SeqCst);
        let news = News {
            expired: place.expired.swap(false, SeqCst),
            ending: place.ending.load(SeqCst),
        };
        let mut served = place.served.lock();
        let next = served.as_mut().map_or(Next::End, |served| served.serve(news));
        match next {
            Next::Wait(limit) => {
                self.limit_wait(place, limit);
                drop(served);
                self.park(place)
            }
            Next::Send(limit) => After::Held(limit),
            Next::More => {
                place.state.store(QUEUED, SeqCst);
                After::Ready
            }
            Next::Sync => {
                place.state.store(QUEUED, SeqCst);
                After::Unsynced
            }
            Next::End => {
                self.end(place, &mut served);
                After::Nowhere
            }
        }
    }

    fn limit_wait(&self, place: &Place, limit: Option<Duration>) {
        let Some(limit) = limit else {
            return;
        };
        let at = self.started.elapsed() + limit;
        place
            .deadline
            .store(u64::try_from(at.as_micros()).unwrap_or(NEVER), SeqCst);
        if self.watch_asleep.load(SeqCst) {
            // Under the lock, so that the watch is not between looking and sleeping.
            let _queue = self.queue.lock();
            self.watch_call.notify_one();
        }
    }

    /// Looks after limits, and after connections that wait because every thread works.
    fn watch(self: &Arc<Self>) {
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
            if ((unheard && queue.unblocked > 0) || undone) && queue.called + queue.starting == 0 {
                self.bring_help(&mut queue);
            }
            taken_before = queue.taken;
            quiet_ticks = if queue.polls == polls_before && queue.polling {
                quiet_ticks + 1
            } else {
                0
            };
            polls_before = queue.polls;
            if quiet_ticks < QUIET_TICKS {
                self.watch_call.wait_for(&mut queue, WATCH_TICK);
                continue;
            }
            self.watch_asleep.store(true, SeqCst);
            // Again, for limits that were set before they could know that the watch sleeps.
            match self.expire(&mut queue) {
                Some(wait) => {
                    self.watch_call.wait_for(&mut queue, wait.max(WATCH_TICK));
                }
                None => self.watch_call.wait(&mut queue),
            }
            self.watch_asleep.store(false, SeqCst);
            quiet_ticks = 0;
        }
    }

    /// Queues the connections whose limit is over; how long until the next one is.
    fn expire(self: &Arc<Self>, queue: &mut Queue) -> Option<Duration> {
        let now = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(NEVER);
        let mut next = NEVER;
        let mut any = false;
        for place in self.places.lock().places.iter().flatten() {
            // The state first: only who holds the queue's lock takes a place out of IDLE.
            let is_idle = place.state.load(SeqCst) == IDLE;
            let deadline = place.deadline.load(SeqCst);
            if deadline > now {
                next = next.min(deadline);
            } else if !is_idle {
                // It is being served, or about to wait again: look again soon.
                next = now;
            } else {
                place.expired.store(true, SeqCst);
                if place.stir() {
                    queue.ready.push_back(place.clone());
                    any = true;
                }
            }
        }
        if any {
            if queue.called + queue.starting == 0 {
                self.bring_help(queue);
            }
            // A thread that polls counts as unblocked: it must come too, and the watch stay awake.
            let _ = self.waker.wake();
            next = now;
        }
        (next != NEVER).then(|| Duration::from_micros(next - now))
    }
}

/// Has a connection served that waited for something else than bytes.
struct PlaceWaker {
    pool: Arc<Pool>,
    place: Weak<Place>,
}

impl Wake for PlaceWaker {
    fn wake(self: Arc<Self>) {
        let Some(place) = self.place.upgrade() else {
            return;
        };
        let mut queue = self.pool.queue.lock();
        if !place.stir() {
            return;
        }
        queue.ready.push_back(place);
        if queue.unblocked == usize::from(queue.polling) {
            self.pool.bring_help(&mut queue);
        }
    }
}

/// Tells the pool of its threads' waits.
struct Absence(Arc<Pool>);

impl Watcher for Absence {
    fn begin(&self) {
        let mut queue = self.0.queue.lock();
        queue.unblocked -= 1;
        queue.blocked += 1;
        // A thread that sleeps in the poller serves nobody who is ready already.
        let serving = queue.unblocked - usize::from(queue.polling);
        let nobody_comes = queue.unblocked == 0 && !queue.syncing_alone;
        if nobody_comes || (serving == 0 && queue.has_work()) {
            self.0.bring_help(&mut queue);
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
