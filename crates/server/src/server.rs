//! A running server: one accepting thread per listener, and the handle that stops them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::Socket as Stream;

use crate::backend::Backend;
use crate::config::{Missing, ServerConfig, ServerError};
use crate::connection;
use crate::listener::Listener;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::registry::Shared;
use crate::transport::Socket;

/// Pause after a failed accept, for example when file descriptors have run out.
const ACCEPT_RETRY_WAIT: Duration = Duration::from_millis(50);

/// A running server. Dropping it stops it and waits briefly for its connections.
pub struct Server {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    address: SocketAddr,
    acceptors: Vec<Acceptor>,
}

/// A listener and the thread that accepts from it.
struct Acceptor {
    listener: Arc<Listener>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Listens on the configured address, and on the socket file if a directory for it is configured, and
    /// serves `backend` to whoever connects, until [`Self::stop`].
    ///
    /// # Errors
    /// If other machines reach the address and TLS or passwords are missing, or it or the file cannot be had.
    pub fn start<B: Backend>(backend: Arc<B>, config: ServerConfig) -> Result<Server, ServerError> {
        let wanted = config.listen;
        if let Some(missing) = missing(&*backend, &config) {
            return Err(ServerError::Exposed(wanted, missing));
        }
        backend.set_serves_tls(config.tls.is_some());
        let listener = Listener::tcp(wanted).map_err(|error| ServerError::Listen(wanted, error))?;
        let address = listener.tcp_address().unwrap_or(wanted);
        let mut listeners = vec![listener];
        if let Some(dir) = &config.socket_dir {
            let listener = Listener::local(dir, address.port())
                .map_err(|error| ServerError::ListenLocally(dir.clone(), error))?;
            listeners.push(listener);
        }
        let pool = Pool::start(config.stack_bytes).map_err(ServerError::Thread)?;
        let mut server = Server {
            shared: Arc::new(Shared::new(config)),
            pool,
            address,
            acceptors: Vec::new(),
        };
        for listener in listeners {
            // If one of them gets no thread, dropping the server stops the others.
            let acceptor = server
                .start_acceptor(listener, &backend)
                .map_err(ServerError::Thread)?;
            server.acceptors.push(acceptor);
        }
        Ok(server)
    }

    fn start_acceptor<B: Backend>(&self, listener: Listener, backend: &Arc<B>) -> io::Result<Acceptor> {
        let listener = Arc::new(listener);
        let (shared, pool, backend) = (self.shared.clone(), self.pool.clone(), backend.clone());
        let at = listener.clone();
        let thread = thread::Builder::new()
            .name("weft-accept".to_owned())
            .spawn(move || accept_all(&at, &backend, &shared, &pool))?;
        Ok(Acceptor { listener, thread })
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

    /// Wakes the thread that waits for bytes, so that it sees that the process rests
    /// ([`weft_base::idle::set_resting`]).
    pub fn rest(&self) {
        self.pool.wake();
    }

    /// Stops accepting, cancels running statements, sends every client 57P01, and after `grace` closes the
    /// connections that are left. Returns how many had to be closed. Connections that ended in time no longer
    /// use the backend.
    pub fn stop(mut self, grace: Duration) -> usize {
        self.stop_within(grace)
    }

    fn stop_within(&mut self, grace: Duration) -> usize {
        if self.shared.is_stopping() {
            return 0;
        }
        let left = self.shared.stop(grace);
        self.pool.stop();
        for Acceptor { listener, thread } in self.acceptors.drain(..) {
            if listener.close() {
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

/// What the server lacks for its address.
fn missing<B: Backend>(backend: &B, config: &ServerConfig) -> Option<Missing> {
    if config.listen.ip().is_loopback() {
        return None;
    }
    match (&config.tls, backend.demands_passwords()) {
        (None, _) => Some(Missing::Tls),
        (Some(_), false) => Some(Missing::Passwords),
        (Some(_), true) => None,
    }
}

fn accept_all<B: Backend>(listener: &Listener, backend: &Arc<B>, shared: &Arc<Shared>, pool: &Arc<Pool>) {
    loop {
        let accepted = listener.accept();
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

/// Starts a thread for the connection's handshake. If there are too many connections, or no thread, the
/// socket is closed and the client sees a refused connection.
fn start_connection<B: Backend>(stream: Stream, backend: &Arc<B>, shared: &Arc<Shared>, pool: &Arc<Pool>) {
    shared.metrics.connections_accepted.increment();
    let socket = Socket::new(Arc::new(stream));
    let Some(registration) = shared.register(socket.stream().clone()) else {
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
