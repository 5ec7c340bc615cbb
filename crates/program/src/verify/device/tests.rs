//! The profile: what fits, what does not and why, and every limit at its boundary.

use super::*;
use crate::asm;

/// A program over a table (bigint key, integer, text) with two inputs; `logic` and `commit` are its parts.
fn program(logic: &str, commit: &str) -> Program {
    with_types(
        "i0 int8\n i1 int8",
        "int8, int4, text",
        "s0 (int8, text)",
        logic,
        commit,
    )
}

fn with_types(inputs: &str, columns: &str, outputs: &str, logic: &str, commit: &str) -> Program {
    let text = format!(
        ".program catalog 1\n.inputs\n {inputs}\n.consts\n c0 int8 '7'\n c1 text 'no'\n.tables\n \
         t0 16384 ({columns}) x0 16385 unique ordered primary (0)\n.outputs\n {outputs}\n.access\n \
         write_row t0 [i0]\n read_row t0 [i1]\n.logic\n {logic}\n.commit\n {commit}\n.abort\n abort\n"
    );
    asm::parse(&text).unwrap()
}

fn reason(program: &Program) -> String {
    match plan(program, &SOFTCORE) {
        Ok(_) => "fits".to_owned(),
        Err(misfit) => misfit.to_string(),
    }
}

const SEARCH: &str = "key k0\n keyin k0, i0\n search cp0, t0.x0, k0\n ret r0, cp0\n";

#[test]
fn a_search_an_update_and_a_row_fit() {
    let logic = format!(
        "{SEARCH} bnt r0, L1\n copyrow b0, cp0\n setr b0.1, r0\n update cp0, b0\n ret r1, cp0\nL1:\n \
         outrow b1, s0\n setin b1.0, i1\n setcol b1.1, cp0.2\n emit s0, b1\n end"
    );
    let plan = plan(&program(&logic, "commit"), &SOFTCORE).unwrap();
    assert_eq!(
        (plan.searches.len(), plan.updates.len(), plan.rows.len()),
        (1, 1, 1)
    );
    assert!(plan.searches[0].for_update);
    assert_eq!(plan.updates[0].sets, [(1, NewValue::Register(0))]);
    assert_eq!(plan.own_registers, 2);
}

/// Each instruction that a core lacks is named where it stands.
#[test]
fn what_a_core_lacks_is_named() {
    let cases = [
        (
            "mul r0, r0, r0\n end",
            "instruction 0: it multiplies or divides (mul), which a core cannot",
        ),
        (
            "fadd r0, r0, r0\n end",
            "instruction 0: it computes with floating point (fadd), which a core cannot",
        ),
        (
            "L1:\n ldi r0, 1\n jmp L1",
            "instruction 1: it repeats instructions (jmp), which a core cannot",
        ),
        (
            "key k0\n keyr k0, r0, int8\n end",
            "instruction 1: it makes a key of what was read or computed (keyr), which a core cannot",
        ),
        (
            "row b0, t0\n insert cp0, t0, b0\n ret r0, cp0\n end",
            "instruction 0: it builds a row of a table (row), which a core cannot",
        ),
        (
            "cmpv r0, i0, c0\n end",
            "instruction 0: it compares values outside registers (cmpv), which a core cannot",
        ),
    ];
    for (logic, expected) in cases {
        assert_eq!(reason(&program(logic, "commit")), expected);
    }
    let removing = format!("{SEARCH} remove cp0\n ret r0, cp0\n end");
    assert_eq!(
        reason(&program(&removing, "commit")),
        "instruction 4: it removes a row (remove), which a core cannot"
    );
}

#[test]
fn changes_other_than_in_place_do_not_fit() {
    let update = |sets: &str| {
        reason(&program(
            &format!("{SEARCH} copyrow b0, cp0\n {sets}\n ret r0, cp0\n end"),
            "commit",
        ))
    };
    const OTHER: &str =
        "instruction 4: it copies a row other than to set columns and write it back, which a core cannot";
    assert_eq!(update("setr b0.1, r0\n update cp0, b0"), "fits");
    assert_eq!(update("setr b0.1, r0\n setr b0.1, r0\n update cp0, b0"), OTHER);
    assert_eq!(update("ldi r1, 1\n setr b0.1, r1\n update cp0, b0"), OTHER);
    assert_eq!(
        update("setin b0.0, i1\n update cp0, b0"),
        "instruction 4: it changes a column of an index, which a core cannot"
    );
    // What is set would be read again.
    let two = |from: u8| {
        with_types(
            "i0 int8\n i1 int8",
            "int8, int8, int8",
            "s0 (int8)",
            &format!(
                "{SEARCH} copyrow b0, cp0\n setr b0.1, r0\n setcol b0.2, cp0.{from}\n update cp0, b0\n ret r0, cp0\n end"
            ),
            "commit",
        )
    };
    assert_eq!(reason(&two(0)), "fits");
    assert_eq!(reason(&two(1)), OTHER);
}

#[test]
fn what_depends_on_the_path_does_not_fit() {
    // cp0 holds the row of either search.
    let logic = "bnull r5, L1\n key k0\n keyin k0, i0\n search cp0, t0.x0, k0\n ret r0, cp0\n jmp L2\nL1:\n key k0\n \
                 keyin k0, i1\n search cp0, t0.x0, k0\n ret r0, cp0\nL2:\n ldcol r1, cp0.1\n end";
    assert!(reason(&program(logic, "commit")).starts_with("instruction 10: what it uses differs"));
    let counted = "ldi r0, 2\n count s0, r0\n end";
    assert!(reason(&program(counted, "commit")).contains("counts something other"));
    assert_eq!(
        reason(&program("ldi r0, 1\n count s0, r0\n end", "commit")),
        "fits"
    );
}

#[test]
fn keys_must_be_declared() {
    let undeclared = "key k0\n keyk k0, c0\n search cp0, t0.x0, k0\n ret r0, cp0\n end";
    assert!(reason(&program(undeclared, "commit")).contains("no declared access"));
}

#[test]
fn types_that_fill_no_word_do_not_fit() {
    let of = |ty: &str| {
        with_types(
            "i0 int8\n i1 int8",
            &format!("int8, {ty}"),
            "s0 (int8)",
            "end",
            "commit",
        )
    };
    for ty in [
        "int2",
        "int4",
        "int8",
        "date",
        "timestamp",
        "timestamptz",
        "time",
        "bool",
        "float8",
        "text",
    ] {
        assert_eq!(reason(&of(ty)), "fits", "{ty}");
    }
    for ty in ["numeric", "uuid", "bytea", "interval"] {
        assert_eq!(
            reason(&of(ty)),
            format!("column 1 of table 16384 is of type {ty}, which a core cannot hold")
        );
    }
}

/// Every limit at its boundary.
#[test]
fn each_limit_holds_at_its_boundary() {
    let logic = format!("{SEARCH} {SEARCH} ldi r3, 1\n outrow b0, s0\n setr b0.0, r0\n emit s0, b0\n end");
    let program = program(&logic, "commit");
    let plan = plan(&program, &SOFTCORE).unwrap();
    // Four of its own, one for intermediate values, one row, one count.
    assert_eq!(plan.registers(program.outputs.len()), 7);
    let tight = DeviceProfile {
        instrs_max: program.instrs.len(),
        registers_max: 7,
        searches_max: 2,
        tables_max: 1,
        columns_max: 3,
        key_columns_max: 1,
    };
    assert!(super::plan(&program, &tight).is_ok());
    let refused = |profile: DeviceProfile| super::plan(&program, &profile).unwrap_err().to_string();
    let less = |change: fn(&mut DeviceProfile)| {
        let mut profile = tight;
        change(&mut profile);
        refused(profile)
    };
    assert_eq!(less(|p| p.instrs_max -= 1), "15 instructions, a core takes 14");
    assert_eq!(less(|p| p.registers_max -= 1), "7 registers, a core has 6");
    assert_eq!(less(|p| p.searches_max -= 1), "2 DB instructions, a core has 1");
    assert_eq!(less(|p| p.tables_max -= 1), "1 tables, a core takes 0");
    assert_eq!(
        less(|p| p.columns_max -= 1),
        "3 columns of a table, a core takes 2"
    );
    assert_eq!(
        less(|p| p.key_columns_max -= 1),
        "1 columns of a key, a core takes 0"
    );
}
