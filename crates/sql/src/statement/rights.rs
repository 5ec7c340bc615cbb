//! What a plan needs the right to do, and whether a role may do it.
//!
//! Planning does not know who will run a plan: plans are shared by all sessions. So [`needs`] reads from a
//! finished plan what it does to which objects, and [`check`] compares that with a role's privileges in the
//! catalog that the plan was made for. A REVOKE changes the catalog's version, which makes the plan stale, so
//! a role that was allowed to run a plan need not be checked again.
//!
//! Privileges are those of PostgreSQL on whole tables: reading any column needs SELECT, an UPDATE or DELETE
//! that reads no column does not. Everything of a procedure's body is checked when it is called, also what
//! would not be reached. Values of sequences are checked where they are drawn.

use std::ops::ControlFlow;

use sqlparser::ast::{self, Visit, Visitor};
use weft_base::{IndexId, TableId};
use weft_store::{
    BOOTSTRAP_ROLE, Catalog, CatalogOp, Commented, ConstraintRule, ObjectKind, PUBLIC_SCHEMA_OID, Privileges,
    RoleId, ViewId,
};
use weft_types::{SqlError, SqlState};

use super::compile::point::PointStatement;
use super::compile::shape::is_default;
use super::control::CursorPlan;
use super::copy::CopyPlan;
use super::ddl::comment;
use super::plan::{DdlPlan, MaintenancePlan, ModifyPlan, Plan, ProgramPlan, QueryPlan, RowLocks};
use weft_binder::relation::{ModifyKind, Query};

/// One thing that a plan needs the right to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All of these privileges on an object.
    All(u32, Privileges),
    /// At least one of these privileges on an object.
    Any(u32, Privileges),
    /// An object of the schema is named.
    Schema(Privileges),
    /// What only the owner of a table, sequence or procedure may do.
    Owner(u32),
    /// The owner of this view needs SELECT on an object that its query names.
    OfOwner(ViewId, u32),
    /// What only the owner of an index's table may do.
    IndexOwner(IndexId),
    /// What only who may comment on an object may do.
    Comment(Commented),
    /// CHECKPOINT.
    Checkpoint,
}

impl Need {
    fn table(table: TableId, privileges: Privileges) -> Need {
        Need::All(table.0, privileges)
    }

    /// What a point statement needs.
    pub(crate) fn of_point(statement: &PointStatement) -> Need {
        use Privileges as P;
        let when = |on: bool, privileges: P| if on { privileges } else { P::NONE };
        match statement {
            PointStatement::Select(select) => {
                Need::table(select.table.id, P::SELECT.union(when(select.locks, P::UPDATE)))
            }
            // Rows are found by their key.
            PointStatement::Change(change) => Need::table(
                change.table.id,
                P::SELECT.union(match change.assignments {
                    Some(_) => P::UPDATE,
                    None => P::DELETE,
                }),
            ),
            PointStatement::Insert(insert) => {
                let conflict = insert.on_conflict.as_ref();
                let updates = conflict.is_some_and(|conflict| conflict.updates.is_some());
                let names_arbiter = conflict.is_some_and(|conflict| conflict.is_named);
                let mut returned = insert.returning.iter();
                let reads = names_arbiter || returned.any(|item| item.scalar.has_column());
                let privileges = P::INSERT
                    .union(when(updates, P::UPDATE))
                    .union(when(reads, P::SELECT));
                Need::table(insert.table.id, privileges)
            }
        }
    }
}

/// What a plan needs, without duplicates, in the order in which it is checked.
pub fn needs(plan: &Plan, catalog: &Catalog) -> Vec<Need> {
    let mut needs = Vec::new();
    collect(plan, catalog, &mut needs);
    let names_objects = needs.iter().any(|need| {
        let (Need::All(object, _) | Need::Any(object, _)) = need else {
            return false;
        };
        *object != PUBLIC_SCHEMA_OID
    });
    if names_objects {
        needs.insert(0, Need::Schema(Privileges::USAGE));
    }
    needs
}

fn add(needs: &mut Vec<Need>, need: Need) {
    if !needs.contains(&need) {
        needs.push(need);
    }
}

fn collect(plan: &Plan, catalog: &Catalog, needs: &mut Vec<Need>) {
    match plan {
        Plan::Program(plan) => of_program(plan, catalog, needs),
        Plan::Query(plan) => of_query(plan, needs),
        Plan::Modify(plan) => of_modify(plan, needs),
        Plan::Ddl(plan) => of_ddl(plan, catalog, needs),
        Plan::Copy(plan) => match plan.as_ref() {
            CopyPlan::To { plan, .. } => collect(plan, catalog, needs),
            CopyPlan::From { table, .. } => add(needs, Need::table(table.id, Privileges::INSERT)),
        },
        Plan::Explain(plan) => collect(&plan.inner, catalog, needs),
        Plan::Cursor(plan) => {
            if let CursorPlan::Declare { plan, .. } = plan.as_ref() {
                collect(plan, catalog, needs);
            }
        }
        Plan::Maintenance(plan) => of_maintenance(plan, needs),
        // A statement made by PREPARE is checked when it is executed; roles check for themselves.
        Plan::Empty
        | Plan::Constant(_)
        | Plan::Transaction(_)
        | Plan::Setting(_)
        | Plan::Prepared(_)
        | Plan::Account(_) => {}
    }
}

fn of_program(plan: &ProgramPlan, catalog: &Catalog, needs: &mut Vec<Need>) {
    if let Some(call) = &plan.procedure
        && let Some(procedure) = catalog.procedure(&call.name)
    {
        add(needs, Need::All(procedure.id.0, Privileges::EXECUTE));
    }
    plan.needs.iter().for_each(|need| add(needs, *need));
}

fn reads(query: &Query, but: Option<TableId>, needs: &mut Vec<Need>) {
    for read in &query.reads {
        match read.through {
            None if but.is_some_and(|but| but.0 == read.relation) => {}
            None => add(needs, Need::All(read.relation, Privileges::SELECT)),
            Some(view) => add(needs, Need::OfOwner(view, read.relation)),
        }
    }
}

fn of_query(plan: &QueryPlan, needs: &mut Vec<Need>) {
    reads(&plan.query, None, needs);
    locks(plan.row_locks.iter(), needs);
    of_steps(&plan.steps, needs);
}

fn of_steps(steps: &[(usize, RowLocks)], needs: &mut Vec<Need>) {
    for (_, step) in steps {
        reads(&step.rows, None, needs);
        locks([step], needs);
    }
}

fn locks<'l>(locks: impl IntoIterator<Item = &'l RowLocks>, needs: &mut Vec<Need>) {
    for table in locks.into_iter().flat_map(|locks| &locks.tables) {
        add(needs, Need::table(*table, Privileges::UPDATE));
    }
}

fn of_modify(plan: &ModifyPlan, needs: &mut Vec<Need>) {
    let modify = &plan.modify;
    let target = modify.table.id;
    let conflict = modify.conflict.as_ref();
    let mut privileges = match modify.kind {
        ModifyKind::Insert => Privileges::INSERT,
        ModifyKind::Update => Privileges::UPDATE,
        ModifyKind::Delete => Privileges::DELETE,
    };
    if plan.reads_target {
        privileges = privileges.union(Privileges::SELECT);
    }
    if conflict.is_some_and(|conflict| conflict.update.is_some()) {
        privileges = privileges.union(Privileges::UPDATE);
    }
    add(needs, Need::table(target, privileges));
    // The rows of UPDATE and DELETE are those of the target.
    let but = (modify.kind != ModifyKind::Insert).then_some(target);
    reads(&modify.rows, but, needs);
    of_steps(&plan.steps, needs);
    if let Some(returning) = &modify.returning {
        reads(returning, None, needs);
    }
    if let Some(update) = conflict.and_then(|conflict| conflict.update.as_ref()) {
        reads(&update.rows, None, needs);
    }
}

fn of_maintenance(plan: &MaintenancePlan, needs: &mut Vec<Need>) {
    match plan {
        MaintenancePlan::Checkpoint => add(needs, Need::Checkpoint),
        MaintenancePlan::LockTable {
            tables, privileges, ..
        } => {
            for table in tables {
                add(needs, Need::Any(table.0, *privileges));
            }
        }
        // They change nothing.
        MaintenancePlan::Vacuum(_) | MaintenancePlan::Analyze(_) | MaintenancePlan::Ignored(_) => {}
    }
}

fn of_ddl(plan: &DdlPlan, catalog: &Catalog, needs: &mut Vec<Need>) {
    // What the statement itself creates is its own.
    let is_new = |id: u32| id >= catalog.next_object_id();
    let owner = |id: u32, needs: &mut Vec<Need>| {
        if !is_new(id) {
            add(needs, Need::Owner(id));
        }
    };
    for op in &plan.ops {
        match op {
            CatalogOp::CreateTable(_) | CatalogOp::CreateSequence(_) => {
                add(needs, Need::Schema(Privileges::CREATE));
            }
            CatalogOp::PutProcedure(procedure) => match is_new(procedure.id.0) {
                true => add(needs, Need::Schema(Privileges::CREATE)),
                false => owner(procedure.id.0, needs),
            },
            CatalogOp::Truncate(table) => add(needs, Need::table(*table, Privileges::TRUNCATE)),
            CatalogOp::DropTable(table)
            | CatalogOp::SetNotNull { table, .. }
            | CatalogOp::SetDefault { table, .. }
            | CatalogOp::AddColumn { table, .. }
            | CatalogOp::DropColumn { table, .. }
            | CatalogOp::RenameTable { table, .. }
            | CatalogOp::RenameColumn { table, .. }
            | CatalogOp::SetColumnType { table, .. }
            | CatalogOp::RetypeColumn { table, .. }
            | CatalogOp::SetIdentity { table, .. }
            | CatalogOp::DropConstraint { table, .. }
            | CatalogOp::SetDistribution { table, .. } => owner(table.0, needs),
            CatalogOp::PutConstraint(constraint) => {
                owner(constraint.table.0, needs);
                if let ConstraintRule::ForeignKey(key) = &constraint.rule
                    && !is_new(key.parent.0)
                {
                    add(needs, Need::table(key.parent, Privileges::REFERENCES));
                }
            }
            CatalogOp::CreateIndex(index) | CatalogOp::AddPrimaryKey(index) => {
                owner(index.table.0, needs);
                add(needs, Need::Schema(Privileges::CREATE));
            }
            CatalogOp::DropIndex(index) | CatalogOp::RenameIndex { index, .. } => {
                if catalog.index_by_id(*index).is_some() {
                    add(needs, Need::IndexOwner(*index));
                }
            }
            CatalogOp::DropSequence(id)
            | CatalogOp::SetSequenceOwner { id, .. }
            | CatalogOp::AdvanceSequence { id, .. }
            | CatalogOp::SetSequence { id, .. } => owner(id.0, needs),
            CatalogOp::DropProcedure(id) => owner(id.0, needs),
            CatalogOp::PutView(view) => match is_new(view.id.0) {
                true => add(needs, Need::Schema(Privileges::CREATE)),
                false => owner(view.id.0, needs),
            },
            CatalogOp::DropView(id) => owner(id.0, needs),
            CatalogOp::Comment { on, .. } => add(needs, Need::Comment(*on)),
            // Made by statements on accounts, which check for themselves.
            CatalogOp::Account(_) => {}
        }
    }
}

fn denied(kind: &str, name: &str) -> SqlError {
    let message = format!("permission denied for {kind} {name}");
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

/// 42501 for a role that lacks privileges on an object.
pub fn object_denied(catalog: &Catalog, object: u32) -> SqlError {
    let kind = catalog.object_kind(object).map_or("object", ObjectKind::noun);
    denied(kind, catalog.object_name(object).unwrap_or_default())
}

/// 42501 for a role that does not own an object.
pub fn not_owner(kind: &str, name: &str) -> SqlError {
    let message = format!("must be owner of {kind} {name}");
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

/// Whether `role` may do all that is needed; PostgreSQL's error for the first that it may not. An object that
/// is gone is not needed any more: a plan that names one is stale.
///
/// # Errors
/// 42501.
pub fn check(needs: &[Need], catalog: &Catalog, role: RoleId) -> Result<(), SqlError> {
    if role == BOOTSTRAP_ROLE || catalog.accounts().is_superuser(role) {
        return Ok(());
    }
    needs.iter().try_for_each(|need| check_one(*need, catalog, role))
}

fn check_one(need: Need, catalog: &Catalog, role: RoleId) -> Result<(), SqlError> {
    let has = |object: u32| catalog.privileges_of(role, object);
    let (object, allowed) = match need {
        Need::All(object, privileges) => (object, has(object).contains(privileges)),
        Need::Any(object, privileges) => (object, has(object).intersects(privileges)),
        Need::Schema(privileges) => (PUBLIC_SCHEMA_OID, has(PUBLIC_SCHEMA_OID).contains(privileges)),
        Need::Owner(object) => {
            let kind = catalog.object_kind(object);
            return match kind.is_none() || catalog.is_owner(role, object) {
                true => Ok(()),
                false => Err(not_owner(
                    kind.map_or("object", ObjectKind::noun),
                    catalog.object_name(object).unwrap_or_default(),
                )),
            };
        }
        Need::OfOwner(view, object) => {
            let owned = catalog.privileges_of(catalog.owner_of(view.0), object);
            (object, owned.contains(Privileges::SELECT))
        }
        Need::IndexOwner(index) => {
            return match catalog.index_by_id(index) {
                Some(def) if !catalog.is_owner(role, def.table.0) => Err(not_owner("index", &def.name)),
                _ => Ok(()),
            };
        }
        Need::Comment(on) => return comment::check_owner(on, catalog, role),
        Need::Checkpoint => {
            let message = "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
    };
    match allowed || catalog.object_kind(object).is_none() {
        true => Ok(()),
        false => Err(object_denied(catalog, object)),
    }
}

/// Whether a statement that changes rows reads columns of the table that it changes.
pub(crate) fn reads_target(statement: &ast::Statement) -> bool {
    let returns = |items: &Option<Vec<ast::SelectItem>>| {
        let mut items = items.iter().flatten();
        items.any(|item| match item {
            ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => {
                names_columns(expr)
            }
            _ => true,
        })
    };
    match statement {
        ast::Statement::Insert(insert) => {
            let target = match &insert.on {
                Some(ast::OnInsert::OnConflict(conflict)) => conflict.conflict_target.is_some(),
                _ => false,
            };
            target || returns(&insert.returning)
        }
        ast::Statement::Update(update) => {
            let values = || update.assignments.iter().any(|set| reads_columns(&set.value));
            update.from.is_some()
                || update.selection.as_ref().is_some_and(names_columns)
                || values()
                || returns(&update.returning)
        }
        ast::Statement::Delete(delete) => {
            delete.using.is_some()
                || delete.selection.as_ref().is_some_and(names_columns)
                || returns(&delete.returning)
        }
        ast::Statement::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Insert(inner) | ast::SetExpr::Update(inner) | ast::SetExpr::Delete(inner) => {
                reads_target(inner)
            }
            _ => true,
        },
        _ => true,
    }
}

/// The same for an assigned value, where DEFAULT is no name.
fn reads_columns(value: &ast::Expr) -> bool {
    match value {
        ast::Expr::Tuple(values) => values.iter().any(reads_columns),
        ast::Expr::Nested(value) => reads_columns(value),
        value => !is_default(value) && names_columns(value),
    }
}

fn names_columns(expr: &ast::Expr) -> bool {
    expr.visit(&mut ColumnNames).is_break()
}

/// Stops at whatever may read a table's columns: a name, and a query in any form, which may read the table
/// without naming a column.
struct ColumnNames;

impl Visitor for ColumnNames {
    type Break = ();

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        match expr {
            ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
