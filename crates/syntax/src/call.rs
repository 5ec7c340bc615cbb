//! Calls of functions: arguments, aggregates' clauses, windows, and the functions whose arguments are parted
//! by key words.

use sqlparser::ast::{
    DateTimeField, DuplicateTreatment, Expr, ExtractSyntax, Function, FunctionArg, FunctionArgExpr,
    FunctionArgOperator, FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    OrderByExpr, TrimWhereField, WindowType,
};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use crate::expression::{ExpressionParser, Parsed, rank};
use crate::operand::{arguments, function};

impl ExpressionParser<'_, '_> {
    /// A call, from its parenthesis on.
    pub(crate) fn call(&mut self, name: ObjectName) -> Parsed<Expr> {
        self.parser.expect_token(&Token::LParen)?;
        let arguments = self.call_arguments()?;
        self.parser.expect_token(&Token::RParen)?;
        let mut within_group = Vec::new();
        if self.word_at(0, "within") && self.word_at(1, "group") {
            self.parser.advance_token();
            self.parser.advance_token();
            self.parser.expect_token(&Token::LParen)?;
            within_group = self.order_by()?.ok_or_else(|| self.unexpected())?;
            self.parser.expect_token(&Token::RParen)?;
        }
        let mut filter = None;
        if self.word_at(0, "filter") && *self.peek_at(1) == Token::LParen {
            self.parser.advance_token();
            self.parser.advance_token();
            self.expect_word("where")?;
            filter = Some(Box::new(self.any()?));
            self.parser.expect_token(&Token::RParen)?;
        }
        let over = match self.word_at(0, "over") && self.begins_window() {
            true => Some(self.window()?),
            false => None,
        };
        Ok(Expr::Function(Function {
            name,
            uses_odbc_syntax: false,
            parameters: FunctionArguments::None,
            args: FunctionArguments::List(arguments),
            filter,
            null_treatment: None,
            over,
            within_group,
        }))
    }

    fn begins_window(&self) -> bool {
        matches!(self.peek_at(1), Token::LParen | Token::Word(_))
    }

    fn window(&mut self) -> Parsed<WindowType> {
        self.parser.advance_token();
        if self.parser.consume_token(&Token::LParen) {
            return Ok(WindowType::WindowSpec(self.parser.parse_window_spec()?));
        }
        Ok(WindowType::NamedWindow(self.label()?))
    }

    fn order_by(&mut self) -> Parsed<Option<Vec<OrderByExpr>>> {
        if !self.accept_word("order") {
            return Ok(None);
        }
        self.expect_word("by")?;
        let keys = self.parser.parse_comma_separated(Parser::parse_order_by_expr)?;
        Ok(Some(keys))
    }

    fn call_arguments(&mut self) -> Parsed<FunctionArgumentList> {
        let mut list = FunctionArgumentList {
            duplicate_treatment: None,
            args: Vec::new(),
            clauses: Vec::new(),
        };
        match self.peek() {
            Token::RParen => return Ok(list),
            Token::Mul => {
                self.parser.advance_token();
                list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
                return Ok(list);
            }
            _ => {}
        }
        if self.accept_word("distinct") {
            list.duplicate_treatment = Some(DuplicateTreatment::Distinct);
        } else if self.accept_word("all") {
            list.duplicate_treatment = Some(DuplicateTreatment::All);
        }
        loop {
            list.args.push(self.argument()?);
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        if let Some(keys) = self.order_by()? {
            list.clauses.push(FunctionArgumentClause::OrderBy(keys));
        }
        Ok(list)
    }

    fn argument(&mut self) -> Parsed<FunctionArg> {
        if self.word_at(0, "variadic") {
            return Err(self.unsupported("VARIADIC arguments are not supported"));
        }
        let operator = match (self.peek(), self.peek_at(1)) {
            (Token::Word(_), Token::RArrow) => Some(FunctionArgOperator::RightArrow),
            (Token::Word(_), Token::Assignment) => Some(FunctionArgOperator::Assignment),
            _ => None,
        };
        if let Some(operator) = operator {
            let name = self.label()?;
            self.parser.advance_token();
            let arg = FunctionArgExpr::Expr(self.any()?);
            return Ok(FunctionArg::Named { name, arg, operator });
        }
        Ok(FunctionArg::Unnamed(match self.any()? {
            Expr::QualifiedWildcard(name, _) => FunctionArgExpr::QualifiedWildcard(name),
            other => FunctionArgExpr::Expr(other),
        }))
    }

    /// EXTRACT, POSITION, SUBSTRING, OVERLAY or TRIM, from its parenthesis on.
    pub(crate) fn keyword_call(&mut self, name: Ident) -> Parsed<Expr> {
        self.parser.expect_token(&Token::LParen)?;
        let call = match name.value.as_str() {
            "extract" => self.extract(),
            "position" => self.position(name),
            "substring" => self.substring(name),
            "overlay" => self.overlay(name),
            _ => self.trim(),
        }?;
        self.parser.expect_token(&Token::RParen)?;
        Ok(call)
    }

    fn extract(&mut self) -> Parsed<Expr> {
        let token = self.parser.peek_token_ref();
        let field = match &token.token {
            Token::SingleQuotedString(text) => {
                let field = DateTimeField::Custom(Ident::with_span(token.span, text.as_str()));
                self.parser.advance_token();
                field
            }
            Token::Word(_) => self.parser.parse_date_time_field()?,
            _ => return Err(self.unexpected()),
        };
        self.expect_word("from")?;
        Ok(Expr::Extract {
            field,
            syntax: ExtractSyntax::From,
            expr: Box::new(self.any()?),
        })
    }

    fn position(&mut self, _name: Ident) -> Parsed<Expr> {
        let expr = Box::new(self.expression(rank::NONE, true)?);
        self.expect_word("in")?;
        let r#in = Box::new(self.expression(rank::NONE, true)?);
        Ok(Expr::Position { expr, r#in })
    }

    fn substring(&mut self, name: Ident) -> Parsed<Expr> {
        if *self.peek() == Token::RParen {
            return Ok(function(name, arguments(Vec::new())));
        }
        let text = self.any()?;
        if self.accept_word("similar") {
            let pattern = self.any()?;
            self.expect_word("escape")?;
            let escape = self.any()?;
            return Ok(function(name, arguments(vec![text, pattern, escape])));
        }
        let mut from = None;
        let mut length = None;
        loop {
            if from.is_none() && self.accept_word("from") {
                from = Some(Box::new(self.any()?));
            } else if length.is_none() && self.accept_word("for") {
                length = Some(Box::new(self.any()?));
            } else {
                break;
            }
        }
        if from.is_none() && length.is_none() {
            return self.plain_call(name, text);
        }
        Ok(Expr::Substring {
            expr: Box::new(text),
            substring_from: from,
            substring_for: length,
            special: false,
            shorthand: false,
        })
    }

    fn overlay(&mut self, name: Ident) -> Parsed<Expr> {
        if *self.peek() == Token::RParen {
            return Ok(function(name, arguments(Vec::new())));
        }
        let text = self.any()?;
        if !self.accept_word("placing") {
            return self.plain_call(name, text);
        }
        let overlay_what = Box::new(self.any()?);
        self.expect_word("from")?;
        let overlay_from = Box::new(self.any()?);
        let overlay_for = match self.accept_word("for") {
            true => Some(Box::new(self.any()?)),
            false => None,
        };
        Ok(Expr::Overlay {
            expr: Box::new(text),
            overlay_what,
            overlay_from,
            overlay_for,
        })
    }

    /// The call with a list of arguments, the first of which has been read.
    fn plain_call(&mut self, name: Ident, first: Expr) -> Parsed<Expr> {
        let mut items = vec![first];
        while self.parser.consume_token(&Token::Comma) {
            items.push(self.any()?);
        }
        Ok(function(name, arguments(items)))
    }

    fn trim(&mut self) -> Parsed<Expr> {
        let trim_where = if self.accept_word("both") {
            Some(TrimWhereField::Both)
        } else if self.accept_word("leading") {
            Some(TrimWhereField::Leading)
        } else if self.accept_word("trailing") {
            Some(TrimWhereField::Trailing)
        } else {
            None
        };
        if self.accept_word("from") {
            return self.trim_list(trim_where, None);
        }
        let first = self.any()?;
        if self.accept_word("from") {
            return self.trim_list(trim_where, Some(Box::new(first)));
        }
        let mut characters = Vec::new();
        while self.parser.consume_token(&Token::Comma) {
            characters.push(self.any()?);
        }
        Ok(Expr::Trim {
            trim_where,
            trim_what: None,
            expr: Box::new(first),
            trim_characters: (!characters.is_empty()).then_some(characters),
        })
    }

    fn trim_list(&mut self, trim_where: Option<TrimWhereField>, what: Option<Box<Expr>>) -> Parsed<Expr> {
        let expr = Box::new(self.any()?);
        let mut characters = Vec::new();
        while self.parser.consume_token(&Token::Comma) {
            characters.push(self.any()?);
        }
        // `trim(a from b, c)` is a call with the arguments b, c, a.
        let mut trim_what = what;
        if !characters.is_empty()
            && let Some(what) = trim_what.take()
        {
            characters.push(*what);
        }
        Ok(Expr::Trim {
            trim_where,
            trim_what,
            expr,
            trim_characters: (!characters.is_empty()).then_some(characters),
        })
    }
}
