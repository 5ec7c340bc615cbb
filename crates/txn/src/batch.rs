//! One batch: session commits and programs, arranged in waves.
//!
//! ```text
//! commits | programs, as they were placed      index 0 .. commits, commits .. members
//!            arrangement: indexes by wave      place in the record, and member number of row ids
//! ```
//!
//! Invariant: places are final once the batch is made. The executor, the record, the answers and the row ids
//! all use places, never indexes.

use crate::executor::Work;
use crate::record;
use crate::request::{Answer, CommitRequest, Committed, ProgramRequest};
use crate::waves::Arrangement;
use weft_store::CatalogOp;

/// The members of one batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// All in wave 0.
    pub commits: Vec<CommitRequest>,
    pub programs: Vec<ProgramRequest>,
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
        }
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
            Member::Commit(commit) => Work::WriteSet(&commit.write_set),
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
                Member::Commit(commit) => {
                    let encode = |op: &CatalogOp| {
                        let mut bytes = Vec::new();
                        op.encode(&mut bytes);
                        bytes
                    };
                    let ops: Vec<Vec<u8>> = commit.catalog_ops.iter().map(encode).collect();
                    record::put_commit(out, begins_wave, &ops, &commit.write_set);
                }
                Member::Program(request) => {
                    record::put_program(out, begins_wave, &request.program.hash(), &request.inputs);
                }
            }
        }
    }

    /// Gives each member its answer, by place.
    pub(crate) fn answer(&self, answers: Vec<Answer<Committed>>) {
        for (member, answer) in self.members().zip(answers) {
            match member {
                Member::Commit(commit) => commit.ticket.fill(answer),
                Member::Program(request) => request.ticket.fill(answer),
            }
        }
    }
}
