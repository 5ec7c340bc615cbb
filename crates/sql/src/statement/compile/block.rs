//! The block of a procedure: the storage of its variables, and the code that reads and sets them.
//!
//! A variable whose type fits into 64 bits has its own register. All others (texts, numerics, bytea, uuid)
//! are columns of the workspace ([`super::workspace`]).
//!
//! Outside of procedures, everything that does not depend on a row is computed when inputs are bound.
//! Inside, only what cannot fail is: `IF b <> 0 THEN q := a / b` must not divide before the check. So
//! arithmetic, comparisons and conversions become instructions. A key made by such an expression is
//! declared with its value, or NULL if computing it fails, and computed again by the program.

use weft_program::instr::{COLLECT_REGISTERS, REGISTERS};
use weft_program::{Class, Cond, ErrorField, KeyBuf, KeyPart, Op, Reg};
use weft_types::{SqlType, Value};

use super::super::bind::Refusal;
use super::super::scalar::Scalar;
use super::super::type_rules::{base_type, integer_width, is_integer};
use super::code::Coder;

type Coded<T> = Result<T, Refusal>;

const _: () = assert!(REGISTERS >= 32 && COLLECT_REGISTERS >= 8);

/// The storage of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A register.
    Register(Reg),
    /// A column of the workspace.
    Workspace(u16),
}

/// One variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// The name, for listings.
    pub(crate) name: String,
    /// Declared type.
    pub(crate) ty: SqlType,
    pub(crate) place: Place,
    /// Whether its storage was reused.
    released: bool,
}

/// The state of a procedure in addition to a statement's.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) variables: Vec<Variable>,
    /// The register of FOUND, if the procedure uses it.
    pub(crate) found: Option<Reg>,
    /// The register of ROW_COUNT, if the procedure uses it.
    pub(crate) row_count: Option<Reg>,
    /// Loops around the statement being compiled: volatile values cannot be inputs there.
    pub(crate) loops: usize,
    /// Blocks with handlers around the statement being compiled: values that the session may refuse cannot
    /// be inputs there, because no handler would catch the error.
    pub(crate) protected: usize,
    /// Remarks about instructions, by number.
    pub(crate) remarks: Vec<(u32, String)>,
}

/// How a value gets into a key, and what may be declared of it in advance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySource {
    /// The value as an input or constant, known before the program runs.
    pub(crate) declared: Option<KeyPart>,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Part(KeyPart),
    Register(Reg, Class),
    Workspace(u16),
}

impl KeySource {
    /// An input or a constant.
    pub(crate) fn part(part: KeyPart) -> KeySource {
        KeySource {
            declared: Some(part),
            how: How::Part(part),
        }
    }
}

/// Whether a value is computed by instructions that may fail, so that a procedure must not compute it
/// before it is reached.
fn is_computed(scalar: &Scalar) -> bool {
    match scalar {
        Scalar::Arithmetic(..)
        | Scalar::Negate(_)
        | Scalar::Compare(..)
        | Scalar::And(..)
        | Scalar::Or(..)
        | Scalar::Not(_)
        | Scalar::IsNull(_)
        | Scalar::Case { .. }
        | Scalar::Extreme { .. }
        | Scalar::Coalesce(_) => true,
        Scalar::Call(function, arguments) => function.may_fail() || arguments.iter().any(is_computed),
        Scalar::Concat(left, right) | Scalar::Left(left, right) => is_computed(left) || is_computed(right),
        Scalar::Cast(inner, from, to) | Scalar::Assign(inner, from, to) => {
            let register = |ty| Class::of(ty).is_register();
            // Conversion to text cannot fail; other types convert without failure only within their class.
            let shows = Class::of(to) == Class::Text && to.typmod() == -1;
            // A length or precision is checked.
            let is_checked = from != to && to.typmod() != -1;
            register(from) && register(to)
                || !shows && Class::of(from) != Class::of(to)
                || is_checked
                || is_computed(inner)
        }
        _ => false,
    }
}

/// Whether computing it may fail.
pub(crate) fn may_fail(scalar: &Scalar) -> bool {
    let mut found = false;
    scalar.visit(&mut |node| {
        found |= match node {
            Scalar::Arithmetic(..) | Scalar::Negate(_) => true,
            Scalar::Call(function, _) => function.may_fail(),
            Scalar::Cast(_, from, to) | Scalar::Assign(_, from, to) => {
                let widens = is_integer(from) && is_integer(to) && integer_width(from) <= integer_width(to);
                from != to && !widens
            }
            _ => false,
        }
    });
    found
}

impl Coder {
    /// Whether a scalar becomes an input or a constant, rather than code.
    pub(super) fn hoists(&self, scalar: &Scalar) -> bool {
        !scalar.is_dynamic() && (self.block.is_none() || !is_computed(scalar))
    }

    pub(crate) fn variable(&self, number: u16) -> Coded<&Variable> {
        self.block
            .as_ref()
            .and_then(|block| block.variables.get(usize::from(number)))
            .ok_or(Refusal::General)
    }

    pub(crate) fn variable_register(&self, number: u16) -> Coded<Reg> {
        match self.variable(number)?.place {
            Place::Register(register) => Ok(register),
            Place::Workspace(_) => Err(Refusal::General),
        }
    }

    fn block(&mut self) -> Coded<&mut Block> {
        self.block.as_mut().ok_or(Refusal::General)
    }

    /// Adds a variable, NULL until it is set; its storage may still hold an old value.
    pub(crate) fn add_variable(&mut self, name: &str, ty: SqlType) -> Coded<u16> {
        let place = match Class::of(&ty).is_register() {
            true => Place::Register(self.b.reserve_register()),
            false => Place::Workspace(self.workspace_column(ty)),
        };
        let block = self.block()?;
        block.variables.push(Variable {
            name: name.to_owned(),
            ty,
            place,
            released: false,
        });
        u16::try_from(block.variables.len() - 1).map_err(|_| Refusal::General)
    }

    /// Frees the workspace columns of the variables from a number on.
    pub(crate) fn release_variables(&mut self, from: usize) {
        let Some(block) = &mut self.block else {
            return;
        };
        let mut gone = Vec::new();
        for variable in block.variables.iter_mut().skip(from) {
            let was_released = std::mem::replace(&mut variable.released, true);
            if let (false, Place::Workspace(column)) = (was_released, variable.place) {
                gone.push((variable.ty, column));
            }
        }
        for (ty, column) in gone {
            self.free_column(ty, column);
        }
    }

    /// Sets a variable to a scalar of its type.
    pub(crate) fn set_variable(&mut self, number: u16, scalar: &Scalar) -> Coded<()> {
        let Variable { ty, place, name, .. } = self.variable(number)?.clone();
        match place {
            Place::Workspace(column) => {
                let workspace = self.workspace();
                self.remark(|_| name);
                match scalar {
                    Scalar::Constant(Value::Null) => {
                        self.b.setnull(workspace, column);
                        Ok(())
                    }
                    scalar => self.set_column(workspace, column, scalar, ty),
                }
            }
            Place::Register(register) => {
                let mark = self.b.mark();
                self.load(register, scalar, ty, &name)?;
                self.b.release_to(mark);
                Ok(())
            }
        }
    }

    fn load(&mut self, to: Reg, scalar: &Scalar, ty: SqlType, name: &str) -> Coded<()> {
        match scalar {
            Scalar::Constant(Value::Null) => {
                self.remark(|_| name.to_owned());
                self.b.ldnull(to);
            }
            Scalar::Column(column) if self.column_type(*column)? == ty => {
                let cp = self.cp()?;
                self.remark(|coder| format!("{name} = {}", coder.column_name(*column)));
                self.b.ldcol(to, cp, *column);
            }
            scalar if self.hoists(scalar) => {
                let part = self.part(scalar, ty)?;
                self.remark(|_| name.to_owned());
                self.load_part(to, part);
            }
            scalar => {
                let from = self.register(scalar, ty)?;
                if from != to {
                    self.remark(|_| name.to_owned());
                    self.b.mov(to, from);
                }
            }
        }
        Ok(())
    }

    /// What is known in advance of a value in a key, without generating code.
    pub(super) fn declared_part(&mut self, scalar: &Scalar, ty: SqlType) -> Coded<Option<KeyPart>> {
        if scalar.is_dynamic() {
            return match self.block {
                Some(_) => Ok(None),
                None => Err(Refusal::General),
            };
        }
        match self.block.is_some() && may_fail(scalar) {
            true => self.part(&Scalar::OrNull(Box::new(scalar.clone())), ty).map(Some),
            false => self.part(scalar, ty).map(Some),
        }
    }

    /// A key value of the given type.
    pub(super) fn key_source(&mut self, scalar: &Scalar, ty: SqlType) -> Coded<KeySource> {
        let computed = scalar.is_dynamic() || (self.block.is_some() && may_fail(scalar));
        if !computed {
            return self.part(scalar, ty).map(KeySource::part);
        }
        let declared = self.declared_part(scalar, ty)?;
        if Class::of(&ty).is_register() {
            let register = self.register(scalar, ty)?;
            return Ok(KeySource {
                declared,
                how: How::Register(register, Class::of(&ty)),
            });
        }
        let (_, column) = self.workspace_value(scalar, base_type(&ty))?;
        Ok(KeySource {
            declared,
            how: How::Workspace(column),
        })
    }

    /// Builds a key.
    pub(super) fn build_key(&mut self, sources: &[KeySource]) -> Coded<KeyBuf> {
        let key = self.b.key_buffer();
        self.b.key(key);
        for source in sources {
            match source.how {
                How::Part(KeyPart::Input(number)) => self.b.keyin(key, number),
                How::Part(KeyPart::Const(number)) => self.b.keyk(key, number),
                How::Register(register, class) => self.b.keyr(key, register, class),
                How::Workspace(column) => {
                    let workspace = self.workspace();
                    self.b.keybuf(key, workspace, column);
                }
            }
        }
        Ok(key)
    }

    fn bounds(&mut self, to: SqlType) -> (Reg, Reg) {
        let (low, high) = match to {
            SqlType::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
            SqlType::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        };
        let (least, most) = (self.b.register(), self.b.register());
        for (register, value) in [(least, low), (most, high)] {
            let number = self.b.constant(SqlType::Int8, Value::Int8(value));
            self.b.ldk(register, number);
        }
        (least, most)
    }

    /// An integer in a narrower key column's type; NULL if it does not fit, so that the key matches
    /// nothing.
    pub(super) fn exact_key(&mut self, inner: &Scalar, to: SqlType) -> Coded<Reg> {
        let from = self.type_of(inner)?;
        if !is_integer(&from) || !is_integer(&to) {
            return Err(Refusal::General);
        }
        let source = self.register(inner, from)?;
        if integer_width(&from) <= integer_width(&to) {
            return Ok(source);
        }
        let register = self.b.register();
        let (nothing, done) = (self.b.label(), self.b.label());
        let (least, most) = self.bounds(to);
        self.b.mov(register, source);
        self.b.branch(Cond::Lt, register, least, nothing);
        self.b.branch(Cond::Le, register, most, done);
        self.b.bind(nothing);
        self.b.ldnull(register);
        self.b.bind(done);
        Ok(register)
    }

    /// The nearest value of a narrower key column's type.
    pub(super) fn clamp_key(&mut self, inner: &Scalar, to: SqlType) -> Coded<Reg> {
        let from = self.type_of(inner)?;
        if !is_integer(&from) || !is_integer(&to) {
            return Err(Refusal::General);
        }
        let source = self.register(inner, from)?;
        if integer_width(&from) <= integer_width(&to) {
            return Ok(source);
        }
        let register = self.b.register();
        let (low, done) = (self.b.label(), self.b.label());
        let (least, most) = self.bounds(to);
        self.b.mov(register, source);
        self.b.branch(Cond::Lt, register, least, low);
        self.b.branch(Cond::Le, register, most, done);
        self.b.branch_null(register, done);
        self.b.mov(register, most);
        self.b.jump(done);
        self.b.bind(low);
        self.b.mov(register, least);
        self.b.bind(done);
        Ok(register)
    }

    /// Sets a text variable to a field of the error that a handler caught.
    pub(crate) fn set_from_error(&mut self, number: u16, handler: u8, field: ErrorField) -> Coded<()> {
        let Place::Workspace(column) = self.variable(number)?.place else {
            return Err(Refusal::General);
        };
        let workspace = self.workspace();
        self.b.errtext(workspace, column, handler, field);
        Ok(())
    }

    /// Updates FOUND and ROW_COUNT with a statement's status.
    pub(super) fn note_found(&mut self, status: Reg) {
        if let Some(found) = self.block.as_ref().and_then(|block| block.found) {
            self.b.arithmetic(Op::Or, found, found, status);
        }
        if let Some(count) = self.block.as_ref().and_then(|block| block.row_count) {
            self.b.arithmetic(Op::Add, count, count, status);
        }
    }
}
