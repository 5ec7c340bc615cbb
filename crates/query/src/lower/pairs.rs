//! One operation over many parts as a tree that is as flat as it can be.
//!
//! DataFusion recurses into operators and takes time with the third power of the length of a chain of joins.

use weft_types::SqlError;

/// Joins neighbours, then the results, until one is left; `None` without parts.
pub(crate) fn in_pairs<T>(
    mut parts: Vec<T>,
    mut join: impl FnMut(T, T) -> Result<T, SqlError>,
) -> Result<Option<T>, SqlError> {
    while parts.len() > 1 {
        let mut joined = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(left) = rest.next() {
            joined.push(match rest.next() {
                Some(right) => join(left, right)?,
                None => left,
            });
        }
        parts = joined;
    }
    Ok(parts.pop())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_joined_in_order_and_none_is_deep() {
        for count in 0..70_usize {
            let parts = (0..count).map(|part| (vec![part], 0)).collect();
            let join = |(mut left, depth): (Vec<usize>, u32), (right, other): (Vec<usize>, u32)| {
                left.extend(right);
                Ok((left, depth.max(other) + 1))
            };
            let all = in_pairs(parts, join).unwrap();
            let Some((parts, depth)) = all else {
                assert_eq!(count, 0);
                continue;
            };
            assert_eq!(parts, (0..count).collect::<Vec<_>>());
            assert_eq!(depth, count.next_power_of_two().ilog2());
        }
        let failed = in_pairs(vec![1, 2, 3], |_, _| Err::<i32, _>(SqlError::internal("no")));
        assert!(failed.is_err());
    }
}
