//! Final pass over a bound statement: unused columns are not scanned, shared relations that are named once
//! are inlined, and unused ones are removed. A shared relation nested in another is finished before it,
//! although its number is higher, so that its fate is known where it is named.

use crate::binder::Binder;
use crate::relation::{Recursive, Relation, Shared, SharedBody};
use weft_expression::Expr;

/// The fate of a shared relation.
enum Fate {
    Dropped,
    /// Inlined where it is named; `None` once that is done. The number is what the term of a recursive one
    /// names.
    InPlace(usize, Option<Box<Shared>>),
    Kept(usize),
}

impl Binder<'_> {
    pub(crate) fn prune(self, relation: Relation) -> (Relation, Vec<Shared>) {
        let Binder {
            columns,
            shared,
            shared_uses,
            bound_shared,
            ..
        } = self;
        let mut counts: Vec<usize> = shared_uses.iter().map(|uses| uses.count).collect();
        for number in bound_shared.iter().rev() {
            if counts.get(*number) == Some(&0) {
                for named in shared_uses.get(*number).into_iter().flat_map(|uses| &uses.names) {
                    if let Some(count) = counts.get_mut(*named) {
                        *count = count.saturating_sub(1);
                    }
                }
            }
        }
        let mut finisher = Finisher {
            used: columns.iter().map(|info| info.used).collect(),
            fates: shared.iter().map(|_| Fate::Dropped).collect(),
        };
        let mut kept = Vec::new();
        let own_numbers = shared.len();
        let mut shared: Vec<Option<Shared>> = shared.into_iter().map(Some).collect();
        for number in bound_shared {
            let one = shared.get_mut(number).and_then(Option::take);
            let (Some(mut one), Some(uses), Some(count)) = (one, shared_uses.get(number), counts.get(number))
            else {
                continue;
            };
            if *count == 0 {
                continue;
            }
            let place = kept.len();
            match &mut one.body {
                SharedBody::Plain(relation) => finisher.relation(relation),
                SharedBody::Recursive { start, term, .. } => {
                    // The term names its own number, and the shared relations kept inside it precede it.
                    let named = if uses.correlated {
                        own_numbers + number
                    } else {
                        place
                    };
                    finisher.set(number, Fate::Kept(named));
                    finisher.relation(start);
                    finisher.relation(term);
                }
            }
            if *count == 1 && !uses.keep {
                finisher.set(number, Fate::InPlace(own_numbers + number, Some(Box::new(one))));
            } else {
                finisher.set(number, Fate::Kept(place));
                kept.push(one);
            }
        }
        let mut relation = relation;
        finisher.relation(&mut relation);
        (relation, kept)
    }
}

struct Finisher {
    used: Vec<bool>,
    /// Indexed by number.
    fates: Vec<Fate>,
}

impl Finisher {
    fn set(&mut self, number: usize, fate: Fate) {
        if let Some(place) = self.fates.get_mut(number) {
            *place = fate;
        }
    }

    fn is_used(&self, id: weft_expression::ColumnId) -> bool {
        self.used.get(id.0 as usize).copied().unwrap_or(true)
    }

    fn relation(&mut self, relation: &mut Relation) {
        match relation {
            Relation::Scan(scan) => scan.columns.retain(|(_, id, _)| self.is_used(*id)),
            Relation::System { columns, .. } => columns.retain(|(_, id, _)| self.is_used(*id)),
            Relation::Shared { .. } => self.shared(relation),
            Relation::Working { number, columns, .. } => {
                columns.retain(|(_, id, _)| self.is_used(*id));
                if let Some(Fate::Kept(place)) = self.fates.get(*number) {
                    *number = *place;
                }
            }
            other => {
                for input in other.inputs_mut() {
                    self.relation(input);
                }
            }
        }
    }

    fn shared(&mut self, relation: &mut Relation) {
        let Relation::Shared { number, columns } = relation else {
            return;
        };
        let mut columns = std::mem::take(columns);
        columns.retain(|(_, id, _)| self.used.get(id.0 as usize).copied().unwrap_or(true));
        match self.fates.get_mut(*number) {
            Some(Fate::InPlace(own_number, body)) => {
                let Some(shared) = body.take() else {
                    return;
                };
                let body = match shared.body {
                    SharedBody::Plain(body) => body,
                    SharedBody::Recursive {
                        start,
                        term,
                        all,
                        columns: sources,
                    } => Relation::Recursive(Box::new(Recursive {
                        number: *own_number,
                        start,
                        term,
                        all,
                        columns: shared.columns,
                        sources,
                    })),
                };
                let items = columns
                    .into_iter()
                    .map(|(source, id, ty)| (id, Expr::column(source, ty)));
                *relation = Relation::Project {
                    input: Box::new(body),
                    items: items.collect(),
                };
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
