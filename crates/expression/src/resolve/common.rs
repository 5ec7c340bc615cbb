//! A common type for several expressions: UNION, CASE, VALUES, ARRAY (PostgreSQL's `select_common_type`).

use weft_types::{SqlError, SqlState, SqlType};

use super::type_name;
use crate::category::{category, is_implicit, same_type};

/// The type that all are converted to: text if none is known. It keeps a modifier only if all have it.
/// `what` names the construct in messages: "CASE", "UNION", "VALUES". For CASE, the type of ELSE comes
/// first.
///
/// # Errors
/// 42804 if their categories differ.
pub fn common_type(what: &str, types: &[Option<SqlType>]) -> Result<SqlType, SqlError> {
    agree(types).map_err(|(one, other)| {
        SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "{what} types {} and {} cannot be matched",
                type_name(Some(&one)),
                type_name(Some(&other))
            ),
        )
    })
}

/// The same, if all the others convert to that type implicitly.
#[must_use]
pub fn verified_common_type(types: &[Option<SqlType>]) -> Option<SqlType> {
    let common = agree(types).ok()?;
    let becomes = |ty: &SqlType| same_type(ty, &common) || is_implicit(ty, &common);
    types.iter().flatten().all(becomes).then_some(common)
}

/// The same, or the first two types that conflict.
pub(super) fn agree(types: &[Option<SqlType>]) -> Result<SqlType, (SqlType, SqlType)> {
    let mut known = types.iter().filter_map(|ty| *ty);
    let Some(mut chosen) = known.next() else {
        return Ok(SqlType::Text);
    };
    for ty in known {
        if same_type(&ty, &chosen) {
            continue;
        }
        let ((own, preferred), (other, _)) = (category(&chosen), category(&ty));
        if own != other {
            return Err((chosen, ty));
        }
        if !preferred && is_implicit(&chosen, &ty) && !is_implicit(&ty, &chosen) {
            chosen = ty;
        }
    }
    Ok(with_modifier(chosen, types))
}

/// Keeps the modifier if all types are identical.
fn with_modifier(chosen: SqlType, types: &[Option<SqlType>]) -> SqlType {
    if types.iter().all(|ty| *ty == Some(chosen)) {
        return chosen;
    }
    chosen.without_typmod()
}
