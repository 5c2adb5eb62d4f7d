#!/usr/bin/env bash
# Builds the fuzz targets and runs each for SECONDS (default 60) on its saved corpus, after replaying that corpus.
# New inputs and findings stay in build-fuzz/; a find ends the script with the failing input's path.
# LUMEN_FUZZ_SEED makes a run repeat the same mutations (default 0: others each time).
#   usage: run_fuzz.sh [SECONDS] [TARGET...]        needs clang++-22 with libFuzzer (libclang-rt-22-dev)
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
seconds="${1:-60}"
shift || true
build="${LUMEN_FUZZ_BUILD:-$root/build-fuzz}"
if [ $# -gt 0 ]; then
  targets=("$@")
else
  targets=()
  for source in "$root"/tests/fuzz/*_fuzz.cpp; do
    name="$(basename "$source" .cpp)"
    targets+=("${name%_fuzz}")
  done
fi
(cd "$root" && cmake --preset fuzz -B "$build" > /dev/null)
cmake --build "$build" --target "${targets[@]/%/_fuzz}"
for target in "${targets[@]}"; do
  saved="$root/tests/fuzz/corpus/$target"
  found="$build/corpus/$target"
  mkdir -p "$saved" "$found" "$build/findings"
  program="$(find "$build/tests/fuzz" -name "${target}_fuzz" -type f -perm -u+x | head -n 1)"
  echo "== $target: $(find "$saved" -type f | wc -l) saved inputs, $seconds s"
  "$program" -runs=0 -timeout=20 -rss_limit_mb=2048 "$saved" > /dev/null 2>&1 || { echo "$target fails on its saved corpus"; exit 1; }
  "$program" -seed="${LUMEN_FUZZ_SEED:-0}" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=512 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$target-" "$found" "$saved" 2>&1 | grep -E "SUMMARY|ERROR|number_of_executed|Test unit" || true
  if compgen -G "$build/findings/$target-*" > /dev/null; then
    ls "$build/findings/$target-"*
    exit 1
  fi
done
