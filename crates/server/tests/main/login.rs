//! Logging in over a socket to a database with accounts, with a real driver and message by message.

use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::{Client, Config, NoTls};
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use weft::{Database, Options};
use weft_server::{Server, ServerConfig};

use crate::wire::{Client as RawClient, startup};

const DELAY: Duration = Duration::from_millis(150);

/// A server of a database on a directory of its own.
struct Accounts {
    database: Database,
    server: Server,
    _dir: tempfile::TempDir,
}

impl Accounts {
    fn new(change: impl FnOnce(&mut ServerConfig)) -> Accounts {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path(), Options::default()).unwrap();
        let mut config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            login_failure_delay: DELAY,
            ..ServerConfig::default()
        };
        change(&mut config);
        let server = Server::start(std::sync::Arc::new(database.clone()), config).unwrap();
        Accounts {
            database,
            server,
            _dir: dir,
        }
    }

    fn run(&self, sql: &str) {
        self.database.session().run(sql).unwrap();
    }

    fn log_in(&self, user: &str, password: Option<&str>) -> Result<Client, postgres::Error> {
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(self.server.address().port())
            .dbname("postgres")
            .user(user);
        if let Some(password) = password {
            config.password(password);
        }
        config.connect(NoTls)
    }

    /// The SQLSTATE and the message of the refusal.
    fn refused(&self, user: &str, password: &str) -> (SqlState, String) {
        let error = self.log_in(user, Some(password)).err().unwrap();
        let error = error.as_db_error().unwrap_or_else(|| panic!("{error}"));
        assert_eq!(error.severity(), "FATAL");
        (error.code().clone(), error.message().to_owned())
    }

    fn raw(&self) -> RawClient {
        let stream = std::net::TcpStream::connect(self.server.address()).unwrap();
        RawClient::over(stream.into())
    }
}

fn password_failed(user: &str) -> (SqlState, String) {
    let message = format!("password authentication failed for user \"{user}\"");
    (SqlState::INVALID_PASSWORD, message)
}

#[test]
fn a_password_is_demanded_as_soon_as_a_role_has_one() {
    let accounts = Accounts::new(|_| {});
    let user = |client: &mut Client| {
        let row = client.query_one("select current_user::text, session_user::text", &[]);
        let row = row.unwrap();
        (row.get::<_, String>(0), row.get::<_, String>(1))
    };
    let names = |name: &str| (name.to_owned(), name.to_owned());
    // No accounts: every name is the superuser.
    let mut anybody = accounts.log_in("anybody", None).unwrap();
    assert_eq!(user(&mut anybody), names("anybody"));
    accounts.run("create role ann login; create role nobody");
    assert_eq!(user(&mut accounts.log_in("ann", None).unwrap()), names("ann"));
    let unknown = accounts.refused("anybody", "");
    let message = "role \"anybody\" does not exist".to_owned();
    assert_eq!(unknown, (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, message));
    // One password: everybody must give one, and who has none cannot.
    accounts.run("alter role ann password 'secret'");
    assert_eq!(
        user(&mut accounts.log_in("ann", Some("secret")).unwrap()),
        names("ann")
    );
    assert!(accounts.log_in("ann", None).is_err());
    for (name, password) in [
        ("ann", "Secret"),
        ("postgres", "secret"),
        ("nobody", "secret"),
        ("anybody", "secret"),
        ("ANN", "secret"),
    ] {
        let began = Instant::now();
        assert_eq!(accounts.refused(name, password), password_failed(name));
        assert!(began.elapsed() >= DELAY, "no delay for {name}");
    }
    // The session from before goes on.
    assert_eq!(user(&mut anybody), names("anybody"));
}

#[test]
fn a_right_password_is_not_enough() {
    let accounts = Accounts::new(|_| {});
    accounts.run(
        "create role out nologin password 'x';
         create role late login password 'x' valid until '2001-01-01';
         create role early login password 'x' valid until '2901-01-01';
         create role once login password 'x' connection limit 1;
         create role apart login password 'x'",
    );
    let (state, message) = accounts.refused("out", "x");
    assert_eq!(state, SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
    assert_eq!(message, "role \"out\" is not permitted to log in");
    assert_eq!(accounts.refused("out", "y"), password_failed("out"));
    assert_eq!(accounts.refused("late", "x"), password_failed("late"));
    accounts.log_in("early", Some("x")).unwrap();
    let first = accounts.log_in("once", Some("x")).unwrap();
    let (state, message) = accounts.refused("once", "x");
    assert_eq!(state, SqlState::TOO_MANY_CONNECTIONS);
    assert_eq!(message, "too many connections for role \"once\"");
    drop(first);
    let mut again = accounts.log_in("once", Some("x"));
    for _ in 0..200 {
        if again.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        again = accounts.log_in("once", Some("x"));
    }
    again.unwrap();
    accounts.run("revoke connect on database postgres from public");
    let (state, message) = accounts.refused("apart", "x");
    assert_eq!(state, SqlState::INSUFFICIENT_PRIVILEGE);
    assert_eq!(message, "permission denied for database \"postgres\"");
    accounts.run("drop role apart");
    assert_eq!(accounts.refused("apart", "x"), password_failed("apart"));
}

#[test]
fn the_last_places_are_for_superusers() {
    let accounts = Accounts::new(|config| {
        config.connections_max = 3;
        config.superuser_reserved = 1;
    });
    accounts.run("create role ann login; create role boss superuser login");
    let _sessions = [(); 2].map(|()| accounts.log_in("ann", None).unwrap());
    let (state, message) = accounts.refused("ann", "x");
    assert_eq!(state, SqlState::TOO_MANY_CONNECTIONS);
    let reserved = "remaining connection slots are reserved for non-replication superuser connections";
    assert_eq!(message, reserved);
    let _boss = accounts.log_in("boss", None).unwrap();
    let (state, message) = accounts.refused("boss", "x");
    assert_eq!(state, SqlState::TOO_MANY_CONNECTIONS);
    assert_eq!(message, "sorry, too many clients already");
}

/// The server's first message to `user`, who claims to know `password`, and the line of its last.
fn exchange(accounts: &Accounts, user: &str, password: &str) -> (String, String) {
    exchange_around(accounts, user, password, "")
}

/// The same; `sql` runs between the server's first message and the client's proof.
fn exchange_around(accounts: &Accounts, user: &str, password: &str, sql: &str) -> (String, String) {
    let mut client = accounts.raw();
    client.send(&startup(3 << 16, &[("user", user), ("database", "postgres")]));
    assert_eq!(client.reply().unwrap(), "R SASL([\"SCRAM-SHA-256\"])");
    let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
    let message = scram.message();
    let mut first = b"SCRAM-SHA-256\0".to_vec();
    first.extend((message.len() as u32).to_be_bytes());
    first.extend(message);
    client.send(&framed(&first));
    let answer = client.sasl_data();
    let shown = String::from_utf8(answer.clone()).unwrap();
    accounts.run(sql);
    scram.update(&answer).unwrap();
    client.send(&framed(scram.message()));
    let last = loop {
        match client.reply() {
            Some(line) if line.starts_with("R SASLFinal") => {}
            Some(line) => break line,
            None => panic!("closed without a word"),
        }
    };
    (shown, last)
}

#[test]
fn an_account_is_judged_again_after_the_exchange() {
    let accounts = Accounts::new(|_| {});
    accounts.run("create role boss superuser login password 'x'");
    for (sql, answer) in [
        ("", "R Ok"),
        ("alter role ann nologin", "E FATAL 28000"),
        ("drop role ann", "E FATAL 28P01"),
        (
            "drop role ann; create role ann login password 'secret'",
            "E FATAL 28P01",
        ),
        ("alter role ann password 'other'", "E FATAL 28P01"),
        ("alter role ann valid until '2001-01-01'", "E FATAL 28P01"),
        ("revoke connect on database postgres from public", "E FATAL 42501"),
    ] {
        accounts.run(
            "drop role if exists ann; create role ann login password 'secret';
             grant connect on database postgres to public",
        );
        let (_, last) = exchange_around(&accounts, "ann", "secret", sql);
        assert!(last.starts_with(answer), "{sql}: {last}");
    }
}

fn framed(body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&b"p"[..], &length, body].concat()
}

#[test]
fn an_unknown_name_goes_through_the_same_exchange() {
    let accounts = Accounts::new(|_| {});
    accounts.run("create role ann login password 'secret'");
    let salt = |answer: &str| {
        let fields: Vec<_> = answer.split(',').collect();
        let [nonce, salt, iterations] = fields[..] else {
            panic!("{answer}");
        };
        assert!(nonce.starts_with("r="), "{answer}");
        assert_eq!(iterations, "i=4096");
        assert_eq!(salt.len(), "s=".len() + 24, "{answer}");
        salt.to_owned()
    };
    let (known, last) = exchange(&accounts, "ann", "wrong");
    assert!(last.starts_with("E FATAL 28P01"), "{last}");
    let (unknown, same) = exchange(&accounts, "bob", "wrong");
    assert_eq!(same, last.replace("ann", "bob"));
    // As a stored salt, that of a name without an account stays the same.
    assert_eq!(salt(&exchange(&accounts, "bob", "other").0), salt(&unknown));
    assert_eq!(salt(&exchange(&accounts, "ann", "other").0), salt(&known));
    assert_ne!(salt(&unknown), salt(&known));
    assert_eq!(exchange(&accounts, "ann", "secret").1, "R Ok");
}

#[test]
fn what_is_no_login_ends_the_connection_and_harms_nobody() {
    // Enough for a login of an unoptimised build on a busy machine.
    let limit = Duration::from_secs(4);
    let accounts = Accounts::new(|config| config.startup_timeout = limit);
    accounts.run("create role ann login password 'secret'");
    let mut other = accounts.log_in("ann", Some("secret")).unwrap();
    let answer = |bytes: &[u8]| {
        let mut client = accounts.raw();
        client.send(&startup(3 << 16, &[("user", "ann"), ("database", "postgres")]));
        client.reply().unwrap();
        client.send(bytes);
        client.farewell()
    };
    let query = b"Q\0\0\0\x0dselect 1\0";
    assert!(answer(query)[0].starts_with("E FATAL 08P01 expected SASL response"));
    assert!(answer(&framed(b"secret\0"))[0].starts_with("E FATAL 08P01"));
    assert!(answer(&framed(b"SCRAM-SHA-256-PLUS\0\0\0\0\x01n"))[0].starts_with("E FATAL 08P01"));
    assert!(answer(&framed(b"SCRAM-SHA-256\0\0\0\0\x03n,,"))[0].starts_with("E FATAL 08P01"));
    assert!(answer(b"p\xff\xff\xff\xff")[0].starts_with("E FATAL 08P01"));
    assert!(answer(b"p\0\0\0\x01")[0].starts_with("E FATAL 08P01"));
    // Nothing comes: the time is over.
    let began = Instant::now();
    assert!(answer(b"").is_empty());
    assert!(began.elapsed() >= limit - Duration::from_millis(500));
    assert!(began.elapsed() < 4 * limit);
    assert_eq!(other.query_one("select 1", &[]).unwrap().get::<_, i32>(0), 1);
}

#[test]
fn roles_may_come_with_the_first_packet() {
    let accounts = Accounts::new(|_| {});
    accounts.run("create role staff; create role ann login in role staff; create role boss login superuser");
    let begin = |role: &str| {
        let mut client = accounts.raw();
        let options = format!("-c role={role}");
        let pairs = [("user", "ann"), ("database", "postgres"), ("options", &options)];
        client.send(&startup(3 << 16, &pairs));
        client
    };
    let mut staff = begin("staff");
    assert_eq!(staff.replies().last().unwrap(), "Z I");
    assert_eq!(staff.query("select current_user, session_user")[1], "D staff|ann");
    let refused = begin("boss").farewell();
    assert!(
        refused[0].starts_with("E FATAL 42501 permission denied to set role \"boss\""),
        "{refused:?}"
    );
}
