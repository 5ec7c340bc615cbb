//! The threads that accept, one for each door, and the handle that stops them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::Socket as Stream;

use crate::backend::Backend;
use crate::config::{ServerConfig, ServerError};
use crate::connection;
use crate::door::Door;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::registry::Shared;
use crate::transport::Socket;

/// Rest after an accept that failed for want of something (file descriptors), which may be had again soon.
const ACCEPT_RETRY_WAIT: Duration = Duration::from_millis(50);

/// A running server. Dropping it stops it, waiting for its connections a short while.
pub struct Server {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    address: SocketAddr,
    acceptors: Vec<Acceptor>,
}

/// A door and the thread at it.
struct Acceptor {
    door: Arc<Door>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Listens on the configured address, and on the socket file if a directory for it is configured, and
    /// serves `backend` to whoever connects, until [`Self::stop`].
    ///
    /// # Errors
    /// If the address is not a loopback address, or it or the file cannot be had.
    pub fn start<B: Backend>(backend: Arc<B>, config: ServerConfig) -> Result<Server, ServerError> {
        let wanted = config.listen;
        if !wanted.ip().is_loopback() {
            return Err(ServerError::NotLoopback(wanted));
        }
        let door = Door::tcp(wanted).map_err(|error| ServerError::Listen(wanted, error))?;
        let address = door.tcp_address().unwrap_or(wanted);
        let mut doors = vec![door];
        if let Some(dir) = &config.socket_dir {
            let door = Door::local(dir, address.port())
                .map_err(|error| ServerError::ListenLocally(dir.clone(), error))?;
            doors.push(door);
        }
        let pool = Pool::start(config.stack_bytes).map_err(ServerError::Thread)?;
        let mut server = Server {
            shared: Arc::new(Shared::new(config)),
            pool,
            address,
            acceptors: Vec::new(),
        };
        for door in doors {
            // Without a thread for one of them, dropping the server stops the others.
            let acceptor = server.attend(door, &backend).map_err(ServerError::Thread)?;
            server.acceptors.push(acceptor);
        }
        Ok(server)
    }

    fn attend<B: Backend>(&self, door: Door, backend: &Arc<B>) -> io::Result<Acceptor> {
        let door = Arc::new(door);
        let (shared, pool, backend) = (self.shared.clone(), self.pool.clone(), backend.clone());
        let at = door.clone();
        let thread = thread::Builder::new()
            .name("weft-accept".to_owned())
            .spawn(move || accept_all(&at, &backend, &shared, &pool))?;
        Ok(Acceptor { door, thread })
    }

    /// The TCP address it listens on; the port is the real one if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its counters.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// Connections there are now, those in their handshake included.
    pub fn connection_count(&self) -> usize {
        self.shared.connection_count()
    }

    /// Stops accepting, cancels what runs, tells every client 57P01, and closes what is left after `grace`.
    /// Returns how many connections had to be closed so. The backend is no longer used by connections that
    /// ended in time.
    pub fn stop(mut self, grace: Duration) -> usize {
        self.stop_within(grace)
    }

    fn stop_within(&mut self, grace: Duration) -> usize {
        if self.shared.is_stopping() {
            return 0;
        }
        let left = self.shared.stop(grace);
        self.pool.stop();
        for Acceptor { door, thread } in self.acceptors.drain(..) {
            if door.close() {
                let _ = thread.join();
            }
        }
        left
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_within(Duration::from_secs(1));
    }
}

fn accept_all<B: Backend>(door: &Door, backend: &Arc<B>, shared: &Arc<Shared>, pool: &Arc<Pool>) {
    loop {
        let accepted = door.accept();
        if shared.is_stopping() {
            return;
        }
        match accepted {
            Ok(stream) => start_connection(stream, backend, shared, pool),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                ) => {}
            Err(_) => thread::sleep(ACCEPT_RETRY_WAIT),
        }
    }
}

/// Gives the connection a thread for its handshake. Without a place or a thread it is closed: the client sees
/// a refused connection.
fn start_connection<B: Backend>(stream: Stream, backend: &Arc<B>, shared: &Arc<Shared>, pool: &Arc<Pool>) {
    shared.metrics.connections_accepted.increment();
    let socket = Socket(Arc::new(stream));
    let Some(registration) = shared.register(socket.0.clone()) else {
        shared.metrics.connections_refused.increment();
        return;
    };
    let name = format!("weft-{}", registration.pid);
    let (backend, shared_here, pool) = (backend.clone(), shared.clone(), pool.clone());
    let spawned = thread::Builder::new()
        .name(name)
        .stack_size(shared.config.stack_bytes)
        .spawn(move || connection::begin(&*backend, &shared_here, &pool, socket, registration));
    if spawned.is_err() {
        shared.metrics.connections_refused.increment();
    }
}
