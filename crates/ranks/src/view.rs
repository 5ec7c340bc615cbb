//! Another rank's rows, read chunk by chunk: the remote part of a query's view.

use std::sync::Arc;

use weft::{RankView, SqlError};
use weft_base::TableId;
use weft_store::Catalog;
use weft_types::{RowLayout, SqlState};

use crate::message::{Answer, Request};
use crate::post::Post;

struct Part {
    table: TableId,
    layout: Arc<RowLayout>,
    chunks: usize,
    rows: usize,
}

/// A view that a rank keeps for this one.
pub(crate) struct RemoteView {
    post: Arc<Post>,
    rank: u32,
    view: u64,
    parts: Vec<Part>,
}

impl RemoteView {
    /// The view that a rank has opened of these tables.
    ///
    /// # Errors
    ///
    /// XX000: the answer does not fit the request.
    pub fn new(
        post: &Arc<Post>,
        rank: u32,
        tables: &[TableId],
        catalog: &Catalog,
        answer: &Answer,
    ) -> Result<RemoteView, SqlError> {
        let wrong = || {
            SqlError::internal(format!(
                "rank {rank} has opened another view than it was asked for"
            ))
        };
        let Answer::Viewed { view, tables: sizes } = answer else {
            return Err(wrong());
        };
        let mut remote = RemoteView {
            post: Arc::clone(post),
            rank,
            view: *view,
            parts: Vec::with_capacity(tables.len()),
        };
        if sizes.len() != tables.len() {
            return Err(wrong());
        }
        for (table, (chunks, rows)) in tables.iter().zip(sizes) {
            let def = catalog.table_by_id(*table).ok_or_else(wrong)?;
            remote.parts.push(Part {
                table: *table,
                layout: Arc::clone(&def.layout),
                chunks: usize::try_from(*chunks).map_err(|_| wrong())?,
                rows: usize::try_from(*rows).unwrap_or(usize::MAX),
            });
        }
        Ok(remote)
    }

    fn part(&self, table: TableId) -> Option<&Part> {
        self.parts.iter().find(|part| part.table == table)
    }
}

impl RankView for RemoteView {
    fn chunk_count(&self, table: TableId) -> usize {
        self.part(table).map_or(0, |part| part.chunks)
    }

    fn read_chunk(&self, table: TableId, chunk: usize, visit: &mut dyn FnMut(&[u8])) -> Result<(), SqlError> {
        let Some(part) = self.part(table) else {
            return Ok(());
        };
        let request = Request::Chunk {
            view: self.view,
            table,
            chunk: chunk as u64,
        };
        let mut call = self.post.call(self.rank, &request)?;
        let mut count = 0;
        loop {
            match call.next(None)? {
                Answer::Rows(rows) => {
                    for row in rows {
                        part.layout.validate(&row).map_err(|_| damaged(self.rank))?;
                        visit(&row);
                        count += 1;
                    }
                }
                Answer::Word(all) if all == count => return Ok(()),
                Answer::Failed(error) => return Err(error),
                Answer::Notice(..) => {}
                _ => return Err(damaged(self.rank)),
            }
        }
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        self.part(table).map_or(0, |part| part.rows)
    }
}

impl Drop for RemoteView {
    fn drop(&mut self) {
        self.post.tell(self.rank, &Request::Close { view: self.view });
    }
}

pub(crate) fn damaged(rank: u32) -> SqlError {
    SqlError::new(
        SqlState::DATA_CORRUPTED,
        format!("rows from rank {rank} cannot be decoded"),
    )
}
