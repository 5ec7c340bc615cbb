//! Syntax: from SQL text to syntax trees, with PostgreSQL's grammar.
