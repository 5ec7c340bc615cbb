//! Operands of expressions: names, literals, parentheses, and the forms with a grammar of their own (gram.y's
//! c_expr).

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    AccessExpr, Array, CaseWhen, CastKind, CharacterLength, DataType, DateTimeField, ExactNumberInfo, Expr,
    Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, Interval,
    ObjectName, Subscript, TypedString, Value, ValueWithSpan,
};
use sqlparser::tokenizer::{Token, Word};

use crate::expression::{ExpressionParser, Parsed};
use crate::keyword::{self, Category};

/// Key words that begin a type of more than one word or with modifiers, and that are no functions.
const TYPE_WORDS: &[&str] = &[
    "bigint",
    "bit",
    "boolean",
    "char",
    "character",
    "dec",
    "decimal",
    "float",
    "int",
    "integer",
    "national",
    "nchar",
    "numeric",
    "real",
    "smallint",
    "time",
    "timestamp",
    "varchar",
];

impl ExpressionParser<'_, '_> {
    /// An operand without operators.
    pub(crate) fn primary(&mut self) -> Parsed<Expr> {
        let token = self.parser.peek_token_ref();
        let span = token.span;
        match &token.token {
            Token::Number(text, _) => {
                let value = Value::Number(text.clone(), false);
                self.parser.advance_token();
                Ok(Expr::Value(ValueWithSpan { value, span }))
            }
            Token::SingleQuotedString(text) => {
                let value = Value::SingleQuotedString(text.clone());
                self.parser.advance_token();
                Ok(Expr::Value(ValueWithSpan { value, span }))
            }
            Token::Placeholder(text) => {
                let value = Value::Placeholder(text.clone());
                self.parser.advance_token();
                self.indirection(Expr::Value(ValueWithSpan { value, span }))
            }
            Token::LParen => self.parenthesis(),
            Token::Word(word) if word.quote_style.is_some() => self.name(),
            Token::Word(_) => self.word(),
            _ => Err(self.unexpected()),
        }
    }

    /// The next token is a parenthesis that holds a query.
    pub(crate) fn opens_query(&self) -> bool {
        let query = self.dialect.queries.get(self.parser.index()).copied();
        *self.peek() == Token::LParen && query.unwrap_or(false)
    }

    /// `(query)`
    pub(crate) fn subquery(&mut self) -> Parsed<Expr> {
        self.parser.expect_token(&Token::LParen)?;
        let query = self.parser.parse_query()?;
        self.parser.expect_token(&Token::RParen)?;
        Ok(Expr::Subquery(query))
    }

    fn parenthesis(&mut self) -> Parsed<Expr> {
        if self.opens_query() {
            let query = self.subquery()?;
            return self.indirection(query);
        }
        self.parser.expect_token(&Token::LParen)?;
        let mut items = self.row_items()?;
        self.parser.expect_token(&Token::RParen)?;
        if items.len() > 1 {
            return self.row(Expr::Tuple(items));
        }
        match items.pop() {
            Some(item) => self.indirection(Expr::Nested(Box::new(item))),
            None => Err(self.unexpected()),
        }
    }

    /// Expressions, and `table.*` among them.
    fn row_items(&mut self) -> Parsed<Vec<Expr>> {
        self.list()
    }

    /// Behind a row: OVERLAPS may follow.
    fn row(&mut self, row: Expr) -> Parsed<Expr> {
        if !self.accept_word("overlaps") {
            return self.indirection(row);
        }
        self.accept_word("row");
        self.parser.expect_token(&Token::LParen)?;
        let items = self.list()?;
        self.parser.expect_token(&Token::RParen)?;
        Ok(Expr::BinaryOp {
            left: Box::new(row),
            op: sqlparser::ast::BinaryOperator::Overlaps,
            right: Box::new(Expr::Tuple(items)),
        })
    }

    /// `[i]`, `[i:j]` and `.field` behind an operand.
    fn indirection(&mut self, root: Expr) -> Parsed<Expr> {
        let mut access_chain = Vec::new();
        loop {
            if self.parser.consume_token(&Token::LBracket) {
                access_chain.push(AccessExpr::Subscript(self.subscript()?));
            } else if *self.peek() == Token::Period {
                if *self.peek_at(1) == Token::Mul {
                    return Err(self.unsupported("expansion of a row by .* is not supported"));
                }
                self.parser.advance_token();
                access_chain.push(AccessExpr::Dot(Expr::Identifier(self.label()?)));
            } else {
                break;
            }
        }
        Ok(match access_chain.is_empty() {
            true => root,
            false => Expr::CompoundFieldAccess {
                root: Box::new(root),
                access_chain,
            },
        })
    }

    fn subscript(&mut self) -> Parsed<Subscript> {
        let lower_bound = match self.peek() {
            Token::Colon => None,
            _ => Some(self.any()?),
        };
        if self.parser.consume_token(&Token::RBracket) {
            return match lower_bound {
                Some(index) => Ok(Subscript::Index { index }),
                None => Err(self.unexpected()),
            };
        }
        self.parser.expect_token(&Token::Colon)?;
        let upper_bound = match self.peek() {
            Token::RBracket => None,
            _ => Some(self.any()?),
        };
        self.parser.expect_token(&Token::RBracket)?;
        Ok(Subscript::Slice {
            lower_bound,
            upper_bound,
            stride: None,
        })
    }

    /// A name: of a column, of a function that is called, or of the type of a literal.
    fn name(&mut self) -> Parsed<Expr> {
        let start = self.parser.index();
        let mut parts = vec![self.label()?];
        while *self.peek() == Token::Period {
            self.parser.advance_token();
            if *self.peek() == Token::Mul {
                let star = self.parser.peek_token_ref().clone();
                self.parser.advance_token();
                return Ok(Expr::QualifiedWildcard(
                    ObjectName::from(parts),
                    AttachedToken(star),
                ));
            }
            parts.push(self.label()?);
        }
        match self.peek() {
            Token::LParen => self.call(ObjectName::from(parts)),
            Token::SingleQuotedString(_) => {
                let data_type = DataType::Custom(ObjectName::from(parts), Vec::new());
                let data_type = match self.parser.index() - start {
                    // A name that the parser knows as a type is that type.
                    1 => self.known_type(start)?,
                    _ => data_type,
                };
                self.typed_string(data_type)
            }
            _ if parts.len() == 1 => match parts.pop() {
                Some(name) => self.indirection(Expr::Identifier(name)),
                None => Err(self.unexpected()),
            },
            _ => self.indirection(Expr::CompoundIdentifier(parts)),
        }
    }

    /// The type that the one word at `start` names; the word has been read.
    fn known_type(&mut self, start: usize) -> Parsed<DataType> {
        while self.parser.index() > start {
            self.parser.prev_token();
        }
        self.type_name()
    }

    fn typed_string(&mut self, data_type: DataType) -> Parsed<Expr> {
        Ok(Expr::TypedString(TypedString {
            data_type,
            value: self.string()?,
            uses_odbc_syntax: false,
        }))
    }

    fn string(&mut self) -> Parsed<ValueWithSpan> {
        let token = self.parser.peek_token_ref();
        match &token.token {
            Token::SingleQuotedString(text) => {
                let value = Value::SingleQuotedString(text.clone());
                let span = token.span;
                self.parser.advance_token();
                Ok(ValueWithSpan { value, span })
            }
            _ => Err(self.unexpected()),
        }
    }

    /// An unquoted word.
    fn word(&mut self) -> Parsed<Expr> {
        let token = self.parser.peek_token_ref();
        let span = token.span;
        let Token::Word(word) = &token.token else {
            return Err(self.unexpected());
        };
        let Some((category, _)) = keyword::look_up(&word.value) else {
            return self.name();
        };
        let parenthesis = *self.peek_at(1) == Token::LParen;
        match word.value.as_str() {
            "true" | "false" => {
                let value = Value::Boolean(word.value == "true");
                self.parser.advance_token();
                return Ok(Expr::Value(ValueWithSpan { value, span }));
            }
            "null" => {
                self.parser.advance_token();
                let value = Value::Null;
                return Ok(Expr::Value(ValueWithSpan { value, span }));
            }
            "case" => return self.case(),
            "cast" if parenthesis => return self.cast(),
            "exists" if parenthesis => return self.exists(),
            "array" => return self.array(),
            "row" if parenthesis => {
                self.parser.advance_token();
                self.parser.advance_token();
                let items = match self.peek() {
                    Token::RParen => Vec::new(),
                    _ => self.row_items()?,
                };
                self.parser.expect_token(&Token::RParen)?;
                return self.row(Expr::Tuple(items));
            }
            "interval" => {
                if let Some(interval) = self.interval()? {
                    return Ok(interval);
                }
            }
            "default" => {
                let name = word.to_ident(span);
                self.parser.advance_token();
                return Ok(Expr::Identifier(name));
            }
            "current_catalog" | "current_role" | "current_user" | "session_user" | "user"
            | "current_date" => {
                let name = word.to_ident(span);
                self.parser.advance_token();
                return Ok(bare_call(name));
            }
            "current_schema" if !parenthesis => {
                let name = word.to_ident(span);
                self.parser.advance_token();
                return Ok(bare_call(name));
            }
            "current_time" | "current_timestamp" | "localtime" | "localtimestamp" => {
                let name = word.to_ident(span);
                self.parser.advance_token();
                return self.time_function(name);
            }
            "extract" | "position" | "substring" | "overlay" | "trim" if parenthesis => {
                let name = word.to_ident(span);
                self.parser.advance_token();
                return self.keyword_call(name);
            }
            "collation" | "treat" | "normalize" if parenthesis || word.value == "collation" => {
                let what = format!("{} is not supported", word.value.to_uppercase());
                return Err(self.unsupported(&what));
            }
            "double" if self.word_at(1, "precision") => {
                let data_type = self.type_name()?;
                return self.typed_string(data_type);
            }
            value if TYPE_WORDS.contains(&value) && self.begins_type() => {
                let data_type = self.type_name()?;
                return self.typed_string(data_type);
            }
            "setof" => return Err(self.unexpected()),
            _ => {}
        }
        let special = ["coalesce", "greatest", "least", "nullif", "grouping"];
        let allowed = match category {
            Category::Unreserved => true,
            Category::ColumnName => !parenthesis || special.iter().any(|name| self.word_at(0, name)),
            // A function or a type of a literal.
            Category::TypeOrFunction => {
                parenthesis || matches!(self.peek_at(1), Token::SingleQuotedString(_))
            }
            Category::Reserved => false,
        };
        match allowed {
            true => self.name(),
            false => self.refuse_word(parenthesis),
        }
    }

    /// The syntax error of a word that begins no expression: at the word, or behind one that may be a column.
    fn refuse_word(&mut self, parenthesis: bool) -> Parsed<Expr> {
        let column = match self.peek() {
            Token::Word(Word { value, .. }) => keyword::names_column(value),
            _ => false,
        };
        if column && parenthesis {
            self.parser.advance_token();
        }
        Err(self.unexpected())
    }

    /// The type word is followed by a literal, or by what continues the type's name.
    fn begins_type(&self) -> bool {
        match self.peek_at(1) {
            Token::SingleQuotedString(_) | Token::LParen => true,
            Token::Word(word) => matches!(
                (self.word_text(0), word.value.as_str()),
                ("character" | "char" | "nchar" | "bit", "varying")
                    | ("national", "character" | "char")
                    | ("time" | "timestamp", "with" | "without")
            ),
            _ => false,
        }
    }

    fn word_text(&self, ahead: usize) -> &str {
        match self.peek_at(ahead) {
            Token::Word(word) => &word.value,
            _ => "",
        }
    }

    /// A type name.
    pub(crate) fn type_name(&mut self) -> Parsed<DataType> {
        if self.word_at(0, "setof") || !matches!(self.peek(), Token::Word(_)) {
            return Err(self.unexpected());
        }
        let national = self.accept_word("national");
        if national && !self.word_at(0, "char") && !self.word_at(0, "character") {
            return Err(self.unexpected());
        }
        if self.word_at(0, "nchar") {
            self.parser.advance_token();
            return self.nchar();
        }
        if let Token::Word(word) = self.peek()
            && word.quote_style.is_none()
            && matches!(keyword::look_up(&word.value), Some((Category::Reserved, _)))
        {
            return Err(self.unexpected());
        }
        let data_type = self.parser.parse_data_type()?;
        Ok(match data_type {
            // PostgreSQL has no DOUBLE without PRECISION.
            DataType::Double(ExactNumberInfo::None) => {
                DataType::Custom(ObjectName::from(vec![Ident::new("double")]), Vec::new())
            }
            other => other,
        })
    }

    fn nchar(&mut self) -> Parsed<DataType> {
        let varying = self.accept_word("varying");
        let mut length = None;
        if self.parser.consume_token(&Token::LParen) {
            length = Some(CharacterLength::IntegerLength {
                length: self.parser.parse_literal_uint()?,
                unit: None,
            });
            self.parser.expect_token(&Token::RParen)?;
        }
        Ok(match varying {
            true => DataType::CharacterVarying(length),
            false => DataType::Character(length),
        })
    }

    fn case(&mut self) -> Parsed<Expr> {
        let case_token = AttachedToken(self.parser.peek_token_ref().clone());
        self.parser.advance_token();
        let operand = match self.word_at(0, "when") {
            true => None,
            false => Some(Box::new(self.any()?)),
        };
        let mut conditions = Vec::new();
        while self.accept_word("when") {
            let condition = self.any()?;
            self.expect_word("then")?;
            let result = self.any()?;
            conditions.push(CaseWhen { condition, result });
        }
        if conditions.is_empty() {
            return Err(self.unexpected());
        }
        let else_result = match self.accept_word("else") {
            true => Some(Box::new(self.any()?)),
            false => None,
        };
        let end_token = AttachedToken(self.parser.peek_token_ref().clone());
        self.expect_word("end")?;
        Ok(Expr::Case {
            case_token,
            end_token,
            operand,
            conditions,
            else_result,
        })
    }

    fn cast(&mut self) -> Parsed<Expr> {
        self.parser.advance_token();
        self.parser.expect_token(&Token::LParen)?;
        let expr = Box::new(self.any()?);
        self.expect_word("as")?;
        let data_type = self.type_name()?;
        self.parser.expect_token(&Token::RParen)?;
        Ok(Expr::Cast {
            kind: CastKind::Cast,
            expr,
            data_type,
            array: false,
            format: None,
        })
    }

    fn exists(&mut self) -> Parsed<Expr> {
        self.parser.advance_token();
        if !self.opens_query() {
            self.parser.advance_token();
            return Err(self.unexpected());
        }
        match self.subquery()? {
            Expr::Subquery(subquery) => Ok(Expr::Exists {
                subquery,
                negated: false,
            }),
            _ => Err(self.unexpected()),
        }
    }

    fn array(&mut self) -> Parsed<Expr> {
        let token = self.parser.peek_token_ref();
        let span = token.span;
        self.parser.advance_token();
        if *self.peek() == Token::LBracket {
            return self.array_items(true);
        }
        if !self.opens_query() {
            return Err(self.unexpected());
        }
        match self.subquery()? {
            Expr::Subquery(query) => {
                let name = Ident::with_span(span, "array");
                Ok(function(name, FunctionArguments::Subquery(query)))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// `[...]`: expressions, or arrays of one dimension less.
    fn array_items(&mut self, named: bool) -> Parsed<Expr> {
        self.parser.expect_token(&Token::LBracket)?;
        let mut elem = Vec::new();
        if *self.peek() != Token::RBracket {
            loop {
                elem.push(match self.peek() {
                    Token::LBracket => self.nested_array()?,
                    _ => self.any()?,
                });
                if !self.parser.consume_token(&Token::Comma) {
                    break;
                }
            }
        }
        self.parser.expect_token(&Token::RBracket)?;
        Ok(Expr::Array(Array { elem, named }))
    }

    fn nested_array(&mut self) -> Parsed<Expr> {
        let depth = self.dialect.depth.get();
        if depth >= self.dialect.depth_max {
            return Err(sqlparser::parser::ParserError::RecursionLimitExceeded);
        }
        self.dialect.depth.set(depth + 1);
        let result = self.array_items(false);
        self.dialect.depth.set(depth);
        result
    }

    /// `INTERVAL 'x' fields` or `INTERVAL(p) 'x'`; `None` if INTERVAL is a name here.
    fn interval(&mut self) -> Parsed<Option<Expr>> {
        let mut fractional = None;
        match self.peek_at(1) {
            Token::SingleQuotedString(_) => self.parser.advance_token(),
            Token::LParen => {
                self.parser.advance_token();
                self.parser.advance_token();
                fractional = Some(self.parser.parse_literal_uint()?);
                self.parser.expect_token(&Token::RParen)?;
            }
            _ => return Ok(None),
        }
        let value = Box::new(Expr::Value(self.string()?));
        let plain = fractional.is_some();
        let leading_field = if plain { None } else { self.interval_field() };
        let mut last_field = None;
        if leading_field.is_some() && self.accept_word("to") {
            last_field = self.interval_field();
            if last_field.is_none() {
                return Err(self.unexpected());
            }
        }
        let seconds = Some(DateTimeField::Second);
        if (leading_field == seconds || last_field == seconds) && self.parser.consume_token(&Token::LParen) {
            fractional = Some(self.parser.parse_literal_uint()?);
            self.parser.expect_token(&Token::RParen)?;
        }
        if !fields_fit(leading_field.as_ref(), last_field.as_ref()) {
            return Err(self.refused("syntax error in the fields of an interval"));
        }
        Ok(Some(Expr::Interval(Interval {
            value,
            leading_field,
            leading_precision: None,
            last_field,
            fractional_seconds_precision: fractional,
        })))
    }

    fn interval_field(&mut self) -> Option<DateTimeField> {
        [
            ("year", DateTimeField::Year),
            ("month", DateTimeField::Month),
            ("day", DateTimeField::Day),
            ("hour", DateTimeField::Hour),
            ("minute", DateTimeField::Minute),
            ("second", DateTimeField::Second),
        ]
        .into_iter()
        .find_map(|(word, field)| self.accept_word(word).then_some(field))
    }

    /// CURRENT_TIMESTAMP and the like, with a precision or without.
    fn time_function(&mut self, name: Ident) -> Parsed<Expr> {
        if !self.parser.consume_token(&Token::LParen) {
            return Ok(bare_call(name));
        }
        let token = self.parser.peek_token_ref();
        let Token::Number(text, _) = &token.token else {
            return Err(self.unexpected());
        };
        let value = Value::Number(text.clone(), false);
        let span = token.span;
        self.parser.advance_token();
        self.parser.expect_token(&Token::RParen)?;
        let precision = Expr::Value(ValueWithSpan { value, span });
        Ok(function(name, arguments(vec![precision])))
    }
}

fn fields_fit(leading: Option<&DateTimeField>, last: Option<&DateTimeField>) -> bool {
    use DateTimeField::{Day, Hour, Minute, Month, Second, Year};
    matches!(
        (leading, last),
        (_, None)
            | (Some(Year), Some(Month))
            | (Some(Day), Some(Hour | Minute | Second))
            | (Some(Hour), Some(Minute | Second))
            | (Some(Minute), Some(Second))
    )
}

/// A function without parentheses.
fn bare_call(name: Ident) -> Expr {
    function(name, FunctionArguments::None)
}

/// A call of a function by its bare name.
pub(crate) fn function(name: Ident, args: FunctionArguments) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![name]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args,
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Expressions as arguments.
pub(crate) fn arguments(items: Vec<Expr>) -> FunctionArguments {
    FunctionArguments::List(FunctionArgumentList {
        duplicate_treatment: None,
        args: items
            .into_iter()
            .map(|item| FunctionArg::Unnamed(FunctionArgExpr::Expr(item)))
            .collect(),
        clauses: Vec::new(),
    })
}
