//! The options of an identity column, in the order that the parser takes.

use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Puts the options inside `IDENTITY (...)` into the one order that sqlparser takes; PostgreSQL takes any.
pub(crate) fn order_identity_options(tokens: &mut [TokenWithSpan]) {
    const ORDER: [&str; 6] = ["INCREMENT", "MINVALUE", "MAXVALUE", "START", "CACHE", "CYCLE"];
    let rank = |token: &Token| match token {
        Token::Word(word) => ORDER
            .iter()
            .position(|name| word.value.eq_ignore_ascii_case(name)),
        _ => None,
    };
    let is_word = |token: &TokenWithSpan, name: &str| match &token.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(name),
        _ => false,
    };
    let mut at = 0;
    while let Some(found) = tokens
        .get(at..)
        .and_then(|rest| rest.iter().position(|token| is_word(token, "IDENTITY")))
    {
        at += found + 1;
        let Some(rest) = tokens.get_mut(at..) else { return };
        if rest.first().is_none_or(|token| token.token != Token::LParen) {
            continue;
        }
        let Some(end) = rest.iter().position(|token| token.token == Token::RParen) else {
            return;
        };
        let Some(options) = rest.get_mut(1..end) else {
            return;
        };
        let mut groups: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
        for (number, token) in options.iter().enumerate() {
            let negated = number > 0
                && options
                    .get(number - 1)
                    .is_some_and(|before| is_word(before, "NO"));
            let begins = if is_word(token, "NO") {
                options.get(number + 1).and_then(|next| rank(&next.token))
            } else {
                rank(&token.token).filter(|_| !negated)
            };
            match (begins, groups.last_mut()) {
                (Some(rank), _) => groups.push((rank, vec![token.clone()])),
                (None, Some((_, group))) => group.push(token.clone()),
                // Not an option: for the parser to complain about.
                (None, None) => return,
            }
        }
        groups.sort_by_key(|(rank, _)| *rank);
        for (slot, token) in options
            .iter_mut()
            .zip(groups.into_iter().flat_map(|(_, group)| group))
        {
            *slot = token;
        }
    }
}
