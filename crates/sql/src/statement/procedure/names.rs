//! Names inside a procedure: parameters, variables, records, FOUND.
//!
//! A name that is never assigned and whose value is known before the program runs is replaced by that
//! value, so that keys made from it are known too. All others are variables.

use std::cell::Cell;
use std::collections::HashSet;

use weft_program::Label;
use weft_store::Catalog;
use weft_types::{SqlType, Value};

use super::super::bind::Variables;
use super::super::scalar::Scalar;
use super::tree::{Block, Kind, Over, Target};

/// What a name refers to.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    /// A value that is never assigned.
    Value(Scalar, SqlType),
    /// A variable, by number, and whether assigning to it is an error.
    Variable(u16, SqlType, bool),
}

impl Meaning {
    fn value(&self) -> (Scalar, SqlType) {
        match self {
            Meaning::Value(scalar, ty) => (scalar.clone(), *ty),
            Meaning::Variable(number, ty, _) => (Scalar::Variable(*number), *ty),
        }
    }
}

/// The names of one block.
#[derive(Debug, Default)]
pub(crate) struct VariableScope {
    pub(crate) names: Vec<(String, Meaning)>,
    /// Records and their columns.
    pub(crate) records: Vec<(String, Vec<(String, Meaning)>)>,
}

/// A procedure being compiled: the outermost one, or one that it calls.
#[derive(Debug)]
pub(crate) struct CallFrame {
    /// The procedure.
    pub(crate) name: String,
    /// Scopes, outermost first; the first holds the parameters.
    pub(crate) scopes: Vec<VariableScope>,
    /// The meanings of `$1`, `$2` ..
    pub(crate) params: Vec<Meaning>,
    /// The target of RETURN.
    pub(crate) end: Label,
    /// Names that are assigned in the body.
    pub(crate) assigned: HashSet<String>,
    /// Words of its body: record columns that it never mentions are not stored.
    pub(crate) words: HashSet<String>,
    /// Whether its language is SQL.
    pub(crate) is_sql: bool,
    /// The number of blocks with handlers around the call.
    pub(crate) handlers: usize,
}

/// All procedures being compiled, the innermost last.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) frames: Vec<CallFrame>,
    /// The variable FOUND, if there is one.
    pub(crate) found: Option<u16>,
    /// The variable of ROW_COUNT, if there is one.
    pub(crate) row_count: Option<u16>,
    /// Whether ROW_COUNT is used.
    pub(crate) uses_row_count: Cell<bool>,
    /// Variables declared NOT NULL, and their names.
    pub(crate) not_null: Vec<(u16, String)>,
    /// Whether FOUND is used.
    pub(crate) uses_found: Cell<bool>,
}

impl Names {
    /// Declares a name in the innermost block.
    pub(crate) fn add(&mut self, name: &str, meaning: Meaning) {
        if let Some(scope) = self.frames.last_mut().and_then(|frame| frame.scopes.last_mut()) {
            scope.names.push((name.to_owned(), meaning));
        }
    }

    /// Declares a record's columns in the block that declared the record, otherwise in the innermost block.
    pub(crate) fn add_record(&mut self, name: &str, columns: Vec<(String, Meaning)>) {
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        let declared = |scope: &&mut VariableScope| scope.records.iter().any(|(known, _)| known == name);
        let depth = frame.scopes.len();
        if let Some(scope) = frame.scopes.iter_mut().rev().find(declared) {
            scope.records.push((name.to_owned(), columns));
        } else if let Some(scope) = frame.scopes.get_mut(depth.saturating_sub(1)) {
            scope.records.push((name.to_owned(), columns));
        }
    }

    /// Removes the variables from a number on: records lose the columns stored in them.
    pub(crate) fn forget_from(&mut self, first: usize) {
        self.not_null.retain(|(number, _)| usize::from(*number) < first);
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        let gone = |meaning: &Meaning| match meaning {
            Meaning::Variable(number, ..) => usize::from(*number) >= first,
            Meaning::Value(..) => false,
        };
        for scope in &mut frame.scopes {
            for (_, columns) in &mut scope.records {
                columns.retain(|(_, meaning)| !gone(meaning));
            }
        }
    }

    /// Whether a name was declared as RECORD.
    pub(crate) fn is_record(&self, name: &str) -> bool {
        self.frames.last().is_some_and(|frame| {
            frame
                .scopes
                .iter()
                .any(|scope| scope.records.iter().any(|(known, _)| known == name))
        })
    }

    /// Resolves `name` or `qualifier.name`.
    pub(crate) fn look_up(&self, qualifier: Option<&str>, name: &str) -> Option<Meaning> {
        let frame = self.frames.last()?;
        let of_record = |wanted: &str| {
            frame
                .scopes
                .iter()
                .rev()
                .flat_map(|scope| scope.records.iter().rev())
                .find(|(record, _)| record == wanted)
                .and_then(|(_, columns)| columns.iter().find(|(column, _)| column == name))
                .map(|(_, meaning)| meaning.clone())
        };
        match qualifier {
            Some(qualifier) if qualifier != frame.name => return of_record(qualifier),
            _ => {}
        }
        let known = frame
            .scopes
            .iter()
            .rev()
            .flat_map(|scope| scope.names.iter().rev())
            .find(|(known, _)| known == name)
            .map(|(_, meaning)| meaning.clone());
        if known.is_none() && name == "found" && qualifier.is_none() {
            self.uses_found.set(true);
            return Some(match self.found {
                Some(number) => Meaning::Variable(number, SqlType::Bool, true),
                None => Meaning::Value(Scalar::Constant(Value::Bool(false)), SqlType::Bool),
            });
        }
        known
    }
}

impl Variables for Names {
    fn named(&self, qualifier: Option<&str>, name: &str) -> Option<(Scalar, SqlType)> {
        self.look_up(qualifier, name).map(|meaning| meaning.value())
    }

    fn positional(&self, number: usize) -> Option<(Scalar, SqlType)> {
        let params = &self.frames.last()?.params;
        params.get(number.checked_sub(1)?).map(Meaning::value)
    }

    fn converts_late(&self) -> bool {
        self.frames.last().is_some_and(|frame| !frame.is_sql)
    }
}

/// Names that a body may assign: targets of assignments and INTO, records of loops, OUT arguments of CALL.
pub(crate) fn assigned(block: &Block, catalog: &Catalog) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut target = |target: &Target| names.extend(target.last().cloned());
    block.visit(&mut |statement| match &statement.kind {
        Kind::Assign { target: name, .. } => target(name),
        Kind::For { targets, over, .. } => {
            if matches!(over, Over::Rows(_)) {
                targets.iter().for_each(&mut target);
            }
        }
        Kind::Diagnostics { items, .. } => items.iter().for_each(|(name, _)| target(name)),
        Kind::Sql { into: Some(into), .. } => into.targets.iter().for_each(&mut target),
        Kind::Call { name, arguments } => {
            let called = name.last().and_then(|name| catalog.procedure(name));
            let params = called.map_or(&[][..], |called| &called.params);
            for (argument, param) in arguments.iter().zip(params) {
                if param.mode.is_output()
                    && let sqlparser::ast::Expr::Identifier(ident) = argument
                {
                    target(&vec![super::super::names::ident(ident)]);
                }
            }
        }
        _ => {}
    });
    names
}
