//! Operations on arrays.

use std::cmp::Ordering;

use weft_types::{ArrayValue, SqlError, SqlState, SqlType, Value, ValueRef, compare_ref};

use super::apply::{and, mismatch, or, truth};
use crate::category::element_of;
use crate::tree::CompareOp;

/// `value op ANY (array)` or ALL.
pub(super) fn compare(op: CompareOp, all: bool, arguments: &[ValueRef<'_>]) -> Result<Value, SqlError> {
    let [value, array] = arguments else {
        return Err(mismatch());
    };
    let ValueRef::Array(array) = array else {
        return if array.is_null() {
            Ok(Value::Null)
        } else {
            Err(mismatch())
        };
    };
    if array.items.is_empty() {
        return Ok(Value::Bool(all));
    }
    if value.is_null() {
        return Ok(Value::Null);
    }
    let mut result = Some(all);
    for item in &array.items {
        let holds = compare_ref(value, &item.as_ref()).map(|order| op.holds(order));
        result = if all {
            and(result, holds)
        } else {
            or(result, holds)
        };
        if result == Some(!all) {
            break;
        }
    }
    Ok(truth(result))
}

fn dimension_mismatch() -> SqlError {
    SqlError::new(
        SqlState::ARRAY_SUBSCRIPT_ERROR,
        "multidimensional arrays must have array expressions with matching dimensions",
    )
}

/// `ARRAY[...]`: of items, or of arrays that all have the same dimensions.
pub(super) fn build(arguments: &[ValueRef<'_>], ty: &SqlType) -> Result<Value, SqlError> {
    let element = element_of(ty).ok_or_else(mismatch)?;
    let Some(ValueRef::Array(first)) = arguments.iter().find(|value| !value.is_null()) else {
        let items = arguments.iter().map(ValueRef::to_value).collect();
        return Ok(Value::Array(Box::new(ArrayValue::of_items(element, items))));
    };
    let mut items = Vec::new();
    for argument in arguments {
        match argument {
            ValueRef::Array(array) if array.dimensions == first.dimensions => {
                items.extend(array.items.iter().cloned());
            }
            _ => return Err(dimension_mismatch()),
        }
    }
    if items.is_empty() {
        return Ok(Value::Array(Box::new(ArrayValue::of_items(element, items))));
    }
    let length = i32::try_from(arguments.len()).map_err(|_| dimension_mismatch())?;
    let mut dimensions = vec![(length, 1)];
    dimensions.extend(first.dimensions.iter().copied());
    if dimensions.len() > weft_types::array::DIMENSIONS_MAX {
        let message = format!(
            "number of array dimensions ({}) exceeds the maximum allowed ({})",
            dimensions.len(),
            weft_types::array::DIMENSIONS_MAX
        );
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    Ok(Value::Array(Box::new(ArrayValue {
        element: element.without_typmod(),
        dimensions,
        items,
    })))
}

/// `array[i][j]`: NULL where there is no item.
pub(super) fn subscript(arguments: &[ValueRef<'_>]) -> Result<Value, SqlError> {
    let Some((array, subscripts)) = arguments.split_first() else {
        return Err(mismatch());
    };
    let ValueRef::Array(array) = array else {
        return if array.is_null() {
            Ok(Value::Null)
        } else {
            Err(mismatch())
        };
    };
    if subscripts.len() != array.dimensions.len() {
        return Ok(Value::Null);
    }
    let mut place = 0_i64;
    for ((length, lower), subscript) in array.dimensions.iter().zip(subscripts) {
        let ValueRef::Int4(subscript) = subscript else {
            return Ok(Value::Null);
        };
        let offset = i64::from(*subscript) - i64::from(*lower);
        if !(0..i64::from(*length)).contains(&offset) {
            return Ok(Value::Null);
        }
        place = place * i64::from(*length) + offset;
    }
    let item = usize::try_from(place)
        .ok()
        .and_then(|place| array.items.get(place));
    Ok(item.cloned().unwrap_or(Value::Null))
}

/// Whether two items are not distinct.
pub(crate) fn same_item(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        _ => compare_ref(&a.as_ref(), &b.as_ref()) == Some(Ordering::Equal),
    }
}
