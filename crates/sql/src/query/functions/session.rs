//! Functions whose answer depends on the session or the catalog: clock, user, settings, look-ups of
//! definitions.
//!
//! They are made per statement around one [`SessionContext`], computed row by row over scalars (they run over
//! catalogs, not over data), and a plan that holds one is never reused.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use weft_store::Catalog;
use weft_types::SqlError;

use super::super::errors::external;
use super::super::settings::QuerySettings;

/// What session functions see.
pub struct SessionContext {
    /// The session.
    pub settings: QuerySettings,
    /// The definitions at the statement's boundary.
    pub catalog: Arc<Catalog>,
}

/// A session function: name, result type, body over one row's arguments.
pub struct SessionFunction {
    /// Lower-case name.
    pub name: &'static str,
    /// Result type.
    pub returns: fn() -> DataType,
    /// NULL in any argument gives NULL without a call.
    pub strict: bool,
    /// The computation.
    pub body: fn(&SessionContext, &[ScalarValue]) -> std::result::Result<ScalarValue, SqlError>,
}

/// The function of this name, bound to the session.
pub fn session_function(name: &str, session: &Arc<SessionContext>) -> Option<Arc<ScalarUDF>> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static SessionFunction>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        crate::pg_catalog::functions::all()
            .map(|function| (function.name, function))
            .collect()
    });
    let function = *by_name.get(name)?;
    Some(Arc::new(ScalarUDF::new_from_impl(Bound {
        function,
        session: Arc::clone(session),
        signature: Signature::one_of(
            vec![TypeSignature::Nullary, TypeSignature::VariadicAny],
            Volatility::Stable,
        ),
    })))
}

struct Bound {
    function: &'static SessionFunction,
    session: Arc<SessionContext>,
    signature: Signature,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.function.name)
    }
}

impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name && Arc::ptr_eq(&self.session, &other.session)
    }
}

impl Eq for Bound {}

impl Hash for Bound {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl ScalarUDFImpl for Bound {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok((self.function.returns)())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let all_scalar = args
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if all_scalar { 1 } else { args.number_rows };
        let arrays = args
            .args
            .iter()
            .map(|arg| arg.to_array(rows))
            .collect::<Result<Vec<_>>>()?;
        let null = ScalarValue::try_from(args.return_type())?;
        let mut results = Vec::with_capacity(rows);
        for row in 0..rows {
            let row_args = arrays
                .iter()
                .map(|array| ScalarValue::try_from_array(array, row))
                .collect::<Result<Vec<_>>>()?;
            if self.function.strict && row_args.iter().any(ScalarValue::is_null) {
                results.push(null.clone());
                continue;
            }
            let value = (self.function.body)(&self.session, &row_args).map_err(external)?;
            results.push(if value.is_null() { null.clone() } else { value });
        }
        if all_scalar {
            return Ok(ColumnarValue::Scalar(results.pop().unwrap_or(null)));
        }
        if results.is_empty() {
            return Ok(ColumnarValue::Array(datafusion::arrow::array::new_empty_array(
                args.return_type(),
            )));
        }
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(results)?))
    }
}
