//! Requests and answers over a mailbox: one thread of a rank receives, every thread may send.
//!
//! ```text
//! slot      kind u8 | last u8 | call u64 | bytes
//! kind      1 part of a request    2 part of an answer    3 are you there    4 I am
//!           5 cancel the call      6 a page of answers was taken
//!           7 the rest of the answer is lost
//! ```
//!
//! Messages longer than a slot are sent in parts, which for one call come in order. `call` is a number of the
//! asking rank. The receiving thread, the postman, puts parts together, hands requests to worker threads and
//! answers to the threads that wait for them; it never waits itself.
//!
//! A caller waits as long as the statement takes. Meanwhile it looks whether the rank lives, and asks its
//! postman for a sign when it has heard nothing for a while: a rank that hangs is given up. Housekeeping asks
//! every rank for signs, so that once one is known to hang nobody begins to wait for it.
//!
//! An answer of many rows is sent in pages, of which a few may be on their way: then the answering thread
//! waits until one has been taken. So a slow reader costs a bounded amount of memory on both sides.
//!
//! Nobody waits for room at a rank that owes a sign for too long. What such a rank must hear when it goes on
//! (that a transaction is rolled back, that an answer is lost) is kept, and sent again until it has room.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use weft::SqlError;
use weft_fabric::{Mailbox, MailboxSpec, Rank};

use crate::error;
use crate::message::{Answer, Request};

const HEAD_BYTES: usize = 10;
/// Bytes of a slot, and slots for each sender.
const SLOT_BYTES: u32 = 4096;
const SLOTS: u16 = 64;
/// The longest message. Rows are sent in pages far below it, unless one row is as long.
const MESSAGE_BYTES_MAX: usize = 128 << 20;
/// Pages of one answer on their way.
const PAGES_MAX: u32 = 4;
/// How often a waiting caller looks up.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// After how long without a word from a rank its postman is asked for a sign.
const ASK_AFTER: Duration = Duration::from_millis(500);

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
const ASK: u8 = 3;
const SIGN: u8 = 4;
const CANCEL: u8 = 5;
const TAKEN: u8 = 6;
const LOST: u8 = 7;

/// What a rank does with requests. Called by the postman: it must not wait.
pub trait Serve: Send + Sync {
    /// Takes a request.
    fn serve(&self, caller: Caller, request: Vec<u8>);
}

/// The calls of one rank.
pub struct Post {
    mailbox: Mailbox,
    rank: Rank,
    /// How long a rank may give no sign before it counts as lost.
    silence_max: Duration,
    calls: Mutex<HashMap<u64, Sender<Vec<u8>>>>,
    next_call: AtomicU64,
    /// When something of each rank was received last, nanoseconds since `start`.
    heard_ns: Vec<AtomicU64>,
    /// When each rank was first asked for a sign that has not come; 0: it owes none.
    owes_since_ns: Vec<AtomicU64>,
    /// When each rank was asked last.
    asked_ns: Vec<AtomicU64>,
    start: Instant,
    /// Requests that are being served, by sender and call.
    serving: Mutex<HashMap<(u32, u64), Weak<Serving>>>,
    untold: Mutex<Vec<Untold>>,
    stopping: AtomicBool,
}

/// A message of one slot for a rank that had no room for it.
struct Untold {
    rank: u32,
    /// The life that it is for: a later one knows nothing of it.
    incarnation: u32,
    slot: Vec<u8>,
}

/// A request that is being served.
struct Serving {
    state: Mutex<ServingState>,
    changed: Condvar,
}

#[derive(Default)]
struct ServingState {
    pages: u32,
    cancelled: bool,
    on_cancel: Option<Box<dyn Fn() + Send>>,
}

/// Who waits for an answer.
pub struct Caller {
    post: Arc<Post>,
    /// The rank.
    pub rank: u32,
    /// Which life of it.
    pub incarnation: u32,
    call: u64,
    serving: Arc<Serving>,
    has_answered: AtomicBool,
}

/// A call that was sent.
pub struct Call {
    post: Arc<Post>,
    rank: u32,
    incarnation: u32,
    number: u64,
    answers: Receiver<Vec<u8>>,
    ended: bool,
}

impl Post {
    /// Opens the mailboxes of all ranks: collective.
    ///
    /// # Errors
    ///
    /// Those of the fabric; `config` differs.
    pub fn open(rank: &Rank, config: u64, silence_max: Duration) -> Result<Arc<Post>, weft_fabric::Error> {
        let spec = MailboxSpec {
            config,
            ..MailboxSpec::uniform("ranks", SLOT_BYTES, rank.count(), SLOTS)
        };
        let mailbox = Mailbox::open(rank, &spec)?;
        Ok(Arc::new(Post {
            mailbox,
            rank: rank.clone(),
            silence_max,
            calls: Mutex::default(),
            next_call: AtomicU64::new(1),
            heard_ns: (0..rank.count()).map(|_| AtomicU64::new(0)).collect(),
            owes_since_ns: (0..rank.count()).map(|_| AtomicU64::new(0)).collect(),
            asked_ns: (0..rank.count()).map(|_| AtomicU64::new(0)).collect(),
            start: Instant::now(),
            serving: Mutex::default(),
            untold: Mutex::default(),
            stopping: AtomicBool::new(false),
        }))
    }

    /// The rank.
    #[must_use]
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Ends [`Self::receive`].
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Receives until stopped: the postman's whole life.
    pub fn receive(self: &Arc<Self>, serve: &dyn Serve) {
        let mut parts: HashMap<(u32, u8, u64), Vec<u8>> = HashMap::new();
        let mut lives = vec![0_u32; self.heard_ns.len()];
        let mut payload = Vec::new();
        let mut turn = 0;
        while !self.stopping.load(Ordering::Acquire) {
            match self.mailbox.poll(&mut payload) {
                Ok(Some(received)) => {
                    turn = 0;
                    if let Some(life) = lives.get_mut(received.sender as usize)
                        && *life != received.incarnation
                    {
                        *life = received.incarnation;
                        parts.retain(|(sender, ..), _| *sender != received.sender);
                    }
                    if let Some(heard) = self.heard_ns.get(received.sender as usize) {
                        heard.store(self.now_ns(), Ordering::Relaxed);
                    }
                    self.owes(received.sender, false);
                    self.take(received.sender, received.incarnation, &payload, &mut parts, serve);
                }
                Ok(None) => {
                    self.rank.pause(turn);
                    turn = turn.saturating_add(1);
                }
                // A slot with bytes that are no message: the sender's next return clears it.
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
        self.calls.lock().clear();
    }

    fn take(
        self: &Arc<Self>,
        sender: u32,
        incarnation: u32,
        payload: &[u8],
        parts: &mut HashMap<(u32, u8, u64), Vec<u8>>,
        serve: &dyn Serve,
    ) {
        let Some((head, bytes)) = payload.split_at_checked(HEAD_BYTES) else {
            return;
        };
        let [kind, last, call @ ..] = head else { return };
        let call = u64::from_le_bytes(call.try_into().unwrap_or_default());
        match *kind {
            REQUEST | ANSWER => {
                let key = (sender, *kind, call);
                let message = parts.entry(key).or_default();
                message.extend_from_slice(bytes);
                let too_long = message.len() > MESSAGE_BYTES_MAX;
                if *last == 0 && !too_long {
                    return;
                }
                let message = parts.remove(&key).unwrap_or_default();
                if too_long {
                    // Nobody sends such; an empty message is refused by whoever decodes it.
                    return self.deliver(*kind, sender, incarnation, call, Vec::new(), serve);
                }
                self.deliver(*kind, sender, incarnation, call, message, serve);
            }
            ASK => {
                // Without room there are messages on the way, which are a sign as well.
                let _ = self.mailbox.try_send(sender, &head_of(SIGN, true, call));
            }
            LOST => {
                parts.remove(&(sender, ANSWER, call));
                let lost = error::lost(sender, "its answer is lost: this rank gave no sign");
                self.deliver(
                    ANSWER,
                    sender,
                    incarnation,
                    call,
                    Answer::Failed(lost).encode(),
                    serve,
                );
            }
            CANCEL | TAKEN => {
                if *kind == CANCEL {
                    // Of a request that its caller gave up sending.
                    parts.remove(&(sender, REQUEST, call));
                }
                let serving = self.serving.lock().get(&(sender, call)).and_then(Weak::upgrade);
                if let Some(serving) = serving {
                    serving.note(*kind);
                }
            }
            _ => {}
        }
    }

    fn deliver(
        self: &Arc<Self>,
        kind: u8,
        sender: u32,
        incarnation: u32,
        call: u64,
        message: Vec<u8>,
        serve: &dyn Serve,
    ) {
        if kind == ANSWER {
            if let Some(waiting) = self.calls.lock().get(&call) {
                // A caller that has gone needs no answer.
                let _ = waiting.send(message);
            }
            return;
        }
        let serving = Arc::new(Serving {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        self.serving
            .lock()
            .insert((sender, call), Arc::downgrade(&serving));
        let caller = Caller {
            post: Arc::clone(self),
            rank: sender,
            incarnation,
            call,
            serving,
            has_answered: AtomicBool::new(false),
        };
        serve.serve(caller, message);
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn send(&self, rank: u32, kind: u8, call: u64, message: &[u8]) -> Result<(), SqlError> {
        if let Some(silent) = self.silence(rank) {
            return Err(no_sign(rank, silent));
        }
        let room = self.mailbox.payload_bytes_max() - HEAD_BYTES;
        let mut pieces = message.chunks(room).peekable();
        let mut slot = Vec::with_capacity(self.mailbox.payload_bytes_max());
        loop {
            let piece = pieces.next().unwrap_or_default();
            let is_last = pieces.peek().is_none();
            slot.clear();
            slot.extend_from_slice(&head_of(kind, is_last, call));
            slot.extend_from_slice(piece);
            self.send_slot(rank, &slot)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Waits for room at a rank for as long as it gives signs, and no longer than a rank may give none.
    fn send_slot(&self, rank: u32, slot: &[u8]) -> Result<(), SqlError> {
        let begun = Instant::now();
        let mut turn = 0;
        loop {
            let sent = self.mailbox.try_send(rank, slot);
            if sent.map_err(|error| error::lost(rank, &error.to_string()))? {
                return Ok(());
            }
            // Waiting for room is no reason to find a rank dead later than others do.
            if !self.rank.probe(rank).is_ok_and(|now| now.alive) {
                return Err(error::lost(rank, "it died"));
            }
            let silent = self.silence(rank).or_else(|| {
                let waited = begun.elapsed();
                (waited >= self.silence_max).then_some(waited)
            });
            if let Some(silent) = silent {
                return Err(no_sign(rank, silent));
            }
            self.rank.pause(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// Notes whether a rank owes a sign.
    fn owes(&self, rank: u32, owes: bool) {
        let Some(since) = self.owes_since_ns.get(rank as usize) else {
            return;
        };
        if !owes {
            since.store(0, Ordering::Relaxed);
        } else {
            // The first time counts.
            let _ = since.compare_exchange(0, self.now_ns().max(1), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Asks a rank for a sign, unless it was asked a moment ago: questions take slots.
    fn ask_for_sign(&self, rank: u32, call: u64) {
        let Some(asked) = self.asked_ns.get(rank as usize) else {
            return;
        };
        let (now_ns, before_ns) = (self.now_ns(), asked.load(Ordering::Relaxed));
        let is_soon = Duration::from_nanos(now_ns.saturating_sub(before_ns)) < ASK_AFTER;
        if before_ns > 0 && is_soon {
            return;
        }
        let order = Ordering::Relaxed;
        if asked.compare_exchange(before_ns, now_ns, order, order).is_ok() {
            // Without room there are messages on the way to it that it does not take.
            let _ = self.mailbox.try_send(rank, &head_of(ASK, true, call));
        }
    }

    /// Asks a rank for a sign if it has given none for a while. To be called again and again.
    pub fn watch(&self, rank: u32) {
        if !self.rank.probe(rank).is_ok_and(|now| now.alive) {
            return self.owes(rank, false);
        }
        let heard = self.heard_ns.get(rank as usize);
        let heard_ns = heard.map_or(0, |heard| heard.load(Ordering::Relaxed));
        if Duration::from_nanos(self.now_ns().saturating_sub(heard_ns)) >= ASK_AFTER {
            self.owes(rank, true);
            self.ask_for_sign(rank, 0);
        }
    }

    /// For how long a rank has owed a sign, if that is too long.
    fn silence(&self, rank: u32) -> Option<Duration> {
        let since_ns = self.owes_since_ns.get(rank as usize)?.load(Ordering::Relaxed);
        let silent = Duration::from_nanos(self.now_ns().saturating_sub(since_ns));
        (since_ns > 0 && silent >= self.silence_max).then_some(silent)
    }

    /// Whether a rank lives in this life, and gives signs. To be asked again and again: a rank that has
    /// nothing to say is asked for a sign.
    pub fn is_there(&self, rank: u32, incarnation: u32) -> bool {
        let lives = self.rank.probe(rank);
        if !lives.is_ok_and(|now| now.alive && now.incarnation == incarnation) {
            return false;
        }
        let heard = self.heard_ns.get(rank as usize);
        let heard_ns = heard.map_or(0, |heard| heard.load(Ordering::Relaxed));
        let silent = Duration::from_nanos(self.now_ns().saturating_sub(heard_ns));
        if silent >= ASK_AFTER {
            self.ask_for_sign(rank, 0);
        }
        silent < self.silence_max
    }

    /// Sends a request.
    ///
    /// # Errors
    ///
    /// 08006: the rank is not there.
    pub fn call(self: &Arc<Self>, rank: u32, request: &Request) -> Result<Call, SqlError> {
        let presence = self
            .rank
            .presence(rank)
            .map_err(|error| error::lost(rank, &error.to_string()))?;
        if !presence.alive {
            return Err(error::lost(rank, "it is dead"));
        }
        let (answered, answers) = mpsc::channel();
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        self.calls.lock().insert(number, answered);
        let call = Call {
            post: Arc::clone(self),
            rank,
            incarnation: presence.incarnation,
            number,
            answers,
            ended: false,
        };
        self.send(rank, REQUEST, number, &request.encode())?;
        Ok(call)
    }

    /// Sends a request of one slot whose answer nobody needs, at once or as soon as the rank has room. A rank
    /// that is dead, or dies before, needs no telling.
    pub fn tell(&self, rank: u32, request: &Request) {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        if let Ok(now) = self.rank.presence(rank) {
            self.tell_life(rank, now.incarnation, REQUEST, number, &request.encode());
        }
    }

    fn tell_life(&self, rank: u32, incarnation: u32, kind: u8, call: u64, message: &[u8]) {
        let mut slot = head_of(kind, true, call).to_vec();
        slot.extend_from_slice(message);
        let untold = Untold {
            rank,
            incarnation,
            slot,
        };
        if self.is_untold(&untold) {
            self.untold.lock().push(untold);
        }
    }

    /// Sends what ranks had no room for. To be called again and again.
    pub fn tell_again(&self) {
        let untold = std::mem::take(&mut *self.untold.lock());
        let mut kept: Vec<Untold> = untold
            .into_iter()
            .filter(|untold| self.is_untold(untold))
            .collect();
        self.untold.lock().append(&mut kept);
    }

    /// Tries to send; whether that has to be tried again.
    fn is_untold(&self, untold: &Untold) -> bool {
        let presence = self.rank.presence(untold.rank);
        let lives = presence.is_ok_and(|now| now.alive && now.incarnation == untold.incarnation);
        lives && matches!(self.mailbox.try_send(untold.rank, &untold.slot), Ok(false))
    }

    /// Sends a request and returns its only answer.
    ///
    /// # Errors
    ///
    /// 08006; the error that was answered.
    pub fn ask(self: &Arc<Self>, rank: u32, request: &Request) -> Result<Answer, SqlError> {
        let mut call = self.call(rank, request)?;
        loop {
            match call.next(None)? {
                Answer::Failed(error) => return Err(error),
                answer if answer.is_last() => return Ok(answer),
                _ => {}
            }
        }
    }
}

fn no_sign(rank: u32, silent: Duration) -> SqlError {
    error::lost(
        rank,
        &format!("it has given no sign for {:.1} s", silent.as_secs_f64()),
    )
}

fn head_of(kind: u8, is_last: bool, call: u64) -> [u8; HEAD_BYTES] {
    let mut head = [kind; HEAD_BYTES];
    let number = call.to_le_bytes();
    for (at, byte) in [u8::from(is_last)].iter().chain(&number).enumerate() {
        if let Some(place) = head.get_mut(at + 1) {
            *place = *byte;
        }
    }
    head
}

impl Serving {
    fn note(&self, kind: u8) {
        let mut state = self.state.lock();
        if kind == TAKEN {
            state.pages = state.pages.saturating_sub(1);
        } else {
            state.cancelled = true;
            if let Some(cancel) = &state.on_cancel {
                cancel();
            }
        }
        self.changed.notify_all();
    }
}

impl Caller {
    /// Sends a part of the answer. One with rows waits while too many of them are on their way.
    ///
    /// # Errors
    ///
    /// 08006: the caller has gone. 57014: it has cancelled the call.
    pub fn answer(&self, answer: &Answer) -> Result<(), SqlError> {
        if !answer.is_last() {
            self.wait_for_room()?;
        } else {
            self.has_answered.store(true, Ordering::Release);
        }
        let sent = self.post.send(self.rank, ANSWER, self.call, &answer.encode());
        if sent.is_err() {
            // It waits for an answer, and will be there again if it only hangs.
            self.has_answered.store(true, Ordering::Release);
            self.post
                .tell_life(self.rank, self.incarnation, LOST, self.call, &[]);
        }
        sent
    }

    fn wait_for_room(&self) -> Result<(), SqlError> {
        let mut state = self.serving.state.lock();
        while state.pages >= PAGES_MAX {
            if state.cancelled {
                return Err(SqlError::new(
                    weft_types::SqlState::QUERY_CANCELED,
                    "canceling statement due to user request",
                ));
            }
            self.serving.changed.wait_for(&mut state, LOOK_EVERY);
            self.check()?;
        }
        state.pages += 1;
        Ok(())
    }

    /// Whether the caller is still in the life in which it asked, and gives signs.
    ///
    /// # Errors
    ///
    /// 08006: it is not.
    pub fn check(&self) -> Result<(), SqlError> {
        let presence = self.post.rank.probe(self.rank);
        match presence {
            Ok(now) if now.alive && now.incarnation == self.incarnation => {}
            _ => return Err(error::lost(self.rank, "it died")),
        }
        match self.post.silence(self.rank) {
            Some(silent) => Err(no_sign(self.rank, silent)),
            None => Ok(()),
        }
    }

    /// Whether the caller has cancelled the call, or given it up.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.serving.state.lock().cancelled
    }

    /// What to do when the caller cancels; at once, if it has already.
    pub fn on_cancel(&self, cancel: impl Fn() + Send + 'static) {
        let mut state = self.serving.state.lock();
        if state.cancelled {
            cancel();
        }
        state.on_cancel = Some(Box::new(cancel));
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.has_answered.load(Ordering::Acquire) {
            // The thread that served it has panicked, or work was dropped because this rank stops.
            let lost = error::lost(self.post.rank.number(), "it gave the request up");
            let _ = self.answer(&Answer::Failed(lost));
        }
        self.post.serving.lock().remove(&(self.rank, self.call));
    }
}

impl Call {
    /// The next part of the answer. `cancelled` is looked at while waiting; the rank is then asked to stop,
    /// and answers as it would to its own client.
    ///
    /// # Errors
    ///
    /// 08006: the rank is lost. A damaged answer.
    pub fn next(&mut self, cancelled: Option<&AtomicBool>) -> Result<Answer, SqlError> {
        let began_ns = self.post.now_ns();
        let mut has_cancelled = false;
        let bytes = loop {
            match self.answers.recv_timeout(LOOK_EVERY) {
                Ok(bytes) => break bytes,
                Err(RecvTimeoutError::Disconnected) => return Err(error::lost(self.rank, "this rank stops")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.post.rank.probe(self.rank);
            if !matches!(now, Ok(now) if now.alive && now.incarnation == self.incarnation) {
                // What it answered before is taken.
                match self.answers.try_recv() {
                    Ok(bytes) => break bytes,
                    Err(_) => return Err(error::lost(self.rank, "it died")),
                }
            }
            if !has_cancelled && cancelled.is_some_and(|flag| flag.load(Ordering::Acquire)) {
                has_cancelled = true;
                let _ = self
                    .post
                    .mailbox
                    .try_send(self.rank, &head_of(CANCEL, true, self.number));
            }
            self.watch(began_ns)?;
        };
        let answer = Answer::decode(&bytes).map_err(|error| {
            SqlError::internal(format!("a damaged answer of rank {}: {error}", self.rank))
        })?;
        self.ended = answer.is_last();
        if !self.ended {
            // Without room the next page says the same.
            let _ = self
                .post
                .mailbox
                .send(self.rank, &head_of(TAKEN, true, self.number));
        }
        Ok(answer)
    }

    /// Gives the rank up if it has been silent for too long; asks for a sign before.
    fn watch(&self, began_ns: u64) -> Result<(), SqlError> {
        let heard = self.post.heard_ns.get(self.rank as usize);
        let heard_ns = heard
            .map_or(0, |heard| heard.load(Ordering::Relaxed))
            .max(began_ns);
        let now_ns = self.post.now_ns();
        // That it was silent before the call counts, if it was asked for a sign.
        if let Some(silent) = self.post.silence(self.rank) {
            return Err(no_sign(self.rank, silent));
        }
        let silent = Duration::from_nanos(now_ns.saturating_sub(heard_ns));
        if silent >= self.post.silence_max {
            return Err(no_sign(self.rank, silent));
        }
        if silent >= ASK_AFTER {
            self.post.ask_for_sign(self.rank, self.number);
        }
        Ok(())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.post.calls.lock().remove(&self.number);
        if !self.ended {
            let _ = self
                .post
                .mailbox
                .try_send(self.rank, &head_of(CANCEL, true, self.number));
        }
    }
}

/// Threads that are started when there is work and none is idle, up to a bound; work beyond it waits.
pub struct Pool {
    shared: Arc<PoolShared>,
    name: &'static str,
    threads_max: usize,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    stopping: bool,
}

/// An idle thread ends after this time.
const IDLE_MAX: Duration = Duration::from_secs(10);
const STACK_BYTES: usize = 8 << 20;

impl Pool {
    /// A pool without threads yet.
    #[must_use]
    pub fn new(name: &'static str, threads_max: usize) -> Pool {
        Pool {
            shared: Arc::default(),
            name,
            threads_max,
        }
    }

    /// Runs a job on some thread.
    pub fn run(&self, job: Job) {
        let mut state = self.shared.state.lock();
        if state.stopping {
            return;
        }
        state.jobs.push_back(job);
        if state.jobs.len() > state.idle && state.threads < self.threads_max {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name(self.name.to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || work(&shared));
            state.threads += usize::from(thread.is_ok());
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Drops work that has not begun, and waits until no thread works, at most so long.
    pub fn stop(&self, within: Duration) {
        let until = Instant::now() + within;
        let mut state = self.shared.state.lock();
        state.stopping = true;
        state.jobs.clear();
        self.shared.changed.notify_all();
        while state.threads > 0 && Instant::now() < until {
            self.shared.changed.wait_for(&mut state, LOOK_EVERY);
        }
    }
}

fn work(shared: &PoolShared) {
    let mut state = shared.state.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            // A panic ends one request; its caller is told that the answer will not come.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            state = shared.state.lock();
            continue;
        }
        if state.stopping {
            break;
        }
        state.idle += 1;
        let waited = shared.changed.wait_for(&mut state, IDLE_MAX);
        state.idle -= 1;
        if waited.timed_out() && state.jobs.is_empty() {
            break;
        }
    }
    state.threads -= 1;
    drop(state);
    shared.changed.notify_all();
}

#[cfg(test)]
mod tests {
    use std::thread;

    use weft_fabric::Threads;

    use super::*;

    const SILENCE_MAX: Duration = Duration::from_millis(300);
    /// More than a rank has room for.
    const TOLD: usize = 3 * SLOTS as usize;

    /// Keeps requests; those to be answered are answered by the test.
    #[derive(Default)]
    struct Kept(Mutex<Vec<(Caller, Vec<u8>)>>);

    impl Serve for Kept {
        fn serve(&self, caller: Caller, request: Vec<u8>) {
            self.0.lock().push((caller, request));
        }
    }

    fn told(number: usize) -> Request {
        Request::Control {
            branch: None,
            sql: format!("rollback prepared '{number}'"),
        }
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Two ranks: the postman of the first runs all the time, that of the second from `before` on.
    fn two_ranks(
        first: impl Fn(&Arc<Post>, &Kept) + Sync,
        before: impl Fn(&Arc<Post>) + Sync,
        after: impl Fn(&Kept) + Sync,
    ) {
        let ended = AtomicU64::new(0);
        let ends = Threads::run(2, |rank| {
            let post = Post::open(&rank, 1, SILENCE_MAX).unwrap();
            let kept = Kept::default();
            thread::scope(|scope| {
                let start = || scope.spawn(|| post.receive(&kept));
                if rank.number() == 0 {
                    start();
                    first(&post, &kept);
                } else {
                    before(&post);
                    start();
                    after(&kept);
                }
                ended.fetch_add(1, Ordering::AcqRel);
                until("the other ends", || ended.load(Ordering::Acquire) == 2);
                post.stop();
            });
        });
        ends.unwrap();
    }

    fn wait_until_silent(post: &Post) {
        until("the rank is silent", || {
            post.watch(1);
            post.silence(1).is_some()
        });
    }

    fn tell_all(post: &Post) {
        until("the rank has room", || {
            post.tell_again();
            post.untold.lock().is_empty()
        });
    }

    #[test]
    fn a_rank_that_hangs_is_told_everything_once_it_goes_on_and_nobody_waits_for_it() {
        let has_failed = AtomicBool::new(false);
        two_ranks(
            |post, _| {
                let begun = Instant::now();
                (0..TOLD).for_each(|number| post.tell(1, &told(number)));
                assert!(begun.elapsed() < SILENCE_MAX, "telling waits");
                wait_until_silent(post);
                let asked = Instant::now();
                let error = post.ask(1, &told(TOLD)).unwrap_err();
                assert!(error::is_lost(&error), "{error}");
                assert!(asked.elapsed() < SILENCE_MAX, "a call waits");
                has_failed.store(true, Ordering::Release);
                tell_all(post);
            },
            |_| until("the call fails", || has_failed.load(Ordering::Acquire)),
            |kept| {
                until("everything is told", || kept.0.lock().len() >= TOLD);
                let mut found: Vec<Vec<u8>> = kept.0.lock().iter().map(|(_, sent)| sent.clone()).collect();
                let mut wanted: Vec<Vec<u8>> = (0..TOLD).map(|number| told(number).encode()).collect();
                found.sort_unstable();
                wanted.sort_unstable();
                assert_eq!(found, wanted);
            },
        );
    }

    #[test]
    fn whoever_hung_when_its_answer_was_sent_is_told_that_it_is_lost() {
        let (call, has_answered) = (Mutex::new(None), AtomicBool::new(false));
        two_ranks(
            |post, kept| {
                until("a request comes", || !kept.0.lock().is_empty());
                wait_until_silent(post);
                for (caller, _) in kept.0.lock().drain(..) {
                    let error = caller.answer(&Answer::Word(1)).unwrap_err();
                    assert!(error::is_lost(&error), "{error}");
                }
                has_answered.store(true, Ordering::Release);
                tell_all(post);
            },
            |post| {
                *call.lock() = Some(post.call(0, &told(0)).unwrap());
                until("it is answered", || has_answered.load(Ordering::Acquire));
            },
            |_| match call.lock().take().unwrap().next(None).unwrap() {
                Answer::Failed(error) => assert!(error::is_lost(&error), "{error}"),
                other => panic!("{other:?}"),
            },
        );
    }
}
