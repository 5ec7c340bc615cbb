//! Compilation of an expression to steps.

use std::cmp::Ordering;

use weft_types::{SqlError, SqlType, Value, compare};

use crate::category::is_relabel;
use crate::tree::{ColumnId, Expr, Node, Op};

/// The number of IN items from which a binary search replaces comparing them in turn.
const SET_ITEMS_MIN: usize = 8;

/// An expression compiled for evaluation over many rows.
#[derive(Clone, Debug)]
pub struct Compiled {
    pub(super) steps: Vec<Step>,
    /// Maximum stack depth, approximately.
    pub(super) depth: usize,
}

/// The constant items of IN, sorted.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub items: Vec<Value>,
    pub has_null: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Push a constant.
    Constant(Value),
    /// Push a parameter.
    Parameter(u32),
    /// Push a column of the row.
    Column(usize),
    /// Pop `arity` values, push the operation's result.
    Apply { op: Op, ty: SqlType, arity: usize },
    /// Jump to a step.
    Jump(usize),
    /// Jump if the top of the stack is this truth value.
    JumpIfTruth(bool, usize),
    /// Jump if the top of the stack is not NULL; otherwise pop it.
    JumpIfValue(usize),
    /// Pop a value; jump unless it is true.
    JumpUnlessTrue(usize),
    /// Pop two truth values, push their AND.
    MergeAnd,
    /// Pop two truth values, push their OR.
    MergeOr,
    /// Pop the operand of a CASE into a slot.
    Store(usize),
    /// Push the operand from a slot.
    Load(usize),
    /// Pop values of these types, push their record.
    Record(Vec<SqlType>),
    /// Pop a value, push whether it is in the set.
    InSet { set: Box<Set>, negated: bool },
}

impl Step {
    fn set_target(&mut self, to: usize) {
        match self {
            Step::Jump(target)
            | Step::JumpIfTruth(_, target)
            | Step::JumpIfValue(target)
            | Step::JumpUnlessTrue(target) => *target = to,
            _ => {}
        }
    }
}

/// What is emitted after the steps of an argument.
#[derive(Clone, Copy)]
enum Role {
    /// Nothing.
    Plain,
    /// An argument of an AND (decided by false) or OR (decided by true), `parent`; whether it is
    /// the first or last.
    Logic {
        parent: usize,
        decides: bool,
        first: bool,
        last: bool,
    },
    /// COALESCE.
    Coalesce { parent: usize },
    /// CASE operand.
    Operand { parent: usize },
    /// CASE condition.
    Condition { parent: usize },
    /// CASE value.
    Arm { parent: usize },
    /// An item of a set: no steps.
    Item,
}

struct Compiler<'e> {
    expr: &'e Expr,
    roles: Vec<Role>,
    /// The operand's slot, for nodes that are CASE or a reference to its operand.
    slots: Vec<usize>,
    /// Jumps to the end of each node.
    ends: Vec<Vec<usize>>,
    /// The jump past the value being computed, for nodes that are CASE.
    skips: Vec<usize>,
    steps: Vec<Step>,
}

impl Compiled {
    /// Compiles the expression. `position` maps a column to its position in the row.
    ///
    /// # Errors
    /// XX000 if a column is not in the row.
    pub fn new(expr: &Expr, position: &dyn Fn(ColumnId) -> Option<usize>) -> Result<Compiled, SqlError> {
        let count = expr.nodes().len();
        let mut compiler = Compiler {
            expr,
            roles: vec![Role::Plain; count],
            slots: operand_slots(expr),
            ends: vec![Vec::new(); count],
            skips: vec![0; count],
            steps: Vec::with_capacity(count),
        };
        for at in 0..count {
            compiler.assign_roles(at);
        }
        for (at, node) in expr.nodes().iter().enumerate() {
            let Some(role) = compiler.roles.get(at).copied() else {
                continue;
            };
            if matches!(role, Role::Item) {
                continue;
            }
            compiler.node(at, node, position)?;
            compiler.after(role);
        }
        let depth = compiler.steps.len().min(16);
        Ok(Compiled {
            steps: compiler.steps,
            depth,
        })
    }

    /// The constant, if the only step pushes one.
    #[must_use]
    pub fn as_constant(&self) -> Option<&Value> {
        match &self.steps[..] {
            [Step::Constant(value)] => Some(value),
            _ => None,
        }
    }
}

/// The slot in which each CASE stores its operand and from which each reference loads it.
fn operand_slots(expr: &Expr) -> Vec<usize> {
    let nodes = expr.nodes();
    let mut slots = vec![0; nodes.len()];
    // The enclosing CASEs: the last node of the operand, and the slot.
    let mut around: Vec<(usize, usize)> = Vec::new();
    for (at, node) in nodes.iter().enumerate().rev() {
        // The operand itself is not inside the CASE.
        while around.last().is_some_and(|(operand, _)| at <= *operand) {
            around.pop();
        }
        let slot = match node.op {
            Op::Case { operand: true } => {
                let slot = around.len();
                if let Some(operand) = expr.argument_roots(at).first() {
                    around.push((*operand, slot));
                }
                slot
            }
            Op::CaseOperand => around.last().map_or(0, |(_, slot)| *slot),
            _ => 0,
        };
        if let Some(place) = slots.get_mut(at) {
            *place = slot;
        }
    }
    slots
}

impl Compiler<'_> {
    fn assign_roles(&mut self, at: usize) {
        let Some(node) = self.expr.nodes().get(at) else {
            return;
        };
        let parent = at;
        match node.op {
            Op::And | Op::Or | Op::Coalesce | Op::Case { .. } => {
                let roots = self.expr.argument_roots(at);
                let count = roots.len();
                for (number, root) in roots.into_iter().enumerate() {
                    let last = number + 1 == count;
                    let role = match node.op {
                        Op::And | Op::Or => Role::Logic {
                            parent,
                            decides: node.op == Op::Or,
                            first: number == 0,
                            last,
                        },
                        _ if last => Role::Plain,
                        Op::Coalesce => Role::Coalesce { parent },
                        Op::Case { operand: true } if number == 0 => Role::Operand { parent },
                        Op::Case { operand } if (number + usize::from(operand)) % 2 == 0 => {
                            Role::Condition { parent }
                        }
                        _ => Role::Arm { parent },
                    };
                    if let Some(place) = self.roles.get_mut(root) {
                        *place = role;
                    }
                }
            }
            Op::InList { .. }
                if node.arity as usize > SET_ITEMS_MIN && self.items_are_constants(at, node) =>
            {
                for place in at + 1 - node.arity as usize..at {
                    if let Some(role) = self.roles.get_mut(place) {
                        *role = Role::Item;
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether all items of IN are constants; they are then the nodes right before it.
    fn items_are_constants(&self, at: usize, node: &Node) -> bool {
        let start = at + 1 - (node.arity as usize).min(at);
        let items = self.expr.nodes().get(start..at).unwrap_or(&[]);
        items.iter().all(|item| matches!(item.op, Op::Constant(_)))
    }

    fn node(
        &mut self,
        at: usize,
        node: &Node,
        position: &dyn Fn(ColumnId) -> Option<usize>,
    ) -> Result<(), SqlError> {
        let step = match &node.op {
            Op::Constant(value) => Step::Constant(value.clone()),
            Op::Parameter(number) => Step::Parameter(*number),
            Op::Column(id) => {
                let found = position(*id);
                Step::Column(
                    found.ok_or_else(|| SqlError::internal(format!("column {} is not in the row", id.0)))?,
                )
            }
            Op::CaseOperand => Step::Load(self.slots.get(at).copied().unwrap_or(0)),
            Op::And | Op::Or | Op::Coalesce | Op::Case { .. } => {
                let end = self.steps.len();
                for jump in self.ends.get_mut(at).map(std::mem::take).unwrap_or_default() {
                    if let Some(step) = self.steps.get_mut(jump) {
                        step.set_target(end);
                    }
                }
                return Ok(());
            }
            Op::Cast { from, .. } if is_relabel(from, &node.ty) => return Ok(()),
            Op::InList { negated }
                if matches!(
                    at.checked_sub(1).and_then(|last| self.roles.get(last)),
                    Some(Role::Item)
                ) =>
            {
                Step::InSet {
                    set: Box::new(self.set(at, node)),
                    negated: *negated,
                }
            }
            Op::Row => {
                let roots = self.expr.argument_roots(at);
                let types = roots.into_iter().filter_map(|root| self.expr.nodes().get(root));
                Step::Record(types.map(|node| node.ty).collect())
            }
            op => Step::Apply {
                op: op.clone(),
                ty: node.ty,
                arity: node.arity as usize,
            },
        };
        self.steps.push(step);
        Ok(())
    }

    fn set(&self, at: usize, node: &Node) -> Set {
        let start = at + 1 - node.arity as usize;
        let nodes = self.expr.nodes().get(start..at).unwrap_or(&[]);
        let mut has_null = false;
        let mut items = Vec::with_capacity(nodes.len());
        for node in nodes {
            match &node.op {
                Op::Constant(Value::Null) => has_null = true,
                Op::Constant(value) => items.push(value.clone()),
                _ => {}
            }
        }
        items.sort_by(|a, b| compare(a, b).unwrap_or(Ordering::Equal));
        items.dedup_by(|a, b| compare(a, b) == Some(Ordering::Equal));
        Set { items, has_null }
    }

    fn jump_to_end(&mut self, parent: usize, step: Step) {
        if let Some(ends) = self.ends.get_mut(parent) {
            ends.push(self.steps.len());
        }
        self.steps.push(step);
    }

    fn after(&mut self, role: Role) {
        match role {
            Role::Plain | Role::Item => {}
            Role::Logic {
                parent,
                decides,
                first,
                last,
            } => {
                if !first {
                    self.steps
                        .push(if decides { Step::MergeOr } else { Step::MergeAnd });
                }
                if !last {
                    self.jump_to_end(parent, Step::JumpIfTruth(decides, 0));
                }
            }
            Role::Coalesce { parent } => self.jump_to_end(parent, Step::JumpIfValue(0)),
            Role::Operand { parent } => {
                let slot = self.slots.get(parent).copied().unwrap_or(0);
                self.steps.push(Step::Store(slot));
            }
            Role::Condition { parent } => {
                if let Some(skip) = self.skips.get_mut(parent) {
                    *skip = self.steps.len();
                }
                self.steps.push(Step::JumpUnlessTrue(0));
            }
            Role::Arm { parent } => {
                self.jump_to_end(parent, Step::Jump(0));
                let next = self.steps.len();
                let skip = self.skips.get(parent).copied().unwrap_or(0);
                if let Some(step) = self.steps.get_mut(skip) {
                    step.set_target(next);
                }
            }
        }
    }
}
