//! Plans kept for statements that come again.
//!
//! A plan belongs to a statement text, the parameter types that its client declared, and a catalog version. A
//! new catalog version makes old plans void; when the cache is full it is emptied, which costs each statement
//! in use one planning and needs no bookkeeping on the way.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;
use weft_base::CatalogVersion;
use weft_sql::statement::Plan;
use weft_types::SqlType;

#[derive(Debug, PartialEq, Eq)]
struct Key {
    sql: Box<str>,
    param_types: Box<[Option<SqlType>]>,
}

/// The same key, borrowed, so that a look-up copies nothing.
struct KeyRef<'a> {
    sql: &'a str,
    param_types: &'a [Option<SqlType>],
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KeyRef {
            sql: &self.sql,
            param_types: &self.param_types,
        }
        .hash(state);
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sql.hash(state);
        self.param_types.len().hash(state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.sql == *key.sql && *self.param_types == *key.param_types
    }
}

/// A cache shared by all sessions of a database.
#[derive(Debug)]
pub(crate) struct PlanCache {
    entries_max: usize,
    plans: RwLock<HashMap<Key, (CatalogVersion, Arc<Plan>)>>,
}

impl PlanCache {
    pub(crate) fn new(entries_max: usize) -> PlanCache {
        PlanCache {
            entries_max,
            plans: RwLock::default(),
        }
    }

    /// The plan of a text at this catalog version, if it is kept.
    pub(crate) fn get(
        &self,
        sql: &str,
        param_types: &[Option<SqlType>],
        version: CatalogVersion,
    ) -> Option<Arc<Plan>> {
        let plans = self.plans.read();
        let (of, plan) = plans.get(&KeyRef { sql, param_types })?;
        (*of == version).then(|| Arc::clone(plan))
    }

    /// Keeps a plan.
    pub(crate) fn put(
        &self,
        sql: &str,
        param_types: &[Option<SqlType>],
        version: CatalogVersion,
        plan: &Arc<Plan>,
    ) {
        let mut plans = self.plans.write();
        if plans.len() >= self.entries_max {
            plans.clear();
        }
        plans.insert(
            Key {
                sql: sql.into(),
                param_types: param_types.into(),
            },
            (version, Arc::clone(plan)),
        );
    }
}
