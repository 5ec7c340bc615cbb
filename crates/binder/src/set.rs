//! UNION, INTERSECT, EXCEPT, VALUES and TABLE.

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, SetExpr, SetOperator, SetQuantifier, Values};
use weft_expression::category::check_equality;
use weft_expression::resolve::common_type;
use weft_expression::{ColumnId, Expr};
use weft_syntax::refuse_wide;
use weft_types::{CastContext, SqlError, SqlType};

use crate::binder::Binder;
use crate::names::syntax_error;
use crate::parameters::Operand;
use crate::relation::{Relation, SetOp};
use crate::scope::{Clause, refuse_high};
use crate::select::{RowColumn, Rows, apply_all};

/// One operation of a chain, whose right side is not bound yet.
struct Step<'q> {
    op: SetOp,
    all: bool,
    right: &'q SetExpr,
}

impl Binder<'_> {
    /// Binds a query's body other than SELECT.
    pub(crate) fn bind_set_expr(&mut self, body: &SetExpr, resolve: bool) -> Result<Rows, SqlError> {
        let (mut steps, mut at) = (Vec::new(), body);
        while let SetExpr::SetOperation {
            left,
            op,
            set_quantifier,
            right,
        } = at
        {
            steps.push(step(*op, *set_quantifier, right)?);
            at = left;
        }
        let Some(last) = steps.pop() else {
            return self.bind_leaf(at, resolve);
        };
        let mut rows = self.bind_leaf(at, false)?;
        let mut next = Some(last);
        while let Some(step) = next {
            let right = match step.right {
                set @ SetExpr::SetOperation { .. } => self.bind_set_expr(set, false)?,
                leaf => self.bind_leaf(leaf, false)?,
            };
            rows = self.combine(rows, step.op, step.all, right)?;
            next = steps.pop();
        }
        Ok(rows)
    }

    fn bind_leaf(&mut self, body: &SetExpr, resolve: bool) -> Result<Rows, SqlError> {
        match body {
            SetExpr::Query(query) => self.bind_rows(query, resolve),
            SetExpr::Select(select) => self.bind_plain_select(select, resolve),
            SetExpr::Values(values) => self.bind_values(values, resolve),
            SetExpr::Table(table) => {
                let part = |name: &String| ObjectNamePart::Identifier(Ident::new(name.clone()));
                let names = table.schema_name.iter().chain(&table.table_name);
                self.bind_table_command(&ObjectName(names.map(part).collect()))
            }
            SetExpr::SetOperation { .. } => self.bind_set_expr(body, resolve),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => Err(
                SqlError::unsupported("statements that change rows in WITH are not supported"),
            ),
        }
    }

    /// Combines two bound sides by one operation.
    fn combine(&mut self, left: Rows, op: SetOp, all: bool, right: Rows) -> Result<Rows, SqlError> {
        let what = match op {
            SetOp::Union => "UNION",
            SetOp::Intersect => "INTERSECT",
            SetOp::Except => "EXCEPT",
        };
        if left.columns.len() != right.columns.len() {
            return Err(syntax_error(format!(
                "each {what} query must have the same number of columns"
            )));
        }
        let mut types = Vec::with_capacity(left.columns.len());
        for (one, other) in left.columns.iter().zip(&right.columns) {
            let known = |column: &RowColumn| column.unknown.is_none().then_some(column.ty);
            let ty = common_type(what, &[known(one), known(other)])?;
            if !(all && op == SetOp::Union) {
                check_equality(&ty)?;
            }
            types.push(ty);
        }
        let names: Vec<String> = left.columns.iter().map(|column| column.name.clone()).collect();
        let right_height = right.height;
        let (right, right_ids) = self.converted_rows(right, &types)?;
        let unchanged = left.columns.iter().zip(&types);
        let unchanged = unchanged
            .clone()
            .all(|(column, ty)| column.unknown.is_none() && column.ty == *ty);
        // A chain of UNION ALL becomes one relation.
        if let (
            true,
            Relation::Set {
                op: SetOp::Union,
                all: true,
                inputs,
                columns,
            },
        ) = (unchanged && op == SetOp::Union && all, &left.relation)
            && columns.len() == right_ids.len()
            && !inputs.is_empty()
        {
            let height = left.height.max(right_height + 1);
            let rows = extend(left, right, right_ids);
            return Ok(Rows { height, ..rows });
        }
        let height = left.height.max(right_height) + 1;
        refuse_high(height)?;
        let (left, left_ids) = self.converted_rows(left, &types)?;
        let (mut columns, mut visible) = (Vec::new(), Vec::new());
        for (((name, ty), one), other) in names.into_iter().zip(types).zip(left_ids).zip(right_ids) {
            let id = self.fresh();
            columns.push((id, ty, vec![one, other]));
            visible.push(RowColumn {
                name,
                id,
                ty,
                origin: None,
                unknown: None,
            });
        }
        Ok(Rows {
            relation: Relation::Set {
                op,
                all,
                inputs: vec![left, right],
                columns,
            },
            columns: visible,
            height,
        })
    }

    /// Converts the columns of the rows; returns the relation and their new ids.
    pub(crate) fn converted_rows(
        &mut self,
        rows: Rows,
        types: &[SqlType],
    ) -> Result<(Relation, Vec<ColumnId>), SqlError> {
        let fits = |(column, ty): (&RowColumn, &SqlType)| column.unknown.is_none() && column.ty == *ty;
        for column in &rows.columns {
            self.mark(column.id);
        }
        if rows.columns.iter().zip(types).all(fits) {
            return Ok((
                rows.relation,
                rows.columns.iter().map(|column| column.id).collect(),
            ));
        }
        let (mut items, mut ids) = (Vec::new(), Vec::new());
        for (column, ty) in rows.columns.into_iter().zip(types) {
            let operand = column
                .unknown
                .unwrap_or_else(|| Operand::typed(Expr::column(column.id, column.ty)));
            let value = self.parameters.coerce(operand, *ty, CastContext::Implicit)?;
            let id = self.fresh();
            items.push((id, value));
            ids.push(id);
        }
        let relation = Relation::Project {
            input: Box::new(rows.relation),
            items,
        };
        Ok((relation, ids))
    }

    /// Converts columns of unknown type to text.
    pub(crate) fn settle_rows(&mut self, rows: Rows) -> Result<Rows, SqlError> {
        if rows.columns.iter().all(|column| column.unknown.is_none()) {
            return Ok(rows);
        }
        let height = rows.height;
        let types: Vec<SqlType> = rows.columns.iter().map(|column| column.ty).collect();
        let kept: Vec<_> = rows
            .columns
            .iter()
            .map(|column| (column.name.clone(), column.origin))
            .collect();
        let (relation, ids) = self.converted_rows(rows, &types)?;
        let columns = kept
            .into_iter()
            .zip(ids)
            .zip(types)
            .map(|(((name, origin), id), ty)| RowColumn {
                name,
                id,
                ty,
                origin,
                unknown: None,
            });
        Ok(Rows {
            relation,
            columns: columns.collect(),
            height,
        })
    }

    /// Binds VALUES.
    fn bind_values(&mut self, values: &Values, resolve: bool) -> Result<Rows, SqlError> {
        self.push_level();
        let width = values.rows.first().map_or(0, |row| row.content.len());
        refuse_wide(width)?;
        let mut by_column: Vec<Vec<Operand>> = (0..width).map(|_| Vec::new()).collect();
        let mut pendings = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            if row.content.len() != width {
                return Err(syntax_error("VALUES lists must all be the same length"));
            }
            let mut pending_of_row = Vec::new();
            self.level()?.height.next_row();
            for (expr, column) in row.content.iter().zip(&mut by_column) {
                let (operand, pending) = self.in_clause(Clause::Values, |binder| binder.expr(expr))?;
                pending_of_row.extend(pending);
                column.push(operand);
            }
            pendings.push(pending_of_row);
        }
        let mut columns = Vec::with_capacity(width);
        let mut rows: Vec<Vec<Expr>> = values.rows.iter().map(|_| Vec::with_capacity(width)).collect();
        for operands in by_column {
            if !resolve && let [Operand { ty: None, .. }] = operands.as_slice() {
                columns.push((SqlType::Text, operands.into_iter().next()));
                for row in &mut rows {
                    row.push(Operand::null().expr);
                }
                continue;
            }
            let (converted, ty) = self.parameters.common("VALUES", operands)?;
            columns.push((ty, None));
            for (row, value) in rows.iter_mut().zip(converted) {
                row.push(value);
            }
        }
        let height = self.pop_level()?.height.total();
        let mut visible = Vec::with_capacity(width);
        for (place, (ty, unknown)) in columns.into_iter().enumerate() {
            visible.push(RowColumn {
                name: format!("column{}", place + 1),
                id: self.fresh(),
                ty,
                origin: None,
                unknown,
            });
        }
        let described: Vec<(ColumnId, SqlType)> =
            visible.iter().map(|column| (column.id, column.ty)).collect();
        let relation = self.values_relation(described, rows, pendings);
        Ok(Rows {
            relation,
            columns: visible,
            height,
        })
    }

    /// VALUES, or a union of single rows if there are subqueries in it.
    pub(crate) fn values_relation(
        &mut self,
        columns: Vec<(ColumnId, SqlType)>,
        rows: Vec<Vec<Expr>>,
        pendings: Vec<Vec<crate::scope::Pending>>,
    ) -> Relation {
        if pendings.iter().all(Vec::is_empty) {
            return Relation::Values { columns, rows };
        }
        let mut columns: Vec<(ColumnId, SqlType, Vec<ColumnId>)> =
            columns.into_iter().map(|(id, ty)| (id, ty, Vec::new())).collect();
        let mut inputs = Vec::with_capacity(rows.len());
        for (row, pending) in rows.into_iter().zip(pendings) {
            let mut items = Vec::with_capacity(row.len());
            for (value, (_, _, sources)) in row.into_iter().zip(&mut columns) {
                let id = self.fresh();
                sources.push(id);
                items.push((id, value));
            }
            inputs.push(Relation::Project {
                input: Box::new(apply_all(Relation::One, pending)),
                items,
            });
        }
        if inputs.len() == 1
            && let Some(Relation::Project { input, items }) = inputs.pop()
        {
            let ids = columns.into_iter().map(|(id, ..)| id);
            let items = ids.zip(items).map(|(id, (_, value))| (id, value)).collect();
            return Relation::Project { input, items };
        }
        Relation::Set {
            op: SetOp::Union,
            all: true,
            inputs,
            columns,
        }
    }
}

fn extend(left: Rows, right: Relation, right_ids: Vec<ColumnId>) -> Rows {
    let mut left = left;
    if let Relation::Set { inputs, columns, .. } = &mut left.relation {
        inputs.push(right);
        for ((_, _, sources), id) in columns.iter_mut().zip(right_ids) {
            sources.push(id);
        }
    }
    left
}

fn step(op: SetOperator, quantifier: SetQuantifier, right: &SetExpr) -> Result<Step<'_>, SqlError> {
    let op = match op {
        SetOperator::Union => SetOp::Union,
        SetOperator::Intersect => SetOp::Intersect,
        SetOperator::Except => SetOp::Except,
        SetOperator::Minus => return Err(SqlError::unsupported("MINUS is not supported")),
    };
    let all = match quantifier {
        SetQuantifier::All => true,
        SetQuantifier::Distinct | SetQuantifier::None => false,
        _ => return Err(SqlError::unsupported("BY NAME is not supported")),
    };
    Ok(Step { op, all, right })
}
