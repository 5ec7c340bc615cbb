//! Expressions: operators, with the precedence and associativity of PostgreSQL's gram.y.
//!
//! ```text
//!   OR < AND < NOT < IS ISNULL NOTNULL < = < > <= >= <> < BETWEEN IN LIKE ILIKE SIMILAR < any other operator
//!      < + - < * / % < ^ < AT TIME ZONE < COLLATE < sign < ::
//! ```
//!
//! All associate to the left; comparisons, IS DISTINCT FROM and the BETWEEN group do not associate: a second
//! one of the same rank behind the first is a syntax error. `a_expr` is the full grammar, `b_expr` what may
//! stand between BETWEEN and AND, in POSITION and in a column's default.
//!
//! Chains are read in a loop. What nests takes the stack; how deep that can go is known from the tokens
//! ([`crate::depth`]), and a counter makes sure of it.

use sqlparser::ast::{BinaryOperator, CastKind, Expr, Ident, ObjectName, UnaryOperator, ValueWithSpan};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span, Token, Word};
use weft_types::{SqlError, SqlState};

use crate::dialect::WeftDialect;

pub(crate) type Parsed<T> = Result<T, ParserError>;

/// In [`Expr::Prefixed`]: the low bound of BETWEEN SYMMETRIC. Any other prefix is the symbol of an operator
/// that PostgreSQL's grammar takes and the syntax tree has no variant for.
pub const SYMMETRIC: &str = "symmetric";

/// Ranks of operators; [`rank::NONE`] lets every operator follow.
pub(crate) mod rank {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const OR: u8 = 1;
    pub(crate) const AND: u8 = 2;
    pub(crate) const NOT: u8 = 3;
    pub(crate) const IS: u8 = 4;
    pub(crate) const COMPARE: u8 = 5;
    pub(crate) const BETWEEN: u8 = 6;
    pub(crate) const OTHER: u8 = 7;
    pub(crate) const SUM: u8 = 8;
    pub(crate) const PRODUCT: u8 = 9;
    pub(crate) const POWER: u8 = 10;
    pub(crate) const AT: u8 = 11;
    pub(crate) const COLLATE: u8 = 12;
    pub(crate) const SIGN: u8 = 13;
    pub(crate) const CAST: u8 = 14;
}

/// What follows an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Infix {
    Or,
    And,
    Is,
    IsNull,
    NotNull,
    Like {
        negated: bool,
    },
    ILike {
        negated: bool,
    },
    Similar {
        negated: bool,
    },
    Between {
        negated: bool,
    },
    In {
        negated: bool,
    },
    AtTimeZone,
    Collate,
    Cast,
    /// `OPERATOR(...)`
    Qualified,
    /// One token.
    Symbol,
}

/// Reads expressions from a parser's tokens.
pub(crate) struct ExpressionParser<'p, 'd> {
    pub(crate) parser: &'p mut Parser<'d>,
    pub(crate) dialect: &'p WeftDialect,
}

impl<'p, 'd> ExpressionParser<'p, 'd> {
    pub(crate) fn new(parser: &'p mut Parser<'d>, dialect: &'p WeftDialect) -> Self {
        ExpressionParser { parser, dialect }
    }

    /// An expression that the parser asked for. Nothing of an expression may follow it.
    pub(crate) fn whole(&mut self, restricted: bool) -> Parsed<Expr> {
        let expression = self.expression(rank::NONE, restricted)?;
        match self.peek() {
            Token::Period
            | Token::LBracket
            | Token::SingleQuotedString(_)
            | Token::Number(..)
            | Token::Placeholder(_) => Err(self.unexpected()),
            _ => Ok(expression),
        }
    }

    /// A full expression (`a_expr`).
    pub(crate) fn any(&mut self) -> Parsed<Expr> {
        self.expression(rank::NONE, false)
    }

    /// An expression of operators that bind tighter than `above`; `restricted` for `b_expr`.
    pub(crate) fn expression(&mut self, above: u8, restricted: bool) -> Parsed<Expr> {
        let depth = self.dialect.depth.get();
        if depth >= self.dialect.depth_max {
            return Err(ParserError::RecursionLimitExceeded);
        }
        self.dialect.go_on()?;
        self.dialect.depth.set(depth + 1);
        let result = self.operators(above, restricted);
        self.dialect.depth.set(depth);
        result
    }

    fn operators(&mut self, above: u8, restricted: bool) -> Parsed<Expr> {
        let mut left = self.operand(restricted)?;
        while let Some((infix, rank)) = self.peek_infix(restricted) {
            if rank <= above {
                break;
            }
            left = self.infix(left, infix, rank, restricted)?;
        }
        Ok(left)
    }

    /// An operand with the operators before it.
    fn operand(&mut self, restricted: bool) -> Parsed<Expr> {
        let mut prefixes = Vec::new();
        let mut above = None;
        while let Some((prefix, rank)) = self.peek_prefix(restricted) {
            // One of another rank begins an operand of its own.
            if above.is_some_and(|first| first != rank) {
                break;
            }
            above = Some(rank);
            self.parser.advance_token();
            if prefix == Prefix::Qualified {
                prefixes.push(Prefix::Symbol(
                    self.qualified_operator()?.pop().unwrap_or_default(),
                ));
            } else {
                prefixes.push(prefix);
            }
        }
        let Some(above) = above else {
            return self.primary();
        };
        let mut expression = self.expression(above, restricted)?;
        for prefix in prefixes.into_iter().rev() {
            expression = prefix.apply(expression);
        }
        Ok(expression)
    }

    fn peek_prefix(&self, restricted: bool) -> Option<(Prefix, u8)> {
        Some(match self.peek() {
            Token::Plus => (Prefix::Unary(UnaryOperator::Plus), rank::SIGN),
            Token::Minus => (Prefix::Unary(UnaryOperator::Minus), rank::SIGN),
            Token::CustomBinaryOperator(symbol) => {
                let prefix = match symbol.as_str() {
                    "~" => Prefix::Unary(UnaryOperator::BitwiseNot),
                    "@" => Prefix::Unary(UnaryOperator::PGAbs),
                    "|/" => Prefix::Unary(UnaryOperator::PGSquareRoot),
                    "||/" => Prefix::Unary(UnaryOperator::PGCubeRoot),
                    other => Prefix::Symbol(other.to_owned()),
                };
                (prefix, rank::OTHER)
            }
            Token::Word(word) if !restricted && is(word, "not") => {
                (Prefix::Unary(UnaryOperator::Not), rank::NOT)
            }
            Token::Word(word) if is(word, "operator") && *self.peek_at(1) == Token::LParen => {
                (Prefix::Qualified, rank::OTHER)
            }
            _ => return None,
        })
    }

    fn peek_infix(&self, restricted: bool) -> Option<(Infix, u8)> {
        let found = match self.peek() {
            Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq => {
                (Infix::Symbol, rank::COMPARE)
            }
            Token::Plus | Token::Minus => (Infix::Symbol, rank::SUM),
            Token::Mul | Token::Div | Token::Mod => (Infix::Symbol, rank::PRODUCT),
            Token::Caret => (Infix::Symbol, rank::POWER),
            Token::DoubleColon => (Infix::Cast, rank::CAST),
            Token::CustomBinaryOperator(_) => (Infix::Symbol, rank::OTHER),
            Token::Word(word) if word.quote_style.is_none() => {
                return self.peek_infix_word(&word.value, restricted);
            }
            _ => return None,
        };
        Some(found)
    }

    fn peek_infix_word(&self, word: &str, restricted: bool) -> Option<(Infix, u8)> {
        if word == "operator" && *self.peek_at(1) == Token::LParen {
            return Some((Infix::Qualified, rank::OTHER));
        }
        if restricted {
            let distinct = word == "is"
                && (self.word_at(1, "distinct") || (self.word_at(1, "not") && self.word_at(2, "distinct")));
            return distinct.then_some((Infix::Is, rank::IS));
        }
        let (word, negated) = match (word, self.peek_at(1)) {
            ("not", Token::Word(next)) if next.quote_style.is_none() => (next.value.as_str(), true),
            _ => (word, false),
        };
        Some(match word {
            "like" => (Infix::Like { negated }, rank::BETWEEN),
            "ilike" => (Infix::ILike { negated }, rank::BETWEEN),
            "similar" => (Infix::Similar { negated }, rank::BETWEEN),
            "between" => (Infix::Between { negated }, rank::BETWEEN),
            "in" => (Infix::In { negated }, rank::BETWEEN),
            _ if negated => return None,
            "or" => (Infix::Or, rank::OR),
            "and" => (Infix::And, rank::AND),
            "is" => (Infix::Is, rank::IS),
            "isnull" => (Infix::IsNull, rank::IS),
            "notnull" => (Infix::NotNull, rank::IS),
            "at" if self.word_at(1, "time") => (Infix::AtTimeZone, rank::AT),
            "collate" => (Infix::Collate, rank::COLLATE),
            _ => return None,
        })
    }

    fn infix(&mut self, left: Expr, infix: Infix, rank: u8, restricted: bool) -> Parsed<Expr> {
        self.parser.advance_token();
        match infix {
            Infix::Or => self.binary(left, BinaryOperator::Or, rank, restricted),
            Infix::And => self.binary(left, BinaryOperator::And, rank, restricted),
            Infix::Is => self.is(left, restricted),
            Infix::IsNull => Ok(Expr::IsNull(Box::new(left))),
            Infix::NotNull => Ok(Expr::IsNotNull(Box::new(left))),
            Infix::Like { negated } => self.like(left, Pattern::Like, negated),
            Infix::ILike { negated } => self.like(left, Pattern::ILike, negated),
            Infix::Similar { negated } => {
                self.skip_not(negated);
                self.expect_word("to")?;
                self.like(left, Pattern::Similar, negated)
            }
            Infix::Between { negated } => {
                self.skip_not(negated);
                self.between(left, negated)
            }
            Infix::In { negated } => {
                self.skip_not(negated);
                self.within(left, negated)
            }
            Infix::AtTimeZone => {
                self.expect_word("time")?;
                self.expect_word("zone")?;
                let zone = self.expression(rank, restricted)?;
                Ok(Expr::AtTimeZone {
                    timestamp: Box::new(left),
                    time_zone: Box::new(zone),
                })
            }
            Infix::Collate => Ok(Expr::Collate {
                expr: Box::new(left),
                collation: self.qualified_name()?,
            }),
            Infix::Cast => Ok(Expr::Cast {
                kind: CastKind::DoubleColon,
                expr: Box::new(left),
                data_type: self.type_name()?,
                array: false,
                format: None,
            }),
            Infix::Qualified => {
                let parts = self.qualified_operator()?;
                let operator = BinaryOperator::PGCustomBinaryOperator(parts);
                self.binary_or_array(left, operator, rank, restricted)
            }
            Infix::Symbol => {
                let operator = binary_operator(&self.parser.get_current_token().token);
                let Some(operator) = operator else {
                    return Err(self.unexpected());
                };
                self.binary_or_array(left, operator, rank, restricted)
            }
        }
    }

    fn binary(&mut self, left: Expr, op: BinaryOperator, rank: u8, restricted: bool) -> Parsed<Expr> {
        let right = self.expression(rank, restricted)?;
        if rank == rank::COMPARE {
            self.refuse_chain(rank, restricted)?;
        }
        Ok(Expr::BinaryOp {
            left: Box::new(left),
            op,
            right: Box::new(right),
        })
    }

    /// `left op right` or `left op ANY (...)`.
    fn binary_or_array(
        &mut self,
        left: Expr,
        op: BinaryOperator,
        rank: u8,
        restricted: bool,
    ) -> Parsed<Expr> {
        if restricted {
            return self.binary(left, op, rank, restricted);
        }
        match self.array_quantifier() {
            Some(quantifier) => self.over_array(left, op, quantifier),
            None => self.binary(left, op, rank, restricted),
        }
    }

    /// ANY, SOME or ALL before a parenthesis.
    fn array_quantifier(&self) -> Option<&'static str> {
        if *self.peek_at(1) != Token::LParen {
            return None;
        }
        ["any", "some", "all"]
            .into_iter()
            .find(|word| self.word_at(0, word))
    }

    fn over_array(&mut self, left: Expr, compare_op: BinaryOperator, quantifier: &str) -> Parsed<Expr> {
        self.parser.advance_token();
        let right = if self.opens_query() {
            self.subquery()?
        } else {
            self.parser.expect_token(&Token::LParen)?;
            let right = self.any()?;
            self.parser.expect_token(&Token::RParen)?;
            right
        };
        let (left, right) = (Box::new(left), Box::new(right));
        Ok(match quantifier {
            "all" => Expr::AllOp {
                left,
                compare_op,
                right,
            },
            other => Expr::AnyOp {
                left,
                compare_op,
                right,
                is_some: other == "some",
            },
        })
    }

    fn is(&mut self, left: Expr, restricted: bool) -> Parsed<Expr> {
        let operand = Box::new(left);
        let negated = self.accept_word("not");
        if self.accept_word("distinct") {
            self.expect_word("from")?;
            let right = Box::new(self.expression(rank::IS, restricted)?);
            self.refuse_chain(rank::IS, restricted)?;
            return Ok(match negated {
                false => Expr::IsDistinctFrom(operand, right),
                true => Expr::IsNotDistinctFrom(operand, right),
            });
        }
        for (word, plain, not) in [
            (
                "null",
                Expr::IsNull as fn(Box<Expr>) -> Expr,
                Expr::IsNotNull as fn(Box<Expr>) -> Expr,
            ),
            ("true", Expr::IsTrue, Expr::IsNotTrue),
            ("false", Expr::IsFalse, Expr::IsNotFalse),
            ("unknown", Expr::IsUnknown, Expr::IsNotUnknown),
        ] {
            if self.accept_word(word) {
                return Ok(if negated { not(operand) } else { plain(operand) });
            }
        }
        if ["document", "normalized", "nfc", "nfd", "nfkc", "nfkd"]
            .iter()
            .any(|word| self.word_at(0, word))
        {
            let what = format!("IS {} is not supported", self.peek().to_string().to_uppercase());
            return Err(self.unsupported(&what));
        }
        Err(self.unexpected())
    }

    fn skip_not(&mut self, negated: bool) {
        if negated {
            self.parser.advance_token();
        }
    }

    fn like(&mut self, left: Expr, kind: Pattern, negated: bool) -> Parsed<Expr> {
        if kind != Pattern::Similar {
            self.skip_not(negated);
            if let Some(quantifier) = self.array_quantifier() {
                let op = match (kind, negated) {
                    (Pattern::ILike, false) => BinaryOperator::PGILikeMatch,
                    (Pattern::ILike, true) => BinaryOperator::PGNotILikeMatch,
                    (_, false) => BinaryOperator::PGLikeMatch,
                    (_, true) => BinaryOperator::PGNotLikeMatch,
                };
                return self.over_array(left, op, quantifier);
            }
        }
        let pattern = Box::new(self.expression(rank::BETWEEN, false)?);
        let escape_char = match self.accept_word("escape") {
            true => Some(self.escape()?),
            false => None,
        };
        self.refuse_chain(rank::BETWEEN, false)?;
        let expr = Box::new(left);
        Ok(match kind {
            Pattern::Like => Expr::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char,
            },
            Pattern::ILike => Expr::ILike {
                negated,
                any: false,
                expr,
                pattern,
                escape_char,
            },
            Pattern::Similar => Expr::SimilarTo {
                negated,
                expr,
                pattern,
                escape_char,
            },
        })
    }

    /// The operand of ESCAPE: the tree takes literals and parameters.
    fn escape(&mut self) -> Parsed<ValueWithSpan> {
        let at = self.parser.index();
        match self.expression(rank::BETWEEN, false)? {
            Expr::Value(value) => Ok(value),
            _ => {
                let position = self.parser.token_at(at).span.start.column;
                let error = SqlError::unsupported("ESCAPE with other than a literal is not supported");
                Err(self.dialect.fail(place(error, position)))
            }
        }
    }

    fn between(&mut self, left: Expr, negated: bool) -> Parsed<Expr> {
        let span = self.parser.peek_token_ref().span;
        let symmetric = self.accept_word("symmetric");
        if !symmetric {
            self.accept_word("asymmetric");
        }
        let mut low = self.expression(rank::NONE, true)?;
        self.expect_word("and")?;
        let high = self.expression(rank::BETWEEN, false)?;
        self.refuse_chain(rank::BETWEEN, false)?;
        if symmetric {
            low = Expr::Prefixed {
                prefix: Ident::with_span(span, SYMMETRIC),
                value: Box::new(low),
            };
        }
        Ok(Expr::Between {
            expr: Box::new(left),
            negated,
            low: Box::new(low),
            high: Box::new(high),
        })
    }

    fn within(&mut self, left: Expr, negated: bool) -> Parsed<Expr> {
        let expr = Box::new(left);
        if self.opens_query() {
            let Expr::Subquery(subquery) = self.subquery()? else {
                return Err(self.unexpected());
            };
            return Ok(Expr::InSubquery {
                expr,
                subquery,
                negated,
            });
        }
        self.parser.expect_token(&Token::LParen)?;
        let list = self.list()?;
        self.parser.expect_token(&Token::RParen)?;
        Ok(Expr::InList { expr, list, negated })
    }

    /// Behind an operator that does not associate: none of its rank may follow.
    fn refuse_chain(&self, rank: u8, restricted: bool) -> Parsed<()> {
        match self.peek_infix(restricted) {
            Some((_, next)) if next == rank => Err(self.unexpected()),
            _ => Ok(()),
        }
    }

    /// `OPERATOR(schema.symbol)`, from its parenthesis on.
    fn qualified_operator(&mut self) -> Parsed<Vec<String>> {
        self.parser.expect_token(&Token::LParen)?;
        let mut parts = Vec::new();
        while let Token::Word(word) = self.peek() {
            parts.push(word.value.clone());
            self.parser.advance_token();
            self.parser.expect_token(&Token::Period)?;
        }
        let symbol = match self.peek() {
            Token::CustomBinaryOperator(symbol) => symbol.clone(),
            token if binary_operator(token).is_some() => token.to_string(),
            _ => return Err(self.unexpected()),
        };
        parts.push(symbol);
        self.parser.advance_token();
        self.parser.expect_token(&Token::RParen)?;
        Ok(parts)
    }

    /// A name with the schema that may stand before it.
    pub(crate) fn qualified_name(&mut self) -> Parsed<ObjectName> {
        let mut parts = vec![self.label()?];
        while self.parser.consume_token(&Token::Period) {
            parts.push(self.label()?);
        }
        Ok(ObjectName::from(parts))
    }

    /// Any word as a name.
    pub(crate) fn label(&mut self) -> Parsed<Ident> {
        let token = self.parser.peek_token_ref();
        match &token.token {
            Token::Word(word) => {
                let name = word.to_ident(token.span);
                self.parser.advance_token();
                Ok(name)
            }
            _ => Err(self.unexpected()),
        }
    }

    pub(crate) fn list(&mut self) -> Parsed<Vec<Expr>> {
        let mut items = vec![self.any()?];
        while self.parser.consume_token(&Token::Comma) {
            items.push(self.any()?);
        }
        Ok(items)
    }

    pub(crate) fn peek(&self) -> &Token {
        &self.parser.peek_token_ref().token
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> &Token {
        &self.parser.peek_nth_token_ref(ahead).token
    }

    /// The token so far ahead is the key word.
    pub(crate) fn word_at(&self, ahead: usize, word: &str) -> bool {
        matches!(self.peek_at(ahead), Token::Word(found) if is(found, word))
    }

    pub(crate) fn accept_word(&mut self, word: &str) -> bool {
        let found = self.word_at(0, word);
        if found {
            self.parser.advance_token();
        }
        found
    }

    pub(crate) fn expect_word(&mut self, word: &str) -> Parsed<()> {
        match self.accept_word(word) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    /// The syntax error at the next token.
    pub(crate) fn unexpected(&self) -> ParserError {
        let token = self.parser.peek_token_ref();
        match token.token {
            Token::EOF => ParserError::ParserError("found: EOF".to_owned()),
            _ => {
                let Location { line, column } = token.span.start;
                ParserError::ParserError(format!("unexpected at Line: {line}, Column: {column}"))
            }
        }
    }

    /// 0A000 at the next token.
    pub(crate) fn unsupported(&self, what: &str) -> ParserError {
        let position = self.parser.peek_token_ref().span.start.column;
        self.dialect.fail(place(SqlError::unsupported(what), position))
    }

    /// 42601 with words of its own at the next token.
    pub(crate) fn refused(&self, what: &str) -> ParserError {
        let position = self.parser.peek_token_ref().span.start.column;
        let error = SqlError::new(SqlState::SYNTAX_ERROR, what.to_owned());
        self.dialect.fail(place(error, position))
    }
}

/// LIKE, ILIKE or SIMILAR TO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Like,
    ILike,
    Similar,
}

/// An operator before its operand.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Prefix {
    Unary(UnaryOperator),
    Symbol(String),
    Qualified,
}

impl Prefix {
    fn apply(self, expression: Expr) -> Expr {
        let expr = Box::new(expression);
        match self {
            Prefix::Unary(op) => Expr::UnaryOp { op, expr },
            Prefix::Symbol(symbol) => {
                let op = match symbol.as_str() {
                    "+" => UnaryOperator::Plus,
                    "-" => UnaryOperator::Minus,
                    "~" => UnaryOperator::BitwiseNot,
                    "@" => UnaryOperator::PGAbs,
                    "|/" => UnaryOperator::PGSquareRoot,
                    "||/" => UnaryOperator::PGCubeRoot,
                    _ => {
                        return Expr::Prefixed {
                            prefix: Ident::with_span(Span::empty(), symbol),
                            value: expr,
                        };
                    }
                };
                Expr::UnaryOp { op, expr }
            }
            // Read as its symbol.
            Prefix::Qualified => *expr,
        }
    }
}

fn place(error: SqlError, position: u64) -> SqlError {
    match u32::try_from(position) {
        Ok(position) if position > 0 => error.position(position),
        _ => error,
    }
}

/// The word is the key word, not a quoted name.
pub(crate) fn is(word: &Word, name: &str) -> bool {
    word.quote_style.is_none() && word.value == name
}

fn binary_operator(token: &Token) -> Option<BinaryOperator> {
    Some(match token {
        Token::Eq => BinaryOperator::Eq,
        Token::Neq => BinaryOperator::NotEq,
        Token::Lt => BinaryOperator::Lt,
        Token::Gt => BinaryOperator::Gt,
        Token::LtEq => BinaryOperator::LtEq,
        Token::GtEq => BinaryOperator::GtEq,
        Token::Plus => BinaryOperator::Plus,
        Token::Minus => BinaryOperator::Minus,
        Token::Mul => BinaryOperator::Multiply,
        Token::Div => BinaryOperator::Divide,
        Token::Mod => BinaryOperator::Modulo,
        Token::Caret => BinaryOperator::PGExp,
        Token::CustomBinaryOperator(symbol) => match symbol.as_str() {
            "||" => BinaryOperator::StringConcat,
            "&" => BinaryOperator::BitwiseAnd,
            "|" => BinaryOperator::BitwiseOr,
            "#" => BinaryOperator::PGBitwiseXor,
            "<<" => BinaryOperator::PGBitwiseShiftLeft,
            ">>" => BinaryOperator::PGBitwiseShiftRight,
            "&&" => BinaryOperator::PGOverlap,
            "^@" => BinaryOperator::PGStartsWith,
            "~" => BinaryOperator::PGRegexMatch,
            "~*" => BinaryOperator::PGRegexIMatch,
            "!~" => BinaryOperator::PGRegexNotMatch,
            "!~*" => BinaryOperator::PGRegexNotIMatch,
            "~~" => BinaryOperator::PGLikeMatch,
            "~~*" => BinaryOperator::PGILikeMatch,
            "!~~" => BinaryOperator::PGNotLikeMatch,
            "!~~*" => BinaryOperator::PGNotILikeMatch,
            "->" => BinaryOperator::Arrow,
            "->>" => BinaryOperator::LongArrow,
            "#>" => BinaryOperator::HashArrow,
            "#>>" => BinaryOperator::HashLongArrow,
            "@@" => BinaryOperator::AtAt,
            "@>" => BinaryOperator::AtArrow,
            "<@" => BinaryOperator::ArrowAt,
            other => BinaryOperator::Custom(other.to_owned()),
        },
        _ => return None,
    })
}
