//! The syntax tree of a procedure's body. Expressions and SQL statements are sqlparser's; the
//! compiler resolves names.

use sqlparser::ast;
use weft_program::{ErrorField, Level};
use weft_types::SqlType;

/// `DECLARE ... BEGIN ... END`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Line in the body, from 1.
    pub(crate) line: u32,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) statements: Vec<Statement>,
    /// EXCEPTION.
    pub(crate) handlers: Vec<Handler>,
}

/// `WHEN condition [OR condition ...] THEN statements`
#[derive(Clone, Debug)]
pub(crate) struct Handler {
    pub(crate) line: u32,
    pub(crate) text: String,
    /// Prefixes of SQLSTATEs; an empty one is OTHERS.
    pub(crate) states: Vec<String>,
    pub(crate) body: Vec<Statement>,
}

/// An arm of CASE.
#[derive(Clone, Debug)]
pub(crate) struct CaseArm {
    /// Values of the operand, or one condition.
    pub(crate) values: Vec<ast::Expr>,
    pub(crate) body: Vec<Statement>,
}

/// One declaration of a DECLARE section.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    /// Line in the body, from 1.
    pub(crate) line: u32,
    pub(crate) name: String,
    /// `None`: RECORD, whose columns depend on its use.
    pub(crate) ty: Option<TypeName>,
    pub(crate) constant: bool,
    pub(crate) not_null: bool,
    pub(crate) default: Option<ast::Expr>,
}

/// A type in a declaration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TypeName {
    Known(SqlType),
    /// `table.column%TYPE`, `variable%TYPE`
    Like(Vec<String>),
    /// `table%ROWTYPE`
    Row(Vec<String>),
}

/// `name` or `record.field`.
pub(crate) type Target = Vec<String>;

/// One statement with its position.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// Line in the body, from 1.
    pub(crate) line: u32,
    /// The text, for listings: one line, truncated if it is long.
    pub(crate) text: String,
    pub(crate) kind: Kind,
}

/// RAISE.
#[derive(Clone, Debug)]
pub(crate) struct Raise {
    /// `None`: EXCEPTION. Lower levels do not affect the transaction.
    pub(crate) level: Option<Level>,
    /// The five characters; `None` if not given.
    pub(crate) state: Option<String>,
    pub(crate) message: Message,
    pub(crate) arguments: Vec<ast::Expr>,
    /// USING, except ERRCODE and MESSAGE.
    pub(crate) options: Vec<(ErrorField, ast::Expr)>,
}

/// The message of RAISE.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// None: raises the error being handled again.
    Again,
    /// A format with `%` for the arguments.
    Format(String),
    /// USING MESSAGE.
    Computed(Box<ast::Expr>),
    /// The message of ASSERT, unless it is NULL.
    Asserted(Box<ast::Expr>),
}

/// `[REVERSE] from..to [BY step]`
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub(crate) from: ast::Expr,
    pub(crate) to: ast::Expr,
    pub(crate) step: Option<ast::Expr>,
    pub(crate) reverse: bool,
}

/// The rows or numbers over which a FOR loop iterates.
#[derive(Clone, Debug)]
pub(crate) enum Over {
    Numbers(Box<Numbers>),
    Rows(Box<ast::Statement>),
}

/// INTO.
#[derive(Clone, Debug)]
pub(crate) struct Into {
    pub(crate) strict: bool,
    pub(crate) targets: Vec<Target>,
}

/// The action of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Block(Block),
    Assign {
        target: Target,
        value: ast::Expr,
    },
    If {
        arms: Vec<(ast::Expr, Vec<Statement>)>,
        otherwise: Vec<Statement>,
    },
    Loop {
        label: Option<String>,
        body: Vec<Statement>,
    },
    While {
        label: Option<String>,
        condition: ast::Expr,
        body: Vec<Statement>,
    },
    For {
        label: Option<String>,
        targets: Vec<Target>,
        over: Over,
        body: Vec<Statement>,
    },
    Leave {
        /// EXIT rather than CONTINUE.
        exit: bool,
        label: Option<String>,
        when: Option<ast::Expr>,
    },
    /// CASE.
    Case {
        operand: Option<ast::Expr>,
        arms: Vec<CaseArm>,
        otherwise: Option<Vec<Statement>>,
    },
    /// ASSERT.
    Assert {
        condition: Box<ast::Expr>,
        message: Option<Box<ast::Expr>>,
    },
    /// GET DIAGNOSTICS: variables and items.
    Diagnostics {
        /// Of the error being handled.
        stacked: bool,
        items: Vec<(Target, Diagnostic)>,
    },
    Return,
    Null,
    Raise(Raise),
    Sql {
        statement: Box<ast::Statement>,
        into: Option<Into>,
        /// Whether rows without INTO are discarded: PERFORM, and statements in LANGUAGE sql.
        discards: bool,
    },
    Call {
        name: Vec<String>,
        arguments: Vec<ast::Expr>,
    },
}

/// An item of GET DIAGNOSTICS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Diagnostic {
    /// The row count of the last statement.
    RowCount,
    /// A field of the error.
    Error(ErrorField),
}

impl Block {
    /// Calls `see` for every statement, nested ones included.
    pub(crate) fn visit<'t>(&'t self, see: &mut impl FnMut(&'t Statement)) {
        visit(&self.statements, see);
        for handler in &self.handlers {
            visit(&handler.body, see);
        }
    }
}

/// Calls `see` for every statement of a list, nested ones included.
pub(crate) fn visit<'t>(statements: &'t [Statement], see: &mut impl FnMut(&'t Statement)) {
    for statement in statements {
        see(statement);
        match &statement.kind {
            Kind::Block(block) => block.visit(see),
            Kind::If { arms, otherwise } => {
                for (_, body) in arms {
                    visit(body, see);
                }
                visit(otherwise, see);
            }
            Kind::Case { arms, otherwise, .. } => {
                for arm in arms {
                    visit(&arm.body, see);
                }
                visit(otherwise.as_deref().unwrap_or_default(), see);
            }
            Kind::Loop { body, .. } | Kind::While { body, .. } | Kind::For { body, .. } => visit(body, see),
            _ => {}
        }
    }
}
