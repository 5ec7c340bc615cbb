//! Golden scripts: commands, each followed by what the table answered (`= `).
//!
//! ```text
//! policy NAME          for the requests that follow
//! T lock r:MODE ...    acquire
//! T release            release_all
//! T lower r MODE       lower
//! T ally U             T and U are allies from now on
//! T cancel             cancel_wait
//! T mark NAME          remember a savepoint
//! T back NAME          release_since
//! clock N              set_clock
//! overdue N            overdue
//! show                 who holds and waits
//! ```
//!
//! `WEFT_REWRITE_GOLDEN=1` writes the answers into the scripts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use weft_base::TxnId;
use weft_lock::{
    AbortReason, Acquire, BoundedWait, ConflictPolicy, DeadlockDetection, LockMode, LockRequest, LockTable,
    Mark, NoWait, ResourceId, WaitDie, WoundWait,
};

fn mode_of(text: &str) -> LockMode {
    LockMode::ALL
        .into_iter()
        .find(|mode| mode.to_string() == text)
        .unwrap()
}

fn resource_of(name: &str) -> ResourceId {
    ResourceId::other(u64::from(name.bytes().next().unwrap()))
}

fn name_of(resource: ResourceId) -> char {
    char::from((resource.0 & 0xff) as u8)
}

fn policy_of(name: &str) -> &'static dyn ConflictPolicy {
    let all: [&'static dyn ConflictPolicy; 5] =
        [&DeadlockDetection, &NoWait, &WaitDie, &WoundWait, &BoundedWait];
    all.into_iter().find(|policy| policy.name() == name).unwrap()
}

fn list(txns: &[TxnId]) -> String {
    txns.iter().map(TxnId::to_string).collect::<Vec<_>>().join(" ")
}

struct Script {
    table: LockTable,
    policy: &'static dyn ConflictPolicy,
    marks: BTreeMap<(TxnId, String), Mark>,
    txns: Vec<TxnId>,
    allies: BTreeMap<TxnId, TxnId>,
}

impl Script {
    fn command(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut answer = match words.as_slice() {
            ["policy", name] => {
                self.policy = policy_of(name);
                String::new()
            }
            ["clock", now] => {
                self.table.set_clock(now.parse().unwrap());
                String::new()
            }
            ["overdue", bound] => format!("overdue {}\n", list(&self.table.overdue(bound.parse().unwrap()))),
            ["show"] => self.show(),
            [txn, verb, rest @ ..] => self.transaction(TxnId(txn.parse().unwrap()), verb, rest),
            _ => panic!("command {line}"),
        };
        for victim in self.table.take_victims() {
            let reason = match victim.reason {
                AbortReason::Deadlock { cycle } => format!("deadlock {}", list(&cycle)),
                AbortReason::Refused => "refused".to_owned(),
                AbortReason::Wounded { by } => format!("wounded by {by}"),
            };
            writeln!(answer, "victim {}: {reason}", victim.txn).unwrap();
        }
        answer
    }

    fn transaction(&mut self, txn: TxnId, verb: &str, rest: &[&str]) -> String {
        if !self.txns.contains(&txn) {
            self.txns.push(txn);
        }
        let granted = match (verb, rest) {
            ("lock", requests) => {
                let requests: Vec<LockRequest> = requests
                    .iter()
                    .map(|request| request.split_once(':').unwrap())
                    .map(|(name, mode)| LockRequest::new(resource_of(name), mode_of(mode)))
                    .collect();
                let ally = self.allies.get(&txn).copied();
                return match self.table.acquire_with_ally(txn, ally, &requests, self.policy) {
                    Acquire::Granted => "granted\n".to_owned(),
                    Acquire::Waiting => format!("waiting for {}\n", list(&self.table.blockers_of(txn))),
                    Acquire::Deadlock { cycle } => format!("deadlock {}\n", list(&cycle)),
                    Acquire::Refused => "refused\n".to_owned(),
                };
            }
            ("mark", [name]) => {
                self.marks.insert((txn, (*name).to_owned()), self.table.mark(txn));
                return String::new();
            }
            ("back", [name]) => self
                .table
                .release_since(txn, self.marks[&(txn, (*name).to_owned())]),
            ("ally", [other]) => {
                let other = TxnId(other.parse().unwrap());
                self.allies.insert(txn, other);
                self.allies.insert(other, txn);
                return String::new();
            }
            ("lower", [name, mode]) => self.table.lower(txn, resource_of(name), mode_of(mode)),
            ("release", _) => self.table.release_all(txn),
            ("cancel", _) => self.table.cancel_wait(txn),
            _ => panic!("command {verb}"),
        };
        if granted.is_empty() {
            String::new()
        } else {
            format!("grants {}\n", list(&granted))
        }
    }

    fn show(&self) -> String {
        let mut text = String::new();
        for txn in &self.txns {
            let held: Vec<String> = self
                .table
                .held(*txn)
                .map(|(resource, mode)| format!(" {}:{mode}", name_of(resource)))
                .collect();
            let waits = self
                .table
                .waits_for(*txn)
                .map(|r| format!(" waits {}:{}", name_of(r.resource), r.mode));
            if !held.is_empty() || waits.is_some() {
                let held = if held.is_empty() {
                    String::new()
                } else {
                    format!(" holds{}", held.concat())
                };
                writeln!(text, "{txn}{held}{}", waits.unwrap_or_default()).unwrap();
            }
        }
        if self.table.is_empty() {
            "empty\n".to_owned()
        } else {
            text
        }
    }
}

fn run(script: &str) -> String {
    let mut state = Script {
        table: LockTable::new(),
        policy: &DeadlockDetection,
        marks: BTreeMap::new(),
        txns: Vec::new(),
        allies: BTreeMap::new(),
    };
    let mut out = String::new();
    for line in script.lines().filter(|line| !line.starts_with("= ")) {
        out.push_str(line);
        out.push('\n');
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        for answer in state.command(line).lines() {
            writeln!(out, "= {answer}").unwrap();
        }
    }
    out
}

#[test]
fn scripts_give_the_answers_written_in_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let expected = std::fs::read_to_string(&path).unwrap();
        let given = run(&expected);
        if std::env::var_os("WEFT_REWRITE_GOLDEN").is_some() {
            std::fs::write(&path, &given).unwrap();
        } else {
            assert_eq!(given, expected, "{}", path.display());
        }
        count += 1;
    }
    assert!(count >= 10, "only {count} scripts");
}
