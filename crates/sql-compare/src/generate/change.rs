//! Statements that change the table `w`.

use super::{Generator, Statement};
use crate::node;
use crate::schema::Field;
use crate::tree::{Kind, Node, Part};
use crate::types::{BOOL, INT4, Type};

impl Generator<'_> {
    pub(super) fn change(&mut self) -> Statement {
        self.safe = true;
        let (tree, off_key) = match self.random.below(10) {
            0..3 => (self.insert(), None),
            3 => (self.insert_select(), None),
            4..6 => self.update(),
            6 => (self.update_from(), None),
            7 => (self.upsert(), None),
            8 => self.delete(),
            _ => (self.delete_using(), None),
        };
        Statement {
            changes: true,
            ..self.finished(tree, off_key)
        }
    }

    /// Some columns of `w` beside its key.
    fn some_fields(&mut self, most: u64) -> Vec<Field> {
        let all = self
            .schema
            .table("w")
            .map(|table| table.fields.clone())
            .unwrap_or_default();
        let mut chosen: Vec<Field> = Vec::new();
        for _ in 0..1 + self.random.below(most) {
            if let Some(field) = self.pick(all.get(1..).unwrap_or_default())
                && !chosen.iter().any(|other| other.name == field.name)
            {
                chosen.push(field.clone());
            }
        }
        chosen
    }

    fn returning(&mut self) -> Node {
        match self.random.below(3) {
            0 => Node::optional(vec![" RETURNING *".into()]),
            1 => {
                let scope = self.visible("w", "w", true);
                self.scopes = vec![scope];
                let ty = self.any_type();
                let value = self.expression(ty, 2);
                self.scopes.clear();
                Node::optional(vec![" RETURNING w.id, ".into(), value.into()])
            }
            _ => Node::optional(Vec::new()),
        }
    }

    /// A value for a column: of its type, or of one that an assignment casts.
    fn assigned(&mut self, ty: Type, depth: usize) -> Node {
        self.safe = !self.random.chance(1, 3);
        if !self.safe {
            self.freedom.any_data_error = true;
        }
        let other = if ty.is_number() && self.random.chance(1, 4) {
            let types = self.types.clone();
            let numbers: Vec<Type> = types.into_iter().filter(|ty| ty.is_number()).collect();
            *self.pick(&numbers).unwrap_or(&ty)
        } else if ty.is_string() && self.random.chance(1, 8) {
            self.any_type()
        } else {
            ty
        };
        let node = if self.random.chance(1, 12) {
            Node::text("DEFAULT")
        } else {
            self.expression(other, depth)
        };
        self.safe = true;
        node
    }

    fn insert(&mut self) -> Node {
        let fields = self.some_fields(4);
        let rows = (0..1 + self.random.below(3)).map(|at| {
            let mut list = vec![Node::text((10 + at).to_string())];
            list.extend(fields.iter().map(|field| self.assigned(field.ty, 2)));
            node!(Kind::Group; "(", Node::list(", ", list), ")")
        });
        let rows = Node::list(", ", rows.collect());
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let returning = self.returning();
        node!(Kind::Group; format!("INSERT INTO w (id, {}) VALUES ", names.join(", ")), rows, returning)
    }

    fn insert_select(&mut self) -> Node {
        let fields = self.some_fields(3);
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let head = format!("INSERT INTO w (id, {}) SELECT t.id + 100, ", names.join(", "));
        let table = self.one_of(&["a", "b", "w"]);
        let scope = self.visible(table, "t", true);
        self.scopes = vec![scope];
        let mut list = Vec::new();
        for field in &fields {
            list.push(self.assigned_plainly(field.ty));
        }
        let condition = self.expression(BOOL, 2);
        self.scopes.clear();
        let returning = self.returning();
        node!(Kind::Group; head, Node::list(", ", list), format!(" FROM {table} t"),
              Node::optional(vec![" WHERE ".into(), condition.into()]), returning)
    }

    fn assigned_plainly(&mut self, ty: Type) -> Node {
        if self.random.chance(1, 2) {
            self.leaf(ty)
        } else {
            self.expression(ty, 2)
        }
    }

    fn settings(&mut self) -> Node {
        let fields = self.some_fields(2);
        let list = fields.iter().map(|field| {
            let value = self.assigned(field.ty, 2);
            node!(Kind::Group; format!("{} = ", field.name), value)
        });
        Node::list(", ", list.collect())
    }

    fn update(&mut self) -> (Node, Option<Node>) {
        let scope = self.visible("w", "w", true);
        self.scopes = vec![scope.clone()];
        let settings = self.settings();
        let condition = self.expression(BOOL, 2);
        let by_key = self.random.chance(1, 2);
        let id = (1 + self.random.below(7)).to_string();
        let returning = self.returning();
        let whole = |condition: Node| {
            let returning = returning.clone();
            node!(Kind::Group; "UPDATE w SET ", settings.clone(), " WHERE ", condition, returning)
        };
        self.scopes.clear();
        if !by_key {
            return (whole(condition), None);
        }
        let key = |text: &str| node!(Kind::Group; format!("{text} = "), INT4.literal(&id, &id));
        (whole(key("id")), Some(whole(key("id + 0"))))
    }

    fn update_from(&mut self) -> Node {
        let table = self.one_of(&["a", "b"]);
        let mut scope = self.visible("w", "w", true);
        scope.extend(self.visible(table, "t", true));
        self.scopes = vec![scope];
        let settings = self.settings();
        let condition = self.expression(BOOL, 2);
        let returning = self.returning();
        self.scopes.clear();
        node!(Kind::Group; "UPDATE w SET ", settings, format!(" FROM {table} t WHERE w.id = t.id"),
              Node::optional(vec![" AND ".into(), condition.into()]), returning)
    }

    fn upsert(&mut self) -> Node {
        let fields = self.some_fields(2);
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let mut list = vec![Node::text((1 + self.random.below(9)).to_string())];
        list.extend(fields.iter().map(|field| self.assigned(field.ty, 1)));
        let mut action: Vec<Part> = vec![" ON CONFLICT".into()];
        match self.random.below(3) {
            0 => action.push(" DO NOTHING".into()),
            1 => action.push(" (id) DO NOTHING".into()),
            _ => {
                let first = fields.first().map(|field| field.name.clone()).unwrap_or_default();
                action.push(format!(" (id) DO UPDATE SET {first} = excluded.{first}").into());
                if self.random.chance(1, 2) {
                    let scope = self.visible("w", "w", true);
                    self.scopes = vec![scope];
                    let condition = self.expression(BOOL, 2);
                    self.scopes.clear();
                    action.push(Node::optional(vec![" WHERE ".into(), condition.into()]).into());
                }
            }
        }
        let returning = self.returning();
        node!(Kind::Group; format!("INSERT INTO w (id, {}) VALUES (", names.join(", ")), Node::list(", ", list), ")",
              Node::of(Kind::Group, action), returning)
    }

    fn delete(&mut self) -> (Node, Option<Node>) {
        let scope = self.visible("w", "w", true);
        self.scopes = vec![scope];
        let condition = self.expression(BOOL, 2);
        self.scopes.clear();
        let returning = self.returning();
        if self.random.chance(1, 2) {
            let id = (1 + self.random.below(7)).to_string();
            let whole = |key: &str| {
                let returning = returning.clone();
                node!(Kind::Group; format!("DELETE FROM w WHERE {key} = "), INT4.literal(&id, &id), returning)
            };
            return (whole("id"), Some(whole("id + 0")));
        }
        (
            node!(Kind::Group; "DELETE FROM w WHERE ", condition, returning),
            None,
        )
    }

    fn delete_using(&mut self) -> Node {
        let mut scope = self.visible("w", "w", true);
        scope.extend(self.visible("b", "t", true));
        self.scopes = vec![scope];
        let condition = self.expression(BOOL, 2);
        let returning = self.returning();
        self.scopes.clear();
        node!(Kind::Group; "DELETE FROM w USING b t WHERE w.id = t.id",
              Node::optional(vec![" AND ".into(), condition.into()]), returning)
    }
}
