//! Predicates, and what stands in FROM.

use super::pools;
use super::{Generator, Visible};
use crate::node;
use crate::tree::{Kind, Node, Part};
use crate::types::{self, BOOL, INT4, INT8, TEXT, Type};

impl Generator<'_> {
    /// A condition in one of the grammar's forms.
    pub(super) fn predicate(&mut self, depth: usize) -> Node {
        let kind = Kind::Expression(BOOL);
        let ty = self.any_type();
        let below = depth - 1;
        let not = if self.random.chance(1, 3) { "NOT " } else { "" };
        match self.random.below(14) {
            13 if !self.safe => {
                let ty = *self
                    .pick(&[types::DATE, types::TIMESTAMP, types::TIME])
                    .unwrap_or(&types::DATE);
                let mut range = || Node::list(", ", vec![self.expression(ty, below.min(1)), self.leaf(ty)]);
                let (left, right) = (range(), range());
                node!(kind; "((", left, ") OVERLAPS (", right, "))")
            }
            0 | 1 => {
                let word = self.one_of(&["AND", "OR"]);
                let (left, right) = (self.expression(BOOL, below), self.expression(BOOL, below));
                node!(kind; "(", left, format!(" {word} "), right, ")")
            }
            2 => node!(kind; "(NOT ", self.expression(BOOL, below), ")"),
            3 => {
                let what = self.one_of(&["NULL", "NOT NULL"]);
                node!(kind; "(", self.expression(ty, below), format!(" IS {what})"))
            }
            4 => node!(kind; "(", self.expression(ty, below), format!(" IS {not}DISTINCT FROM "),
                       self.expression(ty, below), ")"),
            5 | 6 => {
                let ty = self.sortable_type();
                let list = (0..1 + self.random.below(3))
                    .map(|_| self.expression(ty, below.min(1)))
                    .collect();
                node!(kind; "(", self.expression(ty, below), format!(" {not}IN ("), Node::list(", ", list), "))")
            }
            7 => {
                let ty = if ty.element().is_some() { INT4 } else { ty };
                let symmetric = if self.random.chance(1, 4) {
                    "SYMMETRIC "
                } else {
                    ""
                };
                node!(kind; "(", self.expression(ty, below), format!(" {not}BETWEEN {symmetric}"),
                      self.expression(ty, below.min(1)), " AND ", self.expression(ty, below.min(1)), ")")
            }
            8 => {
                let what = self.one_of(&["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN", "NOT UNKNOWN"]);
                node!(kind; "(", self.expression(BOOL, below), format!(" IS {what})"))
            }
            9 if !self.safe && self.random.chance(1, 3) => self.escaped_predicate(below),
            9 => {
                let word = self.one_of(&["LIKE", "NOT LIKE", "ILIKE"]);
                // A pattern may end within an escape, which is an error.
                let fine = pools::PATTERNS.len() - usize::from(self.safe);
                let pattern = self
                    .pick(pools::PATTERNS.get(..fine).unwrap_or_default())
                    .copied()
                    .unwrap_or("%");
                let pattern = TEXT.literal(&types::quoted(pattern), pattern);
                node!(kind; "(", self.expression(TEXT, below), format!(" {word} "), pattern, ")")
            }
            10 => self.row_predicate(below),
            11 if depth > 1 && !self.scopes.is_empty() => self.subquery_predicate(),
            12 => {
                let symbol = self.one_of(&["=", "<>", "<", ">="]);
                let word = self.one_of(&["ANY", "ALL"]);
                let of = if self.random.chance(1, 2) { INT4 } else { TEXT };
                let array = of.array().unwrap_or(types::INT4_ARRAY);
                node!(kind; "(", self.expression(of, below), format!(" {symbol} {word} ("), self.leaf(array), "))")
            }
            _ => {
                let symbol = self.one_of(&["=", "<>", "<", ">", "<=", ">="]);
                node!(kind; "(", self.expression(ty, below), format!(" {symbol} "), self.expression(ty, below), ")")
            }
        }
    }

    /// SIMILAR TO and LIKE, with characters that escape.
    fn escaped_predicate(&mut self, below: usize) -> Node {
        let kind = Kind::Expression(BOOL);
        let word = self.one_of(&["SIMILAR TO", "NOT SIMILAR TO", "LIKE", "NOT ILIKE"]);
        let patterns = if word.contains("LIKE") {
            pools::PATTERNS
        } else {
            pools::SIMILAR
        };
        let pattern = self.pick(patterns).copied().unwrap_or("%");
        let pattern = TEXT.literal(&types::quoted(pattern), pattern);
        let escape = self.one_of(&[
            "",
            "",
            " ESCAPE '#'",
            " ESCAPE ''",
            " ESCAPE 'ab'",
            " ESCAPE NULL",
        ]);
        let escape = Node::optional(vec![escape.into()]);
        node!(kind; "(", self.expression(TEXT, below), format!(" {word} "), pattern, escape, ")")
    }

    /// A comparison of rows.
    fn row_predicate(&mut self, below: usize) -> Node {
        let kind = Kind::Expression(BOOL);
        let (one, two) = (self.sortable_type(), self.sortable_type());
        let symbol = self.one_of(&["=", "<", ">=", "<>"]);
        let mut row = || {
            Node::list(
                ", ",
                vec![
                    self.expression(one, below.min(1)),
                    self.expression(two, below.min(1)),
                ],
            )
        };
        let (left, right) = (row(), row());
        node!(kind; "((", left, format!(") {symbol} ("), right, "))")
    }

    fn subquery_predicate(&mut self) -> Node {
        let kind = Kind::Expression(BOOL);
        let not = if self.random.chance(1, 2) { "NOT " } else { "" };
        let ty = self.sortable_type();
        match self.random.below(5) {
            3 => {
                let other = self.sortable_type();
                let row = Node::list(", ", vec![self.leaf(ty), self.leaf(other)]);
                node!(kind; "((", row, format!(") {not}IN ("), self.small_query(&[ty, other]), "))")
            }
            4 => {
                let symbol = self.one_of(&["=", "<", ">="]);
                let subquery = self.scalar_subquery(ty);
                node!(kind; "(", self.leaf(ty), format!(" {symbol} "), subquery, ")")
            }
            0 => node!(kind; format!("({not}EXISTS ("), self.small_query(&[ty]), "))"),
            1 => {
                let operand = self.leaf(ty);
                node!(kind; "(", operand, format!(" {not}IN ("), self.small_query(&[ty]), "))")
            }
            _ => {
                let symbol = self.one_of(&["=", "<>", "<", ">="]);
                let word = self.one_of(&["ANY", "ALL", "SOME"]);
                let operand = self.leaf(ty);
                node!(kind; "(", operand, format!(" {symbol} {word} ("), self.small_query(&[ty]), "))")
            }
        }
    }

    /// A scalar subquery that gives one row at most.
    pub(super) fn scalar_subquery(&mut self, ty: Type) -> Node {
        let was_safe = std::mem::replace(&mut self.safe, true);
        let name = self.one_of(&["a", "b", "k", "e"]);
        let alias = self.fresh("s");
        let scope = self.visible(name, &alias, true);
        self.scopes.push(scope);
        let node = if self.random.chance(1, 2)
            && !matches!(ty, types::UUID | BOOL | types::BYTEA | types::JSON | types::JSONB)
        {
            self.freedom.representative = true;
            let word = self.one_of(&["max", "min"]);
            let value = self.leaf(ty);
            let condition = self.expression(BOOL, 2);
            node!(Kind::Expression(ty); format!("(SELECT {word}("), value, format!(") FROM {name} {alias}"),
                  Node::optional(vec![" WHERE ".into(), condition.into()]), ")")
        } else {
            let key = if name == "k" { "s" } else { "id" };
            let value = self.expression(ty, 1);
            let condition = self.expression(BOOL, 2);
            node!(Kind::Expression(ty); "(SELECT ", value, format!(" FROM {name} {alias} WHERE "), condition,
                  format!(" ORDER BY {alias}.{key} LIMIT 1)"))
        };
        self.scopes.pop();
        self.safe = was_safe;
        node
    }

    /// A query without an order over one table, whose condition may look outside.
    pub(super) fn small_query(&mut self, wanted: &[Type]) -> Node {
        let was_safe = std::mem::replace(&mut self.safe, true);
        let name = self.one_of(&["a", "b", "k", "e"]);
        let alias = self.fresh("q");
        let scope = self.visible(name, &alias, true);
        self.scopes.push(scope);
        let list = wanted.iter().map(|ty| self.expression(*ty, 1)).collect();
        let condition = self.expression(BOOL, 2);
        self.scopes.pop();
        self.safe = was_safe;
        node!(Kind::Query; "SELECT ", Node::list(", ", list), format!(" FROM {name} {alias}"),
              Node::optional(vec![" WHERE ".into(), condition.into()]))
    }

    /// What stands in FROM, and the columns that it shows.
    pub(super) fn source(&mut self, depth: usize) -> (Node, Vec<Visible>) {
        match self.random.below(if depth == 0 { 4 } else { 12 }) {
            0..4 => self.table(),
            4..9 => self.join(depth - 1),
            9 => self.derived(),
            10 => self.series(),
            _ => self.values_source(),
        }
    }

    fn table(&mut self) -> (Node, Vec<Visible>) {
        let name = self.one_of(&["a", "a", "b", "k", "e"]);
        let alias = self.fresh("t");
        let node = node!(Kind::Source; format!("{name} {alias}"));
        (node, self.visible(name, &alias, true))
    }

    fn join(&mut self, depth: usize) -> (Node, Vec<Visible>) {
        if self.random.chance(1, 4) {
            return self.merged_join();
        }
        let (left, mut columns) = self.source(depth);
        let lateral = self.random.chance(1, 6);
        let word = self.one_of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]);
        let word = if lateral && matches!(word, "RIGHT JOIN" | "FULL JOIN") {
            "LEFT JOIN"
        } else {
            word
        };
        let (right, others) = if lateral {
            self.scopes.push(columns.clone());
            let made = self.lateral();
            self.scopes.pop();
            made
        } else {
            self.source(depth)
        };
        let keys = (key_of(&columns), key_of(&others));
        columns.extend(others);
        if word == "CROSS JOIN" {
            return (node!(Kind::Source; left, " CROSS JOIN ", right), columns);
        }
        let condition = match keys {
            (Some(one), Some(two)) if word == "FULL JOIN" || self.random.chance(2, 3) => {
                node!(Kind::Expression(BOOL); format!("{one} = {two}"))
            }
            _ if word == "FULL JOIN" => Node::text("true"),
            _ => {
                self.scopes.push(columns.clone());
                let condition = self.expression(BOOL, 2);
                self.scopes.pop();
                condition
            }
        };
        (
            node!(Kind::Source; left, format!(" {word} "), right, " ON ", condition),
            columns,
        )
    }

    /// USING and NATURAL: the key's column appears once.
    fn merged_join(&mut self) -> (Node, Vec<Visible>) {
        let (one, two) = (self.fresh("j"), self.fresh("j"));
        let word = self.one_of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let ty = *self.pick(&[INT4, TEXT, INT8]).unwrap_or(&INT4);
        let name = match ty {
            INT4 => "i4",
            INT8 => "i8",
            _ => "t",
        };
        let left = format!("(SELECT {name}, d AS d1, id AS id1 FROM a) {one}");
        let right = format!("(SELECT id AS id2, {name}, bo AS bo2 FROM b) {two}");
        let node = if self.random.chance(1, 2) {
            node!(Kind::Source; format!("{left} {word} {right} USING ({name})"))
        } else {
            node!(Kind::Source; format!("{left} NATURAL {word} {right}"))
        };
        let column = |text: &str, ty| Visible {
            text: text.to_owned(),
            ty,
        };
        let columns = vec![
            column(name, ty),
            column("id1", INT4),
            column("id2", INT4),
            column("d1", types::DATE),
            column("bo2", BOOL),
            column(&format!("{one}.{name}"), ty),
        ];
        (node, columns)
    }

    fn derived(&mut self) -> (Node, Vec<Visible>) {
        let outer = std::mem::take(&mut self.scopes);
        let types = [self.any_type(), self.sortable_type(), INT4];
        let query = self.small_query(&types);
        self.scopes = outer;
        self.named(query, &types, "")
    }

    fn lateral(&mut self) -> (Node, Vec<Visible>) {
        let types = [self.any_type(), INT4];
        let query = self.small_query(&types);
        self.named(query, &types, "LATERAL ")
    }

    fn named(&mut self, query: Node, types: &[Type], word: &str) -> (Node, Vec<Visible>) {
        let alias = self.fresh("d");
        let names: Vec<String> = (1..=types.len()).map(|at| format!("x{at}")).collect();
        let node = node!(Kind::Source; format!("{word}("), query, format!(") {alias}({})", names.join(", ")));
        let visible = |(name, ty): (String, &Type)| Visible {
            text: format!("{alias}.{name}"),
            ty: *ty,
        };
        (node, names.into_iter().zip(types).map(visible).collect())
    }

    fn series(&mut self) -> (Node, Vec<Visible>) {
        let alias = self.fresh("g");
        let (text, ty) = *self
            .pick(&[
                ("generate_series(1, 4)", INT4),
                ("generate_series(5, 1, -2)", INT4),
                ("generate_series(9223372036854775806, 9223372036854775807)", INT8),
                ("generate_series(1.0, 2.0, 0.4)", types::NUMERIC),
                ("unnest(ARRAY[3, NULL, 1])", INT4),
                ("unnest('{x,NULL,y}'::text[])", TEXT),
            ])
            .unwrap_or(&("generate_series(1, 3)", INT4));
        let node = node!(Kind::Source; format!("{text} {alias}(x)"));
        let column = Visible {
            text: format!("{alias}.x"),
            ty,
        };
        (node, vec![column])
    }

    fn values_source(&mut self) -> (Node, Vec<Visible>) {
        let types = [self.any_type(), self.sortable_type()];
        let rows = self.rows_of(&types, 1);
        self.named(node!(Kind::Query; "VALUES ", rows), &types, "")
    }

    /// Rows of constants for VALUES.
    pub(super) fn rows_of(&mut self, types: &[Type], depth: usize) -> Node {
        let outer = std::mem::take(&mut self.scopes);
        let rows = (0..1 + self.random.below(3)).map(|_| {
            let list = types.iter().map(|ty| self.expression(*ty, depth)).collect();
            let parts: Vec<Part> = vec!["(".into(), Node::list(", ", list).into(), ")".into()];
            Node::of(Kind::Group, parts)
        });
        let rows = Node::list(", ", rows.collect());
        self.scopes = outer;
        rows
    }
}

/// A column that joins well.
fn key_of(columns: &[Visible]) -> Option<String> {
    let fits = |column: &&Visible| column.ty == INT4;
    columns.iter().find(fits).map(|column| column.text.clone())
}
