//! Predicates, split into conjuncts so that joins find their keys and scans their ranges.
//!
//! A conjunct that can fail, as in `a <> 0 AND 1 / a > 2`, must not be evaluated for rows that an earlier
//! conjunct rejects. It is combined into one opaque function with the earlier conjuncts that name no other
//! relations. DataFusion pushes them down together, and [`weft_expression`] evaluates it only where the
//! earlier ones are true. As in PostgreSQL, the order of conjuncts over different relations is unspecified.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr as PlanExpr, ExprSchemable, Filter, LogicalPlan, Operator};
use weft_expression::{ColumnId, CompareOp, Expr, Node, Op};
use weft_types::{SqlError, SqlType, Value};

use super::expression::all_of;
use super::pairs::in_pairs;
use super::walk::{is_fallible, is_volatile};
use super::{Lowering, arrow_of, column};
use crate::arrays::{array_of_values, needs_order_key};
use crate::errors::sql_error;
use crate::evaluate::BatchExpr;

/// ORs whose branches have more conjuncts than this are not analysed for common conjuncts.
const COMMON_MAX: usize = 256;

/// Lists whose values are known only when the plan runs become one comparison per item up to this length;
/// longer ones use the values of this execution.
const SPELT_OUT_MAX: usize = 16;

/// Conditions of ANDs and ORs with more nodes become one opaque function, from which scans cannot derive
/// ranges.
const SHOWN_NODES_MAX: usize = 4096;

/// At most so many conjuncts over the same relations are analysed, equalities first; the others become one
/// opaque function. DataFusion compares every part of a filter with every other.
const SHOWN_CONJUNCTS_MAX: usize = 256;

/// The same for all conjuncts of a condition.
const SHOWN_ALL_MAX: usize = 2_048;

/// Maximum nesting of ANDs and ORs that is analysed.
const SHOWN_DEPTH_MAX: usize = 8;

impl Lowering<'_> {
    /// A plan, filtered by all conjuncts.
    pub(crate) fn filtered(
        &mut self,
        plan: LogicalPlan,
        conjuncts: Vec<Expr>,
    ) -> Result<LogicalPlan, SqlError> {
        match self.condition(conjuncts, &plan)? {
            None => Ok(plan),
            Some(condition) => {
                let filter = Filter::try_new(condition, std::sync::Arc::new(plan)).map_err(sql_error)?;
                Ok(LogicalPlan::Filter(filter))
            }
        }
    }

    /// The conjunction of `conjuncts` over the columns of `plan`; `None` if there are none. Cheap ones are
    /// first, otherwise their order is kept, like PostgreSQL's `order_qual_clauses`.
    pub(crate) fn condition(
        &mut self,
        conjuncts: Vec<Expr>,
        plan: &LogicalPlan,
    ) -> Result<Option<PlanExpr>, SqlError> {
        let all = conjuncts;
        let mut conjuncts = Vec::with_capacity(all.len());
        for conjunct in all {
            self.add_conjunct(conjunct, &mut conjuncts)?;
        }
        conjuncts.sort_by_key(cost);
        let mut parts = Vec::with_capacity(conjuncts.len());
        let makers: Vec<BTreeSet<u32>> = conjuncts
            .iter()
            .map(|conjunct| self.makers_of(conjunct))
            .collect();
        // The last conjunct that can fail, for every set of relations.
        let mut guarded: Vec<(&BTreeSet<u32>, usize)> = Vec::new();
        // How many are shown, and those beyond, for every set of relations.
        let not_shown = not_shown(&conjuncts, &makers);
        let mut others: BTreeMap<&BTreeSet<u32>, Vec<Expr>> = BTreeMap::new();
        for (at, conjunct) in conjuncts.iter().enumerate() {
            self.decided_once(conjunct)?;
            let set = &makers[at];
            if !may_fail(conjunct, SHOWN_DEPTH_MAX) {
                match not_shown.contains(&at) {
                    true => others.entry(set).or_default().push(conjunct.clone()),
                    false => parts.push(self.conjunct(conjunct, plan)?),
                }
            } else if let Some(entry) = guarded.iter_mut().find(|(known, _)| *known == set) {
                entry.1 = at;
            } else {
                guarded.push((set, at));
            }
        }
        for others in others.into_values().filter_map(all_of) {
            parts.push(self.opaque(&others, plan)?);
        }
        for (set, last) in guarded {
            let together: Vec<Expr> = (0..=last)
                .filter(|at| makers[*at].is_subset(set))
                .filter_map(|at| conjuncts.get(at).cloned())
                .collect();
            match <[Expr; 1]>::try_from(together) {
                Ok([alone]) => parts.push(self.conjunct(&alone, plan)?),
                Err(together) => {
                    if let Some(whole) = all_of(together) {
                        parts.push(self.opaque(&whole, plan)?);
                    }
                }
            }
        }
        Ok(parts.into_iter().reduce(PlanExpr::and))
    }

    /// Evaluates a condition without columns once, before any row is read: its error is raised even if there
    /// are no rows.
    fn decided_once(&mut self, conjunct: &Expr) -> Result<(), SqlError> {
        if conjunct.columns().next().is_some() || is_volatile(conjunct) || !is_fallible(conjunct) {
            return Ok(());
        }
        self.only_now |= self.waits(conjunct);
        BatchExpr::new(conjunct, &[], &self.context)?
            .evaluate(&[], 1)
            .map(drop)
    }

    fn makers_of(&self, expr: &Expr) -> BTreeSet<u32> {
        expr.columns()
            .filter_map(|id| self.makers.get(&id).copied())
            .collect()
    }

    /// Translates one conjunct, to a native DataFusion expression if that has the same semantics.
    fn conjunct(&mut self, expr: &Expr, plan: &LogicalPlan) -> Result<PlanExpr, SqlError> {
        if let Some(native) = self.native(expr, plan)? {
            return Ok(native);
        }
        if let Op::Compare(CompareOp::Eq) = expr.root().op
            && let [left, right] = &expr.clone().into_arguments()[..]
        {
            let (of_left, of_right) = (self.makers_of(left), self.makers_of(right));
            if !of_left.is_empty() && !of_right.is_empty() && of_left.is_disjoint(&of_right) {
                return self.key_pair(left, right, plan);
            }
        }
        self.scalar(expr, plan)
    }

    /// An equality of expressions over different relations: a join key.
    fn key_pair(&mut self, left: &Expr, right: &Expr, plan: &LogicalPlan) -> Result<PlanExpr, SqlError> {
        let ty = left.ty();
        let left = self.scalar(left, plan)?;
        let right = self.scalar(right, plan)?;
        let (left, right) = self.comparable(left, plan, right, plan, ty)?;
        Ok(binary(left, Operator::Eq, right))
    }

    fn native(&mut self, expr: &Expr, plan: &LogicalPlan) -> Result<Option<PlanExpr>, SqlError> {
        self.native_within(expr, plan, SHOWN_DEPTH_MAX)
    }

    fn native_within(
        &mut self,
        expr: &Expr,
        plan: &LogicalPlan,
        depth: usize,
    ) -> Result<Option<PlanExpr>, SqlError> {
        if let Some(id) = expr.as_column() {
            return Ok(Some(column(id)));
        }
        let root = expr.root();
        match &root.op {
            Op::Compare(op) => {
                let arguments = expr.clone().into_arguments();
                let [left, right] = &arguments[..] else {
                    return Ok(None);
                };
                self.comparison(*op, left, right, plan)
            }
            Op::IsNull => match expr.clone().into_arguments().first().and_then(Expr::as_column) {
                Some(id) => Ok(Some(PlanExpr::IsNull(Box::new(column(id))))),
                None => Ok(None),
            },
            Op::Not => {
                let arguments = expr.clone().into_arguments();
                let Some(inner) = arguments.first() else {
                    return Ok(None);
                };
                if let Some(id) = inner.as_column() {
                    return Ok(Some(PlanExpr::Not(Box::new(column(id)))));
                }
                match (
                    &inner.root().op,
                    inner.clone().into_arguments().first().and_then(Expr::as_column),
                ) {
                    (Op::IsNull, Some(id)) => Ok(Some(PlanExpr::IsNotNull(Box::new(column(id))))),
                    _ => Ok(None),
                }
            }
            Op::InList { negated } => self.in_list(expr, *negated, plan),
            Op::And => self.joined_natives(expr, Operator::And, plan, depth),
            Op::Or => self.joined_natives(expr, Operator::Or, plan, depth),
            Op::CompareRows(op) => self.rows_compared(*op, expr, plan),
            _ => Ok(None),
        }
    }

    /// AND or OR of conditions if all of them have a native form.
    fn joined_natives(
        &mut self,
        expr: &Expr,
        operator: Operator,
        plan: &LogicalPlan,
        depth: usize,
    ) -> Result<Option<PlanExpr>, SqlError> {
        if depth == 0 || expr.nodes().len() > SHOWN_NODES_MAX {
            return Ok(None);
        }
        let mut parts = Vec::new();
        for argument in expr.clone().into_arguments() {
            match self.native_within(&argument, plan, depth - 1)? {
                Some(part) => parts.push(part),
                None => return Ok(None),
            }
        }
        in_pairs(parts, |left, right| Ok(binary(left, operator, right)))
    }

    /// `(a, b) < (c, d)` as `a < c OR a = c AND b < d`, which is NULL where PostgreSQL's comparison is.
    fn rows_compared(
        &mut self,
        op: CompareOp,
        expr: &Expr,
        plan: &LogicalPlan,
    ) -> Result<Option<PlanExpr>, SqlError> {
        let sides = expr.clone().into_arguments();
        let width = sides.len() / 2;
        if width == 0 || width > SHOWN_DEPTH_MAX {
            return Ok(None);
        }
        let strict = match op {
            CompareOp::Le => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Gt,
            other => other,
        };
        let mut whole: Option<PlanExpr> = None;
        for (at, (left, right)) in sides.iter().zip(sides.iter().skip(width)).enumerate().rev() {
            let op = if at + 1 == width { op } else { strict };
            let Some(before) = self.comparison(op, left, right, plan)? else {
                return Ok(None);
            };
            whole = Some(match whole {
                None => before,
                Some(rest) => match self.comparison(CompareOp::Eq, left, right, plan)? {
                    Some(equal) => before.or(equal.and(rest)),
                    None => return Ok(None),
                },
            });
        }
        Ok(whole)
    }

    fn comparison(
        &mut self,
        op: CompareOp,
        left: &Expr,
        right: &Expr,
        plan: &LogicalPlan,
    ) -> Result<Option<PlanExpr>, SqlError> {
        let operator = operator_of(op);
        match (seen_through(left), seen_through(right)) {
            (Some(a), Some(b)) => {
                let (left_type, right_type) = (arrow_of(plan.schema(), a)?, arrow_of(plan.schema(), b)?);
                let same = left_type == right_type && !needs_order_key(&left.ty(), &left_type);
                Ok(same.then(|| binary(column(a), operator, column(b))))
            }
            (Some(a), None) => {
                let literal = self.literal_for(right, right.ty(), &arrow_of(plan.schema(), a)?, plan)?;
                Ok(known(literal).map(|literal| binary(column(a), operator, literal)))
            }
            (None, Some(b)) => {
                let literal = self.literal_for(left, left.ty(), &arrow_of(plan.schema(), b)?, plan)?;
                // The column first: DataFusion drops bounds of one column that it sees from both sides.
                let mirrored = operator_of(op.mirrored());
                Ok(known(literal).map(|literal| binary(column(b), mirrored, literal)))
            }
            (None, None) => Ok(None),
        }
    }

    /// A constant as a literal of a column's Arrow type, if the type can represent it and compares it
    /// correctly.
    fn literal_for(
        &mut self,
        expr: &Expr,
        ty: SqlType,
        arrow: &DataType,
        plan: &LogicalPlan,
    ) -> Result<Option<PlanExpr>, SqlError> {
        if needs_order_key(&ty, arrow) {
            return Ok(None);
        }
        if self.waits(expr) {
            if expr.columns().next().is_some() || is_volatile(expr) {
                return Ok(None);
            }
            // Its type is known, but not whether its value fits another type.
            let batch = BatchExpr::new(expr, &[], &self.context)?;
            if batch.data_type() == *arrow {
                return self.opaque(expr, plan).map(Some);
            }
            self.only_now = true;
        }
        self.present_literal_for(expr, ty, arrow)
    }

    /// Like [`Lowering::literal_for`], using the constant's value in this execution.
    fn present_literal_for(
        &self,
        expr: &Expr,
        ty: SqlType,
        arrow: &DataType,
    ) -> Result<Option<PlanExpr>, SqlError> {
        if needs_order_key(&ty, arrow) {
            return Ok(None);
        }
        let Some(scalar) = self.present_literal(expr)? else {
            return Ok(None);
        };
        if scalar.is_null() {
            let null = ScalarValue::try_from(arrow).map_err(sql_error)?;
            return Ok(Some(PlanExpr::Literal(null, None)));
        }
        if scalar.data_type() == *arrow {
            return Ok(Some(PlanExpr::Literal(scalar, None)));
        }
        if let Some(number) = integer(&scalar) {
            return Ok(narrowed(number, arrow));
        }
        let array = scalar.to_array().map_err(sql_error)?;
        let value = crate::arrays::ValueColumn::new(&array, &ty)?.value(0);
        exact_literal(&value, &ty, arrow)
    }

    fn in_list(
        &mut self,
        expr: &Expr,
        negated: bool,
        plan: &LogicalPlan,
    ) -> Result<Option<PlanExpr>, SqlError> {
        let mut arguments = expr.clone().into_arguments().into_iter();
        let Some((value, id)) = arguments
            .next()
            .and_then(|value| value.as_column().map(|id| (value, id)))
        else {
            return Ok(None);
        };
        let arrow = arrow_of(plan.schema(), id)?;
        let mut list = Vec::new();
        let items: Vec<Expr> = arguments.collect();
        // DataFusion treats expressions without columns as constants at planning time.
        let waits = items.iter().any(|item| self.waits(item));
        let spelt_out = waits && items.len() <= SPELT_OUT_MAX;
        self.only_now |= waits && !spelt_out;
        for item in items {
            let literal = if spelt_out {
                self.literal_for(&item, value.ty(), &arrow, plan)?
            } else {
                self.present_literal_for(&item, value.ty(), &arrow)?
            };
            match literal {
                Some(literal) => list.push(literal),
                None => return Ok(None),
            }
        }
        if spelt_out {
            let equal = list
                .into_iter()
                .map(|item| binary(column(id), Operator::Eq, item));
            let any = equal.reduce(PlanExpr::or);
            return Ok(any.map(|any| {
                if negated {
                    PlanExpr::Not(Box::new(any))
                } else {
                    any
                }
            }));
        }
        Ok(Some(PlanExpr::InList(InList::new(
            Box::new(column(id)),
            list,
            negated,
        ))))
    }
}

/// A literal that is not NULL. DataFusion keeps only the narrowest of several bounds of one column and would
/// drop `a > NULL` next to `a > 1`.
fn known(literal: Option<PlanExpr>) -> Option<PlanExpr> {
    literal.filter(|literal| !matches!(literal, PlanExpr::Literal(value, _) if value.is_null()))
}

/// Whether a condition can fail for a row. Parts without columns have already been computed: [`crate::fold`].
fn may_fail(expr: &Expr, depth: usize) -> bool {
    if !is_fallible(expr) {
        return false;
    }
    if expr.columns().next().is_none() {
        return is_volatile(expr);
    }
    let passes_on = matches!(
        expr.root().op,
        Op::Compare(_) | Op::CompareRows(_) | Op::InList { .. } | Op::And | Op::Or | Op::Not
    );
    if !passes_on || depth == 0 || expr.nodes().len() > SHOWN_NODES_MAX {
        return true;
    }
    let arguments = expr.clone().into_arguments();
    arguments.iter().any(|argument| may_fail(argument, depth - 1))
}

/// The column that an expression reads, ignoring conversions that change no value: to a wider integer, or
/// between text types that compare alike.
fn seen_through(expr: &Expr) -> Option<ColumnId> {
    let [
        Node {
            op: Op::Column(id), ..
        },
        Node {
            op: Op::Cast { from, .. },
            ty,
            ..
        },
    ] = expr.nodes()
    else {
        return expr.as_column();
    };
    let width = |ty: &SqlType| match ty {
        SqlType::Int2 => Some(2),
        SqlType::Int4 => Some(4),
        SqlType::Int8 => Some(8),
        _ => None,
    };
    let widens = width(from).zip(width(ty)).is_some_and(|(from, to)| from < to);
    let relabels = matches!(from, SqlType::Text | SqlType::Varchar(_))
        && matches!(ty, SqlType::Text | SqlType::Varchar(None));
    (widens || relabels).then_some(*id)
}

fn integer(scalar: &ScalarValue) -> Option<i64> {
    match scalar {
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) => value.map(i64::from),
        ScalarValue::Int64(value) => *value,
        _ => None,
    }
}

/// An integer constant in a column's type; `None` if it is out of range.
fn narrowed(number: i64, arrow: &DataType) -> Option<PlanExpr> {
    let scalar = match arrow {
        DataType::Int16 => ScalarValue::Int16(Some(i16::try_from(number).ok()?)),
        DataType::Int32 => ScalarValue::Int32(Some(i32::try_from(number).ok()?)),
        DataType::Int64 => ScalarValue::Int64(Some(number)),
        _ => return None,
    };
    Some(PlanExpr::Literal(scalar, None))
}

/// The number of functions and operators evaluated per row, which is PostgreSQL's cost of a condition.
fn cost(expr: &Expr) -> usize {
    let calls = |node: &&Node| {
        matches!(
            node.op,
            Op::Call(_) | Op::Cast { .. } | Op::Compare(_) | Op::IsDistinct | Op::CompareRows(_)
        )
    };
    expr.nodes().iter().filter(calls).count()
}

/// A numeric constant as a decimal of a column's scale, if it has no more digits.
fn exact_literal(value: &Value, ty: &SqlType, arrow: &DataType) -> Result<Option<PlanExpr>, SqlError> {
    let (Value::Numeric(number), DataType::Decimal128(precision, scale)) = (value, arrow) else {
        return Ok(None);
    };
    let scale_digits = u16::from(scale.unsigned_abs());
    let Ok(mantissa) = number.to_i128(scale_digits) else {
        return Ok(None);
    };
    let again = weft_types::Numeric::from_i128(mantissa, scale_digits);
    let Some(again) = again.filter(|again| again.compare(number) == std::cmp::Ordering::Equal) else {
        return Ok(None);
    };
    let limit = 10_i128.checked_pow(u32::from(*precision));
    if limit.is_none_or(|limit| mantissa.unsigned_abs() >= limit.unsigned_abs()) {
        return Ok(None);
    }
    let array = array_of_values(&[Value::Numeric(again)], ty, arrow)?;
    let literal = ScalarValue::try_from_array(&array, 0).map_err(sql_error)?;
    Ok(Some(PlanExpr::Literal(literal, None)))
}

/// The conjuncts that cannot fail and are beyond [`SHOWN_CONJUNCTS_MAX`] of those over the same relations, or
/// beyond [`SHOWN_ALL_MAX`].
fn not_shown(conjuncts: &[Expr], makers: &[BTreeSet<u32>]) -> BTreeSet<usize> {
    if conjuncts.len() <= SHOWN_CONJUNCTS_MAX {
        return BTreeSet::new();
    }
    let mut all: Vec<(usize, &Expr)> = conjuncts.iter().enumerate().collect();
    all.retain(|(_, conjunct)| !may_fail(conjunct, SHOWN_DEPTH_MAX));
    // Keys of joins and of indexes are equalities.
    all.sort_by_key(|(_, conjunct)| conjunct.root().op != Op::Compare(CompareOp::Eq));
    let mut counts: BTreeMap<Option<&BTreeSet<u32>>, usize> = BTreeMap::new();
    let mut shown = 0;
    all.retain(|(at, _)| {
        let count = counts.entry(makers.get(*at)).or_default();
        let is_shown = *count < SHOWN_CONJUNCTS_MAX && shown < SHOWN_ALL_MAX;
        *count += usize::from(is_shown);
        shown += usize::from(is_shown);
        !is_shown
    });
    all.into_iter().map(|(at, _)| at).collect()
}

pub(crate) fn binary(left: PlanExpr, op: Operator, right: PlanExpr) -> PlanExpr {
    PlanExpr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn operator_of(op: CompareOp) -> Operator {
    match op {
        CompareOp::Eq => Operator::Eq,
        CompareOp::Ne => Operator::NotEq,
        CompareOp::Lt => Operator::Lt,
        CompareOp::Le => Operator::LtEq,
        CompareOp::Gt => Operator::Gt,
        CompareOp::Ge => Operator::GtEq,
    }
}

/// Whether a plan's column may be NULL.
pub(crate) fn may_be_null(expr: &PlanExpr, plan: &LogicalPlan) -> bool {
    expr.nullable(plan.schema()).unwrap_or(true)
}

/// The conjuncts of a predicate, in order; the conjuncts that all branches of an OR share are put before the
/// OR.
pub(crate) fn conjuncts(predicate: &Expr) -> Vec<Expr> {
    let mut found = Vec::new();
    let mut stack = vec![predicate.clone()];
    while let Some(expr) = stack.pop() {
        match expr.root().op {
            Op::And => stack.extend(expr.into_arguments().into_iter().rev()),
            Op::Or => {
                found.extend(common(&expr));
                found.push(expr);
            }
            _ => found.push(expr),
        }
    }
    found
}

/// The infallible conjuncts that all branches of an OR share.
fn common(or: &Expr) -> Vec<Expr> {
    let branches: Vec<Vec<Expr>> = or
        .clone()
        .into_arguments()
        .into_iter()
        .map(|branch| match branch.root().op {
            Op::And => branch.into_arguments(),
            _ => vec![branch],
        })
        .collect();
    if branches.iter().map(Vec::len).sum::<usize>() > COMMON_MAX {
        return Vec::new();
    }
    let Some((first, rest)) = branches.split_first() else {
        return Vec::new();
    };
    first
        .iter()
        .filter(|part| !is_fallible(part) && rest.iter().all(|branch| branch.contains(part)))
        .cloned()
        .collect()
}
