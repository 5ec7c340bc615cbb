//! Whether names without schema are found, and names as they are shown: with their schema if they are not.

use weft_expression::Session;
use weft_store::{Catalog, SequenceId};

use crate::look_up::{quote_ident, relation_oid};

/// Whether the search path has the schema `public`.
pub(crate) fn is_public_searched(session: &dyn Session) -> bool {
    let path = session.setting("search_path");
    path.is_none_or(|path| has_public(&path))
}

fn has_public(search_path: &str) -> bool {
    let mut words = search_path.split(',');
    words.any(|word| word.trim().trim_matches(['"', '\'']) == "public")
}

/// A name in `public` as SQL, under a search path.
pub(crate) fn name_in(search_path: &str, name: &str) -> String {
    match has_public(search_path) {
        true => quote_ident(name),
        false => format!("public.{}", quote_ident(name)),
    }
}

/// A name in `public` as SQL.
pub(crate) fn shown_name(session: &dyn Session, name: &str) -> String {
    match is_public_searched(session) {
        true => quote_ident(name),
        false => format!("public.{}", quote_ident(name)),
    }
}

/// The relations that an expression names as `'name'::regclass`: where the name begins and ends in the text.
fn named_relations<'s>(catalog: &'s Catalog, sql: &'s str) -> impl Iterator<Item = (usize, usize, u32)> + 's {
    let ends = sql.match_indices("'::regclass").map(|(end, _)| end);
    ends.filter_map(|end| {
        let begin = sql.get(..end)?.rfind('\'')? + 1;
        let oid = relation_oid(catalog, sql.get(begin..end)?)?;
        Some((begin, end, oid))
    })
}

/// The sequences that a default names.
pub(crate) fn named_sequences(catalog: &Catalog, sql: &str) -> Vec<SequenceId> {
    let named = named_relations(catalog, sql).map(|(_, _, oid)| SequenceId(oid));
    named.filter(|id| catalog.sequence_by_id(*id).is_some()).collect()
}

/// An expression with the relations that it names as the session must name them.
pub(crate) fn shown_expression(session: &dyn Session, catalog: &Catalog, sql: &str) -> String {
    let (mut shown, mut from) = (String::new(), 0);
    let schema = "public.";
    for (begin, end, _) in named_relations(catalog, sql) {
        let name = sql.get(begin..end).unwrap_or_default();
        let plain = name.strip_prefix(schema).unwrap_or(name);
        shown.push_str(sql.get(from..begin).unwrap_or_default());
        if !is_public_searched(session) {
            shown.push_str(schema);
        }
        shown.push_str(plain);
        from = end;
    }
    shown.push_str(sql.get(from..).unwrap_or_default());
    shown
}
