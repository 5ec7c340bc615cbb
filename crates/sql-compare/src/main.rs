//! `sql-compare random`, `records`, `limits`, `interrupts`, `sessions`, `hostile`: see the library's head.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use weft_sql_compare::campaign::Campaign;
use weft_sql_compare::catalog::Catalog;
use weft_sql_compare::generate::Mix;
use weft_sql_compare::hostile;
use weft_sql_compare::interrupts;
use weft_sql_compare::pair::{Pair, WeftAt};
use weft_sql_compare::records::author::author;
use weft_sql_compare::records::{limits, run};
use weft_sql_compare::report::{Report, reasons};
use weft_sql_compare::server::Server;
use weft_sql_compare::wire::Connection;
use weft_sql_compare::{advisory, sessions};

/// Weft held against PostgreSQL.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Random statements, compared on both servers.
    Random(Random),
    /// Recorded answers, against Weft and, where there is one, PostgreSQL.
    Records(Records),
    /// Long and deep statements, against Weft.
    Limits(Servers),
    /// Statements that must end when their time is up or their client asks for it.
    Interrupts(Interrupts),
    /// Random statements of three sessions that lock rows and wait for none, and of three with advisory
    /// locks, compared on both servers.
    Sessions(Sessions),
    /// Malformed, deep, long, oversized and slow inputs of a server that another client uses meanwhile.
    Hostile(Hostile),
}

#[derive(Debug, Args)]
struct Hostile {
    /// The server's binary; it is started on a temporary folder.
    #[arg(long)]
    weft_bin: PathBuf,
    /// How many inputs.
    #[arg(long, default_value_t = 2000)]
    inputs: usize,
    /// Seed of the generators.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run the input with this number alone.
    #[arg(long)]
    only: Option<usize>,
    /// Milliseconds that an answer to the client beside may take; 1000 where the server is optimised.
    #[arg(long, default_value_t = 5000)]
    canary_ms_max: u64,
    /// Megabytes of memory that the server may take at any time.
    #[arg(long, default_value_t = 6144)]
    rss_mb_max: usize,
    /// Megabytes that may stay when all clients have gone, beyond what there was before.
    #[arg(long, default_value_t = 600)]
    rss_mb_left: usize,
}

#[derive(Debug, Args)]
struct Records {
    #[command(flatten)]
    servers: Servers,
    /// Folder or file of records.
    folder: PathBuf,
    /// Write PostgreSQL's answers into the files.
    #[arg(long)]
    record: bool,
    /// Write the files of systematic records anew before recording.
    #[arg(long, requires = "record")]
    author: bool,
    /// Write the list of what Weft does not support anew.
    #[arg(long)]
    accept_unsupported: bool,
    /// How many failures are printed.
    #[arg(long, default_value_t = 50)]
    show: usize,
}

#[derive(Debug, Args)]
struct Interrupts {
    #[command(flatten)]
    servers: Servers,
    /// Those alone whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Each by statement_timeout and by request, and print how late it ended.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
struct Sessions {
    #[command(flatten)]
    servers: Servers,
    /// Seed of the generator.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many statements.
    #[arg(long, default_value_t = 2000)]
    statements: usize,
}

#[derive(Debug, Args)]
struct Servers {
    /// Address of a PostgreSQL that trusts user postgres; its tables a, b, e, k and w are replaced.
    #[arg(long)]
    postgres: Option<SocketAddr>,
    /// Start a PostgreSQL in a temporary folder.
    #[arg(long, conflicts_with = "postgres")]
    start_postgres: bool,
    /// Address of a Weft.
    #[arg(long)]
    weft: Option<SocketAddr>,
    /// Start a Weft from this binary, on a temporary folder.
    #[arg(long, conflicts_with = "weft")]
    weft_bin: Option<PathBuf>,
}

impl Servers {
    /// PostgreSQL's address, and the server if it is ours; nothing when none was asked for.
    fn postgres(&self) -> Result<Option<(SocketAddr, Option<Server>)>, String> {
        if self.start_postgres {
            let server = Server::postgres()?;
            return Ok(Some((server.address, Some(server))));
        }
        Ok(self.postgres.map(|address| (address, None)))
    }

    fn weft(&self) -> Option<WeftAt> {
        match (&self.weft_bin, self.weft) {
            (Some(program), _) => Some(WeftAt::Program(program.clone())),
            (None, Some(address)) => Some(WeftAt::Address(address)),
            (None, None) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MixName {
    All,
    Expressions,
    Queries,
    Changes,
}

#[derive(Debug, Args)]
struct Random {
    #[command(flatten)]
    servers: Servers,
    /// Seed of the generator.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many statements.
    #[arg(long, default_value_t = 2000)]
    statements: usize,
    /// Which kinds of statements.
    #[arg(long, value_enum, default_value = "all")]
    mix: MixName,
    /// How many differences are cut down to their smallest statement.
    #[arg(long, default_value_t = 300)]
    minimise: usize,
    /// File for the report; standard output otherwise.
    #[arg(long)]
    report: Option<PathBuf>,
    /// The document that lists permitted differences.
    #[arg(long, default_value = "docs/differences.md")]
    permitted: PathBuf,
    /// Only wrong answers fail: errors where PostgreSQL answers, answers where it fails, and other errors are
    /// shown and counted.
    #[arg(long)]
    answers: bool,
    /// A setting of both sessions, as `TimeZone = 'Europe/Berlin'`; may be repeated.
    #[arg(long)]
    set: Vec<String>,
    /// Print each statement.
    #[arg(long)]
    verbose: bool,
    /// Run the statement with this number alone.
    #[arg(long)]
    only: Option<usize>,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Random(arguments) => random(&arguments),
        Command::Records(arguments) => recorded(&arguments),
        Command::Limits(servers) => limited(&servers),
        Command::Interrupts(arguments) => interrupted(&arguments),
        Command::Sessions(arguments) => at_once(&arguments),
        Command::Hostile(arguments) => beset(arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("sql-compare: {message}");
            ExitCode::from(2)
        }
    }
}

fn limited(servers: &Servers) -> Result<bool, String> {
    let at = servers
        .weft()
        .ok_or("--weft ADDRESS or --weft-bin PATH is needed")?;
    let (passed, failed) = limits::run(&at)?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn interrupted(arguments: &Interrupts) -> Result<bool, String> {
    let servers = &arguments.servers;
    let mut start = || match (servers.postgres()?, servers.weft()) {
        (Some(postgres), _) => Ok(postgres),
        (None, Some(WeftAt::Address(address))) => Ok((address, None)),
        (None, Some(WeftAt::Program(program))) => {
            let server = Server::weft(&program)?;
            Ok((server.address, Some(server)))
        }
        (None, None) => Err("a server is needed".to_owned()),
    };
    let (passed, failed) = interrupts::run(&mut start, &arguments.only, arguments.all)?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn at_once(arguments: &Sessions) -> Result<bool, String> {
    let (postgres, _postgres) = arguments
        .servers
        .postgres()?
        .ok_or("--postgres ADDRESS or --start-postgres is needed")?;
    let (weft, _weft) = match arguments.servers.weft() {
        Some(WeftAt::Address(address)) => (address, None),
        Some(WeftAt::Program(program)) => {
            let server = Server::weft(&program)?;
            (server.address, Some(server))
        }
        None => return Err("--weft ADDRESS or --weft-bin PATH is needed".to_owned()),
    };
    let (seed, statements) = (arguments.seed, arguments.statements);
    let rows = sessions::run(postgres, weft, seed, statements)?;
    let locks = advisory::run(postgres, weft, seed, statements)?;
    let (passed, failed) = (rows.0 + locks.0, rows.1 + locks.1);
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn beset(arguments: Hostile) -> Result<bool, String> {
    let campaign = hostile::Campaign {
        inputs: arguments.inputs,
        seed: arguments.seed,
        only: arguments.only,
        weft: arguments.weft_bin,
        canary_answer_max: Duration::from_millis(arguments.canary_ms_max),
        megabytes_max: arguments.rss_mb_max,
        megabytes_left_max: arguments.rss_mb_left,
    };
    let (passed, failed) = campaign.run()?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn recorded(arguments: &Records) -> Result<bool, String> {
    let mut all = run::Counts::default();
    let mut add = |counts: run::Counts, server: &str| {
        let gaps = counts.unsupported;
        println!(
            "{server}: {} records as recorded, {gaps} of them listed as unsupported; {} not",
            counts.passed, counts.failed
        );
        all.passed += counts.passed;
        all.failed += counts.failed;
    };
    let postgres = arguments.servers.postgres()?;
    if let Some((address, _)) = &postgres {
        if arguments.author {
            let mut connection =
                Connection::open(*address, Duration::from_secs(10)).map_err(|e| e.to_string())?;
            author(&arguments.folder, &Catalog::read(&mut connection)?)?;
        }
        let mut files = run::files(&arguments.folder)?;
        add(
            run::against_postgres(&mut files, *address, arguments.record)?,
            "PostgreSQL",
        );
    } else if arguments.record {
        return Err("recording needs --postgres ADDRESS or --start-postgres".to_owned());
    }
    if let Some(at) = arguments.servers.weft() {
        let files = run::files(&arguments.folder)?;
        let accept = arguments.accept_unsupported;
        let show = arguments.show;
        add(
            run::against_weft(&arguments.folder, &files, at, accept, show)?,
            "Weft",
        );
    }
    println!("{} passed, {} failed", all.passed, all.failed);
    Ok(all.failed == 0)
}

fn random(arguments: &Random) -> Result<bool, String> {
    let (address, _postgres) = arguments
        .servers
        .postgres()?
        .ok_or("--postgres ADDRESS or --start-postgres is needed")?;
    let at = arguments
        .servers
        .weft()
        .ok_or("--weft ADDRESS or --weft-bin PATH is needed")?;
    let document = std::fs::read_to_string(&arguments.permitted).unwrap_or_default();
    let settings = arguments
        .set
        .iter()
        .map(|setting| format!("SET {setting}"))
        .collect();
    let mut pair = Pair::open(address, at, settings)?;
    let mut report = Report::new(reasons(&document));
    let campaign = Campaign {
        seed: arguments.seed,
        statements: arguments.statements,
        mix: match arguments.mix {
            MixName::All => Mix::All,
            MixName::Expressions => Mix::Expressions,
            MixName::Queries => Mix::Queries,
            MixName::Changes => Mix::Changes,
        },
        minimised_max: arguments.minimise,
        verbose: arguments.verbose,
        only: arguments.only,
    };
    let outcome = campaign.run(&mut pair, &mut report);
    match &arguments.report {
        Some(path) => std::fs::write(path, report.text()).map_err(|e| format!("{}: {e}", path.display()))?,
        None => print!("{}", report.text()),
    }
    outcome?;
    println!(
        "{}; Weft was started again {} times",
        report.summary(),
        pair.restarts
    );
    let differences = match arguments.answers {
        true => report.wrong_answers(),
        false => report.differences(),
    };
    println!(
        "{} passed, {differences} failed",
        report.statements.saturating_sub(differences)
    );
    Ok(differences == 0)
}
