//! Procedures in the catalog: rows of `pg_proc`, and the texts for `\df` and `\sf`.
//!
//! The texts are PostgreSQL's, so that the output of `\sf` can be executed.

use std::fmt::Write;
use std::sync::Arc;

use weft_store::{Catalog, ParamMode, ProcedureDef, ProcedureLanguage, ProcedureParam};
use weft_types::Value;

use crate::look_up::quote_ident;
use crate::{PUBLIC_OID, ROLE_OID, Row, accounts, flag, int2, oid, oid_list, text, types, vector};

/// The languages of procedures: rows of `pg_language`.
pub fn languages() -> Vec<Row> {
    let row = |language: ProcedureLanguage| {
        vec![
            ("oid", oid(language_oid(language))),
            ("lanname", text(language.name())),
            ("lanowner", oid(ROLE_OID)),
            ("lanispl", flag(language == ProcedureLanguage::PlPgSql)),
            ("lanpltrusted", flag(true)),
            ("lanplcallfoid", oid(0)),
            ("laninline", oid(0)),
            ("lanvalidator", oid(0)),
        ]
    };
    [ProcedureLanguage::Sql, ProcedureLanguage::PlPgSql]
        .into_iter()
        .map(row)
        .collect()
}

fn language_oid(language: ProcedureLanguage) -> u32 {
    match language {
        ProcedureLanguage::Sql => 14,
        ProcedureLanguage::PlPgSql => 13_500,
    }
}

/// Users' procedures; built-in functions are not listed.
pub fn rows(catalog: &Catalog) -> Vec<Row> {
    let row = |procedure: &Arc<ProcedureDef>| {
        let inputs = procedure.params.iter().filter(|param| param.mode.is_input());
        let types: Vec<u32> = inputs.map(|param| param.ty.oid()).collect();
        let has_output = procedure.params.iter().any(|param| param.mode.is_output());
        vec![
            ("oid", oid(procedure.id.0)),
            ("proname", text(&procedure.name)),
            ("pronamespace", oid(PUBLIC_OID)),
            ("proowner", oid(catalog.owner_of(procedure.id.0).0)),
            ("proacl", accounts::shown_acl(catalog, procedure.id.0)),
            ("prolang", oid(language_oid(procedure.language))),
            ("prokind", text("p")),
            ("procost", Value::Float4(100.0)),
            ("prorows", Value::Float4(0.0)),
            ("provariadic", oid(0)),
            ("prosupport", text("-")),
            ("prosecdef", flag(false)),
            ("proleakproof", flag(false)),
            ("proisstrict", flag(false)),
            ("proretset", flag(false)),
            ("provolatile", text("v")),
            ("proparallel", text("u")),
            ("pronargdefaults", int2(0)),
            ("prorettype", oid(if has_output { 2249 } else { 2278 })),
            ("pronargs", int2(types.len())),
            ("proargtypes", vector(oid_list(types.into_iter()))),
            ("prosrc", text(&procedure.body)),
        ]
    };
    catalog.procedures().map(row).collect()
}

/// The procedure with this id.
pub fn by_oid(catalog: &Catalog, id: u32) -> Option<&Arc<ProcedureDef>> {
    catalog.procedures().find(|procedure| procedure.id.0 == id)
}

/// `IN a integer, OUT b text`.
pub fn arguments(procedure: &ProcedureDef) -> String {
    let shown: Vec<String> = procedure.params.iter().map(argument).collect();
    shown.join(", ")
}

fn argument(param: &ProcedureParam) -> String {
    let mode = match param.mode {
        ParamMode::In => "IN",
        ParamMode::Out => "OUT",
        ParamMode::InOut => "INOUT",
    };
    let ty = types::format_type(param.ty.oid(), None);
    match param.name.as_str() {
        "" => format!("{mode} {ty}"),
        name => format!("{mode} {} {ty}", quote_ident(name)),
    }
}

/// The statement that creates the procedure.
pub fn definition(procedure: &ProcedureDef) -> String {
    // A tag that does not occur in the body, chosen as PostgreSQL does.
    let mut tag = "$procedure".to_owned();
    while procedure.body.contains(&tag) {
        tag.push('x');
    }
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "CREATE OR REPLACE PROCEDURE public.{}({})\n LANGUAGE {}\nAS {tag}${}{tag}$\n",
        quote_ident(&procedure.name),
        arguments(procedure),
        procedure.language.name(),
        procedure.body
    );
    out
}

#[cfg(test)]
mod tests {
    use weft_store::ProcedureId;
    use weft_types::SqlType;

    use super::*;

    #[test]
    fn texts_are_those_of_postgresql() {
        let param = |name: &str, mode, ty| ProcedureParam {
            name: name.to_owned(),
            mode,
            ty,
        };
        let procedure = ProcedureDef {
            id: ProcedureId(7),
            name: "Move it".to_owned(),
            params: vec![
                param("a", ParamMode::In, SqlType::Int4),
                param("out", ParamMode::In, SqlType::Int4),
                param("", ParamMode::In, SqlType::Text),
                param("Sum", ParamMode::Out, SqlType::Int8),
                param("b", ParamMode::InOut, SqlType::Float8),
            ],
            language: ProcedureLanguage::PlPgSql,
            body: "BEGIN RAISE '$procedure$'; END".to_owned(),
        };
        assert_eq!(
            definition(&procedure),
            "CREATE OR REPLACE PROCEDURE public.\"Move it\"(IN a integer, IN \"out\" integer, IN text, OUT \"Sum\" bigint, INOUT b double \
             precision)\n LANGUAGE plpgsql\nAS $procedurex$BEGIN RAISE '$procedure$'; END$procedurex$\n"
        );
    }
}
