//! The system catalog that clients read.

pub mod functions;

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use weft_store::Catalog;

use crate::query::SessionContext;

/// A table of `pg_catalog` or `information_schema`.
pub fn system_table(
    _schema: &str,
    _name: &str,
    _catalog: &Arc<Catalog>,
    _session: &Arc<SessionContext>,
) -> Option<Arc<dyn TableProvider>> {
    None
}

/// Whether a catalog table never has rows.
pub fn is_always_empty(_name: &str) -> bool {
    false
}
