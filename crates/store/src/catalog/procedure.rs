//! Procedures: name, parameters and body, and how they lie in a catalog's bytes.
//!
//! The catalog keeps the text of a body; `sql` compiles it to a program for each catalog version. Procedures
//! have a name space of their own (a table may share a procedure's name) but draw ids from the counter of
//! tables and indexes. There is one procedure of a name: PostgreSQL's overloads do not exist here.
//!
//! In an encoded catalog procedures are the last section, left out when there are none, so that a catalog
//! without procedures has the bytes it had before procedures existed. The section begins with its own format
//! number.

use std::sync::Arc;

use weft_base::{ByteReader, ByteWriter, CodecError};
use weft_types::{SqlError, SqlState, SqlType};

use super::Catalog;
use super::codec::{SECTION_PROCEDURES, count, invalid, put_text, put_type, sql_type, text};

/// Most parameters of a procedure, as in PostgreSQL.
pub const PROCEDURE_PARAMS_MAX: usize = 100;

/// Refuses more than [`PROCEDURE_PARAMS_MAX`] with 54023.
///
/// # Errors
/// As said.
pub fn refuse_many_params(count: usize) -> Result<(), SqlError> {
    match count <= PROCEDURE_PARAMS_MAX {
        true => Ok(()),
        false => Err(SqlError::new(
            SqlState::TOO_MANY_ARGUMENTS,
            format!("procedures cannot have more than {PROCEDURE_PARAMS_MAX} arguments"),
        )),
    }
}

/// Names a procedure for ever; same number space as tables and indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcedureId(pub u32);

/// Which way a parameter's value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamMode {
    /// From the caller.
    In,
    /// To the caller.
    Out,
    /// Both.
    InOut,
}

impl ParamMode {
    /// The caller's value matters.
    pub fn is_input(self) -> bool {
        !matches!(self, ParamMode::Out)
    }

    /// The caller gets a value.
    pub fn is_output(self) -> bool {
        !matches!(self, ParamMode::In)
    }
}

/// The language that a body is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcedureLanguage {
    /// A list of statements.
    Sql,
    /// PL/pgSQL.
    PlPgSql,
}

impl ProcedureLanguage {
    /// As `LANGUAGE` names it.
    pub fn name(self) -> &'static str {
        match self {
            ProcedureLanguage::Sql => "sql",
            ProcedureLanguage::PlPgSql => "plpgsql",
        }
    }
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcedureParam {
    /// Lower case unless it was quoted; empty for one without a name.
    pub name: String,
    /// Direction.
    pub mode: ParamMode,
    /// Type, without modifiers.
    pub ty: SqlType,
}

/// One procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcedureDef {
    /// Permanent id.
    pub id: ProcedureId,
    /// Lower case unless it was quoted. All procedures live in the schema `public`.
    pub name: String,
    /// In the order of the declaration.
    pub params: Vec<ProcedureParam>,
    /// Language of `body`.
    pub language: ProcedureLanguage,
    /// The text between the quotes.
    pub body: String,
}

impl ProcedureDef {
    /// Name and types of parameters, as messages show it: `transfer(integer,integer)`.
    pub fn signature(&self) -> String {
        let types: Vec<String> = self.params.iter().map(|param| param.ty.name()).collect();
        format!("{}({})", self.name, types.join(","))
    }
}

impl ProcedureDef {
    /// Whether a statement that names these parameters means this procedure: all of them, or its inputs.
    pub fn takes(&self, params: &[ProcedureParam]) -> bool {
        let given = || params.iter().map(|param| param.ty);
        let inputs = self.params.iter().filter(|param| param.mode.is_input());
        let only_inputs = params.iter().all(|param| param.mode.is_input());
        self.params.iter().map(|param| param.ty).eq(given())
            || only_inputs && inputs.map(|param| param.ty).eq(given())
    }
}

impl Catalog {
    /// A procedure by its name.
    pub fn procedure(&self, name: &str) -> Option<&Arc<ProcedureDef>> {
        self.definitions.procedures.get(name)
    }

    /// A procedure by its id.
    pub fn procedure_by_id(&self, id: ProcedureId) -> Option<&Arc<ProcedureDef>> {
        self.procedures().find(|procedure| procedure.id == id)
    }

    /// All procedures, by name.
    pub fn procedures(&self) -> impl Iterator<Item = &Arc<ProcedureDef>> {
        self.definitions.procedures.values()
    }

    /// A new procedure, or another body for one that is there under the same id.
    pub(super) fn put_procedure(&mut self, procedure: &ProcedureDef) -> Result<(), SqlError> {
        if procedure.name.is_empty() {
            return Err(SqlError::new(
                SqlState::INVALID_NAME,
                "zero-length procedure name",
            ));
        }
        refuse_many_params(procedure.params.len())?;
        let known = self.procedure(&procedure.name).map(|known| known.id);
        match known {
            Some(id) if id == procedure.id => {}
            Some(_) => {
                return Err(SqlError::new(
                    SqlState("42723"),
                    format!(
                        "function \"{}\" already exists with same argument types",
                        procedure.name
                    ),
                ));
            }
            None => self.take_id(procedure.id.0)?,
        }
        self.definitions_mut()
            .procedures
            .insert(procedure.name.clone(), Arc::new(procedure.clone()));
        Ok(())
    }

    pub(super) fn drop_procedure(&mut self, id: ProcedureId) -> Result<(), SqlError> {
        let name = self
            .procedures()
            .find(|procedure| procedure.id == id)
            .map(|procedure| procedure.name.clone());
        let Some(name) = name else {
            return Err(SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("procedure with OID {} does not exist", id.0),
            ));
        };
        self.definitions_mut().procedures.remove(&name);
        Ok(())
    }

    /// Appends the section; nothing when there are no procedures.
    pub(super) fn encode_procedures(&self, out: &mut Vec<u8>) {
        if self.definitions.procedures.is_empty() {
            return;
        }
        out.put_u8(SECTION_PROCEDURES);
        out.put_varint(self.definitions.procedures.len() as u64);
        for procedure in self.procedures() {
            put_procedure(out, procedure);
        }
    }

    /// Reads the section behind its tag.
    pub(super) fn decode_procedures(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CodecError> {
        let procedures = count(reader, usize::MAX)?;
        if procedures == 0 {
            return Err(invalid("an empty list of procedures"));
        }
        for _ in 0..procedures {
            let procedure = procedure(reader)?;
            let after = self
                .procedures()
                .last()
                .is_none_or(|last| last.name < procedure.name);
            if !after {
                return Err(invalid("procedures out of order"));
            }
            self.definitions_mut()
                .procedures
                .insert(procedure.name.clone(), Arc::new(procedure));
        }
        Ok(())
    }
}

/// Appends one definition.
pub(super) fn put_procedure(out: &mut Vec<u8>, procedure: &ProcedureDef) {
    out.put_u32(procedure.id.0);
    put_text(out, &procedure.name);
    out.put_varint(procedure.params.len() as u64);
    for param in &procedure.params {
        put_text(out, &param.name);
        out.put_u8(match param.mode {
            ParamMode::In => 1,
            ParamMode::Out => 2,
            ParamMode::InOut => 3,
        });
        put_type(out, &param.ty);
    }
    out.put_u8(match procedure.language {
        ProcedureLanguage::Sql => 1,
        ProcedureLanguage::PlPgSql => 2,
    });
    put_text(out, &procedure.body);
}

/// Reads one definition.
pub(super) fn procedure(reader: &mut ByteReader<'_>) -> Result<ProcedureDef, CodecError> {
    let id = ProcedureId(reader.u32()?);
    let name = text(reader)?;
    let mut params = Vec::new();
    for _ in 0..count(reader, PROCEDURE_PARAMS_MAX)? {
        let name = text(reader)?;
        let mode = match reader.u8()? {
            1 => ParamMode::In,
            2 => ParamMode::Out,
            3 => ParamMode::InOut,
            _ => return Err(invalid("parameter mode")),
        };
        let ty = sql_type(reader)?;
        params.push(ProcedureParam { name, mode, ty });
    }
    let language = match reader.u8()? {
        1 => ProcedureLanguage::Sql,
        2 => ProcedureLanguage::PlPgSql,
        _ => return Err(invalid("procedure language")),
    };
    Ok(ProcedureDef {
        id,
        name,
        params,
        language,
        body: text(reader)?,
    })
}
