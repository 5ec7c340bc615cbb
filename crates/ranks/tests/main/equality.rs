//! A cluster answers as one database does: random statements and transactions are given to both, and rows,
//! tags, errors and the state at the end are compared.
//!
//! Statements that the cluster refuses as unsupported (0A000) are left out on the database without ranks, and
//! their transaction is rolled back on both. So that this does not hide everything, most must be answered.

use weft_base::Prng;
use weft_ranks::RanksSession;
use weft_server::backend::BackendSession;

use crate::fixture::{Client, Cluster, database};

const TABLES: &str =
    "create table account (id int primary key, owner text, balance bigint not null) with (partition_by = id);
    create table entry (account int, no int, item int, quantity int not null, primary key (account, no))
        with (partition_by = account);
    create index account_owner on account (owner);
    create index entry_item on entry (item);
    create table item (id int primary key, name text unique, price int) with (replicated = true);
    create table note (id int primary key, text text)";

/// Everything that there is at the end.
const STATE: [&str; 4] = [
    "select * from account order by id",
    "select * from entry order by account, no",
    "select * from item order by id",
    "select * from note order by id",
];

/// Statements of each run.
const STATEMENTS: usize = 220;

struct Generator(Prng);

impl Generator {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    fn id(&mut self) -> u64 {
        self.below(24)
    }

    fn owner(&mut self) -> String {
        match self.below(5) {
            0 => "null".to_owned(),
            n => format!("'o{n}'"),
        }
    }

    fn number(&mut self) -> i64 {
        self.below(40) as i64 - 8
    }

    /// Replaces marks in a pattern: I an id, O an owner, N a number, S a small one.
    fn fill(&mut self, pattern: &str) -> String {
        let mut sql = String::new();
        for (at, part) in pattern.split('$').enumerate() {
            if at % 2 == 0 {
                sql.push_str(part);
                continue;
            }
            sql.push_str(&match part {
                "I" => self.id().to_string(),
                "O" => self.owner(),
                "N" => self.number().to_string(),
                _ => self.below(6).to_string(),
            });
        }
        sql
    }

    fn change(&mut self) -> String {
        let pattern = self.one(&[
            "insert into account values ($I$, $O$, $N$)",
            "insert into account values ($I$, $O$, $N$)",
            "insert into account values ($I$, $O$, $N$), ($I$, $O$, $N$), ($I$, 'm', $N$)",
            "insert into account (id, balance) values ($I$, null)",
            "insert into account values ($I$, $O$, 9223372036854775000)",
            "insert into account select id + 24, name, price from item where id < $S$",
            "insert into account values ($I$, 'c', $N$) on conflict (id) do update set balance = 7, owner = 'was'",
            "insert into account values ($I$, 'd', $N$) on conflict do nothing",
            "insert into account values ($I$, 'r', $N$) returning id, balance * 2",
            "insert into entry select id, $S$, $S$, 1 from account where balance > $N$",
            "insert into entry values ($I$, $S$, $S$, $N$)",
            "insert into entry values ($I$, $S$, $S$, $N$), ($I$, $S$, $S$, 3)",
            "insert into item values ($S$, 'i$S$', $N$)",
            "insert into item values ($S$, 'x', 1), ($I$, 'y$I$', null)",
            "insert into item select id, owner, 5 from account where id = $I$",
            "insert into note values ($I$, 'n')",
            "insert into note select id, owner from account where balance < $N$",
            "update account set balance = balance + $N$ where id = $I$",
            "update account set balance = balance + $N$ where id = $I$ returning owner, balance",
            "update account set balance = balance + $N$ where id = $I$ returning *",
            "update account set balance = balance + 1 where owner = $O$",
            "update account set balance = balance * 2 where balance > $N$",
            "update account set balance = 100 / (balance - $N$) where id <> $I$",
            "update account set owner = 'u' || balance where balance between $N$ and 12 returning id",
            "update account set balance = balance + (select coalesce(sum(price), 0) from item)",
            "update account set owner = item.name from item where item.id = account.id",
            "update account set balance = null where id = $I$",
            "update account set id = id + 1 where id = $I$",
            "update entry set quantity = quantity + 1 where account = $I$",
            "update entry set no = no + 1 where account = $I$ and no = $S$",
            "update entry set quantity = quantity - 1 where item = $S$",
            "update item set price = price + 1 where id = $S$",
            "update item set price = 3 where name like 'i%'",
            "update item set price = 10 / price",
            "update item set name = 'i1' where id = $S$",
            "update note set text = 'm' where id < $I$",
            "delete from account where id = $I$",
            "delete from account where id = $I$ returning *",
            "delete from account where balance < $N$ and owner = $O$",
            "delete from account where id in ($I$, $I$) returning id",
            "delete from entry where account = $I$",
            "delete from entry where quantity > $N$ and item = $S$",
            "delete from item where id = $S$",
            "delete from item where price is null",
            "delete from note where id = $I$",
            "update account set balance = balance + 1 where id >= $I$ and id < $I$",
            "update account set owner = 'z' where id = $I$ or id = $I$",
            "delete from account where id = null",
            "update account set balance = balance + 1 where id = $I$ and owner = $O$",
        ]);
        self.fill(pattern)
    }

    fn query(&mut self) -> String {
        let pattern = self.one(&[
            "select * from account where id = $I$",
            "select owner, balance from account where id = $I$ and balance > $N$",
            "select count(*), sum(balance), min(owner), max(id), avg(balance) from account",
            "select owner, count(*), sum(balance) from account group by owner",
            "select owner, count(distinct balance) from account where id > $I$ group by owner having count(*) > 1",
            "select id from account where balance > $N$",
            "select id, row_number() over (order by id) from account",
            "select sum(balance) over (partition by owner) from account",
            "select a.id, e.no, e.quantity from account a join entry e on e.account = a.id where a.balance > $N$",
            "select a.id, i.name from account a left join item i on i.id = a.id",
            "select e.item, sum(e.quantity * i.price) from entry e join item i on i.id = e.item group by e.item",
            "select a.id, b.id from account a join account b on a.balance = b.balance and a.id < b.id",
            "select a.owner, n.text from account a join note n on n.id = a.id",
            "select distinct owner from account",
            "select id from account where exists (select 1 from entry where entry.account = account.id)",
            "select id from account where id not in (select account from entry where quantity > $N$)",
            "select id from account union select id from item",
            "select id from account except select account from entry",
            "select (select count(*) from entry where account = $I$), (select max(price) from item)",
            "select account, no from entry where account = $I$",
            "select no, quantity from entry where account = $I$ and no = $S$",
            "select count(*) from entry where account between $I$ and $I$",
            "select item, quantity from entry where item in ($S$, $S$)",
            "select name from item where id = $S$",
            "select count(*), max(price) from item",
            "select * from note where id < $I$",
            "select count(*) from account, item where account.id = item.id and item.price > $N$",
            "select max(e.no) from entry e where e.account = (select min(id) from account)",
            "select 10 / (balance - $N$) from account",
            "select owner from account where id = $I$ or id = $I$",
            "select id from account where owner is null",
            "with t as (select owner o, sum(balance) s from account group by owner) select o from t where s > $N$",
            "select id, balance from account order by id limit 5",
            "select id from account order by id desc limit 3 offset 2",
            "select id, balance from account where balance > $N$ order by balance, id limit 4",
        ]);
        self.fill(pattern)
    }

    /// The next message.
    fn message(&mut self, in_transaction: bool) -> String {
        match (self.below(20), in_transaction) {
            (0..=2, false) => self
                .one(&["begin", "begin", "begin isolation level serializable"])
                .to_owned(),
            (0..=1, true) => "commit".to_owned(),
            (2, true) => "rollback".to_owned(),
            (3, true) => self
                .one(&[
                    "savepoint a",
                    "savepoint b",
                    "rollback to a",
                    "rollback to b",
                    "release a",
                ])
                .to_owned(),
            (4, _) => format!("{}; {}", self.change(), self.change()),
            (5, false) => format!("begin; {}; {}; commit", self.change(), self.change()),
            (6..=12, _) => self.change(),
            _ => self.query(),
        }
    }
}

/// What a client is told; the order of rows counts only where the query says one.
fn told<S: BackendSession<Prepared = weft::Prepared>>(client: &mut Client<S>, sql: &str) -> String {
    match client.answer(sql) {
        Ok((mut rows, tags)) => {
            if !sql.contains("order by id limit") && !sql.contains("limit") && !STATE.contains(&sql) {
                rows.sort();
            }
            format!("{} | {}", rows.join(";"), tags.join(";"))
        }
        Err(error) => format!("{} {}", error.state.code(), error.message),
    }
}

/// How many statements were answered and how many refused.
fn run(seed: u64, rank_count: u32) -> (usize, usize) {
    let cluster = Cluster::start(rank_count);
    cluster.define(TABLES);
    let database = database();
    let mut alone = Client::alone(&database);
    alone.ok(TABLES);
    let mut clients: Vec<Client<RanksSession>> = (0..rank_count as usize)
        .map(|rank| cluster.client(rank))
        .collect();
    let mut generator = Generator(Prng::new(seed));
    let (mut done, mut refused) = (Vec::new(), 0);
    let mut which = 0;
    for _ in 0..STATEMENTS {
        use weft::sink::TxnStatus;
        let in_transaction = clients[which].session.status() != TxnStatus::Idle;
        if !in_transaction {
            which = generator.below(u64::from(rank_count)) as usize;
        }
        let client = &mut clients[which];
        let sql = generator.message(in_transaction);
        let of_ranks = told(client, &sql);
        if of_ranks.starts_with("0A000") {
            refused += 1;
            client.ok("rollback");
            alone.ok("rollback");
            done.push(format!("-- refused: {sql}: {of_ranks}"));
            continue;
        }
        let expected = told(&mut alone, &sql);
        let history = || done.join(";\n");
        assert_eq!(
            of_ranks,
            expected,
            "seed {seed}, {rank_count} ranks, rank {which}, after\n{}\n{sql}",
            history()
        );
        let statuses = (client.session.status(), BackendSession::status(&alone.session));
        assert_eq!(statuses.0, statuses.1, "seed {seed}: {sql} after\n{}", history());
        done.push(sql);
    }
    let mut client = clients.swap_remove(which);
    let ended = (told(&mut client, "commit"), told(&mut alone, "commit"));
    assert_eq!(ended.0, ended.1, "seed {seed}");
    for query in STATE {
        let (of_ranks, expected) = (told(&mut client, query), told(&mut alone, query));
        assert_eq!(
            of_ranks,
            expected,
            "seed {seed}: {query} after\n{}",
            done.join(";\n")
        );
    }
    for rank in 1..rank_count as usize {
        let mut client = cluster.client(rank);
        let replicated = cluster.parts(STATE[2]);
        assert_eq!(replicated[rank], replicated[0], "seed {seed}");
        assert_eq!(client.rows("select count(*) from pg_prepared_xacts"), "0");
    }
    (done.len() - refused, refused)
}

fn seeds() -> u64 {
    std::env::var("WEFT_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8)
}

#[test]
fn random_transactions_give_what_one_database_gives() {
    let first: u64 = std::env::var("WEFT_FIRST_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let (mut answered, mut refused) = (0, 0);
    for seed in first..first + seeds() {
        let (of_seed, not) = run(seed, 2 + (seed % 2) as u32);
        println!("seed {seed}: {of_seed} answered, {not} refused");
        answered += of_seed;
        refused += not;
    }
    println!("{answered} answered, {refused} refused");
    assert!(answered > refused * 6, "{answered} answered, {refused} refused");
}
