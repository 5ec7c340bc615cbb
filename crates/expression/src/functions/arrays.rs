//! Functions and operators of arrays (PostgreSQL 15, 9.19), and conversions between text and
//! arrays.
//!
//! Items are compared by their type's equality; NULL items match only where the function's
//! definition says so.

use std::cmp::Ordering;

use weft_types::interrupt::{self, Pace};
use weft_types::{ArrayValue, Element, SqlError, SqlState, SqlType, Value, ValueRef, compare, search, sort};

use super::shape::{
    Arguments, BOOL, Computed, INT4, TEXT, TO_BOOL, TO_INT4, TO_TEXT, TO_TEXTS, boolean, check_bytes,
    counted, define, infix, int, invalid, is_null, made, made_texts, text,
};
use super::text::concat::push_output;
use super::text::quote::parse_identifiers;
use crate::context::Context;
use crate::table::{Arg, Entry, Returns, SetEntry};

const ARRAY: Arg = Arg::AnyArray;
const ITEM: Arg = Arg::AnyElement;
/// The array and its items may differ in type: they are converted to a common type.
const COMPATIBLE_ARRAY: Arg = Arg::AnyCompatibleArray;
const COMPATIBLE: Arg = Arg::AnyCompatible;
const INTS: Arg = Arg::Is(SqlType::Array(Element::Int4));

/// The entries.
pub static ENTRIES: &[Entry] = &[
    infix(
        "||",
        &[COMPATIBLE_ARRAY, COMPATIBLE_ARRAY],
        Returns::Array,
        concat,
    )
    .with_nulls(),
    infix("||", &[COMPATIBLE_ARRAY, COMPATIBLE], Returns::Array, append).with_nulls(),
    infix("||", &[COMPATIBLE, COMPATIBLE_ARRAY], Returns::Array, prepend).with_nulls(),
    define(
        "width_bucket",
        &[COMPATIBLE, COMPATIBLE_ARRAY],
        TO_INT4,
        width_bucket,
    ),
    infix("@>", &[ARRAY, ARRAY], TO_BOOL, contains),
    infix("<@", &[ARRAY, ARRAY], TO_BOOL, contained),
    infix("&&", &[ARRAY, ARRAY], TO_BOOL, overlaps),
    define(
        "array_cat",
        &[COMPATIBLE_ARRAY, COMPATIBLE_ARRAY],
        Returns::Array,
        concat,
    )
    .with_nulls(),
    define(
        "array_append",
        &[COMPATIBLE_ARRAY, COMPATIBLE],
        Returns::Array,
        append,
    )
    .with_nulls(),
    define(
        "array_prepend",
        &[COMPATIBLE, COMPATIBLE_ARRAY],
        Returns::Array,
        prepend,
    )
    .with_nulls(),
    define(
        "array_remove",
        &[COMPATIBLE_ARRAY, COMPATIBLE],
        Returns::Array,
        remove,
    )
    .with_nulls(),
    define(
        "array_replace",
        &[COMPATIBLE_ARRAY, COMPATIBLE, COMPATIBLE],
        Returns::Array,
        replace,
    )
    .with_nulls(),
    define(
        "array_position",
        &[COMPATIBLE_ARRAY, COMPATIBLE],
        TO_INT4,
        position,
    )
    .with_nulls(),
    define(
        "array_position",
        &[COMPATIBLE_ARRAY, COMPATIBLE, INT4],
        TO_INT4,
        position,
    )
    .with_nulls(),
    define(
        "array_positions",
        &[COMPATIBLE_ARRAY, COMPATIBLE],
        Returns::Is(SqlType::Array(Element::Int4)),
        positions,
    )
    .with_nulls(),
    define("array_ndims", &[ARRAY], TO_INT4, dimension_count),
    define("array_dims", &[ARRAY], TO_TEXT, dimensions),
    define("array_length", &[ARRAY, INT4], TO_INT4, length),
    define("array_lower", &[ARRAY, INT4], TO_INT4, lower),
    define("array_upper", &[ARRAY, INT4], TO_INT4, upper),
    define("cardinality", &[ARRAY], TO_INT4, cardinality),
    define("array_fill", &[ITEM, INTS], Returns::Array, fill).with_nulls(),
    define("array_fill", &[ITEM, INTS, INTS], Returns::Array, fill).with_nulls(),
    define("trim_array", &[ARRAY, INT4], Returns::Array, trim),
    define("array_to_string", &[ARRAY, TEXT], TO_TEXT, to_text).stable(),
    define("array_to_string", &[ARRAY, TEXT, TEXT], TO_TEXT, to_text)
        .with_nulls()
        .stable(),
    define("string_to_array", &[TEXT, TEXT], TO_TEXTS, from_text).with_nulls(),
    define("string_to_array", &[TEXT, TEXT, TEXT], TO_TEXTS, from_text).with_nulls(),
    define("parse_ident", &[TEXT], TO_TEXTS, identifiers),
    define("parse_ident", &[TEXT, BOOL], TO_TEXTS, identifiers),
];

/// The set-returning functions.
pub static SETS: &[SetEntry] = &[
    SetEntry {
        name: "string_to_table",
        arguments: &[TEXT, TEXT],
        columns: &[("string_to_table", TO_TEXT)],
        strict: false,
        compute: text_to_table,
    },
    SetEntry {
        name: "string_to_table",
        arguments: &[TEXT, TEXT, TEXT],
        columns: &[("string_to_table", TO_TEXT)],
        strict: false,
        compute: text_to_table,
    },
];

/// An array; `None` if it is NULL.
fn array<'a>(arguments: Arguments<'a, '_>, at: usize) -> Result<Option<&'a ArrayValue>, SqlError> {
    match arguments.get(at) {
        Some(ValueRef::Array(array)) => Ok(Some(array)),
        Some(ValueRef::Null) => Ok(None),
        _ => Err(SqlError::internal("an argument is no array")),
    }
}

/// An array argument of a strict function.
fn given<'a>(arguments: Arguments<'a, '_>, at: usize) -> Result<&'a ArrayValue, SqlError> {
    array(arguments, at)?.ok_or_else(|| SqlError::internal("an argument is no array"))
}

fn value(arguments: Arguments<'_, '_>, at: usize) -> Value {
    arguments.get(at).map_or(Value::Null, ValueRef::to_value)
}

fn of(array: ArrayValue) -> Computed {
    Ok(Value::Array(Box::new(array)))
}

fn wrong_subscript(message: &str) -> SqlError {
    SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message)
}

/// Most items of an array.
const ITEMS_MAX: usize = 134_217_727;

fn check_count(count: usize) -> Result<(), SqlError> {
    match count > ITEMS_MAX {
        true => Err(SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("array size exceeds the maximum allowed ({ITEMS_MAX})"),
        )),
        false => Ok(()),
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    compare(a, b) == Some(Ordering::Equal)
}

/// Equality in which NULL equals NULL.
fn same(a: &Value, b: &Value) -> bool {
    match (a.is_null(), b.is_null()) {
        (false, false) => equal(a, b),
        (a, b) => a && b,
    }
}

/// The element type of an array built from `item`.
fn element_type(item: &Value) -> Result<SqlType, SqlError> {
    let ty = item.sql_type();
    ty.ok_or_else(|| SqlError::unsupported("an array of only NULLs is not supported without a type"))
}

fn one_dimension(array: &ArrayValue) -> Result<(), SqlError> {
    match array.dimensions.len() {
        0 | 1 => Ok(()),
        _ => Err(SqlError::new(
            SqlState("22000"),
            "argument must be empty or one-dimensional array",
        )),
    }
}

fn append(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    with_item(array(arguments, 0)?, value(arguments, 1), false)
}

fn prepend(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    with_item(array(arguments, 1)?, value(arguments, 0), true)
}

fn with_item(array: Option<&ArrayValue>, item: Value, front: bool) -> Computed {
    let Some(array) = array else {
        return of(ArrayValue::of_items(element_type(&item)?, vec![item]));
    };
    one_dimension(array)?;
    check_count(array.items.len() + 1)?;
    let lower = array.dimensions.first().map_or(1, |(_, lower)| *lower);
    let mut items = Vec::with_capacity(array.items.len() + 1);
    if front {
        items.push(item);
        items.extend_from_slice(&array.items);
    } else {
        items.extend_from_slice(&array.items);
        items.push(item);
    }
    let mut made = ArrayValue::of_items(array.element, items);
    // The lower bound is kept, even if an item is prepended.
    made.dimensions = vec![(made.items.len() as i32, lower)];
    if lower.checked_add(made.items.len() as i32).is_none() {
        return Err(weft_types::range::out_of_range(&SqlType::Int4));
    }
    of(made)
}

fn concat(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (first, second) = match (array(arguments, 0)?, array(arguments, 1)?) {
        (None, None) => return Ok(Value::Null),
        (Some(only), None) | (None, Some(only)) => return of(only.clone()),
        (Some(first), Some(second)) => (first, second),
    };
    if first.items.is_empty() {
        return of(second.clone());
    }
    if second.items.is_empty() {
        return of(first.clone());
    }
    let refused =
        |detail: &str| Err(wrong_subscript("cannot concatenate incompatible arrays").detail(detail));
    let (a, b) = (&first.dimensions, &second.dimensions);
    // Lengths and lower bounds.
    let behind = |dimensions: &[(i32, i32)]| dimensions.get(1..).unwrap_or_default().to_vec();
    let mut dimensions = if b.len() > a.len() { b.clone() } else { a.clone() };
    let count = |dimensions: &[(i32, i32)]| dimensions.first().map_or(0, |(length, _)| *length);
    let whole = if a.len() == b.len() {
        if behind(a) != behind(b) {
            return refused("Arrays with differing element dimensions are not compatible for concatenation.");
        }
        count(a).saturating_add(count(b))
    } else {
        let (outer, inner) = if a.len() > b.len() { (a, b) } else { (b, a) };
        if outer.len() != inner.len() + 1 {
            return refused(&format!(
                "Arrays of {} and {} dimensions are not compatible for concatenation.",
                a.len(),
                b.len()
            ));
        }
        if behind(outer) != *inner {
            return refused("Arrays with differing dimensions are not compatible for concatenation.");
        }
        count(outer).saturating_add(1)
    };
    if let Some(outermost) = dimensions.first_mut() {
        outermost.0 = whole;
    }
    check_count(first.items.len() + second.items.len())?;
    of(ArrayValue {
        element: first.element,
        dimensions,
        items: [&first.items[..], &second.items[..]].concat(),
    })
}

/// Whether every item of one array is in the other; NULL matches nothing.
fn within(part: &ArrayValue, whole: &ArrayValue) -> Result<bool, SqlError> {
    let items = sorted(whole)?;
    let mut pace = Pace::default();
    for item in &part.items {
        pace.step(64)?;
        if item.is_null() || !found(&items, item) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The items that are not NULL, sorted.
fn sorted(array: &ArrayValue) -> Result<Vec<&Value>, SqlError> {
    interrupt::check()?;
    let items: Vec<&Value> = array.items.iter().filter(|item| !item.is_null()).collect();
    sort::sorted(items, |a, b| compare(a, b).unwrap_or(Ordering::Equal))
}

fn found(items: &[&Value], item: &Value) -> bool {
    let order = |other: &&Value| compare(other, item).unwrap_or(Ordering::Equal);
    items.binary_search_by(order).is_ok()
}

fn check_same_elements(a: &ArrayValue, b: &ArrayValue) -> Result<(), SqlError> {
    match a.element.same_form(&b.element) {
        true => Ok(()),
        false => Err(SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            "cannot compare arrays of different element types",
        )),
    }
}

fn contains(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, part) = (given(arguments, 0)?, given(arguments, 1)?);
    check_same_elements(whole, part)?;
    within(part, whole).map(Value::Bool)
}

fn contained(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (part, whole) = (given(arguments, 0)?, given(arguments, 1)?);
    check_same_elements(part, whole)?;
    within(part, whole).map(Value::Bool)
}

fn overlaps(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (one, other) = (given(arguments, 0)?, given(arguments, 1)?);
    check_same_elements(one, other)?;
    let items = sorted(one)?;
    let mut pace = Pace::default();
    for item in &other.items {
        pace.step(64)?;
        if !item.is_null() && found(&items, item) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn remove(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let Some(array) = array(arguments, 0)? else {
        return Ok(Value::Null);
    };
    let item = value(arguments, 1);
    if array.dimensions.len() > 1 {
        return Err(SqlError::unsupported(
            "removing elements from multidimensional arrays is not supported",
        ));
    }
    let mut kept: Vec<Value> = Vec::new();
    let mut pace = Pace::default();
    for own in array.items.iter() {
        pace.step(4)?;
        if !same(own, &item) {
            kept.push(own.clone());
        }
    }
    if kept.is_empty() {
        return of(ArrayValue::of_items(array.element, kept));
    }
    let lower = array.dimensions.first().map_or(1, |(_, lower)| *lower);
    let dimensions = vec![(kept.len() as i32, lower)];
    of(ArrayValue {
        element: array.element,
        dimensions,
        items: kept,
    })
}

fn replace(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let Some(array) = array(arguments, 0)? else {
        return Ok(Value::Null);
    };
    let (from, to) = (value(arguments, 1), value(arguments, 2));
    let mut pace = Pace::default();
    let mut items = Vec::with_capacity(array.items.len());
    for item in &array.items {
        pace.step(4)?;
        items.push(if same(item, &from) { &to } else { item }.clone());
    }
    of(ArrayValue {
        element: array.element,
        dimensions: array.dimensions.clone(),
        items,
    })
}

/// The subscript of the item at an index.
fn subscript(array: &ArrayValue, at: usize) -> i32 {
    let lower = array.dimensions.first().map_or(1, |(_, lower)| *lower);
    lower.saturating_add(i32::try_from(at).unwrap_or(i32::MAX))
}

fn check_searchable(array: &ArrayValue) -> Result<(), SqlError> {
    match array.dimensions.len() > 1 {
        true => Err(SqlError::unsupported(
            "searching for elements in multidimensional arrays is not supported",
        )),
        false => Ok(()),
    }
}

fn position(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let Some(array) = array(arguments, 0)? else {
        return Ok(Value::Null);
    };
    check_searchable(array)?;
    if array.items.is_empty() {
        return Ok(Value::Null);
    }
    let item = value(arguments, 1);
    if item.is_null() && !array.items.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let mut from = i64::MIN;
    if arguments.len() > 2 {
        if is_null(arguments, 2) {
            let message = "initial position must not be null";
            return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
        }
        from = int(arguments, 2)?;
    }
    let mut pace = Pace::default();
    for (at, own) in array.items.iter().enumerate() {
        pace.step(2)?;
        let subscript = subscript(array, at);
        if i64::from(subscript) >= from && same(own, &item) {
            return Ok(Value::Int4(subscript));
        }
    }
    Ok(Value::Null)
}

/// The number of thresholds, in ascending order, that are less than or equal to the value.
fn width_bucket(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let thresholds = given(arguments, 1)?;
    if thresholds.dimensions.len() > 1 {
        let message = "thresholds must be one-dimensional array";
        return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message));
    }
    if thresholds.items.iter().any(Value::is_null) {
        let message = "thresholds array must not contain NULLs";
        return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
    }
    let operand = value(arguments, 0);
    // Binary search as in PostgreSQL, so that unsorted thresholds give the same result.
    let (mut low, mut high) = (0, thresholds.items.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let threshold = thresholds.items.get(middle).unwrap_or(&Value::Null);
        match compare(&operand, threshold) {
            Some(Ordering::Less) => high = middle,
            _ => low = middle + 1,
        }
    }
    counted(low)
}

fn positions(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let Some(array) = array(arguments, 0)? else {
        return Ok(Value::Null);
    };
    check_searchable(array)?;
    let item = value(arguments, 1);
    let mut found = Vec::new();
    let mut pace = Pace::default();
    for (at, own) in array.items.iter().enumerate() {
        pace.step(4)?;
        if same(own, &item) {
            found.push(Value::Int4(subscript(array, at)));
        }
    }
    of(ArrayValue::of_items(SqlType::Int4, found))
}

fn dimension_count(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    match given(arguments, 0)?.dimensions.len() {
        0 => Ok(Value::Null),
        count => counted(count),
    }
}

fn dimensions(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let array = given(arguments, 0)?;
    if array.dimensions.is_empty() {
        return Ok(Value::Null);
    }
    let bounds = array.dimensions.iter().map(|(length, lower)| {
        let upper = i64::from(*lower) + i64::from(*length) - 1;
        format!("[{lower}:{upper}]")
    });
    made(bounds.collect::<String>())
}

/// Length and lower bound of the dimension that an argument names.
fn dimension(arguments: Arguments<'_, '_>) -> Result<Option<(i32, i32)>, SqlError> {
    let array = given(arguments, 0)?;
    let number = usize::try_from(int(arguments, 1)?)
        .ok()
        .and_then(|number| number.checked_sub(1));
    Ok(number.and_then(|number| array.dimensions.get(number)).copied())
}

fn length(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    Ok(dimension(arguments)?.map_or(Value::Null, |(length, _)| Value::Int4(length)))
}

fn lower(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    Ok(dimension(arguments)?.map_or(Value::Null, |(_, lower)| Value::Int4(lower)))
}

fn upper(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let upper = |(length, lower): (i32, i32)| Value::Int4(lower.wrapping_add(length).wrapping_sub(1));
    Ok(dimension(arguments)?.map_or(Value::Null, upper))
}

fn cardinality(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    counted(given(arguments, 0)?.items.len())
}

/// The integers of a one-dimensional array without NULLs.
fn integers(arguments: Arguments<'_, '_>, at: usize) -> Result<Vec<i32>, SqlError> {
    let no_nulls = |message: &str| SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message);
    let Some(array) = array(arguments, at)? else {
        return Err(no_nulls("dimension array or low bound array cannot be null"));
    };
    if array.dimensions.len() > 1 {
        return Err(wrong_subscript("wrong number of array subscripts")
            .detail("Dimension array must be one dimensional."));
    }
    let number = |item: &Value| match item {
        Value::Int4(number) => Ok(*number),
        _ => Err(no_nulls("dimension values cannot be null")),
    };
    array.items.iter().map(number).collect()
}

fn fill(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    if (1..arguments.len()).any(|at| is_null(arguments, at)) {
        let message = "dimension array or low bound array cannot be null";
        return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
    }
    let lengths = integers(arguments, 1)?;
    let bounds = match arguments.len() > 2 {
        true => integers(arguments, 2)?,
        false => vec![1; lengths.len()],
    };
    if bounds.len() != lengths.len() {
        let detail = "Low bound array has different size than dimensions array.";
        return Err(wrong_subscript("wrong number of array subscripts").detail(detail));
    }
    if lengths.len() > 6 {
        return Err(SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!(
                "number of array dimensions ({}) exceeds the maximum allowed (6)",
                lengths.len()
            ),
        ));
    }
    let mut count = 1_usize;
    for length in &lengths {
        let Ok(length) = usize::try_from(*length) else {
            check_count(usize::MAX)?;
            break;
        };
        count = count.saturating_mul(length);
        check_count(count)?;
    }
    for (length, lower) in lengths.iter().zip(&bounds) {
        if lower.checked_add(*length).is_none() {
            let message = format!("array lower bound is too large: {lower}");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
    }
    let item = value(arguments, 0);
    let element = element_type(&item)?;
    if lengths.is_empty() || count == 0 {
        return of(ArrayValue::of_items(element, Vec::new()));
    }
    let mut items = Vec::with_capacity(count);
    let mut pace = Pace::default();
    for _ in 0..count {
        pace.step(2)?;
        items.push(item.clone());
    }
    of(ArrayValue {
        element,
        dimensions: lengths.into_iter().zip(bounds).collect(),
        items,
    })
}

fn trim(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (array, dropped) = (given(arguments, 0)?, int(arguments, 1)?);
    let (length, _) = array.dimensions.first().copied().unwrap_or((0, 1));
    if dropped < 0 || dropped > i64::from(length) {
        return Err(wrong_subscript(&format!(
            "number of elements to trim must be between 0 and {length}"
        )));
    }
    let kept = length - i32::try_from(dropped).unwrap_or(0);
    let inner = array.items.len().checked_div(length as usize).unwrap_or(0);
    let items = array
        .items
        .get(..inner * kept as usize)
        .unwrap_or_default()
        .to_vec();
    if items.is_empty() {
        return of(ArrayValue::of_items(array.element, items));
    }
    // As in a slice, lower bounds start at 1.
    let mut dimensions: Vec<(i32, i32)> = array.dimensions.iter().map(|(length, _)| (*length, 1)).collect();
    if let Some(outermost) = dimensions.first_mut() {
        outermost.0 = kept;
    }
    of(ArrayValue {
        element: array.element,
        dimensions,
        items,
    })
}

fn to_text(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let Some(array) = array(arguments, 0)? else {
        return Ok(Value::Null);
    };
    if is_null(arguments, 1) {
        return Ok(Value::Null);
    }
    let separator = text(arguments, 1)?;
    let null = match is_null(arguments, 2) {
        true => None,
        false => Some(text(arguments, 2)?),
    };
    let mut out = String::new();
    let mut first = true;
    let mut pace = Pace::default();
    for item in &array.items {
        pace.step(8)?;
        if item.is_null() && null.is_none() {
            continue;
        }
        if !first {
            out.push_str(separator);
        }
        first = false;
        match null {
            Some(null) if item.is_null() => out.push_str(null),
            _ => push_output(context, &item.as_ref(), &mut out)?,
        }
        check_bytes(out.len())?;
    }
    made(out)
}

/// Calls `emit` with each part of a text; not at all if it is NULL.
fn split(
    arguments: Arguments<'_, '_>,
    emit: &mut dyn FnMut(Vec<Value>) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    if is_null(arguments, 0) {
        return Ok(());
    }
    let whole = text(arguments, 0)?;
    let null = match is_null(arguments, 2) {
        true => None,
        false => Some(text(arguments, 2)?),
    };
    let mut pace = Pace::default();
    let mut part = |part: &str| {
        pace.step(8)?;
        emit(vec![match Some(part) == null {
            true => Value::Null,
            false => Value::Text(part.to_owned()),
        }])
    };
    if whole.is_empty() {
        return Ok(());
    }
    if is_null(arguments, 1) {
        let mut buffer = [0; 4];
        return whole
            .chars()
            .try_for_each(|character| part(character.encode_utf8(&mut buffer)));
    }
    match text(arguments, 1)? {
        "" => part(whole),
        separator => search::parts(whole, separator).try_for_each(|found| part(found?)),
    }
}

fn from_text(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    if is_null(arguments, 0) {
        return Ok(Value::Null);
    }
    let mut parts = Vec::new();
    split(arguments, &mut |mut row| {
        parts.append(&mut row);
        Ok(())
    })?;
    Ok(made_texts(parts))
}

fn text_to_table(
    _: &Context<'_>,
    arguments: &[ValueRef<'_>],
    emit: &mut dyn FnMut(Vec<Value>) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    split(arguments, emit)
}

fn identifiers(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let strict = match arguments.len() > 1 {
        true => boolean(arguments, 1)?,
        false => true,
    };
    let whole = text(arguments, 0)?;
    let refused = |detail: Option<&str>| {
        let error = invalid(format!("string is not a valid identifier: \"{whole}\""));
        match detail {
            Some(detail) => error.detail(detail),
            None => error,
        }
    };
    let names = parse_identifiers(whole, strict).map_err(|detail| refused(detail.as_deref()))?;
    Ok(made_texts(names.into_iter().map(Value::Text).collect()))
}
