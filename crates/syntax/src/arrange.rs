//! What the parser takes in another form than the text has it.
//!
//! One pass over the tokens, before they are parsed:
//!
//! ```text
//!   a JOIN b JOIN c ON x ON y          a JOIN (b JOIN c ON x) ON y      ON belongs to the nearest JOIN
//!   a JOIN b WHERE ...                 an error at WHERE                without one; the parser takes none
//!   SELECT UNION SELECT                SELECT "nothing" UNION ...       taken away again from the tree
//!   ROLLUP ((a)::text, b)              ROLLUP (((a)::text), b)          a parenthesis begins an element
//!   (ORDER BY a ROWS 1 PRECEDING       (ORDER BY a, "exclude ties"      the tree has no place for it
//!     EXCLUDE TIES)                      ROWS 1 PRECEDING)
//!   FROM ONLY a                        FROM a                           no table has children
//! ```

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use weft_types::SqlError;
use weft_types::interrupt::Pace;

use crate::keyword;

/// Name of the item that stands for an empty list of SELECT.
pub(crate) const NOTHING: &str = "\u{1}nothing";

/// Names of the last key of a window's order, or of its partition if it has no order, for a frame's EXCLUDE.
pub const EXCLUDE_CURRENT_ROW: &str = "\u{1}exclude current row";
/// As [`EXCLUDE_CURRENT_ROW`].
pub const EXCLUDE_GROUP: &str = "\u{1}exclude group";
/// As [`EXCLUDE_CURRENT_ROW`].
pub const EXCLUDE_TIES: &str = "\u{1}exclude ties";

/// What the pass found besides.
#[derive(Default)]
pub(crate) struct Arranged {
    /// The character position of a token that cannot come there, as the ON of a join or a list of SELECT is
    /// missing;
    /// 0 is the end of the text.
    pub(crate) missing: Option<u64>,
    /// A list of SELECT was empty.
    pub(crate) empty_list: bool,
}

/// A JOIN whose ON or USING has not come.
struct Pending {
    /// The first token of its right side.
    right: usize,
    /// Another join has come before its ON.
    nested: bool,
}

/// Inside one pair of parentheses.
#[derive(Default)]
struct Level {
    pending: Vec<Pending>,
    /// Behind FROM.
    from: bool,
    /// Behind the ON of a join.
    on: bool,
    /// It holds a query.
    query: bool,
    /// The parentheses of ROLLUP, CUBE or GROUPING SETS: where the element begins, and whether more than its
    /// parenthesis belongs to it.
    grouping: bool,
    element: usize,
    longer: bool,
    /// Where a frame begins, and what came before it.
    frame: Option<usize>,
    ordered: bool,
    partitioned: bool,
}

struct Pass<'a> {
    tokens: &'a [TokenWithSpan],
    levels: Vec<Level>,
    level: Level,
    /// Tokens to put before others.
    put: Vec<(usize, Token)>,
    /// Tokens to leave out, as (first, count).
    left_out: Vec<(usize, usize)>,
    found: Arranged,
}

/// Rewrites the tokens.
pub(crate) fn arrange(tokens: &mut Vec<TokenWithSpan>) -> Result<Arranged, SqlError> {
    let mut pass = Pass {
        tokens,
        levels: Vec::new(),
        level: Level::default(),
        put: Vec::new(),
        left_out: Vec::new(),
        found: Arranged::default(),
    };
    let mut pace = Pace::default();
    for at in 0..pass.tokens.len() {
        pace.step(4)?;
        pass.see(at)?;
    }
    pass.end_joins(None);
    let Pass {
        mut put,
        left_out,
        found,
        ..
    } = pass;
    if put.is_empty() && left_out.is_empty() {
        return Ok(found);
    }
    put.sort_by_key(|(at, _)| *at);
    let mut put = put.into_iter().peekable();
    let mut left_out = left_out.into_iter().peekable();
    let mut out = Vec::with_capacity(tokens.len() + put.len());
    let mut skipped_to = 0;
    let end = tokens
        .last()
        .map(|last| last.span)
        .unwrap_or_else(sqlparser::tokenizer::Span::empty);
    for (at, token) in tokens.drain(..).enumerate() {
        pace.step(4)?;
        while let Some((_, inserted)) = put.next_if(|(place, _)| *place == at) {
            out.push(TokenWithSpan {
                token: inserted,
                span: token.span,
            });
        }
        if let Some((first, count)) = left_out.next_if(|(first, _)| *first == at) {
            skipped_to = first + count;
        }
        if at >= skipped_to {
            out.push(token);
        }
    }
    out.extend(put.map(|(_, token)| TokenWithSpan { token, span: end }));
    *tokens = out;
    Ok(found)
}

impl Pass<'_> {
    fn word(&self, at: Option<usize>) -> Keyword {
        match at.and_then(|at| self.tokens.get(at)).map(|token| &token.token) {
            Some(Token::Word(word)) => word.keyword,
            _ => Keyword::NoKeyword,
        }
    }

    fn is(&self, at: Option<usize>, token: &Token) -> bool {
        at.and_then(|at| self.tokens.get(at))
            .is_some_and(|found| found.token == *token)
    }

    fn named(&self, at: usize, name: &str) -> bool {
        let token = self.tokens.get(at).map(|token| &token.token);
        matches!(token, Some(Token::Word(word)) if word.quote_style.is_none() && word.value == name)
    }

    fn see(&mut self, at: usize) -> Result<(), SqlError> {
        let Some(token) = self.tokens.get(at) else {
            return Ok(());
        };
        match &token.token {
            Token::LParen => {
                let before = self.word(at.checked_sub(1));
                let sets = before == Keyword::SETS && self.word(at.checked_sub(2)) == Keyword::GROUPING;
                let table = matches!(before, Keyword::FROM | Keyword::JOIN | Keyword::USING)
                    || self.is(at.checked_sub(1), &Token::Comma)
                    || self.is(at.checked_sub(1), &Token::LParen);
                let inner = Level {
                    // A join in parentheses.
                    from: self.level.from && table,
                    grouping: sets || matches!(before, Keyword::ROLLUP | Keyword::CUBE),
                    element: at + 1,
                    ..Level::default()
                };
                self.levels.push(std::mem::replace(&mut self.level, inner));
            }
            Token::RParen => {
                self.end_joins(Some(at));
                self.end_element(at);
                self.level = self.levels.pop().unwrap_or_default();
                if self.level.grouping && self.is(Some(self.level.element), &Token::LParen) {
                    let next = Some(at + 1);
                    self.level.longer |= !self.is(next, &Token::Comma) && !self.is(next, &Token::RParen);
                }
            }
            Token::Comma => {
                self.end_joins(Some(at));
                self.level.on = false;
                self.end_element(at);
                self.level.element = at + 1;
            }
            Token::SingleQuotedString(_) if self.level.from && !self.level.on => {
                let before = at.checked_sub(1).and_then(|before| self.tokens.get(before));
                // The parser would take it as the table's name.
                let named = match before.map(|token| &token.token) {
                    Some(Token::RParen) => true,
                    Some(Token::Word(word)) => {
                        word.quote_style.is_some() || keyword::names_column(&word.value)
                    }
                    _ => false,
                };
                if named {
                    self.found.missing.get_or_insert(token.span.start.column);
                }
            }
            Token::SemiColon => self.end_joins(Some(at)),
            Token::Word(_) if self.named(at, "overriding") && self.named(at + 2, "value") => {
                return Err(SqlError::unsupported("OVERRIDING is not supported"));
            }
            Token::Word(word) if word.keyword != Keyword::NoKeyword => self.see_word(at, word)?,
            _ => {}
        }
        Ok(())
    }

    fn see_word(&mut self, at: usize, word: &Word) -> Result<(), SqlError> {
        let before = at.checked_sub(1);
        // A label, not a clause.
        if self.is(before, &Token::Period) || self.word(before) == Keyword::AS {
            return Ok(());
        }
        match word.keyword {
            Keyword::JOIN if self.level.from => self.join(at),
            Keyword::ON | Keyword::USING => {
                self.level.on = true;
                match self.level.pending.pop() {
                    Some(pending) if pending.nested => {
                        self.put.push((pending.right, Token::LParen));
                        self.put.push((at, Token::RParen));
                    }
                    None if word.keyword == Keyword::USING && self.levels.is_empty() => {
                        // DELETE FROM ... USING
                        self.level.from = true;
                        self.level.on = false;
                    }
                    _ => {}
                }
            }
            Keyword::FROM => {
                let name = self.word(before) == Keyword::ROWS
                    && self.is(Some(at + 1), &Token::LParen)
                    && (matches!(
                        self.word(at.checked_sub(2)),
                        Keyword::FROM | Keyword::JOIN | Keyword::LATERAL
                    ) || self.level.from && self.is(at.checked_sub(2), &Token::Comma));
                if name {
                    return Err(SqlError::unsupported("ROWS FROM is not supported"));
                }
                let distinct = self.word(before) == Keyword::DISTINCT
                    && matches!(self.word(at.checked_sub(2)), Keyword::IS | Keyword::NOT);
                if !distinct && (self.level.query || self.levels.is_empty()) {
                    self.level.from = true;
                    self.level.on = false;
                }
            }
            Keyword::ONLY => {
                let table = matches!(self.word(before), Keyword::FROM | Keyword::JOIN | Keyword::UPDATE)
                    || self.level.from && self.is(before, &Token::Comma);
                let name = self.tokens.get(at + 1).map(|token| &token.token);
                if table && matches!(name, Some(Token::Word(_))) {
                    self.left_out.push((at, 1));
                }
            }
            Keyword::UPDATE | Keyword::INTO => self.level.from = true,
            Keyword::SELECT => {
                self.end_clause(at);
                self.level.query = true;
                self.select(at);
            }
            Keyword::WHERE
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::FETCH
            | Keyword::FOR
            | Keyword::WINDOW
            | Keyword::UNION
            | Keyword::EXCEPT
            | Keyword::INTERSECT
            | Keyword::SET
            | Keyword::VALUES
            | Keyword::RETURNING => self.end_clause(at),
            Keyword::ORDER => {
                self.level.ordered = true;
                self.end_clause(at);
            }
            Keyword::PARTITION => self.level.partitioned = true,
            Keyword::ROWS | Keyword::RANGE | Keyword::GROUPS => self.level.frame = Some(at),
            Keyword::EXCLUDE => self.exclude(at),
            _ => {}
        }
        Ok(())
    }

    fn join(&mut self, at: usize) {
        self.level.on = false;
        if let Some(pending) = self.level.pending.last_mut() {
            pending.nested = true;
        }
        let mut before = at.checked_sub(1);
        if self.word(before) == Keyword::CROSS {
            return;
        }
        while matches!(
            self.word(before),
            Keyword::OUTER | Keyword::INNER | Keyword::LEFT | Keyword::RIGHT | Keyword::FULL
        ) {
            before = before.and_then(|before| before.checked_sub(1));
        }
        if self.word(before) != Keyword::NATURAL {
            self.level.pending.push(Pending {
                right: at + 1,
                nested: false,
            });
        }
    }

    fn end_clause(&mut self, at: usize) {
        self.end_joins(Some(at));
        self.level.from = false;
    }

    /// No ON can come any more.
    fn end_joins(&mut self, at: Option<usize>) {
        if self.level.pending.is_empty() {
            return;
        }
        self.level.pending.clear();
        let token = at.and_then(|at| self.tokens.get(at));
        let position = token.map_or(0, |token| token.span.start.column);
        self.found.missing.get_or_insert(position);
    }

    fn end_element(&mut self, at: usize) {
        if self.level.grouping && self.level.longer {
            self.put.push((self.level.element, Token::LParen));
            self.put.push((at, Token::RParen));
        }
        self.level.longer = false;
    }

    fn select(&mut self, at: usize) {
        let list = match self.word(Some(at + 1)) {
            Keyword::ALL => at + 2,
            Keyword::DISTINCT if self.word(Some(at + 2)) == Keyword::FROM => {
                let token = self.tokens.get(at + 2);
                let position = token.map_or(0, |token| token.span.start.column);
                self.found.missing.get_or_insert(position);
                return;
            }
            _ => at + 1,
        };
        let empty = match self.tokens.get(list).map(|token| &token.token) {
            None | Some(Token::SemiColon | Token::RParen) => true,
            Some(Token::Word(word)) => matches!(
                word.keyword,
                Keyword::WHERE
                    | Keyword::GROUP
                    | Keyword::HAVING
                    | Keyword::WINDOW
                    | Keyword::UNION
                    | Keyword::INTERSECT
                    | Keyword::EXCEPT
                    | Keyword::ORDER
                    | Keyword::LIMIT
                    | Keyword::OFFSET
                    | Keyword::FETCH
                    | Keyword::FOR
            ),
            _ => false,
        };
        if empty {
            self.put.push((list, marker(NOTHING)));
            self.found.empty_list = true;
        }
    }

    fn exclude(&mut self, at: usize) {
        let Some(frame) = self.level.frame else { return };
        let (name, count) = match (self.word(Some(at + 1)), self.word(Some(at + 2))) {
            (Keyword::CURRENT, Keyword::ROW) => (Some(EXCLUDE_CURRENT_ROW), 3),
            (Keyword::GROUP, _) => (Some(EXCLUDE_GROUP), 2),
            (Keyword::TIES, _) => (Some(EXCLUDE_TIES), 2),
            (Keyword::NO, _) if self.named(at + 2, "others") => (None, 3),
            _ => return,
        };
        if !self.is(Some(at + count), &Token::RParen) {
            return;
        }
        self.left_out.push((at, count));
        let Some(name) = name else { return };
        match self.level.ordered || self.level.partitioned {
            true => self.put.push((frame, Token::Comma)),
            false => {
                self.put.push((frame, Token::make_word("order", None)));
                self.put.push((frame, Token::make_word("by", None)));
            }
        }
        self.put.push((frame, marker(name)));
    }
}

/// A name that no text can have.
fn marker(name: &str) -> Token {
    Token::Word(Word {
        value: name.to_owned(),
        quote_style: Some('"'),
        keyword: Keyword::NoKeyword,
    })
}

#[cfg(test)]
mod tests {
    use crate::with_statement;

    /// The statement as the parser took it, or the error.
    fn shown(sql: &str) -> String {
        let shown = with_statement(sql, |statement| Ok(statement.to_string()));
        shown.unwrap_or_else(|error| format!("{}: {}", error.state.0, error.message))
    }

    #[test]
    fn an_on_belongs_to_the_nearest_join_without_one() {
        for (text, expected) in [
            (
                "SELECT 1 FROM a JOIN b JOIN c ON x ON y",
                "SELECT 1 FROM a JOIN (b JOIN c ON x) ON y",
            ),
            (
                "SELECT 1 FROM a LEFT JOIN b CROSS JOIN c ON x",
                "SELECT 1 FROM a LEFT JOIN (b CROSS JOIN c) ON x",
            ),
            (
                "SELECT 1 FROM a NATURAL JOIN b JOIN c USING (d)",
                "SELECT 1 FROM a NATURAL JOIN b JOIN c USING(d)",
            ),
            (
                "SELECT 1 FROM a JOIN b JOIN c JOIN d ON x JOIN e ON y ON z ON w",
                "SELECT 1 FROM a JOIN (b JOIN (c JOIN d ON x JOIN e ON y) ON z) ON w",
            ),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn a_join_needs_its_on() {
        for (text, near) in [
            ("SELECT 1 FROM a JOIN b WHERE true", "near \"WHERE\""),
            ("SELECT 1 FROM a JOIN b, c", "near \",\""),
            ("SELECT 1 FROM (a JOIN b)", "near \")\""),
            ("SELECT DISTINCT FROM a", "near \"FROM\""),
            ("SELECT 1 FROM a JOIN b JOIN c ON true", "end of input"),
        ] {
            let answer = shown(text);
            assert!(
                answer.starts_with("42601") && answer.ends_with(near),
                "{text}: {answer}"
            );
        }
    }

    #[test]
    fn only_before_a_table_is_left_out() {
        for (text, expected) in [
            ("SELECT 1 FROM ONLY a.b", "SELECT 1 FROM a.b"),
            ("SELECT 1 FROM ONLY a x, ONLY b", "SELECT 1 FROM a x, b"),
            (
                "SELECT 1 FROM a JOIN ONLY b ON true",
                "SELECT 1 FROM a JOIN b ON true",
            ),
            ("UPDATE ONLY a SET b = 1", "UPDATE a SET b = 1"),
            ("DELETE FROM ONLY a", "DELETE FROM a"),
            (
                "SELECT 1 FROM a FETCH FIRST 1 ROWS ONLY",
                "SELECT 1 FROM a FETCH FIRST 1 ROWS ONLY",
            ),
        ] {
            assert_eq!(shown(text), shown(expected), "{text}");
        }
    }

    #[test]
    fn a_list_of_select_may_be_empty() {
        assert_eq!(shown("SELECT"), "SELECT");
        assert_eq!(shown("SELECT WHERE a"), "SELECT WHERE a");
        assert!(shown("SELECT FROM WHERE").starts_with("42601"));
    }

    #[test]
    fn an_element_of_a_grouping_list_may_begin_with_a_parenthesis() {
        assert_eq!(
            shown("SELECT 1 FROM a GROUP BY ROLLUP ((b) + 1, (c, d))"),
            "SELECT 1 FROM a GROUP BY ROLLUP ((b) + 1, (c, d))"
        );
    }

    #[test]
    fn a_literal_behind_a_name_may_be_a_value() {
        for text in [
            "SELECT extract(year FROM timestamp 'x') FROM a JOIN b ON date 'x' = c",
            "SELECT a IS DISTINCT FROM date 'x'",
            "INSERT INTO a VALUES (1), (date 'x')",
            "SELECT 1 FROM a JOIN b USING (c) WHERE date 'x' = d",
            "SELECT 1 FROM generate_series(date 'x', date 'y')",
        ] {
            assert!(!shown(text).starts_with("42601"), "{text}: {}", shown(text));
        }
    }

    #[test]
    fn reserved_words_are_no_names() {
        for text in [
            "CREATE TABLE t (select int)",
            "CREATE TABLE user (a int)",
            "SELECT 1 FROM t AS select",
            "SELECT 1 FROM t 'x'",
            "WITH end AS (SELECT 1) SELECT 1",
            "UPDATE t SET from = 1",
            "INSERT INTO t (where) VALUES (1)",
            "DROP TABLE select",
        ] {
            assert!(shown(text).starts_with("42601"), "{text}: {}", shown(text));
        }
        assert_eq!(shown("SELECT 1 FROM \"select\""), "SELECT 1 FROM \"select\"");
    }
}
