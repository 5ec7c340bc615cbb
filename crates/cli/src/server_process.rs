//! A `weft serve` child process: starting, waiting and killing.
//!
//! The child is killed by its process id, and only by the process that started it; dropping the
//! handle kills it too, so that no server outlives its test.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::serve::LISTENING;

/// How to start a server.
#[derive(Debug, Clone)]
pub struct ServerCommand {
    /// The `weft` binary.
    pub binary: PathBuf,
    /// The database directory.
    pub data: PathBuf,
    /// The port on 127.0.0.1; 0 selects a free one.
    pub port: u16,
    /// Further arguments of `weft serve`.
    pub extra: Vec<OsString>,
}

impl ServerCommand {
    /// A server of `binary` on `data`, on a free port.
    pub fn new(binary: &Path, data: &Path) -> Self {
        Self {
            binary: binary.to_path_buf(),
            data: data.to_path_buf(),
            port: 0,
            extra: Vec::new(),
        }
    }

    /// Starts the server. It is not ready yet: see [`ServerProcess::wait_until_ready`].
    pub fn start(&self) -> Result<ServerProcess, Failure> {
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--data").arg(&self.data);
        command
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.port))
            .args(&self.extra);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let what = || format!("starting {}", self.binary.display());
        let mut child = command.spawn().map_err(|e| Failure::doing(&what(), e))?;
        let (address_to, address_from) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if let Some(address) = line.strip_prefix(LISTENING).and_then(|text| text.parse().ok()) {
                        let _ = address_to.send(address);
                    }
                }
            });
        }
        let (last_to, last_words) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let _ = last_to.send(line);
                }
            });
        }
        Ok(ServerProcess {
            child,
            address_from,
            last_words,
            started: Instant::now(),
        })
    }
}

/// A running child.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address_from: mpsc::Receiver<SocketAddr>,
    last_words: mpsc::Receiver<String>,
    started: Instant,
}

impl ServerProcess {
    /// Waits until the server has recovered and listens; returns its address and the time since its
    /// start. An error contains the server's last output.
    pub fn wait_until_ready(&mut self, limit: Duration) -> Result<(SocketAddr, Duration), Failure> {
        match self.address_from.recv_timeout(limit) {
            Ok(address) => Ok((address, self.started.elapsed())),
            Err(RecvTimeoutError::Timeout) => Err(Failure::Environment(format!(
                "the server was not ready after {} s",
                limit.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self
                    .child
                    .wait()
                    .map_or_else(|e| e.to_string(), |status| status.to_string());
                // The reader of stderr ends with the child, so this does too.
                let words: Vec<String> = self.last_words.iter().collect();
                Err(Failure::Environment(format!(
                    "the server ended ({status}): {}",
                    words.join("; ")
                )))
            }
        }
    }

    /// Process id of the child.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the child is running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL: no handler runs, nothing more is written. Returns when the process is gone.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.end().map(drop)
    }

    /// Waits until the child exits on its own.
    pub fn wait(mut self) -> Result<ExitStatus, Failure> {
        self.child
            .wait()
            .map_err(|e| Failure::doing("waiting for the server", e))
    }

    fn end(&mut self) -> Result<ExitStatus, Failure> {
        // Killing a child that has already exited is not an error.
        self.child
            .kill()
            .map_err(|e| Failure::doing("killing the server", e))?;
        self.child
            .wait()
            .map_err(|e| Failure::doing("waiting for the killed server", e))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
