//! A program in the core's words, and the block that each of its transactions has.
//!
//! ```text
//!   block   word 0       how it ended (0: it has not)
//!           writes       a word an update: the tuple that was changed, or 0
//!           counts       a word a statement: rows found or changed
//!           inputs       the row of inputs
//!           keys         the search keys that are not inputs as they stand
//!           rows         the result rows; bit 63 of the first word: it was emitted
//!           undo         what the changed columns were before
//! ```
//!
//! The host fills inputs and keys, and zeroes the rest. Source: BionicDB 4.3, figure 3.

use weft_base::TableId;
use weft_program::KeyPart;

use super::row::RowPlaces;

/// Bit of a result row's first word: the row was emitted.
pub const EMITTED: u64 = 1 << 63;

/// What the core has of a program, beside its words.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreProgram {
    /// Its instructions; targets count from the first one.
    pub code: Vec<u64>,
    /// First word of the second phase.
    pub commit_at: u32,
    /// First word of the code that undoes.
    pub abort_at: u32,
    /// Registers.
    pub registers: u32,
    /// Collect registers: searches.
    pub collects: u32,
    /// The program's instruction that each word comes from.
    pub origins: Vec<u32>,
    /// The block.
    pub block: BlockLayout,
}

/// Where the parts of a block begin, in words.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockLayout {
    /// All words.
    pub words: u32,
    /// The tuples that updates changed.
    pub writes_at: u32,
    /// Of each update, its table's ordinal in the program and its id.
    pub writes: Vec<(usize, TableId)>,
    /// Counts of statements.
    pub counts_at: u32,
    /// How many.
    pub statements: u32,
    /// The row of inputs.
    pub inputs_at: u32,
    /// Its form.
    pub inputs: RowPlaces,
    /// Where the key of each search is, and its parts.
    pub keys: Vec<KeyPlace>,
    /// Result rows, in the order in which they are emitted: statement, place, form.
    pub rows: Vec<(u32, u32, RowPlaces)>,
}

/// The key of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// Its first word in the block.
    pub at: u32,
    /// It is not among the inputs: the host writes it.
    pub is_made: bool,
    /// What it is made of.
    pub parts: Vec<KeyPart>,
}
