//! Foreign keys in a transaction: what its writes demand of other tables, and when that is checked.
//!
//! ```text
//!   a row gets a reference              demand: its parent is there
//!   a key of a parent goes              NO ACTION: demand: no row has it, or the parent is there again
//!                                       RESTRICT: looked for at the end of the statement
//!                                       CASCADE, SET NULL: the rows are changed at the end of the statement
//!   end of the statement                demands are checked, deferred ones are kept
//!   end of the transaction              deferred demands are checked
//! ```
//!
//! A demand speaks of a key, not of a row: that a row has a reference to it, while no parent has the key, is
//! what must not be. So it does not matter what became of the row in the meantime.
//!
//! No orphan is committed, whatever others do: whoever demands a parent holds the parent's key, as a value of
//! the index, in S until the end of the transaction; whoever takes a key away holds it in X. A change of
//! other columns of the parent concerns neither. With the lock granted, both look at the newest boundary,
//! whatever snapshot the transaction reads.
//!
//! Source: PostgreSQL 15, `ri_triggers.c`, for the meaning of the actions; DESIGN.md (Batches) for the key.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use weft_base::{RowId, TableId};
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_store::{
    Catalog, CheckTime, ConstraintDef, ConstraintId, ConstraintRule, ForeignKey, ParentKey,
    ReferentialAction, Snapshot, TableDef, prefix_successor,
};
use weft_types::{SqlError, SqlState, Value, encode_key_value};

use super::Transaction;
use crate::locks::LockRequests;
use crate::view::{Layers, ViewRow};

/// Rows that reference a key, of those that are changed at a time.
type Referencing = Vec<(RowId, Vec<u8>)>;

/// Whose write made a demand: it decides the words of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Child,
    Parent,
}

/// No row may reference a key that no parent has.
#[derive(Debug, Clone)]
struct Demand {
    constraint: Arc<ConstraintDef>,
    side: Side,
    /// `None`: a key that no parent can have.
    key: Option<Vec<u8>>,
    /// The row that has the key: of the table, or of the parent.
    row: Vec<u8>,
}

/// A key that a parent had.
#[derive(Debug, Clone)]
struct Gone {
    constraint: Arc<ConstraintDef>,
    parent: Arc<TableDef>,
    old: Vec<u8>,
    /// The parent's row now, unless it was deleted.
    new: Option<Vec<u8>>,
}

/// What a transaction's writes demand of other tables.
#[derive(Debug, Default)]
pub(super) struct References {
    gone: VecDeque<Gone>,
    demands: Vec<Demand>,
    /// What `demands` contains.
    known: HashSet<(ConstraintId, Side, Option<Vec<u8>>)>,
    deferred: Vec<Demand>,
    /// SET CONSTRAINTS ALL, and by name since then: whether deferred.
    all_deferred: Option<bool>,
    deferred_by_id: HashMap<ConstraintId, bool>,
}

impl References {
    /// How many deferred demands there are, for a savepoint.
    pub(super) fn mark(&self) -> usize {
        self.deferred.len()
    }

    /// Forgets what was demanded since.
    pub(super) fn rollback_to(&mut self, mark: usize) {
        self.deferred.truncate(mark);
        self.forget_statement();
    }

    fn forget_statement(&mut self) {
        self.gone.clear();
        self.demands.clear();
        self.known.clear();
    }

    fn demand(&mut self, demand: Demand) {
        let name = (demand.constraint.id, demand.side, demand.key.clone());
        if self.known.insert(name) {
            self.demands.push(demand);
        }
    }

    fn is_deferred(&self, constraint: &ConstraintDef) -> bool {
        let ConstraintRule::ForeignKey(key) = &constraint.rule else {
            return false;
        };
        let by_id = self.deferred_by_id.get(&constraint.id).copied();
        let by_transaction = by_id.or(self.all_deferred);
        match key.check_time {
            CheckTime::Statement => false,
            CheckTime::DeferrableStatement => by_transaction.unwrap_or(false),
            CheckTime::DeferrableCommit => by_transaction.unwrap_or(true),
        }
    }
}

fn key_rule(constraint: &ConstraintDef) -> Result<&ForeignKey, SqlError> {
    match &constraint.rule {
        ConstraintRule::ForeignKey(key) => Ok(key),
        ConstraintRule::Check { .. } => Err(SqlError::internal("not a foreign key")),
    }
}

impl Transaction {
    /// Notes a new row, or the new image of one.
    pub(super) fn note_row(
        &mut self,
        def: &TableDef,
        old: Option<&[u8]>,
        new: &[u8],
    ) -> Result<(), SqlError> {
        for (constraint, key) in def.foreign_keys() {
            if old.is_some_and(|old| !def.columns_change(&key.columns, old, new)) {
                continue;
            }
            let catalog = self.catalog();
            let Some(parent) = catalog.table_by_id(key.parent) else {
                continue;
            };
            let key = match key.parent_key(def, parent, new) {
                ParentKey::Null => continue,
                ParentKey::Key(key) => Some(key),
                ParentKey::Impossible => None,
            };
            self.references.demand(Demand {
                constraint: Arc::clone(constraint),
                side: Side::Child,
                key,
                row: new.to_vec(),
            });
        }
        Ok(())
    }

    /// Notes that a row of a parent goes or changes; takes its keys that go, in X.
    pub(super) fn note_parent(
        &mut self,
        def: &Arc<TableDef>,
        old: &[u8],
        new: Option<&[u8]>,
    ) -> Result<(), SqlError> {
        self.lock_keys_of_parents(def, [(old, new)])?;
        for (constraint, key) in def.references_to_it() {
            if new.is_some_and(|new| !def.columns_change(&key.parent_columns, old, new)) {
                continue;
            }
            self.references.gone.push_back(Gone {
                constraint: Arc::clone(constraint),
                parent: Arc::clone(def),
                old: old.to_vec(),
                new: new.map(<[u8]>::to_vec),
            });
        }
        Ok(())
    }

    /// Takes, in X, the keys that rows of a parent lose when they are deleted; `delete` does it for one row.
    pub fn lock_referenced_keys<'a>(
        &mut self,
        def: &TableDef,
        rows: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), SqlError> {
        self.lock_keys_of_parents(def, rows.into_iter().map(|row| (row, None)))
    }

    fn lock_keys_of_parents<'a>(
        &mut self,
        def: &TableDef,
        rows: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), SqlError> {
        // Who references a key has locked the table in IS.
        let whole_table = self.held.get(&ResourceId::table(def.id)) == Some(&LockMode::X);
        if def.referenced_by.is_empty() || whole_table {
            return Ok(());
        }
        let mut requests = LockRequests::new();
        for (old, new) in rows {
            for (_, key) in def.references_to_it() {
                let stays = new.is_some_and(|new| !def.columns_change(&key.parent_columns, old, new));
                if let Some(bytes) = key.key_of_parent(def, old).filter(|_| !stays) {
                    requests.push(LockRequest {
                        resource: ResourceId::value(key.index, &bytes),
                        mode: LockMode::X,
                    });
                }
            }
        }
        self.lock(requests)
    }

    /// Ends a statement that wrote rows: carries out what its changes of parents bring about, and checks what
    /// is not deferred.
    ///
    /// # Errors
    /// 23503, and the errors of the changes.
    pub fn end_statement(&mut self) -> Result<(), SqlError> {
        let result = self.carry_out_and_check();
        self.references.forget_statement();
        result
    }

    fn carry_out_and_check(&mut self) -> Result<(), SqlError> {
        while let Some(gone) = self.references.gone.pop_front() {
            self.carry_out(&gone)?;
        }
        let demands = std::mem::take(&mut self.references.demands);
        let (later, now): (Vec<_>, Vec<_>) = demands
            .into_iter()
            .partition(|demand| self.references.is_deferred(&demand.constraint));
        self.references.deferred.extend(later);
        self.check_demands(&now)
    }

    /// Checks everything that was deferred: before the transaction commits.
    ///
    /// # Errors
    /// 23503.
    pub fn check_deferred(&mut self) -> Result<(), SqlError> {
        let deferred = std::mem::take(&mut self.references.deferred);
        let result = self.check_demands(&deferred);
        // They stay: after ROLLBACK TO SAVEPOINT they may be violated again.
        self.references.deferred = deferred;
        result
    }

    /// SET CONSTRAINTS: all that are deferrable, or those with these names.
    ///
    /// # Errors
    /// 42704 for a name that no constraint has, 42809 for one that is not deferrable; 23503.
    pub fn set_constraints(&mut self, names: Option<&[String]>, deferred: bool) -> Result<(), SqlError> {
        let Some(names) = names else {
            self.references.all_deferred = Some(deferred);
            self.references.deferred_by_id.clear();
            return if deferred { Ok(()) } else { self.check_deferred() };
        };
        let catalog = self.catalog();
        for name in names {
            let constraints = catalog.tables().flat_map(|table| table.foreign_keys());
            let found: Vec<_> = constraints
                .filter(|(constraint, _)| constraint.name == *name)
                .collect();
            if found.is_empty() {
                let message = format!("constraint \"{name}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
            if found.iter().any(|(_, key)| !key.check_time.is_deferrable()) {
                let message = format!("constraint \"{name}\" is not deferrable");
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            for (constraint, _) in found {
                self.references.deferred_by_id.insert(constraint.id, deferred);
            }
        }
        if deferred {
            return Ok(());
        }
        let is_now = |demand: &&Demand| !self.references.is_deferred(&demand.constraint);
        let now: Vec<Demand> = self.references.deferred.iter().filter(is_now).cloned().collect();
        self.check_demands(&now)
    }

    /// Does what a foreign key says about a parent's key that has gone.
    fn carry_out(&mut self, gone: &Gone) -> Result<(), SqlError> {
        let rule = key_rule(&gone.constraint)?;
        let Some(key) = rule.key_of_parent(&gone.parent, &gone.old) else {
            return Ok(());
        };
        let action = match &gone.new {
            None => rule.on_delete,
            Some(_) => rule.on_update,
        };
        if action == ReferentialAction::NoAction {
            self.references.demand(Demand {
                constraint: Arc::clone(&gone.constraint),
                side: Side::Parent,
                key: Some(key),
                row: gone.old.clone(),
            });
            return Ok(());
        }
        let catalog = self.catalog();
        let Some(child) = catalog.table_by_id(gone.constraint.table) else {
            return Ok(());
        };
        self.lock_table(child.id, LockMode::IX)?;
        let snapshot = self.engine.snapshot();
        self.observe(snapshot.batch());
        let layers = Layers {
            snapshot: &snapshot,
            overlay: &self.overlay,
            catalog: &catalog,
        };
        let rows = referencing(layers, child, rule, &gone.parent, &gone.old, &key)?;
        if action == ReferentialAction::Restrict {
            return match rows.is_empty() {
                true => Ok(()),
                false => Err(gone.parent.still_referenced(&gone.constraint, child, &gone.old)),
            };
        }
        let locked = rows.iter().map(|(row_id, row)| (*row_id, row.as_slice()));
        self.lock_rows(child, locked, true)?;
        for (row_id, row) in rows {
            let Some(current) = self.current(child, row_id, &row)? else {
                continue;
            };
            if rule.parent_key(child, &gone.parent, &current) != ParentKey::Key(key.clone()) {
                continue;
            }
            match (action, &gone.new) {
                (ReferentialAction::Cascade, None) => self.delete(child, row_id, &current)?,
                (ReferentialAction::Cascade, Some(new)) => {
                    let values = rule
                        .values_for_children(child, &gone.parent, new)
                        .ok_or_else(|| {
                            let message = "the parent's new key does not fit the columns that reference it";
                            SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
                        })?;
                    let changed = with_values(child, &current, &rule.columns, values)?;
                    self.update(child, row_id, &current, &changed)?;
                }
                _ => {
                    let nulls = vec![Value::Null; rule.columns.len()];
                    let changed = with_values(child, &current, &rule.columns, nulls)?;
                    self.update(child, row_id, &current, &changed)?;
                }
            }
        }
        Ok(())
    }

    /// Locks the keys that are demanded and looks for them.
    fn check_demands(&mut self, demands: &[Demand]) -> Result<(), SqlError> {
        if demands.is_empty() {
            return Ok(());
        }
        let requests = self.keys_to_lock(demands)?;
        self.lock(requests)?;
        let snapshot = self.engine.snapshot();
        self.observe(snapshot.batch());
        for demand in demands {
            self.check_demand(&snapshot, demand)?;
        }
        Ok(())
    }

    /// The locks on the keys of parents that are demanded; on the whole parent, if they are very many.
    fn keys_to_lock(&self, demands: &[Demand]) -> Result<LockRequests, SqlError> {
        let mut by_parent: BTreeMap<TableId, Vec<ResourceId>> = BTreeMap::new();
        for demand in demands.iter().filter(|demand| demand.side == Side::Child) {
            let rule = key_rule(&demand.constraint)?;
            let keys = by_parent.entry(rule.parent).or_default();
            keys.extend(demand.key.as_ref().map(|key| ResourceId::value(rule.index, key)));
        }
        let keys_max = self.engine.shared().config.row_locks_before_escalation;
        let mut requests = LockRequests::new();
        for (parent, keys) in by_parent {
            let table = ResourceId::table(parent);
            if keys.len() >= keys_max {
                requests.push(LockRequest::new(table, LockMode::S));
                continue;
            }
            requests.push(LockRequest::new(table, LockMode::IS));
            requests.extend(keys.into_iter().map(|key| LockRequest::new(key, LockMode::S)));
        }
        Ok(requests)
    }

    fn check_demand(&mut self, snapshot: &Snapshot, demand: &Demand) -> Result<(), SqlError> {
        let catalog = self.catalog();
        let rule = key_rule(&demand.constraint)?;
        let Some((child, parent)) = tables_of(&catalog, &demand.constraint, rule) else {
            // The constraint, or a table, has gone since.
            return Ok(());
        };
        let layers = Layers {
            snapshot,
            overlay: &self.overlay,
            catalog: &catalog,
        };
        let mut found: SmallVec<[ViewRow<'_>; 1]> = SmallVec::new();
        if let (Some(key), Some(index)) = (&demand.key, parent.index(rule.index)) {
            layers.find(index, key, &mut found)?;
        }
        if !found.is_empty() {
            return Ok(());
        }
        let rows = match (demand.side, &demand.key) {
            (Side::Parent, Some(key)) => referencing(layers, child, rule, parent, &demand.row, key)?,
            (_, key) => {
                let of_key = |row: &[u8]| match (rule.parent_key(child, parent, row), key) {
                    (ParentKey::Key(other), Some(key)) => other == *key,
                    (ParentKey::Impossible, None) => true,
                    _ => false,
                };
                layers.matching(child.id, &of_key)?
            }
        };
        match (rows.first(), demand.side) {
            (None, _) => Ok(()),
            (Some((_, row)), Side::Child) => Err(child.missing_parent(&demand.constraint, parent, row)),
            (Some(_), Side::Parent) => Err(parent.still_referenced(&demand.constraint, child, &demand.row)),
        }
    }
}

/// The rows that reference a key of a parent, at the newest boundary and in the overlay.
fn referencing(
    layers: Layers<'_>,
    child: &TableDef,
    rule: &ForeignKey,
    parent: &TableDef,
    parent_row: &[u8],
    key: &[u8],
) -> Result<Referencing, SqlError> {
    let refers =
        |row: &[u8]| matches!(rule.parent_key(child, parent, row), ParentKey::Key(other) if other == key);
    let Some(index) = rule.index_of_children(child) else {
        return layers.matching(child.id, &refers);
    };
    let Some(values) = rule.values_for_children(child, parent, parent_row) else {
        return Ok(Referencing::new());
    };
    let mut prefix = Vec::new();
    for column in index.columns.iter().take(rule.columns.len()) {
        let place = rule.columns.iter().position(|own| own == column);
        let value = place.and_then(|place| values.get(place));
        encode_key_value(&mut prefix, value.unwrap_or(&Value::Null));
    }
    let mut found: Vec<ViewRow<'_>> = Vec::new();
    if index.columns.len() == rule.columns.len() {
        layers.find(index, &prefix, &mut found)?;
    } else {
        let end = prefix_successor(&prefix);
        let hi = end
            .as_deref()
            .map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        found = layers.range(index, std::ops::Bound::Included(&prefix), hi, false, usize::MAX)?;
    }
    let rows = found.into_iter().filter(|row| refers(&row.bytes));
    Ok(rows.map(|row| (row.row_id, row.bytes.into_owned())).collect())
}

/// The tables of a foreign key, unless it is gone.
fn tables_of<'c>(
    catalog: &'c Catalog,
    constraint: &ConstraintDef,
    rule: &ForeignKey,
) -> Option<(&'c Arc<TableDef>, &'c Arc<TableDef>)> {
    let child = catalog.table_by_id(constraint.table)?;
    let is_there = child.constraints.iter().any(|other| other.id == constraint.id);
    Some((child, catalog.table_by_id(rule.parent)?)).filter(|_| is_there)
}

/// A row with other values in some columns.
fn with_values(
    def: &TableDef,
    row: &[u8],
    columns: &[usize],
    values: Vec<Value>,
) -> Result<Vec<u8>, SqlError> {
    let decoded = def.layout.decode(row);
    let mut all = decoded.map_err(|error| SqlError::new(SqlState::DATA_CORRUPTED, error.to_string()))?;
    for (column, value) in columns.iter().zip(values) {
        if let Some(place) = all.get_mut(*column) {
            *place = value;
        }
    }
    def.layout.encode(&all)
}
