//! Casts. A cast to a type that Weft stores becomes a call of `__cast`, which converts as PostgreSQL does;
//! the catalog's own types become look-ups:
//!
//! - `'t'::regclass` is `__regclass_in('t')`, an oid; `column::regclass` is `__regclass_out(column)`, a name;
//! - `::regtype`, `::regnamespace`, `::regproc`, `::regrole` of a column are names likewise;
//! - `::oid` is an unsigned integer and takes a `__regclass_out` below it off again.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};
use weft_types::SqlType;

use super::super::ast_types::sql_type;
use super::super::naming::last_part;
use super::{Rewriter, call, null, string};

impl Rewriter<'_> {
    /// Replaces a cast or a typed literal.
    pub(super) fn cast(&mut self, expr: &mut Expr) {
        let (inner, data_type) = match expr {
            Expr::Cast {
                expr: inner,
                data_type,
                ..
            } => (std::mem::replace(inner.as_mut(), null()), data_type.clone()),
            Expr::TypedString(typed) => (Expr::Value(typed.value.clone()), typed.data_type.clone()),
            _ => return,
        };
        if let Some(replacement) = catalog_cast(&inner, &data_type) {
            *expr = replacement;
            return;
        }
        let Some(ty) = sql_type(&data_type) else {
            restore(expr, inner);
            return;
        };
        if let Some(position) = placeholder(&inner)
            && self.declared.get(position).is_none_or(Option::is_none)
        {
            self.findings.parameter_types.entry(position).or_insert(ty);
            *expr = inner;
            return;
        }
        if matches!(ty, SqlType::Text) && is_call(&inner, "__regclass_in") {
            *expr = call("__regclass_out", vec![inner]);
            return;
        }
        *expr = call(
            "__cast",
            vec![inner, string(&format!("{}:{}", ty.oid(), ty.typmod()))],
        );
    }
}

fn restore(expr: &mut Expr, inner: Expr) {
    if let Expr::Cast { expr, .. } = expr {
        **expr = inner;
    }
}

/// The 0-based number of a `$n`.
pub(super) fn placeholder(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Placeholder(text) = &value.value else {
        return None;
    };
    text.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

fn catalog_cast(inner: &Expr, data_type: &DataType) -> Option<Expr> {
    let name = match data_type {
        DataType::Regclass => "regclass".to_string(),
        DataType::Custom(name, _) => last_part(name)?,
        _ => return None,
    };
    let literal = matches!(inner, Expr::Value(value)
        if matches!(value.value, Value::SingleQuotedString(_) | Value::Placeholder(_)));
    let argument = || vec![inner.clone()];
    Some(match (name.as_str(), literal) {
        ("regclass", true) => call("__regclass_in", argument()),
        ("regclass", false) => call("__regclass_out", argument()),
        ("regtype", true) => call("__regtype_in", argument()),
        ("regtype", false) => call("format_type", vec![inner.clone(), null()]),
        ("regnamespace", true) => call("__regnamespace_in", argument()),
        ("regnamespace", false) => call("__regnamespace_out", argument()),
        ("regrole", false) => call("pg_get_userbyid", argument()),
        ("regproc" | "regprocedure", false) => call("__regproc_out", argument()),
        ("oid" | "xid" | "cid", _) => match looked_up(inner) {
            Some(oid) => oid,
            None => call("__oid", argument()),
        },
        _ => return None,
    })
}

/// The oid inside a name look-up that a further cast to oid undoes.
fn looked_up(expr: &Expr) -> Option<Expr> {
    if is_call(expr, "__regclass_in") || is_call(expr, "__regtype_in") {
        return Some(expr.clone());
    }
    if !is_call(expr, "__regclass_out") {
        return None;
    }
    let Expr::Function(Function {
        args: FunctionArguments::List(list),
        ..
    }) = expr
    else {
        return None;
    };
    match list.args.first() {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))) => Some(inner.clone()),
        _ => None,
    }
}

fn is_call(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Function(function) if last_part(&function.name).as_deref() == Some(name))
}
