//! Access control lists: who was granted which privileges on an object, by whom.
//!
//! The rules are PostgreSQL's (`utils/adt/acl.c`): a list has at most one item for a grantee and a grantor;
//! an owner can always grant what the object has; who revokes a grant option also revokes what was granted by
//! means of it (CASCADE), or is refused (RESTRICT).

use std::fmt::Write;

use weft_types::{SqlError, SqlState};

use super::{PUBLIC_ROLE, RoleId};

/// A set of privileges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Privileges(pub u16);

impl Privileges {
    /// None.
    pub const NONE: Privileges = Privileges(0);
    /// INSERT
    pub const INSERT: Privileges = Privileges(1);
    /// SELECT
    pub const SELECT: Privileges = Privileges(1 << 1);
    /// UPDATE
    pub const UPDATE: Privileges = Privileges(1 << 2);
    /// DELETE
    pub const DELETE: Privileges = Privileges(1 << 3);
    /// TRUNCATE
    pub const TRUNCATE: Privileges = Privileges(1 << 4);
    /// REFERENCES
    pub const REFERENCES: Privileges = Privileges(1 << 5);
    /// TRIGGER
    pub const TRIGGER: Privileges = Privileges(1 << 6);
    /// EXECUTE
    pub const EXECUTE: Privileges = Privileges(1 << 7);
    /// USAGE
    pub const USAGE: Privileges = Privileges(1 << 8);
    /// CREATE
    pub const CREATE: Privileges = Privileges(1 << 9);
    /// TEMPORARY
    pub const TEMPORARY: Privileges = Privileges(1 << 10);
    /// CONNECT
    pub const CONNECT: Privileges = Privileges(1 << 11);
    /// All.
    pub const ALL: Privileges = Privileges((1 << 12) - 1);

    /// Each privilege with its word and its letter in an aclitem, in the order of the bits.
    pub const WORDS: [(Privileges, &'static str, char); 12] = [
        (Privileges::INSERT, "INSERT", 'a'),
        (Privileges::SELECT, "SELECT", 'r'),
        (Privileges::UPDATE, "UPDATE", 'w'),
        (Privileges::DELETE, "DELETE", 'd'),
        (Privileges::TRUNCATE, "TRUNCATE", 'D'),
        (Privileges::REFERENCES, "REFERENCES", 'x'),
        (Privileges::TRIGGER, "TRIGGER", 't'),
        (Privileges::EXECUTE, "EXECUTE", 'X'),
        (Privileges::USAGE, "USAGE", 'U'),
        (Privileges::CREATE, "CREATE", 'C'),
        (Privileges::TEMPORARY, "TEMPORARY", 'T'),
        (Privileges::CONNECT, "CONNECT", 'c'),
    ];

    /// The privilege that a word names, without regard to case.
    pub fn parse(word: &str) -> Option<Privileges> {
        let word = match word.to_ascii_uppercase().as_str() {
            "TEMP" => "TEMPORARY".to_owned(),
            other => other.to_owned(),
        };
        let found = Privileges::WORDS.iter().find(|(_, known, _)| *known == word);
        found.map(|(privilege, _, _)| *privilege)
    }

    /// No privilege.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// All of `other`.
    pub fn contains(self, other: Privileges) -> bool {
        self.0 & other.0 == other.0
    }

    /// At least one of `other`.
    pub fn intersects(self, other: Privileges) -> bool {
        self.0 & other.0 != 0
    }

    /// Those of both.
    pub const fn union(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }

    /// Those that both have.
    pub const fn and(self, other: Privileges) -> Privileges {
        Privileges(self.0 & other.0)
    }

    /// Those that `other` does not have.
    pub const fn without(self, other: Privileges) -> Privileges {
        Privileges(self.0 & !other.0)
    }
}

/// The kinds of objects that have privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A table.
    Table,
    /// A sequence.
    Sequence,
    /// A procedure.
    Procedure,
    /// The schema.
    Schema,
    /// The database.
    Database,
    /// A view.
    View,
}

impl ObjectKind {
    /// The privileges that objects of the kind have.
    pub const fn all(self) -> Privileges {
        use Privileges as P;
        match self {
            ObjectKind::Table | ObjectKind::View => P(0b111_1111),
            ObjectKind::Sequence => P::SELECT.union(P::UPDATE).union(P::USAGE),
            ObjectKind::Procedure => P::EXECUTE,
            ObjectKind::Schema => P::USAGE.union(P::CREATE),
            ObjectKind::Database => P::CREATE.union(P::TEMPORARY).union(P::CONNECT),
        }
    }

    /// As messages name it.
    pub fn noun(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::Sequence => "sequence",
            ObjectKind::Procedure => "procedure",
            ObjectKind::Schema => "schema",
            ObjectKind::Database => "database",
            ObjectKind::View => "view",
        }
    }

    /// As messages about default privileges name several.
    pub fn plural(self) -> &'static str {
        match self {
            ObjectKind::Table | ObjectKind::View => "relations",
            ObjectKind::Sequence => "sequences",
            ObjectKind::Procedure => "functions",
            ObjectKind::Schema => "schemas",
            ObjectKind::Database => "databases",
        }
    }

    /// The letter in `pg_default_acl.defaclobjtype`.
    pub fn letter(self) -> char {
        match self {
            ObjectKind::Table | ObjectKind::View => 'r',
            ObjectKind::Sequence => 'S',
            ObjectKind::Procedure => 'f',
            ObjectKind::Schema => 'n',
            ObjectKind::Database => 'd',
        }
    }
}

/// What one role was granted by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclItem {
    /// Who has the privileges; [`PUBLIC_ROLE`] for everybody.
    pub grantee: RoleId,
    /// Who granted them.
    pub grantor: RoleId,
    /// The privileges.
    pub privileges: Privileges,
    /// Those that the grantee may grant to others.
    pub grantable: Privileges,
}

/// What a REVOKE does about privileges that were granted by means of the revoked ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    /// RESTRICT: it is refused (2BP01).
    Refuse,
    /// CASCADE: they are revoked, too.
    Revoke,
}

/// An access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    pub(super) items: Vec<AclItem>,
}

impl Acl {
    /// The privileges of a new object: all for its owner; for everybody EXECUTE of procedures, USAGE of the
    /// schema, CONNECT and TEMPORARY of the database.
    pub fn default_of(kind: ObjectKind, owner: RoleId) -> Acl {
        let public = match kind {
            ObjectKind::Table | ObjectKind::View | ObjectKind::Sequence => Privileges::NONE,
            ObjectKind::Procedure => Privileges::EXECUTE,
            ObjectKind::Schema => Privileges::USAGE,
            ObjectKind::Database => Privileges::CONNECT.union(Privileges::TEMPORARY),
        };
        let item = |grantee, privileges| AclItem {
            grantee,
            grantor: owner,
            privileges,
            grantable: Privileges::NONE,
        };
        let mut items = Vec::with_capacity(2);
        if !public.is_none() {
            items.push(item(PUBLIC_ROLE, public));
        }
        items.push(item(owner, kind.all()));
        Acl { items }
    }

    /// A list as it was stored.
    pub fn of_items(items: Vec<AclItem>) -> Acl {
        Acl { items }
    }

    /// The items, in the order in which they were granted.
    pub fn items(&self) -> &[AclItem] {
        &self.items
    }

    /// The privileges of those grantees that `is_role` accepts, and those of PUBLIC.
    pub fn of(&self, is_role: &dyn Fn(RoleId) -> bool) -> Privileges {
        let own = self.items.iter();
        own.filter(|item| item.grantee == PUBLIC_ROLE || is_role(item.grantee))
            .fold(Privileges::NONE, |sum, item| sum.union(item.privileges))
    }

    /// What those grantees may grant that `is_role` accepts.
    pub fn grantable_by(&self, is_role: &dyn Fn(RoleId) -> bool) -> Privileges {
        let own = self.items.iter();
        own.filter(|item| is_role(item.grantee))
            .fold(Privileges::NONE, |sum, item| sum.union(item.grantable))
    }

    /// Whether it names a role, as grantee or grantor.
    pub fn names(&self, role: RoleId) -> bool {
        self.items
            .iter()
            .any(|item| item.grantee == role || item.grantor == role)
    }

    /// The list after a change of owner: what the old one had or granted is the new one's.
    pub fn with_owner(&self, old: RoleId, new: RoleId) -> Acl {
        let renamed = |role| if role == old { new } else { role };
        let mut acl = Acl::default();
        for item in &self.items {
            acl.grant(AclItem {
                grantee: renamed(item.grantee),
                grantor: renamed(item.grantor),
                ..*item
            });
        }
        acl
    }

    /// Adds privileges to the item of the grantee and grantor.
    pub fn grant(&mut self, item: AclItem) {
        let own = |known: &&mut AclItem| known.grantee == item.grantee && known.grantor == item.grantor;
        match self.items.iter_mut().find(own) {
            Some(known) => {
                known.privileges = known.privileges.union(item.privileges);
                known.grantable = known.grantable.union(item.grantable);
            }
            None => self.items.push(item),
        }
    }

    /// Takes privileges away that `grantor` granted to `grantee`; with `option_only` only the right to grant
    /// them.
    ///
    /// # Errors
    /// 2BP01 if the grantee granted some of them to others and these are not to be revoked.
    pub fn revoke(
        &mut self,
        owner: RoleId,
        taken: AclItem,
        option_only: bool,
        dependents: Dependents,
    ) -> Result<(), SqlError> {
        let own = |known: &&mut AclItem| known.grantee == taken.grantee && known.grantor == taken.grantor;
        let Some(known) = self.items.iter_mut().find(own) else {
            return Ok(());
        };
        let options_before = known.grantable;
        known.grantable = known.grantable.without(taken.privileges);
        if !option_only {
            known.privileges = known.privileges.without(taken.privileges);
        }
        let lost = options_before.without(known.grantable);
        self.items
            .retain(|item| !item.privileges.is_none() || !item.grantable.is_none());
        if lost.is_none() {
            return Ok(());
        }
        self.revoke_dependents(owner, taken.grantee, lost, dependents)
    }

    /// `grantor` lost the right to grant `lost`: what it granted goes, unless it has the right from somebody
    /// else.
    fn revoke_dependents(
        &mut self,
        owner: RoleId,
        grantor: RoleId,
        lost: Privileges,
        dependents: Dependents,
    ) -> Result<(), SqlError> {
        if grantor == owner {
            return Ok(());
        }
        let lost = lost.without(self.grantable_by(&|role| role == grantor));
        if lost.is_none() {
            return Ok(());
        }
        while let Some(item) =
            self.items.iter().copied().find(|item| {
                item.grantor == grantor && item.privileges.union(item.grantable).intersects(lost)
            })
        {
            if dependents == Dependents::Refuse {
                let error = SqlError::new(
                    SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                    "dependent privileges exist",
                );
                return Err(error.hint("Use CASCADE to revoke them too."));
            }
            let taken = AclItem {
                privileges: lost,
                ..item
            };
            self.revoke(owner, taken, false, dependents)?;
        }
        Ok(())
    }

    /// A role's name as an item shows it: quoted unless it consists of letters, digits and underscores.
    pub fn shown_role(name: &str) -> String {
        quoted(name)
    }

    /// The list as PostgreSQL shows it: `grantee=privileges/grantor`, `*` after those that may be granted.
    pub fn shown(&self, name: &dyn Fn(RoleId) -> String) -> Vec<String> {
        let of = |item: &AclItem| {
            let mut text = quoted(&name(item.grantee));
            text.push('=');
            for (privilege, _, letter) in Privileges::WORDS {
                if item.privileges.contains(privilege) {
                    text.push(letter);
                }
                if item.grantable.contains(privilege) {
                    text.push('*');
                }
            }
            // Writing into a string cannot fail.
            let _ = write!(text, "/{}", quoted(&name(item.grantor)));
            text
        };
        self.items.iter().map(of).collect()
    }
}

/// A role's name inside an aclitem: quoted unless it consists of letters, digits and underscores.
fn quoted(name: &str) -> String {
    match name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}
