//! What the values of a SQL type are stored as in a column.

use weft_column::segment::{Kind, Value};
use weft_types::{ColumnKind, Numeric, NumericSpec, RowLayout, SqlType};

/// A numeric column with at most so many digits is stored as integers.
const INTEGER_DIGITS: u16 = 18;

/// The integer that stands for NaN in a column of numerics: no number of 18 digits reaches it.
pub const NAN: i64 = i64::MAX;

/// What a column of this type is stored as. Numerics of a declared scale and at most 18 digits are integers,
/// counted in their last digit ([`NAN`] apart); all other values of variable length are their bytes in a row.
#[must_use]
pub fn kind_of(ty: &SqlType) -> Kind {
    if integer_scale(ty).is_some() {
        return Kind::I64;
    }
    match (ty, ty.column_kind()) {
        (SqlType::Float4, _) => Kind::F32,
        (SqlType::Float8, _) => Kind::F64,
        (
            SqlType::Oid | SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace,
            _,
        ) => Kind::U32,
        (_, ColumnKind::Fixed(1)) => Kind::Bool,
        (_, ColumnKind::Fixed(2)) => Kind::I16,
        (_, ColumnKind::Fixed(4)) => Kind::I32,
        (_, ColumnKind::Fixed(8)) => Kind::I64,
        (_, ColumnKind::Fixed(16)) => Kind::Bytes16,
        _ => Kind::Bytes,
    }
}

/// The scale of a numeric type that is stored as integers.
#[must_use]
pub fn integer_scale(ty: &SqlType) -> Option<u16> {
    match ty {
        SqlType::Numeric(Some(NumericSpec { precision, scale }))
            if (1..=INTEGER_DIGITS).contains(precision) =>
        {
            u16::try_from(*scale).ok().filter(|scale| scale <= precision)
        }
        _ => None,
    }
}

/// A cell of a row as a value of its column, `None` for NULL. `Err` if it is none of the column's values.
pub(super) fn cell<'r>(layout: &RowLayout, row: &'r [u8], column: usize) -> Result<Option<Value<'r>>, ()> {
    let ty = layout.types().get(column).ok_or(())?;
    if layout.is_null(row, column) {
        return Ok(None);
    }
    let bytes = || layout.var_bytes(row, column).ok_or(());
    if let Some(scale) = integer_scale(ty) {
        return integer(bytes()?, scale).map(|number| Some(Value::I64(number)));
    }
    let fixed = || layout.fixed_u64(row, column).ok_or(());
    Ok(Some(match kind_of(ty) {
        Kind::Bool => Value::Bool(fixed()? != 0),
        Kind::I16 => Value::I16(fixed()? as i16),
        Kind::I32 => Value::I32(fixed()? as i32),
        Kind::I64 => Value::I64(fixed()? as i64),
        Kind::U32 => Value::U32(fixed()? as u32),
        Kind::F32 => Value::F32(f32::from_bits(fixed()? as u32)),
        Kind::F64 => Value::F64(f64::from_bits(fixed()?)),
        Kind::Bytes16 => {
            let raw = layout.raw(row, column).and_then(|raw| raw.try_into().ok());
            Value::Bytes16(raw.ok_or(())?)
        }
        Kind::Bytes => Value::from(bytes()?),
    }))
}

fn integer(stored: &[u8], scale: u16) -> Result<i64, ()> {
    let number = Numeric::decode(stored).map_err(|_| ())?;
    if number.is_nan() {
        return Ok(NAN);
    }
    let wide = number.to_i128(scale).map_err(|_| ())?;
    i64::try_from(wide).ok().filter(|number| *number != NAN).ok_or(())
}
