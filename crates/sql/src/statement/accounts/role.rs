//! CREATE, ALTER and DROP ROLE; GRANT and REVOKE of roles.

use weft_store::{AccountOp, BOOTSTRAP_ROLE, Membership, RoleDef, RoleId};
use weft_types::{NoticeLevel, SqlError, SqlState, SqlType, Value};

use super::{GrantRoles, Password, RoleChange, RoleName, RoleOption, Work, denied, reserved};
use crate::error;

/// What a password's verifier begins with.
const SCRAM_PREFIX: &str = "SCRAM-SHA-256$";
/// The longest password or verifier, in bytes, as PostgreSQL reads one from a message.
const PASSWORD_BYTES_MAX: usize = 1024;

fn redundant() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options")
}

fn check_new_name(name: &str) -> Result<(), SqlError> {
    if name == "none" || name == "public" {
        return Err(reserved(name));
    }
    match name.starts_with("pg_") {
        true => Err(reserved(name).detail("Role names starting with \"pg_\" are reserved.")),
        false => Ok(()),
    }
}

/// Whether a text is a verifier as PostgreSQL stores it:
/// `SCRAM-SHA-256$iterations:salt$stored key:server key`.
fn is_verifier(text: &str) -> bool {
    let base64 = |text: &str, bytes: Option<usize>| {
        let plain = text.trim_end_matches('=');
        let digits = plain
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        let length = plain.len() * 3 / 4;
        digits && text.len().is_multiple_of(4) && bytes.is_none_or(|bytes| bytes == length) && length > 0
    };
    let parts = || {
        let (iterations, rest) = text.strip_prefix(SCRAM_PREFIX)?.split_once(':')?;
        let (salt, keys) = rest.split_once('$')?;
        let (stored, server) = keys.split_once(':')?;
        Some((iterations, salt, stored, server))
    };
    parts().is_some_and(|(iterations, salt, stored, server)| {
        iterations
            .parse::<u32>()
            .is_ok_and(|count| (1..=i32::MAX as u32).contains(&count))
            && base64(salt, None)
            && base64(stored, Some(32))
            && base64(server, Some(32))
    })
}

fn is_md5(text: &str) -> bool {
    let digits = text.strip_prefix("md5").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Work<'_> {
    pub(super) fn create_role(&mut self, name: &str, options: &[RoleOption]) -> Result<(), SqlError> {
        let on = |wanted: fn(&RoleOption) -> bool| options.iter().any(wanted);
        let denial = if on(|option| matches!(option, RoleOption::Superuser(true))) {
            (!self.is_superuser()).then_some("must be superuser to create superusers")
        } else if on(|option| matches!(option, RoleOption::Replication(true))) {
            (!self.is_superuser()).then_some("must be superuser to create replication users")
        } else if on(|option| matches!(option, RoleOption::BypassRls(true))) {
            (!self.is_superuser()).then_some("must be superuser to create bypassrls users")
        } else {
            (!self.may_manage_roles()).then_some("permission denied to create role")
        };
        if let Some(message) = denial {
            return Err(denied(message));
        }
        check_new_name(name)?;
        let mut role = RoleDef::new(RoleId(self.catalog.next_object_id()), name);
        if self.catalog.accounts().role_named(name).is_some() {
            let message = format!("role \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        self.apply_options(&mut role, options, true)?;
        let new = role.id;
        self.put_role(role)?;
        for option in options {
            match option {
                RoleOption::InRoles(groups) => {
                    for group in groups {
                        let group = self.role(group)?;
                        self.add_member(&group, new, false, self.actor.current)?;
                    }
                }
                RoleOption::Members(members, admin) => {
                    let group = self.role(&RoleName::Named(name.to_owned()))?;
                    for member in members {
                        let member = self.role(member)?.id;
                        self.add_member(&group, member, *admin, self.actor.current)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets what the options say. `is_new`: LOGIN may have been implied by CREATE USER.
    fn apply_options(
        &mut self,
        role: &mut RoleDef,
        options: &[RoleOption],
        is_new: bool,
    ) -> Result<(), SqlError> {
        let mut seen = Vec::with_capacity(options.len());
        for (number, option) in options.iter().enumerate() {
            let kind = std::mem::discriminant(option);
            let implied = is_new && number == 0 && matches!(option, RoleOption::Login(true));
            if !implied && seen.contains(&kind) && !matches!(option, RoleOption::Members(..)) {
                return Err(redundant());
            }
            if !implied {
                seen.push(kind);
            }
            match option {
                RoleOption::Superuser(on) => role.superuser = *on,
                RoleOption::CreateRole(on) => role.create_role = *on,
                RoleOption::Inherit(on) => role.inherit = *on,
                RoleOption::Login(on) => role.login = *on,
                RoleOption::CreateDb(on) => role.create_db = *on,
                RoleOption::Replication(_) | RoleOption::BypassRls(_) => {}
                RoleOption::Password(password) => role.password = self.password(password.as_ref())?,
                RoleOption::ConnectionLimit(limit) => {
                    let limit = i32::try_from(*limit).ok().filter(|limit| *limit >= -1);
                    role.connection_limit = limit.ok_or_else(|| {
                        let message = "invalid connection limit";
                        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                    })?;
                }
                RoleOption::ValidUntil(text) => {
                    match weft_types::parse_text_in(text, &SqlType::TimestampTz, &self.zone)? {
                        Value::TimestampTz(end) => role.valid_until = Some(end),
                        _ => role.valid_until = None,
                    }
                }
                RoleOption::InRoles(_) | RoleOption::Members(..) if !is_new => {
                    return Err(error::syntax("role"));
                }
                RoleOption::InRoles(_) | RoleOption::Members(..) => {}
                RoleOption::SysId => {
                    let notice = "SYSID can no longer be specified".to_owned();
                    self.notice(NoticeLevel::Notice, SqlState::SUCCESSFUL_COMPLETION, notice);
                }
            }
        }
        for option in options {
            // A superuser may do these things anyway; for others they would mean nothing.
            let what = match option {
                RoleOption::CreateDb(true) => "CREATEDB",
                RoleOption::Replication(true) => "REPLICATION",
                RoleOption::BypassRls(true) => "BYPASSRLS",
                _ => continue,
            };
            if !role.superuser {
                let message = format!("{what} for a role that is no superuser is not supported");
                return Err(error::unsupported(message));
            }
        }
        Ok(())
    }

    /// What is stored of a password: a verifier.
    fn password(&mut self, password: Option<&Password>) -> Result<Option<String>, SqlError> {
        let Some(Password(text)) = password else {
            return Ok(None);
        };
        if text.is_empty() {
            let notice = "empty string is not a valid password, clearing password".to_owned();
            self.notice(NoticeLevel::Notice, SqlState::SUCCESSFUL_COMPLETION, notice);
            return Ok(None);
        }
        if text.len() > PASSWORD_BYTES_MAX {
            let message = format!("a password has more than {PASSWORD_BYTES_MAX} bytes");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        if is_md5(text) {
            let error = error::unsupported("MD5 passwords are not supported");
            return Err(error.hint("Give the password itself, or a SCRAM-SHA-256 verifier."));
        }
        Ok(Some(match is_verifier(text) {
            true => text.clone(),
            false => (self.verifier)(text),
        }))
    }

    pub(super) fn alter_role(&mut self, name: &RoleName, change: &RoleChange) -> Result<(), SqlError> {
        let mut role = self.role(name)?;
        match change {
            RoleChange::Rename(new) => {
                let in_use = match role.id {
                    id if id == self.actor.session => Some("session user cannot be renamed"),
                    id if id == self.actor.current => Some("current user cannot be renamed"),
                    _ => None,
                };
                if let Some(message) = in_use {
                    return Err(error::unsupported(message));
                }
                check_new_name(new)?;
                if self.catalog.accounts().role_named(new).is_some() {
                    let message = format!("role \"{new}\" already exists");
                    return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
                }
                if role.superuser && !self.is_superuser() {
                    return Err(denied("must be superuser to rename superusers"));
                }
                if !self.may_manage_roles() {
                    return Err(denied("permission denied to rename role"));
                }
                role.name.clone_from(new);
            }
            RoleChange::Options(options) => {
                self.check_may_alter(&role, options)?;
                self.apply_options(&mut role, options, false)?;
            }
        }
        self.put_role(role)
    }

    /// Stores a role. Once a role has a password, clients must give one: a superuser without cannot log in.
    fn put_role(&mut self, role: RoleDef) -> Result<(), SqlError> {
        let demanded = self.catalog.accounts().demand_passwords();
        self.push(AccountOp::PutRole(role))?;
        self.check_still_demanded(demanded)?;
        let accounts = self.catalog.accounts();
        let can_log_in = |role: &RoleDef| role.superuser && role.login && role.password.is_some();
        if !demanded && accounts.demand_passwords() && !accounts.roles().any(|role| can_log_in(role)) {
            let message = "from now on clients must give passwords, and no superuser has one";
            let warning = SqlError::new(SqlState::WARNING, message);
            let warning = warning.hint("Use ALTER ROLE postgres PASSWORD, or weft init --password-file.");
            self.changes.notices.push((NoticeLevel::Warning, warning));
        }
        Ok(())
    }

    /// While no role has a password, none is asked for: so only a superuser takes the last one away.
    fn check_still_demanded(&self, demanded: bool) -> Result<(), SqlError> {
        match demanded && !self.catalog.accounts().demand_passwords() && !self.is_superuser() {
            true => Err(denied(
                "must be superuser to remove the last password of all roles",
            )),
            false => Ok(()),
        }
    }

    fn check_may_alter(&self, role: &RoleDef, options: &[RoleOption]) -> Result<(), SqlError> {
        if self.is_superuser() {
            return Ok(());
        }
        let names = |wanted: fn(&RoleOption) -> bool| options.iter().any(wanted);
        if role.superuser || names(|option| matches!(option, RoleOption::Superuser(_))) {
            return Err(denied(
                "must be superuser to alter superuser roles or change superuser attribute",
            ));
        }
        if names(|option| matches!(option, RoleOption::Replication(_))) {
            return Err(denied(
                "must be superuser to alter replication roles or change replication attribute",
            ));
        }
        if names(|option| matches!(option, RoleOption::BypassRls(_))) {
            return Err(denied("must be superuser to change bypassrls attribute"));
        }
        // Everybody may change the own password, and nothing else.
        let own_password = role.id == self.actor.current
            && !options.is_empty()
            && options
                .iter()
                .all(|option| matches!(option, RoleOption::Password(_)));
        match self.may_manage_roles() || own_password {
            true => Ok(()),
            false => Err(denied("permission denied")),
        }
    }

    pub(super) fn drop_roles(&mut self, names: &[RoleName], if_exists: bool) -> Result<(), SqlError> {
        if !self.may_manage_roles() {
            return Err(denied("permission denied to drop role"));
        }
        for name in names {
            let RoleName::Named(text) = name else {
                let message = "cannot use special role specifier in DROP ROLE";
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            };
            let role = match self.role(name) {
                Err(_) if if_exists => {
                    let notice = format!("role \"{text}\" does not exist, skipping");
                    self.notice(NoticeLevel::Notice, SqlState::SUCCESSFUL_COMPLETION, notice);
                    continue;
                }
                found => found?,
            };
            let in_use = match role.id {
                id if id == self.actor.current => Some("current user cannot be dropped"),
                id if id == self.actor.session => Some("session user cannot be dropped"),
                _ => None,
            };
            if let Some(message) = in_use {
                return Err(SqlError::new(SqlState::OBJECT_IN_USE, message));
            }
            if role.superuser && !self.is_superuser() {
                return Err(denied("must be superuser to drop superusers"));
            }
            let demanded = self.catalog.accounts().demand_passwords();
            self.push(AccountOp::DropRole(role.id))?;
            self.check_still_demanded(demanded)?;
        }
        Ok(())
    }

    pub(super) fn grant_roles(&mut self, grant: &GrantRoles) -> Result<(), SqlError> {
        let grantor = match &grant.granted_by {
            Some(name) => self.role(name)?.id,
            None => self.actor.current,
        };
        let mut members = Vec::with_capacity(grant.members.len());
        for member in &grant.members {
            members.push(self.role(member)?);
        }
        for name in &grant.roles {
            let role = self.role(&RoleName::Named(name.clone()))?;
            if !grant.is_grant {
                self.check_may_grant(&role)?;
            }
            for member in &members {
                match grant.is_grant {
                    true => self.add_member(&role, member.id, grant.admin, grantor)?,
                    false => self.remove_member(&role, member, grant.admin)?,
                }
            }
        }
        Ok(())
    }

    fn check_may_grant(&self, role: &RoleDef) -> Result<(), SqlError> {
        if role.superuser {
            return match self.is_superuser() {
                true => Ok(()),
                false => Err(denied("must be superuser to alter superusers")),
            };
        }
        match self.may_manage_roles() || self.catalog.accounts().is_admin_of(self.actor.current, role.id) {
            true => Ok(()),
            false => Err(denied(format!(
                "must have admin option on role \"{}\"",
                role.name
            ))),
        }
    }

    fn add_member(
        &mut self,
        role: &RoleDef,
        member: RoleId,
        admin: bool,
        grantor: RoleId,
    ) -> Result<(), SqlError> {
        self.check_may_grant(role)?;
        if grantor != self.actor.current && !self.is_superuser() {
            return Err(denied("must be superuser to set grantor"));
        }
        let accounts = self.catalog.accounts();
        if accounts
            .membership(role.id, member)
            .is_some_and(|known| known.admin || !admin)
        {
            let message = format!(
                "role \"{}\" is already a member of role \"{}\"",
                accounts.name(member),
                role.name
            );
            self.notice(NoticeLevel::Notice, SqlState::SUCCESSFUL_COMPLETION, message);
            return Ok(());
        }
        let grantor = match accounts.role(grantor) {
            Some(_) => grantor,
            None => BOOTSTRAP_ROLE,
        };
        self.push(AccountOp::PutMember {
            role: role.id,
            member,
            membership: Membership { grantor, admin },
        })
    }

    fn remove_member(&mut self, role: &RoleDef, member: &RoleDef, admin_only: bool) -> Result<(), SqlError> {
        let Some(known) = self.catalog.accounts().membership(role.id, member.id) else {
            let message = format!(
                "role \"{}\" is not a member of role \"{}\"",
                member.name, role.name
            );
            self.notice(NoticeLevel::Warning, SqlState::WARNING, message);
            return Ok(());
        };
        let (role, member) = (role.id, member.id);
        self.push(match admin_only {
            true => AccountOp::PutMember {
                role,
                member,
                membership: Membership {
                    admin: false,
                    ..known
                },
            },
            false => AccountOp::DropMember { role, member },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_is_recognised_and_a_password_like_one_is_not() {
        let keys = "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=";
        let good = format!("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==${keys}:{keys}");
        assert!(is_verifier(&good));
        for bad in [
            "SCRAM-SHA-256$",
            &good[..good.len() - 4],
            &good.replace("4096", "0"),
            &good.replace("4096", "many"),
            &good.replace('$', "-"),
            &good.replace("W22Z", "W2*Z"),
        ] {
            assert!(!is_verifier(bad), "{bad}");
        }
        assert!(is_md5("md5d3ba4a3aff8f2d3a3d0c8bd9cc3f2a1b"));
        assert!(!is_md5("md5 is no password hash"));
    }
}
