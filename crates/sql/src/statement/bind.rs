//! Expressions of point statements and procedures: bound by `weft_binder`, then converted to [`Scalar`]s.
//!
//! `weft_binder` determines the types of an expression, as in any query; [`Scope`] resolves its names to
//! columns of one table, the excluded row of ON CONFLICT, or variables of a procedure. [`super::convert`]
//! turns the typed tree into a [`Scalar`]. It rejects operations that programs do not have with
//! [`Refusal::General`], and the query engine executes the statement.

use std::cell::RefCell;

use sqlparser::ast;
use weft_binder::{ExpressionBinder, Names, Operand, ParameterTypes, folded};
use weft_expression::{ColumnId, Expr};
use weft_store::{Catalog, ColumnDef, TableDef};
use weft_types::{CastContext, SqlError, SqlState, SqlType, TimeZone};

use super::convert::{AggregateCall, Conversion};
use super::general::environment;
use super::params::Params;
use super::scalar::Scalar;

/// Why something is not bound here.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Not expressible as a program: plan it in general form.
    General,
    /// A user error.
    Error(SqlError),
}

impl From<SqlError> for Refusal {
    fn from(error: SqlError) -> Self {
        Refusal::Error(error)
    }
}

pub(super) type BindResult<T> = Result<T, Refusal>;

/// Resolution of names that are not columns: a procedure's variables and parameters.
pub(crate) trait Variables {
    /// `name` or `qualifier.name`.
    fn named(&self, qualifier: Option<&str>, name: &str) -> Option<(Scalar, SqlType)>;
    /// `$n`, from 1.
    fn positional(&self, number: usize) -> Option<(Scalar, SqlType)>;
    /// Whether a constant that cannot be converted is an error only when it is executed, as in PL/pgSQL.
    fn converts_late(&self) -> bool;
}

/// The name scope of an expression.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    /// The only table whose columns may be referenced, and its alias.
    pub(crate) table: Option<(&'a TableDef, &'a str)>,
    /// Within ON CONFLICT DO UPDATE: `excluded.column` is defined.
    pub(crate) has_excluded: bool,
    /// The variables, inside a procedure.
    pub(crate) variables: Option<&'a dyn Variables>,
    /// The values of variables where they were referenced.
    values: RefCell<Vec<Scalar>>,
}

/// What a column id of a bound expression refers to.
pub(super) enum Named {
    /// Column of the row.
    Column(u16),
    /// Column of the excluded row.
    Excluded(usize),
    /// A value, by its index in the scope.
    Value(usize),
    /// Something computed by the binder, such as an aggregate's value.
    Computed,
}

// Ids assigned by the binder count from 0.
const KIND_SHIFT: u32 = 28;
const COLUMN: u32 = 1 << KIND_SHIFT;
const EXCLUDED: u32 = 2 << KIND_SHIFT;
const VALUE: u32 = 3 << KIND_SHIFT;

/// Decodes a column id.
pub(super) fn named(id: ColumnId) -> Named {
    let number = id.0 & (COLUMN - 1);
    match id.0 - number {
        COLUMN => Named::Column(number as u16),
        EXCLUDED => Named::Excluded(number as usize),
        VALUE => Named::Value(number as usize),
        _ => Named::Computed,
    }
}

impl<'a> Scope<'a> {
    /// The columns of a table, and the variables of the enclosing procedure.
    pub(crate) fn of_table(
        table: &'a TableDef,
        alias: &'a str,
        variables: Option<&'a dyn Variables>,
    ) -> Scope<'a> {
        Scope {
            table: Some((table, alias)),
            ..Scope::of_variables(variables)
        }
    }

    /// No columns.
    pub(crate) fn of_variables(variables: Option<&'a dyn Variables>) -> Scope<'a> {
        Scope {
            variables,
            ..Scope::default()
        }
    }

    /// A value as an expression.
    fn value(&self, scalar: Scalar, ty: SqlType) -> Expr {
        let mut values = self.values.borrow_mut();
        values.push(scalar);
        Expr::column(ColumnId(VALUE | (values.len() as u32 - 1)), ty)
    }

    /// The value that an id of this scope refers to.
    pub(super) fn value_of(&self, place: usize) -> Option<Scalar> {
        self.values.borrow().get(place).cloned()
    }

    /// The variable that a name refers to. A name that is also a column is ambiguous, as in PL/pgSQL.
    fn variable(&self, qualifier: Option<&str>, name: &str) -> Result<Option<Expr>, SqlError> {
        let of_row = |(_, alias): (&TableDef, &str)| qualifier.is_some_and(|table| table == alias);
        let Some(variables) = self.variables.filter(|_| !self.table.is_some_and(of_row)) else {
            return Ok(None);
        };
        let Some((scalar, ty)) = variables.named(qualifier, name) else {
            return Ok(None);
        };
        let is_column = |(table, _): (&TableDef, &str)| table.column_index(name).is_some();
        if qualifier.is_none() && self.table.is_some_and(is_column) {
            let message = format!("column reference \"{name}\" is ambiguous");
            return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message)
                .detail("It could refer to either a PL/pgSQL variable or a table column."));
        }
        Ok(Some(self.value(scalar, ty)))
    }
}

fn column(table: &TableDef, name: &str, kind: u32) -> Option<Expr> {
    let number = table.column_index(name)?;
    let ty = table.columns.get(number)?.ty;
    Some(Expr::column(ColumnId(kind | number as u32), ty))
}

impl Names for Scope<'_> {
    fn named(&self, parts: &[ast::Ident]) -> Result<Option<Expr>, SqlError> {
        let (qualifier, name) = match parts {
            [name] => (None, folded(name)),
            [qualifier, name] => (Some(folded(qualifier)), folded(name)),
            _ => return Err(SqlError::unsupported("names with a schema")),
        };
        let (qualifier, name) = (qualifier.as_deref(), name.as_ref());
        if let Some(variable) = self.variable(qualifier, name)? {
            return Ok(Some(variable));
        }
        match (self.table, qualifier) {
            (None, None) => Ok(None),
            (Some((table, alias)), None) => match column(table, name, COLUMN) {
                None if name == alias || name == "oid" => {
                    Err(SqlError::unsupported("rows as values are not supported here"))
                }
                found => Ok(found),
            },
            (Some((table, alias)), Some(qualifier)) if qualifier == alias => Ok(column(table, name, COLUMN)),
            (Some((table, _)), Some("excluded")) if self.has_excluded => Ok(column(table, name, EXCLUDED)),
            (_, Some(qualifier)) => Err(SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{qualifier}\""),
            )),
        }
    }

    fn positional(&self, number: &str) -> Option<Result<Expr, SqlError>> {
        let variables = self.variables?;
        let found = number
            .parse()
            .ok()
            .and_then(|number| variables.positional(number));
        Some(match found {
            Some((scalar, ty)) => Ok(self.value(scalar, ty)),
            None => Err(SqlError::new(
                SqlState::UNDEFINED_PARAMETER,
                format!("there is no parameter ${number}"),
            )),
        })
    }

    fn converts_late(&self) -> bool {
        self.variables.is_some_and(Variables::converts_late)
    }
}

/// How the binder's errors are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errors {
    /// They are raised.
    Raise,
    /// The statement is planned in general form, which reports them.
    General,
}

/// Binds the expressions of one scope, one after another.
pub(crate) struct Binder<'a> {
    binder: ExpressionBinder<'a>,
    catalog: &'a Catalog,
    scope: &'a Scope<'a>,
    errors: Errors,
    before: usize,
    zone: TimeZone,
    /// Aggregate calls in what was bound; `None` where aggregates are not allowed.
    pub(crate) aggregates: Option<Vec<AggregateCall>>,
}

/// Binds with a binder for a scope; inferred parameter types are kept in `params`.
pub(crate) fn with_binder<T>(
    catalog: &Catalog,
    text: &str,
    scope: &Scope<'_>,
    params: &mut Params,
    errors: Errors,
    bind: impl FnOnce(&mut Binder<'_>) -> BindResult<T>,
) -> BindResult<T> {
    let types = std::mem::take(&mut params.types);
    let mut binder = Binder {
        binder: ExpressionBinder::new(environment(catalog, &[], text), scope, types),
        catalog,
        scope,
        errors,
        before: params.before,
        zone: params.zone,
        aggregates: None,
    };
    let bound = bind(&mut binder);
    params.types = binder.into_parameters();
    bound
}

impl Binder<'_> {
    fn into_parameters(self) -> ParameterTypes {
        self.binder.into_parameters()
    }

    fn handled<T>(&self, bound: Result<T, SqlError>) -> BindResult<T> {
        bound.map_err(|error| match self.errors {
            Errors::Raise if error.state != SqlState::FEATURE_NOT_SUPPORTED => Refusal::Error(error),
            _ => Refusal::General,
        })
    }

    /// Binds an expression.
    pub(crate) fn bind(&mut self, expr: &ast::Expr) -> BindResult<Operand> {
        let bound = self.binder.bind(expr);
        self.handled(bound)
    }

    /// An already computed value.
    pub(crate) fn known(&self, scalar: Scalar, ty: SqlType) -> Operand {
        Operand::typed(self.scope.value(scalar, ty))
    }

    /// The operand unconverted: a constant without a type is text.
    pub(crate) fn raw(&mut self, operand: &Operand) -> BindResult<Scalar> {
        self.scalar(&operand.expr)
    }

    /// The expression as in a select list, where unknown becomes text.
    pub(crate) fn settle(&mut self, operand: Operand) -> BindResult<(Scalar, SqlType)> {
        let settled = self.binder.settle(operand);
        let settled = self.handled(settled)?;
        Ok((self.scalar(&settled)?, settled.ty()))
    }

    /// The expression as a condition.
    pub(crate) fn condition(&mut self, operand: Operand, place: &str) -> BindResult<Scalar> {
        let condition = self.condition_over_rows(operand, place)?;
        self.scalar(&condition)
    }

    /// The same, before conversion to a scalar, for [`Binder::scalar_over`].
    pub(crate) fn condition_over_rows(&mut self, operand: Operand, place: &str) -> BindResult<Expr> {
        let condition = self.binder.condition(operand, place);
        self.handled(condition)
    }

    /// The expression coerced to a type, as on assignment.
    pub(crate) fn coerce(&mut self, operand: Operand, to: SqlType) -> BindResult<Scalar> {
        let coerced = self.binder.coerce(operand, to, CastContext::Assignment);
        let coerced = self.handled(coerced)?;
        self.scalar(&coerced)
    }

    /// The expression assigned to a column.
    pub(crate) fn assign(&mut self, operand: Operand, column: &ColumnDef) -> BindResult<Scalar> {
        let assigned = self.assign_over_rows(operand, column)?;
        self.scalar(&assigned)
    }

    /// The same, before conversion to a scalar, for [`Binder::scalar_over`].
    pub(crate) fn assign_over_rows(&mut self, operand: Operand, column: &ColumnDef) -> BindResult<Expr> {
        let assigned = self.binder.assign(operand, &column.name, column.ty);
        self.handled(assigned)
    }

    /// `left = right`
    pub(crate) fn equal(&mut self, left: Operand, right: Operand) -> BindResult<Scalar> {
        let equal = self.binder.equal(left, right);
        let equal = self.handled(equal)?;
        self.scalar(&equal)
    }

    fn scalar(&mut self, expr: &Expr) -> BindResult<Scalar> {
        self.scalar_over(expr, None)
    }

    /// Converts an expression, with the values of an excluded row in place of its columns.
    pub(crate) fn scalar_over(&mut self, expr: &Expr, excluded: Option<&[Scalar]>) -> BindResult<Scalar> {
        let mut conversion = Conversion {
            catalog: self.catalog,
            zone: self.zone,
            scope: self.scope,
            before: self.before,
            excluded,
            calls: self.binder.aggregates(),
            aggregates: self.aggregates.as_mut(),
            nodes: 0,
        };
        conversion.convert(expr)
    }
}

/// The scalar of an expression bound elsewhere in this crate: a default.
pub(crate) fn scalar_of(catalog: &Catalog, expr: &Expr) -> BindResult<Scalar> {
    let mut conversion = Conversion {
        catalog,
        zone: TimeZone::UTC,
        scope: &Scope::default(),
        before: 0,
        excluded: None,
        calls: &[],
        aggregates: None,
        nodes: 0,
    };
    conversion.convert(expr)
}
