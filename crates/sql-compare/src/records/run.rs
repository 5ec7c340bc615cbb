//! Runs the files of records: against Weft in both protocols, and against PostgreSQL to see that the
//! recorded answers are still its own.
//!
//! A record that Weft does not do yet stands in `unsupported.txt`, as `SQLSTATE file: statement`. It fails
//! when it passes, so that the list shrinks, and when it gives a wrong answer.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Expected, Record, expectation, fulfils, parse, write};
use crate::answer::Answer;
use crate::pair::WeftAt;
use crate::server::Server;
use crate::wire::{Connection, Protocol};

/// The list of what Weft does not do yet.
pub const UNSUPPORTED: &str = "unsupported.txt";

/// How long one answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A file of records.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path below the folder of records.
    pub name: String,
    path: PathBuf,
    /// Its records.
    pub records: Vec<Record>,
}

/// Every file below `folder`, in order of their names.
///
/// # Errors
/// A file that cannot be read.
pub fn files(folder: &Path) -> Result<Vec<File>, String> {
    let mut paths = Vec::new();
    collect(folder, &mut paths).map_err(|e| format!("{}: {e}", folder.display()))?;
    paths.sort();
    let file = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let records = parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        Ok(File { name, path, records })
    };
    paths.into_iter().map(file).collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    if folder.is_file() {
        into.push(folder.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|ending| ending == "slt") {
            into.push(path);
        }
    }
    Ok(())
}

/// How many records passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answers as recorded, or listed gaps.
    pub passed: usize,
    /// Anything else.
    pub failed: usize,
    /// Listed gaps among the passed.
    pub unsupported: usize,
}

/// Asks PostgreSQL for every answer. With `record` the files get its answers; otherwise those that differ
/// are printed.
///
/// # Errors
/// When the server is gone, or a file cannot be written.
pub fn against_postgres(files: &mut [File], address: SocketAddr, record: bool) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for file in files {
        let mut connection = Connection::open(address, ANSWER_WITHIN).map_err(|e| e.to_string())?;
        connection.execute("SET client_min_messages = 'error'")?;
        for at in &mut file.records {
            let answer = connection.run(&at.sql, &Protocol::Simple);
            if record {
                let expected = expectation(&at.sql, &answer);
                at.expected = expected.ok_or_else(|| format!("{}: {answer}: {}", file.name, at.sql))?;
                counts.passed += 1;
            } else if fulfils(&at.expected, &answer) {
                counts.passed += 1;
            } else {
                counts.failed += 1;
                println!(
                    "{}:{}: PostgreSQL answers otherwise: {}\n    {answer}",
                    file.name, at.line, at.sql
                );
            }
        }
        if record {
            fs::write(&file.path, write(&file.records)).map_err(|e| format!("{}: {e}", file.name))?;
        }
    }
    Ok(counts)
}

/// How a record went.
#[derive(Clone, Debug)]
enum Outcome {
    Passed,
    Unsupported(String),
    Wrong(String),
}

/// A Weft that is started again when it breaks.
struct Weft {
    at: WeftAt,
    own: Option<Server>,
}

impl Weft {
    fn connect(&mut self) -> Result<Connection, String> {
        let address = match &self.at {
            WeftAt::Address(address) => *address,
            WeftAt::Program(program) => {
                if !self.own.as_mut().is_some_and(Server::lives) {
                    self.own = None;
                    self.own = Some(Server::weft(program)?);
                }
                self.own.as_ref().ok_or("no server")?.address
            }
        };
        Connection::open(address, ANSWER_WITHIN).map_err(|e| e.to_string())
    }
}

/// Runs every record against Weft, in both protocols. Prints what is wrong, at most `shown_max` of it. With
/// `accept` the list of what is unsupported is written anew.
///
/// # Errors
/// When Weft cannot be started.
pub fn against_weft(
    folder: &Path,
    files: &[File],
    at: WeftAt,
    accept_unsupported: bool,
    shown_max: usize,
) -> Result<Counts, String> {
    let mut weft = Weft { at, own: None };
    let list = folder.join(UNSUPPORTED);
    let mut listed: BTreeMap<String, String> = read_list(&list);
    let (mut counts, mut gaps) = (Counts::default(), Vec::new());
    let mut wrong_by_file = BTreeMap::<&str, usize>::new();
    for file in files {
        let outcomes = run_file(file, &mut weft)?;
        for (record, outcome) in file.records.iter().zip(outcomes) {
            let key = format!("{}: {}", file.name, record.sql.replace('\n', " "));
            let was = listed.remove(&key);
            let wrong = match outcome {
                Outcome::Passed if was.is_some() && !accept_unsupported => {
                    "passes, but is listed as unsupported".to_owned()
                }
                Outcome::Unsupported(code) if was.as_ref() == Some(&code) || accept_unsupported => {
                    gaps.push(format!("{code} {key}"));
                    counts.unsupported += 1;
                    counts.passed += 1;
                    continue;
                }
                Outcome::Unsupported(code) => format!("unsupported ({code}), but not listed so"),
                Outcome::Passed => {
                    counts.passed += 1;
                    continue;
                }
                Outcome::Wrong(why) => why,
            };
            counts.failed += 1;
            *wrong_by_file.entry(&file.name).or_default() += 1;
            if counts.failed <= shown_max {
                println!("{}:{}: {}\n    {wrong}", file.name, record.line, record.sql);
            }
        }
    }
    for (name, count) in wrong_by_file {
        println!("{count} failed in {name}");
    }
    if accept_unsupported {
        write_list(&list, gaps)?;
    } else {
        // Only a run of all files can tell that a listed record is gone.
        let known = |key: &str| {
            files
                .iter()
                .any(|file| key.starts_with(&format!("{}: ", file.name)))
        };
        for key in listed.keys().filter(|key| known(key)) {
            counts.failed += 1;
            println!("{UNSUPPORTED}: no such record: {key}");
        }
    }
    Ok(counts)
}

fn write_list(path: &Path, mut lines: Vec<String>) -> Result<(), String> {
    lines.sort();
    lines.dedup();
    let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn read_list(path: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let entry = |line: &str| {
        line.split_once(' ')
            .map(|(code, key)| (key.to_owned(), code.to_owned()))
    };
    text.lines().filter_map(entry).collect()
}

/// The worst outcome of each record over both protocols.
fn run_file(file: &File, weft: &mut Weft) -> Result<Vec<Outcome>, String> {
    let mut outcomes = vec![Outcome::Passed; file.records.len()];
    let extended = Protocol::Extended {
        parameters: Vec::new(),
        binary_results: false,
        executions: 1,
    };
    for protocol in [Protocol::Simple, extended] {
        let mut connection = weft.connect()?;
        for (record, outcome) in file.records.iter().zip(&mut outcomes) {
            if record.simple_only && protocol != Protocol::Simple {
                continue;
            }
            let answer = connection.run(&record.sql, &protocol);
            let way = if protocol == Protocol::Simple {
                ""
            } else {
                "prepared: "
            };
            match judge(record, &answer) {
                Outcome::Wrong(why) if !matches!(outcome, Outcome::Wrong(_)) => {
                    *outcome = Outcome::Wrong(format!("{way}{why}"));
                }
                Outcome::Unsupported(code) if matches!(outcome, Outcome::Passed) => {
                    *outcome = Outcome::Unsupported(code);
                }
                _ => {}
            }
            if let Answer::Broken(why) = &answer {
                if why.contains("in time") {
                    weft.own = None;
                }
                connection = weft.connect()?;
            }
        }
    }
    Ok(outcomes)
}

fn judge(record: &Record, answer: &Answer) -> Outcome {
    if fulfils(&record.expected, answer) {
        return Outcome::Passed;
    }
    let expected = match &record.expected {
        Expected::Nothing => "nothing, as it was not recorded".to_owned(),
        Expected::Ok => "success".to_owned(),
        Expected::Error(code) => format!("error {code}"),
        Expected::Rows { types, lines, .. } => {
            let shown: Vec<String> = lines
                .iter()
                .take(6)
                .map(|line| line.replace('\t', " | "))
                .collect();
            format!("[{}] {}", types.join(" "), shown.join(" / "))
        }
    };
    match (answer, &record.expected) {
        (Answer::Error { code, .. }, _) if code == "0A000" => Outcome::Unsupported(code.clone()),
        (Answer::Error { code, message }, Expected::Rows { .. } | Expected::Ok)
            if matches!(code.as_str(), "42883" | "42704") && message.contains("does not exist") =>
        {
            Outcome::Unsupported(code.clone())
        }
        _ => Outcome::Wrong(format!("expected: {expected}\n    answered: {answer}")),
    }
}
