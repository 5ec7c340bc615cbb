//! PostgreSQL's built-in types that clients look up: `pg_type.tsv`, taken from PostgreSQL 15.

use std::sync::OnceLock;

use weft_types::SqlType;

/// One line of `pg_type.tsv`.
#[derive(Debug)]
pub struct TypeRow {
    /// Oid.
    pub oid: u32,
    /// The other columns as text: typname, typlen, typbyval, typtype, typcategory, typispreferred,
    /// typdelim, typelem, typarray, typinput, typoutput, typreceive, typsend, typalign, typstorage,
    /// typcollation, typsubscript and the name returned by `format_type`.
    pub cells: Vec<&'static str>,
}

impl TypeRow {
    /// typname.
    pub fn name(&self) -> &'static str {
        self.cells.first().copied().unwrap_or_default()
    }

    /// The name returned by `format_type`.
    pub fn shown(&self) -> &'static str {
        self.cells.last().copied().unwrap_or_default()
    }
}

/// All types, by oid.
pub fn all() -> &'static [TypeRow] {
    static TYPES: OnceLock<Vec<TypeRow>> = OnceLock::new();
    TYPES.get_or_init(|| {
        include_str!("pg_type.tsv")
            .lines()
            .filter_map(|line| {
                let mut cells = line.split('\t');
                let oid = cells.next()?.parse().ok()?;
                Some(TypeRow {
                    oid,
                    cells: cells.collect(),
                })
            })
            .collect()
    })
}

/// `format_type(oid, typmod)`.
pub fn format_type(oid: u32, typmod: Option<i32>) -> String {
    if oid == 0 {
        return "-".to_string();
    }
    if let Some(typmod) = typmod.filter(|typmod| *typmod >= 0)
        && let Some(ty) = SqlType::from_typmod(oid, typmod)
    {
        return ty.name();
    }
    match all().iter().find(|row| row.oid == oid) {
        Some(row) => row.shown().to_string(),
        None => "???".to_string(),
    }
}

/// The oid of a type by either of its names.
pub fn oid_of(name: &str) -> Option<u32> {
    let name = name.trim().trim_start_matches("pg_catalog.");
    all()
        .iter()
        .find(|row| row.name() == name || row.shown() == name)
        .map(|row| row.oid)
        .or(match name {
            "int" => Some(23),
            "decimal" => Some(1700),
            "varchar" => Some(1043),
            "timestamp" => Some(1114),
            "timestamptz" => Some(1184),
            _ => None,
        })
}
