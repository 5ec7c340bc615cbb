//! Every path that ARCHITECTURE.md and README.md name must exist, so that the maps stay true.
//!
//! A path is a word between backquotes that contains a `/` or ends in a known file ending and is made of
//! path characters only; a code fence names paths in the same way. `crates/lsm/...` in prose without
//! backquotes is not checked, which is how a page can speak of what does not exist yet.

use super::Finding;
use super::tree::SourceFile;

const CHECKED: [&str; 2] = ["ARCHITECTURE.md", "README.md"];
const FILE_ENDINGS: [&str; 6] = [".rs", ".md", ".toml", ".sh", ".py", ".txt"];
/// First parts of the paths that are ours; others (`tokio/rt`, `a/b`) are not looked for.
const TOP_FOLDERS: [&str; 10] = [
    "crates/",
    "docs/",
    "tests/",
    "xtask/",
    "examples/",
    "experiments/",
    "fuzz/",
    "kernels/",
    "hardware/",
    ".ci/",
];

/// Checks the pages with `exists`, which is asked with paths from the workspace root.
pub fn check(files: &[SourceFile], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in CHECKED {
        let Some(file) = files.iter().find(|f| f.path == page) else {
            findings.push(Finding::new("named-paths", page, 0, "the page is missing"));
            continue;
        };
        for (line, path) in named_paths(&file.text) {
            if !exists(path) {
                let message = format!("names {path:?}, which does not exist");
                findings.push(Finding::new("named-paths", page, line, message));
            }
        }
    }
    findings
}

/// Paths between backquotes and targets of relative links, each with its line.
fn named_paths(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2);
        let linked = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let linked = linked.filter(|target| !target.contains("://") && !target.starts_with('#'));
        found.extend(
            quoted
                .filter(|word| looks_like_path(word))
                .map(|word| (at + 1, word)),
        );
        found.extend(linked.map(|target| (at + 1, target.split('#').next().unwrap_or(target))));
    }
    found
}

fn looks_like_path(word: &str) -> bool {
    let plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let ours = TOP_FOLDERS.iter().any(|top| word.starts_with(top));
    let root_file = !word.contains('/') && FILE_ENDINGS.iter().any(|ending| word.ends_with(ending));
    plain && (ours || (root_file && word.chars().next().is_some_and(char::is_uppercase)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(readme: &str) -> Vec<SourceFile> {
        let page = |path: &str, text: &str| SourceFile {
            path: path.into(),
            text: text.into(),
        };
        vec![
            page("README.md", readme),
            page("ARCHITECTURE.md", "See `crates/base`."),
        ]
    }

    fn missing(readme: &str) -> Vec<String> {
        let exists = |path: &str| path == "crates/base" || path == "CHANGELOG.md";
        check(&pages(readme), exists)
            .into_iter()
            .map(|f| f.message)
            .collect()
    }

    #[test]
    fn a_missing_path_fails() {
        assert_eq!(missing("`crates/gone/src/lib.rs` and `CHANGELOG.md`").len(), 1);
        assert_eq!(
            missing("[map](docs/gone.md) and [site](https://example.org/a)").len(),
            1
        );
    }

    #[test]
    fn commands_types_and_foreign_paths_are_no_paths_of_ours() {
        assert_eq!(
            missing("`cargo xtask test`, `Engine::open`, `a/b`, `std::fs`, `mod.rs`"),
            [""; 0]
        );
        assert_eq!(missing("`crates/base` [log](CHANGELOG.md#unreleased)"), [""; 0]);
    }

    #[test]
    fn a_missing_page_fails() {
        assert_eq!(check(&[], |_| true).len(), 2);
    }
}
