//! The functions and operators, by family, and the registry that finds them by name.

mod advisory;
#[cfg(test)]
mod answers;
pub mod arguments;
pub mod arrays;
pub mod bytea;
pub mod datetime;
pub mod format;
mod frames;
pub(crate) mod json;
pub mod numbers;
pub mod patterns;
mod sets;
pub(crate) mod shape;
mod system;
pub mod text;

pub use advisory::is_advisory;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::aggregate::FAMILIES as AGGREGATE_FAMILIES;
use crate::table::{AggregateEntry, Entry, Kind, SetEntry};

/// Functions and operators of all families.
static FAMILIES: &[&[Entry]] = &[
    numbers::INTEGERS,
    numbers::FLOATS,
    numbers::NUMERICS,
    numbers::TRIGONOMETRY,
    system::ENTRIES,
    advisory::ENTRIES,
    arrays::ENTRIES,
    bytea::ENTRIES,
    format::printf::ENTRIES,
    frames::ENTRIES,
    json::READERS,
    json::CHANGES,
    json::CONSTRUCTORS,
    format::to_char::ENTRIES,
    text::change::ENTRIES,
    text::concat::ENTRIES,
    text::cut::ENTRIES,
    text::encode::ENTRIES,
    text::hash::ENTRIES,
    text::quote::ENTRIES,
    patterns::like::ENTRIES,
    patterns::operators::ENTRIES,
    patterns::similar::ENTRIES,
    datetime::ARITHMETIC,
    datetime::FIELDS,
    datetime::FORMATS,
    datetime::TRUNCATION,
    datetime::MOMENTS,
    datetime::READS,
    datetime::SPANS,
    datetime::ZONES,
];

/// Set-returning functions of all families.
static SET_FAMILIES: &[&[SetEntry]] = &[
    sets::SETS,
    datetime::SETS,
    patterns::operators::SETS,
    arrays::SETS,
    json::SETS,
];

type ByName<T> = HashMap<&'static str, Vec<&'static T>>;

#[derive(Default)]
struct Registry {
    functions: ByName<Entry>,
    infix: ByName<Entry>,
    prefix: ByName<Entry>,
    sets: ByName<SetEntry>,
    aggregates: ByName<AggregateEntry>,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry::default();
    for entry in FAMILIES.iter().copied().flatten() {
        let by_name = match entry.kind {
            Kind::Function => &mut registry.functions,
            Kind::Infix => &mut registry.infix,
            Kind::Prefix => &mut registry.prefix,
        };
        by_name.entry(entry.name).or_default().push(entry);
    }
    for entry in SET_FAMILIES.iter().copied().flatten() {
        registry.sets.entry(entry.name).or_default().push(entry);
    }
    for entry in AGGREGATE_FAMILIES.iter().copied().flatten() {
        registry.aggregates.entry(entry.name).or_default().push(entry);
    }
    registry
});

fn named<'a, T>(by_name: &'a ByName<T>, name: &str) -> &'a [&'static T] {
    by_name.get(name).map_or(&[], Vec::as_slice)
}

/// The functions with a name.
#[must_use]
pub fn functions(name: &str) -> &'static [&'static Entry] {
    named(&REGISTRY.functions, name)
}

/// The infix operators with a symbol, except comparisons.
#[must_use]
pub fn infix_operators(symbol: &str) -> &'static [&'static Entry] {
    named(&REGISTRY.infix, symbol)
}

/// The prefix operators with a symbol.
#[must_use]
pub fn prefix_operators(symbol: &str) -> &'static [&'static Entry] {
    named(&REGISTRY.prefix, symbol)
}

/// The set-returning functions with a name.
#[must_use]
pub fn sets(name: &str) -> &'static [&'static SetEntry] {
    named(&REGISTRY.sets, name)
}

/// The aggregates with a name.
#[must_use]
pub fn aggregates(name: &str) -> &'static [&'static AggregateEntry] {
    named(&REGISTRY.aggregates, name)
}

/// All functions and operators.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    FAMILIES.iter().copied().flatten()
}
