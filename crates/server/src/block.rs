//! A transaction that arrives whole: BEGIN, point statements, COMMIT in one pipeline.
//!
//! If the read buffer holds a pipeline up to its Sync, the Executes from BEGIN on are not run at once. They
//! are kept, together with the offset in the reply buffer at which their results belong, while Parse, Bind
//! and Describe are answered. At COMMIT all of them run as one program and the results are inserted at their
//! offsets. If something does not fit (another kind of statement, a row limit, an error, the end of the
//! pipeline without COMMIT), the kept Executes first run one by one. A client sees the same messages either
//! way.
//!
//! Invariant: nothing is flushed while Executes are kept, so the offsets stay valid.

use weft_types::SqlError;

use crate::backend::{BackendSession, BlockRole, CommandTag, PipelinePosition, Ran, TxnStatus};
use crate::connection::Connection;
use crate::extended;
use crate::portal::{Portal, PortalState};
use crate::reply;
use crate::transport::Failure;

/// Most statements of one block; longer pipelines run statement by statement.
const STEPS_MAX: usize = 256;

/// A portal and its name.
type Named<P> = (String, Portal<P>);

/// An Execute that has not run yet.
struct Step<P> {
    /// The offset of its results in the reply buffer.
    at: usize,
    name: String,
    portal: Portal<P>,
}

/// The Executes that have not run yet, BEGIN first.
pub struct Block<P> {
    steps: Vec<Step<P>>,
}

/// Keeps an Execute that belongs to a block, or returns it to be run now.
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

/// Runs the kept Executes one by one. Without any it does nothing.
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
    /// Each is run when its result is inserted.
    OneByOne,
    /// The first statement after BEGIN failed with this error.
    Ended(SqlError),
}

/// Inserts each step's results at its offset. After an error, the answers that follow it are removed:
/// PostgreSQL skips these messages.
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
                    .execute(prepared, params, PipelinePosition::Pipelined, sink)
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
        // The unnamed portal may have been replaced by now.
        if !name.is_empty() {
            connection.names.put_back(name, portal);
        }
    }
    let rest = replies.get(copied..).unwrap_or_default();
    connection.replies.out.extend_from_slice(rest);
    Ok(())
}
