//! Rows that a statement lists: INSERT ... VALUES.
//!
//! Such rows need no plan: each value is computed separately and put into its row. Parts that depend on no
//! row are computed first, for all rows ([`weft_expression::fold`]), since their errors precede those of any
//! row.

use std::time::Instant;

use weft_binder::relation::{Query, Relation};
use weft_expression::{ColumnId, Context, Expr, Op, evaluate, fold};
use weft_types::interrupt::Pace;
use weft_types::{SqlError, Value, interrupt};

use crate::engine::has_parameters;
use crate::modify::Evaluation;
use crate::slice::StopSignal;

/// The source of one value of a row.
#[derive(Clone, Copy)]
enum Source<'q> {
    /// A position in the listed row.
    Column(usize),
    /// The same expression for every row: a default.
    Every(&'q Expr),
}

impl Source<'_> {
    fn place(source: &Source<'_>) -> Option<usize> {
        match source {
            Source::Column(place) => Some(*place),
            Source::Every(_) => None,
        }
    }
}

/// The rows that a query lists.
pub(crate) struct ValueRows<'q> {
    rows: &'q [Vec<Expr>],
    sources: Vec<Source<'q>>,
}

impl<'q> ValueRows<'q> {
    /// The rows of a query that only lists them; `None` for any other query.
    pub(crate) fn of(query: &'q Query) -> Option<ValueRows<'q>> {
        let Relation::Project { input, items } = &query.relation else {
            return None;
        };
        let Relation::Values { columns, rows } = input.as_ref() else {
            return None;
        };
        let listed = |id: ColumnId| columns.iter().position(|(column, _)| *column == id);
        let source = |id: ColumnId| {
            let (_, expr) = items.iter().find(|(item, _)| *item == id)?;
            match expr.as_column() {
                Some(id) => listed(id).map(Source::Column),
                None => expr.columns().next().is_none().then_some(Source::Every(expr)),
            }
        };
        let sources: Option<Vec<_>> = query.output.iter().map(|output| source(output.column)).collect();
        let mut places: Vec<usize> = sources.iter().flatten().filter_map(Source::place).collect();
        places.sort_unstable();
        // Each listed value must be used at most once, because values are moved out of the row.
        let once = places.windows(2).all(|pair| pair[0] != pair[1]);
        let computed = rows.iter().flatten().all(|expr| expr.columns().next().is_none());
        let plain = once && computed && query.shared.is_empty();
        Some(ValueRows {
            rows,
            sources: sources.filter(|_| plain)?,
        })
    }

    /// Calls `each` with the values of every row, in the order of the query's output.
    ///
    /// # Errors
    /// Those of the values and of `each`.
    pub(crate) fn each(
        &self,
        query: &Query,
        with: &Evaluation<'_>,
        each: &mut dyn FnMut(&mut [Value]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let settings = with.settings;
        let stop = StopSignal::new(settings.cancel.clone(), settings.deadline);
        stop.ensure_running(Instant::now())?;
        has_parameters(query, with.parameters)?;
        let context = Context {
            parameters: with.parameters,
            zone: settings.zone,
            session: settings.session.as_ref(),
        };
        interrupt::with(stop, || self.each_within(&context, each))
    }

    fn each_within(
        &self,
        context: &Context<'_>,
        each: &mut dyn FnMut(&mut [Value]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut pace = Pace::default();
        let mut folded: Vec<Expr> = Vec::new();
        let every = self.sources.iter().filter_map(|source| match source {
            Source::Every(expr) => Some(*expr),
            Source::Column(_) => None,
        });
        for expr in self.rows.iter().flatten().chain(every) {
            pace.step(32)?;
            if expr.nodes().len() > 1 {
                folded.push(fold(expr, context)?.expr);
            }
        }
        // `folded` is in the order in which the expressions were collected.
        let defaults = folded.split_off(self.computed());
        let mut folded = folded.iter();
        let mut values: Vec<Value> = Vec::with_capacity(self.sources.len());
        let mut listed: Vec<Value> = Vec::new();
        for row in self.rows {
            pace.step(32)?;
            listed.clear();
            for expr in row {
                listed.push(value_of(expr, &mut folded, context)?);
            }
            values.clear();
            let mut defaults = defaults.iter();
            for source in &self.sources {
                values.push(match source {
                    Source::Column(place) => listed.get_mut(*place).map(std::mem::take).unwrap_or_default(),
                    Source::Every(expr) => value_of(expr, &mut defaults, context)?,
                });
            }
            each(&mut values)?;
        }
        Ok(())
    }

    /// The number of listed values that are more than a constant or a parameter.
    fn computed(&self) -> usize {
        let all = self.rows.iter().flatten();
        all.filter(|expr| expr.nodes().len() > 1).count()
    }
}

/// The value of an expression, computed from its folded form if there is one.
fn value_of<'e>(
    expr: &'e Expr,
    folded: &mut impl Iterator<Item = &'e Expr>,
    context: &Context<'_>,
) -> Result<Value, SqlError> {
    let expr = match expr.nodes().len() {
        1 => expr,
        _ => folded.next().unwrap_or(expr),
    };
    match expr.nodes() {
        [node] => match &node.op {
            Op::Constant(value) => Ok(value.clone()),
            Op::Parameter(number) => {
                let value = context.parameters.get(*number as usize);
                value
                    .cloned()
                    .ok_or_else(|| SqlError::internal("a parameter without a value"))
            }
            _ => evaluate(expr, context, &|_| Value::Null),
        },
        _ => evaluate(expr, context, &|_| Value::Null),
    }
}
