//! Catalog values as bytes, for the log and for checkpoints, and the catalog's term of the state digest.
//!
//! Little endian and varints, lists with a leading count, options with a leading 0 or 1, enums with a
//! leading tag. The field order is that of the functions below. Decoders trust nothing: a count is checked
//! against the bytes that are left before anything is reserved for it, and a decoded catalog is rebuilt so
//! that its invariants hold.

use std::sync::Arc;

use weft_base::{ByteReader, ByteWriter, CatalogVersion, CodecError, IndexId, TableId};
use weft_ops::{hash64_seeded, mix64};
use weft_types::sql_type::CHARACTERS_MAX;
use weft_types::{NumericSpec, RowLayout, SqlError, SqlState, SqlType, Value};

use super::accounts::AccountOp;
use super::change::CatalogOp;
use super::definition::{
    COLUMNS_MAX, ColumnDef, DefaultExpr, INDEX_COLUMNS_MAX, Identity, IndexDef, IndexMethod, SequenceDef,
    SequenceId, SequenceState, TableDef,
};
use super::procedure::{ProcedureId, procedure, put_procedure};
use super::view::{ViewId, put_view, view};
use super::{Catalog, Relation};
use super::{comment, constraint, distribution};

const DEFINITIONS_SEED: u64 = 0x7765_6674_6361_7461;
const LAYOUTS_SEED: u64 = 0x7765_6674_6c61_796f;
const SEQUENCE_SEED: u64 = 0x7765_6674_7365_7175;

/// Tags of the sections that follow the sequences of a catalog, if they are not empty.
pub(super) const SECTION_PROCEDURES: u8 = 1;
pub(super) const SECTION_DISTRIBUTIONS: u8 = 2;
pub(super) const SECTION_CONSTRAINTS: u8 = 3;
const SECTION_EARLIER: u8 = 4;
pub(super) const SECTION_ACCOUNTS: u8 = 5;
pub(super) const SECTION_VIEWS: u8 = 6;
pub(super) const SECTION_COMMENTS: u8 = 10;

type Reader<'a> = ByteReader<'a>;
type Decoded<T> = Result<T, CodecError>;

pub(super) fn invalid(what: &'static str) -> CodecError {
    CodecError::new(0, what)
}

/// One sequence's term of the state digest.
pub(super) fn sequence_term(id: SequenceId, state: SequenceState) -> u64 {
    let mut bytes = Vec::with_capacity(16);
    bytes.put_u32(id.0);
    put_state(&mut bytes, state);
    mix64(hash64_seeded(&bytes, SEQUENCE_SEED))
}

/// The term of everything but sequence positions and earlier layouts.
pub(super) fn definitions_digest(catalog: &Catalog) -> u64 {
    let mut bytes = Vec::new();
    put_definitions(&mut bytes, catalog);
    catalog.encode_procedures(&mut bytes);
    catalog.encode_distributions(&mut bytes);
    catalog.encode_constraints(&mut bytes);
    catalog.encode_accounts(&mut bytes);
    catalog.encode_views(&mut bytes);
    catalog.encode_comments(&mut bytes);
    mix64(hash64_seeded(&bytes, DEFINITIONS_SEED))
}

/// The term of earlier layouts; 0 if there are none.
pub(super) fn layouts_digest(catalog: &Catalog) -> u64 {
    let mut bytes = Vec::new();
    catalog.encode_earlier(&mut bytes);
    match bytes.is_empty() {
        true => 0,
        false => mix64(hash64_seeded(&bytes, LAYOUTS_SEED)),
    }
}

/// The value given to existing rows must fit the new column.
pub(super) fn check_fill(column: &ColumnDef, fill: &Value) -> Result<(), SqlError> {
    if matches!(fill, Value::Null) {
        return Ok(());
    }
    RowLayout::new(std::slice::from_ref(&column.ty))
        .encode(std::slice::from_ref(fill))
        .map(|_| ())
        .map_err(|_| {
            SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "column \"{}\" is of type {} but the value is not",
                    column.name,
                    column.ty.name()
                ),
            )
        })
}

impl Catalog {
    /// Appends the whole catalog: version, id counter, definitions, sequence positions.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.version.0);
        out.put_u32(self.next_object_id);
        put_definitions(out, self);
        out.put_varint(self.sequence_states.len() as u64);
        for (id, state) in self.sequence_states.iter() {
            out.put_u32(id.0);
            put_state(out, *state);
        }
        self.encode_procedures(out);
        self.encode_distributions(out);
        self.encode_constraints(out);
        self.encode_earlier(out);
        self.encode_accounts(out);
        self.encode_views(out);
        self.encode_comments(out);
    }

    /// Reads what [`Catalog::encode`] wrote. Names and ids are checked as if the objects were created anew.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Catalog, CodecError> {
        let version = CatalogVersion(reader.u64()?);
        let next_object_id = reader.u32()?;
        let mut catalog = Catalog::new();
        for _ in 0..count(reader, usize::MAX)? {
            let table = table(reader)?;
            catalog.install_table(table)?;
        }
        for _ in 0..count(reader, usize::MAX)? {
            let sequence = sequence(reader)?;
            catalog.install_sequence(sequence)?;
        }
        let states = count(reader, usize::MAX)?;
        if states != catalog.definitions.sequences.len() {
            return Err(invalid("sequence states"));
        }
        for _ in 0..states {
            let id = SequenceId(reader.u32()?);
            let state = state(reader)?;
            match Arc::make_mut(&mut catalog.sequence_states).get_mut(&id) {
                Some(place) => *place = state,
                None => return Err(invalid("sequence state without sequence")),
            }
        }
        catalog.decode_sections(reader)?;
        catalog.version = version;
        catalog.next_object_id = next_object_id;
        if version.0 > 0 {
            catalog.renew_digests();
        }
        Ok(catalog)
    }

    /// Appends the section of earlier layouts, if a table has some.
    fn encode_earlier(&self, out: &mut Vec<u8>) {
        let tables = || {
            self.definitions
                .tables
                .values()
                .filter(|table| table.has_earlier())
        };
        let count = tables().count();
        if count == 0 {
            return;
        }
        out.put_u8(SECTION_EARLIER);
        out.put_varint(count as u64);
        for table in tables() {
            out.put_u32(table.id.0);
            table.put_earlier(out);
        }
    }

    fn decode_earlier(&mut self, reader: &mut Reader<'_>) -> Decoded<()> {
        for _ in 0..count(reader, usize::MAX)? {
            let id = TableId(reader.u32()?);
            let tables = &mut Arc::make_mut(&mut self.definitions).tables;
            let found = tables.get(&id).filter(|table| !table.has_earlier());
            let mut table = TableDef::clone(found.ok_or_else(|| invalid("earlier layouts of no table"))?);
            table.read_earlier(reader)?;
            if !table.has_earlier() {
                return Err(invalid("an empty list of earlier layouts"));
            }
            tables.insert(id, Arc::new(table));
        }
        Ok(())
    }

    /// What follows the sequences: each section at most once, in the order of their tags.
    fn decode_sections(&mut self, reader: &mut Reader<'_>) -> Decoded<()> {
        let mut before = 0;
        while reader.remaining() > 0 {
            let tag = reader.u8()?;
            match tag {
                _ if tag <= before => return Err(invalid("sections out of order")),
                SECTION_PROCEDURES => self.decode_procedures(reader)?,
                SECTION_DISTRIBUTIONS => self.decode_distributions(reader)?,
                SECTION_CONSTRAINTS => self.decode_constraints(reader)?,
                SECTION_EARLIER => self.decode_earlier(reader)?,
                SECTION_ACCOUNTS => self.decode_accounts(reader)?,
                SECTION_VIEWS => self.decode_views(reader)?,
                SECTION_COMMENTS => self.decode_comments(reader)?,
                _ => return Err(invalid("unknown section")),
            }
            before = tag;
        }
        Ok(())
    }

    fn install_table(&mut self, table: TableDef) -> Decoded<()> {
        let definitions = Arc::make_mut(&mut self.definitions);
        let mut fresh = definitions
            .names
            .insert(table.name.clone(), Relation::Table(table.id))
            .is_none();
        for index in &table.indexes {
            let relation = Relation::Index(index.id, table.id);
            fresh &= definitions.names.insert(index.name.clone(), relation).is_none();
            fresh &= definitions.index_tables.insert(index.id, table.id).is_none();
            fresh &=
                index.columns.iter().all(|column| *column < table.columns.len()) && index.table == table.id;
        }
        let primary = table
            .indexes
            .iter()
            .filter(|index| index.primary)
            .map(|index| index.id);
        fresh &= primary.eq(table.primary_key);
        fresh &= definitions.tables.insert(table.id, Arc::new(table)).is_none();
        if fresh {
            Ok(())
        } else {
            Err(invalid("table definition"))
        }
    }

    fn install_sequence(&mut self, sequence: SequenceDef) -> Decoded<()> {
        let definitions = Arc::make_mut(&mut self.definitions);
        let name = sequence.name.clone();
        let mut fresh = definitions
            .names
            .insert(name, Relation::Sequence(sequence.id))
            .is_none();
        Arc::make_mut(&mut self.sequence_states).insert(sequence.id, sequence.initial_state());
        fresh &= definitions
            .sequences
            .insert(sequence.id, Arc::new(sequence))
            .is_none();
        if fresh {
            Ok(())
        } else {
            Err(invalid("sequence definition"))
        }
    }
}

impl CatalogOp {
    /// Appends the operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            CatalogOp::CreateTable(def) => put_with(out, 1, def, put_table),
            CatalogOp::DropTable(id) => put_tagged(out, 2, id.0),
            CatalogOp::CreateIndex(def) => put_with(out, 3, def, put_index),
            CatalogOp::DropIndex(id) => put_tagged(out, 4, id.0),
            CatalogOp::AddPrimaryKey(def) => put_with(out, 5, def, put_index),
            CatalogOp::SetNotNull {
                table,
                column,
                not_null,
            } => {
                put_of_column(out, 6, *table, *column);
                out.put_u8(u8::from(*not_null));
            }
            CatalogOp::SetDefault {
                table,
                column,
                default,
            } => {
                put_of_column(out, 7, *table, *column);
                put_default(out, default.as_ref());
            }
            CatalogOp::AddColumn { table, column, fill } => {
                put_tagged(out, 8, table.0);
                put_column(out, column);
                put_fill(out, &column.ty, fill);
            }
            CatalogOp::DropColumn { table, column } => put_of_column(out, 9, *table, *column),
            CatalogOp::RenameTable { table, name } => {
                put_tagged(out, 10, table.0);
                put_text(out, name);
            }
            CatalogOp::RenameColumn { table, column, name } => {
                put_of_column(out, 11, *table, *column);
                put_text(out, name);
            }
            CatalogOp::RenameIndex { index, name } => {
                put_tagged(out, 12, index.0);
                put_text(out, name);
            }
            CatalogOp::Truncate(id) => put_tagged(out, 13, id.0),
            CatalogOp::CreateSequence(def) => put_with(out, 14, def, put_sequence),
            CatalogOp::DropSequence(id) => put_tagged(out, 15, id.0),
            CatalogOp::AdvanceSequence { id, to } => {
                put_tagged(out, 16, id.0);
                out.put_i64(*to);
            }
            CatalogOp::SetSequence { id, state } => {
                put_tagged(out, 17, id.0);
                put_state(out, *state);
            }
            CatalogOp::PutProcedure(def) => put_with(out, 18, def, put_procedure),
            CatalogOp::DropProcedure(id) => put_tagged(out, 19, id.0),
            CatalogOp::SetDistribution { table, distribution } => {
                out.put_u8(20);
                distribution::put(out, *table, *distribution);
            }
            CatalogOp::PutConstraint(def) => put_with(out, 21, def, constraint::put),
            CatalogOp::SetSequenceOwner { id, owner } => {
                put_tagged(out, 23, id.0);
                put_owner(out, *owner);
            }
            CatalogOp::SetColumnType { table, column, ty } => {
                put_of_column(out, 24, *table, *column);
                put_type(out, ty);
            }
            CatalogOp::DropConstraint { table, constraint } => {
                put_tagged(out, 22, table.0);
                out.put_u32(constraint.0);
            }
            CatalogOp::Account(op) => op.encode(25, out),
            CatalogOp::PutView(def) => put_with(out, 26, def, put_view),
            CatalogOp::DropView(id) => put_tagged(out, 27, id.0),
            CatalogOp::RetypeColumn { table, column, ty } => {
                put_of_column(out, 28, *table, *column);
                put_type(out, ty);
            }
            CatalogOp::SetIdentity {
                table,
                column,
                identity,
            } => {
                put_of_column(out, 31, *table, *column);
                put_identity(out, *identity);
            }
            CatalogOp::Comment { on, text } => {
                out.put_u8(30);
                comment::put(out, *on, text.as_deref());
            }
        }
    }

    /// Reads what [`CatalogOp::encode`] wrote.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<CatalogOp, CodecError> {
        let table_id = |reader: &mut Reader<'_>| reader.u32().map(TableId);
        Ok(match reader.u8()? {
            1 => CatalogOp::CreateTable(table(reader)?),
            2 => CatalogOp::DropTable(table_id(reader)?),
            3 => CatalogOp::CreateIndex(index(reader)?),
            4 => CatalogOp::DropIndex(IndexId(reader.u32()?)),
            5 => CatalogOp::AddPrimaryKey(index(reader)?),
            6 => CatalogOp::SetNotNull {
                table: table_id(reader)?,
                column: reader.u32()?,
                not_null: flag(reader)?,
            },
            7 => CatalogOp::SetDefault {
                table: table_id(reader)?,
                column: reader.u32()?,
                default: default(reader)?,
            },
            8 => {
                let table = table_id(reader)?;
                let column = column(reader)?;
                let fill = fill(reader, &column.ty)?;
                CatalogOp::AddColumn { table, column, fill }
            }
            9 => CatalogOp::DropColumn {
                table: table_id(reader)?,
                column: reader.u32()?,
            },
            10 => CatalogOp::RenameTable {
                table: table_id(reader)?,
                name: text(reader)?,
            },
            11 => CatalogOp::RenameColumn {
                table: table_id(reader)?,
                column: reader.u32()?,
                name: text(reader)?,
            },
            12 => CatalogOp::RenameIndex {
                index: IndexId(reader.u32()?),
                name: text(reader)?,
            },
            13 => CatalogOp::Truncate(table_id(reader)?),
            14 => CatalogOp::CreateSequence(sequence(reader)?),
            15 => CatalogOp::DropSequence(SequenceId(reader.u32()?)),
            16 => CatalogOp::AdvanceSequence {
                id: SequenceId(reader.u32()?),
                to: reader.i64()?,
            },
            17 => CatalogOp::SetSequence {
                id: SequenceId(reader.u32()?),
                state: state(reader)?,
            },
            18 => CatalogOp::PutProcedure(procedure(reader)?),
            19 => CatalogOp::DropProcedure(ProcedureId(reader.u32()?)),
            20 => {
                let (table, distribution) = distribution::read(reader)?;
                CatalogOp::SetDistribution { table, distribution }
            }
            21 => CatalogOp::PutConstraint(constraint::read(reader)?),
            23 => CatalogOp::SetSequenceOwner {
                id: SequenceId(reader.u32()?),
                owner: owner(reader)?,
            },
            24 => CatalogOp::SetColumnType {
                table: table_id(reader)?,
                column: reader.u32()?,
                ty: sql_type(reader)?,
            },
            22 => CatalogOp::DropConstraint {
                table: table_id(reader)?,
                constraint: constraint::ConstraintId(reader.u32()?),
            },
            25 => CatalogOp::Account(AccountOp::decode(reader)?),
            26 => CatalogOp::PutView(view(reader)?),
            27 => CatalogOp::DropView(ViewId(reader.u32()?)),
            28 => CatalogOp::RetypeColumn {
                table: table_id(reader)?,
                column: reader.u32()?,
                ty: sql_type(reader)?,
            },
            30 => comment::read(reader)?,
            31 => CatalogOp::SetIdentity {
                table: table_id(reader)?,
                column: reader.u32()?,
                identity: identity(reader)?,
            },
            _ => return Err(invalid("catalog operation tag")),
        })
    }
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, id: u32) {
    out.put_u8(tag);
    out.put_u32(id);
}

fn put_with<T>(out: &mut Vec<u8>, tag: u8, what: &T, put: impl FnOnce(&mut Vec<u8>, &T)) {
    out.put_u8(tag);
    put(out, what);
}

fn put_of_column(out: &mut Vec<u8>, tag: u8, table: TableId, column: u32) {
    put_tagged(out, tag, table.0);
    out.put_u32(column);
}

fn put_definitions(out: &mut Vec<u8>, catalog: &Catalog) {
    let definitions = &catalog.definitions;
    out.put_varint(definitions.tables.values().count() as u64);
    for table in definitions.tables.values() {
        put_table(out, table);
    }
    out.put_varint(definitions.sequences.len() as u64);
    for sequence in definitions.sequences.values() {
        put_sequence(out, sequence);
    }
}

/// A count of things that take at least a byte each.
pub(super) fn count(reader: &mut Reader<'_>, most: usize) -> Decoded<usize> {
    let count = reader.varint()?;
    match usize::try_from(count) {
        Ok(count) if count <= most && count <= reader.remaining() => Ok(count),
        _ => Err(invalid("count")),
    }
}

pub(super) fn flag(reader: &mut Reader<'_>) -> Decoded<bool> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(invalid("flag")),
    }
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.put_len_prefixed(text.as_bytes());
}

pub(super) fn text(reader: &mut Reader<'_>) -> Decoded<String> {
    String::from_utf8(reader.len_prefixed()?.to_vec()).map_err(|_| invalid("text"))
}

pub(super) fn put_type(out: &mut Vec<u8>, ty: &SqlType) {
    match ty {
        SqlType::Bool => out.put_u8(1),
        SqlType::Int2 => out.put_u8(2),
        SqlType::Int4 => out.put_u8(3),
        SqlType::Int8 => out.put_u8(4),
        SqlType::Float4 => out.put_u8(5),
        SqlType::Float8 => out.put_u8(6),
        SqlType::Numeric(None) => out.put_u8(7),
        SqlType::Numeric(Some(spec)) => {
            out.put_u8(8);
            out.put_u16(spec.precision);
            out.put_u16(spec.scale as u16);
        }
        SqlType::Text => out.put_u8(9),
        SqlType::Varchar(None) => out.put_u8(10),
        SqlType::Varchar(Some(length)) => put_tagged(out, 11, *length),
        SqlType::Char(length) => put_tagged(out, 12, *length),
        SqlType::Bytea => out.put_u8(13),
        SqlType::Date => out.put_u8(14),
        SqlType::Timestamp => out.put_u8(15),
        SqlType::TimestampTz => out.put_u8(16),
        SqlType::Uuid => out.put_u8(17),
        SqlType::Time => out.put_u8(18),
        SqlType::Interval => out.put_u8(19),
        // The others by their oids.
        SqlType::Oid
        | SqlType::Name
        | SqlType::InternalChar
        | SqlType::Regclass
        | SqlType::Regtype
        | SqlType::Regproc
        | SqlType::Regnamespace
        | SqlType::Json
        | SqlType::Jsonb
        | SqlType::Array(_)
        | SqlType::Record
        | SqlType::Void => put_tagged(out, 20, ty.oid()),
    }
}

pub(super) fn sql_type(reader: &mut Reader<'_>) -> Decoded<SqlType> {
    let ty = match reader.u8()? {
        1 => SqlType::Bool,
        2 => SqlType::Int2,
        3 => SqlType::Int4,
        4 => SqlType::Int8,
        5 => SqlType::Float4,
        6 => SqlType::Float8,
        7 => SqlType::Numeric(None),
        8 => SqlType::Numeric(Some(NumericSpec {
            precision: reader.u16()?,
            scale: reader.u16()? as i16,
        })),
        9 => SqlType::Text,
        10 => SqlType::Varchar(None),
        11 => SqlType::Varchar(Some(reader.u32()?)),
        12 => SqlType::Char(reader.u32()?),
        13 => SqlType::Bytea,
        14 => SqlType::Date,
        15 => SqlType::Timestamp,
        16 => SqlType::TimestampTz,
        17 => SqlType::Uuid,
        18 => SqlType::Time,
        19 => SqlType::Interval,
        20 => SqlType::from_oid(reader.u32()?).ok_or_else(|| invalid("type oid"))?,
        _ => return Err(invalid("type tag")),
    };
    let is_valid = match ty {
        SqlType::Numeric(Some(spec)) => spec.is_valid(),
        SqlType::Varchar(Some(length)) => (1..=CHARACTERS_MAX).contains(&length),
        SqlType::Char(length) => length <= CHARACTERS_MAX,
        _ => true,
    };
    if is_valid {
        Ok(ty)
    } else {
        Err(invalid("type modifier"))
    }
}

fn put_default(out: &mut Vec<u8>, default: Option<&DefaultExpr>) {
    out.put_u8(u8::from(default.is_some()));
    if let Some(default) = default {
        put_text(out, &default.sql);
    }
}

fn default(reader: &mut Reader<'_>) -> Decoded<Option<DefaultExpr>> {
    Ok(if flag(reader)? {
        Some(DefaultExpr { sql: text(reader)? })
    } else {
        None
    })
}

fn put_column(out: &mut Vec<u8>, column: &ColumnDef) {
    put_text(out, &column.name);
    put_type(out, &column.ty);
    out.put_u8(u8::from(column.not_null));
    put_default(out, column.default.as_ref());
    put_identity(out, column.identity);
}

fn put_identity(out: &mut Vec<u8>, identity: Option<Identity>) {
    out.put_u8(u8::from(identity.is_some()));
    if let Some(identity) = identity {
        out.put_u8(u8::from(identity.always));
        out.put_u32(identity.sequence.0);
    }
}

fn identity(reader: &mut Reader<'_>) -> Decoded<Option<Identity>> {
    Ok(if flag(reader)? {
        Some(Identity {
            always: flag(reader)?,
            sequence: SequenceId(reader.u32()?),
        })
    } else {
        None
    })
}

fn column(reader: &mut Reader<'_>) -> Decoded<ColumnDef> {
    let name = text(reader)?;
    let ty = sql_type(reader)?;
    let not_null = flag(reader)?;
    let default = default(reader)?;
    let identity = identity(reader)?;
    Ok(ColumnDef {
        name,
        ty,
        not_null,
        default,
        identity,
    })
}

pub(super) fn put_fill(out: &mut Vec<u8>, ty: &SqlType, fill: &Value) {
    // A fill that does not fit the type is refused when the operation is applied; it travels as NULL.
    let row = RowLayout::new(std::slice::from_ref(ty)).encode(std::slice::from_ref(fill));
    out.put_len_prefixed(&row.unwrap_or_default());
}

pub(super) fn fill(reader: &mut Reader<'_>, ty: &SqlType) -> Decoded<Value> {
    let bytes = reader.len_prefixed()?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let layout = RowLayout::new(std::slice::from_ref(ty));
    layout.validate(bytes)?;
    layout.decode(bytes)?.pop().ok_or_else(|| invalid("fill"))
}

fn put_index(out: &mut Vec<u8>, index: &IndexDef) {
    out.put_u32(index.id.0);
    put_text(out, &index.name);
    out.put_u32(index.table.0);
    out.put_varint(index.columns.len() as u64);
    for column in &index.columns {
        out.put_varint(*column as u64);
    }
    out.put_u8(u8::from(index.unique));
    out.put_u8(u8::from(index.primary));
    out.put_u8(match index.method {
        IndexMethod::Hash => 1,
        IndexMethod::Ordered => 2,
        IndexMethod::Both => 3,
    });
}

fn index(reader: &mut Reader<'_>) -> Decoded<IndexDef> {
    let id = IndexId(reader.u32()?);
    let name = text(reader)?;
    let table = TableId(reader.u32()?);
    let mut columns = Vec::new();
    for _ in 0..count(reader, INDEX_COLUMNS_MAX)? {
        let column = usize::try_from(reader.varint()?).map_err(|_| invalid("index column"))?;
        if column >= COLUMNS_MAX {
            return Err(invalid("index column"));
        }
        columns.push(column);
    }
    let unique = flag(reader)?;
    let primary = flag(reader)?;
    let method = match reader.u8()? {
        1 => IndexMethod::Hash,
        2 => IndexMethod::Ordered,
        3 => IndexMethod::Both,
        _ => return Err(invalid("index method")),
    };
    Ok(IndexDef {
        id,
        name,
        table,
        columns,
        unique,
        primary,
        method,
    })
}

fn put_table(out: &mut Vec<u8>, table: &TableDef) {
    out.put_u32(table.id.0);
    put_text(out, &table.name);
    out.put_varint(table.columns.len() as u64);
    for column in &table.columns {
        put_column(out, column);
    }
    out.put_varint(table.indexes.len() as u64);
    for index in &table.indexes {
        put_index(out, index);
    }
}

fn table(reader: &mut Reader<'_>) -> Decoded<TableDef> {
    let id = TableId(reader.u32()?);
    let name = text(reader)?;
    let mut columns = Vec::new();
    for _ in 0..count(reader, COLUMNS_MAX)? {
        columns.push(column(reader)?);
    }
    let mut def = TableDef::new(id, name, columns);
    for _ in 0..count(reader, usize::MAX)? {
        def.push_index(Arc::new(index(reader)?));
    }
    Ok(def)
}

fn put_sequence(out: &mut Vec<u8>, sequence: &SequenceDef) {
    out.put_u32(sequence.id.0);
    put_text(out, &sequence.name);
    put_type(out, &sequence.ty);
    for number in [
        sequence.start,
        sequence.increment,
        sequence.min_value,
        sequence.max_value,
    ] {
        out.put_i64(number);
    }
    out.put_u8(u8::from(sequence.cycle));
    put_owner(out, sequence.owned_by);
}

fn put_owner(out: &mut Vec<u8>, owner: Option<(TableId, u32)>) {
    out.put_u8(u8::from(owner.is_some()));
    if let Some((table, column)) = owner {
        out.put_u32(table.0);
        out.put_u32(column);
    }
}

fn owner(reader: &mut Reader<'_>) -> Decoded<Option<(TableId, u32)>> {
    Ok(if flag(reader)? {
        Some((TableId(reader.u32()?), reader.u32()?))
    } else {
        None
    })
}

fn sequence(reader: &mut Reader<'_>) -> Decoded<SequenceDef> {
    Ok(SequenceDef {
        id: SequenceId(reader.u32()?),
        name: text(reader)?,
        ty: sql_type(reader)?,
        start: reader.i64()?,
        increment: reader.i64()?,
        min_value: reader.i64()?,
        max_value: reader.i64()?,
        cycle: flag(reader)?,
        owned_by: owner(reader)?,
    })
}

fn put_state(out: &mut Vec<u8>, state: SequenceState) {
    out.put_i64(state.last_value);
    out.put_u8(u8::from(state.is_called));
}

fn state(reader: &mut Reader<'_>) -> Decoded<SequenceState> {
    Ok(SequenceState {
        last_value: reader.i64()?,
        is_called: flag(reader)?,
    })
}
