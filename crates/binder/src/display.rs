//! Relations as text, for EXPLAIN and tests: one line each, with inputs indented below. Columns are displayed
//! as `#id`.

use std::fmt::{self, Display, Formatter, Write as _};

use weft_expression::{ColumnId, CompareOp, Expr, Kind, Node, Op};
use weft_types::{SqlType, Value, format_text};

use crate::relation::{
    AggregateCall, Apply, Frame, FrameBound, FrameExclusion, FrameUnit, JoinKind, Modify, Query, Relation,
    Scan, SetCall, SetOp, SharedBody, SortKey, WindowCall, WindowFunction,
};

/// An expression as text.
#[must_use]
pub fn expression_text(expr: &Expr) -> String {
    let mut stack: Vec<String> = Vec::new();
    for node in expr.nodes() {
        let first = stack.len().saturating_sub(node.arity as usize);
        let arguments = stack.split_off(first);
        stack.push(node_text(node, arguments));
    }
    stack.pop().unwrap_or_default()
}

fn compare(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "=",
        CompareOp::Ne => "<>",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

/// The arguments in parentheses, with a separator between them. Reuses the first one's string.
fn between(arguments: Vec<String>, separator: &str) -> String {
    let mut arguments = arguments.into_iter();
    let mut text = arguments.next().unwrap_or_default();
    text.insert(0, '(');
    for argument in arguments {
        text.push_str(separator);
        text.push_str(&argument);
    }
    text.push(')');
    text
}

fn called(name: &str, arguments: &[String]) -> String {
    format!("{name}({})", arguments.join(", "))
}

fn node_text(node: &Node, arguments: Vec<String>) -> String {
    match &node.op {
        Op::Constant(value) => constant_text(value, &node.ty),
        Op::Parameter(number) => format!("${}", number + 1),
        Op::Column(ColumnId(id)) => format!("#{id}"),
        Op::Call(entry) => match entry.kind {
            Kind::Function => called(entry.name, &arguments),
            Kind::Infix => between(arguments, &format!(" {} ", entry.name)),
            Kind::Prefix => format!("({}{})", entry.name, arguments.concat()),
        },
        Op::Cast { explicit: true, .. } => format!("{}::{}", arguments.concat(), node.ty.name()),
        Op::Cast { .. } => format!("{}:{}", arguments.concat(), node.ty.name()),
        Op::Compare(op) => between(arguments, &format!(" {} ", compare(*op))),
        Op::IsDistinct => between(arguments, " IS DISTINCT FROM "),
        Op::CompareRows(op) => called(&format!("rows {}", compare(*op)), &arguments),
        Op::And => between(arguments, " AND "),
        Op::Or => between(arguments, " OR "),
        Op::Not => format!("(NOT {})", arguments.concat()),
        Op::IsNull => format!("({} IS NULL)", arguments.concat()),
        Op::IsTruth(truth) => format!(
            "({} IS {})",
            arguments.concat(),
            if *truth { "TRUE" } else { "FALSE" }
        ),
        Op::Coalesce => called("coalesce", &arguments),
        Op::NullIf => called("nullif", &arguments),
        Op::Greatest => called("greatest", &arguments),
        Op::Least => called("least", &arguments),
        Op::Case { operand } => case_text(*operand, &arguments),
        Op::CaseOperand => "operand".to_owned(),
        Op::InList { negated } => {
            let (value, items) = arguments
                .split_first()
                .map_or(("", &[][..]), |(v, i)| (v.as_str(), i));
            let not = if *negated { "NOT " } else { "" };
            format!("({value} {not}IN ({}))", items.join(", "))
        }
        Op::CompareArray { op, all } => {
            let quantifier = if *all { "ALL" } else { "ANY" };
            between(arguments, &format!(" {} {quantifier} ", compare(*op)))
        }
        Op::Array => format!("array[{}]", arguments.join(", ")),
        Op::Subscript => {
            let (array, subscripts) = arguments
                .split_first()
                .map_or(("", &[][..]), |(a, s)| (a.as_str(), s));
            format!("{array}[{}]", subscripts.join("]["))
        }
        Op::Row => called("row", &arguments),
    }
}

fn constant_text(value: &Value, ty: &SqlType) -> String {
    let plain = matches!(
        ty,
        SqlType::Int4 | SqlType::Int8 | SqlType::Numeric(None) | SqlType::Bool
    );
    if value.is_null() {
        return "NULL".to_owned();
    }
    let mut text = String::new();
    format_text(value, ty, &mut text);
    match ty {
        _ if plain => text,
        SqlType::Text => format!("'{}'", text.replace('\'', "''")),
        _ => format!("'{}'::{}", text.replace('\'', "''"), ty.name()),
    }
}

fn case_text(operand: bool, arguments: &[String]) -> String {
    let mut text = "CASE".to_owned();
    let (subject, rest) = match (operand, arguments.split_first()) {
        (true, Some((subject, rest))) => (Some(subject), rest),
        _ => (None, arguments),
    };
    if let Some(subject) = subject {
        let _ = write!(text, " {subject}");
    }
    let mut parts = rest.chunks_exact(2);
    for pair in &mut parts {
        if let [condition, value] = pair {
            let _ = write!(text, " WHEN {condition} THEN {value}");
        }
    }
    if let [otherwise] = parts.remainder() {
        let _ = write!(text, " ELSE {otherwise}");
    }
    text.push_str(" END");
    text
}

fn list<T>(items: impl IntoIterator<Item = T>, text: impl Fn(T) -> String) -> String {
    let texts: Vec<String> = items.into_iter().map(text).collect();
    texts.join(", ")
}

fn id(column: &ColumnId) -> String {
    format!("#{}", column.0)
}

fn keys(keys: &[SortKey]) -> String {
    list(keys, |key| {
        let mut text = expression_text(&key.expr);
        if key.descending {
            text.push_str(" DESC");
        }
        if key.nulls_first != key.descending {
            text.push_str(if key.nulls_first {
                " NULLS FIRST"
            } else {
                " NULLS LAST"
            });
        }
        text
    })
}

fn made(items: &[(ColumnId, Expr)]) -> String {
    list(items, |(column, expr)| match expr.as_column() {
        Some(same) if same == *column => id(column),
        _ => format!("{} = {}", id(column), expression_text(expr)),
    })
}

fn set_call(call: &SetCall) -> String {
    format!(
        "{} = {}({})",
        list(&call.columns, |(column, _)| id(column)),
        call.function.name,
        list(&call.arguments, expression_text)
    )
}

fn aggregate_call(call: &AggregateCall) -> String {
    let mut text = format!(
        "{} = {}({}{}",
        id(&call.output),
        call.aggregate.name,
        if call.distinct { "DISTINCT " } else { "" },
        if call.arguments.is_empty() {
            "*".to_owned()
        } else {
            list(&call.arguments, expression_text)
        }
    );
    if !call.order.is_empty() {
        let _ = write!(text, " ORDER BY {}", keys(&call.order));
    }
    text.push(')');
    if let Some(filter) = &call.filter {
        let _ = write!(text, " FILTER {}", expression_text(filter));
    }
    text
}

fn window_call(call: &WindowCall) -> String {
    let name = match call.function {
        WindowFunction::Aggregate(aggregate) => aggregate.name,
        WindowFunction::RowNumber => "row_number",
        WindowFunction::Rank => "rank",
        WindowFunction::DenseRank => "dense_rank",
        WindowFunction::PercentRank => "percent_rank",
        WindowFunction::CumeDist => "cume_dist",
        WindowFunction::Ntile => "ntile",
        WindowFunction::Lag => "lag",
        WindowFunction::Lead => "lead",
        WindowFunction::FirstValue => "first_value",
        WindowFunction::LastValue => "last_value",
        WindowFunction::NthValue => "nth_value",
    };
    let mut text = format!(
        "{} = {name}({})",
        id(&call.output),
        list(&call.arguments, expression_text)
    );
    if let Some(filter) = &call.filter {
        let _ = write!(text, " FILTER {}", expression_text(filter));
    }
    let mut parts = Vec::new();
    if !call.partition.is_empty() {
        parts.push(format!("PARTITION BY {}", list(&call.partition, expression_text)));
    }
    if !call.order.is_empty() {
        parts.push(format!("ORDER BY {}", keys(&call.order)));
    }
    parts.push(frame(&call.frame));
    let _ = write!(text, " OVER ({})", parts.join(" "));
    text
}

fn frame(frame: &Frame) -> String {
    let unit = match frame.unit {
        FrameUnit::Rows => "ROWS",
        FrameUnit::Range => "RANGE",
        FrameUnit::Groups => "GROUPS",
    };
    let bound = |bound: &FrameBound| match bound {
        FrameBound::UnboundedPreceding => "UNBOUNDED PRECEDING".to_owned(),
        FrameBound::Preceding(expr) => format!("{} PRECEDING", expression_text(expr)),
        FrameBound::CurrentRow => "CURRENT ROW".to_owned(),
        FrameBound::Following(expr) => format!("{} FOLLOWING", expression_text(expr)),
        FrameBound::UnboundedFollowing => "UNBOUNDED FOLLOWING".to_owned(),
    };
    let exclude = match frame.exclude {
        FrameExclusion::None => "",
        FrameExclusion::CurrentRow => " EXCLUDE CURRENT ROW",
        FrameExclusion::Group => " EXCLUDE GROUP",
        FrameExclusion::Ties => " EXCLUDE TIES",
    };
    format!("{unit} {} TO {}{exclude}", bound(&frame.start), bound(&frame.end))
}

fn join_name(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "Inner",
        JoinKind::Left => "Left",
        JoinKind::Right => "Right",
        JoinKind::Full => "Full",
    }
}

fn apply_text(kind: &Apply) -> String {
    match kind {
        Apply::Lateral { kind, on } => match on {
            Some(on) => format!("Lateral {} on {}", join_name(*kind), expression_text(on)),
            None => format!("Lateral {}", join_name(*kind)),
        },
        Apply::Scalar { output, value, .. } => format!("{} = value {}", id(output), id(value)),
        Apply::Row { columns } => list(columns, |(output, value, _)| {
            format!("{} = value {}", id(output), id(value))
        }),
        Apply::Exists { output } => format!("{} = exists", id(output)),
        Apply::Quantified { output, test, all } => {
            let quantifier = if *all { "all" } else { "any" };
            format!("{} = {quantifier} {}", id(output), expression_text(test))
        }
        Apply::Array { output, value, .. } => format!("{} = array {}", id(output), id(value)),
    }
}

/// The line of the relation itself.
fn head(relation: &Relation) -> String {
    let typed = |columns: &[(ColumnId, SqlType)]| {
        list(columns, |(column, ty)| format!("{} {}", id(column), ty.name()))
    };
    match relation {
        Relation::One => "One".to_owned(),
        Relation::Values { columns, rows } => format!(
            "Values {}: {}",
            typed(columns),
            list(rows, |row| format!("({})", list(row, expression_text)))
        ),
        Relation::Scan(scan) => scan_text(scan),
        Relation::Given { columns, step: None } => format!("Given {}", typed(columns)),
        Relation::Given {
            columns,
            step: Some(number),
        } => format!("Step {number} {}", typed(columns)),
        Relation::System {
            schema,
            name,
            columns,
        } => {
            let columns = list(columns, |(place, column, _)| format!("{} {place}", id(column)));
            format!("System {schema}.{name} [{columns}]")
        }
        Relation::Recursive(recursive) => format!(
            "Recursive {}{} {}",
            recursive.number,
            if recursive.all { " all" } else { "" },
            typed(&recursive.columns)
        ),
        Relation::Shared { number, columns } | Relation::Working { number, columns, .. } => {
            let kind = if matches!(relation, Relation::Shared { .. }) {
                "Shared"
            } else {
                "Working"
            };
            let columns = list(columns, |(source, column, _)| {
                format!("{} = {}", id(column), id(source))
            });
            format!("{kind} {number} [{columns}]")
        }
        Relation::Functions {
            calls,
            ordinality,
            keep,
            ..
        } => {
            let number =
                ordinality.map_or_else(String::new, |column| format!(", {} = ordinality", id(&column)));
            let keep = if *keep { " keep" } else { "" };
            format!("Functions{keep} {}{number}", list(calls, set_call))
        }
        Relation::Project { items, .. } => format!("Project {}", made(items)),
        Relation::Filter { predicate, .. } => format!("Filter {}", expression_text(predicate)),
        Relation::Join { kind, on, .. } => match on {
            Some(on) => format!("{} Join on {}", join_name(*kind), expression_text(on)),
            None => format!("{} Join", join_name(*kind)),
        },
        Relation::Apply { kind, .. } => format!("Apply {}", apply_text(kind)),
        Relation::Aggregate {
            groups,
            sets,
            grouping,
            calls,
            ..
        } => aggregate_text(groups, sets, grouping, calls),
        Relation::Window { calls, .. } => format!("Window {}", list(calls, window_call)),
        Relation::Distinct { on: None, .. } => "Distinct".to_owned(),
        Relation::Distinct { on: Some(on), .. } => format!("Distinct on {}", list(on, id)),
        Relation::Sort { keys: by, .. } => format!("Sort {}", keys(by)),
        Relation::Limit {
            count, offset, ties, ..
        } => limit_text(count.as_ref(), offset.as_ref(), ties.as_deref()),
        Relation::Set { op, all, columns, .. } => {
            let op = match op {
                SetOp::Union => "Union",
                SetOp::Intersect => "Intersect",
                SetOp::Except => "Except",
            };
            let columns = list(columns, |(column, ty, sources)| {
                format!(
                    "{} {} = {}",
                    id(column),
                    ty.name(),
                    list(sources, id).replace(", ", "|")
                )
            });
            format!("{op}{} {columns}", if *all { " all" } else { "" })
        }
    }
}

fn scan_text(scan: &Scan) -> String {
    let columns = list(&scan.columns, |(place, column, _)| {
        let name = scan
            .table
            .columns
            .get(*place)
            .map_or("?", |column| column.name.as_str());
        format!("{} {name}", id(column))
    });
    let hidden = scan.hidden.map_or_else(String::new, |(handle, bytes)| {
        format!(" handle {} bytes {}", id(&handle), id(&bytes))
    });
    let target = if scan.target { " target" } else { "" };
    let alias = match scan.alias == scan.table.name {
        true => String::new(),
        false => format!(" as {}", scan.alias),
    };
    format!("Scan {}{alias} [{columns}]{hidden}{target}", scan.table.name)
}

fn aggregate_text(
    groups: &[(ColumnId, Expr)],
    sets: &[Vec<usize>],
    grouping: &[(ColumnId, Vec<usize>)],
    calls: &[AggregateCall],
) -> String {
    let mut text = format!("Aggregate by ({})", made(groups));
    if !sets.is_empty() {
        let sets = list(sets, |set| format!("({})", list(set, ToString::to_string)));
        let _ = write!(text, " sets {sets}");
    }
    for (column, places) in grouping {
        let _ = write!(
            text,
            " {} = grouping({})",
            id(column),
            list(places, ToString::to_string)
        );
    }
    if !calls.is_empty() {
        let _ = write!(text, ": {}", list(calls, aggregate_call));
    }
    text
}

fn limit_text(count: Option<&Expr>, offset: Option<&Expr>, ties: Option<&[SortKey]>) -> String {
    let mut text = "Limit".to_owned();
    if let Some(count) = count {
        let _ = write!(text, " {}", expression_text(count));
    }
    if let Some(offset) = offset {
        let _ = write!(text, " offset {}", expression_text(offset));
    }
    if let Some(ties) = ties {
        let _ = write!(text, " with ties {}", keys(ties));
    }
    text
}

/// Writes a relation and its inputs; iterative.
fn write_tree(f: &mut Formatter<'_>, relation: &Relation, depth: usize) -> fmt::Result {
    let mut stack = vec![(relation, depth)];
    while let Some((relation, depth)) = stack.pop() {
        writeln!(f, "{:indent$}{}", "", head(relation), indent = 2 * depth)?;
        stack.extend(
            relation
                .inputs()
                .into_iter()
                .rev()
                .map(|input| (input, depth + 1)),
        );
    }
    Ok(())
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_tree(f, self, 0)
    }
}

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let output = list(&self.output, |output| {
            format!("{} {} {}", output.name, id(&output.column), output.ty.name())
        });
        writeln!(f, "Output {output}")?;
        write_tree(f, &self.relation, 1)?;
        for (number, shared) in self.shared.iter().enumerate() {
            writeln!(f, "Shared {number} {}", shared.name)?;
            match &shared.body {
                SharedBody::Plain(relation) => write_tree(f, relation, 1)?,
                SharedBody::Recursive { start, term, all, .. } => {
                    write_tree(f, start, 1)?;
                    writeln!(f, "  Term{}", if *all { " all" } else { "" })?;
                    write_tree(f, term, 1)?;
                }
            }
        }
        for step in &self.steps {
            write!(
                f,
                "Before it, step {} locks rows of:\n{}",
                step.number, step.locked.rows
            )?;
        }
        Ok(())
    }
}

impl Display for Modify {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names = list(&self.columns, |place| {
            let column = self.table.columns.get(*place);
            column.map_or_else(|| "?".to_owned(), |column| column.name.clone())
        });
        writeln!(
            f,
            "{:?} {} ({names}) carried {}",
            self.kind, self.table.name, self.carried
        )?;
        write!(f, "{}", self.rows)?;
        if let Some(returning) = &self.returning {
            write!(f, "Returning\n{returning}")?;
        }
        Ok(())
    }
}
