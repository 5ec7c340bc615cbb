//! What a device answered, compared with what the CPU did or tested by itself.

use hashbrown::HashMap;
use weft_program::{AccessKeys, AccessKind, Outcome, Program};
use weft_store::{BatchWriter, Catalog, Locator, ReadView, TableDef};
use weft_types::{RowLayout, SqlError, SqlState, encode_key_from_row};

use super::{CpuReason, DeviceAnswer, NotRun};
use crate::executor::Work;
use crate::request::{Answer, Committed};
use crate::write_set::{self, RowPosition, WriteOp};

/// What a member changed: by table and primary key, the row now, or `None` if it is gone.
pub(super) type Changes = Vec<(u32, Vec<u8>, Option<Vec<u8>>)>;

/// What is to be done with an answer.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It counts.
    Good,
    /// The CPU runs the member, for this reason.
    Cpu(CpuReason),
    /// No correct device gives it.
    Fault(String),
}

impl NotRun {
    fn reason(self) -> CpuReason {
        match self {
            NotRun::Inputs => CpuReason::Inputs,
            NotRun::Rejected => CpuReason::Rejected,
        }
    }
}

/// The key of the primary index that a row has.
pub(super) fn key_of(def: &TableDef, row: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    let primary = def.indexes.iter().find(|index| Some(index.id) == def.primary_key);
    if let Some(primary) = primary {
        encode_key_from_row(&mut key, &def.layout, row, &primary.columns);
    }
    key
}

/// What members of a group changed on the host since the mark. `group` is sorted.
pub(super) fn host_changes(
    writer: &BatchWriter<'_>,
    mark: usize,
    group: &[usize],
) -> HashMap<usize, Changes> {
    let mut changes: HashMap<usize, Changes> = HashMap::new();
    writer.changes_since(mark, |change| {
        let member = change.member as usize;
        let def = writer.catalog().table_by_id(change.table);
        if let (Ok(_), Some(def), Some(row)) =
            (group.binary_search(&member), def, change.before.or(change.after))
        {
            let after = change.after.map(<[u8]>::to_vec);
            let of_member = changes.entry(member).or_default();
            of_member.push((change.table.0, key_of(def, row), after));
        }
    });
    changes.values_mut().for_each(|changes| changes.sort_unstable());
    changes
}

/// What a write set changes; `None` if it is none, or names rows in a way that no device does.
fn device_changes(write_set: &[u8], catalog: &Catalog) -> Option<Changes> {
    let mut changes: Changes = Vec::new();
    let at_key = |place: RowPosition| match place {
        RowPosition::Located(Locator::Key(key)) => Some(key),
        RowPosition::Located(Locator::RowId(_)) | RowPosition::Own(_) => None,
    };
    for op in write_set::operations(write_set) {
        let (table, key, after) = match op.ok()? {
            WriteOp::Insert { table, row } => {
                let def = catalog.table_by_id(table)?;
                def.layout.validate(row).ok()?;
                (table, key_of(def, row), Some(row.to_vec()))
            }
            WriteOp::Update { table, place, row } => (table, at_key(place)?, Some(row.to_vec())),
            WriteOp::Delete { table, place } => (table, at_key(place)?, None),
        };
        match changes
            .iter_mut()
            .find(|(of, at, _)| *of == table.0 && *at == key)
        {
            Some((_, _, row)) => *row = after,
            None => changes.push((table.0, key, after)),
        }
    }
    changes.sort_unstable();
    Some(changes)
}

/// Compares an answer with what the CPU answered and changed.
pub(super) fn compare(
    catalog: &Catalog,
    expected: &Answer<Committed>,
    changed: &Changes,
    answer: &DeviceAnswer,
) -> Verdict {
    let different = |what: &str| Verdict::Fault(format!("{what} differs from the CPU's"));
    match (answer, expected) {
        (DeviceAnswer::NotRun(reason), _) => Verdict::Cpu(reason.reason()),
        (DeviceAnswer::Failed(error), Err(refused)) => {
            match (&error.state, &error.message) == (&refused.error.state, &refused.error.message) {
                true => Verdict::Good,
                false => different("an error"),
            }
        }
        (DeviceAnswer::Committed { outcome, write_set }, Ok(committed)) => {
            if *outcome != committed.outcome {
                return different("an answer");
            }
            match device_changes(write_set, catalog) {
                Some(changes) if changes == *changed => Verdict::Good,
                _ => different("a write set"),
            }
        }
        (DeviceAnswer::Committed { write_set, .. }, Err(refused)) => {
            // The device knows no conditions of tables.
            let broken = broken_condition(write_set, catalog);
            let is_unique = refused.error.state == SqlState::UNIQUE_VIOLATION;
            match is_unique || broken.is_some_and(|error| error.state == refused.error.state) {
                true => Verdict::Cpu(CpuReason::Condition),
                false => different("the end of a member"),
            }
        }
        (DeviceAnswer::Failed(_), Ok(_)) => different("the end of a member"),
    }
}

/// The first error of a row's table in a write set.
fn broken_condition(write_set: &[u8], catalog: &Catalog) -> Option<SqlError> {
    let check = |op: WriteOp<'_>| match op {
        WriteOp::Insert { table, row } | WriteOp::Update { table, row, .. } => {
            let def = catalog.table_by_id(table)?;
            def.layout.validate(row).ok()?;
            def.check_row(row).err()
        }
        WriteOp::Delete { .. } => None,
    };
    write_set::operations(write_set).flatten().find_map(check)
}

/// Tests an answer that the CPU does not compute as well: rows have the form of their table or statement, and
/// are those that the member has declared to change.
pub(super) fn test(view: ReadView<'_>, work: Work<'_>, answer: &DeviceAnswer) -> Result<Verdict, SqlError> {
    let fault = |what: &str| Ok(Verdict::Fault(what.to_owned()));
    let Work::Program {
        program,
        inputs,
        keys,
    } = work
    else {
        return fault("an answer for no program");
    };
    let (outcome, write_set) = match answer {
        DeviceAnswer::Committed { outcome, write_set } => (outcome, write_set),
        DeviceAnswer::Failed(_) => return Ok(Verdict::Good),
        DeviceAnswer::NotRun(reason) => return Ok(Verdict::Cpu(reason.reason())),
    };
    if !has_form(outcome, program) {
        return fault("an answer has not the form of its program");
    }
    if write_set.is_empty() {
        return Ok(Verdict::Good);
    }
    let catalog = view.catalog();
    let Some(changes) = device_changes(write_set, catalog) else {
        return fault("a write set has not the form of one");
    };
    let mut made = AccessKeys::default();
    let keys = match keys {
        Some(keys) => keys,
        None => {
            made.prepare(program, inputs)?;
            &made
        }
    };
    let mut verdict = Verdict::Good;
    for (table, key, after) in &changes {
        let table = weft_base::TableId(*table);
        let mut is_declared = false;
        keys.for_each(|number, bound| {
            let access = program.accesses.get(number);
            is_declared |= access.is_some_and(|access| {
                let is_row = match access.kind {
                    AccessKind::WriteRow | AccessKind::InsertRow => bound.bytes == key.as_slice(),
                    AccessKind::WriteRange | AccessKind::WriteTable => true,
                    _ => false,
                };
                access.table == table && is_row
            });
        });
        if !is_declared {
            return fault("a write set changes a row that its member has not declared");
        }
        let Some(def) = catalog.table_by_id(table) else {
            return fault("a write set changes a table that does not exist");
        };
        let slot = view.locate(table, &Locator::Key(key.clone()))?;
        let host = match slot {
            Some(slot) => view.get(table, slot)?,
            None => None,
        };
        match (after, host) {
            (Some(row), _) if def.layout.validate(row).is_err() => {
                return fault("a write set has a row that is none of its table");
            }
            (Some(row), _) if key_of(def, row) != *key => {
                return fault("a write set changes a primary key");
            }
            (Some(row), host) => {
                let changes_unique = host.is_some_and(|host| def.unique_key_changes(host.bytes, row));
                let inserts_unique =
                    host.is_none() && def.indexes.iter().filter(|index| index.unique).count() > 1;
                // The device knows neither conditions nor other unique indexes.
                if def.check_row(row).is_err() || changes_unique || inserts_unique {
                    verdict = Verdict::Cpu(CpuReason::Condition);
                }
            }
            (None, Some(_)) => {}
            (None, None) => return fault("a write set removes a row that does not exist"),
        }
    }
    Ok(verdict)
}

/// Whether there is one result for each statement, of rows as the statement has them.
fn has_form(outcome: &Outcome, program: &Program) -> bool {
    outcome.statement_count() == program.outputs.len()
        && outcome
            .statements()
            .zip(&program.outputs)
            .all(|(statement, types)| {
                let layout = RowLayout::new(types);
                statement.rows().all(|row| layout.validate(row).is_ok())
            })
}
