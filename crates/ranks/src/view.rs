//! Another rank's rows: the remote part of a query's view. Chunks are read some at a time, the wanted columns
//! of the rows that the scan's filters leave; ranges of an index are looked up there.

use std::ops::Bound;
use std::sync::Arc;

use weft::{RankView, SqlError, Wanted};
use weft_base::TableId;
use weft_store::{Catalog, IndexDef};
use weft_types::{RowBuilder, RowLayout, SqlState};

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
    ships_whole_rows: bool,
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
        ships_whole_rows: bool,
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
            ships_whole_rows,
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

/// Chunks that one request reads: a message takes as long as some thousand rows.
const CHUNKS_A_REQUEST: usize = 16;

impl RemoteView {
    fn chunks_a_request(&self) -> usize {
        if self.ships_whole_rows {
            1
        } else {
            CHUNKS_A_REQUEST
        }
    }

    /// Sends a request and visits the rows of its answer, each valid for `layout`. The word that ends it.
    fn read(
        &self,
        request: &Request,
        layout: &RowLayout,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(u64, u64), SqlError> {
        let mut call = self.post.call(self.rank, request)?;
        let mut count = 0;
        loop {
            match call.next(None)? {
                Answer::Rows(rows) => {
                    for row in rows {
                        layout.validate(&row).map_err(|_| damaged(self.rank))?;
                        visit(&row)?;
                        count += 1;
                    }
                }
                Answer::Word(word) => return Ok((count, word)),
                Answer::Failed(error) => return Err(error),
                Answer::Notice(..) => {}
                _ => return Err(damaged(self.rank)),
            }
        }
    }
}

impl RankView for RemoteView {
    fn chunk_count(&self, table: TableId) -> usize {
        let chunks = self.part(table).map_or(0, |part| part.chunks);
        chunks.div_ceil(self.chunks_a_request())
    }

    fn read_chunk(&self, table: TableId, chunk: usize, visit: &mut dyn FnMut(&[u8])) -> Result<(), SqlError> {
        let everything = Wanted {
            columns: None,
            filters: Vec::new(),
            rows_max: usize::MAX,
        };
        self.read_wanted(table, chunk, &everything, visit)
    }

    fn read_wanted(
        &self,
        table: TableId,
        chunk: usize,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SqlError> {
        let Some(part) = self.part(table) else {
            return Ok(());
        };
        let mut wanted = wanted.clone();
        if self.ships_whole_rows {
            (wanted.columns, wanted.filters) = (None, Vec::new());
        }
        let columns = wanted.columns.take();
        let columns: Vec<usize> = match columns {
            Some(columns) => columns,
            None => (0..part.layout.column_count()).collect(),
        };
        let sent = projected(&part.layout, &columns);
        wanted.columns = Some(columns);
        let request = Request::Chunks {
            view: self.view,
            table,
            first: (chunk * self.chunks_a_request()) as u64,
            count: self.chunks_a_request() as u64,
            wanted,
        };
        let Request::Chunks { wanted, .. } = &request else {
            return Ok(());
        };
        let columns = wanted.columns.as_deref().unwrap_or_default();
        let mut whole = RowBuilder::new(&part.layout);
        let mut row_bytes = Vec::new();
        let (count, told) = self.read(&request, &sent, &mut |row| {
            for (at, column) in columns.iter().enumerate() {
                if let Some(bytes) = sent.raw(row, at) {
                    whole.set_raw(*column, bytes)?;
                }
            }
            row_bytes.clear();
            whole.finish_into(&mut row_bytes)?;
            visit(&row_bytes);
            Ok(())
        })?;
        match count == told {
            true => Ok(()),
            false => Err(damaged(self.rank)),
        }
    }

    fn read_range(
        &self,
        index: &IndexDef,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, SqlError> {
        let Some(part) = self.part(index.table) else {
            return Ok(true);
        };
        if self.ships_whole_rows {
            return Ok(false);
        }
        let request = Request::Range {
            view: self.view,
            table: index.table,
            index: index.id,
            bounds: (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec)),
        };
        let (count, told) = self.read(&request, &part.layout, &mut |row| {
            visit(row);
            Ok(())
        })?;
        match told {
            0 => Ok(false),
            _ if told == count + 1 => Ok(true),
            _ => Err(damaged(self.rank)),
        }
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        self.part(table).map_or(0, |part| part.rows)
    }
}

/// The layout of rows that have some columns of another one.
pub(crate) fn projected(layout: &RowLayout, columns: &[usize]) -> RowLayout {
    let types = columns
        .iter()
        .filter_map(|column| layout.types().get(*column).copied());
    RowLayout::new(&types.collect::<Vec<_>>())
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
