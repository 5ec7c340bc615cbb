//! A statement that is ended while its text is read says so, wherever that is: nothing else is made of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use weft_types::interrupt::{self, Interrupt};
use weft_types::{SqlError, SqlState};

/// Ends what runs under it at the look after so many, and lets later ones pass: who was told must remember.
#[derive(Debug)]
struct EndsOnce {
    looks: AtomicUsize,
    at: usize,
}

impl Interrupt for EndsOnce {
    fn check(&self) -> Result<(), SqlError> {
        match self.looks.fetch_add(1, Relaxed) == self.at {
            true => Err(SqlError::new(SqlState::QUERY_CANCELED, "ended")),
            false => Ok(()),
        }
    }
}

/// Ends the reading of a text at each of its looks.
fn ends_everywhere(sql: &str) {
    for at in 0.. {
        let ends = Arc::new(EndsOnce {
            looks: AtomicUsize::new(0),
            at,
        });
        let read = interrupt::with(ends.clone(), || {
            weft_syntax::split(sql).try_for_each(|range| range.map(drop))?;
            weft_syntax::with_statement(sql, |_| Ok(()))
        });
        if ends.looks.load(Relaxed) <= at {
            assert!(at > 3, "only {at} looks at a long text");
            assert_eq!(read, Ok(()));
            return;
        }
        let state = read.map_err(|error| error.state);
        assert_eq!(state, Err(SqlState::QUERY_CANCELED), "at look {at}");
    }
}

#[test]
fn rows_of_values() {
    let rows: Vec<String> = (0..4_000).map(|n| format!("({n}, '{n}', {n}.5)")).collect();
    ends_everywhere(&format!("SELECT count(*) FROM (VALUES {}) v", rows.join(",")));
    ends_everywhere(&format!("INSERT INTO t VALUES {}", rows.join(",")));
}

#[test]
fn lists_and_arrays() {
    let items: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    ends_everywhere(&format!("SELECT cardinality(ARRAY[{}])", items.join(",")));
    ends_everywhere(&format!("SELECT 1 FROM t WHERE a IN ({})", items.join(",")));
}

#[test]
fn long_literals_and_comments() {
    ends_everywhere(&format!("SELECT '{}'", "it''s ".repeat(50_000)));
    ends_everywhere(&format!("SELECT 1 /* {} */", "/* */ ".repeat(100_000)));
}
