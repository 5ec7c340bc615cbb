//! A rank dies at every step of a commit of several ranks: home or another one, by a power cut that loses
//! what is not on disk. Afterwards every transfer is on all its ranks or on none, what was acknowledged is
//! there, what was refused is not, and no lock is left.
//!
//! Ranks are threads of this process. A rank that dies loses its power, counts as dead for the others, and
//! the thread that reached the step unwinds; what else it was doing ends with errors of its dead disk.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft::{Database, Value};
use weft_base::SimDisk;
use weft_fabric::Threads;
use weft_ranks::{AtStep, Config, Node, Step};
use weft_store::Distribution;

use crate::fixture::{Client, database_on};

const RANKS: u32 = 3;
/// How long everything may take to be settled.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

const HOME_STEPS: [Step; 5] = [
    Step::Voting,
    Step::Voted,
    Step::Decided,
    Step::Durable,
    Step::Told,
];
const OTHER_STEPS: [Step; 4] = [Step::Preparing, Step::Prepared, Step::Committing, Step::Committed];

/// What happens when a rank reaches a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The rank dies.
    Dies(u32),
    /// The rank's power goes at one of its next changes of its disk.
    LosesPower(u32, u64),
}

type Plan = Arc<Mutex<Option<(u32, Step, Fate)>>>;

struct Member {
    database: Database,
    node: Node,
}

struct Lab {
    fabric: Threads,
    disks: Vec<SimDisk>,
    members: Vec<Option<Member>>,
    plan: Plan,
    config: Config,
    /// An account on each rank.
    accounts: Vec<i32>,
    /// The last transfer that is known to be there.
    last: i64,
    next: i64,
}

/// What a client of the home knows of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Acknowledged,
    Refused,
    Unknown,
}

impl Lab {
    fn new(seed: u64, tells_early: bool) -> Lab {
        let fabric = Threads::new(RANKS);
        let disks: Vec<SimDisk> = (0..u64::from(RANKS))
            .map(|rank| SimDisk::new(seed * 10 + rank))
            .collect();
        let plan = Plan::default();
        let hook = {
            let (plan, disks, fabric) = (Arc::clone(&plan), disks.clone(), fabric.clone());
            move |rank: u32, step: Step| {
                let mut planned = plan.lock();
                let Some((at_rank, at_step, fate)) = *planned else {
                    return;
                };
                if (at_rank, at_step) != (rank, step) {
                    return;
                }
                *planned = None;
                drop(planned);
                match fate {
                    Fate::Dies(victim) => {
                        disks[victim as usize].crash();
                        fabric.declare_dead(victim).unwrap();
                        if victim == rank {
                            resume_unwind(Box::new("this rank died"));
                        }
                    }
                    Fate::LosesPower(victim, after) => {
                        let disk = &disks[victim as usize];
                        disk.cut_power_at(disk.op_count() + after);
                    }
                }
            }
        };
        let config = Config {
            at_step: AtStep(Some(Arc::new(hook))),
            tells_early,
            ..Config::default()
        };
        let starting: Vec<_> = (0..RANKS)
            .map(|rank| {
                let (handle, disk, config) = (
                    fabric.join(rank).unwrap(),
                    disks[rank as usize].clone(),
                    config.clone(),
                );
                std::thread::spawn(move || {
                    let database = database_on(&disk).unwrap();
                    let node = Node::start(&handle, database.clone(), config).unwrap();
                    Some(Member { database, node })
                })
            })
            .collect();
        let members = starting
            .into_iter()
            .map(|member| member.join().unwrap())
            .collect();
        let on_rank = |rank: u32| {
            let is_there = |id: &i32| Distribution::rank_of(&Value::Int4(*id), RANKS) == rank;
            (0..100).find(is_there).unwrap()
        };
        let accounts: Vec<i32> = (0..RANKS).map(on_rank).collect();
        let lab = Lab {
            fabric,
            disks,
            members,
            plan,
            config,
            accounts,
            last: 0,
            next: 1,
        };
        let mut client = lab.client(0);
        client.ok(
            "create table account (id int primary key, balance bigint not null, transfer bigint not null)
                       with (partition_by = id)",
        );
        client.ok("create table other (id int primary key, n int not null) with (partition_by = id)");
        for id in lab.accounts.clone() {
            client.ok(&format!("insert into account values ({id}, 100, 0)"));
            client.ok(&format!("insert into other values ({id}, 0)"));
        }
        drop(client);
        lab
    }

    fn client(&self, rank: u32) -> Client {
        let member = self.members[rank as usize].as_ref().unwrap();
        Client {
            session: member.node.backend().session(),
        }
    }

    /// A transfer over all ranks by a client of the first one, whose connection is lost if that rank dies.
    fn transfer(&mut self, (rank, step, fate): (u32, Step, Fate)) -> Known {
        let number = self.next;
        self.next += 1;
        *self.plan.lock() = Some((rank, step, fate));
        let mut client = self.client(0);
        let changes: Vec<String> = self
            .accounts
            .iter()
            .zip([-2, 1, 1])
            .map(|(id, amount)| {
                format!(
                    "update account set balance = balance + {amount}, transfer = {number} where id = {id}"
                )
            })
            .collect();
        let sql = format!("begin; {}; commit", changes.join("; "));
        let answer = catch_unwind(AssertUnwindSafe(|| client.outcome(&sql)));
        let was_reached = self.plan.lock().take().is_none();
        assert!(was_reached, "rank {rank} did not reach {step:?}: {answer:?}");
        let home_is_lost = matches!(fate, Fate::Dies(0) | Fate::LosesPower(0, _));
        match answer {
            Ok(Ok(_)) => Known::Acknowledged,
            Ok(Err(state)) if state == "40003" || home_is_lost => Known::Unknown,
            Ok(Err(state)) => {
                // Of a dead rank, which is a thread here, the last word may be that its disk is dead.
                assert!(["08006", "25P02", "58030"].contains(&state.as_str()), "{state}");
                Known::Refused
            }
            Err(_) => Known::Unknown,
        }
    }

    /// Buries a dead rank.
    fn bury(&mut self, rank: u32) {
        self.fabric.declare_dead(rank).unwrap();
        let member = self.members[rank as usize].take().unwrap();
        member.node.stop();
        drop(member.database);
    }

    fn restart(&mut self, rank: u32) {
        self.disks[rank as usize].crash();
        let handle = self.fabric.rejoin(rank).unwrap();
        let database = database_on(&self.disks[rank as usize]).unwrap();
        let node = Node::start(&handle, database.clone(), self.config.clone()).unwrap();
        self.members[rank as usize] = Some(Member { database, node });
    }

    /// While a rank is dead, others work.
    fn others_go_on(&self, dead: u32) {
        for rank in (0..RANKS).filter(|rank| *rank != dead) {
            let id = self.accounts[rank as usize];
            let mut client = self.client(rank);
            assert_eq!(
                client.ok(&format!("update other set n = n + 1 where id = {id}")),
                "UPDATE 1"
            );
            let id = self.accounts[dead as usize];
            client.fails(&format!("update other set n = n + 1 where id = {id}"), "08006");
        }
    }

    /// Nothing is prepared or locked any more, and the transfer is on all ranks or on none.
    fn settle(&mut self, known: Known) -> Result<(), String> {
        let until = Instant::now() + SETTLED_WITHIN;
        loop {
            let mut client = self.client(1);
            let unlocked = client.outcome("update account set balance = balance + 0");
            let open = |rank| self.client(rank).rows("select count(*) from pg_prepared_xacts");
            if unlocked.is_ok() && (0..RANKS).all(|rank| open(rank) == "0") {
                break;
            }
            if Instant::now() > until {
                let open: Vec<String> = (0..RANKS).map(open).collect();
                return Err(format!("not settled: {unlocked:?}, prepared: {open:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let rows = self
            .client(2)
            .rows("select id, balance, transfer from account order by id");
        let numbers = self.client(2).rows("select distinct transfer from account");
        let sum = self.client(2).rows("select sum(balance) from account");
        let number: i64 = numbers.parse().map_err(|_| format!("split: {rows}"))?;
        if sum != "300" {
            return Err(format!("split: {rows}"));
        }
        let is_there = number == self.next - 1;
        if !is_there && number != self.last {
            return Err(format!("transfer {} was lost: {rows}", self.last));
        }
        self.last = number;
        match (known, is_there) {
            (Known::Acknowledged, false) => Err(format!("acknowledged and lost: {rows}")),
            (Known::Refused, true) => Err(format!("refused and there: {rows}")),
            _ => Ok(()),
        }
    }
}

/// Every rank at every step of its own.
fn moments() -> Vec<(u32, Step)> {
    let home = HOME_STEPS.into_iter().map(|step| (0, step));
    let others = OTHER_STEPS.into_iter().flat_map(|step| [(1, step), (2, step)]);
    home.chain(others).collect()
}

#[test]
fn a_death_at_any_step_of_a_commit_splits_nothing() {
    let mut lab = Lab::new(1, false);
    let all = std::env::var_os("WEFT_SEEDS").is_some();
    for (number, (rank, step)) in (0..).zip(moments()) {
        // The rank itself and one of the others; all of them in the long form.
        let other = (rank + 1 + number % (RANKS - 1)) % RANKS;
        let victims = (0..RANKS).filter(|victim| all || *victim == rank || *victim == other);
        for victim in victims {
            let known = lab.transfer((rank, step, Fate::Dies(victim)));
            lab.bury(victim);
            lab.others_go_on(victim);
            lab.restart(victim);
            if let Err(wrong) = lab.settle(known) {
                panic!("rank {victim} died when rank {rank} reached {step:?}, {known:?}: {wrong}");
            }
        }
    }
}

/// The home's power goes at some change of its disk around the decision; whether a transfer is split.
fn power_cuts(tells_early: bool) -> Option<String> {
    for seed in 0..2 {
        let mut lab = Lab::new(20 + seed, tells_early);
        for after in 1..=4 {
            let known = lab.transfer((0, Step::Voted, Fate::LosesPower(0, after)));
            lab.bury(0);
            lab.restart(0);
            if let Err(wrong) = lab.settle(known) {
                return Some(format!("power went after {after} operations, {known:?}: {wrong}"));
            }
        }
    }
    None
}

#[test]
fn a_power_cut_around_the_decision_splits_nothing() {
    assert_eq!(power_cuts(false), None);
}

#[test]
fn a_decision_that_is_told_before_it_is_on_disk_is_caught() {
    let found = power_cuts(true);
    assert!(
        found.as_ref().is_some_and(|wrong| wrong.contains("split")),
        "{found:?}"
    );
}

#[test]
fn what_is_prepared_stays_locked_through_restarts_until_its_home_returns() {
    let mut lab = Lab::new(40, false);
    let known = lab.transfer((0, Step::Voted, Fate::Dies(0)));
    lab.bury(0);
    for _ in 0..2 {
        for rank in [1, 2] {
            let id = lab.accounts[rank as usize];
            let mut client = lab.client(rank);
            client.ok("set lock_timeout = 50");
            client.fails(
                &format!("update account set balance = 0 where id = {id}"),
                "55P03",
            );
            assert_eq!(
                client.rows(&format!("select balance from account where id = {id}")),
                "100"
            );
        }
        lab.bury(1);
        lab.restart(1);
    }
    lab.restart(0);
    lab.settle(known).unwrap();
    assert_eq!(lab.client(0).rows("select distinct transfer from account"), "0");
}
