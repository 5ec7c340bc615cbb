//! Expressions of a wanted type.

use super::pools;
use super::{Generator, Visible};
use crate::catalog::{Form, Signature, Slot};
use crate::node;
use crate::tree::{Kind, Node, Part};
use crate::types::{self, BOOL, INT4, NUMERIC, TEXT, Type, quoted};

impl Generator<'_> {
    /// An expression of type `ty`, at most `depth` deep.
    pub(super) fn expression(&mut self, ty: Type, depth: usize) -> Node {
        if depth == 0 || self.random.chance(1, 6) {
            return self.leaf(ty);
        }
        // One in a hundred is of a type that does not fit.
        let wrong = !self.safe && self.random.chance(1, 100);
        let made = if wrong { self.any_type() } else { ty };
        let node = match self.random.below(20) {
            0 => self.case(made, depth),
            1 => self.choice(made, depth),
            2 if depth > 1 && !self.scopes.is_empty() => self.scalar_subquery(made),
            3..7 if made == BOOL => self.predicate(depth),
            7 => self.special(made, depth),
            _ => self.call(made, depth),
        };
        if matches!(node.kind, Kind::Expression(_)) {
            return node;
        }
        node!(Kind::Expression(ty); node)
    }

    /// A column or a constant.
    pub(super) fn leaf(&mut self, ty: Type) -> Node {
        if self.random.chance(3, 4)
            && let Some(column) = self.column(ty)
        {
            return column;
        }
        self.constant(ty)
    }

    /// A column of this type out of the scopes, the innermost by preference.
    pub(super) fn column(&mut self, ty: Type) -> Option<Node> {
        let outer = self.random.chance(1, 5);
        let mut scopes: Vec<&Vec<Visible>> = self.scopes.iter().collect();
        if !outer {
            scopes = scopes.split_off(scopes.len().saturating_sub(1));
        }
        let fitting = scopes.into_iter().flatten().filter(|column| column.ty == ty);
        let fitting: Vec<String> = fitting.map(|column| column.text.clone()).collect();
        self.pick(&fitting)
            .map(|text| node!(Kind::Column(ty); text.clone()))
    }

    /// A constant of this type in one of the ways to write it.
    pub(super) fn constant(&mut self, ty: Type) -> Node {
        if self.random.chance(1, 14) {
            return if self.random.chance(1, 3) && !self.safe {
                node!(Kind::Literal(ty); "NULL")
            } else {
                ty.null()
            };
        }
        if !self.safe && self.random.chance(1, 12) && !ty.odd_texts().is_empty() {
            let text = self.input_text(ty);
            return ty.cast_literal(text);
        }
        let value = *self.pick(ty.values()).unwrap_or(&"");
        let bare = match ty {
            BOOL | INT4 => true,
            NUMERIC => value.contains('.') && value.parse::<f64>().is_ok_and(f64::is_finite),
            TEXT => self.random.chance(1, 2),
            _ => false,
        };
        match (bare, self.random.below(4)) {
            // An operator before a sign would be read together with it.
            (true, _) if ty != TEXT && value.starts_with('-') => {
                node!(Kind::Group; "(", ty.literal(value, value), ")")
            }
            (true, _) if ty == TEXT => ty.literal(&quoted(value), value),
            (true, _) => ty.literal(value, value),
            (_, 0) if ty.element().is_none() => {
                // The type before the string is a constant as a whole: no parameter may stand there.
                node!(Kind::Expression(ty); format!("{} {}", ty.name(), quoted(value)))
            }
            (_, 1) => {
                node!(Kind::Expression(ty); "CAST(", ty.literal(&quoted(value), value), format!(" AS {})", ty.name()))
            }
            _ => ty.cast_literal(value),
        }
    }

    /// A text to be read as the type.
    fn input_text(&mut self, ty: Type) -> &'static str {
        let texts = match ty.odd_texts() {
            [] => ty.values(),
            _ if self.random.chance(1, 2) => ty.values(),
            odd => odd,
        };
        self.pick(texts).copied().unwrap_or_default()
    }

    fn case(&mut self, ty: Type, depth: usize) -> Node {
        let branches = 1 + self.random.below(2);
        let mut parts: Vec<Part> = vec!["CASE".into()];
        let subject = self.random.chance(1, 3).then(|| self.sortable_type());
        if let Some(subject) = subject {
            parts.extend([" ".into(), self.expression(subject, depth - 1).into()]);
        }
        for _ in 0..branches {
            let when = self.expression(subject.unwrap_or(BOOL), depth - 1);
            let then = self.branch(ty, depth - 1);
            parts.extend([" WHEN ".into(), when.into(), " THEN ".into(), then.into()]);
        }
        if self.random.chance(3, 4) {
            let other = self.branch(ty, depth - 1);
            parts.push(Node::optional(vec![" ELSE ".into(), other.into()]).into());
        }
        parts.push(" END".into());
        Node::of(Kind::Expression(ty), parts)
    }

    /// An expression of the type, or of one that joins with it: branches have a common type.
    fn branch(&mut self, ty: Type, depth: usize) -> Node {
        let other = if ty.is_number() && self.random.chance(1, 3) {
            *self.pick(&[types::INT2, INT4, types::INT8]).unwrap_or(&ty)
        } else if ty == types::TIMESTAMP && self.random.chance(1, 4) {
            types::DATE
        } else {
            ty
        };
        if self.random.chance(1, 12) {
            return node!(Kind::Literal(ty); "NULL");
        }
        self.expression(other, depth)
    }

    fn choice(&mut self, ty: Type, depth: usize) -> Node {
        let name = self.one_of(&["coalesce", "nullif", "greatest", "least"]);
        let count = if name == "nullif" {
            2
        } else {
            2 + self.random.below(2)
        };
        let list = (0..count).map(|_| self.branch(ty, depth - 1)).collect();
        node!(Kind::Expression(ty); format!("{name}("), Node::list(", ", list), ")")
    }

    /// A function, operator or cast of the catalog that gives the type.
    fn call(&mut self, ty: Type, depth: usize) -> Node {
        let index = if self.safe { &self.safe_only } else { &self.any };
        let names = index.get(&ty).cloned().unwrap_or_default();
        let Some(overloads) = self.pick(&names) else {
            return self.leaf(ty);
        };
        let Some(signature) = self.pick(overloads).and_then(|at| self.catalog.scalars.get(*at)) else {
            return self.leaf(ty);
        };
        self.call_of(signature, ty, depth)
    }

    fn call_of(&mut self, signature: &Signature, ty: Type, depth: usize) -> Node {
        let element = match signature.result {
            Slot::Element => ty,
            Slot::Array => ty.element().unwrap_or(INT4),
            _ if signature.arguments.contains(&Slot::Array) => *self.pick(&[INT4, TEXT]).unwrap_or(&INT4),
            _ => self.any_type(),
        };
        let mut arguments = Vec::new();
        for (at, slot) in signature.arguments.iter().enumerate() {
            let of = match slot {
                Slot::Is(ty) => *ty,
                Slot::Element => element,
                Slot::Array => match element.array() {
                    Some(array) => array,
                    None => return self.leaf(ty),
                },
                Slot::Any => self.any_type(),
            };
            // A text is seldom a value of another type by chance.
            if signature.form == Form::Cast && of.is_string() && self.random.chance(3, 4) {
                let value = self.input_text(ty);
                arguments.push(of.cast_literal(value));
                continue;
            }
            arguments.push(self.argument(&signature.name, at, of, depth - 1));
        }
        self.written(signature, ty, arguments)
    }

    fn argument(&mut self, name: &str, at: usize, ty: Type, depth: usize) -> Node {
        let texts = pools::texts(name, at);
        if ty.is_string()
            && !texts.is_empty()
            && self.random.chance(4, 5)
            && let Some(text) = self.pick(texts)
        {
            return ty.literal(&quoted(text), text);
        }
        if pools::is_count(name, at) && ty.is_number() {
            let far: &[&str] = match ty {
                types::INT2 => &["32767", "-32768"],
                types::INT4 if name != "factorial" && !matches!(name, "repeat" | "lpad" | "rpad") => {
                    &["2147483647", "-2147483648", "1000"]
                }
                _ => &["-2", "3"],
            };
            let text = match self.random.chance(1, 10) {
                true => self.pick(far).copied().unwrap_or("0"),
                false => self.one_of(&["0", "1", "2", "5", "12", "-1"]),
            };
            let literal = ty.literal(text, text);
            return node!(Kind::Group; "(", literal, format!(")::{}", ty.name()));
        }
        self.expression(ty, depth)
    }

    fn written(&mut self, signature: &Signature, ty: Type, arguments: Vec<Node>) -> Node {
        let kind = Kind::Expression(ty);
        let name = &signature.name;
        let mut arguments = arguments.into_iter();
        match (signature.form, arguments.next(), arguments.next()) {
            (Form::Prefix, Some(operand), _) => node!(kind; format!("({name} "), operand, ")"),
            (Form::Infix, Some(left), Some(right)) => {
                let symbol = match name.as_str() {
                    "~~" if self.random.chance(2, 3) => "LIKE",
                    "!~~" if self.random.chance(2, 3) => "NOT LIKE",
                    "~~*" if self.random.chance(2, 3) => "ILIKE",
                    "<>" if self.random.chance(1, 3) => "!=",
                    other => other,
                };
                // Without parentheses the servers must agree on precedence, too.
                if !self.safe && self.random.chance(1, 5) {
                    return node!(kind; left, format!(" {symbol} "), right);
                }
                node!(kind; "(", left, format!(" {symbol} "), right, ")")
            }
            (Form::Cast, Some(operand), _) => match self.random.below(3) {
                0 => node!(kind; "(", operand, format!(")::{}", ty.name())),
                _ => node!(kind; "CAST(", operand, format!(" AS {})", ty.name())),
            },
            (_, first, second) => {
                let all: Vec<Node> = first.into_iter().chain(second).chain(arguments).collect();
                node!(kind; format!("{name}("), Node::list(", ", all), ")")
            }
        }
    }

    /// Forms of the grammar that are no calls, for a type.
    fn special(&mut self, ty: Type, depth: usize) -> Node {
        let kind = Kind::Expression(ty);
        match ty {
            BOOL => self.predicate(depth),
            NUMERIC if !self.safe => {
                let from = *self
                    .pick(&[
                        types::TIMESTAMP,
                        types::DATE,
                        types::TIMESTAMPTZ,
                        types::TIME,
                        types::INTERVAL,
                    ])
                    .unwrap_or(&types::DATE);
                let field = self.one_of(pools::FIELDS);
                node!(kind; format!("extract({field} FROM "), self.expression(from, depth - 1), ")")
            }
            INT4 => {
                node!(kind; "position(", self.expression(TEXT, depth - 1), " IN ", self.expression(TEXT, depth - 1), ")")
            }
            types::TIMESTAMP | types::TIMESTAMPTZ if !self.safe => {
                let other = if ty == types::TIMESTAMP {
                    types::TIMESTAMPTZ
                } else {
                    types::TIMESTAMP
                };
                let zone = self.one_of(pools::ZONES);
                node!(kind; "(", self.expression(other, depth - 1), " AT TIME ZONE ", TEXT.literal(&quoted(zone), zone), ")")
            }
            TEXT => self.text_form(depth),
            types::INT4_ARRAY | types::TEXT_ARRAY => {
                let of = ty.element().unwrap_or(INT4);
                let list = (0..1 + self.random.below(3))
                    .map(|_| self.expression(of, depth - 1))
                    .collect();
                node!(kind; "ARRAY[", Node::list(", ", list), "]")
            }
            _ => self.cast_through_text(ty, depth),
        }
    }

    fn text_form(&mut self, depth: usize) -> Node {
        let kind = Kind::Expression(TEXT);
        let text = self.expression(TEXT, depth - 1);
        match self.random.below(5) {
            0 => {
                let side = self.one_of(&["BOTH", "LEADING", "TRAILING"]);
                node!(kind; format!("trim({side} "), self.constant(TEXT), " FROM ", text, ")")
            }
            1 if !self.safe => {
                node!(kind; "substring(", text, " FROM ", self.expression(INT4, 1),
                      Node::optional(vec![" FOR ".into(), self.expression(INT4, 1).into()]), ")")
            }
            2 if !self.safe => {
                node!(kind; "overlay(", text, " PLACING ", self.constant(TEXT), " FROM ", self.expression(INT4, 1), ")")
            }
            3 => {
                let from = self.any_type();
                node!(kind; "(", self.expression(from, depth - 1), ")::text")
            }
            _ => {
                let length = self.one_of(&["varchar(3)", "char(4)", "varchar(1)", "char(1)"]);
                node!(kind; "CAST(CAST(", text, format!(" AS {length}) AS text)"))
            }
        }
    }

    /// A cast from a text, which mostly fails unless the text is a value; then a modifier of the type.
    fn cast_through_text(&mut self, ty: Type, depth: usize) -> Node {
        if self.safe {
            return self.leaf(ty);
        }
        let modified = match ty {
            types::TIMESTAMP => "timestamp(3)",
            types::TIMESTAMPTZ => "timestamptz(0)",
            types::TIME => "time(2)",
            types::VARCHAR => "varchar(2)",
            types::BPCHAR => "char(2)",
            types::FLOAT4 => "float(10)",
            types::FLOAT8 => "float(40)",
            types::BYTEA => "bytea",
            _ => "",
        };
        if modified.is_empty() {
            let from = *self
                .pick(&[TEXT, TEXT, types::VARCHAR, types::BPCHAR])
                .unwrap_or(&TEXT);
            let text = if self.random.chance(3, 4) {
                let value = self.input_text(ty);
                from.cast_literal(value)
            } else {
                self.expression(from, depth - 1)
            };
            return node!(Kind::Expression(ty); "(", text, format!(")::{}", ty.name()));
        }
        node!(Kind::Expression(ty); "CAST(", self.expression(ty, depth - 1), format!(" AS {modified})"))
    }
}
