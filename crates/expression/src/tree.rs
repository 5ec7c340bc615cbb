//! A typed expression.
//!
//! [`Expr`] keeps its nodes in post-order in one vector, the root last: a node's arguments precede it, the
//! last one directly. There are no boxes, so an expression of any depth is built, visited, compared, cloned
//! and dropped without recursion.
//!
//! Invariants:
//! 1. Every node has a type; every conversion is a separate node ([`Op::Cast`]).
//! 2. `size` of a node is 1 plus the sizes of its `arity` arguments.

use std::cmp::Ordering;

use weft_types::{SqlType, Value};

use crate::table::Entry;

/// A column of a relation of a statement, unique within the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnId(pub u32);

/// Comparison of two values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl CompareOp {
    /// The operator with its operands swapped.
    #[must_use]
    pub fn mirrored(self) -> Self {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::Le => CompareOp::Ge,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Le,
            same => same,
        }
    }

    /// The SQL symbol.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            CompareOp::Eq => "=",
            CompareOp::Ne => "<>",
            CompareOp::Lt => "<",
            CompareOp::Le => "<=",
            CompareOp::Gt => ">",
            CompareOp::Ge => ">=",
        }
    }

    /// Whether the operands' order satisfies it.
    #[must_use]
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Ne => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Le => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Ge => order.is_ge(),
        }
    }
}

/// What a node computes from its arguments.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A value of the node's type; no arguments.
    Constant(Value),
    /// `$n`, from 0; no arguments.
    Parameter(u32),
    /// A column; no arguments.
    Column(ColumnId),
    /// A function or operator of the table.
    Call(&'static Entry),
    /// Converts one argument of type `from` to the node's type. An `explicit` cast truncates text that is
    /// too long; an assignment or implicit conversion rejects it.
    Cast {
        /// Type of the argument.
        from: SqlType,
        /// By CAST or `::`.
        explicit: bool,
    },
    /// Comparison of two arguments of one type; NULL if one is NULL.
    Compare(CompareOp),
    /// `IS DISTINCT FROM`, two arguments of one type; never NULL.
    IsDistinct,
    /// Comparison of two rows: the columns of the left row, then as many of the right, pairwise of one type.
    CompareRows(CompareOp),
    /// AND of two or more; arguments after one that is false are not evaluated.
    And,
    /// OR of two or more; arguments after one that is true are not evaluated.
    Or,
    /// NOT
    Not,
    /// IS NULL
    IsNull,
    /// IS TRUE (`true`) or IS FALSE; never NULL.
    IsTruth(bool),
    /// The first argument that is not NULL; those after it are not evaluated.
    Coalesce,
    /// The first argument unless the second, a condition over it, is true: `NULLIF(a, b)` with `a = b`
    /// written out.
    NullIf,
    /// The greatest argument, ignoring NULLs.
    Greatest,
    /// The least argument, ignoring NULLs.
    Least,
    /// CASE: with `operand` the operand first, then conditions and values in turn, the value of ELSE last.
    /// Conditions refer to the operand by [`Op::CaseOperand`].
    Case {
        /// CASE operand WHEN ...
        operand: bool,
    },
    /// The operand of the innermost enclosing CASE.
    CaseOperand,
    /// `IN (list)`: a value, then the items, all of one type; `NOT IN` if negated.
    InList {
        /// NOT IN
        negated: bool,
    },
    /// `value op ANY (array)` or `ALL`, by a comparison of the element type.
    CompareArray {
        /// The comparison.
        op: CompareOp,
        /// ALL
        all: bool,
    },
    /// `ARRAY[...]`, items of the array's element type (or arrays of its type: one dimension more).
    Array,
    /// `array[i][j]...`: the array, then subscripts of type integer.
    Subscript,
    /// `ROW(...)`
    Row,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// The type of its value.
    pub ty: SqlType,
    /// How many arguments it has.
    pub arity: u32,
    /// The number of nodes of the expression that ends here.
    pub size: u32,
}

/// A typed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    nodes: Vec<Node>,
}

impl Expr {
    /// An expression that is a single node without arguments.
    #[must_use]
    pub fn leaf(op: Op, ty: SqlType) -> Expr {
        Expr {
            nodes: vec![Node {
                op,
                ty,
                arity: 0,
                size: 1,
            }],
        }
    }

    /// A constant.
    #[must_use]
    pub fn constant(value: Value, ty: SqlType) -> Expr {
        Expr::leaf(Op::Constant(value), ty)
    }

    /// A column.
    #[must_use]
    pub fn column(id: ColumnId, ty: SqlType) -> Expr {
        Expr::leaf(Op::Column(id), ty)
    }

    /// An operation on arguments.
    #[must_use]
    pub fn new(op: Op, ty: SqlType, arguments: Vec<Expr>) -> Expr {
        let arity = arguments.len() as u32;
        let mut arguments = arguments.into_iter();
        // Reuses the first argument's vector, so that a left-deep chain is built in linear time.
        let mut nodes = arguments.next().map_or_else(Vec::new, |first| first.nodes);
        for argument in arguments {
            nodes.extend(argument.nodes);
        }
        let size = nodes.len() as u32 + 1;
        nodes.push(Node { op, ty, arity, size });
        Expr { nodes }
    }

    /// An operation on two arguments.
    #[must_use]
    pub fn binary(op: Op, ty: SqlType, left: Expr, right: Expr) -> Expr {
        let mut nodes = left.nodes;
        nodes.reserve(right.nodes.len() + 1);
        nodes.extend(right.nodes);
        let size = nodes.len() as u32 + 1;
        nodes.push(Node {
            op,
            ty,
            arity: 2,
            size,
        });
        Expr { nodes }
    }

    /// The expression of nodes in post-order with correct sizes.
    pub(crate) fn from_nodes(nodes: Vec<Node>) -> Expr {
        Expr { nodes }
    }

    /// All nodes in post-order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All nodes, for changing operations and types, but not arity, in place.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Node {
        // Never empty: both constructors push the root.
        &self.nodes[self.nodes.len() - 1]
    }

    /// The type of the value.
    #[must_use]
    pub fn ty(&self) -> SqlType {
        self.root().ty
    }

    /// The arguments of the root, as separate expressions.
    #[must_use]
    pub fn into_arguments(self) -> Vec<Expr> {
        let mut nodes = self.nodes;
        let Some(root) = nodes.pop() else {
            return Vec::new();
        };
        let mut arguments = Vec::with_capacity(root.arity as usize);
        for _ in 0..root.arity {
            let size = nodes.last().map_or(0, |node| node.size as usize);
            let rest = nodes.split_off(nodes.len() - size);
            arguments.push(Expr { nodes: rest });
        }
        arguments.reverse();
        arguments
    }

    /// The positions of the roots of the arguments of the node at `at`, in order.
    #[must_use]
    pub fn argument_roots(&self, at: usize) -> Vec<usize> {
        let mut roots = Vec::new();
        let mut end = at;
        for _ in 0..self.nodes.get(at).map_or(0, |node| node.arity) {
            end -= 1;
            roots.push(end);
            end -= self.nodes[end].size as usize - 1;
        }
        roots.reverse();
        roots
    }

    /// The column, if the expression is just that.
    #[must_use]
    pub fn as_column(&self) -> Option<ColumnId> {
        match &self.nodes[..] {
            [
                Node {
                    op: Op::Column(id), ..
                },
            ] => Some(*id),
            _ => None,
        }
    }

    /// The constant, if the expression is just that.
    #[must_use]
    pub fn as_constant(&self) -> Option<&Value> {
        match &self.nodes[..] {
            [
                Node {
                    op: Op::Constant(value),
                    ..
                },
            ] => Some(value),
            _ => None,
        }
    }

    /// The expression with subexpressions replaced: `replace` receives the nodes of each subexpression, the
    /// largest first, and returns the leaf that replaces it; a replaced subexpression is not visited
    /// further.
    ///
    /// # Errors
    /// The first error of `replace`.
    pub fn rewrite<E>(self, mut replace: impl FnMut(&[Node]) -> Result<Option<Node>, E>) -> Result<Expr, E> {
        let mut reversed: Vec<Node> = Vec::with_capacity(self.nodes.len());
        let mut end = self.nodes.len();
        while end > 0 {
            let size = self.nodes[end - 1].size as usize;
            match replace(&self.nodes[end - size..end])? {
                Some(leaf) => {
                    reversed.push(leaf);
                    end -= size;
                }
                None => {
                    reversed.push(self.nodes[end - 1].clone());
                    end -= 1;
                }
            }
        }
        reversed.reverse();
        let mut sizes: Vec<u32> = Vec::new();
        for node in &mut reversed {
            let first = sizes.len().saturating_sub(node.arity as usize);
            node.size = 1 + sizes.drain(first..).sum::<u32>();
            sizes.push(node.size);
        }
        Ok(Expr { nodes: reversed })
    }

    /// The expression with columns replaced by expressions.
    #[must_use]
    pub fn with_columns<'a>(&self, replace: impl Fn(ColumnId) -> Option<&'a Expr>) -> Expr {
        let mut nodes: Vec<Node> = Vec::with_capacity(self.nodes.len());
        let mut sizes: Vec<u32> = Vec::new();
        for node in &self.nodes {
            if let Op::Column(id) = node.op
                && let Some(expr) = replace(id)
            {
                nodes.extend_from_slice(&expr.nodes);
                sizes.push(u32::try_from(expr.nodes.len()).unwrap_or(u32::MAX));
                continue;
            }
            let mut node = node.clone();
            let first = sizes.len().saturating_sub(node.arity as usize);
            node.size = sizes.drain(first..).fold(1, u32::saturating_add);
            sizes.push(node.size);
            nodes.push(node);
        }
        Expr { nodes }
    }

    /// The columns that it references, with duplicates.
    pub fn columns(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.nodes.iter().filter_map(|node| match node.op {
            Op::Column(id) => Some(id),
            _ => None,
        })
    }
}
