//! Whole queries: joins, groups, windows, set operations, common table expressions, orders.

use super::{Generator, Statement, Visible, pools};
use crate::catalog::{Form, Signature, Slot};
use crate::node;
use crate::tree::{Kind, Node, Part};
use crate::types::{self, BOOL, INT4, Type};

impl Generator<'_> {
    pub(super) fn whole_query(&mut self) -> Statement {
        self.safe = true;
        let tree = match self.random.below(20) {
            0..5 => self.joined(),
            5..9 => self.grouped(),
            9..12 => self.windowed(),
            12..14 => self.set_operation(),
            14..16 => self.with(),
            16 => self.distinct_on(),
            17 => self.recursive(),
            18 => self.values(),
            _ => self.sorted(),
        };
        self.finished(tree, None)
    }

    /// ` ORDER BY 1, 2 ... LIMIT n` over all columns; total where their types allow it.
    fn order(&mut self, types: &[Type]) -> Node {
        if !self.random.chance(1, 2) {
            return Node::optional(Vec::new());
        }
        let total = types.iter().all(|ty| ty.unambiguous());
        let keys: Vec<String> = (1..=types.len())
            .map(|at| {
                let direction = self.one_of(&["", "", " DESC", " ASC"]);
                let nulls = self.one_of(&["", "", " NULLS FIRST", " NULLS LAST"]);
                format!("{at}{direction}{nulls}")
            })
            .collect();
        let mut parts: Vec<Part> = vec![format!(" ORDER BY {}", keys.join(", ")).into()];
        if total {
            self.freedom.ordered = true;
            let limit = self.one_of(&[
                "",
                "",
                " LIMIT 3",
                " LIMIT 5 OFFSET 2",
                " OFFSET 4",
                " FETCH FIRST 2 ROWS ONLY",
                " LIMIT 0",
            ]);
            parts.push(Node::optional(vec![limit.into()]).into());
        }
        Node::optional(parts)
    }

    fn wanted(&mut self, most: u64) -> Vec<Type> {
        let sortable = self.random.chance(2, 3);
        let count = 1 + self.random.below(most);
        (0..count)
            .map(|_| {
                if sortable {
                    self.sortable_type()
                } else {
                    self.any_type()
                }
            })
            .collect()
    }

    fn condition(&mut self, word: &str, depth: usize) -> Node {
        if self.random.chance(1, 3) {
            return Node::optional(Vec::new());
        }
        let condition = self.expression(BOOL, depth);
        Node::optional(vec![format!(" {word} ").into(), condition.into()])
    }

    /// `SELECT list FROM source WHERE condition`, without an order.
    fn plain(&mut self, types: &[Type], depth: usize) -> Node {
        let (source, columns) = self.source(depth);
        self.scopes.push(columns);
        let list = types.iter().map(|ty| self.item(*ty)).collect();
        let condition = self.condition("WHERE", 3);
        self.scopes.pop();
        let distinct = if self.random.chance(1, 6) {
            self.freedom.representative = true;
            "DISTINCT "
        } else {
            ""
        };
        let distinct = Node::optional(vec![distinct.into()]);
        node!(Kind::Query; "SELECT ", distinct, Node::list(", ", list), " FROM ", source, condition)
    }

    /// An element of a list: an expression, seldom a set.
    fn item(&mut self, ty: Type) -> Node {
        if ty == INT4 && self.random.chance(1, 12) {
            let text = self.one_of(&[
                "generate_series(1, 2)",
                "unnest(ARRAY[4, NULL])",
                "generate_series(3, 1, -1) + 1",
            ]);
            return node!(Kind::Expression(ty); text);
        }
        self.expression(ty, 2)
    }

    fn joined(&mut self) -> Node {
        let types = self.wanted(3);
        if self.random.chance(1, 6) {
            let (source, columns) = self.source(2);
            self.scopes.push(columns);
            let condition = self.condition("WHERE", 3);
            self.scopes.pop();
            return node!(Kind::Query; "SELECT * FROM ", source, condition);
        }
        let query = self.plain(&types, 2);
        let order = self.order(&types);
        node!(Kind::Query; query, order)
    }

    /// An aggregate call over the scope, and its type.
    fn aggregate(&mut self, windowed: bool) -> (Node, Type) {
        let safe: Vec<Signature> = self
            .catalog
            .aggregates
            .iter()
            .filter(|s| s.safe || self.random_any())
            .cloned()
            .collect();
        let Some(signature) = self.pick(&safe).cloned() else {
            return (Node::text("count(*)"), types::INT8);
        };
        self.aggregate_of(&signature, windowed)
    }

    /// All aggregates are worth a try in one catalog of three.
    fn random_any(&self) -> bool {
        self.names.is_multiple_of(3)
    }

    fn aggregate_of(&mut self, signature: &Signature, windowed: bool) -> (Node, Type) {
        let element = self.sortable_type();
        let ty = match signature.result {
            Slot::Is(ty) => ty,
            Slot::Array => INT4.array().unwrap_or(INT4),
            Slot::Element | Slot::Any => element,
        };
        if signature.arguments.is_empty() {
            return (
                node!(Kind::Expression(ty); format!("{}(*)", signature.name), self.filter()),
                ty,
            );
        }
        self.freedom.float_sums |= matches!(ty, types::FLOAT8 | types::FLOAT4);
        self.freedom.representative = true;
        let mut arguments = Vec::new();
        for (at, slot) in signature.arguments.iter().enumerate() {
            arguments.push(match slot {
                Slot::Is(types::FLOAT8) => self.exact_float(),
                Slot::Is(of) if at == 0 => self.expression(*of, 1),
                Slot::Is(of) => self.constant(*of),
                _ => self.expression(element, 1),
            });
        }
        let joins = pools::is_ordered(&signature.name);
        let distinct = if !joins && !windowed && self.random.chance(1, 5) {
            "DISTINCT "
        } else {
            ""
        };
        let distinct = Node::optional(vec![distinct.into()]);
        let order = if joins && !windowed {
            let first = arguments.first().cloned().unwrap_or_else(|| Node::text("1"));
            match signature.name.starts_with("json") {
                // Not every value of json has an order, and equal ones may differ.
                true => {
                    let texts = arguments.iter().cloned();
                    let texts = texts.map(|value| node!(Kind::Group; "(", value, ")::text"));
                    vec![" ORDER BY ".into(), Node::list(", ", texts.collect()).into()]
                }
                false => vec![" ORDER BY ".into(), first.into()],
            }
        } else {
            Vec::new()
        };
        let filter = self.filter();
        let node = node!(Kind::Expression(ty); format!("{}(", signature.name), distinct, Node::list(", ", arguments),
                         Node::of(Kind::Group, order), ")", filter);
        (node, ty)
    }

    /// A float whose sums are exact in any order.
    fn exact_float(&mut self) -> Node {
        let fitting = self
            .scopes
            .last()
            .into_iter()
            .flatten()
            .find(|column| column.text.ends_with(".g"));
        let text = fitting.map_or_else(|| "1.5::float8".to_owned(), |column| column.text.clone());
        node!(Kind::Column(types::FLOAT8); text)
    }

    fn filter(&mut self) -> Node {
        if !self.random.chance(1, 5) {
            return Node::optional(Vec::new());
        }
        let condition = self.expression(BOOL, 2);
        Node::optional(vec![" FILTER (WHERE ".into(), condition.into(), ")".into()])
    }

    fn grouped(&mut self) -> Node {
        let (source, columns) = self.source(1);
        self.scopes.push(columns);
        self.freedom.representative = true;
        let mut types = Vec::new();
        let mut keys = Vec::new();
        let mut constant = false;
        for _ in 0..self.random.below(3) {
            let ty = self.sortable_type();
            let key = if self.random.chance(2, 3) {
                self.leaf(ty)
            } else {
                self.expression(ty, 1)
            };
            constant |= !key.names_column();
            keys.push(node!(Kind::Group; "(", key, format!(")::{}", ty.name())));
            types.push(ty);
        }
        let mut list = keys.clone();
        for _ in 0..1 + self.random.below(2) {
            let (node, ty) = self.aggregate(false);
            list.push(node);
            types.push(ty);
        }
        let condition = self.condition("WHERE", 2);
        let having = if self.random.chance(1, 4) {
            let (aggregate, _) = self.aggregate(false);
            Node::optional(vec![" HAVING ".into(), aggregate.into(), " IS NOT NULL".into()])
        } else {
            Node::optional(Vec::new())
        };
        self.scopes.pop();
        let group = if keys.is_empty() {
            Node::optional(Vec::new())
        } else {
            // PostgreSQL 15 does not sort by a constant that is NULL in some of the sets.
            let sets = if constant { 3 } else { 6 };
            let (open, close) = *self
                .pick(
                    &[
                        ("", ""),
                        ("", ""),
                        ("", ""),
                        ("ROLLUP (", ")"),
                        ("CUBE (", ")"),
                        ("GROUPING SETS ((), ", ")"),
                    ][..sets],
                )
                .unwrap_or(&("", ""));
            Node::optional(vec![
                format!(" GROUP BY {open}").into(),
                Node::list(", ", keys).into(),
                close.into(),
            ])
        };
        let order = self.order(&types);
        node!(Kind::Query; "SELECT ", Node::list(", ", list), " FROM ", source, condition, group, having, order)
    }

    fn windowed(&mut self) -> Node {
        let name = self.one_of(&["a", "b", "a"]);
        let alias = self.fresh("t");
        let scope = self.visible(name, &alias, true);
        self.scopes.push(scope);
        let mut list = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            list.push(self.window_call(&alias));
        }
        let condition = self.condition("WHERE", 2);
        self.scopes.pop();
        self.freedom.ordered = true;
        node!(Kind::Query; format!("SELECT {alias}.id, "), Node::list(", ", list), format!(" FROM {name} {alias}"), condition,
              Node::optional(vec![format!(" ORDER BY {alias}.id").into()]))
    }

    /// A frame by the distance of the key, and a call that does not tell peers apart.
    fn range_call(&mut self, alias: &str) -> Node {
        let (column, offsets): (&str, &[&'static str]) = *self
            .pick(&[
                ("i2", &["1", "0", "100", "32767"] as &[&str]),
                ("i4", &["1", "0", "2147483647", "-1"]),
                ("i8", &["1", "10", "9223372036854775807"]),
                ("n", &["1.5", "0", "100"]),
                ("m", &["1", "0.5"]),
                ("g", &["1.5", "0", "1e3"]),
                ("d", &["'1 day'::interval", "'1 mon'::interval"]),
                (
                    "ts",
                    &["'1 day'::interval", "'-1 day'::interval", "'1 year'::interval"],
                ),
                ("tz", &["'36:00'::interval", "'1 mon'::interval"]),
                ("tm", &["'01:00'::interval", "'30:00'::interval"]),
                ("iv", &["'1 day'::interval"]),
            ])
            .unwrap_or(&("i4", &["1"]));
        let (from, to) = (self.offset(offsets), self.offset(offsets));
        let call = self.one_of(&["count(*)", "count({}.t)", "sum({}.i4)", "min({}.id)", "max({}.d)"]);
        let exclude = self.one_of(&["", "", " EXCLUDE GROUP", " EXCLUDE CURRENT ROW", " EXCLUDE TIES"]);
        let direction = self.one_of(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        let start = self.one_of(&[
            "UNBOUNDED PRECEDING",
            "CURRENT ROW",
            "{} PRECEDING",
            "{} PRECEDING",
        ]);
        let end = self.one_of(&["UNBOUNDED FOLLOWING", "CURRENT ROW", "{} FOLLOWING"]);
        let (start, end) = (start.replace("{}", from), end.replace("{}", to));
        let frame = format!(" RANGE BETWEEN {start} AND {end}{exclude}");
        let call = call.replace("{}", alias);
        node!(Kind::Group; format!("{call} OVER (ORDER BY {alias}.{column}{direction}"),
              Node::optional(vec![frame.into()]), ")")
    }

    fn offset(&mut self, offsets: &[&'static str]) -> &'static str {
        self.pick(offsets).copied().unwrap_or("1")
    }

    fn window_call(&mut self, alias: &str) -> Node {
        if self.random.chance(1, 5) {
            return self.range_call(alias);
        }
        let windows: Vec<Signature> = self.catalog.windows.clone();
        let (call, frames) = match self.random.below(2) {
            0 => (self.aggregate(true).0, true),
            _ => match self.pick(&windows) {
                Some(signature) => (self.window_function(&signature.clone()), false),
                None => (Node::text("row_number()"), false),
            },
        };
        let partition = if self.random.chance(1, 2) {
            let ty = self.sortable_type();
            let by = self.leaf(ty);
            Node::optional(vec!["PARTITION BY ".into(), by.into(), " ".into()])
        } else {
            Node::optional(Vec::new())
        };
        let ty = self.sortable_type();
        let by = self.leaf(ty);
        let direction = self.one_of(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        let frame = if frames || self.random.chance(1, 4) {
            self.one_of(&[
                "",
                " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                " RANGE UNBOUNDED PRECEDING",
                " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                " GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
                " ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING",
                " ROWS 2 PRECEDING EXCLUDE CURRENT ROW",
                " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
                " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE GROUP",
                " GROUPS BETWEEN 1 FOLLOWING AND 2 FOLLOWING EXCLUDE TIES",
                " ROWS BETWEEN 0 PRECEDING AND 0 FOLLOWING",
                " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            ])
        } else {
            ""
        };
        let frame = Node::optional(vec![frame.into()]);
        node!(Kind::Group; call, " OVER (", partition, "ORDER BY ", by, format!("{direction}, {alias}.id"), frame, ")")
    }

    fn window_function(&mut self, signature: &Signature) -> Node {
        let element = self.any_type();
        let mut arguments = Vec::new();
        for slot in &signature.arguments {
            arguments.push(match slot {
                Slot::Is(INT4) => {
                    let text = self.one_of(&["1", "2", "3"]);
                    INT4.literal(text, text)
                }
                Slot::Is(ty) => self.leaf(*ty),
                _ => self.leaf(element),
            });
        }
        debug_assert!(signature.form == Form::Window);
        node!(Kind::Group; format!("{}(", signature.name), Node::list(", ", arguments), ")")
    }

    fn set_operation(&mut self) -> Node {
        let types = self.wanted(2);
        self.freedom.representative = true;
        let mut query = self.plain(&types, 0);
        for _ in 0..1 + self.random.below(2) {
            let word = self.one_of(&[
                "UNION",
                "UNION ALL",
                "EXCEPT",
                "EXCEPT ALL",
                "INTERSECT",
                "INTERSECT ALL",
            ]);
            // Branches of other types must find a common one.
            let mut own = types.clone();
            if self.random.chance(1, 4) {
                for ty in &mut own {
                    let like: &[Type] = match *ty {
                        ty if ty.is_number() => &[types::INT2, INT4, types::INT8, types::NUMERIC],
                        types::TEXT | types::VARCHAR => &[types::TEXT, types::VARCHAR],
                        types::DATE | types::TIMESTAMP => &[types::DATE, types::TIMESTAMP],
                        ty => &[ty],
                    };
                    *ty = *self.pick(like).unwrap_or(ty);
                }
            }
            let right = self.plain(&own, 0);
            query = node!(Kind::Query; query, format!(" {word} "), right);
        }
        let mut widest = types;
        // An order by numbers of several types is not total.
        widest
            .iter_mut()
            .filter(|ty| ty.is_number())
            .for_each(|ty| *ty = types::NUMERIC);
        let order = self.order(&widest);
        node!(Kind::Query; query, order)
    }

    fn with(&mut self) -> Node {
        let types = vec![INT4, self.sortable_type()];
        let inner = self.plain(&types, 1);
        let name = self.fresh("c");
        let materialised = self.one_of(&["", "", "MATERIALIZED ", "NOT MATERIALIZED "]);
        let columns = |alias: &str| -> Vec<Visible> {
            let one = |(at, ty): (usize, &Type)| Visible {
                text: format!("{alias}.x{}", at + 1),
                ty: *ty,
            };
            types.iter().enumerate().map(one).collect()
        };
        let (one, two) = (self.fresh("r"), self.fresh("r"));
        self.scopes.push(columns(&one));
        let wanted = vec![types[0], types[1]];
        let (source, more) = if self.random.chance(1, 2) {
            (
                format!("{name} {one} JOIN {name} {two} ON {one}.x1 = {two}.x1"),
                columns(&two),
            )
        } else {
            (format!("{name} {one}"), Vec::new())
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.extend(more);
        }
        let list = wanted.iter().map(|ty| self.expression(*ty, 2)).collect();
        let condition = self.condition("WHERE", 2);
        self.scopes.pop();
        let order = self.order(&wanted);
        node!(Kind::Query; format!("WITH {name}(x1, x2) AS {materialised}("), inner, ") ",
              node!(Kind::Query; "SELECT ", Node::list(", ", list), format!(" FROM {source}"), condition), order)
    }

    fn recursive(&mut self) -> Node {
        let word = self.one_of(&["UNION ALL", "UNION"]);
        let limit = 2 + self.random.below(6);
        let (start, step, ty) = *self
            .pick(&[
                ("1", "n + 1", INT4),
                ("0::numeric", "n + 1.5", types::NUMERIC),
                ("1::bigint", "n * 2", types::INT8),
            ])
            .unwrap_or(&("1", "n + 1", INT4));
        let scope = vec![
            Visible { text: "n".into(), ty },
            Visible {
                text: "depth".into(),
                ty: INT4,
            },
        ];
        self.scopes.push(scope);
        let wanted = [self.any_type()];
        let value = self.expression(wanted[0], 2);
        let condition = self.condition("WHERE", 2);
        self.scopes.pop();
        node!(Kind::Query;
              format!("WITH RECURSIVE r(n, depth) AS (SELECT {start}, 1 {word} SELECT {step}, depth + 1 FROM r \
                       WHERE depth < {limit}) SELECT "), Node::list(", ", vec![Node::text("depth"), value]), " FROM r", condition)
    }

    fn distinct_on(&mut self) -> Node {
        let alias = self.fresh("t");
        let scope = self.visible("a", &alias, true);
        self.scopes.push(scope);
        let ty = self.sortable_type();
        let key = self
            .column(ty)
            .unwrap_or_else(|| Node::text(format!("{alias}.i4")));
        let types = self.wanted(2);
        let mut list = vec![key.clone()];
        list.extend(types.iter().map(|ty| self.leaf(*ty)));
        let condition = self.condition("WHERE", 2);
        self.scopes.pop();
        let direction = self.one_of(&["", " DESC"]);
        self.freedom.ordered = true;
        node!(Kind::Query; "SELECT DISTINCT ON (", key.clone(), ") ", Node::list(", ", list), format!(" FROM a {alias}"),
              condition, " ORDER BY ", key, format!("{direction}, {alias}.id"))
    }

    fn values(&mut self) -> Node {
        let types = self.wanted(2);
        self.safe = false;
        let rows = self.rows_of(&types, 2);
        self.freedom.any_data_error = true;
        self.safe = true;
        node!(Kind::Query; "VALUES ", rows)
    }

    /// Every type sorts, with its NULLs, and its ties broken by the key.
    fn sorted(&mut self) -> Node {
        let name = self.one_of(&["a", "b"]);
        let scope = self.visible(name, name, false);
        self.scopes.push(scope);
        let ty = self.any_type();
        let (key, value) = (self.leaf(ty), self.leaf(ty));
        let condition = self.condition("WHERE", 2);
        self.scopes.pop();
        let order = self.one_of(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC NULLS LAST"]);
        let limit = self.one_of(&["", " LIMIT 4", " LIMIT 5 OFFSET 3", " LIMIT ALL"]);
        self.freedom.ordered = true;
        let limit = Node::optional(vec![limit.into()]);
        node!(Kind::Query; "SELECT id, ", value, format!(" FROM {name}"), condition, " ORDER BY (", key,
              format!("){order}, id"), limit)
    }
}
