//! Names: folding, positions, and PostgreSQL's choice of output column names (`FigureColname`).

use std::borrow::Cow;

use sqlparser::ast::{
    AccessExpr, Expr, Function, FunctionArguments, Ident, ObjectName, Query, SelectItem, SetExpr, Spanned,
    TrimWhereField,
};
use sqlparser::tokenizer::Span;
use weft_types::{SqlError, SqlState};

use crate::types;

/// Maximum length of a name in bytes; longer ones are truncated, as in PostgreSQL.
const NAME_BYTES_MAX: usize = 63;

/// An identifier in the form used for lookup: lower case unless quoted, truncated to the maximum length.
pub(crate) fn fold(ident: &Ident) -> String {
    let name = match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    };
    cut(name)
}

/// Like `fold`, without a copy if the name is already folded.
#[must_use]
pub fn folded(ident: &Ident) -> Cow<'_, str> {
    let is_folded = ident.quote_style.is_some() || !ident.value.bytes().any(|b| b.is_ascii_uppercase());
    match ident.value.is_ascii() && is_folded && ident.value.len() <= NAME_BYTES_MAX {
        true => Cow::Borrowed(&ident.value),
        false => Cow::Owned(fold(ident)),
    }
}

fn cut(mut name: String) -> String {
    if name.len() > NAME_BYTES_MAX {
        let end = (0..=NAME_BYTES_MAX)
            .rev()
            .find(|at| name.is_char_boundary(*at))
            .unwrap_or(0);
        name.truncate(end);
    }
    name
}

/// The folded parts of a name, and the span of its first part.
pub(crate) fn parts(name: &ObjectName) -> (Vec<String>, Span) {
    let idents = name.0.iter().filter_map(|part| part.as_ident());
    let span = idents.clone().next().map_or_else(Span::empty, |ident| ident.span);
    (idents.map(fold).collect(), span)
}

/// The last part of a name, folded.
pub(crate) fn last_part(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(|part| part.as_ident()).map(fold)
}

/// Where in the text something stands, for the position of an error. The span of an expression is found by
/// visiting all of it, and every level of a deep one has a place: it is found only when there is an error.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Unknown,
    Span(Span),
    Expr(&'a Expr),
}

impl Place<'_> {
    pub(crate) fn span(self) -> Span {
        match self {
            Place::Unknown => Span::empty(),
            Place::Span(span) => span,
            Place::Expr(expr) => expr.span(),
        }
    }
}

impl From<Span> for Place<'_> {
    fn from(span: Span) -> Self {
        Place::Span(span)
    }
}

impl<'a> From<&'a Expr> for Place<'a> {
    fn from(expr: &'a Expr) -> Self {
        Place::Expr(expr)
    }
}

/// The 1-based character position at which a span begins in a text.
#[must_use]
pub fn position(text: &str, span: Span) -> Option<u32> {
    let line = usize::try_from(span.start.line).ok()?;
    if line == 0 || (line > 1 && text.is_empty()) {
        return None;
    }
    let before: usize = text
        .split_inclusive('\n')
        .take(line - 1)
        .map(|line| line.chars().count())
        .sum();
    u32::try_from(before as u64 + span.start.column).ok()
}

/// The name that PostgreSQL gives an expression without alias.
#[must_use]
pub fn output_name(expr: &Expr) -> String {
    figure(expr).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
}

/// The name and its strength: a cast uses its operand's name if strong, otherwise the type's.
fn figure(expr: &Expr) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_owned(), true));
    let mut expr = expr;
    loop {
        expr = match expr {
            Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => inner,
            Expr::CompoundFieldAccess { root, access_chain } => match field(access_chain) {
                Some(ident) => return Some((fold(ident), true)),
                None => root,
            },
            _ => break,
        };
    }
    match expr {
        Expr::BinaryOp {
            op: sqlparser::ast::BinaryOperator::Overlaps,
            ..
        } => strong("overlaps"),
        Expr::Identifier(ident) => Some((fold(ident), true)),
        Expr::CompoundIdentifier(parts) => parts.last().map(|ident| (fold(ident), true)),
        Expr::Function(function) => figure_function(function),
        Expr::Cast { expr, data_type, .. } => match figure(expr) {
            Some((name, true)) => Some((name, true)),
            _ => Some((types::catalog_name(data_type), false)),
        },
        Expr::TypedString(typed) => Some((types::catalog_name(&typed.data_type), false)),
        Expr::Interval(_) => Some(("interval".to_owned(), false)),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(figure) {
            Some((name, true)) => Some((name, true)),
            _ => Some(("case".to_owned(), false)),
        },
        Expr::Subquery(query) => first_item(query),
        Expr::Exists { negated: false, .. } => strong("exists"),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => Some(("row".to_owned(), true)),
        Expr::Extract { .. } => strong("extract"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::IsNormalized { .. } => strong("is_normalized"),
        Expr::Trim { trim_where, .. } => match trim_where {
            Some(TrimWhereField::Leading) => strong("ltrim"),
            Some(TrimWhereField::Trailing) => strong("rtrim"),
            _ => strong("btrim"),
        },
        _ => None,
    }
}

fn field(chain: &[AccessExpr]) -> Option<&Ident> {
    chain.iter().rev().find_map(|access| match access {
        AccessExpr::Dot(Expr::Identifier(ident)) => Some(ident),
        _ => None,
    })
}

fn figure_function(function: &Function) -> Option<(String, bool)> {
    let name = last_part(&function.name)?;
    let shown = match (name.as_str(), &function.args) {
        // current_user and the like are called without parentheses; PostgreSQL names their columns as
        // written.
        ("array", FunctionArguments::Subquery(_)) => "array",
        (other, _) => other,
    };
    Some((shown.to_owned(), true))
}

fn first_item(query: &Query) -> Option<(String, bool)> {
    let mut body = query.body.as_ref();
    loop {
        body = match body {
            SetExpr::Query(query) => query.body.as_ref(),
            SetExpr::SetOperation { left, .. } => left,
            _ => break,
        };
    }
    match body {
        SetExpr::Values(_) => Some(("column1".to_owned(), true)),
        SetExpr::Select(select) => match select.projection.first()? {
            // The subquery's column already has a name, possibly `?column?`.
            SelectItem::UnnamedExpr(expr) => Some((output_name(expr), true)),
            SelectItem::ExprWithAlias { alias, .. } => Some((fold(alias), true)),
            _ => None,
        },
        _ => None,
    }
}

/// 42P01
pub(crate) fn undefined_table(name: &str) -> SqlError {
    SqlError::new(
        SqlState::UNDEFINED_TABLE,
        format!("relation \"{name}\" does not exist"),
    )
}

/// 42703, with the name as written.
pub(crate) fn undefined_column(shown: &str) -> SqlError {
    SqlError::new(
        SqlState::UNDEFINED_COLUMN,
        format!("column {shown} does not exist"),
    )
}

/// 42601
pub(crate) fn syntax_error(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}
