//! Output column names as PostgreSQL gives them (parse_target.c, `FigureColname`).
//!
//! DataFusion would call `count(*)` "count(*)" and `1` "Int64(1)", and it refuses two columns of one name. So
//! every select item that is not a plain column gets its PostgreSQL name as an alias before planning, made
//! unique inside its select by a suffix after [`UNIQUE_MARK`], which [`visible_name`] takes off again. So
//! does a plain column beside a `*` that has it too.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    Statement, TableFactor, TrimWhereField, Value, VisitMut, VisitorMut,
};

/// Separates a column's name from the number that makes it unique. Not a character that a name can contain.
pub const UNIQUE_MARK: char = '\u{1}';

/// The name to show for a planned column.
pub fn visible_name(name: &str) -> &str {
    name.split(UNIQUE_MARK).next().unwrap_or(name)
}

/// Names every select item of the statement, subqueries included.
pub fn name_outputs(statement: &mut Statement) {
    let _ = statement.visit(&mut Namer);
}

struct Namer;

impl VisitorMut for Namer {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        name_items(select);
        ControlFlow::Continue(())
    }
}

fn name_items(select: &mut Select) {
    let mut taken: HashSet<String> = HashSet::new();
    let starred = Starred::of(select);
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let name = output_name(expr);
                let plain = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                if starred.contains(expr) {
                    taken.insert(name.clone());
                }
                let unique = make_unique(&mut taken, &name);
                if !plain || unique != name {
                    let expr = expr.clone();
                    *item = SelectItem::ExprWithAlias {
                        expr,
                        alias: Ident::with_quote('"', unique),
                    };
                }
            }
            SelectItem::ExprWithAlias { alias, .. } => {
                let name = folded(alias);
                let unique = make_unique(&mut taken, &name);
                if unique != name {
                    *alias = Ident::with_quote('"', unique);
                }
            }
            _ => {}
        }
    }
}

/// The tables whose columns a `*` of a select puts out.
struct Starred {
    /// Names that columns are qualified with.
    tables: HashSet<String>,
    /// No other table is there.
    are_all: bool,
}

impl Starred {
    fn of(select: &Select) -> Starred {
        let from = select.from.iter();
        let factors = from.flat_map(|from| {
            let joined = from.joins.iter().map(|join| &join.relation);
            std::iter::once(&from.relation).chain(joined)
        });
        let names: Vec<Option<String>> = factors.map(factor_name).collect();
        let mut tables = HashSet::new();
        let mut are_all = false;
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(_) => {
                    are_all = true;
                    tables.extend(names.iter().flatten().cloned());
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table), _) => {
                    are_all |= names.len() == 1;
                    tables.extend(last_part(table));
                }
                _ => {}
            }
        }
        Starred { tables, are_all }
    }

    /// Whether this is a column that is put out already.
    fn contains(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Identifier(_) => self.are_all,
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., table, _] => self.tables.contains(&folded(table)),
                _ => false,
            },
            _ => false,
        }
    }
}

/// What the columns of a table of FROM are qualified with, if it has a name.
pub fn factor_name(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        } => Some(folded(&alias.name)),
        TableFactor::Table { name, .. } => last_part(name),
        _ => None,
    }
}

fn make_unique(taken: &mut HashSet<String>, name: &str) -> String {
    let mut unique = name.to_string();
    let mut suffix = 1;
    while !taken.insert(unique.clone()) {
        suffix += 1;
        unique = format!("{name}{UNIQUE_MARK}{suffix}");
    }
    unique
}

/// An identifier as it is looked up: lower case unless quoted.
pub fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() {
        ident.value.clone()
    } else {
        ident.value.to_lowercase()
    }
}

/// The name that PostgreSQL gives an expression without alias.
pub fn output_name(expr: &Expr) -> String {
    figure(expr).map_or_else(|| "?column?".to_string(), |(name, _)| name)
}

/// The name and whether it is strong: a cast takes its operand's strong name, else the type's.
fn figure(expr: &Expr) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_string(), true));
    match expr {
        Expr::Identifier(ident) => Some((folded(ident), true)),
        Expr::CompoundIdentifier(parts) => parts.last().map(|ident| (folded(ident), true)),
        Expr::Function(function) => last_part(&function.name).map(|name| (name, true)),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figure(inner),
        Expr::CompoundFieldAccess { root, .. } => figure(root),
        Expr::Cast { expr, data_type, .. } => match figure(expr) {
            Some((name, true)) => Some((name, true)),
            _ => Some((type_name(data_type), false)),
        },
        Expr::TypedString(typed) => Some((type_name(&typed.data_type), false)),
        Expr::Interval(_) => Some(("interval".to_string(), false)),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(figure) {
            Some((name, true)) => Some((name, true)),
            _ => Some(("case".to_string(), false)),
        },
        Expr::Subquery(query) => first_item(query),
        Expr::Exists { negated: false, .. } => strong("exists"),
        Expr::Array(_) => strong("array"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Trim { trim_where, .. } => match trim_where {
            Some(TrimWhereField::Leading) => strong("ltrim"),
            Some(TrimWhereField::Trailing) => strong("rtrim"),
            _ => strong("btrim"),
        },
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => Some(("bool".to_string(), false)),
        _ => None,
    }
}

fn first_item(query: &Query) -> Option<(String, bool)> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    match select.projection.first()? {
        SelectItem::UnnamedExpr(expr) => figure(expr),
        SelectItem::ExprWithAlias { alias, .. } => Some((visible_name(&folded(alias)).to_string(), true)),
        _ => None,
    }
}

/// The last part of a possibly qualified name, folded.
pub fn last_part(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(|part| part.as_ident()).map(folded)
}

/// PostgreSQL's internal name of a type, which names the column of a cast.
fn type_name(data_type: &ast::DataType) -> String {
    use ast::DataType as T;
    match data_type {
        T::Custom(name, _) => last_part(name).unwrap_or_else(|| data_type.to_string()),
        T::Interval { .. } => "interval".to_string(),
        T::Regclass => "regclass".to_string(),
        T::JSON => "json".to_string(),
        T::JSONB => "jsonb".to_string(),
        T::Time(..) => "time".to_string(),
        T::Array(_) => "array".to_string(),
        _ => match super::ast_types::sql_type(data_type) {
            Some(ty) => ty.catalog_name().to_string(),
            None => data_type.to_string().to_lowercase(),
        },
    }
}
