//! Sets of grouping columns, which GROUPING SETS, ROLLUP and CUBE make, and how many there may be.

use std::collections::HashSet;

use sqlparser::ast::{
    Expr as AstExpr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart,
};
use weft_types::{SqlError, SqlState, interrupt};

/// Maximum number of grouping sets, as in PostgreSQL.
pub(crate) const SETS_MAX: usize = 4096;
/// Maximum number of columns that all grouping sets have together, where a set has a column for each that
/// some set groups by, and for each aggregate. Each set becomes an aggregation with as many columns.
pub(crate) const SET_COLUMNS_MAX: usize = 1 << 17;

/// Whether an element of GROUP BY is of grouping sets.
pub(crate) fn is_sets(expr: &AstExpr) -> bool {
    matches!(
        expr,
        AstExpr::GroupingSets(_) | AstExpr::Rollup(_) | AstExpr::Cube(_)
    ) || matches!(expr, AstExpr::Tuple(exprs) if exprs.is_empty())
}

/// CUBE and ROLLUP within GROUPING SETS, which the parser reads as calls of functions.
pub(crate) fn sets_called(call: &Function) -> Option<AstExpr> {
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else {
        return None;
    };
    let make: fn(Vec<Vec<AstExpr>>) -> AstExpr = match name.quote_style {
        None if name.value.eq_ignore_ascii_case("cube") => AstExpr::Cube,
        None if name.value.eq_ignore_ascii_case("rollup") => AstExpr::Rollup,
        _ => return None,
    };
    let FunctionArguments::List(listed) = &call.args else {
        return None;
    };
    let list = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(AstExpr::Tuple(exprs))) => Some(exprs.clone()),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(vec![expr.clone()]),
        _ => None,
    };
    let lists: Option<Vec<_>> = listed.args.iter().map(list).collect();
    lists.filter(|lists| !lists.is_empty()).map(make)
}

/// Grouping sets: positions among the groups.
#[derive(Default)]
pub(crate) struct Sets {
    pub(crate) sets: Vec<Vec<usize>>,
    /// The columns of all sets together.
    columns: usize,
}

impl Sets {
    /// One set.
    pub(crate) fn of(set: Vec<usize>) -> Sets {
        Sets {
            columns: set.len(),
            sets: vec![set],
        }
    }

    pub(crate) fn add(&mut self, set: Vec<usize>) -> Result<(), SqlError> {
        interrupt::check()?;
        if self.sets.len() == SETS_MAX {
            return Err(too_many_sets());
        }
        self.columns += set.len();
        refuse_many_columns(self.columns)?;
        self.sets.push(set);
        Ok(())
    }

    pub(crate) fn extend(&mut self, more: Sets) -> Result<(), SqlError> {
        more.sets.into_iter().try_for_each(|set| self.add(set))
    }

    /// Every set of one with every set of the other.
    pub(crate) fn times(self, more: Sets) -> Result<Sets, SqlError> {
        if self.sets.len().saturating_mul(more.sets.len()) > SETS_MAX {
            return Err(too_many_sets());
        }
        let mut product = Sets::default();
        for set in &self.sets {
            for other in &more.sets {
                let mut both = joined([set, other].into_iter());
                both.sort_unstable();
                product.add(both)?;
            }
        }
        Ok(product)
    }
}

pub(crate) fn refuse_many_columns(columns: usize) -> Result<(), SqlError> {
    match columns <= SET_COLUMNS_MAX {
        true => Ok(()),
        false => Err(SqlError::new(
            SqlState::STATEMENT_TOO_COMPLEX,
            format!("grouping sets have too many columns together (maximum {SET_COLUMNS_MAX})"),
        )),
    }
}

/// The union of the groups of several lists, each where it comes first.
pub(crate) fn joined<'l>(lists: impl Iterator<Item = &'l Vec<usize>>) -> Vec<usize> {
    let mut known = HashSet::new();
    lists
        .flatten()
        .copied()
        .filter(|place| known.insert(*place))
        .collect()
}

pub(crate) fn too_many_sets() -> SqlError {
    SqlError::new(
        SqlState::STATEMENT_TOO_COMPLEX,
        format!("too many grouping sets present (maximum {SETS_MAX})"),
    )
}
