//! Compiles typed expressions to steps.
//!
//! Nodes and their steps are in post-order. Actions before or after a whole argument are recorded at the
//! argument's first and last node, from the root down, so that outer actions enclose inner ones.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use weft_expression::{ColumnId, Expr, Node, Op, Volatility};
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlType, Value};

use super::kernels::{self, Kernel};
use super::machine::{Step, parameter};
use crate::arrays::array_of_values;
use crate::schema::{DECIMAL_DIGITS, arrow_type};
use crate::session::ExecutionContext;

/// A compiled expression.
pub(super) struct Compiled {
    pub(super) steps: Vec<Step>,
    pub(super) registers: usize,
    pub(super) once: usize,
    pub(super) data_type: DataType,
}

/// An action before or after an argument.
#[derive(Clone)]
enum Mark {
    Open,
    Narrow(usize),
    Test(usize),
    Take,
    TakeNotNull,
    TakeTruth(bool),
    Store(usize),
    Once(usize, usize),
    OnceEnd(usize),
    Label(usize),
}

struct Compiler<'a> {
    expr: &'a Expr,
    before: HashMap<usize, Vec<Mark>>,
    /// In reverse order.
    after: HashMap<usize, Vec<Mark>>,
    /// Step numbers of the labels.
    labels: Vec<usize>,
    registers: usize,
    once: usize,
    /// The register that each [`Op::CaseOperand`] reads.
    operands: HashMap<usize, usize>,
    /// Arguments of AND and OR that are evaluated for all rows.
    strict: Vec<bool>,
}

/// `summed`: the values are only added up.
pub(super) fn compile(
    expr: &Expr,
    inputs: &[(ColumnId, DataType)],
    context: &Arc<ExecutionContext>,
    summed: bool,
) -> Result<Compiled, SqlError> {
    let facts = facts(expr);
    let mut compiler = Compiler {
        expr,
        before: HashMap::new(),
        after: HashMap::new(),
        labels: Vec::new(),
        registers: 0,
        once: 0,
        operands: HashMap::new(),
        strict: vec![false; expr.nodes().len()],
    };
    compiler.mark(&facts);
    let places = inputs
        .iter()
        .enumerate()
        .map(|(at, (id, data_type))| (*id, (at, data_type)))
        .collect();
    compiler.emit(&places, context, summed)
}

/// Properties of the expression that ends at a node.
#[derive(Clone, Copy)]
struct Facts {
    /// Its value is the same for all rows.
    constant: bool,
    /// It cannot fail and costs no more than narrowing.
    cheap: bool,
}

fn facts(expr: &Expr) -> Vec<Facts> {
    let mut facts: Vec<Facts> = Vec::with_capacity(expr.nodes().len());
    for (at, node) in expr.nodes().iter().enumerate() {
        let mut own = own_facts(node);
        let mut end = at;
        for _ in 0..node.arity {
            end -= 1;
            if let Some(argument) = facts.get(end) {
                own.constant &= argument.constant;
                own.cheap &= argument.cheap;
            }
            end = (end + 1).saturating_sub(expr.nodes().get(end).map_or(1, |node| node.size as usize));
        }
        facts.push(own);
    }
    facts
}

fn own_facts(node: &Node) -> Facts {
    let (constant, cheap) = match &node.op {
        Op::Column(_) | Op::CaseOperand => (false, true),
        Op::Constant(_) | Op::Parameter(_) => (true, true),
        Op::Call(entry) => (entry.volatility != Volatility::Volatile, false),
        Op::Cast { from, .. } => (true, kernels::is_free_cast(from, &node.ty)),
        Op::Compare(_)
        | Op::IsDistinct
        | Op::Not
        | Op::And
        | Op::Or
        | Op::IsNull
        | Op::IsTruth(_)
        | Op::NullIf
        | Op::InList { .. } => (true, true),
        _ => (true, false),
    };
    Facts { constant, cheap }
}

impl Compiler<'_> {
    fn label(&mut self) -> usize {
        self.labels.push(0);
        self.labels.len() - 1
    }

    fn before(&mut self, root: usize, mark: Mark) {
        let size = self.expr.nodes().get(root).map_or(1, |node| node.size as usize);
        self.before.entry(root + 1 - size).or_default().push(mark);
    }

    /// Adds actions after the argument that ends at `root`, in order, before those of outer nodes.
    fn after(&mut self, root: usize, marks: impl DoubleEndedIterator<Item = Mark>) {
        self.after.entry(root).or_default().extend(marks.rev());
    }

    /// Records the actions around arguments, outer nodes first.
    fn mark(&mut self, facts: &[Facts]) {
        // The CASEs with an operand around the current node, innermost last: the node at which the CASE
        // begins, and its register.
        let nodes = self.expr.nodes();
        let mut cases: Vec<(usize, usize)> = Vec::new();
        let mut once_from = nodes.len();
        for at in (0..nodes.len()).rev() {
            let Some(node) = nodes.get(at) else { break };
            while cases.last().is_some_and(|(first, _)| at < *first) {
                cases.pop();
            }
            let constant = facts.get(at).is_some_and(|facts| facts.constant);
            let first = at + 1 - node.size as usize;
            if constant && node.size > 1 && at < once_from {
                once_from = first;
                let (slot, label) = (self.once, self.label());
                self.once += 1;
                self.before(at, Mark::Once(slot, label));
                self.after(at, [Mark::OnceEnd(slot), Mark::Label(label)].into_iter());
            }
            match &node.op {
                Op::And | Op::Or => self.mark_truth(at, &node.op, facts),
                Op::Coalesce => self.mark_coalesce(at),
                Op::Case { operand } => {
                    if let Some(case) = self.mark_case(at, *operand) {
                        cases.push(case);
                    }
                }
                Op::CaseOperand => {
                    if let Some((_, register)) = cases.last() {
                        self.operands.insert(at, *register);
                    }
                }
                _ => {}
            }
        }
    }

    fn mark_truth(&mut self, at: usize, op: &Op, facts: &[Facts]) {
        let roots = self.expr.argument_roots(at);
        let cheap = |root: &usize| facts.get(*root).is_some_and(|facts| facts.cheap);
        if roots.iter().skip(1).all(cheap) {
            if let Some(strict) = self.strict.get_mut(at) {
                *strict = true;
            }
            return;
        }
        let end = self.label();
        let decides = matches!(op, Op::Or);
        let last = roots.len().saturating_sub(1);
        for (number, root) in roots.into_iter().enumerate() {
            if number == 0 {
                self.before(root, Mark::Open);
            }
            self.before(root, Mark::Narrow(end));
            let closing = (number == last).then_some(Mark::Label(end));
            self.after(root, [Mark::TakeTruth(decides)].into_iter().chain(closing));
        }
    }

    fn mark_coalesce(&mut self, at: usize) {
        let end = self.label();
        let roots = self.expr.argument_roots(at);
        let last = roots.len().saturating_sub(1);
        for (number, root) in roots.into_iter().enumerate() {
            if number == 0 {
                self.before(root, Mark::Open);
            }
            self.before(root, Mark::Narrow(end));
            let closing = (number == last).then_some(Mark::Label(end));
            self.after(root, [Mark::TakeNotNull].into_iter().chain(closing));
        }
    }

    /// The first node of a CASE's conditions and its operand's register, if it has an operand.
    fn mark_case(&mut self, at: usize, operand: bool) -> Option<(usize, usize)> {
        let mut roots = self.expr.argument_roots(at).into_iter();
        let mut case = None;
        if operand {
            let root = roots.next()?;
            let register = self.registers;
            self.registers += 1;
            self.after(root, [Mark::Store(register)].into_iter());
            case = Some((root + 1, register));
        }
        let arms: Vec<usize> = roots.collect();
        let end = self.label();
        let last = arms.len().saturating_sub(1);
        let mut skip = end;
        for (number, root) in arms.into_iter().enumerate() {
            if number == 0 {
                self.before(root, Mark::Open);
            }
            let closing = (number == last).then_some(Mark::Label(end));
            if number == last {
                // ELSE
                self.before(root, Mark::Narrow(end));
                self.after(root, [Mark::Take].into_iter().chain(closing));
            } else if number % 2 == 0 {
                skip = self.label();
                self.before(root, Mark::Narrow(end));
                self.after(root, [Mark::Test(skip)].into_iter());
            } else {
                self.after(root, [Mark::Take, Mark::Label(skip)].into_iter());
            }
        }
        case
    }

    /// Emits the steps in order.
    fn emit(
        mut self,
        places: &HashMap<ColumnId, (usize, &DataType)>,
        context: &Arc<ExecutionContext>,
        summed: bool,
    ) -> Result<Compiled, SqlError> {
        let mut steps = Vec::with_capacity(self.expr.nodes().len());
        let mut types: Vec<(SqlType, DataType)> = Vec::new();
        let mut registers = vec![DataType::Null; self.registers];
        let nodes = self.expr.nodes();
        let mut pace = Pace::default();
        for (at, node) in nodes.iter().enumerate() {
            pace.step(16)?;
            for mark in self.before.remove(&at).unwrap_or_default() {
                self.put(&mut steps, mark, None, &mut registers);
            }
            let arity = node.arity as usize;
            let first = types.len().checked_sub(arity).ok_or_else(misshapen)?;
            let arguments = types.split_off(first);
            let data_type = match &node.op {
                Op::Constant(value) => push_literal(&mut steps, value, &node.ty)?,
                Op::Parameter(number) if context.repeats() => {
                    let data_type = arrow_type(&node.ty);
                    steps.push(Step::Parameter(*number as usize, node.ty, data_type.clone()));
                    data_type
                }
                Op::Parameter(number) => {
                    let execution = context.execution();
                    push_literal(&mut steps, parameter(&execution, *number as usize)?, &node.ty)?
                }
                Op::Column(id) => {
                    let (place, data_type) = places
                        .get(id)
                        .ok_or_else(|| SqlError::internal(format!("column c{} is not there", id.0)))?;
                    steps.push(Step::Input(*place));
                    (*data_type).clone()
                }
                Op::CaseOperand => {
                    let register = self.operands.get(&at).copied().ok_or_else(misshapen)?;
                    steps.push(Step::Register(register));
                    registers.get(register).cloned().ok_or_else(misshapen)?
                }
                Op::And | Op::Or if !self.strict.get(at).copied().unwrap_or(false) => {
                    steps.push(Step::CloseTruth(matches!(node.op, Op::Or)));
                    DataType::Boolean
                }
                Op::Coalesce => push_close(&mut steps, node, arguments.iter()),
                Op::Case { operand } => {
                    let arms = arguments.get(usize::from(*operand)..).unwrap_or_default();
                    let last = arms.len().saturating_sub(1);
                    let values = arms.iter().enumerate().filter(|(n, _)| n % 2 == 1 || *n == last);
                    push_close(&mut steps, node, values.map(|(_, value)| value))
                }
                _ => {
                    let (kernel, data_type) = match summed && at + 1 == nodes.len() {
                        true => Kernel::choose_summed(node, &arguments)?,
                        false => Kernel::choose(node, &arguments)?,
                    };
                    steps.push(Step::Apply(Box::new(kernel), arity));
                    data_type
                }
            };
            let marks = self.after.remove(&at).unwrap_or_default();
            for mark in marks.into_iter().rev() {
                self.put(&mut steps, mark, Some(&data_type), &mut registers);
            }
            types.push((node.ty, data_type));
        }
        self.resolve(&mut steps);
        let (_, data_type) = types.pop().ok_or_else(misshapen)?;
        Ok(Compiled {
            steps,
            registers: self.registers,
            once: self.once,
            data_type,
        })
    }

    fn put(
        &mut self,
        steps: &mut Vec<Step>,
        mark: Mark,
        data_type: Option<&DataType>,
        registers: &mut [DataType],
    ) {
        steps.push(match mark {
            Mark::Open => Step::Open,
            Mark::Narrow(label) => Step::Narrow(label),
            Mark::Test(label) => Step::Test(label),
            Mark::Take => Step::Take,
            Mark::TakeNotNull => Step::TakeNotNull,
            Mark::TakeTruth(decides) => Step::TakeTruth(decides),
            Mark::Once(slot, label) => Step::Once(slot, label),
            Mark::OnceEnd(slot) => Step::OnceEnd(slot),
            Mark::Store(register) => {
                if let (Some(slot), Some(data_type)) = (registers.get_mut(register), data_type) {
                    *slot = data_type.clone();
                }
                Step::Store(register)
            }
            Mark::Label(label) => {
                if let Some(place) = self.labels.get_mut(label) {
                    *place = steps.len();
                }
                return;
            }
        });
    }

    /// Replaces labels by step numbers.
    fn resolve(&self, steps: &mut [Step]) {
        for step in steps {
            if let Step::Once(_, label) | Step::Narrow(label) | Step::Test(label) = step {
                *label = self.labels.get(*label).copied().unwrap_or(usize::MAX);
            }
        }
    }
}

fn push_literal(steps: &mut Vec<Step>, value: &Value, ty: &SqlType) -> Result<DataType, SqlError> {
    let data_type = literal_type(value, ty);
    let array = array_of_values(std::slice::from_ref(value), ty, &data_type)?;
    steps.push(Step::Literal(array));
    Ok(data_type)
}

/// The smallest decimal type for a constant, so that it takes part in decimal arithmetic.
fn literal_type(value: &Value, ty: &SqlType) -> DataType {
    match value {
        Value::Numeric(number) => {
            let Some((mantissa, scale)) = number.small_parts() else {
                return arrow_type(ty);
            };
            let digits = mantissa.unsigned_abs().checked_ilog10().map_or(1, |log| log + 1);
            match (u8::try_from(digits.max(u32::from(scale))), i8::try_from(scale)) {
                (Ok(precision), Ok(scale)) if precision <= DECIMAL_DIGITS => {
                    DataType::Decimal128(precision, scale)
                }
                _ => arrow_type(ty),
            }
        }
        _ => arrow_type(ty),
    }
}

/// Ends a choice between values: their Arrow types agree or are converted.
fn push_close<'t>(
    steps: &mut Vec<Step>,
    node: &Node,
    values: impl Iterator<Item = &'t (SqlType, DataType)>,
) -> DataType {
    let mut common: Option<DataType> = None;
    for (_, data_type) in values {
        common = Some(match (common, data_type) {
            (None, found) => found.clone(),
            (Some(DataType::Decimal128(p, s)), DataType::Decimal128(q, t)) if s == *t => {
                DataType::Decimal128(p.max(*q), s)
            }
            (Some(common), found) if common == *found => common,
            _ => arrow_type(&node.ty),
        });
    }
    let data_type = common.unwrap_or_else(|| arrow_type(&node.ty));
    steps.push(Step::Close(node.ty, data_type.clone()));
    data_type
}

fn misshapen() -> SqlError {
    SqlError::internal("an expression is misshapen")
}
