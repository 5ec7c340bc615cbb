//! The glossary names nothing twice: one word for one thing.
//!
//! A row of `docs/GLOSSARY.md` begins with a word, or with several of one meaning, separated by commas. All
//! tables of the page count together, so a word with two meanings needs a name that tells them apart.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::SourceFile;

/// The page.
const GLOSSARY: &str = "docs/GLOSSARY.md";

/// Reports each word that has a second row.
pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    let page = files.iter().find(|file| file.path == GLOSSARY);
    page.map_or_else(Vec::new, |page| repeated(&page.text))
}

fn repeated(text: &str) -> Vec<Finding> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(words) = line.strip_prefix("| ").and_then(|row| row.split('|').next()) else {
            continue;
        };
        for word in words.split([',', ';']).map(str::trim) {
            if matches!(word, "word" | "short" | "") {
                continue;
            }
            match first.get(word) {
                Some(line) => {
                    let message = format!("{word:?} has a meaning already, in line {line}");
                    findings.push(Finding::new("glossary", GLOSSARY, at + 1, message));
                }
                None => _ = first.insert(word, at + 1),
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_one_row() {
        let sound =
            "| word | meaning |\n|---|---|\n| in, out | a |\n\n| word | meaning |\n|---|---|\n| slot | b |\n";
        assert!(repeated(sound).is_empty());
        let findings = repeated(&format!("{sound}| out | c |\n"));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 8);
    }
}
