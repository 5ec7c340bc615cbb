//! A small scanner for PostgreSQL's lexical structure: where tokens begin and end.
//!
//! The one lexer of all SQL text: its tokens become those of the parser, split a message into statements, and
//! tell which token an error message names. It follows PostgreSQL's chapter 4.1: `'..'` with doubled quotes,
//! `E'..'` with backslashes, `U&'..'`, `B'..'`, `X'..'`, `N'..'`, `$tag$..$tag$`, `"..."`, nested block
//! comments, `$n` parameters, numbers with fraction and exponent. A literal that goes on behind a line break
//! is one token.
//!
//! A text read by [`Scanner::paced`] ends in the middle of a comment or literal when the statement shall end:
//! that one is unterminated then.
//!
//! It borrows the text and allocates nothing. Positions are byte offsets; all tokens end on character
//! boundaries.

use weft_types::SqlError;
use weft_types::interrupt::Pace;

/// What kind of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Unquoted identifier or keyword.
    Word,
    /// `"identifier"`
    QuotedWord,
    /// Digits only.
    Integer,
    /// A number with a point or an exponent.
    Decimal,
    /// `'...'` without prefix.
    PlainString,
    /// Any other string: `E'..'`, `$$..$$`, `B'..'` ...
    OtherString,
    /// `$1`
    Parameter,
    /// `;`
    Semicolon,
    /// One character that is punctuation: `( ) [ ] , .` or something unknown.
    Punctuation,
    /// `::`
    DoubleColon,
    /// `:=`
    ColonEquals,
    /// `..`
    DotDot,
    /// A run of operator characters.
    Operator,
    /// A number or parameter with letters behind it.
    Junk(Junk),
    /// A quote or comment that does not end. The token reaches to the end of the text.
    Unterminated(Unterminated),
}

/// What has letters behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Junk {
    /// `1abc`
    Number,
    /// `$1abc`
    Parameter,
}

impl Junk {
    /// PostgreSQL's words for it.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Junk::Number => "trailing junk after numeric literal",
            Junk::Parameter => "trailing junk after parameter",
        }
    }
}

/// Which delimiter is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unterminated {
    /// `'`
    String,
    /// `"`
    Identifier,
    /// `$tag$`
    DollarString,
    /// `*/`
    Comment,
}

impl Unterminated {
    /// PostgreSQL's words for it.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Unterminated::String => "unterminated quoted string",
            Unterminated::Identifier => "unterminated quoted identifier",
            Unterminated::DollarString => "unterminated dollar-quoted string",
            Unterminated::Comment => "unterminated /* comment",
        }
    }
}

/// A token: its kind and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Kind.
    pub kind: TokenKind,
    /// First byte.
    pub start: usize,
    /// One after the last byte.
    pub end: usize,
}

impl Token {
    /// The token's text.
    pub fn text<'a>(&self, sql: &'a str) -> &'a str {
        sql.get(self.start..self.end).unwrap_or("")
    }
}

/// Iterator over tokens; white space and comments are left out.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    sql: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Looks at whether the statement shall end.
    pace: Option<Pace>,
    /// It shall.
    ended: Option<SqlError>,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning of `sql`.
    pub fn new(sql: &'a str) -> Self {
        Scanner {
            sql,
            bytes: sql.as_bytes(),
            at: 0,
            pace: None,
            ended: None,
        }
    }

    /// As [`Scanner::new`], for a caller that asks at what is unterminated whether the statement has ended.
    pub(crate) fn paced(sql: &'a str) -> Self {
        Scanner {
            pace: Some(Pace::default()),
            ..Self::new(sql)
        }
    }

    /// So many bytes were read; false if there shall be no more.
    fn goes_on(&mut self, bytes: usize) -> bool {
        match &mut self.pace {
            Some(pace) => match pace.step(1 + bytes / 16) {
                Ok(()) => true,
                Err(error) => {
                    self.ended = Some(error);
                    false
                }
            },
            None => true,
        }
    }

    /// Why the last token is unterminated, if that is because the statement shall end.
    pub(crate) fn ended(&mut self) -> Option<SqlError> {
        self.ended.take()
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Skips white space and comments; `Err(start)` for a block comment without end.
    fn skip_blank(&mut self) -> Result<(), usize> {
        loop {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0c => self.at += 1,
                b'-' if self.peek(1) == b'-' => {
                    while self.at < self.bytes.len() && !matches!(self.peek(0), b'\n' | b'\r') {
                        self.at += 1;
                    }
                }
                b'/' if self.peek(1) == b'*' => self.skip_block_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_block_comment(&mut self) -> Result<(), usize> {
        let start = self.at;
        let mut depth = 0usize;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                    if !self.goes_on(0) {
                        break;
                    }
                }
                _ => self.at += 1,
            }
        }
        Err(start)
    }

    /// Reads up to and over the closing `quote`; a doubled quote stays inside. False when the text ends
    /// first.
    fn read_quoted(&mut self, quote: u8, backslash: bool) -> bool {
        let stops = |byte: &u8| *byte == quote || (backslash && *byte == b'\\');
        while let Some(found) = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.iter().position(stops))
        {
            self.at += found + 1;
            if !self.goes_on(found) {
                break;
            }
            if self.bytes.get(self.at - 1) != Some(&quote) {
                self.at = (self.at + 1).min(self.bytes.len());
            } else if self.peek(0) != quote {
                return true;
            } else {
                self.at += 1;
            }
        }
        self.at = self.bytes.len();
        false
    }

    fn quoted(&mut self, quote: u8, backslash: bool, kind: TokenKind) -> TokenKind {
        if self.read_quoted(quote, backslash) {
            let mut kind = kind;
            // A literal goes on behind a line break.
            while quote == b'\''
                && let Some(next) = continuation(self.bytes, self.at)
            {
                self.at = next + 1;
                kind = TokenKind::OtherString;
                if !self.read_quoted(quote, backslash) {
                    return TokenKind::Unterminated(Unterminated::String);
                }
            }
            kind
        } else if quote == b'"' {
            TokenKind::Unterminated(Unterminated::Identifier)
        } else {
            TokenKind::Unterminated(Unterminated::String)
        }
    }

    fn word(&mut self) -> TokenKind {
        let start = self.at;
        while is_word_byte(self.peek(0)) {
            self.at += 1;
        }
        let word = self.bytes.get(start..self.at).unwrap_or(&[]);
        match (word, self.peek(0)) {
            ([b'e' | b'E'], b'\'') => {
                self.at += 1;
                self.quoted(b'\'', true, TokenKind::OtherString)
            }
            ([b'b' | b'B' | b'x' | b'X' | b'n' | b'N'], b'\'') => {
                self.at += 1;
                self.quoted(b'\'', false, TokenKind::OtherString)
            }
            ([b'u' | b'U'], b'&') if self.peek(1) == b'\'' => {
                self.at += 2;
                self.quoted(b'\'', false, TokenKind::OtherString)
            }
            ([b'u' | b'U'], b'&') if self.peek(1) == b'"' => {
                self.at += 2;
                self.quoted(b'"', false, TokenKind::QuotedWord)
            }
            _ => TokenKind::Word,
        }
    }

    fn number(&mut self) -> TokenKind {
        let mut kind = TokenKind::Integer;
        self.digits();
        if self.peek(0) == b'.' && self.peek(1) != b'.' {
            kind = TokenKind::Decimal;
            self.at += 1;
            self.digits();
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                kind = TokenKind::Decimal;
                self.at += 1 + sign;
                self.digits();
            } else if sign == 1 {
                self.at += 2;
                return TokenKind::Junk(Junk::Number);
            }
        }
        self.junk(Junk::Number).unwrap_or(kind)
    }

    fn digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    /// A word that follows without a blank.
    fn junk(&mut self, junk: Junk) -> Option<TokenKind> {
        if self.peek(0) == b'$' || !is_word_byte(self.peek(0)) {
            return None;
        }
        while is_word_byte(self.peek(0)) {
            self.at += 1;
        }
        Some(TokenKind::Junk(junk))
    }

    /// `$1`, `$$..$$`, `$tag$..$tag$`, or a lone dollar sign.
    fn dollar(&mut self) -> TokenKind {
        let start = self.at;
        self.at += 1;
        if self.peek(0).is_ascii_digit() {
            self.digits();
            return self.junk(Junk::Parameter).unwrap_or(TokenKind::Parameter);
        }
        while is_word_byte(self.peek(0)) && self.peek(0) != b'$' {
            self.at += 1;
        }
        if self.peek(0) != b'$' {
            self.at = start + 1;
            return TokenKind::Punctuation;
        }
        self.at += 1;
        let tag = self.sql.get(start..self.at).unwrap_or("$$");
        match self.sql.get(self.at..).and_then(|rest| rest.find(tag)) {
            Some(found) => {
                self.at += found + tag.len();
                TokenKind::OtherString
            }
            None => {
                self.at = self.bytes.len();
                TokenKind::Unterminated(Unterminated::DollarString)
            }
        }
    }

    fn operator(&mut self) -> TokenKind {
        let start = self.at;
        while is_operator_byte(self.peek(0)) {
            if self.at > start && matches!((self.peek(0), self.peek(1)), (b'-', b'-') | (b'/', b'*')) {
                break;
            }
            self.at += 1;
        }
        // A sign that ends a longer operator belongs to the next token, unless the operator has one of the
        // characters that SQL's own operators lack (PostgreSQL 4.1.3).
        let run = self.bytes.get(start..self.at).unwrap_or(&[]);
        let special = run.iter().any(|b| {
            matches!(
                b,
                b'~' | b'!' | b'@' | b'#' | b'%' | b'^' | b'&' | b'|' | b'`' | b'?'
            )
        });
        while !special && self.at > start + 1 && matches!(self.bytes.get(self.at - 1), Some(b'+' | b'-')) {
            self.at -= 1;
        }
        TokenKind::Operator
    }

    fn other(&mut self) -> TokenKind {
        let width = self
            .sql
            .get(self.at..)
            .and_then(|rest| rest.chars().next())
            .map_or(1, char::len_utf8);
        self.at += width;
        TokenKind::Punctuation
    }
}

impl Iterator for Scanner<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        if let Err(start) = self.skip_blank() {
            return Some(Token {
                kind: TokenKind::Unterminated(Unterminated::Comment),
                start,
                end: self.bytes.len(),
            });
        }
        let start = self.at;
        if start >= self.bytes.len() {
            return None;
        }
        let kind = match self.peek(0) {
            b'\'' => {
                self.at += 1;
                self.quoted(b'\'', false, TokenKind::PlainString)
            }
            b'"' => {
                self.at += 1;
                self.quoted(b'"', false, TokenKind::QuotedWord)
            }
            b'$' => self.dollar(),
            b';' => {
                self.at += 1;
                TokenKind::Semicolon
            }
            b':' if self.peek(1) == b':' => {
                self.at += 2;
                TokenKind::DoubleColon
            }
            b':' if self.peek(1) == b'=' => {
                self.at += 2;
                TokenKind::ColonEquals
            }
            b'.' if self.peek(1) == b'.' => {
                self.at += 2;
                TokenKind::DotDot
            }
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_ascii_digit() => {
                // The point comes first, so the number is no integer.
                match self.number() {
                    TokenKind::Integer => TokenKind::Decimal,
                    kind => kind,
                }
            }
            byte if is_operator_byte(byte) => self.operator(),
            byte if is_word_byte(byte) => self.word(),
            _ => self.other(),
        };
        Some(Token {
            kind,
            start,
            end: self.at,
        })
    }
}

/// Where a string literal that ended at `at` opens again: behind blanks and line comments with a line break
/// among them.
pub(crate) fn continuation(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut broken = false;
    loop {
        match bytes.get(at)? {
            b'\n' | b'\r' => broken = true,
            b' ' | b'\t' | 0x0c => {}
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                while !matches!(bytes.get(at + 1)?, b'\n' | b'\r') {
                    at += 1;
                }
            }
            b'\'' if broken => return Some(at),
            _ => return None,
        }
        at += 1;
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

fn is_operator_byte(byte: u8) -> bool {
    matches!(
        byte,
        b'+' | b'-'
            | b'*'
            | b'/'
            | b'<'
            | b'>'
            | b'='
            | b'~'
            | b'!'
            | b'@'
            | b'#'
            | b'%'
            | b'^'
            | b'&'
            | b'|'
            | b'`'
            | b'?'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(sql: &str) -> Vec<(TokenKind, &str)> {
        Scanner::new(sql)
            .map(|token| (token.kind, token.text(sql)))
            .collect()
    }

    #[test]
    fn strings_of_every_kind_are_one_token() {
        for text in [
            "'a''b;'",
            "E'a\\'b;'",
            "$$;'$$",
            "$x$ $$ ; $x$",
            "U&'\\0041;'",
            "B'01'",
            "n';'",
        ] {
            let found = kinds(text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(
                matches!(found[0].0, TokenKind::PlainString | TokenKind::OtherString),
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_and_operators() {
        use TokenKind::*;
        assert_eq!(
            kinds("a+-1.5e-3"),
            [(Word, "a"), (Operator, "+"), (Operator, "-"), (Decimal, "1.5e-3")]
        );
        assert_eq!(
            kinds("x=-1"),
            [(Word, "x"), (Operator, "="), (Operator, "-"), (Integer, "1")]
        );
        assert_eq!(kinds("1_000"), [(Junk(super::Junk::Number), "1_000")]);
        assert_eq!(kinds("$1a"), [(Junk(super::Junk::Parameter), "$1a")]);
        assert_eq!(kinds("1..2").len(), 3);
        assert_eq!(kinds("'a' -- b\n 'c' 'd'").len(), 2);
        assert_eq!(
            kinds("$1::int"),
            [(Parameter, "$1"), (DoubleColon, "::"), (Word, "int")]
        );
        assert_eq!(kinds("a<=>.5"), [(Word, "a"), (Operator, "<=>"), (Decimal, ".5")]);
    }

    #[test]
    fn comments_nest_and_may_be_unterminated() {
        assert_eq!(kinds("a /* x /* ; */ y */ b -- ;\n c").len(), 3);
        let last = Scanner::new("a /* /* */").last().unwrap();
        assert_eq!(last.kind, TokenKind::Unterminated(Unterminated::Comment));
        let last = Scanner::new("select 'abc").last().unwrap();
        assert_eq!(
            (last.kind, last.start),
            (TokenKind::Unterminated(Unterminated::String), 7)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_scans_to_the_end_in_order(sql in "[ -~é'\"$;/*\\n-]{0,80}") {
            let mut at = 0;
            for token in Scanner::new(&sql) {
                proptest::prop_assert!(token.start >= at && token.end > token.start);
                proptest::prop_assert!(sql.get(token.start..token.end).is_some());
                at = token.end;
            }
            proptest::prop_assert!(at <= sql.len());
        }
    }
}
