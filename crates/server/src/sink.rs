//! A session's results on their way to the client.
//!
//! One sink serves one call into the session. For a simple query it describes every result and writes every
//! row as text; for a portal it writes rows in the portal's formats and keeps those beyond the row limit. A
//! broken connection can only be reported to the session by returning `Break`, so the sink keeps the first
//! failure and the connection checks it first.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyInResponse, CopyOutResponse};
use weft::too_much_held;
use weft_base::{Reservation, blocking};
use weft_types::{SqlError, SqlState, interrupt};
use weft_wire::frame::{Frame, FrameError, FrameReader};
use weft_wire::frontend::{self, Format, violation};

use crate::backend::{
    CommandTag, CopyHeader, NoticeLevel, OutputColumn, PreparedStatement, ResultSink, RowRef,
};
use crate::portal::Names;
use crate::reply;
use crate::row::{RowEncoder, Scratch};
use crate::transport::{Failure, Replies, Socket};

/// A message of this size takes a while to send.
const LONG_MESSAGE: usize = 1 << 20;

/// Memory for kept rows is reserved in steps of this many bytes.
const RESERVED_BYTES: usize = 64 << 10;

/// How often a statement that waits for its client checks whether it should end.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Where rows go, and what is said around them.
pub enum Results<'a> {
    /// A simple query: descriptions are sent, everything is text.
    Simple(RowEncoder),
    /// One execution of a portal.
    Portal {
        /// In the portal's formats.
        encoder: RowEncoder,
        /// Rows for this Execute; 0: all.
        row_limit: u64,
        /// Rows sent by it.
        rows_sent: u64,
        /// Rows beyond the limit.
        rest: &'a mut BytesMut,
        /// What is reserved for them.
        held: &'a mut Reservation,
        /// The columns as they were described.
        described: &'a [OutputColumn],
        /// The tag of a statement that was suspended.
        suspended: &'a mut Option<CommandTag>,
    },
}

/// The sink of one call into a session.
pub struct WireSink<'a, P> {
    /// Where messages go.
    pub replies: &'a mut Replies,
    /// Where copy data comes from.
    pub reader: &'a mut FrameReader<Socket>,
    /// What DEALLOCATE reaches.
    pub names: &'a mut Names<P>,
    /// Buffers for values.
    pub scratch: &'a mut Scratch,
    /// What rows are made into.
    pub results: Results<'a>,
    /// The first failure, if any.
    pub failure: Option<Failure>,
}

/// Adjusts a reservation to what is held.
fn cover(held: &mut Reservation, bytes: usize) -> Result<(), SqlError> {
    let missing = bytes.saturating_sub(held.bytes());
    if missing == 0 {
        return Ok(());
    }
    let grown = held.grow(missing.next_multiple_of(RESERVED_BYTES));
    grown.map_err(too_much_held)
}

impl<P> WireSink<'_, P> {
    /// Keeps the first failure.
    fn fail(&mut self, failure: Failure) -> ControlFlow<()> {
        self.failure.get_or_insert(failure);
        ControlFlow::Break(())
    }

    /// After a flush the statement looks whether it shall end: its client may have taken its time to read.
    fn flush_if_large(&mut self) -> ControlFlow<()> {
        let ended = match self.replies.flush_if_large() {
            Ok(true) => interrupt::check().map_err(Failure::Statement),
            Ok(false) => Ok(()),
            Err(failure) => Err(failure),
        };
        match ended {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => self.fail(failure),
        }
    }

    /// Removes a long message, which begins at byte `at`, if the statement should end: once its first byte is
    /// sent, all others must follow.
    fn still_wanted(&mut self, at: usize) -> Result<(), SqlError> {
        if self.replies.out.len() - at < LONG_MESSAGE {
            return Ok(());
        }
        interrupt::check().inspect_err(|_| self.replies.out.truncate(at))
    }

    /// The next message of a client that sends data, unless the statement should end first.
    fn awaited_frame(&mut self, idle_max: Option<Duration>) -> Result<Result<Frame, FrameError>, SqlError> {
        let socket = self.reader.source().stream().clone();
        let began = Instant::now();
        let _ = socket.set_read_timeout(Some(LOOK_UP));
        let arrived = loop {
            match self.reader.next_frame() {
                Err(FrameError::TimedOut) if idle_max.is_none_or(|idle_max| began.elapsed() < idle_max) => {}
                arrived => break Ok(arrived),
            }
            if let Err(ended) = interrupt::check() {
                break Err(ended);
            }
        };
        let _ = socket.set_read_timeout(None);
        arrived
    }

    /// The next piece of copy data; None at its end.
    fn copy_frame(
        &mut self,
        idle_max: Option<Duration>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<ControlFlow<()>, SqlError> {
        let arrived = match self.reader.buffered_frame() {
            Ok(None) => blocking::section(|| self.awaited_frame(idle_max))?,
            Ok(Some(frame)) => Ok(frame),
            Err(error) => Err(error),
        };
        let frame = match arrived {
            Ok(frame) => frame,
            Err(error) => {
                let _ = self.fail(frame_failure(error));
                return Err(SqlError::new(
                    SqlState::CONNECTION_FAILURE,
                    "connection lost during COPY from stdin",
                ));
            }
        };
        let body = self.reader.body(frame);
        match frame.tag {
            b'd' => take(body).map(|()| ControlFlow::Continue(())),
            b'c' => Ok(ControlFlow::Break(())),
            b'f' => {
                let reason = frontend::copy_fail(body)?;
                Err(SqlError::new(
                    SqlState::QUERY_CANCELED,
                    format!("COPY from stdin failed: {reason}"),
                ))
            }
            // Clients send these without noticing that the command was a COPY.
            b'S' | b'H' => Ok(ControlFlow::Continue(())),
            b'X' => {
                let _ = self.fail(Failure::Gone);
                Err(SqlError::new(
                    SqlState::CONNECTION_FAILURE,
                    "connection closed during COPY from stdin",
                ))
            }
            tag => Err(violation(format!(
                "unexpected message type 0x{tag:02X} during COPY from stdin"
            ))),
        }
    }
}

/// The client was silent for longer than its session allows in a transaction or while it holds locks.
pub fn idle_too_long() -> Failure {
    Failure::Fatal(SqlError::new(
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        "terminating connection due to idle-in-transaction timeout",
    ))
}

/// What a failed read means for the session.
pub fn frame_failure(error: FrameError) -> Failure {
    match error {
        FrameError::Closed => Failure::Gone,
        FrameError::TimedOut => idle_too_long(),
        FrameError::TooLong { bytes, bytes_max } => Failure::Fatal(SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("message of {bytes} bytes is longer than the {bytes_max} bytes allowed"),
        )),
        FrameError::BadLength(length) => {
            Failure::Fatal(violation(format!("invalid message length {length}")))
        }
        FrameError::UnknownTag(tag) => {
            Failure::Fatal(violation(format!("invalid frontend message type {tag}")))
        }
    }
}

impl<P: PreparedStatement> ResultSink for WireSink<'_, P> {
    fn columns(&mut self, columns: &[OutputColumn]) {
        match &mut self.results {
            Results::Simple(encoder) => {
                *encoder = RowEncoder::new(columns, |_| Format::Text);
                reply::row_description(&mut self.replies.out, columns, |_| Format::Text);
            }
            Results::Portal {
                encoder, described, ..
            } => {
                let described = described.iter().map(|column| column.ty);
                if !described.eq(columns.iter().map(|column| column.ty)) {
                    let _ = self.fail(Failure::Statement(weft::changed_result_type()));
                } else {
                    encoder.take_names(columns);
                }
            }
        }
    }

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        if self.failure.is_some() {
            return ControlFlow::Break(());
        }
        let at = self.replies.out.len();
        let result = match &mut self.results {
            Results::Simple(encoder) => encoder.encode(row, self.scratch, &mut self.replies.out),
            Results::Portal {
                encoder,
                row_limit,
                rows_sent,
                rest,
                held,
                ..
            } => {
                if *row_limit == 0 || *rows_sent < *row_limit {
                    *rows_sent += 1;
                    encoder.encode(row, self.scratch, &mut self.replies.out)
                } else {
                    let encoded = encoder.encode(row, self.scratch, rest);
                    encoded.and_then(|()| cover(held, rest.len()))
                }
            }
        };
        match result.and_then(|()| self.still_wanted(at)) {
            Ok(()) => self.flush_if_large(),
            Err(error) => self.fail(Failure::Statement(error)),
        }
    }

    fn complete(&mut self, tag: &CommandTag) {
        if self.failure.is_some() {
            return;
        }
        if let Results::Portal {
            row_limit,
            rows_sent,
            suspended,
            ..
        } = &mut self.results
            && *row_limit > 0
            && *rows_sent == *row_limit
        {
            // As in PostgreSQL, even if no row is left: the next Execute reports completion.
            **suspended = Some(tag.clone());
            return reply::portal_suspended(&mut self.replies.out);
        }
        reply::command_complete(&mut self.replies.out, tag);
    }

    fn empty(&mut self) {
        reply::empty_query(&mut self.replies.out);
    }

    fn notice(&mut self, level: NoticeLevel, notice: &SqlError) {
        reply::notice(&mut self.replies.out, level, notice);
    }

    fn copy_in(
        &mut self,
        header: CopyHeader,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let format = i8::from(header.binary);
        let formats = vec![i16::from(format); usize::from(header.column_count)];
        let response = CopyInResponse::new(format, header.column_count as i16, formats);
        reply::put(
            &mut self.replies.out,
            &PgWireBackendMessage::CopyInResponse(response),
        );
        if let Err(failure) = self.replies.flush() {
            let _ = self.fail(failure);
            return Err(SqlError::new(
                SqlState::CONNECTION_FAILURE,
                "connection lost before COPY from stdin",
            ));
        }
        while self.copy_frame(header.idle_max, take)?.is_continue() {}
        Ok(())
    }

    fn copy_out(&mut self, header: CopyHeader) {
        let format = i8::from(header.binary);
        let formats = vec![i16::from(format); usize::from(header.column_count)];
        let response = CopyOutResponse::new(format, header.column_count as i16, formats);
        reply::put(
            &mut self.replies.out,
            &PgWireBackendMessage::CopyOutResponse(response),
        );
    }

    fn copy_data(&mut self, data: &[u8]) -> ControlFlow<()> {
        if self.failure.is_some() {
            return ControlFlow::Break(());
        }
        reply::copy_data(&mut self.replies.out, data);
        self.flush_if_large()
    }

    fn copy_done(&mut self) {
        reply::copy_done(&mut self.replies.out);
    }

    fn move_portal(&mut self, name: &str, rows: Option<u64>) -> Option<Result<u64, SqlError>> {
        self.names.move_portal(name, rows)
    }

    fn close_portal(&mut self, name: Option<&str>) -> bool {
        match name {
            Some(name) => {
                self.names.portal(name).is_ok() && {
                    self.names.close_portal(name);
                    true
                }
            }
            None => {
                self.names.clear_portals();
                true
            }
        }
    }

    fn deallocate(&mut self, name: Option<&str>) -> bool {
        match name {
            Some(name) => self.names.close_statement(name),
            None => {
                self.names.close_all_statements();
                true
            }
        }
    }
}
