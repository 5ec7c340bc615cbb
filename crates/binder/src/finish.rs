//! What is known only when the whole statement is bound: columns that nobody reads are not scanned, shared
//! relations that are named once are put in place, and those that nobody names are dropped.

use crate::binder::Binder;
use crate::relation::{Relation, Shared, SharedBody};
use weft_expression::Expr;

/// What becomes of the shared relations.
enum Fate {
    Dropped,
    /// Put where it is named; `None` when that is done.
    InPlace(Option<Box<Shared>>),
    Kept(usize),
}

impl Binder<'_> {
    pub(crate) fn prune(self, relation: Relation) -> (Relation, Vec<Shared>) {
        let Binder {
            columns,
            shared,
            shared_uses,
            ..
        } = self;
        let mut counts: Vec<usize> = shared_uses.iter().map(|uses| uses.count).collect();
        for (number, uses) in shared_uses.iter().enumerate().rev() {
            if counts.get(number) == Some(&0) {
                for named in &uses.names {
                    if let Some(count) = counts.get_mut(*named) {
                        *count = count.saturating_sub(1);
                    }
                }
            }
        }
        let mut finisher = Finisher {
            used: columns.iter().map(|info| info.used).collect(),
            fates: Vec::new(),
        };
        let mut kept = Vec::new();
        for ((mut one, uses), count) in shared.into_iter().zip(&shared_uses).zip(counts) {
            let fate = if count == 0 {
                Fate::Dropped
            } else {
                let number = kept.len();
                match &mut one.body {
                    SharedBody::Plain(relation) => finisher.relation(relation),
                    SharedBody::Recursive { start, term, .. } => {
                        // The term names its own number.
                        finisher.fates.push(Fate::Kept(number));
                        finisher.relation(start);
                        finisher.relation(term);
                        finisher.fates.pop();
                    }
                }
                if count == 1 && !uses.keep {
                    Fate::InPlace(Some(Box::new(one)))
                } else {
                    kept.push(one);
                    Fate::Kept(number)
                }
            };
            finisher.fates.push(fate);
        }
        let mut relation = relation;
        finisher.relation(&mut relation);
        (relation, kept)
    }
}

struct Finisher {
    used: Vec<bool>,
    fates: Vec<Fate>,
}

impl Finisher {
    fn is_used(&self, id: weft_expression::ColumnId) -> bool {
        self.used.get(id.0 as usize).copied().unwrap_or(true)
    }

    fn relation(&mut self, relation: &mut Relation) {
        match relation {
            Relation::One | Relation::Values { .. } | Relation::Given { .. } => {}
            Relation::Scan(scan) => scan.columns.retain(|(_, id, _)| self.is_used(*id)),
            Relation::System { columns, .. } => columns.retain(|(_, id, _)| self.is_used(*id)),
            Relation::Shared { .. } => self.shared(relation),
            Relation::Working { number, columns } => {
                columns.retain(|(_, id, _)| self.is_used(*id));
                if let Some(Fate::Kept(place)) = self.fates.get(*number) {
                    *number = *place;
                }
            }
            Relation::Functions { input, .. }
            | Relation::Project { input, .. }
            | Relation::Filter { input, .. }
            | Relation::Aggregate { input, .. }
            | Relation::Window { input, .. }
            | Relation::Distinct { input, .. }
            | Relation::Sort { input, .. }
            | Relation::Limit { input, .. } => self.relation(input),
            Relation::Join { left, right, .. } => {
                self.relation(left);
                self.relation(right);
            }
            Relation::Apply { input, subquery, .. } => {
                self.relation(input);
                self.relation(subquery);
            }
            Relation::Set { inputs, .. } => inputs.iter_mut().for_each(|input| self.relation(input)),
        }
    }

    fn shared(&mut self, relation: &mut Relation) {
        let Relation::Shared { number, columns } = relation else {
            return;
        };
        let mut columns = std::mem::take(columns);
        columns.retain(|(_, id, _)| self.used.get(id.0 as usize).copied().unwrap_or(true));
        match self.fates.get_mut(*number) {
            Some(Fate::InPlace(body)) => {
                if let Some(shared) = body.take()
                    && let SharedBody::Plain(body) = shared.body
                {
                    let items = columns
                        .into_iter()
                        .map(|(source, id, ty)| (id, Expr::column(source, ty)));
                    *relation = Relation::Project {
                        input: Box::new(body),
                        items: items.collect(),
                    };
                }
            }
            Some(Fate::Kept(place)) => {
                let number = *place;
                *relation = Relation::Shared { number, columns };
            }
            Some(Fate::Dropped) | None => {
                let number = *number;
                *relation = Relation::Shared { number, columns };
            }
        }
    }
}
