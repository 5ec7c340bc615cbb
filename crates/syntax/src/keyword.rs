//! PostgreSQL's key words: what each may name when it is not quoted.
//!
//! Source: `pg_get_keywords()` of PostgreSQL 15 (kwlist.h).

use std::sync::LazyLock;

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

/// Where a key word may stand as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Anywhere.
    Unreserved,
    /// A column or a table, but no function and no type.
    ColumnName,
    /// A function or a type, but no column and no table.
    TypeOrFunction,
    /// Only after AS or a point.
    Reserved,
}

use Category::{ColumnName as C, Reserved as R, TypeOrFunction as T, Unreserved as U};

/// Category of a word in lower case, and whether it may follow an expression as its name without AS. `None`
/// for a word that is no key word.
#[must_use]
pub fn look_up(word: &str) -> Option<(Category, bool)> {
    let at = KEYWORDS.binary_search_by(|entry| entry.0.cmp(word)).ok()?;
    KEYWORDS.get(at).map(|entry| (entry.1, entry.2))
}

/// What the parser calls each of [`KEYWORDS`], which it would look up again for each word of a statement.
static OF_PARSER: LazyLock<Vec<Keyword>> = LazyLock::new(|| {
    let keyword = |word: &str| match Token::make_word(word, None) {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    KEYWORDS.iter().map(|(word, ..)| keyword(word)).collect()
});

/// What the parser calls a word in lower case; `None` for a word that is no key word.
pub(crate) fn of_parser(word: &str) -> Option<Keyword> {
    let at = KEYWORDS.binary_search_by(|entry| entry.0.cmp(word)).ok()?;
    OF_PARSER.get(at).copied()
}

/// The word may name a column or a table.
#[must_use]
pub fn names_column(word: &str) -> bool {
    matches!(look_up(word), None | Some((U | C, _)))
}

/// The word may follow an expression as its name without AS.
#[must_use]
pub fn names_bare_label(word: &str) -> bool {
    look_up(word).is_none_or(|(_, bare)| bare)
}

#[rustfmt::skip]
const KEYWORDS: &[(&str, Category, bool)] = &[
    ("abort", U, true), ("absolute", U, true), ("access", U, true), ("action", U, true),
    ("add", U, true), ("admin", U, true), ("after", U, true), ("aggregate", U, true),
    ("all", R, true), ("also", U, true), ("alter", U, true), ("always", U, true),
    ("analyse", R, true), ("analyze", R, true), ("and", R, true), ("any", R, true),
    ("array", R, false), ("as", R, false), ("asc", R, true), ("asensitive", U, true),
    ("assertion", U, true), ("assignment", U, true), ("asymmetric", R, true), ("at", U, true),
    ("atomic", U, true), ("attach", U, true), ("attribute", U, true), ("authorization", T, true),
    ("backward", U, true), ("before", U, true), ("begin", U, true), ("between", C, true),
    ("bigint", C, true), ("binary", T, true), ("bit", C, true), ("boolean", C, true),
    ("both", R, true), ("breadth", U, true), ("by", U, true), ("cache", U, true),
    ("call", U, true), ("called", U, true), ("cascade", U, true), ("cascaded", U, true),
    ("case", R, true), ("cast", R, true), ("catalog", U, true), ("chain", U, true),
    ("char", C, false), ("character", C, false), ("characteristics", U, true), ("check", R, true),
    ("checkpoint", U, true), ("class", U, true), ("close", U, true), ("cluster", U, true),
    ("coalesce", C, true), ("collate", R, true), ("collation", T, true), ("column", R, true),
    ("columns", U, true), ("comment", U, true), ("comments", U, true), ("commit", U, true),
    ("committed", U, true), ("compression", U, true), ("concurrently", T, true),
    ("configuration", U, true), ("conflict", U, true), ("connection", U, true),
    ("constraint", R, true), ("constraints", U, true), ("content", U, true), ("continue", U, true),
    ("conversion", U, true), ("copy", U, true), ("cost", U, true), ("create", R, false),
    ("cross", T, true), ("csv", U, true), ("cube", U, true), ("current", U, true),
    ("current_catalog", R, true), ("current_date", R, true), ("current_role", R, true),
    ("current_schema", T, true), ("current_time", R, true), ("current_timestamp", R, true),
    ("current_user", R, true), ("cursor", U, true), ("cycle", U, true), ("data", U, true),
    ("database", U, true), ("day", U, false), ("deallocate", U, true), ("dec", C, true),
    ("decimal", C, true), ("declare", U, true), ("default", R, true), ("defaults", U, true),
    ("deferrable", R, true), ("deferred", U, true), ("definer", U, true), ("delete", U, true),
    ("delimiter", U, true), ("delimiters", U, true), ("depends", U, true), ("depth", U, true),
    ("desc", R, true), ("detach", U, true), ("dictionary", U, true), ("disable", U, true),
    ("discard", U, true), ("distinct", R, true), ("do", R, true), ("document", U, true),
    ("domain", U, true), ("double", U, true), ("drop", U, true), ("each", U, true),
    ("else", R, true), ("enable", U, true), ("encoding", U, true), ("encrypted", U, true),
    ("end", R, true), ("enum", U, true), ("escape", U, true), ("event", U, true),
    ("except", R, false), ("exclude", U, true), ("excluding", U, true), ("exclusive", U, true),
    ("execute", U, true), ("exists", C, true), ("explain", U, true), ("expression", U, true),
    ("extension", U, true), ("external", U, true), ("extract", C, true), ("false", R, true),
    ("family", U, true), ("fetch", R, false), ("filter", U, false), ("finalize", U, true),
    ("first", U, true), ("float", C, true), ("following", U, true), ("for", R, false),
    ("force", U, true), ("foreign", R, true), ("forward", U, true), ("freeze", T, true),
    ("from", R, false), ("full", T, true), ("function", U, true), ("functions", U, true),
    ("generated", U, true), ("global", U, true), ("grant", R, false), ("granted", U, true),
    ("greatest", C, true), ("group", R, false), ("grouping", C, true), ("groups", U, true),
    ("handler", U, true), ("having", R, false), ("header", U, true), ("hold", U, true),
    ("hour", U, false), ("identity", U, true), ("if", U, true), ("ilike", T, true),
    ("immediate", U, true), ("immutable", U, true), ("implicit", U, true), ("import", U, true),
    ("in", R, true), ("include", U, true), ("including", U, true), ("increment", U, true),
    ("index", U, true), ("indexes", U, true), ("inherit", U, true), ("inherits", U, true),
    ("initially", R, true), ("inline", U, true), ("inner", T, true), ("inout", C, true),
    ("input", U, true), ("insensitive", U, true), ("insert", U, true), ("instead", U, true),
    ("int", C, true), ("integer", C, true), ("intersect", R, false), ("interval", C, true),
    ("into", R, false), ("invoker", U, true), ("is", T, true), ("isnull", T, false),
    ("isolation", U, true), ("join", T, true), ("key", U, true), ("label", U, true),
    ("language", U, true), ("large", U, true), ("last", U, true), ("lateral", R, true),
    ("leading", R, true), ("leakproof", U, true), ("least", C, true), ("left", T, true),
    ("level", U, true), ("like", T, true), ("limit", R, false), ("listen", U, true),
    ("load", U, true), ("local", U, true), ("localtime", R, true), ("localtimestamp", R, true),
    ("location", U, true), ("lock", U, true), ("locked", U, true), ("logged", U, true),
    ("mapping", U, true), ("match", U, true), ("matched", U, true), ("materialized", U, true),
    ("maxvalue", U, true), ("merge", U, true), ("method", U, true), ("minute", U, false),
    ("minvalue", U, true), ("mode", U, true), ("month", U, false), ("move", U, true),
    ("name", U, true), ("names", U, true), ("national", C, true), ("natural", T, true),
    ("nchar", C, true), ("new", U, true), ("next", U, true), ("nfc", U, true), ("nfd", U, true),
    ("nfkc", U, true), ("nfkd", U, true), ("no", U, true), ("none", C, true),
    ("normalize", C, true), ("normalized", U, true), ("not", R, true), ("nothing", U, true),
    ("notify", U, true), ("notnull", T, false), ("nowait", U, true), ("null", R, true),
    ("nullif", C, true), ("nulls", U, true), ("numeric", C, true), ("object", U, true),
    ("of", U, true), ("off", U, true), ("offset", R, false), ("oids", U, true), ("old", U, true),
    ("on", R, false), ("only", R, true), ("operator", U, true), ("option", U, true),
    ("options", U, true), ("or", R, true), ("order", R, false), ("ordinality", U, true),
    ("others", U, true), ("out", C, true), ("outer", T, true), ("over", U, false),
    ("overlaps", T, false), ("overlay", C, true), ("overriding", U, true), ("owned", U, true),
    ("owner", U, true), ("parallel", U, true), ("parameter", U, true), ("parser", U, true),
    ("partial", U, true), ("partition", U, true), ("passing", U, true), ("password", U, true),
    ("placing", R, true), ("plans", U, true), ("policy", U, true), ("position", C, true),
    ("preceding", U, true), ("precision", C, false), ("prepare", U, true), ("prepared", U, true),
    ("preserve", U, true), ("primary", R, true), ("prior", U, true), ("privileges", U, true),
    ("procedural", U, true), ("procedure", U, true), ("procedures", U, true), ("program", U, true),
    ("publication", U, true), ("quote", U, true), ("range", U, true), ("read", U, true),
    ("real", C, true), ("reassign", U, true), ("recheck", U, true), ("recursive", U, true),
    ("ref", U, true), ("references", R, true), ("referencing", U, true), ("refresh", U, true),
    ("reindex", U, true), ("relative", U, true), ("release", U, true), ("rename", U, true),
    ("repeatable", U, true), ("replace", U, true), ("replica", U, true), ("reset", U, true),
    ("restart", U, true), ("restrict", U, true), ("return", U, true), ("returning", R, false),
    ("returns", U, true), ("revoke", U, true), ("right", T, true), ("role", U, true),
    ("rollback", U, true), ("rollup", U, true), ("routine", U, true), ("routines", U, true),
    ("row", C, true), ("rows", U, true), ("rule", U, true), ("savepoint", U, true),
    ("schema", U, true), ("schemas", U, true), ("scroll", U, true), ("search", U, true),
    ("second", U, false), ("security", U, true), ("select", R, true), ("sequence", U, true),
    ("sequences", U, true), ("serializable", U, true), ("server", U, true), ("session", U, true),
    ("session_user", R, true), ("set", U, true), ("setof", C, true), ("sets", U, true),
    ("share", U, true), ("show", U, true), ("similar", T, true), ("simple", U, true),
    ("skip", U, true), ("smallint", C, true), ("snapshot", U, true), ("some", R, true),
    ("sql", U, true), ("stable", U, true), ("standalone", U, true), ("start", U, true),
    ("statement", U, true), ("statistics", U, true), ("stdin", U, true), ("stdout", U, true),
    ("storage", U, true), ("stored", U, true), ("strict", U, true), ("strip", U, true),
    ("subscription", U, true), ("substring", C, true), ("support", U, true),
    ("symmetric", R, true), ("sysid", U, true), ("system", U, true), ("table", R, true),
    ("tables", U, true), ("tablesample", T, true), ("tablespace", U, true), ("temp", U, true),
    ("template", U, true), ("temporary", U, true), ("text", U, true), ("then", R, true),
    ("ties", U, true), ("time", C, true), ("timestamp", C, true), ("to", R, false),
    ("trailing", R, true), ("transaction", U, true), ("transform", U, true), ("treat", C, true),
    ("trigger", U, true), ("trim", C, true), ("true", R, true), ("truncate", U, true),
    ("trusted", U, true), ("type", U, true), ("types", U, true), ("uescape", U, true),
    ("unbounded", U, true), ("uncommitted", U, true), ("unencrypted", U, true),
    ("union", R, false), ("unique", R, true), ("unknown", U, true), ("unlisten", U, true),
    ("unlogged", U, true), ("until", U, true), ("update", U, true), ("user", R, true),
    ("using", R, true), ("vacuum", U, true), ("valid", U, true), ("validate", U, true),
    ("validator", U, true), ("value", U, true), ("values", C, true), ("varchar", C, true),
    ("variadic", R, true), ("varying", U, false), ("verbose", T, true), ("version", U, true),
    ("view", U, true), ("views", U, true), ("volatile", U, true), ("when", R, true),
    ("where", R, false), ("whitespace", U, true), ("window", R, false), ("with", R, false),
    ("within", U, false), ("without", U, false), ("work", U, true), ("wrapper", U, true),
    ("write", U, true), ("xml", U, true), ("xmlattributes", C, true), ("xmlconcat", C, true),
    ("xmlelement", C, true), ("xmlexists", C, true), ("xmlforest", C, true),
    ("xmlnamespaces", C, true), ("xmlparse", C, true), ("xmlpi", C, true), ("xmlroot", C, true),
    ("xmlserialize", C, true), ("xmltable", C, true), ("year", U, false), ("yes", U, true),
    ("zone", U, true),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(KEYWORDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(look_up("select"), Some((R, true)));
        assert_eq!(look_up("as"), Some((R, false)));
        assert_eq!(look_up("weft"), None);
        assert!(names_column("value") && !names_column("left"));
    }
}
