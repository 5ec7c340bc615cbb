//! The clients that are connected: what `pg_stat_ssl` shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weft_pg_catalog::ClientConnection;
pub use weft_pg_catalog::Encryption;
use weft_store::RoleId;

/// The connections of a database's clients; sessions of the embedding program are none.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    connections: Mutex<BTreeMap<u32, ClientConnection>>,
}

impl Clients {
    /// Enters the connection of a session.
    pub(crate) fn enter(self: &Arc<Self>, pid: u32, role: RoleId, encryption: Option<Encryption>) -> Entry {
        let connection = ClientConnection {
            pid,
            role,
            encryption,
        };
        self.connections.lock().insert(pid, connection);
        Entry {
            clients: Arc::clone(self),
            pid,
        }
    }

    /// All connections, by the number of their sessions.
    pub(crate) fn all(&self) -> Vec<ClientConnection> {
        self.connections.lock().values().cloned().collect()
    }
}

/// A connection's place among the clients; dropping it leaves.
#[derive(Debug)]
pub(crate) struct Entry {
    clients: Arc<Clients>,
    pid: u32,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.clients.connections.lock().remove(&self.pid);
    }
}
