//! The end of a transaction of several ranks.
//!
//! ```text
//! ranks that wrote   how it commits
//! none, or one       the others' branches end first; then that rank's commit is the commit
//! several            1  every other rank that wrote: PREPARE TRANSACTION 'gid'        a vote, durable
//!                    2  the home: its own writes, a row of weft_decision, COMMIT      the decision, durable
//!                    3  every other rank that wrote: COMMIT PREPARED 'gid'
//!                    4  the row goes, later, once all have acknowledged
//! ```
//!
//! The client hears of the commit after step 3: its next statement, on any rank, sees it. A rank that dies
//! between 1 and 3 finds the prepared transaction when it returns, and asks the home. A home that dies
//! before 2 has no row: the transaction is rolled back. One that dies after 2 tells the ranks when it
//! returns.

use std::sync::atomic::Ordering;

use weft::SqlError;
use weft::sink::TxnStatus;
use weft_types::SqlState;

use crate::error;
use crate::identity;
use crate::message::{Answer, BranchRef, Request};
use crate::post::Call;
use crate::session::RanksSession;
use crate::sinks::Discard;
use crate::step::Step;

const COMMIT: &str = "COMMIT";
const PREPARE: &str = "PREPARE TRANSACTION";
const COMMIT_PREPARED: &str = "commit prepared";

/// The statement by which a branch votes.
pub(crate) fn prepare_statement(gid: &str) -> String {
    format!("prepare transaction '{gid}'")
}

/// The global id in such a statement.
pub(crate) fn gid_of_prepare(sql: &str) -> Option<&str> {
    sql.strip_prefix("prepare transaction '")?.strip_suffix('\'')
}

/// The statement by which a rank is told of a commit.
pub(crate) fn commit_statement(gid: &str) -> String {
    format!("{COMMIT_PREPARED} '{gid}'")
}

/// Whether it is one.
pub(crate) fn is_commit_statement(sql: &str) -> bool {
    sql.starts_with(COMMIT_PREPARED)
}

/// Whether a rank has finished a prepared transaction, or had already.
pub(crate) fn is_finished(answer: &Result<Answer, SqlError>) -> bool {
    match answer {
        Ok(_) => true,
        Err(error) => error.state == SqlState::UNDEFINED_OBJECT,
    }
}

impl RanksSession {
    /// Commits the open transaction on all its ranks.
    pub(crate) fn commit_everywhere(&mut self) -> Result<(), SqlError> {
        let branches = std::mem::take(&mut self.branches);
        self.savepoints.clear();
        let result = self.commit_branches(branches.iter().map(|(rank, branch)| (*rank, *branch)).collect());
        if result.is_err() {
            // Whatever is still open anywhere ends.
            for (rank, branch) in &branches {
                self.tell_branch(*rank, branch.number, "rollback");
            }
            if self.home.has_transaction() {
                let _ = self.home.execute_simple("rollback", &mut Discard);
            }
        }
        self.home.set_lock_wait_max(std::time::Duration::ZERO);
        result
    }

    fn commit_branches(&mut self, branches: Vec<(u32, crate::session::Branch)>) -> Result<(), SqlError> {
        let (writers, readers): (Vec<_>, Vec<_>) = branches.into_iter().partition(|(_, branch)| branch.wrote);
        let home_wrote = self.home.has_writes();
        if writers.len() + usize::from(home_wrote) <= 1 {
            self.in_parallel(&readers, "commit", COMMIT)?;
            return match writers.first() {
                None => self.commit_home(None),
                Some((rank, branch)) => {
                    self.commit_home(None)?;
                    let committed = self.ask_branch(*rank, branch.number, "commit");
                    committed
                        .map(|_| ())
                        .map_err(|error| match error::is_lost(&error) {
                            true => error::unknown_outcome(*rank),
                            false => error,
                        })
                }
            };
        }
        let node = std::sync::Arc::clone(&self.node);
        let number = node.next_transaction.fetch_add(1, Ordering::Relaxed);
        let gid = identity::gid(&node.identity, number);
        let open = node.agent.decisions.open(&gid);
        node.reached(Step::Voting);
        let voted = self.in_parallel(&writers, &prepare_statement(&gid), PREPARE);
        let ranks: Vec<u32> = writers.iter().map(|(rank, _)| *rank).collect();
        if let Err(error) = voted.and_then(|()| self.in_parallel(&readers, "commit", COMMIT)) {
            // Whatever failed elsewhere, and be it a disk: nothing has been decided.
            drop(open);
            self.abort_prepared(&gid, &ranks);
            return Err(error);
        }
        node.reached(Step::Voted);
        let deciding = node.agent.decisions.decide();
        let decided = self.commit_home(Some(&identity::note_decision(&gid, &ranks)));
        if node.config.tells_early && decided.is_ok() {
            node.deliver(&gid, &ranks);
        }
        node.reached(Step::Decided);
        // The decision is on disk before anybody hears of it.
        let durable = decided.and_then(|()| {
            self.home.gate().wait().map_err(|mut error| {
                error.state = SqlState::IO_ERROR;
                error
            })
        });
        match durable {
            Ok(()) => {
                node.reached(Step::Durable);
                drop(open);
                node.deliver(&gid, &ranks);
                node.reached(Step::Told);
                drop(deciding);
                Ok(())
            }
            Err(error) if is_uncertain(&error) => {
                // Only the log knows, that is, the next start of this rank: whoever asks until then is told
                // that the outcome is open.
                std::mem::forget(open);
                Err(error::unknown_outcome(node.identity.rank).detail(error.to_string()))
            }
            Err(error) => {
                drop(open);
                self.abort_prepared(&gid, &ranks);
                Err(error)
            }
        }
    }

    /// Tells ranks that a transaction is aborted, which is what they are also told if they ask.
    fn abort_prepared(&self, gid: &str, ranks: &[u32]) {
        for rank in ranks {
            let sql = format!("rollback prepared '{gid}'");
            self.node
                .post
                .tell(*rank, &Request::Control { branch: None, sql });
        }
    }

    /// Commits the home's part, with a statement before.
    fn commit_home(&mut self, with: Option<&str>) -> Result<(), SqlError> {
        if !self.home.has_transaction() {
            return Ok(());
        }
        let is_explicit = self.home.status() == TxnStatus::InTransaction;
        if let Some(sql) = with {
            // In an implicit transaction the end of the message is the commit.
            self.home.execute_simple(sql, &mut Discard)?;
        }
        match is_explicit {
            true => self.home.execute_simple("commit", &mut Discard),
            false => self.home.sync(),
        }
    }

    /// Runs the same text in several branches at the same time; the first error counts.
    fn in_parallel(
        &self,
        branches: &[(u32, crate::session::Branch)],
        sql: &str,
        verb: &str,
    ) -> Result<(), SqlError> {
        let calls: Vec<Result<Call, SqlError>> = branches
            .iter()
            .map(|(rank, branch)| {
                let branch = BranchRef {
                    number: branch.number,
                    start: None,
                };
                self.node.post.call(
                    *rank,
                    &Request::Control {
                        branch: Some(branch),
                        sql: sql.to_owned(),
                    },
                )
            })
            .collect();
        let mut result = Ok(());
        for call in calls {
            let ended = call
                .and_then(last_answer)
                .and_then(|answer| check_verb(&answer, verb));
            if let (Err(error), Ok(())) = (ended, &result) {
                result = Err(error);
            }
        }
        result
    }
}

/// Whether a commit that failed so may be in the log nevertheless: the system failed, or this program.
fn is_uncertain(error: &SqlError) -> bool {
    matches!(error.state.class(), "58" | "XX") || error.state == SqlState::DISK_FULL
}

/// A transaction that had failed on its rank is rolled back by its end, which is no error there.
fn check_verb(answer: &Answer, expected: &str) -> Result<(), SqlError> {
    match answer {
        Answer::Done { verb, .. } if verb == expected => Ok(()),
        _ => Err(SqlError::new(
            SqlState::IN_FAILED_SQL_TRANSACTION,
            "the transaction had failed on another rank, and is rolled back",
        )),
    }
}

/// Waits for the end of an answer.
pub(crate) fn last_answer(mut call: Call) -> Result<Answer, SqlError> {
    loop {
        match call.next(None)? {
            Answer::Failed(error) => return Err(error),
            answer if answer.is_last() => return Ok(answer),
            _ => {}
        }
    }
}
