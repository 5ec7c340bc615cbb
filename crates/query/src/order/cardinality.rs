//! Estimates how many rows a relation has, and which columns are keys.
//!
//! There is one statistic of values: how many a column has, if they are few and the column is copied beside
//! the rows ([`crate::ReadSource::few_values`]). The rest follows from the row counts of tables and their
//! declared keys: a key has as many distinct values as the table has rows. For a part of a key few distinct
//! values are assumed rather than many, because a join on only that part multiplies rows: j of n key columns
//! have as many values as the row count to the power of (j/n)². Any other column is assumed to have the
//! square root of the row count.

use weft_binder::relation::{Relation, Scan, SharedBody};
use weft_expression::{ColumnId, CompareOp, Expr, Op};

use crate::lower::Lowering;
use crate::lower::predicate::conjuncts;
use crate::lower::walk::columns_made;

/// Assumed rows of a relation without an estimate.
const UNKNOWN_ROWS: f64 = 1000.0;

/// Assumed rows that a set-returning function returns.
const FUNCTION_ROWS: f64 = 10.0;

/// How deep an estimate descends into a relation; deeper relations have no estimate, so that estimates at
/// every level of a query remain linear.
const DEPTH_MAX: usize = 12;

/// Assumed selectivities of predicates.
const RANGE_SHARE: f64 = 1.0 / 3.0;
const PATTERN_SHARE: f64 = 0.1;
const NULL_SHARE: f64 = 0.05;
const UNKNOWN_SHARE: f64 = 1.0 / 3.0;

/// Cost of reading a row that is then discarded, relative to one that is returned.
const SCAN_COST: f64 = 0.5;

/// The estimate of a relation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimate {
    /// Rows before predicates.
    base: f64,
    /// The selectivity of predicates, except equalities with constants.
    share: f64,
    /// Columns that are equal to a constant.
    fixed: Vec<ColumnId>,
    /// Columns that are unique together.
    keys: Vec<Vec<ColumnId>>,
    /// Columns of ordered indexes.
    indexes: Vec<Vec<ColumnId>>,
    /// Upper bounds for the distinct values of columns.
    limits: Vec<(ColumnId, f64)>,
}

impl Estimate {
    /// `rows` rows in which each of `keys` is unique.
    pub(crate) fn of(rows: f64, keys: Vec<Vec<ColumnId>>) -> Estimate {
        Estimate {
            base: rows.max(1.0),
            share: 1.0,
            keys,
            ..Estimate::default()
        }
    }

    /// Rows that satisfy the predicates.
    pub(crate) fn rows(&self) -> f64 {
        (self.fixed_base() * self.share).max(1.0)
    }

    /// The cost of reading them.
    pub(crate) fn cost(&self) -> f64 {
        if self.led(&[]) {
            return self.fixed_base();
        }
        self.base * SCAN_COST + self.rows()
    }

    fn fixed_base(&self) -> f64 {
        (self.base / self.distinct(&self.fixed)).max(1.0)
    }

    /// Distinct combinations of `columns` among the rows with the given fixed columns.
    pub(crate) fn values(&self, columns: &[ColumnId]) -> f64 {
        let mut all = self.fixed.clone();
        all.extend(columns);
        (self.distinct(&all) / self.distinct(&self.fixed)).max(1.0)
    }

    /// The maximum number of values of a column, if it is a key on its own.
    pub(crate) fn key_values(&self, column: ColumnId) -> Option<f64> {
        self.keys.iter().any(|key| *key == [column]).then_some(self.base)
    }

    /// Limits the distinct values of a column.
    pub(crate) fn limit(&mut self, column: ColumnId, values: f64) {
        match self.limits.iter_mut().find(|(limited, _)| *limited == column) {
            Some((_, least)) => *least = least.min(values),
            None => self.limits.push((column, values)),
        }
    }

    /// Rows that an index reads to find one value of each of `columns`; `None` if no index applies.
    pub(crate) fn looked_up(&self, columns: &[ColumnId]) -> Option<f64> {
        self.led(columns)
            .then(|| (self.fixed_base() / self.values(columns)).sqrt().max(1.0))
    }

    /// Whether some index has a prefix of columns that are fixed or among `columns`, including one of
    /// `columns` unless that is empty.
    fn led(&self, columns: &[ColumnId]) -> bool {
        self.indexes.iter().any(|index| {
            let known = |id: &&ColumnId| self.fixed.contains(id) || columns.contains(id);
            let mut leading = index.iter().take_while(known).peekable();
            leading.peek().is_some() && (columns.is_empty() || leading.any(|id| columns.contains(id)))
        })
    }

    /// Distinct combinations of columns.
    fn distinct(&self, columns: &[ColumnId]) -> f64 {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns.dedup();
        let limit = |id: &ColumnId| {
            let mut limits = self.limits.iter();
            limits
                .find(|(limited, _)| limited == id)
                .map(|(_, values)| *values)
        };
        let (limited, others): (Vec<_>, Vec<_>) = columns.iter().copied().partition(|id| limit(id).is_some());
        let most: f64 = limited.iter().filter_map(limit).product();
        let of_others = if limited.is_empty() {
            f64::MAX
        } else {
            self.assumed(&others)
        };
        self.assumed(&columns).min(most * of_others).max(1.0)
    }

    /// Distinct combinations of columns, as far as only the row count and keys tell.
    fn assumed(&self, columns: &[ColumnId]) -> f64 {
        let (mut exponent, mut covered) = (0.0_f64, &[][..]);
        for key in &self.keys {
            let known = key.iter().filter(|id| columns.contains(id)).count();
            let part = (known as f64 / key.len().max(1) as f64).powi(2);
            if part > exponent || key.is_empty() {
                (exponent, covered) = (part, key);
            }
        }
        for _ in columns.iter().filter(|id| !covered.contains(id)) {
            exponent = (1.0 + exponent) / 2.0;
        }
        self.base.powf(exponent)
    }

    /// Applies a predicate that names only its columns.
    pub(crate) fn restrict(&mut self, conjunct: &Expr) {
        match fixed_column(conjunct) {
            Some(id) => self.fixed.push(id),
            None => self.share *= self.share_of(conjunct),
        }
    }

    /// The selectivity of a predicate.
    fn share_of(&self, predicate: &Expr) -> f64 {
        let mut shares: Vec<f64> = Vec::new();
        for (at, node) in predicate.nodes().iter().enumerate() {
            let first = shares.len().saturating_sub(node.arity as usize);
            let parts: Vec<f64> = shares.drain(first..).collect();
            let all = || parts.iter().product::<f64>();
            shares.push(match &node.op {
                Op::And => all(),
                Op::Or => 1.0 - parts.iter().map(|part| 1.0 - part).product::<f64>(),
                Op::Not => 1.0 - all(),
                Op::IsNull => NULL_SHARE,
                Op::Compare(CompareOp::Eq) => 1.0 / self.values(&column_of(predicate, at)),
                Op::Compare(CompareOp::Ne) => 1.0 - 1.0 / self.values(&column_of(predicate, at)),
                Op::Compare(_) | Op::CompareRows(_) => RANGE_SHARE,
                Op::InList { negated } => {
                    let items = f64::from(node.arity.saturating_sub(1));
                    let share = (items / self.values(&column_of(predicate, at))).min(0.5);
                    if *negated { 1.0 - share } else { share }
                }
                Op::Call(entry) if entry.name.contains("like") || entry.name.contains('~') => PATTERN_SHARE,
                _ => UNKNOWN_SHARE,
            });
        }
        shares.pop().unwrap_or(UNKNOWN_SHARE)
    }
}

/// The first argument of a node that is a column.
fn column_of(expr: &Expr, at: usize) -> Vec<ColumnId> {
    let roots = expr.argument_roots(at).into_iter();
    let columns = roots.filter_map(|root| match expr.nodes().get(root).map(|node| &node.op) {
        Some(Op::Column(id)) => Some(*id),
        _ => None,
    });
    columns.take(1).collect()
}

/// The column that a predicate equates to a constant.
pub(crate) fn fixed_column(conjunct: &Expr) -> Option<ColumnId> {
    if conjunct.root().op != Op::Compare(CompareOp::Eq) {
        return None;
    }
    let mut columns = conjunct.columns();
    let id = columns.next()?;
    let alone = columns.next().is_none();
    let roots = conjunct.argument_roots(conjunct.nodes().len() - 1);
    let mut ops = roots.into_iter().filter_map(|root| conjunct.nodes().get(root));
    (alone && ops.any(|node| node.op == Op::Column(id))).then_some(id)
}

impl Lowering<'_> {
    /// The estimate of a relation.
    pub(crate) fn estimate(&self, relation: &Relation) -> Estimate {
        self.estimate_in(relation, DEPTH_MAX)
    }

    fn estimate_in(&self, relation: &Relation, depth: usize) -> Estimate {
        let Some(depth) = depth.checked_sub(1) else {
            return Estimate::of(UNKNOWN_ROWS, Vec::new());
        };
        match relation {
            Relation::Scan(scan) => self.estimate_of_scan(scan),
            Relation::One => Estimate::of(1.0, vec![Vec::new()]),
            Relation::Values { rows, .. } => Estimate::of(rows.len() as f64, Vec::new()),
            Relation::Given { step, .. } => {
                let rows = self.rows_given(*step).map_or(1, <[_]>::len);
                Estimate::of(rows as f64, Vec::new())
            }
            Relation::System { .. } | Relation::Working { .. } | Relation::Recursive(_) => {
                Estimate::of(UNKNOWN_ROWS, Vec::new())
            }
            Relation::Shared { number, columns } => {
                let Some(shared) = self.query.shared.get(*number) else {
                    return Estimate::of(UNKNOWN_ROWS, Vec::new());
                };
                let SharedBody::Plain(body) = &shared.body else {
                    return Estimate::of(UNKNOWN_ROWS, Vec::new());
                };
                let renames: Vec<_> = columns.iter().map(|(from, to, _)| (*from, *to)).collect();
                renamed(&self.estimate_in(body, depth), &renames)
            }
            Relation::Functions { input, .. } => {
                let input = self.estimate_in(input, depth);
                Estimate::of(input.rows() * FUNCTION_ROWS, Vec::new())
            }
            Relation::Project { input, items } => {
                let renames: Vec<_> = items
                    .iter()
                    .filter_map(|(id, expr)| Some((expr.as_column()?, *id)))
                    .collect();
                renamed(&self.estimate_in(input, depth), &renames)
            }
            Relation::Filter { input, predicate } => {
                let mut estimate = self.estimate_in(input, depth);
                conjuncts(predicate)
                    .iter()
                    .for_each(|part| estimate.restrict(part));
                estimate
            }
            Relation::Join { left, right, on, .. } => {
                let (left, right) = (self.estimate_in(left, depth), self.estimate_in(right, depth));
                let keys = on.iter().flat_map(conjuncts).count();
                let pairs = left.rows() * right.rows();
                let rows = match keys {
                    0 => pairs,
                    _ => left.rows().max(right.rows()),
                };
                Estimate::of(rows, Vec::new())
            }
            Relation::Apply { input, .. } | Relation::Window { input, .. } | Relation::Sort { input, .. } => {
                self.estimate_in(input, depth)
            }
            Relation::Aggregate {
                input, groups, sets, ..
            } => {
                let key: Vec<ColumnId> = groups.iter().map(|(id, _)| *id).collect();
                let input = self.estimate_in(input, depth);
                let by: Vec<ColumnId> = groups.iter().filter_map(|(_, expr)| expr.as_column()).collect();
                let rows = input.values(&by).max(input.rows().powf(0.5));
                match (key.is_empty(), sets.is_empty()) {
                    (true, true) => Estimate::of(1.0, vec![key]),
                    (_, false) => Estimate::of(rows, Vec::new()),
                    (false, true) => Estimate::of(rows.min(input.rows()), vec![key]),
                }
            }
            Relation::Distinct { input, on } => {
                let estimate = self.estimate_in(input, depth);
                let key = on.clone().unwrap_or_else(|| columns_made(relation));
                let rows = estimate.values(&key).min(estimate.rows());
                Estimate::of(rows, vec![key])
            }
            Relation::Limit { input, count, .. } => {
                let mut estimate = self.estimate_in(input, depth);
                let count = count.as_ref().and_then(Expr::as_constant);
                if let Some(count) = count.and_then(weft_types::Value::as_i64) {
                    estimate.share *= (count.max(1) as f64 / estimate.rows()).min(1.0);
                }
                estimate
            }
            Relation::Set { inputs, .. } => {
                let rows = inputs.iter().map(|input| self.estimate_in(input, depth).rows());
                Estimate::of(rows.sum(), Vec::new())
            }
        }
    }

    fn estimate_of_scan(&self, scan: &Scan) -> Estimate {
        let rows = self.source.row_count_estimate(scan.table.id) as f64;
        let named = |position: &usize| {
            let column = scan.columns.iter().find(|(at, _, _)| at == position);
            column.map(|(_, id, _)| *id)
        };
        let indexes = || scan.table.indexes.iter();
        // A key with columns that are not read can never be bound completely.
        let whole = |index: &&std::sync::Arc<weft_store::IndexDef>| index.unique;
        let missing = ColumnId(u32::MAX);
        let of = |position: &usize| named(position).unwrap_or(missing);
        let keys = indexes().filter(whole);
        let keys = keys.map(|index| index.columns.iter().map(of).collect());
        let mut estimate = Estimate::of(rows, keys.collect());
        let ordered = indexes().filter(|index| index.method.is_ordered());
        let leading = ordered.map(|index| index.columns.iter().map_while(named).collect());
        estimate.indexes = leading.collect();
        for (position, id, _) in &scan.columns {
            if let Some(values) = self.source.few_values(scan.table.id, *position) {
                estimate.limit(*id, values as f64);
            }
        }
        estimate
    }
}

/// The estimate with renamed columns.
fn renamed(estimate: &Estimate, renames: &[(ColumnId, ColumnId)]) -> Estimate {
    let name = |id: &ColumnId| {
        let to = renames.iter().find(|(from, _)| from == id);
        to.map(|(_, to)| *to)
    };
    let whole = |columns: &Vec<ColumnId>| columns.iter().map(name).collect::<Option<Vec<_>>>();
    let mut keys: Vec<Vec<ColumnId>> = estimate.keys.iter().filter_map(whole).collect();
    let fixed: Vec<ColumnId> = estimate.fixed.clone();
    // Columns that are fixed below need no name: the rest of the key is still unique.
    for key in &estimate.keys {
        let rest: Vec<ColumnId> = key.iter().filter(|id| !fixed.contains(id)).copied().collect();
        if rest.len() < key.len() {
            keys.extend(whole(&rest));
        }
    }
    let limits = estimate.limits.iter();
    Estimate {
        keys,
        limits: limits
            .filter_map(|(id, values)| Some((name(id)?, *values)))
            .collect(),
        indexes: estimate
            .indexes
            .iter()
            .map(|index| index.iter().map_while(name).collect())
            .collect(),
        ..Estimate::of(estimate.rows(), Vec::new())
    }
}
