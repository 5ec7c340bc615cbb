//! Every figure shows rows that are kept, and every row is of a commit of this repository's history.
//!
//! A figure, `experiments/NAME/FIGURE.svg`, says in its footing which commits its rows are of, and in its
//! metadata which rows they are, an element for each file, figure of the rows and commit:
//!
//! ```text
//! <rows csv="results/epyc.csv" figure="4.1" commit="c7437ea" count="8"/>
//! ```
//!
//! Rows are kept in `experiments/NAME/results/FILE.csv`, with the columns `figure` and `commit` among others.
//! `experiments/NAME/README.md` names each figure and each file between backquotes; a `*` there stands for
//! anything. No reader can look at a commit that history does not have (a tree with changes, a branch that
//! was rebased): its rows are a finding. A clone without the history cannot tell; that is said loudly and is
//! no finding.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Finding;
use super::tree::SourceFile;
use crate::console;

const RULE: &str = "figures";
const FOLDER: &str = "experiments/";

/// What the history of a checkout can tell.
pub struct History {
    /// Where git looks; nothing where there is no git, no repository or not its whole history.
    root: Option<PathBuf>,
}

impl History {
    /// That of the checkout at `root`; says so if it cannot be looked at.
    pub fn of(root: &Path) -> Self {
        let mut shallow = Command::new("git");
        shallow
            .arg("-C")
            .arg(root)
            .args(["rev-parse", "--is-shallow-repository"]);
        let is_whole = shallow
            .output()
            .is_ok_and(|output| output.status.success() && output.stdout.starts_with(b"false"));
        if !is_whole {
            console::loud("tidy: without the whole git history no commit of a figure could be looked up");
        }
        Self {
            root: is_whole.then(|| root.to_owned()),
        }
    }

    /// Whether a commit leads to what is checked out; true also where nobody can tell.
    pub fn has(&self, commit: &str) -> bool {
        let Some(root) = &self.root else { return true };
        let mut ancestor = Command::new("git");
        ancestor
            .arg("-C")
            .arg(root)
            .args(["merge-base", "--is-ancestor", commit, "HEAD"]);
        console::succeeds(&mut ancestor)
    }
}

/// How many rows a file has of each (figure, commit).
type Rows = BTreeMap<(String, String), usize>;

/// Checks figures and kept rows with `has_commit`, which is asked with names of commits.
pub fn check(files: &[SourceFile], has_commit: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut kept = BTreeMap::new();
    let mut commits = BTreeSet::new();
    for file in files.iter().filter(|file| is_kept_rows(&file.path)) {
        match rows_of(&file.text) {
            Some(rows) => {
                for (_, commit) in rows.keys() {
                    if commits.insert(commit.clone()) && !(is_name(commit) && has_commit(commit)) {
                        let message = format!("has rows of {commit:?}, which is no commit of the history");
                        findings.push(Finding::new(RULE, &file.path, 0, message));
                    }
                }
                kept.insert(file.path.as_str(), rows);
            }
            None => {
                let message = "has no columns `figure` and `commit`";
                findings.push(Finding::new(RULE, &file.path, 1, message));
            }
        }
        findings.extend(unnamed(files, file));
    }
    for file in files.iter().filter(|file| is_figure(&file.path)) {
        findings.extend(figure(file, &kept));
        findings.extend(unnamed(files, file));
    }
    findings
}

fn is_kept_rows(path: &str) -> bool {
    path.starts_with(FOLDER) && path.contains("/results/") && path.ends_with(".csv")
}

fn is_figure(path: &str) -> bool {
    path.starts_with(FOLDER) && path.ends_with(".svg")
}

/// The abbreviated or whole name of a commit: nothing behind it, such as `-dirty`.
fn is_name(commit: &str) -> bool {
    (7..=40).contains(&commit.len()) && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The folder of an experiment, with its `/`.
fn home(path: &str) -> &str {
    let inside = path.strip_prefix(FOLDER).unwrap_or(path);
    let end = inside.find('/').map_or(path.len(), |at| FOLDER.len() + at + 1);
    path.get(..end).unwrap_or(path)
}

/// What is wrong with one figure.
fn figure(file: &SourceFile, kept: &BTreeMap<&str, Rows>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |message: String| findings.push(Finding::new(RULE, &file.path, 0, message));
    let (metadata, drawing) = file.text.split_once("</metadata>").unwrap_or_default();
    let elements: Vec<&str> = metadata.split("<rows ").skip(1).collect();
    if elements.is_empty() {
        found("does not say which kept rows it shows".to_owned());
    }
    for element in elements {
        let [csv, figure, commit, count] =
            ["csv", "figure", "commit", "count"].map(|name| attribute(element, name));
        let path = format!("{}{csv}", home(&file.path));
        let rows = kept.get(path.as_str());
        let there = rows.and_then(|rows| rows.get(&(figure.clone(), commit.clone())));
        let (there, shown) = (there.copied().unwrap_or(0), count.parse().unwrap_or(0));
        if shown == 0 || shown > there {
            found(format!(
                "shows {count} rows of figure {figure:?} and commit {commit:?}; {csv:?} has {there}"
            ));
        }
        if !drawing.contains(&commit) {
            found(format!("does not say in its footing that rows are of {commit:?}"));
        }
    }
    findings
}

/// The value of an XML attribute; nothing without it.
fn attribute(element: &str, name: &str) -> String {
    let begin = format!("{name}=\"");
    let value = element
        .split_once(&begin)
        .and_then(|(_, rest)| rest.split_once('"'));
    let text = value.map_or("", |(value, _)| value);
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#x27;", "'"),
        ("&amp;", "&"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (escaped, plain)| {
        text.replace(escaped, plain)
    })
}

/// A finding if the README of its experiment does not name the file.
fn unnamed(files: &[SourceFile], file: &SourceFile) -> Option<Finding> {
    let home = home(&file.path);
    let readme = files.iter().find(|page| page.path == format!("{home}README.md"));
    let name = file.path.get(home.len()..).unwrap_or_default();
    let text = readme.map_or("", |page| page.text.as_str());
    let is_named = text.split('`').skip(1).step_by(2).any(|word| matches(word, name));
    let message = format!("`{name}` is not named in {home}README.md");
    (!is_named).then(|| Finding::new(RULE, &file.path, 0, message))
}

/// Whether a word is this name; one `*` in it stands for anything.
fn matches(word: &str, name: &str) -> bool {
    match word.split_once('*') {
        Some((begin, end)) => {
            name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
        }
        None => word == name,
    }
}

/// The rows of a CSV file by figure and commit; nothing if it lacks these columns.
fn rows_of(text: &str) -> Option<Rows> {
    let mut records = records(text).into_iter();
    let header = records.next()?;
    let column = |name: &str| header.iter().position(|field| field == name);
    let (figure, commit) = (column("figure")?, column("commit")?);
    let mut rows = Rows::new();
    for record in records {
        let field = |at: usize| record.get(at).cloned().unwrap_or_default();
        *rows.entry((field(figure), field(commit))).or_default() += 1;
    }
    Some(rows)
}

/// The records of CSV (RFC 4180): fields between commas, in quotes where they hold commas, lines or quotes.
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut is_quoted = false;
    let mut letters = text.chars().filter(|letter| *letter != '\r').peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => record.push(std::mem::take(&mut field)),
            '\n' if !is_quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            _ => field.push(letter),
        }
    }
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        records.push(record);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "figure,case,commit,time\r\n\
        \"10a, 11a\",\"a, \"\"b\"\"\",c7437ea,now\r\n\
        \"10a, 11a\",c,c7437ea,now\r\n";
    const SVG: &str = "<svg><metadata>\n\
        <rows csv=\"results/quiet.csv\" figure=\"10a, 11a\" commit=\"c7437ea\" count=\"2\"/>\n\
        </metadata><text>Commit c7437ea</text></svg>";
    const README: &str = "`results/quiet.csv` is drawn in `figure-*.svg`.";

    /// What is found in an experiment of these files.
    fn messages(csv: &str, svg: &str, readme: &str) -> Vec<String> {
        let file = |path: &str, text: &str| SourceFile {
            path: format!("experiments/x/{path}"),
            text: text.to_owned(),
        };
        let files = [
            file("results/quiet.csv", csv),
            file("figure-1.svg", svg),
            file("README.md", readme),
            file("document.csv", "figure,says\n1,much\n"),
        ];
        let found = check(&files, |commit| commit == "c7437ea");
        assert!(found.iter().all(|finding| finding.rule == RULE));
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_figure_of_kept_rows_of_a_commit_passes() {
        assert_eq!(messages(CSV, SVG, README), [""; 0]);
    }

    #[test]
    fn rows_of_no_commit_of_the_history_fail() {
        for commit in ["", "c7437ea-dirty", "unknown", "0123456"] {
            let csv = format!("{CSV}1,a,{commit},now\n");
            let expected = format!("has rows of {commit:?}, which is no commit of the history");
            assert_eq!(messages(&csv, SVG, README), [expected]);
        }
    }

    #[test]
    fn rows_without_the_columns_fail() {
        let found = messages("bench,case\npgbench,a\n", SVG, README);
        assert_eq!(found.first().unwrap(), "has no columns `figure` and `commit`");
    }

    #[test]
    fn a_figure_of_other_or_more_rows_than_are_kept_fails() {
        let expected = |count: &str, commit: &str, csv: &str, there: usize| {
            format!("shows {count} rows of figure \"10a, 11a\" and commit {commit:?}; {csv:?} has {there}")
        };
        let more = SVG.replace("\"2\"", "\"3\"");
        assert_eq!(
            messages(CSV, &more, README),
            [expected("3", "c7437ea", "results/quiet.csv", 2)]
        );
        let gone = SVG.replace("quiet", "gone");
        assert_eq!(
            messages(CSV, &gone, README),
            [expected("2", "c7437ea", "results/gone.csv", 0)]
        );
        let other = SVG.replace("c7437ea", "f5ebff9");
        assert_eq!(
            messages(CSV, &other, README),
            [expected("2", "f5ebff9", "results/quiet.csv", 0)]
        );
    }

    #[test]
    fn a_figure_that_does_not_say_its_rows_or_commits_fails() {
        let expected = "does not say which kept rows it shows";
        assert_eq!(
            messages(CSV, "<svg><text>Commit c7437ea</text></svg>", README),
            [expected]
        );
        let expected = "does not say in its footing that rows are of \"c7437ea\"";
        assert_eq!(
            messages(CSV, &SVG.replace("Commit c7437ea", ""), README),
            [expected]
        );
    }

    #[test]
    fn what_the_readme_does_not_name_fails() {
        let expected = |name: &str| format!("`{name}` is not named in experiments/x/README.md");
        assert_eq!(
            messages(CSV, SVG, "`results/quiet.csv`"),
            [expected("figure-1.svg")]
        );
        assert_eq!(
            messages(CSV, SVG, "`figure-1.svg` `other-*.svg`"),
            [expected("results/quiet.csv")]
        );
    }

    #[test]
    fn escaped_attributes_are_read() {
        let element = "<rows csv=\"a\" figure=\"engine&#x27;s &lt;&amp;&gt; &quot;b&quot;\"/>";
        assert_eq!(attribute(element, "figure"), "engine's <&> \"b\"");
        assert_eq!(attribute(element, "count"), "");
    }

    #[test]
    fn without_a_repository_nothing_is_looked_up() {
        assert!(History { root: None }.has("0123456"));
        let nowhere = History {
            root: Some(PathBuf::from("/nonexistent")),
        };
        assert!(!nowhere.has("0123456"));
    }
}
