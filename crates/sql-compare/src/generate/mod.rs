//! Random statements that mostly make sense: every expression is made for a type.
//!
//! Two moods. A *safe* expression cannot fail, so it may stand anywhere: in joins, subqueries, WHERE with
//! several terms, where the order of evaluation is the server's own affair. A *fallible* one may be anything
//! of the catalog, and stands where each value is computed once.

mod access;
mod change;
mod expression;
mod pools;
mod query;
mod source;

use std::collections::BTreeMap;

use weft_base::Prng;

pub use pools::{is_count as argument_is_count, is_ordered, texts as argument_texts};

use crate::answer::Freedom;
use crate::catalog::{Catalog, Form, Slot};
use crate::node;
use crate::schema::Schema;
use crate::tree::{Kind, Node};
use crate::types::{self, Type};

/// A statement to be held against PostgreSQL.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The statement.
    pub tree: Node,
    /// The same about the same row, which no key names.
    pub off_key: Option<Node>,
    /// What its answer leaves open.
    pub freedom: Freedom,
    /// Whether it changes the table `w`.
    pub changes: bool,
}

/// A column in scope.
#[derive(Clone, Debug)]
struct Visible {
    text: String,
    ty: Type,
}

/// Which statements are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mix {
    /// All kinds.
    #[default]
    All,
    /// Expressions over constants and single rows.
    Expressions,
    /// Queries of every form.
    Queries,
    /// INSERT, UPDATE, DELETE.
    Changes,
}

/// Signatures of the catalog by what they give: name, then overloads.
type ByResult = BTreeMap<Type, Vec<Vec<usize>>>;

/// Makes one statement after another; the same seed makes the same statements.
#[derive(Debug)]
pub struct Generator<'a> {
    random: Prng,
    catalog: &'a Catalog,
    schema: &'a Schema,
    types: Vec<Type>,
    any: ByResult,
    safe_only: ByResult,
    scopes: Vec<Vec<Visible>>,
    safe: bool,
    names: usize,
    freedom: Freedom,
}

impl<'a> Generator<'a> {
    /// A generator for `seed`.
    #[must_use]
    pub fn new(seed: u64, catalog: &'a Catalog, schema: &'a Schema) -> Self {
        let index = |safe: bool| {
            let mut index = ByResult::new();
            for ty in types::ALL {
                index.insert(ty, overloads(catalog, ty, safe));
            }
            index
        };
        let of_columns = |ty: &Type| {
            let fields = schema.tables.iter().flat_map(|table| &table.fields);
            ty.element().is_some() || fields.clone().any(|field| field.ty == *ty)
        };
        Self {
            random: Prng::new(seed),
            catalog,
            schema,
            types: types::ALL.into_iter().filter(of_columns).collect(),
            any: index(false),
            safe_only: index(true),
            scopes: Vec::new(),
            safe: false,
            names: 0,
            freedom: Freedom::default(),
        }
    }

    /// The next statement.
    pub fn statement(&mut self, mix: Mix) -> Statement {
        self.scopes.clear();
        self.names = 0;
        self.freedom = Freedom::default();
        let kind = match mix {
            Mix::All => self.random.below(100),
            Mix::Expressions => self.random.below(40),
            Mix::Queries => 40 + self.random.below(45),
            Mix::Changes => 85 + self.random.below(15),
        };
        match kind {
            0..12 => self.constants(),
            12..34 => self.one_row(),
            34..40 => self.one_column(),
            40..47 => self.access(),
            47..85 => self.whole_query(),
            _ => self.change(),
        }
    }

    /// `SELECT expression`
    fn constants(&mut self) -> Statement {
        self.safe = false;
        let expressions = self.expressions(1, 4);
        self.finished(node!(Kind::Query; "SELECT ", expressions), None)
    }

    /// `SELECT expression FROM a WHERE id = 3`, and the same off the key.
    fn one_row(&mut self) -> Statement {
        self.safe = false;
        let name = if self.random.chance(1, 2) { "a" } else { "b" };
        let Some(table) = self.schema.table(name) else {
            return self.constants();
        };
        let id = 1 + self.random.below(table.row_count as u64 + 1);
        self.scopes = vec![self.visible(name, name, false)];
        let expressions = self.expressions(1, 3);
        let number = types::INT4.literal(&id.to_string(), &id.to_string());
        let with_key = |condition: &str| {
            let row = vec![
                format!(" FROM {name} WHERE {condition} = ").into(),
                number.clone().into(),
            ];
            node!(Kind::Query; "SELECT ", expressions.clone(), Node::optional(row))
        };
        self.finished(with_key("id"), Some(with_key("id + 0")))
    }

    /// One expression over every row of a table.
    fn one_column(&mut self) -> Statement {
        self.safe = false;
        self.freedom.any_data_error = true;
        let name = if self.random.chance(1, 2) { "a" } else { "b" };
        self.scopes = vec![self.visible(name, name, false)];
        let expressions = self.expressions(1, 3);
        let order = Node::optional(vec![" ORDER BY id".into()]);
        self.freedom.ordered = true;
        self.finished(
            node!(Kind::Query; "SELECT id, ", expressions, format!(" FROM {name}"), order),
            None,
        )
    }

    /// A list of one to `most` expressions.
    fn expressions(&mut self, most: u64, depth: usize) -> Node {
        let count = 1 + self.random.below(most);
        let list = (0..count).map(|_| {
            let ty = self.any_type();
            self.expression(ty, depth)
        });
        Node::list(", ", list.collect())
    }

    fn finished(&mut self, tree: Node, off_key: Option<Node>) -> Statement {
        Statement {
            tree,
            off_key,
            freedom: self.freedom,
            changes: false,
        }
    }

    fn any_type(&mut self) -> Type {
        let types = self.types.clone();
        *self.pick(&types).unwrap_or(&types::INT4)
    }

    /// A type whose values sort in one way only.
    fn sortable_type(&mut self) -> Type {
        let types: Vec<Type> = self.types.iter().copied().filter(|ty| ty.unambiguous()).collect();
        *self.pick(&types).unwrap_or(&types::INT4)
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        from.get(self.random.below(from.len() as u64) as usize)
    }

    fn one_of(&mut self, from: &[&'static str]) -> &'static str {
        self.pick(from).copied().unwrap_or_default()
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// The columns of a table under an alias.
    fn visible(&self, table: &str, alias: &str, qualified: bool) -> Vec<Visible> {
        let fields = self
            .schema
            .table(table)
            .map(|table| table.fields.clone())
            .unwrap_or_default();
        fields
            .into_iter()
            .map(|field| Visible {
                text: if qualified {
                    format!("{alias}.{}", field.name)
                } else {
                    field.name
                },
                ty: field.ty,
            })
            .collect()
    }
}

fn overloads(catalog: &Catalog, ty: Type, safe: bool) -> Vec<Vec<usize>> {
    let mut by_name: BTreeMap<(String, bool), Vec<usize>> = BTreeMap::new();
    for (at, signature) in catalog.scalars.iter().enumerate() {
        let gives = match signature.result {
            Slot::Is(result) => result == ty,
            Slot::Element => true,
            Slot::Array => ty.element().is_some(),
            Slot::Any => false,
        };
        if gives && (signature.safe || !safe) {
            let key = (signature.name.clone(), signature.form == Form::Cast);
            by_name.entry(key).or_default().push(at);
        }
    }
    by_name.into_values().collect()
}
