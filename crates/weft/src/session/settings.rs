//! Run-time parameters of a session: SET, SHOW, RESET, and what a client is told at start-up.
//!
//! Parameters that have an effect in Weft have a type of their own; others that PostgreSQL clients commonly
//! set are stored and shown, and change nothing. A name that PostgreSQL does not know either is an error
//! (42704), unless it contains a dot (custom parameters) and does not begin with `weft.`.

use std::collections::BTreeMap;
use std::time::Duration;
use weft_query::{JoinChoice, QueryPriority};
use weft_store::BOOTSTRAP_ROLE;
use weft_txn::Isolation;
use weft_types::{SqlError, SqlState, TimeZone};

use super::rights::SessionRoles;

const UNDEFINED_OBJECT: SqlState = SqlState("42704");
const INVALID_PARAMETER_VALUE: SqlState = SqlState("22023");
const CANT_CHANGE_RUNTIME_PARAM: SqlState = SqlState("55P02");

/// Parameters that are only stored and shown, with their PostgreSQL spelling and initial values.
const PLAIN: &[(&str, &str)] = &[
    ("application_name", ""),
    ("bytea_output", "hex"),
    ("check_function_bodies", "on"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("DateStyle", "ISO, MDY"),
    ("default_table_access_method", "heap"),
    ("default_tablespace", ""),
    ("escape_string_warning", "on"),
    ("extra_float_digits", "1"),
    ("geqo", "on"),
    ("IntervalStyle", "postgres"),
    ("jit", "off"),
    ("lc_messages", "C"),
    ("lc_monetary", "C"),
    ("lc_numeric", "C"),
    ("lc_time", "C"),
    ("log_min_messages", "warning"),
    ("maintenance_work_mem", "64MB"),
    ("max_parallel_workers_per_gather", "0"),
    ("row_security", "on"),
    ("search_path", "\"$user\", public"),
    ("synchronize_seqscans", "on"),
    ("role", "none"),
    ("session_authorization", ""),
    ("temp_buffers", "8MB"),
    ("TimeZone", "UTC"),
    ("work_mem", "4MB"),
    ("xmloption", "content"),
];

/// Read-only parameters.
const FIXED: &[(&str, &str)] = &[
    ("block_size", "8192"),
    ("data_checksums", "on"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("lc_collate", "C"),
    ("lc_ctype", "C"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("server_encoding", "UTF8"),
    ("server_version_num", "150000"),
];

/// The values of `weft.query_priority`.
const PRIORITIES: [(&str, QueryPriority); 3] = [
    ("auto", QueryPriority::Auto),
    ("normal", QueryPriority::Normal),
    ("low", QueryPriority::Low),
];

/// A session's parameters.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    plain: BTreeMap<String, (String, String)>,
    /// Replies wait for the disk.
    pub synchronous_commit: bool,
    /// The level of transactions that do not name one.
    pub default_isolation: Isolation,
    /// Whether transactions that do not say so are read only.
    pub default_read_only: bool,
    /// Zero: none.
    pub statement_timeout: Duration,
    /// Zero: wait for ever.
    pub lock_timeout: Duration,
    /// Zero: none.
    pub idle_in_transaction_timeout: Duration,
    /// `weft.query_priority`: whether long queries give way.
    pub query_priority: QueryPriority,
    /// `weft.join`: which algorithm joins by one integer-like key.
    pub join: JoinChoice,
    /// `TimeZone`: in which timestamptz is read and shown.
    pub zone: TimeZone,
    /// Who the session acts as.
    pub roles: SessionRoles,
    /// `is_superuser`
    superuser: bool,
    /// `ssl`: whether the server offers TLS.
    pub ssl: bool,
    version: u64,
}

/// The version reported to clients; they use the part before the blank.
pub(crate) fn server_version() -> String {
    format!("15.0 (Weft {})", env!("CARGO_PKG_VERSION"))
}

/// A Boolean as PostgreSQL reads it.
pub(crate) fn parse_bool(name: &str, value: &str) -> Result<bool, SqlError> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Ok(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Ok(false),
        _ => Err(SqlError::new(
            INVALID_PARAMETER_VALUE,
            format!("parameter \"{name}\" requires a Boolean value"),
        )),
    }
}

/// A duration as PostgreSQL writes it: a number of milliseconds, or a number with us, ms, s, min, h or d.
fn parse_duration(name: &str, value: &str) -> Result<Duration, SqlError> {
    let bad = || {
        SqlError::new(
            INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": \"{value}\""),
        )
    };
    let text = value.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| bad())?;
    let seconds = match unit.trim() {
        "us" => number / 1e6,
        "" | "ms" => number / 1e3,
        "s" => number,
        "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

fn show_duration(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "0".to_string(),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{}min", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

fn invalid(name: &str, value: &str) -> SqlError {
    SqlError::new(
        INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": \"{value}\""),
    )
}

/// A zone by its name, or hours east of UTC (`-8`, `5.5`, `+05:30`), and how SHOW prints it.
fn parse_zone(value: &str) -> Option<(TimeZone, String)> {
    let text = value.trim();
    if matches!(text.to_ascii_lowercase().as_str(), "default" | "local") {
        return Some((TimeZone::UTC, "UTC".to_owned()));
    }
    if let Some(zone) = TimeZone::from_name(text) {
        let shown = match zone {
            TimeZone::Named(named) => named.name().to_owned(),
            TimeZone::Fixed(_) => text.to_owned(),
        };
        return Some((zone, shown));
    }
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1.0, text.get(1..)?),
        b'+' => (1.0, text.get(1..)?),
        _ => (1.0, text),
    };
    let hours: f64 = match digits.split_once(':') {
        Some((hours, minutes)) => {
            hours.parse::<u32>().ok()? as f64 + minutes.parse::<u32>().ok()? as f64 / 60.0
        }
        None => digits.parse().ok().filter(|hours: &f64| hours.is_finite())?,
    };
    let seconds = (sign * hours * 3600.0).round();
    if seconds.abs() >= 168.0 * 3600.0 {
        return None;
    }
    let seconds = seconds as i32;
    let (east, rest) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs());
    let minutes = match rest / 60 % 60 {
        0 => String::new(),
        minutes => format!(":{minutes:02}"),
    };
    let west = if seconds < 0 { '+' } else { '-' };
    let shown = format!(
        "<{east}{:02}{minutes}>{west}{:02}{minutes}",
        rest / 3600,
        rest / 3600
    );
    Some((TimeZone::Fixed(seconds), shown))
}

/// Refuses values that would change what a client sees and are not implemented: no value is accepted and
/// ignored.
fn check_plain(key: &str, name: &str, value: &str) -> Result<(), SqlError> {
    let lower = value.trim().to_ascii_lowercase();
    let words: Vec<&str> = lower
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    let (built, known) = match key {
        "datestyle" => (
            words
                .iter()
                .all(|word| matches!(*word, "iso" | "mdy" | "us" | "default")),
            words.iter().all(|word| {
                matches!(
                    *word,
                    "iso"
                        | "sql"
                        | "postgres"
                        | "german"
                        | "mdy"
                        | "dmy"
                        | "ymd"
                        | "us"
                        | "noneuropean"
                        | "european"
                        | "default"
                )
            }),
        ),
        "intervalstyle" => (
            lower == "postgres",
            matches!(
                lower.as_str(),
                "postgres" | "postgres_verbose" | "sql_standard" | "iso_8601"
            ),
        ),
        "bytea_output" => (lower == "hex", matches!(lower.as_str(), "hex" | "escape")),
        "extra_float_digits" => {
            let digits = lower
                .parse::<i32>()
                .ok()
                .filter(|digits| (-15..=3).contains(digits));
            (digits.is_some_and(|digits| digits > 0), digits.is_some())
        }
        "search_path" => (
            words.iter().all(|word| {
                matches!(
                    word.trim_matches(['"', '\'']),
                    "$user" | "public" | "pg_catalog" | "information_schema"
                )
            }) && (words.iter().all(|word| *word == "pg_catalog")
                || words
                    .iter()
                    .any(|word| word.trim_matches(['"', '\'']) == "public")),
            true,
        ),
        _ => (true, true),
    };
    match (known, built) {
        (false, _) => Err(invalid(name, value)),
        (true, false) => Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("{name} = \"{value}\" is not supported"),
        )),
        (true, true) => Ok(()),
    }
}

/// The isolation level that a setting or a SET TRANSACTION names.
pub(crate) fn parse_isolation(value: &str) -> Result<Isolation, SqlError> {
    match value.to_ascii_lowercase().as_str() {
        "read committed" | "read uncommitted" => Ok(Isolation::ReadCommitted),
        "repeatable read" => Ok(Isolation::RepeatableRead),
        "serializable" => Ok(Isolation::Serializable),
        _ => Err(SqlError::new(
            INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"default_transaction_isolation\": \"{value}\""),
        )
        .hint("Available values: serializable, repeatable read, read committed, read uncommitted.")),
    }
}

/// PostgreSQL's name of an isolation level.
pub(crate) fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadCommitted => "read committed",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::Serializable => "serializable",
    }
}

impl Settings {
    pub(crate) fn new(user: &str, synchronous_commit: bool) -> Settings {
        let mut plain: BTreeMap<String, (String, String)> = PLAIN
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), (name.to_string(), value.to_string())))
            .collect();
        plain.insert(
            "session_authorization".into(),
            ("session_authorization".into(), user.into()),
        );
        Settings {
            plain,
            synchronous_commit,
            default_isolation: Isolation::default(),
            default_read_only: false,
            statement_timeout: Duration::ZERO,
            lock_timeout: Duration::ZERO,
            idle_in_transaction_timeout: Duration::ZERO,
            query_priority: QueryPriority::default(),
            join: JoinChoice::default(),
            zone: TimeZone::UTC,
            roles: SessionRoles::of(BOOTSTRAP_ROLE),
            superuser: true,
            ssl: false,
            version: 0,
        }
    }

    /// Sets the roles, and what shows them.
    pub(crate) fn set_roles(&mut self, roles: SessionRoles, session: &str, role: &str, superuser: bool) {
        self.roles = roles;
        self.superuser = superuser;
        for (name, value) in [("session_authorization", session), ("role", role)] {
            if let Some(slot) = self.plain.get_mut(name) {
                value.clone_into(&mut slot.1);
            }
        }
        self.version += 1;
    }

    /// Incremented by every change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Sets a parameter; the name is matched without regard to case.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        let key = name.to_ascii_lowercase();
        match key.as_str() {
            "synchronous_commit" => {
                // PostgreSQL's levels between off and on concern replicas, of which there are none.
                let local = matches!(
                    value.to_ascii_lowercase().as_str(),
                    "local" | "remote_write" | "remote_apply"
                );
                self.synchronous_commit = local || parse_bool(name, value)?;
            }
            "default_transaction_isolation" => self.default_isolation = parse_isolation(value)?,
            "default_transaction_read_only" => self.default_read_only = parse_bool(name, value)?,
            "statement_timeout" => self.statement_timeout = parse_duration(name, value)?,
            "lock_timeout" => self.lock_timeout = parse_duration(name, value)?,
            "idle_in_transaction_session_timeout" => {
                self.idle_in_transaction_timeout = parse_duration(name, value)?;
            }
            "weft.query_priority" => {
                let found = PRIORITIES
                    .iter()
                    .find(|(word, _)| value.eq_ignore_ascii_case(word));
                let (_, priority) =
                    found.ok_or_else(|| invalid(name, value).hint("Available values: auto, normal, low."))?;
                self.query_priority = *priority;
            }
            "weft.join" => {
                let mut choices = JoinChoice::ALL.into_iter();
                let found = choices.find(|choice| value.eq_ignore_ascii_case(choice.name()));
                self.join = found.ok_or_else(|| {
                    let names = JoinChoice::ALL.map(JoinChoice::name).join(", ");
                    invalid(name, value).hint(format!("Available values: {names}."))
                })?;
            }
            "standard_conforming_strings" => {
                if !parse_bool(name, value)? {
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "standard_conforming_strings cannot be turned off",
                    ));
                }
            }
            "client_encoding" => {
                // As PostgreSQL reads the name of an encoding: letters and digits count.
                let plain: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
                let plain = plain.to_ascii_uppercase();
                if !matches!(plain.as_str(), "UTF8" | "UNICODE" | "SQLASCII") {
                    return Err(SqlError::new(
                        INVALID_PARAMETER_VALUE,
                        format!("invalid value for parameter \"client_encoding\": \"{value}\""),
                    )
                    .hint("Weft speaks UTF8 only."));
                }
            }
            "timezone" => {
                let (zone, shown) = parse_zone(value).ok_or_else(|| invalid(name, value))?;
                self.zone = zone;
                self.set_plain(&key, name, &shown)?;
            }
            _ => {
                check_plain(&key, name, value)?;
                self.set_plain(&key, name, value)?;
            }
        }
        self.version += 1;
        Ok(())
    }

    fn set_plain(&mut self, key: &str, name: &str, value: &str) -> Result<(), SqlError> {
        let is_shown_only = matches!(
            key,
            "server_version" | "is_superuser" | "role" | "session_authorization" | "ssl"
        );
        if is_shown_only || FIXED.iter().any(|(fixed, _)| *fixed == key) {
            return Err(SqlError::new(
                CANT_CHANGE_RUNTIME_PARAM,
                format!("parameter \"{name}\" cannot be changed"),
            ));
        }
        if let Some(slot) = self.plain.get_mut(key) {
            slot.1 = match key {
                "datestyle" => "ISO, MDY".to_owned(),
                _ => value.to_string(),
            };
        } else if key.contains('.') && !key.starts_with("weft.") {
            self.plain
                .insert(key.to_string(), (name.to_string(), value.to_string()));
        } else {
            return Err(unknown(name));
        }
        Ok(())
    }

    /// Resets one parameter, or all, to its initial value.
    pub(crate) fn reset(&mut self, name: Option<&str>, first: &Settings) -> Result<(), SqlError> {
        match name {
            None => {
                // Roles are reset by themselves.
                let (session, role) = (self.shown("session_authorization"), self.shown("role"));
                let (roles, superuser) = (self.roles.clone(), self.superuser);
                *self = Settings {
                    version: self.version,
                    ..first.clone()
                };
                self.set_roles(roles, &session, &role, superuser);
            }
            Some(name) => {
                let value = first.show(name).unwrap_or_default();
                self.set(name, &value)?;
            }
        }
        self.version += 1;
        Ok(())
    }

    fn shown(&self, name: &str) -> String {
        self.show(name).unwrap_or_default()
    }

    /// The value of a parameter, as SHOW prints it; `None` for one that does not exist.
    pub(crate) fn show(&self, name: &str) -> Option<String> {
        let key = name.to_ascii_lowercase();
        let on_off = |on: bool| if on { "on".to_string() } else { "off".to_string() };
        Some(match key.as_str() {
            "server_version" => server_version(),
            "synchronous_commit" => on_off(self.synchronous_commit),
            "standard_conforming_strings" => on_off(true),
            "is_superuser" => on_off(self.superuser),
            "ssl" => on_off(self.ssl),
            "default_transaction_isolation" => isolation_name(self.default_isolation).to_string(),
            "default_transaction_read_only" => on_off(self.default_read_only),
            "statement_timeout" => show_duration(self.statement_timeout),
            "lock_timeout" => show_duration(self.lock_timeout),
            "idle_in_transaction_session_timeout" => show_duration(self.idle_in_transaction_timeout),
            "weft.query_priority" => PRIORITIES
                .iter()
                .find(|(_, priority)| *priority == self.query_priority)
                .map_or_else(String::new, |(word, _)| (*word).to_owned()),
            "weft.join" => self.join.name().to_owned(),
            _ => match self.plain.get(&key) {
                Some((_, value)) => value.clone(),
                None => FIXED.iter().find(|(fixed, _)| *fixed == key)?.1.to_string(),
            },
        })
    }

    /// All parameters with their values, by name.
    pub(crate) fn all(&self) -> Vec<(String, String)> {
        let named = [
            "default_transaction_isolation",
            "default_transaction_read_only",
            "idle_in_transaction_session_timeout",
            "is_superuser",
            "lock_timeout",
            "server_version",
            "ssl",
            "standard_conforming_strings",
            "statement_timeout",
            "synchronous_commit",
            "weft.join",
            "weft.query_priority",
        ];
        let mut all: Vec<(String, String)> = self.plain.values().cloned().collect();
        all.extend(
            FIXED
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string())),
        );
        all.extend(
            named
                .iter()
                .filter_map(|name| Some((name.to_string(), self.show(name)?))),
        );
        all.sort_by_key(|(name, _)| name.to_ascii_lowercase());
        all
    }
}

/// The error for a parameter that does not exist.
pub(crate) fn unknown(name: &str) -> SqlError {
    SqlError::new(
        UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_matched_without_regard_to_case() {
        let mut settings = Settings::new("ann", true);
        settings.set("datestyle", "ISO").unwrap();
        assert_eq!(settings.show("DateStyle").as_deref(), Some("ISO, MDY"));
        assert_eq!(settings.show("session_authorization").as_deref(), Some("ann"));
    }

    #[test]
    fn unsupported_and_invalid_settings_are_refused() {
        let mut settings = Settings::new("ann", true);
        for (name, value, state) in [
            ("datestyle", "German", "0A000"),
            ("datestyle", "ISO, DMY", "0A000"),
            ("datestyle", "martian", "22023"),
            ("bytea_output", "escape", "0A000"),
            ("bytea_output", "octal", "22023"),
            ("intervalstyle", "iso_8601", "0A000"),
            ("extra_float_digits", "0", "0A000"),
            ("extra_float_digits", "4", "22023"),
            ("search_path", "other", "0A000"),
            ("timezone", "Mars/Olympus", "22023"),
        ] {
            assert_eq!(
                settings.set(name, value).unwrap_err().state.0,
                state,
                "{name} = {value}"
            );
        }
        for (name, value) in [
            ("datestyle", "ISO, MDY"),
            ("extra_float_digits", "3"),
            ("search_path", "\"$user\", public"),
        ] {
            settings.set(name, value).unwrap();
        }
    }

    #[test]
    fn zones_have_names_or_hours() {
        let mut settings = Settings::new("ann", true);
        for (value, shown) in [
            ("europe/zurich", "Europe/Zurich"),
            ("-8", "<-08>+08"),
            ("5.5", "<+05:30>-05:30"),
            ("+05:30", "<+05:30>-05:30"),
            ("UTC", "UTC"),
        ] {
            settings.set("TimeZone", value).unwrap();
            assert_eq!(settings.show("timezone").as_deref(), Some(shown), "{value}");
        }
        assert_eq!(settings.zone, TimeZone::UTC);
    }

    #[test]
    fn unknown_and_fixed_parameters_are_refused() {
        let mut settings = Settings::new("ann", true);
        assert_eq!(settings.set("no_such", "1").unwrap_err().state.0, "42704");
        assert_eq!(settings.set("server_version", "16").unwrap_err().state.0, "55P02");
        settings.set("myapp.flag", "1").unwrap();
        assert_eq!(settings.show("myapp.flag").as_deref(), Some("1"));
    }

    #[test]
    fn durations_read_and_show_as_postgresql_does() {
        let mut settings = Settings::new("ann", true);
        settings.set("statement_timeout", "1500").unwrap();
        assert_eq!(settings.show("statement_timeout").as_deref(), Some("1500ms"));
        settings.set("statement_timeout", "2 min").unwrap();
        assert_eq!(settings.show("statement_timeout").as_deref(), Some("2min"));
        assert_eq!(
            settings.set("statement_timeout", "soon").unwrap_err().state.0,
            "22023"
        );
    }

    #[test]
    fn reset_restores_the_first_value() {
        let first = Settings::new("ann", true);
        let mut settings = first.clone();
        settings.set("synchronous_commit", "off").unwrap();
        assert!(!settings.synchronous_commit);
        settings.reset(Some("synchronous_commit"), &first).unwrap();
        assert!(settings.synchronous_commit);
    }
}
