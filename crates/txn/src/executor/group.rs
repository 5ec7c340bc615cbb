//! Runs a worker's members in groups: while one waits for memory, the others continue.
//!
//! ```text
//!   begin    check inputs, encode keys of all declared accesses, plan their lookups
//!   fetch    all lookups of the group, one step of all at a time: index, slot, row
//!   execute  each member; its searches find everything in the cache. A search for a key that was not
//!            known in advance begins a probe and waits
//!   resume   the members that wait, in turn, each as soon as its probe is complete
//! ```
//!
//! This is BionicDB's index pipeline in software: its two phases over a batch, and in addition switching
//! between members where one access depends on another. A group closes when it has [`GROUP_MEMBERS`] members
//! (frames) or [`GROUP_PROBES`] probes in flight, whichever comes first; a core sustains no more cache misses
//! than that.
//!
//! Prefetching is only a hint, so a member does what it would do alone: same results, errors and row ids. A
//! group may therefore extend over the end of a wave: its members are prefetched together, and before the
//! first member of a wave runs, those that wait from earlier waves are completed.
//!
//! Source: BionicDB 4.4, 4.5; Kocberber et al., AMAC, VLDB 2015; DESIGN.md, Executors.

use super::{AnswerSink, BatchRun, COMPILED_RUNS, Work};
use crate::record::BUDGET;
use crate::write_set;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::Ordering;
use weft_base::BatchId;
use weft_program::{
    Access, AccessKeys, AccessKind, BatchAccess, Budget, DataAccess, Outcome, Program, Progress, ReadAccess,
    Scratch,
};
use weft_store::{BatchWriter, LookupPlan, MemberWriter, PlannedLookups, Probe, ReadView};
use weft_types::{SqlError, SqlState};

/// Most members of a group.
const GROUP_MEMBERS: usize = 32;
/// The frame after the group's frames: for members that run from beginning to end when their turn comes.
const NEAR_FRAME: usize = GROUP_MEMBERS;
/// Probes in flight at which a group takes no further member.
pub(super) const GROUP_PROBES: usize = 48;

/// What members run on: the open batch, or a snapshot.
pub(super) trait ExecutionContext: Sync {
    /// A member between its beginning and its end.
    type Member<'g>
    where
        Self: 'g;

    /// What a member's program may spend.
    fn budget(&self) -> Budget;

    fn open(&self, member: usize) -> Self::Member<'_>;

    /// The view for lookups that are known before the programs run.
    fn view(&self) -> ReadView<'_>;

    /// Prefetches all that a plan leads to, except the tails of long rows.
    fn finish(&self, plan: &mut LookupPlan<'_>) {
        plan.finish();
    }

    /// False when the probe is complete.
    fn advance_probe(&self, probe: &mut Probe) -> bool;

    /// Continues a program whose lookups were `planned`. Where it would wait for memory, its probe is put
    /// into the frame, unless `may_wait` is false.
    fn resume<'g>(
        &'g self,
        member: &mut Self::Member<'g>,
        call: Call<'_>,
        frame: &mut Frame,
        planned: PlannedLookups<'_, 'g>,
        may_wait: bool,
    ) -> Result<Progress, SqlError>;

    fn apply(&self, member: &mut Self::Member<'_>, write_set: &[u8]) -> Result<(), SqlError>;

    /// Ends the member and keeps or discards its writes; returns the highest batch that it observed.
    fn close(&self, member: Self::Member<'_>, keep: bool) -> BatchId;
}

/// A program and its inputs.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    program: &'a Program,
    inputs: &'a [u8],
    keys: Option<&'a AccessKeys>,
}

impl<'a> Call<'a> {
    /// What a member runs, or its write set.
    #[inline]
    fn of(work: Work<'a>) -> Result<Self, &'a [u8]> {
        match work {
            Work::Program {
                program,
                inputs,
                keys,
            } => Ok(Call {
                program,
                inputs,
                keys,
            }),
            Work::WriteSet(bytes) => Err(bytes),
        }
    }

    fn resume<A: DataAccess>(&self, access: &mut A, frame: &mut Frame) -> Result<Progress, SqlError> {
        weft_program::resume(
            self.program,
            self.inputs,
            access,
            &mut frame.scratch,
            &mut frame.outcome,
        )
    }
}

/// Registers, buffers and results of one member.
#[derive(Default)]
pub(super) struct Frame {
    scratch: Scratch,
    outcome: Outcome,
    /// What it waits for or has waited for.
    probe: Option<Probe>,
    is_fetched: bool,
}

impl Frame {
    fn begin(&mut self, call: Call<'_>, budget: Budget) -> Result<(), SqlError> {
        (self.probe, self.is_fetched) = (None, false);
        let (program, scratch, outcome) = (call.program, &mut self.scratch, &mut self.outcome);
        match call.keys {
            Some(keys) => {
                weft_program::begin_with_keys(program, keys, budget, scratch, outcome);
                Ok(())
            }
            None => weft_program::begin(program, call.inputs, budget, scratch, outcome),
        }
    }
}

/// A worker's memory, kept between waves.
#[derive(Default)]
struct Frames {
    frames: Vec<Frame>,
    /// Runs with machine code that are not yet added to the process's counter.
    compiled_runs: u64,
}

impl Frames {
    fn report_compiled(&mut self) {
        if self.compiled_runs > 0 {
            COMPILED_RUNS.fetch_add(std::mem::take(&mut self.compiled_runs), Ordering::Relaxed);
        }
    }
}

thread_local! {
    static FRAMES: RefCell<Frames> = RefCell::default();
}

/// Members of the open batch.
pub(super) struct BatchContext<'w, 's> {
    writer: &'w BatchWriter<'s>,
    run: BatchRun,
}

impl<'w, 's> BatchContext<'w, 's> {
    pub fn new(writer: &'w BatchWriter<'s>, run: BatchRun) -> Self {
        BatchContext { writer, run }
    }

    pub fn writer(&self) -> &'w BatchWriter<'s> {
        self.writer
    }
}

impl ExecutionContext for BatchContext<'_, '_> {
    type Member<'g>
        = MemberWriter<'g>
    where
        Self: 'g;

    fn budget(&self) -> Budget {
        self.run.budget
    }

    fn open(&self, member: usize) -> MemberWriter<'_> {
        self.writer.member(member as u32)
    }

    fn view(&self) -> ReadView<'_> {
        self.writer.view()
    }

    fn advance_probe(&self, probe: &mut Probe) -> bool {
        self.writer.advance_probe(probe)
    }

    fn resume<'g>(
        &'g self,
        member: &mut MemberWriter<'g>,
        call: Call<'_>,
        frame: &mut Frame,
        planned: PlannedLookups<'_, 'g>,
        may_wait: bool,
    ) -> Result<Progress, SqlError> {
        if !may_wait {
            return call.resume(&mut BatchAccess::new(member).with_planned(planned), frame);
        }
        let mut probe = frame.probe.take();
        let mut access = BatchAccess::interleaved(member, &mut probe).with_planned(planned);
        let progress = call.resume(&mut access, frame);
        frame.probe = probe.map(|probe| probe.with_fetch(call.program.row_fetch()));
        progress
    }

    fn apply(&self, member: &mut MemberWriter<'_>, write_set: &[u8]) -> Result<(), SqlError> {
        write_set::apply(write_set, member)
    }

    fn close(&self, member: MemberWriter<'_>, keep: bool) -> BatchId {
        match keep {
            true => member.commit(),
            false => member.rollback(),
        }
        // The answer is part of the batch's record even if it is a refusal, so both wait for that record.
        self.run.batch
    }
}

/// Read-only programs at a boundary.
pub(super) struct SnapshotContext<'s> {
    pub view: ReadView<'s>,
}

impl ExecutionContext for SnapshotContext<'_> {
    /// What it has observed.
    type Member<'g>
        = BatchId
    where
        Self: 'g;

    fn budget(&self) -> Budget {
        BUDGET
    }

    fn open(&self, _member: usize) -> BatchId {
        BatchId(0)
    }

    fn view(&self) -> ReadView<'_> {
        self.view
    }

    fn advance_probe(&self, probe: &mut Probe) -> bool {
        self.view.advance_probe(probe)
    }

    fn resume<'g>(
        &'g self,
        observed: &mut BatchId,
        call: Call<'_>,
        frame: &mut Frame,
        planned: PlannedLookups<'_, 'g>,
        may_wait: bool,
    ) -> Result<Progress, SqlError> {
        if !may_wait {
            let mut access = ReadAccess::resumed(self.view, *observed).with_planned(planned);
            let progress = call.resume(&mut access, frame);
            *observed = access.observed();
            return self.view.check().and(progress);
        }
        let mut probe = frame.probe.take();
        let mut access = ReadAccess::interleaved(self.view, *observed, &mut probe).with_planned(planned);
        let progress = call.resume(&mut access, frame);
        *observed = access.observed();
        frame.probe = probe.map(|probe| probe.with_fetch(call.program.row_fetch()));
        self.view.check().and(progress)
    }

    fn apply(&self, _member: &mut BatchId, _write_set: &[u8]) -> Result<(), SqlError> {
        Err(SqlError::new(
            SqlState::INTERNAL_ERROR,
            "a write set on a snapshot",
        ))
    }

    fn close(&self, observed: BatchId, _keep: bool) -> BatchId {
        observed
    }
}

/// Runs one member from beginning to end, without prefetching.
pub(super) fn run_one<G: ExecutionContext, S: AnswerSink>(
    context: &G,
    member: usize,
    work: Work<'_>,
    sink: &mut S,
) {
    FRAMES.with_borrow_mut(|memory| {
        let frame = memory.first();
        let mut opened = context.open(member);
        let result = match Call::of(work) {
            Ok(call) => frame.begin(call, context.budget()).and_then(|()| {
                while context.resume(&mut opened, call, frame, PlannedLookups::default(), false)?
                    == Progress::Waiting
                {}
                Ok(())
            }),
            Err(write_set) => {
                frame.outcome = Outcome::default();
                context.apply(&mut opened, write_set)
            }
        };
        let observed = context.close(opened, result.is_ok());
        sink.answer(member, result.map(|()| &mut frame.outcome), observed);
        if matches!(work, Work::Program { .. }) && frame.scratch.ran_compiled() {
            memory.compiled_runs += 1;
            memory.report_compiled();
        }
    });
}

/// Prefetches what the declared keys of some programs lead to.
pub(super) fn prefetch_accesses<'a, G: ExecutionContext>(context: &G, works: impl Iterator<Item = Work<'a>>) {
    FRAMES.with_borrow_mut(|memory| {
        let frame = memory.first();
        let mut plan = LookupPlan::new(context.view());
        let fetch_all = |plan: &mut LookupPlan<'_>| {
            context.finish(plan);
            plan.part(0..plan.len()).fetch_all_rests();
        };
        for call in works.filter_map(|work| Call::of(work).ok()) {
            if frame.begin(call, context.budget()).is_ok() {
                frame.scratch.plan_lookups(call.program, call.inputs, &mut plan);
            }
            if plan.in_flight() >= GROUP_PROBES {
                fetch_all(&mut plan);
                plan.clear();
            }
        }
        fetch_all(&mut plan);
    });
}

impl Frames {
    /// The first frame, created if there is none.
    fn first(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        &mut self.frames[0]
    }
}

/// Where the lookups of each member of a group end in its plan.
type Ends = [usize; GROUP_MEMBERS];

/// The lookups of the member at a position; none beyond the group's end.
fn planned<'p, 'g>(plan: &'p mut LookupPlan<'g>, ends: &Ends, place: usize) -> PlannedLookups<'p, 'g> {
    let end = ends.get(place).copied().unwrap_or(0);
    let before = place.checked_sub(1).and_then(|before| ends.get(before));
    plan.part(before.copied().unwrap_or(0)..end)
}

/// A member that waits for memory.
struct Waiting<M> {
    /// Its frame, and its position after the first member of the group.
    place: usize,
    member: M,
}

/// The ends of waves, for a worker that goes through its members.
struct WaveEnds<'e> {
    /// The ends that have not been reached.
    rest: &'e [usize],
    /// Members from this one on come after one that they conflict with.
    behind: usize,
}

impl WaveEnds<'_> {
    /// True when a wave ended before this member. Asked in the order of members.
    fn is_passed(&mut self, member: usize) -> bool {
        let mut is_passed = false;
        while let Some((end, rest)) = self.rest.split_first()
            && *end <= member
        {
            (self.rest, is_passed) = (rest, true);
        }
        is_passed
    }

    /// True when this member is the last of its wave. Asked after [`WaveEnds::is_passed`].
    fn is_last(&self, member: usize) -> bool {
        self.rest.first() == Some(&(member + 1))
    }

    /// True when the member conflicts, over the only row that its program touches, with an earlier member of
    /// the batch: that row is in the cache then, and prefetching it would only take time.
    fn is_near(&self, member: usize, program: &Program) -> bool {
        let is_row = |access: &Access| {
            matches!(
                access.kind,
                AccessKind::ReadRow | AccessKind::WriteRow | AccessKind::InsertRow
            )
        };
        member >= self.behind && matches!(program.accesses.as_slice(), [only] if is_row(only))
    }
}

/// Runs the members of a range in groups. Where a wave ends (`wave_ends`, in order), all members before the
/// end complete before the next one begins. Members from number `behind` on are not in wave 0. A group takes
/// no further member once it has `probes_max` probes in flight.
pub(super) fn run_range<G: ExecutionContext, S: AnswerSink>(
    context: &G,
    members: &[Work<'_>],
    range: Range<usize>,
    (wave_ends, behind): (&[usize], usize),
    probes_max: usize,
    sink: &mut S,
) {
    FRAMES.with_borrow_mut(|memory| {
        let mut waiting = Vec::new();
        let mut rest = members.get(range.clone()).unwrap_or_default();
        let mut first = range.start;
        let mut wave_ends = WaveEnds {
            rest: wave_ends,
            behind,
        };
        while !rest.is_empty() {
            let parts = (&mut wave_ends, &mut *memory, &mut waiting);
            let count = run_group(context, rest, first, probes_max, parts, sink);
            rest = rest.get(count..).unwrap_or_default();
            first += count;
        }
        memory.report_compiled();
    });
}

/// What one group hands to the next.
type Parts<'p, 'e, 'g, G> = (
    &'p mut WaveEnds<'e>,
    &'p mut Frames,
    &'p mut Vec<Waiting<<G as ExecutionContext>::Member<'g>>>,
);

/// Runs a group from the front of `rest`, whose first member has number `first`; returns how many members it
/// took.
fn run_group<'g, G: ExecutionContext, S: AnswerSink>(
    context: &'g G,
    rest: &[Work<'_>],
    first: usize,
    probes_max: usize,
    (wave_ends, memory, waiting): Parts<'_, '_, 'g, G>,
    sink: &mut S,
) -> usize {
    let Frames {
        frames,
        compiled_runs,
    } = memory;
    if frames.len() <= NEAR_FRAME {
        frames.resize_with(NEAR_FRAME + 1, Frame::default);
    }
    let mut plan = LookupPlan::new(context.view());
    let mut ends: Ends = [0; GROUP_MEMBERS];
    let mut count = 0;
    let mut refused: [Option<SqlError>; GROUP_MEMBERS] = [const { None }; GROUP_MEMBERS];
    let members = rest.iter().zip(frames.iter_mut()).zip(&mut refused);
    for (((work, frame), refused), end) in members.zip(&mut ends) {
        if let Ok(call) = Call::of(*work)
            && !wave_ends.is_near(first + count, call.program)
        {
            match frame.begin(call, context.budget()) {
                Ok(()) => frame.scratch.plan_lookups(call.program, call.inputs, &mut plan),
                Err(error) => *refused = Some(error),
            }
        }
        *end = plan.len();
        count += 1;
        if plan.in_flight() >= probes_max {
            break;
        }
    }
    context.finish(&mut plan);
    planned(&mut plan, &ends, 0).fetch_first_rests();
    let group = rest.iter().zip(&mut refused).take(count);
    for (place, (work, refused)) in group.enumerate() {
        if wave_ends.is_passed(first + place) {
            resume_waiting(context, rest, first, frames, (&mut plan, &ends), waiting, sink);
        }
        // While this one runs, the rows that the next one needs first arrive.
        planned(&mut plan, &ends, place + 1).fetch_first_rests();
        let near = |program: &Program| wave_ends.is_near(first + place, program);
        let is_near = matches!(work, Work::Program { program, .. } if near(program));
        let Some(frame) = frames.get_mut(if is_near { NEAR_FRAME } else { place }) else {
            break;
        };
        // A member runs to its end if there is no other member to switch to.
        let is_alone = waiting.is_empty() && (place + 1 == count || wave_ends.is_last(first + place));
        let mut member = context.open(first + place);
        let result = match (refused.take(), Call::of(*work)) {
            (Some(error), _) => Err(error),
            (None, Ok(call)) => {
                let began = match is_near {
                    true => frame.begin(call, context.budget()),
                    false => Ok(()),
                };
                let may_wait = !is_near && !is_alone;
                let planned = if is_near {
                    PlannedLookups::default()
                } else {
                    planned(&mut plan, &ends, place)
                };
                match began.and_then(|()| context.resume(&mut member, call, frame, planned, may_wait)) {
                    Ok(Progress::Waiting) => {
                        waiting.push(Waiting { place, member });
                        continue;
                    }
                    ended => ended.map(drop),
                }
            }
            (None, Err(write_set)) => {
                frame.outcome = Outcome::default();
                context.apply(&mut member, write_set)
            }
        };
        let observed = context.close(member, result.is_ok());
        *compiled_runs += u64::from(is_near && frame.scratch.ran_compiled());
        sink.answer(first + place, result.map(|()| &mut frame.outcome), observed);
    }
    resume_waiting(context, rest, first, frames, (&mut plan, &ends), waiting, sink);
    let ran = rest.iter().zip(frames.iter()).take(count).enumerate();
    let ran_compiled = |(place, (work, frame)): &(usize, (&Work<'_>, &Frame))| match work {
        Work::Program { program, .. } => {
            !wave_ends.is_near(first + place, program) && frame.scratch.ran_compiled()
        }
        Work::WriteSet(_) => false,
    };
    *compiled_runs += ran.filter(ran_compiled).count() as u64;
    count
}

/// Visits the waiting members in turn until none is left: each visit advances a probe by a step, or continues
/// the member to its next wait or its end.
fn resume_waiting<'g, G: ExecutionContext, S: AnswerSink>(
    context: &'g G,
    rest: &[Work<'_>],
    first: usize,
    frames: &mut [Frame],
    (plan, ends): (&mut LookupPlan<'g>, &Ends),
    waiting: &mut Vec<Waiting<G::Member<'g>>>,
    sink: &mut S,
) {
    let mut at = 0;
    while !waiting.is_empty() {
        if at >= waiting.len() {
            at = 0;
        }
        let is_alone = waiting.len() == 1;
        let Some(Waiting { place, member }) = waiting.get_mut(at) else {
            return;
        };
        let place = *place;
        let call = rest.get(place).and_then(|work| Call::of(*work).ok());
        let (Some(frame), Some(call)) = (frames.get_mut(place), call) else {
            return;
        };
        if !frame.is_fetched {
            let under_way = frame
                .probe
                .as_mut()
                .is_some_and(|probe| context.advance_probe(probe));
            frame.is_fetched = !under_way;
            // Its last request takes time: visit the others first.
            at += 1;
            continue;
        }
        frame.is_fetched = false;
        let progress = context.resume(member, call, frame, planned(plan, ends, place), !is_alone);
        let result = match progress {
            Ok(Progress::Waiting) => {
                at += 1;
                continue;
            }
            ended => ended.map(drop),
        };
        let observed = context.close(waiting.swap_remove(at).member, result.is_ok());
        sink.answer(first + place, result.map(|()| &mut frame.outcome), observed);
    }
}
