//! Servers of our own: a PostgreSQL made by `initdb` in a temporary folder, and a Weft on a fresh database.
//!
//! Each listens on a free port of the loopback address and is ended by its process id.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::wire::Connection;

/// A server that ends with this value.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    folder: tempfile::TempDir,
    /// PostgreSQL and Weft both stop on this signal without waiting for clients.
    signal: &'static str,
    /// Weft's binary and the words after `weft serve`, to start it again.
    started_as: Option<(PathBuf, Vec<String>)>,
}

/// Why a server could not be started.
pub type StartError = String;

impl Server {
    /// A new PostgreSQL: locale C, UTF-8, time zone UTC, no waiting for disks.
    ///
    /// # Errors
    /// When PostgreSQL 15 is not installed, or does not start.
    pub fn postgres() -> Result<Self, StartError> {
        let programs = postgres_programs()?;
        let folder = folder()?;
        let data = folder.path().join("data");
        let superuser = user_id() == Some(0);
        if superuser {
            run(Command::new("chown").arg("postgres").arg(folder.path()))?;
        }
        let mut make = as_postgres(superuser, &programs.join("initdb"));
        make.arg("--pgdata").arg(&data);
        make.args([
            "--locale=C",
            "--encoding=UTF8",
            "--auth=trust",
            "--username=postgres",
            "--no-sync",
        ]);
        run(&mut make)?;
        let port = free_port()?;
        let mut start = as_postgres(superuser, &programs.join("postgres"));
        start.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", folder.path().display()),
            "timezone=UTC".to_owned(),
            "log_timezone=UTC".to_owned(),
            "fsync=off".to_owned(),
            "max_connections=20".to_owned(),
        ] {
            start.args(["-c", &setting]);
        }
        let log = fs::File::create(folder.path().join("log")).map_err(|e| e.to_string())?;
        let child = start
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("postgres: {e}"))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Self {
            address,
            child,
            folder,
            signal: "-INT",
            started_as: None,
        };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// A new Weft, started from the binary at `program`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn weft(program: &Path) -> Result<Self, StartError> {
        Self::weft_with(program, &[])
    }

    /// A new Weft with these words after `weft serve`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn weft_with(program: &Path, words: &[&str]) -> Result<Self, StartError> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self::weft_in(folder()?, program.to_owned(), words)
    }

    /// Stops this Weft and starts it again on its data.
    ///
    /// # Errors
    /// When it is no Weft, or does not start.
    pub fn restarted(mut self) -> Result<Self, StartError> {
        self.stop();
        let folder = std::mem::replace(&mut self.folder, folder()?);
        let (program, words) = self.started_as.take().ok_or("only a Weft is started again")?;
        Self::weft_in(folder, program, words)
    }

    fn weft_in(folder: tempfile::TempDir, program: PathBuf, words: Vec<String>) -> Result<Self, StartError> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(folder.path().join("log"))
            .map_err(|e| e.to_string())?;
        let mut child = Command::new(&program)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"))
            .args(&words)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let said = child.stdout.take().map(BufReader::new);
        let address = said
            .into_iter()
            .flat_map(BufRead::lines)
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ").and_then(|a| a.parse().ok()));
        let mut server = Self {
            address: address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0))),
            child,
            folder,
            signal: "-TERM",
            started_as: Some((program, words)),
        };
        if address.is_none() {
            return Err(format!("weft did not start: {}", server.last_words()));
        }
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Its process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The file that it writes its log to.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Whether the process still runs.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of what it wrote to its log.
    #[must_use]
    pub fn last_words(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    fn wait_until_it_answers(&mut self) -> Result<(), StartError> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let why = match Connection::open(self.address, Duration::from_secs(5)) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if !self.lives() || Instant::now() > until {
                return Err(format!(
                    "the server does not answer: {why}: {}",
                    self.last_words()
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Server {
    /// Tells it to stop, and waits until it has; one that does not is killed.
    fn stop(&mut self) {
        if !self.lives() {
            return;
        }
        let id = self.child.id().to_string();
        let asked = Command::new("kill").args([self.signal, &id]).status();
        let until = Instant::now() + Duration::from_secs(10);
        while asked.is_ok() && self.lives() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.lives() {
            // One that does not stop when it is told to.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn folder() -> Result<tempfile::TempDir, StartError> {
    tempfile::Builder::new()
        .prefix("sql-compare")
        .tempdir()
        .map_err(|e| e.to_string())
}

/// The folder of PostgreSQL 15's programs: Debian's, or whatever the path has.
fn postgres_programs() -> Result<PathBuf, StartError> {
    let debian = PathBuf::from("/usr/lib/postgresql/15/bin");
    if debian.join("postgres").is_file() {
        return Ok(debian);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
        .ok_or_else(|| "PostgreSQL 15 is not installed".to_owned())
}

/// PostgreSQL refuses to run as the superuser: then it runs as the user `postgres`, under its own process id.
fn as_postgres(superuser: bool, program: &Path) -> Command {
    if !superuser {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--init-groups"])
        .arg(program)
        .current_dir("/");
    command
}

fn user_id() -> Option<u32> {
    let out = Command::new("id").arg("-u").output().ok()?;
    String::from_utf8(out.stdout).ok()?.trim().parse().ok()
}

fn free_port() -> Result<u16, StartError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|e| e.to_string())?;
    listener.local_addr().map(|a| a.port()).map_err(|e| e.to_string())
}

fn run(command: &mut Command) -> Result<(), StartError> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if out.status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&out.stderr)))
    }
}
