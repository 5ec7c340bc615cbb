//! Tests of accounts.

use weft_base::{ByteReader, TableId};
use weft_types::SqlType;

use super::super::{Catalog, CatalogOp, ColumnDef, TableDef};
use super::*;

const ANN: RoleId = RoleId(16_384);
const BOB: RoleId = RoleId(16_385);
const STAFF: RoleId = RoleId(16_386);
const TABLE: u32 = 16_387;

fn applied(catalog: Catalog, op: AccountOp) -> Catalog {
    let mut bytes = Vec::new();
    CatalogOp::Account(op).encode(&mut bytes);
    let op = CatalogOp::decode(&mut ByteReader::new(&bytes)).unwrap();
    catalog.apply(&op).unwrap()
}

fn refused(catalog: &Catalog, op: AccountOp) -> (&'static str, String) {
    let error = catalog.apply(&CatalogOp::Account(op)).unwrap_err();
    (error.state.code(), error.message)
}

fn member(role: RoleId, member: RoleId) -> AccountOp {
    let membership = Membership {
        grantor: BOOTSTRAP_ROLE,
        admin: false,
    };
    AccountOp::PutMember {
        role,
        member,
        membership,
    }
}

/// ann and bob, of whom ann is in the group staff; a table.
fn catalog() -> Catalog {
    let catalog = Catalog::new();
    let catalog = applied(catalog, AccountOp::PutRole(RoleDef::new(ANN, "ann")));
    let mut bob = RoleDef::new(BOB, "bob");
    bob.password = Some("SCRAM-SHA-256$...".into());
    bob.valid_until = Some(-5);
    let catalog = applied(catalog, AccountOp::PutRole(bob));
    let catalog = applied(catalog, AccountOp::PutRole(RoleDef::new(STAFF, "staff")));
    let catalog = applied(catalog, member(STAFF, ANN));
    let table = TableDef::new(TableId(TABLE), "t", vec![ColumnDef::new("a", SqlType::Int4)]);
    catalog.apply(&CatalogOp::CreateTable(table)).unwrap()
}

fn item(grantee: RoleId, grantor: RoleId, privileges: Privileges, grantable: Privileges) -> AclItem {
    AclItem {
        grantee,
        grantor,
        privileges,
        grantable,
    }
}

fn round_trip(catalog: &Catalog) {
    let mut bytes = Vec::new();
    catalog.encode(&mut bytes);
    let mut reader = ByteReader::new(&bytes);
    let again = Catalog::decode(&mut reader).unwrap();
    reader.finish().unwrap();
    assert_eq!(&again, catalog);
    assert_eq!(again.digest(), catalog.digest());
    for cut in 0..bytes.len() {
        if let Ok(cut) = Catalog::decode(&mut ByteReader::new(&bytes[..cut])) {
            assert_eq!(cut.accounts(), &Accounts::default());
        }
    }
}

#[test]
fn a_catalog_without_accounts_has_no_section_of_them() {
    let mut bytes = Vec::new();
    Catalog::new().encode(&mut bytes);
    assert_eq!(bytes.len(), 8 + 4 + 3);
    assert!(Catalog::new().accounts().is_empty());
    assert!(!catalog().accounts().is_empty());
    round_trip(&catalog());
}

#[test]
fn privileges_come_from_the_role_from_everybody_and_from_groups() {
    let mut catalog = catalog();
    let of = |catalog: &Catalog, role| catalog.privileges_of(role, TABLE);
    assert_eq!(of(&catalog, ANN), Privileges::NONE);
    assert_eq!(of(&catalog, BOOTSTRAP_ROLE), Privileges::ALL);
    let mut acl = catalog.acl_of(TABLE);
    acl.grant(item(STAFF, BOOTSTRAP_ROLE, Privileges::SELECT, Privileges::NONE));
    acl.grant(item(
        PUBLIC_ROLE,
        BOOTSTRAP_ROLE,
        Privileges::INSERT,
        Privileges::NONE,
    ));
    acl.grant(item(BOB, BOOTSTRAP_ROLE, Privileges::DELETE, Privileges::DELETE));
    catalog = applied(
        catalog,
        AccountOp::SetAcl {
            object: TABLE,
            acl: Some(acl),
        },
    );
    assert_eq!(of(&catalog, ANN), Privileges::SELECT.union(Privileges::INSERT));
    assert_eq!(of(&catalog, BOB), Privileges::DELETE.union(Privileges::INSERT));
    let shown = catalog.acl_of(TABLE).shown(&|role| catalog.accounts().name(role));
    assert_eq!(
        shown,
        [
            "postgres=arwdDxt/postgres",
            "staff=r/postgres",
            "=a/postgres",
            "bob=d*/postgres"
        ]
    );
    round_trip(&catalog);
    // A role that does not inherit has nothing of its groups, but may become one.
    let mut ann = RoleDef::new(ANN, "ann");
    ann.inherit = false;
    catalog = applied(catalog, AccountOp::PutRole(ann));
    assert_eq!(of(&catalog, ANN), Privileges::INSERT);
    assert!(catalog.accounts().is_member_of(ANN, STAFF));
    assert!(!catalog.accounts().is_member_of(BOB, STAFF));
}

#[test]
fn an_owner_keeps_a_role_and_an_object_takes_its_entry_with_it() {
    let mut catalog = catalog();
    let owner = AccountOp::SetOwner {
        object: TABLE,
        owner: BOB,
    };
    catalog = applied(catalog, owner);
    assert!(catalog.is_owner(BOB, TABLE) && !catalog.is_owner(ANN, TABLE));
    assert_eq!(catalog.privileges_of(BOB, TABLE), ObjectKind::Table.all());
    assert_eq!(refused(&catalog, AccountOp::DropRole(BOB)).0, "2BP01");
    round_trip(&catalog);
    catalog = catalog.apply(&CatalogOp::DropTable(TableId(TABLE))).unwrap();
    assert!(catalog.accounts().objects.is_empty());
    catalog = applied(catalog, AccountOp::DropRole(BOB));
    catalog = applied(catalog, AccountOp::DropRole(STAFF));
    assert_eq!(catalog.accounts().memberships().count(), 0);
    round_trip(&catalog);
}

#[test]
fn what_cannot_be_is_refused() {
    let catalog = catalog();
    let circle = refused(&catalog, member(ANN, STAFF));
    assert_eq!(
        circle,
        ("0LP01", "role \"ann\" is a member of role \"staff\"".into())
    );
    let taken = RoleDef::new(RoleId(TABLE + 1), "ann");
    assert_eq!(refused(&catalog, AccountOp::PutRole(taken)).0, "42710");
    let used = RoleDef::new(RoleId(TABLE), "new");
    assert_eq!(refused(&catalog, AccountOp::PutRole(used)).0, "40001");
    assert_eq!(refused(&catalog, AccountOp::DropRole(BOOTSTRAP_ROLE)).0, "2BP01");
    let nobody = AccountOp::SetOwner {
        object: TABLE,
        owner: RoleId(9),
    };
    assert_eq!(refused(&catalog, nobody).0, "42704");
    let nothing = AccountOp::SetAcl { object: 9, acl: None };
    assert_eq!(refused(&catalog, nothing).0, "42704");
}

#[test]
fn revoking_a_grant_option_concerns_what_was_granted_by_it() {
    let mut acl = Acl::default_of(ObjectKind::Table, BOOTSTRAP_ROLE);
    acl.grant(item(ANN, BOOTSTRAP_ROLE, Privileges::SELECT, Privileges::SELECT));
    acl.grant(item(BOB, ANN, Privileges::SELECT, Privileges::SELECT));
    acl.grant(item(STAFF, BOB, Privileges::SELECT, Privileges::NONE));
    let taken = item(ANN, BOOTSTRAP_ROLE, Privileges::SELECT, Privileges::NONE);
    let refused = acl
        .clone()
        .revoke(BOOTSTRAP_ROLE, taken, true, Dependents::Refuse);
    assert_eq!(refused.unwrap_err().state.code(), "2BP01");
    let mut option = acl.clone();
    option
        .revoke(BOOTSTRAP_ROLE, taken, true, Dependents::Revoke)
        .unwrap();
    assert_eq!(option.items().len(), 2);
    assert_eq!(option.of(&|role| role == ANN), Privileges::SELECT);
    // A second way to the option keeps what depends on it.
    acl.grant(item(BOB, BOOTSTRAP_ROLE, Privileges::SELECT, Privileges::SELECT));
    acl.revoke(BOOTSTRAP_ROLE, taken, false, Dependents::Revoke)
        .unwrap();
    assert_eq!(acl.of(&|role| role == STAFF), Privileges::SELECT);
    assert_eq!(acl.items().len(), 3);
}

#[test]
fn default_privileges_are_those_of_new_objects() {
    let mut catalog = catalog();
    let scope = |schema| DefaultScope {
        role: ANN,
        schema,
        kind: ObjectKind::Table,
    };
    let granted = Acl::of_items(vec![item(BOB, ANN, Privileges::SELECT, Privileges::NONE)]);
    let set = AccountOp::SetDefaultAcl {
        scope: scope(PUBLIC_SCHEMA_OID),
        acl: Some(granted),
    };
    catalog = applied(catalog, set);
    round_trip(&catalog);
    for op in catalog.ops_of_new_object(TABLE, ObjectKind::Table, ANN) {
        catalog = applied(catalog, op);
    }
    let shown = catalog.acl_of(TABLE).shown(&|role| catalog.accounts().name(role));
    assert_eq!(shown, ["ann=arwdDxt/ann", "bob=r/ann"]);
    assert_eq!(refused(&catalog, AccountOp::DropRole(BOB)).0, "2BP01");
    assert!(
        catalog
            .ops_of_new_object(TABLE, ObjectKind::Table, BOOTSTRAP_ROLE)
            .is_empty()
    );
}
