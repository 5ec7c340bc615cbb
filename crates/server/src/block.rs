//! A transaction that arrives whole: BEGIN, point statements, COMMIT in one pipeline.
//!
//! Where the read buffer holds a pipeline up to its Sync, Executes from BEGIN on are not run at once but
//! kept, with the place in the reply buffer where their results belong; what Parse, Bind and Describe answer
//! goes on in between. At COMMIT all of it runs as one program, and the results go to their places. Whatever
//! does not fit (another kind of statement, a row limit, an error, the pipeline's end without COMMIT) makes
//! the kept ones run one by one first, so that a client sees the same messages either way.
//!
//! Invariant: while Executes are kept nothing is flushed, so the places stay what they are.

use weft_types::SqlError;

use crate::backend::{BackendSession, BlockRole, CommandTag, Ran, Scope, TxnStatus};
use crate::connection::Connection;
use crate::extended;
use crate::portal::{Portal, PortalState};
use crate::reply;
use crate::transport::Failure;

/// Most statements of one block; longer pipelines run statement by statement.
const STEPS_MAX: usize = 256;

/// A portal and its name.
type Named<P> = (String, Portal<P>);

/// One Execute that waits.
struct Step<P> {
    /// Where its results belong in the reply buffer.
    at: usize,
    name: String,
    portal: Portal<P>,
}

/// The Executes that wait, BEGIN first.
pub struct Block<P> {
    steps: Vec<Step<P>>,
}

/// Keeps an Execute that belongs to a block, or gives it back to be run now.
pub fn take<S: BackendSession>(
    connection: &mut Connection<S>,
    name: String,
    portal: Portal<S::Prepared>,
    row_limit: u64,
) -> Result<Option<Named<S::Prepared>>, Failure> {
    let role = match portal.state {
        PortalState::Ready if row_limit == 0 => connection.session.block_role(&portal.statement.prepared),
        _ => BlockRole::Outside,
    };
    match (&connection.block, role) {
        (None, BlockRole::Opens) if connection.executions == 0 && connection.reader.holds_pipeline() => {
            connection.block = Some(Block { steps: Vec::new() });
        }
        (None, _) => return Ok(Some((name, portal))),
        (Some(block), BlockRole::Inside) if block.steps.len() < STEPS_MAX => {}
        (Some(_), BlockRole::Closes) => {}
        (Some(_), _) => {
            resolve(connection)?;
            return Ok(Some((name, portal)));
        }
    }
    connection.executions += 1;
    let at = connection.replies.out.len();
    if let Some(block) = &mut connection.block {
        block.steps.push(Step { at, name, portal });
    }
    if role == BlockRole::Closes {
        finish(connection)?;
    }
    Ok(None)
}

/// COMMIT has come: runs the block as one program if it is one.
fn finish<S: BackendSession>(connection: &mut Connection<S>) -> Result<(), Failure> {
    let Some(block) = connection.block.take() else {
        return Ok(());
    };
    let inner = block.steps.len().saturating_sub(1);
    let steps: Vec<_> = block
        .steps
        .get(1..inner)
        .unwrap_or_default()
        .iter()
        .map(|step| (&step.portal.statement.prepared, step.portal.params.as_slice()))
        .collect();
    let ran = match connection.session.run_block(&steps) {
        Ok(true) => Run::AsOne,
        Ok(false) => Run::OneByOne,
        Err(error) => Run::Ended(error),
    };
    answer(connection, block, ran)?;
    if connection.session.status() == TxnStatus::Idle {
        connection.names.clear_portals();
    }
    Ok(())
}

/// Runs the Executes that wait, one by one; none is no error.
pub fn resolve<S: BackendSession>(connection: &mut Connection<S>) -> Result<(), Failure> {
    match connection.block.take() {
        Some(block) => answer(connection, block, Run::OneByOne),
        None => Ok(()),
    }
}

/// How the steps of a block run.
enum Run {
    /// They have run as one program.
    AsOne,
    /// Each is run when it is answered.
    OneByOne,
    /// The first one behind BEGIN has this error.
    Ended(SqlError),
}

/// Puts each step's results into their place. After an error what was answered behind it is taken back: the
/// client's messages there are skipped.
fn answer<S: BackendSession>(
    connection: &mut Connection<S>,
    block: Block<S::Prepared>,
    ran: Run,
) -> Result<(), Failure> {
    let replies = connection.replies.out.split();
    let last = block.steps.len().saturating_sub(1);
    let mut copied = 0;
    for (number, step) in block.steps.into_iter().enumerate() {
        let Step { at, name, mut portal } = step;
        let before = replies.get(copied..at).unwrap_or_default();
        connection.replies.out.extend_from_slice(before);
        copied = at;
        if matches!(ran, Run::OneByOne) {
            extended::run(connection, &mut portal, 0, |session, prepared, params, sink| {
                session
                    .execute(prepared, params, Scope::Pipelined, sink)
                    .map(|()| Ran::ToEnd)
            })?;
        } else if number == 0 || number == last {
            let tag = if number == 0 { "BEGIN" } else { "COMMIT" };
            portal.state = PortalState::Done;
            reply::command_complete(&mut connection.replies.out, &CommandTag::plain(tag));
        } else if let Run::Ended(error) = ran {
            return Err(error.into());
        } else {
            extended::run(connection, &mut portal, 0, |session, _, _, sink| {
                session.push_block(number - 1, sink).map(|()| Ran::ToEnd)
            })?;
        }
        // The unnamed portal may be another one by now.
        if !name.is_empty() {
            connection.names.put_back(name, portal);
        }
    }
    let rest = replies.get(copied..).unwrap_or_default();
    connection.replies.out.extend_from_slice(rest);
    Ok(())
}
