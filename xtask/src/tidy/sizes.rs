//! Size ceilings: a file to be read in one sitting, a function to be seen on one screen, a line that fits.

use super::Finding;
use super::rust_source::{functions, mask, test_modules};
use super::tree::SourceFile;

/// Lines of one file without its `#[cfg(test)]` modules.
pub const FILE_LINES_MAX: usize = 800;
/// Lines of one function, signature and braces included.
pub const FUNCTION_LINES_MAX: usize = 100;
/// Columns (characters, not bytes) of one line.
pub const LINE_COLUMNS_MAX: usize = 110;

/// Checks the three ceilings on one file. Test files and test modules have only the line width to keep.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = widths(file);
    if !file.is_rust() || file.is_test_only() {
        return findings;
    }
    let masked = mask(&file.text);
    let tests = test_modules(&masked);
    let test_lines: usize = tests.iter().map(|(first, last)| last - first + 1).sum();
    let line_count = file.text.lines().count() - test_lines.min(file.text.lines().count());
    if line_count > FILE_LINES_MAX {
        let message = format!("{line_count} lines without tests; the ceiling is {FILE_LINES_MAX}: split it");
        findings.push(Finding::new("file-lines", &file.path, 0, message));
    }
    for function in functions(&masked) {
        let in_tests = tests
            .iter()
            .any(|&(first, last)| (first..=last).contains(&function.first_line));
        if function.line_count() > FUNCTION_LINES_MAX && !in_tests {
            let subject = format!("{}::{}", file.path, function.name);
            let message = format!(
                "{} lines; the ceiling is {FUNCTION_LINES_MAX}: split it",
                function.line_count()
            );
            findings.push(Finding::new(
                "function-lines",
                &subject,
                function.first_line,
                message,
            ));
        }
    }
    findings
}

fn widths(file: &SourceFile) -> Vec<Finding> {
    let measured = [".rs", ".py", ".sh", ".sv"]
        .iter()
        .any(|ending| file.path.ends_with(ending));
    if !measured {
        return Vec::new();
    }
    // A long text in quotes may stand on one line: cutting it would only make it harder to search.
    let masked = if file.is_rust() {
        mask(&file.text)
    } else {
        file.text.clone().into_bytes()
    };
    let code_bytes = |line: &str, masked: &[u8]| {
        let hidden = line
            .bytes()
            .zip(masked)
            .filter(|(raw, masked)| raw != *masked)
            .count();
        line.len() - hidden
    };
    let masked_lines = masked.split(|byte| *byte == b'\n');
    let lines = file.text.lines().zip(masked_lines).enumerate();
    lines
        .filter(|(_, (line, masked))| {
            let text = line.trim_start();
            // A row of a table in a comment cannot be folded.
            let row = ["//! |", "/// |"].iter().any(|start| text.starts_with(start));
            let comment = text.starts_with("//") && !row;
            line.chars().count() > LINE_COLUMNS_MAX
                && (comment || code_bytes(line, masked) > LINE_COLUMNS_MAX)
        })
        .map(|(at, (line, _))| {
            let message = format!(
                "{} columns; the ceiling is {LINE_COLUMNS_MAX}",
                line.chars().count()
            );
            Finding::new("line-width", &file.path, at + 1, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: String) -> Vec<(&'static str, String)> {
        let file = SourceFile {
            path: path.into(),
            text,
        };
        check(&file).into_iter().map(|f| (f.rule, f.subject)).collect()
    }

    #[test]
    fn a_long_file_fails_and_its_tests_do_not_count() {
        let long = "// line\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(
            rules("a/src/b.rs", long.clone()),
            [("file-lines", "a/src/b.rs".into())]
        );
        assert_eq!(rules("a/tests/b.rs", long), []);
        let tests = format!(
            "fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n",
            "// line\n".repeat(900)
        );
        assert_eq!(rules("a/src/b.rs", tests), []);
    }

    #[test]
    fn a_long_function_fails_at_its_name() {
        let body = "    step();\n".repeat(FUNCTION_LINES_MAX - 1);
        let source = format!("fn fits() {{}}\nfn too_long() {{\n{body}}}\n");
        assert_eq!(
            rules("a/src/b.rs", source),
            [("function-lines", "a/src/b.rs::too_long".into())]
        );
        let in_tests = format!("#[cfg(test)]\nmod tests {{\nfn long() {{\n{body}\n}}\n}}\n");
        assert_eq!(rules("a/src/b.rs", in_tests), []);
    }

    #[test]
    fn a_wide_line_fails_in_code_but_not_in_prose() {
        let quoted = format!("const A: &str = \"{}\";", "a".repeat(LINE_COLUMNS_MAX));
        assert_eq!(rules("a/src/b.rs", quoted), []);
        let wide = "/".repeat(LINE_COLUMNS_MAX + 1);
        assert_eq!(
            rules("a/tests/b.rs", wide.clone()),
            [("line-width", "a/tests/b.rs".into())]
        );
        assert_eq!(rules("README.md", wide), []);
        assert_eq!(rules("a/src/b.rs", "é".repeat(LINE_COLUMNS_MAX)), []);
    }
}
