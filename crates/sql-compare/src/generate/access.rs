//! Lookups by key and index: points, lists, rows of values, ranges, keyset pages, extremes. What is found
//! must not depend on the way to it.

use super::{Generator, Statement};
use crate::node;
use crate::tree::{Kind, Node};
use crate::types::{self, INT4, TEXT, Type, quoted};

/// Columns with an index, alone or first in one.
const INDEXED: [(&str, &str, Type); 9] = [
    ("a", "id", INT4),
    ("a", "i4", INT4),
    ("a", "t", TEXT),
    ("a", "n", types::NUMERIC),
    ("a", "ts", types::TIMESTAMP),
    ("a", "bo", types::BOOL),
    ("k", "p", INT4),
    ("k", "s", TEXT),
    ("k", "i4", INT4),
];

impl Generator<'_> {
    pub(super) fn access(&mut self) -> Statement {
        self.safe = true;
        let tree = if self.random.chance(1, 2) {
            self.by_one_column()
        } else {
            self.by_two_columns()
        };
        self.finished(tree, None)
    }

    fn by_one_column(&mut self) -> Node {
        let (table, column, ty) = *self.pick(&INDEXED).unwrap_or(&INDEXED[0]);
        let condition = self.column_condition(column, ty);
        let condition = match self.random.below(4) {
            0 => node!(Kind::Group; condition, " OR ", self.column_condition(column, ty)),
            1 => {
                let (_, other, ty) = *self
                    .pick(&INDEXED)
                    .filter(|row| row.0 == table)
                    .unwrap_or(&(table, column, ty));
                node!(Kind::Group; condition, " AND ", self.column_condition(other, ty))
            }
            _ => condition,
        };
        let key = if table == "k" { "p, q" } else { "id" };
        if self.random.chance(1, 4) {
            self.freedom.representative = true;
            let list = self.one_of(&[
                "min({})",
                "max({})",
                "count({}), min({})",
                "count(*), max({})",
                "count(DISTINCT {})",
            ]);
            let list = if ty == types::BOOL { "count({})" } else { list };
            return node!(Kind::Query; format!("SELECT {} FROM {table}", list.replace("{}", column)),
                         Node::optional(vec![" WHERE ".into(), condition.into()]));
        }
        self.freedom.ordered = true;
        let direction = self.one_of(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        let limit = self.one_of(&["", " LIMIT 1", " LIMIT 3", " LIMIT 2 OFFSET 1"]);
        node!(Kind::Query; format!("SELECT * FROM {table} WHERE "), condition,
              Node::optional(vec![format!(" ORDER BY {column}{direction}, {key}").into(), Node::optional(vec![limit.into()]).into()]))
    }

    fn column_condition(&mut self, column: &str, ty: Type) -> Node {
        let symbol = self.one_of(&["=", "=", "<", ">", "<=", ">=", "<>"]);
        match self.random.below(7) {
            0 => {
                let list = (0..1 + self.random.below(4))
                    .map(|_| self.key_value(ty))
                    .collect();
                let not = if self.random.chance(1, 4) { "NOT " } else { "" };
                node!(Kind::Group; format!("{column} {not}IN ("), Node::list(", ", list), ")")
            }
            1 => {
                node!(Kind::Group; format!("{column} BETWEEN "), self.key_value(ty), " AND ", self.key_value(ty))
            }
            2 => node!(Kind::Group; self.key_value(ty), format!(" {symbol} {column}")),
            3 if ty == INT4 => {
                let array = self.one_of(&["{1,3}", "{}", "{5,NULL,2}", "{42}"]);
                node!(Kind::Group; format!("{column} = ANY ("), types::INT4_ARRAY.cast_literal(array), ")")
            }
            4 => {
                let what = self.one_of(&["NULL", "NOT NULL"]);
                node!(Kind::Group; format!("{column} IS {what}"))
            }
            _ => node!(Kind::Group; format!("{column} {symbol} "), self.key_value(ty)),
        }
    }

    /// A value to look for: often there, sometimes of another type of the same family.
    fn key_value(&mut self, ty: Type) -> Node {
        let as_number = |ty: Type, text: &str| ty.cast_literal(text);
        match ty {
            INT4 => {
                let text = self.one_of(&["1", "2", "3", "4", "5", "7", "11", "42", "0"]);
                match self.random.below(12) {
                    0 => as_number(types::INT8, text),
                    1 => as_number(types::NUMERIC, text),
                    2 => as_number(types::NUMERIC, "2.5"),
                    3 => as_number(types::FLOAT8, text),
                    4 => as_number(types::INT2, text),
                    5 => as_number(types::INT8, "4294967297"),
                    6 => INT4.null(),
                    7 => INT4.literal(&quoted(text), text),
                    _ => INT4.literal(text, text),
                }
            }
            TEXT => {
                let text = self.one_of(&["a", "b", "s10", "s21", "s33", "abc", "", "ä", "10", "Hello World"]);
                match self.random.below(6) {
                    0 => types::VARCHAR.cast_literal(text),
                    1 => types::BPCHAR.cast_literal(text),
                    _ => TEXT.literal(&quoted(text), text),
                }
            }
            _ => self.constant(ty),
        }
    }

    /// The table `k` by both columns of its key.
    fn by_two_columns(&mut self) -> Node {
        let symbol = self.one_of(&["=", ">", "<", ">=", "<=", "<>"]);
        let mut pair = || {
            let (p, q) = (self.key_value(INT4), self.key_value(TEXT));
            node!(Kind::Group; "(", p, ", ", q, ")")
        };
        let (one, two, three) = (pair(), pair(), pair());
        let condition = match self.random.below(7) {
            0 => node!(Kind::Group; "(p, q) IN (", Node::list(", ", vec![one, two, three]), ")"),
            1 | 2 => node!(Kind::Group; format!("(p, q) {symbol} "), one),
            3 => node!(Kind::Group; "(p, q) = ", one, " OR (p, q) = ", two),
            4 => node!(Kind::Group; "(p, q) > ", one, " AND (p, q) <= ", two),
            5 => {
                let (p, q) = (self.key_value(INT4), self.key_value(TEXT));
                node!(Kind::Group; "p = ", p, format!(" AND q {symbol} "), q)
            }
            _ => {
                let list = vec![self.key_value(INT4), self.key_value(INT4)];
                node!(Kind::Group; "p IN (", Node::list(", ", list), ") AND q = ", self.key_value(TEXT))
            }
        };
        self.freedom.ordered = true;
        let direction = self.one_of(&["p, q", "p DESC, q DESC", "p, q DESC", "q, p"]);
        let limit = self.one_of(&["", " LIMIT 1", " LIMIT 4", " LIMIT 3 OFFSET 1"]);
        let list = self.one_of(&["*", "p, q, s", "q, m", "p + 1, d"]);
        node!(Kind::Query; format!("SELECT {list} FROM k WHERE "), condition,
              Node::optional(vec![format!(" ORDER BY {direction}").into(), Node::optional(vec![limit.into()]).into()]))
    }
}
