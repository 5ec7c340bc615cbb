//! Compiles the shim over MPI, with the feature `mpi` alone, and links what the compiler wrapper names.
//!
//! The wrapper is `mpicc`, or the program that `WEFT_MPICC` names: `mpicc.openmpi` and `mpicc.mpich` stand
//! beside each other on Debian. Without the feature nothing is compiled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "mpi")]
    mpi::build();
}

#[cfg(feature = "mpi")]
mod mpi {
    use std::process::{Command, exit};

    pub fn build() {
        println!("cargo::rerun-if-changed=src/mpi/shim.c");
        println!("cargo::rerun-if-env-changed=WEFT_MPICC");
        let wrapper = std::env::var("WEFT_MPICC").unwrap_or_else(|_| "mpicc".to_owned());
        cc::Build::new()
            .compiler(&wrapper)
            .file("src/mpi/shim.c")
            .warnings(true)
            .compile("weft_mpi_shim");
        for word in link_words(&wrapper) {
            if let Some(folder) = word.strip_prefix("-L") {
                println!("cargo::rustc-link-search=native={folder}");
            } else if let Some(library) = word.strip_prefix("-l") {
                println!("cargo::rustc-link-lib=dylib={library}");
            }
        }
    }

    /// What the wrapper would pass to the linker. MPICH and Open MPI both know `-show`.
    fn link_words(wrapper: &str) -> Vec<String> {
        let output = Command::new(wrapper).arg("-show").output();
        let text = match output {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            other => {
                eprintln!("the feature `mpi` needs an MPI library: {wrapper} -show gave {other:?}");
                exit(1);
            }
        };
        text.split_whitespace().map(str::to_owned).collect()
    }
}
