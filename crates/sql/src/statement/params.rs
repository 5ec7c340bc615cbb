//! Parameter types while a statement is being bound: given by the client, or found at the first place that
//! tells.

use weft_types::{SqlError, SqlState, SqlType, TimeZone};

use crate::error;

/// Most parameters of a statement: the wire counts them in 16 bits, and hidden inputs need numbers too.
pub(crate) const PARAMS_MAX: usize = 32_767;

/// Types of `$1..$n` as far as they are known.
#[derive(Clone, Debug)]
pub(crate) struct ParamTypes {
    types: Vec<Option<SqlType>>,
    /// Those that occur in the statement; one that was given a type need not occur.
    seen: Vec<bool>,
    /// Parameters before `$1`: those of earlier statements of one program.
    before: usize,
    /// The session's zone, in which literals are read.
    pub(crate) zone: TimeZone,
}

impl Default for ParamTypes {
    /// No parameters; literals are read in UTC.
    fn default() -> Self {
        ParamTypes::new(&[], TimeZone::UTC)
    }
}

impl ParamTypes {
    /// Starts from what the client gave.
    pub(crate) fn new(given: &[Option<SqlType>], zone: TimeZone) -> Self {
        ParamTypes {
            types: given.to_vec(),
            seen: vec![false; given.len()],
            before: 0,
            zone,
        }
    }

    /// The number, from 0, of a placeholder's text (`$1`); makes room for it.
    pub(crate) fn placeholder(&mut self, text: &str) -> Result<usize, SqlError> {
        let number: usize = text
            .strip_prefix('$')
            .and_then(|digits| digits.parse().ok())
            .filter(|number| (1..=PARAMS_MAX).contains(number))
            .ok_or_else(|| {
                SqlError::new(
                    SqlState::UNDEFINED_PARAMETER,
                    format!("there is no parameter {text}"),
                )
            })?;
        let number = self.before + number;
        if self.types.len() < number {
            self.types.resize(number, None);
            self.seen.resize(number, false);
        }
        if let Some(seen) = self.seen.get_mut(number - 1) {
            *seen = true;
        }
        Ok(number - 1)
    }

    /// From now on `$1` is the parameter after so many.
    pub(crate) fn begin_at(&mut self, before: usize) {
        self.before = before;
    }

    /// The type, if known.
    pub(crate) fn get(&self, number: usize) -> Option<SqlType> {
        self.types.get(number).copied().flatten()
    }

    /// Sets the type where it is not known yet.
    pub(crate) fn learn(&mut self, number: usize, ty: SqlType) {
        if let Some(slot @ None) = self.types.get_mut(number) {
            *slot = Some(ty);
        }
    }

    /// Number of parameters so far.
    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// Types of all parameters. One that occurs but was never given a type is text, as an unknown literal
    /// would be; one that does not occur at all is an error.
    pub(crate) fn finish(&self) -> Result<Vec<SqlType>, SqlError> {
        self.types
            .iter()
            .zip(&self.seen)
            .enumerate()
            .map(|(number, (ty, seen))| match ty {
                Some(ty) => Ok(*ty),
                None if *seen => Ok(SqlType::Text),
                None => Err(error::indeterminate_parameter(number + 1)),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_use_decides_and_gaps_are_errors() {
        let mut params = ParamTypes::new(&[None, Some(SqlType::Int8)], TimeZone::UTC);
        assert_eq!(params.placeholder("$1").unwrap(), 0);
        params.learn(0, SqlType::Int4);
        params.learn(0, SqlType::Text);
        params.learn(1, SqlType::Text);
        assert_eq!(params.finish().unwrap(), [SqlType::Int4, SqlType::Int8]);
        params.placeholder("$4").unwrap();
        assert_eq!(
            params.finish().unwrap_err().message,
            "could not determine data type of parameter $3"
        );
        assert_eq!(params.placeholder("$0").unwrap_err().state.0, "42P02");
        assert_eq!(params.placeholder("$99999").unwrap_err().state.0, "42P02");
    }
}
