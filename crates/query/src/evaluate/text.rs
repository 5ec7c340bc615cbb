//! Vectorised text functions: `lower`, `upper` and LIKE with one pattern for all rows.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Scalar, StringArray};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::kernels::comparison::{like, nlike};
use datafusion::arrow::datatypes::DataType;
use weft_expression::{Kind, Node, Op};
use weft_types::SqlError;

use super::machine::{Operand, arrow_error};

/// A function that can be computed over whole columns of text, if the arguments allow it.
pub(super) enum TextWork {
    /// Collation C: only ASCII letters change, so that lengths are kept.
    Lower,
    Upper,
    Like {
        negated: bool,
    },
}

impl TextWork {
    pub(super) fn choose(node: &Node, arguments: &[(weft_types::SqlType, DataType)]) -> Option<TextWork> {
        let Op::Call(entry) = &node.op else { return None };
        if arguments
            .iter()
            .any(|(ty, data_type)| !ty.is_text() || *data_type != DataType::Utf8)
        {
            return None;
        }
        // Trailing blanks of char(n) are not stored, but LIKE sees them.
        if arguments
            .iter()
            .any(|(ty, _)| matches!(ty, weft_types::SqlType::Char(_)))
        {
            return None;
        }
        match (entry.kind, entry.name, arguments.len()) {
            (Kind::Function, "lower", 1) => Some(TextWork::Lower),
            (Kind::Function, "upper", 1) => Some(TextWork::Upper),
            (Kind::Infix, "~~", 2) => Some(TextWork::Like { negated: false }),
            (Kind::Infix, "!~~", 2) => Some(TextWork::Like { negated: true }),
            _ => None,
        }
    }

    /// `None` if these arguments need the fallback.
    pub(super) fn compute(&self, arguments: &[Operand]) -> Result<Option<ArrayRef>, SqlError> {
        match (self, arguments) {
            (TextWork::Lower, [Operand::Many(array)]) => {
                mapped(array, <[u8]>::make_ascii_lowercase).map(Some)
            }
            (TextWork::Upper, [Operand::Many(array)]) => {
                mapped(array, <[u8]>::make_ascii_uppercase).map(Some)
            }
            (TextWork::Like { negated }, [Operand::Many(texts), Operand::One(pattern)]) => {
                let plain = pattern.as_string::<i32>();
                // Arrow supports backslashes, but does not raise the error for one at the end.
                if plain.is_null(0) || plain.value(0).contains('\\') {
                    return Ok(None);
                }
                let pattern = Scalar::new(Arc::clone(pattern));
                let result = if *negated {
                    nlike(texts, &pattern)
                } else {
                    like(texts, &pattern)
                };
                Ok(Some(Arc::new(result.map_err(arrow_error)?)))
            }
            _ => Ok(None),
        }
    }
}

/// Maps bytes in place; offsets and NULLs are kept.
fn mapped(array: &ArrayRef, map: fn(&mut [u8])) -> Result<ArrayRef, SqlError> {
    let texts = array.as_string::<i32>();
    let mut bytes = texts.value_data().to_vec();
    map(&mut bytes);
    let mapped = StringArray::try_new(
        texts.offsets().clone(),
        Buffer::from_vec(bytes),
        texts.nulls().cloned(),
    );
    Ok(Arc::new(mapped.map_err(arrow_error)?))
}
