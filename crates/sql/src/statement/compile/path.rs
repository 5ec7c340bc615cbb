//! Access path selection: which conjuncts of a WHERE clause determine a key or a range of an index.
//!
//! A conjunct is usable for an index column if it compares that column with something that depends on no
//! row. This includes a column that was widened for the comparison (`integer = bigint`): the other operand
//! is converted to the column's type, exactly for equality (a value outside the type matches nothing), to
//! the nearest value for a range, in which case the conjunct is also checked on each row.
//!
//! An OR of keys (`id IN (1, 2)`, `(a, b) IN ((1, 2), (3, 4))`) is a list of keys, each searched for once.
//! A row comparison (`(a, b) > (1, 2)`, as in keyset pagination) is a bound of a range over several
//! columns.

use std::sync::Arc;

use weft_store::{IndexDef, TableDef};
use weft_types::{SqlType, Value};

use super::super::scalar::{CompareOp, NoSource, Scalar};
use super::point::{Path, RangeEnd};

/// Maximum keys of one statement that is compiled to a program.
const KEYS_MAX: usize = 32;

/// An ORDER BY that an index can satisfy: plain columns, all in one direction, with that direction's
/// default position of NULLs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    pub(crate) columns: Vec<usize>,
    pub(crate) descending: bool,
}

/// A path and the residual conjuncts.
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
    /// The type from which the column was widened.
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

/// Folds a scalar of constants to one constant, unless that raises an error.
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
        RangeEnd {
            values: vec![value],
            exclusive,
        }
    }
}

/// Chooses a path. It must satisfy `order`, if given; `None` if no index is usable. A list of keys is
/// considered only if `several`, and has no order.
pub(crate) fn choose(
    table: &TableDef,
    list: Vec<Scalar>,
    order: Option<&Order>,
    several: bool,
) -> Option<Choice> {
    let sargs = sargs(&list);
    let rows = row_bounds(&list);
    let mut best: Option<Candidate> = None;
    for index in &table.indexes {
        let candidate = key_path(index, &sargs)
            .or_else(|| (several && order.is_none()).then(|| keys_path(index, &list, &sargs))?)
            .or_else(|| range_path(table, index, &sargs, &rows, order));
        if let Some(candidate) = candidate
            && best.as_ref().is_none_or(|best| candidate.0 > best.0)
        {
            best = Some(candidate);
        }
    }
    Some(chosen(best?, list))
}

/// Chooses the primary key only, as UPDATE and DELETE require.
pub(crate) fn choose_primary(table: &TableDef, list: Vec<Scalar>) -> Option<Choice> {
    let index = table.primary_index()?;
    let sargs = sargs(&list);
    let candidate = key_path(index, &sargs).or_else(|| keys_path(index, &list, &sargs))?;
    Some(chosen(candidate, list))
}

/// Chooses the primary key or a range of it, as UPDATE and DELETE in procedures require.
pub(crate) fn choose_primary_range(table: &TableDef, list: Vec<Scalar>) -> Option<Choice> {
    let index = table.primary_index()?;
    let sargs = sargs(&list);
    let candidate = key_path(index, &sargs).or_else(|| range_path(table, index, &sargs, &[], None))?;
    Some(chosen(candidate, list))
}

fn sargs(list: &[Scalar]) -> Vec<Sarg> {
    list.iter()
        .enumerate()
        .filter_map(|(conjunct, scalar)| sarg(conjunct, scalar))
        .collect()
}

/// The path with its residual conjuncts.
fn chosen((_, path, used): Candidate, list: Vec<Scalar>) -> Choice {
    let residual = list
        .into_iter()
        .enumerate()
        .filter(|(number, _)| !used.contains(number))
        .map(|(_, scalar)| scalar)
        .collect();
    Choice { path, residual }
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

/// A list of keys of a unique index: an OR whose branches specify exactly the columns that no other
/// conjunct specifies.
fn keys_path(index: &Arc<IndexDef>, list: &[Scalar], sargs: &[Sarg]) -> Option<Candidate> {
    if !index.unique {
        return None;
    }
    list.iter()
        .enumerate()
        .find_map(|(number, scalar)| keys_of(index, number, scalar, sargs))
}

fn keys_of(index: &Arc<IndexDef>, number: usize, or: &Scalar, sargs: &[Sarg]) -> Option<Candidate> {
    let branches = flattened(or, |scalar| match scalar {
        Scalar::Or(left, right) => Some([left, right]),
        _ => None,
    });
    if branches.len() < 2 || branches.len() > KEYS_MAX {
        return None;
    }
    let mut keys: Vec<Vec<Scalar>> = Vec::with_capacity(branches.len());
    let mut used = vec![number];
    for branch in branches {
        let parts = flattened(branch, |scalar| match scalar {
            Scalar::And(left, right) => Some([left, right]),
            _ => None,
        });
        let own: Vec<Sarg> = parts.iter().filter_map(|part| sarg(number, part)).collect();
        let mut taken = 0;
        let mut key = Vec::with_capacity(index.columns.len());
        for &column in &index.columns {
            match equality(&own, column) {
                Some(sarg) => {
                    taken += 1;
                    key.push(sarg.exact());
                }
                None => {
                    let sarg = equality(sargs, column)?;
                    used.push(sarg.conjunct);
                    key.push(sarg.exact());
                }
            }
        }
        // A condition that is not part of the key, or a column that only some branches specify.
        if taken < parts.len() || own.len() < parts.len() || taken == 0 {
            return None;
        }
        keys.push(key);
    }
    let others = used.len() - 1;
    if others % keys.len() != 0 || keys.iter().flatten().any(Scalar::is_dynamic) {
        return None;
    }
    let path = Path::Keys {
        index: Arc::clone(index),
        keys: each_once(keys),
    };
    Some((9_000 + usize::from(index.primary), path, used))
}

/// Removes duplicate keys: one that equals an earlier one becomes NULL, which matches nothing.
fn each_once(keys: Vec<Vec<Scalar>>) -> Vec<Vec<Scalar>> {
    let mut once: Vec<Vec<Scalar>> = Vec::with_capacity(keys.len());
    for (number, key) in keys.iter().enumerate() {
        let Some(earlier) = keys.get(..number) else {
            continue;
        };
        let is_constant = |key: &[Scalar]| key.iter().all(|part| matches!(part, Scalar::Constant(_)));
        if is_constant(key) && earlier.contains(key) {
            continue;
        }
        let mut arms = Vec::with_capacity(number);
        for before in earlier {
            if is_constant(key) && is_constant(before) {
                continue;
            }
            let equal = key
                .iter()
                .zip(before)
                .filter(|(part, before)| part != before)
                .map(|(part, before)| {
                    Scalar::Compare(CompareOp::Eq, Box::new(part.clone()), Box::new(before.clone()))
                });
            let all = equal.reduce(|left, right| Scalar::And(Box::new(left), Box::new(right)));
            let same = all.unwrap_or(Scalar::Constant(Value::Bool(true)));
            arms.push((same, Scalar::Constant(Value::Null)));
        }
        let mut key = key.clone();
        if let Some(first) = key.first_mut()
            && !arms.is_empty()
        {
            *first = Scalar::Case {
                arms,
                otherwise: Box::new(first.clone()),
            };
        }
        once.push(key);
    }
    once
}

/// The operands of a chain of one operator, in order.
fn flattened<'s>(
    scalar: &'s Scalar,
    sides: impl Fn(&'s Scalar) -> Option<[&'s Box<Scalar>; 2]>,
) -> Vec<&'s Scalar> {
    let mut open = vec![scalar];
    let mut parts = Vec::new();
    while let Some(next) = open.pop() {
        match sides(next) {
            Some([left, right]) => open.extend([right.as_ref(), left.as_ref()]),
            None => parts.push(next),
        }
    }
    parts
}

/// A conjunct that compares several columns, as a row, with values.
struct RowBound {
    conjunct: usize,
    columns: Vec<usize>,
    values: Vec<Scalar>,
    /// Whether the columns are above the values.
    above: bool,
    exclusive: bool,
}

fn row_bounds(list: &[Scalar]) -> Vec<RowBound> {
    list.iter()
        .enumerate()
        .filter_map(|(conjunct, scalar)| row_bound(conjunct, scalar))
        .collect()
}

/// Recognizes `a > x OR (a = x AND b > y)`, the meaning of `(a, b) > (x, y)`.
fn row_bound(conjunct: usize, scalar: &Scalar) -> Option<RowBound> {
    let (mut columns, mut values, mut rest) = (Vec::new(), Vec::new(), scalar);
    let mut above = None;
    while let Scalar::Or(first, then) = rest {
        let Scalar::And(equal, further) = then.as_ref() else {
            return None;
        };
        let (first, equal) = (sarg(conjunct, first)?, sarg(conjunct, equal)?);
        let fits = equal.op == CompareOp::Eq
            && first.column == equal.column
            && first.value == equal.value
            && first.widened.is_none()
            && matches!(first.op, CompareOp::Gt | CompareOp::Lt)
            && above.is_none_or(|above| above == (first.op == CompareOp::Gt));
        if !fits {
            return None;
        }
        above = Some(first.op == CompareOp::Gt);
        columns.push(first.column);
        values.push(first.value);
        rest = further;
    }
    let last = sarg(conjunct, rest)?;
    let above = above?;
    let exclusive = match (last.op, above) {
        (CompareOp::Gt, true) | (CompareOp::Lt, false) => true,
        (CompareOp::Ge, true) | (CompareOp::Le, false) => false,
        _ => return None,
    };
    if last.widened.is_some() {
        return None;
    }
    columns.push(last.column);
    values.push(last.value);
    Some(RowBound {
        conjunct,
        columns,
        values,
        above,
        exclusive,
    })
}

impl RowBound {
    /// The bound of a range of an index whose columns after a prefix are `following`.
    ///
    /// A NULL after the first value makes the comparison NULL where the earlier columns are equal. It is
    /// replaced by the greatest value for an exclusive lower bound, by the least for an exclusive upper
    /// one.
    fn range_end(&self, table: &TableDef, following: &[usize]) -> Option<RangeEnd> {
        if !following.starts_with(&self.columns) {
            return None;
        }
        let mut values = Vec::with_capacity(self.values.len());
        for (number, (column, value)) in self.columns.iter().zip(&self.values).enumerate() {
            let value = folded(value.clone());
            let never_null = matches!(&value, Scalar::Constant(value) if !value.is_null());
            if number == 0 || never_null {
                values.push(value);
                continue;
            }
            let (least, greatest) = extremes(&table.columns.get(*column)?.ty)?;
            let instead = if self.above { greatest } else { least };
            if !self.exclusive {
                return None;
            }
            values.push(folded(Scalar::Coalesce(vec![value, Scalar::Constant(instead)])));
        }
        Some(RangeEnd {
            values,
            exclusive: self.exclusive,
        })
    }
}

/// The least and the greatest value of a type.
fn extremes(ty: &SqlType) -> Option<(Value, Value)> {
    Some(match ty {
        SqlType::Int2 => (Value::Int2(i16::MIN), Value::Int2(i16::MAX)),
        SqlType::Int4 => (Value::Int4(i32::MIN), Value::Int4(i32::MAX)),
        SqlType::Int8 => (Value::Int8(i64::MIN), Value::Int8(i64::MAX)),
        SqlType::Uuid => (Value::Uuid([0; 16]), Value::Uuid([u8::MAX; 16])),
        _ => return None,
    })
}

fn range_path(
    table: &TableDef,
    index: &Arc<IndexDef>,
    sargs: &[Sarg],
    rows: &[RowBound],
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
        // NULLs sort last: a range without an upper bound includes them, so its conjunct stays.
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
    let following = index.columns.get(equal..).unwrap_or_default();
    for row in rows {
        let end = if row.above { &mut low } else { &mut high };
        if end.is_some() {
            continue;
        }
        *end = row.range_end(table, following);
        // NULLs sort last: keys above the values may include some.
        let no_nulls = row
            .columns
            .iter()
            .all(|column| table.columns.get(*column).is_some_and(|column| column.not_null));
        if end.is_some() && (no_nulls || !row.above) {
            used.push(row.conjunct);
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
