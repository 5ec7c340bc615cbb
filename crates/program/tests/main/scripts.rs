//! Golden scripts: `tests/main/scripts/*.asm`. A script is one or more programs, each followed by runs.
//!
//! ```text
//! .program ...            a program; it must verify, and survive text -> bytes -> text
//! ;> 1 | bob | null       a run with these inputs, against one database for the whole script
//! ;= s0 affected 1        what it gave; rewritten when WEFT_REWRITE is set
//! ```

use std::fmt::Write;
use std::path::Path;

use weft_program::{Program, asm, verify};
use weft_types::{Value, format_text, parse_text};

use crate::fixture::{BUDGET, Database};

#[test]
fn scripts_give_what_they_say() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/main/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "asm"));
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let given = replay(&text, &path.display().to_string());
        if std::env::var_os("WEFT_REWRITE").is_some() {
            std::fs::write(&path, &given).unwrap();
        } else {
            assert_eq!(text, given, "{}", path.display());
        }
    }
}

/// The script with the results that its runs give now.
fn replay(script: &str, name: &str) -> String {
    let mut database = Database::new();
    let mut out = String::new();
    let mut source = String::new();
    let mut program: Option<Program> = None;
    for line in script.lines() {
        if line.starts_with(";= ") {
            continue;
        }
        writeln!(out, "{line}").unwrap();
        if line.starts_with(".program") {
            source.clear();
            program = None;
        }
        match line.strip_prefix(";>") {
            Some(inputs) => {
                let program = program.get_or_insert_with(|| assemble(&source, name, &database));
                run_line(&mut database, program, inputs, &mut out);
            }
            None => writeln!(source, "{line}").unwrap(),
        }
    }
    out
}

fn assemble(source: &str, name: &str, database: &Database) -> Program {
    let program = asm::parse(source).unwrap_or_else(|error| panic!("{name}: {error}\n{source}"));
    verify(&program, &database.catalog()).unwrap_or_else(|error| panic!("{name}: {error}\n{program}"));
    let again = Program::decode(&program.encode()).unwrap();
    assert_eq!(again.encode(), program.encode());
    assert_eq!(
        asm::parse(&asm::print(&program)).unwrap().encode(),
        program.encode(),
        "{program}"
    );
    program
}

fn run_line(database: &mut Database, program: &Program, inputs: &str, out: &mut String) {
    let words = inputs
        .split('|')
        .map(str::trim)
        .filter(|_| !program.inputs.is_empty());
    let values: Vec<Value> = words
        .zip(&program.inputs)
        .map(|(word, ty)| {
            if word == "null" {
                Value::Null
            } else {
                parse_text(word, ty).unwrap()
            }
        })
        .collect();
    let inputs = program.encode_inputs(&values).unwrap();
    let digest = database.store.state_digest();
    match database.run(program, &inputs, BUDGET) {
        Ok(()) => print_outcome(database, program, out),
        Err(error) => {
            assert_eq!(
                database.store.state_digest(),
                digest,
                "a failed program left something behind"
            );
            writeln!(out, ";= error {} {}", error.state, error.message).unwrap();
        }
    }
    if program.read_only {
        let (by_batch, result) = (database.outcome.clone(), database.read(program, &inputs));
        if result.is_ok() {
            assert_eq!(by_batch, database.outcome, "a snapshot reads something else");
        }
    }
}

fn print_outcome(database: &Database, program: &Program, out: &mut String) {
    for (number, statement) in database.outcome.statements().enumerate() {
        writeln!(out, ";= s{number} affected {}", statement.affected()).unwrap();
        let layout = program.output_layout(number).unwrap();
        for row in statement.rows() {
            let cells: Vec<String> = layout
                .decode(row)
                .unwrap()
                .iter()
                .zip(layout.types())
                .map(|(value, ty)| {
                    let mut text = String::new();
                    format_text(value, ty, &mut text);
                    if *value == Value::Null {
                        "null".into()
                    } else {
                        text
                    }
                })
                .collect();
            writeln!(out, ";=    {}", cells.join(" | ")).unwrap();
        }
    }
}
