//! One batch: session commits and programs, arranged in waves; beside them, transactions that are prepared
//! and prepared ones that are rolled back, which have no place since they change no row.
//!
//! ```text
//! commits | programs, as they were placed      index 0 .. commits, commits .. members
//!            arrangement: indexes by wave      place in the record, and member number of row ids
//! ```
//!
//! Invariant: places are final once the batch is made. The executor, the record, the answers and the row ids
//! all use places, never indexes.

use crate::executor::Work;
use crate::prepared::{DecidedRequest, PreparedTxn};
use crate::record;
use crate::request::{Answer, CommitRequest, CommitWork, Committed, PrepareRequest, ProgramRequest};
use crate::waves::Arrangement;
use weft_base::BatchId;

/// The members of one batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// All in wave 0.
    pub commits: Vec<CommitRequest>,
    pub programs: Vec<ProgramRequest>,
    /// Transactions that this batch prepares.
    pub prepared: Vec<PrepareRequest>,
    /// Prepared transactions that end without effect or are defined again.
    pub decided: Vec<DecidedRequest>,
    arrangement: Arrangement,
}

/// A member of either kind.
enum Member<'b> {
    Commit(&'b CommitRequest),
    Program(&'b ProgramRequest),
}

impl Batch {
    /// Arranges commits, and programs with the wave of each.
    pub(crate) fn new(commits: Vec<CommitRequest>, programs: Vec<ProgramRequest>, waves: &[u32]) -> Batch {
        let mut arrangement = Arrangement::default();
        let first = std::iter::repeat_n(0, commits.len());
        arrangement.arrange(first.chain(waves.iter().copied()));
        Batch {
            commits,
            programs,
            arrangement,
            ..Batch::default()
        }
    }

    /// The same with members, besides what has no place.
    pub(crate) fn with_members(
        self,
        commits: Vec<CommitRequest>,
        programs: Vec<ProgramRequest>,
        waves: &[u32],
    ) -> Batch {
        Batch {
            prepared: self.prepared,
            decided: self.decided,
            ..Batch::new(commits, programs, waves)
        }
    }

    /// Definitions of prepared transactions for the record: of new ones, and of those that it needs and the
    /// log does not define yet.
    pub(crate) fn prepared_definitions(&self, is_defined: impl Fn(&PreparedTxn) -> bool) -> Vec<Vec<u8>> {
        let committed = self.commits.iter().filter_map(|commit| match &commit.work {
            CommitWork::Prepared(txn) => Some(txn),
            CommitWork::Session(_) => None,
        });
        let again = self.decided.iter().filter(|request| !request.ends);
        let known = committed.chain(again.map(|request| &request.txn));
        let new = self.prepared.iter().map(|request| &request.txn);
        let all = new.chain(known.filter(|txn| !is_defined(txn)));
        all.map(|txn| txn.record().encode()).collect()
    }

    /// Names of prepared transactions that end without effect.
    pub(crate) fn rolled_back(&self) -> impl Iterator<Item = &str> {
        let ended = self.decided.iter().filter(|request| request.ends);
        ended.map(|request| request.txn.name.as_ref())
    }

    /// Whether there is nothing to log.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && self.prepared.is_empty() && self.decided.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.commits.len() + self.programs.len()
    }

    /// Where each wave ends, in places.
    pub(crate) fn wave_ends(&self) -> &[usize] {
        self.arrangement.ends()
    }

    fn member(&self, index: usize) -> Option<Member<'_>> {
        match self.commits.get(index) {
            Some(commit) => Some(Member::Commit(commit)),
            None => self.programs.get(index - self.commits.len()).map(Member::Program),
        }
    }

    /// Members by place.
    fn members(&self) -> impl Iterator<Item = Member<'_>> {
        self.arrangement
            .order()
            .iter()
            .filter_map(|index| self.member(*index))
    }

    /// What the members do, by place.
    pub(crate) fn works(&self) -> Vec<Work<'_>> {
        let works = self.members().map(|member| match member {
            Member::Commit(commit) => Work::WriteSet(&commit.writes().write_set),
            Member::Program(request) => Work::Program {
                program: &request.program,
                inputs: &request.inputs,
                keys: Some(&request.keys),
            },
        });
        let mut all = Vec::with_capacity(self.len());
        all.extend(works);
        all
    }

    /// Writes the members into a record.
    pub(crate) fn put_members(&self, out: &mut Vec<u8>) {
        let mut ends = self.wave_ends().iter().peekable();
        for (place, member) in self.members().enumerate() {
            let begins_wave = ends.next_if_eq(&&place).is_some();
            match member {
                Member::Commit(commit) => match &commit.work {
                    CommitWork::Session(writes) => {
                        record::put_commit(out, begins_wave, &writes.encoded_ops(), &writes.write_set);
                    }
                    CommitWork::Prepared(txn) => record::put_commit_prepared(out, begins_wave, &txn.name),
                },
                Member::Program(request) => {
                    record::put_program(out, begins_wave, &request.program.hash(), &request.inputs);
                }
            }
        }
    }

    /// Gives each member its answer, by place, and everybody else the batch's number.
    pub(crate) fn answer(&self, batch: BatchId, answers: Vec<Answer<Committed>>) {
        let done = || {
            Ok(Committed {
                batch,
                observed: batch,
                ..Committed::default()
            })
        };
        self.prepared
            .iter()
            .for_each(|request| request.ticket.fill(done()));
        self.decided
            .iter()
            .for_each(|request| request.ticket.fill(done()));
        for (member, answer) in self.members().zip(answers) {
            match member {
                Member::Commit(commit) => commit.ticket.fill(answer),
                Member::Program(request) => request.ticket.fill(answer),
            }
        }
    }
}
