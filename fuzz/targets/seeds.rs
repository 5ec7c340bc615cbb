//! Writes the seeds of every target: `seeds DIR` makes `DIR/TARGET/NUMBER`.

fn main() -> std::io::Result<()> {
    let dir = std::path::PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "corpus".into()));
    for target in weft_lsm::fuzzing::TARGETS {
        let dir = dir.join(target.name);
        std::fs::create_dir_all(&dir)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(dir.join(number.to_string()), seed)?;
        }
    }
    Ok(())
}
