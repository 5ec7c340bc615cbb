//! Clients that take their time: a byte at a time, stops in the middle of something, results that nobody
//! reads, connections that end without a word, transactions that are held open.
//!
//! The server of this campaign has short bounds on silence, so that each meets its own within seconds.

use std::time::Duration;

use weft_base::Prng;

use super::input::{Input, Kind, Step, one_of};
use super::messages::{PROTOCOL, execute, extended, message, parse, query, startup, sync};

/// Silence of a client whose transaction holds locks, or in the middle of a COPY.
pub const LOCKS_SECONDS_MAX: u64 = 2;
/// Silence of a client that does not read.
pub const WRITE_SECONDS_MAX: u64 = 3;
/// Time to log in.
pub const STARTUP_SECONDS_MAX: u64 = 3;
/// How late the server may end what is beyond a bound: a machine that does other things needs some time.
const SLACK: Duration = Duration::from_secs(8);
/// More than the buffers of both sockets hold.
const MUCH: &str = "SELECT repeat('x', 1000) FROM generate_series(1, 30000)";

/// A slow input. `index` names its row of table `locked`.
pub fn input(random: &mut Prng, index: usize) -> Input {
    match random.below(14) {
        0 => slow_startup(random),
        1 => stops_in_startup(random),
        2 => byte_by_byte(random),
        3 => stops_in_a_message(random),
        4 => stops_in_copy(random),
        5 => trickles_copy(random),
        6 => reads_nothing(random),
        7 => sips(random),
        8 => vanishes(random),
        9..11 => vanishes_with_locks(random, index),
        11 => holds_locks(index),
        12 => idle_without_locks(random),
        _ => pipelines(random),
    }
}

fn session(name: impl Into<String>, steps: Vec<Step>) -> Input {
    Input::of_session(Kind::Slow, name, steps)
}

fn ms(random: &mut Prng, most: u64) -> Duration {
    Duration::from_millis(1 + random.below(most))
}

fn seconds(limit: u64) -> Duration {
    Duration::from_secs(limit) + SLACK
}

fn of_startup(name: &str, steps: Vec<Step>) -> Input {
    Input {
        kind: Kind::Slow,
        name: name.to_owned(),
        logs_in: false,
        steps,
    }
}

fn first_packet() -> Vec<u8> {
    startup(PROTOCOL, &[("user", "postgres"), ("database", "postgres")])
}

fn slow_startup(random: &mut Prng) -> Input {
    let steps = vec![
        Step::Trickle(first_packet(), 1, ms(random, 15)),
        Step::Await(1),
        Step::MustGoOn,
    ];
    of_startup("a startup packet byte by byte", steps)
}

fn stops_in_startup(random: &mut Prng) -> Input {
    let mut bytes = first_packet();
    bytes.truncate(random.below(bytes.len() as u64) as usize);
    if random.chance(1, 2) {
        let steps = vec![Step::Send(bytes), Step::Pause(ms(random, 500)), Step::Vanish];
        return of_startup("gone in the middle of startup", steps);
    }
    let steps = vec![
        Step::Send(bytes),
        Step::MustEnd(&[], seconds(STARTUP_SECONDS_MAX)),
    ];
    of_startup("silent in the middle of startup", steps)
}

fn byte_by_byte(random: &mut Prng) -> Input {
    let bytes = match random.chance(1, 2) {
        true => query("SELECT * FROM prey WHERE id = 5"),
        false => extended("SELECT * FROM prey WHERE id = $1", &[], &[Some(b"5".to_vec())]),
    };
    let steps = vec![
        Step::Trickle(bytes, 1, ms(random, 10)),
        Step::Await(1),
        Step::MustGoOn,
    ];
    session("messages byte by byte", steps)
}

fn stops_in_a_message(random: &mut Prng) -> Input {
    let mut bytes = query(format!("SELECT {}", "1 + ".repeat(1000)));
    bytes.truncate(1 + random.below(bytes.len() as u64 - 1) as usize);
    let mut steps = vec![Step::Send(bytes), Step::Pause(ms(random, 1500))];
    steps.push(if random.chance(1, 2) {
        Step::Vanish
    } else {
        Step::EndSending
    });
    session("stops in the middle of a message", steps)
}

fn copy_begun() -> Vec<Step> {
    vec![Step::Send(query("COPY caught FROM STDIN")), Step::AwaitCopy]
}

fn stops_in_copy(random: &mut Prng) -> Input {
    let mut steps = copy_begun();
    let mut bytes = message(b'd', &b"1\t2\tthree\n".repeat(1 + random.below(2000) as usize));
    bytes.truncate(1 + random.below(bytes.len() as u64) as usize);
    steps.push(Step::Send(bytes));
    if random.chance(1, 3) {
        steps.extend([Step::Pause(ms(random, 1000)), Step::Vanish]);
        return session("gone in the middle of a COPY", steps);
    }
    steps.push(Step::MustEnd(&["25P03"], seconds(LOCKS_SECONDS_MAX)));
    session("silent in the middle of a COPY", steps)
}

fn trickles_copy(random: &mut Prng) -> Input {
    let mut steps = copy_begun();
    let bytes = message(b'd', b"1\t2\tthree\n").repeat(8);
    steps.push(Step::Trickle(bytes, 5, ms(random, 25)));
    steps.push(Step::Send(message(b'f', b"enough\0")));
    steps.extend([Step::Await(1), Step::MustSay(&["57014"]), Step::MustGoOn]);
    session("data of a COPY byte by byte", steps)
}

fn reads_nothing(random: &mut Prng) -> Input {
    let form = one_of(
        random,
        &[
            MUCH,
            "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 30000)) TO STDOUT",
        ],
    );
    let bytes = if random.chance(1, 2) {
        query(form)
    } else {
        extended(form, &[], &[])
    };
    let mut steps = vec![Step::Send(bytes)];
    match random.below(3) {
        0 => steps.extend([Step::Pause(ms(random, 1500)), Step::Vanish]),
        1 => steps.extend([Step::Pause(ms(random, 1500)), Step::Await(1), Step::MustGoOn]),
        _ => {
            steps.push(Step::Pause(Duration::from_secs(WRITE_SECONDS_MAX + 6)));
            steps.push(Step::MustEnd(&[], SLACK));
        }
    }
    session("does not read its results", steps)
}

fn sips(random: &mut Prng) -> Input {
    let bytes = query("SELECT * FROM prey LIMIT 40");
    let steps = vec![Step::Send(bytes), Step::Sip(7, ms(random, 8)), Step::MustGoOn];
    session("reads its results byte by byte", steps)
}

fn vanishes(random: &mut Prng) -> Input {
    let statements = [
        "SELECT count(*) FROM generate_series(1, 3000000)",
        MUCH,
        "SELECT pg_sleep(3)",
        "INSERT INTO caught SELECT g, 1, 'x' FROM generate_series(1, 3000) g; DELETE FROM caught",
        "SELECT 1",
    ];
    let sql = one_of(random, &statements);
    let bytes = if random.chance(1, 2) {
        query(sql)
    } else {
        extended(sql, &[], &[])
    };
    let steps = vec![Step::Send(bytes), Step::Pause(ms(random, 60)), Step::Vanish];
    session(format!("gone during {sql}"), steps)
}

fn lock_of(index: usize) -> [String; 2] {
    let own = format!("INSERT INTO locked VALUES ({index}, 0) ON CONFLICT (id) DO NOTHING");
    [own, format!("UPDATE locked SET a = a + 1 WHERE id = {index}")]
}

/// What a client held that is gone, others can have.
fn vanishes_with_locks(random: &mut Prng, index: usize) -> Input {
    let [own, lock] = lock_of(index);
    let begin = one_of(
        random,
        &[
            "BEGIN",
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            "BEGIN; SAVEPOINT s",
        ],
    );
    let mut steps = vec![
        Step::Send(query(own)),
        Step::Await(1),
        Step::Send(query(format!("{begin}; {lock}"))),
        Step::Await(1),
    ];
    if random.chance(1, 3) {
        // In the middle of the next message.
        steps.push(Step::Send(query("SELECT 1")[..4].to_vec()));
    }
    steps.extend([Step::Pause(ms(random, 300)), Step::Vanish]);
    steps.push(Step::Elsewhere(lock));
    session("gone with locks in a transaction", steps)
}

fn holds_locks(index: usize) -> Input {
    let [own, lock] = lock_of(index);
    let steps = vec![
        Step::Send(query(own)),
        Step::Await(1),
        Step::Send(query(format!("BEGIN; {lock}"))),
        Step::Await(1),
        Step::MustEnd(&["25P03"], seconds(LOCKS_SECONDS_MAX)),
        Step::Elsewhere(lock),
    ];
    session("silent with locks in a transaction", steps)
}

fn idle_without_locks(random: &mut Prng) -> Input {
    let steps = vec![
        Step::Send(query(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM prey",
        )),
        Step::Await(1),
        Step::Pause(ms(random, 4000)),
        Step::Send(query("SELECT count(*) FROM prey; COMMIT")),
        Step::Await(1),
        Step::MustGoOn,
    ];
    session("silent with a snapshot in a transaction", steps)
}

/// Many messages whose answers are not read until all are sent.
fn pipelines(random: &mut Prng) -> Input {
    let count = 20 + random.below(200) as usize;
    let mut one = parse("", "SELECT repeat('x', 3000)", &[]);
    one.extend(super::messages::bind("", "", &[], &[], &[]));
    one.extend([execute("", 0), sync()].concat());
    let steps = vec![
        Step::Trickle(one.repeat(count), 700, Duration::from_millis(1)),
        Step::Pause(ms(random, 500)),
        Step::Await(count),
        Step::MustGoOn,
    ];
    session("many messages before their answers are read", steps)
}
