//! Listening sockets: a TCP address, or a socket file as local PostgreSQL clients expect it.
//!
//! A socket file is `DIR/.s.PGSQL.PORT`, which is where `psql -h DIR -p PORT` looks. Next to it is
//! `.s.PGSQL.PORT.lock`, created, read and removed as PostgreSQL does: its first line is the process id of
//! the server that owns the port. The server also holds a lock (flock) on it for as long as it lives, so a
//! file left behind by a killed server can be told from one in use. Only the user that runs the server can
//! connect to the socket file (mode 0700), because there is no authentication yet.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Time for a connection to a socket on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A listening socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Listener {
    listener: Socket,
    address: SockAddr,
    _file: Option<SocketFile>,
}

impl Listener {
    /// Listens on a TCP address; port 0 takes a free one.
    ///
    /// # Errors
    /// Whatever the system says, such as that the address is in use.
    pub fn tcp(wanted: SocketAddr) -> io::Result<Listener> {
        let listener = Socket::new(Domain::for_address(wanted), Type::STREAM, None)?;
        // A port whose last connections are still closing can be had again at once.
        listener.set_reuse_address(true)?;
        if wanted.ip().is_loopback() {
            // There is no congestion on loopback, and congestion control by timers (BBR) costs about 0.3 us
            // per reply. Connections inherit the option; an error is ignored.
            let _ = rustix::net::sockopt::set_tcp_congestion(&listener, "reno");
        }
        listener.bind(&wanted.into())?;
        listener.listen(BACKLOG)?;
        Ok(Listener {
            address: listener.local_addr()?,
            listener,
            _file: None,
        })
    }

    /// Listens on the socket file of `port` in `dir`.
    ///
    /// # Errors
    /// `AddrInUse` if another server has it; `InvalidInput` if the path is too long for a socket; or whatever
    /// the system says.
    pub fn local(dir: &Path, port: u16) -> io::Result<Listener> {
        let path = dir.join(format!(".s.PGSQL.{port}"));
        let address = SockAddr::unix(&path)?;
        let file = SocketFile::take(path, &address)?;
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        listener.bind(&address)?;
        // Before it listens: until then nobody can connect.
        fs::set_permissions(&file.path, Permissions::from_mode(0o700))?;
        listener.listen(BACKLOG)?;
        Ok(Listener {
            listener,
            address,
            _file: Some(file),
        })
    }

    /// The TCP address, with the real port; None for a file.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.address.as_socket()
    }

    /// Waits for a client.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn accept(&self) -> io::Result<Socket> {
        Ok(self.listener.accept()?.0)
    }

    /// Makes a thread that waits in [`Self::accept`] return, with an error or a connection; no further client
    /// is accepted. False if that was not possible.
    pub fn close(&self) -> bool {
        // Shutting the socket down ends the wait on Linux, even if the file's name is gone; elsewhere a
        // connection does.
        let is_shut = self.listener.shutdown(Shutdown::Both).is_ok();
        let connection = Socket::new(self.address.domain(), Type::STREAM, None);
        is_shut
            || connection.is_ok_and(|socket| socket.connect_timeout(&self.address, CONNECT_TIMEOUT).is_ok())
    }
}

/// The name of a socket in the file system, and the lock on it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    lock_path: PathBuf,
    /// The lock ends when it is closed.
    lock: File,
}

impl SocketFile {
    /// Takes the name; removes a file that a dead server left there.
    fn take(path: PathBuf, address: &SockAddr) -> io::Result<SocketFile> {
        let mut lock_path = path.clone().into_os_string();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let mut lock = lock_file(&path, &lock_path)?;
        // PostgreSQL does not lock its lock file but answers on the socket; only a refused connection means
        // that it is dead.
        match Socket::new(Domain::UNIX, Type::STREAM, None)?.connect_timeout(address, CONNECT_TIMEOUT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(&path)?,
            _ => return Err(in_use(&path, "another server")),
        }
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        Ok(SocketFile {
            path,
            lock_path,
            lock,
        })
    }
}

/// Opens and locks the lock file; it still has that name when this returns.
fn lock_file(path: &Path, lock_path: &Path) -> io::Result<File> {
    loop {
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Do not write through a symbolic link that somebody else put there.
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(lock_path)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&lock, lock_path) => return Ok(lock),
            // A server that ended in the meantime has removed the file.
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut owner = String::new();
                // An unreadable process id is only missing from the message.
                let _ = lock.read_to_string(&mut owner);
                let pid = owner.lines().next().unwrap_or("unknown");
                return Err(in_use(path, &format!("the server of process {pid}")));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the open file is the one that has the name.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

fn in_use(path: &Path, who: &str) -> io::Error {
    let text = format!("{} is in use by {who}", path.display());
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Both are removed while the lock is held, unless somebody has replaced them.
        if is_at(&self.lock, &self.lock_path) {
            // The next server takes over what cannot be removed.
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(&self.lock_path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".s.PGSQL.5433");
        (dir, path)
    }

    #[test]
    fn a_socket_file_admits_its_user_and_is_removed_with_its_listener() {
        let (dir, path) = place();
        let listener = Listener::local(dir.path(), 5433).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        listener.accept().unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "nobody else may connect");
        assert!(listener.close());
        assert!(listener.accept().is_err() && UnixStream::connect(&path).is_err());
        drop(listener);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_in_use_is_refused_and_a_stale_one_replaced() {
        let (dir, path) = place();
        let listener = Listener::local(dir.path(), 5433).unwrap();
        let error = Listener::local(dir.path(), 5433).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let own = format!("the server of process {}", std::process::id());
        assert!(error.to_string().ends_with(&own), "{error}");
        assert!(Listener::local(dir.path(), 5434).is_ok(), "another port is free");
        // As kill -9 leaves it.
        drop(listener);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        fs::write(dir.path().join(".s.PGSQL.5433.lock"), "1\n").unwrap();
        assert!(UnixStream::connect(&path).is_err());
        let listener = Listener::local(dir.path(), 5433).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(listener);
        // A link in the lock file's place is not followed.
        let treasure = dir.path().join("treasure");
        fs::write(&treasure, "gold").unwrap();
        std::os::unix::fs::symlink(&treasure, dir.path().join(".s.PGSQL.5433.lock")).unwrap();
        assert!(Listener::local(dir.path(), 5433).is_err());
        assert_eq!(fs::read_to_string(&treasure).unwrap(), "gold");
    }

    #[test]
    fn a_server_that_answers_without_a_lock_keeps_its_file() {
        let (dir, path) = place();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = Listener::local(dir.path(), 5433).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn bad_places_are_errors() {
        let (dir, _) = place();
        let long = dir.path().join("d".repeat(120));
        assert_eq!(
            Listener::local(&long, 5433).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        let absent = Listener::local(&dir.path().join("absent"), 5433).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
