//! Dependency direction: the crates stand on floors, and a crate may use only crates of lower floors.
//!
//! Read from every `crates/*/Cargo.toml` as written, so that an unused dependency counts too. The floors
//! are those of the design (section 4); a crate that is not on the list fails until it gets a floor.
//! Build and development dependencies obey the same rule. Some foreign crates are fenced in:
//! one of our crates, or everything from one floor up, may use them, nobody else.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::SourceFile;

/// Floor of every crate, by package name.
const FLOORS: [(&str, u8); 31] = [
    ("weft-base", 0),
    ("weft-types", 1),
    ("weft-ops", 1),
    ("weft-device", 6),
    ("weft-wire", 2),
    ("weft-expression", 2),
    ("weft-syntax", 2),
    ("weft-offload", 2),
    ("weft-fabric", 2),
    ("weft-lock", 3),
    ("weft-wal", 3),
    ("weft-lsm", 3),
    ("weft-column", 3),
    ("weft-join", 3),
    ("weft-store", 4),
    ("weft-lsm-bench", 4),
    ("weft-binder", 5),
    ("weft-pg-catalog", 5),
    ("weft-program", 5),
    ("weft-txn", 6),
    ("weft-query", 7),
    ("weft-sql", 7),
    ("weft", 8),
    ("weft-server", 9),
    ("weft-cluster", 9),
    ("weft-workload", 9),
    ("weft-protocols", 9),
    ("weft-ranks", 10),
    ("weft-cli", 11),
    ("weft-sql-compare", 11),
    ("xtask", 12),
];

/// Who may use a fenced foreign crate.
enum Fence {
    /// This package alone.
    Only(&'static str),
    /// Packages on this floor and above.
    FromFloor(u8),
}

/// Foreign crates by the first word of their name, so that `arrow-array` is `arrow`.
const FENCES: [(&str, Fence); 9] = [
    ("pgwire", Fence::Only("weft-server")),
    ("datafusion", Fence::FromFloor(7)),
    ("arrow", Fence::FromFloor(7)),
    ("sqlparser", Fence::FromFloor(2)),
    ("mpi", Fence::Only("weft-fabric")),
    ("ferrompi", Fence::Only("weft-fabric")),
    ("opencl3", Fence::Only("weft-device")),
    ("marlin", Fence::Only("weft-device")),
    ("rocksdb", Fence::Only("weft-lsm-bench")),
];

/// The hardware simulator: only `device` knows it, so no other crate's sources name it. The word is put
/// together here so that this file may hold it.
const SIMULATOR: &str = concat!("veril", "at");
const SIMULATOR_OWNER: &str = "crates/device/";

/// A dependency as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dependency {
    name: String,
    line: usize,
}

/// Crates other than its owner that name the hardware simulator.
fn simulator_fence(files: &[SourceFile]) -> Vec<Finding> {
    let fenced = files.iter().filter(|file| {
        let source = file.is_rust() || file.path.ends_with(".toml");
        source && file.path.starts_with("crates/") && !file.path.starts_with(SIMULATOR_OWNER)
    });
    let mut findings = Vec::new();
    for file in fenced {
        for (at, line) in file.text.lines().enumerate() {
            if line.to_ascii_lowercase().contains(SIMULATOR) {
                let message = "only weft-device may know the hardware simulator";
                findings.push(Finding::new("floors", &file.path, at + 1, message));
            }
        }
    }
    findings
}

/// Checks the manifests among `files`.
pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    let floors = BTreeMap::from(FLOORS);
    let mut findings = simulator_fence(files);
    for file in files.iter().filter(|f| f.path.ends_with("/Cargo.toml")) {
        let Some(package) = package_name(&file.text) else {
            findings.push(Finding::new(
                "floors",
                &file.path,
                0,
                "the manifest names no package",
            ));
            continue;
        };
        let Some(&floor) = floors.get(package.as_str()) else {
            if file.path.starts_with("crates/") {
                let message = format!("{package} has no floor in the design");
                findings.push(Finding::new("floors", &file.path, 0, message));
            }
            continue;
        };
        for dependency in dependencies(&file.text) {
            if let Some(message) = objection(&floors, &package, floor, &dependency.name) {
                findings.push(Finding::new("floors", &file.path, dependency.line, message));
            }
        }
    }
    findings
}

fn objection(floors: &BTreeMap<&str, u8>, package: &str, floor: u8, used: &str) -> Option<String> {
    if let Some(&below) = floors.get(used) {
        // The command stands on top and may also stand its tests on anything below.
        return (below >= floor)
            .then(|| format!("{package} (floor {floor}) uses {used} (floor {below}): calls go down only"));
    }
    let (name, fence) = FENCES
        .iter()
        .find(|(name, _)| used.split('-').next() == Some(*name))?;
    match fence {
        Fence::Only(owner) => {
            (*owner != package).then(|| format!("{package} uses {used}: only {owner} may know {name}"))
        }
        Fence::FromFloor(lowest) => (floor < *lowest).then(|| {
            format!("{package} (floor {floor}) uses {used}: only floor {lowest} and up may know {name}")
        }),
    }
}

fn package_name(manifest: &str) -> Option<String> {
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[package]" {
            let value = line
                .strip_prefix("name")
                .and_then(|rest| rest.trim_start().strip_prefix('='));
            if let Some(value) = value {
                return Some(value.trim().trim_matches('"').to_owned());
            }
        }
    }
    None
}

/// Every dependency of every kind, in both spellings: a key of a dependency table, or a table of its own.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut in_table = false;
    let mut open_brackets = 0usize;
    for (at, raw) in manifest.lines().enumerate() {
        let line = raw.split('#').next().unwrap_or_default().trim();
        if open_brackets > 0 {
            open_brackets = open_brackets + opens(line) - closes(line).min(open_brackets + opens(line));
            continue; // the inside of a value that spans lines
        }
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let section = section.trim_matches('[');
            in_table = section == "dependencies"
                || section.ends_with("-dependencies")
                || section.ends_with(".dependencies");
            for kind in ["dependencies.", "dev-dependencies.", "build-dependencies."] {
                let own = section
                    .rfind(kind)
                    .filter(|&start| start == 0 || section[..start].ends_with('.'));
                if let Some(start) = own {
                    in_table = false;
                    let name = section[start + kind.len()..].trim_matches('"').to_owned();
                    found.push(Dependency { name, line: at + 1 });
                }
            }
            continue;
        }
        if in_table && let Some((key, value)) = line.split_once('=') {
            let key = key.trim().trim_matches('"');
            // A renamed dependency counts under its real name.
            let renamed = value
                .split("package")
                .nth(1)
                .and_then(|rest| rest.split('"').nth(1));
            let name = renamed.unwrap_or_else(|| key.split('.').next().unwrap_or(key));
            found.push(Dependency {
                name: name.to_owned(),
                line: at + 1,
            });
            open_brackets = opens(value).saturating_sub(closes(value));
        }
    }
    found
}

fn opens(text: &str) -> usize {
    text.matches(['[', '{']).count()
}

fn closes(text: &str) -> usize {
    text.matches([']', '}']).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(package: &str, body: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{package}\"\n\n{body}");
        let file = SourceFile {
            path: "crates/x/Cargo.toml".into(),
            text,
        };
        check(&[file]).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn calls_down_are_allowed() {
        let body =
            "[dependencies]\nweft-base.workspace = true\nweft-ops = { path = \"../ops\" }\nlibc = \"0.2\"\n";
        assert_eq!(messages("weft-store", body), [""; 0]);
    }

    #[test]
    fn calls_up_and_sideways_fail_in_every_spelling() {
        for body in [
            "[dependencies]\nweft-txn.workspace = true\n",
            "[dependencies]\nweft-program = { workspace = true }\n",
            "[dependencies.weft-sql]\nworkspace = true\n",
            "[dev-dependencies]\nweft-txn.workspace = true\n",
            "[build-dependencies]\nweft.workspace = true\n",
            "[target.'cfg(unix)'.dependencies]\nweft.workspace = true\n",
            "[dependencies]\nengine = { package = \"weft-txn\", path = \"../txn\" }\n",
        ] {
            assert_eq!(messages("weft-store", body).len(), 1, "{body}");
        }
        let sideways = messages("weft-wal", "[dependencies]\nweft-lock.workspace = true\n");
        assert!(sideways[0].contains("calls go down only"), "{sideways:?}");
    }

    #[test]
    fn fenced_crates_stay_inside_their_fences() {
        assert_eq!(
            messages("weft-sql", "[dependencies]\npgwire.workspace = true\n").len(),
            1
        );
        assert_eq!(
            messages("weft-server", "[dependencies]\npgwire.workspace = true\n"),
            [""; 0]
        );
        assert_eq!(
            messages("weft-txn", "[dependencies]\ndatafusion.workspace = true\n").len(),
            1
        );
        assert_eq!(
            messages("weft-txn", "[dependencies]\narrow-array = \"59\"\n").len(),
            1
        );
        assert_eq!(
            messages("weft-query", "[dependencies]\ndatafusion.workspace = true\n"),
            [""; 0]
        );
    }

    #[test]
    fn only_its_owner_names_the_simulator() {
        let findings = |path: &str| {
            let text = format!("//! Runs Veril{}.\n", "ator");
            let path = path.to_owned();
            check(&[SourceFile { path, text }]).len()
        };
        assert_eq!(findings("crates/device/build.rs"), 0);
        assert_eq!(findings("crates/cli/src/bench.rs"), 1);
    }

    #[test]
    fn a_value_over_several_lines_hides_nothing() {
        let body = "[dependencies]\ndatafusion = { version = \"1\", features = [\n \"sql\",\n] }\n\
                    weft-txn.workspace = true\n";
        assert_eq!(messages("weft-store", body).len(), 2);
    }

    #[test]
    fn a_crate_without_a_floor_fails() {
        assert_eq!(messages("weft-extra", "").len(), 1);
    }
}
