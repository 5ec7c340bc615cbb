//! Literal normalisation: `UPDATE t SET a = a + -123 WHERE id = 5` and the same statement with other
//! numbers share one plan.
//!
//! Clients of the simple protocol write their values into the text. One pass over the text replaces number
//! and string literals by parameters; the remaining text, prefixed with the literals' types, is the key of
//! the statement cache:
//!
//! ```text
//!   UPDATE t SET a = a + -123 WHERE id = 5     ->  key  "ii|UPDATE t SET a = a + $1 WHERE id = $2"
//! ```
//!
//! A literal may be lifted only if a parameter of its type would mean the same:
//!
//! 1. A literal's type is determined as in PostgreSQL: `i` integer, `l` bigint, `n` numeric by its size and
//!    form, `u` unknown for a quoted string, whose type is inferred from its context.
//! 2. Not lifted are literals inside parentheses that follow a name (arguments, type modifiers:
//!    `varchar(10)`, `round(x, 2)`; but the arguments of CALL are), after LIMIT, OFFSET, BY (positions),
//!    after a type name (`DATE '...'`) or AS, before or after `::`, and strings with a prefix.
//! 3. Statements with clauses that compare expressions by their text or depend on constants (GROUP BY,
//!    UNION, DISTINCT, WITH, window clauses, INTERVAL, JOIN, subqueries) and texts that already have
//!    parameters are not normalised; nor are texts with several statements, unless they begin with BEGIN:
//!    those may be one-shot transactions.
//!
//! A sign belongs to the number if it cannot be an operator between two operands, as in PostgreSQL's
//! grammar. The pass allocates only the key and the list, and both are reused.

use std::ops::Range;

use weft_types::{SqlError, SqlType, TimeZone, Value};

use weft_syntax::literal::decode_string;
use weft_syntax::scanner::{Scanner, Token, TokenKind};

/// Longest text that is normalised, in bytes.
const TEXT_BYTES_MAX: usize = 32 * 1024;
/// Maximum number of literals lifted.
const LITERALS_MAX: usize = 1_000;

/// The form of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiteralKind {
    /// Fits integer.
    Int4,
    /// Fits bigint.
    Int8,
    /// Any other number.
    Numeric,
    /// A quoted string.
    Unknown,
}

impl LiteralKind {
    /// The type of the parameter that replaces it; `None` if it is to be inferred.
    pub fn ty(self) -> Option<SqlType> {
        match self {
            LiteralKind::Int4 => Some(SqlType::Int4),
            LiteralKind::Int8 => Some(SqlType::Int8),
            LiteralKind::Numeric => Some(SqlType::Numeric(None)),
            LiteralKind::Unknown => None,
        }
    }

    fn code(self) -> char {
        match self {
            LiteralKind::Int4 => 'i',
            LiteralKind::Int8 => 'l',
            LiteralKind::Numeric => 'n',
            LiteralKind::Unknown => 'u',
        }
    }
}

/// One lifted literal: its kind and its bytes in the text, sign and quotes included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// Kind.
    pub kind: LiteralKind,
    /// Its position in the text.
    pub range: Range<usize>,
    /// The value of an integer.
    integer: i64,
}

impl Literal {
    /// The literal's value for a parameter of type `ty`. Errors are the literal's: 22P02 and the like.
    pub fn value(&self, sql: &str, ty: &SqlType, zone: &TimeZone) -> Result<Value, SqlError> {
        match (self.kind, ty) {
            (LiteralKind::Int4, SqlType::Int4) => Ok(Value::Int4(self.integer as i32)),
            (LiteralKind::Int8, SqlType::Int8) => Ok(Value::Int8(self.integer)),
            (LiteralKind::Unknown, _) => {
                let text = decode_string(sql.get(self.range.clone()).unwrap_or("''"))?;
                match ty {
                    SqlType::Text | SqlType::Varchar(None) => Ok(Value::Text(text)),
                    // Trailing blanks are insignificant.
                    SqlType::Char(_) => Ok(Value::Text(text.trim_end_matches(' ').to_owned())),
                    _ => weft_types::parse_text_in(&text, ty, zone),
                }
            }
            _ => {
                // There may be blanks between a sign and its digits.
                let text: String = sql
                    .get(self.range.clone())
                    .unwrap_or("")
                    .chars()
                    .filter(|c| !c.is_whitespace())
                    .collect();
                weft_types::parse_text_in(&text, ty, zone)
            }
        }
    }
}

/// A text without its literals. Reusable: [`Normalized::normalize`] overwrites it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Normalized {
    /// Kinds of the literals, `|`, the text with `$n`.
    pub key: String,
    /// Lifted literals, `$1` first.
    pub literals: Vec<Literal>,
}

/// Normalises a text; `None` if it must be planned unchanged.
pub fn normalize(sql: &str) -> Option<Normalized> {
    let mut normalized = Normalized::default();
    normalized.normalize(sql).then_some(normalized)
}

impl Normalized {
    /// The statement's text with parameters, which is parsed and planned if the key is new.
    pub fn text(&self) -> &str {
        self.key.split_once('|').map_or("", |(_, text)| text)
    }

    /// Types of the parameters, for the planner.
    pub fn param_types(&self) -> Vec<Option<SqlType>> {
        self.literals.iter().map(|literal| literal.kind.ty()).collect()
    }

    /// Values of the parameters for a plan with the given parameter types.
    pub fn values(&self, sql: &str, types: &[SqlType], zone: &TimeZone) -> Result<Vec<Value>, SqlError> {
        self.literals
            .iter()
            .zip(types)
            .map(|(literal, ty)| literal.value(sql, ty, zone))
            .collect()
    }

    /// Normalises a text. False if it must be planned unchanged; the contents of `self` are then
    /// meaningless.
    pub fn normalize(&mut self, sql: &str) -> bool {
        self.key.clear();
        self.literals.clear();
        sql.len() <= TEXT_BYTES_MAX && find_literals(sql, &mut self.literals) && self.write_key(sql)
    }

    fn write_key(&mut self, sql: &str) -> bool {
        use std::fmt::Write;
        self.key.reserve(sql.len() + self.literals.len() + 1);
        self.key
            .extend(self.literals.iter().map(|literal| literal.kind.code()));
        self.key.push('|');
        let mut at = 0;
        for (number, literal) in self.literals.iter().enumerate() {
            self.key.push_str(sql.get(at..literal.range.start).unwrap_or(""));
            let _ = write!(self.key, "${}", number + 1);
            at = literal.range.end;
        }
        self.key.push_str(sql.get(at..).unwrap_or(""));
        true
    }
}

/// The kind of the previous token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Nothing, an operator, a comma, an opening parenthesis: an operand follows.
    Operator,
    /// A word after which a literal is an ordinary operand.
    OperandWord,
    /// A word after which a literal must not be lifted.
    PinningWord,
    /// Another word: a name, or a keyword that ends an operand.
    Name,
    /// A literal, a parameter, a closing parenthesis.
    Operand,
    /// `::`
    Cast,
}

/// The pass over one text.
struct Lifter<'a> {
    sql: &'a str,
    literals: &'a mut Vec<Literal>,
    before: Before,
    depth: usize,
    /// The depth of the parenthesis after a name, inside which literals are not lifted.
    pinned_from: Option<usize>,
    /// Whether ORDER BY was seen: positions and sort expressions are kept to the end of the statement.
    sorted: bool,
    values_seen: bool,
    /// A sign that may belong to the number after it.
    sign: Option<Token>,
    /// Whether the text begins with BEGIN, so that several statements are expected.
    transaction: bool,
    /// Whether the next word begins a statement.
    at_start: bool,
    /// Whether the statement is a CALL.
    calls: bool,
}

/// Lists the literals that can be lifted; false if the text must not be normalised.
fn find_literals(sql: &str, literals: &mut Vec<Literal>) -> bool {
    let mut tokens = Scanner::new(sql).peekable();
    let Some(first) = tokens.peek() else { return false };
    let mut lifter = Lifter {
        sql,
        literals,
        before: Before::Operator,
        depth: 0,
        pinned_from: None,
        sorted: false,
        values_seen: false,
        sign: None,
        transaction: is_any(first.text(sql), &["BEGIN", "START"]),
        at_start: true,
        calls: false,
    };
    let mut ended = false;
    while let Some(token) = tokens.next() {
        if token.kind == TokenKind::Semicolon {
            ended = true;
            lifter.end_statement();
            continue;
        }
        if ended && !lifter.transaction {
            return false;
        }
        let cast_follows = tokens
            .peek()
            .is_some_and(|next| next.kind == TokenKind::DoubleColon);
        if !lifter.token(token, cast_follows) {
            return false;
        }
    }
    true
}

impl Lifter<'_> {
    fn end_statement(&mut self) {
        self.before = Before::Operator;
        self.depth = 0;
        self.pinned_from = None;
        self.sorted = false;
        self.values_seen = false;
        self.sign = None;
        self.at_start = true;
        self.calls = false;
    }

    /// Processes one token; false if the text must not be normalised.
    fn token(&mut self, token: Token, cast_follows: bool) -> bool {
        let text = token.text(self.sql);
        let sign = self.sign.take();
        if self.at_start {
            self.at_start = false;
            if token.kind != TokenKind::Word {
                return false;
            }
            self.before = Before::OperandWord;
            let control = self.transaction && is_any(text, &["BEGIN", "START", "COMMIT", "END"]);
            self.calls = is_any(text, &["CALL"]);
            return control || self.calls || is_any(text, &["SELECT", "INSERT", "UPDATE", "DELETE"]);
        }
        let pinned = self.pinned_from.is_some()
            || self.sorted
            || cast_follows
            || matches!(
                self.before,
                Before::PinningWord | Before::Name | Before::Operand | Before::Cast
            );
        match token.kind {
            TokenKind::Word => return self.word(text),
            TokenKind::QuotedWord => self.before = Before::Name,
            TokenKind::Integer | TokenKind::Decimal => {
                self.before = Before::Operand;
                return pinned || push_number(self.sql, token, sign, self.literals);
            }
            TokenKind::PlainString => {
                // String constants on adjacent lines form one literal.
                let continued = self.before == Before::Operand;
                self.before = Before::Operand;
                if continued || self.literals.len() >= LITERALS_MAX {
                    return false;
                }
                if !pinned {
                    let range = token.start..token.end;
                    self.literals.push(Literal {
                        kind: LiteralKind::Unknown,
                        range,
                        integer: 0,
                    });
                }
            }
            TokenKind::OtherString => self.before = Before::Operand,
            TokenKind::Parameter
            | TokenKind::Unterminated(_)
            | TokenKind::Junk(_)
            | TokenKind::ColonEquals
            | TokenKind::DotDot
            | TokenKind::Semicolon => return false,
            TokenKind::DoubleColon => self.before = Before::Cast,
            TokenKind::Operator => self.operator(token, text),
            TokenKind::Punctuation => return self.punctuation(text),
        }
        true
    }

    fn word(&mut self, text: &str) -> bool {
        self.before = match word_class(text) {
            WordClass::Refuse => return false,
            WordClass::Subquery if self.depth > 0 || self.values_seen => return false,
            WordClass::Subquery | WordClass::Operand => Before::OperandWord,
            WordClass::Pinning => Before::PinningWord,
            WordClass::Other => Before::Name,
        };
        self.sorted |= is_any(text, &["BY"]);
        self.values_seen |= is_any(text, &["VALUES"]);
        true
    }

    fn operator(&mut self, token: Token, text: &str) {
        // After a word that prevents lifting, a sign stays with its number.
        if matches!(self.before, Before::PinningWord | Before::Cast) {
            return;
        }
        if text == "-" && matches!(self.before, Before::Operator | Before::OperandWord) {
            self.sign = Some(token);
        }
        let star_alone = text == "*" && self.before == Before::OperandWord;
        self.before = if star_alone {
            Before::Operand
        } else {
            Before::Operator
        };
    }

    fn punctuation(&mut self, text: &str) -> bool {
        match text {
            "(" => {
                self.depth += 1;
                // The arguments of CALL are plain values; those of a function may determine its result
                // type.
                let of_call = self.calls && self.depth == 1;
                if self.pinned_from.is_none() && self.before == Before::Name && !of_call {
                    self.pinned_from = Some(self.depth);
                }
                self.before = Before::Operator;
            }
            ")" => {
                if self.pinned_from == Some(self.depth) {
                    self.pinned_from = None;
                }
                self.depth = self.depth.saturating_sub(1);
                self.before = Before::Operand;
            }
            "," => self.before = Before::Operator,
            "." => self.before = Before::Name,
            _ => return false,
        }
        true
    }
}

fn push_number(sql: &str, token: Token, sign: Option<Token>, literals: &mut Vec<Literal>) -> bool {
    if literals.len() >= LITERALS_MAX {
        return false;
    }
    let digits = token.text(sql);
    let start = sign.map_or(token.start, |sign| sign.start);
    let mut integer = 0;
    let kind = if token.kind == TokenKind::Integer {
        // Parsed as negative, so that the smallest integers are accepted too.
        match negative_value(digits) {
            Some(negative) => {
                let value = if sign.is_some() {
                    Some(negative)
                } else {
                    negative.checked_neg()
                };
                match value {
                    Some(value) => {
                        integer = value;
                        if i32::try_from(value).is_ok() {
                            LiteralKind::Int4
                        } else {
                            LiteralKind::Int8
                        }
                    }
                    None => LiteralKind::Numeric,
                }
            }
            None => LiteralKind::Numeric,
        }
    } else if digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'))
    {
        LiteralKind::Numeric
    } else {
        return false;
    };
    // A comment between sign and digits would become part of the literal.
    if let Some(sign) = sign
        && sql
            .get(sign.end..token.start)
            .is_none_or(|gap| !gap.bytes().all(|byte| byte.is_ascii_whitespace()))
    {
        return false;
    }
    literals.push(Literal {
        kind,
        range: start..token.end,
        integer,
    });
    true
}

fn negative_value(digits: &str) -> Option<i64> {
    digits.bytes().try_fold(0i64, |value, digit| {
        value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))
    })
}

enum WordClass {
    /// The statement must not be normalised.
    Refuse,
    /// SELECT: allowed at the start, a subquery elsewhere.
    Subquery,
    /// A literal may follow as an operand.
    Operand,
    /// A literal that follows is not lifted.
    Pinning,
    /// A name, or a keyword that no literal follows.
    Other,
}

fn is_any(word: &str, words: &[&str]) -> bool {
    words.iter().any(|candidate| word.eq_ignore_ascii_case(candidate))
}

fn word_class(word: &str) -> WordClass {
    const REFUSED: &[&str] = &[
        "GROUP",
        "HAVING",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "WITH",
        "WINDOW",
        "OVER",
        "INTERVAL",
        "DISTINCT",
        "JOIN",
        "CASE",
        "ARRAY",
        "EXTRACT",
        "FETCH",
        "LATERAL",
        "TABLESAMPLE",
        "ROW",
        "GROUPING",
        "CONFLICT",
        "USING",
        "ESCAPE",
        "EXISTS",
        "ANY",
        "ALL",
        "SOME",
        "COLLATE",
        "CAST",
        "CREATE",
        "TABLE",
        "WHEN",
        "OVERRIDING",
    ];
    const OPERAND: &[&str] = &[
        "VALUES",
        "AND",
        "OR",
        "NOT",
        "WHERE",
        "IN",
        "BETWEEN",
        "SET",
        "LIKE",
        "ILIKE",
        "RETURNING",
        "SELECT",
    ];
    const PINNING: &[&str] = &["LIMIT", "OFFSET", "BY", "AS", "IS"];
    if is_any(word, &["SELECT"]) {
        return WordClass::Subquery;
    }
    if word.len() <= 9 && is_any(word, OPERAND) {
        WordClass::Operand
    } else if word.len() <= 6 && is_any(word, PINNING) {
        WordClass::Pinning
    } else if word.len() <= 11 && is_any(word, REFUSED) {
        WordClass::Refuse
    } else {
        WordClass::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(sql: &str) -> Option<String> {
        normalize(sql).map(|normalized| normalized.key)
    }

    #[test]
    fn values_are_lifted_with_their_types() {
        for (sql, expected) in [
            (
                "UPDATE t SET a = a + -123 WHERE id = 5",
                "ii|UPDATE t SET a = a + $1 WHERE id = $2",
            ),
            (
                "update t set a = a - 1 where id=-2147483648;",
                "ii|update t set a = a - $1 where id=$2;",
            ),
            (
                "SELECT x FROM t WHERE id = 2147483648",
                "l|SELECT x FROM t WHERE id = $1",
            ),
            (
                "SELECT x FROM t WHERE id BETWEEN 1 AND - 9223372036854775808",
                "il|SELECT x FROM t WHERE id BETWEEN $1 AND $2",
            ),
            (
                "INSERT INTO t (a, b) VALUES (1.5, 'it''s'), (2e3, '')",
                "nunu|INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4)",
            ),
            (
                "DELETE FROM t WHERE a IN (1, 2) AND b <> 'x'",
                "iiu|DELETE FROM t WHERE a IN ($1, $2) AND b <> $3",
            ),
            (
                "SELECT a FROM t WHERE (id = 3)",
                "i|SELECT a FROM t WHERE (id = $1)",
            ),
            (
                "BEGIN; UPDATE t SET a = 1 WHERE id = 2; SELECT 'x'; COMMIT;",
                "iiu|BEGIN; UPDATE t SET a = $1 WHERE id = $2; SELECT $3; COMMIT;",
            ),
            (
                "SELECT a-1 FROM t WHERE id=1",
                "ii|SELECT a-$1 FROM t WHERE id=$2",
            ),
        ] {
            assert_eq!(key(sql).as_deref(), Some(expected), "{sql}");
        }
    }

    #[test]
    fn literals_that_must_not_be_lifted_are_kept() {
        for (sql, expected) in [
            (
                "SELECT a FROM t WHERE id > 1 ORDER BY 1 LIMIT 10",
                "i|SELECT a FROM t WHERE id > $1 ORDER BY 1 LIMIT 10",
            ),
            (
                "SELECT round(x, 2) FROM t WHERE id = 7",
                "i|SELECT round(x, 2) FROM t WHERE id = $1",
            ),
            (
                "SELECT '5'::int, 5::text, a::varchar(3) FROM t",
                "|SELECT '5'::int, 5::text, a::varchar(3) FROM t",
            ),
            (
                "SELECT a FROM t WHERE d = DATE '2020-01-01'",
                "|SELECT a FROM t WHERE d = DATE '2020-01-01'",
            ),
            (
                "SELECT a FROM t WHERE id = 2 ORDER BY 1, 2 LIMIT - 1",
                "i|SELECT a FROM t WHERE id = $1 ORDER BY 1, 2 LIMIT - 1",
            ),
            (
                "SELECT E'a' FROM t1 WHERE x = $$b$$",
                "|SELECT E'a' FROM t1 WHERE x = $$b$$",
            ),
        ] {
            assert_eq!(key(sql).as_deref(), Some(expected), "{sql}");
        }
    }

    #[test]
    fn statements_that_must_not_be_touched() {
        for sql in [
            "SELECT a + 1 FROM t GROUP BY a + 1",
            "SELECT 1 UNION SELECT 2",
            "SELECT a FROM t WHERE id = (SELECT 1)",
            "SELECT a FROM t WHERE id = $1",
            "SELECT 1; SELECT 2",
            "CREATE TABLE t (a int DEFAULT 5)",
            "SELECT now() - INTERVAL '1 day'",
            "SELECT 'a' 'b'",
            "SELECT 'open",
            "SELECT a[1] FROM t",
            "SELECT 0x1F",
            "BEGIN; DROP TABLE t; COMMIT",
        ] {
            assert_eq!(key(sql), None, "{sql}");
        }
    }

    #[test]
    fn values_are_read_back() {
        let sql = "INSERT INTO t VALUES (- 5, 3000000000, 'it''s')";
        let normalized = normalize(sql).unwrap();
        let values = normalized
            .values(
                sql,
                &[SqlType::Int4, SqlType::Int8, SqlType::Text],
                &TimeZone::UTC,
            )
            .unwrap();
        assert_eq!(
            values,
            [
                Value::Int4(-5),
                Value::Int8(3_000_000_000),
                Value::Text("it's".into())
            ]
        );
        assert_eq!(normalized.text(), "INSERT INTO t VALUES ($1, $2, $3)");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_normalised_or_refused(sql in "(SELECT|UPDATE|[a-z]{1,3}|WHERE|[0-9]{1,12}|'[a-z']{0,3}'|[-+*/=(),.; ]){0,30}") {
            if let Some(normalized) = normalize(&sql) {
                // Substituting the literals back yields the text.
                let mut text = normalized.text().to_owned();
                for (number, literal) in normalized.literals.iter().enumerate().rev() {
                    let name = format!("${}", number + 1);
                    let at = text.rfind(&name).unwrap();
                    text.replace_range(at..at + name.len(), &sql[literal.range.clone()]);
                }
                proptest::prop_assert_eq!(text, sql);
            }
        }
    }
}
