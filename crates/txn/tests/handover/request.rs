//! Answers as tickets know them.

use weft_types::SqlError;

pub type Answer<T> = Result<T, Box<Refused>>;

#[derive(Debug)]
pub struct Refused {
    pub error: SqlError,
}

impl Refused {
    pub fn early(error: SqlError) -> Box<Refused> {
        Box::new(Refused { error })
    }
}
