#!/bin/sh
# Builds the fuzzer with coverage (stable compiler, libFuzzer from its crate) and runs one target:
#   fuzz/run.sh TARGET [SECONDS]
#   fuzz/run.sh list                  the names of all targets
# The corpus lies in fuzz/corpus/TARGET and begins with the seeds; what fails, in fuzz/artifacts/TARGET. Needs
# a C++ compiler.
set -eu
target=$1
seconds=${2:-60}
cd "$(dirname "$0")"
triple=x86_64-unknown-linux-gnu
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
cargo build --release --quiet --target "$triple"
export WEFT_FUZZ_TARGET="$target"
fuzzer="${CARGO_TARGET_DIR:-target}/$triple/release/weft-fuzz"
if [ "$target" = list ]; then exec "$fuzzer"; fi
mkdir -p "corpus/$target" "artifacts/$target"
export WEFT_FUZZ_SEEDS="corpus/$target"
exec "$fuzzer" "corpus/$target" -artifact_prefix="artifacts/$target/" -max_total_time="$seconds" \
    -max_len=8192 -rss_limit_mb=2048 -timeout=10 -print_final_stats=1
