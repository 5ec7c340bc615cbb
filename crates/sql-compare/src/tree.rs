//! A statement as a tree of texts: what the generator makes, and what the minimiser cuts.
//!
//! A node is a sequence of texts and nodes, and knows only what it may be replaced by: an expression by a
//! smaller one of its type, an optional clause by nothing, a list by a shorter list, a query by one inside
//! it. SQL's grammar is nowhere else; a cut that makes no sense fails on both servers alike and is not
//! taken.

use crate::types::Type;

/// What a node is, as far as cutting it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only its parts count.
    Group,
    /// A whole query.
    Query,
    /// What stands in FROM.
    Source,
    /// An expression of a type.
    Expression(Type),
    /// A constant of a type.
    Literal(Type),
    /// A column of a type.
    Column(Type),
    /// Can be left out.
    Optional,
    /// Parts are elements, separated by commas or another word.
    List(&'static str),
}

impl Kind {
    /// The type of what has one.
    fn ty(self) -> Option<Type> {
        match self {
            Self::Expression(ty) | Self::Literal(ty) | Self::Column(ty) => Some(ty),
            _ => None,
        }
    }
}

/// Text, or a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Verbatim.
    Text(String),
    /// A part that may be cut.
    Node(Node),
}

/// A part of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// What it is made of.
    pub parts: Vec<Part>,
    /// For a literal: the text of its value, `None` for NULL.
    pub value: Option<String>,
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Node> for Part {
    fn from(node: Node) -> Self {
        Self::Node(node)
    }
}

/// Puts texts and nodes together: `node!(Kind::Group; "NOT ", operand)`.
#[macro_export]
macro_rules! node {
    ($kind:expr; $($part:expr),* $(,)?) => {
        $crate::tree::Node::of($kind, vec![$($crate::tree::Part::from($part)),*])
    };
}

/// A literal that became a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifted {
    /// Its type.
    pub ty: Type,
    /// Its text, or NULL.
    pub value: Option<String>,
}

impl Node {
    /// A node of parts.
    #[must_use]
    pub fn of(kind: Kind, parts: Vec<Part>) -> Self {
        Self {
            kind,
            parts,
            value: None,
        }
    }

    /// A list of nodes.
    #[must_use]
    pub fn list(separator: &'static str, nodes: Vec<Node>) -> Self {
        Self::of(Kind::List(separator), nodes.into_iter().map(Part::Node).collect())
    }

    /// Whether a column is named anywhere in it.
    #[must_use]
    pub fn names_column(&self) -> bool {
        matches!(self.kind, Kind::Column(_))
            || self.parts.iter().any(|part| match part {
                Part::Text(_) => false,
                Part::Node(node) => node.names_column(),
            })
    }

    /// Verbatim text that is not cut.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(Kind::Group, vec![Part::Text(text.into())])
    }

    /// A clause that may be left out, or nothing.
    #[must_use]
    pub fn optional(parts: Vec<Part>) -> Self {
        Self::of(Kind::Optional, parts)
    }

    /// The SQL text.
    #[must_use]
    pub fn sql(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, &mut Style::Plain);
        out
    }

    /// The SQL text with literals as parameters, and their values in order.
    #[must_use]
    pub fn lifted(&self) -> (String, Vec<Lifted>) {
        let (mut out, mut style) = (String::new(), Style::Lift(Vec::new()));
        self.write(&mut out, &mut style);
        match style {
            Style::Lift(values) => (out, values),
            _ => (out, Vec::new()),
        }
    }

    /// The text with literals and columns replaced by their types: what statements of one cause have in
    /// common.
    #[must_use]
    pub fn shape(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, &mut Style::Shape);
        out
    }

    fn write(&self, out: &mut String, style: &mut Style) {
        match (&mut *style, self.kind) {
            (Style::Lift(values), Kind::Literal(ty)) => {
                values.push(Lifted {
                    ty,
                    value: self.value.clone(),
                });
                out.push_str(&format!("${}", values.len()));
                return;
            }
            (Style::Shape, Kind::Literal(ty)) => {
                let special = match self.value.as_deref() {
                    None => "NULL ",
                    Some("NaN" | "Infinity" | "-Infinity" | "infinity" | "-infinity") => "special ",
                    _ => "",
                };
                out.push_str(&format!("<{special}{}>", ty.name()));
                return;
            }
            (Style::Shape, Kind::Column(ty)) => {
                out.push_str(&format!("[{}]", ty.name()));
                return;
            }
            _ => {}
        }
        let separator = match self.kind {
            Kind::List(separator) => separator,
            _ => "",
        };
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                out.push_str(separator);
            }
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Node(node) => node.write(out, style),
            }
        }
    }

    /// Nodes and texts in it, itself included.
    #[must_use]
    pub fn size(&self) -> usize {
        let of = |part: &Part| match part {
            Part::Text(text) => usize::from(!text.is_empty()),
            Part::Node(node) => node.size(),
        };
        1 + self.parts.iter().map(of).sum::<usize>()
    }

    fn children(&self) -> impl Iterator<Item = &Node> {
        self.parts.iter().filter_map(|part| match part {
            Part::Node(node) => Some(node),
            Part::Text(_) => None,
        })
    }

    /// Every statement that one cut makes of this one, larger cuts first.
    #[must_use]
    pub fn cuts(&self) -> Vec<Node> {
        let mut cuts = self.own_cuts();
        for (at, part) in self.parts.iter().enumerate() {
            let Part::Node(child) = part else { continue };
            for smaller in child.cuts() {
                let mut whole = self.clone();
                if let Some(place) = whole.parts.get_mut(at) {
                    *place = Part::Node(smaller);
                }
                cuts.push(whole);
            }
        }
        cuts.sort_by_key(Node::size);
        cuts
    }

    fn own_cuts(&self) -> Vec<Node> {
        let mut cuts = Vec::new();
        match self.kind {
            Kind::Optional if !self.parts.is_empty() => cuts.push(Node::of(Kind::Optional, Vec::new())),
            Kind::List(_) if self.parts.len() > 1 => {
                for at in 0..self.parts.len() {
                    let mut shorter = self.clone();
                    shorter.parts.remove(at);
                    cuts.push(shorter);
                }
            }
            Kind::Expression(ty) => {
                let mut inner = Vec::new();
                self.descendants(&mut inner);
                let same_type = |node: &&Node| node.kind.ty() == Some(ty);
                cuts.extend(inner.into_iter().filter(same_type).cloned());
                cuts.push(ty.simplest());
            }
            Kind::Query | Kind::Source => {
                let mut inner = Vec::new();
                self.descendants(&mut inner);
                cuts.extend(inner.into_iter().filter(|node| node.kind == self.kind).cloned());
            }
            _ => {}
        }
        cuts.retain(|cut| cut.size() < self.size());
        cuts
    }

    fn descendants<'n>(&'n self, into: &mut Vec<&'n Node>) {
        for child in self.children() {
            into.push(child);
            child.descendants(into);
        }
    }
}

enum Style {
    Plain,
    Lift(Vec<Lifted>),
    Shape,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::INT4;

    fn sum() -> Node {
        let left = INT4.literal("1", "1");
        let right = node!(Kind::Expression(INT4); "abs(", INT4.literal("2", "2"), ")");
        node!(Kind::Query; "SELECT ", Node::list(", ", vec![
            node!(Kind::Expression(INT4); left, " + ", right),
            Node::text("3"),
        ]), Node::optional(vec![" LIMIT 1".into()]))
    }

    #[test]
    fn literals_become_parameters_or_types() {
        assert_eq!(sum().sql(), "SELECT 1 + abs(2), 3 LIMIT 1");
        let (text, values) = sum().lifted();
        assert_eq!(text, "SELECT $1 + abs($2), 3 LIMIT 1");
        assert_eq!(values.len(), 2);
        assert_eq!(sum().shape(), "SELECT <int4> + abs(<int4>), 3 LIMIT 1");
    }

    #[test]
    fn cuts_are_smaller_and_of_the_same_type() {
        let texts: Vec<String> = sum().cuts().iter().map(Node::sql).collect();
        for expected in [
            "SELECT 3 LIMIT 1",
            "SELECT 1 + abs(2), 3",
            "SELECT abs(2), 3 LIMIT 1",
            "SELECT 1 + 2, 3 LIMIT 1",
        ] {
            assert!(texts.iter().any(|text| text == expected), "{expected}: {texts:?}");
        }
        assert!(sum().cuts().iter().all(|cut| cut.size() < sum().size()));
    }
}
