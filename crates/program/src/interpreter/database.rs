//! DB instructions: guard first, then the data access, the result into the collect register.

use std::ops::Bound;

use weft_types::{SqlError, SqlState};

use super::data::image_layout;
use super::row_image::RowTarget;
use super::scratch::{Collected, Scratch};
use super::{Flow, LONG_BYTES, Machine, broken, budget};
use crate::access_keys::to_prefix_successor;
use crate::data_access::{DataAccess, RowHandle};
use crate::instr::{
    COLLECT_REGISTERS, Instr, KEY_BUFFERS, ROW_BUFFERS, SCAN_HI_EXCLUSIVE, SCAN_LO_EXCLUSIVE, SCAN_REVERSE,
};
use crate::program::TableShape;
use crate::resolve::TableKeys;

fn slot(scratch: &mut Scratch, cp: u8) -> &mut Collected {
    &mut scratch.collect[usize::from(cp) % COLLECT_REGISTERS]
}

impl<A: DataAccess> Machine<'_, A> {
    /// Several instructions that build a key and search it, executed as one: see [`crate::resolve`]. Only the
    /// search can fail, so with too small a budget the program ends before them. For a long key they are
    /// executed one by one, and each takes what it costs. `keep` gets the row, if it belongs to its table and
    /// the access has it at hand.
    #[inline(always)]
    pub(super) fn covered_search(
        &mut self,
        pc: usize,
        number: u16,
        keep: impl FnOnce(&[u8]),
    ) -> Result<Flow, SqlError> {
        let program = self.program;
        let searches = &program.layouts.resolved.searches;
        let search = searches
            .get(usize::from(number))
            .ok_or_else(|| broken("no such search"))?;
        if self.scratch.guard.key_bytes(search.access) >= LONG_BYTES {
            return self.make_key(pc, search.instrs - 1);
        }
        self.left = self
            .left
            .checked_sub(search.instrs)
            .ok_or_else(|| super::out_of_budget(self.scratch.run.budget))?;
        let scratch = &mut *self.scratch;
        let key = scratch.guard.key_of(search.access);
        let row = match key {
            Some(key) => self
                .access
                .search_planned(search.access, search.index, search.table_id, key)?,
            None => None,
        };
        let bytes = row.and_then(|row| row.bytes);
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() >= search.row_bytes) {
            keep(bytes);
        }
        let row = row.map(|row| row.handle);
        if search.keeps_key {
            let image = &mut scratch.keys[usize::from(search.key) % KEY_BUFFERS];
            scratch.guard.copy_key(search.access, image);
        }
        let collected = slot(scratch, search.cp);
        collected.clear(search.table);
        collected.status = row.is_some();
        collected.access = row.is_some().then_some(search.access);
        collected.row = row;
        Ok(Flow::Skip(search.instrs))
    }

    /// A search for each row of a range, with the instructions that build its key: uses the prebuilt key. If
    /// there is none, or it is long, the key is built and the search is executed separately. `keep` as above.
    #[inline(always)]
    pub(super) fn joined_search(
        &mut self,
        pc: usize,
        number: u16,
        keep: impl FnOnce(&[u8]),
    ) -> Result<Flow, SqlError> {
        let program = self.program;
        let joins = &program.layouts.resolved.joins;
        let join = joins
            .get(usize::from(number))
            .ok_or_else(|| broken("no such join"))?;
        let scratch = &mut *self.scratch;
        let made = scratch.prefetch.made(number, join, &scratch.collect);
        let made = made.filter(|made| made.key.len() < LONG_BYTES);
        let (Some(made), Some(left)) = (made, self.left.checked_sub(join.instrs)) else {
            return self.make_key(pc, join.instrs - 1);
        };
        let Instr { a, b, .. } = join.search;
        let table = join.search.table();
        let row = match made.unmatchable {
            true => None,
            false => {
                if !join.is_covered {
                    let shape = program.tables.get(table).ok_or_else(|| broken("no such table"))?;
                    let accesses = &program.accesses;
                    scratch
                        .guard
                        .search(accesses, shape, join.search.index(), made.key)?;
                }
                self.access
                    .search_hinted(join.index, join.table, made.key, made.hint)?
            }
        };
        self.left = left;
        let bytes = row.and_then(|row| row.bytes);
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() >= join.row_bytes) {
            keep(bytes);
        }
        let row = row.map(|row| row.handle);
        let image = &mut scratch.keys[usize::from(b) % KEY_BUFFERS];
        image.bytes.clear();
        image.bytes.extend_from_slice(made.key);
        image.unmatchable = made.unmatchable;
        let collected = slot(scratch, a);
        collected.clear(table as u8);
        collected.status = row.is_some();
        collected.row = row;
        Ok(Flow::Skip(join.instrs))
    }

    /// Executes instructions that build a key.
    pub(super) fn make_key(&mut self, pc: usize, instrs: u32) -> Result<Flow, SqlError> {
        for at in pc..pc.saturating_add(instrs as usize) {
            let instr = self.take_single(at)?;
            self.key(instr)?;
        }
        Ok(Flow::Skip(instrs))
    }

    pub(super) fn search(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let table = self.shape(instr.table())?;
        let index = table
            .indexes
            .get(instr.index())
            .ok_or_else(|| broken("no such index"))?;
        let key = &self.scratch.keys[usize::from(instr.b) % KEY_BUFFERS];
        let key_bytes = key.bytes.len();
        // `= NULL` is never true.
        let row = if key.unmatchable {
            None
        } else {
            let accesses = &self.program.accesses;
            self.scratch
                .guard
                .search(accesses, table, instr.index(), &key.bytes)?;
            let prefetch = &self.scratch.prefetch;
            if let Some(hint) = prefetch.hint(self.program, instr, &self.scratch.collect) {
                let row = self.access.search_hinted(index.id, table.id, &key.bytes, hint)?;
                let row = row.map(|row| row.handle);
                self.weigh(key_bytes)?;
                return Ok(self.searched(instr, row));
            }
            if !self.scratch.run.is_fetched && self.access.fetch(index.id, table.id, &key.bytes) {
                self.scratch.run.is_fetched = true;
                // It has not happened yet and must not be charged.
                self.left += 1;
                return Ok(Flow::Wait);
            }
            self.scratch.run.is_fetched = false;
            self.access.search(index.id, table.id, &key.bytes)?
        };
        self.weigh(key_bytes)?;
        Ok(self.searched(instr, row))
    }

    /// Stores the result of a SEARCH.
    fn searched(&mut self, instr: Instr, row: Option<RowHandle>) -> Flow {
        let collected = slot(self.scratch, instr.a);
        collected.clear(instr.table() as u8);
        collected.status = row.is_some();
        collected.row = row;
        Flow::Next
    }

    pub(super) fn scan(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let table = self.shape(instr.table())?;
        let index = table
            .indexes
            .get(instr.index())
            .ok_or_else(|| broken("no such index"))?;
        let limit = self.scan_limit(instr)?;
        let flags = instr.scan_flags();
        let left = self.left;
        let bounds = [instr.b, instr.c].map(|key| &self.scratch.keys[usize::from(key) % KEY_BUFFERS]);
        let bound_bytes = bounds.iter().map(|key| key.bytes.len()).sum();
        self.weigh(bound_bytes)?;
        let scratch = &mut *self.scratch;
        let [lo, hi] = [instr.b, instr.c].map(|key| &scratch.keys[usize::from(key) % KEY_BUFFERS]);
        let mut nothing = lo.unmatchable || hi.unmatchable || limit == 0;
        let mut source = None;
        if !nothing {
            let hi_exclusive = flags & SCAN_HI_EXCLUSIVE != 0;
            let (accesses, at) = (&self.program.accesses, (table, instr.index()));
            let bounds = (lo.bytes.as_slice(), hi.bytes.as_slice());
            source = Some(scratch.guard.scan(accesses, at, bounds, hi_exclusive)?);
        }
        scratch.lo.clear();
        scratch.lo.extend_from_slice(&lo.bytes);
        scratch.hi.clear();
        scratch.hi.extend_from_slice(&hi.bytes);
        if flags & SCAN_LO_EXCLUSIVE != 0 {
            nothing |= !to_prefix_successor(&mut scratch.lo);
        }
        let bounded = flags & SCAN_HI_EXCLUSIVE != 0 || to_prefix_successor(&mut scratch.hi);
        nothing |= bounded && scratch.lo >= scratch.hi;
        let collected = &mut scratch.collect[usize::from(instr.a) % COLLECT_REGISTERS];
        collected.clear(instr.table() as u8);
        if nothing {
            return Ok(Flow::Next);
        }
        if !scratch.run.is_fetched {
            let lowest = if flags & SCAN_REVERSE == 0 {
                &scratch.lo
            } else {
                &scratch.hi
            };
            if self.access.fetch_range(index.id, table.id, lowest) {
                scratch.run.is_fetched = true;
                // It has not happened yet and must not be charged.
                self.left = left + 1;
                return Ok(Flow::Wait);
            }
        }
        scratch.run.is_fetched = false;
        // One row more than the budget allows shows that it does not suffice.
        let within_budget = self.left as usize + 1;
        self.access.range(
            index.id,
            table.id,
            Bound::Included(&scratch.lo),
            match bounded {
                true => Bound::Excluded(scratch.hi.as_slice()),
                false => Bound::Unbounded,
            },
            flags & SCAN_REVERSE != 0,
            limit.min(within_budget),
            &mut collected.rows,
        )?;
        self.left = u32::try_from(collected.rows.len())
            .ok()
            .and_then(|rows| self.left.checked_sub(rows))
            .ok_or_else(|| super::out_of_budget(scratch.run.budget))?;
        collected.row = collected.rows.first().copied();
        collected.status = collected.row.is_some();
        collected.access = source;
        collected.next = 1;
        let run = (self.program, self.inputs);
        scratch.prefetch.begin(run, instr.a, collected, self.access);
        Ok(Flow::Next)
    }

    fn scan_limit(&self, instr: Instr) -> Result<usize, SqlError> {
        match instr
            .limit_register()
            .and_then(|register| self.scratch.registers.get(register))
        {
            Some(limit) if limit < 0 => Err(SqlError::new(
                SqlState::INVALID_ROW_COUNT_IN_LIMIT,
                "LIMIT must not be negative",
            )),
            Some(limit) => Ok(usize::try_from(limit).unwrap_or(usize::MAX)),
            None => Ok(usize::MAX),
        }
    }

    pub(super) fn next(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let Scratch {
            collect, prefetch, ..
        } = &mut *self.scratch;
        let collected = &mut collect[usize::from(instr.b) % COLLECT_REGISTERS];
        collected.row = collected.rows.get(collected.next).copied();
        collected.next = collected.next.saturating_add(1).min(collected.rows.len() + 1);
        let status = collected.row.is_some();
        prefetch.go_on((self.program, self.inputs), instr.b, collected, self.access);
        self.scratch.registers.set(instr.a, Some(i64::from(status)));
        Ok(Flow::Next)
    }

    pub(super) fn insert(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let program = self.program;
        let table = self.shape(instr.table())?;
        let keys = self.keys(instr.table())?;
        let image = &mut self.scratch.rows[usize::from(instr.b) % ROW_BUFFERS];
        if image.target != RowTarget::Table(instr.table() as u8) {
            return Err(broken("a row is inserted into another table"));
        }
        let layout = image_layout(program, image)?;
        let row_bytes = image.finish().len();
        self.weigh(row_bytes)?;
        let row = self.scratch.rows[usize::from(instr.b) % ROW_BUFFERS].finish();
        self.scratch
            .guard
            .write((&program.accesses, table.id), (keys, layout), None, Some(row))?;
        let handle = self.access.insert(table.id, row)?;
        let collected = slot(self.scratch, instr.a);
        collected.clear(instr.table() as u8);
        collected.status = true;
        collected.row = Some(handle);
        Ok(Flow::Next)
    }

    pub(super) fn update(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        self.update_row(instr, || None)
    }

    /// UPDATE; `kept` returns the current row if it is known.
    #[inline]
    pub(super) fn update_row<'k>(
        &mut self,
        instr: Instr,
        kept: impl FnOnce() -> Option<&'k [u8]>,
    ) -> Result<Flow, SqlError> {
        let program = self.program;
        let Collected {
            table: ordinal,
            access: source,
            ..
        } = *self.collected(instr.a);
        let table = self.shape(usize::from(ordinal))?;
        let keys = self.keys(usize::from(ordinal))?;
        let image = &mut self.scratch.rows[usize::from(instr.b) % ROW_BUFFERS];
        if image.target != RowTarget::Table(ordinal) {
            return Err(broken("a row is replaced by one of another table"));
        }
        let layout = image_layout(program, image)?;
        let row = image.finish();
        let handle = self.scratch.collect[usize::from(instr.a) % COLLECT_REGISTERS].row;
        let done = match handle {
            Some(handle) => match kept().or_else(|| self.access.row(&handle)) {
                Some(old) => {
                    budget::weigh(&mut self.left, &self.scratch.run, old.len() + row.len())?;
                    let guard = &mut self.scratch.guard;
                    let at = (program.accesses.as_slice(), table.id);
                    if !guard.update(at, (keys, layout), source, (old, row))? {
                        // The row may have another key from now on, in whatever register it is.
                        self.scratch
                            .collect
                            .iter_mut()
                            .for_each(|collected| collected.access = None);
                    }
                    self.scratch.prefetch.forget_keys(program, table.id);
                    self.access.update(&handle, row)?;
                    true
                }
                None => false,
            },
            None => false,
        };
        slot(self.scratch, instr.a).status = done;
        Ok(Flow::Next)
    }

    pub(super) fn remove(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let program = self.program;
        let collected = self.collected(instr.a);
        let (ordinal, handle) = (usize::from(collected.table), collected.row);
        let table = self.shape(ordinal)?;
        let keys = self.keys(ordinal)?;
        let layout = program
            .layouts
            .tables
            .get(ordinal)
            .ok_or_else(|| broken("no such table"))?;
        let done = match handle {
            Some(handle) => match self.access.row(&handle) {
                Some(old) => {
                    budget::weigh(&mut self.left, &self.scratch.run, old.len())?;
                    self.scratch.guard.write(
                        (&program.accesses, table.id),
                        (keys, layout),
                        Some(old),
                        None,
                    )?;
                    self.scratch.prefetch.forget_keys(program, table.id);
                    self.access.remove(&handle)?;
                    true
                }
                None => false,
            },
            None => false,
        };
        let collected = slot(self.scratch, instr.a);
        collected.status = done;
        collected.row = None;
        Ok(Flow::Next)
    }
}

impl<'r, A> Machine<'r, A> {
    fn shape(&self, ordinal: usize) -> Result<&'r TableShape, SqlError> {
        self.program
            .tables
            .get(ordinal)
            .ok_or_else(|| broken("no such table"))
    }

    fn keys(&self, ordinal: usize) -> Result<&'r TableKeys, SqlError> {
        let keys = self.program.layouts.resolved.table_keys.get(ordinal);
        keys.ok_or_else(|| broken("no such table"))
    }
}
