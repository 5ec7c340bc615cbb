//! Statements that take long, each in another place: they must end when their time is up and when their
//! client asks for it, soon, and leave the session and the server as they were.
//!
//! One runs under `statement_timeout`, the next with a CancelRequest sent while it runs, in turns, or each
//! both ways. What counts is the time from then to the answer. One that ends by itself before that has shown
//! nothing and is passed over.

mod cases;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use self::cases::{Long, SETUP, Way, cases};
use crate::answer::Answer;
use crate::server::Server;
use crate::wire::{Canceller, Connection, Parameter, Protocol};

/// How late the error may come. The aim is a tenth of a second; a machine that does other things besides
/// needs more.
const LATE_MAX: Duration = Duration::from_millis(500);
/// What is said when another session had to wait.
const OTHERS_WAIT: &str = "another session's query took";
/// How often one is run that is late: what is so by chance is not so again.
const TRIES: usize = 3;
/// When a statement shall end, once the server has its text.
const SIGNAL_AFTER: Duration = Duration::from_millis(100);
/// How long a byte of the text takes to get there.
const SENDING_A_BYTE: Duration = Duration::from_nanos(100);
/// What an answer may take before the server counts as broken.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// What a small statement of another session may take, right after: the threads that run queries may be in
/// the middle of a step of the one that was ended, and steps are long where nothing is optimised.
const OTHER_MAX: Duration = Duration::from_secs(3);

/// What ends a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Timeout,
    Request,
}

/// How one run went.
enum Run {
    /// The error came so late.
    Ended(Duration),
    /// It was done before.
    Done,
    /// It failed before, with this SQLSTATE.
    Failed(String),
    Wrong(String),
}

/// Runs them all against a new server made by `start`, or those alone whose name contains `only`, and prints
/// what is wrong and what was slowest; the numbers of passed and failed. With `all` each runs both ways, and
/// how late it ended is printed.
///
/// # Errors
/// When there is no server to run against.
pub fn run(
    start: &mut dyn FnMut() -> Result<(SocketAddr, Option<Server>), String>,
    only: &str,
    all: bool,
) -> Result<(usize, usize), String> {
    let (mut passed, mut failed) = (0, 0);
    let mut sessions = Sessions::open(start)?;
    let mut late: Vec<(Duration, String)> = Vec::new();
    let mut done = Vec::new();
    for (number, case) in cases().iter().enumerate() {
        if !case.name.contains(only) {
            continue;
        }
        let mut signals = vec![Signal::Timeout, Signal::Request];
        if !all {
            signals.swap_remove(number % 2);
        }
        for signal in signals {
            let mut run = sessions.tried(case, signal);
            for _ in 1..TRIES {
                match &run {
                    Run::Ended(after) if *after > LATE_MAX => {}
                    Run::Wrong(why) if why.starts_with(OTHERS_WAIT) => {}
                    _ => break,
                }
                run = sessions.tried(case, signal);
            }
            match run {
                Run::Ended(after) => {
                    late.push((after, format!("{} ({signal:?})", case.name)));
                    if after <= LATE_MAX {
                        passed += 1;
                    } else {
                        failed += 1;
                        println!("interrupts: {} ({signal:?}): {after:.0?} late", case.name);
                    }
                }
                Run::Done => done.push(format!("{} ({signal:?})", case.name)),
                Run::Failed(code) => done.push(format!("{} ({signal:?}: {code})", case.name)),
                Run::Wrong(why) => {
                    failed += 1;
                    let why: String = why.chars().take(300).collect();
                    println!("interrupts: {} ({signal:?}): {why}", case.name);
                    if sessions.usable().is_err() {
                        drop(sessions);
                        sessions = Sessions::open(start)?;
                    }
                }
            }
        }
    }
    late.sort_by_key(|(after, _)| std::cmp::Reverse(*after));
    print!("{}", summary(&late, &done, all));
    Ok((passed, failed))
}

fn summary(late: &[(Duration, String)], done: &[String], all: bool) -> String {
    let mut out = String::new();
    let percentile = |part: usize| {
        late.get(late.len() * (100 - part) / 100)
            .map_or(Duration::ZERO, |(after, _)| *after)
    };
    let _ = writeln!(
        out,
        "interrupts: {} ended by a signal, after it median {:.1?}, 95 of 100 {:.1?}; the latest:",
        late.len(),
        percentile(50),
        percentile(95)
    );
    let shown = if all { late.len() } else { 5 };
    for (after, name) in late.iter().take(shown) {
        let _ = writeln!(out, "    {after:.1?} {name}");
    }
    if !done.is_empty() {
        let _ = writeln!(out, "interrupts: done before the signal: {}", done.join(", "));
    }
    out
}

/// The session that runs the statements, one that holds locks, and one that looks whether others work on.
struct Sessions {
    main: Connection,
    holder: Connection,
    other: Connection,
    _own: Option<Server>,
}

impl Sessions {
    fn open(start: &mut dyn FnMut() -> Result<(SocketAddr, Option<Server>), String>) -> Result<Self, String> {
        let (address, own) = start()?;
        let open = || Connection::open(address, ANSWER_MAX).map_err(|e| e.to_string());
        let mut sessions = Self {
            main: open()?,
            holder: open()?,
            other: open()?,
            _own: own,
        };
        for table in ["numbers", "ones", "large", "held", "filled", "copied", "many"] {
            sessions.main.execute(&format!("DROP TABLE IF EXISTS {table}"))?;
        }
        for procedure in ["endless", "counting", "looking"] {
            sessions
                .main
                .execute(&format!("DROP PROCEDURE IF EXISTS {procedure}"))?;
        }
        for statement in SETUP {
            sessions.main.execute(statement)?;
        }
        Ok(sessions)
    }

    /// One run, and whether everything is as before.
    fn tried(&mut self, case: &Long, signal: Signal) -> Run {
        match (self.run(case, signal), self.usable()) {
            (Run::Wrong(why), _) => Run::Wrong(why),
            (_, Err(why)) => Run::Wrong(why),
            (run, Ok(())) => run,
        }
    }

    fn run(&mut self, case: &Long, signal: Signal) -> Run {
        if case.way == Way::Blocked
            && let Err(why) = self.holder.execute("BEGIN; UPDATE held SET a = a + 1")
        {
            return Run::Wrong(why);
        }
        let run = self.signalled(case, signal);
        if case.way == Way::Blocked
            && let Err(why) = self.holder.execute("ROLLBACK")
        {
            return Run::Wrong(why);
        }
        run
    }

    fn signalled(&mut self, case: &Long, signal: Signal) -> Run {
        let timeout = match signal {
            Signal::Timeout => SIGNAL_AFTER.as_millis(),
            Signal::Request => 0,
        };
        if let Err(why) = self.main.execute(&format!("SET statement_timeout = {timeout}")) {
            return Run::Wrong(why);
        }
        let canceller = match (signal, self.main.canceller()) {
            (Signal::Timeout, _) => None,
            (Signal::Request, Ok(canceller)) => Some(canceller),
            (Signal::Request, Err(why)) => return Run::Wrong(why.to_string()),
        };
        let sending = SENDING_A_BYTE.saturating_mul(u32::try_from(case.sql.len()).unwrap_or(u32::MAX));
        let at = Instant::now() + SIGNAL_AFTER + sending;
        let sender = canceller.map(|canceller| std::thread::spawn(move || cancelled_at(&canceller, at)));
        let answer = match case.way {
            Way::Lines => self.main.copy_in_endlessly(&case.sql, "1\t1\n"),
            Way::Prepared => self.main.run(&case.sql, &with_parameter()),
            Way::Simple | Way::Blocked => self.main.run(&case.sql, &Protocol::Simple),
        };
        let ended = Instant::now();
        let signalled = match sender.map(std::thread::JoinHandle::join) {
            None => at,
            Some(Ok(Ok(at))) => at,
            Some(Ok(Err(why))) => return Run::Wrong(why),
            Some(Err(_)) => return Run::Wrong("no cancel request was sent".to_owned()),
        };
        let after = ended.saturating_duration_since(signalled);
        match answer {
            Answer::Error { code, .. } if code == "57014" => Run::Ended(after),
            Answer::Rows(_) if ended <= signalled => Run::Done,
            // It was on its last steps, which nothing takes back.
            Answer::Rows(_) => Run::Ended(after),
            // A program ends after so many instructions, whatever else.
            Answer::Error { code, .. } if code == "54000" && after <= LATE_MAX => Run::Failed(code),
            Answer::Error { code, .. } if ended <= signalled && code != "XX000" => Run::Failed(code),
            other => Run::Wrong(format!("{after:.0?} after the signal: {other}")),
        }
    }

    /// Whether the session goes on, and others do.
    fn usable(&mut self) -> Result<(), String> {
        // A request that came too late ends the next statement.
        let _ = self.main.execute("SELECT 1");
        self.main.execute("ROLLBACK")?;
        self.main.execute("SET statement_timeout = 0")?;
        self.main.execute("DEALLOCATE ALL")?;
        let rows = self.main.execute("SELECT id FROM numbers WHERE id = 5")?;
        if rows.values != [vec![Some(b"5".to_vec())]] {
            return Err(format!("the session is of no use: {rows:?}"));
        }
        let began = Instant::now();
        self.other
            .execute("SELECT count(*) FROM generate_series(1, 10) a, generate_series(1, 10) b")?;
        let took = began.elapsed();
        if took > OTHER_MAX {
            return Err(format!("{OTHERS_WAIT} {took:.0?} right after"));
        }
        Ok(())
    }
}

fn cancelled_at(canceller: &Canceller, at: Instant) -> Result<Instant, String> {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
    let at = Instant::now();
    canceller.cancel().map_err(|e| e.to_string())?;
    Ok(at)
}

fn with_parameter() -> Protocol {
    Protocol::Extended {
        parameters: vec![Parameter {
            type_oid: 23,
            binary: false,
            value: Some(b"200000000".to_vec()),
        }],
        binary_results: false,
        executions: 1,
    }
}
