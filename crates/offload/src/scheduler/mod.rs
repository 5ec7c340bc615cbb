//! The scheduler: a bounded queue in front of units, and a finished queue behind them.
//!
//! ```text
//!   submit --> line (bounded) --> core: chooses, checks, compares, redoes --> ticket or finished queue
//!                                  ^ submit/poll        | waker
//!                                  v                    v
//!                               units, the CPU as the last one
//! ```
//!
//! One thread drives all units; it sleeps until a job arrives, a unit calls its waker, or a deadline passes.
//! Others validate answers that take long (`validation_pool.rs`). No thread waits for a job.
//! [`Scheduler::manual`] has no thread: the caller of [`Scheduler::step`] drives it, and under a manual clock
//! a run is a function of its inputs.
//!
//! Source: X-DB, "Asynchronous Scheduling Logic Design" (Task Queue, Finished Queue, a thread pool that
//! distributes, the CPU re-executing what failed) and "Fault Tolerance Mechanism Design".

mod cancel;
pub(crate) mod config;
pub(crate) mod core;
mod dispatch;
mod residents;
mod service_time;
mod settle;
mod validation;
mod validation_pool;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use weft_base::{Clock, blocking};

use self::config::processors;
use self::core::{Core, Done, NewJob, Sink};
use self::validation_pool::ValidationPool;
use crate::counters::Counters;
use crate::job::{Job, Part};
use crate::kinds::{Golden, validate};
use crate::operation::{JobKind, Operation};
use crate::report::Finished;
use crate::ticket::{CancelJobs, Cell, FinishedQueue, JobHandle, Ticket};
use crate::unit::{Engine, Fit, PoolUnit, Unit, UnitSpec, Waker};
use crate::urgency::{PerUrgency, Urgency};
use crate::wire::job_crc;

pub use config::SchedulerConfig;
pub use core::Validator;

/// Gives jobs to units, validates their answers, and redoes on the CPU what fails. Shared by reference.
///
/// Dropping it ends its thread, after the slices of jobs that the CPU's threads are running; unfinished jobs
/// end with [`crate::JobError::Stopped`].
pub struct Scheduler {
    shared: Arc<Shared>,
    driver: Option<JoinHandle<()>>,
}

struct Shared {
    config: SchedulerConfig,
    clock: Arc<dyn Clock>,
    /// The specifications of the units, without the CPU.
    specs: Vec<UnitSpec>,
    line: Mutex<JobQueue>,
    /// There is space in the queue again.
    room: Condvar,
    signal: Arc<Signal>,
    /// Locked by the driver, and briefly by readers of counters.
    core: Mutex<Core>,
    /// Without it the driver validates all answers.
    validation: Option<ValidationPool>,
}

/// Jobs between submission and their first executor: those that the core has not seen, and the number of
/// those that it has.
#[derive(Default)]
struct JobQueue {
    arrived: VecDeque<NewJob>,
    /// Numbers of jobs that were cancelled since the core looked.
    cancelled: Vec<u64>,
    /// Jobs and bytes.
    waiting: PerUrgency<(usize, u64)>,
    full: u64,
    taken: u64,
    stopped: bool,
}

/// How often a caller that waits for space checks whether it should give up.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Wakes the driver.
#[derive(Default)]
struct Signal {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Signal {
    fn wake(&self) {
        self.state.lock().0 = true;
        self.changed.notify_one();
    }

    fn end(&self) {
        self.state.lock().1 = true;
        self.changed.notify_one();
    }

    /// Sleeps until woken, for at most `limit`. False when the scheduler has stopped.
    fn sleep(&self, limit: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        let idle = |state: &mut (bool, bool)| !state.0 && !state.1;
        match limit {
            Some(limit) => {
                self.changed.wait_while_for(&mut state, idle, limit);
            }
            None => self.changed.wait_while(&mut state, idle),
        }
        state.0 = false;
        !state.1
    }
}

#[expect(
    clippy::result_large_err,
    reason = "a job that finds no room is given back whole"
)]
impl Scheduler {
    /// A scheduler over `units`, with a thread of its own and a `cpu` unit that computes what `weft_ops`
    /// does. Without units the `cpu` unit does everything.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn new(
        config: SchedulerConfig,
        clock: Arc<dyn Clock>,
        units: Vec<Box<dyn Unit>>,
    ) -> io::Result<Scheduler> {
        let threads = config.cpu_threads.max(1);
        let engines = (0..threads).map(|_| Box::new(Golden) as Box<dyn Engine>);
        // One more than there are threads, so that a thread that finishes a job has the next one ready.
        let spec = UnitSpec::cpu(threads + 1);
        let cpu = PoolUnit::new(spec, engines.collect(), config.cpu_share, &clock)?;
        Scheduler::with_cpu(config, clock, validate, Box::new(cpu), units)
    }

    /// A scheduler without units: its `cpu` unit, one thread, does everything.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn of_cpu(clock: Arc<dyn Clock>) -> io::Result<Scheduler> {
        Scheduler::new(SchedulerConfig::default(), clock, Vec::new())
    }

    /// A scheduler over one unit that a thread of this process simulates. The simulation is slower than the
    /// unit would be, so no attempt counts as late or slow.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn of_simulation(
        spec: UnitSpec,
        engine: Box<dyn Engine>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Scheduler> {
        let config = SchedulerConfig {
            deadline_ns: u64::MAX / 4,
            deadline_ns_per_kib: 0,
            hedge_floor_ns: u64::MAX,
            ..SchedulerConfig::default()
        };
        let unit = PoolUnit::new(spec, vec![engine], 1.0, &clock)?;
        Scheduler::new(config, clock, vec![Box::new(unit)])
    }

    /// A scheduler with a thread of its own. `cpu` is the executor of last resort and should accept every
    /// kind without limit; `validate` validates each answer.
    ///
    /// # Errors
    /// When the system gives no thread, or `cpu` takes nothing.
    pub fn with_cpu(
        config: SchedulerConfig,
        clock: Arc<dyn Clock>,
        validator: Validator,
        cpu: Box<dyn Unit>,
        units: Vec<Box<dyn Unit>>,
    ) -> io::Result<Scheduler> {
        let signal = Arc::new(Signal::default());
        let specs = units.iter().map(|unit| unit.spec()).chain([cpu.spec()]);
        let sends = specs.filter(|spec| !spec.in_process);
        let answers_max = sends.fold(0, |sum: usize, spec| {
            sum.saturating_add(spec.depth + spec.urgent_depth)
        });
        let threads = config.validation_threads.min(processors()).min(answers_max);
        let pool = (threads > 0).then(|| ValidationPool::new(threads, validator, &signal));
        let mut scheduler =
            Scheduler::of_parts(config, clock, validator, (cpu, units), signal, pool.transpose()?)?;
        let shared = scheduler.shared.clone();
        let drive = move || {
            let stop = StopOnExit(shared);
            while stop.0.signal.sleep(stop.0.step()) {}
        };
        let thread = std::thread::Builder::new().name("offload".to_owned());
        scheduler.driver = Some(thread.spawn(drive)?);
        Ok(scheduler)
    }

    /// A scheduler that moves when [`Scheduler::step`] is called, which validates all answers itself.
    ///
    /// # Errors
    /// When `cpu` takes nothing.
    pub fn manual(
        config: SchedulerConfig,
        clock: Arc<dyn Clock>,
        validator: Validator,
        cpu: Box<dyn Unit>,
        units: Vec<Box<dyn Unit>>,
    ) -> io::Result<Scheduler> {
        let signal = Arc::new(Signal::default());
        Scheduler::of_parts(config, clock, validator, (cpu, units), signal, None)
    }

    fn of_parts(
        config: SchedulerConfig,
        clock: Arc<dyn Clock>,
        validator: Validator,
        (cpu, units): (Box<dyn Unit>, Vec<Box<dyn Unit>>),
        signal: Arc<Signal>,
        validation: Option<ValidationPool>,
    ) -> io::Result<Scheduler> {
        if cpu.spec().depth == 0 {
            let why = "the CPU unit of a scheduler must take jobs";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let woken = signal.clone();
        let waker: Waker = Arc::new(move || woken.wake());
        let specs = units.iter().map(|unit| unit.spec().clone()).collect();
        let core = Core::new(config, validator, cpu, units, &waker);
        let shared = Arc::new(Shared {
            config,
            clock,
            specs,
            line: Mutex::new(JobQueue::default()),
            room: Condvar::new(),
            signal,
            core: Mutex::new(core),
            validation,
        });
        Ok(Scheduler { shared, driver: None })
    }

    /// Takes new jobs and answers, gives up late attempts, gives units work; tells requesters. Returns how
    /// long nothing will happen unless something wakes it. Never waits for a unit.
    pub fn step(&self) -> Option<Duration> {
        self.shared.step()
    }

    /// Queues a job and waits while the queue is full. With [`Scheduler::manual`] and a full queue that is
    /// for ever, unless another thread drives.
    pub fn submit(&self, job: Job) -> Ticket {
        let cell = Arc::new(Cell::default());
        let handle = self.put(job, Sink::Ticket(cell.clone()));
        Ticket::new(cell, handle)
    }

    /// As [`Scheduler::submit`]; the result goes to `queue` with `tag`.
    pub fn submit_to(&self, job: Job, queue: &FinishedQueue, tag: u64) -> JobHandle {
        self.put(job, Sink::Queue(queue.clone(), tag))
    }

    /// As [`Scheduler::submit`], but gives up waiting for space once `is_stopped` returns true, which is
    /// polled in the meantime: then `done` gets [`crate::JobError::Stopped`] at once. Otherwise it gets the
    /// result, on the thread that drives the units. It must be short and must not submit; a panic in it stops
    /// the scheduler.
    pub fn submit_with(
        &self,
        job: Job,
        is_stopped: &dyn Fn() -> bool,
        done: impl FnOnce(Finished) + Send + 'static,
    ) -> JobHandle {
        self.put_unless(job, Sink::Call(Box::new(done)), Some(is_stopped))
    }

    /// Queues a job if there is space.
    ///
    /// # Errors
    /// The job, if the queue is full.
    pub fn try_submit(&self, job: Job) -> Result<Ticket, Job> {
        let cell = Arc::new(Cell::default());
        let handle = self.try_put(job, Sink::Ticket(cell.clone()))?;
        Ok(Ticket::new(cell, handle))
    }

    /// As [`Scheduler::try_submit`]; the result goes to `queue` with `tag`.
    ///
    /// # Errors
    /// The job, if the queue is full.
    pub fn try_submit_to(&self, job: Job, queue: &FinishedQueue, tag: u64) -> Result<JobHandle, Job> {
        self.try_put(job, Sink::Queue(queue.clone(), tag))
    }

    /// The largest part that all units which do this operation take; `None` if they take any. The CPU does.
    #[must_use]
    pub fn limit_of<O: Operation>(&self, part: Part) -> Option<u64> {
        let limits = |spec: &UnitSpec| spec.accepts.limits(JobKind::of::<O>())?.of_part(part);
        self.shared.specs.iter().filter_map(limits).min()
    }

    /// All numbers at this moment.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (full, taken, waiting) = {
            let line = self.shared.line.lock();
            let (urgent, background) = (line.waiting.urgent.0, line.waiting.background.0);
            (line.full, line.taken, (urgent + background) as u64)
        };
        let mut counters = self.shared.core.lock().counters();
        counters.queue_full = full;
        counters.submitted = taken;
        counters.waiting = waiting;
        counters
    }

    /// What each unit did and when, as a Chrome trace (JSON), as far back as the timeline goes.
    #[must_use]
    pub fn chrome_trace(&self) -> String {
        self.shared.core.lock().chrome_trace()
    }

    fn put(&self, job: Job, sink: Sink) -> JobHandle {
        self.put_unless(job, sink, None)
    }

    fn put_unless(&self, job: Job, sink: Sink, is_stopped: Option<&dyn Fn() -> bool>) -> JobHandle {
        let arrival = self.shared.seal(job, sink);
        let mut line = self.shared.line.lock();
        if !self.shared.has_room(&line, &arrival.job) {
            line.full += 1;
            let has_place =
                blocking::section(|| self.shared.wait_for_room(&mut line, &arrival.job, is_stopped));
            if !has_place {
                // Dropped outside of the latch, the job tells its requester.
                drop(line);
                return self.handle(u64::MAX);
            }
        }
        self.add(line, arrival)
    }

    fn try_put(&self, job: Job, sink: Sink) -> Result<JobHandle, Job> {
        let mut line = self.shared.line.lock();
        if !self.shared.has_room(&line, &job) {
            line.full += 1;
            return Err(job);
        }
        // The place is kept while the checksum is computed, outside of the latch.
        line.count(&job);
        drop(line);
        let arrival = self.shared.seal(job, sink);
        let mut line = self.shared.line.lock();
        line.uncount(&arrival.job);
        Ok(self.add(line, arrival))
    }

    fn add(&self, mut line: MutexGuard<'_, JobQueue>, arrival: NewJob) -> JobHandle {
        let number = line.taken;
        let refused = line.add(arrival);
        drop(line);
        drop(refused);
        self.shared.signal.wake();
        self.handle(number)
    }

    fn handle(&self, job: u64) -> JobHandle {
        let shared: Arc<dyn CancelJobs> = self.shared.clone();
        JobHandle::new(Arc::downgrade(&shared), job)
    }
}

impl JobQueue {
    /// Returns the job if the scheduler has stopped; dropped outside of the latch, it tells its requester.
    /// Its number is that of the jobs taken before it, as in the core.
    fn add(&mut self, arrival: NewJob) -> Option<NewJob> {
        if self.stopped {
            return Some(arrival);
        }
        self.count(&arrival.job);
        self.taken += 1;
        self.arrived.push_back(arrival);
        None
    }

    fn count(&mut self, job: &Job) {
        let (jobs, bytes) = self.waiting.get_mut(job.urgency);
        *jobs += 1;
        *bytes += job.task_bytes();
    }

    fn uncount(&mut self, job: &Job) {
        let (jobs, bytes) = self.waiting.get_mut(job.urgency);
        *jobs -= 1;
        *bytes -= job.task_bytes();
    }
}

impl CancelJobs for Shared {
    fn cancel(&self, job: u64) {
        let mut line = self.line.lock();
        if !line.stopped {
            line.cancelled.push(job);
        }
        drop(line);
        self.signal.wake();
    }
}

impl Shared {
    fn seal(&self, job: Job, sink: Sink) -> NewJob {
        // On the requester's thread, and not for jobs that only the CPU will get.
        let for_units = self
            .specs
            .iter()
            .any(|spec| !spec.in_process && spec.fit(&job) == Fit::Accepted);
        NewJob {
            crc: for_units.then(|| job_crc(&job)),
            submitted_ns: self.clock.monotonic_nanos(),
            done: Done::new(sink, &job),
            job,
        }
    }

    fn has_room(&self, line: &JobQueue, job: &Job) -> bool {
        let (jobs, bytes) = *line.waiting.get(job.urgency);
        let bytes = bytes.saturating_add(job.task_bytes());
        jobs == 0 || (jobs < self.config.queue_jobs_max && bytes <= self.config.queue_bytes_max)
    }

    /// Waits until there is space for a job, or the scheduler has stopped. False if it is given up before.
    fn wait_for_room(
        &self,
        line: &mut MutexGuard<'_, JobQueue>,
        job: &Job,
        is_stopped: Option<&dyn Fn() -> bool>,
    ) -> bool {
        while !self.has_room(line, job) && !line.stopped {
            let Some(is_stopped) = is_stopped else {
                self.room.wait(line);
                continue;
            };
            // Called outside of the latch, since it may take others.
            if MutexGuard::unlocked(line, is_stopped) {
                return false;
            }
            if !self.has_room(line, job) && !line.stopped {
                self.room.wait_for(line, POLL_INTERVAL);
            }
        }
        true
    }

    fn step(&self) -> Option<Duration> {
        let mut core = self.core.lock();
        // An answer that arrives after this was not late, however long validation takes.
        let gathered_ns = self.clock.monotonic_nanos();
        let (arrived, cancelled) = {
            let mut line = self.line.lock();
            (
                std::mem::take(&mut line.arrived),
                std::mem::take(&mut line.cancelled),
            )
        };
        let mut answers = core.gather(arrived, gathered_ns);
        let mut validated = Vec::new();
        if let Some(pool) = &self.validation {
            validated = pool.take();
            for answer in answers.extract_if(.., |answer| answer.is_for_the_pool()) {
                pool.put(answer);
            }
        }
        if !answers.is_empty() {
            let validator = core.validator();
            let judge = || validated.extend(answers.into_iter().map(|answer| answer.judge(validator)));
            // Readers of counters do not wait for validation.
            MutexGuard::unlocked(&mut core, judge);
        }
        let now_ns = self.clock.monotonic_nanos();
        for job in cancelled {
            core.cancel(job, now_ns);
        }
        let step = core.step(gathered_ns, now_ns, validated);
        drop(core);
        if step.dequeued != PerUrgency::default() {
            let mut line = self.line.lock();
            for urgency in [Urgency::Urgent, Urgency::Background] {
                let (jobs, bytes) = step.dequeued.get(urgency);
                let waiting = line.waiting.get_mut(urgency);
                waiting.0 = waiting.0.saturating_sub(*jobs);
                waiting.1 = waiting.1.saturating_sub(*bytes);
            }
            drop(line);
            self.room.notify_all();
        }
        for (done, finished) in step.finished {
            done.deliver(finished);
        }
        let now_ns = self.clock.monotonic_nanos();
        step.next_ns
            .map(|next| Duration::from_nanos(next.saturating_sub(now_ns)))
    }
}

impl Shared {
    /// Accepts nothing more, and tells every waiting requester.
    fn stop(&self) {
        let mut line = self.line.lock();
        line.stopped = true;
        let arrived = std::mem::take(&mut line.arrived);
        drop(line);
        self.room.notify_all();
        let abandoned = self.core.lock().abandon();
        drop((arrived, abandoned));
    }
}

/// However the driver ends, a panic included, nobody keeps waiting for it.
struct StopOnExit(Arc<Shared>);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.shared.signal.end();
        if let Some(driver) = self.driver.take() {
            // If it panicked, it has stopped the scheduler.
            let _ = driver.join();
        }
        self.shared.stop();
    }
}
