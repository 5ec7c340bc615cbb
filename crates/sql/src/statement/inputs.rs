//! Binding: from parameter values and a session to the row of inputs that a plan runs on.
//!
//! Inputs are the parameters, then the hidden inputs in order; a hidden input may use any earlier input.
//! Conversion errors (a text too long for its column, a number out of range) are raised here, before
//! execution.

use std::collections::HashSet;

use weft_types::{SqlError, SqlState, SqlType, Value, encode_key_value};

use super::plan::{ConstantPlan, HiddenInput, ProgramPlan};
use super::scalar::{InputSource, Scalar};

/// Parameters and hidden inputs as values, in order. `params` have the plan's parameter types.
pub fn bind_inputs(
    param_types: &[SqlType],
    hidden: &[HiddenInput],
    params: &[Value],
    source: &mut dyn InputSource,
) -> Result<Vec<Value>, SqlError> {
    check_params(param_types, params)?;
    let mut inputs = Vec::with_capacity(params.len() + hidden.len());
    inputs.extend_from_slice(params);
    for input in hidden {
        let value = input.value.evaluate(&inputs, &[], source)?;
        inputs.push(value);
    }
    Ok(inputs)
}

fn check_params(types: &[SqlType], params: &[Value]) -> Result<(), SqlError> {
    if types.len() != params.len() {
        return Err(SqlError::new(
            SqlState::PROTOCOL_VIOLATION,
            format!(
                "bind message supplies {} parameters, but prepared statement requires {}",
                params.len(),
                types.len()
            ),
        ));
    }
    match params.iter().zip(types).position(|(value, ty)| !value.fits(ty)) {
        Some(number) => Err(SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "the value of parameter ${} is not of the parameter's type",
                number + 1
            ),
        )),
        None => Ok(()),
    }
}

impl ProgramPlan {
    /// Writes the encoded input row of one execution to `out`, which is cleared first.
    pub fn bind_into(
        &self,
        params: &[Value],
        source: &mut dyn InputSource,
        out: &mut Vec<u8>,
    ) -> Result<(), SqlError> {
        out.clear();
        if let Some(call) = &self.procedure
            && let Some(arguments) = &call.arguments
        {
            check_params(&self.params, params)?;
            let arguments = arguments
                .iter()
                .map(|argument| argument.evaluate(params, &[], source))
                .collect::<Result<Vec<_>, _>>()?;
            let inputs = bind_inputs(&call.inputs, &self.hidden_inputs, &arguments, source)?;
            return self.input_layout.encode_into(&inputs, out);
        }
        self.check_affected_once(params, source)?;
        if self.hidden_inputs.is_empty() {
            check_params(&self.params, params)?;
            return self.input_layout.encode_into(params, out);
        }
        let inputs = bind_inputs(&self.params, &self.hidden_inputs, params, source)?;
        self.input_layout.encode_into(&inputs, out)
    }

    /// Rejects an ON CONFLICT DO UPDATE that would affect a row twice (21000).
    fn check_affected_once(&self, params: &[Value], source: &mut dyn InputSource) -> Result<(), SqlError> {
        for once in &self.once {
            let mut seen: HashSet<Vec<u8>> = HashSet::with_capacity(once.keys.len());
            for key in &once.keys {
                let mut bytes = Vec::new();
                let mut distinct = false;
                for part in key {
                    let value = part.evaluate(params, &[], source)?;
                    distinct |= value.is_null();
                    encode_key_value(&mut bytes, &value);
                }
                if distinct || seen.insert(bytes) {
                    continue;
                }
                let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
                return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).hint(
                    "Ensure that no rows proposed for insertion within the same command have duplicate \
                     constrained values.",
                ));
            }
        }
        Ok(())
    }

    /// The encoded input row for one execution.
    pub fn bind(&self, params: &[Value], source: &mut dyn InputSource) -> Result<Vec<u8>, SqlError> {
        let mut row = Vec::new();
        self.bind_into(params, source, &mut row)?;
        Ok(row)
    }

    /// Whether a range in the statement is so wide that the query engine ([`ProgramPlan::fallback`]) should
    /// read it. `inputs` is a bound input row.
    pub fn prefers_fallback(&self, inputs: &[u8]) -> bool {
        let Some((low, high)) = self.range_inputs else {
            return false;
        };
        let number = |input: u16| self.input_layout.value(inputs, usize::from(input)).as_i64();
        match (number(low), number(high)) {
            (Some(low), Some(high)) => high.saturating_sub(low) > super::compile::PROGRAM_RANGE_KEYS_MAX,
            _ => false,
        }
    }
}

impl ConstantPlan {
    /// The row's values, with the types of `columns`.
    pub fn evaluate(&self, params: &[Value], source: &mut dyn InputSource) -> Result<Vec<Value>, SqlError> {
        check_params(&self.params, params)?;
        self.row
            .iter()
            .map(|scalar| scalar.evaluate(params, &[], source))
            .collect()
    }
}

/// Hidden inputs under construction, numbered after the parameters; equal expressions share one.
#[derive(Clone, Debug, Default)]
pub(crate) struct HiddenInputs {
    param_count: usize,
    inputs: Vec<HiddenInput>,
}

impl HiddenInputs {
    /// An empty list, after `param_count` parameters.
    pub(crate) fn after(param_count: usize) -> Self {
        HiddenInputs {
            param_count,
            inputs: Vec::new(),
        }
    }

    /// The number of an input that holds `value`, and whether it is new.
    pub(crate) fn number(&mut self, value: Scalar, ty: SqlType) -> (usize, bool) {
        if let Scalar::Input(number) = value {
            return (usize::from(number), false);
        }
        if !value.is_volatile()
            && let Some(found) = self
                .inputs
                .iter()
                .position(|input| input.ty == ty && input.value == value)
        {
            return (self.param_count + found, false);
        }
        self.inputs.push(HiddenInput { ty, value });
        (self.param_count + self.inputs.len() - 1, true)
    }

    /// The finished list.
    pub(crate) fn finish(self) -> Vec<HiddenInput> {
        self.inputs
    }
}
