//! Kinds of operations: what a new one has to bring along, and how the runtime handles all of them alike.
//!
//! A kind is one implementation of [`Operation`]: pure, with a task and an output of its own types, an
//! encoding of both, the golden model, and the look at an answer that no unit is trusted with. The runtime
//! knows kinds only as [`JobKind`], [`Task`] and [`Output`], which are the same with the types forgotten.
//! [`crate::kinds`] has those of this crate; crates above add theirs.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt::{self, Debug, Display};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use crate::buffer::Buffer;
use crate::urgency::Urgency;

/// What a sliced computation calls between two slices, about every 100 us or more often; if it breaks, the
/// computation is given up.
pub type Boundary<'a> = &'a mut dyn FnMut() -> ControlFlow<()>;

/// A kind of operation: a pure function from a task to an output.
pub trait Operation: Sized + Send + Sync + 'static {
    /// The kind's number in checksums and descriptors; never given to another kind.
    const CODE: u8;
    /// The kind's name in counters and timelines.
    const NAME: &'static str;
    /// How soon the results of its jobs are needed, unless a job says otherwise.
    const URGENCY: Urgency = Urgency::Background;

    /// What it is applied to.
    type Task: Debug + Send + Sync + 'static;
    /// What comes out, as validated or computed by this process.
    type Output: Clone + PartialEq + Debug + Send + 'static;
    /// Why there is no output. Deterministic: the same task has the same error.
    type Error: PartialEq + Debug + Display + Send + Sync + 'static;

    /// Bytes of the task without the overhead of the encoding, for bounds, limits and counters. Cheap.
    fn task_bytes(task: &Self::Task) -> u64;

    /// The task as a unit gets it.
    fn encode(task: &Self::Task) -> Vec<u8>;

    /// The registered buffers that the task uses, in the order in which the encoding means them. A unit gets
    /// their bytes beside the encoding, or has them already.
    fn buffers(_task: &Self::Task) -> Vec<Buffer> {
        Vec::new()
    }

    /// The task of an encoding, with the contents of its buffers.
    ///
    /// # Errors
    /// Bytes that are none, and why.
    fn decode(payload: &Bytes, buffers: &[Bytes]) -> Result<Self::Task, String>;

    /// The golden model: what every unit must compute, done by this process.
    ///
    /// # Errors
    /// The task has no output.
    fn golden(task: &Self::Task) -> Result<Self::Output, Self::Error>;

    /// The same in slices, for kinds whose jobs take longer than a millisecond; `None` if it was given up. A
    /// kind without it is done in one slice.
    ///
    /// # Errors
    /// The task has no output.
    fn golden_in_slices(task: &Self::Task, _: Boundary<'_>) -> Result<Option<Self::Output>, Self::Error> {
        Self::golden(task).map(Some)
    }

    /// The output as a unit sends it.
    fn output_to_bytes(output: &Self::Output) -> Bytes;

    /// Bytes of the output, for counters. Cheap.
    fn output_bytes(output: &Self::Output) -> u64;

    /// The output of a unit's answer, if it may be the output of the task: as much as can be found out
    /// for a small part of what the operation costs.
    fn look(task: &Self::Task, answer: Bytes) -> Option<Self::Output>;

    /// Whether an output that this process has validated or computed belongs to the task, as far as it says
    /// so. Cheap.
    fn is_of(task: &Self::Task, output: &Self::Output) -> bool;
}

/// A kind, with its types forgotten.
#[derive(Clone, Copy)]
pub struct JobKind(&'static dyn AnyOperation);

impl JobKind {
    /// The kind of an operation.
    #[must_use]
    pub const fn of<O: Operation>() -> JobKind {
        JobKind(Erased::<O>::THIS)
    }

    /// See [`Operation::CODE`].
    #[must_use]
    pub fn code(self) -> u8 {
        self.0.code()
    }

    /// See [`Operation::NAME`].
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// See [`Operation::URGENCY`].
    #[must_use]
    pub fn urgency(self) -> Urgency {
        self.0.urgency()
    }

    pub(crate) fn task_bytes(self, task: &Task) -> u64 {
        match task {
            Task::Encoded(payload) => payload.len() as u64,
            Task::Typed(task) => self.0.task_bytes(task.as_ref()),
        }
    }

    pub(crate) fn encode(self, task: &Task) -> Bytes {
        match task {
            Task::Encoded(payload) => payload.clone(),
            Task::Typed(task) => self.0.encode(task.as_ref()),
        }
    }

    pub(crate) fn buffers(self, task: &Task) -> Vec<Buffer> {
        match task {
            Task::Encoded(_) => Vec::new(),
            Task::Typed(task) => self.0.buffers(task.as_ref()),
        }
    }

    /// The golden model's output of a task, in slices; what is refused says why. `None` if it was given up.
    pub(crate) fn golden(self, task: &Task, boundary: Boundary<'_>) -> Result<Option<Output>, Output> {
        match task {
            Task::Encoded(payload) => self.golden_of_payload(payload, &[], boundary),
            Task::Typed(task) => self.0.golden(task.as_ref(), boundary),
        }
    }

    /// The same of an encoded task and the contents of its buffers, as bytes.
    pub(crate) fn golden_of_payload(
        self,
        payload: &Bytes,
        buffers: &[Bytes],
        boundary: Boundary<'_>,
    ) -> Result<Option<Output>, Output> {
        self.0.golden_of_payload(payload, buffers, boundary)
    }

    pub(crate) fn look(self, task: &Task, answer: Bytes) -> Option<Output> {
        self.0.look(task, answer)
    }

    pub(crate) fn is_of(self, task: &Task, output: &Output) -> bool {
        self.0.is_of(task, output)
    }
}

impl PartialEq for JobKind {
    fn eq(&self, other: &JobKind) -> bool {
        self.code() == other.code()
    }
}

impl Eq for JobKind {}

impl PartialOrd for JobKind {
    fn partial_cmp(&self, other: &JobKind) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for JobKind {
    fn cmp(&self, other: &JobKind) -> Ordering {
        self.code().cmp(&other.code())
    }
}

impl Hash for JobKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.code().hash(state);
    }
}

impl Debug for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The argument of an operation. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Task {
    /// As [`Operation::encode`] writes it.
    Encoded(Bytes),
    /// An [`Operation::Task`].
    Typed(Arc<dyn Any + Send + Sync>),
}

/// The result of an operation. A unit sends bytes; validation ([`crate::Validator`]) turns them into an
/// output of the kind's type. So the type of a result shows that it was validated.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// As a unit sent it, or a message: only its checksum was verified.
    Bytes(Bytes),
    /// An [`Operation::Output`].
    Typed(TypedOutput),
    /// Why there is none, from a unit in this process. Never part of a result: there it becomes
    /// [`crate::JobError::Refused`].
    Refused(Refused),
}

impl From<Vec<u8>> for Output {
    fn from(bytes: Vec<u8>) -> Output {
        Output::Bytes(bytes.into())
    }
}

impl Output {
    /// An output that this process has validated or computed.
    #[must_use]
    pub fn of<O: Operation>(output: O::Output) -> Output {
        Output::Typed(TypedOutput(Box::new(Held::<O>(output))))
    }

    /// The output of this kind; `None` for others, and for bytes that were not validated.
    #[must_use]
    pub fn take<O: Operation>(self) -> Option<O::Output> {
        match self {
            Output::Typed(output) => {
                let held = output.0.into_any().downcast::<Held<O>>().ok()?;
                Some(held.0)
            }
            Output::Bytes(_) | Output::Refused(_) => None,
        }
    }

    /// The output as a unit sends it. A large one is copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Output::Bytes(bytes) => bytes.clone(),
            Output::Typed(output) => output.0.to_bytes(),
            Output::Refused(error) => error.to_string().into_bytes().into(),
        }
    }

    /// Bytes of the output.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Output::Bytes(bytes) => bytes.len() as u64,
            Output::Typed(output) => output.0.size_bytes(),
            Output::Refused(_) => 0,
        }
    }
}

/// An [`Operation::Output`], with its type forgotten.
#[derive(Debug)]
pub struct TypedOutput(Box<dyn AnyOutput>);

impl Clone for TypedOutput {
    fn clone(&self) -> TypedOutput {
        TypedOutput(self.0.cloned())
    }
}

impl PartialEq for TypedOutput {
    fn eq(&self, other: &TypedOutput) -> bool {
        self.0.is_equal(other.0.as_ref())
    }
}

/// An [`Operation::Error`], with its type forgotten.
#[derive(Clone, Debug)]
pub struct Refused(Arc<dyn AnyError>);

impl Refused {
    /// An error with its type forgotten.
    pub fn new(error: impl PartialEq + Debug + Display + Send + Sync + 'static) -> Refused {
        Refused(Arc::new(error))
    }

    /// The error, if it is of this type.
    #[must_use]
    pub fn get<E: 'static>(&self) -> Option<&E> {
        self.0.as_any().downcast_ref()
    }
}

impl PartialEq for Refused {
    fn eq(&self, other: &Refused) -> bool {
        self.0.is_equal(other.0.as_ref())
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.0, f)
    }
}

/// [`Operation`] as an object.
trait AnyOperation: Send + Sync {
    fn code(&self) -> u8;
    fn name(&self) -> &'static str;
    fn task_bytes(&self, task: &(dyn Any + Send + Sync)) -> u64;
    fn encode(&self, task: &(dyn Any + Send + Sync)) -> Bytes;
    fn urgency(&self) -> Urgency;
    fn golden(
        &self,
        task: &(dyn Any + Send + Sync),
        boundary: Boundary<'_>,
    ) -> Result<Option<Output>, Output>;
    fn buffers(&self, task: &(dyn Any + Send + Sync)) -> Vec<Buffer>;
    fn golden_of_payload(
        &self,
        payload: &Bytes,
        buffers: &[Bytes],
        boundary: Boundary<'_>,
    ) -> Result<Option<Output>, Output>;
    fn look(&self, task: &Task, answer: Bytes) -> Option<Output>;
    fn is_of(&self, task: &Task, output: &Output) -> bool;
}

struct Erased<O>(PhantomData<fn() -> O>);

const OTHER_KIND: &str = "the task of another kind";

impl<O: Operation> Erased<O> {
    const THIS: &'static dyn AnyOperation = &Erased::<O>(PhantomData);
}

impl<O: Operation> AnyOperation for Erased<O> {
    fn code(&self) -> u8 {
        O::CODE
    }

    fn name(&self) -> &'static str {
        O::NAME
    }

    fn task_bytes(&self, task: &(dyn Any + Send + Sync)) -> u64 {
        task.downcast_ref().map_or(0, O::task_bytes)
    }

    fn encode(&self, task: &(dyn Any + Send + Sync)) -> Bytes {
        task.downcast_ref().map(O::encode).unwrap_or_default().into()
    }

    fn urgency(&self) -> Urgency {
        O::URGENCY
    }

    fn golden(
        &self,
        task: &(dyn Any + Send + Sync),
        boundary: Boundary<'_>,
    ) -> Result<Option<Output>, Output> {
        let Some(task) = task.downcast_ref() else {
            return Err(OTHER_KIND.as_bytes().to_vec().into());
        };
        match O::golden_in_slices(task, boundary) {
            Ok(output) => Ok(output.map(Output::of::<O>)),
            Err(error) => Err(Output::Refused(Refused::new(error))),
        }
    }

    fn buffers(&self, task: &(dyn Any + Send + Sync)) -> Vec<Buffer> {
        task.downcast_ref().map(O::buffers).unwrap_or_default()
    }

    fn golden_of_payload(
        &self,
        payload: &Bytes,
        buffers: &[Bytes],
        boundary: Boundary<'_>,
    ) -> Result<Option<Output>, Output> {
        let task = O::decode(payload, buffers).map_err(|why| Output::from(why.into_bytes()))?;
        let output = O::golden_in_slices(&task, &mut *boundary);
        let output = output.map_err(|error| Output::from(error.to_string().into_bytes()))?;
        // Encoding a large output is a slice of its own.
        let output = output.filter(|_| boundary().is_continue());
        Ok(output.map(|output| Output::Bytes(O::output_to_bytes(&output))))
    }

    fn look(&self, task: &Task, answer: Bytes) -> Option<Output> {
        let output = match task {
            Task::Encoded(payload) => O::look(&O::decode(payload, &[]).ok()?, answer),
            Task::Typed(task) => O::look(task.downcast_ref()?, answer),
        };
        output.map(Output::of::<O>)
    }

    fn is_of(&self, task: &Task, output: &Output) -> bool {
        let Output::Typed(output) = output else {
            return false;
        };
        let Some(Held(output)) = output.0.as_any().downcast_ref::<Held<O>>() else {
            return false;
        };
        match task {
            Task::Encoded(payload) => O::decode(payload, &[]).is_ok_and(|task| O::is_of(&task, output)),
            Task::Typed(task) => task.downcast_ref().is_some_and(|task| O::is_of(task, output)),
        }
    }
}

/// An output as an object.
trait AnyOutput: Debug + Send {
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    fn cloned(&self) -> Box<dyn AnyOutput>;
    fn is_equal(&self, other: &dyn AnyOutput) -> bool;
    fn to_bytes(&self) -> Bytes;
    fn size_bytes(&self) -> u64;
}

/// An output and its kind.
struct Held<O: Operation>(O::Output);

impl<O: Operation> Debug for Held<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<O: Operation> AnyOutput for Held<O> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn cloned(&self) -> Box<dyn AnyOutput> {
        Box::new(Held::<O>(self.0.clone()))
    }

    fn is_equal(&self, other: &dyn AnyOutput) -> bool {
        let other = other.as_any().downcast_ref::<Held<O>>();
        other.is_some_and(|other| self.0 == other.0)
    }

    fn to_bytes(&self) -> Bytes {
        O::output_to_bytes(&self.0)
    }

    fn size_bytes(&self) -> u64 {
        O::output_bytes(&self.0)
    }
}

/// An error as an object.
trait AnyError: Debug + Display + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn is_equal(&self, other: &dyn AnyError) -> bool;
}

impl<E: PartialEq + Debug + Display + Send + Sync + 'static> AnyError for E {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_equal(&self, other: &dyn AnyError) -> bool {
        other.as_any().downcast_ref::<E>() == Some(self)
    }
}
