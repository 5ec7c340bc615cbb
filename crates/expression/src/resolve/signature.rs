//! The types of a call once its candidate is chosen: polymorphic arguments agree on one element type.

use weft_types::{SqlError, SqlState, SqlType};

use super::common::agree;
use super::select::Shape;
use crate::category::{BPCHAR, array_of, element_of, is_implicit, same_type};
use crate::table::{Arg, Returns};

/// The element types of polymorphic arguments, in order.
fn element_types(shape: &Shape, types: &[Option<SqlType>]) -> Vec<Option<SqlType>> {
    let mut elements = Vec::new();
    for (place, ty) in types.iter().enumerate() {
        match shape.at(place) {
            Some(Arg::AnyElement | Arg::AnyCompatible) => elements.push(*ty),
            Some(Arg::AnyArray | Arg::AnyCompatibleArray) => elements.push(ty.as_ref().and_then(element_of)),
            _ => {}
        }
    }
    elements
}

/// Whether the polymorphic arguments must be of one type to begin with.
fn is_strict(shape: &Shape) -> bool {
    shape.arguments.contains(&Arg::AnyElement) || shape.arguments.contains(&Arg::AnyArray)
}

/// The type that all polymorphic arguments agree on: text if all are unknown.
fn agreed(shape: &Shape, elements: &[Option<SqlType>]) -> Option<SqlType> {
    let mut known = elements.iter().flatten();
    if is_strict(shape)
        && let Some(first) = known.next()
        && !known.all(|ty| same_type(ty, first))
    {
        return None;
    }
    let common = agree(elements).ok()?;
    let converts = |ty: &SqlType| is_implicit(ty, &common);
    elements.iter().flatten().all(converts).then_some(common)
}

/// Whether there is one type for all polymorphic arguments.
pub(super) fn is_consistent(shape: &Shape, types: &[Option<SqlType>]) -> bool {
    let elements = element_types(shape, types);
    elements.is_empty() || agreed(shape, &elements).is_some()
}

/// The type that all polymorphic arguments agree on; `None` if there are none, text if all are unknown and
/// the shape does not require a known one.
pub(super) fn element_type(shape: &Shape, types: &[Option<SqlType>]) -> Result<Option<SqlType>, SqlError> {
    let elements = element_types(shape, types);
    if elements.is_empty() {
        return Ok(None);
    }
    if is_strict(shape) && elements.iter().all(Option::is_none) {
        return Err(SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            "could not determine polymorphic type because input has type unknown",
        ));
    }
    Ok(agreed(shape, &elements))
}

/// The type to which each argument is converted.
pub(super) fn types_of_call(shape: &Shape, types: &[Option<SqlType>]) -> Result<Vec<SqlType>, SqlError> {
    let element = element_type(shape, types)?;
    let mut arguments = Vec::with_capacity(types.len());
    for (place, ty) in types.iter().enumerate() {
        let own = match shape.at(place) {
            // A char(n) keeps its type.
            Some(Arg::Is(SqlType::Char(_))) => match ty {
                Some(own @ SqlType::Char(_)) => *own,
                _ => BPCHAR,
            },
            Some(Arg::Is(own)) => *own,
            Some(Arg::AnyElement | Arg::AnyCompatible) => element.unwrap_or(SqlType::Text),
            Some(Arg::AnyArray | Arg::AnyCompatibleArray) => {
                let element = element.unwrap_or(SqlType::Text);
                array_of(&element).ok_or_else(|| no_array(&element))?
            }
            Some(Arg::Any | Arg::AnyNonArray) | None => ty.unwrap_or(SqlType::Text),
        };
        arguments.push(own);
    }
    Ok(arguments)
}

/// The type of the result.
pub(super) fn result_type(
    shape: &Shape,
    returns: Returns,
    arguments: &[SqlType],
    types: &[Option<SqlType>],
) -> Result<SqlType, SqlError> {
    let element = || Ok::<_, SqlError>(element_type(shape, types)?.unwrap_or(SqlType::Text));
    match returns {
        // As long as the argument from which it is made.
        Returns::Is(SqlType::Char(_)) => {
            let long = arguments.iter().find(|ty| matches!(ty, SqlType::Char(_)));
            Ok(long.copied().unwrap_or(SqlType::Text))
        }
        Returns::Is(ty) => Ok(ty),
        Returns::Element => element(),
        Returns::Array => {
            let element = element()?;
            array_of(&element).ok_or_else(|| no_array(&element))
        }
    }
}

fn no_array(element: &SqlType) -> SqlError {
    if matches!(element, SqlType::Array(_)) {
        return SqlError::unsupported("an array that is made of arrays is not supported here");
    }
    SqlError::new(
        SqlState::UNDEFINED_OBJECT,
        format!("could not find array type for data type {}", element.base_name()),
    )
}
