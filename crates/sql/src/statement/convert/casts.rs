//! Conversions.

use weft_expression::is_relabel;
use weft_program::fits_without_check;
use weft_types::{SqlType, TimeZone, Value, assign_from, cast_from, parse_text_in};

use super::super::bind::{BindResult, Refusal};
use super::super::compile::values::needs_zone;
use super::super::scalar::Scalar;
use super::Conversion;

/// The types between which programs can convert.
fn is_converted(ty: &SqlType) -> bool {
    matches!(
        ty,
        SqlType::Bool
            | SqlType::Int2
            | SqlType::Int4
            | SqlType::Int8
            | SqlType::Float4
            | SqlType::Float8
            | SqlType::Numeric(_)
            | SqlType::Text
            | SqlType::Varchar(_)
            | SqlType::Char(1..)
            | SqlType::Bytea
            | SqlType::Date
            | SqlType::Timestamp
            | SqlType::TimestampTz
            | SqlType::Uuid
    )
}

impl Conversion<'_> {
    /// Converts a value from one type to another; `explicit` as in CAST, otherwise as on assignment.
    pub(super) fn cast(
        &self,
        inner: Scalar,
        from: &SqlType,
        to: &SqlType,
        explicit: bool,
    ) -> BindResult<Scalar> {
        let is_char = matches!(to, SqlType::Char(_));
        // Programs distinguish char(n) and text.
        let relabels = is_relabel(from, to) && is_char == matches!(from, SqlType::Char(_));
        if relabels || (!explicit && !is_char && fits_without_check(from, to)) {
            return Ok(inner);
        }
        if !is_converted(from) || !is_converted(to) {
            return match (&inner, to) {
                // Read once, here: programs do not read texts of json.
                (Scalar::Constant(value), SqlType::Json | SqlType::Jsonb) if from.is_text() => {
                    let value = cast_from(value.clone(), from, to).map_err(|_| Refusal::General)?;
                    Ok(Scalar::Constant(value))
                }
                _ => Err(Refusal::General),
            };
        }
        if let (SqlType::TimestampTz, Scalar::Constant(Value::Text(text))) = (to, &inner) {
            return Ok(Scalar::Constant(parse_text_in(text, to, &self.zone)?));
        }
        if self.zone != TimeZone::UTC && needs_zone(from, to) {
            return Err(Refusal::General);
        }
        // Without a length to check, an assignment is the same as a cast.
        let explicit = explicit || (to.typmod() == -1 && !is_char);
        if let Scalar::Constant(value) = &inner {
            let value = value.clone();
            let converted = match explicit {
                true => cast_from(value, from, to),
                false => assign_from(value, from, to),
            };
            match converted {
                Ok(value) => return Ok(Scalar::Constant(value)),
                // PostgreSQL reads a text when it is evaluated; a program would before searching for the
                // row.
                Err(_) if from.is_text() && self.scope.variables.is_none() => return Err(Refusal::General),
                // The conversion fails where it is executed.
                Err(_) => {}
            }
        }
        let inner = Box::new(inner);
        Ok(match explicit {
            true => Scalar::Cast(inner, *from, *to),
            false => Scalar::Assign(inner, *from, *to),
        })
    }
}
