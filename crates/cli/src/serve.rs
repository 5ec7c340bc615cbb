//! `weft serve`: the server in the foreground, until Ctrl-C or SIGTERM.
//!
//! The line `listening on ADDRESS` on stdout announces that recovery is complete and clients may connect; a
//! process that starts the server as a child waits for it ([`crate::server_process`]). When it is told to
//! stop, it writes a checkpoint and an image of the indexes, so that the next start reads no rows; told
//! again, it ends at once. At SIGHUP it reads its certificate and key again; if they cannot be used, it says
//! so and keeps those that it has.

use std::io::{self, Write};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weft::{Database, Options, Units};
use weft_base::{Progress, RealDisk, SystemClock};
use weft_column::units::ScanEngine;
use weft_fabric::Rank;
use weft_offload::model::ModelParams;
use weft_ranks::{Config as NodeConfig, Node};
use weft_server::{Missing, Server, ServerConfig, ServerError, Tls, TlsFiles};

use crate::allocator::{GIVE_BACK_EVERY, Rest, give_back};
use crate::arguments::{ServeArguments, Switch, UnitChoice};
use crate::failure::Failure;
use crate::init;
use crate::opening;

/// Time for clients to finish when the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Exit status of a server that was told twice to stop, and so did not write its last checkpoint.
const SIGNALLED_TWICE: i32 = 130;
/// Connections that only superusers get, as in PostgreSQL.
const SUPERUSER_RESERVED: usize = 3;
/// The text before the address on stdout.
pub(crate) const LISTENING: &str = "listening on ";

/// What a server is told from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// To read its certificate and key again.
    Reload,
    /// To stop.
    Stop,
}

/// Where a server's orders come from.
pub(crate) struct Orders(mpsc::Receiver<Order>);

impl Orders {
    /// SIGHUP reloads. Ctrl-C or SIGTERM stops; a second one ends the process at once.
    pub(crate) fn by_signal() -> Result<Orders, Failure> {
        let (order, orders) = mpsc::channel();
        let mut stops = 0;
        on_signals(move |signal| {
            if signal == SIGHUP {
                // The receiver lives as long as the server.
                return order.send(Order::Reload).unwrap_or(());
            }
            stops += 1;
            if stops > 1 {
                eprintln!("stopping at once; the next start recovers from the log");
                std::process::exit(SIGNALLED_TWICE);
            }
            order.send(Order::Stop).unwrap_or(());
        })?;
        Ok(Orders(orders))
    }

    /// A byte on standard input reloads, its end stops. Signals are ignored: whoever started this process
    /// decides.
    pub(crate) fn by_input() -> Result<Orders, Failure> {
        let (order, orders) = mpsc::channel();
        on_signals(|_| {})?;
        crate::cluster::watch_input(order);
        Ok(Orders(orders))
    }

    /// Waits at most so long for an order.
    pub(crate) fn wait(&self, limit: Duration) -> Option<Order> {
        match self.0.recv_timeout(limit) {
            Ok(order) => Some(order),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            // The sender is gone, which never happens; stopping is safe.
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(Order::Stop),
        }
    }
}

/// Has a thread call `act` for each signal that comes.
fn on_signals(mut act: impl FnMut(i32) + Send + 'static) -> Result<(), Failure> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|e| Failure::doing("handling signals", e))?;
    thread::Builder::new()
        .name("weft-signals".to_owned())
        .spawn(move || signals.forever().for_each(&mut act))
        .map_err(|e| Failure::doing("handling signals", e))?;
    Ok(())
}

/// Refuses an address that other machines reach, where that cannot be made safe; the database itself is asked
/// for passwords later.
pub(crate) fn check_address(arguments: &ServeArguments, is_rank: bool) -> Result<(), Failure> {
    let missing = match is_rank {
        true => Missing::Accounts,
        false => Missing::Tls,
    };
    if arguments.listen.ip().is_loopback() || (!is_rank && arguments.tls_cert.is_some()) {
        return Ok(());
    }
    Err(Failure::Usage(
        ServerError::Exposed(arguments.listen, missing).to_string(),
    ))
}

/// The certificate and key of the arguments.
fn load_tls(arguments: &ServeArguments) -> Result<Option<Arc<Tls>>, Failure> {
    let (Some(certificate), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) else {
        return Ok(None);
    };
    let files = TlsFiles {
        certificate: certificate.clone(),
        key: key.clone(),
    };
    match Tls::load(files) {
        Ok(tls) => Ok(Some(Arc::new(tls))),
        Err(error) => Err(Failure::Environment(error.to_string())),
    }
}

fn reload(tls: Option<&Arc<Tls>>) {
    match tls.map(|tls| tls.reload()) {
        None => eprintln!("nothing to reload: the server has no certificate"),
        Some(Ok(())) => eprintln!("certificate and key reloaded"),
        Some(Err(error)) => eprintln!("the old certificate and key stay in use: {error}"),
    }
}

/// Opens the database, serves it, and returns after a signal.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    check_address(arguments, false)?;
    run_as(arguments, None, &Orders::by_signal()?)
}

/// Opens the database, serves it, alone or as a rank of a cluster, and returns when it is to stop.
pub(crate) fn run_as(arguments: &ServeArguments, rank: Option<Rank>, orders: &Orders) -> Result<(), Failure> {
    // Checked before the database is opened: a wrong address or certificate should not cost a recovery.
    check_address(arguments, rank.is_some())?;
    let tls = load_tls(arguments)?;
    let began = Instant::now();
    let options = options(arguments)?;
    let progress = Progress::default();
    let say = |line: &str| eprintln!("{line}");
    let database = opening::with_progress(&progress, opening::LINE_EVERY, say, || {
        let (disk, clock) = (Arc::new(RealDisk), Arc::new(SystemClock::new()));
        Database::open_with(disk, &arguments.data, clock, options, &progress)
    })?;
    opening::keep_private(&arguments.data)?;
    if rank.is_some() && database.has_accounts() {
        return Err(Failure::Usage(
            "a cluster has no accounts yet: this database has some".to_owned(),
        ));
    }
    if let Some(file) = &arguments.password_file {
        if rank.is_some() {
            let problem = "a cluster has no accounts yet: leave --password-file out";
            return Err(Failure::Usage(problem.to_owned()));
        }
        init::set_first_password(&database, file)?;
    }
    let config = server_config(arguments, tls.clone());
    let node = rank
        .map(|rank| Node::start(&rank, database.clone(), NodeConfig::default()))
        .transpose()
        .map_err(|error| Failure::Environment(error.to_string()))?;
    let server = match &node {
        Some(node) => Server::start(node.backend(), config),
        None => Server::start(Arc::new(database.clone()), config),
    };
    let server = server.map_err(|e| Failure::Environment(e.to_string()))?;
    announce(arguments, &server, &database, began)?;
    weft_base::idle::set_hook(give_back);
    let mut rest = Rest::default();
    loop {
        match orders.wait(GIVE_BACK_EVERY) {
            None => rest.tick(&server, &database),
            Some(Order::Reload) => reload(tls.as_ref()),
            Some(Order::Stop) => break,
        }
    }
    eprintln!("stopping");
    let closed = server.stop(STOP_GRACE);
    if closed > 0 {
        eprintln!("{closed} connection(s) closed");
    }
    if let Some(node) = node {
        node.stop();
    }
    let began = Instant::now();
    match database.checkpoint_for_stop() {
        Ok(is_imaged) => eprintln!(
            "checkpoint of batch {} written in {:.1} s{}",
            database.engine().boundary().0,
            began.elapsed().as_secs_f64(),
            if is_imaged {
                "; the next start reads no rows"
            } else {
                ""
            }
        ),
        // Everything is in the log.
        Err(error) => eprintln!("no checkpoint at the end, so the next start takes longer: {error}"),
    }
    Ok(())
}

fn server_config(arguments: &ServeArguments, tls: Option<Arc<Tls>>) -> ServerConfig {
    let mut config = ServerConfig {
        listen: arguments.listen,
        tls,
        socket_dir: arguments.socket_dir.clone(),
        connections_max: arguments.max_connections,
        // With few connections there is at least one for everybody.
        superuser_reserved: SUPERUSER_RESERVED.min(arguments.max_connections.saturating_sub(1)),
        ..ServerConfig::default()
    };
    if let Some(seconds) = arguments.bounds.startup_timeout {
        config.startup_timeout = Duration::from_secs(seconds);
    }
    if let Some(seconds) = arguments.bounds.write_timeout {
        config.write_timeout = Some(Duration::from_secs(seconds)).filter(|limit| !limit.is_zero());
    }
    config
}

fn options(arguments: &ServeArguments) -> Result<Options, Failure> {
    let mut options = Options::default();
    if let Some(workers) = arguments.workers {
        options.engine.workers = workers;
    }
    if let Some(megabytes) = arguments.checkpoint_mb {
        options.engine.checkpoint_every_bytes = megabytes.saturating_mul(1 << 20);
    }
    let bounds = &arguments.bounds;
    if let Some(seconds) = bounds.idle_with_locks_timeout {
        options.idle_with_locks_timeout = Duration::from_secs(seconds);
    }
    if let Some(seconds) = bounds.snapshot_age_max {
        options.engine.snapshot_age_max = Duration::from_secs(seconds);
    }
    if let Some(megabytes) = bounds.snapshot_mb_max {
        options.engine.snapshot_bytes_max = megabytes.saturating_mul(1 << 20);
    }
    if let Some(megabytes) = bounds.memory_mb {
        options.engine.memory_bytes = megabytes.saturating_mul(1 << 20);
    }
    if let Some(megabytes) = bounds.column_mb_max {
        options.engine.column_bytes_max = megabytes.saturating_mul(1 << 20);
    }
    if let Some(megabytes) = bounds.session_mb_max {
        options.session_memory_bytes = megabytes.saturating_mul(1 << 20);
        options.sessions_memory_bytes = options.sessions_memory_bytes.max(options.session_memory_bytes);
    }
    options.synchronous_commit = arguments.synchronous_commit == Switch::On;
    let compaction_model = || Units::model(ModelParams::default());
    options.engine.checkpoint.units = units(arguments.compaction_unit, compaction_model)?;
    options.scan_units = units(arguments.scan_unit, || ScanEngine::units(SCAN_UNIT_BYTES))?;
    Ok(options)
}

/// What a simulated scan engine keeps of packed columns.
const SCAN_UNIT_BYTES: u64 = 256 << 20;

fn units(choice: UnitChoice, model: impl Fn() -> io::Result<Units>) -> Result<Units, Failure> {
    let units = match choice {
        UnitChoice::Cpu => Ok(Units::Cpu),
        UnitChoice::Runtime => Units::runtime(),
        UnitChoice::Model => model(),
    };
    units.map_err(|error| Failure::doing("starting units", error))
}

fn announce(
    arguments: &ServeArguments,
    server: &Server,
    database: &Database,
    began: Instant,
) -> Result<(), Failure> {
    let address = server.address();
    eprintln!(
        "database {} open at batch {} after {:.1} s",
        arguments.data.display(),
        database.engine().boundary().0,
        began.elapsed().as_secs_f64()
    );
    eprintln!(
        "connect with: psql -h {} -p {} -U postgres postgres",
        address.ip(),
        address.port()
    );
    if let Some(dir) = &arguments.socket_dir {
        eprintln!(
            "or: psql -h {} -p {} -U postgres postgres",
            dir.display(),
            address.port()
        );
    }
    let mut out = std::io::stdout();
    writeln!(out, "{LISTENING}{address}")
        .and_then(|()| out.flush())
        .map_err(|e| Failure::doing("writing to stdout", e))
}
