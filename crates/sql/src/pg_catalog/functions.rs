//! Functions.
use crate::query::SessionFunction;
/// All.
pub fn all() -> impl Iterator<Item = &'static SessionFunction> {
    [].iter()
}
