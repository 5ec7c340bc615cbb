//! What ranks ask each other, and what they answer.
//!
//! ```text
//! request   1 run       branch? | sql | types | parameters | program? | definitions | settings
//!           2 control   branch? | sql                          savepoints, the end of a branch, definitions
//!           3 insert    branch | table | definitions | rows
//!           4 view      branch? | tables | definitions         a view is opened, for the chunks below
//!           5 chunks    view | table | first | count | columns | filters | most rows
//!           6 close     view
//!           7 hold    number | milliseconds
//!           8 release      number
//!           9 outcome   global transaction id
//!          10 hello     version | definitions
//!          11 range     view | table | index | bounds          a number more than the rows, or 0: declined
//! answer    1 rows      encoded rows
//!           2 done      tags | wrote                           the last
//!           3 error     SQLSTATE and texts                     the last
//!           4 view      view | chunks and rows of each table   the last
//!           5 word      a number                               the last
//!           6 notice    level | SQLSTATE and texts
//! ```
//!
//! Numbers are little endian or varints; lists have a leading count. Everything is outside data: a damaged
//! message is an error that names its sender.

use std::ops::Bound;

use weft::{BoundProgram, BranchStart, ColumnRanges, ProgramHash, SqlError, SqlType, Wanted};
use weft_base::{ByteReader, ByteWriter, CatalogVersion, CodecError, IndexId, TableId};
use weft_types::{NoticeLevel, SqlState};

/// Changes with every message, and with the meaning of any.
pub const VERSION: u64 = 2;

type Decoded<T> = Result<T, CodecError>;

/// The branch of a transaction, as its home names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BranchRef {
    /// The home's number of it.
    pub number: u64,
    /// What it begins with, if this is its first request.
    pub start: Option<BranchStart>,
}

/// The definitions that a request was planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definitions {
    /// Their version.
    pub version: CatalogVersion,
    /// Their digest.
    pub digest: u64,
}

/// A statement to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// In which branch; without one it is a transaction by itself.
    pub branch: Option<BranchRef>,
    /// Its text.
    pub sql: String,
    /// Types that the client declared for parameters.
    pub declared: Vec<Option<SqlType>>,
    /// Types of all parameters.
    pub types: Vec<SqlType>,
    /// Their values: a row of these types.
    pub params: Vec<u8>,
    /// Of a program: its name and inputs.
    pub bound: Option<BoundProgram>,
    /// What it was planned for.
    pub definitions: Definitions,
    /// Settings that its meaning depends on.
    pub settings: Vec<(String, String)>,
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Run a statement.
    Run(Box<Run>),
    /// Run the text of a simple message.
    Control {
        /// In which branch.
        branch: Option<BranchRef>,
        /// The text.
        sql: String,
    },
    /// Insert rows.
    Insert {
        /// In which branch.
        branch: BranchRef,
        /// Into which table.
        table: TableId,
        /// For which definitions they were computed.
        definitions: Definitions,
        /// The rows.
        rows: Vec<Vec<u8>>,
    },
    /// Open a view.
    View {
        /// Of which branch.
        branch: Option<BranchRef>,
        /// Tables that will be read.
        tables: Vec<TableId>,
        /// What the reader planned for.
        definitions: Definitions,
    },
    /// Read chunks of a table.
    Chunks {
        /// In which view.
        view: u64,
        /// The table.
        table: TableId,
        /// The first chunk.
        first: u64,
        /// How many.
        count: u64,
        /// What of their rows. Rows have the wanted columns alone, in this order.
        wanted: Wanted,
    },
    /// Read the rows of a range of an index.
    Range {
        /// In which view.
        view: u64,
        /// The table.
        table: TableId,
        /// Its index.
        index: IndexId,
        /// The bounds of keys.
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    },
    /// A view is not needed any more.
    Close {
        /// Which.
        view: u64,
    },
    /// Make no commit decisions until released, and finish those that were made.
    Hold {
        /// Names the hold among those of its sender.
        number: u64,
        /// How long it lasts at most.
        millis: u64,
    },
    /// Go on. Answers whether the hold lasted until now.
    Release {
        /// Which hold.
        number: u64,
    },
    /// How did a transaction of this home end?
    Outcome {
        /// Its global id.
        gid: String,
    },
    /// Compare versions and definitions.
    Hello {
        /// [`VERSION`], the number of ranks and the cluster, hashed.
        cluster: u64,
        /// The sender's definitions.
        definitions: Definitions,
    },
}

/// Part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Rows of the statement's result.
    Rows(Vec<Vec<u8>>),
    /// It is done.
    Done {
        /// The tag of its last statement.
        verb: String,
        /// Rows that it returned or changed.
        rows: Option<u64>,
        /// The branch has changed something.
        wrote: bool,
    },
    /// It failed.
    Failed(SqlError),
    /// A view was opened.
    Viewed {
        /// Its number.
        view: u64,
        /// Chunks and estimated rows of each table that was named.
        tables: Vec<(u64, u64)>,
    },
    /// A number.
    Word(u64),
    /// A notice.
    Notice(NoticeLevel, SqlError),
}

/// [`Answer::Word`] for [`Request::Outcome`].
pub mod outcome {
    /// It did not commit, and never will.
    pub const ABORTED: u64 = 0;
    /// It committed.
    pub const COMMITTED: u64 = 1;
    /// It is being decided.
    pub const OPEN: u64 = 2;
}

impl Answer {
    /// Whether no other part follows.
    #[must_use]
    pub fn is_last(&self) -> bool {
        !matches!(self, Answer::Rows(_) | Answer::Notice(..))
    }
}

fn damaged(what: &'static str) -> CodecError {
    CodecError::new(0, what)
}

impl Request {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        match self {
            Request::Run(run) => {
                out.put_u8(1);
                put_run(&mut out, run);
            }
            Request::Control { branch, sql } => {
                out.put_u8(2);
                put_branch(&mut out, branch.as_ref());
                out.put_str_prefixed(sql);
            }
            Request::Insert {
                branch,
                table,
                definitions,
                rows,
            } => {
                out.put_u8(3);
                put_branch(&mut out, Some(branch));
                out.put_u32(table.0);
                put_definitions(&mut out, *definitions);
                put_rows(&mut out, rows);
            }
            Request::View {
                branch,
                tables,
                definitions,
            } => {
                out.put_u8(4);
                put_branch(&mut out, branch.as_ref());
                out.put_varint(tables.len() as u64);
                tables.iter().for_each(|table| out.put_u32(table.0));
                put_definitions(&mut out, *definitions);
            }
            Request::Chunks {
                view,
                table,
                first,
                count,
                wanted,
            } => {
                put_word(&mut out, 5, *view);
                out.put_u32(table.0);
                out.put_varint(*first);
                out.put_varint(*count);
                put_wanted(&mut out, wanted);
            }
            Request::Range {
                view,
                table,
                index,
                bounds,
            } => {
                put_word(&mut out, 11, *view);
                out.put_u32(table.0);
                out.put_u32(index.0);
                put_bound(&mut out, &bounds.0);
                put_bound(&mut out, &bounds.1);
            }
            Request::Close { view } => put_word(&mut out, 6, *view),
            Request::Hold { number, millis } => {
                put_word(&mut out, 7, *number);
                out.put_varint(*millis);
            }
            Request::Release { number } => put_word(&mut out, 8, *number),
            Request::Outcome { gid } => {
                out.put_u8(9);
                out.put_str_prefixed(gid);
            }
            Request::Hello { cluster, definitions } => {
                out.put_u8(10);
                out.put_u64(*cluster);
                put_definitions(&mut out, *definitions);
            }
        }
        out
    }

    /// Inverse of [`Self::encode`].
    ///
    /// # Errors
    ///
    /// The bytes are no request.
    pub fn decode(bytes: &[u8]) -> Decoded<Request> {
        let reader = &mut ByteReader::new(bytes);
        let request = match reader.u8()? {
            1 => Request::Run(Box::new(read_run(reader)?)),
            2 => Request::Control {
                branch: read_branch(reader)?,
                sql: reader.str_prefixed()?.to_owned(),
            },
            3 => Request::Insert {
                branch: read_branch(reader)?.ok_or_else(|| damaged("an insert without a branch"))?,
                table: TableId(reader.u32()?),
                definitions: read_definitions(reader)?,
                rows: read_rows(reader)?,
            },
            4 => {
                let branch = read_branch(reader)?;
                let count = reader.count(4)?;
                let tables = (0..count)
                    .map(|_| reader.u32().map(TableId))
                    .collect::<Result<_, _>>()?;
                Request::View {
                    branch,
                    tables,
                    definitions: read_definitions(reader)?,
                }
            }
            5 => Request::Chunks {
                view: reader.varint()?,
                table: TableId(reader.u32()?),
                first: reader.varint()?,
                count: reader.varint()?,
                wanted: read_wanted(reader)?,
            },
            6 => Request::Close {
                view: reader.varint()?,
            },
            7 => Request::Hold {
                number: reader.varint()?,
                millis: reader.varint()?,
            },
            8 => Request::Release {
                number: reader.varint()?,
            },
            9 => Request::Outcome {
                gid: reader.str_prefixed()?.to_owned(),
            },
            10 => Request::Hello {
                cluster: reader.u64()?,
                definitions: read_definitions(reader)?,
            },
            11 => Request::Range {
                view: reader.varint()?,
                table: TableId(reader.u32()?),
                index: IndexId(reader.u32()?),
                bounds: (read_bound(reader)?, read_bound(reader)?),
            },
            _ => return Err(damaged("a request of no known kind")),
        };
        reader.finish()?;
        Ok(request)
    }
}

impl Answer {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Answer::Rows(rows) => {
                out.put_u8(1);
                put_rows(&mut out, rows);
            }
            Answer::Done { verb, rows, wrote } => {
                out.put_u8(2);
                out.put_str_prefixed(verb);
                out.put_bool(rows.is_some());
                out.put_varint(rows.unwrap_or(0));
                out.put_bool(*wrote);
            }
            Answer::Failed(error) => {
                out.put_u8(3);
                put_error(&mut out, error);
            }
            Answer::Viewed { view, tables } => {
                put_word(&mut out, 4, *view);
                out.put_varint(tables.len() as u64);
                for (chunks, rows) in tables {
                    out.put_varint(*chunks);
                    out.put_varint(*rows);
                }
            }
            Answer::Word(word) => put_word(&mut out, 5, *word),
            Answer::Notice(level, notice) => {
                out.put_u8(6);
                out.put_u8(*level as u8);
                put_error(&mut out, notice);
            }
        }
        out
    }

    /// Inverse of [`Self::encode`].
    ///
    /// # Errors
    ///
    /// The bytes are no answer.
    pub fn decode(bytes: &[u8]) -> Decoded<Answer> {
        let reader = &mut ByteReader::new(bytes);
        let answer = match reader.u8()? {
            1 => Answer::Rows(read_rows(reader)?),
            2 => {
                let verb = reader.str_prefixed()?.to_owned();
                let (counts, rows) = (reader.bool()?, reader.varint()?);
                Answer::Done {
                    verb,
                    rows: counts.then_some(rows),
                    wrote: reader.bool()?,
                }
            }
            3 => Answer::Failed(read_error(reader)?),
            4 => {
                let view = reader.varint()?;
                let count = reader.count(2)?;
                let tables = (0..count)
                    .map(|_| Ok((reader.varint()?, reader.varint()?)))
                    .collect::<Decoded<_>>()?;
                Answer::Viewed { view, tables }
            }
            5 => Answer::Word(reader.varint()?),
            6 => {
                let level = usize::from(reader.u8()?);
                let level = NoticeLevel::ALL.get(level).ok_or_else(|| damaged("a level"))?;
                Answer::Notice(*level, read_error(reader)?)
            }
            _ => return Err(damaged("an answer of no known kind")),
        };
        reader.finish()?;
        Ok(answer)
    }
}

fn put_wanted(out: &mut Vec<u8>, wanted: &Wanted) {
    out.put_bool(wanted.columns.is_some());
    let columns = wanted.columns.as_deref().unwrap_or_default();
    out.put_varint(columns.len() as u64);
    columns.iter().for_each(|column| out.put_varint(*column as u64));
    out.put_varint(wanted.filters.len() as u64);
    for filter in &wanted.filters {
        out.put_varint(filter.column as u64);
        out.put_varint(filter.ranges.len() as u64);
        for (low, high) in &filter.ranges {
            out.put_len_prefixed(low);
            out.put_len_prefixed(high);
        }
    }
    out.put_varint(wanted.rows_max as u64);
}

fn read_wanted(reader: &mut ByteReader<'_>) -> Decoded<Wanted> {
    let number = |word: u64| usize::try_from(word).map_err(|_| damaged("a number"));
    let has_columns = reader.bool()?;
    let count = reader.count(1)?;
    let columns = (0..count)
        .map(|_| number(reader.varint()?))
        .collect::<Decoded<Vec<_>>>()?;
    let count = reader.count(2)?;
    let mut filters = Vec::with_capacity(count);
    for _ in 0..count {
        let column = number(reader.varint()?)?;
        let count = reader.count(2)?;
        let ranges = (0..count)
            .map(|_| Ok((reader.len_prefixed()?.to_vec(), reader.len_prefixed()?.to_vec())))
            .collect::<Decoded<_>>()?;
        filters.push(ColumnRanges { column, ranges });
    }
    Ok(Wanted {
        columns: has_columns.then_some(columns),
        filters,
        rows_max: number(reader.varint()?)?,
    })
}

fn put_bound(out: &mut Vec<u8>, bound: &Bound<Vec<u8>>) {
    let (kind, bytes) = match bound {
        Bound::Unbounded => (0, [].as_slice()),
        Bound::Included(key) => (1, key.as_slice()),
        Bound::Excluded(key) => (2, key.as_slice()),
    };
    out.put_u8(kind);
    out.put_len_prefixed(bytes);
}

fn read_bound(reader: &mut ByteReader<'_>) -> Decoded<Bound<Vec<u8>>> {
    let kind = reader.u8()?;
    let bytes = reader.len_prefixed()?.to_vec();
    match kind {
        0 => Ok(Bound::Unbounded),
        1 => Ok(Bound::Included(bytes)),
        2 => Ok(Bound::Excluded(bytes)),
        _ => Err(damaged("a bound of no known kind")),
    }
}

fn put_word(out: &mut Vec<u8>, tag: u8, word: u64) {
    out.put_u8(tag);
    out.put_varint(word);
}

fn put_run(out: &mut Vec<u8>, run: &Run) {
    put_branch(out, run.branch.as_ref());
    out.put_str_prefixed(&run.sql);
    out.put_varint(run.declared.len() as u64);
    for ty in &run.declared {
        out.put_bool(ty.is_some());
        if let Some(ty) = ty {
            ty.encode(out);
        }
    }
    out.put_varint(run.types.len() as u64);
    run.types.iter().for_each(|ty| ty.encode(out));
    out.put_len_prefixed(&run.params);
    out.put_bool(run.bound.is_some());
    if let Some(bound) = &run.bound {
        out.put_bytes(&bound.hash.0);
        out.put_len_prefixed(&bound.inputs);
    }
    put_definitions(out, run.definitions);
    out.put_varint(run.settings.len() as u64);
    for (name, value) in &run.settings {
        out.put_str_prefixed(name);
        out.put_str_prefixed(value);
    }
}

fn read_run(reader: &mut ByteReader<'_>) -> Decoded<Run> {
    let branch = read_branch(reader)?;
    let sql = reader.str_prefixed()?.to_owned();
    let count = reader.count(1)?;
    let declared = (0..count)
        .map(|_| {
            Ok(if reader.bool()? {
                Some(SqlType::decode(reader)?)
            } else {
                None
            })
        })
        .collect::<Decoded<_>>()?;
    let count = reader.count(1)?;
    let types = (0..count)
        .map(|_| SqlType::decode(reader))
        .collect::<Result<_, _>>()?;
    let params = reader.len_prefixed()?.to_vec();
    let bound = if reader.bool()? {
        Some(BoundProgram {
            hash: ProgramHash(reader.array()?),
            inputs: reader.len_prefixed()?.to_vec(),
        })
    } else {
        None
    };
    let definitions = read_definitions(reader)?;
    let count = reader.count(2)?;
    let settings = (0..count)
        .map(|_| {
            Ok((
                reader.str_prefixed()?.to_owned(),
                reader.str_prefixed()?.to_owned(),
            ))
        })
        .collect::<Decoded<_>>()?;
    Ok(Run {
        branch,
        sql,
        declared,
        types,
        params,
        bound,
        definitions,
        settings,
    })
}

fn put_branch(out: &mut Vec<u8>, branch: Option<&BranchRef>) {
    let Some(branch) = branch else {
        out.put_u8(0);
        return;
    };
    let Some(start) = &branch.start else {
        put_word(out, 1, branch.number);
        return;
    };
    put_word(out, 2, branch.number);
    out.put_u8(start.isolation as u8);
    out.put_bool(start.is_read_only);
    out.put_i64(start.began_micros);
    out.put_varint(u64::try_from(start.lock_wait_max.as_millis()).unwrap_or(u64::MAX));
}

fn read_branch(reader: &mut ByteReader<'_>) -> Decoded<Option<BranchRef>> {
    use weft::Isolation as I;
    let kind = reader.u8()?;
    if kind == 0 {
        return Ok(None);
    }
    let number = reader.varint()?;
    let start = match kind {
        1 => None,
        2 => {
            let isolation = reader.u8()?;
            let known = [I::ReadCommitted, I::RepeatableRead, I::Serializable];
            let isolation = known.into_iter().find(|level| *level as u8 == isolation);
            Some(BranchStart {
                isolation: isolation.ok_or_else(|| damaged("an isolation level"))?,
                is_read_only: reader.bool()?,
                began_micros: reader.i64()?,
                lock_wait_max: std::time::Duration::from_millis(reader.varint()?),
            })
        }
        _ => return Err(damaged("a branch of no known kind")),
    };
    Ok(Some(BranchRef { number, start }))
}

fn put_definitions(out: &mut Vec<u8>, definitions: Definitions) {
    out.put_u64(definitions.version.0);
    out.put_u64(definitions.digest);
}

fn read_definitions(reader: &mut ByteReader<'_>) -> Decoded<Definitions> {
    Ok(Definitions {
        version: CatalogVersion(reader.u64()?),
        digest: reader.u64()?,
    })
}

fn put_rows(out: &mut Vec<u8>, rows: &[Vec<u8>]) {
    out.reserve(rows.iter().map(|row| row.len() + 4).sum());
    out.put_varint(rows.len() as u64);
    rows.iter().for_each(|row| out.put_len_prefixed(row));
}

fn read_rows(reader: &mut ByteReader<'_>) -> Decoded<Vec<Vec<u8>>> {
    let count = reader.count(1)?;
    (0..count)
        .map(|_| reader.len_prefixed().map(<[u8]>::to_vec))
        .collect()
}

fn put_error(out: &mut Vec<u8>, error: &SqlError) {
    let fields = error.fields();
    out.put_str_prefixed(error.state.code());
    out.put_str_prefixed(&error.message);
    for text in [
        &fields.detail,
        &fields.hint,
        &fields.schema,
        &fields.table,
        &fields.column,
        &fields.data_type,
        &fields.constraint,
        &fields.context,
    ] {
        out.put_bool(text.is_some());
        out.put_str_prefixed(text.as_deref().unwrap_or_default());
    }
    out.put_varint(u64::from(fields.position.unwrap_or(0)));
}

fn read_error(reader: &mut ByteReader<'_>) -> Decoded<SqlError> {
    let code = reader.str_prefixed()?;
    // The sender has admitted its own codes; beyond the bound a code becomes that of an internal error.
    let state = SqlState::user_defined(code).unwrap_or(SqlState::INTERNAL_ERROR);
    let mut error = SqlError::new(state, reader.str_prefixed()?);
    let mut texts = Vec::with_capacity(8);
    for _ in 0..8 {
        let is_some = reader.bool()?;
        let text = reader.str_prefixed()?;
        texts.push(is_some.then(|| text.to_owned()));
    }
    let position = reader.varint_u32()?;
    let mut texts = texts.into_iter().map(Option::unwrap_or_default);
    let mut next = || texts.next().filter(|text| !text.is_empty());
    let fields = error.fields_mut();
    fields.detail = next();
    fields.hint = next();
    fields.schema = next();
    fields.table = next();
    fields.column = next();
    fields.data_type = next();
    fields.constraint = next();
    fields.context = next();
    fields.position = Some(position).filter(|position| *position > 0);
    Ok(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weft::Isolation;

    fn requests() -> Vec<Request> {
        let definitions = Definitions {
            version: CatalogVersion(7),
            digest: u64::MAX,
        };
        let start = BranchStart {
            isolation: Isolation::Serializable,
            is_read_only: true,
            began_micros: -5,
            lock_wait_max: Duration::from_millis(100),
        };
        let branch = BranchRef {
            number: 300,
            start: Some(start),
        };
        let later = BranchRef {
            number: 300,
            start: None,
        };
        vec![
            Request::Run(Box::new(Run {
                branch: Some(branch),
                sql: "select $1".into(),
                declared: vec![None, Some(SqlType::Varchar(Some(3)))],
                types: vec![SqlType::Int4, SqlType::Varchar(Some(3))],
                params: vec![1, 2, 3],
                bound: Some(BoundProgram {
                    hash: ProgramHash([9; 16]),
                    inputs: vec![4],
                }),
                definitions,
                settings: vec![("TimeZone".into(), "UTC".into())],
            })),
            Request::Control {
                branch: Some(later),
                sql: "commit".into(),
            },
            Request::Insert {
                branch,
                table: TableId(16384),
                definitions,
                rows: vec![vec![], vec![1; 300]],
            },
            Request::View {
                branch: None,
                tables: vec![TableId(1), TableId(2)],
                definitions,
            },
            Request::Chunks {
                view: 3,
                table: TableId(5),
                first: 1 << 40,
                count: 7,
                wanted: Wanted {
                    columns: Some(vec![2, 0]),
                    filters: vec![ColumnRanges {
                        column: 1,
                        ranges: vec![(vec![1, 2], vec![1, 3]), (vec![], vec![9])],
                    }],
                    rows_max: 10,
                },
            },
            Request::Range {
                view: 3,
                table: TableId(5),
                index: IndexId(8),
                bounds: (Bound::Included(vec![1]), Bound::Unbounded),
            },
            Request::Close { view: 3 },
            Request::Hold {
                number: 1,
                millis: 1000,
            },
            Request::Release { number: 1 },
            Request::Outcome {
                gid: "weft-1-2-3".into(),
            },
            Request::Hello {
                cluster: 11,
                definitions,
            },
        ]
    }

    fn answers() -> Vec<Answer> {
        let error = SqlError::new(SqlState::UNIQUE_VIOLATION, "duplicate")
            .detail("Key (id)=(1) already exists.")
            .table("t")
            .constraint("t_pkey")
            .position(9);
        vec![
            Answer::Rows(vec![vec![1], vec![]]),
            Answer::Done {
                verb: "UPDATE".into(),
                rows: Some(2),
                wrote: true,
            },
            Answer::Failed(error.clone()),
            Answer::Viewed {
                view: 1,
                tables: vec![(2, 1000), (0, 0)],
            },
            Answer::Word(outcome::OPEN),
            Answer::Notice(NoticeLevel::Warning, error),
        ]
    }

    #[test]
    fn messages_survive_encoding_and_no_cut_of_them_is_one() {
        for request in requests() {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes).unwrap(), request);
            for cut in 0..bytes.len() {
                assert!(
                    Request::decode(&bytes[..cut]).is_err(),
                    "{request:?} cut at {cut}"
                );
            }
        }
        for answer in answers() {
            let bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes).unwrap(), answer);
            for cut in 0..bytes.len() {
                assert!(Answer::decode(&bytes[..cut]).is_err(), "{answer:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn damaged_messages_do_not_panic() {
        let messages = requests()
            .iter()
            .map(Request::encode)
            .chain(answers().iter().map(Answer::encode))
            .collect::<Vec<_>>();
        for bytes in messages {
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1 << bit;
                    drop(Request::decode(&damaged));
                    drop(Answer::decode(&damaged));
                }
            }
        }
    }
}
