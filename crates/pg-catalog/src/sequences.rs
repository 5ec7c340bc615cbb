//! `nextval(regclass)` and the like: a sequence given by its oid. The session identifies sequences
//! by name.

use weft_expression::{Arg, Context, Entry, Volatility};
use weft_store::{Catalog, SequenceId, SequenceState};
use weft_types::{SqlError, SqlState, SqlType, Value, ValueRef};

use crate::functions::strict;
use crate::look_up::{quote_ident, relation_name};
use crate::{SessionView, flag, int8, oid};

const REGCLASS: Arg = Arg::Is(SqlType::Regclass);
const INT8: Arg = Arg::Is(SqlType::Int8);
const BOOL: Arg = Arg::Is(SqlType::Bool);

/// The functions.
pub(crate) static ENTRIES: &[Entry] = &[
    volatile("nextval", &[REGCLASS], |context, arguments| {
        Ok(int8(context.session.next_value(&sequence(context, arguments)?)?))
    }),
    volatile("currval", &[REGCLASS], |context, arguments| {
        Ok(int8(
            context.session.current_value(&sequence(context, arguments)?)?,
        ))
    }),
    volatile("setval", &[REGCLASS, INT8], set_value),
    volatile("setval", &[REGCLASS, INT8, BOOL], set_value),
];

const fn volatile(
    name: &'static str,
    arguments: &'static [Arg],
    compute: crate::functions::Compute,
) -> Entry {
    Entry {
        volatility: Volatility::Volatile,
        ..strict(name, arguments, SqlType::Int8, compute)
    }
}

/// How far a sequence has come.
pub(crate) fn state(
    catalog: &Catalog,
    session: &dyn weft_expression::Session,
    id: SequenceId,
) -> Option<SequenceState> {
    let ahead = SessionView::of(session).and_then(|view| (view.sequence_state)(id));
    ahead.or_else(|| catalog.sequence_state(id))
}

/// The row of a sequence read as a relation, and `tableoid`.
pub(crate) fn row(
    name: &str,
    catalog: &Catalog,
    session: &dyn weft_expression::Session,
) -> Option<Vec<Value>> {
    let id = catalog.sequence(name)?.id;
    let state = state(catalog, session, id)?;
    // Nothing is logged ahead of what is shown.
    Some(vec![
        int8(state.last_value),
        int8(0),
        flag(state.is_called),
        oid(id.0),
    ])
}

fn set_value(context: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<Value, SqlError> {
    let Some(ValueRef::Int8(value)) = arguments.get(1) else {
        return Err(SqlError::internal("setval without a value"));
    };
    let called = !matches!(arguments.get(2), Some(ValueRef::Bool(false)));
    let sequence = sequence(context, arguments)?;
    Ok(int8(context.session.set_value(&sequence, *value, called)?))
}

/// The name of the sequence whose oid is the first argument.
fn sequence(context: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<String, SqlError> {
    let catalog = SessionView::catalog_of(context)?;
    let Some(ValueRef::Oid(oid)) = arguments.first() else {
        return Err(SqlError::internal("a function of sequences without a sequence"));
    };
    if let Some(sequence) = catalog.sequence_by_id(SequenceId(*oid)) {
        return Ok(quote_ident(&sequence.name));
    }
    Err(match relation_name(catalog, *oid) {
        Some(name) => SqlError::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("\"{name}\" is not a sequence"),
        ),
        None => SqlError::new(
            SqlState::UNDEFINED_TABLE,
            format!("could not open relation with OID {oid}"),
        ),
    })
}
