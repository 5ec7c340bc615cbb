//! Window functions: OVER, WINDOW, frames.

use sqlparser::ast::{
    Expr as AstExpr, Function, NamedWindowDefinition, NamedWindowExpr, Spanned, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use sqlparser::tokenizer::Span;
use weft_expression::Expr;
use weft_expression::category::{check_equality, check_order};
use weft_expression::resolve::{is_aggregate, resolve_aggregate, resolve_operator};
use weft_syntax::arrange;
use weft_types::{CastContext, SqlError, SqlState, SqlType, Value};

use crate::binder::Binder;
use crate::names::fold;
use crate::order::directions;
use crate::parameters::Operand;
use crate::relation::{
    Frame, FrameBound, FrameExclusion, FrameUnit, Relation, SortKey, WindowCall, WindowFunction,
};
use crate::scope::Clause;

/// A bound window definition.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    partition: Vec<Expr>,
    order: Vec<SortKey>,
    /// `None`: the default frame.
    frame: Option<Frame>,
}

impl WindowCall {
    /// Visits every expression of the call.
    pub(crate) fn visit(
        &mut self,
        each: &mut dyn FnMut(&mut Expr) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let bounds = [&mut self.frame.start, &mut self.frame.end];
        let bounds = bounds.into_iter().filter_map(|bound| match bound {
            FrameBound::Preceding(expr) | FrameBound::Following(expr) => Some(expr),
            _ => None,
        });
        self.arguments
            .iter_mut()
            .chain(&mut self.filter)
            .chain(&mut self.partition)
            .chain(self.order.iter_mut().map(|key| &mut key.expr))
            .chain(bounds)
            .try_for_each(each)
    }
}

/// Whether a name is that of a pure window function.
pub(crate) fn is_window_function(name: &str) -> bool {
    matches!(
        name,
        "row_number"
            | "rank"
            | "dense_rank"
            | "percent_rank"
            | "cume_dist"
            | "ntile"
            | "lag"
            | "lead"
            | "first_value"
            | "last_value"
            | "nth_value"
    )
}

fn error(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::WINDOWING_ERROR, message)
}

impl Binder<'_> {
    /// Binds one definition of the WINDOW clause.
    pub(crate) fn bind_named_window(&mut self, definition: &NamedWindowDefinition) -> Result<(), SqlError> {
        let NamedWindowDefinition(name, body) = definition;
        let (folded, span) = (fold(name), name.span);
        if self.level()?.named_windows.contains_key(&folded) {
            return Err(self.at(error(format!("window \"{folded}\" is already defined")), span));
        }
        let window = match body {
            NamedWindowExpr::WindowSpec(spec) => self.bind_window(spec)?,
            NamedWindowExpr::NamedWindow(other) => self.named_window(&fold(other), other.span)?,
        };
        self.level()?.named_windows.insert(folded, window);
        Ok(())
    }

    fn named_window(&mut self, name: &str, span: Span) -> Result<Window, SqlError> {
        let found = self.level()?.named_windows.get(name).cloned();
        found.ok_or_else(|| {
            let error = SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("window \"{name}\" does not exist"),
            );
            self.at(error, span)
        })
    }

    fn bind_window(&mut self, spec: &WindowSpec) -> Result<Window, SqlError> {
        let saved = std::mem::replace(&mut self.level()?.clause, Clause::Window);
        let base = match &spec.window_name {
            Some(name) => {
                let base = self.named_window(&fold(name), name.span)?;
                let (folded, span) = (fold(name), name.span);
                if !spec.partition_by.is_empty() {
                    let error = error(format!(
                        "cannot override PARTITION BY clause of window \"{folded}\""
                    ));
                    return Err(self.at(error, span));
                }
                if !spec.order_by.is_empty() && !base.order.is_empty() {
                    let error = error(format!("cannot override ORDER BY clause of window \"{folded}\""));
                    return Err(self.at(error, span));
                }
                if base.frame.is_some() {
                    let error = error(format!(
                        "cannot copy window \"{folded}\" because it has a frame clause"
                    ));
                    return Err(self.at(error, span));
                }
                Some(base)
            }
            None => None,
        };
        let mut window = base.unwrap_or(Window {
            partition: Vec::new(),
            order: Vec::new(),
            frame: None,
        });
        let (mut exclude, mut partition_by, mut order_by) = (
            FrameExclusion::None,
            spec.partition_by.as_slice(),
            spec.order_by.as_slice(),
        );
        if let Some((last, keys)) = order_by.split_last()
            && let Some(named) = exclusion(&last.expr)
        {
            (exclude, order_by) = (named, keys);
        } else if let Some((last, keys)) = partition_by.split_last()
            && let Some(named) = exclusion(last)
        {
            (exclude, partition_by) = (named, keys);
        }
        for expr in partition_by {
            let operand = self.expr(expr)?;
            let value = self.parameters.settle(operand)?;
            check_equality(&value.ty()).map_err(|error| self.at(error, expr.span()))?;
            window.partition.push(value);
        }
        for key in order_by {
            let operand = self.expr(&key.expr)?;
            let value = self.parameters.settle(operand)?;
            check_order(&value.ty()).map_err(|error| self.at(error, key.expr.span()))?;
            let (descending, nulls_first) = directions(key);
            window.order.push(SortKey {
                expr: value,
                descending,
                nulls_first,
            });
        }
        if let Some(frame) = &spec.window_frame {
            let frame = self.bind_frame(frame, &window.order)?;
            window.frame = Some(Frame { exclude, ..frame });
        }
        self.level()?.clause = saved;
        Ok(window)
    }

    fn bind_frame(&mut self, frame: &WindowFrame, order: &[SortKey]) -> Result<Frame, SqlError> {
        let unit = match frame.units {
            WindowFrameUnits::Rows => FrameUnit::Rows,
            WindowFrameUnits::Range => FrameUnit::Range,
            WindowFrameUnits::Groups => FrameUnit::Groups,
        };
        if unit == FrameUnit::Groups && order.is_empty() {
            return Err(error("GROUPS mode requires an ORDER BY clause"));
        }
        let start = self.bind_bound(&frame.start_bound, unit, order, false)?;
        let end = match &frame.end_bound {
            Some(bound) => self.bind_bound(bound, unit, order, true)?,
            None => FrameBound::CurrentRow,
        };
        let message = match (&start, &end) {
            (FrameBound::UnboundedFollowing, _) => Some("frame start cannot be UNBOUNDED FOLLOWING"),
            (_, FrameBound::UnboundedPreceding) => Some("frame end cannot be UNBOUNDED PRECEDING"),
            (FrameBound::CurrentRow, FrameBound::Preceding(_)) => {
                Some("frame starting from current row cannot have preceding rows")
            }
            (FrameBound::Following(_), FrameBound::CurrentRow) if frame.end_bound.is_none() => {
                Some("frame starting from following row cannot end with current row")
            }
            (FrameBound::Following(_), FrameBound::Preceding(_) | FrameBound::CurrentRow) => {
                Some("frame starting from following row cannot have preceding rows")
            }
            _ => None,
        };
        match message {
            Some(message) => Err(error(message)),
            None => Ok(Frame {
                unit,
                start,
                end,
                exclude: FrameExclusion::None,
            }),
        }
    }

    fn bind_bound(
        &mut self,
        bound: &WindowFrameBound,
        unit: FrameUnit,
        order: &[SortKey],
        is_end: bool,
    ) -> Result<FrameBound, SqlError> {
        let (offset, preceding) = match bound {
            WindowFrameBound::CurrentRow => return Ok(FrameBound::CurrentRow),
            WindowFrameBound::Preceding(None) => return Ok(FrameBound::UnboundedPreceding),
            WindowFrameBound::Following(None) => return Ok(FrameBound::UnboundedFollowing),
            WindowFrameBound::Preceding(Some(offset)) => (offset, true),
            WindowFrameBound::Following(Some(offset)) => (offset, false),
        };
        let span = offset.span();
        let operand = self.expr(offset)?;
        let what = match unit {
            FrameUnit::Rows => "ROWS",
            FrameUnit::Range => "RANGE",
            FrameUnit::Groups => "GROUPS",
        };
        let serial = self.level()?.serial;
        let names_own = operand.expr.columns().any(|id| {
            self.columns
                .get(id.0 as usize)
                .is_some_and(|info| info.level == serial)
        });
        if names_own {
            let error = SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!("argument of {what} must not contain variables"),
            );
            return Err(self.at(error, span));
        }
        let value = match unit {
            FrameUnit::Rows | FrameUnit::Groups => {
                let name = operand.type_name();
                let bound = self
                    .parameters
                    .coerce(operand, SqlType::Int8, CastContext::Assignment);
                bound.map_err(|error| {
                    let error = if error.state == SqlState::DATATYPE_MISMATCH {
                        SqlError::new(
                            SqlState::DATATYPE_MISMATCH,
                            format!("argument of {what} must be type bigint, not type {name}"),
                        )
                    } else {
                        error
                    };
                    self.at(error, span)
                })?
            }
            FrameUnit::Range => self.range_bound(operand, [preceding, is_end], order, span)?,
        };
        Ok(if preceding {
            FrameBound::Preceding(value)
        } else {
            FrameBound::Following(value)
        })
    }

    /// The boundary key of RANGE: the sort key minus or plus the offset.
    fn range_bound(
        &mut self,
        offset: Operand,
        [preceding, is_end]: [bool; 2],
        order: &[SortKey],
        span: Span,
    ) -> Result<Expr, SqlError> {
        let [key] = order else {
            let error = error("RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column");
            return Err(self.at(error, span));
        };
        let ty = key.expr.ty();
        let offset = match offset.ty {
            Some(_) => offset,
            // An untyped constant takes the distance type of the key.
            None => {
                let distance = match ty {
                    SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time => {
                        SqlType::Interval
                    }
                    other => other.without_typmod(),
                };
                Operand::typed(self.parameters.coerce(offset, distance, CastContext::Implicit)?)
            }
        };
        let is_supported = match (ty, offset.expr.ty()) {
            (key, by) if key.is_number() && by.is_number() => {
                (key.is_integer() && by.is_integer())
                    || (matches!(key, SqlType::Numeric(_))
                        && (by.is_integer() || matches!(by, SqlType::Numeric(_))))
                    || matches!(key, SqlType::Float8 | SqlType::Float4)
            }
            // time is excluded: it wraps around at midnight, but a frame does not.
            (
                SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval,
                SqlType::Interval,
            ) => true,
            _ => false,
        };
        if !is_supported {
            let error = SqlError::unsupported(format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {} and offset type {}",
                ty.base_name(),
                offset.type_name()
            ))
            .hint("Cast the offset value to an appropriate type.");
            return Err(self.at(error, span));
        }
        let checked = self.call(
            "frame_offset",
            vec![
                offset,
                Operand::typed(key.expr.clone()),
                Operand::typed(Expr::constant(weft_types::Value::Bool(is_end), SqlType::Bool)),
            ],
            span.into(),
        )?;
        let symbol = if preceding != key.descending { "-" } else { "+" };
        // Beyond the range of a type there are no keys, but this must not be an error.
        let mut operands = [Operand::typed(key.expr.clone()), checked];
        if ty.is_integer() {
            for operand in &mut operands {
                let exact = SqlType::Numeric(None);
                let value = std::mem::replace(operand, Operand::quoted(""));
                *operand = Operand::typed(self.parameters.coerce(value, exact, CastContext::Implicit)?);
            }
        }
        let [key, offset] = operands;
        let operator =
            resolve_operator(symbol, Some(key.ty), offset.ty).map_err(|error| self.at(error, span))?;
        self.operation(operator, key, offset, span.into())
    }

    /// Binds a call with OVER.
    pub(crate) fn window_call(
        &mut self,
        name: &str,
        function: &Function,
        over: &WindowType,
        span: Span,
    ) -> Result<Operand, SqlError> {
        let clause = self.level()?.clause;
        if !matches!(clause, Clause::Select | Clause::OrderBy | Clause::DistinctOn) || self.level()?.building
        {
            let error = error(format!("window functions are not allowed in {}", clause.noun()));
            return Err(self.at(error, span));
        }
        if !self.aggregate_arguments.is_empty() && self.in_own_aggregate() {
            let error = SqlError::new(
                SqlState::GROUPING_ERROR,
                "aggregate function calls cannot contain window function calls",
            );
            return Err(self.at(error, span));
        }
        let (windows, sets) = (self.level()?.windows.len(), self.level()?.sets.len());
        let call = self.bind_call(function)?;
        if self.level()?.windows.len() > windows {
            return Err(self.at(error("window function calls cannot be nested"), span));
        }
        if self.level()?.sets.len() > sets {
            let error =
                SqlError::unsupported("window function calls cannot contain set-returning function calls")
                    .hint("You might be able to move the set-returning function into a LATERAL FROM item.");
            return Err(self.at(error, span));
        }
        if call.distinct {
            return Err(self.at(
                SqlError::unsupported("DISTINCT is not implemented for window functions"),
                span,
            ));
        }
        if call.within > 0 {
            return Err(self.at(
                SqlError::unsupported(format!("OVER is not supported for ordered-set aggregate {name}")),
                span,
            ));
        }
        if !call.order.is_empty() {
            return Err(self.at(
                SqlError::unsupported("aggregate ORDER BY is not implemented for window functions"),
                span,
            ));
        }
        if function.null_treatment.is_some() {
            return Err(self.at(SqlError::unsupported("IGNORE NULLS is not supported"), span));
        }
        let window = match over {
            WindowType::WindowSpec(spec) => self.bind_window(spec)?,
            WindowType::NamedWindow(name) => self.named_window(&fold(name), name.span)?,
        };
        let (function, arguments, ty) = if is_aggregate(name) && !is_window_function(name) {
            let types: Vec<Option<SqlType>> = call.arguments.iter().map(|operand| operand.ty).collect();
            let resolved = resolve_aggregate(name, &types, false)
                .ok_or_else(|| SqlError::internal("not an aggregate"))?
                .map_err(|error| self.at(error, span))?;
            let mut arguments = call.arguments;
            self.leave_untyped(&mut arguments, resolved.aggregate.arguments);
            let arguments = self.converted(arguments, &resolved.arguments)?;
            (
                WindowFunction::Aggregate(resolved.aggregate),
                arguments,
                resolved.result,
            )
        } else {
            if call.filter.is_some() {
                let error =
                    SqlError::unsupported("FILTER is not implemented for non-aggregate window functions");
                return Err(self.at(error, span));
            }
            let bound = self.window_function(name, call.arguments);
            bound.map_err(|error| self.at(error, span))?
        };
        let output = self.fresh();
        let frame = window.frame.unwrap_or(Frame {
            unit: FrameUnit::Range,
            start: FrameBound::UnboundedPreceding,
            end: FrameBound::CurrentRow,
            exclude: FrameExclusion::None,
        });
        self.level()?.windows.push(WindowCall {
            output,
            ty,
            function,
            arguments,
            filter: call.filter,
            partition: window.partition,
            order: window.order,
            frame,
        });
        Ok(Operand::typed(Expr::column(output, ty)))
    }

    /// Whether the arguments of an aggregate of this level are being bound.
    fn in_own_aggregate(&self) -> bool {
        let around = self.aggregate_arguments.last();
        around.is_some_and(|arguments| arguments.depth_end == self.levels.len())
    }

    fn window_function(
        &mut self,
        name: &str,
        arguments: Vec<Operand>,
    ) -> Result<(WindowFunction, Vec<Expr>, SqlType), SqlError> {
        let types: Vec<Option<SqlType>> = arguments.iter().map(|operand| operand.ty).collect();
        let unknown = weft_expression::resolve::no_function(name, &types);
        let (function, ty, most) = match name {
            "row_number" => (WindowFunction::RowNumber, SqlType::Int8, 0),
            "rank" => (WindowFunction::Rank, SqlType::Int8, 0),
            "dense_rank" => (WindowFunction::DenseRank, SqlType::Int8, 0),
            "percent_rank" => (WindowFunction::PercentRank, SqlType::Float8, 0),
            "cume_dist" => (WindowFunction::CumeDist, SqlType::Float8, 0),
            "ntile" => (WindowFunction::Ntile, SqlType::Int4, 1),
            "lag" => (WindowFunction::Lag, SqlType::Text, 3),
            "lead" => (WindowFunction::Lead, SqlType::Text, 3),
            "first_value" => (WindowFunction::FirstValue, SqlType::Text, 1),
            "last_value" => (WindowFunction::LastValue, SqlType::Text, 1),
            "nth_value" => (WindowFunction::NthValue, SqlType::Text, 2),
            _ if weft_expression::resolve::is_function(name) => {
                return Err(SqlError::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("OVER specified, but {name} is not a window function nor an aggregate function"),
                ));
            }
            _ => return Err(unknown),
        };
        let count = arguments.len();
        let least = match function {
            WindowFunction::Lag | WindowFunction::Lead => 1,
            _ => most,
        };
        if count > most || count < least {
            return Err(unknown);
        }
        let mut given = arguments.into_iter();
        let mut values = Vec::with_capacity(most);
        let integer = |binder: &mut Self, operand: Operand| {
            let bound = binder
                .parameters
                .coerce(operand, SqlType::Int4, CastContext::Implicit);
            bound.map_err(|_| unknown.clone())
        };
        let Some(first) = given.next() else {
            return Ok((function, values, ty));
        };
        if function_is_ntile(function) {
            values.push(integer(self, first)?);
            return Ok((function, values, ty));
        }
        let second = given.next();
        let third = given.next();
        let (first, third, ty) = match third {
            Some(third) => {
                let types = [first.ty, third.ty];
                let ty =
                    weft_expression::resolve::common_type("WINDOW", &types).map_err(|_| unknown.clone())?;
                let third = self.parameters.coerce(third, ty, CastContext::Implicit)?;
                (
                    self.parameters.coerce(first, ty, CastContext::Implicit)?,
                    Some(third),
                    ty,
                )
            }
            None => {
                let Some(ty) = first.ty else {
                    return Err(SqlError::new(
                        SqlState::DATATYPE_MISMATCH,
                        "could not determine polymorphic type because input has type unknown",
                    ));
                };
                (first.expr, None, ty)
            }
        };
        values.push(first);
        match function {
            WindowFunction::Lag | WindowFunction::Lead => {
                values.push(match second {
                    Some(second) => integer(self, second)?,
                    None => Expr::constant(Value::Int4(1), SqlType::Int4),
                });
                values.push(third.unwrap_or_else(|| Expr::constant(Value::Null, ty)));
            }
            WindowFunction::NthValue => {
                if let Some(second) = second {
                    values.push(integer(self, second)?);
                }
            }
            _ => {}
        }
        Ok((function, values, ty))
    }

    /// Adds the window calls of this level above a relation.
    pub(crate) fn add_windows(&mut self, relation: Relation) -> Result<Relation, SqlError> {
        let calls = std::mem::take(&mut self.level()?.windows);
        if calls.is_empty() {
            return Ok(relation);
        }
        Ok(Relation::Window {
            input: Box::new(relation),
            calls,
        })
    }
}

fn function_is_ntile(function: WindowFunction) -> bool {
    matches!(function, WindowFunction::Ntile)
}

/// The EXCLUDE clause that a key encodes ([`weft_syntax::arrange`]).
fn exclusion(key: &AstExpr) -> Option<FrameExclusion> {
    let AstExpr::Identifier(name) = key else {
        return None;
    };
    match name.value.as_str() {
        arrange::EXCLUDE_CURRENT_ROW => Some(FrameExclusion::CurrentRow),
        arrange::EXCLUDE_GROUP => Some(FrameExclusion::Group),
        arrange::EXCLUDE_TIES => Some(FrameExclusion::Ties),
        _ => None,
    }
}
