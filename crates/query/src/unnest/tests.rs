//! Statements with subqueries over the fixture's tables, with PostgreSQL's answers.

use crate::fixture::answer;

/// `answers.txt`: a statement, its rows sorted and each prefixed with `= `, an empty line.
#[test]
fn answers_are_those_of_postgresql() {
    let only = std::env::var("WEFT_STATEMENT").ok();
    let mut wrong = 0;
    let blocks: Vec<&str> = include_str!("answers.txt").split("\n\n").collect();
    for block in blocks {
        let mut lines = block.lines();
        let Some(sql) = lines.next() else { continue };
        if only.as_ref().is_some_and(|only| !sql.contains(only.as_str())) {
            continue;
        }
        let expected: Vec<&str> = lines.filter_map(|line| line.strip_prefix("= ")).collect();
        let mut rows = match answer(sql) {
            Ok(rows) => rows,
            Err(error) => vec![format!("ERROR {} {}", error.state.0, error.message)],
        };
        rows.sort();
        if rows != expected {
            wrong += 1;
            println!("{sql}\n  expected {expected:?}\n  found    {rows:?}");
        }
    }
    assert_eq!(wrong, 0, "wrong answers");
}
