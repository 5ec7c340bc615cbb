//! Methods of [`weft_program::DataAccess`] that a wrapping access forwards to the wrapped one.
//!
//! A wrapping access lists the methods that it does not change. Methods that it neither lists nor implements
//! have the trait's default, which prefetches nothing and refuses savepoints.

/// Forwards the listed methods to the field `access`.
macro_rules! forward {
    ($($method:ident)*) => { $(forward!(@$method);)* };
    (@row) => {
        fn row(&self, row: &weft_program::RowHandle) -> Option<&[u8]> {
            self.access.row(row)
        }
    };
    (@range) => {
        fn range(
            &mut self,
            index: weft_base::IndexId,
            table: weft_base::TableId,
            lo: std::ops::Bound<&[u8]>,
            hi: std::ops::Bound<&[u8]>,
            reverse: bool,
            limit: usize,
            out: &mut Vec<weft_program::RowHandle>,
        ) -> Result<(), weft_types::SqlError> {
            self.access.range(index, table, lo, hi, reverse, limit, out)
        }
    };
    (@hints) => {
        fn fetch(&mut self, index: weft_base::IndexId, table: weft_base::TableId, key: &[u8]) -> bool {
            self.access.fetch(index, table, key)
        }

        fn fetch_range(
            &mut self,
            index: weft_base::IndexId,
            table: weft_base::TableId,
            lowest: &[u8],
        ) -> bool {
            self.access.fetch_range(index, table, lowest)
        }

        fn prefetch_lookups(
            &self,
            index: weft_base::IndexId,
            table: weft_base::TableId,
            keys: &weft_program::KeyList,
            fetch: weft_store::Fetch,
            slots: &mut [weft_store::SlotId],
        ) -> bool {
            self.access.prefetch_lookups(index, table, keys, fetch, slots)
        }
    };
    (@savepoints) => {
        fn savepoint(&mut self) -> Result<(), weft_types::SqlError> {
            self.access.savepoint()
        }

        fn rollback_to_savepoint(&mut self) {
            self.access.rollback_to_savepoint();
        }

        fn release_savepoint(&mut self) {
            self.access.release_savepoint();
        }
    };
    (@observed) => {
        fn observed(&self) -> weft_base::BatchId {
            self.access.observed()
        }
    };
}

pub(crate) use forward;
