//! A client that does what an input says, and judges what it is told.
//!
//! Right is a well-formed answer, or an orderly end of this one connection. A connection that ends says why
//! (FATAL), unless the client has said something that is no message, or is itself at its end; the system may
//! drop those last words where bytes of the client were never read (a reset).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::input::{Input, Step};
use super::messages::{PROTOCOL, query, startup};
use super::replies::Replies;
use crate::wire::Connection;

/// Nothing comes for so long: the server hangs.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// A statement of a hostile session ends by itself after this.
const STATEMENT_MS_MAX: u32 = 8_000;
/// So long it waits for a lock.
const LOCK_MS_MAX: u32 = 3_000;
/// How long a write may block before replies are read.
const WRITE_WAIT: Duration = Duration::from_millis(20);

/// How the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is open, or the client ended it.
    Open,
    /// The server closed it.
    Closed,
    /// It was reset.
    Reset,
}

/// What became of an input.
#[derive(Debug)]
pub struct Outcome {
    /// What is wrong.
    pub wrong: Option<String>,
    /// SQLSTATEs of errors, in their order.
    pub states: Vec<String>,
    /// How it ended.
    pub end: End,
    /// The longest that it waited for something.
    pub waited: Duration,
}

/// Does what the input says.
#[must_use]
pub fn run(input: &Input, address: SocketAddr) -> Outcome {
    let mut client = match Client::open(address) {
        Ok(client) => client,
        Err(error) => {
            return Outcome {
                wrong: Some(format!("cannot connect: {error}")),
                states: Vec::new(),
                end: End::Open,
                waited: Duration::ZERO,
            };
        }
    };
    let result = client.do_all(input);
    Outcome {
        wrong: result.err(),
        states: client.replies.states,
        end: client.end,
        waited: client.waited,
    }
}

struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
    replies: Replies,
    /// ReadyForQuery and CopyInResponse messages before what has been sent and not awaited yet: answers may
    /// come while it is being sent.
    before: Option<(usize, usize)>,
    end: End,
    waited: Duration,
    chunk: Vec<u8>,
}

impl Client {
    fn open(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_WAIT))?;
        Ok(Client {
            address,
            stream: Some(stream),
            replies: Replies::from_the_start(),
            before: None,
            end: End::Open,
            waited: Duration::ZERO,
            chunk: vec![0; 64 << 10],
        })
    }

    fn do_all(&mut self, input: &Input) -> Result<(), String> {
        if input.logs_in {
            let options = format!("-c statement_timeout={STATEMENT_MS_MAX} -c lock_timeout={LOCK_MS_MAX}");
            let settings = [
                ("user", "postgres"),
                ("database", "postgres"),
                ("options", &options),
            ];
            self.send(&startup(PROTOCOL, &settings))?;
            self.await_until("login", |replies| replies.ready > 0)?;
            if self.end != End::Open {
                return Err(format!("it was not let in: {:?}", self.replies.states));
            }
        }
        for step in &input.steps {
            self.step(step)?;
        }
        if self.stream.is_some() {
            self.end_sending();
            self.await_until("the end", |_| false)?;
        }
        // Whoever has not read for too long finds the end wherever the server stopped.
        let may_be_cut = matches!(input.steps.last(), Some(Step::MustEnd(states, _)) if states.is_empty());
        match self.end {
            End::Closed if !self.replies.is_whole() && !may_be_cut => {
                Err("it ended in the middle of a message".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Send(bytes) => self.send(bytes),
            Step::Trickle(bytes, piece, pause) => {
                for part in bytes.chunks(*piece) {
                    self.send(part)?;
                    std::thread::sleep(*pause);
                }
                Ok(())
            }
            Step::Await(count) => {
                let wanted = self.before_sending().0 + count;
                self.await_until("an answer", |replies| replies.ready >= wanted)?;
                self.must_say_why()
            }
            Step::AwaitCopy => {
                let (ready, copies) = self.before_sending();
                self.await_until("CopyInResponse", |replies| {
                    replies.copy_in > copies || replies.ready > ready
                })
            }
            Step::Pause(pause) => {
                std::thread::sleep(*pause);
                Ok(())
            }
            Step::Sip(piece, pause) => self.sip(*piece, *pause),
            Step::EndSending => {
                self.end_sending();
                Ok(())
            }
            Step::MustEnd(states, within) => self.must_end(states, *within),
            Step::MustSay(states) => match self.replies.states.last() {
                Some(state) if states.contains(&state.as_str()) => Ok(()),
                other => Err(format!("{other:?} where {states:?} had to come")),
            },
            Step::MustGoOn => self.must_go_on(),
            Step::Elsewhere(sql) => {
                let mut other = Connection::open(self.address, SILENCE_MAX)
                    .map_err(|error| format!("another connection: {error}"))?;
                other.execute("SET lock_timeout = '10s'")?;
                other
                    .execute(sql)
                    .map(|_| ())
                    .map_err(|why| format!("on another connection: {sql}: {why}"))
            }
            Step::Vanish => {
                self.stream = None;
                Ok(())
            }
        }
    }

    /// What had come before the first bytes that were not awaited.
    fn before_sending(&mut self) -> (usize, usize) {
        let now = (self.replies.ready, self.replies.copy_in);
        self.before.take().unwrap_or(now)
    }

    /// Sends bytes; where the server does not take them, what it says is read meanwhile.
    fn send(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        let now = (self.replies.ready, self.replies.copy_in);
        self.before.get_or_insert(now);
        let mut moved = Instant::now();
        while !bytes.is_empty() && self.end == End::Open {
            let Some(stream) = &mut self.stream else {
                return Ok(());
            };
            match stream.write(bytes) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    moved = Instant::now();
                }
                Err(error) if is_wait(&error) => {
                    if self.read(WRITE_WAIT)? {
                        moved = Instant::now();
                    }
                    if moved.elapsed() > SILENCE_MAX {
                        return Err(format!("it takes no bytes for {SILENCE_MAX:?}"));
                    }
                }
                // Its last words may still be there.
                Err(_) => return self.await_until("the end", |_| false),
            }
        }
        Ok(())
    }

    /// Reads what comes within `wait`; whether something did, if only the end.
    fn read(&mut self, wait: Duration) -> Result<bool, String> {
        let Some(stream) = &mut self.stream else {
            return Ok(false);
        };
        stream
            .set_read_timeout(Some(wait.max(Duration::from_millis(1))))
            .map_err(|error| error.to_string())?;
        match stream.read(&mut self.chunk) {
            Ok(0) => self.end = End::Closed,
            Ok(count) => self.replies.take(&self.chunk[..count])?,
            Err(error) if is_wait(&error) => return Ok(false),
            Err(_) => self.end = End::Reset,
        }
        Ok(true)
    }

    fn await_until(&mut self, what: &str, is_there: impl Fn(&Replies) -> bool) -> Result<(), String> {
        let mut heard = Instant::now();
        while self.end == End::Open && !is_there(&self.replies) {
            let silent = heard.elapsed();
            if silent > SILENCE_MAX {
                return Err(format!(
                    "nothing came for {SILENCE_MAX:?} while {what} was awaited"
                ));
            }
            if self.read(SILENCE_MAX - silent)? {
                self.waited = self.waited.max(heard.elapsed());
                heard = Instant::now();
            }
        }
        self.before = None;
        Ok(())
    }

    fn sip(&mut self, piece: usize, pause: Duration) -> Result<(), String> {
        let wanted = self.before_sending().0 + 1;
        let whole = std::mem::replace(&mut self.chunk, vec![0; piece]);
        while self.end == End::Open && self.replies.ready < wanted && self.read(SILENCE_MAX)? {
            std::thread::sleep(pause);
        }
        self.chunk = whole;
        self.must_say_why()
    }

    fn end_sending(&mut self) {
        if let Some(stream) = &self.stream {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    /// A connection that ended where an answer was awaited says why.
    fn must_say_why(&self) -> Result<(), String> {
        match self.end {
            End::Closed if !self.replies.fatal => Err(format!(
                "the connection ended without a word, after {:?}",
                self.replies.states
            )),
            _ => Ok(()),
        }
    }

    fn must_end(&mut self, states: &[&str], within: Duration) -> Result<(), String> {
        let until = Instant::now() + within;
        while self.end == End::Open {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("the server has not ended it within {within:?}"));
            }
            self.read(left)?;
        }
        let said = self.replies.states.last().map(String::as_str);
        if states.is_empty() || self.end == End::Reset || said.is_some_and(|said| states.contains(&said)) {
            return Ok(());
        }
        Err(format!("it was ended with {said:?} instead of {states:?}"))
    }

    fn must_go_on(&mut self) -> Result<(), String> {
        let marker = format!("goes on after {} bytes", self.replies.bytes);
        self.send(&query(format!("ROLLBACK; SELECT '{marker}'")))?;
        self.await_until("the session's next answer", |replies| {
            replies.last_value == marker.as_bytes()
        })?;
        match self.end {
            End::Open => Ok(()),
            end => Err(format!(
                "the session does not go on: {end:?} after {:?}",
                self.replies.states
            )),
        }
    }
}

fn is_wait(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
