//! Where the parts of a program's block are: inputs, keys, result rows, and what may have to be undone.

use weft_base::TableId;
use weft_program::verify::device::{ColumnSource, DevicePlan, NewValue};
use weft_program::{KeyPart, Program};

use super::core_program::{BlockLayout, KeyPlace};
use super::lower::{LoadError, OFFSET_BITS, PlacedTable};
use super::row::{ColumnPlace, RowPlaces};

/// Room for a text input that goes into no column of a table.
const FREE_TEXT_BYTES: usize = 64;

/// The block, and where each update keeps what it may have to undo.
pub(super) struct Areas {
    pub block: BlockLayout,
    /// Of each update, a word offset for each column that it sets.
    pub undo: Vec<Vec<u32>>,
}

impl Areas {
    pub fn of(program: &Program, plan: &DevicePlan, tables: &[&PlacedTable]) -> Result<Areas, LoadError> {
        let inputs = RowPlaces::new(&program.inputs, |input| input_bytes(plan, tables, input));
        let writes_at = 1;
        let counts_at = writes_at + plan.updates.len() as u32;
        let inputs_at = counts_at + program.outputs.len() as u32;
        let mut end = inputs_at + inputs.words();
        let mut keys = Vec::new();
        for search in &plan.searches {
            let (at, is_made) = match key_in_inputs(&search.key, &inputs) {
                Some(at) => (inputs_at + at, false),
                None => (end, true),
            };
            end += if is_made { search.key.len() as u32 } else { 0 };
            let parts = search.key.clone();
            keys.push(KeyPlace { at, is_made, parts });
        }
        let mut rows = Vec::new();
        for row in &plan.rows {
            let types = program
                .outputs
                .get(row.statement)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let bytes = |column: usize| {
                let sources = row.sources.get(column).map(Vec::as_slice).unwrap_or_default();
                let of = |source: &ColumnSource| {
                    source_place(plan, tables, &inputs, *source).map(|at| at.text_bytes())
                };
                sources.iter().filter_map(of).max().unwrap_or(0)
            };
            let places = RowPlaces::new(types, bytes);
            rows.push((row.statement as u32, end, places.clone()));
            end += places.words();
        }
        let mut undo = Vec::new();
        for update in &plan.updates {
            let table = table_of(plan, tables, update.search);
            let mut of_update = Vec::new();
            for (column, _) in &update.sets {
                of_update.push(end);
                end += table
                    .and_then(|table| table.places.column((*column).into()))
                    .map_or(0, |at| at.words);
            }
            undo.push(of_update);
        }
        if end >= 1 << OFFSET_BITS {
            return Err(LoadError::TooLarge("the block of a transaction"));
        }
        let writes = plan.updates.iter().map(|update| {
            let ordinal = plan.searches.get(update.search).map_or(0, |search| search.table);
            (ordinal, tables.get(ordinal).map_or(TableId(0), |table| table.id))
        });
        Ok(Areas {
            block: BlockLayout {
                words: end,
                writes_at,
                writes: writes.collect(),
                counts_at,
                statements: program.outputs.len() as u32,
                inputs_at,
                inputs,
                keys,
                rows,
            },
            undo,
        })
    }
}

/// Bytes of text that an input may have: what every column that it goes into has room for.
fn input_bytes(plan: &DevicePlan, tables: &[&PlacedTable], input: usize) -> usize {
    let mut room = None;
    for update in &plan.updates {
        for (column, value) in &update.sets {
            if *value == NewValue::Column(ColumnSource::Input(input as u16)) {
                let table = table_of(plan, tables, update.search);
                let place = table.and_then(|table| table.places.column((*column).into()));
                let bytes = place.map_or(0, |place| place.text_bytes());
                room = Some(room.map_or(bytes, |other: usize| other.min(bytes)));
            }
        }
    }
    room.unwrap_or(FREE_TEXT_BYTES)
}

/// The table of a search.
pub(super) fn table_of<'t>(
    plan: &DevicePlan,
    tables: &[&'t PlacedTable],
    search: usize,
) -> Option<&'t PlacedTable> {
    tables.get(plan.searches.get(search)?.table).copied()
}

/// The place of a column that is read, in its row.
pub(super) fn source_place(
    plan: &DevicePlan,
    tables: &[&PlacedTable],
    inputs: &RowPlaces,
    source: ColumnSource,
) -> Option<ColumnPlace> {
    match source {
        ColumnSource::Input(input) => inputs.column(input.into()),
        ColumnSource::Found { search, column } => {
            table_of(plan, tables, search)?.places.column(column.into())
        }
    }
}

/// Where a key stands among the inputs, if its parts follow each other there.
fn key_in_inputs(key: &[KeyPart], inputs: &RowPlaces) -> Option<u32> {
    let place = |part: &KeyPart| match part {
        KeyPart::Input(input) => inputs.column((*input).into()),
        KeyPart::Const(_) => None,
    };
    let first = place(key.first()?)?;
    for (at, part) in (first.at..).zip(key) {
        if place(part)?.at != at {
            return None;
        }
    }
    Some(first.at)
}
