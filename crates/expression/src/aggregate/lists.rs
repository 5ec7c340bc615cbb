//! array_agg and string_agg: results depend on the order of the rows.

use weft_types::{ArrayValue, SqlError, SqlState, SqlType, Value, ValueRef};

use super::{bytes_of, entry, first, mismatch, whole};
use crate::category::element_of;
use crate::context::Context;
use crate::table::{Accumulator, AggregateEntry, Arg, Returns};

use Arg::Is;
use SqlType::{Bytea, Text};

/// The aggregates.
pub(super) static ENTRIES: &[AggregateEntry] = &[
    joined(Text, &[Is(Text), Is(Text)], |_, _| {
        Box::new(Joined::<String>::default())
    }),
    joined(Bytea, &[Is(Bytea), Is(Bytea)], |_, _| {
        Box::new(Joined::<Vec<u8>>::default())
    }),
    AggregateEntry {
        returns: Returns::Array,
        strict: false,
        ordered: true,
        ..entry("array_agg", &[Arg::AnyElement], SqlType::Void, &[], |types, _| {
            let element = types.first().copied().unwrap_or(Text);
            let nested = element_of(&element).is_some();
            Box::new(Items {
                element: element_of(&element).unwrap_or(element),
                nested,
                items: Vec::new(),
                dimensions: Vec::new(),
                rows: 0,
                bytes: 0,
            })
        })
    },
];

const fn joined(
    ty: SqlType,
    arguments: &'static [Arg],
    start: fn(&[SqlType], SqlType) -> Box<dyn Accumulator>,
) -> AggregateEntry {
    AggregateEntry {
        strict: false,
        ordered: true,
        ..entry("string_agg", arguments, ty, &[], start)
    }
}

/// The accumulated result: text or bytes.
trait Appendable: Default + Clone + std::fmt::Debug + Send {
    fn append(&mut self, value: &ValueRef<'_>) -> Result<(), SqlError>;
    fn into_value(self) -> Value;
    fn length(&self) -> usize;
}

impl Appendable for String {
    fn append(&mut self, value: &ValueRef<'_>) -> Result<(), SqlError> {
        match value {
            ValueRef::Null => {}
            ValueRef::Text(text) => self.push_str(text),
            _ => return Err(mismatch()),
        }
        Ok(())
    }

    fn into_value(self) -> Value {
        Value::Text(self)
    }

    fn length(&self) -> usize {
        self.len()
    }
}

impl Appendable for Vec<u8> {
    fn append(&mut self, value: &ValueRef<'_>) -> Result<(), SqlError> {
        match value {
            ValueRef::Null => {}
            ValueRef::Bytea(bytes) => self.extend_from_slice(bytes),
            _ => return Err(mismatch()),
        }
        Ok(())
    }

    fn into_value(self) -> Value {
        Value::Bytea(self)
    }

    fn length(&self) -> usize {
        self.len()
    }
}

#[derive(Debug, Default)]
struct Joined<T>(Option<T>);

impl<T: Appendable> Accumulator for Joined<T> {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let [value, separator] = arguments else {
            return Err(mismatch());
        };
        if value.is_null() {
            return Ok(());
        }
        match &mut self.0 {
            None => self.0.insert(T::default()).append(value),
            Some(text) => {
                text.append(separator)?;
                text.append(value)
            }
        }
    }

    fn merge(&mut self, _: &Context<'_>, _: &[ValueRef<'_>]) -> Result<(), SqlError> {
        whole()
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        whole()
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        Ok(self.0.clone().map_or(Value::Null, T::into_value))
    }

    fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, T::length)
    }
}

#[derive(Debug)]
struct Items {
    /// The items' type.
    element: SqlType,
    /// The arguments are arrays themselves.
    nested: bool,
    items: Vec<Value>,
    /// Dimensions of the arguments, if they are arrays.
    dimensions: Vec<(i32, i32)>,
    rows: usize,
    bytes: usize,
}

fn bad_array(message: &str) -> SqlError {
    SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message)
}

impl Accumulator for Items {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let value = first(arguments)?;
        if !self.nested {
            let value = value.to_value();
            self.bytes += bytes_of(&value);
            self.items.push(value);
            self.rows += 1;
            return Ok(());
        }
        let ValueRef::Array(array) = value else {
            let message = "cannot accumulate null arrays";
            return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
        };
        if array.items.is_empty() {
            return Err(bad_array("cannot accumulate empty arrays"));
        }
        if self.rows == 0 {
            self.dimensions.clone_from(&array.dimensions);
        } else if self.dimensions != array.dimensions {
            return Err(bad_array("cannot accumulate arrays of different dimensionality"));
        }
        self.bytes += array.items.iter().map(bytes_of).sum::<usize>();
        self.items.extend(array.items.iter().cloned());
        self.rows += 1;
        Ok(())
    }

    fn merge(&mut self, _: &Context<'_>, _: &[ValueRef<'_>]) -> Result<(), SqlError> {
        whole()
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        whole()
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        if self.rows == 0 {
            return Ok(Value::Null);
        }
        let mut array = ArrayValue::of_items(self.element, self.items.clone());
        if self.nested {
            let rows = i32::try_from(self.rows).map_err(|_| mismatch())?;
            array.dimensions = vec![(rows, 1)];
            array.dimensions.extend(self.dimensions.iter().copied());
        }
        Ok(Value::Array(Box::new(array)))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
