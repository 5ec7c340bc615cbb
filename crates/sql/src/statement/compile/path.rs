//! Choosing how to find rows: which conjuncts of a WHERE clause name a key or a range of an index.
//!
//! A conjunct serves an index column if it compares that column with something that depends on no row. A
//! column that was widened for the comparison (`integer = bigint`) serves too: the other side is converted to
//! the column's type, exactly for equality (a value that the type lacks finds nothing), to the nearest value
//! for a range, in which case the conjunct is checked again on each row.

use std::sync::Arc;

use weft_store::{IndexDef, TableDef};
use weft_types::SqlType;

use super::super::scalar::{CompareOp, NoSource, Scalar};
use super::point::{Path, RangeEnd};

/// An ORDER BY that an index can satisfy: plain columns, all in one direction, NULLs where that direction has
/// them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    pub(crate) columns: Vec<usize>,
    pub(crate) descending: bool,
}

/// A path and the conjuncts that are left to check.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) path: Path,
    pub(crate) residual: Vec<Scalar>,
}

/// A conjunct that compares a column with a value.
struct Sarg {
    conjunct: usize,
    column: usize,
    op: CompareOp,
    value: Scalar,
    /// The column was widened from this type.
    widened: Option<SqlType>,
}

/// The operands of nested ANDs.
pub(crate) fn conjuncts(condition: Option<Scalar>) -> Vec<Scalar> {
    let mut list = Vec::new();
    if let Some(condition) = condition {
        flatten(condition, &mut list);
    }
    list
}

fn flatten(scalar: Scalar, list: &mut Vec<Scalar>) {
    match scalar {
        Scalar::And(left, right) => {
            flatten(*left, list);
            flatten(*right, list);
        }
        other => list.push(other),
    }
}

fn column_of(scalar: &Scalar) -> Option<(usize, Option<SqlType>)> {
    match scalar {
        Scalar::Column(column) => Some((usize::from(*column), None)),
        Scalar::Cast(inner, from, SqlType::Int4 | SqlType::Int8)
            if matches!(from, SqlType::Int2 | SqlType::Int4) =>
        {
            match **inner {
                Scalar::Column(column) => Some((usize::from(column), Some(*from))),
                _ => None,
            }
        }
        _ => None,
    }
}

fn sarg(conjunct: usize, scalar: &Scalar) -> Option<Sarg> {
    let Scalar::Compare(op, left, right) = scalar else {
        return None;
    };
    let usable = |value: &Scalar| !value.has_column() && !value.is_volatile();
    if let Some((column, widened)) = column_of(left)
        && usable(right)
    {
        return Some(Sarg {
            conjunct,
            column,
            op: *op,
            value: (**right).clone(),
            widened,
        });
    }
    if let Some((column, widened)) = column_of(right)
        && usable(left)
    {
        return Some(Sarg {
            conjunct,
            column,
            op: op.mirrored(),
            value: (**left).clone(),
            widened,
        });
    }
    None
}

/// A scalar of constants as one constant, where that raises no error.
pub(crate) fn folded(scalar: Scalar) -> Scalar {
    if matches!(scalar, Scalar::Constant(_)) {
        return scalar;
    }
    let mut constant = true;
    scalar.visit(&mut |node| {
        constant &= !matches!(
            node,
            Scalar::Input(_)
                | Scalar::Column(_)
                | Scalar::Variable(_)
                | Scalar::Aggregate(_)
                | Scalar::Session(_)
                | Scalar::Setting(_)
                | Scalar::NextValue(_)
                | Scalar::CurrentValue(_)
                | Scalar::RandomUuid
                | Scalar::Random
        );
    });
    match constant {
        true => scalar
            .evaluate(&[], &[], &mut NoSource)
            .map_or(scalar, Scalar::Constant),
        false => scalar,
    }
}

impl Sarg {
    fn exact(&self) -> Scalar {
        folded(match self.widened {
            Some(ty) => Scalar::ExactKey(Box::new(self.value.clone()), ty),
            None => self.value.clone(),
        })
    }

    fn range_end(&self) -> RangeEnd {
        let value = folded(match self.widened {
            Some(ty) => Scalar::ClampKey(Box::new(self.value.clone()), ty),
            None => self.value.clone(),
        });
        // A clamped bound is compared inclusively; the conjunct is checked again.
        let exclusive = self.widened.is_none() && matches!(self.op, CompareOp::Lt | CompareOp::Gt);
        RangeEnd { value, exclusive }
    }
}

/// Chooses a path. `order` must be satisfied by it, if given; `None` when no index serves.
pub(crate) fn choose(table: &TableDef, list: Vec<Scalar>, order: Option<&Order>) -> Option<Choice> {
    let sargs: Vec<Sarg> = list
        .iter()
        .enumerate()
        .filter_map(|(conjunct, scalar)| sarg(conjunct, scalar))
        .collect();
    let mut best: Option<(usize, Path, Vec<usize>)> = None;
    for index in &table.indexes {
        let candidate = key_path(index, &sargs).or_else(|| range_path(table, index, &sargs, order));
        if let Some((score, path, used)) = candidate
            && best.as_ref().is_none_or(|(best, ..)| score > *best)
        {
            best = Some((score, path, used));
        }
    }
    let (_, path, used) = best?;
    let residual = list
        .into_iter()
        .enumerate()
        .filter(|(number, _)| !used.contains(number))
        .map(|(_, scalar)| scalar)
        .collect();
    Some(Choice { path, residual })
}

/// Chooses the primary key alone: what UPDATE and DELETE need.
pub(crate) fn choose_primary(table: &TableDef, list: Vec<Scalar>) -> Option<Choice> {
    let index = table.primary_index()?;
    let sargs: Vec<Sarg> = list
        .iter()
        .enumerate()
        .filter_map(|(conjunct, scalar)| sarg(conjunct, scalar))
        .collect();
    let (_, path, used) = key_path(index, &sargs)?;
    let residual = list
        .into_iter()
        .enumerate()
        .filter(|(number, _)| !used.contains(number))
        .map(|(_, scalar)| scalar)
        .collect();
    Some(Choice { path, residual })
}

/// Chooses the primary key or a range of it: what UPDATE and DELETE in procedures need.
pub(crate) fn choose_primary_range(table: &TableDef, list: Vec<Scalar>) -> Option<Choice> {
    let index = table.primary_index()?;
    let sargs: Vec<Sarg> = list
        .iter()
        .enumerate()
        .filter_map(|(conjunct, scalar)| sarg(conjunct, scalar))
        .collect();
    let (_, path, used) = key_path(index, &sargs).or_else(|| range_path(table, index, &sargs, None))?;
    let residual = list
        .into_iter()
        .enumerate()
        .filter(|(number, _)| !used.contains(number))
        .map(|(_, scalar)| scalar)
        .collect();
    Some(Choice { path, residual })
}

type Candidate = (usize, Path, Vec<usize>);

fn equality(sargs: &[Sarg], column: usize) -> Option<&Sarg> {
    sargs
        .iter()
        .find(|sarg| sarg.column == column && sarg.op == CompareOp::Eq)
}

fn key_path(index: &Arc<IndexDef>, sargs: &[Sarg]) -> Option<Candidate> {
    if !index.unique {
        return None;
    }
    let mut values = Vec::with_capacity(index.columns.len());
    let mut used = Vec::with_capacity(index.columns.len());
    for &column in &index.columns {
        let sarg = equality(sargs, column)?;
        values.push(sarg.exact());
        used.push(sarg.conjunct);
    }
    let score = 10_000 + usize::from(index.primary);
    Some((
        score,
        Path::Key {
            index: Arc::clone(index),
            values,
        },
        used,
    ))
}

fn range_path(
    table: &TableDef,
    index: &Arc<IndexDef>,
    sargs: &[Sarg],
    order: Option<&Order>,
) -> Option<Candidate> {
    if !index.method.is_ordered() {
        return None;
    }
    let mut prefix = Vec::new();
    let mut used = Vec::new();
    for &column in &index.columns {
        let Some(sarg) = equality(sargs, column) else {
            break;
        };
        prefix.push(sarg.exact());
        used.push(sarg.conjunct);
    }
    let equal = prefix.len();
    let (mut low, mut high) = (None, None);
    if let Some(&column) = index.columns.get(equal) {
        let nullable = table.columns.get(column).is_none_or(|column| !column.not_null);
        let find = |wanted: [CompareOp; 2]| {
            sargs
                .iter()
                .find(|sarg| sarg.column == column && wanted.contains(&sarg.op))
        };
        let (from, to) = (
            find([CompareOp::Gt, CompareOp::Ge]),
            find([CompareOp::Lt, CompareOp::Le]),
        );
        low = from.map(Sarg::range_end);
        high = to.map(Sarg::range_end);
        // NULLs lie after all values: a range without upper bound runs into them, so its conjunct stays.
        if let Some(from) = from
            && from.widened.is_none()
            && (!nullable || high.is_some())
        {
            used.push(from.conjunct);
        }
        if let Some(to) = to
            && to.widened.is_none()
        {
            used.push(to.conjunct);
        }
    }
    let mut reverse = false;
    if let Some(order) = order {
        let mut rest = index.columns.iter().skip(equal);
        for column in &order.columns {
            let bound_by_equality = index.columns.iter().take(equal).any(|bound| bound == column);
            if !bound_by_equality && rest.next() != Some(column) {
                return None;
            }
        }
        reverse = order.descending;
    } else if equal == 0 && low.is_none() && high.is_none() && !index.primary {
        return None;
    }
    let ends = usize::from(low.is_some()) + usize::from(high.is_some());
    let score = equal * 10 + ends * 3 + usize::from(index.primary);
    Some((
        score,
        Path::Range {
            index: Arc::clone(index),
            prefix,
            low,
            high,
            reverse,
        },
        used,
    ))
}
