//! Sequence values, handed out from logged blocks.
//!
//! A value must never come twice, not even after a crash, but gaps are allowed. So a block of values is
//! reserved by one catalog operation, and its values are then handed out from memory. Values of a sequence
//! that an open transaction made itself advance inside that transaction (see `Session::next_value`).

use hashbrown::HashMap;
use parking_lot::Mutex;
use weft_base::BatchId;
use weft_store::{CatalogOp, SequenceDef, SequenceId, SequenceState};
use weft_txn::{Engine, TxnOptions};
use weft_types::{SqlError, SqlState};

/// Values reserved at once; what a crash may skip. PostgreSQL logs 32 ahead too.
const BLOCK_VALUES: i64 = 32;

#[derive(Debug, Clone, Copy)]
struct Block {
    state: SequenceState,
    left: i64,
    reserved_in: BatchId,
}

/// A value, and the batch that must be durable before the value may be sent to anybody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn {
    pub value: i64,
    pub reserved_in: BatchId,
}

/// The blocks of all sequences of a database.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    blocks: Mutex<HashMap<SequenceId, Block>>,
}

/// The error of a sequence that has no further value.
pub(crate) fn exhausted(def: &SequenceDef) -> SqlError {
    let (end, limit) = if def.increment > 0 {
        ("maximum", def.max_value)
    } else {
        ("minimum", def.min_value)
    };
    SqlError::new(
        SqlState("2200H"),
        format!(
            "nextval: reached {end} value of sequence \"{}\" ({limit})",
            def.name
        ),
    )
}

impl Sequences {
    /// The next value. Reserving a block takes a place in a batch; a statement may use the value at once,
    /// since its writes come later in the log.
    pub(crate) fn next(&self, engine: &Engine, def: &SequenceDef) -> Result<Drawn, SqlError> {
        let mut blocks = self.blocks.lock();
        let block = match blocks.get_mut(&def.id) {
            Some(block) if block.left > 0 => block,
            _ => {
                let block = reserve(engine, def)?;
                blocks.entry(def.id).insert(block).into_mut()
            }
        };
        let value = block.state.next(def).ok_or_else(|| exhausted(def))?;
        block.state = SequenceState {
            last_value: value,
            is_called: true,
        };
        block.left -= 1;
        Ok(Drawn {
            value,
            reserved_in: block.reserved_in,
        })
    }

    /// The last value that was handed out of a reserved block; `None` without one.
    pub(crate) fn state(&self, id: SequenceId) -> Option<SequenceState> {
        self.blocks.lock().get(&id).map(|block| block.state)
    }

    /// Runs the commit of a transaction that set or dropped these sequences and forgets the rest of their
    /// blocks. No block is reserved in the meantime: one that began before the commit would end after it and
    /// overwrite its position.
    pub(crate) fn forget_with<T>(&self, ids: &[SequenceId], commit: impl FnOnce() -> T) -> T {
        if ids.is_empty() {
            return commit();
        }
        let mut blocks = self.blocks.lock();
        for id in ids {
            blocks.remove(id);
        }
        commit()
    }
}

/// Reserves the values after the logged position: up to a block's worth, fewer near the sequence's end.
fn reserve(engine: &Engine, def: &SequenceDef) -> Result<Block, SqlError> {
    let state = engine.catalog().sequence_state(def.id).ok_or_else(|| {
        SqlError::new(
            SqlState::UNDEFINED_TABLE,
            format!("relation \"{}\" does not exist", def.name),
        )
    })?;
    let mut last = state;
    let mut left = 0;
    while left < BLOCK_VALUES {
        match last.next(def) {
            Some(value) => {
                last = SequenceState {
                    last_value: value,
                    is_called: true,
                }
            }
            None if left == 0 => return Err(exhausted(def)),
            None => break,
        }
        left += 1;
    }
    let mut txn = engine.begin(TxnOptions::default());
    txn.catalog_op(CatalogOp::AdvanceSequence {
        id: def.id,
        to: last.last_value,
    })?;
    let committed = txn.commit().map_err(|refused| refused.error)?;
    Ok(Block {
        state,
        left,
        reserved_in: committed.observed,
    })
}
