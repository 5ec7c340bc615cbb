//! YCSB: point reads, updates, inserts and scans on one table with skewed keys.
//!
//! Source: B. Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, workloads A to F;
//! transactions of several accesses are from Hobbes (3.1) and BionicDB (5.3), as are the sizes of
//! [`YcsbShape::hobbes`] and [`YcsbShape::bionicdb`] (Hobbes 4: 8 fields of 64 bytes, one field read or
//! written; BionicDB 5.3: 16 accesses to 1 KB records, 300 K per worker, scans of 50).
//!
//! ```text
//! table usertable(ycsb_key bigint primary key, field0 text, field1 text, ...)
//! A, B, C, F   `accesses` accesses to different keys, each an update with the workload's probability, else a
//!              read; F's updates read the row first
//! D            `accesses` reads near the newest key, or one insert
//! E            `accesses` scans, or one insert
//! an update writes one field, the same in every row of the transaction
//! ```
//!
//! Updates precede reads in a transaction, so that a transaction's shape is only (updates, reads, field),
//! and one program per shape suffices.
//!
//! Differences from YCSB's own client: keys are integers and new ones follow the loaded ones (there, keys
//! are hashed strings), so a scan of n keys is a range of n numbers; "latest" counts back from the stream's
//! own newest insert, so that the key has already been inserted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use weft_base::Prng;

use crate::zipf::{Scramble, Zipf, ZipfKeys};

/// Name of the only table.
pub const TABLE: &str = "usertable";

/// The mix of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Update heavy: half of the accesses write.
    A,
    /// Read heavy: one access in twenty writes.
    B,
    /// Read only.
    C,
    /// Read latest: one transaction in twenty inserts.
    D,
    /// Short ranges: scans, and one transaction in twenty inserts.
    E,
    /// Read-modify-write: half of the accesses.
    F,
}

impl Mix {
    /// All mixes, by letter.
    pub const ALL: [Mix; 6] = [Mix::A, Mix::B, Mix::C, Mix::D, Mix::E, Mix::F];

    /// Updates per hundred accesses.
    pub fn update_percent(self) -> u64 {
        match self {
            Mix::A | Mix::F => 50,
            Mix::B => 5,
            Mix::C | Mix::D | Mix::E => 0,
        }
    }

    /// Inserts per hundred transactions.
    pub fn insert_percent(self) -> u64 {
        match self {
            Mix::D | Mix::E => 5,
            Mix::A | Mix::B | Mix::C | Mix::F => 0,
        }
    }

    /// The workload's letter, lower case.
    pub fn letter(self) -> &'static str {
        match self {
            Mix::A => "a",
            Mix::B => "b",
            Mix::C => "c",
            Mix::D => "d",
            Mix::E => "e",
            Mix::F => "f",
        }
    }

    /// Parses the letter in either case.
    pub fn from_letter(letter: &str) -> Option<Self> {
        Mix::ALL
            .into_iter()
            .find(|mix| mix.letter().eq_ignore_ascii_case(letter))
    }
}

/// What a read returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOf {
    /// The whole row.
    Row,
    /// One field of it.
    Field,
    /// Nothing: it only finds the row, as BionicDB's SEARCH does.
    Nothing,
}

/// The number of rows scanned in workload E.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanLength {
    /// From one to this many, uniformly: as in YCSB.
    UpTo(u64),
    /// Always this many, and no inserts: as in BionicDB.
    Exactly(u64),
}

/// Sizes of the table and of its transactions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YcsbShape {
    /// Number of rows, with keys 0..records.
    pub records: u64,
    /// Fields per row, in addition to the key.
    pub fields: usize,
    /// Bytes per field.
    pub field_bytes: usize,
    /// Accesses per transaction, each to a different key.
    pub accesses: usize,
    /// What a read returns.
    pub read_of: ReadOf,
    /// Rows per scan.
    pub scan: ScanLength,
}

impl YcsbShape {
    /// Hobbes 4: one access to one field of 64 bytes, 8 fields per record.
    pub fn hobbes(records: u64) -> Self {
        Self {
            records,
            fields: 8,
            field_bytes: 64,
            accesses: 1,
            read_of: ReadOf::Field,
            scan: ScanLength::UpTo(100),
        }
    }

    /// BionicDB 5.3: 16 accesses to records of 1 KB, 300 K records per worker.
    pub fn bionicdb(workers: u64) -> Self {
        Self {
            records: 300_000 * workers.max(1),
            fields: 1,
            field_bytes: 1024,
            accesses: 16,
            read_of: ReadOf::Row,
            scan: ScanLength::Exactly(50),
        }
    }
}

/// The distribution of keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skew {
    /// Zipf's law, scrambled; 0 is uniform.
    Zipf(f64),
    /// A set of hot keys gets a share of all accesses; the rest is uniform over all keys.
    Hot {
        /// Number of hot keys.
        keys: u64,
        /// Their share of accesses, in thousandths.
        share_permille: u64,
    },
}

/// The partition that owns a key.
pub type OwnerOf = Arc<dyn Fn(u64) -> usize + Send + Sync>;

/// How many rows of a transaction belong to owners other than that of its first row (BionicDB 5.7). Every
/// owner has enough rows for that.
#[derive(Clone)]
pub struct Remoteness {
    owner_of: OwnerOf,
    partitions: usize,
    share_permille: u64,
}

/// An owner has too few rows for transactions that start with one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooFewRows {
    /// The owner.
    pub owner: usize,
    /// Number of rows that it owns.
    pub own: u64,
    /// Number of rows of all other owners.
    pub others: u64,
    /// Number of local rows that a transaction needs.
    pub local: u64,
    /// Number of remote rows that it needs.
    pub remote: u64,
}

impl fmt::Display for TooFewRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooFewRows {
            owner,
            own,
            others,
            local,
            remote,
        } = self;
        write!(
            f,
            "partition {owner} has {own} rows and all others {others}; a transaction that begins there needs \
             {local} and {remote}"
        )
    }
}

impl std::error::Error for TooFewRows {}

impl fmt::Debug for Remoteness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remoteness")
            .field("partitions", &self.partitions)
            .field("share_permille", &self.share_permille)
            .finish_non_exhaustive()
    }
}

impl Remoteness {
    /// For a table of this shape, whose rows `owner_of` assigns to `partitions`, and the remote share of a
    /// transaction's accesses in thousandths, rounded to whole accesses; the first access is never remote.
    /// With one partition nothing is remote. Calls `owner_of` for every row.
    ///
    /// # Errors
    /// An owner that has rows, or the others together, have too few of them.
    pub fn new(
        shape: &YcsbShape,
        owner_of: OwnerOf,
        partitions: usize,
        share_permille: u64,
    ) -> Result<Self, TooFewRows> {
        let remoteness = Self {
            owner_of,
            partitions,
            share_permille,
        };
        if partitions > 1 {
            let local = remoteness.local_count(shape.accesses) as u64;
            let remote = shape.accesses as u64 - local.min(shape.accesses as u64);
            let mut owned = BTreeMap::new();
            for key in 0..shape.records {
                *owned.entry((remoteness.owner_of)(key)).or_insert(0) += 1;
            }
            for (owner, own) in owned {
                let others = shape.records - own;
                if own < local || others < remote {
                    return Err(TooFewRows {
                        owner,
                        own,
                        others,
                        local,
                        remote,
                    });
                }
            }
        }
        Ok(remoteness)
    }

    /// The number of a transaction's accesses that are local.
    fn local_count(&self, accesses: usize) -> usize {
        let remote = (accesses as u64 * self.share_permille.min(1000) + 500) / 1000;
        accesses.saturating_sub(remote as usize).max(1)
    }

    /// Whether `key` may follow `keys` in a transaction of this many accesses.
    fn suits(&self, keys: &[u64], key: u64, accesses: usize) -> bool {
        match keys.first() {
            Some(first) if self.partitions > 1 => {
                let is_local = (self.owner_of)(key) == (self.owner_of)(*first);
                is_local == (keys.len() < self.local_count(accesses))
            }
            _ => true,
        }
    }
}

/// Random draws for one access before the next admissible key is searched for: in a small table, or a very
/// skewed one, the remaining keys may almost never be drawn.
const DRAWS_MAX: u32 = 10_000;

/// Draws keys by a [`Skew`].
#[derive(Debug, Clone)]
enum KeyChooser {
    Zipf(ZipfKeys),
    Hot {
        count: u64,
        hot: u64,
        share_permille: u64,
        scramble: Scramble,
    },
}

impl KeyChooser {
    fn new(count: u64, skew: Skew) -> Self {
        match skew {
            Skew::Zipf(theta) => KeyChooser::Zipf(ZipfKeys::new(count, theta)),
            Skew::Hot { keys, share_permille } => KeyChooser::Hot {
                count: count.max(1),
                hot: keys.clamp(1, count.max(1)),
                share_permille: share_permille.min(1000),
                scramble: Scramble::new(count),
            },
        }
    }

    fn key(&self, random: &mut Prng) -> u64 {
        match self {
            KeyChooser::Zipf(keys) => keys.key(random),
            KeyChooser::Hot {
                count,
                hot,
                share_permille,
                scramble,
            } => {
                let among = if random.chance(*share_permille, 1000) {
                    *hot
                } else {
                    *count
                };
                scramble.apply(random.below(among))
            }
        }
    }
}

/// The kind of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YcsbKind {
    /// Writes the first `updates` keys, reads the others.
    Points,
    /// Inserts the only key.
    Insert,
    /// Scans this many rows from each key.
    Scan(u64),
}

/// One transaction: the first `updates` keys are written, the others read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YcsbTransaction {
    /// Its kind.
    pub kind: YcsbKind,
    /// Distinct keys.
    pub keys: Vec<u64>,
    /// The number of leading keys that are written.
    pub updates: usize,
    /// Index of the field that updates write and single-field reads return.
    pub field: usize,
    /// The value that updates write; an insert writes it to every field.
    pub value: String,
}

/// An endless stream of transactions.
#[derive(Debug, Clone)]
pub struct YcsbSource {
    shape: YcsbShape,
    mix: Mix,
    keys: KeyChooser,
    remoteness: Option<Remoteness>,
    /// Distances from the newest key, for workload D.
    back: Zipf,
    inserted: u64,
    insert_base: u64,
    stream: u64,
    streams: u64,
    random: Prng,
}

impl YcsbSource {
    /// A stream that depends only on its arguments. `accesses` is limited to the number of records.
    pub fn new(shape: YcsbShape, mix: Mix, theta: f64, seed: u64) -> Self {
        Self::one_of(shape, mix, Skew::Zipf(theta), seed, 0, 1)
    }

    /// Stream number `stream` of `streams`, which insert disjoint keys.
    pub fn one_of(shape: YcsbShape, mix: Mix, skew: Skew, seed: u64, stream: u64, streams: u64) -> Self {
        let accesses = shape
            .accesses
            .min(usize::try_from(shape.records).unwrap_or(usize::MAX));
        let shape = YcsbShape { accesses, ..shape };
        let theta = if let Skew::Zipf(theta) = skew { theta } else { 0.99 };
        Self {
            shape,
            mix,
            keys: KeyChooser::new(shape.records, skew),
            remoteness: None,
            back: Zipf::new(shape.records, theta),
            inserted: 0,
            insert_base: 0,
            stream,
            streams: streams.max(1),
            random: Prng::new(seed),
        }
    }

    /// The same stream with its new keys shifted by `base`, so that keys of an earlier stream are not
    /// inserted again.
    pub fn insert_from(mut self, base: u64) -> Self {
        self.insert_base = base;
        self
    }

    /// Sets the placement of rows; `remoteness` must be made for the stream's shape, otherwise transactions
    /// may be shorter. It has no effect on workload D, whose keys are consecutive.
    pub fn placed(mut self, remoteness: Option<Remoteness>) -> Self {
        self.remoteness = remoteness;
        self
    }

    /// The stream's insert number `n`, counted from 0.
    fn inserted_key(&self, n: u64) -> u64 {
        self.shape.records + self.insert_base + n * self.streams + self.stream
    }

    /// The key `back` steps before the stream's newest one, including the loaded ones.
    fn latest(&self, back: u64) -> u64 {
        match self.inserted.checked_sub(back + 1) {
            Some(n) => self.inserted_key(n),
            None => (self.shape.records - 1).saturating_sub(back - self.inserted),
        }
    }

    fn key(&mut self) -> u64 {
        if self.mix == Mix::D {
            let back = self.back.rank(&mut self.random) - 1;
            self.latest(back)
        } else {
            self.keys.key(&mut self.random)
        }
    }

    /// Whether `key` may follow `keys`: it differs from them, and its owner is admissible.
    fn may_follow(&self, keys: &[u64], key: u64) -> bool {
        let suits = |remoteness: &Remoteness| remoteness.suits(keys, key, self.shape.accesses);
        !keys.contains(&key) && self.remoteness.as_ref().is_none_or(suits)
    }

    /// A key to follow `keys`; `None` if no other key is admissible.
    fn next_key(&mut self, keys: &[u64]) -> Option<u64> {
        if self.mix == Mix::D {
            let key = self.key();
            // At first few streams have as many different latest keys as accesses; the missing ones go
            // further back.
            return Some(match keys.contains(&key) {
                true => self.latest(keys.len() as u64),
                false => key,
            });
        }
        for _ in 0..DRAWS_MAX {
            let key = self.key();
            if self.may_follow(keys, key) {
                return Some(key);
            }
        }
        let records = self.shape.records;
        let from = self.random.below(records.max(1));
        (from..records)
            .chain(0..from)
            .find(|key| self.may_follow(keys, *key))
    }

    /// The next transaction.
    pub fn transaction(&mut self) -> YcsbTransaction {
        let inserts = match self.shape.scan {
            ScanLength::Exactly(_) if self.mix == Mix::E => 0,
            _ => self.mix.insert_percent(),
        };
        if inserts > 0 && self.random.chance(inserts, 100) {
            let key = self.inserted_key(self.inserted);
            self.inserted += 1;
            return YcsbTransaction {
                kind: YcsbKind::Insert,
                keys: vec![key],
                updates: 0,
                field: 0,
                value: text(&mut self.random, self.shape.field_bytes),
            };
        }
        let mut keys = Vec::with_capacity(self.shape.accesses);
        while keys.len() < self.shape.accesses {
            match self.next_key(&keys) {
                Some(key) => keys.push(key),
                None => break,
            }
        }
        let random = &mut self.random;
        let percent = self.mix.update_percent();
        let updates = keys.iter().filter(|_| random.chance(percent, 100)).count();
        let field = random.below(self.shape.fields as u64) as usize;
        let value = if updates > 0 {
            text(random, self.shape.field_bytes)
        } else {
            String::new()
        };
        let kind = match (self.mix, self.shape.scan) {
            (Mix::E, ScanLength::UpTo(most)) => YcsbKind::Scan(1 + random.below(most.max(1))),
            (Mix::E, ScanLength::Exactly(rows)) => YcsbKind::Scan(rows),
            _ => YcsbKind::Points,
        };
        YcsbTransaction {
            kind,
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
        // 64 characters from '0', without quotes and backslashes at the cost of two repeated ones.
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

/// Reads one field of the row whose key is parameter number `key`.
pub fn read_field_statement(field: usize, key: usize) -> String {
    format!("SELECT field{field} FROM {TABLE} WHERE ycsb_key = ${key}")
}

/// Reads the rows whose keys are between parameters number `from` and `from` + 1, inclusive.
pub fn scan_statement(from: usize) -> String {
    format!(
        "SELECT * FROM {TABLE} WHERE ycsb_key >= ${from} AND ycsb_key <= ${}",
        from + 1
    )
}

/// Inserts a row: `$1` is the key, `$2` every field's value.
pub fn insert_statement(fields: usize) -> String {
    format!("INSERT INTO {TABLE} VALUES ($1{})", ", $2".repeat(fields))
}

/// Writes parameter number `value` into one field of the row whose key is parameter number `key`.
pub fn update_statement(field: usize, key: usize, value: usize) -> String {
    format!("UPDATE {TABLE} SET field{field} = ${value} WHERE ycsb_key = ${key}")
}

/// The row of `key` in COPY's text format, with its newline.
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
        read_of: ReadOf::Row,
        scan: ScanLength::UpTo(100),
    };

    #[test]
    fn the_share_of_updates_is_the_workloads() {
        for (mix, share) in [(Mix::A, 0.5), (Mix::B, 0.05), (Mix::C, 0.0), (Mix::F, 0.5)] {
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
    fn streams_insert_different_new_keys_and_read_back_from_them() {
        let mut all = Vec::new();
        for stream in 0..3 {
            let mut source = YcsbSource::one_of(SHAPE, Mix::D, Skew::Zipf(0.99), 5, stream, 3);
            let mut mine = Vec::new();
            for _ in 0..2000 {
                let transaction = source.transaction();
                match transaction.kind {
                    YcsbKind::Insert => mine.extend(&transaction.keys),
                    _ => {
                        let known = |key: &u64| *key < SHAPE.records || mine.contains(key);
                        assert!(transaction.keys.iter().all(known));
                    }
                }
            }
            assert!((60..140).contains(&mine.len()), "{}", mine.len());
            all.extend(mine);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|key| *key >= SHAPE.records));
    }

    #[test]
    fn scans_have_the_requested_length() {
        let lengths = |scan| {
            let shape = YcsbShape { scan, ..SHAPE };
            let mut source = YcsbSource::new(shape, Mix::E, 0.5, 5);
            let length = |transaction: YcsbTransaction| match transaction.kind {
                YcsbKind::Scan(rows) => Some(rows),
                _ => None,
            };
            (0..5000)
                .map(|_| length(source.transaction()))
                .collect::<Vec<_>>()
        };
        assert!(lengths(ScanLength::Exactly(50)).iter().all(|l| *l == Some(50)));
        let drawn = lengths(ScanLength::UpTo(100));
        let scans: Vec<u64> = drawn.iter().flatten().copied().collect();
        assert_eq!((scans.iter().min(), scans.iter().max()), (Some(&1), Some(&100)));
        assert!((150..350).contains(&(drawn.len() - scans.len())));
    }

    #[test]
    fn hot_keys_take_their_share() {
        let skew = Skew::Hot {
            keys: 10,
            share_permille: 800,
        };
        let mut source = YcsbSource::one_of(SHAPE, Mix::C, skew, 5, 0, 1);
        let mut seen = std::collections::HashMap::new();
        for _ in 0..10_000 {
            *seen.entry(source.transaction().keys[0]).or_insert(0u32) += 1;
        }
        let mut counts: Vec<u32> = seen.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u32 = counts.iter().take(10).sum();
        assert!((7700..8300).contains(&hot), "{hot}");
    }

    #[test]
    fn the_requested_share_of_accesses_is_remote() {
        for (share_permille, wanted) in [(0, 0), (250, 4), (750, 12), (1000, 15)] {
            let shape = YcsbShape {
                accesses: 16,
                ..SHAPE
            };
            let owner_of: OwnerOf = Arc::new(|key| (key / 7 % 2) as usize);
            let remoteness = Remoteness::new(&shape, owner_of, 2, share_permille).unwrap();
            let mut source = YcsbSource::new(shape, Mix::C, 0.0, 9).placed(Some(remoteness));
            for _ in 0..200 {
                let keys = source.transaction().keys;
                let remote = keys.iter().filter(|key| **key / 7 % 2 != keys[0] / 7 % 2).count();
                assert_eq!(remote, wanted, "{share_permille}");
            }
        }
        // With one partition nothing is remote.
        let remoteness = Remoteness::new(&SHAPE, Arc::new(|_| 0), 1, 750).unwrap();
        let mut source = YcsbSource::new(SHAPE, Mix::C, 0.0, 9).placed(Some(remoteness));
        assert_eq!(source.transaction().keys.len(), 4);
    }

    /// Owner 0 has the first `rows` rows, owner 1 the others.
    fn owned(rows: u64) -> OwnerOf {
        Arc::new(move |key| usize::from(key >= rows))
    }

    #[test]
    fn owners_with_too_few_rows_are_named() {
        let new = |rows, share| Remoteness::new(&SHAPE, owned(rows), 2, share).map(|_| ());
        assert_eq!(
            (new(4, 0), new(3, 750), new(4, 500), new(0, 0)),
            (Ok(()), Ok(()), Ok(()), Ok(()))
        );
        let error = new(2, 0).unwrap_err();
        assert_eq!((error.owner, error.own, error.local, error.remote), (0, 2, 4, 0));
        assert!(error.to_string().contains("partition 0 has 2 rows"), "{error}");
        let error = new(2, 750).unwrap_err();
        assert_eq!(
            (error.owner, error.others, error.local, error.remote),
            (1, 2, 1, 3)
        );
        assert!(new(0, 750).is_err(), "nobody has remote rows");
        assert!(
            Remoteness::new(&SHAPE, owned(2), 1, 750).is_ok(),
            "nothing is remote"
        );
    }

    /// The last rows of an owner are almost never drawn; transactions still use rows of the right owners.
    #[test]
    fn rows_that_are_hardly_ever_drawn_are_found() {
        let owner_of = owned(4);
        let remoteness = Remoteness::new(&SHAPE, owner_of.clone(), 2, 0).unwrap();
        for skew in [
            Skew::Zipf(0.0),
            Skew::Zipf(4.0),
            Skew::Hot {
                keys: 3,
                share_permille: 1000,
            },
        ] {
            let mut source =
                YcsbSource::one_of(SHAPE, Mix::C, skew, 9, 0, 1).placed(Some(remoteness.clone()));
            for _ in 0..50 {
                let mut keys = source.transaction().keys;
                assert!(keys.iter().all(|key| owner_of(*key) == owner_of(keys[0])));
                keys.sort_unstable();
                keys.dedup();
                assert_eq!(keys.len(), 4);
            }
        }
        // A remoteness made for another table leaves keys out, but never takes wrong ones.
        let remoteness = Remoteness {
            owner_of: owned(2),
            ..remoteness
        };
        let shape = YcsbShape { records: 4, ..SHAPE };
        let mut source = YcsbSource::new(shape, Mix::C, 0.0, 9).placed(Some(remoteness));
        assert_eq!(source.transaction().keys.len(), 2);
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
    fn text_is_plain_and_has_the_requested_length() {
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
