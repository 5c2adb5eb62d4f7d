#!/usr/bin/env bash
# Builds the fuzz targets and runs each for SECONDS (default 60) on its saved corpus, after replaying that corpus.
# New inputs and findings stay in build-fuzz/; a find ends the script with the failing input's path and text.
# LUMEN_FUZZ_SEED makes a run the same wherever and whenever it is made: a fixed number of mutations of the saved corpus
# alone, in a fixed order, and none drawn from addresses that comparisons saw. By default they are others each time.
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
  for source in "$root"/tests/fuzz/*_fuzz.cpp "$root"/tests/fuzz/net/*_fuzz.cpp; do
    name="$(basename "$source" .cpp)"
    targets+=("${name%_fuzz}")
  done
fi
(cd "$root" && cmake --preset fuzz -B "$build" > /dev/null)
cmake --build "$build" --target fuzz
program="$build/tests/fuzz/fuzz"

fuzz() {  # TARGET
  local target="$1" saved found what
  saved="$root/tests/fuzz/corpus/$target"
  found="$build/corpus/$target"
  mkdir -p "$saved" "$found" "$build/findings"
  echo "== $target: $(find "$saved" -type f | wc -l) saved inputs, ${LUMEN_FUZZ_SEED:+about }$seconds s"
  "$program" "$target" -runs=0 -timeout=20 -rss_limit_mb=2048 "$saved" > /dev/null 2>&1 || { echo "$target fails on its saved corpus"; return 1; }
  if [ -n "${LUMEN_FUZZ_SEED:-}" ]; then
    found="$build/corpus/$target-seeded"
    rm -rf "$found"
    mkdir -p "$found"
    find "$saved" -type f | LC_ALL=C sort > "$build/corpus/$target.list"
    what=(-seed="$LUMEN_FUZZ_SEED" -runs=$((seconds * 1000)) -use_cmp=0 -reload=0 "-seed_inputs=@$build/corpus/$target.list" "$found")
  else
    what=(-max_total_time="$seconds" "$found" "$saved")
  fi
  # What takes more than 20 s is a finding; a machine that stands still for 10 s in between is none.
  "$program" "$target" -timeout=20 -report_slow_units=20 -rss_limit_mb=2048 -malloc_limit_mb=512 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$target-" "${what[@]}" 2>&1 | grep -E "SUMMARY|ERROR|number_of_executed|Test unit|internal error|Base64" || true
  if compgen -G "$build/findings/$target-*" > /dev/null; then
    ls "$build/findings/$target-"*
    return 1
  fi
}
# As many at a time as there are cores; each tells its part when it is done.
export -f fuzz
export root build seconds program
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c \
  'output="$(fuzz {})" && status=0 || status=$?; echo "$output"; exit "$status"' || exit 1
