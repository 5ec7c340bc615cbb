//! What the verifier refuses and why; what the guard refuses at run time; key encoding for the lock manager.

use weft_program::{Access, AccessKind, KeyPart};
use weft_program::{
    AccessKeys, BoundKey, Cond, Op, Program, ProgramBuilder, ProgramError, Reg, asm, builder, is_refusal,
    verify,
};
use weft_types::{SqlType, Value, encode_key_value};

use crate::fixture::{ACCOUNTS, ACCOUNTS_EMAIL, ACCOUNTS_KEY, BUDGET, Database, PAIRS};

const HEAD: &str = ".program catalog 3
.inputs
  i0 int8
  i1 int4
  i2 varchar(30)
.consts
  c0 text 'a constant of more than twenty characters'
  c1 varchar(20) 'short'
  c2 text 'short'
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) x1 16386 unique ordered (3)
  t1 16389 (int4, text)
.outputs
  s0 (int8)
  s1 (int4)
.access
";

fn refusal(access: &str, logic: &str, commit: &str, abort: &str) -> String {
    let text = format!("{HEAD}{access}.logic\n{logic}.commit\n{commit}.abort\n{abort}");
    let program = asm::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    match verify(&program, &Database::new().catalog()) {
        Ok(()) => "fine".into(),
        Err(error) => error.to_string(),
    }
}

fn of_logic(logic: &str) -> String {
    refusal("", logic, "commit\n", "abort\n")
}

#[test]
fn control_stays_inside_its_section() {
    assert_eq!(of_logic("end\n"), "fine");
    assert_eq!(of_logic("jmp @1\n"), "instruction 0: jump out of the section");
    assert_eq!(of_logic("jmp @9\n"), "instruction 0: jump out of the program");
    assert_eq!(
        of_logic("ldi r0, 1\n"),
        "instruction 0: control falls out of its section"
    );
    assert_eq!(of_logic("commit\n"), "instruction 0: not allowed in this section");
    assert_eq!(of_logic(""), "a section is empty");
    assert_eq!(of_logic("abort\n"), "COMMIT is not reachable");
    assert_eq!(of_logic("again:\njmp again\n"), "COMMIT is not reachable");
    assert_eq!(
        refusal("", "end\n", "end\n", "abort\n"),
        "instruction 1: not allowed in this section"
    );
    assert_eq!(
        refusal("", "end\n", "abort\n", "abort\n"),
        "COMMIT is not reachable"
    );
    assert_eq!(
        refusal("", "end\n", "commit\n", "x:\njmp x\n"),
        "the abort handler does not end"
    );
    assert_eq!(
        refusal("", "end\n", "key k0\nsearch cp0, t0.x0, k0\ncommit\n", "abort\n"),
        "instruction 2: not allowed in this section"
    );
    for abort in ["row b0, t0\nabort\n", "try h0, x\nx:\nabort\n"] {
        assert_eq!(
            refusal("", "end\n", "commit\n", abort),
            "instruction 2: not allowed in this section"
        );
    }
}

#[test]
fn db_instructions_pair_up_with_ret() {
    let search = "key k0\nkeyin k0, i0\nsearch cp0, t0.x0, k0\n";
    assert_eq!(
        refusal("", &format!("{search}end\n"), "ret r0, cp0\ncommit\n", "abort\n"),
        "fine"
    );
    assert_eq!(
        of_logic(&format!("{search}end\n")),
        "instruction 4: COMMIT before RET of a DB instruction"
    );
    let used = "instruction 3: a row is used before RET of its collect register";
    assert_eq!(of_logic(&format!("{search}ldcol r0, cp0.0\nend\n")), used);
    assert_eq!(of_logic(&format!("{search}copyrow b0, cp0\nend\n")), used);
    assert_eq!(of_logic(&format!("{search}remove cp0\nend\n")), used);
    assert_eq!(
        of_logic(&format!("{search}search cp0, t0.x0, k0\nend\n")),
        "instruction 3: a collect register is issued again before RET"
    );
    assert_eq!(
        of_logic("ret r0, cp0\nend\n"),
        "instruction 0: RET with nothing to collect"
    );
    assert_eq!(
        of_logic(&format!("{search}ret r0, cp0\nnext r0, cp0\nend\n")),
        "instruction 4: NEXT of a collect register that holds no collected SCAN"
    );
    // Issued on one path only: RET is right on both, the row may be used on neither.
    let half = format!(
        "key k0\nkeyin k0, i0\nbt r1, over\n{}over:\n",
        "search cp0, t0.x0, k0\n"
    );
    assert_eq!(of_logic(&format!("{half}ret r0, cp0\nend\n")), "fine");
    assert_eq!(
        of_logic(&format!("{half}ret r0, cp0\nldcol r0, cp0.0\nend\n")),
        "instruction 5: a collect register does not hold a row of one table on every path"
    );
}

#[test]
fn operands_exist_and_types_fit() {
    let starts = |logic: &str, rule: &str| {
        let refusal = of_logic(logic);
        assert!(refusal.ends_with(rule), "{refusal}");
    };
    starts("ldin r0, i3\nend\n", "no such input");
    starts("ldin r0, i2\nend\n", "the value does not fit a register");
    starts("ldk r0, c9\nend\n", "no such constant");
    starts("row b0, t2\nend\n", "no such table");
    starts("outrow b0, s2\nend\n", "no such statement");
    starts("key k0\nsearch cp0, t0.x2, k0\nend\n", "no such index");
    starts(
        "key k0\nsearch cp0, t0.x0, k0\nend\n",
        "a key does not fit its index",
    );
    starts(
        "key k0\nkeyin k0, i1\nsearch cp0, t0.x0, k0\nend\n",
        "a key does not fit its index",
    );
    starts("keyin k0, i1\nend\n", "a key is appended to before KEY");
    starts(
        "setin b0.0, i0\nend\n",
        "a row buffer is not the same kind of row on every path",
    );
    starts("row b0, t0\nsetin b0.5, i0\nend\n", "no such column");
    starts(
        "row b0, t0\nsetin b0.1, i0\nend\n",
        "the value does not fit the column",
    );
    starts(
        "row b0, t0\nsetin b0.2, i2\nend\n",
        "the value does not fit the column",
    );
    starts(
        "row b0, t0\nsetk b0.2, c0\nend\n",
        "the value does not fit the column",
    );
    starts(
        "row b0, t0\nsetk b0.2, c1\nsetk b0.2, c2\nsetk b0.3, c0\nend\n",
        "fine",
    );
    starts(
        "row b0, t0\nsetr b0.2, r0\nend\n",
        "the value does not fit the column",
    );
    starts(
        "row b0, t0\ninsert cp0, t1, b0\nend\n",
        "INSERT of a row of another table",
    );
    starts(
        "outrow b0, s0\nemit s1, b0\nend\n",
        "the statement's shape on every path",
    );
    starts("cmpv r0, i0, i2\nend\n", "values of these types do not compare");
    starts("cmpv r0, i0, i1\nend\n", "fine");
    starts("raise P0001, c1\n", "COMMIT is not reachable");
}

#[test]
fn accesses_fit_their_index() {
    let of_access = |access: &str| refusal(access, "end\n", "commit\n", "abort\n");
    let mismatch = "an access key does not fit its index";
    assert_eq!(
        of_access("read_row t0 [i0]\nread_range t0 [i0]\nread_range t0 [] [i0]\ninsert_row t1 []\n"),
        "fine"
    );
    assert_eq!(of_access("read_row t0 [i1]\n"), mismatch);
    assert_eq!(of_access("read_row t0 []\n"), mismatch);
    assert_eq!(of_access("write_row t1 []\n"), mismatch);
    assert_eq!(of_access("read_table t0 [i0]\n"), mismatch);
    assert_eq!(of_access("write_value t0 16386 [c0]\n"), "fine");
    assert_eq!(of_access("write_value t0 16387 [c0]\n"), mismatch);
    assert_eq!(
        of_access("read_table #99\n"),
        "an access names a table that the program does not describe"
    );
}

#[test]
fn the_catalog_must_be_the_one_compiled_for() {
    let database = Database::new();
    let text = format!("{HEAD}.logic\nend\n.commit\ncommit\n.abort\nabort\n");
    let other_version = asm::parse(&text.replace("catalog 3", "catalog 2")).unwrap();
    assert!(matches!(
        verify(&other_version, &database.catalog()),
        Err(ProgramError::Catalog(_))
    ));
    let other_shape = asm::parse(&text.replace("t1 16389 (int4, text)", "t1 16389 (int4, int4)")).unwrap();
    assert!(matches!(
        verify(&other_shape, &database.catalog()),
        Err(ProgramError::Catalog(_))
    ));
}

/// Searches, or with `write` removes, the account `$1`, whatever `access` declares.
fn touch(access: Access, write: bool) -> Program {
    let database = Database::new();
    let catalog = database.catalog();
    let mut b = ProgramBuilder::new(catalog.version());
    let id = b.input(SqlType::Int8);
    b.input(SqlType::Int8);
    let table = b.table(catalog.table_by_id(ACCOUNTS).unwrap());
    let index = b.index(table, ACCOUNTS_KEY);
    let (cp, key, status) = (b.collect_register(), b.key_buffer(), b.register());
    b.add_access(access);
    b.key(key);
    b.keyin(key, id);
    b.search(cp, table, index, key);
    b.ret(status, cp);
    if write {
        b.remove(cp);
        b.collect_at_commit(cp, None);
    }
    let program = b.finish().unwrap();
    verify(&program, &catalog).unwrap();
    program
}

#[test]
fn the_guard_refuses_what_was_not_declared() {
    let mut database = Database::new();
    let (here, elsewhere) = (KeyPart::Input(0), KeyPart::Input(1));
    let mut refused = |access: Access, write: bool| {
        let program = touch(access, write);
        let inputs = program.encode_inputs(&[Value::Int8(1), Value::Int8(2)]).unwrap();
        database
            .run(&program, &inputs, BUDGET)
            .is_err_and(|error| is_refusal(&error))
    };
    let row = |kind, part| Access::new(kind, ACCOUNTS, vec![part]);
    assert!(!refused(row(AccessKind::ReadRow, here), false));
    assert!(!refused(row(AccessKind::WriteRow, here), false));
    assert!(!refused(
        Access::range(ACCOUNTS, vec![here], Some(vec![elsewhere])),
        false
    ));
    assert!(!refused(Access::range(ACCOUNTS, vec![], None), false));
    assert!(!refused(Access::table(AccessKind::ReadTable, ACCOUNTS), false));
    assert!(refused(row(AccessKind::ReadRow, elsewhere), false));
    assert!(refused(Access::range(ACCOUNTS, vec![elsewhere], None), false));
    assert!(refused(
        Access::range(ACCOUNTS, vec![elsewhere], Some(vec![here])),
        false
    ));
    // Nothing to remove yet: no write happens, so nothing is refused.
    assert!(!refused(row(AccessKind::ReadRow, here), true));
}

#[test]
fn the_guard_refuses_writes_under_read_accesses() {
    let mut database = Database::new();
    let insert = asm::parse(&format!(
        "{HEAD}  insert_row t0 [i0]\n.logic\nrow b0, t0\nsetin b0.0, i0\ninsert cp0, t0, b0\nend\n\
         .commit\nret r0, cp0\ncommit\n.abort\nabort\n"
    ))
    .unwrap();
    let inputs = insert
        .encode_inputs(&[Value::Int8(1), Value::Null, Value::Null])
        .unwrap();
    database.run(&insert, &inputs, BUDGET).unwrap();
    let digest = database.store.state_digest();
    for kind in [AccessKind::ReadRow, AccessKind::ReadTable] {
        let access = match kind {
            AccessKind::ReadRow => Access::new(kind, ACCOUNTS, vec![KeyPart::Input(0)]),
            _ => Access::table(kind, ACCOUNTS),
        };
        let program = touch(access, true);
        let inputs = program.encode_inputs(&[Value::Int8(1), Value::Int8(2)]).unwrap();
        assert!(is_refusal(&database.run(&program, &inputs, BUDGET).unwrap_err()));
        assert_eq!(database.store.state_digest(), digest);
        assert!(database.read(&program, &inputs).is_err());
    }
    let program = touch(
        Access::new(AccessKind::WriteRow, ACCOUNTS, vec![KeyPart::Input(0)]),
        true,
    );
    let inputs = program.encode_inputs(&[Value::Int8(1), Value::Int8(2)]).unwrap();
    database.run(&program, &inputs, BUDGET).unwrap();
    assert_ne!(database.store.state_digest(), digest);
}

/// An UPDATE of rows that a SCAN found is looked at no further where the range may be written and the row
/// keeps its keys; and only there.
#[test]
fn a_range_that_is_only_read_is_not_written_to() {
    let mut database = Database::new();
    let run = |database: &mut Database, access: &str, set: &str, key: i64| {
        let text = format!(
            "{HEAD}{access}\n.logic\nkey k0\nkeyin k0, i0\nkey k1\nkeyin k1, i0\nscan cp0, t0.x0, k0, k1, forward, all\n\
             ret r0, cp0\nbnt r0, L\ncopyrow b0, cp0\n{set}\nupdate cp0, b0\nret r1, cp0\nL:\nend\n.commit\n\
             commit\n.abort\nabort\n"
        );
        let program = asm::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let inputs = program
            .encode_inputs(&[Value::Int8(key), Value::Int4(7), Value::Null])
            .unwrap();
        let result = database.run(&program, &inputs, BUDGET);
        result
            .map_err(|error| assert!(is_refusal(&error), "{error}"))
            .is_ok()
    };
    let insert = asm::parse(&format!(
        "{HEAD}  insert_row t0 [i0]\n.logic\nrow b0, t0\nsetin b0.0, i0\ninsert cp0, t0, b0\nend\n\
         .commit\nret r0, cp0\ncommit\n.abort\nabort\n"
    ))
    .unwrap();
    for key in [1, 2] {
        let inputs = insert
            .encode_inputs(&[Value::Int8(key), Value::Null, Value::Null])
            .unwrap();
        database.run(&insert, &inputs, BUDGET).unwrap();
    }
    let (keeps_key, moves) = ("setin b0.1, i1", "ldi r2, 50\nsetr b0.0, r2");
    let sets_value = "setk b0.3, c0";
    let ours = "[i0] [i0]";
    let digest = database.store.state_digest();
    for read in [format!("  read_range t0 {ours}"), "  read_table t0".into()] {
        for set in [keeps_key, moves, sets_value] {
            assert!(!run(&mut database, &read, set, 1), "{read} {set}");
        }
        let elsewhere = format!("{read}\n  write_row t0 [i1]");
        assert!(!run(&mut database, &elsewhere, keeps_key, 1), "{elsewhere}");
    }
    assert_eq!(database.store.state_digest(), digest);
    for write in [format!("  write_range t0 {ours}"), "  write_table t0".into()] {
        let is_whole = write.contains("table");
        assert!(run(&mut database, &write, keeps_key, 1), "{write}");
        assert_eq!(run(&mut database, &write, moves, 1), is_whole, "{write}");
        assert_eq!(run(&mut database, &write, sets_value, 2), is_whole, "{write}");
    }
    assert_ne!(database.store.state_digest(), digest);
}

#[test]
fn access_keys_are_those_of_the_index() {
    let catalog = Database::new().catalog();
    let mut b = ProgramBuilder::new(catalog.version());
    let (a, email) = (b.input(SqlType::Int4), b.input(SqlType::Text));
    let seven = b.constant(SqlType::Int4, Value::Int4(7));
    assert_eq!(seven, b.constant(SqlType::Int4, Value::Int4(7)));
    b.table(catalog.table_by_id(PAIRS).unwrap());
    b.table(catalog.table_by_id(ACCOUNTS).unwrap());
    let (a, seven, email) = (KeyPart::Input(a), KeyPart::Const(seven), KeyPart::Input(email));
    b.add_access(Access::new(AccessKind::WriteRow, PAIRS, vec![a, seven]));
    b.add_access(Access::new(AccessKind::WriteRow, PAIRS, vec![a, seven]));
    b.add_access(Access::range(PAIRS, vec![a], Some(vec![seven])));
    b.add_access(Access::new(
        AccessKind::WriteValue(ACCOUNTS_EMAIL),
        ACCOUNTS,
        vec![email],
    ));
    let program = b.finish().unwrap();
    verify(&program, &catalog).unwrap();
    let key = |values: &[Value]| {
        let mut key = Vec::new();
        values.iter().for_each(|value| encode_key_value(&mut key, value));
        key
    };
    let mut keys = AccessKeys::default();
    let mut seen_with = |a: &Value| {
        let inputs = [a.clone(), Value::Text("x\0y".into())];
        keys.prepare(&program, &program.encode_inputs(&inputs).unwrap())
            .unwrap();
        let mut seen = Vec::new();
        keys.for_each(|number, BoundKey { bytes: key, hi, .. }| {
            seen.push((program.accesses[number].kind, key.to_vec(), hi.to_vec()));
        });
        seen
    };
    let expected = |a: &Value| {
        let seven = Value::Int4(7);
        vec![
            (AccessKind::WriteRow, key(&[a.clone(), seven.clone()]), vec![]),
            (AccessKind::ReadRange, key(std::slice::from_ref(a)), key(&[seven])),
            (
                AccessKind::WriteValue(ACCOUNTS_EMAIL),
                key(&[Value::Text("x\0y".into())]),
                vec![],
            ),
        ]
    };
    assert_eq!(seen_with(&Value::Int4(-3)), expected(&Value::Int4(-3)));
    // No row has a NULL in its primary key, but a range may begin with one.
    assert_eq!(seen_with(&Value::Null), expected(&Value::Null)[1..]);
    let inputs = program.encode_inputs(&[Value::Null, Value::Null]).unwrap();
    assert!(keys.prepare(&program, &inputs[1..]).is_err());
}

#[test]
fn the_builder_reports_what_does_not_fit() {
    let mut b = ProgramBuilder::new(Database::new().catalog().version());
    let mark = b.mark();
    let registers: Vec<Reg> = (0..64).map(|_| b.register()).collect();
    assert_eq!(registers.last(), Some(&Reg(63)));
    b.release_to(mark);
    assert_eq!(b.register(), Reg(0));
    let label = b.label();
    b.branch(Cond::Lt, Reg(0), Reg(1), label);
    assert_eq!(
        b.finish().unwrap_err(),
        ProgramError::Malformed("a label is never bound")
    );
    let mut b = ProgramBuilder::new(Database::new().catalog().version());
    (0..=64).for_each(|_| {
        b.register();
    });
    assert!(matches!(
        b.finish(),
        Err(ProgramError::TooLarge {
            what: "registers",
            ..
        })
    ));
    let mut b = ProgramBuilder::new(Database::new().catalog().version());
    b.unary(Op::Narrow, builder::Reg(1), builder::Reg(1));
    assert!(matches!(b.finish(), Err(ProgramError::Instruction { pc: 0, .. })));
}
