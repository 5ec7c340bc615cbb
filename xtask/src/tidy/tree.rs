//! Reads the source tree once: every text file that a rule may look at, in path order.
//!
//! Build outputs, version control and data directories are left out, as are the texts that are not ours
//! (the licence, lock files).

use std::fs;
use std::io;
use std::path::Path;

/// A text file of the project.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path from the workspace root, with `/` between its parts.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl SourceFile {
    /// True for Rust sources.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// True for files that hold only tests, benches or examples: no ceiling on their size.
    pub fn is_test_only(&self) -> bool {
        let in_folder = |name: &str| self.path.split('/').any(|part| part == name);
        in_folder("tests") || in_folder("benches") || self.path.ends_with("/tests.rs")
    }
}

const SKIPPED_FOLDERS: [&str; 6] = [
    "target",
    "node_modules",
    "__pycache__",
    "weft-data",
    "venv",
    "corpus",
];
const TEXT_ENDINGS: [&str; 16] = [
    "rs",
    "toml",
    "md",
    "py",
    "sh",
    "sql",
    "txt",
    "proptest-regressions",
    "asm",
    "slt",
    "yml",
    "csv",
    "svg",
    "sv",
    "svh",
    "cpp",
];
/// Files without an ending that are text all the same.
const TEXT_NAMES: [&str; 1] = ["run"];

/// Every text file below `root`.
pub fn read(root: &Path) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    Ok(files)
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<SourceFile>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if wanted_folder(&name) {
                walk(&entry.path(), &path, files)?;
            }
        } else if kind.is_file() && wanted_file(&name) {
            // A file that is not UTF-8, or that went away while we read, is no source of ours.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                files.push(SourceFile { path, text });
            }
        }
    }
    Ok(())
}

fn wanted_folder(name: &str) -> bool {
    let hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
    !hidden && !SKIPPED_FOLDERS.contains(&name)
}

fn wanted_file(name: &str) -> bool {
    match name.rsplit_once('.') {
        Some((_, ending)) => TEXT_ENDINGS.contains(&ending),
        None => TEXT_NAMES.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_outputs_and_hidden_folders_are_left_out() {
        assert!(!wanted_folder("target"));
        assert!(!wanted_folder(".git"));
        assert!(wanted_folder(".ci"));
        assert!(wanted_folder("crates"));
    }

    #[test]
    fn only_text_is_read() {
        assert!(wanted_file("lib.rs"));
        assert!(wanted_file("run"));
        assert!(!wanted_file("Cargo.lock"));
        assert!(!wanted_file("LICENSE"));
    }
}
