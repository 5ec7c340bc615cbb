//! The pool, with connections that wait, work and are put aside as single bytes tell them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

/// Answers each byte with itself, after doing what the byte says.
struct Echo {
    socket: Arc<Stream>,
    /// Replies that waited for the log and have left, of all connections.
    synced: Arc<AtomicUsize>,
    /// So many should have, by the end of the round.
    expected: Arc<AtomicUsize>,
    held: bool,
    /// Replies to be sent together with those of others; `g` ends the connection there, `k` does not leave
    /// before the connection is served again.
    to_send: Vec<u8>,
    waker: Option<TaskWaker>,
    /// Says `p` when it is served again.
    parked: bool,
}

impl Echo {
    fn say(&self, byte: u8) {
        (&*self.socket).write_all(&[byte]).unwrap();
    }

    /// Until all replies of the round that wait for the log have left. A panic would end the thread.
    fn wait_for_synced(&self, pause: fn()) {
        let began = Instant::now();
        while self.synced.load(SeqCst) < self.expected.load(SeqCst)
            && began.elapsed() < Duration::from_secs(10)
        {
            pause();
        }
        if began.elapsed() >= Duration::from_secs(10) {
            self.say(b'!');
        }
    }
}

impl Serve for Echo {
    fn serve(&mut self, reason: WakeReason) -> Next {
        if std::mem::take(&mut self.held) {
            self.say(b's');
            self.synced.fetch_add(1, SeqCst);
        }
        if std::mem::take(&mut self.parked) {
            self.say(b'p');
        }
        if self.to_send.contains(&b'k') {
            (&*self.socket).write_all(&self.to_send).unwrap();
            self.to_send.clear();
        }
        self.socket.set_nonblocking(true).unwrap();
        let mut byte = [0];
        match (&*self.socket).read(&mut byte) {
            Ok(1) => {}
            Ok(_) => return Next::End,
            Err(_) if reason.timed_out => {
                self.say(b'e');
                return Next::End;
            }
            Err(_) if self.to_send.is_empty() => return Next::Wait(None),
            Err(_) => return Next::Send(None),
        }
        let long = Duration::from_millis(400);
        match byte[0] {
            b'w' => blocking::section(|| thread::sleep(long)),
            b'c' => {
                let began = Instant::now();
                while began.elapsed() < long {
                    std::hint::spin_loop();
                }
            }
            b'p' => {
                self.parked = true;
                let waker = self.waker.clone().unwrap();
                // Before, while and after this thread goes back to the pool.
                let delay = Duration::from_micros(self.synced.fetch_add(1, SeqCst) as u64 % 3 * 100);
                thread::spawn(move || {
                    thread::sleep(delay);
                    waker.wake();
                });
                return Next::Wait(None);
            }
            b's' => {
                self.held = true;
                return Next::Sync;
            }
            b'S' => blocking::section(|| self.wait_for_synced(|| thread::sleep(Duration::from_millis(1)))),
            b'C' => self.wait_for_synced(std::hint::spin_loop),
            b'h' | b'g' => {
                self.to_send.push(byte[0]);
                return Next::More;
            }
            b'k' => {
                self.to_send.push(byte[0]);
                return Next::Send(None);
            }
            b'l' => {
                self.say(byte[0]);
                return Next::Wait(Some(Duration::from_millis(20)));
            }
            _ => {}
        }
        self.say(byte[0]);
        Next::More
    }

    fn send(&mut self) -> Sent {
        assert!(!self.to_send.is_empty());
        if self.to_send.contains(&b'k') {
            return Sent::Some;
        }
        let replies = std::mem::take(&mut self.to_send);
        (&*self.socket).write_all(&replies).unwrap();
        self.synced.fetch_add(replies.len(), SeqCst);
        match replies.contains(&b'g') {
            true => Sent::Never,
            false => Sent::All,
        }
    }

    fn set_waker(&mut self, waker: TaskWaker) {
        self.waker = Some(waker);
    }

    fn await_log(&mut self) {
        assert!(self.held);
        blocking::section(|| thread::sleep(Duration::from_millis(1)));
    }
}

struct Bench {
    pool: Arc<Pool>,
    listener: TcpListener,
    synced: Arc<AtomicUsize>,
    expected: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            pool: Pool::start(256 << 10).unwrap(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            synced: Arc::default(),
            expected: Arc::default(),
        }
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let socket = Arc::new(Stream::from(self.listener.accept().unwrap().0));
        self.pool.adopt(socket.clone(), self.echo(socket), None).unwrap();
        client
    }

    fn echo(&self, socket: Arc<Stream>) -> Box<Echo> {
        Box::new(Echo {
            socket,
            synced: self.synced.clone(),
            expected: self.expected.clone(),
            held: false,
            to_send: Vec::new(),
            waker: None,
            parked: false,
        })
    }
}

fn ask(client: &mut TcpStream, byte: u8) -> u8 {
    client.write_all(&[byte]).unwrap();
    answer(client)
}

fn answer(client: &mut TcpStream) -> u8 {
    let mut byte = [0];
    client.read_exact(&mut byte).unwrap();
    byte[0]
}

#[test]
fn waits_and_work_of_some_do_not_stop_the_others() {
    let bench = Bench::new();
    let mut others: Vec<TcpStream> = (0..8).map(|_| bench.client()).collect();
    let mut here = bench.client();
    for work in [b'w', b'c'] {
        others
            .iter_mut()
            .for_each(|other| other.write_all(&[work]).unwrap());
        let began = Instant::now();
        for _ in 0..20 {
            assert_eq!(ask(&mut here, b'x'), b'x');
        }
        if work == b'w' {
            assert!(
                began.elapsed() < Duration::from_millis(300),
                "{:?}",
                began.elapsed()
            );
        }
        others
            .iter_mut()
            .for_each(|other| assert_eq!(answer(other), work));
    }
    drop((others, here));
    bench.pool.stop();
}

/// Whoever waits for the replies of three other connections, in a wait that it tells of or at work, gets
/// them. `kind` is how those are sent.
fn replies_leave_whatever_the_others_do(kind: u8) {
    let bench = Bench::new();
    let mut clients: Vec<TcpStream> = (0..6).map(|_| bench.client()).collect();
    for round in 0..200 {
        let waits = if round % 2 == 0 { b'S' } else { b'C' };
        let kinds = [waits, kind, b'x', waits, kind, kind];
        bench.expected.fetch_add(3, SeqCst);
        for (client, kind) in clients.iter_mut().zip(kinds) {
            client.write_all(&[kind]).unwrap();
        }
        for (client, kind) in clients.iter_mut().zip(kinds) {
            assert_eq!(answer(client), kind);
        }
    }
    drop(clients);
    bench.pool.stop();
}

#[test]
fn replies_waiting_for_the_log_are_sent_whatever_the_others_do() {
    replies_leave_whatever_the_others_do(b's');
}

#[test]
fn replies_released_together_are_sent_whatever_the_others_do() {
    replies_leave_whatever_the_others_do(b'h');
}

#[test]
fn messages_that_arrive_while_a_reply_is_held_are_answered() {
    let bench = Bench::new();
    let mut clients: Vec<TcpStream> = (0..3).map(|_| bench.client()).collect();
    for round in 0..300 {
        for client in &mut clients {
            client.write_all(b"h").unwrap();
        }
        if round % 2 == 0 {
            thread::sleep(Duration::from_micros(20 * (round % 7)));
        }
        for client in &mut clients {
            client.write_all(b"xh").unwrap();
        }
        for client in &mut clients {
            let mut answers = [answer(client), answer(client), answer(client)];
            answers.sort_unstable();
            assert_eq!(answers, *b"hhx");
        }
    }
    drop(clients);
    bench.pool.stop();
}

#[test]
fn bytes_the_socket_did_not_take_are_sent_at_the_next_service() {
    let bench = Bench::new();
    let (mut one, mut other) = (bench.client(), bench.client());
    for _ in 0..200 {
        one.write_all(b"k").unwrap();
        assert_eq!(ask(&mut other, b'h'), b'h');
        assert_eq!(answer(&mut one), b'k');
    }
    drop((one, other));
    bench.pool.stop();
}

#[test]
fn a_reply_that_cannot_be_sent_ends_its_connection_alone() {
    let bench = Bench::new();
    let (mut one, mut other) = (bench.client(), bench.client());
    assert_eq!(ask(&mut one, b'g'), b'g');
    assert_eq!(one.read(&mut [0]).unwrap(), 0, "closed");
    assert_eq!(ask(&mut other, b'h'), b'h');
    drop(other);
    bench.pool.stop();
    let until = Instant::now() + Duration::from_secs(10);
    while bench.pool.thread_count() > 0 {
        assert!(Instant::now() < until, "threads stay");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_waker_has_a_connection_served_from_any_thread() {
    let bench = Bench::new();
    let mut clients: Vec<TcpStream> = (0..3).map(|_| bench.client()).collect();
    for _ in 0..300 {
        clients
            .iter_mut()
            .for_each(|client| client.write_all(b"p").unwrap());
        clients
            .iter_mut()
            .for_each(|client| assert_eq!(answer(client), b'p'));
    }
    drop(clients);
    bench.pool.stop();
}

#[test]
fn a_timeout_ends_only_an_idle_wait() {
    let bench = Bench::new();
    let mut client = bench.client();
    // Longer than the watch stays awake without work.
    thread::sleep(Duration::from_millis(150));
    assert_eq!(ask(&mut client, b'l'), b'l');
    assert_eq!(ask(&mut client, b'x'), b'x', "a message in time lifts the limit");
    thread::sleep(Duration::from_millis(60));
    assert_eq!(ask(&mut client, b'x'), b'x');
    assert_eq!(ask(&mut client, b'l'), b'l');
    assert_eq!(answer(&mut client), b'e');
    bench.pool.stop();
}

#[test]
fn threads_end_with_the_last_connection_after_the_stop() {
    let bench = Bench::new();
    let mut clients: Vec<TcpStream> = (0..20).map(|_| bench.client()).collect();
    clients
        .iter_mut()
        .for_each(|client| client.write_all(b"w").unwrap());
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(answer(client), b'w'));
    assert!(bench.pool.thread_count() > 10, "each wait had its thread");
    bench.pool.stop();
    assert_eq!(ask(&mut clients[0], b'x'), b'x', "who is there is served");
    drop(clients);
    let until = Instant::now() + Duration::from_secs(10);
    while bench.pool.thread_count() > 0 {
        assert!(Instant::now() < until, "threads stay");
        thread::sleep(Duration::from_millis(5));
    }
    let client = TcpStream::connect(bench.listener.local_addr().unwrap()).unwrap();
    let refused = bench.pool.adopt(
        Arc::new(client.into()),
        bench.echo(Arc::new(bench.listener.accept().unwrap().0.into())),
        None,
    );
    assert!(refused.is_err());
}
