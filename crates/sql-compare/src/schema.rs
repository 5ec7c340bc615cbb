//! The tables that statements are about, and their rows: every type with its edges and NULL.
//!
//! `a` and `b` have a column of every type (those that Weft does not take are left out on both servers),
//! `k` a primary key of two columns and composite indexes, `e` no rows, `w` is what statements change.

use crate::types::{self, Type};
use crate::wire::Connection;

/// A column: its name and type.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Type,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name.
    pub name: &'static str,
    /// Columns.
    pub fields: Vec<Field>,
    /// Columns of the primary key.
    pub key: &'static [&'static str],
    /// Numbers of rows with ids from 1.
    pub row_count: usize,
    /// Statements that make and fill it.
    pub make: Vec<String>,
}

/// Every table.
#[derive(Clone, Debug)]
pub struct Schema {
    /// In order of making.
    pub tables: Vec<Table>,
}

/// Columns of the wide tables: names, types and how the type is declared.
const WIDE: [(&str, Type, &str); 21] = [
    ("bo", types::BOOL, "boolean"),
    ("i2", types::INT2, "smallint"),
    ("i4", types::INT4, "integer"),
    ("i8", types::INT8, "bigint"),
    ("f4", types::FLOAT4, "real"),
    ("f8", types::FLOAT8, "double precision"),
    ("n", types::NUMERIC, "numeric"),
    ("m", types::NUMERIC, "numeric(12,3)"),
    ("t", types::TEXT, "text"),
    ("v", types::VARCHAR, "varchar(12)"),
    ("c", types::BPCHAR, "char(5)"),
    ("y", types::BYTEA, "bytea"),
    ("d", types::DATE, "date"),
    ("tm", types::TIME, "time"),
    ("ts", types::TIMESTAMP, "timestamp"),
    ("tz", types::TIMESTAMPTZ, "timestamptz"),
    ("iv", types::INTERVAL, "interval"),
    ("u", types::UUID, "uuid"),
    ("g", types::FLOAT8, "double precision"),
    ("js", types::JSON, "json"),
    ("jb", types::JSONB, "jsonb"),
];

/// Values of columns that do not take their type's edges: sums over them are exact, or they are short.
fn values_of(name: &str, ty: Type) -> Vec<&'static str> {
    match name {
        "m" => vec!["0", "1.5", "-2.125", "999999999.999", "100", "0.001", "3.14"],
        "g" => vec!["0.5", "1", "-2.25", "1024", "3", "0"],
        // Infinity of numeric is a constant among the expressions; a table that cannot hold it must not end
        // it all.
        "n" => ty
            .values()
            .iter()
            .copied()
            .filter(|value| *value != "Infinity")
            .collect(),
        _ => ty.values().to_vec(),
    }
}

impl Schema {
    /// The tables, with only such columns as Weft takes.
    #[must_use]
    pub fn over(weft: &mut Connection) -> Self {
        let mut columns = Vec::new();
        for column in WIDE {
            let made = weft.execute(&format!(
                "CREATE TABLE probe (id integer PRIMARY KEY, x {})",
                column.2
            ));
            if made.is_ok() {
                // The name is used again at once.
                let _ = weft.execute("DROP TABLE probe");
                columns.push(column);
            }
        }
        Self::of_columns(&columns)
    }

    /// The tables with all columns.
    #[must_use]
    pub fn whole() -> Self {
        Self::of_columns(&WIDE)
    }

    fn of_columns(columns: &[(&'static str, Type, &'static str)]) -> Self {
        let wide = |name, rows, shift| wide(name, columns, rows, shift);
        Self {
            tables: vec![
                wide("a", 16, 0),
                wide("b", 11, 3),
                keyed(),
                wide("e", 0, 0),
                changed(columns),
            ],
        }
    }

    /// The table of this name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Makes the tables anew.
    ///
    /// # Errors
    /// The server's.
    pub fn load(&self, connection: &mut Connection) -> Result<(), String> {
        for table in &self.tables {
            connection.execute(&format!("DROP TABLE IF EXISTS {}", table.name))?;
            for statement in &table.make {
                connection.execute(statement)?;
            }
        }
        Ok(())
    }

    /// What brings the changed table back.
    #[must_use]
    pub fn restore(&self) -> Vec<String> {
        let inserts = self
            .table("w")
            .map(|table| table.make.clone())
            .unwrap_or_default();
        let inserts = inserts.into_iter().filter(|text| text.starts_with("INSERT"));
        std::iter::once("DELETE FROM w".to_owned())
            .chain(inserts)
            .collect()
    }
}

fn fields(names: &[(&str, Type)]) -> Vec<Field> {
    let field = |(name, ty): &(&str, Type)| Field {
        name: (*name).to_owned(),
        ty: *ty,
    };
    names.iter().map(field).collect()
}

fn wide(
    name: &'static str,
    columns: &[(&'static str, Type, &'static str)],
    rows: usize,
    shift: usize,
) -> Table {
    let declared: Vec<String> = columns
        .iter()
        .map(|(column, _, sql)| format!("{column} {sql}"))
        .collect();
    let mut make = vec![format!(
        "CREATE TABLE {name} (id integer PRIMARY KEY, {})",
        declared.join(", ")
    )];
    for (index, on) in [
        ("i4", "i4"),
        ("t", "t"),
        ("ts_i8", "ts, i8"),
        ("n", "n"),
        ("bo_i2", "bo, i2"),
    ] {
        make.push(format!("CREATE INDEX {name}_{index} ON {name} ({on})"));
    }
    for row in 1..=rows {
        let value = |at: usize, (column, ty, _): &(&str, Type, &str)| {
            let values = values_of(column, *ty);
            // Each column walks through its values in its own step, with a NULL now and then.
            let step = (row * (1 + at % 3) + at + shift) % (values.len() + 1);
            values
                .get(step)
                .map_or("NULL".to_owned(), |value| types::quoted(value))
        };
        let values: Vec<String> = columns
            .iter()
            .enumerate()
            .map(|(at, column)| value(at, column))
            .collect();
        make.push(format!(
            "INSERT INTO {name} VALUES ({row}, {})",
            values.join(", ")
        ));
    }
    let mut all = fields(&[("id", types::INT4)]);
    all.extend(columns.iter().map(|(column, ty, _)| Field {
        name: (*column).to_owned(),
        ty: *ty,
    }));
    Table {
        name,
        fields: all,
        key: &["id"],
        row_count: rows,
        make,
    }
}

fn keyed() -> Table {
    let mut make = vec![
        "CREATE TABLE k (p integer, q text, i4 integer, i8 bigint, m numeric(12,3), d date, s text NOT NULL, \
         PRIMARY KEY (p, q))"
            .to_owned(),
        "CREATE INDEX k_i4_d ON k (i4, d)".to_owned(),
        "CREATE UNIQUE INDEX k_s ON k (s)".to_owned(),
    ];
    for p in 1..=5_usize {
        for (at, q) in ["a", "b", "", "ä"].iter().enumerate() {
            let null = |text: String, when: usize| {
                if (p + at).is_multiple_of(when) {
                    "NULL".into()
                } else {
                    text
                }
            };
            make.push(format!(
                "INSERT INTO k VALUES ({p}, '{q}', {}, {}, {}, {}, 's{p}{at}')",
                null(format!("{}", p * 3 % 4), 5),
                null(format!("{}", p * 1000 + at), 4),
                null(format!("{p}.{at}5"), 3),
                null(format!("'2024-0{p}-1{at}'"), 7),
            ));
        }
    }
    Table {
        name: "k",
        fields: fields(&[
            ("p", types::INT4),
            ("q", types::TEXT),
            ("i4", types::INT4),
            ("i8", types::INT8),
            ("m", types::NUMERIC),
            ("d", types::DATE),
            ("s", types::TEXT),
        ]),
        key: &["p", "q"],
        row_count: 20,
        make,
    }
}

fn changed(columns: &[(&'static str, Type, &'static str)]) -> Table {
    let mut table = wide("w", columns, 6, 1);
    table
        .make
        .insert(1, "CREATE UNIQUE INDEX w_u ON w (id, i4)".to_owned());
    table
}
