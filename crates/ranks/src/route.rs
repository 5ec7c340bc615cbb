//! On which ranks a statement runs: a function of what it concerns and of where tables are.

use std::collections::BTreeSet;

use weft::{Change, Footprint, KeyRange, ModifyUse, SqlError, TableUse};
use weft_base::TableId;
use weft_store::{Catalog, Distribution};
use weft_types::SqlState;

use crate::error::unsupported;
use crate::identity::is_own_table;

/// How a statement is run.
#[derive(Debug, Clone, PartialEq)]
pub enum Route {
    /// By the home's session, as if there were no other ranks.
    Home,
    /// By one rank as a whole, which may be the home.
    Rank(u32),
    /// By several ranks, each for the rows that it has. Their counts add up.
    Ranks(BTreeSet<u32>),
    /// By every rank, which all do the same: the home's result counts.
    Everywhere,
    /// By the home's query engine over the rows of several ranks.
    Spread(Vec<TableId>),
    /// An INSERT whose rows the home computes, and the ranks that they belong to insert.
    Rows {
        /// The table.
        table: TableId,
        /// Tables whose rows on other ranks the computation reads.
        reads: Vec<TableId>,
    },
    /// Definitions: by every rank.
    Definition,
}

/// Where the home is among the ranks, and what is where.
pub struct Map<'a> {
    /// The definitions.
    pub catalog: &'a Catalog,
    /// The home.
    pub home: u32,
    /// How many ranks there are.
    pub rank_count: u32,
}

impl Map<'_> {
    fn distribution(&self, table: TableId) -> Option<Distribution> {
        self.catalog.table_by_id(table).map(|table| table.distribution)
    }

    fn all(&self) -> BTreeSet<u32> {
        (0..self.rank_count).collect()
    }

    fn any(&self, tables: &[TableId], distribution: Distribution) -> bool {
        tables
            .iter()
            .any(|table| self.distribution(*table) == Some(distribution))
    }

    /// The route of a statement. Transactions and what only concerns the session are the caller's.
    ///
    /// # Errors
    ///
    /// 0A000: not possible over ranks; 42501: a table of the cluster's own.
    pub fn route(&self, footprint: &Footprint) -> Result<Route, SqlError> {
        match footprint {
            Footprint::Session | Footprint::Transaction(_) => Ok(Route::Home),
            Footprint::Program {
                uses,
                is_read_only,
                change,
                ..
            } => self.program(uses, *is_read_only, *change),
            Footprint::Query {
                takes_advisory_locks: true,
                ..
            } => Err(unsupported("an advisory lock")),
            Footprint::Query {
                tables,
                locks_rows,
                moves_sequence,
                ..
            } => self.query(tables, *locks_rows, *moves_sequence),
            Footprint::Modify(modify) => self.modify(modify),
            Footprint::Definition {
                makes_sequence: true, ..
            } => Err(unsupported("a sequence (serial and identity columns, too)")),
            Footprint::Definition { .. } => Ok(Route::Definition),
            Footprint::CopyIn(table) => self.other("COPY FROM", &[*table], true),
            Footprint::Other { what, tables, writes } => self.other(what, tables, *writes),
        }
    }

    fn owners(&self, used: &TableUse) -> BTreeSet<u32> {
        match (self.distribution(used.table), &used.keys) {
            (Some(Distribution::Hash), KeyRange::First(value)) => {
                BTreeSet::from([Distribution::rank_of(value, self.rank_count)])
            }
            (Some(Distribution::Hash), KeyRange::Any) => self.all(),
            (Some(Distribution::Single), _) => BTreeSet::from([0]),
            _ => BTreeSet::new(),
        }
    }

    fn refuse_own(&self, table: TableId) -> Result<(), SqlError> {
        match self.catalog.table_by_id(table) {
            Some(table) if is_own_table(&table.name) => Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!(
                    "permission denied for table {}: it is the cluster's own",
                    table.name
                ),
            )),
            _ => Ok(()),
        }
    }

    fn program(
        &self,
        uses: &[TableUse],
        is_read_only: bool,
        change: Option<Change>,
    ) -> Result<Route, SqlError> {
        let mut owners = BTreeSet::new();
        let mut writes_replicated = false;
        for used in uses {
            owners.append(&mut self.owners(used));
            if used.writes {
                self.refuse_own(used.table)?;
                writes_replicated |= self.distribution(used.table) == Some(Distribution::Replicated);
            }
        }
        if writes_replicated {
            return match owners.is_empty() {
                true => Ok(Route::Everywhere),
                false => Err(unsupported(
                    "a statement that writes a replicated table and concerns others",
                )),
            };
        }
        if owners.len() <= 1 {
            return Ok(owners.pop_first().map_or(Route::Home, Route::Rank));
        }
        let tables: BTreeSet<TableId> = uses.iter().map(|used| used.table).collect();
        if is_read_only {
            return Ok(Route::Spread(tables.into_iter().collect()));
        }
        let written: BTreeSet<TableId> = uses
            .iter()
            .filter(|used| used.writes)
            .map(|used| used.table)
            .collect();
        let reads_elsewhere = tables
            .difference(&written)
            .any(|table| self.distribution(*table) != Some(Distribution::Replicated));
        let inserts = uses.iter().any(|used| used.inserts);
        match (change, written.first()) {
            (Some(Change::Insert), Some(table)) if written.len() == 1 => Ok(Route::Rows {
                table: *table,
                reads: Vec::new(),
            }),
            (Some(Change::Update), _) if inserts => Err(unsupported("UPDATE of a row's partition column")),
            (Some(Change::Update | Change::Delete), _) if !reads_elsewhere => Ok(Route::Ranks(owners)),
            (Some(_), _) => Err(unsupported("a change that reads other partitioned tables")),
            (None, _) => Err(unsupported("a procedure, or a locking query, with keys of")),
        }
    }

    fn query(&self, tables: &[TableId], locks_rows: bool, moves_sequence: bool) -> Result<Route, SqlError> {
        if moves_sequence {
            return Err(unsupported("a sequence"));
        }
        let single = self.any(tables, Distribution::Single);
        if locks_rows {
            return match single
                && !self.any(tables, Distribution::Hash)
                && !self.any(tables, Distribution::Replicated)
            {
                true => Ok(Route::Rank(0)),
                false => Err(unsupported("FOR UPDATE or FOR SHARE of rows")),
            };
        }
        Ok(if self.any(tables, Distribution::Hash) {
            Route::Spread(tables.to_vec())
        } else if single {
            Route::Rank(0)
        } else {
            Route::Home
        })
    }

    fn modify(&self, modify: &ModifyUse) -> Result<Route, SqlError> {
        self.refuse_own(modify.table)?;
        let Some(table) = self.catalog.table_by_id(modify.table) else {
            return Ok(Route::Home);
        };
        let reads_spread = self.any(&modify.reads, Distribution::Hash);
        let reads_single = self.any(&modify.reads, Distribution::Single);
        if modify.change == Change::Insert {
            if table.distribution == Distribution::Single && !reads_spread {
                return Ok(Route::Rank(0));
            }
            if modify.resolves_conflicts {
                return Err(unsupported("INSERT ... ON CONFLICT of several rows"));
            }
            if modify.returns_rows {
                return Err(unsupported("INSERT ... RETURNING of several rows"));
            }
            return Ok(Route::Rows {
                table: modify.table,
                reads: modify.reads.clone(),
            });
        }
        if reads_spread || (reads_single && table.distribution != Distribution::Single) {
            return Err(unsupported(
                "UPDATE or DELETE that reads partitioned tables besides each changed row",
            ));
        }
        match table.distribution {
            Distribution::Single => Ok(Route::Rank(0)),
            Distribution::Replicated if modify.is_plain => Ok(Route::Everywhere),
            Distribution::Replicated => Err(unsupported(
                "UPDATE or DELETE of a replicated table with subqueries or volatile functions",
            )),
            Distribution::Hash => {
                let partition = table.partition_column();
                match partition.is_some_and(|column| modify.columns.contains(&column)) {
                    true => Err(unsupported("UPDATE of a row's partition column")),
                    false => Ok(Route::Ranks(self.all())),
                }
            }
        }
    }

    fn other(&self, what: &str, tables: &[TableId], writes: bool) -> Result<Route, SqlError> {
        let is_here = |table: &TableId| match self.distribution(*table) {
            Some(Distribution::Hash) => false,
            Some(Distribution::Single) => self.home == 0,
            Some(Distribution::Replicated) => !writes,
            None => true,
        };
        match tables.iter().all(is_here) && !(writes && tables.is_empty()) {
            true => Ok(Route::Home),
            false => Err(unsupported(what)),
        }
    }
}
