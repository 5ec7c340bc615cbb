//! The scanner's tokens as the parser takes them.
//!
//! Names are folded and cut, literals decoded, and every span says the character position of its token in the
//! column of line 1: positions of errors and of names in the tree are PostgreSQL's as they are. A word that
//! is no key word of PostgreSQL is none for the parser either, so that other dialects' clauses do not parse.
//!
//! One pass over the tokens also finds out what a parser with one token of look-ahead cannot know or should
//! know before it starts:
//! 1. which parentheses hold a query and which an expression or a join ([`Prepared::queries`]),
//! 2. how deep the tree can become at most ([`Depth`]).

use std::collections::HashSet;

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Word};
use weft_base::Reservation;
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState};

use crate::arrange::{Arranged, arrange};
use crate::depth::{Depth, DepthCounter};
use crate::keyword;
use crate::literal::{self, Fault};
use crate::parentheses::Parentheses;
use crate::position::{self, char_position};
use crate::scanner::{self, Scanner, TokenKind};
use crate::weight::Weight;

/// Key words of the parser that PostgreSQL has as names of types, fields or options.
const NAMES_KEPT: &[&str] = &[
    "bernoulli",
    "bool",
    "bpchar",
    "btree",
    "bytea",
    "century",
    "date",
    "decade",
    "dow",
    "doy",
    "epoch",
    "float4",
    "float8",
    "format",
    "gin",
    "gist",
    "hash",
    "int2",
    "int4",
    "int8",
    "isodow",
    "isoyear",
    "json",
    "jsonb",
    "julian",
    "microseconds",
    "millennium",
    "milliseconds",
    "plpgsql",
    "quarter",
    "regclass",
    "timestamptz",
    "timetz",
    "timezone",
    "timezone_hour",
    "timezone_minute",
    "tsquery",
    "tsvector",
    "uuid",
    "varbit",
    "week",
];

/// Key words of PostgreSQL with which the parser would read another dialect's clause.
const NAMES_HIDDEN: &[&str] = &["value", "xml", "convert"];

/// The list of tokens has room at first for a text of so many bytes.
const TOKENS_AT_FIRST: usize = 64 << 10;

/// Tokens to parse.
pub(crate) struct Prepared {
    pub(crate) tokens: Vec<TokenWithSpan>,
    /// For each token: it is a parenthesis that holds a query.
    pub(crate) queries: Vec<bool>,
    /// Positions of names of subqueries whose LATERAL is not in the text ([`Parentheses`]).
    pub(crate) laterals: HashSet<u64>,
    pub(crate) arranged: Arranged,
    pub(crate) depth: Depth,
    /// Upper bound of the memory that the tree takes.
    pub(crate) bytes: usize,
    /// Its reservation, to be kept for as long as the tree.
    pub(crate) memory: Option<Reservation>,
}

/// Reads a text that holds one statement or expression.
pub(crate) fn prepare(sql: &str) -> Result<Prepared, SqlError> {
    let mut reader = Reader {
        sql,
        scanner: Scanner::paced(sql),
        counted: (0, 1),
        tokens: Vec::with_capacity(sql.len().min(TOKENS_AT_FIRST) / 4),
        weight: Weight::default(),
    };
    reader.read()?;
    let mut tokens = reader.tokens;
    let (bytes, memory) = reader.weight.finish();
    let arranged = arrange(&mut tokens)?;
    let mut parentheses = Parentheses::default();
    let mut depth = DepthCounter::default();
    let mut pace = Pace::default();
    for (at, token) in tokens.iter().enumerate() {
        pace.step(4)?;
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        depth.count(&token.token, before.map(|before| &before.token));
        parentheses.see(
            &token.token,
            at,
            tokens.get(..at).unwrap_or(&[]),
            token.span.start.column,
        );
    }
    if parentheses.run_too_long {
        return Err(position::too_deep());
    }
    let (queries, laterals) = parentheses.finish(&mut tokens)?;
    Ok(Prepared {
        tokens,
        queries,
        laterals,
        arranged,
        depth: depth.finish(),
        bytes,
        memory,
    })
}

struct Reader<'a> {
    sql: &'a str,
    scanner: Scanner<'a>,
    /// A byte and its character position.
    counted: (usize, u64),
    tokens: Vec<TokenWithSpan>,
    weight: Weight,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), SqlError> {
        let mut pace = Pace::default();
        while let Some(token) = self.scanner.next() {
            pace.step(16 + (token.end - token.start) / 32)?;
            let start = self.location(token.start);
            let parsed = self.convert(token)?;
            if matches!(parsed, Token::SingleQuotedString(_)) && self.refuses_alias() {
                return Err(near(self.sql, start.column));
            }
            let end = self.location(token.end);
            self.push(parsed, Span { start, end })?;
        }
        Ok(())
    }

    fn push(&mut self, token: Token, span: Span) -> Result<(), SqlError> {
        // The parser reads TABLE as a query only half: `TABLE name` is `SELECT * FROM name`.
        if matches!(&token, Token::Word(word) if word.keyword == Keyword::TABLE) && self.at_query() {
            for token in [
                Token::make_word("select", None),
                Token::Mul,
                Token::make_word("from", None),
            ] {
                self.put(token, span)?;
            }
            return Ok(());
        }
        self.put(token, span)
    }

    /// In queries and changes of rows a literal is no name behind AS. (It is the body of a function.)
    fn refuses_alias(&self) -> bool {
        let is = |token: Option<&TokenWithSpan>, words: &[Keyword]| match token.map(|token| &token.token) {
            Some(Token::Word(word)) => words.contains(&word.keyword),
            Some(Token::LParen) => words.contains(&Keyword::SELECT),
            _ => false,
        };
        is(self.tokens.last(), &[Keyword::AS])
            && is(
                self.tokens.first(),
                &[
                    Keyword::SELECT,
                    Keyword::WITH,
                    Keyword::VALUES,
                    Keyword::INSERT,
                    Keyword::UPDATE,
                    Keyword::DELETE,
                ],
            )
    }

    /// A query may begin here.
    fn at_query(&self) -> bool {
        let before = |back: usize| {
            self.tokens
                .len()
                .checked_sub(back)
                .and_then(|at| self.tokens.get(at))
        };
        let word = |token: &TokenWithSpan| match &token.token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let set = |token: &TokenWithSpan| {
            matches!(word(token), Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT)
        };
        match before(1) {
            None => true,
            Some(last) if matches!(last.token, Token::LParen | Token::RParen) => true,
            Some(last) if matches!(word(last), Keyword::ALL | Keyword::DISTINCT) => {
                before(2).is_some_and(set)
            }
            Some(last) => set(last),
        }
    }

    fn put(&mut self, token: Token, span: Span) -> Result<(), SqlError> {
        let before = self.tokens.last().map(|before| &before.token);
        self.weight.count(&token, before)?;
        self.tokens.push(TokenWithSpan { token, span });
        Ok(())
    }

    fn location(&mut self, byte: usize) -> Location {
        let (from, position) = self.counted;
        let between = self.sql.as_bytes().get(from..byte).unwrap_or(&[]);
        let characters = between.iter().filter(|byte| (**byte & 0xC0) != 0x80).count();
        self.counted = (byte, position + characters as u64);
        Location {
            line: 1,
            column: self.counted.1,
        }
    }

    fn convert(&mut self, token: scanner::Token) -> Result<Token, SqlError> {
        let text = token.text(self.sql);
        Ok(match token.kind {
            TokenKind::Word => self.word(token, text),
            TokenKind::QuotedWord => self.quoted_word(token, text)?,
            TokenKind::Integer | TokenKind::Decimal => Token::Number(text.to_owned(), false),
            TokenKind::PlainString => {
                let inner = text.get(1..text.len() - 1).unwrap_or("");
                Token::SingleQuotedString(literal::unquote(inner, '\'')?)
            }
            TokenKind::OtherString => self.other_string(token, text)?,
            TokenKind::Parameter => Token::Placeholder(text.to_owned()),
            TokenKind::Semicolon => Token::SemiColon,
            TokenKind::DoubleColon => Token::DoubleColon,
            TokenKind::ColonEquals => Token::Assignment,
            TokenKind::DotDot => Token::Char('.'),
            TokenKind::Operator => operator(text),
            TokenKind::Punctuation => match text {
                "(" => Token::LParen,
                ")" => Token::RParen,
                "[" => Token::LBracket,
                "]" => Token::RBracket,
                "," => Token::Comma,
                "." => Token::Period,
                ":" => Token::Colon,
                other => Token::Char(other.chars().next().unwrap_or(' ')),
            },
            TokenKind::Junk(junk) => {
                return Err(self.fault(SqlState::SYNTAX_ERROR, junk.message(), token));
            }
            TokenKind::Unterminated(what) => {
                let ended = self.scanner.ended();
                return Err(
                    ended.unwrap_or_else(|| self.fault(SqlState::SYNTAX_ERROR, what.message(), token))
                );
            }
        })
    }

    fn word(&self, token: scanner::Token, text: &str) -> Token {
        // N'...' is a literal of type nchar: the word and a plain literal.
        debug_assert!(token.start < token.end);
        let value = literal::fold_name(text);
        let keyword = match keyword::of_parser(&value) {
            Some(_) if NAMES_HIDDEN.contains(&value.as_str()) => Keyword::NoKeyword,
            Some(keyword) => keyword,
            None if NAMES_KEPT.contains(&value.as_str()) => return Token::make_word(&value, None),
            None => Keyword::NoKeyword,
        };
        Token::Word(Word {
            value,
            quote_style: None,
            keyword,
        })
    }

    fn quoted_word(&mut self, token: scanner::Token, text: &str) -> Result<Token, SqlError> {
        let value = match text.starts_with('"') {
            true => literal::quoted_name(text)?,
            false => {
                let inner = text.get(3..text.len() - 1).unwrap_or("");
                let escape = self.unicode_escape()?;
                let decoded = literal::decode_unicode(&literal::unquote(inner, '"')?, escape);
                literal::cut_name(decoded.map_err(|fault| self.place(fault, token))?)
            }
        };
        if value.is_empty() {
            return Err(self.fault(SqlState::SYNTAX_ERROR, "zero-length delimited identifier", token));
        }
        Ok(Token::Word(Word {
            value,
            quote_style: Some('"'),
            keyword: Keyword::NoKeyword,
        }))
    }

    fn other_string(&mut self, token: scanner::Token, text: &str) -> Result<Token, SqlError> {
        let mut escape = '\\';
        match text.as_bytes().first() {
            Some(b'b' | b'B' | b'x' | b'X') => {
                let at = char_position(self.sql, token.start);
                return Err(SqlError::unsupported("bit strings are not supported").position(at));
            }
            Some(b'n' | b'N') => {
                let at = self.location(token.start);
                let word = Token::make_word("nchar", None);
                self.push(word, Span { start: at, end: at })?;
            }
            Some(b'u' | b'U') => escape = self.unicode_escape()?,
            _ => {}
        }
        literal::decode(text, escape)
            .map(Token::SingleQuotedString)
            .map_err(|fault| self.place(fault, token))
    }

    /// Takes `UESCAPE 'c'` if it comes next.
    fn unicode_escape(&mut self) -> Result<char, SqlError> {
        let before = self.scanner.clone();
        match self.scanner.next() {
            Some(word) if word.text(self.sql).eq_ignore_ascii_case("uescape") => {}
            _ => {
                self.scanner = before;
                return Ok('\\');
            }
        }
        let Some(token) = self.scanner.next() else {
            return Err(self.fault_at_end("UESCAPE must be followed by a simple string literal"));
        };
        if !matches!(token.kind, TokenKind::PlainString) {
            let words = "UESCAPE must be followed by a simple string literal";
            return Err(self.fault(SqlState::SYNTAX_ERROR, words, token));
        }
        let text = token.text(self.sql);
        let inner = text.get(1..text.len() - 1).unwrap_or("");
        let decoded = literal::unquote(inner, '\'')?;
        let mut characters = decoded.chars();
        match (characters.next(), characters.next()) {
            (Some(escape), None)
                if escape.is_ascii()
                    && !escape.is_ascii_hexdigit()
                    && !matches!(escape, '+' | '\'' | '"' | ' ' | '\t' | '\n' | '\r' | '\x0c') =>
            {
                Ok(escape)
            }
            _ => Err(self.fault(SqlState::SYNTAX_ERROR, "invalid Unicode escape character", token)),
        }
    }

    fn place(&self, fault: Fault, token: scanner::Token) -> SqlError {
        match fault.at {
            usize::MAX => fault.error,
            at => fault.error.position(char_position(self.sql, token.start + at)),
        }
    }

    fn fault(&self, state: SqlState, words: &str, token: scanner::Token) -> SqlError {
        SqlError::new(state, format!("{words} at or near \"{}\"", token.text(self.sql)))
            .position(char_position(self.sql, token.start))
    }

    fn fault_at_end(&self, words: &str) -> SqlError {
        SqlError::new(SqlState::SYNTAX_ERROR, format!("{words} at end of input"))
            .position(char_position(self.sql, self.sql.len()))
    }
}

fn operator(text: &str) -> Token {
    match text {
        "+" => Token::Plus,
        "-" => Token::Minus,
        "*" => Token::Mul,
        "/" => Token::Div,
        "%" => Token::Mod,
        "^" => Token::Caret,
        "<" => Token::Lt,
        ">" => Token::Gt,
        "=" => Token::Eq,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" | "!=" => Token::Neq,
        "=>" => Token::RArrow,
        other => Token::CustomBinaryOperator(other.to_owned()),
    }
}

/// The error for the token at a character position.
pub(crate) fn near(sql: &str, position: u64) -> SqlError {
    let at = usize::try_from(position.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some((byte, _)) = sql.char_indices().nth(at) else {
        return at_end(sql);
    };
    match Scanner::new(sql).find(|token| token.end > byte) {
        Some(token) => position::syntax(token.text(sql)).position(char_position(sql, token.start)),
        None => at_end(sql),
    }
}

/// The error for a text that ends too soon.
pub(crate) fn at_end(sql: &str) -> SqlError {
    position::syntax_at_end().position(char_position(sql, sql.len()))
}
