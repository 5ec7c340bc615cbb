//! The best candidate for given argument types: PostgreSQL's `func_select_candidate`.

use weft_types::SqlType;

use super::signature::is_consistent;
use crate::category::{Category, category, element_of, is_implicit, same_type};
use crate::table::{Arg, Entry};

/// A candidate's parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Its arguments.
    pub arguments: &'static [Arg],
    /// The last one repeats.
    pub variadic: bool,
}

impl Shape {
    pub fn of_entry(entry: &Entry) -> Shape {
        Shape {
            arguments: entry.arguments,
            variadic: entry.variadic,
        }
    }

    /// The argument at a position.
    pub fn at(&self, place: usize) -> Option<&'static Arg> {
        match self.arguments.get(place) {
            None if self.variadic => self.arguments.last(),
            found => found,
        }
    }

    fn takes_count(&self, count: usize) -> bool {
        count == self.arguments.len() || (self.variadic && count > self.arguments.len())
    }

    fn takes(&self, types: &[Option<SqlType>]) -> bool {
        self.takes_count(types.len())
            && types
                .iter()
                .enumerate()
                .all(|(place, ty)| self.at(place).is_some_and(|arg| accepts(arg, ty.as_ref())))
            && is_consistent(self, types)
    }

    /// Whether the argument at a position is of exactly this type.
    fn is_exact(&self, place: usize, ty: &SqlType) -> bool {
        matches!(self.at(place), Some(Arg::Is(own)) if same_type(own, ty))
    }

    fn category(&self, place: usize) -> (Category, bool) {
        match self.at(place) {
            Some(Arg::Is(own)) => category(own),
            _ => (Category::Pseudo, false),
        }
    }
}

/// The result of choosing a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The candidate with this index.
    One(usize),
    /// No candidate fits.
    None,
    /// No candidate is better than all others.
    Several,
}

fn accepts(arg: &Arg, ty: Option<&SqlType>) -> bool {
    match (arg, ty) {
        (_, None) | (Arg::Any | Arg::AnyElement | Arg::AnyCompatible, _) => true,
        (Arg::Is(own), Some(ty)) => is_implicit(ty, own),
        (Arg::AnyNonArray, Some(ty)) => element_of(ty).is_none(),
        (Arg::AnyArray | Arg::AnyCompatibleArray, Some(ty)) => element_of(ty).is_some(),
    }
}

/// Chooses among candidates with one name.
pub(super) fn choose(shapes: &[Shape], types: &[Option<SqlType>]) -> Choice {
    let exact = |shape: &&Shape| {
        shape.takes_count(types.len())
            && types
                .iter()
                .enumerate()
                .all(|(place, ty)| ty.as_ref().is_some_and(|ty| shape.is_exact(place, ty)))
    };
    if let Some(number) = shapes.iter().position(|shape| exact(&shape)) {
        return Choice::One(number);
    }
    let mut fitting: Vec<usize> = (0..shapes.len())
        .filter(|number| shapes.get(*number).is_some_and(|shape| shape.takes(types)))
        .collect();
    // A candidate with a fixed number of arguments is preferred to a variadic one.
    let fixed = |number: &usize| shapes.get(*number).is_some_and(|shape| !shape.variadic);
    if fitting.len() > 1 && fitting.iter().any(fixed) {
        fitting.retain(fixed);
    }
    best(shapes, fitting, types)
}

fn best(shapes: &[Shape], mut fitting: Vec<usize>, types: &[Option<SqlType>]) -> Choice {
    let known = || {
        types
            .iter()
            .enumerate()
            .filter_map(|(place, ty)| Some((place, ty.as_ref()?)))
    };
    let shape = |number: usize| shapes.get(number).copied();
    keep_most(&mut fitting, |number| {
        known()
            .filter(|(place, ty)| shape(number).is_some_and(|shape| shape.is_exact(*place, ty)))
            .count()
    });
    if let Some(choice) = decided(&fitting) {
        return choice;
    }
    keep_most(&mut fitting, |number| {
        known()
            .filter(|(place, ty)| {
                shape(number).is_some_and(|shape| {
                    let (own, preferred) = shape.category(*place);
                    shape.is_exact(*place, ty) || (preferred && own == category(ty).0)
                })
            })
            .count()
    });
    if let Some(choice) = decided(&fitting) {
        return choice;
    }
    let unknown: Vec<usize> = (0..types.len())
        .filter(|place| matches!(types.get(*place), Some(None)))
        .collect();
    if unknown.is_empty() {
        return Choice::Several;
    }
    keep_category(shapes, &mut fitting, &unknown);
    if let Some(choice) = decided(&fitting) {
        return choice;
    }
    // If all known arguments are of one type, the others are assumed to be of it.
    let mut of_known = known().map(|(_, ty)| *ty);
    let Some(first) = of_known.next() else {
        return Choice::Several;
    };
    if of_known.any(|ty| !same_type(&ty, &first)) {
        return Choice::Several;
    }
    let assumed: Vec<Option<SqlType>> = types.iter().map(|_| Some(first)).collect();
    let mut taking = fitting
        .iter()
        .filter(|number| shape(**number).is_some_and(|shape| shape.takes(&assumed)));
    match (taking.next(), taking.next()) {
        (Some(only), None) => Choice::One(*only),
        _ => Choice::Several,
    }
}

fn decided(fitting: &[usize]) -> Option<Choice> {
    match fitting {
        [] => Some(Choice::None),
        [only] => Some(Choice::One(*only)),
        _ => None,
    }
}

fn keep_most(fitting: &mut Vec<usize>, count: impl Fn(usize) -> usize) {
    let most = fitting.iter().map(|number| count(*number)).max();
    fitting.retain(|number| Some(count(*number)) == most);
}

/// For unknown types: text if a candidate takes text there, otherwise the category that all agree
/// on.
fn keep_category(shapes: &[Shape], fitting: &mut Vec<usize>, unknown: &[usize]) {
    let mut slots = Vec::with_capacity(unknown.len());
    for place in unknown {
        let mut slot: Option<(Category, bool)> = None;
        let mut conflict = false;
        for shape in fitting.iter().filter_map(|number| shapes.get(*number)) {
            let (own, preferred) = shape.category(*place);
            slot = match slot {
                None => Some((own, preferred)),
                Some((chosen, any)) if chosen == own => Some((own, any || preferred)),
                Some(_) if own == Category::String => Some((own, preferred)),
                other => {
                    conflict = true;
                    other
                }
            };
        }
        match slot {
            Some((Category::String, _)) => {}
            Some(_) if !conflict => {}
            _ => return,
        }
        slots.extend(slot.map(|slot| (*place, slot)));
    }
    let kept: Vec<usize> = fitting
        .iter()
        .copied()
        .filter(|number| {
            slots.iter().all(|(place, (chosen, prefer))| {
                shapes.get(*number).is_some_and(|shape| {
                    let (own, preferred) = shape.category(*place);
                    own == *chosen && (preferred || !prefer)
                })
            })
        })
        .collect();
    if !kept.is_empty() {
        *fitting = kept;
    }
}
