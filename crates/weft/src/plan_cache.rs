//! The plan cache: plans of recurring statements.
//!
//! A plan belongs to a statement text, the parameter types that its client declared, the session's time zone
//! and a catalog version. A new catalog version invalidates old plans. The cache is bounded in bytes, as far
//! as plans can estimate their size; when it is full it is emptied, which costs each statement in use one
//! planning and needs no bookkeeping otherwise. A plan that would take a large part of the cache is not
//! cached.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;
use weft_base::CatalogVersion;
use weft_types::{SqlType, TimeZone};

use crate::session::CheckedPlan;

/// One plan may take this fraction of the cache.
const PLAN_SHARE: usize = 16;

#[derive(Debug, PartialEq, Eq)]
struct Key {
    sql: Box<str>,
    param_types: Box<[Option<SqlType>]>,
    zone: TimeZone,
}

/// The same key, borrowed, so that a lookup copies nothing.
struct KeyRef<'a> {
    sql: &'a str,
    param_types: &'a [Option<SqlType>],
    zone: TimeZone,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KeyRef {
            sql: &self.sql,
            param_types: &self.param_types,
            zone: self.zone,
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
        *self.sql == *key.sql && *self.param_types == *key.param_types && self.zone == key.zone
    }
}

#[derive(Debug, Default)]
struct Plans {
    plans: HashMap<Key, (CatalogVersion, Arc<CheckedPlan>)>,
    bytes: usize,
}

/// A cache shared by all sessions of a database.
#[derive(Debug)]
pub(crate) struct PlanCache {
    bytes_max: usize,
    plans: RwLock<Plans>,
}

impl PlanCache {
    /// A cache of so many bytes.
    pub(crate) fn new(bytes_max: usize) -> PlanCache {
        PlanCache {
            bytes_max,
            plans: RwLock::default(),
        }
    }

    /// The plan of a text at this catalog version, if it is cached.
    pub(crate) fn get(
        &self,
        sql: &str,
        param_types: &[Option<SqlType>],
        version: CatalogVersion,
        zone: TimeZone,
    ) -> Option<Arc<CheckedPlan>> {
        let plans = self.plans.read();
        let key = KeyRef {
            sql,
            param_types,
            zone,
        };
        let (of, plan) = plans.plans.get(&key)?;
        (*of == version).then(|| Arc::clone(plan))
    }

    /// Caches a plan.
    pub(crate) fn put(
        &self,
        sql: &str,
        param_types: &[Option<SqlType>],
        version: CatalogVersion,
        zone: TimeZone,
        plan: &Arc<CheckedPlan>,
    ) {
        let bytes = entry_bytes(sql, param_types, plan);
        if bytes > self.bytes_max / PLAN_SHARE {
            return;
        }
        let mut plans = self.plans.write();
        if plans.bytes + bytes > self.bytes_max {
            *plans = Plans::default();
        }
        plans.bytes += bytes;
        let key = Key {
            sql: sql.into(),
            param_types: param_types.into(),
            zone,
        };
        if let Some((_, replaced)) = plans.plans.insert(key, (version, Arc::clone(plan))) {
            let freed = entry_bytes(sql, param_types, &replaced);
            plans.bytes = plans.bytes.saturating_sub(freed);
        }
    }
}

fn entry_bytes(sql: &str, param_types: &[Option<SqlType>], plan: &CheckedPlan) -> usize {
    sql.len() + size_of_val(param_types) + size_of::<Key>() + plan.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_in_bytes_and_distinguishes_zones() {
        let cache = PlanCache::new(1 << 20);
        let plan = Arc::new(CheckedPlan::new(weft_sql::statement::Plan::Empty));
        let version = CatalogVersion::default();
        let zone = TimeZone::Fixed(3600);
        cache.put("select 1", &[], version, TimeZone::UTC, &plan);
        assert!(cache.get("select 1", &[], version, TimeZone::UTC).is_some());
        assert!(cache.get("select 1", &[], version, zone).is_none());
        for number in 0..10_000 {
            cache.put(&format!("select {number}"), &[], version, TimeZone::UTC, &plan);
            assert!(cache.plans.read().bytes <= 1 << 20);
        }
        cache.put(&"x".repeat(128 << 10), &[], version, TimeZone::UTC, &plan);
        assert!(
            cache
                .get(&"x".repeat(128 << 10), &[], version, TimeZone::UTC)
                .is_none()
        );
    }

    #[test]
    fn a_plan_put_again_is_counted_once() {
        let cache = PlanCache::new(1 << 20);
        let plan = Arc::new(CheckedPlan::new(weft_sql::statement::Plan::Empty));
        for _ in 0..100_000 {
            cache.put("select 1", &[], CatalogVersion::default(), TimeZone::UTC, &plan);
        }
        assert_eq!(cache.plans.read().bytes, entry_bytes("select 1", &[], &plan));
    }
}
