//! The listening socket, the thread that accepts, and the handle that stops them.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::backend::Backend;
use crate::config::{ServerConfig, ServerError};
use crate::connection;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::registry::Shared;
use crate::transport::Socket;

/// Rest after an accept that failed for want of something (file descriptors), which may be had again soon.
const ACCEPT_RETRY_WAIT: Duration = Duration::from_millis(50);
/// Time for the accepting thread to be woken by a connection to itself.
const WAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it, waiting for its connections a short while.
pub struct Server {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on the configured address and serves `backend` to whoever connects, until [`Self::stop`].
    ///
    /// # Errors
    /// If the address is not a loopback address or cannot be had.
    pub fn start<B: Backend>(backend: Arc<B>, config: ServerConfig) -> Result<Server, ServerError> {
        let wanted = config.listen;
        if !wanted.ip().is_loopback() {
            return Err(ServerError::NotLoopback(wanted));
        }
        let listener = TcpListener::bind(wanted).map_err(|error| ServerError::Listen(wanted, error))?;
        let address = listener
            .local_addr()
            .map_err(|error| ServerError::Listen(wanted, error))?;
        let pool = Pool::start(config.stack_bytes).map_err(ServerError::Thread)?;
        let shared = Arc::new(Shared::new(config));
        let acceptor = {
            let (shared, pool_here) = (shared.clone(), pool.clone());
            thread::Builder::new()
                .name("weft-accept".to_owned())
                .spawn(move || accept_all(&listener, &backend, &shared, &pool_here))
                .inspect_err(|_| pool.stop())
                .map_err(ServerError::Thread)?
        };
        Ok(Server {
            shared,
            pool,
            address,
            acceptor: Some(acceptor),
        })
    }

    /// The address it listens on; the port is the real one if 0 was asked for.
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
        let Some(acceptor) = self.acceptor.take() else {
            return 0;
        };
        let left = self.shared.stop(grace);
        self.pool.stop();
        // The acceptor waits for a connection; give it one.
        let woken = TcpStream::connect_timeout(&self.address, WAKE_TIMEOUT).is_ok();
        if woken {
            let _ = acceptor.join();
        }
        left
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_within(Duration::from_secs(1));
    }
}

fn accept_all<B: Backend>(listener: &TcpListener, backend: &Arc<B>, shared: &Arc<Shared>, pool: &Arc<Pool>) {
    loop {
        let accepted = listener.accept();
        if shared.is_stopping() {
            return;
        }
        match accepted {
            Ok((stream, _)) => start_connection(stream, backend, shared, pool),
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
fn start_connection<B: Backend>(stream: TcpStream, backend: &Arc<B>, shared: &Arc<Shared>, pool: &Arc<Pool>) {
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
