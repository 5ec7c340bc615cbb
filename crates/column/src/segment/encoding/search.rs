//! Searching in ascending order.

/// The first place of `from..end` for which `holds` does not hold, or `end`; `holds` does so up to some place
/// and not from there on. Near `from` it costs two steps for each doubling of the distance, so that many
/// searches in ascending order together cost no more than one look at each place.
pub(crate) fn first_not(from: usize, end: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (from, 1);
    while low + step <= end && holds(low + step - 1) {
        low += step;
        step *= 2;
    }
    let mut high = end.min(low + step - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::first_not;

    #[test]
    fn every_place_is_found() {
        for end in 0..70 {
            for from in 0..=end {
                for place in from..=end {
                    assert_eq!(first_not(from, end, |at| at < place), place, "{from} {end}");
                }
            }
        }
    }
}
