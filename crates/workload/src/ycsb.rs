//! YCSB: point reads and updates of one table with skewed keys.
//!
//! Source: B. Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, workloads A, B and C;
//! the transactions of several accesses are Hobbes' (3.1) and BionicDB's (5.1).
//!
//! ```text
//! table usertable(ycsb_key bigint primary key, field0 text, field1 text, ...)
//! a transaction makes `accesses` accesses to different keys
//! each is an update with the workload's probability, else a read
//! an update writes one field, the same of every row it writes; a read returns the whole row
//! ```
//!
//! Updates come before reads in a transaction, so that a transaction's shape is only (updates, reads, field),
//! and one program per shape is enough.

use weft_base::Prng;

use crate::zipf::ZipfKeys;

/// Name of the one table.
pub const TABLE: &str = "usertable";

/// The share of updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Update heavy: half of the accesses write.
    A,
    /// Read heavy: one in twenty writes.
    B,
    /// Read only.
    C,
}

impl Mix {
    /// Updates in a hundred accesses.
    pub fn update_percent(self) -> u64 {
        match self {
            Mix::A => 50,
            Mix::B => 5,
            Mix::C => 0,
        }
    }

    /// The workload's letter, lower case.
    pub fn letter(self) -> &'static str {
        match self {
            Mix::A => "a",
            Mix::B => "b",
            Mix::C => "c",
        }
    }

    /// Reads the letter in either case.
    pub fn from_letter(letter: &str) -> Option<Self> {
        [Mix::A, Mix::B, Mix::C]
            .into_iter()
            .find(|mix| mix.letter().eq_ignore_ascii_case(letter))
    }
}

/// Sizes of the table and of its transactions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YcsbShape {
    /// Rows, with keys 0..records.
    pub records: u64,
    /// Fields of a row, beside the key.
    pub fields: usize,
    /// Bytes of one field.
    pub field_bytes: usize,
    /// Accesses of one transaction; each to another key.
    pub accesses: usize,
}

/// One transaction: the first `updates` keys are written, the others read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YcsbTransaction {
    /// Different keys.
    pub keys: Vec<u64>,
    /// How many of them, from the front, are written.
    pub updates: usize,
    /// Number of the field that updates write.
    pub field: usize,
    /// What they write there.
    pub value: String,
}

/// An endless stream of transactions.
#[derive(Debug, Clone)]
pub struct YcsbSource {
    shape: YcsbShape,
    mix: Mix,
    keys: ZipfKeys,
    random: Prng,
}

impl YcsbSource {
    /// A stream that depends on nothing but its arguments. `accesses` is cut to the number of records.
    pub fn new(shape: YcsbShape, mix: Mix, theta: f64, seed: u64) -> Self {
        let accesses = shape
            .accesses
            .min(usize::try_from(shape.records).unwrap_or(usize::MAX));
        let shape = YcsbShape { accesses, ..shape };
        Self {
            shape,
            mix,
            keys: ZipfKeys::new(shape.records, theta),
            random: Prng::new(seed),
        }
    }

    /// The next transaction.
    pub fn transaction(&mut self) -> YcsbTransaction {
        let random = &mut self.random;
        let mut keys = Vec::with_capacity(self.shape.accesses);
        while keys.len() < self.shape.accesses {
            let key = self.keys.key(random);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let percent = self.mix.update_percent();
        let updates = keys.iter().filter(|_| random.chance(percent, 100)).count();
        let field = random.below(self.shape.fields as u64) as usize;
        let value = if updates > 0 {
            text(random, self.shape.field_bytes)
        } else {
            String::new()
        };
        YcsbTransaction {
            keys,
            updates,
            field,
            value,
        }
    }
}

/// Random printable text of `bytes` bytes.
pub fn text(random: &mut Prng, bytes: usize) -> String {
    let mut out = String::with_capacity(bytes);
    let mut pool = 0u64;
    for at in 0..bytes {
        if at % 8 == 0 {
            pool = random.next_u64();
        }
        // 64 characters from '0' on, without quotes and backslashes at the cost of two repeated ones.
        let code = b'0' + (pool & 63) as u8;
        out.push(char::from(if code == b'\\' || code == b'`' {
            b'x'
        } else {
            code
        }));
        pool >>= 8;
    }
    out
}

/// `CREATE TABLE` for `fields` fields.
pub fn create_table(fields: usize) -> String {
    let columns: String = (0..fields).map(|n| format!(", field{n} text NOT NULL")).collect();
    format!("CREATE TABLE {TABLE} (ycsb_key bigint PRIMARY KEY{columns})")
}

/// Reads the whole row whose key is parameter number `key`.
pub fn read_statement(key: usize) -> String {
    format!("SELECT * FROM {TABLE} WHERE ycsb_key = ${key}")
}

/// Writes parameter number `value` into one field of the row whose key is parameter number `key`.
pub fn update_statement(field: usize, key: usize, value: usize) -> String {
    format!("UPDATE {TABLE} SET field{field} = ${value} WHERE ycsb_key = ${key}")
}

/// The row of `key` in COPY's text form, with its newline.
pub fn copy_line(out: &mut String, key: u64, shape: &YcsbShape, random: &mut Prng) {
    out.push_str(&key.to_string());
    for _ in 0..shape.fields {
        out.push('\t');
        out.push_str(&text(random, shape.field_bytes));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: YcsbShape = YcsbShape {
        records: 1000,
        fields: 10,
        field_bytes: 20,
        accesses: 4,
    };

    #[test]
    fn the_share_of_updates_is_the_workloads() {
        for (mix, share) in [(Mix::A, 0.5), (Mix::B, 0.05), (Mix::C, 0.0)] {
            let mut source = YcsbSource::new(SHAPE, mix, 0.9, 3);
            let updates: usize = (0..10_000).map(|_| source.transaction().updates).sum();
            let found = updates as f64 / 40_000.0;
            assert!((found - share).abs() < 0.01, "{mix:?}: {found}");
        }
    }

    #[test]
    fn keys_of_a_transaction_differ_and_exist() {
        let mut source = YcsbSource::new(SHAPE, Mix::A, 0.99, 3);
        for _ in 0..1000 {
            let mut keys = source.transaction().keys;
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 4);
            assert!(keys.iter().all(|key| *key < 1000));
        }
    }

    #[test]
    fn more_accesses_than_records_end() {
        let shape = YcsbShape {
            records: 3,
            accesses: 16,
            ..SHAPE
        };
        assert_eq!(YcsbSource::new(shape, Mix::C, 0.5, 1).transaction().keys.len(), 3);
    }

    #[test]
    fn streams_repeat_by_seed() {
        let stream = |seed| {
            let mut source = YcsbSource::new(SHAPE, Mix::A, 0.5, seed);
            (0..50).map(|_| source.transaction()).collect::<Vec<_>>()
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }

    #[test]
    fn text_is_plain_and_as_long_as_asked() {
        let mut random = Prng::new(5);
        for bytes in [0, 1, 7, 8, 100] {
            let text = text(&mut random, bytes);
            assert_eq!(text.len(), bytes);
            assert!(
                text.bytes()
                    .all(|b| b.is_ascii_graphic() && b != b'\\' && b != b'\''),
                "{text}"
            );
        }
        let mut line = String::new();
        copy_line(&mut line, 7, &SHAPE, &mut random);
        assert_eq!(line.matches('\t').count(), 10);
        assert!(line.starts_with("7\t") && line.ends_with('\n'));
    }
}
