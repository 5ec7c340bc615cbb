//! Running the members of a batch, wave after wave.
//!
//! The members of a wave do not conflict (DESIGN.md, invariant 2), so they can run in any order and on any
//! thread. This is used twice: a worker runs its members in groups, so that their memory accesses overlap
//! ([`group`]), and a large wave is split among workers ([`workers`]). Which worker ran what, and when, has
//! no effect on the result: row ids come from the member's place, and the digest does not depend on order.
//!
//! ```text
//!   wave 0: members  0 ........ 2047 | 2048 ........ 4095   one range for each worker
//!                    [64][64][64] ..   [64][64][64] ..      claimed in morsels; who is through helps
//!   waves 1, 2, 3: 4096 .. 4177 | .. 4203 | 4204            narrow: on the caller's thread, and a group
//!                  [  group: fetch   |  turn  | execute ]   reaches over the ends of waves
//! ```
//!
//! A group prefetches the keys of all declared accesses, then executes, switching to the next member at every
//! memory wait. Where a wave ends within a group, members that still wait first run to their end; what was
//! prefetched stays in the cache. A member that conflicts over the only row that it touches is not prefetched
//! for, since that row is in the cache. So a batch of many waves with one member each costs what its members
//! cost one by one.
//!
//! With a device, each wave is run by itself, in ranges of members, beside it: [`CpuExecutor`], called by
//! `device`. Without one, nothing here knows of devices.
//!
//! The outcome of a member goes to an [`AnswerSink`], one per worker, while its buffers still belong to the
//! executor: a sink that only counts allocates nothing.
//!
//! Source: Hobbes 3.3.3 (isolation by admission alone); BionicDB 4.5 (a batch executed as one).

mod group;
mod workers;

use crate::record::BUDGET;
use crate::request::{Answer, Committed, Refused};
use group::{BatchContext, ExecutionContext as _, SnapshotContext};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use weft_base::BatchId;
use weft_program::{AccessKeys, Budget, Outcome, Program};
use weft_store::{BatchWriter, ReadView};
use weft_types::{SqlError, SqlState};

/// Members that a worker claims at once: a few groups.
const MORSEL_MEMBERS: usize = 64;

static COMPILED_RUNS: AtomicU64 = AtomicU64::new(0);

/// Runs in which machine code executed a part, since the process began.
pub fn compiled_runs() -> u64 {
    COMPILED_RUNS.load(Ordering::Relaxed)
}

/// What one member does.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// A one-shot program.
    Program {
        /// What to run.
        program: &'a Arc<Program>,
        /// Its encoded inputs.
        inputs: &'a [u8],
        /// Keys of its accesses, if they were made from these inputs before.
        keys: Option<&'a AccessKeys>,
    },
    /// A session's write set.
    WriteSet(&'a [u8]),
}

/// How a worker runs its members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Execution {
    /// One after the other; for measuring what interleaving is worth.
    Serial,
    /// In groups whose memory accesses overlap.
    #[default]
    Interleaved,
    /// In groups that take no further member once this many probes are in flight; for measuring how many pay
    /// off.
    InFlight(u16),
}

/// Receives the outcomes of members, in no particular order.
pub trait AnswerSink: Send {
    /// A member has ended. The sink may take the outcome; otherwise it is reused. `observed` is the highest
    /// batch that the answer depends on.
    fn answer(&mut self, member: usize, result: Result<&mut Outcome, SqlError>, observed: BatchId);
}

impl<F: FnMut(usize, Result<&mut Outcome, SqlError>, BatchId) + Send> AnswerSink for F {
    fn answer(&mut self, member: usize, result: Result<&mut Outcome, SqlError>, observed: BatchId) {
        self(member, result, observed);
    }
}

/// Builds the answer to keep: it belongs to `batch`, or to the batch that it observed.
fn kept(
    result: Result<&mut Outcome, SqlError>,
    batch: Option<BatchId>,
    observed: BatchId,
) -> Answer<Committed> {
    match result {
        Ok(outcome) => Ok(Committed {
            outcome: std::mem::take(outcome),
            batch: batch.unwrap_or(observed),
            observed,
        }),
        Err(error) => Err(Box::new(Refused { error, observed })),
    }
}

/// Collects the answers with their members' numbers.
struct Collected(Vec<(usize, Answer<Committed>)>);

impl AnswerSink for Collected {
    fn answer(&mut self, member: usize, result: Result<&mut Outcome, SqlError>, observed: BatchId) {
        self.0.push((member, kept(result, None, observed)));
    }
}

/// Prefetches what the declared keys of some programs lead to, so that running them soon finds it in the
/// cache. A hint, for callers that run members one by one.
pub fn prefetch_accesses<'a>(
    writer: &BatchWriter<'_>,
    batch: BatchId,
    works: impl Iterator<Item = Work<'a>>,
) {
    let context = BatchContext::new(writer, batch.into());
    group::prefetch_accesses(&context, works);
}

/// Runs the members of one wave in a given way and returns their answers in member order. `workers` threads
/// share the work, the caller's included; with one, or a wave below `split_at`, the caller does it alone.
pub fn run_wave_as(
    execution: Execution,
    writer: &BatchWriter<'_>,
    batch: BatchId,
    members: &[Work<'_>],
    workers: usize,
    split_at: usize,
) -> Result<Vec<Answer<Committed>>, SqlError> {
    let parallelism = Parallelism { workers, split_at };
    let run = BatchRun::from(batch);
    run_waves(execution, writer, run, members, &[members.len()], parallelism)
}

/// An open batch, and what each of its programs may spend.
#[derive(Debug, Clone, Copy)]
pub struct BatchRun {
    /// Its number.
    pub batch: BatchId,
    /// Replay gives programs what they had when they were recorded.
    pub budget: Budget,
}

impl From<BatchId> for BatchRun {
    /// A new batch.
    fn from(batch: BatchId) -> Self {
        BatchRun {
            batch,
            budget: BUDGET,
        }
    }
}

/// How waves are shared among threads.
#[derive(Debug, Clone, Copy)]
pub struct Parallelism {
    /// Threads that may share a wave, the caller's included.
    pub workers: usize,
    /// A wave with at least this many members is shared.
    pub split_at: usize,
}

/// Runs waves one after the other and returns the answers in the order of their members. `wave_ends` is as
/// for [`run_waves_into`].
///
/// # Errors
/// A member was not answered, or answered twice (XX000): the batch must be undone.
pub fn run_waves(
    execution: Execution,
    writer: &BatchWriter<'_>,
    run: BatchRun,
    members: &[Work<'_>],
    wave_ends: &[usize],
    parallelism: Parallelism,
) -> Result<Vec<Answer<Committed>>, SqlError> {
    let workers = if members.len() < parallelism.split_at {
        1
    } else {
        parallelism.workers.max(1)
    };
    let mut sinks: Vec<Collected> = (0..workers).map(|_| Collected(Vec::new())).collect();
    if let Some(Collected(first)) = sinks.first_mut() {
        first.reserve(members.len());
    }
    run_waves_into(
        execution,
        writer,
        run,
        members,
        wave_ends,
        parallelism.split_at,
        &mut sinks,
    );
    let all = sinks.into_iter().map(|sink| sink.0).reduce(|mut all, more| {
        all.extend(more);
        all
    });
    by_member(all.unwrap_or_default(), members.len())
}

/// The CPU executor of one batch, for a caller that decides for each member of a wave where it runs.
pub(crate) struct CpuExecutor<'w, 's> {
    context: BatchContext<'w, 's>,
    execution: Execution,
    parallelism: Parallelism,
}

impl<'w, 's> CpuExecutor<'w, 's> {
    pub(crate) fn new(
        execution: Execution,
        writer: &'w BatchWriter<'s>,
        run: BatchRun,
        parallelism: Parallelism,
    ) -> CpuExecutor<'w, 's> {
        CpuExecutor {
            context: BatchContext::new(writer, run),
            execution,
            parallelism,
        }
    }

    pub(crate) fn writer(&self) -> &'w BatchWriter<'s> {
        self.context.writer()
    }

    pub(crate) fn batch(&self) -> BatchId {
        self.writer().batch()
    }

    /// Runs members of one wave and appends their answers, with the members' numbers.
    pub(crate) fn run(
        &self,
        members: &[Work<'_>],
        range: Range<usize>,
        answers: &mut Vec<(usize, Answer<Committed>)>,
    ) {
        let Parallelism { workers, split_at } = self.parallelism;
        let workers = if range.len() < split_at { 1 } else { workers.max(1) };
        let mut sinks: Vec<Collected> = (0..workers).map(|_| Collected(Vec::new())).collect();
        match sinks.as_mut_slice() {
            [sink] => run_inline(&self.context, self.execution, members, range, ONE_WAVE, sink),
            sinks => run_shared(&self.context, self.execution, members, range, sinks),
        }
        answers.extend(sinks.into_iter().flat_map(|sink| sink.0));
    }

    /// Writes a write set as a member's; on an error the member has changed nothing.
    pub(crate) fn apply(&self, member: usize, write_set: &[u8]) -> Result<(), SqlError> {
        let mut opened = self.context.open(member);
        let applied = self.context.apply(&mut opened, write_set);
        self.context.close(opened, applied.is_ok());
        applied
    }
}

/// Sorts answers into the order of their members: one for each of `count`, or an error.
pub(crate) fn by_member(
    mut answers: Vec<(usize, Answer<Committed>)>,
    count: usize,
) -> Result<Vec<Answer<Committed>>, SqlError> {
    answers.sort_unstable_by_key(|(n, _)| *n);
    if answers.len() != count || answers.iter().enumerate().any(|(place, (n, _))| place != *n) {
        return Err(SqlError::new(
            SqlState::INTERNAL_ERROR,
            "the executor did not answer each member of the batch once; it was undone",
        ));
    }
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

/// Runs waves one after the other, on as many workers as there are sinks, the caller's thread included.
/// `wave_ends` holds the end of each wave in `members`, in order; the last one is their number. Members are
/// numbered through all waves. Every member is answered once, into the sink of the worker that ran it. A wave
/// with fewer than `split_at` members runs on the caller's thread, into the first sink.
pub fn run_waves_into<S: AnswerSink>(
    execution: Execution,
    writer: &BatchWriter<'_>,
    run: BatchRun,
    members: &[Work<'_>],
    wave_ends: &[usize],
    split_at: usize,
    sinks: &mut [S],
) {
    let context = BatchContext::new(writer, run);
    let behind = wave_ends.first().copied().unwrap_or(0);
    let narrow = |waves: &[usize], start: usize, sinks: &mut [S]| {
        if let (Some(end), Some(sink)) = (waves.last(), sinks.first_mut()) {
            run_inline(&context, execution, members, start..*end, (waves, behind), sink);
        }
    };
    let (mut narrow_wave, mut narrow_start, mut start) = (0, 0, 0);
    for (wave, end) in wave_ends.iter().enumerate() {
        if sinks.len() > 1 && end - start >= split_at {
            narrow(
                wave_ends.get(narrow_wave..wave).unwrap_or_default(),
                narrow_start,
                sinks,
            );
            run_shared(&context, execution, members, start..*end, sinks);
            (narrow_wave, narrow_start) = (wave + 1, *end);
        }
        start = *end;
    }
    narrow(
        wave_ends.get(narrow_wave..).unwrap_or_default(),
        narrow_start,
        sinks,
    );
}

/// Runs the members of one wave on as many workers as there are sinks, the caller's thread included. Every
/// member is answered once, into the sink of the worker that ran it.
pub fn run_wave_into<S: AnswerSink>(
    execution: Execution,
    writer: &BatchWriter<'_>,
    batch: BatchId,
    members: &[Work<'_>],
    sinks: &mut [S],
) {
    run_waves_into(
        execution,
        writer,
        batch.into(),
        members,
        &[members.len()],
        0,
        sinks,
    );
}

/// Runs read-only programs at a view's boundary, on as many workers as there are sinks.
pub fn run_reads_into<S: AnswerSink>(
    execution: Execution,
    view: ReadView<'_>,
    members: &[Work<'_>],
    sinks: &mut [S],
) {
    let context = SnapshotContext { view };
    match sinks {
        [sink] => run_inline(&context, execution, members, 0..members.len(), ONE_WAVE, sink),
        _ => run_shared(&context, execution, members, 0..members.len(), sinks),
    }
}

/// Runs read-only programs at a view's boundary, on this thread. `keep` is called for each, by number, in no
/// particular order.
pub(crate) fn run_reads(
    execution: Execution,
    view: ReadView<'_>,
    calls: &[Work<'_>],
    mut keep: impl FnMut(usize, Answer<Committed>) + Send,
) {
    let batch = Some(view.batch());
    let sink = |n: usize, result: Result<&mut Outcome, SqlError>, observed: BatchId| {
        keep(n, kept(result, batch, observed));
    };
    run_reads_into(execution, view, calls, &mut [sink]);
}

/// Treats a range of members as one wave, so that all of it can be prefetched.
const ONE_WAVE: (&[usize], usize) = (&[], usize::MAX);

/// Runs a range of members on this thread. `wave_ends` holds where waves end within it, `behind` where wave 0
/// of the batch ends.
fn run_inline<G: group::ExecutionContext, S: AnswerSink>(
    context: &G,
    execution: Execution,
    members: &[Work<'_>],
    range: Range<usize>,
    (wave_ends, behind): (&[usize], usize),
    sink: &mut S,
) {
    match execution {
        Execution::Serial => {
            for (n, work) in members.iter().enumerate().take(range.end).skip(range.start) {
                group::run_one(context, n, *work, sink);
            }
        }
        Execution::Interleaved => {
            let waves = (wave_ends, behind);
            group::run_range(context, members, range, waves, group::GROUP_PROBES, sink);
        }
        Execution::InFlight(probes) => {
            let waves = (wave_ends, behind);
            group::run_range(context, members, range, waves, usize::from(probes), sink);
        }
    }
}

/// Runs a range of members that do not conflict, on as many workers as there are sinks.
fn run_shared<G: group::ExecutionContext, S: AnswerSink>(
    context: &G,
    execution: Execution,
    members: &[Work<'_>],
    range: Range<usize>,
    sinks: &mut [S],
) {
    let ranges = MemberRanges::new(range, sinks.len());
    let sinks: Vec<Mutex<&mut S>> = sinks.iter_mut().map(Mutex::new).collect();
    workers::run(sinks.len(), &|worker| {
        if let Some(mut sink) = sinks.get(worker).map(Mutex::lock) {
            while let Some(morsel) = ranges.claim(worker) {
                run_inline(context, execution, members, morsel, ONE_WAVE, &mut **sink);
            }
        }
    });
}

/// A range of members; padded to its own cache lines, so that claiming does not disturb other workers.
#[repr(align(128))]
struct MemberRange {
    next: AtomicUsize,
    end: usize,
}

/// The members of a wave, one range per worker.
struct MemberRanges(Vec<MemberRange>);

impl MemberRanges {
    fn new(range: Range<usize>, workers: usize) -> MemberRanges {
        let bound = |worker: usize| range.start + range.len() * worker / workers.max(1);
        let member_range = |worker| MemberRange {
            next: AtomicUsize::new(bound(worker)),
            end: bound(worker + 1),
        };
        MemberRanges((0..workers).map(member_range).collect())
    }

    /// The next morsel of a worker's own range, or of another worker's once that is exhausted.
    fn claim(&self, worker: usize) -> Option<Range<usize>> {
        let (before, from) = self.0.split_at_checked(worker)?;
        from.iter().chain(before).find_map(|member_range| {
            if member_range.next.load(Ordering::Relaxed) >= member_range.end {
                return None;
            }
            let start = member_range.next.fetch_add(MORSEL_MEMBERS, Ordering::Relaxed);
            (start < member_range.end).then(|| start..member_range.end.min(start + MORSEL_MEMBERS))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::group::{Call, ExecutionContext, Frame};
    use super::*;
    use weft_base::{IndexId, TableId};
    use weft_program::{Access, AccessKind, KeyPart, ProgramBuilder, Progress};
    use weft_store::{
        CatalogOp, ColumnDef, IndexDef, IndexMethod, LookupPlan, PlannedLookups, Probe, Store, TableDef,
    };
    use weft_types::{SqlType, Value};

    #[test]
    fn answers_belong_to_their_members() {
        let answer = |n: u64| {
            Ok(Committed {
                batch: BatchId(n),
                ..Committed::default()
            })
        };
        let told = by_member(vec![(2, answer(2)), (0, answer(0)), (1, answer(1))], 3).unwrap();
        let batches: Vec<u64> = told
            .iter()
            .map(|answer| answer.as_ref().unwrap().batch.0)
            .collect();
        assert_eq!(batches, [0, 1, 2]);
        // One missing, one twice, one of nobody.
        for numbers in [&[0, 1][..], &[0, 2], &[0, 1, 1], &[0, 1, 3], &[0, 0, 2]] {
            let answers = numbers.iter().map(|n| (*n, answer(*n as u64))).collect();
            assert!(by_member(answers, 3).is_err(), "{numbers:?}");
        }
    }

    const TABLE: TableId = TableId(16_384);
    const KEY: IndexId = IndexId(16_385);

    fn table() -> TableDef {
        let key = IndexDef {
            id: KEY,
            name: "t_pkey".into(),
            table: TABLE,
            columns: vec![0],
            unique: true,
            primary: true,
            method: IndexMethod::Hash,
        };
        TableDef::new(TABLE, "t", vec![ColumnDef::new("id", SqlType::Int8)]).with_index(key)
    }

    /// Looks for two rows, both known beforehand.
    fn two_reads(store: &Arc<Store>) -> Arc<Program> {
        let catalog = store.catalog();
        let mut b = ProgramBuilder::new(catalog.version());
        let inputs = [b.input(SqlType::Int8), b.input(SqlType::Int8)];
        let table = b.table(catalog.table_by_id(TABLE).unwrap());
        let index = b.index(table, KEY);
        for input in inputs {
            b.add_access(Access::new(
                AccessKind::ReadRow,
                TABLE,
                vec![KeyPart::Input(input)],
            ));
            let (cp, key, status) = (b.collect_register(), b.key_buffer(), b.register());
            b.key(key);
            b.keyin(key, input);
            b.search(cp, table, index, key);
            b.ret(status, cp);
        }
        Arc::new(b.finish().unwrap())
    }

    /// A snapshot that remembers how many lookups a group had under way at most.
    struct Watched<'s> {
        inner: SnapshotContext<'s>,
        most: AtomicUsize,
    }

    impl ExecutionContext for Watched<'_> {
        type Member<'g>
            = BatchId
        where
            Self: 'g;

        fn budget(&self) -> Budget {
            self.inner.budget()
        }

        fn open(&self, member: usize) -> BatchId {
            self.inner.open(member)
        }

        fn view(&self) -> ReadView<'_> {
            self.inner.view
        }

        fn finish(&self, plan: &mut LookupPlan<'_>) {
            self.most.fetch_max(plan.in_flight(), Ordering::Relaxed);
            plan.finish();
        }

        fn advance_probe(&self, probe: &mut Probe) -> bool {
            self.inner.advance_probe(probe)
        }

        fn resume<'g>(
            &'g self,
            member: &mut BatchId,
            call: Call<'_>,
            frame: &mut Frame,
            planned: PlannedLookups<'_, 'g>,
            may_wait: bool,
        ) -> Result<Progress, SqlError> {
            self.inner.resume(member, call, frame, planned, may_wait)
        }

        fn apply(&self, member: &mut BatchId, write_set: &[u8]) -> Result<(), SqlError> {
            self.inner.apply(member, write_set)
        }

        fn close(&self, member: BatchId, keep: bool) -> BatchId {
            self.inner.close(member, keep)
        }
    }

    /// How many probes are under way at most decides when a group closes: those of a member go together.
    #[test]
    fn a_group_keeps_the_allowed_number_of_probes_in_flight() {
        let store = Store::new();
        let batch = BatchId(1);
        let mut writer = store.begin_batch(batch);
        writer.apply_catalog(&CatalogOp::CreateTable(table())).unwrap();
        writer.finish();
        store.publish(batch);
        let program = two_reads(&store);
        let inputs = program.encode_inputs(&[Value::Int8(1), Value::Int8(2)]).unwrap();
        let members = vec![
            Work::Program {
                program: &program,
                inputs: &inputs,
                keys: None
            };
            100
        ];
        let most = |execution: Execution| {
            let snapshot = store.snapshot();
            let context = Watched {
                inner: SnapshotContext {
                    view: snapshot.view(),
                },
                most: AtomicUsize::new(0),
            };
            let mut answered = 0;
            let mut sink = |_: usize, result: Result<&mut Outcome, SqlError>, _: BatchId| {
                result.unwrap();
                answered += 1;
            };
            run_inline(
                &context,
                execution,
                &members,
                0..members.len(),
                ONE_WAVE,
                &mut sink,
            );
            assert_eq!(answered, members.len());
            context.most.into_inner()
        };
        assert_eq!(most(Execution::Serial), 0);
        for (asked, found) in [(1, 2), (2, 2), (5, 6), (20, 20), (48, 48), (500, 64)] {
            assert_eq!(most(Execution::InFlight(asked)), found, "{asked}");
        }
        assert_eq!(most(Execution::Interleaved), group::GROUP_PROBES);
    }

    #[test]
    fn every_member_is_claimed_once_by_any_worker() {
        for (members, workers) in [(0, 1), (1, 2), (63, 2), (64, 3), (1000, 4)] {
            for only in 0..workers {
                let ranges = MemberRanges::new(5..5 + members, workers);
                let mut seen = vec![0; members];
                let first = ranges.claim((only + 1) % workers);
                for range in first.into_iter().chain(std::iter::from_fn(|| ranges.claim(only))) {
                    seen[range.start - 5..range.end - 5]
                        .iter_mut()
                        .for_each(|count| *count += 1);
                }
                assert!(
                    seen.iter().all(|count| *count == 1),
                    "{members} members, {workers} workers"
                );
            }
        }
    }
}
