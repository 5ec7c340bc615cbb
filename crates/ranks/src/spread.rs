//! Statements over the rows of several ranks that the home computes: queries, and rows to insert.

use std::sync::Arc;

use weft::sink::ResultSink;
use weft::{Isolation, Prepared, RankView, SqlError, TableView, Value};
use weft_base::TableId;
use weft_store::Distribution;
use weft_types::SqlState;

use crate::agent::{definitions_of, pages};
use crate::error;
use crate::message::Request;
use crate::session::{Ended, RanksSession};
use crate::view::RemoteView;

/// How often a query is begun again because its hold did not last.
const HOLDS_MAX: usize = 5;

impl RanksSession {
    /// Views of tables on this rank and on others that show one state of the whole.
    fn views(&mut self, tables: &[TableId]) -> Result<(TableView, Vec<Arc<dyn RankView>>), SqlError> {
        let catalog = self.home.definitions();
        let is_on = |distribution| {
            let of = |table: &TableId| {
                catalog.table_by_id(*table).map(|def| def.distribution) == Some(distribution)
            };
            tables.iter().any(of)
        };
        let others: Vec<u32> = if is_on(Distribution::Hash) {
            (0..self.node.identity.rank_count).collect()
        } else if is_on(Distribution::Single) {
            vec![0]
        } else {
            Vec::new()
        };
        let others: Vec<u32> = others
            .into_iter()
            .filter(|rank| *rank != self.own_rank())
            .collect();
        let locks = self.home.has_transaction() && self.home.isolation() == Isolation::Serializable;
        if others.is_empty() {
            return Ok((self.home.table_view(tables)?, Vec::new()));
        }
        if locks {
            return self.open_views(tables, &others, true);
        }
        if self.home.has_transaction() && self.home.isolation() == Isolation::RepeatableRead {
            return Err(error::unsupported("a REPEATABLE READ transaction"));
        }
        if self.node.config.ignores_vector {
            return self.open_views(tables, &others, false);
        }
        let node = Arc::clone(&self.node);
        for _ in 0..HOLDS_MAX {
            let hold = node.hold()?;
            let views = self.open_views(tables, &others, false);
            let held = hold.release();
            let views = views?;
            if held? {
                return Ok(views);
            }
        }
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "the ranks' transactions could not be stopped for long enough to read one state of all of them",
        ))
    }

    /// Opens the views in the order of the ranks. In branches, tables are locked.
    fn open_views(
        &mut self,
        tables: &[TableId],
        others: &[u32],
        in_branches: bool,
    ) -> Result<(TableView, Vec<Arc<dyn RankView>>), SqlError> {
        let catalog = self.home.definitions();
        let whole = self.node.config.ships_whole_rows;
        let mut local = None;
        let mut parts: Vec<Arc<dyn RankView>> = Vec::with_capacity(others.len());
        for &rank in others {
            if rank > self.own_rank() && local.is_none() {
                local = Some(self.home.table_view(tables)?);
            }
            let branch = match in_branches || self.branches.contains_key(&rank) {
                true => Some(self.branch(rank)?),
                false => None,
            };
            let request = Request::View {
                branch,
                tables: tables.to_vec(),
                definitions: definitions_of(&self.home),
            };
            let answer = self.node.post.ask(rank, &request)?;
            let view = RemoteView::new(&self.node.post, rank, tables, &catalog, &answer, whole)?;
            parts.push(Arc::new(view));
        }
        let local = match local {
            Some(local) => local,
            None => self.home.table_view(tables)?,
        };
        Ok((local, parts))
    }

    pub(crate) fn query_over(
        &mut self,
        tables: &[TableId],
        prepared: &Arc<Prepared>,
        params: &[Value],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let (local, parts) = self.views(tables)?;
        self.home.execute_over(prepared, params, &local, parts, sink)
    }

    /// Computes rows here and inserts them where they belong.
    pub(crate) fn insert_rows(
        &mut self,
        table: TableId,
        reads: &[TableId],
        prepared: &Arc<Prepared>,
        params: &[Value],
    ) -> Result<Ended, SqlError> {
        // The transaction first: under SERIALIZABLE what is read is locked.
        self.home.branch_start();
        let (local, parts) = self.views(reads)?;
        let rows = self.home.rows_to_insert(prepared, params, &local, parts)?;
        let catalog = self.home.definitions();
        let missing = || SqlError::internal("the table of an INSERT does not exist");
        let def = catalog.table_by_id(table).ok_or_else(missing)?;
        let count = rows.len() as u64;
        let rank_count = self.node.identity.rank_count;
        let mut of_ranks: Vec<Vec<Vec<u8>>> = (0..rank_count).map(|_| Vec::new()).collect();
        for row in rows {
            let targets = match def.distribution {
                Distribution::Single => 0..1,
                Distribution::Replicated => 0..rank_count,
                Distribution::Hash => {
                    let column = def.partition_column().ok_or_else(missing)?;
                    let rank = Distribution::rank_of(&def.layout.value(&row, column), rank_count);
                    rank..rank + 1
                }
            };
            for rank in targets {
                if let Some(rows) = of_ranks.get_mut(rank as usize) {
                    rows.push(row.clone());
                }
            }
        }
        for (rank, rows) in (0..).zip(of_ranks) {
            if rows.is_empty() {
                continue;
            }
            if rank == self.own_rank() {
                self.home.insert_computed(table, catalog.version(), &rows)?;
                continue;
            }
            for rows in pages(rows) {
                let request = Request::Insert {
                    branch: self.branch(rank)?,
                    table,
                    definitions: definitions_of(&self.home),
                    rows,
                };
                self.node.post.ask(rank, &request)?;
                if let Some(branch) = self.branches.get_mut(&rank) {
                    branch.wrote = true;
                }
            }
        }
        Ok(Ended {
            verb: "INSERT 0".to_owned(),
            rows: Some(count),
        })
    }
}
