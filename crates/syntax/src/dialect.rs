//! PostgreSQL's dialect with expressions of its own.
//!
//! sqlparser asks its dialect before it parses an operand. This one answers with the whole expression
//! ([`crate::expression`]) and says that no operator follows, so that precedence, associativity and what may
//! be an operand are decided here alone. Statements and queries around expressions stay sqlparser's.

use std::any::TypeId;
use std::cell::{Cell, RefCell};

use sqlparser::ast::{Expr, Statement};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use weft_types::SqlError;
use weft_types::interrupt::Pace;

use crate::expression::ExpressionParser;
use crate::keyword;

/// The dialect over one text: what is known of its tokens, and the error that the parser's own type cannot
/// carry.
#[derive(Debug)]
pub(crate) struct WeftDialect {
    postgres: PostgreSqlDialect,
    pub(crate) queries: Vec<bool>,
    pub(crate) error: RefCell<Option<SqlError>>,
    pub(crate) depth: Cell<usize>,
    pub(crate) depth_max: usize,
    pace: RefCell<Pace>,
    /// The error with which the statement shall end: whatever the parser makes of the rest does not count.
    pub(crate) ended: RefCell<Option<SqlError>>,
}

/// Units of work of an expression, about.
const EXPRESSION_UNITS: usize = 32;

/// Message of a parser error whose words lie in [`WeftDialect::error`].
pub(crate) const OWN_ERROR: &str = "\u{1}weft";

impl WeftDialect {
    pub(crate) fn new(queries: Vec<bool>, depth_max: usize) -> Self {
        WeftDialect {
            postgres: PostgreSqlDialect {},
            queries,
            error: RefCell::new(None),
            depth: Cell::new(0),
            depth_max,
            pace: RefCell::default(),
            ended: RefCell::default(),
        }
    }

    /// One expression more: fails, from then on always, when the statement shall end.
    pub(crate) fn go_on(&self) -> Result<(), ParserError> {
        let mut ended = self.ended.borrow_mut();
        if ended.is_none() {
            *ended = self.pace.borrow_mut().step(EXPRESSION_UNITS).err();
        }
        match *ended {
            None => Ok(()),
            Some(_) => Err(ParserError::ParserError(OWN_ERROR.to_owned())),
        }
    }

    /// An error in PostgreSQL's words through the parser.
    pub(crate) fn fail(&self, error: SqlError) -> ParserError {
        *self.error.borrow_mut() = Some(error);
        ParserError::ParserError(OWN_ERROR.to_owned())
    }
}

macro_rules! as_postgres {
    ($($name:ident,)*) => {
        $(fn $name(&self) -> bool {
            self.postgres.$name()
        })*
    };
}

impl Dialect for WeftDialect {
    fn dialect(&self) -> TypeId {
        self.postgres.dialect()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        self.postgres.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        self.postgres.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        self.postgres.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        self.postgres.is_identifier_part(ch)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        self.postgres.is_custom_operator_part(ch)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        self.postgres.is_reserved_for_identifier(keyword)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        self.postgres.prec_value(precedence)
    }

    as_postgres! {
        supports_unicode_string_literal,
        supports_filter_during_aggregation,
        supports_group_by_expr,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_listen_notify,
        supports_comment_on,
        supports_load_extension,
        supports_empty_projections,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_array_typedef_with_brackets,
        supports_set_names,
        supports_alter_column_type_using,
        supports_interval_options,
        supports_insert_table_alias,
        supports_create_table_like_parenthesized,
    }

    fn supports_named_fn_args_with_rarrow_operator(&self) -> bool {
        false
    }

    fn parse_statement(&self, _parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        None
    }

    fn get_next_precedence(&self, _parser: &Parser) -> Option<Result<u8, ParserError>> {
        Some(Ok(self.prec_unknown()))
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        // The default of a column is a b_expr: NOT NULL and COLLATE behind it belong to the column.
        let here = parser.index();
        let default = here >= 2
            && is_word(parser.token_at(here - 1), Keyword::DEFAULT)
            && !is_word(parser.token_at(here - 2), Keyword::SET);
        let mut expressions = ExpressionParser::new(parser, self);
        Some(expressions.whole(default))
    }

    fn is_column_alias(&self, _keyword: &Keyword, parser: &mut Parser) -> bool {
        alias(parser, keyword::names_bare_label)
    }

    fn is_table_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        *keyword != Keyword::SET && alias(parser, keyword::names_column)
    }

    fn is_table_factor_alias(&self, _explicit: bool, keyword: &Keyword, parser: &mut Parser) -> bool {
        self.is_table_alias(keyword, parser)
    }
}

fn is_word(token: &sqlparser::tokenizer::TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(word) if word.keyword == keyword)
}

/// The word just read may be a name without AS.
fn alias(parser: &Parser, may: impl Fn(&str) -> bool) -> bool {
    match &parser.get_current_token().token {
        Token::Word(word) => word.quote_style.is_some() || may(&word.value),
        _ => false,
    }
}
