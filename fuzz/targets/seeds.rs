//! The seeds of a target, written before it starts to where `WEFT_FUZZ_SEEDS` says.

/// Writes them as `0`, `1`, ... Nothing happens if no directory is named.
pub fn write(name: &str) {
    let Some(dir) = std::env::var_os("WEFT_FUZZ_SEEDS") else {
        return;
    };
    let dir = std::path::PathBuf::from(dir);
    let targets = weft_lsm::fuzzing::TARGETS;
    for target in targets.iter().filter(|target| target.name == name) {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let path = dir.join(number.to_string());
            if let Err(error) = std::fs::write(&path, seed) {
                eprintln!("{}: {error}", path.display());
            }
        }
    }
}
