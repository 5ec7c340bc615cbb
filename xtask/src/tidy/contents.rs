//! Rules on what a file says: it opens with a head, leaves nothing unfinished, names no machine of
//! somebody's, and has a name that says what it holds.

use super::Finding;
use super::rust_source::{line_of, mask, word_positions};
use super::tree::SourceFile;

/// Macros that must not stay in code; their names are put together here so that this file may hold them.
const UNFINISHED_MACROS: [&str; 3] = [
    concat!("to", "do"),
    concat!("unimple", "mented"),
    concat!("d", "bg"),
];
/// Words that must not stay anywhere in a source, comments included.
const UNFINISHED_WORDS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];
/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 4] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
];
/// File names, without ending, that say nothing.
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "helper", "helpers", "misc"];
/// Parts of file names that say when, not what.
const EMPTY_NAME_PARTS: [&str; 3] = ["tmp", "v2", "manager2"];

/// Checks one file.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = names(file);
    findings.extend(machine_paths(file));
    if file.is_rust() {
        findings.extend(head(file));
        findings.extend(unfinished(file));
    }
    findings
}

/// Forbidden in every part of the path, folders included.
fn names(file: &SourceFile) -> Vec<Finding> {
    let bad = file.path.split('/').find(|part| {
        let stem = part.split('.').next().unwrap_or(part);
        EMPTY_NAMES.contains(&stem)
            || stem.starts_with("new_")
            || stem
                .split(['_', '-'])
                .any(|word| EMPTY_NAME_PARTS.contains(&word))
    });
    let message = |part: &str| format!("the name {part:?} does not say what is in it");
    bad.map(|part| Finding::new("names", &file.path, 0, message(part)))
        .into_iter()
        .collect()
}

fn machine_paths(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for path in MACHINE_PATHS {
            // `crates/work/` is no path of a machine: what stands before must end a word.
            let starts = line.match_indices(path).any(|(start, _)| {
                let before = line[..start].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "_-./".contains(c))
            });
            if starts {
                let message = format!("{path:?} is a path of one machine");
                findings.push(Finding::new("machine-paths", &file.path, at + 1, message));
            }
        }
    }
    findings
}

fn head(file: &SourceFile) -> Option<Finding> {
    let opens = file.text.starts_with("//!") || file.text.starts_with("/*!");
    let message = "a Rust file opens with a `//!` head: its idea, its invariants, its source";
    (!opens).then(|| Finding::new("head", &file.path, 1, message))
}

fn unfinished(file: &SourceFile) -> Vec<Finding> {
    let masked = mask(&file.text);
    let mut findings = Vec::new();
    for name in UNFINISHED_MACROS {
        for at in word_positions(&masked, name.as_bytes()) {
            if masked.get(at + name.len()) == Some(&b'!') {
                let line = line_of(&masked, at);
                findings.push(Finding::new(
                    "markers",
                    &file.path,
                    line,
                    format!("{name}! is left in code"),
                ));
            }
        }
    }
    for word in UNFINISHED_WORDS {
        for at in word_positions(file.text.as_bytes(), word.as_bytes()) {
            let line = line_of(file.text.as_bytes(), at);
            findings.push(Finding::new(
                "markers",
                &file.path,
                line,
                format!("{word} is left in the source"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        let file = SourceFile {
            path: path.into(),
            text: text.into(),
        };
        check(&file).into_iter().map(|f| f.rule).collect()
    }

    #[test]
    fn a_file_without_a_head_fails() {
        assert_eq!(rules("a/src/b.rs", "use std::fs;\n"), ["head"]);
        assert_eq!(rules("a/src/b.rs", "//! What b is.\n"), [""; 0]);
    }

    #[test]
    fn unfinished_code_fails_but_its_name_in_a_string_does_not() {
        for name in UNFINISHED_MACROS {
            assert_eq!(
                rules("b.rs", &format!("//! b\nfn a() {{ {name}!() }}")),
                ["markers"]
            );
            assert_eq!(
                rules("b.rs", &format!("//! b\nconst A: &str = \"{name}!\";")),
                [""; 0]
            );
        }
        for word in UNFINISHED_WORDS {
            assert_eq!(rules("b.rs", &format!("//! b\n// {word}: later")), ["markers"]);
            assert_eq!(rules("b.rs", &format!("//! b\n// {word}00 is a code")), [""; 0]);
        }
    }

    #[test]
    fn a_path_of_one_machine_fails_in_any_text() {
        for path in MACHINE_PATHS {
            assert_eq!(
                rules("docs/a.md", &format!("see {path}someone")),
                ["machine-paths"]
            );
            assert_eq!(rules("docs/a.md", &format!("see crates{path}someone")), [""; 0]);
        }
    }

    #[test]
    fn a_meaningless_name_fails() {
        for path in [
            "a/utils.rs",
            "a/helper/b.rs",
            "a/new_lock.rs",
            "a/lock_v2.rs",
            "a/tmp.rs",
            "misc/a.rs",
        ] {
            assert_eq!(rules(path, "//! b\n"), ["names"], "{path}");
        }
        for path in ["a/newtype.rs", "a/utility_company.rs", "a/v2ray.rs"] {
            assert_eq!(rules(path, "//! b\n"), [""; 0], "{path}");
        }
    }
}
