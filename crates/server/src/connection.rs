//! One connection: the loop that reads messages and answers them.
//!
//! ```text
//!             .--------------- Sync, or end of a simple query: ReadyForQuery, flush ---------.
//!             v                                                                              |
//!   Waiting --Query--> session --------------------------------------------------------------'
//!      |                                                                                     |
//!      '--Parse, Bind, Describe, Execute, Close --> session --ok--> (next message) --Sync----'
//!                                                      |error                               |
//!                                                      '--> Skipping: all but Sync ignored --'
//! ```
//!
//! The threads of [`crate::pool`] call [`Serve::serve`] when bytes have arrived; it answers the messages that
//! are there and returns. The thread that received a transaction may also execute it, without a handoff.
//! Replies are collected in a buffer and sent at ReadyForQuery, at Flush and when there are many, so that the
//! common round trip costs one read and one write.
//!
//! There are three kinds of failure (see [`Failure`]): the statement failed, reported with ErrorResponse; the
//! session failed, reported as FATAL, after which the connection closes; or the client is gone. A panic in a
//! session is of the second kind: it ends this connection only, with XX000.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use weft_types::{SqlError, SqlState};
use weft_wire::frame::{Frame, FrameReader};
use weft_wire::frontend::{self, violation};
use weft_wire::startup::StartupRequest;

use crate::backend::{Backend, BackendSession, SessionStart, TxnStatus};
use crate::block::{self, Block};
use crate::extended;
use crate::login;
use crate::pool::{Next, Pool, Sent, Serve, WakeReason};
use crate::portal::Names;
use crate::registry::{Registration, Shared};
use crate::reply::{self, Severity};
use crate::row::{RowEncoder, Scratch};
use crate::sink::{Results, WireSink, frame_failure, idle_too_long};
use crate::startup::{self, Opening, REPORTED_PARAMETERS};
use crate::transport::{Failure, Replies, Socket};

/// The outcome of looking for a message.
enum Step {
    Answered,
    /// None has arrived.
    NoMessage,
    /// The client terminated the session.
    Ended,
}

/// How often a parked statement checks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);
/// What a connection keeps of its query buffer between messages.
const QUERY_BYTES_KEPT: usize = 64 << 10;
/// Messages answered before other connections have their turn.
const MESSAGES_PER_TURN: usize = 256;

/// A session and its socket.
pub struct Connection<S: BackendSession> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: S,
    pub(crate) reader: FrameReader<Socket>,
    pub(crate) replies: Replies,
    pub(crate) names: Names<S::Prepared>,
    pub(crate) scratch: Scratch,
    /// Portals executed since the last Sync.
    pub(crate) executions: u64,
    /// Executes of a block, kept until the end of their transaction.
    pub(crate) block: Option<Block<S::Prepared>>,
    /// A statement of the pipeline failed: everything up to the next Sync is ignored.
    skipping: bool,
    /// Complete replies wait for the log.
    unflushed: bool,
    /// Has the pool serve this connection again; for a parked statement.
    pub(crate) waker: Option<Waker>,
    /// The message whose statement is parked.
    parked: Option<Frame>,
    user: String,
    /// The text of the simple query that runs, kept outside of the read buffer because a COPY reads on.
    query_text: String,
    settings_version: u64,
    reported: Vec<String>,
}

/// Opens a session on a new socket and hands the connection to the pool. Never panics, whatever the backend
/// does while a session is opened, run or dropped.
pub fn begin<B: Backend>(
    backend: &B,
    shared: &Arc<Shared>,
    pool: &Arc<Pool>,
    socket: Socket,
    mut registration: Registration,
) {
    let opened = isolate(shared, &socket, || {
        open(backend, shared, &socket, &mut registration)
    });
    match opened {
        Some(Ok(Some(connection))) => {
            let stream = socket.stream().clone();
            let limit = connection.session.idle_limit();
            let pooled = PooledConnection {
                connection: Some(connection),
                shared: shared.clone(),
                socket,
                _registration: registration,
            };
            // If the pool refuses it, the session has already ended and the client sees its socket close.
            let _ = pool.adopt(stream, Box::new(pooled), limit);
        }
        Some(Err(Failure::Statement(error) | Failure::Fatal(error))) => {
            shared.metrics.connections_refused.increment();
            send_final_error(shared, &socket, &error);
        }
        Some(Ok(None) | Err(Failure::Gone | Failure::Parked)) | None => {}
    }
}

/// A connection as the pool owns it.
struct PooledConnection<S: BackendSession> {
    connection: Option<Connection<S>>,
    shared: Arc<Shared>,
    socket: Socket,
    /// Dropped last, so that an empty registry means that all sessions have ended.
    _registration: Registration,
}

impl<S: BackendSession> Serve for PooledConnection<S> {
    fn serve(&mut self, reason: WakeReason) -> Next {
        let Some(connection) = &mut self.connection else {
            return Next::End;
        };
        isolate(&self.shared, &self.socket, || connection.serve(reason)).unwrap_or(Next::End)
    }

    fn send(&mut self) -> Sent {
        let Some(connection) = &mut self.connection else {
            return Sent::Never;
        };
        let sent = isolate(&self.shared, &self.socket, || {
            connection.replies.send_cleared_now()
        });
        match sent {
            Some(Ok(true)) => Sent::All,
            Some(Ok(false)) => Sent::Some,
            Some(Err(_)) | None => Sent::Never,
        }
    }

    fn set_waker(&mut self, waker: Waker) {
        // What the client sent together with the end of its login.
        if self.socket.holds_plaintext() {
            waker.wake_by_ref();
        }
        if let Some(connection) = &mut self.connection {
            connection.waker = Some(waker);
        }
    }

    fn await_log(&mut self) {
        if let Some(connection) = &self.connection {
            // After a panic here the connection panics again, and ends, when it is next served.
            isolate(&self.shared, &self.socket, || connection.replies.await_log());
        }
    }
}

impl<S: BackendSession> Drop for PooledConnection<S> {
    fn drop(&mut self) {
        let connection = self.connection.take();
        // Dropping the session rolls back, which runs the backend's code too.
        isolate(&self.shared, &self.socket, || drop(connection));
        self.socket.say_end();
    }
}

/// Runs `action`. A panic in it is counted and reported to the client.
fn isolate<T>(shared: &Shared, socket: &Socket, action: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(action));
    result
        .map_err(|payload| {
            shared.metrics.panics.increment();
            send_final_error(shared, socket, &panic_error(payload.as_ref()));
        })
        .ok()
}

/// The handshake. None: it was a cancel request, or the client went away.
fn open<B: Backend>(
    backend: &B,
    shared: &Arc<Shared>,
    socket: &Socket,
    registration: &mut Registration,
) -> Result<Option<Connection<B::Session>>, Failure> {
    let stream = socket.stream();
    let _ = stream.set_tcp_nodelay(true);
    // Until it is logged in, a client that does not read holds its place no longer than one that does not
    // write.
    let _ = stream.set_write_timeout(Some(shared.config.startup_timeout));
    let deadline = Instant::now() + shared.config.startup_timeout;
    let request = match startup::receive(shared, socket, deadline)? {
        Opening::Session(request) => request,
        Opening::Cancel { pid, secret_key } => {
            shared.cancel(pid, secret_key);
            return Ok(None);
        }
    };
    if shared.is_stopping() {
        let error = SqlError::new(
            SqlState::CANNOT_CONNECT_NOW,
            "the database system is shutting down",
        );
        return Err(Failure::Fatal(error));
    }
    let user = &request.user;
    let account = backend.account(user);
    login::check_origin(socket, &request, &account)?;
    let again = || backend.account(user);
    let client = login::log_in(shared, socket, registration, user, &account, again, deadline)?;
    registration
        .become_session(client.is_superuser)
        .map_err(|full| Failure::Fatal(SqlError::new(SqlState::TOO_MANY_CONNECTIONS, full.message())))?;
    startup::check_database(&request)?;
    login::check_connect(&client, &request.database)?;
    let start = SessionStart {
        user: request.user.clone(),
        database: request.database.clone(),
        pid: registration.pid,
        role: client.role,
        encryption: socket.tls().map(|channel| channel.encryption()),
    };
    let mut session = backend.open_session(&start)?;
    for (name, value) in &request.settings {
        session.set_startup(name, value)?;
    }
    registration.set_cancel(session.cancel_handle());
    stream.set_read_timeout(None).map_err(|_| Failure::Gone)?;
    let _ = stream.set_write_timeout(shared.config.write_timeout);
    let mut connection = Connection::new(shared, socket, session, &request);
    startup::welcome(
        &request,
        &mut connection.replies.out,
        registration,
        &connection.reported,
    );
    connection.replies.flush()?;
    Ok(Some(connection))
}

fn send_final_error(shared: &Shared, socket: &Socket, error: &SqlError) {
    let mut last = BytesMut::new();
    reply::error(&mut last, Severity::Fatal, error);
    shared.metrics.bytes_sent.add(last.len() as u64);
    // The client may be gone already; there is nothing to do then.
    let _ = socket.write_all(&last);
}

fn panic_error(payload: &(dyn Any + Send)) -> SqlError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = format!("internal error: {}", text.unwrap_or("no message"));
    SqlError::new(SqlState::INTERNAL_ERROR, message)
        .hint("This is a bug in Weft. The connection is closed; the database goes on.")
}

impl<S: BackendSession> Connection<S> {
    fn new(shared: &Arc<Shared>, socket: &Socket, session: S, request: &StartupRequest) -> Self {
        let config = &shared.config;
        let replies = Replies::new(
            socket.clone(),
            session.durability_gate(),
            shared.metrics.clone(),
            config.reply_bytes_flush,
        );
        Connection {
            reader: FrameReader::new(socket.clone(), config.message_bytes_max),
            replies,
            names: Names::new(config.names_max),
            scratch: Scratch::new(session.zone()),
            executions: 0,
            block: None,
            skipping: false,
            unflushed: false,
            waker: None,
            parked: None,
            user: request.user.clone(),
            query_text: String::new(),
            settings_version: session.settings_version(),
            reported: startup::reported_values(&session, &request.user, config),
            session,
            shared: shared.clone(),
        }
    }

    /// Answers the messages that have arrived, or ends a session whose client was silent for too long.
    fn serve(&mut self, reason: WakeReason) -> Next {
        // Replies that could not be sent because the client does not read are waited for here.
        if self.replies.send_cleared().is_err() {
            return Next::End;
        }
        match self.answer(reason) {
            Next::Wait(limit) if self.replies.has_cleared() => Next::Send(limit),
            next => match self.replies.has_cleared() && self.replies.send_cleared().is_err() {
                true => Next::End,
                false => next,
            },
        }
    }

    fn answer(&mut self, reason: WakeReason) -> Next {
        self.reader.expect_more(reason.ending);
        // A message that arrived after all cancels the timeout.
        let mut timed_out = reason.timed_out;
        let mut flushed = std::mem::take(&mut self.unflushed).then(|| self.replies.flush());
        for _ in 0..MESSAGES_PER_TURN {
            let step = match flushed.take() {
                Some(flushed) => flushed.map(|()| Step::Answered),
                None => self.step(),
            };
            let step = match step {
                Ok(Step::NoMessage) if timed_out => Err(idle_too_long()),
                // The end of the stream was caused by the server itself.
                Err(Failure::Gone) if self.shared.is_stopping() => Err(self.stopped()),
                step => step,
            };
            match step {
                Ok(Step::Answered) if self.unflushed => return Next::Sync,
                Ok(Step::Answered) => timed_out = false,
                Err(Failure::Parked) => return Next::Wait(Some(CANCEL_POLL)),
                Ok(Step::NoMessage) => return Next::Wait(self.session.idle_limit()),
                Ok(Step::Ended) | Err(Failure::Gone) => return Next::End,
                Err(Failure::Statement(error) | Failure::Fatal(error)) => {
                    self.shared.metrics.errors.increment();
                    let mut last = BytesMut::new();
                    reply::error(&mut last, Severity::Fatal, &error);
                    self.replies.send_final(last);
                    return Next::End;
                }
            }
        }
        Next::More
    }

    /// Handles one message, or continues the one whose statement was parked.
    fn step(&mut self) -> Result<Step, Failure> {
        let again = self.parked.is_some();
        let frame = match self.parked.take() {
            Some(_) if self.shared.is_stopping() => return Err(self.stopped()),
            Some(frame) => frame,
            None => match self.arrived_frame()? {
                Some(frame) => frame,
                None => return Ok(Step::NoMessage),
            },
        };
        // Replies are held back only at the end of a turn: this message may take long.
        self.replies.send_cleared()?;
        if self.block.is_some() && !matches!(frame.tag, b'P' | b'B' | b'D' | b'E' | b'C') {
            match block::resolve(self) {
                Err(Failure::Statement(error)) => self.fail_pipeline(&error)?,
                other => other?,
            }
        }
        let extended = match frame.tag {
            b'X' => return Ok(Step::Ended),
            b'S' => {
                self.sync(frame)?;
                return Ok(Step::Answered);
            }
            _ if self.skipping => return Ok(Step::Answered),
            // What a client still sends after its COPY failed.
            b'd' | b'c' | b'f' => return Ok(Step::Answered),
            b'Q' => {
                self.simple_query(frame)?;
                return Ok(Step::Answered);
            }
            b'F' => {
                let error = SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "function calls are not supported",
                );
                self.report(&error)?;
                self.ready()?;
                return Ok(Step::Answered);
            }
            b'P' => extended::parse(self, frame),
            b'B' => extended::bind(self, frame),
            b'D' => extended::describe(self, frame),
            b'E' => {
                if !again {
                    self.shared.metrics.queries.increment();
                }
                extended::execute(self, frame).inspect_err(|failure| {
                    self.parked = matches!(failure, Failure::Parked).then_some(frame);
                })
            }
            b'C' => extended::close(self, frame),
            b'H' => match frontend::empty(self.reader.body(frame)) {
                Ok(()) => self.replies.flush(),
                Err(error) => Err(Failure::Statement(error)),
            },
            tag => Err(Failure::Fatal(violation(format!(
                "unexpected message type {tag}"
            )))),
        };
        match extended {
            Err(Failure::Statement(error)) => {
                // Kept Executes run first, and their error is reported first.
                let error = match block::resolve(self) {
                    Err(Failure::Statement(earlier)) => earlier,
                    Err(other) => return Err(other),
                    Ok(()) => error,
                };
                self.fail_pipeline(&error)?;
            }
            other => other?,
        }
        Ok(Step::Answered)
    }

    /// A statement of the pipeline failed: the rest up to Sync is skipped.
    fn fail_pipeline(&mut self, error: &SqlError) -> Result<(), Failure> {
        self.session.fail();
        self.skipping = true;
        self.report(error)?;
        // At once, as PostgreSQL does: a client may wait for the error before it sends Sync.
        self.replies.flush()
    }

    /// The next message that has arrived.
    fn arrived_frame(&mut self) -> Result<Option<Frame>, Failure> {
        if self.shared.is_stopping() {
            return Err(self.stopped());
        }
        let frame = self.reader.arrived_frame();
        self.shared
            .metrics
            .bytes_received
            .add(self.reader.take_bytes_received());
        frame.map_err(frame_failure)
    }

    fn stopped(&self) -> Failure {
        let message = "terminating connection due to administrator command";
        Failure::Fatal(SqlError::new(SqlState::ADMIN_SHUTDOWN, message))
    }

    /// A simple-query message: any number of statements, always answered with ReadyForQuery.
    fn simple_query(&mut self, frame: Frame) -> Result<(), Failure> {
        self.shared.metrics.queries.increment();
        self.names.close_statement("");
        self.names.close_portal("");
        self.query_text.clear();
        let result = match frontend::query(self.reader.body(frame)) {
            Ok(sql) => {
                self.query_text.push_str(sql);
                let mut sink = WireSink {
                    replies: &mut self.replies,
                    reader: &mut self.reader,
                    names: &mut self.names,
                    scratch: &mut self.scratch,
                    results: Results::Simple(RowEncoder::new(&[], |_| frontend::Format::Text)),
                    failure: None,
                };
                let result = self.session.execute_simple(&self.query_text, &mut sink);
                match sink.failure.take() {
                    Some(failure) => Err(failure),
                    None => result.map_err(Failure::Statement),
                }
            }
            Err(error) => Err(Failure::Statement(error)),
        };
        match result {
            Err(Failure::Statement(error)) => self.report(&error)?,
            other => other?,
        }
        self.executions = 0;
        self.ready()
    }

    /// The end of a pipeline.
    fn sync(&mut self, frame: Frame) -> Result<(), Failure> {
        self.skipping = false;
        self.executions = 0;
        if let Err(error) = self.session.sync() {
            self.session.fail();
            self.report(&error)?;
        }
        if let Err(error) = frontend::empty(self.reader.body(frame)) {
            self.report(&error)?;
        }
        self.ready()
    }

    /// ErrorResponse.
    fn report(&mut self, error: &SqlError) -> Result<(), Failure> {
        if self.shared.is_stopping() {
            return Err(self.stopped());
        }
        self.shared.metrics.errors.increment();
        let mut error = error.clone();
        self.session.hide_rows(&mut error);
        reply::error(&mut self.replies.out, Severity::Error, &error);
        Ok(())
    }

    /// ReadyForQuery, with the parameters that changed before it.
    fn ready(&mut self) -> Result<(), Failure> {
        self.scratch.shrink();
        self.query_text.clear();
        self.query_text.shrink_to(QUERY_BYTES_KEPT);
        let status = self.session.status();
        if status == TxnStatus::Idle {
            self.names.clear_portals();
        }
        let version = self.session.settings_version();
        if version != self.settings_version {
            self.settings_version = version;
            let values = startup::reported_values(&self.session, &self.user, &self.shared.config);
            for (((name, _), old), new) in REPORTED_PARAMETERS.iter().zip(&self.reported).zip(&values) {
                if old != new {
                    startup::put_parameter(&mut self.replies.out, name, new);
                }
            }
            self.reported = values;
        }
        reply::ready(&mut self.replies.out, status);
        self.unflushed = !self.replies.clear_if_durable();
        Ok(())
    }
}
