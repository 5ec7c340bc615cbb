//! Tables in the device's memory: placing them, and following the rows of the host.
//!
//! ```text
//!   buckets  a word each: the first tuple, or 0
//!   tuple    header (next and key bytes, state, read timestamp) | key | row
//! ```
//!
//! The host changes tuples while nothing runs. A tuple that it writes has no timestamps, as after loading:
//! the core's clock goes on, so every later transaction is younger. Tuples of rows that went are used again
//! for the same table; a table keeps its number of buckets until it is placed anew.

use weft_base::TableId;
use weft_program::TableShape;

use super::TABLES;
use super::card::{Card, LoadWord, Refused};
use super::lower::PlacedTable;
use super::row::RowPlaces;
use crate::hash_index::{TUPLE_HEADER_WORDS, key_words, sdbm};
use crate::memory::Memory;

/// Buckets and tuples of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct TableArea {
    /// The first bucket.
    base: u32,
    /// A power of two.
    buckets: u32,
    /// Tuples of rows that went.
    free: Vec<u32>,
}

/// Bits of a tuple's first word that lead to the next one.
const NEXT: u64 = u32::MAX as u64;

impl Card {
    /// Places an empty table: `text_bytes` is the room for each text column, `row_count` about how many rows
    /// it will have. Gives the words for the core's catalogue.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::NoKey`].
    pub fn place_table(
        &mut self,
        memory: &mut Memory,
        shape: &TableShape,
        text_bytes: impl Fn(usize) -> usize,
        row_count: u64,
    ) -> Result<Vec<LoadWord>, Refused> {
        let index = shape.primary_index().ok_or(Refused::NoKey)?;
        if self.tables.len() >= TABLES {
            return Err(Refused::Full);
        }
        let table = PlacedTable {
            id: shape.id,
            index: self.tables.len() as u8,
            key: index.columns.clone(),
            places: RowPlaces::new(&shape.columns, text_bytes),
        };
        let buckets = (row_count.max(1) * 2).next_power_of_two();
        if u64::from(self.free) + buckets > memory.words() as u64 {
            return Err(Refused::Full);
        }
        let area = TableArea {
            base: self.free,
            buckets: buckets as u32,
            free: Vec::new(),
        };
        for bucket in area.base..area.base + area.buckets {
            memory.set_word(bucket, 0);
        }
        self.free += area.buckets;
        let key_bytes = table.key.len() as u64 * 8;
        let data = u64::from(area.base) | u64::from(area.buckets.trailing_zeros()) << 32 | key_bytes << 37;
        let word = LoadWord {
            kind: 2,
            at: table.index.into(),
            data,
        };
        self.tables.push(table);
        self.areas.push(area);
        Ok(vec![word])
    }

    /// Makes a row of the host what it is now; the forms before and after, `None` where there is no row.
    ///
    /// # Errors
    /// [`Refused::Row`], [`Refused::Full`]: the row before is gone then.
    pub fn change_row(
        &mut self,
        memory: &mut Memory,
        id: TableId,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<(), Refused> {
        let at = self.tables.iter().position(|table| table.id == id);
        let number = at.ok_or(Refused::NoTable)?;
        let (Some(table), Some(area)) = (self.tables.get(number), self.areas.get_mut(number)) else {
            return Err(Refused::NoTable);
        };
        let after = after.map(|row| table.tuple(row).ok_or(Refused::Row));
        let after = after.transpose();
        let key_words = table.key.len();
        let key_after = match &after {
            Ok(Some(words)) => words.get(..key_words),
            _ => None,
        };
        if let Some(key) = before.and_then(|row| table.key_words(row))
            && Some(key.as_slice()) != key_after
        {
            area.remove(memory, table, &key);
        }
        let Some(words) = after? else {
            return Ok(());
        };
        let key = words.get(..key_words).unwrap_or_default();
        let tuple = match area.find(memory, table, key) {
            Some((_, tuple)) => tuple,
            None => match area.free.pop() {
                Some(tuple) => area.link(memory, tuple, key),
                None => {
                    let tuple = self.free;
                    let end = u64::from(tuple) + u64::from(table.tuple_words());
                    if end > memory.words() as u64 {
                        return Err(Refused::Full);
                    }
                    self.free = end as u32;
                    area.link(memory, tuple, key)
                }
            },
        };
        memory.set_word(tuple + 1, 0);
        memory.set_word(tuple + 2, 0);
        for (at, word) in (tuple + TUPLE_HEADER_WORDS..).zip(&words) {
            memory.set_word(at, *word);
        }
        Ok(())
    }

    /// All rows of a table as the device has them, or the first thing that is wrong: a tuple that is still
    /// dirty, or no row.
    ///
    /// # Errors
    /// As a sentence.
    pub fn mirror(&self, memory: &Memory, id: TableId) -> Result<Vec<Vec<u8>>, String> {
        let at = self.tables.iter().position(|table| table.id == id);
        let (Some(table), Some(area)) = (
            at.and_then(|at| self.tables.get(at)),
            at.and_then(|at| self.areas.get(at)),
        ) else {
            return Err("no such table".to_owned());
        };
        let mut rows = Vec::new();
        for bucket in area.base..area.base + area.buckets {
            let mut at = memory.word(bucket) as u32;
            while at != 0 {
                if memory.word(at + 1) >> 62 != 0 {
                    return Err(format!("tuple {at:#x} has the state {:#x}", memory.word(at + 1)));
                }
                let words: Vec<u64> = (0..table.places.words())
                    .map(|word| memory.word(at + table.row_at() + word))
                    .collect();
                let row = table.places.decode(&words);
                rows.push(row.ok_or(format!("tuple {at:#x} holds no row"))?);
                at = memory.word(at) as u32;
            }
        }
        Ok(rows)
    }
}

impl TableArea {
    fn bucket(&self, key: &[u64]) -> u32 {
        let bytes: Vec<u8> = key.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.base + (sdbm(&bytes) & (self.buckets - 1))
    }

    /// The tuple with a key, and the word that leads to it.
    fn find(&self, memory: &Memory, table: &PlacedTable, key: &[u64]) -> Option<(u32, u32)> {
        let mut from = self.bucket(key);
        loop {
            let tuple = memory.word(from) as u32;
            if tuple == 0 {
                return None;
            }
            let has_key = (tuple + TUPLE_HEADER_WORDS..table.row_at() + tuple)
                .zip(key)
                .all(|(at, word)| memory.word(at) == *word);
            if has_key {
                return Some((from, tuple));
            }
            from = tuple;
        }
    }

    /// Puts a tuple in front of its bucket.
    fn link(&self, memory: &mut Memory, tuple: u32, key: &[u64]) -> u32 {
        let bucket = self.bucket(key);
        let next = memory.word(bucket);
        memory.set_word(tuple, next | (key.len() as u64 * 8) << 32);
        memory.set_word(bucket, tuple.into());
        tuple
    }

    fn remove(&mut self, memory: &mut Memory, table: &PlacedTable, key: &[u64]) {
        if let Some((from, tuple)) = self.find(memory, table, key) {
            let next = memory.word(tuple) & NEXT;
            memory.set_word(from, memory.word(from) & !NEXT | next);
            self.free.push(tuple);
        }
    }
}

impl PlacedTable {
    /// Words of a tuple.
    fn tuple_words(&self) -> u32 {
        self.row_at() + self.places.words()
    }

    /// The key of a row of the host; `None` if a part is NULL.
    fn key_words(&self, row: &[u8]) -> Option<Vec<u64>> {
        let key = self.key.iter().map(|column| self.places.word_of(row, *column));
        key.collect()
    }

    /// Key and row of a tuple; `None` if the row has no such form.
    fn tuple(&self, row: &[u8]) -> Option<Vec<u64>> {
        let mut words = self.key_words(row)?;
        debug_assert_eq!(words.len() as u32, key_words(words.len() * 8));
        debug_assert_eq!(self.row_at(), TUPLE_HEADER_WORDS + words.len() as u32);
        words.extend(self.places.encode(row).ok()?);
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryParams;
    use std::collections::BTreeMap;
    use weft_base::IndexId;
    use weft_base::random::Prng;
    use weft_program::IndexShape;
    use weft_types::{SqlType, Value};

    const TABLE: TableId = TableId(7);

    fn shape() -> TableShape {
        TableShape {
            id: TABLE,
            columns: vec![SqlType::Int4, SqlType::Int8, SqlType::Text],
            indexes: vec![IndexShape {
                id: IndexId(8),
                columns: vec![1, 0],
                unique: true,
                ordered: false,
            }],
            primary: Some(0),
        }
    }

    /// Random changes on few buckets, beside a map.
    #[test]
    fn the_mirror_follows_the_host() {
        let mut random = Prng::new(1);
        let mut memory = Memory::new(1 << 12, MemoryParams::ideal(1), 1);
        let mut card = Card::new();
        card.place_table(&mut memory, &shape(), |_| 16, 3).unwrap();
        let layout = card.tables()[0].places.layout().clone();
        let mut rows: BTreeMap<(i64, i32), Vec<u8>> = BTreeMap::new();
        for step in 0..4_000 {
            let (a, b) = (random.below(6) as i64 - 3, random.below(5) as i32 - 2);
            let text = format!("row {step}");
            let key = match random.below(4) {
                // The key changes, too.
                0 => (random.below(6) as i64 - 3, b),
                _ => (a, b),
            };
            let values = [Value::Int4(key.1), Value::Int8(key.0), Value::Text(text)];
            let row = layout.encode(&values).unwrap();
            let before = rows.remove(&(a, b));
            let after = (random.below(3) > 0 && !rows.contains_key(&key)).then_some(row);
            card.change_row(&mut memory, TABLE, before.as_deref(), after.as_deref())
                .unwrap();
            if let Some(row) = after {
                rows.insert(key, row);
            }
            let mut mirror = card.mirror(&memory, TABLE).unwrap();
            let mut expected: Vec<Vec<u8>> = rows.values().cloned().collect();
            mirror.sort_unstable();
            expected.sort_unstable();
            assert_eq!(mirror, expected, "step {step}");
        }
    }

    #[test]
    fn a_row_without_a_form_or_room_is_refused() {
        let mut memory = Memory::new(96, MemoryParams::ideal(1), 1);
        let mut card = Card::new();
        card.place_table(&mut memory, &shape(), |_| 8, 1).unwrap();
        let layout = card.tables()[0].places.layout().clone();
        let row = |key: i64, text: &str| {
            let values = [Value::Int4(1), Value::Int8(key), Value::Text(text.to_owned())];
            layout.encode(&values).unwrap()
        };
        let mut insert = |row: Vec<u8>| card.change_row(&mut memory, TABLE, None, Some(&row));
        assert_eq!(insert(row(1, "nine byte")), Err(Refused::Row));
        let placed = (1..1_000).take_while(|key| insert(row(*key, "")).is_ok()).count();
        assert_eq!(insert(row(2_000, "")), Err(Refused::Full));
        // A key, its form's 24 bytes at least, in a memory of 96 words.
        assert!((2..32).contains(&placed), "{placed} rows");
        assert_eq!(card.mirror(&memory, TABLE).unwrap().len(), placed);
    }
}
