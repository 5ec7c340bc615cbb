//! The parameters of a unit of planning: one statement, or several that become one program.

use weft_binder::ParameterTypes;
use weft_types::{SqlType, TimeZone};

/// Parameters while statements are being bound.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    /// `$1`, `$2`, .. of the statement being bound.
    pub(crate) types: ParameterTypes,
    /// Parameters before `$1`: those of earlier statements of one program.
    pub(crate) before: usize,
    /// The session's time zone, in which constants are read.
    pub(crate) zone: TimeZone,
}

impl Params {
    /// Starts with the types that the client gave.
    pub(crate) fn new(given: &[Option<SqlType>], zone: TimeZone) -> Self {
        Params {
            types: ParameterTypes::declared(given),
            before: 0,
            zone,
        }
    }

    /// No parameters; constants are read in UTC.
    pub(crate) fn none() -> Self {
        Params::new(&[], TimeZone::UTC)
    }
}
