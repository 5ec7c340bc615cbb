//! `weft init`: a database directory whose superuser has a password.
//!
//! The password is the first line of a file, so that it is in no list of processes and no shell's history.
//! The database keeps a verifier of it, not the password.

use std::fs;
use std::path::Path;

use weft::{Account, Database, Options};

use crate::arguments::InitArguments;
use crate::failure::Failure;
use crate::opening;

/// The superuser that every database has.
const SUPERUSER: &str = "postgres";

/// Creates the database, if it is not there, and sets the password, which must not be set yet.
pub(crate) fn run(arguments: &InitArguments) -> Result<(), Failure> {
    let database = Database::open(&arguments.data, Options::default())
        .map_err(|error| Failure::Environment(error.to_string()))?;
    opening::keep_private(&arguments.data)?;
    if !set_first_password(&database, &arguments.password_file)? {
        let problem = format!("{SUPERUSER} has a password already; change it with ALTER ROLE");
        return Err(Failure::Usage(problem));
    }
    println!(
        "{SUPERUSER} now logs in with the password in {}",
        arguments.password_file.display()
    );
    Ok(())
}

/// Gives the superuser the password in the first line of `file`, if it has none. Whether it had none.
pub(crate) fn set_first_password(database: &Database, file: &Path) -> Result<bool, Failure> {
    if matches!(database.account(SUPERUSER), Account::Role(role) if role.verifier.is_some()) {
        return Ok(false);
    }
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::Environment(format!("cannot read {}: {error}", file.display())))?;
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() {
        return Err(Failure::Usage(format!(
            "the first line of {} is empty",
            file.display()
        )));
    }
    database
        .set_password(SUPERUSER, password)
        .map_err(|error| Failure::Environment(error.to_string()))?;
    Ok(true)
}
