//! How deep a statement's tree can become, told from its tokens alone.
//!
//! The tree is boxed: it is parsed, visited and dropped by recursion, so its depth must be known before. The
//! bound is found in one pass with a stack of open parentheses:
//!
//! ```text
//!   depth(level)   = levels over all its terms + max over its terms (tokens of the term + max depth of
//!                    what it encloses)
//!   a term ends    at a comma (elements of a list are no deeper than each other) and at OR and AND, each of
//!                    which adds one level for the chain that it makes
//! ```
//!
//! Two things are counted: `links`, steps of chains that the parser walks in a loop (`1 + 1 + ...`) and that
//! only what reads the tree descends, and `nests`, which the parser descends too (parentheses, CASE,
//! operators before their operand). Of the nests, `queries` are queries, whose frames are many times larger.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

/// Upper bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    pub(crate) nests: usize,
    pub(crate) links: usize,
    pub(crate) queries: usize,
}

impl Depth {
    fn max(self, other: Depth) -> Depth {
        Depth {
            nests: self.nests.max(other.nests),
            links: self.links.max(other.links),
            queries: self.queries.max(other.queries),
        }
    }

    fn plus(self, other: Depth) -> Depth {
        Depth {
            nests: self.nests + other.nests,
            links: self.links + other.links,
            queries: self.queries + other.queries,
        }
    }
}

/// One open parenthesis, bracket or CASE, or the whole text.
#[derive(Default)]
struct Level {
    /// What every term lies under.
    whole: Depth,
    /// The deepest term so far.
    deepest: Depth,
    /// The term that is being read: its own tokens, and the deepest of what it encloses.
    own: Depth,
    enclosed: Depth,
    /// BETWEENs of the term whose AND has not come.
    betweens: usize,
    case: bool,
}

impl Level {
    fn end_term(&mut self) {
        self.deepest = self.deepest.max(self.own.plus(self.enclosed));
        self.own = Depth::default();
        self.enclosed = Depth::default();
        self.betweens = 0;
    }

    fn total(mut self) -> Depth {
        self.end_term();
        self.whole.plus(self.deepest)
    }
}

/// The pass.
#[derive(Default)]
pub(crate) struct DepthCounter {
    outer: Vec<Level>,
    level: Level,
}

impl DepthCounter {
    /// Takes the next token; `before` is the one before it.
    pub(crate) fn count(&mut self, token: &Token, before: Option<&Token>) {
        match token {
            Token::LParen => self.open(false),
            Token::LBracket => {
                // One dimension more of a type.
                self.level.own.links += 1;
                self.open(false);
            }
            Token::RParen | Token::RBracket => {
                while self.level.case && !self.outer.is_empty() {
                    self.close();
                }
                self.close();
            }
            Token::Comma => self.level.end_term(),
            Token::Word(word) => match word.keyword {
                Keyword::CASE => self.open(true),
                Keyword::END if self.level.case => self.close(),
                Keyword::WHEN | Keyword::THEN | Keyword::ELSE if self.level.case => self.level.end_term(),
                Keyword::OR => self.chain(),
                Keyword::AND if self.level.betweens == 0 => self.chain(),
                Keyword::AND => {
                    self.level.betweens -= 1;
                    self.level.own.links += 1;
                }
                Keyword::BETWEEN => {
                    self.level.betweens += 1;
                    self.level.own.links += 1;
                }
                Keyword::NOT => self.level.own.nests += 1,
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => self.level.whole.links += 1,
                Keyword::EXPLAIN | Keyword::PREPARE | Keyword::WITH => {
                    self.level.whole.nests += 1;
                    self.level.whole.queries += 1;
                }
                Keyword::SELECT | Keyword::VALUES => {
                    self.level.whole.queries = self.level.whole.queries.max(1);
                }
                Keyword::NoKeyword => {}
                _ => self.level.own.links += 1,
            },
            Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) | Token::Period => {}
            _ if before.is_none_or(is_operator) => self.level.own.nests += 1,
            _ => self.level.own.links += 1,
        }
    }

    fn chain(&mut self) {
        self.level.end_term();
        self.level.whole.links += 1;
    }

    fn open(&mut self, case: bool) {
        let level = Level {
            case,
            ..Level::default()
        };
        self.outer.push(std::mem::replace(&mut self.level, level));
    }

    fn close(&mut self) {
        let Some(outer) = self.outer.pop() else { return };
        let inner = std::mem::replace(&mut self.level, outer).total();
        let one = Depth {
            nests: 1,
            ..Depth::default()
        };
        self.level.enclosed = self.level.enclosed.max(inner.plus(one));
    }

    /// The bounds, with what was not closed.
    pub(crate) fn finish(mut self) -> Depth {
        while !self.outer.is_empty() {
            self.close();
        }
        self.level.total()
    }
}

fn is_operator(token: &Token) -> bool {
    !matches!(
        token,
        Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Placeholder(_)
            | Token::RParen
            | Token::RBracket
    )
}

#[cfg(test)]
mod tests {
    fn depth(sql: &str) -> (usize, usize) {
        let depth = crate::tokens::prepare(sql).unwrap().depth;
        (depth.nests, depth.links)
    }

    #[test]
    fn lists_are_flat_and_chains_are_not() {
        assert_eq!(depth(&"(1, 2), ".repeat(100)), (1, 0));
        assert_eq!(depth(&format!("1{}", " + 1".repeat(100))), (0, 100));
        assert_eq!(depth(&format!("a = 1{}", " or a = 1".repeat(100))), (0, 101));
        assert_eq!(depth(&"(".repeat(100)).0, 100);
        assert_eq!(
            depth(&format!("1 = 1{}", " and not (a = -1)".repeat(100))),
            (3, 101)
        );
        assert_eq!(depth(&"case when 1 then ".repeat(100)).0, 100);
        assert_eq!(depth(&"case when 1 then 2 end, ".repeat(100)).0, 1);
        assert!(depth(&"not x between 1 and ".repeat(100)).0 >= 100);
    }
}
