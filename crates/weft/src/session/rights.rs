//! Who the session acts as, and whether that role may run a plan.
//!
//! A plan is made for one version of the definitions and what a role may do is part of them: so a plan
//! remembers the role that was last allowed to run it ([`CheckedPlan`]), and a session of that role compares
//! one number. The bootstrap role is not even looked up.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use weft_base::TableId;
use weft_sql::statement::Plan;
use weft_sql::statement::accounts::{AccountStatement, Actor, operations};
use weft_sql::statement::rights::{Need, check, needs, object_denied};
use weft_store::{
    AccountOp, Accounts, BOOTSTRAP_ROLE, Catalog, CatalogOp, ConstraintDef, ConstraintRule, ObjectKind,
    Privileges, RoleId, SequenceId,
};
use weft_types::{SqlError, SqlState};

use super::Session;
use crate::sink::{CommandTag, PipelinePosition, ResultSink};

/// Privileges of which one is needed to draw a value.
pub(crate) const DRAW_PRIVILEGES: Privileges = Privileges::USAGE.union(Privileges::UPDATE);

/// A plan, what it needs the right to do, and who was last allowed to run it.
#[derive(Debug)]
pub(crate) struct CheckedPlan {
    plan: Plan,
    needs: OnceLock<Box<[Need]>>,
    /// 0: nobody.
    allowed: AtomicU32,
}

impl CheckedPlan {
    /// A plan that nobody has run.
    pub(crate) fn new(plan: Plan) -> CheckedPlan {
        CheckedPlan {
            plan,
            needs: OnceLock::new(),
            allowed: AtomicU32::new(0),
        }
    }

    /// The plan.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Refuses a role that may not run it under these definitions, which are those that it was made for.
    fn check(&self, catalog: &Catalog, role: RoleId) -> Result<(), SqlError> {
        if self.allowed.load(Ordering::Relaxed) == role.0 {
            return Ok(());
        }
        check(self.needs(catalog), catalog, role)?;
        self.allowed.store(role.0, Ordering::Relaxed);
        Ok(())
    }

    fn needs(&self, catalog: &Catalog) -> &[Need] {
        self.needs.get_or_init(|| needs(&self.plan, catalog).into())
    }
}

impl Deref for CheckedPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

/// The roles of a session. Part of its settings, so that a rollback restores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRoles {
    /// Who logged in.
    pub login: RoleId,
    /// `session_user`
    pub session: RoleId,
    /// `current_user`, if SET ROLE changed it.
    pub current: Option<RoleId>,
}

impl SessionRoles {
    pub(crate) fn of(login: RoleId) -> SessionRoles {
        SessionRoles {
            login,
            session: login,
            current: None,
        }
    }

    /// `current_user`
    pub(crate) fn acting(&self) -> RoleId {
        self.current.unwrap_or(self.session)
    }
}

impl Session {
    /// The role whose privileges count.
    pub(crate) fn acting_role(&self) -> RoleId {
        self.settings.roles.acting()
    }

    /// The name of a role; the bootstrap role has the name that the session began with.
    pub(crate) fn role_name(&self, role: RoleId) -> String {
        let catalog = self.shared.engine.catalog();
        match catalog.accounts().role(role) {
            _ if role == self.settings.roles.login => self.user.to_string(),
            Some(role) => role.name.clone(),
            None => self.user.to_string(),
        }
    }

    /// Whether no privilege is checked for the session's role.
    pub(crate) fn is_superuser(&self) -> bool {
        let role = self.acting_role();
        role == BOOTSTRAP_ROLE || self.shared.engine.catalog().accounts().is_superuser(role)
    }

    /// The definitions that say what roles may do: those of now, though the transaction may read an older
    /// snapshot, or its own if it changes them.
    pub(crate) fn rights_catalog(&self) -> Arc<Catalog> {
        match &self.open {
            Some(open) if open.txn.changes_catalog() => open.txn.catalog(),
            _ => self.shared.engine.catalog(),
        }
    }

    /// Refuses a plan that the session's role may not run.
    pub(crate) fn check_rights(&self, plan: &CheckedPlan) -> Result<(), SqlError> {
        match self.acting_role() {
            BOOTSTRAP_ROLE => Ok(()),
            role => self.check_rights_of(plan, role),
        }
    }

    fn check_rights_of(&self, plan: &CheckedPlan, role: RoleId) -> Result<(), SqlError> {
        let catalog = self.catalog();
        plan.check(&catalog, role)?;
        let Some(open) = &self.open else {
            return Ok(());
        };
        // A transaction may read an older snapshot, but privileges are those of now.
        let newest = self.shared.engine.catalog();
        if open.txn.changes_catalog() || newest.version() == catalog.version() {
            return Ok(());
        }
        check(plan.needs(&catalog), &newest, role)
    }

    /// Refuses a sequence that the session's role may not use. Values of identity columns come with INSERT.
    pub(crate) fn check_sequence(&self, sequence: SequenceId, any: Privileges) -> Result<(), SqlError> {
        match self.acting_role() {
            BOOTSTRAP_ROLE => Ok(()),
            role => may_use_sequence(&self.rights_catalog(), role, sequence, any),
        }
    }

    /// An error as the session's role may see it: rows and keys in its detail are for whoever may read the
    /// tables that they are from.
    pub fn hide_rows(&self, error: &mut SqlError) {
        let role = self.acting_role();
        let hides = [
            SqlState::NOT_NULL_VIOLATION,
            SqlState::UNIQUE_VIOLATION,
            SqlState::CHECK_VIOLATION,
            SqlState::FOREIGN_KEY_VIOLATION,
        ];
        if role == BOOTSTRAP_ROLE || !hides.contains(&error.state) || error.fields().detail.is_none() {
            return;
        }
        let catalog = self.rights_catalog();
        let fields = error.fields();
        let table = fields.table.as_deref().and_then(|name| catalog.table(name));
        let constraint = table.and_then(|table| {
            let named = |known: &&Arc<ConstraintDef>| Some(&known.name) == fields.constraint.as_ref();
            table.constraints.iter().find(named)
        });
        let parent = constraint.and_then(|constraint| match &constraint.rule {
            ConstraintRule::ForeignKey(key) => Some(key.parent),
            ConstraintRule::Check { .. } => None,
        });
        let mut tables = table.map(|table| table.id).into_iter().chain(parent);
        let may_read = |id: TableId| catalog.privileges_of(role, id.0).contains(Privileges::SELECT);
        // A table that is not known any more is hidden as well.
        if table.is_none() || !tables.all(may_read) {
            error.fields_mut().detail = None;
        }
    }

    /// Runs a statement on accounts.
    pub(crate) fn run_account(
        &mut self,
        statement: &AccountStatement,
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let actor = Actor {
            current: self.acting_role(),
            session: self.settings.roles.session,
        };
        let zone = self.settings.zone;
        let verifier = |password: &str| postgres_protocol::password::scram_sha_256(password.as_bytes());
        // Whoever may not do it gets no lock that others wait for.
        operations(statement, &self.rights_catalog(), actor, &verifier, zone)?;
        self.transaction().txn.lock_catalog()?;
        let newest = self.rights_catalog();
        let changes = operations(statement, &newest, actor, &verifier, zone)?;
        let open = self.transaction();
        for (level, notice) in &changes.notices {
            sink.notice(*level, notice);
        }
        for op in changes.ops {
            open.txn.catalog_op(op)?;
        }
        let observed = open.txn.observed();
        self.gate.raise(observed);
        if position == PipelinePosition::Alone && self.open.as_ref().is_some_and(|open| !open.explicit) {
            self.sync()?;
        }
        sink.complete(&CommandTag::plain(statement.tag()));
        Ok(())
    }

    /// Sets `role` or `session_authorization`; false for another setting.
    pub(super) fn set_roles(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
    ) -> Result<bool, SqlError> {
        let catalog = self.rights_catalog();
        let login = (&*self.user, &self.settings.roles);
        match roles_after(catalog.accounts(), login, name, value)? {
            Some(roles) => self.take_roles(roles, local).map(|()| true),
            None => Ok(false),
        }
    }

    /// Becomes other roles, with the settings that tell of them.
    pub(crate) fn take_roles(&mut self, roles: SessionRoles, local: bool) -> Result<(), SqlError> {
        let catalog = self.rights_catalog();
        let superuser = catalog.accounts().is_superuser(roles.acting());
        let session = self.role_name(roles.session);
        let role = roles
            .current
            .map_or("none".to_owned(), |role| self.role_name(role));
        self.change_settings(local, &|settings, _| {
            settings.set_roles(roles.clone(), &session, &role, superuser);
            Ok(())
        })
    }
}

/// The roles of a session after `SET name TO value`, or RESET; `None` for a setting that is none of roles.
/// `session` is the name that it began with, and its roles.
///
/// # Errors
/// 22023 for a role that does not exist, 42501 for one that the session may not become.
pub(crate) fn roles_after(
    accounts: &Accounts,
    session: (&str, &SessionRoles),
    name: &str,
    value: Option<&str>,
) -> Result<Option<SessionRoles>, SqlError> {
    let (user, old) = session;
    let named = |value: &str| {
        let found = match value == user {
            true => Some(old.login),
            false => accounts.role_named(value).map(|role| role.id),
        };
        found.ok_or_else(|| {
            let message = format!("role \"{value}\" does not exist");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        })
    };
    let denied = |message: String| SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message);
    let with_role = |current: Option<RoleId>| SessionRoles {
        current,
        ..old.clone()
    };
    match (name.to_ascii_lowercase().as_str(), value) {
        ("role", None | Some("none")) => Ok(Some(with_role(None))),
        ("role", Some(value)) => {
            let role = named(value)?;
            match accounts.is_member_of(old.session, role) {
                true => Ok(Some(with_role(Some(role)))),
                false => Err(denied(format!("permission denied to set role \"{value}\""))),
            }
        }
        ("session_authorization", None) => Ok(Some(SessionRoles::of(old.login))),
        ("session_authorization", Some(value)) => {
            let role = named(value)?;
            match role == old.login || accounts.is_superuser(old.login) {
                true => Ok(Some(SessionRoles {
                    session: role,
                    ..with_role(None)
                })),
                false => Err(denied(
                    "permission denied to set session authorization".to_owned(),
                )),
            }
        }
        _ => Ok(None),
    }
}

/// Refuses a role that has none of these privileges on a sequence. Values for an identity column are drawn
/// for whoever may insert into its table.
pub(crate) fn may_use_sequence(
    catalog: &Catalog,
    role: RoleId,
    sequence: SequenceId,
    any: Privileges,
) -> Result<(), SqlError> {
    if catalog.privileges_of(role, sequence.0).intersects(any) {
        return Ok(());
    }
    let identity = catalog
        .sequence_by_id(sequence)
        .and_then(|def| def.owned_by)
        .and_then(|(table, column)| {
            let column = catalog.table_by_id(table)?.columns.get(column as usize)?;
            column.identity.map(|_| table)
        });
    match identity {
        Some(table)
            if any == DRAW_PRIVILEGES
                && catalog.privileges_of(role, table.0).contains(Privileges::INSERT) =>
        {
            Ok(())
        }
        _ => Err(object_denied(catalog, sequence.0)),
    }
}

/// The operations that give what an operation created to its creator.
pub(crate) fn ownership_of(
    op: &CatalogOp,
    catalog: &Catalog,
    is_new: bool,
    creator: RoleId,
) -> Vec<AccountOp> {
    let (object, kind) = match op {
        CatalogOp::CreateTable(table) => (table.id.0, ObjectKind::Table),
        CatalogOp::CreateSequence(sequence) => (sequence.id.0, ObjectKind::Sequence),
        CatalogOp::PutProcedure(procedure) if is_new => (procedure.id.0, ObjectKind::Procedure),
        // Default privileges on tables are those on views.
        CatalogOp::PutView(view) if is_new => (view.id.0, ObjectKind::Table),
        _ => return Vec::new(),
    };
    catalog.ops_of_new_object(object, kind, creator)
}
